"""Image classification where every client is judged on samples of its own: for personalised models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedbook import arguments, data
from fedbook.federation.population import Federation, Rows
from fedbook.federation.tree import Tree
from fedbook.learning.models import Model, model
from fedbook.learning.problems import OPTIONS, Images, ImageSettings, brightest, evaluations, load_images, subset
from fedbook.partition import Partition, split_clients
from fedbook.settings import setting


class PersonalSettings(ImageSettings):
    """How images, training and test ones pooled, are split; every client keeps some to itself to be judged on."""

    partition: str = setting("classes", None, "how clients differ; natural: some of femnist's writers, drawn at random",
                             choices=(*OPTIONS, "natural"))  # fmt: skip
    train_samples: int = setting(0, None, "images used in all, drawn at random", "0: all", minimum=0)
    judged_on: str = setting(
        "kept", None, "what each client keeps to itself, or the common test images in each client's mixture of classes",
        choices=("kept", "common"),
    )  # fmt: skip
    test_samples: int = setting(0, None, "test images used, drawn at random", "0: all", minimum=0,
                                needs={"judged_on": ("common",)})  # fmt: skip
    judge: str = setting(
        "test", None, "validation: a second part of own_share is judged on, the first one is not touched (common: a "
        "tenth of the training images, held out)",
        choices=("test", "validation"),
    )  # fmt: skip
    evaluate_every: int = evaluations(5)
    own_share: float = setting(0.1, None, "part of a client's images that it is judged on (the paper's 10 %)",
                               above=0.0, below=0.5, needs={"judged_on": ("kept",)})  # fmt: skip


@dataclass(frozen=True)
class PersonalProblem:
    """Images of all clients, one split a seed in training and own test rows, and a model.

    Shapes: ``x`` [N, C, H, W], ``y`` [N]; ``train`` and ``own``: one partition a seed each, of the same clients.
    Judged on common images: ``test_x`` [n, C, H, W], ``test_y`` [n], and ``own`` is empty.
    """

    name: str
    settings: PersonalSettings
    x: Tensor
    y: Tensor
    classes: tuple[str, ...]
    train: tuple[Partition, ...]
    own: tuple[Partition, ...]
    model: Model
    test_x: Tensor | None = None
    test_y: Tensor | None = None

    def federation(self) -> Federation:
        """The federation of these clients with their training rows."""
        return Federation({"x": self.x, "y": self.y}, list(self.train))

    def rows(self, slot: int, clients: Tensor, part: str = "own") -> Rows:
        """The ``own`` or ``train`` rows of ``clients`` in the split of seed number ``slot``."""
        split = getattr(self, arguments.one_of("part", part, ("own", "train")))[slot]
        return Rows({"x": self.x, "y": self.y}, split.table[clients], split.sizes[clients])

    def evaluation(
        self,
        logits: Callable[[Mapping[str, Tree], Mapping[str, Tree], int, Tensor, Tensor], Tensor],
        chunk: int = 4000,
        models: int | None = None,
    ) -> Callable[[Mapping[str, Tree], Mapping[str, Tree]], dict[str, Tensor]]:
        """``evaluate(server, clients)``: mean over all clients of accuracy and cross-entropy on their own rows, [S].

        On common test images ``accuracy`` is in each client's own mixture of classes and ``accuracy_all`` on all.

        ``logits(server, clients, slot, ids, x)`` says what the models of the clients ``ids`` [k] of federation
        ``slot`` answer to ``x`` [k, n, C, H, W]: [k, n, classes]; NaN (a model that diverged) stays NaN and is no
        guess. Memory: about ``chunk`` images, and at most ``models`` clients, at a time.
        """

        common = self.test_x is not None
        score, names = (self._score_common if common else self._score), ("accuracy", "loss", "accuracy_all")

        def evaluate(server: Mapping[str, Tree], clients: Mapping[str, Tree]) -> dict[str, Tensor]:
            scores = [
                score(lambda *rest, s=s: logits(server, clients, s, *rest), s, chunk, models)
                for s in range(len(self.train))
            ]
            values = (torch.stack(column).cpu() for column in zip(*scores, strict=True))
            return dict(zip(names[: 2 + common], values, strict=True))

        return evaluate

    def _score_common(
        self, logits: Callable[[Tensor, Tensor], Tensor], slot: int, chunk: int, models: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Means over clients: accuracy in a client's own mixture of classes, loss and accuracy on all test images."""
        split, n = self.train[slot], len(self.test_y)
        onehot = torch.nn.functional.one_hot(self.test_y, len(self.classes)).double()
        # a class without a test image is left out, and with it a client that has no other
        counts = split.counts(self.y.cpu(), len(self.classes)).to(onehot) * (onehot.sum(0) > 0)
        hits, losses = [], []
        step = max(1, min(models or split.num_clients, 10 * chunk // n))
        for start in range(0, split.num_clients, step):
            ids = torch.arange(start, min(start + step, split.num_clients))
            with torch.no_grad():
                answer = logits(ids, self.test_x.expand(len(ids), *self.test_x.shape))
            right = (answer.argmax(-1) == self.test_y).double()
            hits.append(torch.where(answer.isfinite().all(-1), right, math.nan))
            losses.append(torch.stack([torch.nn.functional.cross_entropy(one, self.test_y) for one in answer]))
        hit = torch.cat(hits)  # [K, n]
        own = (hit @ (onehot / onehot.sum(0).clamp(min=1)) * counts).sum(1) / counts.sum(1)
        return own[counts.sum(1) > 0].mean(), torch.cat(losses).double().mean(), hit.mean()

    def _score(
        self, logits: Callable[[Tensor, Tensor], Tensor], slot: int, chunk: int, models: int | None
    ) -> tuple[Tensor, Tensor]:
        split = self.own[slot]
        count, width = split.table.shape
        step = max(1, min(models or count, chunk // width))
        hits, losses = [], []
        for start in range(0, count, step):
            ids = torch.arange(start, min(start + step, count))
            table = split.table[ids].to(self.y.device)
            real = (torch.arange(width) < split.sizes[ids, None]).to(self.y.device)
            with torch.no_grad():
                answer, y = logits(ids, self.x[table]), self.y[table]
            each = torch.nn.functional.cross_entropy(answer.flatten(0, 1), y.flatten(), reduction="none").view(y.shape)
            share = real.double() / real.sum(1, keepdim=True)
            hit = torch.where(answer.isfinite().all(-1), (answer.argmax(-1) == y).double(), math.nan)
            hits.append((torch.where(real, hit, 0.0) * share).sum(1))
            losses.append((torch.where(real, each.double(), 0.0) * share).sum(1))
        return torch.cat(hits).mean(), torch.cat(losses).mean()


def personal_problem(
    name: str,
    settings: PersonalSettings | None = None,
    seeds: Sequence[int] = (0,),
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    root: str | None = None,
) -> PersonalProblem:
    """The images called ``name``, training and test pooled, split anew for each seed.

    ``judged_on="common"``: the training images alone, split as chapter 0's problem splits them.
    Pixels are shifted and scaled by the mean and deviation of all of them, two numbers that count as known.
    Raises: TypeError, ValueError (a client with too few images for its parts), fedbook.data.DataNotFound.
    """
    settings = arguments.instance("settings", settings or PersonalSettings(), PersonalSettings)
    if settings.judged_on == "common":
        if settings.partition == "natural":
            allowed = "another one with judged_on common: its images have no writers"
            raise arguments.wrong(ValueError, "partition", "natural", allowed)
        images = load_images(name, settings, root)
        x, test_x = images.standardised(device, dtype)
        return PersonalProblem(
            name=name, settings=settings, x=x, y=images.y.to(device), classes=images.classes,
            train=images.split(seeds), own=(), test_x=test_x, test_y=images.test_y.to(device),
            model=model(settings.model, images.shape, len(images.classes)).to(device),
        )  # fmt: skip
    loaded, options = data.load(name, dtype=torch.uint8, root=root), {}
    x, y = torch.cat([loaded.train_x, loaded.test_x]), torch.cat([loaded.train_y, loaded.test_y])
    if settings.partition == "natural":
        if loaded.train_writer is None or settings.train_samples:
            given = "images without writers" if loaded.train_writer is None else f"{settings.train_samples} images"
            raise ValueError(f"partition: got 'natural' with {given}; allowed is femnist with train_samples 0")
        options = {"groups": torch.cat([loaded.train_writer, loaded.test_writer])}
    x, y = subset(x, y, settings.train_samples, "train")
    images = Images(settings, x, y, x[:0], y[:0], tuple(loaded.classes), brightest(name))
    share = settings.own_share
    train, own = [], []
    for seed, whole in zip(seeds, images.split(seeds, **options), strict=True):
        kept, judged = split_clients(whole, (1 - share, share), seed)
        if settings.judge == "validation":
            kept, judged = split_clients(kept, ((1 - 2 * share) / (1 - share), share / (1 - share)), seed)
        train.append(kept)
        own.append(judged)
    return PersonalProblem(
        name=name, settings=settings, x=images.standardised(device, dtype)[0], y=y.to(device), classes=images.classes,
        train=tuple(train), own=tuple(own), model=model(settings.model, images.shape, len(images.classes)).to(device),
    )  # fmt: skip

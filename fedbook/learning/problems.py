"""Image classification on real data, split among clients: the problem that most chapters share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from fedbook import arguments, data
from fedbook.federation.population import Federation
from fedbook.federation.tree import Tree, first_leaf, tree_map
from fedbook.learning.models import MODELS, Model, model
from fedbook.partition import Partition, by_name
from fedbook.randomness import stream
from fedbook.settings import Settings, setting

IMAGES = {
    "digits": "handwritten digits, 8x8, 1,797 (scikit-learn)",
    "mnist": "handwritten digits, 28x28, 70,000",
    "fashion_mnist": "clothes, 28x28, 25,000 (balanced subset)",
    "cifar10": "colour photographs, 32x32, 60,000 (does not ship: fedbook data cifar10)",
    "cifar100": "colour photographs of 100 things, 32x32, 60,000 (does not ship: fedbook data cifar100)",
    "svhn": "house numbers, 32x32, 99,289 (does not ship: fedbook data svhn)",
    "femnist": "handwritten letters and digits by writer, 28x28 (does not ship: fedbook data femnist)",
    "tiny_imagenet": "colour photographs of 200 things, 64x64, 110,000 (does not ship: fedbook data tiny_imagenet)",
}
OPTIONS = {
    "iid": (),
    "shards": ("shards_per_client",),
    "classes": ("classes_per_client",),
    "dirichlet": ("alpha",),
    "quantity": ("alpha",),
}


def described(*names: str) -> dict[str, str]:
    """Data of the catalogue as a paper lists its problems. Raises: KeyError."""
    return {name: IMAGES[name] for name in names}


def evaluations(count: int) -> int:
    """The setting of how often models are judged, with ``count`` times a run as its default."""
    return setting(0, None, "rounds between evaluations", f"0: {count} evaluations a run", minimum=0)


class ImageSettings(Settings):
    """How images are split and which model learns them."""

    partition: str = setting("classes", None, "how clients differ (see fedbook.partition)", choices=OPTIONS)
    clients: int = setting(100, "K", "clients among whom the images are split", minimum=1)
    shards_per_client: int = setting(2, None, "of the partition shards", minimum=1)
    classes_per_client: int = setting(2, "S", "of the partition classes", minimum=1)
    alpha: float = setting(0.5, "alpha", "of the partitions dirichlet and quantity", "1e9: no skew",
                           maximum=1e9, above=0.0)  # fmt: skip
    train_samples: int = setting(0, None, "training images used, drawn at random", "0: all", minimum=0)
    test_samples: int = setting(0, None, "test images used, drawn at random", "0: all", minimum=0)
    model: str = setting("mlp", None, "see fedbook.learning.models", choices=MODELS)
    judge: str = setting(
        "test", None, "on what models are judged; validation: a tenth of the training images, held out for choosing",
        choices=("test", "validation"),
    )  # fmt: skip
    evaluate_every: int = evaluations(25)


@dataclass(frozen=True)
class ImageProblem:
    """Images, one split a seed, and a model.

    Shapes: ``x`` [N, C, H, W], ``y`` [N]; ``test_x`` [n, C, H, W], ``test_y`` [n]; one partition a seed.
    """

    name: str
    settings: ImageSettings
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]
    partitions: tuple[Partition, ...]
    model: Model

    def federation(self, pooled: bool = False) -> Federation:
        """The federation of these clients; ``pooled``: one client that holds everything."""
        splits = [p.pooled() if pooled else p for p in self.partitions]
        return Federation({"x": self.x, "y": self.y}, splits)

    def label_counts(self) -> Tensor:
        """[S, K, classes] number of samples of each class at each client."""
        labels = self.y.cpu()
        return torch.stack([p.counts(labels, len(self.classes)) for p in self.partitions])

    def evaluation(self) -> Callable[[Mapping[str, Tree], Mapping[str, Tree]], dict[str, Tensor]]:
        """``evaluate(server, clients)``: metrics [S] of the global model, or of personal ones if there is none.

        Global: accuracy and mean cross-entropy on the test set. Personal: ``accuracy`` is the mean over
        clients on test images in the client's own mixture of classes, ``accuracy_all`` the mean on all.
        """

        def evaluate(server: Mapping[str, Tree], clients: Mapping[str, Tree]) -> dict[str, Tensor]:
            if "theta" in server:
                hits, losses = self._judge(server["theta"])
                return {"accuracy": hits.double().mean(-1).cpu(), "loss": losses.double().mean(-1).cpu()}
            theta = clients["all"]["theta"]  # [S, K, ...]
            seeds, count = first_leaf(theta).shape[:2]
            hits, losses = self._judge(tree_map(lambda x: x.flatten(0, 1), theta))
            onehot = torch.nn.functional.one_hot(self.test_y, len(self.classes)).double()
            by_class = (hits.double() @ onehot / onehot.sum(0).clamp(min=1)).view(seeds, count, -1).cpu()
            # classes without a test image are left out, and with them a client that has no other
            counts = self.label_counts().double() * (onehot.sum(0) > 0).cpu()
            own = (by_class * counts / counts.sum(-1, keepdim=True)).sum(-1).nanmean(1)
            everything = hits.double().mean(-1).view(seeds, count).mean(1).cpu()
            return {
                "accuracy": own,
                "accuracy_all": everything,
                "loss": losses.double().mean(-1).view(seeds, count).mean(1).cpu(),
            }

        return evaluate

    def _judge(self, theta: Tree, chunk: int = 20_000) -> tuple[Tensor, Tensor]:
        """Hits and losses [R, n] of R models on the test set; memory bounded by ``chunk`` images times models."""
        rows, hits, losses = len(first_leaf(theta)), [], []
        width = max(1, min(len(self.test_y), chunk // max(rows, 1)))
        with torch.no_grad():
            for start in range(0, len(self.test_y), width):
                x, y = self.test_x[start : start + width], self.test_y[start : start + width]
                logits = vmap(self.model.apply, in_dims=(0, None))(theta, x)
                hits.append(logits.argmax(-1) == y)
                flat = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.repeat(rows), reduction="none")
                losses.append(flat.view(rows, -1))
        return torch.cat(hits, 1), torch.cat(losses, 1)


def image_problem(
    name: str,
    settings: ImageSettings | None = None,
    seeds: Sequence[int] = (0,),
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    root: str | None = None,
) -> ImageProblem:
    """The images called ``name`` (digits, mnist, fashion_mnist, cifar10), split anew for each seed.

    Pixels are shifted and scaled by the mean and deviation of all training pixels.
    Raises: TypeError, ValueError, fedbook.data.DataNotFound.
    """
    settings = settings or ImageSettings()
    images = data.load(name, dtype=torch.uint8, **({} if name == "digits" else {"root": root}))
    if not isinstance(settings, ImageSettings):
        raise arguments.wrong(TypeError, "settings", settings, "ImageSettings")
    (x, y), (test_x, test_y) = judged(images, settings)
    mean, deviation = pixel_moments(x)
    x, test_x = x.to(dtype), test_x.to(dtype)
    options = {key: getattr(settings, key) for key in OPTIONS[settings.partition]}
    splits = tuple(by_name(settings.partition, y, settings.clients, seed, **options) for seed in seeds)
    net = model(settings.model, tuple(x.shape[1:]), len(images.classes))
    net.module.to(device)
    return ImageProblem(
        name=name,
        settings=settings,
        x=((x - mean) / deviation).to(device),
        y=y.to(device),
        test_x=((test_x - mean) / deviation).to(device),
        test_y=test_y.to(device),
        classes=tuple(images.classes),
        partitions=splits,
        model=net,
    )


def judged(samples: Any, settings: Any) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """What is trained on and what is judged on: as many as ``settings`` ask for, the test samples or held-out ones.

    ``samples``: train_x, train_y, test_x, test_y. ``settings``: train_samples, test_samples, judge.
    """
    train, test = (samples.train_x, samples.train_y), (samples.test_x, samples.test_y)
    train_samples, test_samples = settings.train_samples, settings.test_samples
    if settings.judge == "validation":
        order = torch.from_numpy(stream(0, "validation").permutation(len(train[1])))
        held = len(order) // 10
        test, train = tuple(v[order[:held]] for v in train), tuple(v[order[held:]] for v in train)
        test_samples = min(test_samples, held)  # it was said of the test samples; these are fewer
        train_samples = min(train_samples, len(train[1]))  # and of all training samples
    return subset(*train, train_samples, "train"), subset(*test, test_samples, "test")


def pixel_moments(pixels: Tensor) -> tuple[float, float]:
    """Mean and deviation of uint8 pixels from exact counts: the same bits with any number of threads."""
    counts = torch.stack([torch.bincount(part.flatten(), minlength=256) for part in pixels.split(4096)]).sum(0).double()
    value = torch.arange(256, dtype=torch.float64)
    mean = (counts * value).sum() / counts.sum()
    return float(mean), float(((counts * (value - mean) ** 2).sum() / (counts.sum() - 1)).sqrt())


def subset(x: Tensor, y: Tensor, count: int, part: str) -> tuple[Tensor, Tensor]:
    """``count`` of the images, drawn at random by a key of the part's name; 0 keeps all."""
    if not count:
        return x, y
    arguments.integer(f"{part}_samples", count, 1, len(y))
    # the same images for every seed: repetitions differ in split, start and order, not in the data set
    chosen = torch.from_numpy(stream(0, f"subset {part}").permutation(len(y))[:count])
    return x[chosen], y[chosen]

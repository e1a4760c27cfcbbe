"""Chapter 1's problem: images without labels, split among clients, an encoder, and how it is judged.

The labels never reach a client: they are used to split the images and to judge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad

from fedbook import arguments
from fedbook.federation.population import Federation
from fedbook.federation.tree import Tree, first_leaf, leaves, tree_map
from fedbook.learning.augmentation import AUGMENTATIONS
from fedbook.learning.encoders import Encoder, encoder
from fedbook.learning.evaluation import (
    CHUNK,
    FEW,
    bounded,
    effective_rank,
    few_labels,
    few_rows,
    fewest,
    knn_predict,
    linear_probe,
)
from fedbook.learning.problems import PretrainingSettings, load_images
from fedbook.learning.views import Views
from fedbook.papers.fedsc.spectral import bank_objective, correlation, norm_clip
from fedbook.partition import Partition

JUDGED_VIEWS = 4  # views a sample of the bank on which the objective is computed, where training has none


@dataclass(frozen=True)
class Embedded:
    """What one encoder makes of the judged images. Shapes: h [N, D], z [N, H]; n test images."""

    train_h: Tensor
    train_z: Tensor
    test_h: Tensor
    test_z: Tensor


@dataclass(frozen=True)
class PretrainingProblem:
    """Images, one split a seed, an encoder and its views.

    Shapes: ``x`` [N, C, H, W] in [0, 1], ``y`` [N]; ``test_x``, ``test_y`` [n]; ``bank`` [N, K, C, H, W], normalised
    (None: fresh views); ``seen`` [M] the judged rows of x and ``seen_bank`` [M, K', C, H, W] their views.
    """

    name: str
    settings: PretrainingSettings
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]
    partitions: tuple[Partition, ...]
    encoder: Encoder
    views: Views
    bank: Tensor | None
    seen: Tensor
    seen_bank: Tensor

    def federation(self, pooled: bool = False) -> Federation:
        """The federation of these clients, without labels; ``pooled``: one client that holds everything."""
        splits = [p.pooled() if pooled else p for p in self.partitions]
        return Federation({"x": self.x} if self.bank is None else {"bank": self.bank}, splits)

    def owners(self, slot: int) -> Tensor:
        """[M] whose the judged images are in the split of seed number ``slot``."""
        split = self.partitions[slot]
        owner = torch.full((len(self.y),), -1, dtype=torch.long)
        used = torch.arange(split.table.shape[1]) < split.sizes[:, None]
        owner[split.table[used]] = torch.arange(split.num_clients)[:, None].expand_as(used)[used]
        return owner[self.seen.cpu()].to(self.y.device)

    @torch.no_grad()
    def embed(self, theta: Mapping[str, Tensor]) -> Embedded:
        """Features and representations of the judged training images and the test images, as they are."""
        parts = []
        for x in (self.x[self.seen], self.test_x):
            pairs = []
            for some in x.split(CHUNK):
                h = self.encoder.features(theta, self.views.plain(some))
                pairs.append((h, self.encoder.project(theta, h)))
            parts += [torch.cat(column) for column in zip(*pairs, strict=True)]
        return Embedded(*parts)

    def raw(self) -> Embedded:
        """The control without an encoder: pixels."""
        train, test = (self.views.plain(x).flatten(1) for x in (self.x[self.seen], self.test_x))
        return Embedded(train, train, test, test)

    def scores(self, seen: Embedded) -> dict[str, float]:
        """``knn``, ``knn_features``, ``probe``, ``probe_representation``, ``probe_few``: accuracies on the test images.

        Nearest neighbours by cosine, weights exp(cos / 0.1); probes: multinomial logistic regression on standardised
        features, to a gradient of 1e-6. Representations that are not finite give NaN.
        """
        names = ("knn", "knn_features", "probe", "probe_representation", "probe_few")
        if not bounded(*vars(seen).values()):
            return dict.fromkeys(names, float("nan"))
        y, k = self.y[self.seen], min(self.settings.neighbours, len(self.seen))

        def knn(train: Tensor, test: Tensor) -> float:
            answer = knn_predict(train, y, test, k=k, num_classes=len(self.classes), weights="softmax")
            return float((answer == self.test_y).double().mean())

        def probe(train: Tensor, test: Tensor, rows: Tensor | slice = slice(None)) -> float:
            fitted = linear_probe(train[rows], y[rows], standardise=True, tolerance=1e-6)
            return fitted.accuracy(test, self.test_y)

        few = few_labels(y, min(FEW, fewest(y)), seed=0)
        values = (
            knn(seen.train_z, seen.test_z), knn(seen.train_h, seen.test_h), probe(seen.train_h, seen.test_h),
            probe(seen.train_z, seen.test_z), probe(seen.train_h, seen.test_h, few),
        )  # fmt: skip
        return dict(zip(names, values, strict=True))

    def objective(self, theta: Mapping[str, Tensor], slot: int, mu: float, gradient: bool = False) -> dict[str, float]:
        """``loss`` (the global spectral contrastive loss on the judged views), ``gap``, ``rank``, ``gradient``.

        ``gap``: how far the weighted mean of the clients' own losses lies above it. ``rank``: effective rank of the
        correlation matrix of unclipped representations. ``gradient``: the squared length of the loss's gradient.
        Otherwise representations are clipped to ``mu`` (infinite: not); NaN where they are not finite.
        Source: FedSC, equations (1) and (4).
        """
        owner = self.owners(slot)
        bank = self.seen_bank[owner >= 0]  # a split may leave rows to nobody
        present, owner = owner[owner >= 0].unique(return_inverse=True)

        def represented(theta: Mapping[str, Tensor]) -> Tensor:
            z = torch.cat([self.encoder.apply(theta, some) for some in bank.flatten(0, 1).split(CHUNK)])
            return z.unflatten(0, bank.shape[:2])

        def loss(theta: Mapping[str, Tensor]) -> Tensor:
            return bank_objective(norm_clip(represented(theta), mu), owner, len(present)).loss

        with torch.no_grad():
            z = represented(theta)
            if not bounded(z):
                return dict.fromkeys(("loss", "gap", "rank", *(("gradient",) if gradient else ())), math.nan)
            found = bank_objective(norm_clip(z, mu), owner, len(present))
        values = {"loss": float(found.loss), "gap": float(found.gap), "rank": float(effective_rank(correlation(z)))}
        if gradient:
            slope = grad(loss)(dict(theta))
            values["gradient"] = float(sum(g.double().square().sum() for _, g in leaves(slope)))
        return values

    def evaluation(
        self, mu: float | None, raw: bool = False
    ) -> Callable[[Mapping[str, Tree], Mapping[str, Tree]], dict[str, Tensor]]:
        """``evaluate(server, clients)``: metrics [S] of the global encoder, or the mean over personal ones.

        ``mu``: the clip under which the spectral loss is computed; None: the method has no such loss (metric null).
        ``raw``: pixels in place of an encoder.
        """
        small = self.seen_bank.numel() <= 2**21  # the gradient of the whole objective, where it costs little

        def one(theta: Mapping[str, Tensor] | None, slot: int) -> dict[str, float]:
            found = self.scores(self.raw() if theta is None else self.embed(theta))
            if theta is None:
                return found | {"loss": float("nan")}
            if mu is None:
                return found | {"loss": float("nan"), "rank": self.objective(theta, slot, math.inf)["rank"]}
            return found | self.objective(theta, slot, mu, gradient=small)

        def evaluate(server: Mapping[str, Tree], clients: Mapping[str, Tree]) -> dict[str, Tensor]:
            rows = []
            for slot in range(len(self.partitions)):
                if raw:
                    rows.append(one(None, slot))
                elif "theta" in server:
                    rows.append(one(tree_map(lambda p, s=slot: p[s], server["theta"]), slot))
                else:
                    own = clients["all"]["theta"]
                    count = first_leaf(own).shape[1]
                    each = [one(tree_map(lambda p, s=slot, k=k: p[s, k], own), slot) for k in range(count)]
                    rows.append({name: sum(e[name] for e in each) / count for name in each[0]})
            return {name: torch.tensor([row[name] for row in rows], dtype=torch.float64) for name in rows[0]}

        return evaluate


def pretraining_problem(
    name: str,
    settings: PretrainingSettings | None = None,
    seeds: Sequence[int] = (0,),
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    root: str | None = None,
) -> PretrainingProblem:
    """The images called ``name``, split anew for each seed; the views and their bank are the same for all seeds.

    Raises: TypeError, ValueError, fedbook.data.DataNotFound.
    """
    settings = arguments.instance("settings", settings or PretrainingSettings(), PretrainingSettings)
    images = load_images(name, settings, root)
    x, test_x = images.scaled(device, dtype)
    views = Views(AUGMENTATIONS[settings.views], *images.moments(), images.shape, settings.bank)
    net = encoder(settings.model, images.shape, settings.width, settings.projector, settings.projector_hidden)
    bank = views.make_bank(x, settings.bank) if settings.bank else None
    seen = few_rows(images.y, settings.judged_samples).to(device)
    if bank is None:
        seen_bank = views.make_bank(x[seen], JUDGED_VIEWS, "judged views")
    else:
        seen_bank = bank if len(seen) == len(x) else bank[seen]  # no second copy of the whole bank
    return PretrainingProblem(
        name=name, settings=settings, x=x, y=images.y.to(device), test_x=test_x, test_y=images.test_y.to(device),
        classes=images.classes, partitions=images.split(seeds), encoder=net.to(device), views=views, bank=bank,
        seen=seen, seen_bank=seen_bank,
    )  # fmt: skip

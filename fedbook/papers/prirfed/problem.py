"""The problems of chapter 3: records on a manifold split among agents, a loss of one record, and the true value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedbook import arguments, data
from fedbook.data.photographs import photograph_patches
from fedbook.federation.population import Federation
from fedbook.federation.tree import Tree
from fedbook.geometry import SPD, Hyperboloid, frechet_mean
from fedbook.papers.prirfed.covariance import region_covariance
from fedbook.papers.prirfed.losses import Eigenvector, RecordLoss, Records, SquaredDistance
from fedbook.papers.prirfed.structured import RULES, deal, mammal_words, predict, synthetic_tree, word_weights
from fedbook.papers.prirfed.synthetic import (
    directional_records,
    eigengap_records,
    hyperbolic_ball_records,
    wishart_records,
)
from fedbook.partition import Partition, iid
from fedbook.randomness import stream
from fedbook.settings import Settings, other_than, setting


class ManifoldSettings(Settings):
    """Which records, and how they are dealt to the agents: as evenly as possible."""

    agents: int = setting(50, "N", "agents among whom the records are dealt", minimum=1, maximum=10**6)
    samples: int = setting(0, None, "records in all, drawn at random", "0: as many as there are", minimum=0,
                           needs={"problem": other_than("words-mammals", "words-tree")})  # fmt: skip
    start: str = setting(
        "random", "x^(0)", "a random point of each seed, or the origin (the identity, the tip of the hyperboloid)",
        choices=("random", "origin"),
    )  # fmt: skip
    dimension: int = setting(25, "d + 1", "of pca-synthetic", minimum=6, needs={"problem": ("pca-synthetic",)})
    eigengap: float = setting(1e-3, "nu", "of pca-synthetic", above=0.0, maximum=0.5,
                              needs={"problem": ("pca-synthetic",)})  # fmt: skip
    shared_basis: bool = setting(False, None, "pca-synthetic: whether all agents have one basis, V for V_i",
                                 needs={"problem": ("pca-synthetic",)})  # fmt: skip
    radius: float = setting(1.0, None, "of the ball of frechet-wishart and frechet-ball", maximum=10.0, above=0.0,
                            needs={"problem": ("frechet-wishart", "frechet-ball")})  # fmt: skip
    word: str = setting("primate", None, "words-*: the word that is predicted",
                        needs={"problem": ("words-mammals", "words-tree")})  # fmt: skip
    ridge: float = setting(1e-5, "gamma", "of words-*", above=0.0, needs={"problem": ("words-mammals", "words-tree")})
    kernel_width: float = setting(0.3, "nu bar", "of words-*", above=0.0,
                                  needs={"problem": ("words-mammals", "words-tree")})  # fmt: skip
    kernel_rule: str = setting("source", None, "words-*: see fedbook.papers.prirfed.structured.kernel_weights",
                               choices=RULES, needs={"problem": ("words-mammals", "words-tree")})  # fmt: skip
    evaluate_every: int = setting(0, None, "rounds between evaluations", "0: 50 evaluations a run", minimum=0)


@dataclass(frozen=True)
class ManifoldProblem:
    """Records of all agents, one split a seed, their loss, and what the best point is.

    Shapes: ``samples[name]`` [N, ...]; ``start`` [S, *point]; ``best`` [*point], where the pooled risk is smallest.
    ``bound``: the default clip norm, public: what no record's gradient exceeds (pca), 1 (matrices) or 4 max |alpha|
    (words), as in the paper. ``smoothness``: L_g. ``truth`` [*point]: the embedding that a word has, else None.
    ``public``: what the guarantee takes as known to all.
    """

    name: str
    settings: ManifoldSettings
    loss: RecordLoss
    samples: Records
    partitions: tuple[Partition, ...]
    start: Tensor
    bound: float
    smoothness: float
    best: Tensor
    truth: Tensor | None = None
    public: tuple[str, ...] = ()

    def federation(self, pooled: bool = False) -> Federation:
        """The federation of these agents; ``pooled``: one that holds everything."""
        return Federation(self.samples, [p.pooled() if pooled else p for p in self.partitions])

    def risk(self, x: Tensor) -> Tensor:
        """f(x) over all records, one number a point: x [S, *point] to [S]. Source: PriRFed, equation (1.1)."""
        if isinstance(self.loss, Eigenvector):
            return -torch.einsum("sd,de,se->s", x, self._moment, x)
        return self._pooled(lambda point, records: self.loss.values(point, records).sum(-1), x)

    def gradient(self, x: Tensor) -> Tensor:
        """grad f(x) over all records: [S, *point] to [S, *point]."""
        if isinstance(self.loss, Eigenvector):
            return self.loss.manifold.gradient(x, -2 * x @ self._moment)

        def summed(point: Tensor, records: Records) -> Tensor:
            ones = torch.ones(len(next(iter(records.values()))), dtype=x.dtype, device=x.device)
            return self.loss.clipped_mean(point, records, ones, math.inf)

        return self._pooled(summed, x)

    def evaluation(self, **constants: float) -> Callable[[Mapping[str, Tree], Mapping[str, Tree]], dict[str, Tensor]]:
        """``evaluate(server, clients)``: metrics [S] of the reported point, and ``constants`` beside them.

        ``cost`` f(x), ``excess_risk`` f(x) - f(x*), ``grad_norm``, ``distance`` to x* (up to sign on the sphere), and
        ``error``, the distance to the true embedding, where a word is predicted.
        """
        manifold, best_value = self.loss.manifold, float(self.risk(self.best[None])[0])

        def evaluate(server: Mapping[str, Tree], clients: Mapping[str, Tree]) -> dict[str, Tensor]:
            x = server.get("report", server["x"])
            cost = self.risk(x)
            best = self.best
            if isinstance(self.loss, Eigenvector):  # an eigenvector has two signs
                best = torch.where((x @ best)[:, None] < 0, -best, best)
            metrics = {
                "cost": cost,
                "excess_risk": cost - best_value,
                "grad_norm": manifold.norm(x, self.gradient(x)),
                "distance": manifold.dist(x, best),
            }
            if self.truth is not None:
                metrics["error"] = manifold.dist(x, self.truth)
            metrics |= {name: torch.full((len(x),), value, dtype=torch.float64) for name, value in constants.items()}
            return {name: values.double().cpu() for name, values in metrics.items()}

        return evaluate

    @property
    def _moment(self) -> Tensor:
        """The records' second moments, [D, D]."""
        z = self.samples["z"]
        if "_moment_matrix" not in self.__dict__:
            object.__setattr__(self, "_moment_matrix", z.mT @ z / len(z))
        return self.__dict__["_moment_matrix"]

    def _pooled(self, function: Callable[[Tensor, Records], Tensor], x: Tensor) -> Tensor:
        """The mean over all records of ``function`` at each point, 20,000 records at a time, point by point."""
        count, chunk, totals = len(next(iter(self.samples.values()))), 20_000, []
        for point in x:
            pieces = [
                function(point, {name: z[i : i + chunk] for name, z in self.samples.items()})
                for i in range(0, count, chunk)
            ]
            totals.append(torch.stack(pieces).sum(0) / count)
        return torch.stack(totals)


PROBLEMS: Mapping[str, str] = {
    "pca-mnist": "leading eigenvector of the 60,000 images of MNIST, on the sphere S^783",
    "pca-digits": "leading eigenvector of scikit-learn's 1,797 digits, on S^63",
    "pca-synthetic": "leading eigenvector of synthetic records with an eigengap, on S^24 (Figure 1)",
    "pca-directional": "leading eigenvector of unit vectors around one axis, on S^9",
    "frechet-wishart": "Frechet mean of 5,000 Wishart matrices, SPD(2) (Figure 3)",
    "frechet-patches": "Frechet mean of covariance descriptors of patches of two photographs, SPD(9)",
    "frechet-cifar10": "the same of CIFAR-10 (does not ship: fedbook data cifar10)",
    "frechet-pathmnist": "the same of PathMNIST, as in Figure 4 (does not ship: fedbook data pathmnist)",
    "frechet-ball": "Frechet mean of points in a ball of the hyperbolic plane",
    "words-mammals": "a word's place among the mammals of WordNet, hyperbolic plane (Figures 5 and 6)",
    "words-tree": "a node's place in a synthetic tree, hyperbolic plane",
}


def manifold_problem(
    name: str, settings: ManifoldSettings | None = None, seeds: Sequence[int] = (0,), device: torch.device | str = "cpu"
) -> ManifoldProblem:
    """The problem called ``name`` in float64; the records are the same for all seeds, split and start are each seed's.

    Raises: TypeError, ValueError, fedbook.data.DataNotFound.
    """
    settings = arguments.instance("settings", settings or ManifoldSettings(), ManifoldSettings)
    family = arguments.one_of("problem", name, PROBLEMS).split("-")[0]
    made = {"pca": _eigenvector, "frechet": _frechet, "words": _words}[family](name, settings, seeds)
    samples = {key: z.to(device) for key, z in made.pop("samples").items()}
    manifold, best = made["loss"].manifold, made["best"].to(device)
    first = []
    for seed in seeds:
        origin = manifold.origin(best.shape[-1])
        point = manifold.random_point(best.shape[-1], stream(seed, "init"))
        first.append(origin if settings.start == "origin" else point)
    return ManifoldProblem(
        name, settings, samples=samples, start=torch.stack(first).to(device), **made | {"best": best}
    )


def _eigenvector(name: str, settings: ManifoldSettings, seeds: Sequence[int]) -> dict[str, Any]:
    agents, partitions = settings.agents, None
    if name == "pca-synthetic":
        records = _share(settings, 70)
        if records < settings.dimension:
            allowed = f"at least {settings.dimension} for each of the {settings.agents} agents"
            raise arguments.wrong(ValueError, "samples", settings.samples, allowed)
        z = eigengap_records(
            agents, records, dimension=settings.dimension, eigengap=settings.eigengap,
            shared_basis=settings.shared_basis,
        )  # fmt: skip
        z, partitions = z.flatten(0, 1), _in_order(agents, records)
    elif name == "pca-directional":
        z = directional_records(agents, _share(settings, 500)).flatten(0, 1)
        partitions = _in_order(agents, len(z) // agents)
    else:
        images = data.load(name.removeprefix("pca-"), dtype=torch.uint8)
        z = images.train_x if name == "pca-mnist" else torch.cat([images.train_x, images.test_x])
        z = z[_drawn(len(z), settings)].flatten(1).double()  # the origin is kept: centring would need a private mean
        z /= z.norm(dim=1, keepdim=True)
    return {
        "loss": Eigenvector(), "samples": {"z": z, "s": z.square().sum(1)}, "bound": 1.0,
        "partitions": partitions or _split(len(z), settings, seeds), "smoothness": 2 * float(z.square().sum(1).max()),
        "best": torch.linalg.eigh(z.mT @ z / len(z)).eigenvectors[:, -1], "public": ("no record is longer than 1",),
    }  # fmt: skip


def _frechet(name: str, settings: ManifoldSettings, seeds: Sequence[int]) -> dict[str, Any]:
    if name == "frechet-ball":
        y = hyperbolic_ball_records(settings.samples or 400, radius=settings.radius)
        manifold, span = Hyperboloid(), 2 * settings.radius
    elif name == "frechet-wishart":
        y = wishart_records(settings.samples or 5000, radius=settings.radius)
        manifold, span = SPD(), 2 * settings.radius
    else:
        if name == "frechet-patches":
            x = photograph_patches(settings.samples or 20_000).x
        else:
            images = data.load(name.removeprefix("frechet-"), dtype=torch.uint8)
            x = images.train_x[_drawn(len(images.train_x), settings, 20_000)]
        y, manifold, span = region_covariance(x), SPD(), None
    loss = SquaredDistance(manifold)
    weights = torch.full((len(y),), 1 / len(y), dtype=torch.float64)
    best, _ = frechet_mean(manifold, manifold.nearest(y.mean(0)), y, weights)
    span = float(2 * manifold.dist(best, y).max()) if span is None else span
    curvature = -manifold.curvature[0]
    return {
        "loss": loss, "samples": {"y": y}, "partitions": _split(len(y), settings, seeds), "best": best, "bound": 1.0,
        "smoothness": 2 * _zeta(curvature, span), "public": (),
    }  # fmt: skip


def _zeta(curvature: float, span: float) -> float:
    """The curvature constant of equation (5.1) for curvature -``curvature`` and diameter ``span``."""
    reach = math.sqrt(curvature) * span
    return reach / math.tanh(reach) if reach > 0 else 1.0


def _share(settings: ManifoldSettings, default: int) -> int:
    """Records of each agent, all alike, where the records are made agent by agent."""
    samples = settings.samples or default * settings.agents
    if samples % settings.agents:
        raise arguments.wrong(ValueError, "samples", samples, f"a multiple of the {settings.agents} agents")
    return samples // settings.agents


def _drawn(count: int, settings: ManifoldSettings, default: int = 0) -> Tensor:
    """Which of ``count`` records are used, in random order."""
    wanted = settings.samples or default or count
    arguments.integer("agents", settings.agents, 1, count)
    arguments.integer("samples", wanted, settings.agents, count)
    return torch.from_numpy(stream(0, "samples").permutation(count)[:wanted])


def _split(count: int, settings: ManifoldSettings, seeds: Sequence[int]) -> tuple[Partition, ...]:
    return tuple(iid(count, arguments.integer("agents", settings.agents, 1, count), seed) for seed in seeds)


def _in_order(agents: int, records: int) -> tuple[Partition, ...]:
    return (Partition.from_lists(torch.arange(agents * records).view(agents, records)),)


def _words(name: str, settings: ManifoldSettings, seeds: Sequence[int]) -> dict[str, Any]:
    """One split for all seeds: the weights depend on it, and so does what they predict."""
    words = mammal_words() if name == "words-mammals" else synthetic_tree()
    word = settings.word if name == "words-mammals" or settings.word != "primate" else "0.1.1"
    rows = deal(words, word, settings.agents)
    a = word_weights(words, word, rows, settings.ridge, settings.kernel_width, settings.kernel_rule)
    y, a, manifold = words.points[rows.flatten()], a.flatten(), Hyperboloid()
    reach = float(manifold.dist(manifold.origin(3), y).max())
    best, _ = predict(y, a)
    largest = 2 * float(a.abs().max())
    return {
        "loss": SquaredDistance(manifold), "samples": {"y": y, "a": a}, "partitions": _in_order(*rows.shape),
        "bound": 2 * largest, "smoothness": largest * _zeta(1.0, reach), "best": best,
        "truth": words.points[words.taxonomy.index(word)],
        "public": ("the features of all words", "how far out they lie"),
    }  # fmt: skip

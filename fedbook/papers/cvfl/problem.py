"""Vertical problems: several parties hold different features of the same samples and embed them, a server fuses.

Images are cut into quadrants (or strips), views and columns are dealt out. Parties whose features have one shape are
a group and are simulated together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import vmap

from fedbook import arguments, data
from fedbook.federation.population import Federation
from fedbook.federation.tree import Tree, first_leaf
from fedbook.learning.models import Network
from fedbook.learning.problems import evaluations, judged
from fedbook.papers.cvfl.towers import FUSIONS, TOWERS, Fusion, fusion, tower
from fedbook.partition import Partition
from fedbook.partition.vertical import quadrants, stack_parties, views
from fedbook.settings import Settings, other_than, setting

LOSSES = ("cross_entropy", "squared")
PROBLEMS = {
    "digits": "scikit-learn's 8x8 digits in quadrants (ships)",
    "mnist": "MNIST in quadrants (ships)",
    "fashion_mnist": "Fashion-MNIST in quadrants (a part ships)",
    "cifar10": "CIFAR-10 in quadrants (the paper's; to be fetched)",
    "solids": "STAND-IN for ModelNet10: 12 rendered views of ten kinds of solids (made on the spot)",
    "modelnet10": "ModelNet10, 12 views of each object (the paper's; see data/README.md)",
    "series": "STAND-IN for MIMIC-III: 48 hours of 76 synthetic measurements, few positives (made on the spot)",
    "mimic3": "MIMIC-III in-hospital mortality (the paper's; for those who have access, see data/README.md)",
    "breast_cancer": "Wisconsin breast cancer, 30 columns (comes with scikit-learn)",
    "imagenet100": "100 classes of ImageNet in quadrants (the paper's appendix; a folder of yours)",
}
VIEWS, SERIES, TABLES = ("solids", "modelnet10"), ("series", "mimic3"), ("breast_cancer",)


class VerticalSettings(Settings):
    """Who holds what, and which networks embed and fuse it.

    Images are cut into 4 quadrants, whole for 1 party, else vertical strips; views and columns go in equal parts.
    """

    parties: int = setting(4, "M", "parties that hold the features", minimum=1,
                           needs={"method": other_than("split-learning")})  # fmt: skip
    only_party: int = setting(
        0, "m", "control: the number of the one party that is there, without the others' features", "0: all parties",
        minimum=0, needs={"method": other_than("split-learning")},
    )  # fmt: skip
    embedding: int = setting(32, "P_m", "components of an embedding; fusion logits: as many as classes", minimum=1)
    tower: str = setting("mlp", "h_m", "a party's network", choices=TOWERS)
    activation: str = setting(
        "tanh", None, "at its end; tanh: in (-1, 1), a range both sides know; linear: its range is sent along",
        choices=("tanh", "linear"),
    )  # fmt: skip
    fusion: str = setting("concat", "theta_0", "the server's network", choices=FUSIONS)
    loss: str = setting("cross_entropy", "F", "squared: half the squared distance to the one-hot label", choices=LOSSES)
    train_samples: int = setting(0, None, "training samples used", "0: all", minimum=0)
    test_samples: int = setting(0, None, "test samples used", "0: all", minimum=0)
    judge: str = setting(
        "test", None, "on what models are judged; validation: a tenth of the training samples, held out for choosing",
        choices=("test", "validation"),
    )  # fmt: skip
    evaluate_every: int = evaluations(30)


def batch_loss(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """``loss(logits, y)``: the mean over a batch. Shapes: logits [..., B, classes], y [..., B] to [...]."""

    def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
        each = torch.nn.functional.cross_entropy(logits.flatten(0, -2), y.flatten(), reduction="none")
        return each.view(y.shape).mean(-1)

    def squared(logits: Tensor, y: Tensor) -> Tensor:
        target = (y.unsqueeze(-1) == torch.arange(logits.shape[-1], device=y.device)).to(logits.dtype)
        return (logits - target).square().sum(-1).mean(-1) / 2

    return {"cross_entropy": cross_entropy, "squared": squared}[arguments.one_of("loss", name, LOSSES)]


@dataclass(frozen=True)
class VerticalProblem:
    """The parties' features, the labels and the networks.

    Shapes: ``parts`` by group [M_g, N, ...], ``y`` [N]; ``test_parts`` [M_g, n, ...], ``test_y`` [n]. Parties are
    numbered through the groups in their order. Memory: the features once; a federation has a copy of its own.
    """

    name: str
    settings: VerticalSettings
    parts: Mapping[str, Tensor]
    y: Tensor
    test_parts: Mapping[str, Tensor]
    test_y: Tensor
    classes: tuple[str, ...]
    towers: Mapping[str, Network]
    fusion: Fusion

    @property
    def members(self) -> dict[str, range]:
        """The numbers of each group's parties."""
        members, start = {}, 0
        for word, part in self.parts.items():
            members[word] = range(start, start + len(part))
            start += len(part)
        return members

    def federation(self, labels: bool = True) -> Federation:
        """One client a party; ``labels``: every party holds the labels (Algorithm 1), else none does."""
        groups = {}
        for word, part in self.parts.items():
            samples, partition = stack_parties(part)
            groups[word] = ({"x": samples} | ({"y": self.y.repeat(len(part))} if labels else {}), partition)
        return Federation.of_groups(groups)

    def pooled(self) -> Federation:
        """One client that holds every feature of every sample: x/GROUP [N, M_g, ...]."""
        samples = {f"x/{word}": part.movedim(0, 1).contiguous() for word, part in self.parts.items()}
        return Federation(samples | {"y": self.y}, Partition.from_lists([range(len(self.y))]))

    def embed(self, theta: Mapping[str, Tree], parts: Mapping[str, Tensor]) -> Tensor:
        """All parties' embeddings, combined for the server: theta by group [M_g, ...], parts [M_g, B, ...] to z."""
        embeddings = []
        for word, tower_ in self.towers.items():
            embeddings += list(vmap(tower_.apply)(theta[word], parts[word]).unbind(0))
        return self.fusion.combine(embeddings)

    def evaluation(self, chunk: int = 8000) -> Callable[[Mapping[str, Tree], Mapping[str, Tree]], dict[str, Tensor]]:
        """``evaluate(server, clients)``: metrics [S] of the true model, nothing compressed, on the test samples.

        accuracy, loss; for two classes f1 of the second class as well, for more than ten top5 accuracy.
        Memory: the activations of ``chunk`` embeddings at a time, seeds and parties counted.
        """
        loss = batch_loss(self.settings.loss)

        def evaluate(server: Mapping[str, Tree], clients: Mapping[str, Tree]) -> dict[str, Tensor]:
            if "theta0" in server:
                theta0, theta = server["theta0"], {word: clients[word]["theta"] for word in self.towers}
            else:  # everything on one machine
                own = {name: _first(tree) for name, tree in clients["all"].items()}
                theta0, theta = own["theta0"], own["theta"]
            hits, losses, predicted, within = [], [], [], []
            parties = sum(map(len, self.parts.values()))
            width = max(1, chunk // (len(first_leaf(theta)) * parties))
            with torch.no_grad():
                for start in range(0, len(self.test_y), width):
                    rows = slice(start, start + width)
                    y = self.test_y[rows]
                    x = {word: part[:, rows] for word, part in self.test_parts.items()}
                    z = vmap(self.embed, in_dims=(0, None))(theta, x)
                    logits = self.fusion.apply(theta0, z)
                    predicted.append(logits.argmax(-1))
                    hits.append((predicted[-1] == y).double().sum(-1))
                    losses.append(torch.stack([loss(one, y).double() * len(y) for one in logits]))
                    if len(self.classes) > 10:
                        within.append((logits.topk(5).indices == y[:, None]).any(-1).double().sum(-1))
            count, guess = len(self.test_y), torch.cat(predicted, -1)
            metrics = {"accuracy": sum(hits).cpu() / count, "loss": sum(losses).cpu() / count}
            if len(self.classes) == 2:
                metrics["f1"] = f1(guess, self.test_y.expand_as(guess)).cpu()
            if within:
                metrics["top5"] = sum(within).cpu() / count
            return metrics

        return evaluate


def _first(tree: Tree) -> Tree:
    """The only client's state: [S, 1, ...] to [S, ...]."""
    return {k: _first(v) for k, v in tree.items()} if isinstance(tree, Mapping) else tree[:, 0]


def f1(predicted: Tensor, truth: Tensor) -> Tensor:
    """The harmonic mean of precision and recall of class 1, in [0, 1]: 2 TP / (2 TP + FP + FN); 0 without positives.

    TP, FP, FN: true positives, false positives, false negatives.
    Shapes: ``predicted``, ``truth`` [..., N], of classes 0 and 1 -> [...] float64.
    Source: van Rijsbergen, Information Retrieval (1979), chapter 7: 1 - E with equal weights.
    """
    hits = (predicted * truth).sum(-1).double()
    return 2 * hits / (predicted.sum(-1) + truth.sum(-1)).clamp(min=1)  # 2 TP + FP + FN


def parts_of(problem: str, x: Tensor, parties: int) -> list[Tensor]:
    """The features of each party, M tensors [N, ...]. Raises: ValueError (too many parties, unequal views)."""
    if problem in VIEWS:
        return list(views(x, parties).unbind(0))
    if parties == 4 and problem not in SERIES + TABLES:
        return list(quadrants(x).unbind(0))
    arguments.tensor("features", x)
    arguments.integer("parties", parties, 1, x.shape[-1])
    return list(x.tensor_split(parties, -1))  # of images whole for one party, else strips


def vertical_problem(
    name: str,
    settings: VerticalSettings | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    root: str | None = None,
) -> VerticalProblem:
    """The problem called ``name`` (a word of PROBLEMS). Pixels are shifted and scaled by all training pixels' moments.

    Raises: TypeError, ValueError, fedbook.data.DataNotFound.
    """
    settings = arguments.instance("settings", settings or VerticalSettings(), VerticalSettings)
    arguments.one_of("problem", name, PROBLEMS)
    images = judged(_load(name, settings, root), settings)
    pair = images.standardised("cpu", dtype) if images.x.dtype == torch.uint8 else (images.x, images.test_x)
    shaped: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = {}
    parts = list(zip(*(parts_of(name, v.to(dtype), settings.parties) for v in pair), strict=True))
    if settings.only_party:
        arguments.integer("only_party", settings.only_party, 1, settings.parties)
        parts = [parts[settings.only_party - 1]]
    for part, other in parts:
        shaped.setdefault(tuple(part.shape[1:]), []).append((part, other))  # in the order of their first party
    group_names = ["parties"] if len(shaped) == 1 else ["parties " + "x".join(map(str, shape)) for shape in shaped]
    width, classes = settings.embedding, len(images.classes)
    if settings.fusion == "logits" and width != classes:
        raise arguments.wrong(ValueError, "embedding", width, f"the {classes} classes with fusion 'logits'")
    groups = dict(zip(group_names, shaped.items(), strict=True))
    return VerticalProblem(
        name=name, settings=settings, y=images.y.to(device), test_y=images.test_y.to(device), classes=images.classes,
        parts={word: torch.stack([p for p, _ in pairs]).to(device) for word, (_, pairs) in groups.items()},
        test_parts={word: torch.stack([p for _, p in pairs]).to(device) for word, (_, pairs) in groups.items()},
        towers={
            word: tower(settings.tower, shape, width, settings.activation).to(device)
            for word, (shape, _) in groups.items()
        },
        fusion=fusion(settings.fusion, [width] * len(parts), classes),
    )  # fmt: skip


def _load(name: str, settings: VerticalSettings, root: str | None):
    """The samples; the stand-ins are made in the size that is asked for."""
    if name in ("digits", "mnist", "fashion_mnist", "cifar10"):
        return data.load(name, dtype=torch.uint8, root=root)
    if name in ("solids", "series"):
        sizes = {"train_samples": settings.train_samples, "test_samples": settings.test_samples}
        sizes = {word: count for word, count in sizes.items() if count}
        return data.time_series(**sizes) if name == "series" else data.solids(**sizes, dtype=torch.uint8)
    if name == "breast_cancer":
        return data.breast_cancer()
    if name == "mimic3":
        return data.mimic3(root=root)
    return (data.modelnet10 if name == "modelnet10" else data.imagenet_folder)(root=root, dtype=torch.uint8)

"""Images without labels at clients of different architectures, an alignment set, and how such clients are judged.

The labels never reach a client's self-supervised training: they are used to split the images and to judge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedbook import arguments, data
from fedbook.federation.population import Federation
from fedbook.federation.tree import Tree, tree_map
from fedbook.learning.adam_probe import adam_probe
from fedbook.learning.alignment_set import alignment_images, split_alignment
from fedbook.learning.augmentation import AUGMENTATIONS
from fedbook.learning.cka import linear_cka
from fedbook.learning.contrast import correlation, effective_rank
from fedbook.learning.encoders import ENCODERS, Encoder, encoder
from fedbook.learning.models import Parameters
from fedbook.learning.neighbours import knn_predict
from fedbook.learning.online import Online
from fedbook.learning.pretraining import CHUNK, FEW, LIMIT, PretrainingSettings, brightest, few_rows, fewest
from fedbook.learning.probe import Probe, few_labels, linear_probe
from fedbook.learning.problems import OPTIONS, judged, pixel_moments
from fedbook.learning.views import Views
from fedbook.partition import Partition, by_name
from fedbook.randomness import stream

DRAWS = 3  # of the few labels
OWN_SOURCE = "holdout"
IMAGES = ("digits", "mnist", "fashion_mnist", "cifar10", "cifar100", "svhn", "emnist", "pathmnist", "tiny_imagenet")
SOURCES = (OWN_SOURCE, "noise", "photographs", *IMAGES)


@dataclass(frozen=True)
class AlignedSettings(PretrainingSettings):
    """As :class:`PretrainingSettings`, with several architectures and an alignment set.

    ``architectures``: words of fedbook.learning.encoders, separated by commas, each perhaps with a width of its own
    (``cnn_s:24,mlp``); clients get them by ``assignment``, in "turn" or at "random" (the same for every seed).
    ``model``, ``width``: the one architecture of methods that average weights. ``alignment_samples`` (L): images of the
    alignment set. ``alignment_source``: "holdout" takes them out of the training images before these are split;
    "noise", "photographs" or the name of another dataset. ``probe``: the linear probe is fitted "exact"ly to
    standardised features, or by Adam as the "paper" does it. ``evaluate_every`` 0: two evaluations a run.
    """

    projector: str = "batch_norm"
    clients: int = 5
    classes_per_client: int = 2
    bank: int = 0
    neighbours: int = 10
    model: str = "cnn_m"
    width: int = 32
    architectures: str = "cnn_s,cnn_m,mlp"
    assignment: str = "turn"
    alignment_samples: int = 300
    alignment_source: str = OWN_SOURCE
    probe: str = "exact"

    def __post_init__(self):
        super().__post_init__()
        self.words()
        arguments.one_of("assignment", self.assignment, ("turn", "random"))
        arguments.integer("alignment_samples", self.alignment_samples, 2)
        arguments.one_of("alignment_source", self.alignment_source, SOURCES)
        arguments.one_of("probe", self.probe, ("exact", "paper"))

    def words(self) -> dict[str, tuple[str, int]]:
        """The architectures: word to (backbone, width of its representation). Raises: TypeError, ValueError."""
        if not isinstance(self.architectures, str):
            raise arguments.wrong(TypeError, "architectures", self.architectures, "words separated by commas")
        found = {}
        for word in self.architectures.split(","):
            name, _, width = word.strip().partition(":")
            arguments.one_of("architectures", name, ENCODERS)
            if width and not (width.isdigit() and int(width)):
                raise arguments.wrong(ValueError, "architectures", word, "a word, or a word, a colon and a width")
            found[word.strip()] = name, int(width or self.width)
        return found

    def assigned(self) -> list[str]:
        """Each client's architecture."""
        words = list(self.words())
        if self.assignment == "turn":
            return [words[k % len(words)] for k in range(self.clients)]
        return [words[i] for i in stream(0, "architectures").integers(0, len(words), self.clients).tolist()]


@dataclass(frozen=True)
class AlignedProblem:
    """Private images and one split a seed, an alignment set that everybody knows, and encoders by architecture.

    Shapes: ``x`` [N, C, H, W] in [0, 1], ``y`` [N], without the alignment images; ``test_x``, ``test_y`` [n];
    ``alignment`` [L, C, H, W] in [0, 1]; ``seen`` [M] the rows of x whose labels probes may use.
    """

    name: str
    settings: AlignedSettings
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    alignment: Tensor
    classes: tuple[str, ...]
    partitions: tuple[Partition, ...]
    assigned: tuple[str, ...]
    encoders: Mapping[str, Encoder]
    model: Encoder
    views: Views
    seen: Tensor

    def federation(self, personal: bool = True, pooled: bool = False, extended: bool = False) -> Federation:
        """The clients; ``personal``: by architecture, with the labels left out; else one group, with labels.

        ``pooled``: one client that holds everything. ``extended``: everybody also holds the alignment images.
        """
        splits, x = [p.pooled() if pooled else p for p in self.partitions], self.x
        if extended:
            splits, x = [_with_rows(p, len(x), len(self.alignment)) for p in splits], torch.cat([x, self.alignment])
        store = {"bank": self.views.make_bank(x, self.settings.bank)} if self.settings.bank else {"x": x}
        if personal:
            return Federation(store, splits, None if pooled else self.assigned)
        return Federation(store | {"y": self.y}, splits)

    def own_classes(self, slot: int, client: int) -> Tensor:
        """The classes that a client has in the split of seed number ``slot``."""
        split = self.partitions[slot]
        rows = split.table[client, : int(split.sizes[client])]
        return self.y[rows.to(self.y.device)].unique()

    @torch.no_grad()
    def features(self, net: Encoder, theta: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """h [n, D] of images [n, C, H, W] as they are."""
        return torch.cat([net.features(theta, self.views.plain(some)) for some in x.split(CHUNK)])

    def scores(self, train: Tensor, test: Tensor, own: Tensor | None = None) -> dict[str, float]:
        """``knn``, ``probe``, ``probe_few`` and with a client's ``own`` classes ``own_classes``: test accuracies.

        ``probe``: all labels of the judged training images. ``probe_few``: 5 labels a class, mean of three draws.
        ``own_classes``: a probe of the client's classes alone, on test images of these. Nearest neighbours by cosine.
        Only ``probe`` may be fitted as the paper does it: a hundred epochs of Adam on few samples end far from a minimum.
        Shapes: features [M, D], [n, D]. Features that are not finite give NaN.
        """
        names = ("knn", "probe", "probe_few", *(() if own is None else ("own_classes",)))
        if not all(bool((h.abs() < LIMIT).all()) for h in (train, test)):
            return dict.fromkeys(names, math.nan)
        y, count = self.y[self.seen], len(self.classes)
        found = knn_predict(train, y, test, k=min(self.settings.neighbours, len(y)), num_classes=count)
        draws = [few_labels(y, min(FEW, fewest(y)), seed=i) for i in range(DRAWS)]

        def fitted(rows: Tensor | slice) -> Probe:
            return linear_probe(train[rows], y[rows], standardise=True, tolerance=1e-5)

        few = [fitted(rows).accuracy(test, self.test_y) for rows in draws]
        whole = adam_probe(train, y) if self.settings.probe == "paper" else fitted(slice(None))
        values = {
            "knn": float((found == self.test_y).double().mean()),
            "probe": whole.accuracy(test, self.test_y),
            "probe_few": sum(few) / DRAWS,
        }
        if own is None:
            return values
        mine, judged_on = torch.isin(y, own), torch.isin(self.test_y, own)
        if len(own) == 1 or not bool(judged_on.any()):
            return values | {"own_classes": 1.0}  # nothing to tell apart
        if int(mine.sum()) == len(y):
            return values | {"own_classes": values["probe"]}
        return values | {"own_classes": fitted(mine).accuracy(test[judged_on], self.test_y[judged_on])}

    def evaluation(
        self, nets: Mapping[str, Online], layer: str, initial: Callable[[int, int], Parameters], raw: bool = False
    ) -> Callable[[Mapping[str, Tree], Mapping[str, Tree]], dict[str, Tensor]]:
        """``evaluate(server, clients)``: metrics [S], means over clients, of a global encoder where there is one.

        Those of :meth:`scores` (also by architecture, "probe_by_architecture/WORD"); ``random_...``: the same of the
        encoders as they were drawn; ``alignment``: the mean unbiased CKA of two clients' representations of the
        alignment set, with running statistics, ``alignment_test`` of the test images; ``self_loss``: the
        self-supervised loss on one pair of views of the test images; ``rank``: effective rank of the second moments
        of z there. ``nets`` by architecture; ``initial(slot, client)``: parameters at the start.
        """
        judged_views = self.views.make_bank(self.test_x, 2, "judged views")
        drawn: dict[tuple[int, int], dict[str, float]] = {}

        def looked_at(net: Online, theta: Mapping[str, Tree], slot: int, client: int | None) -> dict[str, float]:
            train, test = (self.features(net.encoder, theta, x) for x in (self.x[self.seen], self.test_x))
            own = None if client is None else self.own_classes(slot, client)
            return self.scores(train, test, own)

        @torch.no_grad()
        def inside(net: Online, theta: Mapping[str, Tree], target: Mapping[str, Tree]) -> dict[str, float]:
            z = net.encoder.project(theta, self.features(net.encoder, theta, self.test_x))
            rows = torch.ones(len(z), dtype=z.dtype, device=z.device)
            loss = net.objective({**theta, "target": target}, judged_views, rows)[0]
            fine = bool((z.abs() < LIMIT).all())
            return {
                "self_loss": float(loss),
                "rank": float(effective_rank(correlation(z[:, None])) if fine else math.nan),
            }

        def one(slot: int, client: int | None, net: Online, own: Mapping[str, Tree]) -> dict[str, float]:
            place = slot, -1 if client is None else client
            if place not in drawn:
                found = looked_at(net, initial(slot, client or 0), slot, client)
                drawn[place] = {f"random_{name}": value for name, value in found.items()}
            theta = own["theta"]
            trained = any(name.startswith("predictor.") for name in theta)
            more = inside(net, theta, own.get("target", theta)) if trained else {}
            return looked_at(net, theta, slot, client) | more | drawn[place]

        def evaluate(server: Mapping[str, Tree], clients: Mapping[str, Tree]) -> dict[str, Tensor]:
            rows = []
            for slot in range(len(self.partitions)):
                if raw:
                    pixels = (self.views.plain(x).flatten(1) for x in (self.x[self.seen], self.test_x))
                    rows.append(self.scores(*pixels))
                elif "theta" in server:
                    theta = {"theta": tree_map(lambda p, s=slot: p[s], server["theta"])}
                    found = one(slot, None, nets["all"], theta)
                    word = self.settings.model
                    own = {name: found[name] for name in ("probe", "probe_few")}
                    rows.append(found | {f"{name}_by_architecture/{word}": v for name, v in own.items()})
                    rows[-1] |= {"alignment": 1.0, "alignment_test": 1.0}
                else:
                    rows.append(self._personal(slot, clients, nets, layer, one))
            return {name: torch.tensor([row[name] for row in rows], dtype=torch.float64) for name in rows[0]}

        return evaluate

    def _personal(self, slot, clients, nets, layer, one) -> dict[str, float]:
        """One federation's metrics where every client has a model of its own."""
        each: dict[str, list[dict[str, float]]] = {}
        shown: list[tuple[Tensor, Tensor]] = []
        for word, state in clients.items():
            ids = [k for k, w in enumerate(self.assigned) if w == word]
            for place, client in enumerate(ids):
                own = {n: tree_map(lambda p, i=place: p[slot, i], state[n]) for n in ("theta", "target") if n in state}
                each.setdefault(word, []).append(one(slot, client, nets[word], own))
                shown.append(
                    tuple(self.shown(nets[word], own["theta"], x, layer) for x in (self.alignment, self.test_x))
                )
        rows = [row for found in each.values() for row in found]
        values = {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
        for word, found in each.items():
            for name in ("probe", "probe_few"):
                values[f"{name}_by_architecture/{word}"] = sum(row[name] for row in found) / len(found)
        for name, column in zip(("alignment", "alignment_test"), zip(*shown, strict=True), strict=True):
            values[name] = mean_pair(column)
        return values

    @torch.no_grad()
    def shown(self, net: Online, theta: Mapping[str, Tensor], x: Tensor, layer: str) -> Tensor:
        """A client's representations [n, d] of images [n, C, H, W], by its running statistics."""
        return net.represent_features(theta, self.features(net.encoder, theta, x), layer)[0]


def mean_pair(representations: Sequence[Tensor]) -> float:
    """The mean unbiased CKA of two of the representations [L, d_k]; NaN where there are no two."""
    pairs = [(a, b) for i, a in enumerate(representations) for b in representations[:i]]
    found = [float(linear_cka(a.double(), b.double(), unbiased=len(a) >= 4)) for a, b in pairs]
    return sum(found) / len(found) if found else math.nan


def aligned_problem(
    name: str,
    settings: AlignedSettings | None = None,
    seeds: Sequence[int] = (0,),
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    root: str | None = None,
) -> AlignedProblem:
    """The images called ``name``, split anew for each seed; the alignment set is the same for all seeds.

    Raises: TypeError, ValueError, fedbook.data.DataNotFound.
    """
    settings = settings or AlignedSettings()
    if not isinstance(settings, AlignedSettings):
        raise arguments.wrong(TypeError, "settings", settings, "AlignedSettings")
    if settings.alignment_source == name:
        allowed = f"{OWN_SOURCE} for images of the same data that no client holds"
        raise arguments.wrong(ValueError, "alignment_source", name, allowed)
    images = data.load(name, dtype=torch.uint8, **({} if name == "digits" else {"root": root}))
    (x, y), (test_x, test_y) = judged(images, settings)
    top, shape, count = brightest(name), tuple(x.shape[1:]), settings.alignment_samples
    if settings.alignment_source == OWN_SOURCE:
        alignment, x, y = split_alignment(x, y, count)
        alignment = alignment / top
    else:
        alignment = alignment_images(settings.alignment_source, count, shape, root=root)
    mean, deviation = (value / top for value in pixel_moments(x))
    x, test_x = (pixels.to(device=device, dtype=dtype) / top for pixels in (x, test_x))
    options = {key: getattr(settings, key) for key in OPTIONS[settings.partition]}
    splits = tuple(by_name(settings.partition, y, settings.clients, seed, **options) for seed in seeds)
    assigned = settings.assigned()
    made = {word: encoder(kind, shape, width, settings.projector) for word, (kind, width) in settings.words().items()}
    one = encoder(settings.model, shape, settings.width, settings.projector)
    for net in (*made.values(), one):
        net.module.to(device)
    seen = torch.arange(len(y))
    if 0 < settings.judged_samples < len(y):
        seen = few_rows(y, settings.judged_samples)
    return AlignedProblem(
        name=name, settings=settings, x=x, y=y.to(device), test_x=test_x, test_y=test_y.to(device),
        alignment=alignment.to(device=device, dtype=dtype), classes=tuple(images.classes), partitions=splits,
        assigned=tuple(assigned), encoders={word: made[word] for word in dict.fromkeys(assigned)}, model=one,
        views=Views(AUGMENTATIONS[settings.views], mean, deviation, shape, settings.bank), seen=seen.to(device),
    )  # fmt: skip


def _with_rows(split: Partition, first: int, count: int) -> Partition:
    """The split with the rows first, ..., first + count - 1 given to every client."""
    more = torch.arange(first, first + count)
    sizes = split.sizes.tolist()
    return Partition.from_lists([torch.cat([rows[:n], more]) for rows, n in zip(split.table, sizes, strict=True)])

"""The Hetero-SSFL paper's Tables 1 to 4 and its settings as numbers, what they say when read closely, beside ours.

Methods have the names of the command line; accuracies are those of the paper's linear probe, in per cent. What the
paper's +- stands for, and over how many runs, it does not say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from fedbook.lab.results import text_table

Value = tuple[float, float]  # mean and deviation

NAMES = {
    "fedbyol": "FedBYOL",
    "fedsimsiam": "FedSimSiam",
    "fedu": "FedU",
    "fedema": "FedEMA",
    "hetero-ssfl": "Hetero-SSFL",
    "fedavg-supervised": "FedAvg, supervised",
    "centralized-byol": "Centralised BYOL",
}
OWN = "hetero-ssfl"
FEDERATED = ("fedbyol", "fedsimsiam", "fedu", "fedema", OWN)  # without labels
CLASSES = {"CIFAR-10": 10, "CIFAR-100": 100, "Tiny-ImageNet": 200}
SIZE = {"CIFAR-10": 50_000, "CIFAR-100": 50_000, "Tiny-ImageNet": 100_000}  # of the training set
MU = {"CIFAR-10": 0.5, "CIFAR-100": 0.5, "Tiny-ImageNet": 1.0}
ROUNDS, LOCAL_EPOCHS, BATCH_SIZE = 200, 5, 200
LEARNING_RATE, MOMENTUM = 0.032, 0.9
ALIGNMENT_IMAGES = 5_000  # the paper's RAD; where they come from is not stated
PROBE_NEURONS, PROBE_EPOCHS, PROBE_BATCH_SIZE, PROBE_LEARNING_RATE = 1_000, 100, 512, 0.003
SCALES = {5: 5, 20: 5, 100: 10}  # clients -> sampled in a round (Table 3; Tables 1, 2: 5, inferred from its column 1)
WEIGHTS = {"resnet18": 11_168_832, "resnet34": 21_276_992}  # parameters of the encoders, stem of 3 x 3, no last layer

# Table 1: clients of disjoint classes
TABLE_1: dict[str, dict[str, Value]] = {
    "fedbyol": {"CIFAR-10": (78.1, 1.1), "CIFAR-100": (58.1, 0.3), "Tiny-ImageNet": (31.8, 2.0)},
    "fedsimsiam": {"CIFAR-10": (76.7, 1.5), "CIFAR-100": (53.2, 0.16), "Tiny-ImageNet": (29.1, 1.2)},
    "fedu": {"CIFAR-10": (79.6, 0.5), "CIFAR-100": (58.9, 0.12), "Tiny-ImageNet": (58.23, 2.3)},
    "fedema": {"CIFAR-10": (81.2, 1.6), "CIFAR-100": (61.8, 0.31), "Tiny-ImageNet": (58.2, 3.1)},
    "hetero-ssfl": {"CIFAR-10": (90.29, 0.3), "CIFAR-100": (67.7, 0.21), "Tiny-ImageNet": (61.5, 1.8)},
    "fedavg-supervised": {"CIFAR-10": (68.5, 1.7), "CIFAR-100": (44.29, 1.34), "Tiny-ImageNet": (27.2, 3.2)},
    "centralized-byol": {"CIFAR-10": (94.3, 0.2), "CIFAR-100": (74.2, 0.67), "Tiny-ImageNet": (78.7, 1.3)},
}
# Table 2: i.i.d. clients
TABLE_2: dict[str, dict[str, Value]] = {
    "fedbyol": {"CIFAR-10": (82.24, 0.8), "CIFAR-100": (23.8, 0.14)},
    "fedsimsiam": {"CIFAR-10": (80.4, 1.2), "CIFAR-100": (22.19, 1.8)},
    "fedu": {"CIFAR-10": (81.6, 1.8), "CIFAR-100": (20.4, 0.91)},
    "fedema": {"CIFAR-10": (85.9, 0.3), "CIFAR-100": (25.7, 0.4)},
    "hetero-ssfl": {"CIFAR-10": (88.5, 1.3), "CIFAR-100": (34.8, 0.7)},
}
# Table 3: CIFAR-100 by the number of clients; its first column repeats Table 1
TABLE_3: dict[str, dict[int, Value]] = {
    "fedu": {5: (58.9, 0.12), 20: (48.29, 1.8), 100: (41.1, 2.3)},
    "fedema": {5: (61.8, 0.31), 20: (52.5, 0.8), 100: (42.0, 2.7)},
    "hetero-ssfl": {5: (67.7, 0.21), 20: (57.5, 0.9), 100: (43.3, 1.9)},
}
# Table 4: mean of an architecture's clients, data and split not named: local SSL, Hetero-SSFL
TABLE_4 = {"resnet18": (71.9, 85.4), "resnet34": (77.8, 93.7)}

# --- what an exchange takes, in bytes


def weight_bytes(parameters: int, entry: int = 4) -> int:
    """Bytes of a model of ``parameters`` numbers of ``entry`` bytes."""
    return parameters * entry


def representation_bytes(images: int, width: int, entry: int = 4) -> int:
    """Bytes of one client's A [images, width]."""
    return images * weight_bytes(width, entry)


def gram_bytes(images: int, entry: int = 4, triangle: bool = False) -> int:
    """Bytes of a kernel [images, images]; ``triangle``: of its diagonal and above."""
    return entry * (images * (images + 1) // 2 if triangle else images**2)


def alignment_set_bytes(images: int, shape: Sequence[int], entry: int = 1) -> int:
    """Bytes of the images themselves; ``shape`` of one image, [C, H, W]."""
    pixels = prod(shape)
    return representation_bytes(images, pixels, entry)


def byte_table() -> str:
    """What one client's message takes in MB (10^6 bytes), by what is sent, in single precision, as text."""
    images = ALIGNMENT_IMAGES
    rows = [(f"representations, {images} x {d}", representation_bytes(images, d)) for d in (128, 512, 2048)]
    rows += [
        (f"kernel, {images} x {images}", gram_bytes(images)),
        ("kernel, diagonal and above", gram_bytes(images, triangle=True)),
        *((f"weights, {name}", weight_bytes(count)) for name, count in WEIGHTS.items()),
        ("alignment set, once, 8 bit", alignment_set_bytes(images, (3, 32, 32))),
        (f"alignment set, {ROUNDS} rounds", ROUNDS * alignment_set_bytes(images, (3, 32, 32))),
    ]
    return text_table(([name, f"{count / 1e6:.1f} MB"] for name, count in rows), (32, 13))


# --- gaps


class Gap(NamedTuple):
    """Hetero-SSFL in one cell against the best other federated method there."""

    table: int
    data: str
    clients: int
    best: str
    points: float
    deviation: float  # the larger of the two
    overlap: bool  # of the two intervals mean +- deviation

    @property
    def within(self) -> bool:
        """Whether the points are at most one deviation."""
        return self.points <= self.deviation


def gaps() -> tuple[Gap, ...]:
    """Every distinct cell of Tables 1 to 3."""
    cells = [(1, data, 5, {name: TABLE_1[name][data] for name in FEDERATED}) for data in CLASSES]
    cells += [(2, data, 5, {name: row[data] for name, row in TABLE_2.items()}) for data in ("CIFAR-10", "CIFAR-100")]
    cells += [(3, "CIFAR-100", n, {name: row[n] for name, row in TABLE_3.items()}) for n in SCALES if n > 5]
    found = []
    for table, data, clients, values in cells:
        own = values.pop(OWN)
        best = max(values, key=lambda name: values[name][0])
        points, other = round(own[0] - values[best][0], 2), values[best][1]
        found.append(Gap(table, data, clients, best, points, max(own[1], other), points <= own[1] + other))
    return tuple(found)


def gap_table() -> str:
    """:func:`gaps` as text; marked where the intervals overlap, and where the gap is at most one deviation."""
    rows = [["table", "  data", "clients", "  best other", "points", "deviation"]]
    for gap in gaps():
        mark = "  within" if gap.within else "  overlap" if gap.overlap else ""
        rows.append([gap.table, f"  {gap.data}", gap.clients, f"  {NAMES[gap.best]}", f"{gap.points:.2f}",
                     f"{gap.deviation:.2f}", mark])  # fmt: skip
    return text_table(rows, (5, 16, 7, 13, 7, 10, 0), left="><><>><")


# --- beside ours


def beside_table(disjoint: Mapping[str, Value], iid: Mapping[str, Value]) -> str:
    """Tables 1 and 2 for CIFAR-10 beside ours, with ranks among the federated methods without labels, as text.

    ``disjoint``, ``iid``: ours, method -> (mean, deviation) of a share in [0, 1]; shown in per cent. Methods that the
    paper does not have (controls) follow below, without rank.
    """
    columns: dict[str, dict[str, Value]] = {
        "CIFAR-10 disjoint": {name: row["CIFAR-10"] for name, row in TABLE_1.items()},
        "CIFAR-10 i.i.d.": {name: row["CIFAR-10"] for name, row in TABLE_2.items()},
        "ours, disjoint": _per_cent(disjoint),
        "ours, i.i.d.": _per_cent(iid),
    }
    return _beside(columns, "per cent (rank)")


def published_table() -> str:
    """Tables 1 and 2 as text: all data, disjoint classes and i.i.d., with ranks as in beside_table."""
    columns: dict[str, dict[str, Value]] = {}
    for data in CLASSES:
        columns[data] = {name: row[data] for name, row in TABLE_1.items()}
    for data in CLASSES:
        columns[f"{data} iid"] = {name: row[data] for name, row in TABLE_2.items() if data in row}
    return _beside({head: values for head, values in columns.items() if values}, "per cent (rank)", 18)


def scale_table(ours: Mapping[str, Mapping[int, Value]]) -> str:
    """Table 3 beside ours, as text.

    ``ours``: method -> number of clients -> (mean, deviation) of a share in [0, 1].
    """
    columns: dict[str, dict[str, Value]] = {
        f"paper, {n} ({m})": {name: row[n] for name, row in TABLE_3.items()} for n, m in SCALES.items()
    }
    for n in sorted({n for row in ours.values() for n in row}):
        columns[f"ours, {n}"] = _per_cent({name: row[n] for name, row in ours.items() if n in row})
    return _beside(columns, "per cent (rank)")


def architecture_table(
    alone: Mapping[str, float], together: Mapping[str, float], untrained: Mapping[str, float]
) -> str:
    """Table 4 beside ours, as text: local SSL, Hetero-SSFL and the gain in points; untrained where it is known.

    ``alone``, ``together``, ``untrained``: ours, architecture -> mean share in [0, 1] of its clients.
    """
    lines = {f"paper, {name}": pair for name, pair in TABLE_4.items()}
    lines |= {f"ours, {name}": (100 * value, 100 * together[name]) for name, value in alone.items()}
    rows = [["per cent", "local SSL", "Hetero-SSFL", "gain", "untrained"]]
    for name, (a, b) in lines.items():
        drawn = untrained.get(name.removeprefix("ours, "))
        rows.append([name, f"{a:.1f}", f"{b:.1f}", f"{b - a:+.1f}", "-" if drawn is None else f"{100 * drawn:.1f}"])
    return text_table(rows, (24, 12, 13, 8, 12))


def _beside(columns: Mapping[str, Mapping[str, Value]], corner: str, width: int = 22) -> str:
    """Columns of values with ranks; rows in the order of NAMES, then whatever else there is."""
    places = {h: ranks({n: v[0] for n, v in values.items() if n in FEDERATED}) for h, values in columns.items()}
    present = dict.fromkeys(name for values in columns.values() for name in values)
    rows = [[corner, *columns]]
    for name in [*(n for n in NAMES if n in present), *(n for n in present if n not in NAMES)]:
        entries = [value_text(values.get(name), places[head].get(name)) for head, values in columns.items()]
        rows.append([NAMES.get(name, name), *entries])
    return text_table(rows, (18, width))


def _per_cent(given: Mapping[str, Value]) -> dict[str, Value]:
    """(mean, deviation) of shares by method, in per cent."""
    return {method: (100 * mean, 100 * deviation) for method, (mean, deviation) in given.items()}


def ranks(values: Mapping[str, float], *, least: bool = False) -> dict[str, int]:
    """Each name's place: 1 for the largest value (with ``least`` the smallest); equal values share the better place."""
    sign = 1 if least else -1
    return {name: 1 + sum(sign * other < sign * value for other in values.values()) for name, value in values.items()}


def value_text(value: Value | None, place: int | None) -> str:
    """Mean ± deviation and the rank, or room for it."""
    if value is None:
        return ""
    return f"{value[0]:.2f} ± {value[1]:.2f}" + (f" ({place})" if place else "    ")

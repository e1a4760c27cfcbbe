"""The FedSC paper's Tables 1 to 6 as numbers, what they say when read closely, and their place beside ours.

Methods have the names of the command line; accuracies of the paper are those of its linear probe, in per cent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fedbook.lab.results import text_table
from fedbook.papers.fedsc.matrix_privacy import matrix_epsilon

Value = tuple[float, float]  # mean and deviation
ROUNDS = 200
NAMES = {
    "fedavg-byol": "FedAvg+BYOL",
    "fedavg-sc": "FedAvg+SC",
    "fedu": "FedU",
    "fedema": "FedEMA",
    "fedx": "FedX",
    "fedca": "FedCA",
    "fedsc": "FedSC",
    "centralized-sc": "Centralised SC",
}
CENTRAL = "centralized-sc"
FEDERATED = tuple(name for name in NAMES if name != CENTRAL)
CLIENTS = {"SVHN": (5, 2), "CIFAR-10": (10, 2), "CIFAR-100": (20, 4)}  # all, sampled
BATCH_SIZE = {"SVHN": 512, "CIFAR-10": 512, "CIFAR-100": 256}
SIZE = {"SVHN": 10_000, "CIFAR-10": 5_000, "CIFAR-100": 2_500}  # of a local data set
LOCAL_EPOCHS, WIDTH, VIEWS, MATRIX_VIEWS = 5, 512, 2, 5

# Table 2: by method and data, full and partial participation
TABLE_2: dict[str, dict[str, tuple[Value, Value | None]]] = {
    "fedavg-byol": {"SVHN": ((87.85, 0.49), (87.10, 0.79)), "CIFAR-10": ((68.14, 0.51), (65.28, 0.83)),
                    "CIFAR-100": ((43.54, 1.12), (38.77, 1.04))},
    "fedavg-sc": {"SVHN": ((90.52, 0.42), (89.89, 0.94)), "CIFAR-10": ((77.82, 0.82), (75.36, 0.36)),
                  "CIFAR-100": ((56.24, 0.19), (42.95, 0.52))},
    "fedu": {"SVHN": ((87.92, 0.31), (87.40, 0.75)), "CIFAR-10": ((68.39, 0.69), (65.52, 0.51)),
             "CIFAR-100": ((43.81, 0.98), (39.11, 0.92))},
    "fedema": {"SVHN": ((91.87, 0.30), (88.97, 0.82)), "CIFAR-10": ((68.78, 0.25), (65.93, 0.63)),
               "CIFAR-100": ((44.18, 0.73), (39.78, 1.20))},
    "fedx": {"SVHN": ((74.60, 0.72), (73.34, 0.88)), "CIFAR-10": ((59.17, 0.93), (57.42, 0.91)),
             "CIFAR-100": ((39.70, 0.39), (33.54, 0.67))},
    "fedca": {"SVHN": ((89.92, 0.14), (89.28, 0.44)), "CIFAR-10": ((78.22, 0.22), (77.22, 0.65)),
              "CIFAR-100": ((52.35, 0.09), (51.58, 0.18))},
    "fedsc": {"SVHN": ((91.78, 0.49), (91.03, 0.58)), "CIFAR-10": ((80.06, 0.35), (77.12, 0.44)),
              "CIFAR-100": ((58.35, 0.15), (56.64, 0.65))},
    "centralized-sc": {"SVHN": ((93.17, 0.13), None), "CIFAR-10": ((90.21, 0.08), None),
                       "CIFAR-100": ((64.32, 0.05), None)},
}  # fmt: skip
# Tables 3, 4 (delta 1e-2) and 5 (1e-4): by table, data and partial participation, accuracy by epsilon. Their other
# rows, FedAvg+SC and epsilon = infinity, repeat Table 2.
PRIVATE: dict[tuple[int, str, bool], dict[float, Value]] = {
    (3, "SVHN", False): {3: (90.90, 0.52), 6: (91.32, 0.87)},
    (3, "CIFAR-10", False): {3: (79.21, 0.59), 6: (79.42, 0.63)},
    (3, "SVHN", True): {3: (90.00, 0.72), 6: (90.12, 0.61)},
    (3, "CIFAR-10", True): {3: (76.97, 0.64), 6: (77.08, 0.46)},
    (4, "CIFAR-100", False): {6: (57.10, 0.82), 12: (57.63, 0.57)},
    (4, "CIFAR-100", True): {6: (54.87, 0.62), 12: (55.76, 0.58)},
    (5, "SVHN", True): {3: (89.95, 0.81), 8: (90.12, 0.61)},
    (5, "CIFAR-10", True): {3: (76.75, 0.62), 8: (77.08, 0.46)},
    (5, "CIFAR-100", True): {3: (54.22, 0.72), 8: (54.87, 0.62)},
}


@dataclass(frozen=True)
class Noise:
    """One row of Table 6; matrices are shared in the rounds t > ``after``, with ``step`` 2 in the even ones only."""

    data: str
    epsilon: float
    delta: float
    mu: float
    sigma: float
    after: int
    step: int = 1

    @property
    def sharing_rounds(self) -> tuple[int, ...]:
        """The rounds, counted from 1, in which matrices are shared."""
        return tuple(t for t in range(self.after + 1, ROUNDS + 1) if t % self.step == 0)


TABLE_6 = (
    Noise("SVHN", 3, 1e-2, 2, 0.0034, 100),
    Noise("SVHN", 6, 1e-2, 2, 0.0018, 100),
    Noise("SVHN", 3, 1e-4, 2, 0.0048, 100),
    Noise("SVHN", 8, 1e-4, 2, 0.0018, 100),
    Noise("CIFAR-10", 3, 1e-2, 4, 0.01, 150),
    Noise("CIFAR-10", 6, 1e-2, 4, 0.0052, 100, 2),
    Noise("CIFAR-10", 3, 1e-4, 4, 0.012, 150),
    Noise("CIFAR-10", 8, 1e-4, 4, 0.0051, 100, 2),
    Noise("CIFAR-100", 6, 1e-2, 5, 0.013, 100, 2),
    Noise("CIFAR-100", 12, 1e-2, 5, 0.0075, 100, 2),
    Noise("CIFAR-100", 3, 1e-4, 5, 0.04, 100, 2),
    Noise("CIFAR-100", 8, 1e-4, 5, 0.013, 100, 2),
)

# --- Table 6 by three accounts


class Epsilons(NamedTuple):
    """Epsilon of one row of Table 6: claimed, and by four accounts (:func:`epsilons`)."""

    claimed: float
    printed: float
    proved: float
    replace: float
    exact: float


def epsilons(row: Noise, uploads: int | None = None) -> Epsilons:
    """Epsilon of a client at the noise of ``row`` after ``uploads`` matrices (by default one in each sharing round).

    ``printed``: Proposition 6.6 as stated, without the client's size. ``proved``: with the sensitivity mu/n of its
    proof. ``replace``: the same formula for one sample replaced, sqrt(2) mu/n. ``exact``: that composition's least
    epsilon.
    """
    count = len(row.sharing_rounds) if uploads is None else uploads
    words = ("paper-printed", "paper", "rdp-classic", "exact")
    given = (row.sigma, row.mu, SIZE[row.data], count, row.delta)
    return Epsilons(row.epsilon, *(matrix_epsilon(*given, accountant=word) for word in words))


def epsilon_table() -> str:
    """:func:`epsilons` of Table 6 as text."""
    rows = [["", "delta", "mu", "sigma", "uploads", "|", "claimed", "printed", "proved", "replace", "exact"]]
    for row in TABLE_6:
        e = epsilons(row)
        rows.append([row.data, f"{row.delta:g}", f"{row.mu:g}", f"{row.sigma:g}", len(row.sharing_rounds), "|",
                     f"{e.claimed:g}", f"{e.printed:.3g}", *(f"{v:.2f}" for v in e[2:])])  # fmt: skip
    return text_table(rows, (9, 6, 3, 7, 7, 1, 7, 9, 7, 7, 6), gap=" ")


# --- Table 2: ranks and drops


def ranks(values: Mapping[str, float], *, least: bool = False) -> dict[str, int]:
    """Each name's place: 1 for the largest value (with ``least`` the smallest); equal values share the better place."""
    sign = 1 if least else -1
    return {name: 1 + sum(sign * other < sign * value for other in values.values()) for name, value in values.items()}


def column(data: str, partial: bool) -> dict[str, float]:
    """Table 2's means of the federated methods."""
    return {name: TABLE_2[name][data][partial][0] for name in FEDERATED}


def drops(data: str) -> dict[str, float]:
    """Points that each federated method of Table 2 loses under partial participation."""
    full, partial = column(data, False), column(data, True)
    return {name: round(full[name] - partial[name], 2) for name in FEDERATED}


def drop_table(full: Mapping[str, Value], partial: Mapping[str, Value]) -> str:
    """Points lost under partial participation and their ranks (1: loses least), Table 2's and ours, as text.

    ``full``, ``partial``: ours, method -> (mean, deviation) of a share in [0, 1].
    """
    columns = {data: drops(data) for data in CLIENTS}
    both = [name for name in FEDERATED if name in full and name in partial]
    columns["ours"] = {name: round(100 * (full[name][0] - partial[name][0]), 2) for name in both}
    places = {head: ranks(values, least=True) for head, values in columns.items()}
    rows = [["points lost (rank)", *columns]]
    for name in FEDERATED:
        lost = (f"{v[name]:.2f} ({places[head][name]})" if name in v else "" for head, v in columns.items())
        rows.append([NAMES[name], *lost])
    return text_table(rows, (18, 14))


def beside_table(full: Mapping[str, Value], partial: Mapping[str, Value], data: str) -> str:
    """One data set of Table 2 beside ours, with ranks among the federated methods, as text.

    ``full``, ``partial``: ours, method -> (mean, deviation) of a share in [0, 1]; shown in per cent. Methods that
    the paper does not have (controls) follow below, without rank.
    """
    clients, sampled = CLIENTS[data]
    columns: dict[str, dict[str, Value]] = {
        f"{data} {count}/{clients}": {name: row[data][place] for name, row in TABLE_2.items() if row[data][place]}
        for place, count in enumerate((clients, sampled))
    }
    for head, ours in (("ours, full", full), ("ours, partial", partial)):
        columns[head] = {name: (100 * mean, 100 * deviation) for name, (mean, deviation) in ours.items()}
    places = {h: ranks({n: v[0] for n, v in values.items() if n in FEDERATED}) for h, values in columns.items()}
    rows = [["per cent (rank)", *columns]]
    for name in [*NAMES, *(name for name in {**full, **partial} if name not in NAMES)]:
        entries = (value_text(values.get(name), places[head].get(name)) for head, values in columns.items())
        rows.append([NAMES.get(name, name), *entries])
    return text_table(rows, (16, 20))


# --- Tables 3 to 5: what privacy costs


class Margin(NamedTuple):
    """A private cell against FedAvg+SC: points above it, the larger deviation of the two, share of the gain lost."""

    table: int
    data: str
    partial: bool
    epsilon: float
    points: float
    deviation: float
    lost: float

    @property
    def within(self) -> bool:
        """Whether the points above FedAvg+SC are at most one deviation."""
        return self.points <= self.deviation


def margins() -> tuple[Margin, ...]:
    """Every private cell of Tables 3 to 5; ``lost`` is the part of FedSC's gain without noise that the noise takes."""
    found = []
    for (table, data, partial), cells in PRIVATE.items():
        base, best = TABLE_2["fedavg-sc"][data][partial], TABLE_2["fedsc"][data][partial]
        for epsilon, (mean, deviation) in cells.items():
            points = round(mean - base[0], 2)
            lost = (best[0] - mean) / (best[0] - base[0])
            found.append(Margin(table, data, partial, epsilon, points, max(deviation, base[1]), lost))
    return tuple(found)


def margin_table() -> str:
    """:func:`margins` as text; "within" marks margins of at most one deviation."""
    rows = [["table", " data", "clients", "epsilon", "above FedAvg+SC", "deviation", "gain lost"]]
    for m in margins():
        clients, sampled = CLIENTS[m.data]
        share, mark = f"{sampled if m.partial else clients}/{clients}", [" within"] if m.within else []
        rows.append([m.table, f" {m.data}", share, f"{m.epsilon:g}", f"{m.points:.2f}", f"{m.deviation:.2f}",
                     f"{m.lost:.0%}", *mark])  # fmt: skip
    return text_table(rows, (5, 10, 7, 7, 15, 9, 9, 0), left="><>", gap=" ")


def value_text(value: Value | None, place: int | None) -> str:
    """Mean ± deviation and the rank, or room for it."""
    if value is None:
        return ""
    return f"{value[0]:.2f} ± {value[1]:.2f}" + (f" ({place})" if place else "    ")

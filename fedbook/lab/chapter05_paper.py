"""The paper's Tables 2 to 5 and D.1 as numbers, and what they tell when they are decoded.

A cost is rounds times bytes of a round, and the paper evaluates once an epoch: with the right account every cost is
a mean of whole numbers of epochs. The sizes in :data:`SETTINGS` that the paper's text does not print (embedding
sizes, charged numbers of the server model) come from the authors' public release, github.com/timcast725/C-VFL.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedbook.lab.results import text_table
from fedbook.papers.cvfl.accounts import GB, MB, TimeModel, bits_per_round

Value = tuple[float, float]  # mean and deviation
PARTIES, STEP_S = 4, 0.01
HALF_DIGIT = 0.005 + 1e-6  # of two digits after the point; 461.175 may be printed as 461.17


@dataclass(frozen=True)
class Setting:
    """One data set's runs: ``width`` P, ``server_size`` |theta_0| as charged, ``unit`` of the costs in bytes."""

    batch_size: int
    width: int
    server_size: int
    rounds_per_epoch: int
    epochs: int
    unit: int
    target: str


@dataclass(frozen=True)
class Row:
    """One row of Tables 2 to 4: best metric and cost to the target, mean and deviation; None: never reached."""

    compressor: str
    bits: int
    best: Value
    cost: Value | None


SETTINGS = {
    "MIMIC-III": Setting(1000, 16, 128, 15, 1000, MB, "F1 = 0.4"),
    "CIFAR-10": Setting(100, 16, 640, 500, 200, GB, "accuracy 70 %"),
    "ModelNet10": Setting(64, 4096, 163_840, 16, 100, MB, "accuracy 75 %"),
}
TABLES: dict[str, tuple[Row, ...]] = {
    "MIMIC-III": (
        Row("none", 32, (0.448, 0.010), (3830.0, 558.2)),
        Row("scalar", 2, (0.441, 0.018), (233.1, 28.7)),
        Row("vector", 2, (0.451, 0.021), (236.1, 17.9)),
        Row("top-k", 2, (0.431, 0.016), (309.8, 93.6)),
        Row("scalar", 3, (0.446, 0.011), (343.1, 18.8)),
        Row("vector", 3, (0.455, 0.020), (330.5, 10.6)),
        Row("top-k", 3, (0.435, 0.030), (470.7, 116.8)),
        Row("scalar", 4, (0.451, 0.020), (456.0, 87.8)),
        Row("vector", 4, (0.446, 0.017), (446.5, 21.3)),
        Row("top-k", 4, (0.453, 0.014), (519.1, 150.4)),
    ),
    "CIFAR-10": (
        Row("none", 32, (73.18, 0.44), (7.69, 0.35)),
        Row("scalar", 2, (65.16, 1.85), None),
        Row("vector", 2, (71.43, 0.47), (0.68, 0.06)),
        Row("top-k", 2, (66.02, 2.24), None),
        Row("scalar", 3, (71.49, 1.05), (1.22, 0.17)),
        Row("vector", 3, (72.50, 0.40), (0.81, 0.05)),
        Row("top-k", 3, (71.56, 0.81), (1.24, 0.22)),
        Row("scalar", 4, (71.80, 1.18), (1.72, 0.26)),
        Row("vector", 4, (73.17, 0.39), (0.98, 0.08)),
        Row("top-k", 4, (72.03, 1.77), (1.43, 0.26)),
    ),
    "ModelNet10": (
        Row("none", 32, (85.68, 1.57), (9604.80, 2933.40)),
        Row("scalar", 2, (76.94, 5.87), (1932.00, 674.30)),
        Row("vector", 2, (84.80, 2.58), (593.40, 170.98)),
        Row("top-k", 2, (79.91, 2.86), (1317.90, 222.95)),
        Row("scalar", 3, (81.32, 1.61), (1738.80, 254.79)),
        Row("vector", 3, (85.66, 1.36), (900.45, 275.01)),
        Row("top-k", 3, (81.63, 1.24), (1593.90, 225.34)),
        Row("scalar", 4, (81.19, 1.88), (2194.20, 266.88)),
        Row("vector", 4, (85.77, 1.69), (1200.60, 366.68)),
        Row("top-k", 4, (83.50, 1.21), (1821.60, 241.40)),
    ),
}
# Table 5: seconds to F1 = 0.45 on MIMIC-III, vector quantiser at 3 bits; by latency in ms, then by Q
TABLE_5: dict[int, dict[int, Value]] = {
    1: {1: (694.53, 150.75), 10: (470.86, 235.35), 25: (445.21, 51.44)},
    10: {1: (1262.78, 274.10), 10: (512.82, 256.32), 25: (461.17, 53.29)},
    50: {1: (3788.32, 822.30), 10: (699.30, 349.53), 25: (532.12, 61.49)},
    200: {1: (13259.14, 2878.04), 10: (1398.60, 699.05), 25: (798.19, 92.23)},
}
# Table D.1: MB to F1 = 0.4 on MIMIC-III by compressor, bits and Q; Q = 1 is Algorithm 2
TABLE_D1: dict[tuple[str, int], dict[int, Value]] = {
    ("none", 32): {1: (4517.59, 465.70), 10: (3777.21, 522.43), 25: (1536.69, 201.99)},
    ("vector", 3): {1: (433.28, 79.83), 10: (330.47, 10.63), 25: (125.09, 4.56)},
}


def epoch_cost(problem: str, bits: float, account: str = "paper") -> float:
    """MB (GB for CIFAR-10) of one epoch by an account of ``bits_per_round``."""
    one = SETTINGS[problem]
    crossed = bits_per_round(account, one.batch_size, [one.width] * PARTIES, one.server_size, bits)
    return one.rounds_per_epoch * sum(crossed) / 8 / one.unit


def epochs_decoded(problem: str, account: str = "paper") -> dict[tuple[str, int], Value | None]:
    """Mean and deviation of the epochs to the target by compressor and bits, from the printed costs."""
    found: dict[tuple[str, int], Value | None] = {}
    for row in TABLES[problem]:
        one = epoch_cost(problem, row.bits, account)
        found[row.compressor, row.bits] = None if row.cost is None else (row.cost[0] / one, row.cost[1] / one)
    return found


def possible_runs(mean: Value, deviation: Value, most: int = 5) -> list[int]:
    """The numbers of runs up to ``most`` whose whole numbers can have that mean and that (population) deviation.

    ``mean``, ``deviation``: the interval (low, high) that the printed digits leave. With n runs of sum S, n times the
    mean is S and n^2 times the variance is n (sum of squares) - S^2, both whole; S and the sum of squares differ by
    an even number.
    """
    found = []
    for n in range(1, most + 1):
        sums = range(math.ceil(n * mean[0]), math.floor(n * mean[1]) + 1)
        spread = range(math.ceil((n * deviation[0]) ** 2), math.floor((n * deviation[1]) ** 2) + 1)
        if any((v + s * s) % n == 0 and ((v + s * s) // n - s) % 2 == 0 for s in sums for v in spread):
            found.append(n)
    return found


def rounds_of_table_5() -> dict[int, tuple[float, int]]:
    """By Q: the rounds to the target that give all four entries of Table 5, and the number of runs behind the mean."""
    per_epoch = SETTINGS["MIMIC-III"].rounds_per_epoch
    found = {}
    for q in (1, 10, 25):
        means, deviations = (_between(q, place) for place in (0, 1))
        runs = possible_runs(means, deviations)
        found[q] = (per_epoch * round(runs[0] * (means[0] + means[1]) / 2) / runs[0], runs[0])
    return found


def _between(q: int, place: int) -> Value:
    """The epochs (``place`` 0: mean, 1: deviation) that all four entries of that Q leave, low and high."""
    per_epoch, low, high = SETTINGS["MIMIC-III"].rounds_per_epoch, 0.0, math.inf
    for latency, entries in TABLE_5.items():
        epoch = TimeModel(latency / 1000, STEP_S).seconds(per_epoch, q)
        low = max(low, (entries[q][place] - HALF_DIGIT) / epoch)
        high = min(high, (entries[q][place] + HALF_DIGIT) / epoch)
    return low, high


def table_5_again() -> dict[int, dict[int, float]]:
    """Table 5's twelve means, in seconds, from one number of rounds for each Q and the time model."""
    rounds = rounds_of_table_5()
    return {
        latency: {q: TimeModel(latency / 1000, STEP_S).seconds(rounds[q][0], q) for q in rounds} for latency in TABLE_5
    }


@dataclass(frozen=True)
class Finding:
    """What the tables reveal: the number found and the one to hold it against."""

    words: str
    found: float
    beside: float


def findings() -> tuple[Finding, ...]:
    """What decoding the tables reveals, most important first."""
    mimic, modelnet = epochs_decoded("MIMIC-III"), epochs_decoded("ModelNet10")
    one = SETTINGS["MIMIC-III"]
    uploads = [
        bits_per_round(account, one.batch_size, [one.width] * PARTIES, one.server_size, 32)[0]
        for account in ("paper", "literal")
    ]
    rounds = rounds_of_table_5()
    saving = TABLES["MIMIC-III"][0].cost[0] / TABLES["MIMIC-III"][2].cost[0]
    worst = max(_off_whole(mean) for mean, _ in modelnet.values())
    worst_literal = max(_off_whole(mean) for mean, _ in epochs_decoded("ModelNet10", "literal").values())
    return (
        Finding("uploads are charged this many times; messages sent", uploads[0] / uploads[1], 1.0),
        Finding("Table 4, 5 x mean epochs, distance to a whole number: paper's account; literal", worst, worst_literal),
        Finding("Table 2, cost of none over vector at 2 bits; bits alone: 32 / 2", saving, 16.0),
        Finding("Table 2, epochs to the target: vector at 3 bits; none", mimic["vector", 3][0], mimic["none", 32][0]),
        Finding("Table 4, epochs to the target: vector at 4 bits; none", modelnet["vector", 4][0],
                modelnet["none", 32][0]),
        Finding("none on MIMIC-III, MB to F1 = 0.4: Table 2; the same in Table D.1", TABLES["MIMIC-III"][0].cost[0],
                TABLE_D1["none", 32][10][0]),
        Finding("Table 5, Q = 1: epochs to F1 = 0.45; epochs said to be run", rounds[1][0] / one.rounds_per_epoch,
                float(one.epochs)),
        Finding("Table 5, Q = 25: runs in the mean; runs said to be in it", float(rounds[25][1]), 5.0),
        Finding("Table D.1, Q = 1, vector: MB of an epoch as charged; with derivatives of 32 bits",
                epoch_cost("MIMIC-III", 3, "algorithm2"), epoch_cost("MIMIC-III", 3, "algorithm2_honest")),
        Finding("Table 4, of 10: deviations of whole epochs if the variance divides by 5; if by 4",
                float(_whole_variances(25)), float(_whole_variances(20))),
    )  # fmt: skip


def _off_whole(mean: float) -> float:
    return abs(5 * mean - round(5 * mean))


def _whole_variances(times: int) -> int:
    """The rows of Table 4 for which ``times`` the variance of the epochs is whole within the printed digits."""
    count = 0
    for (_, bits), (_, deviation) in epochs_decoded("ModelNet10").items():
        half = HALF_DIGIT / epoch_cost("ModelNet10", bits)
        count += abs(times * deviation**2 - round(times * deviation**2)) <= 2 * times * deviation * half
    return count


def decoded_table() -> str:
    """Epochs to the target, mean ± deviation, decoded from the cost columns of Tables 2 to 4, as text."""
    rows = [["epochs to the target", *SETTINGS]]
    decoded = {name: epochs_decoded(name) for name in SETTINGS}
    for compressor, bits in decoded["MIMIC-III"]:
        costs = [decoded[name][compressor, bits] for name in SETTINGS]
        shown = ("never" if v is None else f"{v[0]:.1f} ± {v[1]:.1f}" for v in costs)
        rows.append([f"{compressor}, b = {bits}", *shown])
    return text_table(rows, (22, 18))


def findings_table() -> str:
    """:func:`findings` as text."""
    rows = [["found", "beside", " what the tables reveal"]]
    rows += [[f"{one.found:.5g}", f"{one.beside:.5g}", f" {one.words}"] for one in findings()]
    return text_table(rows, (10, 10, 0), left=">><", gap=" ")

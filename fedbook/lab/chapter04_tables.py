"""Chapter 4's stored comparisons as text: beside what the paper prints, and as paired differences."""

from __future__ import annotations

import math
from collections.abc import Mapping

from fedbook.intervals import paired_difference
from fedbook.lab.chapter04_stored import Table, budgets_of, by_budget, interval_of

# Accuracy in %, mean and standard deviation of 3 repetitions. Source: DP2-FedSAM, Tables II (epsilon 1) and III
# (its epsilon 1 columns are Table II's). Columns: (data and split, epsilon).
PRINTED_COLUMNS = (
    ("FEMNIST", 1.0), ("FEMNIST", 2.0), ("CIFAR-10 1000,2", 1.0), ("CIFAR-10 1000,2", 2.0), ("CIFAR-10 500,5", 1.0),
    ("CIFAR-10 1000,5", 1.0),
)  # fmt: skip
PRINTED: Mapping[str, tuple[tuple[float, float], ...]] = {
    "dp-fedavg": ((52.2, 0.7), (62.9, 1.7), (54.8, 0.5), (65.9, 0.6), (48.3, 0.8), (53.7, 0.4)),
    "dp-fedavg-ft": ((57.8, 0.7), (66.7, 1.2), (79.2, 0.4), (82.8, 0.1), (56.7, 0.6), (60.7, 0.1)),
    "dp-fedsam": ((53.6, 0.8), (64.3, 1.2), (58.0, 0.4), (67.2, 0.3), (51.0, 0.7), (55.9, 0.1)),
    "dp-fedsam-ft": ((56.5, 0.6), (67.4, 0.4), (80.0, 0.5), (83.3, 0.2), (58.1, 0.2), (62.1, 0.1)),
    "centaur": ((59.3, 0.4), (69.6, 0.7), (81.5, 0.6), (83.1, 0.5), (58.5, 0.4), (63.4, 0.3)),
    "dp2-fedsam": ((66.7, 0.7), (72.2, 0.4), (84.1, 0.6), (85.3, 0.8), (61.2, 0.2), (65.3, 0.5)),
}
PAPER_SCALE = (
    "the paper, Tables II and III: ResNet-18 of 11,181,642 parameters on FEMNIST (500 writers), a network of 667,402\n"
    "on CIFAR-10, both pre-trained; 200 rounds, rate 0.05, delta = 1/N, 3 repetitions; sigma and batch size not printed"
)


def table_beside_paper(*tables: Table) -> str:
    """Our accuracy in %, mean ± deviation over seeds, by method and budget, beside the paper's Tables II and III.

    The last lines name the difference of scale.
    """
    cells, width = by_budget(*tables), 11
    columns, data = budgets_of(cells), [name.split() for name, _ in PRINTED_COLUMNS]
    rows = [
        ["", "here", *[""] * (len(columns) - 1), *(words[0] for words in data)],
        ["clients, classes", *[""] * len(columns), *(words[-1] if words[1:] else "" for words in data)],
        ["epsilon", *("no noise" if e is None else f"{e:g}" for e in columns), *(f"{e:g}" for _, e in PRINTED_COLUMNS)],
    ]
    for method in dict.fromkeys(m for m, _ in cells):
        theirs = [f"{mean:.1f} ± {deviation:.1f}" for mean, deviation in PRINTED.get(method, ())]
        rows.append([method, *(_shown(cells.get((method, e))) for e in columns), *theirs])
    lines = []
    for first, *rest in rows:
        ours, theirs = rest[: len(columns)], rest[len(columns) :]
        lines.append(f"{first:16}" + "".join(f"{text:>{width}}" for text in ours) + " |"
                     + "".join(f"{text:>{width}}" for text in theirs))  # fmt: skip
    return "\n".join([*lines, _scale(tables[0]), PAPER_SCALE])


def _shown(values: list[float] | None) -> str:
    if values is None:
        return ""
    found = interval_of(values)
    if found is None:
        return "diverged"
    return f"{100 * found.mean:.1f}" + ("" if found.deviation is None else f" ± {100 * found.deviation:.1f}")


def _scale(table: Table) -> str:
    s = table["settings"]
    delta = s["delta"] or 1 / s["clients"]
    classes = f" of {s['classes_per_client']} classes" if s["partition"] == "classes" else ""
    return (f"here: {s['model']} on {table['problem']}, {s['clients']} clients{classes}; {s['rounds']} rounds, rate "
            f"{s['client_rate']:g}, delta = {delta:g}, {table['seeds']} seeds; not pre-trained")  # fmt: skip


def paired_table(*tables: Table, method: str = "dp2-fedsam") -> str:
    """``method`` less every other method, in points, over the same seeds, with Student's 95 % interval.

    A method without noise is compared with every budget.
    """
    cells = by_budget(*tables)
    budgets = [e for m, e in cells if m == method]
    lines = [f"accuracy of {method} minus that of the other, in points (95 % interval over paired seeds)"]
    for epsilon in budgets:
        for (other, e), values in cells.items():
            if other == method or e not in (epsilon, None):
                continue
            words = "no noise" if epsilon is None else f"epsilon = {epsilon:g}"
            lines.append(f"  {words:14} {other:14} {_gain(cells[method, epsilon], values)}")
    return "\n".join(lines)


def _gain(first: list[float], second: list[float]) -> str:
    if not all(map(math.isfinite, first + second)):
        return "diverged"
    found = paired_difference(first, second)
    bounds = "one seed" if found.low is None else f"{100 * found.low:+.1f} to {100 * found.high:+.1f}"
    return f"{100 * found.mean:+6.1f}   [{bounds}]"

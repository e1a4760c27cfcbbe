"""Chapter 1's stored comparisons (``fedbook compare fedsc``), read and drawn. As text they are in chapter01_tables.

A table is what :func:`fedbook.experiment.compare` returns; several of one problem are read as one, for instance
methods with noise and methods without. ``fixed`` names settings where a table varies some: ``cohort=2``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from fedbook.lab.chapter01_paper import NAMES
from fedbook.lab.stored_cells import Cell, Table, Words, chosen
from fedbook.lab.stored_cells import bytes_up as bytes_up
from fedbook.lab.stored_cells import setting as setting
from fedbook.lab.style import CEILING, CONNECTOR, CONTROL, INK, PALETTE, series
from fedbook.papers.fedsc import METHODS

BASE = "fedavg-sc"
CONTROLS = ("random-encoder", "raw-pixels")  # they have no rounds: horizontal lines
ALONE = ("centralized-sc", "local-sc", *CONTROLS)  # nothing is sent
WORDS = NAMES | {"local-sc": "local SC", "random-encoder": "random encoder", "raw-pixels": "raw pixels"}
GREY: dict[str, dict[str, Any]] = {
    "centralized-sc": {"color": CEILING, "marker": "*", "linestyle": "-", "markersize": 7},
    "local-sc": {"color": CONTROL, "marker": "p", "linestyle": "--"},
    "random-encoder": {"color": CONTROL, "marker": "<", "linestyle": ":"},
    "raw-pixels": {"color": INK, "marker": ">", "linestyle": (0, (6, 3, 1, 3, 1, 3))},
}
METRICS = {
    "knn": "KNN accuracy", "knn_features": "KNN accuracy of features", "probe": "linear probe", "loss": "global loss",
    "probe_representation": "linear probe of $z$", "probe_few": "probe, 5 labels a class", "gap": "Gap",
    "rank": "effective rank of $R$", "gradient": r"$\|\nabla\mathcal{L}\|^2$",
}  # fmt: skip
SHARES = ("knn", "knn_features", "probe", "probe_representation", "probe_few")  # shown in per cent
OURS = Words(tuple(METHODS), WORDS, METRICS, SHARES, CONTROLS, BASE, "knn", GREY)

cells_of, scores, look_of, differences = OURS.cells_of, OURS.scores, OURS.look_of, OURS.differences
draw_differences, shown, digits = OURS.draw_differences, OURS.shown, OURS.digits


def means(*tables: Table, metric: str = "probe", **fixed: Any) -> dict[str, tuple[float, float]]:
    """Method -> (mean, deviation over seeds), as chapter01_paper's tables take them; diverged ones are left out."""
    return OURS.means(*tables, metric=metric, **fixed)


def draw_rounds(axes: Any, *tables: Table, methods: Sequence[str] | None = None,
                metrics: Sequence[str] = ("knn", "probe"), **fixed: Any) -> str:  # fmt: skip
    """Metrics by round (the paper's Figure 2): mean over seeds, band of one deviation; controls as horizontal lines.

    ``methods``: which to draw (None: all). Shapes: ``axes`` one for each metric.
    """
    return OURS.draw_rounds(axes, *tables, methods=methods, metrics=metrics, **fixed)


# --- full and partial participation


def draw_participation(ax: Axes, *tables: Table, cohort: int, metric: str = "knn", **fixed: Any) -> str:
    """Every method with all clients and with ``cohort`` of them a round, and what that costs it."""
    full, part = (
        means(*tables, metric=metric, cohort=c, **fixed) for c in (0, cohort)
    )  # fmt: skip
    both = [m for m in full if m in part]
    parts = []
    for place, method in enumerate(both):
        pair = [shown(one[method][0], metric) for one in (full, part)]
        ax.plot(pair, [place, place], color=CONNECTOR, linestyle="-", marker="", linewidth=1.2, zorder=1)
        for i, (one, value) in enumerate(zip((full, part), pair, strict=True)):
            words = None if place else ("all clients", f"{cohort} a round")[i]
            ax.errorbar([value], [place + 0.12 * (2 * i - 1)], xerr=shown(one[method][1], metric), label=words,
                        capsize=2, **(series(i) | {"linestyle": "", "markersize": 6}))  # fmt: skip
        parts.append(f"{WORDS[method]} {pair[0]:{digits(metric)}} to {pair[1]:{digits(metric)}}")
    ax.set_yticks(range(len(both)), [WORDS[m] for m in both])
    ax.set(ylim=(len(both) - 0.5, -0.5), xlabel=f"{OURS.label(metric)} (± deviation over seeds)")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return f"{metric} with all clients, and with {cohort} a round: {'; '.join(parts)}."


# --- differential privacy


def noised(*tables: Table, **fixed: Any) -> dict[float, tuple[Table, Cell]]:
    """FedSC's noised cells by the largest epsilon of their released matrices, rising."""
    found: dict[float, tuple[Table, Cell]] = {}
    for table, cell in chosen(tables, method="fedsc", **fixed):
        epsilon = epsilon_of(cell)
        if epsilon is None:
            continue
        found[epsilon] = table, cell
    return dict(sorted(found.items()))


def epsilon_of(cell: Cell) -> float | None:
    """What the noised matrices of a run cost, the largest over seeds, to three digits; None without noise."""
    found = [run["privacy"].get("epsilon_of_releases") for run in cell["runs"]]
    found = [float(v) for v in found if v is not None and v > 0]
    return float(f"{max(found):.3g}") if found else None


def draw_privacy(ax: Axes, *tables: Table, metric: str = "knn", base: str = BASE, **fixed: Any) -> str:
    """FedSC against the epsilon of its matrices, with FedAvg+SC and FedSC without noise as lines; 95 % intervals."""
    cells, lines = noised(*tables, **fixed), without_noise(tables, base, fixed)
    found = [OURS.interval(cell, metric) for _, cell in cells.values()]
    half = [0 if one.low is None else one.mean - one.low for one in found]
    ax.errorbar(list(cells), [one.mean for one in found], half, label="FedSC with noise", capsize=3, **series(0))
    parts = [f"{one.mean:{digits(metric)}} at {e:g}" for e, one in zip(cells, found, strict=True)]
    for i, (words, cell) in enumerate(lines.items(), 1):
        one = OURS.interval(cell, metric)
        ax.axhline(one.mean, label=words, color=PALETTE[i], linestyle=("--", "-.")[i - 1])
        if one.low is not None:
            ax.axhspan(one.low, one.high, color=PALETTE[i], alpha=0.12, linewidth=0)
        parts.append(f"{words} {one.mean:{digits(metric)}}")
    ax.set_xscale("log")
    ax.set_xticks(list(cells), [f"{e:g}" for e in cells])
    ax.minorticks_off()
    delta = next(iter(cells.values()))[1]["runs"][0]["privacy"]["delta"]
    ax.set(xlabel=rf"$\varepsilon$ of the matrices alone ($\delta$ = {delta:g})", ylabel=OURS.label(metric))
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return f"{metric} by epsilon: {', '.join(parts)}. The encoders go out in clear, so no epsilon holds for a run."


def without_noise(tables: Sequence[Table], base: str, fixed: Mapping[str, Any]) -> dict[str, Cell]:
    """The cell of ``base`` and that of FedSC without noise, where there is one; cells with the same runs are one."""
    every = chosen(tables, **fixed)
    plain = [cell for _, cell in every if cell["method"] == "fedsc" and epsilon_of(cell) is None]
    bases = [cell for _, cell in every if cell["method"] == base]
    found = {}
    for words, cells in ((WORDS[base], bases), ("FedSC, no noise", plain)):
        found |= {words: cells[0]} if cells else {}
    return found

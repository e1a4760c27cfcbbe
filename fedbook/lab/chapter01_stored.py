"""Chapter 1's stored comparisons (``fedbook compare fedsc``), drawn and as text.

A table is what :func:`fedbook.experiment.compare` returns; several of one problem are read as one, for instance
methods with noise and methods without. ``fixed`` names settings where a table varies some: ``cohort=2``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes

from fedbook.lab.chapter01_paper import NAMES
from fedbook.lab.results import Cell, Table, cells, text_table
from fedbook.lab.stored_cells import Words, bytes_up, cell_text, differences_text, tuning_text
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

cells_of, scores = OURS.cells_of, OURS.scores
tuning_table = partial(tuning_text, OURS)


def means(*tables: Table, metric: str = "probe", **fixed: Any) -> dict[str, tuple[float, float]]:
    """Method -> (mean, deviation over seeds), as chapter01_paper's tables take them; diverged ones are left out."""
    return OURS.means(*tables, metric=metric, **fixed)


def draw_rounds(axes: Any, *tables: Table, metrics: Sequence[str] = ("knn", "probe")) -> str:
    """Metrics by round (the paper's Figure 2): mean over seeds, band of one deviation; controls as horizontal lines.

    Shapes: ``axes`` one for each metric.
    """
    return OURS.draw_rounds(axes, *tables, metrics=metrics)


# --- full and partial participation


def draw_participation(ax: Axes, *tables: Table, cohort: int) -> str:
    """KNN of every method with all clients and with ``cohort`` of them a round, and what that costs it."""
    full, part = (means(*tables, metric="knn", cohort=c) for c in (0, cohort))
    both = [m for m in full if m in part]
    parts = []
    for place, method in enumerate(both):
        pair = [100 * one[method][0] for one in (full, part)]
        ax.plot(pair, [place, place], color=CONNECTOR, linestyle="-", marker="", linewidth=1.2, zorder=1)
        for i, (one, value) in enumerate(zip((full, part), pair, strict=True)):
            words = None if place else ("all clients", f"{cohort} a round")[i]
            ax.errorbar([value], [place + 0.12 * (2 * i - 1)], xerr=100 * one[method][1], label=words,
                        capsize=2, **(series(i) | {"linestyle": "", "markersize": 6}))  # fmt: skip
        parts.append(f"{WORDS[method]} {pair[0]:.1f} to {pair[1]:.1f}")
    ax.set_yticks(range(len(both)), [WORDS[m] for m in both])
    ax.set(ylim=(len(both) - 0.5, -0.5), xlabel=f"{OURS.label('knn')} (± deviation over seeds)")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return f"knn with all clients, and with {cohort} a round: {'; '.join(parts)}."


# --- differential privacy


def noised(*tables: Table) -> dict[float, Cell]:
    """FedSC's noised cells by the largest epsilon of their released matrices, rising."""
    by_epsilon = {epsilon_of(cell): cell for _, cell in cells(*tables, method="fedsc")}
    return dict(sorted((epsilon, cell) for epsilon, cell in by_epsilon.items() if epsilon is not None))


def epsilon_of(cell: Cell) -> float | None:
    """What the noised matrices of a run cost, the largest over seeds, to three digits; None without noise."""
    spent = [run["privacy"].get("epsilon_of_releases") or 0.0 for run in cell["runs"]]
    return float(f"{max(spent):.3g}") if max(spent) > 0 else None


def without_noise(*tables: Table) -> dict[str, Cell]:
    """The cell of FedAvg+SC and that of FedSC without noise, where there is one; cells with the same runs are one."""
    plain: dict[str, Cell] = {}
    for method, words in ((BASE, WORDS[BASE]), ("fedsc", "FedSC, no noise")):
        for _, cell in cells(*tables):
            if cell["method"] == method and epsilon_of(cell) is None:
                plain.setdefault(words, cell)
    return plain


def draw_privacy(ax: Axes, *tables: Table, metric: str = "knn") -> str:
    """FedSC against the epsilon of its matrices, with FedAvg+SC and FedSC without noise as lines; 95 % intervals."""
    private, form = noised(*tables), OURS.digits(metric)
    levels = [OURS.interval(cell, metric) for cell in private.values()]
    half = [0 if one.low is None else one.mean - one.low for one in levels]
    ax.errorbar(list(private), [one.mean for one in levels], half, label="FedSC with noise", capsize=3, **series(0))
    parts = [f"{one.mean:{form}} at {e:g}" for e, one in zip(private, levels, strict=True)]
    for i, (words, cell) in enumerate(without_noise(*tables).items(), 1):
        one = OURS.interval(cell, metric)
        ax.axhline(one.mean, label=words, color=PALETTE[i], linestyle=("--", "-.")[i - 1])
        if one.low is not None:
            ax.axhspan(one.low, one.high, color=PALETTE[i], alpha=0.12, linewidth=0)
        parts.append(f"{words} {one.mean:{form}}")
    ax.set_xscale("log")
    ax.set_xticks(list(private), [f"{e:g}" for e in private])
    ax.minorticks_off()
    delta = next(iter(private.values()))["runs"][0]["privacy"]["delta"]
    ax.set(xlabel=rf"$\varepsilon$ of the matrices alone ($\delta$ = {delta:g})", ylabel=OURS.label(metric))
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return f"{metric} by epsilon: {', '.join(parts)}. The encoders go out in clear, so no epsilon holds for a run."


# --- as text


def methods_table(*tables: Table) -> str:
    """Every method as text: mean ± deviation over seeds of the metrics, bytes up a round and client.

    Accuracies in per cent; -: the method has no such number.
    """
    metrics = ("knn", "probe", "probe_few", "loss", "rank")
    rows = [["mean ± deviation", *metrics, "bytes up"]]
    owners = {cell["method"]: table for table, cell in cells(*tables)}
    for method, cell in cells_of(*tables).items():
        sent = "-" if method in ALONE else f"{bytes_up(owners[method], cell):,.0f}"
        rows.append([WORDS[method], *(cell_text(OURS, cell, metric) for metric in metrics), sent])
    settings = tables[0]["settings"]
    return (
        f"{text_table(rows)}\n{tables[0]['problem']}: {settings['clients']} clients, "
        f"{settings['cohort'] or 'all'} in a round, {settings['rounds']} rounds, {tables[0]['seeds']} seeds; "
        "knn, probe in %, probe_few: 5 labels a class; bytes up: of a client in a round"
    )


def differences_table(*tables: Table, metrics: Sequence[str] = ("knn", "probe")) -> str:
    """Every method minus FedAvg+SC as text; "*" where 0 is not in the interval."""
    return differences_text(OURS, {m: OURS.differences(*tables, metric=m) for m in metrics}, f"minus {WORDS[BASE]}")


def privacy_table(*tables: Table) -> str:
    """Noise levels as text: epsilon of the matrices, what is reported of the whole run, metrics."""
    metrics = ("knn", "probe")
    rows = [["", "epsilon of matrices", "of the run", *metrics]]
    for epsilon, cell in noised(*tables).items():
        whole = {"none" if run["epsilon"] is None else f"{run['epsilon']:.3g}" for run in cell["runs"]}
        spent = [f"{epsilon:g}", ", ".join(whole)]
        rows.append(["FedSC with noise", *spent, *(cell_text(OURS, cell, m) for m in metrics)])
    for words, cell in without_noise(*tables).items():
        spent = ["-" if words == WORDS[BASE] else "none", "none"]
        rows.append([words, *spent, *(cell_text(OURS, cell, m) for m in metrics)])
    return text_table(rows)

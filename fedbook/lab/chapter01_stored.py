"""Chapter 1's stored comparisons (``fedbook compare fedsc``), read and drawn. As text they are in chapter01_tables.

A table is what :func:`fedbook.experiment.compare` returns; several of one problem are read as one, for instance
methods with noise and methods without. ``fixed`` names settings where a table varies some: ``cohort=2``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from fedbook import arguments
from fedbook.lab.chapter01_paper import NAMES
from fedbook.lab.panels import panels
from fedbook.lab.results import curve
from fedbook.lab.style import PALETTE, series
from fedbook.learning.intervals import Interval, mean_interval, paired_difference
from fedbook.papers.fedsc import METHODS

Table = Mapping[str, Any]
Cell = Mapping[str, Any]

BASE = "fedavg-sc"
CONTROLS = ("random-encoder", "raw-pixels")  # they have no rounds: horizontal lines
ALONE = ("centralized-sc", "local-sc", *CONTROLS)  # nothing is sent
WORDS = NAMES | {"local-sc": "local SC", "random-encoder": "random encoder", "raw-pixels": "raw pixels"}
GREY: dict[str, dict[str, Any]] = {
    "centralized-sc": {"color": "#444444", "marker": "*", "linestyle": "-", "markersize": 7},
    "local-sc": {"color": "#888888", "marker": "p", "linestyle": "--"},
    "random-encoder": {"color": "#888888", "marker": "<", "linestyle": ":"},
    "raw-pixels": {"color": "#000000", "marker": ">", "linestyle": (0, (6, 3, 1, 3, 1, 3))},
}
METRICS = {
    "knn": "KNN accuracy", "knn_features": "KNN accuracy of features", "probe": "linear probe", "loss": "global loss",
    "probe_representation": "linear probe of $z$", "probe_few": "probe, 5 labels a class", "gap": "Gap",
    "rank": "effective rank of $R$", "gradient": r"$\|\nabla\mathcal{L}\|^2$",
}  # fmt: skip
SHARES = ("knn", "knn_features", "probe", "probe_representation", "probe_few")  # shown in per cent

# --- cells


def cells_of(*tables: Table, **fixed: Any) -> dict[str, Cell]:
    """The cells with the settings ``fixed``, by method, in the order of the chapter.

    Raises: TypeError, ValueError (no such cell; two for one method: a setting needs a value).
    """
    found: dict[str, Cell] = {}
    for _, cell in chosen(tables, **fixed):
        one = arguments.one_of("method", cell["method"], METHODS)
        if one in found:
            loose = sorted({name for c in (cell, found[one]) for name in c["varied"]} - set(fixed))
            raise arguments.wrong(ValueError, "fixed", fixed, f"a value for {', '.join(loose) or 'method'} as well")
        found[one] = cell
    return {name: found[name] for name in METHODS if name in found}


def chosen(tables: Sequence[Table], **fixed: Any) -> list[tuple[Table, Cell]]:
    """All cells whose settings have the values of ``fixed``, with their tables.

    Raises: TypeError, ValueError (none; tables of different problems).
    """
    for table in tables:
        if not isinstance(table, Mapping) or "cells" not in table:
            raise arguments.wrong(TypeError, "table", table, "a comparison: what compare() or stored() returns")
    if not tables:
        raise arguments.wrong(TypeError, "table", tables, "at least one comparison")
    if len({table["problem"] for table in tables}) > 1:
        raise arguments.wrong(ValueError, "table", [t["problem"] for t in tables], "comparisons on one problem")
    found = [
        (table, cell) for table in tables for cell in table["cells"]
        if all(setting(table, cell, name) == value for name, value in fixed.items())
    ]  # fmt: skip
    if not found:
        raise arguments.wrong(ValueError, "fixed", fixed, "settings that have a cell in the table")
    return found


def setting(table: Table, cell: Cell, name: str) -> Any:
    """The value of a setting in a cell. Raises: ValueError (there is none of that name)."""
    known = {**table["settings"], **cell["tuned"], **cell["varied"], "method": cell["method"]}
    if name not in known:
        raise arguments.wrong(ValueError, "setting", name, "one of " + ", ".join(known))
    return known[name]


def scores(cell: Cell, metric: str = "knn") -> Tensor:
    """The metric after the last round for each seed, [S]; NaN where there is none (diverged, or no such loss).

    Raises: ValueError (no run has it).
    """
    if not any(metric in run["metrics"] for run in cell["runs"]):
        raise arguments.wrong(ValueError, "metric", metric, "one of " + ", ".join(cell["runs"][0]["metrics"]))
    found = [run["metrics"].get(metric) for run in cell["runs"]]
    return torch.tensor([math.nan if value is None else value for value in found], dtype=torch.float64)


def means(*tables: Table, metric: str = "probe", **fixed: Any) -> dict[str, tuple[float, float]]:
    """Method -> (mean, deviation over seeds), as chapter01_paper's tables take them; diverged ones are left out.

    Raises: TypeError, ValueError.
    """
    found = {}
    for method, cell in cells_of(*tables, **fixed).items():
        values = scores(cell, metric)
        if bool(values.isfinite().all()):
            found[method] = float(values.mean()), float(values.std()) if len(values) > 1 else 0.0
    return found


def bytes_up(table: Table, cell: Cell) -> float:
    """Mean bytes that a client sends in a round that it takes part in. Raises: TypeError, ValueError."""
    settings = {**table["settings"], **cell["varied"]}
    rounds, clients = cell["runs"][0]["rounds"], settings["cohort"] or settings["clients"]
    return sum(run["bytes_up"] for run in cell["runs"]) / len(cell["runs"]) / (rounds * clients)


# --- curves


def draw_rounds(axes: Any, *tables: Table, methods: Sequence[str] | None = None,
                metrics: Sequence[str] = ("knn", "probe"), **fixed: Any) -> str:  # fmt: skip
    """Metrics by round (the paper's Figure 2): mean over seeds, band of one deviation; controls as horizontal lines.

    ``methods``: which to draw (None: all). Shapes: ``axes`` one for each metric. Raises: TypeError, ValueError.
    """
    spots, cells = panels(axes, len(metrics)), _some(cells_of(*tables, **fixed), methods)
    told = []
    for ax, metric in zip(spots, metrics, strict=True):
        parts = []
        for method, cell in cells.items():
            t, values = _curve(cell, metric)
            whole = values[values.isfinite().all(1)]
            if not len(whole):
                parts.append(f"{WORDS[method]} none")
                continue
            mean, half = whole.mean(0), whole.std(0) if len(whole) > 1 else torch.zeros(len(t))
            if method in CONTROLS:
                ax.axhline(shown(float(mean[-1]), metric), label=WORDS[method], **(look_of(method) | {"marker": ""}))
            else:
                mean, half = (shown(v, metric) for v in (mean, half))
                look = look_of(method)
                ax.plot(t, mean, label=WORDS[method], markevery=max(1, len(t) // 12), **look)
                ax.fill_between(t, mean - half, mean + half, color=look["color"], alpha=0.18, linewidth=0)
            parts.append(f"{WORDS[method]} {shown(float(whole.mean(0)[-1]), metric):{digits(metric)}}")
        ax.set(xlabel="round $t$", ylabel=_label(metric))
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        told.append(f"{metric}: {', '.join(parts)}")
    if spots[-1].lines:
        spots[-1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return f"Mean over {len(values)} seeds after the last round, {'; '.join(told)}."


def look_of(method: str) -> dict[str, Any]:
    """Colour, marker and line of a method, the same in every figure; controls are grey or black.

    Raises: TypeError, ValueError.
    """
    place = list(METHODS).index(arguments.one_of("method", method, METHODS))
    return series(place) | GREY.get(method, {})


# --- differences


def differences(*tables: Table, metric: str = "knn", base: str = BASE, **fixed: Any) -> dict[str, Interval]:
    """Method -> the mean over seeds of its metric minus that of ``base``, with Student's 95 % interval.

    Methods of which a run diverged are left out. Raises: TypeError, ValueError.
    """
    cells = cells_of(*tables, **fixed)
    if base not in cells:
        raise arguments.wrong(ValueError, "base", base, "one of " + ", ".join(cells))
    own, found = scores(cells[base], metric), {}
    if not bool(own.isfinite().all()):
        raise arguments.wrong(ValueError, "metric", metric, f"one that every run of {base} has")
    for method, cell in cells.items():
        values = scores(cell, metric)
        if method != base and bool(values.isfinite().all()):
            found[method] = paired_difference(shown(values, metric), shown(own, metric))
    return found


def draw_differences(ax: Axes, *tables: Table, metric: str = "knn", base: str = BASE, **fixed: Any) -> str:
    """Difference of every method to ``base`` over the same seeds, with its 95 % interval; 0 is ``base``.

    Raises: TypeError, ValueError.
    """
    found = differences(*tables, metric=metric, base=base, **fixed)
    if not found:
        raise arguments.wrong(ValueError, "table", tables[0]["problem"], f"a method beside {base}")
    for place, (method, one) in enumerate(found.items()):
        half = None if one.low is None else [[one.mean - one.low], [one.high - one.mean]]
        look = look_of(method) | {"linestyle": ""}
        ax.errorbar([one.mean], [place], xerr=half, capsize=3, **(look | {"markersize": 6}))
    ax.axvline(0, color="black", linewidth=1.0)
    ax.set_yticks(range(len(found)), [WORDS[m] for m in found])
    unit = " in points" if metric in SHARES else ""
    ax.set(ylim=(len(found) - 0.5, -0.5), xlabel=f"{METRICS.get(metric, metric)} minus {WORDS[base]}{unit}, 95 %")
    told = ", ".join(f"{WORDS[m]} {signed(one)}" for m, one in found.items())
    return f"{metric} minus that of {WORDS[base]} over {one.count} seeds: {told}."


# --- full and partial participation


def draw_participation(ax: Axes, *tables: Table, cohort: int, metric: str = "knn", **fixed: Any) -> str:
    """Every method with all clients and with ``cohort`` of them a round, and what that costs it.

    Raises: TypeError, ValueError.
    """
    full, part = (
        means(*tables, metric=metric, cohort=c, **fixed) for c in (0, arguments.integer("cohort", cohort, 1))
    )  # fmt: skip
    both = [m for m in full if m in part]
    if not both:
        raise arguments.wrong(ValueError, "table", tables[0]["problem"], "a method with all and with some clients")
    parts = []
    for place, method in enumerate(both):
        pair = [shown(one[method][0], metric) for one in (full, part)]
        ax.plot(pair, [place, place], color="#999999", linestyle="-", marker="", linewidth=1.2, zorder=1)
        for i, (one, value) in enumerate(zip((full, part), pair, strict=True)):
            words = None if place else ("all clients", f"{cohort} a round")[i]
            ax.errorbar([value], [place + 0.12 * (2 * i - 1)], xerr=shown(one[method][1], metric), label=words,
                        capsize=2, **(series(i) | {"linestyle": "", "markersize": 6}))  # fmt: skip
        parts.append(f"{WORDS[method]} {pair[0]:{digits(metric)}} to {pair[1]:{digits(metric)}}")
    ax.set_yticks(range(len(both)), [WORDS[m] for m in both])
    ax.set(ylim=(len(both) - 0.5, -0.5), xlabel=f"{_label(metric)} (± deviation over seeds)")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return f"{metric} with all clients, and with {cohort} a round: {'; '.join(parts)}."


# --- differential privacy


def noised(*tables: Table, **fixed: Any) -> dict[float, tuple[Table, Cell]]:
    """FedSC's noised cells by the largest epsilon of their released matrices, rising.

    Raises: TypeError, ValueError (none; two cells at one epsilon).
    """
    found: dict[float, tuple[Table, Cell]] = {}
    for table, cell in chosen(tables, method="fedsc", **fixed):
        epsilon = epsilon_of(cell)
        if epsilon is None:
            continue
        if epsilon in found:
            raise arguments.wrong(ValueError, "fixed", fixed, f"settings with one cell at epsilon {epsilon:g}")
        found[epsilon] = table, cell
    if not found:
        raise arguments.wrong(ValueError, "table", tables[0]["problem"], "FedSC with noise")
    return dict(sorted(found.items()))


def epsilon_of(cell: Cell) -> float | None:
    """What the noised matrices of a run cost, the largest over seeds, to three digits; None without noise."""
    found = [run["privacy"].get("epsilon_of_releases") for run in cell["runs"]]
    found = [float(v) for v in found if v is not None and v > 0]
    return float(f"{max(found):.3g}") if found else None


def draw_privacy(ax: Axes, *tables: Table, metric: str = "knn", base: str = BASE, **fixed: Any) -> str:
    """FedSC against the epsilon of its matrices, with FedAvg+SC and FedSC without noise as lines; 95 % intervals.

    Raises: TypeError, ValueError.
    """
    cells, lines = noised(*tables, **fixed), without_noise(tables, base, fixed)
    found = [_interval(cell, metric) for _, cell in cells.values()]
    half = [0 if one.low is None else one.mean - one.low for one in found]
    ax.errorbar(list(cells), [one.mean for one in found], half, label="FedSC with noise", capsize=3, **series(0))
    parts = [f"{one.mean:{digits(metric)}} at {e:g}" for e, one in zip(cells, found, strict=True)]
    for i, (words, cell) in enumerate(lines.items(), 1):
        one = _interval(cell, metric)
        ax.axhline(one.mean, label=words, color=PALETTE[i], linestyle=("--", "-.")[i - 1])
        if one.low is not None:
            ax.axhspan(one.low, one.high, color=PALETTE[i], alpha=0.12, linewidth=0)
        parts.append(f"{words} {one.mean:{digits(metric)}}")
    ax.set_xscale("log")
    ax.set_xticks(list(cells), [f"{e:g}" for e in cells])
    ax.minorticks_off()
    delta = next(iter(cells.values()))[1]["runs"][0]["privacy"]["delta"]
    ax.set(xlabel=rf"$\varepsilon$ of the matrices alone ($\delta$ = {delta:g})", ylabel=_label(metric))
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return f"{metric} by epsilon: {', '.join(parts)}. The encoders go out in clear, so no epsilon holds for a run."


def without_noise(tables: Sequence[Table], base: str, fixed: Mapping[str, Any]) -> dict[str, Cell]:
    """The cell of ``base`` and that of FedSC without noise, where there is one; cells with the same runs are one."""
    every = chosen(tables, **fixed)
    plain = [cell for _, cell in every if cell["method"] == "fedsc" and epsilon_of(cell) is None]
    bases = [cell for _, cell in every if cell["method"] == arguments.one_of("base", base, METHODS)]
    found = {}
    for words, cells in ((WORDS[base], bases), ("FedSC, no noise", plain)):
        if any([run["metrics"] for run in cell["runs"]] != [run["metrics"] for run in cells[0]["runs"]]
               for cell in cells):  # fmt: skip
            raise arguments.wrong(ValueError, "fixed", fixed, f"settings with one cell of {words}")
        found |= {words: cells[0]} if cells else {}
    return found


def _interval(cell: Cell, metric: str) -> Interval:
    return mean_interval(shown(scores(cell, metric), metric))


# --- words


def _some(cells: Mapping[str, Cell], methods: Sequence[str] | None) -> Mapping[str, Cell]:
    if methods is None:
        return cells
    if isinstance(methods, str) or not isinstance(methods, Sequence) or not methods:
        raise arguments.wrong(TypeError, "methods", methods, "a list of words")
    for one in methods:
        arguments.one_of("methods", one, cells)
    return {name: cell for name, cell in cells.items() if name in methods}


def _curve(cell: Cell, metric: str) -> tuple[Tensor, Tensor]:
    """Rounds [E] and values [S, E]; NaN where the method has no such metric. Raises: ValueError (unknown)."""
    arguments.one_of("metric", metric, METRICS)
    if metric not in cell["curve"]:
        t = torch.tensor(cell["curve"]["round"])
        return t, torch.full((len(cell["runs"]), len(t)), float("nan"), dtype=torch.float64)
    t, values = curve(cell, metric)
    return t, values


def shown(value: Any, metric: str) -> Any:
    return 100 * value if metric in SHARES else value


def _label(metric: str) -> str:
    return METRICS.get(metric, metric) + (" in %" if metric in SHARES else "")


def digits(metric: str) -> str:
    return ".1f" if metric in SHARES or metric == "rank" else ".3f"


def signed(one: Interval) -> str:
    mean, *ends = (f"{0.0 if abs(v) < 0.005 else v:+.2f}" for v in (one.mean, one.low, one.high) if v is not None)
    return mean + (f" [{', '.join(ends)}]" if ends else "")

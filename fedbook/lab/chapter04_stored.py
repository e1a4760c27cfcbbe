"""Chapter 4's stored comparisons (``fedbook compare``), drawn and as text.

A table is what :func:`fedbook.experiment.compare` returns. Several tables are read as one, for instance one of
the private methods at two budgets and one of the methods without noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from fedbook.intervals import Interval, mean_interval, paired_difference
from fedbook.lab.results import Cell, Table, cells, scores, text_table
from fedbook.lab.style import series
from fedbook.papers.dp2_fedsam import METHODS

# --- cells


def by_budget(*tables: Table) -> dict[tuple[str, float | None], list[float]]:
    """(method, epsilon) -> the metric of each seed; epsilon is None for a method that adds no noise."""
    found: dict[tuple[str, float | None], list[float]] = {}
    for table in tables:
        for cell in table["cells"]:
            found[cell["method"], _budget(cell, table["settings"])] = scores(cell, table["metric"]).tolist()
    order = list(METHODS)
    return dict(sorted(found.items(), key=lambda pair: (order.index(pair[0][0]), pair[0][1] or math.inf)))


def _budget(cell: Cell, settings: Mapping[str, Any]) -> float | None:
    """The budget that was set, else what the given noise costs; None without noise."""
    used = {**settings, **cell["varied"]}
    if not METHODS[cell["method"]].private or not (used["epsilon"] or used["noise_multiplier"]):
        return None
    return float(used["epsilon"] or f"{cell['runs'][0]['epsilon']:.3g}")


def at_settings(
    table: Table, names: tuple[str, ...], method: str, fixed: Mapping[str, Any]
) -> dict[tuple[float, ...], list[float]]:
    """Values of the settings ``names`` -> the metric of each seed, for one method and the ``fixed`` settings."""
    chosen = [cell for _, cell in cells(table, method=method, **fixed)]
    return {tuple(cell["varied"][n] for n in names): scores(cell, table["metric"]).tolist() for cell in chosen}


def interval_of(values: list[float]) -> Interval | None:
    """Student's interval over seeds; None if a run diverged."""
    return mean_interval(values) if all(map(math.isfinite, values)) else None


# --- methods and budgets


def draw_methods(ax: Axes, *tables: Table) -> str:
    """Accuracy of every method at every budget: the mean over seeds with Student's 95 % interval."""
    cells = by_budget(*tables)
    methods, budgets, parts = list(dict.fromkeys(m for m, _ in cells)), budgets_of(cells), []
    middle = (sum(e is not None for e in budgets) - 1) / 2
    for i, epsilon in enumerate(budgets):
        rows = [(methods.index(m), interval_of(v), m) for (m, e), v in cells.items() if e == epsilon]
        rows = [(y, found, m) for y, found, m in rows if found is not None]
        shift = 0.0 if epsilon is None else 0.18 * (i - middle)
        words = "no noise" if epsilon is None else rf"$\varepsilon$ = {epsilon:g}"
        look = series(i) | {"linestyle": ""}
        half = [[100 * (f.mean - f.low) if f.low is not None else 0 for _, f, _ in rows]] * 2
        ax.errorbar([100 * f.mean for _, f, _ in rows], [y + shift for y, _, _ in rows], xerr=half, label=words,
                    capsize=2.5, elinewidth=1.2, **(look | {"markersize": 5.5}))  # fmt: skip
        told = ", ".join(f"{m} {100 * f.mean:.1f}" for _, f, m in rows)
        parts.append(("no noise" if epsilon is None else f"epsilon = {epsilon:g}") + f": {told}")
    ax.set_yticks(range(len(methods)), methods)
    ax.set_ylim(len(methods) - 0.5, -0.5)
    ax.set_xlabel("accuracy in %, each client on its own images")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return f"Mean accuracy in % over {len(next(iter(cells.values())))} seeds; {'; '.join(parts)}."


def budgets_of(cells: Mapping[tuple[str, float | None], Any]) -> list[float | None]:
    """The budgets in rising order; None, without noise, comes last."""
    return sorted({e for _, e in cells}, key=lambda e: math.inf if e is None else e)


# --- clip norm and radius, and one setting at a time


def draw_heat(ax: Axes, table: Table, *, gain: bool = False) -> str:
    """DP2-FedSAM's accuracy in % over clip norm C and SAM radius q; with ``gain``, the paired gain over q = 0."""
    cells = at_settings(table, ("clip_norm", "sam_radius"), "dp2-fedsam", {})
    bounds, radii = (sorted({key[i] for key in cells}) for i in (0, 1))
    shown = [q for q in radii if q or not gain]
    grid, texts = np.full((len(bounds), len(shown)), np.nan), {}
    for (c, q), values in cells.items():
        if gain and q == 0:
            continue
        base = cells.get((c, 0.0), [math.nan]) if gain else [0.0] * len(values)
        if len(base) == len(values) and all(map(math.isfinite, values + base)):
            found = paired_difference(values, base)
            at = bounds.index(c), shown.index(q)
            grid[at] = 100 * found.mean
            error = "" if found.deviation is None else f" ± {100 * found.deviation / math.sqrt(found.count):.1f}"
            texts[at] = f"{grid[at]:+.1f}{error}" if gain else f"{grid[at]:.1f}"
    reach = max(float(np.nanmax(np.abs(grid))), 1e-9)
    limits = {"cmap": "PuOr", "vmin": -reach, "vmax": reach} if gain else {}
    image = ax.imshow(grid, aspect="auto", origin="lower", **limits)
    for (i, j), text in texts.items():
        ax.text(j, i, text, ha="center", va="center", color=_readable(image, grid[i, j]))
    ax.grid(False)
    ax.set_xticks(range(len(shown)), [f"{q:g}" for q in shown])
    ax.set_yticks(range(len(bounds)), [f"{c:g}" for c in bounds])
    ax.set(xlabel="SAM radius $q$", ylabel="clip norm $C$")
    words = "points gained over $q = 0$" if gain else "accuracy in %"
    ax.figure.colorbar(image, ax=ax, label=words)
    best, worst = (np.unravel_index(pick(grid), grid.shape) for pick in (np.nanargmax, np.nanargmin))
    told = "Gain over q = 0 in points" if gain else "Accuracy in %"
    ends = [f"{texts[at]} at C = {bounds[at[0]]:g}, q = {shown[at[1]]:g}" for at in (best, worst)]
    return f"{told}, mean over {len(next(iter(cells.values())))} seeds: highest {ends[0]}, lowest {ends[1]}."


def _readable(image: Any, value: float) -> str:
    """Black or white, whichever stands out from the colour of ``value``."""
    red, green, blue, _ = image.cmap(image.norm(value))
    return "black" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"


def draw_ablation(ax: Axes, table: Table, setting: str, **fixed: Any) -> str:
    """Accuracy of every method against a varied setting: mean over seeds with Student's 95 % interval.

    ``fixed``: values of further settings that the table varies.
    """
    parts, places = [], set()
    for i, method in enumerate(dict.fromkeys(cell["method"] for cell in table["cells"])):
        cells = at_settings(table, (setting,), method, fixed)
        rows = sorted((key[0], interval_of(values)) for key, values in cells.items())
        rows = [(x, found) for x, found in rows if found is not None]
        if rows:
            y = [100 * f.mean for _, f in rows]
            half = [0.0 if f.low is None else 100 * (f.mean - f.low) for _, f in rows]
            ax.errorbar([x for x, _ in rows], y, yerr=half, label=method, capsize=2.5, **series(i))
            best = max(rows, key=lambda row: row[1].mean)
            parts.append(f"{method} best at {best[0]:g} with {100 * best[1].mean:.1f}, {y[-1]:.1f} at {rows[-1][0]:g}")
        places |= {x for x, _ in rows}
    if min(places) > 0 and max(places) / min(places) >= 8:
        ax.set_xscale("log")
        ax.xaxis.set_minor_locator(NullLocator())
    elif min(places) == 0 and len(places) > 2:  # evenly spaced would crowd the small ones
        ax.set_xscale("symlog", linthresh=sorted(places)[1])
        ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xticks(sorted(places))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.set_xlabel(NAMES.get(setting, setting))
    ax.set_ylabel(f"{table['metric']} in %")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return f"Mean {table['metric']} in % over {table['seeds']} seeds against {setting}: {'; '.join(parts)}."


NAMES = {"sam_radius": "SAM radius $q$", "body_epochs": r"local epochs of the body $\tau_\phi$",
         "clip_norm": "clip norm $C$", "epsilon": r"budget $\varepsilon$"}  # fmt: skip


# --- as text

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
    cells = by_budget(*tables)
    columns, data = budgets_of(cells), [name.split() for name, _ in PRINTED_COLUMNS]
    rows = [
        ["", "here", *[""] * (len(columns) - 1), "|", *(words[0] for words in data)],
        ["clients, classes", *[""] * len(columns), "|", *(words[-1] if words[1:] else "" for words in data)],
        ["epsilon", *("no noise" if e is None else f"{e:g}" for e in columns), "|",
         *(f"{e:g}" for _, e in PRINTED_COLUMNS)],
    ]  # fmt: skip
    for method in dict.fromkeys(m for m, _ in cells):
        theirs = [f"{mean:.1f} ± {deviation:.1f}" for mean, deviation in PRINTED.get(method, ())]
        rows.append([method, *(_shown(cells.get((method, e))) for e in columns), "|", *theirs])
    widths = (16, *[11] * len(columns), 2, 11)
    return "\n".join([text_table(rows, widths), _scale(tables[0]), PAPER_SCALE])


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


def paired_table(*tables: Table) -> str:
    """DP2-FedSAM less every other method, in points, over the same seeds, with Student's 95 % interval.

    A method without noise is compared with every budget.
    """
    cells, method = by_budget(*tables), "dp2-fedsam"
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

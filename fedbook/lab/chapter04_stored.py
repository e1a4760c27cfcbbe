"""Chapter 4's stored comparisons (``fedbook compare``), read and drawn. As text they are in chapter04_tables.

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
from fedbook.lab.style import series
from fedbook.papers.dp2_fedsam import METHODS

Table = Mapping[str, Any]

# --- cells


def scores(cell: Mapping[str, Any], metric: str = "accuracy") -> list[float]:
    """The metric of one cell for each seed; NaN where a run diverged."""
    found = [run["metrics"].get(metric) for run in cell["runs"]]
    return [math.nan if value is None else float(value) for value in found]


def by_budget(*tables: Table) -> dict[tuple[str, float | None], list[float]]:
    """(method, epsilon) -> the metric of each seed; epsilon is None for a method that adds no noise."""
    found: dict[tuple[str, float | None], list[float]] = {}
    for table in tables:
        for cell in table["cells"]:
            key = cell["method"], _budget(cell, table["settings"])
            found[key] = scores(cell, table["metric"])
    order = list(METHODS)
    return dict(sorted(found.items(), key=lambda pair: (order.index(pair[0][0]), pair[0][1] or math.inf)))


def _budget(cell: Mapping[str, Any], settings: Mapping[str, Any]) -> float | None:
    """The budget that was set, else what the given noise costs; None without noise."""
    used = {**settings, **cell["varied"]}
    if not METHODS[cell["method"]].private or not (used["epsilon"] or used["noise_multiplier"]):
        return None
    return float(used["epsilon"] or f"{cell['runs'][0]['epsilon']:.3g}")


def _scale_of(table: Table) -> dict[str, Any]:
    names = ("model", "clients", "partition", "classes_per_client", "rounds", "client_rate")
    return {"problem": table["problem"]} | {name: table["settings"][name] for name in names}


def at_settings(
    table: Table, names: tuple[str, ...], method: str, fixed: Mapping[str, Any]
) -> dict[tuple[float, ...], list[float]]:
    """Values of the settings ``names`` -> the metric of each seed, for one method and the ``fixed`` settings."""
    found = {}
    for cell in table["cells"]:
        varied = cell["varied"]
        if cell["method"] == method and all(varied.get(name) == value for name, value in fixed.items()):
            found[tuple(varied[name] for name in names)] = scores(cell, table["metric"])
    return found


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


def draw_heat(ax: Axes, table: Table, *, gain: bool = False, method: str = "dp2-fedsam", **fixed: Any) -> str:
    """Accuracy in % over clip norm C and SAM radius q; with ``gain``, the paired gain over q = 0 ± standard error.

    ``fixed``: values of further settings that the table varies (epsilon=2.0).
    """
    cells = at_settings(table, ("clip_norm", "sam_radius"), method, fixed)
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
    for i, method in enumerate(dict.fromkeys(cell["method"] for cell in (table,)[0]["cells"])):
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

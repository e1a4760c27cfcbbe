"""Chapter 5's stored comparisons (``fedbook compare cvfl``), read and drawn. As text they are in chapter05_tables.

A table is what :func:`fedbook.experiment.compare` returns, with ``compressor`` and ``bits`` among what it varies;
``fixed`` gives other settings that vary a value: ``parties=12``. "none" comes once whatever its bits. 1 MB = 2^20 B.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from fedbook.lab.panels import panels, plain_log
from fedbook.lab.results import curve
from fedbook.lab.style import band, series
from fedbook.papers.cvfl import COMPRESSORS, EXACT
from fedbook.papers.cvfl.accounts import MB

Table = Mapping[str, Any]
Cell = Mapping[str, Any]
Key = tuple[str, int]  # compressor and bits; ("none", 32)

WORDS = {"none": "none", "scalar": "scalar", "hex": "hexagonal", "topk": "top-k", "randomk": "random-k"}
LETTERS = {"parties": "$M$", "local_steps": "$Q$"}
METRICS = {"accuracy": "accuracy", "f1": "$F_1$", "loss": "loss"}

CONTROLS = {
    "compress_server": {True: "server model compressed", False: "server model exact"},
    "dither": {True: "dither", False: "no dither"},
    "rule": {"gradient": "ranked by gradient", "magnitude": "ranked by magnitude"},
    "grid": {"endpoints": "levels at the ends", "bins": "levels in bins"},
    "codebook": {"finite": "finite codebook", "infinite": "infinite codebook"},
    "bits_schedule": {"constant": "constant bits", "growing": "growing bits"},
}

# --- cells


def setting(table: Table, cell: Cell, name: str) -> Any:
    """The value of a setting in a cell."""
    known = {**table["settings"], **cell["tuned"], **cell["varied"], "method": cell["method"]}
    return known[name]


def cells_of(table: Table, **fixed: Any) -> dict[Key, Cell]:
    """The chosen cells by compressor and bits, none first, then by bits."""
    found: dict[Key, Cell] = {}
    for cell in chosen(table, **fixed):
        name, bits = (setting(table, cell, word) for word in ("compressor", "bits"))
        key = ("none", EXACT) if "none" in (name, cell["method"]) or bits == EXACT else (name, bits)
        found.setdefault(key, cell)
    return dict(sorted(found.items(), key=lambda item: (item[0][0] != "none", item[0][1], _place(item[0][0]))))


def chosen(table: Table, **fixed: Any) -> list[Cell]:
    """The cells whose settings (or ``method``) have the values of ``fixed``."""
    found = [c for c in table["cells"] if all(setting(table, c, name) == value for name, value in fixed.items())]
    return found


def _place(name: str) -> int:
    return COMPRESSORS.index(name)


def curve_of(table: Table, cell: Cell, metric: str | None = None) -> tuple[Tensor, Tensor]:
    """Rounds [E] and the metric (default: the table's) [S, E] of one cell."""
    metric = metric or table["metric"]
    t, values = curve(cell, metric)
    return t, values


def _metric(table: Table, metric: str | None) -> str:
    word = metric or table["metric"]
    return METRICS.get(word, word)


def words_of(key: Key) -> str:
    """ "hexagonal, 2 bits"; "none"."""
    return "none" if key[0] == "none" else f"{WORDS[key[0]]}, {key[1]} bits"


# --- numbers of a cell


class Best(NamedTuple):
    """The best of the mean curve over seeds, the deviation over seeds (n - 1) there, the round; None for one seed."""

    mean: float
    deviation: float | None
    round: int


def best_of_mean(table: Table, cell: Cell, metric: str | None = None) -> Best:
    """The maximum over evaluations of the curve averaged over seeds, as the paper has it. Diverged seeds are left out.
    """
    t, values = curve_of(table, cell, metric)
    values = values[values.isfinite().all(1)]
    at = int(values.mean(0).argmax())
    return Best(float(values[:, at].mean()), float(values[:, at].std()) if len(values) > 1 else None, int(t[at]))


def best_of_each(table: Table, cell: Cell, metric: str | None = None) -> Tensor:
    """The maximum of each seed's own curve, [S]: never below that of the mean curve in the mean."""
    return curve_of(table, cell, metric)[1].nan_to_num(-math.inf).amax(1)


def megabytes_to(table: Table, cell: Cell, target: float, metric: str | None = None) -> list[float | None]:
    """For each seed the MB, up and down, when its best value so far crosses ``target``; None if it never does.

    Interpolated between two evaluations.
    """
    _, values = curve_of(table, cell, metric)
    moved = torch.tensor(cell["curve"]["bytes"], dtype=torch.float64) / MB
    found: list[float | None] = []
    for best, bytes_ in zip(values.nan_to_num(-math.inf).cummax(1).values.tolist(), moved.tolist(), strict=True):
        at = next((i for i, v in enumerate(best) if v >= target), None)
        if at is None or at == 0:
            found.append(None if at is None else bytes_[0])
        else:
            share = (target - best[at - 1]) / (best[at] - best[at - 1]) if math.isfinite(best[at - 1]) else 1.0
            found.append(bytes_[at - 1] + share * (bytes_[at] - bytes_[at - 1]))
    return found


def saving(base: Sequence[float | None], other: Sequence[float | None]) -> Tensor:
    """How many times fewer bytes: base / other for every seed that reached the target in both, [n]."""
    pairs = [(a, b) for a, b in zip(base, other, strict=True) if a is not None and b is not None]
    return torch.tensor([a / b for a, b in pairs], dtype=torch.float64)


# --- figures


def draw_compressors(axes: Any, table: Table, bits: int, metric: str | None = None, **fixed: Any) -> str:
    """The metric against rounds and against megabytes for every compressor at ``bits`` bits (the paper's Figure 3).

    Mean over seeds, band of one standard deviation. Shapes: ``axes`` two of them.
    """
    cells = {
        WORDS[key[0]]: (_place(key[0]), cell)
        for key, cell in cells_of(table, **fixed).items() if key[1] in (bits, EXACT)
    }  # fmt: skip
    return _two_curves(axes, table, cells, metric, fixed) + f" b = {bits}."


def draw_bits(axes: Any, table: Table, compressor: str, metric: str | None = None, **fixed: Any) -> str:
    """The metric against rounds and megabytes for one compressor over its bits and for none (the paper's Figure 4).

    Shapes: ``axes`` two of them.
    """
    cells = {
        f"b = {key[1]}": (0 if key[0] == "none" else key[1], cell)
        for key, cell in cells_of(table, **fixed).items() if key[0] in (compressor, "none")
    }  # fmt: skip
    return _two_curves(axes, table, cells, metric, fixed) + f" Compressor: {WORDS[compressor]}; b = {EXACT} is none."


def _two_curves(
    axes: Any, table: Table, cells: Mapping[str, tuple[int, Cell]], metric: str | None, fixed: Mapping[str, Any]
) -> str:
    left, right = panels(axes, 2)
    metric, parts, least = metric or table["metric"], [], []
    for label, (i, cell) in cells.items():
        t, values = curve_of(table, cell, metric)
        moved = torch.tensor(cell["curve"]["bytes"], dtype=torch.float64).mean(0) / MB
        whole = values[values.isfinite().all(1)]
        if not len(whole):
            parts.append(f"{label} diverged")
            continue
        mean, half = whole.mean(0), whole.std(0) if len(whole) > 1 else torch.zeros(len(t))
        least.append(float((mean - half).quantile(0.15)))  # where the start of a curve is cut
        for ax, x in ((left, t), (right, moved)):
            band(ax, x, mean, mean - half, mean + half, i, label)
        best = best_of_mean(table, cell, metric)
        spread = "" if best.deviation is None else f" ± {best.deviation:.3f}"
        parts.append(f"{label} {best.mean:.3f}{spread} in {float(moved[-1]):.3g} MB")
    top = max(float(line.get_ydata().max()) for line in left.lines)
    for ax in (left, right):
        ax.set_ylim(min(least) - 0.3 * (top - min(least)), top + 0.1 * (top - min(least)))
    left.set(xlabel="round", ylabel=_metric(table, metric))
    right.set_xlabel("MB, up and down")
    left.set_title(", ".join(f"{LETTERS.get(name, name)} = {value}" for name, value in fixed.items()))
    plain_log(right.xaxis)
    right.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    seeds = len(values)
    return f"Best {metric} of the mean over {seeds} seeds (± standard deviation there): {'; '.join(parts)}."


def draw_megabytes(ax: Axes, table: Table, target: float, metric: str | None = None, **fixed: Any) -> str:
    """Megabytes to the target, a dot a seed and the mean as a bar, for every compressor and its bits.

    Seeds that never reach the target are told.
    """
    cells, parts, never = cells_of(table, **fixed), [], []
    for place, (key, cell) in enumerate(cells.items()):
        found = megabytes_to(table, cell, target, metric)
        reached = [v for v in found if v is not None]
        lost = f"{len(found) - len(reached)} of {len(found)} never" if len(reached) < len(found) else ""
        ax.annotate(lost, (1.01, place), xycoords=("axes fraction", "data"), va="center", fontsize="small")
        if not reached:
            never.append(words_of(key))
            continue
        look, mean = series(_place(key[0])), sum(reached) / len(reached)
        ax.plot(reached, [place] * len(reached), linestyle="", marker=look["marker"], color=look["color"], alpha=0.7)
        ax.plot([mean, mean], [place - 0.35, place + 0.35], color="black", marker="", linestyle="-", linewidth=2)
        parts.append(f"{words_of(key)} {mean:.3g}" + (f" ({lost})" if lost else ""))
    plain_log(ax.xaxis)
    ax.set_yticks(range(len(cells)), [words_of(key) for key in cells])
    ax.set_ylim(len(cells) - 0.5, -0.5)
    ax.set_xlabel(f"MB, up and down, to {METRICS.get(metric or table['metric'], metric)} {target:g}")
    return f"Mean MB to {metric or table['metric']} {target:g}: {'; '.join(parts)}." + (
        f" Never: {', '.join(never)}." if never else ""
    )


def draw_controls(ax: Axes, table: Table, metric: str | None = None) -> str:
    """The best value of every cell, a dot a seed and the best of the mean curve as a bar; labels say what varies."""
    cells, parts = chosen(table), []
    for place, (cell, label) in enumerate(zip(cells, control_words(table, cells), strict=True)):
        best, each = best_of_mean(table, cell, metric), best_of_each(table, cell, metric)
        ax.plot(each, [place] * len(each), alpha=0.7, **(series(0) | {"linestyle": ""}))
        ax.plot([best.mean] * 2, [place - 0.35, place + 0.35], color="black", marker="", linestyle="-", linewidth=2)
        ax.annotate(f"{best.mean:.3f}", (1.01, place), xycoords=("axes fraction", "data"), va="center",
                    fontsize="small")  # fmt: skip
        parts.append((place, label, f"{label} {best.mean:.3f}"))
    ax.set_yticks([p for p, _, _ in parts], [label for _, label, _ in parts])
    ax.set_ylim(len(parts) - 0.5, -0.5)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set_xlabel(f"best {METRICS.get(metric or table['metric'], metric)} (dot: one seed, bar: mean curve)")
    return f"Best {metric or table['metric']} of the mean curve: {'; '.join(told for _, _, told in parts)}."


def control_words(table: Table, cells: Sequence[Cell]) -> list[str]:
    """What sets each cell apart: its compressor, and the settings and the method that most cells do not have."""
    names = [n for n in cells[0]["varied"] if len({str(setting(table, cell, n)) for cell in cells}) > 1]
    usual = {n: Counter(str(setting(table, cell, n)) for cell in cells).most_common(1)[0][0] for n in names}
    method, _ = Counter(cell["method"] for cell in cells).most_common(1)[0]
    found = []
    for cell in cells:
        words = [] if cell["method"] == method else [cell["method"]]
        for name in names:
            value = setting(table, cell, name)
            if name == "compressor" or str(value) != usual[name]:
                known = {**CONTROLS, "compressor": WORDS}.get(name, {})
                words.append(known.get(value, f"{name.replace('_', ' ')} = {value}"))
        found.append(", ".join(words) or cell["method"])
    return found

"""Stored comparisons as text that chapters share: values, differences, what was tuned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from fedbook import arguments
from fedbook.intervals import Interval
from fedbook.lab.stored_cells import Cell, Table, Words, chosen, scores_of, signed


def cell_text(words: Words, cell: Cell, metric: str) -> str:
    """Mean ± deviation of a metric; "-": the method has no such number."""
    if not any(metric in run["metrics"] for run in cell["runs"]):
        return "-"
    values = scores_of(cell, metric)
    if not bool(values.isfinite().any()):
        return "diverged" if metric in words.shares else "-"
    return _spread(words.shown(values, metric), words.digits(metric))


def differences_text(words: Words, found: Mapping[str, Mapping[str, Interval]], corner: str) -> str:
    """Differences by metric and row as text; "*" where 0 is not in the interval."""
    rows = [[corner, *found]]
    for label in dict.fromkeys(name for one in found.values() for name in one):
        cells = [found[metric].get(label) for metric in found]
        rows.append([words.names.get(label, label), *("-" if v is None else signed(v) + _star(v) for v in cells)])
    return "\n".join([columns(rows), "mean over the same seeds [95 % interval]; *: 0 is outside; points of accuracy"])


def tuning_text(words: Words, tables: Sequence[Table], fixed: Mapping[str, Any]) -> str:
    """What each cell chose from its grid, the mean metric of every trial, and choices at the edge, as text.

    Controls are left out: nothing in them depends on what is tuned. Raises: TypeError, ValueError (nothing was tuned).
    """
    rows = [["method", "varied", "chosen", "at the edge", "trials"]]
    for _, cell in chosen(tables, **fixed):
        if cell["tried"] and cell["method"] not in words.controls:
            trials = (
                ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in one["settings"].values())
                + (": diverged" if one["mean"] is None else f": {one['mean']:.3f}")
                for one in cell["tried"]
            )
            varied = ", ".join(f"{k} = {v}" for k, v in cell["varied"].items())
            picked = ", ".join(f"{k} = {v}" for k, v in cell["tuned"].items())
            name = words.names[cell["method"]]
            rows.append([name, varied, picked, ", ".join(edges(cell)) or "-", "; ".join(trials)])
    if len(rows) == 1:
        raise arguments.wrong(ValueError, "table", tables[0]["problem"], "a comparison with a tuned setting")
    return columns(rows, left=5)


def edges(cell: Cell) -> list[str]:
    """The tuned settings of a cell whose value is the least or the largest number of several tried."""
    found = []
    for name, value in cell["tuned"].items():
        tried = {one["settings"][name] for one in cell["tried"]}
        if len(tried) > 1 and not isinstance(value, (str, bool)) and value in (min(tried), max(tried)):
            found.append(f"{name}: {'least' if value == min(tried) else 'largest'}")
    return found


def columns(rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Rows as text, the first ``left`` columns flush left."""
    rows = list(rows)
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(f"{v:<{w}}" if i < left else f"{v:>{w}}" for i, (v, w) in enumerate(zip(row, wide, strict=True)))
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)


def _spread(values: Tensor, digits: str) -> str:
    """Mean ± deviation of the values that there are, and how many diverged."""
    whole = values[values.isfinite()]
    lost = f" ({len(values) - len(whole)} diverged)" if len(whole) < len(values) else ""
    deviation = f" ± {float(whole.std()):{digits}}" if len(whole) > 1 else ""
    return f"{float(whole.mean()):{digits}}{deviation}{lost}"


def _star(one: Interval) -> str:
    return " " if one.low is None or 0 in one else "*"

"""Chapter 1's stored comparisons as text: all methods, differences, noise levels, what was tuned.

A table is what :func:`fedbook.experiment.compare` returns, as in chapter01_stored. The paper's numbers stand beside
ours in chapter01_paper, which takes what ``chapter01_stored.means`` returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from fedbook import arguments
from fedbook.lab.chapter01_stored import (
    ALONE,
    BASE,
    SHARES,
    WORDS,
    Cell,
    Table,
    bytes_up,
    cells_of,
    chosen,
    differences,
    digits,
    noised,
    scores,
    shown,
    signed,
    without_noise,
)
from fedbook.learning.intervals import Interval


def methods_table(*tables: Table, **fixed: Any) -> str:
    """Every method as text: mean ± deviation over seeds of the metrics, bytes up a round and client.

    Accuracies in per cent; -: the method has no such number. Raises: TypeError, ValueError.
    """
    metrics = ("knn", "probe", "probe_few", "loss", "rank")
    rows = [["mean ± deviation", *metrics, "bytes up"]]
    cells, owners = cells_of(*tables, **fixed), {id(c): t for t, c in chosen(tables, **fixed)}
    for method, cell in cells.items():
        values = [_cell(cell, metric) for metric in metrics]
        rows.append([WORDS[method], *values, "-" if method in ALONE else f"{bytes_up(owners[id(cell)], cell):,.0f}"])
    table, seeds = tables[0], len(next(iter(cells.values()))["runs"])
    settings = table["settings"] | fixed
    return "\n".join([
        _columns(rows),
        f"{table['problem']}: {settings['clients']} clients, {settings['cohort'] or 'all'} in a round, "
        f"{settings['rounds']} rounds, {seeds} seeds; knn, probe in %, probe_few: 5 labels a class; "
        f"bytes up: of a client in a round",
    ])  # fmt: skip


def _cell(cell: Cell, metric: str) -> str:
    if not any(metric in run["metrics"] for run in cell["runs"]):
        return "-"
    values = scores(cell, metric)
    if not bool(values.isfinite().any()):
        return "diverged" if metric in SHARES else "-"
    return _spread(shown(values, metric), metric)


def differences_table(*tables: Table, metrics: Sequence[str] = ("knn", "probe"), base: str = BASE, **fixed: Any) -> str:
    """:func:`differences` as text; "*" where 0 is not in the interval. Raises: TypeError, ValueError."""
    found = {metric: differences(*tables, metric=metric, base=base, **fixed) for metric in metrics}
    rows = [[f"minus {WORDS[base]}", *metrics]]
    for method in dict.fromkeys(m for one in found.values() for m in one):
        cells = [found[metric].get(method) for metric in metrics]
        rows.append([WORDS[method], *("-" if v is None else signed(v) + _star(v) for v in cells)])
    return "\n".join([_columns(rows), "mean over the same seeds [95 % interval]; *: 0 is outside; points of accuracy"])


def privacy_table(*tables: Table, metrics: Sequence[str] = ("knn", "probe"), base: str = BASE, **fixed: Any) -> str:
    """Noise levels as text: epsilon of the matrices, what is reported of the whole run, metrics. Raises: as above."""
    rows = [["", "epsilon of matrices", "of the run", *metrics]]
    for epsilon, (_, cell) in noised(*tables, **fixed).items():
        whole = {run["epsilon"] for run in cell["runs"]}
        words = "none" if whole == {None} else ", ".join("none" if v is None else f"{v:.3g}" for v in whole)
        rows.append(["FedSC with noise", f"{epsilon:g}", words, *(_cell(cell, m) for m in metrics)])
    for words, cell in without_noise(tables, base, fixed).items():
        rows.append([words, "-" if words == WORDS[base] else "none", "none", *(_cell(cell, m) for m in metrics)])
    return _columns(rows)


# --- tuning


def tuning_table(*tables: Table, **fixed: Any) -> str:
    """What each cell chose from its grid, the mean metric of every trial, and choices at the edge, as text.

    Raises: TypeError, ValueError (nothing was tuned).
    """
    rows = [["method", "varied", "chosen", "at the edge", "trials"]]
    for _, cell in chosen(tables, **fixed):
        if cell["tried"]:
            trials = (
                ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in one["settings"].values())
                + (": diverged" if one["mean"] is None else f": {one['mean']:.3f}")
                for one in cell["tried"]
            )
            varied = ", ".join(f"{k} = {v}" for k, v in cell["varied"].items())
            picked = ", ".join(f"{k} = {v}" for k, v in cell["tuned"].items())
            rows.append([WORDS[cell["method"]], varied, picked, ", ".join(edges(cell)) or "-", "; ".join(trials)])
    if len(rows) == 1:
        raise arguments.wrong(ValueError, "table", tables[0]["problem"], "a comparison with a tuned setting")
    return _columns(rows, left=5)


def edges(cell: Cell) -> list[str]:
    """The tuned settings of a cell whose value is the least or the largest number of several tried."""
    found = []
    for name, value in cell["tuned"].items():
        tried = {one["settings"][name] for one in cell["tried"]}
        if len(tried) > 1 and not isinstance(value, (str, bool)) and value in (min(tried), max(tried)):
            found.append(f"{name}: {'least' if value == min(tried) else 'largest'}")
    return found


# --- words


def _spread(values: Tensor, metric: str) -> str:
    """Mean ± deviation of the values that there are, and how many diverged."""
    whole = values[values.isfinite()]
    lost = f" ({len(values) - len(whole)} diverged)" if len(whole) < len(values) else ""
    deviation = f" ± {float(whole.std()):{digits(metric)}}" if len(whole) > 1 else ""
    return f"{float(whole.mean()):{digits(metric)}}{deviation}{lost}"


def _star(one: Interval) -> str:
    return " " if one.low is None or 0 in one else "*"


def _columns(rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Rows as text, the first ``left`` columns flush left."""
    rows = list(rows)
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(f"{v:<{w}}" if i < left else f"{v:>{w}}" for i, (v, w) in enumerate(zip(row, wide, strict=True)))
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)

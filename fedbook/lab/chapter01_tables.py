"""Chapter 1's stored comparisons as text: all methods, differences, noise levels, what was tuned.

A table is what :func:`fedbook.experiment.compare` returns, as in chapter01_stored. The paper's numbers stand beside
ours in chapter01_paper, which takes what ``chapter01_stored.means`` returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedbook.lab.chapter01_stored import (
    ALONE,
    BASE,
    OURS,
    WORDS,
    Table,
    bytes_up,
    cells_of,
    chosen,
    differences,
    noised,
    without_noise,
)
from fedbook.lab.stored_tables import cell_text, columns, differences_text, tuning_text
from fedbook.lab.stored_tables import edges as edges


def methods_table(*tables: Table, **fixed: Any) -> str:
    """Every method as text: mean ± deviation over seeds of the metrics, bytes up a round and client.

    Accuracies in per cent; -: the method has no such number.
    """
    metrics = ("knn", "probe", "probe_few", "loss", "rank")
    rows = [["mean ± deviation", *metrics, "bytes up"]]
    cells, owners = cells_of(*tables, **fixed), {id(c): t for t, c in chosen(tables, **fixed)}
    for method, cell in cells.items():
        values = [cell_text(OURS, cell, metric) for metric in metrics]
        rows.append([WORDS[method], *values, "-" if method in ALONE else f"{bytes_up(owners[id(cell)], cell):,.0f}"])
    table, seeds = tables[0], len(next(iter(cells.values()))["runs"])
    settings = table["settings"] | fixed
    return "\n".join([
        columns(rows),
        f"{table['problem']}: {settings['clients']} clients, {settings['cohort'] or 'all'} in a round, "
        f"{settings['rounds']} rounds, {seeds} seeds; knn, probe in %, probe_few: 5 labels a class; "
        f"bytes up: of a client in a round",
    ])  # fmt: skip


def differences_table(*tables: Table, metrics: Sequence[str] = ("knn", "probe"), base: str = BASE, **fixed: Any) -> str:
    """:func:`differences` as text; "*" where 0 is not in the interval."""
    found = {metric: differences(*tables, metric=metric, base=base, **fixed) for metric in metrics}
    return differences_text(OURS, found, f"minus {WORDS[base]}")


def privacy_table(*tables: Table, metrics: Sequence[str] = ("knn", "probe"), base: str = BASE, **fixed: Any) -> str:
    """Noise levels as text: epsilon of the matrices, what is reported of the whole run, metrics."""
    rows = [["", "epsilon of matrices", "of the run", *metrics]]
    for epsilon, (_, cell) in noised(*tables, **fixed).items():
        whole = {run["epsilon"] for run in cell["runs"]}
        words = "none" if whole == {None} else ", ".join("none" if v is None else f"{v:.3g}" for v in whole)
        rows.append(["FedSC with noise", f"{epsilon:g}", words, *(cell_text(OURS, cell, m) for m in metrics)])
    for words, cell in without_noise(tables, base, fixed).items():
        rows.append(
            [words, "-" if words == WORDS[base] else "none", "none", *(cell_text(OURS, cell, m) for m in metrics)]
        )
    return columns(rows)


def tuning_table(*tables: Table, **fixed: Any) -> str:
    """What each cell chose from its grid, the mean metric of every trial, and choices at the edge, as text."""
    return tuning_text(OURS, tables, fixed)

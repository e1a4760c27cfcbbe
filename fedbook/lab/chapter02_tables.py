"""Chapter 2's stored comparisons as text: all methods, variants, what was tuned, the paper's Tables 1 to 4 beside ours.

A table is what :func:`fedbook.experiment.compare` returns, as in chapter02_stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from fedbook.lab.chapter02_pairs import OWN, mixtures, variants
from fedbook.lab.chapter02_paper import NAMES, Value, architecture_table, beside_table, scale_table
from fedbook.lab.chapter02_stored import (
    ALONE,
    BASE,
    CONTROLS,
    METRICS,
    NAMED,
    OURS,
    POOLED,
    Table,
    by_setting,
    bytes_up,
    cells_of,
    means,
    untrained,
)
from fedbook.lab.stored_cells import chosen
from fedbook.lab.stored_tables import cell_text, columns, differences_text, tuning_text


def methods_table(*tables: Table, **fixed: Any) -> str:
    """Every method as text: mean ± deviation over seeds, the step size that was tuned, what is sent.

    Accuracies in per cent; -: the method has no such number.
    """
    metrics = ("probe_few", "knn", "probe", "own_classes", "alignment_test", "self_loss", "rank")
    rows = [["mean ± deviation", *metrics, "untrained", "lr", "bytes up", "MB in all"]]
    cells, owners = cells_of(*tables, **fixed), {id(c): t for t, c in chosen(tables, **fixed)}
    for method, cell in cells.items():
        sent = 0.0 if method in ALONE else bytes_up(owners[id(cell)], cell)
        whole = sum(run["bytes_up"] + run["bytes_down"] for run in cell["runs"]) / len(cell["runs"])
        if method == POOLED:
            whole = 0.0
        rate = None if method in CONTROLS else cell["tuned"].get("lr")
        rows.append([
            NAMED[method],
            *(cell_text(OURS, cell, m) if method in OURS.only.get(m, cells) else "-" for m in metrics),
            cell_text(OURS, cell, "random_probe_few"), "-" if rate is None else f"{rate:g}",
            f"{sent:,.0f}" if sent else "-", f"{whole / 1e6:,.2f}" if whole else "-",
        ])  # fmt: skip
    table, seeds = tables[0], len(next(iter(cells.values()))["runs"])
    settings = table["settings"] | fixed
    return "\n".join([
        columns(rows),
        f"{table['problem']}: {settings['clients']} clients, {settings['cohort'] or 'all'} in a round, "
        f"{settings['rounds']} rounds of {settings['local_epochs']} epochs, {seeds} seeds; accuracies in %; untrained: "
        "probe_few of the same encoders as drawn; bytes up: one client's upload; MB in all: both ways, with the set-up",
    ])  # fmt: skip


def differences_table(
    *tables: Table, metrics: Sequence[str] = ("probe_few", "knn"), base: str = BASE, **fixed: Any
) -> str:
    """Every method minus ``base`` as text; "*" where 0 is not in the interval."""
    found = {metric: OURS.differences(*tables, metric=metric, base=base, **fixed) for metric in metrics}
    return differences_text(OURS, found, f"minus {NAMED[base]}")


def variants_table(*tables: Table, metrics: Sequence[str] = ("probe_few", "alignment_test")) -> str:
    """Every variant minus Hetero-SSFL at its defaults as text; "*" as above."""
    found = {metric: _plain(variants(*tables, metric=metric)) for metric in metrics}
    return differences_text(OURS, found, "minus the default")


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("$", ""): one for name, one in found.items()}


def tuning_table(*tables: Table, **fixed: Any) -> str:
    """What each cell chose from its grid, the mean metric of every trial, and choices at the edge, as text."""
    return tuning_text(OURS, tables, fixed)


# --- the paper's tables beside ours

SHORT = {"local-ssl-plus-rad": "local SSL + set", "alignment-pass-only": "pass only"}


def disjoint_and_iid_table(disjoint: Table, iid: Table, data: str = "CIFAR-10", metric: str = "probe_few") -> str:
    """Tables 1 and 2 beside ours."""
    ours = []
    for table in (disjoint, iid):
        drawn = untrained(cells_of(table), metric)
        rows = {m: row for m, row in means(table, metric=metric).items() if m != "random-encoder"}
        ours.append(_named(rows) | {word: _moments(values) for word, values in drawn.items()})
    return _headed(beside_table(*ours, data), metric)


def clients_table(*tables: Table, metric: str = "probe_few", **fixed: Any) -> str:
    """Table 3 beside ours: by the number of clients."""
    ours: dict[str, dict[int, Value]] = {}
    below: dict[str, dict[int, Value]] = {}
    for method, cells in by_setting("clients", *tables, **fixed).items():
        for count, cell in cells.items():
            values = OURS.scores(cell, metric)
            if bool(values.isfinite().all()):
                ours.setdefault(method, {})[count] = _moments(values)
            for word, drawn in untrained({method: cell}, metric).items():
                below.setdefault(word, {})[count] = _moments(drawn)
    return _headed(scale_table(_named(ours) | below), metric)


def mixture_table(*tables: Table, architectures: str, metric: str = "probe_few", **fixed: Any) -> str:
    """Table 4 beside ours, for clients of ``architectures``."""
    found = mixtures(*tables, metric=metric, **fixed)
    whole = architectures
    own = {word: values for (mixture, word), values in found.items() if mixture == whole}
    alone, together = (
        {word: float(values[method].mean()) for word, values in own.items() if method in values}
        for method in ("local-ssl", OWN)
    )
    drawn = {word: float(values["untrained"].mean()) for word, values in own.items() if "untrained" in values}
    return _headed(architecture_table(alone, together, drawn), metric)


def _moments(values: Tensor) -> Value:
    """Mean and deviation over seeds."""
    return float(values.mean()), float(values.std()) if len(values) > 1 else 0.0


def _named(ours: dict[str, Any]) -> dict[str, Any]:
    """The paper's methods under the names of the command line, controls under short ones: the column is narrow."""
    return {method if method in NAMES else SHORT.get(method, NAMED[method]): row for method, row in ours.items()}


def _headed(text: str, metric: str) -> str:
    return f"{text}\nthe paper: its linear probe; ours: {METRICS.get(metric, metric)}; ± deviation over seeds"

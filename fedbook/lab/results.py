"""Stored results: comparisons that took longer than a chapter may, as cells, data frames, tables of text and figures.

A comparison is what :func:`fedbook.experiment.compare` returns; ``data/results`` holds those of the chapters.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch
from matplotlib.axes import Axes
from torch import Tensor

from fedbook import arguments
from fedbook.intervals import paired_difference
from fedbook.lab.style import series

Table = Mapping[str, Any]
Cell = Mapping[str, Any]

# --- comparisons and their cells


def stored(name: str) -> dict[str, Any]:
    """The comparison ``data/results/NAME.json``. Raises: TypeError, FileNotFoundError (says where it looked)."""
    from fedbook.data.root import folders

    if not isinstance(name, str) or not name.replace("_", "").isalnum():
        raise arguments.wrong(TypeError, "name", name, "a file name of letters, digits and _")
    places = [folder / "results" / f"{name}.json" for folder in folders(None)]
    for place in places:
        if place.is_file():
            return json.loads(place.read_text())
    raise FileNotFoundError(f"results {name!r}: looked for " + " and ".join(str(place) for place in places))


def setting(table: Table, cell: Cell, name: str) -> Any:
    """The value of a setting (or of "method") in a cell."""
    return _number(({"method": cell["method"]} | settings_of(table, cell))[name])


def settings_of(table: Table, cell: Cell) -> dict[str, Any]:
    """All settings of a cell: the table's, and what is the method's own, tuned or varied."""
    return table["settings"] | cell.get("settings", {}) | cell["tuned"] | cell["varied"]


def _has(table: Table, cell: Cell, name: str, value: Any) -> bool:
    try:
        return setting(table, cell, name) == value
    except KeyError:  # no such setting here
        return False


def _number(value: Any) -> Any:
    """Infinity where a setting is stored as "inf", which JSON has no number for."""
    return math.inf if value == "inf" else value


def cells(*tables: Table, **fixed: Any) -> list[tuple[Table, Cell]]:
    """All cells whose settings have the values of ``fixed``, with their tables. Raises: ValueError (there is none)."""
    chosen = [
        (table, cell) for table in tables for cell in table["cells"]
        if all(_has(table, cell, name, value) for name, value in fixed.items())
    ]  # fmt: skip
    if not chosen:
        raise arguments.wrong(ValueError, "fixed", fixed, "settings that have a cell in the comparison")
    return chosen


def scores(cell: Cell, metric: str) -> Tensor:
    """The metric after the last round for each seed, [S]; NaN where there is none (diverged, or no such number)."""
    values = [_metrics(run).get(metric) for run in cell["runs"]]
    return torch.tensor([math.nan if value is None else value for value in values], dtype=torch.float64)


def curve(cell: Cell, metric: str = "accuracy") -> tuple[Tensor, Tensor]:
    """The judged rounds [E] and the metric's values [S, E]; NaN where the cell has no such metric."""
    t = torch.tensor(cell["curve"]["round"])
    rows = cell["curve"].get(metric, [[None] * len(t)] * len(cell["runs"]))
    values = [[math.nan if v is None else v for v in row] for row in rows]
    return t, torch.tensor(values, dtype=torch.float64)


def reached(x: Sequence[float], values: Sequence[float], target: float) -> float | None:
    """Where the best of ``values`` so far crosses ``target``, straight between two points; None if never."""
    best = torch.tensor(values, dtype=torch.float64).nan_to_num(-torch.inf).cummax(0).values.tolist()
    at = next((i for i, v in enumerate(best) if v >= target), None)
    if at is None or at == 0 or not math.isfinite(best[at - 1]):
        return None if at is None else float(x[at])
    return float(x[at - 1] + (target - best[at - 1]) / (best[at] - best[at - 1]) * (x[at] - x[at - 1]))


def rounds_to_reach(cell: Cell, target: float, metric: str = "accuracy") -> list[float | None]:
    """For each seed the round at which the best value so far crosses ``target``, interpolated; None if never."""
    t, values = curve(cell, metric)
    return [reached(t.tolist(), row, target) for row in values.tolist()]


# --- data frames


def frame(*tables: Table, **fixed: Any) -> pd.DataFrame:
    """One row a cell and seed: paper, problem, method, the settings that vary, seed, what was tuned, what came out.

    Tuned settings are called ``tuned_lr``; metrics have their names (those by group ``metric.group``); what the run
    cost: rounds, seconds, bytes_up, bytes_down, epsilon_spent, delta_spent. Where a setting of the same name varies,
    what came out is ``NAME_measured``. Metrics of a run that diverged are NaN. ``fixed`` picks cells.
    Raises: ValueError (no such cell).
    """
    rows = []
    chosen = cells(*tables, **fixed)
    varied = list(dict.fromkeys(name for _, cell in chosen for name in cell["varied"]))
    tuned = list(dict.fromkeys(name for _, cell in chosen for name in cell["tuned"]))
    for table, cell in chosen:
        known = settings_of(table, cell)
        for run in cell["runs"]:
            out = {table["metric"]: math.nan} | _metrics(run)  # a run that was never judged has no metric
            out |= {name: run[name] for name in ("rounds", "seconds", "bytes_up", "bytes_down")}
            out |= {f"{name}_spent": run[name] for name in ("epsilon", "delta")}
            rows.append(
                {"paper": table["paper"], "problem": table["problem"], "method": cell["method"]}
                | {name: _number(known.get(name)) for name in varied}
                | {"seed": run["seed"]}
                | {f"tuned_{name}": _number(cell["tuned"].get(name)) for name in tuned}
                | {f"{name}_measured" if name in varied else name: value for name, value in out.items()}
            )
    return pd.DataFrame(rows)


def _metrics(run: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a run by flat name (``metric.group``): NaN if it diverged, whatever its last numbers were."""
    metrics = _flat(run["metrics"])
    return dict.fromkeys(metrics, math.nan) if run.get("ended") == "diverged" else metrics


def _flat(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics by group under ``metric.group``."""
    flat = {}
    for name, value in metrics.items():
        flat |= {f"{name}.{key}": v for key, v in value.items()} if isinstance(value, Mapping) else {name: value}
    return flat


def table(data: pd.DataFrame, metrics: Sequence[str], by: Sequence[str] = (), digits: int = 3) -> pd.DataFrame:
    """Mean ± standard deviation over seeds (n - 1) as text: a row each value of ``by``, a column each metric.

    ``by``: default the method and all settings that vary. ``.to_csv()`` and ``.to_latex()`` write what is shown.
    Raises: ValueError (a column that the frame does not have).
    """
    by = list(by) or list(data.columns[data.columns.get_loc("method") : data.columns.get_loc("seed")])
    for name in (*by, *metrics):
        if name not in data.columns:
            raise arguments.wrong(ValueError, "column", name, "one of " + ", ".join(data.columns))
    groups = data.groupby(by, sort=False, dropna=False)
    return groups[list(metrics)].agg(lambda values: spread_text(values.astype(float), f".{digits}f"))


def differences(data: pd.DataFrame, metric: str, base: str, by: str = "method") -> pd.DataFrame:
    """``metric`` minus that of ``base`` over the same seeds: mean, low, high (Student's 95 % interval), seeds.

    A row each value of ``by`` but ``base``, over the seeds that it shares with ``base``; of one seed low and high are
    NaN. Groups are left out of which such a run has no number (it diverged), or which share no seed.
    Raises: ValueError (``base`` is no value of ``by``, or a run of it has no number; two rows of one seed: the frame
    needs one cell a group).
    """
    if base not in set(data[by]):
        raise arguments.wrong(ValueError, "base", base, f"one of {', '.join(map(str, data[by].unique()))}")
    if data.duplicated([by, "seed"]).any():
        raise arguments.wrong(ValueError, "data", list(data.columns), f"a frame with one row for each {by} and seed")
    groups = {name: part.set_index("seed")[metric].astype(float) for name, part in data.groupby(by, sort=False)}
    against = groups.pop(base)
    if against.isna().any():
        raise arguments.wrong(
            ValueError, "base", base, f"one all of whose runs have a number for {metric}: none that diverged"
        )
    rows = {}
    for name, values in groups.items():
        values = values[values.index.isin(against.index)]
        if len(values) and values.notna().all():
            one = paired_difference(values.tolist(), against[values.index].tolist())
            low, high = (math.nan if end is None else end for end in (one.low, one.high))
            rows[name] = {"mean": one.mean, "low": low, "high": high, "seeds": one.count}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(by)


# --- text


def spread_text(values: Any, form: str) -> str:
    """Mean ± standard deviation of the values that there are, and how many runs have none (diverged, never judged)."""
    values = torch.as_tensor(list(values), dtype=torch.float64)
    whole = values[values.isfinite()]
    if not len(whole):
        return "no number"
    lost = f" ({len(values) - len(whole)} without)" if len(whole) < len(values) else ""
    deviation = f" ± {float(whole.std()):{form}}" if len(whole) > 1 else ""
    return f"{float(whole.mean()):{form}}{deviation}{lost}"


# --- figures


def draw_cost(ax: Axes, table: dict[str, Any]) -> str:
    """Milliseconds of a round against all clients K, one curve for each cohort size m."""
    rows, parts = table["rows"], []
    for i, cohort in enumerate(sorted({row["cohort"] for row in rows})):
        own = [row for row in rows if row["cohort"] == cohort]
        ax.loglog([row["clients"] for row in own], [row["ms"] for row in own], label=f"m = {cohort}", **series(i))
        parts.append(f"m = {cohort}: " + ", ".join(f"{row['ms']:.0f}" for row in own))
    ticks = [10, 20, 50, 100, 200]
    ax.set_yticks(ticks, [str(v) for v in ticks])
    ax.minorticks_off()
    ax.set_xlabel("all clients $K$")
    ax.set_ylabel("milliseconds a round")
    ax.legend(loc="center right")
    clients = sorted({row["clients"] for row in rows})
    return f"Milliseconds a round with {', '.join(f'{k:,}' for k in clients)} clients in all: {'; '.join(parts)}."

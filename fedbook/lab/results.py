"""Stored results: tables that took longer than a chapter may, made by ``fedbook compare``, drawn and read here."""

from __future__ import annotations

import json
from typing import Any

import torch
from matplotlib.axes import Axes

from fedbook import arguments
from fedbook.lab.style import REFERENCE, series


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


def curve(cell: dict[str, Any], metric: str = "accuracy") -> tuple[torch.Tensor, torch.Tensor]:
    """The rounds [E] and values [S, E] of one cell of a comparison."""
    values = [[float("nan") if v is None else v for v in row] for row in cell["curve"][metric]]
    return torch.tensor(cell["curve"]["round"]), torch.tensor(values, dtype=torch.float64)


def rounds_to_reach(cell: dict[str, Any], target: float, metric: str = "accuracy") -> list[float | None]:
    """For each seed the round at which the best value so far crosses ``target``, interpolated; None if never."""
    target = arguments.real("target", target)
    t, values = curve(cell, metric)
    found: list[float | None] = []
    for best in values.nan_to_num(-torch.inf).cummax(1).values.tolist():
        at = next((i for i, v in enumerate(best) if v >= target), None)
        if at is None or at == 0 or best[at] == best[at - 1]:
            found.append(None if at is None else float(t[at]))
        else:
            share = (target - best[at - 1]) / (best[at] - best[at - 1])
            found.append(float(t[at - 1] + share * (t[at] - t[at - 1])))
    return found


def draw_stored(ax: Axes, table: dict[str, Any], target: float | None = None) -> str:
    """The metric by round of every cell of a comparison: a thin line a seed, because a mean hides a collapse.

    ``target`` is drawn as a dotted line.
    """
    parts = []
    for i, cell in enumerate(table["cells"]):
        label = " ".join(f"{v}" for v in cell["varied"].values()) or cell["method"]
        t, values = curve(cell, table["metric"])
        look = series(i) | {"marker": "", "linewidth": 1.0}
        for s, row in enumerate(values):
            ax.plot(t, row, label=label if s == 0 else None, **look)
        parts.append(f"{label} " + ", ".join(f"{v:.3f}" for v in values[:, -1].tolist()))
    if target is not None:
        ax.axhline(target, color=REFERENCE, linewidth=0.8, linestyle=":")
    ax.set_ylim(0.0, 1.02)
    ax.set_xlabel("round")
    ax.set_ylabel(table["metric"])
    ax.legend(loc="lower right")
    batch = table["settings"].get("batch_size")
    ax.set_title("all local data in one batch" if batch == 0 else f"batches of {batch}")
    return f"Last {table['metric']} of each seed, {ax.get_title()}: {'; '.join(parts)}."


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

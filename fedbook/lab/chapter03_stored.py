"""Chapter 3's runs and stored comparisons (``fedbook compare prirfed``): curves, noise floors, and tables as text.

A table is what :func:`fedbook.experiment.compare` returns. ``fixed`` picks cells: ``agents=50``, ``scale="sum"``, a
tuple for several values; settings of the noise pick no method without noise, which therefore always comes along.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from fedbook.lab.chapter03_descent import noise_floor
from fedbook.lab.panels import plain_log
from fedbook.lab.results import Cell, Table, curve, scores, setting, spread_text, text_table
from fedbook.lab.style import band, series
from fedbook.papers.prirfed import METHODS
from fedbook.papers.prirfed.problem import ManifoldProblem

Curves = dict[str, tuple[Tensor, Tensor]]

METRICS = {
    "excess_risk": ("excess risk", r"excess risk $f(x)-f(x^*)$"),
    "cost": ("cost", "cost $f(x)$"),
    "grad_norm": ("gradient norm", r"gradient norm $\|\mathrm{grad}\,f(x)\|$"),
    "distance": ("distance to the best point", "distance to $x^*$"),
    "error": ("distance to the true place", "distance to the true place"),
}
SETTINGS = {"epsilon_call": "ε = {:g}", "agents": "N = {}", "records": "N_i = {:g}", "scale": "gradient of the {}"}
WORDS = {
    "sigma_rule": {"calibrated": "calibrated σ", "paper": "published σ"},
    "shared_basis": {True: "shared $V$", False: "own $V_i$"},
}
NOISE = ("epsilon_call", "delta_call", "sigma_rule", "noise_constant", "sigma")  # nothing to a method without noise
RECORDS = {"pca-mnist": 60_000, "pca-digits": 1_797, "frechet-wishart": 5_000, "frechet-ball": 400}  # unless set
RECORDS |= {f"frechet-{name}": 20_000 for name in ("patches", "cifar10", "pathmnist")}

# --- cells


def last_table(*tables: Table, metric: str | None = None, **fixed: Any) -> str:
    """Mean ± standard deviation over seeds at the last round, and what a call and a run cost a record, as text.

    Both epsilons are sound, that of a run at its delta and of the seed that spent most.
    """
    chosen: dict[str, tuple[Cell, dict[str, Any]]] = {}
    for cell in (cell for table in tables for cell in _cells(table, fixed)):
        chosen.setdefault(f"{cell['method']} {_varied(cell)}", (cell, _varied(cell)))  # without noise: once
    names = list(dict.fromkeys(name for _, varied in chosen.values() for name in varied))
    word = metric or tables[0]["metric"]
    rows = [["method", *names, word, "epsilon of a call", "of the run", "delta"]]
    for cell, varied in chosen.values():
        runs, none = cell["runs"], "no bound" if METHODS[cell["method"]].private else "-"
        whole = [run["epsilon"] for run in runs]
        spent = (runs[0]["metrics"].get("epsilon_call"), None if None in whole else max(whole))
        rows.append([
            cell["method"], *(_short(varied.get(name, "-")) for name in names),
            spread_text(scores(cell, word), ".3g", ".2g"), *(none if v is None else _short(v) for v in spent),
            "-" if runs[0]["delta"] is None else f"{runs[0]['delta']:g}",
        ])  # fmt: skip
    settings = tables[0]["settings"]
    head = (
        f"{tables[0]['problem']}, {settings['rounds']} rounds, {settings['agents_per_round'] or 'all'} agents a round; "
        f"mean ± standard deviation over {tables[0]['seeds']} seeds; sound epsilons, a call's at its own delta "
        f"{settings['delta_call']:g}"
    )
    return head + "\n" + text_table(rows, left=len(rows[0]))


def curves_of(table: Table, metric: str | None = None, **fixed: Any) -> Curves:
    """Label -> (rounds [E], values [S, E]) of every chosen cell; the label says method and settings where they differ.

    A method without noise comes once for all settings of the noise. The cost is computed from the excess risk where
    only that was kept.
    """
    cells, found, metric = _cells(table, fixed), {}, metric or table["metric"]
    alone = len({cell["method"] for cell in cells}) == 1
    for cell in cells:
        loose = [name for name in _varied(cell) if name not in fixed]
        words = [_words(name, cell["varied"][name]) for name in loose]
        label = ", ".join(words if alone and words else [cell["method"], *words])
        kept = "excess_risk" if metric == "cost" and metric not in cell["curve"] else metric
        t, values = curve(cell, kept)
        found.setdefault(label, (t, values if kept == metric else values + true_value(table)))
    return found


def true_value(table: Table) -> float:
    """f(x*), the smallest cost over all records: what the cost exceeds by the excess risk."""
    judged = (run["metrics"] for cell in table["cells"] for run in cell["runs"])
    one = next(m for m in judged if None not in (m.get("cost"), m.get("excess_risk")))
    return one["cost"] - one["excess_risk"]


def floor_of(table: Table, against: str, **fixed: Any) -> tuple[Tensor, Tensor]:
    """The excess risk's mean over the last quarter of the judged rounds, for every value of a setting that varies.

    ``against``: a varied setting, or "records": N_i. Shapes: x [n] in rising order, values [n, S].
    """
    found = {}
    for cell in _cells(table, fixed):
        x = float(_setting(table, cell, against))
        _, values = curve(cell, "excess_risk")
        found[x] = values[:, -max(1, round(values.shape[1] / 4)) :].mean(1)
    return torch.tensor(sorted(found), dtype=torch.float64), torch.stack([found[x] for x in sorted(found)])


def eigenvector_floor(problem: ManifoldProblem, lr: float, sigma: float, per_round: int) -> float:
    """Where noise and pull balance near the leading eigenvector: alpha (sigma^2 / s) / 2 sum_k 1 / (2 - alpha h_k).

    h_k = 2 (lambda_1 - lambda_k): the curvatures of the pooled risk at its minimum. For agents of equal size whose
    records are alike; every local step brings its noise, so K does not matter.
    """
    z = problem.samples["z"]
    values = torch.linalg.eigvalsh(z.mT @ z / len(z)).cpu()
    return noise_floor(lr, 2 * (values[-1] - values[:-1]), sigma**2 / per_round)


# --- figures


def draw_runs(ax: Axes, curves: Curves, metric: str = "excess_risk") -> str:
    """A metric by round: the mean over seeds, and a band from the lowest to the highest seed.

    On a logarithmic axis where everything is positive. Seeds that diverged are left out and told.
    Shapes: label -> (rounds [E], values [S, E]).
    """
    parts, lowest = [], math.inf
    for i, (label, (t, values)) in enumerate(curves.items()):
        whole = values[values.isfinite().all(1)]
        lost = f", {len(values) - len(whole)} of {len(values)} diverged" if len(whole) < len(values) else ""
        if not len(whole) or not len(t):
            parts.append(f"{label} diverged" if len(t) else f"{label} was never judged")
            continue
        low, high, mean = whole.amin(0), whole.amax(0), whole.mean(0)
        band(ax, t, mean.clamp(low, high), low, high, i, label)
        lowest = min(lowest, float(low.min()))
        spread = f" ({float(low[-1]):.3g} to {float(high[-1]):.3g})" if len(whole) > 1 else ""
        parts.append(f"{label} {float(mean[-1]):.3g}{spread}{lost}")
    if lowest > 0:
        plain_log(ax.yaxis)
    ax.set(xlabel="round", ylabel=METRICS[metric][1])
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return f"Mean {METRICS[metric][0]} at the last round (lowest to highest seed): {'; '.join(parts)}."


def draw_floor(
    ax: Axes,
    measured: Mapping[str, tuple[Tensor, Tensor]],
    predicted: Mapping[str, tuple[Any, Any]],
    against: str = "epsilon_call",
) -> str:
    """Measured excess risk at the end against a setting, every seed a dot, and predicted noise floors as lines.

    Shapes: label -> (x [n], values [n, S]), as :func:`floor_of` gives them; label -> (x [m], y [m]).
    """
    names = {
        "epsilon_call": r"$\varepsilon$ of one call",
        "agents": "agents $N$",
        "records": "records of an agent $N_i$",
    }
    parts = []
    for i, (label, (x, values)) in enumerate(measured.items()):
        look, mean = series(i) | {"linestyle": ""}, values.mean(1)
        ax.plot(x.repeat_interleave(values.shape[1]), values.flatten(), alpha=0.3, **(look | {"markersize": 3}))
        ax.plot(x, mean, label=label, **(look | {"markersize": 7.5}))
        parts.append(
            f"{label} " + ", ".join(f"{m:.3g} at {v:g}" for v, m in zip(x.tolist(), mean.tolist(), strict=True))
        )
    for i, (label, (x, y)) in enumerate(predicted.items()):
        ax.plot(x, y, label=label, **(series(i) | {"marker": ""}))
        parts.append(f"{label} " + ", ".join(f"{float(v):.3g}" for v in (y[0], y[-1])) + " at the ends")
    plain_log(ax.xaxis)
    plain_log(ax.yaxis)
    ax.set(xlabel=names.get(against, against), ylabel=METRICS["excess_risk"][1])
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return f"Mean excess risk at the end over {values.shape[1]} seeds: {'; '.join(parts)}."


def _cells(table: Table, fixed: Mapping[str, Any]) -> list[Cell]:
    found = [
        cell for cell in table["cells"]
        if all(_is(_setting(table, cell, name), value) for name, value in fixed.items() if _matters(name, cell))
    ]  # fmt: skip
    return sorted(found, key=lambda cell: not METHODS[cell["method"]].private)


def _matters(name: str, cell: Cell) -> bool:
    return name not in NOISE or METHODS[cell["method"]].private


def _varied(cell: Cell) -> dict[str, Any]:
    """What varies in a cell and matters to its method."""
    return {name: value for name, value in cell["varied"].items() if _matters(name, cell)}


def _setting(table: Table, cell: Cell, name: str) -> Any:
    if name == "records":
        samples = setting(table, cell, "samples") or RECORDS[table["problem"]]
        return samples / setting(table, cell, "agents")
    return setting(table, cell, name)


def _is(found: Any, wanted: Any) -> bool:
    """Equal, or one of those wanted."""
    return found in wanted if isinstance(wanted, (tuple, list)) else found == wanted


def _words(name: str, value: Any) -> str:
    if name in WORDS:
        return WORDS[name][value]
    return SETTINGS[name].format(value) if name in SETTINGS else f"{name} = {value}"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)

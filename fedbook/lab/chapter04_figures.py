"""Chapter 4's figures of a run: what clients send, what noise on the shared part costs, which term bounds a round.

Each draw function fills the axes it is given and returns the sentence under the figure. Stored comparisons
are drawn in chapter04_stored, privacy budgets in chapter04_budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter
from torch import Tensor
from torch.func import vmap

from fedbook.federation.exchange import Local
from fedbook.federation.history import History
from fedbook.federation.loop import Rounds
from fedbook.federation.tree import flatten, tree_map
from fedbook.lab.panels import panels
from fedbook.lab.style import PALETTE, REFERENCE, series
from fedbook.learning.models import Parameters
from fedbook.papers.dp2_fedsam.problem import PersonalProblem

HATCHES = ("", "//", "..", "xx", "--", "\\\\", "++")

# --- what a run holds


def client_updates(problem: PersonalProblem, rounds: Rounds, slot: int, ids: Tensor) -> Tensor:
    """What the clients ``ids`` of federation ``slot`` would send now: their changes, not clipped, each one vector.

    They train as in the next round, on their own rows; nothing is sent and nobody's head changes.
    Shapes: ``ids`` [k] to [k, d], d the size of the shared part.
    """
    k, own = len(ids), rounds.clients.get("all", {}).get("own", {})
    local = Local(
        group="all",
        inbox={"shared": tree_map(lambda p: p[slot].expand(k, *p.shape[1:]), rounds.server["shared"])},
        state={"own": tree_map(lambda p: p[slot, ids.to(p.device)], own)} if own else {},
        data=problem.rows(slot, ids, "train"),
        clients=ids,
        seeds=(rounds.seeds[slot],) * k,
        t=max(rounds.t, 0),
        how=rounds.simulator.how,
        chunk=rounds.simulator.chunk,
    )
    change = rounds.algorithm.train(local).upload["change"]
    return torch.cat([x.flatten(1) for x in flatten(change).values()], 1)


def client_loss(
    problem: PersonalProblem, rounds: Rounds, slot: int = 0
) -> tuple[Callable[[Parameters], Tensor], Parameters]:
    """The mean training loss of all clients of federation ``slot`` as a function of the shared part; and that part.

    Heads stay where they are, every client counts the same. For the functions of fedbook.papers.dp2_fedsam.sharpness.
    """
    net = problem.model
    table, sizes = problem.train[slot].table, problem.train[slot].sizes
    place = table.to(problem.y.device)
    x, y = problem.x[place].flatten(0, 1), problem.y[place]
    real = (torch.arange(table.shape[1]) < sizes[:, None]).to(x)
    share = real / real.sum(1, keepdim=True) / len(table)
    own = tree_map(lambda p: p[slot], rounds.clients.get("all", {}).get("own", {}))

    def loss(shared: Parameters) -> Tensor:
        if own:
            logits = vmap(net.classify)(own, net.features(shared, x).unflatten(0, table.shape)).flatten(0, 1)
        else:
            logits = net.apply(shared, x)
        return (torch.nn.functional.cross_entropy(logits, y.flatten(), reduction="none") * share.flatten()).sum()

    return loss, tree_map(lambda p: p[slot], rounds.server["shared"])


# --- what clients send


def draw_norms(ax: Axes, norms: Mapping[str, Tensor], clip_norm: float) -> str:
    """The length of every client's update by method, one dot a client, and the clip norm C as a line.

    Shapes: label -> [k].
    """
    parts = []
    for i, (label, values) in enumerate(norms.items()):
        lengths = values.double().cpu()
        scatter = (torch.arange(len(lengths)) * 0.618034) % 1 - 0.5  # golden ratio: even, and the same every time
        look = series(i)
        ax.plot(lengths, i + 0.6 * scatter, linestyle="", marker=look["marker"], color=look["color"], alpha=0.45)
        mean, share = float(lengths.mean()), float((lengths > clip_norm).double().mean())
        ax.plot([mean, mean], [i - 0.38, i + 0.38], color="black", linewidth=2.2, linestyle="-", marker="")
        told = f"mean {mean:.2g}\n{share:.0%} clipped"
        ax.annotate(told, (1.01, i), xycoords=("axes fraction", "data"), va="center", fontsize="small")
        parts.append(f"{label} {mean:.3g} and {share:.0%}")
    ax.axvline(clip_norm, color=REFERENCE, linewidth=1.2, linestyle="--")
    ax.annotate(f"C = {clip_norm:g}", (clip_norm, 1.01), xycoords=("data", "axes fraction"), ha="center",
                fontsize="small")  # fmt: skip
    _logarithmic(ax.xaxis)
    ax.set_yticks(range(len(norms)), list(norms))
    ax.set_ylim(len(norms) - 0.4, -0.6)
    ax.set_xlabel(r"length of a client's update $\|\Delta_i\|$ (dot: one client, bar: mean)")
    return f"Mean length of an update and share longer than C = {clip_norm:g}: {'; '.join(parts)}."


def draw_update_norms(axes: Any, histories: Mapping[str, History]) -> str:
    """Length of a client's update by round: its mean over the cohort's clients, and their standard deviation.

    Both are averaged over seeds, the deviation through its square. Shapes: ``axes`` two of them.
    """
    spots, parts = panels(axes, 2), []
    for i, (label, history) in enumerate(histories.items()):
        t, mean = _trace(label, history, "update_norm")
        variance = np.clip(_trace(label, history, "update_norm_squared")[1] - mean**2, 0, None)
        mean, std = np.nanmean(mean, 1), np.sqrt(np.nanmean(variance, 1))
        for ax, values in zip(spots, (mean, std), strict=True):
            ax.plot(t, values, label=label, markevery=max(1, len(t) // 10), **series(i))
        parts.append(f"{label} {mean[0]:.2g} to {mean[-1]:.2g} (deviation {std[0]:.2g} to {std[-1]:.2g})")
    for ax, words in zip(spots, ("mean over clients", "standard deviation over clients"), strict=True):
        ax.set(xlabel="round", title=words)
        ax.set_ylim(bottom=0)
    spots[0].set_ylabel(r"length of an update $\|\Delta_i\|$")
    _legend_beside(spots[1])
    return f"Mean length of an update, first to last round: {'; '.join(parts)}."


def _trace(label: str, history: History, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The rounds [T] with anybody in the cohort, and the trace [T, S] (NaN where a seed's cohort was empty)."""
    records = [r for r in history if any(v is not None for v in r.trace.get(name, []))]
    table = [[np.nan if v is None else v for v in r.trace[name]] for r in records]
    return np.array([r.t + 1 for r in records]), np.array(table)


# --- what noise on the shared part costs


def draw_surface(axes: Any, surfaces: Mapping[str, Tensor], offsets: Tensor) -> str:
    """The loss above its value in the middle, on a plane through each run's parameters: one scale for all panels.

    Shapes: ``axes`` one a surface; label -> [n, n] (loss_surface with two directions); ``offsets`` [n] distances.
    """
    spots, parts = panels(axes, len(surfaces)), []
    x = offsets.double().cpu()
    middle = int(x.abs().argmin())
    rises, reach = {}, min(float(x[-1]), -float(x[0]))
    for label, surface in surfaces.items():
        loss = surface.double().cpu()
        rises[label] = loss - loss[middle, middle]
    together = torch.stack(list(rises.values()))
    levels = MaxNLocator(10).tick_values(float(together.min()), float(together.max()))
    rim = ((x[:, None] ** 2 + x**2).sqrt() - reach).abs() <= float(x.diff().max()) / 2
    for ax, (label, rise) in zip(spots, rises.items(), strict=True):
        shown = ax.contourf(x, x, rise.T, levels=levels)
        seen = [level for level in levels[levels > 1e-9 * levels[-1]][::2] if level < float(rise.max())]
        if seen:
            colours = ["white" if level < (levels[0] + levels[-1]) / 2 else "black" for level in seen]
            ax.clabel(ax.contour(x, x, rise.T, levels=seen, colors=colours, linewidths=0.8), fmt="%g", fontsize="small")
        ax.plot(0, 0, "P", color="white", markeredgecolor="black", markersize=7)
        ax.set(title=label, aspect="equal", xlabel="distance along $u_1$")
        ax.grid(False)
        mean = float(rise[rim].mean())
        parts.append(f"{label} {mean:.3g} (highest {float(rise[rim].max()):.3g})")
    spots[0].set_ylabel("distance along $u_2$")
    spots[0].figure.colorbar(shown, ax=spots, label="rise of the loss", shrink=0.9)
    return f"Mean rise of the loss at distance {reach:.3g} in this plane: {'; '.join(parts)}."


# --- which term bounds a round


def draw_terms(ax: Axes, cases: Mapping[str, tuple[Any, Mapping[str, Any]]]) -> str:
    """The terms that bound one round's change of the loss, stacked: above 0 what may be lost, below what is gained.

    A bar marks their sum, a diamond the true change. Shapes: label -> (change, name -> term), numbers or tensors [F]
    over federations, which are averaged (chapter04_descent.one_round gives such a pair).
    """
    names, parts = None, []
    for i, (label, case) in enumerate(cases.items()):
        change, terms = _mean(case[0]), {name: _mean(value) for name, value in case[1].items()}
        names = list(terms) if names is None else names
        up = down = 0.0
        for j, (name, value) in enumerate(terms.items()):
            base = up if value >= 0 else down
            ax.bar(i, value, bottom=base, width=0.6, color=PALETTE[j % len(PALETTE)], hatch=HATCHES[j % len(HATCHES)],
                   edgecolor="white", linewidth=0.5, label=name if i == 0 else None)  # fmt: skip
            up, down = (up + value, down) if value >= 0 else (up, down + value)
        bound = up + down
        ax.plot([i - 0.38, i + 0.38], [bound] * 2, color="black", linewidth=2.4, linestyle="-", marker="",
                label="their sum: the bound" if i == 0 else None)  # fmt: skip
        ax.plot([i], [change], "D", color="white", markeredgecolor="black", markersize=7, linestyle="",
                label="true change" if i == 0 else None)  # fmt: skip
        parts.append(f"{label}: {change:.3g}, bound {bound:.3g}, largest {max(terms, key=terms.get)}")
    ax.axhline(0, color="black", linewidth=0.8, linestyle="-")
    ax.set_xticks(range(len(cases)), list(cases))
    ax.set_ylabel("change of the loss in one round")
    _legend_beside(ax, last=2)
    return f"True mean change of the loss, its bound and the largest term: {'; '.join(parts)}."


def _mean(value: Any) -> float:
    return float(torch.as_tensor(value, dtype=torch.float64).mean())


def _logarithmic(axis: Axis) -> None:
    """A logarithmic axis with plain numbers on it."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axis.set_minor_formatter(NullFormatter())


def _legend_beside(ax: Axes, last: int = 0) -> None:
    """The legend at the right of the axes; the first ``last`` entries come last (matplotlib puts lines before bars)."""
    handles, labels = ax.get_legend_handles_labels()
    place = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
    ax.legend(handles[last:] + handles[:last], labels[last:] + labels[:last], **place)


def draw_bars(ax: Axes, values: Mapping[str, Tensor]) -> str:
    """One bar a label: the mean over seeds, a dot for each seed. Shapes: label -> [S]."""
    parts = []
    for i, (label, seeds) in enumerate(values.items()):
        mean = float(seeds.double().mean())
        ax.bar(i, mean, color=PALETTE[i % len(PALETTE)], alpha=0.45, width=0.6, hatch=("", "//", "..", "xx")[i % 4])
        ax.plot([i] * len(seeds), seeds.tolist(), "o", color="black", markersize=3.5)
        ax.annotate(f"{mean:.2f}", (i + 0.33, mean), va="center", fontsize="small")
        parts.append(f"{label} {mean:.3f}")
    ax.set_xticks(range(len(values)), [label.replace(", ", ",\n") for label in values])
    ax.set_ylabel("accuracy")
    ax.set_ylim(0, 1.05)
    return f"Mean accuracy over {len(next(iter(values.values())))} seeds: {'; '.join(parts)}."

"""The lesson of FedSC: its drawings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from torch import Tensor

from fedbook.intervals import mean_interval
from fedbook.lab import style
from fedbook.lab.draw import draw_images

__all__ = ["draw_images", "draw_learning", "draw_plane", "draw_steps"]

CLIENT_COLOURS = (style.PALETTE[0], style.PALETTE[5], style.PALETTE[3])  # of the clients A, B, C in the plane
LINES = ("-", "--", "-.", ":")  # of the methods, in the order in which a figure gets them

# --- drawings


def draw_plane(ax: Axes, z: Sequence[Tensor], matrices: Sequence[Tensor], mean: Tensor, reach: float = 1.6) -> None:
    """The clients' views in the plane, an ellipse for each client's matrix, the mean matrix black, the identity grey.

    Shapes: ``z`` K tensors [n_k, V, 2], ``matrices`` K tensors [2, 2], ``mean`` [2, 2].
    """
    angle = np.linspace(0, 2 * np.pi, 73)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    ax.plot(*circle, color=style.SHADE, linewidth=1.2, linestyle="--", marker="")
    for name, colour, points, matrix in zip("ABC", CLIENT_COLOURS, z, matrices, strict=True):
        ax.plot(*(_root(matrix) @ circle), color=colour, linestyle="-", marker="", linewidth=1.4)
        rows = points.detach().flatten(0, 1).numpy()
        ax.plot(*rows.T, color=colour, linestyle="", marker="o", markersize=4, markeredgewidth=0)
        tip = rows.mean(0) + 0.22 * rows.mean(0) / max(np.linalg.norm(rows.mean(0)), 1e-9)
        ax.text(*tip, name, color=colour, ha="center", va="center", fontweight="bold")
    ax.plot(*(_root(mean) @ circle), color=style.INK, linestyle="-", marker="", linewidth=2)
    ax.plot([0], [0], "+", color=style.INK, markersize=8)
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="$z_1$", ylabel="$z_2$")


def _root(matrix: Tensor) -> np.ndarray:
    """The square root of a symmetric matrix: it takes the circle to the ellipse."""
    values, vectors = np.linalg.eigh(matrix.detach().numpy())
    return vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T


def draw_learning(
    ax: Axes, rounds: Sequence[int], curves: Mapping[str, Sequence[Sequence[float]]], chosen: str
) -> None:
    """The mean over seeds of each method by round, named at its end; pale: the seeds. ``chosen`` in colour.

    Shapes: ``curves`` maps a name to [S, T].
    """
    ends = {name: float(np.mean([run[-1] for run in runs])) for name, runs in curves.items()}
    low, high = min(map(min, (v for runs in curves.values() for v in runs))), max(ends.values())
    places = _apart(ends, 0.055 * (high - low))
    for line, (name, runs) in zip(LINES, curves.items(), strict=False):
        colour = style.PALETTE[1] if name == chosen else style.FAINT_REFERENCE
        for run in runs:
            ax.plot(rounds, run, color=colour, linewidth=0.7, alpha=0.35, marker="", linestyle=line)
        ax.plot(rounds, np.mean(runs, 0), color=colour, linewidth=2.2, marker="", linestyle=line)
        ax.text(rounds[-1] * 1.015, places[name], name, color=colour, va="center", fontsize=9)
    ax.set_xlim(0, rounds[-1] * 1.3)
    ax.set_xticks(rounds)


def draw_steps(ax: Axes, steps: pd.DataFrame, chosen: str) -> None:
    """kNN accuracy against the step size: the mean over seeds of each method with its 95 % interval, the best first."""
    greys = (style.FAINT_REFERENCE, style.STRONG_REFERENCE, style.FAINT_REFERENCE)
    names = steps.groupby("method")["knn"].mean().sort_values(ascending=False).index
    for line, grey, name in zip(LINES, greys, names, strict=False):
        rows = steps[steps["method"] == name]
        found = rows.groupby("lr")["knn"].apply(lambda v: mean_interval(list(v)))
        colour = style.PALETTE[1] if name == chosen else grey
        mean = [one.mean for one in found]
        ax.plot(found.index, mean, color=colour, marker="", linestyle=line, linewidth=2, label=name)
        low, high = ([getattr(one, side) or one.mean for one in found] for side in ("low", "high"))
        ax.fill_between(found.index, low, high, color=colour, alpha=0.15, linewidth=0)
        for edge in (low, high):
            ax.plot(found.index, edge, color=colour, marker="", linestyle=line, linewidth=0.8, alpha=0.6)
    ax.legend(loc="lower left")
    ax.set_xscale("log")


def _apart(ends: Mapping[str, float], least: float) -> dict[str, float]:
    """Heights for labels at curves' ends, moved up until they are ``least`` apart."""
    places: dict[str, float] = {}
    for name in sorted(ends, key=ends.__getitem__):
        places[name] = max([ends[name], *(height + least for height in places.values())])
    return places

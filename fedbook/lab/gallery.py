"""The book's shared figures beside those of ``draw``: a system as boxes and arrows, scores over seeds, differences.

Each fills the axes it is given and returns one sentence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from fedbook.intervals import mean_interval
from fedbook.lab import style

SERVER, CLIENT, DOWN, UP = style.PALETTE[2], style.PALETTE[0], style.PALETTE[2], style.PALETTE[1]


class Box(NamedTuple):
    """A party of the system: its middle and size on a canvas of 100 x 100, its text, its colour."""

    x: float
    y: float
    width: float
    height: float
    text: str
    color: str = CLIENT


class Arrow(NamedTuple):
    """What crosses the wire from box ``start`` to box ``end``; ``side`` shifts it, so that two can run beside."""

    start: int
    end: int
    text: str = ""
    color: str = UP
    side: float = 0.0


def draw_system(ax: Axes, boxes: Sequence[Box], arrows: Sequence[Arrow]) -> str:
    """Who holds what, what crosses the wire: boxes joined by arrows, each with its text at its middle.

    Green is the server and what it sends, blue a client, orange what a client sends: in every chapter.
    """
    for box in boxes:
        corner = (box.x - box.width / 2, box.y - box.height / 2)
        look = {"boxstyle": "round,pad=0,rounding_size=2.5", "edgecolor": box.color, "linewidth": 1.6}
        ax.add_patch(FancyBboxPatch(corner, box.width, box.height, facecolor="white", **look, zorder=2))
        ax.text(box.x, box.y, box.text, ha="center", va="center", zorder=3)
    for arrow in arrows:
        a, b = boxes[arrow.start], boxes[arrow.end]
        (x0, y0), (x1, y1) = _edge(a, b, arrow.side), _edge(b, a, -arrow.side)
        look = {"arrowstyle": "-|>", "mutation_scale": 14, "linewidth": 1.6, "color": arrow.color}
        ax.add_patch(FancyArrowPatch((x0, y0), (x1, y1), shrinkA=0, shrinkB=0, zorder=1, **look))
        label = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        middle = ((x0 + x1) / 2, (y0 + y1) / 2)
        ax.text(*middle, arrow.text, color=arrow.color, ha="center", va="center", bbox=label, zorder=4)
    ax.set(xlim=(0, 100), ylim=(0, 100))
    ax.set_axis_off()
    return f"{len(boxes)} parties and {len(arrows)} messages between them."


def _edge(box: Box, other: Box, side: float) -> tuple[float, float]:
    """Where the line from the middle of ``box`` to ``other``, shifted by ``side`` to its left, leaves the box."""
    direction = np.array([other.x - box.x, other.y - box.y], dtype=float)
    direction /= max(np.hypot(*direction), 1e-9)
    across = np.array([-direction[1], direction[0]]) * side
    half = np.array([box.width / 2 + 1, box.height / 2 + 1])
    steps = [
        (half[i] - np.sign(direction[i]) * across[i]) / abs(direction[i]) for i in (0, 1) if abs(direction[i]) > 1e-9
    ]
    x, y = np.array([box.x, box.y]) + across + direction * min(steps)
    return float(x), float(y)


def draw_scores(ax: Axes, scores: Mapping[str, Sequence[float]], *, chosen: str = "", label: str = "accuracy") -> str:
    """One row a method, best on top: a point each seed, a bar at the mean; ``chosen`` in colour, the others grey.

    Shapes: ``scores`` maps a name to [S].
    """
    rows = sorted(scores, key=lambda name: float(np.mean(scores[name])))
    for y, name in enumerate(rows):
        values, colour = np.asarray(scores[name], dtype=float), _colour(name, chosen)
        ax.plot(values, np.full(len(values), y), "o", color=colour, alpha=0.55, markersize=5, linestyle="")
        ax.plot([values.mean()] * 2, [y - 0.32, y + 0.32], color=colour, linewidth=3, marker="", linestyle="-")
    _rows(ax, rows, chosen)
    ax.set_xlabel(label)
    return f"{label}: " + ", ".join(f"{name} {np.mean(scores[name]):.3g}" for name in reversed(rows)) + "."


def draw_forest(
    ax: Axes, differences: pd.DataFrame, *, base: str, label: str = "difference", chosen: str = "", scale: float = 1.0,
    by_mean: bool = True,
) -> str:  # fmt: skip
    """Paired differences to ``base`` with their intervals, a row a method; filled where there is one without 0.

    ``differences``: what ``fedbook.lab.results.differences`` returns; ``scale`` 100 shows shares as points;
    ``by_mean``: the largest on top, otherwise the first row on top.
    """
    rows = differences.sort_values("mean") if by_mean else differences.iloc[::-1]
    parts = []
    for y, (name, one) in enumerate(rows.iterrows()):
        mean, low, high = (scale * float(one[key]) for key in ("mean", "low", "high"))
        colour, clear = _colour(str(name), chosen), low > 0 or high < 0
        ax.plot([low, high], [y, y], color=colour, linewidth=2, marker="", linestyle="-")
        ax.plot([mean], [y], "o", color=colour, markerfacecolor=colour if clear else "white", markersize=7)
        parts.append(f"{name} {mean:+.2g}" + ("" if math.isnan(low) else f" ({low:.2g} to {high:.2g})"))
    ax.axvline(0.0, color=style.REFERENCE, linewidth=1.0, linestyle="--")
    _rows(ax, [str(name) for name in rows.index], chosen)
    ax.set_xlabel(f"{label}, minus {base}")
    return f"{label} minus {base}: " + ", ".join(reversed(parts)) + ". Open: 0 lies inside."


def _colour(name: str, chosen: str) -> str:
    return style.PALETTE[1] if name == chosen or not chosen else style.REFERENCE


def _rows(ax: Axes, names: Sequence[str], chosen: str) -> None:
    ax.set_yticks(range(len(names)), names)
    for tick, name in zip(ax.get_yticklabels(), names, strict=True):
        tick.set_fontweight("bold" if name == chosen else "normal")
    ax.set_ylim(-0.6, len(names) - 0.4)
    ax.grid(axis="y", visible=False)


def mean_text(values: Sequence[float], form: str = ".3f") -> str:
    """``0.912 (0.899 to 0.925)``: the mean over seeds and its 95 % interval. Raises: ValueError (no value)."""
    one = mean_interval(list(map(float, values)))
    return f"{one.mean:{form}}" + ("" if one.low is None else f" ({one.low:{form}} to {one.high:{form}})")

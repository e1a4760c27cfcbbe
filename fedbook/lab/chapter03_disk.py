"""Chapter 3's pictures of the hyperbolic plane in the Poincare disk: noise at a point, a taxonomy and its predictions.

Points are those of the hyperboloid, time first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Circle
from torch import Tensor

from fedbook.geometry import Hyperboloid
from fedbook.lab.chapter03_theory import ambient_noise, in_basis
from fedbook.lab.panels import panels
from fedbook.lab.style import DEEP_BLUE_TEXT, MANIFOLD, MANIFOLD_DOT, MANIFOLD_EDGE, MANIFOLD_LINE, PALETTE, series
from fedbook.papers.prirfed.embedding import to_disk
from fedbook.randomness import normal, stream

HYPERBOLIC = Hyperboloid()


def moved_to_centre(x: Tensor, y: Tensor) -> Tensor:
    """The isometry that takes x to the origin, applied to y. Shapes: ``x`` [3], ``y`` [..., 3]."""
    space = x[1:]
    boost = torch.eye(3, dtype=x.dtype)
    boost[0], boost[1:, 0] = torch.cat([x[:1], -space]), -space
    boost[1:, 1:] += space[:, None] * space / (1 + x[0])
    return HYPERBOLIC.nearest(y @ boost.mT)


def arcs(x: Tensor, y: Tensor, points: int = 32) -> np.ndarray:
    """The geodesics from x to y in the disk: [m, 3] twice to [m, points, 2].

    In the Klein disk a geodesic is a straight line; the points on it are denser at its ends, where that disk is tight.
    """
    t = 0.5 - 0.5 * torch.linspace(0, math.pi, points, dtype=x.dtype).cos()[:, None]
    first, last = ((z[:, 1:] / z[:, :1])[:, None] for z in (x, y))
    k = first + t * (last - first)
    return (k / (1 + (1 - k.square().sum(-1, keepdim=True)).clamp(min=0).sqrt())).numpy()


def disk(ax: Axes, reach: float = 1.02) -> None:
    """Empty ``ax`` but for the rim of the disk, if the ``reach`` to each side shows it."""
    ax.set_axis_off()
    ax.set(aspect="equal", xlim=(-reach, reach), ylim=(-reach, reach))
    ax.add_patch(Circle((0, 0), 1, facecolor=MANIFOLD, edgecolor=MANIFOLD_EDGE, linewidth=1.2, zorder=0))


def draw_hyperbolic_noise(
    axes: Any, *, distance: float = 1.6, std: float = 0.25, draws: int = 400, seed: int = 0
) -> str:
    """Noise at a point of H^2: coordinates in an orthonormal basis (left), and where Exp takes it (right).

    Dots: the right noise; crosses: ambient Gaussian noise, projected. Lines at 1 and 2 standard deviations, from the
    exact covariances. Shapes: ``axes`` two of them.
    """
    left, right = panels(axes, 2)
    x = torch.tensor([math.cosh(distance), math.sinh(distance), 0.0], dtype=torch.float64)
    covariance = ambient_noise(HYPERBOLIC, x)
    turn = torch.linspace(0, 2 * math.pi, 121, dtype=torch.float64)
    circle = torch.stack([turn.cos(), turn.sin()], 1)
    disk(right)
    rng, parts = stream(seed, "hyperbolic noise"), []
    for i, label in enumerate(("tangent Gaussian", "projected ambient noise")):
        if i:
            vectors, root = HYPERBOLIC.project(x, normal((draws, 3), rng)), torch.linalg.cholesky(covariance)
        else:
            vectors, root = HYPERBOLIC.tangent_gaussian(x, normal((draws, 2), rng)), torch.eye(2, dtype=x.dtype)
        where, look = std * in_basis(HYPERBOLIC, x, vectors), series(i)
        dots = {"marker": "ox"[i], "markersize": 3.0, "linestyle": "", "color": look["color"], "alpha": 0.35}
        left.plot(*where.T, zorder=3 - i, **dots)
        right.plot(*to_disk(HYPERBOLIC.exp(x, std * vectors)).T, zorder=3 - i, **dots)
        for k in (1, 2):
            ring = k * std * circle @ root.mT
            edge = to_disk(HYPERBOLIC.exp(x, (ring[..., None] * HYPERBOLIC.basis(x)).sum(-2)))
            for ax, line, words in ((left, ring, label if k == 1 else None), (right, edge, None)):
                looks = {"linestyle": look["linestyle"], "marker": "", "zorder": 4}
                ax.plot(*line.T, color="white", linewidth=3.6, **(looks | {"linestyle": "-"}))
                ax.plot(*line.T, color=look["color"], linewidth=2.0, label=words, **looks)
        square = float((root @ root.mT).trace())
        parts.append(f"{label} {square * std**2:.3g} (measured {float(where.square().sum(1).mean()):.3g})")
    right.plot(0, 0, "+", color="black", markersize=8)
    right.plot(*to_disk(x), "P", color="black", markersize=8, zorder=5)
    stretch = math.sqrt(float(covariance.diagonal().max()))
    reach = 2.6 * std * stretch
    left.set(aspect="equal", xlim=(-reach, reach), ylim=(-reach, reach), xlabel="away from the origin",
             ylabel="across", title="coordinates in the tangent plane")  # fmt: skip
    left.legend(loc="upper left", title="1 and 2 standard deviations", title_fontsize="small")
    right.set_title("in the Poincaré disk")
    return (
        f"Mean square length at distance {distance:g} from the origin for std = {std:g}: {'; '.join(parts)}; right is "
        f"d std^2 = {2 * std**2:.3g}. The projected noise is {stretch:.3g} times too long in one direction."
    )


def draw_poincare(
    ax: Axes, points: Tensor, edges: Tensor, word: int, predictions: Mapping[str, Tensor], *,
    names: Sequence[str] | None = None, radius: float | None = None,
) -> str:  # fmt: skip
    """A taxonomy in the Poincare disk with one word's true place, its neighbours and what methods predict.

    ``radius``: the true place is moved to the centre by an isometry, which keeps all distances, and only what is that
    near is shown; neighbours then carry their ``names``. Every run's prediction is drawn, none is picked.
    Shapes: ``points`` [n, 3] of the hyperboloid; ``edges`` int64 [m, 2]; label -> [3] or [R, 3], a run a row.
    """
    HYPERBOLIC.require_point("points", points)
    truth = points[word]
    place = (lambda y: y) if radius is None else (lambda y: moved_to_centre(truth, y))
    reach = 1.02 if radius is None else math.tanh(radius / 2)
    disk(ax, reach)
    shown = place(points)
    own = (edges == word).any(1)
    for some, colour, width in ((~own, MANIFOLD_LINE, 0.6), (own, PALETTE[5], 2.0)):
        ends = shown[edges[some]]
        ax.add_collection(LineCollection(list(arcs(ends[:, 0], ends[:, 1])), colors=colour, linewidths=width, zorder=1))
    ax.plot(*to_disk(shown).T, ".", color=MANIFOLD_DOT, markersize=2.2 if radius is None else 5, zorder=1.5)
    around = sorted(set(edges[own].flatten().tolist()) - {word})
    if around:
        at = to_disk(shown[around])
        ax.plot(*at.T, "o", color=PALETTE[5], markersize=4.5, markeredgecolor="white", zorder=2, label="neighbours")
    if names is not None and radius is not None:
        _name(ax, shown, around, names, reach)
    ax.plot(*to_disk(shown[word]), "*", color="black", markersize=15, markeredgecolor="white", zorder=5,
            label="true place" if names is None else f"{names[word]}: true place")  # fmt: skip
    parts = []
    for i, (label, found) in enumerate(predictions.items()):
        found = found.reshape(-1, 3) if isinstance(found, Tensor) and found.ndim == 1 else found
        look, far = series(i), HYPERBOLIC.dist(truth, found)
        ax.plot(*to_disk(place(found)).T, linestyle="", marker=look["marker"], markersize=7, color=look["color"],
                markeredgecolor="white", markeredgewidth=0.7, zorder=4, label=label)  # fmt: skip
        spread = f" ± {float(far.std()):.2g}" if len(far) > 1 else ""
        parts.append(f"{label} {float(far.mean()):.3g}{spread}")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.0)
    runs = max(f.numel() // 3 for f in predictions.values())
    which = f"{runs} runs, mean ± standard deviation" if runs > 1 else "one run"
    return f"Distance from the true place ({which}): {'; '.join(parts)}."


def _name(ax: Axes, shown: Tensor, around: list[int], names: Sequence[str], reach: float) -> None:
    """The neighbours' names, outwards from the word, as many as fit."""
    free: list[np.ndarray] = []
    for i in around:
        at = to_disk(shown[i]).numpy()
        if np.abs(at).max() < 0.97 * reach and all((np.abs(at - b) > (0.3 * reach, 0.06 * reach)).any() for b in free):
            free.append(at)
            ax.annotate(names[i].replace("_", " "), at, (0, 8 if at[1] >= 0 else -8), textcoords="offset points",
                        ha="center", va="center", fontsize=8, color=DEEP_BLUE_TEXT, zorder=3, clip_on=True)  # fmt: skip

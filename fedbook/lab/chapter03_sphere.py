"""Chapter 3's pictures of the unit sphere: geodesics, parallel transport, noise in a tangent plane.

The projection is computed here, on plain axes: what lies behind the sphere is drawn faint and dashed. matplotlib's 3-D
axes hide nothing and took 150 to 450 ms a redraw, too long for a slider.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Circle, Polygon
from torch import Tensor

from fedbook.geometry import Sphere
from fedbook.lab.panels import panels
from fedbook.lab.style import (
    BLUE_TEXT,
    GREEN_TEXT,
    MANIFOLD,
    MANIFOLD_EDGE,
    MANIFOLD_GRID,
    MANIFOLD_GRID_BEHIND,
    ORANGE_TEXT,
    PALETTE,
)
from fedbook.randomness import normal, stream

SPHERE = Sphere()


class View:
    """An observer far away, in the direction ``azimuth`` (around the third axis) and ``elevation``, in degrees.

    Shapes: points are [..., 3], tensors or arrays; the page [..., 2].
    """

    def __init__(self, azimuth: float = 0.0, elevation: float = 20.0) -> None:
        a, e = (math.radians(v) for n, v in (("azimuth", azimuth), ("elevation", elevation)))
        self.toward = np.array([math.cos(e) * math.cos(a), math.cos(e) * math.sin(a), math.sin(e)])
        right = np.array([-math.sin(a), math.cos(a), 0.0])
        self.page = np.stack([right, np.cross(self.toward, right)])

    def flat(self, points: Any) -> np.ndarray:
        """Where points are on the page."""
        return np.asarray(points, dtype=float) @ self.page.T

    def hidden(self, points: Any) -> np.ndarray:
        """Whether the unit ball hides a point; those on its surface that face the observer are seen."""
        depth = np.asarray(points, dtype=float) @ self.toward
        inside = 1 - (self.flat(points) ** 2).sum(-1)
        return (inside > 0) & (depth < np.sqrt(np.maximum(inside, 0)) - 1e-3)

    def sphere(self, ax: Axes, reach: float = 1.08) -> None:
        """Empty ``ax`` but for the sphere and its net; the page shows ``reach`` to each side."""
        ax.set_axis_off()
        ax.set(aspect="equal", xlim=(-reach, reach), ylim=(-reach, reach))
        ax.add_patch(Circle((0, 0), 1, facecolor=MANIFOLD, edgecolor=MANIFOLD_EDGE, linewidth=1.2, zorder=0))
        turn = np.linspace(0, 2 * np.pi, 73)
        round_ = np.stack([np.cos(turn), np.sin(turn), 0 * turn], -1)
        height = np.radians(np.arange(-60, 61, 30))[:, None, None]
        parallels = round_ * np.cos(height) + np.sin(height) * np.array([0.0, 0.0, 1.0])
        east = np.radians(np.arange(0, 180, 30))[:, None]
        up = np.stack([np.cos(turn) * np.cos(east), np.cos(turn) * np.sin(east), np.sin(turn) + 0 * east], -1)
        for net, behind in ((np.concatenate([parallels, up]), b) for b in (True, False)):
            shown = np.where((self.hidden(net) == behind)[..., None], self.flat(net), np.nan)
            colour = MANIFOLD_GRID_BEHIND if behind else MANIFOLD_GRID
            ax.add_collection(LineCollection(list(shown), colors=colour, linewidths=0.7, zorder=0.5))

    def line(self, ax: Axes, points: Any, **looks: Any) -> None:
        """A curve [n, 3]; behind the sphere it is faint and dashed."""
        looks = {"marker": "", "linestyle": "-", "zorder": 2.0} | looks
        hidden = self.hidden(points)
        for behind in (True, False):
            x = np.where((hidden == behind)[..., None], self.flat(points), np.nan)
            faint = {"alpha": 0.35, "linestyle": (0, (3, 2)), "label": None, "zorder": 0.8} if behind else {}
            if (hidden == behind).any():
                ax.plot(*x.T, **(looks | faint))

    def dots(self, ax: Axes, points: Any, **looks: Any) -> None:
        """Points [n, 3]; behind the sphere they are faint."""
        looks = {"linestyle": "", "zorder": 2.5} | looks
        hidden, x = self.hidden(points), self.flat(points)
        if hidden.any():
            ax.plot(*x[hidden].T, **(looks | {"alpha": 0.25, "label": None, "zorder": 0.8}))
        ax.plot(*x[~hidden].T, **looks)

    def arrow(self, ax: Axes, start: Any, vector: Any, colour: str, width: float = 2.2) -> None:
        """A tangent vector, drawn straight from its point."""
        ends = self.flat(np.stack([np.asarray(start), np.asarray(start) + np.asarray(vector)]))
        looks = {"arrowstyle": "-|>", "color": colour, "linewidth": width, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", ends[1], ends[0], arrowprops=looks | {"mutation_scale": 5 + 4 * width}, zorder=4)

    def plane(self, ax: Axes, x: Tensor, half: float) -> None:
        """A square of side 2 ``half`` of the tangent plane at x, with its sides east and north."""
        corners = half * torch.tensor([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=x.dtype)
        edge = self.flat(x + corners @ compass(x))
        ax.add_patch(Polygon(edge, facecolor=PALETTE[5], alpha=0.22, edgecolor="none", zorder=1.5))
        ax.add_patch(Polygon(edge, fill=False, edgecolor=PALETTE[5], linewidth=1.0, zorder=1.6))

    def word(self, ax: Axes, point: Any, text: str, offset: tuple[float, float], **looks: Any) -> None:
        """``text`` beside a point, ``offset`` in points of the page."""
        ax.annotate(text, self.flat(point), offset, textcoords="offset points", ha="center", va="center",
                    **({"fontsize": 12, "zorder": 5} | looks))  # fmt: skip


def compass(x: Tensor) -> Tensor:
    """East and north at a point of the sphere that is no pole: an orthonormal basis [2, 3] of its tangent plane."""
    pole = torch.tensor([0.0, 0.0, 1.0], dtype=x.dtype)
    north = SPHERE.nearest(SPHERE.project(x, pole))
    return torch.stack([torch.linalg.cross(north, x), north])


def place(azimuth: float, elevation: float) -> Tensor:
    """The point of the sphere at these degrees."""
    a, e = (math.radians(v) for n, v in (("azimuth", azimuth), ("elevation", elevation)))
    return torch.tensor([math.cos(e) * math.cos(a), math.cos(e) * math.sin(a), math.sin(e)], dtype=torch.float64)


def _steps(count: int, end: float = 1.0) -> Tensor:
    return torch.linspace(0, end, count, dtype=torch.float64)[:, None]


# --- figures


def draw_sphere_geometry(ax: Axes, *, length: float = 1.1) -> str:
    """A point x, its tangent plane, a tangent vector v of that ``length``, the geodesic to Exp_x(v), and the way back.

    From pi on Log gives another vector than v: the one that goes round the other side.
    """
    eye, x = View(0, 12), place(-28, 52)
    east, north = compass(x)
    v = length * SPHERE.nearest(east - 0.25 * north)
    y = SPHERE.exp(x, v)
    back = SPHERE.log(x, y)
    eye.sphere(ax, 1.25)
    if length > math.pi / 3:  # room for the arrows
        tips = eye.flat(torch.stack([x + v, x + back]))
        low, high = np.minimum(tips.min(0) - 0.3, -1.25), np.maximum(tips.max(0) + 0.3, 1.25)
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    eye.plane(ax, x, 0.6)
    eye.line(ax, SPHERE.exp(x, _steps(80) * v), color=PALETTE[0], linewidth=2.6)
    eye.arrow(ax, x, v, PALETTE[1])
    if length > math.pi:
        eye.arrow(ax, x, back, PALETTE[2])
        eye.word(ax, x + back, r"$\mathrm{Log}_x(y)$", (-26, 10), color=GREEN_TEXT)
    for point, marker, colour, text, offset in (
        (x, "o", "black", "$x$", (-10, -9)), (y, "s", PALETTE[0], r"$y=\mathrm{Exp}_x(v)$", (-26, -15)),
    ):  # fmt: skip
        eye.dots(ax, point[None], marker=marker, color=colour, markersize=8, zorder=4.5)
        eye.word(ax, point, text, offset, color=colour)
    words = "$v$" if length > math.pi else r"$v=\mathrm{Log}_x(y)$"
    eye.word(ax, x + v, words, (4, 14) if length > 1.6 else (44, 6), color=ORANGE_TEXT)
    eye.word(ax, x + 0.5 * (north - east), r"$T_x\mathcal{M}$", (4, 0), color=BLUE_TEXT)
    off = float((x + v).norm()) - 1
    how = "is v again" if length < math.pi else f"has length {float(back.norm()):.3g}, round the other side"
    return (
        f"v is {length:.3g} long; the geodesic to y = Exp_x(v) {'' if length < math.pi else 'also '}has length "
        f"{length:.3g} and dist(x, y) = {float(SPHERE.dist(x, y)):.3g}; Log_x(y) {how}; the straight step x + v ends "
        f"{off:.3g} off the sphere."
    )


def draw_transport(ax: Axes) -> str:
    """A tangent vector carried round a triangle of three right angles: it comes back turned by 90 degrees."""
    eye = View(45, 28)
    corners = [torch.tensor(c, dtype=torch.float64) for c in ((0, 0, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1))]
    eye.sphere(ax, 1.32)
    vector = first = 0.38 * SPHERE.nearest(corners[1] + corners[2])
    for i, (start, end) in enumerate(zip(corners, corners[1:], strict=False)):
        way = SPHERE.exp(start, _steps(60) * SPHERE.log(start, end))
        eye.line(ax, way, color=PALETTE[0], linewidth=2.6)
        for at in way[::12]:
            shade = "black" if at is way[0] and not i else PALETTE[1]
            eye.arrow(ax, at, SPHERE.transport(start, at, vector), shade, 2.6 if shade == "black" else 1.5)
        vector = SPHERE.transport(start, end, vector)
        eye.word(ax, way[30], f"{i + 1}", ((-12, 5), (0, 12), (-13, -3))[i], color=PALETTE[0], fontweight="bold")
    eye.arrow(ax, corners[0], vector, PALETTE[2], 2.6)
    for corner, text, offset in zip(corners[:3], "ABC", ((0, 13), (-2, -15), (2, -15)), strict=True):
        eye.dots(ax, corner[None], marker="o", color="black", markersize=6, zorder=4.5)
        eye.word(ax, corner, f"${text}$", offset)
    eye.word(ax, corners[0] + first, "sets out", (0, -10), fontsize=10)
    eye.word(ax, corners[0] + vector, "comes back", (34, 0), color=GREEN_TEXT, fontsize=10)
    turn = math.degrees(math.acos(float(first @ vector / first.norm() / vector.norm())))
    return (
        f"Carried from A to B to C and back, always parallel, the vector comes back turned by {turn:.1f} degrees: the "
        f"area of the triangle, {math.pi / 2:.3f}, as an angle. Its length is still {float(vector.norm()):.2f}."
    )


def draw_tangent_noise(axes: Any, *, std: float = 0.3, draws: int = 400, seed: int = 0) -> str:
    """Noise N_x(0, std^2) in the tangent plane (left) and where Exp takes it (right); circles at std and 2 std.

    Shapes: ``axes`` two of them.
    """
    left, right = panels(axes, 2)
    eye, x = View(10, 24), place(-12, 42)
    noise = std * SPHERE.tangent_gaussian(x, normal((draws, 3), stream(seed, "tangent noise")))
    turn = torch.linspace(0, 2 * math.pi, 121, dtype=torch.float64)[:, None]
    circle = std * (turn.cos() * compass(x)[0] + turn.sin() * compass(x)[1])
    for ax, title in ((left, "noise in the tangent plane at $x$"), (right, "the same after $\\mathrm{Exp}_x$")):
        flat = ax is left
        eye.sphere(ax, 1.2)
        if flat:
            eye.plane(ax, x, 2.5 * std)
        points = x + noise if flat else SPHERE.exp(x, noise)
        eye.dots(ax, points, marker="o", markersize=2.6, color=PALETTE[0], alpha=0.6, markeredgewidth=0)
        for k in (1, 2):
            ring = x + k * circle if flat else SPHERE.exp(x, k * circle)
            eye.line(ax, ring, color=PALETTE[1], linewidth=1.8, linestyle=("-", "--")[k - 1], zorder=3,
                     label=f"{k * std:g} from $x$")  # fmt: skip
        eye.dots(ax, x[None], marker="P", color="black", markersize=9, zorder=4.5)
        ax.set_title(title)
    right.legend(loc="lower right")
    square = float(SPHERE.norm(x, noise).square().mean())
    far = float((SPHERE.norm(x, noise) <= 2 * std).double().mean())
    return (
        f"{draws} draws of standard deviation {std:g}: their mean square length is {square:.3f} (d std^2 = "
        f"{2 * std**2:.3f}), {far:.0%} lie within 2 std (86% in the plane); Exp keeps every distance from x."
    )

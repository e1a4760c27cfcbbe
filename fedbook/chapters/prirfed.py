"""The lesson on PriRFed: its drawings, the answers of its exercises."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from fedbook.lab import gallery, style
from fedbook.lab.draw import draw_images
from fedbook.lab.exercises import WrongAnswer, by_cases, by_hand

__all__ = [
    "ROUND_COLOURS", "cone", "draw_floor", "draw_images", "draw_ledger", "draw_risks", "draw_scene", "draw_system",
    "turned_up",
]  # fmt: skip

AGENTS = {"A": style.PALETTE[0], "B": style.PALETTE[3], "C": style.PALETTE[2]}
ROUND_COLOURS: Mapping[str, str] = {
    **AGENTS, **{f"{name} records": colour for name, colour in AGENTS.items()},
    **dict.fromkeys("0123", style.PALETTE[0]), "x": style.INK, "mean": style.PALETTE[1], "Exp": style.PALETTE[1],
    "new x": style.PALETTE[1], "noise": style.FAINT_REFERENCE,
}  # fmt: skip  # of one round on the sphere

# --- drawings: a surface seen from an angle, and what lies on it


def draw_system(ax: Axes) -> str:
    """The server with one point, three agents with private records; what each side computes stands in its box."""
    text = "server:  point x\nu = mean of $\\mathrm{Log}_x(x_k)$,   x ← $\\mathrm{Exp}_x(u)$"
    boxes = [gallery.Box(50, 86, 96, 22, text, gallery.SERVER)]
    places = {"A": 16, "B": 50, "C": 84}
    boxes += [
        gallery.Box(x, 17, 29, 30, f"agent {name}\nrecords stay here\nnoisy steps: clip,\nnoise, Exp")
        for name, x in places.items()
    ]
    sentence = gallery.draw_system(ax, boxes, [])
    for name, x in places.items():
        for shift, low_to_high, colour, text in ((-5, False, gallery.DOWN, "x"), (5, True, gallery.UP, f"$x_{name}$")):
            tail, head = (33, 74) if low_to_high else (74, 33)
            look = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", xy=(x + shift, head), xytext=(x + shift, tail), arrowprops=look)
            ax.text(x + shift * 1.5, 53, text, color=colour, ha="center", va="center", fontsize=12)
    return sentence


def cone(X: Tensor) -> Tensor:
    """The place of 2 x 2 symmetric matrices in space, lengths kept; the axis is up. [..., 2, 2] -> [..., 3]"""
    a, b, c = X[..., 0, 0], X[..., 0, 1], X[..., 1, 1]
    return torch.stack([math.sqrt(2) * b, (a - c) / math.sqrt(2), (a + c) / math.sqrt(2)], -1)


def turned_up(x: Tensor) -> Tensor:
    """Time, the first coordinate of the hyperboloid, made the vertical one. [..., 3] -> [..., 3]"""
    return x[..., [1, 2, 0]]


def draw_scene(
    ax: Axes, surface: str, angle: float, *, height: float = 22.0, paths: Mapping[str, Tensor] | None = None,
    points: Mapping[str, Tensor] | None = None, arrows: Mapping[str, tuple[Tensor, Tensor]] | None = None,
    plane: tuple[Tensor, Tensor, Tensor] | None = None, window: tuple[float, float, float, float] | None = None,
    colours: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """A surface ("sphere", "cone", "hyperboloid") from ``angle`` and ``height`` in degrees, with things on it.

    A name that begins with "_" is not written; ``colours`` by name, without that sign, else in turn.
    ``plane``: a point and two vectors that span a square around it.
    Shapes: paths and points [n, 3], arrows (start [3], vector [3]), plane three times [3]; ``window``: limits.
    """
    view = _View(ax, angle, height, solid=surface == "sphere")
    for line in SURFACES[surface]():
        view.line(line, style.MANIFOLD_GRID if surface == "sphere" else style.MANIFOLD_LINE, 0.8)
    if surface == "sphere":
        edge = np.linspace(0, 2 * math.pi, 120)
        ax.plot(np.cos(edge), np.sin(edge), color=style.MANIFOLD_EDGE, linewidth=1.2, marker="", linestyle="-")
    if plane is not None:
        at, u, v = (np.asarray(part, float) for part in plane)
        corners = view.flat(np.stack([at + a * u + b * v for a, b in ((1, 1), (1, -1), (-1, -1), (-1, 1))]))
        ax.fill(*corners.T, color=style.PALETTE[5], alpha=0.25, linewidth=0)
    kinds = ((paths, view.path), (arrows, view.arrow), (points, view.dots))
    known = dict(colours or {})
    for things, draw in kinds:
        for name, what in (things or {}).items():
            colour = known.setdefault(name.lstrip("_"), style.PALETTE[len(known) % 5])
            draw(what, colour, "" if name.startswith("_") else name)
    ax.set_aspect("equal")
    ax.set_axis_off()
    if window is None:
        window = {"sphere": (-1.25, 1.25, -1.2, 1.25), "cone": (-2.6, 2.6, -1.2, 3.4),
                  "hyperboloid": (-2.6, 2.6, -1.3, 3.2)}[surface]  # fmt: skip
    ax.set(xlim=window[:2], ylim=window[2:])


class _View:
    """A parallel projection; what lies behind a solid sphere is drawn dotted."""

    def __init__(self, ax: Axes, angle: float, height: float, solid: bool):
        a, h = math.radians(angle), math.radians(height)
        self.ax, self.solid = ax, solid
        self.right = np.array([-math.sin(a), math.cos(a), 0.0])
        self.up = np.array([-math.sin(h) * math.cos(a), -math.sin(h) * math.sin(a), math.cos(h)])
        self.near = np.array([math.cos(h) * math.cos(a), math.cos(h) * math.sin(a), math.sin(h)])

    def flat(self, points: Any) -> np.ndarray:
        points = np.asarray(points, dtype=float)
        return np.stack([points @ self.right, points @ self.up], -1)

    def line(self, points: Any, colour: str, width: float) -> None:
        places, hidden = self.flat(points), self.solid & (np.asarray(points) @ self.near < -1e-9)
        for part, look in ((hidden, (":", 0.5)), (~hidden, ("-", 1.0))):
            shown = np.where(part[:, None], places, np.nan)
            self.ax.plot(*shown.T, color=colour, linewidth=width, linestyle=look[0], alpha=look[1], marker="")

    def path(self, points: Any, colour: str, name: str) -> None:
        self.line(points, colour, 2.4)
        if name:
            self._text(self.flat(points)[len(points) // 2], name, colour)

    def dots(self, points: Any, colour: str, name: str) -> None:
        places = np.atleast_2d(self.flat(points))
        hidden = self.solid & (np.atleast_2d(np.asarray(points)) @ self.near < -1e-9)
        size = 7 if len(places) == 1 else 4.5 if len(places) < 40 else 2.5
        self.ax.plot(*places[~hidden].T, "o", color=colour, markersize=size, linestyle="")
        self.ax.plot(*places[hidden].T, "o", color=colour, markersize=size * 0.7, alpha=0.4, linestyle="")
        if name:
            self._text(places[0], name, colour)

    def arrow(self, what: Any, colour: str, name: str) -> None:
        start, vector = (np.asarray(part, dtype=float) for part in what)
        tail, head = self.flat(start), self.flat(start + vector)
        look = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.9, "shrinkA": 0, "shrinkB": 0}
        self.ax.annotate("", xy=tuple(head), xytext=tuple(tail), arrowprops=look, annotation_clip=True)
        if name:
            self._text(head, name, colour)

    def _text(self, place: np.ndarray, name: str, colour: str) -> None:
        look = {"textcoords": "offset points", "xytext": (6, 5), "annotation_clip": True}
        self.ax.annotate(name, tuple(place), color=colour, fontsize=11, fontweight="bold", **look)


def _circle(radius: float, level: float) -> np.ndarray:
    turn = np.linspace(0, 2 * math.pi, 73)
    return np.stack([radius * np.cos(turn), radius * np.sin(turn), np.full(73, level)], 1)


def _spokes(radius: np.ndarray, level: np.ndarray, count: int) -> list[np.ndarray]:
    turns = np.arange(count) * 2 * math.pi / count
    return [np.stack([radius * np.cos(turn), radius * np.sin(turn), level], 1) for turn in turns]


def _sphere() -> list[np.ndarray]:
    lat, arc = np.radians([-60, -30, 0, 30, 60]), np.linspace(-math.pi / 2, math.pi / 2, 37)
    return [_circle(math.cos(a), math.sin(a)) for a in lat] + _spokes(np.cos(arc), np.sin(arc), 12)


def _cone() -> list[np.ndarray]:
    along = np.linspace(0, 2.5, 11)
    return [_circle(z, z) for z in (0.5, 1.0, 1.5, 2.0, 2.5)] + _spokes(along, along, 16)


def _hyperboloid() -> list[np.ndarray]:
    radius = np.linspace(0, 2.4, 25)
    sheet = [_circle(r, math.sqrt(1 + r * r)) for r in (0.6, 1.2, 1.8, 2.4)]
    return sheet + _spokes(radius, np.sqrt(1 + radius**2), 12) + [_circle(1.0, 0.0), _circle(0.995, 0.0)]


SURFACES: Mapping[str, Callable[[], list[np.ndarray]]] = {
    "sphere": _sphere, "cone": _cone, "hyperboloid": _hyperboloid,
}  # fmt: skip


def draw_ledger(axes: Sequence[Axes], calls: np.ndarray, spent: Mapping[str, np.ndarray], t: int) -> None:
    """Left: who was called up to round ``t``; right: what each agent has spent, by two ways of adding up.

    Shapes: ``calls`` bool [K, T]; each of ``spent`` [K].
    """
    agents, rounds = calls.shape
    who, when = np.nonzero(calls[:, :t])
    axes[0].plot(when + 1, who, "s", color=gallery.UP, markersize=6, linestyle="")
    axes[0].axvline(t + 0.5, color=style.FAINT_REFERENCE, linestyle="--", linewidth=1, marker="")
    axes[0].set(xlim=(0, rounds + 1), ylim=(agents - 0.5, -0.5), xlabel="round", ylabel="agent")
    axes[0].set_title("Calls so far")
    looks = ((style.PALETTE[0], 0.18, "o"), (style.FAINT_REFERENCE, -0.18, "D"))
    for (name, values), (colour, shift, marker) in zip(spent.items(), looks, strict=True):
        axes[1].plot(values, np.arange(agents) - shift, marker, color=colour, label=name, linestyle="", markersize=6)
    axes[1].set(ylim=(agents - 0.5, -0.5), xlabel="ε spent so far")
    axes[1].set_yticks(range(agents))
    axes[0].set_yticks(range(agents))
    axes[1].legend(loc="upper right")


def draw_risks(ax: Axes, curves: Mapping[str, Sequence[Sequence[float]]], rounds: Sequence[int], chosen: str) -> None:
    """Excess risk by round on a logarithmic axis: the geometric mean over seeds, pale the seeds, named at the end.

    Shapes: ``curves`` maps a name to [S, T].
    """
    for line, (name, runs) in zip(("-", "--", "-.", ":", "-"), curves.items(), strict=False):
        colour = style.PALETTE[1] if name == chosen else style.FAINT_REFERENCE
        values = np.maximum(np.asarray(runs, dtype=float), 1e-9)  # below is rounding
        ax.plot(rounds, values.T, color=colour, linewidth=0.6, alpha=0.35, marker="", linestyle=line)
        mean = np.exp(np.log(values).mean(0))
        ax.plot(rounds, mean, color=colour, linewidth=2.2, marker="", linestyle=line)
        ax.annotate(name, (rounds[-1], mean[-1]), xytext=(5, 0), textcoords="offset points", color=colour,
                    va="center", annotation_clip=False)  # fmt: skip
    ax.set_yscale("log")
    ax.set(xlabel="round", xlim=(0, rounds[-1] * 1.02))


def draw_floor(ax: Axes, measured: Mapping[str, tuple[Sequence[float], Sequence[float]]], label: str) -> None:
    """Measured against predicted floors, a series each a marker, and the line on which both are equal.

    Shapes: each of ``measured`` two sequences [n], predicted and measured.
    """
    every = np.concatenate([np.concatenate(pair) for pair in measured.values()])
    ends = [every.min() / 1.5, every.max() * 1.5]
    ax.plot(ends, ends, color=style.FAINT_REFERENCE, linestyle="--", linewidth=1, marker="")
    for i, (name, (predicted, got)) in enumerate(measured.items()):
        colour, marker = style.PALETTE[(1, 0)[i % 2]], style.MARKERS[i]
        ax.plot(predicted, got, marker, color=colour, label=name, linestyle="", markersize=8)
    ax.set(xscale="log", yscale="log", xlabel="floor by the formula", ylabel=label, aspect="equal")
    ax.legend(loc="upper left")


# --- 03-1: how long is a step on the positive numbers


by_hand(
    "03-1",
    solution=math.log(100.0),
    hints=("A small step dX at X has length dX / X, and X grows on the way.", "Integrate dX / X from 10 to 1000."),
    why="The length of a step is another one at every X, so integrate: ln 1000 - ln 10 = ln 100.",
    wrong_answers=(
        WrongAnswer(990.0, "That is the flat distance. Here a step counts beside the place X."),
        WrongAnswer(2.0, "Right idea, other base: the integral of dX / X is the natural logarithm."),
        WrongAnswer(100.0, "That is the ratio. The length adds up dX / X along the way."),
        WrongAnswer(math.log(10.0), "That is the way from 10 to 100. There are two such ways."),
        WrongAnswer(99.0, "You divided all of the way by the start. X grows on the way."),
    ),
)


# --- 03-2: a point on the way


class _Ball:
    """The unit sphere, only for the answers below."""

    @staticmethod
    def exp(x: Tensor, u: Tensor) -> Tensor:
        r = u.norm(dim=-1, keepdim=True)
        return r.cos() * x + torch.sinc(r / math.pi) * u

    @staticmethod
    def log(x: Tensor, y: Tensor) -> Tensor:
        v = y - (x * y).sum(-1, keepdim=True) * x
        r = v.norm(dim=-1, keepdim=True)
        return torch.atan2(r, (x * y).sum(-1, keepdim=True)) / r.clamp(min=1e-15) * v

    @staticmethod
    def transport(x: Tensor, y: Tensor, u: Tensor) -> Tensor:
        return u - (y * u).sum(-1, keepdim=True) / (1 + (x * y).sum(-1, keepdim=True)) * (x + y)


def solution_on_the_way(M, x, y, s):
    return M.exp(x, s * M.log(x, y))


_X = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
_Y = torch.tensor([0.0, 0.6, 0.8], dtype=torch.float64)
_Z = torch.tensor([0.6, 0.0, 0.8], dtype=torch.float64)


by_cases(
    "03-2",
    solution=solution_on_the_way,
    hints=("Log gives the velocity that arrives at time 1.", "Walk only a share s of that velocity."),
    wrong_answers=(
        WrongAnswer(lambda M, x, y, s: (1 - s) * x + s * y,
                    "That is a point of the straight chord, which leaves the surface."),
        WrongAnswer(lambda M, x, y, s: M.exp(y, s * M.log(y, x)), "You started at y. At s = 0 the answer should be x."),
        WrongAnswer(lambda M, x, y, s: s * M.exp(x, M.log(x, y)),
                    "You scaled the end point. Scale the velocity instead."),
        WrongAnswer(lambda M, x, y, s: M.exp(x, M.log(x, y)), "That goes all the way: s is unused."),
        WrongAnswer(lambda M, x, y, s: M.exp(x, s * M.log(y, x)),
                    "That velocity lives at y. The one at x is M.log(x, y)."),
    ),
    cases=[{"M": _Ball, "x": x, "y": y, "s": s} for x, y in ((_X, _Y), (_Z, _X)) for s in (0.0, 0.3, 1.0)],
)  # fmt: skip


# --- 03-3: which noise is right

NOISES = {"a": True, "b": False, "c": False, "d": True}
WHY_NOISE = {
    "a": "On the sphere all of space has one metric, so the shadow on the tangent plane is equal in all directions.",
    "b": "Projected in the Lorentz product, the noise is stretched along the way to the tip.",
    "c": "Measured at X, the entries of S do not have length 1 each: undo it with the root of X on both sides.",
    "d": "The root of X on both sides turns lengths at the identity into lengths at X.",
}


by_hand(
    "03-3",
    solution=NOISES,
    hints=("Take a vector of length 1 in the metric at x. What is the variance of the noise along it?",
           "For b try x = (cosh r, sinh r, 0) and the arrow (sinh r, cosh r, 0), whose length is 1."),
    why="a: a projection of even noise onto a plane is even noise on that plane. b: this projection lengthens "
        "some directions, the more the further out x lies. c: S is even for the flat lengths, but at X lengths "
        "are measured with the inverse of X. d: this map carries even noise at I to X and keeps all lengths.",
    wrong_answers=(
        WrongAnswer(dict.fromkeys("abcd", True), WHY_NOISE["b"]),
        WrongAnswer(NOISES | {"c": True}, WHY_NOISE["c"]),
        WrongAnswer(NOISES | {"a": False}, WHY_NOISE["a"]),
        WrongAnswer(NOISES | {"d": False}, WHY_NOISE["d"]),
    ),
)  # fmt: skip


# --- 03-4: the direction of DP-RSVRG


def solution_direction(M, x, anchor, new, old, full):
    return new - M.transport(anchor, x, old - full)


_OLD = torch.tensor([0.0, 0.5, -0.2], dtype=torch.float64)
_FULL = torch.tensor([0.0, 0.1, 0.3], dtype=torch.float64)
_NEW = torch.tensor([0.4, 0.1, -0.3], dtype=torch.float64)


by_cases(
    "03-4",
    solution=solution_direction,
    hints=("At x = anchor the two one-record gradients are equal: what must be left?",
           "Which of the three vectors do not live at x?"),
    wrong_answers=(
        WrongAnswer(lambda M, x, anchor, new, old, full: new - (old - full),
                    "old and full live at the anchor. Carry them to x before you subtract."),
        WrongAnswer(lambda M, x, anchor, new, old, full: new - M.transport(anchor, x, old + full),
                    "At the anchor new equals old, and the full gradient should be left, with sign plus."),
        WrongAnswer(lambda M, x, anchor, new, old, full: new - M.transport(anchor, x, old) + full,
                    "full lives at the anchor as well: it must be carried too."),
        WrongAnswer(lambda M, x, anchor, new, old, full: new - M.transport(anchor, x, old),
                    "At the anchor this leaves nothing. What should be left is the full gradient."),
        WrongAnswer(lambda M, x, anchor, new, old, full: M.transport(anchor, x, old - full) - new,
                    "All signs are turned: at the anchor this is minus the full gradient."),
    ),
    cases=[
        {"M": _Ball, "x": _Z, "anchor": _X, "new": _NEW, "old": _OLD, "full": _FULL},
        {"M": _Ball, "x": _X, "anchor": _X, "new": _OLD, "old": _OLD, "full": _FULL},
    ],
)  # fmt: skip


# --- 03-5: the noise of one call


def solution_call_noise(mu, n, C, E):
    return math.sqrt(E) * 2 * C / (n * mu)


by_cases(
    "03-5",
    solution=solution_call_noise,
    hints=("How far can one replaced record move the mean of n clipped gradients?",
           "E noisy steps of shift a each cost the root of E times a."),
    wrong_answers=(
        WrongAnswer(lambda mu, n, C, E: math.sqrt(E) * C / (n * mu),
                    "A replaced record leaves with length C and comes back with length C the other way: 2 C."),
        WrongAnswer(lambda mu, n, C, E: 2 * C / (n * mu),
                    "That pays for one step. The same records are used in all E of them."),
        WrongAnswer(lambda mu, n, C, E: E * 2 * C / (n * mu), "Independent Gaussian steps add squares: the root of E."),
        WrongAnswer(lambda mu, n, C, E: math.sqrt(E) * 2 * C / mu,
                    "What is released is the mean of n gradients, so one record moves it by 2 C / n."),
        WrongAnswer(lambda mu, n, C, E: math.sqrt(E) * 2 * C * mu / n,
                    "A smaller shift mu needs more noise, not less."),
    ),
    cases=[{"mu": 0.1, "n": 500, "C": 1.0, "E": 1}, {"mu": 0.3, "n": 100, "C": 2.0, "E": 4}],
)  # fmt: skip


# --- 03-6: a page of the ledger

LEDGER = {"A": 0.3, "B": 0.4, "C": 0.0}
WHY_LEDGER = {
    "A": "Nine calls: shifts add as squares, so the root of 9 times 0.1.",
    "B": "Four calls of 0.1 and three of 0.2: add the squares, 0.04 and 0.12, then take the root.",
    "C": "Whoever was never called released nothing.",
}


by_hand(
    "03-6",
    solution=LEDGER,
    hints=(
        "Squares of shifts add, whatever the order.",
        "What do other agents' calls tell about a record of A, or of C, who was never called?",
    ),
    why="A: the root of 9 / 100. B: the root of 4 / 100 + 3 · 4 / 100 = 16 / 100. C: nothing that depends on C's "
    "records was released, and calls of others tell nothing of them.",
    wrong_answers=(
        WrongAnswer({"A": 0.9, "B": 1.0, "C": 0.0}, WHY_LEDGER["A"]),
        WrongAnswer({"A": 0.09, "B": 0.16, "C": 0.0}, "Take the root at the end."),
        WrongAnswer({"A": 0.3, "B": 0.4, "C": 0.5}, WHY_LEDGER["C"]),
        WrongAnswer({"A": 0.3, "B": 0.2 + 0.2 * math.sqrt(3), "C": 0.0}, WHY_LEDGER["B"]),
    ),
)


# --- 03-7: by which factor the floor changes

FACTORS = {"n twice": 0.25, "K twice": 0.5, "d twice": 2.0, "η half": 0.5}
WHY_FACTOR = {
    "n twice": "One record moves the mean half as far, so the noise has half the size: its square is a quarter.",
    "K twice": "The mean of twice as many independent noises has half the variance.",
    "d twice": "The floor is a sum over directions. Twice as many directions, twice the floor.",
    "η half": "The floor is proportional to the step, for small steps.",
}


by_hand(
    "03-7",
    solution=FACTORS,
    hints=(
        "Look at the formula: where does each letter stand? n stands inside σ, at the same ε of a call, and d is "
        "the number of terms.",
        "The noise size is proportional to 1 / n, but its square stands in the floor. Here each agent keeps its n.",
    ),
    why="The noise of a gradient is proportional to 1 / n, and the floor to its square. A mean over twice as many "
    "agents halves the variance. Each dimension adds as much again. Small steps let the noise average out.",
    wrong_answers=(
        WrongAnswer(FACTORS | {"n twice": 0.5}, WHY_FACTOR["n twice"]),
        WrongAnswer(FACTORS | {"K twice": 0.25}, WHY_FACTOR["K twice"]),
        WrongAnswer(FACTORS | {"d twice": math.sqrt(2)}, WHY_FACTOR["d twice"]),
        WrongAnswer(FACTORS | {"η half": 0.25}, WHY_FACTOR["η half"]),
    ),
)

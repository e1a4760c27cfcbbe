"""Chapter 5: drawings and answers of exercises of the lesson on C-VFL."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from torch import Tensor

from fedbook.lab import style
from fedbook.lab.compare import not_right, short
from fedbook.lab.draw import draw_images
from fedbook.lab.exercises import WrongAnswer, by_hand, exercise

__all__ = [
    "draw_cells", "draw_curves", "draw_densities", "draw_dither", "draw_errors", "draw_path",
    "draw_quarters", "draw_readings", "draw_round", "draw_split",
]  # fmt: skip

SERVER, PARTY, UP = style.PALETTE[2], style.PALETTE[0], style.PALETTE[1]

# --- drawings


def draw_split(ax: Axes, vertical: bool) -> None:
    """A table of six people by six features, cut into the clients' rows or into the parties' columns."""
    shades = (style.PALETTE[0], style.PALETTE[5], style.PALETTE[3])
    for row in range(6):
        for column in range(6):
            part = (column if vertical else row) // 2
            ax.add_patch(Rectangle((column, 5 - row), 1, 1, facecolor=shades[part], alpha=0.35, edgecolor="white"))
    for part in range(3):
        corner = (2 * part, 0) if vertical else (0, 4 - 2 * part)
        width, height = (2, 6) if vertical else (6, 2)
        ax.add_patch(Rectangle(corner, width, height, fill=False, edgecolor=shades[part], linewidth=2.2))
        middle = (corner[0] + width / 2, corner[1] + height / 2)
        ax.text(*middle, f"{'party' if vertical else 'client'}\n{part + 1}", ha="center", va="center")
    ax.text(-0.3, 3, "people", rotation=90, ha="right", va="center")
    ax.text(3, -0.4, "features", ha="center", va="top")
    ax.set(xlim=(-1, 7), ylim=(-1.2, 6.3), aspect="equal")
    ax.set_title("vertical: same people, other features" if vertical else "horizontal: other people, same features")
    ax.set_axis_off()


def draw_round(ax: Axes) -> None:
    """One round as a timeline: embed, send up, wait for all, send down, Q local steps of everybody."""
    lanes = {"server": 2.0, "party 1": 1.0, "party 2": 0.0}
    for name, y in lanes.items():
        ax.text(-0.2, y, name, ha="right", va="center")
        ax.plot([0, 12], [y, y], color=style.GRID, linewidth=1, marker="", linestyle="-", zorder=0)
    bars = [(1.0, 0, 1.6, "embed", PARTY), (0.0, 0, 2.2, "embed", PARTY), (2.0, 3.2, 0.9, "compress θ₀", SERVER)]
    for x, width, y, text, colour in [(x, w, y, t, c) for y, x, w, t, c in bars]:
        _bar(ax, x, y, width, text if width > 1.2 else "", colour)
    ax.text(3.3, 2.38, "compress θ₀", ha="left", va="bottom", color=SERVER)
    for y, start in ((1.0, 1.6), (0.0, 2.2)):
        _arrow(ax, (start, y + 0.2), (3.15, 1.8), UP)
    ax.text(1.6, 1.55, "ĥ up", color=UP, ha="center")
    for y in (1.0, 0.0):
        _arrow(ax, (4.15, 1.8), (5.5, y + 0.2), SERVER)
    ax.text(5.5, 1.5, "all ĥ, $\\hat{\\theta}_0$ down", color=SERVER, ha="left")
    for y, colour in ((2.0, SERVER), (1.0, PARTY), (0.0, PARTY)):
        for q in range(4):
            _bar(ax, 5.6 + 1.3 * q, y, 1.2, ("step 1", "step 2", "…", "step Q")[q], colour)
    ax.plot([3.15, 3.15], [-0.4, 2.5], color=style.STRONG_REFERENCE, linestyle="--", linewidth=1.2, marker="")
    ax.text(3.15, -0.55, "barrier: all are in", ha="center", va="top")
    ax.annotate("", (11.9, -0.75), (5.6, -0.75), arrowprops={"arrowstyle": "->", "color": style.REFERENCE})
    ax.text(8.75, -0.85, "nothing crosses; the others' ĥ grow stale", ha="center", va="top")
    ax.set(xlim=(-1.4, 12), ylim=(-1.5, 2.9))
    ax.set_axis_off()


def _bar(ax: Axes, x: float, y: float, width: float, text: str, colour: str) -> None:
    look = {"boxstyle": "round,pad=0,rounding_size=0.08", "edgecolor": colour, "facecolor": "white", "linewidth": 1.5}
    ax.add_patch(FancyBboxPatch((x, y - 0.2), width, 0.4, **look, zorder=2))
    ax.text(x + width / 2, y, text, ha="center", va="center", zorder=3)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    look = {"arrowstyle": "-|>", "mutation_scale": 12, "linewidth": 1.5, "color": colour}
    ax.add_patch(FancyArrowPatch(start, end, shrinkA=0, shrinkB=0, zorder=1, **look))


def draw_dither(axes: Sequence[Axes], x: float, levels: np.ndarray, u: np.ndarray, decoded: np.ndarray) -> None:
    """Above: input, input plus the last dither, its level, what is decoded. Below: all decoded values so far.

    Shapes: ``u`` and ``decoded`` [n].
    """
    top, bottom = axes
    step, moved = levels[1] - levels[0], x + u[-1]
    level = decoded[-1] + u[-1]
    top.plot(levels, np.zeros(len(levels)), "|", color=style.INK, markersize=26, markeredgewidth=2, linestyle="")
    top.axhline(0, color=style.GRID, linewidth=1, zorder=0)
    points = ((x, "input", PARTY, 0.9), (moved, "input + u", UP, 0.5), (level, "its level", style.INK, -0.6),
              (decoded[-1], "level - u: decoded", SERVER, -1.0))  # fmt: skip
    for place, text, colour, height in points:
        top.plot([place], [0], "o", color=colour, markersize=8, linestyle="", alpha=0.9)
        top.text(place, height, text, color=colour, ha="center", va="center")
    top.set(xlim=(levels[0] - 0.3, levels[-1] + 0.3), ylim=(-1.25, 1.15), yticks=[], title="the last message")
    edges = np.linspace(x - step / 2, x + step / 2, 13)
    bottom.hist(decoded, bins=edges, color=SERVER, alpha=0.6)
    bottom.axvline(x, color=PARTY, linewidth=2)
    bottom.set(xlim=top.get_xlim(), ylim=(0, max(8, len(u) / 4)), xlabel="decoded value", ylabel="messages")


def draw_cells(ax: Axes, codes: Tensor, points: Tensor) -> None:
    """The unit square coloured by the code of each place, and the codewords. Shapes: [n, n] by x and y, [4^b, 2]."""
    order = np.arange(len(points)) * 7 % len(points)  # neighbours get different colours
    look = {"extent": (-0.5, 0.5, -0.5, 0.5), "origin": "lower", "interpolation": "nearest", "alpha": 0.55}
    ax.imshow(order[codes.numpy().T], cmap="tab20", **look)
    ax.plot(*points.numpy().T, "o", color=style.INK, markersize=5, linestyle="")
    ax.set(xlim=(-0.62, 0.62), ylim=(-0.62, 0.62), aspect="equal", xticks=[], yticks=[])
    ax.set(xlabel="first number", ylabel="second number")


def draw_quarters(ax: Axes, parts: Sequence[Tensor]) -> None:
    """Images as their four quarters, pulled apart. Shapes: four tensors [n, 14, 14]."""
    count, side = parts[0].shape[:2]
    canvas = torch.full((count, 2 * side + 3, 2 * side + 3), float("nan"))
    for m, part in enumerate(parts):
        row, column = (side + 3) * (m // 2), (side + 3) * (m % 2)
        canvas[:, row : row + side, column : column + side] = part
    gap = torch.full((count, canvas.shape[1], 8), float("nan"))
    ax.imshow(torch.cat([canvas, gap], 2).transpose(0, 1).flatten(1).numpy(), cmap="gray_r")
    ax.set_axis_off()


def draw_readings(ax: Axes, true: Tensor, guess: Tensor) -> None:
    """Quarters above, what was read from their embeddings below. Shapes: [n, 14, 14] each."""
    both = torch.cat([true, guess])
    both = ((both - true.min()) / (true.max() - true.min())).clamp(0, 1)
    draw_images(ax, both[:, None], columns=len(true))


def draw_curves(
    ax: Axes, places: Mapping[str, Sequence[Sequence[float]]], scores: Mapping[str, Sequence[Sequence[float]]],
    seeds: bool = True,
) -> None:  # fmt: skip
    """The mean score of each method against rounds or megabytes, with ``seeds`` also each run, pale; no starts.

    Shapes: a name to [S, T] in both.
    """
    colours = (style.STRONG_REFERENCE, style.PALETTE[1], style.PALETTE[3], style.PALETTE[5])
    looks = zip(colours, ("-", "--", "-.", ":"), strict=True)
    for (colour, line), (name, runs) in zip(looks, scores.items(), strict=True):
        look = {"color": colour, "linestyle": line, "marker": ""}
        if seeds:
            ax.plot(np.array(places[name]).T[1:], np.array(runs).T[1:], linewidth=0.7, alpha=0.35, **look)
        ax.plot(np.mean(places[name], 0)[1:], np.mean(runs, 0)[1:], linewidth=2.2, label=name, **look)


def draw_path(ax: Axes, points: np.ndarray, steps: int, best: np.ndarray, curvature: np.ndarray) -> None:
    """The path of all local steps over lines of equal loss; a dot at every exchange. Shapes: ``points`` [n, 2]."""
    grid = np.linspace(-0.6, 2.6, 90)
    plane = np.stack(np.meshgrid(grid, grid - 0.6), -1) - best
    loss = np.einsum("...i,ij,...j->...", plane, curvature, plane) / 2
    ax.contour(grid, grid - 0.6, loss, levels=[0.02, 0.1, 0.3, 0.8, 1.6, 3, 5], colors=style.SHADE, linewidths=0.8)
    ax.plot(*points.T, color=PARTY, linewidth=1.2, marker="", linestyle="-", alpha=0.8)
    ax.plot(*points[::steps].T, "o", color=UP, markersize=5, linestyle="")
    ax.plot(*best, "*", color=style.INK, markersize=13, linestyle="")
    ax.set(xlim=(-0.6, 2.6), ylim=(-1.2, 2.0), xlabel="$θ_1$", ylabel="$θ_2$", aspect="equal")


def draw_errors(ax: Axes, inputs: np.ndarray, plain: np.ndarray, dithered: np.ndarray) -> None:
    """The error of plain rounding and the mean error with dither against the input. Shapes: [n] each."""
    ax.plot(inputs, plain, color=style.FAINT_REFERENCE, marker="", linestyle="--", linewidth=1.5)
    ax.plot(inputs, dithered, color=UP, marker="", linestyle="-", linewidth=1.5)
    ax.text(inputs[8], plain.min() * 1.02, "rounded", color=style.FAINT_REFERENCE, va="top")
    ax.text(inputs[0], 1.12 * plain.max(), "with dither, mean", color=UP, va="center")
    ax.set(ylim=(1.3 * plain.min(), 1.3 * plain.max()), xlabel="input h", ylabel="error")
    ax.set_title("Rounding errs the same way each time")


def draw_densities(ax: Axes, errors: Mapping[float, np.ndarray], step: float) -> None:
    """Histograms of the dithered errors of some inputs over the density 1 / step. Shapes: [n] each."""
    edges = np.linspace(-step / 2, step / 2, 25)
    for i, (value, error) in enumerate(errors.items()):
        ax.hist(error, bins=edges, density=True, histtype="step", color=style.PALETTE[i], label=f"h = {value:g}")
    ax.plot([-step / 2, step / 2], [1 / step] * 2, color=style.INK, linestyle="--", marker="", linewidth=1.5)
    ax.set(xlabel="error", ylabel="density", ylim=(0, 1.8 / step))
    ax.set_title("With dither: uniform, whatever the input")
    ax.legend(loc="upper center", ncols=2, fontsize=9)


# --- exercises


by_hand(
    "05-1",
    names=("theta_1", "theta_2", "prediction"),
    solution=[2.25, 2.25, 4.5],
    hints=("A party's slope is h_1 + h_2 - y. In both steps the other's h is still the 0 that was exchanged.",
           "Party 1: 0, then 3/2, then ...? Party 2 does the same at the same time.",),
    why="First step: the slope is 0 + 0 - 3, so θ goes from 0 to 3/2. Second step: the own 3/2 is fresh, the "
        "other's 0 is old, the slope is -3/2, and θ ends at 9/4. Both do so, and the prediction overshoots: twice "
        "9/4, where 3 is right.",
    wrong_answers=(
        WrongAnswer([1.5, 1.5, 3.0],
                    "That is one step, or two on fresh embeddings. Here nobody sees the other's first step."),
        WrongAnswer([2.25, 0.5625, 2.8125],
                    "Party 2 does not wait for party 1: both use what was exchanged at the start."),
        WrongAnswer([3.0, 3.0, 6.0], "The step size is one half."),
        WrongAnswer([2.25, 2.25, 2.25], "The prediction is the sum."),
    ),
)  # fmt: skip


def solution_dithered(h: Tensor, u: Tensor, bits: int, low: float, high: float) -> Tensor:
    step = (high - low) / (2**bits - 1)
    codes = ((h + u - low) / step).round().clamp(0, 2**bits - 1)
    return low + step * codes - u


def _dithered(added: float = 1.0, taken: float = 1.0, levels: int = 1, down: bool = False) -> Callable[..., Tensor]:
    """The quantiser with one of its usual mistakes."""

    def answer(h: Tensor, u: Tensor, bits: int, low: float, high: float) -> Tensor:
        step = (high - low) / (2**bits - levels)
        codes = (h + added * u - low) / step
        codes = codes.floor() if down else codes.round()
        return low + step * codes.clamp(0, 2**bits - 1) - taken * u

    return answer


@exercise(
    "05-2",
    solution=solution_dithered,
    hints=("Round h + u instead of h, as `rounded` above does, its clamp included.",
           "A code says a level: low + step * code. Then take the dither off again.",),
    wrong_answers=(
        WrongAnswer(_dithered(taken=0.0),
                    "Those are levels. The receiver knows the dither and must take it off again."),
        WrongAnswer(_dithered(added=0.0), "The dither must be added before rounding, not only taken off afterwards."),
        WrongAnswer(_dithered(down=True), "The nearest level is meant: `int` and `floor` take the one below."),
        WrongAnswer(_dithered(added=0.0, taken=0.0), "That is plain rounding."),
        WrongAnswer(_dithered(taken=-1.0), "The sender adds the dither, the receiver SUBTRACTS it."),
        WrongAnswer(_dithered(-1.0, -1.0),
                    "You subtract before rounding and add afterwards; here it is the other way round."),
        WrongAnswer(_dithered(levels=0), "2^b levels from end to end leave 2^b - 1 steps between them."),
    ),
)  # fmt: skip
def check_dithered(answer: Any) -> str | None:
    for bits, low, high in ((2, -4.0, 4.0), (3, 0.0, 1.0)):
        step = (high - low) / (2**bits - 1)
        h = torch.linspace(low, high, 13, dtype=torch.float64)
        u = step * (torch.arange(13, dtype=torch.float64) * 0.37 % 1 - 0.5)
        h[0], u[0] = low + 1.7 * step, 0.0  # rounded down this is another number
        h[1], u[1] = low + 2.2125 * step, 0.375 * step  # and here every other usual mistake gives one of its own
        h[-1] = high + 2 * step  # beyond the last level
        found = answer(h.clone(), u.clone(), bits, low, high)
        if not isinstance(found, Tensor) or found.shape != h.shape or not found.dtype.is_floating_point:
            return f"It should return a floating-point tensor of shape {tuple(h.shape)}; it returned {short(found)}."
        right = solution_dithered(h, u, bits, low, high)
        off = (found.double() - right).abs() > 1e-6
        if bool(off.any()) or not bool(torch.isfinite(found).all()):
            i = int(off.double().argmax())
            return (f"With {bits} bits on [{low:g}, {high:g}], h = {h[i]:.3f} and u = {u[i]:.3f} the decoded value is "
                    f"{right[i]:.3f}; it gave {found[i]:.3f}.")  # fmt: skip
    return None


by_hand(
    "05-3",
    names=("area", "distance"),
    solution=[math.sqrt(3) / 2, math.sqrt(1 / (8 * math.sqrt(3)))],
    hints=("The text has the area for every d.", "Solve V = sqrt(3)/2 d^2 for d, with V = 1/16.",),
    why="V = √3/2 · d². For d = 1 this is √3/2. For V = 1/16, d is the root of 1 / (8 √3).",
    wrong_answers=(
        WrongAnswer([1.0, 0.25], "Those are squares. A hexagon with neighbours at 1 is smaller."),
        WrongAnswer([3 * math.sqrt(3) / 2, 0.2687],
                    "That is the hexagon of SIDE 1; d is the distance of two middles, sqrt(3) times the side."),
        WrongAnswer([math.sqrt(3) / 2, 0.25],
                    "A square of that area has its neighbours at 1/4. A hexagon's lie a little further apart."),
        WrongAnswer([math.sqrt(3) / 2, 1 / (8 * math.sqrt(3))], "That is d squared."),
    ),
)  # fmt: skip


def solution_one_round(
    theta: list[float], X: list[Tensor], y: Tensor, compress: Callable[[Tensor], Tensor], steps: int, lr: float
) -> list[float]:
    views = [compress(X[m] * theta[m]) for m in (0, 1)]  # the only exchange
    new = list(theta)
    for m in (0, 1):
        for _ in range(steps):
            own = X[m] * new[m]  # fresh and exact
            slope = X[m] @ (own + views[1 - m] - y) / len(y)  # the other's view, as it came
            new[m] = new[m] - lr * float(slope)
    return new


def _one_round(
    *, own: bool = False, slopes: bool = False, fresh: bool = False, raw: bool = False, frozen: bool = False,
    summed: bool = False,
) -> Callable[..., list[float]]:  # fmt: skip
    """The round with some of its usual mistakes."""

    def answer(theta: list[float], X: list[Tensor], y: Tensor, compress: Any, steps: int, lr: float) -> list[float]:
        views = [X[m] * theta[m] if raw else compress(X[m] * theta[m]) for m in (0, 1)]
        new = list(theta)
        for m in (0, 1):
            for _ in range(steps):
                mine = X[m] * (theta[m] if frozen else new[m])
                slope = X[m] @ ((compress(mine) if own else mine) + views[1 - m] - y) / (1 if summed else len(y))
                new[m] = new[m] - lr * float(compress(slope) if slopes else slope)
            if fresh:
                views[m] = compress(X[m] * new[m])
        return new

    return answer


@exercise(
    "05-4",
    solution=solution_one_round,
    hints=("What is sent is compressed, and nothing else: neither the slope nor the own embedding.",
           "Party 2 must see what party 1 sent at the start of the round.",),
    wrong_answers=(
        WrongAnswer(_one_round(own=True), "A party uses its own embedding exactly: only what crosses is compressed."),
        WrongAnswer(_one_round(slopes=True),
                    "C-VFL compresses embeddings, not gradients: slopes never leave the party."),
        WrongAnswer(_one_round(fresh=True),
                    "Party 2 sees what party 1 did in this round. Views come once a round, for both at once."),
        WrongAnswer(_one_round(raw=True), "What crosses must be compressed."),
        WrongAnswer(_one_round(frozen=True), "The OWN embedding is recomputed in every step."),
        WrongAnswer(_one_round(summed=True), "The loss is a mean over the batch."),
    ),
)  # fmt: skip
def check_one_round(answer: Any) -> str | None:
    X = [torch.tensor([2.0, 1.0, -2.0, -1.0]), torch.tensor([1.0, 2.0, -1.0, -2.0])]
    y = 1.5 * X[0] + 0.5 * X[1] + torch.tensor([0.1, 0.0, 0.0, -0.2])
    for case, (steps, lr) in enumerate(((3, 0.1), (1, 0.1), (5, 0.07)), start=1):
        for name, compress in (("in fifths", lambda h: (5 * h).round() / 5), ("exact", lambda h: h.clone())):
            theta = [0.3, -0.4]
            found = answer(list(theta), [x.clone() for x in X], y.clone(), compress, steps, lr)
            found = found.tolist() if isinstance(found, Tensor) else found
            if not isinstance(found, (list, tuple)) or len(found) != 2:
                return f"It should return a list of two numbers; it returned {short(found)}."
            right = solution_one_round(theta, X, y, compress, steps, lr)
            for m in (0, 1):
                if not abs(float(found[m]) - right[m]) < 1e-4:
                    return (f"In case {case}, Q = {steps}, embeddings rounded {name}, theta_{m + 1} should be "
                            f"{right[m]:.4f}; it is {float(found[m]):.4f}.")  # fmt: skip
    return None


by_hand(
    "05-5",
    names=("number of bytes up", "number of bytes down"),
    solution=[3200, 14240],
    hints=("One party sends B P numbers of two bits: how many bytes?",
           "Each party gets everybody's embeddings and the server's model: matrix and biases.",),
    why="Up: 4 parties · 100 · 32 numbers · 2 bits = 3200 bytes. To one party go down all of these 3200, the "
        "matrix with 1280 · 2 bits = 320 bytes and the biases with 40: 3560, times four parties.",
    wrong_answers=(
        WrongAnswer([3200, 3560], "That is what ONE party gets. The server sends it to each of the four."),
        WrongAnswer([3200, 11040], "Algorithm 1 sends everybody everything, the own embeddings too."),
        WrongAnswer([800, 14240], "That is one party's message; there are four."),
        WrongAnswer([25600, 113920], "Those are bits."),
        WrongAnswer([3200, 14080], "The ten biases go as they are, four bytes each."),
        WrongAnswer([3200, 33440], "The server's matrix has two bits a number too."),
    ),
)  # fmt: skip


@exercise(
    "05-6",
    solution=[-0.8, -1.6, "diverge"],
    hints=("With very many steps r is 0. What is left of the formula?",
           "A round multiplies the common error by the factor. When does it grow in size?",),
    why="At r = 0 a party answers the others' errors in full: the factor is -(M - 1) c/a. It is -4/5 for two "
        "parties, -8/5 for three, and an error that is multiplied by more than one in size grows.",
    wrong_answers=(
        WrongAnswer([0.8, 1.6, "diverge"], "The error changes its sign in every round."),
        WrongAnswer([-1.6, -2.4, "diverge"], "A party answers to the OTHERS' errors: there are M - 1 of them."),
        WrongAnswer([-2.0, -4.0, "diverge"], "Divide by the own second derivative a."),
        WrongAnswer([-0.8, -0.8, "converge"], "With three parties each answers to two old errors."),
        WrongAnswer([-0.8, -1.6, "converge"], "A factor beyond -1 makes the error larger every round."),
    ),
)  # fmt: skip
def check_factor(answer: Any) -> str | None:
    if not isinstance(answer, (list, tuple)) or len(answer) != 3:
        return f"It should be a list of three entries; it is {short(answer)}."
    found = not_right(list(answer[:2]), [-0.8, -1.6], ("factor of two parties", "factor of three parties"))
    if found is None and not str(answer[2]).strip().lower().startswith("diverge"):
        return f"The one word does not fit the factor of three parties; it is {short(answer[2])}."
    return found


def solution_serve(W: Tensor, z: Tensor, target: Tensor, lr: float) -> tuple[Tensor, Tensor]:
    error = z @ W.T - target
    derivative = error @ W / len(z)  # of the mean loss, with the model that made the error
    return W - lr * error.T @ z / len(z), derivative


def _serve(old: bool = True, mean: bool = True, step: bool = True, sign: float = 1.0) -> Callable[..., Any]:
    """The server with one of its usual mistakes."""

    def answer(W: Tensor, z: Tensor, target: Tensor, lr: float) -> tuple[Tensor, Tensor]:
        error = z @ W.T - target
        new = W - lr * error.T @ z / len(z)
        derivative = sign * error @ (W if old else new) / (len(z) if mean else 1)
        return (new if step else W), derivative

    return answer


@exercise(
    "05-7",
    solution=solution_serve,
    hints=("The derivative belongs to the model with which the error was made: take it before the step.",
           "The loss is a mean over the batch: what do its derivatives have below?",),
    wrong_answers=(
        WrongAnswer(_serve(old=False, mean=False),
                    "Both mistakes are still in it: the new W, and no division by the batch."),
        WrongAnswer(_serve(old=False), "That is the derivative at a model that nobody has judged: use the old W."),
        WrongAnswer(_serve(mean=False), "The mean loss has the batch size below."),
        WrongAnswer(_serve(sign=-1.0), "The parties subtract it: send the derivative itself."),
        WrongAnswer(_serve(step=False), "The server must step on its own model too."),
    ),
)  # fmt: skip
def check_serve(answer: Any) -> str | None:
    generator = torch.Generator().manual_seed(0)
    W, z, target = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((3, 4), (5, 4), (5, 3)))
    found = answer(W.clone(), z.clone(), target.clone(), 0.3)
    if not isinstance(found, (list, tuple)) or len(found) != 2 or not all(isinstance(f, Tensor) for f in found):
        return f"It should return two tensors; it returned {short(found)}."
    words = ("new W", "derivative by z")
    for name, given, right in zip(words, found, solution_serve(W, z, target, 0.3), strict=True):
        if given.shape != right.shape:
            return f"The {name} has the shape {tuple(given.shape)}; it should be {tuple(right.shape)}."
        if not torch.allclose(given.double(), right, atol=1e-8):
            return f"The {name} is off by up to {float((given - right).abs().max()):.4f}."
    return None


@exercise(
    "05-8",
    solution="rounds",
    hints=("A factor that both runs have cannot explain a difference.",
           "A round is about fifteen times smaller, not sixteen. How many times fewer bytes does the table say?",),
    why="Headers and biases take the factor from sixteen to fifteen. What the table says is lower still, and that "
        "part can only be rounds. Every view goes down four times in both runs, so this cancels in the ratio. "
        "Dither and positions cost no bytes here.",
    wrong_answers=(
        WrongAnswer("headers", "Headers and biases take the factor from 16 to about 15. What takes it further down?"),
        WrongAnswer("downlink", "Uncompressed views go down four times too: that is the same factor for both."),
        WrongAnswer("dither", "The dither comes from a seed in the header: it costs no bits a number."),
        WrongAnswer("positions", "Only top-k sends positions."),
    ),
)  # fmt: skip
def check_reason(answer: Any) -> str | None:
    word = str(answer).strip().lower()
    if word not in ("rounds", "headers", "downlink", "dither", "positions"):
        return f"It should be one of the five words; it is {short(answer)}."
    if word in ("dither", "positions"):
        return f"That costs two-bit scalar nothing: {word}."
    if word == "downlink":
        return "Every view goes down four times in both runs: the same factor cancels."
    return None if word == "rounds" else "There is a larger reason than headers and biases."

"""The lesson on DP2-FedSAM: its drawings, the answers of its exercises."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Circle
from torch import Tensor

from fedbook.chapters.fedsc import draw_learning
from fedbook.lab import gallery, style
from fedbook.lab.compare import short
from fedbook.lab.draw import draw_images
from fedbook.lab.exercises import WrongAnswer, by_cases, by_hand, exercise

__all__ = [
    "draw_images", "draw_learning", "draw_losses", "draw_radius", "draw_rates", "draw_system", "draw_updates",
    "draw_walk",
]  # fmt: skip

CLIENT_COLOURS = (style.PALETTE[0], style.PALETTE[5], style.PALETTE[3])  # of the clients A, B, C in the plane

# --- drawings


def draw_system(ax: Axes) -> str:
    """The server with the body, a secure sum below it where the noise enters, three clients with body and head."""
    boxes = [
        gallery.Box(50, 90, 40, 17, "server\nbody φ", gallery.SERVER),
        gallery.Box(50, 58, 46, 17, "secure sum\n+ noise  σ C", gallery.SERVER),
    ]
    boxes += [
        gallery.Box(x, 15, 27, 27, f"client {name}\nimages and head $h_{name}$\nstay here")
        for x, name in ((15, "A"), (50, "B"), (85, "C"))
    ]
    arrows = [gallery.Arrow(1, 0, "noisy sum / r K", gallery.DOWN)]
    arrows += [gallery.Arrow(k, 1, f"clip($Δ_{name}$)", gallery.UP) for k, name in ((2, "A"), (3, "B"), (4, "C"))]
    sentence = gallery.draw_system(ax, boxes, arrows)
    for x, side in ((8, "left"), (92, "right")):
        look = {"arrowstyle": "-|>", "color": gallery.DOWN, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
        edge = 30 if side == "left" else 70
        look["connectionstyle"] = "arc3,rad=0.25" if side == "left" else "arc3,rad=-0.25"
        ax.annotate("", xy=(x, 29.5), xytext=(edge, 90), arrowprops=look)
        ax.text(x + (3 if side == "left" else -3), 75, "φ to all", color=gallery.DOWN, ha="center", fontsize=11)
    return sentence


def draw_updates(
    ax: Axes, updates: Sequence[Tensor], clipped: Sequence[Tensor], length: float, bound: float, noise: Tensor
) -> None:
    """Three updates in the plane, pale; clipped, full; their sum, black; sums with noise as dots, its length a circle.

    Shapes: ``updates``, ``clipped`` [2] each, ``noise`` [n, 2].
    """
    total = sum(clipped)
    dots = (total + noise).numpy()
    ax.plot(*dots.T, ".", color=style.FAINT_REFERENCE, markersize=3, alpha=0.5)
    ax.add_patch(Circle(total.tolist(), length, fill=False, color=style.FAINT_REFERENCE, linewidth=1.4))
    ax.add_patch(Circle((0, 0), bound, fill=False, color=style.PALETTE[1], linestyle="--", linewidth=1.4))
    for name, colour, full, short_one in zip("ABC", CLIENT_COLOURS, updates, clipped, strict=True):
        ax.plot(*zip((0, 0), full.tolist(), strict=True), color=colour, alpha=0.35, marker="", linestyle=":")
        _arrow(ax, short_one, colour)
        place = full * (1 + 0.05 / full.norm().clamp(min=1e-9))
        ax.text(*place.tolist(), name, color=colour, ha="center", va="center", fontweight="bold")
    _arrow(ax, total, style.INK)
    ax.set(xlim=(-0.95, 0.65), ylim=(-0.55, 0.85), aspect="equal", xlabel="$φ_1$", ylabel="$φ_2$")


def _arrow(ax: Axes, end: Tensor, colour: str) -> None:
    look = {"arrowstyle": "-|>", "color": colour, "linewidth": 2, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", xy=tuple(end.tolist()), xytext=(0, 0), arrowprops=look)


def draw_walk(ax: Axes, side: Tensor, valley: Tensor, paths: Mapping[str, Tensor], looks: Tensor, t: int) -> None:
    """Two descents in a valley of equal depth after ``t`` steps; dotted: where the second one looks from its place.

    Shapes: ``side`` [n], ``valley`` [n, n] (first axis the vertical one), each path and ``looks`` [steps + 1, 2].
    """
    ax.contour(side, side, valley, levels=np.geomspace(0.004, 2.5, 12), colors=style.SHADE, linewidths=0.8)
    ax.plot(side, 1 / side, color=style.REFERENCE, linewidth=1.2, linestyle="--", marker="")
    ax.plot([1], [1], "*", color=style.PALETTE[2], markersize=15)
    for (name, path), colour in zip(paths.items(), (style.PALETTE[0], style.PALETTE[1]), strict=True):
        ax.plot(*path[: t + 1].T, color=colour, marker=".", markersize=4, linewidth=1.2, linestyle="-")
        ax.plot(*path[t].tolist(), "o", color=colour, markersize=8, label=name)
    here, ahead = list(paths.values())[1][t].tolist(), looks[t].tolist()
    ax.plot(*zip(here, ahead, strict=True), color=style.PALETTE[1], linestyle=":", marker="", linewidth=2)
    ax.plot(*ahead, "o", color=style.PALETTE[1], markerfacecolor="white", markersize=6)
    ax.set(xlim=(0.3, 2.4), ylim=(0.1, 1.6), xlabel="$φ_1$", ylabel="$φ_2$", aspect="equal")
    ax.legend(loc="upper right")


def draw_losses(ax: Axes, total: np.ndarray, epsilons: Mapping[str, float]) -> None:
    """The distribution of the privacy loss of a whole run, the part above the first epsilon filled; lines at each.

    Shapes: ``total`` [draws].
    """
    heights, edges = np.histogram(total, bins=np.linspace(-3, 4, 141), density=True)
    first = next(iter(epsilons.values()))
    ax.stairs(heights, edges, color=style.INK)
    above = edges[:-1] >= first
    ax.stairs(heights[above], edges[np.append(above, True)], fill=True, color=style.PALETTE[1])
    for i, (name, value) in enumerate(epsilons.items()):
        colour = (style.PALETTE[1], style.FAINT_REFERENCE)[min(i, 1)]
        ax.axvline(value, color=colour, linestyle="--", linewidth=1.2)
        ax.text(value + 0.06, heights.max() * (0.92 - 0.16 * i), name, color=colour)
    ax.set(xlabel="privacy loss of the whole run", ylabel="density", xlim=(-3, 4))


def draw_radius(ax: Axes, scores: pd.DataFrame) -> None:
    """Accuracy against the SAM radius, a curve for each clip. ``scores``: rows the clips, columns the radii."""
    places = range(len(scores.columns))
    colours = (style.FAINT_REFERENCE, style.PALETTE[0], style.PALETTE[1], style.PALETTE[3])
    heights = np.sort(scores.iloc[:, 0].to_numpy())
    for i in range(1, len(heights)):  # labels one above the other, where curves start close together
        heights[i] = max(heights[i], heights[i - 1] + 0.006)
    for i, (clip_norm, row) in enumerate(scores.iterrows()):
        colour, rank = colours[i % 4], int((scores.iloc[:, 0] < row.iloc[0]).sum())
        ax.plot(places, row, color=colour, marker=style.MARKERS[i], linestyle=style.LINES[i % 4], linewidth=1.8)
        ax.text(-0.15, heights[rank], f"C = {clip_norm:g}", color=colour, va="center", ha="right")
    ax.set_xticks(places, [f"{radius:g}" for radius in scores.columns])
    ax.set(xlabel="radius q", ylabel="accuracy", xlim=(-1.1, len(scores.columns) - 0.8))


def draw_rates(ax: Axes, attacks: Mapping[str, tuple[np.ndarray, np.ndarray]], epsilon: float, delta: float) -> None:
    """True against false positive rate of each attack, and the region that (epsilon, delta) allows.

    Shapes: each attack two arrays [thresholds], false and true positive rates.
    """
    f = np.linspace(0, 1, 400)
    bound = np.minimum(1, np.minimum(math.exp(epsilon) * f + delta, 1 - math.exp(-epsilon) * (1 - f - delta)))
    ax.fill_between(f, f, bound, color=style.PALETTE[2], alpha=0.15, linewidth=0)
    ax.plot(f, bound, color=style.PALETTE[2], marker="", linestyle="--")
    for (name, (false, true)), colour in zip(attacks.items(), (style.PALETTE[2], style.PALETTE[1]), strict=False):
        ax.plot(false, true, color=colour, marker="", linestyle="-", linewidth=2, label=name)
    ax.plot(f, f, color=style.FAINT_REFERENCE, marker="", linestyle=":")
    ax.set(xlabel="false positive rate", ylabel="true positive rate", aspect="equal")
    ax.legend(loc="lower right")


# --- 04-1: clip a whole cohort


def solution_clip_cohort(updates, bound):
    lengths = updates.norm(dim=1, keepdim=True)
    return updates * (bound / lengths.clamp(min=1e-12)).clamp(max=1.0)


_MIXED = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)


by_cases(
    "04-1",
    solution=solution_clip_cohort,
    hints=("One length a row: `norm(dim=1, keepdim=True)`.", "A row that is short enough keeps the factor 1."),
    wrong_answers=(
        WrongAnswer(lambda updates, bound: updates / updates.norm(dim=1, keepdim=True).clamp(min=1e-12) * bound,
                    "Rows that are shorter than C must stay as they are, and zero stays zero."),
        WrongAnswer(lambda updates, bound: updates * min(1.0, bound / updates.norm().item()),
                    "That is one length for the whole cohort. Each client's update has its own length."),
        WrongAnswer(lambda updates, bound: updates.clamp(-bound, bound),
                    "That bounds every entry. A row of d such entries may still be sqrt(d) C long."),
        WrongAnswer(lambda updates, bound: updates
                    * (bound / updates.norm(dim=0, keepdim=True).clamp(min=1e-12)).clamp(max=1.0),
                    "You took the lengths of columns. A client is a row: dim=1."),
        WrongAnswer(lambda updates, bound: updates
                    * (bound / updates.square().sum(1, keepdim=True).clamp(min=1e-12)).clamp(max=1.0),
                    "You divided by the squared length."),
    ),
    cases=[{"updates": _MIXED, "bound": 1.0}, {"updates": _MIXED, "bound": 0.25}],
)  # fmt: skip


# --- 04-2: the length of the noise


by_hand(
    "04-2",
    solution=6.0,
    hints=("What is the standard deviation of one coordinate of the sum?", "d coordinates: the root of d."),
    why="σ C is a fifth in each coordinate, and 900 coordinates make that 30 times as long: 30 / 5.",
    wrong_answers=(
        WrongAnswer(0.2, "That is one coordinate. The length takes all 900 of them."),
        WrongAnswer(180.0, "Squares add, not lengths: the root of d."),
        WrongAnswer(0.2 * math.sqrt(2), "That is the length in the plane; here d is 900."),
        WrongAnswer(60.0, "sigma counts in units of C, which is a tenth."),
    ),
)


# --- 04-3: a head sent by mistake


by_hand(
    "04-3",
    solution={"clipped with the body": 2.0, "beside it in clear": math.inf},
    hints=(
        "Which vector does the clip bound, and does it matter what its entries mean?",
        "A message without noise: which epsilon bounds what it tells?",
    ),
    why="Clipped together the whole vector has length C at most, whatever its entries mean: the ε of the run "
        "holds. A message in clear has no noise, so no finite ε bounds what it tells.",
    wrong_answers=(
        WrongAnswer({"clipped with the body": 4.0, "beside it in clear": math.inf},
                    "The longer vector is clipped to the same C. The guarantee knows C only."),
        WrongAnswer({"clipped with the body": 2.0, "beside it in clear": 2.0},
                    "Nothing hides the head: with the client it is there, without the client it is not."),
        WrongAnswer({"clipped with the body": math.inf, "beside it in clear": math.inf},
                    "In the sum it is clipped and noised like every other number."),
        WrongAnswer({"clipped with the body": 0.0, "beside it in clear": math.inf},
                    "What is sent costs. The accountant's figure for C and sigma holds as before."),
    ),
)  # fmt: skip


# --- 04-4: the divergence of a Gaussian


def solution_gaussian_renyi(order, shift, sigma):
    return order * shift**2 / (2 * sigma**2)


by_cases(
    "04-4",
    solution=solution_gaussian_renyi,
    hints=("Write the ratio of the densities as exp(shift x / sigma^2 - shift^2 / (2 sigma^2)).",
           "The mean of exp(k x / sigma^2 ...) under N(0, sigma^2) is one completed square.",
           "Set rate 1 in the sum of the page: only the last term is left. Then put sigma / shift for sigma."),
    wrong_answers=(
        WrongAnswer(lambda order, shift, sigma: shift**2 / (2 * sigma**2),
                    "That is the mean loss, order 1. It grows in proportion to the order."),
        WrongAnswer(lambda order, shift, sigma: order * shift / (2 * sigma),
                    "Shift and noise enter as a ratio, squared."),
        WrongAnswer(lambda order, shift, sigma: order * shift**2 / sigma**2,
                    "Complete the square once more: a factor of one half is missing."),
        WrongAnswer(lambda order, shift, sigma: order * sigma**2 / (2 * shift**2),
                    "More noise must bring the two worlds nearer."),
        WrongAnswer(lambda order, shift, sigma: order / (2 * sigma**2),
                    "That is a shift of 1. A shorter update is hidden better."),
    ),
    cases=[{"order": 2, "shift": 1.5, "sigma": 2.0}, {"order": 5, "shift": 0.5, "sigma": 1.5}],
)  # fmt: skip


# --- 04-5: one private round


def solution_private_round(phi, updates, bound, sigma, expected, noise):
    total = torch.zeros_like(phi)
    for update in updates:
        total = total + update * min(1.0, bound / max(update.norm().item(), 1e-12))
    return phi + (total + sigma * bound * noise) / expected


def _round_by_cohort(phi, updates, bound, sigma, expected, noise):
    return solution_private_round(phi, updates, bound, sigma, max(len(updates), 1), noise)


def _round_noise_without_bound(phi, updates, bound, sigma, expected, noise):
    return solution_private_round(phi, updates, bound, sigma / bound, expected, noise)


def _round_without_phi(phi, updates, bound, sigma, expected, noise):
    return solution_private_round(0 * phi, updates, bound, sigma, expected, noise)


def _round_without_clip(phi, updates, bound, sigma, expected, noise):
    return phi + (sum(updates, torch.zeros_like(phi)) + sigma * bound * noise) / expected


def _round_noise_each(phi, updates, bound, sigma, expected, noise):
    return solution_private_round(phi, updates, bound, sigma * len(updates), expected, noise)


@exercise(
    "04-5",
    solution=solution_private_round,
    hints=("Clip each update, add them up, add the noise once.",
           "Which divisor is constant? And what is released if nobody was drawn?"),
    wrong_answers=(
        WrongAnswer(_round_by_cohort, "How many were drawn is data. Divide by the constant that is expected."),
        WrongAnswer(_round_noise_without_bound,
                    "The multiplier counts in units of what one client can add, so the noise is sigma times C."),
        WrongAnswer(_round_noise_each, "Add the noise once, to the sum, not once for a client."),
        WrongAnswer(_round_without_clip, "One client can move this sum without a bound."),
        WrongAnswer(_round_without_phi, "Return the body, not its change."),
    ),
)  # fmt: skip
def check_private_round(answer: Callable[..., Any]) -> str | None:
    generator = torch.Generator().manual_seed(0)
    phi, noise = torch.randn(2, 4, generator=generator, dtype=torch.float64)
    many = list(2 * torch.randn(3, 4, generator=generator, dtype=torch.float64))
    many[0] = 0.2 * many[0] / many[0].norm()  # shorter than C: no clip makes it longer
    setting = {"bound": 0.5, "sigma": 2.0, "expected": 5.0}
    for updates in (many, []):
        given = answer(phi.clone(), [u.clone() for u in updates], noise=noise.clone(), **setting)
        still = answer(phi.clone(), [u.clone() for u in updates], noise=0 * noise, **setting)
        expected = solution_private_round(phi, updates, noise=noise, **setting)
        if not isinstance(given, Tensor) or given.shape != phi.shape:
            return f"It should return the new body, a tensor [4]; it returned {short(given)}."
        if torch.allclose(given, expected):
            continue
        if torch.allclose(given + phi, expected):
            return "It is the right change, but the new body starts from phi."
        if torch.allclose(2 * phi - given, expected):
            return "That is the right change with the wrong sign: the sum is added to phi."
        plain = solution_private_round(phi, updates, noise=0 * noise, **setting)
        move, right = (still - phi).norm().item(), (plain - phi).norm().item()
        share = (given - still).norm().item() / max(move, 1e-12)
        if updates and abs(share - (expected - plain).norm().item() / right) < 1e-9:
            return "Clipped sum and noise fit together; the divisor is not the constant."
        if abs(move - right) > 1e-9:
            return f"Without noise the body moves by {move:.4f} where {right:.4f} is right."
        return f"The noise moves the body by {(given - still).norm().item():.4f}, not by what sigma C asks for."
    return None


# --- 04-6: find the planted bugs


by_hand(
    "04-6",
    solution={"a": False, "b": True, "c": False, "d": False},
    hints=("For each server: by how much can one client move what is released before the noise?",
           "c: two layers, each of length C. How long is the whole?"),
    why="a: how many were drawn depends on who is there, so one client moves the divisor too. b: a constant "
        "divisor computes on what is private already. c: two layers of length C are together as long as the root "
        "of two times C. d: the update has no bound when the noise comes, and a clip afterwards only "
        "computes on what is noised already: it repairs nothing.",
    wrong_answers=(
        WrongAnswer({"a": False, "b": True, "c": True, "d": False},
                    "Each layer may be C long, so the update of two layers may be sqrt(2) C long."),
        WrongAnswer({"a": True, "b": True, "c": False, "d": False},
                    "One client more changes the divisor as well, and with it everybody else's part."),
        WrongAnswer({"a": False, "b": True, "c": False, "d": True},
                    "The update has no bound when the noise comes; a clip afterwards repairs nothing."),
        WrongAnswer({"a": False, "b": False, "c": False, "d": False},
                    "Dividing by a constant changes sum and noise alike. It does not matter which constant."),
    ),
)  # fmt: skip


# --- 04-7: what noise costs at two places of the valley


by_hand(
    "04-7",
    solution=2.125,
    hints=("The trace is the sum of the two squares, times the square of the head.",
           "The heads are equal, so they cancel in the ratio."),
    why="(4 + 1/4) / (1 + 1) = 17/8. The head is the same in both.",
    wrong_answers=(
        WrongAnswer(1, "Both lie on the bottom, but the walls differ: compare the traces."),
        WrongAnswer(2 / 4.25, "You divided the flat point by the sharp one."),
        WrongAnswer(1.25, "Squares add up, not the numbers themselves."),
        WrongAnswer(4, "Both coordinates are hit by the noise: two squares on each side."),
    ),
)  # fmt: skip


# --- 04-8: read a table


by_hand(
    "04-8",
    words=("clip", "noise"),
    solution={"C = 0.1": "clip", "C = 1": "noise"},
    hints=("At C = 0.1, what does a larger q do to the share that is clipped?",
           "At C = 1 most updates pass whole: what happens to the noise beside their mean?"),
    why="After training SAM turns some that are cut into nearly all at C = 0.1. At C = 1 most pass whole then with any "
        "radius, and the mean stands out better from the noise.",
    wrong_answers=(
        WrongAnswer({"C = 0.1": "noise", "C = 1": "clip"},
                    "The noise is sigma C: at the small C there is little of it, but the clip cuts nearly everybody."),
        WrongAnswer({"C = 0.1": "clip", "C = 1": "clip"},
                    "At C = 1 few updates are cut. But the noise has grown with C."),
        WrongAnswer({"C = 0.1": "SAM", "C = 1": "noise"},
                    "SAM moves along the axis. The question is what it meets there: the clip or the noise."),
    ),
)  # fmt: skip

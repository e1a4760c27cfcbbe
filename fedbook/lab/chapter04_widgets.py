"""Chapter 4's figures with controls: clipping of real updates, the slice around a trained body, the live algorithm.

Factories compute once and return ``draw(axes, **controls)``, which only draws. The live budget stands in
chapter04_budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Circle
from torch import Tensor

from fedbook.experiment import plan
from fedbook.federation.loop import Rounds
from fedbook.federation.tree import tree_map
from fedbook.lab.chapter04_figures import client_loss
from fedbook.lab.style import PALETTE, REFERENCE, series
from fedbook.papers.dp2_fedsam import PAPER
from fedbook.papers.dp2_fedsam.problem import PersonalProblem
from fedbook.papers.dp2_fedsam.sharpness import loss_surface, random_directions, top_eigenvalues
from fedbook.randomness import stream

POINTS = 12  # of a slice, on either side

# --- clipping, drawn


def clip_drawer(updates: Tensor, seed: int = 0) -> Callable[..., str]:
    """``draw(ax, clip_norm, noise_multiplier, cohort)``: clipping and noise on the updates of a random cohort.

    The plane holds the cohort's mean and the direction in which its clients disagree most. Lengths and
    angles in the sentence are those of the whole vectors; only their products [k, k] are kept.
    Shapes: ``updates`` [k, d], no row of zeros.
    """
    clients, dimension = updates.shape
    rows = updates.detach().double().cpu()
    rows = rows[torch.from_numpy(stream(seed, "clip figure").permutation(clients))]
    gram = rows @ rows.T

    def draw_clip(ax: Axes, *, clip_norm: float, noise_multiplier: float, cohort: int) -> str:
        bound = clip_norm
        sigma = noise_multiplier
        m = cohort
        flat, lengths = _plane(gram[:m, :m]), gram.diagonal()[:m].sqrt()
        factor = (bound / lengths).clamp(max=1)
        clipped = factor[:, None].numpy() * flat
        length, short, angle = _mean_and_clipped(gram[:m, :m], factor)
        noise = sigma * bound * math.sqrt(dimension) / m
        reach = float(np.abs(flat).max())  # the picture stays while C and sigma move
        for points, i, label in ((flat, 0, "update"), (clipped, 1, "clipped update")):
            look = series(i)
            rays = np.stack([np.zeros_like(points), points], 1)
            ax.add_collection(LineCollection(rays, colors=look["color"], linewidths=0.6, alpha=0.45))
            ax.plot(*points.T, linestyle="", marker=look["marker"], markersize=4, color=look["color"], label=label)
        ax.add_patch(Circle((0, 0), bound, fill=False, color=REFERENCE, linestyle="--", linewidth=1.2))
        centre = clipped.mean(0)
        if noise > 0:
            ax.add_patch(Circle(centre, noise, color=PALETTE[3], alpha=0.22, linewidth=0))
            ax.plot([], [], color=PALETTE[3], alpha=0.4, linewidth=7, marker="", label="length of the noise")
        for point, colour, marker, label in (
            (flat.mean(0), "black", "D", "mean"), (clipped.mean(0), PALETTE[2], "P", "clipped mean"),
        ):  # fmt: skip
            ax.plot([0, point[0]], [0, point[1]], color=colour, linewidth=2.4, linestyle="-", zorder=4, label=label,
                    marker=marker, markersize=9, markevery=[1], markeredgecolor="white")  # fmt: skip
        ax.plot([], [], color=REFERENCE, linestyle="--", linewidth=1.2, marker="", label=f"C = {bound:g}")
        low, high = np.minimum(1.1 * flat.min(0), -0.5 * reach), np.maximum(1.1 * flat.max(0), 0.5 * reach)
        ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
        ax.set(xlabel="along the cohort's mean", ylabel="along the largest disagreement")
        ax.set_title("shadows on a plane: true lengths are larger", fontsize="small")
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
        many = int((lengths > bound).sum())
        leaves = noise > min(*(centre - low), *(high - centre))
        turned = "as the vectors cancel" if math.isnan(angle) else f"turned by {angle:.0f} degrees"
        times = f", {noise / short:.3g} times the clipped mean" if short else ""
        return (
            f"{many} of {m} updates are longer than C = {bound:.3g} ({many / m:.0%}). Their mean has length "
            f"{length:.3g}, the clipped mean {short:.3g}, {turned}; the noise has length {noise:.3g} in {dimension:,} "
            f"dimensions{times}" + ("; its ball reaches beyond the picture." if leaves else ".")
        )

    return draw_clip


def _mean_and_clipped(gram: Tensor, factor: Tensor) -> tuple[float, float, float]:
    """Length of the mean, of the clipped mean (0 within rounding), and the degrees between them, from all products."""
    m, tiny = len(gram), 1e-7 * float(gram.diagonal().max().sqrt())
    length, short = (float(square.clamp(min=0).sqrt()) / m for square in (gram.sum(), factor @ gram @ factor))
    length, short = (0.0 if v < tiny else v for v in (length, short))
    cosine = float(factor @ gram.sum(1)) / m**2 / (length * short) if length * short else math.nan
    return length, short, math.degrees(math.acos(max(-1.0, min(1.0, cosine)))) if length * short else math.nan


def _plane(gram: Tensor) -> np.ndarray:
    """[m, 2]: along the mean, and along the direction across it in which the vectors differ most."""
    along = gram.sum(1) / gram.sum().clamp(min=1e-300).sqrt()  # <u_i, mean> / |mean|
    across = gram - gram.mean(0) - gram.mean(1, keepdim=True) + gram.mean()
    inward = along - along.mean()
    values, vectors = torch.linalg.eigh(across - inward[:, None] * inward)
    second = vectors[:, -1] * values[-1].clamp(min=0).sqrt()
    if float(second[second.abs().argmax()]) < 0:
        second = -second
    return torch.stack([along, second], 1).numpy()


# --- the loss around a trained body


class Slice(NamedTuple):
    """One run: loss [directions, n] at distances s * sqrt(d), s = ``std`` [n]; top eigenvalue; accuracy."""

    std: Tensor
    loss: Tensor
    eigenvalue: float
    accuracy: float


def radius_drawer(
    problem: PersonalProblem,
    runs: Mapping[float, Rounds],
    slot: int = 0,
    directions: int = 16,
    reach: float = 0.3,
    seed: int = 0,
) -> Callable[..., str]:
    """``draw(ax, sam_radius, std)``: the mean client loss on lines through phi^T of the run with that radius.

    Along a random direction of norm 1 the distance s sqrt(d) is where noise of standard deviation s on d parameters
    puts them. So the axis is s, and the mean over directions is what that noise costs.
    ``runs``: SAM radius -> run. All slices are computed here, about a second a run on digits.
    """
    slices = {q: _slice(problem, run, slot, directions, reach, seed) for q, run in runs.items()}
    top = 1.05 * max(float(s.loss.mean(0).max()) for s in slices.values())

    def draw_radius(ax: Axes, *, sam_radius: float, std: float) -> str:
        reference = min(slices)
        if sam_radius != reference:
            s = slices[reference]
            ax.plot(s.std, s.loss.mean(0), label=f"q = {reference:g}, mean", markevery=4, **series(1))
        s = slices[sam_radius]
        low, high = s.loss.quantile(0.1, 0), s.loss.quantile(0.9, 0)
        ax.plot(s.std, s.loss.mean(0), label=f"q = {sam_radius:g}, mean", markevery=4, **series(0))
        ax.fill_between(s.std, low, high, color=PALETTE[0], alpha=0.18, linewidth=0, label="8 of 10 directions")
        for x in (-std, std):
            ax.axvline(x, color=REFERENCE, linewidth=1.2, linestyle=":", label="noise" if x == std else None)
        ax.set(xlim=(-reach, reach), ylim=(0, top), xlabel="standard deviation $s$ of noise that gets as far",
               ylabel="mean loss of the clients")  # fmt: skip
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
        here = float(s.loss[:, len(s.std) // 2].mean())
        beside = f" (q = {reference:g}: {_rise(slices[reference], std):.3g})" if sam_radius != reference else ""
        return (
            f"q = {sam_radius:g}: loss {here:.3f}; noise of standard deviation {std:.3g} on every parameter lifts it "
            f"by {_rise(s, std):.3g}{beside}; top eigenvalue of the Hessian {s.eigenvalue:.2f}; "
            f"accuracy {s.accuracy:.3f}."
        )

    return draw_radius


def _slice(problem: PersonalProblem, run: Rounds, slot: int, directions: int, reach: float, seed: int) -> Slice:
    loss, body = client_loss(problem, run, slot)
    std = reach * torch.arange(-POINTS, POINTS + 1) / POINTS
    size = sum(p.numel() for p in body.values())
    drawn = random_directions(body, stream(seed, "slices"), directions)
    lines = [
        loss_surface(loss, body, tree_map(lambda u, i=i: u[i : i + 1], drawn), std.double() * math.sqrt(size))
        for i in range(directions)
    ]
    top = top_eigenvalues(loss, body, stream(seed, "eigenvalue"), steps=20).values[0]
    accuracy = run.history.values("accuracy")[1][slot, -1]
    return Slice(std, torch.stack(lines).detach().cpu(), float(top), float(accuracy))


def _rise(s: Slice, std: float) -> float:
    """The mean rise at +-std, interpolated between the points computed."""
    mean = s.loss.mean(0).numpy()
    return float(np.interp([-std, std], s.std.numpy(), mean).mean() - mean[len(mean) // 2])


# --- the algorithm, live


class Step(NamedTuple):
    """Accuracy after a round with the trained body and with the body that stays random; mean length of an update."""

    accuracy: float
    frozen: float
    update_norm: float | None


def start_live(
    sam_radius: float, clip_norm: float, epsilon: float, classes_per_client: int, rounds: int = 40
) -> Iterator[tuple[int, Step]]:
    """Round after round (t, Step) of DP2-FedSAM on digits, and beside it the same heads on a random body.

    ``epsilon`` 0: clipped, no noise.
    """
    changes = {"sam_radius": sam_radius, "clip_norm": clip_norm, "epsilon": epsilon, "rounds": rounds,
               "classes_per_client": classes_per_client, "evaluate_every": 1}  # fmt: skip
    pair = [
        plan(PAPER, method, "digits", changes=changes, device="cpu").rounds()
        for method in ("dp2-fedsam", "frozen-body")
    ]
    for private, frozen in zip(*pair, strict=False):
        norm = private.trace.get("update_norm", [None])[0]
        yield private.t + 1, Step(private.metrics["accuracy"][0], frozen.metrics["accuracy"][0], norm)


def draw_live(ax: Axes, history: Sequence[tuple[int, Step]]) -> str:
    """Accuracy by round of the live run and of the frozen body."""
    t = [t for t, _ in history]
    for i, (label, name) in enumerate((("DP2-FedSAM", "accuracy"), ("random body, own heads", "frozen"))):
        ax.plot(
            t, [getattr(step, name) for _, step in history], label=label, markevery=max(1, len(t) // 10), **series(i)
        )
    ax.set(xlabel="round", ylabel="accuracy, each client on its own images", ylim=(0, 1.02))
    ax.legend(loc="lower right")
    last: Any = history[-1][1]
    norm = "" if last.update_norm is None else f"; mean length of an update {last.update_norm:.2g}"
    return (f"After {t[-1]} rounds: accuracy {last.accuracy:.3f}, with a random body and the same heads "
            f"{last.frozen:.3f}{norm}.")  # fmt: skip

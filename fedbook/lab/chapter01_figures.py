"""Chapter 1's figures of its theory: what each method descends, batch bias, noise, Theorem 6.10, the stability limit.

Functions that measure return what the draw functions take; those fill the axes they are given and return the sentence
under the figure. Real images are in chapter01_pictures, stored comparisons in chapter01_stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter
from torch import Tensor

from fedbook.lab.chapter01_descent import Problem, Run, draw_views, matrices_of, run
from fedbook.lab.chapter01_floor import NoiseFloor, Terms, batch_bias_norms, jacobi, jacobi_of_steps, noise_by_clients
from fedbook.lab.panels import panels, plain_log
from fedbook.lab.style import BAND, PALETTE, series
from fedbook.papers.fedsc.spectral import bank_objective
from fedbook.randomness import stream

SLOPE = r"$\|\nabla\mathcal{L}\|^2$"
TERMS = {
    "start": r"start $1/\sqrt{TE}$", "drift": "drift", "cohort": "sampled clients", "variance": "batch variance",
    "views": "views $1/V$", "batch": "batch bias", "noise": r"noise $H^2\sigma^2$",
}  # fmt: skip

# --- what each method descends


class Course(NamedTuple):
    """At the start of each round and at the end, [T + 1] each: |grad L|^2, L, Gap."""

    slope: Tensor
    loss: Tensor
    gap: Tensor


def centralised(problem: Problem, rounds: int, lr: float) -> Course:
    """Gradient descent on the pooled bank by the package's exact objective; Gap is that of the clients there are."""
    clients, samples = problem.images.shape[:2]
    owner = torch.arange(clients).repeat_interleave(samples)
    theta, kept = problem.start, []
    for _ in range(rounds + 1):
        theta = theta.detach().requires_grad_()
        found = bank_objective(problem.embed(theta).flatten(0, 1), owner, clients)
        (slope,) = torch.autograd.grad(found.loss, theta)
        kept.append(torch.stack([slope.square().sum(), found.loss.detach(), found.gap.detach()]))
        theta = theta.detach() - lr * slope
    return Course(*torch.stack(kept).unbind(1))


def descents(problem: Problem, rounds: int = 200, lr: float = 0.005) -> dict[str, Run | Course]:
    """FedAvg + SC, FedSC (alpha = q) and one machine, a full-batch step a round."""
    return {
        "FedAvg + SC": run(problem, rounds, lr, 1.0),
        "FedSC": run(problem, rounds, lr),
        "centralised": centralised(problem, rounds, lr),
    }


def draw_descents(axes: Any, runs: Mapping[str, Run | Course]) -> str:
    """|grad L|^2, L and Gap by round; "centralised" as markers alone, because FedSC lies on it.

    Shapes: ``axes`` three of them.
    """
    spots, parts = panels(axes, 3), []
    for i, (label, one) in enumerate(runs.items()):
        look = series(i) | {"markevery": (i * len(one.loss) // 30, max(1, len(one.loss) // 8))}
        if label == "centralised":
            look |= {"linestyle": "", "markersize": 7, "markerfacecolor": "none"}
        for ax, values in zip(spots, (one.slope, one.loss, one.gap), strict=True):
            ax.plot(values, label=label, **look)
        parts.append(f"{label} {one.slope[-1]:.3g}, {one.loss[-1]:.3f}, {one.gap[-1]:.3f}")
    for ax, words in zip(spots, (SLOPE, r"global loss $\mathcal{L}$", "Gap"), strict=True):
        ax.set(xlabel="round $t$", ylabel=words)
    plain_log(spots[0].yaxis)
    spots[0].legend(loc="upper right")
    return f"|grad L|^2, L and Gap after {len(one.loss) - 1} rounds: {'; '.join(parts)}."


# --- bias of a batch


class Biases(NamedTuple):
    """|bias of the averaged batch gradient| at one theta: the law, and by Monte Carlo with its standard error.

    Shapes: ``law``, ``mean``, ``error`` [len(batches), len(pairs)].
    """

    batches: list[int]
    pairs: list[int]
    law: Tensor
    mean: Tensor
    error: Tensor


def biases(
    problem: Problem, theta: Tensor, batches: Sequence[int], pairs: Sequence[int] = (1, 2, 4, 8), draws: int = 20,
    seed: int = 0,
) -> Biases:  # fmt: skip
    """The law of chapter01_floor beside drawn batches, alpha = q.

    What is linear in a batch's matrix has the mean of the whole; so the gradient of alpha/2 |R_batch - R|^2 alone is
    averaged, with the same mean as the batch gradient's error and far less noise.
    """
    law = batch_bias_norms(problem, theta, list(batches), list(pairs))
    clients = len(problem.images)
    found = []
    for b in batches:
        for v in pairs:
            rng, slopes = stream(seed, f"bias of {b} samples and {v} pairs"), []
            for _ in range(draws):
                leaf = theta.detach().clone().requires_grad_()
                drawn = matrices_of(problem.embed(leaf, draw_views(problem.images, b, 2 * v, rng)))
                square = (drawn - matrices_of(problem.embed(leaf))).square().sum((1, 2)).mean()
                slopes.append(torch.autograd.grad(square / (2 * clients), leaf)[0])
            slopes = torch.stack(slopes)
            mean = slopes.mean(0)
            error = (slopes @ (mean / mean.norm())).std() / math.sqrt(draws)
            found.append(torch.stack([mean.norm(), error]))
    mean, error = torch.stack(found).view(len(batches), len(pairs), 2).unbind(2)
    return Biases(list(batches), list(pairs), law, mean, error)


def draw_biases(axes: Any, found: Biases) -> str:
    """|bias| against B for the fewest and the most views, and against V for some B: law as lines, drawn as points.

    Shapes: ``axes`` two of them.
    """
    left, right = panels(axes, 2)
    b, v, last = found.batches, found.pairs, len(found.batches) - 1
    for ax, x, places, name in ((left, b, sorted({0, len(v) - 1}), "V"), (right, v, sorted({0, last // 2, last}), "B")):
        for i, at in enumerate(places):
            law, mean, error = (t[:, at] if name == "V" else t[at] for t in found[2:])
            look = series(i + (0 if name == "V" else 2))
            ax.plot(x, law, marker="", linewidth=1.2, color=look["color"], linestyle=look["linestyle"])
            value = v[at] if name == "V" else b[at]
            words = f"${name}$ = {value}" + (" (all samples)" if name == "B" and at == last else "")
            ax.errorbar(x, mean, 2 * error, label=words, **(look | {"linestyle": ""}))
        plain_log(ax.yaxis)
        _ticks(ax, x)
        ax.legend(loc="lower left")
    left.set(xlabel="batch size $B$", ylabel=r"$\|$bias of the gradient$\|$")
    right.set_xlabel("pairs of views $V$")
    off = float(((found.mean - found.law).abs() / found.error).max())
    return (
        f"The bias falls from {found.law[0, 0]:.3g} (B = {b[0]}, V = {v[0]}) to {found.law[-1, -1]:.2g} (B = {b[-1]}, "
        f"V = {v[-1]}); with V = {v[-1]} it is {found.law[0, -1]:.3g} to {found.law[-1, -1]:.2g} over B. Drawn batches "
        f"are at most {off:.1f} standard errors off."
    )


# --- noise


def noises(
    problem: Problem, theta: Tensor, sigmas: Sequence[float], clients: Sequence[int] = (2, 4, 5, 10, 20),
    draws: int = 20, seed: int = 0,
) -> tuple[list[float], list[NoiseFloor], list[int], NoiseFloor]:  # fmt: skip
    """Sigmas with what each does at J = 10 (drawn anew for each), clients with what unit noise does at each J."""
    by_sigma = []
    for i, s in enumerate(sigmas):
        unit = noise_by_clients(problem, theta, [10], draws, seed + 1 + i)
        by_sigma.append(NoiseFloor(*(s**2 * part for part in unit)))
    return sigmas, by_sigma, list(clients), noise_by_clients(problem, theta, list(clients), draws, seed)


def draw_noises(axes: Any, found: tuple[list[float], list[NoiseFloor], list[int], NoiseFloor]) -> str:
    """E |change of the averaged gradient|^2 against sigma and against J: the law, Monte Carlo, the theorem's charge.

    Shapes: ``axes`` two of them; ``found`` what :func:`noises` returned.
    """
    left, right = panels(axes, 2)
    sigmas, by_sigma, clients, by_clients = found
    whole = NoiseFloor(*(torch.cat(part) for part in zip(*by_sigma, strict=True)))
    for ax, x, one in ((left, sigmas, whole), (right, clients, by_clients)):
        ax.plot(x, one.cauchy_schwarz, color=PALETTE[1], linestyle="--", marker="", label="by Cauchy-Schwarz")
        ax.plot(x, one.law, color=PALETTE[0], linestyle="-", marker="", label="exact law")
        ax.errorbar(x, one.mean, 2 * one.error, color="black", marker="o", linestyle="", label="drawn")
        ax.set_yscale("log")
        _ticks(ax, x)
    left.set(xlabel=r"noise $\sigma$ on each entry ($J$ = 10)", ylabel=r"$E\,\|$change of the gradient$\|^2$")
    right.set_xlabel(r"clients $J$ ($\sigma$ = 1)")
    low, high = right.get_ylim()
    right.set_ylim(low / 4, high)
    right.legend(loc="center left", bbox_to_anchor=(0.0, 0.55))
    order = float(torch.tensor([float(whole.law[-1] / whole.law[0])]).log() / math.log(sigmas[-1] / sigmas[0]))
    told = ", ".join(f"J = {j}: {v:.3g}" for j, v in zip(clients, by_clients.law.tolist(), strict=True))
    factor = float(by_clients.cauchy_schwarz[0] / by_clients.law[0])
    return (
        f"The noise enters with the power {order:.2g} of sigma, {float(whole.law[-1]):.3g} at sigma = {sigmas[-1]:g}; "
        f"for sigma = 1 it is {told}. What the theorem charges is {factor:.0f} times as much."
    )


def draw_plateaus(ax: Axes, sigmas: Sequence[float], slopes: Tensor, width: int = 16) -> str:
    """Where |grad L|^2 stays, against sigma, the level without noise (sigmas[0] is 0) and the theorem's H^2 sigma^2.

    Shapes: ``slopes`` [len(sigmas)] of ``chapter01_floor.plateaus``.
    """
    x, bare = list(sigmas[1:]), float(slopes[0])
    ax.plot(x, [(width * s) ** 2 for s in x], color=PALETTE[1], linestyle="--", marker="",
            label=r"charged: $H^2\sigma^2$, constant 1")  # fmt: skip
    ax.plot(x, slopes[1:], label="measured", **series(0))
    ax.axhline(bare, color="black", linestyle=":", linewidth=1.2, label="no noise")
    plain_log(ax.yaxis)
    _ticks(ax, x)
    ax.set(xlabel=r"noise $\sigma$ on each entry", ylabel=f"mean {SLOPE}, last half")
    ax.legend(loc="upper left")
    told = ", ".join(f"{v:.3g} at {s:g}" for s, v in zip(x, slopes[1:].tolist(), strict=True))
    return f"|grad L|^2 stays at {bare:.3g} without noise and, by sigma, at {told}."


# --- Theorem 6.10


def draw_theorem(ax: Axes, horizons: Sequence[int], terms: Sequence[Terms], measured: Tensor) -> str:
    """The terms of the right side (constants 1) against T, their sum, and the left side as measured.

    Terms that are 0 are left out. Shapes: ``measured`` [len(horizons)] of ``chapter01_floor.mean_slopes``.
    """
    for i, (name, words) in enumerate(TERMS.items()):
        values = [getattr(one, name) for one in terms]
        if min(values) > 0:
            ax.plot(horizons, values, label=words, **(series(i) | {"markersize": 3.5, "linewidth": 1.1}))
    total = [sum(one) for one in terms]
    ax.plot(horizons, total, color="black", linestyle="-", marker="", linewidth=2.2, label="right side")
    ax.plot(horizons, measured, color="black", linestyle="", marker="*", markersize=10, label="left side, measured")
    ax.set_yscale("log")
    _ticks(ax, list(horizons))
    ax.set(xlabel="rounds $T$", ylabel=f"mean of {SLOPE} over the rounds")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return (
        f"From T = {horizons[0]} to {horizons[-1]} the left side goes from {measured[0]:.3g} to {measured[-1]:.3g}, "
        f"the right side, constants 1, from {total[0]:.3g} to {total[-1]:.3g}; its floor is {terms[-1].floor:.3g}."
    )


# --- the stability limit


def draw_multiplier(axes: Any, alpha: float = 0.1, rounds: int = 12) -> str:
    """The multiplier 1 - kappa / alpha with real gradient steps, and |z|^2 by round for kappa around 2 alpha.

    Shapes: ``axes`` two of them.
    """
    left, right = panels(axes, 2)
    told, off = [], 0.0
    for i, a in enumerate((alpha, min(1.0, 2 * alpha), 1.0)):
        look, kappa = series(i), [k / 50 for k in range(1, 51)]
        left.plot(kappa, [1 - k / a for k in kappa], **(look | {"marker": ""}))
        steps = [jacobi_of_steps(a, e, 0.05) for e in (1, 3, 6, 12, 25, 50, 100, 200)]
        left.plot([s.kappa for s in steps], [s.measured for s in steps], label=rf"$\alpha$ = {a:g}",
                  **(look | {"linestyle": ""}))  # fmt: skip
        off = max(off, *(abs(s.measured - s.predicted) for s in steps))
        told.append(f"{1 - 1 / a:g}")
    left.axhspan(-1, 1, color=BAND, alpha=0.3, linewidth=0)
    left.text(0.75, -0.55, "stable", ha="center", va="center", fontsize="small")
    left.set(xlabel=r"share $\kappa$ of the way to the client's optimum", ylabel="multiplier of the error a round")
    left.legend(loc="lower left")
    for i, times in enumerate((0.5, 1.5, 2.0, 2.2)):
        r = jacobi(times * alpha, alpha, rounds)
        right.plot(r, label=rf"$\kappa$ = {times:g} $\alpha$", **series(i))
    worst = max(abs(v - 1) for v in r)
    right.set(xlabel="round", ylabel=r"$\|z\|^2$ along the shared direction", ylim=(1 - 1.1 * worst, 1 + 1.9 * worst))
    right.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    right.legend(loc="upper left", ncols=2)
    return (
        f"Local training to the end (kappa = 1) multiplies the error by {', '.join(told)} at alpha = {alpha:g}, "
        f"{min(1.0, 2 * alpha):g}, 1; real steps are within {off:.1g}. From 0.01 off, alpha = {alpha:g}, kappa = "
        f"{2.2 * alpha:g} is {abs(r[-1] - 1):.3g} off after {rounds} rounds."
    )


def draw_alternation(axes: Any, runs: Mapping[str, Run]) -> str:
    """|grad L|^2 by round, cosine between a round's move and the next, effective rank: the same local training.

    Shapes: ``axes`` three of them; ``runs`` what ``chapter01_floor.stability`` returned.
    """
    spots, parts = panels(axes, 3), []
    for i, (label, one) in enumerate(runs.items()):
        look = series(i) | {"markersize": 3.5, "linewidth": 1.2}
        words = label.replace("alpha", r"$\alpha$").replace(" q", " $q$")
        for ax, values, first in zip(spots, (one.slope, one.turn, one.rank), (0, 1, 0), strict=True):
            x = range(first, first + len(values))
            ax.plot(x, values, label=words, markevery=(i, max(1, len(values) // 8)), **look)
        half = len(one.turn) // 2
        mean = (one.slope[half:].mean(), one.turn[half:].mean(), one.rank[-1])
        parts.append(f"{label} {mean[0]:.3g}, {mean[1]:.2f}, {mean[2]:.1f}")
    for ax, words in zip(spots, (SLOPE, "cosine of successive moves", "effective rank of $R$"), strict=True):
        ax.set(xlabel="round $t$", ylabel=words)
    plain_log(spots[0].yaxis)
    spots[1].set_ylim(-1.08, 1.08)
    spots[1].legend(loc="center right", bbox_to_anchor=(1.0, 0.42))
    return f"|grad L|^2 and cosine of moves (mean of the last half), last effective rank: {'; '.join(parts)}."


def _ticks(ax: Axes, places: Sequence[float]) -> None:
    """A logarithmic x axis that names the places where something was measured."""
    ax.set_xscale("log")
    ax.set_xticks(list(places))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())

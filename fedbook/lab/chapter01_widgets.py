"""Chapter 1's figures with controls: noise on a correlation matrix, and the spectrum round by round.

Factories compute once and return ``draw(axes, **controls)``, which only draws. Two clients with controls stand in
chapter01_two_clients; the algorithm live, and what its exchange of matrices costs, in chapter01_live.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from fedbook.experiment import plan
from fedbook.lab.chapter01_paper import SIZE, TABLE_6
from fedbook.lab.panels import panels
from fedbook.lab.style import SHADE, series
from fedbook.learning.encoders import encoder
from fedbook.learning.evaluation import effective_rank
from fedbook.papers.description import own_settings
from fedbook.papers.fedsc import PAPER, run_on
from fedbook.papers.fedsc.matrix_privacy import matrix_sigma
from fedbook.papers.fedsc.problem import PretrainingProblem, PretrainingSettings, pretraining_problem
from fedbook.papers.fedsc.spectral import correlation, norm_clip
from fedbook.randomness import stream

# --- noise on a correlation matrix

MU, DELTA = 4.0, 1e-2  # CIFAR-10's in the paper
WIDTHS = (8, 16, 32, 64)
PAPER_WIDTH = 512


@lru_cache(maxsize=4)
def client_matrices(rounds: int = 5, seed: int = 0) -> dict[int, Tensor]:
    """H -> R_1 [H, H] (float64) of a client with one digit, representations clipped to ``MU``.

    One encoder each, centrally trained for ``rounds`` rounds: less than a second for each H.
    """
    base, found = digits(seed), {}
    for width in WIDTHS:
        own = replace(base, encoder=encoder("mlp", (1, 8, 8), width, "linear"))
        run = run_on(own, "centralized-sc", settings_of("centralized-sc", rounds=rounds), [seed])
        run.evaluate = None
        for _ in run:
            pass
        found[width] = client_correlations(own, run.server["theta"], own.owners(0))[0]
    return found


def noise_drawer(matrices: Mapping[int, Tensor], seed: int = 0) -> Callable[..., str]:
    """``draw(axes, epsilon, size, uploads, width)``: one of ``matrices`` (H -> R) without and with its noise.

    sigma is the least with which ``uploads`` uploads of a client with ``size`` samples cost ``epsilon`` at ``DELTA``,
    one sample replaced, exact accountant, mu = ``MU``. The noise is the same draw at every setting, sigma times.
    Shapes: ``axes`` three of them.
    """
    held = {}
    for width, matrix in matrices.items():
        noise = stream(seed, "drawn noise", client=width).standard_normal((width, width))
        held[width] = matrix.double().cpu().numpy(), (noise + noise.T) / 2

    def draw_matrix(axes: Any, *, epsilon: float, size: float, uploads: float, width: int) -> str:
        first, second, third = panels(axes, 3)
        matrix, noise = held[width]
        n, count = (round(v) for name, v in (("size", size), ("uploads", uploads)))
        sigma = _sigma(epsilon, n, count)
        noised, edge = matrix + sigma * noise, sigma * math.sqrt(2 * width)
        top = float(np.abs(matrix).max())
        for ax, values, title in ((first, matrix, "R"), (second, noised, "sent: symmetric part")):
            ax.imshow(values, cmap="RdBu_r", vmin=-top, vmax=top, interpolation="nearest")
            ax.set(title=title, xticks=(), yticks=())
        true, seen = (np.linalg.eigvalsh(m)[::-1] for m in (matrix, noised))
        place = np.arange(1, width + 1)
        third.axhspan(-edge, edge, color=SHADE, alpha=0.5, linewidth=0, label="noise alone")
        third.plot(place, true, label="R", **(series(0) | {"linestyle": "-"}))
        third.plot(place, seen, label="sent", **(series(1) | {"linestyle": ""}))
        high = 1.15 * max(float(true[0]), float(seen[0]), edge)
        third.set(ylim=(-max(0.12 * high, 1.15 * max(edge, -float(seen[-1]))), high), xlabel="number of the eigenvalue")
        third.set(title="eigenvalues", xticks=(1, width // 2, width))
        third.yaxis.set_major_locator(MaxNLocator(4))
        third.legend(loc="upper right", frameon=True, framealpha=0.8, edgecolor="none")
        out = int((seen > edge).sum())
        error = sigma * float(np.linalg.norm(noise)) / float(np.linalg.norm(matrix))
        rows = [row for row in TABLE_6 if (row.mu, row.delta) == (MU, DELTA)]
        near = min(rows, key=lambda row: abs(math.log(row.epsilon / epsilon)))
        return (
            f"ε = {epsilon:.3g} at δ = {DELTA:g} for {count} uploads of n = {n} needs σ = {sigma:.3g}: the noise is "
            f"{error:.2g} times as long as R, alone it would reach eigenvalues of ±σ√(2H) = {edge:.2g}, and {out} of "
            f"{width} stand out above that. Table 6 has σ = {near.sigma:g} for {near.data} at ε = {near.epsilon:g} "
            f"(n = {SIZE[near.data]}, {len(near.sharing_rounds)} uploads); at the paper's H = {PAPER_WIDTH} "
            f"this σ reaches {sigma * math.sqrt(2 * PAPER_WIDTH):.2g}."
        )

    return draw_matrix


@lru_cache(maxsize=256)
def _sigma(epsilon: float, size: int, uploads: int) -> float:
    return matrix_sigma(epsilon, MU, size, uploads, DELTA)


# --- the spectrum of the aggregated matrix, round by round

METHODS = ("fedsc", "fedavg-sc", "centralized-sc")


class Spectra(NamedTuple):
    """One run: eigenvalues of R = sum_j q_j R_j, largest first, and effective ranks, of R and on average of the R_j.

    ``rounds`` [n], from 0 (before the first) on; ``values`` [n, H]; ``rank``, ``own_rank`` [n].
    """

    rounds: np.ndarray
    values: np.ndarray
    rank: np.ndarray
    own_rank: np.ndarray


def record_spectra(rounds: int = 30, seed: int = 0, every: int = 5) -> dict[str, Spectra]:
    """:class:`Spectra` of ``METHODS`` on digits, on the view bank, before the first round and after each ``every``.

    About 0.3 s a round, all three together.
    """
    problem, found = digits(seed), {}
    owner = problem.owners(0)
    shares = torch.bincount(owner).double() / len(owner)
    for method in METHODS:
        run = run_on(problem, method, settings_of(method, rounds=rounds), [seed])
        run.evaluate, rows = None, []
        for t in range(rounds + 1):
            if t:
                run.step()
            if t % every == 0:
                each = client_correlations(problem, run.server["theta"], owner)
                mean = torch.tensordot(shares, each, 1)
                own = float(effective_rank(each).mean())
                rows.append((t, torch.linalg.eigvalsh(mean).flip(0).numpy(), float(effective_rank(mean)), own))
        found[method] = Spectra(*(np.array(column) for column in zip(*rows, strict=True)))
    return found


def spectrum_drawer(recorded: Mapping[str, Spectra]) -> Callable[..., str]:
    """``draw(axes, method, round)``: left the eigenvalues of R then and before the first round, right ranks by round.

    ``recorded``: what :func:`record_spectra` returned. A ``round`` between two recorded ones shows the earlier.
    Shapes: ``axes`` two of them.
    """
    top = 1.1 * max(float(one.values.max()) for one in recorded.values())
    width = next(iter(recorded.values())).values.shape[1]

    def draw_at(axes: Any, *, method: str, round: int) -> str:
        left, right = panels(axes, 2)
        one = recorded[method]
        i = int(np.searchsorted(one.rounds, round, side="right")) - 1
        look, place = series(list(recorded).index(method)), np.arange(1, width + 1)
        left.bar(place, one.values[i], color=look["color"], width=0.7, label=f"after round {one.rounds[i]}")
        left.step(place, one.values[0], where="mid", color="black", linewidth=1.2, linestyle="--", marker="",
                  label="before the first")  # fmt: skip
        left.set(ylim=(0, top), xlabel="number of the eigenvalue of R", title=method,
                 xticks=(1, width // 2, width))  # fmt: skip
        left.yaxis.set_major_locator(MaxNLocator(4))
        left.legend(loc="upper right")
        for k, (name, other) in enumerate(recorded.items()):
            right.plot(other.rounds, other.rank, label=name, **series(k))
        right.plot(one.rounds[i], one.rank[i], linestyle="", marker=look["marker"], color=look["color"], markersize=11,
                   markeredgecolor="black", zorder=5)  # fmt: skip
        right.plot(one.rounds, one.own_rank, color=look["color"], linewidth=0.9, linestyle=":", marker="",
                   label="one client's own R")  # fmt: skip
        right.set(ylim=(0, width), xlabel="round", ylabel=f"effective rank, of {width}")
        right.set(xticks=(0, int(one.rounds[-1])), yticks=(0, width // 2, width))
        right.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
        values, others = one.values[i], [name for name in recorded if name != method]
        beside = ", ".join(f"{name} {recorded[name].rank[min(i, len(recorded[name].rank) - 1)]:.1f}" for name in others)
        return (
            f"{method} after round {one.rounds[i]}: effective rank {one.rank[i]:.1f} of {width}"
            + (f" ({beside})" if beside else "")
            + f", that of one client's own matrix {one.own_rank[i]:.1f}; the largest eigenvalue is {values[0]:.2f}, "
            f"{values[0] / values.sum():.0%} of the trace {values.sum():.2f}."
        )

    return draw_at


# --- digits, one class each


@lru_cache(maxsize=2)
def digits(seed: int = 0) -> PretrainingProblem:
    """The digits, one class a client, with the quick profile's encoder and views, split by ``seed``."""
    return pretraining_problem("digits", own_settings(PretrainingSettings, settings_of("fedsc")), [seed])


def settings_of(method: str, **changes: Any) -> dict[str, Any]:
    """The quick profile's settings on digits, with ``changes``."""
    return plan(PAPER, method, "digits", changes=changes, device="cpu").settings()


@torch.no_grad()
def client_correlations(problem: PretrainingProblem, theta: Mapping[str, Tensor], owner: Tensor) -> Tensor:
    """R_j [J, H, H] (float64) on the view bank of the first seed's encoder theta [S, ...], clipped to ``MU``."""
    bank, own = problem.seen_bank, {name: p[0] for name, p in theta.items()}
    z = norm_clip(problem.encoder.apply(own, bank.flatten(0, 1)), MU).double().unflatten(0, bank.shape[:2])
    return torch.stack([correlation(z[owner == j]) for j in range(int(owner.max()) + 1)])

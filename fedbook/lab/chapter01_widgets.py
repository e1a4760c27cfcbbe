"""Chapter 1's figures with controls: two clients live, noise on a correlation matrix, the spectrum round by round.

Factories compute once and return ``draw(axes, **controls)``, which only draws. The algorithm live, and what its
exchange of matrices costs, stand in chapter01_live.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from fedbook import arguments
from fedbook.experiment import plan
from fedbook.lab.chapter01_paper import TABLE_6
from fedbook.lab.chapter03_sphere import panels
from fedbook.lab.style import PALETTE, series
from fedbook.learning.contrast import correlation, effective_rank, norm_clip
from fedbook.learning.encoders import encoder
from fedbook.learning.pretraining import PretrainingProblem, PretrainingSettings, pretraining_problem
from fedbook.papers.fedsc import PAPER, run_on
from fedbook.privacy.correlation import matrix_sigma
from fedbook.randomness import stream

# --- two clients, a linear encoder into the plane

ROUNDS, LR = 60, 0.05
SAMPLES, VIEWS, PIXELS = 40, 4, 3
SPREAD, BLUR = 0.08, 0.2  # of the samples around their client's centre, and of the views around their sample
MOST_STEPS = 25


class Two(NamedTuple):
    """Views of two clients, each with its one class. Shapes: ``x`` [2, n, K, 3], ``centres`` [2, 3]."""

    x: np.ndarray
    centres: np.ndarray

    @property
    def second(self) -> np.ndarray:
        """C_j, the means of x x^T, [2, 3, 3]: R_j = W C_j W^T."""
        return np.einsum("jnkd,jnke->jde", self.x, self.x) / (SAMPLES * VIEWS)

    @property
    def paired(self) -> np.ndarray:
        """P_j, the means of x x'^T over two views of a sample, [2, 3, 3]: R_j^+ = W P_j W^T."""
        middle = self.x.mean(2)
        return np.einsum("jnd,jne->jde", middle, middle) / SAMPLES


class Path(NamedTuple):
    """``maps`` [T + 1, 2, 3]: W after each round; ``loss`` L and ``gap`` [T + 1]; ``matrices`` R_j [T + 1, 2, 2, 2].

    ``least``: what L can be at best. ``kappa`` [2]: how far E steps go towards a client's own optimum, along a direction
    that both use alike; ``multiplier``: what a round then makes of a distance from it.
    """

    maps: np.ndarray
    loss: np.ndarray
    gap: np.ndarray
    matrices: np.ndarray
    least: float
    kappa: np.ndarray
    multiplier: float


def two_clients(similarity: float) -> Two:
    """The views; ``similarity`` is the cosine between the two classes. Raises: TypeError, ValueError."""
    half = math.acos(arguments.real("similarity", similarity, 0.0, 1.0)) / 2
    centres = np.array([[math.cos(half), sign * math.sin(half), 0.0] for sign in (1, -1)])
    return Two(centres[:, None, None] + _offsets(), centres)


@lru_cache(maxsize=1)
def _offsets() -> np.ndarray:
    rng = stream(0, "two clients")
    samples = SPREAD * rng.standard_normal((2, SAMPLES, 1, PIXELS))
    return samples + BLUR * rng.standard_normal((2, SAMPLES, VIEWS, PIXELS))


def two_client_rounds(alpha: str | float, share: float, local_steps: int, similarity: float) -> Path:
    """FedSC with full batches on z = W x, W [2, 3]: ``local_steps`` against frozen matrices, then the q-mean of both W.

    ``alpha``: one number for both clients, or "q" (each its share of the data). ``share``: q_1. The losses are exact
    over all pairs of views. Raises: TypeError, ValueError. Source: FedSC, Algorithm 1 and equations (5), (80).
    """
    q = np.array([1.0, -1.0]) * arguments.real("share", share, above=0.0, below=1.0) + np.array([0.0, 1.0])
    a = q if alpha == "q" else np.full(2, arguments.real("alpha", alpha, maximum=1.0, above=0.0))
    steps = arguments.integer("local_steps", local_steps, 1, MOST_STEPS)
    two = two_clients(similarity)
    c, p, weight = two.second, two.paired, a[:, None, None]
    w = np.array([[0.5, 0.15, 0.1], [0.1, 0.15, -0.2]])  # at first both clients look much the same
    maps = [w]
    for _ in range(ROUNDS):
        frozen = (1 - weight) * (w @ c @ w.T)[::-1]  # of two clients, the others are the other one
        own = np.stack([w, w])
        for _ in range(steps):
            pull = (weight * (own @ c @ own.swapaxes(1, 2)) + frozen) @ own @ c - own @ p
            own = own - 2 * LR * pull
        w = np.tensordot(q, own, 1)
        maps.append(w)
    maps = np.stack(maps)
    matrices = maps[:, None] @ c @ maps.swapaxes(1, 2)[:, None]  # [T + 1, 2, 2, 2]
    mean = np.tensordot(matrices, q, (1, 0))
    agree = np.trace(maps @ np.tensordot(q, p, 1) @ maps.swapaxes(1, 2), axis1=1, axis2=2)
    loss = (mean**2).sum((1, 2)) / 2 - agree
    gap = ((matrices - mean[:, None]) ** 2).sum((2, 3)) @ q / 2
    kappa = 1 - (1 - 4 * a * LR) ** steps
    return Path(maps, loss, gap, matrices, _least(c, p, q), kappa, 1 - float((q * kappa / a).sum()))


def _least(second: np.ndarray, paired: np.ndarray, q: np.ndarray) -> float:
    """The least L of any W: -1/2 of the two largest lambda^2 of C^-1/2 P C^-1/2."""
    from scipy.linalg import eigh

    values = eigh(np.tensordot(q, paired, 1), np.tensordot(q, second, 1), eigvals_only=True)
    return -float((np.maximum(values[-2:], 0) ** 2).sum()) / 2


def draw_two_clients(axes: Any, *, alpha: str | float, share: float, local_steps: int, similarity: float) -> str:
    """Where both clients' views lie after ``ROUNDS`` rounds, with ellipses of R_j, and the losses by round.

    Shapes: ``axes`` two of them. Raises: TypeError, ValueError.
    """
    left, right = panels(axes, 2)
    path = two_client_rounds(alpha, share, local_steps, similarity)
    two, last = two_clients(similarity), path.maps[-1]
    z = np.einsum("hd,jnkd->jnkh", last, two.x).reshape(2, -1, 2)
    ways = np.einsum("thd,jd->jth", path.maps, two.centres)
    turn = np.linspace(0, 2 * math.pi, 73)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    for j in (0, 1):
        look, colour = series(j), PALETTE[j]
        left.plot(*z[j].T, linestyle="", marker=look["marker"], markersize=2.5, color=colour, alpha=0.45,
                  markeredgewidth=0)  # fmt: skip
        for t, line, label in ((-2, ":", None), (-1, "-", f"client {j + 1}")):
            edge = _root(path.matrices[t, j]) @ circle
            left.plot(*edge, color=colour, linestyle=line, marker="", linewidth=1.6, label=label)
        left.plot(*ways[j].T, color=colour, linewidth=0.8, marker=".", markersize=3, linestyle=look["linestyle"])
        left.plot(*ways[j, -1], linestyle="", marker=look["marker"], markersize=9, color=colour,
                  markeredgecolor="white", zorder=5)  # fmt: skip
    left.plot([0], [0], marker="+", color="black", markersize=9, linestyle="")
    needed = 1.05 * max(np.abs(z).max(), np.abs(ways).max(), np.sqrt(path.matrices[-2:, :, [0, 1], [0, 1]]).max())
    reach = next(size for size in (2.0, 3.0, 4.5, 7.0, 1.1 * needed) if size >= needed)
    left.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="$z_1$", ylabel="$z_2$")
    left.set_title("ellipses: $R_j$, dotted: a round before", fontsize="small")
    left.legend(loc="upper left", frameon=True, framealpha=0.8, edgecolor="none")
    rounds = np.arange(ROUNDS + 1)
    for i, (values, label) in enumerate(
        ((path.loss, "$L$, all data"), (path.loss + path.gap, "$L$ + gap, clients alone"))
    ):
        right.plot(rounds, values, label=label, markevery=10, **series(2 + i))
    right.axhline(path.least, color="#555555", linewidth=1.0, linestyle=":", label="least $L$")
    top = max(0.1, 1.1 * float(np.max(path.loss)), min(1.1 * float(np.max(path.loss + path.gap)), 2.0))
    right.set(xlim=(0, ROUNDS), ylim=(min(-1.1, 1.1 * path.least), top), xlabel="round", ylabel="loss")
    right.legend(loc="upper right", frameon=True, framealpha=0.8, edgecolor="none")
    return _two_sentence(path)


def overlap(matrices: np.ndarray) -> float:
    """The cosine between R_1 and R_2 [2, H, H]: 0 if they use other directions, 1 if they are the same but for size."""
    lengths = np.linalg.norm(matrices, axis=(1, 2))
    return float((matrices[0] * matrices[1]).sum() / max(lengths.prod(), 1e-300))


def _two_sentence(path: Path) -> str:
    tail = path.loss[-6:]
    swing = float(tail.max() - tail.min())
    ends = (
        f"L still swings between {tail.min():.2f} and {tail.max():.2f}" if swing > 0.02 else f"L is {tail[-1]:.2f}"
    )
    sizes = np.trace(path.matrices[-1], axis1=1, axis2=2)
    kappas = " and ".join(f"{k:.2f}" for k in sorted(set(path.kappa.round(12)), reverse=True))
    return (
        f"After {ROUNDS} rounds {ends} (least {path.least:.2f}), the gap {path.gap[-1]:.2f}; the matrices' cosine is "
        f"{overlap(path.matrices[-1]):.2f} (1: the same directions, 0: orthogonal), mean |z|² {sizes[0]:.2f} and "
        f"{sizes[1]:.2f}. Local steps go κ = {kappas} of the way; along a direction that both clients share a round "
        f"multiplies the error by {path.multiplier:.2f}: {'unstable' if path.multiplier < -1 else 'stable'} there."
    )


def _root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return vectors * np.sqrt(np.maximum(values, 0))


# --- noise on a correlation matrix

MU, DELTA = 4.0, 1e-2  # CIFAR-10's in the paper
WIDTHS = (8, 16, 32, 64)
PAPER_WIDTH = 512


@lru_cache(maxsize=4)
def client_matrices(rounds: int = 5, seed: int = 0) -> dict[int, Tensor]:
    """H -> R_1 [H, H] (float64) of a client with one digit, representations clipped to ``MU``.

    One encoder each, centrally trained for ``rounds`` rounds: less than a second for each H.
    Raises: TypeError, ValueError.
    """
    rounds, base, found = arguments.integer("rounds", rounds, 1), digits(seed), {}
    mine = base.owners(0) == 0
    for width in WIDTHS:
        own = replace(base, encoder=encoder("mlp", (1, 8, 8), width, "linear"))
        run = run_on(own, "centralized-sc", settings_of("centralized-sc", rounds=rounds), [seed], every=rounds + 1)
        run.evaluate = None
        for _ in run:
            pass
        found[width] = _matrices(own, run.server["theta"], MU, mine)
    return found


def draw_noise(matrices: Mapping[int, Tensor], seed: int = 0) -> Callable[..., str]:
    """``draw(axes, epsilon, size, uploads, width)``: one of ``matrices`` (H -> R) without and with its noise.

    sigma is the least with which ``uploads`` uploads of a client with ``size`` samples cost ``epsilon`` at ``DELTA``,
    one sample replaced, exact accountant, mu = ``MU``. The noise is the same draw at every setting, sigma times.
    Shapes: ``axes`` three of them. Raises: TypeError, ValueError.
    """
    if not isinstance(matrices, Mapping) or not matrices:
        raise arguments.wrong(TypeError, "matrices", matrices, "a mapping from H to a matrix, at least one")
    held = {}
    for width, matrix in matrices.items():
        width = arguments.integer("matrices, H", width, 1)
        arguments.tensor(f"matrices, H = {width}", matrix, shape=(width, width), kind="float")
        noise = stream(seed, "drawn noise", client=width).standard_normal((width, width))
        held[width] = matrix.double().cpu().numpy(), (noise + noise.T) / 2

    def draw_matrix(axes: Any, *, epsilon: float, size: float, uploads: float, width: int) -> str:
        first, second, third = panels(axes, 3)
        matrix, noise = held[arguments.one_of("width", width, held)]
        n, count = (round(arguments.real(name, v, 1.0)) for name, v in (("size", size), ("uploads", uploads)))
        sigma = _sigma(arguments.real("epsilon", epsilon, above=0.0), n, count)
        noised, edge = matrix + sigma * noise, sigma * math.sqrt(2 * width)
        top = float(np.abs(matrix).max())
        for ax, values, title in ((first, matrix, "$R$"), (second, noised, "sent: symmetric part")):
            ax.imshow(values, cmap="RdBu_r", vmin=-top, vmax=top, interpolation="nearest")
            ax.set(title=title, xticks=(), yticks=())
        true, seen = (np.linalg.eigvalsh(m)[::-1] for m in (matrix, noised))
        place = np.arange(1, width + 1)
        third.axhspan(-edge, edge, color="#BBBBBB", alpha=0.5, linewidth=0, label="noise alone")
        third.plot(place, true, label="$R$", **(series(0) | {"linestyle": "-"}))
        third.plot(place, seen, label="sent", **(series(1) | {"linestyle": ""}))
        high = 1.15 * max(float(true[0]), float(seen[0]), edge)
        third.set(ylim=(-max(0.12 * high, 1.15 * max(edge, -float(seen[-1]))), high), xlabel="eigenvalue, by size")
        third.set_title("eigenvalues")
        third.legend(loc="upper right", frameon=True, framealpha=0.8, edgecolor="none")
        out = int((seen > edge).sum())
        error = sigma * float(np.linalg.norm(noise)) / float(np.linalg.norm(matrix))
        near = min(TABLE_6, key=lambda row: abs(math.log(row.sigma / sigma)))
        return (
            f"ε = {epsilon:.3g} at δ = {DELTA:g} for {count} uploads of n = {n} needs σ = {sigma:.3g}: the noise is "
            f"{error:.2g} times as long as R, alone it would reach eigenvalues of ±σ√(2H) = {edge:.2g}, and {out} of "
            f"{width} stand out above that. Nearest σ in Table 6: {near.sigma:g} ({near.data}, ε {near.epsilon:g}, δ "
            f"{near.delta:g}); at the paper's H = {PAPER_WIDTH} this σ reaches {sigma * math.sqrt(2 * PAPER_WIDTH):.2g}."
        )

    return draw_matrix


@lru_cache(maxsize=256)
def _sigma(epsilon: float, size: int, uploads: int) -> float:
    return matrix_sigma(epsilon, MU, size, uploads, DELTA)

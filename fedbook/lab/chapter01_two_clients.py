"""Chapter 1's picture of two clients with controls: what contrast across clients does, and how it can go wrong.

A linear encoder W maps the views of two one-class clients into the plane. Sixty rounds of FedSC take milliseconds, so
every move of a control runs all of them again.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from matplotlib.ticker import MaxNLocator

from fedbook.lab.panels import panels
from fedbook.lab.style import PALETTE, REFERENCE, series
from fedbook.randomness import stream

ROUNDS, LR = 60, 0.05
SAMPLES, VIEWS, PIXELS = 40, 4, 3
SPREAD, BLUR = 0.08, 0.2  # of the samples around their client's centre, and of the views around their sample


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

    ``least``: what L can be at best. ``kappa`` [2]: how far E steps go towards a client's own optimum, along a
    direction that both use alike; ``multiplier``: what a round then makes of a distance from it.
    """

    maps: np.ndarray
    loss: np.ndarray
    gap: np.ndarray
    matrices: np.ndarray
    least: float
    kappa: np.ndarray
    multiplier: float


def two_clients(similarity: float) -> Two:
    """The views; ``similarity`` is the cosine between the two classes."""
    half = math.acos(similarity) / 2
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
    over all pairs of views. Source: FedSC, Algorithm 1 and equations (5), (80).
    """
    q = np.array([1.0, -1.0]) * share + np.array([0.0, 1.0])
    a = q if alpha == "q" else np.full(2, alpha)
    steps = local_steps
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

    Shapes: ``axes`` two of them.
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
    left.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="z₁", ylabel="z₂")
    left.set(xticks=(-int(reach), 0, int(reach)), yticks=(-int(reach), 0, int(reach)))
    left.set_title("ellipses: R₁ and R₂, dotted: a round before", fontsize="small")
    left.legend(loc="upper left", frameon=True, framealpha=0.8, edgecolor="none")
    rounds = np.arange(ROUNDS + 1)
    for i, (values, label) in enumerate(((path.loss, "L, all data"), (path.loss + path.gap, "L + gap, clients alone"))):
        right.plot(rounds, values, label=label, markevery=10, **series(2 + i))
    right.axhline(path.least, color=REFERENCE, linewidth=1.0, linestyle=":", label="least L")
    top = max(0.1, 1.1 * float(np.max(path.loss)), min(1.1 * float(np.max(path.loss + path.gap)), 2.0))
    right.set(xlim=(0, ROUNDS), ylim=(min(-1.1, 1.1 * path.least), top), xlabel="round", ylabel="loss")
    right.set_xticks((0, ROUNDS // 2, ROUNDS))
    right.yaxis.set_major_locator(MaxNLocator(4))
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.01), ncols=3, borderaxespad=0.0)
    return _two_sentence(path)


def overlap(matrices: np.ndarray) -> float:
    """The cosine between R_1 and R_2 [2, H, H]: 0 if they use other directions, 1 if they are the same but for size."""
    lengths = np.linalg.norm(matrices, axis=(1, 2))
    return float((matrices[0] * matrices[1]).sum() / max(lengths.prod(), 1e-300))


def _two_sentence(path: Path) -> str:
    tail = path.loss[-6:]
    moves = np.diff(tail)
    swings = bool((moves[1:] * moves[:-1] < 0).any()) and np.ptp(tail) > 0.02
    ends = f"L swings between {tail.min():.2f} and {tail.max():.2f}" if swings else f"L is {tail[-1]:.2f}"
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

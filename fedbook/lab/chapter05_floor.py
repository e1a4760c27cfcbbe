"""Chapter 5's floors: where |grad F|^2 of the least-squares problem ends, against k, bits, dither, Q, eta and batches.

A floor is the mean of the last fifth of the rounds. Messages carry their own range (64 bits each).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fedbook.lab.chapter05_descent import Compress, LeastSquares, Run, constants, least_squares, run
from fedbook.lab.chapter05_quantisers import scalar
from fedbook.lab.chapter05_sparse import top_k
from fedbook.lab.chapter05_theory import Sides
from fedbook.randomness import stream


def floor(result: Run) -> Tensor:
    """The mean of |grad F|^2 over the last fifth of the rounds, [S]."""
    return result.slopes[-max(1, len(result.slopes) // 5) :].sum(2).mean(0)


def mean_error(result: Run) -> Tensor:
    """The mean over the same rounds of the squared error of all blocks, [S]."""
    return result.errors[-max(1, len(result.slopes) // 5) :].sum(2).mean(0)


# --- compressors for a run


def every_k(width: int) -> Compress:
    """Run s of P keeps k = s + 1 components by magnitude."""
    kept = torch.arange(1, width + 1).reshape(-1, 1, 1, 1)
    return lambda h, r: top_k(h, kept)


def quantiser(bits: int | Callable[[int], int], dither: bool, seed: int = 0) -> Compress:
    """The scalar quantiser over the range of each message; ``bits`` may be a function of the round."""

    def compress(h: Tensor, r: int) -> Tensor:
        low, high = h.amin((2, 3), keepdim=True), h.amax((2, 3), keepdim=True)
        u = torch.from_numpy(stream(seed, "dither", round=r).uniform(-0.5, 0.5, h.shape)) if dither else 0.0
        return scalar(h, bits(r) if callable(bits) else bits, u, low, high)

    return compress


def growing_bits(first: int) -> Callable[[int], int]:
    """q_r = q_0 + ceil(log2(r + 1) / 4): the squared error falls as 1 / sqrt(r + 1)."""
    return lambda r: first + math.ceil(math.log2(r + 1) / 4)


# --- tables


def step_size(problem: LeastSquares, part: float) -> float:
    """``part`` of 1 / L."""
    return part / constants(problem).smooth


def floors_by_k(rounds: int = 300, local_steps: int = 1, part: float = 0.5, seed: int = 0) -> dict[str, Tensor]:
    """Top-k on the whole data for k = 1..P: ``slopes`` |grad F|^2 [R + 1, P], ``floor``, ``error``, ``ratio`` [P]."""
    problem = least_squares(seed)
    width = problem.target.shape[1]
    result = run(problem, rounds, step_size(problem, part), local_steps, every_k(width), runs=width)
    low, error = floor(result), mean_error(result)
    return {"slopes": result.slopes.sum(2), "floor": low, "error": error, "ratio": low / error}


def floors_by_step(
    local_steps: Sequence[int], parts: Sequence[float], dither: bool, bits: int = 3, work: float = 40.0, seed: int = 0
) -> Tensor:
    """The quantiser's floors [number of Qs, number of etas], eta = part / L, rounds so that R Q part = ``work``.

    Without dither the end is a fixed point (what a party computes is 0), the same for every Q and eta; with dither
    errors average out, the more the shorter a round's way.
    """
    problem = least_squares(seed)
    found = []
    for q in local_steps:
        for part in parts:
            rounds = max(50, math.ceil(work / (q * part)))
            found.append(floor(run(problem, rounds, step_size(problem, part), q, quantiser(bits, dither, seed)))[0])
    return torch.stack(found).reshape(len(local_steps), len(parts))


def schedules(rounds: int = 600, first: int = 2, part: float = 0.5, dither: bool = False, seed: int = 0) -> dict:
    """Growing bits against constant ones: for each, ``slopes`` [R + 1], ``floor``, and ``bits`` that all parties send.

    Constant are q_0, and the q that growing bits end at.
    """
    problem = least_squares(seed)
    grow = growing_bits(first)
    last = grow(rounds - 1)
    parties, numbers = len(problem.features), problem.target.numel()
    found = {}
    for name, q in ((f"{first} bits", lambda r: first), ("growing", grow), (f"{last} bits", lambda r: last)):
        result = run(problem, rounds, step_size(problem, part), 1, quantiser(q, dither, seed))
        bits = sum(parties * (numbers * q(r) + 64) for r in range(rounds))
        found[name] = {"slopes": result.slopes[:, 0].sum(1), "floor": float(floor(result)[0]), "bits": bits}
    return found


def fixed_point(k: int = 6, rounds: int = 400, local_steps: int = 5, part: float = 0.5, seed: int = 0) -> Sides:
    """Where top-k ends: grad_m F of the true model, and -X_m^T (sum of the others' errors) / N. Equal at a fixed point.

    There a party's step is 0, whatever Q and eta are: what it computes is off by this. Shapes: [M, D, P].
    """
    problem = least_squares(seed)
    x, y = problem
    theta = run(problem, rounds, step_size(problem, part), local_steps, lambda h, r: top_k(h, k)).theta[0]
    h = x @ theta
    error = top_k(h, k) - h
    return Sides(x.mT @ (h.sum(0) - y) / len(y), -x.mT @ (error.sum(0) - error) / len(y))


def diminishing(rounds: Sequence[int], decay: float, first_lr: float = 1.0) -> dict[str, list[float]]:
    """Theorem 4.4's three terms after R rounds for eta_r = first_lr / (r + 1) and E_r = (r + 1)^-decay.

    1 / sum eta, sum eta^2 / sum eta, sum eta E / sum eta: each is about 1 / log R at best.
    """
    r = torch.arange(1, max(rounds, default=1) + 1, dtype=torch.float64)
    lrs = first_lr / r
    sums = [part.cumsum(0) for part in (lrs, lrs**2, lrs * r**-decay)]
    at = torch.tensor(rounds) - 1
    total, square, error = (s[at] for s in sums)
    return {
        "rounds": rounds, "start": (1 / total).tolist(), "noise": (square / total).tolist(),
        "compression": (error / total).tolist(),
    }  # fmt: skip

"""Chapter 5's convergence on least squares, where every constant is known: Lemma 2, Theorems 4.2 and 4.4, both sides.

F = |sum_m X_m theta_m - Y|^2 / (2 N): linear parties, a plain sum as fusion, no theta_0. Runs are batched: S runs at
once (compressors, seeds), M parties, B samples a batch, D features of a party, P numbers of an embedding. float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fedbook.lab.chapter05_theory import Sides
from fedbook.randomness import normal, stream

Compress = Callable[[Tensor, int], Tensor]  # embeddings [S, M, B, P] and the round to what the others see of them


class LeastSquares(NamedTuple):
    """A vertical least-squares problem. Shapes: ``features`` [M, N, D], ``target`` [N, P]."""

    features: Tensor
    target: Tensor


def least_squares(
    seed: int = 0, samples: int = 200, parties: int = 3, features: int = 5, width: int = 8
) -> LeastSquares:
    """A random problem: Y = sum X_m W_m + noise."""
    n, m, d, p = samples, parties, features, width
    rng = stream(seed, "least squares")
    x, w = normal((m, n, d), rng), normal((m, d, p), rng) / math.sqrt(d)
    return LeastSquares(x, (x @ w).sum(0) + normal((n, p), rng))


def draw_batches(problem: LeastSquares, rounds: int, size: int, runs: int, seed: int) -> Tensor:
    """Independent uniform batches, as Assumption 2 wants them: numbers of samples [R, S, B]."""
    return torch.from_numpy(stream(seed, "batches").integers(0, len(problem.target), (rounds, runs, size)))


# --- C-VFL


class Run(NamedTuple):
    """What happened, at the start of each round r: R + 1 of ``slopes`` |grad_m F|^2 and ``values`` F, R of the others.

    ``errors`` |epsilon_m|^2 over the batch; ``drift`` sum over the round's steps of |Ghat^t - G^t0|^2; ``variance`` of
    one sample's gradient in each block. ``lrs`` eta of each round, ``batch`` B, ``theta`` at the end.
    Shapes: ``slopes`` [R + 1, S, M], ``values`` [R + 1, S], ``errors``, ``variance`` [R, S, M], ``drift`` [R, S],
    ``theta`` [S, M, D, P].
    """

    slopes: Tensor
    values: Tensor
    errors: Tensor
    drift: Tensor
    variance: Tensor
    lrs: Tensor
    local_steps: int
    batch: int
    theta: Tensor


def run(
    problem: LeastSquares,
    rounds: int,
    lr: float | Tensor,
    local_steps: int = 1,
    compress: Compress | None = None,
    batches: Tensor | None = None,
    runs: int = 1,
) -> Run:
    """C-VFL (Algorithm 1) from theta = 0, with the whole data as batch unless ``batches`` [R, S, B] are given.

    ``lr``: one number or one for each round.
    """
    lrs = lr if isinstance(lr, Tensor) else torch.full((rounds,), lr, dtype=torch.float64)
    features, target = problem
    theta = features.new_zeros(runs, len(features), features.shape[2], target.shape[1])
    x, y, gram = features, target, features.mT @ features / len(target)
    energy = features.square().sum(2)  # |x_i|^2 of every party's part, [M, N]
    kept = []

    def measured() -> tuple[Tensor, Tensor, Tensor]:
        residual = (features @ theta).sum(1) - target  # [S, N, P]
        slope = (features.mT @ residual[:, None]).square().sum((2, 3)) / len(target) ** 2
        square = residual.square().sum(2)  # a sample's gradient is x_i residual_i^T
        return slope, square.sum(1) / (2 * len(target)), square @ energy.T / len(target) - slope

    for r in range(rounds):
        if batches is not None:
            x, y = features[:, batches[r]].movedim(0, 1), target[batches[r]][:, None]  # [S, M, B, D], [S, 1, B, P]
            gram = x.mT @ x / x.shape[2]
        h = x @ theta
        sent = h if compress is None else compress(h, r)
        fixed = x.mT @ (sent.sum(1, keepdim=True) - sent - y) / x.shape[-2]  # what the frozen others contribute
        start = x.mT @ (h.sum(1, keepdim=True) - y) / x.shape[-2]
        slope, value, variance = measured()
        drift = 0.0
        for _ in range(local_steps):
            step = gram @ theta + fixed
            drift = drift + (step - start).square().sum((1, 2, 3))
            theta = theta - lrs[r] * step
        kept.append((slope, value, (sent - h).square().sum((2, 3)), drift, variance))
    slope, value, _ = measured()
    slopes, values, errors, drifts, variances = (torch.stack(part) for part in zip(*kept, strict=True))
    return Run(
        torch.cat([slopes, slope[None]]), torch.cat([values, value[None]]), errors, drifts, variances,
        lrs, local_steps, x.shape[-2], theta,
    )  # fmt: skip


# --- the constants of Assumptions 1, 4 and 5


class Constants(NamedTuple):
    """L, L_m, H_m (of the MIXED derivatives) and G_m, exactly. Shapes: ``smooth_m``, ``second``, ``tower`` [M]."""

    smooth: float
    smooth_m: Tensor
    second: Tensor
    tower: Tensor


def constants(problem: LeastSquares, norm: str = "spectral", batches: Tensor | None = None) -> Constants:
    """The smallest constants for which the assumptions hold, for the whole data or for all of ``batches``.

    dF_B / dh_m = (sum h - Y) / B: each other party's block is 1/B times the identity. J_m repeats X_m for each of
    the P columns. Spectral norms suffice in the proof, the paper has Frobenius norms of H_m and G_m.
    """
    features, width = problem.features, problem.target.shape[1]
    m, n, _ = features.shape
    whole = torch.cat(list(features), 1)  # [N, M D]
    x = features[None] if batches is None else features[:, batches.flatten(0, -2)].movedim(0, 1)  # [*, M, B, D]
    size = x.shape[2]
    joint = x.movedim(1, 2).flatten(2)[:, None]  # [*, 1, B, M D]
    smooth_m = torch.linalg.matrix_norm(x.mT @ joint / size, 2).amax(0)
    spectral = norm == "spectral"
    second = math.sqrt((m - 1) / size**2) if spectral else math.sqrt((m - 1) * width / size)
    tower = torch.linalg.matrix_norm(x, 2) if spectral else torch.linalg.matrix_norm(x) * math.sqrt(width)
    smooth = float(torch.linalg.matrix_norm(whole.mT @ whole / n, 2))
    return Constants(smooth, smooth_m, torch.full_like(smooth_m, second), tower.amax(0))


def lr_cap(found: Constants, local_steps: int) -> float:
    """The largest step of Theorems 4.2 and 4.4: 1 / (16 Q max(L, L_m))."""
    return 1 / (16 * local_steps * max(found.smooth, float(found.smooth_m.max())))


# --- both sides


def lemma_2(found: Constants, result: Run, factor: float = 64.0) -> Sides:
    """Lemma 2 in every round, whole data as batch (sigma = 0): left <= right, and already with ``factor`` 36.

    Needs eta <= 1 / (4 Q max L_m). Shapes: both [R, S]. Source: C-VFL, (A.27).
    """
    cube = result.local_steps**3
    slopes = (found.smooth_m**2 * result.slopes[:-1]).sum(2)
    compression = (_gain(found) * _others(result.errors)).sum(2)
    right = 16 * cube * result.lrs[:, None] ** 2 * slopes + factor * cube * compression
    return Sides(result.drift, right)


class Bound(NamedTuple):
    """The left side of a theorem and the terms of its right side, [S] each (a mean over runs is the expectation)."""

    left: Tensor
    optimisation: Tensor
    noise: Tensor
    compression: Tensor

    @property
    def right(self) -> Tensor:
        return self.optimisation + self.noise + self.compression


def theorem_4_2(found: Constants, result: Run, stochastic: bool = False) -> Bound:
    """Theorem 4.2 for a fixed step: left <= right, the left the mean over rounds of |grad F|^2.

    ``stochastic``: sigma_m^2 is the largest variance on the way, otherwise 0. L in the noise term is
    max(L, L_m), as the proof needs it. Source: C-VFL, (8).
    """
    q, lr = result.local_steps, float(result.lrs[0])
    noise = _noise(result, stochastic)
    compression = (_gain(found) * _others(result.errors)).sum(2).mean(0)
    return Bound(
        result.slopes[:-1].sum(2).mean(0),
        4 * (result.values[0] - result.values[-1]) / (lr * q * len(result.lrs)),
        6 * lr * q * _steepest(found) * noise,
        92 * q**2 * compression,
    )


def theorem_4_4(found: Constants, result: Run, stochastic: bool = False) -> Bound:
    """Theorem 4.4 for any steps below the cap: left <= right, the left the least |grad F|^2 of all rounds.

    Source: C-VFL, (A.93), with max(L, L_m) for every L.
    """
    q, lrs, steep = result.local_steps, result.lrs[:, None], _steepest(found)
    total = float(lrs.sum())
    powers = [float((lrs**n).sum()) / total for n in (2, 3, 4)]
    noise = 4 * (q * steep * powers[0] + 16 * q**2 * steep**2 * powers[1] + 16 * q**3 * steep**3 * powers[2])
    compression = (_gain(found) * _others(result.errors)).sum(2)
    return Bound(
        result.slopes[:-1].sum(2).amin(0),
        4 * (result.values[0] - result.values[-1]) / (q * total),
        noise * _noise(result, stochastic),
        ((86 * q**2 * lrs + 172 * steep * q**3 * lrs**2) * compression).sum(0) / total,
    )  # fmt: skip


def _others(errors: Tensor) -> Tensor:  # sum over j != m of E_j
    return errors.sum(-1, keepdim=True) - errors


def _gain(found: Constants) -> Tensor:
    return (found.second * found.tower) ** 2


def _steepest(found: Constants) -> float:
    return max(found.smooth, float(found.smooth_m.max()))


def _noise(result: Run, stochastic: bool) -> Tensor:  # sum_m sigma_m^2 / B
    if not stochastic:
        return torch.zeros_like(result.values[0])
    return (result.variance.amax((0, 1)).sum() / result.batch).expand_as(result.values[0])

"""Chapter 1's floors and Theorem 6.10 beside measurements on digits, and the stability limit of a frozen matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fedbook.lab.chapter01_descent import Problem, Run, matrices_of, run
from fedbook.lab.chapter01_sampling import noise_law
from fedbook.randomness import normal, stream

SHARDS = 20


# --- floors at one theta


def batch_bias_norms(problem: Problem, theta: Tensor, batches: Sequence[int], pairs: Sequence[int]) -> Tensor:
    """|E averaged batch gradient - grad L| by the exact formula, alpha = q, for each B and V (0 pairs: all views).

    Falls like 1 / B; at B = n only the drawn views are left. Shapes: ``theta`` [P] to [len(batches), len(pairs)].
    """
    clients, samples = problem.images.shape[:2]
    leaf = theta.detach().clone().requires_grad_()
    z = problem.embed(leaf)
    each = torch.einsum("jnkg,jnkh->jngh", z, z) / z.shape[2]
    square = each.square().sum((2, 3)).mean(1)
    between = (square - matrices_of(z).square().sum((1, 2))).mean()  # mean of S_j^2
    inside = (z.square().sum(3).square().mean((1, 2)) - square).mean()  # mean of W_j
    (between,) = torch.autograd.grad(between, leaf, retain_graph=True)
    (inside,) = torch.autograd.grad(inside, leaf)
    norms = [
        [
            ((samples - b) / (b * (samples - 1)) * between + (inside / (2 * v * b) if v else 0 * inside)).norm()
            for v in pairs
        ]
        for b in batches
    ]
    return torch.tensor(norms, dtype=torch.float64) / (2 * clients)  # 1/2 q


class NoiseFloor(NamedTuple):
    """E |change of the averaged gradient|^2 for unit noise, by number of clients, [len(clients)] each.

    ``law``: the formula; ``mean``, ``error``: Monte Carlo and its standard error; ``cauchy_schwarz``: H^2 times the
    law, what the theorem charges.
    """

    law: Tensor
    mean: Tensor
    error: Tensor
    cauchy_schwarz: Tensor


def noise_by_clients(
    problem: Problem, theta: Tensor, clients: Sequence[int] = (2, 5, 10, 20), draws: int = 20, seed: int = 0
) -> NoiseFloor:
    """The same data, sorted by class, cut for J ``clients`` (divisors of 20): noise of sigma = 1 on every upload.

    For other noise times sigma^2.
    """
    rows = problem.images.flatten(0, 1)
    shards = Problem(rows.unflatten(0, (SHARDS, -1)), problem.start)
    leaf = theta.repeat(SHARDS, 1).requires_grad_()
    matrices = matrices_of(shards.embed(leaf))
    width = matrices.shape[1]
    slopes = torch.stack([
        (1.0 if a == b else math.sqrt(2.0))  # above the diagonal stands for both
        * torch.autograd.grad(matrices[:, a, b].sum(), leaf, retain_graph=True)[0]
        for a in range(width) for b in range(a, width)
    ], 1)  # fmt: skip
    law, mean, error = [], [], []
    for n in clients:
        q = torch.full((n,), 1 / n, dtype=torch.float64)
        law.append(noise_law(slopes.unflatten(0, (n, -1)).mean(1)[:, :, None], q))
        noise = normal((draws, n, width, width), stream(seed, "noise floor", client=n))
        rest = (noise.sum(1, keepdim=True) - noise) / (n - 1)
        merged = matrices.unflatten(0, (n, -1)).mean(1)
        found = []
        for r in rest:  # the noise's share of sum_j q_j L_j
            change = torch.autograd.grad((1 - 1 / n) * (merged * r).sum() / n, leaf, retain_graph=True)[0].sum(0)
            found.append(change.square().sum())
        found = torch.stack(found)
        mean.append(found.mean())
        error.append(found.std() / math.sqrt(draws))
    law = torch.stack(law)
    return NoiseFloor(law, torch.stack(mean), torch.stack(error), width**2 * law)


# --- Theorem 6.10


class Terms(NamedTuple):
    """The terms of Theorem 6.10 with every constant 1. ``start`` is missing in the paper's (7), but not in its proof.

    ``start``, ``drift``, ``cohort`` and ``variance`` vanish with T; ``views``, ``batch`` and ``noise`` are the floor.
    """

    start: float
    drift: float
    cohort: float
    variance: float
    views: float
    batch: float
    noise: float

    @property
    def floor(self) -> float:
        """Equation (8)."""
        return self.views + self.batch + self.noise


def theorem_6_10(
    rounds: int,
    local_steps: int = 1,
    sigma: float = 0.0,
    batch: int | None = None,
    views: int | None = None,
    cohort: int | None = None,
    *,
    gain: float = 1.0,
    samples: int = 100,
    clients: int = 10,
    width: int = 16,
) -> Terms:
    """The right side of (7) up to constants, with ``gain`` L(theta^0) - inf L. None: all samples, views, clients.

    Source: FedSC, (7), (8) and (76).
    """
    batch = samples if batch is None else batch
    cohort = clients if cohort is None else cohort
    per_view = 0.0 if views is None else 1 / views
    steps, noise = rounds * local_steps, (width * sigma) ** 2
    sampled = (samples / batch - 1) / (samples - 1)
    return Terms(
        gain / math.sqrt(steps),
        local_steps**2 * (noise + 1) / steps,
        math.sqrt(local_steps / rounds * (clients / cohort - 1) / (clients - 1)),
        (per_view + sampled) * (noise + 1) / math.sqrt(steps),
        per_view,
        sampled,
        noise,
    )


def mean_slopes(problem: Problem, horizons: Sequence[int], step: float = 0.05, **setting) -> Tensor:
    """The left side of (7): mean of |grad L|^2 over the rounds, for each T with eta = ``step`` / sqrt(T E).

    ``setting`` goes to chapter01_descent.run. Shapes: [len(horizons)].
    """
    found = []
    local_steps = setting.get("local_steps", 1)
    for rounds in horizons:
        done = run(problem, rounds, step / math.sqrt(rounds * local_steps), **setting)
        found.append(done.slope[:-1].mean())
    return torch.stack(found)


def plateaus(problem: Problem, sigmas: Sequence[float], rounds: int = 150, lr: float = 0.005, **setting) -> Tensor:
    """Mean of |grad L|^2 over the last half of a run, for each noise. Shapes: [len(sigmas)].

    ``setting`` goes to chapter01_descent.run; the noise is the same but for its scale.
    """
    found = []
    for sigma in sigmas:
        found.append(run(problem, rounds, lr, sigma=sigma, **setting).slope[rounds // 2 :].mean())
    return torch.stack(found)


# --- stability


def jacobi(kappa: float, alpha: float, rounds: int, start: float = 1.01) -> list[float]:
    """r = |z|^2 along one direction that all clients share, round by round: r <- r + kappa (r* - r).

    r* = (1 - (1 - alpha) r) / alpha is every client's answer to the r of before; r = 1 is the fixed point, and the
    error is multiplied by 1 - kappa / alpha each round. Shapes: [rounds + 1].
    """
    found = [start]
    for _ in range(rounds):
        before = found[-1]
        found.append(before + kappa * ((1 - (1 - alpha) * before) / alpha - before))
    return found


class Multiplier(NamedTuple):
    """``kappa`` = 1 - (1 - 4 alpha eta)^E of local descent; what it says, 1 - kappa / alpha; and what a round did."""

    kappa: float
    predicted: float
    measured: float


def jacobi_of_steps(alpha: float, local_steps: int, lr: float, offset: float = 1e-6) -> Multiplier:
    """One round of real gradient steps on -z^2 + alpha/2 z^4 + (1 - alpha) z^2 r, r frozen, from z^2 = 1 + ``offset``.

    Equal up to the offset. Small steps (4 alpha eta E << 1) give 1 - 4 eta E, whatever alpha.
    """
    frozen = 1 + offset
    z = math.sqrt(frozen)
    for _ in range(local_steps):
        z -= lr * (-2 * z + 2 * alpha * z**3 + 2 * (1 - alpha) * z * frozen)
    kappa = 1 - (1 - 4 * alpha * lr) ** local_steps
    return Multiplier(kappa, 1 - kappa / alpha, (z**2 - 1) / (frozen - 1))


def stability(
    problem: Problem, rounds: int = 60, lr: float = 0.005, local_steps: int = 20, cohort: int | None = None
) -> dict[str, Run]:
    """The same local training with alpha = q, with the linear schedule from 1 to 0.2, and alpha = 1."""
    schedule = torch.linspace(1, 0.2, rounds, dtype=torch.float64)
    kinds = {"alpha = q": "q", "alpha 1 to 0.2": schedule, "FedAvg + SC": 1.0}
    return {name: run(problem, rounds, lr, alpha, local_steps, cohort=cohort) for name, alpha in kinds.items()}

"""Chapter 4's convergence: one private round on quadratic federations, exactly, and what the rounds add up to."""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.randomness import normal, stream

# --- one round (D22)


class Quadratics(NamedTuple):
    """Federations of quadratic clients F_i(x) = (x - b_i)^T A_i (x - b_i) / 2, and the point each one is at.

    Shapes: ``curvature`` A [F, K, D, D] symmetric, ``centre`` b [F, K, D], ``at`` [F, D].
    """

    curvature: Tensor
    centre: Tensor
    at: Tensor

    def value(self, x: Tensor) -> Tensor:
        """The mean client loss at x: [F, D] to [F]."""
        away = x[:, None] - self.centre
        return 0.5 * torch.einsum("fki,fkij,fkj->fk", away, self.curvature, away).mean(1)

    def slopes(self, x: Tensor) -> Tensor:
        """Every client's gradient, each at its own point: [F, K, D] to [F, K, D]."""
        return torch.einsum("fkij,fkj->fki", self.curvature, x - self.centre)

    def smoothness(self) -> Tensor:
        """L: the largest absolute eigenvalue of any client's curvature, [F]."""
        return torch.linalg.eigvalsh(self.curvature).abs().amax((1, 2))


def random_quadratics(federations: int, clients: int, dimension: int, seed: int) -> Quadratics:
    """Random federations, float64: every second one convex, the others with curvatures of both signs.

    Raises: TypeError, ValueError.
    """
    shape = [arguments.integer(n, v, 1) for n, v in
             (("federations", federations), ("clients", clients), ("dimension", dimension))]  # fmt: skip
    rng = stream(seed, "quadratic federations")
    factor = normal((*shape, dimension), rng)
    curvature = factor @ factor.mT / dimension
    curvature[1::2] -= torch.eye(dimension, dtype=torch.float64)
    return Quadratics(curvature, 3 * normal(tuple(shape), rng), normal((federations, dimension), rng))


class Round(NamedTuple):
    """Both sides of the one-round lemma: expected ``change`` of F [F] and the ``terms``, name -> [F], that bound it."""

    change: Tensor
    terms: dict[str, Tensor]

    @property
    def bound(self) -> Tensor:
        """The sum of the terms, [F]."""
        return torch.stack(list(self.terms.values())).sum(0)


def one_round(problem: Quadratics, lr: float, sam_radius: float, clip_norm: float, noise_multiplier: float) -> Round:
    """One full-batch SAM step by every client, clipped, averaged, noised: E_z F(x - u + z) - F(x), and its bound.

    The expectation over the noise is exact, F(x - u) + s^2 tr(mean A) / 2 with s = sigma C / K. The terms:
    ``gradient`` -lr mean(alpha) |grad F|^2 / 2, ``sam`` lr mean(alpha) L^2 q^2 / 2, ``clipping``
    lr mean|alpha - mean alpha| max|g| |grad F|, ``step`` L |u|^2 / 2, ``noise`` L s^2 D / 2.

    Raises: TypeError, ValueError. Source: repaired form of DP2-FedSAM's Lemmas 8 and 9; the proof stands in chapter 4.
    """
    lr, radius = arguments.real("lr", lr, above=0.0), arguments.real("sam_radius", sam_radius, 0.0)
    clip_norm = arguments.real("clip_norm", clip_norm, above=0.0)
    clients, dimension = problem.centre.shape[1:]
    std = arguments.real("noise_multiplier", noise_multiplier, 0.0) * clip_norm / clients
    x, smoothness = problem.at, problem.smoothness()
    everyone = x[:, None].expand_as(problem.centre)
    plain = problem.slopes(everyone)
    perturbed = problem.slopes(everyone + radius * torch.nn.functional.normalize(plain, dim=2))  # g^q, lines 12 to 14
    length = perturbed.norm(dim=2)
    factor = clip_norm / (lr * length).clamp(min=clip_norm)  # alpha, [F, K]
    u = lr * (factor[:, :, None] * perturbed).mean(1)
    average, spread = factor.mean(1), (factor - factor.mean(1, keepdim=True)).abs().mean(1)
    steepness = plain.mean(1).norm(dim=1)  # |grad F|
    trace = problem.curvature.diagonal(dim1=2, dim2=3).sum(2).mean(1)
    change = problem.value(x - u) + 0.5 * std**2 * trace - problem.value(x)
    return Round(change, {
        "gradient": -0.5 * lr * average * steepness**2,
        "sam": 0.5 * lr * average * smoothness**2 * radius**2,
        "clipping": lr * spread * length.amax(1) * steepness,
        "step": 0.5 * smoothness * u.square().sum(1),
        "noise": 0.5 * smoothness * std**2 * dimension,
    })  # fmt: skip


# --- local steps (D17, D18, D25) and heads that stay behind (D24)


def momentum_weights(momentum: float, steps: int) -> Tensor:
    """How much each gradient counts in an update with momentum from a zero buffer: (1 - b^(steps - s)) / (1 - b).

    Shapes: [steps] float64, the first gradient first. Raises: TypeError, ValueError.
    """
    momentum = arguments.real("momentum", momentum, 0.0, below=1.0)
    left = torch.arange(arguments.integer("steps", steps, 1), 0, -1, dtype=torch.float64)
    return (1 - momentum**left) / (1 - momentum)


def longest_update(lr: float, steps: int, gradient_bound: float, momentum: float = 0.0) -> float:
    """The longest update that gradients of norm at most G allow: lr * G * sum of the weights, lr * steps * G without.

    A clip norm of that size clips nothing. Raises: TypeError, ValueError.
    """
    reach = arguments.real("lr", lr, 0.0) * arguments.real("gradient_bound", gradient_bound, 0.0)
    return reach * float(momentum_weights(momentum, steps).sum())


def drift_bound(lr: float, steps: int, gradient_bound: float, gradient_std: float) -> float:
    """2 lr^2 (s^2 G^2 + s std^2) >= E |phi^s - phi|^2 after s stochastic steps; without noise lr^2 s^2 G^2 does.

    ``gradient_std``: root mean square length of the noise in one gradient. Raises: TypeError, ValueError.
    """
    lr, steps = arguments.real("lr", lr, 0.0), arguments.integer("steps", steps, 0)
    slope = arguments.real("gradient_bound", gradient_bound, 0.0)
    noise = arguments.real("gradient_std", gradient_std, 0.0)
    return 2 * lr**2 * (steps**2 * slope**2 + steps * noise**2)


def measured_drift(
    lr: float, steps: int, gradient_bound: float, gradient_std: float, walks: int = 2000, seed: int = 0
) -> Tensor:
    """Mean |phi^s - phi|^2 over noisy walks down G sqrt(1 + |x|^2), whose gradients are shorter than G.

    Shapes: [steps + 1] float64; five parameters, start at distance 3. Raises: TypeError, ValueError.
    """
    lr, slope = arguments.real("lr", lr, 0.0), arguments.real("gradient_bound", gradient_bound, 0.0)
    std = arguments.real("gradient_std", gradient_std, 0.0) / math.sqrt(5)
    rng, walks = stream(seed, "drift"), arguments.integer("walks", walks, 1)
    start = torch.tensor([3.0, 0, 0, 0, 0], dtype=torch.float64).expand(walks, 5)
    x, far = start, [0.0]
    for _ in range(arguments.integer("steps", steps, 0)):
        gradient = slope * x / (1 + x.square().sum(1, keepdim=True)).sqrt()
        x = x - lr * (gradient + std * normal((walks, 5), rng))
        far.append(float((x - start).square().sum(1).mean()))
    return torch.tensor(far, dtype=torch.float64)


def stale_heads(moves: Tensor, size: int) -> float:
    """The mean over ALL cohorts of ``size`` of (1/N) sum of |move_i|^2 over the clients left out.

    A selected client's head is where it would be had all taken part; the others' heads lag by their whole move.
    Equals (1 - size / N) times the mean of all |move_i|^2. Shapes: ``moves`` [N, D]. Raises: TypeError, ValueError.
    """
    clients = len(arguments.tensor("moves", moves, ndim=2, kind="float"))
    size = arguments.integer("size", size, 0, clients)
    square = moves.square().sum(1)
    cohorts = list(combinations(range(clients), size))
    lag = [square.sum() - square[list(cohort)].sum() for cohort in cohorts]
    return float(torch.stack(lag).mean() / clients)


# --- many rounds (section on Theorem 1)


def rounds_bound(rounds: float, start_gap: float, noise: float, power: float = 0.5) -> float:
    """start_gap / sqrt(T) + noise * T^power: what optimisation gains and privacy costs as rounds are added.

    ``power`` 1/2: Theorem 1 with a fixed noise multiplier and clip norm; 3/2: with the multiplier that a fixed
    epsilon needs, which grows like sqrt(T). Raises: TypeError, ValueError.
    """
    rounds = arguments.real("rounds", rounds, above=0.0)
    gap, noise = arguments.real("start_gap", start_gap, 0.0), arguments.real("noise", noise, 0.0)
    return gap / math.sqrt(rounds) + noise * rounds ** arguments.real("power", power, above=0.0)


def best_rounds(start_gap: float, noise: float, power: float = 0.5) -> float:
    """The number of rounds at which that is smallest: (start_gap / (2 power noise))^(1 / (power + 1/2)).

    start_gap / noise for ``power`` 1/2. Raises: TypeError, ValueError.
    """
    gap, noise = arguments.real("start_gap", start_gap, above=0.0), arguments.real("noise", noise, above=0.0)
    power = arguments.real("power", power, above=0.0)
    return (gap / (2 * power * noise)) ** (1 / (power + 0.5))


def mean_square_gradient(curvature: Tensor, start: Tensor, rounds: int, noise_std: float) -> float:
    """(1/T) sum of E |grad F(x^t)|^2 / L over T rounds of noisy descent on sum_d a_d x_d^2 / 2, exactly.

    Step 1 / (L sqrt(T)) as in Theorem 1, independent N(0, noise_std^2) on every coordinate each round. It is at
    most 2 gap / sqrt(T) + L noise_std^2 D sqrt(T). Shapes: ``curvature`` a > 0 [D], ``start`` [D].
    Raises: TypeError, ValueError.
    """
    arguments.tensor("curvature", curvature, ndim=1, kind="float")
    arguments.tensor("start", start, shape=(len(curvature),), kind="float")
    if not bool((curvature > 0).all()):
        raise arguments.wrong(ValueError, "curvature", curvature.tolist(), "positive numbers")
    rounds, std = arguments.integer("rounds", rounds, 1), arguments.real("noise_std", noise_std, 0.0)
    smoothness = curvature.max()
    shrink = (1 - curvature / (smoothness * math.sqrt(rounds))) ** 2
    total = (1 - shrink**rounds) / (
        1 - shrink
    )  # sum of shrink^t; E x_t^2 = shrink^t x_0^2 + std^2 (1 - shrink^t) / ...
    square = total * start**2 + std**2 * (rounds - total) / (1 - shrink)
    return float((curvature**2 * square).sum() / (smoothness * rounds))

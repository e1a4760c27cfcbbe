"""Chapter 4's convergence: one private round on quadratic federations, exactly, and what the rounds add up to."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

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
    """Random federations, float64: every second one convex, the others with curvatures of both signs."""
    shape = [v for n, v in
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

    Source: repaired form of DP2-FedSAM's Lemmas 8 and 9; the proof stands in chapter 4.
    """
    radius = sam_radius
    clients, dimension = problem.centre.shape[1:]
    std = noise_multiplier * clip_norm / clients
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

    Shapes: [steps] float64, the first gradient first.
    """
    left = torch.arange(steps, 0, -1, dtype=torch.float64)
    return (1 - momentum**left) / (1 - momentum)


def longest_update(lr: float, steps: int, gradient_bound: float, momentum: float = 0.0) -> float:
    """The longest update that gradients of norm at most G allow: lr * G * sum of the weights, lr * steps * G without.

    A clip norm of that size clips nothing.
    """
    reach = lr * gradient_bound
    return reach * float(momentum_weights(momentum, steps).sum())


# --- many rounds (section on Theorem 1)

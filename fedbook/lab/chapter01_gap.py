"""What FedAvg descends in chapter 1 (the global loss plus a gap), what FedSC does, and with which coefficients.

On the small clients of chapter01_theory, both sides of every identity, float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad, jacrev

from fedbook.lab.chapter01_spectrum import minimise, view_graph
from fedbook.lab.chapter01_theory import (
    SIZES,
    WIDTH,
    Sides,
    Toy,
    all_view_pairs,
    averaged_loss,
    fresh_others,
    global_gradient,
    others,
    pairwise_loss,
    toy,
)  # fmt: skip
from fedbook.papers.fedsc.spectral import bank_objective, correlation, spectral_loss
from fedbook.randomness import normal, stream

MISTAKES = ("none", "uniform mean", "half kept", "old matrices", "FedAvg")

# --- D5: what FedAvg optimises


class Gap(NamedTuple):
    """sum_j q_j L(D_j) - L(D) by pairs; half the weighted variance of the R_j; a quarter over pairs of clients."""

    difference: Tensor
    variance: Tensor
    pairs: Tensor


def gap_identity(seed: int = 0, same_data: bool = False) -> Gap:
    """The three forms of FedAvg's gap. Equal; 0 with ``same_data``."""
    small = toy((4, 4, 4) if same_data else SIZES, seed, same_data)
    return gap_forms(small.embed(small.theta), small.owner)


def gap_forms(z: Tensor, owner: Tensor) -> Gap:
    """The gap in its three forms; the variance is the package's. Shapes: ``z`` [N, K, H], ``owner`` [N]."""
    clients, shares = int(owner.max()) + 1, torch.bincount(owner).double() / len(owner)
    views = [z[owner == j] for j in range(clients)]
    difference = fedavg_loss(z, owner) - pairwise_loss(z)
    rows = [v.flatten(0, 1) for v in views]
    matrices = [sum(torch.outer(row, row) for row in r) / len(r) for r in rows]
    every = range(clients)
    pairs = sum(shares[i] * shares[j] * (matrices[i] - matrices[j]).square().sum() for i in every for j in every) / 4
    return Gap(difference, bank_objective(z, owner, clients).gap, pairs)


def fedavg_loss(z: Tensor, owner: Tensor) -> Tensor:
    """sum_j q_j L(D_j), each by its own pairs. Shapes: ``z`` [N, K, H], ``owner`` [N]."""
    shares = torch.bincount(owner).double() / len(owner)
    return sum(q * pairwise_loss(z[owner == j]) for j, q in enumerate(shares))


class Stationary(NamedTuple):
    """Where FedAvg's objective has no slope: |its gradient|, grad L and -grad Gap, both [X, H]."""

    slope: float
    loss_gradient: Tensor
    minus_gap_gradient: Tensor


def fedavg_stationary(seed: int = 0) -> Stationary:
    """FedAvg's objective minimised over a free table of z: grad L is -grad Gap there, and not 0.

    Two clients with 3 and 5 samples, some of whose views are the same points.
    """
    views = view_graph(seed=seed).views
    owner = (torch.arange(len(views)) >= 3).long()
    start = normal((int(views.max()) + 1, WIDTH), stream(seed, "table"))
    best = minimise(lambda table: fedavg_loss(table[views], owner), start)
    slope = grad(lambda table: fedavg_loss(table[views], owner))(best)
    minus = -grad(lambda table: gap_forms(table[views], owner).pairs)(best)
    return Stationary(float(slope.norm()), grad(lambda table: pairwise_loss(table[views]))(best), minus)


class OneVector(NamedTuple):
    """J clients, one vector each, by step: L of FedAvg's objective, L and Gap, [T + 1] each; the last z [J, H]."""

    fedavg: Tensor
    loss: Tensor
    gap: Tensor
    z: Tensor


def one_vector_each(
    method: str, clients: int = 4, width: int = 6, steps: int = 400, lr: float = 0.2, shift: float = 1e-3, seed: int = 0
) -> OneVector:
    """Gradient descent on "fedavg" or "global" from one unit vector for all, moved by ``shift`` times a normal vector.

    FedAvg is content with the collapse (L = -1/2); the global optimum is orthogonal (L = -J/2).
    """
    rng = stream(seed, "one vector")
    unit = normal((width,), rng)
    z = (unit / unit.norm()).repeat(clients, 1) + shift * normal((clients, width), rng)
    found = []
    for step in range(steps + 1):
        square = z.square().sum(1)
        fedavg, loss = (square.square() / 2 - square).mean(), pairwise_loss(z[:, None])
        found.append(torch.stack([fedavg, loss, fedavg - loss]))
        gram = torch.diag(square) if method == "fedavg" else z @ z.T / clients
        if step < steps:
            z = z - lr * 2 * (gram @ z - z)  # J times the gradient: a step that does not shrink with J
    return OneVector(*torch.stack(found).unbind(1), z)


# --- D9 and the whole protocol


def averaged_field(small: Toy, theta: Tensor, alpha: Tensor) -> Tensor:
    """sum_j q_j grad L_j(theta; R_{-j}(theta)) with coefficients ``alpha`` [J]: what everybody together follows."""
    fresh = fresh_others(small, theta)
    return grad(lambda t: averaged_loss(small, t, fresh, alpha, small.shares))(theta)


def alpha_objective(alpha: float, seed: int = 0) -> Sides:
    """Equal q: the field with one ``alpha``, and the gradient of the objective in closed form. Equal.

    -mean Tr R_j^+ + alpha / (2J) sum |R_j|^2 + (1 - alpha) / (2 J (J - 1)) sum_{i != j} Tr R_i R_j: L for alpha = 1/J.
    """
    small = toy((3, 3, 3, 3), seed)
    clients = small.clients

    def objective(theta: Tensor) -> Tensor:
        z = small.embed(theta)
        products = torch.einsum("nkh,mlh->nmkl", z, z)
        mine = small.owner[:, None] == small.owner
        squares = products.square().mean((2, 3)) / 9  # Tr of two samples' matrices, over n_j^2
        same, different = squares[mine].sum(), squares[~mine].sum()
        contraction = torch.stack([products[i, i].mean() for i in range(len(z))]).mean()
        return alpha / (2 * clients) * same + (1 - alpha) / (2 * clients * (clients - 1)) * different - contraction

    weights = torch.full((clients,), alpha, dtype=torch.float64)
    return Sides(averaged_field(small, small.theta, weights), grad(objective)(small.theta))


def field_asymmetry(alpha: float | None, sizes: Sequence[int] = SIZES, seed: int = 0) -> float:
    """|A - A^T| / |A| of the field's Jacobian A: 0 for a gradient of some objective. ``alpha`` None: alpha_j = q_j."""
    small = toy(sizes, seed)
    weights = small.shares if alpha is None else torch.full_like(small.shares, alpha)
    slope = jacrev(partial(averaged_field, small, alpha=weights))(small.theta)
    return float((slope - slope.T).norm() / slope.norm())


def fedsc_and_central(rounds: int = 50, lr: float = 0.05, mistake: str = "none", seed: int = 0) -> Sides:
    """theta [P] after FedSC (one full-batch step a round, alpha = q) and after gradient descent on the pairs.

    Equal without a ``mistake``: "uniform mean" of the weights, the 1/2 of eq. (4) "half kept", R_{-j} one round old
    ("old matrices"), or "FedAvg" (alpha = 1). Source: FedSC, Algorithm 1.
    """
    small = toy(seed=seed)
    q, every = small.shares, range(small.clients)
    mean = torch.full_like(q, 1 / len(q)) if mistake == "uniform mean" else q
    alpha = torch.ones_like(q) if mistake == "FedAvg" else q
    cross = 0.5 if mistake == "half kept" else 1.0
    theta = central = small.theta
    uploads = [correlation(z) for z in small.client_views(theta)]
    for _ in range(rounds):
        fresh = [correlation(z) for z in small.client_views(theta)]
        rest = others(uploads if mistake == "old matrices" else fresh, q)
        uploads, moved = fresh, []
        for j in every:  # one local step of each client from the same theta

            def local(t: Tensor, j: int = j, rest: list[Tensor] = rest) -> Tensor:
                part = spectral_loss(all_view_pairs(small.client_views(t)[j]), alpha[j], rest[j])
                return part.contraction + part.intra + cross * part.inter

            moved.append(theta - lr * grad(local)(theta))
        theta = sum(w * t for w, t in zip(mean, moved, strict=True))
        central = central - lr * global_gradient(small, central)
    return Sides(theta, central)

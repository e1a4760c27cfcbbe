"""Chapter 1's descent on real digits, every quantity exact: FedAvg + SC, FedSC and one pooled machine, round by round.

Ten clients with one class each and K = 4 views a sample, plain gradient descent, float64. The output
z = sqrt(12) u / sqrt(1 + |u|^2) is smooth and bounded, so Theorem 6.10 applies, and 12 > 1 / q = 10, so the clients'
optima are inside. All clients are one stacked tensor: weights [J, P], views [J, n, K, 64].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fedbook.data import digits
from fedbook.lab.chapter01_theory import Sides
from fedbook.learning.augmentation import AUGMENTATIONS
from fedbook.learning.evaluation import effective_rank
from fedbook.papers.fedsc.spectral import bank_objective
from fedbook.randomness import normal, stream

CLIENTS, VIEWS, PIXELS, HIDDEN, WIDTH = 10, 4, 64, 32, 16
SQUARE = 12.0  # the bound A_0^2 on |z|^2
SIZES = (PIXELS * HIDDEN, HIDDEN, HIDDEN * WIDTH, WIDTH)


@dataclass(frozen=True)
class Problem:
    """Shapes: ``images`` [J, n, K, 64], all the views there are; ``start`` [P], where descents begin."""

    images: Tensor
    start: Tensor

    def embed(self, theta: Tensor, images: Tensor | None = None) -> Tensor:
        """z of views under ``theta`` [P] for all clients or [J, P]: [J, n, V, H] (of the whole bank for None)."""
        images = self.images if images is None else images
        w, b, out, c = theta.split(SIZES, -1)
        rows = images.flatten(-3, -2)  # [J, n V, 64]
        lead = theta.shape[:-1]
        hidden = (rows @ w.view(*lead, PIXELS, HIDDEN) + b[..., None, :]).tanh()
        u = hidden @ out.view(*lead, HIDDEN, WIDTH) + c[..., None, :]
        z = u * (SQUARE / (1 + u.square().sum(-1, keepdim=True))).sqrt()
        return z.view(*images.shape[:-1], WIDTH)


def digits_problem(samples: int = 100, seed: int = 0) -> Problem:
    """``samples`` digits of each class, one class a client, and K views of each by the recipe for digits."""
    data, rng = digits(), stream(seed, "theory bank")
    rows = [rng.choice(torch.nonzero(data.train_y == j).flatten().numpy(), samples, False) for j in range(CLIENTS)]
    x = torch.cat([data.train_x[r] for r in rows])
    recipe = AUGMENTATIONS["digits"]
    views = recipe(x, recipe.draw(rng, (len(x), VIEWS), tuple(x.shape[1:])))
    w, b, out, c = (normal((size,), rng) for size in SIZES)
    start = torch.cat([w / PIXELS**0.5, 0 * b, 0.5 * out / HIDDEN**0.5, 0 * c])
    return Problem(views.double().reshape(CLIENTS, samples, VIEWS, PIXELS), start)


# --- FedSC


class Run(NamedTuple):
    """At the start of each round and at the end, [T + 1] each: |grad L|^2, L, Gap, effective rank of R.

    ``drift`` [T]: mean of |theta_j - theta|^2 after the local steps of each round. ``turn`` [T - 1]: cosine between
    one round's move of theta and the next one's, -1 is back and forth. ``theta`` [P]: the last.
    """

    slope: Tensor
    loss: Tensor
    gap: Tensor
    rank: Tensor
    drift: Tensor
    turn: Tensor
    theta: Tensor


class Measured(NamedTuple):
    """One forward pass over the bank. Shapes: ``parts`` -Tr R_j^+ [J], ``matrices`` [J, H, H], ``loss``, ``gap`` []."""

    parts: Tensor
    matrices: Tensor
    loss: Tensor
    gap: Tensor


def measure(problem: Problem, theta: Tensor) -> Measured:
    """The exact objective of clients of one size at ``theta`` [P] or [J, P]."""
    z = problem.embed(theta)
    parts, matrices = -z.mean(2).square().sum(2).mean(1), matrices_of(z)
    mean = matrices.mean(0)
    gap = (matrices - mean).square().sum((1, 2)).mean() / 2
    return Measured(parts, matrices, parts.mean() + mean.square().sum() / 2, gap)


def matrices_of(z: Tensor) -> Tensor:
    """R_j of views [J, n, V, H]: [J, H, H]."""
    rows = z.flatten(1, 2)
    return rows.mT @ rows / rows.shape[1]


def run(
    problem: Problem,
    rounds: int,
    lr: float,
    alpha: str | float | Tensor = "q",
    local_steps: int = 1,
    sigma: float = 0.0,
    batch: int | None = None,
    pairs: int = 1,
    views: int | None = None,
    cohort: int | None = None,
    start: Tensor | None = None,
    seed: int = 0,
) -> Run:
    """FedSC by Algorithm 1, plain gradient descent, matrices of every round; a client not drawn keeps its old one.

    ``alpha``: "q" is the analysed loss, 1 is FedAvg + SC, [T] a schedule. ``batch``: samples of a local step, without
    replacement, 2 ``pairs`` views each drawn from the bank; None is all samples with all their views. ``views``: drawn
    for the shared matrix, None all; ``sigma``: noise on its entries. ``cohort``: clients of a round, None all.
    Source: FedSC, Algorithms 1 and 2.
    """
    images, clients = problem.images, len(problem.images)
    alphas = coefficients(alpha, rounds, clients)
    cohort = clients if cohort is None else cohort
    theta = problem.start if start is None else start
    shared, kept, drifts, path = None, [], [], [theta]
    for t in range(rounds):
        rng = stream(seed, "theory round", t)
        leaf = theta.repeat(clients, 1).requires_grad_()
        found = measure(problem, leaf)
        kept.append(_record(found, leaf, keep=batch is None))
        fresh = found.matrices.detach()
        if views is not None:
            fresh = matrices_of(problem.embed(theta, draw_views(images, None, views, rng)))
        if sigma > 0:
            fresh = fresh + sigma * normal(tuple(fresh.shape), rng)
        active = torch.from_numpy(rng.permutation(clients)[:cohort]).sort().values
        shared = fresh if shared is None else shared.index_copy(0, active, fresh[active])
        others = (shared.sum(0) - shared) / (clients - 1)
        moved = leaf
        for step in range(local_steps):
            if batch is not None:
                z = problem.embed(moved, draw_views(images, batch, 2 * pairs, rng))
                first, second = z.chunk(2, 2)
                parts, matrices = -(first * second).sum(3).mean((1, 2)), matrices_of(z)
            else:
                parts, matrices = (found if step == 0 else measure(problem, moved))[:2]
            local = parts + alphas[t] / 2 * matrices.square().sum((1, 2))
            local = local + (1 - alphas[t]) * (matrices * others).sum((1, 2))
            (slopes,) = torch.autograd.grad(local.sum(), moved)
            moved = (moved.detach() - lr * slopes).requires_grad_()
        mine = moved.detach()[active]
        theta = mine.mean(0)
        drifts.append((mine - theta).square().sum(1).mean())
        path.append(theta)
    leaf = theta.repeat(clients, 1).requires_grad_()
    kept.append(_record(measure(problem, leaf), leaf, keep=False))
    moves = torch.stack(path).diff(dim=0)
    turn = torch.cosine_similarity(moves[:-1], moves[1:])
    return Run(*torch.tensor(kept, dtype=torch.float64).unbind(1), torch.stack(drifts), turn, theta)


def coefficients(alpha: str | float | Tensor, rounds: int, clients: int) -> Tensor:
    """The loss coefficient of each round, [T]."""
    if isinstance(alpha, Tensor):
        return alpha
    if isinstance(alpha, str):
        alpha = 1 / clients
    return torch.full((rounds,), alpha, dtype=torch.float64)


def draw_views(images: Tensor, batch: int | None, views: int, rng) -> Tensor:
    """``batch`` samples of each client without replacement (None: all), ``views`` of each: [J, B, V, 64]."""
    clients, samples, bank, _ = images.shape
    order = rng.random((clients, samples)).argsort(1)[:, :batch] if batch else [range(samples)] * clients
    chosen = torch.as_tensor(order)
    which = torch.from_numpy(rng.integers(0, bank, (*chosen.shape, views)))
    return images[torch.arange(clients)[:, None, None], chosen[:, :, None], which]


def _record(found: Measured, leaf: Tensor, keep: bool) -> tuple[float, ...]:
    (slope,) = torch.autograd.grad(found.loss, leaf, retain_graph=keep)
    rank = effective_rank(found.matrices.detach().mean(0))
    return tuple(float(x.detach()) for x in (slope.sum(0).square().sum(), found.loss, found.gap, rank))


# --- one machine that holds everything


def central(problem: Problem, rounds: int, lr: float) -> Tensor:
    """theta [P] after gradient descent on all data at once, by the package's exact objective of a pooled bank."""
    theta = problem.start
    for _ in range(rounds):
        theta = theta.detach().requires_grad_()
        loss = bank_objective(problem.embed(theta).flatten(0, 1)).loss
        theta = theta.detach() - lr * torch.autograd.grad(loss, theta)[0]
    return theta


def same_as_central(problem: Problem, rounds: int, lr: float) -> Sides:
    """theta [P] after FedSC (full batch, E = 1, alpha = q) and after descent on the pooled data. Equal."""
    return Sides(run(problem, rounds, lr).theta, central(problem, rounds, lr))

"""Chapter 5's mathematics: the chain rule across parties, one round, staleness; each identity with both sides computed.

Small random models, float64. Blocks are numbered as in the paper: 0 is the server, whose "embedding" is theta_0 itself,
1..M are the parties. How a compressed embedding reaches a gradient stands in chapter05_perturbation, compressors in
chapter05_quantisers and chapter05_sparse, convergence in chapter05_descent, chapter05_floor and chapter05_constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad, jacrev

from fedbook.randomness import normal, stream

BATCH, FEATURES, WIDTH, CLASSES = 7, 4, 3, 3


class Sides(NamedTuple):
    """Two sides, each computed in its own way: equal, or ``left <= right``, as the function says."""

    left: Tensor
    right: Tensor


class Model(NamedTuple):
    """A vertical model and one batch. ``blocks`` theta_0..theta_M, ``features`` X_1..X_M.

    "softmax": h_m = tanh(X_m theta_m), logits [h_1 .. h_M] theta_0, cross-entropy. "squares": h_m = X_m theta_m,
    |theta_0 + sum h_m - Y|^2 / (2 B). "separable": a sum of one squared loss for each block.
    Shapes: ``features`` [B, D], ``target`` one-hot [B, C] or [B, P]; theta_m [D, P], theta_0 [M P, C] or [P].
    """

    kind: str
    blocks: tuple[Tensor, ...]
    features: tuple[Tensor, ...]
    target: Tensor


def small_model(kind: str, parties: int = 3, seed: int = 0) -> Model:
    """A random model of that kind."""
    rng = stream(seed, f"small model {kind}")
    features = tuple(normal((BATCH, FEATURES), rng) for _ in range(parties))
    towers = [normal((FEATURES, WIDTH), rng) for _ in range(parties)]
    if kind != "softmax":
        return Model(kind, (normal((WIDTH,), rng), *towers), features, normal((BATCH, WIDTH), rng))
    labels = torch.from_numpy(rng.integers(0, CLASSES, BATCH))
    fusion = normal((parties * WIDTH, CLASSES), rng)
    target = torch.nn.functional.one_hot(labels, CLASSES).double()
    return Model(kind, (fusion, *(0.5 * w for w in towers)), features, target)


def embed(model: Model, m: int, block: Tensor) -> Tensor:
    """h_m(theta_m), [B, P]; for the server (m = 0) theta_0 itself."""
    if m == 0:
        return block
    linear = model.features[m - 1] @ block
    return linear.tanh() if model.kind == "softmax" else linear


def loss(model: Model, embeddings: Sequence[Tensor]) -> Tensor:
    """F_B(h_0, .., h_M), the mean over the batch."""
    server, *parties = embeddings
    if model.kind == "softmax":
        return -(model.target * torch.log_softmax(torch.cat(parties, 1) @ server, 1)).sum(1).mean()
    if model.kind == "squares":
        return (server + sum(parties) - model.target).square().sum() / (2 * BATCH)
    return server.square().sum() / 2 + sum((h - model.target).square().sum() for h in parties) / (2 * BATCH)


def objective(model: Model, blocks: Sequence[Tensor]) -> Tensor:
    """F_B(Theta)."""
    return loss(model, [embed(model, m, block) for m, block in enumerate(blocks)])


def with_own(embeddings: Sequence[Tensor], m: int, own: Tensor) -> list[Tensor]:
    """The embeddings with block m replaced by ``own``."""
    return [own if j == m else h for j, h in enumerate(embeddings)]


# --- one round (Algorithm 1)


def algorithm_1(
    model: Model, rounds: int, local_steps: int, lr: float, compress: Callable[[Tensor], Tensor] | None = None
) -> list[Tensor]:
    """The blocks after ``rounds`` rounds of Algorithm 1 on the one batch, by autograd; ``compress`` for every block."""
    blocks = list(model.blocks)
    for _ in range(rounds):
        sent = [embed(model, m, block) for m, block in enumerate(blocks)]
        if compress is not None:
            sent = [compress(h) for h in sent]
        for m in range(len(blocks)):  # everybody sees ``sent`` only: the order does not matter
            for _ in range(local_steps):
                blocks[m] = blocks[m] - lr * own_gradient(model, m, blocks[m], sent)
    return blocks


def own_gradient(model: Model, m: int, block: Tensor, sent: Sequence[Tensor]) -> Tensor:
    """What block m computes: its partial derivative with its own embedding fresh and the others as sent."""
    return grad(lambda own: loss(model, with_own(sent, m, embed(model, m, own))))(block)


def joint_sgd(model: Model, steps: int, lr: float) -> list[Tensor]:
    """The blocks after ``steps`` gradient steps of one person who holds everything, by autograd on the whole."""
    blocks = list(model.blocks)
    for _ in range(steps):
        slopes = grad(partial(objective, model))(blocks)
        blocks = [block - lr * slope for block, slope in zip(blocks, slopes, strict=True)]
    return blocks


def chain_rule(m: int, seed: int = 0) -> Sides:
    """The gradient in theta_m by autograd on the whole, and J_m^T (dF / dh_m) with every row of J_m by itself. Equal.

    Source: C-VFL, (A.10).
    """
    model = small_model("softmax", seed=seed)
    whole = grad(partial(objective, model))(list(model.blocks))[m]
    sent = [embed(model, j, block) for j, block in enumerate(model.blocks)]
    cotangent = grad(lambda h: loss(model, with_own(sent, m, h)))(sent[m])
    rows = jacrev(partial(embed, model, m))(model.blocks[m]).reshape(cotangent.numel(), -1)  # [B P, |theta_m|]
    return Sides(whole.flatten(), rows.T @ cotangent.flatten())


def by_hand(rounds: int, lr: float, seed: int = 0) -> Sides:
    """Q = 1, nothing compressed: each takes its partial derivative by formulas on paper; and SGD by autograd. Equal.

    Shapes: all parameters in one vector.
    """
    model = small_model("softmax", seed=seed)
    server, *towers = model.blocks
    for _ in range(rounds):
        h = [(x @ w).tanh() for x, w in zip(model.features, towers, strict=True)]  # what the parties send
        scores = (torch.cat(h, 1) @ server).exp()
        residual = (scores / scores.sum(1, keepdim=True) - model.target) / BATCH  # dF / dlogits
        cotangents = [residual @ part.T for part in server.split(WIDTH)]  # dF / dh_m, with the old theta_0
        towers = [
            w - lr * x.T @ (c * (1 - a**2))
            for w, x, c, a in zip(towers, model.features, cotangents, h, strict=True)
        ]  # fmt: skip
        server = server - lr * torch.cat(h, 1).T @ residual
    return Sides(flat([server, *towers]), flat(joint_sgd(model, rounds, lr)))


def flat(blocks: Sequence[Tensor]) -> Tensor:
    """All entries in one vector."""
    return torch.cat([block.flatten() for block in blocks])


# --- staleness


def local_steps_closed_form(m: int, local_steps: int, lr: float, seed: int = 0) -> Sides:
    """Party m's parameters after Q local steps of least squares; theta* + (I - lr A)^Q (theta - theta*). Equal.

    A = X_m^T X_m / B; theta* fits what the frozen others leave.
    """
    model = small_model("squares", seed=seed)
    moved = algorithm_1(model, 1, local_steps, lr)[m]
    x, start = model.features[m - 1], model.blocks[m]
    others = model.blocks[0] + sum(embed(model, j, model.blocks[j]) for j in range(1, len(model.blocks)) if j != m)
    best = torch.linalg.lstsq(x, model.target - others).solution
    shrink = torch.eye(FEATURES, dtype=x.dtype) - lr * x.T @ x / BATCH
    return Sides(moved, best + torch.linalg.matrix_power(shrink, local_steps) @ (start - best))


def local_steps_separable(local_steps: int, lr: float, seed: int = 0) -> Sides:
    """If the loss is a sum over blocks, Q local steps on garbage for the others are Q steps of joint SGD. Equal."""
    model = small_model("separable", seed=seed)
    return Sides(
        flat(algorithm_1(model, 1, local_steps, lr, torch.zeros_like)), flat(joint_sgd(model, local_steps, lr))
    )


class Drift(NamedTuple):
    """Relative to |G^t0|, in the last local step of a round: |G^t - G^t0|, and |G^t - grad F(Theta^t)|.

    The first is what Lemma 2 bounds, the second what staleness costs. Shapes: both [number of Qs, number of etas].
    """

    moved: Tensor
    stale: Tensor


def drift(local_steps: Sequence[int], lrs: Sequence[float], seed: int = 0) -> Drift:
    """How far local gradients are from where they started, and from those of fresh embeddings."""
    model = small_model("softmax", seed=seed)
    sent = [embed(model, m, block) for m, block in enumerate(model.blocks)]

    def stacked(blocks: Sequence[Tensor]) -> Tensor:
        return flat([own_gradient(model, m, block, sent) for m, block in enumerate(blocks)])

    start, found = stacked(model.blocks), []
    for steps in local_steps:
        for lr in lrs:
            blocks = list(model.blocks) if steps == 1 else algorithm_1(model, 1, steps - 1, lr)
            here, fresh = stacked(blocks), flat(grad(partial(objective, model))(blocks))
            found.append(torch.stack([(here - start).norm(), (here - fresh).norm()]) / start.norm())
    return Drift(*torch.stack(found).reshape(len(local_steps), len(lrs), 2).unbind(-1))

"""Chapter 5's Lemma 1: what an error in the others' embeddings does to a party's gradient, exactly and bounded.

The models are chapter05_theory's; block 0 is the server. theta_0 enters F once, so its error counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, jacrev, jvp

from fedbook.lab.chapter05_theory import (
    BATCH,
    Model,
    Sides,
    embed,
    flat,
    loss,
    own_gradient,
    small_model,
    with_own,
)
from fedbook.randomness import normal, stream


def _with_errors(kind: str, m: int, size: float, seed: int) -> tuple[Model, list[Tensor], list[Tensor], int]:
    """A model, its embeddings, and errors of about ``size`` in every block but m."""
    model = small_model(kind, seed=seed)
    sent = [embed(model, j, block) for j, block in enumerate(model.blocks)]
    errors = [size * normal(tuple(h.shape), stream(seed, "errors", client=j)) for j, h in enumerate(sent)]
    errors[m] = torch.zeros_like(sent[m])
    return model, sent, errors, m


def _cotangent(model: Model, m: int, embeddings: Sequence[Tensor]) -> Tensor:
    return grad(lambda own: loss(model, with_own(embeddings, m, own)))(embeddings[m])


def _shifted(sent: Sequence[Tensor], errors: Sequence[Tensor], s: float = 1.0) -> list[Tensor]:
    return [h + s * e for h, e in zip(sent, errors, strict=True)]


def _nodes(count: int) -> list[tuple[float, float]]:
    x, w = np.polynomial.legendre.leggauss(count)
    return [(float(a + 1) / 2, float(b) / 2) for a, b in zip(x, w, strict=True)]


def remainder(m: int, size: float = 0.3, nodes: int = 12, seed: int = 0) -> Sides:
    """R_0^m: the difference of two gradients dF / dh_m, and the integral of jvps along the error. Equal.

    The paper's infinite Taylor series is this integral: no convergence is asked for.
    Source: C-VFL, (A.11) and (A.12).
    """
    model, sent, errors, m = _with_errors("softmax", m, size, seed)
    slope = partial(_cotangent, model, m)
    integral = sum(w * jvp(slope, (_shifted(sent, errors, s),), (list(errors),))[1] for s, w in _nodes(nodes))
    return Sides(slope(_shifted(sent, errors)) - slope(sent), integral)


def remainder_squares(m: int, size: float = 0.3, seed: int = 0) -> Sides:
    """Least squares: the error of party m's gradient by autograd, and X_m^T (sum of the others' errors) / B. Equal."""
    model, sent, errors, m = _with_errors("squares", m, size, seed)
    found = [own_gradient(model, m, model.blocks[m], _shifted(sent, errors, s)) for s in (1.0, 0.0)]
    return Sides(found[0] - found[1], model.features[m - 1].T @ sum(errors) / BATCH)


def lemma_1(
    m: int, norm: str = "frobenius", block: str = "mixed", kind: str = "softmax", size: float = 0.3, seed: int = 0
) -> Sides:
    """|gradient with errors - gradient without|^2, and H_m^2 G_m^2 (sum of the others' squared errors). left <= right.

    H_m bounds, along the segment, the Jacobian of dF / dh_m in the OTHERS' embeddings (``block`` "mixed"); with
    the Hessian in h_m alone ("diagonal", what Assumption 4 says) the bound fails. ``norm``: of both matrices.
    Source: C-VFL, Lemma 1.
    """
    model, sent, errors, m = _with_errors(kind, m, size, seed)
    found = [own_gradient(model, m, model.blocks[m], _shifted(sent, errors, s)) for s in (1.0, 0.0)]
    g = _size(jacrev(partial(embed, model, m))(model.blocks[m]).reshape(sent[m].numel(), -1), norm)
    wanted = [j for j in range(len(sent)) if (j == m) == (block == "diagonal")]

    def jacobian(s: float) -> Tensor:
        parts = jacrev(partial(_cotangent, model, m))(_shifted(sent, errors, s))
        return torch.cat([parts[j].reshape(sent[m].numel(), -1) for j in wanted], 1)

    # the largest at the quadrature nodes is enough: R is a mean of J(s) E over them (``remainder``)
    h = max(_size(jacobian(s), norm) for s, _ in _nodes(12))
    return Sides((found[0] - found[1]).square().sum(), h**2 * g**2 * flat(errors).square().sum())


def _size(matrix: Tensor, norm: str) -> Tensor:
    return torch.linalg.matrix_norm(matrix, "fro" if norm == "frobenius" else 2)


def product(own: float, other: float, error: float) -> dict[str, float]:
    """F = h_1 h_2: the error of party 1's gradient, and both bounds of Lemma 1 on it (autograd; G_1 = 1)."""
    point = torch.tensor([own, other], dtype=torch.float64)
    length = abs(error)
    slope = grad(torch.prod)
    shift = slope(point + torch.tensor([0.0, error], dtype=torch.float64)) - slope(point)
    second = jacrev(slope)(point)
    diagonal, mixed = (float(second[0, j].abs()) * length for j in (0, 1))
    return {"error": float(shift[0].abs()), "diagonal": diagonal, "mixed": mixed}

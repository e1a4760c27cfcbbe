"""Chapter 2's self-supervised loss (D12) and its least value: one constant output for all images.

Why training does not end there is shown in chapter02_collapse. All float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad

from fedbook.lab.chapter02_theory import Sides
from fedbook.learning.online import byol_loss, simsiam_loss
from fedbook.papers.hetero_ssfl.cka import linear_cka
from fedbook.randomness import normal, stream

# --- the loss (D12)


def two_forms(seed: int = 0) -> Sides:
    """Row by row |p/|p| - z/|z||^2, and the package's loss of the row, 2 - 2 cos. [B]"""
    p, z = _batch(seed)
    units = p / p.norm(dim=1, keepdim=True) - z / z.norm(dim=1, keepdim=True)
    return Sides(units.square().sum(1), torch.stack([byol_loss(p[b : b + 1], z[b : b + 1]) for b in range(len(p))]))


def loss_gradient(seed: int = 0) -> Sides:
    """Autograd in p [B, H], and -2 / (B |p|) (z/|z| - cos p/|p|)."""
    p, z = _batch(seed)
    length = p.norm(dim=1, keepdim=True)
    p_unit, z_unit = p / length, z / z.norm(dim=1, keepdim=True)
    cosine = (p_unit * z_unit).sum(1, keepdim=True)
    return Sides(grad(lambda q: byol_loss(q, z))(p), -2 / (len(p) * length) * (z_unit - cosine * p_unit))


def radial_part(seed: int = 0) -> Sides:
    """<gradient, p> of every row by autograd, and 0 [B]: only directions count."""
    p, z = _batch(seed)
    radial = (grad(lambda q: byol_loss(q, z))(p) * p).sum(1)
    return Sides(radial, torch.zeros_like(radial))


def target_gradient(seed: int = 0) -> Sides:
    """The gradient that reaches the target z [B, H], and 0."""
    p, z = _batch(seed)
    return Sides(grad(lambda t: byol_loss(p, t))(z), torch.zeros_like(z))


def simsiam_form(seed: int = 0) -> Sides:
    """BYOL's loss, and 2 + 2 times SimSiam's."""
    p, z = _batch(seed)
    return Sides(byol_loss(p, z), 2 + 2 * simsiam_loss(p, z))


def moving_average(decay: float = 0.9, steps: int = 20, seed: int = 0) -> Sides:
    """The target after ``steps`` updates one by one, and m^T W_0 + (1 - m) sum_s m^(T - s) W_s, m = ``decay``. [4]

    m = 1 keeps the first target, m = 0 copies the last online weights.
    """
    m = decay
    rng = stream(seed, "moving average")
    start, online = normal((4,), rng), normal((steps, 4), rng)
    target = start
    for weights in online:
        target = m * target + (1 - m) * weights
    powers = torch.tensor([m ** (steps - s) for s in range(1, steps + 1)], dtype=torch.float64)
    return Sides(target, m**steps * start + (1 - m) * powers @ online)


def _batch(seed: int) -> tuple[Tensor, Tensor]:
    rng = stream(seed, "predictions")
    return normal((6, 5), rng), 3 * normal((6, 5), rng)


# --- the constant output


class Constant(NamedTuple):
    """With one output for all images: ``loss`` of two views, ``distance`` 1 - CKA, ``slope`` |grad| of their sum."""

    loss: Tensor
    distance: Tensor
    slope: Tensor


def constant_output(seed: int = 0) -> Constant:
    """A network whose first layer is 0 gives every image one output: least loss, largest distance, and no gradient."""
    rng = stream(seed, "constant output")
    images, others = normal((2, 12, 7), rng), normal((12, 4), rng)
    theta = {"w": torch.zeros(7, 8, dtype=torch.float64), "b": normal((8,), rng), "out": normal((8, 5), rng)}

    def parts(theta: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        one, two = ((x @ theta["w"] + theta["b"]).tanh() @ theta["out"] for x in images)
        return byol_loss(one, two), 1 - linear_cka(one, others)

    slopes = grad(lambda t: sum(parts(t)))(theta)
    return Constant(*parts(theta), torch.cat([g.flatten() for g in slopes.values()]).norm())


class Near(NamedTuple):
    """CKA with the others and |grad_A CKA| of A = 1 c^T + s Z for each s, [S]."""

    cka: Tensor
    slope: Tensor


def near_constant(scales: Sequence[float] = (1.0, 1e-2, 1e-4, 0.0), seed: int = 0) -> Near:
    """How CKA sees representations that are constant up to a part of size s: the same for every s > 0, and 0 at s = 0.

    The gradient grows as 1 / s, and is 0 at s = 0.
    """
    rng = stream(seed, "near constant")
    constant, varied, others = normal((4,), rng), normal((20, 4), rng), normal((20, 6), rng)
    found = [constant + s * varied for s in scales]

    def cka(a: Tensor) -> Tensor:
        return linear_cka(a, others)

    return Near(torch.stack([cka(a) for a in found]), torch.stack([grad(cka)(a).norm() for a in found]))

"""Averages of points on a manifold: the server's tangent mean, the Frechet mean it approximates, the ambient mean."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.geometry.batches import check_tensors
from fedbook.geometry.manifold import Manifold, weighted_mean


def tangent_mean(manifold: Manifold, x: Tensor, points: Tensor, weights: Tensor) -> Tensor:
    """Exp_x of the weighted mean of the Log_x of the points: one gradient step of size 1 towards their Frechet mean.

    Shapes: ``x [..., *point]``, ``points [..., k, *point]``, ``weights [..., k]`` (divided by their sum), result
    ``[..., *point]``. Raises: TypeError, ValueError. Source: PriRFed, (3.2).
    """
    _check(manifold, points, weights, x)
    return manifold.exp(x, _direction(manifold, x, points, weights))


def frechet_mean(
    manifold: Manifold, x: Tensor, points: Tensor, weights: Tensor, tolerance: float | None = None,
    iterations: int = 1000,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The point of least weighted mean squared distance, by tangent means from ``x``, and the gradient norm there.

    In curvature of at least 0 the unit step always descends. In negative curvature it can overshoot: there a step that
    does not shorten the gradient is taken back and halved. It ends when every norm is at most ``tolerance`` (by default
    1e-12, in float32 8 roundings), when no shorter step helps, or after ``iterations``: the norm tells.
    Shapes as in :func:`tangent_mean`; norm ``[...]``.
    Raises: TypeError, ValueError. Source: PriRFed, (3.1).
    """
    tolerance = None if tolerance is None else arguments.real("tolerance", tolerance, 0.0)
    iterations = arguments.integer("iterations", iterations, 0)
    _check(manifold, points, weights, x)
    if tolerance is None:
        tolerance = max(1e-12, 8 * torch.finfo(points.dtype).eps)
    tail = (1,) * manifold.point_ndim
    u = _direction(manifold, x, points, weights)
    size = manifold.norm(x, u)
    step = torch.ones_like(size)
    x = x.expand_as(u)
    for _ in range(iterations):
        if bool(((size <= tolerance) | (step < 1e-3)).all()):
            break
        trial = manifold.exp(x, step.reshape(step.shape + tail) * u)
        direction = _direction(manifold, trial, points, weights)
        trial_size = manifold.norm(trial, direction)
        better = (trial_size < size) | (manifold.curvature[0] >= 0)
        choose = better.reshape(better.shape + tail)
        x, u, size = (
            torch.where(choose, trial, x),
            torch.where(choose, direction, u),
            torch.where(better, trial_size, size),
        )
        step = torch.where(better, step, 0.5 * step)
    return x, size


def ambient_mean(manifold: Manifold, points: Tensor, weights: Tensor) -> Tensor:
    """The weighted mean of the coordinates, put back on the manifold: cheap, and not invariant.

    Shapes: ``points [..., k, *point]``, ``weights [..., k]``, result ``[..., *point]``. Raises: TypeError, ValueError.
    """
    _check(manifold, points, weights)
    return manifold.ambient_mean(points, weights)


def _direction(manifold: Manifold, x: Tensor, points: Tensor, weights: Tensor) -> Tensor:
    logs = manifold.log(x.unsqueeze(-1 - manifold.point_ndim), points)
    return weighted_mean(logs, weights, manifold.point_ndim)


def _check(manifold: Manifold, points: Tensor, weights: Tensor, *base: Tensor) -> None:
    if not isinstance(manifold, Manifold):
        raise arguments.wrong(TypeError, "manifold", manifold, "a Manifold such as Sphere()")
    arguments.tensor("points", points, kind="float")
    if points.ndim <= manifold.point_ndim or points.shape[-1 - manifold.point_ndim] == 0:
        raise arguments.wrong(ValueError, "points", points, "a tensor of shape (..., k, *point) with k at least 1")
    if base:
        check_tensors(["x", "points"], (*base, points), manifold.point_ndim)
    arguments.tensor("weights", weights, kind="float")
    k = points.shape[-1 - manifold.point_ndim]
    if weights.ndim == 0 or weights.shape[-1] != k:
        raise arguments.wrong(ValueError, "weights", weights, f"a tensor of shape (..., {k}), one weight a point")
    if bool((weights < 0).any()) or bool((weights.sum(-1) <= 0).any()):
        raise ValueError("weights: got a negative weight or the sum 0; allowed are weights of at least 0, not all 0")

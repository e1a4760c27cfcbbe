"""What the manifolds share: the interface, and whatever follows from Log, the inner product and the projection."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.geometry.batches import check_tensors


class Manifold:
    """A Riemannian manifold in ambient coordinates, without state; batched over leading axes that broadcast.

    Shapes: points and vectors ``[..., *point]`` with ``point_ndim`` trailing axes; numbers ``[...]``. Results have
    the dtype and device of the inputs. Arguments are checked for kind and shape, which costs no wait for a device;
    whether points lie on the manifold is the business of ``check_point``.
    """

    name = "manifold"
    point_ndim = 1
    curvature = (-math.inf, math.inf)  # lowest and highest sectional curvature
    least_size = 1  # of an ambient axis

    def dimension(self, x: Tensor) -> int:
        """The dimension d of the manifold on which ``x`` lies."""
        raise NotImplementedError

    def inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """The metric at ``x`` of the tangent vectors ``u`` and ``v``."""
        raise NotImplementedError

    def norm(self, x: Tensor, u: Tensor) -> Tensor:
        """The length of the tangent vector ``u`` at ``x``."""
        raise NotImplementedError

    def exp(self, x: Tensor, u: Tensor) -> Tensor:
        """The point reached from ``x`` after time 1 on the geodesic with velocity ``u``."""
        raise NotImplementedError

    def log(self, x: Tensor, y: Tensor, check: bool = True) -> Tensor:
        """The shortest tangent vector at ``x`` whose geodesic reaches ``y``; ``check=False`` never waits for a device.

        Raises: ValueError with ``check`` where there is none or more than one (inside torch.func nothing is checked).
        """
        raise NotImplementedError

    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """The length of the shortest geodesic from ``x`` to ``y``; derivative 0 where the points coincide."""
        raise NotImplementedError

    def squared_dist(self, x: Tensor, y: Tensor) -> Tensor:
        """The squared distance; its Riemannian gradient in ``x`` is -2 Log_x(y), also where the points coincide."""
        return self.dist(x, y).square()

    def transport(self, x: Tensor, y: Tensor, u: Tensor) -> Tensor:
        """``u`` moved in parallel along the shortest geodesic from ``x`` to ``y``."""
        raise NotImplementedError

    def project(self, x: Tensor, v: Tensor) -> Tensor:
        """The tangent vector at ``x`` nearest to the ambient ``v``: orthogonal in the ambient metric."""
        raise NotImplementedError

    def gradient(self, x: Tensor, g: Tensor) -> Tensor:
        """The Riemannian gradient from the gradient ``g`` of partial derivatives: <gradient, v>_x = sum g v."""
        raise NotImplementedError

    def nearest(self, x: Tensor) -> Tensor:
        """A point that rounding moved off the manifold, back on it."""
        raise NotImplementedError

    def noise_size(self, x: Tensor) -> int:
        """How many normal numbers ``tangent_gaussian`` takes for one point."""
        return self.dimension(x)

    def tangent_gaussian(self, x: Tensor, w: Tensor) -> Tensor:
        """The tangent vector with unit covariance in an orthonormal basis, from independent standard normal ``w``.

        Shapes: ``w [..., noise_size]``, result ``[..., *point]``; linear in ``w``. Source: PriRFed, definition 2.5.
        """
        raise NotImplementedError

    def basis(self, x: Tensor) -> Tensor:
        """An orthonormal basis of the tangent space. Shapes: ``x [..., *point]``, basis ``[..., d, *point]``."""
        raise NotImplementedError

    def origin(self, size: int) -> Tensor:
        """The manifold's natural first point, for points of ambient size ``size`` (D, or n)."""
        raise NotImplementedError

    def random_point(self, size: int, rng: np.random.Generator, batch: tuple[int, ...] = ()) -> Tensor:
        """Independent random points, float64. Shapes: ``[*batch, *point]`` of ambient size ``size`` (D, or n)."""
        raise NotImplementedError

    def check_point(self, x: Tensor) -> tuple[bool, str | None]:
        """Whether all of ``x`` lie on the manifold up to sqrt(machine epsilon); if not, the reason."""
        ok, reason = self._check_size(x)
        if not ok or x.numel() == 0:
            return ok, reason
        return (False, "NaN or infinite entries") if not bool(x.isfinite().all()) else self._check_point(x)

    def ambient_mean(self, points: Tensor, weights: Tensor) -> Tensor:
        """The weighted mean of coordinates, put back on the manifold.

        Shapes: ``points [..., k, *point]``, ``weights [..., k]`` not negative, result ``[..., *point]``.
        """
        raise NotImplementedError

    def _check_point(self, x: Tensor) -> tuple[bool, str | None]:
        raise NotImplementedError

    def _check_size(self, x: Tensor) -> tuple[bool, str | None]:
        letters = "D" if self.point_ndim == 1 else "n, n"
        last = x.shape[-self.point_ndim :]
        if len(last) < self.point_ndim or last[0] != last[-1] or last[-1] < self.least_size:
            return False, f"the wrong shape (needed is (..., {letters}) with {letters[0]} at least {self.least_size})"
        return True, None

    def _noise(self, x: Tensor, w: Tensor) -> None:
        check_tensors(["x"], (x,), self.point_ndim)
        if not isinstance(w, Tensor) or not w.is_floating_point():
            raise arguments.wrong(TypeError, "w", w, "a floating-point tensor")
        if w.ndim == 0 or w.shape[-1] != self.noise_size(x):
            raise arguments.wrong(ValueError, "w", w, f"a tensor of shape (..., {self.noise_size(x)})")

    def _size(self, size: int) -> int:
        return arguments.integer("size", size, self.least_size)

    def _batch(self, batch: tuple[int, ...]) -> tuple[int, ...]:
        if not isinstance(batch, tuple | list):
            raise arguments.wrong(TypeError, "batch", batch, "a tuple of whole numbers")
        return tuple(arguments.integer("batch", n, 0) for n in batch)


def weighted_mean(points: Tensor, weights: Tensor, point_ndim: int) -> Tensor:
    """sum_i weights_i points_i / sum_i weights_i. Shapes: ``[..., k, *point], [..., k] -> [..., *point]``."""
    share = weights / weights.sum(-1, keepdim=True)
    return (share.reshape(share.shape + (1,) * point_ndim) * points).sum(-1 - point_ndim)


def tolerance(x: Tensor) -> float:
    """How far from the manifold a point of this dtype may lie: sqrt(machine epsilon)."""
    return math.sqrt(torch.finfo(x.dtype).eps)


def stepped(manifold: Manifold, x: Tensor, u: Tensor) -> Tensor:
    """Exp_x(u), or x where that lies beyond what float64 can work with: noise on SPD and the hyperboloid runs away.

    Decided by the noisy step alone, so it costs no privacy. Shapes: ``x``, ``u`` [R, *point].
    """
    new = manifold.exp(x, u)
    if manifold.curvature[0] >= 0:
        return new
    return torch.where(within_range(manifold, new).view(-1, *[1] * manifold.point_ndim), new, x)


def within_range(manifold: Manifold, x: Tensor) -> Tensor:
    """[...] whether float64 can work at the points x [..., *point], also with another such point.

    SPD: positive definite, eigenvalues within 1e-70 and 1e70 with a condition below 1e7 (seen from each other, 1e14:
    the ratio of two determinants stays a number). Hyperboloid: a time coordinate
    below 1e7, about 17 from the origin.
    """
    finite = x.isfinite().flatten(-manifold.point_ndim).all(-1)
    if manifold.point_ndim == 2:
        eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
        values = torch.linalg.eigvalsh(torch.where(finite[..., None, None], x, eye))
        low, high = values[..., 0], values[..., -1]
        return finite & (low > 1e-7 * high) & (low > 1e-70) & (high < 1e70)
    return finite & (x[..., 0].abs() < 1e7)

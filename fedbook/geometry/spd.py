"""Symmetric positive definite n x n matrices with the affine-invariant metric, of dimension n (n + 1) / 2.

Any square root X = L L^T serves in the formulas, which are usually written with the symmetric one: another differs by a
rotation R, and f(R A R^T) = R f(A) R^T. The Cholesky factor is the cheapest. x is factored before it is broadcast.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor

from fedbook import randomness
from fedbook.geometry import two_by_two
from fedbook.geometry.batches import batched, visible
from fedbook.geometry.manifold import Manifold, tolerance, weighted_mean
from fedbook.geometry.matrix_function import expm1, logarithm, require_positive, shifted_log, square_root
from fedbook.geometry.scalars import root


class SPD(Manifold):
    """Metric tr(X^-1 U X^-1 V). Shapes: points ``[..., n, n]``. Source: PriRFed, section 6.2.

    A matrix that is not positive definite raises a ValueError where looking is free: on the CPU, outside torch.func.
    Elsewhere a base point that is none gives NaN.
    """

    name = "manifold of positive definite matrices"
    point_ndim = 2
    curvature = (-0.5, 0.0)

    def dimension(self, x: Tensor) -> int:
        return x.shape[-1] * (x.shape[-1] + 1) // 2

    @batched
    def inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        if x.shape[-1] == 2:
            return two_by_two.inner(x, u, v)
        _, inverse = _factors(x)
        return (_whiten(inverse, u) * _whiten(inverse, v)).sum((-2, -1))

    @batched
    def norm(self, x: Tensor, u: Tensor) -> Tensor:
        if x.shape[-1] == 2:
            return two_by_two.norm(x, u)
        _, inverse = _factors(x)
        return torch.linalg.vector_norm(_whiten(inverse, u), dim=(-2, -1))

    @batched
    def exp(self, x: Tensor, u: Tensor) -> Tensor:
        """e^h (X + L (exp(B - h) - 1) L^T) with B = L^-1 U L^-T and h its mean eigenvalue."""
        if x.shape[-1] == 2:
            return two_by_two.exp(x, u)
        factor, inverse = _factors(x)
        b = _whiten(inverse, u)
        h = b.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
        b = b - h * torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
        return h.exp() * (x + _symmetric(factor @ expm1(b) @ factor.mT))

    @batched
    def log(self, x: Tensor, y: Tensor, check: bool = True) -> Tensor:
        """L log(L^-1 Y L^-T) L^T; where Y is near X from Y - X, so that nothing cancels.

        Raises: ValueError with ``check`` if ``y`` is not positive definite.
        """
        if x.shape[-1] == 2:
            return two_by_two.log(x, y, check)
        factor, inverse = _factors(x)
        near, change = _change(x, y)
        return _symmetric(logarithm(factor, _whiten(inverse, change), near, check))

    @batched
    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """The Euclidean norm of the logarithms of the eigenvalues of X^-1 Y."""
        if x.shape[-1] == 2:
            return root(two_by_two.squared_dist(x, y))
        _, inverse = _factors(x)
        near, change = _change(x, y)
        values = torch.linalg.eigvalsh(_whiten(inverse, change))
        if visible(values):
            require_positive(values, near)
        return torch.linalg.vector_norm(shifted_log(values, near), dim=-1)

    @batched
    def squared_dist(self, x: Tensor, y: Tensor) -> Tensor:
        return two_by_two.squared_dist(x, y) if x.shape[-1] == 2 else self.dist(x, y).square()

    @batched
    def transport(self, x: Tensor, y: Tensor, u: Tensor) -> Tensor:
        """E U E^T with E = L (L^-1 Y L^-T)^(1/2) L^-1, which is (Y X^-1)^(1/2)."""
        if x.shape[-1] == 2:
            return two_by_two.transport(x, y, u)
        factor, inverse = _factors(x)
        move = factor @ square_root(_whiten(inverse, y)) @ inverse
        return _symmetric(move @ u @ move.mT)

    @batched
    def project(self, x: Tensor, v: Tensor) -> Tensor:
        """The symmetric part: the skew part is orthogonal to it in the metric extended to all matrices."""
        return _symmetric(v)

    @batched
    def gradient(self, x: Tensor, g: Tensor) -> Tensor:
        return _symmetric(x @ _symmetric(g) @ x)

    @batched
    def nearest(self, x: Tensor) -> Tensor:
        return _symmetric(x)

    def tangent_gaussian(self, x: Tensor, w: Tensor) -> Tensor:
        """L S L^T with S symmetric: N(0, 1) on its diagonal, N(0, 1/2) beside it. ``w``: upper triangle, by rows."""
        self._noise(x, w)
        n = x.shape[-1]
        index, scale = _triangle(n, w.dtype, w.device)
        s = (w.index_select(-1, index) * scale).unflatten(-1, (n, n))
        factor = _cholesky(x)
        return _symmetric(factor @ s @ factor.mT)

    def basis(self, x: Tensor) -> Tensor:
        return self.tangent_gaussian(x.unsqueeze(-3), torch.eye(self.dimension(x), dtype=x.dtype, device=x.device))

    def origin(self, size: int) -> Tensor:
        """The identity."""
        return torch.eye(self._size(size), dtype=torch.float64)

    def random_point(self, size: int, rng: np.random.Generator, batch: tuple[int, ...] = ()) -> Tensor:
        """Exp at the identity of a Gaussian matrix of mean squared length 1."""
        d = self._size(size) * (size + 1) // 2
        w = randomness.normal((*self._batch(batch), d), rng) / math.sqrt(d)
        origin = self.origin(size)
        return self.exp(origin, self.tangent_gaussian(origin, w))

    def ambient_mean(self, points: Tensor, weights: Tensor) -> Tensor:
        """The arithmetic mean."""
        return weighted_mean(points, weights, 2)

    def _check_point(self, x: Tensor) -> tuple[bool, str | None]:
        ok, reason = _check_symmetric(x)
        if ok and bool(torch.linalg.cholesky_ex(x)[1].any()):
            return False, "a matrix that is not positive definite"
        return ok, reason


def _symmetric(x: Tensor) -> Tensor:
    return 0.5 * (x + x.mT)


def _cholesky(x: Tensor) -> Tensor:
    """L with X = L L^T, L lower triangular. Raises: ValueError."""
    factor, info = torch.linalg.cholesky_ex(x)
    if not visible(x):
        return torch.where((info == 0)[..., None, None], factor, math.nan)
    if bool(info.any()):
        raise ValueError("x: got a matrix that is not positive definite; allowed is a symmetric positive definite one")
    return factor


def _factors(x: Tensor) -> tuple[Tensor, Tensor]:
    """L with X = L L^T, and its inverse."""
    factor = _cholesky(x)
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device).expand_as(factor)
    return factor, torch.linalg.solve_triangular(factor, eye, upper=False)


def _whiten(inverse: Tensor, u: Tensor) -> Tensor:
    return inverse @ u @ inverse.mT


def _change(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Per matrix, whether Y - X is no larger than Y; and Y - X or Y. Shapes: ``near [..., 1]``, ``[..., n, n]``."""
    d = y - x
    sizes = (torch.linalg.vector_norm(t, dim=(-2, -1)) for t in (d, y))
    near = torch.le(*sizes).unsqueeze(-1)
    return near, torch.where(near.unsqueeze(-1), d, y)


@functools.lru_cache(maxsize=64)
def _triangle(n: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Which number of the upper triangle stands at each of the n^2 places, and its scale."""
    with torch.inference_mode(False):  # or what is kept would be of no use for derivatives later
        rows, columns = torch.triu_indices(n, n)
        index = torch.zeros(n, n, dtype=torch.int64)
        index[rows, columns] = index[columns, rows] = torch.arange(len(rows))
        scale = torch.full((n, n), math.sqrt(0.5), dtype=dtype).fill_diagonal_(1.0)
        return index.flatten().to(device), scale.flatten().to(device)


def _check_symmetric(x: Tensor) -> tuple[bool, str | None]:
    off = float((x - x.mT).abs().max() / x.abs().max().clamp_min(torch.finfo(x.dtype).tiny))
    return (True, None) if off <= tolerance(x) else (False, f"an asymmetry of the share {off:.3g}")

"""Flat space: every formula in the limit of zero curvature."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedbook import randomness
from fedbook.geometry.batches import batched
from fedbook.geometry.manifold import Manifold, weighted_mean


class Euclidean(Manifold):
    """R^D with the usual inner product. Shapes: points ``[..., D]``."""

    name = "Euclidean space"
    curvature = (0.0, 0.0)

    def dimension(self, x: Tensor) -> int:
        return x.shape[-1]

    @batched
    def inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        return (u * v).sum(-1)

    @batched
    def norm(self, x: Tensor, u: Tensor) -> Tensor:
        return torch.linalg.vector_norm(u, dim=-1)

    @batched
    def exp(self, x: Tensor, u: Tensor) -> Tensor:
        return x + u

    @batched
    def log(self, x: Tensor, y: Tensor, check: bool = True) -> Tensor:
        return y - x

    @batched
    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.linalg.vector_norm(y - x, dim=-1)

    @batched
    def transport(self, x: Tensor, y: Tensor, u: Tensor) -> Tensor:
        return torch.broadcast_tensors(u, x, y)[0]

    @batched
    def project(self, x: Tensor, v: Tensor) -> Tensor:
        return v

    @batched
    def gradient(self, x: Tensor, g: Tensor) -> Tensor:
        return g

    def nearest(self, x: Tensor) -> Tensor:
        return x

    def tangent_gaussian(self, x: Tensor, w: Tensor) -> Tensor:
        self._noise(x, w)
        return w

    def basis(self, x: Tensor) -> Tensor:
        d = x.shape[-1]
        return torch.eye(d, dtype=x.dtype, device=x.device).expand(*x.shape, d)

    def origin(self, size: int) -> Tensor:
        return torch.zeros(self._size(size), dtype=torch.float64)

    def random_point(self, size: int, rng: np.random.Generator, batch: tuple[int, ...] = ()) -> Tensor:
        """Standard normal coordinates."""
        return randomness.normal((*self._batch(batch), self._size(size)), rng)

    def ambient_mean(self, points: Tensor, weights: Tensor) -> Tensor:
        return weighted_mean(points, weights, 1)

    def _check_point(self, x: Tensor) -> tuple[bool, str | None]:
        return True, None

"""The unit sphere in R^D, of dimension D - 1."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedbook import randomness
from fedbook.geometry.batches import batched, transformed, visible
from fedbook.geometry.manifold import Manifold, tolerance, weighted_mean
from fedbook.geometry.scalars import divided, dot, dots, length, sinc


class Sphere(Manifold):
    """Unit vectors with the metric u.v. Shapes: points ``[..., D]``. Source: PriRFed, section 6.1."""

    name = "unit sphere"
    curvature = (1.0, 1.0)
    least_size = 2

    def dimension(self, x: Tensor) -> int:
        return x.shape[-1] - 1

    @batched
    def inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        return dots(u, v)

    @batched
    def norm(self, x: Tensor, u: Tensor) -> Tensor:
        return torch.linalg.vector_norm(u, dim=-1)

    @batched
    def exp(self, x: Tensor, u: Tensor) -> Tensor:
        """cos(t) x + sin(t) u / t with t = |u|, of any size; then normalised.

        Without that an error of the norm can grow from step to step: the logarithm at a point off the sphere is off the
        tangent plane by as much, and the next point by more.
        """
        t = length(u)
        y = torch.addcmul(u * sinc(t), x, t.cos())
        return divided(y, length(y))

    @batched
    def log(self, x: Tensor, y: Tensor, check: bool = True) -> Tensor:
        """atan2(|w|, x.y) w / |w| with w the part of y orthogonal to x.

        w is taken from y - x or, beyond a right angle, from y + x: both are exact where they are small.
        With ``check=False`` the antipode of x gets the zero vector.
        Raises: ValueError if ``y`` is the antipode of ``x`` to rounding, where every direction is a shortest one.
        """
        cosine = dot(x, y)
        chord = torch.addcmul(y, x, cosine.sign(), value=-1)
        w = torch.addcmul(chord, x, dot(x, chord), value=-1)
        sine = length(w)
        if check and not transformed() and cosine.numel() and cosine.min().item() < -0.999:
            _refuse_antipodes(sine, cosine)
        return w * (torch.atan2(sine, cosine) / sine.clamp_min(torch.finfo(x.dtype).tiny ** 0.5))

    @batched(blocks=8)
    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """2 atan2(|y - x|, |y + x|): exact at every angle, where arccos(x.y) loses half the digits near 0 and pi."""
        if x.shape[-1] >= 16 and visible(x):  # long vectors: one product suffices if no pair is near 0 or pi
            cosine = dots(x, y)
            if cosine.numel() and cosine.abs().max().item() < 0.9:
                return cosine.acos()
        apart, together = torch.linalg.vector_norm(y - x, dim=-1), torch.linalg.vector_norm(y + x, dim=-1)
        return 2 * torch.atan2(apart, together)

    @batched
    def transport(self, x: Tensor, y: Tensor, u: Tensor) -> Tensor:
        """The reflection in the hyperplane orthogonal to s = x + y: an isometry whatever the rounding of s.

        For tangent u it equals u - (y.u) / (1 + x.y) (x + y). NaN at the antipode, where no geodesic is the shortest.
        """
        s = x + y
        return torch.addcmul(u, s, dot(s, u) / length(s).square(), value=-2)

    @batched
    def project(self, x: Tensor, v: Tensor) -> Tensor:
        return torch.addcmul(v, x, dot(x, v), value=-1)

    @batched
    def gradient(self, x: Tensor, g: Tensor) -> Tensor:
        return torch.addcmul(g, x, dot(x, g), value=-1)

    @batched
    def nearest(self, x: Tensor) -> Tensor:
        return x / length(x)

    def noise_size(self, x: Tensor) -> int:
        return x.shape[-1]

    def tangent_gaussian(self, x: Tensor, w: Tensor) -> Tensor:
        """``w`` without its part along ``x``: on the sphere, and only here, projecting an ambient Gaussian is right."""
        self._noise(x, w)
        return self.project(x, w)

    def basis(self, x: Tensor) -> Tensor:
        """The images of the second to the last axis under the reflection that takes the first one to x or -x."""
        d = x.shape[-1] - 1
        sign = torch.where(x[..., :1] < 0, -1.0, 1.0).to(x.dtype)
        first = x[..., :1] + sign  # of v = x + sign e_1, with |v|^2 = 2 (1 + |x_1|)
        scale = (x[..., 1:] / (1 + x[..., :1].abs())).unsqueeze(-1)
        rows = torch.cat([-scale * first.unsqueeze(-2), -scale * x[..., None, 1:]], -1)
        rows[..., torch.arange(d), torch.arange(1, d + 1)] += 1
        return rows

    def origin(self, size: int) -> Tensor:
        """(1, 0, ..., 0)."""
        x = torch.zeros(self._size(size), dtype=torch.float64)
        x[0] = 1
        return x

    def random_point(self, size: int, rng: np.random.Generator, batch: tuple[int, ...] = ()) -> Tensor:
        """Uniform on the sphere."""
        return self.nearest(randomness.normal((*self._batch(batch), self._size(size)), rng))

    def ambient_mean(self, points: Tensor, weights: Tensor) -> Tensor:
        """The weighted mean, normalised. Raises: ValueError, where looking costs nothing, if it is 0."""
        mean = weighted_mean(points, weights, 1)
        size = length(mean)
        if visible(size) and size.numel() and size.min().item() <= 4 * torch.finfo(size.dtype).eps:
            raise ValueError("points: got points whose weighted mean is 0, which has no nearest point of the sphere")
        return mean / size

    def _check_point(self, x: Tensor) -> tuple[bool, str | None]:
        off = float((torch.linalg.vector_norm(x, dim=-1) - 1).abs().max())
        return (True, None) if off <= tolerance(x) else (False, f"a norm that differs from 1 by {off:.3g}")


def _refuse_antipodes(sine: Tensor, cosine: Tensor) -> None:
    if bool(((sine <= 4 * torch.finfo(sine.dtype).eps) & (cosine < 0)).any()):
        raise ValueError("y: got the antipode of x, which no single shortest geodesic reaches; allowed is any other")

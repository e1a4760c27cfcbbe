"""The hyperboloid <x, x> = -1, x_0 > 0 in Minkowski space: hyperbolic space of dimension D - 1.

Coordinate 0 is time: <u, v> = -u_0 v_0 + u_1 v_1 + ... Products of far points cancel: <x, y> of two points at
distance r from the origin loses e^(2r) / 4 = x_0 y_0 in accuracy, which we call the condition. The formulas below use
the chord z = y - x, with z_0 computed from the space part, so the loss is relative to the distance.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from fedbook import randomness
from fedbook.geometry.batches import batched, visible
from fedbook.geometry.manifold import Manifold, tolerance, weighted_mean
from fedbook.geometry.scalars import dot, dots, length, root, sinhc


def lorentz(u: Tensor, v: Tensor) -> Tensor:
    """<u, v> = -u_0 v_0 + u_1 v_1 + ..., last axis kept. Shapes: ``[..., D], [..., D] -> [..., 1]``."""
    return torch.addcmul(dot(u, v), u[..., :1], v[..., :1], value=-2)


class Hyperboloid(Manifold):
    """Points with <x, x> = -1 and x_0 > 0. Shapes: points ``[..., D]``, time first. Source: PriRFed, section 6.3."""

    name = "hyperboloid"
    curvature = (-1.0, -1.0)
    least_size = 2

    def dimension(self, x: Tensor) -> int:
        return x.shape[-1] - 1

    @batched
    def inner(self, x: Tensor, u: Tensor, v: Tensor) -> Tensor:
        return lorentz(u, v).squeeze(-1)

    @batched
    def norm(self, x: Tensor, u: Tensor) -> Tensor:
        return _size(*_split(x), *_split(u)).squeeze(-1)

    @batched
    def exp(self, x: Tensor, u: Tensor) -> Tensor:
        """cosh(t) x + sinh(t) u / t with t = |u|; the time coordinate follows from the space part."""
        (time, space), (u_time, u_space) = _split(x), _split(u)
        t = _size(time, space, u_time, u_space)
        return _lift(torch.addcmul(u_space * sinhc(t), space, t.cosh()))

    @batched
    def log(self, x: Tensor, y: Tensor, check: bool = True) -> Tensor:
        """t / sinh(t) (z - h x) with z = y - x and h = <z, z> / 2, so that cosh(t) = 1 + h."""
        z, rounded, time, q = _chord(x, y)
        h, sine = _hyperbolic(q.clamp_min(torch.finfo(q.dtype).eps ** 1.5))  # t / sinh(t) is 1 to all digits there
        factor = (h + sine).log1p() / sine
        u = torch.addcmul(z, x, q.unsqueeze(-1), value=-0.5) * factor.unsqueeze(-1)
        u.select(-1, 0).sub_((rounded + time) * factor)
        return u

    @batched(blocks=8)
    def dist(self, x: Tensor, y: Tensor) -> Tensor:
        """log(1 + h + sqrt(2 h + h^2)) with h = <y - x, y - x> / 2, since cosh(dist) = 1 + h.

        Unlike arccosh(-<x, y>) it does not lose half the digits near 0.
        """
        if x.shape[-1] >= 16 and visible(x):  # long vectors: rounding of z_0 is harmless if no pair is close
            z = y - x
            size, time = torch.linalg.vector_norm(z, dim=-1), z.select(-1, 0)
            q = torch.addcmul(size * size, time, time, value=-2)
            if q.numel() and q.min().item() > 0.1:
                return torch.add(*_hyperbolic(q)).log1p()
        *_, q = _chord(x, y)
        return torch.add(*_hyperbolic(q)).log1p()

    @batched
    def transport(self, x: Tensor, y: Tensor, u: Tensor) -> Tensor:
        """u + <z, u> / (2 + q/2) (x + y) with z = y - x: for tangent u, <z, u> = <y, u> and 2 + q/2 = 1 - <x, y>."""
        z = y - x
        factor = lorentz(z, u) / (2 + 0.5 * lorentz(z, z))
        return torch.addcmul(u, x + y, factor)

    @batched
    def project(self, x: Tensor, v: Tensor) -> Tensor:
        return torch.addcmul(v, x, lorentz(x, v))

    @batched
    def gradient(self, x: Tensor, g: Tensor) -> Tensor:
        """h + <x, h> x, where h is g with the sign of its time coordinate changed and so <x, h> = x.g."""
        result = torch.addcmul(g, x, dot(x, g))
        result[..., :1] -= 2 * g[..., :1]
        return result

    @batched
    def nearest(self, x: Tensor) -> Tensor:
        """The point with the same space part."""
        return _lift(x[..., 1:])

    def tangent_gaussian(self, x: Tensor, w: Tensor) -> Tensor:
        """(0, w) at the origin, moved to ``x``: an isometry. Projecting an ambient Gaussian gives too much noise."""
        self._noise(x, w)
        time, space = _split(x)
        w_time = dot(space, w)
        return torch.cat([w_time, torch.addcmul(w, space, w_time / (1 + time))], -1)

    def basis(self, x: Tensor) -> Tensor:
        d = x.shape[-1] - 1
        return self.tangent_gaussian(x.unsqueeze(-2), torch.eye(d, dtype=x.dtype, device=x.device))

    def origin(self, size: int) -> Tensor:
        """(1, 0, ..., 0)."""
        x = torch.zeros(self._size(size), dtype=torch.float64)
        x[0] = 1
        return x

    def random_point(self, size: int, rng: np.random.Generator, batch: tuple[int, ...] = ()) -> Tensor:
        """Exp at the origin of a Gaussian vector of mean squared length 1."""
        size = self._size(size)
        w = randomness.normal((*self._batch(batch), size - 1), rng) / math.sqrt(size - 1)
        return self.exp(self.origin(size), torch.nn.functional.pad(w, (1, 0)))

    def ambient_mean(self, points: Tensor, weights: Tensor) -> Tensor:
        """The weighted mean divided by sqrt(-<mean, mean>).

        That product cancels far from the origin: three equal points come back 2e-6 away at distance 12, 0.01 at 16.
        """
        mean = weighted_mean(points, weights, 1)
        return self.nearest(mean * torch.rsqrt(-lorentz(mean, mean)))

    def _check_point(self, x: Tensor) -> tuple[bool, str | None]:
        if bool((x[..., 0] <= 0).any()):
            return False, "a time coordinate (index 0) that is not positive"
        off = float((self.nearest(x)[..., 0] / x[..., 0] - 1).abs().max())
        return (
            (True, None) if off <= tolerance(x) else (False, f"a time coordinate (index 0) off by the share {off:.3g}")
        )


def _split(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[..., :1], x[..., 1:]


def _lift(space: Tensor) -> Tensor:
    return torch.cat([(1 + length(space).square()).sqrt(), space], -1)


def _size(time: Tensor, space: Tensor, u_time: Tensor, u_space: Tensor) -> Tensor:
    """|u| at x: the length of u moved to the origin, so no squares cancel and no square comes out negative."""
    return length(torch.addcmul(u_space, space, -u_time / (1 + time)))


def _chord(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """z = y - x; its time coordinate as it is and, negative, as it should be; and q = <z, z> >= 0.

    The difference y_0 - x_0 keeps the rounding of both. The space parts say more: with s = x + y, z_0 is
    (|y_s|^2 - |x_s|^2) / s_0 = z.s / s_0 - (y_0 - x_0). Shapes: ``[..., D]``, then ``[...]``.
    """
    z, s = y - x, y + x
    rounded, size = z.select(-1, 0), torch.linalg.vector_norm(z, dim=-1)
    time = torch.addcdiv(rounded, dots(z, s), s.select(-1, 0), value=-1)
    q = torch.addcmul(torch.addcmul(size * size, rounded, rounded, value=-1), time, time, value=-1)
    return z, rounded, time, q.clamp_min(0)


def _hyperbolic(q: Tensor) -> tuple[Tensor, Tensor]:
    """cosh(t) - 1 and sinh(t) of the distance t of points with <y - x, y - x> = q."""
    h = 0.5 * q
    return h, root(torch.addcmul(q, h, h))

"""The manifolds and sizes under test, with random points and tangent vectors on them."""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fedbook.geometry import SPD, Euclidean, Hyperboloid, Manifold, Sphere
from fedbook.randomness import normal, stream


@dataclass(frozen=True)
class Place:
    """A manifold with an ambient size."""

    manifold: Manifold
    size: int

    def points(self, seed: int, batch: tuple[int, ...] = (6,)) -> Tensor:
        return self.manifold.random_point(self.size, stream(seed, "points"), batch)

    def tangents(self, x: Tensor, seed: int, length: float | None = None) -> Tensor:
        """Isotropic tangent vectors at ``x``, of the given length each."""
        lead = x.shape[: x.ndim - self.manifold.point_ndim]
        u = self.manifold.tangent_gaussian(x, normal((*lead, self.manifold.noise_size(x)), stream(seed, "tangents")))
        return u if length is None else self.times(length / self.manifold.norm(x, u), u)

    def times(self, numbers: Tensor, u: Tensor) -> Tensor:
        return numbers.reshape(numbers.shape + (1,) * self.manifold.point_ndim) * u

    def gram(self, x: Tensor, vectors: Tensor) -> Tensor:
        """Inner products of stacked tangent vectors: ``[..., k, *point] -> [..., k, k]``."""
        axis = -1 - self.manifold.point_ndim
        first, second = vectors.unsqueeze(axis - 1), vectors.unsqueeze(axis)
        return self.manifold.inner(x.unsqueeze(axis).unsqueeze(axis), first, second)


PLACES = [
    Place(Sphere(), 2), Place(Sphere(), 3), Place(Sphere(), 40),
    Place(SPD(), 1), Place(SPD(), 2), Place(SPD(), 3), Place(SPD(), 9),
    Place(Hyperboloid(), 2), Place(Hyperboloid(), 3), Place(Hyperboloid(), 40),
    Place(Euclidean(), 4),
]  # fmt: skip
CURVED = PLACES[:-1]


def name(place: Place) -> str:
    return f"{type(place.manifold).__name__}{place.size}"


@pytest.fixture(params=PLACES, ids=name)
def place(request) -> Place:
    return request.param


@pytest.fixture(params=CURVED, ids=name)
def curved(request) -> Place:
    return request.param


@pytest.fixture
def close():
    """Asserts that two tensors agree to an absolute and relative 1e-10 (or another tolerance)."""

    def check(a: Tensor, b: Tensor, tolerance: float = 1e-10) -> None:
        assert a.shape == b.shape, (a.shape, b.shape)
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)

    return check


@pytest.fixture
def spd_of_condition():
    """Random SPD matrices with eigenvalues from 1 down to 1 / condition in a random basis."""

    def make(n: int, condition: float, seed: int) -> Tensor:
        basis, _ = torch.linalg.qr(normal((n, n), stream(seed, "basis")))
        values = torch.linspace(0, -math.log(condition), n, dtype=torch.float64).exp()
        x = (basis * values) @ basis.mT
        return 0.5 * (x + x.mT)

    return make

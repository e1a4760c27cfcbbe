"""The tangent Gaussian: unit covariance in an orthonormal basis, by a test that a wrong sampler fails."""

import math

import pytest
import torch

from fedbook.geometry import Sphere
from fedbook.randomness import normal, stream


def gram_schmidt(m, x):
    """An orthonormal basis of the tangent space at each of ``x``, in the metric, from projected coordinate vectors.

    Each step takes the longest vector left, and subtracts twice what the basis already spans.
    """
    lead, size, axis = x.shape[:1], x.shape[1:], -1 - m.point_ndim
    count, point = math.prod(size), x.unsqueeze(axis)

    def tail(value):
        return value.reshape(value.shape + (1,) * m.point_ndim)

    units = torch.eye(count, dtype=x.dtype).reshape(count, *size).expand(*lead, count, *size)
    left, rows = m.project(point, units), []
    for _ in range(m.dimension(x)):
        longest = tail(m.norm(point, left).argmax(-1, keepdim=True)).expand(*lead, 1, *size)
        row = left.gather(left.ndim + axis, longest)
        for other in rows + rows:
            row = row - tail(m.inner(point, other, row)) * other
        row = row / tail(m.norm(point, row))
        left = left - tail(m.inner(point, row, left)) * row
        rows.append(row)
    return torch.cat(rows, axis)


def test_the_basis_is_orthonormal_and_spans_what_gram_schmidt_spans(place, close):
    m, x = place.manifold, place.points(0)
    d = m.dimension(x)
    own, generic = m.basis(x), gram_schmidt(m, x)
    unit = torch.eye(d, dtype=torch.float64).expand(6, d, d)
    assert own.shape == generic.shape == (6, d, *x.shape[1:])
    for basis in (own, generic):
        close(place.gram(x, basis), unit, 1e-12)
        close(m.project(x.unsqueeze(1), basis), basis, 1e-12)
    axis = -1 - m.point_ndim
    change = m.inner(x.unsqueeze(axis).unsqueeze(axis), own.unsqueeze(axis - 1), generic.unsqueeze(axis))
    close(change.mT @ change, unit, 1e-12)


def test_the_basis_far_from_the_origin_of_the_sphere_and_at_its_pole(close):
    """The reflection must not divide by 1 + x_1 = 0."""
    m = Sphere()
    for x in (m.origin(4), -m.origin(4), m.nearest(torch.tensor([-1.0, 1e-12, 0.0, 0.0], dtype=torch.float64))):
        basis = m.basis(x)
        close(basis @ basis.mT, torch.eye(3, dtype=torch.float64), 1e-14)
        close(basis @ x, torch.zeros(3, dtype=torch.float64), 1e-14)


def test_noise_is_linear_so_its_covariance_is_exactly_the_identity(place, close):
    """The matrix A of w -> coordinates has A A^T = I: the same law as the statistical test, without its noise."""
    m, x = place.manifold, place.points(0)
    size, axis = m.noise_size(x), -1 - m.point_ndim
    units = m.tangent_gaussian(x.unsqueeze(axis), torch.eye(size, dtype=torch.float64))
    a = m.inner(x.unsqueeze(axis).unsqueeze(axis), m.basis(x).unsqueeze(axis), units.unsqueeze(axis - 1))
    close(a @ a.mT, torch.eye(m.dimension(x), dtype=torch.float64).expand(6, -1, -1), 1e-12)
    close(m.project(x.unsqueeze(axis), units), units, 1e-12)
    w = normal((6, size), stream(1, "w"))
    close(m.tangent_gaussian(x, 0.3 * w), 0.3 * m.tangent_gaussian(x, w), 1e-14)
    assert m.tangent_gaussian(x, 0 * w).abs().max() == 0


def test_random_points_are_points_that_fill_the_manifold(place):
    m, x = place.manifold, place.points(0, (2000,))
    assert m.check_point(x) == (True, None) and m.random_point(place.size, stream(0, "x")).shape == x.shape[1:]
    centre = m.origin(place.size)
    spread = m.squared_dist(centre, x)
    if isinstance(m, Sphere):
        assert x.mean(0).abs().max() < 0.1 and spread.mean() > 1
    elif m.name != "Euclidean space":  # mean squared distance 1 from the origin, whatever the dimension
        assert float(spread.mean()) == pytest.approx(1, abs=0.1)

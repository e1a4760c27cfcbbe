"""The tangent Gaussian: unit covariance in an orthonormal basis, by a test that a wrong sampler fails."""

import math

import pytest
import torch

from fedbook.geometry import SPD, Hyperboloid, Manifold, Sphere
from fedbook.randomness import normal, stream

DRAWS = 200_000


def covariance_error(m: Manifold, x: torch.Tensor, xi: torch.Tensor) -> tuple[float, float]:
    """Largest error of the covariance in an orthonormal basis by Gram-Schmidt, and of E|xi|^2 in standard errors."""
    basis = Manifold.basis(m, x)  # the generic one, which knows only the projection and the inner product
    coordinates = torch.stack([m.inner(x, xi, b) for b in basis], -1)
    d = m.dimension(x)
    covariance = coordinates.mT @ coordinates / len(xi)
    squares = m.inner(x, xi, xi)
    z = (squares.mean() - d) / (squares.std() / math.sqrt(len(xi)))
    return float((covariance - torch.eye(d)).abs().max()), float(z)


@pytest.mark.parametrize(
    ("m", "size", "far"),
    [
        (Sphere(), 3, 1.0),
        (Sphere(), 6, 1.0),
        (SPD(), 2, 3.0),
        (SPD(), 3, 1.0),
        (Hyperboloid(), 3, 2.0),
        (Hyperboloid(), 5, 2.0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Manifold) else str(value),
)
def test_covariance_is_the_identity_in_an_orthonormal_basis(m, size, far):
    """Source: PriRFed, definition 2.5."""
    x = m.random_point(size, stream(3, "x"))
    x = m.exp(x, far * m.tangent_gaussian(x, normal((m.noise_size(x),), stream(4, "far"))) / m.dimension(x))
    xi = m.tangent_gaussian(x, normal((DRAWS, m.noise_size(x)), stream(5, "xi")))
    assert m.check_tangent(x, xi) == (True, None)
    error, z = covariance_error(m, x, xi)
    assert error < 0.02 and abs(z) < 4


def test_projecting_an_ambient_gaussian_on_the_hyperboloid_fails_that_test():
    """At a point with time coordinate 2.6 it gives E|xi|^2 = 2 x_0^2 = 13.5 instead of 2."""
    m = Hyperboloid()
    x = m.nearest(torch.tensor([0.0, 2.4, 0.0], dtype=torch.float64))
    assert float(x[0]) == pytest.approx(2.6)
    xi = m.project(x, normal((DRAWS, 3), stream(0, "naive")))
    error, z = covariance_error(m, x, xi)
    assert error > 1 and abs(z) > 100
    # The ambient unit vectors e_i project to e_i + <x, e_i> x, with squared length <e_i, e_i> + <x, e_i>^2.
    assert float(m.inner(x, xi, xi).mean()) == pytest.approx(1 + 2 * 2.6**2 - 1, rel=0.02)


def test_symmetrising_an_ambient_gaussian_on_spd_fails_that_test():
    m, x = SPD(), torch.diag(torch.tensor([2.0, 0.5], dtype=torch.float64))
    xi = m.project(x, normal((DRAWS, 2, 2), stream(0, "naive")))
    error, z = covariance_error(m, x, xi)
    assert error > 1 and abs(z) > 100


def test_equal_variances_on_and_beside_the_diagonal_fail_that_test():
    m, x = SPD(), torch.eye(3, dtype=torch.float64)
    w = normal((DRAWS, 6), stream(0, "naive"))
    rows, columns = torch.triu_indices(3, 3)
    s = torch.zeros(DRAWS, 3, 3, dtype=torch.float64)
    s[:, rows, columns] = s[:, columns, rows] = w
    assert covariance_error(m, x, s)[0] > 0.5


def test_the_basis_is_orthonormal_and_spans_what_gram_schmidt_spans(place, close):
    m, x = place.manifold, place.points(0)
    d = m.dimension(x)
    own, generic = m.basis(x), Manifold.basis(m, x)
    unit = torch.eye(d, dtype=torch.float64).expand(6, d, d)
    assert own.shape == generic.shape == (6, d, *x.shape[1:])
    for basis in (own, generic):
        close(place.gram(x, basis), unit, 1e-12)
        assert m.check_tangent(x.unsqueeze(1), basis) == (True, None)
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

"""Against 60-digit arithmetic: near zero, near the cut locus, far out and at eigenvalue ratios of 1e6.

Errors are measured in the metric, relative to the distance, in multiples of the machine epsilon times the condition:
1 on the sphere, also beside the antipode; x_0 y_0 on the hyperboloid; cond(X) cond(Y) for positive definite matrices.
"""

import math

import mpmath as mp
import pytest
import torch

from fedbook.geometry import SPD, Hyperboloid, Sphere, matrix_function
from fedbook.randomness import normal, stream

EPSILON = 2.0**-52
# A test may use up this many machine epsilons times the condition.
MULTIPLE = 32


@pytest.fixture(autouse=True)
def sixty_digits():
    with mp.workdps(60):
        yield


def exact(t: torch.Tensor) -> mp.matrix:
    """The floats of a vector or matrix, as they are."""
    return mp.matrix(t.tolist())


def product(a: mp.matrix, b: mp.matrix) -> mp.mpf:
    return mp.fsum(p * q for p, q in zip(a, b, strict=True))


def lorentz(a: mp.matrix, b: mp.matrix) -> mp.mpf:
    return product(a, b) - 2 * a[0] * b[0]


def unit(t: torch.Tensor) -> mp.matrix:
    x = exact(t)
    return x / mp.sqrt(product(x, x))


def lifted(t: torch.Tensor) -> mp.matrix:
    """The point of the hyperboloid with these space coordinates."""
    x = exact(t)
    x[0] = mp.sqrt(1 + mp.fsum(a * a for a in x[1:]))
    return x


def log_and_distance(x: mp.matrix, y: mp.matrix, hyperbolic: bool) -> tuple[mp.matrix, mp.mpf]:
    if hyperbolic:
        cosine = -lorentz(x, y)
        w = y - cosine * x
        sine = mp.sqrt(lorentz(w, w))
        distance = mp.asinh(sine)
    else:
        cosine = product(x, y)
        w = y - cosine * x
        sine = mp.sqrt(product(w, w))
        distance = mp.atan2(sine, cosine)
    return w * (distance / sine), distance


ANGLES = [1e-100, 1e-12, 1e-8, 1e-4, 0.1, 1.0, 1.5, 1.7, 3.0, *(math.pi - t for t in (1e-4, 1e-8, 1e-12))]


@pytest.mark.parametrize("size", [3, 40])
@pytest.mark.parametrize("angle", ANGLES)
def test_sphere(size, angle):
    m, rng = Sphere(), stream(0, "sphere")
    for _ in range(5):
        x = m.random_point(size, rng)
        if angle < 1e-20:  # only here two floating-point unit vectors are so close
            x = m.origin(size)
        w = m.project(x, normal((size,), rng))
        y = m.exp(x, w * (angle / w.norm()))
        log, distance = log_and_distance(unit(x), unit(y), hyperbolic=False)
        error = exact(m.log(x, y)) - log
        assert mp.sqrt(product(error, error)) < MULTIPLE * EPSILON * distance
        # The lengths of x and y are off by up to one epsilon each, which the chord cannot tell from distance.
        assert abs(float(m.dist(x, y)) - distance) < MULTIPLE * EPSILON * distance + EPSILON * (angle > 1e-20)
        assert abs(float(x @ m.log(x, y))) < 4 * EPSILON * min(angle, 1.0) + 4 * EPSILON * (angle > 1)


@pytest.mark.parametrize("size", [3, 40])
@pytest.mark.parametrize("radius", [0.0, 1.0, 3.0, 5.0, 7.0])
@pytest.mark.parametrize("distance", [1e-12, 1e-6, 0.01, 1.0, 3.0])
def test_hyperboloid(size, radius, distance):
    m, rng = Hyperboloid(), stream(0, "hyperboloid")
    for _ in range(5):
        w = normal((size - 1,), rng)
        x = m.exp(m.origin(size), torch.nn.functional.pad(radius * w / w.norm(), (1, 0)))
        u = m.tangent_gaussian(x, normal((size - 1,), rng))
        u = u * (distance / m.norm(x, u))
        y = m.exp(x, u)
        allowed = MULTIPLE * EPSILON * float(x[0] * y[0])
        at = lifted(x)
        log, true = log_and_distance(at, lifted(y), hyperbolic=True)
        error = exact(m.log(x, y)) - log
        error += lorentz(at, error) * at
        assert mp.sqrt(abs(lorentz(error, error))) < allowed * true
        assert abs(float(m.dist(x, y)) - true) < allowed * true
        # Exp: distance of the result from the exact end of the geodesic; u as given is tangent only to rounding.
        v = exact(u) + lorentz(at, exact(u)) * at
        t = mp.sqrt(lorentz(v, v))
        end = lifted(y) - (mp.cosh(t) * at + mp.sinh(t) / t * v)
        assert mp.sqrt(abs(lorentz(end, end))) < allowed


def test_hyperboloid_points_on_opposite_sides_far_out():
    """Here nothing cancels: the distance 30 of two points of condition 1e13 is right to rounding."""
    m, far = Hyperboloid(), 15.0
    x, y = (torch.tensor([math.cosh(far), s * math.sinh(far), 0.0], dtype=torch.float64) for s in (1, -1))
    assert float(m.dist(m.nearest(x), m.nearest(y))) == pytest.approx(2 * far, rel=1e-15)


# --- positive definite matrices


def function(a: mp.matrix, f) -> mp.matrix:
    values, vectors = mp.eigsy((a + a.T) / 2)
    return vectors * mp.diag([f(v) for v in values]) * vectors.T


class Exact:
    """Everything at X from the textbook formulas with a Cholesky factor, in 60 digits."""

    def __init__(self, x: torch.Tensor):
        self.factor = mp.cholesky(exact(x))
        self.inverse = self.factor**-1

    def whitened(self, u: mp.matrix) -> mp.matrix:
        return self.inverse * u * self.inverse.T

    def length(self, u: mp.matrix) -> mp.mpf:
        return mp.norm(mp.matrix(list(self.whitened(u))))

    def exp(self, u):
        return self.factor * function(self.whitened(exact(u)), mp.exp) * self.factor.T

    def log(self, y):
        return self.factor * function(self.whitened(exact(y)), mp.log) * self.factor.T

    def dist(self, y):
        values, _ = mp.eigsy(self.whitened(exact(y)))
        return mp.norm(mp.matrix([mp.log(v) for v in values]))

    def transport(self, y, u):
        move = self.factor * function(self.whitened(exact(y)), mp.sqrt) * self.inverse
        return move * exact(u) * move.T


def distance_of(found: torch.Tensor, true: mp.matrix) -> mp.mpf:
    factor = mp.cholesky(true)
    inverse = factor**-1
    return mp.norm(mp.matrix(list(inverse * (exact(found) - true) * inverse.T)))


def check_spd(x: torch.Tensor, y: torch.Tensor, u: torch.Tensor, condition: float) -> None:
    m, at, there = SPD(), Exact(x), Exact(y)
    allowed = MULTIPLE * EPSILON * condition
    true = at.dist(y)
    assert abs(float(m.dist(x, y)) - true) < allowed * true
    assert at.length(exact(m.log(x, y)) - at.log(y)) < allowed * true
    moved = exact(m.transport(x, y, u)) - at.transport(y, u)
    assert there.length(moved) < allowed * at.length(exact(u))


@pytest.mark.parametrize("n", [2, 3, 6])
@pytest.mark.parametrize(("here", "there"), [(1.0, 1e3), (1e3, 1.0), (1e3, 1e3), (1e6, 1.0), (1.0, 1e6), (1e6, 1e6)])
def test_spd_at_any_condition(n, here, there, spd_of_condition):
    for seed in range(3):
        x, y = spd_of_condition(n, here, seed), spd_of_condition(n, there, seed + 100)
        u = SPD().tangent_gaussian(x, normal((n * (n + 1) // 2,), stream(seed, "u")))
        check_spd(x, y, u, here * there)
        error = distance_of(SPD().exp(x, u), Exact(x).exp(u))
        assert error < MULTIPLE * EPSILON * here * math.exp(2 * float(SPD().norm(x, u)))


@pytest.mark.parametrize("n", [2, 3, 6])
@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("length", [1e-12, 1e-6, 1e-2])
def test_spd_near_zero_only_the_condition_of_the_base_counts(n, condition, length, spd_of_condition):
    m = SPD()
    for seed in range(3):
        x = spd_of_condition(n, condition, seed)
        u = m.tangent_gaussian(x, normal((n * (n + 1) // 2,), stream(seed, "u")))
        check_spd(x, m.exp(x, length * u), u, condition)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
@pytest.mark.parametrize("scale", [1e-12, 1e-5, 0.5, 1e5, 1e12])
def test_spd_multiples_of_a_matrix(n, scale, spd_of_condition):
    """All eigenvalues of X^-1 Y are equal: the closed form divides 0 by 0, and Y - X loses Y if Y is small."""
    m, x = SPD(), spd_of_condition(n, 1e3, 0)
    u = m.tangent_gaussian(x, normal((n * (n + 1) // 2,), stream(1, "u")))
    check_spd(x, scale * x, u, 1e3)
    assert distance_of(m.exp(x, math.log(scale) * x), exact(x) * mp.exp(math.log(scale))) < 1e-10


@pytest.mark.parametrize("n", [2, 3])
def test_spd_covariances_scaled_by_coordinates(n):
    """Units of 1e-3 and 1e3 in the coordinates: condition 1e12, and the closed form still keeps 1e-10."""
    m, rng = SPD(), stream(0, "scaled")
    scale = torch.logspace(-3, 3, n, dtype=torch.float64)
    x, y = (scale[:, None] * m.random_point(n, rng) * scale for _ in range(2))
    x, y = m.nearest(x), m.nearest(y)
    true = Exact(x).dist(y)
    assert abs(float(m.dist(x, y)) - true) < 1e-10 * true


@pytest.mark.parametrize("n", [3, 9])
@pytest.mark.parametrize("length", [1e-9, 0.3, 0.9, 3.0, 12.0])
def test_spd_exp_by_its_series(n, length):
    """A company of short and long vectors: the long one's doublings must not cost the short one's digits."""
    m, rng = SPD(), stream(0, "exp")
    x = m.random_point(n, rng, (2,))
    u = m.tangent_gaussian(x, normal((2, n * (n + 1) // 2), rng))
    u = u / m.norm(x, u)[:, None, None] * torch.tensor([length, 20.0], dtype=torch.float64)[:, None, None]
    found = m.exp(x, u)[0]
    condition = float(torch.linalg.cond(x[0])) * math.exp(2 * length)
    assert distance_of(found, Exact(x[0]).exp(u[0])) < MULTIPLE * EPSILON * condition
    change, true = exact(found) - exact(x[0]), Exact(x[0]).exp(u[0]) - exact(x[0])
    assert mp.norm(mp.matrix(list(change - true))) < 1e-14 * (1 + float(mp.norm(mp.matrix(list(true)))))


@pytest.mark.parametrize("looking", [True, False])
def test_the_series_of_the_exponential_at_every_size(looking, monkeypatch):
    """Of diagonal matrices, where it must give expm1 of the numbers, around each limit of the series."""
    if not looking:
        monkeypatch.setattr(matrix_function, "visible", lambda a: False)
    for size in [*torch.linspace(0.01, 3.3, 60).tolist(), 30.0, 190.0]:
        values = torch.tensor([size, -size / 3, 1e-9, 0.0], dtype=torch.float64)
        found = matrix_function.expm1(values.diag())
        doublings = max(1.0, size / 0.4) if looking else 2**9
        torch.testing.assert_close(found.diagonal(), values.expm1(), rtol=2 * EPSILON * doublings, atol=0)
        assert torch.equal(found, found.diagonal().diag())

"""The laws of a Riemannian manifold, on every manifold: Exp and Log, transport, projection, curvature, invariance."""

import math

import pytest
import torch

from fedbook.geometry import SPD, Hyperboloid, Sphere, batches
from fedbook.randomness import normal, stream


def test_exp_and_log_are_inverse(place, close):
    m, x = place.manifold, place.points(0)
    for length in (1e-3, 0.5, 2.5):
        u = place.tangents(x, 1, length)
        y = m.exp(x, u)
        close(m.log(x, y), u)
        close(m.dist(x, y), torch.full((6,), length, dtype=torch.float64))
    y = place.points(2)
    close(m.exp(x, m.log(x, y)), y)


def test_distance_is_the_length_of_the_logarithm_from_either_end(place, close):
    m, x, y = place.manifold, place.points(0, (50,)), place.points(1, (50,))
    distance = m.dist(x, y)
    close(m.norm(x, m.log(x, y)), distance)
    close(m.norm(y, m.log(y, x)), distance)
    close(m.dist(y, x), distance)
    close(m.squared_dist(x, y), distance**2)
    assert (distance <= m.dist(x, z := place.points(2, (50,))) + m.dist(z, y) + 1e-12).all()


def test_a_geodesic_continues_itself(place, close):
    """Exp_x((s + t) u) = Exp_y(t v) with y = Exp_x(s u) and v the velocity u moved to y."""
    m, x = place.manifold, place.points(0)
    u = place.tangents(x, 1, 1.0)
    y = m.exp(x, 0.7 * u)
    close(m.exp(x, 1.3 * u), m.exp(y, 0.6 * m.transport(x, y, u)))


@pytest.mark.parametrize("size", [2, 3, 40])
def test_a_long_vector_winds_around_the_sphere(size, close):
    m, x = Sphere(), Sphere().random_point(size, stream(0, "x"), (20,))
    w = m.tangent_gaussian(x, normal((20, size), stream(0, "w")))
    direction = w / m.norm(x, w)[:, None]
    for length in (3.2, 4.5, 6.1):
        u = length * direction
        close(m.log(x, m.exp(x, u)), u * (1 - 2 * math.pi / length))
        close(m.exp(x, u + 2 * math.pi * direction), m.exp(x, u))


def test_transport_is_an_isometry_that_comes_back_and_keeps_the_velocity(place, close):
    m, x, y = place.manifold, place.points(0), place.points(1)
    u, v = place.tangents(x, 2), place.tangents(x, 3)
    moved = m.transport(x, y, u)
    close(m.project(y, moved), moved)
    close(m.inner(y, moved, m.transport(x, y, v)), m.inner(x, u, v))
    close(m.transport(y, x, moved), u)
    close(m.transport(x, y, m.log(x, y)), -m.log(y, x))
    close(m.transport(x, x, u), u)


def test_projection_is_idempotent_and_orthogonal_in_the_ambient_metric(place, close):
    m, x = place.manifold, place.points(0)
    v = normal(tuple(x.shape), stream(1, "v"))
    p = m.project(x, v)
    close(m.project(x, p), p)
    if isinstance(m, (Sphere, Hyperboloid)):  # what is tangent, from first principles
        close(m.inner(x, x, p), torch.zeros(6, dtype=torch.float64))
    if isinstance(m, SPD):
        close(p, p.mT)
    u = place.tangents(x, 2)
    close(m.project(x, u), u)
    if m.point_ndim == 1:  # the metric is defined on all ambient vectors
        close(m.inner(x, v - p, u), torch.zeros(6, dtype=torch.float64))
    else:  # tr(X^-1 A^T X^-1 B) extends it to all matrices
        inverse = torch.linalg.inv(x)
        close((inverse @ (v - p).mT @ inverse @ u).diagonal(dim1=-2, dim2=-1).sum(-1), torch.zeros(6).double())


def test_riemannian_gradient_gives_the_slope_along_geodesics(place, close):
    """Against central differences of a function that knows nothing of the manifold."""
    m, x = place.manifold, place.points(0).requires_grad_()
    target = normal(tuple(x.shape), stream(1, "target"))

    def f(x):
        return (torch.sin(x) * target + 0.5 * (x * target) ** 2).flatten(1).sum(1)

    gradient = m.gradient(x, torch.autograd.grad(f(x).sum(), x)[0]).detach()
    x = x.detach()
    close(m.project(x, gradient), gradient)
    for seed in (2, 3):
        u, h = place.tangents(x, seed, 1.0), 1e-4
        slope = (f(m.exp(x, h * u)) - f(m.exp(x, -h * u))) / (2 * h)
        torch.testing.assert_close(m.inner(x, gradient, u), slope, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_congruence_is_an_isometry_of_spd(n, close):
    """X -> G X G^T commutes with everything."""
    m, rng = SPD(), stream(0, "spd")
    x, y = m.random_point(n, rng, (5,)), m.random_point(n, rng, (5,))
    u = m.tangent_gaussian(x, normal((5, m.noise_size(x)), rng))
    g = normal((n, n), rng) + 2 * torch.eye(n)

    def act(z):
        return g @ z @ g.mT

    close(m.dist(act(x), act(y)), m.dist(x, y), 1e-8)
    close(m.norm(act(x), act(u)), m.norm(x, u), 1e-8)
    for found, moved in (
        (m.exp(act(x), act(u)), m.exp(x, u)),
        (m.log(act(x), act(y)), m.log(x, y)),
        (m.transport(act(x), act(y), act(u)), m.transport(x, y, u)),
    ):
        close(found, act(moved), 1e-8)


@pytest.mark.parametrize(("m", "size"), [(Sphere(), 5), (Hyperboloid(), 5)])
def test_rotations_and_boosts_are_isometries(m, size, close):
    rng = stream(0, "isometry")
    x, y = m.random_point(size, rng, (5,)), m.random_point(size, rng, (5,))
    u = m.log(x, m.random_point(size, rng, (5,)))
    g, _ = torch.linalg.qr(normal((size, size), rng))
    if isinstance(m, Hyperboloid):
        g = torch.block_diag(torch.eye(1, dtype=torch.float64), torch.linalg.qr(g[1:, 1:])[0])
        boost = torch.eye(size, dtype=torch.float64)
        c, s = math.cosh(1.2), math.sinh(1.2)
        boost[:2, :2] = torch.tensor([[c, s], [s, c]], dtype=torch.float64)
        g = boost @ g
    close(m.dist(x @ g.mT, y @ g.mT), m.dist(x, y))
    close(m.log(x @ g.mT, y @ g.mT), m.log(x, y) @ g.mT)
    close(m.exp(x @ g.mT, u @ g.mT), m.exp(x, u) @ g.mT)
    close(m.transport(x @ g.mT, y @ g.mT, u @ g.mT), m.transport(x, y, u) @ g.mT)


def test_curvature_lies_in_the_declared_range(curved):
    """Geodesic triangles with two sides t u, t v from a corner; Richardson's rule takes out the next order in t."""
    m, x = curved.manifold, curved.points(0, (200,))
    if m.dimension(x) < 2:
        return
    u, v = curved.tangents(x, 1, 1.0), curved.tangents(x, 2, 1.0)
    area = 1 - m.inner(x, u, v) ** 2
    keep = area > 0.3
    x, u, v, area = x[keep], u[keep], v[keep], area[keep]
    sides = [(t, m.squared_dist(m.exp(x, t * u), m.exp(x, t * v))) for t in (0.05, 0.1)]
    near, far = (3 * (t**2 * m.norm(x, u - v) ** 2 - side) / (t**4 * area) for t, side in sides)
    curvature = (4 * near - far) / 3
    low, high = m.curvature
    assert (curvature > low - 2e-3).all() and (curvature < high + 2e-3).all()
    if low == high:
        torch.testing.assert_close(curvature, torch.full_like(curvature, low), rtol=0, atol=2e-3)


def test_spd_attains_its_lowest_curvature_and_zero():
    """Minus one half in the plane of diag(1, -1) and the off-diagonal direction; zero for commuting directions."""
    m, x = SPD(), torch.eye(2, dtype=torch.float64)
    one = torch.tensor([[1.0, 0.0], [0.0, -1.0]], dtype=torch.float64) / math.sqrt(2)
    two = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64) / math.sqrt(2)
    for v, expected in ((two, -0.5), (x / math.sqrt(2), 0.0)):
        t = 0.05
        side = m.squared_dist(m.exp(x, t * one), m.exp(x, t * v))
        assert float(3 * (2 * t**2 - side) / t**4) == pytest.approx(expected, abs=2e-3)


def test_many_noisy_steps_stay_on_the_manifold(place):
    """Random steps with a pull back to the start, and a tangent vector carried along."""
    m, start = place.manifold, place.points(0)
    x, u = start, place.tangents(start, 1, 1.0)
    for step in range(200):
        noise = m.tangent_gaussian(x, normal((6, m.noise_size(x)), stream(step, "walk")))
        y = m.exp(x, 0.1 * noise + 0.05 * m.log(x, start))
        x, u = y, m.transport(x, y, u)
    if isinstance(m, Sphere):
        assert (x.norm(dim=-1) - 1).abs().max() < 1e-14 and (x * u).sum(-1).abs().max() < 1e-10
    if isinstance(m, Hyperboloid):
        assert ((m.inner(x, x, x) + 1).abs() / x[:, 0] ** 2).max() < 1e-14 and m.inner(x, x, u).abs().max() < 1e-10
    if isinstance(m, SPD):
        assert torch.linalg.eigvalsh(x).min() > 0 and (x - x.mT).abs().max() < 1e-10
    assert m.check_point(x) == (True, None)
    torch.testing.assert_close(m.project(x, u), u, rtol=0, atol=1e-9)
    torch.testing.assert_close(m.norm(x, u), torch.ones(6, dtype=torch.float64), rtol=0, atol=1e-9)


def test_errors_of_the_norm_do_not_grow_from_step_to_step():
    """Log at a point off the sphere leaves the tangent plane; without normalising in Exp 60 steps lose the sphere."""
    m = Sphere()
    points = m.random_point(40, stream(0, "points"), (7,))
    x = points[0]
    for _ in range(300):
        x = m.exp(x, m.log(x, points).mean(0))
        assert abs(float(x.norm()) - 1) < 1e-14
        assert abs(float(x @ m.log(x, points).mean(0))) < 1e-13


def test_exp_of_zero_is_the_point_and_log_of_the_point_is_zero(place):
    m, x = place.manifold, place.points(0)
    torch.testing.assert_close(m.exp(x, torch.zeros_like(x)), x, rtol=1e-15, atol=1e-15)
    assert m.log(x, x).abs().max() == 0 and m.dist(x, x).abs().max() == 0
    assert m.norm(x, torch.zeros_like(x)).abs().max() == 0


def test_batches_broadcast_and_do_not_depend_on_their_company(place, close):
    m = place.manifold
    x, y = place.points(0, (3, 1)), place.points(1, (5,))
    u = place.tangents(x, 2, 0.5)
    tail = x.shape[2:]
    assert m.exp(x, u).shape == (3, 1, *tail)
    assert m.log(x, y).shape == (3, 5, *tail) and m.dist(x, y).shape == m.squared_dist(x, y).shape == (3, 5)
    assert m.transport(x, y, u).shape == (3, 5, *tail) and m.inner(x, u, u).shape == m.norm(x, u).shape == (3, 1)
    assert m.basis(x).shape == (3, 1, m.dimension(x), *tail)
    for i in range(3):
        for j in range(5):
            close(m.log(x, y)[i, j], m.log(x[i, 0], y[j]), 1e-13)
            close(m.dist(x, y)[i, j], m.dist(x[i, 0], y[j]), 1e-13)
            close(m.transport(x, y, u)[i, j], m.transport(x[i, 0], y[j], u[i, 0]), 1e-13)
    empty = x[:0]
    assert m.exp(empty, empty).shape == m.log(empty, empty).shape == (0, 1, *tail)
    assert m.dist(empty, empty).shape == (0, 1) and m.check_point(empty) == (True, None)


def test_blocks_give_what_the_whole_batch_gives(place, monkeypatch, close):
    m, x, y = place.manifold, place.points(0, (4, 25)), place.points(1, (4, 25))
    u = place.tangents(x, 2, 0.5)
    calls = (
        lambda: m.exp(x, u), lambda: m.log(x, y), lambda: m.log(x, y, check=False), lambda: m.dist(x, y),
        lambda: m.transport(x, y, u), lambda: m.inner(x, u, u), lambda: m.gradient(x=x, g=u),
        lambda: m.exp(x.transpose(0, 1), u.transpose(0, 1)).transpose(0, 1),
    )  # fmt: skip
    whole = [call() for call in calls]
    monkeypatch.setattr(batches, "BLOCK", 4 * x[0, 0].numel())
    for one, other in zip(whole, (call() for call in calls), strict=True):
        close(one, other, 1e-14)


def test_nearest_puts_a_moved_point_back(curved):
    m, x = curved.manifold, curved.points(0)
    moved = x + 1e-6 * normal(tuple(x.shape), stream(1, "moved"))
    assert not m.check_point(moved)[0] or curved.size == 1  # every 1 x 1 matrix is symmetric
    back = m.nearest(moved)
    assert m.check_point(back) == (True, None) and m.dist(x, back).max() < 2e-5

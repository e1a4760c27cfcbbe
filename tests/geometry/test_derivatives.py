"""Derivatives through Exp, Log, distance and transport: right, and finite where points coincide."""

import pytest
import torch

from fedbook.geometry import SPD, Euclidean, Hyperboloid, Sphere
from fedbook.randomness import normal, stream


def test_gradient_of_the_squared_distance_is_minus_twice_the_logarithm(place, close):
    m, y = place.manifold, place.points(1)
    x = place.points(0).requires_grad_()
    (g,) = torch.autograd.grad(m.squared_dist(x, y).sum(), x)
    close(m.gradient(x, g).detach(), -2 * m.log(x, y).detach(), 1e-9)


@pytest.mark.parametrize("length", [1e-3, 1e-6, 1e-9, 1e-11, 1e-13])
def test_that_gradient_stays_right_near_zero(place, length):
    m, y = place.manifold, place.points(1)
    x = m.exp(y, place.tangents(y, 2, length)).requires_grad_()
    (g,) = torch.autograd.grad(m.squared_dist(x, y).sum(), x)
    off = m.norm(x, m.gradient(x, g) + 2 * m.log(x, y))
    assert off.max() < 1e-14 + 1e-8 * length


def test_derivatives_are_finite_where_points_coincide(place):
    m = place.manifold
    x, y = place.points(0).requires_grad_(), place.points(0).requires_grad_()
    u = torch.zeros_like(x).requires_grad_()
    for value in (m.squared_dist(x, y), m.dist(x, y), m.norm(x, u), m.log(x, y), m.exp(x, u), m.transport(x, y, u)):
        for g in torch.autograd.grad(value.sum(), (x, y, u), allow_unused=True):
            assert g is None or bool(g.isfinite().all())
    assert torch.autograd.grad(m.squared_dist(x, y).sum(), x)[0].abs().max() == 0
    weight, v = place.tangents(x.detach(), 1), place.tangents(x.detach(), 2)
    (g,) = torch.autograd.grad((m.exp(x, u) * weight).sum(), u)  # the derivative of Exp at 0 is the identity
    torch.testing.assert_close((g * v).flatten(1).sum(1), (weight * v).flatten(1).sum(1), rtol=1e-10, atol=1e-10)


CASES = [(Sphere(), 3), (SPD(), 2), (SPD(), 3), (Hyperboloid(), 3)]


@pytest.mark.parametrize(("m", "size"), CASES, ids=lambda v: type(v).__name__ if not isinstance(v, int) else str(v))
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_derivatives_match_finite_differences(m, size, scale):
    """Along curves on the manifold, so that inputs stay points and tangent vectors."""
    rng = stream(0, "gradcheck")
    x0, y0 = m.random_point(size, rng), m.random_point(size, rng)
    y0 = m.exp(x0, scale * m.log(x0, y0))
    count = m.noise_size(x0)
    w = [normal((count,), rng) for _ in range(3)]

    def at(t):
        x = m.exp(x0, t[0] * m.tangent_gaussian(x0, w[0]))
        y = m.exp(y0, t[1] * m.tangent_gaussian(y0, w[1]))
        return x, y, t[2] * m.tangent_gaussian(x, w[2])

    functions = (
        lambda x, y, u: m.exp(x, u),
        lambda x, y, u: m.log(x, y),
        lambda x, y, u: m.transport(x, y, u),
        lambda x, y, u: m.squared_dist(x, y),
        lambda x, y, u: m.norm(x, u),
    )
    t = torch.tensor([0.1 * scale, -0.2 * scale, 0.7], dtype=torch.float64, requires_grad=True)
    for f in functions:
        assert torch.autograd.gradcheck(lambda t, f=f: f(*at(t)), (t,), eps=1e-5 * scale, atol=2e-6, rtol=2e-6)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_spd_derivatives_survive_equal_eigenvalues(n):
    """PyTorch's own derivative of eigh is NaN here."""
    m, x = SPD(), torch.eye(n, dtype=torch.float64).requires_grad_()
    y = (3 * torch.eye(n, dtype=torch.float64)).requires_grad_()
    weight = normal((n, n), stream(0, "weight"))
    weight = weight + weight.mT
    # d log(Y) = dY / 3 and d exp(U) = exp(u) dU at multiples of the identity.
    (g,) = torch.autograd.grad((weight * m.log(x, y)).sum(), y)
    torch.testing.assert_close(0.5 * (g + g.mT), weight / 3, rtol=1e-12, atol=1e-12)
    u = (0.5 * torch.eye(n, dtype=torch.float64)).requires_grad_()
    (g,) = torch.autograd.grad((weight * m.exp(x, u)).sum(), u)
    torch.testing.assert_close(0.5 * (g + g.mT), weight * torch.tensor(0.5).double().exp(), rtol=1e-12, atol=1e-12)
    # d (E V E^T) with E = Y^(1/2), and d Y^(1/2) = dY / (2 sqrt 3)
    v = normal((n, n), stream(1, "v"))
    v = v + v.mT
    (g,) = torch.autograd.grad((weight * m.transport(x, y, v)).sum(), y)
    torch.testing.assert_close(0.5 * (g + g.mT), (weight @ v + v @ weight) / 2, rtol=1e-12, atol=1e-12)


def test_derivatives_through_broadcasting(place, close):
    """One base point against many: its derivative is the sum over the many."""
    m, many = place.manifold, place.points(1, (4,))
    one = place.points(0, (1,)).requires_grad_()
    repeated = one.detach().expand_as(many).clone().requires_grad_()
    (g,) = torch.autograd.grad(m.log(one, many).sum(), one)
    (each,) = torch.autograd.grad(m.log(repeated, many).sum(), repeated)
    close(g[0], each.sum(0), 1e-9)


def test_torch_func_gives_the_same_derivatives(place, close):
    """vmap over grad is how per-record gradients are taken; points may coincide."""
    m, x, y = place.manifold, place.points(0), place.points(1)
    u, y[2] = place.tangents(x, 2), x[2]
    functions = (
        m.squared_dist,
        lambda x, y: m.exp(x, m.log(x, y, check=False) * 0.5).square().sum((-1, -2)[: m.point_ndim]),
        lambda x, y: m.norm(x, m.transport(y, x, m.project(y, u[0]))) + m.squared_dist(x, y),
        lambda x, y: m.inner(x, m.log(x, y), m.log(x, y)),
    )
    for f in functions:
        each = torch.func.vmap(torch.func.grad(f))(x, y)
        batch = x.clone().requires_grad_()
        (expected,) = torch.autograd.grad(f(batch, y).sum(), batch)
        assert each.isfinite().all()
        close(each, expected, 1e-9)
        close(torch.func.vmap(f)(x, y), f(x, y), 1e-12)


@pytest.mark.parametrize(
    ("m", "size"), [*CASES, (Euclidean(), 3)], ids=lambda v: type(v).__name__ if not isinstance(v, int) else str(v)
)
def test_second_derivatives_match_finite_differences(m, size):
    rng = stream(0, "hessian")
    x, y = m.random_point(size, rng), m.random_point(size, rng)
    u = m.tangent_gaussian(x, normal((m.noise_size(x),), rng))

    def f(t):
        z = m.exp(x, t * u)
        half = m.exp(z, 0.5 * m.log(z, y))
        return m.squared_dist(half, x) + m.inner(half, v := m.transport(x, half, u), v)

    t = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(f, (t,), eps=1e-5, atol=1e-5, rtol=1e-5)


def test_what_is_kept_from_inference_mode_serves_derivatives():
    for m, size in ((SPD(), 11), (Sphere(), 13)):
        x = m.origin(size)  # of sizes that no other test has used: their tables are made here
        w = normal((m.noise_size(x),), stream(1, "w"))
        with torch.inference_mode():
            expected = m.tangent_gaussian(x, w).clone()
        w.requires_grad_()
        found = m.tangent_gaussian(x, w)
        found.sum().backward()
        assert w.grad.isfinite().all() and torch.equal(found.detach(), expected)

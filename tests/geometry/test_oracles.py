"""geoopt and pymanopt as oracles where they are right, and where they are not."""

import warnings

import numpy as np
import pymanopt.manifolds
import pytest
import torch

from fedbook.geometry import SPD, Hyperboloid, Sphere
from fedbook.randomness import stream

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit.script
    import geoopt

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


def rivals(m):
    return {Sphere: geoopt.Sphere, SPD: geoopt.SymmetricPositiveDefinite, Hyperboloid: geoopt.Lorentz}[type(m)]()


def test_geoopt_agrees_away_from_its_weak_spots(curved, close):
    m, x, y = curved.manifold, curved.points(0), curved.points(1)
    if curved.size == 1 or m.dimension(x) == 1:
        return
    other = rivals(m)
    u, v = curved.tangents(x, 2, 0.8), curved.tangents(x, 3, 1.1)
    with torch.no_grad():
        close(m.exp(x, u), other.expmap(x, u), 1e-8)
        close(m.log(x, y), other.logmap(x, y), 1e-6)
        close(m.dist(x, y), other.dist(x, y), 1e-6)
        close(m.inner(x, u, v), other.inner(x, u, v))
        close(m.gradient(x, v), other.egrad2rgrad(x, v.clone()), 1e-10)  # geoopt's Lorentz changes its argument
        if not isinstance(m, Sphere):
            close(m.transport(x, y, u), other.transp(x, y, u), 1e-6)


def test_pymanopt_agrees_on_spheres(close):
    m, rng = Sphere(), stream(0, "oracle")
    other = pymanopt.manifolds.Oblique(5, 8)
    x, y = m.random_point(5, rng, (8,)), m.random_point(5, rng, (8,))
    u = m.log(x, y)
    a, b, c = x.mT.numpy(), y.mT.numpy(), u.mT.numpy()
    close(m.exp(x, 0.3 * u), torch.from_numpy(other.exp(a, 0.3 * c)).mT)
    close(u, torch.from_numpy(other.log(a, b)).mT)
    close(torch.linalg.vector_norm(m.dist(x, y)), torch.tensor(other.dist(a, b)))  # the distance of the product
    close(m.project(x, y), torch.from_numpy(other.projection(a, b)).mT)


@pytest.mark.parametrize("n", [2, 3, 9])
def test_pymanopt_agrees_on_positive_definite_matrices(n, close):
    m, rng = SPD(), stream(0, "oracle")
    other = pymanopt.manifolds.SymmetricPositiveDefinite(n, k=4)
    x, y, z = (m.random_point(n, rng, (4,)) for _ in range(3))
    u, v = m.log(x, y), m.log(x, z)
    a, b, c, d = (t.numpy() for t in (x, y, u, v))
    close(m.exp(x, v), torch.from_numpy(other.exp(a, d)))
    close(u, torch.from_numpy(other.log(a, b)))
    close(torch.linalg.vector_norm(m.dist(x, y)), torch.tensor(other.dist(a, b)))
    close(m.inner(x, u, v).sum(), torch.tensor(other.inner_product(a, c, d)))
    close(m.gradient(x, u), torch.from_numpy(other.euclidean_to_riemannian_gradient(a, c)))


def test_hyperboloid_agrees_with_pymanopt_on_the_poincare_ball(close):
    """Stereographic projection p = x_s / (1 + x_0) carries one model to the other."""
    m, rng = Hyperboloid(), stream(0, "oracle")
    ball = pymanopt.manifolds.PoincareBall(3)
    for _ in range(5):
        x, y = m.random_point(4, rng), m.random_point(4, rng)
        p, q = (t[1:].numpy() / (1 + float(t[0])) for t in (x, y))
        assert float(m.dist(x, y)) == pytest.approx(float(ball.dist(p, q)), rel=1e-10)
        middle = m.exp(x, 0.5 * m.log(x, y))
        np.testing.assert_allclose(middle[1:].numpy() / (1 + float(middle[0])), ball.pair_mean(p, q), atol=1e-12)


def test_where_geoopt_is_wrong():
    """Its sphere clamps the cosine to 1 - 1e-7: no distance is below 4e-4, and Log near zero is 447 times too long."""
    x = Sphere().origin(3)
    u = torch.tensor([0.0, 1e-6, 0.0], dtype=torch.float64)
    y = Sphere().exp(x, u)
    other = geoopt.Sphere()
    assert float(Sphere().dist(x, y)) == pytest.approx(1e-6, rel=1e-9)
    assert float(other.dist(x, y)) > 4e-4 and float(other.dist(x, x)) > 4e-4
    assert float(other.logmap(x, y).norm()) > 4e-4
    torch.testing.assert_close(Sphere().log(x, y), u, rtol=1e-9, atol=0)
    # Its Lorentz norm is never below 1e-4 and its distance never below 3e-8, so Log near zero is too short or too long.
    with torch.no_grad():
        h, lorentz = Hyperboloid().origin(3), geoopt.Lorentz()
        for length in (1e-6, 1e-10):
            v = torch.tensor([0.0, length, 0.0], dtype=torch.float64)
            end = Hyperboloid().exp(h, v)
            torch.testing.assert_close(Hyperboloid().log(h, end), v, rtol=1e-9, atol=0)
            assert not 0.5 < float(lorentz.logmap(h, end).norm()) / length < 2


def test_the_transport_of_the_other_spheres_is_no_transport():
    """Both project: that shortens vectors."""
    m, rng = Sphere(), stream(0, "oracle")
    x, y = m.random_point(5, rng), m.random_point(5, rng)
    u = m.log(x, y)
    for theirs in (
        geoopt.Sphere().transp(x, y, u),
        pymanopt.manifolds.Sphere(5).transport(x.numpy(), y.numpy(), u.numpy()),
    ):
        assert float(m.norm(y, torch.as_tensor(theirs))) < 0.9 * float(m.norm(x, u))
    assert float(m.norm(y, m.transport(x, y, u))) == pytest.approx(float(m.norm(x, u)), rel=1e-14)

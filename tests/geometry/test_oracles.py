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

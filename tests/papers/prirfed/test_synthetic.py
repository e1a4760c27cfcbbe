"""Synthetic records against what defines them: singular values, densities by quadrature, supports, keyed streams."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, linalg, stats

from fedbook.geometry import SPD, Hyperboloid
from fedbook.papers.prirfed import synthetic
from fedbook.papers.prirfed.synthetic import (
    directional_records,
    eigengap_records,
    hyperbolic_ball_records,
    wishart_records,
)

NU = 1e-3
SOURCE = [1, 1 - NU, 1 - 1.1 * NU, 1 - 1.2 * NU, 1 - 1.3 * NU, 1 - 1.4 * NU]
GENERATORS = {
    "eigengap": lambda seed=0: eigengap_records(3, 30, seed=seed),
    "directions": lambda seed=0: directional_records(3, 30, seed=seed),
    "wishart": lambda seed=0: wishart_records(30, seed=seed),
    "hyperbolic": lambda seed=0: hyperbolic_ball_records(30, seed=seed),
}


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("spectrum", ["source", "printed"])
def test_singular_values_are_the_recipe_s(shared, spectrum):
    leading = SOURCE if spectrum == "source" else [SOURCE[0], *SOURCE[2:]]
    z = eigengap_records(6, 70, shared_basis=shared, spectrum=spectrum, seed=4)
    assert z.shape == (6, 70, 25) and z.dtype == torch.float64
    tails = []
    for own in z.numpy():
        values = linalg.svd(own, compute_uv=False)
        np.testing.assert_allclose(values[: len(leading)], leading, rtol=1e-13)
        tails.append(25 * values[len(leading) :])
    assert len(set(map(tuple, tails))) == 6  # every agent draws its own
    assert stats.kstest(np.concatenate(tails), stats.halfnorm.cdf).pvalue > 0.01
    assert float(torch.linalg.vector_norm(z, dim=-1).max()) <= 1


@pytest.mark.parametrize("dimension, variance", [(10, 9.0), (3, 4.0), (2, 1.0)])
def test_directions_have_length_one_and_the_eigenvalues_of_the_law(dimension, variance):
    z = directional_records(8, 5_000, dimension, variance, seed=1)
    assert z.shape == (8, 5_000, dimension) and z.dtype == torch.float64
    torch.testing.assert_close(torch.linalg.vector_norm(z, dim=-1), torch.ones(8, 5_000, dtype=torch.float64))

    def density(t):  # E[z_1^2] of the normalised Gaussian, 1/|g|^2 written as an integral of exp(-t |g|^2)
        return variance * (1 + 2 * variance * t) ** -1.5 * (1 + 2 * t) ** (-(dimension - 1) / 2)

    first = integrate.quad(density, 0, math.inf, epsabs=1e-12)[0]
    if (dimension, variance) == (10, 9.0):
        assert first == pytest.approx(0.364, abs=5e-4) and (1 - first) / 9 == pytest.approx(0.0707, abs=5e-4)
    squares = z.flatten(0, 1).square()
    expected = torch.tensor([first] + [(1 - first) / (dimension - 1)] * (dimension - 1), dtype=torch.float64)
    assert ((squares.mean(0) - expected).abs() < 4.5 * squares.std(0) / len(squares) ** 0.5).all()
    assert float(z.flatten(0, 1).mean(0).abs().max()) < 4.5 / math.sqrt(40_000)


def eigenvalue_density(a, b):
    """Of W(I/2, 2), 2x2, in the logarithms a > b of the eigenvalues; its integral is 4."""
    m, k = 2 * math.exp(a), 2 * math.exp(b)
    return math.exp(-(m + k) / 2) * math.sqrt(m * k) * (m - k)


def in_ball(radius, of=lambda a, b: 1.0):
    """The integral of density times ``of`` over a^2 + b^2 < radius^2, in polar coordinates."""

    def integrand(angle, r):
        a, b = r * math.cos(angle), r * math.sin(angle)
        return r * eigenvalue_density(a, b) * of(a, b)

    low, high = -3 * math.pi / 4, math.pi / 4
    return integrate.dblquad(integrand, 0, radius, low, high, epsabs=1e-9, epsrel=1e-9)[0] / 4


def test_wishart_records_have_the_law_of_the_ball():
    count, manifold, origin = 20_000, SPD(), torch.eye(2, dtype=torch.float64)
    z = wishart_records(count, seed=3)
    assert z.shape == (count, 2, 2) and z.dtype == torch.float64 and torch.equal(z, z.mT)
    assert float(torch.linalg.eigvalsh(z).min()) > math.exp(-1) and manifold.check_point(z) == (True, None)
    distance = manifold.dist(origin, z)  # by another route: eigenvalues of the whitened matrix
    assert 0.999 < float(distance.max()) < 1
    whole = in_ball(1.0)
    assert whole == pytest.approx(0.09739, abs=1e-5)
    for radius in (0.4, 0.7, 0.9):
        share, expected = float((distance < radius).double().mean()), in_ball(radius) / whole
        assert abs(share - expected) < 4.5 * math.sqrt(expected * (1 - expected) / count)
    logs = torch.linalg.eigvalsh(z).log()  # trace of log Z: the scale, apart from the distance
    trace = logs.sum(1)
    expected = in_ball(1.0, lambda a, b: a + b) / whole
    assert abs(float(trace.mean()) - expected) < 4.5 * float(trace.std()) / math.sqrt(count)
    angles = torch.atan2(2 * z[:, 0, 1], z[:, 0, 0] - z[:, 1, 1])  # of the eigenvectors: no direction preferred
    assert stats.kstest(angles.numpy(), stats.uniform(-math.pi, 2 * math.pi).cdf).pvalue > 0.01


@pytest.mark.parametrize("dimension, radius", [(2, 1.0), (1, 0.5), (3, 4.0), (2, 10.0)])
def test_hyperbolic_records_are_uniform_in_the_tangent_ball(dimension, radius):
    manifold, count = Hyperboloid(), 4_000
    y = hyperbolic_ball_records(count, dimension, radius, seed=5)
    assert y.shape == (count, dimension + 1) and y.dtype == torch.float64
    origin = manifold.origin(dimension + 1)
    time, space = y[:, 0], y[:, 1:]
    torch.testing.assert_close(time, (1 + space.square().sum(1)).sqrt(), rtol=1e-13, atol=0)
    v = manifold.log(origin, y)
    length = manifold.norm(origin, v)
    assert float(length.max()) <= radius * (1 + 1e-12) and float(length.max()) > 0.98 * radius
    assert float(v[:, 0].abs().max()) < 1e-14 * math.exp(radius) * radius
    assert stats.kstest(((length / radius) ** dimension).numpy(), stats.uniform.cdf).pvalue > 0.01
    for axis in range(dimension):  # uniform in the ball: each coordinate has variance radius^2 / (d + 2), mean 0
        x = v[:, 1 + axis]
        assert abs(float(x.mean())) < 4.5 * float(x.std()) / math.sqrt(count)
        assert float(x.var()) == pytest.approx(radius**2 / (dimension + 2), rel=0.1)
    torch.testing.assert_close(manifold.exp(origin, v), y, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("make", GENERATORS.values(), ids=GENERATORS)
def test_seeds_decide(make):
    first = make()
    assert torch.equal(make(), first) and not torch.equal(make(1), first)
    assert not torch.equal(make(None), make(None))  # from the operating system
    rows = first.flatten(0, -2) if first.ndim == 3 and first.shape[-1] != 2 else first.flatten(1)
    assert len(rows.unique(dim=0)) == len(rows)  # no record twice, so agents differ too


def test_a_ball_too_small_to_fill(monkeypatch):
    monkeypatch.setattr(synthetic, "PROPOSALS", 4 * synthetic.BLOCK)
    with pytest.raises(ValueError, match=r"radius: got 1e-06; allowed is a ball that holds 30 of"):
        wishart_records(30, radius=1e-6)

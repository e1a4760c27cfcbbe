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
from fedbook.randomness import stream

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


def test_a_shared_basis_is_shared_and_the_other_is_not():
    """The span of the six leading right singular vectors: the same for all agents, or turned."""
    for shared in (True, False):
        z = eigengap_records(4, 40, shared_basis=shared)
        spans = torch.linalg.svd(z, full_matrices=False).Vh[:, :6]
        projectors = spans.mT @ spans
        distance = (projectors[1:] - projectors[:1]).flatten(1).norm(dim=1)
        assert (distance < 1e-12).all() if shared else (distance > 1).all()
    pooled = eigengap_records(16, 70).flatten(0, 1)
    values, vectors = torch.linalg.eigh(pooled.T @ pooled / len(pooled))
    assert float(values[-1]) == pytest.approx(1 / 70, rel=1e-12)
    assert float(1 - values[-2] / values[-1]) == pytest.approx(1 - (1 - NU) ** 2, rel=1e-9)
    printed = eigengap_records(16, 70, spectrum="printed").flatten(0, 1)
    values = torch.linalg.eigvalsh(printed.T @ printed / len(printed))
    assert float(1 - values[-2] / values[-1]) == pytest.approx(1 - (1 - 1.1 * NU) ** 2, rel=1e-9)
    own = torch.linalg.svd(eigengap_records(1, 70, seed=0)[0]).Vh[0]  # the leading eigenvector of all is each one's
    assert float((own @ vectors[:, -1]).abs()) == pytest.approx(1, abs=1e-8)


def test_bases_are_uniform():
    """One column of a uniform orthogonal matrix of size 6 is uniform on the sphere: its entries' squares are Beta."""
    z = eigengap_records(800, 6, dimension=6, eigengap=0.5, shared_basis=False, seed=2)
    u, _, vh = np.linalg.svd(z.numpy())
    for vectors in (u[:, :, 0], vh[:, 0]):
        assert stats.kstest(vectors[:, 2] ** 2, stats.beta(0.5, 2.5).cdf).pvalue > 0.01
    # signs too: with LAPACK's own signs det(U) det(V) would not be a fair coin. det Z = det U det V times positives
    positive = int((np.linalg.det(z.numpy()) > 0).sum())
    assert stats.binomtest(positive, 800).pvalue > 0.01
    assert stats.binomtest(int((z[:, 0, 0] > 0).sum()), 800).pvalue > 0.01


def test_the_tail_of_the_spectrum_is_a_half_normal_over_the_ambient_dimension():
    values = torch.linalg.svdvals(eigengap_records(400, 10, dimension=10, seed=1))[:, 6:]
    squares = (10 * values).square()  # E y^2 = 1, Var y^2 = 2
    assert abs(float(squares.mean()) - 1) < 4.5 * math.sqrt(2 / squares.numel())


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


def test_how_many_wishart_matrices_are_kept():
    """From how many blocks were drawn: with radius 1 the share kept is that of the density's integral."""
    drawn = []

    def counting(shape, rng):
        drawn.append(shape[0])
        return normal(shape, rng)

    normal, synthetic.normal = synthetic.normal, counting
    try:
        z = wishart_records(8_000, seed=11)
        rest = wishart_records(len(drawn) * synthetic.BLOCK, radius=math.inf, seed=11)  # the same draws, all of them
    finally:
        synthetic.normal = normal
    n = len(rest)
    kept = rest[SPD().dist(torch.eye(2, dtype=torch.float64), rest) < 1]
    assert torch.equal(kept[: len(z)], z)
    assert abs(len(kept) / n - 0.09739) < 4.5 * math.sqrt(0.0974 * 0.9026 / n)
    mean, error = rest.mean(0), rest.std(0) / math.sqrt(n)  # without a ball: E Z = I
    assert ((mean - torch.eye(2)).abs() < 4.5 * error).all()


@pytest.mark.parametrize("size", [1, 3, 4])
def test_wishart_records_of_other_sizes(size):
    z = wishart_records(200, size, radius=2.0)
    assert z.shape == (200, size, size) and float(SPD().dist(torch.eye(size, dtype=torch.float64), z).max()) < 2
    free = wishart_records(4_000, size, radius=math.inf)
    assert ((free.mean(0) - torch.eye(size)).abs() < 4.5 * free.std(0) / math.sqrt(4_000)).all()
    variance = free.diagonal(dim1=1, dim2=2).var()  # Var Z_ii = 2 / n
    assert float(variance) == pytest.approx(2 / size, rel=0.15)


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


def test_more_records_leave_the_first_as_they_are():
    for shared in (True, False):
        few, many = (eigengap_records(n, 30, shared_basis=shared) for n in (2, 5))
        torch.testing.assert_close(many[:2], few, rtol=0, atol=1e-15)
    torch.testing.assert_close(directional_records(5, 30)[:2], directional_records(2, 30), rtol=1e-15, atol=0)
    assert torch.equal(wishart_records(2_000)[:30], wishart_records(30))
    few, many = hyperbolic_ball_records(30), hyperbolic_ball_records(2_000)
    torch.testing.assert_close(many[:30], few, rtol=1e-14, atol=0)


def test_a_stream_of_its_own():
    """Not one agent's numbers in another role: the two purposes of a generator, and two generators, are unrelated."""
    z, d = eigengap_records(1, 60, seed=7)[0], directional_records(1, 60, 25, 1.0, seed=7)[0]
    assert abs(np.corrcoef(z.flatten(), d.flatten())[0, 1]) < 4.5 / math.sqrt(1500)
    assert stream(0, "eigengap records", client=0).random() != stream(0, "eigengap basis", client=0).random()


NUMBERS = [None, "x", math.nan, math.inf, -1, 0, 2.5, True, torch.zeros(2)]
REALS = [None, "x", math.nan, -1.0, True, torch.zeros(2)]
SEEDS = ["x", math.nan, -1, 2.5, True, 2**63]
BAD = [
    (eigengap_records, {"agents": 2, "records": 30},
     {"agents": NUMBERS, "records": [*NUMBERS, 24], "dimension": [*NUMBERS, 5], "eigengap": [*REALS, math.inf, 0, 0.6],
      "shared_basis": [None, 1, "x"], "spectrum": [None, 3, "paper"], "seed": SEEDS}),
    (directional_records, {"agents": 2, "records": 30},
     {"agents": NUMBERS, "records": NUMBERS, "dimension": [*NUMBERS, 1], "variance": [*REALS, math.inf, 0.5],
      "seed": SEEDS}),
    (wishart_records, {"count": 30},
     {"count": NUMBERS, "size": [*NUMBERS, 5], "radius": [*REALS, 0, -math.inf], "seed": SEEDS}),
    (hyperbolic_ball_records, {"count": 30},
     {"count": NUMBERS, "dimension": NUMBERS, "radius": [*REALS, math.inf, 11], "seed": SEEDS}),
]  # fmt: skip
CASES = [(f, good, name, bad) for f, good, table in BAD for name, values in table.items() for bad in values]


@pytest.mark.parametrize(
    "function, good, name, bad", CASES, ids=lambda value: getattr(value, "__name__", None) or str(value)[:20]
)
def test_bad_arguments_are_named(function, good, name, bad):
    with pytest.raises((TypeError, ValueError), match=f"^{name}: got"):
        function(**{**good, name: bad})


def test_a_ball_too_small_to_fill(monkeypatch):
    monkeypatch.setattr(synthetic, "PROPOSALS", 4 * synthetic.BLOCK)
    with pytest.raises(ValueError, match=r"radius: got 1e-06; allowed is a ball that holds 30 of"):
        wishart_records(30, radius=1e-6)

"""Bad arguments are refused by name, points off the manifold with the reason."""

import inspect
import math

import pytest
import torch

from fedbook.geometry import SPD, Euclidean, Hyperboloid, Sphere, ambient_mean, frechet_mean, tangent_mean
from fedbook.randomness import stream

NAN, INF = math.nan, math.inf
DOUBLE = {"dtype": torch.float64}


def test_tensors_of_the_wrong_kind_or_shape_are_named(place):
    m, x = place.manifold, place.points(0)
    given = {"x": x, "y": place.points(1)} | dict.fromkeys("uvg", place.tangents(x, 2))
    for method in ("inner", "norm", "exp", "log", "dist", "squared_dist", "transport", "project", "gradient"):
        function = getattr(m, method)
        good = {name: given[name] for name in inspect.signature(function).parameters if name in given}
        function(**good)
        for name, value in good.items():
            for bad in (None, [1.0], torch.ones_like(value).long()):
                with pytest.raises(TypeError, match=f"^{name}: "):
                    function(**{**good, name: bad})
            shapes = [torch.zeros((), **DOUBLE)]
            shapes += [torch.cat([value, value], -1)] if m.point_ndim == 2 else []
            shapes += [torch.zeros(place.size + 1, place.size + 1, **DOUBLE)] if name != "x" else []
            for bad in shapes:
                with pytest.raises(ValueError, match=f"^{name}: "):
                    function(**{**good, name: bad})


def test_noise_and_sizes(place):
    m, x = place.manifold, place.points(0)
    for bad in (None, torch.ones(m.noise_size(x)).long(), torch.zeros(m.noise_size(x) + 1), torch.zeros(())):
        with pytest.raises((TypeError, ValueError), match="^w: "):
            m.tangent_gaussian(x, bad)
    for bad in (None, 2.5, 0):
        for function in (m.origin, lambda size: m.random_point(size, stream(0, "x"))):
            with pytest.raises((TypeError, ValueError), match="^size: "):
                function(bad)
    with pytest.raises(TypeError, match="^rng: "):
        m.random_point(place.size, None)
    for bad in (3, (2.0,), (-1,)):
        with pytest.raises((TypeError, ValueError), match="^batch: "):
            m.random_point(place.size, stream(0, "x"), bad)


NO_POINTS = [
    (Sphere(), [1.0, 1e-3], "norm"),
    (Sphere(), [NAN, 1.0], "NaN"),
    (Sphere(), [INF, 1.0], "NaN or infinite"),
    (Sphere(), [[1.0]] * 4, "shape"),
    (Sphere(), 1.0, "shape"),
    (Hyperboloid(), [1.0, 1e-3], "time coordinate"),
    (Hyperboloid(), [-1.0, 0.0], "not positive"),
    (Hyperboloid(), [1.0], "shape"),
    (SPD(), [[1.0, 0.1], [0.2, 1.0]], "asymmetry"),
    (SPD(), [[1.0, 1.0], [1.0, 1.0]], "not positive definite"),
    (SPD(), [[0.0, 0.0], [0.0, 0.0]], "not positive definite"),
    (SPD(), [[1.0] * 3] * 2, "shape"),
    (SPD(), [[NAN] * 2] * 2, "NaN"),
    (Euclidean(), [NAN], "NaN"),
]


@pytest.mark.parametrize(("m", "x", "reason"), NO_POINTS, ids=lambda v: str(v)[:20] if isinstance(v, str) else "")
def test_points_off_the_manifold_are_refused_with_the_reason(m, x, reason):
    ok, why = m.check_point(torch.tensor(x, **DOUBLE))
    assert not ok and reason in why


def test_one_bad_point_of_a_batch_is_found(curved):
    m, x = curved.manifold, curved.points(0)
    assert m.check_point(x) == (True, None)
    x[4] = -x[4] if not isinstance(m, Sphere) else 2 * x[4]
    assert not m.check_point(x)[0]


@pytest.mark.parametrize("size", [2, 3, 784])
def test_the_logarithm_at_the_antipode(size):
    m = Sphere()
    x = m.random_point(size, stream(0, "x"), (20,))
    y = m.random_point(size, stream(1, "y"), (20,))
    u = m.log(x, y)
    around = m.exp(x, math.pi / m.norm(x, u)[:, None] * u)  # the antipode but for rounding
    for antipode in (-x, around):
        mixed = torch.where(torch.arange(20)[:, None] == 7, antipode, y)
        with pytest.raises(ValueError, match="^y: .*antipode"):
            m.log(x, mixed)
        found = m.log(x, mixed, check=False)
        assert found.isfinite().all() and torch.equal(found[:7], u[:7])
    assert m.log(x, -x, check=False).abs().max() == 0
    beside = m.exp(x, (math.pi - 1e-9) / m.norm(x, u)[:, None] * u)
    torch.testing.assert_close(m.log(x, beside), math.pi / m.norm(x, u)[:, None] * u, rtol=0, atol=1e-6)
    assert m.transport(x, -x, u).isnan().any()
    assert float((m.dist(x, -x) - math.pi).abs().max()) < 1e-15


@pytest.mark.parametrize("n", [1, 2, 3])
def test_matrices_that_are_not_positive_definite_are_named(n):
    m, good = SPD(), torch.eye(n, **DOUBLE)
    bads = [-good, torch.zeros(n, n, **DOUBLE)]
    bads += [good - 2 * torch.diag(good[k]) for k in range(n)] + [torch.ones(n, n, **DOUBLE)] if n > 1 else []
    for bad in (torch.stack([good, bad]) for bad in bads):
        calls = {
            "x": [
                lambda x: m.exp(x, good), lambda x: m.log(x, good), lambda x: m.dist(x, good),
                lambda x: m.transport(x, good, good), lambda x: m.norm(x, good), lambda x: m.inner(x, good, good),
                lambda x: m.tangent_gaussian(x, torch.zeros(m.noise_size(x), **DOUBLE)),
            ],
            "y": [lambda y: m.log(good, y), lambda y: m.dist(good, y), lambda y: m.transport(good, y, good)],
        }  # fmt: skip
        for name, functions in calls.items():
            for function in functions:
                with pytest.raises(ValueError, match=f"^{name}: .*positive definite"):
                    function(bad)


def test_means():
    points, weights = Sphere().random_point(3, stream(0, "x"), (4,)), torch.ones(4, **DOUBLE)
    good = {"manifold": Sphere(), "x": points[0], "points": points, "weights": weights}
    bad = {
        "manifold": [None, "sphere", Sphere], "x": [None],
        "points": [None, torch.ones(4, 3).long(), points[0], points[:0], points * NAN],
        "weights": [None, torch.ones(4).long(), -weights, 0 * weights, weights * NAN, weights[:3], weights[0]],
        "tolerance": [-1.0, NAN], "iterations": [2.5, -1],
    }  # fmt: skip
    for mean in (tangent_mean, frechet_mean, ambient_mean):
        known = inspect.signature(mean).parameters
        works = {name: value for name, value in good.items() if name in known}
        mean(**works)
        for name, values in bad.items():
            for value in values if name in known else ():
                with pytest.raises((TypeError, ValueError), match=f"^{name}: "):
                    mean(**works | {name: value})

"""Bad arguments are refused by name, points off the manifold with the reason."""

import math

import numpy as np
import pytest
import torch

from fedbook.geometry import SPD, Euclidean, Hyperboloid, Manifold, Sphere, ambient_mean, frechet_mean, tangent_mean
from fedbook.randomness import stream

NAN, INF = math.nan, math.inf


def calls(place):
    """Each tensor function with arguments that work."""
    m, x, y = place.manifold, place.points(0), place.points(1)
    u = place.tangents(x, 2)
    return {
        "inner": (m.inner, {"x": x, "u": u, "v": u}), "norm": (m.norm, {"x": x, "u": u}),
        "exp": (m.exp, {"x": x, "u": u}), "log": (m.log, {"x": x, "y": y}), "dist": (m.dist, {"x": x, "y": y}),
        "squared_dist": (m.squared_dist, {"x": x, "y": y}), "transport": (m.transport, {"x": x, "y": y, "u": u}),
        "project": (m.project, {"x": x, "v": u}), "gradient": (m.gradient, {"x": x, "g": u}),
    }  # fmt: skip


def test_tensors_of_the_wrong_kind_or_shape_are_named(place):
    for function, good in calls(place).values():
        function(**good)
        for name, value in good.items():
            for bad in (None, "x", 3.0, [1.0], np.zeros(3), torch.ones_like(value).long()):
                with pytest.raises(TypeError, match=f"^{name}: "):
                    function(**{**good, name: bad})
            wide = torch.cat([value, value], -1)
            shapes = [torch.zeros((), dtype=torch.float64), wide if place.manifold.point_ndim == 2 else None]
            if name != "x":
                shapes.append(torch.zeros(place.size + 1, place.size + 1, dtype=torch.float64))
            for bad in shapes:
                if bad is not None:
                    with pytest.raises(ValueError, match=f"^{name}: "):
                        function(**{**good, name: bad})
        with pytest.raises(TypeError):
            function()


def test_noise_and_sizes(place):
    m, x = place.manifold, place.points(0)
    for bad in (None, "w", 1.0, torch.ones(m.noise_size(x)).long()):
        with pytest.raises(TypeError, match="^w: "):
            m.tangent_gaussian(x, bad)
    for bad in (torch.zeros(m.noise_size(x) + 1), torch.zeros(())):
        with pytest.raises(ValueError, match="^w: "):
            m.tangent_gaussian(x, bad)
    with pytest.raises(TypeError, match="^x: "):
        m.tangent_gaussian(None, torch.zeros(3))
    for bad in (None, "3", 2.5, True, NAN):
        for function in (m.origin, lambda size: m.random_point(size, stream(0, "x"))):
            with pytest.raises(TypeError, match="^size: "):
                function(bad)
    for bad in (0, -1):
        for function in (m.origin, lambda size: m.random_point(size, stream(0, "x"))):
            with pytest.raises(ValueError, match="^size: "):
                function(bad)
    for bad in (None, 0, "x"):
        with pytest.raises(TypeError, match="^rng: "):
            m.random_point(place.size, bad)
    for bad in (3, "ab", ("a",), (2.0,)):
        with pytest.raises(TypeError, match="^batch: "):
            m.random_point(place.size, stream(0, "x"), bad)
    with pytest.raises(ValueError, match="^batch: "):
        m.random_point(place.size, stream(0, "x"), (-1,))


DOUBLE = {"dtype": torch.float64}
NO_POINTS = [
    (Sphere(), torch.tensor([1.0, 1e-3], **DOUBLE), "norm"),
    (Sphere(), torch.zeros(3, **DOUBLE), "norm"),
    (Sphere(), torch.tensor([NAN, 1.0], **DOUBLE), "NaN"),
    (Sphere(), torch.tensor([INF, 1.0], **DOUBLE), "NaN or infinite"),
    (Sphere(), torch.ones(4, 1, **DOUBLE), "shape"),
    (Sphere(), torch.tensor(1.0, **DOUBLE), "shape"),
    (Hyperboloid(), torch.tensor([1.0, 1e-3], **DOUBLE), "time coordinate"),
    (Hyperboloid(), torch.tensor([-1.0, 0.0], **DOUBLE), "not positive"),
    (Hyperboloid(), torch.tensor([0.0, 1.0], **DOUBLE), "not positive"),
    (Hyperboloid(), torch.tensor([1.0], **DOUBLE), "shape"),
    (SPD(), torch.tensor([[1.0, 0.1], [0.2, 1.0]], **DOUBLE), "asymmetry"),
    (SPD(), torch.tensor([[1.0, 2.0], [2.0, 1.0]], **DOUBLE), "not positive definite"),
    (SPD(), torch.tensor([[1.0, 1.0], [1.0, 1.0]], **DOUBLE), "not positive definite"),
    (SPD(), -torch.eye(3, **DOUBLE), "not positive definite"),
    (SPD(), torch.zeros(3, 3, **DOUBLE), "not positive definite"),
    (SPD(), torch.ones(2, 3, **DOUBLE), "shape"),
    (SPD(), torch.ones(3, **DOUBLE), "shape"),
    (SPD(), torch.full((2, 2), NAN, **DOUBLE), "NaN"),
    (Euclidean(), torch.tensor([NAN], **DOUBLE), "NaN"),
]


@pytest.mark.parametrize(("m", "x", "reason"), NO_POINTS, ids=lambda v: str(v)[:20] if isinstance(v, str) else "")
def test_points_off_the_manifold_are_refused_with_the_reason(m, x, reason):
    ok, why = m.check_point(x)
    assert not ok and reason in why
    with pytest.raises(ValueError, match="^start: .*" + reason):
        m.require_point("start", x)


def test_one_bad_point_of_a_batch_is_found(curved):
    m, x = curved.manifold, curved.points(0)
    assert m.require_point("x", x) is x
    x[4] = -x[4] if not isinstance(m, Sphere) else 2 * x[4]
    assert not m.check_point(x)[0]


def test_vectors_off_the_tangent_space_are_refused(curved):
    m, x = curved.manifold, curved.points(0)
    u = curved.tangents(x, 1)
    assert m.require_tangent("u", x, u) is u
    off = {Sphere: x, Hyperboloid: x}.get(type(m), torch.ones(curved.size, curved.size, **DOUBLE).triu())
    if curved.size > 1:
        with pytest.raises(ValueError, match="^u: "):
            m.require_tangent("u", x, u + 1e-3 * off)
    for bad in (u * NAN, u[..., :0], torch.zeros(curved.size + 1, curved.size + 1, **DOUBLE)):
        with pytest.raises(ValueError, match="^u: "):
            m.require_tangent("u", x, bad)
    for bad in (None, 3, torch.ones(3).long()):
        with pytest.raises(TypeError, match="^u: "):
            m.require_tangent("u", x, bad)
        with pytest.raises(TypeError, match="^x: "):
            m.require_point("x", bad)


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
    m = SPD()
    good = torch.eye(n, **DOUBLE)
    bads = [-good, torch.zeros(n, n, **DOUBLE)]
    if n > 1:
        bads += [good - 2 * torch.diag(good[k]) for k in range(n)] + [torch.ones(n, n, **DOUBLE)]
    for bad in bads:
        bad = torch.stack([good, bad])
        for call in (
            lambda x=bad: m.exp(x, good), lambda x=bad: m.log(x, good), lambda x=bad: m.dist(x, good),
            lambda x=bad: m.transport(x, good, good), lambda x=bad: m.norm(x, good),
            lambda x=bad: m.inner(x, good, good),
            lambda x=bad: m.tangent_gaussian(x, torch.zeros(m.noise_size(x), **DOUBLE)),
        ):  # fmt: skip
            with pytest.raises(ValueError, match="^x: .*positive definite"):
                call()
        for call in (
            lambda y=bad: m.log(good, y),
            lambda y=bad: m.dist(good, y),
            lambda y=bad: m.transport(good, y, good),
        ):
            with pytest.raises(ValueError, match="^y: .*positive definite"):
                call()


def test_means():
    m, points, weights = Sphere(), Sphere().random_point(3, stream(0, "x"), (4,)), torch.ones(4, **DOUBLE)
    means = {
        "tangent": lambda **a: tangent_mean(
            **{"manifold": m, "x": points[0], "points": points, "weights": weights, **a}
        ),
        "frechet": lambda **a: frechet_mean(
            **{"manifold": m, "x": points[0], "points": points, "weights": weights, **a}
        ),
        "ambient": lambda **a: ambient_mean(**{"manifold": m, "points": points, "weights": weights, **a}),
    }
    bad = {
        "manifold": (TypeError, [None, "sphere", Sphere]),
        "points": (TypeError, [None, "x", 3.0, torch.ones(4, 3).long()]),
        "weights": (TypeError, [None, "x", 1.0, torch.ones(4).long()]),
    }
    values = {
        "points": [points[0], points[:0], points * NAN],
        "weights": [
            -weights,
            0 * weights,
            weights * NAN,
            weights[:3],
            weights[0],
            torch.tensor([1.0, 1, 1, -1e-9], **DOUBLE),
        ],
    }
    for kind, mean in means.items():
        mean()
        for table in (bad, {name: (ValueError, found) for name, found in values.items()}):
            for name, (error, given) in table.items():
                for value in given:
                    with pytest.raises(error, match=f"^{name}: "):
                        mean(**{name: value})
        if kind != "ambient":
            with pytest.raises(TypeError, match="^x: "):
                mean(x=None)
            with pytest.raises(ValueError, match="^points: "):
                mean(x=torch.ones(4, **DOUBLE) / 2)
    for value in (-1.0, NAN, INF):
        with pytest.raises(ValueError, match="^tolerance: "):
            means["frechet"](tolerance=value)
    with pytest.raises(TypeError, match="^iterations: "):
        means["frechet"](iterations=2.5)
    with pytest.raises(ValueError, match="^iterations: "):
        means["frechet"](iterations=-1)


def test_the_common_base_promises_and_does_not_pretend():
    m, x = Manifold(), torch.ones(3, **DOUBLE)
    for call in (
        lambda: m.exp(x, x),
        lambda: m.log(x, x),
        lambda: m.dist(x, x),
        lambda: m.dimension(x),
        lambda: m.origin(3),
    ):
        with pytest.raises(NotImplementedError):
            call()

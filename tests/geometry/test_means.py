"""Tangent, Frechet and ambient means."""

import math

import pytest
import torch

from fedbook.geometry import SPD, Hyperboloid, Sphere, ambient_mean, frechet_mean, tangent_mean
from fedbook.randomness import normal, stream


def near(place, count: int = 5, radius: float = 0.6, batch: tuple[int, ...] = ()):
    """A base point, points within ``radius`` of it, and weights."""
    m, x = place.manifold, place.points(0, (*batch, 1))
    u = place.tangents(x.expand(*batch, count, *x.shape[len(batch) + 1 :]), 1)
    u = place.times(radius / (1 + m.norm(x, u)), u)
    weights = normal((*batch, count), stream(2, "weights")).abs() + 0.1
    return x.squeeze(len(batch)), m.exp(x, u), weights


def test_the_tangent_mean_is_the_mean_of_logarithms_taken_back(place, close):
    m = place.manifold
    x, points, weights = near(place)
    u = sum(w * m.log(x, p) for w, p in zip(weights / weights.sum(), points, strict=True))
    close(tangent_mean(m, x, points, weights), m.exp(x, u))


@pytest.mark.parametrize("mean", [
    lambda m, x, p, w: tangent_mean(m, x, p, w),
    lambda m, x, p, w: frechet_mean(m, x, p, w)[0],
    lambda m, x, p, w: ambient_mean(m, p, w),
], ids=["tangent", "frechet", "ambient"])  # fmt: skip
def test_means_honour_weights_and_forget_the_order(place, close, mean):
    m = place.manifold
    x, points, weights = near(place)
    found = mean(m, x, points, weights)
    assert m.check_point(found) == (True, None)
    order = torch.tensor([3, 0, 4, 1, 2])
    close(mean(m, x, points[order], weights[order]), found)
    close(mean(m, x, points, 7 * weights), found)
    doubled = torch.cat([points, points[:1]])  # a weight of two is the point twice
    close(
        mean(m, x, doubled, torch.cat([weights, weights[:1]])),
        mean(m, x, points, weights * torch.tensor([2.0, 1, 1, 1, 1])),
    )
    nothing = torch.cat([weights[:2], torch.zeros(3, dtype=torch.float64)])
    close(mean(m, x, points, nothing), mean(m, x, points[:2], weights[:2]))
    assert m.dist(found, mean(m, x, points, weights.flip(0))) > 1e-4
    close(mean(m, x, points[:1], weights[:1]), points[0])


def test_means_over_batches_are_the_means_one_by_one(place, close):
    m = place.manifold
    x, points, weights = near(place, batch=(3,))
    tangent, ambient = tangent_mean(m, x, points, weights), ambient_mean(m, points, weights)
    frechet, size = frechet_mean(m, x, points, weights)
    assert tangent.shape == ambient.shape == frechet.shape == x.shape and size.shape == (3,)
    for i in range(3):
        close(tangent[i], tangent_mean(m, x[i], points[i], weights[i]), 1e-12)
        close(ambient[i], ambient_mean(m, points[i], weights[i]), 1e-12)
        close(frechet[i], frechet_mean(m, x[i], points[i], weights[i])[0], 1e-11)


def test_the_frechet_mean_minimises_the_mean_squared_distance(place):
    m = place.manifold
    x, points, weights = near(place)
    mean, size = frechet_mean(m, x, points, weights)
    assert float(size) < 1e-12
    share = weights / weights.sum()

    def cost(z):
        return float((share * m.squared_dist(z, points)).sum())

    least = cost(mean)
    for seed in range(10):
        step = place.tangents(mean, 100 + seed, 1e-3)
        assert cost(m.exp(mean, step)) > least
    assert cost(tangent_mean(m, x, points, weights)) < cost(x)


@pytest.mark.parametrize("m", [SPD(), Hyperboloid(), Sphere()])
def test_along_one_geodesic_through_the_base_one_step_is_enough(m, close):
    """PriRFed, section 3: there, for one point, and in flat space the server's rule is the Frechet mean."""
    x = m.random_point(3, stream(0, "x"))
    u = m.log(x, m.random_point(3, stream(1, "y")))
    times = torch.tensor([-0.3, 0.2, 0.9], dtype=torch.float64)
    points = m.exp(x, times.reshape(3, *[1] * m.point_ndim) * u)
    weights = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    close(tangent_mean(m, x, points, weights), m.exp(x, (weights @ times / 6) * u))
    close(frechet_mean(m, x, points, weights)[0], m.exp(x, (weights @ times / 6) * u))


def test_the_spd_mean_of_two_is_their_geometric_mean(close):
    """X (X^-1 Y)^(1/2), here for commuting matrices and by its equation G X^-1 G = Y."""
    m, rng = SPD(), stream(0, "pair")
    for n in (2, 3):
        x, y = m.random_point(n, rng), m.random_point(n, rng)
        mean, _ = frechet_mean(m, x, torch.stack([x, y]), torch.ones(2, dtype=torch.float64))
        close(mean @ torch.linalg.inv(x) @ mean, y)
        assert float(m.dist(ambient_mean(m, torch.stack([x, y]), torch.ones(2).double()), mean)) > 1e-3


@pytest.mark.parametrize("radius", [2.0, 6.0])
def test_unit_steps_overshoot_on_the_hyperboloid_and_damped_ones_do_not(radius):
    """Points at distance 6 all around: the Hessian of the cost is up to 6 coth(6), so a unit step goes far beyond."""
    m, k = Hyperboloid(), 7
    angles = torch.arange(k, dtype=torch.float64) * (2 * math.pi / k)
    u = radius * torch.stack([torch.zeros(k).double(), angles.cos(), angles.sin()], -1)
    points, weights = m.exp(m.origin(3), u), torch.ones(k, dtype=torch.float64)
    start = m.exp(m.origin(3), torch.tensor([0.0, 1.0, 0.5], dtype=torch.float64))
    mean, size = frechet_mean(m, start, points, weights, tolerance=1e-9)
    assert float(size) <= 1e-9 and float(m.dist(mean, m.origin(3))) < 1e-8
    x = start
    for _ in range(50):
        x = tangent_mean(m, x, points, weights)
    assert (float(m.dist(x, m.origin(3))) > 0.1) == (radius == 6.0)


@pytest.mark.parametrize("seed", [16, 23, 26])
def test_on_the_sphere_the_gradient_may_grow_on_the_way(seed):
    """Points all around: the unit step always descends, but past a hill the gradient is longer than before it."""
    m = Sphere()
    points, weights = m.random_point(3, stream(seed, "p"), (5,)), torch.ones(5, dtype=torch.float64)
    mean, size = frechet_mean(m, points[0], points, weights)
    assert float(size) <= 1e-12 and m.squared_dist(mean, points).sum() < m.squared_dist(points[0], points).sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_on_the_sphere_it_ends_where_rounding_does(dtype):
    m, turns = Sphere(), []

    class Counted(Sphere):
        def exp(self, x, v):
            turns.append(1)
            return super().exp(x, v)

    centre = m.random_point(20, stream(0, "centre"))
    near = m.exp(centre.expand(30, 20), 0.5 * m.project(centre, normal((30, 20), stream(0, "near")) / 4.5))
    points, weights = near.to(dtype), torch.ones(30, dtype=dtype)
    mean, _ = frechet_mean(Counted(), points[0], points, weights)
    exact, _ = frechet_mean(m, near[0], near, weights.double())
    assert len(turns) < 50 and float((mean.double() - exact).norm()) < 16 * torch.finfo(dtype).eps + 1e-11


def test_it_stops_where_told_and_says_how_far_it_came():
    m = SPD()
    points = m.random_point(3, stream(0, "points"), (4,))
    weights = torch.ones(4, dtype=torch.float64)
    same, size = frechet_mean(m, points[0], points, weights, iterations=0)
    assert torch.equal(same, points[0]) and float(size) > 0.1
    _, coarse = frechet_mean(m, points[0], points, weights, tolerance=1e-2)
    _, fine = frechet_mean(m, points[0], points, weights)
    assert 1e-12 < float(coarse) <= 1e-2 and float(fine) <= 1e-12
    _, floor = frechet_mean(m, points[0], points, weights, tolerance=0.0, iterations=300)  # rounding ends it
    assert float(floor) < 1e-13


def test_ambient_means_by_hand(close):
    one = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    weights = torch.tensor([3.0, 4.0], dtype=torch.float64)
    close(ambient_mean(Sphere(), one, weights), torch.tensor([0.6, 0.8], dtype=torch.float64), 1e-15)
    with pytest.raises(ValueError, match="points"):
        ambient_mean(Sphere(), torch.stack([one[0], -one[0]]), torch.ones(2, dtype=torch.float64))
    m = Hyperboloid()
    u = torch.tensor([0.0, 1.3], dtype=torch.float64)
    pair = torch.stack([m.exp(m.origin(2), u), m.exp(m.origin(2), -u)])
    close(ambient_mean(m, pair, torch.ones(2, dtype=torch.float64)), m.origin(2), 1e-15)
    matrices = torch.stack([torch.eye(2).double(), 3 * torch.eye(2).double()])
    close(ambient_mean(SPD(), matrices, torch.tensor([1.0, 3.0]).double()), 2.5 * torch.eye(2).double(), 1e-15)

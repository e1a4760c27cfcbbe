"""Chapter 3's mathematics against other ways to the same numbers: enumeration, closed forms, autograd, simulation."""

import math
from itertools import product

import pytest
import torch

from fedbook.geometry import SPD, Euclidean, Hyperboloid, Sphere, frechet_mean, tangent_mean
from fedbook.lab import chapter03_descent as descent
from fedbook.lab import chapter03_local as local
from fedbook.lab import chapter03_simulation as simulation
from fedbook.lab import chapter03_theory as theory
from fedbook.randomness import normal, stream

MANIFOLDS = {"sphere": (Sphere(), 5), "spd": (SPD(), 3), "hyperboloid": (Hyperboloid(), 4)}
EACH = pytest.mark.parametrize("manifold, size", MANIFOLDS.values(), ids=MANIFOLDS)
H, FLAT = Hyperboloid(), Euclidean()


def draw(*shape, seed=0, purpose="test"):
    return normal(shape, stream(seed, purpose))


def point(manifold, size, seed=0):
    return manifold.random_point(size, stream(seed, "point"))


def tangent(manifold, x, count, seed=0):
    return manifold.tangent_gaussian(x, draw(count, manifold.noise_size(x), seed=seed, purpose="tangent"))


def hyperbolic(distance, angle=0.0):
    v = distance * torch.tensor([0.0, math.cos(angle), math.sin(angle)], dtype=torch.float64)
    return H.exp(H.origin(3), v)


# --- noise


@pytest.mark.parametrize("d", [1, 2, 3, 10])
def test_normaliser_three_ways(d):
    found, right, printed = theory.normaliser(d, 0.7)
    assert found == pytest.approx(right, rel=1e-8)
    at_zero = torch.distributions.MultivariateNormal(torch.zeros(d).double(), 0.49 * torch.eye(d).double())
    assert math.exp(-float(at_zero.log_prob(torch.zeros(d).double()))) == pytest.approx(right, rel=1e-12)
    assert printed == pytest.approx((2 * math.pi) ** (-d / 2) / 0.7) and abs(printed / right - 1) > 0.1


@EACH
def test_the_privacy_loss_depends_on_one_number(manifold, size):
    x = point(manifold, size)
    first, second = tangent(manifold, x, 2)
    found = theory.privacy_loss(manifold, x, first, second, 3.0, 100_000, 0)
    assert found.mu_square == pytest.approx(float(manifold.norm(x, first - second)) ** 2 / 9)
    assert abs(found.mean - found.mu_square / 2) < 4 * found.mean_error
    assert abs(found.variance - found.mu_square) < 4 * found.variance_error < 0.1 * found.mu_square
    p, q = theory.in_basis(manifold, x, torch.stack([first, second]))  # the same loss from densities on R^d
    y = p + 3.0 * draw(100_000, len(p))
    worlds = [torch.distributions.MultivariateNormal(m, 9 * torch.eye(len(p)).double()).log_prob(y) for m in (p, q)]
    flat = worlds[0] - worlds[1]
    assert abs(float(flat.mean()) - found.mean) < 5 * found.mean_error
    assert abs(float(flat.var()) - found.variance) < 5 * found.variance_error


# --- rounds, means, gradients


@EACH
def test_gradient_of_half_the_squared_distance_is_minus_log(manifold, size):
    x, others = point(manifold, size), manifold.random_point(size, stream(3, "others"), (4,))
    for y in others:
        found = theory.gradient(manifold, lambda p, y=y: 0.5 * manifold.squared_dist(p, y), x)
        assert torch.allclose(found, -manifold.log(x, y), atol=1e-8)
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)

    def objective(p):
        axis = -1 - manifold.point_ndim
        return 0.5 * (weights / 10 * manifold.squared_dist(p.unsqueeze(axis), others)).sum(-1)

    slope = theory.gradient(manifold, objective, x)
    step = manifold.exp(x, -slope)  # one unit step on (3.1)
    assert torch.allclose(tangent_mean(manifold, x, others, weights), step, atol=1e-8)
    best, _ = frechet_mean(manifold, x, others, weights)
    assert float(manifold.norm(best, theory.gradient(manifold, objective, best))) < 1e-8
    assert float(manifold.dist(step, best)) > 1e-3  # the tangent mean is another point


def test_hessian_of_the_squared_distance():
    for r in (0.5, 1.0, 2.0, 4.0):
        y = hyperbolic(r)
        found = torch.linalg.eigvalsh(theory.hessian(H, lambda p, y=y: H.squared_dist(p, y), H.origin(3)))
        assert found.tolist() == pytest.approx([2.0, 2 * r / math.tanh(r)], abs=1e-6)
    x = point(Sphere(), 4)
    y = Sphere().exp(x, 1.2 * Sphere().basis(x)[0])
    found = torch.linalg.eigvalsh(theory.hessian(Sphere(), lambda p: Sphere().squared_dist(p, y), x))
    assert found.tolist() == pytest.approx([2.4 / math.tan(1.2)] * 2 + [2.0], abs=1e-6)
    a = draw(3, 3)
    flat = theory.hessian(FLAT, lambda p: ((p @ a) ** 2).sum(-1), draw(3))
    assert torch.allclose(flat, 2 * a @ a.mT, atol=1e-7)


# --- variance reduction, eigenvectors


@EACH
def test_variance_reduced_directions_are_unbiased(manifold, size):
    anchor = point(manifold, size)
    x = manifold.exp(anchor, 0.5 * tangent(manifold, anchor, 1)[0])
    here, there = tangent(manifold, x, 9, 1), tangent(manifold, anchor, 9, 2)
    directions = theory.variance_reduced(manifold, x, anchor, here, there, (1.5, 1.5))
    assert torch.allclose(directions.mean(0), theory.clipped(manifold, x, here, 1.5).mean(0), atol=1e-12)
    biased = theory.variance_reduced(manifold, x, anchor, here, there, (0.5, 1.5)).mean(0)
    assert not torch.allclose(biased, theory.clipped(manifold, x, here, 1.5).mean(0), atol=1e-3)
    at_anchor = theory.variance_reduced(manifold, anchor, anchor, there, there, (1.5, 1.5))
    full = theory.clipped(manifold, anchor, there, 1.5).mean(0)
    assert torch.allclose(at_anchor, full.expand_as(at_anchor), atol=1e-12)  # m = 1: the full batch
    assert manifold.check_tangent(x, directions)[0]


# --- curvature


def test_lemma_a2_on_twenty_thousand_hyperbolic_triangles():
    x, y, z = (H.random_point(3, stream(i, "corners"), (20_000,)) for i in range(3))
    sides = descent.triangle(H, x, y, z)
    assert float((sides.left - sides.right).max()) <= 1e-9
    assert float((sides.left / sides.right).max()) > 0.99  # and it is nearly reached
    flat = descent.triangle(H, x, y, z, torch.tensor(1.0))
    assert float((flat.left > flat.right).double().mean()) > 0.9  # the flat law does not hold
    zeta = torch.tensor(descent.curvature_constant(float(H.dist(x, z).max())))
    assert bool((sides.left <= descent.triangle(H, x, y, z, zeta).right + 1e-9).all())
    gradient = H.tangent_gaussian(x, draw(20_000, 2))
    new = H.exp(x, -0.3 * gradient)  # Lemma A.1, with the printed form's arrangement
    reach = H.dist(x, z)
    bound = (reach**2 - H.squared_dist(new, z)) / 0.6
    bound = bound + reach / reach.tanh() * 0.3 / 2 * H.norm(x, gradient).square()
    assert float((H.inner(x, -gradient, H.log(x, z)) - bound).max()) <= 1e-9


# --- one step a round

PROBLEM = simulation.hyperbolic_mean()


@pytest.mark.parametrize("size", [1, 3, 6])
def test_cohort_moment_by_enumeration(size):
    slopes = draw(6, 4)
    found, printed, split = descent.cohort_moment(slopes, size)
    assert found == pytest.approx(printed, abs=1e-14) and found == pytest.approx(split, abs=1e-14)
    if size == 6:
        assert found == pytest.approx(float(slopes.mean(0).square().sum()), abs=1e-14)
    if size == 1:
        assert found == pytest.approx(float(slopes.square().sum(1).mean()), abs=1e-14)


def test_theorem_5_4_is_its_recursion():
    common = dict(gap=0.7, rounds=25, lr=0.1, smoothness=5.0, pl=2.0)
    bound = descent.theorem_5_4(**common, dimension=3, variance=0.2, cohort=2, agents=8, divergence=0.4)
    rounds = descent.recursion_5_4(**common, noise=3 * 0.2 / 2, divergence=0.4 * 6 / (2 * 7))
    assert bound == pytest.approx(rounds, rel=1e-12)
    printed = descent.theorem_5_4(**common, dimension=3, variance=0.2, cohort=2, agents=8, divergence=0.4, printed=True)
    assert printed > bound and printed == pytest.approx(
        descent.recursion_5_4(**common, noise=0.3, divergence=3 * 0.4 * 6 / 14)
    )
    everybody = dict(dimension=3, variance=0.2, cohort=8, agents=8, divergence=0.4)
    assert descent.theorem_5_4(**common, **everybody) == descent.theorem_5_4(**common, **everybody, printed=True)
    shrink = 1 - 2 * 2.0 * 0.1 + 2.0 * 0.01 * 5.0
    geometric = math.fsum(shrink**t for t in range(25))
    assert geometric == pytest.approx((1 - shrink**25) / (2.0 * 0.1 * (2 - 5.0 * 0.1)), rel=1e-13)


# --- several local steps


def test_recursion_of_theorem_5_5():
    lr, beta, steps, size, zeta = 0.05, 3.0, 6, 2.0, 1.7
    found = local.recursion_5_5(lr, beta, steps, size, zeta)
    assert found.c.tolist() == pytest.approx([(1 + lr * beta) ** (steps - k) for k in range(steps + 1)])
    assert found.delta.tolist() == pytest.approx([lr - found.c[k + 1] * lr / beta for k in range(steps)])
    least = lr * (1 - (1 + lr * beta) ** (steps - 1) / beta)
    assert found.delta.min() == pytest.approx(least) == pytest.approx(found.delta[0])
    c1 = (1 + lr * beta) ** (steps - 1)
    q0 = lr * beta * (size + 2 * c1 * zeta) / (2 * (beta - c1))
    assert found.q.max() == pytest.approx(q0) == pytest.approx(found.q[0])
    bound = local.theorem_5_5(0.7, 10, steps, lr, beta, size, 3.0, 0.5, zeta)
    assert bound == pytest.approx(0.7 / (steps * 10 * least) + q0 * (9 + 0.5))
    largest = (beta ** (1 / (steps - 1)) - 1) / beta
    assert local.recursion_5_5(0.999 * largest, beta, steps, size).delta.min() > 0


@pytest.mark.parametrize("agents", [1, 2, 16, 100, 1000])
@pytest.mark.parametrize("zeta", [1.0, 2.0, 4.0])
def test_recursion_of_theorem_5_6(agents, zeta):
    size = 3.0
    found = local.recursion_b1(agents, size, zeta)
    assert found.inner == 10 * agents // 3 and found.c[-1] == 0 and len(found.delta) == found.inner
    beta = size * math.sqrt(zeta) / agents ** (1 / 3)
    theta = beta * found.lr + 2 * zeta * size**2 * found.lr**2
    closed = size**3 * found.lr**2 * math.expm1(found.inner * math.log1p(theta)) / theta
    assert found.c[0] == pytest.approx(closed, rel=1e-11)
    assert found.c[0] <= 0.1 * size * math.expm1(1) / (agents ** (1 / 3) * zeta)  # the proof's bound, with room
    assert 0.085 < found.nu < 0.1
    assert found.nu == pytest.approx(float(local.recursion_b1(agents, 1.0, zeta).nu), rel=1e-10)
    if agents >= 16:
        assert found.nu > 0.094
        ratio = local.theorem_5_6(0.0, 5, 2, agents, size, 1.0, zeta, False) / local.theorem_5_6(
            0, 5, 2, agents, size, 1, zeta
        )
        assert 3.7 < ratio < 4.8
        start = [local.theorem_5_6(1.0, 5, 2, agents, size, 0.0, zeta, printed) for printed in (False, True)]
        assert start[0] / start[1] == pytest.approx(0.3 / found.nu, rel=1e-12)  # 10.1 to 10.6 N / m against 3.33


def by_enumeration(centres, lr, steps, rounds, start):
    """E |f'|^2 over every sequence of agents, step by step."""
    total, middle = 0.0, sum(centres) / len(centres)
    for agents in product(centres, repeat=rounds):
        x = start
        for a in agents:
            for _ in range(steps):
                total += (x - middle) ** 2
                x -= lr * (x - a)
    return total / (steps * rounds * len(centres) ** rounds)


def test_agents_on_a_line_by_enumeration_and_simulation():
    centres = [-1.0, 2.0, 0.5]
    found = local.line_gradient(torch.tensor(centres).double(), 0.2, 3, 4, 1.5)
    assert found == pytest.approx(by_enumeration(centres, 0.2, 3, 4, 1.5), rel=1e-12)
    for literal in (False, True):
        for std in (0.0, 1.0):
            setting = (torch.tensor(centres).double(), 0.15, 5, 30, 1.5, std, literal)
            mean, error = local.line_by_simulation(*setting, repetitions=4000)
            assert abs(mean - local.line_gradient(*setting)) < 4 * error < 0.1 * mean


# --- measurements


def test_a_simulated_round_is_a_noisy_central_step():
    found = simulation.simulate(PROBLEM, 0.0, 3, 2)
    x = H.exp(PROBLEM.best, 0.85 * H.basis(PROBLEM.best)[0])
    for t in range(4):
        slope = PROBLEM.slopes(x).mean(0)
        assert float(found.gap[1, t]) == pytest.approx(float(PROBLEM.value(x) - PROBLEM.value(PROBLEM.best)), abs=1e-10)
        assert float(found.square[0, t]) == pytest.approx(float(H.norm(x, slope)) ** 2, abs=1e-10)
        x = H.exp(x, -0.5 / PROBLEM.smoothness * slope)
    noisy = simulation.simulate(PROBLEM, 0.5, 1, 4000)
    slope = PROBLEM.slopes(H.exp(PROBLEM.best, 0.85 * H.basis(PROBLEM.best)[0])).mean(0)
    step = 0.5 / PROBLEM.smoothness
    start = H.exp(PROBLEM.best, 0.85 * H.basis(PROBLEM.best)[0])
    v = -step * (slope + 0.5 / math.sqrt(10) * H.tangent_gaussian(start, draw(4000, 2)))
    again = PROBLEM.value(H.exp(start, v)) - PROBLEM.value(PROBLEM.best)
    both = [noisy.gap[:, 1], again]  # the same law, other random numbers
    error = math.sqrt(sum(float(b.var()) / 4000 for b in both))
    assert abs(float(both[0].mean() - both[1].mean())) < 4 * error
    assert float(both[0].std() / both[1].std()) == pytest.approx(1.0, abs=0.1)


def test_noise_floor_exactly_on_a_quadratic():
    h, lr, variance = torch.tensor([0.5, 2.0, 3.0], dtype=torch.float64), 0.3, 0.7
    second = torch.zeros(3, dtype=torch.float64)
    for _ in range(400):
        second = (1 - lr * h) ** 2 * second + lr**2 * variance
    assert descent.noise_floor(lr, h, variance) == pytest.approx(float((h * second).sum() / 2), rel=1e-10)

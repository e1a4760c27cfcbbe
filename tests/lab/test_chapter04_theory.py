"""Chapter 4's mathematics against brute force: enumeration, quadrature, finite differences, simulation, other code."""

import math
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbook.lab import chapter04_descent as descent
from fedbook.lab import chapter04_renyi as renyi
from fedbook.lab import chapter04_sam as sam
from fedbook.lab import chapter04_theory as theory
from fedbook.randomness import normal, stream

SETTINGS = settings(derandomize=True, deadline=None, max_examples=60)


def draw(*shape, seed=0, purpose="test"):
    return normal(shape, stream(seed, purpose))


# --- clipping


@SETTINGS
@given(st.integers(0, 10**6), st.floats(0.01, 10))
def test_clipping_is_the_projection_on_the_ball(seed, bound):
    x, y = 3 * draw(2, 5, seed=seed)
    a, b = (theory.clip_factors(v[None], bound)[0] * v for v in (x, y))
    assert (a - b).norm() <= (x - y).norm() + 1e-12
    inside = y * min(1.0, bound / float(y.norm()))
    assert (x - a).norm() <= (x - inside).norm() + 1e-12  # no point of the ball is nearer than a


COHORT = {"a": draw(4, 2, 3, purpose="a"), "b": draw(4, 5, purpose="b"), "c": draw(4, 1, purpose="c")}


def test_sensitivity_by_attack():
    sizes = torch.tensor([3, 5, 1, 9])
    one = theory.attack(theory.clipped_sum, COHORT, sizes, seed=0)
    assert one == pytest.approx(1.0, abs=1e-12)
    assert theory.attack(theory.clipped_sum, COHORT, sizes, replace=True, seed=0) == pytest.approx(2.0, abs=1e-12)
    assert theory.attack(theory.per_tensor_sum, COHORT, sizes, seed=0) == pytest.approx(math.sqrt(3), abs=1e-12)
    weighted = [theory.attack(theory.size_weighted_sum, {"a": draw(m, 4)}, torch.ones(m), seed=0) for m in (4, 16, 64)]
    assert weighted[0] > 3 and weighted[1] > 3 * weighted[0] and weighted[2] > 3 * weighted[1]  # grows with the cohort


# --- sharpness-aware steps


def quadratic(seed=0, size=5):
    a = draw(size, size, seed=seed)
    a = a + a.mT
    return a, lambda x: 0.5 * x @ a @ x


@pytest.mark.parametrize("seed", range(5))
def test_sam_on_quadratics_is_the_penalised_gradient_exactly(seed):
    a, loss = quadratic(seed)
    theta, q = draw(5, seed=seed, purpose="theta"), 0.3
    g, p, perturbed = sam.sam_step(loss, theta, q)
    unit = a @ theta / (a @ theta).norm()
    assert torch.allclose(g, a @ theta, atol=1e-13) and torch.allclose(p, q * unit, atol=1e-14)
    assert torch.allclose(perturbed, a @ theta + q * a @ unit, atol=1e-12)
    assert torch.allclose(perturbed, sam.penalised_gradient(loss, theta, q), atol=1e-12)
    rise = loss(theta + p) - loss(theta)
    assert float(rise) == pytest.approx(float(q * g.norm() + q * q / 2 * unit @ a @ unit), abs=1e-12)


def bumpy(x):
    return (x[0] * x[1]).sin() + 0.3 * x.pow(4).sum() + (x[2] - x[0]).exp()


def test_penalty_resembles_sam_to_second_order():
    theta, radii = torch.tensor([0.4, -0.7, 1.1], dtype=torch.float64), [0.04, 0.02, 0.01, 0.005]
    gaps = [(sam.sam_step(bumpy, theta, q)[2] - sam.penalised_gradient(bumpy, theta, q)).norm() for q in radii]
    assert sam.loglog_slope(radii, gaps) == pytest.approx(2.0, abs=0.1)
    assert sam.loglog_slope([1.0, 2.0, 4.0], [3.0, 24.0, 192.0]) == pytest.approx(3.0, abs=1e-12)


# --- noise and flatness


WELLS = sam.Wells()


@pytest.mark.parametrize("std", [0.0, 0.05, 0.3])
def test_smoothed_wells_by_quadrature_and_their_gradient_by_autograd(std):
    at = torch.linspace(-1.0, 2.0, 13, dtype=torch.float64)
    z = torch.linspace(-12, 12, 40_001, dtype=torch.float64)
    weight = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    smoothed = torch.stack([torch.trapezoid(weight * WELLS.value(x + std * z), z) for x in at])
    assert torch.allclose(WELLS.value(at, std), smoothed, atol=1e-10)
    leaf = at.clone().requires_grad_()
    (slope,) = torch.autograd.grad(WELLS.value(leaf, std).sum(), leaf)
    assert torch.allclose(WELLS.gradient(at, std), slope, atol=1e-12)


# --- Renyi divergences


REFERENCE = {
    (0.05, 1.0, 2): 0.00428650437042, (0.05, 1.0, 8): 0.601268913989, (0.05, 2.0, 8): 0.0031215266423,
    (0.05, 2.0, 32): 0.916369609562, (0.01, 1.0, 8): 0.000893643907606, (0.5, 1.5, 3): 0.22204387842,
}  # fmt: skip


@pytest.mark.parametrize(("key", "value"), REFERENCE.items())
def test_sampled_divergence_three_ways(key, value):
    rate, z, order = key
    assert renyi.sampled_by_quadrature(order, z, rate) == pytest.approx(value, rel=1e-9)
    terms = renyi.sampled_terms(order, z, rate)
    assert len(terms) == order + 1
    assert math.log(float(terms.sum())) / (order - 1) == pytest.approx(value, rel=1e-9)
    from opacus.accountants.analysis.rdp import compute_rdp

    other = compute_rdp(q=rate, noise_multiplier=z, steps=1, orders=[order])[0]
    assert other == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize(("order", "z", "rate"), [(2, 1.5, 0.3), (3, 2.0, 0.5), (2.5, 2.0, 0.2)])
def test_sampled_moment_by_simulation(order, z, rate):
    mean, error = renyi.sampled_by_simulation(order, z, rate, 400_000, 1)
    exact = math.exp((order - 1) * renyi.sampled_by_quadrature(order, z, rate))
    assert 0 < error < 0.01 and abs(mean - exact) < 4 * error


@pytest.mark.parametrize(
    ("epsilon", "z", "rate"), [(0.0, 1.0, 0.3), (0.5, 1.0, 0.1), (1.0, 0.4, 0.05), (2.0, 2.0, 0.9)]
)
def test_exact_delta_of_one_sampled_release_by_quadrature(epsilon, z, rate):
    x = torch.linspace(-12 * z, 1 + 12 * z, 400_001, dtype=torch.float64)
    q, one = renyi.log_normal(0.0, z)(x).exp(), renyi.log_normal(1.0, z)(x).exp()
    p = (1 - rate) * q + rate * one
    removed, added = (torch.trapezoid((a - math.exp(epsilon) * b).clamp(min=0), x) for a, b in ((p, q), (q, p)))
    assert renyi.sampled_delta(epsilon, z, rate) == pytest.approx(float(removed), abs=1e-8)
    assert float(added) <= float(removed) + 1e-8


def cohorts_density(updates, size, z):
    """The log density of the noised sum of a cohort of fixed size, every cohort equally likely."""
    sums = torch.tensor([sum(c) for c in combinations(updates, size)], dtype=torch.float64)
    return lambda x: torch.logsumexp(
        -0.5 * ((x[:, None] - sums) / z) ** 2 - math.log(len(sums) * z * math.sqrt(2 * math.pi)), 1
    )


@pytest.mark.parametrize("order", [2, 3, 6])
@pytest.mark.parametrize("z", [0.7, 2.0])
def test_replacing_one_client_of_a_fixed_cohort_costs_at_most_the_bound(order, z):
    """Real federations of four clients with updates in [-1, 1], cohorts of two; the multiplier is z / 2."""
    bound = renyi.replaced_rdp(order, z / 2, 0.5)
    first = renyi.sampled_by_quadrature(order, z / 2, 0.5)
    assert first < bound < 2 * first
    others = [(-1.0, -1.0, -1.0), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), *draw(4, 3, seed=9).clamp(-1, 1).tolist()]
    found = []
    for rest in others:
        for mine, new in ((1.0, -1.0), (-1.0, 1.0), (1.0, 0.0)):
            p, q = (cohorts_density((who, *rest), 2, z) for who in (mine, new))
            found.append(renyi.divergence_by_quadrature(order, p, q, -30 - 2 * order, 30 + 2 * order))
    assert 0.5 * first < max(found) <= bound


def test_simulated_losses_give_the_exact_epsilon():
    import dp_accounting
    from dp_accounting import pld

    event = dp_accounting.PoissonSampledDpEvent(0.2, dp_accounting.GaussianDpEvent(1.5))
    account = pld.PLDAccountant().compose(event, 20)
    losses = renyi.sampled_losses(1.5, 0.2, 20, 400_000, 0)
    for delta in (1e-2, 1e-3):
        assert renyi.epsilon_of_losses(losses, delta) == pytest.approx(account.get_epsilon(delta), rel=0.03)
    assert renyi.epsilon_of_losses(torch.full((10,), -1.0), 0.1) == 0.0


# --- convergence


def test_both_sides_of_the_lemma_against_plain_code():
    lr, q, bound, sigma = 0.4, 0.3, 0.6, 1.5
    problem = descent.random_quadratics(4, 3, 2, 7)
    found = descent.one_round(problem, lr, q, bound, sigma)
    for f in range(4):
        a, b, x = problem.curvature[f], problem.centre[f], problem.at[f]
        losses = [lambda y, a=a[k], b=b[k]: 0.5 * (y - b) @ a @ (y - b) for k in range(3)]
        mean = lambda y, losses=losses: sum(loss(y) for loss in losses) / 3  # noqa: E731
        updates = torch.stack([-lr * sam.sam_step(loss, x, q)[2] for loss in losses])
        bias = theory.clipping_bias(updates, bound)
        change = sam.expected_under_noise(mean, x + bias.clipped, sigma * bound / 3, 3) - float(mean(x))
        assert float(found.change[f]) == pytest.approx(change, abs=1e-10)
        steep = torch.func.grad(mean)(x).norm()
        smooth = max(float(torch.linalg.eigvalsh(c).abs().max()) for c in a)
        assert float(problem.smoothness()[f]) == pytest.approx(smooth)
        alpha = bias.factors
        spread = (alpha - alpha.mean()).abs().mean()
        expected = {
            "gradient": -lr * alpha.mean() / 2 * steep**2, "sam": lr * alpha.mean() / 2 * smooth**2 * q**2,
            "clipping": lr * spread * updates.norm(dim=1).max() / lr * steep,
            "step": smooth / 2 * bias.clipped.square().sum(), "noise": smooth / 2 * (sigma * bound / 3) ** 2 * 2,
        }  # fmt: skip
        for name, value in expected.items():
            assert float(found.terms[name][f]) == pytest.approx(float(value), rel=1e-10, abs=1e-14), name


@pytest.mark.parametrize("beta", [0.0, 0.3, 0.9])
def test_momentum_weights_against_pytorch(beta):
    gradients = draw(6, 4)
    x = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([x], lr=0.1, momentum=beta)
    for g in gradients:
        x.grad = g.clone()
        optimiser.step()
    weights = descent.momentum_weights(beta, 6)
    assert torch.allclose(-0.1 * weights @ gradients, x.detach(), atol=1e-15)
    same = torch.ones(6, 1, dtype=torch.float64) * 2.5  # all gradients alike and of the largest norm: attained
    assert descent.longest_update(0.1, 6, 2.5, beta) == pytest.approx(0.1 * float((weights @ same).norm()))
    assert (0.1 * weights @ gradients).norm() <= descent.longest_update(
        0.1, 6, float(gradients.norm(dim=1).max()), beta
    )
    assert beta or descent.longest_update(0.1, 6, 2.5) == pytest.approx(0.1 * 6 * 2.5)

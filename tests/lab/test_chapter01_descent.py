"""Chapter 1's descents on digits against a plain loop over clients, and its floors and limits against measurements."""

import math

import pytest
import torch

from fedbook.lab import chapter01_descent as descent
from fedbook.lab import chapter01_floor as floor
from fedbook.learning.evaluation import effective_rank
from fedbook.papers.fedsc.spectral import bank_objective, correlation, spectral_loss
from fedbook.randomness import normal, stream


@pytest.fixture(scope="module", autouse=True)
def trained_once():
    global PROBLEM, WARM, SMALL  # not while tests are collected
    PROBLEM = descent.digits_problem(20)
    WARM = descent.run(PROBLEM, 60, 0.005).theta
    SMALL = descent.digits_problem(8)


OWNER = torch.arange(10).repeat_interleave(20)


def exact(theta):
    return bank_objective(PROBLEM.embed(theta).flatten(0, 1), OWNER, 10)


def slope_of(theta):
    theta = theta.clone().requires_grad_()
    return torch.autograd.grad(exact(theta).loss, theta)[0]


def plain(rounds, lr, alpha, local_steps, sigma=0.0, batch=None, cohort=10, views=None, seed=0):
    """Algorithms 1 and 2, one client after the other, with the package's loss; the same streams as the fast run."""
    theta, uploads = PROBLEM.start, None
    for t in range(rounds):
        rng = stream(seed, "theory round", t)
        z = PROBLEM.embed(theta)
        if views is not None:
            z = PROBLEM.embed(theta, descent.draw_views(PROBLEM.images, None, views, rng))
        fresh = [correlation(z[j]) for j in range(10)]
        if sigma:
            fresh = [r + sigma * n for r, n in zip(fresh, normal((10, 16, 16), rng), strict=True)]
        active = sorted(rng.permutation(10)[:cohort].tolist())
        uploads = fresh if uploads is None else [fresh[j] if j in active else uploads[j] for j in range(10)]
        draws = [descent.draw_views(PROBLEM.images, batch, 2, rng) for _ in range(local_steps)] if batch else None
        moved = []
        for j in active:
            rest, own = sum(uploads[k] for k in range(10) if k != j) / 9, theta
            for step in range(local_steps):
                own = own.detach().requires_grad_()
                if batch:
                    z = PROBLEM.embed(own, draws[step][j])
                else:
                    z = PROBLEM.embed(own, PROBLEM.images[j])
                    z = torch.cat([z.repeat_interleave(4, 1), z.repeat(1, 4, 1)], 1)  # all pairs of views
                loss = spectral_loss(z, alpha, rest).total
                own = own - lr * torch.autograd.grad(loss, own)[0]
            moved.append(own.detach())
        theta = sum(moved) / len(moved)
    return theta


@pytest.mark.parametrize(
    "setting",
    [
        {"local_steps": 1}, {"local_steps": 3}, {"local_steps": 2, "sigma": 0.3}, {"local_steps": 2, "batch": 7},
        {"local_steps": 2, "cohort": 3}, {"local_steps": 1, "views": 2, "sigma": 0.1}, {"local_steps": 2, "alpha": 1.0},
        {"local_steps": 2, "alpha": 0.4},
    ],
)  # fmt: skip
def test_the_fast_run_is_the_algorithm(setting):
    fast = descent.run(PROBLEM, 4, 0.005, **setting).theta
    slow = plain(4, 0.005, **{"alpha": 0.1} | setting)
    assert float((fast - slow).abs().max()) < 1e-12 < float((fast - PROBLEM.start).abs().max())


def test_what_is_recorded_is_exact():
    found = descent.run(PROBLEM, 5, 0.005, local_steps=2)
    for theta, row in ((PROBLEM.start, 0), (found.theta, -1)):
        right = exact(theta)
        assert float(found.loss[row]) == pytest.approx(float(right.loss), rel=1e-12)
        assert float(found.gap[row]) == pytest.approx(float(right.gap), rel=1e-12)
        assert float(found.rank[row]) == pytest.approx(float(effective_rank(right.matrix)), rel=1e-12)
        assert float(found.slope[row]) == pytest.approx(float(slope_of(theta).square().sum()), rel=1e-10)
    assert found.slope.shape == (6,) and found.drift.shape == (5,) and found.turn.shape == (4,)
    assert bool((found.drift > 0).all()) and bool((found.turn.abs() <= 1 + 1e-12).all())


# --- floors


def test_the_bias_of_batches_is_the_mean_of_batches():
    found = floor.batch_bias_norms(PROBLEM, WARM, [1, 2, 10, 19, 20], [0, 1, 2])
    assert float(found[-1, 0]) == 0 and bool((found[:, 1] > found[:, 0]).all()) and bool((found.diff(dim=0) < 0).all())
    assert float(found[2, 0] / found[1, 0]) == pytest.approx((10 / 10) / (18 / 2))  # (n - B) / B, all views
    assert float(found[-1, 2] / found[-1, 1]) == pytest.approx(0.5)  # 1 / V
    total, draws = torch.zeros_like(WARM), 300  # B = 1, V = 1: the mean over many batches less the exact gradient
    rng, leaf = stream(0, "bias"), WARM.clone().requires_grad_()
    matrices = exact(WARM).matrices
    others, halves = (matrices.sum(0) - matrices) / 9, []
    for i in range(draws):
        z = PROBLEM.embed(leaf, descent.draw_views(PROBLEM.images, 1, 2, rng))
        local = torch.stack([spectral_loss(z[j], 0.1, others[j]).total for j in range(10)]).mean()
        total = total + torch.autograd.grad(local, leaf)[0]
        if i + 1 in (draws // 2, draws):
            halves.append(total)
            total = torch.zeros_like(WARM)
    first, second = (h / (draws // 2) - slope_of(WARM) for h in halves)
    # independent halves: their product estimates |bias|^2 without the noise of the mean
    assert float(first @ second) == pytest.approx(float(found[0, 1]) ** 2, rel=0.35)


def test_the_effect_of_noise_and_the_number_of_clients():
    found = floor.noise_by_clients(PROBLEM, WARM, (2, 4, 5, 10, 20), draws=60)
    assert bool(((found.mean - found.law).abs() < 4 * found.error).all())
    assert float(found.law[-1] / found.law[-2]) == pytest.approx(19**2 / 9**2 / 8, rel=0.25)
    assert torch.allclose(found.cauchy_schwarz, 256 * found.law)
    # ten clients by the fast run itself: what one noisy step adds to an exact one
    change = [
        descent.run(PROBLEM, 1, 1e-3, sigma=0.5, start=WARM, seed=s).theta
        - descent.run(PROBLEM, 1, 1e-3, start=WARM).theta
        for s in range(40)
    ]
    square = torch.stack([(c / 1e-3).square().sum() for c in change]) / 0.25
    assert abs(float(square.mean() - found.law[3])) < 4 * float(square.std()) / math.sqrt(40)


# --- stability


@pytest.mark.parametrize(
    ("alpha", "local_steps", "lr"), [(0.1, 1, 0.1), (0.1, 20, 0.1), (0.2, 500, 0.1), (1, 10, 0.01)]
)
def test_real_local_steps_have_that_multiplier(alpha, local_steps, lr):
    found = floor.jacobi_of_steps(alpha, local_steps, lr)
    assert found.measured == pytest.approx(found.predicted, rel=1e-4, abs=1e-4)
    assert found.predicted == pytest.approx(1 - found.kappa / alpha)
    tiny = floor.jacobi_of_steps(alpha, local_steps, 1e-6)
    assert tiny.predicted == pytest.approx(1 - 4e-6 * local_steps, abs=1e-5)  # whatever alpha

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
F64 = torch.float64


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


def test_the_problem_is_digits_of_one_class_a_client():
    assert PROBLEM.images.shape == (10, 20, 4, 64) and PROBLEM.images.dtype == F64
    assert torch.equal(PROBLEM.images, descent.digits_problem(20).images)
    assert not torch.equal(PROBLEM.images, descent.digits_problem(20, seed=1).images)
    means = PROBLEM.images.mean(2)  # views of one sample are closer to one another than to another class's
    inside = (PROBLEM.images - means[:, :, None]).square().sum(3).mean()
    between = (means[:, None] - means[None].roll(1, 0)).square().sum(-1).mean()
    assert float(inside) < float(between)
    z = PROBLEM.embed(20 * PROBLEM.start)
    assert float(z.square().sum(3).max()) < 12 and z.shape == (10, 20, 4, 16)
    stacked = PROBLEM.embed(torch.stack([PROBLEM.start, WARM] * 5))
    assert torch.allclose(stacked[1], PROBLEM.embed(WARM)[1], atol=1e-13)


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


def test_one_step_on_everything_is_central_descent():
    left, right = descent.same_as_central(PROBLEM, 50, 0.005)
    assert float((left - right).abs().max()) < 1e-12
    for wrong in ({"alpha": 0.2}, {"local_steps": 2, "lr": 0.0025}, {"sigma": 0.01}, {"batch": 10}, {"cohort": 5}):
        theta = descent.run(PROBLEM, 50, **{"lr": 0.005} | wrong).theta
        assert float((theta - right).abs().max()) > 1e-4, wrong


def test_fedavg_stays_on_its_floor_and_fedsc_does_not():
    start = descent.run(PROBLEM, 60, 0.005, alpha=1.0).theta
    fedavg, fedsc = (descent.run(PROBLEM, 100, 0.005, a, start=start) for a in (1.0, "q"))
    assert float(fedavg.slope[-1]) > 0.95 * float(fedavg.slope[0]) > 4 * float(fedsc.slope[-1])
    assert float(fedsc.loss[-1]) < float(fedavg.loss[-1]) - 0.2
    assert bool((fedsc.loss.diff() < 0).all()) and float(fedavg.gap[-1]) < float(fedsc.gap[-1]) / 2
    objective = fedavg.loss + fedavg.gap  # what FedAvg descends
    assert bool((objective.diff() < 0).all())


def test_a_schedule_is_round_by_round():
    schedule = torch.tensor([1.0, 0.4, 0.1], dtype=F64)
    whole = descent.run(PROBLEM, 3, 0.005, schedule).theta
    theta = PROBLEM.start
    for alpha in schedule.tolist():
        theta = descent.run(PROBLEM, 1, 0.005, alpha, start=theta).theta
    assert float((whole - theta).abs().max()) < 1e-13


def test_drawn_views_and_batches():
    views = descent.draw_views(PROBLEM.images, 7, 4, stream(0, "x"))
    assert views.shape == (10, 7, 4, 64)
    for j in (0, 9):
        bank = {tuple(v.tolist()): i for i, sample in enumerate(PROBLEM.images[j]) for v in sample}
        owners = [{bank[tuple(v.tolist())] for v in sample} for sample in views[j]]
        assert all(len(o) == 1 for o in owners) and len(set.union(*owners)) == 7  # without replacement
    assert descent.draw_views(PROBLEM.images, None, 3, stream(0, "x")).shape == (10, 20, 3, 64)


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


def test_noise_is_no_floor_its_plateau_falls_with_the_step():
    """The theorem charges H^2 sigma^2 whatever the step; measured is about eta sigma^2."""
    start = descent.run(SMALL, 100, 0.005).theta
    found = [floor.plateaus(SMALL, [0.0, 0.2, 0.4], n, lr, start=start) for n, lr in ((160, 0.002), (80, 0.004))]
    slow, fast = (f[1:] - f[0] for f in found)
    for rise in (slow, fast):
        assert float(rise[1] / rise[0]) == pytest.approx(4, rel=0.35)
    assert bool((fast > 1.6 * slow).all())
    assert float(fast[1]) < 0.1 * floor.theorem_6_10(80, sigma=0.4).noise


def test_mean_slopes_are_of_the_runs():
    found = floor.mean_slopes(PROBLEM, [4, 9], 0.03, local_steps=2, start=WARM)
    done = descent.run(PROBLEM, 9, 0.03 / math.sqrt(18), local_steps=2, start=WARM)
    assert float(found[1]) == pytest.approx(float(done.slope[:9].mean())) and found.shape == (2,)


def test_terms_of_the_theorem():
    found = floor.theorem_6_10(100, 4, 0.1, 20, 5, 2, gain=8.0, samples=101, clients=10, width=16)
    noise, sampled = (16 * 0.1) ** 2, (101 / 20 - 1) / 100
    expected = (
        8 / 20, 16 * (noise + 1) / 400, math.sqrt(4 / 100 * 4 / 9), (0.2 + sampled) * (noise + 1) / 20, 0.2, sampled,
        noise,
    )  # fmt: skip
    assert tuple(found) == pytest.approx(expected) and found.floor == pytest.approx(0.2 + sampled + noise)
    ideal = floor.theorem_6_10(400)
    assert ideal.floor == 0 and ideal.cohort == 0 and ideal.variance == 0
    assert ideal.start == pytest.approx(floor.theorem_6_10(100).start / 2)
    assert floor.theorem_6_10(10, sigma=0.3, views=2).floor == floor.theorem_6_10(10**6, sigma=0.3, views=2).floor


# --- stability


def test_the_scalar_recursion():
    stable, edge, unstable = (floor.jacobi(k, 0.1, 200) for k in (0.19, 0.2, 0.21))
    assert abs(stable[-1] - 1) < 1e-8 and abs(edge[-1] - 1.01) < 1e-8 and abs(unstable[-1] - 1) > 1e5
    for kappa in (0.05, 0.19, 0.5, 1.0):
        r = floor.jacobi(kappa, 0.3, 3)
        for before, after in zip(r, r[1:], strict=False):
            assert (after - 1) / (before - 1) == pytest.approx(1 - kappa / 0.3, rel=1e-9)
    assert floor.jacobi(1.0, 0.1, 1, start=1.1)[1] - 1 == pytest.approx(-0.9)


@pytest.mark.parametrize(
    ("alpha", "local_steps", "lr"), [(0.1, 1, 0.1), (0.1, 20, 0.1), (0.2, 500, 0.1), (1, 10, 0.01)]
)
def test_real_local_steps_have_that_multiplier(alpha, local_steps, lr):
    found = floor.jacobi_of_steps(alpha, local_steps, lr)
    assert found.measured == pytest.approx(found.predicted, rel=1e-4, abs=1e-4)
    assert found.predicted == pytest.approx(1 - found.kappa / alpha)
    tiny = floor.jacobi_of_steps(alpha, local_steps, 1e-6)
    assert tiny.predicted == pytest.approx(1 - 4e-6 * local_steps, abs=1e-5)  # whatever alpha


def test_many_local_steps_break_alpha_q_and_not_the_schedule():
    found = floor.stability(SMALL, rounds=40)
    wild, calm, fedavg = found["alpha = q"], found["alpha 1 to 0.2"], found["FedAvg + SC"]
    assert float(wild.slope[-20:].mean()) > 50 * float(calm.slope[-20:].mean())
    assert float(calm.loss[-1]) < float(fedavg.loss[-1]) < float(wild.loss[-20:].mean()) - 1
    assert float(wild.rank.min()) < 2.2 and float(calm.rank[-1]) > 8
    assert float(wild.turn[-20:].mean()) < -0.8 < 0.9 < float(calm.turn[-20:].mean())  # back and forth

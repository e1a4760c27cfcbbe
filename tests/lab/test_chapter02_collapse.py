"""Chapter 2's self-supervised loss and the linear model of collapse, against definitions and SciPy."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.linalg import expm

from fedbook.lab import chapter02_collapse as collapse
from fedbook.lab import chapter02_loss as ssl
from fedbook.learning.online import byol_loss

INF = math.inf
RATES = [
    {}, {"decay": 0.05}, {"decay": 0.05, "target_rate": 0.3, "predictor_rate": 2.0},
    {"variant": "no predictor", "decay": 0.05}, {"variant": "no predictor", "decay": 0.05, "target_rate": 0.1},
    {"variant": "no stop-gradient", "decay": 0.05},
]  # fmt: skip


def off(sides):
    return float((sides.left - sides.right).abs().max())


# --- the loss


@pytest.mark.parametrize("seed", [0, 5])
def test_identities_of_the_loss(seed):
    for call in (ssl.two_forms, ssl.loss_gradient, ssl.radial_part, ssl.target_gradient, ssl.simsiam_form):
        assert off(call(seed=seed)) < 1e-14, call.__name__
    assert float(ssl.loss_gradient(seed).left.norm()) > 0.01 < float(ssl.two_forms(seed).left.min())
    assert not torch.equal(ssl.two_forms(seed).left, ssl.two_forms(seed + 1).left)


def test_the_gradient_is_that_of_finite_differences():
    p, z = ssl._batch(0)
    slope, h = ssl.loss_gradient(0).right, 1e-6
    for b, j in ((0, 0), (3, 2), (5, 4)):
        e = torch.zeros_like(p)
        e[b, j] = h
        assert float((byol_loss(p + e, z) - byol_loss(p - e, z)) / (2 * h) - slope[b, j]) == pytest.approx(0, abs=1e-8)


def test_the_moving_average():
    for m in (0.0, 0.3, 0.99, 1.0):
        assert off(ssl.moving_average(m, 15)) < 1e-14
    first, many = ssl.moving_average(1.0, 1).left, ssl.moving_average(1.0, 9).left
    assert torch.equal(first, many)  # frozen
    copied = ssl.moving_average(0.0, 9).left
    assert not torch.equal(copied, many) and float((ssl.moving_average(1e-9, 9).left - copied).norm()) < 1e-7


def test_a_constant_output_is_the_least_loss():
    found = ssl.constant_output()
    assert abs(float(found.loss)) < 1e-14 and float(found.distance) == 1 and float(found.slope) < 1e-14
    z = torch.randn(100, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for row in z:
        assert 0 <= float(byol_loss(row[None], z[:1])) <= 4 + 1e-12


def test_cka_cannot_tell_how_small_the_variation_is():
    found = ssl.near_constant([1.0, 1e-3, 1e-6, 0.0])
    assert torch.allclose(found.cka[:3], found.cka[0], atol=1e-8) and float(found.cka[0]) > 0.1
    assert found.cka[3] == 0 == found.slope[3]
    assert torch.allclose(found.slope[:3] * torch.tensor([1.0, 1e-3, 1e-6]).double(), found.slope[0], rtol=1e-6)
    assert float(found.slope[0]) > 0.01  # so it is 0 at 0 only as the package says so, not as a limit


# --- the linear model


@pytest.mark.parametrize("variant", collapse.VARIANTS)
@pytest.mark.parametrize("seed", [0, 3])
def test_the_flow_is_minus_the_gradient_of_the_loss(variant, seed):
    for sides in collapse.flow_from_loss(variant, seed):
        assert off(sides) < 1e-12
    weights = collapse.flow_from_loss(variant, seed)[0].left
    assert float(weights.norm()) > 0.1


def test_rates_of_the_flow():
    model = collapse.random_linear()
    still = collapse.velocity(model, "both", 1.0)
    moved = collapse.velocity(model, "both", 2.0, decay=0.3, predictor_rate=5.0)
    assert torch.allclose(moved[0], still[0] - 0.3 * model.online)
    assert torch.allclose(moved[1], 5 * still[1] - 0.3 * model.predictor)
    assert torch.allclose(moved[2], 2 * still[2]) and torch.allclose(still[2], model.online - model.target)
    same = collapse.velocity(model._replace(target=model.online), "both", 1.0)
    siamese = collapse.velocity(model, "both", INF)
    assert torch.allclose(siamese[0], same[0]) and torch.equal(siamese[2], siamese[0])


@pytest.mark.parametrize("rates", RATES)
def test_full_matrices_and_directions_agree(rates):
    left = collapse.matrix_course(20.0, 200, seed=1, **rates)
    right = collapse.mode_course(20.0, 200, **rates)
    for x, y in zip(left, right, strict=True):
        assert x.shape == y.shape and float((x - y).abs().max()) < 1e-12


@pytest.mark.parametrize("rates", RATES)
def test_directions_against_scipy(rates):
    r = len(collapse.SIGNAL)
    p = np.ones(r) if rates.get("variant") == "no predictor" else np.array(collapse.PREDICTOR)
    start = np.concatenate([collapse.ONLINE, p, collapse.ONLINE])

    def speed(_, y):
        modes = torch.from_numpy(y).split(r)
        return torch.cat(collapse.mode_velocity(modes, **rates)).numpy()

    right = solve_ivp(speed, (0, 20), start, rtol=1e-11, atol=1e-13, method="DOP853").y[:, -1]
    course = collapse.mode_course(20.0, 400, **rates)
    left = torch.cat([course.online[-1], course.predictor[-1], course.target[-1]]).numpy()
    assert np.abs(left - right).max() < 1e-6


def test_what_keeps_the_directions_alive():
    both = collapse.mode_course(200.0, 1000, decay=0.05)
    for j, (s, n) in enumerate(zip(collapse.SIGNAL, collapse.NOISE, strict=True)):
        least, end = collapse.rest_points(s, n, 0.05)
        if math.isnan(end):
            assert s**2 < 4 * 0.05 * (s + n) and float(both.online[-1, j]) < 1e-3
        else:
            assert float(both.online[-1, j]) == pytest.approx(end, abs=1e-5)
            assert float(both.predictor[-1, j]) == pytest.approx(end, abs=1e-5) and least < end
    moving = collapse.mode_course(200.0, 1000, decay=0.05, target_rate=0.3).online[-1]
    assert float((moving - both.online[-1]).abs().max()) < 1e-3  # the same ends
    lonely = collapse.mode_course(60.0, 600, variant="no predictor", decay=0.05)
    rate = torch.tensor(collapse.NOISE, dtype=torch.float64) + 0.05
    law = lonely.online[0] * torch.exp(-rate * lonely.times[:, None])
    assert float((lonely.online - law).abs().max()) < 1e-6 and float(lonely.online[-1].max()) < 1e-3
    free = collapse.mode_course(60.0, 600, variant="no stop-gradient", decay=0.05)
    assert bool((free.online <= free.online[0] * torch.exp(-rate * free.times[:, None]) + 1e-12).all())


def test_a_slow_target_only_delays_the_collapse_without_predictor():
    beta, decay = 0.1, 0.05
    found = collapse.mode_course(60.0, 600, variant="no predictor", decay=decay, target_rate=beta)
    for j, (s, n) in enumerate(zip(collapse.SIGNAL, collapse.NOISE, strict=True)):
        matrix = np.array([[-(s + n + decay), s], [beta, -beta]])
        end = expm(60.0 * matrix) @ np.full(2, collapse.ONLINE[j])
        assert float(found.online[-1, j]) == pytest.approx(end[0], rel=1e-6)
        assert np.linalg.eigvals(matrix).real.max() < 0
    assert float(found.online[-1, 0]) > 0.1  # slow


def test_a_start_below_the_lower_rest_point_dies():
    s, n, decay = collapse.SIGNAL[0], collapse.NOISE[0], 0.2
    least, end = collapse.rest_points(s, n, decay)
    for p in (least, end):
        assert p * (s - (s + n) * p) == pytest.approx(decay)
    ends = []
    for factor in (0.98, 1.02):
        w = torch.full((len(collapse.SIGNAL),), factor * least, dtype=torch.float64)
        _, path = collapse.march(lambda *m: collapse.mode_velocity(m, decay=decay), (w, w, w), 200.0, 500)
        ends.append(float(path[0][-1, 0]))
    assert ends[0] < 1e-6 and ends[1] == pytest.approx(end, abs=1e-6)
    assert collapse.rest_points(1.0, 0.25, 0.2) == pytest.approx((0.4, 0.4))  # the edge, s^2 = 4 decay (s + n)
    assert all(math.isnan(x) for x in collapse.rest_points(1.0, 0.25, 0.21))
    assert collapse.rest_points(1.0, 0.25, 0.0) == pytest.approx((0.0, 0.8))


@pytest.mark.parametrize(("decay", "living"), [(0.1, 9), (0.5, 6)])
@pytest.mark.parametrize("seed", [0, 3])
def test_the_start_decides_between_life_and_collapse(decay, living, seed):
    found = collapse.fates(decay, (0.9, 0.98, 1.02, 1.2), seed)
    assert found.ends.shape == (4, living) and len({*found.signal.tolist()}) == living
    assert found.dies.tolist() == [[True] * living] * 2 + [[False] * living] * 2
    assert torch.equal(found.rests, ~found.dies)
    for s, n, least, rest in zip(*(x.tolist() for x in found[:4]), strict=True):
        assert np.sort(np.roots([s + n, -s, decay])) == pytest.approx([least, rest]) and least < rest
    s, n, least, rest = (float(x[-1]) for x in found[:4])

    def speed(_, w):
        return w * (s * w - (s + n) * w**2 - decay)

    for factor, goal in ((0.9, 0.0), (1.2, rest)):
        end = solve_ivp(speed, (0, 60 / decay), [factor * least], rtol=1e-10, atol=1e-13).y[0, -1]
        assert end == pytest.approx(goal, abs=1e-8)


def test_every_seed_draws_its_own_directions():
    first, other = (collapse.fates(0.5, (1.2,), seed) for seed in (0, 1))
    assert not torch.equal(first.rest, other.rest) and torch.equal(first.rest, collapse.fates(0.5, (0.9,)).rest)


# --- the alignment term


def test_the_alignment_turns_and_does_not_lengthen():
    assert off(collapse.scale_free_step(0.5)) < 1e-12 and off(collapse.scale_free_step(3.0, seed=2)) < 1e-11
    client = collapse.linear_client(0)
    w = client.start
    assert float(client.cka(7 * w)) == pytest.approx(float(client.cka(w)), rel=1e-12)
    assert float((client.pull(w) - torch.func.grad(client.cka)(w)).abs().max()) < 1e-14
    flows = [collapse.aligned_shrinking(mu) for mu in (0.0, 0.5, 2.0)]
    for flow in flows:
        assert float((flow.length - flow.law).abs().max()) < 1e-8
        assert float(flow.length[-1] / flow.length[0]) == pytest.approx(math.exp(-1.5), rel=1e-8)
    alone, weak, strong = (float(flow.cka[-1]) for flow in flows)
    assert alone == pytest.approx(float(flows[0].cka[0]), rel=1e-6) and alone + 0.1 < weak < strong - 0.1
    assert bool((flows[2].cka.diff() > 0).all())
    still = collapse.aligned_shrinking(2.0, noise=0.0, decay=0.0)
    assert float((still.length - still.length[0]).abs().max()) < 1e-9


def test_finite_steps_hold_a_length_that_the_flow_does_not():
    coarse, fine = (collapse.aligned_steps(lr) for lr in (0.4, 0.1))
    start = float(collapse.linear_client(0).start.norm())
    assert float(fine.right) == float(coarse.right) == pytest.approx(start * math.exp(-9.0))
    assert 0.5 < float(coarse.left) < 0.65 and 0.3 < float(fine.left) < 0.45
    alone = collapse.aligned_steps(0.1, mu=0.0)
    assert float(alone.left) == pytest.approx(start * 0.97**300, rel=1e-9) and float(alone.left) < 1e-3
    assert float(collapse.aligned_steps(0.01, time=0.5).left) == pytest.approx(start * math.exp(-0.15), rel=1e-3)
    flow = collapse.aligned_shrinking(time=0.5)
    assert float(collapse.aligned_steps(0.01, time=0.5).right) == pytest.approx(float(flow.length[-1]), rel=1e-8)

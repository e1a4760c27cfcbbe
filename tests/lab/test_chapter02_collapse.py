"""Chapter 2's self-supervised loss and the linear model of collapse, against definitions and SciPy."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from fedbook.lab import chapter02_collapse as collapse
from fedbook.lab import chapter02_loss as ssl
from fedbook.learning.online import byol_loss

RATES = [
    {}, {"decay": 0.05}, {"decay": 0.05, "target_rate": 0.3, "predictor_rate": 2.0},
    {"variant": "no predictor", "decay": 0.05}, {"variant": "no predictor", "decay": 0.05, "target_rate": 0.1},
    {"variant": "no stop-gradient", "decay": 0.05},
]  # fmt: skip


def off(sides):
    return float((sides.left - sides.right).abs().max())


# --- the loss


def test_the_gradient_is_that_of_finite_differences():
    p, z = ssl._batch(0)
    slope, h = ssl.loss_gradient(0).right, 1e-6
    for b, j in ((0, 0), (3, 2), (5, 4)):
        e = torch.zeros_like(p)
        e[b, j] = h
        assert float((byol_loss(p + e, z) - byol_loss(p - e, z)) / (2 * h) - slope[b, j]) == pytest.approx(0, abs=1e-8)


# --- the linear model


@pytest.mark.parametrize("variant", collapse.VARIANTS)
@pytest.mark.parametrize("seed", [0, 3])
def test_the_flow_is_minus_the_gradient_of_the_loss(variant, seed):
    for sides in collapse.flow_from_loss(variant, seed):
        assert off(sides) < 1e-12
    weights = collapse.flow_from_loss(variant, seed)[0].left
    assert float(weights.norm()) > 0.1


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

"""The made-up patients: what the columns hold, how many die, that every party knows something and none all."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score

from fedbook import data
from fedbook.data.patients import FATAL, LUCK, MEASURED, NOISE, risk, time_series


@pytest.fixture(scope="module")
def patients():
    return time_series(3_000, 1_000, seed=1)


def columns(x, party):
    """Sensors and masks of a party."""
    own = x[..., 19 * party : 19 * party + 19]
    return own[..., :10], own[..., 10:]


def test_shapes_and_the_share_of_deaths(patients):
    assert patients.name == "time_series" and patients.classes == ("survives", "dies")
    assert patients.train_x.shape == (3_000, 48, 76) and patients.test_x.shape == (1_000, 48, 76)
    assert patients.train_x.dtype == torch.float32 and patients.train_y.dtype == torch.int64
    assert torch.isfinite(patients.train_x).all()
    y = torch.cat([patients.train_y, patients.test_y]).double()
    assert abs(float(y.mean()) - 0.132) < 4 * math.sqrt(0.132 * 0.868 / 4_000)
    assert data.load("time_series", train_samples=5).train_x.shape == (5, 48, 76)


def test_the_share_of_deaths_by_quadrature():
    """P(risk + luck > FATAL) on a grid over four declines: nothing of the random numbers."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    grid = np.stack(np.meshgrid(*[nodes] * 4, indexing="ij"), -1).reshape(-1, 4)
    weight = np.prod(np.stack(np.meshgrid(*[weights] * 4, indexing="ij"), -1).reshape(-1, 4), 1)
    beyond = np.array([math.erfc((FATAL - r) / LUCK / math.sqrt(2)) / 2 for r in risk(grid)])
    assert abs(weight @ beyond - 0.132) < 0.002


def test_risk_by_hand():
    declines = np.array([[1.0, 2, -1, 3], [-1, -1, -1, -1], [0.5, 0, 0, 0], [1, -2, 2, 0.5]])
    assert risk(declines).tolist() == [3 + 2, 0, 0.25, 1.75 + 1]


def test_a_sensor_keeps_its_last_value(patients):
    x = patients.train_x[:200]
    for party in range(4):
        values, masks = columns(x, party)
        assert set(masks.unique().tolist()) == {0.0, 1.0}
        assert abs(float(columns(patients.train_x, party)[1].mean()) - MEASURED[party]) < 0.003
        slow, read = values[..., 1:], masks.bool()  # the first sensor has no mask
        before = torch.cat([torch.zeros(200, 1, 9), slow[:, :-1]], 1)
        assert torch.equal(slow[~read], before[~read])
        assert (slow[read] != before[read]).all()
        assert (values[:, 1:, 0] != values[:, :-1, 0]).all()


def test_noise_grows_from_party_to_party(patients):
    """Variance of the change from hour to hour, of the first sensor before anybody declines: 2 noise^2 + wandering."""
    for party in range(4):
        early = columns(patients.train_x, party)[0][:, :30, 0].double()
        variance = (early[:, 1:] - early[:, :-1]).square().mean()
        assert abs(float(variance) - (2 * NOISE[party] ** 2 + 0.25 / 48)) < 0.03


def test_who_declines_dies_and_shows_it_late(patients):
    """Dead and survivors look alike up to hour 30, and differ at the end, for every party."""
    dies = patients.train_y.bool()
    for party in range(4):
        first = columns(patients.train_x, party)[0][..., 0].double()
        gap = (first[dies].mean(0) - first[~dies].mean(0)).abs()
        error = first.std(0) * math.sqrt(1 / int(dies.sum()) + 1 / int((~dies).sum()))
        assert (gap[:30] < 4.5 * error[:30]).all() and gap[47] > 6 * error[47]


def test_all_parties_are_needed(patients):
    """By a linear rule on late less early means: F1 far from 0 and from 1 with all parties, near 0 with one."""

    def rule(x):
        return (x[:, 40:].mean(1) - x[:, :30].mean(1)).numpy()

    def judged(own):
        model = LogisticRegression(max_iter=500).fit(rule(patients.train_x[..., own]), patients.train_y)
        x = rule(patients.test_x[..., own])
        return f1_score(patients.test_y, model.predict(x)), roc_auc_score(patients.test_y, model.decision_function(x))

    f1, area = judged(slice(None))
    assert 0.45 < f1 < 0.75 and 0.85 < area < 0.97
    for party in range(4):
        f1, area = judged(slice(19 * party, 19 * party + 19))
        assert f1 < 0.25 and 0.62 < area < 0.82


def test_seeds_decide_and_fewer_are_the_beginning_of_more(patients):
    fewer = time_series(20, 10, seed=1)
    assert torch.equal(fewer.train_x, patients.train_x[:20]) and torch.equal(fewer.test_y, patients.test_y[:10])
    assert torch.equal(fewer.train_y, patients.train_y[:20]) and torch.equal(fewer.test_x, patients.test_x[:10])
    assert not torch.equal(time_series(20, 10, seed=2).train_x, fewer.train_x)
    assert not torch.equal(fewer.train_x[:10], fewer.test_x)


@pytest.mark.parametrize(
    "name, bad", [("train_samples", 0), ("test_samples", 2.5), ("test_samples", None), ("seed", -1)]
)
def test_bad_arguments_are_refused(name, bad):
    with pytest.raises((TypeError, ValueError), match=f"{name}: got"):
        time_series(**({"train_samples": 2, "test_samples": 2} | {name: bad}))

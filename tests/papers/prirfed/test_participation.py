"""What a run of PriRFed guarantees: the paper's Table 1, composition, counted calls, what drawing does not give."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

from fedbook import privacy
from fedbook.papers.prirfed.participation import (
    Guarantee,
    compose_advanced,
    compose_basic,
    participation_delta,
    participation_epsilon,
    run_guarantee,
    theorem_4_2,
)

CALL = {"epsilon": 0.15, "delta": 1e-4}
MU = 1 / privacy.calibrate(0.15, 1e-4)  # of one call with just enough Gaussian noise

# agents, per round: the sound epsilon at T = 50 and 500
SOUND = {
    (100, 1): (0.093, 0.297), (100, 5): (0.204, 0.730), (200, 1): (0.067, 0.205), (500, 5): (0.093, 0.297),
    (300, 5): (0.118, 0.393), (300, 10): (0.166, 0.579), (400, 10): (0.144, 0.492),
}  # fmt: skip


# --- the paper's table


def test_the_theorem_by_hand_and_where_it_says_nothing():
    for setting, epsilon, delta in (((100, 5, 50), 1.58, 2.25e-3), ((300, 10, 500), 15.5, 1.77e-2)):  # of Table 1
        row = theorem_4_2(0.15, 1e-4, *setting)
        assert row == Guarantee(pytest.approx(epsilon, rel=5e-3), pytest.approx(delta, rel=5e-3), "advanced")
        assert row == run_guarantee(
            **CALL, agents=setting[0], per_round=setting[1], rounds=setting[2], accountant="paper"
        )
    found = theorem_4_2(0.5, 1e-6, 4, 2, 3, slack=1e-2)
    assert found == Guarantee(pytest.approx(3 * math.log(1 + (math.e - 1) / 2)), pytest.approx(1e-2 + 3e-6), "basic")
    assert theorem_4_2(0.15, 1e-5, 16, 16, 200) == Guarantee(pytest.approx(480), pytest.approx(0.033), "basic")
    assert theorem_4_2(1.0, 1e-5, 2000, 1000, 2).epsilon == pytest.approx(2 * (1000 - math.log(2)), rel=1e-12)
    assert run_guarantee(0.15, 1e-5, 16, 16, 200, slack=1e-5, mu=1 / privacy.calibrate(0.15, 1e-5)).epsilon == (
        pytest.approx(2.752, abs=5e-4)
    )


# --- composition


def test_basic_and_advanced_composition():
    assert compose_basic(0.3, 1e-5, 7) == Guarantee(pytest.approx(2.1), pytest.approx(7e-5), "basic")
    assert compose_advanced(0.0016, 0.0, 50, 1e-3).epsilon < compose_basic(0.0016, 0.0, 50).epsilon
    assert compose_advanced(2.4, 0.0, 200, 1e-3).epsilon > compose_basic(2.4, 0.0, 200).epsilon
    by_hand = math.sqrt(2 * 50 * math.log(1000)) * 0.1 + 50 * 0.1 * (math.exp(0.1) - 1)
    assert compose_advanced(0.1, 1e-6, 50, 1e-3) == Guarantee(
        pytest.approx(by_hand), pytest.approx(1e-3 + 5e-5), "advanced"
    )
    assert compose_advanced(800.0, 0.0, 2, 1e-3).epsilon == math.inf


def composed_calls(epsilon, delta, rate, count):
    """All outcomes of ``count`` worst calls, each made with chance ``rate``, under both data sets (enumerated)."""
    high = math.exp(epsilon) / (1 + math.exp(epsilon))
    one = [(1 - rate, 1 - rate), (rate * delta, 0.0), (0.0, rate * delta)]
    one += [(rate * (1 - delta) * high, rate * (1 - delta) * (1 - high))]
    one += [(rate * (1 - delta) * (1 - high), rate * (1 - delta) * high)]
    return np.array([np.prod(outcome, axis=0) for outcome in product(one, repeat=count)]).T


@pytest.mark.parametrize(("epsilon", "delta", "rate"), [(0.7, 0.01, 1.0), (0.15, 1e-4, 0.3), (2.0, 0.0, 0.5)])
def test_known_only_by_epsilon_and_delta_against_enumeration(epsilon, delta, rate):
    p, q = composed_calls(epsilon, delta, rate, 5)
    agents, per_round = {1.0: (1, 1), 0.3: (10, 3), 0.5: (2, 1)}[rate]
    for total in (0.0, 0.1, epsilon, 2.3 * epsilon, 4.9 * epsilon, 6 * epsilon):
        exact = float(np.maximum(p - math.exp(total) * q, 0).sum())
        found = participation_delta(total, agents, per_round, 5, epsilon=epsilon, delta=delta)
        assert found == pytest.approx(exact, rel=1e-9, abs=1e-15)
        if 0 < total < 5 * epsilon:
            assert participation_epsilon(agents, per_round, 5, found, epsilon=epsilon, delta=delta) == (
                pytest.approx(total, rel=1e-7)
            )


# --- counting calls


@pytest.mark.parametrize("setting", SOUND)
def test_the_sound_figures_beside_table_1(setting):
    for rounds, epsilon in zip((50, 500), SOUND[setting], strict=True):
        found = run_guarantee(**CALL, agents=setting[0], per_round=setting[1], rounds=rounds, mu=MU)
        assert found == Guarantee(pytest.approx(epsilon, abs=5.1e-4), 1e-3, "participation")
        # by hand: a number of calls q that half of delta leaves unlikely, and epsilon of q calls at the other half
        q = int(np.argmax(binom.sf(np.arange(rounds + 1), rounds, setting[1] / setting[0]) <= 5e-4))
        assert found.epsilon <= privacy.exact_epsilon(math.sqrt(q) * MU, 5e-4)


def test_the_mixture_is_its_sum_and_inverts():
    for agents, per_round, rounds in [(10, 3, 20), (7, 7, 4), (1000, 1, 3000)]:
        rate = per_round / agents
        for total in (0.05, 0.4):
            calls = np.arange(1, min(rounds, 200) + 1)
            curve = [privacy.gaussian_delta(total, math.sqrt(c) * 0.1) for c in calls]
            by_hand = float(binom.pmf(calls, rounds, rate) @ curve)
            found = participation_delta(total, agents, per_round, rounds, mu=0.1)
            assert found == pytest.approx(by_hand, rel=1e-9)
            epsilon = participation_epsilon(agents, per_round, rounds, found, mu=0.1)
            assert epsilon == pytest.approx(total, rel=1e-6)
            assert participation_delta(epsilon, agents, per_round, rounds, mu=0.1) <= found
    # composing c worst calls known by (epsilon, delta), then averaging, is the random walk
    by_hand = 0.0
    for c in range(31):
        whole = participation_delta(0.5, 1, 1, c, epsilon=0.15, delta=1e-4)
        by_hand += binom.pmf(c, 30, 0.2) * whole
    assert participation_delta(0.5, 5, 1, 30, epsilon=0.15, delta=1e-4) == pytest.approx(by_hand, rel=1e-9)

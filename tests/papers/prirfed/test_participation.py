"""What a run of PriRFed guarantees: the paper's Table 1, composition, counted calls, what drawing does not give."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from fedbook import privacy
from fedbook.papers.prirfed import participation
from fedbook.papers.prirfed.participation import (
    TABLE_1,
    Guarantee,
    compose_advanced,
    compose_basic,
    compose_optimal,
    participation_delta,
    participation_epsilon,
    participation_quantile,
    randomised_response_counterexample,
    run_guarantee,
    separated_gaussian_counterexample,
    theorem_4_2,
)

# epsilon' and delta' as printed, row by row, for T = 50, 100, 200, 300, 400, 500
PRINTED = {
    (100, 1): "4.26e-2 1.05e-3 6.04e-2 1.10e-3 8.55e-2 1.20e-3 1.05e-1 1.30e-3 1.21e-1 1.40e-3 1.36e-1 1.50e-3",
    (100, 5): "1.58 2.25e-3 2.32 3.50e-3 3.46 6.00e-3 4.41 8.50e-3 5.25 1.10e-2 6.03 1.35e-2",
    (200, 1): "2.13e-2 1.03e-3 3.01e-2 1.05e-3 4.26e-2 1.10e-3 5.23e-2 1.15e-3 6.04e-2 1.20e-3 6.76e-2 1.25e-3",
    (500, 5): "2.98e-1 1.25e-3 4.25e-1 1.50e-3 6.09e-1 2.00e-3 7.52e-1 2.50e-3 8.75e-1 3.00e-3 9.85e-1 3.50e-3",
    (300, 5): "5.02e-1 1.42e-3 7.20e-1 1.83e-3 1.04 2.67e-3 1.29 3.50e-3 1.51 4.33e-3 1.70 5.17e-3",
    (300, 10): "3.52 2.67e-3 5.36 4.33e-3 8.32 7.67e-3 1.09e1 1.10e-2 1.33e1 1.43e-2 1.55e1 1.77e-2",
    (400, 5): "3.74e-1 1.31e-3 5.35e-1 1.63e-3 7.68e-1 2.25e-3 9.51e-1 2.88e-3 1.11 3.50e-3 1.25 4.13e-3",
    (400, 10): "2.56 2.25e-3 3.83 3.50e-3 5.84 6.00e-3 7.55 8.50e-3 9.11 1.10e-2 1.06e1 1.35e-2",
}
CALL = {"epsilon": 0.15, "delta": 1e-4}
MU = 1 / privacy.calibrate(0.15, 1e-4)  # of one call with just enough Gaussian noise

# agents, per round: A1, quantile q and epsilon (None: not given), mixture, each at T = 50 and 500
SOUND = {
    (100, 1): [(0.0426, 4, 0.267, 0.093), (0.136, 14, 0.555, 0.297)],
    (100, 5): [(0.215, 9, 0.429, 0.204), (0.702, 42, 1.053, 0.730)],
    (200, 1): [(0.0213, 3, 0.226, 0.067), (0.0676, 9, 0.429, 0.205)],
    (500, 5): [(0.0426, 4, 0.267, 0.093), (0.136, 14, 0.555, 0.297)],
    (300, 5): [(0.0712, None, None, 0.118), (0.228, None, None, 0.393)],
    (300, 10): [(0.143, 7, 0.370, 0.166), (0.462, 31, 0.882, 0.579)],
    (400, 10): [(0.107, None, None, 0.144), (0.344, None, None, 0.492)],
}


# --- the paper's table


def test_table_1_to_its_last_digit():
    rows, columns = TABLE_1
    assert rows == tuple(PRINTED) and columns == (50, 100, 200, 300, 400, 500)
    checked = 0
    for agents, per_round in rows:
        numbers = iter(map(float, PRINTED[agents, per_round].split()))
        for rounds in columns:
            found = run_guarantee(**CALL, agents=agents, per_round=per_round, rounds=rounds, accountant="paper")
            assert found == theorem_4_2(0.15, 1e-4, agents, per_round, rounds) and found.rule == "advanced"
            for value, printed in ((found.epsilon, next(numbers)), (found.delta, next(numbers))):
                assert value == pytest.approx(printed, rel=5e-3)
                assert abs(value - printed) <= 0.5001 * 10 ** (math.floor(math.log10(printed)) - 2)
                checked += 1
    assert checked == 96


def test_parallel_calls_drop_the_factor_s():
    for (agents, per_round), cells in SOUND.items():
        for rounds, (parallel, *_) in zip((50, 500), cells, strict=True):
            paper = theorem_4_2(0.15, 1e-4, agents, per_round, rounds)
            found = run_guarantee(0.15, 1e-4, agents, per_round, rounds, "paper_parallel")
            assert found.epsilon == pytest.approx(parallel, rel=5e-3)
            assert found == paper if per_round == 1 else found.epsilon < paper.epsilon and found.delta < paper.delta


@given(
    epsilon=st.floats(0.0, 3.0),
    delta=st.floats(0.0, 0.01),
    agents=st.integers(1, 50),
    share=st.floats(0.0, 1.0),
    rounds=st.integers(0, 300),
)
def test_parallel_never_exceeds_the_theorem(epsilon, delta, agents, share, rounds):
    per_round = max(1, round(share * agents))
    paper = theorem_4_2(epsilon, delta, agents, per_round, rounds)
    parallel = theorem_4_2(epsilon, delta, agents, per_round, rounds, parallel=True)
    assert parallel.epsilon <= paper.epsilon and parallel.delta <= paper.delta
    if per_round == 1:
        assert parallel == paper
    if per_round == agents and rounds:  # everybody: nothing to amplify
        whole = compose_basic(epsilon, delta, per_round * rounds)
        assert paper.epsilon <= whole.epsilon * (1 + 1e-12) and paper.delta == pytest.approx(1e-3 + whole.delta)


def test_the_theorem_by_hand_and_where_it_says_nothing():
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
    for call in (compose_basic, lambda *a: compose_advanced(*a, 1e-3), lambda *a: compose_optimal(*a, 1e-3)):
        assert call(0.5, 1e-5, 0).epsilon == 0.0


@given(
    epsilon=st.floats(0.001, 3.0),
    delta=st.sampled_from([0.0, 1e-8, 1e-5]),
    count=st.integers(1, 200),
    slack=st.floats(1e-9, 0.1),
)
def test_optimal_composition_is_below_both(epsilon, delta, count, slack):
    basic, advanced = compose_basic(epsilon, delta, count), compose_advanced(epsilon, delta, count, slack)
    best = compose_optimal(epsilon, delta, count, advanced.delta)
    assert best.epsilon <= min(basic.epsilon, advanced.epsilon) * (1 + 1e-12)


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
    if rate == 1:
        assert compose_optimal(epsilon, delta, 5, exact + 0.01).epsilon < 5 * epsilon
        assert compose_optimal(epsilon, delta, 5, 0.04).epsilon == math.inf  # 1 - 0.99^5 = 0.049 is given away


def test_optimal_composition_at_the_points_of_its_theorem():
    """epsilon_i = (k - 2i) epsilon with delta_i = sum_l binomial(k, l) (e^{(k-l)e} - e^{(k-2i+l)e}) / (1 + e^e)^k."""
    k, epsilon, delta = 9, 0.4, 1e-3
    for i in range(1, k // 2 + 1):
        terms = [
            math.comb(k, j) * (math.exp((k - j) * epsilon) - math.exp((k - 2 * i + j) * epsilon)) for j in range(i)
        ]
        spent = 1 - (1 - delta) ** k * (1 - sum(terms) / (1 + math.exp(epsilon)) ** k)
        found = compose_optimal(epsilon, delta, k, spent)
        assert found.epsilon == pytest.approx((k - 2 * i) * epsilon, rel=1e-9) and found.rule == "optimal"


def test_the_gaussian_curve_is_the_hockey_stick_integral():
    for mu in (0.0989, 0.7, 3.0):
        x = np.linspace(-10, mu + 10, 400_001)
        for epsilon in (0.0, 0.15, 2.0):
            gap = np.maximum(norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x), 0)
            assert privacy.gaussian_delta(epsilon, mu) == pytest.approx(np.trapezoid(gap, x), rel=1e-6, abs=1e-12)
    assert privacy.gaussian_mu(2.0, 9) == pytest.approx(3 * privacy.gaussian_mu(2.0))
    assert pytest.approx(0.05829, abs=5e-6) == MU


# --- counting calls


@pytest.mark.parametrize("setting", SOUND)
def test_the_sound_figures_beside_table_1(setting):
    for rounds, (_, q, quantile, mixture) in zip((50, 500), SOUND[setting], strict=True):
        found = run_guarantee(**CALL, agents=setting[0], per_round=setting[1], rounds=rounds, mu=MU)
        assert found == Guarantee(pytest.approx(mixture, abs=5.1e-4), 1e-3, "participation")
        most, by_hand = participation_quantile(*setting, rounds, 1e-3, MU)
        assert found.epsilon <= by_hand
        if q is not None:
            assert most == q and by_hand == pytest.approx(quantile, abs=5.1e-4)
            assert by_hand == pytest.approx(privacy.exact_epsilon(math.sqrt(q) * MU, 5e-4), rel=1e-6)


@pytest.mark.parametrize(("rounds", "promised", "found"), [(50, 1.05e-3, 4.0e-3), (500, 1.5e-3, 1.1e-2)])
def test_the_published_pair_is_violated_where_cohorts_are_seen(rounds, promised, found):
    paper = theorem_4_2(0.15, 1e-4, 100, 1, rounds)
    true = participation_delta(paper.epsilon, 100, 1, rounds, MU)
    assert paper.delta == pytest.approx(promised) and true == pytest.approx(found, rel=0.02) and true > 3 * promised


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


def test_everybody_in_every_round_is_plain_composition():
    found = participation_epsilon(8, 8, 30, 1e-5, mu=MU)
    assert found == pytest.approx(privacy.exact_epsilon(math.sqrt(30) * MU, 1e-5), rel=1e-6)
    found = participation_epsilon(8, 8, 30, 4e-3, epsilon=0.15, delta=1e-4)
    assert found == compose_optimal(0.15, 1e-4, 30, 4e-3).epsilon
    assert participation_epsilon(8, 8, 30, 2e-3, epsilon=0.15, delta=1e-4) == math.inf


def test_who_never_takes_part_pays_nothing():
    assert participation_epsilon(8, 3, 0, 1e-9, mu=MU) == participation_epsilon(8, 3, 5, 1e-9, mu=0.0) == 0.0
    assert participation_epsilon(8, 3, 0, 1e-9, epsilon=1.0, delta=0.1) == 0.0
    assert participation_quantile(8, 3, 0, 1e-9, MU) == (0, 0.0)
    assert participation_epsilon(8, 3, 1, 1e-9, mu=math.inf) == math.inf
    # a delta above the chance to be drawn at all: no promise, and said so
    assert participation_epsilon(1000, 1, 1, 2e-3, mu=5.0) == 0.0


@pytest.mark.parametrize("call", [{"mu": MU}, {"epsilon": 0.15, "delta": 1e-6}])
def test_more_rounds_and_larger_cohorts_cost_more(call):
    def cost(per_round, rounds):
        return participation_epsilon(40, per_round, rounds, 1e-3, **call)

    over_time = [cost(4, rounds) for rounds in (1, 5, 20, 100, 400)]
    by_size = [cost(per_round, 50) for per_round in (1, 2, 8, 20, 40)]
    for figures in (over_time, by_size):
        assert figures == sorted(figures) and figures[0] < figures[-1]
    assert all(cost(4, t) <= participation_quantile(40, 4, t, 1e-3, **call)[1] for t in (1, 5, 20, 100, 400))


def test_a_gaussian_call_known_better_costs_less():
    better = run_guarantee(**CALL, agents=100, per_round=5, rounds=100, mu=MU)
    known = run_guarantee(**CALL, agents=100, per_round=5, rounds=100)
    assert known == Guarantee(pytest.approx(0.8595, rel=0.02), pytest.approx(1e-3 + 100 * 0.05 * 1e-4), "participation")
    assert better.epsilon < known.epsilon / 2 and better.delta == 1e-3
    assert run_guarantee(0.15, 0.5, 4, 4, 10).delta == 1.0  # the calls alone give everything away


def test_simulated_cohorts_take_part_as_accounted():
    rng, agents, per_round, rounds, runs = np.random.default_rng(2), 40, 4, 30, 2000
    counts = np.zeros((runs, agents), dtype=int)
    for run in range(runs):
        for _ in range(rounds):
            counts[run, rng.choice(agents, per_round, replace=False)] += 1
    first = counts[:, 0]  # agents of one run are not independent
    q, _ = participation_quantile(agents, per_round, rounds, 0.1, MU)
    chance = binom.sf(q, rounds, per_round / agents)
    assert chance <= 0.05 < binom.sf(q - 1, rounds, per_round / agents)
    assert abs((first > q).mean() - chance) < 4 * math.sqrt(chance * (1 - chance) / runs)
    assert (first > q).mean() <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / runs)
    losses = np.array([privacy.gaussian_delta(0.1, math.sqrt(c) * MU) for c in range(rounds + 1)])[first]
    expected = participation_delta(0.1, agents, per_round, rounds, MU)
    assert abs(losses.mean() - expected) < 4 * losses.std() / math.sqrt(runs)


# --- Lemma 4.1


def test_drawing_agents_does_not_amplify_randomised_response():
    assert randomised_response_counterexample(1.0, 10) == (pytest.approx(1.0), pytest.approx(0.1586, abs=5e-5))
    rng = np.random.default_rng(3)  # and by running it
    draws = 400_000
    asked, honest = rng.random((2, draws)) < 0.1, rng.random((2, draws)) < math.e / (1 + math.e)
    answer = np.where(asked, np.where(honest, [[0], [1]], [[1], [0]]), 2)
    zeros = (answer == 0).sum(1)
    assert math.log(zeros[0] / zeros[1]) == pytest.approx(1.0, abs=4 * math.sqrt((1 / zeros).sum()))
    for epsilon, agents in [(0.15, 100), (3.0, 5)]:
        found, claimed = randomised_response_counterexample(epsilon, agents)
        assert found == pytest.approx(epsilon) and claimed < 0.6 * epsilon
    assert randomised_response_counterexample(1.0, 1) == (pytest.approx(1.0), pytest.approx(1.0))  # nobody to hide


@pytest.mark.parametrize(("rate", "found", "claimed"), [(0.01, 2.2e-4, 1e-6), (0.1, 1.6e-3, 1e-5)])
def test_drawing_agents_does_not_amplify_gaussian_calls(rate, found, claimed):
    true, said = separated_gaussian_counterexample(0.15, 1e-4, rate)
    assert true == pytest.approx(found, rel=0.03) and said == pytest.approx(claimed)
    # the same from the two laws of the output: the changed agent near 0, the others far away
    x = np.linspace(-12, 100, 400_001)
    there, moved = norm.pdf(x, MU), norm.pdf(x)
    away = (1 - rate) * norm.pdf(x, 80)

    def hockey_stick(epsilon):
        return np.trapezoid(np.maximum(rate * there + away - math.exp(epsilon) * (rate * moved + away), 0), x)

    amplified = math.log(1 + rate * (math.exp(0.15) - 1))
    assert true == pytest.approx(hockey_stick(amplified), rel=1e-5) and true > 100 * said
    assert hockey_stick(0.15) == pytest.approx(rate * 1e-4, rel=1e-4)  # (epsilon, rate delta) does hold


# --- arguments

RUN = {"agents": 10, "per_round": 2, "rounds": 5}
GOOD = {
    compose_basic: CALL | {"count": 3},
    compose_advanced: CALL | {"count": 3, "slack": 1e-3},
    compose_optimal: CALL | {"count": 3, "delta_total": 1e-3},
    theorem_4_2: CALL | RUN | {"slack": 1e-3, "parallel": True},
    run_guarantee: CALL | RUN | {"accountant": "participation", "slack": 1e-3, "mu": 0.1},
    participation_delta: {"epsilon_total": 1.0} | RUN | {"mu": 0.1},
    participation_epsilon: RUN | {"delta_total": 1e-3, "mu": 0.1},
    participation_quantile: RUN | {"delta_total": 1e-3, "mu": 0.1},
    randomised_response_counterexample: {"epsilon": 1.0, "agents": 3},
    separated_gaussian_counterexample: CALL | {"rate": 0.1},
}
BAD = {
    "epsilon": [None, "x", math.nan, math.inf, -0.1, True],
    "delta": [None, "x", math.nan, 1.1, -1e-5],
    "epsilon_total": [None, "x", math.nan, math.inf, -0.1],
    "mu": ["x", math.nan, -0.1, True],
    "accountant": [None, "rdp", 3],
    "parallel": [None, 1, "x"],
    **dict.fromkeys(["delta_total", "slack"], [None, "x", math.nan, 0.0, 1.0]),
    **dict.fromkeys(["count", "rounds"], [None, "x", -1, 2.0, True]),
    **dict.fromkeys(["agents", "per_round"], [None, "x", 0, -1, 2.0, True]),
    "rate": [None, "x", 0.0, 1.1, math.nan],
}


@pytest.mark.parametrize("function", GOOD)
def test_bad_arguments_are_named(function):
    function(**GOOD[function])
    for name in GOOD[function].keys() & BAD.keys():
        for value in BAD[name]:
            with pytest.raises((TypeError, ValueError), match=f"^{name}: got .* allowed is"):
                function(**GOOD[function] | {name: value})


def test_a_call_is_given_one_way():
    assert set(GOOD) == {
        value for name, value in vars(participation).items()
        if callable(value) and getattr(value, "__module__", "") == participation.__name__ and name[0].islower()
    }  # fmt: skip
    for call, kind in (({}, TypeError), ({"mu": 0.1, "epsilon": 0.1}, ValueError), ({"mu": 1, "delta": 0}, ValueError)):
        with pytest.raises(kind, match="^mu: got"):
            participation_epsilon(**RUN, delta_total=1e-3, **call)
    with pytest.raises(TypeError, match="^delta: got None"):
        participation_epsilon(**RUN, delta_total=1e-3, epsilon=0.1)
    for call in (theorem_4_2, run_guarantee):
        with pytest.raises(ValueError, match="^per_round: got 11"):
            call(**GOOD[call] | {"per_round": 11})

"""Intervals against scipy.stats, and against what they promise: coverage."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedbook.intervals import (
    Interval,
    clopper_pearson,
    mean_interval,
    paired_difference,
)
from fedbook.randomness import stream

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12)
CONFIDENCE = st.floats(0.5, 0.999)


@settings(max_examples=50)
@given(NUMBERS, CONFIDENCE)
def test_mean_interval_is_students(values, confidence):
    ours = mean_interval(values, confidence)
    assert ours.mean == pytest.approx(np.mean(values)) and ours.count == len(values)
    assert ours.deviation == pytest.approx(np.std(values, ddof=1)) and ours.confidence == confidence
    error = stats.sem(values)
    if error > 0:
        low, high = stats.t.interval(confidence, len(values) - 1, np.mean(values), error)
        assert ours.low == pytest.approx(low, rel=1e-9, abs=1e-6) and ours.high == pytest.approx(
            high, rel=1e-9, abs=1e-6
        )
    else:
        assert ours.low == ours.mean == ours.high
    assert mean_interval(torch.tensor(values, dtype=torch.float64), confidence) == ours


@settings(max_examples=50)
@given(NUMBERS, CONFIDENCE, st.integers(0, 99))
def test_paired_difference_inverts_the_paired_test(values, confidence, seed):
    a, b = np.array(values), np.array(values) + np.random.default_rng(seed).normal(0.3, 1, len(values))
    ours = paired_difference(a, b, confidence)
    low, high = stats.ttest_rel(a, b).confidence_interval(confidence)
    assert (ours.low, ours.high) == (pytest.approx(low, rel=1e-6), pytest.approx(high, rel=1e-6))
    assert ours.mean == pytest.approx(np.mean(a - b))


def test_one_value_has_no_interval():
    for single in (mean_interval([0.5]), paired_difference([1.5], [1.0])):
        assert single == Interval(0.5, None, None, None, 1, 0.95)
        assert 0.5 not in single and str(single) == "0.5 (one value, no interval)"
    assert str(mean_interval([1.0, 2.0])) == "1.5 [-4.853, 7.853]"


def test_students_interval_covers_as_often_as_it_says():
    draws = stream(1, "test").normal(3.0, 2.0, (1000, 5))
    hits = np.mean([3.0 in mean_interval(row, 0.9) for row in draws])
    assert abs(hits - 0.9) < 4 * math.sqrt(0.9 * 0.1 / 1000)


@settings(max_examples=80)
@given(st.integers(1, 3000), st.data(), CONFIDENCE)
def test_counts_agree_with_scipy(trials, data, confidence):
    successes = data.draw(st.integers(0, trials))
    interval = clopper_pearson(successes, trials, confidence)
    theirs = stats.binomtest(successes, trials).proportion_ci(confidence, "exact")
    assert interval.low == pytest.approx(theirs.low, abs=1e-9) and interval.high == pytest.approx(theirs.high, abs=1e-9)
    assert 0 <= interval.low <= interval.mean <= interval.high <= 1
    assert (interval.count, interval.deviation) == (trials, None)


def test_exact_coverage_of_counts():
    """By enumeration over all outcomes: never below its confidence, and no bound alone fails more often than half."""
    n, shares = 30, np.linspace(0.02, 0.98, 49)
    chance = stats.binom.pmf(np.arange(n + 1)[:, None], n, shares)
    intervals = [clopper_pearson(s, n) for s in range(n + 1)]
    coverage = (chance * np.array([[share in interval for share in shares] for interval in intervals])).sum(0)
    assert coverage.min() >= 0.95 and 0.955 < coverage.mean() < 0.99
    below = np.array([[share < i.low for share in shares] for i in intervals])
    assert (chance * below).sum(0).max() <= 0.025


BAD = [
    (lambda: mean_interval([]), "values"),
    (lambda: mean_interval([1.0, float("nan")]), "values"),
    (lambda: mean_interval([1.0, float("inf")]), "values"),
    (lambda: mean_interval([[1.0, 2.0]]), "values"),
    (lambda: mean_interval([[1.0], [1.0, 2.0]]), "values"),
    (lambda: mean_interval(["1"]), "values"),
    (lambda: mean_interval("12"), "values"),
    (lambda: mean_interval([True, False]), "values"),
    (lambda: mean_interval([1 + 2j]), "values"),
    (lambda: mean_interval(torch.tensor([1 + 2j])), "values"),
    (lambda: mean_interval(1.0), "values"),
    (lambda: mean_interval([1.0, 2.0], 1.0), "confidence"),
    (lambda: mean_interval([1.0, 2.0], 95), "confidence"),
    (lambda: mean_interval([1.0, 2.0], float("nan")), "confidence"),
    (lambda: paired_difference([1.0], [1.0, 2.0]), "a and b"),
    (lambda: paired_difference([1.0], [None]), "b: got"),
    (lambda: clopper_pearson(3, 2), "successes"),
    (lambda: clopper_pearson(0.5, 2), "successes"),
    (lambda: clopper_pearson(0, 0), "trials"),
    (lambda: clopper_pearson(1, 2, 0.0), "confidence"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_arguments_are_named(case):
    call, words = BAD[case]
    with pytest.raises((TypeError, ValueError), match=words):
        call()

"""The chapter's algorithm under attack: the bound stays below its epsilon, and rises above it when it cheats."""

import pytest

from fedbook.lab.chapter04_audit import WeakNoise, worlds
from fedbook.papers.dp2_fedsam import DP2FedSAM
from fedbook.privacy import sampled_epsilon
from fedbook.privacy.audit import canary_scores, epsilon_lower_bound

SETTINGS = [(1.0, 1, 1.0), (1.0, 3, 0.5)]


def bound(noise_multiplier, rounds, rate, algorithm=DP2FedSAM, runs=1200):
    scores = canary_scores(*worlds(noise_multiplier, rounds, rate, algorithm), runs)
    return epsilon_lower_bound(*scores, 1e-2, confidence=0.999).epsilon


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_bound_stays_under_the_accountants_epsilon_and_says_something(setting):
    claimed = sampled_epsilon(*setting[::2], setting[1], 1e-2)
    found = bound(*setting)
    assert 0.15 * claimed < found <= claimed


@pytest.mark.parametrize("setting", SETTINGS)
def test_weak_noise_is_found_out(setting):
    assert bound(*setting, WeakNoise) > sampled_epsilon(*setting[::2], setting[1], 1e-2)

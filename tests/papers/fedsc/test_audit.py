"""The audit of DP-CalR: below the claim and not far below, and above it where the clip was forgotten."""

import math
from dataclasses import replace
from importlib import import_module

import pytest
import torch

from fedbook.papers.fedsc import Config
from fedbook.papers.fedsc.audit import audited
from fedbook.papers.fedsc.matrix_privacy import matrix_epsilon
from fedbook.papers.fedsc.problem import PretrainingSettings, pretraining_problem

SIZE, MU = 4, 0.1
CONFIG = Config(rounds=1, mu=MU, sigma=0.5 * math.sqrt(2) * MU / SIZE, matrix_views=2, delta=1e-2)


@pytest.fixture(scope="module")
def problem():
    settings = PretrainingSettings(
        partition="iid", clients=2, train_samples=300, test_samples=60, bank=2, width=6, projector="linear"
    )
    return pretraining_problem("digits", settings, (0,), dtype=torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, 2])
def test_the_matrices_show_no_more_than_is_claimed(problem, rounds):
    audit = audited(problem, replace(CONFIG, rounds=rounds), SIZE, 1000)
    assert audit.claimed == pytest.approx(matrix_epsilon(CONFIG.sigma, MU, SIZE, rounds, 1e-2))
    assert not audit.refuted and audit.shown_gaussian.epsilon > 0.6 * audit.claimed


@pytest.mark.slow
def test_without_the_clip_the_claim_is_refuted(problem, monkeypatch):
    monkeypatch.setattr(import_module("fedbook.papers.fedsc.algorithm"), "norm_clip", lambda z, mu: z)
    audit = audited(problem, CONFIG, SIZE, 1000)
    assert audit.refuted and audit.shown.epsilon < audit.shown_gaussian.epsilon


def test_what_the_two_worlds_do_not_show_is_not_audited(problem):
    with pytest.raises(ValueError, match="matrix_views: got 3"):
        audited(problem, replace(CONFIG, matrix_views=3), SIZE, 10)
    with pytest.raises(ValueError, match="adjacency: got 'zero_out'"):  # the worlds differ by a replaced record
        audited(problem, replace(CONFIG, adjacency="zero_out"), SIZE, 10)
    with pytest.raises(ValueError, match="cohort: got 1; allowed is 0 or 2"):
        audited(problem, replace(CONFIG, cohort=1), SIZE, 10)

"""The audit of DP-RSGD: below the claim and not far below, and above it where the clip was forgotten."""

import pytest
import torch

from fedbook.geometry import SPD, Hyperboloid
from fedbook.papers.prirfed import Config, losses
from fedbook.papers.prirfed.audit import audited

CONFIG = Config(rounds=3, local_steps=3, lr=0.05, epsilon_call=4.0, delta_call=1e-4)
MANIFOLDS = pytest.mark.parametrize("manifold, dimension", [(SPD(), 2), (Hyperboloid(), 3)], ids=["spd", "hyperboloid"])


@pytest.mark.slow
@MANIFOLDS
def test_the_points_show_no_more_than_is_claimed(manifold, dimension):
    audit = audited(manifold, CONFIG, 10, 1000, dimension)
    assert not audit.refuted and audit.shown_gaussian.epsilon > 0.5 * audit.claimed


@pytest.mark.slow
@MANIFOLDS
def test_without_the_clip_the_claim_is_refuted(manifold, dimension, monkeypatch):
    monkeypatch.setattr(losses, "clip_factor", lambda length, bound: torch.ones_like(length))
    assert audited(manifold, CONFIG, 10, 1000, dimension).refuted


def test_nothing_is_audited_without_a_round():
    with pytest.raises(ValueError, match="rounds: got 0"):
        audited(Hyperboloid(), Config(rounds=0, local_steps=1), 10, 20, 3)

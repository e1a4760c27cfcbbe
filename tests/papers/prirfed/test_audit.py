"""The audit of DP-RSGD: below the claim and not far below, and above it where the clip was forgotten."""

from dataclasses import replace

import pytest
import torch

from fedbook.geometry import SPD, Hyperboloid, Sphere
from fedbook.papers.prirfed import Config, losses
from fedbook.papers.prirfed.audit import audited

CONFIG = Config(rounds=3, local_steps=3, lr=0.05, epsilon_call=4.0, delta_call=1e-4)
MANIFOLDS = pytest.mark.parametrize(
    "manifold, dimension, distance", [(SPD(), 2, 4.0), (Hyperboloid(), 3, 4.0), (Sphere(), 3, 1.5)],
    ids=["spd", "hyperboloid", "sphere"],
)  # fmt: skip


@pytest.mark.slow
@MANIFOLDS
def test_the_points_show_no_more_than_is_claimed(manifold, dimension, distance):
    audit = audited(manifold, CONFIG, 10, 1000, dimension, distance)
    assert not audit.refuted and audit.shown_gaussian.epsilon > 0.5 * audit.claimed


@pytest.mark.slow
@MANIFOLDS
def test_without_the_clip_the_claim_is_refuted(manifold, dimension, distance, monkeypatch):
    monkeypatch.setattr(losses, "clip_factor", lambda length, bound: torch.ones_like(length))
    assert audited(manifold, CONFIG, 10, 1000, dimension, distance).refuted


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"rounds": 0}, "rounds: got 0"), ({"batch_size": 5}, "batch_size: got 5"),
     ({"sigma": 1e-160}, "claimed: got None")],
)  # fmt: skip
def test_what_shows_nothing_is_not_audited(changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        audited(Hyperboloid(), replace(CONFIG, **changes), 10, 20, 3)

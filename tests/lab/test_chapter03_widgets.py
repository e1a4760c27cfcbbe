"""Chapter 3's widgets: what they draw and say is computed here again; every control goes to both ends."""

from itertools import islice

import numpy as np
import pytest
import torch

from fedbook.experiment import plan
from fedbook.geometry import Hyperboloid
from fedbook.lab import chapter03_widgets as widgets
from fedbook.papers.prirfed import PAPER

POINTS = widgets.digit_directions()
MEANS = {"surface": "sphere", "spread": 1.0, "base": 1.0, "iterations": 4}


# --- one private step


def test_digit_directions_are_a_projection_of_the_digits():
    from sklearn.datasets import load_digits

    z = load_digits().data
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    _, _, directions = np.linalg.svd(z, full_matrices=False)
    expected = z @ directions[:3].T
    expected = np.abs(expected / np.linalg.norm(expected, axis=1, keepdims=True))
    found = POINTS.abs().numpy()
    assert POINTS.shape == (400, 3) and (POINTS.mean(0)[0] > 0.9).all()
    gaps = np.abs(found[:, None] - expected).max(-1).min(1)  # each is one of them, up to the signs of the directions
    assert gaps.max() < 1e-5


# --- two means


def test_the_frechet_mean_on_the_disk_is_least(axes):
    """No point near the star has a smaller sum of squared distances to the drawn points."""
    from fedbook.papers.prirfed.embedding import from_disk

    widgets.draw_means(axes, **(MEANS | {"surface": "hyperbolic plane"}))
    drawn = {line.get_label(): torch.from_numpy(line.get_xydata()) for line in axes[0].lines}
    H, points, star = Hyperboloid(), from_disk(drawn["points"]), from_disk(drawn["Fréchet mean"])[0]
    turn = torch.linspace(0, 6.2, 20, dtype=torch.float64)[:, None]
    near = H.exp(star, 0.02 * (turn.cos() * H.basis(star)[0] + turn.sin() * H.basis(star)[1]))
    cost = H.squared_dist(near[:, None], points).sum(1)
    assert float(H.squared_dist(star, points).sum()) < float(cost.min()) - 1e-3
    first = from_disk(drawn["tangent mean"])[0]
    base = from_disk(drawn["base $x$"])[0]
    assert torch.allclose(first, H.exp(base, H.log(base, points).mean(0)), atol=1e-9)


# --- the algorithm, live

LIVE = {"epsilon_call": 1.0, "agents": 50, "solver": "dp-rsgd", "sigma_rule": "calibrated"}


def test_live_run_is_the_algorithm():
    steps = list(islice(widgets.start_live(**LIVE | {"agents": 2}), 3))  # one of the two is drawn twice
    changes = {"epsilon_call": 1.0, "agents": 2, "samples": 6000, "agents_per_round": 1, "rounds": 60,
               "evaluate_every": 1}  # fmt: skip
    rounds = plan(PAPER, "dp-rsgd", "pca-mnist", changes=changes, device="cpu").rounds()
    records = [rounds.step() for _ in range(3)]
    assert [t for t, _ in steps] == [1, 2, 3]
    assert [s.excess_risk for _, s in steps] == [r.metrics["excess_risk"][0] for r in records]
    last = steps[-1][1]
    assert last.epsilon == rounds.privacy[0].report(1e-4)["epsilon"] > 1.2 and last.epsilon_call == pytest.approx(1.0)
    assert last.words == "dp-rsgd, N = 2, ε = 1, calibrated σ"

"""Chapter 1's live panel is the algorithm, and the costs are what the wire and the clock say."""

from itertools import islice

import pytest

from fedbook.experiment import plan
from fedbook.lab import chapter01_live as live
from fedbook.lab.chapter01_widgets import digits, settings_of
from fedbook.papers.fedsc import PAPER, run_on
from fedbook.papers.fedsc.matrix_privacy import matrix_epsilon

LIVE = {"method": "fedsc", "coefficient": "schedule", "local_epochs": 1, "sigma": 0.0}


# --- the panel


@pytest.mark.parametrize("values", [{}, {"method": "fedavg-sc"}, {"coefficient": "q", "sigma": 0.3, "local_epochs": 2}])
def test_live_run_is_the_algorithm(monkeypatch, values):
    """Loss, gap and accuracy of the same plan, judged as every run is."""
    monkeypatch.setattr(live, "JUDGED_EVERY", 3)
    steps = list(islice(live.LiveRuns().start(**(LIVE | values)), 3))
    changes = LIVE | values | {"rounds": live.ROUNDS, "evaluate_every": 1}
    method = changes.pop("method")
    rounds = plan(PAPER, method, "digits", changes=changes, device="cpu").rounds()
    records = [rounds.step() for _ in range(3)]
    assert [t for t, _ in steps] == [1, 2, 3]
    for (_, step), record in zip(steps, records, strict=True):
        assert step.loss == pytest.approx(record.metrics["loss"][0], rel=1e-5)
        assert step.gap == pytest.approx(record.metrics["gap"][0], rel=1e-5)
    assert [step.knn for _, step in steps] == [records[0].metrics["knn"][0], None, records[2].metrics["knn"][0]]
    words = steps[0][1].words
    if method == "fedavg-sc":
        assert words == "fedavg-sc, E = 1"
    elif values:
        epsilon = matrix_epsilon(0.3, 4.0, min(rounds.federation.sizes[0].tolist()), 60, 1e-2)
        assert words == f"fedsc, E = 2, α = q, σ = 0.3 (ε = {epsilon:.2g})"
    else:
        assert words == "fedsc, E = 1, α falls, σ = 0"


# --- what the exchange costs


def test_bytes_are_the_ledgers():
    """A client's uploads and downloads of a FedSC round: encoder and triangle, or all entries of the matrix."""
    cost = live.exchange_cost(rounds=1)
    for noise, matrix in (("symmetric", cost.triangle), ("paper", cost.full)):
        settings = settings_of("fedsc", noise=noise, sigma=0.1)
        record = run_on(digits(), "fedsc", settings, [0], every=100).step()
        assert record.bytes_up == record.bytes_down == [10 * (matrix + cost.encoder)]
    assert (cost.width, cost.triangle, cost.full) == (16, 4 * 136, 4 * 256)

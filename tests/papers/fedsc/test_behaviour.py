"""FedSC's outcomes at small scale (check 21)."""

import pytest
import torch

from fedbook.experiment import plan
from fedbook.federation.loop import run
from fedbook.papers.fedsc import PAPER

BASE = {"lr": 0.01, "rounds": 60, "evaluate_every": 60}


def ends(method, **changes):
    rounds = run(plan(PAPER, method, "digits", "standard", BASE | changes, (0, 1, 2)).rounds())
    return {name: torch.tensor(values) for name, values in rounds.history[-1].metrics.items() if None not in values}


@pytest.fixture(scope="module")
def outcomes():
    return {method: ends(method) for method in ("fedsc", "fedavg-sc", "centralized-sc")}


@pytest.mark.slow
def test_the_order_of_the_objective_holds_for_every_seed(outcomes):
    fedsc, fedavg, central = (outcomes[m] for m in ("fedsc", "fedavg-sc", "centralized-sc"))
    assert bool((central["loss"] < fedsc["loss"]).all()) and bool((fedsc["loss"] < fedavg["loss"]).all())
    assert bool((fedsc["gap"] > fedavg["gap"]).all())  # FedAvg penalises clients that differ


@pytest.mark.slow
def test_the_order_of_the_votes_holds_on_average(outcomes):
    fedsc, fedavg, central = (outcomes[m]["knn"].mean() for m in ("fedsc", "fedavg-sc", "centralized-sc"))
    assert central > fedsc > fedavg


@pytest.mark.slow
def test_clients_that_do_not_differ_gain_nothing():
    """i.i.d. clients: FedAvg+SC is as good as FedSC, and comes near to training in one place."""
    fedsc, fedavg = (ends(method, partition="iid") for method in ("fedsc", "fedavg-sc"))
    assert float(fedavg["loss"].mean()) < float(fedsc["loss"].mean()) + 0.1
    assert float(fedavg["knn"].mean()) > float(fedsc["knn"].mean()) - 0.03

"""FedSC's outcomes at small scale (check 21), its stored tables, and its command line."""

import pytest
import torch

from fedbook.experiment import plan
from fedbook.federation.loop import run
from fedbook.lab.results import stored
from fedbook.papers.fedsc import METHODS, PAPER

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


def test_the_stored_tables_are_whole():
    full, part = stored("01_digits"), stored("01_digits_partial")
    assert {c["method"] for c in full["cells"]} == set(METHODS)
    federated = {"fedsc", "fedavg-sc", "fedavg-byol", "fedu", "fedema", "fedx", "fedca"}
    assert {c["method"] for c in part["cells"]} == federated
    for table in (full, part):
        for cell in table["cells"]:
            assert len(cell["runs"]) == table["seeds"] == 5
            if cell["tried"]:
                scores = [(entry["mean"] is not None, entry["mean"]) for entry in cell["tried"]]
                assert cell["tuned"] == cell["tried"][scores.index(max(scores))]["settings"]
            assert all(run["epsilon"] is None or cell["method"] in ("local-sc", "random-encoder", "raw-pixels")
                       for run in cell["runs"])  # fmt: skip


@pytest.mark.slow
def test_a_stored_cell_comes_out_again():
    table = stored("01_digits")
    cell = next(c for c in table["cells"] if c["method"] == "fedsc")
    changes = {"lr": cell["tuned"]["lr"], "evaluate_every": 60}
    again = run(plan(PAPER, "fedsc", "digits", "standard", changes, (0,)).rounds())
    for metric, tolerance in (("loss", 0.02), ("knn", 0.03), ("probe", 0.03)):
        found, kept = again.history[-1].metrics[metric][0], cell["runs"][0]["metrics"][metric]
        assert found == pytest.approx(kept, abs=tolerance), metric
    total = again.bytes.total["rounds"]
    assert (total["up"][0], total["down"][0]) == (cell["runs"][0]["bytes_up"], cell["runs"][0]["bytes_down"])

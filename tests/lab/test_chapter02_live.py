"""Chapter 2's live panel is the algorithm; a stored cell runs again to the same numbers."""

import pytest

from fedbook.experiment import compare, plan
from fedbook.lab import chapter02_live as live
from fedbook.papers.hetero_ssfl import PAPER

TINY = {"rounds": 2, "local_epochs": 1, "train_samples": 90, "test_samples": 30, "alignment_samples": 20,
        "alignment_batch": 10, "clients": 3, "classes_per_client": 4, "architectures": "mlp:8,mlp:6"}  # fmt: skip


@pytest.fixture
def small(monkeypatch):
    """The panel's runs with few images."""
    monkeypatch.setattr(live, "plan", lambda paper, method, problem, *rest, **options: plan(
        paper, method, problem, *rest, **(options | {"changes": TINY | options["changes"]})
    ))  # fmt: skip
    monkeypatch.setattr(live, "ROUNDS", 3)
    return live.LiveRuns({"hetero-ssfl": 0.1})


# --- the panel


def test_live_run_is_the_algorithm(monkeypatch, small):
    monkeypatch.setattr(live, "JUDGED_EVERY", 2)
    steps = list(small.start("hetero-ssfl", 2.0, 1, "mlp"))
    changes = TINY | {"mu": 2.0, "architectures": "mlp", "rounds": 3, "lr": 0.1}
    records = list(plan(PAPER, "hetero-ssfl", "digits", changes=changes | {"evaluate_every": 1}, device="cpu").rounds())
    assert [t for t, _ in steps] == [1, 2, 3] and steps[2][1].metrics is None
    assert steps[0][1].words == "Hetero-SSFL, E = 1, μ = 2, mlp"
    for i in (0, 1):
        for name, values in records[i].metrics.items():
            assert steps[i][1].metrics[name] == pytest.approx(float(values[0]), abs=1e-6)


# --- methods and seeds, a stored cell


@pytest.mark.slow
def test_a_stored_cell_again():
    made = compare(PAPER, ["hetero-ssfl"], "digits", changes=TINY | {"rounds": 1, "lr": 0.05}, seeds=2,
                   vary={"mu": [0.1, 4.0]}, device="cpu")  # fmt: skip
    made["settings"]["lr"] = 0.9  # what was tuned wins
    for cell in made["cells"]:
        cell["tuned"] = {"lr": 0.05}
    again = live.rerun(made, "hetero-ssfl", 1, mu=4.0)
    assert again.words == "Hetero-SSFL, seed 1, mu = 4.0" and again.seconds > 0
    assert set(again.here) == set(again.stored) >= {"probe_few", "knn", "alignment_test", "self_loss", "own_classes"}
    for name, value in again.stored.items():
        assert again.here[name] == pytest.approx(value, abs=1e-4)
    others = made["cells"][0]["runs"][1]["metrics"], made["cells"][1]["runs"][0]["metrics"]
    assert all(abs(one["self_loss"] - again.here["self_loss"]) > 1e-3 for one in others)  # other mu, other seed

"""Chapter 2's live panel is the algorithm; a stored cell runs again to the same numbers."""

from itertools import islice

import pytest

from fedbook.experiment import compare, plan
from fedbook.lab import chapter02_live as live
from fedbook.lab.controls import choice, slider
from fedbook.lab.runner import RunPanel, run_panel
from fedbook.papers.hetero_ssfl import PAPER
from tests.lab.checks import run_and_stop, run_to_the_end

TINY = {"rounds": 2, "local_epochs": 1, "train_samples": 90, "test_samples": 30, "alignment_samples": 20,
        "alignment_batch": 10, "clients": 3, "classes_per_client": 4, "architectures": "mlp:8,mlp:6"}  # fmt: skip
LIVE = {"method": "local-ssl", "mu": 0.5, "local_epochs": 1, "architectures": "mlp"}


@pytest.fixture
def small(monkeypatch):
    """The panel's runs with few images."""
    monkeypatch.setattr(live, "plan", lambda paper, method, problem, *rest, **options: plan(
        paper, method, problem, *rest, **(options | {"changes": TINY | options["changes"]})
    ))  # fmt: skip
    monkeypatch.setattr(live, "ROUNDS", 3)
    return live.LiveRuns({"hetero-ssfl": 0.1})


def controls(**values):
    at = LIVE | values
    return {
        "method": choice("method", live.METHODS, at["method"]), "mu": choice("μ  alignment", live.MUS, at["mu"]),
        "local_epochs": slider("E  local epochs", 1, 9, 1, at["local_epochs"]),
        "architectures": choice("architectures", live.MIXTURES, at["architectures"]),
    }  # fmt: skip


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


def test_live_runs_remember_those_before(monkeypatch, small, axes):
    first = list(islice(small.start(**LIVE), 3))
    second = list(islice(small.start(**(LIVE | {"method": "fedbyol"})), 1))
    sentence = small.draw(axes, second)
    old, new = axes[1].lines
    assert [line.get_label() for line in (old, new)] == ["local SSL, E = 1, mlp", "FedBYOL, E = 1, cnn_m"]
    assert old.get_linewidth() < new.get_linewidth()
    metrics = [step.metrics for _, step in first if step.metrics]
    assert axes[0].lines[0].get_xdata().tolist() == [0, 1, 3]
    assert axes[0].lines[0].get_ydata() == pytest.approx(
        [100 * metrics[0]["random_probe_few"], *(100 * m["probe_few"] for m in metrics)]
    )
    assert sentence.startswith("Round 1, FedBYOL, E = 1, cnn_m: after round 1 ") and "Before: local" in sentence
    assert "CKA 1.00" in sentence
    small.remembered = 1
    for epochs in (2, 3):
        next(small.start(**(LIVE | {"local_epochs": epochs})))
    assert [words.split("E = ")[1][0] for words in small.curves] == list("23")


@pytest.mark.parametrize("values", [{}, {"method": "hetero-ssfl", "mu": 8.0}])
def test_live_panel_headless(monkeypatch, small, values):
    monkeypatch.setenv("FEDBOOK_HEADLESS", "1")
    panel = run_panel(
        small.start, small.draw, total=3, label="on digits", axes=(1, 2, (10.0, 4.0)), **controls(**values)
    )
    assert panel.sentence.startswith("Round 2, ") and ": after round 1 " in panel.sentence


def test_live_panel_runs_and_stops(small):
    panel = RunPanel(small.start, small.draw, 3, "digits", (1, 2), None, controls())
    run_and_stop(panel, 1)
    run_to_the_end(panel)


def test_full_size_panel_starts():
    """The real sizes: every mixture and method can be named; the runs are not exhausted."""
    for method in live.METHODS.values():
        for mixture in live.MIXTURES.values():
            assert live.LiveRuns().start(method, 0.0, 1, mixture) is not None


# --- methods and seeds, a stored cell


def test_outcomes_are_the_runs():
    runs = {
        "alone": live.experiment("local-ssl", (0, 1), **(TINY | {"rounds": 1})),
        "pixels": live.experiment("raw-pixels", **TINY),
    }
    last = runs["alone"].history[-1].metrics
    text = live.outcome_table(runs)
    mean = 100 * sum(last["probe_few"]) / 2
    both = ", ".join(f"{100 * v:.1f}" for v in last["probe_few"])
    assert f"{mean:.1f} ({both})" in text.splitlines()[1] and "%" not in text
    assert text.splitlines()[2].rstrip().endswith("-")


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

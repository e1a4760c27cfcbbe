"""Chapter 1's live panel is the algorithm, and the costs are what the wire and the clock say."""

import time
from itertools import islice
from types import SimpleNamespace

import pytest

from fedbook.experiment import plan
from fedbook.lab import chapter01_live as live
from fedbook.lab.chapter01_widgets import digits, settings_of
from fedbook.lab.controls import choice, slider
from fedbook.lab.runner import RunPanel, run_panel
from fedbook.papers.fedsc import PAPER, run_on
from fedbook.papers.fedsc.matrix_privacy import matrix_epsilon
from tests.lab.checks import run_and_stop, run_to_the_end

LIVE = {"method": "fedsc", "coefficient": "schedule", "local_epochs": 1, "sigma": 0.0}


def controls(**values):
    chosen = LIVE | values
    return {
        "method": choice("method", live.METHODS, chosen["method"]),
        "coefficient": choice("α  coefficient", live.COEFFICIENTS, chosen["coefficient"]),
        "local_epochs": slider("E  local epochs", 1, 10, 1, chosen["local_epochs"]),
        "sigma": choice("σ  noise", live.SIGMAS, chosen["sigma"]),
    }


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


def test_live_runs_remember_those_before(axes):
    runs = live.LiveRuns()
    first = list(islice(runs.start(**LIVE), 2))
    again = runs.start(**(LIVE | {"coefficient": "q"}))
    second = [next(again)]
    sentence = runs.draw(axes, second)
    old, new = axes[1].lines
    assert [line.get_label() for line in (old, new)] == [first[0][1].words, second[0][1].words]
    assert list(old.get_ydata()) == [step.loss for _, step in first] and old.get_linewidth() < new.get_linewidth()
    assert list(axes[0].lines[0].get_ydata()) == [first[0][1].knn]
    assert (
        f"Before, at their last: fedsc, E = 1, α falls, σ = 0: {first[0][1].knn:.3f}, L {first[1][1].loss:.2f}."
        in sentence
    )
    repeated = list(islice(runs.start(**(LIVE | {"coefficient": "q"})), 3))
    next(again)  # the run that was given up
    assert runs.curves[repeated[0][1].words] == repeated and len(runs.curves) == 2
    for epochs in range(2, 8):
        next(runs.start(**(LIVE | {"method": "fedavg-sc", "local_epochs": epochs})))
    assert [words[-1] for words in runs.curves] == list("34567")


def test_live_picture(axes):
    losses, votes = (-0.5, -0.9, -1.25), (0.5, None, 0.75)
    history = [(t, live.Step(a, 0.25, k, "run")) for t, a, k in zip((1, 2, 3), losses, votes, strict=True)]
    sentence = live.LiveRuns().draw(axes, history)
    assert sentence == "After 3 rounds of run: kNN 0.750, L -1.25, gap 0.25."
    assert axes[0].lines[0].get_xydata().tolist() == [[1, 0.5], [3, 0.75]] and axes[0].get_ylim()[0] <= 0.5
    assert axes[1].lines[0].get_xydata().tolist() == [[1, -0.5], [2, -0.9], [3, -1.25]]


@pytest.mark.parametrize(
    "values",
    [{}, {"method": "fedavg-sc"}, {"coefficient": "q"}, {"local_epochs": 10}, *({"sigma": s} for s in live.SIGMAS[1:]),
     {"method": "fedavg-sc", "coefficient": "q", "local_epochs": 10, "sigma": 3.0},
     {"coefficient": "q", "local_epochs": 10, "sigma": 3.0}],
)  # fmt: skip
def test_live_panel_at_its_ends(monkeypatch, values):
    monkeypatch.setenv("FEDBOOK_HEADLESS", "1")
    runs = live.LiveRuns()
    panel = run_panel(runs.start, runs.draw, total=live.ROUNDS, label="FedSC on digits", axes=(1, 2, (10.0, 3.6)),
                      **controls(**values))  # fmt: skip
    assert panel.sentence.startswith("After 2 rounds of " + (LIVE | values)["method"])


def test_live_panel_runs_and_stops(monkeypatch):
    monkeypatch.setattr(live, "ROUNDS", 8)
    runs = live.LiveRuns()
    panel = RunPanel(runs.start, runs.draw, live.ROUNDS, "FedSC", (1, 2), None, controls(method="fedavg-sc"))
    run_and_stop(panel, 3)
    panel.controls["local_epochs"].value = 2
    run_to_the_end(panel)
    assert len(runs.curves) == 2 and "Before, at their last" in panel.sentence


# --- what the exchange costs


def test_bytes_are_the_ledgers():
    """A client's uploads and downloads of a FedSC round: encoder and triangle, or all entries of the matrix."""
    cost = live.exchange_cost(rounds=1)
    for noise, matrix in (("symmetric", cost.triangle), ("paper", cost.full)):
        settings = settings_of("fedsc", noise=noise, sigma=0.1)
        record = run_on(digits(), "fedsc", settings, [0], every=100).step()
        assert record.bytes_up == record.bytes_down == [10 * (matrix + cost.encoder)]
    assert (cost.width, cost.triangle, cost.full) == (16, 4 * 136, 4 * 256)


def test_seconds_are_algorithm_2s_and_the_trainings(monkeypatch):
    """A clock that only the two calls of a round move; the first round is not counted, though it is the fastest."""
    clock, given = [0.0], {"upload_matrix": [1.0, 3.0, 2.0, 4.0], "train": [9.0, 50.0, 40.0, 60.0]}
    monkeypatch.setattr(live, "time", SimpleNamespace(process_time=lambda: clock[0]))
    plain = live.run_on

    def slowed(*args):
        run = plain(*args)
        for name, seconds in given.items():
            method, left = getattr(run.algorithm, name), iter(seconds)

            def timed(local, method=method, left=left):
                clock[0] += next(left)
                return method(local)

            setattr(run.algorithm, name, timed)
        return run

    monkeypatch.setattr(live, "run_on", slowed)
    cost = live.exchange_cost(rounds=3)
    assert (cost.matrix_s, cost.training_s) == pytest.approx((0.2, 4.0))


def test_real_clock_runs():
    cost = live.exchange_cost("mlp", 32, rounds=1)
    assert 0 < cost.matrix_s < cost.training_s < time.process_time()


def test_the_papers_bytes():
    cost = live.paper_cost()
    assert cost.triangle == 4 * 131_328 and cost.full == 4 * 262_144
    assert cost.encoder == 4 * (17_272_238 + 1_050_112) and cost.matrix_s is None


def test_cost_table():
    rows = [
        live.Cost("small", 16, 544, 1024, 5440, 0.001, 0.004),
        live.Cost("large", 512, 525_312, 1_048_576, 10**7, None, None),
    ]
    lines = live.cost_table(rows).splitlines()
    assert lines[1].split() == ["small", "16", "0.5", "1.0", "5.4", "10.0%", "|", "1.00", "4.00", "25%"]
    assert lines[2].split() == ["large", "512", "525.3", "1,048.6", "10,000.0", "5.3%", "|", "not", "run"]
    assert lines[3].endswith("has 4,200.4 kB.") and lines[1].index("|") == lines[2].index("|") == lines[0].index("|")


# --- nonsense

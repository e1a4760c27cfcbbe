"""Chapter 4's widgets: what their sentences say is computed here from the whole vectors and runs."""

import math
from itertools import islice

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from fedbook.experiment import plan
from fedbook.federation import Rounds
from fedbook.lab import chapter04_widgets as widgets
from fedbook.lab.chapter04_budget import draw_budget_live
from fedbook.lab.chapter04_figures import client_loss
from fedbook.lab.controls import choice, log_slider, slider
from fedbook.lab.explore import Explorer
from fedbook.lab.runner import run_panel
from fedbook.papers.dp2_fedsam import PAPER, Config, DP2FedSAM
from fedbook.papers.dp2_fedsam.problem import PersonalSettings, personal_problem
from fedbook.papers.dp2_fedsam.sharpness import gaussian_rise, top_eigenvalues
from fedbook.randomness import normal, stream
from tests.lab.checks import numbers

UPDATES = normal((12, 30), stream(1, "updates")) + torch.linspace(0, 2, 30, dtype=torch.float64)
CLIP = {"clip_norm": 3.0, "noise_multiplier": 0.5, "cohort": 12}


# --- clipping


@pytest.mark.parametrize("bound", [0.1, 5.5, 100.0])
def test_clip_sentence_is_that_of_the_whole_vectors(ax, bound):
    sentence = widgets.clip_drawer(UPDATES)(ax, **(CLIP | {"clip_norm": bound}))
    lengths = UPDATES.norm(dim=1)
    mean, clipped = UPDATES.mean(0), (UPDATES * (bound / lengths).clamp(max=1)[:, None]).mean(0)
    angle = math.degrees(math.acos(min(1.0, float(mean @ clipped / mean.norm() / clipped.norm()))))
    noise = 0.5 * bound * math.sqrt(30) / 12
    assert sentence.startswith(f"{int((lengths > bound).sum())} of 12 updates are longer than C = {bound:.3g} ")
    found = numbers(
        sentence, r"mean has length (\S+) the clipped mean (\S+) turned by (\S+) degrees; the noise has length"
    )
    assert found == pytest.approx([float(f"{mean.norm():.3g}"), float(f"{clipped.norm():.3g}"), round(angle)])
    times = float(f"{noise / clipped.norm():.3g}")
    assert f"length {noise:.3g} in 30 dimensions" in sentence and f"dimensions, {times:g} times" in sentence


def test_clip_picture_is_a_projection(ax):
    """The first axis is the mean, the second the principal direction of what is left; nothing gets longer."""
    widgets.clip_drawer(UPDATES)(ax, **CLIP)
    drawn = {line.get_label(): np.column_stack(line.get_data()) for line in ax.lines}
    flat, clipped = drawn["update"], drawn["clipped update"]
    rows = UPDATES.numpy()
    mean = rows.mean(0)
    along = mean / np.linalg.norm(mean)
    assert sorted(flat[:, 0]) == pytest.approx(sorted(rows @ along))
    rest = rows - mean - np.outer((rows - mean) @ along, along)
    first = np.linalg.svd(rest)[2][0]
    assert sorted(abs(flat[:, 1])) == pytest.approx(sorted(abs(rest @ first))) and abs(flat[:, 1].mean()) < 1e-9
    assert (np.linalg.norm(clipped, axis=1) <= 3.0 + 1e-9).all()
    ratio = np.linalg.norm(clipped, axis=1) / np.linalg.norm(flat, axis=1)
    assert sorted(ratio) == pytest.approx(sorted(np.minimum(1, 3.0 / np.linalg.norm(rows, axis=1))))
    circle, ball = (patch for patch in ax.patches if isinstance(patch, Circle))
    assert circle.radius == 3.0 and ball.radius == pytest.approx(0.5 * 3.0 * math.sqrt(30) / 12)
    assert ball.center == pytest.approx(clipped.mean(0))
    low, high = ax.get_ylim()
    assert flat[:, 1].min() > low and flat[:, 1].max() < high and flat[:, 0].max() < ax.get_xlim()[1]


def test_clip_cohorts_and_noise(ax):
    draw = widgets.clip_drawer(UPDATES, seed=3)
    draw(ax, **(CLIP | {"cohort": 5, "noise_multiplier": 0.0}))
    lines = {line.get_label(): line for line in ax.lines}
    assert len(lines["update"].get_xdata()) == 5 and "length of the noise" not in lines
    sizes = [len([p for p in axes.patches if isinstance(p, Circle)]) for axes in (ax, redrawn(draw, CLIP))]
    assert sizes == [1, 2]
    loud = draw(Figure().subplots(), **(CLIP | {"noise_multiplier": 50.0}))
    assert "beyond the picture" in loud and "beyond" not in draw(Figure().subplots(), **CLIP)
    other = redrawn(widgets.clip_drawer(UPDATES, seed=4), CLIP | {"cohort": 5})
    assert not np.allclose(other.lines[0].get_xdata(), lines["update"].get_xdata())


def redrawn(draw, values):
    axes = Figure().subplots()
    draw(axes, **values)
    return axes


def test_opposite_updates_cancel():
    """Clients 10 and -1 with C = 1: the mean is 4.5, the clipped mean 0."""
    updates = torch.tensor([[10.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    sentence = widgets.clip_drawer(updates)(Figure().subplots(), clip_norm=1.0, noise_multiplier=0.0, cohort=2)
    assert "Their mean has length 4.5, the clipped mean 0, as the vectors cancel; the noise has length 0" in sentence
    even = torch.tensor([[1.0, 2.0], [-1.0, -2.0], [0.0, 0.5], [0.0, -0.5]], dtype=torch.float64)
    sentence = widgets.clip_drawer(even)(Figure().subplots(), clip_norm=1.0, noise_multiplier=1.0, cohort=4)
    assert "mean has length 0, the clipped mean 0, as the vectors cancel" in sentence and "times" not in sentence


# --- the slice around a trained body


def trained(radius):
    config = Config(
        rounds=4, client_rate=1.0, batch_size=0, head_epochs=5, body_epochs=5, lr_body=0.3, lr_head=0.3, momentum=0.0,
        sam_radius=radius, clip_norm=math.inf,
    )  # fmt: skip
    algorithm = DP2FedSAM(config, PROBLEM.model, "p-fedsam")
    made = Rounds(
        algorithm, PROBLEM.federation(), 4, seeds=(0, 3), evaluate=algorithm.evaluation(PROBLEM, (0, 3)), every=4
    )
    for _ in made:
        pass
    return made


@pytest.fixture(scope="module", autouse=True)
def trained_once():
    global PROBLEM, RUNS, DRAW  # not while tests are collected
    PROBLEM = personal_problem(
        "digits", PersonalSettings(clients=6, train_samples=240, own_share=0.2, model="mlp16"), (0, 3)
    )
    RUNS = {0.0: trained(0.0), 0.3: trained(0.3)}
    DRAW = widgets.radius_drawer(PROBLEM, RUNS, slot=1, directions=24)


@pytest.mark.parametrize("radius", [0.0, 0.3])
def test_slices_say_what_noise_costs(ax, radius):
    sentence = DRAW(ax, sam_radius=radius, std=0.2)
    loss, body = client_loss(PROBLEM, RUNS[radius], 1)
    here, rise = numbers(sentence, r"loss (\S+) noise of standard deviation 0.2 on every parameter lifts it by (\S+)")
    assert here == pytest.approx(float(loss(body)), abs=6e-4)
    expected = gaussian_rise(loss, body, 0.2, 64, stream(7, "other noise"))
    assert abs(rise - float(expected.mean)) < 5 * float(expected.error) + 1e-3
    (value,) = numbers(sentence, r"top eigenvalue of the Hessian (\S+)")
    assert value == pytest.approx(float(top_eigenvalues(loss, body, stream(9, "x"), steps=40).values[0]), rel=0.02)
    accuracy = RUNS[radius].history.values("accuracy")[1][1, -1]
    assert sentence.endswith(f"accuracy {accuracy:.3f}.") and ("(q = 0:" in sentence) == (radius > 0)


def test_slice_picture(ax):
    DRAW(ax, sam_radius=0.3, std=0.1)
    reference, curve, left, right = ax.lines
    assert reference.get_label() == "q = 0, mean" and curve.get_label() == "q = 0.3, mean"
    assert left.get_xdata()[0] == -0.1 and right.get_xdata()[0] == 0.1 and ax.get_xlim() == (-0.3, 0.3)
    middle = len(curve.get_xdata()) // 2
    assert curve.get_xdata()[middle] == 0 and curve.get_color() != reference.get_color()
    tops = [redrawn(DRAW, {"sam_radius": q, "std": 0.1}).get_ylim() for q in RUNS]
    assert tops[0] == tops[1]  # pictures can be compared


def test_no_noise_lifts_nothing(ax):
    assert "lifts it by 0;" in DRAW(ax, sam_radius=0.0, std=0.0)


# --- the algorithm, live


def test_live_run_is_the_algorithm_and_its_control():
    values = {"sam_radius": 0.05, "clip_norm": 0.5, "epsilon": 8.0, "classes_per_client": 3}
    steps = list(islice(widgets.start_live(**values), 2))
    assert [t for t, _ in steps] == [1, 2]
    for name, method in (("accuracy", "dp2-fedsam"), ("frozen", "frozen-body")):
        rounds = plan(
            PAPER, method, "digits", changes=values | {"rounds": 40, "evaluate_every": 1}, device="cpu"
        ).rounds()
        expected = [rounds.step() for _ in range(2)]
        assert [getattr(step, name) for _, step in steps] == [r.metrics["accuracy"][0] for r in expected]
        if name == "accuracy":
            assert steps[1][1].update_norm == expected[1].trace["update_norm"][0]


def test_live_picture(ax):
    history = [(1, widgets.Step(0.3, 0.2, 1.5)), (2, widgets.Step(0.6, 0.5, None))]
    sentence = widgets.draw_live(ax, history)
    assert sentence == "After 2 rounds: accuracy 0.600, with a random body and the same heads 0.500."
    assert [list(line.get_ydata()) for line in ax.lines] == [[0.3, 0.6], [0.2, 0.5]]
    assert "mean length of an update 1.5" in widgets.draw_live(Figure().subplots(), history[:1])


@pytest.mark.parametrize("epsilon", [0.0, 2.0])
@pytest.mark.parametrize("classes", [1, 5])
def test_live_panel_at_its_corners(epsilon, classes, monkeypatch):
    monkeypatch.setenv("FEDBOOK_HEADLESS", "1")
    panel = run_panel(
        widgets.start_live, widgets.draw_live, total=40, label="DP2-FedSAM on digits", steps_headless=1,
        sam_radius=slider("q  SAM radius", 0.0, 0.5, 0.05, 0.1), clip_norm=log_slider("C  clip norm", 0.05, 5.0, 0.5),
        epsilon=choice("ε  budget", {"2": 2.0, "8": 8.0, "no noise": 0.0}, epsilon),
        classes_per_client=slider("S  classes a client", 1, 5, 1, classes),
    )  # fmt: skip
    assert panel.sentence.startswith("After 1 rounds") and len(panel.history) == 1


# --- every corner of every control


def test_sweeps():
    clip = Explorer(
        widgets.clip_drawer(UPDATES), (1, 1), None,
        {"clip_norm": log_slider("C", 0.01, 100.0, 1.0), "noise_multiplier": slider("σ", 0.0, 5.0, 0.5, 1.0),
         "cohort": slider("m", 2, 12, 1, 12)}, None,
    )  # fmt: skip
    budget = Explorer(
        draw_budget_live, (1, 1, (7.5, 3.6)), None,
        {"noise_multiplier": log_slider("σ", 0.5, 20.0, 2.0), "rate": log_slider("r", 0.01, 1.0, 0.05),
         "rounds": slider("T", 1, 1001, 100, 201), "delta_exponent": slider("log δ", -9, -2, 1, -3)}, None,
    )  # fmt: skip
    radius = Explorer(
        DRAW, (1, 1), None, {"sam_radius": choice("q", [0.0, 0.3], 0.3), "std": slider("s", 0.0, 0.3, 0.05, 0.1)}, None
    )
    for explorer, settings in ((clip, 8), (budget, 11), (radius, 6)):
        assert len(explorer.sweep()) == settings

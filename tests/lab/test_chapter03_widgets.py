"""Chapter 3's widgets: what they draw and say is computed here again; every control goes to both ends."""

import math
from itertools import islice

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from fedbook.experiment import plan
from fedbook.geometry import Hyperboloid, Sphere
from fedbook.lab import chapter03_widgets as widgets
from fedbook.lab.chapter03_sphere import View, draw_sphere_geometry, place
from fedbook.lab.controls import choice, log_slider, slider
from fedbook.lab.explore import Explorer
from fedbook.lab.runner import RunPanel, run_panel
from fedbook.papers.prirfed import PAPER
from fedbook.privacy.gaussian import exact_epsilon
from fedbook.randomness import normal, stream
from tests.lab.checks import numbers, run_and_stop, run_to_the_end

S = Sphere()
POINTS = widgets.digit_directions()
DRAW = widgets.clip_drawer(POINTS)
CLIP = {"clip_norm": 0.6, "epsilon": 1.0, "records": 50, "seed": 0}
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


def test_clip_says_what_the_step_does(axes):
    sentence = DRAW(axes, **CLIP)
    x, z = place(62, 8), POINTS[:50]
    a = z @ x
    pulls = 2 * a[:, None] * (z - a[:, None] * x)
    length = pulls.norm(dim=1)
    mean = (pulls * (0.6 / length).clamp(max=1)[:, None]).mean(0)
    many, told, sigma = numbers(sentence, r"^(\d+) of 50 .* mean is (\S+) long.*sigma = (\S+) in")
    assert many == int((length > 0.6).sum()) and told == float(f"{mean.norm():.3g}")
    assert exact_epsilon(2 * 0.6 / 50 / sigma, 1e-4) == pytest.approx(1.0, rel=0.01)  # sigma was rounded
    exact = sigma_of(1.0, 0.6, 50)
    noise = S.project(x, normal((3,), stream(0, "clip and noise")))
    new = S.exp(x, 0.5 * (mean + exact * noise))
    best = torch.linalg.svd(POINTS).Vh[0]
    best = best * torch.sign(best @ x)
    before, after = numbers(sentence, r"goes from (\S+) to (\S+) away")
    assert before == pytest.approx(float(S.dist(x, best)), rel=5e-3)
    assert after == pytest.approx(float(S.dist(new, best)), rel=5e-3)
    eye = View(32, 22)
    squares = [line.get_xydata()[0] for line in axes[0].lines if line.get_marker() == "s" and len(line.get_xdata())]
    assert any(np.allclose(point, eye.flat(new), atol=1e-6) for point in squares)


def sigma_of(epsilon, bound, n):
    """By bisection on the exact curve."""
    low, high = 1e-4, 1e3
    for _ in range(100):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if exact_epsilon(2 * bound / n / middle, 1e-4) <= epsilon else (middle, high)
    return high


def test_the_tangent_plane_has_true_lengths(axes):
    DRAW(axes, **CLIP)
    drawn = {line.get_label(): line.get_xydata() for line in axes[1].lines}
    a = POINTS[:50] @ place(62, 8)
    true = (2 * a.abs() * (1 - a**2).sqrt()).numpy()
    assert np.linalg.norm(drawn["against a gradient"], axis=1) == pytest.approx(true)
    assert np.linalg.norm(drawn["clipped"], axis=1) == pytest.approx(np.minimum(true, 0.6))
    assert drawn["clipped mean"][1] == pytest.approx(drawn["clipped"].mean(0))
    circles = [p for p in axes[1].patches if isinstance(p, Circle)]
    sigma = sigma_of(1.0, 0.6, 50)
    assert [c.radius for c in circles] == pytest.approx([0.6, sigma, 2 * sigma], rel=1e-6)
    assert circles[1].center == pytest.approx(drawn["clipped mean"][1])


def test_clip_seeds_and_lost_steps(axes):
    here = [DRAW(Figure().subplots(1, 2), **(CLIP | {"seed": seed})) for seed in (0, 1)]
    assert here[0] != here[1] and here[0].split("This")[0] == here[1].split("This")[0]
    loud = DRAW(axes, **(CLIP | {"epsilon": 0.05, "records": 10}))
    assert "beyond the picture" in loud and "beyond" not in here[0]


# --- two means


@pytest.mark.parametrize("surface", ["sphere", "hyperbolic plane"])
def test_means_say_their_distances(axes, surface):
    sentence = widgets.draw_means(axes, **(MEANS | {"surface": surface, "iterations": 12}))
    (errors,) = (line.get_ydata() for line in axes[1].lines)
    told = numbers(sentence, r"base (\S+) away.*mean is (\S+) away from it, after 12 of them (\S+) In")
    assert told == [float(f"{errors[0]:.3g}"), float(f"{errors[1]:.2g}"), float(f"{errors[-1]:.2g}")]
    assert len(errors) == 13 and (np.diff(np.log(errors)) < -0.5).all()  # converges to the point that is drawn


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


def test_flat_is_where_one_step_is_enough():
    """Half the lengths: the tangent mean's error falls to an eighth, its share of the spread to a quarter."""
    errors = []
    for scale in (0.2, 0.1):
        axes = Figure().subplots(1, 2)
        widgets.draw_means(axes, **(MEANS | {"spread": scale, "base": scale}))
        errors.append(axes[1].lines[0].get_ydata()[1])
    assert errors[0] / errors[1] == pytest.approx(8, rel=0.05) and errors[1] < 1e-3


# --- the algorithm, live

LIVE = {"epsilon_call": 1.0, "agents": 50, "solver": "dp-rsgd", "sigma_rule": "calibrated"}


def controls(**values):
    chosen = LIVE | values
    return {
        "epsilon_call": log_slider("ε  of one call", 0.05, 10.0, chosen["epsilon_call"]),
        "agents": slider("N  agents", 2, 50, 4, chosen["agents"]),
        "solver": choice("solver", widgets.SOLVERS, chosen["solver"]),
        "sigma_rule": choice("σ  noise", {"calibrated": "calibrated", "as published": "paper"}, chosen["sigma_rule"]),
    }


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


def test_live_floor_is_that_of_the_noise():
    (_, step), *_ = islice(widgets.start_live(**LIVE), 1)
    z = widgets._images().samples["z"]
    values = np.linalg.svd(z.numpy(), compute_uv=False) ** 2 / len(z)
    values = np.concatenate([values, np.zeros(784 - len(values))])
    sigma = sigma_of(1.0, 1.0, 120) * math.sqrt(3)
    floor = 0.05 * sigma**2 * sum(1 / (2 - 0.2 * (values[0] - v)) for v in values[1:])
    assert step.floor == pytest.approx(floor, rel=1e-6)


def test_live_picture(ax):
    history = [(t, widgets.Step(r, 1.0, 0.1 * t, 1e-4, 0.01, "dp-rsgd")) for t, r in ((1, 0.4), (2, 0.1))]
    sentence = widgets.draw_live(ax, history)
    assert sentence == (
        "After 2 rounds: excess risk 0.1, predicted noise floor 0.01. Sound epsilon of one call 1, of the run so far "
        "0.2, both at delta = 0.0001."
    )
    run, floor = ax.lines
    assert list(run.get_ydata()) == [0.4, 0.1] and list(floor.get_ydata()) == [0.01, 0.01]
    assert ax.get_ylim()[0] < 0.01 and ax.get_ylim()[1] > 0.4 and ax.get_yscale() == "log"
    wild = [(1, history[0][1]._replace(floor=5.0, epsilon=math.inf))]
    assert "noise wins" in (told := widgets.draw_live(Figure().subplots(), wild)) and "so far inf" in told


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (LIVE, "ε = 1, calibrated"),
        (LIVE | {"epsilon_call": 0.05, "sigma_rule": "paper"}, "ε = 0.05, published"),
        (LIVE | {"epsilon_call": 10.0, "agents": 2}, "N = 2, ε = 10"),
        (LIVE | {"epsilon_call": 10.0, "agents": 2, "solver": "dp-rsvrg", "sigma_rule": "paper"}, "dp-rsvrg, N = 2"),
        (LIVE | {"epsilon_call": 0.05, "solver": "dp-rsvrg"}, "dp-rsvrg, N = 50"),
    ],
)
def test_live_panel_at_its_ends(monkeypatch, values, words):
    monkeypatch.setenv("FEDBOOK_HEADLESS", "1")
    panel = run_panel(
        widgets.start_live, widgets.draw_live, total=widgets.ROUNDS, label="PriRFed on MNIST", steps_headless=1,
        **controls(**values),
    )  # fmt: skip
    assert panel.sentence.startswith("After 1 rounds") and words in panel.history[0][1].words


def test_live_panel_runs_and_stops():
    panel = RunPanel(widgets.start_live, widgets.draw_live, widgets.ROUNDS, "PriRFed", (1, 1), None, controls())
    run_and_stop(panel, 3)
    run_to_the_end(panel)
    assert f"After {widgets.ROUNDS} rounds" in panel.sentence


# --- every corner of every control


def test_sweeps():
    wide = (1, 2, (9.0, 4.2))
    clip = Explorer(
        DRAW, wide, None,
        {"clip_norm": slider("τ  clip norm", 0.05, 1.0, 0.05, 0.6),
         "epsilon": log_slider("ε  of one call", 0.05, 10.0, 1.0), "records": slider("N_i  records", 10, 400, 10, 50),
         "seed": slider("seed  of the noise", 0, 20, 1, 0)}, None,
    )  # fmt: skip
    means = Explorer(
        widgets.draw_means, wide, None,
        {"surface": choice("M  surface", list(widgets.SURFACES), "sphere"),
         "spread": slider("r  spread", 0.1, 1.4, 0.1, 1.0),
         "base": slider("b  distance of the base", 0.0, 1.4, 0.1, 1.0),
         "iterations": slider("n  tangent means", 1, 12, 1, 4)},
        None,
    )  # fmt: skip
    geometry = Explorer(
        draw_sphere_geometry, (1, 1, (5.5, 5.0)), None, {"length": slider("|v|  length", 0.1, 6.1, 0.2, 1.1)}, None
    )
    for explorer, settings in ((clip, 10), (means, 10), (geometry, 5)):
        assert len(explorer.sweep()) == settings
        assert not hasattr(explorer.image, "tooltip") or not explorer.image.tooltip

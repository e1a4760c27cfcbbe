"""Chapter 4's widgets: what their sentences say is computed here from the whole vectors and runs."""

import math
from itertools import islice

import pytest
import torch

from fedbook.experiment import plan
from fedbook.federation import Rounds
from fedbook.lab import chapter04_widgets as widgets
from fedbook.papers.dp2_fedsam import PAPER, Config, DP2FedSAM
from fedbook.papers.dp2_fedsam.problem import PersonalSettings, personal_problem
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

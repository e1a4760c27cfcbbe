"""Chapter 2's figures of theory: what is drawn agrees with definitions computed here, sentences say what is drawn."""

from functools import cache

import pytest
import torch

from fedbook.data import digits
from fedbook.lab import chapter02_drift as drift
from fedbook.lab import chapter02_figures as figures
from fedbook.papers.hetero_ssfl import run_on


@pytest.fixture(scope="module", autouse=True)
def trained_once():
    global RUN  # not while tests are collected
    RUN = drift.run(drift.digits_problem(20, 20), rounds=3, steps=2)


RUNS = []  # those that trained_alone made


@cache
def found():
    def recorded(*args):
        RUNS.append(run_on(*args))
        return RUNS[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "run_on", recorded)
        return figures.trained_alone(1)


# --- clients alone and aligned


def test_representations_are_those_of_the_clients():
    """Each network applied by hand to the first ten test images of each class."""
    one, images = found(), digits()
    rows = torch.cat([torch.nonzero(images.test_y == c).flatten()[:10] for c in range(10)])
    assert one.clients == ["cnn_s", "cnn_m", "mlp"] and one.rounds == 1
    assert one.classes.tolist() == [c for c in range(10) for _ in range(10)]
    assert [run.algorithm.name for run in RUNS] == ["local-ssl", "hetero-ssfl"]
    for run, way in zip(RUNS, ("alone", "aligned"), strict=True):
        plain = run.algorithm.views.plain(images.test_x[rows].float())
        for word, a in zip(one.clients, one.found[way], strict=True):
            theta = {name: p[0, 0] for name, p in run.clients[word]["theta"].items()}
            expected = run.algorithm.nets[word].represent(theta, plain)[0]
            assert torch.allclose(a, expected.double(), atol=1e-5) and a.dtype == torch.float64
    assert not torch.allclose(one.found["alone"][0], one.found["aligned"][0], atol=1e-2)

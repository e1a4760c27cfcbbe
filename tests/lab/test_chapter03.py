"""Chapter 3's exercises: what is right by their checkers is right by the package, whichever way it was found."""

import math

import pytest
import torch

from fedbook.geometry import SPD, Sphere
from fedbook.lab import chapter03
from fedbook.lab.chapter03_theory import clipped, noise_covariance
from fedbook.lab.exercises import check
from fedbook.papers.prirfed.participation import participation_delta
from fedbook.randomness import normal, stream


def test_the_step_by_hand_is_the_packages():
    x = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    y = torch.tensor([[1.0, 0.0, 0.0], [0.0, math.sin(0.2), math.cos(0.2)]], dtype=torch.float64)
    slopes = -2 * Sphere().log(x, y)
    new = Sphere().exp(x, -clipped(Sphere(), x, slopes, 1.0).mean(0))
    assert chapter03.solution_step_by_hand() == pytest.approx(new.tolist(), abs=1e-12)
    assert check("03-1", new).status == "right" and check("03-1", tuple(new.tolist())).status == "right"


def test_other_isotropic_noises_are_right_too():
    def triangular(x, w):  # L S L^T with the triangular root, as the package has it
        return SPD().tangent_gaussian(x, w)

    def turned(x, w):  # any rotation of the coordinates is as good
        q, _ = torch.linalg.qr(normal((len(w), len(w)), stream(0, "rotation")))
        return SPD().tangent_gaussian(x, q @ w)

    assert check("03-2", triangular).status == "right" and check("03-2", turned).status == "right"
    x = SPD().random_point(3, stream(5, "point"))
    eye = torch.eye(6, dtype=torch.float64)
    assert torch.allclose(noise_covariance(SPD(), x, chapter03.solution_matrix_noise), eye, atol=1e-10)
    assert "linear" in check("03-2", lambda x, w: SPD().tangent_gaussian(x, w.square())).problem


@pytest.mark.parametrize("case", [(0.136, 100, 1, 500), (1.0, 8, 2, 20), (0.5, 3, 3, 7)])
def test_the_delta_of_a_run_is_the_participation_accountants(case):
    epsilon, agents, per_round, rounds = case
    found = chapter03.solution_run_delta(epsilon, 0.2, rounds, per_round / agents)
    assert found == pytest.approx(participation_delta(epsilon, agents, per_round, rounds, 0.2), rel=1e-9)

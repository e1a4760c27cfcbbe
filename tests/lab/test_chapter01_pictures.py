"""Chapter 1's pictures show what the package computes, in a frame that changes no loss, and say its numbers."""

import pytest
import torch

from fedbook.lab import chapter01_pictures as pictures
from fedbook.lab.chapter01_theory import pairwise_loss
from fedbook.papers.fedsc.spectral import bank_objective, norm_clip


@pytest.fixture(scope="module", autouse=True)
def trained_once():
    global THREE, SMALL  # not while tests are collected
    THREE = pictures.three_clients(samples=20, rounds=15)
    SMALL = pictures.few_classes((3, 8, 5), samples=10)


# --- three clients


def test_the_frame_changes_no_loss():
    theta = {name: p.detach() for name, p in SMALL.encoder.module.named_parameters()}
    one = pictures.placed(SMALL, theta, 4.0)
    z = norm_clip(SMALL.encoder.apply(theta, SMALL.bank.flatten(0, 1)), 4.0).detach().unflatten(0, (30, 8))
    owner = SMALL.owners(0)
    assert one.loss == pytest.approx(float(pairwise_loss(z)), abs=1e-5)
    turned = one.z.unflatten(0, (30, 8))
    assert float(pairwise_loss(turned)) == pytest.approx(one.loss, abs=1e-5)
    found = bank_objective(turned, owner, 3)
    assert one.gap == pytest.approx(float(found.gap), abs=1e-6)
    assert torch.allclose(one.matrices, found.matrices, atol=1e-5)
    means = torch.stack([turned[owner == j].mean((0, 1)) for j in range(3)])
    means = means / means.norm(dim=1, keepdim=True)
    assert torch.allclose(one.cosines, (means @ means.T).abs(), atol=1e-5)
    angle = torch.tensor([[0.96, -0.28, 0], [0.28, 0.96, 0], [0, 0, 1]])
    assert float(means.trace()) >= float((means @ angle).trace())  # no turn brings them nearer to the axes

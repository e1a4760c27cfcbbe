"""Chapter 1's exercises: what is right by their checkers is right by the package, whichever way it was found."""

import math

import pytest
import torch

from fedbook.chapters import fedsc_exercises as lesson
from fedbook.lab.exercises import check
from fedbook.papers.fedsc.spectral import bank_objective, norm_clip, spectral_loss
from fedbook.randomness import normal, stream


def test_the_two_clients_are_the_packages():
    z = torch.tensor([[2.0, 0.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]).double()[:, None]
    whole = bank_objective(z, torch.tensor([0, 1, 1, 1]), 2)
    inter = spectral_loss(z[:1].expand(1, 2, 2), 0.25, whole.matrices[1]).inter
    assert lesson.solution_two_clients() == pytest.approx(
        [float(whole.loss), float(whole.loss + whole.gap), float(inter)], abs=1e-12
    )
    assert check("01-1", torch.tensor([-0.125, 1.0, 3.0])).status == "right"


def test_the_local_loss_is_the_packages():
    for seed in range(5):
        rng = stream(seed, "local loss")
        z, uploaded, total = 2 * normal((4, 2, 3), rng), normal((3, 3), rng), normal((3, 3), rng)
        q, mu = 0.1 + 0.15 * seed, 1.0 + seed
        right = spectral_loss(norm_clip(z, mu), q, (total - q * uploaded) / (1 - q)).total
        found = lesson.solution_clipped_loss(z, uploaded, total, q, mu)
        assert float(found) == pytest.approx(float(right), rel=1e-12)


def test_other_ways_to_the_local_loss_are_right_too():
    def by_packages(z, uploaded, total, q, mu):
        return float(spectral_loss(norm_clip(z, mu), q, (total - q * uploaded) / (1 - q)).total)

    def by_loops(z, uploaded, total, q, mu):
        rows = [[v if float(v @ v) <= mu else v * math.sqrt(mu / float(v @ v)) for v in sample] for sample in z]
        flat = [v for sample in rows for v in sample]
        others = (total - q * uploaded) / (1 - q)
        pull = -sum(a @ b for a, b in rows) / len(rows)
        push = sum((a @ b) ** 2 for a in flat for b in flat) / len(flat) ** 2
        return pull + q / 2 * push + (1 - q) * sum(v @ others @ v for v in flat) / len(flat)

    def in_float32(z, uploaded, total, q, mu):
        return lesson.solution_clipped_loss(z.float(), uploaded.float(), total.float(), q, mu)

    for way in (by_packages, by_loops, in_float32):
        verdict = check("01-2", way)
        assert verdict.status == "right", str(verdict)


def test_two_directions_are_the_descent_of_the_loss():
    """Clients with half of their samples along e_0, half along e_j: best answer to frozen matrices, by descent."""
    alpha, frozen, clients = 0.3, 2.4, lesson.CLIENTS
    others = torch.zeros(3, 3, dtype=torch.float64)
    others[0, 0] = frozen / 2  # the others' own directions are orthogonal to this client's
    z = torch.zeros(4, 2, 3, dtype=torch.float64)
    z[:2, :, 0] = z[2:, :, 1] = 1.0
    for _ in range(500):
        z = z - 0.5 * torch.func.grad(lambda v: spectral_loss(v, alpha, others).total)(z)
    squares = z.square().sum(-1)
    assert torch.allclose(squares[:2], torch.full((2, 2), (2 - (1 - alpha) * frozen) / alpha).double(), atol=1e-6)
    assert torch.allclose(squares[2:], torch.full((2, 2), 2 / alpha).double(), atol=1e-6)
    # and the global optimum: 2 along the shared direction, 2 J along each own
    z = torch.zeros(2 * clients, 1, clients + 1, dtype=torch.float64)
    z[:clients, 0, 0] = 1.0
    z[clients:, 0, 1:] = 4 * torch.eye(clients).double()
    for _ in range(400):
        z = z - 2.0 * torch.func.grad(lambda v: bank_objective(v).loss)(z)
    squares = z.square().sum(-1)
    assert torch.allclose(squares[:clients], torch.full((clients, 1), lesson.SHARED).double(), atol=1e-6)
    assert torch.allclose(squares[clients:], torch.full((clients, 1), lesson.OWN).double(), atol=1e-6)

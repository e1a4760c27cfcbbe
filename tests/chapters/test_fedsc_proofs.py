"""The exercises of FedSC's proofs: what is right by their checkers is right by autograd and by counting."""

from itertools import combinations

import pytest
import torch

from fedbook.chapters import fedsc_proofs as proofs
from fedbook.lab.exercises import find
from fedbook.papers.fedsc.spectral import bank_objective
from fedbook.randomness import normal, stream


def test_the_contrasts_gradient_is_autograds():
    for seed in range(3):
        rng = stream(seed, "contrast")
        Z, frozen, alpha = normal((6, 3), rng), normal((3, 3), rng), 0.2 + 0.3 * seed

        def contrast(rows, alpha=alpha, frozen=frozen):
            R = rows.T @ rows / len(rows)
            return alpha / 2 * R.square().sum() + (1 - alpha) * (R @ frozen).trace()

        found = proofs.solution_contrast_gradient(Z, alpha, frozen)
        assert torch.allclose(found, torch.func.grad(contrast)(Z), rtol=1e-12)


def test_the_bias_is_the_mean_over_all_batches():
    squares = torch.tensor([0.0, 1.0, 4.0]).double()
    batches = torch.stack([squares[list(pair)].mean() for pair in combinations(range(3), 2)])
    error = (batches - squares.mean()).square().mean()
    bias = 0.5 / 2 * (batches.square().mean() - squares.mean() ** 2)
    assert proofs.solution_bias() == pytest.approx([float(error), float(bias)], rel=1e-6)


def test_the_weights_of_eight_clients_are_those_that_align_the_gradients():
    """grad of the mean of (80) against the global loss's: equal at alpha = 1/8, else weighted as the answer says."""
    z = normal((8, 2, 1, 3), stream(0, "eight clients"))  # [K, n, M, H]

    def moments(z):
        return torch.einsum("knmg,knmh->kgh", z, z) / 2

    R = moments(z)
    others = (R.sum(0) - R) / 7

    def mean_loss(z, alpha):
        own = moments(z)
        contrast = alpha / 2 * own.square().sum() + (1 - alpha) * (own * others).sum()
        return -z.square().sum((1, 2, 3)).mean() / 2 + contrast / 8

    def whole(z):
        return bank_objective(z.flatten(0, 1)).loss

    alpha, own_times, pair_times = find("01-p3").solution
    assert torch.allclose(torch.func.grad(mean_loss)(z, alpha), torch.func.grad(whole)(z), atol=1e-12)
    pull = torch.func.grad(lambda z: -z.square().sum((1, 2, 3)).mean() / 2)(z)
    own, pairs = (torch.func.grad(mean_loss)(z, a) - pull for a in (1.0, 0.0))
    right = pull + own_times * own / 8 + pair_times * pairs * 7 / 8  # L has 1/8 and 7/8
    assert torch.allclose(torch.func.grad(mean_loss)(z, 0.2), right, atol=1e-4)

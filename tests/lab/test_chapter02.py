"""Chapter 2's exercises: what is right by their checkers is right by the package, whichever way it was found."""

import math

import numpy as np
import pytest
import torch

from fedbook.lab import chapter02
from fedbook.lab.exercises import check
from fedbook.papers.hetero_ssfl import cka
from fedbook.randomness import normal, stream

GOOD = {"width": 7, "images": 72, "message": "representations"}


# --- three images


def test_the_three_images_are_the_packages():
    a = torch.tensor([[0.0], [-3.0], [0.0]]).double()
    b = torch.tensor([[3.0, 4.0], [0.0, -2.0], [-3.0, 4.0]]).double()
    mean = cka.mean_gram([a, b], [0.5, 0.5])
    norms = [float(cka.centred_gram(k).norm()) for k in (cka.gram(a), cka.gram(b), mean)]
    right = [*norms[:2], float(cka.linear_cka(a, b)), float(cka.gram_cka(cka.gram(a), mean)),
             float(cka.linear_cka(a, b, centre=False))]  # fmt: skip
    assert chapter02.solution_three_images() == pytest.approx(right, abs=1e-12)
    assert norms[2] == pytest.approx(math.sqrt(306)) and norms[1] / norms[0] == pytest.approx(5)  # as the hints say
    assert check("02-1", torch.tensor([6.0, 30.0, 0.8, 0.857, 0.099])).status == "right"


# --- the alignment loss


def test_the_alignment_loss_is_the_packages():
    for seed in range(5):
        rng = stream(seed, "loss")
        a, others = normal((9, 4), rng) + 1, [normal((9, d), rng) - 2 for d in (3, 7)]
        a, mean = a.requires_grad_(), cka.mean_gram(others, [0.3, 0.7])
        found = chapter02.solution_alignment_loss(a, mean)
        (slope,) = torch.autograd.grad(found, a)
        assert found.item() == pytest.approx(1 - cka.gram_cka(cka.gram(a.detach()), mean).item(), abs=1e-12)
        assert torch.allclose(slope, -cka.cka_gradient(a.detach(), mean), atol=1e-12)


def test_other_ways_to_the_alignment_loss_are_right_too():
    def by_packages(a, mean):
        return 1 - cka.gram_cka(cka.gram(a), mean.detach())

    def by_matrices(a, mean):
        h = torch.eye(len(a), dtype=a.dtype) - 1 / len(a)
        k, m = h @ a @ a.T @ h, h @ mean.detach() @ h
        return 1 - torch.trace(k @ m) / (k.norm() * m.norm() + 1e-12)

    def by_features(a, mean):
        values, vectors = torch.linalg.eigh(mean.detach())
        c = vectors * values.clamp(min=0).sqrt()
        a, c = a - a.mean(0), c - c.mean(0)
        return 1 - (c.T @ a).norm() ** 2 / ((a.T @ a).norm() * (c.T @ c).norm()).clamp(min=1e-12)

    def with_a_branch(a, mean):
        a = a - a.mean(0)
        return torch.ones(()) if not a.any() else by_packages(a, mean)

    def per_number(a, mean):
        return by_packages(a, mean)[None]

    for way in (by_packages, by_matrices, by_features, with_a_branch, per_number):
        verdict = check("02-2", way)
        assert verdict.status == "right", (way, str(verdict))


# --- the others' mean kernel


def test_the_others_kernel_is_the_packages():
    rng = stream(3, "others")
    sent = [normal((6, d), rng) for d in (2, 5, 3)]
    for client, weights in ((0, [1.0, 2.0, 3.0]), (1, [0.2, 0.3, 0.5]), (2, [1.0, 0.0, 9.0])):
        kept = [j for j in range(3) if j != client]
        right = cka.mean_gram([sent[j] for j in kept], [weights[j] for j in kept])
        assert torch.allclose(chapter02.solution_reference_without(sent, weights, client), right, atol=1e-12)


def test_other_ways_to_the_others_kernel_are_right_too():
    def by_factor(a, w, i):
        total = sum(w) - w[i]
        c = torch.cat([math.sqrt(v / total) * x for j, (v, x) in enumerate(zip(w, a, strict=True)) if j != i], 1)
        return c @ c.T

    def by_subtraction(a, w, i):
        w = torch.tensor(w, dtype=torch.float64) / sum(w)
        whole = sum(v * x @ x.T for v, x in zip(w, a, strict=True))
        return (whole - w[i] * a[i] @ a[i].T) / (1 - w[i])

    def in_float32(a, w, i):
        return chapter02.solution_reference_without([x.float() for x in a], w, i)

    for way in (by_factor, by_subtraction, in_float32):
        verdict = check("02-3", way)
        assert verdict.status == "right", (way, str(verdict))


# --- a design


def test_which_designs_pass():
    """By enumeration: two widths, representations only, and images between the two limits."""
    good = [(d, n) for d in range(1, 20) for n in range(10, 300)
            if chapter02.check_design({**GOOD, "width": d, "images": n}) is None]  # fmt: skip
    assert {d for d, _ in good} == {7, 8} and (7, 71) in good and (7, 108) not in good and (7, 66) not in good
    assert all(chapter02.check_design({"width": d, "images": n, "message": "kernel"}) for d, n in good)
    assert check("02-4", {**GOOD, "width": np.int64(7), "images": np.int64(72)}).status == "right"

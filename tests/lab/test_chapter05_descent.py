"""Chapter 5's convergence: constants by brute force, Lemma 2 and both theorems on least squares, floors."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbook.lab import chapter05_constants as numbers
from fedbook.lab import chapter05_descent as descent
from fedbook.lab import chapter05_floor as floors
from fedbook.lab.chapter05_sparse import top_k
from fedbook.randomness import normal, stream

SETTINGS = settings(derandomize=True, deadline=None, max_examples=60)
PROBLEM = descent.least_squares()
EXACT = descent.constants(PROBLEM)


def draw(*shape, seed=0):
    return normal(shape, stream(seed, "test"))


def total_loss(theta, problem=PROBLEM):
    x, y = problem
    return (sum(x[m] @ theta[m] for m in range(len(x))) - y).square().sum() / (2 * len(y))


# --- where the constants come from


@given(st.integers(1, 40), st.floats(0, 5), st.floats(0, 5))
@SETTINGS
def test_the_sum_of_the_recursion(steps, start, added):
    found = numbers.growth_sum(steps, start, added)
    assert found["closed form"] == pytest.approx(found["added up"], rel=1e-9, abs=1e-9)
    terms = numbers.off_by_one(steps, start, added)
    assert terms["corrected"] == pytest.approx(terms["exact"], rel=1e-9, abs=1e-9)
    if added > 0.01:  # one step late: every term but the first is the one before
        assert terms["printed"][1:] == pytest.approx(terms["exact"][:-1], rel=1e-9)
        assert terms["printed"][0] < start and found["printed"] < found["added up"] * (1 - 1e-6)


# --- the problem and its constants


def test_slopes_values_and_variances_are_those_of_autograd():
    result = descent.run(PROBLEM, 4, 0.1, 2)
    theta = result.theta[0].clone().requires_grad_()
    value = total_loss(theta)
    (slope,) = torch.autograd.grad(value, theta)
    assert float(result.values[-1, 0]) == pytest.approx(float(value.detach()), rel=1e-12)
    assert torch.allclose(result.slopes[-1, 0], slope.square().sum((1, 2)), rtol=1e-12)
    start = torch.zeros_like(theta)  # the variance of one sample's gradient, sample by sample, at theta = 0
    (mean,) = torch.autograd.grad(total_loss(start.requires_grad_()), start)
    each = torch.stack([-PROBLEM.features[:, i, :, None] * PROBLEM.target[i] for i in range(200)])
    assert torch.allclose(each.mean(0), mean, atol=1e-12)
    assert torch.allclose((each - mean).square().sum((2, 3)).mean(0), result.variance[0, 0], rtol=1e-10)


def test_one_step_is_gradient_descent_and_more_are_block_by_block():
    theta = torch.zeros(3, 5, 8, dtype=torch.float64)
    for _ in range(6):
        (slope,) = torch.autograd.grad(total_loss(theta.requires_grad_()), theta)
        theta = theta.detach() - 0.1 * slope
    assert torch.allclose(descent.run(PROBLEM, 6, 0.1).theta[0], theta, atol=1e-13)
    blocks = torch.zeros(3, 5, 8, dtype=torch.float64)
    for r in range(3):  # Algorithm 1 as it is written, with autograd, k = 3
        h = torch.stack([PROBLEM.features[m] @ blocks[m] for m in range(3)])
        sent, new, drift = top_k(h, 3), blocks.clone(), 0.0
        (start,) = torch.autograd.grad(total_loss(blocks.requires_grad_()), blocks)
        blocks = blocks.detach()
        for m, _ in product(range(3), range(4)):
            own = new[m].clone().requires_grad_()
            fused = PROBLEM.features[m] @ own + sum(sent[j] for j in range(3) if j != m)
            (step,) = torch.autograd.grad((fused - PROBLEM.target).square().sum() / 400, own)
            drift = drift + float((step - start[m]).square().sum())
            new[m] = new[m] - 0.1 * step
        blocks = new
        result = descent.run(PROBLEM, r + 1, 0.1, 4, lambda h, r: top_k(h, 3))
        assert torch.allclose(result.theta[0], blocks, atol=1e-13)
        assert float(result.drift[r, 0]) == pytest.approx(drift, rel=1e-10)
        assert torch.allclose(result.errors[r, 0], (sent - h).square().sum((1, 2)))


def test_constants_are_attained_and_not_exceeded():
    x, y = PROBLEM
    weight = torch.cat(list(x), 1)
    whole = weight.T @ weight / 200
    top = torch.linalg.eigh(whole).eigenvectors[:, -1]
    assert float((whole @ top).norm()) == pytest.approx(EXACT.smooth)
    for m in range(3):
        hessian_rows = whole[5 * m : 5 * m + 5]  # d grad_m F / d theta, one column of theta
        for seed in range(20):
            v = draw(15, seed=seed)
            assert float((hessian_rows @ v).norm()) <= float(EXACT.smooth_m[m]) * float(v.norm())
        v = torch.linalg.svd(hessian_rows).Vh[0]
        assert float((hessian_rows @ v).norm()) == pytest.approx(float(EXACT.smooth_m[m]))
        j = torch.kron(x[m], torch.eye(8, dtype=torch.float64))  # d vec(h) / d vec(theta)
        assert float(torch.linalg.matrix_norm(j, 2)) == pytest.approx(float(EXACT.tower[m]))
        loose = descent.constants(PROBLEM, "frobenius")
        assert float(j.norm()) == pytest.approx(float(loose.tower[m]))
        mixed = torch.eye(1600, dtype=torch.float64)[:, :64].repeat(1, 2) / 200  # 64 of the columns of each party
        assert float(torch.linalg.matrix_norm(mixed, 2)) == pytest.approx(float(EXACT.second[m]))
        assert math.sqrt(1600 / 64) * float(mixed.norm()) == pytest.approx(float(loose.second[m]))
    batches = descent.draw_batches(PROBLEM, 5, 20, 2, 0)
    mini = descent.constants(PROBLEM, batches=batches)
    b = x[:, batches[3, 1]]
    assert bool((mini.tower >= torch.linalg.matrix_norm(b, 2)).all()) and mini.smooth == EXACT.smooth
    assert bool((mini.smooth_m >= torch.linalg.matrix_norm(b.mT @ torch.cat(list(b), 1) / 20, 2)).all())
    assert float(mini.smooth_m.max()) > EXACT.smooth  # why the noise term needs max(L, L_m)


# --- the lemma and the theorems


@pytest.mark.parametrize("local_steps", [1, 5])
def test_lemma_2_and_theorem_4_2_hold_for_every_k(local_steps):
    lr = descent.lr_cap(EXACT, local_steps)
    assert lr == pytest.approx(1 / (16 * local_steps * EXACT.smooth))  # the whole data: L_m <= L
    result = descent.run(PROBLEM, 200, lr, local_steps, floors.every_k(8), runs=8)
    for factor in (64.0, 36.0):
        left, right = descent.lemma_2(EXACT, result, factor)
        assert bool((left <= right).all())
    assert bool((left[1:, :7] > 0).all())  # theta = 0 is sent exactly
    for found in (EXACT, descent.constants(PROBLEM, "frobenius")):
        bound = descent.theorem_4_2(found, result)
        assert bool((bound.left <= bound.right).all()) and bool((bound.noise == 0).all())
        assert bool((bound.compression[:-1].diff() < 0).all()) and float(bound.compression[-1]) == 0
    without = bound.left > bound.optimisation / 10  # the left side is no empty number
    assert bool(without.all())
    q = local_steps
    k_square = (EXACT.second * EXACT.tower) ** 2
    by_hand = sum(
        float(k_square[m] * result.errors[r, 2, j]) for r in range(200) for m in range(3) for j in range(3) if j != m
    )
    bound = descent.theorem_4_2(EXACT, result)
    assert float(bound.compression[2]) == pytest.approx(92 * q**2 / 200 * by_hand)
    gain = float(result.values[0, 2] - result.values[-1, 2])
    assert float(bound.optimisation[2]) == pytest.approx(4 * gain / (lr * 200 * q))

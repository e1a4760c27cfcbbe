"""Chapter 1's identities against plain loops, finite differences and enumeration; and the wrong versions fail."""

import math
from itertools import product

import pytest
import torch

from fedbook.lab import chapter01_gap as gap
from fedbook.lab import chapter01_sampling as sampling
from fedbook.lab import chapter01_spectrum as spectrum
from fedbook.lab import chapter01_theory as theory
from fedbook.papers.fedsc.spectral import correlation, spectral_loss
from fedbook.randomness import normal, stream

SEEDS = pytest.mark.parametrize("seed", [0, 1, 2])


def draw(*shape, seed=0):
    return normal(shape, stream(seed, "test"))


def distance(left, right):
    left, right = torch.as_tensor(left), torch.as_tensor(right)
    assert left.shape == right.shape and left.dtype == right.dtype == torch.float64
    return float((left - right).abs().max()) / max(1.0, float(right.abs().max()))


def close(sides, tolerance=1e-12):
    return distance(*sides) < tolerance


# --- the toy and the definition


@SEEDS
def test_the_pairwise_loss_is_the_definition_in_plain_loops(seed):
    z = draw(4, 3, 2, seed=seed)
    rows = z.flatten(0, 1).tolist()
    inner = [[sum(a * b for a, b in zip(x, y, strict=True)) for y in rows] for x in rows]
    negative = sum(v**2 for row in inner for v in row) / (2 * 12**2)
    positive = sum(inner[3 * i + k][3 * i + m] for i in range(4) for k, m in product(range(3), repeat=2)) / (4 * 9)
    assert float(theory.pairwise_loss(z)) == pytest.approx(negative - positive, rel=1e-13)


@SEEDS
def test_all_view_pairs_make_a_batch_exact(seed):
    z = draw(4, 3, 5, seed=seed)
    assert close((spectral_loss(theory.all_view_pairs(z)).total, theory.pairwise_loss(z)))
    assert close((correlation(theory.all_view_pairs(z)), correlation(z)))
    first, second = theory.all_view_pairs(z).chunk(2, 1)
    met = {(float(a[0]), float(b[0])) for a, b in zip(first[0], second[0], strict=True)}
    assert met == {(float(a[0]), float(b[0])) for a, b in product(z[0], repeat=2)}


# --- D1 to D4


def test_the_gradient_of_the_pairs_is_its_finite_difference():
    small = theory.toy(seed=1)
    slope, step = theory.global_gradient(small, small.theta), 1e-6
    for i in (0, 17, len(slope) - 1):
        shift = torch.zeros_like(slope)
        shift[i] = step
        up, down = (theory.pairwise_loss(small.embed(small.theta + s * shift)) for s in (1, -1))
        assert float((up - down) / (2 * step)) == pytest.approx(float(slope[i]), abs=1e-8)


def test_others_leave_the_own_matrix_out():
    matrices, q = list(draw(3, 4, 4)), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    found = theory.others(matrices, q)
    assert close((found[1], (0.2 * matrices[0] + 0.5 * matrices[2]) / 0.7))
    assert float(theory.others(matrices[:1], torch.ones(1))[0].abs().max()) == 0


# --- D2


@SEEDS
def test_the_loss_factors_the_graph_of_views(seed):
    assert close(spectrum.spectral_identity(seed))
    graph = spectrum.view_graph(seed=seed)
    assert float(graph.weights.sum()) == pytest.approx(1, abs=1e-14) and float(graph.weights.min()) > 0
    weights = torch.zeros(12, 12, dtype=torch.float64)  # w_xx' by counting
    for row in graph.views.tolist():
        for a, b in product(row, repeat=2):
            weights[a, b] += 1 / (8 * 9)
    assert close((graph.adjacency * graph.weights.outer(graph.weights).sqrt(), weights))
    values = torch.linalg.eigvalsh(graph.adjacency)
    assert float(values[-1]) == pytest.approx(1) and float(values[0]) > -1e-12


@pytest.mark.parametrize("width", [1, 3, 4, 7])
def test_lbfgs_reaches_the_eigenvalues(width):
    found = spectrum.spectral_optimum(width, seed=1)
    assert found.reached == pytest.approx(found.formula, abs=1e-8) and found.bound == -width / 2
    assert found.bound <= found.formula + 1e-12


# --- D5


@SEEDS
def test_the_gap_in_three_forms(seed):
    found = gap.gap_identity(seed)
    assert close((found.difference, found.variance)) and close((found.pairs, found.variance))
    assert float(found.variance) > 0.01


def test_the_toy_descends_by_its_own_gradient():
    for method in ("fedavg", "global"):
        moved = gap.one_vector_each(method, steps=1, shift=0.3, lr=0.1).z
        start = gap.one_vector_each(method, steps=1, shift=0.3, lr=1e-300).z
        z = start.clone().requires_grad_()
        loss = theory.pairwise_loss(z[:, None])
        if method == "fedavg":
            loss = torch.stack([theory.pairwise_loss(row[None, None]) for row in z]).mean()
        (slope,) = torch.autograd.grad(loss, z)
        assert close((moved, start - 0.1 * 4 * slope))


# --- D9, and the protocol


def test_fedsc_is_central_descent_and_no_mistake_is():
    assert close(gap.fedsc_and_central(50), 1e-12)
    for mistake in gap.MISTAKES[1:]:
        assert distance(*gap.fedsc_and_central(50, mistake=mistake)) > 1e-3, mistake


# --- D6, D7


@pytest.mark.parametrize("sizes", [(4, 2, 1), (4, 4, 1), (3, 1, 2), (1, 1, 3)])
def test_batch_bias_by_enumeration(sizes):
    found = sampling.batch_bias(*sizes)
    assert close(found.loss) and close(found.gradient)
    assert found.bias[0] > 1e-4 and found.bias[1] > 1e-3
    n, b, v = sizes
    assert found.outcomes == math.comb(n, b) * 3 ** (2 * v * b)


def test_the_variances_are_those_of_plain_loops():
    z = draw(3, 4, 2)
    outer = [[torch.outer(row, row) for row in sample] for sample in z]
    each = [sum(views) / 4 for views in outer]
    mean = sum(each) / 3
    found = sampling.spread(z)
    assert float(found.samples) == pytest.approx(sum(float((r - mean).square().sum()) for r in each) / 3)
    inside = sum(float((o - r).square().sum()) for views, r in zip(outer, each, strict=True) for o in views) / 12
    assert float(found.views) == pytest.approx(inside)
    assert float(sampling.batch_error(z, 3, 2)) == pytest.approx(inside / 12)  # n = B: only views are left


@pytest.mark.parametrize(("views", "samples"), [(1, 1), (2, 3), (4, 2), (1, 7)])
def test_the_shared_matrix_by_enumeration(views, samples):
    left, right = sampling.matrix_error_counted(views, samples)
    assert close((left, right)) and float(left) > 1e-3


def test_the_shared_matrix_by_monte_carlo():
    found = sampling.matrix_error(5, 20, 4000)
    assert abs(found.mean - found.law) < 4 * found.error < 0.2 * found.law


# --- D8


@pytest.mark.parametrize("sizes", [(2, 3, 5), (4, 4), (1, 1, 1, 1)])
def test_the_noise_law(sizes):
    found = sampling.noise_effect(0.3, sizes, draws=2000)
    assert found.entry_by_entry == pytest.approx(found.formula, rel=1e-12)
    assert abs(found.drawn.mean - found.formula) < 4 * found.drawn.error < 0.2 * found.formula
    assert sampling.noise_effect(0.6, sizes, draws=2).formula == pytest.approx(4 * found.formula)


@pytest.mark.parametrize(("clients", "size"), [(6, 1), (6, 2), (7, 5), (4, 4)])
def test_sampled_cohorts_by_enumeration(clients, size):
    found = sampling.cohort_sampling(clients, size)
    assert close(found["mean"]) and close(found["variance"])
    assert (float(found["variance"].right) == 0) == (clients == size)

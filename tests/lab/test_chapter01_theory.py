"""Chapter 1's identities against plain loops, finite differences and enumeration; and the wrong versions fail."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbook.lab import chapter01_gap as gap
from fedbook.lab import chapter01_sampling as sampling
from fedbook.lab import chapter01_spectrum as spectrum
from fedbook.lab import chapter01_theory as theory
from fedbook.papers.fedsc.spectral import bank_objective, correlation, spectral_loss
from fedbook.randomness import normal, stream

SETTINGS = settings(derandomize=True, deadline=None, max_examples=40)
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


def test_the_toy_has_unequal_clients_and_a_smooth_network():
    small = theory.toy(seed=3)
    assert small.clients == 3 and small.shares.tolist() == [0.2, 0.3, 0.5]
    assert small.embed(small.theta).shape == (10, 3, 4)
    assert [tuple(z.shape) for z in small.client_views(small.theta)] == [(2, 3, 4), (3, 3, 4), (5, 3, 4)]
    same = theory.toy((4, 4), same_data=True)
    assert bool((same.images[:4] == same.images[4:]).all())
    assert bool((theory.toy(seed=4).images != small.images).all())


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


@SEEDS
def test_trace_form(seed):
    assert close(theory.trace_form(seed))


@SEEDS
def test_decomposition_needs_the_true_shares(seed):
    found = theory.decomposition(seed)
    assert close((found.contraction + found.intra + found.inter, found.loss))
    assert float(found.contraction) < 0 < float(found.intra) and float(found.inter) > 0
    wrong = theory.decomposition(seed, uniform=True)
    assert distance(wrong.contraction + wrong.intra + wrong.inter, wrong.loss) > 1e-3


@SEEDS
def test_only_the_right_local_losses_are_aligned(seed):
    found = theory.gradient_alignment(seed)
    right = {"frozen, weight 1", "not frozen, weight 1/2"}
    assert {name for name, error in found.items() if error < 1e-12} == right
    assert all(error > 1e-2 for name, error in found.items() if name not in right) and len(found) == 7


def test_the_gradient_of_the_pairs_is_its_finite_difference():
    small = theory.toy(seed=1)
    slope, step = theory.global_gradient(small, small.theta), 1e-6
    for i in (0, 17, len(slope) - 1):
        shift = torch.zeros_like(slope)
        shift[i] = step
        up, down = (theory.pairwise_loss(small.embed(small.theta + s * shift)) for s in (1, -1))
        assert float((up - down) / (2 * step)) == pytest.approx(float(slope[i]), abs=1e-8)


@SEEDS
def test_values_are_offset_though_gradients_agree(seed):
    left, right = theory.value_offset(seed)
    assert close((left, right))
    small = theory.toy(seed=seed)
    assert float(left) - float(theory.pairwise_loss(small.embed(small.theta))) > 0.1


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_closed_form_gradient(alpha):
    assert close(theory.closed_form_gradient(alpha, seed=2))


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


def test_the_eigenvectors_are_a_minimiser():
    graph = spectrum.view_graph(seed=2)
    values, vectors = torch.linalg.eigh(graph.adjacency)
    table = vectors[:, -4:] * values[-4:].sqrt() / graph.weights.sqrt()[:, None]
    assert float(bank_objective(table[graph.views]).loss) == pytest.approx(
        spectrum.spectral_optimum(seed=2).formula, abs=1e-12
    )


@SETTINGS
@given(st.integers(0, 10**6), st.floats(0.05, 3.0), st.integers(1, 5), st.integers(1, 5))
def test_the_loss_is_never_below_minus_half_the_width(seed, scale, width, samples):
    z = scale * draw(samples, 2, width, seed=seed)
    assert float(bank_objective(z).loss) >= -width / 2 - 1e-12


def test_the_bound_is_reached_by_orthogonal_samples():
    z = 2 * torch.eye(4, dtype=torch.float64)[:, None].repeat(1, 3, 1)  # four samples, |z|^2 = 4
    assert float(bank_objective(z).loss) == pytest.approx(-2, abs=1e-14)


# --- D5


@SEEDS
def test_the_gap_in_three_forms(seed):
    found = gap.gap_identity(seed)
    assert close((found.difference, found.variance)) and close((found.pairs, found.variance))
    assert float(found.variance) > 0.01


@SEEDS
def test_clients_with_the_same_data_have_no_gap_and_fedavg_is_right(seed):
    assert all(abs(float(form)) < 1e-13 for form in gap.gap_identity(seed, same_data=True))
    small = theory.toy((4, 4, 4), seed, same_data=True)
    q, one, right = small.shares, torch.ones(3, dtype=torch.float64), theory.global_gradient(small, small.theta)
    for alpha in (q, one, 0.6 * one):
        assert close((gap.averaged_field(small, small.theta, alpha), right))


def test_the_gap_is_zero_only_for_equal_matrices():
    owner = torch.tensor([0, 0, 1, 1])
    z = torch.eye(2, dtype=torch.float64)[[0, 1, 1, 0], None] * torch.tensor([1.0, 1, -1, 1]).double()[:, None, None]
    assert all(abs(float(form)) < 1e-15 for form in gap.gap_forms(z, owner))  # other vectors, the same matrix
    assert float(gap.gap_forms(z[[0, 0, 1, 1]], owner).variance) == pytest.approx(0.25)


def test_one_client_is_central():
    small = theory.toy((5,), seed=1)
    one = torch.ones(1, dtype=torch.float64)
    assert close((gap.averaged_field(small, small.theta, one), theory.global_gradient(small, small.theta)))


@SEEDS
def test_where_fedavg_stops_the_loss_slopes_against_the_gap(seed):
    found = gap.fedavg_stationary(seed)
    assert found.slope < 1e-8 < 1e-2 < float(found.loss_gradient.norm())
    assert float((found.loss_gradient - found.minus_gap_gradient).norm()) < 1e-8


def test_fedavg_leaves_collapsed_clients_collapsed():
    still = gap.one_vector_each("fedavg", shift=0.0, steps=50)
    assert float((still.z - still.z[0]).abs().max()) < 1e-12 and float(still.loss[-1]) == pytest.approx(-0.5)
    found = gap.one_vector_each("fedavg")
    assert float(found.loss[-1]) == pytest.approx(-0.5, abs=1e-4) and float(found.fedavg[-1]) == pytest.approx(-0.5)
    assert float((found.z @ found.z.T - 1).abs().max()) < 1e-4
    assert close((found.gap, found.fedavg - found.loss)) and float(found.gap.min()) > 0


@pytest.mark.parametrize("clients", [2, 4, 6])
def test_global_descent_makes_them_orthogonal(clients):
    found = gap.one_vector_each("global", clients)
    assert float(found.loss[-1]) == pytest.approx(-clients / 2, abs=1e-10)
    assert distance(found.z @ found.z.T, clients * torch.eye(clients, dtype=torch.float64)) < 1e-6


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


@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.6, 1.0])
def test_what_alpha_descends_for_equal_clients(alpha):
    left, right = gap.alpha_objective(alpha)
    assert close((left, right))
    small = theory.toy((3, 3, 3, 3))
    aligned = distance(left, theory.global_gradient(small, small.theta))
    assert aligned < 1e-12 if alpha == 0.25 else aligned > 1e-2


def test_for_unequal_clients_alpha_descends_nothing():
    assert gap.field_asymmetry(None) < 1e-12 and gap.field_asymmetry(1.0) < 1e-12
    assert gap.field_asymmetry(0.3, (3, 3, 3)) < 1e-12
    assert all(gap.field_asymmetry(0.3, seed=seed) > 1e-2 for seed in range(3))


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


def test_batch_bias_has_no_part_of_the_others():
    assert sampling.batch_bias(alpha=0.0).bias == pytest.approx((0, 0), abs=1e-13)
    half, whole = (sampling.batch_bias(alpha=a).bias for a in (0.5, 1.0))
    assert whole == pytest.approx((2 * half[0], 2 * half[1]))


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


def test_the_noise_law_falls_with_the_number_of_equal_clients():
    """Same data everywhere: sigma^2 (J - 1)^2 / J^3 |dR|^2, largest for J = 3 and then like 1 / J."""
    slopes = draw(1, 3, 3, 5)
    for n in (2, 3, 4, 10, 100):
        law = sampling.noise_law(slopes.repeat(n, 1, 1, 1), torch.full((n,), 1 / n, dtype=torch.float64))
        assert float(law) == pytest.approx((n - 1) ** 2 / n**3 * float(slopes.square().sum()))


def test_noise_has_no_mean_and_its_antisymmetric_part_no_effect():
    assert close(sampling.noise_cancels(1)) and float(sampling.noise_cancels(1).left.norm()) > 0.1
    found = sampling.symmetrising(1)
    assert all(close(sides) for sides in found.values()) and float(found["energy"].left) == 10
    whole, half = (sampling.noise_effect(draws=50, symmetric=word) for word in (False, True))
    assert half.drawn.mean == pytest.approx(whole.drawn.mean, rel=1e-12)
    assert half.entry_by_entry == pytest.approx(whole.entry_by_entry, rel=1e-12)


@pytest.mark.parametrize(("clients", "size"), [(6, 1), (6, 2), (7, 5), (4, 4)])
def test_sampled_cohorts_by_enumeration(clients, size):
    found = sampling.cohort_sampling(clients, size)
    assert close(found["mean"]) and close(found["variance"])
    assert (float(found["variance"].right) == 0) == (clients == size)

"""Chapter 2's derivations against plain loops, exact fractions, enumeration, the package; and wrong versions fail."""

import math
from fractions import Fraction as F
from itertools import combinations, product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbook.lab import chapter02_mean as mean
from fedbook.lab import chapter02_spectrum as spectrum
from fedbook.lab import chapter02_theory as theory
from fedbook.papers.hetero_ssfl import cka
from fedbook.randomness import normal, stream

SETTINGS = settings(derandomize=True, deadline=None, max_examples=40)
SEEDS = pytest.mark.parametrize("seed", [0, 1, 2])


def draw(*shape, seed=0):
    return normal(shape, stream(seed, "test"))


def close(sides, tolerance=1e-12):
    left, right = (torch.as_tensor(side) for side in sides)
    assert left.shape == right.shape and left.dtype == right.dtype == torch.float64
    return float((left - right).abs().max()) <= tolerance * max(1.0, float(right.abs().max()))


def looped(a, b):
    """CKA of centred rows, entry by entry in plain Python: a third way."""

    def kernel(x):
        rows = [[value - sum(column) / len(column) for value, column in zip(row, zip(*x, strict=True), strict=True)]
                for row in x]  # fmt: skip
        return [[math.fsum(p * q for p, q in zip(r, s, strict=True)) for s in rows] for r in rows]

    def inner(x, y):
        return math.fsum(p * q for r, s in zip(x, y, strict=True) for p, q in zip(r, s, strict=True))

    k, m = kernel(a.tolist()), kernel(b.tolist())
    return inner(k, m) / math.sqrt(inner(k, k) * inner(m, m))


# --- the toy and the definitions


def test_the_toy_has_common_signals_offsets_and_seeds():
    a = theory.representations(seed=3)
    assert [tuple(x.shape) for x in a] == [(40, 7), (40, 11), (40, 5)]
    assert all(x.dtype == torch.float64 and float(x.mean(0).abs().max()) > 0.5 for x in a)
    assert float(cka.linear_cka(a[0], a[1])) > 0.3 > float(cka.linear_cka(a[0], draw(40, 11)))
    assert bool((theory.representations(seed=4)[0] != a[0]).all())
    assert theory.weights_of(3).tolist() == pytest.approx([1 / 6, 1 / 3, 1 / 2])


@SEEDS
def test_the_definition_is_the_plain_loop_and_the_package(seed):
    a, b = theory.representations(seed=seed)[:2]
    found = theory.written_out(a @ a.T, b @ b.T)
    assert float(found) == pytest.approx(looped(a, b), abs=1e-13)
    assert close((found, cka.linear_cka(a, b)))
    bare = theory.written_out(a @ a.T, b @ b.T, centre=False)
    assert close((bare, cka.linear_cka(a, b, centre=False))) and abs(float(bare - found)) > 0.01


def test_rotations_prefer_no_direction():
    rng = stream(0, "many")
    turns = torch.stack([theory.orthogonal(4, rng) for _ in range(2000)])
    eye = torch.eye(4, dtype=torch.float64).expand(2000, 4, 4)
    assert close((turns @ turns.mT, eye))
    error = 0.5 / 2000**0.5  # every entry has variance 1 / 4
    assert float(turns.mean(0).abs().max()) < 4 * error


def test_columns_are_orthonormal_and_centred():
    u = theory.columns(5, images=9, seed=1)
    assert close((u.T @ u, torch.eye(5, dtype=torch.float64)), 1e-14)
    assert float(u.sum(0).abs().max()) < 1e-14


# --- what cannot be averaged


@SEEDS
def test_the_mean_of_two_networks_is_another_function(seed):
    found = mean.mean_of_networks(seed)
    assert found.reordered < 1e-14 and found.mean > 0.1


@SEEDS
def test_kernels_can_be_averaged_and_representations_not(seed):
    mirror = mean.averaged("mirror", 4, seed)
    assert mirror.representations == 0 and mirror.size == 0 and mirror.kernels == pytest.approx(1, abs=1e-13)
    for kind in ("order", "rotation"):
        for clients in (2, 5, 30):
            found = mean.averaged(kind, clients, seed)
            assert found.kernels == pytest.approx(1, abs=1e-13)
            assert found.representations < 0.99 and found.size < 0.95
    assert mean.averaged("rotation", 100, seed).size == pytest.approx(0.1, rel=0.3)  # 1 / sqrt(clients)
    assert mean.averaged("mirror", 3, seed).size == pytest.approx(1 / 3)


def test_columns_in_any_order_leave_their_mean_only():
    """With thousands of orders each column of the mean is the mean of all columns: rank one."""
    a = normal((40, 8), stream(0, "averaged"))
    limit = float(cka.linear_cka(a, a.mean(1, keepdim=True)))
    assert mean.averaged("order", 4000, 0).representations == pytest.approx(limit, abs=0.02) and limit < 0.6


# --- by hand


def test_every_number_of_the_small_example():
    found = mean.by_hand()
    assert found.kernels[0] == [[4, -4, 0], [-4, 4, 0], [0, 0, 0]]
    assert found.kernels[1] == [[5, -2, -3], [-2, 4, -2], [-3, -2, 5]]
    assert [[5 * x for x in row] for row in found.mean] == [[22, -16, -6], [-16, 20, -4], [-6, -4, 10]]
    assert found.norms == (8, 10, 8) and found.pair == F(13, 20) and found.printed == F(13, 50)
    assert found.alpha == (F(3, 5), F(1, 2)) and found.with_mean == (F(37, 40), F(89, 100))
    assert found.gradient == [F(1, 80), F(1, 80), F(-1, 40)]
    for k, norm in zip((*found.kernels, found.mean), found.norms, strict=True):
        assert sum(x * x for row in k for x in row) == norm**2
    mixed = [found.alpha[i] + found.alpha[1 - i] * found.pair for i in (0, 1)]
    assert tuple(mixed) == found.with_mean and sum(found.alpha) > 1
    assert (
        sum(found.gradient) == 0 and sum(g * a[0] for g, a in zip(found.gradient, [[2], [-2], [0]], strict=True)) == 0
    )


def test_the_package_gets_the_small_example_too():
    found = mean.by_hand()
    a = [torch.tensor(x, dtype=torch.float64) for x in found.representations]
    gram = cka.mean_gram(a, [0.6, 0.4])
    assert close(
        (cka.centred_gram(gram), torch.tensor([list(map(float, row)) for row in found.mean], dtype=gram.dtype))
    )
    assert float(cka.linear_cka(*a)) == pytest.approx(13 / 20)
    assert float(cka.linear_cka(*a, centre=False)) == pytest.approx(13 / 50)
    assert cka.peer_weights(a, [3, 2]).tolist() == pytest.approx([3 / 5, 1 / 2])
    assert [float(cka.gram_cka(cka.gram(x), gram)) for x in a] == pytest.approx([37 / 40, 89 / 100])
    slope = torch.func.grad(lambda x: cka.gram_cka(cka.gram(x), gram))(a[0])
    assert slope[:, 0].tolist() == pytest.approx([1 / 80, 1 / 80, -1 / 40])


# --- D1 to D4, offsets, rows


@SEEDS
def test_hsic_is_a_covariance(seed):
    sides = theory.covariance_form(seed)
    assert close(sides) and float(sides.left) > 0.1


@SEEDS
def test_gram_and_feature_form(seed):
    forms = theory.two_forms(seed)
    assert close(forms) and forms.gram.shape == (4,)
    assert float(forms.gram[3]) == pytest.approx(float(forms.gram[0] / forms.gram[1] / forms.gram[2]))


@SEEDS
def test_what_cka_does_not_see(seed):
    centred, printed = theory.changed(seed=seed), theory.changed(centre=False, seed=seed)
    assert centred["as it is"] == pytest.approx(printed["as it is"], abs=1e-12)
    for found, same in ((centred, {"turned", "scaled", "shifted", "all three"}), (printed, {"turned", "scaled"})):
        start = found.pop("as it is")
        assert {name for name, value in found.items() if abs(value - start) < 1e-12} == same
        assert all(abs(value - start) > 1e-3 for name, value in found.items() if name not in same)
    assert printed["shifted"] < 0.6 * centred["shifted"]


@given(st.floats(0.01, 100))
@SETTINGS
def test_an_invertible_map_changes_cka(stretch):
    found = theory.stretched(stretch)
    assert found.measured == pytest.approx(found.formula, abs=1e-12)
    assert found.canonical == pytest.approx(1, abs=1e-12)


def test_the_map_that_changes_nothing_and_its_limits():
    assert theory.stretched(1.0).measured == pytest.approx(1 / math.sqrt(2))
    assert theory.stretched(0.01).measured < 1e-3 and theory.stretched(10.0).measured > 0.9999


@SEEDS
def test_a_common_offset_drives_the_printed_form(seed):
    offsets = [0, 0.5, 1, 2, 5, 100]
    found = theory.common_offset(offsets, seed)
    a, b = (x - x.mean(0) for x in theory.representations(seed=seed)[:2])
    for c, value in zip(offsets, found.one.tolist(), strict=True):  # A^T A gains L c^2 11^T, B^T A nothing
        own = a.T @ a + 40 * c**2
        assert value == pytest.approx(float((b.T @ a).square().sum() / own.norm() / (b.T @ b).norm()))
    assert bool((found.one.diff() < 0).all()) and bool((found.both[2:].diff() > 0).all())
    assert float(found.one[0]) > 0.5 > 0.02 > float(found.one[4]) and float(found.both[-1]) > 0.99
    assert close((found.centred, found.one[0].expand(6))) and close((found.both[0], found.one[0]))


@SEEDS
def test_rows_must_be_in_one_order(seed):
    found = theory.row_order(seed=seed)
    assert found.both == pytest.approx(found.same, abs=1e-12) and found.same > 0.4
    chance = math.sqrt(7 * 11 / (407 * 411))
    assert max(found.one, found.unrelated) < 4 * chance and found.one != pytest.approx(found.same, abs=0.3)


# --- D5 to D7


@SEEDS
def test_spectral_form(seed):
    found = spectrum.spectral_form(seed)
    assert close((found.left, found.right))
    assert found.weights.shape == found.overlap.shape == (7, 11)
    assert float(found.weights.norm()) == pytest.approx(1)
    assert bool((found.overlap.sum(0) <= 1 + 1e-12).all()) and bool((found.overlap.sum(1) <= 1 + 1e-12).all())


@SEEDS
def test_range_and_equality(seed):
    found = theory.extremes(seed=seed)
    assert found["itself"] == pytest.approx(1, abs=1e-12)
    assert found["proportional kernels"] == pytest.approx(1, abs=1e-12)
    assert found["orthogonal columns"] == pytest.approx(0, abs=1e-12)
    assert 0 <= found["least"] < 0.3 < 0.7 < found["largest"] <= 1


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 5), st.floats(-8, 8))
@SETTINGS
def test_cka_is_symmetric_and_in_range(seed, first, second, offset):
    a, b = draw(6, first, seed=seed) + offset, draw(6, second, seed=seed + 1)
    value = theory.written_out(a @ a.T, b @ b.T)
    assert -1e-12 <= float(value) <= 1 + 1e-12
    assert close((value, cka.linear_cka(b, a)))


@SEEDS
def test_the_chord(seed):
    sides = theory.chord(seed)
    assert close(sides) and float(sides.left) > 0.1


def test_one_minus_cka_is_no_distance():
    gap = theory.triangle("gap")
    assert float(gap.ab) == pytest.approx(1 - 1 / math.sqrt(2)) == pytest.approx(float(gap.bc))
    assert float(gap.ac) == pytest.approx(1) and float(gap.slack) == pytest.approx(1 - math.sqrt(2))
    assert float(theory.triangle("chord").slack) == pytest.approx(2 * math.sqrt(2 - math.sqrt(2)) - math.sqrt(2))
    assert float(theory.triangle("angle").slack) == pytest.approx(0, abs=1e-7)  # B lies on the shortest way
    assert float((theory.triangles("gap").slack < 0).double().mean()) > 0.9
    for measure in ("chord", "angle"):
        assert float(theory.triangles(measure).slack.min()) > 0


def test_measures_of_known_similarities():
    value = torch.tensor([1.0 + 1e-16, 0.5, 0.0], dtype=torch.float64)
    assert theory.distance(value, "gap").tolist() == [0, 0.5, 1]
    assert theory.distance(value, "chord").tolist() == pytest.approx([0, 1, math.sqrt(2)])
    assert theory.distance(value, "angle").tolist() == pytest.approx([0, math.pi / 3, math.pi / 2])


# --- D8


@SEEDS
def test_the_mean_kernel_and_its_factor(seed):
    assert close(mean.factorised(seed)) and close(mean.centred_mean(seed))
    assert mean.factorised(seed).left.shape == (40, 40)


@SEEDS
@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_the_mixture_and_only_ratios_of_weights_matter(seed, scale):
    sides = mean.mixture(scale, seed)
    assert close(sides) and close((sides.left, mean.mixture(1.0, seed).left))
    a = theory.representations(seed=seed)
    alpha = mean.shares_in_mean([x @ x.T for x in a], theory.weights_of(3))
    assert close((alpha, cka.peer_weights(a, [1, 2, 3]))) and float(alpha.sum()) >= 1
    pairs = torch.tensor([looped(a[0], x) for x in a], dtype=torch.float64)
    assert float(sides.left[0]) == pytest.approx(float(alpha @ pairs), abs=1e-12)
    nominal = theory.weights_of(3) @ pairs  # with w_j for alpha_j it does not hold
    assert abs(float(sides.left[0] - nominal)) > 0.01


@SEEDS
def test_a_large_client_dominates_unless_kernels_are_normalised(seed):
    norms = [0.1, 1, 10]
    plain, cured = mean.dominance(norms, seed=seed), mean.dominance(norms, normalise=True, seed=seed)
    for row, norm in zip(plain.shares, norms, strict=True):
        assert row.tolist() == pytest.approx([norm**2 / (norm**2 + 2), *[1 / (norm**2 + 2)] * 2])
    assert float(plain.agreement[2, 0]) > 0.999 and bool((plain.agreement[2, 1:] < plain.agreement[1, 1:]).all())
    assert cured.shares.flatten().tolist() == pytest.approx([1 / 3] * 9)
    assert close((cured.agreement, plain.agreement[1].expand(3, 3)))


@SEEDS
def test_a_client_agrees_with_itself(seed):
    found = mean.self_inclusion([0.1, 0.5, 1, 2, 10], seed)
    assert bool((found.with_itself >= found.alpha).all()) and bool((found.alpha.diff() > 0).all())
    assert bool((found.with_itself > found.without).all())
    assert float(found.alpha[-1]) > 0.98 and close((found.without, found.without[:1].expand(5)))
    a = theory.representations(seed=seed)
    rest = a[1] @ a[1].T + a[2] @ a[2].T
    own = a[0] @ a[0].T
    assert close((found.without[2], theory.written_out(own, rest)))
    assert close((found.with_itself[2], theory.written_out(own, own + rest)))
    h = theory.centring(40)
    assert close((found.alpha[2], (h @ own @ h).norm() / (h @ (own + rest) @ h).norm()))


@pytest.mark.parametrize(("clients", "pairwise"), list(product([1, 2, 5, 20], [0.0, 0.3, 1.0])))
def test_agreement_with_the_mean_of_equally_like_clients(clients, pairwise):
    assert close(mean.agreement(clients, pairwise))
    assert float(mean.agreement(5, 0.0).left[0]) == pytest.approx(1 / math.sqrt(5))


# --- D9, D10 and the sign


@SEEDS
def test_the_ceiling_is_reached_and_never_passed(seed):
    found = spectrum.ceilings((1, 3), seed=seed)
    assert close((found.top_part, found.formula))
    assert close((found.reached, found.formula), 1e-7)
    assert bool((found.formula < 0.999).all()) and float(found.formula.diff()) > 0.01
    _, gram = spectrum.reference(seed=seed)
    tries = draw(500, 24, 3, seed=seed)
    values = cka.gram_cka(tries @ tries.mT, gram.expand(500, 24, 24))
    assert float(values.max()) < float(found.formula[1])
    squares = torch.linalg.svdvals(theory.centring(24) @ gram @ theory.centring(24)).square()
    assert float(found.formula[0]) == pytest.approx(float((squares[0] / squares.sum()).sqrt()))


@SEEDS
def test_gradient_in_closed_form_autograd_and_differences(seed):
    sides = spectrum.gradient(seed)
    assert close(sides, 1e-13) and sides.left.shape == (24, 3) and float(sides.left.norm()) > 0.01
    a, gram = spectrum.reference(seed=seed)
    for p, q in ((0, 0), (5, 2), (23, 1)):
        shift = torch.zeros_like(a)
        shift[p, q] = 1e-6
        up, down = (spectrum.similarity(a + s * shift, gram) for s in (1, -1))
        assert float(up - down) / 2e-6 == pytest.approx(float(sides.right[p, q]), abs=1e-8)


@SEEDS
def test_the_gradient_knows_the_invariances(seed):
    assert max(spectrum.gradient_structure(seed=seed)) < 1e-12
    bare = spectrum.gradient_structure(centre=False, seed=seed)
    assert max(bare.scale, bare.rotation, bare.at_optimum) < 1e-12 and bare.shift > 0.05


@SEEDS
def test_the_sign_decides(seed):
    found = spectrum.signs(seed=seed)
    assert bool((found.distance.diff() > 0).all()) and bool((found.printed.diff() < 0).all())
    assert len(found.distance) == 51 and close((found.distance[0], found.printed[0]))
    assert 0.97 * float(found.ceiling) < float(found.distance[-1]) < float(found.ceiling) < 1
    assert float(found.printed[-1]) < 0.05 and bool((found.norms.diff() > 0).all())
    a, gram = spectrum.reference(seed=seed)
    slope = torch.func.grad(spectrum.similarity)(a, gram)
    pythagoras = (a - a.mean(0)).square().sum() + 25 * slope.square().sum()  # |A|^2 + lr^2 |grad|^2
    assert close((found.norms[1].square(), pythagoras))


# --- D11


@pytest.mark.parametrize(("rows", "width", "expected"), [(64, 64, 0.498), (64, 256, 0.796), (64, 1024, 0.941)])
def test_unrelated_clients_seem_alike(rows, width, expected):
    found = spectrum.unrelated(rows, width)
    assert found.formula == pytest.approx(width / (rows + width)) == pytest.approx(expected, abs=0.01)
    assert found.biased == pytest.approx(found.formula, abs=0.01) and abs(found.debiased) < 0.03
    assert abs(found.debiased) < 4 * found.debiased_error


def test_the_formula_is_the_ratio_of_exact_means():
    rows, first, second, draws = 6, 3, 2, 40_000
    a, b = draw(draws, rows, first), draw(draws, rows, second, seed=1)
    a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    for x, y, exact in ((a, b, 5 * 3 * 2), (a, a, 5 * 3 * 9), (b, b, 5 * 2 * 8)):
        values = (y.mT @ x).square().sum((1, 2))
        error = float(values.std()) / math.sqrt(draws)
        assert abs(float(values.mean()) - exact) < 4 * error < 0.05 * exact
    assert spectrum.unrelated(6, 3, 2).formula == pytest.approx(math.sqrt(30 * 30 / (135 * 80)))
    wide = spectrum.unrelated(100, 300, 50)
    assert wide.biased == pytest.approx(math.sqrt(300 * 50 / (400 * 150)), abs=0.01)


@SEEDS
@pytest.mark.parametrize("size", [4, 6])
def test_hsic_1_is_unbiased_under_minibatches(seed, size):
    fair, plain = spectrum.all_subsets(size, seed=seed), spectrum.all_subsets(size, unbiased=False, seed=seed)
    assert fair.mean == pytest.approx(fair.whole, abs=1e-12)
    assert plain.mean > 1.05 * plain.whole and plain.whole > 0


def test_hsic_1_is_the_mean_over_quadruples_of_rows():
    """The U-statistic: k_pq (m_pq + m_rs - 2 m_pr), over all ordered quadruples of different rows."""
    a, b = theory.representations((3, 4), 9, 0)
    k, m = (a @ a.T).tolist(), (b @ b.T).tolist()
    total = [
        k[p][q] * (m[p][q] + m[r][s] - 2 * m[p][r])
        for chosen in combinations(range(9), 4)
        for p, q, r, s in _orders(chosen)
    ]
    assert spectrum.all_subsets(9).whole == pytest.approx(math.fsum(total) / len(total), abs=1e-12)


@SEEDS
@pytest.mark.parametrize("unbiased", [False, True])
def test_hsic_written_out_is_the_packages(seed, unbiased):
    k, m = (cka.gram(a) for a in theory.representations((3, 40), 12, seed))
    found = spectrum.hsic_written_out(k, m, unbiased)
    assert abs(float(found)) > 0.01 and float(found) == pytest.approx(float(cka.hsic(k, m, unbiased)), rel=1e-10)


def _orders(chosen):
    return [order for order in product(chosen, repeat=4) if len(set(order)) == 4]


def test_batches_see_more_agreement_than_there_is():
    found = spectrum.minibatches(draws=200)
    above = found.mean - found.whole
    assert bool((above[:4] > 3 * found.error[:4]).all()) and float(above[0]) > 4 * float(above[3]) > 0
    assert float((found.debiased - found.whole_debiased).abs().max()) < 0.02 < float(above[0])
    a, b = theory.representations((16, 24), 512, 0)
    rows = [torch.from_numpy(stream(r, "check").permutation(512)).view(-1, 8) for r in range(20)]
    package = torch.stack([cka.linear_cka(a[chosen], b[chosen]).mean() for chosen in rows])
    assert abs(float(package.mean() - found.mean[0])) < 4 * float(found.error[0] + package.std() / 20**0.5)
    whole = spectrum.minibatches((512,), draws=2)
    assert close((whole.mean[0], torch.tensor(whole.whole, dtype=torch.float64)))
    assert close((whole.debiased[0], torch.tensor(whole.whole_debiased, dtype=torch.float64)))

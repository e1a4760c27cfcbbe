"""Chapter 2's derivations against plain loops, exact fractions, enumeration, the package; and wrong versions fail."""

import math
from itertools import combinations, product

import pytest
import torch

from fedbook.lab import chapter02_mean as mean
from fedbook.lab import chapter02_spectrum as spectrum
from fedbook.lab import chapter02_theory as theory
from fedbook.papers.hetero_ssfl import cka
from fedbook.randomness import normal, stream

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


@SEEDS
def test_the_definition_is_the_plain_loop_and_the_package(seed):
    a, b = theory.representations(seed=seed)[:2]
    found = theory.written_out(a @ a.T, b @ b.T)
    assert float(found) == pytest.approx(looped(a, b), abs=1e-13)
    assert close((found, cka.linear_cka(a, b)))
    bare = theory.written_out(a @ a.T, b @ b.T, centre=False)
    assert close((bare, cka.linear_cka(a, b, centre=False))) and abs(float(bare - found)) > 0.01


# --- D8


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


# --- D11


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

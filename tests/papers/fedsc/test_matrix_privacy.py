"""What uploaded correlation matrices cost: the sensitivity by trial, the accountant against the paper's table."""

import math

import pytest
import torch

from fedbook.papers.fedsc.matrix_privacy import READINGS, matrix_epsilon, matrix_sensitivity, matrix_sigma
from fedbook.papers.fedsc.spectral import correlation, norm_clip
from fedbook.randomness import normal, stream

ADJACENCIES = ("replace_one", "zero_out", "add_remove")
ROWS = {  # delta, sigma, mu, uploads, size; proposition 6.6, the same with sqrt(2) mu / n, exact, claimed
    "SVHN 3": (1e-2, 0.0034, 2, 100, 10_000, 1.96, 2.87, 1.81, 3),
    "SVHN 6": (1e-2, 0.0018, 2, 100, 10_000, 3.99, 6.00, 4.28, 6),
    "SVHN 3, small delta": (1e-4, 0.0048, 2, 100, 10_000, 1.87, 2.70, 2.05, 3),
    "SVHN 8": (1e-4, 0.0018, 2, 100, 10_000, 5.39, 7.98, 6.57, 8),
    "CIFAR10 3": (1e-2, 0.01, 4, 50, 5_000, 1.88, 2.75, 1.72, 3),
    "CIFAR10 6": (1e-2, 0.0052, 4, 50, 5_000, 3.89, 5.85, 4.16, 6),
    "CIFAR10 3, small delta": (1e-4, 0.012, 4, 50, 5_000, 2.13, 3.08, 2.37, 3),
    "CIFAR10 8": (1e-4, 0.0051, 4, 50, 5_000, 5.38, 7.96, 6.55, 8),
    "CIFAR100 6": (1e-2, 0.013, 5, 50, 2_500, 3.89, 5.85, 4.16, 6),
    "CIFAR100 12": (1e-2, 0.0075, 5, 50, 2_500, 7.50, 11.65, 9.05, 12),
    "CIFAR100 3": (1e-4, 0.04, 5, 50, 2_500, 1.58, 2.27, 1.70, 3),
    "CIFAR100 8": (1e-4, 0.013, 5, 50, 2_500, 5.26, 7.79, 6.40, 8),
}


# ------------------------------------------------------------------------------------------------------ sensitivity


def upload(x, mu=1.5, encode=torch.tanh):
    """The matrix without noise. Shapes: x [n, V, D]."""
    return correlation(norm_clip(encode(x), mu))


def moved(x, new, adjacency, **how):
    """How far the matrix moves when the first sample is replaced by ``new``, emptied or removed."""
    if adjacency == "replace_one":
        other = upload(torch.cat([new[None], x[1:]]), **how)
    elif adjacency == "zero_out":
        other = upload(torch.cat([0 * x[:1], x[1:]]), **how)
    else:
        other = upload(x[1:], **how)
    return float((upload(x, **how) - other).norm())


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_thousand_random_pairs_stay_below_the_bound(adjacency):
    found = []
    for trial in range(1000):
        rng = stream(trial, "pairs")
        n, views = int(rng.integers(2, 6)), int(rng.integers(1, 4))
        width, scale = int(rng.integers(1, 6)), 10 ** rng.uniform(-1, 1)
        x = scale * normal((n + 1, views, width), rng)
        found.append(moved(x[1:], x[0], adjacency) / matrix_sensitivity(1.5, n, adjacency))
    assert max(found) <= 1 + 1e-12
    assert max(found) > 0.9 and min(found) < 0.2  # of all sizes: some pairs come near the bound


def test_bounds_are_attained():
    """Two orthogonal vectors of full norm; emptying one; a sample orthogonal to the others, which agree."""
    x = torch.zeros(5, 3, 4, dtype=torch.float64)
    x[0, :, 0], x[1:, :, 1] = 10, 10
    new, how = x[1], {"encode": lambda x: x}
    assert moved(x, new, "replace_one", **how) == pytest.approx(math.sqrt(2) * 1.5 / 5, rel=1e-14)
    assert moved(x, new, "zero_out", **how) == pytest.approx(1.5 / 5, rel=1e-14)
    assert moved(x, new, "add_remove", **how) == pytest.approx(math.sqrt(2) * 1.5 / 5, rel=1e-14)
    for adjacency in ADJACENCIES:
        assert moved(x, new, adjacency, **how) == pytest.approx(matrix_sensitivity(1.5, 5, adjacency), rel=1e-14)
        assert moved(x, new, adjacency, mu=3.0, **how) > matrix_sensitivity(1.5, 5, adjacency)


# ------------------------------------------------------------------------------------------------------- accountant


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_table_6_by_three_formulas(row):
    delta, sigma, mu, uploads, size, proved, root_two, exact, claimed = row
    given = sigma, mu, size, uploads, delta
    assert matrix_epsilon(*given, accountant="paper") == pytest.approx(proved, abs=0.01)
    assert matrix_epsilon(*given, accountant="rdp-classic") == pytest.approx(root_two, abs=0.01)
    assert matrix_epsilon(*given) == pytest.approx(exact, abs=0.01)
    twice = matrix_epsilon(sigma, mu, size, 2 * uploads, delta, accountant="paper")  # the other reading of sqrt(2)
    assert twice == pytest.approx(root_two, abs=0.01)
    assert (root_two <= claimed) == (row != ROWS["CIFAR10 3, small delta"])
    printed = mu**2 * uploads / sigma**2
    printed = printed / 2 + math.sqrt(2 * printed * math.log(1 / delta))
    assert matrix_epsilon(*given, accountant="paper-printed") == pytest.approx(printed, rel=1e-12)


@pytest.mark.parametrize("accountant", READINGS)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-2), (3.0, 1e-4), (50.0, 1e-6)])
def test_sigma_is_the_inverse_and_never_too_small(accountant, adjacency, epsilon, delta):
    for mu, size, uploads in [(2.0, 10_000, 100), (4.0, 126, 60), (0.3, 1, 1)]:
        given = mu, size, uploads, delta, adjacency, accountant
        sigma = matrix_sigma(epsilon, *given)
        assert matrix_epsilon(sigma, *given) <= epsilon < matrix_epsilon(sigma * (1 - 1e-7), *given)
    if accountant == "paper":
        log_inverse = math.log(1 / delta)
        root = math.sqrt(2 * log_inverse + 2 * epsilon) - math.sqrt(2 * log_inverse)
        assert matrix_sigma(epsilon, *given) == pytest.approx(mu / size * math.sqrt(uploads) / root, rel=1e-9)


@pytest.mark.parametrize(("mu", "size", "words"), [(-1.0, 5, "mu: got -1"), (float("nan"), 5, "mu"), (1.0, 0, "size")])
def test_a_length_and_a_number_of_samples_are_positive(mu, size, words):
    for made in (lambda: matrix_sensitivity(mu, size), lambda: matrix_epsilon(1.0, mu, size, 1, 0.01)):
        with pytest.raises((TypeError, ValueError), match=words):
            made()
    with pytest.raises(ValueError, match="mu: got inf"):
        matrix_sigma(1.0, float("inf"), 5, 1, 0.01)

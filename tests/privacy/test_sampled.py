"""Formulas of sampled Gaussian releases: reference vectors, quadrature, other libraries, and Theorem 2's algebra."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from opacus.accountants.analysis import rdp as opacus_rdp
from scipy import integrate, special, stats

from fedbook import privacy
from fedbook.privacy.accountant import FIXED_ORDERS, POISSON_ORDERS, Draws, _curve


def log_ratio(x, z, rate):
    """log of (1 - r) + r N(1, z^2)(x) / N(0, z^2)(x)."""
    return np.logaddexp(math.log1p(-rate), math.log(rate) + (x - 0.5) / z**2)


def divergence(order, z, rate, sign):
    """D(with || without) for sign 1, D(without || with) for -1, by quadrature."""

    def integrand(x):
        power = order if sign == 1 else 1 - order
        return math.exp(stats.norm.logpdf(x, 0.0, z) + power * log_ratio(x, z, rate))

    low, high = -30 * z, order + 30 * z
    value, _ = integrate.quad(integrand, low, high, epsabs=0, epsrel=1e-12, limit=2000, points=[0.5, order])
    return math.log(value) / (order - 1)


@pytest.mark.parametrize(
    ("rate", "z", "order"), [(0.05, 1.0, 2), (0.05, 1.0, 8), (0.05, 2.0, 32), (0.01, 1.0, 8), (0.5, 1.5, 3)]
)
def test_the_value_is_the_divergence_and_the_larger_of_the_two(rate, z, order):
    """D5: both directions by one-dimensional quadrature."""
    forward, backward = (divergence(order, z, rate, sign) for sign in (1, -1))
    assert privacy.sampled_gaussian_rdp(order, z, rate) == pytest.approx(forward, rel=1e-9)
    assert backward < forward


def test_closed_forms_and_limits():
    for rate, z in [(0.3, 0.7), (1e-6, 2.0), (0.999, 5.0)]:
        closed = math.log1p(rate**2 * math.expm1(1 / z**2))
        assert privacy.sampled_gaussian_rdp(2, z, rate) == pytest.approx(closed, rel=1e-12)
    for order in (2, 7, 300):
        assert privacy.sampled_gaussian_rdp(order, 3.0, 1.0) == pytest.approx(order / 18, rel=1e-15)
        assert privacy.sampled_gaussian_rdp(order, 3.0, 1 - 1e-13) == pytest.approx(order / 18)
        assert privacy.sampled_gaussian_rdp(order, 0.0, 0.1) == math.inf
        assert privacy.sampled_gaussian_rdp(order, 0.0, 0.0) == privacy.sampled_gaussian_rdp(order, 1.0, 0.0) == 0.0


def test_the_smallest_rates_keep_their_digits():
    """A - 1 is 1e-22 here, and 1 + 1e-22 is 1."""
    value = privacy.sampled_gaussian_rdp(3, 10.0, 1e-10)
    assert value == pytest.approx(1.5e-20 * math.expm1(0.01), rel=1e-9)  # (1/2) binomial(3, 2) r^2 (e^(1/z^2) - 1)


def test_own_curve_and_dp_accounting_agree_at_whole_orders():
    for rate, z in [(0.05, 1.0), (0.5, 1.5), (0.01, 0.5), (0.9, 4.0), (0.001, 1.0)]:
        accountant = RdpAccountant(list(POISSON_ORDERS))
        accountant.compose(dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(z)), 10)
        ours = [10 * privacy.sampled_gaussian_rdp(order, z, rate) for order in POISSON_ORDERS]
        assert np.allclose(ours, accountant.rdp, rtol=1e-9, atol=0)
        fast = 10 * _curve(Draws("poisson", rate, z, 1), POISSON_ORDERS)
        assert np.allclose(ours, fast, rtol=1e-12, atol=0)


@pytest.mark.filterwarnings("ignore:Optimal order is the")
@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_thousands_of_settings_against_opacus(count):
    rng, orders = np.random.default_rng(1), [2, 3, 4, 6, 9, 14, 24, 48]
    for _ in range(count):
        rate, z = float(10 ** rng.uniform(-4, -1e-3)), float(10 ** rng.uniform(-0.5, 1.5))
        rounds = int(10 ** rng.uniform(0, 4))
        ours = [rounds * privacy.sampled_gaussian_rdp(order, z, rate) for order in orders]
        theirs = opacus_rdp.compute_rdp(q=rate, noise_multiplier=z, steps=rounds, orders=orders)
        assert np.allclose(ours, theirs, rtol=1e-3, atol=0), (rate, z, rounds)


def test_rounds_add_up_although_participation_stays_hidden():
    """D6: what a client sends in round 2 may depend on whether it was drawn in round 1, which nobody sees."""
    rate, z, order = 0.3, 1.5, 2
    x = np.linspace(-9 * z, 2 + 9 * z, 801)
    step = x[1] - x[0]
    normal = {c: stats.norm.pdf(x, c, z) for c in (-1.0, 0.0, 0.3, 1.0)}
    without = np.outer(normal[0.0], normal[0.0])
    bound = 2 * privacy.sampled_gaussian_rdp(order, z, rate)
    expected = {(1.0, 1.0): 0.09827757, (1.0, -1.0): 0.0663043, (0.3, -1.0): 0.06844584, (1.0, 0.0): 0.05584693}
    for (drawn, missed), value in expected.items():
        second = {c: (1 - rate) * normal[0.0] + rate * normal[c] for c in (drawn, missed)}
        joint = rate * np.outer(normal[1.0], second[drawn]) + (1 - rate) * np.outer(normal[0.0], second[missed])
        forward = math.log((joint**order * without ** (1 - order)).sum() * step**2) / (order - 1)
        backward = math.log((without**order * joint ** (1 - order)).sum() * step**2) / (order - 1)
        assert forward == pytest.approx(value, rel=1e-6)
        assert max(forward, backward) <= bound * (1 + 1e-7)
    assert expected[1.0, 1.0] == pytest.approx(bound, rel=1e-7)


def test_one_cohort_for_two_releases_costs_at_least_two_cohorts():
    """What the ledger relies on where it cannot know: E[f g] >= E f E g for growing f, g. Equal noise and unequal."""
    for rate in (0.001, 0.05, 0.5, 0.99):
        for z1, z2 in [(1.0, 1.0), (0.8, 3.0), (5.0, 20.0)]:
            together = (z1**-2 + z2**-2) ** -0.5
            for order in (2, 3, 8, 40, 200):
                one = privacy.sampled_gaussian_rdp(order, together, rate)
                two = sum(privacy.sampled_gaussian_rdp(order, z, rate) for z in (z1, z2))
                assert one >= two * (1 - 1e-12)


# --- Lemma 4


def lemma_4(order, z, rate):
    """DP2-FedSAM's Lemma 4 (Wang, Balle, Kasiviswanathan 2019, theorem 9) as printed, in logarithms."""
    l = np.arange(2, order + 1)  # noqa: E741
    growth = math.log(2) + 0.5 * (l - 1) * l / z**2
    growth[0] = min(math.log(4 * math.expm1(1 / z**2)), math.log(2) + 1 / z**2)
    log_binomial = special.gammaln(order + 1) - special.gammaln(l + 1) - special.gammaln(order - l + 1)
    return float(np.logaddexp(0.0, special.logsumexp(log_binomial + l * math.log(rate) + growth))) / (order - 1)


def test_dp_accounting_is_below_lemma_4_for_fixed_cohorts():
    for rate, z in [(0.05, 2.0), (0.01, 1.0), (0.3, 1.0), (0.05, 20.0)]:
        theirs = _curve(Draws("fixed", rate, z, 1), FIXED_ORDERS)
        lemma = np.array([lemma_4(order, z, rate) for order in FIXED_ORDERS])
        plain = 0.5 * np.array(FIXED_ORDERS) / z**2
        assert (theirs <= np.minimum(lemma, plain) * (1 + 1e-9)).all()
        assert theirs[0] == pytest.approx(min(lemma[0], plain[0]), rel=1e-9)  # order 2: the same formula


def central_moment(l, z):  # noqa: E741
    """E_q[(p/q - 1)^l] for p = N(1, z^2), q = N(0, z^2), by Gauss-Hermite quadrature."""
    x, w = special.roots_hermitenorm(180)
    ratio = np.expm1((z * x - 0.5) / z**2)
    return float((w * ratio**l).sum() / math.sqrt(2 * math.pi))


def test_fixed_cohorts_by_the_strengthened_theorem():
    """dp-accounting's bound rebuilt from moments by quadrature (Wang et al., theorem 27)."""
    for rate, z, order in [(0.05, 2.0, 6), (0.2, 3.0, 9), (0.5, 1.5, 4)]:
        total = 1.0
        for l in range(2, order + 1):  # noqa: E741
            if l == 2:
                least = min(4 * math.expm1(1 / z**2), 2 * math.exp(1 / z**2))
            else:
                low, high = central_moment(2 * (l // 2), z), central_moment(2 * ((l + 1) // 2), z)
                least = min(4 * math.sqrt(low * high), 2 * math.exp(0.5 * l * (l - 1) / z**2))
            total += rate**l * math.comb(order, l) * least
        index = FIXED_ORDERS.index(order)
        bound = min(math.log(total) / (order - 1), 0.5 * order / z**2)
        assert _curve(Draws("fixed", rate, z, 1), FIXED_ORDERS)[index] == pytest.approx(bound, rel=1e-8)


def test_emptied_units_in_fixed_cohorts_take_half_the_multiplier_or_no_amplification():
    replaced = _curve(Draws("fixed", 0.05, 1.0, 1), FIXED_ORDERS)
    emptied = _curve(Draws("fixed", 0.05, 2.0, 1, emptied=True), FIXED_ORDERS)
    plain = np.array(FIXED_ORDERS) / 8
    assert np.array_equal(emptied, np.minimum(replaced, plain)) and (emptied < replaced).any()


# --- Theorem 2


def shortcut(order, sigma, rate):
    """The short form (24), and whether its conditions hold."""
    limit = 1 - 2 / 3 * sigma**2 * math.log(rate * order * (1 + sigma**2))
    return 3.5 * rate**2 * order / sigma**2, sigma**2 >= 0.7 and order <= limit


def test_theorem_2_where_it_can_be_done_by_hand_and_where_it_does_not_hold():
    """D8: r = 0.01, T = 6000, epsilon = 4, delta = e^-8: order 5, sigma^2 = 5.25, and (25) reads 2 + 2 = 4."""
    sigma = privacy.paper_sigma(4.0, math.exp(-8), 0.01, 6000)
    assert sigma**2 == pytest.approx(5.25, rel=1e-13)
    value, holds = shortcut(5, sigma, 0.01)
    assert holds and 6000 * value == pytest.approx(2, rel=1e-13)
    assert lemma_4(5, sigma, 0.01) < value  # Lemma 4 confirms the shortcut here
    value, holds = shortcut(13, 1.0, 0.05)
    assert not holds and privacy.sampled_gaussian_rdp(13, 1.0, 0.05) > 28 * value  # it is no bound here
    for clients, epsilon, expected in [(500, 1, 6.8558), (500, 2, 3.5532), (1000, 1, 7.2010), (1000, 2, 3.7200)]:
        sigma = privacy.paper_sigma(epsilon, 1 / clients, 0.05, 200)
        assert sigma == pytest.approx(expected, abs=5e-5)
        assert not shortcut(1 + 2 * math.log(clients) / epsilon, sigma, 0.05)[1]


def test_what_the_shortcut_can_certify_at_best():
    """On whole orders, as Lemma 4 has them: 6.71 and 7.40, found again by a search over sigma for each order."""
    for clients, value in [(500, 6.71), (1000, 7.40)]:
        found = privacy.smallest_paper_epsilon(1 / clients, 0.05, 200)
        assert found == pytest.approx(value, abs=0.005)
        best = math.inf
        for order in range(2, 10):
            for sigma in np.exp(np.linspace(math.log(0.8), math.log(20), 20_001)):
                value, holds = shortcut(order, float(sigma), 0.05)
                if holds:
                    best = min(best, 200 * value + math.log(clients) / (order - 1))
        assert found <= best <= found * 1.001
    assert privacy.smallest_paper_epsilon(0.001, 0.5, 10) == math.inf
    assert privacy.smallest_paper_epsilon(1e-5, 1e-6, 100) < 0.1

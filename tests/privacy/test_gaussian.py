"""The Gaussian accountants against quadrature, other libraries, Monte Carlo and their own inverses."""

import math

import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given, settings
from hypothesis import strategies as st
from opacus.accountants.analysis import rdp as opacus_rdp
from scipy import integrate, stats

from fedbook import privacy
from fedbook.privacy.gaussian import ACCOUNTANTS

MULTIPLIERS = st.floats(0.05, 200.0)
DELTAS = st.floats(-12.0, -0.5).map(lambda exponent: 10.0**exponent)


def shown(accountant: str, noise_multiplier: float, count: int, delta: float) -> float:
    mu = privacy.gaussian_mu(noise_multiplier, count)
    if accountant == "exact":
        return privacy.exact_epsilon(mu, delta)
    return privacy.gaussian_rdp_epsilon(mu, delta, "classic" if accountant == "rdp-classic" else "improved")[0]


@pytest.mark.parametrize("order", [2, 3, 8])
@pytest.mark.parametrize("z", [0.7, 1.0, 3.0])
def test_rdp_is_the_renyi_divergence_of_two_shifted_gaussians(order, z):
    def integrand(x):
        return math.exp(order * stats.norm.logpdf(x, 1.0, z) + (1 - order) * stats.norm.logpdf(x, 0.0, z))

    centre = order  # of the tilted density
    value, _ = integrate.quad(integrand, centre - 40 * z, centre + 40 * z, epsabs=0, epsrel=1e-13, limit=400)
    assert math.log(value) / (order - 1) == pytest.approx(privacy.sampled_gaussian_rdp(order, z, 1.0), rel=1e-10)


@pytest.mark.filterwarnings("ignore:Optimal order is the smallest alpha")
def test_conversion_agrees_with_dp_accounting_and_opacus():
    rng, grid, compared = np.random.default_rng(0), list(range(2, 257)), 0
    for _ in range(200):
        z, count = float(np.exp(rng.uniform(-1, 3))), int(rng.integers(1, 300))
        delta = float(10 ** rng.uniform(-9, -2))
        ours, order = privacy.gaussian_rdp_epsilon(math.sqrt(count) / z, delta)
        for orders, loose in (([order], 1e-6), (grid, 0.1)):  # whole orders come near the best real one from above
            rdp = [0.5 * a * count / z**2 for a in orders]
            theirs, _ = opacus_rdp.get_privacy_spent(orders=orders, rdp=rdp, delta=delta) if ours > 0 else (ours, 0)
            if order >= 2 or len(orders) == 1:
                assert ours * (1 - 1e-6) <= theirs <= ours * (1 + loose) + loose
            # else dp-accounting reports 0 by a bound that is not this one
            if len(orders) == 1 and delta**2 + math.expm1(-rdp[0]) <= 0:
                google, _ = rdp_privacy_accountant.compute_epsilon(orders, rdp, delta)
                assert ours == pytest.approx(google, rel=1e-6)
                compared += 1
    assert compared > 150


@pytest.mark.parametrize("conversion", ["classic", "improved"])
@settings(max_examples=60)
@given(mu=st.floats(1e-3, 1e3), delta=DELTAS)
def test_the_best_real_order_is_the_minimum(conversion, mu, delta):
    epsilon, order = privacy.gaussian_rdp_epsilon(mu, delta, conversion)

    def shown_at(a):
        rdp = 0.5 * a * mu**2
        if conversion == "classic":
            return rdp - math.log(delta) / (a - 1)
        return rdp + math.log1p(-1 / a) - (math.log(delta) + math.log(a)) / (a - 1)

    at_order = max(0.0, shown_at(order))
    assert at_order == pytest.approx(epsilon, rel=1e-7, abs=1e-9)
    around = [1 + (order - 1) * factor for factor in (0.3, 0.8, 0.99, 1.01, 1.2, 3.0, 30.0)]
    assert epsilon <= max(0.0, min(map(shown_at, around))) * (1 + 1e-7) + 1e-12


@settings(max_examples=60)
@given(z=MULTIPLIERS, count=st.integers(1, 1000), delta=DELTAS)
def test_exact_below_improved_below_classic(z, count, delta):
    exact, improved, classic = (shown(a, z, count, delta) for a in ACCOUNTANTS)
    assert 0 <= exact <= improved <= classic


def naive_delta(epsilon, mu):
    first = stats.norm.cdf(mu / 2 - epsilon / mu)
    return first - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)


def tail_delta(epsilon, mu):
    """delta as an integral that never cancels: E[(1 - e^(epsilon - loss))_+] of the privacy loss."""
    start = epsilon / mu + mu / 2

    def integrand(s):
        return -math.expm1(-mu * s) * math.exp(-0.5 * s * s - s * (start - mu))

    scale = integrate.quad(integrand, 0, 60, epsabs=0, epsrel=1e-12, limit=400)[0] / math.sqrt(2 * math.pi)
    return math.log(scale) - 0.5 * (start - mu) ** 2


@pytest.mark.parametrize("mu", [0.05, 0.5, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0, 8.0])
def test_exact_curve_agrees_with_the_plain_formula(mu, epsilon):
    assert privacy.gaussian_delta(epsilon, mu) == pytest.approx(naive_delta(epsilon, mu), rel=1e-9, abs=1e-14)


@pytest.mark.parametrize(
    ("epsilon", "mu"),
    [
        (0.5, 0.02),
        (30.0, 1.0),
        (2.0, 1e-1),
        (0.001, 1e-4),
        (5.0, 0.15),
        (3e-7, 1e-8),
        (400.0, 20.0),
        (1e-6, 1e-5),
        (0.02, 9e-4),
    ],
)
def test_exact_curve_in_the_tail(epsilon, mu):
    ours = privacy.gaussian_delta(epsilon, mu)
    assert 0 < ours < 1
    assert math.log(ours) == pytest.approx(tail_delta(epsilon, mu), abs=1e-9)


def test_exact_epsilon_agrees_with_dp_accounting():
    from dp_accounting.gaussian_mechanism import get_epsilon_gaussian

    for z, count, delta in [(1.0, 1, 1e-5), (0.3, 4, 1e-6), (10.0, 100, 1e-9), (40.0, 200, 2e-3)]:
        theirs = get_epsilon_gaussian(z / math.sqrt(count), delta, tol=1e-12)
        assert privacy.gaussian_epsilon(z, count, delta) == pytest.approx(theirs, rel=1e-7, abs=1e-9)


def test_the_printed_figures_of_dp2_fedsam_and_prirfed():
    assert privacy.gaussian_epsilon(2.256 / math.sqrt(50), 1, 1e-3) == pytest.approx(13.9, abs=0.05)
    assert privacy.gaussian_epsilon(2.256 / math.sqrt(50), 10, 1e-3) == pytest.approx(79, abs=0.5)
    assert privacy.calibrate(1.0, 1 / 500, 200, "rdp") == pytest.approx(38.24, abs=0.05)
    assert privacy.exact_epsilon(0.0884, 1e-5) == pytest.approx(0.298, abs=5e-4)
    assert 1 / privacy.calibrate(0.15, 1e-5) == pytest.approx(0.04712, abs=1e-5)


@settings(max_examples=60)
@given(mu=st.floats(1e-6, 1e6), delta=DELTAS)
def test_exact_epsilon_is_on_the_safe_side(mu, delta):
    epsilon = privacy.exact_epsilon(mu, delta)
    assert privacy.gaussian_delta(epsilon, mu) <= delta * (1 + 1e-12)
    if epsilon > 0 and mu < 1e3:  # and not by much
        assert privacy.gaussian_delta(epsilon * (1 - 1e-6), mu) > delta


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@settings(max_examples=25)
@given(epsilon=st.floats(0.01, 100.0), delta=DELTAS, count=st.integers(1, 500))
def test_calibration_is_the_inverse_rounded_up(accountant, epsilon, delta, count):
    z = privacy.calibrate(epsilon, delta, count, accountant)
    assert shown(accountant, z, count, delta) <= epsilon
    assert shown(accountant, z * (1 - 1e-7), count, delta) > epsilon


def test_calibration_at_the_ends_of_its_range():
    for epsilon, delta in [(1e-300, 1e-300), (1e9, 0.999), (1e9, 1e-300), (1e-12, 0.5)]:
        for accountant in ACCOUNTANTS:
            z = privacy.calibrate(epsilon, delta, 1, accountant)
            assert 0 < z < math.inf and shown(accountant, z, 1, delta) <= epsilon


@settings(max_examples=40)
@given(z=MULTIPLIERS, count=st.integers(1, 500), delta=DELTAS, factor=st.floats(1.01, 10.0))
def test_more_noise_fewer_releases_and_larger_delta_cost_less(z, count, delta, factor):
    for accountant in ACCOUNTANTS:
        base = shown(accountant, z, count, delta)
        assert shown(accountant, z * factor, count, delta) <= base
        assert shown(accountant, z, count + 1, delta) >= base
        assert shown(accountant, z, count, delta**0.9) <= base


def test_the_limits():
    assert privacy.gaussian_epsilon(3.0, 0, 1e-5) == 0.0
    assert privacy.gaussian_epsilon(0.0, 1, 1e-5) == math.inf
    assert privacy.gaussian_epsilon(0.0, 0, 1e-5) == 0.0
    assert privacy.gaussian_delta(1.0, 0.0) == 0.0
    assert privacy.gaussian_delta(1.0, math.inf) == 1.0
    assert privacy.gaussian_delta(0.0, 1.0) == pytest.approx(2 * stats.norm.cdf(0.5) - 1, rel=1e-14)
    for mu in (1e-300, 1e8, 1e100, 1e200):
        assert privacy.exact_epsilon(mu, 1e-5) >= 0
        assert 0 <= privacy.gaussian_delta(1.0, mu) <= 1

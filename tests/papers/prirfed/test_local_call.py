"""One local call of PriRFed: published noise against what it gives, parts against exact laws, noise for a budget."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import norm

from fedbook import privacy
from fedbook.papers.prirfed.local_call import (
    Part,
    calibrated_sigma_rsgd,
    calibrated_sigma_rsvrg,
    call_epsilon,
    paper_sigma_rsgd,
    rsgd_parts,
    rsvrg_parts,
)

# claimed (epsilon, delta); mu at o = 1, true epsilon, true delta, mu*, o
PUBLISHED = [
    (0.08, 1e-5, 0.0472, 0.150, 9.1e-4, 0.02653, 3.16),
    (0.15, 1e-5, 0.0884, 0.298, 1.8e-3, 0.04712, 3.52),
    (0.30, 1e-5, 0.1768, 0.634, 3.8e-3, 0.08898, 3.95),
    (0.15, 1e-4, 0.0989, 0.272, 3.0e-3, 0.05829, 2.88),
]
GRID = np.linspace(-30, 30, 120_001)


def hockey_stick(p, q, epsilon, grid=GRID):
    """The exact delta between two densities on a line, by the trapezoid rule."""
    return float(np.trapezoid(np.maximum(p(grid) - math.exp(epsilon) * q(grid), 0), grid))


def mixture(means, sigma):
    """The density of an output whose mean is one of ``means``, each as likely."""
    return lambda y: norm.pdf(y[:, None], np.array(means), sigma).mean(1)


# --- the published noise


@pytest.mark.parametrize(("epsilon", "delta", "mu", "true_epsilon", "true_delta", "mu_star", "o"), PUBLISHED)
def test_what_the_published_noise_gives(epsilon, delta, mu, true_epsilon, true_delta, mu_star, o):
    needed = (2 * epsilon * privacy.calibrate(epsilon, delta)) ** 2 / -math.log(delta)
    for records, steps, clip_norm in [(70, 1, 0.3), (1200, 5, 2.0)]:  # none of them matters
        sigma = paper_sigma_rsgd(epsilon, delta, records, clip_norm, steps)
        parts = rsgd_parts(sigma, records, records, clip_norm, steps)
        assert parts == (Part(pytest.approx(sigma * records / 2 / clip_norm), "none", None, steps),)
        assert privacy.gaussian_mu(parts[0].noise_multiplier, steps) == pytest.approx(mu, abs=5e-5)
        assert call_epsilon(parts, delta) == pytest.approx(true_epsilon, abs=6e-4)
        assert privacy.gaussian_delta(epsilon, mu) == pytest.approx(true_delta, rel=0.03)
        enough = paper_sigma_rsgd(epsilon, delta, records, clip_norm, steps, constant=needed)
        assert call_epsilon(rsgd_parts(enough, records, records, clip_norm, steps), delta) == pytest.approx(epsilon)
    assert 1 / privacy.calibrate(epsilon, delta) == pytest.approx(mu_star, abs=5e-6)
    assert needed == pytest.approx(o, abs=5e-3)
    assert privacy.gaussian_delta(epsilon, 2 * epsilon / math.sqrt(o * -math.log(delta))) == pytest.approx(
        delta, rel=1e-2
    )


# --- exact laws of one step


def one_step_delta(sigma, records, clip_norm, epsilon, batch=1):
    """A delta that no analysis of one step on ``batch`` drawn records can beat: one pair of data, exactly.

    All records pull by -tau; the changed one by tau instead, which moves a batch that holds it by 2 tau / b. (In
    DP-RSVRG, batch 1: its gradient turns from -tau to tau between the two points, or does not, and g_{k+1} stays
    the same.) So (1-q) N(0, sigma^2) + q N(2 tau / b, sigma^2) faces N(0, sigma^2), with q = b / N_i.
    Source: PriRFed, Algorithms 2 and 3; Balle, Barthe, Gaboardi 2018, theorem 2.
    """
    rate, mu = batch / records, 2 * clip_norm / (batch * sigma)
    return rate * privacy.gaussian_delta(math.log1p(math.expm1(epsilon) / rate), mu)


@pytest.mark.parametrize(
    ("records", "inner_steps", "found"),
    [(250, 10, 3.52e-3), (100, 10, 1.37e-3), (131, 5, 5.10e-3), (1200, 166, 7.72e-4)],
)
def test_one_inner_step_with_the_published_noise_breaks_the_budget(records, inner_steps, found):
    sigma = paper_sigma_rsgd(0.15, 1e-4, records, 1.0, 3 * inner_steps)
    assert one_step_delta(sigma, records, 1.0, 0.15) == pytest.approx(found, abs=6e-6) and found > 7 * 1e-4
    grid = np.linspace(-12 * sigma, 12 * sigma + 2, 100_001)

    def bad(y):
        return (1 - 1 / records) * norm.pdf(y, 0, sigma) + norm.pdf(y, 2, sigma) / records

    exact = hockey_stick(bad, lambda y: norm.pdf(y, 0, sigma), 0.15, grid)
    assert one_step_delta(sigma, records, 1.0, 0.15) == pytest.approx(exact, rel=1e-6)


def test_no_data_beats_the_accounted_minibatch_step():
    """All gradients in {-1, 0, 1} for 4 records of which one is replaced: exact delta of one step, batches of 2."""
    sigma, records, batch = 1.0, 4, 2
    parts = rsgd_parts(sigma, records, batch, 1.0, 1)
    assert parts == (Part(1.0, "fixed", 0.5, 1),)
    for epsilon in (0.3, 1.0):
        worst = 0.0
        grid = np.linspace(-9, 9, 4001)
        laws = {}
        for rest in [(a, b, c) for a in (-1, 0, 1) for b in (-1, 0, 1) for c in (-1, 0, 1) if a <= b <= c]:
            for record in (-1, 0, 1):
                laws[rest, record] = mixture([np.mean(d) for d in combinations((record, *rest), 2)], sigma)(grid)
        for (rest, _), p in laws.items():
            for other in (-1, 0, 1):
                gap = np.maximum(p - math.exp(epsilon) * laws[rest, other], 0)
                worst = max(worst, float(np.trapezoid(gap, grid)))
        assert worst == pytest.approx(
            one_step_delta(sigma, records, 1.0, epsilon, batch), rel=1e-4
        )  # its data are here
        assert call_epsilon(parts, 0.999 * worst) > epsilon


def test_no_data_beats_the_accounted_inner_step():
    """Any clipped gradients of the changed record at both points: exact delta of one inner step of RSVRG."""
    records, sigma, tau0, tau1 = 3, 2.0, 0.8, 1.0
    split = 0.3
    one = tuple(part._replace(count=1) for part in rsvrg_parts(sigma, records, tau0, tau1, 1, 2, split))
    values = [-1.5, -0.9, 0.0, 0.9, 1.5]  # before clipping
    grid = np.linspace(-16, 16, 4001)

    def law(here, there):
        drawn = [np.clip(here, -tau1, tau1) - np.clip(there, -tau1, tau1), 0.3, -0.3]
        return mixture(np.array(drawn) + np.clip(there, -tau0, tau0) / records, sigma)(grid)

    laws = [law(here, there) for here in values for there in values]
    for epsilon in (0.2, 1.0):
        worst = max(float(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0), grid)) for p in laws for q in laws)
        assert one_step_delta(sigma, records, tau1, epsilon) * 0.9 < worst
        assert call_epsilon(one, 0.999 * worst) > epsilon


# --- parts


def test_the_parts_of_a_call():
    assert rsgd_parts(0.5, 100, 20, 2.0, 7) == (Part(0.5 * 20 / 4, "fixed", 0.2, 7),)
    plain, drawn = rsvrg_parts(0.5, 100, 2.0, 3.0, 4, 6, 0.36)
    assert plain == Part(pytest.approx(0.6 * 0.5 / (4 / 100)), "none", None, 24)
    assert drawn == Part(pytest.approx(0.8 * 0.5 / 12), "fixed", 0.01, 24)
    noises = plain.noise_multiplier * 2 * 2.0 / 100, drawn.noise_multiplier * 4 * 3.0  # times the sensitivities
    assert math.hypot(*noises) == pytest.approx(0.5)  # together the noise that is added


# --- the noise for a budget


def test_calibrated_full_batches_are_the_closed_form():
    for records, steps, delta, sigma in [(250, 3, 1e-4, 0.238), (250, 30, 1e-4, 0.752), (100, 30, 1e-4, 1.879),
                                         (1200, 498, 1e-4, 0.638), (70, 5, 1e-5, 1.356)]:  # fmt: skip
        found = calibrated_sigma_rsgd(0.15, delta, records, records, 1.0, steps)
        assert found == pytest.approx(sigma, abs=5e-4)
        mu_star = 1 / privacy.calibrate(0.15, delta)
        assert found == pytest.approx(math.sqrt(steps) * 2 / records / mu_star, rel=1e-9)
        assert 0.999 * 0.15 < call_epsilon(rsgd_parts(found, records, records, 1.0, steps), delta) <= 0.15


@pytest.mark.parametrize(
    ("records", "batch", "steps", "delta", "sigma"),
    [(250, 25, 3, 1e-4, 0.4555), (70, 35, 5, 1e-5, 2.7118)],
)
def test_calibrated_minibatches(records, batch, steps, delta, sigma):
    """Never more than without amplification, 2.377 and 2.712; at rate 1/2 there is next to nothing to gain."""
    found = calibrated_sigma_rsgd(0.15, delta, records, batch, 1.0, steps)
    assert 0.8 * sigma < found < 1.001 * sigma
    full = calibrated_sigma_rsgd(0.15, delta, records, records, 1.0, steps)
    assert full < found <= full * records / batch * (1 + 1e-9)
    assert 0.999 * 0.15 < call_epsilon(rsgd_parts(found, records, batch, 1.0, steps), delta) <= 0.15
    assert one_step_delta(found, records, 1.0, 0.15, batch) < delta


def test_calibrated_variance_reduced_calls():
    call = (100, 1.0, 1.0, 3, 10)
    found = calibrated_sigma_rsvrg(0.15, 1e-4, *call)
    assert found.sigma == pytest.approx(11.527, rel=2e-3)  # "about 16" by a looser bound
    assert 0.999 * 0.15 < call_epsilon(rsvrg_parts(found.sigma, *call, found.split), 1e-4) <= 0.15
    assert one_step_delta(found.sigma, 100, 1.0, 0.15) < 1e-4
    for split in (found.split / 2, min(2 * found.split, 0.5)):
        assert call_epsilon(rsvrg_parts(found.sigma, *call, split), 1e-4) > 0.15
    # what the call surely costs: the bad pair in all inner steps but each epoch's first, where nothing is drawn
    assert 0 < privacy.sampled_epsilon(found.sigma / 2, 1 / 100, 27, 1e-4) < 0.15
    published = paper_sigma_rsgd(0.15, 1e-4, 100, 1.0, 30)
    assert privacy.sampled_epsilon(published / 2, 1 / 100, 27, 1e-4) > 10 * 0.15


@pytest.mark.parametrize(
    ("records", "inner_steps", "sigma", "split"), [(250, 10, 7.664, 0.0523), (1200, 166, 6.72, 0.061)]
)
def test_the_settings_of_the_paper_need_17_times_their_published_noise(records, inner_steps, sigma, split):
    """As calibrated_sigma_rsvrg finds them (about 7.7 and 6.7), without the search."""
    parts = rsvrg_parts(sigma, records, 1.0, 1.0, 3, inner_steps, split)
    assert 0.149 < call_epsilon(parts, 1e-4) <= 0.15
    assert sigma / paper_sigma_rsgd(0.15, 1e-4, records, 1.0, 3 * inner_steps) > 17


def test_clip_norms_too_unequal_to_split_the_noise_are_refused():
    assert calibrated_sigma_rsvrg(0.15, 1e-4, 40, 1e12, 1.0, 1, 3).sigma > 0
    with pytest.raises(ValueError, match="^clip_record: got .*; allowed is more beside clip_gradient"):
        calibrated_sigma_rsvrg(0.15, 1e-4, 40, 1e12, 1e-7, 1, 3)

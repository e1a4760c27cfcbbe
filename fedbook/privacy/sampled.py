"""Gaussian releases to random cohorts: their formulas, what a run of them costs, and the noise for a budget.

``noise_multiplier`` is the standard deviation of the noise divided by the L2 sensitivity for the neighbours in
question; ``rate`` is the share of units drawn in one round. Everything is float64, log is natural.

All figures that count the sampling take for granted that nobody who sees the releases knows who was drawn,
and that the sampler that ran is the one that is accounted.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fedbook import arguments
from fedbook.privacy.accountant import Draws, inverse_square, poisson_curve, total_epsilon
from fedbook.privacy.gaussian import calibrate, gaussian_mu
from fedbook.privacy.release import SAMPLERS

ACCOUNTANTS = ("pld", "rdp")

MOST_ORDERS = 10_000  # the largest order that smallest_paper_epsilon looks at


def sampled_gaussian_rdp(order: int, noise_multiplier: float, rate: float) -> float:
    """Renyi divergence of a Gaussian sum over a Poisson cohort, one unit added or removed.

    With r the rate, z the multiplier and a whole order a it is log A / (a-1), and

        A = sum_k binomial(a, k) (1-r)^(a-k) r^k exp((k^2 - k) / (2 z^2)).

    The binomial weights sum to one, so A - 1 is the same sum with exp(...) - 1: no difference is taken and
    the smallest rates keep all digits. Rate 1 gives a / (2 z^2), order 2 gives log(1 + r^2 (exp(1/z^2) - 1)).

    0 at rate 0, infinite without noise at any other. Raises: TypeError, ValueError.
    Source: Mironov, Talwar, Zhang 2019, section 3.3, for DP2-FedSAM's sampled rounds.
    """
    order = arguments.integer("order", order, 2)
    noise_multiplier = arguments.real("noise_multiplier", noise_multiplier, 0.0)
    rate = arguments.real("rate", rate, 0.0, 1.0)
    if rate == 0:
        return 0.0
    cost = inverse_square(noise_multiplier)
    if math.isinf(cost * order * order):
        return math.inf
    if rate == 1:
        return 0.5 * order * cost
    return float(poisson_curve(rate, noise_multiplier, (order,))[0])


def sampled_epsilon(
    noise_multiplier: float,
    rate: float,
    rounds: int,
    delta: float,
    sampler: str = "poisson",
    accountant: str = "pld",
) -> float:
    """The epsilon at ``delta`` of ``rounds`` Gaussian releases, each to a fresh cohort drawn at ``rate``.

    ``sampler``: ``poisson`` (each unit by itself; neighbours add or remove one), ``fixed`` (a cohort of fixed
    size; neighbours replace one, so for sums clipped to C the multiplier is sigma / 2) or ``none`` (everybody,
    whatever the rate). ``accountant``: ``pld`` is the figure to show, the smallest valid one: privacy loss
    distribution for ``poisson``, Renyi for ``fixed``, the closed form for ``none`` and rate 1. ``rdp`` is the
    Renyi figure on whole orders (2 to 256, 512, 1024; for ``fixed`` 2 to 64, 80, 96, 128, 192, 256, 512,
    1024), or the one without amplification at its best real order if that is smaller.

    0 for no rounds and for rate 0, infinite without noise. Raises: TypeError, ValueError.
    Source: DP2-FedSAM, Lemmas 2 to 4, with the accountants of :mod:`fedbook.privacy.accountant`.
    """
    noise_multiplier = arguments.real("noise_multiplier", noise_multiplier, 0.0)
    rate = arguments.real("rate", rate, 0.0, 1.0)
    rounds = arguments.integer("rounds", rounds, 0)
    delta = arguments.real("delta", delta, above=0.0, below=1.0)
    sampler = arguments.one_of("sampler", sampler, SAMPLERS)
    accountant = arguments.one_of("accountant", accountant, ACCOUNTANTS)
    if rounds == 0 or (rate == 0 and sampler != "none"):
        return 0.0
    if sampler == "none" or rate == 1:
        return total_epsilon((), gaussian_mu(noise_multiplier, rounds), delta, accountant).epsilon
    return total_epsilon((Draws(sampler, rate, noise_multiplier, rounds),), 0.0, delta, accountant).epsilon


def calibrate_sampled(epsilon: float, delta: float, rate: float, rounds: int, sampler: str = "poisson") -> float:
    """The noise multiplier whose :func:`sampled_epsilon` lies in (0.995 ``epsilon``, ``epsilon``], never above.

    The search starts from the closed form without amplification, goes down by the Renyi figure and ends with
    the figure to show, mostly 3 to 6 evaluations of it. Where that figure jumps past the interval (an epsilon that
    a few cells of the grid decide) the result is the noise on the safe side of the jump.

    Raises: TypeError, ValueError, also for ``delta`` of at least the chance to be drawn at all: there nothing
    needs noise, and the promise is empty.
    """
    epsilon = arguments.real("epsilon", epsilon, maximum=100.0, above=0.0)
    delta = arguments.real("delta", delta, above=0.0, below=1.0)
    rate = arguments.real("rate", rate, maximum=1.0, above=0.0)
    rounds = arguments.integer("rounds", rounds, 1)
    sampler = arguments.one_of("sampler", sampler, SAMPLERS)
    multiplier = calibrate(epsilon, delta, rounds) * (1 + 1e-12)  # the sum over rounds is rounded in another order
    if sampler == "none" or rate == 1:
        return multiplier
    drawn = -math.expm1(rounds * math.log1p(-rate))
    if delta >= drawn:
        allowed = (
            f"less than {drawn:.3g}, the chance to be drawn at all (else no noise is needed, and nothing promised)"
        )
        raise arguments.wrong(ValueError, "delta", delta, allowed)
    for stage in ("rdp", "pld") if sampler == "poisson" else ("pld",):

        def shown(z: float, stage: str = stage) -> float:
            return sampled_epsilon(z, rate, rounds, delta, sampler, stage)

        multiplier = _least_noise(shown, epsilon, multiplier)
    return multiplier


def paper_sigma(epsilon: float, delta: float, rate: float, rounds: int) -> float:
    """The noise multiplier of DP2-FedSAM's Theorem 2, for the record: the theorem is false.

    It leaves out (24)'s conditions, and for cohorts of a fixed size (24) needs noise of sigma times 2 C, not sigma C.

    With L = log(1/delta): sigma^2 = 7 r^2 T (epsilon + 2 L) / epsilon^2, from the order 1 + 2 L / epsilon.

    Raises: TypeError, ValueError (epsilon of 2 L and more too: the theorem leaves it out).
    Source: DP2-FedSAM, Theorem 2, equation (26).
    """
    delta = arguments.real("delta", delta, above=0.0, below=1.0)
    log_inverse = -math.log(delta)
    epsilon = arguments.real("epsilon", epsilon, above=0.0, below=2 * log_inverse)
    rate = arguments.real("rate", rate, maximum=1.0, above=0.0)
    rounds = arguments.integer("rounds", rounds, 1)
    return rate * math.sqrt(rounds) / epsilon * math.sqrt(7 * (epsilon + 2 * log_inverse))


def smallest_paper_epsilon(delta: float, rate: float, rounds: int) -> float:
    """The smallest epsilon that (24) and (25) certify with any sigma and whole order that meet their conditions.

    (24) is the short form 3.5 r^2 a / sigma^2 of Lemma 4; its conditions are sigma^2 >= 0.7 and
    a <= 1 + (2/3) sigma^2 log(1 / (r a (1 + sigma^2))), with sigma the multiplier (the factor psi^2 that the paper
    prints belongs to an absolute sigma). Where they fail the value is no bound. (25) adds L / (a - 1) to T of it.
    For a given order the conditions hold on an interval of sigma, and the largest sigma in it is the best.
    Infinite where no order of at least 2 meets it. Raises: TypeError, ValueError. Source: DP2-FedSAM, (24), (25).
    """
    delta = arguments.real("delta", delta, above=0.0, below=1.0)
    rate = arguments.real("rate", rate, maximum=1.0, above=0.0)
    rounds = arguments.integer("rounds", rounds, 1)
    order = np.arange(2.0, MOST_ORDERS + 1)

    def slack(variance: np.ndarray) -> np.ndarray:
        return 1 - 2 / 3 * variance * np.log(rate * order * (1 + variance)) - order

    # x log(1 / (c (1 + x))) rises, then falls: first its top (where log(c (1+x)) = -x/(1+x)), then its right end
    low, high = np.zeros_like(order), np.maximum(1 / (rate * order) - 1, 0.0)
    for _ in range(80):
        middle = 0.5 * (low + high)
        rising = np.log(rate * order * (1 + middle)) + middle / (1 + middle) < 0
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    low, high = np.maximum(low, 0.7), np.maximum(1 / (rate * order) - 1, 0.7)
    good = slack(low) >= 0
    if not good.any():
        return math.inf
    for _ in range(80):
        middle = 0.5 * (low + high)
        holds = slack(middle) >= 0
        low, high = np.where(holds, middle, low), np.where(holds, high, middle)
    epsilons = 3.5 * rate * rate * rounds * order / low - math.log(delta) / (order - 1)
    return float(epsilons[good].min())


def _least_noise(shown: Callable[[float], float], epsilon: float, enough: float) -> float:
    """A multiplier with ``shown`` in (0.995 epsilon, epsilon], below ``enough``, where ``shown`` is within epsilon.

    False position on logarithms (epsilon falls about like a power of the noise), halving where that stalls.
    """
    aim = math.log(0.9975 * epsilon)
    high, above = math.log(enough), _log(shown(enough)) - aim
    low, below, step = -math.inf, math.inf, 0.0
    for turn in range(60):
        if above > math.log(0.995 * epsilon) - aim:
            break
        if math.isinf(low):  # no lower end yet: go down, ever faster
            step = max(2 * step, min(-above, 1.0))
            middle = high - step
        elif turn % 3 == 2 or math.isinf(below) or math.isinf(above):
            middle = 0.5 * (low + high)
        else:
            middle = low + (high - low) * below / (below - above)
        if not low < middle < high:
            break
        middle_epsilon = shown(math.exp(middle))
        if middle_epsilon <= epsilon:
            high, above = middle, _log(middle_epsilon) - aim
        else:
            low, below = middle, _log(middle_epsilon) - aim
    return math.exp(high) if math.exp(high) < enough else enough


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf

"""The accountant of a whole run: plain Gaussian releases and Gaussian releases to random cohorts, composed.

Three figures, each a valid upper bound, so the smallest counts:

* ``exact``: the closed form of composed Gaussians, as if everybody took part every time;
* ``rdp``: the Renyi curves of the sampled releases, added up on whole orders and converted;
* ``pld``: for Poisson cohorts, dp-accounting's discretised privacy loss distribution, rounded up.

A central-limit figure is never used: it is no bound. What the grid of ``pld`` may cost is limited (see
:func:`_grid`): at most 2^16 cells for a kind of draw and about 2^19 for their sum, that is up to about 1.5
seconds and 300 MB a call on one core, mostly a tenth of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedbook.privacy.gaussian import exact_epsilon, gaussian_rdp_epsilon

POISSON_ORDERS = (*range(2, 257), 512, 1024)
FIXED_ORDERS = (*range(2, 65), 80, 96, 128, 192, 256, 512, 1024)  # dp-accounting needs order^2 steps for each
DETAILED = (1e-6, 1e6)  # outside it the first two figures will do
STEP = 0.05  # of the grid, in standard deviations of the privacy loss of one draw: errs by about 4e-4 of epsilon
READABLE = 600.0  # above it exp(-epsilon) of dp-accounting's sums loses its digits
SINGLE_CELLS, TOTAL_CELLS = 2**16, 2**19
MOST_KINDS = 8  # each needs its own grid
ROUNDING = 1e-15  # of delta, for each draw: about 20 times what Fourier transforms were seen to lose


@dataclass(frozen=True)
class Draws:
    """``number`` cohorts, drawn independently, with one Gaussian release to each.

    ``sampler``: ``poisson`` or ``fixed``, at ``rate`` below 1. ``noise_multiplier``: relative to the L2
    sensitivity of the neighbours in question. ``emptied``: for ``fixed``, neighbours empty one unit instead
    of replacing it. The bound for such cohorts also compares with cohorts that hold another unit in its
    place, twice as far away, so it is then taken at half the multiplier. ``shared``: several releases were put
    together that may have had one cohort or one each. For Poisson the Renyi curve of one cohort holds in both
    cases (its terms exp((k^2 - k) / 2z^2) all grow with k, so the mean of their product is no less than the
    product of their means), the loss distribution need not; for ``fixed`` neither is proved, and the draw is
    not counted.
    """

    sampler: str
    rate: float
    noise_multiplier: float
    number: int
    emptied: bool = False
    shared: bool = False


class Figure(NamedTuple):
    """An ``epsilon`` and what gave it: ``exact``, ``rdp`` or ``pld``."""

    epsilon: float
    accountant: str


def inverse_square(noise_multiplier: float) -> float:
    """1 / z^2, what a plain release adds to mu^2; infinite without noise and where it overflows."""
    inverse = 1 / noise_multiplier if noise_multiplier > 0 else math.inf
    return inverse * inverse


@lru_cache(maxsize=4096)
def total_epsilon(draws: tuple[Draws, ...], mu: float, delta: float, accountant: str = "pld") -> Figure:
    """The run's epsilon at ``delta``: all ``draws``, and plain Gaussian releases of total shift ``mu``.

    ``rdp``: the Renyi figure (whole orders, or the best real order without amplification if that is
    smaller). ``pld``: the figure to show, the smallest of all three. The arguments are taken as checked.
    Source: Mironov, Talwar, Zhang 2019; Wang, Balle, Kasiviswanathan 2019, theorem 27; Doroshenko et al. 2022.
    """
    everybody = math.sqrt(mu * mu + sum(draw.number * inverse_square(draw.noise_multiplier) for draw in draws))
    renyi = Figure(gaussian_rdp_epsilon(everybody, delta)[0], "rdp")
    if draws and math.isfinite(everybody):
        renyi = min(renyi, Figure(_renyi_epsilon(draws, mu, delta), "rdp"))
    if accountant == "rdp":
        return renyi
    shown = min(Figure(exact_epsilon(everybody, delta), "exact"), renyi)
    spare = ROUNDING * (10 + sum(draw.number for draw in draws))
    poisson = all(draw.sampler == "poisson" and not draw.shared for draw in draws)
    if poisson and 1 <= len(draws) <= MOST_KINDS and DETAILED[0] < shown.epsilon <= DETAILED[1] and 10 * spare <= delta:
        distribution = _loss_distribution(draws, mu)
        with np.errstate(over="ignore"):
            tight_epsilon = float(distribution.get_epsilon_for_delta(delta - spare))
        if tight_epsilon <= READABLE:
            shown = min(shown, Figure(tight_epsilon, "pld"))
    return shown


def _renyi_epsilon(draws: tuple[Draws, ...], mu: float, delta: float) -> float:
    """The improved conversion of :func:`fedbook.privacy.gaussian.gaussian_rdp_epsilon`, over all orders at once."""
    orders = POISSON_ORDERS if all(draw.sampler == "poisson" for draw in draws) else FIXED_ORDERS
    a = np.array(orders, dtype=np.float64)
    rdp = 0.5 * a * mu * mu
    for draw in draws:
        rdp = rdp + draw.number * _curve(replace(draw, number=1), orders)
    epsilons = rdp + np.log1p(-1 / a) - (math.log(delta) + np.log(a)) / (a - 1)
    return max(0.0, float(epsilons.min()))


@lru_cache(maxsize=4096)
def _curve(draw: Draws, orders: tuple[int, ...]) -> np.ndarray:
    """The Renyi curve of one draw; never above that of the plain Gaussian. Shapes: [orders]."""
    z = draw.noise_multiplier
    if draw.sampler == "poisson":
        return poisson_curve(draw.rate, z, orders)
    plain = 0.5 * np.array(orders) / z / z
    if draw.shared or z < 0.01:  # with so little noise there is nothing to gain, and numbers overflow
        return plain
    return np.minimum(plain, _fixed_curve(draw.rate, z / 2 if draw.emptied else z, orders))


def poisson_curve(rate: float, noise_multiplier: float, orders: tuple[int, ...]) -> np.ndarray:
    """:func:`fedbook.privacy.sampled.sampled_gaussian_rdp` at many orders: one flat array of all their terms."""
    a, k, starts, log_binomial = _terms(orders)
    exponent = 0.5 * (k * k - k) / noise_multiplier / noise_multiplier
    with np.errstate(divide="ignore", over="ignore"):
        terms = log_binomial + k * math.log(rate) + (a - k) * math.log1p(-rate)
        terms += exponent + np.log(-np.expm1(-exponent))
        top = np.maximum.reduceat(terms, starts)
        top = np.where(np.isfinite(top), top, 0.0)  # infinite where there is next to no noise, or nothing but noise
        sums = np.add.reduceat(np.exp(terms - np.repeat(top, np.diff(starts, append=len(k)))), starts)
        return np.logaddexp(0.0, top + np.log(sums)) / (np.array(orders) - 1)


@lru_cache(maxsize=4)
def _terms(orders: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """k = 2..a of every order a, one after another: a, k, where each order starts, log binomial(a, k)."""
    from scipy.special import gammaln

    k = np.concatenate([np.arange(2.0, order + 1) for order in orders])
    lengths = np.array(orders) - 1
    a = np.repeat(np.array(orders, dtype=np.float64), lengths)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    return a, k, starts, gammaln(a + 1) - gammaln(k + 1) - gammaln(a - k + 1)


def _fixed_curve(rate: float, noise_multiplier: float, orders: tuple[int, ...]) -> np.ndarray:
    """The bound for cohorts of fixed size, neighbours that replace one unit: dp-accounting's.

    Only the ratio of the two sizes matters there, so the rate goes in as its own exact fraction. Above a
    multiplier of 1000 digits are lost there; the curve at 1000 bounds what lies beyond.
    """
    import dp_accounting

    cohort, population = rate.as_integer_ratio()
    release = dp_accounting.GaussianDpEvent(min(noise_multiplier, 1000.0))
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = dp_accounting.rdp.RdpAccountant(list(orders), relation)
    accountant.compose(dp_accounting.SampledWithoutReplacementDpEvent(population, cohort, release))
    return accountant.rdp


@lru_cache(maxsize=4)
def _loss_distribution(draws: tuple[Draws, ...], mu: float):
    """dp-accounting's privacy loss distribution of everything, for one unit added or removed, rounded up."""
    step = _grid(draws, mu)
    parts = [_self_composed(_one_loss(draw.noise_multiplier, draw.rate, step), draw.number) for draw in draws]
    if mu > 0:
        parts.append(_one_loss(1 / mu, 1.0, step))
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    return total


@lru_cache(maxsize=MOST_KINDS)
def _one_loss(noise_multiplier: float, rate: float, step: float):
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier, value_discretization_interval=step, sampling_prob=rate
    )


def _self_composed(one, number: int):
    """``one`` composed ``number`` times: in steps, because dp-accounting first raises a size to that power."""
    if number <= 10_000:
        return one.self_compose(number)
    many = one.self_compose(10_000).self_compose(number // 10_000)
    return many.compose(one.self_compose(number % 10_000)) if number % 10_000 else many


def _grid(draws: tuple[Draws, ...], mu: float) -> float:
    """The grid's step: fine against the loss of one draw, coarse enough for the limits on the cells.

    A draw's loss has about the variance rho(2). Rounding adds about step^2 / 6 to the variance of each.
    dp-accounting cuts one loss where the noise is beyond 10 standard deviations.
    """
    variance, number, widest = mu * mu, int(mu > 0), 0.5 * mu * mu + 20 * mu
    for draw in draws:
        cost, rate = inverse_square(draw.noise_multiplier), draw.rate
        variance += draw.number * float(poisson_curve(rate, draw.noise_multiplier, (2,))[0])
        number += draw.number
        largest = np.logaddexp(math.log1p(-rate), math.log(rate) + 0.5 * cost + 10 * math.sqrt(cost))
        widest = max(widest, float(largest) - math.log1p(-rate))
    total = math.sqrt(variance)
    return max(STEP * total / math.sqrt(number), widest / SINGLE_CELLS, 20 * total / TOTAL_CELLS)

"""One local call of PriRFed: what DP-RSGD and DP-RSVRG release, what that costs, and the noise for a budget.

A call is accounted as if every iterate left the agent. The noise is isotropic in the metric and each step is a
function of earlier iterates and the records, so the Euclidean accountants apply word for word. Neighbours
replace one record of one agent. ``sigma`` is the noise's standard deviation in an orthonormal tangent basis,
``clip_norm`` a public bound on each record's gradient in the Riemannian norm (one read off the data would leak).

A call is a tuple of :class:`Part`, for the accountants here and, a release each, for the privacy ledger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from fedbook import arguments
from fedbook.privacy.accountant import Draws, inverse_square, total_epsilon
from fedbook.privacy.gaussian import calibrate

UP = 1 + 1e-12  # against the rounding of another order of operations


class Part(NamedTuple):
    """``count`` Gaussian releases with noise ``noise_multiplier`` times the sensitivity for one record replaced.

    ``sampler``: ``none`` (all records; ``rate`` is None) or ``fixed`` (the share ``rate`` of the records, drawn
    afresh and in secret for each release).
    """

    noise_multiplier: float
    sampler: str
    rate: float | None
    count: int


class Noise(NamedTuple):
    """DP-RSVRG's noise: ``sigma``, and the share ``split`` of its variance that the accountant gives to g_{k+1}."""

    sigma: float
    split: float


# --- the published noise


def paper_sigma_rsgd(
    epsilon: float, delta: float, records: int, clip_norm: float, steps: int, constant: float = 1.0
) -> float:
    """The published noise for one call of DP-RSGD: sigma^2 = o K log(1/delta) tau^2 / (N_i^2 epsilon^2).

    Of DP-RSVRG: the same with K m ``steps`` and max(tau0, tau1). With ``constant`` o = 1 it does not keep (``epsilon``,
    ``delta``); full batches of DP-RSGD need o = (2 epsilon calibrate(epsilon, delta))^2 / log(1/delta).
    Source: PriRFed, sections 5.1 and 5.2 (section 6 sets the constant 1 for DP-RSVRG and leaves DP-RSGD's open).
    """
    return math.sqrt(constant * steps * -math.log(delta)) * clip_norm / (records * epsilon)


# --- what one call releases


def rsgd_parts(sigma: float, records: int, batch: int, clip_norm: float, steps: int) -> tuple[Part, ...]:
    """DP-RSGD: K means of ``batch`` clipped gradients, each of sensitivity 2 tau / b. Source: PriRFed, Algorithm 2."""
    arguments.integer("batch", batch, 1, records)
    return (_part(sigma * batch / (2 * clip_norm), batch, records, steps),)


def rsvrg_parts(
    sigma: float, records: int, clip_gradient: float, clip_record: float, epochs: int, inner_steps: int, split: float
) -> tuple[Part, ...]:
    """DP-RSVRG: two releases an inner step, with independent noise of variance a sigma^2 and (1-a) sigma^2.

    Their sum is what Algorithm 3 uses: g_{k+1}, of sensitivity 2 tau0 / N_i, noised afresh in each of the K m
    steps, and the drawn record's clip(grad f(x)) - clip(grad f(x~)), transported, of sensitivity 4 tau1 where
    that record is the changed one, drawn at rate 1 / N_i. Any ``split`` a is sound. With one inner step x = x~:
    the drawn record cancels, and one part is left, full-batch descent under the whole noise.

    ``clip_gradient``: tau0. ``clip_record``: tau1. Source: PriRFed, Algorithm 3.
    """
    steps, alone = epochs * inner_steps, sigma * records / (2 * clip_gradient)
    if inner_steps == 1:
        return (_part(alone, records, records, steps),)
    drawn = _part(math.sqrt(1 - split) * sigma / (4 * clip_record), 1, records, steps)
    return _part(math.sqrt(split) * alone, records, records, steps), drawn


# --- what that costs


def call_epsilon(parts: Sequence[Part], delta: float) -> float:
    """A sound epsilon of one call at ``delta``: exact for plain parts, else the smaller of Renyi and no amplification.

    Source: Balle, Wang 2018; Wang, Balle, Kasiviswanathan 2019, theorem 27.
    """
    return total_epsilon(*_drawn_and_plain(parts), delta).epsilon


# --- the noise for a budget


def calibrated_sigma_rsgd(
    epsilon: float, delta: float, records: int, batch: int, clip_norm: float, steps: int
) -> float:
    """The least sigma with which one call of DP-RSGD keeps (``epsilon``, ``delta``).

    Full batch: 2 tau sqrt(K) / (N_i mu*). Minibatches: a search of seconds, remembered; its curve is rounded
    upwards here and there, so that a few percent of epsilon may be left.
    """
    return _calibrated_rsgd(epsilon, delta, rsgd_parts(1.0, records, batch, clip_norm, steps)[0])


@lru_cache(maxsize=1024)
def _calibrated_rsgd(epsilon: float, delta: float, unit: Part) -> float:
    """``unit``: the part at sigma 1; its multiplier scales with sigma."""
    from scipy.optimize import brentq

    def excess(log_sigma: float) -> float:
        part = unit._replace(noise_multiplier=math.exp(log_sigma) * unit.noise_multiplier)
        return math.log(max(call_epsilon((part,), delta), 1e-300) / (0.9995 * epsilon))

    enough = calibrate(epsilon, delta, unit.count) / unit.noise_multiplier * UP  # without amplification
    low = high = math.log(enough)
    if unit.sampler == "none" or excess(high) > 0:
        return enough
    while excess(low) <= 0:
        low -= 0.7
    log_sigma = brentq(excess, low, high, xtol=1e-6)
    while excess(log_sigma) > -math.log(0.9995):
        log_sigma += 1e-5
    return math.exp(log_sigma)


@lru_cache(maxsize=1024)
def calibrated_sigma_rsvrg(
    epsilon: float, delta: float, records: int, clip_gradient: float, clip_record: float, epochs: int, inner_steps: int
) -> Noise:
    """The least noise with which one call of DP-RSVRG keeps (``epsilon``, ``delta``), and the split that shows it.

    A search of about 3 seconds, remembered: over the drawn part's multiplier; for each, the plain part takes what the
    budget leaves.
    """
    from scipy.optimize import minimize_scalar

    steps, plain, drawn = epochs * inner_steps, 2 * clip_gradient / records, 4 * clip_record  # two sensitivities
    share = plain / (plain + drawn)  # the best split without amplification, and what it needs
    if inner_steps > 1 and records > 1 and 1 - share < 1e-12:
        allowed = f"more beside clip_gradient = {clip_gradient:g}: the noise cannot be split so unequally"
        raise arguments.wrong(ValueError, "clip_record", clip_record, allowed)
    enough = calibrate(epsilon, delta, steps) * (plain if inner_steps == 1 else plain + drawn) * UP
    if inner_steps == 1 or records == 1:
        return Noise(enough, share)

    def noise(log_multiplier: float) -> Noise:
        multiplier = math.exp(log_multiplier)
        mu = _spare_mu((Draws("fixed", 1 / records, multiplier, steps),), epsilon, delta)
        rest = plain * math.sqrt(steps) / mu if mu > 0 else math.inf
        sigma = math.hypot(rest, drawn * multiplier) * UP
        return Noise(sigma, min((rest / sigma) ** 2, 1 - 1e-9) if math.isfinite(sigma) else share)

    def searched(x: float) -> float:  # where nothing is left, fall towards larger multipliers
        return math.log(min(noise(x).sigma, 10 * enough * math.exp(-x)))

    high = math.log(enough * math.sqrt(1 - share) / drawn)
    bounds = (min(-1.5, high - 1), high)
    optimum = minimize_scalar(searched, bounds=bounds, method="bounded", options={"xatol": 0.003}).x
    return min(noise(float(optimum)), Noise(enough, share))


def _spare_mu(draws: tuple[Draws, ...], epsilon: float, delta: float) -> float:
    """The largest shift of plain releases that ``draws`` leave room for in the budget; 0 if none."""
    low, high = 0.0, 1 / calibrate(epsilon, delta)
    if total_epsilon(draws, 0.0, delta).epsilon > epsilon:
        return 0.0
    while high - low > 1e-9 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if total_epsilon(draws, middle, delta).epsilon <= epsilon else (low, middle)
    return low


@lru_cache(maxsize=1024)
def rsvrg_split(
    sigma: float, records: int, clip_gradient: float, clip_record: float, epochs: int, inner_steps: int, delta: float
) -> float:
    """The split a with which one call of DP-RSVRG with a given ``sigma`` shows the least epsilon at ``delta``.

    A search of about 2 seconds, remembered.
    """
    from scipy.optimize import minimize_scalar

    call = (records, clip_gradient, clip_record, epochs, inner_steps)
    share = clip_gradient / (clip_gradient + 2 * records * clip_record)  # the best one without amplification
    if inner_steps == 1 or records == 1 or sigma == 0:
        return share

    def shown(log_split: float) -> float:
        return call_epsilon(rsvrg_parts(sigma, *call, math.exp(log_split)), delta)

    bounds = (math.log(share) - 2, math.log(0.95))
    optimum = float(minimize_scalar(shown, bounds=bounds, method="bounded", options={"xatol": 0.03}).x)
    return math.exp(optimum) if shown(optimum) < shown(math.log(share)) else share


def _part(noise_multiplier: float, batch: int, records: int, count: int) -> Part:
    if batch == records:
        return Part(noise_multiplier, "none", None, count)
    return Part(noise_multiplier, "fixed", batch / records, count)


def _drawn_and_plain(parts: Sequence[Part]) -> tuple[tuple[Draws, ...], float]:
    """The draws that amplify, and the total shift mu of the other releases."""
    draws, cost = [], 0.0
    for part in parts:
        if part.sampler == "none":
            cost += part.count * inverse_square(part.noise_multiplier)
        else:
            draws.append(Draws("fixed", part.rate, part.noise_multiplier, part.count))
    return tuple(draws), math.sqrt(cost)

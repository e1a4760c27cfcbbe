"""Chapter 4's privacy derivations: Renyi divergences by quadrature and by simulation, and what they promise.

Everything is for sensitivity 1: without the client the output is N(0, z^2), with it, with probability ``rate``,
N(1, z^2). The accountants themselves, and the sigma of Theorem 2, are in fedbook.privacy; here stands what checks them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fedbook.privacy.gaussian import gaussian_delta, gaussian_epsilon
from fedbook.privacy.sampled import sampled_gaussian_rdp
from fedbook.randomness import normal, stream

Density = Callable[[Tensor], Tensor]  # the logarithm of a density


def log_normal(mean: float, std: float) -> Density:
    """The logarithm of the density of N(mean, std^2)."""
    return lambda x: -0.5 * ((x - mean) / std) ** 2 - math.log(std * math.sqrt(2 * math.pi))


def log_mixture(rate: float, first: Density, second: Density) -> Density:
    """The logarithm of the density (1 - rate) * first + rate * second."""
    if rate in (0.0, 1.0):
        return second if rate else first
    return lambda x: torch.logaddexp(math.log1p(-rate) + first(x), math.log(rate) + second(x))


def divergence_by_quadrature(order: float, p: Density, q: Density, low: float, high: float) -> float:
    """D_order(p || q) = log E_q (p/q)^order / (order - 1) by the trapezoidal rule on 20,001 points of [low, high].

    For smooth densities that vanish at both ends the rule converges faster than any power of the step; the
    interval must hold the mass of p^order q^(1 - order), which for N(c, z^2) against N(0, z^2) lies at order * c.
    Source: DP2-FedSAM, equation (6).
    """
    x = torch.linspace(low, high, 20_001, dtype=torch.float64)
    exponent = order * p(x) + (1 - order) * q(x)
    top = exponent.max()
    return float((top + torch.trapezoid((exponent - top).exp(), x).log()) / (order - 1))


def sampled_by_quadrature(order: float, noise_multiplier: float, rate: float) -> float:
    """The Renyi divergence of one release of a Poisson sampled Gaussian, by quadrature of its two densities.

    Source: Mironov, Talwar, Zhang 2019.
    """
    z = noise_multiplier
    without, present = log_normal(0.0, z), log_normal(1.0, z)
    return divergence_by_quadrature(order, log_mixture(rate, without, present), without, -15 * z, order + 15 * z)


def sampled_terms(order: int, noise_multiplier: float, rate: float) -> Tensor:
    """The order + 1 terms of the binomial expansion of E ((1 - r) + r mu1/mu0)^order; their sum is that moment.

    binom(a, k) (1 - r)^(a - k) r^k exp((k^2 - k) / (2 z^2)). Shapes: [order + 1] float64.
    """
    z = noise_multiplier
    k, n = torch.arange(order + 1, dtype=torch.float64), torch.tensor(float(order), dtype=torch.float64)
    ways = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    return (ways + (n - k) * math.log1p(-rate) + k * math.log(rate) + (k * k - k) / (2 * z * z)).exp()


def sampled_by_simulation(
    order: float, noise_multiplier: float, rate: float, draws: int, seed: int
) -> tuple[float, float]:
    """The same moment E_mu0 ((1 - r) + r mu1/mu0)^order as an average over draws from mu0, with its standard error.

    Trust the error for small orders and large noise only: else rare draws carry the average.
    """
    z = noise_multiplier
    x = z * normal((draws,), stream(seed, "sampled moment"))
    values = ((1 - rate) + rate * ((2 * x - 1) / (2 * z * z)).exp()) ** order
    return float(values.mean()), float(values.std()) / math.sqrt(draws)


def two_rounds(order: float, noise_multiplier: float, rate: float, present: float, absent: float) -> float:
    """D_order of two rounds together when the second update depends on the hidden participation in the first.

    In round 1 the client, if drawn, moves the output by 1; in round 2, if drawn, by ``present`` when it was in
    round 1 and by ``absent`` when not. Both must be in [-1, 1]. By quadrature in the plane.
    """
    z = noise_multiplier
    shifts = [c for name, c in (("present", present), ("absent", absent))]
    axis = torch.linspace(-order - 9 * z, order + 9 * z, 1201, dtype=torch.float64)
    none, one = log_normal(0.0, z), log_normal(1.0, z)
    second = [log_mixture(rate, none, log_normal(c, z))(axis) for c in shifts]
    with_client = torch.logaddexp(
        (math.log(rate) + one(axis))[:, None] + second[0], (math.log1p(-rate) + none(axis))[:, None] + second[1]
    )
    exponent = order * with_client + (1 - order) * (none(axis)[:, None] + none(axis))
    return float(torch.trapezoid(torch.trapezoid(exponent.exp(), axis), axis).log() / (order - 1))


def sampled_delta(epsilon: float, noise_multiplier: float, rate: float) -> float:
    """The exact delta at ``epsilon`` of ONE sampled release: rate * delta_Gauss(log(1 + (e^epsilon - 1) / rate)).

    For the removal of a client, which for epsilon >= 0 is the worse of both directions.
    Source: Balle, Barthe, Gaboardi 2018 (amplification by subsampling).
    """
    z = noise_multiplier
    return rate * gaussian_delta(math.log1p(math.expm1(epsilon) / rate), 1 / z)


def replaced_rdp(order: int, noise_multiplier: float, rate: float) -> float:
    """A bound of one release to a cohort of FIXED size when one client is replaced: log(2 A - 1) / (order - 1).

    A is the moment of the Poisson sampled release and ``noise_multiplier`` belongs to the distance of two sums
    that differ in one member, 2C. Why: delta(epsilon) of such a release, in either direction, is at most
    :func:`sampled_delta` for epsilon >= 0. A moment is 1 plus an integral of delta over epsilon >= 0 plus one
    of the other direction's, so it exceeds 1 by at most A - 1 and the reversed pair's excess, which is smaller.
    Source: Balle, Barthe, Gaboardi 2018, theorem 11; ours from there.
    """
    one = sampled_gaussian_rdp(order, noise_multiplier, rate)
    exponent = (order - 1) * one
    return (exponent + math.log1p(-math.expm1(-exponent))) / (order - 1)  # log(2 e^x - 1) = x + log(2 - e^-x)


def sampled_losses(noise_multiplier: float, rate: float, rounds: int, runs: int, seed: int) -> Tensor:
    """Draws of the total privacy loss log(with / without) of a client over ``rounds`` sampled releases.

    The outputs are drawn as they are with the client. Shapes: [runs] float64.
    """
    z = noise_multiplier
    rng, total = stream(seed, "privacy losses"), torch.zeros(runs, dtype=torch.float64)
    for _ in range(rounds):
        x = torch.from_numpy(rng.random(runs) < rate).double() + z * normal((runs,), rng)
        ratio = math.log(rate) + (2 * x - 1) / (2 * z * z)
        total += torch.logaddexp(ratio, torch.full_like(ratio, math.log1p(-rate)))
    return total


def epsilon_of_losses(losses: Tensor, delta: float) -> float:
    """The epsilon at which draws of the privacy loss give ``delta`` = E max(0, 1 - e^(epsilon - loss)): an estimate.

    No accountant's bound is involved, so it shows what a bound wastes. Shapes: ``losses`` [runs].
    """
    low, high = 0.0, max(float(losses.max()), 0.0)
    for _ in range(60):
        middle = 0.5 * (low + high)
        now = float(-torch.expm1(middle - losses.clamp(min=middle)).mean())
        low, high = (middle, high) if now > delta else (low, middle)
    return high


# --- the paper's Theorem 2 (D8, D10) and one message alone (D11)


def message_epsilon(noise_multiplier: float, cohort: int, delta: float, messages: int = 1) -> float:
    """Epsilon of ``messages`` of one client as a server without secure aggregation sees them: multiplier z / sqrt(m).

    Nothing is sampled in that server's eyes. Exact. Source: Balle, Wang 2018.
    """
    z = noise_multiplier
    return gaussian_epsilon(z / math.sqrt(cohort), messages, delta)

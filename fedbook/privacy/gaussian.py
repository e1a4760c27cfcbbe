"""What Gaussian noise buys: Renyi and exact privacy curves of composed Gaussian mechanisms, and their inverses.

Everything depends on the mechanisms through one number. A release with noise multiplier z (standard
deviation of the noise divided by the L2 sensitivity) moves the mean of a unit-variance Gaussian by at
most 1/z; several releases, each allowed to depend on the earlier ones, act like one with the shift

    mu = sqrt(sum_i 1 / z_i^2)          (:func:`gaussian_mu` for equal z).

Both accountants are functions of mu, whatever the dimension. Sampling is never counted here: the figures
hold with it, and are then larger than they need be. Throughout log is natural and epsilon is in nats.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fedbook import arguments

CONVERSIONS = ("classic", "improved")
ACCOUNTANTS = ("exact", "rdp", "rdp-classic")


def gaussian_mu(noise_multiplier: float, count: int = 1) -> float:
    """The shift mu = sqrt(count) / z of ``count`` Gaussian releases; infinite without noise, 0 without a release.

    Raises: TypeError, ValueError. Source: Dong, Roth, Su 2022, corollary 3.3 (composition of Gaussians).
    """
    z = arguments.real("noise_multiplier", noise_multiplier, 0.0)
    count = arguments.integer("count", count, 0)
    if count == 0:
        return 0.0
    return math.sqrt(count) / z if z > 0 else math.inf


def gaussian_rdp_epsilon(mu: float, delta: float, conversion: str = "improved") -> tuple[float, float]:
    """Epsilon at ``delta`` from the Renyi curve a mu^2 / 2 at its best real order, and that order.

    ``classic``: rdp + log(1/delta) / (a - 1), DP2-FedSAM's Lemma 2. ``improved``: the smaller
    rdp + log(1 - 1/a) - log(delta a) / (a - 1). A negative value is reported as 0.
    With m = mu^2/2 and L = log(1/delta) the best order solves, for ``classic``, m (a-1)^2 = L, and for
    ``improved`` m (a-1)^2 = L - log(a): the left side grows and the right side falls, so there is one
    solution and bisection finds it. Any order gives a valid epsilon, so rounding here costs nothing.

    Raises: TypeError, ValueError. Source: DP2-FedSAM, Lemmas 1 to 3; Balle et al. 2020; Canonne, Kamath, Steinke
    2020, proposition 12.
    """
    mu = arguments.real("mu", mu, 0.0, infinite=True)
    delta = arguments.real("delta", delta, above=0.0, below=1.0)
    conversion = arguments.one_of("conversion", conversion, CONVERSIONS)
    m, log_inverse = 0.5 * mu * mu, -math.log(delta)
    if mu == 0:
        return 0.0, math.inf
    if math.isinf(m):
        return math.inf, 1.0
    distance = math.sqrt(2 * log_inverse) / mu  # a - 1 of the classic conversion
    if conversion == "classic":
        return m + mu * math.sqrt(2 * log_inverse), 1 + distance
    high = min(distance, math.expm1(min(log_inverse, 700.0)))  # L - log(a) is not negative at the solution
    _, distance = _bisect(lambda b: m * b * b + math.log1p(b) <= log_inverse, 0.0, high)
    order = 1 + distance
    # log(1 - 1/a) from a - 1: at mu = 1e9 the order is 1 to all digits and the difference must not be.
    epsilon = m * order + math.log(distance) - math.log1p(distance)
    epsilon += (log_inverse - math.log1p(distance)) / distance
    return max(0.0, epsilon), order


def gaussian_delta(epsilon: float, mu: float) -> float:
    """The exact delta of Gaussian releases with total shift ``mu`` at ``epsilon``.

    delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), without the overflow of e^epsilon
    and without the cancellation for tiny delta.

    Raises: TypeError, ValueError. Source: Balle, Wang 2018, theorem 8.
    """
    epsilon = arguments.real("epsilon", epsilon, 0.0)
    mu = arguments.real("mu", mu, 0.0, infinite=True)
    return math.exp(_log_delta(epsilon, mu))


def exact_epsilon(mu: float, delta: float) -> float:
    """The exact epsilon at ``delta`` of Gaussian releases with total shift ``mu`` (inverse of :func:`gaussian_delta`).

    The upper end of the last bracket is returned, so ``gaussian_delta(epsilon, mu) <= delta`` holds. Above
    mu = 1e7 (epsilon above 5e13) floats no longer resolve the tail and the Renyi figure is returned, also valid.
    Raises: TypeError, ValueError.
    """
    high, _ = gaussian_rdp_epsilon(mu, delta)  # checks the arguments; a valid epsilon, so an upper end
    target = math.log(delta)
    if mu > 1e7:
        return high
    if _log_delta(0.0, mu) <= target:
        return 0.0
    return _bisect(lambda epsilon: _log_delta(epsilon, mu) > target, 0.0, high)[1]


def gaussian_epsilon(noise_multiplier: float, count: int, delta: float) -> float:
    """The exact epsilon at ``delta`` of ``count`` Gaussian releases; infinite without noise.

    Raises: TypeError, ValueError. Source: Balle, Wang 2018; Dong, Roth, Su 2022.
    """
    return exact_epsilon(gaussian_mu(noise_multiplier, count), delta)


def calibrate(epsilon: float, delta: float, count: int = 1, accountant: str = "exact") -> float:
    """The smallest noise multiplier with which ``count`` releases stay within (``epsilon``, ``delta``).

    ``accountant``: ``"exact"`` (least noise, what the ledger shows as ``epsilon`` of such releases), ``"rdp"``
    (improved conversion), ``"rdp-classic"``. Rounded up: the epsilon shown for the result never exceeds the target.

    Raises: TypeError, ValueError. Source (classic, closed form): FedSC, proposition 6.6 solved for sigma.
    """
    epsilon = arguments.real("epsilon", epsilon, maximum=1e9, above=0.0)
    delta = arguments.real("delta", delta, above=0.0, below=1.0)
    count = arguments.integer("count", count, 1)
    accountant = arguments.one_of("accountant", accountant, ACCOUNTANTS)
    figures = {
        "exact": exact_epsilon,
        "rdp": lambda mu, delta: gaussian_rdp_epsilon(mu, delta)[0],
        "rdp-classic": lambda mu, delta: gaussian_rdp_epsilon(mu, delta, "classic")[0],
    }
    shown = figures[accountant]
    low = high = _classic_mu(epsilon, delta)
    if accountant != "rdp-classic":
        while shown(high, delta) <= epsilon:
            high *= 2
        low, _ = _bisect(lambda mu: shown(mu, delta) <= epsilon, low, high)
    multiplier, step = math.sqrt(count) / low, 2.0**-52
    while shown(gaussian_mu(multiplier, count), delta) > epsilon:  # rounding of the last digits
        multiplier, step = multiplier * (1 + step), 2 * step
    return multiplier


def _classic_mu(epsilon: float, delta: float) -> float:
    """The mu with mu^2/2 + mu sqrt(2L) = epsilon, written without a difference of nearly equal roots."""
    log_inverse = -math.log(delta)
    return 2 * epsilon / (math.sqrt(2 * (log_inverse + epsilon)) + math.sqrt(2 * log_inverse))


def _log_delta(epsilon: float, mu: float) -> float:
    """log of :func:`gaussian_delta`, exact in the tail.

    With x = epsilon/mu - mu/2 and y = x + mu we have e^epsilon phi(y) = phi(x), so delta is
    phi(x) (R(x) - R(y)) with Mills' ratio R(t) = Phi(-t)/phi(t) = sqrt(pi/2) erfcx(t/sqrt 2).
    """
    from scipy.special import erfcx, log_ndtr

    if mu == 0:
        return -math.inf
    if math.isinf(mu):
        return 0.0
    x = epsilon / mu - 0.5 * mu
    if mu > 1e7:  # here the rounding of x matters: round towards the larger delta
        x -= 1e-15 * max(mu, epsilon / mu)
    if x > 1e150:
        return -math.inf
    if mu < 1e-3 * (1 + max(x, 0.0)):  # R(x) - R(y) cancels: Simpson's rule on its derivative, error (mu/(1+x))^4
        slope = (_mills_slope(x) + 4 * _mills_slope(x + 0.5 * mu) + _mills_slope(x + mu)) / 6
        return -0.5 * x * x + math.log(mu) + math.log(slope) - 0.5 * math.log(2 * math.pi)
    after = float(erfcx((x + mu) / math.sqrt(2)))
    if x >= 0:
        return -0.5 * x * x + math.log(0.5 * (float(erfcx(x / math.sqrt(2))) - after))
    plain = float(log_ndtr(-x))  # erfcx(x) would overflow; Phi(-x) is at least 1/2, so the difference is harmless
    return plain + math.log(-math.expm1(math.log(0.5 * after) - 0.5 * x * x - plain))


def _mills_slope(t: float) -> float:
    """-R'(t) = 1 - t R(t) of Mills' ratio R; its upper bound 1 / (1 + t^2) where the difference would cancel."""
    from scipy.special import erfcx

    if t > 200:  # delta is below 1e-8000 here
        return 1 / (1 + t * t)
    return 1 - t * math.sqrt(math.pi / 2) * float(erfcx(t / math.sqrt(2)))


def _bisect(below: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """The two neighbouring floats between which ``below`` turns from true (at low) to false (at high)."""
    for _ in range(200):
        middle = low + 0.5 * (high - low)
        if middle in (low, high):
            break
        low, high = (middle, high) if below(middle) else (low, middle)
    return low, high

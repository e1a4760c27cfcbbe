"""What a whole run of PriRFed guarantees when each local call is private: the paper's theorem, and what holds.

(``epsilon``, ``delta``) is the budget of one local call, for one record of one agent replaced. A call on the full
batch with Gaussian noise is known better, by its total shift ``mu`` (:func:`fedbook.privacy.gaussian.gaussian_mu`).
N ``agents``, of whom s ``per_round`` are drawn without replacement in each of T ``rounds``.

Theorem 4.2 credits the draw of agents with amplification of epsilon. A guarantee for records does not give that
(the last two functions), and who knows the cohorts owes no such credit. What is sound: a record pays for the calls
of its own agent, Binomial(T, s/N) in number, drawn without looking at any data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedbook.privacy.gaussian import exact_epsilon, gaussian_delta

NEGLIGIBLE = 1e-20  # chance of a number of calls that is not looked at, but counted as if it gave everything away


class Guarantee(NamedTuple):
    """(``epsilon``, ``delta``), and which ``rule`` gave it."""

    epsilon: float
    delta: float
    rule: str


# --- composition


def compose_basic(epsilon: float, delta: float, count: int) -> Guarantee:
    """``count`` calls: (count epsilon, count delta). Source: PriRFed, Theorem 2.2."""
    return Guarantee(count * epsilon, count * delta, "basic")


def compose_advanced(epsilon: float, delta: float, count: int, slack: float) -> Guarantee:
    """``count`` calls: sqrt(2k log(1/slack)) epsilon + k epsilon (e^epsilon - 1), at slack + k delta.

    Source: PriRFed, Theorem 2.3 (Dwork, Rothblum, Vadhan 2010).
    """
    total = math.sqrt(-2 * count * math.log(slack)) * epsilon + count * epsilon * _expm1(epsilon)
    return Guarantee(total, slack + count * delta, "advanced")


# --- the whole run


def theorem_4_2(
    epsilon: float, delta: float, agents: int, per_round: int, rounds: int, slack: float = 1e-3, parallel: bool = False
) -> Guarantee:
    """The paper's guarantee of a run, word for word; ``rule`` says which branch of its minimum is the smaller.

    With r = s/N one round is said to give epsilon~ = log(1 + r (e^{s epsilon} - 1)) and delta~ = r s delta, and T
    rounds the smaller of basic and advanced composition at delta' = slack + T delta~ (in both branches, and also
    above 1). ``parallel``: epsilon and delta in the place of s epsilon and s delta, since one record is in one of
    the s calls. Neither is proved: the proofs of chapter 3 have a counterexample.

    Source: PriRFed, Theorem 4.2.
    """
    one_round = compose_basic(epsilon, delta, 1 if parallel else per_round)
    rate = per_round / agents
    amplified = _amplified(one_round.epsilon, rate)
    basic = compose_basic(amplified, 0.0, rounds)
    better = min(basic, compose_advanced(amplified, 0.0, rounds, slack))
    return Guarantee(better.epsilon, slack + rounds * rate * one_round.delta, better.rule)


def participation_delta(
    epsilon_total: float, agents: int, per_round: int, rounds: int, mu: float | None = None,
    epsilon: float | None = None, delta: float | None = None,
) -> float:  # fmt: skip
    """The delta of a whole run at ``epsilon_total``, for one record, also against those who see the cohorts.

    The number of calls c of a record's agent is Binomial(T, s/N) and independent of the data, so that

        delta_run(epsilon) = sum_c binomial(T, c) r^c (1-r)^(T-c) delta_c(epsilon),

    with delta_c the curve of c composed calls: of shift ``mu`` each (the total shift is sqrt(c) mu), or known
    only as (``epsilon``, ``delta``). Exact for Gaussian calls on the worst data, if the cohorts are seen.
    """
    return _mixture(agents, per_round, rounds, mu, epsilon, delta)[0](epsilon_total)


def participation_epsilon(
    agents: int, per_round: int, rounds: int, delta_total: float, mu: float | None = None,
    epsilon: float | None = None, delta: float | None = None,
) -> float:  # fmt: skip
    """The sound epsilon of a whole run at ``delta_total``, before it starts: :func:`participation_delta` inverted.

    Infinite where the calls' own ``delta`` add up to more.
    """
    curve, largest = _mixture(agents, per_round, rounds, mu, epsilon, delta)
    return _least(curve, delta_total, largest(delta_total))


def run_guarantee(
    epsilon: float, delta: float, agents: int, per_round: int, rounds: int, accountant: str = "participation",
    slack: float = 1e-3, mu: float | None = None,
) -> Guarantee:  # fmt: skip
    """What T rounds guarantee, if each local call keeps (``epsilon``, ``delta``).

    ``accountant``: ``participation`` is the sound one; ``paper`` and ``paper_parallel`` are Theorem 4.2, with and
    without its factor s. ``slack``: what delta' is above the calls' own deltas, so that all three have
    delta' = slack + T r delta (``paper``: s times delta). ``mu``: the shift of one full-batch call; such calls
    have no delta of their own, ``participation`` then goes by ``mu`` alone, and delta' is ``slack``.
    """
    if accountant != "participation":
        return theorem_4_2(epsilon, delta, agents, per_round, rounds, slack, accountant == "paper_parallel")
    if mu is not None:
        return Guarantee(participation_epsilon(agents, per_round, rounds, slack, mu), slack, accountant)
    total = slack + rounds * per_round / agents * delta
    if total >= 1:
        return Guarantee(0.0, 1.0, accountant)
    total_epsilon = participation_epsilon(agents, per_round, rounds, total, epsilon=epsilon, delta=delta)
    return Guarantee(total_epsilon, total, accountant)


def _mixture(
    agents: int, per_round: int, rounds: int, mu: float | None, epsilon: float | None, delta: float | None
) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """The run's curve, and what gives an epsilon large enough for a delta."""
    rate = per_round / agents
    if mu is None:
        return _walk(epsilon, delta, rate, rounds), lambda _: rounds * epsilon
    return _gaussian_mixture(mu, rate, rounds), lambda delta: exact_epsilon(math.sqrt(rounds) * mu, delta * (1 - 1e-9))


def _gaussian_mixture(mu: float, rate: float, rounds: int) -> Callable[[float], float]:
    from scipy.stats import binom

    calls = np.arange(rounds + 1)
    chances = binom.pmf(calls, rounds, rate)
    seen = [(float(p), math.sqrt(c) * mu) for c, p in zip(calls, chances, strict=True) if p > NEGLIGIBLE and c > 0]
    rest = NEGLIGIBLE * (rounds + 1 - len(seen)) if rate < 1 else 0.0
    return lambda epsilon: rest + sum(p * gaussian_delta(epsilon, shift) for p, shift in seen)


def _walk(epsilon: float, delta: float, rate: float, rounds: int) -> Callable[[float], float]:
    """The curve of ``rounds`` calls of (``epsilon``, ``delta``), each of which happens with chance ``rate``.

    The worst call tells all with chance delta and is otherwise a randomised response, whose privacy loss is
    +epsilon with chance e^epsilon / (1 + e^epsilon), else -epsilon. The losses add up to a lazy random walk.
    """
    lie = math.exp(-epsilon) / (1 + math.exp(-epsilon))
    step = np.array([rate * (1 - delta) * lie, 1 - rate, rate * (1 - delta) * (1 - lie)])
    walk, power, left = np.ones(1), step, rounds
    while left:  # by squaring: the law of 2, 4, 8, ... steps
        walk = np.convolve(walk, power) if left & 1 else walk
        left >>= 1
        power = np.convolve(power, power) if left else power
    told = -math.expm1(rounds * math.log1p(-rate * delta)) if rate * delta < 1 else float(rounds > 0)
    losses = epsilon * np.arange(-rounds, rounds + 1)

    def curve(total: float) -> float:
        above = losses > total
        return told - float(walk[above] @ np.expm1(total - losses[above]))

    return curve


def _least(curve: Callable[[float], float], delta: float, high: float) -> float:
    """The least epsilon with ``curve`` at most ``delta``, rounded up; infinite if not even ``high`` has it."""
    if curve(0.0) <= delta:
        return 0.0
    if math.isinf(high) or curve(high) > delta:
        return math.inf
    low = 0.0
    while high - low > 1e-13 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if curve(middle) <= delta else (middle, high)
    return high


def _amplified(epsilon: float, rate: float) -> float:
    """log(1 + rate (e^epsilon - 1)), also where e^epsilon overflows."""
    if epsilon > 700:
        return epsilon + math.log(rate)
    return math.log1p(rate * math.expm1(epsilon))


def _expm1(x: float) -> float:
    return math.expm1(x) if x < 700 else math.inf

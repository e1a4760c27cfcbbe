"""Chapter 4's budgets: epsilon against round by five accounts of the same noise, and the sigma that each asks for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator

from fedbook.lab.chapter04_renyi import replaced_rdp
from fedbook.lab.results import text_table
from fedbook.lab.style import series
from fedbook.privacy.gaussian import rdp_to_epsilon
from fedbook.privacy.sampled import (
    paper_sigma,
    sampled_epsilon,
    sampled_gaussian_rdp,
    shortcut_rdp,
    without_replacement_rdp,
)

RATE, ROUNDS = 0.05, 200  # of the paper
SETTINGS = ((500, 1.0), (500, 2.0), (1000, 1.0), (1000, 2.0))  # its clients and budgets; delta = 1 / clients
ORDERS = tuple(range(2, 65))
WORDS = {
    "none": "no sampling counted, exact",
    "theorem2": "Theorem 2",
    "lemma4": "Lemma 4 with sensitivity C",
    "rdp": "Poisson cohorts, Renyi",
    "pld": "Poisson cohorts, loss distribution",
}


class Promise(NamedTuple):
    """The ``epsilon`` of Theorem 2, the ``order`` its proof fixes, whether the condition of (24) ``holds`` there."""

    epsilon: float
    order: float
    holds: bool


def theorem2_epsilon(noise_multiplier: float, rate: float, rounds: int, delta: float) -> Promise:
    """The epsilon for which (26) asks for this noise.

    With c = 7 r^2 T / sigma^2 and L = log(1/delta) it solves epsilon^2 = c (epsilon + 2 L); the order is 1 + 2 L /
    epsilon. Where ``holds`` is False it promises nothing: the condition of
    (24) fails, or epsilon is 2 L and more. Source: DP2-FedSAM, Theorem 2.
    """
    sigma = noise_multiplier
    log_inverse = -math.log(delta)
    c = 7 * (rate / sigma) ** 2 * rounds
    epsilon = 0.5 * (c + math.sqrt(c * c + 8 * c * log_inverse))
    order = 1 + 2 * log_inverse / epsilon
    return Promise(epsilon, order, epsilon < 2 * log_inverse and shortcut_rdp(order, sigma, rate)[1])


# --- figures


def draw_budget(
    ax: Axes, noise_multiplier: float, rate: float = RATE, rounds: int = ROUNDS, delta: float = 1e-3
) -> str:
    """Epsilon against round by five accounts of the same noise; Theorem 2's is dashed where its condition fails."""
    counts, z = _counts(rounds, 24), noise_multiplier
    few = counts[:: -max(1, len(counts) // 8)][::-1]  # the loss distribution takes a tenth of a second each
    told = [_plot(ax, 0, "none", counts, [_exact(z, rate, t, delta) for t in counts])]
    told.append(_plot_theorem2(ax, 1, z, rate, counts, delta))
    curve = [without_replacement_rdp(order, z, rate) for order in ORDERS]
    lemma4 = [rdp_to_epsilon(ORDERS, [t * rho for rho in curve], delta, "classic")[0] for t in counts]
    told.append(_plot(ax, 2, "lemma4", counts, lemma4))
    told.append(_plot(ax, 3, "rdp", counts, [sampled_epsilon(z, rate, t, delta, accountant="rdp") for t in counts]))
    told.append(_plot(ax, 4, "pld", few, [sampled_epsilon(z, rate, t, delta) for t in few]))
    _finish(ax, z, rate, rounds, delta)
    return f"Epsilon after {rounds} rounds: {'; '.join(told)}."


def draw_budget_live(ax: Axes, *, noise_multiplier: float, rate: float, rounds: int, delta_exponent: int) -> str:
    """Epsilon against round for these settings, delta = 10^``delta_exponent``; the tight figure at the end only."""
    delta, z = 10.0**delta_exponent, noise_multiplier
    counts = _counts(rounds, 10)
    told = [_plot(ax, 0, "none", counts, [_exact(z, rate, t, delta) for t in counts])]
    told.append(_plot_theorem2(ax, 1, z, rate, counts, delta))
    told.append(_plot(ax, 3, "rdp", counts, [sampled_epsilon(z, rate, t, delta, accountant="rdp") for t in counts]))
    told.append(_plot(ax, 4, "pld", counts[-1:], [sampled_epsilon(z, rate, counts[-1], delta)]))
    _finish(ax, z, rate, rounds, delta)
    return f"Epsilon after {rounds} rounds at sigma = {z:.3g}: {'; '.join(told)}."


def _counts(rounds: int, points: int) -> list[int]:
    return sorted({round(v) for v in np.geomspace(1, rounds, points)})


def _exact(z: float, rate: float, rounds: int, delta: float) -> float:
    return sampled_epsilon(z, rate, rounds, delta, sampler="none")


def _plot(ax: Axes, i: int, word: str, counts: Sequence[int], epsilon: Sequence[float]) -> str:
    look = series(i) | ({"markersize": 7} if len(counts) == 1 else {})
    ax.plot(counts, epsilon, label=WORDS[word], markevery=3 if len(counts) > 12 else 1, **look)
    return f"{WORDS[word]} {epsilon[-1]:.3g}"


def _plot_theorem2(ax: Axes, i: int, z: float, rate: float, counts: Sequence[int], delta: float) -> str:
    found = [theorem2_epsilon(z, rate, t, delta) for t in counts]
    look, holds = series(i), [promise.holds for promise in found]
    every = [promise.epsilon for promise in found]
    ax.plot(counts, every, label=WORDS["theorem2"] + ("" if all(holds) else ",\ncondition fails where dashed"),
            markevery=3 if len(counts) > 12 else 1, **(look | {"linestyle": "--"}))  # fmt: skip
    sound = [epsilon if good else math.nan for epsilon, good in zip(every, holds, strict=True)]
    ax.plot(counts, sound, color=look["color"], linestyle="-", marker="")
    failing = "its condition holds" if holds[-1] else "but its condition fails, so it promises nothing"
    return f"{WORDS['theorem2']} {every[-1]:.3g} ({failing})"


def _finish(ax: Axes, z: float, rate: float, rounds: int, delta: float) -> None:
    ax.set(xscale="log", yscale="log", xlabel="round", ylabel=r"$\varepsilon$", xlim=(0.9, max(1.15 * rounds, 2)))
    for axis in (ax.xaxis, ax.yaxis):
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda v, _: f"{v:g}")
    exponent = math.log10(delta)
    small = f"10^{{{exponent:.0f}}}" if abs(exponent - round(exponent)) < 1e-9 else f"{delta:.2g}"
    ax.set_title(rf"$\sigma={z:.3g}$, $r={rate:g}$, $\delta={small}$")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)


# --- which sigma a budget asks for


@lru_cache(maxsize=1)
def sigma_table() -> str:
    """The noise multiplier each account asks for at the paper's settings, as text; about two seconds, once.

    Relative to the clip norm C. For cohorts of fixed size a client is replaced, which moves the sum by 2 C.
    """
    rows = {
        "Theorem 2, (26); its condition fails": lambda n, e: paper_sigma(e, 1 / n, RATE, ROUNDS).sigma,
        "  at the best real order; fails too": lambda n, e: paper_sigma(e, 1 / n, RATE, ROUNDS).best_sigma,
        "Lemma 4, sensitivity C, by Lemma 2": _solved(without_replacement_rdp, "classic"),
        "  the same, improved conversion": _solved(without_replacement_rdp, "improved"),
        "  the same, 2C as it must be": _solved(without_replacement_rdp, "improved", 2.0),
        "cohorts of fixed size, 2C, library": lambda n, e: _least(lambda s: _fixed(s, 1 / n), e),
        "  the same, our bound (replaced_rdp)": _solved(replaced_rdp, "improved", 2.0),
        "Poisson cohorts, Renyi, by Lemma 2": _solved(sampled_gaussian_rdp, "classic"),
        "  the same with improved conversion": _solved(sampled_gaussian_rdp, "improved"),
        "  by loss distribution": lambda n, e: _least(lambda s: sampled_epsilon(s, RATE, ROUNDS, 1 / n), e),
        "no sampling counted, exact": lambda n, e: _least(lambda s: _exact(s, RATE, ROUNDS, 1 / n), e),
    }
    lines = [["clients, epsilon", *(f"N={n}, {e:g}" for n, e in SETTINGS)]]
    for words, sigma in rows.items():
        needed = (sigma(n, e) for n, e in SETTINGS)
        lines.append([words, *("impossible" if s is None else f"{s:.3f}" for s in needed)])
    return f"sigma for rate {RATE:g}, {ROUNDS} rounds, delta = 1/N\n" + text_table(lines, (38, 12))


def _solved(rdp: Callable[[int, float, float], float], conversion: str, sensitivity: float = 1.0) -> Callable:
    def sigma(clients: int, epsilon: float) -> float | None:
        def shown(s: float) -> float:
            curve = [ROUNDS * rdp(order, s / sensitivity, RATE) for order in ORDERS]
            return rdp_to_epsilon(ORDERS, curve, 1 / clients, conversion)[0]

        return _least(shown, epsilon)

    return sigma


def _fixed(sigma: float, delta: float) -> float:
    """dp-accounting's bound for cohorts of fixed size at multiplier sigma / 2; few orders, as its work is order^2."""
    import dp_accounting

    accountant = dp_accounting.rdp.RdpAccountant(list(range(2, 33)), dp_accounting.NeighboringRelation.REPLACE_ONE)
    event = dp_accounting.SampledWithoutReplacementDpEvent(
        100, round(100 * RATE), dp_accounting.GaussianDpEvent(sigma / 2)
    )
    return float(accountant.compose(event, ROUNDS).get_epsilon(delta))


def _least(shown: Callable[[float], float], epsilon: float) -> float | None:
    """The multiplier at which the falling function ``shown`` is epsilon; None if it never gets so low."""
    from scipy.optimize import brentq

    if shown(1e3) > epsilon:
        return None
    return math.exp(brentq(lambda u: min(shown(math.exp(u)), 1e3) - epsilon, math.log(0.5), math.log(1e3), xtol=1e-5))

"""Intervals: what a few seeds, or a finite test set, really say.

One number alone has no interval: with a single value ``low``, ``high`` and ``deviation`` are None, so
that a table of one seed shows its gap instead of a false certainty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fedbook import arguments
from fedbook.randomness import stream


@dataclass(frozen=True)
class Interval:
    """An estimate with the bounds that hold it at the stated confidence.

    ``deviation``: standard deviation of the values (divisor n - 1), None for one value and for counts.
    ``count``: the number of values, or of trials.
    """

    mean: float
    low: float | None
    high: float | None
    deviation: float | None
    count: int
    confidence: float

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.mean:.4g} (one value, no interval)"
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"

    def __contains__(self, value: float) -> bool:
        """Whether ``value`` lies within the bounds; nothing lies within bounds that are None."""
        return self.low is not None and self.low <= value <= self.high


def mean_interval(values: Sequence[float] | Tensor, confidence: float = 0.95) -> Interval:
    """The mean of independent values (one a seed) with Student's t interval, n - 1 degrees of freedom.

    Exact for normal values. Shapes: ``values`` [n].
    Raises: TypeError, ValueError (no value, NaN, confidence outside (0, 1)).
    """
    return _student(_values("values", values), _confidence(confidence))


def paired_difference(a: Sequence[float] | Tensor, b: Sequence[float] | Tensor, confidence: float = 0.95) -> Interval:
    """The mean of a - b over the same seeds, with Student's t interval of the differences.

    What the seeds do to both methods alike (split, first model) cancels, so this is narrower than two
    separate intervals suggest. Shapes: ``a`` and ``b`` [n], entry i of both from the same seed.
    Raises: TypeError, ValueError (different lengths, NaN).
    """
    first, second = _values("a", a), _values("b", b)
    if len(first) != len(second):
        raise ValueError(f"a and b: got {len(first)} and {len(second)} values; allowed is one of each a seed")
    return _student(first - second, _confidence(confidence))


def bootstrap_interval(
    values: Sequence[float] | Tensor, seed: int, confidence: float = 0.95, resamples: int = 10_000
) -> Interval:
    """The mean with the percentile bootstrap interval: quantiles of the means of resampled values.

    Needs no normality but many values: of 5 normal ones the 95 % interval holds the mean about 84 % of
    the time, Student's 95 %. Shapes: ``values`` [n]. Memory: at most 8 MB at a time.
    Raises: TypeError, ValueError.
    """
    x, confidence = _values("values", values), _confidence(confidence)
    resamples = arguments.integer("resamples", resamples, 100)
    rng, n = stream(seed, "bootstrap"), len(x)
    rows = max(1, 2**20 // n)
    if n == 1:
        return _single(x, confidence)
    means = [x[rng.integers(0, n, (min(rows, resamples - i), n))].mean(1) for i in range(0, resamples, rows)]
    low, high = np.quantile(np.concatenate(means), [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(x.mean()), float(low), float(high), float(x.std(ddof=1)), n, confidence)


def wilson(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """The share of successes (an accuracy on a test set) with Wilson's score interval.

    Covers about ``confidence`` on average over shares; for a guarantee at every share use
    :func:`clopper_pearson`. Raises: TypeError, ValueError (successes > trials, no trial).
    Source: Wilson 1927.
    """
    from scipy.special import ndtri

    successes, trials, confidence = _counts(successes, trials, confidence)
    z, p = float(ndtri((1 + confidence) / 2)), successes / trials
    centre = (p + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(p * (1 - p) / trials + z * z / (4 * trials * trials))
    low = 0.0 if successes == 0 else centre - half  # exact at the ends, where rounding would leave 1e-18
    high = 1.0 if successes == trials else centre + half
    return Interval(p, low, high, None, trials, confidence)


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """The share of successes with the exact interval: it holds the true share at least ``confidence`` often.

    Each bound alone fails with probability at most (1 - confidence) / 2: a one-sided bound at 95 % is a
    bound of the two-sided interval at 90 %. Raises: TypeError, ValueError (successes > trials, no trial).
    Source: Clopper and Pearson 1934.
    """
    from scipy.special import betaincinv

    successes, trials, confidence = _counts(successes, trials, confidence)
    tail, failures = (1 - confidence) / 2, trials - successes
    low = float(betaincinv(successes, failures + 1, tail)) if successes else 0.0
    high = 1 - float(betaincinv(failures, successes + 1, tail)) if failures else 1.0
    return Interval(successes / trials, low, high, None, trials, confidence)


def _student(x: np.ndarray, confidence: float) -> Interval:
    from scipy.special import stdtrit

    if len(x) == 1:
        return _single(x, confidence)
    mean, deviation = float(x.mean()), float(x.std(ddof=1))
    half = float(stdtrit(len(x) - 1, (1 + confidence) / 2)) * deviation / math.sqrt(len(x))
    return Interval(mean, mean - half, mean + half, deviation, len(x), confidence)


def _single(x: np.ndarray, confidence: float) -> Interval:
    return Interval(float(x[0]), None, None, None, 1, confidence)


def _values(name: str, values: Sequence[float] | Tensor) -> np.ndarray:
    allowed = "a non-empty list of finite numbers"
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy() if not values.dtype.is_complex else values.numpy()
    elif isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise arguments.wrong(TypeError, name, values, allowed)
    try:
        x = np.asarray(values)
    except ValueError:  # ragged
        raise arguments.wrong(ValueError, name, values, allowed) from None
    if x.ndim != 1 or x.size == 0:
        raise arguments.wrong(ValueError, name, values, allowed)
    if x.dtype.kind not in "iuf":
        raise arguments.wrong(TypeError, name, values, allowed)
    if not np.isfinite(x).all():
        raise arguments.wrong(ValueError, name, values, allowed)
    return x.astype(np.float64)


def _confidence(confidence: float) -> float:
    return arguments.real("confidence", confidence, above=0.0, below=1.0)


def _counts(successes: int, trials: int, confidence: float) -> tuple[int, int, float]:
    trials = arguments.integer("trials", trials, 1)
    return arguments.integer("successes", successes, 0, trials), trials, _confidence(confidence)

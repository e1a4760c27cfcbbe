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


def clopper_pearson(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """The share of successes with the exact interval: it holds the true share at least ``confidence`` often.

    Each bound alone fails with probability at most (1 - confidence) / 2: a one-sided bound at 95 % is a
    bound of the two-sided interval at 90 %. Raises: TypeError, ValueError (successes > trials, no trial).
    Source: Clopper and Pearson 1934.
    """
    trials, confidence = arguments.integer("trials", trials, 1), _confidence(confidence)
    successes = arguments.integer("successes", successes, 0, trials)
    low, high = (float(bound[0]) for bound in exact_bounds(np.array([successes]), trials, confidence))
    return Interval(successes / trials, low, high, None, trials, confidence)


def exact_bounds(successes: np.ndarray, trials: int, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """The ends of :func:`clopper_pearson` for many counts at once. Shapes: ``successes`` [n] to two of [n]."""
    from scipy.special import betaincinv

    tail, failures = (1 - confidence) / 2, trials - successes
    with np.errstate(invalid="ignore"):
        low = np.where(successes > 0, betaincinv(successes, failures + 1, tail), 0.0)
        high = np.where(failures > 0, 1 - betaincinv(np.maximum(failures, 1), successes + 1, tail), 1.0)
    return low, high


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

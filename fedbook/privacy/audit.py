"""What an attacker measures: lower bounds on epsilon from many runs with and without one planted client.

An accountant bounds epsilon from above, by theory, and believes the code. An audit bounds it from below, by
experiment: plant a client (the canary) whose update is as visible as clipping lets it be, run the algorithm often
with it and often without it, and let a test guess from one score a run which of the two it was. Differential
privacy limits how well any test can guess. If the bound from below exceeds the accountant's figure, the code does
not do what the accountant was told. If it does not, nothing is proved: another canary might have shown more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.intervals import clopper_pearson, exact_bounds
from fedbook.privacy.gaussian import exact_epsilon

Runs = Callable[[list[int]], Tensor]


@dataclass(frozen=True)
class LowerBound:
    """An epsilon that the runs show at ``confidence``, and the test that showed it.

    The test guesses one world from the scores on one side of ``threshold``; ``direction`` says which: "with above"
    guesses the canary from scores above it, "without below" its absence from scores that are not, and so on.
    ``true_positives``: judged runs of the guessed world on that side. ``false_positives``: those of the other
    world. ``runs``: how many runs of (the guessed world, the other) were judged, half of all.
    """

    epsilon: float
    delta: float
    threshold: float
    direction: str
    true_positives: int
    false_positives: int
    runs: tuple[int, int]
    confidence: float


@dataclass(frozen=True)
class Audit:
    """What an accountant claims, and what runs show: by any test, and by one for mechanisms that are exactly Gaussian.

    ``refuted``: whether a figure that was shown exceeds the claim.
    """

    claimed: float
    shown: LowerBound
    shown_gaussian: LowerBound

    @classmethod
    def of(cls, claimed: float, without: Tensor, with_canary: Tensor, delta: float, confidence: float = 0.95) -> Audit:
        """From the scores of both worlds, see :func:`epsilon_lower_bound`. Raises: TypeError, ValueError.

        ``claimed``: an epsilon; a run that is not private claims none.
        """
        claimed = arguments.real("claimed", claimed, 0.0)
        bounds = (
            f(without, with_canary, delta, confidence) for f in (epsilon_lower_bound, gaussian_epsilon_lower_bound)
        )
        return cls(claimed, *bounds)

    @property
    def refuted(self) -> bool:
        return max(self.shown.epsilon, self.shown_gaussian.epsilon) > self.claimed


def canary_scores(
    run_without: Runs, run_with: Runs, runs: int, batch: int = 500, first_seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Scores of ``runs`` independent runs without and as many with the canary, no seed used twice.

    ``run_without(seeds)`` and ``run_with(seeds)`` execute one federation a seed, side by side, and return a score
    for each; they are called with at most ``batch`` seeds at a time, which bounds the memory. The two worlds must
    differ in the canary alone: same other clients, same divisor, same noise. The score may use all that is
    released and all that an attacker may know, the others' data too; a natural one is the total movement of the
    released parameters along the canary's update.
    Shapes: two tensors [runs]. Raises: TypeError, ValueError (scores of another number or kind, NaN).
    """
    for name, run in (("run_without", run_without), ("run_with", run_with)):
        if not callable(run):
            raise arguments.wrong(TypeError, name, run, "a function from a list of seeds to scores [len(seeds)]")
    runs = arguments.integer("runs", runs, 2)
    batch = arguments.integer("batch", batch, 1)
    first = arguments.integer("first_seed", first_seed, 0, 2**63 - 2 * runs)
    return _collect("run_without", run_without, first, runs, batch), _collect(
        "run_with", run_with, first + runs, runs, batch
    )


def epsilon_lower_bound(without: Tensor, with_canary: Tensor, delta: float, confidence: float = 0.95) -> LowerBound:
    """The largest epsilon that the scores rule out at ``delta``; 0.0 if they rule out nothing.

    (epsilon, delta)-DP implies P[with in A] <= e^epsilon P[without in A] + delta for every set A of scores, and
    the same with the worlds exchanged. Tried are the sets above and not above a threshold. Every second run
    (the 1st, 3rd, ...) serves to choose the set, the others to judge it, so that the choice costs no confidence.
    Judged is log((p - delta) / q) with Clopper-Pearson's bounds p, from below, on the guessed world's probability
    and q, from above, on the other's, each wrong with probability at most a = (1 - confidence) / 2: if the
    algorithm is (epsilon, delta)-DP, the result exceeds epsilon in at most 1 - confidence of all audits.

    However large epsilon is, n runs in each world, n/2 = k of them judged, show at most
    log((a^(1/k) - delta) / (1 - a^(1/k))), about log(n / (2 log(1/a))): 5.6 for 2000 runs at 95 %.

    Shapes: ``without`` [n] and ``with_canary`` [m], one score an independent run; n and m may differ.
    Raises: TypeError, ValueError (fewer than two scores, NaN or infinite ones).
    Source: Jagielski, Ullman, Oprea 2020.
    """
    delta, confidence = _checked(delta, confidence)
    halves = _halves(without, with_canary)

    def from_rates(true: np.ndarray, false: np.ndarray) -> np.ndarray:  # lower and upper bound
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(true - delta, 0.0)) - np.log(false)

    evidence, value = _choose_and_judge(halves, from_rates, confidence)
    return LowerBound(max(0.0, value), delta, *evidence, confidence)


def gaussian_epsilon_lower_bound(
    without: Tensor, with_canary: Tensor, delta: float, confidence: float = 0.95
) -> LowerBound:
    """A stronger bound for mechanisms that are exactly as private as one Gaussian release: 0.0 if nothing is shown.

    Of all tests between N(0, 1) and N(mu, 1) the best has Phi^-1(1 - false positive rate) - Phi^-1(false negative
    rate) = mu at every threshold, and no test has more. So a threshold in the middle, where both rates are easily
    measured, bounds mu from below, and mu gives epsilon at any delta (:func:`exact_epsilon`): far in the tail, where
    runs are rare, the shape of the Gaussian takes their place.

    Legitimate for ``delta`` above 0, to test a claim of the form "this is mu-GDP": Gaussian noise in every release
    and no secret sampling (rate 1). With sampling the claim is another and the result may exceed a true epsilon:
    use :func:`epsilon_lower_bound`. Confidence, split of the runs, shapes: as there.
    Raises: TypeError, ValueError. Source: Dong, Roth, Su 2022 (Gaussian DP); Nasr et al. 2023.
    """
    from scipy.special import ndtri

    delta, confidence = _checked(delta, confidence)
    halves = _halves(without, with_canary)
    evidence, mu = _choose_and_judge(halves, lambda true, false: ndtri(true) - ndtri(false), confidence)
    return LowerBound(exact_epsilon(max(0.0, mu), delta), delta, *evidence, confidence)


def _collect(name: str, run: Runs, first: int, runs: int, batch: int) -> Tensor:
    parts = []
    for start in range(first, first + runs, batch):
        seeds = list(range(start, min(start + batch, first + runs)))
        parts.append(arguments.tensor(f"scores of {name}", run(seeds), shape=(len(seeds),), kind="float").detach())
    return torch.cat(parts)


def _checked(delta: float, confidence: float) -> tuple[float, float]:
    delta = arguments.real("delta", delta, 0.0, below=1.0)
    return delta, arguments.real("confidence", confidence, above=0.0, below=1.0)


def _halves(without: Tensor, with_canary: Tensor) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The scores by world, sorted: those that choose and those that judge.

    Taken in turn, not first and second half: scores that somebody sorted, or that drift, are split alike.
    """
    choose, judge = {}, {}
    for world, name, scores in (("without", "without", without), ("with", "with_canary", with_canary)):
        x = arguments.tensor(name, scores, ndim=1, kind="float").detach().cpu().double().numpy()
        if len(x) < 2:
            raise arguments.wrong(ValueError, name, scores, "at least two scores")
        choose[world], judge[world] = np.sort(x[0::2]), np.sort(x[1::2])
    return choose, judge


def _choose_and_judge(
    halves: tuple[dict[str, np.ndarray], dict[str, np.ndarray]],
    from_rates: Callable[[np.ndarray, np.ndarray], np.ndarray],
    confidence: float,
) -> tuple[tuple[float, str, int, int, tuple[int, int]], float]:
    """The set of scores with the largest figure on the first halves, its counts and its figure on the others."""
    choose, judge = halves
    wary = 1 - 0.03 * (1 - confidence)  # the best of many thresholds is lucky too: wider bounds favour solid counts
    thresholds = _between(np.concatenate([choose["without"], choose["with"]]))
    above = {world: len(x) - np.searchsorted(x, thresholds, side="right") for world, x in choose.items()}
    best, threshold, direction = -math.inf, float(thresholds[0]), "with above"
    for guessed, other in (("with", "without"), ("without", "with")):
        for side in ("above", "below"):
            counts = [
                above[world] if side == "above" else len(choose[world]) - above[world] for world in (guessed, other)
            ]
            low, _ = _bounds(counts[0], len(choose[guessed]), wary)
            _, high = _bounds(counts[1], len(choose[other]), wary)
            figures = from_rates(low, high)
            place = int(np.argmax(figures))
            if figures[place] > best:
                best, threshold, direction = figures[place], float(thresholds[place]), f"{guessed} {side}"
    guessed, side = direction.split()
    order = (guessed, "with" if guessed == "without" else "without")
    positives = [int(np.count_nonzero((judge[world] > threshold) == (side == "above"))) for world in order]
    runs = (len(judge[order[0]]), len(judge[order[1]]))
    low = clopper_pearson(positives[0], runs[0], confidence).low
    high = clopper_pearson(positives[1], runs[1], confidence).high
    figure = float(from_rates(np.array([low]), np.array([high]))[0])
    return (threshold, direction, positives[0], positives[1], runs), figure


def _between(scores: np.ndarray) -> np.ndarray:
    """A threshold in each gap between different scores, and the largest score itself."""
    values = np.unique(scores)
    middle = 0.5 * values[:-1] + 0.5 * values[1:]
    middle = np.where(middle < values[1:], middle, values[:-1])  # the next float: rounding must not pass it
    return np.append(middle, values[-1])


def _bounds(successes: np.ndarray, trials: int, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """:func:`exact_bounds`, of each different count once."""
    counts, place = np.unique(successes, return_inverse=True)
    low, high = exact_bounds(counts, trials, confidence)
    return low[place], high[place]

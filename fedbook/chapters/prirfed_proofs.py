"""The exercises of the proofs on PriRFed: composition, one call, the curvature constant, a sampled mean."""

from __future__ import annotations

import math
from typing import Any

from fedbook.chapters import errata
from fedbook.lab.compare import short
from fedbook.lab.exercises import WrongAnswer, exercise

KINDS = ("false", "loose", "ambiguous", "experiment")
ERRATA = errata.read("prirfed")


def _problem(answer: Any, right: float) -> str | None:
    if isinstance(answer, bool) or not isinstance(answer, (int, float)):
        return f"It should be one number; it is {short(answer)}."
    return None if math.isclose(answer, right, rel_tol=5e-3) else f"The number is not {short(answer)}."


TAIL = 0.1 * math.sqrt(100 * math.log(1e5))
ADVANCED = TAIL + 5 * math.expm1(0.1)


@exercise(
    "03-p1",
    solution=ADVANCED,
    hints=("Theorem 2.3 has two terms: one grows with the root of k, one with k.",
           "k = 50: sqrt(100 log(100000)) times 0.1, plus 5 (e^0.1 - 1).",),
    wrong_answers=(
        WrongAnswer("basic", 5.0, "is not", "That is Theorem 2.2, k epsilon: valid, but larger."),
        WrongAnswer("first term", TAIL, "is not", "The second term, k epsilon (e^epsilon - 1), is missing."),
        WrongAnswer("no two", ADVANCED - TAIL * (1 - math.sqrt(0.5)), "is not", "Under the root stands 2 k."),
        WrongAnswer("decimal log", ADVANCED - TAIL + math.sqrt(5), "is not", "The logarithm is the natural one."),
        WrongAnswer("text", "50", "one number"),
    ),
)  # fmt: skip
def check_composition(answer: Any) -> str | None:
    return _problem(answer, ADVANCED)


@exercise(
    "03-p2",
    solution=3 * (2 / 100) / 0.2,
    hints=("One replaced record moves the clipped mean by at most 2 tau / n.",
           "Nine steps multiply mu by the root of nine: Lemma 4.b.",),
    wrong_answers=(
        WrongAnswer("one step", 0.1, "is not", "That is one step; there are nine."),
        WrongAnswer("nine times", 0.9, "is not", "Squares add: multiply by the root of 9, not by 9."),
        WrongAnswer("tau / n", 0.15, "is not", "A record is replaced, not removed: the mean moves by 2 tau / n."),
        WrongAnswer("the sum", 30.0, "is not", "The noise is on the mean: divide by the number of records."),
        WrongAnswer("text", "mu", "one number"),
    ),
)  # fmt: skip
def check_call(answer: Any) -> str | None:
    return _problem(answer, 0.3)


ZETA = 2 / math.tanh(2)


@exercise(
    "03-p3",
    solution=ZETA,
    hints=("The product under tanh is the root of |kappa| times M.",
           "sqrt(4) times 1 is 2; zeta = 2 / tanh 2.",),
    wrong_answers=(
        WrongAnswer("no root", 4 / math.tanh(4), "is not", "Take the root of the curvature, not the curvature."),
        WrongAnswer("Lemma A.1 as printed", 2 / math.tanh(math.sqrt(2)), "is not", "M is not under the root."),
        WrongAnswer("flat", 1.0, "is not", "That is the value for curvature 0 or more."),
        WrongAnswer("times tanh", 2 * math.tanh(2), "is not", "Divide by tanh: zeta is at least 1."),
        WrongAnswer("curvature -1", 1 / math.tanh(1), "is not", "That is for curvature -1; here it is -4."),
        WrongAnswer("text", "2", "one number"),
    ),
)  # fmt: skip
def check_zeta(answer: Any) -> str | None:
    return _problem(answer, ZETA)


@exercise(
    "03-p4",
    solution=1.5,
    hints=("There are three cohorts: list their means.",
           "The means are 3/2, 3/2 and 0; square them and average.",),
    wrong_answers=(
        WrongAnswer("square of the mean", 1.0, "is not", "The variance of the draw is missing."),
        WrongAnswer("with replacement", 2.0, "is not", "Agents are drawn without replacement: mind (K - s) / (K - 1)."),
        WrongAnswer("variance only", 0.5, "is not", "Add the square of the mean over all."),
        WrongAnswer("sum", 6.0, "is not", "Divide the cohort's sum by s before squaring."),
        WrongAnswer("text", "3/2", "one number"),
    ),
)  # fmt: skip
def check_cohort(answer: Any) -> str | None:
    return _problem(answer, 1.5)

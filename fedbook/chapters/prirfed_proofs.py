"""PriRFed's proofs, errata and exercises: composition, one call, the curvature constant, a sampled mean."""

from __future__ import annotations

import math

from fedbook.chapters import errata
from fedbook.lab.exercises import WrongAnswer, by_hand

KINDS = ("false", "loose", "ambiguous", "experiment")
ERRATA = errata.read("prirfed")


TAIL = 0.1 * math.sqrt(100 * math.log(1e5))
ADVANCED = TAIL + 5 * math.expm1(0.1)


by_hand(
    "03-p1",
    tolerance=5e-3,
    solution=ADVANCED,
    hints=("Theorem 2.3 has two terms: one grows with the root of k, one with k.",
           "k = 50: sqrt(100 log(100000)) times 0.1, plus 5 (e^0.1 - 1).",),
    why="Theorem 2.2 gives 5, with δ = 0. Theorem 2.3 gives less, and pays for it with δ* = 0.00001.",
    wrong_answers=(
        WrongAnswer(5.0, "That is Theorem 2.2, k epsilon: valid, but larger."),
        WrongAnswer(TAIL, "The second term, k epsilon (e^epsilon - 1), is missing."),
        WrongAnswer(ADVANCED - TAIL * (1 - math.sqrt(0.5)), "Under the root stands 2 k."),
        WrongAnswer(ADVANCED - TAIL + math.sqrt(5), "The logarithm is the natural one."),
    ),
)  # fmt: skip


by_hand(
    "03-p2",
    tolerance=5e-3,
    solution=3 * (2 / 100) / 0.2,
    hints=("One replaced record moves the clipped mean by at most 2 tau / n.",
           "Nine steps multiply mu by the root of nine: Lemma 4.b.",),
    wrong_answers=(
        WrongAnswer(0.1, "That is one step; there are nine."),
        WrongAnswer(0.9, "Squares add: multiply by the root of 9, not by 9."),
        WrongAnswer(0.15, "A record is replaced, not removed: the mean moves by 2 tau / n."),
        WrongAnswer(30.0, "The noise is on the mean: divide by the number of records."),
    ),
)  # fmt: skip


ZETA = 2 / math.tanh(2)


by_hand(
    "03-p3",
    tolerance=5e-3,
    solution=ZETA,
    hints=("The product under tanh is the root of |kappa| times M.",
           "sqrt(4) times 1 is 2; zeta = 2 / tanh 2.",),
    wrong_answers=(
        WrongAnswer(4 / math.tanh(4), "Take the root of the curvature, not the curvature."),
        WrongAnswer(2 / math.tanh(math.sqrt(2)), "M is not under the root."),
        WrongAnswer(1.0, "That is the value for curvature 0 or more."),
        WrongAnswer(2 * math.tanh(2), "Divide by tanh: zeta is at least 1."),
        WrongAnswer(1 / math.tanh(1), "That is for curvature -1; here it is -4."),
    ),
)  # fmt: skip


by_hand(
    "03-p4",
    tolerance=5e-3,
    solution=1.5,
    hints=("There are three cohorts: list their means.",
           "The means are 3/2, 3/2 and 0; square them and average.",),
    wrong_answers=(
        WrongAnswer(1.0, "The variance of the draw is missing."),
        WrongAnswer(2.0, "Agents are drawn without replacement: mind (K - s) / (K - 1)."),
        WrongAnswer(0.5, "Add the square of the mean over all."),
        WrongAnswer(6.0, "Divide the cohort's sum by s before squaring."),
    ),
)  # fmt: skip

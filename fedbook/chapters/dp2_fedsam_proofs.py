"""DP2-FedSAM's proofs, errata and exercises: a divisor, the noise's length, a Renyi curve, a clipped step."""

from __future__ import annotations

import math

from fedbook.chapters import errata
from fedbook.lab.exercises import WrongAnswer, by_hand

KINDS = ("false", "loose", "ambiguous", "experiment", "code")
ERRATA = errata.read("dp2_fedsam")


by_hand(
    "04-p1",
    tolerance=5e-3,
    solution=2 * 0.5 / 20,
    hints=("Write the difference of the two means over a common denominator.",
           "(s + x)/m - s/(m - 1) = (x - s/(m - 1))/m, and both vectors in the bracket have length at most C.",),
    why="The two means differ by (x - s/(m - 1)) / m. Both vectors in the bracket have length at most C, so this "
        "is at most 2C/m = 1/20.",
    wrong_answers=(
        WrongAnswer(0.5 / 20, "That is the move with a constant divisor of 20."),
        WrongAnswer(1.0, "That is the longest bracket; it is divided by m."),
        WrongAnswer(0.5, "That is the move of the sum. A mean was asked for."),
        WrongAnswer(1 / 19, "The cohort has 20 members with the client, not 21."),
        WrongAnswer(1 / 400, "The size of the cohort enters once."),
    ),
)  # fmt: skip


by_hand(
    "04-p2",
    tolerance=5e-3,
    solution=math.sqrt(10_000) * 3 * 0.5 / 50,
    hints=("One coordinate of the average has the deviation sigma C / (r K).",
           "A vector of D independent coordinates has the mean squared length D times the variance of one.",),
    why="The root of D is 100, so the noise has the length 100 * 3 * 1/2 / 50 = 3. No mean of 50 clipped updates is "
        "longer than C = 1/2: the noise is six times as long.",
    wrong_answers=(
        WrongAnswer(0.03, "That is the deviation of one coordinate; there are 10,000."),
        WrongAnswer(300.0, "Squares add: the length grows with the root of D."),
        WrongAnswer(150.0, "That is the noise on the sum; the server divides by 50."),
        WrongAnswer(9.0, "That is the mean squared length; take the root."),
        WrongAnswer(6.0, "The noise on the sum is sigma times C."),
    ),
)  # fmt: skip


by_hand(
    "04-p3",
    tolerance=5e-3,
    solution=math.log1p(0.1**2 * math.expm1(1.0)),
    hints=("Write out the three terms of A for a = 2: j = 0, 1, 2.",
           "The exponents are 0, 0 and 1/sigma^2, and the three weights sum to 1: A = 1 + r^2 (e^(1/sigma^2) - 1).",),
    wrong_answers=(
        WrongAnswer(1.0, "That is a / (2 sigma^2): the client would be in every cohort."),
        WrongAnswer(math.log1p(0.1 * math.expm1(1.0)), "Two draws must hit: square the rate."),
        WrongAnswer(1 + 0.01 * math.expm1(1.0), "That is A; take the logarithm."),
        WrongAnswer(0.07, "That is (24). Compute Theorem 4.1."),
        WrongAnswer(0.01, "e - 1 is not 1: with sigma = 1 the exponential counts."),
    ),
)  # fmt: skip


by_hand(
    "04-p4",
    tolerance=5e-3,
    solution=2 / 3,
    hints=("The updates are minus the gradients: -8, 2 and 2. Clip each one to length 2.",
           "Add the three clipped updates and divide by 3. Mind the sign.",),
    why="The clipped updates are -2, 2 and 2: their mean is 2/3. The mean gradient is (8 - 2 - 2)/3 = 4/3, so "
        "downhill is negative. The body moves uphill: the clip has turned a majority of small slopes against one "
        "large one.",
    wrong_answers=(
        WrongAnswer(-4 / 3, "That is the step without clipping."),
        WrongAnswer(-2 / 3, "That is the mean clipped gradient. An update goes against it."),
        WrongAnswer(2.0, "Divide by the number of clients."),
        WrongAnswer(-1.0, "That is the mean factor times the mean update: Lemma 8's mistake."),
        WrongAnswer(0.0, "With two clients it would vanish. There are three."),
    ),
)  # fmt: skip

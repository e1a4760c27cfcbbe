"""The exercises of the proofs on Hetero-SSFL: strangers, the ceiling, the start that lives, the alignment weight."""

from __future__ import annotations

import math
from typing import Any

from fedbook.chapters import errata
from fedbook.lab.compare import short
from fedbook.lab.exercises import WrongAnswer, exercise

KINDS = ("false", "loose", "ambiguous", "experiment")
ERRATA = errata.read("hetero_ssfl")


def _problem(answer: Any, right: float) -> str | None:
    if isinstance(answer, bool) or not isinstance(answer, (int, float)):
        return f"It should be one number; it is {short(answer)}."
    return None if math.isclose(answer, right, rel_tol=1e-3) else f"The number is not {short(answer)}."


@exercise(
    "02-p1",
    solution=math.sqrt(50 * 32) / 200,
    hints=("Divide the mean trace of Proposition 2.3 by both norms.",
           "tr G / |G| is the root of the effective dimension; one factor 1/(L - 1) is left.",),
    wrong_answers=(
        WrongAnswer("no root", 50 * 32 / 200, "is not", "CKA is at most 1. Take the root of the product."),
        WrongAnswer("L for L - 1", 40 / 201, "is not", "Centring takes one direction away: divide by L - 1."),
        WrongAnswer("unbiased", 0.0, "is not", "That is the mean of HSIC_1. CKA by HSIC_b was asked for."),
        WrongAnswer("squared", 40 / 200**2, "is not", "Only one factor 1/(L - 1) is left after the division by norms."),
        WrongAnswer("one width", 50 / 200, "is not", "Both effective dimensions count, by the root of their product."),
        WrongAnswer("text", "40/200", "one number"),
    ),
)  # fmt: skip
def check_strangers(answer: Any) -> str | None:
    return _problem(answer, math.sqrt(50 * 32) / 200)


@exercise(
    "02-p2",
    solution=math.sqrt(20 / 25),
    hints=("Only the two largest eigenvalues of the mean kernel can be met.",
           "Squares of eigenvalues count: (16 + 4) over (16 + 4 + 4 + 1), and a root at the end.",),
    wrong_answers=(
        WrongAnswer("no squares", math.sqrt(6 / 9), "is not", "The squares of the eigenvalues count, not these."),
        WrongAnswer("trace share", 6 / 9, "is not", "That is the share of the trace: squares, then a root."),
        WrongAnswer("no root", 20 / 25, "is not", "Take the root: one of two norms cancels."),
        WrongAnswer("width 3", math.sqrt(24 / 25), "is not", "The client has width 2: two eigenvalues."),
        WrongAnswer("one", 1.0, "is not", "The mean kernel has rank 4, the client's at most 2."),
        WrongAnswer("text", "root", "one number"),
    ),
)  # fmt: skip
def check_ceiling(answer: Any) -> str | None:
    return _problem(answer, math.sqrt(20 / 25))


@exercise(
    "02-p3",
    solution=0.1,
    hints=("The rest points other than 0 solve (s + n) p^2 - s p + lambda = 0.",
           "2 p^2 - p + 0.08 = 0 has the discriminant 1 - 0.64; which root is not stable?",),
    wrong_answers=(
        WrongAnswer("larger root", 0.4, "is not", "That is where it comes to rest. From where on does it get there?"),
        WrongAnswer("no noise", (1 - math.sqrt(0.68)) / 2, "is not", "The noise counts: s + n stands at p^2."),
        WrongAnswer("any start", 0.0, "is not", "0 is a stable rest point: small starts die."),
        WrongAnswer("decay", 0.08, "is not", "At p = lambda the signal term is smaller than the decay."),
        WrongAnswer("twice", 0.2, "is not", "Divide by 2 (s + n) = 4."),
        WrongAnswer("text", "p", "one number"),
    ),
)  # fmt: skip
def check_start(answer: Any) -> str | None:
    return _problem(answer, 0.1)


@exercise(
    "02-p4",
    solution=0.4,
    hints=("First Gamma = 2 L_2 P R L / kappa, then mu < S / (2 E Gamma).",
           "Gamma = 2 * 1 * 2 * 2 * 10 / 40 = 2.",),
    wrong_answers=(
        WrongAnswer("no steps", 2.0, "is not", "E steps lie between two mean kernels: a factor E."),
        WrongAnswer("no 2", 0.8, "is not", "The swap adds 2 mu eta E Gamma: mind the 2."),
        WrongAnswer("printed", 8 / (2 * 1 * 2 * 8 * 100), "is not", "That is the printed condition, with R^3 L^2."),
        WrongAnswer("no floor", 0.01, "is not", "kappa divides Gamma, so it multiplies the limit."),
        WrongAnswer("Gamma", 0.2, "is not", "Gamma has one factor 2, the condition another."),
        WrongAnswer("text", "S", "one number"),
    ),
)  # fmt: skip
def check_weight(answer: Any) -> str | None:
    return _problem(answer, 0.4)

"""The errata and the answers of the exercises of ``05_cvfl_proofs``."""

from __future__ import annotations

import math
from collections.abc import Callable

from fedbook.chapters import errata
from fedbook.lab.exercises import WrongAnswer, by_cases, by_hand

ERRATA = errata.read("cvfl")

# --- 05-p1, by hand: which second derivative Lemma 1 needs


by_hand(
    "05-p1",
    names=("first", "second", "third"),
    solution=[0.0, 2.0, 6.0],
    hints=(
        "The paper's H_m is the largest second derivative of F by h_m twice.",
        "By h_1 twice: F is linear in h_1. By h_2 twice: 2 h_1.",
        "Lemma 1 needs the derivative of dF/dh_1 = h_2^2 by h_2.",
    ),
    wrong_answers=(
        WrongAnswer([0.0, 2.0, 2.0], "The third number is mixed: d/dh_2 of dF/dh_1."),
        WrongAnswer([0.0, 2.0, 0.0], "dF/dh_1 = h_2^2 does change with h_2."),
        WrongAnswer([0.0, 2.0, 9.0], "9 is the largest dF/dh_1; you need its derivative."),
        WrongAnswer([0.0, 6.0, 6.0], "By h_2 twice is 2 h_1, and h_1 stays below 1."),
    ),
)


# --- 05-p2, by hand: from which Q on three participants drive each other apart


by_hand(
    "05-p2",
    solution=5,
    hints=(
        "A round multiplies the residual by 1 - 3 (1 - 0.8^Q).",
        "It grows when the factor is below -1: 3 (1 - 0.8^Q) > 2.",
    ),
    why="It grows once 0.8^Q is below a third. 0.8⁴ is still above, 0.8⁵ below.",
    wrong_answers=(
        WrongAnswer(2, "From Q = 2 on the residual changes its sign, but it still shrinks: the factor is above -1."),
        WrongAnswer(4, "0.8^4 = 0.4096 is still above 1/3. The smallest WHOLE Q is asked for."),
        WrongAnswer(math.log(1 / 3) / math.log(0.8), "That is where the factor is -1. Take the next whole number."),
        WrongAnswer(11, "That is the answer for eta = 0.1. Here eta is 0.2."),
        WrongAnswer(1 - 3 * (1 - 0.8**5), "That is the factor of a round at the right Q."),
    ),
)


# --- 05-p3, code: bits for a given error


def solution_bits_needed(width: float, numbers: int, error: float) -> int:
    """The smallest whole b for which ``numbers`` dithered numbers have at most that squared error in the mean."""
    b = 1
    while numbers * (width / (2**b - 1)) ** 2 / 12 > error:
        b += 1
    return b


def _bits(law: Callable[[float, int], float], per: bool = True) -> Callable[[float, int, float], int]:
    def found(width: float, numbers: int, error: float) -> int:
        return next(b for b in range(1, 64) if (numbers if per else 1) * law(width, b) <= error)

    return found


by_cases(
    "05-p3",
    solution=solution_bits_needed,
    hints=(
        "Levels from end to end: Delta = W / (2^b - 1).",
        "Dither: each number has the mean squared error Delta^2 / 12.",
        "The errors of all numbers add up. Try b = 1, 2, ...",
    ),
    wrong_answers=(
        WrongAnswer(
            _bits(lambda w, b: (w / 2**b) ** 2 / 12), "2^b levels from end to end leave 2^b - 1 gaps, not 2^b."
        ),
        WrongAnswer(
            _bits(lambda w, b: (w / (2**b - 1)) ** 2 / 12, per=False),
            "The errors of all numbers of the embedding add up.",
        ),
        WrongAnswer(
            _bits(lambda w, b: (w / (2**b - 1)) ** 2 / 4),
            "Delta^2 / 4 is the worst case. Under dither the mean is Delta^2 / 12.",
        ),
        WrongAnswer(_bits(lambda w, b: w / (2**b - 1) / 12), "The squared error has Delta SQUARED."),
        WrongAnswer(
            lambda width, numbers, error: math.log2(1 + width * math.sqrt(numbers / (12 * error))),
            "Bits are whole: round up.",
        ),
    ),
    cases=[
        {"width": 2.0, "numbers": 1, "error": 0.1},
        {"width": 2.0, "numbers": 32, "error": 1.0},
        {"width": 2.0, "numbers": 32, "error": 0.1},
        {"width": 4.0, "numbers": 7, "error": 0.003},
        {"width": 1.0, "numbers": 64, "error": 5.0},
        {"width": 1.0, "numbers": 3, "error": 1.0},
    ],
)


# --- 05-p4, code: Algorithm 1's direction from a returned derivative


def solution_own_direction(x: list[float], h: list[float], sent: list[float], delta: list[float]) -> float:
    """Party m's direction for h = x theta: the returned derivative with the own compression error taken out."""
    B = len(x)
    return sum(x[i] * (delta[i] + (h[i] - sent[i]) / B) for i in range(B))


def _direction(sign: float = 1.0, divide: bool = True, mean: bool = False) -> Callable[..., float]:
    def found(x: list[float], h: list[float], sent: list[float], delta: list[float]) -> float:
        size = len(x)
        parts = [
            a * (d + sign * (b - c) / (size if divide else 1)) for a, b, c, d in zip(x, h, sent, delta, strict=True)
        ]
        return sum(parts) / (size if mean else 1)

    return found


by_cases(
    "05-p4",
    solution=solution_own_direction,
    hints=(
        "Proposition 10.2 has the whole line; J_m is the column x for h = x theta.",
        "delta was computed with the sent embedding. The own error is sent - h: take it out, with its 1 / B.",
    ),
    wrong_answers=(
        WrongAnswer(_direction(0.0), "That is Algorithm 2: the own embedding is still the sent one."),
        WrongAnswer(_direction(-1.0), "That puts the own error in twice. h - sent, not sent - h."),
        WrongAnswer(_direction(divide=False), "The loss is a mean over the batch: the error counts 1 / B."),
        WrongAnswer(_direction(mean=True), "delta already has the 1 / B of the mean: add up over the samples."),
    ),
    cases=[
        {"x": [1.0, 1.0], "h": [0.4, 0.0], "sent": [1.0, 0.0], "delta": [0.25, 0.25]},
        {"x": [1.0, -0.5, 2.0], "h": [0.3, 0.7, -0.2], "sent": [0.0, 1.0, 0.0], "delta": [0.1, -0.4, 0.2]},
    ],
)

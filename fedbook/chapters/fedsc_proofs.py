"""FedSC's proofs, errata and exercises: gradient in closed form, a batch's bias, weights under alpha, largest moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fedbook.chapters import errata
from fedbook.lab.exercises import WrongAnswer, by_cases, by_hand
from fedbook.randomness import normal, stream

KINDS = {
    "false": "refuted by a computation",
    "does not follow": "the lines before it give something else; not refuted",
    "bound loose": "true as an upper bound, but not the value, or with a constant or factor too many",
    "ambiguous": "can be read in several ways, or a condition is missing",
    "experiment": "of the experiments and their tables",
    "released code": "of the public release, not of the paper",
}
ERRATA = errata.read("fedsc")


# --- 01-p1, code: the gradient of the contrast


def solution_contrast_gradient(Z: Tensor, alpha: float, frozen: Tensor) -> Tensor:
    symmetric = (frozen + frozen.T) / 2
    R = Z.T @ Z / len(Z)
    return 2 / len(Z) * Z @ (alpha * R + (1 - alpha) * symmetric)


def _contrast(
    *, factor: float = 2.0, own: float = 1.0, part: str = "symmetric", divide: bool = True, swap: bool = False
) -> Callable[..., Tensor]:
    """The gradient with one of its usual mistakes."""

    def answer(Z: Tensor, alpha: float, frozen: Tensor) -> Tensor:
        taken = {"symmetric": (frozen + frozen.T) / 2, "as it is": frozen, "sum": frozen + frozen.T}[part]
        R = Z.T @ Z / len(Z)
        a = 1 - alpha if swap else alpha
        return factor / (len(Z) if divide else 1) * Z @ (own * a * R + (1 - a) * taken)

    return answer


def _contrast_case(case: int, rows: int, width: int, alpha: float) -> dict[str, Any]:
    rng = stream(case, "exercise contrast")
    return {"Z": normal((rows, width), rng), "alpha": alpha, "frozen": normal((width, width), rng)}


by_cases(
    "01-p1",
    solution=solution_contrast_gradient,
    hints=("Follow the proof: d of the contrast is Tr(G dR) with G = alpha R + (1 - alpha) sym frozen.",
           "dR = (dZ^T Z + Z^T dZ) / N. Both halves give the same trace, so the gradient is 2 Z G / N.",),
    wrong_answers=(
        WrongAnswer(_contrast(part="as it is"),
                    "dR is symmetric, so only the symmetric part (frozen + frozen^T) / 2 counts."),
        WrongAnswer(_contrast(part="sum"), "The symmetric part is HALF of the matrix plus its transpose."),
        WrongAnswer(_contrast(factor=1.0), "Z stands twice in Z^T Z: the product rule gives two equal parts."),
        WrongAnswer(_contrast(divide=False), "R is a MEAN of N products: divide by N."),
        WrongAnswer(_contrast(own=2.0), "The half in front of |R|^2 has already cancelled the two of the square."),
        WrongAnswer(_contrast(swap=True), "alpha belongs to the own matrix, 1 - alpha to the frozen one."),
    ),
    cases=[_contrast_case(0, 5, 2, 0.3), _contrast_case(1, 4, 3, 0.8)],
)  # fmt: skip


# --- 01-p2, by hand: z^2 is 0, 1, 4 with mean 5/3 and variance 26/9; n = 3, B = 2


def solution_bias() -> list[float]:
    """(n - B) / (B (n - 1)) times the variance of z^2; alpha / 2 times that."""
    squares = torch.tensor([0.0, 1.0, 4.0])
    error = float(squares.var(correction=0)) * (3 - 2) / (2 * (3 - 1))
    return [error, 0.5 / 2 * error]


by_hand(
    "01-p2",
    names=("mean squared error", "bias of the loss"),
    solution=[round(v, 4) for v in solution_bias()],
    hints=("R of a sample is z^2 here: 0, 1 and 4. Take the variance of these three numbers.",
           "With one view a sample the view term is 0. Multiply by (n - B) / (B (n - 1)), n = 3, B = 2.",
           "The bias of the loss is alpha / 2 times the mean squared error.",),
    wrong_answers=(
        WrongAnswer([26 / 18, 13 / 36], "That is 1/B of the variance, for draws WITH replacement."),
        WrongAnswer([1 / 6, 1 / 24], "R is the second moment: take the variance of z squared, not of z."),
        WrongAnswer([13 / 12, 13 / 48], "tau^2 is the mean square over all samples: divide by n, not by n - 1."),
        WrongAnswer([26 / 9, 13 / 18], "That is tau^2; the factor of a batch of two is missing."),
        WrongAnswer([13 / 18, 13 / 36], "The loss has alpha / 2 before the square."),
        WrongAnswer([13 / 18, 13 / 18], "Alpha and the half are missing."),
    ),
)  # fmt: skip


# --- 01-p3, by hand: eight equal clients


by_hand(
    "01-p3",
    names=("alpha", "weight of the own contrasts", "weight of the pairs"),
    solution=[0.125, 1.6, 0.9143],
    hints=("In L every |R_k|^2 and every pair has the weight 1 / (2 K^2).",
           "In L_alpha they have alpha / (2 K) and (1 - alpha) / (2 K (K - 1)): divide.",
           "Both ratios are 1 at alpha = 1 / K.",),
    wrong_answers=(
        WrongAnswer([0.2, 1.6, 0.9143], "One fifth is right for five clients; here are eight."),
        WrongAnswer([1.0, 1.6, 0.9143], "alpha = 1 gives FedAvg's objective."),
        WrongAnswer([0.125, 0.625, 1.09375],
                    "You divided L's weight by L_alpha's; the question is the other way round."),
        WrongAnswer([0.125, 0.2, 0.9143], "That is alpha; L itself has 1 / K in its place."),
        WrongAnswer([0.125, 1.6, 0.8], "L itself has 1 - 1/K in the place of 1 - alpha: divide by 7/8."),
    ),
)  # fmt: skip


# --- 01-p4, by hand: n = 20, mu = 5


by_hand(
    "01-p4",
    names=("move by a replaced sample", "move with H = 1", "move by a sample left out"),
    solution=[0.3536, 0.25, 0.25],
    hints=("A sample's share of the matrix is positive semi-definite with trace at most mu / n.",
           "sqrt(2) needs two orthogonal shares of full length. How many directions are there if H = 1?",),
    wrong_answers=(
        WrongAnswer([0.25, 0.25, 0.25], "That is mu / n, the paper's; two orthogonal samples move the matrix farther."),
        WrongAnswer([0.5, 0.25, 0.25],
                    "2 mu / n would need opposite shares, but positive semi-definite ones are at most orthogonal."),
        WrongAnswer([0.1581, 0.1118, 0.1118],
                    "The clip bounds |z| by sqrt(mu), so the outer product z z^T has the norm mu."),
        WrongAnswer([7.0711, 5.0, 5.0], "The matrix is a mean: a sample's share is divided by n."),
        WrongAnswer([0.3536, 0.3536, 0.25],
                    "With H = 1 the shares are numbers between 0 and mu / n; none is orthogonal to another."),
        WrongAnswer([0.3536, 0.25, 0.3536], "Only one share is gone, and nothing comes in its place."),
    ),
)  # fmt: skip

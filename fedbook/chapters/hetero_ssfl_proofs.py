"""Hetero-SSFL's proofs, errata and exercises: strangers, the ceiling, the start that lives, alignment weight."""

from __future__ import annotations

import math

from fedbook.chapters import errata
from fedbook.lab.exercises import WrongAnswer, by_hand

KINDS = ("false", "loose", "ambiguous", "experiment")
ERRATA = errata.read("hetero_ssfl")


by_hand(
    "02-p1",
    solution=math.sqrt(50 * 32) / 200,
    hints=("Divide the mean trace of Proposition 2.3 by both norms.",
           "tr G / |G| is the root of the effective dimension; one factor 1/(L - 1) is left.",),
    wrong_answers=(
        WrongAnswer(50 * 32 / 200, "CKA is at most 1. Take the root of the product."),
        WrongAnswer(40 / 201, "Centring takes one direction away: divide by L - 1."),
        WrongAnswer(0.0, "That is the mean of HSIC_1. CKA by HSIC_b was asked for."),
        WrongAnswer(40 / 200**2, "Only one factor 1/(L - 1) is left after the division by norms."),
        WrongAnswer(50 / 200, "Both effective dimensions count, by the root of their product."),
    ),
)  # fmt: skip


by_hand(
    "02-p2",
    solution=math.sqrt(20 / 25),
    hints=("Only the two largest eigenvalues of the mean kernel can be met.",
           "Squares of eigenvalues count: (16 + 4) over (16 + 4 + 4 + 1), and a root at the end.",),
    wrong_answers=(
        WrongAnswer(math.sqrt(6 / 9), "The squares of the eigenvalues count, not these."),
        WrongAnswer(6 / 9, "That is the share of the trace: squares, then a root."),
        WrongAnswer(20 / 25, "Take the root: one of two norms cancels."),
        WrongAnswer(math.sqrt(24 / 25), "The client has width 2: two eigenvalues."),
        WrongAnswer(1.0, "The mean kernel has rank 4, the client's at most 2."),
    ),
)  # fmt: skip


by_hand(
    "02-p3",
    solution=0.1,
    hints=("The rest points other than 0 solve (s + n) p^2 - s p + lambda = 0.",
           "2 p^2 - p + 0.08 = 0 has the discriminant 1 - 0.64; which root is not stable?",),
    wrong_answers=(
        WrongAnswer(0.4, "That is where it comes to rest. From where on does it get there?"),
        WrongAnswer((1 - math.sqrt(0.68)) / 2, "The noise counts: s + n stands at p^2."),
        WrongAnswer(0.0, "0 is a stable rest point: small starts die."),
        WrongAnswer(0.08, "At p = lambda the signal term is smaller than the decay."),
        WrongAnswer(0.2, "Divide by 2 (s + n) = 4."),
    ),
)  # fmt: skip


by_hand(
    "02-p4",
    solution=0.4,
    hints=("First Gamma = 2 L_2 P R L / kappa, then mu < S / (2 E Gamma).",
           "Gamma = 2 * 1 * 2 * 4 * 10 / 80 = 2.",),
    wrong_answers=(
        WrongAnswer(2.0, "E steps lie between two mean kernels: a factor E."),
        WrongAnswer(0.8, "The swap adds 2 mu eta E Gamma: mind the 2."),
        WrongAnswer(8 / (2 * 1 * 2 * 64 * 100), "That is the printed condition, with R^3 L^2."),
        WrongAnswer(0.005, "kappa divides Gamma, so it multiplies the limit."),
        WrongAnswer(0.2, "Gamma has one factor 2, the condition another."),
    ),
)  # fmt: skip

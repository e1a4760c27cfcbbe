"""The words of the C-VFL paper's errata: where, what it says, what is right, and which number shows it.

Text alone: the numbers are computed on the page ``05_cvfl_proofs``.
"""

from __future__ import annotations

from typing import NamedTuple


class Erratum(NamedTuple):
    """``kind``: false, does not follow, loose, ambiguous, experiment or code.

    ``number`` names what the page computes twice: as the paper has it and as it is; ``section``: of the page.
    """

    kind: str
    where: str
    says: str
    right: str
    number: str
    section: str


ERRATA: dict[str, Erratum] = {
    # those that change conclusions come first in each kind
    "lattice-error": Erratum(
        "false",
        "Table 1, appendix B",
        "a hexagonal cell of area V has squared error at most V / 24 a component",
        "5 V / (36 sqrt 3), which V / 24 misses by a factor of almost 2; no cell reaches V / 24",
        "squared error a component, V = 1",
        "8",
    ),
    "diagonal-hessian": Erratum(
        "false",
        "Assumption 4, (2), in Lemma 1",
        "H_m bounds the second derivative in h_m itself",
        "H_m must bound the mixed derivative in h_m and the other embeddings",
        "bound of the squared change for F = h_1 h_2 and its value",
        "3",
    ),
    "unlike-samples": Erratum(
        "false",
        "Theorem 4.2, (8)",
        "the noise term has the factor L",
        "it needs the largest of L and the L_m",
        "right and left side of (8), two samples of unlike curvature",
        "5",
    ),
    "split-learning": Erratum(
        "false",
        "after Theorem 4.2",
        "(8) applies to split learning when only uploads are compressed",
        "the sum over errors must include the party's own, j = m",
        "right and left side of (8), one party",
        "6",
    ),
    "algorithm-2-step": Erratum(
        "false",
        "appendix D.3",
        "Algorithm 2 is mathematically equivalent to C-VFL with Q = 1",
        "only without compression; else the own embedding is compressed too",
        "party 1's derivative by Algorithm 1 and by Algorithm 2",
        "10",
    ),
    "server-step": Erratum(
        "false",
        "Algorithm 2, line 7",
        "theta_0 is compressed",
        "it is never sent, and the server's own step needs it exact",
        "the server's derivative by Algorithm 1 and by line 7",
        "10",
    ),
    "gradient-ranking": Erratum(
        "false",
        "appendix B, top-k",
        "squared error at most (1 - k/P) |h|^2, ranked by derivatives",
        "only ranked by magnitude (or in the mean at random); else at most |h|^2",
        "bound and squared error of h = (1, 0)",
        "8",
    ),
    "ranking": Erratum(
        "false",
        "appendix B, top-k",
        "rank by dh_m / dtheta_m, unknown until all parties send",
        "that is known to the party alone; dF / dh_m is meant",
        "change of the ranked quantity when party 2 moves: as printed and as meant",
        "8",
    ),
    "endpoint-levels": Erratum(
        "false",
        "Table 1, scalar",
        "squared error at most W^2 / 12 4^-q a component",
        "levels from end to end have W^2 / (12 (2^q - 1)^2)",
        "bound and error, q = 2, W = 1, end to end, dither",
        "8",
    ),
    "bin-levels": Erratum(
        "false",
        "Table 1, scalar",
        "the same, levels in the middle of bins",
        "only half a bin away from the ends of the range",
        "bound and error at the end of the range",
        "8",
    ),
    "no-dither": Erratum(
        "ambiguous",
        "Table 1, scalar",
        "the same, without dither",
        "it is a mean over dithers; the worst case is Delta^2 / 4",
        "bound and error at the edge of a bin",
        "8",
    ),
    "summed-twice": Erratum(
        "ambiguous",
        "Theorem 4.4",
        "the noise is divided by the sum over t < T",
        "by the sum over rounds, as the other terms",
        "second quotient, Q = 10, R = 100, eta = 1 / (r + 1)",
        "7",
    ),
    "batch-forgotten": Erratum(
        "ambiguous",
        "appendix B",
        "V, q and k for the rate, without B",
        "with B, as in Table 1: E_m counts the whole batch",
        "sqrt(T) E_m with appendix B's V, B = 100",
        "9",
    ),
    "values-or-slopes": Erratum(
        "false",
        "before Lemma 1",
        "the lemma bounds a difference of objective function values",
        "of gradients",
        "the bound and the squared difference of values, F = (h_1 + h_2)^2 / 2",
        "3",
    ),
    "square-forgotten": Erratum(
        "false", "(A.14)", "a bound with |E|", "with |E|^2", "bound and value for F = h_1 h_2 and an error of 3", "3"
    ),
    "spurious-two": Erratum(
        "loose", "(A.33), (A.34)", "2 (1 + 1/n) before the last sum", "1 + 1/n, as in (A.35)", "factor for Q = 4", "4"
    ),
    "grown-error": Erratum(
        "false",
        "(A.50), (A.51)",
        "exponents t - t_0 - 1",
        "t - t_0; (A.55) uses the right sum",
        "A one step after the start, Q = 4, A_0 = D = 1",
        "4",
    ),
    "one-step-short": Erratum(
        "false",
        "(A.71) to (A.85)",
        "the round ends at t_0 + Q - 1",
        "at t_0 + Q",
        "inner product with the move and the sum it equals",
        "5",
    ),
    "turned-sign": Erratum(
        "false", "(A.76)", "minus grad F with G minus G-hat", "grad F, or G-hat minus G", "first term", "5"
    ),
    "descent-constant": Erratum(
        "does not follow",
        "(A.83)",
        "1 - 1/8 - 1/16 - 1/256",
        "1 - 1/8 - 1/16 - 1/128, still above 3/4",
        "factor before |grad F|^2",
        "5",
    ),
    "noise-of-a-round": Erratum(
        "does not follow",
        "(A.82)",
        "8 Q^4 L L_m^2 eta^4",
        "16 Q^4 L L_m^2 eta^4 (and 32 for 16 beside |grad F|^2)",
        "factor of sigma^2 / B, Q = L = L_m = 1",
        "5",
    ),
    "compression-halved": Erratum(
        "does not follow", "(A.83)", "16 Q^3 eta (1 + 2 L Q eta)", "32, as in (A.82) and (A.84)", "factor", "5"
    ),
    "rising-loss": Erratum(
        "does not follow",
        "(A.85)",
        "4 times the fall of F in a round",
        "8/3 of it; 4 only after telescoping, with inf F",
        "what bounds a round in which F rises by 1",
        "5",
    ),
    "rounds-divided": Erratum(
        "false",
        "(A.87), (A.90)",
        "4 / (Q R) before F(0) - F(T)",
        "4 / Q",
        "bound and sum of eta |grad F|^2, x^2 / 2, R = 100",
        "5",
    ),
    "noise-constant": Erratum(
        "false",
        "(A.92)",
        "at most 6 before L Q eta sigma^2 / B",
        "25/6 before the largest of L and L_m",
        "factor for L_m = 100 L",
        "5",
    ),
    "compression-constant": Erratum(
        "false",
        "(A.92)",
        "86 (1 + 2 L Q eta) is at most 92",
        "it is not, but with Lemma 2's 36 the factor is 54",
        "factor at the largest step",
        "5",
    ),
    "bounded-error": Erratum(
        "loose",
        "abstract",
        "rate 1 / sqrt(T) when the compression error is bounded",
        "only to a neighbourhood whose size is the error's, as Remark 4.3 says",
        "first term of (8) and mean |grad F|^2, T = 40,000",
        "6",
    ),
    "squared-in-q": Erratum(
        "loose",
        "Theorem 4.2, third term",
        "the compression term grows like Q^2",
        "no power of Q is needed (Corollary 5.1); at rest Q does not enter: measured without dither",
        "floor at Q = 4 over that at Q = 1",
        "6",
    ),
    "dither-unseen": Erratum(
        "loose",
        "Theorem 4.2, third term",
        "the compression term does not depend on the step",
        "dithered errors average out: measured, the floor falls with the step",
        "floor at the largest step over that at a quarter, 4 bits",
        "6",
    ),
    "scalar-rate": Erratum(
        "loose",
        "Table 1, scalar",
        "q = Omega(log2 z), z = B P W^2 sqrt(T)",
        "q at least (log2 z) / 2 plus a constant",
        "growth of sqrt(T) E with the factor 1/4",
        "9",
    ),
    "kept-rate": Erratum(
        "loose",
        "Table 1, top-k",
        "k = Omega(P - ...)",
        "k at least P - ..., with factor 1: soon k = P",
        "growth of sqrt(T) E with the factor 1/2",
        "9",
    ),
    "sixty-four": Erratum("loose", "Lemma 2, (A.70)", "64 Q^3", "36 Q^3", "factor of Q^3", "4"),
    "server-copies": Erratum(
        "ambiguous",
        "Definition 4.1, (A.8)",
        "epsilon_0 in a matrix with a column for each sample",
        "theta_0 is sent once: B copies or one",
        "E_0 with B = 2 copies and with one",
        "3",
    ),
    "sampling-open": Erratum(
        "ambiguous",
        "Algorithm 1, line 3",
        "a batch is sampled",
        "Assumption 3 is an equality for independent draws; without replacement less",
        "variance of the batch's gradient with and without replacement",
        "1",
    ),
    "two-clocks": Erratum(
        "ambiguous",
        "Theorems 4.2 and 4.4",
        "t_0 = 0 .. R - 1",
        "elsewhere t_0 is an iteration, r Q",
        "t_0 of the fourth round, Q = 10",
        "7",
    ),
    "bins-or-bits": Erratum(
        "ambiguous",
        "appendix B",
        "q, the number of quantization bins",
        "q is bits, 2^q the levels",
        "levels for q = 2",
        "8",
    ),
    "similar-accuracy": Erratum(
        "experiment",
        "section 5, Figure 3",
        "in all cases similar accuracy to no compression",
        "not on CIFAR-10: scalar at 2 bits is points below",
        "Table 3: deviation of scalar at 2 bits and points below none",
        "11",
    ),
    "uploads-counted": Erratum(
        "experiment",
        "Tables 2 to 4, costs",
        "upload of embeddings and download to all parties",
        "each upload is counted M times; quotients of costs are not affected",
        "MB of an uncompressed epoch on ModelNet10, charged and sent",
        "11",
    ),
    "joint-cells": Erratum(
        "experiment",
        "section 5, Tables 3 and 4",
        "vector wins by considering components jointly",
        "hexagons gain 4 %; see the release's clipping",
        "Table 4's cost of scalar over vector, and the gain in squared error",
        "8",
    ),
    "derivatives-charged": Erratum(
        "experiment",
        "Table D.1, Q = 1",
        "Algorithm 2's costs",
        "returned derivatives are charged as if compressed",
        "MB of an epoch at 3 bits, charged and with floats returned",
        "11",
    ),
    "index-uncounted": Erratum(
        "experiment",
        "section 5, top-k",
        "k = P b / 32 costs b bits a component",
        "which components were kept must be sent too",
        "bits of a kept value, P = 4096, b = 2",
        "11",
    ),
    "within-a-deviation": Erratum(
        "experiment",
        "section 5, Table 2",
        "the scores are within a standard deviation of each other",
        "not all of them",
        "largest gap in deviations",
        "11",
    ),
    "fewer-bits-cheaper": Erratum(
        "experiment",
        "Figure D.6",
        "fewer bits reach accuracy at lower cost",
        "not for scalar on ModelNet10: 2 bits cost more than 3",
        "Table 4, MB at 3 bits and at 2",
        "11",
    ),
    "steadier-with-bits": Erratum(
        "experiment",
        "Figures D.2, D.3",
        "variability decreases with the number of bits",
        "not for scalar on MIMIC-III",
        "Table 2, deviation at 2 bits and at 4",
        "11",
    ),
    "too-many-epochs": Erratum(
        "experiment",
        "Table 5, Q = 1",
        "1000 epochs a run",
        "the printed time is that of four times as many",
        "epochs of a run and epochs to the target",
        "11",
    ),
    "runs-in-the-mean": Erratum(
        "experiment",
        "Table 5, Q = 25",
        "the mean of 5 runs",
        "the digits allow only 4",
        "runs said and runs that fit",
        "11",
    ),
    "same-setting-twice": Erratum(
        "experiment",
        "Tables 2 and D.1",
        "none, Q = 10, to F1 = 0.4",
        "two reruns of the same setting differ",
        "MB in Table 2 and in Table D.1",
        "11",
    ),
    "one-quadrant": Erratum(
        "experiment",
        "appendix D.1, CIFAR-10",
        "learning from only a quadrant is difficult",
        "the joint model sees all four",
        "pixels that move the prediction, said and true",
        "11",
    ),
    "clipped-negatives": Erratum(
        "code",
        "scalar quantiser, image data",
        "a uniform quantiser of the range",
        "values are divided by the maximum and clipped to [0, 1]: negatives are lost",
        "squared error over that of the signed range, 2 bits, values spread on [-1, 1]",
        "11",
    ),
    "square-dither": Erratum(
        "code",
        "vector quantiser",
        "subtractive dither",
        "the dither is uniform on a square, not on the cell: the error has a mean",
        "largest length of the mean error over all pairs, 2 bits",
        "11",
    ),
    "kept-is-no-number": Erratum(
        "code",
        "top-k, P = 16",
        "k = P b / 32",
        "not a whole number; fewer are kept than are charged",
        "k charged and k kept, 3 bits",
        "11",
    ),
}

"""The words of the FedSC paper's errata: where, what the paper claims and which number says so, and what is right.

Text alone: the numbers are computed on the page ``01_fedsc_proofs``.
"""

from __future__ import annotations

from typing import NamedTuple


class Erratum(NamedTuple):
    """``claim`` names the number that the page computes beside the paper's; ``correction`` says what is right."""

    where: str
    claim: str
    correction: str


ERRATA: dict[str, Erratum] = {
    # those that change conclusions
    "size-forgotten": Erratum(
        "Prop. 6.6 as stated",
        "epsilon of Table 6's first row, without the client's size n",
        "divide mu by n, as in the proof",
    ),
    "replaced-sample": Erratum(
        "Prop. 6.6, proof",
        "move of the matrix if one of n = 8 samples is replaced, mu = 4; at most mu / n",
        "sensitivity sqrt(2) mu / n, attained",
    ),
    "weights-in-clear": Erratum(
        "Prop. 6.6, Lemma 6.4",
        "change of the weights, which the next matrix depends on, if a sample is replaced; composition needs 0",
        "epsilon is one of the matrices alone; the weights leave in clear",
    ),
    "other-objective": Erratum(
        "(80), all experiments",
        "relative error of the averaged gradient for ten equal clients, alpha = 0.2",
        "the experiments descend L_alpha, not the loss of the theorem",
    ),
    "jumping-clients": Erratum(
        "section 5, ageing",
        "growth of an error in one round, alpha = p = 1/10, each client at its optimum; at most",
        "stable only for kappa < 2 alpha",
    ),
    "initial-gap-lost": Erratum(
        "Theorem 6.10, (7)",
        "growth of T times the mean squared gradient, T from 100 to 10,000, exact descent; at most",
        "add (L(theta^0) - inf L) / sqrt(T E)",
    ),
    # Algorithm 1 and the objective
    "last-upload": Erratum(
        "Algorithm 1, line 14",
        "trace of the server's matrix after two uploads of the identity",
        "add the changes up over the clients",
    ),
    "own-noise": Erratum(
        "Algorithm 1, line 20",
        "derivative of R_-k by the own noise, if the matrix without noise is subtracted",
        "subtract the noisy upload itself",
    ),
    "one-client": Erratum(
        "Algorithm 1, line 20",
        "entries of R_-k that are numbers for a single client, of 4",
        "with one client there is nothing to share: use alpha = 1",
    ),
    "uniform-mean": Erratum(
        "Algorithm 1, line 23",
        "relative error of (6) with equal weights for clients of 2, 3 and 5 samples",
        "weight by p_k, normalised over the cohort",
    ),
    "one-round-late": Erratum(
        "Algorithm 1, line 7, and (70)",
        "squared error of a matrix one step old, no noise, all views",
        "evaluate it at the start of its round; else add ageing to (70)",
    ),
    "collapse": Erratum(
        "contributions",
        "loss where exact FedSC rests from a common vector; at the solution",
        "the theorem is about gradients: a saddle satisfies it",
    ),
    "clipped-collapse": Erratum(
        "public release: clip in the loss",
        "loss where descent rests, all z outside of the ball; at most that of z = 0",
        "a clip has no radial gradient: a small gradient may be a clipped collapse",
    ),
    "pairs-of-one-class": Erratum(
        "section 3, negative pairs",
        "loss if pairs of one class are left out; by (1)",
        "negative pairs are independent draws, perhaps of one sample",
    ),
    "no-floor": Erratum(
        "(3), 'constant error floor'",
        "gap of two clients with disjoint data and equal R_k; not 0",
        "the gap is half the weighted variance of the R_k, 0 where they agree",
    ),
    # privacy
    "another-sensitivity": Erratum(
        "Table 6",
        "epsilon of its first row by the proof's mu / n; claimed",
        "Table 6 fits sqrt(2) mu / n, or twice the uploads",
    ),
    "above-the-claim": Erratum(
        "Table 6, CIFAR-10 (3, 1e-4)",
        "epsilon if a sample is replaced, by the paper's formula; at most",
        "claim 3.1, or use the exact account",
    ),
    "added-sample": Erratum(
        "Prop. 6.6, proof",
        "move of the matrix if one of 8 samples is added and the mean is over the own size; at most mu / n",
        "sqrt(2) mu / n; mu / n needs a fixed public divisor",
    ),
    "many-disclosed": Erratum(
        "Tables 3 and 4, delta = 1e-2",
        "samples of 10,000 that a mechanism with (0, delta) may publish on average; at most",
        "delta well below 1 / n",
    ),
    "partial-participation": Erratum(
        "Table 5 with Table 6's sigma",
        "mean epsilon of a client with 2 of 10 a round, CIFAR-10; claimed",
        "account per client by its own uploads",
    ),
    "uploads-of-a-client": Erratum(
        "section 6, first bullet",
        "mean uploads of a client in 3 rounds of 2 of 5 clients; the bullet's T",
        "T_k = 1 + the rounds after the first in which k takes part",
    ),
    "batch-norm": Erratum(
        "Assumption 6.7, 'a normalization layer'",
        "move of the matrix if one of ten samples is replaced under batch norm; at most sqrt(2) mu / n",
        "normalise each sample by itself",
    ),
    "negative-contrast": Erratum(
        "Algorithm 2, line 8",
        "contrast with the others along one direction under noise; at least",
        "harmless for alpha > 0; symmetrise, do not expect a norm",
    ),
    "symmetric-noise": Erratum(
        "(7), H^2 sigma^2",
        "mean square of the noise that the loss sees, H = 8, sigma = 1",
        "H (H + 1) sigma^2 / 2",
    ),
    "noise-by-clients": Erratum(
        "(7), noise term",
        "noise of the averaged gradient with 10 clients over that with 100",
        "it falls like 1 / K",
    ),
    # experiments
    "weight-without-matrix": Erratum(
        "Table 6 with appendix C",
        "largest weight 1 - alpha in rounds before the first matrix, CIFAR-10",
        "alpha = 1 until matrices are shared",
    ),
    "first-matrices-unused": Erratum(
        "appendix C, alpha = 1 in round 1",
        "change of round 1's gradient with the others' matrices; not 0",
        "the first upload may be left out",
    ),
    "last-alpha": Erratum(
        "public release: schedule",
        "alpha of the last of 200 rounds; appendix C's",
        "1 - 0.8 (t - 1) / (T - 1)",
    ),
    "steps-of-a-round": Erratum(
        "section 7, E = 5",
        "local steps of a round on CIFAR-10; the theorem's E",
        "the experiments count epochs, the theorem steps",
    ),
    "views-of-a-sample": Erratum(
        "section 7, V = 2",
        "independent views of a sample in section 5.2's formula",
        "2 V views in training, V in Algorithm 2",
    ),
    "twice-the-loss": Erratum(
        "public release: loss",
        "its loss over that of section 3",
        "halve its step size and clip to compare",
    ),
    "svhn-size": Erratum(
        "section 7, SVHN '10,000'",
        "images of the smallest pair of digits in order",
        "unequal sizes and weights p_k, or another split",
    ),
    "same-runs": Erratum(
        "Tables 3 to 5",
        "cells of epsilon 8 that repeat a cell of delta = 1e-2; settings of equal sigma among them",
        "the same runs, two readings of their noise",
    ),
    "third-remark": Erratum(
        "section 7.2, remark (3)",
        "points that FedSC loses on CIFAR-10; most that a method without matrices loses",
        "the remark rests on CIFAR-100 alone",
    ),
    "margins-within": Erratum(
        "section 7.2, 'remains better'",
        "private cells, of 18, within one deviation of FedAvg+SC",
        "on SVHN noise and gain cannot be told apart",
    ),
    "gain-lost": Erratum(
        "'negligible degradation'",
        "share of FedSC's gain that the noise takes, SVHN 2/5, (3, 1e-4)",
        "there nearly all of it",
    ),
    # the proof of Theorem 6.10
    "negative-start": Erratum(
        "(76), (79), L(theta^0)",
        "sqrt(T) times the mean squared gradient, T = 10,000; at most",
        "L(theta^0) - inf L; L is negative",
    ),
    "one-round-telescoped": Erratum(
        "(75)",
        "mean squared gradient, T = 100; at most the fall of L in the last round",
        "L(theta^0) - L(theta^T)",
    ),
    "smaller-constant": Erratum(
        "Lemma B.5, last line",
        "squared derivative of u over beta^2 with the 4; at most",
        "24, as in (16)",
    ),
    "product-variance": Erratum(
        "Lemma B.7, (28)",
        "variance of XY for independent signs; at most",
        "sup |Y|^2 in place of |E Y|^2",
    ),
    "stated-twelve": Erratum(
        "Lemma B.8, (31)",
        "factor that is needed, one direction; stated",
        "8, as its proof gives",
    ),
    "sixth-powers": Erratum(
        "(57), (71)",
        "T_5 over the squared drift for A_0 = A_1 = 0.1; at most",
        "32 A_1^4 A_0^4, from (54) and (55)",
    ),
    "eight-for-sixteen": Erratum(
        "(65), (67)",
        "factor of A_1^2 A_0^6 from (62), (63) and (64)",
        "16",
    ),
    "lost-factor": Erratum(
        "(68)",
        "mean loss after a step of 1 / beta from a minimum, beta = 1/4; at most E T_2",
        "beta eta^2 / 2 before E T_2",
    ),
    "matrix-error": Erratum(
        "(70)",
        "squared error of a matrix of two samples, V = 1; 'equals'",
        "W / (V n), Proposition 5.2",
    ),
    "others-norm": Erratum(
        "(72)",
        "squared norm of R_-k for two orthogonal others; 'equals' A_0^4",
        "at most",
    ),
    "batch-and-views": Erratum(
        "(52), (63), (64)",
        "variance of the batch's R at B = 1 over that at B = 2, from views alone",
        "1 / (2 V B) in place of 1 / (2 V)",
    ),
    "squared-bound": Erratum(
        "(77), W",
        "largest gradient for A_0 = A_1 = 0.1; at most W",
        "W bounds its square: sqrt(W)",
    ),
    "age-of-a-matrix": Erratum(
        "(78), C_8 eta^2",
        "mean age of a matrix in rounds, 2 of 10 clients; counted as",
        "K / m - 1 rounds, with no upper end",
    ),
}

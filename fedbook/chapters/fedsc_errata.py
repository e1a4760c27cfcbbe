"""The words of the FedSC paper's errata. The numbers are computed on the page ``01_fedsc_proofs``."""

from __future__ import annotations

from typing import NamedTuple

KINDS = {
    "false": "refuted by a computation",
    "does not follow": "the lines before it give something else; not refuted",
    "bound loose": "true as an upper bound, but not the value, or with a constant or factor too many",
    "ambiguous": "can be read in several ways, or a condition is missing",
    "experiment": "of the experiments and their tables",
    "released code": "of the public release, not of the paper",
}


class Erratum(NamedTuple):
    """``kind`` is one of ``KINDS``; ``number`` names what the page's section ``section`` computes as a witness."""

    kind: str
    section: int
    where: str
    says: str
    right: str
    number: str


ERRATA: dict[str, Erratum] = {
    "size-forgotten": Erratum(
        "false", 9, "Prop. 6.6 as stated",
        "epsilon depends on mu, sigma and the uploads alone",
        "divide mu by the client's size n, as in the proof",
        "epsilon of Table 6's first row",
    ),
    "replaced-sample": Erratum(
        "ambiguous", 9, "Prop. 6.6, proof",
        "one sample moves the matrix by at most mu / n",
        "mu / n for a sample left out with the public divisor kept; sqrt(2) mu / n for one replaced or added",
        "largest move, n = 8, mu = 4",
    ),
    "weights-in-clear": Erratum(
        "ambiguous", 9, "Prop. 6.6, Lemma 6.4",
        "the uploads compose, so epsilon holds for the whole run",
        "for weights taken as given; trained on the same data they make the second matrix depend on it once more, "
        "even if they stay secret",
        "change of the weights if a sample is replaced",
    ),
    "initial-gap-lost": Erratum(
        "false", 10, "Theorem 6.10, (7)",
        "nothing of the start remains in the rate",
        "add (L(theta^0) - inf L) / sqrt(T E)",
        "growth of T times the mean squared gradient, T from 100 to 10,000",
    ),
    "negative-start": Erratum(
        "false", 10, "(76), (79)",
        "the start enters as L(theta^0)",
        "L(theta^0) - inf L; L is negative",
        "sqrt(T) times the mean squared gradient, T = 10,000",
    ),
    "one-round-telescoped": Erratum(
        "false", 10, "(75)",
        "the losses leave the fall of one round",
        "the fall of all rounds, L(theta^0) - L(theta^T)",
        "mean squared gradient, T = 100",
    ),
    "no-floor": Erratum(
        "false", 4, "(3), 'constant error floor'",
        "the floor is constant for every non-i.i.d. split",
        "the gap is half the weighted variance of the R_k, 0 where they agree",
        "gap of two clients with disjoint data",
    ),
    "collapse": Erratum(
        "ambiguous", 4, "contributions",
        "convergence to the solutions of centralized SSL",
        "the theorem is about gradients, and a saddle satisfies it",
        "loss where exact FedSC rests from a common vector",
    ),
    "last-upload": Erratum(
        "false", 12, "Algorithm 1, line 14",
        "each upload changes the matrix of the last round",
        "add the changes up over the clients",
        "trace of the server's matrix after two uploads of the identity, meant to be 2",
    ),
    "uniform-mean": Erratum(
        "false", 3, "Algorithm 1, line 23",
        "the new model is the plain mean of the clients'",
        "weight by p_k, normalised over the cohort",
        "relative error of (6), clients of 2, 3 and 5 samples",
    ),
    "smaller-constant": Erratum(
        "false", 10, "Lemma B.5, last line",
        "beta^2 begins with 4",
        "24, as in (16)",
        "squared derivative of u over the printed beta^2, at most",
    ),
    "product-variance": Erratum(
        "false", 10, "Lemma B.7, (28)",
        "a bound with the squared mean of Y",
        "the largest squared norm of Y",
        "variance of the product of two independent signs",
    ),
    "sixth-powers": Erratum(
        "false", 10, "(57), (71)",
        "32 A_1^6 A_0^6",
        "32 A_1^4 A_0^4, from (54) and (55)",
        "T_5 over the squared drift, A_0 = A_1 = 0.1",
    ),
    "eight-for-sixteen": Erratum(
        "does not follow", 10, "(65), (67)",
        "8 A_1^2 A_0^6",
        "16, from (62), (63) and (64)",
        "factor of A_1^2 A_0^6",
    ),
    "lost-factor": Erratum(
        "false", 10, "(68)",
        "T_2 enters with the factor 1",
        "beta eta^2 / 2 before T_2",
        "mean loss after a step of 1 / beta from a minimum, beta = 1/4",
    ),
    "squared-bound": Erratum(
        "false", 10, "(77), W",
        "W bounds the gradient",
        "W bounds its square: sqrt(W)",
        "largest gradient, A_0 = A_1 = 0.1",
    ),
    "age-of-a-matrix": Erratum(
        "false", 10, "(78), C_8 eta^2",
        "a matrix ages by one round",
        "K / m - 1 rounds on average, with no upper end",
        "mean age in rounds, 2 of 10 clients",
    ),
    "stated-twelve": Erratum(
        "bound loose", 10, "Lemma B.8, (31)",
        "12 in the statement",
        "8, as its proof gives, and no less",
        "factor that a batch of one sample needs",
    ),
    "matrix-error": Erratum(
        "bound loose", 5, "(70)",
        "the matrix's error equals A_0^4 / (2 V)",
        "nu^2 / (V n), Proposition 5.2",
        "squared error, two samples, V = 1",
    ),
    "others-norm": Erratum(
        "bound loose", 10, "(72)",
        "the squared norm of R_-k equals A_0^4",
        "is at most A_0^4",
        "squared norm for two orthogonal others",
    ),
    "batch-and-views": Erratum(
        "bound loose", 5, "(52), (63), (64)",
        "the view term is 1 / (2 V)",
        "1 / (2 V B)",
        "variance by views alone, B = 1 over B = 2",
    ),
    "symmetric-noise": Erratum(
        "bound loose", 6, "(7), H^2 sigma^2",
        "the noise counts as H^2 sigma^2",
        "H (H + 1) sigma^2 / 2 is what the loss sees",
        "mean square, H = 8, sigma = 1",
    ),
    "noise-by-clients": Erratum(
        "bound loose", 6, "(7), noise term",
        "H^2 sigma^2, however many clients there are",
        "it falls like 1 / K",
        "noise of the gradient, 10 clients over 100",
    ),
    "jumping-clients": Erratum(
        "ambiguous", 8, "section 5, ageing",
        "a frozen matrix costs an additional O(1/T)",
        "only for short rounds: stable for kappa below 2 alpha",
        "growth of an error in a round, alpha = 1/10, clients at their optimum",
    ),
    "own-noise": Erratum(
        "ambiguous", 12, "Algorithm 1, line 20",
        "subtract the own matrix",
        "the uploaded one, with its noise",
        "derivative of R_-k by the own noise, if it is not",
    ),
    "one-client": Erratum(
        "ambiguous", 12, "Algorithm 1, line 20",
        "divide by 1 - p_k",
        "a single client has nothing to share: alpha = 1",
        "entries of R_-k, of 4, that are numbers",
    ),
    "one-round-late": Erratum(
        "ambiguous", 10, "Algorithm 1, line 7, and (70)",
        "theta^(t-1) in one place, theta^t in the other",
        "evaluate at the start of the round",
        "squared error of a matrix one step old, no noise",
    ),
    "pairs-of-one-class": Erratum(
        "ambiguous", 2, "section 3, negative pairs",
        "views of different semantic meaning",
        "independent draws, perhaps of one sample",
        "loss if pairs of one class are left out",
    ),
    "uploads-of-a-client": Erratum(
        "ambiguous", 9, "section 6, first bullet",
        "each client uploads T times",
        "T_k = 1 + the rounds after the first in which k takes part",
        "mean uploads in 3 rounds, 2 of 5 clients",
    ),
    "batch-norm": Erratum(
        "ambiguous", 9, "Assumption 6.7",
        "a normalization layer keeps z bounded",
        "normalise each sample by itself, not over the batch",
        "move of the matrix under batch norm, n = 10",
    ),
    "negative-contrast": Erratum(
        "ambiguous", 6, "Algorithm 2, line 8",
        "the noisy matrix takes the place of the exact one",
        "it is not positive semi-definite: symmetrise, expect negative contrast",
        "least contrast with the others under noise",
    ),
    "steps-of-a-round": Erratum(
        "ambiguous", 12, "section 7, E = 5",
        "E counts steps in the theorem",
        "epochs in the experiments",
        "local steps of a round, CIFAR-10",
    ),
    "views-of-a-sample": Erratum(
        "ambiguous", 12, "section 7, V = 2",
        "two views",
        "2 V views in training, V in Algorithm 2",
        "independent views of a sample in section 5.2's formula",
    ),
    "other-objective": Erratum(
        "experiment", 7, "(80)",
        "alpha replaces p_k",
        "that is another objective, L_alpha, or none",
        "relative error of the gradient, ten equal clients, alpha = 0.2",
    ),
    "another-sensitivity": Erratum(
        "experiment", 9, "Table 6",
        "its sigma and epsilon follow from Prop. 6.6",
        "it fits sqrt(2) mu / n, or twice the uploads",
        "epsilon of its first row by the proof's mu / n",
    ),
    "above-the-claim": Erratum(
        "experiment", 9, "Table 6, CIFAR-10",
        "epsilon 3 at delta 1e-4",
        "claim 3.1, or use the exact account",
        "epsilon by the paper's formula, a sample replaced",
    ),
    "many-disclosed": Erratum(
        "experiment", 9, "Tables 3 and 4",
        "epsilon is stated at delta = 1e-2",
        "delta well below 1 / n",
        "samples of 10,000 that may be published on average; below 1 is usual",
    ),
    "partial-participation": Erratum(
        "experiment", 9, "Table 5",
        "Table 6's sigma serves here too",
        "account per client by its own uploads",
        "mean epsilon with 2 of 10 a round, CIFAR-10",
    ),
    "weight-without-matrix": Erratum(
        "experiment", 12, "Table 6, appendix C",
        "alpha falls from round 1",
        "alpha = 1 until matrices are shared",
        "largest 1 - alpha before the first matrix, CIFAR-10",
    ),
    "first-matrices-unused": Erratum(
        "experiment", 12, "appendix C",
        "all clients upload in round 1",
        "that upload may be left out, since alpha = 1",
        "change of round 1's gradient with the others' matrices",
    ),
    "svhn-size": Erratum(
        "experiment", 12, "section 7, SVHN",
        "10,000 images a client",
        "unequal sizes and weights p_k, or another split",
        "images of the smallest pair of digits in order",
    ),
    "same-runs": Erratum(
        "experiment", 12, "Tables 3 to 5",
        "18 private settings",
        "15: three are printed twice, one noise read in two ways",
        "cells printed twice; of them with equal sigma in Table 6",
    ),
    "margins-within": Erratum(
        "experiment", 12, "section 7.2, 'remains better'",
        "private FedSC is better than FedAvg+SC",
        "on SVHN noise and gain cannot be told apart",
        "runs, of 15, within a deviation of FedAvg+SC",
    ),
    "gain-lost": Erratum(
        "experiment", 12, "'negligible degradation'",
        "noise costs next to nothing",
        "there nearly all of the gain",
        "share of the gain that is lost, SVHN, 2 of 5, (3, 1e-4)",
    ),
    "third-remark": Erratum(
        "experiment", 12, "section 7.2, remark (3)",
        "FedSC and FedCA lose least with few clients",
        "CIFAR-100 alone says so",
        "points that FedSC loses on CIFAR-10; most another method loses",
    ),
    "clipped-collapse": Erratum(
        "released code", 12, "clip in the loss",
        "the loss clips z",
        "a clip has no radial gradient: a clipped collapse has a small one too",
        "loss where descent rests, all z outside of the ball",
    ),
    "twice-the-loss": Erratum(
        "released code", 12, "loss",
        "trains with the un-halved loss",
        "halve its step size and clip to compare",
        "its loss over that of section 3",
    ),
    "last-alpha": Erratum(
        "released code", 12, "schedule",
        "alpha ends at 0.2",
        "1 - 0.8 (t - 1) / (T - 1)",
        "alpha of the last of 200 rounds",
    ),
}  # fmt: skip

"""The words of the PriRFed paper's errata: kind, where, what the paper says, what is right, where it is shown.

Text alone: the numbers are computed on the page ``03_prirfed_proofs``.
"""

from __future__ import annotations

from typing import NamedTuple

KINDS = ("false", "loose", "ambiguous", "experiment")


class Erratum(NamedTuple):
    """``quantity`` names the number that the page computes, and after a semicolon how the paper bounds it.

    It is empty where nothing is computed. ``section`` is the page's.
    """

    kind: str
    where: str
    says: str
    right: str
    quantity: str
    section: int


ERRATA: dict[str, Erratum] = {
    # privacy
    "subsampling": Erratum(
        "false",
        "Lemma 4.1 as used in Theorem 4.2",
        "drawing agents amplifies the epsilon of records to log(1 + rho (e^epsilon - 1))",
        "(epsilon, rho delta): epsilon is not amplified",
        "epsilon of randomised response, rho = 0.1; at most",
        5,
    ),
    "theorem-4-2": Erratum(
        "false",
        "Theorem 4.2",
        "T rounds are (epsilon', delta')-private",
        "delta = sum over c of P(c calls) times the delta of c calls",
        "delta of one round at epsilon', slack 0.001; at most",
        5,
    ),
    "subsampling-gaussian": Erratum(
        "false",
        "Lemma 4.1, Gaussian calls",
        "rho delta at the amplified epsilon",
        "rho delta at the epsilon of the call",
        "delta of a round, rho = 0.01, agents far apart; at most",
        5,
    ),
    "table-1": Erratum(
        "false",
        "Table 1, N = 100, s = 1, T = 500",
        "epsilon' 0.136 at delta' 0.0015",
        "for s = 1 too small when participation is seen; for s at least 5 too large",
        "exact delta at that epsilon; at most",
        5,
    ),
    "noise-constant": Erratum(
        "false",
        "noise of Algorithm 2, constant not given",
        "o = 1 gives (0.15, 0.0001) for a full-batch call",
        "o = 2.88; 3 to 4 at the other settings",
        "epsilon at that delta; at most",
        4,
    ),
    "svrg-step": Erratum(
        "false",
        "noise of Algorithm 3",
        "a constant 1 gives (0.15, 0.0001) for a call, by composition",
        "not even for one inner step on one drawn record",
        "delta of one inner step, n = 250; at most",
        4,
    ),
    "clip-from-data": Erratum(
        "false",
        "section 6.1, tau = 2 max |z|²",
        "tau may be read off the private records",
        "a public tau: normalise the records",
        "delta at 0.15 when one record is twice as long; at most",
        4,
    ),
    "weights-leak": Erratum(
        "false",
        "(6.3), adjacency",
        "one record moves the clipped mean by at most 2 tau / n",
        "only if features are public: one feature changes every weight",
        "largest move over 2 tau / n of 50 tries; at most",
        4,
    ),
    "ambient-noise": Erratum(
        "ambiguous",
        "sampling on the hyperboloid",
        "left to a citation; one tempting reading is to project an ambient Gaussian",
        "draw at the origin and transport; projection is right on the sphere only",
        "mean square length of projected noise, x_0 = 2.6; dimension",
        2,
    ),
    "factor-s": Erratum(
        "loose",
        "proof of Theorem 4.2",
        "the s calls of a round cost s epsilon",
        "they are on disjoint data: epsilon",
        "epsilon of five calls of 0.15; by the paper",
        5,
    ),
    "mean-loss": Erratum(
        "loose",
        "Theorem 2.3",
        "k epsilon (e^epsilon - 1)",
        "k epsilon tanh(epsilon / 2)",
        "largest mean loss at epsilon 0.15; at most",
        3,
    ),
    "untrusted-server": Erratum(
        "ambiguous",
        "introduction, section 4",
        "no trusted server is needed, and sampling amplifies",
        "each upload is private, but the server sees who uploads: no credit for sampling",
        "",
        5,
    ),
    # geometry
    "normaliser": Erratum(
        "false",
        "Definition 2.5",
        "the density's constant is 1 / sqrt((2 pi)^d sigma²)",
        "1 / (2 pi sigma²)^(d/2)",
        "integral of the printed density, d = 2, sigma = 0.5; a density has",
        2,
    ),
    "compact-set": Erratum(
        "false",
        "Assumption 5.3 and the first line of the proofs",
        "all iterates stay in a compact set, within the injectivity radius",
        "with Gaussian noise only with high probability",
        "chance that a step on the sphere exceeds pi, eta sigma = 1; assumed",
        6,
    ),
    "root-of-distance": Erratum(
        "false",
        "Lemma A.1",
        "zeta = sqrt(|kappa| c) / tanh(...)",
        "sqrt(|kappa|) c / tanh(...)",
        "third side squared, right triangle 1, 4; at most",
        6,
    ),
    "whole-diameter": Erratum(
        "false",
        "Lemma A.2",
        "the diameter of the whole manifold in tanh",
        "the diameter of W, below as above",
        "third side squared, right triangle 0.1, 0.1; at most",
        6,
    ),
    "distance-not-squared": Erratum(
        "false",
        "display before (3.2)",
        "the gradient of half the mean distance is minus the mean Log",
        "half the mean squared distance",
        "length of the gradient of dist / 2 at distance 4; the Log has",
        13,
    ),
    "hessian-sign": Erratum(
        "false",
        "section 6.1",
        "Hess f[v] = 2 (I - x x^T) z z^T v - 2 (x^T z)² v",
        "the opposite sign",
        "second derivative of -(z.x)² at x = z; by the formula",
        13,
    ),
    "slope-twice": Erratum(
        "loose",
        "section 6.1, L_f and tau",
        "the slope is at most 2 |z|²",
        "|z|² |sin 2 angle|, at most |z|²",
        "largest slope, |z| = 1; at most",
        13,
    ),
    "hyperbolic-smoothness": Erratum(
        "false",
        "section 6.3, L_g",
        "max |alpha| M / tanh M",
        "twice that",
        "bend of dist² at distance 4; at most",
        13,
    ),
    "gradient-sign": Erratum(
        "false",
        "section 6.3",
        "grad f = 2 alpha Log",
        "-2 alpha Log",
        "slope of dist² towards the target, over the distance; by the formula",
        13,
    ),
    "wordnet-bound": Erratum(
        "false",
        "section 6.3, WordNet, L_f",
        "max |alpha| M",
        "2 max |alpha| M, as in the text above it",
        "slope of dist² at distance 4; at most",
        13,
    ),
    "kernel-width": Erratum(
        "ambiguous",
        "section 6.3, RBF kernel",
        "exp(-|w|² / (2 width)²)",
        "exp(-|w|² / (2 width²)), as in the code of its source",
        "kernel at one width; printed",
        13,
    ),
    "matrix-dimension": Erratum(
        "ambiguous",
        "section 6.2",
        "d is the size of the matrices",
        "noise has dimension d (d + 1) / 2",
        "dimension of 9 x 9 matrices; the letter says",
        2,
    ),
    "diameter-is-a-radius": Erratum(
        "ambiguous",
        "section 6.2",
        "records of diameter bound 1",
        "a ball of radius 1 about the identity",
        "distance of two such records; at most",
        13,
    ),
    # convergence
    "active-clipping": Erratum(
        "false",
        "Theorem 5.1 (and 5.2 to 5.6 alike)",
        "no condition on tau",
        "no gradient may be clipped, tau >= L_f",
        "least squared gradient of Theorem 5.1, T = 1000; at most",
        8,
    ),
    "start-by-distance": Erratum(
        "false",
        "proof of Theorem 5.3",
        "the first gap is at most L dist",
        "(L / 2) dist²",
        "gap of x² at distance 10; at most",
        9,
    ),
    "noise-without-step": Erratum(
        "loose",
        "Theorem 5.3",
        "a noise term that does not shrink with the step",
        "keep the step in the same proof",
        "noise term, eta = 0.001, L = 2, T = 1000, V = 1; printed",
        9,
    ),
    "factor-d": Erratum(
        "loose",
        "Theorem 5.4",
        "kappa_1 = v kappa_0",
        "without the factor d: the divergence of agents knows no dimension",
        "term of unlike agents, d = 45; printed",
        10,
    ),
    "pl-of-one-agent": Erratum(
        "false",
        "Assumption 5.4",
        "f_i(x) - f(x*) <= |grad f(x)|² / (2 mu)",
        "f(x) - f(x*)",
        "left side at the optimum, three agents; at most",
        10,
    ),
    "random-cohort": Erratum(
        "ambiguous",
        "Theorem 5.4",
        "a bound with a sum over the random cohort",
        "its expectation, the sum over all divided by s K",
        "",
        10,
    ),
    "needless-convexity": Erratum(
        "loose",
        "Assumption 5.4",
        "all f_i are geodesically convex",
        "not used in the proof of Theorem 5.4",
        "",
        10,
    ),
    "a16": Erratum(
        "false",
        "(A.16) and (B.3)",
        "E <grad f, u> = E |grad f|² at every local step",
        "at the first only, or for equal agents",
        "E <f', u> after one step of 0.1, two agents; taken for",
        11,
    ),
    "theorem-5-5": Erratum(
        "false",
        "Theorem 5.5",
        "the mean squared gradient falls to q_0 q",
        "a drift term for unlike agents",
        "E f'², two agents, 100 steps, T = 10,000, Option 2; at most",
        11,
    ),
    "theorem-5-5-equal": Erratum(
        "false",
        "Theorem 5.5, Option 2",
        "the bound holds when the next round starts at a random point",
        "go on from the last point: a random one gives up half of the round",
        "E f'², equal agents, eta = 1e-5, T = 10,000; at most",
        11,
    ),
    "needless-sequence": Erratum(
        "loose",
        "Lemma A.4, Theorem 5.5",
        "beta, c_k and a condition on the step",
        "not needed: the descent lemma alone gives less",
        "bound for equal agents, T = 100, K = 5; printed",
        11,
    ),
    "one-point-too-many": Erratum(
        "ambiguous",
        "Algorithm 2, Option 2",
        "draws from K + 1 points",
        "from the first K, as the proof has it",
        "mean squared gradient, K = 2, only noise; over the proof's points",
        11,
    ),
    "random-uploads": Erratum(
        "false",
        "Option 2",
        "upload a random point; the sums telescope",
        "go on from the last point, draw the reported one",
        "E f'², equal agents, T = 1000; the proof's own constants give",
        12,
    ),
    "theorem-5-6": Erratum(
        "false",
        "Theorem 5.6",
        "the mean squared gradient falls like 1 / T",
        "for equal agents only; see the repaired forms",
        "E f'², two unlike agents, no noise, T = 10,000, Option 2; at most",
        12,
    ),
    "start-constant": Erratum(
        "false",
        "Theorem 5.6, constant c",
        "c > 10 N / (3 m)",
        "N / (nu m) with nu < 1/10",
        "E f'², equal agents, T = 1; at most",
        12,
    ),
    "small-steps": Erratum(
        "false",
        "Theorem 5.6, step",
        "any step up to the largest",
        "the largest: the bound does not contain the step",
        "E f'², equal agents, step 1e-9; at most",
        12,
    ),
    "noise-of-5-6": Erratum(
        "false",
        "Theorem 5.6, 1/100",
        "d sigma² / 100 (...)",
        "three to five times as much by the proof's own recursion",
        "E f'², 16 equal agents, noise 1; at most",
        12,
    ),
    "inner-steps": Erratum(
        "ambiguous",
        "Theorem 5.6, m",
        "floor(10 N / (3 sqrt zeta))",
        "floor(10 N / 3), as in proof and experiments",
        "m at N = 16, zeta = 4; printed",
        12,
    ),
    "factor-two": Erratum(
        "loose",
        "(B.2)",
        "E |u|² <= 2 |grad|² + 2 L² dist² + d sigma²",
        "without both factors 2: the parts are uncorrelated",
        "the bound at the anchor; printed",
        12,
    ),
    "one-inner-step": Erratum(
        "false",
        "after Algorithm 3",
        "with m = 1 it is Algorithm 2",
        "with a full batch only",
        "variance of the direction over the drawn record; Algorithm 2, b = 1",
        12,
    ),
    "more-agents": Erratum(
        "false",
        "after Theorem 5.6",
        "more agents, smaller bound",
        "not at fixed data: each agent's noise grows faster",
        "growth of the noise term, Figure 2, N = 50 to 100; below",
        12,
    ),
    # experiments
    "sum-scaled": Erratum(
        "experiment",
        "Figure 1",
        "progress that the gradient of the mean hardly makes under the published noise (1b, 1c; see the results)",
        "open; if it was the gradient of the sum, it has 70 times the sensitivity",
        "epsilon of one call, if it was the sum; claimed",
        4,
    ),
    "figure-1-total": Erratum(
        "experiment",
        "Figure 1a",
        "epsilon 0.15",
        "that is one call; the run's (epsilon', delta') is never reported",
        "epsilon of 200 rounds (T is ours), everybody; named",
        4,
    ),
    "eigengap": Erratum(
        "experiment",
        "Figure 1, caption",
        "eigengap 0.001",
        "a gap of singular values of one agent's data; and v is nu",
        "gap of one agent's matrix in (6.1), n = 70; named",
        13,
    ),
    "missing-settings": Erratum(
        "experiment",
        "section 6",
        "figures",
        "T, the start, b of Figures 2 to 5, s of Figure 2, the scaling of MNIST are not given",
        "",
        13,
    ),
    # misprints without a number
    "metric-point": Erratum(
        "ambiguous",
        "after Definition 2.2",
        "inner product at y; titled Lipschitz",
        "at x; it defines smoothness",
        "",
        1,
    ),
    "tildes": Erratum(
        "ambiguous", "(3.1), (3.2)", "x_i", "the uploaded point, with tilde; N_i in the denominators", "", 13
    ),
    "algorithm-2-line-5": Erratum("ambiguous", "Algorithm 2, line 5", "Exp at x_k", "at x_{i,k}", "", 13),
    "algorithm-3-line-7": Erratum(
        "ambiguous", "Algorithm 3, line 7", "epsilon for the noise, N(0, sigma)", "varepsilon, N(0, sigma²)", "", 13
    ),
    "index-of-5-1": Erratum(
        "ambiguous", "Theorem 5.1", "minimum over 0 <= t <= T; no word on batches", "t < T; full batches", "", 8
    ),
    "a16-sign": Erratum(
        "ambiguous", "before (A.17)", "E Exp^-1(next) = alpha E u; grad f_i and grad f mixed", "a minus sign", "", 11
    ),
    "b4-b8": Erratum(
        "ambiguous",
        "(B.4) to (B.8)",
        "x^{-1}, a factor c_{j+1} and a bracket missing; R <=; sums over k alone",
        "x^(t), c_{j+1} [...]; equality; sums over k and j",
        "",
        12,
    ),
    "diagonal": Erratum(
        "ambiguous", "section 6.1, synthetic data", "1, 1 - 1.1 nu, ...", "its source also has 1 - nu", "", 13
    ),
    "legends": Erratum("ambiguous", "figures' legends", "DP-SRSGD", "DP-RSVRG", "", 13),
}

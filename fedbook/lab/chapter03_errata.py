"""Chapter 3's errata: what PriRFed states that does not hold or does not follow, each with a witness.

A witness returns the number that is found and the number that the statement promises; ``ERRATA`` has those
that change conclusions first.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import product

import torch
from torch import Tensor

from fedbook.geometry import SPD, Hyperboloid, Sphere
from fedbook.lab import chapter03_descent as descent
from fedbook.lab import chapter03_local as local
from fedbook.lab import chapter03_theory as theory
from fedbook.lab.errata import Erratum, errata_text
from fedbook.papers.prirfed import local_call, participation
from fedbook.privacy.gaussian import calibrate, exact_epsilon, gaussian_mu
from fedbook.randomness import normal, stream

SPHERE, H = Sphere(), Hyperboloid()
TWO = torch.tensor([-1.0, 1.0], dtype=torch.float64)  # two agents on the line; both at 0: one objective
LR = 0.1 / 2 ** (2 / 3)  # Theorem 5.6 for N = 2 and L = zeta = 1: m = 6, and K = 2 makes 12 local steps


def _at(distance: float, angle: float = 0.0) -> Tensor:
    """The point of the hyperbolic plane at that distance and direction from the origin."""
    v = distance * torch.tensor([0.0, math.cos(angle), math.sin(angle)], dtype=torch.float64)
    return H.exp(H.origin(3), v)


# --- privacy


def amplification() -> tuple[float, float]:
    """One of ten agents randomises its bit at epsilon 1, the others send a constant: epsilon of what is published."""
    return participation.randomised_response_counterexample(1.0, 10)


def full_batch_noise() -> tuple[float, float]:
    """One call of full-batch DP-RSGD with the published noise, o = 1, for (0.15, 1e-4): its epsilon at that delta."""
    sigma = local_call.paper_sigma_rsgd(0.15, 1e-4, 250, 1.0, 3)
    return exact_epsilon(gaussian_mu(sigma * 250 / 2.0, 3), 1e-4), 0.15


def one_svrg_step() -> tuple[float, float]:
    """DP-RSVRG of Figure 3 (N_i = 250, K = 3, m = 10): delta at epsilon 0.15 of one inner step, at least: not
    the first of an epoch, where the drawn record cancels, but one at which its gradient has turned round."""
    sigma = local_call.paper_sigma_rsvrg(0.15, 1e-4, 250, 1.0, 3, 10)
    return local_call.one_step_delta(sigma, 250, 1.0, 0.15), 1e-4


def amplified_noise() -> tuple[float, float]:
    """Gaussian calls for (0.15, 1e-4), agents far apart, rate 0.01: delta of one round at the amplified epsilon."""
    return participation.separated_gaussian_counterexample(0.15, 1e-4, 0.01)


def table_1() -> tuple[float, float]:
    """Table 1, N = 100, s = 1, T = 500: delta at the printed epsilon', calls that just keep (0.15, 1e-4)."""
    claim = participation.theorem_4_2(0.15, 1e-4, 100, 1, 500)
    mu = 1 / calibrate(0.15, 1e-4)
    return participation.participation_delta(claim.epsilon, 100, 1, 500, mu), claim.delta


def figure_1_total() -> tuple[float, float]:
    """Figure 1a, everybody in every round, published noise for 0.15, T = 200: epsilon of the run at delta 1e-5."""
    return exact_epsilon(math.sqrt(200) * 2 * 0.15 / math.sqrt(math.log(1e5)), 1e-5), 0.15


def sum_scaled() -> tuple[float, float]:
    """The sum over 70 records in place of the mean, noise as published for (0.15, 1e-5): epsilon of ONE call."""
    return exact_epsilon(70 * 2 * 0.15 / math.sqrt(math.log(1e5)), 1e-5), 0.15


def clip_norm_from_data() -> tuple[float, float]:
    """tau = 2 max |z|^2, unit records; one gets length 2, and the noise on S^24 is four times as long: delta at 0.15.

    The best test on the length of one release, from the two chi-square distributions with 24 degrees of freedom.
    """
    from scipy.stats import chi2

    longest = torch.linspace(0, 400, 40_001, dtype=torch.float64).numpy()
    return float((chi2.sf(longest / 16, 24) - math.exp(0.15) * chi2.sf(longest, 24)).max()), 1e-5


def weights_of_everybody() -> tuple[float, float]:
    """Problem (6.3), 20 records: change of the clipped mean gradient when ONE feature w changes, over 2 tau / N_i."""
    rng, worst = stream(0, "features"), 0.0
    for _ in range(50):
        w = 0.5 * normal((20, 3), rng)
        other = torch.cat([0.5 * normal((1, 3), rng), w[1:]])
        logs = H.log(H.origin(3), H.random_point(3, rng, (20,)))
        means = [
            theory.clipped(H, H.origin(3), -2 * _kernel_weights(v)[:, None] * logs, 0.1).mean(0) for v in (w, other)
        ]
        worst = max(worst, float(H.norm(H.origin(3), means[0] - means[1])) / (2 * 0.1 / 20))
    return worst, 1.0


def _kernel_weights(w: Tensor) -> Tensor:
    """(K + gamma I)^-1 K_w at the feature 0, with gamma = 1e-5 and width 0.3."""
    near = (-torch.cdist(w, w).square() / (2 * 0.3**2)).exp()
    target = (-w.square().sum(1) / (2 * 0.3**2)).exp()
    return torch.linalg.solve(near + 1e-5 * torch.eye(len(w)).to(w), target)


def one_call_of_five() -> tuple[float, float]:
    """Five agents randomise a bit each at epsilon 0.15, one bit changes: epsilon over all 32 results, and 5 epsilon."""
    honest = 1 / (1 + math.exp(-0.15))
    ratios = []
    for answers in product((0, 1), repeat=5):
        laws = [math.prod(honest if a == b else 1 - honest for a, b in zip(answers, (bit, 0, 1, 1, 0), strict=True))
                for bit in (0, 1)]  # fmt: skip
        ratios.append(abs(math.log(laws[0] / laws[1])))
    return max(ratios), participation.compose_basic(0.15, 0.0, 5).epsilon


# --- convergence


def unlike_agents() -> tuple[float, float]:
    """Theorem 5.6, agents (x +- 1)^2 / 2 on the line, no noise, T = 10,000, start 1: E |f'|^2 and the bound."""
    return local.line_gradient(TWO, LR, 12, 10_000, 1.0), local.theorem_5_6(0.5, 10_000, 2, 2, 1.0)


def unlike_agents_sgd() -> tuple[float, float]:
    """Theorem 5.5, the same agents, K = 100 steps of 0.001, beta = 2: E |f'|^2 after 10,000 rounds, and the bound."""
    return local.line_gradient(TWO, 1e-3, 100, 10_000, 1.0), local.theorem_5_5(0.5, 10_000, 100, 1e-3, 2.0, 1.0, 2.0)


def noise_constant() -> tuple[float, float]:
    """Theorem 5.6, 16 agents that all hold x^2 / 2, noise 1, from the minimum, T = 4000: E |f'|^2 and the bound."""
    lr = 0.1 / 16 ** (2 / 3)
    return local.line_gradient(0 * TWO, lr, 2 * 53, 4000, 0.0, 1.0), local.theorem_5_6(0.0, 4000, 2, 16, 1.0, 1.0)


def start_constant() -> tuple[float, float]:
    """Theorem 5.6, two agents that both hold x^2 / 2, no noise, one round from 1: E |f'|^2 and the bound."""
    return local.line_gradient(0 * TWO, LR, 12, 1, 1.0), local.theorem_5_6(0.5, 1, 2, 2, 1.0)


def small_steps() -> tuple[float, float]:
    """The same agents, step 1e-9 (any step up to the largest is allowed), T = 10,000: E |f'|^2 and the bound."""
    return local.line_gradient(0 * TWO, 1e-9, 12, 10_000, 1.0), local.theorem_5_6(0.5, 10_000, 2, 2, 1.0)


def random_uploads() -> tuple[float, float]:
    """Option 2 as printed, the same agents, T = 1000: E |f'|^2, and the bound with the recursion's own constants."""
    found = local.line_gradient(0 * TWO, LR, 12, 1000, 1.0, literal=True)
    return found, local.theorem_5_6(0.5, 1000, 2, 2, 1.0, printed=False)


def one_point_too_many() -> tuple[float, float]:
    """Algorithm 2 draws from K + 1 points, its proof from K: mean |f'|^2 of x^2 / 2, only noise, K = 2, over K's."""
    square = [0.0, 1.0, 1.0 + (1 - LR) ** 2]  # of x_0, x_1, x_2 in units of lr^2 std^2, from the minimum
    return (sum(square) / 3) / (sum(square[:2]) / 2), 1.0


def wrong_mean_step() -> tuple[float, float]:
    """(A.16), two agents, from 0 after one step of 0.1: E <f', eta>, taken for E |f'|^2."""
    return local.expected_product(TWO, 0.1, 0.0)


def active_clipping() -> tuple[float, float]:
    """Theorem 5.1, one agent with records (x - a)^2 / 2, a = 0, 0, 30, tau = 1, no noise, T = 1000: min |f'|^2."""
    a, x, least = torch.tensor([0.0, 0.0, 30.0], dtype=torch.float64), 0.0, math.inf
    gap = 0.5 * float(a.mean()) ** 2
    for _ in range(1000):
        least = min(least, (x - float(a.mean())) ** 2)
        x -= float((x - a).clamp(-1, 1).mean())
    return least, descent.theorem_5_1(gap, 1000, 1.0, 1.0, 0.0)


def more_agents() -> tuple[float, float]:
    """Figure 2's settings, N = 50 and 100 with 60,000 records in all: growth of Theorem 5.6's noise term."""
    terms = []
    for agents in (50, 100):
        sigma = local_call.paper_sigma_rsvrg(0.15, 1e-4, 60_000 // agents, 1.0, 3, 10 * agents // 3)
        terms.append(local.theorem_5_6(0.0, 1, 3, agents, 1.0, 783 * sigma**2))
    return terms[1] / terms[0], 1.0


def divergence_term() -> tuple[float, float]:
    """Theorem 5.4, d = 45, lr L = 1/2, mu = v = 1, S = 1 of 2: the term of unlike agents, round by round; printed."""
    common = dict(gap=0.0, rounds=1000, lr=0.25, smoothness=2.0, pl=1.0)
    printed = descent.theorem_5_4(
        dimension=45, variance=0.0, cohort=1, agents=2, divergence=1.0, printed=True, **common
    )
    return descent.recursion_5_4(noise=0.0, divergence=1.0, **common), printed


def start_by_distance() -> tuple[float, float]:
    """Proof of 5.3: f(x^0) - f* for f = x^2 (L = 2) at distance 10, at most L times the distance."""
    return 10.0**2, 2.0 * 10.0


def pl_of_one_agent() -> tuple[float, float]:
    """Assumption 5.4, agents (x - a)^2, a = 0, 0, 3, at the minimum x* = 1 of f: largest f_i - f(x*); |grad f| = 0."""
    each = torch.tensor([1.0, 1.0, 4.0])
    return float(each.max() - each.mean()), 0.0


def inner_steps() -> tuple[float, float]:
    """Theorem 5.6, N = 16, zeta = 4: m in the proof and the experiments; printed: floor(10 N / (3 sqrt zeta))."""
    return float(local.recursion_b1(16, curvature=4.0).inner), 160 // (3 * 2)


def one_inner_step() -> tuple[float, float]:
    """'m = 1 becomes Algorithm 2': variance of the direction over the record drawn, and DP-RSGD's with b = 1."""
    x = SPHERE.random_point(5, stream(0, "point"))
    slopes = SPHERE.project(x, normal((8, 5), stream(1, "slopes")))
    reduced = theory.variance_reduced(SPHERE, x, x, slopes, slopes, (1.0, 1.0))
    plain = theory.clipped(SPHERE, x, slopes, 1.0)
    return tuple(round(float(v.var(0, correction=0).sum()), 12) for v in (reduced, plain))


# --- geometry


def ambient_noise() -> tuple[float, float]:
    """Mean square length of projected ambient noise at x_0 = 2.6 on the hyperbolic plane; the dimension is 2."""
    return float(theory.ambient_noise(H, _at(math.acosh(2.6))).trace()), 2.0


def printed_normaliser() -> tuple[float, float]:
    """Integral of the density of Definition 2.5 with its printed constant, d = 2, std 0.5."""
    integral, _, printed = theory.normaliser(2, 0.5)
    return integral / printed, 1.0


def distance_not_squared() -> tuple[float, float]:
    """The display before (3.2), a point at distance 2: length of the gradient of dist / 2, and of the Log it names."""
    y = _at(2.0)
    found = theory.gradient(H, lambda x: 0.5 * H.dist(x, y), H.origin(3))
    return float(H.norm(H.origin(3), found)), float(H.norm(H.origin(3), H.log(H.origin(3), y)))


def root_of_distance() -> tuple[float, float]:
    """zeta as printed in Lemma A.1, sqrt(|k| c) on top: l_2^2 of the right triangle with sides 1 and 4; at most."""
    sides = descent.triangle(H, _at(0.0), _at(1.0), _at(4.0, math.pi / 2), torch.tensor(2 / math.tanh(4)))
    return float(sides.left), float(sides.right)


def diameter_of_everything() -> tuple[float, float]:
    """zeta as printed in Lemma A.2, tanh(infinity) below: l_2^2 of the right triangle with sides 0.1; at most."""
    wide = H.dist(_at(0.1), _at(0.1, math.pi / 2))
    sides = descent.triangle(H, _at(0.0), _at(0.1), _at(0.1, math.pi / 2), wide)
    return float(sides.left), float(sides.right)


def hessian_sign() -> tuple[float, float]:
    """Section 6.1's Hessian of -(z.x)^2 at x = z on S^4: <v, Hess v> by differences, and by the printed formula."""
    x = SPHERE.origin(5)
    found = theory.hessian(SPHERE, lambda p: -(p[..., 0] ** 2), x)
    return float(found[0, 0]), -float(theory.rayleigh(x, x).hessian[0, 0])


def slope_twice() -> tuple[float, float]:
    """The longest gradient of -(z.x)^2, |z| = 1, over 2000 points, and the paper's bound, which it takes for tau."""
    x = SPHERE.random_point(5, stream(0, "points"), (2000,))
    a = x[:, 0]
    return float((2 * a * (1 - a**2).sqrt()).max()), 2.0


def hyperbolic_smoothness() -> tuple[float, float]:
    """Section 6.3: largest eigenvalue of Hess dist^2 at distance 4 by differences, and M / tanh(M)."""
    y = _at(4.0)
    found = theory.hessian(H, lambda x: H.squared_dist(x, y), H.origin(3))
    return float(torch.linalg.eigvalsh(found)[-1]), 4 / math.tanh(4)


def gradient_sign() -> tuple[float, float]:
    """Section 6.3: slope of dist^2 towards y at distance 2, over that distance, by differences; 2 Log as printed."""
    y = _at(2.0)
    found = theory.gradient(H, lambda x: H.squared_dist(x, y), H.origin(3))
    return float(H.inner(H.origin(3), found, H.log(H.origin(3), y))) / 4, 2.0


def wordnet_bound() -> tuple[float, float]:
    """'L_f = max |alpha| M' of the WordNet paragraph: gradient of dist^2 at distance M = 4."""
    found = theory.gradient(H, lambda x: H.squared_dist(x, _at(4.0)), H.origin(3))
    return float(H.norm(H.origin(3), found)), 4.0


def kernel_width() -> tuple[float, float]:
    """The kernel at distance 1 width, exp(-1/2) as the code of its source has it, and with (2 width)^2 as printed."""
    return math.exp(-1 / 2), math.exp(-1 / 2**2)


def matrix_dimension() -> tuple[float, float]:
    """Mean square length of unit noise on 9 x 9 positive definite matrices, where the text calls 9 the dimension."""
    return float(theory.noise_covariance(SPD(), torch.eye(9, dtype=torch.float64)).trace()), 9.0


def diameter_is_a_radius() -> tuple[float, float]:
    """Figure 3's 'diameter bound 1', records within 1 of the identity: the distance of two of them."""
    turn = torch.tensor([1.0, -1.0], dtype=torch.float64) / math.sqrt(2) * 0.99
    return float(SPD().dist(torch.diag(turn.exp()), torch.diag((-turn).exp()))), 1.0


def eigengap() -> tuple[float, float]:
    """Figure 1's 'eigengap 1e-3', N_i = 70: gap of the matrix in (6.1), singular values 1 and 1 - 1.1e-3 of Z_i."""
    return (1 - (1 - 1.1e-3) ** 2) / 70, 1e-3


ERRATA: tuple[Erratum, ...] = (
    ("Lemma 4.1, sampled agents, a record changed: epsilon of randomised response, rate 0.1", amplification),
    ("the same, Gaussian calls far apart, rate 0.01: delta of a round at the amplified epsilon", amplified_noise),
    ("Table 1 (N 100, s 1, T 500): delta at its epsilon 0.136 if one sees who took part", table_1),
    ("noise with o = 1, full batch: epsilon at delta 1e-4", full_batch_noise),
    ("the same for DP-RSVRG, N_i 250, K 3, m 10: delta of one later inner step; at least", one_svrg_step),
    ("Theorem 5.6, two unlike agents on a line, no noise, T 10,000: E |f'|^2; at most", unlike_agents),
    ("Theorem 5.5, the same, K 100: E |f'|^2; at most", unlike_agents_sgd),
    ("Theorem 5.6, 16 like agents, noise 1, T 4000: E |f'|^2; at most", noise_constant),
    ("the gradient of the sum under the noise for the mean (70 records): epsilon of one call", sum_scaled),
    ("ambient noise projected on the hyperboloid, x_0 = 2.6: mean square length", ambient_noise),
    ("Figure 1a, eps 0.15, T 200, everybody, published noise: epsilon of the run, delta 1e-5", figure_1_total),
    ("tau = 2 max |z|^2 read off the data, one record twice as long: delta at 0.15", clip_norm_from_data),
    ("(6.3), one feature changed: change of the clipped mean gradient over 2 tau / N_i", weights_of_everybody),
    ("five calls on disjoint records, counted one after the other: epsilon", one_call_of_five),
    ("Theorem 5.6, two like agents, no noise, T 1: E |f'|^2; at most", start_constant),
    ("Theorem 5.6, like agents, step 1e-9, T 10,000: E |f'|^2; at most", small_steps),
    ("Option 2 uploads a random point, like agents, T 1000: E |f'|^2; its proof allows", random_uploads),
    ("Algorithm 2, Option 2, draws from K + 1 points: mean |f'|^2 over that of its proof", one_point_too_many),
    ("(A.16), two unlike agents after one step: E <f', eta>, taken for E |f'|^2", wrong_mean_step),
    ("Theorem 5.1 with tau below the gradients, no noise, T 1000: min |f'|^2; at most", active_clipping),
    ("'more agents, smaller bound' (5.6), Figure 2's N 50 to 100: growth of the noise term; below", more_agents),
    ("Theorem 5.4, kappa_1 = v kappa_0 with its factor d = 45: term of unlike agents", divergence_term),
    ("proof of 5.3, f = x^2 from distance 10: f - f*; at most", start_by_distance),
    ("Assumption 5.4 as printed, f_i - f* <= |grad f|^2 / (2 mu) at x*: left side; at most", pl_of_one_agent),
    ("Theorem 5.6's m at N 16, zeta 4: in proof and experiments; printed", inner_steps),
    ("'Algorithm 3 with m = 1 is Algorithm 2', b = 1: variance over the record drawn", one_inner_step),
    ("Definition 2.5's density, d 2, std 0.5: its integral", printed_normaliser),
    ("before (3.2), point at distance 2: length of grad dist / 2; of Log", distance_not_squared),
    ("Lemma A.1's zeta, right triangle 1, 4: square of the third side; at most", root_of_distance),
    ("Lemma A.2's zeta, right triangle 0.1, 0.1: square of the third side; at most", diameter_of_everything),
    ("6.1, Hessian of -(z.x)^2 at x = z: <v, Hess v>", hessian_sign),
    ("6.1, longest gradient over |z|^2: is half of the tau in use", slope_twice),
    ("6.3, largest eigenvalue of Hess dist^2 at distance 4; at most", hyperbolic_smoothness),
    ("6.3, <grad dist^2, Log> / dist^2", gradient_sign),
    ("6.3, WordNet: gradient of dist^2 at distance M = 4; at most", wordnet_bound),
    ("6.3, RBF kernel at one width: 2 width^2 below; printed (2 width)^2", kernel_width),
    ("6.2, 'd' = 9: mean square length of unit noise", matrix_dimension),
    ("6.2, records with 'diameter bound 1': distance of two; at most", diameter_is_a_radius),
    ("Figure 1, 'eigengap': gap of the matrix in (6.1)", eigengap),
)
errata_table = partial(errata_text, ERRATA)

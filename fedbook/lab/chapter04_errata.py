"""Chapter 4's errata: what DP2-FedSAM states that does not hold or does not follow, each with a witness.

A witness returns the number that is found and the number that the statement promises; ``ERRATA`` has those
that change conclusions first.
"""

from __future__ import annotations

import math
from functools import partial

import torch

from fedbook.lab import chapter04_renyi as renyi
from fedbook.lab import chapter04_theory as theory
from fedbook.lab.chapter04_descent import longest_update
from fedbook.lab.chapter04_sam import logistic_gradients
from fedbook.lab.errata import Erratum, errata_text
from fedbook.privacy.gaussian import rdp_to_epsilon
from fedbook.privacy.sampled import paper_sigma, without_replacement_floor, without_replacement_rdp
from fedbook.randomness import normal, stream

# The paper's settings: clients, epsilon; rate 0.05, 200 rounds, delta = 1 / clients. Noise: equation (26), and what
# a Poisson sampled accountant needs.
RATE, ROUNDS = 0.05, 200
SETTINGS = ((500, 1.0), (500, 2.0), (1000, 1.0), (1000, 2.0))
NEEDED = {500: 2.1163, 1000: 2.2581}  # for epsilon 1
CIFAR_BODY, FEMNIST_BODY = 666_112, 11_176_512


# --- privacy


def theorem2_is_false() -> tuple[float, float]:
    """One round, rate 0.01, epsilon 1, delta 1e-5, noise from (26): the exact delta of that release."""
    return renyi.sampled_delta(1.0, paper_sigma(1.0, 1e-5, 0.01, 1).sigma, 0.01), 1e-5


def precondition() -> tuple[float, float]:
    """The smallest r a (1 + sigma^2) over the paper's four settings; above 1 the shortcut allows no order above 1."""
    found = []
    for clients, epsilon in SETTINGS:
        paper = paper_sigma(epsilon, 1 / clients, RATE, ROUNDS)
        found.append(RATE * paper.order * (1 + paper.sigma**2))
    return min(found), 1.0


def shortcut() -> tuple[float, float]:
    """Renyi divergence of order 13 of one sampled release, rate 0.05, sigma 1, and 3.5 r^2 a / sigma^2."""
    return renyi.sampled_by_quadrature(13, 1.0, 0.05), 3.5 * 0.05**2 * 13


def fixed_cohorts_double_the_sensitivity() -> tuple[float, float]:
    """Two clients with opposite updates, cohorts of one, sigma 1: D_2 when the second one leaves, and Lemma 4's value.

    With both the output is N(1, 1) or N(-1, 1), each in half of the rounds; with the first alone always N(1, 1).
    """
    one, other = renyi.log_normal(1.0, 1.0), renyi.log_normal(-1.0, 1.0)
    found = renyi.divergence_by_quadrature(2.0, renyi.log_mixture(0.5, one, other), one, -18, 18)
    return found, without_replacement_rdp(2, 1.0, 0.5)  # called with sensitivity C, as the paper does


def one_message() -> tuple[float, float]:
    """Epsilon of one client's upload as the server receives it: N = 1000, cohort 50, sigma for epsilon 1."""
    return renyi.message_epsilon(NEEDED[1000], 50, 1e-3), 1.0


def lemma4_has_a_floor() -> tuple[float, float]:
    """The smallest epsilon that any noise gets from Lemma 4 with the paper's rate, rounds and delta (N = 500)."""
    inverse = math.log(500)
    return min(ROUNDS * without_replacement_floor(a, RATE) + inverse / (a - 1) for a in range(2, 129)), 1.0


def tensor_by_tensor() -> tuple[float, float]:
    """DP-FedSAM's public code clips each of 62 tensors: epsilon by simulated privacy losses (no bound involved)."""
    losses = renyi.sampled_losses(0.95 / math.sqrt(62), 0.1, 300, 3000, 0)
    return renyi.epsilon_of_losses(losses, 1 / 500), 10.8


def printed_baseline_variance() -> tuple[float, float]:
    """50 clients each add noise of DP-FedAvg's printed variance C^2 sigma / (r N): epsilon of 200 rounds (N = 1000)."""
    shares = math.sqrt(NEEDED[1000] / 50) * normal((50, 4000), stream(0, "shares"))
    multiplier, orders = float(shares.sum(0).std()), range(2, 33)
    rdp = [ROUNDS * math.log(float(renyi.sampled_terms(a, multiplier, RATE).sum())) / (a - 1) for a in orders]
    return rdp_to_epsilon(orders, rdp, 1e-3)[0], 1.0


def noise_divisor() -> tuple[float, float]:
    """Appendix A.1's noise, variance C^2 sigma^2 / r a client, from 50 of N = 1000: noise of the sum over C sigma."""
    return float((math.sqrt(1 / RATE) * normal((50, 4000), stream(1, "shares"))).sum(0).std()), 1.0


def condition_with_clip_norm() -> tuple[float, float]:
    """The largest order the condition in Theorem 2's proof allows with its C^2 (C = 0.1), and the order used."""
    paper = paper_sigma(1.0, 1e-3, RATE, ROUNDS)
    sigma, order = paper.sigma, paper.order
    return 1 + 2 / 3 * 0.1**2 * sigma**2 * math.log(1 / (RATE * order * (1 + sigma**2))), order


def order_below_one() -> tuple[float, float]:
    """Definition 2 allows orders a > 0: the epsilon that Lemma 2 then gives at a = 1/2, sigma 1, delta 1e-5."""
    return 0.5 / 2 + math.log(1e5) / (0.5 - 1), 0.0


def size_weights() -> tuple[float, float]:
    """A cohort of 20 and one more client that says it has 10^6 samples: the change of m * weighted mean, in C."""
    update = {"w": normal((20, 30), stream(0, "cohort")), "b": normal((20, 5), stream(1, "cohort"))}
    return theory.attack(theory.size_weighted_sum, update, torch.ones(20), seed=0), 1.0


# --- convergence


def unequal_clipping() -> tuple[float, float]:
    """Two clients, gradients 10 and -1, eta = C = 1, q = 0: the term that Lemma 8 (e) bounds by q^2."""
    found = theory.unequal_clipping(torch.tensor([[10.0], [-1.0]], dtype=torch.float64), 1.0, 1.0)
    return found["term"], found["printed"]


def clipped_mean_can_vanish() -> tuple[float, float]:
    """The same two clients: length of the mean clipped step; the mean gradient has length 4.5, so C = 1 is promised."""
    return theory.unequal_clipping(torch.tensor([[10.0], [-1.0]], dtype=torch.float64), 1.0, 1.0)["step"], 1.0


def noise_energy() -> tuple[float, float]:
    """Squared norm of one draw of unit noise in the CIFAR body's dimension d, and the printed d^2."""
    draw = normal((CIFAR_BODY,), stream(0, "noise energy"))
    return float(draw.square().sum()), float(CIFAR_BODY) ** 2


def sam_does_not_shrink() -> tuple[float, float]:
    """Of 200 convex problems, those where the SAM gradient (q = 0.1) is shorter than the gradient."""
    plain, perturbed = logistic_gradients(200, 0.1, 0)
    return float((perturbed < plain).sum()), math.inf


def noise_over_clip_norm_cifar() -> tuple[float, float]:
    """CIFAR-10, N = 1000, epsilon 1: root mean square noise on the average over C; the signal is at most 1."""
    return theory.noise_norm(CIFAR_BODY, 1.0, NEEDED[1000], 50), 1.0


def noise_over_clip_norm_femnist() -> tuple[float, float]:
    """The same for FEMNIST's ResNet-18, N = 500."""
    return theory.noise_norm(FEMNIST_BODY, 1.0, NEEDED[500], 25), 1.0


def noise_term_grows() -> tuple[float, float]:
    """The last term of (21), eta ~ 1/sqrt(T) and sigma from (26): its growth from 100 to 10,000 rounds."""
    term = [paper_sigma(1.0, 1e-3, RATE, t).sigma ** 2 * math.sqrt(t) for t in (100, 10_000)]
    return term[1] / term[0], 1.0


def many_steps_square() -> tuple[float, float]:
    """Lemma 9, one client with the linear loss G x: L |10 steps|^2 (eta = G = L = 1, no noise), and its bound."""
    x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    descent = torch.optim.SGD([x], lr=1.0)
    for _ in range(10):
        descent.zero_grad()
        x.sum().backward()
        descent.step()
    return float(x.detach().square().sum()), 3.0 * 10


def drift_without_condition() -> tuple[float, float]:
    """Lemma 12, one client on -sqrt(1 + x^2) from x = 0.001, 100 steps of size 1 (G = L = 1): its squared drift."""
    x = start = 1e-3
    for _ in range(100):
        x += x / math.sqrt(1 + x * x)
    return (x - start) ** 2, 36 * 100 + 18 * 100**2 * start**2 / (1 + start**2)


def step_size_condition() -> tuple[float, float]:
    """(28) at the largest step its condition allows, tau = 10, L = 1, alpha = 1: factor of |grad F|^2 over eta tau.

    Promised is at most -1/4; what is left of Lemma 8 is -1/2 + 18 L^2 eta^2 tau^2.
    """
    eta = (1 / (72 * 10 * 1.0)) ** (-2 / 3)
    return -0.5 + 18 * eta**2 * 10**2, -0.25


def empty_condition() -> tuple[float, float]:
    """The condition 128 eta L tau chi^2 (r - 1) <= 1: how many of 1000 settings, steps up to 10^6, it excludes."""
    draws = 10 ** torch.from_numpy(stream(0, "settings").uniform(-6, 6, (1000, 4)))
    rate = torch.from_numpy(stream(1, "settings").uniform(0, 1, 1000))
    return float((128 * draws.prod(1) * (rate - 1) > 1).sum()), math.inf


def perturbed_gradients_are_biased() -> tuple[float, float]:
    """Two samples of curvature 1 with gradients 3 and -1, q = 1: mean of their SAM gradients; (14) gives 1 + q."""
    g = torch.tensor([3.0, -1.0], dtype=torch.float64)
    return float((g + g.sign()).mean()), float(g.mean() + g.mean().sign())


def smoothness_without_square() -> tuple[float, float]:
    """(18) as printed, F = x^2 / 2, from 0 to 10: the rise of F, and L |step| / 2."""
    return 10.0**2 / 2, 10.0 / 2


def momentum_lengthens() -> tuple[float, float]:
    """12 steps with momentum 0.7, which the experiments use: longest update over eta tau G, the one without."""
    return longest_update(0.1, 12, 1.0, 0.7) / longest_update(0.1, 12, 1.0), 1.0


# --- experiments


def resnet_outputs() -> tuple[float, float]:
    """Outputs of a ResNet-18 with 11,181,642 parameters; FEMNIST has 62 classes."""
    count, width = 3 * 64 * 49 + 128, 64
    for out in (64, 128, 256, 512):
        for inner in (width, out):
            count += 9 * inner * out + 9 * out * out + 4 * out + (inner != out) * (inner * out + 2 * out)
        width = out
    return (11_181_642 - count) / 513, 62.0


def sam_always_better() -> tuple[float, float]:
    """Table II, FEMNIST: DP-FedSAM-FT minus DP-FedAvg-FT, said to be positive everywhere."""
    return 56.5 - 57.8, 0.0


def partial_always_better() -> tuple[float, float]:
    """Table III, CIFAR-10, epsilon 2: CENTAUR minus the best fine-tuned method, said to be positive."""
    return 83.1 - 83.3, 0.0


def clip_grid() -> tuple[float, float]:
    """FEMNIST's clip norm 0.2: its distance to the grid from which it is said to be chosen."""
    return min(abs(0.2 - c) for c in (1.0, 0.5, 0.1, 0.05, 0.01)), 0.0


ERRATA: tuple[Erratum, ...] = (
    ("Theorem 2 as stated: delta of one round with its noise (r 0.01, eps 1, delta 1e-5)", theorem2_is_false),
    ("its proof needs r a (1 + sigma^2) < 1: smallest value at the paper's four settings", precondition),
    ("its shortcut 3.5 r^2 a / sigma^2 at r 0.05, sigma 1, a 13: the true divergence", shortcut),
    (
        "fixed cohorts, sensitivity C: D_2 of two clients against Lemma 4's value",
        fixed_cohorts_double_the_sensitivity,
    ),
    ("'honest but curious server': epsilon of one client's upload, total claimed 1", one_message),
    ("Lemma 4: smallest epsilon that any noise reaches (N 500), where 1 is wanted", lemma4_has_a_floor),
    ("public code of DP-FedSAM clips 62 tensors one by one: epsilon, claimed 10.8", tensor_by_tensor),
    ("Lemma 8 (e): effect of unequal clipping at q = 0, gradients 10 and -1", unequal_clipping),
    ("noise energy in units of s^2, one draw, CIFAR body: d, printed d^2", noise_energy),
    ("'SAM makes updates smaller': convex losses out of 200 where its gradient is", sam_does_not_shrink),
    ("noise norm over clip norm in one round, CIFAR-10, eps 1; the signal is at most", noise_over_clip_norm_cifar),
    ("the same, FEMNIST", noise_over_clip_norm_femnist),
    ("length of the mean clipped step of those two clients (C = 1, gradient 4.5)", clipped_mean_can_vanish),
    ("last term of (21), sigma from (26): growth from 100 to 10,000 rounds; at most", noise_term_grows),
    ("Lemma 9, linear loss, 10 steps: L |update|^2; at most", many_steps_square),
    ("Lemma 12 without a condition on the step: squared drift; at most", drift_without_condition),
    ("(28) at the largest step its condition allows: factor of |grad F|^2; at most", step_size_condition),
    ("'128 eta L tau chi^2 (r - 1) <= 1': settings out of 1000 that it excludes", empty_condition),
    ("(14) at the perturbed point, same batch: mean of two SAM gradients", perturbed_gradients_are_biased),
    ("(18) without the square: rise of x^2/2 over a step of 10; at most", smoothness_without_square),
    ("momentum 0.7: longest update over eta tau G; at most", momentum_lengthens),
    ("DP-FedAvg's variance C^2 sigma / (rN): epsilon with the sigma for 1", printed_baseline_variance),
    ("appendix's variance C^2 sigma^2 / r: noise of the sum over C sigma", noise_divisor),
    ("order allowed by the condition with C^2 in it, C = 0.1; the proof uses", condition_with_clip_norm),
    ("orders below 1: 'epsilon' of Lemma 2 at order 1/2; at least", order_below_one),
    ("weights by data size: change of the sum when one client joins, in C", size_weights),
    ("outputs of the ResNet-18 with the stated size; FEMNIST's classes", resnet_outputs),
    ("'SAM variants always better': FEMNIST, fine-tuned, points; above", sam_always_better),
    ("'partial sharing beats fine-tuning': CIFAR-10, eps 2, points; above", partial_always_better),
    ("distance of FEMNIST's C to the grid it is chosen from", clip_grid),
)
errata_table = partial(errata_text, ERRATA)

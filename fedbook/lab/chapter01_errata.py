"""Chapter 1's errata: what FedSC's paper states that does not hold or does not follow, each with a witness.

A witness returns the number that is found and the number that the statement promises; ``ERRATA`` has those that
change conclusions first. Here are the witnesses about the objective and Algorithm 1; those
about Theorem 6.10 and appendix B are in chapter01_errata_theorem, about privacy and experiments in
chapter01_errata_privacy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from fedbook.lab import chapter01_errata_privacy as privacy
from fedbook.lab import chapter01_errata_theorem as theorem
from fedbook.lab.errata import Erratum, errata_text
from fedbook.papers.fedsc.spectral import correlation
from fedbook.randomness import normal, stream


def last_upload_only() -> tuple[float, float]:
    """Two participants, q = 1/2, matrices from 0 to 1: trace of line 14's result read literally; of sum q R_j."""
    q, old = 0.5, torch.zeros(2, 2, 2, dtype=torch.float64)
    new = torch.eye(2, dtype=torch.float64).expand(2, 2, 2)
    before = total = (q * old).sum(0)
    for j in range(2):
        total = before - q * old[j] + q * new[j]
    return float(total.trace()), float((q * new).sum(0).trace())


def own_noise() -> tuple[float, float]:
    """q = 1/4, the matrix without noise subtracted in line 20: derivative of R_-j by the client's own noise."""
    q, matrices = 0.25, torch.eye(2, dtype=torch.float64).expand(2, 2, 2)
    noise = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    total = q * (matrices[0] + noise) + (1 - q) * matrices[1]
    others = (total - q * matrices[0]) / (1 - q)
    return float(torch.autograd.grad(others[0, 1], noise)[0][0, 1]), 0.0


def one_client() -> tuple[float, float]:
    """J = 1: entries of line 20's matrix that are numbers; of 4."""
    q, own = torch.tensor(1.0, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    others = (q * own - q * own) / (1 - q)
    return float(others.isfinite().sum()), 4.0


def unequal_sizes() -> tuple[float, float]:
    """Clients of 2 and 6 samples, E = 1, fresh matrices: error of line 23's mean step, relative to (6)'s gradient."""
    return _misalignment([2, 6], None, uniform=True), 0.0


def other_objective() -> tuple[float, float]:
    """Ten equal clients, fresh matrices, alpha = 0.2: error of (80)'s mean gradient, relative to the global one."""
    return _misalignment([2] * 10, 0.2), 0.0


def one_round_late() -> tuple[float, float]:
    """(70) without noise, all views equal, line 7's matrix at theta^(t-1), one step of 0.5: D_j at theta^t."""
    x, theta = normal((4, 3), stream(0, "samples")), normal((3, 2), stream(0, "weights"))
    after = theta - 0.5 * torch.func.grad(lambda t: _loss((x @ t).tanh()))(theta)
    old, new = (_matrix((x @ t).tanh()) for t in (theta, after))
    return float((old - new).square().sum()), 0.0


def jumping_clients() -> tuple[float, float]:
    """J = 10, one direction, (5) minimised in each round: |error| of z^2 after a round over that before.

    All clients have z^2 = 1.01, the frozen matrices too; the optimum is 1. Descent in z to convergence.
    """
    q, frozen, z = 0.1, 1.01, 1.0
    for _ in range(2_000):
        z -= 0.2 * (-2 * z + 2 * q * z**3 + 2 * (1 - q) * z * frozen)
    return abs(z**2 - 1) / abs(frozen - 1), 1.0


def collapsed_for_ever() -> tuple[float, float]:
    """Four clients, one vector each, all the same unit vector: loss after 1,000 steps of (6); at the solution."""
    z = torch.zeros(4, 4, dtype=torch.float64)
    z[:, 0] = 1.0
    for _ in range(1_000):
        z = z - 0.1 * torch.func.grad(_loss)(z)
    least = torch.linalg.qr(normal((4, 4), stream(0, "directions")))[0] * math.sqrt(4)  # orthogonal, |z|^2 = J
    return float(_loss(z)), float(_loss(least))


def clipped_collapse() -> tuple[float, float]:
    """NormClip (mu = 4) in the training loss, all z = 3 e_1: loss after 100 steps; with all z = 0."""

    def clipped(z: Tensor) -> Tensor:
        return _loss(z * (2 / z.norm(dim=1, keepdim=True)).clamp(max=1))

    z = torch.zeros(3, 2, dtype=torch.float64)
    z[:, 0] = 3.0
    for _ in range(100):
        z = z - 0.1 * torch.func.grad(clipped)(z)
    return float(clipped(z)), float(_loss(torch.zeros_like(z)))


def no_floor() -> tuple[float, float]:
    """z = e_1, e_2 at one client, (e_1 + e_2), (e_1 - e_2) over sqrt 2 at the other: gap between the sides of (3)."""
    first = torch.eye(2, dtype=torch.float64)
    second = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64) / math.sqrt(2)
    gap = 0.5 * float(_loss(first)) + 0.5 * float(_loss(second)) - float(_loss(torch.cat([first, second])))
    return round(gap, 12) + 0.0, math.inf


def pairs_of_one_class() -> tuple[float, float]:
    """Two samples in each of two classes: the loss with pairs of different classes only, and by (1)."""
    z, labels = normal((4, 2), stream(0, "classes")), torch.tensor([0, 0, 1, 1])
    apart = labels[:, None] != labels
    return float(0.5 * (z @ z.mT)[apart].square().mean() - z.square().sum(1).mean()), float(_loss(z))


ERRATA: tuple[Erratum, ...] = (
    ("Proposition 6.6 as stated, Table 6, SVHN (3, 1e-2): epsilon; claimed", privacy.size_forgotten),
    ("Prop. 6.6, one sample replaced, n = 8, mu = 4: move of the matrix; at most mu / n", privacy.replaced_sample),
    ("Lemma 6.4 needs private inputs; theta^1 in clear: its change with a sample", privacy.weights_in_clear),
    ("(80) replaces (5) in all experiments, alpha 0.2, J = 10: error of (6), relative", other_objective),
    ("ageing 'an additional O(1/T)': alpha = q = 1/10, (5) minimised: growth of an error; at most", jumping_clients),
    ("(7) without L(theta^0), full batch: growth of T mean |grad|^2, T from 10^2 to 10^4", theorem.initial_gap_lost),
    ("Algorithm 1, line 14 from R^(t-1) each time: trace after two uploads; of sum q R", last_upload_only),
    ("line 20 with the matrix without noise: derivative of R_-j by the own noise", own_noise),
    ("line 20 for J = 1: entries that are numbers", one_client),
    ("line 23's uniform mean, clients of 2 and 6 samples: error of (6), relative", unequal_sizes),
    ("(70) with Algorithm 1's matrix at theta^(t-1), no noise, one step: D_j", one_round_late),
    ("contributions, 'convergence .. to the solutions': loss where gradients stay 0; at most", collapsed_for_ever),
    ("public release (not the paper) clips in the loss, z = 3 e_1: where descent stops; at most", clipped_collapse),
    ("section 3, negatives of 'different semantic meanings': loss with such pairs; by (1)", pairs_of_one_class),
    ("(3) and 'constant error floor' of FedAvg: gap for disjoint data with equal R_j", no_floor),
    ("Table 6's noise by the proof's mu / n, SVHN (3, 1e-2): epsilon; claimed", privacy.another_sensitivity),
    ("Table 6, CIFAR-10 (3, 1e-4), one sample replaced, paper's formula: epsilon; at most", privacy.above_the_claim),
    ("Prop. 6.6, one sample added, mean by own size, n = 8, mu = 4: move; at most mu / n", privacy.added_sample),
    ("delta 1e-2: samples of 10,000 that (0, delta) lets a mechanism publish; at most", privacy.many_disclosed),
    ("Table 5 by Table 6 ('full participation'), CIFAR-10 2/10: mean epsilon; claimed", privacy.partial_participation),
    ("section 6's bullet, T uploads, T = 3, 2 of 5 clients: mean uploads of a client", privacy.uploads_of_a_client),
    ("Assumption 6.7 by 'a normalization layer', batch norm: move of R; at most", privacy.batch_norm),
    ("line 8's noise is not symmetric: an inter-client term Tr(R R_-j); at least", privacy.negative_contrast),
    ("(7) counts H^2 sigma^2: noise that the loss sees, H = 8, sigma 1", privacy.symmetric_noise),
    ("(7)'s noise term does not know J: noise of the mean gradient, J = 10 over J = 100", privacy.noise_by_clients),
    ("Table 6, matrices for t > 150: largest weight 1 - alpha_t on matrices before", privacy.weight_without_matrix),
    ("appendix C, alpha_1 = 1: change of round 1's gradient with its uploads", privacy.first_matrices_unused),
    ("public release (not the paper): alpha of the last round; appendix C's", privacy.last_alpha),
    ("E: SGD steps of a round on CIFAR-10; Theorem 6.10's number of local updates", privacy.steps_of_a_round),
    ("'V = 2 for all experiments': views of a sample, by section 5.2's variance", privacy.views_of_a_sample),
    ("public release (not the paper): its loss over section 3's", privacy.twice_the_loss),
    ("SVHN 'size .. 10,000': smallest pair of digits (release's pairs)", privacy.svhn_size),
    ("Tables 3 to 5, partial: cells equal at epsilon 8; settings of equal sigma", privacy.same_runs),
    ("remark (3), 'less degradation': CIFAR-10, points FedSC loses; most others, at most", privacy.third_remark),
    ("'remains better than FedAvg+SC': private cells (of 18) within a deviation of it", privacy.margins_within),
    ("'negligible performance degradation': share of FedSC's gain lost, SVHN 2/5, (3, 1e-4)", privacy.gain_lost),
    ("(76), L(theta^0) without inf L: sqrt(T) mean |grad|^2, T 10^4; at most", theorem.negative_start),
    ("(75), fall of L in the last round only: mean |grad|^2, T 100; at most", theorem.one_round_telescoped),
    ("Lemma B.5, last line, 4(..): |u'|^2 over that beta^2; at most", theorem.smaller_constant),
    ("Lemma B.7, X and Y independent, +-1: Var XY; at most", theorem.product_variance),
    ("Lemma B.8: factor that its proof needs; stated", theorem.stated_twelve),
    ("(57), (71), A_0 = A_1 = 0.1, no noise: T_5 over |theta^t - theta_j|^2; at most", theorem.sixth_powers),
    ("(65), (67): factor of A_1^2 A_0^6 from (62) to (64)", theorem.eight_for_sixteen),
    ("(68) without beta eta^2 / 2, beta 1/4, eta 1 / beta: mean L after a step; at most", theorem.lost_factor),
    ("(70), two samples, V = 1, no noise: E |matrix - R|^2 'equals'", theorem.matrix_error),
    ("(72), two orthogonal others, no noise: |R_-j|^2 'equals'", theorem.others_norm),
    ("(52), (63), (64), view term 1/(2V): variance of the batch's R at B = 1 over B = 2", theorem.batch_and_views),
    ("(77), W bounds |grad L| (it bounds the square), A_0 = A_1 = 0.1: |grad L|; at most", theorem.squared_bound),
    ("(78), C_8 eta^2: mean age of a matrix in rounds, 2 of 10 clients; at most", theorem.age_of_a_matrix),
)  # fmt: skip
errata_table = partial(errata_text, ERRATA)


def _matrix(z: Tensor) -> Tensor:
    """R where all views of a sample agree. Shapes: ``z`` [N, H]; result [H, H]."""
    return correlation(z[:, None])


def _loss(z: Tensor) -> Tensor:
    """(1) where all views of a sample agree. Shapes: ``z`` [N, H]."""
    return 0.5 * _matrix(z).square().sum() - z.square().sum(1).mean()


def _misalignment(sizes: Sequence[int], alpha: float | None, uniform: bool = False) -> float:
    """|sum_j w_j grad (80) - grad (2)| over |grad (2)|, fresh matrices; alpha None: q_j, w_j = q_j unless uniform."""
    theta = normal((3, 2), stream(0, "shared weights"))
    data = [normal((n, 3), stream(0, "local data", client=j)) for j, n in enumerate(sizes)]
    shares = [n / sum(sizes) for n in sizes]
    matrices = [_matrix((x @ theta).tanh()) for x in data]
    whole = torch.func.grad(lambda t: _loss((torch.cat(data) @ t).tanh()))(theta)
    mean = torch.zeros_like(theta)
    for j, (x, q) in enumerate(zip(data, shares, strict=True)):
        rest = sum(p * r for k, (p, r) in enumerate(zip(shares, matrices, strict=True)) if k != j) / (1 - q)
        a = q if alpha is None else alpha

        def local(t: Tensor, x: Tensor = x, rest: Tensor = rest, a: float = a) -> Tensor:
            z = (x @ t).tanh()
            own = _matrix(z)
            return 0.5 * a * own.square().sum() + (1 - a) * (own * rest).sum() - z.square().sum(1).mean()

        mean = mean + (1 / len(sizes) if uniform else q) * torch.func.grad(local)(theta)
    return float((mean - whole).norm() / whole.norm())

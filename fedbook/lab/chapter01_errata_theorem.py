"""Witnesses of chapter 1's errata about Theorem 6.10 and its proof in appendix B; the list is in chapter01_errata.

A witness returns the number that is found and the number that the paper's statement promises.
"""

from __future__ import annotations

import math
from itertools import product

import torch

from fedbook.papers.fedsc.spectral import correlation


def initial_gap_lost() -> tuple[float, float]:
    """z = sqrt 2 sin t, all samples equal, E = 1, eta = T^-1/2: growth of T times mean |grad|^2, T 10^2 to 10^4.

    Full batch, no noise, all clients: only E^2 C_2 / (TE) is left of (7).
    """
    return 1e4 * _mean_slope(10_000)[0] / (1e2 * _mean_slope(100)[0]), 1.0


def negative_start() -> tuple[float, float]:
    """The same at T = 10^4: sqrt(T) times mean |grad|^2, and (76)'s L(theta^0) in that place (times 2, from (75))."""
    mean, start, _, _ = _mean_slope(10_000)
    return 100 * mean, 2 * start


def one_round_telescoped() -> tuple[float, float]:
    """The same, (75) with the fall of L in the last round only: mean |grad|^2; that term."""
    mean, _, before, after = _mean_slope(100)
    return mean, 2 / (0.1 * 100) * (before - after)


def smaller_constant() -> tuple[float, float]:
    """|derivative of u|^2 over the last line's beta^2 for z with A_0 = A_1 = 0.01, A_2 = 0.02, one client.

    z is a wave of parabolas between 0.005 and 0.01 with second derivative +-0.02; here left of its steepest point.
    """
    e = 0.01
    t = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
    z = 0.75 * e + e * t + e * t**2
    (slope,) = torch.autograd.grad(-(z**2) + z**4 / 2, t, create_graph=True)
    (bend,) = torch.autograd.grad(slope, t)
    a0, a1, a2 = e, e, 2 * e
    return float(bend) ** 2 / (4 * (a0**4 + 1) * (a1**4 + a2**2 * a0**2) + 48 * a1**4 * a0**4), 1.0


def product_variance() -> tuple[float, float]:
    """X, Y independent and +-1: variance of XY; right side of (28)."""
    x, y = (torch.tensor(v, dtype=torch.float64) for v in zip(*product((-1.0, 1.0), repeat=2), strict=True))
    var, mean = (lambda a: a.var(correction=0)), torch.mean
    return float(var(x * y)), float(2 * mean(y) ** 2 * var(x) + 2 * mean(x) ** 2 * var(y))


def stated_twelve() -> tuple[float, float]:
    """|v|^2 / (A_1^2 A_0^2 (1 + |X|^2)) at most, X the matrix in (32), one direction; Lemma B.8's factor."""
    x = torch.linspace(-5, 5, 10_001, dtype=torch.float64)
    return float((4 * (x - 1).square() / (1 + x.square())).max()), 12.0  # v = 2 z' z (X - 1)


def sixth_powers() -> tuple[float, float]:
    """z = sin(t) / 10, q = 1/10, no noise: T_5 over |theta^t - theta_j|^2; (57)'s 32 A_1^6 A_0^6."""
    size, q, start, now = 0.1, 0.1, math.pi / 4, math.pi / 4 + 1e-3
    slope = size**2 * math.sin(2 * now)
    moved = (1 - q) * size**2 * (math.sin(start) ** 2 - math.sin(now) ** 2)
    return (slope * moved) ** 2 / 1e-6, 32 * size**12


def eight_for_sixteen() -> tuple[float, float]:
    """(65) over A_1^2 A_0^6 and the bracket, from (62) with (63) and (64) put in, A_0 = 2, A_1 = 3."""
    a0, a1 = 2.0, 3.0
    return (2 * a0**4 * 4 * a1**2 * a0**2 + 8 * a1**2 * a0**2 * a0**4) / (a1**2 * a0**6), 8.0


def lost_factor() -> tuple[float, float]:
    """(68), L = theta^2 / 8 (beta 1/4), eta = 1 / beta, from 0 with gradients +-1: mean L after a step; T_2."""
    return sum((4.0 * noise) ** 2 / 8 for noise in (-1.0, 1.0)) / 2, 1.0


def matrix_error() -> tuple[float, float]:
    """(70), two samples with views 0 and 1 each, V = 1, no noise: E |matrix - R|^2, all outcomes; A_0^4 / (2V)."""
    outcomes = torch.tensor(list(product((0.0, 1.0), repeat=2)), dtype=torch.float64)
    return float((outcomes.square().mean(1) - 0.5).square().mean()), 0.5


def others_norm() -> tuple[float, float]:
    """(72), two others of equal size with z = e_1 and e_2, no noise: |R_-j|^2; A_0^4."""
    z = torch.eye(2, dtype=torch.float64)
    return float(correlation(z[:, None]).square().sum()), 1.0


def batch_and_views() -> tuple[float, float]:
    """(64), samples with views 0 and 1 each, V = 1: variance of the batch's matrix at B = 1 over that at B = 2."""
    variances = []
    for batch in (1, 2):
        outcomes = torch.tensor(list(product((0.0, 1.0), repeat=2 * batch)), dtype=torch.float64)
        variances.append(float(outcomes.square().mean(1).var(correction=0)))
    return variances[0] / variances[1], 1.0


def squared_bound() -> tuple[float, float]:
    """(77), z = sin(t) / 10, all clients equal: the largest |grad L|; W."""
    t = torch.linspace(0, math.pi, 1001, dtype=torch.float64)
    a = 0.1
    slopes = torch.func.vmap(torch.func.grad(lambda s: -((a * s.sin()) ** 2) + (a * s.sin()) ** 4 / 2))(t)
    return float(slopes.abs().max()), 8 * a**4 + 8 * a**8


def age_of_a_matrix() -> tuple[float, float]:
    """J = 10, 2 a round: mean age of a matrix in rounds, from the chain of its age; (78)'s one round."""
    share = torch.zeros(400, dtype=torch.float64)
    share[0] = 1.0
    for _ in range(400):
        share = torch.cat([0.2 * share.sum()[None], 0.8 * share[:-1]])
    return float((share * torch.arange(400)).sum()), 1.0


def _mean_slope(rounds: int) -> tuple[float, float, float, float]:
    """Mean |grad L|^2, L at the start, before and after the last step; L of z = sqrt 2 sin t is -sin(2t)^2 / 2."""
    t = 0.1
    total, start = 0.0, -0.5 * math.sin(2 * t) ** 2
    for _ in range(rounds):
        slope, before = -math.sin(4 * t), -0.5 * math.sin(2 * t) ** 2
        total += slope**2
        t -= slope / math.sqrt(rounds)
    return total / rounds, start, before, -0.5 * math.sin(2 * t) ** 2

"""Chapter 2's errata, part two: witnesses about section 4 and appendix A of the Hetero-SSFL paper.

Each returns the number that is found and the number that the statement promises; the statements stand in
chapter02_errata.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedbook.lab import chapter02_paper as paper


def cosine_alignment(w: float, mean: float) -> float:
    """(1) for the kernels R^2 [[1, cos w], [cos w, 1]] and R^2 [[1, mean], [mean, 1]]."""
    return math.cos(math.atan(math.cos(w)) - math.atan(mean))


def theorem_fails() -> tuple[float, float]:
    """Theorem 4.7 as stated, one round: L_E' - L_0 of client 1, and its bound.

    Two clients, images 0 and 1, representation R (cos wx, sin wx): R = L_2 = 0.1, L = 2, L_1 = 2, P = 21, E = 1, no
    noise, mu = 1, eta = 0.1; l_k is linear in w. So S = 1/4, mu may be up to 14.9 and eta up to 0.93.
    """
    w, slope, eta = [1.0, 3.0], [-0.5, 20.0], 0.1  # slope: of L_k at w
    after = [x - eta * s for x, s in zip(w, slope, strict=True)]
    before, now = (sum(math.cos(x) for x in xs) / 2 for xs in (w, after))  # entry of the mean kernel
    h = 1e-6
    linear = slope[0] - (cosine_alignment(w[0] + h, before) - cosine_alignment(w[0] - h, before)) / (2 * h)
    losses = [linear * x + cosine_alignment(x, mean) for x, mean in ((w[0], before), (after[0], now))]
    drift = 2 * eta * 0.1 * 21 * 0.1**3 * 2**2  # 2 mu eta L_2 P R^3 L^2
    return losses[1] - losses[0], -(eta - eta**2) * slope[0] ** 2 + drift


def lemma_fails() -> tuple[float, float]:
    """Lemma 4.6 as stated, the same two clients: L_E' - L_E of client 1, and its bound."""
    w, after, eta = [1.0, 3.0], [1.05, 1.0], 0.1
    before, now = (sum(math.cos(x) for x in xs) / 2 for xs in (w, after))
    rise = cosine_alignment(after[0], now) - cosine_alignment(after[0], before)
    return rise, 2 * eta * 0.1 * 21 * 0.1**3 * 2**2


def mu_allowed() -> tuple[float, float]:
    """mu of section 5.1, and the most that Theorem 4.7 can allow: S <= E P^2; E = 250 steps, P = L_2 = R = 1, L = 5000.

    With other constants mu = 0.5 needs P > 10^5 L_2 R^3.
    """
    steps = paper.LOCAL_EPOCHS * (paper.SIZE["CIFAR-10"] // 5 // paper.BATCH_SIZE)
    return paper.MU["CIFAR-10"], steps / (2 * paper.ALIGNMENT_IMAGES**2)


def floor_stays() -> tuple[float, float]:
    """(6) summed over T rounds, L_1 = sigma = L_2 P R^3 L^2 = 1, E = 1, mu = 0.5, T eta -> infinity, eta -> 0.

    The bound of the mean |grad L|^2; convergence to a stationary point needs 0.
    """
    eta, rounds, mu, gap = 1e-6, 10**12, 0.5, 1.0
    return (gap / (rounds * eta) + eta / 2 + 2 * mu) / (1 - eta / 2), 0.0


def rises_at_minimum() -> tuple[float, float]:
    """x^2 / 2 at its minimum, gradient x + 1 or x - 1 with equal chance, eta = 0.1, E = 1: mean loss after; before."""
    return 0.5 * ((0.1 * 1) ** 2 + (0.1 * -1) ** 2) / 2, 0.0


def steps_not_epochs() -> tuple[float, float]:
    """x^2 / 2 at its minimum, noise of variance 1, eta 0.032: mean loss after 5 epochs of 50 steps; (4) with E = 5."""
    eta, square = paper.LEARNING_RATE, 0.0  # E x^2
    for _ in range(5 * 50):
        square = (1 - eta) ** 2 * square + eta**2
    return square / 2, 5 * eta**2 / 2


def variance_of_norm() -> tuple[float, float]:
    """g = +-1 with equal chance: E |g|^2, and Var(g) + E[|g|]^2 of A.1's third line."""
    g = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    return float(g.square().mean()), float(g.var(correction=0) + g.abs().mean() ** 2)


def smoothness_needed() -> tuple[float, float]:
    """|x| from 0.1, eta = 1, E = 1, no noise: loss after, and (4) with L_1 = 1; Assumption 4.2 holds."""
    return abs(0.1 - 1.0), 0.1 - (1 - 1 / 2) * 1.0


def target_moves() -> tuple[float, float]:
    """(w v' - t v'')^2, v' = 1, v'' = 2, at its minimum w = 2, t = 1, decay 0.99: loss after one step, and (4)."""
    w, t = 2.0, 1.0
    w -= 0.1 * 2 * (w - 2 * t)  # the gradient is 0
    t = 0.99 * t + 0.01 * w
    return (w - 2 * t) ** 2, 0.0


def steps_between() -> tuple[float, float]:
    """One client, one image, Phi = w from 1 - 5 eta to 1, eta = 0.001: tr(K (K(t) - K(t-1))); 2 eta L_2 P R^3 L^2."""
    eta, steps = 0.001, 5  # each step moves by eta P, P = R = L_2 = 1
    before, after = (1.0 - steps * eta) ** 2, 1.0  # the kernels
    return after * (after - before), 2 * eta


def trace_for_alignment() -> tuple[float, float]:
    """Appendix A.2's fourth line, K = Kbar(t) = 3, Kbar(t-1) = 1 (one image): change of (1), and of the trace."""
    k, new, old = 3.0, 3.0, 1.0
    return k * new / (k * new) - k * old / (k * old), k * new - k * old


def curvature_unbounded() -> tuple[float, float]:
    """Second derivative of (1) along (0, 1) at A = (1/1000, 0) over that at (1, 0), B = (2, 1); bounded if smooth."""

    def second(first: float) -> float:
        def alignment(t: Tensor) -> Tensor:
            return (2 * first + t) ** 2 / (5 * (first**2 + t**2))

        return float(torch.func.grad(torch.func.grad(alignment))(torch.zeros((), dtype=torch.float64)))

    return second(1e-3) / second(1.0), 1.0


def weights_below_zero() -> tuple[float, float]:
    """Weights 6 and -5 (sum 1), one image, steps of eta = 0.001 away from each other: |tr(K dKbar)|; its bound."""
    eta, weights, moves = 0.001, [6.0, -5.0], [1.0, -1.0]
    drift = sum(w * (1.0 - (1.0 - m * eta) ** 2) for w, m in zip(weights, moves, strict=True))
    return abs(drift), 2 * eta


def negative_loss() -> tuple[float, float]:
    """SimSiam's loss of equal directions, -cos: the norm of L_E in A.2, and L_E, by which the next line replaces it."""
    p = torch.tensor([3.0, 4.0], dtype=torch.float64)
    loss = -float(torch.nn.functional.cosine_similarity(p, 2 * p, dim=0))
    return abs(loss), loss

"""Chapter 3's convergence with several local steps: the recursions of Theorems 5.5 and 5.6, and agents on a line.

On the line everything is exact: f_i = (x - a_i)^2 / 2, one agent a round, and each step shrinks x - a_i by 1 - lr.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbook.randomness import normal, stream

# --- several local steps (Lemma A.4, Theorem 5.5)


class Recursion(NamedTuple):
    """c, one longer than the others; delta, how much of |grad|^2 a step is sure of; q, what it adds, per unit."""

    c: np.ndarray
    delta: np.ndarray
    q: np.ndarray


def recursion_5_5(lr: float, beta: float, steps: int, smoothness: float, curvature: float = 1.0) -> Recursion:
    """Lemma A.4's recursion, run backwards from c_K = 1: c_k = c_{k+1} (1 + lr beta), closed form (1 + lr beta)^(K-k).

    Shapes: ``c`` [K + 1], ``delta`` and ``q`` [K]. Source: PriRFed, Lemma A.4.
    """
    c = [1.0]
    for _ in range(steps):
        c.append(c[-1] * (1 + lr * beta))
    c = np.array(c[::-1])
    after = c[1:]
    return Recursion(c, lr - after * lr / beta, lr * beta * (smoothness + 2 * after * curvature) / (2 * (beta - after)))


def theorem_5_5(
    gap: float,
    rounds: int,
    steps: int,
    lr: float,
    beta: float,
    smoothness: float,
    lipschitz: float,
    noise_energy: float = 0.0,
    curvature: float = 1.0,
) -> float:
    """Right side of Theorem 5.5: gap / (K T delta_min) + q_0 (L_f^2 + d std^2); ``noise_energy`` is d std^2 here.

    Source: PriRFed, Theorem 5.5.
    """
    square = lipschitz**2 + noise_energy
    found = recursion_5_5(lr, beta, steps, smoothness, curvature)
    return gap / (steps * rounds * float(found.delta.min())) + float(found.q.max()) * square


# --- variance reduced steps (Lemma B.1, Theorem 5.6)


class Reduced(NamedTuple):
    """What the proof of Theorem 5.6 sets and finds, for L = smoothness: ``c`` [m + 1], ``delta`` [m], ``nu``."""

    lr: float
    inner: int
    c: np.ndarray
    delta: np.ndarray
    nu: float


def recursion_b1(agents: int, smoothness: float = 1.0, curvature: float = 1.0) -> Reduced:
    """Lemma B.1's recursion with the proof's a_1 = 2/3, a_2 = 1/2, mu = 1/10, run backwards from c_m = 0.

    lr = mu / (L N^(2/3) sqrt zeta), beta = L sqrt(zeta) / N^(1/3), m = floor(10 N / 3).
    c_j = c_{j+1} (1 + theta) + L^3 lr^2 with theta = beta lr + 2 zeta L^2 lr^2, so c_0 = L^3 lr^2 ((1 + theta)^m - 1)
    / theta. nu = min delta * L N^(2/3) sqrt zeta. Source: PriRFed, Lemma B.1.
    """
    size, zeta, inner = smoothness, curvature, 10 * agents // 3
    scale = size * agents ** (2 / 3) * math.sqrt(zeta)
    lr, beta = 0.1 / scale, size * math.sqrt(zeta) / agents ** (1 / 3)
    theta, c = beta * lr + 2 * zeta * (size * lr) ** 2, [0.0]
    for _ in range(inner):
        c.append(c[-1] * (1 + theta) + size**3 * lr**2)
    c = np.array(c[::-1])
    delta = lr - c[1:] * lr / beta - size * lr**2 - 2 * c[1:] * zeta * lr**2
    return Reduced(lr, inner, c, delta, float(delta.min()) * scale)


def theorem_5_6(
    gap: float,
    rounds: int,
    epochs: int,
    agents: int,
    smoothness: float,
    noise_energy: float = 0.0,
    curvature: float = 1.0,
    printed: bool = True,
) -> float:
    """Right side of Theorem 5.6; ``noise_energy`` is d std^2, m = floor(10 N / 3), the largest step that is allowed.

    ``printed``: with c = 10 N / (3 m) and 1/100. Otherwise what Lemma B.1 gives: gap / (m K T delta_min) +
    (L / 2 + c_0 zeta) lr^2 d std^2 / delta_min. That too needs identical agents, and steps that go on from the last
    point. Source: PriRFed, Theorem 5.6.
    """
    energy = noise_energy
    found = recursion_b1(agents, smoothness, curvature)
    root, least = math.sqrt(curvature), float(found.delta.min())
    if printed:
        start = 10 * agents / (3 * found.inner) * smoothness * root / (agents ** (1 / 3) * epochs * rounds) * gap
        return start + energy / (100 * root) * (agents ** (-2 / 3) + 1 / agents)
    noise = (0.5 * smoothness + float(found.c[0]) * curvature) * found.lr**2 * energy / least
    return gap / (found.inner * epochs * rounds * least) + noise


# --- agents on a line


def line_gradient(
    centres: Tensor, lr: float, steps: int, rounds: int, start: float, std: float = 0.0, literal: bool = False
) -> float:
    """E |f'(x~)|^2 exactly: ``rounds`` rounds of one agent with ``steps`` local steps each (K m for DP-RSVRG).

    Every record of an agent is the same, so its variance reduced direction is its gradient, plus noise N(0, std^2).
    A round goes on from the last local point and x~ is one of the first ``steps`` points of a random round, as the
    proofs need it; ``literal``: Option 2 as printed, a random local point is uploaded and x~ is one of the uploads.
    Shapes: ``centres`` a [N].
    """
    lr, steps, rounds, start, std = _line(centres, lr, steps, rounds, start, std)
    keep = (1 - lr) ** torch.arange(steps + 1, dtype=torch.float64)  # r_j: what is left of x - a after j steps
    noise = lr**2 * std**2 * (1 - keep**2) / (1 - (1 - lr) ** 2)
    middle, square = float(centres.mean()), float(centres.square().mean())
    terms = torch.stack([keep, (1 - keep) ** 2 * square + noise, 2 * keep * (1 - keep) * middle, keep**2])
    inside = terms[:, :-1].mean(1).tolist()  # E x_j = (1 - r) middle + r E x, and so on: averaged over j
    across = inside if literal else terms[:, -1].tolist()
    mean, second, total = start, start * start, 0.0  # E x and E x^2 at the start of a round
    for _ in range(rounds):
        means = [(1 - r[0]) * middle + r[0] * mean for r in (inside, across)]
        seconds = [r[1] + r[2] * mean + r[3] * second for r in (inside, across)]
        total += seconds[0] - 2 * middle * means[0] + middle**2
        mean, second = means[1], seconds[1]
    return total / rounds


def line_by_simulation(
    centres: Tensor, lr: float, steps: int, rounds: int, start: float, std: float = 0.0, literal: bool = False,
    repetitions: int = 400, seed: int = 0,
) -> tuple[float, float]:  # fmt: skip
    """The same by ``repetitions`` runs at once: mean and standard error."""
    lr, steps, rounds, start, std = _line(centres, lr, steps, rounds, start, std)
    rng, count = stream(seed, "line"), repetitions
    middle, row = centres.mean(), torch.arange(count)
    x, total = torch.full((count,), start, dtype=torch.float64), torch.zeros(count, dtype=torch.float64)
    for _ in range(rounds):
        aim = centres.double()[torch.from_numpy(rng.integers(0, len(centres), count))]
        points = [x]
        for _ in range(steps):
            x = x - lr * (x - aim + std * normal((count,), rng))
            points.append(x)
        stacked = torch.stack(points[:-1], 1)
        total += (stacked - middle).square().mean(1)
        if literal:
            x = stacked[row, torch.from_numpy(rng.integers(0, steps, count))]
    total /= rounds
    return float(total.mean()), float(total.std()) / math.sqrt(count)


def expected_product(centres: Tensor, lr: float, start: float) -> tuple[float, float]:
    """(A.16)'s equation after one local step: E <f'(x_1), eta>, and E |f'(x_1)|^2 which the proof takes it for.

    Shapes: ``centres`` a [N], of which one agent is drawn. Source: PriRFed, (A.16).
    """
    lr, _, _, start, _ = _line(centres, lr, 1, 1, start, 0.0)
    x = start - lr * (start - centres.double())  # one point for every agent that may have been drawn
    slope = x - centres.double().mean()
    return float((slope * (x - centres)).mean()), float(slope.square().mean())


def _line(
    centres: Tensor, lr: float, steps: int, rounds: int, start: float, std: float
) -> tuple[float, int, int, float, float]:
    return (lr, steps,
            rounds, start,
            std)  # fmt: skip

"""Chapter 3's convergence: the lemmas of PriRFed's proofs with both sides computed, and what its theorems promise.

Everything is for objectives on a manifold with per-step noise N_x(0, std^2) in an orthonormal tangent basis.
``noise_energy`` is V = d sum p_i^2 std_i^2, the mean square length of the noise in a round with everybody.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from fedbook.geometry import Manifold

# --- curvature (Lemmas A.1 and A.2)


def curvature_constant(diameter: float, lowest: float = -1.0) -> float:
    """zeta: sqrt|k| M / tanh(sqrt|k| M) for a lowest sectional curvature k below 0, otherwise 1.

    Source: PriRFed, (5.1).
    """
    reach = diameter * math.sqrt(max(0.0, -lowest))
    return reach / math.tanh(reach) if reach > 0 else 1.0


class Sides(NamedTuple):
    """Both sides of an inequality ``left <= right``, tensors of one shape."""

    left: Tensor
    right: Tensor


def triangle(manifold: Manifold, x: Tensor, y: Tensor, z: Tensor, curvature: Tensor | None = None) -> Sides:
    """Lemma A.2 at the corner x: dist(y, z)^2 <= zeta l1^2 + l3^2 - 2 l1 l3 cos A, l1 = dist(x, y), l3 = dist(x, z).

    Without ``curvature`` the zeta of the manifold's lowest curvature and l3 is used, the sharpest that holds.
    Shapes: points ``[..., *point]``, sides ``[...]``. Source: PriRFed, Lemma A.2; Lemma A.1 is the same for
    y = Exp_x(-lr g).
    """
    u, v = manifold.log(x, y), manifold.log(x, z)
    l1, l3 = manifold.norm(x, u), manifold.norm(x, v)
    if curvature is None:
        reach = l3 * math.sqrt(max(0.0, -manifold.curvature[0]))
        curvature = torch.where(reach > 0, reach / reach.tanh().clamp(min=1e-300), 1.0)
    return Sides(manifold.squared_dist(y, z), curvature * l1**2 + l3**2 - 2 * manifold.inner(x, u, v))


# --- one round with everybody (proof of Theorem 5.1)


def descent_terms(
    manifold: Manifold, x: Tensor, slope: Tensor, noise: Tensor, lr: float, smoothness: float
) -> dict[str, Tensor]:
    """The three terms of (A.1) after a step along -(slope + noise): f(x+) - f(x) is at most their sum.

    ``slope`` (L lr^2 / 2 - lr) |grad f|^2, ``noise`` L lr^2 |e|^2 / 2, ``mixed`` (L lr^2 - lr) <e, grad f>, whose
    mean over the noise is 0. Shapes: vectors ``[..., *point]`` to ``[...]``.
    """
    half = 0.5 * smoothness * lr * lr
    return {
        "slope": (half - lr) * manifold.inner(x, slope, slope),
        "noise": half * manifold.inner(x, noise, noise),
        "mixed": (2 * half - lr) * manifold.inner(x, noise, slope),
    }


def noise_energy(dimension: int, sizes: Tensor, std: Tensor) -> float:
    """V = d sum N_i^2 std_i^2 / (sum N_i)^2. Shapes: ``sizes``, ``std`` [N]."""
    share = sizes.double() / sizes.sum()
    return dimension * float((share * std).square().sum())


def theorem_5_1(gap: float, rounds: int, lr: float, smoothness: float, noise_energy: float) -> float:
    """Right side of (5.2): 2 gap / (T lr) + L lr V, above min_t E |grad f(x^t)|^2 over t < T. Needs lr <= 1 / L.

    Source: PriRFed, Theorem 5.1.
    """
    gap, rounds, lr, smoothness, energy = _run(gap, rounds, lr, smoothness, noise_energy, most=1.0)
    return 2 * gap / (rounds * lr) + smoothness * lr * energy


# --- convex objectives (proof of Theorem 5.3)


def theorem_5_3(
    distance: float,
    rounds: int,
    lr: float,
    smoothness: float,
    noise_energy: float,
    curvature: float = 1.0,
    sharper: bool = False,
) -> float:
    """Right side of (5.4) on E f(x^T) - f*, ``distance`` from x^0 to the optimum. Needs lr <= 1 / (2 L).

    ``sharper`` keeps lr in the noise terms of the same proof; at lr = 1 / (2 L) both are equal. The printed noise
    term does not shrink with lr. Source: PriRFed, Theorem 5.3.
    """
    distance, rounds, lr, smoothness, energy = _run(distance, rounds, lr, smoothness, noise_energy, "distance", 0.5)
    divisor = curvature + rounds - 1
    start = curvature * distance**2 / (2 * lr * divisor)
    if not sharper:
        return start + rounds * (6 * curvature + rounds - 1) / (16 * smoothness * divisor) * energy
    square = smoothness * lr * lr
    noise = rounds * curvature / 2 * (square + lr) + rounds * (rounds - 1) / 4 * square
    return start + noise * energy / divisor


def sums_5_3(curvature: float, rounds: int) -> tuple[float, float]:
    """The noise that the proof of 5.3 adds up, term by term, and T (6 zeta + T - 1) / 16; in units of V / L.

    Each of T rounds brings 3 zeta / 8, and E Delta^t >= E Delta^T - (T - t) / 8 is used for t = 1 .. T - 1.
    """
    added = math.fsum([3 * curvature / 8] * rounds) + math.fsum((rounds - t) / 8 for t in range(1, rounds))
    return added, rounds * (6 * curvature + rounds - 1) / 16


# --- sampled agents (A.12) and Theorem 5.4


def cohort_moment(slopes: Tensor, size: int) -> tuple[float, float, float]:
    """E |mean slope of a cohort of ``size``|^2: over ALL cohorts, as (A.12) prints it, and as mean plus variance.

    The last: |g|^2 + (N - S) / (S (N - 1)) * (1/N) sum |g_i - g|^2. Shapes: ``slopes`` [N, D]; N at most 20.
    Source: PriRFed, (A.12).
    """
    agents = len(slopes)
    cohorts = torch.tensor(list(combinations(range(agents), size)))
    found = slopes[cohorts].mean(1).square().sum(1).mean()
    mean, each = slopes.mean(0), slopes.square().sum()
    rest = size * (agents - 1)
    printed = (agents - size) / (agents * rest) * each + agents * (size - 1) / rest * mean @ mean
    spread = (slopes - mean).square().sum(1).mean()
    return float(found), float(printed), float(mean @ mean + (agents - size) / rest * spread)


def theorem_5_4(
    gap: float,
    rounds: int,
    lr: float,
    smoothness: float,
    pl: float,
    dimension: int,
    variance: float,
    cohort: int,
    agents: int,
    divergence: float,
    printed: bool = False,
) -> float:
    """Right side of (5.5) for equal agents: ``variance`` std^2 of each, ``pl`` mu, ``divergence`` v. lr <= 1 / L.

    ``printed`` has the paper's kappa_1 = v kappa_0 with its extra factor d.
    Source: PriRFed, Theorem 5.4.
    """
    gap, rounds, lr, smoothness, divergence = _run(gap, rounds, lr, smoothness, divergence, most=1.0, last="divergence")
    shrink = 1 - 2 * pl * lr + pl * lr * lr * smoothness
    each = smoothness * lr / (2 * pl * (2 - smoothness * lr))
    spread = divergence * (agents - cohort) / (cohort * (agents - 1))
    factor = dimension if printed else 1
    left = shrink**rounds
    return left * gap + (1 - left) * each * (dimension * variance / cohort + factor * spread)


def recursion_5_4(
    gap: float, rounds: int, lr: float, smoothness: float, pl: float, noise: float, divergence: float
) -> float:
    """The same bound by running (A.14) with the PL condition round by round; ``noise`` and ``divergence`` as there.

    gap <- P gap + L lr^2 / 2 (noise + divergence).
    """
    gap, rounds, lr, smoothness, noise = _run(gap, rounds, lr, smoothness, noise, most=1.0, last="noise")
    for _ in range(rounds):
        gap = gap - 2 * pl * (lr - 0.5 * smoothness * lr**2) * gap + 0.5 * smoothness * lr**2 * (noise + divergence)
    return gap


# --- the floor


def noise_floor(lr: float, curvatures: Tensor, variance: float) -> float:
    """lr variance / 2 * sum_k 1 / (2 - lr h_k): where E f - f* ends near a minimum with Hessian eigenvalues h_k.

    ``variance`` sum p_i^2 std_i^2, everybody takes part, one step a round, nothing clipped. Each coordinate follows
    x <- (1 - lr h) x - lr e, so E x^2 = lr variance / (h (2 - lr h)). Shapes: ``curvatures`` h > 0 [d].
    """
    return 0.5 * lr * variance * float((1 / (2 - lr * curvatures)).sum())


def _run(
    start: float, rounds: int, lr: float, smoothness: float, noise: float, first: str = "gap", most: float = math.inf,
    last: str = "noise_energy",
) -> tuple[float, int, float, float, float]:  # fmt: skip
    """The checked arguments of a theorem; lr * smoothness at most ``most`` (up to the rounding of 1 / L)."""
    return (start, rounds, lr, smoothness,
            noise)  # fmt: skip

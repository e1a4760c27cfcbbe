"""Chapter 2's convergence: the lemmas and the theorem of Hetero-SSFL, checked on quadratics where they are equalities.

E is the number of local gradient steps (the paper says epochs), L the number of alignment images. A real run that
measures every constant stands in chapter02_drift. All float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad, vmap

from fedbook.lab.chapter02_theory import Sides
from fedbook.papers.hetero_ssfl.cka import gram
from fedbook.randomness import normal, stream

CURVATURES = (2.0,) * 6


# --- the descent lemma on f(w) = sum_j h_j w_j^2 / 2, L1 = max h


def descent_lemma(lr: float = 0.3, steps: int = 4, curvatures: Sequence[float] = CURVATURES, seed: int = 0) -> Sides:
    """f after ``steps`` of descent by autograd, and f_0 - (lr - L1 lr^2 / 2) sum |grad f_i|^2.

    Equal if all curvatures are; left <= right otherwise, whatever the lr.
    """
    h, start = _quadratic(curvatures, seed)
    path = _descend(h, start, lr, torch.zeros(steps, 1, len(h), dtype=h.dtype))
    return Sides(_value(h, path[-1]), _lemma(h, path, lr, 0.0))


class Noisy(NamedTuple):
    """E f after noisy steps: Monte Carlo ``mean``; ``lemma``, the mean of Lemma 4.5's right side; ``exact``.

    ``error``: the standard error of mean - lemma. ``spread``: that of mean.
    """

    mean: float
    lemma: float
    exact: float
    error: float
    spread: float


def noisy_descent(
    lr: float = 0.3,
    steps: int = 4,
    variance: float = 0.5,
    curvatures: Sequence[float] = CURVATURES,
    draws: int = 20_000,
    seed: int = 0,
) -> Noisy:
    """Gradients with Gaussian noise of total ``variance`` sigma^2: mean = exact, and lemma = both if curvatures agree.

    Each step adds L1 lr^2 sigma^2 / 2 to the right side. exact is E w^2 <- (1 - lr h)^2 E w^2 + lr^2 sigma^2 / D.
    Source: Hetero-SSFL, Lemma 4.5, the gradients' squares under the expectation too.
    """
    h, start = _quadratic(curvatures, seed)
    shape = (steps, draws, len(h))
    path = _descend(h, start, lr, math.sqrt(variance / len(h)) * normal(shape, stream(seed, "gradient noise")))
    value, lemma, square = _value(h, path[-1]), _lemma(h, path, lr, variance), start**2
    for _ in range(steps):
        square = (1 - lr * h) ** 2 * square + lr**2 * variance / len(h)
    errors = ((value - lemma).std() / math.sqrt(draws), value.std() / math.sqrt(draws))
    return Noisy(*(float(x) for x in (value.mean(), lemma.mean(), (h * square).sum() / 2, *errors)))


def step_sizes(lrs: Sequence[float], steps: int = 3, curvatures: Sequence[float] = CURVATURES, seed: int = 0) -> Tensor:
    """f after ``steps`` / f at the start for each of ``lrs``, [M]; with equal curvatures (1 - lr L1)^(2 steps).

    Below 1 for every lr < 2 / L1, 1 there, above 1 beyond.
    """
    h, start = _quadratic(curvatures, seed)
    still = torch.zeros(steps, 1, len(h), dtype=h.dtype)
    return torch.cat([_value(h, _descend(h, start, lr, still)[-1]) for lr in lrs]) / _value(h, start)


def _quadratic(curvatures: Sequence[float], seed: int) -> tuple[Tensor, Tensor]:
    h = torch.tensor(curvatures, dtype=torch.float64)
    return h, normal((len(h),), stream(seed, "quadratic"))


def _value(h: Tensor, w: Tensor) -> Tensor:
    return (h * w**2).sum(-1) / 2


def _descend(h: Tensor, start: Tensor, lr: float, noise: Tensor) -> Tensor:
    """Noise [E, draws, D] to weights [E + 1, draws, D]."""
    path = [start.expand(noise.shape[1:])]
    for e in noise:
        path.append(path[-1] - lr * (grad(lambda w: _value(h, w).sum())(path[-1]) + e))
    return torch.stack(path)


def _lemma(h: Tensor, path: Tensor, lr: float, variance: float) -> Tensor:
    slopes, known = (h * path[:-1]).square().sum((0, 2)), Constants(float(h.max()), variance)
    return _value(h, path[0]) + lemma_4_5(slopes, lr, len(path) - 1, known)


# --- errata: the split of the variance, the factor E


class Split(NamedTuple):
    """E |g|^2 by Monte Carlo with its standard ``error``; Var + |E g|^2; Var + (E |g|)^2 as the paper's proof says."""

    measured: float
    error: float
    true: float
    printed: float


def variance_split(dimension: int = 6, variance: float = 0.25, draws: int = 100_000, seed: int = 0) -> Split:
    """Gaussian gradients of mean 0 and total ``variance``: E |g|^2 is the variance, the paper's line nearly twice it.

    Source: Hetero-SSFL, appendix A.1, third line.
    """
    d = dimension
    std = math.sqrt(variance / d)
    squares = (std * normal((draws, d), stream(seed, "gradients"))).square().sum(1)
    length = std * math.sqrt(2) * math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2))  # E |g|, a chi mean
    return Split(float(squares.mean()), float(squares.std() / math.sqrt(draws)), variance, variance + length**2)


class Drift(NamedTuple):
    """|tr(K(t) (Kbar(t) - Kbar(t-1)))|, Lemma 4.6's bound on it as printed, and with the factor E."""

    change: float
    printed: float
    repaired: float


def many_steps(steps: int = 5, lr: float = 1e-3, images: int = 3) -> Drift:
    """Clients with one weight w, Phi(x) = w, gradient -1: E steps to w = 1 pass the printed bound, almost E times.

    L2 = P = R = 1, and change = L^2 (1 - (1 - E lr)^2): the repaired bound cannot be lowered.
    Source: Hetero-SSFL, Lemma 4.6, and its proof's trace in place of CKA.
    """
    before, after = (torch.full((images, 1), w, dtype=torch.float64) for w in (1 - steps * lr, 1.0))
    change = (gram(after) * (gram(after) - gram(before))).sum().abs()
    ones = Constants(lipschitz=1.0, gradient=1.0, norm=1.0, images=images)
    return Drift(float(change), lemma_4_6(1.0, lr, 1, ones), lemma_4_6(1.0, lr, steps, ones))


# --- the lemmas, the theorem and what it asks for


@dataclass(frozen=True)
class Constants:
    """``smoothness`` L1, ``variance`` sigma^2, ``lipschitz`` L2, ``gradient`` P, ``norm`` R, ``images`` L."""

    smoothness: float = 1.0
    variance: float = 0.0
    lipschitz: float = 0.0
    gradient: float = 0.0
    norm: float = 0.0
    images: int = 1

    @property
    def drift(self) -> float:
        """G = L2 P R^3 L^2."""
        return self.lipschitz * self.gradient * self.norm**3 * self.images**2


def lemma_4_5(slopes: Tensor | float, lr: float, steps: int, constants: Constants) -> Tensor | float:
    """The most E L_E - L_0 can be: -(lr - L1 lr^2 / 2) S + L1 E lr^2 sigma^2 / 2, S = ``slopes`` = sum |grad L_i|^2.

    Source: Hetero-SSFL, Lemma 4.5.
    """
    half = constants.smoothness * lr**2 / 2
    return -(lr - half) * slopes + half * steps * constants.variance


def lemma_4_6(mu: float, lr: float, steps: int, constants: Constants) -> float:
    """The most the server's new mean kernel can add to the loss: 2 mu lr E G. The paper prints it with E = 1.

    Source: Hetero-SSFL, Lemma 4.6, repaired.
    """
    return 2 * mu * lr * steps * constants.drift


def theorem_4_7(
    slopes: Tensor | float, lr: float, mu: float, steps: int, constants: Constants, printed: bool = False
) -> Tensor | float:
    """The most the loss can change in one round, both lemmas together."""
    drift = lemma_4_6(mu, lr, 1 if printed else steps, constants)
    return lemma_4_5(slopes, lr, steps, constants) + drift


def largest_lr(slopes: float, mu: float, steps: int, constants: Constants, printed: bool = False) -> float:
    """eta* below which theorem_4_7 promises a decrease: 2 (S - 2 mu E G) / (L1 (S + E sigma^2)); none if <= 0.

    Source: Hetero-SSFL, Theorem 4.7; ``printed`` has G for E G.
    """
    drift = constants.drift * (1 if printed else steps)
    rise = slopes - 2 * mu * drift
    return 2 * rise / (constants.smoothness * (slopes + steps * constants.variance))


def largest_mu(slopes: float, steps: int, constants: Constants, printed: bool = False) -> float:
    """S / (2 E G), above which no step size is allowed (infinite for G = 0)."""
    drift = constants.drift * (1 if printed else steps)
    return slopes / (2 * drift) if drift > 0 else math.inf


class Telescoped(NamedTuple):
    """A bound on the mean of E |grad L|^2 over T rounds of E steps: ``start`` fades with T, ``noise`` with eta too.

    ``drift`` 2 mu G / (1 - L1 eta / 2) does neither: it goes only with mu.
    """

    start: float
    noise: float
    drift: float

    @property
    def total(self) -> float:
        return self.start + self.noise + self.drift


def telescoped(gap: float, rounds: int, lr: float, mu: float, steps: int, constants: Constants) -> Telescoped:
    """Rounds of :func:`theorem_4_7` (repaired) added up; ``gap`` L_0 - inf L. Needs lr < 2 / L1."""
    share = 1 - constants.smoothness * lr / 2
    noise = constants.smoothness * lr * constants.variance / 2
    return Telescoped(gap / (rounds * steps * lr * share), noise / share, 2 * mu * constants.drift / share)


def largest_curvature(
    loss: Callable[..., Tensor], at: Tensor, *given: Tensor, iterations: int = 20, seed: int = 0
) -> Tensor:
    """The largest |eigenvalue| of the Hessian of ``loss(w, ...)`` at many points, from below, by power iteration. [M]

    Shapes: ``at`` [M, P], each of ``given`` [M, ...]: what else the loss takes at that point.
    """

    def product(w: Tensor, direction: Tensor, *rest: Tensor) -> Tensor:
        slope = grad(lambda x: loss(x, *rest))
        return grad(lambda x: slope(x) @ direction)(w)  # the Hessian times the direction

    direction = normal(tuple(at.shape), stream(seed, "power iteration"), like=at)
    for _ in range(iterations):
        direction = vmap(product)(at, direction / direction.norm(dim=1, keepdim=True).clamp(min=1e-300), *given)
    return direction.norm(dim=1)

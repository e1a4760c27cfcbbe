"""Chapter 3's theorems meet a problem they are about: the Frechet mean on the hyperbolic plane, many runs at once."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedbook.geometry import Hyperboloid, frechet_mean, tangent_mean
from fedbook.lab import chapter03_descent as descent
from fedbook.papers.prirfed.synthetic import hyperbolic_ball_records
from fedbook.randomness import normal, stream

H = Hyperboloid()
BALL = 1.4  # everything happens within this distance of the origin: diameter M = 2.8


class HyperbolicMean(NamedTuple):
    """N agents with n records each; f_i(x) = mean_j dist(x, y_ij)^2 and f their mean. ``best`` is the Frechet mean.

    PL constant mu = 2, smooth with L = 2 zeta, zeta for the diameter 2.8. Shapes: ``records`` [N, n, 3], ``best`` [3].
    """

    records: Tensor
    best: Tensor

    @property
    def smoothness(self) -> float:
        return 2 * descent.curvature_constant(2 * BALL)

    def value(self, x: Tensor) -> Tensor:
        """f: ``[..., 3]`` to ``[...]``."""
        return H.squared_dist(x[..., None, None, :], self.records).mean((-2, -1))

    def slopes(self, x: Tensor) -> Tensor:
        """grad f_i(x) = -2 mean_j Log_x(y_ij) of every agent: ``[..., 3]`` to ``[..., N, 3]``."""
        return -2 * H.log(x[..., None, None, :], self.records).mean(-2)

    def divergence(self, points: int = 41) -> float:
        """v: the mean over agents of the largest |grad f_i - grad f|^2 on a polar grid of the ball."""
        count = points
        far = torch.linspace(0, BALL, count, dtype=torch.float64)[:, None]
        turn = torch.linspace(0, 2 * math.pi, count, dtype=torch.float64)
        x = torch.stack([far.cosh().expand(-1, count), far.sinh() * turn.cos(), far.sinh() * turn.sin()], -1)
        slopes = self.slopes(x)
        away = slopes - slopes.mean(-2, keepdim=True)
        return float(H.inner(x[..., None, :], away, away).amax((0, 1)).mean())


def hyperbolic_mean(agents: int = 10, records: int = 40, seed: int = 0) -> HyperbolicMean:
    """Records within distance 1 of the origin, dealt by their direction plus noise: agents differ mildly."""
    flat = hyperbolic_ball_records(agents * records, seed=seed)
    order = torch.atan2(flat[:, 2], flat[:, 1]) + 2 * normal((len(flat),), stream(seed, "dealing"))
    best = frechet_mean(H, H.origin(3), flat, torch.ones(len(flat)).to(flat))[0]
    return HyperbolicMean(flat[order.argsort()].view(agents, records, 3), best)


class Runs(NamedTuple):
    """A row a repetition, a column a time t = 0 .. T: f(x^t) - f*, |grad f(x^t)|^2; and the farthest point reached."""

    gap: Tensor
    square: Tensor
    farthest: float


def simulate(
    problem: HyperbolicMean, std: float, rounds: int = 40, repetitions: int = 40, cohort: int | None = None
) -> Runs:
    """PriRFed with one full-batch noisy step of each of ``cohort`` agents (everybody by default) a round.

    ``std`` of every agent's noise in an orthonormal basis; steps of 1 / (2 L); start at distance 0.85 from the best
    point.
    """
    agents = len(problem.records)
    cohort = agents if cohort is None else cohort
    lr, rng, best = 0.5 / problem.smoothness, stream(0, "hyperbolic rounds"), problem.best
    x = H.exp(best, 0.85 * H.basis(best)[0]).expand(repetitions, 3)
    gaps, squares, farthest, lowest = [], [], 0.0, problem.value(best)
    for t in range(rounds + 1):
        slopes = problem.slopes(x)
        mean = slopes.mean(1)
        gaps.append(problem.value(x) - lowest)
        squares.append(H.inner(x, mean, mean))
        farthest = max(farthest, float(H.dist(H.origin(3), x).max()))
        if t == rounds:
            break
        who = torch.from_numpy(rng.random((repetitions, agents))).argsort(1)[:, :cohort]
        slopes = slopes.gather(1, who[..., None].expand(-1, -1, 3))
        noise = std * H.tangent_gaussian(x[:, None], normal((repetitions, cohort, 2), rng))
        uploaded = H.exp(x[:, None], -lr * (slopes + noise))
        x = tangent_mean(H, x, uploaded, torch.ones(repetitions, cohort).to(x))
    return Runs(torch.stack(gaps, 1), torch.stack(squares, 1), farthest)


def descent_sides(problem: HyperbolicMean, std: float, lr: float, draws: int = 1000, seed: int = 0) -> descent.Sides:
    """(A.1) at random points of the plane near the records, each with its noise: f(x+) - f(x), and the three terms.

    ``std`` of the noise on the mean gradient. Shapes: sides [draws].
    """
    rng = stream(seed, "descent")
    x = hyperbolic_ball_records(draws, seed=seed)
    noise = std * H.tangent_gaussian(x, normal((draws, 2), rng))
    slope = problem.slopes(x).mean(1)
    terms = descent.descent_terms(H, x, slope, noise, lr, problem.smoothness)
    new = H.exp(x, -lr * (slope + noise))
    return descent.Sides(problem.value(new) - problem.value(x), sum(terms.values()))


class Checked(NamedTuple):
    """What was measured (mean over the repetitions), its standard error, and the right side that bounds it."""

    measured: float
    error: float
    bound: float


def theorem_checks(problem: HyperbolicMean, std: float, rounds: int = 40, cohort: int = 3) -> dict[str, Checked]:
    """Theorems 5.1, 5.3 and 5.4 measured, by name; "5.4" is the corrected bound, "5.4 printed" the paper's."""
    size, agents = problem.smoothness, len(problem.records)
    lr, variance = 0.5 / size, std**2
    everybody, sampled = simulate(problem, std, rounds), simulate(problem, std, rounds, cohort=cohort)
    gap, energy = float(everybody.gap[0, 0]), 2 * variance / agents
    when = int(everybody.square[:, :rounds].mean(0).argmin())
    limited = dict(smoothness=size, pl=2.0, dimension=2, variance=variance, cohort=cohort, agents=agents,
                   divergence=problem.divergence())  # fmt: skip
    return {
        "5.1": _checked(everybody.square[:, when], descent.theorem_5_1(gap, rounds, lr, size, energy)),
        "5.3": _checked(everybody.gap[:, -1], descent.theorem_5_3(0.85, rounds, lr, size, energy, size / 2)),
        "5.4": _checked(sampled.gap[:, -1], descent.theorem_5_4(gap, rounds, lr, **limited)),
        "5.4 printed": _checked(sampled.gap[:, -1], descent.theorem_5_4(gap, rounds, lr, **limited, printed=True)),
    }


def _checked(runs: Tensor, bound: float) -> Checked:
    return Checked(float(runs.mean()), float(runs.std()) / math.sqrt(len(runs)), bound)

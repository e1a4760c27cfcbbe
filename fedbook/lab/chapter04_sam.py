"""Chapter 4's mathematics of sharpness-aware minimisation: its step, and flat and sharp minima in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, vmap

from fedbook.randomness import normal, stream

Function = Callable[[Tensor], Tensor]  # a scalar loss of a vector

# --- sharpness-aware steps (D12, D13, D14)


def sam_step(function: Function, theta: Tensor, radius: float) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient g at theta, perturbation p = radius * g / |g| (0 where g is), and the gradient at theta + p.

    p counts as a constant: nothing is differentiated through it. Shapes: ``theta`` [P], three times [P].
    Source: DP2-FedSAM, equations (11) and (12).
    """
    g = grad(function)(theta)
    p = radius * g / g.norm().clamp(min=torch.finfo(g.dtype).tiny)
    return g, p, grad(function)(theta + p)


def ascent_on_ball(slope: Tensor, radius: float, steps: int = 200, seed: int = 0) -> Tensor:
    """Projected ascent of the linear function <slope, p> over |p| <= radius from a random point: where it ends.

    Shapes: [P] to [P].
    """
    p = normal(tuple(slope.shape), stream(seed, "ascent"), slope)
    for _ in range(steps):
        p = p + radius * slope / slope.norm()
        p = p * (radius / p.norm().clamp(min=radius))
    return p


def best_of_ball(slope: Tensor, radius: float, tries: int, seed: int = 0) -> float:
    """The largest <slope, p> among ``tries`` points drawn evenly from the ball |p| <= radius.

    Shapes: ``slope`` [P].
    """
    rng = stream(seed, "ball")
    points = normal((tries, len(slope)), rng, slope)
    reach = torch.from_numpy(rng.random(tries)).to(slope) ** (1 / len(slope))  # uniform in volume
    return float((radius * reach * (points @ slope) / points.norm(dim=1)).max())


def penalised_gradient(function: Function, theta: Tensor, radius: float) -> Tensor:
    """The gradient of F + radius * |grad F| by automatic differentiation: what a SAM step resembles.

    Equal to the SAM gradient for quadratics, up to O(radius^2) else. Shapes: [P].
    """
    return grad(lambda x: function(x) + radius * grad(function)(x).norm())(theta)


def central_differences(function: Function, theta: Tensor, step: float = 1e-5) -> Tensor:
    """The gradient of ``function`` by differences, to O(step^2): the oracle of the checks.

    Shapes: ``theta`` [P] to [P].
    """
    moves = step * torch.eye(len(theta), dtype=theta.dtype, device=theta.device)
    return torch.stack([function(theta + m) - function(theta - m) for m in moves]) / (2 * step)


def loglog_slope(x: Sequence[float] | Tensor, y: Sequence[float] | Tensor) -> float:
    """Least-squares slope of log y against log x: the order of y in x."""
    a, b = (torch.as_tensor(v, dtype=torch.float64) for v in (x, y))
    a, b = a.log() - a.log().mean(), b.log() - b.log().mean()
    return float((a @ b) / (a @ a))


def logistic_gradients(problems: int, radius: float, seed: int) -> tuple[Tensor, Tensor]:
    """|gradient| and |SAM gradient| of random convex losses: logistic regression, 20 samples, 5 parameters.

    Shapes: two times [problems], float64.
    """
    rng = stream(seed, "logistic problems")
    x, theta = 2 * normal((problems, 20, 5), rng), 2 * normal((problems, 5), rng)
    sign = normal((problems, 20), rng).sign()
    slopes = vmap(grad(lambda w, x, sign: torch.nn.functional.softplus(-sign * (x @ w)).mean()))
    plain = slopes(theta, x, sign)
    norm = plain.norm(dim=1)
    return norm, slopes(theta + radius * plain / norm[:, None], x, sign).norm(dim=1)


# --- noise and flatness (D15, D16)


def expected_under_noise(function: Function, theta: Tensor, std: float, points: int = 20) -> float:
    """E F(theta + std z), z standard normal, by Gauss-Hermite quadrature in every coordinate.

    Exact for polynomials of degree below 2 ``points`` in each; points^P evaluations. Shapes: ``theta`` [P],
    P at most 4.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    nodes, weights = (torch.from_numpy(v).to(theta) for v in (nodes, weights / weights.sum()))
    grid = torch.cartesian_prod(*[nodes] * len(theta)).view(-1, len(theta))
    weight = torch.cartesian_prod(*[weights] * len(theta)).view(-1, len(theta)).prod(1)
    return float((weight * vmap(function)(theta + std * grid)).sum())


class Wells(NamedTuple):
    """A loss -sum_j a_j exp(-(x - m_j)^2 / (2 w_j^2)) with a flat well and, on its wall, a sharp and deeper one.

    Two numbers each, the flat well first: ``depth`` a, ``centre`` m, ``width`` w.
    """

    depth: tuple[float, float] = (0.7, 0.4)
    centre: tuple[float, float] = (0.0, 1.0)
    width: tuple[float, float] = (1.5, 0.08)

    def value(self, x: Tensor, std: float = 0.0) -> Tensor:
        """F(x), or E F(x + std z) in closed form: each well becomes wider, sqrt(w^2 + std^2), and shallower."""
        return sum((self._parts(x, std)), torch.zeros_like(x))

    def gradient(self, x: Tensor, std: float = 0.0) -> Tensor:
        """F'(x), or that of the smoothed loss."""
        parts = zip(self._parts(x, std), self.centre, self.width, strict=True)
        return sum((-part * (x - m) / (w * w + std * std) for part, m, w in parts), torch.zeros_like(x))

    def _parts(self, x: Tensor, std: float) -> list[Tensor]:
        terms = []
        for a, m, w in zip(self.depth, self.centre, self.width, strict=True):
            wide = math.hypot(w, std)
            terms.append(-a * w / wide * torch.exp(-((x - m) ** 2) / (2 * wide * wide)))
        return terms

    def bottoms(self, std: float = 0.0) -> tuple[float, float]:
        """The smallest (smoothed) value around the flat and around the sharp well's centre."""
        from scipy.optimize import minimize_scalar

        found = []
        for m, w in zip(self.centre, self.width, strict=True):
            reach = (m - 0.5 * w, m + 0.5 * w)
            lowest = minimize_scalar(
                lambda x: float(self.value(torch.tensor(x, dtype=torch.float64), std)),
                bounds=reach, method="bounded", options={"xatol": 1e-12},
            )  # fmt: skip
            found.append(float(lowest.fun))
        return found[0], found[1]


def flat_wins(wells: Wells, most: float = 1.0) -> float:
    """The noise at which both wells are equally deep in expectation; with more of it the flat one is the better."""
    from scipy.optimize import brentq

    return float(brentq(lambda s: wells.bottoms(s)[0] - wells.bottoms(s)[1], 0.0, most, xtol=1e-12))


def wells_reached(wells: Wells, starts: Tensor, radius: float, lr: float = 0.02, steps: int = 3000) -> Tensor:
    """Where descent (``radius`` 0) or SAM descent ends from each start; in one dimension p = radius * sign(F').

    SAM with a radius of about three widths and more leaves the sharp well, but may rest at its centre - radius:
    there the gradient at x + p is 0 and the gradient at x is not. Shapes: ``starts`` [M] to [M].
    """
    x = starts
    for _ in range(steps):
        x = x - lr * wells.gradient(x + radius * wells.gradient(x).sign())
    return x


def valley_value(x: Tensor) -> Tensor:
    """(1 + v^2) u^2 / 2 at x = (u, v): every point with u = 0 is a minimum, of sharpness 1 + v^2.

    E of it at x + std z is (1 + v^2 + std^2) (u^2 + std^2) / 2: noise costs least where v = 0.
    Shapes: [..., 2] to [...].
    """
    return 0.5 * (1 + x[..., 1] ** 2) * x[..., 0] ** 2


def valley_path(start: Tensor, radius: float, lr: float = 0.1, steps: int = 400) -> Tensor:
    """Descent (``radius`` 0) or SAM descent in :func:`valley_value`: only SAM goes along the valley to its flat part.

    Shapes: ``start`` [2] to [steps + 1, 2].
    """
    path = [start]
    for _ in range(steps):
        path.append(path[-1] - lr * sam_step(valley_value, path[-1], radius)[2])
    return torch.stack(path)

"""Chapter 3's mathematics: noise, clipping and averages in tangent spaces, each identity with both sides computed.

float64 throughout. Convergence stands in chapter03_descent and chapter03_local, runs on the hyperbolic plane in
chapter03_simulation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fedbook.geometry import Manifold, Sphere, tangent_mean
from fedbook.papers.prirfed.losses import Eigenvector, clip_factor
from fedbook.randomness import normal, stream

# --- the tangent Gaussian (item 1)


def noise_covariance(manifold: Manifold, x: Tensor, noise: Callable[[Tensor, Tensor], Tensor] | None = None) -> Tensor:
    """The exact covariance [d, d], in an orthonormal basis at x, of ``noise(x, w)`` for standard normal w.

    ``noise`` must be linear in w; by default it is the manifold's own, for which this is the identity matrix.
    Shapes: ``x [*point]``, ``w [noise_size]``.
    """
    manifold.require_point("x", x)
    draw = manifold.tangent_gaussian if noise is None else noise
    vectors = torch.stack([draw(x, w) for w in torch.eye(manifold.noise_size(x), dtype=x.dtype)])
    coordinates = in_basis(manifold, x, vectors)  # a row for each entry of w
    return coordinates.mT @ coordinates


def in_basis(manifold: Manifold, x: Tensor, vectors: Tensor) -> Tensor:
    """Coordinates of tangent vectors at x in ``manifold.basis(x)``: ``[k, *point]`` to [k, d]."""
    axis = -1 - manifold.point_ndim
    return manifold.inner(x, vectors.unsqueeze(axis), manifold.basis(x))


def ambient_noise(manifold: Manifold, x: Tensor) -> Tensor:
    """The covariance [d, d] of a projected AMBIENT standard normal: the identity on the sphere, not elsewhere.

    Shapes: ``x [*point]``.
    """
    manifold.require_point("x", x)
    ambient = torch.eye(x.numel(), dtype=x.dtype).reshape(-1, *x.shape)
    coordinates = in_basis(manifold, x, manifold.project(x, ambient))
    return coordinates.mT @ coordinates


def square_norms(manifold: Manifold, x: Tensor, std: float, draws: int, seed: int) -> tuple[float, float, float]:
    """E |noise|_x^2 by simulation, its standard error, and d std^2."""
    w = normal((draws, manifold.noise_size(x)), stream(seed, "square norms"))
    square = manifold.norm(x, std * manifold.tangent_gaussian(x, w)).square()
    return float(square.mean()), float(square.std()) / math.sqrt(draws), manifold.dimension(x) * std**2


def normaliser(dimension: int, std: float) -> tuple[float, float, float]:
    """The integral of exp(-|v|^2 / (2 std^2)) over R^d: by quadrature in the radius, (2 pi std^2)^(d/2), as printed.

    Printed is its inverse, sqrt((2 pi)^d std^2), so the last number is 1 over that.
    Source: PriRFed, Definition 2.5.
    """
    d = dimension
    r = torch.linspace(0, 12 * std, 20_001, dtype=torch.float64)
    area = 2 * math.pi ** (d / 2) / math.gamma(d / 2)  # of the unit sphere in R^d
    found = _simpson(area * r ** (d - 1) * (-0.5 * (r / std) ** 2).exp(), float(r[1]))
    return found, (2 * math.pi * std**2) ** (d / 2), 1 / math.sqrt((2 * math.pi) ** d * std**2)


# --- the Gaussian mechanism (item 2)


class Loss(NamedTuple):
    """The privacy loss of a release, simulated on the manifold: mean, variance, their standard errors, and mu^2."""

    mean: float
    variance: float
    mean_error: float
    variance_error: float
    mu_square: float


def privacy_loss(
    manifold: Manifold, x: Tensor, first: Tensor, second: Tensor, std: float, draws: int, seed: int
) -> Loss:
    """log p(y) / q(y) for y = first + noise: the densities of both worlds are those of Definition 2.5.

    It is N(mu^2 / 2, mu^2) with mu = |first - second|_x / std: one number is left of the whole tangent space.
    Shapes: ``first``, ``second`` tangent at x.
    """
    manifold.require_tangent("first", x, first)
    manifold.require_tangent("second", x, second)
    w = normal((draws, manifold.noise_size(x)), stream(seed, "privacy loss"))
    y = first + std * manifold.tangent_gaussian(x, w)
    loss = (manifold.norm(x, y - second).square() - manifold.norm(x, y - first).square()) / (2 * std**2)
    mu_square = float(manifold.norm(x, first - second)) ** 2 / std**2
    variance = float(loss.var())
    return Loss(float(loss.mean()), variance, math.sqrt(variance / draws), variance * math.sqrt(2 / draws), mu_square)


def delta_by_quadrature(epsilon: float, mu: float) -> float:
    """The integral of max(0, p - e^epsilon q) for p = N(mu, 1), q = N(0, 1); ``gaussian_delta`` is its closed form."""
    start = epsilon / mu + mu / 2  # where p = e^epsilon q: the integrand is smooth on the right of it
    x = torch.linspace(start, max(start, mu) + 14, 200_001, dtype=torch.float64)
    p, q = ((-0.5 * (x - m) ** 2).exp() / math.sqrt(2 * math.pi) for m in (mu, 0.0))
    return _simpson(p - math.exp(epsilon) * q, float(x[1] - x[0]))


def _simpson(y: Tensor, step: float) -> float:
    return step / 3 * float(y[0] + y[-1] + 4 * y[1:-1:2].sum() + 2 * y[2:-1:2].sum())


# --- clipping (item 3)


def clipped(manifold: Manifold, x: Tensor, vectors: Tensor, bound: float) -> Tensor:
    """min(1, bound / |v|_x) v for each of the vectors, in the Riemannian norm: ``[..., *point]``.

    Source: PriRFed, Algorithm 2, line 4.
    """
    length = manifold.norm(x, vectors)
    return clip_factor(length, bound).reshape(length.shape + (1,) * manifold.point_ndim) * vectors


class Sensitivity(NamedTuple):
    """How far one replaced record moves a clipped mean: by opposite records, in a search, and at most: 2 tau / b."""

    opposite: float
    searched: float
    bound: float


def clip_sensitivity(
    manifold: Manifold, x: Tensor, size: int, bound: float, tries: int = 2000, seed: int = 0
) -> Sensitivity:
    """Replace one record of a batch of ``size``: the pair that attains 2 tau / b, random pairs up to 10^3 tau long."""
    rng = stream(seed, "clip sensitivity")

    def draw(count: int) -> Tensor:
        vectors = manifold.tangent_gaussian(x, normal((count, manifold.noise_size(x)), rng))
        scale = bound * 10 ** torch.from_numpy(rng.uniform(-2, 3, count))
        return scale.reshape(-1, *[1] * manifold.point_ndim) * vectors

    def moved(one: Tensor, other: Tensor) -> Tensor:  # both batches hold the same other records
        rest = clipped(manifold, x, draw(size), bound)[1:].sum(0)
        means = [(rest + clipped(manifold, x, v, bound)) / size for v in (one, other)]
        return manifold.norm(x, means[0] - means[1])

    searched = moved(draw(tries), draw(tries)).max()
    direction = draw(1)
    far = direction / manifold.norm(x, direction).reshape(-1, *[1] * manifold.point_ndim)
    opposite = moved(5 * bound * far, -2 * bound * far).max()
    return Sensitivity(float(opposite), float(searched), 2 * bound / size)


# --- rounds and means (items 4 and 5)


def round_and_step(
    manifold: Manifold, x: Tensor, slopes: Tensor, noise: Tensor, weights: Tensor, lr: float
) -> tuple[Tensor, Tensor]:
    """Log_x of the new point after every agent's step and a tangent mean; and -lr sum p_i (slope_i + noise_i).

    Equal as long as every lr |slope + noise| is below the injectivity radius. Shapes: ``slopes``, ``noise``
    ``[N, *point]``, ``weights`` [N]. Source: PriRFed, proof of Theorem 5.1.
    """
    uploaded = manifold.exp(x, -lr * (slopes + noise))
    new = tangent_mean(manifold, x, uploaded, weights)
    share = (weights / weights.sum()).reshape(-1, *[1] * manifold.point_ndim)
    return manifold.log(x, new), -lr * (share * (slopes + noise)).sum(0)


def wrapped(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """On the sphere, pi < |v| < 2 pi: Log_x(Exp_x(v)), and v (1 - 2 pi / |v|), the way round the other side.

    Shapes: ``x``, ``v`` [..., D].
    """
    sphere = Sphere()
    sphere.require_tangent("v", sphere.require_point("x", x), v)
    return sphere.log(x, sphere.exp(x, v)), v * (1 - 2 * math.pi / v.norm(dim=-1, keepdim=True))


def gradient(manifold: Manifold, function: Callable[[Tensor], Tensor], x: Tensor, step: float = 1e-5) -> Tensor:
    """The Riemannian gradient of a scalar function by central differences along geodesics: ``[*point]``."""
    basis = manifold.basis(manifold.require_point("x", x))
    rise = function(manifold.exp(x, step * basis)) - function(manifold.exp(x, -step * basis))
    return (rise.reshape(-1, *[1] * manifold.point_ndim) / (2 * step) * basis).sum(0)


def hessian(manifold: Manifold, function: Callable[[Tensor], Tensor], x: Tensor, step: float = 1e-3) -> Tensor:
    """The Riemannian Hessian [d, d] in ``manifold.basis(x)`` by second differences along geodesics."""
    basis = manifold.basis(manifold.require_point("x", x))
    axis = -1 - manifold.point_ndim
    pairs = basis.unsqueeze(axis), basis.unsqueeze(axis - 1)

    def bent(v: Tensor) -> Tensor:  # fourth order in the step
        at = [function(manifold.exp(x, k * step * v)) for k in (-2, -1, 0, 1, 2)]
        return (-at[0] + 16 * at[1] - 30 * at[2] + 16 * at[3] - at[4]) / (12 * step**2)

    return (bent(pairs[0] + pairs[1]) - bent(pairs[0] - pairs[1])) / 4  # 4 <u, H v> = q(u + v) - q(u - v)


def variance_reduced(
    manifold: Manifold, x: Tensor, anchor: Tensor, here: Tensor, there: Tensor, bounds: tuple[float, float]
) -> Tensor:
    """DP-RSVRG's direction without noise for EVERY record that may be drawn, ``[N_i, *point]``.

    ``here``, ``there``: the records' gradients at x and at the anchor; ``bounds`` tau_0 (full gradient) and tau_1.
    With equal bounds their mean is the clipped local gradient at x.
    Source: PriRFed, Algorithm 3, line 8.
    """
    full = clipped(manifold, anchor, there, bounds[0]).mean(0)
    away = clipped(manifold, anchor, there, bounds[1]) - full
    return clipped(manifold, x, here, bounds[1]) - manifold.transport(anchor, x, away)


# --- the leading eigenvector (item 14)


class Rayleigh(NamedTuple):
    """f(x) = -(z.x)^2 on the sphere: |grad f|, |z|^2 |sin 2 angle|, and Hess f in ``basis(x)``.

    The paper prints ``-hessian``, and bounds the slope by 2 |z|^2. Shapes: ``hessian`` [d, d].
    """

    slope: float
    sine: float
    hessian: Tensor


def rayleigh(x: Tensor, z: Tensor) -> Rayleigh:
    """The constants of one record of the eigenvector problem. Shapes: ``x``, ``z`` [D].

    grad f = -2 a (z - a x) with a = z.x; Hess f[v] = -2 (I - x x^T) z z^T v + 2 a^2 v.
    Source: PriRFed, section 6.1.
    """
    sphere = Sphere()
    sphere.require_point("x", x)
    a, basis = z @ x, sphere.basis(x)
    angle = torch.atan2((z - a * x).norm(), a)
    moved = torch.stack([-2 * sphere.project(x, (z @ v) * z) + 2 * a**2 * v for v in basis])
    slope = Eigenvector().gradients(x, {"z": z[None]}).norm()
    return Rayleigh(float(slope), float(z @ z * (2 * angle).sin().abs()), basis @ moved.mT)

"""Chapter 1's expectations: bias of a batch, error of drawn views, effect of noise, sampled clients; both sides.

Few enough outcomes that all of them can be counted, beside Monte Carlo with its standard error. The small clients
are those of chapter01_theory, float64.
"""

from __future__ import annotations

import math
from itertools import combinations, product
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad, jacrev, vmap

from fedbook.lab.chapter01_theory import (
    SIZES,
    VIEWS,
    WIDTH,
    Sides,
    Toy,
    all_view_pairs,
    fresh_others,
    others,
    toy,
    trained_loss,
)
from fedbook.papers.fedsc.spectral import correlation, spectral_loss
from fedbook.randomness import normal, stream

# --- D6, D7: batches and drawn views


class Spread(NamedTuple):
    """Of one client: S^2, the variance of R(x) over its samples, and W, of z z^T over a sample's views (mean)."""

    samples: Tensor
    views: Tensor


def spread(z: Tensor) -> Spread:
    """S^2 and W of a client's bank. Shapes: ``z`` [n, K, H]."""
    outer = torch.einsum("nkg,nkh->nkgh", z, z)
    each = outer.mean(1)
    inside = (outer - each[:, None]).square().sum((2, 3)).mean()
    return Spread((each - each.mean(0)).square().sum((1, 2)).mean(), inside)


def batch_error(z: Tensor, batch: int, pairs: int) -> Tensor:
    """E |R_batch - R|^2 = (n - B) / (B (n - 1)) S^2 + W / (2 V B), ``pairs`` V, a batch without replacement.

    Shapes: ``z`` [n, K, H] to [].
    """
    found = spread(z)
    between = (len(z) - batch) / (batch * max(len(z) - 1, 1))
    return between * found.samples + found.views / (2 * pairs * batch)


class BatchBias(NamedTuple):
    """Mean over all batches, and exact value + formula: for the ``loss`` and its ``gradient``; how large the bias is.

    ``outcomes``: how many batches were counted. ``bias``: of the loss, and the norm of the gradient's.
    """

    loss: Sides
    gradient: Sides
    bias: tuple[float, float]
    outcomes: int


def batch_bias(samples: int = 4, batch: int = 2, pairs: int = 1, alpha: float = 0.4, seed: int = 0) -> BatchBias:
    """All C(n, B) K^(2 V B) batches of a client with others: E L_batch = L + alpha / 2 E |R_batch - R|^2. Equal."""
    outcomes = math.comb(samples, batch) * VIEWS ** (2 * pairs * batch)
    small = toy((samples,), seed)
    rest = normal((WIDTH, WIDTH), stream(seed, "others"))
    chosen = torch.tensor(list(combinations(range(samples), batch)))  # [C, B]
    views = torch.tensor(list(product(range(VIEWS), repeat=2 * pairs * batch))).view(-1, batch, 2 * pairs)

    def mean(theta: Tensor) -> Tensor:
        z = small.embed(theta)[chosen[:, None, :, None], views]  # [C, K^(2VB), B, 2V, H]
        return vmap(lambda one: spectral_loss(one, alpha, rest).total)(z.flatten(0, 1)).mean()

    def exact(theta: Tensor) -> Tensor:
        return spectral_loss(all_view_pairs(small.embed(theta)), alpha, rest).total

    def formula(theta: Tensor) -> Tensor:
        return exact(theta) + alpha / 2 * batch_error(small.embed(theta), batch, pairs)

    theta = small.theta
    loss, gradient = Sides(mean(theta), formula(theta)), Sides(grad(mean)(theta), grad(formula)(theta))
    bias = float(loss.left - exact(theta)), float((gradient.left - grad(exact)(theta)).norm())
    return BatchBias(loss, gradient, bias, outcomes)


class Estimate(NamedTuple):
    """A Monte Carlo mean, its standard error, and the law it should obey."""

    mean: float
    error: float
    law: float


def matrix_error_counted(views: int = 2, samples: int = 3, seed: int = 0) -> Sides:
    """E |R_drawn - R|^2 of a shared matrix over all K^(n V) draws of views, and W / (V n). Equal."""
    small = toy((samples,), seed)
    z = small.embed(small.theta)
    drawn = torch.tensor(list(product(range(VIEWS), repeat=samples * views))).view(-1, samples, views)
    matrices = vmap(correlation)(z[torch.arange(samples)[:, None], drawn])
    return Sides((matrices - correlation(z)).square().sum((1, 2)).mean(), spread(z).views / (views * samples))


def matrix_error(views: int = 5, samples: int = 20, draws: int = 2000, seed: int = 0) -> Estimate:
    """E |R_drawn - R|^2 of a shared matrix by Monte Carlo; the law is W / (V n)."""
    small = toy((samples,), seed)
    z = small.embed(small.theta)
    drawn = torch.from_numpy(stream(seed, "drawn views").integers(0, VIEWS, (draws, samples, views)))
    matrices = vmap(correlation)(z[torch.arange(samples)[:, None], drawn])
    return estimate((matrices - correlation(z)).square().sum((1, 2)), float(spread(z).views) / (views * samples))


def estimate(values: Tensor, law: float) -> Estimate:
    """Mean and standard error of independent ``values`` [D]."""
    return Estimate(float(values.mean()), float(values.std() / math.sqrt(len(values))), law)


# --- D8: noise in the shared matrices


class NoiseEffect(NamedTuple):
    """E |change of the averaged gradient|^2: by formula, entry by entry of the noise, and by Monte Carlo."""

    formula: float
    entry_by_entry: float
    drawn: Estimate


def noise_effect(sigma: float = 0.3, sizes: tuple[int, ...] = SIZES, draws: int = 1000, seed: int = 0) -> NoiseEffect:
    """Noise of deviation ``sigma`` on each entry of each upload: sigma^2 sum_k q_k^2 sum_p |d_p (R - q_k R_k)|^2.

    ``entry_by_entry``: the training gradients are linear in the noise, so a unit of it in every entry of every upload
    in turn says it all.
    """
    small = toy(sizes, seed)
    shape = (small.clients, WIDTH, WIDTH)
    exact = torch.stack([correlation(z) for z in small.client_views(small.theta)])

    def change(noise: Tensor) -> Tensor:
        """What noise [J, H, H] in the uploads does to the averaged gradient."""
        return _trained_gradient(small, exact + noise) - clean

    clean = _trained_gradient(small, exact)
    units = torch.eye(math.prod(shape), dtype=torch.float64).view(-1, *shape)
    counted = sigma**2 * float(vmap(change)(units).square().sum())
    noise = sigma * normal((draws, *shape), stream(seed, "noise"))
    formula = sigma**2 * float(noise_law(client_slopes(small), small.shares))
    return NoiseEffect(formula, counted, estimate(vmap(change)(noise).square().sum(1), formula))


def _trained_gradient(small: Toy, uploads: Tensor) -> Tensor:
    rest = others(list(uploads), small.shares)
    return grad(lambda theta: trained_loss(small, theta, rest, small.shares, small.shares))(small.theta)


def client_slopes(small: Toy) -> Tensor:
    """d R_j / d theta of every client: [J, H, H, P]."""
    return jacrev(lambda theta: torch.stack([correlation(z) for z in small.client_views(theta)]))(small.theta)


def noise_law(slopes: Tensor, shares: Tensor) -> Tensor:
    """sum_k q_k^2 sum_p |d_p (R - q_k R_k)|^2. Shapes: ``slopes`` [J, H, H, P], ``shares`` [J] to []."""
    weighted = shares[:, None, None, None] * slopes
    return (shares**2 * (weighted.sum(0) - weighted).square().sum((1, 2, 3))).sum()


def noise_cancels(seed: int = 0) -> Sides:
    """What noise N does to the averaged gradient [P], and minus what -N does. Equal: its mean is 0, it is no bias."""
    small = toy(seed=seed)
    exact = torch.stack([correlation(z) for z in small.client_views(small.theta)])
    noise, clean = normal(tuple(exact.shape), stream(seed, "noise")), _trained_gradient(small, exact)
    return Sides(_trained_gradient(small, exact + noise) - clean, clean - _trained_gradient(small, exact - noise))


def symmetrising(seed: int = 0) -> dict[str, Sides]:
    """A noisy matrix S against its symmetric part: "loss", "gradient" equal; "energy" E |sym N|^2 and H (H + 1) / 2.

    The energy is that of unit noise, summed over all entries; E |N|^2 is H^2.
    """
    small = toy(seed=seed)
    uploads = normal((small.clients, WIDTH, WIDTH), stream(seed, "noise"))
    uploads = torch.stack(fresh_others(small, small.theta)) + uploads
    found = []
    for rest in (uploads, (uploads + uploads.mT) / 2):
        value = trained_loss(small, small.theta, list(rest), small.shares, small.shares)
        found.append((value, _trained_gradient(small, rest)))
    units = torch.eye(WIDTH**2, dtype=torch.float64).view(-1, WIDTH, WIDTH)
    energy = ((units + units.mT) / 2).square().sum()
    law = torch.tensor(WIDTH * (WIDTH + 1) / 2, dtype=torch.float64)
    return {
        "loss": Sides(found[0][0], found[1][0]),
        "gradient": Sides(found[0][1], found[1][1]),
        "energy": Sides(energy, law),
    }


# --- sampled clients


def cohort_sampling(clients: int = 6, size: int = 2, width: int = 5, seed: int = 0) -> dict[str, Sides]:
    """Mean and variance of the average of m of J vectors over all C(J, m) cohorts, and their laws. Equal.

    Variance (J / m - 1) / (J - 1) times the mean of |theta_j - mean|^2: 0 at full participation.
    """
    theta = normal((clients, width), stream(seed, "cohorts"))
    averages = torch.stack([theta[list(chosen)].mean(0) for chosen in combinations(range(clients), size)])
    centre = theta.mean(0)
    law = (clients / size - 1) / (clients - 1) * (theta - centre).square().sum(1).mean()
    return {
        "mean": Sides(averages.mean(0), centre),
        "variance": Sides((averages - averages.mean(0)).square().sum(1).mean(), law),
    }

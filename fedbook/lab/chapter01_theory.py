"""Chapter 1's identities about the loss: trace form, decomposition, aligned gradients; both sides of each.

The kernel of augmentations is finite: K views a sample, each as likely, drawn with replacement. So every expectation
is a finite sum and every identity holds to rounding, float64. The least loss stands in chapter01_spectrum, what
FedAvg descends instead in chapter01_gap, batches, drawn views and noise in chapter01_sampling, real digits in
chapter01_descent and chapter01_floor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad

from fedbook.papers.fedsc.spectral import Parts, bank_objective, correlation, spectral_loss
from fedbook.randomness import normal, stream

SIZES, VIEWS = (2, 3, 5), 3
PIXELS, HIDDEN, WIDTH = 5, 6, 4


class Sides(NamedTuple):
    """Two sides, each computed in its own way: equal, unless the function says otherwise."""

    left: Tensor
    right: Tensor


@dataclass(frozen=True)
class Toy:
    """Clients with views of a few samples, and a smooth network z(x; theta) with H outputs.

    Shapes: ``images`` [N, K, d], ``owner`` [N] (the client of each sample), ``theta`` [P].
    """

    images: Tensor
    owner: Tensor
    theta: Tensor

    @property
    def clients(self) -> int:
        return int(self.owner.max()) + 1

    @property
    def shares(self) -> Tensor:
        """q_j, [J]."""
        return torch.bincount(self.owner).double() / len(self.owner)

    def embed(self, theta: Tensor) -> Tensor:
        """z of every view under ``theta`` [P]: [N, K, H]."""
        w, b, out, c = theta.split([PIXELS * HIDDEN, HIDDEN, HIDDEN * WIDTH, WIDTH])
        return (self.images @ w.view(PIXELS, HIDDEN) + b).tanh() @ out.view(HIDDEN, WIDTH) + c

    def client_views(self, theta: Tensor) -> list[Tensor]:
        """z of each client's views, J tensors [n_j, K, H]."""
        z = self.embed(theta)
        return [z[self.owner == j] for j in range(self.clients)]


def toy(sizes: Sequence[int] = SIZES, seed: int = 0, same_data: bool = False) -> Toy:
    """A random toy with ``sizes`` n_j; ``same_data``: every client has the first one's samples."""
    rng = stream(seed, "contrast toy")
    centres = normal((sum(sizes), 1, PIXELS), rng)
    images = centres + 0.5 * normal((sum(sizes), VIEWS, PIXELS), rng)
    if same_data:
        images = images[: sizes[0]].repeat(len(sizes), 1, 1)
    theta = 0.5 * normal((PIXELS * HIDDEN + HIDDEN + HIDDEN * WIDTH + WIDTH,), rng)
    return Toy(images, torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)), theta)


def pairwise_loss(z: Tensor) -> Tensor:
    """L^SC by its definition: 1/2 E(z^T z^-)^2 over all (N K)^2 pairs - E z^T z^+ over each sample's K^2 pairs.

    Shapes: ``z`` [N, K, H] to []. Source: FedSC, section 3.
    """
    samples, views, _ = z.shape
    products = torch.einsum("nkh,mlh->nkml", z, z)  # z^T z' of every pair
    same = torch.stack([products[i, :, i] for i in range(samples)])  # [N, K, K]
    return products.square().sum() / (2 * (samples * views) ** 2) - same.sum() / (samples * views**2)


def all_view_pairs(z: Tensor) -> Tensor:
    """Every ordered pair of a sample's views as one (v, v + V): on these a batch's loss is the bank's exact loss.

    Shapes: ``z`` [n, K, H] to [n, 2 K^2, H].
    """
    views = z.shape[1]
    return torch.cat([z.repeat_interleave(views, 1), z.repeat(1, views, 1)], 1)


def others(matrices: Sequence[Tensor], shares: Tensor) -> list[Tensor]:
    """R_{-j} = sum_{j' != j} q_j' R_j' / (1 - q_j) of every client, summed over the others one by one.

    One client has no others: zeros. Shapes: J matrices [H, H], ``shares`` [J] to J matrices.
    Source: FedSC, below eq. (4).
    """
    if len(matrices) == 1:
        return [torch.zeros_like(matrices[0])]
    every = range(len(matrices))
    return [sum(shares[k] * matrices[k] for k in every if k != j) / (1 - shares[j]) for j in every]


# --- D1: what the loss is


def trace_form(seed: int = 0) -> Sides:
    """The double sum over all pairs of views, and the package's trace form. Equal. Source: FedSC, eq. (1), (9)."""
    small = toy(seed=seed)
    z = small.embed(small.theta)
    return Sides(pairwise_loss(z), bank_objective(z).loss)


# --- D3, D4: from one loss to local losses


class Decomposition(NamedTuple):
    """``loss`` by pairs over the union, and the q-weighted sums of the three parts of eq. (4) with their signs."""

    loss: Tensor
    contraction: Tensor
    intra: Tensor
    inter: Tensor


def decomposition(seed: int = 0, uniform: bool = False) -> Decomposition:
    """Both sides of eq. (4) for clients of unequal sizes; ``uniform``: with 1/J for q_j, which is wrong."""
    small = toy(seed=seed)
    views = small.client_views(small.theta)
    q = torch.full_like(small.shares, 1 / len(views)) if uniform else small.shares
    parts = _parts(views, q, others([correlation(z) for z in views], q))
    sums = (sum(w * part for w, part in zip(q, column, strict=True)) for column in zip(*parts, strict=True))
    contraction, intra, inter = sums
    return Decomposition(pairwise_loss(small.embed(small.theta)), contraction, intra, inter / 2)


def _parts(views: Sequence[Tensor], alpha: Tensor, rest: Sequence[Tensor]) -> list[Parts]:
    """Each client's loss as the package trains it, eq. (80), on its whole bank."""
    return [spectral_loss(all_view_pairs(z), a, r) for z, a, r in zip(views, alpha, rest, strict=True)]


def averaged_loss(
    small: Toy, theta: Tensor, rest: Sequence[Tensor], alpha: Tensor, q: Tensor, cross: float = 1.0
) -> Tensor:
    """sum_j q_j (contraction + intra + ``cross`` inter), and gradients reach ``rest``, the J matrices R_{-j}."""
    total = torch.zeros((), dtype=theta.dtype)
    for z, a, r, w in zip(small.client_views(theta), alpha, rest, q, strict=True):
        own, inter = spectral_loss(all_view_pairs(z), a), (1 - a) * (correlation(z) @ r).trace()
        total = total + w * (own.contraction + own.intra + cross * inter)
    return total


def trained_loss(small: Toy, theta: Tensor, rest: Sequence[Tensor], alpha: Tensor, q: Tensor) -> Tensor:
    """sum_j q_j L_j(theta; ``rest``) as the package trains it: it freezes ``rest`` itself."""
    return sum(w * p.total for w, p in zip(q, _parts(small.client_views(theta), alpha, rest), strict=True))


def fresh_others(small: Toy, theta: Tensor) -> list[Tensor]:
    """R_{-j}(theta) of every client."""
    return others([correlation(z) for z in small.client_views(theta)], small.shares)


def global_gradient(small: Toy, theta: Tensor) -> Tensor:
    """The gradient [P] of the double sum over pairs."""
    return grad(lambda t: pairwise_loss(small.embed(t)))(theta)


def gradient_alignment(seed: int = 0) -> dict[str, float]:
    """Relative distance of sum_j q_j grad L_j from the gradient of L, for the right local loss and wrong ones.

    Source: FedSC, eq. (6).
    """
    small = toy(seed=seed)
    theta, q = small.theta, small.shares
    right, fresh = global_gradient(small, theta), fresh_others(small, theta)
    old = fresh_others(small, theta + 0.1 * right)  # the point one gradient step of 0.1 ago
    uniform, one = torch.full_like(q, 1 / len(q)), torch.ones_like(q)
    slope = grad(lambda t, *rest: averaged_loss(small, t, *rest))
    found = {
        "frozen, weight 1": grad(lambda t: trained_loss(small, t, fresh_others(small, t), q, q))(theta),
        "frozen, weight 1/2": slope(theta, fresh, q, q, 0.5),
        "not frozen, weight 1/2": grad(lambda t: averaged_loss(small, t, fresh_others(small, t), q, q, 0.5))(theta),
        "not frozen, weight 1": grad(lambda t: averaged_loss(small, t, fresh_others(small, t), q, q))(theta),
        "FedAvg + SC": slope(theta, fresh, one, q),
        "uniform mean": slope(theta, fresh, q, uniform),
        "old matrices": slope(theta, old, q, q),
    }
    return {name: float((g - right).norm() / right.norm()) for name, g in found.items()}


def value_offset(seed: int = 0) -> Sides:
    """sum_j q_j L_j(theta; R_{-j}), and L + 1/2 sum_j q_j (1 - q_j) Tr(R_j R_{-j}). Equal: values are not aligned."""
    small = toy(seed=seed)
    theta, q = small.theta, small.shares
    fresh, matrices = fresh_others(small, theta), [correlation(z) for z in small.client_views(theta)]
    offset = sum(w * (1 - w) * (r @ s).trace() for w, r, s in zip(q, matrices, fresh, strict=True)) / 2
    return Sides(trained_loss(small, theta, fresh, q, q), pairwise_loss(small.embed(theta)) + offset)


def closed_form_gradient(alpha: float = 0.3, seed: int = 0) -> Sides:
    """Autograd in z [B, 2V, H], and 2/N Z (alpha R + (1 - alpha) sym S) - partner / (B V). Equal. N = 2 B V."""
    rng = stream(seed, "gradient")
    z, noisy = normal((7, 4, WIDTH), rng), normal((WIDTH, WIDTH), rng)
    batch, views, _ = z.shape
    matrix = sum(torch.outer(row, row) for row in z.flatten(0, 1)) / (batch * views)
    slope = 2 / (batch * views) * z @ (alpha * matrix + (1 - alpha) * (noisy + noisy.T) / 2)
    partner = torch.stack([z[:, (v + views // 2) % views] for v in range(views)], 1)
    return Sides(grad(lambda t: spectral_loss(t, alpha, noisy).total)(z), slope - partner / (batch * views // 2))

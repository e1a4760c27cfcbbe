"""Chapter 4's mathematics: what clipping does to a mean and to a sum, and who is in a cohort.

The chapter derives each of these; here they are computed, in the dtype of the inputs (float64 where an
identity is checked). Sharpness-aware steps stand in chapter04_sam, Renyi divergences in chapter04_renyi,
convergence in chapter04_descent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from fedbook.privacy.mechanisms import clip, row_norm
from fedbook.randomness import normal, stream

Update = Mapping[str, Tensor]  # name -> [K, ...], a row a client

# --- clipping (D1, D2, D21)


def clip_factors(updates: Tensor, bound: float) -> Tensor:
    """alpha_i = min(1, C / |Delta_i|): by how much each client's update is scaled.

    Shapes: ``updates`` [K, P] to [K]. Source: DP2-FedSAM, equation (22).
    """
    return bound / updates.norm(dim=1).clamp(min=bound)


class Bias(NamedTuple):
    """What clipping does to a mean: both means [P], their distance, their angle in degrees, the factors [K]."""

    mean: Tensor
    clipped: Tensor
    distance: float
    angle: float
    factors: Tensor


def clipping_bias(updates: Tensor, bound: float) -> Bias:
    """The mean of clipped updates beside the mean of the updates; the angle is NaN where one of them is 0.

    Shapes: ``updates`` [K, P].
    """
    factors = clip_factors(updates, bound)
    mean, clipped = updates.mean(0), (factors[:, None] * updates).mean(0)
    cosine = (mean @ clipped) / (mean.norm() * clipped.norm())
    angle = math.degrees(math.acos(float(cosine.clamp(-1, 1))))
    return Bias(mean, clipped, float((clipped - mean).norm()), angle, factors)


def unequal_clipping(gradients: Tensor, lr: float, bound: float) -> dict[str, float]:
    """One full-batch step at SAM radius 0: what unequal clip factors add to <grad F, step>, and its two bounds.

    ``term``: <grad F, mean of the clipped updates - mean factor * mean update>. ``printed``: the paper's
    bound lr * spread * L^2 q^2, 0 here. ``honest``: lr * spread * G * |grad F|, which holds. ``step``: length
    of the mean clipped update. ``spread``: mean |alpha_i - mean alpha|.

    Shapes: ``gradients`` [K, P]. Source: DP2-FedSAM, Lemma 8, step (e).
    """
    bias = clipping_bias(-lr * gradients, bound)
    slope, average = gradients.mean(0), bias.factors.mean()
    spread = (bias.factors - average).abs().mean()
    honest = lr * spread * gradients.norm(dim=1).max() * slope.norm()
    term = slope @ (bias.clipped - average * bias.mean)
    return {"term": float(term), "printed": 0.0, "honest": float(honest), "step": float(bias.clipped.norm()),
            "spread": float(spread)}  # fmt: skip


def per_tensor_clip(update: Update, bound: float) -> dict[str, Tensor]:
    """Each tensor of each row clipped by itself: what must NOT be done (joint norm up to sqrt(tensors) * bound).

    Shapes: name -> [K, ...].
    """
    return {name: clip({name: x}, bound)[0][name] for name, x in update.items()}


def clipped_sum(update: Update, sizes: Tensor, bound: float = 1.0) -> dict[str, Tensor]:
    """The sum of rows clipped by one norm each, which is what the paper's Lemma 6 is about; ``sizes`` play no part."""
    return {name: x.sum(0) for name, x in clip(update, bound)[0].items()}


def per_tensor_sum(update: Update, sizes: Tensor, bound: float = 1.0) -> dict[str, Tensor]:
    """The sum of rows clipped tensor by tensor."""
    return {name: x.sum(0) for name, x in per_tensor_clip(update, bound).items()}


def size_weighted_sum(update: Update, sizes: Tensor, bound: float = 1.0) -> dict[str, Tensor]:
    """The cohort's size times the average of clipped rows weighted by ``sizes``: the divisor depends on the data."""
    share = len(sizes) * sizes.double() / sizes.sum()
    return {name: torch.einsum("k,k...->...", share.to(x), x) for name, x in clip(update, bound)[0].items()}


def attack(
    aggregate: Callable[[Update, Tensor], Update], update: Update, sizes: Tensor, *, replace: bool = False, seed: int
) -> float:
    """The largest change of an aggregate that a search finds when one client joins, or is replaced by its opposite.

    The attacker sends huge updates in 20 random directions and along the honest mean, with data sizes from 1 to
    10^6. A lower bound of the sensitivity. Shapes: ``update`` name -> [K, ...], ``sizes`` [K].
    """
    rng, worst = stream(seed, "attack"), 0.0
    tries = [{n: x.mean(0) for n, x in update.items()}, *_directions(update, rng)]
    for direction, size in product(tries, (1, 10**3, 10**6)):
        joined, other = (_with(update, {n: sign * 1e6 * x for n, x in direction.items()}) for sign in (1.0, -1.0))
        more = torch.cat([sizes, sizes.new_tensor([size])])
        before = aggregate(other, more) if replace else aggregate(update, sizes)
        after = aggregate(joined, more)
        change = {n: (after[n] - before[n])[None] for n in after}
        worst = max(worst, float(row_norm(change)))
    return worst


def _directions(update: Update, rng) -> list[dict[str, Tensor]]:
    return [{n: normal(tuple(x.shape[1:]), rng, x) for n, x in update.items()} for _ in range(20)]


def _with(update: Update, row: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: torch.cat([x, row[name][None]]) for name, x in update.items()}


# --- sampling and noise (D3, D20)


def noise_norm(dimension: int, bound: float, noise_multiplier: float, cohort: float) -> float:
    """Root mean square length of the noise on the averaged update: sqrt(d) * sigma * C / (r N)."""
    std = bound * noise_multiplier
    return math.sqrt(dimension) * std / cohort

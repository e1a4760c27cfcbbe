"""Losses that compare two views of a sample by the cosine of their representations.

All run under vmap and look at no value. ``weight`` [B] is 1 for a sample and 0 for a row that only fills up the batch:
no loss depends on it, and a batch of such rows alone gives 0. The cosine with a zero vector is 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from fedbook import arguments


def byol_loss(prediction: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean of 2 - 2 cos(prediction, target), the squared distance of the unit vectors; 0 to 4.

    One direction; the views are swapped by the caller. No gradient reaches the target, and as only directions count,
    the gradient of a prediction is orthogonal to it.
    Shapes: ``prediction``, ``target`` [B, D], ``weight`` [B]; a scalar.
    Raises: TypeError, ValueError. Source: Grill et al. 2020, equation 2.
    """
    cosine, real = _cosine(prediction, target, weight)
    return _mean(2 - 2 * cosine, real)


def simsiam_loss(prediction: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean of -cos(prediction, target); -1 to 1, and :func:`byol_loss` is 2 + 2 times this one.

    One direction, no gradient to the target.
    Shapes: ``prediction``, ``target`` [B, D], ``weight`` [B]; a scalar.
    Raises: TypeError, ValueError. Source: Chen, He 2021, equation 1.
    """
    cosine, real = _cosine(prediction, target, weight)
    return _mean(-cosine, real)


def nt_xent(
    a: Tensor,
    b: Tensor,
    temperature: float = 0.1,
    weight: Tensor | None = None,
    negatives: Tensor | None = None,
    negative_weight: Tensor | None = None,
) -> Tensor:
    """The normalised, temperature-scaled cross-entropy: which of the other views is this sample's second one?

    Each of the 2B views is an anchor. Its candidates are all other views and the ``negatives`` (a dictionary of other
    clients' samples), scored by cosine / temperature. Rows of weight 0 are neither anchors nor candidates.
    Shapes: ``a``, ``b`` [B, D], ``weight`` [B]; ``negatives`` [M, D], ``negative_weight`` [M]; a scalar.
    Raises: TypeError, ValueError. Source: Chen, Kornblith, Norouzi, Hinton 2020, equation 1; FedCA (the dictionary).
    """
    a, b, real = _pair("a", a, "b", b, weight)
    temperature = arguments.real("temperature", temperature, above=0.0)
    views, anchors = torch.cat([a, b]), torch.cat([real, real])
    number = torch.arange(len(views), device=views.device)
    candidates, allowed = views, anchors & (number != number[:, None])  # [2B, 2B]
    if negatives is not None:
        negatives, entries = _directions("negatives", negatives, "negative_weight", negative_weight, a.shape[1])
        candidates = torch.cat([views, negatives])
        allowed = torch.cat([allowed, entries.expand(len(views), len(negatives))], 1)  # [2B, 2B + M]
    elif negative_weight is not None:
        raise arguments.wrong(ValueError, "negative_weight", negative_weight, "None without negatives")
    scores = views @ candidates.mT / temperature
    scores = torch.where(allowed, scores, -math.inf)
    agreement = (a * b).sum(1) / temperature
    return _mean(scores.logsumexp(1) - torch.cat([agreement, agreement]), anchors)


def relation_loss(
    a: Tensor,
    b: Tensor,
    reference: Tensor,
    temperature: float = 0.1,
    weight: Tensor | None = None,
    reference_weight: Tensor | None = None,
) -> Tensor:
    """How differently the two views of a sample relate to other samples, in nats; 0 where they relate equally.

    p = softmax over the reference of cos(a, .) / temperature, p' that of b, m = (p + p') / 2: the mean of
    (KL(m | p) + KL(m | p')) / 2. FedX calls it Jensen-Shannon, which has KL(p | m) and stays below log 2; this one
    does not. The gradient passes through m too. Without a real reference row it is 0.
    Shapes: ``a``, ``b`` [B, D], ``reference`` [R, D], ``weight`` [B], ``reference_weight`` [R]; a scalar.
    Raises: TypeError, ValueError. Source: FedX (Han et al. 2022), the relational loss.
    """
    a, b, real = _pair("a", a, "b", b, weight)
    reference, entries = _directions("reference", reference, "reference_weight", reference_weight, a.shape[1])
    temperature = arguments.real("temperature", temperature, above=0.0)
    if len(reference) == 0:
        raise arguments.wrong(ValueError, "reference", reference, "a floating-point tensor of at least one row")
    log_p, log_q = (
        torch.where(entries, log_softmax(torch.where(entries, x @ reference.mT / temperature, -math.inf), 1), 0.0)
        for x in (a, b)
    )
    half = 0.5 * (log_p - log_q)
    excess = torch.logaddexp(half, -half) - math.log(2)  # log m - (log p + log p') / 2, exactly 0 for p = p'
    divergence = torch.where(entries, (0.5 * (log_p + log_q) + excess).exp() * excess, 0.0).sum(1)
    return _mean(divergence, real)


def _cosine(prediction: Tensor, target: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:
    prediction, target, real = _pair("prediction", prediction, "target", target, weight)
    return (prediction * target.detach()).sum(1), real


def _pair(name: str, a: Tensor, other: str, b: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The directions of two batches of one shape, and which rows are real."""
    a, real = _directions(name, a, "weight", weight)
    b = arguments.tensor(other, b, shape=tuple(a.shape), kind="float", finite=False)
    return a, _directions(other, b, "weight", weight)[0], real


def _directions(
    name: str, x: Tensor, word: str, weight: Tensor | None, width: int | None = None
) -> tuple[Tensor, Tensor]:
    """x / |x| by row, a zero vector for zero vectors and for rows of weight 0, and which rows are real [B]."""
    arguments.tensor(name, x, shape=(None, width), kind="float", finite=False)
    if x.shape[1] == 0:
        raise arguments.wrong(ValueError, name, x, "a floating-point tensor of shape (rows, width), width at least 1")
    if weight is None:
        real = torch.ones(len(x), dtype=torch.bool, device=x.device)
    else:
        real = arguments.tensor(word, weight, shape=(len(x),), finite=False) > 0
        x = torch.where(real[:, None], x, 0.0)
    largest = x.detach().abs().amax(1, keepdim=True)
    x = x / torch.where(largest > 0, largest, 1.0)  # neither tiny nor huge vectors lose their direction
    # the largest entry is now 1, so the clamp only meets zero vectors
    return x * x.square().sum(1, keepdim=True).clamp(min=1.0).rsqrt(), real


def _mean(values: Tensor, real: Tensor) -> Tensor:
    """The mean over the real rows; 0 where there is none."""
    return torch.where(real, values, 0.0).sum() / real.sum().to(values.dtype).clamp(min=1)

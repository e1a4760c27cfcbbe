"""Products of rows, and scalar factors of the formulas that are accurate near zero with finite derivatives there.

Where sinh(t) / t and its like would divide 0 by 0, t is raised to a floor below which the quotient is 1 to the last
digit: unlike a clamp of t itself this changes no value.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor


def dot(u: Tensor, v: Tensor) -> Tensor:
    """Products of rows, last axis kept: ``[..., D], [..., D] -> [..., 1]``."""
    product = u * v
    if product.shape[-1] < 16:  # PyTorch sums very short rows several times slower than it multiplies them
        return product @ _ones((product.shape[-1], 1), product.dtype, product.device)
    return product.sum(-1, keepdim=True)


def dots(u: Tensor, v: Tensor) -> Tensor:
    """Products of rows: ``[..., D], [..., D] -> [...]``."""
    product = u * v
    if product.shape[-1] < 16:
        return product @ _ones((product.shape[-1],), product.dtype, product.device)
    return product.sum(-1)


def length(u: Tensor) -> Tensor:
    """Euclidean norms of rows, last axis kept; derivative 0 at 0: ``[..., D] -> [..., 1]``."""
    return torch.linalg.vector_norm(u, dim=-1, keepdim=True)


def divided(rows: Tensor, number: Tensor) -> Tensor:
    """rows / number, in the memory of ``rows``, a temporary of the caller, unless derivatives are recorded."""
    return rows / number if rows.requires_grad or number.requires_grad else rows.div_(number)


def root(q: Tensor) -> Tensor:
    """sqrt(q) for q >= 0, with derivative 0 at 0."""
    if not q.requires_grad:
        return q.sqrt()
    positive = q > 0
    return torch.where(positive, torch.where(positive, q, 1.0).sqrt(), 0.0)


def raised(t: Tensor) -> Tensor:
    """max(t, floor) with a floor below which sin(t) / t, sinh(t) / t and asinh(t) / t are 1 to the last digit."""
    return t.clamp_min(torch.finfo(t.dtype).eps ** 0.75)


def sinhc(t: Tensor) -> Tensor:
    """sinh(t) / t for t >= 0."""
    t = raised(t)
    return t.sinh() / t


def sinc(t: Tensor) -> Tensor:
    """sin(t) / t for t >= 0."""
    t = raised(t)
    return t.sin() / t


@functools.lru_cache(maxsize=256)
def _ones(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.ones(shape, dtype=dtype, device=device)

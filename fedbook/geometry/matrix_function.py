"""Functions of stacks of symmetric matrices, with derivatives that survive equal eigenvalues.

PyTorch's derivative of ``eigh`` divides by differences of eigenvalues: at every multiple of the identity it is NaN,
although f(A) = V f(Lambda) V^T is smooth. Its derivative (Daleckii, Krein) is V (G o (V^T dA V)) V^T with
G_ij = (f(l_i) - f(l_j)) / (l_i - l_j), and G has closed forms for the logarithm and the square root.
The exponential needs products only, which cost less than eigenvalues.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fedbook.geometry.batches import visible
from fedbook.geometry.scalars import sinhc

# exp(A) - 1 = A (c_1 + c_2 A + ... + c_12 A^11): the rest is below 1e-17 of the sum for |A| <= 0.3.
TAYLOR = [1 / math.factorial(k) for k in range(13)]
REACH, DOUBLINGS = 0.3, 9  # where looking at |A| would wait, nine doublings reach |A| = 150, e^(+-150)


def expm1(a: Tensor) -> Tensor:
    """exp(A) - I of symmetric A: Taylor's series of A / 2^k, then k times F -> 2 F + F^2. Shapes: ``[..., n, n]``.

    Carried as exp - 1, small A keeps all its digits however often F is doubled for the sake of a larger neighbour.
    """
    doublings = DOUBLINGS
    if visible(a):
        size = float(torch.linalg.vector_norm(a.detach(), dim=(-2, -1)).max()) if a.numel() else 0.0
        doublings = max(0, math.ceil(math.log2(size / REACH))) if REACH < size < math.inf else 0
    a = a * 0.5**doublings
    second = a @ a
    third = second @ a
    fourth = second @ second
    low, middle, high = (_cubic(a, second, third, TAYLOR[k : k + 4]) for k in (1, 5, 9))
    f = a @ (low + fourth @ (middle + fourth @ high))
    for _ in range(doublings):
        f = 2 * f + f @ f
    return f


class Logarithm(torch.autograd.Function):
    """log(A + shift I), shift 0 or 1 for each matrix. Shapes: ``a [..., n, n]``, ``shift [..., 1]`` boolean.

    Raises: ValueError with ``check`` if A + shift I is not positive definite.
    """

    @staticmethod
    def forward(ctx, a: Tensor, shift: Tensor, check: bool) -> Tensor:
        values, vectors = torch.linalg.eigh(a)
        if check:
            require_positive(values, shift)
        logs = shifted_log(values, shift)
        ctx.save_for_backward(logs, vectors)
        return _compose(vectors, logs)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:
        logs, vectors = ctx.saved_tensors
        half = 0.5 * logs
        gaps = (half.unsqueeze(-1) - half.unsqueeze(-2)).abs()
        ratios = (-half.unsqueeze(-1) - half.unsqueeze(-2)).exp() / sinhc(gaps)
        return _pull_back(vectors, ratios, grad), None, None


class SquareRoot(torch.autograd.Function):
    """A^(1/2). Shapes: ``[..., n, n] -> [..., n, n]``, symmetric positive definite."""

    @staticmethod
    def forward(ctx, a: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(a)
        roots = values.sqrt()
        ctx.save_for_backward(roots, vectors)
        return _compose(vectors, roots)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor) -> Tensor:
        roots, vectors = ctx.saved_tensors
        return _pull_back(vectors, 1 / (roots.unsqueeze(-1) + roots.unsqueeze(-2)), grad)


def shifted_log(values: Tensor, shift: Tensor) -> Tensor:
    """log(values + 1) where ``shift``, else log(values); differentiable in both cases."""
    near, far = torch.where(shift, values, 0.0), torch.where(shift, 1.0, values)
    return torch.where(shift, near.log1p(), far.log())


def require_positive(values: Tensor, shift: Tensor) -> None:
    """Raises: ValueError unless all of values + shift are positive."""
    if not bool((values > -shift.to(values.dtype)).all()):
        raise ValueError("y: got a matrix that is not positive definite; allowed is a symmetric positive definite one")


def _cubic(a: Tensor, second: Tensor, third: Tensor, c: list[float]) -> Tensor:
    """c_0 + c_1 A + c_2 A^2 + c_3 A^3."""
    total = torch.add(a * c[1], second, alpha=c[2]).add_(third, alpha=c[3])
    total.diagonal(dim1=-2, dim2=-1).add_(c[0])
    return total


def _compose(vectors: Tensor, values: Tensor) -> Tensor:
    return (vectors * values.unsqueeze(-2)) @ vectors.mT


def _pull_back(vectors: Tensor, ratios: Tensor, grad: Tensor) -> Tensor:
    grad = 0.5 * (grad + grad.mT)
    return vectors @ (ratios * (vectors.mT @ grad @ vectors)) @ vectors.mT

"""Functions of stacks of symmetric matrices, with derivatives that survive equal eigenvalues.

PyTorch's derivative of ``eigh`` divides by differences of eigenvalues: at every multiple of the identity it is NaN,
although f(A) = V f(Lambda) V^T is smooth. Its derivative (Daleckii, Krein) is V (G o (V^T dA V)) V^T with
G_ij = (f(l_i) - f(l_j)) / (l_i - l_j), and G has closed forms for the logarithm and the square root.
The exponential needs products only, which cost less than eigenvalues.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fedbook.geometry.batches import transformed, visible
from fedbook.geometry.scalars import sinhc

TAYLOR = [1 / math.factorial(k) for k in range(17)]
REACH = 0.8  # of 16 terms: the rest is below 1e-16 of the sum for |A| <= 0.8
DOUBLINGS = 8  # where looking at |A| would wait for a device: enough for |A| = 200, or eigenvalues up to e^200


def expm1(a: Tensor) -> Tensor:
    """exp(A) - I of symmetric A: Taylor's series at A / 2^k, then k times F -> 2 F + F^2. Shapes: ``[..., n, n]``.

    Carried as exp - 1, small A keeps all its digits however often F is doubled for the sake of a larger neighbour.
    The largest eigenvalue is at most the square root of the Frobenius norm of A^2.
    """
    second = a @ a
    doublings = DOUBLINGS
    if visible(a):
        size = float(torch.linalg.vector_norm(second.detach(), dim=(-2, -1)).max()) ** 0.5 if a.numel() else 0.0
        doublings = max(0, math.ceil(math.log2(size / REACH))) if REACH < size < math.inf else 0
    if doublings:
        a, second = a * 0.5**doublings, second * 0.25**doublings
    powers = a, second, second @ a, second @ second
    f = _series(powers, TAYLOR[13:17])
    for k in (9, 5, 1):
        f = _series(powers, TAYLOR[k : k + 4]) + powers[3] @ f
    for _ in range(doublings):
        f = 2 * f + f @ f
    return f


def logarithm(factor: Tensor, a: Tensor, shift: Tensor, check: bool) -> Tensor:
    """L log(A + shift I) L^T, shift 0 or 1 for each matrix. Shapes: ``[..., n, n]``, ``shift [..., 1]`` boolean.

    Raises: ValueError with ``check`` if A + shift I is not positive definite.
    """
    return _run(Logarithm, factor, a, shift, check)


def square_root(a: Tensor) -> Tensor:
    """A^(1/2). Shapes: ``[..., n, n]``. Raises: ValueError, where looking is free, if A is not positive definite."""
    return _run(SquareRoot, a)


class Logarithm(torch.autograd.Function):
    """:func:`logarithm`, with the logarithms of the eigenvalues and the eigenvectors for the derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(factor: Tensor, a: Tensor, shift: Tensor, check: bool) -> tuple[Tensor, Tensor, Tensor]:
        values, vectors = torch.linalg.eigh(a)
        if check and not transformed():
            require_positive(values, shift)
        logs = torch.where(shift, values.log1p(), values.log())
        rows = factor @ vectors
        return (rows * logs.unsqueeze(-2)) @ rows.mT, logs, vectors

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        factor, a, shift, _ = inputs
        _, logs, vectors = output
        ctx.mark_non_differentiable(logs, vectors)
        ctx.save_for_backward(factor, a, shift, logs, vectors)

    @staticmethod
    def backward(ctx, grad: Tensor, *_) -> tuple[Tensor, Tensor, None, None]:
        factor, a, shift, logs, vectors = ctx.saved_tensors
        if torch.is_grad_enabled():  # for second derivatives, which need distinct eigenvalues
            values, vectors = torch.linalg.eigh(a)
            logs = shifted_log(values, shift)
        half = 0.5 * logs
        gaps = (half.unsqueeze(-1) - half.unsqueeze(-2)).abs()
        ratios = (-half.unsqueeze(-1) - half.unsqueeze(-2)).exp() / sinhc(gaps)
        outer = 0.5 * (grad + grad.mT) @ factor
        return 2 * outer @ _compose(vectors, logs), _pull_back(vectors, ratios, factor.mT @ outer), None, None


class SquareRoot(torch.autograd.Function):
    """:func:`square_root`, with its eigenvalues and the eigenvectors for the derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, vectors = torch.linalg.eigh(a)
        if visible(a):
            require_positive(values)
        roots = values.sqrt()
        return _compose(vectors, roots), roots, vectors

    @staticmethod
    def setup_context(ctx, inputs: tuple, output: tuple) -> None:
        _, roots, vectors = output
        ctx.mark_non_differentiable(roots, vectors)
        ctx.save_for_backward(*inputs, roots, vectors)

    @staticmethod
    def backward(ctx, grad: Tensor, *_) -> Tensor:
        a, roots, vectors = ctx.saved_tensors
        if torch.is_grad_enabled():
            values, vectors = torch.linalg.eigh(a)
            roots = values.sqrt()
        return _pull_back(vectors, 1 / (roots.unsqueeze(-1) + roots.unsqueeze(-2)), grad)


def shifted_log(values: Tensor, shift: Tensor) -> Tensor:
    """log(values + 1) where ``shift``, else log(values); differentiable in both cases."""
    near, far = torch.where(shift, values, 0.0), torch.where(shift, 1.0, values)
    return torch.where(shift, near.log1p(), far.log())


def require_positive(values: Tensor, shift: Tensor | None = None) -> None:
    """Raises: ValueError, about a matrix y, unless the eigenvalues, in ascending order, plus ``shift`` are positive."""
    lowest = values[..., :1] if shift is None else values[..., :1] + shift
    if lowest.numel() and not lowest.min().item() > 0:
        raise ValueError("y: got a matrix that is not positive definite; allowed is a symmetric positive definite one")


def _series(powers: tuple[Tensor, ...], c: list[float]) -> Tensor:
    """c_0 A + c_1 A^2 + c_2 A^3 + c_3 A^4."""
    total = powers[0] * c[0]
    for power, factor in zip(powers[1:], c[1:], strict=True):
        total.add_(power, alpha=factor)
    return total


def _run(function: type[torch.autograd.Function], *inputs: Any) -> Tensor:
    """Its first output, without the cost of ``apply`` where nothing records derivatives."""
    tensors = [t for t in inputs if isinstance(t, Tensor)]
    recorded = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    return (function.apply if recorded or transformed() else function.forward)(*inputs)[0]


def _compose(vectors: Tensor, values: Tensor) -> Tensor:
    return (vectors * values.unsqueeze(-2)) @ vectors.mT


def _pull_back(vectors: Tensor, ratios: Tensor, grad: Tensor) -> Tensor:
    grad = 0.5 * (grad + grad.mT)
    return vectors @ (ratios * (vectors.mT @ grad @ vectors)) @ vectors.mT

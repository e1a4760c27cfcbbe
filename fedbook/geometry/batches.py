"""How the manifolds' methods take batches: their tensors are checked, and large batches run in blocks.

A block keeps the temporaries of a formula in the processor's cache. Without blocks a batch of 10,000 vectors of
784 numbers spends most of its time on fresh memory pages, one set for every intermediate result.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments

BLOCK = 1 << 16  # numbers of one tensor in a block


def visible(x: Tensor) -> bool:
    """Whether looking at a value of ``x`` is free: an accelerator has to be waited for, and vmap does not allow it."""
    return x.is_cpu and not transformed()


def transformed() -> bool:
    """Whether a transform of torch.func is at work, under which values cannot be looked at."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def batched(method: Callable[..., Tensor] | None = None, *, blocks: int = 1) -> Callable[..., Any]:
    """A manifold's method ``(self, x, ..., options)`` with its tensors checked, run in blocks where that pays.

    Every parameter annotated as a tensor must have the trailing axes of the first one. ``blocks``: how many usual
    blocks to take at a time, for a method with few temporaries.
    """
    if method is None:
        return functools.partial(batched, blocks=blocks)
    names = [name for name, p in inspect.signature(method).parameters.items() if p.annotation == "Tensor"]

    @functools.wraps(method)
    def call(self: Any, *given: Any, **named: Any) -> Tensor:
        if named:
            given += tuple(named.pop(name) for name in names[len(given) :] if name in named)
        tensors = given[: len(names)]
        same = check_tensors(names, tensors, self.point_ndim)
        if same and tensors and tensors[0].numel() >= 2 * blocks * BLOCK and _may_be_cut(tensors):
            rest = functools.partial(_with, method, self, given[len(names) :], named)
            return _blocks(rest, tensors, blocks * BLOCK, self.point_ndim)
        return method(self, *given, **named)

    return call


def check_tensors(names: list[str], tensors: tuple[Any, ...], point_ndim: int) -> bool:
    """Whether all ``tensors`` have one shape. Each must be a floating-point tensor with the last axes of the first.

    Raises: TypeError, ValueError, naming the argument.
    """
    first, same = None, True
    for name, value in zip(names, tensors, strict=False):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise arguments.wrong(TypeError, name, value, "a floating-point tensor")
        shape = value.shape
        if first is None:
            first = shape
            if len(shape) < point_ndim or shape[-1] != shape[-point_ndim]:
                letters = "D" if point_ndim == 1 else "n, n"
                raise arguments.wrong(ValueError, name, value, f"a tensor of shape (..., {letters})")
        elif shape != first:
            same = False
            if shape[-point_ndim:] != first[-point_ndim:]:
                size = ", ".join(map(str, first[-point_ndim:]))
                raise arguments.wrong(ValueError, name, value, f"a tensor of shape (..., {size})")
    return same


def _may_be_cut(tensors: tuple[Tensor, ...]) -> bool:
    if not visible(tensors[0]) or tensors[0].itemsize < 4:
        return False
    return not (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))


def _with(method: Callable[..., Tensor], self: Any, options: tuple, named: dict[str, Any], *tensors: Tensor) -> Tensor:
    return method(self, *tensors, *options, **named)


def _blocks(function: Callable[..., Tensor], tensors: tuple[Tensor, ...], block: int, point_ndim: int) -> Tensor:
    lead, size = tensors[0].shape[:-point_ndim], tensors[0].shape[-point_ndim:]
    rows = [t.reshape(-1, *size) for t in tensors]
    step, result = max(1, block // math.prod(size)), None
    for number, parts in enumerate(zip(*(t.split(step) for t in rows), strict=True)):
        part = function(*parts)
        if result is None:
            # NumPy asks for huge memory pages, PyTorch does not: the first touch of a large result is half the time.
            result = torch.from_numpy(np.empty((len(rows[0]), *part.shape[1:]), part.numpy().dtype))
            places = result.split(step)
        places[number].copy_(part)
    return result.reshape(lead + result.shape[1:])

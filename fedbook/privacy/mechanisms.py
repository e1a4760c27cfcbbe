"""Clipping and Gaussian noise: what turns a sum of updates into a private release.

Rows are clients (or records): ``message`` maps names to tensors whose first axis is the R rows. A row's
result depends on its own entries and its own generator only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments, randomness
from fedbook.privacy.release import ADJACENCIES

ROUNDED = 1 + 1e-13  # a norm in float64 may be as much too long


def clip(update: Mapping[str, Tensor], bound: float) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Each row scaled to at most ``bound`` in one L2 norm over all its tensors together.

    One norm for the row, never one a tensor: n tensors clipped one by one have a norm of up to
    sqrt(n) * bound. The norm is summed in float64; the factor of a clipped row is rounded down, so that
    the rounding of the products does not lift the row above ``bound``; where it does all the same (numbers so large,
    or a bound so small, that the type has no digits left) it is halved until it does not. A row whose norm is not
    finite has no direction and becomes zero (factor 0): an error would tell everybody of it. ``bound=math.inf``
    changes nothing.

    Shapes: ``update`` name -> [R, ...]; returns the clipped rows, factor [R] and norm [R], both float64.
    Raises: TypeError, ValueError (no tensors, unequal R; without a bound NaN or infinite entries).
    Source: DP2-FedSAM, section on clipping: clip(x, C) = x min(1, C / |x|).
    """
    bound = arguments.real("bound", bound, above=0.0, infinite=True)
    rows, norm = _row_norm("update", update, finite=math.isinf(bound))
    coarsest = max(torch.finfo(leaf.dtype).eps for leaf in update.values())
    factor = torch.where(norm > bound, bound * (1 - 2 * coarsest) / norm, torch.ones_like(norm))
    factor = torch.where(norm.isfinite() | math.isinf(bound), factor, 0.0)

    def shortened(leaf: Tensor, factor: Tensor) -> Tensor:
        by = factor.to(leaf.device, leaf.dtype).reshape(rows, *[1] * (leaf.ndim - 1))
        return torch.where(by == 0, torch.zeros_like(leaf), leaf) * by

    short = {name: shortened(leaf, factor) for name, leaf in update.items()}
    while bool((above := row_norm(short) > bound * ROUNDED).any()):
        factor = torch.where(above, factor / 2, factor)
        short = {name: shortened(leaf, factor) for name, leaf in update.items()}
    return short, factor, norm


def row_norm(update: Mapping[str, Tensor]) -> Tensor:
    """The L2 norm of each row over all tensors together, summed in float64 in the order of the names.

    Shapes: name -> [R, ...]; returns [R] float64. Raises: TypeError, ValueError.
    """
    return _row_norm("update", update)[1]


def gaussian_noise(like: Mapping[str, Tensor], std: float, rng: np.random.Generator) -> dict[str, Tensor]:
    """Independent N(0, std^2) numbers in the form of ``like``, drawn in the order of the sorted names.

    ``std=0`` takes the same numbers from ``rng`` and gives zeros, so switching noise off moves no other draw.
    Shapes: name -> any shape, kept with dtype and device. Raises: TypeError, ValueError.
    """
    std = arguments.real("std", std, 0.0)
    _named_floats("like", like, finite=False)  # only the form of it matters
    drawn = {
        name: randomness.normal(tuple(like[name].shape), _generator("rng", rng), like[name]) for name in sorted(like)
    }
    return {name: drawn[name].mul_(std) for name in like}


def release_sum(
    total: Mapping[str, Tensor], *, bound: float, noise_multiplier: float, rng: np.random.Generator
) -> dict[str, Tensor]:
    """The sum of clipped rows with the server's noise: total + N(0, (bound * noise_multiplier)^2).

    An empty cohort's sum is zeros, and is released with noise all the same. The multiplier is relative to
    ``bound``; the ledger wants it relative to the sensitivity (:func:`sum_sensitivity`).

    Shapes: name -> any shape. Raises: TypeError, ValueError.
    Source: DP2-FedSAM, Algorithm 2, steps 7 and 8 (noise added once, to the sum).
    """
    bound = arguments.real("bound", bound, above=0.0)
    noise_multiplier = arguments.real("noise_multiplier", noise_multiplier, 0.0)
    _named_floats("total", total)
    noise = gaussian_noise(total, bound * noise_multiplier, rng)
    return {name: leaf + noise[name] for name, leaf in total.items()}


def sum_sensitivity(bound: float, adjacency: str) -> float:
    """How far a sum of rows clipped to ``bound`` moves, in L2, between neighbouring data.

    ``add_remove`` and ``zero_out``: one row appears or vanishes, ``bound``. ``replace_one``: 2 * ``bound``.
    Both are attained. Raises: TypeError, ValueError.
    """
    bound = arguments.real("bound", bound, above=0.0)
    return bound * (2.0 if arguments.one_of("adjacency", adjacency, ADJACENCIES) == "replace_one" else 1.0)


@dataclass(frozen=True)
class Clip:
    """Upload transform: :func:`clip` each row to ``bound``. ``math.inf`` gives the identity."""

    bound: float

    def __post_init__(self):
        arguments.real("bound", self.bound, above=0.0, infinite=True)

    def __call__(
        self, message: Mapping[str, Tensor], rngs: Sequence[np.random.Generator]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The clipped rows; trace ``clip_norm`` [R] (before clipping) and ``clip_factor`` [R]."""
        clipped, factor, norm = clip(message, self.bound)
        return clipped, {"clip_norm": norm, "clip_factor": factor}


@dataclass(frozen=True)
class ClientGaussian:
    """Upload transform: every row adds its own N(0, std^2) noise, from its own generator. 0 gives the identity."""

    std: float

    def __post_init__(self):
        arguments.real("std", self.std, 0.0)

    def __call__(
        self, message: Mapping[str, Tensor], rngs: Sequence[np.random.Generator]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The noised rows; trace ``noise_norm`` [R]. Raises: ValueError unless there is one generator a row."""
        rows = _rows("message", message)
        if len(rngs) != rows:
            raise ValueError(f"rngs: got {len(rngs)} generators for {rows} rows; allowed is one for each row")
        if rows == 0:
            return dict(message), {"noise_norm": row_norm(message)}
        parts = [
            gaussian_noise({name: leaf[row] for name, leaf in message.items()}, self.std, rngs[row])
            for row in range(rows)
        ]
        noise = {name: torch.stack([part[name] for part in parts]) for name in message}
        return {name: leaf + noise[name] for name, leaf in message.items()}, {"noise_norm": row_norm(noise)}


def _row_norm(name: str, message: Mapping[str, Tensor], finite: bool = True) -> tuple[int, Tensor]:
    """The number of rows and their norms; NaN and infinite entries are refused if they must be ``finite``."""
    rows, squares = _rows(name, message, finite=False), None
    for key in sorted(message):
        flat = message[key].reshape(rows, message[key].shape[1:].numel())  # -1 is ambiguous for no rows
        part = torch.linalg.vector_norm(flat, dim=1, dtype=torch.float64).square()
        squares = part if squares is None else squares + part.to(squares.device)
    if finite and not bool(torch.isfinite(squares).all()):  # huge finite entries may overflow
        _named_floats(name, message)
    return rows, squares.sqrt()


def _rows(name: str, message: Mapping[str, Tensor], finite: bool = True) -> int:
    """The common number of rows R of all tensors."""
    _named_floats(name, message, finite)
    shapes = {key: tuple(leaf.shape) for key, leaf in message.items()}
    counts = {shape[0] if shape else None for shape in shapes.values()}
    if len(counts) != 1 or None in counts:
        raise ValueError(f"{name}: got the shapes {shapes}; allowed are tensors with one first axis of equal size")
    return counts.pop()


def _named_floats(name: str, message: Mapping[str, Tensor], finite: bool = True) -> None:
    if not isinstance(message, Mapping):
        raise arguments.wrong(TypeError, name, message, "a dictionary from names to tensors")
    if not message:
        raise arguments.wrong(ValueError, name, message, "at least one named tensor")
    for key, leaf in message.items():
        if not isinstance(key, str):
            raise arguments.wrong(TypeError, f"{name}'s name", key, "a word")
        arguments.tensor(f"{name}[{key!r}]", leaf, kind="float", finite=finite)


def _generator(name: str, rng: np.random.Generator) -> np.random.Generator:
    if not isinstance(rng, np.random.Generator):
        raise arguments.wrong(TypeError, name, rng, "a NumPy generator, from fedbook.randomness.stream")
    return rng

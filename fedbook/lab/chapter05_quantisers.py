"""Chapter 5's quantisers: the law of their error, derived and measured. Oracles of a few lines, no wire format.

A cell of the scalar grid has width Delta, one of the hexagonal lattice area V. ``dither`` is in units of a cell: the
receiver knows it too and subtracts it. float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbook.randomness import normal, stream

HEXAGON = 5 / (18 * math.sqrt(3))  # mean square distance from the centre of a regular hexagon of area 1
DISC = 1 / (2 * math.pi)  # of a disc of area 1: no set of area 1 has less
GRIDS = ("endpoints", "bins")


class Moment(NamedTuple):
    """A mean square by simulation, its standard error, and what the law says."""

    mean: float
    error: float
    law: float


# --- the scalar quantiser


def cell_width(bits: int, spread: float, grid: str = "endpoints") -> float:
    """Delta: W / (2^q - 1) if the levels hold both ends of the range, W / 2^q if it is cut into bins."""
    return spread / (2**bits - (grid == "endpoints"))


def scalar(
    x: Tensor,
    bits: int,
    dither: Tensor | float = 0.0,
    low: Tensor | float = -1.0,
    high: Tensor | float = 1.0,
    grid: str = "endpoints",
) -> Tensor:
    """x after the uniform scalar quantiser with 2^bits levels; ``dither`` in [-1/2, 1/2], 0 for none.

    Shapes: ``dither``, ``low`` and ``high`` broadcast against x.
    """
    step = (high - low) * cell_width(bits, 1.0, grid)
    first = low if grid == "endpoints" else low + step / 2
    safe = torch.where(torch.as_tensor(step) > 0, step, 1.0)  # a range of 0 gives the constant back
    code = ((x - first) / safe + dither + 0.5).floor().clamp(0, 2**bits - 1)
    return first + (code - dither) * step


class Dithered(NamedTuple):
    """For each input, over all dithers: mean, mean square and range of the error, and how far it is from uniform.

    ``distance``: the largest gap between its distribution function and the uniform one on [-Delta/2, Delta/2].
    """

    mean: Tensor
    mean_square: Tensor
    largest: Tensor
    distance: Tensor
    law: float


def dither_law(inputs: Sequence[float], bits: int, grid: str = "endpoints", points: int = 10_000) -> Dithered:
    """The error of single numbers in [-1, 1], integrated over the dither by midpoints (no chance is left).

    "endpoints": uniform, whatever the input, mean square Delta^2 / 12. "bins": so only Delta / 2 inside the range.
    """
    step = cell_width(bits, 2.0, grid)
    x = torch.tensor(inputs, dtype=torch.float64)[:, None]
    middle = (torch.arange(points, dtype=torch.float64) + 0.5) / points
    error = scalar(x, bits, middle - 0.5, grid=grid) - x
    gap = (error.sort(1).values / step + 0.5).clamp(0, 1) - middle
    return Dithered(
        error.mean(1), error.square().mean(1), error.abs().amax(1), gap.abs().amax(1), step**2 / 12
    )  # fmt: skip


def example_input(name: str, size: int, seed: int) -> Tensor:
    """``size`` numbers in [-1, 1]: all 0.3, a ramp, or a normal variable of deviation 0.5, clipped."""
    if name == "constant":
        return torch.full((size,), 0.3, dtype=torch.float64)
    if name == "ramp":
        return torch.linspace(-1, 1, size, dtype=torch.float64)
    return (0.5 * normal((size,), stream(seed, "input"))).clamp(-1, 1)


def scalar_error(name: str, bits: int, dither: bool = True, draws: int = 200_000, seed: int = 0) -> Moment:
    """The mean square error on a test input ("endpoints"), by simulation, and Delta^2 / 12."""
    x, rng = example_input(name, draws, seed), stream(seed, "dither")
    u = torch.from_numpy(rng.uniform(-0.5, 0.5, draws)) if dither else 0.0
    return _moment((scalar(x, bits, u) - x).square(), cell_width(bits, 2.0) ** 2 / 12)


def scalar_laws(bits: int) -> dict[str, float]:
    """Mean squares on [-1, 1] at an inner point and at an end, integrated over the dither, and as printed.

    printed W^2 / 12 * 2^(-2 q). ``ratio`` of both grids by integration, ``formula`` (2^q / (2^q - 1))^2.
    Source: C-VFL, Table 1.
    """
    found = {grid: dither_law([0.0, 1.0], bits, grid).mean_square.tolist() for grid in GRIDS}
    (inner, at_end), (bins, bins_at_end) = found["endpoints"], found["bins"]
    return {
        "printed": 4 / 12 * 2.0 ** (-2 * bits), "bins": bins, "bins at an end": bins_at_end, "endpoints": inner,
        "endpoints at an end": at_end, "ratio": inner / bins, "formula": (2**bits / (2**bits - 1)) ** 2,
    }  # fmt: skip


def _moment(squares: Tensor, law: float) -> Moment:
    return Moment(float(squares.mean()), float(squares.std()) / math.sqrt(squares.numel()), law)


# --- the hexagonal lattice


def lattice_distance(area: float) -> float:
    """The distance d of neighbours in the hexagonal lattice with cells of that area: V = sqrt(3) / 2 d^2."""
    return math.sqrt(2 * area / math.sqrt(3))


def nearest_point(x: Tensor, area: float) -> Tensor:
    """The nearest point of the hexagonal lattice: the nearer of those of two rectangular lattices.

    Shapes: ``x`` [..., 2].
    """
    side = lattice_distance(area) * torch.tensor([1.0, math.sqrt(3)], dtype=x.dtype)
    first = (x / side + 0.5).floor() * side
    second = ((x / side).floor() + 0.5) * side
    nearer = (x - first).square().sum(-1, keepdim=True) <= (x - second).square().sum(-1, keepdim=True)
    return torch.where(nearer, first, second)


def hexagon_dither(count: int, area: float, rng: np.random.Generator) -> Tensor:
    """Uniform points of the hexagon around 0: z - nearest(z) for z uniform on a parallelogram. ``[count, 2]``."""
    d, (s, t) = lattice_distance(area), rng.uniform(size=(2, count))
    z = torch.from_numpy(np.stack([s + t / 2, t * math.sqrt(3) / 2], 1)) * d
    return z - nearest_point(z, area)


def hexagonal(x: Tensor, area: float, dither: Tensor | float = 0.0) -> Tensor:
    """Pairs after the hexagonal quantiser with its infinite codebook. Shapes: ``x``, ``dither`` [..., 2]."""
    return nearest_point(x + dither, area) - dither


class HexagonError(NamedTuple):
    """Mean square error of a pair, each coordinate's variance, the largest |mean|, and correlation with the input."""

    pair: Moment
    variances: tuple[float, float]
    mean: float
    correlation: float


def hexagon_error(bits: int, draws: int = 200_000, seed: int = 0) -> HexagonError:
    """The dithered error on a ramp of pairs in the unit square, cells of area 4^-bits: 5 / (18 sqrt 3) V."""
    area = 4.0**-bits
    ramp = torch.linspace(0, 1, draws, dtype=torch.float64)
    x = torch.stack([ramp, (7 * ramp) % 1], 1)
    error = hexagonal(x, area, hexagon_dither(draws, area, stream(seed, "hexagon"))) - x
    across = torch.corrcoef(torch.cat([error, x], 1).T)[:2, 2:].abs().max()
    first, second = error.var(0).tolist()
    return HexagonError(
        _moment(error.square().sum(1), HEXAGON * area), (first, second), float(error.mean(0).abs().max()), float(across)
    )


def cell_moment(corners: Sequence[Sequence[float]]) -> float:
    """Mean square distance from the centroid of a polygon, divided by its area: 0.16038 for a hexagon.

    Triangles from the centroid; a quadratic's mean over a triangle is that over the middles of its sides. Scale and
    place do not matter; no polygon is below 1 / (2 pi).
    """
    points = torch.tensor(corners, dtype=torch.float64)
    points = points - points.mean(0)

    def triangles() -> tuple[Tensor, Tensor]:  # signed areas, and the other two corners, seen from the origin
        following = points.roll(-1, 0)
        return (points[:, 0] * following[:, 1] - points[:, 1] * following[:, 0]) / 2, following

    share, following = triangles()
    points = points - (share[:, None] * (points + following) / 3).sum(0) / share.sum()
    share, following = triangles()
    middles = torch.stack([points / 2, following / 2, (points + following) / 2])
    total = (share * middles.square().sum(-1).mean(0)).sum()
    return float(total / share.sum() / share.sum().abs())


def regular_polygon(corners: int) -> list[tuple[float, float]]:
    """The corners of a regular polygon."""
    turns = [2 * math.pi * i / corners for i in range(corners)]
    return [(math.cos(a), math.sin(a)) for a in turns]


def hexagon_moments() -> dict[str, float]:
    """Mean square error of a pair for cells of area 1, by integration, by formulas, and as the paper prints it.

    Printed is V P_m / 24 for an embedding of P_m numbers: V / 12 for a pair. A disc has the least of all sets of its
    area (moving area nearer to the centre lowers the mean): no quantiser of the plane has cells like that.
    Source: C-VFL, Table 1 and appendix B.
    """
    return {
        "six triangles": cell_moment(regular_polygon(6)), "5 / (18 sqrt 3)": HEXAGON,
        "square": cell_moment(regular_polygon(4)), "disc, the least possible": DISC, "printed": 1 / 12,
    }  # fmt: skip


# --- the package's own

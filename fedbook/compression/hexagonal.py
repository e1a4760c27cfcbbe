"""The two-dimensional quantiser whose codewords are points of the hexagonal lattice, with subtractive dither.

A lattice of minimum distance d is the rectangular lattice d Z x sqrt(3) d Z and its copy shifted by half a step both
ways. All calculations are in the steps of that rectangle: (p, q) = (x / d, y / (sqrt(3) d)), where a lattice point is
a pair of whole numbers or a pair of halves, and a squared distance is d^2 (p^2 + 3 q^2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.compression import messages

G2 = 5 / (36 * math.sqrt(3))  # normalised second moment of the hexagon, per dimension

# The finite codebooks: cell area times 4^bits, and where a lattice point lies, in (p, q) from the centre of the square.
# Least mean squared error of a point uniform on the square, without dither: the three numbers on a grid (15 x 7 x 7
# for up to 3 bits, 8 x 5 x 5 above), then Nelder and Mead from the six best; the error is a mean over a grid of
# 6 2^bits points a side (4 2^bits from 6 bits on). Rounded to four digits: the error changes by less than 1e-5 of it.
PLACED = {
    1: (0.9090, 0.2500, 0.2500),
    2: (1.0088, 0.2500, 0.2496),
    3: (0.9977, 0.3296, 0.5007),
    4: (1.0059, 0.1900, -0.0037),
    5: (1.0084, 0.2500, 0.2431),
    6: (1.0007, 0.3889, 0.5001),
    7: (1.0036, 0.0001, 0.0078),
    8: (1.0008, 0.1223, 0.4950),
}


def cell_area(bits: int, codebook: str = "finite") -> float:
    """V, the area of a lattice cell if the square of all pairs has area 1.

    Raises: TypeError, ValueError.
    """
    bits = arguments.integer("bits", bits, 1, Hexagonal.most_bits)
    arguments.one_of("codebook", codebook, ("finite", "infinite"))
    return (PLACED[bits][0] if codebook == "finite" else 1.0) * 4.0**-bits


def nearest(p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Twice the coordinates of the nearest lattice point: both even, or both odd.

    The nearest whole numbers leave f, g in [-1/2, 1/2]; the nearest halves lie on the same side. They are closer iff
    (|f| - 1/2)^2 + 3 (|g| - 1/2)^2 < f^2 + 3 g^2, which is |f| + 3 |g| > 1.

    Shapes: p, q [...] to two tensors [...] of whole numbers in the dtype of p.
    """
    whole_p, whole_q = p.round(), q.round()
    halves = (p - whole_p).abs_().add_((q - whole_q).abs_(), alpha=3) > 1
    a = torch.where(halves, p.floor().add_(0.5), whole_p).mul_(2)
    return a, torch.where(halves, q.floor().add_(0.5), whole_q).mul_(2)


def hexagonal_dither(uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Points z - nearest(z), uniform on the cell of the lattice, from points z uniform on a rectangle of its area.

    Shapes: ``uniform`` [R, 2, ...] in [0, 1) to p, q [R, ...]; overwrites ``uniform``.
    """
    p, q = uniform.sub_(0.5).unbind(1)  # |p| <= 1/2, |q| <= 1/4: the rows of the lattice tile the plane like bricks
    q.mul_(0.5)
    halves = p.abs().add_(q.abs(), alpha=3) > 1
    for z in (p, q):
        z.sub_(torch.copysign(halves * 0.5, z))
    return p, q


@dataclass(frozen=True)
class Codebook:
    """Lattice points with codes 0 .. K-1.

    Shapes: ``points`` [2, K], p and q of each, seen from the lattice point (0, 0); ``table`` [C, A]: the
    code of the point of doubled coordinates (a + first[0], c + first[1]), -1 for none, which holds for its rim;
    ``outer``: codes of the points that lack one of their six neighbours. ``offset``: where in (p, q) the point
    (0, 0) lies, seen from the centre of the square. ``distance``: d for the unit square.
    """

    distance: float
    offset: tuple[float, float]
    points: Tensor
    table: Tensor
    first: tuple[int, int]
    outer: Tensor

    def codes(self, p: Tensor, q: Tensor) -> Tensor:
        """The code of the nearest codeword, int32, of points in (p, q) beside the offset."""
        a, c = nearest(p, q)
        height, width = self.table.shape
        a = a.sub_(self.first[0]).clamp_(0, width - 1)
        place = c.sub_(self.first[1]).clamp_(0, height - 1).to(torch.int32).mul_(width).add_(a.to(torch.int32))
        codes = self.table.view(-1).index_select(0, place.reshape(-1)).view(p.shape)
        astray = torch.nonzero(codes.view(-1) < 0)[:, 0]
        if len(astray):
            codes.view(-1)[astray] = self._nearest_outer(p.reshape(-1)[astray], q.reshape(-1)[astray])
        return codes

    def _nearest_outer(self, p: Tensor, q: Tensor) -> Tensor:
        # A codeword with all its six neighbours is nearest only to points of its own cell: the outer ones are left.
        points = self.points[:, self.outer].to(p.dtype)
        indices, chunk = [], max(1, 2**20 // len(self.outer))
        for p_part, q_part in zip(p.split(chunk), q.split(chunk), strict=True):
            squares = (p_part[:, None] - points[0]).square_()
            indices.append(squares.add_((q_part[:, None] - points[1]).square_(), alpha=3).argmin(1))
        return self.outer[torch.cat(indices)].to(torch.int32)


@lru_cache(maxsize=64)
def codebook(bits: int, kind: str, dither: bool, device: torch.device) -> Codebook:
    """The codebook of ``Hexagonal(bits, codebook=kind, dither=dither)``.

    "finite": the 4^bits points of least sup-distance to the centre of the square (equal ones from below, from the
    left). "infinite": all points that can be the nearest to a point of the square; with dither, to such a point moved
    by any point of the cell.
    """
    d = math.sqrt(2 * cell_area(bits, kind) / math.sqrt(3))
    offset = PLACED[bits][1:] if kind == "finite" else (0.0, 0.0)
    reach_a, reach_c = math.ceil(2 / d) + 8, math.ceil(2 / d / math.sqrt(3)) + 8
    c, a = (n.ravel() for n in np.mgrid[-reach_c : reach_c + 1, -reach_a : reach_a + 1])
    a, c = a[(a + c) % 2 == 0], c[(a + c) % 2 == 0]
    x, y = (a / 2 + offset[0]) * d, (c / 2 + offset[1]) * math.sqrt(3) * d
    if kind == "finite":
        size = np.maximum(np.abs(x), np.abs(y)).round(9)
        chosen = np.sort(np.lexsort((a, c, size))[: 4**bits])
    else:
        # The sum of the square and one hexagon (or two, with dither): a point lies in it if it does not pass it in
        # the direction of any edge of either. The hexagon reaches d/2 towards its edges, d/sqrt(3) to its corners.
        hexagons, slack = 2 if dither else 1, 1e-6
        inside = np.abs(y) <= 0.5 + hexagons * d / math.sqrt(3) + slack
        for angle in (0.0, math.pi / 3, -math.pi / 3):
            nx, ny = math.cos(angle), math.sin(angle)
            inside &= np.abs(x * nx + y * ny) <= (abs(nx) + abs(ny)) / 2 + hexagons * d / 2 + slack
        chosen = np.flatnonzero(inside)
    a, c = a[chosen], c[chosen]
    first = int(a.min()) - 2, int(c.min()) - 2
    table = np.full((c.max() - first[1] + 3, a.max() - first[0] + 3), -1, np.int32)
    row, column = c - first[1], a - first[0]
    table[row, column] = np.arange(len(a))
    around = ((0, 2), (0, -2), (1, 1), (1, -1), (-1, 1), (-1, -1))
    outer = np.any([table[row + up, column + right] < 0 for up, right in around], axis=0)
    points = torch.from_numpy(np.stack([a / 2, c / 2])).to(device)
    outer = torch.from_numpy(np.flatnonzero(outer)).to(device)
    return Codebook(d, offset, points, torch.from_numpy(table).to(device), first, outer)


@dataclass(frozen=True)
class Hexagonal(messages.Quantiser):
    """Each pair of components becomes a point of the hexagonal lattice, of cell area V on the unit square.

    Consecutive components form pairs; an odd width gets one more component in the middle of the range (0 for
    [-1, 1]), dropped again by the receiver. [low, high]^2 is mapped to the unit square. ``low``, ``high``: see
    :class:`Quantiser`.

    * ``codebook="finite"``: 4^bits codewords, 2 bits a pair for each of ``bits``; the nearest codeword is sent. Near
      the border of the square a dithered pair may have no codeword in reach: larger errors, not of the law.
    * ``codebook="infinite"``: V = 4^-bits and no limit: with dither the error is uniform on the cell, independent of
      the input. The square and its dithered surroundings hold more than 4^bits cells: ``bits_per_pair`` says what
      that costs, and it is what is sent and counted.

    ``bits``: 1 to 8 a component. ``dither``: uniform on the cell, added before and subtracted after; its 64-bit seed
    travels in the header.

    Raises: TypeError, ValueError.
    Source: Castiglia et al. 2022, section 4 and appendix B, where the error V P / 24 is too small by 10 / (3 sqrt 3).
    """

    codebook: str = "finite"
    dither: bool = True

    name, number, most_bits = "hex", 2, 8

    def __post_init__(self):
        arguments.one_of("codebook", self.codebook, ("finite", "infinite"))
        super().__post_init__()

    @property
    def bits_per_pair(self) -> int:
        """Bits that a pair of components takes on the wire."""
        return (self.codewords - 1).bit_length()

    @property
    def code_bits(self) -> int:
        return self.bits_per_pair

    @property
    def codewords(self) -> int:
        return self._book(torch.device("cpu")).points.shape[1]

    def code_count(self, B: int, P: int) -> int:
        return B * (-(-P // 2))

    @property
    def _variant(self) -> bool:
        return self.codebook == "infinite"

    def _steps(self, spreads: np.ndarray) -> np.ndarray:
        return spreads * self._book(torch.device("cpu")).distance

    def _codes(self, x: Tensor, seeds: np.ndarray, lows: np.ndarray, spreads: np.ndarray) -> Tensor:
        book, inverses = self._book(x.device), messages.inverse(messages.exact(spreads, x.dtype, self.low is None))
        low, inverse = (messages.column(v, x, x.dtype) for v in (lows, inverses))
        centred = x.sub(low).mul_(inverse).sub_(0.5)  # [-1/2, 1/2]
        if x.shape[2] % 2:
            centred = torch.nn.functional.pad(centred, (0, 1))
        p = centred[..., 0::2].mul(1 / book.distance).sub_(book.offset[0])  # [R, B, H]
        q = centred[..., 1::2].mul(1 / (math.sqrt(3) * book.distance)).sub_(book.offset[1])
        if self.dither:
            dither_p, dither_q = self._drawn(seeds, p)
            p, q = p.add_(dither_p), q.add_(dither_q)
        return book.codes(p, q)

    def _values(self, codes: Tensor, seeds: np.ndarray, lows: np.ndarray, spreads: np.ndarray, form: Tensor) -> Tensor:
        book, (rows, B, P), dtype = self._book(form.device), form.shape, form.dtype
        low, spread = (messages.column(v, form, dtype) for v in (lows, spreads))
        points, chosen, pairs = book.points.to(dtype), codes.reshape(-1).to(torch.int32), -(-P // 2)
        units = [points[axis].index_select(0, chosen).view(rows, B, pairs) for axis in (0, 1)]
        if self.dither:
            for coordinate, dither in zip(units, self._drawn(seeds, units[0]), strict=True):
                coordinate.sub_(dither)
        decoded = torch.empty(rows, B, 2 * pairs, dtype=dtype, device=form.device)
        scales = (book.distance, math.sqrt(3) * book.distance)
        for axis, (coordinate, scale) in enumerate(zip(units, scales, strict=True)):
            decoded[..., axis::2] = coordinate.add_(book.offset[axis]).mul_(scale).add_(0.5).mul_(spread).add_(low)
        return decoded[..., :P].contiguous()

    def _book(self, device: torch.device) -> Codebook:
        return codebook(self.bits, self.codebook, self.dither, device)

    @staticmethod
    def _drawn(seeds: np.ndarray, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Dithers (p, q) of R messages, each of the shape, dtype and device of ``pairs`` [R, B, H]."""
        p, q = hexagonal_dither(messages.uniforms(seeds, (2, *pairs.shape[1:])).to(pairs.device))
        return p.to(pairs.dtype), q.to(pairs.dtype)

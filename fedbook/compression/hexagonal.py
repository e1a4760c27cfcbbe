"""The two-dimensional quantiser whose codewords are points of the hexagonal lattice, with subtractive dither."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.compression import messages, wire
from fedbook.compression.lattice import G2, Codebook, cell_area, codebook, hexagonal_dither
from fedbook.wire import Encoded

INFINITE = 2  # a flag in the header, beside those in messages


@dataclass(frozen=True)
class Hexagonal:
    """Each pair of components becomes a point of the hexagonal lattice, of cell area V on the unit square.

    Consecutive components form pairs; an odd width gets one more component in the middle of the range (0 for
    [-1, 1]), dropped again by the receiver. [low, high]^2 is mapped to the unit square. ``low``, ``high``: a range
    that both sides know, or None for both: least and largest entry of each message, sent in the header.

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

    bits: int
    low: float | None = -1.0
    high: float | None = 1.0
    codebook: str = "finite"
    dither: bool = True
    name = "hex"

    def __post_init__(self):
        arguments.flag("dither", self.dither)
        cell_area(self.bits, self.codebook)
        low, high = messages.fixed_range(self.low, self.high)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def flags(self) -> int:
        """The flags in the header of its messages."""
        own = messages.OWN_RANGE * (self.low is None)
        return messages.DITHER * self.dither + INFINITE * (self.codebook == "infinite") + own

    @property
    def bits_per_pair(self) -> int:
        """Bits that a pair of components takes on the wire."""
        return self._book(torch.device("cpu")).bits_per_pair

    def payload_bytes(self, B: int, P: int) -> int:
        """Bytes of the body of a message of B vectors of P components; the header has 32 more.

        Raises: TypeError, ValueError.
        """
        B, P = arguments.integer("B", B, 1), arguments.integer("P", P, 1)
        return wire.packed_bytes(B * (-(-P // 2)), self.bits_per_pair)

    def squared_error_law(self, low: float | None = None, high: float | None = None) -> float:
        """Expected squared error of a component under dither, G_2 V (high - low)^2 ("finite": away from the border).

        The range is by default the fixed one. Raises: TypeError, ValueError (no range given and none fixed).
        """
        low, high = messages.law_range(self.low, self.high, low, high)
        return G2 * cell_area(self.bits, self.codebook) * (high - low) ** 2

    def encode(self, x: Tensor, rngs: list[np.random.Generator]) -> list[Encoded]:
        """R messages in their wire format; a seed of the dither is drawn from each message's generator.

        Shapes: ``x`` [R, B, P], ``rngs`` R generators.
        Raises: TypeError, ValueError (NaN, infinity, entries outside of the fixed range, or too large for an own one).
        """
        x = messages.checked(x, rngs)
        lows, highs = messages.ranges(x, self.low, self.high)
        book = self._book(x.device)
        found = wire.headers("hex", book.bits_per_pair, self.flags, tuple(x.shape))
        found["seed"] = messages.draw_seeds(rngs) if self.dither else 0
        found["low"], found["high"] = messages.float_bits(lows), messages.float_bits(highs)
        spreads = highs - lows

        def codes(rows: slice | np.ndarray, dtype: torch.dtype) -> Tensor:
            size = messages.exact(spreads[rows], dtype, self.low is None)
            low, inverse = (messages.column(v, x, dtype) for v in (lows[rows], messages.inverse(size)))
            centred = x[rows].to(dtype).sub(low).mul_(inverse).sub_(0.5)  # [-1/2, 1/2]
            if x.shape[2] % 2:
                centred = torch.nn.functional.pad(centred, (0, 1))
            p = centred[..., 0::2].mul(1 / book.distance).sub_(book.offset[0])  # [R, B, H]
            q = centred[..., 1::2].mul(1 / (math.sqrt(3) * book.distance)).sub_(book.offset[1])
            if self.dither:
                dither_p, dither_q = self._dither(found["seed"][rows], p)
                p, q = p.add_(dither_p), q.add_(dither_q)
            return book.codes(p, q)

        bodies = messages.by_precision(x.dtype, spreads * book.distance, codes).flatten(1)
        return wire.seal(found, wire.pack_checked(bodies, book.bits_per_pair))

    def decode(self, buffers: list[Encoded], like: Tensor) -> Tensor:
        """What R messages say, in ``like``'s dtype and device.

        Shapes: R messages, ``like`` [R, B, P], to [R, B, P].
        Raises: TypeError, ValueError (damaged, or written by another compressor or for another shape).
        """
        R, B, P = messages.checked_form(like)
        book, pairs = self._book(like.device), -(-P // 2)
        found = wire.read_headers(buffers, "hex", book.bits_per_pair, (R, B, P))
        wire.expect(found, "flags", self.flags, f"{self.flags} (dither {self.dither}, {self.codebook}, range)")
        bodies = wire.read_bodies(buffers, self.payload_bytes(B, P))
        lows, highs = messages.read_ranges(found, self.low, self.high)
        codes = wire.unpack(bodies.to(like.device), book.bits_per_pair, B * pairs).view(R, B * pairs).to(torch.int32)
        size = book.points.shape[1]
        if size < 2**book.bits_per_pair and R and int(codes.max()) >= size:
            raise arguments.wrong(ValueError, "buffers, largest code", int(codes.max()), f"below {size}, the codewords")
        spreads = highs - lows

        def values(rows: slice | np.ndarray, dtype: torch.dtype) -> Tensor:
            low, spread = (messages.column(v[rows], like, dtype) for v in (lows, spreads))
            points, chosen = book.points.to(dtype), codes[rows].reshape(-1)
            units = [points[axis].index_select(0, chosen).view(-1, B, pairs) for axis in (0, 1)]
            if self.dither:
                for coordinate, dither in zip(units, self._dither(found["seed"][rows], units[0]), strict=True):
                    coordinate.sub_(dither)
            decoded = torch.empty(len(units[0]), B, 2 * pairs, dtype=dtype, device=like.device)
            scales = (book.distance, math.sqrt(3) * book.distance)
            for axis, (coordinate, scale) in enumerate(zip(units, scales, strict=True)):
                decoded[..., axis::2] = coordinate.add_(book.offset[axis]).mul_(scale).add_(0.5).mul_(spread).add_(low)
            return decoded[..., :P].contiguous().to(like.dtype)

        return messages.by_precision(like.dtype, spreads * book.distance, values)

    def _book(self, device: torch.device) -> Codebook:
        return codebook(self.bits, self.codebook, self.dither, device)

    @staticmethod
    def _dither(seeds: np.ndarray, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Dithers (p, q) of R messages, each of the shape, dtype and device of ``pairs`` [R, B, H]."""
        drawn = messages.uniforms(seeds, (2, *pairs.shape[1:])).to(pairs.device)
        p, q = hexagonal_dither(drawn)
        return p.to(pairs.dtype), q.to(pairs.dtype)

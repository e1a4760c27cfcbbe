"""The uniform scalar quantiser with subtractive dither."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.compression import messages, wire
from fedbook.wire import Encoded

BINS = 2  # a flag in the header, beside those in messages


@dataclass(frozen=True)
class UniformScalar:
    """Each component becomes one of 2^bits levels, equally spaced over a range.

    ``bits``: 1 to 16 a component. ``low``, ``high``: a range that both sides know, outside of which nothing is
    accepted; or None for both: least and largest entry of each message, rounded outward to float32 and sent in the
    header. A message of one value only comes back exactly if float32 holds that value. With W = high - low:

    * ``grid="endpoints"``: levels low + j step, step = W / (2^bits - 1), j = 0 .. 2^bits - 1. With dither the error
      is uniform on [-step/2, step/2] and independent of the input, at the ends of the range too.
    * ``grid="bins"``: levels in the middle of 2^bits bins of width step = W / 2^bits. With dither a component less
      than half a step from an end may be clipped: its error, up to step, has then neither mean 0 nor that law.

    ``dither``: uniform on a step, added before rounding and subtracted after decoding. It costs no bits a component:
    its 64-bit seed travels in the header. It is drawn in float32, as a multiple of 2^-24 of a step.

    Raises: TypeError, ValueError.
    Source: Castiglia et al. 2022, section 4 and appendix B, which leave the grid open; its bound W^2 2^(-2 bits) / 12
    is the mean for "bins".
    """

    bits: int
    low: float | None = -1.0
    high: float | None = 1.0
    grid: str = "endpoints"
    dither: bool = True
    name = "scalar"

    def __post_init__(self):
        arguments.integer("bits", self.bits, 1, 16)
        arguments.one_of("grid", self.grid, ("endpoints", "bins"))
        arguments.flag("dither", self.dither)
        low, high = messages.fixed_range(self.low, self.high)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def flags(self) -> int:
        """The flags in the header of its messages."""
        own = messages.OWN_RANGE * (self.low is None)
        return messages.DITHER * self.dither + BINS * (self.grid == "bins") + own

    def payload_bytes(self, B: int, P: int) -> int:
        """Bytes of the body of a message of B vectors of P components; the header has 32 more.

        Raises: TypeError, ValueError.
        """
        B, P = arguments.integer("B", B, 1), arguments.integer("P", P, 1)
        return wire.packed_bytes(B * P, self.bits)

    def step(self, low: float | None = None, high: float | None = None) -> float:
        """Distance of two levels for the range ``low``, ``high`` (default: the fixed one). Raises: ValueError."""
        low, high = messages.law_range(self.low, self.high, low, high)
        return (high - low) / self._intervals

    def squared_error_law(self, low: float | None = None, high: float | None = None) -> float:
        """Expected squared error of a component under dither, step^2 / 12 ("bins": away from the ends).

        Raises: TypeError, ValueError (no range given and none fixed).
        """
        return self.step(low, high) ** 2 / 12

    def quantise(self, x: Tensor, dither: Tensor | float) -> Tensor:
        """Codes clip(round((x - level 0) / step + dither), 0, 2^bits - 1), with dither in units of a step.

        Shapes: ``x`` [...], ``dither`` like x (or 0.0 for none), to int64 [...]. Needs a fixed range.
        Raises: TypeError, ValueError (x outside of the range).
        """
        arguments.tensor("x", x, kind="float", finite=False)
        self._units(x, dither)
        lows, _ = messages.ranges(x.detach()[None], self.low, self.high) if x.numel() else ([self.low], None)
        return self._codes(x.detach(), dither, float(lows[0]), 1 / self.step()).to(torch.int64)

    def reconstruct(self, codes: Tensor, dither: Tensor | float, like: Tensor, terms: int = 1) -> Tensor:
        """Decoded values: level 0 + step (codes - dither), in ``like``'s dtype. Needs a fixed range.

        With ``terms`` = M, codes and dithers that are sums over M messages give the sum of the M decoded values.

        Shapes: ``codes`` integers [...], ``dither`` like codes, in units of a step (or 0.0), to [...].
        Raises: TypeError, ValueError.
        """
        arguments.tensor("codes", codes, kind="integer")
        arguments.tensor("like", like, kind="float", finite=False)
        self._units(codes, dither)
        terms = arguments.integer("terms", terms, 1)
        return self._values(codes, dither, terms * self._level0(self.low, self.step()), self.step(), like.dtype)

    def encode(self, x: Tensor, rngs: list[np.random.Generator]) -> list[Encoded]:
        """R messages in their wire format; a seed of the dither is drawn from each message's generator.

        Shapes: ``x`` [R, B, P], ``rngs`` R generators.
        Raises: TypeError, ValueError (NaN, infinity, entries outside of the fixed range, or too large for an own one).
        """
        x = messages.checked(x, rngs)
        lows, highs = messages.ranges(x, self.low, self.high)
        found = wire.headers("scalar", self.bits, self.flags, tuple(x.shape))
        found["seed"] = messages.draw_seeds(rngs) if self.dither else 0
        found["low"], found["high"] = messages.float_bits(lows), messages.float_bits(highs)
        steps = (highs - lows) / self._intervals

        def codes(rows: slice | np.ndarray, dtype: torch.dtype) -> Tensor:
            size = messages.exact(steps[rows], dtype, self.low is None)
            low, inverse = (messages.column(v, x, dtype) for v in (lows[rows], messages.inverse(size)))
            return self._codes(x[rows].to(dtype), self._dither(found["seed"][rows], x, dtype), low, inverse)

        return wire.seal(found, wire.pack_checked(messages.by_precision(x.dtype, steps, codes).flatten(1), self.bits))

    def decode(self, buffers: list[Encoded], like: Tensor) -> Tensor:
        """What R messages say, in ``like``'s dtype and device.

        Shapes: R messages, ``like`` [R, B, P], to [R, B, P].
        Raises: TypeError, ValueError (damaged, or written by another compressor or for another shape).
        """
        shape = messages.checked_form(like)
        found = wire.read_headers(buffers, "scalar", self.bits, shape)
        wire.expect(found, "flags", self.flags, f"{self.flags} (dither {self.dither}, grid {self.grid!r}, range)")
        bodies = wire.read_bodies(buffers, self.payload_bytes(*shape[1:]))
        lows, highs = messages.read_ranges(found, self.low, self.high)
        steps = (highs - lows) / self._intervals
        codes = wire.unpack(bodies.to(like.device), self.bits, shape[1] * shape[2]).view(shape)

        def values(rows: slice | np.ndarray, dtype: torch.dtype) -> Tensor:
            low, size = (messages.exact(v[rows], dtype, self.low is None) for v in (lows, steps))
            level0, step = (messages.column(v, like, dtype) for v in (self._level0(low, size), size))
            dither = self._dither(found["seed"][rows], like, dtype)
            return self._values(codes[rows], dither, level0, step, dtype).to(like.dtype)

        return messages.by_precision(like.dtype, steps, values)

    @property
    def _intervals(self) -> int:
        return 2**self.bits - (self.grid == "endpoints")

    def _level0(self, low: float | np.ndarray, step: float | np.ndarray) -> float | np.ndarray:
        return low if self.grid == "endpoints" else low + step / 2

    def _dither(self, seeds: np.ndarray, x: Tensor, dtype: torch.dtype) -> Tensor | float:
        if not self.dither:
            return 0.0
        return messages.uniforms(seeds, tuple(x.shape[1:])).sub_(0.5).to(device=x.device, dtype=dtype)

    def _codes(self, x: Tensor, dither: Tensor | float, low: messages.Scale, inverse: messages.Scale) -> Tensor:
        # A range of one value has step 0, here 1 / step = 0, and code 0 (in the middle of the bins too).
        units = x.sub(low).mul_(inverse).add_(dither)
        if self.grid == "bins":
            units.sub_(0.5)
        codes = units.round_().clamp_(0, 2**self.bits - 1)
        return codes.to(torch.uint8 if self.bits <= 8 else torch.int32)

    @staticmethod
    def _values(
        codes: Tensor, dither: Tensor | float, level0: messages.Scale, step: messages.Scale, dtype: torch.dtype
    ) -> Tensor:
        return codes.to(dtype).sub_(dither).mul_(step).add_(level0)

    def _units(self, x: Tensor, dither: Tensor | float) -> None:
        if self.low is None:
            raise arguments.wrong(ValueError, "low and high", None, "a fixed range, as there is no header to send one")
        if isinstance(dither, Tensor):
            arguments.tensor("dither", dither, shape=tuple(x.shape), kind="float")
        elif dither != 0.0:
            raise arguments.wrong(TypeError, "dither", dither, "a tensor of the shape of x, or 0.0")

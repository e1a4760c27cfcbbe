"""The uniform scalar quantiser with subtractive dither."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.compression import messages


@dataclass(frozen=True)
class UniformScalar(messages.Quantiser):
    """Each component becomes one of 2^bits levels, equally spaced over a range.

    ``bits``: 1 to 16 a component. ``low``, ``high``: see :class:`Quantiser`; a message of one value only comes back
    exactly if float32 holds that value. With W = high - low:

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

    grid: str = "endpoints"
    dither: bool = True

    name, number, most_bits = "scalar", 1, 16

    def __post_init__(self):
        arguments.one_of("grid", self.grid, ("endpoints", "bins"))
        super().__post_init__()

    def step(self, low: float | None = None, high: float | None = None) -> float:
        """Distance of two levels for the range ``low``, ``high`` (default: the fixed one). Raises: ValueError."""
        low, high = messages.law_range(self.low, self.high, low, high)
        return (high - low) / self._intervals

    def largest_error(self, width: int, low: float | None = None, high: float | None = None) -> float:
        """How far a decoded vector of ``width`` components may lie from the one that was sent, in L2, at worst.

        sqrt(width) step / 2, whatever the dither (a whole step with grid "bins" and dither, where a component near an
        end is clipped), and the rounding of float32. It is attained: every component half a step from its level.
        Raises: TypeError, ValueError (no range given and none fixed).
        """
        low, high = messages.law_range(self.low, self.high, low, high)
        worst = self.step(low, high) * (1.0 if self.grid == "bins" and self.dither else 0.5)
        rounding = 2.0**-21 * max(high - low, abs(low), abs(high))
        return (worst + rounding) * math.sqrt(arguments.integer("width", width, 1))

    def quantise(self, x: Tensor, dither: Tensor | float) -> Tensor:
        """Codes clip(round((x - level 0) / step + dither), 0, 2^bits - 1), with dither in units of a step.

        Shapes: ``x`` [...], ``dither`` like x (or 0.0 for none), to int64 [...]. Needs a fixed range.
        Raises: ValueError (x outside of the range, no fixed range).
        """
        step = self.step()
        lows, _ = messages.ranges(x.detach()[None], self.low, self.high) if x.numel() else ([self.low], None)
        return self._rounded(x.detach(), dither, float(lows[0]), 1 / step).to(torch.int64)

    def reconstruct(self, codes: Tensor, dither: Tensor | float, like: Tensor, terms: int = 1) -> Tensor:
        """Decoded values: level 0 + step (codes - dither), in ``like``'s dtype. Needs a fixed range.

        With ``terms`` = M, codes and dithers that are sums over M messages give the sum of the M decoded values.
        Shapes: ``codes`` integers [...], ``dither`` like codes, in units of a step (or 0.0), to [...].
        Raises: ValueError (no fixed range).
        """
        step = self.step()
        return codes.to(like.dtype).sub_(dither).mul_(step).add_(terms * self._level0(self.low, step))

    @property
    def _variant(self) -> bool:
        return self.grid == "bins"

    @property
    def _intervals(self) -> int:
        return 2**self.bits - (self.grid == "endpoints")

    def _level0(self, low: float | np.ndarray, step: float | np.ndarray) -> float | np.ndarray:
        return low if self.grid == "endpoints" else low + step / 2

    def _steps(self, spreads: np.ndarray) -> np.ndarray:
        return spreads / self._intervals

    def _codes(self, x: Tensor, seeds: np.ndarray, lows: np.ndarray, spreads: np.ndarray) -> Tensor:
        inverses = messages.inverse(messages.exact(self._steps(spreads), x.dtype, self.low is None))
        low, inverse = (messages.column(v, x, x.dtype) for v in (lows, inverses))
        return self._rounded(x, self._drawn(seeds, x), low, inverse)

    def _values(self, codes: Tensor, seeds: np.ndarray, lows: np.ndarray, spreads: np.ndarray, form: Tensor) -> Tensor:
        low, size = (messages.exact(v, form.dtype, self.low is None) for v in (lows, self._steps(spreads)))
        level0, step = (messages.column(v, form, form.dtype) for v in (self._level0(low, size), size))
        return codes.view_as(form).to(form.dtype).sub_(self._drawn(seeds, form)).mul_(step).add_(level0)

    def _drawn(self, seeds: np.ndarray, like: Tensor) -> Tensor | float:
        if not self.dither:
            return 0.0
        return messages.uniforms(seeds, tuple(like.shape[1:])).sub_(0.5).to(like)

    def _rounded(self, x: Tensor, dither: Tensor | float, low: messages.Scale, inverse: messages.Scale) -> Tensor:
        # A range of one value has step 0, here 1 / step = 0, and code 0 (in the middle of the bins too).
        units = x.sub(low).mul_(inverse).add_(dither)
        if self.grid == "bins":
            units.sub_(0.5)
        codes = units.round_().clamp_(0, 2**self.bits - 1)
        return codes.to(torch.uint8 if self.bits <= 8 else torch.int32)

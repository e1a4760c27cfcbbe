"""What the compressors share: checks of messages, seeds and dithers, ranges, and the way of the quantisers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.compression import wire
from fedbook.wire import Encoded

DITHER, VARIANT, OWN_RANGE = 1, 2, 4  # flags in the header of a quantiser: the second says which grid, which codebook
Scale = float | Tensor  # one number for all messages, or one for each: [R, 1, 1]
LARGEST = float(torch.finfo(torch.float32).max) / 4  # of a range: what is decoded may lie a whole range beyond it


def checked(x: Tensor, rngs: list[np.random.Generator], kind: str = "float") -> Tensor:
    """R messages and their generators, or an error that says what is wrong; NaN is looked for elsewhere.

    Shapes: ``x`` [R, B, P]. Raises: TypeError, ValueError.
    """
    _sized("x", x, kind)
    if not isinstance(rngs, list | tuple) or not all(isinstance(rng, np.random.Generator) for rng in rngs):
        raise arguments.wrong(TypeError, "rngs", rngs, "a list of NumPy generators")
    if len(rngs) != len(x):
        raise arguments.wrong(ValueError, "rngs", len(rngs), f"one generator for each of the {len(x)} rows of x")
    return x.detach().contiguous()


def checked_form(like: Tensor, kind: str = "float") -> tuple[int, int, int]:
    """The form [R, B, P] of what is decoded. Raises: TypeError, ValueError."""
    _sized("like", like, kind)
    return tuple(like.shape)


def _sized(name: str, x: Tensor, kind: str) -> None:
    arguments.tensor(name, x, ndim=3, kind=kind, finite=False)
    if 0 in x.shape[1:]:
        raise arguments.wrong(ValueError, name, x, "a tensor [R, B, P] with B and P of at least 1")


def working_dtype(dtype: torch.dtype, steps: np.ndarray) -> torch.dtype:
    """The dtype to calculate in, given the steps [R] of the quantiser: float64 for float64 and for steps of extreme
    size, whose multiples or inverse float32 does not hold; otherwise float32.
    """
    return torch.float64 if dtype == torch.float64 or bool(_extreme(steps).any()) else torch.float32


def by_precision(dtype: torch.dtype, steps: np.ndarray, work: Callable[[slice | np.ndarray, torch.dtype], Tensor]):
    """The results [R, ...] of ``work(rows, working dtype)``, rows with the same one together.

    So an extreme step of one message does not change in which dtype its neighbours are calculated.
    """
    extreme = _extreme(steps)
    if dtype == torch.float64 or not extreme.any() or extreme.all():
        return work(slice(None), working_dtype(dtype, steps))
    groups = [np.flatnonzero(~extreme), np.flatnonzero(extreme)]
    parts = [work(rows, working_dtype(dtype, steps[rows])) for rows in groups]
    return torch.cat(parts)[np.argsort(np.concatenate(groups))]


def _extreme(steps: np.ndarray) -> np.ndarray:
    return (steps > 1e30) | ((steps < 1e-30) & (steps > 0))


def draw_seeds(rngs: list[np.random.Generator]) -> np.ndarray:
    """One 64-bit seed a message, [R] uint64, drawn from the message's generator."""
    return np.array([rng.integers(0, 2**64, dtype=np.uint64) for rng in rngs], dtype=np.uint64)


def uniforms(seeds: np.ndarray, shape: tuple[int, ...]) -> Tensor:
    """Uniform numbers in [0, 1), one stream for each seed: [R, *shape] float32 on the CPU (multiples of 2^-24)."""
    drawn = np.empty((len(seeds), *shape), np.float32)
    for row, seed in zip(drawn, seeds.tolist(), strict=True):
        np.random.Generator(np.random.Philox(key=seed)).random(out=row, dtype=np.float32)
    return torch.from_numpy(drawn)


def fixed_range(low: float | None, high: float | None) -> tuple[float, float] | tuple[None, None]:
    """A range that both sides know, or (None, None) for the range of each message. Raises: TypeError, ValueError."""
    if low is None and high is None:
        return None, None
    # 0.0 is added so that -0.0 and 0.0 are the same header
    low, high = (arguments.real(name, value, -LARGEST, LARGEST) + 0.0 for name, value in (("low", low), ("high", high)))
    if float(np.float32(low)) >= float(np.float32(high)):  # the ends must differ as float32 too
        raise arguments.wrong(ValueError, "low and high", (low, high), "low < high (as float32), or None for both")
    return low, high


def law_range(fixed_low: float | None, fixed_high: float | None, low: float | None, high: float | None):
    """The range that a law is asked for, by default the fixed one. Raises: TypeError, ValueError (neither)."""
    low, high = fixed_range(*((fixed_low, fixed_high) if low is None and high is None else (low, high)))
    if low is None:
        raise arguments.wrong(ValueError, "low and high", None, "numbers, as this quantiser has no fixed range")
    return low, high


def ranges(x: Tensor, low: float | None, high: float | None) -> tuple[np.ndarray, np.ndarray]:
    """The range of each message, [R] float64: the fixed one, or least and largest entry rounded outward to float32.

    Raises: ValueError (NaN, infinity, entries outside the fixed range, or beyond a quarter of float32's largest).
    """
    if low is None:
        least, most = x.amin((1, 2)), x.amax((1, 2))  # aminmax over rows is a hundred times slower
    elif len(x):
        least, most = torch.aminmax(x)
    else:
        return np.zeros(0), np.zeros(0)
    if not bool((torch.isfinite(least) & torch.isfinite(most)).all()):
        arguments.tensor("x", x)  # which says it: NaN or infinite entries
    if low is not None:
        # The ends are compared in the dtype of x: float32(0.1) lies outside of a range that ends at the double 0.1.
        ends = torch.tensor([low, high], dtype=torch.float64).to(x.dtype).tolist()
        if float(least) < ends[0] or float(most) > ends[1]:
            allowed = f"entries in [{low}, {high}], the range that both sides know"
            raise wire.refused("x", f"entries from {float(least)} to {float(most)}", allowed)
        return np.full(len(x), low), np.full(len(x), high)
    # 0.0 is added as which of -0.0 and 0.0 is the least depends on the order of a reduction
    lows, highs = least.double().cpu().numpy() + 0.0, most.double().cpu().numpy() + 0.0
    if len(x) and max(-lows.min(), highs.max()) > LARGEST:
        allowed = f"entries in [{-LARGEST}, {LARGEST}], so that float32 holds what is decoded"
        raise wire.refused("x", f"entries from {lows.min()} to {highs.max()}", allowed)
    return _outward(lows, -np.inf), _outward(highs, np.inf)


def read_ranges(head: np.ndarray, low: float | None, high: float | None) -> tuple[np.ndarray, np.ndarray]:
    """The range of each message, [R] float64, from its header, which must agree with the fixed one.

    Raises: ValueError.
    """
    if low is None:
        lows, highs = bits_float(head["low"]), bits_float(head["high"])
        bad = np.flatnonzero(~((lows >= -LARGEST) & (lows <= highs) & (highs <= LARGEST)))  # NaN too
        if len(bad):
            got = (float(lows[bad[0]]), float(highs[bad[0]]))
            raise arguments.wrong(
                ValueError, f"buffer {bad[0]}, range in its header", got, f"low <= high in [{-LARGEST}, {LARGEST}]"
            )
        return lows, highs
    for field, end in (("low", low), ("high", high)):
        other = np.flatnonzero(head[field] != float_bits(end))
        if len(other):
            got = float(bits_float(head[field])[other[0]])
            raise arguments.wrong(ValueError, f"buffer {other[0]}, {field} in its header", got, f"{end}, as float32")
    return np.full(len(head), low), np.full(len(head), high)


def _outward(ends: np.ndarray, to: float) -> np.ndarray:
    rounded = ends.astype(np.float32)
    inside = rounded > ends if to < 0 else rounded < ends
    return np.where(inside, np.nextafter(rounded, np.float32(to)), rounded).astype(np.float64)


def column(values: np.ndarray, like: Tensor, dtype: torch.dtype) -> Scale:
    """One number for each message, rounded to ``dtype``: a plain number if all are the same, otherwise [R, 1, 1]."""
    rounded = torch.from_numpy(values).to(dtype)
    if len(values) and bool((values == values[0]).all()):  # quicker, and of the same bits
        return float(rounded[0])
    return rounded.to(like.device)[:, None, None]


def narrowed(decoded: Tensor, dtype: torch.dtype) -> Tensor:
    """Decoded values in ``dtype``: what lies beyond its largest number (dithered, near float16's) becomes that one."""
    most = torch.finfo(dtype).max
    return decoded.clamp(-most, most).to(dtype) if most < LARGEST else decoded.to(dtype)


def exact(values: np.ndarray, dtype: torch.dtype, own_range: bool) -> np.ndarray:
    """Numbers to calculate the scales of messages with: float64 for a range that both sides know.

    A message's own range is known in float32 only: what follows from it is calculated in the working ``dtype``.
    """
    return values.astype(np.float32) if own_range and dtype == torch.float32 else values


def inverse(sizes: np.ndarray) -> np.ndarray:
    """1 / size, and 0 where the size is 0, in the dtype of ``sizes``."""
    return np.divide(1, sizes, out=np.zeros_like(sizes), where=sizes > 0)


def float_bits(values: np.ndarray | float) -> np.ndarray:
    """The bit patterns of numbers as float32, uint32."""
    return np.asarray(values).astype(np.float32).view(np.uint32)


def bits_float(patterns: np.ndarray) -> np.ndarray:
    """The numbers, float64, of bit patterns of float32."""
    return np.ascontiguousarray(patterns).view(np.float32).astype(np.float64)


@dataclass(frozen=True)
class Quantiser:
    """What the quantisers share: a range, the dither, and the way from rows to buffers and back.

    ``low``, ``high``: a range that both sides know, outside of which nothing is accepted; or None for both: least and
    largest entry of each message, rounded outward to float32 and sent in the header. A new quantiser is a subclass
    with ``name``, ``number`` and ``most_bits``, a field for each option (``dither`` among them), ``_variant``,
    ``_steps``, ``_codes`` and ``_values``, and a line in :data:`fedbook.compression.codec.COMPRESSORS`.
    """

    bits: int
    low: float | None = -1.0
    high: float | None = 1.0

    name: ClassVar[str]
    number: ClassVar[int]  # of the kind of message, in the header
    most_bits: ClassVar[int]

    def __post_init__(self):
        arguments.integer("bits", self.bits, 1, self.most_bits)
        arguments.flag("dither", self.dither)
        low, high = fixed_range(self.low, self.high)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @classmethod
    def at(cls, bits: int, width: int, low: float | None, high: float | None, **options: Any) -> Quantiser:
        """The quantiser of ``bits`` bits a component, whatever the ``width``."""
        return cls(bits, low, high, **options)

    @property
    def code_bits(self) -> int:
        """Bits of one code on the wire."""
        return self.bits

    @property
    def codewords(self) -> int:
        """How many codes there are."""
        return 2**self.code_bits

    def code_count(self, B: int, P: int) -> int:
        """Codes of a message of B vectors of P components."""
        return B * P

    @property
    def flags(self) -> int:
        """The flags in the header of its messages."""
        return DITHER * self.dither + VARIANT * self._variant + OWN_RANGE * (self.low is None)

    def payload_bytes(self, B: int, P: int) -> int:
        """Bytes of the body of a message of B vectors of P components; the header has 32 more.

        Raises: TypeError, ValueError.
        """
        B, P = arguments.integer("B", B, 1), arguments.integer("P", P, 1)
        return wire.packed_bytes(self.code_count(B, P), self.code_bits)

    def encode(self, x: Tensor, rngs: list[np.random.Generator]) -> list[Encoded]:
        """R messages in their wire format; a seed of the dither is drawn from each message's generator.

        Shapes: ``x`` [R, B, P], ``rngs`` R generators.
        Raises: TypeError, ValueError (NaN, infinity, entries outside of the fixed range, or too large for an own one).
        """
        x = checked(x, rngs)
        lows, highs = ranges(x, self.low, self.high)
        head = wire.headers(self.number, self.code_bits, self.flags, tuple(x.shape))
        head["seed"] = draw_seeds(rngs) if self.dither else 0
        head["low"], head["high"] = float_bits(lows), float_bits(highs)
        spreads = highs - lows

        def codes(rows: slice | np.ndarray, dtype: torch.dtype) -> Tensor:
            return self._codes(x[rows].to(dtype), head["seed"][rows], lows[rows], spreads[rows])

        bodies = by_precision(x.dtype, self._steps(spreads), codes).flatten(1)
        return wire.seal(head, wire.pack(bodies, self.code_bits))

    def decode(self, buffers: list[Encoded], like: Tensor) -> Tensor:
        """What R messages say, in ``like``'s dtype and device.

        Shapes: R messages, ``like`` [R, B, P], to [R, B, P].
        Raises: TypeError, ValueError (damaged, or written by another compressor or for another shape).
        """
        R, B, P = checked_form(like)
        head = wire.read_headers(buffers, self.number, self.code_bits, (R, B, P))
        wire.expect(head, "flags", self.flags, f"{self.flags}, those of {self}")
        bodies = wire.read_bodies(buffers, self.payload_bytes(B, P))
        lows, highs = read_ranges(head, self.low, self.high)
        codes = wire.unpack(bodies.to(like.device), self.code_bits, self.code_count(B, P))
        if self.codewords < 2**self.code_bits and R and int(codes.max()) >= self.codewords:
            allowed = f"below {self.codewords}, the codewords"
            raise arguments.wrong(ValueError, "buffers, largest code", int(codes.max()), allowed)
        spreads = highs - lows

        def values(rows: slice | np.ndarray, dtype: torch.dtype) -> Tensor:
            form = torch.empty((), dtype=dtype, device=like.device).expand(len(lows[rows]), B, P)
            return narrowed(self._values(codes[rows], head["seed"][rows], lows[rows], spreads[rows], form), like.dtype)

        return by_precision(like.dtype, self._steps(spreads), values)

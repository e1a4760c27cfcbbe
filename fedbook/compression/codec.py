"""Compressors by name, and a compressor as the codec of an exchange."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from fedbook import arguments
from fedbook.compression.hexagonal import Hexagonal
from fedbook.compression.scalar import UniformScalar
from fedbook.compression.sparse import RandomK, TopK
from fedbook.wire import Encoded

NAMES = ("none", "scalar", "hex", "topk", "randomk")


class Compressor(Protocol):
    """A wire format for R messages of B vectors of P components at once."""

    name: str

    def encode(self, x: Tensor, rngs: list[np.random.Generator]) -> list[Encoded]: ...

    def decode(self, buffers: list[Encoded], like: Tensor) -> Tensor: ...

    def payload_bytes(self, B: int, P: int) -> int: ...


@dataclass(frozen=True)
class Codec:
    """A compressor as the codec of an upload that is one tensor: rows [R, B, P], or [R, P] seen as [R, 1, P].

    Raises: TypeError, ValueError (a message of several tensors, or rows of another form).
    Source: the protocol :class:`fedbook.federation.exchange.Codec`.
    """

    compressor: Compressor

    def __post_init__(self):
        words, kind = ("encode", "decode", "payload_bytes"), isinstance(self.compressor, type)
        if kind or not all(callable(getattr(self.compressor, word, None)) for word in words):
            raise arguments.wrong(TypeError, "compressor", self.compressor, "a compressor (compressor(...) makes one)")

    def encode(self, message: dict[str, Tensor], rngs: list[np.random.Generator]) -> list[Encoded]:
        """One buffer for each row of the message's only tensor."""
        return self.compressor.encode(_rows("message", message)[1], rngs)

    def decode(self, buffers: list[Encoded], like: dict[str, Tensor]) -> dict[str, Tensor]:
        """The decoded message, in the form of ``like``."""
        name, rows = _rows("like", like)
        return {name: self.compressor.decode(buffers, rows).view(like[name].shape)}


def compressor(
    name: str, bits: int, width: int, low: float | None = -1.0, high: float | None = 1.0, **more: Any
) -> Compressor | None:
    """The compressor ``name`` at ``bits`` bits for each of ``width`` components; None for "none".

    "scalar", "hex": quantisers on the range ``low``, ``high`` (None for both: the range of each message). "topk" and
    "randomk" keep k = floor(bits width / 32) of the 32-bit components, as the paper charges them; the positions of
    top-k come on top of that and are counted. ``more`` goes to the compressor.

    Raises: TypeError, ValueError (k = 0: so few bits leave no component).
    Source: Castiglia et al. 2022, section 5.
    """
    arguments.one_of("name", name, NAMES)
    bits, width = arguments.integer("bits", bits, 1, 32), arguments.integer("width", width, 1)
    if name == "none":
        return None
    if name in ("scalar", "hex"):
        return (UniformScalar if name == "scalar" else Hexagonal)(bits, low, high, **more)
    if more:
        raise arguments.wrong(TypeError, sorted(more)[0], more[sorted(more)[0]], f"nothing more for {name!r}")
    k = bits * width // 32
    if k == 0:
        allowed = f"at least {-(-32 // bits)}, as k = floor(bits width / 32) must be 1 or more"
        raise arguments.wrong(ValueError, f"width with {bits} bits", width, allowed)
    return TopK(k) if name == "topk" else RandomK(k)


def _rows(name: str, message: dict[str, Tensor]) -> tuple[str, Tensor]:
    if not isinstance(message, dict) or len(message) != 1:
        given = sorted(message) if isinstance(message, dict) else message
        raise arguments.wrong(ValueError, name, given, "a dictionary with one tensor (compress each upload apart)")
    leaf, x = next(iter(message.items()))
    arguments.tensor(f"{name} {leaf!r}", x, finite=False)
    if x.ndim not in (2, 3):
        raise arguments.wrong(ValueError, f"{name} {leaf!r}", x, "rows [R, P] or [R, B, P]")
    return leaf, x if x.ndim == 3 else x[:, None]

"""The registry of compressors, and the codecs of an exchange: a compressor, or symmetric matrices as triangles."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.compression import messages
from fedbook.compression.hexagonal import Hexagonal
from fedbook.compression.scalar import UniformScalar
from fedbook.compression.sparse import RandomK, Sparse, TopK
from fedbook.wire import Encoded, Wire


class Compressor(Protocol):
    """A wire format for R messages of B vectors of P components at once."""

    name: str

    def encode(self, x: Tensor, rngs: list[np.random.Generator]) -> list[Encoded]: ...

    def decode(self, buffers: list[Encoded], like: Tensor) -> Tensor: ...

    def payload_bytes(self, B: int, P: int) -> int: ...


@dataclass(frozen=True)
class Kind:
    """A line of the registry: all that the rest of the package needs to know of a compressor.

    ``words``: its name in tables and pictures. ``about``: one line. ``make``: the class, whose ``at(bits, width, low,
    high, **options)`` makes one and whose ``number`` stands in the header (None: nothing is compressed). ``options``:
    what it takes beside bits and range. ``unbiased``: whether, as it is made by default, the error has mean 0.
    ``paper``: its name in the tables of Castiglia et al.
    """

    words: str
    about: str
    make: type[Compressor] | None
    options: tuple[str, ...] = ()
    unbiased: bool = False
    paper: str | None = None

    @property
    def most_bits(self) -> int:
        """The largest number of bits a component."""
        return 32 if self.make is None else self.make.most_bits

    @property
    def sparse(self) -> bool:
        """Whether bits mean a number of components, each of 32 bits."""
        return self.make is not None and issubclass(self.make, Sparse)


COMPRESSORS = MappingProxyType({
    "none": Kind("none", "components go as they are", None, unbiased=True, paper="none"),
    "scalar": Kind("scalar", "2^b levels a component", UniformScalar, ("dither", "grid"), True, "scalar"),
    "hex": Kind("hexagonal", "4^b lattice points a pair", Hexagonal, ("dither", "codebook"), paper="vector"),
    "topk": Kind("top-k", "the k = floor(b P / 32) components of largest magnitude", TopK, paper="top-k"),
    "randomk": Kind("random-k", "k = floor(b P / 32) random components", RandomK),
})  # fmt: skip


def compressor(
    name: str, bits: int, width: int, low: float | None = -1.0, high: float | None = 1.0, **options: Any
) -> Compressor | None:
    """The compressor ``name`` of :data:`COMPRESSORS`, ``bits`` bits for each of ``width`` components; "none": None.

    Quantisers have the range ``low``, ``high`` (None for both: the range of each message). Sparse ones keep
    k = floor(bits width / 32) of the 32-bit components, as the paper charges them; the positions of top-k come on top
    of that and are counted. ``options``: those of its line.

    Raises: TypeError, ValueError (k = 0: so few bits leave no component).
    Source: Castiglia et al. 2022, section 5.
    """
    kind = COMPRESSORS[arguments.one_of("name", name, COMPRESSORS)]
    bits, width = arguments.integer("bits", bits, 1, kind.most_bits), arguments.integer("width", width, 1)
    for option in sorted(set(options) - set(kind.options)):
        allowed = f"nothing more for {name!r} than {', '.join(kind.options) or 'bits and width'}"
        raise arguments.wrong(TypeError, option, options[option], allowed)
    return None if kind.make is None else kind.make.at(bits, width, low, high, **options)


@dataclass(frozen=True)
class AnyWidth:
    """``compressor(name, bits, width, ...)`` for messages of whatever width: it is made when the message is there.

    ``low``, ``high``: None for both is the range of each message. Raises: TypeError, ValueError.
    """

    name: str
    bits: int
    low: float | None = None
    high: float | None = None

    def __post_init__(self):
        allowed = {word: kind for word, kind in COMPRESSORS.items() if kind.make is not None}
        arguments.one_of("name", self.name, allowed)
        arguments.integer("bits", self.bits, 1, allowed[self.name].most_bits)
        messages.fixed_range(self.low, self.high)

    def made(self, width: int) -> Compressor:
        """The compressor for vectors of ``width`` components. Raises: ValueError (so few bits leave no component)."""
        return compressor(self.name, self.bits, width, self.low, self.high)

    def encode(self, x: Tensor, rngs: list[np.random.Generator]) -> list[Encoded]:
        """R messages [R, B, P] in their wire format."""
        return self.made(x.shape[-1]).encode(x, rngs)

    def decode(self, buffers: list[Encoded], like: Tensor) -> Tensor:
        """What R messages say, in the form of ``like`` [R, B, P]."""
        return self.made(like.shape[-1]).decode(buffers, like)

    def payload_bytes(self, B: int, P: int) -> int:
        """Bytes of the body of a message of B vectors of P components."""
        return self.made(P).payload_bytes(B, P)


@dataclass(frozen=True)
class Codec:
    """A compressor as the codec of an upload: one tensor [R, B, P], or [R, P] seen as [R, 1, P].

    Several tensors (a model's parameters) are one vector [R, 1, P] of all their numbers, in the order of their names.
    Raises: TypeError, ValueError (rows of another form, tensors of different dtypes).
    Source: the protocol :class:`fedbook.federation.exchange.Codec`.
    """

    compressor: Compressor

    def __post_init__(self):
        made = not isinstance(self.compressor, type)
        if not made or not all(callable(getattr(self.compressor, word, None)) for word in ("encode", "decode")):
            raise arguments.wrong(TypeError, "compressor", self.compressor, "a compressor (compressor(...) makes one)")

    def encode(self, message: dict[str, Tensor], rngs: list[np.random.Generator]) -> list[Encoded]:
        """One buffer for each row of the message."""
        return self.compressor.encode(_vectors("message", message), rngs)

    def decode(self, buffers: list[Encoded], like: dict[str, Tensor]) -> dict[str, Tensor]:
        """The decoded message, in the form of ``like``."""
        decoded = self.compressor.decode(buffers, _vectors("like", like))
        if len(like) == 1:
            return {name: decoded.view(x.shape) for name, x in like.items()}
        names, row = sorted(like), decoded.flatten(1)
        parts = row.split([like[name].shape[1:].numel() for name in names], 1)
        rows = {name: part.reshape(like[name].shape) for name, part in zip(names, parts, strict=True)}
        return {name: rows[name] for name in like}


@dataclass(frozen=True)
class UpperTriangle:
    """Codec of an upload that is one symmetric matrix: row by row its entries on and above the diagonal, nothing lost.

    Shapes: rows [R, H, H], H (H + 1) / 2 numbers of their dtype each.
    Raises: TypeError, ValueError (also: a matrix that is not symmetric, a buffer of another length).
    Source: the protocol :class:`fedbook.federation.exchange.Codec`.
    """

    def encode(self, message: dict[str, Tensor], rngs: list[np.random.Generator]) -> list[Encoded]:
        """One buffer for each row of the message's only tensor."""
        return _triangles(_rows("message", message)[1])

    def decode(self, buffers: list[Encoded], like: dict[str, Tensor]) -> dict[str, Tensor]:
        """The matrices [R, H, H] in the dtype and on the device of ``like``."""
        name, rows = _rows("like", like)
        i, j = torch.triu_indices(*rows.shape[1:])
        size = len(i) * rows.element_size()
        if not isinstance(buffers, list | tuple) or not all(isinstance(buffer, Encoded) for buffer in buffers):
            raise arguments.wrong(TypeError, "buffers", buffers, "a list of Encoded")
        if len(buffers) != len(rows) or any(buffer.nbytes != size for buffer in buffers):
            given = [buffer.nbytes for buffer in buffers]
            raise arguments.wrong(ValueError, "buffers, bytes", given, f"{size} for each of the {len(rows)} rows")
        decoded = torch.empty_like(rows)
        for row, buffer in zip(decoded, buffers, strict=True):
            row[i, j] = row[j, i] = buffer.buffer.view(rows.dtype).to(rows.device)
        return {name: decoded}


def triangle_wire(matrices: Tensor) -> Wire:
    """A broadcast of symmetric matrices [S, H, H] as their upper triangles. Raises: TypeError, ValueError."""
    return Wire(matrices, tuple((buffer,) for buffer in _triangles(matrices)), UpperTriangle())


def _triangles(rows: Tensor) -> list[Encoded]:
    arguments.tensor("rows", rows, ndim=3, kind="float", finite=False)
    if bool(rows.isnan().any()):
        raise arguments.wrong(ValueError, "rows", rows, "symmetric matrices [R, H, H] without NaN")
    if rows.shape[1] != rows.shape[2] or not torch.equal(rows, rows.mT):
        raise arguments.wrong(ValueError, "rows", rows, "symmetric matrices [R, H, H]")
    i, j = torch.triu_indices(*rows.shape[1:])
    return [Encoded(row.view(torch.uint8)) for row in rows.detach().cpu()[:, i, j].contiguous()]


def _vectors(name: str, message: dict[str, Tensor]) -> Tensor:
    """What a compressor sees of a message: [R, B, P]."""
    if not isinstance(message, dict) or len(message) < 2:
        return _rows(name, message)[1]
    for leaf, x in message.items():
        arguments.tensor(f"{name} {leaf!r}", x, finite=False)
    forms = {(len(x) if x.ndim else None, x.dtype) for x in message.values()}
    if len(forms) != 1 or (None, next(iter(message.values())).dtype) in forms:
        given = {leaf: arguments.shown(x) for leaf, x in message.items()}
        raise arguments.wrong(ValueError, name, given, "tensors of one dtype and one number of rows R")
    rows = (message[leaf] for leaf in sorted(message))
    return torch.cat([x.reshape(len(x), x.shape[1:].numel()) for x in rows], 1)[:, None]


def _rows(name: str, message: dict[str, Tensor]) -> tuple[str, Tensor]:
    if not isinstance(message, dict) or len(message) != 1:
        given = sorted(message) if isinstance(message, dict) else message
        raise arguments.wrong(ValueError, name, given, "a dictionary with one tensor")
    leaf, x = next(iter(message.items()))
    arguments.tensor(f"{name} {leaf!r}", x, finite=False)
    if x.ndim not in (2, 3):
        raise arguments.wrong(ValueError, f"{name} {leaf!r}", x, "rows [R, P] or [R, B, P]")
    return leaf, x if x.ndim == 3 else x[:, None]

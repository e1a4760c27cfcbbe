"""MATLAB's version 5 ``.mat`` files, plain or packed by zlib, read as if their maker were hostile.

Such a file is a header of 128 bytes and then elements: type, size, content. An element is a matrix (flags, sizes, name
and numbers, elements themselves) or a matrix packed by zlib. Only real arrays of unsigned bytes or doubles are read, of
names, shapes and types known beforehand. Nothing else may lie in the file: no cells, objects or functions. What is
reserved is bounded by the expected shapes alone, and no more is unpacked than these need and one byte to see that
nothing follows.

Source: MathWorks, *MAT-File Format* (the description of level 5).
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np

from fedbook.data.errors import BrokenFile
from fedbook.data.expected import Expected, checked

HEADER = 128
CHUNK = 2**16
OVERHEAD = 2**12  # bytes of a variable beside its numbers; an honest one has less than 200
BYTES, INT32, UINT32, MATRIX, PACKED = 1, 5, 6, 14, 15  # types of elements
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"}  # types of numbers
CLASSES = {6: "<f8", 9: "|u1"}  # what an array is; doubles that are whole numbers are stored as smaller types


def read_mat(path: str | Path, expected: Mapping[str, Expected]) -> dict[str, np.ndarray]:
    """The arrays of a ``.mat`` file that holds exactly those ``expected``, columns first as MATLAB stores them.

    Shapes: as expected; kinds are ``"|u1"`` and ``"<f8"``. Memory: the arrays (doubles: twice, while they are read).
    Raises: BrokenFile (a ``ValueError``; names the file and what is wrong), FileNotFoundError; TypeError, ValueError
    (an argument).
    """
    path, expected = Path(path), checked(expected, CLASSES.values())
    # zlib packs what it cannot make smaller into 0.03 percent more
    limit = HEADER + sum(array.bytes + array.bytes // 1_000 + OVERHEAD for array in expected.values())
    size = path.stat().st_size
    if size > limit:
        raise BrokenFile(path, f"has {size:,} bytes, more than the {limit:,} that its arrays could take")
    arrays: dict[str, np.ndarray] = {}
    with path.open("rb") as file:
        order = _byte_order(path, file.read(HEADER))
        try:
            while tag := file.read(8):
                name, array = _variable(path, file, tag, order, expected)
                if name in arrays:
                    raise BrokenFile(path, f"refused: holds {name} twice")
                arrays[name] = array
        except zlib.error as error:
            raise BrokenFile(path, f"the packing is damaged ({error})") from error
    missing = sorted(set(expected) - set(arrays))
    if missing:
        raise BrokenFile(path, f"lacks {', '.join(missing)}")
    return arrays


def _byte_order(path: Path, header: bytes) -> str:
    """``"<"`` or ``">"``, by the mark at the end of the header."""
    order = {b"IM": "<", b"MI": ">"}.get(header[126:])
    if order is None:
        raise BrokenFile(path, "is cut short or no MATLAB file of version 5: its header lacks the mark IM or MI")
    (version,) = struct.unpack(f"{order}H", header[124:126])
    if version != 0x0100:
        raise BrokenFile(path, f"is a MATLAB file of version {version:#06x}; only 0x0100 (level 5) is read")
    return order


def _variable(
    path: Path, file: BinaryIO, tag: bytes, order: str, expected: Mapping[str, Expected]
) -> tuple[str, np.ndarray]:
    """The variable that starts with ``tag``, packed or not."""
    kind, size = _two(path, order, tag)
    if kind != PACKED:
        return _matrix(path, Content(path, file, _matrix_size(path, kind, size)), order, expected)
    unpacked = Unpacked(file, size)
    kind, size = _two(path, order, Content(path, unpacked, 8).take(8))
    variable = _matrix(path, Content(path, unpacked, _matrix_size(path, kind, size)), order, expected)
    if not unpacked.ends():
        raise BrokenFile(path, f"{variable[0]} is cut short, or more than its array is packed with it")
    return variable


def _two(path: Path, order: str, tag: bytes) -> tuple[int, int]:
    if len(tag) < 8:
        raise BrokenFile(path, f"is cut short: {len(tag)} bytes where an element of 8 or more has to begin")
    return struct.unpack(f"{order}II", tag)


def _matrix_size(path: Path, kind: int, size: int) -> int:
    if kind != MATRIX:
        raise BrokenFile(path, f"refused: holds an element of type {kind}; allowed are matrices ({MATRIX})")
    return size


def _matrix(path: Path, content: Content, order: str, expected: Mapping[str, Expected]) -> tuple[str, np.ndarray]:
    (flags, _) = struct.unpack(f"{order}II", _part(path, content, order, UINT32, range(8, 9), "flags"))
    sizes = _part(path, content, order, INT32, range(8, 33, 4), "sizes")
    shape = struct.unpack(f"{order}{len(sizes) // 4}i", sizes)
    name = _part(path, content, order, BYTES, range(1, 64), "name").decode("latin1")
    if name not in expected:
        raise BrokenFile(path, f"refused: holds a variable {name!r}; expected are {', '.join(sorted(expected))}")
    kind = CLASSES.get(flags & 0xFF)
    if kind not in expected[name].kinds or flags >> 8 & 0xFF:  # flags: logical, global, complex
        allowed = ", ".join(expected[name].kinds)
        raise BrokenFile(path, f"refused: {name} is of MATLAB's class and flags {flags & 0xFFFF:#06x}, not {allowed}")
    if not expected[name].fits(shape):
        raise BrokenFile(path, f"{name} has shape {list(shape)}; expected is {expected[name].shape_text()}")
    return name, _numbers(path, content, order, name, shape, kind)


def _numbers(path: Path, content: Content, order: str, name: str, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """The last part of a matrix; ``shape`` is the expected one, so it bounds what is reserved."""
    number, size, short = _tag(path, content, order)
    stored = STORED.get(number)
    if stored is None or (kind == "|u1" and stored != "u1"):
        raise BrokenFile(path, f"refused: the numbers of {name} are stored as type {number}, which does not fit {kind}")
    array = np.empty(math.prod(shape), f"{order}{stored}")
    if size != array.nbytes:
        raise BrokenFile(path, f"{name} of shape {list(shape)} comes with {size:,} bytes; needed are {array.nbytes:,}")
    if short is None:
        content.fill(memoryview(array.view(np.uint8)))
    else:
        array[:] = np.frombuffer(short, array.dtype)
    # the last part is filled up to a multiple of 8 bytes, or ends where its numbers end
    if content.left not in (0, 0 if short is not None else -size % 8):
        raise BrokenFile(path, f"{content.left:,} bytes too many belong to {name}")
    content.take(content.left)
    return array.astype(kind, copy=False).reshape(shape, order="F")


def _part(path: Path, content: Content, order: str, allowed: int, lengths: range, what: str) -> bytes:
    """A short part of a matrix: of the type ``allowed``, its bytes as many as one of ``lengths``."""
    number, size, short = _tag(path, content, order)
    if number != allowed or size not in lengths:
        raise BrokenFile(path, f"refused: the {what} of a variable: {size:,} bytes of type {number}")
    return content.take(size + -size % 8)[:size] if short is None else short


def _tag(path: Path, content: Content, order: str) -> tuple[int, int, bytes | None]:
    """Type, size and, where both share four bytes, the one to four bytes that follow."""
    head = content.take(8)
    number, size = struct.unpack(f"{order}II", head)
    if not number >> 16:
        return number, size, None
    number, size = number & 0xFFFF, number >> 16
    if size > 4:
        raise BrokenFile(path, f"is damaged: a short element of {size:,} bytes; at most 4 fit")
    return number, size, head[4 : 4 + size]


class Source(Protocol):
    """What bytes come from: a file, or what a packed element unpacks to."""

    def read(self, count: int) -> bytes:
        """At most ``count`` bytes, none at the end."""


class Content:
    """The content of a matrix: the next ``left`` bytes of ``source``."""

    def __init__(self, path: Path, source: Source, left: int) -> None:
        self.left, self._path, self._source = left, path, source

    def take(self, count: int) -> bytes:
        """Exactly so many bytes (few). Raises: BrokenFile."""
        piece = bytearray(count)
        self.fill(memoryview(piece))
        return bytes(piece)

    def fill(self, target: memoryview) -> None:
        """Exactly as many bytes as ``target`` has. Raises: BrokenFile."""
        if len(target) > self.left:
            raise BrokenFile(
                self._path, f"is damaged: {self.left:,} bytes are left of a variable, {len(target):,} needed"
            )
        done = 0
        while done < len(target):
            piece = self._source.read(min(CHUNK, len(target) - done))
            if not piece:
                raise BrokenFile(self._path, f"is cut short: {done:,} of {len(target):,} bytes of a part are there")
            target[done : done + len(piece)] = piece
            done += len(piece)
        self.left -= done


class Unpacked:
    """What the next ``size`` bytes of a file unpack to; never more at once than is asked for."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left, self._packed, self._zlib = file, size, b"", zlib.decompressobj()

    def read(self, count: int) -> bytes:
        """At most ``count`` bytes (1 or more), none at the end. Raises: zlib.error."""
        while not self._zlib.eof:
            if not self._packed:
                self._packed = self._file.read(min(CHUNK, self._left))
                self._left -= len(self._packed)
            given = self._packed  # may be empty: zlib can still hold what did not fit before
            piece = self._zlib.decompress(given, count)
            self._packed = self._zlib.unconsumed_tail
            if piece or not given:
                return piece
        return b""

    def ends(self) -> bool:
        """Whether everything was read, zlib's checksum agrees and no bytes follow. Raises: zlib.error."""
        return not self.read(1) and self._zlib.eof and not self._zlib.unused_data and not self._left

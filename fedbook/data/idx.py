"""The idx format of MNIST and its relatives: big-endian header (magic, sizes), then the bytes; often packed by gzip.

A file is read as if its maker were hostile: the sizes in the header are checked before anything is reserved, and no
more is ever unpacked than the header promises and one byte to see that nothing follows.

Source: the description of the format on the MNIST page of LeCun, Cortes and Burges.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fedbook import arguments
from fedbook.data.errors import BrokenFile

UNSIGNED_BYTE = 0x08
LIMIT = 2**30  # bytes of content; MNIST's largest file has 47,040,016
CHUNK = 2**20


def read_idx(path: str | Path, shape: Sequence[int | None], limit: int = LIMIT) -> np.ndarray:
    """The unsigned bytes of an idx file, packed by gzip or not, of exactly this shape.

    Shapes: ``shape`` is what is expected, ``None`` for "any size"; the result has that many axes.
    ``limit``: the most bytes of content that are accepted.
    Raises: BrokenFile (a ``ValueError``; names the file and what is wrong), FileNotFoundError; TypeError, ValueError
    (an argument).
    """
    path, limit = Path(path), arguments.integer("limit", limit, 0)
    shape = [None if size is None else arguments.integer("shape", size, 0) for size in shape]
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        try:
            if packed:
                with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
                    return _read(path, unpacked, shape, limit)
            return _read(path, file, shape, limit)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise BrokenFile(path, f"the gzip packing is damaged or cut short ({error})") from error


def write_idx(path: str | Path, array: np.ndarray) -> None:
    """Writes unsigned bytes as a gzip-packed idx file: level 9, no name and no time in it.

    The same array gives the same bytes on every machine with the same zlib.
    Raises: TypeError unless ``array`` is a NumPy array of unsigned bytes.
    """
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8:
        given = getattr(array, "dtype", type(array).__name__)
        raise TypeError(f"array: got {given}; allowed is a NumPy array of uint8")
    head = struct.pack(">HBB", 0, UNSIGNED_BYTE, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    with Path(path).open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(head + np.ascontiguousarray(array).tobytes())


def _read(path: Path, stream: BinaryIO, shape: Sequence[int | None], limit: int) -> np.ndarray:
    magic = _exactly(path, stream, 4)
    zero, kind, ndim = struct.unpack(">HBB", magic)
    if zero or kind != UNSIGNED_BYTE:
        raise BrokenFile(path, f"starts with {magic.hex(' ')}, not with 00 00 08 (an idx file of unsigned bytes)")
    if ndim != len(shape):
        raise BrokenFile(path, f"has {ndim} axes; expected are {len(shape)}: {_text(shape)}")
    sizes = struct.unpack(f">{ndim}I", _exactly(path, stream, 4 * ndim))
    if any(n is not None and n != m for n, m in zip(shape, sizes, strict=True)):
        raise BrokenFile(path, f"has shape {_text(sizes)}; expected is {_text(shape)}")
    count = math.prod(sizes)
    if count > limit:
        raise BrokenFile(path, f"promises {count:,} bytes, more than the {limit:,} that are accepted")
    body = _at_most(stream, count + 1)
    if len(body) < count:
        raise BrokenFile(path, f"is cut short: the header promises {count:,} bytes, {len(body):,} follow")
    if len(body) > count:
        raise BrokenFile(path, f"holds more than the {count:,} bytes that the header promises")
    return np.frombuffer(body, np.uint8).reshape(sizes)


def _exactly(path: Path, stream: BinaryIO, count: int) -> bytes:
    part = _at_most(stream, count)
    if len(part) < count:
        raise BrokenFile(path, "is cut short within its header")
    return bytes(part)


def _at_most(stream: BinaryIO, count: int) -> bytearray:
    # In pieces: a single read(count) would reserve what the header promises before there is anything to fill it.
    body = bytearray()
    while len(body) < count:
        piece = stream.read(min(CHUNK, count - len(body)))
        if not piece:
            break
        body += piece
    return body


def _text(shape: Sequence[int | None]) -> str:
    return "[" + ", ".join("any" if n is None else str(n) for n in shape) + "]"

"""Files that somebody else made, one reader a format, each as if the maker were hostile.

Nothing in a file is executed; what an array has to be is known before it is read; no more is unpacked than that needs.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedbook.data.root import BrokenFile

CHUNK = 2**20
TEXT = 2**25  # the most bytes of a text; the largest honest one, WordNet's data.noun, has 15,300,280


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Whatever a library raises over the content of ``path`` is a ``BrokenFile``; what the disk raises stays."""
    try:
        yield
    except BrokenFile:
        raise
    except Exception as error:  # on damaged files the libraries raise nearly anything
        # EINVAL: a zip whose list points to a place before the file's beginning
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        raise BrokenFile(path, f"is not what it should be ({type(error).__name__}: {error})") from error


def content(path: Path, limit: int) -> bytearray:
    """What a file holds, unpacked if gzip packed it; one byte more than ``limit`` at most. Raises: BrokenFile."""
    data = bytearray()
    with path.open("rb") as file, reading(path):
        stream = gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == b"\x1f\x8b" else file
        # In pieces: a single read would reserve the limit before there is anything to fill it.
        while len(data) <= limit and (piece := stream.read(min(CHUNK, limit + 1 - len(data)))):
            data += piece
    return data


def read_lines(path: Path) -> list[tuple[int, str]]:
    """The lines of an ASCII text, packed by gzip or not, with their numbers from 1. Raises: BrokenFile."""
    text = content(path, TEXT)
    if len(text) > TEXT:
        raise BrokenFile(path, f"holds more than the {TEXT:,} bytes that are accepted")
    lines = list(enumerate(text.removesuffix(b"\n").split(b"\n"), 1))
    foreign = [number for number, line in lines if not line.isascii()]
    if foreign:
        raise BrokenFile(path, f"line {foreign[0]}: holds bytes that are no ASCII")
    return [(number, line.decode("ascii")) for number, line in lines]


def read_idx(path: Path, shape: Sequence[int]) -> np.ndarray:
    """The unsigned bytes of an idx file, packed by gzip or not, of exactly this shape.

    Raises: BrokenFile, FileNotFoundError.
    Source: the description of the format on the MNIST page of LeCun, Cortes and Burges.
    """
    shape = tuple(shape)
    begin = 4 + 4 * len(shape)
    data = content(path, begin + math.prod(shape))
    if data[:3] != b"\0\0\x08" or len(data) < begin:
        raise BrokenFile(path, f"is cut short or no idx file of unsigned bytes: it starts with {data[:4].hex(' ')}")
    if data[3] != len(shape):
        raise BrokenFile(path, f"has {data[3]} axes; expected are {len(shape)}: {list(shape)}")
    sizes = struct.unpack_from(f">{len(shape)}I", data, 4)
    if sizes != shape:
        raise BrokenFile(path, f"has shape {list(sizes)}; expected is {list(shape)}")
    if len(data) != begin + math.prod(shape):
        word = "is cut short: its" if len(data) < begin + math.prod(shape) else "holds more than its"
        raise BrokenFile(path, f"{word} shape {list(shape)} takes {math.prod(shape):,} bytes")
    return np.frombuffer(data, np.uint8, offset=begin).reshape(shape)


def write_idx(path: str | Path, array: np.ndarray) -> None:
    """Writes unsigned bytes as a gzip-packed idx file: level 9, no name and no time in it.

    The same array gives the same bytes on every machine with the same zlib.
    """
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    with Path(path).open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(head + np.ascontiguousarray(array, np.uint8).tobytes())


class Expected(NamedTuple):
    """What an array in a file has to be: the size of each axis, or the ``range`` allowed there; the types allowed."""

    shape: tuple[int | range, ...]
    kinds: tuple[str, ...]

    def check(self, path: Path, name: str, shape: tuple[int, ...], kind: str) -> None:
        """Raises: BrokenFile (an array of another shape or type)."""
        ranges = [size if isinstance(size, range) else range(size, size + 1) for size in self.shape]
        if len(shape) != len(ranges) or any(n not in sizes for n, sizes in zip(shape, ranges, strict=True)):
            text = ", ".join(f"{r[0]}" if len(r) == 1 else f"{r[0]} to {r[-1]}" for r in ranges)
            raise BrokenFile(path, f"{name} has shape {list(shape)}; expected is [{text}]")
        if kind not in self.kinds:
            raise BrokenFile(path, f"refused: {name} is of type {kind}; allowed is {', '.join(self.kinds)}")


def read_npz(path: Path, expected: Mapping[str, Expected], wanted: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """The arrays ``wanted`` (all, if none is named) of an ``.npz`` file that holds exactly those ``expected``.

    Raises: BrokenFile, FileNotFoundError.
    """
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    arrays = {}
    with reading(path), np.load(path, allow_pickle=False) as archive:
        if sorted(archive.files) != sorted(expected):
            there = ", ".join(sorted(archive.files))[:200]
            raise BrokenFile(path, f"holds {there or 'nothing'}; expected are exactly {', '.join(sorted(expected))}")
        for name in wanted or expected:
            with archive.zip.open(f"{name}.npy") as file:  # the header alone first: it says what would be reserved
                shape, _, dtype = headers[np.lib.format.read_magic(file)](file)
            expected[name].check(path, name, shape, str(dtype))
            arrays[name] = archive[name]
    return arrays


def read_mat(path: Path, published: str) -> dict[str, np.ndarray]:
    """The variables of a MATLAB file that has the ``published`` checksum.

    No other file is opened: a crafted one makes SciPy's reader touch memory that is not its own.
    Raises: BrokenFile, FileNotFoundError.
    """
    from scipy.io import loadmat

    if (there := checksum(path, published)) != published:
        raise BrokenFile(path, f"is not the published file: it has {there}; published is {published}")
    with reading(path):
        return loadmat(path)


def checksum(path: Path, like: str) -> str:
    """The checksum of a file's bytes in the form and by the algorithm of ``like`` (``"md5:..."``, ``"sha256:..."``)."""
    algorithm = like.partition(":")[0]
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{digest.hexdigest()}"

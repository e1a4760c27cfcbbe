"""NumPy's ``.npz`` files, a zip of ``.npy`` arrays each, read as if their maker were hostile.

``numpy.load`` would unpickle arrays of objects where it is told to, and reserves what a header promises. Here names,
shapes and types of all arrays are known beforehand. Nothing else may lie in the file; the text of a header is matched
and never evaluated; what is reserved is bounded by the expected shapes alone; and no more is unpacked than these need
and one byte to see that nothing follows.

Source: the description of the format in NumPy's documentation (``numpy.lib.format``).
"""

from __future__ import annotations

import errno
import math
import re
import stat
import struct
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from fedbook import arguments
from fedbook.data.archive import DAMAGE
from fedbook.data.errors import BrokenFile
from fedbook.data.expected import Expected, checked

CHUNK = 2**20
HEADER = 2**14  # the most bytes of a header; an honest one has 128
OVERHEAD = 2**16  # bytes of a member's entry in the zip, far more than an honest one takes
TEXT = re.compile(
    rb"\{'descr': '([^']{1,20})', 'fortran_order': (True|False), 'shape': \(((?:\d{1,15},? ?){0,8})\), ?\} *\n"
)


def read_npz(
    path: str | Path, expected: Mapping[str, Expected], wanted: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """The arrays ``wanted`` (all, if not given) of an ``.npz`` file that holds exactly those ``expected``.

    Shapes: as expected. Memory: the arrays. The others are checked by name and promised size only.
    Raises: BrokenFile (a ``ValueError``; names the file and what is wrong), FileNotFoundError; TypeError, ValueError
    (an argument).
    """
    path = Path(path)
    expected = checked(expected)
    wanted = list(expected) if wanted is None else _subset(wanted, expected)
    limit = sum(array.bytes + HEADER + OVERHEAD for array in expected.values())
    size = path.stat().st_size
    if size > limit:
        raise BrokenFile(path, f"has {size:,} bytes, more than the {limit:,} that its arrays could take")
    try:
        with zipfile.ZipFile(path) as packed:
            found = _members(path, packed, expected)
            return {name: _array(path, packed, found[name], expected[name]) for name in wanted}
    except BrokenFile:
        raise
    except (*DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # the disk, not the file
            raise
        # EINVAL: the list of entries points to a place before the file's beginning
        raise BrokenFile(path, f"is damaged or cut short ({error})") from error


def _members(path: Path, packed: zipfile.ZipFile, expected: Mapping[str, Expected]) -> dict[str, zipfile.ZipInfo]:
    """The zip's entries by the name of their array: each of the expected ones once, and no other."""
    found: dict[str, zipfile.ZipInfo] = {}
    for entry in packed.infolist():
        name, kind = entry.filename.removesuffix(".npy"), stat.S_IFMT(entry.external_attr >> 16)
        # 0x61: encrypted or a patch. The kind is 0 where the maker's system had no such thing.
        known = entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) and not entry.flag_bits & 0x61
        if not known or kind not in (0, stat.S_IFREG):
            raise BrokenFile(path, f"refused: its entry {entry.filename[:200]!r} is no plain file")
        if f"{name}.npy" != entry.filename or name not in expected or name in found:
            raise BrokenFile(path, f"refused: its entry {entry.filename[:200]!r} is not expected (or comes twice)")
        most = expected[name].bytes + HEADER
        if entry.file_size > most:
            raise BrokenFile(path, f"refused: {name} unpacks to {entry.file_size:,} bytes; at most {most:,} are right")
        found[name] = entry
    missing = sorted(set(expected) - set(found))
    if missing:
        raise BrokenFile(path, f"lacks {', '.join(missing)}")
    return found


def _array(path: Path, packed: zipfile.ZipFile, entry: zipfile.ZipInfo, expected: Expected) -> np.ndarray:
    name = entry.filename
    with packed.open(entry) as stream:
        kind, columns_first, shape = _header(path, name, stream)
        if kind not in expected.kinds:
            raise BrokenFile(path, f"refused: {name} is of type {kind!r}; allowed is {', '.join(expected.kinds)}")
        if not expected.fits(shape):
            raise BrokenFile(path, f"{name} has shape {list(shape)}; expected is {expected.shape_text()}")
        array = np.empty(math.prod(shape), kind)  # never larger than expected, whatever the file says
        content, done = memoryview(array).cast("B"), 0
        while piece := stream.read(min(CHUNK, len(content) - done) or 1):
            if done == len(content):
                raise BrokenFile(path, f"{name} holds more than the {done:,} bytes of its array")
            content[done : done + len(piece)] = piece
            done += len(piece)
    if done < len(content):
        raise BrokenFile(path, f"{name} is cut short: {done:,} of {len(content):,} bytes")
    return array.reshape(shape, order="F" if columns_first else "C")


def _header(path: Path, name: str, stream: BinaryIO) -> tuple[str, bool, tuple[int, ...]]:
    """The type, whether columns come first, and the shape that a ``.npy`` file says it has."""
    start = stream.read(8)
    if start[:6] != b"\x93NUMPY" or start[6:] not in (b"\1\0", b"\2\0", b"\3\0"):
        raise BrokenFile(path, f"{name} starts with {start.hex(' ')}, not with the mark of a NumPy array")
    field = struct.Struct("<H" if start[6] == 1 else "<I")
    (length,) = field.unpack(stream.read(field.size))
    if length > HEADER - 12:
        raise BrokenFile(path, f"refused: the header of {name} promises {length:,} bytes")
    text = stream.read(length)
    match = TEXT.fullmatch(text)
    if len(text) < length or match is None:
        raise BrokenFile(path, f"refused: the header of {name} is {text[:80]!r}, not that of a plain array")
    kind, order, sizes = match.groups()
    return kind.decode("latin1"), order == b"True", tuple(int(size) for size in re.findall(rb"\d+", sizes))


def _subset(wanted: Collection[str], expected: Mapping[str, Expected]) -> list[str]:
    if not isinstance(wanted, list | tuple | set | frozenset):
        raise arguments.wrong(TypeError, "wanted", wanted, "a list of names")
    return [arguments.one_of("wanted", name, expected) for name in wanted]

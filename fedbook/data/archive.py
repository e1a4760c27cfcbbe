"""Unpacking a tar archive that someone else made: only the expected files, bounded, nothing outside the folder."""

from __future__ import annotations

import gzip
import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import BinaryIO

from fedbook.data.errors import BrokenFile

CHUNK = 2**20


def unpack(archive: Path, folder: Path, wanted: Collection[str], ignored: Collection[str], part_limit: int) -> None:
    """Unpacks exactly the files ``wanted`` of a ``.tar.gz`` below ``folder``, under these names.

    Refuses every entry that is no plain file called as one of ``wanted`` or ``ignored`` (or a folder above one of
    them): links, devices, absolute names, ``..``, doubles, unknown files, files of more than ``part_limit`` bytes.
    Never calls the tar library's own extraction: a file is written to a path made from the *expected* name.
    Raises: BrokenFile. What was written before stays in ``folder``: give a folder that is thrown away then.
    """
    known = {*wanted, *ignored}
    above = {parent.as_posix() for name in known for parent in Path(name).parents}
    seen: set[str] = set()
    # Headers, padding and metadata of an honest archive are far below 64 KiB a file.
    total = (len(known) + 1) * (part_limit + 2**16)
    try:
        with (
            gzip.open(archive, "rb") as unpacked,
            tarfile.open(fileobj=Bounded(unpacked, total, archive), mode="r|") as tar,
        ):
            for entry in tar:
                if entry.isdir() and entry.name.rstrip("/") in above:
                    continue
                _check(archive, entry, known - seen, part_limit)
                seen.add(entry.name)
                if entry.name in wanted:
                    _write(archive, tar, entry, folder / entry.name)
    except (EOFError, gzip.BadGzipFile, zlib.error, tarfile.TarError) as error:
        raise BrokenFile(archive, f"is damaged or cut short ({error})") from error
    missing = sorted(set(wanted) - seen)
    if missing:
        raise BrokenFile(archive, f"lacks {', '.join(missing)}")


class Bounded:
    """A stream that refuses to give more than ``limit`` bytes (tar metadata can be arbitrarily large)."""

    def __init__(self, stream: BinaryIO, limit: int, path: Path) -> None:
        self._stream, self._left, self._path = stream, limit, path

    def read(self, count: int) -> bytes:
        """At most ``count`` bytes. Raises: BrokenFile beyond the limit."""
        piece = self._stream.read(min(count, self._left + 1))
        self._left -= len(piece)
        if self._left < 0:
            raise BrokenFile(self._path, "refused: unpacks to far more than the files it should hold")
        return piece


def _check(archive: Path, entry: tarfile.TarInfo, allowed: Collection[str], part_limit: int) -> None:
    if not entry.isreg():
        raise BrokenFile(archive, f"refused: its entry {entry.name[:200]!r} is no plain file")
    if entry.name not in allowed:
        raise BrokenFile(archive, f"refused: its entry {entry.name[:200]!r} is not expected (or comes twice)")
    if entry.size > part_limit:
        raise BrokenFile(archive, f"refused: its entry {entry.name!r} has {entry.size:,} bytes; at most {part_limit:,}")


def _write(archive: Path, tar: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
    stream = tar.extractfile(entry)
    path.parent.mkdir(parents=True, exist_ok=True)
    left = entry.size
    with path.open("xb") as file:
        while left and (piece := stream.read(min(CHUNK, left))):
            file.write(piece)
            left -= len(piece)
    if left:
        raise BrokenFile(archive, f"is cut short within {entry.name!r}")

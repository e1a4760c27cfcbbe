"""Unpacking an archive that someone else made: only the expected files, bounded, nothing outside the folder."""

from __future__ import annotations

import errno
import gzip
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, NamedTuple

from fedbook.data.errors import BrokenFile

CHUNK = 2**20
# what the libraries raise on damaged files; zipfile also lets errors of its own parsing through
DAMAGE = (EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, struct.error)
DAMAGE += (NotImplementedError, IndexError, ValueError)


class Entry(NamedTuple):
    """One entry of an archive; ``open`` gives its content, of which ``size`` bytes are promised."""

    name: str
    is_folder: bool
    is_plain: bool
    size: int
    open: Callable[[], BinaryIO]


def unpack(archive: Path, folder: Path, wanted: Collection[str], ignored: Collection[str], part_limit: int) -> None:
    """Unpacks exactly the files ``wanted`` of a ``.tar.gz`` or a ``.zip`` below ``folder``, under these names.

    Refuses every entry that is no plain file called as one of ``wanted`` or ``ignored`` (or a folder above one of
    them): links, devices, absolute names, ``..``, doubles, unknown files, files of more than ``part_limit`` bytes.
    Never calls the libraries' own extraction: a file is written to a path made from the *expected* name.
    Raises: BrokenFile. What was written before stays in ``folder``: give a folder that is thrown away then.
    """
    known = {*wanted, *ignored}
    above = {parent.as_posix() for name in known for parent in Path(name).parents}
    seen: set[str] = set()
    # Headers, padding and metadata of an honest archive are far below 64 KiB a file.
    total = (len(known) + 1) * (part_limit + 2**16)
    try:
        with closing(_zipped(archive) if archive.suffix == ".zip" else _tarred(archive, total)) as entries:
            for entry in entries:
                if entry.is_folder and entry.name.rstrip("/") in above:
                    continue
                _check(archive, entry, known - seen, part_limit)
                seen.add(entry.name)
                if entry.name in wanted:
                    _write(archive, entry, folder / entry.name)
    except BrokenFile:
        raise
    except (*DAMAGE, OSError) as error:
        # a gzip's damage, and a place before the file's beginning, come as OSError; a full disk does too
        if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile) and error.errno != errno.EINVAL:
            raise
        raise BrokenFile(archive, f"is damaged or cut short ({error})") from error
    missing = sorted(set(wanted) - seen)
    if missing:
        raise BrokenFile(archive, f"lacks {', '.join(missing)}")


def _tarred(archive: Path, limit: int) -> Iterator[Entry]:
    with (
        gzip.open(archive, "rb") as unpacked,
        tarfile.open(fileobj=Bounded(unpacked, limit, archive), mode="r|") as tar,
    ):
        for entry in tar:
            yield Entry(entry.name, entry.isdir(), entry.isreg(), entry.size, lambda e=entry: tar.extractfile(e))


def _zipped(archive: Path) -> Iterator[Entry]:
    # The list of entries is not packed: it is no larger than the archive. What lies in an entry is read up to the
    # size that the list promises, and its CRC is compared at the end.
    with zipfile.ZipFile(archive) as packed:
        for entry in packed.infolist():
            kind = stat.S_IFMT(entry.external_attr >> 16)  # 0 where the maker's system had no such thing
            known = entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) and not entry.flag_bits & 0x61
            is_plain = not entry.is_dir() and kind in (0, stat.S_IFREG) and known
            yield Entry(entry.filename, entry.is_dir(), is_plain, entry.file_size, lambda e=entry: packed.open(e))


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


def _check(archive: Path, entry: Entry, allowed: Collection[str], part_limit: int) -> None:
    if not entry.is_plain:
        raise BrokenFile(archive, f"refused: its entry {entry.name[:200]!r} is no plain file")
    if entry.name not in allowed:
        raise BrokenFile(archive, f"refused: its entry {entry.name[:200]!r} is not expected (or comes twice)")
    if entry.size > part_limit:
        raise BrokenFile(archive, f"refused: its entry {entry.name!r} has {entry.size:,} bytes; at most {part_limit:,}")


def _write(archive: Path, entry: Entry, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    left = entry.size
    with entry.open() as stream, path.open("xb") as file:
        while left and (piece := stream.read(min(CHUNK, left))):
            file.write(piece)
            left -= len(piece)
    if left:
        raise BrokenFile(archive, f"is cut short within {entry.name!r}")

"""What was found of a dataset, file by file."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from fedbook.data.root import files
from fedbook.data.sources import DataFile, Source

GOOD = ("ok", "present")
CHUNK = 2**20


@dataclass(frozen=True)
class FileReport:
    """One file: ``path`` relative to the data root, ``state``, a ``detail`` for people, its size in ``bytes``.

    Where ``path`` holds a ``*``, all files that fit, ``count`` of them.

    ``state``: ``"ok"``, ``"present"`` (there is no published checksum to compare with), ``"missing"``,
    ``"wrong checksum"`` or ``"unreadable"``.
    """

    path: str
    state: str
    detail: str
    bytes: int
    count: int = 1


@dataclass(frozen=True)
class Report:
    """A dataset as it was found in ``folder`` (the data root); ``action`` says what was done about it.

    ``action``: ``"verified"`` or ``"fetched"``.
    """

    name: str
    folder: str
    files: tuple[FileReport, ...]
    licence: str
    note: str
    instructions: str
    action: str = "verified"

    @property
    def ok(self) -> bool:
        """Whether every file is there and right."""
        return all(file.state in GOOD for file in self.files)

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(file.bytes for file in self.files)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON: all fields, ``ok`` and ``bytes``."""
        return {**asdict(self), "files": [asdict(file) for file in self.files], "ok": self.ok, "bytes": self.bytes}

    def as_text(self) -> str:
        """Some lines for people."""
        word = "complete" if self.ok else "not complete"
        what = f"{word}, {sum(file.count for file in self.files)} files, {self.bytes:,} bytes in {self.folder}"
        lines = [f"{self.name}: {what if self.files else 'nothing to fetch'}", self.note]
        lines += [f"  {file.state:<14} {file.path}  ({file.detail})" for file in self.files]
        lines.append(f"Licence: {self.licence}.")
        if not self.ok:
            lines.append(self.instructions)
        return "\n".join(lines)


def examine(source: Source, folder: Path, action: str = "verified") -> Report:
    """The report on a source's files below ``folder``."""
    files = tuple(examine_file(file, folder) for file in source.files)
    return Report(source.name, str(folder), files, source.licence, source.note, source.remedy, action)


def examine_file(file: DataFile, folder: Path) -> FileReport:
    """The report on one file below ``folder``: by its bytes' checksum, else by that of its unpacked content."""
    found = files(folder, file.path)
    if not found:
        return FileReport(file.path, "missing", "not there", 0, count=0 if "*" in file.path else 1)
    path = found[0]
    try:
        size = sum(one.stat().st_size for one in found)
        if file.published is None:
            several = f"{len(found)} files, " if "*" in file.path else ""
            return FileReport(
                file.path, "present", f"{several}{size:,} bytes; no checksum is published", size, len(found)
            )
        found = checksum(path, file.published)
        if found == file.published:
            return FileReport(file.path, "ok", f"{size:,} bytes, {_short(found)} as published", size)
        if file.content and _content_is(path, file):
            return FileReport(file.path, "ok", f"{size:,} bytes, the published content packed anew", size)
    except OSError as error:
        return FileReport(file.path, "unreadable", error.strerror or str(error), 0)
    detail = f"{size:,} bytes, {found}; published is {file.published}"
    return FileReport(file.path, "wrong checksum", detail, size)


def checksum(path: Path, like: str) -> str:
    """The checksum of a file's bytes in the form and by the algorithm of ``like`` (``"md5:..."``, ``"sha256:..."``)."""
    algorithm = like.partition(":")[0]
    with path.open("rb") as file:
        return f"{algorithm}:{_digest(file, algorithm)}"


def _content_is(path: Path, file: DataFile) -> bool:
    """Whether the gzip file unpacks to exactly the expected content; unpacks one byte more at most."""
    try:
        with gzip.open(path, "rb") as unpacked:
            return _digest(unpacked, "sha256", file.content_size) == file.content
    except (EOFError, gzip.BadGzipFile, zlib.error):
        return False


def _digest(stream: BinaryIO, algorithm: str, size: int | None = None) -> str:
    """The hexadecimal digest of the whole stream; of its first ``size + 1`` bytes if that is given."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    left = float("inf") if size is None else size + 1
    while left > 0 and (piece := stream.read(int(min(CHUNK, left)))):
        digest.update(piece)
        left -= len(piece)
    return digest.hexdigest()


def _short(checksum: str) -> str:
    algorithm, _, digest = checksum.partition(":")
    return f"{algorithm} {digest[:8]}..."

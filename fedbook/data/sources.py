"""Where each dataset comes from: the table ``sources.toml`` as objects.

A file counts as right if its bytes have the checksum its publisher gives, or if what it unpacks to has the SHA-256
``content``: MNIST goes round packed by several gzips, and what ships here is one of them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import PurePosixPath
from typing import Any


@dataclass(frozen=True)
class DataFile:
    """One file of a dataset. ``path`` is relative to the data root; with a ``*``, all files that fit.

    ``published``: ``"md5:..."`` or ``"sha256:..."`` of the file's bytes, as published (``None``: nothing is published).
    ``size``: its bytes (``None``: not published). ``urls``: where to fetch it, tried in this order.
    ``content``, ``content_size``: SHA-256 and size of what a gzip file unpacks to.
    """

    path: str
    published: str | None = None
    size: int | None = None
    urls: tuple[str, ...] = ()
    content: str | None = None
    content_size: int = 0


@dataclass(frozen=True)
class Source:
    """A dataset and how to come by it; the fields are explained at the head of ``sources.toml``."""

    name: str
    files: tuple[DataFile, ...]
    licence: str
    note: str
    access: str = "public"
    instructions: str = ""
    archive: DataFile | None = None
    part_limit: int = 2**25
    unpacked_in: str = ""
    counts: tuple[int, ...] = ()
    classes: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """The files' paths, relative to the data root."""
        return tuple(file.path for file in self.files)

    @property
    def remedy(self) -> str:
        """One sentence: what to do when the files are missing."""
        if self.access == "manual":
            return (
                f"It cannot be fetched for you. {self.instructions} Put the files below the data root as "
                f"{', '.join(self.paths)}; then verify them: fedbook data {self.name}"
            )
        return f"To fetch it: fedbook data {self.name}   (or: python -m fedbook data {self.name} --root DIR)"


def _file(row: str | Sequence[Any], urls: Sequence[str]) -> DataFile:
    path, published, size, content, content_size = [*([row] if isinstance(row, str) else row), *[None] * 4][:5]
    addresses = tuple(url.format(name=PurePosixPath(path).name) for url in urls)
    return DataFile(path, published, size, addresses, content, content_size or 0)


def _source(name: str, entry: dict[str, Any]) -> Source:
    urls, archive, files = entry.pop("urls", ()), entry.pop("archive", None), entry.pop("files", ())
    entry["files"] = tuple(_file(row, () if archive else urls) for row in files)
    entry["archive"] = _file(archive, urls) if archive else None
    return Source(name, **{key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()})


_TABLE = tomllib.loads(resources.files("fedbook.data").joinpath("sources.toml").read_text(encoding="utf-8"))
SOURCES = {name: _source(name, entry) for name, entry in _TABLE.items()}

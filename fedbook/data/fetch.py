"""Fetching and verifying datasets: what ``fedbook data NAME`` does.

Everything new is made in a folder beside its place, verified there and then moved by ``os.replace``: a dataset is
whole or as it was before. Nothing is left behind by a failure.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from fedbook import arguments
from fedbook.data import root as roots
from fedbook.data.archive import unpack
from fedbook.data.download import download
from fedbook.data.errors import BrokenFile, FetchFailed
from fedbook.data.make import make_fashion_mnist
from fedbook.data.report import Report, examine, examine_file
from fedbook.data.sources import FASHION_MNIST, SOURCES, DataFile, Source

Root = str | os.PathLike[str] | None


def verify(name: str, root: Root = None) -> Report:
    """What there is of a dataset: in ``root``, or in the first folder of the search that holds all or some of it.

    Raises: TypeError, ValueError (``name``, ``root``).
    """
    source = _source(name)
    places = roots.folders(root)
    # All of it first, as the loaders do; then some of it; then the place where it would be fetched to.
    for good in (all, any):
        for place in places:
            if source.files and good(roots.files(place, path) for path in source.paths):
                return examine(source, place)
    return examine(source, roots.to_write(root))


def fetch(name: str, root: Root = None, progress: bool | None = None) -> Report:
    """Makes a dataset complete and right: fetches what is missing or broken, and keeps what is right.

    ``progress``: a bar on stderr or none; ``None`` shows one on a terminal. Never when ``FEDBOOK_HEADLESS`` is set.
    A dataset that only a person can obtain is verified, and the report's ``instructions`` say what to do.
    Raises: FetchFailed (nothing was changed), TypeError, ValueError.
    """
    source = _source(name)
    if progress is not None:
        arguments.flag("progress", progress)
    report = verify(name, root)
    if report.ok or source.access == "manual":
        return report
    folder = _target(source, report, root)
    wanted = [file for file in source.files if examine_file(file, folder).state not in ("ok", "present")]
    try:
        with _staging(folder) as stage:
            _obtain(source, wanted, stage, root, progress)
            _install(wanted, stage, folder)
    except (ConnectionError, BrokenFile, OSError) as error:
        raise error if isinstance(error, FetchFailed) else FetchFailed(name, _reasons(error)) from error
    return examine(source, folder, "fetched")


def main_report(name: str, root: Root = None, fetch_it: bool = True) -> tuple[str, dict[str, Any], bool]:
    """The report as text and as plain values, and whether all is right: for the command line.

    Raises: FetchFailed, TypeError, ValueError.
    """
    report = fetch(name, root) if fetch_it else verify(name, root)
    return report.as_text(), report.as_dict(), report.ok


def _source(name: str) -> Source:
    return SOURCES[arguments.one_of("name", name, SOURCES)]


def _target(source: Source, report: Report, root: Root) -> Path:
    """Where to put what is fetched: the folder that holds the broken dataset, else the one for new data."""
    found = Path(report.folder)
    if all(file.state == "missing" for file in report.files):
        return roots.to_write(root)
    if root is None and found == roots.of_checkout():
        broken = [file.path for file in report.files if file.state != "ok"]
        why = f"{found}: {', '.join(broken)} differs from what ships with the book; restore it (git checkout -- data)"
        raise FetchFailed(source.name, [why])
    return found


def _obtain(source: Source, wanted: list[DataFile], stage: Path, root: Root, progress: bool | None) -> None:
    """Brings the ``wanted`` files into ``stage`` under their paths, each verified."""
    if source.access == "derived":
        full = fetch(FASHION_MNIST.name, root, progress)
        first = Path(full.folder) / FASHION_MNIST.paths[0]
        make_fashion_mnist(first.parent, (stage / source.paths[0]).parent)
    elif source.archive:
        packed = download(source.archive, stage, progress)
        inside = [PurePosixPath(path).relative_to(source.unpacked_in).as_posix() for path in source.paths]
        unpack(packed, stage / source.unpacked_in, inside, source.ignored, source.part_limit)
    else:
        for file in wanted:
            place = stage / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            download(file, place.parent, progress)
    for file in wanted:
        found = examine_file(file, stage)
        if found.state not in ("ok", "present"):
            raise BrokenFile(file.path, f"what was fetched is not right: {found.state} ({found.detail})")


def _install(wanted: list[DataFile], stage: Path, folder: Path) -> None:
    """Moves the files to their places; a dataset's folder that is new is moved as a whole, in one step."""
    for top in dict.fromkeys(Path(file.path).parent for file in wanted):
        if not (folder / top).exists():
            (folder / top).parent.mkdir(parents=True, exist_ok=True)
            try:
                os.replace(stage / top, folder / top)
                continue
            except OSError:  # somebody else fetched it meanwhile: then file by file
                if not (folder / top).is_dir():
                    raise
        for file in wanted:
            if Path(file.path).parent == top:
                os.replace(stage / file.path, folder / file.path)


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """A folder for what is being fetched, beside its place (a move must not cross file systems); gone afterwards."""
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as stage:
            yield Path(stage)
    finally:
        for place in made:  # deepest first; those that now hold something stay
            with suppress(OSError):
                place.rmdir()


def _reasons(error: Exception) -> list[str]:
    return str(error).split("\n  ")

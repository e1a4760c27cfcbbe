"""Fetching and verifying datasets: what ``fedbook data NAME`` does.

Everything new is made in a folder beside its place, verified there and then moved by ``os.replace``: a dataset is
whole or as it was before. Nothing is left behind by a failure.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from fedbook import arguments
from fedbook.data import root as roots
from fedbook.data.formats import CHUNK, checksum, content, reading
from fedbook.data.images import make_fashion_mnist
from fedbook.data.mimic import mimic3_from_benchmark
from fedbook.data.root import BrokenFile, FetchFailed, Root
from fedbook.data.sources import SOURCES, DataFile, Source

GOOD = ("ok", "present")
SECONDS = (10, 60)  # to connect, and between two pieces


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


def verify(name: str, root: Root = None) -> Report:
    """What there is of a dataset: in ``root``, or in the first folder of the search that holds all or some of it.

    Raises: TypeError, ValueError (``name``, ``root``).
    """
    source = _named(name)
    places = roots.folders(root)
    # All of it first, as the loaders do; then some of it; then the place where it would be fetched to.
    for good in (all, any):
        for place in places:
            if source.files and good(roots.files(place, path) for path in source.paths):
                return _examine(source, place)
    return _examine(source, roots.to_write(root))


def fetch(name: str, root: Root = None, progress: bool | None = None) -> Report:
    """Makes a dataset complete and right: fetches what is missing or broken, and keeps what is right.

    ``progress``: a bar on stderr or none; ``None`` shows one on a terminal. Never when ``FEDBOOK_HEADLESS`` is set.
    A dataset that only a person can obtain is verified, and the report's ``instructions`` say what to do.
    Raises: FetchFailed (nothing was changed), TypeError, ValueError.
    """
    source = _named(name)
    if progress is not None:
        arguments.flag("progress", progress)
    report = verify(name, root)
    if report.ok or source.access == "manual":
        return report
    folder = _target(source, report, root)
    wanted = [file for file in source.files if _examine_file(file, folder).state not in GOOD]
    try:
        with _staging(folder) as stage:
            _obtain(source, wanted, stage, root, progress)
            _install(wanted, stage, folder)
    except FetchFailed:
        raise
    except (BrokenFile, OSError) as error:
        raise FetchFailed(name, str(error).split("\n  ")) from error
    return _examine(source, folder, "fetched")


def main_report(
    name: str, root: Root = None, fetch_it: bool = True, benchmark: Path | None = None
) -> tuple[str, dict[str, Any], bool]:
    """The report as text and as plain values, and whether all is right: for the command line.

    ``benchmark``: the folder of MIMIC-III's benchmark of which the file of ``mimic3`` is made first.
    Raises: FetchFailed, BrokenFile, FileNotFoundError, TypeError, ValueError.
    """
    if benchmark is not None:
        if name != "mimic3":
            raise arguments.wrong(ValueError, "--from", str(benchmark), "a folder for the dataset mimic3 only")
        if not fetch_it:
            raise arguments.wrong(ValueError, "--from", str(benchmark), "none beside --verify, which writes nothing")
        mimic3_from_benchmark(benchmark, roots.to_write(root) / "mimic3")
    report = fetch(name, root) if fetch_it else verify(name, root)
    return report.as_text(), report.as_dict(), report.ok


def unpack(archive: Path, folder: Path, wanted: Mapping[str, str], part_limit: int) -> None:
    """Unpacks files of a ``.tar.gz`` or a ``.zip``: ``wanted`` says which, by name, and where below ``folder`` to.

    No path of the archive is ever used, and no file of more than ``part_limit`` bytes is written.
    Raises: BrokenFile. What was written before stays in ``folder``: give a folder that is thrown away then.
    """
    zipped = archive.suffix == ".zip"
    with reading(archive), zipfile.ZipFile(archive) if zipped else tarfile.open(archive) as packed:
        missing = sorted(set(wanted) - set(packed.namelist() if zipped else packed.getnames()))
        if missing:
            raise BrokenFile(archive, f"lacks {', '.join(missing)}")
        for name, place in wanted.items():
            entry = packed.getinfo(name) if zipped else packed.getmember(name)
            size = entry.file_size if zipped else entry.size
            if not (zipped or entry.isreg()) or size > part_limit:
                why = f"{name!r} is no plain file of at most {part_limit:,} bytes (it has {size:,})"
                raise BrokenFile(archive, f"refused: its entry {why}")
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            stream = packed.open(entry) if zipped else packed.extractfile(entry)
            with stream, (folder / place).open("xb") as file:
                shutil.copyfileobj(stream, file, CHUNK)


def download(file: DataFile, folder: Path, progress: bool | None = None) -> Path:
    """Fetches ``file`` into ``folder`` from the first of its addresses that gives the published checksum.

    Raises: ConnectionError, which says for every address why it failed.
    """
    import requests
    from tqdm import tqdm

    reasons = []
    path = folder / Path(file.path).name
    # Unencoded: a server that declares .gz files as "gzip encoded" would otherwise have them unpacked on the way.
    options = {"stream": True, "timeout": SECONDS, "headers": {"Accept-Encoding": "identity"}}
    bar = {"total": file.size, "desc": path.name, "unit": "B", "unit_scale": True, "disable": not shows(progress)}
    for url in file.urls:
        try:
            with requests.get(url, **options) as response, path.open("wb") as target, tqdm(**bar) as shown:
                response.raise_for_status()
                for piece in response.iter_content(2**16):
                    target.write(piece)
                    shown.update(len(piece))
                    if file.size is not None and target.tell() > file.size:
                        raise ValueError(f"the server sends more than the {file.size:,} bytes of the file")
            if file.size is not None and path.stat().st_size < file.size:
                raise ValueError(f"the connection ended after {path.stat().st_size:,} of {file.size:,} bytes")
            if (there := checksum(path, file.published)) != file.published:
                raise ValueError(f"what came has {there}; published is {file.published}")
            return path
        except (requests.RequestException, OSError, ValueError) as error:
            reasons.append(f"{file.path} from {url}: {_why(error)}")
    raise ConnectionError("\n  ".join(reasons) or f"{file.path}: has no public address")


def _why(error: Exception) -> str:
    """What went wrong on the way, in one clause; the libraries below name their own insides."""
    import requests

    if isinstance(error, requests.Timeout):
        return f"no answer within {SECONDS[0]} s to connect, {SECONDS[1]} s between two pieces"
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answers {error.response.status_code} {error.response.reason}".rstrip()
    if isinstance(error, requests.exceptions.SSLError):
        return "no secure connection to the server"
    if isinstance(error, (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError)):
        return "the connection was lost on the way"
    if isinstance(error, requests.ConnectionError):
        return "no connection (is this machine online?)"
    if isinstance(error, requests.RequestException):
        return f"no usable answer ({type(error).__name__})"
    return str(error)


def shows(progress: bool | None) -> bool:
    """Whether a bar is shown: never headless; else as asked; if nothing is asked (``None``), on a terminal."""
    if os.environ.get("FEDBOOK_HEADLESS", "") not in ("", "0"):
        return False
    return sys.stderr.isatty() if progress is None else progress


def _named(name: str) -> Source:
    return SOURCES[arguments.one_of("name", name, SOURCES)]


def _examine(source: Source, folder: Path, action: str = "verified") -> Report:
    files = tuple(_examine_file(file, folder) for file in source.files)
    return Report(source.name, str(folder), files, source.licence, source.note, source.remedy, action)


def _examine_file(file: DataFile, folder: Path) -> FileReport:
    """The report on one file below ``folder``: by its bytes' checksum, else by that of its unpacked content."""
    there = roots.files(folder, file.path)
    if not there:
        return FileReport(file.path, "missing", "not there", 0, count=0 if "*" in file.path else 1)
    try:
        size = sum(path.stat().st_size for path in there)
        if file.published is None:
            several = f"{len(there)} files, " if "*" in file.path else ""
            detail = f"{several}{size:,} bytes; no checksum is published"
            return FileReport(file.path, "present", detail, size, len(there))
        digest = checksum(there[0], file.published)
        if digest == file.published:
            short = digest.partition(":")
            return FileReport(file.path, "ok", f"{size:,} bytes, {short[0]} {short[2][:8]}... as published", size)
        if file.content and _content_is(there[0], file):
            return FileReport(file.path, "ok", f"{size:,} bytes, the published content packed anew", size)
    except OSError as error:
        return FileReport(file.path, "unreadable", error.strerror or str(error), 0)
    return FileReport(file.path, "wrong checksum", f"{size:,} bytes, {digest}; published is {file.published}", size)


def _content_is(path: Path, file: DataFile) -> bool:
    """Whether the gzip file unpacks to exactly the expected content; unpacks one byte more at most."""
    try:
        return hashlib.sha256(content(path, file.content_size)).hexdigest() == file.content
    except BrokenFile:
        return False


def _target(source: Source, report: Report, root: Root) -> Path:
    """Where to put what is fetched: the folder that holds the broken dataset, else the one for new data."""
    folder = Path(report.folder)
    if all(file.state == "missing" for file in report.files):
        return roots.to_write(root)
    if root is None and folder == roots.of_book():
        broken = [file.path for file in report.files if file.state != "ok"]
        remedy = "restore it (git checkout -- data, or install fedbook again)"
        why = f"{folder}: {', '.join(broken)} differs from what ships with the book; {remedy}"
        raise FetchFailed(source.name, [why])
    return folder


def _obtain(source: Source, wanted: list[DataFile], stage: Path, root: Root, progress: bool | None) -> None:
    """Brings the ``wanted`` files into ``stage`` under their paths, each verified."""
    if source.access == "derived":
        full = fetch("fashion_mnist", root, progress)
        make_fashion_mnist(Path(full.folder) / "fashion-mnist", (stage / source.paths[0]).parent)
    elif source.archive:
        packed = download(source.archive, stage, progress)
        inside = {PurePosixPath(path).relative_to(source.unpacked_in).as_posix(): path for path in source.paths}
        unpack(packed, stage, inside, source.part_limit)
    else:
        for file in wanted:
            place = stage / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            download(file, place.parent, progress)
    for file in wanted:
        report = _examine_file(file, stage)
        if report.state not in GOOD:
            raise BrokenFile(file.path, f"what was fetched is not right: {report.state} ({report.detail})")


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

"""One file from a public address, verified: pooch does the work, this module bounds it and shows the progress."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from fedbook.data.sources import DataFile

CHUNK = 2**16
SECONDS = (10, 60)  # to connect, and between two pieces


class TooLong(ValueError):
    """The server sends more than the file's published size."""


def download(file: DataFile, folder: Path, progress: bool | None = None) -> Path:
    """Fetches ``file`` into ``folder`` from the first of its addresses that gives the published checksum.

    Raises: ConnectionError, which says for every address why it failed.
    """
    import pooch
    import requests

    reasons = []
    path = folder / Path(file.path).name
    for url in file.urls:
        try:
            with _quiet(pooch.get_logger()):
                pooch.retrieve(url, file.published, path.name, folder, downloader=_downloader(file, progress))
        except (requests.RequestException, OSError, ValueError) as error:
            reasons.append(f"{file.path} from {url}: {type(error).__name__}: {error}")
            continue
        # pooch moves a temporary file here that only its owner may read; a data root is often shared.
        plain = folder / ".mode"
        plain.touch()
        shutil.copymode(plain, path)
        plain.unlink()
        return path
    raise ConnectionError("\n  ".join(reasons) or f"{file.path}: has no public address")


def shows_progress(progress: bool | None) -> bool:
    """Whether a bar is shown: never headless; else as asked; if nothing is asked (``None``), on a terminal."""
    if os.environ.get("FEDBOOK_HEADLESS", "") not in ("", "0"):
        return False
    return sys.stderr.isatty() if progress is None else progress


def _downloader(file: DataFile, progress: bool | None) -> Any:
    """What pooch calls to fetch one address into an open file or a path."""

    def fetch(url: str, output: str | BinaryIO, _: Any) -> None:
        import requests
        from tqdm import tqdm

        # Unencoded: a server that declares .gz files as "gzip encoded" would otherwise have them unpacked on the way.
        headers = {"Accept-Encoding": "identity"}
        with (
            requests.get(url, stream=True, timeout=SECONDS, headers=headers) as response,
            open(output, "wb") if isinstance(output, (str, os.PathLike)) else _left_open(output) as target,
        ):
            response.raise_for_status()
            name, hidden = Path(file.path).name, not shows_progress(progress)
            with tqdm(total=file.size, desc=name, unit="B", unit_scale=True, disable=hidden) as bar:
                done = 0
                for piece in response.iter_content(CHUNK):
                    done += len(piece)
                    if file.size is not None and done > file.size:
                        raise TooLong(f"the server sends more than the {file.size:,} bytes of the file")
                    target.write(piece)
                    bar.update(len(piece))
        if file.size is not None and done < file.size:
            raise ConnectionError(f"the connection ended after {done:,} of {file.size:,} bytes")

    return fetch


@contextmanager
def _left_open(file: BinaryIO) -> Iterator[BinaryIO]:
    yield file
    file.flush()


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """pooch reports every download on stderr by its own handler; the book stays silent."""
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)

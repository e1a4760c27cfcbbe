"""Text in lines, packed by gzip or not: read as if its maker were hostile, the same text written as the same bytes."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from fedbook.data.errors import BrokenFile

LIMIT = 2**25  # bytes of content; the largest honest one, WordNet's data.noun, has 15,300,280
CHUNK = 2**20


def read_lines(path: Path, ended: bool = True) -> Iterator[tuple[int, int, str]]:
    """Number (from 1), place in the content (bytes) and text of every line; all of it ASCII.

    ``ended``: a last line that has no end is refused, as a sign that the file was cut short.
    Raises: BrokenFile (a ``ValueError``; names the file and what is wrong), FileNotFoundError.
    """
    content = _content(path)
    if not content:
        raise BrokenFile(path, "is empty")
    if ended and not content.endswith(b"\n"):
        raise BrokenFile(path, "is cut short: its last line has no end")
    offset = 0
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n"), 1):
        if not line.isascii():
            raise BrokenFile(path, f"line {number}: holds bytes that are no ASCII")
        yield number, offset, line.decode("ascii")
        offset += len(line) + 1


def write_lines(path: str | Path, comments: Sequence[str], rows: Sequence[str]) -> None:
    """Writes comments, indented by two blanks, and rows, packed by gzip: level 9, no name and no time in it."""
    text = "".join(f"{line}\n" for line in [*(f"  {comment}" for comment in comments), *rows])
    with Path(path).open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(text.encode("ascii"))


def _content(path: Path) -> bytes:
    """What the file holds, unpacked if it is packed; one byte more than the limit at most."""
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        try:
            content = _at_most(gzip.GzipFile(fileobj=file, mode="rb") if packed else file, LIMIT + 1)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise BrokenFile(path, f"the gzip packing is damaged or cut short ({error})") from error
    if len(content) > LIMIT:
        raise BrokenFile(path, f"holds more than the {LIMIT:,} bytes that are accepted")
    return content


def _at_most(stream: BinaryIO, count: int) -> bytes:
    content = bytearray()
    while len(content) < count and (piece := stream.read(min(CHUNK, count - len(content)))):
        content += piece
    return bytes(content)

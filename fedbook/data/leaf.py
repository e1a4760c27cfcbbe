"""LEAF's JSON files of images by writer, as its FEMNIST script writes them.

A file is one object: ``users`` (names), ``num_samples`` (one number each) and ``user_data``: name -> ``x``, a list of
images of 784 decimal numbers k/255 (row by row, upright; the paper is 1 and the ink 0, the other way round than in
MNIST), and ``y``, their classes (0-9, A-Z, a-z). The files of training and of test images hold the same writers where
the script divided by sample (``-t sample``), different ones where it divided by user.

A file is read as if its maker were hostile: its size and its number of lists are bounded before it is parsed, every
pixel becomes one byte while it is, and everything else is checked after.

Source: Caldas et al., LEAF: A Benchmark for Federated Settings (2018), and its scripts data_to_json and split_data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fedbook.data.characters import CHARACTERS
from fedbook.data.errors import BrokenFile

LIMIT = 2**29  # bytes of a file; an honest one holds 100 writers of some 230 images: 18 million numbers, 100 to 250 MB
PIXELS = 28 * 28
KEYS = {"users", "num_samples", "user_data"}


def read_leaf(paths: Sequence[Path]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images, labels and writers of all files, in their order; writers without images are left out.

    Shapes: uint8 [N, 1, 28, 28], uint8 [N], names [N]. Memory: the result, 784 bytes an image, and about twice
    the file that is being read.
    Raises: BrokenFile (a ``ValueError``; names the file and what is wrong), FileNotFoundError.
    """
    pixels, labels, counts, seen = bytearray(), bytearray(), [], {}
    for path in paths:
        for name, x, y in _writers(path):
            if name in seen:
                both = f"comes twice, the other time in {seen[name]}: are these files of two runs of LEAF's script?"
                raise BrokenFile(path, f"writer {name!r} {both}")
            seen[name] = path.name
            pixels += x
            labels += y
            counts.append(len(y))
    images = np.frombuffer(pixels, np.uint8).reshape(-1, 1, 28, 28)
    return images, np.frombuffer(labels, np.uint8), np.repeat(np.array(list(seen), dtype=str), counts)


def _writers(path: Path) -> Iterator[tuple[str, bytes, bytes]]:
    """Name, pixels (784 a sample) and labels of each writer in the file who has any."""
    content = _parse(path)
    _has(path, "the file", content, KEYS)
    users, counts, everything = content["users"], content["num_samples"], content["user_data"]
    if not isinstance(users, list) or not all(isinstance(name, str) for name in users):
        raise BrokenFile(path, "users is no list of names")
    if not isinstance(counts, list) or len(counts) != len(users):
        raise BrokenFile(path, "num_samples is no list of one number for each of the users")
    if not isinstance(everything, dict) or not set(users) <= set(everything) or len(set(users)) < len(users):
        raise BrokenFile(path, "user_data does not hold each of the users once")
    told = dict(zip(users, counts, strict=True))
    for name, own in everything.items():
        _has(path, f"writer {name!r}", own, {"x", "y"})
        x, y, count = own["x"], own["y"], told.get(name, 0)  # writers of a single image stay behind without any
        if not isinstance(x, list) or not isinstance(y, list) or type(count) is not int:
            raise BrokenFile(path, f"writer {name!r}: x and y are not lists, or num_samples is no whole number")
        if not len(x) == len(y) == count:
            raise BrokenFile(path, f"writer {name!r} has {len(x)} images, {len(y)} labels; num_samples says {count}")
        bad = [label for label in y if type(label) is not int or not 0 <= label < len(CHARACTERS)]
        if bad:
            text = "a decimal number" if isinstance(bad[0], bytes) else repr(bad[0])
            raise BrokenFile(path, f"writer {name!r} has the label {text:.40}; allowed are whole numbers, 0 to 61")
        if count:
            yield name, b"".join(_row(path, name, row) for row in x), bytes(y)
        everything[name] = None  # what was read is let go


def _row(path: Path, name: str, row: Any) -> bytes:
    try:
        pixels = b"".join(row)  # each decimal number is one byte by now
    except TypeError:
        raise BrokenFile(path, f"writer {name!r}: an image is no list of decimal numbers k/255") from None
    if len(pixels) != PIXELS:
        raise BrokenFile(path, f"writer {name!r}: an image has {len(pixels)} values; expected are {PIXELS}")
    return pixels


def _parse(path: Path) -> Any:
    size = path.stat().st_size
    if size > LIMIT:
        raise BrokenFile(path, f"has {size:,} bytes, more than the {LIMIT:,} that are accepted")
    with path.open("rb") as file:
        content = file.read(size + 1)  # at once, but no more than was just counted
    # An empty list takes 2 bytes here and 60 in memory. An honest file has a list every 784 numbers, and few names.
    if content.count(b"[") + content.count(b"{") + content.count(b'"') > 1_000 + len(content) // 200:
        raise BrokenFile(path, "refused: it has far more lists and texts than images of 784 values would")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) < len(items):
            raise BrokenFile(path, "a key comes twice in one object")
        return found

    def constant(text: str) -> NoReturn:
        raise BrokenFile(path, f"holds {text}; {ALLOWED}")

    try:
        text = content.decode("ascii")
        del content
        levels = Levels(path)
        return json.loads(text, parse_float=levels.__getitem__, parse_constant=constant, object_pairs_hook=pairs)
    except BrokenFile:
        raise
    except (ValueError, RecursionError) as error:
        raise BrokenFile(path, f"is no JSON file that LEAF's script writes ({error})") from error


ALLOWED = "allowed are the grey levels 0/255, 1/255 ... 255/255"


class Levels(dict):
    """The text of a number k/255 -> the byte k: an image costs 784 pointers to 256 shared bytes, not 784 numbers."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def __missing__(self, text: str) -> bytes:
        value = 255 * float(text)
        # numbers rounded to 4 decimals or to 32 bits are still told apart; others would be changed in silence
        if not -0.02 <= value <= 255.02 or abs(value - round(value)) > 0.02:
            raise BrokenFile(self._path, f"holds the value {text:.40}; {ALLOWED}")
        level = bytes([round(value)])
        if len(self) < 4_096:  # 256 in an honest file
            self[text] = level
        return level


def _has(path: Path, what: str, value: Any, keys: set[str]) -> None:
    if not isinstance(value, dict) or value.keys() != keys:
        found = ", ".join(f"{key:.40}" for key in list(value)[:5]) if isinstance(value, dict) else type(value).__name__
        raise BrokenFile(path, f"{what} has the keys {found or 'none'}; expected are {', '.join(sorted(keys))}")

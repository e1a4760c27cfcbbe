"""FEMNIST: EMNIST's characters by writer, from LEAF's JSON files.

A file is one object: ``users`` (names), ``num_samples`` (one number each) and ``user_data``: name -> ``x``, a list of
images of 784 decimal numbers k/255 (row by row, upright; the paper is 1 and the ink 0, the other way round than in
MNIST), and ``y``, their classes (0-9, A-Z, a-z). The files of training and of test images hold the same writers where
the script divided by sample (``-t sample``), different ones where it divided by user.

Source: Caldas et al., LEAF: A Benchmark for Federated Settings (2018), and its scripts data_to_json and split_data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from fedbook import arguments
from fedbook.data.formats import content, reading
from fedbook.data.images import CHARACTERS, Images, as_images, check_dtype
from fedbook.data.root import BrokenFile, Root, find
from fedbook.data.sources import SOURCES

LIMIT = 2**29  # bytes of a file; an honest one holds 100 writers of some 230 images: 18 million numbers, 100 to 250 MB
PIXELS = 28 * 28


def femnist(root: Root = None, dtype: torch.dtype = torch.float32, characters: str = "all") -> Images:
    """FEMNIST: EMNIST's characters with their writers, x ``[N, 1, 28, 28]``, from LEAF's JSON files. Does not ship.

    Values as LEAF stores them: the paper is 255 (1.0) and the ink 0. ``characters``: "all", 62 classes, or "digits".
    All of it are 817,851 images of 3,597 writers, 641 MB as uint8, and a minute or two to read. (LEAF's home page says
    805,263 and 3,550; EMNIST has 814,255 images. The 3,596 more are a slip of LEAF's script, which writes the first
    image of each writer but one twice.)
    Raises: DataNotFound, BrokenFile, TypeError, ValueError.
    """
    check_dtype(dtype)
    top = 10 if arguments.one_of("characters", characters, ("all", "digits")) == "digits" else 62
    source = SOURCES["femnist"]
    folder, parts = find(source, root), []
    for pattern in source.paths:
        x, y, writer = read_leaf(sorted(folder.glob(pattern)))
        kept = np.flatnonzero(y < top) if top < 62 else slice(None)
        parts += [x[kept], y[kept], writer[kept]]
    train_x, train_y, train_writer, test_x, test_y, test_writer = parts
    writers, index = np.unique(np.concatenate([train_writer, test_writer]), return_inverse=True)
    images = as_images("femnist", train_x, train_y, test_x, test_y, CHARACTERS[:top], dtype)
    owners = torch.from_numpy(index.astype(np.int64)).split([len(train_y), len(test_y)])
    return replace(images, train_writer=owners[0], test_writer=owners[1], writers=tuple(writers.tolist()))


def read_leaf(paths: Sequence[Path]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images, labels and writers of all files, in their order; writers without images are left out.

    Shapes: uint8 [N, 1, 28, 28], uint8 [N], names [N]. Memory: the result, and about twice the file being read.
    Raises: BrokenFile, FileNotFoundError.
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
    data = _parse(path)
    with reading(path):
        users, counts, everything = data["users"], data["num_samples"], data["user_data"]
        told = dict(zip(users, counts, strict=True))
        if len(data) != 3 or len(told) < len(users) or not set(users) <= set(everything):
            raise BrokenFile(path, "user_data does not hold each of the users once")
    for name, own in everything.items():
        with reading(path):
            x, y, count = own["x"], own["y"], told.get(name, 0)  # writers of a single image stay behind without any
            if not len(x) == len(y) == count:
                why = f"writer {name!r} has {len(x)} images, {len(y)} labels; num_samples says {count}"
                raise BrokenFile(path, why)
            if any(type(label) is not int or not 0 <= label < len(CHARACTERS) for label in y):
                raise BrokenFile(path, f"writer {name!r} has a label other than the whole numbers 0 to 61")
            rows = [b"".join(row) for row in x]  # each decimal number is one byte by now
            if any(len(row) != PIXELS for row in rows):
                raise BrokenFile(path, f"writer {name!r} has an image of other than {PIXELS} values")
        if count:
            yield name, b"".join(rows), bytes(y)
        everything[name] = None  # what was read is let go


def _parse(path: Path) -> Any:
    """The file's object, in which every decimal number is one byte: an image costs 784 pointers, not 784 numbers."""
    data = content(path, LIMIT)
    # An empty list takes 2 bytes here and 60 in memory. An honest file has a list every 784 numbers, and few names.
    if len(data) > LIMIT or data.count(b"[") + data.count(b"{") + data.count(b'"') > 1_000 + len(data) // 200:
        why = f"more than {LIMIT:,} bytes, or far more lists and texts than images of {PIXELS} values would need"
        raise BrokenFile(path, f"refused: {why}")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(together := dict(items)) < len(items):
            raise BrokenFile(path, "a key comes twice in one object")
        return together

    def constant(word: str) -> NoReturn:
        raise BrokenFile(path, f"holds {word}, which is no grey level k/255")

    levels = Levels()
    with reading(path):
        text = data.decode("ascii")
        del data
        return json.loads(text, parse_float=levels.__getitem__, parse_constant=constant, object_pairs_hook=pairs)


class Levels(dict):
    """The text of a number k/255 -> the byte k."""

    def __missing__(self, text: str) -> bytes:
        value = 255 * float(text)
        # numbers rounded to 4 decimals or to 32 bits are still told apart; others would be changed in silence
        if not -0.02 <= value <= 255.02 or abs(value - round(value)) > 0.02:
            raise ValueError(f"holds the value {text:.40}; allowed are the grey levels 0/255, 1/255 ... 255/255")
        level = bytes([round(value)])
        if len(self) < 4_096:  # 256 in an honest file
            self[text] = level
        return level

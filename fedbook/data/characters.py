"""EMNIST's six splits: sizes, classes, and its files turned upright.

NIST's files hold every image with rows and columns exchanged, and count the classes of ``letters`` from 1.

Source: Cohen, Afshar, Tapson and van Schaik, EMNIST: an extension of MNIST to handwritten letters (2017), Table II; the
mapping files of the archive. The table has 88,800 + 14,800 letters, the archive 124,800 + 20,800.
"""

from __future__ import annotations

import string
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedbook.data.errors import BrokenFile
from fedbook.data.idx import read_idx

CHARACTERS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
# where capital and small letter look alike, the small one is counted with the capital
MERGED = tuple(string.digits + string.ascii_uppercase + "abdefghnqrt")


class Split(NamedTuple):
    """Images for training and for testing, the classes' names, the label of the first class."""

    train: int
    test: int
    classes: tuple[str, ...]
    first: int = 0


SPLITS = {
    "byclass": Split(697_932, 116_323, CHARACTERS),
    "bymerge": Split(697_932, 116_323, MERGED),
    "balanced": Split(112_800, 18_800, MERGED),
    "letters": Split(124_800, 20_800, tuple(string.ascii_uppercase), first=1),
    "digits": Split(240_000, 40_000, tuple(string.digits)),
    "mnist": Split(60_000, 10_000, tuple(string.digits)),
}


def file_names(split: str) -> tuple[str, str, str, str]:
    """Training images and labels, test images and labels."""
    return tuple(
        f"emnist-{split}-{part}-{kind}-ubyte.gz"
        for part in ("train", "test")
        for kind in ("images-idx3", "labels-idx1")
    )


def read_split(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images and labels, test images and labels of a split in ``SPLITS``.

    Shapes: images uint8 [N, 1, 28, 28], upright; labels uint8 [N] from 0. Raises: BrokenFile, FileNotFoundError.
    """
    about, names, arrays = SPLITS[split], file_names(split), []
    for images, labels, count in ((*names[:2], about.train), (*names[2:], about.test)):
        x = read_idx(folder / images, (count, 28, 28))
        for start in range(0, count, 10_000):  # in parts: a second copy of byclass would take 547 MB
            x[start : start + 10_000] = x[start : start + 10_000].transpose(0, 2, 1).copy()
        y = read_idx(folder / labels, (count,))
        last = about.first + len(about.classes) - 1
        wrong = y[(y < about.first) | (y > last)]
        if len(wrong):
            raise BrokenFile(folder / labels, f"holds the label {wrong[0]}; allowed are {about.first} to {last}")
        arrays += [x[:, None], y - np.uint8(about.first)]
    return tuple(arrays)

"""The image datasets that lie in files of arrays, as tensors: one function a name."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.data.formats import Expected, read_idx, read_mat, read_npz, write_idx
from fedbook.data.root import BrokenFile, DataNotFound, Root, find
from fedbook.data.sources import SOURCES
from fedbook.randomness import stream

CHARACTERS = tuple(string.digits + string.ascii_uppercase + string.ascii_lowercase)
# where capital and small letter look alike, EMNIST counts the small one with the capital
MERGED = tuple(string.digits + string.ascii_uppercase + "abdefghnqrt")


class Split(NamedTuple):
    """A split of EMNIST: images for training and for testing, the classes' names, the label of the first class."""

    counts: tuple[int, int]
    classes: tuple[str, ...]
    first: int = 0


# Source: Cohen, Afshar, Tapson and van Schaik, EMNIST: an extension of MNIST to handwritten letters (2017), Table II;
# the mapping files of the archive. The table has 88,800 + 14,800 letters, the archive 124,800 + 20,800.
SPLITS = {
    "byclass": Split((697_932, 116_323), CHARACTERS),
    "bymerge": Split((697_932, 116_323), MERGED),
    "balanced": Split((112_800, 18_800), MERGED),
    "letters": Split((124_800, 20_800), tuple(string.ascii_uppercase), first=1),
    "digits": Split((240_000, 40_000), tuple(string.digits)),
    "mnist": Split((60_000, 10_000), tuple(string.digits)),
}


@dataclass(frozen=True, eq=False)
class Images:
    """A labelled dataset, training and test part: of images, or of other samples of one shape.

    Shapes: ``train_x`` and ``test_x`` ``[N, C, H, W]`` (float32 in [0, 1], or uint8 as stored), of several views
    ``[N, V, C, H, W]``; time series ``[N, T, D]`` and tables ``[N, D]`` (float32);
    ``train_y`` and ``test_y`` int64 ``[N]``, indices into ``classes``; ``train_writer`` and ``test_writer`` int64
    ``[N]``, indices into ``writers``: whose image it is (None where nobody knows).
    """

    name: str
    train_x: Tensor = field(repr=False)
    train_y: Tensor = field(repr=False)
    test_x: Tensor = field(repr=False)
    test_y: Tensor = field(repr=False)
    classes: tuple[str, ...]
    train_writer: Tensor | None = field(default=None, repr=False)
    test_writer: Tensor | None = field(default=None, repr=False)
    writers: tuple[str, ...] = field(default=(), repr=False)


def digits(root: Root = None, dtype: torch.dtype = torch.float32) -> Images:
    """scikit-learn's 1,797 digits of 8x8 pixels with 17 grey levels (0..16 as uint8).

    The set has no official split. Ours: of each class, the fifth with the smallest raw numbers of the stream
    ``(0, "digits", client=class)`` is the test part (359 images), the rest the training part (1,438); both in the
    order of scikit-learn. ``root`` is not used: the digits come with scikit-learn.
    Raises: TypeError, ValueError (``dtype``).
    """
    check_dtype(dtype)
    from sklearn.datasets import load_digits

    bunch = load_digits()
    x, y = bunch.images.astype(np.uint8)[:, None], bunch.target
    test = keyed_rows(y, "digits")
    train = np.delete(np.arange(len(y)), test)
    return as_images("digits", x[train], y[train], x[test], y[test], tuple(string.digits), dtype, top=16)


def mnist(root: Root = None, dtype: torch.dtype = torch.float32) -> Images:
    """MNIST: 60,000 + 10,000 handwritten digits, x ``[N, 1, 28, 28]``. Ships with the book.

    Raises: DataNotFound, BrokenFile, TypeError, ValueError.
    """
    check_dtype(dtype)
    source = SOURCES["mnist"]
    return as_images("mnist", *_idx(find(source, root), source.paths, source), source.classes, dtype)


def fashion_mnist(root: Root = None, dtype: torch.dtype = torch.float32, size: str = "subset") -> Images:
    """Fashion-MNIST: articles of clothing, x ``[N, 1, 28, 28]``.

    ``size="subset"``: 20,000 + 5,000, balanced over the 10 classes; ships with the book, and is chosen from the full
    files where only those are found (the same rows). ``size="full"``: 60,000 + 10,000, to be fetched.
    Raises: DataNotFound, BrokenFile, TypeError, ValueError.
    """
    check_dtype(dtype)
    full, subset = SOURCES["fashion_mnist"], SOURCES["fashion_mnist_subset"]
    if arguments.one_of("size", size, ("subset", "full")) == "full":
        arrays = _idx(find(full, root), full.paths, full)
    else:
        try:
            arrays = _idx(find(subset, root), subset.paths, subset)
        except DataNotFound as absent:
            try:
                folder = find(full, root)
            except DataNotFound:
                raise absent from None
            arrays = _subset(_idx(folder, full.paths, full))
    return as_images("fashion_mnist", *arrays, full.classes, dtype)


def make_fashion_mnist(source: Path, out: Path) -> tuple[Path, ...]:
    """Writes the subset of the full Fashion-MNIST in the folder ``source`` to ``out``; returns the four files.

    A function of the full public files alone: the rows follow from a keyed stream, in the order of the full set.
    Raises: BrokenFile, FileNotFoundError.
    """
    full = SOURCES["fashion_mnist"]
    names = [Path(path).name for path in full.paths]
    out.mkdir(parents=True, exist_ok=True)
    for name, array in zip(names, _subset(_idx(source, names, full)), strict=True):
        write_idx(out / name, array[:, 0] if array.ndim > 1 else array)
    return tuple(out / name for name in names)


def svhn(root: Root = None, dtype: torch.dtype = torch.float32) -> Images:
    """SVHN: digits of house numbers in photographs, x ``[N, 3, 32, 32]``, 73,257 + 26,032 images. Does not ship.

    The classes are unequal: 13,861 ones and 4,659 nines train. The publisher's 531,131 extra images are not used.
    Bytes an image: 3,072 as uint8, 12,288 as float32.
    Raises: DataNotFound, BrokenFile, TypeError, ValueError.
    Source: Y. Netzer, T. Wang, A. Coates, A. Bissacco, B. Wu and A. Y. Ng, Reading Digits in Natural Images with
    Unsupervised Feature Learning (2011).
    """
    check_dtype(dtype)
    source = SOURCES["svhn"]
    folder, arrays = find(source, root), []
    for file in source.files:
        variables = read_mat(folder / file.path, file.published)
        x = variables["X"].transpose(3, 2, 1, 0)  # [N, 3, columns, rows]: the order of the bytes, nothing is copied
        arrays += [_turned(x), variables["y"].ravel().astype(np.int64) % 10]  # 10 stands for the digit 0
    return as_images("svhn", *arrays, source.classes, dtype)


def emnist(root: Root = None, dtype: torch.dtype = torch.float32, split: str = "balanced") -> Images:
    """EMNIST: handwritten letters and digits, x ``[N, 1, 28, 28]``, upright. Does not ship.

    ``split``: "byclass" (62 classes, 697,932 + 116,323 images), "bymerge" (47 classes, the same images), "balanced"
    (47, 112,800 + 18,800), "letters" (26, capital and small together, 124,800 + 20,800), "digits" (10, 240,000 +
    40,000) or "mnist" (10, 60,000 + 10,000). Bytes an image: 784 as uint8, 3,136 as float32.
    Raises: DataNotFound, BrokenFile, TypeError, ValueError.
    """
    check_dtype(dtype)
    about = SPLITS[arguments.one_of("split", split, SPLITS)]
    source = SOURCES["emnist"]
    paths = [path for path in source.paths if f"emnist-{split}-" in path]
    # NIST's files hold every image with rows and columns exchanged, and count the classes of letters from 1
    train_x, train_y, test_x, test_y = _idx(find(source, root, paths), paths, about, about.first)
    return as_images("emnist", _turned(train_x), train_y, _turned(test_x), test_y, about.classes, dtype)


def pathmnist(root: Root = None, dtype: torch.dtype = torch.float32) -> Images:
    """PathMNIST (MedMNIST v2): stained tissue of the colon, 9 kinds, x ``[N, 3, 28, 28]``, 89,996 + 7,180 images.

    Does not ship. The test images come from another clinic. The publisher's 10,004 validation images are left out.
    Raises: DataNotFound, BrokenFile, TypeError, ValueError.
    Source: J. Yang et al., MedMNIST v2 (2023); the images: J. N. Kather et al., Predicting Survival from Colorectal
    Cancer Histology Slides Using Deep Learning (2019).
    """
    check_dtype(dtype)
    source, form = SOURCES["pathmnist"], {}
    path = find(source, root) / source.paths[0]
    for part, count in zip(("train", "val", "test"), source.counts, strict=True):
        form[f"{part}_images"] = Expected((count, 28, 28, 3), ("uint8",))
        # the collection's list of files does not say how labels are stored; both of these mean the same
        form[f"{part}_labels"] = Expected((count, 1), ("uint8", "int64"))
    arrays = read_npz(path, form, [name for name in form if "val" not in name])
    for name, array in arrays.items():
        if "images" in name:
            arrays[name] = np.ascontiguousarray(array.transpose(0, 3, 1, 2))
        else:
            arrays[name] = array.ravel()
            _check_labels(path, arrays[name], len(source.classes), what=f"{name} holds")
    return as_images("pathmnist", *arrays.values(), source.classes, dtype)


def keyed_rows(labels: np.ndarray, purpose: str, count: int | None = None) -> np.ndarray:
    """The rows that a keyed draw chooses, ascending: ``count`` of each class, or a fifth of it.

    Each class has its own stream ``(0, purpose, client=class)``; the rows with the smallest raw 64-bit numbers are
    chosen. NumPy promises the raw numbers of a bit generator for good, not what its ``permutation`` makes of them.
    Raises: ValueError (a class has too few rows).
    """
    chosen = []
    for label in np.unique(labels).tolist():
        rows = np.flatnonzero(labels == label)
        wanted = round(len(rows) / 5) if count is None else count
        if len(rows) < wanted:
            raise ValueError(f"labels: class {label} has {len(rows)} rows; needed are {wanted}")
        keys = stream(0, purpose, client=label).bit_generator.random_raw(len(rows))
        chosen.append(rows[np.argsort(keys, kind="stable")[:wanted]])
    return np.sort(np.concatenate(chosen))


def as_images(
    name: str,
    train_x: np.ndarray,
    train_y: np.ndarray,
    test_x: np.ndarray,
    test_y: np.ndarray,
    classes: tuple[str, ...],
    dtype: torch.dtype,
    top: int = 255,
) -> Images:
    """The arrays as tensors: pixels 0..``top`` as they are, or as float32 in [0, 1]."""

    def pixels(array: np.ndarray) -> Tensor:
        x = torch.from_numpy(array)
        return x if dtype == torch.uint8 else x.to(dtype).div_(top)

    def labels(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.astype(np.int64))

    return Images(name, pixels(train_x), labels(train_y), pixels(test_x), labels(test_y), classes)


def check_dtype(dtype: Any) -> None:
    """Raises: TypeError, ValueError unless images can be had as this dtype."""
    allowed = "torch.float32 (values in [0, 1]) or torch.uint8 (values as stored)"
    if not isinstance(dtype, torch.dtype):
        raise arguments.wrong(TypeError, "dtype", dtype, allowed)
    if dtype not in (torch.float32, torch.uint8):
        raise arguments.wrong(ValueError, "dtype", dtype, allowed)


def _idx(folder: Path, paths: Sequence[str], about: Any, first: int = 0) -> tuple[np.ndarray, ...]:
    """Training images ``[N, 1, 28, 28]`` and labels ``[N]`` from 0, then those for testing, from four idx files."""
    arrays = []
    for images, labels, count in ((*paths[:2], about.counts[0]), (*paths[2:], about.counts[1])):
        x, y = read_idx(folder / images, (count, 28, 28)), read_idx(folder / labels, (count,))
        _check_labels(folder / labels, y, len(about.classes), first)
        arrays += [x[:, None], y - np.uint8(first)]
    return tuple(arrays)


def _check_labels(path: Path, y: np.ndarray, classes: int, first: int = 0, what: str = "holds the label") -> None:
    wrong = y[(y < first) | (y >= first + classes)]
    if len(wrong):
        raise BrokenFile(path, f"{what} {wrong[0]}; allowed are {first} to {first + classes - 1}")


def _subset(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """Of the full Fashion-MNIST the part that ships: 2,000 + 500 images of each class."""
    train_x, train_y, test_x, test_y = arrays
    train, test = keyed_rows(train_y, "fashion_mnist train", 2_000), keyed_rows(test_y, "fashion_mnist t10k", 500)
    return train_x[train], train_y[train], test_x[test], test_y[test]


def _turned(x: np.ndarray) -> np.ndarray:
    """Rows and columns of every image exchanged, in place and in parts: a second copy can take half a gigabyte."""
    for start in range(0, len(x), 10_000):
        x[start : start + 10_000] = x[start : start + 10_000].swapaxes(-1, -2).copy()
    return x

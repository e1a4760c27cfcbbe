"""The image datasets as tensors: one function a name."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.data import sources
from fedbook.data.characters import CHARACTERS, SPLITS, file_names, read_split
from fedbook.data.cifar import NAMES, read_cifar100
from fedbook.data.errors import BrokenFile, DataNotFound
from fedbook.data.house_numbers import read_svhn
from fedbook.data.idx import read_idx
from fedbook.data.leaf import read_leaf
from fedbook.data.medmnist import TISSUES, read_pathmnist
from fedbook.data.python_batches import read_plain_pickle, read_python_batch
from fedbook.data.root import find
from fedbook.data.subset import subset_rows
from fedbook.randomness import stream

Root = str | os.PathLike[str] | None
NUMERALS = tuple("0123456789")
CLOTHES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


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
    x, y = bunch.images.astype(np.uint8)[:, None], bunch.target.astype(np.int64)
    test = np.zeros(len(y), bool)
    for label in range(10):
        rows = np.flatnonzero(y == label)
        keys = stream(0, "digits", client=label).bit_generator.random_raw(len(rows))
        test[rows[np.argsort(keys, kind="stable")[: round(len(rows) / 5)]]] = True
    return as_images("digits", x[~test], y[~test], x[test], y[test], NUMERALS, dtype, top=16)


def mnist(root: Root = None, dtype: torch.dtype = torch.float32) -> Images:
    """MNIST: 60,000 + 10,000 handwritten digits, x ``[N, 1, 28, 28]``. Ships with the book.

    Raises: DataNotFound, BrokenFile, TypeError, ValueError.
    """
    check_dtype(dtype)
    folder = _find(sources.MNIST, root) / "mnist"
    return as_images("mnist", *_four(folder, 60_000, 10_000), NUMERALS, dtype)


def fashion_mnist(root: Root = None, dtype: torch.dtype = torch.float32, size: str = "subset") -> Images:
    """Fashion-MNIST: articles of clothing, x ``[N, 1, 28, 28]``.

    ``size="subset"``: 20,000 + 5,000, balanced over the 10 classes; ships with the book, and is chosen from the full
    files where only those are found (the same rows). ``size="full"``: 60,000 + 10,000, to be fetched.
    Raises: DataNotFound, BrokenFile, TypeError, ValueError.
    """
    check_dtype(dtype)
    if arguments.one_of("size", size, ("subset", "full")) == "full":
        folder = _find(sources.FASHION_MNIST, root) / "fashion-mnist"
        return as_images("fashion_mnist", *_four(folder, 60_000, 10_000), CLOTHES, dtype)
    try:
        folder = _find(sources.FASHION_MNIST_SUBSET, root) / "fashion-mnist" / "subset"
    except DataNotFound as absent:
        try:
            folder = _find(sources.FASHION_MNIST, root) / "fashion-mnist"
        except DataNotFound:
            raise absent from None
        train_x, train_y, test_x, test_y = _four(folder, 60_000, 10_000)
        train, test = subset_rows(train_y, 2_000, "train"), subset_rows(test_y, 500, "t10k")
        arrays = train_x[train], train_y[train], test_x[test], test_y[test]
    else:
        arrays = _four(folder, 20_000, 5_000)
    return as_images("fashion_mnist", *arrays, CLOTHES, dtype)


def cifar10(root: Root = None, dtype: torch.dtype = torch.float32) -> Images:
    """CIFAR-10 from its official ``cifar-10-batches-py`` folder: 50,000 + 10,000 images, x ``[N, 3, 32, 32]``.

    Does not ship. The files are pickles and are read without running them (``fedbook.data.python_batches``).
    Raises: DataNotFound, BrokenFile, TypeError, ValueError.
    """
    check_dtype(dtype)
    folder = _find(sources.CIFAR10, root) / "cifar-10-batches-py"
    meta = read_plain_pickle(folder / "batches.meta", max_bytes=4_096, max_steps=200)
    if meta.get("label_names") not in ([name.encode() for name in THINGS], list(THINGS)):
        raise BrokenFile(folder / "batches.meta", f"label_names is not the list {', '.join(THINGS)}")
    train = [read_python_batch(folder / f"data_batch_{i}") for i in range(1, 6)]
    test = read_python_batch(folder / "test_batch")
    train_x = np.concatenate([batch["data"] for batch in train]).reshape(-1, 3, 32, 32)
    train_y = np.concatenate([batch["labels"] for batch in train])
    test_x = test["data"].reshape(-1, 3, 32, 32).copy()  # a copy, because the file's bytes are read-only
    return as_images("cifar10", train_x, train_y, test_x, test["labels"], THINGS, dtype)


def cifar100(root: Root = None, dtype: torch.dtype = torch.float32, labels: str = "fine") -> Images:
    """CIFAR-100 from its official ``cifar-100-python`` folder: 50,000 + 10,000 images, x ``[N, 3, 32, 32]``.

    ``labels="fine"``: 100 classes of 500 + 100 images; ``"coarse"``: the 20 superclasses of five such classes each.
    Does not ship. Pickles, read like CIFAR-10's.
    Raises: DataNotFound, BrokenFile, TypeError, ValueError.
    """
    check_dtype(dtype)
    arguments.one_of("labels", labels, NAMES)
    folder = _find(sources.CIFAR100, root) / "cifar-100-python"
    return as_images("cifar100", *read_cifar100(folder, labels), NAMES[labels], dtype)


def svhn(root: Root = None, dtype: torch.dtype = torch.float32) -> Images:
    """SVHN: digits of house numbers in photographs, x ``[N, 3, 32, 32]``, 73,257 + 26,032 images. Does not ship.

    The classes are unequal: 13,861 ones and 4,659 nines train. The publisher's 531,131 extra images are not used.
    Bytes an image: 3,072 as uint8, 12,288 as float32.
    Raises: DataNotFound, BrokenFile, TypeError, ValueError.
    """
    check_dtype(dtype)
    folder = _find(sources.SVHN, root) / "svhn"
    return as_images("svhn", *read_svhn(folder), NUMERALS, dtype)


def emnist(root: Root = None, dtype: torch.dtype = torch.float32, split: str = "balanced") -> Images:
    """EMNIST: handwritten letters and digits, x ``[N, 1, 28, 28]``, upright. Does not ship.

    ``split``: "byclass" (62 classes, 697,932 + 116,323 images), "bymerge" (47 classes, the same images), "balanced"
    (47, 112,800 + 18,800), "letters" (26, capital and small together, 124,800 + 20,800), "digits" (10, 240,000 +
    40,000) or "mnist" (10, 60,000 + 10,000). Bytes an image: 784 as uint8, 3,136 as float32.
    Raises: DataNotFound, BrokenFile, TypeError, ValueError.
    """
    check_dtype(dtype)
    arguments.one_of("split", split, SPLITS)
    paths = tuple(f"{sources.EMNIST.unpacked_in}/gzip/{name}" for name in file_names(split))
    folder = (find("emnist", paths, sources.EMNIST.remedy, root) / paths[0]).parent
    return as_images("emnist", *read_split(folder, split), SPLITS[split].classes, dtype)


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
    folder = _find(sources.FEMNIST, root)
    parts = []
    for pattern in sources.FEMNIST.paths:
        x, y, writer = read_leaf(sorted(folder.glob(pattern)))
        kept = np.flatnonzero(y < top) if top < 62 else slice(None)
        parts += [x[kept], y[kept], writer[kept]]
    train_x, train_y, train_writer, test_x, test_y, test_writer = parts
    writers, index = np.unique(np.concatenate([train_writer, test_writer]), return_inverse=True)
    images = as_images("femnist", train_x, train_y, test_x, test_y, CHARACTERS[:top], dtype)
    owners = torch.from_numpy(index.astype(np.int64)).split([len(train_y), len(test_y)])
    return replace(images, train_writer=owners[0], test_writer=owners[1], writers=tuple(writers.tolist()))


def pathmnist(root: Root = None, dtype: torch.dtype = torch.float32) -> Images:
    """PathMNIST (MedMNIST v2): stained tissue of the colon, 9 kinds, x ``[N, 3, 28, 28]``, 89,996 + 7,180 images.

    Does not ship. The test images come from another clinic. The publisher's 10,004 validation images are left out.
    Raises: DataNotFound, BrokenFile, TypeError, ValueError.
    """
    check_dtype(dtype)
    folder = _find(sources.PATHMNIST, root)
    return as_images("pathmnist", *read_pathmnist(folder / sources.PATHMNIST.paths[0]), TISSUES, dtype)


def _find(source: sources.Source, root: Root) -> Path:
    return find(source.name, source.paths, source.remedy, root)


def _four(folder: Path, train: int, test: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The arrays of an idx dataset: images ``[N, 1, 28, 28]`` and labels in 0..9, ``[N]``."""
    arrays = []
    for images, labels, count in ((*sources.MNIST_FILES[:2], train), (*sources.MNIST_FILES[2:], test)):
        x = read_idx(folder / images, (count, 28, 28))[:, None]
        y = read_idx(folder / labels, (count,))
        if y.max() > 9:
            raise BrokenFile(folder / labels, f"holds the label {y.max()}; allowed are 0 to 9")
        arrays += [x, y]
    return tuple(arrays)


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
    def pixels(array: np.ndarray) -> Tensor:
        x = torch.from_numpy(array)
        return x if dtype == torch.uint8 else x.to(dtype).div_(top)

    def labels(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array.astype(np.int64))

    return Images(name, pixels(train_x), labels(train_y), pixels(test_x), labels(test_y), classes)


def check_dtype(dtype: Any) -> None:
    allowed = "torch.float32 (values in [0, 1]) or torch.uint8 (values as stored)"
    if not isinstance(dtype, torch.dtype):
        raise arguments.wrong(TypeError, "dtype", dtype, allowed)
    if dtype not in (torch.float32, torch.uint8):
        raise arguments.wrong(ValueError, "dtype", dtype, allowed)

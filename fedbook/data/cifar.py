"""CIFAR-10 and CIFAR-100: 32x32 pixels, in colour, from the publisher's "python version".

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009); names as in the publisher's files.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedbook import arguments
from fedbook.data.formats import reading
from fedbook.data.images import Images, as_images, check_dtype
from fedbook.data.root import BrokenFile, Root, find
from fedbook.data.sources import SOURCES

SUPERCLASSES = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}
# By labels: names in the order of the numbers that stand for them (both lists are alphabetical).
NAMES = {"fine": tuple(sorted(" ".join(SUPERCLASSES.values()).split())), "coarse": tuple(SUPERCLASSES)}
PARENTS = np.array(
    [next(i for i, kinds in enumerate(SUPERCLASSES.values()) if name in kinds.split()) for name in NAMES["fine"]]
)  # of each of the hundred classes the number of its superclass


def cifar10(root: Root = None, dtype: torch.dtype = torch.float32) -> Images:
    """CIFAR-10 from its official ``cifar-10-batches-py`` folder: 50,000 + 10,000 images, x ``[N, 3, 32, 32]``.

    Does not ship. The files are pickles and are read without running them.
    Raises: DataNotFound, BrokenFile, TypeError, ValueError.
    """
    check_dtype(dtype)
    source = SOURCES["cifar10"]
    folder = find(source, root)
    *train, test, meta = (folder / path for path in source.paths)
    _check_names(meta, "label_names", source.classes)
    batches = [_batch(path, source.counts[0] // len(train), {"labels": 10}) for path in train]
    train_x, train_y = (np.concatenate([batch[key] for batch in batches]) for key in ("data", "labels"))
    batch = _batch(test, source.counts[1], {"labels": 10})
    return as_images("cifar10", train_x, train_y, batch["data"], batch["labels"], source.classes, dtype)


def cifar100(root: Root = None, dtype: torch.dtype = torch.float32, labels: str = "fine") -> Images:
    """CIFAR-100 from its official ``cifar-100-python`` folder: 50,000 + 10,000 images, x ``[N, 3, 32, 32]``.

    ``labels="fine"``: 100 classes of 500 + 100 images; ``"coarse"``: the 20 superclasses of five such classes each.
    Does not ship. Pickles, read like CIFAR-10's. Memory: 184 MB, and up to 500 MB more while a file is read.
    Raises: DataNotFound, BrokenFile, TypeError, ValueError.
    """
    check_dtype(dtype)
    arguments.one_of("labels", labels, NAMES)
    source = SOURCES["cifar100"]
    folder = find(source, root)
    *parts, meta = (folder / path for path in source.paths)
    for kind, names in NAMES.items():
        _check_names(meta, f"{kind}_label_names", names)
    arrays = []
    for path, count in zip(parts, source.counts, strict=True):
        batch = _batch(path, count, {"fine_labels": 100, "coarse_labels": 20})
        strangers = np.flatnonzero(PARENTS[batch["fine_labels"]] != batch["coarse_labels"])
        if len(strangers):
            fine, coarse = (names[batch[f"{kind}_labels"][strangers[0]]] for kind, names in NAMES.items())
            what = f"image {strangers[0]} is called {fine} and put among {coarse}"
            raise BrokenFile(path, f"coarse_labels and fine_labels disagree: {what}")
        arrays += [batch["data"], batch[f"{labels}_labels"]]
    return as_images("cifar100", *arrays, NAMES[labels], dtype)


def _check_names(path: Path, key: str, names: Sequence[str]) -> None:
    if read_pickle(path, 4_096).get(key) not in ([name.encode() for name in names], list(names)):
        raise BrokenFile(path, f"{key} is not the list {names[0]}, ... {names[-1]}")


def _batch(path: Path, rows: int, labels: Mapping[str, int]) -> dict[str, np.ndarray]:
    """``data`` uint8 [rows, 3, 32, 32] and the label lists, each int64 [rows] below the number that is given for it."""
    batch = read_pickle(path, rows * (3_072 + 64) + 65_536)
    missing = [key for key in ("data", *labels) if key not in batch]
    if missing:
        raise BrokenFile(path, f"has no {', '.join(missing)}; its keys are {arguments.shown(sorted(batch))}")
    data = getattr(batch["data"], "value", None)
    if data is None:
        raise BrokenFile(path, "data is no array of unsigned bytes")
    if data.shape != (rows, 3_072):
        raise BrokenFile(path, f"data has shape {list(data.shape)}; expected is [{rows}, 3072]")
    arrays = {"data": data.reshape(-1, 3, 32, 32).copy()}  # a copy, because the file's bytes are read-only
    for key, classes in labels.items():
        values = batch[key]
        if not isinstance(values, list) or len(values) != rows:
            raise BrokenFile(path, f"{key}: expected is a list of {rows}")
        if not all(type(value) is int and 0 <= value < classes for value in values):
            raise BrokenFile(path, f"{key} holds something else than whole numbers in 0..{classes - 1}")
        arrays[key] = np.array(values, np.int64)
    return arrays


def read_pickle(path: Path, limit: int) -> dict[str, Any]:
    """The dictionary in a pickle of plain values and arrays of bytes (``Array``); keys as text.

    A pickle is a program, and an unrestricted reader runs whatever its maker wrote. Here the only names it may mention
    stand for inert objects of this module, so that there is nothing to run.
    Raises: BrokenFile, FileNotFoundError.
    """
    with path.open("rb") as file:
        program = file.read(limit + 1)
    if len(program) > limit:
        raise BrokenFile(path, f"is larger than the {limit:,} bytes that are accepted")
    with reading(path):
        tuples = 0
        for code, argument, _ in pickletools.genops(program):
            tuples += code.name.startswith("TUPLE")
            # Deep nests of tuples overflow the stack when they are hashed; a store far out in the memo would make the
            # unpickler reserve all places before it.
            if tuples > 100 or (code.name.endswith("BINPUT") and argument > 10**6):
                raise BrokenFile(path, "refused: more pickled tuples or stores than such a file needs")
        values = Plain(io.BytesIO(program), encoding="bytes").load()
    if not isinstance(values, dict) or not all(isinstance(key, (bytes, str)) for key in values):
        raise BrokenFile(path, f"holds a {type(values).__name__}, not a dictionary with texts as keys")
    return {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in values.items()}


class Array:
    """Stands for ``numpy.ndarray``: ``value`` is the array of unsigned bytes that a pickle describes."""

    def __init__(self, *_: Any) -> None:
        self.value: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, columns_first, content = state
        if not isinstance(dtype, ByteType) or not isinstance(content, bytes):
            raise pickle.UnpicklingError("refused: an array that is not of unsigned bytes")
        self.value = np.frombuffer(content, np.uint8).reshape(shape, order="F" if columns_first else "C")


class ByteType:
    """Stands for ``numpy.dtype``: only the unsigned byte exists, so no objects either."""

    def __init__(self, code: Any, *_: Any) -> None:
        if code not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"refused: dtype {arguments.shown(code)}; allowed is u1 (unsigned bytes)")

    def __setstate__(self, state: Any) -> None:
        """An unsigned byte has no state: what the file says of it does not count."""


class Plain(pickle.Unpickler):
    """An unpickler that knows the names in a pickled array of bytes, and what they stand for here."""

    KNOWN = {
        ("numpy.core.multiarray", "_reconstruct"): Array,  # NumPy 1
        ("numpy._core.multiarray", "_reconstruct"): Array,
        ("numpy", "ndarray"): None,
        ("numpy", "dtype"): ByteType,
    }

    def find_class(self, module: str, name: str) -> Any:
        """What stands for ``module.name``. Raises: UnpicklingError for every other name."""
        if (module, name) not in self.KNOWN:
            asked = arguments.shown(f"{module}.{name}")
            raise pickle.UnpicklingError(f"refused: the pickle asks for {asked}, which plain data never need")
        return self.KNOWN[module, name]

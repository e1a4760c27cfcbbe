"""Which rows of Fashion-MNIST make the balanced subset that ships."""

from __future__ import annotations

import numpy as np

from fedbook import arguments
from fedbook.randomness import stream

SPLITS = {"train": (60_000, 2_000), "t10k": (10_000, 500)}  # rows of the full set, rows a class of the subset


def subset_rows(labels: np.ndarray, per_class: int, split: str) -> np.ndarray:
    """The rows of the balanced subset, ascending: ``per_class`` of each of the 10 classes.

    Shapes: labels ``[N]`` in 0..9; result int64 ``[10 * per_class]``.
    Each class has its own stream ``(0, "fashion_mnist <split>", client=class)``; the rows with the smallest raw
    64-bit numbers are kept. NumPy promises the raw numbers of a bit generator for good, not what its
    ``permutation`` makes of them.
    Raises: ValueError if a class has too few rows; TypeError, ValueError (an argument).
    """
    per_class = arguments.integer("per_class", per_class, 1)
    if not isinstance(labels, np.ndarray) or labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise arguments.wrong(TypeError, "labels", labels, "a NumPy array of whole numbers with one axis")
    arguments.one_of("split", split, SPLITS)
    kept = []
    for label in range(10):
        rows = np.flatnonzero(labels == label)
        if len(rows) < per_class:
            raise ValueError(f"labels: class {label} has {len(rows)} rows; needed are {per_class}")
        keys = stream(0, f"fashion_mnist {split}", client=label).bit_generator.random_raw(len(rows))
        kept.append(rows[np.argsort(keys, kind="stable")[:per_class]])
    return np.sort(np.concatenate(kept))

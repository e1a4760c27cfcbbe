"""MIMIC-III's in-hospital mortality, read from one ``.npz``. Nothing of MIMIC-III ships: its licence forbids it."""

from __future__ import annotations

import numpy as np
import torch

from fedbook.data import sources
from fedbook.data.errors import BrokenFile
from fedbook.data.images import Images, Root
from fedbook.data.npz import Expected, read_npz
from fedbook.data.root import find

HOURS = 48
COLUMNS = 76
MOST_STAYS = 100_000  # the benchmark has 21,139


def mimic3(root: Root = None) -> Images:
    """MIMIC-III, in-hospital mortality: x ``[N, 48, 76]`` float32; y 1 dies in hospital, 0 survives. Does not ship.

    Read from ``mimic3/mimic3_ihm.npz``, which holds exactly ``X`` [n, 48, 76] (float32 or float64), ``y`` [n] (0 or 1)
    and ``test`` [n] (1: this stay is for testing), both of bytes, bools or 8-byte integers. ``mimic3_from_benchmark``
    makes it and says what the columns are. Bytes a stay: 14,592.
    Raises: DataNotFound, BrokenFile, TypeError, ValueError (``root``).
    """
    path = find("mimic3", sources.MIMIC3.paths, sources.MIMIC3.remedy, root) / sources.MIMIC3.paths[0]
    stays, kinds = range(2, MOST_STAYS + 1), ("|u1", "|b1", "<i8")
    expected = {
        "X": Expected((stays, HOURS, COLUMNS), ("<f4", "<f8")),
        "y": Expected((stays,), kinds),
        "test": Expected((stays,), kinds),
    }
    arrays = read_npz(path, expected)
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        text = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise BrokenFile(path, f"its arrays are of different lengths: {text}")
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused next
        x = arrays["X"].astype(np.float32, copy=False)
    if not np.isfinite(x).all():
        raise BrokenFile(path, "X holds NaN or infinite values, or such as are too large for float32")
    flags = {}
    for name in ("y", "test"):
        numbers = arrays[name].view(np.uint8) if arrays[name].dtype == bool else arrays[name]
        if not np.isin(numbers, (0, 1)).all():
            raise BrokenFile(path, f"{name} holds values other than 0 and 1")
        flags[name] = numbers.astype(np.int64)
    test = flags["test"] == 1
    if test.all() or not test.any():
        raise BrokenFile(path, "test must be 1 for some stays and 0 for others")
    y = flags["y"]
    tensors = (torch.from_numpy(part) for part in (x[~test], y[~test], x[test], y[test]))
    return Images("mimic3", *tensors, ("survives", "dies"))

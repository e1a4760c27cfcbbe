"""SVHN, Street View House Numbers: digits cropped from photographs of houses, 32x32 pixels, in colour.

Source: Y. Netzer, T. Wang, A. Coates, A. Bissacco, B. Wu and A. Y. Ng, Reading Digits in Natural Images with
Unsupervised Feature Learning (2011).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedbook.data.errors import BrokenFile
from fedbook.data.matlab import read_mat
from fedbook.data.npz import Expected

COUNTS = {"train": 73_257, "test": 26_032}


def read_svhn(folder: str | Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images, their digits, test images, their digits, from ``train_32x32.mat`` and ``test_32x32.mat``.

    Shapes: images uint8 [73257, 3, 32, 32] and [26032, 3, 32, 32], digits int64 in 0..9. Memory: 305 MB, and 31 MB
    more while the images are turned.
    Raises: BrokenFile (a ``ValueError``; names the file and what is wrong), FileNotFoundError.
    """
    parts = []
    for part, count in COUNTS.items():
        path = Path(folder) / f"{part}_32x32.mat"
        # digits are bytes or MATLAB's usual doubles: both mean the same
        arrays = read_mat(path, {"X": Expected((32, 32, 3, count)), "y": Expected((count, 1), ("|u1", "<f8"))})
        x = arrays["X"].transpose(3, 2, 1, 0)  # [N, 3, columns, rows]: the order of the bytes, nothing is copied
        for start in range(0, count, 10_000):  # in parts: a second copy of the training images would take 225 MB
            x[start : start + 10_000] = x[start : start + 10_000].transpose(0, 1, 3, 2).copy()
        y = arrays["y"].ravel()
        wrong = y[~np.isin(y, np.arange(1, 11))]
        if len(wrong):
            raise BrokenFile(path, f"y holds {wrong[0]}; allowed are 1 to 10, where 10 stands for the digit 0")
        parts += [x, y.astype(np.int64) % 10]
    return tuple(parts)

"""PathMNIST, one dataset of the MedMNIST v2 collection: pieces of stained tissue of the colon, 28x28 pixels, in colour.

Source: J. Yang et al., MedMNIST v2 (2023); the images: J. N. Kather et al., Predicting Survival from Colorectal Cancer
Histology Slides Using Deep Learning (2019).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedbook.data.errors import BrokenFile
from fedbook.data.npz import Expected, read_npz

COUNTS = {"train": 89_996, "val": 10_004, "test": 7_180}
TISSUES = (
    "adipose",
    "background",
    "debris",
    "lymphocytes",
    "mucus",
    "smooth muscle",
    "normal colon mucosa",
    "cancer-associated stroma",
    "colorectal adenocarcinoma epithelium",
)


def read_pathmnist(path: str | Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images, their tissues, test images, their tissues, from ``pathmnist.npz``.

    Shapes: images uint8 [89996, 3, 28, 28] and [7180, 3, 28, 28], tissues int64 in 0..8. The 10,004 validation images
    of the file stay unread. Memory: 230 MB, and as much again while one part is turned to channels first.
    Raises: BrokenFile (a ``ValueError``; names the file and what is wrong), FileNotFoundError.
    """
    expected = {}
    for part, count in COUNTS.items():
        expected[f"{part}_images"] = Expected((count, 28, 28, 3))
        # the collection's list of files does not say how labels are stored; both of these mean the same
        expected[f"{part}_labels"] = Expected((count, 1), ("|u1", "<i8"))
    arrays = read_npz(path, expected, [f"{part}_{what}" for part in ("train", "test") for what in ("images", "labels")])
    parts = []
    for part in ("train", "test"):
        parts.append(np.ascontiguousarray(arrays.pop(f"{part}_images").transpose(0, 3, 1, 2)))
        labels = arrays[f"{part}_labels"].ravel().astype(np.int64)
        if labels.min() < 0 or labels.max() >= len(TISSUES):
            bad = labels[(labels < 0) | (labels >= len(TISSUES))][0]
            raise BrokenFile(path, f"{part}_labels holds {bad}; allowed are 0 to {len(TISSUES) - 1}")
        parts.append(labels)
    return tuple(parts)

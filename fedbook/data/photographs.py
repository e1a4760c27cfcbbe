"""Patches of the two photographs that come with scikit-learn: real colour images where no others can be fetched."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.randomness import stream

NAMES = ("china.jpg", "flower.jpg")  # a temple; a dahlia
SHAPE = (427, 640, 3)
SIZE = 28
ROWS, COLUMNS = SHAPE[0] - SIZE + 1, SHAPE[1] - SIZE + 1
POSITIONS = len(NAMES) * ROWS * COLUMNS  # 490,400


class Patches(NamedTuple):
    """Patches and where they were cut out.

    Shapes: ``x`` uint8 [count, 3, 28, 28]; ``photograph`` int64 [count], 0 china.jpg, 1 flower.jpg; ``corner`` int64
    [count, 2], row and column of the upper left pixel.
    """

    x: Tensor
    photograph: Tensor
    corner: Tensor


def photograph_patches(count: int, seed: int = 0) -> Patches:
    """``count`` patches of 28x28 pixels at different random positions of both photographs, as stored (0..255).

    Every one of the 490,400 positions has a raw number of the stream (``seed``, "photograph patches"); those with the
    smallest come first, so fewer patches are the beginning of more. No two positions show the same, but the patches
    OVERLAP: two photographs hold 660 of them side by side, and of 20,000 each shares pixels with 117 others on average.
    They are records to compute with, not independent pictures. Another JPEG decoder may give slightly other values.
    Raises: TypeError, ValueError (count above 490,400); RuntimeError if scikit-learn ships other photographs.
    """
    from sklearn.datasets import load_sample_images

    count = arguments.integer("count", count, 1, POSITIONS)
    photographs = np.stack(load_sample_images().images)
    if photographs.shape != (len(NAMES), *SHAPE) or photographs.dtype != np.uint8:
        raise RuntimeError(
            f"scikit-learn's photographs are {photographs.dtype} {photographs.shape}, not two of {SHAPE}"
        )
    keys = stream(seed, "photograph patches").bit_generator.random_raw(POSITIONS)
    chosen = np.argsort(keys, kind="stable")[:count]
    photograph, row, column = np.unravel_index(chosen, (len(NAMES), ROWS, COLUMNS))
    # [2, ROWS, COLUMNS, 3, 28, 28]: a view, of which only the chosen patches are copied
    windows = np.lib.stride_tricks.sliding_window_view(photographs, (SIZE, SIZE), axis=(1, 2))
    x = torch.from_numpy(np.ascontiguousarray(windows[photograph, row, column]))
    return Patches(x, torch.from_numpy(photograph), torch.from_numpy(np.stack([row, column], 1)))

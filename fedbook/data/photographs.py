"""Patches of the two photographs that come with scikit-learn: real colour images where no others can be fetched."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.randomness import stream

NAMES = ("china.jpg", "flower.jpg")  # a temple; a dahlia
SHAPE = (427, 640, 3)
SIZE = 28
POSITIONS = len(NAMES) * (SHAPE[0] - SIZE + 1) * (SHAPE[1] - SIZE + 1)  # 490,400


class Patches(NamedTuple):
    """Patches and where they were cut out.

    Shapes: ``x`` uint8 [count, 3, height, width]; ``photograph`` int64 [count], 0 china.jpg, 1 flower.jpg; ``corner``
    int64 [count, 2], row and column of the upper left pixel.
    """

    x: Tensor
    photograph: Tensor
    corner: Tensor


def photograph_patches(count: int, seed: int = 0, height: int = SIZE, width: int = SIZE) -> Patches:
    """``count`` patches, 28x28 by default, at different random positions of both photographs, as stored (0..255).

    Every one of the positions (490,400 for 28x28) has a raw number of the stream (``seed``, "photograph patches");
    those with the smallest come first, so fewer patches are the beginning of more. No two positions of 28x28 show the
    same, but the patches OVERLAP: two photographs hold 660 of them side by side, and of 20,000 each shares pixels with
    117 others on average. They are records to compute with, not independent pictures. Another JPEG decoder may give
    slightly other values.
    Raises: TypeError, ValueError (count above the positions, more than 427 rows or 640 columns); RuntimeError if
    scikit-learn ships other photographs.
    """
    from sklearn.datasets import load_sample_images

    height = arguments.integer("height", height, 1, SHAPE[0])
    width = arguments.integer("width", width, 1, SHAPE[1])
    places = len(NAMES), SHAPE[0] - height + 1, SHAPE[1] - width + 1
    count = arguments.integer("count", count, 1, math.prod(places))
    photographs = np.stack(load_sample_images().images)
    if photographs.shape != (len(NAMES), *SHAPE) or photographs.dtype != np.uint8:
        raise RuntimeError(
            f"scikit-learn's photographs are {photographs.dtype} {photographs.shape}, not two of {SHAPE}"
        )
    keys = stream(seed, "photograph patches").bit_generator.random_raw(math.prod(places))
    chosen = np.argsort(keys, kind="stable")[:count]
    photograph, row, column = np.unravel_index(chosen, places)
    # [*places, 3, height, width]: a view, of which only the chosen patches are copied
    windows = np.lib.stride_tricks.sliding_window_view(photographs, (height, width), axis=(1, 2))
    x = torch.from_numpy(np.ascontiguousarray(windows[photograph, row, column]))
    return Patches(x, torch.from_numpy(photograph), torch.from_numpy(np.stack([row, column], 1)))

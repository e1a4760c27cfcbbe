"""Public images without labels that every client knows, so that representations can be compared.

They are the same for every seed of a run.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments, data
from fedbook.data import LOADERS
from fedbook.data.photographs import SHAPE, SIZE, photograph_patches
from fedbook.learning.problems import brightest
from fedbook.randomness import stream

LUMA = (299.0, 587.0, 114.0)  # thousandths of red, green, blue in grey: ITU-R BT.601, as pictures read as grey have it
IMAGES = tuple(name for name, load in LOADERS.items() if {"dtype", "root"} <= {*inspect.signature(load).parameters})


def alignment_images(
    source: str, count: int, shape: Sequence[int], seed: int = 0, root: data.root.Root = None
) -> Tensor:
    """``count`` images for a problem with images of ``shape`` (C, H, W), from where its own training images are not.

    ``source``: "noise", independent uniform pixels; "photographs", patches of two photographs (for images of 14 pixels
    or fewer, of means of squares of them; overlapping, see ``fedbook.data.photographs``); or the name of another
    dataset with images of that shape, of whose training part as many are drawn (one that can be read at several sizes
    is read at this one). Fewer are the beginning of more.
    Shapes: [count, C, H, W] float32 in [0, 1], on the CPU.
    Raises: TypeError, ValueError (a dataset of another shape or with fewer images, photographs too small),
    fedbook.data.DataNotFound.
    """
    arguments.one_of("source", source, ("noise", "photographs", *IMAGES))
    arguments.integer("count", count, 2)
    if source == "noise":
        # each float32 is a multiple of 2^-24 below 1: rounding a float64 could give 1
        return torch.from_numpy(stream(seed, "alignment noise").random((count, *shape), np.float32))
    if source == "photographs":
        return _photographs(count, shape, seed)
    options = {"side": shape[1]} if "side" in inspect.signature(LOADERS[source]).parameters else {}
    x = data.load(source, root=root, dtype=torch.uint8, **options).train_x
    if tuple(x.shape[1:]) != tuple(shape):
        given = f"{source}, with images of {tuple(x.shape[1:])}"
        raise arguments.wrong(ValueError, "source", given, f"a dataset with images of {tuple(shape)}")
    arguments.integer("count", count, 2, len(x))
    order = torch.from_numpy(stream(seed, "alignment set").permutation(len(x)))
    return x[order[:count]] / brightest(source)


def _photographs(count: int, shape: tuple[int, ...], seed: int) -> Tensor:
    channels, height, width = shape
    if channels not in (1, 3) or height > SHAPE[0] or width > SHAPE[1]:
        allowed = f"1 or 3 channels of at most {SHAPE[0]} x {SHAPE[1]} pixels with photographs"
        raise arguments.wrong(ValueError, "shape", shape, allowed)
    # a square of few pixels of a large photograph is nearly one colour: small images show about as much as 28 x 28
    factor = max(1, SIZE // max(height, width))
    positions = 2 * (SHAPE[0] - factor * height + 1) * (SHAPE[1] - factor * width + 1)
    arguments.integer("count", count, 2, positions)
    x = photograph_patches(count, seed, factor * height, factor * width).x.float()
    if channels == 1:  # whole numbers below 2^24, so exact: white stays white
        x = torch.einsum("nchw,c->nhw", x, torch.tensor(LUMA))[:, None] / sum(LUMA)
    return (x / 255).view(count, channels, height, factor, width, factor).mean((3, 5))

"""A hundred classes of ImageNet (ILSVRC 2012), from folders as everybody has them.

Source: O. Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge (2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from fedbook import arguments
from fedbook.data import sources
from fedbook.data.errors import BrokenFile
from fedbook.data.images import Images, Root, as_images, check_dtype
from fedbook.data.pictures import read_pictures
from fedbook.data.root import find


def imagenet_folder(
    root: Root = None, dtype: torch.dtype = torch.float32, side: int = 64, classes: int | Sequence[str] = 100
) -> Images:
    """Classes of ImageNet, x ``[N, 3, side, side]``, in colour. Does not ship.

    Read from ``imagenet/train/CLASS/*.JPEG``, the training part, and ``imagenet/val/CLASS/*.JPEG``, the test part.
    ``classes``: that many, the first folders of ``train`` by name, or a list of folders' names. An image is cut to its
    middle square, as wide as its shorter side, and made smaller by means of pixels.
    Memory: an image has ``3 side^2`` bytes as uint8 and four times as many as float32; 126,000 training images of a
    hundred classes with side 64 are 1.5 GB as uint8, and 6.2 GB more as float32.
    Raises: DataNotFound, BrokenFile (an image, a folder without any), TypeError, ValueError (also a class that is not
    there).
    """
    check_dtype(dtype)
    side = arguments.integer("side", side, 1, 1_024)
    _check_classes(classes)
    folder = find("imagenet100", sources.IMAGENET100.paths, sources.IMAGENET100.remedy, root) / "imagenet"
    there = sorted(path.name for path in (folder / "train").iterdir() if path.is_dir())
    chosen = _chosen(classes, there)
    arrays = []
    for part in ("train", "val"):
        found = [images_of(folder / part / name) for name in chosen]
        arrays.append(read_pictures([path for of_class in found for path in of_class], side, colour=True))
        arrays.append(np.repeat(np.arange(len(chosen)), [len(of_class) for of_class in found]))
    return as_images("imagenet100", *arrays, tuple(chosen), dtype)


def images_of(folder: Path) -> list[Path]:
    """The .JPEG files of a folder, by name. Raises: BrokenFile (none)."""
    found = sorted(path for path in folder.glob("*.JPEG") if path.is_file())
    if not found:
        raise BrokenFile(folder, "holds no .JPEG file")
    return found


def _check_classes(classes: int | Sequence[str]) -> None:
    if isinstance(classes, list | tuple):
        if not classes or any(not isinstance(name, str) for name in classes) or len(set(classes)) < len(classes):
            raise arguments.wrong(ValueError, "classes", classes, "names of folders, each once")
    elif isinstance(classes, str) or not isinstance(classes, int):
        raise arguments.wrong(TypeError, "classes", classes, "a whole number or a list of folders' names")
    else:
        arguments.integer("classes", classes, 1)


def _chosen(classes: int | Sequence[str], there: list[str]) -> list[str]:
    if not isinstance(classes, list | tuple):
        if classes > len(there):
            raise arguments.wrong(ValueError, "classes", classes, f"at most {len(there)}: as many folders are there")
        return there[:classes]
    unknown = [name for name in classes if name not in there]
    if unknown:
        raise arguments.wrong(ValueError, "classes", unknown[0], f"one of the {len(there)} folders of imagenet/train")
    return list(classes)

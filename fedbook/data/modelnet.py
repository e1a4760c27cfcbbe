"""ModelNet10: ten kinds of furniture as CAD objects, of which each was rendered from twelve sides.

Source: Z. Wu et al., 3D ShapeNets (2015), the objects; H. Su, S. Maji, E. Kalogerakis and E. Learned-Miller, Multi-view
Convolutional Neural Networks for 3D Shape Recognition (2015), the views.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import torch

from fedbook import arguments
from fedbook.data import sources
from fedbook.data.errors import BrokenFile
from fedbook.data.images import Images, Root, as_images, check_dtype
from fedbook.data.pictures import read_picture
from fedbook.data.root import find

FURNITURE = ("bathtub", "bed", "chair", "desk", "dresser", "monitor", "night_stand", "sofa", "table", "toilet")
VIEWS = 12
NAME = re.compile(r"(.*?)(\d{1,9})\.png")  # the view is the last number of the name


def modelnet10(root: Root = None, dtype: torch.dtype = torch.float32, side: int = 32) -> Images:
    """ModelNet10 in twelve views, 30 degrees apart, x ``[N, 12, 1, side, side]``, grey. Does not ship.

    Read from ``modelnet10/CLASS/train/*.png`` and ``modelnet10/CLASS/test/*.png``; in a name as
    ``bathtub_0001_001.png`` or ``bathtub_0001.obj.shaded_v001.png`` the last number is the view and what is before it
    the object. Objects are in the order of their names, views in that of their numbers, whose first is 0 or 1. Other
    classes, as of ModelNet40, are left alone. A view is cut to its middle square and made smaller by means of pixels.
    Bytes an object: ``12 side^2`` as uint8.
    Raises: DataNotFound, BrokenFile (a picture, an object that lacks a view or has one twice), TypeError, ValueError.
    """
    check_dtype(dtype)
    side = arguments.integer("side", side, 1, 1_024)
    folder = find("modelnet10", sources.MODELNET10.paths, sources.MODELNET10.remedy, root) / "modelnet10"
    arrays = []
    for part in ("train", "test"):
        found = [objects(folder / name / part) for name in FURNITURE]
        paths = [views for of_class in found for views in of_class]
        x = np.empty((len(paths), VIEWS, 1, side, side), np.uint8)
        for i, views in enumerate(paths):
            for v, path in enumerate(views):
                x[i, v] = read_picture(path, side, colour=False)
        arrays += [x, np.repeat(np.arange(len(FURNITURE)), [len(of_class) for of_class in found])]
    return as_images("modelnet10", *arrays, FURNITURE, dtype)


def objects(folder: Path) -> list[list[Path]]:
    """The objects of a folder by name, of each its twelve pictures in the order of their numbers.

    Raises: BrokenFile.
    """
    by_object: dict[str, dict[int, Path]] = {}
    for path in sorted(path for path in folder.glob("*.png") if path.is_file()):
        match = NAME.fullmatch(path.name)
        if match is None:
            raise BrokenFile(path, "has no number of a view before .png, as bathtub_0001_001.png has")
        views = by_object.setdefault(match[1], {})
        view = int(match[2])
        if view in views:
            raise BrokenFile(path, f"is view {view} of its object a second time; the first is {views[view].name}")
        views[view] = path
    if not by_object:
        raise BrokenFile(folder, "holds no .png file")
    return [_in_order(folder, name, views) for name, views in by_object.items()]


def _in_order(folder: Path, name: str, views: dict[int, Path]) -> list[Path]:
    first = 0 if 0 in views else 1
    wanted = range(first, first + VIEWS)
    missing = [str(view) for view in wanted if view not in views]
    if missing:
        raise BrokenFile(folder / f"{name}*.png", f"the object lacks view {', '.join(missing)} of {VIEWS}")
    more = sorted(set(views) - set(wanted))
    if more:
        raise BrokenFile(
            views[more[0]], f"is view {more[0]}; an object has {VIEWS}, from {first} to {first + VIEWS - 1}"
        )
    return [views[view] for view in wanted]

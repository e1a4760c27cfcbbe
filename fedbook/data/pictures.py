"""Datasets of picture files in folders: PNG and JPEG, cut to their middle square and made smaller by means of areas."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedbook import arguments
from fedbook.data.formats import read_lines, reading
from fedbook.data.images import Images, as_images, check_dtype
from fedbook.data.root import BrokenFile, Root, find
from fedbook.data.sources import SOURCES

MOST_BYTES = 2**25  # of a file
MOST_PIXELS = 2**26  # 200 MB in colour
MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK")  # eight bits a channel or fewer

SIDE = 64  # of Tiny-ImageNet's files
COUNTS = {"train": 500, "val": 50}  # images of a class of Tiny-ImageNet
CLASS = re.compile(r"n\d{8}")  # a WordNet id; also what keeps a name from leading out of the folder
WORDS = re.compile(rf"({CLASS.pattern})\t([ -~]+)")
ANNOTATION = re.compile(rf"(val_\d{{1,6}}\.JPEG)\t({CLASS.pattern})((?:\t\d{{1,3}}){{4}})")  # the box is not used

FURNITURE = ("bathtub", "bed", "chair", "desk", "dresser", "monitor", "night_stand", "sofa", "table", "toilet")
VIEWS = 12
VIEW = re.compile(r"(.*?)(\d{1,9})\.png")  # the view is the last number of the name


def tiny_imagenet(
    root: Root = None, dtype: torch.dtype = torch.float32, side: int = SIDE, classes: int = 200
) -> Images:
    """Tiny-ImageNet: x ``[N, 3, side, side]``, 500 training and 50 test images a class. Does not ship.

    The test part is the publisher's ``val``: the images of its ``test`` have no labels and are not used. ``classes``:
    that many, the first by WordNet id; their names are the first words of ``words.txt``. Both parts are sorted by
    class, so fewer classes are the beginning of more. ``side`` below 64: by means of pixels. Grey files become colour.
    Memory: the 110,000 images of 64x64 are 1.4 GB as uint8, and 5.4 GB more as float32; of 32x32, a quarter.
    Raises: DataNotFound, BrokenFile (a list, an image, a class with another number of images), TypeError, ValueError.
    Source: Y. Le and X. Yang, Tiny ImageNet Visual Recognition Challenge (2015).
    """
    check_dtype(dtype)
    side = arguments.integer("side", side, 1, SIDE)
    classes = arguments.integer("classes", classes, 1)
    folder = find(SOURCES["tiny_imagenet"], root) / "tiny-imagenet-200"
    there = sorted(match[0] for _, match in _matched(folder / "wnids.txt", CLASS))
    if len(set(there)) < len(there):
        raise BrokenFile(folder / "wnids.txt", f"names {max(there, key=there.count)} more than once")
    if classes > len(there):
        raise arguments.wrong(ValueError, "classes", classes, f"at most {len(there)}: wnids.txt names as many")
    chosen = there[:classes]
    class_names = {match[1]: match[2].partition(",")[0] for _, match in _matched(folder / "words.txt", WORDS)}
    for name in chosen:
        if name not in class_names:
            raise BrokenFile(folder / "words.txt", f"has no words for {name}")
    arrays = []
    paths = {"train": {name: _jpegs(folder / "train" / name / "images") for name in chosen}}
    paths["val"] = _validation(folder / "val", there)
    for part, count in COUNTS.items():
        for name in chosen:
            if len(paths[part][name]) != count:
                why = f"{name} has {len(paths[part][name])} images; expected are {count}"
                raise BrokenFile(folder / part, why)
        arrays += _read_classes([paths[part][name] for name in chosen], side)
    return as_images("tiny_imagenet", *arrays, tuple(class_names[name] for name in chosen), dtype)


def imagenet_folder(
    root: Root = None, dtype: torch.dtype = torch.float32, side: int = 64, classes: int | Sequence[str] = 100
) -> Images:
    """Classes of ImageNet (ILSVRC 2012), x ``[N, 3, side, side]``, in colour. Does not ship.

    Read from ``imagenet/train/CLASS/*.JPEG``, the training part, and ``imagenet/val/CLASS/*.JPEG``, the test part.
    ``classes``: that many, the first folders of ``train`` by name, or a list of folders' names. An image is cut to its
    middle square, as wide as its shorter side, and made smaller by means of pixels.
    Memory: an image has ``3 side^2`` bytes as uint8 and four times as many as float32; 126,000 training images of a
    hundred classes with side 64 are 1.5 GB as uint8, and 6.2 GB more as float32.
    Raises: DataNotFound, BrokenFile (an image, a folder without any), TypeError, ValueError (also a class that is not
    there).
    Source: O. Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge (2015).
    """
    check_dtype(dtype)
    side = arguments.integer("side", side, 1, 1_024)
    named = isinstance(classes, list | tuple)
    if named and (not classes or not all(isinstance(c, str) for c in classes) or len(set(classes)) < len(classes)):
        raise arguments.wrong(ValueError, "classes", classes, "names of folders, each once")
    if not named:
        arguments.integer("classes", classes, 1)
    folder = find(SOURCES["imagenet100"], root) / "imagenet"
    there = sorted(path.name for path in (folder / "train").iterdir() if path.is_dir())
    if not named and classes > len(there):
        raise arguments.wrong(ValueError, "classes", classes, f"at most {len(there)}: as many folders are there")
    chosen = list(classes) if named else there[:classes]
    unknown = [name for name in chosen if name not in there]
    if unknown:
        raise arguments.wrong(ValueError, "classes", unknown[0], f"one of the {len(there)} folders of imagenet/train")
    arrays = []
    for part in ("train", "val"):
        arrays += _read_classes([_jpegs(folder / part / name) for name in chosen], side)
    return as_images("imagenet100", *arrays, tuple(chosen), dtype)


def modelnet10(root: Root = None, dtype: torch.dtype = torch.float32, side: int = 32) -> Images:
    """ModelNet10 in twelve views, 30 degrees apart, x ``[N, 12, 1, side, side]``, grey. Does not ship.

    Read from ``modelnet10/CLASS/train/*.png`` and ``modelnet10/CLASS/test/*.png``; in a name as
    ``bathtub_0001_001.png`` or ``bathtub_0001.obj.shaded_v001.png`` the last number is the view and what is before it
    the object. Objects are in the order of their names, views in that of their numbers, whose first is 0 or 1. Other
    classes, as of ModelNet40, are left alone. A view is cut to its middle square and made smaller by means of pixels.
    Bytes an object: ``12 side^2`` as uint8.
    Raises: DataNotFound, BrokenFile (a picture, an object that lacks a view or has one twice), TypeError, ValueError.
    Source: Z. Wu et al., 3D ShapeNets (2015), the objects; H. Su, S. Maji, E. Kalogerakis and E. Learned-Miller,
    Multi-view Convolutional Neural Networks for 3D Shape Recognition (2015), the views.
    """
    check_dtype(dtype)
    side = arguments.integer("side", side, 1, 1_024)
    folder = find(SOURCES["modelnet10"], root) / "modelnet10"
    arrays = []
    for part in ("train", "test"):
        objects = [_objects(folder / name / part) for name in FURNITURE]
        paths = [path for of_class in objects for views in of_class for path in views]
        arrays.append(read_pictures(paths, side, colour=False).reshape(-1, VIEWS, 1, side, side))
        arrays.append(np.repeat(np.arange(len(FURNITURE)), [len(of_class) for of_class in objects]))
    return as_images("modelnet10", *arrays, FURNITURE, dtype)


def read_pictures(paths: Sequence[Path], side: int, colour: bool) -> np.ndarray:
    """Each of them by ``read_picture``, one after another. Shapes: uint8 [N, C, side, side]. Raises: as that."""
    x = np.empty((len(paths), 3 if colour else 1, side, side), np.uint8)
    for i, path in enumerate(paths):
        x[i] = read_picture(path, side, colour)
    return x


def read_picture(path: Path, side: int, colour: bool) -> np.ndarray:
    """The middle square of a picture, made ``side`` pixels wide: each pixel the mean of those it covers.

    Transparent parts are laid on white. Shapes: uint8 [C, side, side], C 3 with ``colour``, else 1.
    Raises: BrokenFile, FileNotFoundError.
    """
    from PIL import Image

    size = path.stat().st_size
    if size > MOST_BYTES:
        raise BrokenFile(path, f"refused: has {size:,} bytes; at most {MOST_BYTES:,} are read")
    with reading(path), warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        warnings.filterwarnings("ignore", category=UserWarning)  # odd metadata are none of our business
        with Image.open(path, formats=("PNG", "JPEG")) as picture:
            return _square(path, picture, side, "RGB" if colour else "L")


def _square(path: Path, picture: Any, side: int, mode: str) -> np.ndarray:
    from PIL import Image

    width, height = picture.size
    if width * height > MOST_PIXELS:
        raise BrokenFile(path, f"refused: promises {width:,} x {height:,} pixels; at most {MOST_PIXELS:,} are read")
    if picture.mode not in MODES:
        raise BrokenFile(path, f"has pixels of mode {picture.mode!r}; allowed are {', '.join(MODES)}")
    # a JPEG can be unpacked at a half, a quarter or an eighth of its size, which saves most of the time
    picture.draft(mode, (2 * side, 2 * side))
    if picture.mode in ("LA", "PA", "RGBA") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    picture = picture.convert(mode)
    factor = round(width / picture.width)  # 1, 2, 4 or 8; the last column and row may cover less
    edge = min(width, height)
    left, top = (width - edge) / 2, (height - edge) / 2
    square = [place / factor for place in (left, top, left + edge, top + edge)]
    picture = picture.resize((side, side), Image.Resampling.BOX, square)
    pixels = np.asarray(picture)
    return pixels[None] if mode == "L" else pixels.transpose(2, 0, 1)


def _read_classes(paths: Sequence[Sequence[Path]], side: int) -> tuple[np.ndarray, np.ndarray]:
    """The pictures of each class, one class after another, and their labels."""
    x = read_pictures([path for of_class in paths for path in of_class], side, colour=True)
    return x, np.repeat(np.arange(len(paths)), [len(of_class) for of_class in paths])


def _jpegs(folder: Path) -> list[Path]:
    paths = sorted(path for path in folder.glob("*.JPEG") if path.is_file())
    if not paths:
        raise BrokenFile(folder, "holds no .JPEG file")
    return paths


def _validation(folder: Path, there: list[str]) -> dict[str, list[Path]]:
    """The images of each class of Tiny-ImageNet in the order of ``val_annotations.txt``."""
    path, paths, seen = folder / "val_annotations.txt", {name: [] for name in there}, set()
    for number, match in _matched(path, ANNOTATION):
        image, name = match[1], match[2]
        if image in seen:
            raise BrokenFile(path, f"line {number}: {image} a second time")
        if name not in paths:
            raise BrokenFile(path, f"line {number}: {name} is no class of wnids.txt")
        if not (folder / "images" / image).is_file():
            raise BrokenFile(path, f"line {number}: there is no images/{image}")
        seen.add(image)
        paths[name].append(folder / "images" / image)
    return paths


def _matched(path: Path, form: re.Pattern[str]) -> Iterator[tuple[int, re.Match[str]]]:
    """Number and match of each line; each has the ``form``."""
    for number, line in read_lines(path):
        match = form.fullmatch(line)
        if match is None:
            raise BrokenFile(path, f"line {number}: {arguments.shown(line)} is not of the form {form.pattern}")
        yield number, match


def _objects(folder: Path) -> list[list[Path]]:
    """The objects of a folder by name, of each its twelve pictures in the order of their numbers."""
    objects: dict[str, dict[int, Path]] = {}
    for path in sorted(path for path in folder.glob("*.png") if path.is_file()):
        match = VIEW.fullmatch(path.name)
        if match is None:
            raise BrokenFile(path, "has no number of a view before .png, as bathtub_0001_001.png has")
        views = objects.setdefault(match[1], {})
        if int(match[2]) in views:
            first = views[int(match[2])].name
            raise BrokenFile(path, f"is view {int(match[2])} of its object a second time; the first is {first}")
        views[int(match[2])] = path
    if not objects:
        raise BrokenFile(folder, "holds no .png file")
    for name, views in objects.items():
        first = 0 if 0 in views else 1
        wanted = range(first, first + VIEWS)
        if wrong := sorted(set(wanted) ^ set(views)):
            word = "lacks" if wrong[0] in wanted else "has a"
            why = f"the object {word} view {wrong[0]}; it needs {first} to {first + VIEWS - 1}"
            raise BrokenFile(folder / f"{name}*.png", why)
    return [[views[view] for view in sorted(views)] for views in objects.values()]

"""Tiny-ImageNet: 200 classes of ImageNet at 64x64, from the folder as Stanford's course CS231n hands it out.

Source: Y. Le and X. Yang, Tiny ImageNet Visual Recognition Challenge (2015).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from fedbook import arguments
from fedbook.data import sources
from fedbook.data.errors import BrokenFile
from fedbook.data.imagenet import images_of
from fedbook.data.images import Images, Root, as_images, check_dtype
from fedbook.data.lines import read_lines
from fedbook.data.pictures import read_pictures
from fedbook.data.root import find

SIDE = 64  # of the files' images
COUNTS = {"train": 500, "val": 50}  # images of a class
CLASS = re.compile(r"n\d{8}")  # a WordNet id; also what keeps a name from leading out of the folder
WORDS = re.compile(rf"({CLASS.pattern})\t([ -~]+)")
ANNOTATION = re.compile(rf"(val_\d{{1,6}}\.JPEG)\t({CLASS.pattern})((?:\t\d{{1,3}}){{4}})")  # the box is not used


def tiny_imagenet(
    root: Root = None, dtype: torch.dtype = torch.float32, side: int = SIDE, classes: int = 200
) -> Images:
    """Tiny-ImageNet: x ``[N, 3, side, side]``, 500 training and 50 test images a class. Does not ship.

    The test part is the publisher's ``val``: the images of its ``test`` have no labels and are not used. ``classes``:
    that many, the first by WordNet id; their names are the first words of ``words.txt``. Both parts are sorted by
    class, so fewer classes are the beginning of more. ``side`` below 64: by means of pixels. Grey files become colour.
    Memory: the 110,000 images of 64x64 are 1.4 GB as uint8, and 5.4 GB more as float32; of 32x32, a quarter.
    Raises: DataNotFound, BrokenFile (a list, an image, a class with another number of images), TypeError, ValueError.
    """
    check_dtype(dtype)
    side = arguments.integer("side", side, 1, SIDE)
    classes = arguments.integer("classes", classes, 1)
    source = sources.TINY_IMAGENET
    folder = find(source.name, source.paths, source.remedy, root) / "tiny-imagenet-200"
    there = _classes(folder / "wnids.txt")
    if classes > len(there):
        raise arguments.wrong(ValueError, "classes", classes, f"at most {len(there)}: wnids.txt names as many")
    chosen = there[:classes]
    names = _names(folder / "words.txt", chosen)
    val = _validation(folder / "val", there)
    train = {name: images_of(folder / "train" / name / "images") for name in chosen}
    arrays = []
    for part, found in (("train", train), ("val", val)):
        for name in chosen:
            if len(found[name]) != COUNTS[part]:
                why = f"{name} has {len(found[name])} images; expected are {COUNTS[part]}"
                raise BrokenFile(folder / part, why)
        arrays.append(read_pictures([path for name in chosen for path in found[name]], side, colour=True))
        arrays.append(np.repeat(np.arange(classes), COUNTS[part]))
    return as_images(source.name, *arrays, names, dtype)


def _classes(path: Path) -> list[str]:
    """The WordNet ids of ``wnids.txt``, sorted."""
    found = [match[0] for _, match in _matched(path, CLASS)]
    if len(set(found)) < len(found):
        raise BrokenFile(path, f"names {max(found, key=found.count)} more than once")
    return sorted(found)


def _names(path: Path, chosen: list[str]) -> tuple[str, ...]:
    """The first word for each class; the file has tens of thousands of others."""
    words = {match[1]: match[2].partition(",")[0] for _, match in _matched(path, WORDS)}
    for name in chosen:
        if name not in words:
            raise BrokenFile(path, f"has no words for {name}")
    return tuple(words[name] for name in chosen)


def _validation(folder: Path, there: list[str]) -> dict[str, list[Path]]:
    """The images of each class in the order of ``val_annotations.txt``."""
    path, found, seen = folder / "val_annotations.txt", {name: [] for name in there}, set()
    for number, match in _matched(path, ANNOTATION):
        image, name = match[1], match[2]
        if image in seen:
            raise BrokenFile(path, f"line {number}: {image} a second time")
        if name not in found:
            raise BrokenFile(path, f"line {number}: {name} is no class of wnids.txt")
        if not (folder / "images" / image).is_file():
            raise BrokenFile(path, f"line {number}: there is no images/{image}")
        seen.add(image)
        found[name].append(folder / "images" / image)
    return found


def _matched(path: Path, form: re.Pattern[str]) -> Iterator[tuple[int, re.Match[str]]]:
    """Number and match of each line; each has the ``form``."""
    for number, _, line in read_lines(path, ended=False):
        match = form.fullmatch(line)
        if match is None:
            raise BrokenFile(path, f"line {number}: {arguments.shown(line)} is not of the form {form.pattern}")
        yield number, match

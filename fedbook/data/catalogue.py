"""The datasets by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fedbook import arguments
from fedbook.data.imagenet import imagenet_folder
from fedbook.data.images import (
    Images,
    cifar10,
    cifar100,
    digits,
    emnist,
    fashion_mnist,
    femnist,
    mnist,
    pathmnist,
    svhn,
)
from fedbook.data.mimic import mimic3
from fedbook.data.modelnet import modelnet10
from fedbook.data.patients import time_series
from fedbook.data.rendering import solids
from fedbook.data.tables import breast_cancer
from fedbook.data.tiny_imagenet import tiny_imagenet

LOADERS: dict[str, Callable[..., Images]] = {
    "digits": digits,
    "mnist": mnist,
    "fashion_mnist": fashion_mnist,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "svhn": svhn,
    "emnist": emnist,
    "femnist": femnist,
    "pathmnist": pathmnist,
    "tiny_imagenet": tiny_imagenet,
    "breast_cancer": breast_cancer,
    "solids": solids,
    "time_series": time_series,
    "modelnet10": modelnet10,
    "mimic3": mimic3,
    "imagenet100": imagenet_folder,
}


def names() -> tuple[str, ...]:
    """The names that ``load`` knows."""
    return tuple(LOADERS)


def load(name: str, **options: Any) -> Images:
    """The dataset of that name; ``options`` are its loader's (``root``, ``dtype``, ``size`` ...).

    Raises: TypeError, ValueError (name, options: with what is allowed); DataNotFound, BrokenFile.
    """
    loader = LOADERS[arguments.one_of("name", name, LOADERS)]
    allowed = list(inspect.signature(loader).parameters)
    for option in options:
        if option not in allowed:
            raise TypeError(f"options: got {option!r} for dataset {name!r}; allowed is one of {', '.join(allowed)}")
    return loader(**options)

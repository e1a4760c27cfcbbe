"""Datasets: one function a name, returning ``Images`` or a ``Taxonomy``; where they lie, how they are fetched."""

import inspect
from collections.abc import Callable
from typing import Any

from fedbook import arguments
from fedbook.data.cifar import cifar10, cifar100
from fedbook.data.images import Images, digits, emnist, fashion_mnist, mnist, pathmnist, svhn
from fedbook.data.leaf import femnist
from fedbook.data.mimic import mimic3, mimic3_from_benchmark
from fedbook.data.patients import breast_cancer, time_series
from fedbook.data.pictures import imagenet_folder, modelnet10, tiny_imagenet
from fedbook.data.rendering import solids
from fedbook.data.root import BrokenFile, DataNotFound, FetchFailed
from fedbook.data.wordnet import Taxonomy, wordnet_embedding, wordnet_mammals

__all__ = ["BrokenFile", "DataNotFound", "FetchFailed", "Images", "LOADERS", "Taxonomy", "load", "names"]
__all__ += ["breast_cancer", "cifar10", "cifar100", "digits", "emnist", "fashion_mnist", "femnist", "imagenet_folder"]
__all__ += ["mimic3", "mimic3_from_benchmark", "mnist", "modelnet10", "pathmnist", "solids", "svhn", "time_series"]
__all__ += ["tiny_imagenet", "wordnet_embedding", "wordnet_mammals"]

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

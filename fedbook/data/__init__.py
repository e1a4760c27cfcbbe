"""Datasets: one function a name, all returning ``Images``; where they lie, how they are fetched and verified."""

from fedbook.data.errors import BrokenFile, DataNotFound, FetchFailed
from fedbook.data.images import Images, cifar10, digits, emnist, fashion_mnist, femnist, load, mnist, names

__all__ = [
    "BrokenFile",
    "DataNotFound",
    "FetchFailed",
    "Images",
    "cifar10",
    "digits",
    "emnist",
    "fashion_mnist",
    "femnist",
    "load",
    "mnist",
    "names",
]

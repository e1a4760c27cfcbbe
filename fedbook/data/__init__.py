"""Datasets: one function a name, returning ``Images`` or a ``Taxonomy``; where they lie, how they are fetched."""

from fedbook.data.errors import BrokenFile, DataNotFound, FetchFailed
from fedbook.data.images import Images, cifar10, digits, emnist, fashion_mnist, femnist, load, mnist, names
from fedbook.data.taxonomy import Taxonomy
from fedbook.data.wordnet import wordnet_embedding, wordnet_mammals

__all__ = [
    "BrokenFile",
    "DataNotFound",
    "FetchFailed",
    "Images",
    "Taxonomy",
    "cifar10",
    "digits",
    "emnist",
    "fashion_mnist",
    "femnist",
    "load",
    "mnist",
    "names",
    "wordnet_embedding",
    "wordnet_mammals",
]

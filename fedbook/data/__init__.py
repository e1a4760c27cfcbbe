"""Datasets: one function a name, returning ``Images`` or a ``Taxonomy``; where they lie, how they are fetched."""

from fedbook.data.catalogue import load, names
from fedbook.data.errors import BrokenFile, DataNotFound, FetchFailed
from fedbook.data.imagenet import imagenet_folder
from fedbook.data.images import Images, cifar10, cifar100, digits, emnist, fashion_mnist, femnist, mnist, svhn
from fedbook.data.mimic import mimic3
from fedbook.data.mimic_benchmark import mimic3_from_benchmark
from fedbook.data.modelnet import modelnet10
from fedbook.data.patients import time_series
from fedbook.data.rendering import solids
from fedbook.data.tables import breast_cancer
from fedbook.data.taxonomy import Taxonomy
from fedbook.data.wordnet import wordnet_embedding, wordnet_mammals

__all__ = [
    "BrokenFile",
    "DataNotFound",
    "FetchFailed",
    "Images",
    "Taxonomy",
    "breast_cancer",
    "cifar10",
    "cifar100",
    "digits",
    "emnist",
    "fashion_mnist",
    "femnist",
    "imagenet_folder",
    "load",
    "mimic3",
    "mimic3_from_benchmark",
    "mnist",
    "modelnet10",
    "names",
    "solids",
    "svhn",
    "time_series",
    "wordnet_embedding",
    "wordnet_mammals",
]

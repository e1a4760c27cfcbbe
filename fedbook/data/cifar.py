"""CIFAR-100: a hundred kinds of things in twenty superclasses of five, 32x32 pixels, in colour.

Source: A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images (2009); names as in the publisher's files.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedbook.data.errors import BrokenFile
from fedbook.data.python_batches import read_plain_pickle, read_python_batch

COUNTS = {"train": 50_000, "test": 10_000}
SUPERCLASSES = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}
# By labels: names in the order of the numbers that stand for them (both lists are alphabetical).
NAMES = {"fine": tuple(sorted(" ".join(SUPERCLASSES.values()).split())), "coarse": tuple(SUPERCLASSES)}
PARENTS = np.array(
    [next(i for i, kinds in enumerate(SUPERCLASSES.values()) if name in kinds.split()) for name in NAMES["fine"]]
)  # of each of the hundred classes the number of its superclass


def read_cifar100(folder: str | Path, labels: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images, their labels ("fine" or "coarse"), test images, their labels, from the publisher's folder.

    Shapes: images uint8 [50000, 3, 32, 32] and [10000, 3, 32, 32], labels int64 in 0..99 or 0..19. Memory: 184 MB, and
    up to 500 MB more while the training file is read.
    Raises: BrokenFile (a ``ValueError``; names the file and what is wrong), FileNotFoundError.
    """
    folder = Path(folder)
    meta = read_plain_pickle(folder / "meta", max_bytes=4_096, max_steps=1_000)
    for kind, names in NAMES.items():
        if meta.get(f"{kind}_label_names") not in ([name.encode() for name in names], list(names)):
            raise BrokenFile(folder / "meta", f"{kind}_label_names is not the list {names[0]}, ... {names[-1]}")
    parts = []
    for part, count in COUNTS.items():
        batch = read_python_batch(folder / part, rows=count, labels={"fine_labels": 100, "coarse_labels": 20})
        strangers = np.flatnonzero(PARENTS[batch["fine_labels"]] != batch["coarse_labels"])
        if len(strangers):
            fine, coarse = (batch[f"{kind}_labels"][strangers[0]] for kind in NAMES)
            what = f"image {strangers[0]} is called {NAMES['fine'][fine]} and put among {NAMES['coarse'][coarse]}"
            raise BrokenFile(folder / part, f"coarse_labels and fine_labels disagree: {what}")
        # a copy, because the file's bytes are read-only
        parts += [batch["data"].reshape(-1, 3, 32, 32).copy(), batch[f"{labels}_labels"]]
    return tuple(parts)

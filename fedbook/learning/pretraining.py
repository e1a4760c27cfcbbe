"""What the problems of chapters 1 and 2 have in common: images without labels, split among clients, and an encoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedbook import arguments
from fedbook.learning.augmentation import AUGMENTATIONS
from fedbook.learning.encoders import ENCODERS, PROJECTORS
from fedbook.learning.problems import ImageSettings


@dataclass(frozen=True)
class PretrainingSettings(ImageSettings):
    """As :class:`ImageSettings`, with an encoder in place of a classifier.

    ``model``: a word of fedbook.learning.encoders. ``width`` (H): of the representation. ``projector``: "mlp",
    "batch_norm" (the same with batch normalisation), "linear" or "none" between the backbone's features and the
    representation; ``projector_hidden``: units of its hidden layer (0: twice the width). ``views``: a recipe of
    fedbook.learning.augmentation. ``bank`` (K): views a sample, made once, that training draws from (0: fresh views
    each time). ``neighbours``: k of the nearest-neighbour vote. ``judged_samples``: training images that the vote and
    the probe learn from and the objective is computed on (0: all). ``evaluate_every`` 0: five evaluations a run.
    """

    models: ClassVar[tuple[str, ...]] = tuple(ENCODERS)

    clients: int = 10
    classes_per_client: int = 1
    model: str = "mlp"
    width: int = 16
    projector: str = "mlp"
    projector_hidden: int = 0
    views: str = "digits"
    bank: int = 16
    neighbours: int = 20
    judged_samples: int = 0

    def __post_init__(self):
        super().__post_init__()
        arguments.integer("width", self.width, 1)
        arguments.one_of("projector", self.projector, PROJECTORS)
        arguments.integer("projector_hidden", self.projector_hidden, 0)
        arguments.one_of("views", self.views, AUGMENTATIONS)
        arguments.integer("bank", self.bank, 0)
        arguments.integer("neighbours", self.neighbours, 1)
        arguments.integer("judged_samples", self.judged_samples, 0)

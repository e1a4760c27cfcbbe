"""What the problems of chapters 1 and 2 have in common: images without labels, split among clients, and an encoder."""

from __future__ import annotations

from fedbook.learning.augmentation import AUGMENTATIONS
from fedbook.learning.encoders import ENCODERS, PROJECTORS
from fedbook.learning.problems import ImageSettings, evaluations
from fedbook.settings import setting


class PretrainingSettings(ImageSettings):
    """How images are split, which encoder learns them from which views, and how it is judged."""

    clients: int = 10
    classes_per_client: int = 1
    model: str = setting("mlp", None, "the encoder: see fedbook.learning.encoders", choices=ENCODERS)
    width: int = setting(16, "H", "components of the representation", minimum=1)
    projector: str = setting("mlp", None, "between features and representation; batch_norm: mlp with normalisation",
                             choices=PROJECTORS)  # fmt: skip
    projector_hidden: int = setting(0, None, "units of its hidden layer", "0: twice the width", minimum=0)
    views: str = setting("digits", None, "how samples are varied: see fedbook.learning.augmentation",
                         choices=AUGMENTATIONS)  # fmt: skip
    bank: int = setting(16, "K", "views of a sample, made once, that training draws from", "0: fresh ones each time",
                        minimum=0)  # fmt: skip
    neighbours: int = setting(20, "k", "nearest neighbours that vote", minimum=1)
    judged_samples: int = setting(0, None, "training images of which vote, probe and objective are made", "0: all",
                                  minimum=0)  # fmt: skip
    evaluate_every: int = evaluations(5)

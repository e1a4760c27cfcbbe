"""Images of a data set, to train on and to judge on, split among clients: what most problems of the book begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedbook import arguments, data
from fedbook.learning.augmentation import AUGMENTATIONS
from fedbook.learning.encoders import ENCODERS, PROJECTORS
from fedbook.learning.models import MODELS
from fedbook.partition import Partition, by_name
from fedbook.randomness import stream
from fedbook.settings import Settings, setting

IMAGES = {
    "digits": "handwritten digits, 8x8, 1,797 (scikit-learn)",
    "mnist": "handwritten digits, 28x28, 70,000",
    "fashion_mnist": "clothes, 28x28, 25,000 (balanced subset)",
    "cifar10": "colour photographs, 32x32, 60,000 (does not ship: fedbook data cifar10)",
    "cifar100": "colour photographs of 100 things, 32x32, 60,000 (does not ship: fedbook data cifar100)",
    "svhn": "house numbers, 32x32, 99,289 (does not ship: fedbook data svhn)",
    "femnist": "handwritten letters and digits by writer, 28x28 (does not ship: fedbook data femnist)",
    "tiny_imagenet": "colour photographs of 200 things, 64x64, 110,000 (does not ship: fedbook data tiny_imagenet)",
}
OPTIONS = {
    "iid": (),
    "shards": ("shards_per_client",),
    "classes": ("classes_per_client",),
    "dirichlet": ("alpha",),
    "quantity": ("alpha",),
}


def described(*names: str) -> dict[str, str]:
    """Data of the catalogue as a paper lists its problems. Raises: KeyError."""
    return {name: IMAGES[name] for name in names}


def evaluations(count: int) -> int:
    """The setting of how often models are judged, with ``count`` times a run as its default."""
    return setting(0, None, "rounds between evaluations", f"0: {count} evaluations a run", minimum=0)


class ImageSettings(Settings):
    """How images are split and which model learns them."""

    partition: str = setting("classes", None, "how clients differ (see fedbook.partition)", choices=OPTIONS)
    clients: int = setting(100, "K", "clients among whom the images are split", minimum=1, maximum=10**6)
    shards_per_client: int = setting(2, None, "of the partition shards", minimum=1, needs={"partition": ("shards",)})
    classes_per_client: int = setting(2, "S", "of the partition classes", minimum=1, needs={"partition": ("classes",)})
    alpha: float = setting(0.5, "alpha", "of the partitions dirichlet and quantity", "1e9: no skew",
                           maximum=1e9, above=0.0, needs={"partition": ("dirichlet", "quantity")})  # fmt: skip
    train_samples: int = setting(0, None, "training images used, drawn at random", "0: all", minimum=0)
    test_samples: int = setting(0, None, "test images used, drawn at random", "0: all", minimum=0)
    model: str = setting("mlp", None, "see fedbook.learning.models", choices=MODELS)
    judge: str = setting(
        "test", None, "on what models are judged; validation: a tenth of the training images, held out for choosing",
        choices=("test", "validation"),
    )  # fmt: skip
    evaluate_every: int = evaluations(25)


class PretrainingSettings(ImageSettings):
    """As :class:`ImageSettings` for images without labels: an encoder learns them from views, and is judged."""

    clients: int = 10
    classes_per_client: int = 1
    model: str = setting("mlp", None, "the encoder: see fedbook.learning.encoders", choices=ENCODERS)
    width: int = setting(16, "H", "components of the representation", minimum=1)
    projector: str = setting("mlp", None, "between features and representation; batch_norm: mlp with normalisation",
                             choices=PROJECTORS)  # fmt: skip
    projector_hidden: int = setting(0, None, "units of its hidden layer", "0: twice the width", minimum=0,
                                    needs={"projector": ("mlp", "batch_norm")})  # fmt: skip
    views: str = setting("digits", None, "how samples are varied: see fedbook.learning.augmentation",
                         choices=AUGMENTATIONS)  # fmt: skip
    bank: int = setting(16, "K", "views of a sample, made once, that training draws from", "0: fresh ones each time",
                        minimum=0)  # fmt: skip
    neighbours: int = setting(20, "k", "nearest neighbours that vote", minimum=1)
    judged_samples: int = setting(0, None, "training images of which vote, probe and objective are made", "0: all",
                                  minimum=0)  # fmt: skip
    evaluate_every: int = evaluations(5)


@dataclass(frozen=True)
class Images:
    """The images of a problem as they are stored, on the CPU: those to train on and those to judge on.

    Shapes: ``x`` [N, C, H, W] uint8, ``y`` [N]; ``test_x``, ``test_y`` [n]. ``top``: white.
    """

    settings: Any
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]
    top: int

    @property
    def shape(self) -> tuple[int, ...]:
        """(C, H, W)."""
        return tuple(self.x.shape[1:])

    def split(self, seeds: Sequence[int], **options: Any) -> tuple[Partition, ...]:
        """The training images among the clients as the settings say, anew for each seed."""
        partition = self.settings.partition
        options |= {key: getattr(self.settings, key) for key in OPTIONS.get(partition, ())}
        return tuple(by_name(partition, self.y, self.settings.clients, seed, **options) for seed in seeds)

    def standardised(self, device: torch.device | str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """x and test_x, shifted and scaled by the mean and deviation of all training pixels."""
        mean, deviation = pixel_moments(self.x)
        return tuple(((pixels.to(dtype) - mean) / deviation).to(device) for pixels in (self.x, self.test_x))

    def scaled(self, device: torch.device | str, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """x and test_x in [0, 1]."""
        return tuple(pixels.to(device=device, dtype=dtype) / self.top for pixels in (self.x, self.test_x))

    def moments(self) -> tuple[float, float]:
        """Mean and deviation of the training pixels in [0, 1]."""
        mean, deviation = pixel_moments(self.x)
        return mean / self.top, deviation / self.top


def load_images(name: str, settings: Any, root: str | None = None) -> Images:
    """The images called ``name``, as many as ``settings`` ask for. Raises: ValueError, fedbook.data.DataNotFound."""
    return judged(data.load(name, root=root, dtype=torch.uint8), settings, brightest(name))


def judged(samples: Any, settings: Any, top: int = 255) -> Images:
    """What is trained on and what is judged on: as many as ``settings`` ask for, the test samples or held-out ones.

    ``samples``: train_x, train_y, test_x, test_y, classes. ``settings``: train_samples, test_samples, judge.
    """
    train, test = (samples.train_x, samples.train_y), (samples.test_x, samples.test_y)
    train_samples, test_samples = settings.train_samples, settings.test_samples
    if settings.judge == "validation":
        order = torch.from_numpy(stream(0, "validation").permutation(len(train[1])))
        test_count = len(order) // 10
        test, train = tuple(v[order[:test_count]] for v in train), tuple(v[order[test_count:]] for v in train)
        test_samples = min(test_samples, test_count)  # it was said of the test samples; these are fewer
        train_samples = min(train_samples, len(train[1]))  # and of all training samples
    parts = *subset(*train, train_samples, "train"), *subset(*test, test_samples, "test")
    return Images(settings, *parts, tuple(samples.classes), top)


def brightest(name: str) -> int:
    """The stored value of a white pixel."""
    return 16 if name == "digits" else 255


def pixel_moments(pixels: Tensor) -> tuple[float, float]:
    """Mean and deviation of uint8 pixels from exact counts: the same bits with any number of threads."""
    counts = torch.stack([torch.bincount(part.flatten(), minlength=256) for part in pixels.split(4096)]).sum(0).double()
    value = torch.arange(256, dtype=torch.float64)
    mean = (counts * value).sum() / counts.sum()
    return float(mean), float(((counts * (value - mean) ** 2).sum() / (counts.sum() - 1)).sqrt())


def subset(x: Tensor, y: Tensor, count: int, part: str) -> tuple[Tensor, Tensor]:
    """``count`` of the images, drawn at random by a key of the part's name; 0 keeps all."""
    if not count:
        return x, y
    arguments.integer(f"{part}_samples", count, 1, len(y))
    # the same images for every seed: repetitions differ in split, start and order, not in the data set
    chosen = torch.from_numpy(stream(0, f"subset {part}").permutation(len(y))[:count])
    return x[chosen], y[chosen]

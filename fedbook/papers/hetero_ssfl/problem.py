"""Images without labels at clients of different architectures, an alignment set, and how such clients are judged.

The labels never reach a client's self-supervised training: they are used to split the images and to judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.federation.population import Federation
from fedbook.learning.augmentation import AUGMENTATIONS
from fedbook.learning.encoders import ENCODERS, Encoder, encoder
from fedbook.learning.evaluation import CHUNK, few_rows
from fedbook.learning.problems import PretrainingSettings, evaluations, load_images
from fedbook.learning.public_images import alignment_images
from fedbook.learning.views import Views
from fedbook.papers.hetero_ssfl.alignment_set import split_alignment
from fedbook.partition import Partition
from fedbook.randomness import stream
from fedbook.settings import other_than, setting

PERSONAL = ("hetero-ssfl", "local-ssl", "local-ssl-plus-rad", "alignment-pass-only", "random-encoder")  # methods
OWN_SOURCE = "holdout"
DATASETS = ("digits", "mnist", "fashion_mnist", "cifar10", "cifar100", "svhn", "emnist", "pathmnist", "tiny_imagenet")
SOURCES = (OWN_SOURCE, "noise", "photographs", *DATASETS)


class AlignedSettings(PretrainingSettings):
    """How images are split among clients of several architectures, and their alignment set."""

    projector: str = "batch_norm"
    clients: int = 5
    classes_per_client: int = 2
    bank: int = 0
    neighbours: int = 10
    model: str = setting("cnn_m", None, "the encoder of methods that average weights", choices=ENCODERS,
                         needs={"method": other_than(*PERSONAL)})  # fmt: skip
    width: int = 32
    architectures: str = setting(
        "cnn_s,cnn_m,mlp", None,
        "words of fedbook.learning.encoders, separated by commas, each perhaps with a width of its own (cnn_s:24,mlp)",
        needs={"method": PERSONAL},
    )  # fmt: skip
    assignment: str = setting("turn", None, "how clients get theirs; random: the same for every seed",
                              choices=("turn", "random"), needs={"method": PERSONAL})  # fmt: skip
    alignment_samples: int = setting(300, "L", "images of the alignment set", minimum=2)
    alignment_source: str = setting(
        OWN_SOURCE, None, "holdout: taken out of the training images before these are split", choices=SOURCES
    )
    probe: str = setting(
        "exact", None, "how the linear probe is fitted: to standardised features, or by Adam as the paper does it",
        choices=("exact", "paper"),
    )  # fmt: skip
    evaluate_every: int = evaluations(2)

    def cross_check(self) -> None:
        """Every architecture is known, and there once. Raises: ValueError."""
        self.words()

    def words(self) -> dict[str, tuple[str, int]]:
        """The architectures: word to (backbone, width of its representation). Raises: ValueError."""
        architectures: dict[str, tuple[str, int]] = {}
        for word in (word.strip() for word in self.architectures.split(",")):
            name, colon, width = word.partition(":")
            arguments.one_of("architectures", name, ENCODERS)
            if colon and not (width.isascii() and width.isdigit() and int(width)):
                raise arguments.wrong(ValueError, "architectures", word, "a word, or a word, a colon and a width")
            given = name, int(width or self.width)
            if given in architectures.values():  # clients take turns by word: twice would still be one turn
                raise arguments.wrong(ValueError, "architectures", self.architectures, "every architecture once")
            architectures[word] = given
        return architectures

    def assigned(self) -> list[str]:
        """Each client's architecture."""
        names = list(self.words())
        if self.assignment == "turn":
            return [names[k % len(names)] for k in range(self.clients)]
        return [names[i] for i in stream(0, "architectures").integers(0, len(names), self.clients).tolist()]


@dataclass(frozen=True)
class AlignedProblem:
    """Private images and one split a seed, an alignment set that everybody knows, and encoders by architecture.

    Shapes: ``x`` [N, C, H, W] in [0, 1], ``y`` [N], without the alignment images; ``test_x``, ``test_y`` [n];
    ``levels`` [L, C, H, W] uint8 the alignment images as they are sent, white is ``top``; ``alignment`` the same in
    [0, 1]; ``seen`` [M] the rows of x whose labels probes may use.
    """

    name: str
    settings: AlignedSettings
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    levels: Tensor
    top: int
    classes: tuple[str, ...]
    partitions: tuple[Partition, ...]
    assigned: tuple[str, ...]
    encoders: Mapping[str, Encoder]
    model: Encoder
    views: Views
    seen: Tensor

    @property
    def alignment(self) -> Tensor:
        """The alignment images [L, C, H, W] in [0, 1]."""
        return self.levels.to(self.x) / self.top

    def federation(self, personal: bool = True, pooled: bool = False, extended: bool = False) -> Federation:
        """The clients; ``personal``: by architecture, with the labels left out; else one group, with labels.

        ``pooled``: one client that holds everything. ``extended``: everybody also holds the alignment images.
        """
        splits, x = [p.pooled() if pooled else p for p in self.partitions], self.x
        if extended:
            splits, x = [_with_rows(p, len(x), len(self.alignment)) for p in splits], torch.cat([x, self.alignment])
        store = {"bank": self.views.make_bank(x, self.settings.bank)} if self.settings.bank else {"x": x}
        if personal:
            return Federation(store, splits, None if pooled else self.assigned)
        return Federation(store | {"y": self.y}, splits)

    def own_classes(self, slot: int, client: int) -> Tensor:
        """The classes that a client has in the split of seed number ``slot``."""
        split = self.partitions[slot]
        rows = split.table[client, : int(split.sizes[client])]
        return self.y[rows.to(self.y.device)].unique()

    @torch.no_grad()
    def features(self, net: Encoder, theta: Mapping[str, Tensor], x: Tensor, plain: bool = False) -> Tensor:
        """h [n, D] of images [n, C, H, W] in [0, 1], or ``plain`` as networks see them, some at a time."""
        return torch.cat([net.features(theta, batch if plain else self.views.plain(batch)) for batch in x.split(CHUNK)])


def aligned_problem(
    name: str,
    settings: AlignedSettings | None = None,
    seeds: Sequence[int] = (0,),
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    root: str | None = None,
) -> AlignedProblem:
    """The images called ``name``, split anew for each seed; the alignment set is the same for all seeds.

    Images of a source with other grey levels are rounded to those of ``name``: what is sent is what is used.
    Raises: TypeError, ValueError, fedbook.data.DataNotFound.
    """
    settings = arguments.instance("settings", settings or AlignedSettings(), AlignedSettings)
    if settings.alignment_source == name:
        allowed = f"{OWN_SOURCE} for images of the same data that no client holds"
        raise arguments.wrong(ValueError, "alignment_source", name, allowed)
    images, count = load_images(name, settings, root), settings.alignment_samples
    if settings.alignment_source == OWN_SOURCE:
        arguments.integer("alignment_samples", count, 2, len(images.y) - 1)
        alignment, x, y = split_alignment(images.x, images.y, count)
        images = replace(images, x=x, y=y)
    else:
        alignment = alignment_images(settings.alignment_source, count, images.shape, root=root)
        alignment = (alignment * images.top).round()
    x, test_x = images.scaled(device, dtype)
    assigned, head = settings.assigned(), (settings.projector, settings.projector_hidden)
    made = {word: encoder(kind, images.shape, width, *head) for word, (kind, width) in settings.words().items()}
    return AlignedProblem(
        name=name, settings=settings, x=x, y=images.y.to(device), test_x=test_x, test_y=images.test_y.to(device),
        levels=alignment.to(device=device, dtype=torch.uint8), top=images.top, classes=images.classes,
        partitions=images.split(seeds), assigned=tuple(assigned),
        encoders={word: made[word].to(device) for word in dict.fromkeys(assigned)},
        model=encoder(settings.model, images.shape, settings.width, *head).to(device),
        views=Views(AUGMENTATIONS[settings.views], *images.moments(), images.shape, settings.bank),
        seen=few_rows(images.y, settings.judged_samples).to(device),
    )  # fmt: skip


def _with_rows(split: Partition, first: int, count: int) -> Partition:
    """The split with the rows first, ..., first + count - 1 given to every client."""
    more = torch.arange(first, first + count)
    sizes = split.sizes.tolist()
    return Partition.from_lists([torch.cat([rows[:n], more]) for rows, n in zip(split.table, sizes, strict=True)])

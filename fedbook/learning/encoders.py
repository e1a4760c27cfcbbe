"""Encoders of self-supervised learning: a backbone makes features, a projector the representation the loss sees.

Backbones never mix the rows of a batch (no batch normalisation): features are a function of one sample. So are the
representations, unless the projector is "batch_norm" and in training. The identities of FedSC's correlation matrices
and the sensitivity of a client's matrix to one of its samples hold only without it; in our runs BYOL ends without it
where all representations are nearly one vector (chapter 2 measures it).

Source: Jing, Yu, Zhang and Zhang, FedSC (2024), section 3; widths and projector as in its authors' scripts.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedbook import arguments
from fedbook.learning.models import Network, image_size
from fedbook.learning.resnets import resnet18, resnet20, resnet34, resnet50

BACKBONE, PROJECTOR = "backbone.", "projector."  # what the names of their parameters start with
KEEP = 0.9  # PyTorch's momentum of 0.1
EPSILON = 1e-5
RUNNING = ("norm.running_mean", "norm.running_variance")


class BatchNorm(nn.Module):
    """scale * (x - mean) / sqrt(variance + epsilon) + shift, by column; running statistics start at 0 and 1.

    Running statistics are entries of the parameters, so they travel, are averaged and stored like these, but gradients
    do not reach them: a training step moves them towards the statistics of its batch (``keep`` of
    fedbook.federation.local.sgd). Source: Ioffe and Szegedy (2015); Grill et al. 2020, section 3.3 (only in heads).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.running_mean = nn.Parameter(torch.zeros(width), requires_grad=False)
        self.running_variance = nn.Parameter(torch.ones(width), requires_grad=False)

    def forward(self, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """[B, width] to [B, width] by the statistics given."""
        return (x - mean) * (variance + EPSILON).rsqrt() * self.weight + self.bias


class NormalisedHead(nn.Module):
    """Two linear layers with batch normalisation and a ReLU between them.

    ``head(x)`` uses the running statistics: a function of one row. ``head(x, weight)`` uses those of the rows of
    weight 1, and also returns their mean and variance, this one divided by n - 1 as PyTorch's running one.
    Shapes: x [B, inward], weight [B] to [B, outward].
    """

    def __init__(self, first: nn.Linear, second: nn.Linear) -> None:
        super().__init__()
        self.first, self.norm, self.second = first, BatchNorm(first.out_features), second

    def forward(self, x: Tensor, weight: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        """The head's output; with ``weight`` also the mean and the variance of its batch."""
        u = self.first(x).to(self.norm.running_mean.dtype)  # statistics in full precision whatever the layers have
        if weight is None:
            return self.second(torch.relu(self.norm(u, self.norm.running_mean, self.norm.running_variance)))
        rows = weight.to(u)[:, None]
        count = rows.sum()
        mean = (u * rows).sum(0) / count.clamp(min=1)
        square = ((u - mean).square() * rows).sum(0)
        z = self.second(torch.relu(self.norm(u, mean, square / count.clamp(min=1))))
        return z, mean.detach(), (square / (count - 1).clamp(min=1)).detach()


def in_batch(
    module: nn.Module, parameters: Mapping[str, Tensor], x: Tensor, weight: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """A head's output in training, and the statistics its batch had by the names of ``RUNNING``; {} if it has none.

    Shapes: x [B, inward], weight [B] (0: a row that only fills up the batch; it is in no statistic).
    """
    if not isinstance(module, NormalisedHead):
        return functional_call(module, dict(parameters), (x,), strict=True), {}
    z, *seen = functional_call(module, dict(parameters), (x, weight), strict=True)
    return z, dict(zip(RUNNING, seen, strict=True))


@dataclass(frozen=True)
class Encoder(Network):
    """A backbone and a projector: ``apply(parameters, x) == project(parameters, features(parameters, x))``.

    Classifiers are trained on the features h, the loss is taken of the representation z.
    Each part uses the parameters whose names start with its own word; all others are passed over.
    Shapes: x [B, *shape] to h [B, D] to z [B, H], H = ``width``, D = ``feature_width``.
    """

    module: nn.Sequential
    build: Callable[[], nn.Sequential]
    shape: tuple[int, int, int]
    width: int
    feature_width: int

    def apply(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """The representations z [B, H] of x [B, C, H, W]."""
        return self.project(parameters, self.features(parameters, x))

    def features(self, parameters: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """What the backbone makes of x [B, C, H, W]: h [B, D]. Raises: RuntimeError (a parameter is missing)."""
        return functional_call(self.module[0], _own(parameters, BACKBONE), (x,), strict=True)

    def project(self, parameters: Mapping[str, Tensor], h: Tensor) -> Tensor:
        """What the projector makes of h [B, D]: z [B, H]. Raises: RuntimeError (a parameter is missing)."""
        return functional_call(self.module[1], _own(parameters, PROJECTOR), (h,), strict=True)

    def project_batch(
        self, parameters: Mapping[str, Tensor], h: Tensor, weight: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """z [B, H] in training, and the batch's statistics by name ({} without batch normalisation).

        Shapes: h [B, D], weight [B] (0: no sample).
        """
        z, seen = in_batch(self.module[1], _own(parameters, PROJECTOR), h, weight)
        return z, {PROJECTOR + name: value for name, value in seen.items()}

    @property
    def normalised(self) -> bool:
        """Whether the projector has batch normalisation."""
        return isinstance(self.module[1], NormalisedHead)


def _own(parameters: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): p for name, p in parameters.items() if name.startswith(prefix)}


class Kind(NamedTuple):
    """How a backbone is built for images (C, H, W), D, and the least height and width of its images."""

    build: Callable[[int, int, int], nn.Sequential]
    features: int
    side: int = 1


def _dense(width: int) -> Kind:
    def build(c: int, h: int, w: int) -> nn.Sequential:
        first, second = _started(nn.Linear(c * h * w, width)), _started(nn.Linear(width, width))
        return nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, nn.ReLU())

    return Kind(build, width)


def _cnn(c: int, h: int, w: int) -> nn.Sequential:
    return nn.Sequential(
        _started(nn.Conv2d(c, 32, 3, stride=3, padding=1)), nn.ReLU(),
        _started(nn.Conv2d(32, 64, 3, stride=2)), nn.ReLU(),
        _started(nn.Conv2d(64, 128, 3, stride=2, padding=1)), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


def _cnn_for_small(*channels: int) -> Kind:
    """3x3 convolutions, the first of stride 1, the others of stride 2, each with ReLU, and the mean over the places."""

    def build(c: int, h: int, w: int) -> nn.Sequential:
        layers, inward = [], c
        for i, outward in enumerate(channels):
            layers += [_started(nn.Conv2d(inward, outward, 3, stride=2 if i else 1, padding=1)), nn.ReLU()]
            inward = outward
        return nn.Sequential(*layers, PlacesMean())

    return Kind(build, channels[-1])


class PlacesMean(nn.Module):
    """The mean over the places: [B, C, H, W] to [B, C]. AdaptiveAvgPool2d has no fast rule for vmap."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, H, W] to [B, C]."""
        return x.mean((2, 3))


def _fixup20(factor: int) -> Kind:
    return Kind(lambda c, h, w: resnet20(c, factor), 64 * factor)


ENCODERS = {
    "mlp": _dense(64),
    "mlp256": _dense(256),
    "cnn": Kind(_cnn, 128, 7),
    "cnn_s": _cnn_for_small(16, 32, 48),
    "cnn_m": _cnn_for_small(32, 64, 96),
    "resnet18": Kind(lambda c, h, w: resnet18(c, h, w, 1)[:-1], 512),
    "resnet34": Kind(lambda c, h, w: resnet34(c, h, w, 1)[:-1], 512),
    "fixup_resnet20": _fixup20(1),
    "fixup_resnet20_x2": _fixup20(2),
    "fixup_resnet20_x4": _fixup20(4),
    "fixup_resnet20_x8": _fixup20(8),
    "fixup_resnet50": Kind(lambda c, h, w: resnet50(c), 2048),
}
PROJECTORS = {
    "mlp": lambda features, hidden, width: _two_layers(features, hidden, width),
    "batch_norm": lambda features, hidden, width: _normalised(features, hidden, width),
    "linear": lambda features, hidden, width: _started(nn.Linear(features, width), 1.0),
    "none": lambda features, hidden, width: nn.Identity(),
}


def encoder(name: str, shape: Sequence[int], width: int, projector: str = "mlp", hidden: int = 0) -> Encoder:
    """The encoder with the backbone ``name``, with representations of ``width`` components.

    Backbones, with D, the parameters and the floating-point operations of one image forward (no projector):

    * mlp, mlp256: two layers of 64 or 256 ReLU units. mlp on 1x8x8: D 64, 8,320 parameters, 0.016 MFLOP;
      mlp256 on 1x28x28: D 256, 266,752, 0.53 MFLOP.
    * cnn_s, cnn_m: 3x3 convolutions of 16, 32 and 48 or 32, 64 and 96 channels of strides 1, 2 and 2, each with ReLU,
      and the mean over the places. 1x8x8: D 48, 18,672 parameters; D 96, 74,208.
    * cnn: 3x3 convolutions of 32, 64 and 128 channels of strides 3, 2 and 2, each with ReLU, and the mean over the
      places; from 7x7 on. D 128; 1x28x28: 92,672, 1.2 MFLOP; 3x32x32: 93,248, 2.5 MFLOP.
    * fixup_resnet20, _x2, _x4, _x8: without normalisation, 1, 2, 4 or 8 times as wide as He et al.'s. 3x32x32:
      D 64, 270,302, 82 MFLOP; D 128, 1,080,206, 0.32 GFLOP; D 256, 4,318,958, 1.3 GFLOP; D 512, 17,272,238, 5.2 GFLOP.
    * fixup_resnet50: the same with bottlenecks, for small images. 3x32x32: D 2,048, 23,447,345, 2.6 GFLOP.
    * resnet18, resnet34: group normalisation. 3x32x32: D 512, 11,168,832, 1.1 GFLOP; D 512, 21,276,992, 2.3 GFLOP.

    Projectors: "mlp" (D - 2H - H with one ReLU; 512-1024-512: 1,050,112), "batch_norm" (the same with batch
    normalisation before the ReLU), "linear" (D - H), "none" (z is h, so H must be D). ``hidden``: units of the
    projector's hidden layer, if it has one (0: twice the width).
    Shapes: ``shape`` = (C, H, W) of one image. Raises: TypeError, ValueError (also: images too small for the backbone).
    """
    kind = ENCODERS[arguments.one_of("encoder", name, ENCODERS)]
    c, h, w = image_size(name, shape, kind.side)
    width, hidden = arguments.integer("width", width, 1), arguments.integer("hidden", hidden, 0)
    after = PROJECTORS[arguments.one_of("projector", projector, PROJECTORS)]
    if projector == "none" and width != kind.features:
        raise arguments.wrong(ValueError, "width", width, f"{kind.features}, the features of {name}, without projector")

    def build() -> nn.Sequential:
        parts = {BACKBONE: kind.build(c, h, w), PROJECTOR: after(kind.features, hidden or 2 * width, width)}
        return nn.Sequential(OrderedDict((prefix.removesuffix("."), part) for prefix, part in parts.items()))

    return Encoder.of(f"encoder {name}", build, (c, h, w), width, kind.features)


def predictor(width: int, hidden: int, normalised: bool = False) -> Network:
    """The predictor of BYOL and its kin: H - hidden - H with one ReLU; ``normalised``: with batch normalisation.

    With that, a prediction in training depends on the other samples of its batch. 512-1024-512 has 1,050,112
    parameters (4,096 more with normalisation, half of them running statistics).
    Shapes: [B, H] to [B, H].
    """
    layers = _normalised if normalised else _two_layers
    return Network.of("predictor", lambda: layers(width, hidden, width))


def _normalised(inward: int, hidden: int, outward: int) -> NormalisedHead:
    return NormalisedHead(_started(nn.Linear(inward, hidden)), _started(nn.Linear(hidden, outward), 1.0))


def _two_layers(inward: int, hidden: int, outward: int) -> nn.Sequential:
    first, second = _started(nn.Linear(inward, hidden)), _started(nn.Linear(hidden, outward), 1.0)
    return nn.Sequential(first, nn.ReLU(), second)


def _started(layer: nn.Linear | nn.Conv2d, gain: float = 2.0) -> nn.Linear | nn.Conv2d:
    """The layer with normal weights of variance gain / (inputs of a unit) and biases of 0.

    2 makes up for the ReLU that follows (He et al. 2015), 1 is for a layer without. PyTorch's own start shrinks the
    signal against its random biases: of the cnn's representations 0.1% of the squared length differed between
    images, and the spectral loss stayed for hundreds of steps where all representations are one vector.
    """
    nn.init.normal_(layer.weight, std=math.sqrt(gain / layer.weight[0].numel()))
    nn.init.zeros_(layer.bias)
    return layer

"""Residual networks that never mix the rows of a batch: normalised by groups of channels, or not at all.

Batch normalisation has no place in private federated learning: its statistics mix the rows of a batch, and its running
averages are data that would be sent without any noise (and are written in place, which ``vmap`` refuses).

ResNet-18 and ResNet-34 have group normalisation. ResNet-20 and ResNet-50 have none, and are started by Fixup so that
they train nevertheless. Each residual branch starts as zero (its last convolution is 0): the signal neither grows nor
shrinks with the depth. The other convolutions of a branch are He's divided by L^(1 / (2m - 2)), for L branches of m
convolutions each, so that a step of gradient descent changes the function about as much whatever L is. For what a
normalisation layer would shift and scale there are scalars: one added before each convolution and each activation, one
factor a branch. The paper's last layer, a classifier of zeros, is left out with the scalar in front of it: an encoder
ends with features.

Two choices differ from the authors' ResNet-20. Where the shape changes, the shortcut is a 1x1 convolution (as in their
ImageNet networks) instead of new channels of zeros: with zero branches those channels stand at exactly 0 before the
activation, no gradient passes, and only a bias that happens to grow wakes them; after ten steps of the spectral loss
three quarters of the features were still dead in 4 of 20 starts (raw images; 1 of 20 standardised), here in none. He's
variance is 2 / fan in, not 2 / fan out: the features then have the same size at any width.

Source: He et al., Deep Residual Learning (2016), section 4.2 (ResNet-20) and Table 1; Wu and He, Group Normalization
(2018); Zhang, Dauphin and Ma, Fixup Initialization (ICLR 2019), section 3.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

GROUPS = 32  # Wu and He's choice; it divides every width here, and the parameters are as many as with batch norm
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, stride of the stage's first block
BLOCKS18, BLOCKS34 = (2, 2, 2, 2), (3, 4, 6, 3)  # in each stage; a block has two layers; stem and classifier: 2


class GroupNorm(nn.GroupNorm):
    """PyTorch's layer; without gradients ``vmap`` refuses images whose channels lie last in memory, but not rows."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, C, ...] to the same."""
        return super().forward(x) if torch.is_grad_enabled() else super().forward(x.flatten(2)).view(x.shape)


class GroupBlock(nn.Module):
    """relu(norm(conv(relu(norm(conv(x))))) + x), the last x projected by a 1x1 convolution where the shape changes.

    Shapes: [B, inward, H, W] to [B, outward, ceil(H / stride), ceil(W / stride)].
    """

    def __init__(self, inward: int, outward: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(_conv(inward, outward, 3, stride), GroupNorm(GROUPS, outward))
        self.second = nn.Sequential(_conv(outward, outward, 3, 1), GroupNorm(GROUPS, outward))
        same = inward == outward and stride == 1
        projection = () if same else (_conv(inward, outward, 1, stride), GroupNorm(GROUPS, outward))
        self.shortcut = nn.Sequential(*projection)

    def forward(self, x: Tensor) -> Tensor:
        """[B, inward, H, W] to [B, outward, H', W']."""
        inner = torch.relu(self.first(x))
        return torch.relu(self.second(inner) + self.shortcut(x))


def resnet18(c: int, h: int, w: int, classes: int) -> nn.Sequential:
    """The usual form for small images: 3x3 convolution of stride 1 in front, no pooling."""
    return _resnet(_small_stem(c), BLOCKS18, classes)


def resnet34(c: int, h: int, w: int, classes: int) -> nn.Sequential:
    """ResNet-34 in the form for small images, with the stem and the widths of ``resnet18``.

    For three channels: 21,276,992 parameters before the classifier, as many as with batch normalisation.
    """
    return _resnet(_small_stem(c), BLOCKS34, classes)


def resnet18_imagenet(c: int, h: int, w: int, classes: int) -> nn.Sequential:
    """The original form: 7x7 convolution of stride 2 and pooling in front, so images shrink by 4 before the blocks."""
    stem = (_conv(c, 64, 7, 2), GroupNorm(GROUPS, 64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return _resnet(stem, BLOCKS18, classes)


def _small_stem(c: int) -> tuple[nn.Module, ...]:
    return _conv(c, 64, 3, 1), GroupNorm(GROUPS, 64), nn.ReLU()


def _resnet(stem: tuple[nn.Module, ...], numbers: tuple[int, ...], classes: int) -> nn.Sequential:
    """``numbers``: how many blocks each stage has."""
    blocks, inward = [], 64
    for number, (outward, stride) in zip(numbers, STAGES, strict=True):
        blocks += [GroupBlock(inward, outward, stride), *(GroupBlock(outward, outward, 1) for _ in range(number - 1))]
        inward = outward
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inward, classes))


def _conv(inward: int, outward: int, kernel: int, stride: int) -> nn.Conv2d:
    conv = nn.Conv2d(inward, outward, kernel, stride, padding=kernel // 2, bias=False)  # the norm has a bias
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")  # He et al. (2015)
    return conv


# --- without normalisation

Layers = tuple[tuple[int, int, int], ...]  # channels, kernel, stride of each convolution


class Bias(nn.Module):
    """One scalar, added to everything. Shapes: any."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """x + bias."""
        return x + self.bias


class FixupBlock(nn.Module):
    """relu(scale * branch(x) + bias[-1] + shortcut(x)), the branch 0 at the start.

    Convolution i = 0, ..., m - 1 of the branch sees its input plus bias[2i]; to what it gives, bias[2i + 1] is added
    before the activation. The shortcut: x, or a 1x1 convolution of x + bias[0] where the shape changes.
    ``depth``: L, the branches of the whole network.
    Shapes: [B, inward, H, W] to [B, channels, ceil(H / stride), ceil(W / stride)]; bias [2m], scale [1].
    """

    def __init__(self, inward: int, layers: Layers, depth: int) -> None:
        super().__init__()
        outward, stride, last = layers[-1][0], math.prod(step for *_, step in layers), len(layers) - 1
        self.shortcut = None if (inward, stride) == (outward, 1) else _fixup_conv(inward, outward, 1, stride)
        factor = depth ** (-1 / (2 * last))
        self.branch = nn.ModuleList()
        for place, (channels, kernel, step) in enumerate(layers):
            self.branch.append(_fixup_conv(inward, channels, kernel, step, factor if place < last else 0.0))
            inward = channels
        self.bias = nn.Parameter(torch.zeros(2 * len(layers)))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """[B, inward, H, W] to [B, channels, H', W']."""
        before, after = self.bias[0::2], self.bias[1::2]
        past = x if self.shortcut is None else self.shortcut(x + before[0])
        for place, convolution in enumerate(self.branch):
            inner = torch.relu(x) if place else x
            x = convolution(inner + before[place])
            x = x + after[place] if place < len(self.branch) - 1 else self.scale * x + after[place]
        return torch.relu(x + past)


def resnet20(channels: int, factor: int = 1) -> nn.Sequential:
    """ResNet-20 for small images, ``factor`` times as wide: three stages of three blocks of two 3x3 convolutions.

    Shapes: [B, channels, H, W] to [B, 64 factor].
    """
    stages = ((16 * factor, 1), (32 * factor, 2), (64 * factor, 2))
    branches = [((width, 3, step), (width, 3, 1)) for width, stride in stages for step in (stride, 1, 1)]
    return _fixup(channels, 16 * factor, branches)


def resnet50(channels: int) -> nn.Sequential:
    """ResNet-50 with a stem for small images: 3-4-6-3 blocks of 1x1, 3x3 and 1x1 convolutions, the stride in the 3x3.

    Shapes: [B, channels, H, W] to [B, 2048].
    """
    stages = ((64, 1, 3), (128, 2, 4), (256, 2, 6), (512, 2, 3))
    branches = [
        ((width, 1, 1), (width, 3, step), (4 * width, 1, 1))
        for width, stride, count in stages
        for step in (stride, *[1] * (count - 1))
    ]
    return _fixup(channels, 64, branches)


def _fixup(channels: int, width: int, branches: list[Layers]) -> nn.Sequential:
    """A 3x3 convolution to ``width`` channels, the blocks, and the mean over all places."""
    blocks, inward = [], width
    for layers in branches:
        blocks.append(FixupBlock(inward, layers, len(branches)))
        inward = layers[-1][0]
    stem = (_fixup_conv(channels, width, 3, 1), Bias(), nn.ReLU())
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _fixup_conv(inward: int, outward: int, kernel: int, stride: int, factor: float = 1.0) -> nn.Conv2d:
    """A convolution without biases, He's initialisation times ``factor``."""
    conv = nn.Conv2d(inward, outward, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.normal_(conv.weight, std=factor * math.sqrt(2 / (inward * kernel**2)))
    return conv

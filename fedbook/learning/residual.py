"""ResNet-18 and ResNet-34 with group normalisation: every row is normalised by itself.

Batch normalisation has no place in private federated learning: its statistics mix the rows of a batch, and its running
averages are data that would be sent without any noise (and are written in place, which ``vmap`` refuses).

Source: He et al., Deep Residual Learning (2016), Table 1; Wu and He, Group Normalization (2018).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

GROUPS = 32  # Wu and He's choice; it divides every width here, and the parameters are as many as with batch norm
STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, stride of the stage's first block
BLOCKS18, BLOCKS34 = (2, 2, 2, 2), (3, 4, 6, 3)  # in each stage; a block has two layers; stem and classifier: 2


class Block(nn.Module):
    """relu(norm(conv(relu(norm(conv(x))))) + x), the last x projected by a 1x1 convolution where the shape changes.

    Shapes: [B, inward, H, W] to [B, outward, ceil(H / stride), ceil(W / stride)].
    """

    def __init__(self, inward: int, outward: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(_conv(inward, outward, 3, stride), nn.GroupNorm(GROUPS, outward))
        self.second = nn.Sequential(_conv(outward, outward, 3, 1), nn.GroupNorm(GROUPS, outward))
        same = inward == outward and stride == 1
        projection = () if same else (_conv(inward, outward, 1, stride), nn.GroupNorm(GROUPS, outward))
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
    stem = (_conv(c, 64, 7, 2), nn.GroupNorm(GROUPS, 64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return _resnet(stem, BLOCKS18, classes)


def _small_stem(c: int) -> tuple[nn.Module, ...]:
    return _conv(c, 64, 3, 1), nn.GroupNorm(GROUPS, 64), nn.ReLU()


def _resnet(stem: tuple[nn.Module, ...], numbers: tuple[int, ...], classes: int) -> nn.Sequential:
    """``numbers``: how many blocks each stage has."""
    blocks, inward = [], 64
    for number, (outward, stride) in zip(numbers, STAGES, strict=True):
        blocks += [Block(inward, outward, stride), *(Block(outward, outward, 1) for _ in range(number - 1))]
        inward = outward
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inward, classes))


def _conv(inward: int, outward: int, kernel: int, stride: int) -> nn.Conv2d:
    conv = nn.Conv2d(inward, outward, kernel, stride, padding=kernel // 2, bias=False)  # the norm has a bias
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")  # He et al. (2015)
    return conv

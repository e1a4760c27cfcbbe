"""ResNet-34 against hand counts and hand-laid stages, and ResNet-18 as it was when both share their code."""

import pytest
import torch

from fedbook.learning.resnets import GroupNorm, resnet18, resnet34
from fedbook.randomness import stream

WIDTHS = (64, 128, 256, 512)


def numbers(seed, *shape):
    return torch.from_numpy(stream(seed, "test").normal(size=shape))


def counted(c, blocks):
    """Convolutions of 9 (a shortcut: 1) weights a pair of channels, and two numbers a channel for each norm."""
    total, inward = 9 * c * 64 + 2 * 64, 64
    for width, number in zip(WIDTHS, blocks, strict=True):
        total += 9 * inward * width + (2 * number - 1) * 9 * width**2 + 2 * number * 2 * width
        total += 0 if inward == width else inward * width + 2 * width
        inward = width
    return total


@pytest.mark.parametrize(
    ("make", "blocks", "size"), [(resnet18, (2, 2, 2, 2), 11_168_832), (resnet34, (3, 4, 6, 3), 21_276_992)]
)
def test_as_many_parameters_as_published(make, blocks, size):
    for c in (3, 1):
        net = make(c, 32, 32, 10)
        body = sum(p.numel() for p in net[:-1].parameters())
        assert body == counted(c, blocks) == size - 9 * 64 * (3 - c)
        assert sum(p.numel() for p in net.parameters()) == body + 512 * 10 + 10
        assert not list(net.buffers())  # nothing that is averaged over batches


def test_models_side_by_side_are_judged_where_channels_lie_last():
    """Convolutions may leave channels last in memory; vmap refuses PyTorch's group norm there without gradients."""
    layer = GroupNorm(32, 64).double()
    for size in (8, 1):
        x = numbers(0, 3, 2, size, size, 64).permute(0, 1, 4, 2, 3)
        expected = torch.stack([layer(one) for one in x])
        with torch.no_grad():
            assert torch.allclose(torch.func.vmap(layer)(x), expected, rtol=1e-12, atol=1e-12)

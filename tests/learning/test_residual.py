"""ResNet-34 against hand counts and hand-laid stages, and ResNet-18 as it was when both share their code."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

from fedbook.learning.residual import Block, resnet18, resnet18_imagenet, resnet34
from fedbook.randomness import stream

WIDTHS = (64, 128, 256, 512)


def numbers(seed, *shape):
    return torch.from_numpy(stream(seed, "test").normal(size=shape))


def stem(c, kernel, stride):
    conv = nn.Conv2d(c, 64, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv, nn.GroupNorm(32, 64), nn.ReLU()


def end(classes):
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes)


def eighteen():
    """The eight blocks of ResNet-18, one by one."""
    return (
        *(Block(64, 64, 1), Block(64, 64, 1), Block(64, 128, 2), Block(128, 128, 1)),
        *(Block(128, 256, 2), Block(256, 256, 1), Block(256, 512, 2), Block(512, 512, 1)),
    )


def thirty_four():
    """The sixteen blocks of ResNet-34, one by one."""
    return (
        *(Block(64, 64, 1), Block(64, 64, 1), Block(64, 64, 1)),
        *(Block(64, 128, 2), Block(128, 128, 1), Block(128, 128, 1), Block(128, 128, 1)),
        *(Block(128, 256, 2), Block(256, 256, 1), Block(256, 256, 1)),
        *(Block(256, 256, 1), Block(256, 256, 1), Block(256, 256, 1)),
        *(Block(256, 512, 2), Block(512, 512, 1), Block(512, 512, 1)),
    )


LAID = {
    "resnet18": (resnet18, lambda c: (*stem(c, 3, 1), *eighteen())),
    "resnet18_imagenet": (resnet18_imagenet, lambda c: (*stem(c, 7, 2), nn.MaxPool2d(3, 2, 1), *eighteen())),
    "resnet34": (resnet34, lambda c: (*stem(c, 3, 1), *thirty_four())),
}


@pytest.mark.parametrize("name", LAID)
def test_the_layers_in_their_order(name):
    """Names, initial values drawn from one generator, and outputs: all as of the layers laid out by hand."""
    make, layers = LAID[name]
    torch.manual_seed(0)
    ours = make(3, 8, 9, 5)
    torch.manual_seed(0)
    by_hand = nn.Sequential(*layers(3), *end(5))
    assert list(ours.state_dict()) == list(by_hand.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), by_hand.parameters(), strict=True))
    x = numbers(0, 2, 3, 8, 9).float()
    with torch.no_grad():
        assert torch.equal(ours(x), by_hand(x)) and ours(x).shape == (2, 5)


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


def test_thirty_four_layers():
    net = resnet34(3, 32, 32, 10)
    convolutions = [m for m in net.modules() if isinstance(m, nn.Conv2d)]
    on_the_way = [m for m in convolutions if m.kernel_size == (3, 3)]
    assert len(on_the_way) == 33 and len(convolutions) - len(on_the_way) == 3  # the linear layer is the 34th
    assert net[:-3](torch.zeros(1, 3, 32, 32)).shape == (1, 512, 4, 4)
    assert net[:-3](torch.zeros(1, 3, 5, 9)).shape == (1, 512, 1, 2)
    for p in (m.weight.detach() for m in convolutions):
        wanted = (2 / (p.shape[0] * p.shape[2] * p.shape[3])) ** 0.5
        assert abs(float(p.std()) / wanted - 1) < 5 / (2 * p.numel()) ** 0.5


def test_rows_do_not_see_each_other():
    torch.manual_seed(0)
    net = resnet34(1, 6, 5, 3).double()
    x = numbers(0, 3, 1, 6, 5)
    whole = net(x)
    assert torch.allclose(net(x[1:2]), whole[1:2], rtol=0, atol=1e-11)
    by_rows = grad(lambda rows: net(rows)[1].sum())(x).detach()
    assert float(by_rows[1].abs().max()) > 1e-6 and not by_rows[[0, 2]].any()


def test_a_stack_of_clients_is_the_loop():
    torch.manual_seed(0)
    nets = [resnet34(1, 4, 4, 2).double() for _ in range(2)]
    theta, buffers = stack_module_state(nets)
    x = numbers(1, 2, 2, 1, 4, 4)

    def loss(theta, x):
        return functional_call(nets[0], (theta, buffers), (x,)).square().sum()

    together = vmap(grad(loss))(theta, x)
    for k, net in enumerate(nets):
        alone = grad(loss)({name: p.detach() for name, p in net.named_parameters()}, x[k])
        for name, value in alone.items():
            assert torch.allclose(together[name][k], value, rtol=1e-9, atol=1e-9 * float(value.abs().max()))

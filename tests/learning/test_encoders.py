"""Encoders: parts and whole, stacks against loops, rows that do not see each other; Fixup at and after the start."""

import copy
import functools
import math

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from fedbook.learning import resnets
from fedbook.learning.encoders import ENCODERS, Encoder, encoder, predictor
from fedbook.learning.models import Network, model, stack
from fedbook.papers.fedsc.spectral import spectral_loss
from fedbook.randomness import stream

DOUBLE = torch.float64
SHAPES = {
    "mlp": (1, 3, 2), "mlp256": (2, 2, 3), "cnn": (2, 8, 7), "resnet18": (1, 4, 5), "fixup_resnet20": (2, 5, 6),
    "fixup_resnet20_x2": (1, 5, 4), "fixup_resnet50": (1, 4, 5),
}  # fmt: skip
LIGHT = ["mlp", "mlp256", "cnn", "fixup_resnet20"]
NAN = math.nan


def drawn(*shape, seed=0, dtype=DOUBLE):
    return torch.from_numpy(stream(seed, "test").normal(size=shape)).to(dtype)


def worst(a, b):
    return max(float((a[key] - b[key]).detach().abs().max()) for key in a)


def moved(theta, seed=9, by=0.05):
    """Parameters away from their start, where Fixup's branches are 0 and biases vanish."""
    rng = stream(seed, "moved")
    return {key: p + by * torch.from_numpy(rng.normal(size=p.shape)).to(p) for key, p in theta.items()}


# sizes ------------------------------------------------------------------------------------------

STAGES20 = 16 * 9 * 16 * 6 + 9 * (16 * 32 + 5 * 32 * 32) + 9 * (32 * 64 + 5 * 64 * 64) + 16 * 32 + 32 * 64
COUNTS = [  # backbone, images, parameters, D, millions of floating-point operations forward
    ("mlp", (1, 8, 8), 2 * (64 * 64 + 64), 64, 0.016),
    ("mlp256", (1, 28, 28), 785 * 256 + 257 * 256, 256, 0.53),
    ("cnn", (1, 28, 28), 10 * 32 + 289 * 64 + 577 * 128, 128, 1.2),
    ("cnn", (3, 32, 32), 28 * 32 + 289 * 64 + 577 * 128, 128, 2.5),
    ("fixup_resnet20", (3, 32, 32), 27 * 16 + STAGES20 + 9 * 5 + 1, 64, 82),
    ("fixup_resnet20_x2", (3, 32, 32), 27 * 32 + 4 * STAGES20 + 9 * 5 + 1, 128, None),
    ("fixup_resnet20_x4", (3, 32, 32), 27 * 64 + 16 * STAGES20 + 9 * 5 + 1, 256, None),
    ("fixup_resnet20_x8", (3, 32, 32), 27 * 128 + 64 * STAGES20 + 9 * 5 + 1, 512, None),
    # the ImageNet network's 25,557,032 without classifier, batch norms (2 a channel) and stem, with ours
    ("fixup_resnet50", (3, 32, 32), 25_557_032 - 2_049_000 - 2 * 26_560 - 147 * 64 + 27 * 64 + 16 * 7 + 1, 2048, None),
    ("resnet18", (3, 32, 32), 11_168_832, 512, None),
]


@pytest.mark.parametrize(("name", "shape", "count", "features", "cost"), COUNTS)
def test_sizes_are_those_stated(name, shape, count, features, cost):
    net = encoder(name, shape, features, "none")
    assert (net.size, net.feature_width, net.width, net.shape) == (count, features, features, shape)
    text = " ".join(encoder.__doc__.split())
    assert f"{count:,}" in text and f"D {features:,}" in text
    if cost is None:
        return
    passes = []
    for layer in net.module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            layer.register_forward_hook(lambda m, _, y: passes.append(2 * m.weight.numel() * y[0, 0].numel()))
    net.module(torch.zeros(1, *shape))
    assert float(f"{sum(passes) / 1e6:.2g}") == cost and f"{cost} MFLOP" in text


def test_the_small_backbones_by_hand():
    x = drawn(3, 1, 8, 8)
    net = encoder("mlp", (1, 8, 8), 64, "none")
    w1, b1, w2, b2 = (theta := moved(net.init(stream(0, "init"), DOUBLE))).values()
    wanted = ((x.flatten(1) @ w1.T + b1).clamp(min=0) @ w2.T + b2).clamp(min=0)
    assert torch.allclose(net.features(theta, x), wanted, rtol=0, atol=1e-12)
    net, x = encoder("cnn", (3, 28, 31), 128, "none"), drawn(2, 3, 28, 31)
    w1, b1, w2, b2, w3, b3 = (theta := moved(net.init(stream(0, "init"), DOUBLE))).values()
    for w, b, stride, padding, size in (
        (w1, b1, 3, 1, (32, 10, 11)), (w2, b2, 2, 0, (64, 4, 5)), (w3, b3, 2, 1, (128, 2, 3)),
    ):  # fmt: skip
        x = nn.functional.conv2d(x, w, b, stride, padding).clamp(min=0)
        assert x.shape == (2, *size)
    assert torch.allclose(net.features(theta, drawn(2, 3, 28, 31)), x.mean((2, 3)), rtol=0, atol=1e-12)


# what every encoder keeps -----------------------------------------------------------------------


@pytest.mark.parametrize("name", [*LIGHT, "resnet18"])
def test_each_part_uses_its_own_parameters(name):
    net = encoder(name, SHAPES[name], 6)
    assert isinstance(net, Encoder) and net.kind == f"encoder {name}"
    theta, x = moved(net.init(stream(0, "init"), DOUBLE)), drawn(3, *SHAPES[name])
    h, z = net.features(theta, x), net.apply(theta, x)
    assert h.shape == (3, net.feature_width) and z.shape == (3, 6)
    assert torch.equal(net.project(theta, h), z)
    assert torch.allclose(functional_call(net.module, theta, (x,)), z, rtol=0, atol=1e-12)
    parts = {part: {key: p for key, p in theta.items() if key.startswith(part)} for part in ("backbone", "projector")}
    assert {**parts["backbone"], **parts["projector"]}.keys() == theta.keys() and all(parts.values())
    other = {part: {key: NAN * p for key, p in own.items()} for part, own in parts.items()}
    assert torch.equal(net.features(parts["backbone"] | other["projector"], x), h)
    assert torch.equal(net.features(parts["backbone"], x), h)
    assert torch.equal(net.project(parts["projector"] | other["backbone"], h), z)
    assert torch.equal(net.project(parts["projector"], h), z)
    assert not net.features(other["backbone"] | parts["projector"], x).isfinite().any()
    assert not net.project(other["projector"] | parts["backbone"], h).isfinite().any()


@pytest.mark.parametrize("name", SHAPES)
def test_encoders_have_no_state_and_mix_no_rows(name):
    """A representation, and its derivative, is one sample's: otherwise no matrix would have a sensitivity."""
    net = encoder(name, SHAPES[name], 6)
    theta, x = moved(net.init(stream(3, "init"), DOUBLE)), drawn(4, *SHAPES[name])
    before, own, given = copy.deepcopy(theta), copy.deepcopy(dict(net.module.named_parameters())), x.clone()
    whole = net.apply(theta, x)
    assert torch.equal(net.apply(theta, x), whole)
    scale = float(whole.abs().max())
    for rows in ([1], [3, 0], [2, 2, 1]):
        assert torch.allclose(net.apply(theta, x[rows]), whole[rows], rtol=0, atol=1e-12 * max(scale, 1))
    by_rows = grad(lambda rows: net.apply(theta, rows)[1].sum())(x)
    assert bool(by_rows[1].any()) and not by_rows[[0, 2, 3]].any()
    assert not list(net.module.buffers()) and not any(isinstance(m, nn.Dropout) for m in net.module.modules())
    assert worst(before, theta) == 0 and worst(own, dict(net.module.named_parameters())) == 0 and torch.equal(x, given)


def bottlenecks():
    """A small relative of fixup_resnet50."""
    build = functools.partial(
        resnets._fixup, 2, 3, [((3, 1, 1), (3, 3, 2), (4, 1, 1)), ((3, 1, 1), (3, 3, 1), (4, 1, 1))]
    )
    return Network("bottlenecks", build(), build)


@pytest.mark.parametrize("name", [*LIGHT, "bottlenecks"])
def test_a_stack_of_clients_is_the_loop_over_modules(name):
    """Gradients of the loss by vmap over stacked parameters against backward through modules, client after client."""
    clients, shape = 3, SHAPES.get(name, (2, 5, 4))
    net = encoder(name, shape, 4) if name in SHAPES else bottlenecks()
    thetas = [moved(net.init(stream(1, "init", client=k), DOUBLE), seed=k) for k in range(clients)]
    x = drawn(clients, 6, *shape)
    together = vmap(grad(lambda theta, x: spectral_loss(net.apply(theta, x).unflatten(0, (3, 2))).total))(
        stack(thetas), x
    )
    for k in range(clients):
        module = net.build().double()
        module.load_state_dict(thetas[k])
        spectral_loss(module(x[k]).unflatten(0, (3, 2))).total.backward()
        alone = {key: p.grad for key, p in module.named_parameters()}
        assert alone.keys() == together.keys()
        for key, g in alone.items():
            largest = float(g.abs().max())
            assert largest > 0 and float((together[key][k] - g).abs().max()) < 1e-10 * max(largest, 1)


@pytest.mark.parametrize("name", LIGHT)
def test_fresh_parameters_depend_on_their_stream_alone(name):
    net = encoder(name, SHAPES[name], 4)
    state = torch.get_rng_state()
    first, again, other = (net.init(stream(seed, "init")) for seed in (4, 4, 5))
    encoder(name, SHAPES[name], 4), predictor(4, 8)
    assert torch.equal(state, torch.get_rng_state())
    assert worst(first, again) == 0 < worst(first, other)


# Fixup ------------------------------------------------------------------------------------------


def test_a_fixup_block_by_hand():
    conv2d = nn.functional.conv2d
    x = drawn(2, 3, 6, 5)
    for inward, layers in ((3, ((3, 3, 1), (3, 3, 1))), (3, ((4, 3, 2), (4, 3, 1)))):
        block = resnets.FixupBlock(inward, layers, 4).double()
        block.load_state_dict(moved(block.state_dict(), by=0.5))
        a, b, c, d = block.bias.tolist()
        stride = layers[0][2]
        inner = conv2d(x + a, block.branch[0].weight, stride=stride, padding=1)
        outer = conv2d((inner + b).clamp(min=0) + c, block.branch[1].weight, padding=1)
        past = x if stride == 1 else conv2d(x + a, block.shortcut.weight, stride=2)
        assert torch.allclose(block(x), (block.scale.item() * outer + d + past).clamp(min=0), rtol=0, atol=1e-12)
    block = resnets.FixupBlock(3, ((4, 1, 1), (4, 3, 2), (8, 1, 1)), 4).double()
    block.load_state_dict(moved(block.state_dict(), by=0.5))
    a, b, c, d, e, f = block.bias.tolist()
    inner = (conv2d(x + a, block.branch[0].weight) + b).clamp(min=0)
    inner = (conv2d(inner + c, block.branch[1].weight, stride=2, padding=1) + d).clamp(min=0)
    outer = block.scale.item() * conv2d(inner + e, block.branch[2].weight) + f
    past = conv2d(x + a, block.shortcut.weight, stride=2)
    assert torch.allclose(block(x), (outer + past).clamp(min=0), rtol=0, atol=1e-12)


# bad arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENCODERS)
def test_the_least_image_is_stated_exactly(name):
    kind = ENCODERS[name]
    if name == "fixup_resnet20_x8":
        return  # as the others
    net = encoder(name, (1, kind.side, kind.side + 1), 2)
    assert net.module(torch.zeros(2, 1, kind.side, kind.side + 1)).shape == (2, 2)
    if kind.side > 1:
        for small in ((1, kind.side - 1, 40), (1, 40, kind.side - 1)):
            with pytest.raises(ValueError, match=f"^shape: got .*; allowed is images of at least {kind.side} x"):
                encoder(name, small, 3)
            with pytest.raises(RuntimeError):
                kind.build(*small)(torch.zeros(1, *small))


@pytest.mark.parametrize(
    ("name", "shape", "width", "projector", "words"),
    [
        ("vgg", (1, 8, 8), 3, "mlp", "encoder: got 'vgg'"), ("mlp", (8, 8), 3, "mlp", "shape: .*channels, height"),
        ("mlp", (1, 8, 0), 3, "mlp", "shape"), ("mlp", (1, 8, 8), 3, "deep", "projector: got 'deep'"),
        ("mlp", (1, 8, 8), 3, "none", "width: got 3; allowed is 64"),
    ],
)  # fmt: skip
def test_encoders_that_cannot_be(name, shape, width, projector, words):
    with pytest.raises((TypeError, ValueError), match=f"^{words}"):
        encoder(name, shape, width, projector)


@pytest.mark.parametrize(("words", "changes"), [("width: got 0", {"width": 0}), ("hidden: got -1", {"hidden": -1})])
def test_sizes_are_checked(words, changes):
    with pytest.raises(ValueError, match=words):
        encoder("mlp", (1, 8, 8), **({"width": 4} | changes))
    with pytest.raises(ValueError, match="classes: got 0"):
        model("mlp", (1, 8, 8), 0)

"""Encoders: parts and whole, stacks against loops, rows that do not see each other; Fixup at and after the start."""

import copy
import functools
import math

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from fedbook.learning import fixup
from fedbook.learning.contrast import spectral_loss
from fedbook.learning.encoders import ENCODERS, PROJECTORS, Encoder, encoder, predictor
from fedbook.learning.models import Model, Network, stack
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


def test_the_paper_s_network_has_about_17_million_parameters():
    net = encoder("fixup_resnet20_x8", (3, 32, 32), 512)
    assert net.feature_width == net.width == 512
    assert net.size == 17_272_238 + 1_050_112 and predictor(512, 1024).size == 1_050_112
    assert "17,272,238" in encoder.__doc__ and "1,050,112" in encoder.__doc__ and "1,050,112" in predictor.__doc__


@pytest.mark.parametrize(
    ("projector", "count"), [("mlp", 64 * 10 + 10 + 10 * 5 + 5), ("linear", 64 * 5 + 5), ("none", 0)]
)
def test_projectors(projector, count):
    width = 64 if projector == "none" else 5
    net = encoder("mlp", (1, 8, 8), width, projector)
    assert net.size == 8_320 + count and isinstance(net, Network) and not isinstance(net, Model)
    theta, h = moved(net.init(stream(0, "init"), DOUBLE)), drawn(7, 64)
    p = [value for key, value in theta.items() if key.startswith("projector.")]
    wanted = {
        "mlp": lambda: (h @ p[0].T + p[1]).clamp(min=0) @ p[2].T + p[3],
        "linear": lambda: h @ p[0].T + p[1],
        "none": lambda: h,
    }[projector]()
    assert torch.allclose(net.project(theta, h), wanted, rtol=0, atol=1e-12) and wanted.shape == (7, width)


def test_the_predictor_by_hand():
    net = predictor(5, 9)
    assert (net.kind, net.size) == ("predictor", 5 * 9 + 9 + 9 * 5 + 5)
    theta, z = moved(net.init(stream(0, "init"), DOUBLE)), drawn(4, 5)
    w1, b1, w2, b2 = theta.values()
    assert torch.allclose(net.apply(theta, z), (z @ w1.T + b1).clamp(min=0) @ w2.T + b2, rtol=0, atol=1e-12)


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
        fixup._network, 2, 3, [((3, 1, 1), (3, 3, 2), (4, 1, 1)), ((3, 1, 1), (3, 3, 1), (4, 1, 1))]
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
def test_float32_follows_float64(name):
    net = encoder(name, SHAPES[name], 4)
    theta, x = moved(net.init(stream(2, "init"), DOUBLE)), drawn(6, *SHAPES[name])
    exact = net.apply(theta, x)
    single = net.apply({key: p.float() for key, p in theta.items()}, x.float())
    assert single.dtype == torch.float32 and exact.dtype == DOUBLE and exact.shape == single.shape == (6, 4)
    assert 0 < float((single - exact).abs().max()) < 1e-4 * float(exact.abs().max())


@pytest.mark.parametrize("name", LIGHT)
def test_fresh_parameters_depend_on_their_stream_alone(name):
    net = encoder(name, SHAPES[name], 4)
    state = torch.get_rng_state()
    first, again, other = (net.init(stream(seed, "init")) for seed in (4, 4, 5))
    encoder(name, SHAPES[name], 4), predictor(4, 8)
    assert torch.equal(state, torch.get_rng_state())
    assert worst(first, again) == 0 < worst(first, other)


@pytest.mark.parametrize("name", LIGHT)
def test_the_representation_starts_with_what_tells_images_apart(name):
    """Not as one vector for all images: there the spectral loss has a saddle, and descent stays for long."""
    shape = (1, 8, 8)
    net, x = encoder(name, shape, 64), drawn(100, *shape)
    for seed in range(3):
        z = net.apply(net.init(stream(seed, "init"), DOUBLE), x)
        square = z.square().sum(1).mean()
        assert float(1 - z.mean(0).square().sum() / square) > 0.04
        assert 2 < float(square) < 200  # 64 components of about 1: neither vanishing nor exploding


def test_layers_start_with_he_s_variance_and_no_bias():
    for net, last in (
        (encoder("mlp256", (1, 28, 28), 64), "projector.2"), (encoder("cnn", (3, 32, 32), 64), "projector.2"),
        (encoder("mlp256", (1, 28, 28), 64, "linear"), "projector"), (predictor(128, 256), "2"),
    ):  # fmt: skip
        for key, p in net.init(stream(0, "init"), DOUBLE).items():
            if key.endswith("bias"):
                assert not p.any()
            else:
                gain = 1 if key == f"{last}.weight" else 2
                error = 5 / math.sqrt(2 * p.numel())
                assert abs(float(p.std()) * math.sqrt(p[0].numel() / gain) - 1) < error


@pytest.mark.parametrize("name", LIGHT)
def test_a_few_steps_lower_the_spectral_loss(name):
    net = encoder(name, (1, 8, 8), 8)
    theta = net.init(stream(0, "init"), DOUBLE)
    x = drawn(24, 1, 1, 8, 8) + 0.2 * drawn(24, 2, 1, 8, 8, seed=1)

    def loss(theta):
        return spectral_loss(net.apply(theta, x.flatten(0, 1)).unflatten(0, (24, 2))).total

    values = [float(loss(theta))]
    for _ in range(8):
        slope = grad(loss)(theta)
        length = math.sqrt(sum(float(g.square().sum()) for g in slope.values()))
        theta = {key: theta[key] - 0.05 / max(length, 1) * g for key, g in slope.items()}
        values.append(float(loss(theta)))
    assert values[-1] < values[0] - 0.05 and all(b < a for a, b in zip(values, values[1:], strict=False)), values


# Fixup ------------------------------------------------------------------------------------------


def test_a_fixup_block_by_hand():
    conv2d = nn.functional.conv2d
    x = drawn(2, 3, 6, 5)
    for inward, layers in ((3, ((3, 3, 1), (3, 3, 1))), (3, ((4, 3, 2), (4, 3, 1)))):
        block = fixup.Block(inward, layers, 4).double()
        block.load_state_dict(moved(block.state_dict(), by=0.5))
        a, b, c, d = block.bias.tolist()
        stride = layers[0][2]
        inner = conv2d(x + a, block.branch[0].weight, stride=stride, padding=1)
        outer = conv2d((inner + b).clamp(min=0) + c, block.branch[1].weight, padding=1)
        past = x if stride == 1 else conv2d(x + a, block.shortcut.weight, stride=2)
        assert torch.allclose(block(x), (block.scale.item() * outer + d + past).clamp(min=0), rtol=0, atol=1e-12)
    block = fixup.Block(3, ((4, 1, 1), (4, 3, 2), (8, 1, 1)), 4).double()
    block.load_state_dict(moved(block.state_dict(), by=0.5))
    a, b, c, d, e, f = block.bias.tolist()
    inner = (conv2d(x + a, block.branch[0].weight) + b).clamp(min=0)
    inner = (conv2d(inner + c, block.branch[1].weight, stride=2, padding=1) + d).clamp(min=0)
    outer = block.scale.item() * conv2d(inner + e, block.branch[2].weight) + f
    past = conv2d(x + a, block.shortcut.weight, stride=2)
    assert torch.allclose(block(x), (outer + past).clamp(min=0), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "pattern", "branches", "power"),
    [
        ("fixup_resnet20_x2", [2, 1, 1, 2, 1, 1, 2, 1, 1], 9, -1 / 2),
        ("fixup_resnet50", [1] * 16, 16, -1 / 4),
    ],
)
def test_how_fixup_starts(name, pattern, branches, power):
    module = encoder(name, (3, 8, 8), ENCODERS[name].features, "none").build()
    blocks = [m for m in module.modules() if isinstance(m, fixup.Block)]
    assert len(blocks) == len(pattern) == branches
    for block in blocks:
        *inner, last = block.branch
        assert not last.weight.any() and not block.bias.any() and block.scale.item() == 1
        for conv, factor in [(conv, branches**power) for conv in inner] + [(block.shortcut, 1.0)] * bool(
            block.shortcut
        ):
            wanted = factor * math.sqrt(2 / conv.weight[0].numel())
            assert abs(float(conv.weight.detach().std()) / wanted - 1) < 5 / math.sqrt(2 * conv.weight.numel())
    assert not any("norm" in type(m).__name__.lower() for m in module.modules())


def test_at_the_start_only_the_shortcuts_are_there():
    for name, changes in (("fixup_resnet20", (3, 6)), ("fixup_resnet50", (0, 3, 7, 13))):
        net = encoder(name, (3, 9, 8), ENCODERS[name].features, "none")
        theta, x = net.init(stream(0, "init"), DOUBLE), drawn(2, 3, 9, 8)
        h = nn.functional.conv2d(x, theta["backbone.0.weight"], padding=1).clamp(min=0)
        for place in changes:  # the stem are three layers
            weight = theta[f"backbone.{place + 3}.shortcut.weight"]
            first = place == 0
            h = nn.functional.conv2d(h, weight, stride=1 if first else 2).clamp(min=0)
        assert sum("shortcut" in key for key in theta) == len(changes)
        assert torch.allclose(net.features(theta, x), h.mean((2, 3)), rtol=0, atol=1e-12)


def test_features_start_with_the_same_size_at_any_width():
    x = drawn(4, 3, 8, 8)
    sizes = []
    for name in ("fixup_resnet20", "fixup_resnet20_x2", "fixup_resnet20_x4"):
        net = encoder(name, (3, 8, 8), 16)
        starts = [net.init(stream(s, "init"), DOUBLE) for s in range(4)]
        sizes.append(float(torch.stack([net.features(theta, x).square().mean() for theta in starts]).mean()))
    assert all(0.2 < size < 1 for size in sizes) and max(sizes) < 1.6 * min(sizes)


@pytest.mark.parametrize("layers", [((8, 3, 1), (8, 3, 1)), ((4, 1, 1), (4, 3, 1), (8, 1, 1))])
def test_a_first_step_moves_the_features_as_much_at_any_depth(layers):
    """The point of Fixup: 32 branches move the function as 2 do (without the factor, 16 times as much)."""
    x, push = drawn(8, 3, 5, 5), drawn(8, 8, seed=1)
    lengths, sizes = [], []
    for depth in (2, 8, 32):
        found = []
        for seed in range(4):
            net = Network("deep", nn.Sequential(), lambda depth=depth: fixup._network(3, 8, [layers] * depth))
            net = Network("deep", net.build(), net.build)
            theta = net.init(stream(seed, "deep"), DOUBLE)
            before = net.apply(theta, x)
            slope = grad(lambda theta, net=net: (net.apply(theta, x) * push).mean())(theta)
            step = {key: p - 1e-3 * slope[key] if ".branch." in key else p for key, p in theta.items()}
            found.append(float((net.apply(step, x) - before).norm()))
            sizes.append(float(before.square().mean()))
        lengths.append(sum(found) / len(found))
    assert min(lengths) > 0 and max(lengths) < 2 * min(lengths), lengths
    assert max(sizes) < 4 and min(sizes) > 0.05


def test_gradients_reach_every_parameter_after_one_step():
    net = encoder("fixup_resnet20", (1, 8, 8), 16)
    theta, x = net.init(stream(0, "init"), DOUBLE), drawn(16, 1, 8, 8)

    def slopes(theta):
        return grad(lambda theta: spectral_loss(net.apply(theta, x).unflatten(0, (8, 2))).total)(theta)

    first = slopes(theta)
    for key, g in first.items():
        waits = ".branch.0." in key or key.endswith("scale")  # behind or beside a branch that is 0
        assert bool(g.any()) != waits, key
        if key.startswith("backbone") and key.endswith(".bias") and g.numel() == 4:
            shifted = key.replace("bias", "shortcut.weight") in theta
            assert g.ne(0).tolist() == [shifted, False, False, True], key
    second = slopes({key: p - 1e-4 * first[key] for key, p in theta.items()})
    assert all(bool(g.ne(0).all()) for key, g in second.items() if g.numel() <= 4)
    assert all(float(g.ne(0).double().mean()) > 0.5 for g in second.values())


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
        ("vgg", (1, 8, 8), 3, "mlp", "encoder: got 'vgg'"), (None, (1, 8, 8), 3, "mlp", "encoder: got None"),
        ("fixup_resnet20_x3", (1, 8, 8), 3, "mlp", "encoder: .*fixup_resnet20_x4"), (3, (1, 8, 8), 3, "mlp", "encoder"),
        ("mlp", (8, 8), 3, "mlp", "shape: .*channels, height, width"), ("mlp", None, 3, "mlp", "shape"),
        ("mlp", 64, 3, "mlp", "shape"), ("mlp", "abc", 3, "mlp", "shape"), ("mlp", (1, 8, 0), 3, "mlp", "shape"),
        ("mlp", (1, -8, 8), 3, "mlp", "shape"), ("mlp", (1, 8.0, 8), 3, "mlp", "shape"),
        ("mlp", (1, NAN, 8), 3, "mlp", "shape"), ("mlp", (1, 8, 8), 0, "mlp", "width"),
        ("mlp", (1, 8, 8), -3, "mlp", "width"), ("mlp", (1, 8, 8), 2.5, "mlp", "width"),
        ("mlp", (1, 8, 8), True, "mlp", "width"), ("mlp", (1, 8, 8), NAN, "mlp", "width"),
        ("mlp", (1, 8, 8), math.inf, "mlp", "width"), ("mlp", (1, 8, 8), None, "mlp", "width"),
        ("mlp", (1, 8, 8), 3, "deep", "projector: got 'deep'"), ("mlp", (1, 8, 8), 3, None, "projector"),
        ("mlp", (1, 8, 8), 3, "none", "width: got 3; allowed is 64"),
        ("cnn", (1, 28, 28), 64, "none", "width: got 64; allowed is 128"),
    ],
)  # fmt: skip
def test_encoders_that_cannot_be(name, shape, width, projector, words):
    with pytest.raises((TypeError, ValueError), match=f"^{words}"):
        encoder(name, shape, width, projector)


@pytest.mark.parametrize("bad", [0, -1, 2.5, True, None, "x", NAN, math.inf])
def test_predictors_that_cannot_be(bad):
    with pytest.raises((TypeError, ValueError), match="^width: got "):
        predictor(bad, 3)
    with pytest.raises((TypeError, ValueError), match="^hidden: got "):
        predictor(3, bad)


@pytest.mark.parametrize("projector", PROJECTORS)
def test_an_encoder_refuses_what_is_not_its_image_or_not_its_parameters(projector):
    net = encoder("mlp", (1, 8, 8), 64, projector)
    theta, x = net.init(stream(0, "init"), DOUBLE), drawn(3, 1, 8, 8)
    h = net.features(theta, x)
    for bad in (None, "x", x[0], x[..., :-1], x[:, None], x.long(), x.numpy()):
        for call in (net.apply, net.features):
            with pytest.raises((TypeError, ValueError), match="^x: got "):
                call(theta, bad)
    for bad in (None, "x", h[0], h[:, 1:], h.long()):
        with pytest.raises((TypeError, ValueError), match="^h: got "):
            net.project(theta, bad)
    for key in theta:  # never the module's own parameters instead
        with pytest.raises(RuntimeError, match=r"(?i)key"):
            net.apply({other: p for other, p in theta.items() if other != key}, x)
    with pytest.raises(RuntimeError, match=r"(?i)key"):
        net.apply(theta | {"backbone.more": h}, x)
    with pytest.raises(TypeError, match="^dtype: got "):
        net.init(stream(0, "init"), torch.int64)

"""Towers and fusions: against formulas and PyTorch's own layers, stacks against loops, one block among the others."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from fedbook.learning.models import stack
from fedbook.papers.cvfl.towers import FUSIONS, TOWERS, fusion, tower
from fedbook.randomness import stream

DOUBLE = torch.float64
SHAPES = {
    "linear": (3, 2), "mlp": (6,), "mlp64": (1, 2, 3), "cnn": (2, 4, 6), "resnet18": (1, 4, 5),
    "resnet18_imagenet": (2, 5, 4), "mvcnn": (3, 2, 5, 4), "lstm": (7, 3),
}  # fmt: skip


def drawn(*shape, seed=0, dtype=DOUBLE):
    return torch.from_numpy(stream(seed, "test").normal(size=shape)).to(dtype)


def worst(a, b):
    return max(float((a[key] - b[key]).detach().abs().max()) for key in a)


# towers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape", "width", "count"),
    [
        ("linear", (1, 4, 4), 32, 16 * 32 + 32),
        ("mlp", (1, 4, 4), 32, 16 * 32 + 32 + 32 * 32 + 32),
        ("mlp64", (10,), 8, 10 * 64 + 64 + 64 * 8 + 8),
        ("cnn", (3, 16, 16), 16, 27 * 16 + 16 + 144 * 32 + 32 + 32 * 16 * 16 + 16),
        ("resnet18", (3, 16, 16), 16, 11_168_832 + 512 * 16 + 16),
        ("resnet18_imagenet", (3, 112, 112), 128, 11_176_512 + 512 * 128 + 128),
        ("mvcnn", (3, 1, 32, 32), 64, 9 * 16 + 16 + 144 * 32 + 32 + 32 * 64 * 64 + 64),
        ("mvcnn", (12, 1, 32, 32), 64, 9 * 16 + 16 + 144 * 32 + 32 + 32 * 64 * 64 + 64),  # the views share them
        ("lstm", (48, 19), 16, 4 * 16 * (19 + 16 + 1)),
    ],
)
def test_parameter_counts(name, shape, width, count):
    net = tower(name, shape, width)
    assert net.size == count == sum(p.numel() for p in net.init(stream(0, "init")).values())


@pytest.mark.parametrize("activation", ["tanh", "linear"])
@pytest.mark.parametrize("name", TOWERS)
def test_a_stack_of_parties_is_the_loop_over_modules(name, activation):
    """Gradients by vmap over stacked parameters against backward through PyTorch's modules, party after party."""
    rows, width = (2 if name.startswith("resnet") else 3), 4
    net = tower(name, SHAPES[name], width, activation)
    thetas = [net.init(stream(1, "init", client=r), DOUBLE) for r in range(rows)]
    x, target = drawn(rows, 5, *SHAPES[name]), drawn(rows, 5, width, seed=1)

    def loss(theta, x, target):
        return (net.apply(theta, x) - target).square().sum()

    together, side_by_side = vmap(grad(loss))(stack(thetas), x, target), net.apply_each(stack(thetas), x)
    for r in range(rows):
        module = net.build().double()
        module.load_state_dict(thetas[r])
        out = module(x[r])
        assert torch.allclose(side_by_side[r], out, rtol=0, atol=1e-12)
        (out - target[r]).square().sum().backward()
        alone = {key: p.grad for key, p in module.named_parameters()}
        assert alone.keys() == together.keys()
        assert worst(alone, {key: g[r] for key, g in together.items()}) < 1e-10
        assert all(float(g.abs().max()) > 1e-6 for g in alone.values())


def test_the_dense_towers_by_hand():
    x = drawn(5, 1, 4, 4)
    for name, units in (("mlp", 32), ("mlp64", 64)):
        net = tower(name, (1, 4, 4), 7)
        theta = net.init(stream(0, "init"), DOUBLE)
        w1, b1, w2, b2 = theta.values()
        assert w1.shape == (units, 16) and w2.shape == (7, units)
        by_hand = torch.tanh(torch.tanh(x.reshape(5, 16) @ w1.T + b1) @ w2.T + b2)
        assert torch.allclose(net.apply(theta, x), by_hand, rtol=0, atol=1e-12)
    net = tower("linear", (16,), 7, "linear")
    w, b = net.init(stream(0, "init"), DOUBLE).values()
    assert torch.allclose(net.apply({"1.weight": w, "1.bias": b}, x.reshape(5, 16)), x.reshape(5, 16) @ w.T + b)


# view pooling -----------------------------------------------------------------------------------


def test_view_pooling_by_hand():
    net = tower("mvcnn", (3, 2, 8, 9), 4, "linear")
    theta, x = net.init(stream(0, "init"), DOUBLE), drawn(5, 3, 2, 8, 9)
    w1, b1, w2, b2, w, b = theta.values()
    maps = []
    for view in x.unbind(1):
        for weight, bias in ((w1, b1), (w2, b2)):
            view = nn.functional.max_pool2d(nn.functional.conv2d(view, weight, bias, padding=1).clamp(min=0), 2)
        maps.append(view)
    highest = maps[0]
    for one in maps[1:]:
        highest = torch.where(one > highest, one, highest)
    assert torch.allclose(net.apply(theta, x), highest.flatten(1) @ w.T + b, rtol=0, atol=1e-12)
    assert not torch.allclose(highest, maps[0])  # every view has a say


# LSTM -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "features", "width"), [(48, 19, 16), (1, 1, 1), (5, 2, 7)])
def test_the_lstm_is_pytorch_s(steps, features, width):
    net, theirs = tower("lstm", (steps, features), width), nn.LSTM(features, width, batch_first=True).double()
    theta = {key: drawn(*p.shape, seed=8) for key, p in net.init(stream(0, "init"), DOUBLE).items()}
    x, seen = drawn(6, steps, features, seed=9), drawn(6, width, seed=10)
    inward, across, bias = theta.values()
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(inward), theirs.weight_hh_l0.copy_(across)
        theirs.bias_ih_l0.copy_(0.25 * bias), theirs.bias_hh_l0.copy_(0.75 * bias)
    _, (last, _) = theirs(x)
    assert torch.allclose(net.apply(theta, x), last[0], rtol=0, atol=1e-12)
    (last[0] * seen).sum().backward()
    ours = grad(lambda theta: (net.apply(theta, x) * seen).sum())(theta)
    wanted = dict(zip(theta, (theirs.weight_ih_l0.grad, theirs.weight_hh_l0.grad, theirs.bias_ih_l0.grad), strict=True))
    scale = max(1.0, max(float(g.abs().max()) for g in wanted.values()))
    assert worst(ours, wanted) < 1e-12 * scale
    assert float(wanted[list(theta)[0]].abs().max()) > 1e-3


# fusions ----------------------------------------------------------------------------------------


WIDTHS = {"concat": (3, 2, 3, 3), "concat_mlp": (3, 2, 3, 3), "sum": (5, 5, 5, 5), "logits": (4, 4, 4, 4)}


def setting(name, batch=6):
    """A fusion, its parameters and four parties' embeddings."""
    net = fusion(name, WIDTHS[name], 4)
    views = [drawn(batch, width, seed=20 + m) for m, width in enumerate(WIDTHS[name])]
    return net, net.init(stream(0, "init"), DOUBLE), views


def test_fusions_by_hand():
    for name in FUSIONS:
        net, theta0, views = setting(name)
        z, p = net.combine(views), list(theta0.values())
        assert net.sums == (name in ("sum", "logits"))
        side_by_side, added = torch.cat(views, 1), sum(views) if net.sums else None
        assert torch.equal(z, added if net.sums else side_by_side)
        wanted = {
            "concat": lambda p=p, s=side_by_side: s @ p[0].T + p[1],
            "concat_mlp": lambda p=p, s=side_by_side: (s @ p[0].T + p[1]).clamp(min=0) @ p[2].T + p[3],
            "sum": lambda p=p, a=added: a @ p[0].T + p[1],
            "logits": lambda a=added: a,
        }[name]()
        assert torch.allclose(net.apply(theta0, z), wanted, rtol=0, atol=1e-12)
        assert torch.allclose(functional_call(net.module.double(), theta0, (z,)), wanted, rtol=0, atol=1e-12)
    assert [fusion(name, WIDTHS[name], 4).size for name in FUSIONS] == [48, 11 * 128 + 128 + 128 * 4 + 4, 24, 0]


# bad arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "name", "sizes", "words"),
    [
        (tower, "vgg", (4,), "tower: got 'vgg'"), (tower, "cnn", (8, 8), "shape: .*channels, height, width"),
        (tower, "mvcnn", (3, 8, 8), "shape: .*views, channels"), (tower, "lstm", (8,), "shape: .*steps"),
        (fusion, "mean", (2, 2), "fusion: got 'mean'"), (fusion, "sum", (2, 3), "widths: .*equal"),
        (fusion, "logits", (2, 2), "widths: .*3"),
    ],
)  # fmt: skip
def test_networks_that_cannot_be(make, name, sizes, words):
    with pytest.raises(ValueError, match=f"^{words}"):
        make(name, sizes, 3)


def test_sizes_and_activations_are_checked():
    for make, words in (
        (lambda: tower("mlp", (4,), 3, activation="relu"), "activation: got 'relu'"),
        (lambda: tower("mlp", (4,), 0), "width: got 0"),
        (lambda: fusion("sum", [], 3), "widths: got"),
        (lambda: fusion("concat", [2, 0], 3), "widths: got 0"),
        (lambda: fusion("concat", [2, 2], 0), "classes: got 0"),
    ):
        with pytest.raises(ValueError, match=words):
            make()

"""Models: sizes, body and head, stacks of clients, rows that do not see each other."""

from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedbook.federation import Rows
from fedbook.federation.local import each_client, epochs, local_steps, sgd
from fedbook.learning.models import MODELS, Model, cross_entropy, model, stack
from fedbook.learning.resnets import GroupBlock
from fedbook.partition import Partition
from fedbook.randomness import stream

DOUBLE = torch.float64
DIGIT, MNIST, COLOUR = (1, 8, 8), (1, 28, 28), (3, 32, 32)

COUNTS = [  # model, images, classes, parameters of the body and of the head
    ("linear", MNIST, 10, 0, 7_850),
    ("mlp", MNIST, 10, 50_240, 650),
    ("mlp16", DIGIT, 10, 1_040, 170),  # the DP2-FedSAM specification's model for digits
    ("mlp16", MNIST, 10, 12_560, 170),
    ("mlp32", MNIST, 10, 25_120, 330),
    ("mlp_fedavg", MNIST, 10, 197_200, 2_010),
    ("cnn", MNIST, 10, 4_800, 15_690),
    ("cnn_small", MNIST, 10, 3_456, 330),
    ("cnn_fedavg", MNIST, 10, 1_658_240, 5_130),
    ("cnn_dp2fedsam", COLOUR, 10, 666_112, 1_290),  # as the DP2-FedSAM paper prints them
    ("cnn_dp2fedsam", MNIST, 10, 468_352, 1_290),
    ("resnet18", COLOUR, 10, 11_168_832, 5_130),
    ("resnet18_imagenet", COLOUR, 10, 11_176_512, 5_130),  # torchvision's with 10 outputs, as that paper prints them
    ("resnet18_imagenet", (1, 28, 28), 62, 11_170_240, 31_806),  # grey FEMNIST with all its classes
]


@pytest.mark.parametrize(("name", "shape", "classes", "body", "head"), COUNTS)
def test_parameter_counts(name, shape, classes, body, head):
    net = model(name, shape, classes)
    parts = net.split(dict(net.module.named_parameters()))
    assert [sum(p.numel() for p in part.values()) for part in parts] == [body, head]
    assert net.size == body + head
    if shape != DIGIT and classes == 10:
        assert f"{body:,} + {head:,}" in " ".join(model.__doc__.split())


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("name", MODELS)
def test_the_least_image_is_stated_exactly(name):
    kind = MODELS[name]
    for height, width in ((kind.side, kind.side), (kind.side, kind.side + 3), (kind.side + 1, kind.side)):
        net = model(name, (2, height, width), 3)
        assert net.module(torch.zeros(2, 2, height, width)).shape == (2, 3)
    if kind.side > 1:
        for small in ((2, kind.side - 1, 40), (2, 40, kind.side - 1)):
            with pytest.raises(ValueError, match=f"^shape: got .*; allowed is images of at least {kind.side} x"):
                model(name, small, 3)
            with pytest.raises(RuntimeError):  # it would not work
                kind.build(*small, 3)(torch.zeros(1, *small))


@pytest.mark.parametrize("name", MODELS)
def test_body_and_head_make_the_model(name):
    side = max(MODELS[name].side, 6)
    net = model(name, (2, side, side), 3)
    theta = net.init(stream(0, "init"), DOUBLE)
    x = torch.from_numpy(stream(0, "x").normal(size=(4, 2, side, side)))
    body, head = net.split(theta)
    features = net.features(body, x)
    weight, bias = (head[key] for key in net.head_names)
    logits = net.apply(theta, x)
    assert features.shape == (4, weight.shape[1]) and logits.shape == (4, 3)
    assert torch.equal(net.classify(head, features), logits)
    assert torch.allclose(features @ weight.T + bias, logits, rtol=0, atol=1e-12)
    assert not list(net.module.buffers())  # no state but the parameters: nothing else could leave a client
    inner = net.module[:-1](x.float())
    assert (name == "linear") == torch.equal(inner, x.float().flatten(1))


def toy(shape):
    """Three clients with 3, 5 and 4 images."""
    rng = stream(0, "toy")
    split = Partition.from_lists([[0, 1, 2], [3, 4, 5, 6, 7], [8, 9, 10, 11]])
    x, y = torch.from_numpy(rng.normal(size=(12, *shape))), torch.from_numpy(rng.integers(0, 3, 12))
    return Rows({"x": x, "y": y}, split.table, split.sizes)


def trained(net, data, how, chunk):
    theta = stack([net.init(stream(0, "init", client=k), DOUBLE) for k in range(3)])
    batches = epochs(data, [stream(0, "batches", 0, k) for k in range(3)], 1, 5)
    step = sgd(cross_entropy(net.apply, net.layers), 0.1)
    carry, _ = local_steps(step, {"theta": theta}, data, batches, how=how, chunk=chunk)
    return carry["theta"]


@pytest.mark.parametrize("name", ["cnn", "cnn_small", "cnn_fedavg", "cnn_dp2fedsam", "resnet18"])
def test_a_stack_of_clients_is_the_loop_in_any_chunks(name):
    shape = (1, max(MODELS[name].side, 5), max(MODELS[name].side, 6))
    net, data = model(name, shape, 3), toy(shape)
    alone = trained(net, data, "loop", None)
    assert all(bool((alone[key][0] != alone[key][1]).any()) for key in alone)
    for chunk in (2,) if name.startswith("resnet") else (1, 2, 3):
        together = trained(net, data, "vmap", chunk)
        worst = max(float((alone[key] - together[key]).abs().max()) for key in alone)
        assert worst < 1e-11, worst
    last = trained(net, data, "channels_last", None)
    assert all(torch.allclose(alone[key], last[key], rtol=0, atol=1e-11) for key in alone)


def laid(theta):
    last = torch.channels_last
    return {key: p.is_contiguous(memory_format=last) for key, p in theta.items() if p.ndim == 4}


def test_channels_last_is_how_the_weights_lie_while_they_are_trained():
    """And only then: what comes back is contiguous, what went in stays."""
    net, data = model("cnn", (3, 8, 8), 3), toy((3, 8, 8))
    theta = stack([net.init(stream(0, "init", client=k), DOUBLE) for k in range(3)])
    before, seen, step = {key: p.clone() for key, p in theta.items()}, [], sgd(cross_entropy(net.apply), 0.1)

    def watched(carry, batch):
        seen.append(laid(carry["theta"]))
        return step.direction(carry, batch)

    batches = epochs(data, [stream(0, "batches", 0, k) for k in range(3)], 1, 5)
    carry, _ = local_steps(replace(step, direction=watched), {"theta": theta}, data, batches, how="channels_last")
    assert seen == [{"0.weight": True, "3.weight": True}] * 3
    assert all(p.is_contiguous() for p in carry["theta"].values())
    assert all(torch.equal(theta[key], before[key]) for key in theta)


@pytest.mark.parametrize(("how", "chunk"), [("vmap", None), ("vmap", 2), ("loop", None), ("channels_last", None)])
def test_each_client_answers_by_its_own_parameters(how, chunk):
    net, seen = model("cnn", (3, 8, 8), 3), []
    theta = stack([net.init(stream(0, "init", client=k), DOUBLE) for k in range(3)])
    x = torch.from_numpy(stream(0, "x").normal(size=(3, 4, 3, 8, 8)))

    def answer(own, x):
        if how != "vmap":
            seen.append(laid(own))
        return net.apply(own, x)

    found = each_client(answer, theta, x, how=how, chunk=chunk)
    alone = torch.stack([net.apply({key: p[k] for key, p in theta.items()}, x[k]) for k in range(3)])
    assert torch.allclose(found, alone, rtol=0, atol=1e-12)
    last = how == "channels_last"
    assert seen == ([] if how == "vmap" else [{"0.weight": last, "3.weight": last}] * 3)


def test_a_residual_block_by_hand():
    block = GroupBlock(64, 128, 2).double()
    x = torch.from_numpy(stream(0, "x").normal(size=(2, 64, 5, 6)))

    def norm(v, layer):
        """32 groups of channels, each of mean 0 and variance 1 within a row."""
        grouped = v.view(len(v), 32, -1)
        centred = grouped - grouped.mean(-1, keepdim=True)
        scaled = (centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()).view(v.shape)
        return scaled * layer.weight[:, None, None] + layer.bias[:, None, None]

    for layer in block.modules():
        if isinstance(layer, nn.GroupNorm):
            nn.init.normal_(layer.weight), nn.init.normal_(layer.bias)
    inner = norm(nn.functional.conv2d(x, block.first[0].weight, stride=2, padding=1), block.first[1]).clamp(min=0)
    outer = norm(nn.functional.conv2d(inner, block.second[0].weight, padding=1), block.second[1])
    past = norm(nn.functional.conv2d(x, block.shortcut[0].weight, stride=2), block.shortcut[1])
    assert torch.allclose(block(x), (outer + past).clamp(min=0), rtol=0, atol=1e-10)
    same = GroupBlock(64, 64, 1).double()
    nn.init.zeros_(same.second[1].weight)
    assert torch.equal(same(x), x.clamp(min=0))


def twice():
    act = nn.Tanh()
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), act, nn.Linear(5, 4), act)


def shared_layer():
    same = nn.Linear(6, 6)
    return nn.Sequential(nn.Flatten(), same, nn.ReLU(), same)


NETWORKS = {  # what a dense network may also be: one object in two places, no bias, another way to flatten
    "an activation twice": twice,
    "a layer twice": shared_layer,
    "no bias": lambda: nn.Sequential(nn.Flatten(), nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 4)),
    "flattened in part": lambda: nn.Sequential(nn.Flatten(2), nn.Linear(3, 4)),
}


def test_the_last_layer_is_the_head_whatever_it_is_called():
    layers = {"flat": nn.Flatten(), "body": nn.Linear(6, 5), "head": nn.Linear(5, 4)}
    net = Model.of("mine", lambda: nn.Sequential(OrderedDict(layers)))
    theta = net.init(stream(0, "init"))
    body, head = net.split(theta)
    x = torch.randn(2, 1, 2, 3, generator=torch.Generator().manual_seed(0))
    assert set(head) == {"head.weight", "head.bias"} and set(body) == {"body.weight", "body.bias"}
    assert torch.equal(net.classify(head, net.features(body, x)), net.apply(theta, x))


@pytest.mark.parametrize("build", [lambda: nn.Bilinear(2, 2, 2), nn.Sequential])
def test_a_model_that_is_no_sequence_of_layers_is_refused(build):
    with pytest.raises(TypeError, match="^build: got .*nn.Sequential of layers"):
        Model.of("mine", build)


def test_a_model_of_one_s_own_is_told_by_its_layers():
    forms = {Model.of("mine", build).form for build in NETWORKS.values()}
    assert len(forms) == len(NETWORKS) and Model.of("mine", twice).head_names == ()
    assert model("linear", (1, 8, 8), 10).form == "linear"


@pytest.mark.parametrize("build", NETWORKS.values(), ids=NETWORKS)
def test_networks_side_by_side_are_each_network_as_declared(build):
    net = Model.of("mine", build)
    each = [net.init(stream(r, "init"), DOUBLE) for r in range(3)]
    x = torch.randn(3, 2, 2, 1, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
    together = net.apply_each(stack(each), x)
    alone = torch.stack([net.apply(own, rows) for own, rows in zip(each, x, strict=True)])
    assert together.shape == alone.shape and torch.allclose(together, alone, rtol=0, atol=1e-12)
    assert net.layers == ()

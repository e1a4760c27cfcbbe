"""BYOL's and SimSiam's objective against PyTorch's modules, and what a layer makes of images."""

import copy

import pytest
import torch
from torch import nn
from torch.func import grad
from torch.nn.functional import cosine_similarity

from fedbook.learning.encoders import RUNNING, encoder
from fedbook.learning.online import LAYERS, online, only_predictor, with_predictor, without_predictor
from fedbook.randomness import normal, stream

SHAPE, WIDTH, HIDDEN = (1, 5, 5), 6, 9
ALL = [(loss, directions, projector) for loss in ("byol", "simsiam") for directions in ("sum", "mean")
       for projector in ("batch_norm", "mlp")]  # fmt: skip


def network(loss="byol", directions="sum", projector="batch_norm", name="mlp"):
    return online(encoder(name, SHAPE, WIDTH, projector), HIDDEN, loss, directions)


def started(net, seed=0):
    """Parameters of which none is 0 or 1, running statistics too; with a target where it moves."""
    theta = net.init(stream(seed, "init"), torch.float64)
    theta = {n: p + 0.1 * normal(p.shape, stream(seed, n)).abs() for n, p in theta.items()}
    if net.moving:
        slow = net.init(stream(seed + 100, "init"), torch.float64)
        return theta, without_predictor(slow)
    return theta, None


def views(samples=7, count=4, seed=0):
    return normal((samples, count, *SHAPE), stream(seed, "views"))


def gap(a, b):
    return float((a - b).detach().abs().max())


def modules(net, theta):
    """Backbone, projector and predictor out of PyTorch's own layers."""
    whole = net.encoder.build().double()
    whole.load_state_dict(without_predictor(theta))
    head = net.predictor.build().double()
    head.load_state_dict(only_predictor(theta))

    def plain(module):
        if not net.encoder.normalised:
            return module
        norm = nn.BatchNorm1d(module.first.out_features).double()
        names = {"weight": "weight", "bias": "bias", "running_mean": "running_mean", "running_variance": "running_var"}
        norm.load_state_dict({to: getattr(module.norm, name) for name, to in names.items()}, strict=False)
        return nn.Sequential(module.first, norm, nn.ReLU(), module.second)

    return whole[0], plain(copy.deepcopy(whole[1])), plain(head)


def by_hand(net, theta, slow, x):
    """The mean over samples and pairs of both directions; all views of a batch pass together."""
    backbone, projector, predictor = modules(net, theta)
    n, count = x.shape[:2]
    z = projector(backbone(x.flatten(0, 1)))
    p = predictor(z).unflatten(0, (n, count))
    target = z
    if net.moving:
        body, head, _ = modules(net, with_predictor(slow, only_predictor(theta)))
        target = head(body(x.flatten(0, 1)))
    target = target.detach().unflatten(0, (n, count))
    total = 0.0
    for i in range(n):
        for v in range(count // 2):
            for a, b in ((v, v + count // 2), (v + count // 2, v)):
                cosine = cosine_similarity(p[i, a], target[i, b], dim=0)
                total = total + (2 - 2 * cosine if net.moving else -cosine)
    total = total / (n * count // 2)
    return (total if net.directions == "sum" else total / 2), (backbone, projector, predictor)


@pytest.mark.parametrize(("loss", "directions", "projector"), ALL)
def test_objective_is_that_of_pytorch(loss, directions, projector):
    net = network(loss, directions, projector)
    theta, slow = started(net)
    x, weight = views(), torch.ones(7, dtype=torch.float64)
    more = {} if slow is None else {"target": slow}

    def value(theta):
        return net.objective({**theta, **more}, x, weight)[0]

    expected, parts = by_hand(net, theta, slow, x)
    assert gap(value(theta), expected) < 1e-12
    expected.backward()
    found = grad(value)(theta)
    names = {"backbone.": parts[0], "projector.": parts[1], "predictor.": parts[2]}
    seen = net.objective({**theta, **more}, x, weight)[1]
    assert set(seen) == ({f"{part}.{n}" for part in ("projector", "predictor") for n in RUNNING}
                         if projector == "batch_norm" else set())  # fmt: skip
    for prefix, module in names.items():
        for name, p in module.named_parameters():
            ours = name if prefix == "backbone." or projector == "mlp" else name.replace("0.", "first.").replace(
                "1.", "norm.").replace("3.", "second.")  # fmt: skip
            assert gap(found[prefix + ours], p.grad) < 1e-9, prefix + name
    for part, module in (("projector", parts[1]), ("predictor", parts[2])):
        if projector == "batch_norm":  # PyTorch's running statistics after one batch
            for name, theirs in zip(RUNNING, (module[1].running_mean, module[1].running_var), strict=True):
                assert gap(theta[f"{part}.{name}"].lerp(seen[f"{part}.{name}"], 0.1), theirs) < 1e-12
    for name in found:
        if "running" in name:
            assert float(found[name].abs().max()) == 0


@pytest.mark.parametrize("projector", ["batch_norm", "mlp"])
@pytest.mark.parametrize("mode", ["running", "batch"])
def test_what_a_layer_makes_of_images(projector, mode):
    net = network(projector=projector, name="cnn_s")
    theta, _ = started(net)
    x = normal((8, *SHAPE), stream(0, "images"))
    parts = [m.train(mode == "batch") for m in modules(net, theta)]
    weight = torch.ones(8, dtype=torch.float64) if mode == "batch" else None
    h = parts[0](x)
    expected = {"encoder": h, "projector": parts[1](h)}
    expected["predictor"] = parts[2](expected["projector"])
    assert set(expected) == set(LAYERS)
    for layer in LAYERS:
        a, seen = net.represent(theta, x, layer, weight)
        again, same = net.represent_features(theta, net.encoder.features(theta, x), layer, weight)
        assert gap(a, expected[layer]) < 1e-11 and torch.equal(a, again) and set(seen) == set(same)
        deep = {"encoder": (), "projector": ("projector",), "predictor": ("projector", "predictor")}[layer]
        counted = projector == "batch_norm" and mode == "batch"
        assert set(seen) == ({f"{part}.{n}" for part in deep for n in RUNNING} if counted else set())
        if mode == "running":  # a function of one image
            assert gap(net.represent(theta, x[[3]], layer)[0][0], a[3]) < 1e-12
    assert torch.equal(net.represent(theta, x)[0], net.represent(theta, x, "predictor")[0])

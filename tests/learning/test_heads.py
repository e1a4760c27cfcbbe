"""Heads with batch normalisation against PyTorch's own layers, and rows that only fill up a batch."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from fedbook.learning.encoders import KEEP, RUNNING, NormalisedHead, encoder, in_batch
from fedbook.learning.models import stack
from fedbook.randomness import normal, stream

IN, HIDDEN, OUT = 5, 7, 3


def head():
    """A head whose entries are all different, running statistics too."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = NormalisedHead(nn.Linear(IN, HIDDEN), nn.Linear(HIDDEN, OUT)).double()
    rng = stream(0, "head")
    with torch.no_grad():
        module.norm.weight.copy_(1 + 0.3 * normal((HIDDEN,), rng))
        module.norm.bias.copy_(0.5 * normal((HIDDEN,), rng))
        module.norm.running_mean.copy_(normal((HIDDEN,), rng))
        module.norm.running_variance.copy_(normal((HIDDEN,), rng).square() + 0.2)
    return module


def by_torch(module):
    norm = nn.BatchNorm1d(HIDDEN).double()
    norm.load_state_dict(
        {"weight": module.norm.weight, "bias": module.norm.bias, "running_mean": module.norm.running_mean,
         "running_var": module.norm.running_variance, "num_batches_tracked": torch.tensor(0)}
    )  # fmt: skip
    return nn.Sequential(copy.deepcopy(module.first), norm, nn.ReLU(), copy.deepcopy(module.second))


def batch(rows=9, seed=0, shape=()):
    return 2 + 3 * normal((*shape, rows, IN), stream(seed, "batch"))


def parameters(module):
    return {name: p.detach().clone() for name, p in module.named_parameters()}


def gap(a, b):
    return float((a - b).detach().abs().max())


def test_training_is_pytorch_s_over_several_steps():
    """The same outputs, and running statistics kept as the step keeps them are PyTorch's after each batch."""
    ours = head()
    theirs, theta = by_torch(ours).train(), parameters(ours)
    for t in range(4):
        x = batch(rows=(9, 2, 5, 30)[t], seed=t)
        z, seen = in_batch(ours, theta, x, torch.ones(len(x), dtype=x.dtype))
        assert gap(z, theirs(x)) < 1e-11 and set(seen) == set(RUNNING)
        for name in RUNNING:
            theta[name] = theta[name].lerp(seen[name], 1 - KEEP)
        assert gap(theta["norm.running_mean"], theirs[1].running_mean) < 1e-12
        assert gap(theta["norm.running_variance"], theirs[1].running_var) < 1e-12
    evaluated = functional_call(ours, theta, (batch(seed=9),), strict=True)
    assert gap(evaluated, theirs.eval()(batch(seed=9))) < 1e-11


def test_gradients_are_those_of_pytorch():
    """Through the batch's own mean and variance; running statistics have none, in neither mode a trained one."""
    ours, x = head(), batch()
    theirs, direction = by_torch(ours).train(), normal((len(x), OUT), stream(1, "direction"))

    def value(theta, x):
        return (in_batch(ours, theta, x, torch.ones(len(x), dtype=x.dtype))[0] * direction).sum()

    found, to_x = grad(value, argnums=(0, 1))(parameters(ours), x)
    leaf = x.clone().requires_grad_()
    (theirs(leaf) * direction).sum().backward()
    pairs = {"first": theirs[0], "norm": theirs[1], "second": theirs[3]}
    for part, module in pairs.items():
        for name in ("weight", "bias"):
            assert gap(found[f"{part}.{name}"], getattr(module, name).grad) < 1e-10, (part, name)
    assert gap(to_x, leaf.grad) < 1e-10
    assert all(float(found[name].abs().max()) == 0 for name in RUNNING)
    assert gap(found["first.bias"], torch.zeros(HIDDEN)) < 1e-10  # the batch's mean takes it away
    assert torch.autograd.gradcheck(lambda x: in_batch(ours, parameters(ours), x, torch.ones(9))[0], (leaf,))


@pytest.mark.parametrize("garbage", [0.0, 1e3])
def test_filling_rows_are_in_no_statistic(garbage):
    ours, x = head(), batch()
    theta, weight = parameters(ours), torch.ones(12, dtype=torch.float64)
    places = torch.tensor([0, 4, 11])  # anywhere, not only at the end
    weight[places] = 0
    filled = torch.full((12, IN), garbage, dtype=torch.float64)
    filled[weight > 0] = x
    z, seen = in_batch(ours, theta, filled, weight)
    alone, expected = in_batch(ours, theta, x, torch.ones(9, dtype=torch.float64))
    assert gap(z[weight > 0], alone) < 1e-10
    assert all(gap(seen[name], expected[name]) < 1e-10 for name in RUNNING)

    def loss(theta, x, weight):
        return (in_batch(ours, theta, x, weight)[0] * weight[:, None]).square().sum()

    a, to_x = grad(loss, argnums=(0, 1))(theta, filled, weight)
    b = grad(loss)(theta, x, torch.ones(9, dtype=torch.float64))
    assert all(gap(a[name], b[name]) < 1e-8 for name in a)
    assert float(to_x[places].abs().max()) == 0


def test_clients_side_by_side_are_a_loop():
    clients = encoder("mlp", (1, 4, 4), 6, "batch_norm").module[1]
    draws = [{n: normal(p.shape, stream(k, n)).square() for n, p in clients.named_parameters()} for k in range(3)]
    x = normal((3, 8, 64), stream(0, "x"))
    weight = torch.ones(3, 8, dtype=torch.float64)
    weight[1, 5:] = weight[2, 0] = 0

    def one(theta, x, weight):
        return in_batch(clients, theta, x, weight)

    z, seen = vmap(one)(stack(draws), x, weight)
    slopes = vmap(grad(lambda *a: one(*a)[0].sin().sum()))(stack(draws), x, weight)
    for k, theta in enumerate(draws):
        expected, found = one(theta, x[k], weight[k])
        assert gap(z[k], expected) < 1e-10
        assert all(gap(seen[name][k], found[name]) < 1e-10 for name in RUNNING)
        slope = grad(lambda *a: one(*a)[0].sin().sum())(theta, x[k], weight[k])
        assert all(gap(slopes[name][k], slope[name]) < 1e-8 * (1 + float(slope[name].abs().max())) for name in slope)


def test_in_mixed_precision_statistics_are_in_full_precision():
    net = encoder("mlp", (1, 4, 4), 6, "batch_norm")
    theta = net.init(stream(0, "init"))
    h = torch.rand(32, 64, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        z, seen = net.project_batch(theta, h, torch.ones(32))
    exact, expected = net.project_batch(theta, h, torch.ones(32))
    assert all(s.dtype == torch.float32 for s in seen.values())
    assert gap(z.float(), exact) < 0.1 * float(exact.std()) + 0.05
    for name in seen:
        assert torch.allclose(seen[name], expected[name], rtol=0.02, atol=0.02)

"""Towers and fusions: against formulas and PyTorch's own layers, stacks against loops, one block among the others."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from fedbook.learning.models import MODELS, Model, Network, model, stack
from fedbook.papers.cvfl.towers import ACTIVATIONS, FUSIONS, TOWERS, Fusion, fusion, tower
from fedbook.randomness import stream

DOUBLE = torch.float64
SHAPES = {
    "linear": (3, 2), "mlp": (6,), "mlp64": (1, 2, 3), "cnn": (2, 4, 6), "resnet18": (1, 4, 5),
    "resnet18_imagenet": (2, 5, 4), "mvcnn": (3, 2, 5, 4), "lstm": (7, 3),
}  # fmt: skip
LIGHT = [name for name in TOWERS if not name.startswith("resnet")]
NAN = math.nan


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
    assert isinstance(net, Network) and not isinstance(net, Model)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("name", TOWERS)
def test_a_stack_of_parties_is_the_loop_over_modules(name, activation):
    """Gradients by vmap over stacked parameters against backward through PyTorch's modules, party after party."""
    rows, width = (2 if name.startswith("resnet") else 3), 4
    net = tower(name, SHAPES[name], width, activation)
    thetas = [net.init(stream(1, "init", client=r), DOUBLE) for r in range(rows)]
    x, target = drawn(rows, 5, *SHAPES[name]), drawn(rows, 5, width, seed=1)

    def loss(theta, x, target):
        return (net.apply(theta, x) - target).square().sum()

    together = vmap(grad(loss))(stack(thetas), x, target)
    for r in range(rows):
        module = net.build().double()
        module.load_state_dict(thetas[r])
        (module(x[r]) - target[r]).square().sum().backward()
        alone = {key: p.grad for key, p in module.named_parameters()}
        assert alone.keys() == together.keys()
        assert worst(alone, {key: g[r] for key, g in together.items()}) < 1e-10
        assert all(float(g.abs().max()) > 1e-6 for g in alone.values())


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("name", TOWERS)
def test_float32_follows_float64(name, activation):
    net = tower(name, SHAPES[name], 4, activation)
    theta, x = net.init(stream(2, "init"), DOUBLE), drawn(6, *SHAPES[name])
    exact = net.apply(theta, x)
    single = net.apply({key: p.float() for key, p in theta.items()}, x.float())
    assert single.dtype == torch.float32 and exact.dtype == DOUBLE and exact.shape == single.shape == (6, 4)
    assert 0 < float((single - exact).abs().max()) < 1e-4


@pytest.mark.parametrize("name", TOWERS)
def test_towers_have_no_state_and_mix_no_rows(name):
    net = tower(name, SHAPES[name], 4)
    theta, x = net.init(stream(3, "init"), DOUBLE), drawn(5, *SHAPES[name])
    before, own = copy.deepcopy(theta), copy.deepcopy(dict(net.module.named_parameters()))
    whole = net.apply(theta, x)
    assert torch.equal(net.apply(theta, x), whole)  # what was sent is what is recomputed
    assert torch.allclose(net.apply(theta, x[1:3]), whole[1:3], rtol=0, atol=1e-12)
    assert not list(net.module.buffers()) and not any(isinstance(m, nn.Dropout) for m in net.module.modules())
    assert worst(before, theta) == 0 and worst(own, dict(net.module.named_parameters())) == 0


@pytest.mark.parametrize("name", TOWERS)
def test_fresh_parameters_depend_on_their_stream_alone(name):
    net = tower(name, SHAPES[name], 4)
    state = torch.get_rng_state()
    first, again, other = (net.init(stream(seed, "init")) for seed in (4, 4, 5))
    tower(name, SHAPES[name], 4)
    assert torch.equal(state, torch.get_rng_state())
    assert worst(first, again) == 0 < worst(first, other)


@pytest.mark.parametrize("name", LIGHT)
def test_tanh_bounds_the_embedding_and_linear_does_not(name):
    bounded, free = (tower(name, SHAPES[name], 4, word) for word in ("tanh", "linear"))
    theta = {key: 8 * p for key, p in bounded.init(stream(6, "init"), DOUBLE).items()}
    x = 100 * drawn(50, *SHAPES[name])
    h, raw = bounded.apply(theta, x), free.apply(theta, x)
    assert float(h.abs().max()) <= 1 and float(h.min()) < -0.5 and float(h.max()) > 0.5
    if name == "lstm":  # bounded by itself: another tanh would squeeze it into +-0.76
        assert torch.equal(h, raw)
    else:
        assert float(raw.abs().max()) > 2 and torch.allclose(h, raw.tanh(), rtol=0, atol=1e-12)


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


@pytest.mark.parametrize("name", ["cnn", "resnet18", "resnet18_imagenet"])
def test_image_towers_are_the_models_with_width_outputs(name):
    net, other = tower(name, (2, 5, 6), 3, "linear"), model(name, (2, 5, 6), 3)
    theta, x = net.init(stream(0, "init"), DOUBLE), drawn(2, 2, 5, 6)
    assert torch.equal(net.apply(theta, x), other.apply(theta, x))


@pytest.mark.parametrize(("name", "front"), [("cnn", (2,)), ("mvcnn", (3, 2))])
def test_the_least_image_is_stated_exactly(name, front):
    assert TOWERS[name].side == MODELS["cnn"].side == 4 and "from 4x4 on" in tower.__doc__
    for sides in ((4, 4), (4, 7)):
        net = tower(name, (*front, *sides), 3)
        assert net.apply(net.init(stream(0, "init"), DOUBLE), drawn(2, *front, *sides)).shape == (2, 3)
    for sides in ((3, 8), (8, 3)):
        with pytest.raises(ValueError, match=f"^shape: got .*; allowed is images of at least 4 x 4 for {name}"):
            tower(name, (*front, *sides), 3)


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


def test_views_have_no_order_and_repeating_one_changes_nothing():
    three, four = tower("mvcnn", (3, 1, 6, 6), 4), tower("mvcnn", (4, 1, 6, 6), 4)
    theta, x = three.init(stream(0, "init"), DOUBLE), drawn(5, 3, 1, 6, 6)

    def slope(net, x):
        return grad(lambda theta: net.apply(theta, x).square().sum())(theta)

    turned, again = x[:, [2, 0, 1]], x[:, [0, 1, 2, 1]]
    assert torch.allclose(three.apply(theta, turned), three.apply(theta, x), rtol=0, atol=1e-12)
    assert torch.allclose(four.apply(theta, again), three.apply(theta, x), rtol=0, atol=1e-12)
    for net, views in ((three, turned), (four, again)):
        assert worst(slope(net, views), slope(three, x)) < 1e-12
    single = tower("mvcnn", (1, 1, 6, 6), 4)
    alone = dict(zip(tower("cnn", (1, 6, 6), 4).init(stream(0, "init")), theta.values(), strict=True))
    assert torch.allclose(
        single.apply(theta, x[:, :1]), tower("cnn", (1, 6, 6), 4).apply(alone, x[:, 0]), rtol=0, atol=1e-12
    )


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


def test_a_fresh_lstm_remembers():
    width = 256
    theta = tower("lstm", (3, 50), width).init(stream(0, "init"), DOUBLE)
    inward, across, bias = theta.values()
    assert torch.equal(bias.reshape(4, width).sum(1), torch.tensor([0.0, width, 0, 0], dtype=DOUBLE))
    for weight in (inward, across):  # uniform in +-1/16: deviation 1/(16 sqrt 3)
        assert float(weight.abs().max()) <= 1 / 16
        assert abs(float(weight.std()) * 16 * math.sqrt(3) - 1) < 0.02


# fusions ----------------------------------------------------------------------------------------


def others_of(net, views, m):
    """What party m puts its block to: all embeddings side by side, or the sum of the others'."""
    return sum(h for j, h in enumerate(views) if j != m) if net.sums else torch.cat(views, 1)


WIDTHS = {"concat": (3, 2, 3, 3), "concat_mlp": (3, 2, 3, 3), "sum": (5, 5, 5, 5), "logits": (4, 4, 4, 4)}


def setting(name, batch=6):
    """A fusion, its parameters, four parties' embeddings and labels."""
    net = fusion(name, WIDTHS[name], 4)
    views = [drawn(batch, width, seed=20 + m) for m, width in enumerate(WIDTHS[name])]
    return net, net.init(stream(0, "init"), DOUBLE), views, torch.arange(batch) % 4


def test_fusions_by_hand():
    for name in FUSIONS:
        net, theta0, views, _ = setting(name)
        z, p = net.combine(views), list(theta0.values())
        assert isinstance(net, Fusion) and isinstance(net, Network) and (net.name, net.classes) == (name, 4)
        assert net.widths == WIDTHS[name] and z.shape == (6, net.input_width)
        assert net.size == sum(v.numel() for v in p) and net.sums == (name in ("sum", "logits"))
        side_by_side, added = torch.cat(views, 1), sum(views) if net.sums else None
        wanted = {
            "concat": lambda p=p, s=side_by_side: s @ p[0].T + p[1],
            "concat_mlp": lambda p=p, s=side_by_side: (s @ p[0].T + p[1]).clamp(min=0) @ p[2].T + p[3],
            "sum": lambda p=p, a=added: a @ p[0].T + p[1],
            "logits": lambda a=added: a,
        }[name]()
        assert torch.allclose(net.apply(theta0, z), wanted, rtol=0, atol=1e-12)
        assert torch.allclose(functional_call(net.module.double(), theta0, (z,)), wanted, rtol=0, atol=1e-12)
    assert [fusion(name, WIDTHS[name], 4).size for name in FUSIONS] == [48, 11 * 128 + 128 + 128 * 4 + 4, 24, 0]
    assert setting("logits")[1] == {}


def test_the_sizes_the_paper_charges():
    """The server's weights, biases apart: 640 numbers for CIFAR-10, 163,840 and 491,520 for ModelNet10."""
    for parties, width, weights in ((4, 16, 640), (4, 4096, 163_840), (12, 4096, 491_520)):
        assert fusion("concat", [width] * parties, 10).size == weights + 10


@pytest.mark.parametrize("name", FUSIONS)
def test_stacks_of_theta0_with_and_without_vmap(name):
    net, _, views, _ = setting(name)
    thetas = [net.init(stream(s, "init"), DOUBLE) for s in range(3)]
    z = torch.stack([net.combine(views) * (s + 1) for s in range(3)])
    alone = torch.stack([net.apply(theta0, one) for theta0, one in zip(thetas, z, strict=True)])
    if name != "logits":  # which has nothing to stack
        assert torch.allclose(net.apply(stack(thetas), z), alone, rtol=0, atol=1e-12)
        assert torch.allclose(vmap(net.apply)(stack(thetas), z), alone, rtol=0, atol=1e-12)
        with pytest.raises(ValueError, match="^theta0: got .*; allowed is a weight with 2 or 4 axes"):
            net.apply(stack(thetas), z[:, None])  # seeds would meet parties
    shared = net.apply(thetas[0], z[:, None])
    assert torch.allclose(shared[:, 0], torch.stack([net.apply(thetas[0], one) for one in z]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", FUSIONS)
def test_gradients_by_theta0_are_autograd_s(name):
    net, theta0, views, y = setting(name)
    z = net.combine(views)
    ours = grad(lambda t: nn.functional.cross_entropy(net.apply(t, z), y))(theta0)
    module = net.build().double()
    module.load_state_dict(theta0)
    if theta0:
        nn.functional.cross_entropy(module(z), y).backward()
        assert worst(ours, {key: p.grad for key, p in module.named_parameters()}) < 1e-12
    else:
        assert ours == {}


@pytest.mark.parametrize("name", FUSIONS)
@pytest.mark.parametrize("how", ["vmap", "axis"])
def test_one_fresh_block_among_constant_ones(name, how):
    """Parties of equal width at different places, all at once, against torch.cat and backward, one by one."""
    net, theta0, views, y = setting(name)
    for group in {width: [m for m in range(4) if net.widths[m] == width] for width in net.widths}.values():
        fresh = [drawn(*views[m].shape, seed=40 + m) for m in group]
        columns = torch.stack([net.columns(m) for m in group])
        others = torch.stack([others_of(net, views, m) for m in group])

        def loss(own, others, columns):
            return nn.functional.cross_entropy(net.apply(theta0, net.put(others, own, columns)), y)

        if how == "vmap":
            slopes = vmap(grad(loss))(torch.stack(fresh), others, columns)
        else:
            own = torch.stack(fresh).requires_grad_()
            logits = net.apply(theta0, net.put(others, own, columns))
            nn.functional.cross_entropy(logits.flatten(0, 1), y.repeat(len(group))).mul(len(group)).backward()
            slopes = own.grad
        for slope, own, m in zip(slopes, fresh, group, strict=True):
            leaves = [(own if j == m else h).clone().requires_grad_() for j, h in enumerate(views)]
            joint = sum(leaves) if net.sums else torch.cat(leaves, 1)
            nn.functional.cross_entropy(net.apply(theta0, joint), y).backward()
            assert torch.allclose(slope, leaves[m].grad, rtol=0, atol=1e-12) and bool(slope.any())


def test_put_keeps_the_other_columns_bit_for_bit():
    net, _, views, _ = setting("concat")
    z = net.combine(views)
    odd = z.clone()
    odd[0] = NAN  # wherever a block is not replaced, its bits pass
    odd[1] = -0.0
    for m in range(4):
        mine = torch.zeros(11, dtype=torch.bool)
        mine[net.columns(m)] = True
        fresh = drawn(*views[m].shape, seed=50)
        put = net.put(odd, fresh, net.columns(m))
        assert torch.equal(put[:, mine], fresh)
        assert torch.equal(put[:, ~mine].view(torch.int64), odd[:, ~mine].view(torch.int64))
        assert torch.equal(net.put(z, views[m], net.columns(m)), z)
    assert torch.cat([net.columns(m) for m in range(4)]).tolist() == list(range(11))
    for name in ("sum", "logits"):
        net, _, views, _ = setting(name)
        others = others_of(net, views, 1)
        assert torch.allclose(net.put(others, views[1], net.columns(1)), net.combine(views), rtol=0, atol=1e-12)
        assert torch.equal(net.put(others, views[0], net.columns(1)), others + views[0])


@pytest.mark.parametrize("name", FUSIONS)
def test_gradients_flow_into_the_own_block_alone(name):
    net, theta0, views, _ = setting(name)
    others = others_of(net, views, 2).requires_grad_()
    own = views[2].clone().requires_grad_()
    net.apply(theta0, net.put(others, own, net.columns(2))).square().sum().backward()
    assert others.grad is None and bool(own.grad.any())
    both = grad(lambda pair: net.apply(theta0, net.put(*pair, net.columns(2))).square().sum(), argnums=0)
    of_others, of_own = both((others.detach(), own.detach()))
    assert not of_others.any() and torch.allclose(of_own, own.grad, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", FUSIONS)
def test_others_that_parties_share_need_no_copies(name):
    """The batch's z once, without the axis of the parties, by vmap and by axis."""
    net, _, views, _ = setting(name)
    z, group = net.combine(views), [0, 2, 3]
    fresh, columns = torch.stack([views[m] + 1 for m in group]), torch.stack([net.columns(m) for m in group])
    alone = torch.stack([net.put(z, fresh[i], columns[i]) for i in range(3)])
    assert torch.equal(vmap(net.put, in_dims=(None, 0, 0))(z, fresh, columns), alone)
    assert torch.equal(net.put(z, fresh, columns), alone)
    same = vmap(net.put, in_dims=(0, 0, None))(z.expand(3, -1, -1), fresh, columns[0])
    assert torch.equal(same, torch.stack([net.put(z, fresh[i], columns[0]) for i in range(3)]))


@pytest.mark.parametrize("name", FUSIONS)
def test_relabelled_parties_get_the_same_logits(name):
    net, theta0, views, _ = setting(name)
    order = [2, 0, 3, 1]
    other = fusion(name, [net.widths[m] for m in order], 4)
    turned = net.permute(theta0, order)
    z = other.combine([views[m] for m in order])
    wanted = net.apply(theta0, net.combine(views))
    assert torch.allclose(other.apply(turned, z), wanted, rtol=0, atol=1e-12)
    if not net.sums:
        assert not torch.allclose(other.apply(theta0, z), wanted, rtol=0, atol=1e-3)
    back = other.permute(turned, [order.index(m) for m in range(4)])
    assert back.keys() == theta0.keys() and all(torch.equal(back[key], theta0[key]) for key in theta0)
    if theta0:
        stacked = net.permute(stack([theta0, theta0]), order)
        assert all(torch.equal(stacked[key][1], turned[key]) for key in theta0)


# bad arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shape", "width", "activation", "words"),
    [
        ("vgg", (4,), 3, "tanh", "tower: got 'vgg'"), (None, (4,), 3, "tanh", "tower: got None"),
        ("mlp", (), 3, "tanh", "shape"), ("mlp", 4, 3, "tanh", "shape"), ("mlp", "x", 3, "tanh", "shape"),
        ("mlp", None, 3, "tanh", "shape"), ("mlp", (0,), 3, "tanh", "shape"), ("mlp", (-1, 4), 3, "tanh", "shape"),
        ("mlp", (2.0,), 3, "tanh", "shape"), ("cnn", (8, 8), 3, "tanh", "shape: .*channels, height, width"),
        ("mvcnn", (3, 8, 8), 3, "tanh", "shape: .*views, channels"), ("lstm", (8,), 3, "tanh", "shape: .*steps"),
        ("lstm", (8, 0), 3, "tanh", "shape"), ("resnet18", (3, 8, 0), 3, "tanh", "shape"),
        ("mlp", (4,), 0, "tanh", "width"), ("mlp", (4,), 2.5, "tanh", "width"), ("mlp", (4,), True, "tanh", "width"),
        ("mlp", (4,), NAN, "tanh", "width"), ("mlp", (4,), 3, "relu", "activation"), ("mlp", (4,), 3, None, "activ"),
    ],
)  # fmt: skip
def test_towers_that_cannot_be(name, shape, width, activation, words):
    with pytest.raises((TypeError, ValueError), match=f"^{words}"):
        tower(name, shape, width, activation)


@pytest.mark.parametrize("name", LIGHT)
def test_a_tower_refuses_what_is_not_its_sample_or_not_its_parameters(name):
    net = tower(name, SHAPES[name], 4)
    theta, x = net.init(stream(0, "init"), DOUBLE), drawn(3, *SHAPES[name])
    for bad in (None, "x", x[0], x[..., :-1], x[..., None], x.long(), x.numpy()):
        with pytest.raises((TypeError, ValueError), match="^x: got "):
            net.apply(theta, bad)
    first = next(iter(theta))
    for bad in ({}, {key: p for key, p in theta.items() if key != first}, {**theta, "more": theta[first]}):
        with pytest.raises(RuntimeError, match=r"(?i)key"):  # never the module's own parameters instead
            net.apply(bad, x)


@pytest.mark.parametrize(
    ("name", "widths", "classes", "words"),
    [
        ("mean", (2, 2), 3, "fusion: got 'mean'"), (None, (2, 2), 3, "fusion"), ("concat", (), 3, "widths"),
        ("concat", 4, 3, "widths"), ("concat", None, 3, "widths"), ("concat", "ab", 3, "widths"),
        ("concat", (2, 0), 3, "widths"), ("concat", (2, NAN), 3, "widths"), ("concat", (2, 2), 1, "classes"),
        ("concat", (2, 2), 2.0, "classes"), ("concat", (2, 2), None, "classes"),
        ("sum", (2, 3), 3, "widths: .*equal"), ("logits", (2, 3), 3, "widths: .*equal"),
        ("logits", (2, 2), 3, "widths: .*3 classes"),
    ],
)  # fmt: skip
def test_fusions_that_cannot_be(name, widths, classes, words):
    with pytest.raises((TypeError, ValueError), match=f"^{words}"):
        fusion(name, widths, classes)


def test_a_fusion_refuses_what_does_not_fit():
    net, theta0, views, _ = setting("concat")
    z = net.combine(views)
    cases = [
        (net.apply, ({}, z), "0.weight"), (net.apply, (theta0, z[0]), "z: "), (net.apply, (theta0, z[:, :-1]), "z: "),
        (net.apply, (theta0, None), "z: "), (net.apply, (theta0, z.long()), "z: "),
        (net.combine, (views[:3],), "views: "), (net.combine, (views[::-1],), "views: "),
        (net.combine, (None,), "views: "), (net.combine, ([None] * 4,), "views: "),
        (net.columns, (4,), "party: "), (net.columns, (-1,), "party: "), (net.columns, (1.0,), "party: "),
        (net.columns, (None,), "party: "),
        (net.put, (z[:, 1:], views[0], net.columns(0)), "others, own"),
        (net.put, (z, views[0], net.columns(1)), "others, own"),
        (net.put, (z, views[0], net.columns(0)[:1]), "others, own"),
        (net.permute, (theta0, [0, 1, 2]), "order: "), (net.permute, (theta0, [0, 1, 2, 2]), "order: "),
        (net.permute, (theta0, [0, 1, 2, 4]), "order: "), (net.permute, (theta0, None), "order: "),
        (net.permute, (theta0, "0123"), "order: "), (net.init, (None,), "rng: "),
        (net.init, (stream(0, "init"), torch.int64), "dtype: "),
    ]  # fmt: skip
    for call, given, words in cases:
        with pytest.raises((TypeError, ValueError, KeyError), match=f"^'?{words}"):
            call(*given)

"""The paper's probe against Adam written out, against torch's own layers and loaders, and where it must end up."""

import numpy as np
import pytest
import torch
from torch import nn

from fedbook.learning.probe import linear_probe
from fedbook.papers.hetero_ssfl.adam_probe import adam_probe
from fedbook.randomness import stream

NAN = float("nan")


def numbers(seed, *shape):
    return torch.from_numpy(stream(seed, "test").normal(size=shape))


H, Y = numbers(0, 23, 4), torch.from_numpy(stream(1, "test").integers(0, 3, 23)) * 2 + 1  # labels 1, 3, 5
POSITION = (Y - 1) // 2


def blobs(count, seed):
    """Three classes about three far corners."""
    y = torch.from_numpy(stream(seed, "blobs").integers(0, 3, count))
    return numbers(seed, count, 2) + 12 * torch.tensor([[0, 1], [1, 0], [-1, -1]], dtype=torch.float64)[y], y


def start(widths, seed=0):
    """The initial layers, as documented: uniform within 1/sqrt(inputs), weights before bias."""
    rng, layers = stream(seed, "adam probe layers"), []
    for n, m in zip(widths[:-1], widths[1:], strict=True):
        layers += [rng.uniform(-(n**-0.5), n**-0.5, (m, n)), rng.uniform(-(n**-0.5), n**-0.5, m)]
    return layers


def test_adam_written_out():
    """Softmax regression with its gradient by hand, and Kingma and Ba's algorithm 1, in numpy."""
    h, y, lr = H.numpy(), POSITION.numpy(), 0.05
    weights, bias = start((4, 3))
    theta = np.concatenate([weights, bias[:, None]], 1)
    first, second, t = np.zeros_like(theta), np.zeros_like(theta), 0
    for epoch in range(4):
        order = stream(0, "adam probe", epoch).permutation(23)
        for rows in (order[:8], order[8:16], order[16:]):
            x = np.concatenate([h[rows], np.ones((len(rows), 1))], 1)
            odds = np.exp(x @ theta.T)
            error = odds / odds.sum(1, keepdims=True) - np.eye(3)[y[rows]]
            gradient, t = error.T @ x / len(rows), t + 1
            first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
            theta = theta - lr * (first / (1 - 0.9**t)) / (np.sqrt(second / (1 - 0.999**t)) + 1e-8)
    probe = adam_probe(H, Y, epochs=4, batch_size=8, lr=lr)
    np.testing.assert_allclose(probe.layers[0][0].numpy(), theta[:, :-1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(probe.layers[0][1].numpy(), theta[:, -1], rtol=0, atol=1e-12)
    odds = h @ theta[:, :-1].T + theta[:, -1]
    np.testing.assert_allclose(probe.scores(H).numpy(), odds, rtol=0, atol=1e-12)
    logs = odds - np.log(np.exp(odds).sum(1, keepdims=True))
    assert abs(probe.loss + logs[np.arange(23), y].mean()) < 1e-12 and probe.steps == t == 12
    assert probe.predict(H).tolist() == (1 + 2 * odds.argmax(1)).tolist()


@pytest.mark.parametrize("hidden", [0, 7])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_torch_s_layers_and_adam(hidden, dtype):
    widths = (4, 7, 3) if hidden else (4, 3)
    layers = [nn.Linear(n, m) for n, m in zip(widths[:-1], widths[1:], strict=True)]
    net = nn.Sequential(layers[0], nn.ReLU(), layers[1]) if hidden else nn.Sequential(layers[0])
    for parameter, value in zip(net.parameters(), start(widths), strict=True):
        parameter.data = torch.from_numpy(value)
    net, h = net.to(dtype), H.to(dtype)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    for epoch in range(5):
        for rows in torch.from_numpy(stream(0, "adam probe", epoch).permutation(23)).split(10):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(h[rows]), POSITION[rows]).backward()
            optimiser.step()
    probe = adam_probe(h, Y, hidden, epochs=5, batch_size=10, lr=0.01)
    close = 1e-12 if dtype == torch.float64 else 1e-5
    assert probe.scores(h).dtype == dtype and len(probe.layers) == len(layers)
    torch.testing.assert_close(probe.scores(h), net(h).detach(), rtol=0, atol=close)


def test_the_paper_s_settings_are_the_defaults():
    h, y = numbers(2, 600, 3), torch.from_numpy(stream(2, "y").integers(0, 2, 600))
    probe = adam_probe(h, y)
    assert probe.steps == 100 * 2 and len(probe.layers) == 1  # 512 and 88 rows an epoch
    named = adam_probe(h, y, hidden=0, epochs=100, batch_size=512, lr=0.003, standardise=False, seed=0)
    assert torch.equal(probe.layers[0][0], named.layers[0][0])
    shapes = [tuple(w.shape) for w, _ in adam_probe(h, y, hidden=1000, epochs=1).layers]
    assert shapes == [(1000, 3), (2, 1000)]


@pytest.mark.parametrize("hidden", [0, 30])
def test_separable_classes_are_told_apart(hidden):
    h, y = blobs(300, 0)
    test_h, test_y = blobs(200, 1)
    probe = adam_probe(h, y, hidden, batch_size=16)
    assert probe.accuracy(h, y) == 1.0 and probe.accuracy(test_h, test_y) == 1.0
    longer = adam_probe(h, y, hidden, batch_size=16, epochs=200)
    assert longer.loss < probe.loss < 0.05


def test_a_hundred_steps_go_no_further_than_their_length():
    """The paper's epochs are a hundred steps of about 0.003 for few samples: the weights hardly leave their start."""
    h, y = blobs(300, 0)
    probe, begin = adam_probe(h, y), start((2, 3))
    assert probe.steps == 100 and probe.accuracy(h, y) < 0.9
    assert 0.2 < float((probe.layers[0][0] - torch.from_numpy(begin[0])).abs().max()) < 0.4


def test_it_approaches_the_minimum():
    """With one batch and a small step: what the exact probe finds, here with a penalty of nearly none."""
    h, y = numbers(3, 200, 3), torch.from_numpy(stream(3, "y").integers(0, 3, 200))
    exact = linear_probe(h, y, l2=1e-9)
    ours = adam_probe(h, y, epochs=2_000, batch_size=200, lr=0.01)
    assert exact.loss - 1e-9 < ours.loss < exact.loss + 1e-6
    torch.testing.assert_close(ours.scores(h).softmax(1), exact.probabilities(h), rtol=0, atol=1e-3)


def test_a_hidden_layer_finds_what_no_line_divides():
    h = torch.tensor([[0.0, 0], [1, 1], [0, 1], [1, 0]]).repeat(40, 1) + 0.05 * numbers(4, 160, 2).float()
    y = torch.tensor([0, 0, 1, 1]).repeat(40)
    assert adam_probe(h, y, hidden=64, epochs=200).accuracy(h, y) == 1.0
    assert adam_probe(h, y, epochs=200).accuracy(h, y) < 0.8


def test_the_same_seed_is_the_same_probe_and_nothing_else_is_drawn():
    state = torch.get_rng_state()
    one, again, other = (adam_probe(H, Y, 5, epochs=3, batch_size=4, seed=s) for s in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    for pair, same, different in zip(one.layers, again.layers, other.layers, strict=True):
        for a, b, c in zip(pair, same, different, strict=True):
            assert torch.equal(a, b) and not torch.equal(a, c)
    assert one.loss == again.loss != other.loss


def test_standardised_features():
    """A probe of any shift and stretch of the features is the same; without standardising it is not."""
    moved = H * torch.tensor([1e-3, 1.0, 50, 7], dtype=torch.float64) + torch.tensor([5.0, -2, 0, 1e4])
    plain, stretched = (adam_probe(h, Y, epochs=5, standardise=True) for h in (H, moved))
    torch.testing.assert_close(plain.scores(H), stretched.scores(moved), rtol=0, atol=1e-8)
    by_hand = (H - H.mean(0)) / H.std(0, correction=0)
    torch.testing.assert_close(plain.scores(H), adam_probe(by_hand, Y, epochs=5).scores(by_hand), rtol=0, atol=1e-10)
    a, b = adam_probe(H, Y, epochs=5), adam_probe(moved, Y, epochs=5)
    assert float((a.scores(H) - b.scores(moved)).abs().max()) > 1e-3
    constant = torch.cat([H, torch.full((23, 1), 0.1, dtype=torch.float64)], 1)
    assert bool(adam_probe(constant, Y, epochs=2, standardise=True).scores(constant).isfinite().all())
    assert float(adam_probe(constant.float(), Y, epochs=2, standardise=True).scale[-1]) == 1.0


def test_it_works_inside_no_grad_and_leaves_features_alone():
    h = H.clone().requires_grad_()
    with torch.no_grad():
        inside = adam_probe(h, Y, epochs=2)
    assert torch.equal(inside.layers[0][0], adam_probe(H, Y, epochs=2).layers[0][0])
    assert h.grad is None and not inside.scores(H).requires_grad and torch.equal(h.detach(), H)


def test_labels_never_seen_count_as_wrong():
    h, y = blobs(60, 0)
    probe = adam_probe(h[y < 2], y[y < 2] + 4, batch_size=4)
    assert probe.classes.tolist() == [4, 5] and probe.accuracy(h, y + 4) == float((y < 2).double().mean())
    half = adam_probe(h.half(), y, batch_size=4)
    assert half.scores(h.half()).dtype == torch.float32 and half.accuracy(h.half(), y) == 1.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train_y": Y * 0 + 2}, "single class 2"), ({"train_h": H * NAN}, "train_h"), ({"train_h": H[:5]}, "train_h"),
        ({"train_h": H[:, :0]}, "train_h"), ({"train_h": H[0]}, "train_h"), ({"train_h": None}, "train_h"),
        ({"train_h": H.long()}, "train_h"), ({"train_y": Y - 2}, "train_y"), ({"train_y": Y.float()}, "train_y"),
        ({"train_y": "x"}, "train_y"), ({"hidden": -1}, "hidden"), ({"hidden": 1.0}, "hidden"),
        ({"hidden": None}, "hidden"), ({"epochs": 0}, "epochs"), ({"epochs": True}, "epochs"),
        ({"batch_size": 0}, "batch_size"), ({"batch_size": "x"}, "batch_size"), ({"lr": 0.0}, "lr"),
        ({"lr": -1.0}, "lr"), ({"lr": NAN}, "lr"), ({"lr": float("inf")}, "lr"), ({"lr": None}, "lr"),
        ({"standardise": 1}, "standardise"), ({"seed": -1}, "seed"), ({"seed": 1.5}, "seed"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(change, words):
    with pytest.raises((TypeError, ValueError), match=words):
        adam_probe(**({"train_h": H, "train_y": Y} | change))


def test_it_refuses_other_features():
    probe = adam_probe(H, Y, epochs=1)
    for h in (H[:, :2], H * NAN, H.long(), None):
        with pytest.raises((TypeError, ValueError), match="h: got"):
            probe.predict(h)
    with pytest.raises(ValueError, match="y: got"):
        probe.accuracy(H, Y[:3])

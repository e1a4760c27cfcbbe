"""The vectorised local step against the plain loop and against PyTorch's own modules and optimiser."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.local_training import ENCODERS, FIXED, MODELS, TOWERS, sizes
from fedbook.federation import Rows, local, tree_map
from fedbook.federation.local import Batches, choose, epochs, local_steps, sgd
from fedbook.learning.models import cross_entropy, model, stack
from fedbook.partition import Partition
from fedbook.randomness import normal, stream

SIZES = (7, 20, 3, 12, 1)


def toy(dtype, shape=(1, 8, 8), classes=4, seed=0):
    n = sum(SIZES)
    x = normal((n, *shape), stream(seed, "x")).to(dtype)
    y = torch.from_numpy(stream(seed, "y").integers(0, classes, n))
    ends = np.cumsum([0, *SIZES])
    partition = Partition.from_lists([range(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True)])
    return Rows({"x": x, "y": y}, partition.table, partition.sizes)


def streams(purpose="batches"):
    return [stream(5, purpose, 0, k) for k in range(len(SIZES))]


def train(data, net, dtype, how, chunk=None, num_epochs=2, batch=4, together=True, **options):
    theta = stack([net.init(stream(1, "init", client=k), dtype) for k in range(len(SIZES))])
    batches = epochs(data, streams(), num_epochs, batch)
    carry = {"theta": theta}
    if options.get("momentum"):
        carry["velocity"] = tree_map(torch.zeros_like, theta)
    step = sgd(cross_entropy(net.apply, net.layers if together else (), net.apply_each), 0.05, **options)
    return local_steps(step, carry, data, batches, how=how, chunk=chunk)


@pytest.mark.parametrize(
    ("name", "together"),
    [("linear", True), ("mlp", True), ("mlp", False), ("mlp_fedavg", True), ("cnn", False)],
)
@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"weight_decay": 0.01, "momentum": 0.9}])
def test_vectorised_equals_loop_in_float64(name, together, options):
    """Clients of 1 to 20 samples: ragged batches, and some have finished while others go on."""
    data, net = toy(torch.float64), model(name, (1, 8, 8), 4)
    assert (sgd(cross_entropy(net.apply, net.layers), 1.0).together is None) == (name == "cnn")
    a, loss_a = train(data, net, torch.float64, "vmap", together=together, **options)
    b, loss_b = train(data, net, torch.float64, "loop", **options)
    for key in a["theta"]:
        assert torch.allclose(a["theta"][key], b["theta"][key], rtol=0, atol=1e-12)
        assert "velocity" not in a or torch.allclose(a["velocity"][key], b["velocity"][key], rtol=0, atol=1e-12)
    assert torch.allclose(loss_a, loss_b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("moved", ["body", "head"])
def test_clients_together_leave_the_other_part_as_it_is(moved):
    data, net = toy(torch.float64), model("mlp_fedavg", (1, 8, 8), 4)
    body, head = net.split(stack([net.init(stream(1, "init", client=k), torch.float64) for k in range(len(SIZES))]))
    theta, fixed = (body, head) if moved == "body" else (head, body)
    step, batches = sgd(cross_entropy(net.apply, net.layers), 0.05), epochs(data, streams(), 2, 4)
    a, b = (local_steps(step, {"theta": theta, "fixed": fixed}, data, batches, how=how)[0] for how in ("vmap", "loop"))
    for key in theta:
        assert torch.allclose(a["theta"][key], b["theta"][key], rtol=0, atol=1e-12)
        assert not torch.equal(a["theta"][key], theta[key])
    assert a["theta"].keys() == theta.keys() and all(torch.equal(a["fixed"][key], fixed[key]) for key in fixed)


@pytest.mark.parametrize("options", [{"sam_radius": 0.1}, {"max_norm": 0.3}])
def test_a_gradient_that_is_bounded_or_taken_elsewhere_is_computed_as_ever(options):
    data, net = toy(torch.float32), model("mlp", (1, 8, 8), 4)
    a, b = (train(data, net, torch.float32, "vmap", together=words, **options)[0]["theta"] for words in (True, False))
    plain = train(data, net, torch.float32, "vmap")[0]["theta"]
    assert all(torch.equal(a[key], b[key]) and not torch.allclose(a[key], plain[key]) for key in a)


@pytest.mark.parametrize("steps", [1, 3])
def test_what_stands_still_is_not_copied_and_one_batch_is_fetched_once(monkeypatch, steps):
    """The server's part beside what a client trains, on one batch taken ``steps`` times."""
    data, net = toy(torch.float64), model("mlp", (1, 8, 8), 4)
    body, head = net.split(stack([net.init(stream(1, "init", client=k), torch.float64) for k in range(len(SIZES))]))
    index = data.table[:, :1].expand(-1, 3)
    real = torch.ones_like(index, dtype=torch.bool)
    fetched, fetch = [], local._fetch
    monkeypatch.setattr(local, "_fetch", lambda *given: fetched.append(given) or fetch(*given))
    results = []
    for form in (lambda x: x.expand(steps, *x.shape), lambda x: x.repeat(steps, 1, 1)):
        fetched.clear()
        step = sgd(cross_entropy(net.apply, net.layers, net.apply_each), 0.05, sam_radius=0.1)
        carry, loss = local_steps(step, {"theta": body, "fixed": head}, data, Batches(form(index), form(real)))
        assert all(carry["fixed"][name] is head[name] for name in head)
        results.append((carry["theta"], loss, len(fetched)))
    (once, loss_once, fetches), (again, loss_again, each) = results
    assert (fetches, each) == (1, steps)
    assert all(torch.equal(once[name], again[name]) for name in once) and torch.equal(loss_once, loss_again)


def test_chunks_that_fit_the_cache_are_the_loop(monkeypatch):
    """Two clients a chunk; the start is one theta, expanded, and it stays."""
    data, net = toy(torch.float64), model("mlp", (1, 8, 8), 4)
    one = net.init(stream(1, "init"), torch.float64)
    monkeypatch.setattr(local, "CACHE", 2 * 8 * net.size)
    theta = {name: p.expand(len(SIZES), *p.shape) for name, p in one.items()}
    before, step = tree_map(torch.clone, one), sgd(cross_entropy(net.apply, net.layers), 0.05)
    a, b = (
        local_steps(step, {"theta": theta}, data, epochs(data, streams(), 2, 4), how=how)[0]["theta"]
        for how in ("vmap", "loop")
    )
    assert all(torch.allclose(a[key], b[key], rtol=0, atol=1e-12) for key in a)
    assert all(torch.equal(one[key], before[key]) for key in one)


@pytest.mark.parametrize("how", ["vmap", "loop"])
def test_equals_module_and_optimiser_of_pytorch(how):
    """Independent oracle: nn.Module, torch.optim.SGD, batches without any padding."""
    data, net = toy(torch.float64), model("mlp", (1, 8, 8), 4)
    mine, _ = train(data, net, torch.float64, how, momentum=0.9, weight_decay=0.01)
    for k, n in enumerate(SIZES):
        module = net.build().double()
        module.load_state_dict(net.init(stream(1, "init", client=k), torch.float64))
        optimiser = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
        orders = streams()[k].permuted(np.tile(np.arange(n), (2, 1)), axis=1)
        for order in orders:
            for rows in torch.from_numpy(order).split(4):
                rows = data.table[k, rows]
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(module(data.samples["x"][rows]), data.samples["y"][rows]).backward()
                optimiser.step()
        for key, value in module.state_dict().items():
            assert torch.allclose(mine["theta"][key][k], value, rtol=0, atol=1e-10)


def test_a_row_does_not_depend_on_its_chunk_or_neighbours():
    data, net = toy(torch.float64), model("mlp", (1, 8, 8), 4)
    whole, loss = train(data, net, torch.float64, "vmap")
    for chunk in (1, 2, 3):
        part, part_loss = train(data, net, torch.float64, "vmap", chunk=chunk)
        assert all(torch.allclose(whole["theta"][k], part["theta"][k], rtol=0, atol=1e-12) for k in whole["theta"])
        assert torch.allclose(loss, part_loss, rtol=0, atol=1e-12)


def test_epochs_visit_every_own_sample_once_a_pass():
    data = toy(torch.float64)
    batches = epochs(data, streams(), 3, 4)
    for k, n in enumerate(SIZES):
        own = batches.index[:, k][batches.real[:, k]]
        assert sorted(own.tolist()) == sorted(data.table[k, :n].tolist() * 3)
        first = batches.index[: -(-n // 4), k][batches.real[: -(-n // 4), k]]
        assert sorted(first.tolist()) == sorted(data.table[k, :n].tolist())
        assert int(batches.steps[k]) == 3 * -(-n // 4)
    whole = epochs(data, streams(), 1, 0)
    assert whole.index.shape == (1, len(SIZES), max(SIZES)) and whole.real.sum().item() == sum(SIZES)


def test_parameter_counts_of_the_fedavg_paper():
    assert model("mlp_fedavg", (1, 28, 28), 10).size == 199_210
    assert model("cnn_fedavg", (1, 28, 28), 10).size == 1_663_370


def test_the_committed_choice_is_never_much_slower_than_the_better_way():
    """Reads the committed measurements; nothing is timed here."""
    table = json.loads(Path(choose.__code__.co_filename).with_name("choices.json").read_text())
    for row in table["measured"]["cpu"]["rows"]:
        how, chunk = table["choice"]["cpu"][row["kind"]]
        chosen = row["ms"][how if chunk is None else f"{how} {chunk}"]
        assert chosen * 0.9 <= min(ms for way, ms in row["ms"].items() if way not in FIXED), row
    assert {(r["kind"], r["clients"]) for r in table["measured"]["cpu"]["rows"]} == {
        (kind, clients) for kind in (*MODELS, *TOWERS, *ENCODERS) for clients in sizes(kind)
    }


def test_on_the_device(device):
    data, net = toy(torch.float64), model("mlp", (1, 8, 8), 4)
    cpu, _ = train(data, net, torch.float64, "vmap")
    there = Rows({k: v.to(device) for k, v in data.samples.items()}, data.table, data.sizes)
    theta = tree_map(
        lambda x: x.to(device), stack([net.init(stream(1, "init", client=k), torch.float64) for k in range(len(SIZES))])
    )
    net.module.to(device)
    step = sgd(cross_entropy(net.apply, net.layers), 0.05)
    out, _ = local_steps(step, {"theta": theta}, there, epochs(there, streams(), 2, 4))
    assert all(torch.allclose(out["theta"][k].cpu(), cpu["theta"][k], rtol=0, atol=1e-10) for k in theta)

"""FedAvg: its reductions to simpler methods, its messages, and what a round costs."""

import numpy as np
import torch

from fedbook.federation import Federation, Rounds, tree_map
from fedbook.learning.models import model
from fedbook.papers.fedavg import Config, FedAvg, algorithm
from fedbook.partition import Partition
from fedbook.randomness import normal, stream

SIZES = (7, 20, 3, 12, 1)
NET = model("mlp", (1, 6, 6), 4)


def federation(sizes=SIZES, order=None):
    n = sum(sizes)
    x = normal((n, 1, 6, 6), stream(3, "x"))
    y = torch.from_numpy(stream(3, "y").integers(0, 4, n))
    ends = np.cumsum([0, *sizes])
    lists = [list(range(a, b)) for a, b in zip(ends[:-1], ends[1:], strict=True)]
    return Federation({"x": x, "y": y}, Partition.from_lists([lists[k] for k in order or range(len(lists))]))


def run(config, data=None, method="fedavg", total=3, seeds=(0,), **options):
    rounds = Rounds(algorithm(method, config, NET), data or federation(), total, seeds=seeds, **options)
    list(rounds)
    return rounds


def equal(a, b, atol=1e-12):
    return all(torch.allclose(a[k], b[k], rtol=0, atol=atol) for k in a)


def pooled_gradient_descent(data, lr, steps, seed=0):
    theta = NET.init(stream(seed, "init"), torch.float64)
    x, y = data.groups["all"].samples["x"], data.groups["all"].samples["y"]
    for _ in range(steps):
        leaves = {k: v.clone().requires_grad_() for k, v in theta.items()}
        grads = torch.autograd.grad(torch.nn.functional.cross_entropy(NET.apply(leaves, x), y), list(leaves.values()))
        theta = {k: v - lr * g for (k, v), g in zip(theta.items(), grads, strict=True)}
    return theta


def test_one_full_batch_step_by_everyone_is_centralised_gradient_descent():
    data = federation()
    for config, method in ((Config(local_epochs=1, batch_size=0, lr=0.3), "fedavg"), (Config(lr=0.3), "fedsgd")):
        rounds = run(config, data, method)
        assert equal(tree_map(lambda x: x[0], rounds.server["theta"]), pooled_gradient_descent(data, 0.3, 3))


def plain_sgd(data, k, config, rounds):
    """A client's parameters after training alone: PyTorch's modules and optimiser, batch after batch."""
    group = data.groups["all"]
    own = group.table[0, k, : group.sizes[0, k]]
    module = NET.build().double()
    module.load_state_dict(NET.init(stream(0, "init"), torch.float64))
    for t in range(rounds):
        optimiser = torch.optim.SGD(module.parameters(), lr=config.lr, momentum=config.momentum)
        passes = np.tile(np.arange(len(own)), (config.local_epochs, 1))
        for order in stream(0, "batches", t, k).permuted(passes, axis=1):
            for rows in own[order].split(config.batch_size):
                optimiser.zero_grad()
                logits = module(group.samples["x"][rows])
                torch.nn.functional.cross_entropy(logits, group.samples["y"][rows]).backward()
                optimiser.step()
    return module.state_dict()


def test_one_client_is_plain_sgd():
    data, config = federation(sizes=(23,)), Config(local_epochs=2, batch_size=5, lr=0.1, momentum=0.9)
    found = tree_map(lambda x: x[0], run(config, data, total=2).server["theta"])
    assert equal(found, plain_sgd(data, 0, config, 2), atol=1e-10)


def test_central_is_the_pooled_client():
    config = Config(local_epochs=1, batch_size=8, lr=0.1)
    pooled = Federation(federation().groups["all"].samples, Partition.from_lists([list(range(sum(SIZES)))]))
    assert equal(run(config, pooled, "central").server["theta"], run(config, pooled, "fedavg").server["theta"])


def test_secure_aggregation_changes_nothing_but_what_is_seen():
    for weighting in ("size", "uniform"):
        config = {"local_epochs": 2, "batch_size": 4, "clients_per_round": 3, "weighting": weighting}
        seen = []
        a = run(Config(**config, reveal="each"), seeds=(0, 1))
        b = run(
            Config(**config, reveal="sum"),
            seeds=(0, 1),
            observe=lambda exchange, uploads, seen=seen: seen.append(uploads),
        )
        assert equal(a.server["theta"], b.server["theta"])
        assert a.bytes.total == b.bytes.total
        assert not any(hasattr(total, "rows") for total in seen)


class Nobody(Config):
    """Every cohort is empty."""

    def sampler(self, num_clients):
        return type("Nobody", (), {"draw": lambda self, k, rng: torch.zeros(0, dtype=torch.long)})()


def test_an_empty_cohort_keeps_the_model():
    for reveal in ("each", "sum"):
        rounds = Rounds(FedAvg(Nobody(reveal=reveal), NET), federation(), 1)
        before = tree_map(torch.clone, rounds.server["theta"])
        record = next(iter(rounds))
        assert equal(rounds.server["theta"], before, atol=0) and record.cohort == [0] and record.bytes_up == [0]


def test_local_only_sends_nothing_and_equals_training_alone():
    config = Config(local_epochs=2, batch_size=4)
    rounds = run(config, method="local", total=2)
    assert rounds.bytes.total["rounds"] == {"up": [0], "down": [0]}
    assert rounds.privacy[0].report(0.1)["nothing_leaves"] == ["every client keeps the model that it trains"]
    for k in range(len(SIZES)):
        found = tree_map(lambda x, k=k: x[0, k], rounds.clients["all"]["theta"])
        assert equal(found, plain_sgd(federation(), k, config, 2), atol=1e-10)


def test_bytes_are_those_of_the_messages():
    rounds = run(Config(clients_per_round=2), total=4)
    model_bytes = 8 * NET.size  # float64
    assert all(r.bytes_down == [2 * model_bytes] and r.bytes_up == [2 * (model_bytes + 8)] for r in rounds.history)

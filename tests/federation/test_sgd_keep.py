"""Steps that keep running statistics: no decay, no momentum, no share of the clip, and otherwise sgd's own step."""

import pytest
import torch

from fedbook.federation import Rows, tree_map
from fedbook.federation.local import epochs, local_steps, sgd
from fedbook.partition import Partition
from fedbook.randomness import normal, stream

LENGTHS = (7, 3, 11)
FULL = {"lr": 0.3, "momentum": 0.6, "weight_decay": 0.05, "max_norm": 0.8}


def toy():
    n = sum(LENGTHS)
    x, ends = 1 + normal((n, 4), stream(0, "x")), [0, 7, 10, 21]
    parts = Partition.from_lists([range(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True)])
    return Rows({"x": x}, parts.table, parts.sizes)


def start():
    w, mean = normal((3, 4), stream(0, "w")), 5 + normal((3, 4), stream(0, "mean"))
    return {"w": w, "mean": mean, "b": normal((3,), stream(0, "b"))}


def loss(theta, batch):
    """Something curved; the statistic is used too, so that a gradient reaches it and must be left out."""
    rows = batch["weight"][:, None]
    mean = (batch["x"] * rows).sum(0) / rows.sum().clamp(min=1)
    value = ((batch["x"] @ theta["w"] + theta["b"]).tanh() * batch["weight"]).sum() + (theta["w"] - mean).square().sum()
    return value + 100 * (theta["mean"] * theta["w"]).sum(), {"mean": mean}


def trained(how, chunk, options, keep=0.75):
    data, theta = toy(), start()
    carry = {"theta": theta, "velocity": tree_map(torch.zeros_like, theta)}
    batches = epochs(data, [stream(0, "batches", client=k) for k in range(3)], 2, 4)
    return local_steps(sgd(loss, keep=keep, **options), carry, data, batches, how=how, chunk=chunk)


def by_hand(options, keep=0.75):
    data = toy()
    batches = epochs(data, [stream(0, "batches", client=k) for k in range(3)], 2, 4)
    found, losses, lengths = [], [], []
    for k in range(3):
        theta = {n: p[k].clone() for n, p in start().items()}
        trainable, values = [theta["w"].requires_grad_(), theta["b"].requires_grad_()], []
        optimiser = torch.optim.SGD(trainable, options["lr"], options["momentum"], weight_decay=options["weight_decay"])
        for t in range(int(batches.steps[k])):
            x = data.samples["x"][batches.index[t, k][batches.real[t, k]]]
            value, seen = loss(theta, {"x": x, "weight": torch.ones(len(x), dtype=x.dtype)})
            optimiser.zero_grad()
            value.backward()
            lengths.append(float(torch.cat([p.grad.flatten() for p in trainable]).norm()))
            for p in trainable:
                p.grad *= min(1.0, options["max_norm"] / lengths[-1])
            optimiser.step()
            theta["mean"] = keep * theta["mean"] + (1 - keep) * seen["mean"]
            values.append(float(value.detach()))
        found.append({n: p.detach() for n, p in theta.items()})
        losses.append(sum(values) / len(values))
    return found, losses, lengths


@pytest.mark.parametrize(("how", "chunk"), [("vmap", None), ("vmap", 2), ("loop", None)])
@pytest.mark.parametrize("momentum", [0.6, 0.0])
def test_a_loop_written_by_hand(how, chunk, momentum):
    options = FULL | {"momentum": momentum, "lr": 0.003, "max_norm": 700.0}
    carry, values = trained(how, chunk, options)
    found, losses, lengths = by_hand(options)
    assert min(lengths) < 700 < max(lengths)  # some steps are shortened, some are not
    for k in range(3):
        assert all(float((carry["theta"][n][k] - found[k][n]).abs().max()) < 1e-9 for n in found[k])
        assert float(values[k]) == pytest.approx(losses[k], rel=1e-12)


def test_a_loss_that_sees_nothing_steps_as_without_keep():
    plain = {n: p for n, p in start().items() if n != "mean"}
    data = toy()
    batches = epochs(data, [stream(0, "batches", client=k) for k in range(3)], 2, 4)

    def value(theta, batch):
        return loss({**theta, "mean": torch.zeros(4, dtype=torch.float64)}, batch)[0]

    for options in (FULL, {"lr": 0.1}):
        carries = []
        for keep, function in ((None, value), (0.9, lambda theta, batch: (value(theta, batch), {}))):
            carry = {"theta": plain} | (
                {"velocity": tree_map(torch.zeros_like, plain)} if "momentum" in options else {}
            )
            carries.append(local_steps(sgd(function, keep=keep, **options), carry, data, batches)[0]["theta"])
        assert all(torch.equal(carries[0][n], carries[1][n]) for n in plain)


def test_statistics_of_two_batches_a_step_are_refused():
    with pytest.raises(ValueError, match="^keep: got 0.9; allowed is None with sam_radius"):
        sgd(loss, 0.1, sam_radius=0.1, keep=0.9)

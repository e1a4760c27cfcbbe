"""Local training of many clients at once: one vectorised step for a cohort, or a plain loop over it.

Everything random (batch orders, augmentation parameters, noise) is drawn before and passed in as
tensors, so the batch and the loop compute the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from fedbook import arguments
from fedbook.federation.population import Rows
from fedbook.federation.tree import Tree, tree_map

Step = Callable[[Tree, Mapping[str, Tensor]], tuple[Tree, Tensor]]


@dataclass(frozen=True)
class Batches:
    """What R clients train on, step by step, drawn in advance.

    Shapes: ``index`` [T, R, B] rows of the sample store, padded with 0; ``real`` [T, R, B] False where
    padded; ``extra[name]`` [T, R, ...] further draws (augmentation parameters, noise). A client whose
    rows are all padded at a step takes no step. Memory: 9 bytes an index entry, plus ``extra``.
    """

    index: Tensor
    real: Tensor
    extra: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def steps(self) -> Tensor:
        """[R] number of steps of each client (they are its first ones)."""
        return self.real.any(2).sum(0)


def epochs(data: Rows, rngs: Sequence[np.random.Generator], num_epochs: int, batch_size: int) -> Batches:
    """``num_epochs`` passes of each client over its own samples, in an order of its own, in batches.

    ``batch_size`` 0 means the whole local data in one batch. Each pass has a fresh order and keeps its
    last, smaller batch.
    Shapes: R clients; the result has T = epochs times the batches of the largest client.
    Raises: TypeError, ValueError (a client without samples among them).
    """
    num_epochs = arguments.integer("local_epochs", num_epochs, 0)
    batch_size = arguments.integer("batch_size", batch_size, 0)
    sizes = data.sizes.tolist()
    if len(rngs) != len(sizes):
        raise ValueError(f"rngs: got {len(rngs)} generators; allowed is one for each of the {len(sizes)} clients")
    if sizes and min(sizes) < 1:
        raise ValueError(f"data: got a client without samples (sizes {sizes[:10]}); allowed are clients with at least one")
    width = batch_size or max(sizes, default=1)
    width = min(width, max(sizes, default=1))
    blocks = [-(-n // width) for n in sizes]
    total = num_epochs * max(blocks, default=0)
    index = np.zeros((total, len(sizes), width), dtype=np.int64)
    real = np.zeros((total, len(sizes), width), dtype=bool)
    table = data.table.numpy()
    for r, (n, count) in enumerate(zip(sizes, blocks, strict=True)):
        order = rngs[r].permuted(np.tile(np.arange(n), (num_epochs, 1)), axis=1)
        rows = np.zeros((num_epochs, count * width), dtype=np.int64)
        rows[:, :n] = table[r][order]
        index[: num_epochs * count, r] = rows.reshape(num_epochs * count, width)
        mask = np.zeros((num_epochs, count * width), dtype=bool)
        mask[:, :n] = True
        real[: num_epochs * count, r] = mask.reshape(num_epochs * count, width)
    return Batches(torch.from_numpy(index), torch.from_numpy(real))


def local_steps(
    step: Step, carry: Tree, data: Rows, batches: Batches, *, how: str = "vmap", chunk: int | None = None
) -> tuple[Tree, Tensor]:
    """Run ``step`` for each client until its batches end; finished clients stay frozen.

    ``step(carry, batch) -> (carry, loss)`` is a pure function for ONE client; batch holds its B samples
    by name, "weight" [B] (1 real, 0 padding) and the extra draws. ``how``: "vmap" (all clients of a chunk
    in one vectorised step) or "loop" (client after client). ``chunk`` bounds how many clients are
    vectorised together (memory); a client's result does not depend on its chunk.
    Shapes: leaves of ``carry`` [R, ...] to [R, ...], mean loss over a client's steps [R].
    Memory: "vmap" holds B * chunk samples, their activations and two copies of the chunk's ``carry``.
    Raises: TypeError, ValueError.
    """
    arguments.one_of("how", how, ("vmap", "loop"))
    rows = batches.index.shape[1]
    if rows == 0:
        return carry, torch.zeros(0)
    width = rows if chunk is None else arguments.integer("chunk", chunk, 1)
    if how == "loop":
        pieces = [_alone(step, carry, data, batches, r) for r in range(rows)]
        return tree_map(lambda *x: torch.stack(x), *(c for c, _ in pieces)), torch.stack([v for _, v in pieces])
    # clients of similar length share a chunk, so that few steps are spent on frozen rows
    order = torch.argsort(batches.steps, descending=True, stable=True)
    pieces = [_together(step, carry, data, batches, order[i : i + width]) for i in range(0, rows, width)]
    back = torch.argsort(order)
    return tree_map(lambda *x: torch.cat(x)[back], *(c for c, _ in pieces)), torch.cat([v for _, v in pieces])[back]


def _fetch(data: Rows, batches: Batches, t: int, rows: Tensor | int) -> dict[str, Tensor]:
    device = next(iter(data.samples.values())).device
    index = batches.index[t, rows].to(device)
    batch = {name: x[index] for name, x in data.samples.items()}
    floats = [x.dtype for x in batch.values() if x.dtype.is_floating_point]
    batch["weight"] = batches.real[t, rows].to(device=device, dtype=floats[0] if floats else torch.float32)
    return batch | {name: x[t, rows].to(device) for name, x in batches.extra.items()}


def _together(step: Step, carry: Tree, data: Rows, batches: Batches, rows: Tensor) -> tuple[Tree, Tensor]:
    carry = tree_map(lambda x: x[rows.to(x.device)], carry)
    steps = batches.steps[rows]
    stepped, total = vmap(step), 0.0
    for t in range(int(steps.max())):
        new, loss = stepped(carry, _fetch(data, batches, t, rows))
        active = steps > t
        if bool(active.all()):
            carry = new
        else:
            mask = active.to(loss.device)
            carry = tree_map(lambda a, b, mask=mask: _where(mask, a, b), new, carry)
            loss = torch.where(mask, loss, 0)
        total = total + loss
    if not isinstance(total, Tensor):
        return carry, torch.zeros(len(rows))
    return carry, total / steps.clamp(min=1).to(total)


def _where(mask: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(mask.view(-1, *[1] * (new.ndim - 1)), new, old)


def _alone(step: Step, carry: Tree, data: Rows, batches: Batches, r: int) -> tuple[Tree, Tensor]:
    carry = tree_map(lambda x: x[r], carry)
    losses = []
    for t in range(int(batches.steps[r])):
        carry, loss = step(carry, _fetch(data, batches, t, r))
        losses.append(loss)
    return carry, torch.stack(losses).mean() if losses else torch.zeros(())


def sgd(
    loss: Callable[[Tree, Mapping[str, Tensor]], Tensor], lr: float, momentum: float = 0.0, weight_decay: float = 0.0
) -> Step:
    """A step of stochastic gradient descent on ``carry = {"theta": parameters[, "velocity": same form]}``.

    v <- momentum v + (grad + weight_decay theta), theta <- theta - lr v (PyTorch's convention).
    momentum 0 needs no velocity.
    """

    def step(carry: Tree, batch: Mapping[str, Tensor]) -> tuple[Tree, Tensor]:
        theta = carry["theta"]
        grads, value = grad_and_value(loss)(theta, batch)
        if weight_decay:
            grads = tree_map(lambda g, p: g + weight_decay * p, grads, theta)
        if not momentum:
            return {"theta": tree_map(lambda p, g: p - lr * g, theta, grads)}, value
        velocity = tree_map(lambda v, g: momentum * v + g, carry["velocity"], grads)
        return {"theta": tree_map(lambda p, v: p - lr * v, theta, velocity), "velocity": velocity}, value

    return step


@lru_cache
def _choices() -> dict[str, dict[str, str]]:
    return json.loads(files("fedbook.learning").joinpath("choices.json").read_text())["choice"]


def choose(device: str, kind: str) -> str:
    """The committed choice ("vmap" or "loop") for a device type and a kind of model.

    The table comes from ``python -m fedbook.learning.benchmark``, never from timing during a run; unknown
    rows give "vmap".
    """
    return _choices().get(device, {}).get(kind, "vmap")

"""Local training of many clients at once: one vectorised step for a cohort, or a plain loop over it.

Everything random (batch orders, augmentation parameters, noise) is drawn before and passed in as
tensors, so the batch and the loop compute the same numbers.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, grad_and_value, vmap

from fedbook import arguments, interrupts
from fedbook.federation.population import Rows
from fedbook.federation.tree import Tree, leaves, tree_map

WAYS = ("vmap", "loop", "channels_last")  # see local_steps
CACHE = 2**23  # bytes of parameters that one chunk of a step "together" may have: what a core keeps near it


@dataclass(frozen=True)
class Step:
    """One local step, in its two halves.

    ``direction(carry, batch) -> (direction, loss)``: pure, written for ONE client (it is vectorised over the
    clients); gradients, perturbations, clipping and noise belong here. ``update(carry, direction)``: changes
    ``carry`` in place, written for any number of leading axes (it gets all clients at once). The halves are
    apart because writing new stacked parameters instead of updating them in place made a step for 50 clients
    of a small network several times slower on a CPU. "vmap" means ``directions(carry, batch)``, the first half for R
    clients at once (default: ``direction``, vectorised), or, where a step has it, ``together(carry, batch)``, which
    gives losses [R]: both halves for R clients at once, in place, written out by hand. ``still``: the entries of
    ``carry`` that no step changes; they are not copied.
    """

    direction: Callable[[Tree, Mapping[str, Tensor]], tuple[Tree, Tensor]]
    update: Callable[[Tree, Tree], None]
    together: Callable[[Tree, Mapping[str, Tensor]], Tensor] | None = None
    directions: Callable[[Tree, Mapping[str, Tensor]], tuple[Tree, Tensor]] | None = None
    still: tuple[str, ...] = ()


@dataclass(frozen=True)
class Batches:
    """What R clients train on, step by step, drawn in advance.

    Shapes: ``index`` [T, R, B] rows of the sample store, padded with 0; ``real`` [T, R, B] False where
    padded; ``extra[name]`` [T, R, ...] further draws (augmentation parameters, noise). A client whose
    rows are all padded from some step on has finished there. Memory: 9 bytes an index entry, plus ``extra``.
    Raises: TypeError, ValueError (shapes that do not fit, a step after a client's last one).
    """

    index: Tensor
    real: Tensor
    extra: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self):
        arguments.tensor("index", self.index, ndim=3, kind="integer")
        arguments.tensor("real", self.real, shape=self.index.shape, kind="bool")
        for name, x in self.extra.items():
            if arguments.tensor(f"extra {name!r}", x, finite=False).shape[:2] != self.index.shape[:2]:
                allowed = f"a tensor with the first axes [T, R] = {tuple(self.index.shape[:2])}"
                raise arguments.wrong(ValueError, f"extra {name!r}", x, allowed)
        takes = self.real.any(2)
        if bool((takes[1:] & ~takes[:-1]).any()):  # steps are counted, so a gap would drop the last ones
            raise arguments.wrong(ValueError, "real", self.real, "clients whose empty steps all come last")

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
        raise ValueError(
            f"data: got a client without samples (sizes {sizes[:10]}); allowed are clients with at least one"
        )
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

    A batch holds a client's B samples by name, "weight" [B] (1 real, 0 padding) and the extra draws, no name twice.
    ``how``: "vmap" (all clients of a chunk in one vectorised step), "loop" (client after client) or "channels_last"
    (the loop, with the weights of 2-D convolutions channels last in memory, which makes wide 3x3 ones faster on a CPU).
    ``chunk`` bounds how many clients are vectorised together; a client's result does not depend on its chunk.
    Shapes: leaves of ``carry`` [R, ...] to [R, ...] (the input is not changed), mean loss over a client's
    steps [R].
    Memory: "vmap" holds chunk * B samples, their activations and two copies of what moves of the chunk's ``carry``.
    Raises: TypeError, ValueError.
    """
    arguments.one_of("how", how, WAYS)
    rows = batches.index.shape[1]
    for name, leaf in leaves(carry):
        if not isinstance(leaf, Tensor) or leaf.ndim < 1 or len(leaf) != rows:
            raise arguments.wrong(ValueError, f"carry {name!r}", leaf, f"a tensor with {rows} rows, one a client")
    chunk = max(rows, 1) if chunk is None else arguments.integer("chunk", chunk, 1)
    if twice := sorted(name for name, n in Counter(["weight", *data.samples, *batches.extra]).items() if n > 1):
        allowed = 'names of samples and of extra draws that differ, none of them "weight", which marks padding'
        raise arguments.wrong(ValueError, "samples", twice, allowed)
    if rows == 0:
        return tree_map(lambda x: x.clone(), carry), _zeros(carry, 0)
    steps = batches.steps
    still = {name: carry[name] for name in step.still if name in carry}
    moving = {name: x for name, x in carry.items() if name not in still} if still else carry
    if how != "vmap":
        copy, placed = (_channels_last if how == "channels_last" else torch.clone), _placed(batches, data, slice(None))
        trained = tree_map(copy, moving)
        carry = _joined(trained, still)
        losses = torch.stack([_alone(step, carry, data, placed, r, n) for r, n in enumerate(steps.tolist())])
        return _joined(tree_map(Tensor.contiguous, trained), still), losses
    if step.together is not None:
        chunk = min(chunk, _fitting(moving))
    # longest first: those still active are then always the first rows, and nobody's step is computed in vain
    order = torch.argsort(steps, descending=True, stable=True)
    in_order = torch.equal(order, torch.arange(rows))
    placed, steps = _placed(batches, data, slice(None) if in_order else order), steps[order].tolist()
    trained, losses = tree_map(_room, moving), []
    for i in range(0, rows, chunk):  # a chunk takes all its steps before the next: it stays in the cache
        if in_order:
            here = slice(i, i + chunk)
            own = tree_map(lambda new, x, here=here: new[here].copy_(x[here]), trained, moving)
            beside = tree_map(lambda x, here=here: x[here], still)
            losses.append(_together(step, _joined(own, beside), data, placed, i, steps[here]))
        else:
            here = order[i : i + chunk]
            own, beside = (tree_map(lambda x, h=here: x.index_select(0, h.to(x.device)), t) for t in (moving, still))
            losses.append(_together(step, _joined(own, beside), data, placed, i, steps[i : i + chunk]))
            tree_map(lambda new, x, here=here: new.index_copy_(0, here.to(x.device), x), trained, own)
    return _joined(trained, still), torch.cat(losses)[torch.argsort(order).to(losses[0].device)]


def _joined(moving: Tree, still: dict[str, Tree]) -> Tree:
    return {**moving, **still} if still else moving


def _channels_last(x: Tensor) -> Tensor:
    """A copy of stacked parameters, each row's weights of a 2-D convolution [R, O, I, h, w] channels last."""
    return x.movedim(2, -1).clone(memory_format=torch.contiguous_format).movedim(-1, 2) if x.ndim == 5 else x.clone()


def each_client(
    function: Callable[..., Tensor], parameters: Tree, *inputs: Tensor, how: str, chunk: int | None = None
) -> Tensor:
    """``function(parameters, *inputs)`` of every client, without a step; ``how``, ``chunk``: see :func:`local_steps`.

    Shapes: leaves of ``parameters`` and ``inputs`` [R, ...] to [R, ...].
    """
    if how == "vmap":
        return vmap(function, chunk_size=chunk)(parameters, *inputs)
    answers = []
    for r in range(len(_tensors(parameters)[0])):
        own = tree_map(lambda x, r=r: x[r : r + 1], parameters)
        if how == "channels_last":
            own = tree_map(_channels_last, own)  # one client's at a time
        answers.append(function(tree_map(lambda x: x[0], own), *(x[r] for x in inputs)))
    return torch.stack(answers)


def _tensors(tree: Tree) -> list[Tensor]:
    return [leaf for _, leaf in leaves(tree)]


def _room(x: Tensor) -> Tensor:
    """An uninitialised tensor like ``x``, contiguous. NumPy asks Linux for large pages, PyTorch does not: for 200 small
    networks touching the usual ones for the first time took a tenth of a round.
    """
    if x.device.type != "cpu":
        return x.new_empty(x.shape)
    size = x.numel() * x.element_size()
    room = np.empty(size + 63, dtype=np.uint8)
    start = -room.ctypes.data % 64  # aligned as PyTorch's own are
    return torch.from_numpy(room[start : start + size]).view(x.dtype).view(x.shape)


def _fitting(carry: Tree) -> int:
    """How many clients' ``carry`` fits a core's cache; on other devices, all."""
    leaf = _tensors(carry)
    if leaf[0].device.type != "cpu":
        return len(leaf[0])
    return max(1, CACHE // max(1, sum(x[0].numel() * x.element_size() for x in leaf)))


class _Placed(NamedTuple):
    """Checked batches where the samples are (:class:`Batches` would check again: a wait for the GPU)."""

    index: Tensor
    real: Tensor
    extra: dict[str, Tensor]
    same: bool  # every step has one and the same batch


def _placed(batches: Batches, data: Rows, order: Tensor | slice) -> _Placed:
    """The batches of the clients ``order`` where the samples are: moved once, not step by step."""
    device = next(iter(data.samples.values())).device
    same = all(x.stride(0) == 0 for x in (batches.index, batches.real, *batches.extra.values()))
    index, real, *extra = (x[:, order].to(device) for x in (batches.index, batches.real, *batches.extra.values()))
    return _Placed(index, real, dict(zip(batches.extra, extra, strict=True)), same)


def _fetch(data: Rows, batches: _Placed, t: int, rows: slice | int) -> dict[str, Tensor]:
    index = batches.index[t, rows]
    # index_select takes a third of the time of x[index]
    batch = {n: x.index_select(0, index.flatten()).unflatten(0, index.shape) for n, x in data.samples.items()}
    floats = [x.dtype for x in batch.values() if x.dtype.is_floating_point]
    batch["weight"] = batches.real[t, rows].to(floats[0] if floats else torch.float32)
    return batch | {name: x[t, rows] for name, x in batches.extra.items()}


def _together(step: Step, carry: Tree, data: Rows, batches: _Placed, start: int, steps: list[int]) -> Tensor:
    """All steps of the clients ``start``, ``start`` + 1, ... (longest first); their mean losses."""
    total, active, now, batch = None, len(steps), carry, None
    directions = step.directions or vmap(step.direction)
    for t in range(steps[0]):
        if steps[active - 1] <= t:
            active = sum(n > t for n in steps)
            now, batch = tree_map(lambda x, active=active: x[:active], carry), None
        if batch is None or not batches.same:
            batch = _fetch(data, batches, t, slice(start, start + active))
        if step.together:
            loss = step.together(now, batch)
        else:
            move, loss = directions(now, batch)
            step.update(now, move)
        interrupts.point()
        if total is None:
            total = torch.zeros(len(steps), dtype=loss.dtype, device=loss.device)
        total[:active] += loss
    if total is None:
        return _zeros(carry, len(steps))
    return total / torch.tensor(steps).clamp(min=1).to(total)


def _alone(step: Step, carry: Tree, data: Rows, batches: _Placed, r: int, steps: int) -> Tensor:
    own = tree_map(lambda x: x[r], carry)  # views: the update writes into the stack
    losses = []
    for t in range(steps):
        move, loss = step.direction(own, _fetch(data, batches, t, r))
        step.update(own, move)
        interrupts.point()
        losses.append(loss)
    return torch.stack(losses).mean() if losses else _zeros(carry, 1)[0]


def _zeros(carry: Tree, rows: int) -> Tensor:
    """The losses of clients that take no step: of the dtype and on the device of the others."""
    like = next(x for _, x in leaves(carry) if x.dtype.is_floating_point)
    return like.new_zeros(rows)


def sgd(
    loss: Callable[[Tree, Mapping[str, Tensor]], Tensor],
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    sam_radius: float = 0.0,
    max_norm: float = math.inf,
    keep: float | None = None,
) -> Step:
    """A step of stochastic gradient descent on ``carry = {"theta": parameters[, "velocity", "fixed"]}``.

    v <- momentum v + (grad + weight_decay theta), theta <- theta - lr v (PyTorch's convention); momentum 0
    needs no velocity. ``fixed``: further parameters the loss needs and the step does not move (a dictionary,
    joined with theta for the loss). ``sam_radius`` q > 0 is sharpness-aware minimisation: the gradient is
    taken at theta + q g / |g| on the same batch, one norm over all of theta; g = 0 moves nothing.
    ``max_norm``: a client's gradient that is longer, over all of theta, is shortened to it (inf: never).
    ``keep``: the loss returns a pair, the value and entries of theta as its batch had them, which are statistics and no
    parameters: they become keep * old + (1 - keep) * the batch's, without decay or momentum.
    Raises: ValueError (keep with sam_radius). Source (SAM): DP2-FedSAM, equations (11) and (12).
    """
    if keep is not None and sam_radius:
        raise arguments.wrong(ValueError, "keep", keep, "None with sam_radius: a step would count two batches")

    def objective(theta: Tree, fixed: Tree, batch: Mapping[str, Tensor]) -> Any:
        return loss({**fixed, **theta}, batch)

    def direction(carry: Tree, batch: Mapping[str, Tensor]) -> tuple[Tree, Tensor]:
        fixed, seen = carry.get("fixed", {}), {}
        if keep is None:
            gradient, value = grad_and_value(objective)(carry["theta"], fixed, batch)
        else:
            gradient, (value, seen) = grad_and_value(objective, has_aux=True)(carry["theta"], fixed, batch)
        if sam_radius:
            gradient = grad(objective)(sam_point(carry["theta"], gradient, sam_radius), fixed, batch)
        return shaped(gradient, seen), value

    def slopes(theta: Tree, fixed: Tree, batch: Mapping[str, Tensor]) -> tuple[Tree, Tensor, Tree]:
        """Gradients, losses and statistics of R clients by one backward pass: losses of rows do not meet."""
        with torch.enable_grad():
            theta = tree_map(lambda p: p.detach().requires_grad_(), theta)
            losses = many({**fixed, **theta}, batch)
            losses, seen = (losses, {}) if keep is None else losses
            gradient = iter(torch.autograd.grad(losses.sum(), _tensors(theta), materialize_grads=True))
        return tree_map(lambda _: next(gradient), theta), losses.detach(), tree_map(lambda x: x.detach(), seen)

    def directions(carry: Tree, batch: Mapping[str, Tensor]) -> tuple[Tree, Tensor]:
        fixed = carry.get("fixed", {})
        gradient, losses, seen = slopes(carry["theta"], fixed, batch)
        if sam_radius:
            there = vmap(lambda theta, g: sam_point(theta, g, sam_radius))(carry["theta"], gradient)
            gradient = slopes(there, fixed, batch)[0]
        return vmap(shaped)(gradient, seen), losses

    def shaped(gradient: Tree, seen: Tree) -> Tree:
        """One client's gradient, shortened where it is too long, beside its statistics."""
        gradient = {name: g for name, g in gradient.items() if name not in seen}
        if not math.isinf(max_norm):
            square = sum(g.square().sum() for _, g in leaves(gradient))
            factor = (max_norm / square.clamp(min=torch.finfo(square.dtype).tiny).sqrt()).clamp(max=1.0)
            gradient = tree_map(lambda g: g * factor, gradient)
        return gradient if keep is None else {"gradient": gradient, "seen": seen}

    def update(carry: Tree, direction: Tree) -> None:
        if keep is None:
            tree_map(move, carry["theta"], direction, carry["velocity"] if momentum else direction)
            return
        seen, gradient = direction["seen"], direction["gradient"]
        for name, p in carry["theta"].items():
            if name in seen:
                p.lerp_(seen[name], 1 - keep)
            else:
                move(p, gradient[name], carry["velocity"][name] if momentum else gradient[name])

    def move(p: Tensor, g: Tensor, v: Tensor) -> None:
        if weight_decay:
            g.add_(p, alpha=weight_decay)
        if momentum:
            v.mul_(momentum).add_(g)
        p.sub_(v, alpha=lr)  # without momentum v is g

    stacked, many = getattr(loss, "stacked", None), getattr(loss, "many", None) or vmap(loss)

    def together(carry: Tree, batch: Mapping[str, Tensor]) -> Tensor:
        theta = carry["theta"]

        def take(name: str, g: Tensor, x: Tensor | None = None) -> None:
            if name not in theta:
                return
            p = theta[name]
            if x is None or momentum or weight_decay:
                g = g if x is None else g.mT @ x
                move(p, g, carry["velocity"][name] if momentum else g)
            else:  # theta - lr g^T x in one pass: the gradient, as large as theta, is never written
                p.baddbmm_(g.mT, x, alpha=-lr)

        return stacked({**carry["fixed"], **theta} if "fixed" in carry else theta, batch, take)

    plain = keep is None and not sam_radius and math.isinf(max_norm)
    return Step(direction, update, together if plain and stacked else None, directions, still=("fixed",))


def sam_point(theta: Tree, gradient: Tree, radius: float) -> Tree:
    """theta + radius * gradient / |gradient|, one norm over all tensors; theta itself where the gradient is 0.

    It maximises the linearised loss over the ball of that radius. Source: DP2-FedSAM, equations (3) and (11).
    """
    square = sum(g.square().sum() for _, g in leaves(gradient))
    scale = radius / square.clamp(min=torch.finfo(square.dtype).tiny).sqrt()
    return tree_map(lambda p, g: p + scale * g, theta, gradient)


@lru_cache
def _choices() -> dict[str, dict[str, list]]:
    return json.loads(files("fedbook.federation").joinpath("choices.json").read_text())["choice"]


def choose(device: str, kind: str) -> tuple[str, int | None]:
    """The committed choice (how, chunk) for a device type and a kind of model.

    The table comes from ``python -m benchmarks.local_training``, never from timing during a run. Small chunks
    win on a CPU because they fit its cache. Rows nobody measured: "vmap", on a CPU in chunks of 20.
    """
    how, chunk = _choices().get(device, {}).get(kind, ["vmap", 20 if device == "cpu" else None])
    return how, chunk

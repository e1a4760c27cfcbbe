"""One run on several processes: each does the local work of a part of every cohort, and all learn the results.

Every process runs the whole algorithm: same draws, same server. Only local work (and what an upload passes on its way:
clipping, noise, codec) is split, in blocks of the cohort's rows; results are gathered in the order of the rows, so sums
are added as on one process. Cost: each process holds all samples and all clients' state, and gets the uploads and new
states of the whole cohort; what is saved is the time of the work and the memory it needs while it lasts.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from fedbook import interrupts
from fedbook.federation.exchange import Diverged
from fedbook.federation.tree import Tree, leaves, tree_map
from fedbook.wire import Encoded

ALIGNED = 16  # bytes: every tensor in a packed message begins at a multiple
PATIENCE = timedelta(hours=24)  # one process may evaluate, or run a slow client, while the others wait
_device: torch.device | None = None  # where messages between the processes lie; None: this process is alone


class ProcessFailed(RuntimeError):
    """What went wrong in one of the processes and ends all; the text says in which. Each process raises it."""


class Done(NamedTuple):
    """The results of some clients' local work: tensors [R, ...], and the encoded uploads by name, one a client."""

    tree: Mapping[str, Tree]
    wire: Mapping[str, list[Encoded]]


@dataclass(frozen=True)
class _Form:
    """One tensor of a message, without its values."""

    shape: torch.Size
    dtype: torch.dtype
    device: str

    @property
    def nbytes(self) -> int:
        return self.shape.numel() * self.dtype.itemsize

    @property
    def room(self) -> int:
        return -(-self.nbytes // ALIGNED) * ALIGNED


def launched() -> tuple[int, int]:
    """(number of this process, how many there are), as ``torchrun`` tells its processes; (0, 1) without it."""
    if not dist.is_available() or not dist.is_torchelastic_launched():
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def rank() -> int:
    """The number of this process among those that share the run; 0 is the one that writes and prints."""
    return 0 if _device is None else dist.get_rank()


def size() -> int:
    """How many processes share the run."""
    return 1 if _device is None else dist.get_world_size()


@contextmanager
def joined(device: str) -> Iterator[None]:
    """Inside, the processes that ``torchrun`` started share each run; a process without others does nothing here.

    ``device``: of the runs; "cuda" takes the GPU of this process's number on its machine, and NCCL.
    """
    global _device
    if launched()[1] == 1:
        yield
        return
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=PATIENCE)
    _device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    try:
        yield
    finally:
        _device = None
        dist.destroy_process_group()


def agree(values: Mapping[str, Any]) -> None:
    """Wait for all processes. Raises: ProcessFailed if their ``values`` differ, by the names of those that do."""
    everyone = _all_objects(dict(values))
    differ = {name: [one.get(name) for one in everyone] for name in values}
    differ = {name: got for name, got in differ.items() if any(one != got[0] for one in got)}
    if differ:
        raise ProcessFailed(f"the processes have different {differ}; allowed are equal ones (do all see one folder?)")


def split(counts: Sequence[int], part: int, parts: int) -> list[slice]:
    """Which rows of each of several lists are those of process ``part``: blocks of all rows in a line, equally long."""
    total, start, mine = sum(counts), 0, []
    low, high = part * total // parts, (part + 1) * total // parts
    for count in counts:
        begin, end = (min(max(edge - start, 0), count) for edge in (low, high))
        mine.append(slice(begin, end))
        start += count
    return mine


def shared(counts: Sequence[int], work: Callable[[int, slice], Done]) -> list[Done]:
    """``work(number, rows)`` for lists of ``counts`` rows, each process its part; all results, in every process.

    Raises: in all processes ProcessFailed if the work fails in one, Diverged if it says so, KeyboardInterrupt if one
    was interrupted.
    """
    if size() == 1:
        return [work(number, slice(None)) for number in range(len(counts))]
    if not sum(counts):
        return []
    done, failed = {}, None
    try:
        for number, rows in enumerate(split(counts, rank(), size())):
            if rows.start < rows.stop:
                done[number] = work(number, rows)
    except (Exception, KeyboardInterrupt) as error:  # told to the others first: they wait for this part
        failed = error
    _tell(failed)
    forms = {number: tree_map(_form, one.tree) for number, one in done.items()}
    heads = _all_objects((forms, {number: one.wire for number, one in done.items()}))
    buffers = _all_bytes([leaf for one in done.values() for _, leaf in leaves(one.tree)], [head[0] for head in heads])
    trees = [_unpacked(buffer, form) for buffer, (form, _) in zip(buffers, heads, strict=True)]
    return [_joined(number, trees, [wire for _, wire in heads]) for number in range(len(counts))]


def _tell(failed: BaseException | None) -> None:
    text = None if failed is None else f"process {rank()}: {type(failed).__name__}: {failed}"
    stopped = isinstance(failed, KeyboardInterrupt)
    number = stopped and (signal.SIGTERM if isinstance(failed, interrupts.Terminated) else signal.SIGINT)
    try:
        heard = _all_objects((text, int(number), str(failed) if isinstance(failed, Diverged) else None))
    except ProcessFailed:
        if failed is not None:  # the others left before they heard of it, perhaps for the same signal
            raise failed from None
        raise
    for _, number, _ in heard:
        if number:
            raise interrupts.Terminated if number == signal.SIGTERM else KeyboardInterrupt
    for text, _, diverged in heard:
        if text is not None and diverged is None:
            raise ProcessFailed(text) from failed
    for _, _, diverged in heard:
        if diverged is not None:
            raise Diverged(diverged) from failed


def _all_objects(value: Any) -> list[Any]:
    values: list[Any] = [None] * size()
    with _others_there():
        dist.all_gather_object(values, value)
    return values


@contextmanager
def _others_there() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # of torch.distributed, which does not know why
        raise ProcessFailed(f"another process of this run has gone ({str(error).splitlines()[0]})") from error


def _form(x: Tensor) -> _Form:
    return _Form(x.shape, x.dtype, x.device.type)


def _all_bytes(tensors: list[Tensor], forms: list[Any]) -> list[Tensor]:
    """Each process's tensors, packed: one tensor of bytes a process, in the order of their numbers."""
    rooms = [sum(form.room for _, form in leaves(one)) for one in forms]
    # equally long for all: so the backends want it
    own = torch.zeros(max(*rooms, ALIGNED), dtype=torch.uint8, device=_device)
    start = 0
    for x in tensors:
        form = _form(x)
        own[start : start + form.nbytes] = x.detach().contiguous().flatten().view(torch.uint8).to(own.device)
        start += form.room
    buffers = [torch.empty_like(own) for _ in rooms]
    with _others_there():
        dist.all_gather(buffers, own)
    return buffers


def _unpacked(buffer: Tensor, forms: Tree) -> Tree:
    start = 0

    def take(form: _Form) -> Tensor:
        nonlocal start
        piece = buffer[start : start + form.nbytes]
        start += form.room
        return piece.view(form.dtype).view(form.shape).to(form.device)

    return tree_map(take, forms)


def _joined(number: int, trees: list[Tree], wires: list[dict]) -> Done:
    """The parts of one list of rows, put together in their order."""
    mine = [tree[number] for tree in trees if number in tree]
    buffers = [wire[number] for wire in wires if number in wire]
    tree = tree_map(lambda *parts: torch.cat(parts), *mine)
    return Done(tree, {name: [one for part in buffers for one in part[name]] for name in buffers[0]})

"""Who holds what: samples once on the device, index tables that say which client owns which rows.

A partition, a repetition with another split, a pooled baseline and the parties of a vertical
federation are all the same thing here: a table of row numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.partition import Partition


def floating(samples: Mapping[str, Tensor]) -> Tensor:
    """The first tensor of floating-point numbers, whose dtype and device models take. Raises: ValueError."""
    for x in samples.values():
        if x.dtype.is_floating_point:
            return x
    kinds = {name: x.dtype for name, x in samples.items()}
    raise arguments.wrong(ValueError, "samples", kinds, "one tensor of floating-point numbers, as x.float() / 255")


@dataclass(frozen=True)
class Rows:
    """The data of some clients, as local work sees them.

    Shapes: ``samples[name]`` [N, ...] (shared by all, never copied); ``table`` [R, n_max] row numbers,
    padded with 0; ``sizes`` [R].
    """

    samples: Mapping[str, Tensor]
    table: Tensor
    sizes: Tensor


@dataclass(frozen=True)
class Group:
    """Clients that can be batched: one architecture, one form of state, one sample store.

    Shapes: ``ids`` [K_g] client numbers; ``samples[name]`` [N, ...]; ``table`` [P, K_g, n_max] and
    ``sizes`` [P, K_g], where P is 1 (all seeds share the split) or S (each seed has its own).
    Memory: the samples plus 8 * P * K_g * n_max bytes.
    """

    name: str
    ids: Tensor
    samples: Mapping[str, Tensor]
    table: Tensor
    sizes: Tensor

    def rows(self, seed_slot: Tensor, member: Tensor) -> Rows:
        """Data of the clients ``member`` [R] (positions in this group) in the federations ``seed_slot`` [R]."""
        slot = seed_slot if self.table.shape[0] > 1 else torch.zeros_like(seed_slot)
        # the device follows the samples: tables stay on the CPU, where the draws are made
        return Rows(self.samples, self.table[slot, member], self.sizes[slot, member])


class Federation:
    """All clients: K of them, in one group or in groups of different architectures.

    ``Federation(samples, partition)`` is the usual case. ``partition`` may be a list with one partition
    for each seed. ``groups`` = one word a client splits them by architecture. For parties or clients
    with separate sample stores use :meth:`of_groups`.
    Raises: TypeError, ValueError.
    """

    def __init__(
        self,
        samples: Mapping[str, Tensor],
        partition: Partition | Sequence[Partition],
        groups: Sequence[str] | None = None,
    ):
        partitions = [partition] if isinstance(partition, Partition) else partition
        partitions = list(partitions) if isinstance(partitions, Sequence) else []
        if not partitions or not all(isinstance(p, Partition) for p in partitions):
            raise arguments.wrong(TypeError, "partition", partition, "a Partition, or a list with one for each seed")
        clients = partitions[0].num_clients
        if any(p.num_clients != clients for p in partitions):
            counts = [p.num_clients for p in partitions]
            raise ValueError(f"partition: got partitions of {counts} clients; allowed are equal numbers of clients")
        group_of = ["all"] * clients if groups is None else list(groups)
        if len(group_of) != clients:
            raise arguments.wrong(ValueError, "groups", group_of, f"one word for each of the {clients} clients")
        table, sizes = _stack(partitions)
        self.groups: dict[str, Group] = {}
        for word in dict.fromkeys(group_of):
            ids = torch.tensor([k for k, w in enumerate(group_of) if w == word])
            own = slice(None) if len(ids) == clients else ids  # of one group, no copy
            self.groups[word] = _group(word, ids, samples, table[:, own], sizes[:, own])
        self._index()

    @classmethod
    def of_groups(cls, groups: Mapping[str, tuple[Mapping[str, Tensor], Partition]]) -> Federation:
        """Groups with their own sample stores, client numbers counted through in the order given.

        Raises: TypeError, ValueError.
        """
        if not isinstance(groups, Mapping) or not groups:
            raise arguments.wrong(ValueError, "groups", groups, "a mapping with at least one group")
        for word, pair in groups.items():
            if not isinstance(pair, Sequence) or len(pair) != 2 or not isinstance(pair[1], Partition):
                raise arguments.wrong(TypeError, f"groups[{word!r}]", pair, "(samples, Partition)")
        self, start = cls.__new__(cls), 0
        self.groups = {}
        for word, (samples, partition) in groups.items():
            table, sizes = _stack([partition])
            ids = torch.arange(start, start + partition.num_clients)
            self.groups[word] = _group(word, ids, samples, table, sizes)
            start += partition.num_clients
        self._index()
        return self

    def _index(self) -> None:
        self._fingerprint: str | None = None
        self.num_clients = sum(len(g.ids) for g in self.groups.values())
        self.group_of = torch.empty(self.num_clients, dtype=torch.long)  # [K] number of the client's group
        self.member_of = torch.empty(self.num_clients, dtype=torch.long)  # [K] its position in that group
        for number, group in enumerate(self.groups.values()):
            self.group_of[group.ids] = number
            self.member_of[group.ids] = torch.arange(len(group.ids))

    @property
    def splits(self) -> int:
        """P: 1 if all seeds share one split, else the number of splits."""
        return next(iter(self.groups.values())).table.shape[0]

    @property
    def sizes(self) -> Tensor:
        """[P, K] number of samples of each client."""
        sizes = torch.empty(self.splits, self.num_clients, dtype=torch.long)
        for group in self.groups.values():
            sizes[:, group.ids] = group.sizes
        return sizes

    @property
    def device(self) -> torch.device:
        """Where the samples lie."""
        return next(iter(next(iter(self.groups.values())).samples.values())).device

    def to(self, device: torch.device | str) -> Federation:
        """The same federation with its samples on ``device`` (tables stay on the CPU)."""
        moved = Federation.__new__(Federation)
        moved.groups = {
            word: Group(word, g.ids, {n: x.to(device) for n, x in g.samples.items()}, g.table, g.sizes)
            for word, g in self.groups.items()
        }
        moved._index()
        return moved

    def fingerprint(self) -> str:
        """A short hash of the split and of the samples, byte for byte: tells checkpoints of other data apart.

        It reads all samples (about a second a gigabyte), once for each federation. Bytes, not a sum: a sum of
        floating-point numbers depends on the number of threads, and shuffled labels have the same one.
        """
        if self._fingerprint is None:
            self._fingerprint = self._hash()
        return self._fingerprint

    def require_each_sample_once(self) -> None:
        """For guarantees to a record: held twice, it would move what is released twice as far. Raises: ValueError."""
        for group in self.groups.values():
            real = torch.arange(group.table.shape[2]) < group.sizes[..., None]  # [P, K, n_max]
            for table, held in zip(group.table, real, strict=True):
                if len(table[held].unique()) < int(held.sum()):
                    raise ValueError(
                        "partition: got a sample that is held twice; allowed with records' privacy is once"
                    )

    def split_bytes(self, slot: int) -> Iterator[bytes | memoryview]:
        """Who holds which samples in federation ``slot``, and what a sample looks like: all but the samples' values."""
        slot = min(slot, self.splits - 1)
        for group in self.groups.values():
            sizes, table = group.sizes[slot], group.table[slot]
            real = torch.arange(table.shape[-1]) < sizes[:, None]  # padding depends on the other federations
            forms = {name: (tuple(x.shape[1:]), str(x.dtype)) for name, x in group.samples.items()}
            yield f"{group.name} {forms}".encode()
            for x in (group.ids, sizes, table.flatten() if bool(real.all()) else table[real]):
                yield x.contiguous().numpy().data

    def _hash(self) -> str:
        digest = hashlib.blake2b(digest_size=8)
        for group in self.groups.values():
            digest.update(group.name.encode())
            for tensor in (group.ids, group.table, group.sizes):
                digest.update(tensor.contiguous().numpy().data)
            for name, x in group.samples.items():
                digest.update(f"{name}{tuple(x.shape)}{x.dtype}".encode())
                digest.update(x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        return digest.hexdigest()


def _stack(partitions: Sequence[Partition]) -> tuple[Tensor, Tensor]:
    width = max(p.table.shape[1] for p in partitions)
    table = torch.zeros(len(partitions), partitions[0].num_clients, width, dtype=torch.long)
    for slot, p in enumerate(partitions):
        table[slot, :, : p.table.shape[1]] = p.table
    return table, torch.stack([p.sizes for p in partitions])


def _group(word: str, ids: Tensor, samples: Mapping[str, Tensor], table: Tensor, sizes: Tensor) -> Group:
    if not isinstance(samples, Mapping) or not samples:
        raise arguments.wrong(TypeError, "samples", samples, "a non-empty mapping from words to tensors")
    for name, x in samples.items():
        if arguments.tensor(f"samples[{name!r}]", x).ndim == 0:
            raise arguments.wrong(ValueError, f"samples[{name!r}]", x, "a tensor with one row a sample")
    lengths = {name: len(x) for name, x in samples.items()}
    if len({x.device for x in samples.values()}) != 1:
        raise ValueError(f"samples: got { ({n: str(x.device) for n, x in samples.items()}) }; allowed is one device")
    if len(set(lengths.values())) != 1:
        raise ValueError(f"samples: got {lengths} rows; allowed are tensors with equal numbers of rows")
    count = next(iter(lengths.values()))
    real = torch.arange(table.shape[-1]) < sizes[..., None]
    used = table if bool(real.all()) else table[real]
    if used.numel() and (int(used.max()) >= count or int(used.min()) < 0):
        raise ValueError(f"partition: got rows up to {int(used.max())}; allowed are rows of the {count} samples")
    return Group(word, ids, dict(samples), table, sizes)

"""The index table that every partition is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fedbook import arguments


@dataclass(frozen=True, eq=False)
class Partition:
    """Which rows of the samples each client holds; no client is empty.

    Rows may be shared between clients (a repetition, a bootstrap); :meth:`check` tells.
    Shapes: ``table`` [K, n_max] int64 row numbers, padded with 0; ``sizes`` [K] int64, from 1 to n_max.
    Memory: 8 * K * n_max bytes.
    Raises: TypeError, ValueError.
    """

    table: Tensor
    sizes: Tensor

    def __post_init__(self):
        for name, value, ndim in (("table", self.table, 2), ("sizes", self.sizes, 1)):
            arguments.tensor(name, value, ndim=ndim, kind="integer")
            if value.dtype != torch.long or value.device.type != "cpu":
                raise TypeError(f"{name}: got {value.dtype} on {value.device}; allowed is int64 on the CPU")
        clients, width = self.table.shape
        if clients == 0 or width == 0:
            raise arguments.wrong(ValueError, "table", self.table, "[K, n_max] with at least one client and one sample")
        if len(self.sizes) != clients:
            raise arguments.wrong(ValueError, "sizes", self.sizes, f"one size for each of the {clients} clients")
        outside = ((self.sizes < 1) | (self.sizes > width)).nonzero()
        if len(outside):
            k = int(outside[0])
            raise ValueError(f"sizes: got {int(self.sizes[k])} for client {k}; allowed is 1 to n_max = {width}")
        if int(self.table.min()) < 0:
            raise ValueError(f"table: got the row {int(self.table.min())}; allowed are rows of at least 0")
        if bool(self.table[~self._used()].any()):
            raise ValueError("table: got an entry other than 0 beyond a client's size; allowed is padding with 0")

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int] | Tensor | np.ndarray]) -> Partition:
        """The partition in which client k holds the rows ``lists[k]``, in the order given.

        Raises: TypeError (rows that are no whole numbers), ValueError (no client, an empty client, a negative row).
        """
        if isinstance(lists, str | bytes) or not hasattr(lists, "__len__"):
            raise arguments.wrong(TypeError, "lists", lists, "a list with the rows of each client")
        if len(lists) == 0:
            raise arguments.wrong(ValueError, "lists", lists, "at least one client")
        rows = [_rows(f"lists[{k}]", one) for k, one in enumerate(lists)]
        return cls(pad_sequence(rows, batch_first=True), torch.tensor([len(r) for r in rows]))

    @classmethod
    def from_owners(cls, owners: np.ndarray, num_clients: int) -> Partition:
        """The partition in which sample i belongs to client ``owners[i]`` (-1: to nobody); rows ascend.

        Shapes: ``owners`` [N] int64, from -1 to num_clients - 1.
        Raises: ValueError (an empty client, an owner outside the range).
        """
        num_clients = arguments.integer("num_clients", num_clients, 1)
        owners = np.asarray(owners)
        if owners.ndim != 1 or owners.dtype.kind not in "iu":
            raise arguments.wrong(TypeError, "owners", owners, "a vector of whole numbers")
        if owners.size and (owners.min() < -1 or owners.max() >= num_clients):
            raise arguments.wrong(ValueError, "owners", owners, f"-1 to {num_clients - 1}")
        rows = np.flatnonzero(owners >= 0)
        rows = rows[np.argsort(owners[rows], kind="stable")]  # client by client, rows ascending
        sizes = np.bincount(owners[rows], minlength=num_clients)
        place = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # position within the client
        table = np.zeros((num_clients, max(int(sizes.max()), 1)), dtype=np.int64)
        table[owners[rows], place] = rows
        return cls(torch.from_numpy(table), torch.from_numpy(sizes.astype(np.int64)))

    def __eq__(self, other: object) -> bool:
        """The same rows for the same clients in the same order (unused columns of padding do not count)."""
        if not isinstance(other, Partition):
            return NotImplemented
        return torch.equal(self.sizes, other.sizes) and torch.equal(self._flat(), other._flat())

    __hash__ = None

    @property
    def num_clients(self) -> int:
        """K."""
        return self.table.shape[0]

    def client(self, k: int) -> Tensor:
        """[sizes[k]] the rows of client ``k`` (0 to K-1). Raises: TypeError, ValueError."""
        k = arguments.integer("k", k, 0, self.num_clients - 1)
        return self.table[k, : self.sizes[k]]

    def lists(self) -> list[Tensor]:
        """The rows of each client."""
        return [self.client(k) for k in range(self.num_clients)]

    def pooled(self) -> Partition:
        """One client that holds everything, client by client: the data of the centralised baseline."""
        rows = self._flat()
        return Partition(rows[None], torch.tensor([len(rows)]))

    def counts(self, labels: Tensor, num_classes: int | None = None) -> Tensor:
        """[K, C] how many samples of each class each client holds.

        Shapes: ``labels`` [N] integers from 0 to C-1; ``num_classes`` C, by default the largest label + 1.
        Raises: TypeError, ValueError (label outside the range, rows beyond N).
        """
        labels = check_labels(labels)
        top = int(labels.max()) + 1
        num_classes = arguments.integer("num_classes", top if num_classes is None else num_classes, top)
        self._check_range(len(labels))
        client = torch.arange(self.num_clients).repeat_interleave(self.sizes)
        cell = client * num_classes + labels[self._flat()]
        return torch.bincount(cell, minlength=self.num_clients * num_classes).view(self.num_clients, num_classes)

    def check(self, num_samples: int, complete: bool = False) -> Partition:
        """The partition itself if no row is held twice and all are below ``num_samples``.

        ``complete=True`` also demands that every row is held.
        Raises: TypeError, ValueError.
        """
        arguments.flag("complete", complete)
        self._check_range(arguments.integer("num_samples", num_samples, 1))
        times = torch.bincount(self._flat(), minlength=num_samples)
        if int(times.max()) > 1:
            row = int(times.argmax())
            clients = ((self.table == row) & self._used()).any(1).nonzero()[:, 0].tolist()
            raise ValueError(f"partition: got row {row} {int(times[row])} times, at clients {clients}; allowed is once")
        if complete and not bool(times.all()):
            missing = int((times == 0).sum())
            raise ValueError(
                f"partition: {missing} of {num_samples} samples belong to nobody, row "
                f"{int((times == 0).nonzero()[0])} first; allowed is every sample at one client"
            )
        return self

    def _used(self) -> Tensor:
        return torch.arange(self.table.shape[1]) < self.sizes[:, None]

    def _flat(self) -> Tensor:
        return self.table[self._used()]

    def _check_range(self, num_samples: int) -> None:
        top = int(self.table.max())
        if top >= num_samples:
            raise ValueError(f"partition: got row {top}; allowed are rows of the {num_samples} samples")


def check_labels(labels: Tensor, name: str = "labels") -> Tensor:
    """``labels`` [N] as int64 on the CPU, if they are whole numbers of at least 0. Raises: TypeError, ValueError."""
    arguments.tensor(name, labels, ndim=1, kind="integer")
    if len(labels) == 0:
        raise arguments.wrong(ValueError, name, labels, "at least one label")
    labels = labels.detach().to("cpu", torch.long)
    if int(labels.min()) < 0:
        raise ValueError(f"{name}: got the label {int(labels.min())}; allowed are whole numbers of at least 0")
    return labels


def _rows(name: str, rows: Sequence[int] | Tensor | np.ndarray) -> Tensor:
    allowed = "a non-empty list of row numbers (whole numbers of at least 0)"
    try:
        values = rows.detach().cpu().numpy() if isinstance(rows, Tensor) else np.asarray(rows)
    except ValueError:  # ragged
        raise arguments.wrong(TypeError, name, rows, allowed) from None
    if values.ndim != 1 or values.size == 0:
        raise arguments.wrong(ValueError, name, rows, allowed)
    if values.dtype.kind not in "iu":
        raise arguments.wrong(TypeError, name, rows, allowed)
    return torch.from_numpy(values.astype(np.int64))

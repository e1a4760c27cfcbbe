"""The byte ledger: what really crossed, counted at the message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedbook.federation.tree import Tree, leaves


@dataclass(frozen=True)
class Encoded:
    """One row's message in its wire format: everything needed to decode it lies in the buffer.

    Shapes: ``buffer`` [n] uint8 on the CPU.
    """

    buffer: Tensor

    def __post_init__(self):
        if self.buffer.dtype != torch.uint8 or self.buffer.ndim != 1:
            raise TypeError(f"buffer: got {self.buffer.dtype} with {self.buffer.ndim} axes; allowed is a uint8 vector")

    @property
    def nbytes(self) -> int:
        return self.buffer.numel()


@dataclass(frozen=True)
class Wire:
    """A broadcast that travels encoded: the decoded values and the buffers that really cross.

    Shapes: ``value`` [S, ...]; ``buffers`` one tuple of encoded buffers for each of the S federations.
    """

    value: Tensor
    buffers: tuple[tuple[Encoded, ...], ...]


def row_bytes(message: Tree, axes: int, slot: int) -> int:
    """Bytes of one row of a message, in federation ``slot``, whose tensors have ``axes`` leading axes."""
    total = 0
    for name, leaf in leaves(message):
        if isinstance(leaf, Wire):
            total += sum(buffer.nbytes for buffer in leaf.buffers[slot])
        elif isinstance(leaf, Tensor):
            total += leaf.shape[axes:].numel() * leaf.element_size()
        else:
            raise TypeError(f"message {name!r}: got {type(leaf).__name__}; allowed are tensors and Wire")
    return total


class ByteLedger:
    """Bytes up and down for each federation, with the set-up listed apart from the rounds."""

    def __init__(self, seeds: int):
        self.total = {part: {way: [0] * seeds for way in ("up", "down")} for part in ("setup", "rounds")}
        self.last = {"up": [0] * seeds, "down": [0] * seeds}
        self.by_exchange: dict[str, dict[str, int]] = {}

    def open_round(self) -> None:
        """Start counting a new round (or the set-up)."""
        self.last = {way: [0] * len(counts) for way, counts in self.last.items()}

    def add(self, t: int, exchange: str, way: str, counts: list[int]) -> None:
        """Count ``counts`` [S] bytes in direction ``way`` ("up" or "down"); ``t`` = -1 is the set-up."""
        part = self.total["setup" if t < 0 else "rounds"][way]
        entry = self.by_exchange.setdefault(exchange, {"up": 0, "down": 0})
        for slot, count in enumerate(counts):
            part[slot] += count
            self.last[way][slot] += count
            entry[way] += count

    def state(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return {"total": self.total, "by_exchange": self.by_exchange}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`."""
        self.total, self.by_exchange = state["total"], state["by_exchange"]

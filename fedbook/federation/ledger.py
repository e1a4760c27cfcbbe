"""The byte ledger: what really crossed, counted at the message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from fedbook.federation.tree import Tree, leaves
from fedbook.wire import Wire


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

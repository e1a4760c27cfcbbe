"""What crosses in a format of its own: buffers, and broadcasts that travel encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


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

    ``codec`` reads the buffers, all in a line, as a tensor of the shape ``rows`` (without: that of ``value``). Where it
    is not known, an engine whose nodes lie elsewhere sends the values.
    Shapes: ``value`` [S, ...]; ``buffers`` one tuple of encoded buffers for each of the S federations.
    """

    value: Tensor
    buffers: tuple[tuple[Encoded, ...], ...]
    codec: Any = None
    rows: tuple[int, ...] | None = None

"""What crosses in a format of its own: buffers, and broadcasts that travel encoded."""

from __future__ import annotations

from dataclasses import dataclass

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

    Shapes: ``value`` [S, ...]; ``buffers`` one tuple of encoded buffers for each of the S federations.
    """

    value: Tensor
    buffers: tuple[tuple[Encoded, ...], ...]

"""Symmetric matrices on the wire: their upper triangle, H (H + 1) / 2 numbers in place of H^2, nothing lost."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.wire import Encoded, Wire


class UpperTriangle:
    """Codec of an upload that is one symmetric matrix: row by row its entries on and above the diagonal.

    Shapes: rows [R, H, H]. Raises: TypeError, ValueError (also: a matrix that is not symmetric).
    Source: the protocol :class:`fedbook.federation.exchange.Codec`.
    """

    def encode(self, message: dict[str, Tensor], rngs: list[np.random.Generator]) -> list[Encoded]:
        """One buffer of H (H + 1) / 2 numbers of the rows' dtype for each row."""
        (rows,) = message.values()
        return _packed(rows)

    def decode(self, buffers: list[Encoded], like: dict[str, Tensor]) -> dict[str, Tensor]:
        """The matrices [R, H, H] in the dtype and on the device of ``like``."""
        ((name, rows),) = like.items()
        i, j = torch.triu_indices(*rows.shape[1:])
        upper = torch.stack([b.buffer.view(rows.dtype) for b in buffers]).to(rows.device)
        decoded = torch.empty_like(rows)
        decoded[:, i, j] = upper
        decoded[:, j, i] = upper
        return {name: decoded}


def triangle_wire(matrices: Tensor) -> Wire:
    """A broadcast of symmetric matrices [S, H, H] as their upper triangles."""
    return Wire(matrices, tuple((buffer,) for buffer in _packed(matrices)))


def _packed(rows: Tensor) -> list[Encoded]:
    arguments.tensor("rows", rows, ndim=3, kind="float", finite=False)
    if rows.shape[1] != rows.shape[2] or not torch.equal(rows, rows.mT):
        raise arguments.wrong(ValueError, "rows", rows, "symmetric matrices [R, H, H]")
    i, j = torch.triu_indices(*rows.shape[1:])
    upper = rows.detach().cpu()[:, i, j].contiguous()
    return [Encoded(row.contiguous().view(torch.uint8)) for row in upper]

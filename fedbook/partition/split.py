"""Each client's own samples, divided again: train, validation and test sets of personalised models."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from fedbook import arguments
from fedbook.partition.table import Partition
from fedbook.randomness import stream


def split_clients(partition: Partition, fractions: Sequence[float], seed: int) -> tuple[Partition, ...]:
    """One partition for each fraction; every client's rows are divided at random in these fractions.

    ``split_clients(p, (0.9, 0.1), seed)`` gives train and test. Sizes are the fractions rounded (sums
    rounded to nearest), except that no part of any client is empty: a part that would be takes one sample
    from the client's largest part. Together the parts hold what the client held, each row once. The draw
    is keyed by the client's number, so adding clients changes nobody's split.
    Raises: TypeError, ValueError (a client with fewer samples than parts, fractions that do not sum to 1).
    """
    if not isinstance(partition, Partition):
        raise arguments.wrong(TypeError, "partition", partition, "a Partition")
    shares = _fractions(fractions)
    small = (partition.sizes < len(shares)).nonzero()
    if len(small):
        k = int(small[0])
        raise ValueError(
            f"partition: client {k} has {int(partition.sizes[k])} samples; allowed are at least "
            f"{len(shares)}, one for each part"
        )
    parts: list[list[np.ndarray]] = [[] for _ in shares]
    for k, rows in enumerate(partition.lists()):
        shuffled = stream(seed, "split", client=k).permutation(rows.numpy())
        pieces = np.split(shuffled, np.cumsum(_part_sizes(len(rows), shares))[:-1])
        for part, piece in zip(parts, pieces, strict=True):
            part.append(np.sort(piece))
    return tuple(Partition.from_lists([torch.from_numpy(piece) for piece in part]) for part in parts)


def _fractions(fractions: Sequence[float]) -> np.ndarray:
    allowed = "at least two numbers above 0 that sum to 1"
    if isinstance(fractions, str | bytes) or not hasattr(fractions, "__len__"):
        raise arguments.wrong(TypeError, "fractions", fractions, allowed)
    shares = [arguments.real(f"fractions[{i}]", f, above=0.0, below=1.0) for i, f in enumerate(fractions)]
    if len(shares) < 2 or not math.isclose(sum(shares), 1.0, abs_tol=1e-9):
        raise arguments.wrong(ValueError, "fractions", fractions, allowed)
    return np.array(shares)


def _part_sizes(total: int, shares: np.ndarray) -> np.ndarray:
    # + 1e-9: 0.7 + 0.1 is a hair below 0.8, and 0.25 * 10 must not depend on how halves are rounded
    cuts = np.floor(np.cumsum(shares) * total + 0.5 + 1e-9).astype(np.int64)
    cuts[-1] = total
    sizes = np.diff(cuts, prepend=0)
    for part in np.flatnonzero(sizes == 0):
        sizes[sizes.argmax()] -= 1
        sizes[part] = 1
    return sizes

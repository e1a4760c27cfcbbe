"""Vertical partitions: every party holds a part of the features of every sample.

Equal parts are stacked, [M, N, ...], and lie as one sample store in which sample i of party m is row
m*N + i (:func:`stack_parties`). Parts of different widths cannot be stacked: they are separate stores,
one group each.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.partition.table import Partition
from fedbook.randomness import stream


def quadrants(images: Tensor) -> Tensor:
    """The four quarters of each image: top left, top right, bottom left, bottom right.

    Shapes: ``images`` [N, C, H, W] -> [4, N, C, H/2, W/2], a copy; values and dtype as given.
    Raises: TypeError, ValueError (an odd height or width, no image).
    Source: Castiglia et al. 2022 (C-VFL), section 5: CIFAR-10, one quadrant a party.
    """
    arguments.tensor("images", images, ndim=4)
    n, c, h, w = images.shape
    if images.numel() == 0 or h % 2 or w % 2:
        raise arguments.wrong(ValueError, "images", images, "[N, C, H, W], none of them 0, H and W even")
    halves = images.reshape(n, c, 2, h // 2, 2, w // 2)
    return halves.permute(2, 4, 0, 1, 3, 5).reshape(4, n, c, h // 2, w // 2)


def feature_blocks(
    features: Tensor, num_parties: int, seed: int | None = None, sizes: Sequence[int] | None = None
) -> list[Tensor]:
    """The column numbers of each party, ascending: disjoint and, together, all columns.

    Without a seed the blocks are contiguous, with one the columns are dealt at random. Blocks are equal
    to within one column, or of the given ``sizes``.
    Shapes: ``features`` [N, ..., D] -> M vectors of int64 on the CPU, D numbers in all.
    Raises: TypeError, ValueError (more parties than columns, sizes that do not sum to D).
    """
    arguments.tensor("features", features)
    if features.ndim < 2 or features.numel() == 0:
        raise arguments.wrong(ValueError, "features", features, "[N, ..., D], none of them 0")
    columns = features.shape[-1]
    num_parties = arguments.integer("num_parties", num_parties, 1, columns)
    sizes = _block_sizes(sizes, num_parties, columns)
    order = torch.arange(columns)
    if seed is not None:
        order = torch.from_numpy(stream(seed, "partition").permutation(columns))
    return [block.sort().values for block in order.split(sizes)]


def split_columns(features: Tensor, blocks: Sequence[Tensor]) -> list[Tensor]:
    """The columns of each party.

    Shapes: ``features`` [N, ..., D], ``blocks`` M vectors of column numbers -> M tensors [N, ..., D_m].
    Raises: TypeError, ValueError (an empty block, a column outside 0 to D-1 or in two blocks).
    """
    arguments.tensor("features", features)
    if features.ndim < 2:
        raise arguments.wrong(ValueError, "features", features, "[N, ..., D]")
    try:  # blocks are a partition of columns, so Partition knows how to check them
        checked = Partition.from_lists(blocks).check(features.shape[-1])
    except (TypeError, ValueError) as problem:
        raise type(problem)(f"blocks: {problem} (rows stand for columns, clients for parties)") from None
    return [features[..., block.to(features.device)] for block in checked.lists()]


def views(x: Tensor, num_parties: int | None = None) -> Tensor:
    """The views of each sample, one a party or the same number of consecutive ones each.

    Shapes: ``x`` [N, V, ...] -> [V, N, ...], or with ``num_parties`` M -> [M, N, V/M, ...].
    Raises: TypeError, ValueError (V no multiple of M, no view).
    """
    arguments.tensor("x", x)
    if x.ndim < 2 or x.shape[0] == 0 or x.shape[1] == 0:
        raise arguments.wrong(ValueError, "x", x, "[N, V, ...] with at least one sample and one view")
    if num_parties is None:
        return x.movedim(1, 0)
    n, v = x.shape[:2]
    m = arguments.integer("num_parties", num_parties, 1, v)
    if v % m:
        raise arguments.wrong(ValueError, "num_parties", num_parties, f"a divisor of the {v} views")
    return x.reshape(n, m, v // m, *x.shape[2:]).movedim(1, 0)


def parties(num_samples: int, num_parties: int) -> Partition:
    """The partition in which party m's sample i is row m*N + i. Disjoint, and complete for M*N rows.

    Raises: TypeError, ValueError.
    """
    num_samples = arguments.integer("num_samples", num_samples, 1)
    num_parties = arguments.integer("num_parties", num_parties, 1)
    table = torch.arange(num_parties * num_samples).view(num_parties, num_samples)
    return Partition(table, torch.full((num_parties,), num_samples))


def stack_parties(parts: Tensor) -> tuple[Tensor, Partition]:
    """All parties' parts as one sample store, and who holds which row of it.

    Shapes: ``parts`` [M, N, ...] -> samples [M*N, ...] and the :func:`parties` of N and M.
    Raises: TypeError, ValueError.
    """
    arguments.tensor("parts", parts)
    if parts.ndim < 2 or parts.shape[0] == 0 or parts.shape[1] == 0:
        raise arguments.wrong(ValueError, "parts", parts, "[M, N, ...] with at least one party and one sample")
    return parts.flatten(0, 1), parties(parts.shape[1], parts.shape[0])


def _block_sizes(sizes: Sequence[int] | None, num_parties: int, columns: int) -> list[int]:
    if sizes is None:
        return [columns // num_parties + (m < columns % num_parties) for m in range(num_parties)]
    allowed = f"{num_parties} whole numbers of at least 1 that sum to the {columns} columns"
    if isinstance(sizes, str | bytes) or not hasattr(sizes, "__len__"):
        raise arguments.wrong(TypeError, "sizes", sizes, allowed)
    checked = [arguments.integer(f"sizes[{m}]", n, 1) for m, n in enumerate(sizes)]
    if len(checked) != num_parties or sum(checked) != columns:
        raise arguments.wrong(ValueError, "sizes", sizes, allowed)
    return checked

"""Vertical partitions: every party holds a part of the features of every sample.

Equal parts are stacked, [M, N, ...], and lie as one sample store in which sample i of party m is row
m*N + i (:func:`stack_parties`). Parts of different widths cannot be stacked: they are separate stores,
one group each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.partition.table import Partition


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


def views(x: Tensor, num_parties: int) -> Tensor:
    """The views of each sample, the same number of consecutive ones for each of M parties.

    Shapes: ``x`` [N, V, ...] -> [M, N, V/M, ...].
    Raises: TypeError, ValueError (V no multiple of M, no view).
    """
    arguments.tensor("x", x)
    if x.ndim < 2 or x.shape[0] == 0 or x.shape[1] == 0:
        raise arguments.wrong(ValueError, "x", x, "[N, V, ...] with at least one sample and one view")
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

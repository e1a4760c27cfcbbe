"""Who takes part: samplers of clients and the cohort of an exchange.

The sampler that is accounted must be the sampler that runs, so both are this one object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments


@dataclass(frozen=True)
class Everyone:
    """All clients, every time."""

    word = "none"

    def draw(self, num_clients: int, rng: np.random.Generator) -> Tensor:
        """[K] the numbers 0..K-1."""
        return torch.arange(num_clients)


@dataclass(frozen=True)
class FixedSize:
    """``size`` different clients, every set of that size equally likely."""

    size: int
    word = "fixed"

    def __post_init__(self):
        arguments.integer("size", self.size, 1)

    def draw(self, num_clients: int, rng: np.random.Generator) -> Tensor:
        """[size] client numbers, ascending. Raises: ValueError if there are fewer clients than ``size``."""
        arguments.integer("size (clients a round)", self.size, 1, num_clients)
        return torch.from_numpy(np.sort(rng.choice(num_clients, self.size, replace=False)))


@dataclass(frozen=True)
class Poisson:
    """Each client on its own with probability ``rate``; the cohort may be empty."""

    rate: float
    word = "poisson"

    def __post_init__(self):
        arguments.real("rate", self.rate, 0.0, 1.0)

    def draw(self, num_clients: int, rng: np.random.Generator) -> Tensor:
        """[any] client numbers, ascending."""
        return torch.from_numpy(np.flatnonzero(rng.random(num_clients) < self.rate))


Sampler = Everyone | FixedSize | Poisson


@dataclass(frozen=True)
class Cohort:
    """The clients of one exchange, for each of S federations side by side.

    Shapes: ``ids`` [S, m] client numbers, padded with 0; ``present`` [S, m] False where padded.
    """

    ids: Tensor
    present: Tensor

    def __post_init__(self):
        arguments.tensor("ids", self.ids, ndim=2, kind="integer")
        arguments.tensor("present", self.present, shape=self.ids.shape, kind="bool")

    @classmethod
    def of(cls, lists: Sequence[Tensor]) -> Cohort:
        """From one list of distinct client numbers for each seed (empty lists are allowed).

        Raises: TypeError (numbers that are not whole), ValueError (negative, twice, no list at all).
        """
        if not isinstance(lists, Sequence) or isinstance(lists, str) or not lists:
            raise arguments.wrong(ValueError, "cohort", lists, "one list of client numbers for each seed")
        lists = [_numbers(members) for members in lists]
        width = max((len(ids) for ids in lists), default=0)
        ids = torch.zeros(len(lists), width, dtype=torch.long)
        present = torch.zeros(len(lists), width, dtype=torch.bool)
        for slot, members in enumerate(lists):
            ids[slot, : len(members)] = members
            present[slot, : len(members)] = True
        return cls(ids, present)

    @property
    def sizes(self) -> Tensor:
        """[S] number of clients in each federation's cohort."""
        return self.present.sum(1)

    def members(self, slot: int) -> Tensor:
        """[m_s] client numbers of federation ``slot``."""
        return self.ids[slot, self.present[slot]]


def _numbers(members: Tensor | Sequence[int]) -> Tensor:
    members = torch.as_tensor(members)
    if members.ndim != 1 or (members.numel() and (members.dtype.is_floating_point or members.dtype == torch.bool)):
        raise arguments.wrong(TypeError, "cohort", members, "a list of whole numbers")
    members = members.to(torch.long)
    if members.numel() and int(members.min()) < 0:
        raise arguments.wrong(ValueError, "cohort", members.tolist(), "client numbers of at least 0")
    if len(members.unique()) != len(members):
        raise arguments.wrong(ValueError, "cohort", members.tolist(), "each client at most once")
    return members

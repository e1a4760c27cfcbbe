"""Partitions by the words of the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor

from fedbook import arguments
from fedbook.partition import horizontal, vertical
from fedbook.partition.table import Partition, check_labels


def by_name(name: str, labels: Tensor, num_clients: int, seed: int, **options: Any) -> Partition:
    """The partition called ``name`` of the samples with these ``labels`` among ``num_clients``.

    Options are those of the function of that name (:func:`options_of`). ``vertical``: the parties' rows
    m*N + i, for :func:`fedbook.partition.stack_parties`; the seed decides nothing there.
    Shapes: ``labels`` [N] integers.
    Raises: TypeError, ValueError (an unknown word, an option that is unknown or missing).
    """
    make = PARTITIONS[arguments.one_of("partition", name, PARTITIONS)]
    known = options_of(name)
    text = ", ".join(known) if known else "none"
    for option in options:
        if option not in known:
            raise ValueError(f"option of partition {name!r}: got {option!r}; allowed is {text}")
    for option, default in known.items():
        if default is inspect.Parameter.empty and option not in options:
            raise ValueError(f"{option}: not given; the partition {name!r} needs it (its options: {text})")
    arguments.integer("seed", seed, 0)
    return make(check_labels(labels), num_clients, seed, **options)


def options_of(name: str) -> Mapping[str, Any]:
    """The options of the partition ``name`` with their defaults (``inspect.Parameter.empty``: must be given)."""
    make = PARTITIONS[arguments.one_of("partition", name, PARTITIONS)]
    parameters = inspect.signature(make).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _iid(labels: Tensor, num_clients: int, seed: int) -> Partition:
    return horizontal.iid(len(labels), num_clients, seed)


def _quantity(labels: Tensor, num_clients: int, seed: int, *, alpha: float, minimum: int = 1) -> Partition:
    return horizontal.quantity(len(labels), num_clients, seed, alpha=alpha, minimum=minimum)


def _natural(labels: Tensor, num_clients: int | None, seed: int, *, groups: Tensor) -> Partition:
    groups = check_labels(groups, "groups")
    if len(groups) != len(labels):
        raise arguments.wrong(ValueError, "groups", groups, f"one group for each of the {len(labels)} labels")
    return horizontal.natural(groups, num_clients, seed)


def _vertical(labels: Tensor, num_clients: int, seed: int) -> Partition:
    return vertical.parties(len(labels), num_clients)


PARTITIONS: Mapping[str, Callable[..., Partition]] = MappingProxyType(
    {
        "iid": _iid,
        "shards": horizontal.shards,
        "classes": horizontal.classes,
        "dirichlet": horizontal.dirichlet,
        "quantity": _quantity,
        "natural": _natural,
        "vertical": _vertical,
    }
)

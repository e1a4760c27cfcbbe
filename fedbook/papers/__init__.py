"""One file a chapter: its configuration, the algorithm in the paper's order, its baselines."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from fedbook import arguments

if TYPE_CHECKING:
    from fedbook.papers.description import Paper

NAMES = ("fedavg", "fedsc", "prirfed", "dp2_fedsam", "cvfl", "hetero_ssfl")


def paper(name: str) -> Paper:
    """The experiments of the paper ``name``. Raises: TypeError, ValueError naming the papers there are."""
    arguments.one_of("paper", name, NAMES)
    return import_module(f"fedbook.papers.{name}").PAPER

"""One folder a paper: the algorithm in the paper's order, its problem, its losses, accounting and baselines."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from fedbook import arguments

if TYPE_CHECKING:
    from fedbook.papers.description import Paper

NAMES = ("fedavg", "fedsc", "hetero_ssfl", "prirfed", "dp2_fedsam", "cvfl")  # by chapter


def paper(name: str) -> Paper:
    """The experiments of a paper: its name, its chapter ("1") or the chapter's notebook ("01_fedsc", "01_fedsc.ipynb").

    Raises: TypeError, ValueError naming the papers there are.
    """
    chapters = {f"{number}": word for number, word in enumerate(NAMES)} | {"00_start_here": "fedavg"}
    chapters |= {f"{number:02d}_{word}": word for number, word in enumerate(NAMES)}
    name = chapters.get(name.removesuffix(".ipynb"), name) if isinstance(name, str) else name
    return import_module(f"fedbook.papers.{arguments.one_of('paper', name, NAMES)}").PAPER

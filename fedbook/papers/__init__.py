"""One folder a paper: the algorithm in the paper's order, its problem, its losses, accounting and baselines."""

from __future__ import annotations

from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING

from fedbook import arguments

if TYPE_CHECKING:
    from fedbook.papers.description import Paper

NAMES = {"fedavg": 0, "fedsc": 1, "hetero_ssfl": 2, "prirfed": 3, "dp2_fedsam": 4, "cvfl": 5}  # the paper's chapter


def paper(name: str) -> Paper:
    """The experiments of a paper: its name, its chapter ("1") or one of its notebooks ("01_fedsc", a path to it).

    Raises: TypeError, ValueError naming the papers there are.
    """
    chapters = {f"{number}": word for word, number in NAMES.items()} | {"00_start_here": "fedavg"}
    chapters |= {f"{number:02d}_{word}": word for word, number in NAMES.items()}
    if isinstance(name, str):
        notebook = PurePath(name).name.removesuffix(".ipynb").removesuffix("_results").removesuffix("_proofs")
        name = chapters.get(notebook, name)
    return import_module(f"fedbook.papers.{arguments.one_of('paper', name, NAMES)}").PAPER

"""The words of the papers' errata, a table a paper: what the paper says, what is right, in which section it is shown.

``number`` or ``quantity`` names what the page ``NN_PAPER_proofs`` computes as a witness (behind a semicolon: how the
paper bounds it), empty where nothing is; ``quotation`` then holds the paper's own numbers, if they tell. The numbers
themselves are computed on the page. In each kind those that change a conclusion come first.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pandas as pd


def read(paper: str) -> dict[str, Any]:
    """The errata of ``paper``, in order: name -> named tuple of the columns of ``PAPER.csv``, all of them texts."""
    with (files(__package__) / f"{paper}.csv").open(encoding="utf-8") as table:
        rows = pd.read_csv(table, dtype=str, keep_default_na=False)
    return {row.name: row for row in rows.itertuples(index=False, name="Erratum")}

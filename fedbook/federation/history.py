"""What a run leaves behind: one record a round, in plain values."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from fedbook import outputs


@dataclass(frozen=True)
class Record:
    """One round. Every list has one entry for each of the S federations; None stands for NaN or infinity.

    ``metrics`` come from the evaluation (empty in rounds that are not evaluated), ``trace`` from local
    work (mean over the cohort; the server never sees it), ``seconds`` is the wall time of the round.
    """

    t: int
    metrics: dict[str, list[float | None]]
    trace: dict[str, list[float | None]]
    cohort: list[int]
    bytes_up: list[int]
    bytes_down: list[int]
    seconds: float = field(compare=False)


class History(list):
    """The records of a run, in order."""

    def values(self, metric: str) -> tuple[torch.Tensor, torch.Tensor]:
        """The rounds [E] at which ``metric`` was evaluated and its values [S, E].

        Raises: KeyError naming the metrics that there are.
        """
        hits = [r for r in self if metric in r.metrics]
        if not hits:
            known = sorted({name for r in self for name in r.metrics})
            raise KeyError(f"metric: got {metric!r}; this history has {known}")
        table = [[float("nan") if v is None else v for v in r.metrics[metric]] for r in hits]
        return torch.tensor([r.t + 1 for r in hits]), torch.tensor(table, dtype=torch.float64).T

    def bytes_total(self) -> tuple[int, int]:
        """Bytes up and down over all rounds of the first federation."""
        return sum(r.bytes_up[0] for r in self), sum(r.bytes_down[0] for r in self)

    def amend(self, metrics: dict[str, list[float | None]]) -> None:
        """Put metrics into the last record: a run that ends early is judged where it stopped."""
        self[-1] = replace(self[-1], metrics=metrics)

    def state(self) -> list[dict[str, Any]]:
        """Plain values for a checkpoint or a file."""
        return [dict(vars(r)) for r in self]  # not asdict: its deep copies made saving quadratic in the rounds

    @classmethod
    def from_state(cls, state: list[dict[str, Any]]) -> History:
        return cls(Record(**entry) for entry in state)

    def save(self, path: str | Path) -> None:
        """Write JSON, whole or not at all."""
        outputs.write(path, json.dumps(self.state(), indent=1))


class Log:
    """The history as a CSV file to be read while the run lasts: a row a round and seed, nothing for None.

    Quantities of local work (``trace``) are called ``local_loss`` and the like, metrics as they are. A file that an
    earlier process left is written anew, from the history: it may hold half a row, or rounds that are run again.
    """

    def __init__(self, path: str | Path, seeds: Sequence[int]):
        self.path, self.seeds, self.columns = Path(path), tuple(seeds), ()
        self.written = 0  # records that the file holds: one is missing after an error between the round and its row

    def write(self, history: History) -> None:
        """Write all rows, whole or not at all."""
        rows = [row for record in history for row in self._rows(record)]
        self.columns = tuple(dict.fromkeys(name for row in rows for name in row))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        outputs.write(self.path, self._text([dict(zip(self.columns, self.columns, strict=True)), *rows]))
        self.written = len(history)

    def add(self, history: History) -> None:
        """Append the rows of the last record; all is written anew where they have a column of their own."""
        rows = self._rows(history[-1])
        if self.written + 1 != len(history) or any(name not in self.columns for row in rows for name in row):
            self.write(history)
            return
        with open(self.path, "a", encoding="utf-8", newline="") as file:
            file.write(self._text(rows))
        self.written += 1

    def _rows(self, record: Record) -> list[dict[str, Any]]:
        named = {"cohort": record.cohort, "bytes_up": record.bytes_up, "bytes_down": record.bytes_down}
        named |= {f"local_{name}": values for name, values in record.trace.items()} | record.metrics
        return [
            {"round": record.t + 1, "seed": seed, "seconds": round(record.seconds, 6)}
            | {name: values[slot] for name, values in named.items()}
            for slot, seed in enumerate(self.seeds)
        ]

    def _text(self, rows: Sequence[Mapping[str, Any]]) -> str:
        text = io.StringIO()
        csv.DictWriter(text, self.columns, lineterminator="\n").writerows(rows)
        return text.getvalue()


def finite(value: Any) -> Any:
    """``value`` with every NaN and infinity replaced by None, at any depth."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

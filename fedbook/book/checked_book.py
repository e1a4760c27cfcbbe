"""A notebook as the lint sees it: numbered cells, and problems that name them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbook.book.contents import navigation, notebook_path
from fedbook.book.product import place, tags


@dataclass(frozen=True)
class Problem:
    """One broken rule. ``cell`` counts all cells from 1; 0 is the notebook as a whole."""

    rule: str
    cell: int
    message: str

    def __str__(self) -> str:
        return f"{self.rule}: {f'cell {self.cell}: ' if self.cell else ''}{self.message}"


@dataclass(frozen=True)
class Book:
    """A notebook with its name, size in kB and numbered cells."""

    name: str
    notebook: Any
    size_kb: float
    cells: tuple[tuple[int, Any], ...]

    @classmethod
    def read(cls, path: str | Path) -> Book:
        """The notebook at ``path``. Raises: FileNotFoundError, ValueError (no notebook)."""
        import nbformat

        path = notebook_path(path)
        text = path.read_text(encoding="utf-8")
        try:
            notebook = nbformat.from_dict(nbformat.reader.reads(text))
        except Exception as error:
            raise ValueError(f"path: got {path.name}, which is no notebook ({error})") from None
        return cls(path.stem, notebook, path.stat().st_size / 1000, tuple(enumerate(notebook.cells, start=1)))

    def cell(self, number: int) -> Any:
        """The cell with that number."""
        return self.cells[number - 1][1]

    def code(self) -> Iterator[tuple[int, Any]]:
        """The code cells with their numbers."""
        return ((number, cell) for number, cell in self.cells if cell.cell_type == "code")

    def prose(self) -> Iterator[tuple[int, str]]:
        """The sources of the markdown cells with their numbers."""
        return ((number, cell.source) for number, cell in self.cells if cell.cell_type == "markdown")

    def trees(self) -> Iterator[tuple[int, Any, ast.Module]]:
        """Number, cell and syntax tree of each code cell that is plain Python."""
        for number, cell in self.code():
            try:
                yield number, cell, ast.parse(cell.source)
            except SyntaxError:
                continue

    def where(self, number: int) -> str:
        """Number and first line of a cell."""
        return place(number, self.cell(number))


def generated(cell: Any, name: str) -> str | None:
    """The source that is generated for a cell of chapter ``name``; None for a cell its author writes.

    Generated are cells tagged ``nav``, and markdown cells tagged ``solution`` and ``ex-<id>``: hints and
    solution of that exercise, so that what the reader unfolds is what the tests run.
    Raises: ValueError (no such chapter or exercise).
    """
    marks = tags(cell)
    if "nav" in marks:
        return navigation(name)
    ids = [mark.removeprefix("ex-") for mark in marks if mark.startswith("ex-")]
    if cell.cell_type == "markdown" and "solution" in marks and ids:
        from fedbook.lab.exercises import folded

        return folded(ids[0])
    return None

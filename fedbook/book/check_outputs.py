"""Rules about what is stored in a committed notebook: outputs, counts, metadata."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fedbook.book.checked_book import Book, Problem
from fedbook.book.product import CODE_RUN, WIDGET_VIEW, code_digest, tags

ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,}")
FIGURE_REPR = re.compile(r"^<Figure size [^>]*>$")


def counts_in_order(book: Book) -> Iterator[Problem]:
    """Executed from top to bottom on a fresh kernel: counts 1 to n."""
    for expected, (number, cell) in enumerate(book.code(), start=1):
        if cell.get("execution_count") != expected:
            count = cell.get("execution_count")
            yield Problem("execution-counts", number, f"execution count {count}; a fresh run gives {expected}")
            return


def outputs_of_this_code(book: Book) -> Iterator[Problem]:
    """The code was not changed after the run whose outputs are stored."""
    if book.notebook.metadata.get(CODE_RUN) != code_digest(book.notebook):
        yield Problem("outputs-of-this-code", 0, "the outputs are of other code; fedbook book --commit makes them anew")


def clean_outputs(book: Book) -> Iterator[Problem]:
    """No errors, no stderr, no widget views, no addresses of objects."""
    for number, cell in book.code():
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                yield Problem("error-output", number, f"stored error {output.get('ename')}: {output.get('evalue')}")
            if output.get("name") == "stderr":
                yield Problem("stderr-output", number, "stored output on stderr")
            if WIDGET_VIEW in output.get("data", {}):
                yield Problem("widget-state", number, "a widget view that no stored state belongs to")
            if ADDRESS.search(_text(output)):
                yield Problem("addresses", number, "an object printed with its address, another one each run")


def clean_metadata(book: Book) -> Iterator[Problem]:
    """No widget state, nothing of papermill, no time stamps."""
    for key in ("widgets", "papermill", "toc", "signature"):
        if key in book.notebook.metadata:
            rule = "widget-state" if key == "widgets" else "metadata"
            yield Problem(rule, 0, f"metadata.{key} is stored; rewrite the committed notebooks")
    for number, cell in book.cells:
        for key in set(cell.metadata) - {"tags", "alt"}:
            yield Problem("metadata", number, f"cell metadata {key!r}; allowed are tags and alt")
        if "injected-parameters" in tags(cell):
            yield Problem("metadata", number, "a cell injected by papermill")


def marked_cells_have_outputs(book: Book) -> Iterator[Problem]:
    """nbval compares nothing where nothing is stored, and says nothing about it."""
    for number, cell in book.code():
        if "nbval-check-output" in tags(cell):
            if not cell.get("outputs"):
                yield Problem("marked-output", number, "tagged nbval-check-output, but no output is stored")
            if "nbval-ignore-output" in tags(cell):
                yield Problem("marked-output", number, "tagged both nbval-check-output and nbval-ignore-output")


def widgets_are_ignored(book: Book) -> Iterator[Problem]:
    """nbval does not compare the output of a widget."""
    for number, cell in book.code():
        if "widget" in tags(cell) and "nbval-ignore-output" not in tags(cell):
            yield Problem("widget-tags", number, "a widget cell is tagged nbval-ignore-output too")


def figures_are_read(book: Book) -> Iterator[Problem]:
    """A figure is followed by words: text of the same cell, or a markdown cell."""
    for number, cell in book.code():
        if not _has_picture(cell):
            continue
        has_text = any(not FIGURE_REPR.match(_text(output).strip()) for output in cell.outputs if _text(output).strip())
        follows = number < len(book.cells) and book.cell(number + 1)
        if not has_text and not (follows and follows.cell_type == "markdown" and "nav" not in tags(follows)):
            yield Problem("figure-words", number, "no sentence after this figure")


def _has_picture(cell: Any) -> bool:
    return any("image/png" in output.get("data", {}) for output in cell.get("outputs", []))


def _text(output: Any) -> str:
    text = output.get("text", "") or output.get("data", {}).get("text/plain", "")
    return "".join(text) if isinstance(text, list) else text


OUTPUT_RULES = (
    counts_in_order,
    outputs_of_this_code,
    clean_outputs,
    clean_metadata,
    marked_cells_have_outputs,
    widgets_are_ignored,
    figures_are_read,
)

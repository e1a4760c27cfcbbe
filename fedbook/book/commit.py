"""Rewriting the committed notebooks: one run on a fresh kernel at their own values, then scrubbed.

Stored outputs are made here and nowhere else, so that they belong to the source beside them and a second
rewriting without changes gives the same bytes.
"""

from __future__ import annotations

import base64
import binascii
import os
import struct
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedbook.book import frames
from fedbook.book.check import check_notebook
from fedbook.book.checked_book import generated
from fedbook.book.contents import CHAPTERS, notebook_path, notebooks_folder
from fedbook.book.product import CODE_RUN, PAPERMILL_MARKER, WIDGET_VIEW, code_digest, joined, tags
from fedbook.book.run import ChapterReport, run_chapter
from fedbook.progress import say

KERNELSPEC = {"display_name": "Python 3", "language": "python", "name": "python3"}
KEPT_METADATA = ("alt", "tags")
PNG = b"\x89PNG\r\n\x1a\n"
PNG_TEXT = (b"tEXt", b"zTXt", b"iTXt", b"tIME")


class CommitError(RuntimeError):
    """A notebook that was not rewritten; the message says why, the file is as it was."""


def commit_chapter(path: str | Path, *, timeout: float = 1800.0) -> ChapterReport:
    """Execute the notebook at its own values, headless, and replace it by the scrubbed product.

    Navigation and folded solutions are generated anew. ``timeout`` in seconds.
    Raises: CommitError (an error in a cell or a widget, a changed source, a broken rule), FileNotFoundError.
    """
    import nbformat

    path = notebook_path(path)
    say(f"{path.stem}: runs")
    before = nbformat.read(path, as_version=4)
    refresh(before, path.stem)
    with tempfile.TemporaryDirectory(prefix=".commit-", dir=path.parent) as name:
        source, product = Path(name) / path.name, Path(name) / f"product-{path.name}"
        nbformat.write(before, source)
        report = run_chapter(source, None, product, profile="committed", timeout=timeout, folder=path.parent)
        if not report.ok:
            raise CommitError("not rewritten:\n" + "\n".join(report.problems))
        after = nbformat.read(product, as_version=4)
        drawn = frames.split(after)
        scrub(after)
        _same_source(path.stem, before, after)
        text = nbformat.writes(after).rstrip("\n") + "\n"
        source.write_text(text, encoding="utf-8")
        problems = check_notebook(source)
        if problems:
            raise CommitError("not rewritten:\n" + "\n".join(f"{path.stem}: {problem}" for problem in problems))
        frames.write(path, drawn)
        os.replace(source, path)
    say(f"{path.stem}: done, {report.seconds:.0f} s")
    return report


def commit_all(paths: Iterable[str | Path] | None = None) -> list[ChapterReport]:
    """Rewrite these notebooks, or those of all ready chapters, in turn; the first that cannot be stops it."""
    if paths is None:
        paths = [notebooks_folder() / chapter.file for chapter in CHAPTERS]
    return [commit_chapter(path) for path in paths]


def refresh(notebook: Any, name: str) -> None:
    """Write the generated markdown cells anew: navigation, and the folded solutions of exercises."""
    for cell in notebook.cells:
        text = generated(cell, name)
        if text is not None:
            cell.source = text


def scrub(notebook: Any) -> None:
    """Take out, in place, what differs between two runs of the same source or belongs to a tool."""
    notebook.cells = [c for c in notebook.cells if not {"injected-parameters", PAPERMILL_MARKER} & set(tags(c))]
    language, code_run = {"name": "python"}, {CODE_RUN: code_digest(notebook)}
    notebook.metadata = type(notebook.metadata)(kernelspec=dict(KERNELSPEC), language_info=language, **code_run)
    count = 0
    for cell in notebook.cells:
        kept = {key: value for key, value in cell.metadata.items() if key in KEPT_METADATA and value}
        cell.metadata = type(cell.metadata)(kept)
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            cell.outputs = joined(_stable(output, count) for output in cell.outputs if _stands_alone(output))


def _same_source(name: str, before: Any, after: Any) -> None:
    pairs = [[(cell.cell_type, cell.id, cell.source) for cell in book.cells] for book in (before, after)]
    if pairs[0] != pairs[1]:
        raise CommitError(f"not rewritten: running {name} changed its cells")


def _stands_alone(output: Any) -> bool:
    """False for a widget without a picture: ``VBox(children=...)`` tells a reader nothing."""
    data = output.get("data", {})
    return WIDGET_VIEW not in data or any(kind.startswith("image/") or kind == "text/html" for kind in data)


def _stable(output: Any, count: int) -> Any:
    """The output without widget view, image texts and time stamps."""
    if "data" in output:
        output.data.pop(WIDGET_VIEW, None)
        if "image/png" in output.data:
            output.data["image/png"] = plain_png(output.data["image/png"])
        output.metadata = type(output.metadata)({k: v for k, v in output.metadata.items() if k in output.data})
    if "execution_count" in output:
        output.execution_count = count
    return output


def plain_png(encoded: str) -> str:
    """A base64 PNG without its text and time chunks (matplotlib writes its version there).

    Raises: ValueError (not a PNG).
    """
    raw = base64.b64decode(encoded)
    if not raw.startswith(PNG):
        raise ValueError("image/png: got data that are no PNG; allowed is a PNG")
    kept, at = [PNG], len(PNG)
    while at < len(raw):
        (length,) = struct.unpack(">I", raw[at : at + 4])
        if raw[at + 4 : at + 8] not in PNG_TEXT:
            kept.append(raw[at : at + 12 + length])
        at += 12 + length
    return binascii.b2a_base64(b"".join(kept), newline=False).decode("ascii")

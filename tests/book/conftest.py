"""Small notebooks, built here so that no broken notebook has to be kept in the repository."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

PARAMETERS = 'rounds: int = 3  # how often\nrate: float = 0.5  # step size\nname: str = "digits"  # data'


def markdown(source: str, *tags: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_markdown_cell(source, metadata={"tags": list(tags)} if tags else {})


def code(source: str, *tags: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)} if tags else {})


def printed(cell: nbformat.NotebookNode, text: str, count: int) -> nbformat.NotebookNode:
    """The cell as if it had been executed and had printed ``text``."""
    cell.update(outputs=[nbformat.v4.new_output("stream", name="stdout", text=text)], execution_count=count)
    return cell


def notebook(*cells: nbformat.NotebookNode) -> nbformat.NotebookNode:
    book = nbformat.v4.new_notebook(cells=list(cells))
    book.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book.metadata["language_info"] = {"name": "python"}
    for number, cell in enumerate(book.cells):
        cell["id"] = f"cell-{number}"
    return book


def write(path: Path, *cells: nbformat.NotebookNode) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook(*cells), path)
    return path


@pytest.fixture(scope="session")
def mini() -> SimpleNamespace:
    """Builders: ``markdown``, ``code``, ``printed``, ``notebook``, ``write`` and a ``parameters`` cell's source."""
    builders: dict[str, Callable | str] = {
        "markdown": markdown,
        "code": code,
        "printed": printed,
        "notebook": notebook,
        "write": write,
    }
    return SimpleNamespace(**builders, parameters=PARAMETERS)


@pytest.fixture(scope="module")
def exempt():
    """The small notebooks that are committed need not keep the rules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedbook.book.commit.check_notebook", lambda path: [])
        yield

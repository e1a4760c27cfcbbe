"""Rules that keep a notebook's code readable on a page: ruff's at 88 columns, and what ruff does not know."""

from __future__ import annotations

import ast
import importlib.util
import io
import json
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from fedbook.book.checked_book import Book, Problem
from fedbook.book.contents import notebooks_folder
from fedbook.book.product import tags

LINES, ALGORITHM_LINES, MEDIAN_LINES = 15, 30, 8
LAB_NAMES = 6
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def ruff(book: Book) -> Iterator[Problem]:
    """Formatted and clean by the settings in ``notebooks/ruff.toml``. Raises: RuntimeError (no ruff)."""
    import nbformat

    if importlib.util.find_spec("ruff") is None:
        raise RuntimeError('ruff is not installed; it comes with pip install -e ".[dev]"')
    with tempfile.TemporaryDirectory(prefix="fedbook-") as folder:
        path = Path(folder) / f"{book.name}.ipynb"
        nbformat.write(book.notebook, path)
        settings = ["--no-cache", "--config", str(notebooks_folder() / "ruff.toml"), str(path)]
        command = [sys.executable, "-m", "ruff"]
        lint = subprocess.run([*command, "check", "--output-format=json", *settings], capture_output=True, text=True)
        shape = subprocess.run([*command, "format", "--check", *settings], capture_output=True, text=True)
    if lint.returncode not in (0, 1) or shape.returncode not in (0, 1):
        return  # no Python at all, which is the business of the rule plain-python
    for one in json.loads(lint.stdout):
        yield Problem("ruff", one["cell"] or 0, f"line {one['location']['row']}: {one['code']} {one['message']}")
    if shape.returncode:
        yield Problem("ruff-format", 0, f"not formatted; run ruff format notebooks/{book.name}.ipynb")


def no_semicolons(book: Book) -> Iterator[Problem]:
    """One statement a line; ruff lets the semicolon pass that hides the last value of a cell."""
    for number, cell, _ in book.trees():
        for token in tokenize.generate_tokens(io.StringIO(cell.source).readline):
            if token.type == tokenize.OP and token.string == ";":
                yield Problem("semicolon", number, f"line {token.start[0]}: a semicolon")


def short_cells(book: Book) -> Iterator[Problem]:
    """At most 15 lines a cell that are not empty, 30 in a cell tagged algorithm; the median at most 8."""
    lengths = []
    for number, cell in book.code():
        lengths.append(sum(bool(line.strip()) for line in cell.source.splitlines()))
        allowed = ALGORITHM_LINES if "algorithm" in tags(cell) else LINES
        if lengths[-1] > allowed:
            yield Problem("cell-lines", number, f"{lengths[-1]} lines of code; allowed are {allowed}")
    if lengths and median(lengths) > MEDIAN_LINES:
        text = f"the median code cell has {median(lengths):g} lines; allowed are {MEDIAN_LINES}"
        yield Problem("median-lines", 0, text)


def no_side_effects_in_comprehensions(book: Book) -> Iterator[Problem]:
    """A comprehension makes a value: none is thrown away, none is the whole of a statement but a cell's last."""
    for number, _, tree in book.trees():
        for node in ast.walk(tree):
            thrown = isinstance(node, ast.Expr) and node is not tree.body[-1]
            thrown = thrown or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_")
            if thrown and isinstance(node.value, COMPREHENSIONS):
                yield Problem("side-effects", number, f"line {node.lineno}: a comprehension whose value nobody uses")


def little_from_the_lab(book: Book) -> Iterator[Problem]:
    """At most six names from ``fedbook.lab``."""
    names: set[str] = set()
    for _, _, tree in book.trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                imported = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names |= {name for name in imported if name.startswith("fedbook.lab.")}
    if len(names) > LAB_NAMES:
        text = f"{len(names)} names from fedbook.lab ({', '.join(sorted(names))}); allowed are {LAB_NAMES}"
        yield Problem("lab-names", 0, text)


def evidence_is_shown(book: Book) -> Iterator[Problem]:
    """A cell does not print True or False as all that the reader sees of a check: both sides are shown."""
    for number, cell in book.code():
        outputs = cell.get("outputs", [])
        kinds = {kind for output in outputs for kind in output.get("data", {})}
        text = "".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if lines and kinds <= {"text/plain"} and all(re.search(r"\b(True|False)\W*$", line) for line in lines):
            yield Problem("bare-boolean", number, f"{lines[0][:60]!r} is all it shows; print both sides, then assert")


def figures_have_text(book: Book) -> Iterator[Problem]:
    """Each picture has an alternative text: the output's own, or ``alt`` in the metadata of its cell."""
    for number, cell in book.code():
        for output in cell.get("outputs", []):
            for kind in output.get("data", {}):
                alt = output.get("metadata", {}).get(kind, {}) if kind.startswith("image/") else {"alt": "no picture"}
                if not (alt.get("alt") or cell.metadata.get("alt")):
                    yield Problem("figure-alt", number, "a figure without alternative text")


STYLE_RULES = (
    ruff,
    no_semicolons,
    short_cells,
    no_side_effects_in_comprehensions,
    little_from_the_lab,
    evidence_is_shown,
    figures_have_text,
)

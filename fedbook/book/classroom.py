"""For a class: the notebooks without solutions and answers, and the verdicts of all who handed theirs in.

Every notebook that was handed in is executed anew, at quick sizes, in a kernel of its own, so that what counts is what
the code gives here. It runs with the rights of whoever grades, as any notebook does, and is no guard against cheating:
whoever wants to can print a verdict. The package holds the solutions, the student edition only does not show them.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fedbook.arguments import integer, real, wrong
from fedbook.book.check import DETAILS
from fedbook.book.contents import CHAPTERS, Chapter, notebooks_folder
from fedbook.book.kernel import surroundings
from fedbook.book.product import COLOUR, tags
from fedbook.book.run import run_worker

STATUSES = ("right", "wrong", "not attempted", "missing", "crashed", "too long", "unreadable")
CHECK = re.compile(r'\bcheck\(\s*["\']([^"\']+)["\']')
VERDICT = re.compile(r"(?s)[…✓✗] Exercise (?P<id>\S+): (?P<status>right|wrong|not attempted)\.?(?P<words>.*)")
ASKED = re.compile(r"\*\*Exercise (?P<id>[\w-]+)(?:\*\*)? \((?P<kind>[^)]*)\)\.(?:\*\*)? (?P<words>[^\n]+)")
INTERRUPTED = "It was interrupted"  # what ``check`` says of an answer that a signal ended
KEPT = ("hint", "command", "the command")  # how the summaries begin of what a student may unfold


@dataclass(frozen=True)
class Grade:
    """One exercise of one student; ``status`` is one of ``STATUSES``, ``words`` what the check said or what broke."""

    student: str
    notebook: str
    exercise: str
    status: str
    words: str = ""


@cache
def of_chapters() -> Mapping[str, Chapter]:
    """Every exercise by its id: the notebook of the book that asks it."""
    found = {}
    for chapter in CHAPTERS:
        text = (notebooks_folder() / chapter.file).read_text(encoding="utf-8")
        cells = [cell for cell in json.loads(text)["cells"] if "exercise" in tags(cell)]
        found |= {mark.removeprefix("ex-"): chapter for cell in cells for mark in tags(cell) if mark.startswith("ex-")}
    return found


@cache
def asked() -> Mapping[str, tuple[str, str]]:
    """Every exercise by its id: its kind, as its text has it in brackets, and how its text begins."""
    found = {}
    for chapter in CHAPTERS:
        text = (notebooks_folder() / chapter.file).read_text(encoding="utf-8")
        for cell in json.loads(text)["cells"]:
            for one in ASKED.finditer("".join(cell["source"]) if cell["cell_type"] == "markdown" else ""):
                words = re.sub(r" *<!--.*?-->", "", one["words"])
                found[one["id"]] = (one["kind"], re.split(r"(?<=[.?!]) ", words)[0])
    return found


def for_students(text: str) -> str:
    """The notebook ``text`` without folded solutions and answers; hints and commands stay, a question stays as text."""
    book = json.loads(text)
    cells = []
    for cell in book["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and DETAILS.search(source):
            source = re.sub(r"\n{3,}", "\n\n", DETAILS.sub(_kept, source)).strip()
            cell["source"] = source.splitlines(keepends=True)
        if source:
            cells.append(cell)
    return json.dumps(book | {"cells": cells}, indent=1, ensure_ascii=False) + "\n"


def _kept(folded: re.Match[str]) -> str:
    summary = folded[1].strip()
    if summary.lower().startswith(KEPT):
        return folded[0]
    return summary if summary.endswith("?") else ""


def grade(
    folder: str | Path, timeout: float = 60.0, jobs: int = 2, told: Callable[[list[Grade]], None] | None = None
) -> list[Grade]:
    """The exercises of every notebook under ``folder``, by student, ``jobs`` notebooks at a time.

    A student is a folder below ``folder``, or a notebook that lies in it directly. A cell that takes longer than
    ``timeout`` seconds is interrupted, and the next one runs; a notebook ends after 20 times that. ``told`` gets the
    grades of each notebook as it ends. A folder without a notebook gets one that says so.
    Raises: TypeError, ValueError (no folder, or no notebook in it).
    """
    folder, timeout = Path(folder), real("timeout", timeout, above=0)
    if not folder.is_dir():
        raise wrong(ValueError, "DIR", str(folder), "a folder with the notebooks that were handed in")
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not _besides(path.relative_to(folder))]
    paths = [path for path in files if path.suffix.lower() == ".ipynb"]
    if not paths:
        raise wrong(ValueError, "DIR", str(folder), "a folder with notebooks: *.ipynb, in it or below")
    grades = list(_without_notebook(folder, files))
    if told is not None and grades:
        told(grades)
    with ThreadPoolExecutor(integer("jobs", jobs, 1)) as pool:
        for own in pool.map(lambda path: list(_graded(path, *_student(path, folder), timeout)), paths):
            grades += own
            if told is not None:
                told(own)
    return grades


def table(grades: Iterable[Grade]) -> str:
    """One line a student and notebook: how many are right of how many, then each exercise that is not."""
    grouped: dict[tuple[str, str], list[Grade]] = {}
    for one in grades:
        grouped.setdefault((one.student, one.notebook), []).append(one)
    lines = []
    for (student, notebook), own in grouped.items():
        right = sum(one.status == "right" for one in own)
        rest = ", ".join(f"{one.exercise} {one.status}".strip() for one in own if one.status != "right")
        lines.append(f"{student:<20} {notebook:<28} {right:>2} of {len(own):<2}  {rest}".rstrip())
    return "\n".join(lines)


def _besides(below: Path) -> bool:
    """Whether a file is none that a student wrote: of a hidden folder, or of an archive's."""
    return any(part.startswith(".") or part == "__MACOSX" for part in below.parts)


def _without_notebook(folder: Path, files: Sequence[Path]) -> Iterator[Grade]:
    """A grade for each student's folder without a notebook, and for a file that nearly is one (x.ipynb.txt)."""
    for entry in sorted(folder.iterdir()):
        inside = [path for path in files if path == entry or entry in path.parents]
        nearly = entry.is_dir() or ".ipynb" in entry.name.lower()
        if nearly and not _besides(Path(entry.name)) and not any(p.suffix.lower() == ".ipynb" for p in inside):
            names = ", ".join(str(path.relative_to(folder)) for path in inside) or "nothing"
            student = entry.name if entry.is_dir() else re.split(r"(?i)\.ipynb", entry.name)[0]
            yield Grade(student, "", "", "unreadable", f"no notebook (*.ipynb): {names}")


def _student(path: Path, folder: Path) -> tuple[str, str]:
    """Whose a notebook is, and what it is called below the student's folder."""
    below = path.relative_to(folder)
    return (below.parts[0], str(Path(*below.parts[1:]))) if len(below.parts) > 1 else (below.stem, below.name)


def _graded(path: Path, student: str, name: str, timeout: float) -> Iterator[Grade]:
    """The grades of one notebook, in the order in which the chapter asks."""
    try:
        yield from _judged(path, student, name, timeout)
    except Exception as error:  # whatever lies in a file that somebody handed in: it ends nobody else's grading
        yield Grade(student, name, "", "unreadable", f"{type(error).__name__}: {error}".splitlines()[0])


def _judged(path: Path, student: str, name: str, timeout: float) -> Iterator[Grade]:
    import nbformat

    book = nbformat.read(path, as_version=4)
    asked = [id for cell in book.cells if cell.cell_type == "code" for id in _checked(cell.source)]
    chapters = {of_chapters()[id].name: of_chapters()[id] for id in asked if id in of_chapters()}
    if not chapters:
        yield Grade(student, name, "", "unreadable", "it checks no exercise of the book")
        return
    for chapter in chapters.values():
        done, failure = _executed(book, path.name, chapter, timeout)
        for id in (id for id, home in of_chapters().items() if home == chapter):
            yield Grade(student, name, id, *_verdict(done, id, failure))


def _executed(book: Any, name: str, chapter: Chapter, timeout: float) -> tuple[Any, str]:
    """The notebook as it came out of a fresh kernel at quick sizes, and what went wrong outside its cells.

    Whatever it brought along is taken out first: what counts is what the code gives here.
    """
    import nbformat

    book.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    for cell in code:
        cell.outputs, cell.execution_count = [], None
    sizes = chapter.sizes("quick")
    _tag_parameters(code, sizes)
    with surroundings() as env, tempfile.TemporaryDirectory(prefix="fedbook-") as scratch:
        bare, product = Path(scratch) / "bare.ipynb", Path(scratch) / "product" / name
        product.parent.mkdir()
        nbformat.write(book, bare)
        work = {"notebook": str(bare), "product": str(product), "parameters": sizes}
        told = run_worker(work | {"folder": scratch, "each": timeout}, Path(scratch), env, 20 * timeout)
        return nbformat.read(product if product.is_file() else bare, as_version=4), told["failure"]


def _tag_parameters(code: Sequence[Any], sizes: Mapping[str, Any]) -> None:
    """Marks the cell that sets a size as the one whose sizes are set, where an editor dropped the tags."""
    if sizes and not any("parameters" in tags(cell) for cell in code):
        sets = re.compile(rf"(?m)^({'|'.join(sizes)})\b[^=\n]*=")
        first = next((cell for cell in code if sets.search(cell.source)), None)
        if first is not None:
            first.metadata["tags"] = [*tags(first), "parameters"]


def _verdict(book: Any, id: str, failure: str) -> tuple[str, str]:
    """Status and words of the last check of ``id``: its verdict, else why there is none."""
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    places = [place for place, cell in enumerate(cells) if id in _checked(cell.source)]
    if not places:
        return "missing", "the notebook does not check it"
    told = [m for output in cells[places[-1]].outputs for m in [_said(output)] if m and m["id"] == id]
    own = [place for place, cell in enumerate(cells) if f"ex-{id}" in tags(cell)] + [places[-1]]
    errors = [output for place in own for output in cells[place].outputs if output.output_type == "error"]
    if any(error.ename == "KeyboardInterrupt" for error in errors) or (told and INTERRUPTED in told[-1]["words"]):
        return "too long", "its cell was interrupted"
    if told and (told[-1]["status"] == "right" or not errors):
        return told[-1]["status"], told[-1]["words"].strip()
    if errors:
        return "crashed", COLOUR.sub("", f"{errors[0].ename}: {errors[0].evalue}")
    return "too long" if failure.startswith("not finished") else "missing", failure or "the check gave no verdict"


def _checked(source: str) -> list[str]:
    """The ids of the exercises that code checks; what stands in a comment does not."""
    return CHECK.findall(re.sub(r"""("[^"\n]*"|'[^'\n]*')|#[^\n]*""", r"\1", source))


def _said(output: Any) -> re.Match[str] | None:
    text = output.get("data", {}).get("text/plain", "")
    return VERDICT.match("".join(text))

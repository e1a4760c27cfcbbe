"""The lint of notebooks: what every committed notebook has to keep, checked without running it.

``check_notebook`` gives a list of problems, empty for a good notebook; ``python -m fedbook.book.check FILE``
lists them. This file has the rules about cells; those about code are in ``check_code``, about stored outputs
in ``check_outputs``, about the reading of code in ``check_style`` and of prose in ``check_numbers``.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fedbook.book.check_code import CODE_RULES
from fedbook.book.check_numbers import NUMBER_RULES
from fedbook.book.check_outputs import OUTPUT_RULES
from fedbook.book.check_style import STYLE_RULES
from fedbook.book.checked_book import Book, Problem, generated
from fedbook.book.contents import CHAPTERS
from fedbook.book.product import tags

TAGS = {
    *("parameters", "setup", "record", "widget", "exercise", "solution", "nav", "figure", "hide-input", "algorithm"),
    *("nbval-ignore-output", "nbval-check-output"),
}
SIZE_KB = 600.0
MATH = re.compile(r"(?<![\\$])\$\$(?P<block>.+?)(?<!\\)\$\$|(?<![\\$])\$(?P<inline>[^$]+?)(?<![\\$])\$", re.DOTALL)
CODE_SPAN = re.compile(r"(?ms)^ {0,3}(```+|~~~+).*?^ {0,3}\1|(`+)[^`].*?\2")
DETAILS = re.compile(r"(?is)<details[^>]*>\s*<summary>(.*?)</summary>.*?</details>")


def check_notebook(path: str | Path) -> list[Problem]:
    """Every problem of the notebook at ``path``, ordered by cell (0: the notebook as a whole).

    Raises: FileNotFoundError, ValueError (no notebook).
    """
    book = Book.read(path)
    return sorted(
        (problem for rule in (*STRUCTURE, *READING) for problem in rule(book)), key=lambda one: (one.cell, one.rule)
    )


def one_title(book: Book) -> Iterator[Problem]:
    """One H1 in the whole chapter."""
    titles = [number for number, source in book.prose() for _ in re.findall(r"(?m)^# \S", source)]
    if len(titles) != 1:
        yield Problem("one-title", titles[1] if titles else 0, f"{len(titles)} first-level headings; allowed is 1")


def navigation(book: Book) -> Iterator[Problem]:
    """The first and the last cell are the navigation, no other cell is, and the contents know the chapter."""
    marked = [number for number, cell in book.cells if "nav" in tags(cell)]
    ends = [1, len(book.cells)]
    if marked != ends:
        yield Problem("navigation", 0, f"cells tagged nav: {marked}; allowed are the first and the last, {ends}")
        return
    if book.name not in {chapter.name for chapter in CHAPTERS}:
        yield Problem("navigation", 1, f"{book.name} is not in the contents")


def generated_cells(book: Book) -> Iterator[Problem]:
    """Navigation and folded solutions are what would be generated now."""
    for number, cell in book.cells:
        try:
            text = generated(cell, book.name)
        except ValueError as error:
            yield Problem("generated-cells", number, str(error))
            continue
        if text is not None and text != cell.source:
            yield Problem("generated-cells", number, "not what is generated now; rewrite the committed notebooks")


def known_tags(book: Book) -> Iterator[Problem]:
    """Tags come from the closed list."""
    for number, cell in book.cells:
        for tag in tags(cell):
            if tag not in TAGS and not re.fullmatch(r"ex-[a-z0-9-]+", tag):
                yield Problem("tags", number, f"tag {tag!r}; allowed are {', '.join(sorted(TAGS))}, ex-<id>")


def one_of_each(book: Book) -> Iterator[Problem]:
    """One parameters cell and one setup cell, both code, in this order."""
    tagged = {}
    for tag in ("parameters", "setup"):
        numbers = [number for number, cell in book.code() if tag in tags(cell)]
        tagged[tag] = numbers
        if len(numbers) != 1:
            yield Problem(f"{tag}-cell", 0, f"{len(numbers)} code cells tagged {tag}; allowed is 1")
    if all(len(numbers) == 1 for numbers in tagged.values()) and tagged["setup"] < tagged["parameters"]:
        yield Problem("setup-cell", tagged["setup"][0], "setup stands before the parameters")


def format_of_file(book: Book) -> Iterator[Problem]:
    """A current format, unique ids, the kernel name that every machine has, and a size people can load."""
    notebook = book.notebook
    kernel = notebook.metadata.get("kernelspec", {}).get("name")
    if kernel != "python3":
        yield Problem("kernel", 0, f"kernelspec {kernel!r}; allowed is 'python3'")
    if (notebook.nbformat, notebook.nbformat_minor) < (4, 5):
        yield Problem("format", 0, f"format {notebook.nbformat}.{notebook.nbformat_minor}; allowed is 4.5 or later")
    ids = Counter(cell.get("id", "") for _, cell in book.cells)
    for number, cell in book.cells:
        name = cell.get("id", "")
        if not name or ids[name] > 1:
            yield Problem("ids", number, f"cell id {name!r} is missing or not unique")
    if book.size_kb > SIZE_KB:
        yield Problem("size", 0, f"{book.size_kb:.0f} kB; allowed are {SIZE_KB:.0f}")


def images_have_text(book: Book) -> Iterator[Problem]:
    """Images in the prose have an alternative text."""
    for number, source in book.prose():
        for _ in re.findall(r"!\[\s*\]\(", source):
            yield Problem("alt-text", number, "an image without alternative text")
        for image in re.findall(r"(?is)<img\b[^>]*>", source):
            if not re.search(r"(?i)\balt\s*=\s*(\"[^\"]+\"|'[^']+')", image):
                yield Problem("alt-text", number, "an <img> without alternative text")


def mathematics_can_be_drawn(book: Book) -> Iterator[Problem]:
    """Each formula can be drawn; see ``mathematics`` for what cannot."""
    from fedbook.book.mathematics import MathError, mathematics

    for number, source in book.prose():
        for match in MATH.finditer(CODE_SPAN.sub("", source)):
            try:
                mathematics(match["block"] or match["inline"], display=match["block"] is not None)
            except MathError as error:
                yield Problem("mathematics", number, str(error))


def exercises(book: Book) -> Iterator[Problem]:
    """Each exercise has an id, a check below it, a folded hint and a folded solution."""
    starts = [number for number, cell in book.code() if "exercise" in tags(cell)]
    seen: set[str] = set()
    for start, end in zip(starts, [*starts, len(book.cells) + 1][1:], strict=True):
        names = [tag.removeprefix("ex-") for tag in tags(book.cell(start)) if tag.startswith("ex-")]
        if len(names) != 1 or names[0] in seen:
            yield Problem("exercise-id", start, f"ids {names}; allowed is one tag ex-<id> that no other exercise has")
            continue
        seen.add(names[0])
        below = [book.cell(number) for number in range(start + 1, end)]
        checks = [cell for cell in below if cell.cell_type == "code"]
        if not checks or not re.search(rf"check.*[\"']{re.escape(names[0])}[\"']", checks[0].source):
            yield Problem("exercise-check", start, f"no check of {names[0]!r} in the next code cell")
        prose = "\n\n".join(cell.source for cell in below if cell.cell_type == "markdown")
        folded = " ".join(DETAILS.findall(prose)).lower()
        for word in ("hint", "solution"):
            if word not in folded:
                yield Problem(f"exercise-{word}", start, f"no <details> with a summary that says {word}")


Rule = Callable[[Book], Iterator[Problem]]
CELL_RULES = (
    one_title,
    navigation,
    generated_cells,
    known_tags,
    one_of_each,
    format_of_file,
    images_have_text,
    mathematics_can_be_drawn,
    exercises,
)
STRUCTURE: tuple[Rule, ...] = (*CELL_RULES, *CODE_RULES, *OUTPUT_RULES)
READING: tuple[Rule, ...] = (*STYLE_RULES, *NUMBER_RULES)


def main(paths: Sequence[str]) -> int:
    """List every problem of these notebooks, and how many there are by rule."""
    total = 0
    for path in paths:
        problems = check_notebook(path)
        total += len(problems)
        counts = Counter(problem.rule for problem in problems)
        print(*(f"{Path(path).name}: {problem}" for problem in problems), sep="\n")
        print(
            f"{Path(path).name}: {len(problems)} problems",
            *(f"{n} {rule}" for rule, n in counts.most_common()),
            sep=", ",
        )
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

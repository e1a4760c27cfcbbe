"""A number in the text is true on the page: it stands in an output of its section, or its source is named.

A decimal number in prose holds if its section (from one ``##`` heading to the next) has a number that rounds to it, in
an output (printed text, a table, a record) or, as settings do, in the code; the last section, which sums up, may take
any. A percentage may stand there as a fraction. It is taken as cited if its sentence (or table row) links to a source
on the web, holds ``<sup>[paper, where]</sup>``, or ``<!-- cited: where -->`` for a place that needs no reader; such a
comment alone in a paragraph covers the next paragraph or table. Code, numbers of theorems, sections, figures and
equations, versions, and numbers without a decimal point (years, 1e-12) are not looked at.
"""

from __future__ import annotations

import bisect
import json
import re
from collections.abc import Iterator
from typing import Any

from fedbook.book.checked_book import Book, Problem
from fedbook.book.product import tags

CODE = re.compile(r"(?ms)^ {0,3}(```+|~~~+).*?^ {0,3}\1[^\n]*|(`+)(?!`).*?(?<!`)\2(?!`)")
CITED = re.compile(r"<!--\s*cited\b.*?-->|<sup>\[paper, .*?\]</sup>", re.DOTALL)
SOURCE = re.compile(r"\]\(https?://[^)]*\)|https?://\S+")
UNSEEN = re.compile(r"\]\([^)]*\)|https?://\S+|<!--.*?-->|</?[a-zA-Z][^>]*>|\\tag\{[^}]*\}", re.DOTALL)
SENTENCE = re.compile(
    r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!vs\.)(?<!cf\.)[)*_\"]*\s+(?=[A-Z0-9$*_\[\"(<\\])"
    r"|\n(?=\s*[-*+|]|\s*\d+\. )"
)
LABEL = (
    r"(?:[Tt]heorem|[Ll]emma|Proposition|Corollary|[Dd]efinition|Assumption|Remark|Example|[Ss]ection|[Cc]hapter|"
    r"[Aa]ppendix|[Ff]igure|Fig\.|Table|Algorithm|[Ee]quation|[Ee]q\.|[Ee]xercise|"
    r"[Vv]ersion|[Rr]elease|Python|PyTorch|torch|arXiv:?|CC BY|Apache|licen[cs]e)"
)
PLACE = r"[\s~]*\(?[vA-Z]?\.?\d+(?:\.\d+)+\)?"
LABELLED = re.compile(rf"(?:\b{LABEL}|§){PLACE}")
LISTED = re.compile(rf"(?:\b{LABEL}s|§§|\bPython){PLACE}(?:(?:,|,? and| to| ?[-–]){PLACE})+")
SECTION = re.compile(r"(?m)^## ")
HEADING = re.compile(r"(?m)^(#+\s+|\*\*)\d+(\.\d+)+\b\.?")
DECIMAL = re.compile(
    r"(?<![\w.])(?P<digits>\d{1,3}(?:,\d{3})+\.\d+|\d*\.\d+)(?![\d]*\.\d|\d)"
    r"(?:e(?P<e>[-+]?\d+)|\s*(?:×|\\times|\\cdot|·|x)\s*10\^?\{?(?P<power>[-+⁻]?[\d⁰¹²³⁴⁵⁶⁷⁸⁹]+)\}?)?"
)
PERCENT = re.compile(r"%|\bper ?cent\b|\bpoints?\b")
NUMBER = re.compile(r"(?<![\w.])(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?")
MARKUP = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)
RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def numbers_are_on_the_page(book: Book) -> Iterator[Problem]:
    """Every decimal number in the prose stands in its section's outputs or code, or is cited; solutions are tested."""
    section, of_cell = 0, {}
    for number, cell in book.cells:
        section += cell.cell_type == "markdown" and SECTION.search(cell.source) is not None
        of_cell[number] = section
    values: dict[int, set[float]] = {one: set() for one in of_cell.values()}
    for number, cell in book.code():
        values[of_cell[number]] |= output_numbers(cell) | _numbers(cell.source)
    values[section] = set().union(*values.values())
    shown = {one: sorted(found) for one, found in values.items()}
    for number, cell in book.cells:
        if cell.cell_type == "markdown" and not {"nav", "solution"} & set(tags(cell)):
            here = shown[of_cell[number]]
            for text, value, half in uncited(cell.source):
                if not any(_near(here, value * scale, half * scale) for scale in ((1, 0.01) if "%" in text else (1,))):
                    yield Problem("prose-number", number, f"{text} stands in no output of its section and is not cited")


def uncited(markdown: str) -> Iterator[tuple[str, float, float]]:
    """The decimal numbers that need an output: as written, value, half a unit of the last digit.

    All numbers of a sentence that speaks of percent or points carry ``%``: they may stand there as fractions.
    """
    covered = False
    text = markdown
    for pattern in (CODE, HEADING, LISTED, LABELLED):
        text = pattern.sub(" ", text)
    for block in re.split(r"\n\s*\n", text):
        alone = CITED.match(block.strip())
        rest = block.strip()[alone.end() :] if alone else "text"
        if not covered and not rest.startswith("\n") and rest:
            for sentence in SENTENCE.split(block):
                if not CITED.search(sentence) and not SOURCE.search(sentence):
                    yield from _decimals(sentence)
        covered = rest == ""


def _decimals(sentence: str) -> Iterator[tuple[str, float, float]]:
    plain = UNSEEN.sub(" ", sentence).replace("{,}", ",").replace("\\,", "")
    percent = " %" if PERCENT.search(plain) else ""
    for match in DECIMAL.finditer(plain):
        digits, power = match["digits"], (match["e"] or match["power"] or "0").translate(RAISED)
        plain_digits = digits.replace(",", "")
        half = 0.5 * 10.0 ** (int(power) - len(plain_digits.partition(".")[2]))
        yield digits + (f"e{power}" if power != "0" else "") + percent, float(f"{plain_digits}e{power}"), half


def output_numbers(cell: Any) -> set[float]:
    """The sizes of all numbers in the outputs of a cell: printed text, tables, records."""
    values: set[float] = set()
    for output in cell.get("outputs", []):
        texts = [output.get("text", "")]
        for kind, data in output.get("data", {}).items():
            if not kind.startswith("image/"):
                texts.append(data if isinstance(data, str) else json.dumps(data))
        for text in texts:
            values |= _numbers(MARKUP.sub(" ", "".join(text)))
    return values


def _numbers(text: str) -> set[float]:
    return {float(number.replace(",", "")) for number in NUMBER.findall(text)}


def _near(shown: list[float], value: float, half: float) -> bool:
    """Whether a shown number rounds to ``value``, whose last digit is worth ``2 * half``."""
    at = bisect.bisect_left(shown, value - half * (1 + 1e-9))
    return at < len(shown) and shown[at] <= value + half * (1 + 1e-9)


NUMBER_RULES = (numbers_are_on_the_page,)

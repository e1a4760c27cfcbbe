"""The errata tables of chapters 2 and 3; what each witness has to find stands with the tests of its chapter."""

import importlib

import pytest

from fedbook.book.contents import CHAPTERS


@pytest.mark.parametrize("number", [one.number for one in CHAPTERS if one.number in (2, 3)])
def test_the_errata_table_shows_them_all(number):
    chapter = importlib.import_module(f"fedbook.lab.chapter{number:02}_errata")
    lines = chapter.errata_table().splitlines()
    assert len(lines) == 1 + len(chapter.ERRATA) and "nan" not in "".join(lines)
    assert not any("inf" in line[:21] for line in lines)  # where the numbers stand

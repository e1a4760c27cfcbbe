"""The errata tables of chapters 1 to 5; what each witness has to find stands with the tests of its chapter."""

import importlib

import pytest

from fedbook.book.contents import CHAPTERS

MANY = (3, 4)  # chapters that tell up to ten


@pytest.mark.parametrize("number", [one.number for one in CHAPTERS if one.number > 0])
def test_the_errata_table_shows_them_all_and_the_told_ones_first(number):
    chapter = importlib.import_module(f"fedbook.lab.chapter{number:02}")
    count, told = len(chapter.ERRATA), chapter.TOLD
    assert len({statement for statement, _ in chapter.ERRATA}) == count
    lines = chapter.errata_table().splitlines()
    assert len(lines) == 1 + count and "nan" not in "".join(lines) and all(len(line) <= 120 for line in lines)
    assert not any("inf" in line[:21] for line in lines)  # where the numbers stand
    assert 4 <= told <= (10 if number in MANY else 6) and told < count
    assert chapter.errata_table(told).splitlines() == lines[: 1 + told]
    assert chapter.errata_table(0) == lines[0] and "statement" in lines[0]

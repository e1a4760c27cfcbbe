import re
from types import SimpleNamespace

import pytest

from fedbook.lab.navigation import navigation


def chapter(number, slug):
    return SimpleNamespace(number=number, slug=slug, file=f"{number:02d}_{slug}.ipynb", title=slug.title())


CHAPTERS = [chapter(1, "one"), chapter(0, "start_here"), chapter(2, "two")]


def test_bar():
    assert navigation("start_here", CHAPTERS) == "**contents** · [1 One](01_one.ipynb) →"
    expected = "← [0 Start_Here](00_start_here.ipynb) · [contents](00_start_here.ipynb) · [2 Two](02_two.ipynb) →"
    assert navigation("one", CHAPTERS) == navigation("01_one", CHAPTERS) == expected
    assert navigation("two", CHAPTERS) == "← [1 One](01_one.ipynb) · [contents](00_start_here.ipynb)"


def test_unknown_chapter():
    with pytest.raises(ValueError, match="slug: got 'three'"):
        navigation("three", CHAPTERS)


def test_the_book_links_only_to_its_chapters():
    from fedbook.book.contents import CHAPTERS as book

    files = {one.file for one in book}
    for one in book:
        bar = navigation(one.slug)
        assert set(re.findall(r"\]\(([^)]+)\)", bar)) <= files and "contents" in bar
        assert bar == navigation(one.slug) and "\n" not in bar

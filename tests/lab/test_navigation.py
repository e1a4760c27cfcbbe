import re
from types import SimpleNamespace

import pytest

from fedbook.lab.navigation import navigation


def chapter(number, slug, ready):
    return SimpleNamespace(number=number, slug=slug, file=f"{number:02d}_{slug}.ipynb", title=slug.title(), ready=ready)


CHAPTERS = [chapter(1, "one", True), chapter(0, "start_here", True), chapter(2, "two", False)]


def test_bar():
    assert navigation("start_here", CHAPTERS) == "**contents** · [1 One](01_one.ipynb) →"
    expected = "← [0 Start_Here](00_start_here.ipynb) · [contents](00_start_here.ipynb) · 2 Two (not yet written) →"
    assert navigation("one", CHAPTERS) == navigation("01_one", CHAPTERS) == expected
    assert navigation("two", CHAPTERS) == "← [1 One](01_one.ipynb) · [contents](00_start_here.ipynb)"


def test_unknown_chapter():
    with pytest.raises(ValueError, match="slug: got 'three'"):
        navigation("three", CHAPTERS)


def test_the_book_links_only_to_what_is_written():
    from fedbook.book.contents import CHAPTERS as book

    ready = {one.file for one in book if one.ready}
    for one in book:
        bar = navigation(one.slug)
        assert set(re.findall(r"\]\(([^)]+)\)", bar)) <= ready and "contents" in bar
        assert bar == navigation(one.slug) and "\n" not in bar

"""The contents: found by any name, in order; the bars link only to what is there."""

import re

import pytest

from fedbook.book.contents import CHAPTERS, Chapter, navigation, select

ONE = Chapter(1, "one", "One", "", "")
BOOK = [Chapter(0, "start_here", "Start", "", ""), ONE, ONE.also("results"), ONE.also("proofs", quick={"n": 3}),
        Chapter(2, "two", "Two", "", "")]  # fmt: skip


def test_the_contents_are_in_order_and_found_by_any_name():
    assert [one.number for one in CHAPTERS] == sorted(one.number for one in CHAPTERS)
    assert len({one.name for one in CHAPTERS}) == len(CHAPTERS)
    for one in CHAPTERS:
        assert select(one.name) == select(one.file) == [one]
        assert one in select(one.number) and one in select(one.slug) and one in select(f"{one.number:02d}")
        assert one.title and one.citation and one.claim and one.budget_s > 0
    assert select(2, "fedsc", "01_fedsc") == [*select(1), *select(2)]
    with pytest.raises(ValueError, match="01_fedsc"):
        select("fedprox")
    with pytest.raises(TypeError, match="chapter: got 1.5"):
        select(1.5)
    with pytest.raises(ValueError, match="profile"):
        CHAPTERS[0].sizes("huge")


def test_a_chapter_has_notebooks_of_three_kinds(monkeypatch):
    monkeypatch.setattr("fedbook.book.contents.CHAPTERS", BOOK)
    assert [one.name for one in select(1)] == ["01_one", "01_one_results", "01_one_proofs"]
    assert [one.file for one in select("01_one_proofs")] == ["01_one_proofs.ipynb"]
    assert BOOK[3].sizes("quick") == {"n": 3} and BOOK[3].sizes("paper") == {}
    with pytest.raises(ValueError, match="kind: got 'appendix'"):
        ONE.also("appendix")


def test_bars():
    start, results = "[contents](00_start_here.ipynb)", "[results](01_one_results.ipynb)"
    before, after = "← [0 Start](00_start_here.ipynb)", "[2 Two](02_two.ipynb) →"
    assert navigation("00_start_here", BOOK) == "**contents** · [1 One](01_one.ipynb) →"
    kinds = f"**lesson** · {results} · [proofs](01_one_proofs.ipynb)"
    assert navigation("01_one", BOOK) == f"{before} · {start} · {kinds} · {after}"
    kinds = f"[lesson](01_one.ipynb) · {results} · **proofs**"
    assert navigation("01_one_proofs", BOOK) == f"{before} · {start} · {kinds} · {after}"
    assert navigation("02_two", BOOK) == f"← [1 One](01_one.ipynb) · {start}"
    with pytest.raises(ValueError, match="name: got 'three'"):
        navigation("three", BOOK)


def test_the_book_links_only_to_its_notebooks():
    files = {one.file for one in CHAPTERS}
    for one in CHAPTERS:
        assert set(re.findall(r"\]\(([^)]+)\)", navigation(one.name))) <= files

"""The teacher's plans: ninety minutes, sections and exercises that the lesson has, numbers that stand in it."""

import re
from functools import cache

import nbformat
import pytest
from bs4 import BeautifulSoup

from fedbook.book.cells import cells_html, markdown_html
from fedbook.book.chapter_page import headings
from fedbook.book.classroom import of_chapters
from fedbook.book.contents import CHAPTERS, notebooks_folder

LESSONS = [one for one in CHAPTERS if one.kind == "lesson"]
ID = re.compile(r"\b\d\d-[a-z]?\d+\b")
PLANS = pytest.mark.parametrize("lesson", LESSONS, ids=[one.name for one in LESSONS])


def text_of(lesson):
    return (notebooks_folder() / lesson.plan().file).read_text(encoding="utf-8")


@cache
def sections(file):
    """Heading by anchor, as on the lesson's page."""
    notebook = nbformat.read(notebooks_folder() / file, as_version=4)
    soup = BeautifulSoup(cells_html(notebook, []), "html.parser")
    headings(soup)
    return {one["id"]: one.get_text() for one in soup.select("h1, h2, h3")}


@PLANS
def test_a_plan_names_its_lesson_s_sections_as_they_are_called(lesson):
    soup = BeautifulSoup(markdown_html(text_of(lesson), []), "html.parser")
    links = soup.find_all("a")
    assert len(links) >= 10
    for link in links:
        file, _, anchor = link["href"].partition("#")
        assert file == lesson.file
        assert sections(lesson.file).get(anchor) == link.get_text(), f"{anchor}: {link.get_text()}"


@PLANS
def test_a_plan_fills_ninety_minutes_without_a_gap(lesson):
    spans = [tuple(map(int, span)) for span in re.findall(r"(?m)^\| (\d+)–(\d+) \|", text_of(lesson))]
    assert spans[0][0] == 0 and spans[-1][1] == 90
    assert all(a < b for a, b in spans) and [b for _, b in spans[:-1]] == [a for a, _ in spans[1:]]


@PLANS
def test_a_plan_places_every_exercise_of_its_lesson_once(lesson):
    own = {id for id, home in of_chapters().items() if home == lesson}
    in_class, at_home = (re.search(rf"{place}: ([^.]*)\.", text_of(lesson))[1] for place in ("In class", "At home"))
    assert sorted(ID.findall(in_class) + ID.findall(at_home)) == sorted(own)
    assert set(ID.findall(text_of(lesson))) <= own


@PLANS
def test_a_plan_s_numbers_stand_in_its_lesson(lesson):
    there = (notebooks_folder() / lesson.file).read_text(encoding="utf-8")
    numbers = set(re.findall(r"(?<![\w.])\d+\.\d+", text_of(lesson)))
    assert numbers and [one for one in numbers if not re.search(rf"(?<!\d){re.escape(one)}(?!\d)", there)] == []

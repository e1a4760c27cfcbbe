"""The teacher's plans: ninety minutes, sections and exercises that the lesson has, numbers that stand in it."""

import re
from functools import cache

import nbformat
import pytest
from bs4 import BeautifulSoup

from fedbook.book.cells import cells_html, markdown_html
from fedbook.book.chapter_page import RenderError, headings
from fedbook.book.classroom import of_chapters
from fedbook.book.contents import CHAPTERS, notebooks_folder
from fedbook.book.render import render_book

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
def test_a_plan_asks_an_exercise_where_the_lesson_has_it(lesson):
    places, under = {}, {}
    for cell in nbformat.read(notebooks_folder() / lesson.file, as_version=4).cells:
        for line in cell.source.splitlines() if cell.cell_type == "markdown" else ():
            if heading := re.match(r"(##+) (.*)", line):
                under = {depth: name for depth, name in under.items() if depth < heading[1]} | {heading[1]: heading[2]}
            places |= {id: under.values() for id in re.findall(r"\*\*Exercise ([\w-]+)", line)}
    for row in re.findall(r"(?m)^\| \d+–\d+ \|.*", text_of(lesson)):
        for id in ID.findall(row):
            assert any(f"[{name}]" in row for name in places[id]), f"{id} stands under {list(places[id])}"


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


def test_the_book_has_the_plan_as_a_page_that_leads_to_the_lesson_s_sections(mini, tmp_path):
    root, out = tmp_path / "notebooks", tmp_path / "book"
    mini.write(root / "01_fedsc.ipynb", mini.markdown("# 1 · FedSC\n\n## Its shape"))
    (root / "plans").mkdir()
    plan = root / "plans" / "01_fedsc.md"
    plan.write_text("# A plan\n\nFirst [its shape](01_fedsc.ipynb#its-shape), $K$ clients.")
    render_book(tmp_path / "none", out, root=root)
    page, index = ((out / name).read_text(encoding="utf-8") for name in ("01_fedsc_plan.html", "index.html"))
    assert 'href="01_fedsc.html#its-shape"' in page and 'href="01_fedsc.html"' in page and "katex" in page
    assert 'href="01_fedsc_plan.html"' in index and index.count("For teachers") == 1
    plan.write_text("# A plan\n\n[Its colour](01_fedsc.ipynb#its-colour)")
    with pytest.raises(RenderError, match="01_fedsc_plan: 01_fedsc.html#its-colour leads to nothing"):
        render_book(tmp_path / "none", out, root=root)


def test_a_text_beside_the_notebooks_is_a_page_that_the_contents_lead_to(mini, tmp_path):
    root, out = tmp_path / "notebooks", tmp_path / "book"
    mini.write(root / "01_fedsc.ipynb", mini.markdown("# 1 · FedSC\n\n## Its shape"))
    (root / "machines.md").write_text("# Far away\n\nBack to [its shape](01_fedsc.ipynb#its-shape).")
    render_book(tmp_path / "none", out, root=root)
    page, index = ((out / name).read_text(encoding="utf-8") for name in ("machines.html", "index.html"))
    assert "Far away" in page and 'href="01_fedsc.html#its-shape"' in page and 'href="machines.html"' in index

"""A class: what a student gets to see, and what comes back for answers right, wrong, missing, broken, endless."""

import json
import os

import nbformat
import pytest

from fedbook.book import classroom
from fedbook.book.contents import CHAPTERS, notebooks_folder
from fedbook.lab.exercises import find, solution_source

LESSON = "00_start_here"


def test_every_exercise_of_the_book_has_its_notebook():
    marked = set()
    for chapter in CHAPTERS:
        book = nbformat.read(notebooks_folder() / chapter.file, as_version=4)
        marked |= {id for cell in book.cells for id in classroom.CHECK.findall(cell.source) if cell.cell_type == "code"}
    assert set(classroom.of_chapters()) == marked and all(find(id) for id in marked)


@pytest.mark.parametrize("name", [chapter.name for chapter in CHAPTERS])
def test_a_student_sees_hints_and_questions_but_no_solution_and_no_answer(name):
    text = (notebooks_folder() / f"{name}.ipynb").read_text(encoding="utf-8")
    before, after = (nbformat.reads(one, as_version=4) for one in (text, classroom.for_students(text)))
    said = "\n".join(cell.source for cell in after.cells if cell.cell_type == "markdown")
    folded = classroom.DETAILS.findall(said)
    assert all(summary.lower().startswith(classroom.KEPT) for summary in folded)
    for cell in before.cells:
        if cell.cell_type == "markdown":
            for one in classroom.DETAILS.finditer(cell.source):
                hint = one[1].lower().startswith(classroom.KEPT)
                assert (one[0] in said) is hint
                assert hint or not one[1].endswith("?") or one[1] in said
    code = [[cell.source for cell in book.cells if cell.cell_type == "code"] for book in (before, after)]
    assert code[0] == code[1]


def test_a_notebook_that_lost_its_tags_is_graded_at_quick_sizes(monkeypatch):
    given = []
    monkeypatch.setattr(classroom, "run_worker", lambda work, *_: given.append(work) or {"failure": ""})
    for chapter in CHAPTERS:
        book = nbformat.read(notebooks_folder() / chapter.file, as_version=4)
        marked = [cell.source for cell in book.cells if "parameters" in cell.metadata.pop("tags", [])]
        run, _ = classroom._executed(book, chapter.file, chapter, 1.0)
        assert [cell.source for cell in run.cells if "parameters" in cell.metadata.get("tags", [])] == marked
        assert given[-1]["parameters"] == chapter.sizes("quick") and len(marked) == bool(chapter.sizes("quick"))


@pytest.fixture(scope="module")
def graded(mini, tmp_path_factory):
    """The grades of nine students by name and exercise; each answers three exercises of the first lesson."""
    folder = tmp_path_factory.mktemp("class")
    ids = [id for id, chapter in classroom.of_chapters().items() if chapter.name == LESSON][:3]

    def hand_in(student, answers):
        cells = [mini.code("from fedbook.lab.exercises import check")]
        for id, source in zip(ids, answers, strict=True):
            cells.append(mini.code(source))
            cells[-1].metadata["tags"] = ["exercise", f"ex-{id}"]
            cells.append(mini.code(f'told = "#1"; check("{id}", answer)'))
        cells.append(mini.code(f'print("done")  # check("{ids[0]}", answer)'))
        (folder / student).mkdir()
        return mini.write(folder / student / f"{LESSON}.ipynb", *cells)

    def right(id):
        source = solution_source(id)
        name = source.partition("def ")[2].partition("(")[0]
        return f"{source}\nanswer = {name}" if name else f"answer = {source}"

    hand_in("ada", [right(id) for id in ids])
    hand_in("bob", ["answer = 'no'"] * 3)
    hand_in("eve", ["answer = ...", "answer = (", "del answer"])
    hand_in("max", ["while True: pass", "def answer(*a, **k):\n    while True: pass", right(ids[2])])
    boast = hand_in("lea", ["answer = 'no'"] * 3)  # with a stored verdict of code that nobody ran, and no metadata
    book = nbformat.read(boast, as_version=4)
    book.metadata, said = {}, f"\u2713 Exercise {ids[0]}: right."
    book.cells[2].outputs = [nbformat.v4.new_output("execute_result", {"text/plain": said}, execution_count=1)]
    nbformat.write(book, boast)
    assert classroom._verdict(book, ids[0], "")[0] == "right"
    broken = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"cell_type": "code", "metadata": {}}]}
    (folder / "kim.ipynb").write_text(json.dumps(broken))
    (folder / "zoe").mkdir()
    (folder / "zoe" / "work.ipynb").write_text("{")
    mini.write(folder / "tim.ipynb", mini.code("print(1)"))
    (folder / "hal.b").mkdir()
    (folder / "hal.b" / "work.ipynb.txt").write_text("{}")
    (folder / "__MACOSX").mkdir()
    (folder / "__MACOSX" / "._work.ipynb").write_text("{}")
    (folder / "tim" / "old").mkdir(parents=True)
    (folder / "tim" / "old" / "WORK.IPYNB").write_text("{")
    (folder / "ada" / ".ipynb_checkpoints").mkdir()
    (folder / "ada" / ".ipynb_checkpoints" / "work.ipynb").write_text("{")
    told = []
    grades = classroom.grade(folder, timeout=20.0, told=told.extend)  # on a busy machine the first import takes 9 s
    assert told == grades and {one.notebook for one in grades if one.student == "tim"} == {
        "tim.ipynb",
        "old/WORK.IPYNB",
    }
    return ids, {(one.student, one.exercise): one for one in grades}


def test_each_answer_gets_what_it_deserves(graded):
    ids, grades = graded
    status = {student: [grades[student, id].status for id in ids] for student in ("ada", "bob", "eve", "max")}
    assert status["ada"] == ["right"] * 3 and status["bob"] == ["wrong"] * 3
    assert grades["lea", ids[0]].status == "wrong" and grades["kim", ""].status == "unreadable"
    assert status["eve"] == ["not attempted", "crashed", "crashed"]
    assert status["max"] == ["too long", "too long", "right"]
    assert "SyntaxError" in grades["eve", ids[1]].words and "NameError" in grades["eve", ids[2]].words
    rest = [id for id, chapter in classroom.of_chapters().items() if chapter.name == LESSON][3:]
    assert {grades["ada", id].status for id in rest} == {"missing"}
    assert grades["zoe", ""].status == grades["tim", ""].status == grades["hal.b", ""].status == "unreadable"
    assert "hal.b/work.ipynb.txt" in grades["hal.b", ""].words and ("__MACOSX", "") not in grades
    assert {one.status for one in grades.values()} <= set(classroom.STATUSES)


def test_the_table_counts_what_is_right(graded):
    ids, grades = graded
    lines = classroom.table(grades.values()).splitlines()
    total = sum(student == "ada" for student, _ in grades)
    assert f" 3 of {total} " in next(line for line in lines if line.startswith("ada"))
    assert f"{ids[0]} too long" in next(line for line in lines if line.startswith("max"))


def test_a_folder_without_notebooks_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ValueError, match="^DIR: got"):
            classroom.grade(folder)


def test_the_commands(tmp_path, capsys, graded, monkeypatch):
    from fedbook.command import main

    assert main(["exercises"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert json.loads(last)["00-1"] == LESSON and len(lines) == len(json.loads(last)) == len(classroom.asked())
    assert lines[0].split(maxsplit=2)[:2] == ["00-1", LESSON] and "by hand, 2 minutes: Client A has 30" in lines[0]
    assert main(["exercises", "--student", str(tmp_path / "class")]) == 0
    written = tmp_path / "class" / f"{LESSON}.ipynb"
    committed = (notebooks_folder() / written.name).read_text(encoding="utf-8")
    assert written.read_text(encoding="utf-8") == classroom.for_students(committed)
    assert main(["exercises", "--student", str(tmp_path / "class")]) == 2

    def again(folder, timeout, told):
        told(list(graded[1].values()))
        return list(graded[1].values())

    monkeypatch.setattr(classroom, "grade", again)
    capsys.readouterr()
    assert main(["grade", str(tmp_path), "--out", str(tmp_path / "grades.csv")]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["students"] == 9 and summary["too long"] == 2
    assert len((tmp_path / "grades.csv").read_text(encoding="utf-8").splitlines()) == 1 + len(graded[1])
    assert main(["grade", str(tmp_path), "--out", str(tmp_path)]) == 2
    os.mkfifo(tmp_path / "pipe")
    assert main(["grade", str(tmp_path), "--out", str(tmp_path / "pipe")]) == 2
    (tmp_path / "link.csv").symlink_to(tmp_path / "grades.csv")
    (tmp_path / "grades.csv").write_text("")
    assert main(["grade", str(tmp_path), "--out", str(tmp_path / "link.csv")]) == 0
    assert (tmp_path / "link.csv").is_symlink() and (tmp_path / "grades.csv").read_text(encoding="utf-8")


def test_a_copy_fills_the_empty_folder_that_one_stands_in(tmp_path, monkeypatch, capsys):
    from fedbook.command import main

    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert main(["exercises", "--student", str(tmp_path / "link")]) == 0
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real" / f"{LESSON}.ipynb").is_file()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["notebooks", "."]) == 0
    assert {"frames", "images", f"{LESSON}.ipynb"} <= {path.name for path in (tmp_path / "here").iterdir()}
    assert not [path for path in (tmp_path / "here").iterdir() if path.name.startswith(".")]
    assert main(["notebooks", ""]) == 2

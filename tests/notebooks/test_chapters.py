"""Every notebook of the book: its rules, and one run at quick size (lessons compared with what is committed)."""

import pytest

from fedbook.book.check import check_notebook
from fedbook.book.contents import CHAPTERS, notebooks_folder
from fedbook.book.run import run_all, table

RUNS = [pytest.param(one, id=one.name, marks=() if one.kind == "lesson" else pytest.mark.slow) for one in CHAPTERS]


@pytest.mark.parametrize("chapter", CHAPTERS, ids=[one.name for one in CHAPTERS])
def test_rules(chapter):
    problems = "\n".join(str(problem) for problem in check_notebook(notebooks_folder() / chapter.file))
    assert not problems, f"{chapter.file}:\n{problems}"


@pytest.mark.parametrize("chapter", RUNS)
def test_quick_run(chapter, tmp_path):
    (report,) = run_all([chapter], "quick", tmp_path)
    print(table([report]))  # times are shown, not judged: the limit is a guard at ten times the budget
    assert report.ok, "\n".join(report.problems)
    assert report.records, "a notebook records the numbers that it claims"
    assert report.marked or chapter.kind != "lesson", "a lesson has cells that are compared with what is committed"

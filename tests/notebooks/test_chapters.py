"""Every chapter: its structure, a run at quick size, and nbval on what is committed."""

import pytest

from fedbook.book.check import check_notebook
from fedbook.book.contents import CHAPTERS, notebooks_folder
from fedbook.book.run import run_chapter, table
from fedbook.book.second_run import nbval_chapter, prepare


@pytest.fixture(params=CHAPTERS, ids=[one.name for one in CHAPTERS])
def chapter(request):
    return request.param


@pytest.fixture
def path(chapter):
    found = notebooks_folder() / chapter.file
    assert found.is_file(), f"{chapter.file} is listed as ready, but is not there"
    return found


def test_there_are_chapters_to_test():
    assert CHAPTERS


def test_structure(path):
    problems = "\n".join(str(problem) for problem in check_notebook(path))
    assert not problems, f"{path.name}:\n{problems}"


def test_quick_run(chapter, path, tmp_path):
    # The time limit is a guard at ten times the budget; the table shows the time itself.
    limit = 10 * chapter.budget_s
    report = run_chapter(path, chapter.sizes("quick"), tmp_path / path.name, profile="quick", timeout=limit)
    print(table([report]))
    assert report.ok, "\n".join(report.problems)
    assert report.records, "a chapter records the numbers that it claims"


def test_marked_outputs_are_those_committed(chapter, path, tmp_path):
    prepared = prepare(path, chapter.sizes("quick"), tmp_path / path.name)
    report = nbval_chapter(prepared, cell_timeout=5 * chapter.budget_s, timeout=10 * chapter.budget_s)
    assert report.ok, f"{path.name}: {report.passed} cells passed, {report.failed} failed\n{report.tail}"

"""Running chapters on small notebooks: what papermill does not notice has to be noticed here."""

import os
import subprocess
import sys

import psutil
import pytest

from fedbook.book.check import check_notebook
from fedbook.book.commit import commit_chapter
from fedbook.book.contents import CHAPTERS, Chapter, chapter
from fedbook.book.kernel import run_process
from fedbook.book.product import cell_problems
from fedbook.book.run import ChapterReport, read_reports, run_all, run_chapter, table
from fedbook.book.second_run import nbval_chapter, prepare

RECORD = """from IPython.display import display
def note(**values):
    display({"application/vnd.fedbook.record+json": values, "text/plain": str(values)}, raw=True)
"""
SURROUNDINGS = """import os, sys
import matplotlib.pyplot as plt
note(rounds=rounds, rate=rate, python=sys.executable, folder=os.getcwd(), threads=os.environ["OMP_NUM_THREADS"],
     headless=os.environ["FEDBOOK_HEADLESS"], backend=plt.get_backend())
block = bytearray(200 * 2**20)
block[::4096] = b"x" * len(block[::4096])"""
WIDGET_ERROR = """import ipywidgets
inner = ipywidgets.Output()
with inner:
    1 / 0
display(ipywidgets.VBox([inner]))"""


@pytest.fixture(scope="module")
def good(mini, tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    path = mini.write(
        folder / "00_start_here.ipynb",
        mini.markdown("# Title"),
        mini.code(mini.parameters, "parameters"),
        mini.code(RECORD),
        mini.code(SURROUNDINGS),
    )
    return path, run_chapter(path, {"rounds": 7, "rate": 1}, folder / "out" / "product.ipynb", profile="quick")


def test_a_run_takes_the_parameters_and_happens_in_the_right_surroundings(good):
    path, report = good
    assert report.problems == ()
    values = report.records
    assert (values["rounds"], values["rate"]) == (7, 1)
    assert values["python"] == sys.executable
    assert values["folder"] == str(path.parent)
    assert (values["threads"], values["headless"]) == ("1", "1")
    assert "inline" in values["backend"], "a backend of the caller would silence every figure"


def test_the_report_says_what_the_run_cost(good):
    _, report = good
    assert 200 < report.peak_mb < 1500
    assert report.seconds > 0.1
    assert report.cells == 5  # one was injected
    assert report.size_kb == pytest.approx(os.path.getsize(report.product) / 1000)
    assert "ok" in table([report])


@pytest.mark.parametrize(
    ("parameters", "kind", "words"),
    [
        ({"round": 1}, ValueError, ["round", "name, rate, rounds"]),
        ({"rounds": 2.5}, TypeError, ["rounds", "2.5", "int"]),
        ({"rounds": True}, TypeError, ["rounds", "True", "int"]),
        ({"rate": "fast"}, TypeError, ["rate", "'fast'", "float"]),
        ({"rate": float("nan")}, ValueError, ["rate", "nan", "finite"]),
        ({"name": 3}, TypeError, ["name", "3", "str"]),
    ],
)
def test_wrong_parameters_are_refused_before_anything_runs(good, parameters, kind, words):
    with pytest.raises(kind) as caught:
        run_chapter(good[0], parameters)
    assert all(word in str(caught.value) for word in words)


def test_errors_that_leave_papermill_green_are_found(mini, tmp_path):
    path = mini.write(
        tmp_path / "01_fedsc.ipynb",
        mini.markdown("# Title"),
        mini.code(RECORD),
        mini.code(WIDGET_ERROR),
        mini.code("note(loss=1.0)"),
        mini.code("note(loss=2.0)"),
        mini.code("import sys\nprint('Traceback (most recent call last):\\nKeyError: 3', file=sys.stderr)"),
    )
    problems = "\n".join(run_chapter(path).problems)
    assert "01_fedsc: cell 3 (`import ipywidgets`): in a widget callback, ZeroDivisionError" in problems
    assert "cell 5 (`note(loss=2.0)`): 'loss' is recorded twice" in problems
    assert "cell 6 (`import sys`): KeyError: 3 (a traceback on stderr)" in problems
    assert problems.count("\n") == 2


def test_all_run_although_one_fails(mini, tmp_path):
    chapters = [Chapter(n, slug, slug, "", "") for n, slug in ((0, "good"), (1, "bad"), (2, "missing"))]
    cells = [mini.markdown("# T"), mini.code(mini.parameters, "parameters")]
    mini.write(tmp_path / "00_good.ipynb", *cells, mini.code("rounds"))
    mini.write(tmp_path / "01_bad.ipynb", *cells, mini.code("\nunknown_name + 1\n"), mini.code("2"))
    good, bad, missing = run_all(chapters, "quick", tmp_path / "out", root=tmp_path)
    assert good.ok
    assert bad.problems == ("01_bad: cell 3 (`unknown_name + 1`): NameError: name 'unknown_name' is not defined",)
    assert "02_missing" in missing.problems[0] and "exists" in missing.problems[0]
    assert "FAILED" in table([bad]) and "NameError" in table([bad])
    kept = read_reports(tmp_path / "out")
    assert kept["01_bad"].problems == bad.problems and kept["00_good"].ok


GRANDCHILD = """import os, pathlib, time
pathlib.Path("part").write_text(str(os.getpid()))
os.replace("part", "pid")
time.sleep(600)"""
CHILD = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {GRANDCHILD!r}], start_new_session=True)"


def test_a_process_past_its_time_ends_with_all_below_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _ = run_process([sys.executable, "-c", CHILD], dict(os.environ), timeout=5.0)
    assert code is None
    below = int((tmp_path / "pid").read_text())
    assert not psutil.pid_exists(below) or psutil.Process(below).status() == psutil.STATUS_ZOMBIE


def test_a_chapter_past_its_time_is_reported(mini, tmp_path):
    path = mini.write(tmp_path / "00_slow.ipynb", mini.code("import time\ntime.sleep(600)"))
    assert "00_slow: not finished within 0.5 s" in run_chapter(path, timeout=0.5).problems


def test_the_cell_that_was_running_is_named(mini):
    book = mini.notebook(mini.code("1"), mini.code("rounds = 3", "injected-parameters"), mini.code("sleep()"))
    book.cells[2].metadata["papermill"] = {"status": "running"}
    assert cell_problems(book) == ["cell 2 (`sleep()`): was running when the time was up"]


class TestSecondRun:
    """nbval on the committed notebook with other parameters."""

    @pytest.fixture
    def committed(self, mini):
        def cells(marked):
            return [
                mini.code(mini.parameters, "parameters"),
                mini.printed(mini.code("print(2 + 2)", "nbval-check-output"), f"{marked}\n", 2),
                mini.printed(mini.code("print(rounds)"), "3\n", 3),
            ]

        return cells

    def test_passes_when_only_unmarked_cells_depend_on_the_parameters(self, mini, tmp_path, committed):
        path = mini.write(tmp_path / "00_start_here.ipynb", *committed(4))
        report = nbval_chapter(prepare(path, {"rounds": 7}, tmp_path / "out" / "prepared.ipynb"))
        assert report.ok, report.tail
        assert (report.passed, report.failed) == (4, 0)

    def test_goes_red_for_a_changed_output_and_for_a_raising_callback(self, mini, tmp_path, committed):
        callback = "from IPython.display import display\n" + WIDGET_ERROR
        path = mini.write(tmp_path / "00_start_here.ipynb", *committed(5), mini.code(callback, "nbval-ignore-output"))
        report = nbval_chapter(prepare(path, {"rounds": 7}, tmp_path / "out" / "prepared.ipynb"))
        assert not report.ok
        assert (report.passed, report.failed) == (3, 2)
        assert "ZeroDivisionError" in report.tail and "print(2 + 2)" in report.tail

    def test_an_unknown_parameter_is_refused(self, mini, tmp_path, committed):
        path = mini.write(tmp_path / "00_start_here.ipynb", *committed(4))
        with pytest.raises(ValueError, match="parameter speed"):
            prepare(path, {"speed": 1}, tmp_path / "prepared.ipynb")


def test_the_contents_are_in_order_and_found_by_any_name():
    assert [one.number for one in CHAPTERS] == list(range(len(CHAPTERS)))
    for one in CHAPTERS:
        assert chapter(one.slug) is chapter(one.number) is chapter(one.file) is chapter(one.name) is one
        assert one.title and one.citation and one.claim and one.budget_s > 0
    with pytest.raises(ValueError, match="01_fedsc"):
        chapter("fedprox")
    with pytest.raises(ValueError, match="profile"):
        CHAPTERS[0].sizes("huge")


@pytest.mark.parametrize(("name", "value"), [("jobs", 0), ("jobs", 1.5), ("profile", "huge"), ("profile", None)])
def test_bad_arguments_of_run_all_are_named(tmp_path, name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        run_all([], **{"out_dir": tmp_path, name: value})


@pytest.mark.parametrize("function", [run_chapter, nbval_chapter, check_notebook, commit_chapter])
def test_what_is_no_path_or_is_not_there_is_named(function, tmp_path):
    with pytest.raises(TypeError, match="path: got 3"):
        function(3)
    with pytest.raises(FileNotFoundError, match=r"path: got .*00_none\.ipynb"):
        function(tmp_path / "00_none.ipynb")


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), "long", True])
def test_times_are_positive_numbers(good, timeout):
    for function in (run_chapter, nbval_chapter):
        with pytest.raises((TypeError, ValueError), match="timeout: got"):
            function(good[0], timeout=timeout)


def test_the_book_is_imported_without_its_tools():
    tools = "{'papermill', 'nbconvert', 'nbformat', 'matplotlib', 'IPython', 'ipywidgets', 'psutil', 'quickjs'}"
    code = f"import sys, fedbook.book; print(sorted({tools} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_report_without_measurements_still_makes_a_line():
    assert "-" in table([ChapterReport("00_start_here", "quick", ("00_start_here: no",))])

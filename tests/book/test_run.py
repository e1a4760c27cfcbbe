"""Running chapters on small notebooks: what papermill does not notice has to be noticed here."""

import os
import subprocess
import sys
from types import SimpleNamespace

import nbformat
import psutil
import pytest

from fedbook.book.check import check_notebook
from fedbook.book.commit import commit_chapter
from fedbook.book.contents import Chapter
from fedbook.book.kernel import answered, run_process, surroundings
from fedbook.book.product import cell_problems
from fedbook.book.run import ChapterReport, read_reports, run_all, run_chapter, run_worker, table
from fedbook.book.worker import Keeper

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


def test_all_run_although_one_fails(mini, tmp_path, monkeypatch, capsys):
    chapters = [Chapter(n, slug, slug, "", "") for n, slug in ((0, "good"), (1, "bad"), (2, "missing"))]
    cells = [mini.markdown("# T"), mini.code(mini.parameters, "parameters")]
    mini.write(tmp_path / "00_good.ipynb", *cells, mini.code("rounds"))
    mini.write(tmp_path / "01_bad.ipynb", *cells, mini.code("\nunknown_name + 1\n"), mini.code("2"))
    monkeypatch.delenv("FEDBOOK_HEADLESS")
    good, bad, missing = run_all(chapters, "quick", tmp_path / "out", root=tmp_path)
    assert good.ok
    said = capsys.readouterr().err
    assert "00_good: runs\n" in said and "00_good: done, " in said and "01_bad: FAILED, " in said
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


@pytest.mark.parametrize("compare", [False, True], ids=["papermill", "nbval"])
def test_a_kernel_that_never_answers_is_started_once_more(mini, tmp_path, monkeypatch, compare):
    path = mini.write(tmp_path / "book" / "00_start_here.ipynb", mini.code("print(2)"))
    silent = tmp_path / "silent" / "ipykernel_launcher.py"  # it is found before the real one
    silent.parent.mkdir()
    silent.write_text("import time\ntime.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", str(silent.parent))
    *_, last = run_chapter(path, compare=compare, start_limits=(3.0, 4.0)).problems  # nbval may have begun the cell
    assert last == "00_start_here: its kernel did not answer within 3 s, nor, started again, within 4 s"

    starts = []

    def process(*args, **options):
        starts.append(args)
        if len(starts) == 2:
            silent.unlink()
        return run_process(*args, **options)

    monkeypatch.setattr("fedbook.book.run.run_process", process)
    report = run_chapter(path, compare=compare, start_limits=(3.0, 300.0))
    assert report.problems == () and report.passed == 1 and len(starts) == 2


@pytest.mark.parametrize("how", [{"compare": False}, {"compare": True}, {"each": 300.0}], ids=str)
def test_a_kernel_leaves_a_sign_that_it_answered_and_then_takes_its_time(mini, tmp_path, how):
    path = mini.write(tmp_path / "00_start_here.ipynb", mini.code("print(sorted(locals()))"))
    product = tmp_path / "out.ipynb"
    work = {"notebook": str(path), "product": str(product), "parameters": {}, "folder": str(tmp_path), "timeout": 300}
    with surroundings() as env:
        env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        sign = answered(env)
        assert not sign.exists()
        assert run_worker(work | how, tmp_path, env, 300.0, (300.0, 300.0))["failure"] == ""
        assert sign.exists()
        ends = [sys.executable, "-c", "import time; time.sleep(1)"]
        assert run_process(ends, env, 300.0, sign=sign, within=0.1)[0] == 0
        assert run_process(ends, env, 300.0, sign=sign.with_name("none"), within=0.1)[0] is None
    (output,) = nbformat.read(product, as_version=4).cells[0].outputs
    assert "say" not in output.text, "the notebook's own names only"


def test_the_cell_that_was_running_is_named(mini):
    book = mini.notebook(mini.code("1"), mini.code("rounds = 3", "injected-parameters"), mini.code("sleep()"))
    book.cells[2].metadata["papermill"] = {"status": "running"}
    assert cell_problems(book) == ["cell 2 (`sleep()`): was running when the time was up"]


class TestComparison:
    """nbval on the committed notebook with other parameters."""

    @pytest.fixture
    def committed(self, mini):
        def cells(marked):
            return [
                mini.code(mini.parameters, "parameters"),
                mini.printed(mini.code("print(2 + 2)", "nbval-check-output"), f"{marked}\n", 2),
                mini.printed(mini.code("print(rounds)"), "3\n", 3),
                mini.printed(mini.code(f"{RECORD}note(rounds=rounds)"), "3\n", 4),
            ]

        return cells

    def test_passes_when_only_unmarked_cells_depend_on_the_parameters(self, mini, tmp_path, committed):
        path = mini.write(tmp_path / "00_start_here.ipynb", *committed(4))
        report = run_chapter(path, {"rounds": 7}, tmp_path / "out" / "product.ipynb", compare=True)
        assert report.ok, report.problems
        assert (report.passed, report.failed, report.marked, report.agreed) == (5, 0, 1, 1)
        assert report.records == {"rounds": 7} and report.peak_mb > 20 and report.seconds > 0
        shown = [cell.outputs for cell in nbformat.read(report.product, as_version=4).cells]
        assert shown[3][0].text == "7\n", "the product holds what was run, not what is committed"
        assert [one.name for one in (tmp_path / "out").iterdir()] == ["product.ipynb"]

    def test_goes_red_for_a_changed_output_and_for_a_raising_callback(self, mini, tmp_path, committed):
        callback = "from IPython.display import display\n" + WIDGET_ERROR
        path = mini.write(tmp_path / "00_start_here.ipynb", *committed(5), mini.code(callback, "nbval-ignore-output"))
        report = run_chapter(path, {"rounds": 7}, compare=True)
        assert (report.passed, report.failed, report.marked, report.agreed) == (4, 2, 1, 0)
        differs, raised = report.problems
        assert "cell 2 (`print(2 + 2)`): Cell outputs differ" in differs and "'5" in differs and "'4" in differs
        assert "ZeroDivisionError" in raised

    def test_the_cell_that_was_running_is_named(self, mini, tmp_path):
        path = mini.write(tmp_path / "00_slow.ipynb", mini.code("1"), mini.code("sleep()"))
        Keeper(str(path)).pytest_runtest_setup(SimpleNamespace(cell_num=1))
        assert cell_problems(nbformat.read(path, as_version=4)) == [
            "cell 2 (`sleep()`): was running when the time was up"
        ]


def test_a_lesson_is_compared_at_quick_size_and_other_kinds_are_not(mini, tmp_path):
    lesson = Chapter(1, "one", "One", "", "")
    cells = [mini.code(mini.parameters, "parameters"),
             mini.printed(mini.code("print(2 + 2)", "nbval-check-output"), "5\n", 2)]  # fmt: skip
    for one in (lesson, lesson.also("results")):
        mini.write(tmp_path / one.file, *cells)
    compared, results = run_all([lesson, lesson.also("results")], "quick", tmp_path / "out", root=tmp_path)
    assert (compared.kind, compared.marked, compared.ok) == ("lesson", 1, False)
    assert (results.kind, results.marked, results.passed, results.ok) == ("results", 0, 2, True)
    (rendered,) = run_all([lesson], "standard", tmp_path / "out", root=tmp_path)
    assert rendered.ok and rendered.marked == 0


@pytest.mark.parametrize(("name", "value"), [("jobs", 0), ("jobs", 1.5), ("profile", "huge"), ("profile", None)])
def test_bad_arguments_of_run_all_are_named(tmp_path, name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        run_all([], **{"out_dir": tmp_path, name: value})


@pytest.mark.parametrize("function", [run_chapter, check_notebook, commit_chapter])
def test_what_is_no_path_or_is_not_there_is_named(function, tmp_path):
    with pytest.raises(TypeError, match="path: got 3"):
        function(3)
    with pytest.raises(FileNotFoundError, match="path: got .* allowed is a notebook that exists"):
        function(tmp_path / "00_none.ipynb")


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), "long", True])
def test_times_are_positive_numbers(good, timeout):
    with pytest.raises((TypeError, ValueError), match="timeout: got"):
        run_chapter(good[0], timeout=timeout)


def test_the_book_is_imported_without_its_tools():
    tools = "{'papermill', 'nbconvert', 'nbformat', 'matplotlib', 'IPython', 'ipywidgets', 'psutil', 'quickjs'}"
    code = f"import sys, fedbook.book; print(sorted({tools} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_report_without_measurements_still_makes_a_line():
    assert "-" in table([ChapterReport("00_start_here", "quick", ("00_start_here: no",))])

"""The lab inside real kernels: what a reader sees, what a headless run stores, which tool notices which bug."""

import base64
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import nbformat.v4 as nb
import pytest

ROOT = Path(__file__).resolve().parents[2]
BUNDLE = {"application/vnd.jupyter.widget-view+json", "image/png", "text/plain"}

DEFINITIONS = """
    import matplotlib.pyplot as plt
    from fedbook.lab import style
    from fedbook.lab.controls import choice, slider
    from fedbook.lab.exercises import check, exercise
    from fedbook.lab.explore import explore
    from fedbook.lab.records import record
    style.use()

    def draw(ax, *, k, split="iid"):
        if (k, split) in BUGS:
            raise ValueError("planted")
        ax.plot([0, k])
        return f"k is {k}, split <{split}>"

    def go():
        splits = choice("split", ["iid", "shards", "skew"], "iid")
        return explore(draw, k=slider("k  clients", 0, 4, 1, 1), split=splits)

    @exercise("test-9", solution=1)
    def checker(answer):
        return None if answer == 1 else "It is not one."

    BUGS = []
"""

FAILS_AT_3 = """
    from fedbook.lab.controls import slider
    from fedbook.lab.explore import explore

    def draw(ax, *, k):
        if k == 3:
            raise ValueError("planted")
        return f"k is {k}"

    e = explore(draw, k=slider("k  clients", 0, 4, 1, 1))
"""


@pytest.fixture
def headless(headless_kernel):
    assert not errors(headless_kernel.run(DEFINITIONS))
    return headless_kernel


@pytest.fixture
def live(live_kernel):
    assert not errors(live_kernel.run(DEFINITIONS))
    return live_kernel


def errors(outputs):
    return [f"{one['ename']}: {one['evalue']}" for one in outputs if one["type"] == "error"]


def shown(outputs):
    return [one for one in outputs if one["type"] in ("display_data", "execute_result", "stream")]


def test_headless_stores_one_picture_and_one_sentence(headless):
    for code in ("go()", "e = go()"):
        picture, sentence = shown(headless.run(code))
        assert set(picture["data"]) == BUNDLE and picture["metadata"]["image/png"]["alt"] == "k is 1, split <iid>"
        assert len(base64.b64decode(picture["data"]["image/png"])) < 40_000
        assert sentence["data"] == {"text/plain": "k is 1, split <iid>", "text/markdown": r"k is 1, split \<iid\>"}
    again = shown(headless.run("go()"))[0]["data"]["image/png"]
    assert again == picture["data"]["image/png"]


@pytest.mark.parametrize(
    ("bug", "words"),
    [
        ((1, "iid"), "ValueError: planted"),
        ((4, "iid"), "k = 4, others at default"),
        ((1, "shards"), "split = 'shards'"),
        ((4, "skew"), "all at maximum or last"),
    ],
)
def test_headless_a_planted_bug_fails_the_cell(headless, bug, words):
    (error,) = errors(headless.run(f"BUGS = [{bug!r}]\ngo()"))
    assert words in error and "planted" in error


def test_headless_a_planted_bug_in_a_callback_fails_the_cell(headless):
    outputs = headless.run("e = go()\nBUGS = [(3, 'iid')]\ne.set(k=3)\nprint('the cell went on')")
    assert errors(outputs) == ["ValueError: planted"] and not any(o["type"] == "stream" for o in outputs)


def test_plots_and_records_are_shown_once(headless):
    (plot,) = shown(headless.run("plt.plot([1, 2])\nplt.show()"))
    png = base64.b64decode(plot["data"]["image/png"])
    assert len(png) < 15_000 and b"tEXt" not in png and b"PLTE" in png
    (made,) = shown(headless.run("record(accuracy=1 / 3, sizes=[1, 2])"))
    assert made["data"]["application/vnd.fedbook.record+json"] == {"accuracy": 0.3333, "sizes": [1, 2]}
    (verdict,) = shown(headless.run("check('test-9', 2)"))
    assert "wrong. It is not one." in verdict["data"]["text/plain"] and 'role="status"' in verdict["data"]["text/html"]


def test_frames_are_emitted_only_where_they_are_asked_for(headless):
    outputs = shown(headless.run("import os\nos.environ['FEDBOOK_FRAMES'] = '1'\ngo()"))
    headless.run("del os.environ['FEDBOOK_FRAMES']")
    assert len(outputs[0]["data"]["application/vnd.fedbook.frames+json"]["frames"]) == 5 * 3
    assert set(shown(headless.run("go()"))[0]["data"]) == BUNDLE


def test_live_a_moved_control_redraws_in_place(live):
    widget, script = shown(live.run("e = go()\ne"))
    assert "aria-label" in script["data"]["application/javascript"]
    assert "image/png" not in widget["data"] and "application/vnd.jupyter.widget-view+json" in widget["data"]
    slider, image = live.value("(e.controls['k'].model_id, e.image.model_id)")
    outputs = live.move(slider, 3)
    assert not shown(outputs) and not errors(outputs)
    assert any(o["type"] == "comm_msg" and o["comm_id"] == image for o in outputs)
    assert live.value("e.sentence") == "k is 3, split <iid>"


def test_live_an_error_is_shown_and_gone_with_the_next_value(live):
    live.run("BUGS = [(3, 'iid')]\ne = go()")
    slider = live.value("e.controls['k'].model_id")
    outputs = live.move(slider, 3)
    assert errors(outputs) == ["ValueError: planted"]
    captured = [o for o in outputs if o["type"] == "comm_msg" and o["comm_id"] == live.value("e.errors.model_id")]
    assert captured, "the traceback goes into the widget"
    assert "planted" in live.value("e.reading.value")
    assert not errors(live.move(slider, 2)) and "k is 2" in live.value("e.reading.value")


def test_tools_notice_a_callback_that_fails_in_a_notebook_that_is_not_headless(tmp_path):
    """nbclient (and so papermill) through the stored widget state, nbval through the error message."""
    import nbformat
    from nbclient import NotebookClient

    from fedbook.book.product import widget_problems

    cells = [nb.new_code_cell(textwrap.dedent(code)) for code in (FAILS_AT_3, "e.set(k=3)")]
    book = nb.new_notebook(cells=cells)
    path = tmp_path / "live.ipynb"
    nbformat.write(book, path)
    env = {**os.environ, "FEDBOOK_HEADLESS": "0", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    NotebookClient(book, kernel_name="python3", timeout=60).execute(env=env)
    assert any("planted" in problem for problem in widget_problems(book))
    nbval = ["--nbval-lax", "--nbval-current-env", "-q", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *nbval, str(path)]
    result = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1 and "planted" in result.stdout, result.stdout[-2000:]

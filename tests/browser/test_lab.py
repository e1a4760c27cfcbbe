"""Lessons in JupyterLab, in a real browser: all cells run, every control of every widget answers; a restart too."""

import json
import subprocess
import sys
import time
from contextlib import suppress

import nbformat
import pytest
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from fedbook import shipped
from fedbook.book.contents import CHAPTERS, notebooks_folder
from fedbook.book.kernel import surroundings

pytestmark = pytest.mark.slow

LESSONS = [chapter for chapter in CHAPTERS if chapter.kind == "lesson"]
BOOK = "jupyterapp.shell.currentWidget"
KEYS = ["ArrowRight", "ArrowLeft", "Home", "End"]
CODE = f"{BOOK}.content.widgets.filter(one => one.model.type === 'code' && one.model.sharedModel.getSource().trim())"
DONE = f"{BOOK}.sessionContext.session.kernel.status === 'idle' && {CODE}.every(one => one.model.executionCount)"
ERRORS = f"""{CODE}.flatMap(one => one.model.outputs.toJSON()).filter(one => one.output_type === 'error')
  .map(one => one.evalue)"""
WIDGETS = "[...document.querySelectorAll('.widget-vbox')].filter(one => one.querySelector(':scope > img'))"
CONTROLS = "querySelectorAll('[role=slider], select, input[type=checkbox]')"
NO_NAME = f"""{WIDGETS}.flatMap(one => [...one.{CONTROLS}]).filter(
  one => !(one.ariaLabel || one.labels?.[0]?.innerText || '').trim()).length"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of a JupyterLab with its token, on loopback, over a copy of the lessons at quick sizes."""
    home = tmp_path_factory.mktemp("lab")
    folders = {name: home / name for name in ("notebooks", "runtime", "config", "settings", "workspaces")}
    for path in shipped.copy_notebooks(notebooks_folder(), folders["notebooks"]):
        chapter = next(one for one in CHAPTERS if one.file == path.name)
        nbformat.write(parameterize_notebook(load_notebook_node(str(path)), chapter.sizes("quick")), path)
    tracker = folders["settings"] / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
    tracker.parent.mkdir(parents=True)
    tracker.write_text('{"windowingMode": "none"}')  # every cell stands in the page
    with surroundings() as env:
        env |= {"FEDBOOK_HEADLESS": "0", "JUPYTER_RUNTIME_DIR": str(folders["runtime"])}
        env |= {"JUPYTER_CONFIG_DIR": str(folders["config"]), "JUPYTERLAB_SETTINGS_DIR": str(folders["settings"])}
        env |= {"JUPYTERLAB_WORKSPACES_DIR": str(folders["workspaces"])}
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", "--port=0"]
        command += ["--expose-app-in-browser", f"--ServerApp.root_dir={folders['notebooks']}"]
        with (home / "log").open("w") as log:
            process = subprocess.Popen(command, env=env, cwd=home, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while not (found := [*folders["runtime"].glob("jpserver-*.json")]):
            assert time.monotonic() < deadline and process.poll() is None, (home / "log").read_text()
            time.sleep(0.1)
        told = json.loads(found[0].read_text())
        yield lambda name: f"{told['url']}lab/workspaces/{name}/tree/{name}.ipynb?token={told['token']}"
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(20)
        process.kill()


def run_all(page):
    """All cells, from clean outputs; no cell and nothing in the page fails."""
    page.until(f"window.jupyterapp && {BOOK}?.sessionContext?.session?.kernel?.status === 'idle'", 120)
    page.ask("jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
    page.ask("void jupyterapp.commands.execute('notebook:run-all-cells')")
    page.until(DONE, 600)
    assert page.ask(ERRORS) == []


def move_every_control(page):
    """Each control alone, by keyboard but for menus: the picture changes. Then Reset brings the first sentence back."""
    count = page.ask(f"{WIDGETS}.length")
    assert count and page.ask(NO_NAME) == 0
    for number in range(count):
        widget = f"{WIDGETS}[{number}]"
        picture, sentence = f"{widget}.querySelector('img').src", f"{widget}.querySelector('[role=status]').innerText"
        first = page.ask(sentence)
        for place in range(page.ask(f"{widget}.{CONTROLS}.length")):
            control = f"{widget}.{CONTROLS}[{place}]"
            before, kind = page.ask(picture), page.ask(f"{control}.tagName + {control}.type")
            page.ask(f"{control}.scrollIntoView(), {control}.focus()")
            if kind.startswith("SELECT"):  # a headless Chromium has no menu for its arrow keys
                page.ask(f"{control}.selectedIndex = Number({control}.selectedIndex === 0)")
                page.ask(f"{control}.dispatchEvent(new Event('change', {{bubbles: true}}))")
            for key in {"INPUTcheckbox": [" "], "DIVundefined": KEYS}.get(kind, [""]):
                if key:
                    page.press(key)
                with suppress(AssertionError):  # at an end of its range one of the keys moves nothing
                    page.until(f"{picture} !== {json.dumps(before)}", 10)
                    break
            assert page.ask(picture) != before, f"widget {number}, control {place} ({kind}): the picture stays"
        page.ask(f"[...{widget}.querySelectorAll('button')].find(one => one.innerText.trim() === 'Reset').click()")
        page.until(f"{sentence} === {json.dumps(first)}", 30)


@pytest.mark.parametrize("chapter", LESSONS, ids=[one.name for one in LESSONS])
def test_a_lesson_runs_and_its_controls_answer(lab, page, chapter):
    page.wide(1280)
    page.open(lab(chapter.name))
    run_all(page)
    move_every_control(page)
    if chapter.name == "03_prirfed":  # most kinds of controls
        page.ask(f"void {BOOK}.sessionContext.restartKernel()")
        page.until(
            "document.querySelectorAll('.jupyter-widgets-disconnected').length"
        )  # ipywidgets marks what is cut off
        run_all(page)
        move_every_control(page)
    assert page.ask(ERRORS) == [] and page.problems == []
    page.ask(f"void {BOOK}.sessionContext.shutdown()")

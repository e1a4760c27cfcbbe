"""One good small notebook, and for each rule of the lint one change that breaks it."""

import copy
import importlib
import re
from pathlib import Path

import nbformat
import pytest

from fedbook.book import check
from fedbook.book.check import check_notebook
from fedbook.book.contents import navigation
from fedbook.book.product import CODE_RUN, code_digest

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PROSE, PARAMETERS, SETUP, FIGURE, MARKED, WIDGET, EXERCISE, CHECK, FOLDED, FILLER = 2, 3, 4, 5, 7, 9, 11, 12, 13, 14
SETUP_SOURCE = """import matplotlib.pyplot as plt

import fedbook.book
from fedbook import arguments
from fedbook.lab.exercises import check
from fedbook.lab.explore import explore"""
DETAILS = "<details>\n<summary>{}</summary>\n\nSome $x^2$.\n\n</details>"


@pytest.fixture(scope="module")
def good(mini):
    """A notebook that keeps every rule; the constants above are positions in it, from 0."""
    picture = nbformat.v4.new_output("display_data", data={"image/png": PNG, "text/plain": "<Figure size 1x1>"})
    figure = mini.code("figure, axes = plt.subplots()\naxes.plot([1, 2])\nplt.show()", "figure")
    figure.outputs, figure.metadata["alt"] = [picture], "a line that rises"
    widget = mini.code("explore(print)", "widget", "nbval-ignore-output")
    widget.outputs = [
        copy.deepcopy(picture),
        nbformat.v4.new_output("display_data", data={"text/plain": "It is 3.25."}),
    ]
    widget.outputs[0].metadata = {"image/png": {"alt": "It is 3.25."}}
    cells = [
        mini.markdown(navigation("00_start_here"), "nav"),
        mini.markdown("# 0 · Start here\n\n![a round of training](data:image/png;base64,AAAA)"),
        mini.markdown("The mean $\\frac{1}{K} \\sum_k x_k$ costs `$5`."),
        mini.code(mini.parameters, "parameters"),
        mini.code(SETUP_SOURCE, "setup"),
        figure,
        mini.markdown("The line rises from 1 to 2. The widget says 3.3, rounded."),
        mini.printed(mini.code("print(2 + 2)", "nbval-check-output"), "4\n", 1),
        mini.markdown("What will the slider do?"),
        widget,
        mini.markdown("### Exercise 0-1"),
        mini.code("answer = ...", "exercise", "ex-00-1"),
        mini.code('check("00-1", answer)', "nbval-ignore-output"),
        mini.markdown(DETAILS.format("Hint") + "\n\n" + DETAILS.format("Solution"), "solution"),
    ]
    for number in range(7):
        cells += [mini.code(f'arguments.integer("n", {number})'), mini.markdown(f"Step {number}.")]
    cells += [
        mini.code("fedbook.book.CHAPTERS"),
        mini.markdown("Summary."),
        mini.markdown(navigation("00_start_here"), "nav"),
    ]
    book = mini.notebook(*cells)
    for count, cell in enumerate((cell for cell in book.cells if cell.cell_type == "code"), start=1):
        cell["execution_count"] = count
    book.metadata[CODE_RUN] = code_digest(book)
    return book


@pytest.fixture
def problems(good, tmp_path, monkeypatch):
    """A function: change a copy of the good chapter and give the problems of the result, by the rules of structure."""
    monkeypatch.setattr(check, "READING", ())

    def change(alter=lambda book: None, name="00_start_here"):
        book = copy.deepcopy(good)
        alter(book)
        if CODE_RUN in book.metadata:  # the changes are meant as changes of code and outputs
            book.metadata[CODE_RUN] = code_digest(book)
        path = tmp_path / f"{name}.ipynb"
        nbformat.v4.rwbase.strip_transient(book)
        path.write_text(nbformat.v4.writes(book), encoding="utf-8")
        return check_notebook(path)

    return change


def source(at, text):
    return lambda book: book.cells[at].update(source=text)


def tagged(at, *tags):
    return lambda book: book.cells[at].metadata.update(tags=list(tags))


def add(at, *tags):
    return lambda book: book.cells[at].metadata.update(tags=[*book.cells[at].metadata.get("tags", []), *tags])


def output(at, kind, **values):
    return lambda book: book.cells[at].outputs.append(nbformat.v4.new_output(kind, **values))


def swapped_bars(book):
    book.cells.insert(1, book.cells.pop(0))


def second_parameters(book):
    book.cells[FILLER].update(source="n: int = 1  # one", metadata={"tags": ["parameters"]})


def more_lines(book):
    for cell in (book.cells[MARKED], *book.cells[FILLER:-3:2]):
        cell.source = "\n".join(['arguments.integer("n", 0)'] * 9)


def overwritten(book):
    book.cells[WIDGET].source = "def named():\n    return rounds\n\n\ndef draw(ax, n):\n    named()\n\n\nexplore(draw)"
    book.cells[FILLER].source = "for rounds in range(3):\n    print(rounds)"


def view(at):
    return output(at, "display_data", data={"application/vnd.jupyter.widget-view+json": {"model_id": "1"}})


MUTATIONS = [
    ("one-title", source(PROSE, "# Another title")),
    ("one-title", source(1, "## No title")),
    ("generated-cells", source(0, "old bar")),
    ("generated-cells", source(-1, "old bar")),
    ("generated-cells", add(FOLDED, "ex-00-no-such-exercise")),
    ("navigation", tagged(-1)),
    ("navigation", swapped_bars),
    ("tags", add(PROSE, "raises-exception")),
    ("parameters-cell", tagged(PARAMETERS)),
    ("parameters-cell", second_parameters),
    ("setup-cell", tagged(SETUP)),
    ("parameters-literals", source(PARAMETERS, "rounds: int = 3  # how often\nsteps: int = rounds * 2  # computed")),
    ("parameters-literals", source(PARAMETERS, "rounds: int = 3")),
    ("parameters-literals", source(PARAMETERS, "rounds = 3  # no type")),
    ("parameters-literals", source(PARAMETERS, "rounds: int = 3.5  # wrong type")),
    ("parameters-literals", source(PARAMETERS, "import os  # not here")),
    ("kernel", lambda book: book.metadata.kernelspec.update(name="my-env")),
    ("format", lambda book: book.update(nbformat_minor=4)),
    ("ids", lambda book: book.cells[2].update(id=book.cells[3].id)),
    ("ids", lambda book: book.cells[2].pop("id")),
    ("execution-counts", lambda book: book.cells[MARKED].update(execution_count=9)),
    ("execution-counts", lambda book: book.cells[MARKED].update(execution_count=None)),
    ("outputs-of-this-code", lambda book: book.metadata.pop(CODE_RUN)),
    ("error-output", output(SETUP, "error", ename="KeyError", evalue="3", traceback=[])),
    ("stderr-output", output(SETUP, "stream", name="stderr", text="careful")),
    ("addresses", output(SETUP, "execute_result", data={"text/plain": "<Line2D at 0x7f3a5c0021d0>"})),
    ("widget-state", lambda book: book.metadata.update(widgets={})),
    ("widget-state", view(WIDGET)),
    ("metadata", lambda book: book.metadata.update(papermill={})),
    ("metadata", lambda book: book.cells[SETUP].metadata.update(execution={"iopub.execute_input": "2026"})),
    ("metadata", lambda book: book.cells[SETUP].metadata.update(papermill={"duration": 1})),
    ("marked-output", lambda book: book.cells[MARKED].update(outputs=[])),
    ("marked-output", add(MARKED, "nbval-ignore-output")),
    ("widget-tags", tagged(WIDGET, "widget")),
    ("figure-words", lambda book: book.cells.insert(FIGURE + 1, book.cells.pop(FIGURE + 2))),
    ("plain-python", source(MARKED, "!ls")),
    ("plain-python", source(MARKED, "%pip install something")),
    ("plain-python", source(MARKED, "def broken(:")),
    ("forbidden", source(MARKED, "from tqdm.auto import tqdm")),
    ("forbidden", source(MARKED, "import tqdm as bar")),
    ("forbidden", source(MARKED, "import sys\nsys.path.append('.')")),
    ("forbidden", source(MARKED, "from math import *")),
    ("forbidden", source(MARKED, "try:\n    1\nexcept:\n    2")),
    ("forbidden", source(MARKED, "name = input('?')")),
    ("forbidden", source(MARKED, "open('/data/mnist.gz')")),
    ("forbidden", source(MARKED, "open('~/mnist.gz')")),
    ("forbidden", source(MARKED, r"open('C:\\mnist.gz')")),
    ("forbidden", source(PROSE, "Look into /home/me/data.")),
    ("plot-shown", source(FIGURE, "figure, axes = plt.subplots()\naxes.plot([1])")),
    ("plot-shown", source(FIGURE, "plt.plot([1])")),
    ("widget-names", overwritten),
    ("size", output(SETUP, "stream", name="stdout", text="x" * 600_000)),
    ("alt-text", source(PROSE, "![](picture.png)")),
    ("alt-text", source(PROSE, '<img src="picture.png">')),
    ("alt-text", source(PROSE, '<img src="picture.png" alt="">')),
    ("mathematics", source(PROSE, r"The $\unknown{x}$.")),
    ("exercise-id", tagged(EXERCISE, "exercise")),
    ("exercise-id", add(EXERCISE, "ex-00-2")),
    ("exercise-check", source(CHECK, "answer")),
    ("exercise-check", source(CHECK, 'check("00-2", answer)')),
    ("exercise-hint", source(FOLDED, DETAILS.format("Solution"))),
    ("exercise-solution", source(FOLDED, DETAILS.format("Hint"))),
]


LAB = ", ".join(f"name{n}" for n in range(7))
READING_RULES = check.READING
READING = [
    ("ruff", source(MARKED, "total = 1  # " + "far " * 20 + "away")),
    ("ruff", source(MARKED, "import os")),
    ("ruff", source(MARKED, "print(rounds == None)")),
    ("ruff-format", source(MARKED, "print(2+2)")),
    ("ruff-format", source(MARKED, "def double(x): return 2 * x")),
    ("semicolon", source(MARKED, "print(2 + 2);")),
    ("cell-lines", source(MARKED, "\n".join(["rounds += 1"] * 16))),
    ("median-lines", more_lines),
    ("side-effects", source(MARKED, "[print(n) for n in range(3)]\nprint(rounds)")),
    ("side-effects", source(MARKED, "_ = {print(n) for n in range(3)}")),
    ("side-effects", source(MARKED, "def show():\n    [print(n) for n in range(3)]")),
    ("lab-names", source(MARKED, f"from fedbook.lab import {LAB}\n\nprint({LAB})")),
    ("bare-boolean", output(FILLER, "stream", name="stdout", text="both sides agree: True\n")),
    ("figure-alt", lambda book: book.cells[FIGURE].metadata.pop("alt")),
    ("prose-number", source(PROSE, "The widget says 3.4.")),
]


def test_the_good_chapter_has_no_problem(problems, monkeypatch):
    monkeypatch.setattr(check, "READING", READING_RULES)
    assert [str(problem) for problem in problems()] == []


@pytest.mark.parametrize(("rule", "alter"), READING, ids=[f"{n}-{rule}" for n, (rule, _) in enumerate(READING)])
def test_one_change_breaks_one_rule_of_reading(problems, monkeypatch, rule, alter):
    monkeypatch.setattr(check, "STRUCTURE", ())
    assert problems(alter) == []
    monkeypatch.setattr(check, "READING", READING_RULES)
    assert {problem.rule for problem in problems(alter)} == {rule}


def test_a_longer_cell_may_be_the_algorithm(problems, monkeypatch):
    monkeypatch.setattr(check, "STRUCTURE", ())
    monkeypatch.setattr(check, "READING", READING_RULES)

    def algorithm(lines):
        return lambda book: book.cells[FILLER].update(
            source="\n".join(["rounds += 1"] * lines), metadata={"tags": ["algorithm"]}
        )

    assert problems(algorithm(30)) == []
    assert [problem.rule for problem in problems(algorithm(31))] == ["cell-lines"]


def test_the_command_lists_the_problems(good, tmp_path, capsys):
    path = tmp_path / "00_start_here.ipynb"
    nbformat.write(good, path)
    assert check.main([str(path)]) == 0
    book = copy.deepcopy(good)
    source(PROSE, "The widget says 3.4.")(book)
    nbformat.write(book, path)
    assert check.main([str(path)]) == 1
    assert f"prose-number: cell {PROSE + 1}: 3.4" in capsys.readouterr().out


@pytest.mark.parametrize(("rule", "alter"), MUTATIONS, ids=[f"{n}-{rule}" for n, (rule, _) in enumerate(MUTATIONS)])
def test_one_change_breaks_one_rule(problems, rule, alter):
    found = problems(alter)
    assert {problem.rule for problem in found} == {rule}, [str(problem) for problem in found]
    assert all(problem.message for problem in found)


def test_a_chapter_without_exercises_is_checked_too(problems):
    assert problems(tagged(EXERCISE)) == []


def test_a_name_that_is_not_in_the_contents_is_a_problem(problems, monkeypatch):
    monkeypatch.setattr(check, "READING", ())
    assert {problem.rule for problem in problems(name="07_unknown")} == {"navigation", "generated-cells"}


def test_a_solution_that_is_not_the_tested_one_is_a_problem(problems, monkeypatch):
    exercises = importlib.import_module("fedbook.lab.exercises")
    known = exercises.Exercise("00-1", lambda answer: None, 4, ("Count.",), ())
    monkeypatch.setitem(exercises.EXERCISES, "00-1", known)

    def current(book):
        book.cells[FOLDED].update(source=exercises.folded("00-1"), metadata={"tags": ["solution", "ex-00-1"]})

    def stale(book):
        current(book)
        book.cells[FOLDED].source = book.cells[FOLDED].source.replace("4", "5")

    assert problems(current) == []
    assert [(problem.rule, problem.cell) for problem in problems(stale)] == [("generated-cells", FOLDED + 1)]


def test_every_rule_is_broken_by_some_change():
    named = set()
    for path in Path(check.__file__).parent.glob("check*.py"):
        named |= set(re.findall(r"Problem\(\s*f?\"([a-z-]+)\"", path.read_text(encoding="utf-8")))
    named |= {"parameters-cell", "exercise-hint", "exercise-solution"}
    assert named == {rule for rule, _ in MUTATIONS + READING}


def test_the_problem_names_its_cell(problems):
    (problem,) = problems(source(MARKED, "from math import *"))
    assert problem.cell == MARKED + 1
    assert str(problem) == f"forbidden: cell {MARKED + 1}: from math import *"


def test_what_is_no_notebook_is_refused(tmp_path):
    path = tmp_path / "00_start_here.ipynb"
    path.write_text("no json", encoding="utf-8")
    with pytest.raises(ValueError, match="00_start_here.ipynb"):
        check_notebook(path)
    with pytest.raises(FileNotFoundError):
        check_notebook(tmp_path / "missing.ipynb")

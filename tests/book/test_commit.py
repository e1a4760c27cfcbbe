"""Rewriting committed notebooks: executed, scrubbed, the same bytes twice, and refused when wrong."""

import base64
import json

import nbformat
import pytest

from fedbook.book.check import check_notebook
from fedbook.book.commit import CommitError, commit_chapter, plain_png, scrub
from fedbook.book.contents import navigation
from fedbook.book.product import CODE_RUN, WIDGET_VIEW

FIGURE = """import matplotlib.pyplot as plt
figure, axes = plt.subplots(figsize=(1, 1))
axes.plot(range(rounds))
plt.show()"""
WIDGET = """import base64, io, ipywidgets
from IPython.display import display
figure, axes = plt.subplots(figsize=(1, 1))
store = io.BytesIO()
figure.savefig(store, format="png")
plt.close(figure)
slider = ipywidgets.IntSlider()
view = {"model_id": slider.model_id, "version_major": 2, "version_minor": 0}
png = base64.b64encode(store.getvalue()).decode()
display({"application/vnd.jupyter.widget-view+json": view, "image/png": png, "text/plain": "slider"}, raw=True)
display(ipywidgets.Button(description="Run"))"""
HEADLESS = """import os, sys, time
for number in range(3):
    print(number, os.environ["FEDBOOK_HEADLESS"], flush=True)
    time.sleep(0.05)"""


@pytest.fixture(scope="module")
def committed(mini, exempt, tmp_path_factory):
    path = mini.write(
        tmp_path_factory.mktemp("commit") / "00_start_here.ipynb",
        mini.markdown("an old bar", "nav"),
        mini.code(mini.parameters, "parameters"),
        mini.code(FIGURE),
        mini.code(WIDGET, "widget"),
        mini.printed(mini.code(HEADLESS), "an old output", 99),
        mini.markdown("another old bar", "nav"),
    )
    before = nbformat.read(path, as_version=4)
    commit_chapter(path)
    first = path.read_bytes()
    commit_chapter(path)
    return before, first, path


def test_twice_gives_the_same_bytes(committed):
    _, first, path = committed
    assert path.read_bytes() == first
    assert [one.name for one in path.parent.iterdir()] == [path.name], "no scratch file stays"


def test_the_source_stays_and_the_navigation_is_new(committed):
    before, _, path = committed
    after = nbformat.read(path, as_version=4)
    assert [cell.id for cell in after.cells] == [cell.id for cell in before.cells]
    assert [cell.source for cell in after.cells[1:-1]] == [cell.source for cell in before.cells[1:-1]]
    assert after.cells[0].source == after.cells[-1].source == navigation("00_start_here")


def test_the_product_is_scrubbed(committed):
    text = committed[1].decode("utf-8")
    raw = json.loads(text)
    assert set(raw["metadata"]) == {"kernelspec", "language_info", CODE_RUN}
    assert raw["metadata"]["language_info"] == {"name": "python"}
    assert all(set(cell["metadata"]) <= {"tags", "alt"} for cell in raw["cells"])
    code = [cell for cell in raw["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [1, 2, 3, 4]
    outputs = json.dumps([cell["outputs"] for cell in code])
    assert WIDGET_VIEW not in outputs and "papermill" not in text and "Software" not in outputs
    assert text.endswith("}\n")


def test_other_code_needs_another_run(committed, tmp_path):
    def stale(change):
        book = nbformat.read(committed[2], as_version=4)
        change(book)
        path = tmp_path / committed[2].name
        nbformat.write(book, path)
        return "outputs-of-this-code" in {problem.rule for problem in check_notebook(path)}

    assert not stale(lambda book: book.cells[0].update(source="other words"))
    assert stale(lambda book: book.cells[2].update(source=FIGURE + "\nplt.close()"))
    assert stale(lambda book: book.cells.pop(2))


def test_pictures_stay_and_widgets_without_one_go(committed):
    cells = [cell for cell in nbformat.read(committed[2], as_version=4).cells if cell.cell_type == "code"]
    assert [set(output.data) for output in cells[1].outputs] == [{"image/png", "text/plain"}]
    assert [set(output.data) for output in cells[2].outputs] == [{"image/png", "text/plain"}]
    assert [output.text for output in cells[3].outputs] == ["0 1\n1 1\n2 1\n"], "one piece, and headless"


def test_a_notebook_with_an_error_is_not_rewritten(mini, tmp_path):
    callback = "import ipywidgets\nout = ipywidgets.Output()\nwith out:\n    [][1]\nout"
    path = mini.write(tmp_path / "00_start_here.ipynb", mini.code(callback), mini.code("1 / 0"))
    before = path.read_bytes()
    with pytest.raises(CommitError) as caught:
        commit_chapter(path)
    assert "00_start_here: cell 2 (`1 / 0`): ZeroDivisionError" in str(caught.value)
    assert "00_start_here: cell 1 (`import ipywidgets`): in a widget callback, IndexError" in str(caught.value)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_a_rewritten_notebook_keeps_the_rules_or_is_not_committed(mini, tmp_path, monkeypatch):
    monkeypatch.setattr("fedbook.book.commit.check_notebook", check_notebook)
    path = mini.write(tmp_path / "00_start_here.ipynb", mini.markdown("It is 0.94."), mini.code("print(0.93)"))
    before = path.read_bytes()
    with pytest.raises(CommitError, match="00_start_here: prose-number: cell 1: 0.94 stands in no output"):
        commit_chapter(path)
    assert path.read_bytes() == before


def test_scrubbing_drops_what_papermill_put_in(mini):
    book = mini.notebook(mini.code("a"), mini.code("b", "injected-parameters"), mini.code("c"))
    book.cells[0].metadata["execution"] = {"iopub.status.idle": "now"}
    book.cells[0].metadata["alt"] = "a line"
    scrub(book)
    assert [cell.source for cell in book.cells] == ["a", "c"]
    assert dict(book.cells[0].metadata) == {"alt": "a line"}


def test_text_in_a_png_goes_and_the_picture_stays():
    from io import BytesIO

    from PIL import Image, PngImagePlugin

    notes = PngImagePlugin.PngInfo()
    notes.add_text("Software", "some version")
    store = BytesIO()
    Image.new("RGB", (3, 2), "red").save(store, format="PNG", pnginfo=notes, dpi=(90, 90))
    plain = base64.b64decode(plain_png(base64.b64encode(store.getvalue()).decode()))
    assert b"some version" in store.getvalue() and b"some version" not in plain
    with Image.open(BytesIO(plain)) as picture:
        assert picture.size == (3, 2) and picture.getpixel((0, 0)) == (255, 0, 0) and "dpi" in picture.info
    with pytest.raises(ValueError, match="image/png"):
        plain_png(base64.b64encode(b"GIF89a").decode())

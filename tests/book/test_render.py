"""The pages: complete, readable, and nothing in them comes from the network."""

import re
from urllib.parse import urlparse

import nbformat
import pytest
from bs4 import BeautifulSoup

from fedbook.book import build
from fedbook.book.chapter_page import RenderError, chapter_page, page_link
from fedbook.book.contents import CHAPTERS
from fedbook.book.render import render_book
from fedbook.book.run import ChapterReport, write_reports

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PROSE = r"""## The objective

See [the next](01_fedsc.ipynb#shape) and [a paper](https://arxiv.org/abs/1602.05629). The mean is $\frac{1}{K}$,
<a href="02_hetero_ssfl.ipynb">later</a>.

$$
\begin{aligned}
a &= b < c \\
  &= \mathbb{E}[X] \tag{1}
\end{aligned}
$$

| symbol | meaning |
|---|---|
| $K$ | clients |

![a drawing](drawing.png)

```python
for client in clients: pass
```

### Details

<details>
<summary>Hint</summary>

Fold **this**.

</details>

## The objective
"""


@pytest.fixture(scope="module")
def folder(mini, tmp_path_factory):
    """An executed chapter, written by hand, beside an image file."""
    import base64

    folder = tmp_path_factory.mktemp("executed")
    (folder / "drawing.png").write_bytes(base64.b64decode(PNG))
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "7"}, "text/plain": "VBox(children=...)"}
    figure, widget, lone, hidden = (mini.code(text) for text in ("draw()", "explore()", "button", "secret = 1"))
    figure.outputs = [nbformat.v4.new_output("display_data", data={"image/png": PNG, "text/plain": "<Figure>"})]
    figure.metadata["alt"] = 'a line that "rises"'
    widget.outputs = [nbformat.v4.new_output("display_data", data=view | {"image/png": PNG})]
    lone.outputs = [nbformat.v4.new_output("display_data", data=view)]
    hidden.metadata["tags"] = ["hide-input"]
    cells = [
        mini.markdown("generated bar", "nav"),
        mini.markdown("# 0 · Start"),
        mini.markdown(PROSE),
        figure,
        widget,
        lone,
    ]
    cells += [mini.code(mini.parameters, "parameters"), mini.code("rounds = 7", "injected-parameters"), hidden]
    mini.write(folder / "00_start_here.ipynb", *cells)
    report = ChapterReport("00_start_here", "quick", (), 9, 12.3, 456.0, 78.0)
    mini.write(folder / "01_fedsc.ipynb", mini.markdown("# 1 · Its run failed"))
    write_reports(folder, [report, ChapterReport("01_fedsc", "quick", ("01_fedsc: failed",))])
    return folder


@pytest.fixture(scope="module")
def pages(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("book")
    index = render_book(folder, out)
    assert sorted(path.name for path in out.iterdir()) == ["00_start_here.html", "index.html"]
    paths = (index, out / "00_start_here.html")
    return {path.name: BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser") for path in paths}


@pytest.fixture(scope="module")
def chapter(pages):
    return pages["00_start_here.html"]


def test_nothing_is_loaded_from_the_network(pages):
    for soup in pages.values():
        for one in soup.find_all(True):
            for attribute in ("src", "srcset", "data", "poster", "action", "xlink:href"):
                assert urlparse(one.get(attribute, "")).scheme in ("", "data"), one
            assert one.name != "link" and not (one.name == "script" and one.get("src"))
            assert one.name == "a" or not str(one.get("href", "")).startswith(("http", "//"))
        code = " ".join(one.get_text() for one in soup.find_all(["script", "style"]))
        assert not re.search(r"https?://|//cdn|@import|\bimport\b|\bfetch\b", code)
        whole = str(soup).lower()
        assert not [word for word in ("mathjax", "require.js", "jquery", "mermaid", "unpkg") if word in whole]


def test_mathematics_is_mathml_and_no_tex_is_left(chapter):
    formulas = chapter.find_all("math")
    assert len(formulas) == 3
    text = chapter.find("main").get_text()
    assert "\\" not in text and "$" not in text
    assert chapter.select_one(".equation .tag").get_text() == "(1)"
    assert "Book Math" in chapter.find("style").get_text()


def test_a_fold_holds_its_text(chapter):
    fold = chapter.find("details")
    assert fold.find("summary").get_text() == "Hint"
    assert fold.find("strong").get_text() == "this"


def test_links_go_to_pages(chapter):
    targets = [link["href"] for link in chapter.find("main").find_all("a")]
    assert "01_fedsc.html#shape" in targets and "02_hetero_ssfl.html" in targets
    assert "https://arxiv.org/abs/1602.05629" in targets
    assert not [target for target in targets if ".ipynb" in target]
    assert targets.count("index.html") == 2, "above and below the text"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("02_hetero_ssfl.ipynb", "02_hetero_ssfl.html"),
        ("./05_cvfl.ipynb#top", "05_cvfl.html#top"),
        ("https://example.org/a.ipynb", "https://example.org/a.ipynb"),
        ("#here", "#here"),
    ],
)
def test_page_link(url, expected):
    assert page_link(url) == expected


def test_images_are_inside_and_have_text(chapter):
    images = chapter.find_all("img")
    assert len(images) == 3
    assert all(image["src"].startswith("data:image/png;base64,") for image in images)
    texts = [image["alt"] for image in images]
    assert texts == ["a drawing", 'a line that "rises"', "Figure of chapter 0, cell 5"]


def test_widgets_become_their_picture_or_a_note(chapter):
    assert "VBox" not in str(chapter) and "widget-view" not in str(chapter)
    assert len(chapter.find_all(string=re.compile("A live control"))) == 1


def test_cells_that_a_reader_does_not_need_are_left_out(chapter):
    text = chapter.get_text()
    assert "generated bar" not in text and "secret" not in text
    assert "made with these values" in text and "rounds" in text


def test_the_sidebar_links_to_headings_that_exist_once(chapter):
    targets = [link["href"] for link in chapter.select("aside a")]
    assert targets == ["#the-objective", "#details", "#the-objective-again"]
    for target in targets:
        assert len(chapter.select(target)) == 1


def test_code_is_coloured_and_tables_scroll(chapter):
    assert chapter.select(".highlight span.k")
    assert all("scroll" in table.parent["class"] for table in chapter.find_all("table"))


def test_the_contents_list_every_chapter_with_its_state(pages):
    rows = [row.get_text(" ", strip=True) for row in pages["index.html"].select("tbody tr")]
    assert len(rows) == len(CHAPTERS)
    assert all(one.title in row and one.claim in row for one, row in zip(CHAPTERS, rows, strict=True))
    assert re.search(r"ready 12 456 78$", rows[0])
    assert "failed" in rows[1] and all(row.endswith("not run") for row in rows[2:])
    assert [link["href"] for link in pages["index.html"].select("tbody a")] == ["00_start_here.html"]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (r"The $\unknown{x}$.", r"cell 1 (`The $\unknown{x}$.`): mathematics: \unknown is not supported"),
        ("![chart](https://example.org/a.png)", "<img> refers to https://example.org/a.png"),
        ("![chart](missing.png)", "<img> refers to missing.png"),
        ('<script src="https://example.org/a.js"></script>', "<script> refers to https://example.org"),
        ("```mermaid\ngraph TD\n```", "mermaid"),
    ],
)
def test_what_the_page_could_not_show_is_an_error_that_names_the_place(mini, tmp_path, source, words):
    path = mini.write(tmp_path / "00_start_here.ipynb", mini.markdown(source))
    with pytest.raises(RenderError) as caught:
        chapter_page(path, CHAPTERS[0])
    assert words in str(caught.value) and str(caught.value).startswith("00_start_here: ")


def test_build_runs_renders_and_reports(mini, tmp_path):
    mini.write(
        tmp_path / "00_start_here.ipynb",
        mini.markdown("# Start\n\nGood $x$."),
        mini.code("print(6 * 7)"),
        mini.markdown(r"Bad $\unknown$."),
    )
    (report,) = build("standard", ["start_here"], tmp_path / "book", root=tmp_path)
    assert len(report.problems) == 1
    assert "cell 3" in report.problems[0] and r"\unknown" in report.problems[0]
    index = (tmp_path / "book" / "index.html").read_text(encoding="utf-8")
    assert "failed" in index or "not run" in index


def test_unknown_chapters_are_refused(tmp_path):
    with pytest.raises(ValueError, match="fedprox"):
        build("quick", ["fedprox"], tmp_path)


def test_printed_tables_scroll_and_sentences_wrap():
    from fedbook.book.chapter_page import _has_columns

    assert _has_columns("method        1        2\na          0.93     0.94\nb             1        2\n")
    assert _has_columns("x  1  2\n" * 3)
    assert not _has_columns("Mean accuracy over 5 seeds: a 0.93; b 0.94.\nA second sentence.   It has a gap.\n")

"""The pages: true, complete, readable, and nothing in them comes from the network."""

import base64
import json
import re
import shutil
import subprocess
from types import SimpleNamespace

import nbformat
import pytest
from bs4 import BeautifulSoup

from fedbook.book import build
from fedbook.book.chapter_page import RenderError, chapter_page, page_link
from fedbook.book.contents import CHAPTERS
from fedbook.book.page import ASSETS
from fedbook.book.render import render_book
from fedbook.book.run import ChapterReport, write_reports

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PROSE = r"""## The objective

See [the next](01_fedsc.ipynb#its-shape) and [a paper](https://example.org/paper), arXiv 1602.05629. The mean is
$\frac{1}{K}$, <a href="01_fedsc.ipynb">later</a>.

$$
\begin{aligned}
a &= b < c \\
  &= \mathbb{E}[X]
\end{aligned} \tag{1}
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
LISTING = (
    "> **Algorithm 2** (the paper's numbering)\n> 1–3. draw\n> 4. send $x$\n> 6. average\n\n1. one\n2. two\n3. three"
)


def display(**data):
    return nbformat.v4.new_output("display_data", data={name.replace("_", "/"): text for name, text in data.items()})


def stream(text):
    return nbformat.v4.new_output("stream", name="stdout", text=text)


@pytest.fixture(scope="module")
def book(mini, tmp_path_factory):
    """A book of two notebooks and an image file, rendered after a quick run of one and a failed one of the other."""
    root, executed, out = (tmp_path_factory.mktemp(name) for name in ("notebooks", "executed", "book"))
    (root / "drawing.png").write_bytes(base64.b64decode(PNG))
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "7"}, "text/plain": "VBox(children=...)"}
    said, after, alone, widget, lone, hidden = (mini.code(text) for text in ("a()", "b()", "c()", "d()", "e()", "f()"))
    said.outputs = [stream("a table  1  2\nThe "), stream("line rises.\n"), display(image_png=PNG, text_plain="<Fig>")]
    after.outputs = [display(image_png=PNG), stream("It falls <again>.\n")]
    alone.outputs = [display(image_png=PNG)]
    alone.metadata["alt"] = 'a line that "rests"'
    widget.outputs = [
        nbformat.v4.new_output(
            "display_data", data=view | {"image/png": PNG}, metadata={"image/png": {"alt": "r = 1"}}
        ),
        display(text_markdown="r = 1", text_plain="r = 1"),
    ]
    lone.outputs = [nbformat.v4.new_output("display_data", data=view)]
    hidden.metadata["tags"] = ["hide-input"]
    cells = [mini.markdown("generated bar", "nav"), mini.markdown("# 0 · Start"), mini.markdown(PROSE), said, after]
    cells += [alone, widget, lone, hidden, mini.markdown(LISTING)]
    mini.write(root / "00_start_here.ipynb", *cells)
    second = mini.printed(mini.code("print(1)"), "committed 0.93\n", 1)
    mini.write(root / "01_fedsc.ipynb", mini.markdown("# 1 · FedSC\n\n## Its shape"), second)
    quick = mini.printed(mini.code("print(1)"), "quick 0.11\n", 1)
    mini.write(executed / "01_fedsc.ipynb", mini.markdown("# 1 · FedSC\n\n## Its shape"), quick)
    failed = ChapterReport("00_start_here", "quick", ("00_start_here: cell 3 went wrong",), seconds=12.3, peak_mb=456.0)
    write_reports(executed, [failed, ChapterReport("01_fedsc", "quick", passed=9, marked=5, agreed=4)])
    entry = ("fedbook.wire", "Wire", "api/fedbook/wire.html#Wire", "What crosses.")
    index = render_book(executed, out, root=root, reference=[entry])
    soups = {path.name: BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser") for path in out.glob("*.html")}
    assert sorted(soups) == ["00_start_here.html", "01_fedsc.html", index.name, "speed.html"]
    return SimpleNamespace(out=out, root=root, executed=executed, pages=soups, chapter=soups["00_start_here.html"])


def test_nothing_is_loaded_from_the_network(book):
    for name, soup in book.pages.items():
        for one in soup.find_all(["link", "script", "img", "source", "iframe"]):
            target = one.get("src") or one.get("href") or ""
            assert not target or target.startswith("data:") or (book.out / target).is_file(), (name, target)
    for path in (book.out / "assets").iterdir():
        assert not re.search(r"https?://|@import|\bfetch\b|url\((?!data:)", path.read_text(encoding="utf-8")), path


def test_mathematics_is_drawn_and_no_tex_is_left(book):
    chapter = BeautifulSoup(str(book.chapter), "html.parser")
    assert len(chapter.find_all("math")) == 4 and chapter.select_one(".tex.scroll .katex-tag").get_text() == "(1)"
    for hidden in chapter.select("annotation"):
        hidden.decompose()
    assert "\\" not in chapter.main.get_text() and "$" not in chapter.main.get_text()


def test_a_fold_holds_its_text(book):
    fold = book.chapter.select_one("main details")
    assert fold.find("summary").get_text() == "Hint" and fold.find("strong").get_text() == "this"


def test_links_go_to_pages_and_papers(book):
    targets = [link["href"] for link in book.chapter.main.find_all("a")]
    assert {"01_fedsc.html#its-shape", "01_fedsc.html", "https://example.org/paper"} <= set(targets)
    assert "https://arxiv.org/abs/1602.05629" in targets
    assert "https://arxiv.org/abs/2205.12493" in [link["href"] for link in book.pages["index.html"].find_all("a")]
    assert not [target for target in targets if ".ipynb" in target]


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


def test_images_are_inside_and_say_what_they_show(book):
    images = book.chapter.find_all("img")
    assert all(image["src"].startswith("data:image/png;base64,") for image in images)
    expected = ["a drawing", "The line rises.", "It falls <again>.", 'a line that "rests"', "r = 1"]
    assert [image["alt"] for image in images] == expected


def test_what_a_cell_prints_is_one_box(book):
    boxes = [box.get_text() for box in book.chapter.select(".output")]
    assert boxes == ["a table  1  2The line rises.", "It falls <again>."]


def test_widgets_become_their_picture_and_sentence_or_a_note(book):
    assert "VBox" not in str(book.chapter) and "widget-view" not in str(book.chapter)
    assert len(book.chapter.find_all(string=re.compile("A live control"))) == 1
    assert [one.get_text() for one in book.chapter.select(".caption")] == ["r = 1"]


def test_cells_that_a_reader_does_not_need_are_left_out(book):
    assert "generated bar" not in book.chapter.get_text()
    [folded] = [one for one in book.chapter.find_all("details") if "f()" in one.get_text()]
    assert folded.summary.get_text() == "Code" and not folded.has_attr("open")


def test_an_algorithm_keeps_its_lines_and_their_numbers(book):
    listing = book.chapter.find("blockquote")
    assert [line.strip() for line in listing.get_text().splitlines() if line.strip()][1::1][:1] == ["1–3. draw"]
    assert len(listing.find_all("br")) == 3 and "6. average" in listing.get_text()
    assert len(book.chapter.select("section > ol > li")) == 3


def test_the_sidebar_links_to_headings_that_exist_once(book):
    targets = [link["href"] for link in book.chapter.select("aside a")]
    assert targets == ["#the-objective", "#details", "#the-objective-again"]
    assert all(len(book.chapter.select(target)) == 1 for target in targets)


def test_boxes_that_may_scroll_have_a_name(book):
    boxes = book.chapter.select(".scroll")
    assert len(boxes) == 9 and all(box["aria-label"] and box["role"] == "group" for box in boxes)
    assert all("scroll" in table.parent["class"] for table in book.chapter.find_all("table"))


def test_pages_show_committed_numbers_never_those_of_a_quick_run(book):
    text = book.pages["01_fedsc.html"].get_text()
    assert "committed 0.93" in text and "quick 0.11" not in text
    write_reports(book.executed, [ChapterReport("01_fedsc", "standard")])
    render_book(book.executed, book.out, root=book.root)
    text = (book.out / "01_fedsc.html").read_text(encoding="utf-8")
    assert "quick 0.11" in text and "committed 0.93" not in text and "profile standard" in text


def test_the_contents_say_what_ran_here(book):
    rows = [row.get_text(" ", strip=True) for row in book.pages["index.html"].select("tbody tr")]
    assert len(rows) == len(CHAPTERS)
    for one, row in zip(CHAPTERS, rows, strict=True):
        assert one.title in row and (one.claim in row) == (one.kind == "lesson")
    assert "failed (quick)" in rows[0] and "cell 3 went wrong" in rows[0] and rows[0].endswith("committed 12 456")
    others = dict(zip([one.name for one in CHAPTERS], rows, strict=True))
    assert "ran (quick); 4 of 5 marked" in others.pop("01_fedsc")
    assert all("not run" in row for row in list(others.values())[1:])
    links = [link["href"] for link in book.pages["index.html"].select("tbody a:not([href^=http])")]
    assert links == ["00_start_here.html", "01_fedsc.html"]


def test_the_search_index_leads_to_places_in_the_book(book):
    script = (book.out / "assets" / "search.js").read_text(encoding="utf-8")
    entries = json.loads(script.removeprefix("window.bookIndex = ").removesuffix(";\n"))
    places = {url: text for _, _, url, text in entries}
    (at,) = (url for url, text in places.items() if "The mean is" in text)
    name, _, anchor = at.partition("#")
    assert book.pages[name].find(id=anchor) and r"\frac{1}{K}" in places[at] and "clients: pass" in places[at]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (r"The $\unknown{x}$.", r"cell 1 (`The $\unknown{x}$.`): mathematics: Undefined control sequence: \unknown"),
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


@pytest.mark.parametrize("link", ["01_fedsc.ipynb", "#nowhere", "../README.md"])
def test_a_link_that_leads_to_nothing_is_an_error(mini, tmp_path, link):
    mini.write(tmp_path / "00_start_here.ipynb", mini.markdown(f"# Start\n\n[there]({link})"))
    with pytest.raises(RenderError, match="00_start_here: .* leads to nothing"):
        render_book(tmp_path, tmp_path / "book", root=tmp_path)


def test_build_runs_renders_and_documents(mini, tmp_path):
    mini.write(
        tmp_path / "00_start_here.ipynb",
        mini.markdown("# Start\n\nGood $x$."),
        mini.code("print(6 * 7)"),
        mini.markdown(r"Bad $\unknown$."),
    )
    (report,) = build("standard", ["start_here"], tmp_path / "book", root=tmp_path)
    assert len(report.problems) == 1
    assert "cell 3" in report.problems[0] and r"\unknown" in report.problems[0]
    index = BeautifulSoup((tmp_path / "book" / "index.html").read_text(encoding="utf-8"), "html.parser")
    reference = tmp_path / "book" / index.find("a", string="API reference")["href"]
    inside = [tmp_path / "book" / "api" / path for path in ("fedbook/federation/loop.html", "fedbook/privacy.html")]
    for path in (reference, *inside):
        soup = BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")
        for one in soup.find_all(["link", "script", "img"]):
            target = one.get("src") or one.get("href")
            assert target is None or target.startswith("data:") or (path.parent / target).is_file(), target


MEASURE = """<script>onload = () => setTimeout(() => {
  const code = document.querySelector('pre.code'), ruler = document.createElement('span');
  ruler.textContent = 'x'.repeat(88);
  code.prepend(ruler, '\\n');
  const room = code.clientWidth - 2 * parseFloat(getComputedStyle(code).paddingLeft);
  const fits = ruler.getBoundingClientRect().width <= room;
  ruler.remove();
  parent.postMessage({
    width: innerWidth, page: document.documentElement.scrollWidth, fits,
    stops: [...document.querySelectorAll('.scroll')].every(
      box => box.scrollWidth <= box.clientWidth + 1 || box.tabIndex === 0),
  }, '*');
}, 500);</script>"""
FRAMES = """<body><script>onmessage = event => document.body.append(`@${JSON.stringify(event.data)}@`)</script>
<iframe src="wide.html" width="1100" height="900"></iframe><iframe src="wide.html" width="400" height="900"></iframe>"""


@pytest.mark.slow
@pytest.mark.skipif(not BROWSER, reason="no Chromium here")
def test_88_columns_of_code_fit_and_the_page_never_scrolls_sideways(book):
    wide = str(book.chapter).replace("</body>", MEASURE + "</body>")
    wide = wide.replace("<footer>", f"<pre class='scroll'>{'long ' * 99}</pre><footer>")
    (book.out / "wide.html").write_text(wide, encoding="utf-8")
    (book.out / "frames.html").write_text(FRAMES, encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--window-size=1600,1000"]
    command += ["--virtual-time-budget=3000", "--dump-dom"]
    done = subprocess.run([*command, (book.out / "frames.html").as_uri()], capture_output=True, text=True, timeout=120)
    measured = {one["width"]: one for one in map(json.loads, re.findall(r"@(\{.*?\})@", done.stdout))}
    assert set(measured) == {400, 1100} and measured[1100]["fits"], measured
    assert all(one["page"] <= one["width"] and one["stops"] for one in measured.values()), measured


def test_unknown_chapters_are_refused(tmp_path):
    with pytest.raises(ValueError, match="fedprox"):
        build("quick", ["fedprox"], tmp_path)


def test_code_and_text_can_be_read_in_both_themes():
    """WCAG's contrast of every colour of text with what lies under it is at least 4.5."""

    def luminance(colour):
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    rules = (ASSETS / "book.css").read_text(encoding="utf-8")
    themes = [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block)) for block in re.findall(r":root \{(.*?)\}", rules, re.S)
    ]
    assert len(themes) == 2 and set(themes[0]) == set(themes[1])
    for theme in themes:
        for text in ("ink", "soft", "link", "keyword", "string", "number", "comment", "name", "builtin"):
            for under in ("paper", "panel"):
                light, dark = sorted((luminance(theme[text]), luminance(theme[under])), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, under)

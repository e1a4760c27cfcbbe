"""One executed chapter as a page that needs no network: nbconvert's cells, our mathematics and links."""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

from fedbook.book.contents import CHAPTERS, Chapter
from fedbook.book.mathematics import MathError, mathml
from fedbook.book.mathematics_font import font_face
from fedbook.book.page import page
from fedbook.book.product import RECORD, WIDGET_VIEW, numbered, place, tags

# Widget views and scripts are not shown: the picture in the same bundle stands in their place.
SHOWN = ["text/html", "text/markdown", "image/svg+xml", "image/png", "image/jpeg", "text/plain"]
NETWORK = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}
ONLY_LIVE = '<p class="note">A live control: run the notebook to use it.</p>'


class RenderError(RuntimeError):
    """A page that would not show what the chapter says; the message lists where."""


def chapter_page(product: str | Path, chapter: Chapter, folder: str | Path | None = None) -> str:
    """The HTML page of the executed notebook ``product``; image files are sought from ``folder``, by
    default the product's own.

    Raises: RenderError (mathematics that cannot be drawn, a reference to the network, an image without
    a file), naming chapter and cell.
    """
    import nbformat

    notebook = nbformat.read(product, as_version=4)
    problems: list[str] = []
    _prepare(notebook, chapter)
    html = _exporter(problems).from_notebook_node(notebook)[0]
    body, sidebar, letters = _finished(html, chapter, Path(folder or Path(product).parent), problems)
    if problems:
        raise RenderError("\n".join(f"{chapter.name}: {problem}" for problem in problems))
    title = f"{chapter.number} · {chapter.title}"
    return page(title, body, navigation=neighbours(chapter), sidebar=sidebar, style=letters)


def neighbours(chapter: Chapter) -> str:
    """Links to the previous chapter, the contents and the next chapter."""
    parts = []
    for step, arrow in ((-1, "← {}"), (1, "{} →")):
        place_ = CHAPTERS.index(chapter) + step
        other = CHAPTERS[place_] if 0 <= place_ < len(CHAPTERS) else None
        text = arrow.format(escape(other.title.split(":")[0])) if other else ""
        if other:
            text = f'<a href="{other.page}">{text}</a>'
        parts.append(f"<span>{text}</span>")
    return f'{parts[0]}<a href="index.html">Contents</a>{parts[1]}'


def _prepare(notebook: Any, chapter: Chapter) -> None:
    """Give images their text, drop navigation (the page has its own), name the values of this run."""
    for number, cell in numbered(notebook):
        cell.metadata["number"] = place(number, cell)
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if WIDGET_VIEW in data and not {"image/png", "image/svg+xml", "text/html"} & set(data):
                output.data = {"text/html": ONLY_LIVE}
            data.pop(RECORD, None)
            alt = cell.metadata.get("alt") or f"Figure of chapter {chapter.number}, cell {number}"
            for kind in ("image/png", "image/jpeg"):
                if kind in data:
                    output.metadata.setdefault(kind, {}).setdefault("alt", alt)
    notebook.cells = [cell for cell in notebook.cells if "nav" not in tags(cell)]
    for at in range(len(notebook.cells) - 1, -1, -1):
        if "injected-parameters" in tags(notebook.cells[at]):
            note = '<p class="note">This page was made with these values:</p>'
            notebook.cells.insert(at, type(notebook)(cell_type="markdown", metadata={}, source=note, id=f"note-{at}"))
    notebook.metadata.pop("widgets", None)


def _exporter(problems: list[str]) -> Any:
    """nbconvert's HTML exporter with our renderer of markdown."""
    from jinja2 import pass_context
    from nbconvert.exporters import HTMLExporter
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
    from traitlets.config import Config

    renderer = _renderer_class(IPythonRenderer)

    class Exporter(HTMLExporter):
        @pass_context
        def markdown2html(self, context: Any, source: str) -> str:
            cell = context.get("cell", {})
            where = cell.get("metadata", {}).get("number", "a generated cell")
            drawn = renderer(escape=False, attachments=cell.get("attachments", {}))
            drawn.report = lambda text: problems.append(f"{where}: {text}")
            return MarkdownWithMath(renderer=drawn).render(source)

    hide = {"enabled": True, "remove_input_tags": {"hide-input"}}
    settings = Config({"NbConvertBase": {"display_data_priority": SHOWN}, "TagRemovePreprocessor": hide})
    return Exporter(template_name="basic", config=settings)


def _renderer_class(base: type) -> type:
    """A renderer of markdown whose mathematics is MathML."""

    class Renderer(base):  # type: ignore[misc, valid-type]
        report: Callable[[str], None]

        def _mathematics(self, tex: str, display: bool) -> str:
            try:
                return mathml(tex, display)
            except MathError as error:
                self.report(f"mathematics: {error}")
                return f"<code>{escape(tex)}</code>"

        def block_math(self, body: str) -> str:
            return self._mathematics(body, True)

        def inline_math(self, body: str) -> str:
            return self._mathematics(body, False)

        def latex_environment(self, name: str, body: str) -> str:
            return self._mathematics(f"\\begin{{{name}}}{body}\\end{{{name}}}", True)

        def block_mermaidjs(self, code: str) -> str:
            self.report("mermaid diagrams need a script from the network")
            return f"<pre>{escape(code)}</pre>"

    return Renderer


def page_link(url: str) -> str:
    """A link between chapters, from notebook to page; any other link as it is."""
    inside = re.fullmatch(r"(?:\./)?([\w-]+)\.ipynb(#.*)?", url)
    return f"{inside[1]}.html{inside[2] or ''}" if inside else url


def _finished(html: str, chapter: Chapter, folder: Path, problems: list[str]) -> tuple[str, str, str]:
    """Body, sidebar and font: ids for headings, tables that scroll, links to pages, nothing from outside."""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(html, features="html.parser")
    for anchor in soup.select("a.anchor-link"):
        anchor.decompose()
    entries = _headings(soup)
    for table in soup.find_all("table"):
        attributes = {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": "Table"}
        table.wrap(soup.new_tag("div", attrs=attributes))
    for text in soup.select(".output_text pre"):
        if _has_columns(text.get_text()):  # a wrapped table cannot be read: it scrolls
            text["class"] = [*text.get("class", []), "columns"]
    for link in soup.find_all("a", href=True):
        link["href"] = page_link(link["href"])
    for image in soup.find_all("img"):
        _inside(image, folder)
        if not image.get("alt") or image["alt"].startswith("No description"):
            image["alt"] = f"Figure of chapter {chapter.number}"
    problems += outside_references(soup)
    formulas = "".join(sorted(set("".join(one.get_text() for one in soup.find_all("math")))))
    sidebar = f"<strong>{escape(chapter.title)}</strong><ol>{''.join(entries)}</ol>"
    return str(soup), sidebar, font_face(formulas) if formulas else ""


def _has_columns(text: str) -> bool:
    """Whether printed text is a table: three lines or more whose words stand far apart."""
    return sum(len(re.findall(r"(?<=\S) {2,}(?=\S)", line)) >= 2 for line in text.splitlines()) >= 3


def _headings(soup: Any) -> list[str]:
    """Give each heading an id of its own; the list items that link to them."""
    entries, used = [], set()
    for heading in soup.select("h2, h3"):
        text = heading.get_text(" ", strip=True)
        name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "section"
        while name in used:
            name += "-again"
        used.add(name)
        heading["id"] = name
        deeper = "" if heading.name == "h2" else ' class="deeper"'
        entries.append(f'<li{deeper}><a href="#{name}">{escape(text)}</a></li>')
    return entries


def _inside(image: Any, folder: Path) -> None:
    """Put an image that is a file below ``folder`` into the page."""
    source = image.get("src", "")
    path = (folder / source).resolve() if source and not re.match(r"[a-z]+:|/|#", source) else None
    if path is not None and path.is_file() and path.is_relative_to(folder.resolve()):
        kind = mimetypes.guess_type(path.name)[0] or "image/png"
        image["src"] = f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def outside_references(soup: Any) -> list[str]:
    """What the page would load from elsewhere: scripts, styles, images and frames that are not inside it."""
    found = []
    for name, attribute in NETWORK.items():
        for one in soup.find_all(name):
            target = one.get(attribute, "")
            if target and not target.startswith(("data:", "#")):
                found.append(f"<{name}> refers to {target[:80]}, which is not inside the page")
    for style in [one.get_text() for one in soup.find_all("style")] + [one["style"] for one in soup.select("[style]")]:
        found += [
            f"a style refers to {url[:80]}"
            for url in re.findall(r"(?:url\(|@import)\s*['\"]?((?!data:)[^'\")\s]+)", style)
        ]
    return found

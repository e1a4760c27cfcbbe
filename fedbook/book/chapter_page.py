"""One notebook as a page that needs no network: its cells, our mathematics and links, and what to search in it."""

from __future__ import annotations

import base64
import mimetypes
import re
from dataclasses import dataclass, field
from html import escape, unescape
from pathlib import Path
from typing import Any

from fedbook.book import frames
from fedbook.book.cells import cells_html
from fedbook.book.contents import CHAPTERS, Chapter
from fedbook.book.mathematics import mathematics
from fedbook.book.page import page

NETWORK = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}
ARXIV = re.compile(r"(?i)\barxiv[: ]\s*(\d{4}\.\d{4,5})")


class RenderError(RuntimeError):
    """A page that would not show what the notebook says; the message lists where."""


@dataclass
class Page:
    """A page, what other pages may link to, where its own links go, and its parts: heading, anchor, text."""

    html: str
    anchors: set[str]
    links: list[str]
    sections: list[tuple[str, str, str]] = field(default_factory=list)


def chapter_page(notebook_path: str | Path, chapter: Chapter, folder: str | Path | None = None, note: str = "") -> Page:
    """The page of the notebook at ``notebook_path``, with its outputs as they are stored, or of a text (``.md``).

    Image files are sought from ``folder``, by default the notebook's own; ``note`` says whose outputs these are.
    Raises: RenderError (mathematics that cannot be drawn, a reference to the network, an image without
    a file), naming chapter and cell.
    """
    import nbformat
    from bs4 import BeautifulSoup

    path = Path(notebook_path)
    problems: list[str] = []
    if path.suffix == ".md":
        text = nbformat.v4.new_markdown_cell(path.read_text(encoding="utf-8"))
        notebook, playing = nbformat.v4.new_notebook(cells=[text]), False
    else:
        notebook = nbformat.read(path, as_version=4)
        playing = frames.place(notebook, frames.load(path))
    soup = BeautifulSoup(cells_html(notebook, problems), features="html.parser")
    entries = headings(soup)
    for table in soup.find_all("table"):
        table.wrap(soup.new_tag("div", attrs={"class": "scroll", "role": "group", "aria-label": "Table"}))
    for formula in soup.select("div.tex"):
        formula.attrs |= {"role": "group", "aria-label": "Formula"}
    for link in soup.find_all("a", href=True):
        link["href"] = page_link(link["href"])
    for text in soup.find_all(string=ARXIV):
        if not text.find_parent(["a", "pre", "code", "script", "style"]):
            text.replace_with(BeautifulSoup(arxiv_links(escape(text)), features="html.parser"))
    for image in soup.find_all("img"):
        _inside(image, Path(folder or path.parent))
    problems += outside_references(soup)
    if problems:
        raise RenderError("\n".join(f"{chapter.name}: {problem}" for problem in problems))
    sidebar = f"<details open><summary>{escape(title(chapter))}</summary><ol>{''.join(entries)}</ol></details>"
    body, sidebar = with_formulas(f"{note}{soup}"), with_formulas(sidebar)
    return Page(
        html=page(title(chapter), body, navigation=neighbours(chapter), sidebar=sidebar, frames=playing),
        anchors={one["id"] for one in soup.find_all(id=True)},
        links=[link["href"] for link in soup.find_all("a", href=True)],
        sections=_sections(soup),
    )


def with_formulas(html: str) -> str:
    """The page with its formulas drawn. A bracket before and a full stop after one go into its boxes: no line can
    end between them."""

    def drawn(match: re.Match[str]) -> str:
        before, tag, element, tex, after = match.groups()
        formula = mathematics(unescape(tex), element == "div")
        if element == "div":
            return f"{before}{tag}{formula}</div>{after}"
        before, after = (f'<span class="mark">{mark}</span>' * bool(mark) for mark in (before, after))
        formula = formula.replace('<span class="katex-base">', f'<span class="katex-base">{before}', 1)
        end = len(formula) - len("</span>" * 3)  # of the last box, of all boxes, of the formula
        return f"{tag}{formula[:end]}{after}{formula[end:]}</span>"

    return re.sub(r'(?s)([([]?)(<(div|span) [^>]*class="tex[^>]*>)(.*?)</\3>([.,;:!?)]*)', drawn, html)


def title(chapter: Chapter) -> str:
    """Number, title and kind of a notebook, e.g. ``1 · FedSC: spectral contrast across clients, proofs``."""
    if chapter.kind == "page":
        return chapter.title
    return f"{chapter.number} · {chapter.title}" + ("" if chapter.kind == "lesson" else f", {chapter.kind}")


def neighbours(chapter: Chapter) -> str:
    """Links to the lesson before, the notebooks of the chapter (all but this one) and the lesson after."""
    if chapter.kind == "page":
        return ""
    lessons = [one for one in CHAPTERS if one.kind == "lesson"]
    at = [one.slug for one in lessons].index(chapter.slug)
    links = [(one, f"← {one.title.split(':')[0]}") for one in lessons[max(at - 1, 0) : at]]
    links += [(one, one.kind) for one in CHAPTERS if one.slug == chapter.slug and one != chapter]
    links += [(one, f"{one.title.split(':')[0]} →") for one in lessons[at + 1 : at + 2]]
    return " ".join(f'<a href="{one.page}">{escape(text)}</a>' for one, text in links)


def page_link(url: str) -> str:
    """A link between chapters, from notebook to page; any other link as it is."""
    inside = re.fullmatch(r"(?:\./)?([\w-]+)\.ipynb(#.*)?", url)
    return f"{inside[1]}.html{inside[2] or ''}" if inside else url


def arxiv_links(html: str) -> str:
    """The text with its arXiv numbers as links."""
    return ARXIV.sub(r'<a href="https://arxiv.org/abs/\1">\g<0></a>', html)


def headings(soup: Any) -> list[str]:
    """Give each heading an id of its own; the list items that link to them."""
    entries, used = [], set()
    for heading in soup.select("h1, h2, h3"):
        name = re.sub(r"[^a-z0-9]+", "-", heading.get_text().lower()).strip("-") or "section"
        while name in used:
            name += "-again"
        used.add(name)
        heading["id"] = name
        if heading.name != "h1":
            deeper = "" if heading.name == "h2" else ' class="deeper"'
            entries.append(f'<li{deeper}><a href="#{name}">{heading.decode_contents()}</a></li>')
    return entries


def _sections(soup: Any) -> list[tuple[str, str, str]]:
    """Heading, anchor and text (with formulas as TeX) of each text with the code that follows it.

    Where a text begins with bold words, they are part of its heading.
    """
    sections, above = [], ""
    for section in soup.find_all("section", id=True):
        first = section.find(True)
        own = section.find(["h1", "h2", "h3"])
        above = own.get_text() if own else above
        lead = first.find("strong") if first and first.name == "p" else None
        heading = f"{above} · {lead.get_text()}" if lead and lead == first.contents[0] else above
        sections.append((heading, section["id"], " ".join(section.get_text().split())))
    return sections


def _inside(image: Any, folder: Path) -> None:
    """Put an image that is a file below ``folder`` into the page."""
    source = image.get("src", "")
    path = (folder / source).resolve() if source and not re.match(r"[a-z]+:|/|#", source) else None
    if path is not None and path.is_file() and path.is_relative_to(folder.resolve()):
        kind = mimetypes.guess_type(path.name)[0] or "image/png"
        image["src"] = f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def outside_references(soup: Any) -> list[str]:
    """What the page would load from elsewhere: scripts, styles, images and frames that are not inside it."""
    problems = []
    for name, attribute in NETWORK.items():
        for one in soup.find_all(name):
            target = one.get(attribute, "")
            if target and not target.startswith(("data:", "#")):
                problems.append(f"<{name}> refers to {target[:80]}, which is not inside the page")
    for style in [one.get_text() for one in soup.find_all("style")] + [one["style"] for one in soup.select("[style]")]:
        urls = re.findall(r"(?:url\(|@import)\s*['\"]?((?!data:)[^'\")\s]+)", style)
        problems += [f"a style refers to {url[:80]}" for url in urls]
    return problems

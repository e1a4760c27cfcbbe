"""The book as HTML: a page a notebook, a contents page and a search index, readable with the network off."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from urllib.parse import unquote

from fedbook.book.chapter_page import Page, RenderError, arxiv_links, chapter_page, title
from fedbook.book.contents import CHAPTERS, MACHINES, Chapter, notebooks_folder
from fedbook.book.page import page, write_assets
from fedbook.book.run import ChapterReport, read_reports
from fedbook.book.speed import NAME, TITLE, write_speed

COMMITTED = '<p class="note">The outputs on this page are those committed with the book, at full sizes.</p>'
OWN_RUN = '<p class="note">The outputs on this page are those of a run on this machine, profile {}.</p>'
INTRODUCTION = """<h1>fedbook: federated learning you can run</h1>
<p>Each chapter rebuilds one method from its derivation to its experiments, on real data, in a notebook that is its own
test. {reference}</p>
<p>The pages show the notebooks with their committed outputs, at full sizes, unless the table says otherwise. Runs at
quick sizes on this machine are the proof that everything works here; their numbers stand on no page.</p>"""
COLUMNS = ("Checked here", "Outputs", "Seconds", "Peak MB")
Entry = tuple[str, str, str, str]  # page, heading, address, text


def render_book(
    executed_dir: str | Path,
    out_dir: str | Path = "build/book",
    *,
    root: str | Path | None = None,
    reference: Iterable[Entry] = (),
) -> Path:
    """Render every notebook and the contents page; the latter's path.

    A page shows the committed notebook of the folder ``root``, or what lies in ``executed_dir`` if that ran well at
    another profile than quick. ``reference`` are search entries of the API reference, if it lies in ``out_dir``.
    Raises: RenderError (after all pages were tried, with every problem), FileNotFoundError (no folder of notebooks).
    """
    executed, out, folder = Path(executed_dir), Path(out_dir), notebooks_folder(root)
    write_assets(out)
    reports = read_reports(executed)
    problems: list[str] = []
    pages: dict[str, Page] = {}
    shown = [*CHAPTERS, *(one.plan() for one in CHAPTERS if one.kind == "lesson" and (folder / one.file).is_file())]
    shown.append(MACHINES)
    for chapter in shown:
        (out / chapter.page).unlink(missing_ok=True)
        source, note = folder / chapter.file, COMMITTED
        if chapter.kind in ("plan", "page"):
            note = ""
        elif shows_own_run(reports.get(chapter.name)) and (executed / chapter.file).is_file():
            source, note = executed / chapter.file, OWN_RUN.format(escape(reports[chapter.name].profile))
        if not source.is_file():
            continue
        try:
            pages[chapter.page] = chapter_page(source, chapter, folder, note)
        except RenderError as error:
            problems.append(str(error))
    entries = [
        (title(chapter), heading, f"{chapter.page}#{anchor}", text)
        for chapter in shown
        if chapter.page in pages
        for heading, anchor, text in pages[chapter.page].sections
    ]
    for name, one in pages.items():
        (out / name).write_text(one.html, encoding="utf-8")
        problems += [f"{Path(name).stem}: {link} leads to nothing in the book" for link in dead_links(name, pages)]
    reference = list(reference)
    index = json.dumps(entries + reference, ensure_ascii=False, separators=(",", ":"))
    (out / "assets" / "search.js").write_text(f"window.bookIndex = {index};\n", encoding="utf-8")
    speed = write_speed(out)
    contents = contents_page(reports, set(pages), bool(reference), speed)
    (out / "index.html").write_text(contents, encoding="utf-8")
    if problems:
        raise RenderError("\n".join(problems))
    return out / "index.html"


def shows_own_run(report: ChapterReport | None) -> bool:
    """Whether the page shows what ran here: never numbers of quick sizes, which no sentence is about."""
    return report is not None and report.ok and report.profile != "quick"


def dead_links(name: str, pages: Mapping[str, Page]) -> list[str]:
    """The links of the page ``name`` that lead to no page of the book, or to no place in it."""
    dead = []
    for link in pages[name].links:
        target, _, anchor = link.partition("#")
        target = target or name
        if target.startswith(("https:", "http:", "mailto:")) or target == "index.html":
            continue
        if target not in pages or (anchor and unquote(anchor) not in pages[target].anchors):
            dead.append(link)
    return dead


def contents_page(reports: Mapping[str, ChapterReport], written: set[str], reference: bool, speed: bool = False) -> str:
    """The table of contents: title and claim of each notebook, and what ran here, how long, whether it agreed."""
    link = 'The package is documented in the <a href="api/fedbook.html">API reference</a>.' if reference else ""
    link += f' <a href="{NAME}">{TITLE}</a>, measured beside other libraries.' if speed else ""
    if MACHINES.page in written:
        link += f' <a href="{MACHINES.page}">{MACHINES.title}</a>: {escape(MACHINES.claim)}'
    head = "".join(f'<th scope="col">{text}</th>' for text in ("Notebook", *COLUMNS))
    rows = "".join(
        _row(chapter, reports.get(chapter.name), chapter.page in written, chapter.plan().page in written)
        for chapter in CHAPTERS
    )
    table = f'<table class="contents"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return page("fedbook", INTRODUCTION.format(reference=link) + table)


def _row(chapter: Chapter, report: ChapterReport | None, written: bool, plan: bool) -> str:
    name = escape(title(chapter))
    name = f'<a href="{chapter.page}">{name}</a>' if written else name
    if chapter.kind == "lesson":
        name += f"<br><small>{escape(chapter.claim)}</small>"
        name += f"<br><small><i>{arxiv_links(escape(chapter.citation))}</i></small>"
        if plan:
            name += f'<br><small><a href="{chapter.plan().page}">For teachers: a plan for 90 minutes</a></small>'
    outputs = "-" if not written else f"this run, {report.profile}" if shows_own_run(report) else "committed"
    costs = (report.seconds, report.peak_mb) if report is not None else (None, None)
    values = (_checked(report), outputs, *("-" if cost is None else f"{cost:.0f}" for cost in costs))
    cells = "".join(f'<td data-label="{label}">{value}</td>' for label, value in zip(COLUMNS, values, strict=True))
    return f"<tr><td>{name}</td>{cells}</tr>"


def _checked(report: ChapterReport | None) -> str:
    """What ran here, and whether the cells marked for comparison gave what is committed."""
    if report is None:
        return "not run"
    counted = f"; {report.agreed} of {report.marked} marked cells agree" if report.marked else ""
    if report.ok:
        return f"ran ({escape(report.profile)}){counted}"
    problems = "".join(f"<li>{escape(problem)}</li>" for problem in report.problems)
    return f"<details><summary>failed ({escape(report.profile)}){counted}</summary><ul>{problems}</ul></details>"

"""The book as HTML: one page a chapter and a contents page, readable with the network off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path

from fedbook.book.chapter_page import RenderError, chapter_page
from fedbook.book.contents import CHAPTERS, Chapter
from fedbook.book.page import page
from fedbook.book.run import ChapterReport, read_reports

INTRODUCTION = """<h1>fedbook: federated learning you can run</h1>
<p>Each chapter rebuilds one method from its derivation to its experiments, on real data, in a notebook whose
every number was computed where it stands. These pages were made from the executed notebooks; the sliders
live in the notebooks themselves.</p>"""


def render_book(
    executed_dir: str | Path,
    out_dir: str | Path = "build/book",
    chapters: Iterable[Chapter] = CHAPTERS,
    *,
    root: str | Path | None = None,
) -> Path:
    """Render the executed notebooks in ``executed_dir`` and the contents page; the latter's path.

    A chapter whose run failed gets no page, and the contents say so. ``root`` is the folder of the
    notebooks, where the images that they name are.
    Raises: RenderError (after all pages were tried, with every problem), FileNotFoundError (no folder).
    """
    executed, out = Path(executed_dir), Path(out_dir)
    if not executed.is_dir():
        raise FileNotFoundError(f"executed_dir: got {executed}; allowed is a folder with executed notebooks")
    out.mkdir(parents=True, exist_ok=True)
    chapters = tuple(chapters)
    reports = read_reports(executed)
    problems, written = [], set()
    for chapter in chapters:
        product, report = executed / chapter.file, reports.get(chapter.name)
        target = out / chapter.page
        target.unlink(missing_ok=True)
        if not product.is_file() or (report is not None and not report.ok):
            continue
        try:
            target.write_text(chapter_page(product, chapter, root), encoding="utf-8")
            written.add(chapter.name)
        except RenderError as error:
            problems.append(str(error))
    index = out / "index.html"
    index.write_text(contents_page(chapters, reports, written), encoding="utf-8")
    if problems:
        raise RenderError("\n".join(problems))
    return index


def contents_page(chapters: Iterable[Chapter], reports: Mapping[str, ChapterReport], written: set[str]) -> str:
    """The table of contents: title and claim of each chapter, its state, and what its run cost."""
    rows = []
    for chapter in chapters:
        report = reports.get(chapter.name)
        title = escape(chapter.title)
        if chapter.name in written:
            title, state = f'<a href="{chapter.page}">{title}</a>', '<span class="status-ready">ready</span>'
        else:
            state = "failed" if report is not None and not report.ok else "not run"
        costs = (report.seconds, report.peak_mb, report.size_kb) if report is not None else (None, None, None)
        cells = "".join(f'<td class="number">{"" if cost is None else f"{cost:.0f}"}</td>' for cost in costs)
        rows.append(
            f'<tr><td class="number">{chapter.number}</td><td>{title}<br><small>{escape(chapter.claim)}</small>'
            f"<br><small><i>{escape(chapter.citation)}</i></small></td><td>{state}</td>{cells}</tr>"
        )
    head = "".join(f'<th scope="col" class="number">{text}</th>' for text in ("seconds", "peak MB", "kB"))
    table = (
        '<div class="scroll"><table><thead><tr><th scope="col" class="number">No.</th><th scope="col">Chapter</th>'
        f'<th scope="col">State</th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )
    note = "<p class='note'>Seconds, peak memory and size are those of the run that made this page.</p>"
    return page("fedbook", f"{INTRODUCTION}{table}{note}")

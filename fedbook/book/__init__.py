"""The book: its contents, the run of its chapters, their checks, and the HTML pages.

``build`` runs chapters and renders them; the parts are ``contents``, ``run`` (papermill, nbval), ``check`` (lint of
notebooks), ``commit`` (rewrites the committed notebooks), ``render`` and ``api`` (the API reference).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from fedbook.book.contents import CHAPTERS, Chapter, notebooks_folder, select
from fedbook.book.run import ChapterReport, read_reports, run_all, run_chapter, table, write_reports

__all__ = [
    "CHAPTERS",
    "Chapter",
    "ChapterReport",
    "build",
    "notebooks_folder",
    "run_all",
    "run_chapter",
    "select",
    "table",
]


def build(
    profile: str = "quick",
    chapters: Iterable[int | str] | None = None,
    out: str | Path = "build/book",
    jobs: int = 2,
    *,
    root: str | Path | None = None,
) -> list[ChapterReport]:
    """Run the chapters (all that are ready, or those named) and render the book into ``out``.

    The contents page is ``out/index.html``. Pages show the committed notebooks; those of chapters that ran at another
    profile than quick show that run (``out/executed``). The build is good if every report is ``ok``;
    ``table(reports)`` is the text to print.
    Raises: TypeError, ValueError (unknown chapter, unknown profile).
    """
    from fedbook.book.api import write_reference
    from fedbook.book.chapter_page import RenderError
    from fedbook.book.render import render_book

    wanted = list(CHAPTERS) if chapters is None else select(*chapters)
    executed = Path(out) / "executed"
    reports = {report.name: report for report in run_all(wanted, profile, executed, jobs=jobs, root=root)}
    try:
        render_book(executed, out, root=root, reference=write_reference(Path(out)))
    except RenderError as error:
        for line in str(error).splitlines():
            name = line.split(":")[0]
            report = reports.get(name, ChapterReport(name, profile))
            reports[name] = replace(report, problems=(*report.problems, line))
        write_reports(executed, (read_reports(executed) | reports).values())
    return list(reports.values())

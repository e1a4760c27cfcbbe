"""The look of a page: one template, and the style and script that the pages of the book share."""

from __future__ import annotations

import shutil
from html import escape
from pathlib import Path
from string import Template

from fedbook.book.mathematics import style_sheet

ASSETS = Path(__file__).with_name("assets")
FRAMES = ("frames.css", "frames.js")  # of the widgets that play without a kernel, on pages that have one


def page(title: str, body: str, *, navigation: str = "", sidebar: str = "") -> str:
    """A whole HTML page. ``title`` is plain text, the others are HTML."""
    aside = f'<aside aria-label="On this page">{sidebar}</aside>' if sidebar else ""
    frames = '<link rel="stylesheet" href="assets/frames.css"><script defer src="assets/frames.js"></script>'
    return Template((ASSETS / "page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        head=frames if 'class="frames"' in body else "",
        navigation=navigation,
        sidebar=aside,
        wide="" if sidebar else " wide",
        body=body,
    )


def write_assets(out: Path) -> None:
    """Put what the pages share into ``out/assets``."""
    folder = out / "assets"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("book.css", "book.js", *FRAMES):
        if (ASSETS / name).is_file():
            shutil.copyfile(ASSETS / name, folder / name)
    (folder / "katex.css").write_text(style_sheet(), encoding="utf-8")

"""The look of a page: one template, and the style and script that the pages of the book share."""

from __future__ import annotations

import shutil
from html import escape
from pathlib import Path
from string import Template

from fedbook.book.mathematics import style_sheet

ASSETS = Path(__file__).with_name("assets")


def page(title: str, body: str, *, navigation: str = "", sidebar: str = "", frames: bool = False) -> str:
    """A whole HTML page. ``title`` is plain text, the others are HTML; with ``frames`` widgets play in it."""
    aside = f'<aside aria-label="On this page">{sidebar}</aside>' if sidebar else ""
    player = '<link rel="stylesheet" href="assets/frames.css"><script defer src="assets/frames.js"></script>'
    return Template((ASSETS / "page.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        head=player if frames else "",
        navigation=navigation,
        sidebar=aside,
        wide="" if sidebar else " wide",
        body=body,
    )


def write_assets(out: Path) -> None:
    """Put what the pages share into ``out/assets``."""
    folder = out / "assets"
    folder.mkdir(parents=True, exist_ok=True)
    for path in [*ASSETS.glob("*.css"), *ASSETS.glob("*.js")]:
        shutil.copyfile(path, folder / path.name)
    (folder / "katex.css").write_text(style_sheet(), encoding="utf-8")

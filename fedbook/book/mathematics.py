"""TeX to HTML by KaTeX, while the book is built: a page needs no script and no network to show a formula."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

KATEX = Path(__file__).with_name("assets") / "katex"
# As JSON, because the engine cannot hand over a string that was put together from parts.
RENDER = """function render(tex, displayMode) {
  return JSON.stringify(katex.renderToString(tex, {displayMode, strict: "error"}));
}"""


class MathError(ValueError):
    """Mathematics that the page could not show as written."""


@cache
def mathematics(tex: str, display: bool = False) -> str:
    """``tex`` (without dollar signs) as HTML, with the MathML and the TeX in it for screen readers.

    Raises: MathError (what KaTeX refuses, and the TeX).
    """
    import quickjs

    if not tex.strip():
        raise MathError("an empty formula")
    try:
        return json.loads(_renderer()(tex, display))
    except quickjs.JSException as error:
        reason = str(error).splitlines()[0].removeprefix("ParseError: KaTeX parse error: ")
        reason = reason.replace("\u0332", "")  # it underlines what is wrong
        raise MathError(f"{reason} in: {' '.join(tex.split())}") from None


@cache
def _renderer() -> Callable[[str, bool], str]:
    import quickjs

    engine = quickjs.Context()
    engine.eval((KATEX / "katex.min.js").read_text(encoding="utf-8"))
    engine.eval(RENDER)
    return engine.get("render")


def style_sheet() -> str:
    """KaTeX's rules of style with its fonts inside: browsers do not load fonts from files beside a page."""

    def inside(match: re.Match[str]) -> str:
        data = base64.b64encode((KATEX / match[1]).read_bytes()).decode("ascii")
        return f'src:url(data:font/woff2;base64,{data}) format("woff2")'

    rules = (KATEX / "katex.min.css").read_text(encoding="utf-8")
    return re.sub(r'src:url\((fonts/[\w-]+\.woff2)\) format\("woff2"\)[^;}]*', inside, rules)

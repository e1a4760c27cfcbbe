"""The cells of a notebook as HTML: prose, code, and what the code put out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

from fedbook.book.mathematics import MathError, mathematics
from fedbook.book.product import COLOUR, WIDGET_VIEW, joined, numbered, place, tags

IMAGES = ("image/svg+xml", "image/png", "image/jpeg")
ONLY_LIVE = '<p class="note">A live control: run the notebook to use it.</p>'
THIS_RUN = '<p class="note">This page was made with these values:</p>'
NUMBERED = re.compile(r"^(?P<mark>[> ]*)(?P<number>\d+)(?P<rest>(?:[–-]\d+|, \d+)*\.\s.*)$")
SHORT = 24  # characters of TeX in a formula that stays on one line
WIDE_GAP = re.compile(r"\S {2,}\S")


def cells_html(notebook: Any, problems: list[str]) -> str:
    """The cells one after another, without navigation; what could not be shown is added to ``problems``.

    Formulas stay as TeX in elements of class ``tex``. A ``section`` holds a text and the code that follows it.
    """
    parts, heading = ["<section>"], "the beginning"
    for number, cell in numbered(notebook):
        if "nav" in tags(cell):
            continue
        if cell.cell_type == "markdown":
            parts += [f'</section><section id="cell-{number}">', markdown_html(cell.source, wrong := [])]
            problems += [f"{place(number, cell)}: {problem}" for problem in wrong]
            heading = ([heading] + re.findall(r"(?m)^#{1,3} +(.+)$", cell.source))[-1]
        elif cell.cell_type == "code":
            if "injected-parameters" in tags(cell):
                parts.append(THIS_RUN)
            code = code_html(cell.source, f"Code of cell {number}")
            folded = "hide-input" in tags(cell)
            parts.append(f"<details><summary>Code</summary>{code}</details>" if folded else code)
            parts += _outputs(cell, number, f"Figure in: {heading}")
    return "\n".join(parts) + "</section>"


def markdown_html(source: str, problems: list[str]) -> str:
    """Markdown as Jupyter reads it; what cannot be shown is added to ``problems``."""
    from nbconvert.filters.markdown_mistune import MarkdownWithMath

    renderer = _renderer_class()(escape=False, exclude_anchor_links=True)
    renderer.problems = problems
    return MarkdownWithMath(renderer=renderer).render(_kept_lines(source))


@cache
def _renderer_class() -> type:
    from nbconvert.filters.markdown_mistune import IPythonRenderer

    class Renderer(IPythonRenderer):  # type: ignore[misc]
        problems: list[str]

        def formula(self, tex: str, display: bool) -> str:
            try:
                mathematics(tex, display)
            except MathError as error:
                self.problems.append(f"mathematics: {error}")
            element, kind = ("div", "tex scroll") if display else ("span", "tex short" if len(tex) <= SHORT else "tex")
            return f'<{element} class="{kind}">{escape(tex, quote=False)}</{element}>'

        def block_math(self, body: str) -> str:
            return self.formula(body, True)

        def inline_math(self, body: str) -> str:
            return self.formula(body, False)

        def latex_environment(self, name: str, body: str) -> str:
            return self.formula(f"\\begin{{{name}}}{body}\\end{{{name}}}", True)

        def block_code(self, code: str, info: str | None = None) -> str:
            if info and info.startswith("mermaid"):
                self.problems.append("mermaid diagrams need a script from the network")
            return code_html(code, "Code") if info == "python" else _scroll(escape(code), "Text")

    return Renderer


def _kept_lines(source: str) -> str:
    """Listings whose numbers are not 1, 2, 3, ... keep their numbers and their lines, which Markdown would not."""
    lines = source.split("\n")
    matches = [NUMBERED.match(line) for line in lines]
    first = 0
    while first < len(lines):
        last = first
        while last < len(lines) and matches[last]:
            last += 1
        run = [match for match in matches[first:last] if match]
        plain = all(match["number"] == str(at) and match["rest"][0] == "." for at, match in enumerate(run, 1))
        if len(run) >= 3 and not plain:
            if first and lines[first - 1].strip("> "):
                lines[first - 1] += "\\"
            for at, match in enumerate(run, first):
                rest = match["rest"].replace(".", "\\.", 1)
                lines[at] = f"{match['mark']}{match['number']}{rest}" + "\\" * (at < last - 1)
        first = last + 1
    return "\n".join(lines)


def code_html(source: str, label: str) -> str:
    """Python source in colours."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return _scroll(highlight(source, PythonLexer(), HtmlFormatter(nowrap=True)).rstrip(), label, "code")


def _scroll(html: str, label: str, kind: str = "") -> str:
    """A box of lines that scrolls inside itself; the page's script lets the keyboard reach it where it does."""
    return f'<pre class="scroll {kind}" role="group" aria-label="{escape(label)}">{html}</pre>'


def _outputs(cell: Any, number: int, heading: str) -> Iterator[str]:
    """What the cell put out: consecutive text as one box, figures with what is said about them."""
    outputs = joined(cell.get("outputs", []))
    caption = None
    for at, output in enumerate(outputs):
        data, kind = output.get("data", {}), output["output_type"]
        image = next((one for one in IMAGES if one in data), None)
        if kind == "stream":
            yield _printed(COLOUR.sub("", output["text"]), f"Output of cell {number}")
        elif kind == "error":
            yield _scroll(escape(COLOUR.sub("", "\n".join(output["traceback"]))), f"Error of cell {number}")
        elif "text/html" in data:
            yield data["text/html"]
        elif image:
            caption = output.get("metadata", {}).get(image, {}).get("alt")
            alt = caption or cell.metadata.get("alt") or _said(outputs, at) or heading
            yield _figure(data[image], image, alt, output.get("metadata", {}).get(image, {}))
        elif "text/markdown" in data:
            if caption and data.get("text/plain") == caption:
                yield f'<p class="caption">{escape(caption)}</p>'
            else:
                yield markdown_html(data["text/markdown"], [])
        elif WIDGET_VIEW in data:
            yield ONLY_LIVE
        elif "text/plain" in data:
            yield _printed(data["text/plain"], f"Output of cell {number}")


def _said(outputs: Sequence[Any], figure: int) -> str:
    """The sentence printed beside a figure: the last full one before it, else the first after it."""
    for near, pick in ((outputs[figure - 1 : figure], -1), (outputs[figure + 1 : figure + 2], 0)):
        lines = [line.strip() for one in near for line in one.get("text", "").splitlines() if line.strip()]
        sentences = [line for line in lines if line.endswith(".") and "  " not in line] or lines
        if sentences:
            return sentences[pick]
    return ""


def _figure(data: str, kind: str, alt: str, size: Mapping[str, Any]) -> str:
    if kind == "image/svg+xml":
        return f'<figure role="img" aria-label="{escape(alt)}">{data}</figure>'
    width = f' width="{size["width"]}"' if "width" in size else ""
    source = f"data:{kind};base64,{''.join(data.split())}"
    return f'<figure><img src="{source}" alt="{escape(alt)}"{width}></figure>'


def _printed(text: str, label: str) -> str:
    """Printed text in one box: sentences wrap; lines in columns, which could not be read wrapped, scroll."""
    blocks: list[list[str]] = [[]]
    for line in text.rstrip("\n").split("\n"):
        if blocks[-1] and bool(WIDE_GAP.search(blocks[-1][-1])) != bool(WIDE_GAP.search(line)):
            blocks.append([])
        blocks[-1].append(line)
    html = ""
    for block in blocks:
        lines = escape("\n".join(block), quote=False)
        columns = len(block) >= 3 and WIDE_GAP.search(block[0])
        html += _scroll(lines, label) if columns else f"<pre>{lines}</pre>"
    return f'<div class="output">{html}</div>'

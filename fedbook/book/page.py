"""The look of a page: one template and one style sheet, both inside the page, nothing from elsewhere."""

from __future__ import annotations

from html import escape

# Brackets and wide accents grow by the browser if a mathematics font is installed. Where a probe shows
# that none is, this scales them, and keeps limits clear of their operator.
GROW = """
const box = element => element.getBoundingClientRect();
const probe = document.createElement('div');
probe.innerHTML = '<math><mrow><mo>(</mo><mspace height="4em" depth="4em"></mspace></mrow></math>';
document.body.append(probe);
const grows = box(probe.querySelector('mo')).height > box(probe).height / 2;
probe.remove();
const scale = (element, transform) => {
  element.style.display = 'inline-block';
  element.style.transform = transform;
};
const growFence = fence => {
  const own = box(fence), inner = [...fence.parentElement.children].filter(one => one.tagName !== 'mo').map(box);
  const asked = parseFloat(fence.getAttribute('minsize')) * parseFloat(getComputedStyle(fence).fontSize);
  const top = asked ? 0 : Math.min(...inner.map(one => one.top));
  const bottom = asked || Math.max(...inner.map(one => one.bottom));
  if (!own.height || !(bottom - top > (asked ? 1 : 1.5) * own.height)) return;
  const shift = asked ? 0 : (top + bottom - own.top - own.bottom) / 2;
  scale(fence, `translateY(${shift}px) scaleY(${(bottom - top) / own.height})`);
};
const widen = accent => {
  const own = box(accent), base = box(accent.parentElement.firstElementChild);
  if (own.width && base.width > 1.8 * own.width) scale(accent, `scaleX(${0.95 * base.width / own.width})`);
};
if (!grows) {
  document.documentElement.classList.add('no-math-font');
  for (const sign of document.querySelectorAll('mo:not([stretchy="false"]):not([movablelimits])')) {
    const text = sign.textContent.trim();
    if (text && '()[]{}|‖⟨⟩⌊⌋⌈⌉'.includes(text)) growFence(sign);
    if (text && '⏞⏟^~˜'.includes(text) && sign.matches('mover > :last-child, munder > :last-child')) widen(sign);
  }
}
"""

STYLE = """
:root { --ink: #1d232b; --soft: #5b6570; --paper: #ffffff; --panel: #f5f7f9; --line: #d9dfe5; --link: #0b5cad;
  --mark: #fff6d6; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --soft: #a0abb6; --paper: #14181d; --panel: #1d2329;
  --line: #39424c; --link: #7ab8f5; --mark: #3a3420; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body { margin: 0; color: var(--ink); background: var(--paper); line-height: 1.6;
  font: 17px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif; }
a { color: var(--link); }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 1rem; top: 1rem; background: var(--paper); padding: .5rem; }
.frame { display: grid; grid-template-columns: 17rem minmax(0, 1fr); max-width: 76rem; margin: 0 auto; gap: 2.5rem; }
.frame.wide { grid-template-columns: minmax(0, 1fr); }
aside { position: sticky; top: 0; align-self: start; max-height: 100vh; overflow-y: auto; padding: 1.5rem 0 1.5rem 1rem;
  font-size: .85rem; line-height: 1.4; }
aside ol { list-style: none; margin: 0; padding: 0; } aside li { margin: .35rem 0; }
aside li.deeper { padding-left: 1rem; color: var(--soft); } aside a { text-decoration: none; color: inherit; }
aside a:hover { text-decoration: underline; }
main { padding: 1.5rem 1rem 4rem 0; max-width: 52rem; min-width: 0; } .wide main { padding-left: 1rem; }
nav.chapters { display: flex; justify-content: space-between; gap: 1rem; flex-wrap: wrap; font-size: .9rem;
  padding: .6rem 0; border-bottom: 1px solid var(--line); }
footer nav.chapters { border-bottom: 0; border-top: 1px solid var(--line); margin-top: 3rem; }
h1 { font-size: 2rem; line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
h1, h2, h3 { text-wrap: balance; } .anchor-link { display: none; }
.prompt { display: none; }
pre { margin: 0; padding: .7rem .9rem; overflow-x: auto; font: .85rem/1.45 ui-monospace, "DejaVu Sans Mono", Consolas,
  monospace; }
code { font-family: ui-monospace, "DejaVu Sans Mono", Consolas, monospace; font-size: .88em; }
.rendered_html :not(pre) > code { background: var(--panel); border-radius: 3px; padding: .1em .3em; }
.code_cell { margin: 1rem 0; }
.input_area, .rendered_html pre { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; }
.output_area { margin: .5rem 0; overflow-x: auto; }
.output_text pre { border-left: 3px solid var(--line); white-space: pre-wrap; }
.output_text pre.columns { white-space: pre; }
.note { color: var(--soft); font-size: .9rem; border-left: 3px solid var(--line); margin: .5rem 0; }
p.note { padding: .3rem .8rem; }
img { max-width: 100%; height: auto; background: #fff; }
.scroll { overflow-x: auto; margin: 1rem 0; } table { border-collapse: collapse; font-size: .92rem; }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .7rem; text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
details { border: 1px solid var(--line); border-radius: 6px; padding: .5rem .9rem; margin: .8rem 0; }
summary { cursor: pointer; font-weight: 600; } blockquote { border-left: 3px solid var(--line); margin-left: 0;
  padding-left: 1rem; color: var(--soft); }
.equation { display: flex; align-items: center; overflow-x: auto; overflow-y: hidden; padding: .5rem 0; }
.equation math { flex: 1; } .tag { padding-left: 1rem; }
math { font-family: "Latin Modern Math", "STIX Two Math", "Cambria Math", "Libertinus Math", "TeX Gyre Termes Math",
  "Noto Sans Math", "Book Math", math; font-size: 1.08em; }
math mtable { border-collapse: separate; font-size: inherit; }
math mtd { border: 0; vertical-align: baseline; text-align: center; padding: .3ex .4em; }
mtd[columnalign="left"] { text-align: left; text-align: -webkit-left; }
mtd[columnalign="right"] { text-align: right; text-align: -webkit-right; }
mtable[columnspacing^="0em"] > mtr > mtd { padding-left: 0; padding-right: 0; }
.no-math-font :is(munder, munderover) > mo:first-child { padding: .15em 0; }
.status-ready { font-weight: 600; }
@media (max-width: 60rem) { .frame { grid-template-columns: minmax(0, 1fr); gap: 0; }
  aside { position: static; max-height: none; padding: 1rem; border-bottom: 1px solid var(--line); }
  main { padding: 1rem; } }
@media print { aside, nav.chapters { display: none; } .frame { display: block; } }
"""


def code_style() -> str:
    """The colours of code, for light and dark pages."""
    from pygments.formatters import HtmlFormatter

    light = HtmlFormatter(style="friendly").get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".highlight")
    dark = "\n".join(line for line in dark.splitlines() if line.startswith(".highlight"))
    both = f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"
    return f"{both}\n.highlight {{ background: transparent !important; }}"


def page(title: str, body: str, *, navigation: str = "", sidebar: str = "", style: str = "") -> str:
    """A whole HTML page. ``title`` is plain text, ``style`` more rules of style, the others are HTML."""
    aside = f'<aside aria-label="On this page">{sidebar}</aside>' if sidebar else ""
    top = f'<nav class="chapters" aria-label="Chapters">{navigation}</nav>' if navigation else ""
    script = f'<script type="module">{GROW}</script>' if "<math" in body else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}{code_style()}{style}</style>
</head>
<body>
<a class="skip" href="#chapter">To the text</a>
<div class="frame{"" if sidebar else " wide"}">
{aside}
<main id="chapter">
{top}
{body}
<footer>{top}</footer>
</main>
</div>
{script}
</body>
</html>
"""

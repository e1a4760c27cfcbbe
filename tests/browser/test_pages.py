"""The built book in a real browser without a network: every page, width, control and link."""

from importlib.resources import files

import pytest

from fedbook.book.contents import CHAPTERS
from fedbook.book.render import render_book

pytestmark = pytest.mark.slow

STICKS_OUT = """[...document.querySelectorAll('body *')].filter(one => {
  const box = one.getBoundingClientRect();
  if (!box.width || box.right <= document.documentElement.clientWidth + 2) return false;
  for (let up = one.parentElement; up && up !== document.body; up = up.parentElement)
    if (getComputedStyle(up).overflowX !== 'visible') return false;
  return true;
}).slice(0, 3).map(one => one.outerHTML.slice(0, 80))"""
NO_NAME = """[...document.querySelectorAll('figure.frames [data-control]')].filter(
  one => !(one.labels[0]?.innerText || one.ariaLabel || '').trim()).length"""
NO_ALT = "[...document.querySelectorAll('main img')].filter(one => !one.alt.trim()).length"
TEX = "[...document.querySelectorAll('.katex-error')].map(one => one.textContent)"
BROKEN = "[...document.images].filter(one => one.complete && !one.naturalWidth).map(one => one.src.slice(0, 60))"
LINKS = """[...document.querySelectorAll('a[href^="#"]')].map(one => decodeURIComponent(one.hash.slice(1)))
  .filter(id => id && !document.getElementById(id))"""
# axe judges no colour on a gradient, and all code lies on one
NO_SHADES = """document.head.appendChild(document.createElement('style')).textContent =
  '* { background-image: none !important }'"""
# a formula is thousands of elements of KaTeX's that take their colour from the text around: one letter stands for it
NO_FORMULAS = "document.querySelectorAll('.katex').forEach(one => one.replaceWith('x'))"
SERIOUS = """axe.run(document, {resultTypes: ['violations'], RULES}).then(found => found.violations
  .filter(one => ['serious', 'critical'].includes(one.impact))
  .map(one => [one.id, one.nodes.length, one.nodes[0].html.slice(0, 120)]))"""
PICTURE = """(src => src.length + src.slice(-400))(
  document.querySelectorAll('figure.frames')[%d].querySelector('img').src)"""


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """The committed notebooks as pages."""
    folder = tmp_path_factory.mktemp("book")
    return render_book(folder / "executed", folder / "pages").parent


@pytest.fixture(scope="module", params=[chapter.page for chapter in CHAPTERS])
def opened(request, book, page):
    """One page of the book, open."""
    page.wide(1100)
    page.open((book / request.param).as_uri())
    return page


def test_a_page_is_whole(opened):
    opened.wide(1100)
    assert opened.ask(TEX) == [] and opened.ask(BROKEN) == [] and opened.ask(LINKS) == []
    assert opened.ask(NO_ALT) == 0 and opened.problems == []


def test_nothing_sticks_out_on_a_phone_or_enlarged(opened):
    for width in (400, 550, 733, 1100):  # a phone, and 1,100 pixels at 200 % and 150 %
        opened.wide(width)
        assert opened.ask(STICKS_OUT) == [], width
        assert opened.ask("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), width


def test_every_control_answers_the_keyboard(opened):
    assert opened.ask(NO_NAME) == 0
    for number in range(opened.ask("document.querySelectorAll('figure.frames').length")):
        figure = f"document.querySelectorAll('figure.frames')[{number}]"
        for place in range(opened.ask(f"{figure}.querySelectorAll('input[type=range]').length")):
            control = f"{figure}.querySelectorAll('input[type=range]')[{place}]"
            opened.ask(f"{control}.focus()")
            pictures = set()
            for key in ("Home", "ArrowRight", "End", "ArrowLeft"):
                opened.press(key)
                pictures.add(opened.ask(PICTURE % number))
                assert opened.ask(f"{control}.getAttribute('aria-valuetext').length"), key
            assert len(pictures) > 1, f"figure {number}, control {place}: one picture at every position"
    assert opened.problems == []


def test_axe_finds_nothing_serious(opened):
    opened.ask(NO_SHADES)
    opened.ask(NO_FORMULAS)
    opened.ask((files("axe_core_python") / "axe.min.js").read_text() + "; 0")
    for theme, rules in (("dark", "runOnly: ['color-contrast']"), ("light", "rules: {}")):
        opened.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        assert opened.ask(SERIOUS.replace("RULES", rules)) == [], theme


def test_the_dark_theme_is_dark(opened):
    light = "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
    for theme, dark in (("dark", True), ("light", False)):
        opened.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        assert (sum(opened.ask(light)) < 3 * 80) is dark


def test_the_search_finds_a_word_and_leads_there(opened):
    opened.ask("document.querySelector('.search input').focus()")
    opened.until("window.bookIndex")
    opened.call("Input.insertText", text="clip")
    opened.until("document.querySelectorAll('.search li a').length")
    assert opened.problems == []

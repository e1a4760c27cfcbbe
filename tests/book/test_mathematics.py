"""TeX to HTML: what is drawn, and what is refused by name."""

import pytest
from bs4 import BeautifulSoup

from fedbook.book.mathematics import MathError, mathematics, style_sheet

REFUSED = [
    ("", "empty"),
    (r"\unknown{x}", r"\unknown"),
    (r"\frac{a}{b", "}"),
    (r"\left( x", r"\right"),
    (r"x_1_2", "Double subscript"),
    (r"a & b", "&"),
    (r"\begin{aligned} a", r"\end"),
    (r"\begin{nothing} a \end{nothing}", "nothing"),
]


@pytest.mark.parametrize(("tex", "words"), REFUSED)
def test_what_cannot_be_drawn_is_refused_with_its_name(tex, words):
    with pytest.raises(MathError) as caught:
        mathematics(tex, True)
    assert words in str(caught.value) and tex in str(caught.value)


@pytest.mark.parametrize("display", [False, True])
def test_a_formula_is_drawn_and_read_aloud(display):
    soup = BeautifulSoup(mathematics(r"\sum_k p_k \theta_k < \text{client\_k}", display), "html.parser")
    assert soup.math.annotation.get_text() == r"\sum_k p_k \theta_k < \text{client\_k}"
    assert "∑" in soup.select_one(".katex-html").get_text() and "client_k" in soup.select_one(".katex-html").get_text()
    assert bool(soup.select(".katex-display")) == display


def test_an_equation_keeps_its_number():
    soup = BeautifulSoup(mathematics(r"a = b \tag{3}", True), "html.parser")
    assert soup.select_one(".katex-tag").get_text() == "(3)"


def test_the_fonts_are_inside_the_style_sheet():
    rules = style_sheet()
    assert rules.count("@font-face") == rules.count("data:font/woff2;base64,") == rules.count("url(") > 10

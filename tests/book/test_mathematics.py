"""TeX to MathML: what is drawn, how it is drawn, and what is refused by name."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbook.book.mathematics import MathError, mathml, styled
from fedbook.book.mathematics_font import font_face

DRAWN = [
    (r"\mathbb{E}[X] = \mathbb R^d", ["𝔼", "ℝ"]),
    (r"\mathbb{1}_{x > 0} + \mathbf{1}", ["𝟙", "𝟏"]),
    (r"\boldsymbol{\theta} + \boldsymbol\Sigma + \bm{x} + \mathbf{X}", ["𝜽", "𝜮", "𝒙", "𝐗"]),
    (r"\mathcal{L} + \mathscr{B}", ["ℒ", "ℬ"]),
    (r"\Delta \Sigma", ['<mi mathvariant="normal">Δ</mi>']),
    (r"x \sim \mathcal{N}(0, \sigma^2)", ["<mo>∼</mo>"]),
    (r"A \setminus B \pm C", ["<mo>∖</mo>", "<mo>±</mo>"]),
    (r"x \to \infty", ["<mi>∞</mi>"]),
    (r"n \log n", ['<mi>log</mi><mspace width="0.167em" /><mi>n</mi>']),
    (r"\operatorname{tr}(A)", ["<mi>tr</mi><mo"]),
    (r"\mathrm{d}x", ["<mtext>d</mtext>"]),
    (r"\text{client\_k}", ["client_k"]),
    (r"\langle x, y \rangle", ['form="prefix"', 'form="postfix"']),
    (r"|x| + \lVert \frac{a}{b} \rVert", ['stretchy="false"']),
    (r"\left( \frac{a}{b} \right)", ['stretchy="true"']),
    (r"\boxed{a}", ["border:1px solid"]),
    (r"a := b \not= c", ["≔", "≠"]),
    (r"\begin{cases} 1 & x > 0 \\ 0 & \text{otherwise} \end{cases}", ["<mtable", "otherwise"]),
    (r"\begin{pmatrix} a & b \\ c & d \end{pmatrix}", ["<mtable"]),
    (r"\hat\theta + \widehat{AB} + \bar x + \tilde x", ["<mover"]),
    (r"\overline{x + y} + \underline{z}", ["border-top", "border-bottom"]),
    (r"\underbrace{a + b}_{\text{sum}} + \binom{n}{k} + \sqrt[3]{x}", ["<munder", "<mfrac", "<mroot"]),
]
REFUSED = [
    ("", "empty"),
    (r"\newcommand{\x}{y}", r"\newcommand"),
    (r"\DeclareMathOperator{\x}{y}", r"\DeclareMathOperator"),
    (r"x \label{eq} + \eqref{eq}", r"\label"),
    (r"\cancel{x}", r"\cancel"),
    (r"\sum\nolimits_i", r"\nolimits"),
    (r"\unknown{x}", r"\unknown"),
    (r"\frac{a}{b", "braces"),
    (r"{x", "braces"),
    (r"\left( x", "Left"),
    (r"x_1_2", "Subscript"),
    (r"a \\ b", "outside an environment"),
    (r"a & b", "outside an alignment"),
    (r"\text{a $x$ b}", "inside \\text"),
    (r"\begin{aligned} a", "without"),
    (r"\operatorname{\alpha}", "inside \\operatorname"),
    (r"\quad", "nothing to show"),
]


@pytest.mark.parametrize("display", [False, True])
@pytest.mark.parametrize(("tex", "parts"), DRAWN)
def test_what_authors_write_is_drawn(tex, parts, display):
    html = mathml(tex, display)
    assert all(part in html for part in parts), html
    texts = "".join(ElementTree.fromstring(html).itertext())
    assert "\\" not in texts and "&" not in texts
    assert "mathvariant" not in html.replace('mathvariant="normal"', ""), "browsers do not draw it"


@pytest.mark.parametrize(("tex", "words"), REFUSED)
def test_what_cannot_be_drawn_is_refused_with_its_name(tex, words):
    with pytest.raises(MathError) as caught:
        mathml(tex, True)
    assert words in str(caught.value)
    assert tex in str(caught.value)


@pytest.mark.parametrize("name", [r"\min", r"\max", r"\sup", r"\lim", r"\argmin", r"\operatorname*{arg\,min}"])
def test_limits_stand_below_their_operator(name):
    html = mathml(rf"{name}_{{\theta}} f(\theta)", True)
    assert "<munder><mo" in html and "movablelimits" in html and "<msub>" not in html


@pytest.mark.parametrize(
    "tex", [r"\sum_{i=1}^n x_i", r"\left( \sum_{i=1}^n x_i \right)", r"\frac{1}{n} \prod_{i=1}^n x"]
)
def test_limits_of_sums_stand_above_and_below_wherever_they_are(tex):
    html = mathml(tex, True)
    assert "<munderover>" in html and "<msubsup>" not in html


@pytest.mark.parametrize("name", ["aligned", "align", "align*", "split"])
def test_alignments_become_tables_with_aligned_columns(name):
    html = mathml(rf"\begin{{{name}}} a &= b \\ &= c \end{{{name}}} \tag{{3}}", True)
    root = ElementTree.fromstring(html)
    assert len(root.findall(".//mtr")) == 2
    assert [cell.get("columnalign") for cell in root.findall(".//mtr[1]/mtd")] == ["right", "left"]
    assert '<span class="tag">(3)</span>' in html


@pytest.mark.parametrize("name", ["gathered", "gather", "gather*"])
def test_gathered_lines_become_rows(name):
    root = ElementTree.fromstring(mathml(rf"\begin{{{name}}} a \\ b \end{{{name}}}", True))
    assert len(root.findall(".//mtr")) == 2


def test_a_tag_in_running_text_is_refused():
    with pytest.raises(MathError, match="tag"):
        mathml(r"x \tag{1}", False)


def test_the_source_is_kept_for_screen_readers():
    assert 'alttext="a &lt; b"' in mathml("a < b")


@pytest.mark.parametrize(
    ("letter", "variant", "expected"),
    [("A", "bold", "𝐀"), ("z", "bold", "𝐳"), ("h", "italic", "ℎ"), ("ω", "bold-italic", "𝝎"), ("ϵ", "bold", "𝛜"),
     ("9", "double-struck", "𝟡"), ("C", "double-struck", "ℂ"), ("7", "script", "7"), ("+", "bold", "+")],
)  # fmt: skip
def test_styled_letters(letter, variant, expected):
    assert styled(letter, variant) == expected


PIECES = [*"ab1{}\\_^&$ =()|<>%", r"\frac", r"\sum", r"\left", r"\text", r"\begin{aligned}", r"\end{aligned}"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_text_is_drawn_or_refused_never_something_else(tex):
    try:
        html = mathml(tex, True)
    except MathError:
        return
    assert "\\" not in "".join(ElementTree.fromstring(html).itertext())


def test_the_font_holds_the_letters_asked_for():
    small, large = font_face("x"), font_face("xyzαβγ∑𝒪")
    assert small.startswith("@font-face") and len(small) < len(large) < 60_000
    assert small == font_face("x"), "the same letters give the same bytes"

r"""TeX to MathML for pages that are read without a network.

latex2mathml does the parsing. Around it stand three things a page needs: commands that it would drop or
pass through as raw TeX are refused with their name; a few common spellings are rewritten to those it knows;
and its output is adapted to MathML Core, the part of MathML that browsers really draw (letters in a style
become the Unicode letters of that style, limits go under ``min``, function names get their thin space).
"""

from __future__ import annotations

import re
import unicodedata
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

# Dropped or passed on silently by the parser, or without a counterpart in MathML Core.
REFUSED = (
    *("newcommand", "renewcommand", "providecommand", "def", "DeclareMathOperator", "require"),
    *("label", "ref", "eqref", "cite", "cancel", "bcancel", "xcancel", "href", "includegraphics", "nolimits"),
)
ENVIRONMENTS = {"aligned": "split", "align": "align*", "gathered": "matrix", "gather": "matrix", "gather*": "matrix"}
SCRIPTS = {"msub": "munder", "msup": "mover", "msubsup": "munderover"}
LIMITS = {"min", "max", "sup", "inf", "lim", "limsup", "liminf", "argmin", "argmax"}
BIG = set("∑∏∐⋃⋂⨁⨂⋁⋀⨆")
ROWS = {"mrow", "math", "mtd", "msqrt", "mstyle", "mpadded", "mphantom"}
SCRIPTED = {"msub", "msup", "msubsup", "munder", "mover", "munderover"}
OPENING, CLOSING, BARS = "⟨⌊⌈", "⟩⌋⌉", "|‖"
IDENTIFIERS = "∞∅∀∃∂∇′″‴…⊤⊥%#&$ℏ"
# Words of letters that carry what the parser does not accept in an operator's name.
UNDER, THIN = "zzunderzz", "zzthinzz"
BETTER_KNOWN = {"\u29f5": "\u2216"}  # set minus: the form most fonts have
RULES = {"mover": "border-top:0.06em solid;padding-top:0.12em", "munder": "border-bottom:0.06em solid"}
# First code point of capitals, small letters, digits, Greek capitals, Greek small letters.
ALPHABETS = {
    "bold": (0x1D400, 0x1D41A, 0x1D7CE, 0x1D6A8, 0x1D6C2),
    "italic": (0x1D434, 0x1D44E, None, 0x1D6E2, 0x1D6FC),
    "bold-italic": (0x1D468, 0x1D482, 0x1D7CE, 0x1D71C, 0x1D736),
    "double-struck": (0x1D538, 0x1D552, 0x1D7D8, None, None),
    "script": (0x1D49C, 0x1D4B6, None, None, None),
    "fraktur": (0x1D504, 0x1D51E, None, None, None),
    "sans-serif": (0x1D5A0, 0x1D5BA, 0x1D7E2, None, None),
    "monospace": (0x1D670, 0x1D68A, 0x1D7F6, None, None),
}
# Letters that Unicode had before it got the alphabets above.
EARLIER = {
    "double-struck": dict(zip("CHNPQRZ", "ℂℍℕℙℚℝℤ", strict=True)),
    "script": dict(zip("BEFHILMRego", "ℬℰℱℋℐℒℳℛℯℊℴ", strict=True)),
    "fraktur": dict(zip("CHIRZ", "ℭℌℑℜℨ", strict=True)),
    "italic": {"h": "ℎ"},
}
TEXT_STYLE = {
    "bold": "font-weight:bold",
    "italic": "font-style:italic",
    "sans-serif": "font-family:sans-serif",
    "monospace": "font-family:monospace",
}


class MathError(ValueError):
    """Mathematics that the page could not show as written."""


def mathml(tex: str, display: bool = False) -> str:
    r"""``tex`` (without dollar signs) as a ``<math>`` element; a ``\tag{...}`` stands beside a displayed one.

    Raises: MathError (what cannot be shown, and the TeX).
    """
    try:
        _refuse(tex)
        source, tag = _rewritten(tex, display)
        root = _parsed(source, display)
        _adapt(root)
        _leftovers(root)
    except MathError as error:
        raise MathError(f"{error} in: {' '.join(tex.split())}") from None
    root.set("alttext", " ".join(tex.split()))
    html = ElementTree.tostring(root, encoding="unicode")
    if not display:
        return html
    number = f'<span class="tag">({tag})</span>' if tag else ""
    return f'<div class="equation">{html}{number}</div>\n'


def _refuse(tex: str) -> None:
    if not tex.strip():
        raise MathError("empty mathematics")
    for name in re.findall(r"\\([A-Za-z]+)", tex):
        if name in REFUSED:
            raise MathError(f"\\{name} is not supported")
    bare = re.sub(r"\\[\\{}]", "", tex)
    if bare.count("{") != bare.count("}"):
        raise MathError("unbalanced braces")
    if sorted(re.findall(r"\\begin\{([^}]*)\}", tex)) != sorted(re.findall(r"\\end\{([^}]*)\}", tex)):
        raise MathError("\\begin without \\end")
    for text in re.findall(r"\\text(?:bf|it|rm|sf|tt)?\{([^{}]*)\}", tex):
        if "$" in text.replace(r"\$", ""):
            raise MathError("mathematics inside \\text is not supported")


def _rewritten(tex: str, display: bool) -> tuple[str, str]:
    """The same formula in the spellings the parser knows, and the content of its tag."""
    tags = re.findall(r"\\tag\{([^{}]*)\}", tex)
    if len(tags) > 1 or (tags and not display):
        raise MathError("more than one \\tag, or a \\tag in running text")
    tex = re.sub(r"\\tag\{[^{}]*\}|\\(?:notag|nonumber)\b", "", tex)
    tex = re.sub(r"\\(begin|end)\{([a-z]+\*?)\}", lambda m: f"\\{m[1]}{{{ENVIRONMENTS.get(m[2], m[2])}}}", tex)
    tex = re.sub(r"\\mathrm\s*\{([A-Za-z0-9 .-]+)\}", r"\\text{\1}", tex)
    tex = re.sub(r"\\mathop\s*\{\\text(\{[^{}]*\})\s*\}", r"\\operatorname*\1", tex)
    tex = re.sub(r"\\operatorname(\*?)\s*\{([^{}]*)\}", _operator, tex)
    tex = re.sub(r"\\not\s*=", r"\\neq ", tex)
    return re.sub(r":\s*=", r"\\coloneqq ", tex), "".join(tags)


def _operator(match: re.Match[str]) -> str:
    name = re.sub(r"\\[,;: ]|~|\s", THIN, match[2])
    if "\\" in name:
        raise MathError(f"a command inside \\operatorname{{{match[2]}}}")
    return f"\\operatorname{{{UNDER if match[1] else ''}{name}}}"


def _parsed(tex: str, display: bool) -> Element:
    from latex2mathml.converter import convert

    try:
        text = convert(tex, display="block" if display else "inline")
    except Exception as error:
        raise MathError(f"{type(error).__name__} {error}".strip()) from None
    text = text.replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "")
    if ">&<" in text:
        raise MathError("& outside an alignment (use aligned, matrix, cases or array)")
    try:
        return ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise MathError(f"the parser's answer is no MathML ({error})") from None


def _leftovers(root: Element) -> None:
    for one in root.iter():
        text = one.text or ""
        if "\\" in text:
            raise MathError(f"{text.strip()} is not supported")
        if one.tag == "mspace" and one.get("linebreak"):
            raise MathError("\\\\ outside an environment")
        if one.tag == "menclose":
            raise MathError("an enclosure other than \\boxed is not supported")
    if not any((one.text or "").strip() for one in root.iter()):
        raise MathError("nothing to show")


def _adapt(parent: Element) -> None:
    """Turn the parser's MathML, in place, into MathML Core that browsers draw as TeX would."""
    for child in list(parent):
        _adapt(child)
    if parent.text:
        _letters(parent)
        _kind(parent)
    if parent.tag in SCRIPTS and _takes_limits(_core(parent)):
        parent.tag = SCRIPTS[parent.tag]
    if parent.tag in RULES and (parent[1].text or "") == "\u2015":  # a line over or under any width
        base = parent[0]
        parent.remove(parent[1])
        parent.attrib = {"style": RULES[parent.tag]}
        parent.tag = "mrow"
        parent[:] = [base]
    if parent.tag == "mspace" and parent.get("width") == "negativethinmathspace":
        parent.set("width", "-0.167em")
    if parent.tag == "menclose" and parent.get("notation") == "box":
        parent.tag = "mrow"
        parent.attrib = {"style": "border:1px solid;padding:0.25em"}
    if parent.tag == "mpadded" and parent.get("width", "").startswith("+"):
        parent.tag, parent.attrib = "mrow", {}
    if parent.tag in ROWS:
        _bars(parent)
        _thin_spaces(parent)


def _letters(one: Element) -> None:
    """Letters in a style: ``mathvariant`` is not drawn by browsers, the letters of Unicode are."""
    variant = one.get("mathvariant")
    if one.tag == "mtext":
        one.text = re.sub(r"\\([_%&#$])", r"\1", one.text or "")
    if one.tag == "mi" and variant is None and len(one.text or "") == 1 and "Α" <= (one.text or "") <= "Ω":
        one.set("mathvariant", "normal")  # TeX's capital Greek letters stand upright
        return
    if variant is None or variant == "normal":
        return
    del one.attrib["mathvariant"]
    if one.tag == "mtext":
        one.set("style", TEXT_STYLE.get(variant, ""))
    elif variant in ALPHABETS:
        one.text = "".join(styled(letter, variant) for letter in one.text or "")


def styled(letter: str, variant: str) -> str:
    """The letter of Unicode's alphabet ``variant``; the same one where that alphabet has none."""
    if letter in EARLIER.get(variant, {}):
        return EARLIER[variant][letter]
    capitals, small, digits, greek_capitals, greek_small = ALPHABETS[variant]
    for first, last, start in (
        ("A", "Z", capitals),
        ("a", "z", small),
        ("0", "9", digits),
        ("Α", "Ω", greek_capitals),
        ("α", "ω", greek_small),
    ):
        if first <= letter <= last and start is not None:
            return chr(start + ord(letter) - ord(first))
    if greek_small is not None and letter in "∂ϵϑϰϕϱϖ":
        return chr(greek_small + 25 + "∂ϵϑϰϕϱϖ".index(letter))
    return letter


def _kind(one: Element) -> None:
    """Identifier or operator, as browsers space them."""
    text = one.text = BETTER_KNOWN.get(one.text or "", one.text or "").replace(THIN, "\u2009")
    if one.tag == "mo" and (text == "∞" or (len(text) > 1 and text.replace("\u2009", "").isalpha())):
        one.tag, one.attrib = "mi", {}
    elif one.tag == "mi" and text == "~":
        one.tag, one.text = "mo", "∼"
    elif one.tag == "mi" and len(text) == 1 and text not in IDENTIFIERS and unicodedata.category(text)[0] in "SP":
        one.tag = "mo"
        if text in OPENING + CLOSING:
            one.attrib.update(form="prefix" if text in OPENING else "postfix", stretchy="false")


def _core(one: Element) -> Element:
    """The base of a scripted element, or the element itself."""
    while len(one) and (one.tag in SCRIPTED or (one.tag == "mrow" and len(one) == 1)):
        one = one[0]
    return one


def _takes_limits(core: Element) -> bool:
    """Whether the base carries its limits below; a name that does becomes an operator."""
    text = core.text or ""
    if text in BIG:
        return True
    if not text.startswith(UNDER) and re.sub(r"\s", "", text) not in LIMITS:
        return False
    core.text = text.removeprefix(UNDER)
    core.tag = "mo"
    core.attrib = {"movablelimits": "true", "lspace": "0", "rspace": "0.167em"}
    return True


def _bars(row: Element) -> None:
    """Bars typed as ``|x|`` keep the height of a letter; those around a matrix grow."""
    if any(child.tag == "mtable" for child in row):
        return
    for child in row:
        core = _core(child)
        if core.tag == "mo" and core.text in tuple(BARS) and core.get("stretchy") is None:
            core.set("stretchy", "false")
            core.attrib.update(lspace="0", rspace="0")


def _thin_spaces(row: Element) -> None:
    """A thin space between a function name and a letter, as in ``n log n``."""
    children = list(row)
    for one, following in zip(children, children[1:], strict=False):
        if (_is_name(one) and not _is_operator(following)) or (_is_name(following) and not _is_operator(one)):
            row.insert(list(row).index(following), Element("mspace", {"width": "0.167em"}))
    for one in children:
        core = _core(one)
        if core.text and core.text.startswith(UNDER):
            core.text = core.text.removeprefix(UNDER)


def _is_name(one: Element) -> bool:
    core = _core(one)
    return core.tag == "mi" and len((core.text or "").removeprefix(UNDER)) > 1


def _is_operator(one: Element) -> bool:
    core = _core(one)
    if core.tag == "mrow" and len(core):
        core = core[0]
    return core.tag in ("mo", "mspace")

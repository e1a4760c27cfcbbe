"""The letters of a page's formulas, inside the page: a reader's machine may have no mathematics font.

matplotlib brings the STIX letters; those that occur in the page are embedded. A font for mathematics
that the reader has installed is preferred by the style sheet, because it also has growing brackets.
"""

from __future__ import annotations

import base64
import io
from pathlib import Path

from fedbook.book.mathematics import styled

FAMILY = "Book Math"


def font_face(characters: str) -> str:
    """A style rule with a font of just these characters.

    With a letter comes its italic form, which browsers draw for identifiers, and always the root sign.
    """
    import matplotlib
    from fontTools import subset

    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "STIXGeneral.ttf"
    # A fixed time stamp: the same page gives the same bytes.
    options = subset.Options(recalc_timestamp=False, notdef_outline=True, layout_features=[], hinting=False)
    options.drop_tables += ["FFTM"]
    with subset.load_font(str(path), options) as font:
        italic = "".join(styled(character, "italic") for character in characters)
        wanted = {ord(character) for character in f"{characters}{italic}√"} & set(font.getBestCmap())
        cutter = subset.Subsetter(options)
        cutter.populate(unicodes=wanted)
        cutter.subset(font)
        out = io.BytesIO()
        font.save(out)
    data = base64.b64encode(out.getvalue()).decode("ascii")
    return f'@font-face {{ font-family: "{FAMILY}"; src: url(data:font/ttf;base64,{data}) format("truetype"); }}'

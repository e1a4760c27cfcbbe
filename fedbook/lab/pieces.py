"""The pieces that all live figures are made of: picture, sentence, button."""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any


def picture(png: bytes, height: int) -> Any:
    """An image widget of fixed height: the page does not jump while the picture is replaced in place."""
    import ipywidgets

    layout = {"height": f"{height}px", "max_width": "100%", "object_fit": "contain", "object_position": "left top"}
    return ipywidgets.Image(value=png, format="png", layout={**layout, "align_self": "flex-start"})


def say(reading: Any, sentence: str) -> None:
    """Put the sentence under the picture, marked for screen readers, in the room of the longest one so far: the page
    does not jump while sentences change.

    Not as the picture's tooltip: the browser side of ipywidgets 8.1 fails to show a widget that has a tooltip and
    no description, which an image never has.
    """
    reading.longest = max(getattr(reading, "longest", ""), sentence, key=len)
    place = "grid-area:1/1;margin:0"
    reading.value = (
        f'<div style="display:grid;min-height:2.6em"><p aria-hidden="true" style="{place};visibility:hidden">'
        f'{html.escape(reading.longest)}</p><p role="status" aria-live="polite" style="{place}">'
        f"{html.escape(sentence)}</p></div>"
    )


def button(text: str, tooltip: str, act: Callable[[], Any], **looks: Any) -> Any:
    """A button that calls ``act()``."""
    import ipywidgets

    made = ipywidgets.Button(description=text, tooltip=tooltip, layout={"width": "auto"}, **looks)
    made.on_click(lambda _: act())
    return made


def play(slider: Any) -> Any:
    """Play, pause and stop buttons that move the slider, in the browser, one step every third of a second."""
    import ipywidgets

    made = ipywidgets.Play(min=slider.min, max=slider.max, step=slider.step, value=slider.value, interval=330)
    ipywidgets.jslink((made, "value"), (slider, "value"))
    return made


def row(*children: Any) -> Any:
    """Widgets side by side, on more lines where the page is narrow."""
    import ipywidgets

    return ipywidgets.Box(list(children), layout={"flex_flow": "row wrap", "align_items": "center"})


def said(error: BaseException) -> str:
    """Kind and message of an error."""
    return f"{type(error).__name__}: {error}"

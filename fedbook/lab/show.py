"""Putting output into the notebook; outside IPython nothing is shown."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

from fedbook.lab.frames import MIME as FRAMES

SLIDERS = Path(__file__).with_name("sliders.js")
WIDGET_MIME = "application/vnd.jupyter.widget-view+json"


def show(bundle: dict[str, Any], metadata: dict[str, Any] | None = None) -> bool:
    """Display one MIME bundle in the current cell; whether there is one."""
    from IPython import get_ipython
    from IPython.display import display

    if get_ipython() is None:
        return False
    display(bundle, metadata=metadata or {}, raw=True)
    return True


def show_text(text: str) -> None:
    """Display one sentence, as plain text and as Markdown that reads the same."""
    show({"text/plain": text, "text/markdown": re.sub(r"([\\`*_{}\[\]<>#$|~])", r"\\\1", text)})


def show_widget(widget: Any) -> None:
    """Display a live widget, and the script that gives its sliders names for screen readers."""
    from IPython import get_ipython
    from IPython.display import display

    if get_ipython() is not None:
        display(widget)
        show({"application/javascript": SLIDERS.read_text(encoding="utf-8")})


def show_static(widget: Any, png: bytes, sentence: str, frames: dict[str, Any] | None = None) -> None:
    """Display widget view and static figure in one bundle (a page without a kernel falls back to the
    figure), with the frames if there are any, then the sentence."""
    bundle = {"text/plain": "<interactive figure>", "image/png": base64.b64encode(png).decode()}
    bundle[WIDGET_MIME] = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    if frames is not None:
        bundle[FRAMES] = frames
    show(bundle, {"image/png": {"alt": sentence}})
    show_text(sentence)


class Quiet:
    """Base of what a cell may return without its repr being printed under the output."""

    def _ipython_display_(self, **_: Any) -> None:
        """Nothing: what there is to see was displayed when it was made."""

"""One figure that is drawn again and again: pure Agg, outside pyplot, fast enough for a slider.

Creating a figure and laying it out costs more than drawing it. So the figure is made once, the
layout is computed once and kept (axes that stay put are also calmer to look at), and computed again
only when a title, an axis label, a tick label or a legend needs more room than before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from fedbook.arguments import wrong
from fedbook.lab import style

TICK_LETTERS = 5  # room kept for tick labels up to "-0.25" or "10000"


class Canvas:
    """A figure of (rows, columns) axes; ``redraw`` fills it and returns the PNG and the sentence.

    ``axes`` may hold a third entry, (width, height) in inches.
    """

    def __init__(self, axes: tuple = (1, 1)) -> None:
        self.rows, self.columns, *inches = axes
        size = inches[0] if inches else style.figsize(self.rows, self.columns)
        self.figure = Figure(figsize=size, dpi=style.DPI, layout="constrained")
        self.canvas = FigureCanvasAgg(self.figure)
        self.height = round(size[1] * style.DPI)  # pixels
        self._places: list = []
        self._room: list[int] = []
        self._lock = threading.RLock()  # a notebook may call back from another thread than the cell's

    def redraw(self, draw: Callable[..., str], *args: Any, **values: Any) -> tuple[bytes, str]:
        """``draw(axes, *args, **values)`` on emptied axes. Raises: TypeError, RuntimeError (impure ``draw``)."""
        with self._lock, style.used():
            sentence = self._fill(draw, args, values)
            if self._places and len(self._places) == len(self.figure.axes):
                for ax, place in zip(self.figure.axes, self._places, strict=True):
                    ax.set_position(place)
                self.canvas.draw()
                needed = _needed_room(self.figure)
                if all(need <= room for need, room in zip(needed, self._room, strict=True)):
                    return style.quick_png(self._pixels()), sentence
                sentence = self._fill(draw, args, values)  # again: the layout skips axes placed by hand
            self._lay_out()
            return style.quick_png(self._pixels()), sentence

    def small_png(self) -> bytes:
        """The figure as drawn last, in few bytes, to be stored in the notebook."""
        with self._lock:
            return style.small_png(self._pixels())

    def frame(self) -> tuple[bytes, tuple[int, int]]:
        """The figure as drawn last in still fewer bytes, a WebP for a page; its width and height in pixels."""
        with self._lock:
            pixels = self._pixels()
            return style.small_webp(pixels), (pixels.shape[1], pixels.shape[0])

    def _fill(self, draw: Callable[..., str], args: tuple, values: dict[str, Any]) -> str:
        self.figure.clear()
        axes = self.figure.subplots(self.rows, self.columns)
        before = _open_figures()
        sentence = draw(axes, *args, **values)
        if _open_figures() != before:
            raise RuntimeError(f"{named(draw)} opened a figure of its own; allowed is drawing on the axes it is given")
        if not isinstance(sentence, str) or not sentence.strip():
            raise wrong(TypeError, f"what {named(draw)} returned", sentence, "one sentence that says the numbers")
        return sentence

    def _lay_out(self) -> None:
        self.figure.set_layout_engine("constrained")
        self.canvas.draw()
        self._places = [ax.get_position(original=True).frozen() for ax in self.figure.axes]
        self._spare_room()
        self._room = _needed_room(self.figure)  # what this layout has room for; an older one may have had more
        self.figure.set_layout_engine("none")

    def _spare_room(self) -> None:
        """Move left edges so that tick labels may grow to TICK_LETTERS without a new layout."""
        letter = 0.65 * mpl.rcParams["font.size"] * self.figure.dpi / 72 / self.figure.bbox.width
        for i, ax in enumerate(self.figure.axes[: self.rows * self.columns]):
            letters = _tick_letters(ax)
            if 0 < letters < TICK_LETTERS:
                place = self._places[i]
                left = min(place.x0 + (TICK_LETTERS - letters) * letter, place.x0 + place.width / 2)
                self._places[i] = Bbox.from_extents(left, place.y0, place.x1, place.y1)
                ax.set_position(self._places[i])
        self.figure.set_layout_engine("none")
        self.canvas.draw()

    def _pixels(self) -> np.ndarray:
        return np.asarray(self.canvas.buffer_rgba())[..., :3]


def named(draw: Callable) -> str:
    """The name of a draw function, for messages."""
    return getattr(draw, "__name__", type(draw).__name__)


def _needed_room(figure: Figure) -> list[int]:
    """For every axes, what the layout must find room for: lines of text, letters of tick labels, the legend's size."""
    needs: list[int] = []
    for ax in figure.axes:
        for text in (ax.title, ax.xaxis.label, ax.yaxis.label):
            needs.append(text.get_text().count("\n") + bool(text.get_text()))
        for axis in (ax.xaxis, ax.yaxis):
            needs.append(int(bool(axis.get_offset_text().get_text())))
        needs.append(max(_tick_letters(ax), TICK_LETTERS))
        entries = [text.get_text() for text in legend.get_texts()] if (legend := ax.get_legend()) else []
        needs += [len(entries), max(map(len, entries), default=0)]
    return needs


def _tick_letters(ax: Axes) -> int:
    """Letters of the longest tick label at the left of ``ax`` (0: none is drawn there)."""
    # The ticks just drawn; asking the axis for its labels would compute them all over again.
    low, high = sorted(ax.get_ylim())
    labels = [tick.label1 for tick in ax.yaxis.majorTicks if low <= tick.get_loc() <= high]
    return max((len(label.get_text()) for label in labels if label.get_visible()), default=0)


def _open_figures() -> list[int]:
    """Numbers of the open pyplot figures (none while pyplot was never imported)."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    return list(pyplot.get_fignums()) if pyplot else []

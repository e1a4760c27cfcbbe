"""How the book's figures look: a colour-blind safe palette that never stands alone, small stable PNGs.

Every series differs in colour (Okabe and Ito's palette without its yellow, which is too faint on
white), marker and line style at once, so that a figure survives a grey printer and any eyes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from fedbook.arguments import integer

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":")
# Colours by role, beside the series: no other file of the package names a colour by its number.
INK = "#000000"
STRONG_REFERENCE, REFERENCE, FAINT_REFERENCE = "#444444", "#555555", "#777777"  # lines to compare with
CEILING, CONTROL = "#444444", "#888888"  # what pooled training reaches; the cheap controls: alone, untrained
SHADE = "#BBBBBB"  # contours, and the area of what means nothing
GRID = "#D9D9D9"
GREEN_TEXT, ORANGE_TEXT, NEUTRAL_TEXT = "#00664A", "#A84900", "#595959"
MANIFOLD_EDGE, MANIFOLD_LINE, MANIFOLD_GRID = "#9AA5B5", "#B9C3D0", "#BCC6D4"  # a surface's outline, lines on it
DPI = 110
COLOURS = 128  # of a stored PNG; twice as many cost a quarter more bytes for nothing one can see
WIDTH, HEIGHT = 6.0, 3.5  # inches: one plot; two side by side share WIDE
WIDE = 8.0


def series(i: int) -> dict[str, str]:
    """Colour, marker and line style of series ``i``: 28 different ones, then again from the start.

    Raises: TypeError, ValueError (negative).
    """
    i = integer("i", i, 0)
    return {
        "color": PALETTE[i % len(PALETTE)],
        "marker": MARKERS[i % len(MARKERS)],
        "linestyle": LINES[i % len(LINES)],
    }


_ALL = [series(i) for i in range(len(PALETTE) * len(LINES))]

STYLE: dict[str, Any] = {
    "figure.figsize": (WIDTH, HEIGHT),
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "figure.constrained_layout.use": True,
    "axes.prop_cycle": cycler(**{key: [one[key] for one in _ALL] for key in ("color", "marker", "linestyle")}),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.titlesize": "medium",
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "font.size": 10.0,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": "small",
    "image.cmap": "cividis",
}


def use() -> None:
    """Give every figure of this process the book's style; in a notebook also its small PNGs."""
    mpl.rcParams.update(STYLE)
    _use_own_fonts()
    _use_small_png()


@contextmanager
def used() -> Iterator[None]:
    """Inside, every figure has the book's style: for a part of a program."""
    _use_own_fonts()
    with mpl.rc_context(STYLE):
        yield


def _use_own_fonts() -> None:
    """Matplotlib's own fonts, whatever its cache holds.

    One that was written while its environment was being deleted has none of them, and is never made again: every
    formula in a figure then warns, in every environment of that user.
    """
    if "STIXGeneral" not in font_manager.get_font_names():
        for path in sorted(Path(mpl.get_data_path(), "fonts", "ttf").glob("*.ttf")):
            font_manager.fontManager.addfont(path)


def figsize(rows: int, columns: int) -> tuple[float, float]:
    """Inches of a figure with ``rows`` x ``columns`` plots. Raises: TypeError, ValueError."""
    rows, columns = integer("rows", rows, 1), integer("columns", columns, 1)
    return (WIDTH if columns == 1 else WIDE, HEIGHT if rows == 1 else 2.5 * rows)


def png(figure: Figure) -> bytes:
    """The figure as a PNG of few colours: a third of the bytes, and no date or version inside."""
    canvas = figure.canvas
    if not isinstance(canvas, FigureCanvasAgg):
        canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return small_png(np.asarray(canvas.buffer_rgba())[..., :3])


def small_png(pixels: np.ndarray) -> bytes:
    """Pixels as a palette PNG, for files that are kept. Shapes: ``pixels`` uint8 [height, width, 3]."""
    buffer = io.BytesIO()
    _few_colours(pixels).save(buffer, "png", compress_level=9)
    return buffer.getvalue()


def small_webp(pixels: np.ndarray) -> bytes:
    """The same colours as a lossless WebP, a fifth smaller, for pages. Shapes: ``pixels`` uint8 [height, width, 3]."""
    buffer = io.BytesIO()
    _few_colours(pixels).convert("RGB").save(buffer, "webp", lossless=True, quality=75, method=4)
    return buffer.getvalue()


def _few_colours(pixels: np.ndarray) -> Any:
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(pixels))
    # Median cut: the faster octree puts visible steps, which mean nothing, into a smooth colour map.
    return image.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)


def quick_png(pixels: np.ndarray) -> bytes:
    """Pixels as a full-colour PNG, lightly packed, for a live redraw. Shapes: uint8 [height, width, 3]."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(buffer, "png", compress_level=1)
    return buffer.getvalue()


def band(ax: Axes, x: Any, mean: Any, low: Any, high: Any, i: int, label: str) -> None:
    """Series ``i``: the line of ``mean`` and, around it, the interval from ``low`` to ``high``.

    Shapes: ``x``, ``mean``, ``low``, ``high`` [T].
    """
    look = series(i)
    ax.plot(x, mean, label=label, markevery=max(1, len(x) // 12), **look)
    ax.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0)


def _use_small_png() -> None:
    """Figures shown by ``plt.show()`` in a notebook pass through ``png`` instead of the backend's encoder."""
    try:
        from IPython import get_ipython
    except ImportError:  # a plain Python without IPython: nothing to set
        return
    shell = get_ipython()
    if shell is not None and getattr(shell, "kernel", None) is not None:
        # Importing pyplot first lets the inline backend install its own formatter before ours replaces it.
        import matplotlib.pyplot  # noqa: F401

        shell.run_line_magic("matplotlib", "inline")
        mpl.rcParams.update(STYLE)
        shell.display_formatter.formatters["image/png"].for_type(Figure, png)

"""Draw functions that several chapters share. Each fills the axes it is given and returns one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from fedbook.intervals import mean_interval
from fedbook.lab import results, style
from fedbook.papers import paper


def draw_images(ax: Axes, x: Any, titles: Sequence[str] | None = None, columns: int | None = None) -> str:
    """A mosaic of images with a title above each. Shapes: ``x`` [N, C, H, W], C = 1 or 3; float in [0, 1] or uint8.

    Raises: ValueError (values out of range, NaN, other channels: something else would be drawn).
    """
    raw = x.dtype if hasattr(x, "dtype") else None
    x = _array(x)
    x = x / 255 if str(raw).endswith("uint8") else x
    number, channels, high, wide = x.shape
    if channels not in (1, 3) or not (x.min() >= 0 and x.max() <= 1):
        found = f"{channels} channels, values from {x.min():g} to {x.max():g}"
        raise ValueError(f"x: got {found}; allowed is C = 1 or 3, values in [0, 1], or uint8")
    titles = [""] * number if titles is None else [str(title) for title in titles]
    columns = min(number, 10) if columns is None else columns
    rows = -(-number // columns)
    gap, head = max(2, wide // 8), max(2, wide // 8) + (round(high * 0.45) if any(titles) else 0)
    canvas = np.ones((rows * (high + head), columns * (wide + gap) - gap, channels))
    for i, (image, title) in enumerate(zip(x, titles, strict=True)):
        top, left = (i // columns) * (high + head) + head, (i % columns) * (wide + gap)
        canvas[top : top + high, left : left + wide] = image.transpose(1, 2, 0)
        ax.text(left + wide / 2, top - head * 0.15, title, ha="center", va="bottom", fontsize="small")
    ax.imshow(canvas if channels == 3 else canvas[..., 0], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    ax.set_axis_off()
    return f"{number} images of {high} x {wide} pixels" + (f": {', '.join(titles)}." if any(titles) else ".")


def draw_curves(
    ax: Axes, curves: Mapping[str, tuple[Any, Any]], *, x_label: str = "round", y_label: str = "accuracy"
) -> str:
    """Curves over seeds: the mean, and its 95 % interval as a band (none for one seed), see `mean_interval`.

    Shapes: ``curves`` maps a label to (x [T], values [S, T]). Raises: ValueError (NaN).
    """
    ends, rising = [], True
    for i, (label, (x, values)) in enumerate(curves.items()):
        over_seeds = [mean_interval(column) for column in _array(values).T]
        mean = np.array([one.mean for one in over_seeds])
        half = np.array([0.0 if one.high is None else one.high - one.mean for one in over_seeds])
        style.band(ax, _array(x), mean, mean - half, mean + half, i, label)
        rising = bool(mean[-1] >= mean[0]) if i == 0 else rising
        around = f" ± {half[-1]:.2g}" if len(values) > 1 else ""
        ends.append(f"{label} {mean[-1]:.3g}{around}")
    ax.set_xlabel(x_label)
    ax.set_ylabel(y_label)
    # A corner by the first curve's direction: looking for the emptiest place takes longer than drawing.
    ax.legend(loc="lower right" if rising else "upper right")
    seeds = sorted({len(values) for _, values in curves.values()})
    of = "one seed" if seeds == [1] else f"mean of {'/'.join(map(str, seeds))} seeds, 95 % interval"
    return f"At the end, {y_label}: {', '.join(ends)} ({of})."


def _array(value: Any) -> np.ndarray:
    """A tensor of any device, an array or a nested list as float64."""
    return np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value, dtype=np.float64)


def draw_comparison(ax: Axes, table: Mapping[str, Any]) -> str:
    """The metric by round of every cell of a comparison: the mean of the seeds that gave numbers, thin each of them.

    Best first in the legend, which stands beside the axes. A measure of distance to an optimum that falls through
    orders of magnitude gets a logarithmic axis. A cell without any number is named in the legend alone.
    """
    better = paper(table["paper"]).larger_is_better
    curves = []
    for i, cell in enumerate(table["cells"]):
        x, values = results.curve(cell, table["metric"])
        kept = values.isfinite().all(1) & results.scores(cell, table["metric"]).isfinite()  # no run that diverged
        values = values[kept].numpy() if values.numel() else np.empty((0, 0))
        label = " ".join([cell["method"], *(f"{k}={v}" for k, v in cell["varied"].items())])
        curves.append((label, x.numpy(), values, i))
    drawn = [curve for curve in curves if len(curve[2])]
    for label, x, values, i in sorted(drawn, key=lambda c: c[2][:, -1].mean(), reverse=better):
        look = style.series(i)
        ax.plot(x, values.mean(0), label=label, markevery=max(1, len(x) // 12), **look)
        ax.plot(x, values.T, color=look["color"], linewidth=0.6, alpha=0.5)
    for label, _, _, i in (curve for curve in curves if not len(curve[2])):
        ax.plot([], [], label=f"{label} (no numbers)", **style.series(i))
    shown = np.concatenate([values.ravel() for _, _, values, _ in drawn]) if drawn else np.ones(1)
    low, high = shown.min(), shown.max()
    if not better and low > 0 and high > 100 * low:
        ax.set_yscale("log")
        ax.set_ylim(low / 2, high * 2)
    elif low < high:
        ax.set_ylim(low - 0.08 * (high - low), high + 0.08 * (high - low))
    ax.set(xlabel="round", ylabel=table["metric"], title=f"{table['paper']} on {table['problem']}")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return f"{table['metric']} by round of {len(curves)} cells; {len(curves) - len(drawn)} gave no numbers."


def save_comparison(table: Mapping[str, Any], path: str | Path) -> None:
    """The figure of a comparison (what ``fedbook compare`` returns), written to ``path``."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style.use()
    figure, ax = pyplot.subplots(figsize=(style.WIDE, max(style.HEIGHT, 0.6 + 0.2 * len(table["cells"]))))
    draw_comparison(ax, table)
    figure.savefig(path)
    pyplot.close(figure)

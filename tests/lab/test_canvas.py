import numpy as np
import pytest
from matplotlib.transforms import Bbox

from fedbook.lab.canvas import Canvas


def line(ax, *, top=1.0, title=""):
    ax.plot([0, 1], [0, top], label="a")
    ax.set_xlabel("round")
    ax.set_ylabel("loss")
    ax.set_title(title)
    return f"up to {top}"


def test_a_redraw_is_the_same_whatever_was_drawn_before():
    canvas, fresh = Canvas(), Canvas()
    for canvases in (canvas, fresh):
        canvases.redraw(line, top=3.0)
    canvas.redraw(line, top=17.0)
    assert canvas.redraw(line, top=3.0) == fresh.redraw(line, top=3.0)


@pytest.mark.parametrize("axes", [(1, 1), (2, 2)])
def test_nothing_is_cut_off_when_labels_grow(axes):
    canvas = Canvas(axes)

    def draw(all_axes, *, top, title):
        for ax in np.ravel(all_axes):
            line(ax, top=top, title=title)
        return "drawn"

    for top, title in [(1.0, ""), (123456.0, ""), (0.00012345, "two\nlines"), (5e9, "one")]:
        canvas.redraw(draw, top=top, title=title)
        boxes = [ax.get_tightbbox(canvas.canvas.get_renderer()) for ax in canvas.figure.axes]
        whole = Bbox.union(boxes)
        assert whole.x0 >= -1 and whole.y0 >= -1, (top, title, whole)
        assert whole.x1 <= canvas.figure.bbox.width + 1 and whole.y1 <= canvas.figure.bbox.height + 1
        for i, one in enumerate(boxes):
            assert not any(one.padded(-1).overlaps(other.padded(-1)) for other in boxes[:i])


def test_the_layout_stays_while_it_fits():
    canvas = Canvas()
    canvas.redraw(line, top=1.0)
    before = canvas.figure.axes[0].get_position().bounds
    for top in (42.0, 12345.0):  # five letters have their room from the start
        canvas.redraw(line, top=top)
        assert canvas.figure.axes[0].get_position().bounds == before


def test_a_legend_beside_the_axes_that_grows_is_not_cut_off():
    def draw(ax, *, entries):
        for word in entries:
            ax.plot([0, 1], label=word)
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
        return "lines"

    canvas = Canvas()
    for entries in (["a"], ["a", "a much longer name of a method"], ["a"] * 3):
        canvas.redraw(draw, entries=entries)
        renderer, legend = canvas.canvas.get_renderer(), canvas.figure.axes[0].get_legend()
        assert legend.get_window_extent(renderer).x1 <= canvas.figure.bbox.width + 1


def test_colour_bars_survive_redraws():
    canvas = Canvas()

    def draw(ax, bar=True):
        shown = ax.imshow(np.eye(3))
        if bar:
            ax.figure.colorbar(shown, ax=ax)
        return "drawn"

    first, _ = canvas.redraw(draw)
    canvas.redraw(draw, bar=False)
    assert len(canvas.figure.axes) == 1
    canvas.redraw(draw)
    assert canvas.redraw(draw)[0] == first


def test_an_impure_draw_is_refused():
    import matplotlib.pyplot as plt

    def opens(ax):
        plt.plot([1, 2])
        return "drawn"

    try:
        with pytest.raises(RuntimeError, match="opens opened a figure of its own"):
            Canvas().redraw(opens)
    finally:
        plt.close("all")
    for silent in (None, "  ", 3):
        with pytest.raises(TypeError, match="one sentence"):
            Canvas().redraw(lambda ax, silent=silent: silent)

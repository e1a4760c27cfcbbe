"""The shared figures: what they refuse, and that a row says whether 0 lies in its interval."""

import matplotlib.colors as colors
import pandas as pd
import pytest
from matplotlib.figure import Figure

from fedbook.lab import gallery, results


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.mark.parametrize("other", [(15, 15), (50, 15), (85, 85), (15, 85)])
def test_an_arrow_begins_and_ends_outside_of_its_boxes(ax, other):
    boxes = [gallery.Box(50, 50, 20, 10, "server"), gallery.Box(*other, 20, 10, "client")]
    if other == (50, 15):
        boxes[1] = boxes[1]._replace(x=50)
    gallery.draw_system(ax, boxes, [gallery.Arrow(0, 1, side=2.0)])
    ends = ax.patches[-1]._posA_posB
    for (x, y), box in zip(ends, boxes, strict=True):
        assert abs(x - box.x) >= box.width / 2 or abs(y - box.y) >= box.height / 2


def test_a_forest_is_sorted_and_open_where_zero_lies_inside(ax):
    rows = pd.DataFrame({"mean": [2.0, -1.0], "low": [1.0, -3.0], "high": [3.0, 1.0]}, index=["better", "unclear"])
    gallery.draw_forest(ax, rows, base="plain")
    marks = [line for line in ax.lines if line.get_marker() == "o"]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["unclear", "better"]
    assert colors.same_color(marks[0].get_markerfacecolor(), "white")
    assert not colors.same_color(marks[1].get_markerfacecolor(), "white")


def test_a_forest_of_one_seed_has_no_intervals(ax):
    data = pd.DataFrame({"method": ["a", "b"], "seed": [0, 0], "accuracy": [0.5, 0.7]})
    said = gallery.draw_forest(ax, results.differences(data, "accuracy", base="a"), base="a")
    mark = next(line for line in ax.lines if line.get_marker() == "o")
    assert "b +0.2." in said and colors.same_color(mark.get_markerfacecolor(), "white")


def test_scores_are_sorted_by_their_mean(ax):
    said = gallery.draw_scores(ax, {"low": [0.1, 0.3], "high": [0.8, 0.9]}, chosen="high")
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["low", "high"]
    assert said == "accuracy: high 0.85, low 0.2."

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from fedbook.intervals import mean_interval
from fedbook.lab.draw import draw_curves, draw_images


def axes():
    return Figure(dpi=100).subplots()


def test_images_stand_in_order_and_keep_their_pixels():
    ax = axes()
    x = torch.arange(5).reshape(5, 1, 1, 1).expand(5, 1, 8, 8) / 5
    sentence = draw_images(ax, x, list("abcde"), columns=3)
    shown = ax.images[0].get_array()
    assert shown.shape == (2 * (8 + 6), 3 * 10 - 2) and sentence == "5 images of 8 x 8 pixels: a, b, c, d, e."
    assert np.allclose(shown[6:14, 10:18], 0.2) and np.allclose(shown[20:28, 10:18], 0.8)
    assert shown[20:28, 20:].min() == 1.0  # the sixth place is empty: paper
    assert [t.get_text() for t in ax.texts] == list("abcde")


def test_images_in_bytes_and_colour():
    ax = axes()
    draw_images(ax, torch.full((2, 3, 4, 4), 255, dtype=torch.uint8))
    assert ax.images[0].get_array().shape[-1] == 3 and ax.images[0].get_array().max() == 1.0


@pytest.mark.parametrize(("value", "channels"), [(1.5, 1), (float("nan"), 1), (0.5, 2)])
def test_what_would_be_drawn_as_something_else_is_refused(value, channels):
    with pytest.raises(ValueError, match="^x: got"):
        draw_images(axes(), torch.full((1, channels, 2, 2), value))


def test_curves_show_the_mean_and_the_interval_of_the_book():
    ax = axes()
    x, values = np.arange(1, 4), np.array([[0.1, 0.2, 0.5], [0.2, 0.3, 0.9], [0.4, 0.3, 0.7]])
    sentence = draw_curves(ax, {"fedavg": (x, torch.tensor(values)), "alone": (x, values[:1])})
    known = [mean_interval(column) for column in values.T]
    assert ax.lines[0].get_ydata() == pytest.approx([one.mean for one in known])
    edge = ax.collections[0].get_paths()[0].vertices
    for at, one in zip(x, known, strict=True):
        inside = edge[edge[:, 0] == at][:, 1]
        assert (inside.min(), inside.max()) == pytest.approx((one.low, one.high))
    single = ax.collections[1].get_paths()[0].vertices  # one seed: no width, no claim
    assert single[single[:, 0] == 2][:, 1] == pytest.approx(0.2)
    assert "fedavg 0.7 ± 0.5" in sentence and "alone 0.5 " in sentence
    assert ax.lines[0].get_marker() != ax.lines[1].get_marker()

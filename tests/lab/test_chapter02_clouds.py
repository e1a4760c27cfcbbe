"""Chapter 2's clouds and pictures: what they draw and say is computed here again, with NumPy."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedbook.lab import chapter02_clouds as clouds


def axes(count):
    return Figure().subplots(1, count, squeeze=False)[0]


# --- two clouds


def test_the_second_cloud_is_the_transformed_first():
    a, b = (x.numpy() for x in clouds.two_clouds(90, 2.0, 0.5, "nothing"))
    assert np.allclose(b, 2 * np.stack([-(a[:, 1] + 0.5 * a[:, 0]), a[:, 0]], 1), atol=1e-14)
    a, b = (x.numpy() for x in clouds.two_clouds(0, 4.0, 0, "shift 2"))
    assert np.allclose(a.mean(0), 0) and np.allclose(b - b.mean(0), 4 * a)
    assert np.allclose(b.mean(0), 3 * np.sqrt(np.square(4 * a).mean()))
    moved = clouds.two_clouds(0, 4.0, 0, "shift both")[0].numpy()
    assert np.allclose(moved - a, 3 * np.sqrt(np.square(a).mean()))
    for amount in (0.3, 1.0):
        a, b = (x.numpy() for x in clouds.two_clouds(0, 4.0, 0, f"noise {amount:g}"))
        size = np.sqrt(np.square(b - 4 * a).mean() / np.square(4 * a).mean())
        assert size == pytest.approx(amount, rel=0.3)  # 80 numbers: standard error of 8 %


# --- bytes


def test_crossings_of_powers_are_exact():
    x = np.array([10.0, 70, 300, 5000])
    ax = axes(1)[0]
    curves = {"kernel": 4 * x**2, "rows": 4 * 123 * x, "weights": np.full(4, 4e6)}
    sentence = clouds.draw_bytes(ax, x, curves, "L  images")
    marked = sorted(tuple(line.get_xydata()[0]) for line in ax.lines if line.get_markerfacecolor() == "none")
    assert np.allclose(marked, [(123, 4 * 123**2), (1000, 4e6)])  # rows reach the weights at 8130, beyond the picture
    assert sentence == ("L images = 5,000: kernel 100 MB; rows 2.46 MB; weights 4 MB. "
                        "Equal: kernel and rows at 123 (60.5 kB); kernel and weights at 1,000 (4 MB).")  # fmt: skip
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert np.allclose(ax.lines[1].get_ydata(), 4 * 123 * x)

import struct

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import font_manager
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from fedbook.lab import style


@pytest.fixture(autouse=True)
def defaults():
    """Whatever style a test before has left to the process."""
    with mpl.rc_context():
        mpl.rcdefaults()
        yield


def chunks(png: bytes) -> list[bytes]:
    at, kinds = 8, []
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        kinds.append(png[at + 4 : at + 8])
        at += 12 + length
    return kinds


def figure(size=(6.0, 3.5)) -> Figure:
    made = Figure(figsize=size, dpi=style.DPI)
    ax = made.subplots()
    for i in range(3):
        x = np.arange(30)
        style.band(ax, x, np.sin(x + i), np.sin(x + i) - 0.1, np.sin(x + i) + 0.1, i, f"curve {i}")
    ax.legend()
    return made


def test_series_never_differ_by_colour_alone():
    looks = [tuple(style.series(i).values()) for i in range(28)]
    assert len(set(looks)) == 28 and style.series(28) == style.series(0)
    for i in range(7):
        for j in range(i):
            assert style.series(i)["marker"] != style.series(j)["marker"]


def test_neighbours_differ_for_common_colour_blindness():
    """Deuteranopia and protanopia, simulated by the linear maps of Vienot, Brettel and Mollon (1999)."""
    deutan = np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]])
    protan = np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]])
    colours = np.array([to_rgb(c) for c in style.PALETTE]) ** 2.2
    for seen in (colours @ deutan.T, colours @ protan.T):
        seen = np.clip(seen, 0, 1) ** (1 / 2.2)
        distance = np.linalg.norm(seen[:, None] - seen[None], axis=-1) + 9 * np.eye(len(seen))
        assert distance.min() > 0.1
    assert all(np.dot(to_rgb(c), (0.2126, 0.7152, 0.0722)) < 0.75 for c in style.PALETTE)  # not faint on white


def test_png_is_small_stable_and_says_nothing_of_time_or_version():
    first, second = style.png(figure()), style.png(figure())
    assert first == second and len(first) < 40_000
    assert set(chunks(first)) <= {b"IHDR", b"PLTE", b"IDAT", b"IEND"}
    width, height = struct.unpack(">II", first[16:24])
    assert (width, height) == (660, 385)


def test_small_png_keeps_colours_and_white():
    from io import BytesIO

    from PIL import Image

    made = figure()
    small = np.asarray(Image.open(BytesIO(style.png(made))).convert("RGB")).astype(int)
    exact = np.asarray(made.canvas.buffer_rgba())[..., :3].astype(int)
    assert np.abs(small - exact).mean() < 1.0 and tuple(small[0, 0]) == (255, 255, 255)
    quick = np.asarray(Image.open(BytesIO(style.quick_png(exact.astype(np.uint8)))))
    assert (quick == exact).all()


@pytest.mark.parametrize("how", ["use", "used"])
def test_a_formula_finds_its_fonts_where_the_cache_has_none(monkeypatch, how):
    manager, own = font_manager.fontManager, mpl.get_data_path()
    others = [font for font in manager.ttflist if not font.fname.startswith(own)]
    monkeypatch.setattr(manager, "ttflist", others)
    with mpl.rc_context():
        if how == "use":
            style.use()
        else:
            with style.used():
                assert mpl.rcParams["axes.grid"] is True
    names = font_manager.get_font_names()
    assert {"DejaVu Sans", "DejaVu Sans Display", "STIXGeneral", "STIXSizeOneSym", "cmmi10"} <= set(names)

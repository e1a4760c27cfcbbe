"""Widgets without a kernel: what a commit keeps beside the notebook is what the widget shows, and a page can use it."""

import base64
import io
import json
import re

import nbformat
import numpy as np
import pytest
from bs4 import BeautifulSoup
from PIL import Image

from fedbook.book import frames
from fedbook.book.commit import commit_chapter
from fedbook.book.page import ASSETS
from fedbook.lab.canvas import Canvas

WIDGETS = """from fedbook.lab.controls import choice, log_slider, player, slider, switch
from fedbook.lab.explore import explore


def draw(ax, *, rate, k, split="iid", noisy=False):
    ax.plot([0, k], [0, rate])
    ax.set(xlim=(0, 40), ylim=(0, 50))  # the same layout whatever was drawn before
    return f"rate {rate:g}, {k} clients, {split}, {noisy}"


rate = log_slider("r  rate (ms)", 0.1, 5000.0, 10.0)
split = choice("split", ["iid", "<shards>"], "iid")
k, noisy = slider("k  clients", 0, 40, 1, 5), switch("n  noise", False)
explore(draw, presets={"both": {"rate": 30.0, "k": 7}}, rate=rate, k=k, split=split, noisy=noisy)
explore(lambda ax, *, t: f"round {t}", t=player("t  round", 0, 9, 1, 0));"""
PLAYER = """from matplotlib import animation, pyplot as plt
from IPython.display import HTML, display
figure, ax = plt.subplots(figsize=(1, 1))
(line,) = ax.plot([0, 1])
moving = animation.FuncAnimation(figure, lambda i: line.set_ydata([0, i]), frames=2)
display(HTML(moving.to_jshtml()))
plt.close(figure)"""


@pytest.fixture(scope="module")
def committed(mini, exempt, tmp_path_factory):
    """Path of a committed notebook, and the bytes of notebook and frames."""
    path = tmp_path_factory.mktemp("frames") / "00_start_here.ipynb"
    cells = [mini.code(WIDGETS, "widget"), mini.code(PLAYER)]
    mini.write(path, mini.code(mini.parameters, "parameters"), *cells)
    commit_chapter(path)
    return path, (path.read_bytes(), frames.frames_path(path).read_bytes())


def values_of(album, key):
    return [control["texts"][int(i)] for control, i in zip(album["controls"], key.split(","), strict=True)]


def pixels(encoded):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB")).astype(int)


def test_the_notebook_stays_small_and_the_same_bytes_come_twice(committed):
    path, (notebook, kept) = committed
    drawn = {}
    exec(WIDGETS.replace("explore(draw,", "again = explore(draw,"), drawn)
    again = frames.load(path)
    assert again["cell-1"][0] == drawn["again"].frames()
    frames.write(path, again)
    assert frames.frames_path(path).read_bytes() == kept
    assert b"vnd.fedbook.frames" not in notebook and b"interactive figure" in notebook
    assert b"http" not in re.sub(rb"https?://www.w3.org", b"", notebook)  # the player loads nothing
    assert sorted(one.name for one in path.parent.iterdir()) == ["00_start_here.ipynb", "frames"]


def test_frames_hold_what_the_widget_shows(committed):
    loaded = frames.load(committed[0])
    many, moving = loaded["cell-1"]
    names = {}
    exec(WIDGETS.split("rate =")[0], names)
    canvas, compared = Canvas(), []
    assert len(many["frames"]) > 20
    for key, (picture, sentence) in many["frames"].items():
        rate, k, split, noisy = values_of(many, key)
        rate = float(rate.removesuffix(" ms").replace(",", ""))
        shown, said = canvas.redraw(names["draw"], rate=rate, k=int(k), split=split, noisy=noisy == "on")
        assert many["sentences"][sentence] == said
        if [int(i) for i in key.split(",")] in (many["start"], many["presets"][0]["at"]):
            compared.append(key)
            exact = np.asarray(Image.open(io.BytesIO(shown)).convert("RGB")).astype(int)
            assert np.abs(pixels(many["pictures"][picture]) - exact).mean() < 1.0
    assert len(compared) == 2
    assert values_of(many, ",".join(map(str, many["presets"][0]["at"]))) == ["30 ms", "7", "iid", "off"]
    assert [control["texts"][0] for control in many["controls"][:2]] == ["0.1 ms", "0"]
    assert [control["texts"][-1] for control in many["controls"][:2]] == ["5,000 ms", "40"]
    assert moving["sentences"] == [f"round {t}" for t in range(10)] and len(moving["pictures"]) == 1  # drawn the same


def test_every_position_has_its_frame(committed):
    """One control moved from the start has a frame of its own, whichever it is: the script has nothing to ask for."""
    for album in sum(frames.load(committed[0]).values(), []):
        for i, control in enumerate(album["controls"]):
            for at in range(len(control["texts"])):
                assert ",".join(map(str, [*album["start"][:i], at, *album["start"][i + 1 :]])) in album["frames"]


def test_controls_are_native_named_and_say_their_values(committed):
    many, moving = frames.load(committed[0])["cell-1"]
    soup, player = (BeautifulSoup(frames.fragment(one), features="html.parser") for one in (many, moving))
    rate, k, split, noisy = (soup.find(attrs={"data-control": str(i)}) for i in range(4))
    for one, label in ((rate, "r  rate (ms)"), (k, "k  clients"), (split, "split"), (noisy, "n  noise")):
        assert one.find_parent("label").find(class_="frames-label").get_text() == label
    assert (rate["type"], rate["aria-valuetext"], k["aria-valuetext"]) == ("range", "10 ms", "5")
    assert [option.get_text() for option in split.find_all("option")] == ["iid", "<shards>"]
    assert noisy["type"] == "checkbox" and not noisy.has_attr("checked")
    assert [button.get_text() for button in soup.find_all("button")] == ["Reset", "both"]
    live = soup.find(attrs={"aria-live": "polite"})
    assert live.get_text() == "rate 10, 5 clients, iid, False" and soup.img["src"].startswith("data:image/webp")
    assert [button.get_text() for button in player.find_all("button")] == ["Play"]


def test_a_page_has_each_widget_once_and_nothing_from_outside(committed):
    book = nbformat.read(committed[0], as_version=4)
    assert frames.place(book, frames.load(committed[0]))
    cells = [[output.get("data", {}) for output in cell.get("outputs", [])] for cell in book.cells]
    assert [list(data) for data in cells[1]] == [["text/html"]] * 2  # no sentence is left over
    data = json.loads(BeautifulSoup(cells[1][0]["text/html"], features="html.parser").script.string)
    assert set(data) == {"start", "frames", "sentences", "pictures", "texts"}
    for name in ("frames.css", "frames.js"):
        assert not re.search(r"https?:|url\(|@import", (ASSETS / name).read_text(encoding="utf-8"))
    for button in BeautifulSoup(cells[2][0]["text/html"], features="html.parser").find_all("button"):
        assert button.get_text(strip=True) and not button.find("i")


def test_frames_that_do_not_fit_are_refused(committed, monkeypatch):
    path, first = committed
    book = nbformat.reads(first[0].decode(), as_version=4)
    book.cells[1].outputs = []
    other = path.parent / "other" / path.name
    other.parent.mkdir()
    frames.frames_path(other).parent.mkdir()
    frames.frames_path(other).write_bytes(first[1])
    nbformat.write(book, other)
    with pytest.raises(ValueError, match="cell-1"):
        frames.load(other)
    monkeypatch.setattr(frames, "MOST_BYTES", 10)
    with pytest.raises(ValueError, match="allowed is 10"):
        frames.write(path, frames.load(path))
    assert frames.frames_path(path).read_bytes() == first[1]
    frames.write(other, {})
    assert frames.load(other) == {}

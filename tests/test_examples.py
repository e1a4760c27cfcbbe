"""The examples with one's own data and model run as they stand, and learn."""

import math
import runpy
from pathlib import Path

import pytest
import torch
from PIL import Image

from fedbook.papers import NAMES

ROOT = Path(__file__).parents[1]
LAST = {"fedavg": 0.85, "dp2_fedsam": 0.6, "cvfl": 0.8, "nodes": 0.85}  # accuracies well above those of guessing


@pytest.mark.parametrize("name", [*NAMES, "nodes"])
def test_the_example_of_a_paper_runs_and_learns(name, capsys):
    torch.manual_seed(1)  # another state than the example's own
    shown = runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    history = shown["rounds"].history
    assert shown["rounds"].stopped is None and len(history) == shown["rounds"].total
    assert len(capsys.readouterr().out.splitlines()) >= 3
    if name in LAST:
        assert history[-1].metrics["accuracy"][0] > LAST[name]
    elif name == "prirfed":
        assert history[-1].metrics["distance"][0] < 0.2
        assert 0 < shown["rounds"].privacy[0].report(1e-4)["epsilon"] < math.inf
    else:
        assert history[-1].trace["loss"][0] < history[0].trace["loss"][0]


def test_the_moving_picture_shows_every_round_of_a_run(tmp_path):
    """The committed one, and one made here of a small run."""
    script = runpy.run_path(str(ROOT / "examples" / "moving_picture.py"))
    script["write"](tmp_path / "two.gif", rounds=2, train_samples=400, test_samples=100)
    committed = ROOT / "notebooks" / "images" / "federation.gif"
    for path, rounds in ((tmp_path / "two.gif", 2), (committed, 20)):
        with Image.open(path) as picture:
            assert picture.n_frames == 2 * rounds and picture.size == (860, 360)
    assert committed.stat().st_size <= 400_000 and "notebooks/images/federation.gif" in (ROOT / "README.md").read_text()


def test_the_readme_links_every_example():
    text = (ROOT / "README.md").read_text()
    assert all(f"examples/{name}.py" in text for name in NAMES)

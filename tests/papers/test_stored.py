"""Every stored comparison is whole, was tuned as it says, and says how to repeat it."""

import json
from pathlib import Path

import pytest

from fedbook.lab.results import rounds_to_reach, stored
from fedbook.papers import paper

PATHS = sorted((Path(__file__).parents[2] / "data" / "results").glob("0[0-6]_*.json"))


@pytest.mark.parametrize("path", [path for path in PATHS if path.stem != "00_cost"], ids=lambda path: path.stem)
def test_a_stored_table_is_whole(path):
    table = json.loads(path.read_text())
    assert {"settings", "seeds", "commit", "torch", "tuning", "device"} <= set(table)
    shortest = min(run["seconds"] for cell in table["cells"] for run in cell["runs"])
    one_will_do = table["profile"] == "paper" or shortest > 3000  # the papers' size, or 50 minutes a run
    assert table["seeds"] >= (1 if one_will_do else 3)
    assert len({(cell["method"], str(cell["varied"])) for cell in table["cells"]}) == len(table["cells"]) > 0
    for cell in table["cells"]:
        assert len(cell["runs"]) == table["seeds"]
        tried = [(entry["mean"] is not None, entry["mean"], entry["settings"]) for entry in cell["tried"]]
        assert not tried or cell["tuned"] == max(tried, key=lambda entry: entry[:2])[2]


def test_the_tables_of_all_methods_lack_none():
    for name in ("01_digits", "02_digits"):
        table = stored(name)
        assert {cell["method"] for cell in table["cells"]} == set(paper(table["paper"]).methods)
    claims = [(cell["method"], run["epsilon"]) for cell in stored("01_digits")["cells"] for run in cell["runs"]]
    assert all(claim is None for method, claim in claims if method not in ("local-sc", "random-encoder", "raw-pixels"))


@pytest.mark.parametrize("steps", [1, 10, 25])
def test_the_grid_of_chapter_5_is_whole(steps):
    table = stored(f"05_mnist_q{steps}")
    grid = {(cell["varied"]["compressor"], cell["varied"]["bits"]): cell for cell in table["cells"]}
    lossy = {(name, bits) for name in ("scalar", "hex", "topk", "randomk") for bits in (2, 3, 4)}
    assert grid.keys() == {("none", 32)} | lossy and table["settings"]["local_steps"] == steps
    for cell in grid.values():
        assert cell["curve"]["bytes"][0][-1] == cell["runs"][0]["bytes_up"] + cell["runs"][0]["bytes_down"]
    assert all(v is not None for v in rounds_to_reach(grid["none", 32], 0.9))

"""The benchmark beside other simulators: all ways end at the same parameters. No timing."""

import json
import sys

import pytest
import torch

from benchmarks import chapters, peers


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_the_command_runs_without_the_simulators_and_its_loops_end_alike(monkeypatch, tmp_path):
    for package in ("flwr", "ray", "pfl"):
        monkeypatch.setitem(sys.modules, package, None)
    assert peers.main(["--clients", "3", "--rounds", "1", "--write", str(tmp_path / "table.json")]) == 0
    table = json.loads((tmp_path / "table.json").read_text())
    (row,) = table["rows"]
    assert set(row["ms"]) == set(row["apart"]) == {"fedbook", "local", "modules", "vmap", "stacked 10"}
    assert max(row["apart"].values()) < 1e-6


def test_a_way_that_takes_other_batches_is_refused(monkeypatch):
    ways = peers.ours(3)
    wrong = dict(ways, local=lambda t: peers.start())
    monkeypatch.setattr(peers, "ours", lambda clients: wrong)
    with pytest.raises(RuntimeError, match="local is"):
        peers.row(3, 1, tuple(peers.PEERS))


def test_pfl_ends_where_the_loop_ends():
    pytest.importorskip("pfl")
    assert peers.row(3, 2, ["Flower"])["apart"]["pfl"] < 1e-6


def test_flowers_client_trains_as_the_loop_does():
    theta = [peers.client(peers.start(), 3, k, 0) for k in range(3)]
    loop = peers.ours(3)["modules"](0)
    for name, v in loop.items():
        assert torch.allclose(v, sum(one[name] for one in theta) / 3, atol=1e-6)


def test_the_chapters_ways_agree_and_are_written(tmp_path):
    pairs = chapters.pairs(tiny=True)
    for name, (_, _, ours, plain) in pairs.items():
        if name.startswith(("FedSC", "CKA")):
            a, b = (torch.stack([*way()]) if name[0] == "F" else way() for way in (ours, plain))
            assert torch.allclose(a, b, rtol=1e-5)
    assert chapters.main(["--tiny", "--repeats", "1", "--write", str(tmp_path / "table.json")]) == 0
    assert len(json.loads((tmp_path / "table.json").read_text())["rows"]) == len(pairs)

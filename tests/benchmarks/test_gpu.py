"""What runs on a GPU the day there is one: at tiny size on the CPU it runs, and all ways end alike."""

import json

import torch
from torch import nn

from benchmarks import gpu, gpu_paper
from fedbook import experiment, papers
from fedbook.learning.encoders import encoder
from fedbook.randomness import normal, stream


def test_the_command_stores_a_table_at_tiny_size(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "TABLES", {"mlp": gpu.TABLES["mlp"]})
    assert gpu.main(["--tiny", "--out", str(tmp_path)]) == 0
    (row,) = json.loads((tmp_path / "gpu_mlp.json").read_text())["rows"]
    assert row["apart"].keys() == {"local", "vmap", "stacked", "stacked 10"} and max(row["apart"].values()) < 1e-5
    assert not row["failed"] and min(row["ms"].values()) > 0


def test_a_way_that_fails_is_named_and_the_others_are_measured():
    ways = {name: lambda v=v: {"w": torch.tensor([0.0, v])} for name, v in (("modules", 1.0), ("vmap", 1.5))}
    found = gpu.compared(ways | {"graph": lambda: ways["none"]}, "cpu")
    assert found["ms"].keys() == ways.keys() and found["apart"] == {"vmap": 0.5}
    assert found["failed"] == {"graph": "KeyError: 'none'"}


def test_the_operations_are_those_of_forward_and_backward():
    net = encoder("mlp", (1, 8, 8), 4)
    sizes = [2 * 32 * m.in_features * m.out_features for m in net.module.modules() if isinstance(m, nn.Linear)]
    x, theta = normal((32, 1, 8, 8), stream(0, "x")).float(), net.init(stream(0, "start"))
    matrix = 2 * 32 * 4 * 4  # the loss's own
    found = gpu.counted(lambda: gpu.step(net, theta, x, mixed=True))
    assert 0 <= found - (3 * sum(sizes) - sizes[0]) <= 5 * matrix


def test_every_entry_is_one_that_the_command_knows_and_what_is_missing_is_said(tmp_path, monkeypatch, capsys):
    found = gpu_paper.commands(False)
    assert len(found) == len(gpu_paper.ORDER)
    for _, paper, *words in found.values():
        given = dict(zip(words[0::2], words[1::2], strict=True))
        changes = dict([given["--set"].split("=")]) if "--set" in given else {}
        plan = papers.paper(paper), given["--method"], given["--problem"], given["--profile"], changes
        assert experiment.plan(*plan, device="cpu").profile == "paper" and given["--device"] == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu_paper, "data_files", lambda: {"part_a": "ok", "part_b": "missing"})
    assert gpu_paper.main(["--out", str(tmp_path / "out")]) == 2 and not (tmp_path / "out").exists()
    said = capsys.readouterr().out
    assert "GPU" in said and "part_b" in said and "part_a" not in said and "FEDBOOK_DATA" in said

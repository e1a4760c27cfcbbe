"""What runs on a GPU the day there is one: stored as it ends, within its budget, gone on with, the same numbers."""

import json
import math
import time

import pytest
import torch
from torch import nn

from benchmarks import gpu, gpu_paper
from fedbook import experiment, papers
from fedbook.learning.encoders import encoder
from fedbook.randomness import normal, stream


@pytest.mark.slow
def test_all_tables_at_tiny_size_and_not_again(tmp_path, monkeypatch):
    assert gpu.main(["--tiny", "--out", str(tmp_path)]) == 0
    tables = {name: json.loads((tmp_path / f"gpu_{name}.json").read_text()) for name in gpu.TABLES}
    for name, table in tables.items():
        assert {word: table[word] for word in gpu.stamp(True)} == gpu.stamp(True) and table["seconds"] > 0
        for row in table["rows"]:
            assert not row["failed"] and all(ms > 0 for ms in row.get("ms", {}).values()), name
            assert all(distance < 1e-5 for distance in row.get("apart", {}).values()), row
    assert tables["mlp"]["rows"][0]["apart"].keys() == {"local", "vmap", "stacked", "stacked 10"}
    assert tables["encoder"]["rows"][0]["share"].keys() == {"full", "mixed", "mixed, channels last"}
    asked, path = [], tmp_path / "gpu_cnn.json"
    monkeypatch.setattr(gpu, "TABLES", {name: lambda device: asked.append(device) or [] for name in tables})
    path.write_text(json.dumps(tables["cnn"] | {"commit": "another"}))
    assert gpu.main(["--tiny", "--out", str(tmp_path)]) == 0 and asked == ["cpu"]
    assert json.loads(path.read_text())["rows"] == []


def test_the_budget_ends_a_call_and_the_next_goes_on(tmp_path, monkeypatch):
    asked, seconds = [], {"one": 0.0, "two": 60.0, "three": 0.0}

    def rows(name, device):
        asked.append(name)
        time.sleep(seconds[name])
        return [{"failed": {}}]

    monkeypatch.setattr(gpu, "TABLES", {name: gpu.partial(rows, name) for name in seconds})
    begun, words = time.monotonic(), ["--tiny", "--out", str(tmp_path), "--budget"]
    assert gpu.main([*words, "3"]) == 0 and asked == ["one", "two"] and time.monotonic() - begun < 30
    assert [path.name for path in tmp_path.iterdir()] == ["gpu_one.json"]
    seconds["two"] = 0.0
    assert gpu.main([*words, "300"]) == 0 and asked == ["one", "two", "two", "three"]


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


@pytest.mark.slow
def test_two_pieces_are_one_run(tmp_path, monkeypatch):
    """The first piece ends when three rounds are there, before the long entry's end; the second has all the time."""
    first = next(iter(gpu_paper.commands(True)))
    state = tmp_path / "cut" / "gpu-paper" / first.replace(" ", "_")

    def table(name, clock):
        monkeypatch.setattr(gpu_paper, "clock", clock)
        assert gpu_paper.main(["--tiny", "--out", str(tmp_path / name)]) == 0
        return json.loads((tmp_path / name / gpu_paper.TABLE).read_text())

    whole = table("whole", lambda: 0.0)
    begun = table("cut", lambda: math.inf if gpu_paper.rounds(state) >= 3 else 0.0)
    assert begun.keys() == {first} and "result" not in begun[first]
    end = begun[first]["pieces"][0]["rounds"][1]
    cut = table("cut", lambda: 0.0)
    assert 3 <= end < 60 and [piece["rounds"] for piece in cut[first]["pieces"]] == [[0, end], [end, 60]]
    assert cut.keys() == whole.keys() == gpu_paper.commands(True).keys()
    for name in whole:
        for entry in (whole[name], cut[name]):
            del entry["result"]["seconds"]
        assert all(cut[name][part] == whole[name][part] for part in ("command", "settings", "result"))

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
        assert table["device"] == "cpu, tiny" and table["torch"] == torch.__version__ and table["seconds"] > 0
        assert table["commit"] == experiment.commit() and not any(row["failed"] for row in table["rows"]), name
        for row in table["rows"]:
            assert all(ms > 0 for ms in row.get("ms", {}).values())
            assert all(distance < 1e-5 for distance in row.get("apart", {}).values()), row
    assert tables["mlp"]["rows"][0]["ms"].keys() >= {"modules", "vmap", "stacked"}
    assert tables["encoder"]["rows"][0]["share"].keys() == {"full", "mixed", "mixed, channels last"}
    asked = []
    monkeypatch.setattr(gpu, "TABLES", {name: lambda *given: asked.append(given) or [] for name in tables})
    path = tmp_path / "gpu_cnn.json"
    path.write_text(json.dumps(tables["cnn"] | {"commit": "another"}))
    assert gpu.main(["--tiny", "--out", str(tmp_path)]) == 0 and asked == [("cpu", True)]
    assert json.loads(path.read_text())["rows"] == []


def test_the_budget_ends_a_call_and_the_next_goes_on(tmp_path, monkeypatch):
    asked, seconds = [], {"one": 0.0, "two": 60.0, "three": 0.0}

    def rows(name):
        asked.append(name)
        time.sleep(seconds[name])
        return [{"failed": {}}]

    monkeypatch.setattr(gpu, "TABLES", {name: lambda device, tiny, name=name: rows(name) for name in seconds})
    begun = time.monotonic()
    words = ["--tiny", "--out", str(tmp_path), "--budget", "3"]
    assert gpu.main(words) == 0 and asked == ["one", "two"] and time.monotonic() - begun < 30
    assert [path.name for path in tmp_path.iterdir()] == ["gpu_one.json"]
    seconds["two"] = 0.0
    assert gpu.main([*words[:-1], "300"]) == 0 and asked == ["one", "two", "two", "three"]


def test_a_way_that_fails_is_named_and_the_others_are_measured():
    def broken():
        raise RuntimeError("no such kernel")

    ways = {name: lambda v=v: {"w": torch.tensor([0.0, v])} for name, v in (("modules", 1.0), ("vmap", 1.5))}
    found = gpu.compared(ways | {"graph": broken}, "cpu", 1)
    assert found["ms"].keys() == found["apart"].keys() | {"modules"} == {"modules", "vmap"}
    assert found["apart"] == {"vmap": 0.5} and found["failed"] == {"graph": "RuntimeError: no such kernel"}


def test_the_operations_are_those_of_forward_and_backward():
    net = encoder("mlp", (1, 8, 8), 4)
    sizes = [
        2 * 32 * layer.in_features * layer.out_features
        for layer in net.module.modules()
        if isinstance(layer, nn.Linear)
    ]
    x = normal((16, 2, 1, 8, 8), stream(0, "x")).float()
    step = gpu.step_of(net, net.init(stream(0, "start")), x, "full", False)
    loss = 3 * 2 * 32 * 4 * 4  # the correlation matrix
    assert 3 * sum(sizes) - sizes[0] == pytest.approx(gpu.counted(step), abs=2 * loss)


def test_every_entry_of_the_order_is_one_that_the_command_knows():
    found = gpu_paper.commands(False)
    assert len(found) == len(gpu_paper.ORDER)
    for word, paper, *rest, device_option, device, profile_option, profile in found.values():
        given = dict(zip(rest[0::2], rest[1::2], strict=True))
        changes = dict([given["--set"].split("=")]) if "--set" in given else {}
        assert (word, device_option, device, profile_option) == ("run", "--device", "cuda", "--profile")
        experiment.plan(papers.paper(paper), given["--method"], given["--problem"], profile, changes, device="cpu")


def test_what_is_missing_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(gpu_paper, "data_files", lambda: {"a": "ok", "b": "missing"})
    assert gpu_paper.main(["--out", str(tmp_path / "out")]) == 2 and not (tmp_path / "out").exists()
    said = capsys.readouterr().out
    assert "GPU" in said and "  b of cifar10" in said and "  a of" not in said and "FEDBOOK_DATA" in said


@pytest.mark.slow
def test_two_pieces_are_one_run(tmp_path, monkeypatch):
    """The first piece ends when three rounds are there, before the long entry's end; the second has all the time."""
    first = next(iter(gpu_paper.commands(True)))
    run = tmp_path / "cut" / "state" / first.replace(" ", "_")
    words = [["--tiny", "--out", str(tmp_path / name)] for name in ("whole", "cut")]
    monkeypatch.setattr(gpu_paper, "clock", lambda: 0.0)
    assert gpu_paper.main(words[0]) == 0
    monkeypatch.setattr(gpu_paper, "clock", lambda: math.inf if gpu_paper.rounds(run) >= 3 else 0.0)
    assert gpu_paper.main(words[1]) == 0
    ((name, begun),) = json.loads((tmp_path / "cut" / gpu_paper.TABLE).read_text()).items()
    assert name == first and "result" not in begun and 3 <= begun["pieces"][0]["to"] < 60
    monkeypatch.setattr(gpu_paper, "clock", lambda: 0.0)
    assert gpu_paper.main(words[1]) == 0
    whole, cut = (json.loads((tmp_path / name / gpu_paper.TABLE).read_text()) for name in ("whole", "cut"))
    assert cut.keys() == whole.keys() == gpu_paper.commands(True).keys()
    assert [piece["from"] for piece in cut[first]["pieces"]] == [0, cut[first]["pieces"][0]["to"]]
    for name in whole:
        for table in (whole, cut):
            del table[name]["result"]["seconds"]
        assert cut[name]["result"] == whole[name]["result"] and cut[name]["settings"] == whole[name]["settings"]
        assert [len(whole[name]["pieces"]), cut[name]["pieces"][-1]["to"]] == [1, whole[name]["pieces"][0]["to"]]

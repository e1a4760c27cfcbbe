"""The benchmark of local training: it measures what the algorithms do and chooses by its rule.

No timing is asserted.
"""

import json
import sys

import pytest
import torch
from torch import nn

from benchmarks import local_training as benchmark
from fedbook.federation.local import choose, local_steps
from fedbook.federation.tree import leaves
from fedbook.learning import encoders
from fedbook.papers.cvfl import CVFL, Config, towers
from fedbook.papers.cvfl.problem import VerticalSettings, vertical_problem

TABLE = benchmark.CHOICES


def moved(setting, how, chunk=None):
    return local_steps(setting.step, setting.carry, setting.data, setting.batches, how=how, chunk=chunk)[0]["theta"]


@pytest.mark.parametrize("kind", ["mlp16", "tower mlp", "tower cnn", "encoder mlp"])
def test_the_ways_train_the_same(kind):
    setting = benchmark.setting(kind, 3, "cpu")
    alone = dict(leaves(moved(setting, "loop")))
    for chunk in (1, 2, 20):
        together = dict(leaves(moved(setting, "vmap", chunk)))
        assert all(torch.allclose(together[key], alone[key], rtol=0, atol=1e-5) for key in alone)
    starts = dict(leaves(setting.carry["theta"]))
    assert any(not torch.allclose(alone[key], starts[key], rtol=0, atol=1e-3) for key in alone)
    if kind not in benchmark.MODELS:
        return
    before = {key: v.clone() for key, v in starts.items()}
    benchmark.modules(setting)
    assert all(torch.equal(starts[key], before[key]) for key in starts)  # every repetition starts from the same


@pytest.mark.parametrize("kind", ["mlp16", "cnn_small", "tower mlp", "tower cnn"])
def test_what_one_writes_by_hand_ends_where_the_package_does(kind):
    means = {way: function() for way, function in benchmark.by_hand(kind, 3).items() if way != "round"}
    for way, mean in means.items():
        for name, v in means["modules"].items():
            assert torch.allclose(mean[name], v, rtol=0, atol=1e-5), (way, name)


def test_the_table_beside_what_is_written_by_hand(monkeypatch, tmp_path):
    path, before = tmp_path / "beside.json", torch.get_num_threads()
    words = ["--by-hand", str(path), "--clients", "2,3", "--repeats", "1", "--kinds", "mlp16,tower mlp"]
    monkeypatch.setattr(sys, "argv", ["benchmark", *words])
    benchmark.main()
    torch.set_num_threads(before)
    rows = json.loads(path.read_text())["rows"]
    assert [(row["kind"], row["clients"]) for row in rows] == [(k, n) for k in ("mlp16", "tower mlp") for n in (2, 3)]
    by_hand = {"modules", "vmap", "stacked", "stacked 10"}
    assert [row["ms"].keys() - by_hand for row in rows] == [{"round", "local"}] * 2 + [{"local"}] * 2
    assert all(row["ms"].keys() > by_hand and min(row["ms"].values()) > 0 for row in rows)


def test_an_encoder_takes_a_client_s_steps():
    """Against a module, its loss written out, and torch.optim.SGD; two views of 64 samples a step."""
    setting = benchmark.setting("encoder cnn", 2, "cpu")
    found, width = moved(setting, "vmap", 5), benchmark.ENCODER_WIDTH
    assert setting.batches.index.shape == (benchmark.ENCODER_STEPS, 2, benchmark.ENCODER_BATCH)
    module = setting.net.build()
    module.load_state_dict({name: v[1] for name, v in setting.carry["theta"].items()})
    optimiser = torch.optim.SGD(module.parameters(), lr=1e-3)
    for rows in setting.batches.index[:, 1]:
        optimiser.zero_grad()
        first, second = (module(view) for view in setting.data.samples["x"][rows].unbind(1))
        assert first.shape == (64, width)
        matrix = (first.T @ first + second.T @ second) / 128
        (0.5 * matrix.square().sum() - (first * second).sum(1).mean()).backward()
        optimiser.step()
    for name, p in module.named_parameters():
        assert torch.allclose(found[name][1], p, rtol=0, atol=1e-5)
        assert not torch.equal(setting.carry["theta"][name][1], p)


@pytest.mark.parametrize("kind", ["tower linear", "tower mvcnn", "tower lstm"])
def test_a_tower_takes_a_party_s_steps(kind):
    """Against a module, torch.cat and torch.optim.SGD, at two places among the four parties."""
    setting = benchmark.setting(kind, 6, "cpu")
    found, fixed, width = moved(setting, "vmap", 20), setting.carry["fixed"], benchmark.WIDTH
    assert setting.batches.index.shape == (benchmark.TOWER_STEPS, 6, benchmark.TOWER_BATCH)
    for r in (1, 4):
        module = setting.net.build()
        module.load_state_dict({name: v[r] for name, v in setting.carry["theta"].items()})
        optimiser, own = torch.optim.SGD(module.parameters(), lr=0.1), width * (r % benchmark.PARTIES)
        others, (weight, bias) = fixed["others"][r], (v[r] for v in fixed["theta0"].values())
        for rows in setting.batches.index[:, r]:
            optimiser.zero_grad()
            h = module(setting.data.samples["x"][rows])
            logits = torch.cat([others[:, :own], h, others[:, own + width :]], 1) @ weight.T + bias
            nn.functional.cross_entropy(logits, setting.data.samples["y"][rows]).backward()
            optimiser.step()
        for name, p in module.named_parameters():
            assert torch.allclose(found[name][r], p, rtol=0, atol=1e-5)
            assert not torch.equal(setting.carry["theta"][name][r], p)


def test_every_tower_and_encoder_is_measured_and_what_vertical_learning_asks_for():
    table = json.loads(TABLE.read_text())
    assert benchmark.TOWERS.keys() == {f"tower {name}" for name in towers.TOWERS}
    for name in ("linear", "lstm"):
        problem = "series" if name == "lstm" else "digits"
        task = vertical_problem(problem, VerticalSettings(tower=name, train_samples=20, test_samples=20))
        assert CVFL(Config(batch_size=5), task).kind == f"tower {name}"
    assert benchmark.ENCODERS.keys() == {f"encoder {name}" for name in encoders.ENCODERS}
    for kind, shape in benchmark.ENCODERS.items():
        assert encoders.encoder(kind.removeprefix("encoder "), shape, 8).kind == kind
    for kind in (*benchmark.TOWERS, *benchmark.ENCODERS):
        assert choose("cpu", kind) == tuple(table["choice"]["cpu"][kind])
    for kind in benchmark.ALL:
        rows = [row for row in table["measured"]["cpu"]["rows"] if row["kind"] == kind]
        assert tuple(row["clients"] for row in rows) == benchmark.sizes(kind)
        assert benchmark.choices(rows) == {kind: table["choice"]["cpu"][kind]}


def test_the_least_worst_ratio_is_chosen():
    rows = [
        {"kind": "a", "clients": 4, "ms": {"modules": 1.0, "loop": 10.0, "vmap 4": 12.0, "vmap 20": 12.0}},
        {
            "kind": "a",
            "clients": 20,
            "ms": {"modules": 2.0, "together": 4.0, "loop": 50.0, "vmap 4": 40.0, "vmap 20": 90.0},
        },
        {"kind": "b", "clients": 4, "ms": {"loop": 3.0, "vmap 4": 4.0, "vmap 20": 6.0}},
    ]
    # a: 50/40 and 12/10 against 12/10 and 90/40
    assert benchmark.choices(rows) == {"a": ["vmap", 4], "b": ["loop", None]}


def test_a_part_keeps_the_other_rows():
    row = {"clients": 4, "ms": {"loop": 1.0, "vmap 4": 2.0}}
    known = benchmark.merged({}, "cpu", [row | {"kind": "a"}, row | {"kind": "b"}])
    known = benchmark.merged(known, "cuda", [row | {"kind": "b"}])
    found = benchmark.merged(known, "cpu", [row | {"kind": "b", "clients": 2}])
    assert found["choice"]["cuda"] == known["choice"]["cuda"]
    assert found["measured"]["cuda"] == known["measured"]["cuda"]
    assert found["choice"]["cpu"].keys() == {"a", "b"}
    assert [one["clients"] for one in found["measured"]["cpu"]["rows"]] == [4, 2]

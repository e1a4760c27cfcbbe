"""The history: values by metric, None for what JSON cannot hold, and back from its state."""

import csv
import json
import math

import pytest
import torch

from fedbook.federation import Federation, History, Record, Rounds
from fedbook.federation.history import finite
from fedbook.learning.models import model
from fedbook.papers.fedavg import Config, FedAvg
from fedbook.partition import Partition


def record(t, **metrics):
    return Record(t, metrics, {}, [2, 3], [10 * t, 1], [20, 2], seconds=0.1)


def test_values_are_those_of_the_evaluated_rounds():
    history = History(
        [record(0), record(1, accuracy=[0.5, None], loss=[1.0, 2.0]), record(2), record(3, accuracy=[0.75, 1.0])]
    )
    rounds, values = history.values("accuracy")
    assert rounds.tolist() == [2, 4] and values.shape == (2, 2)
    assert values[0].tolist() == [0.5, 0.75] and math.isnan(values[1, 0]) and values[1, 1] == 1.0
    assert history.values("loss")[1].tolist() == [[1.0], [2.0]]
    with pytest.raises(KeyError, match=r"got 'auc'.*\['accuracy', 'loss'\]"):
        history.values("auc")


def test_bytes_and_json_round_trip(tmp_path):
    history = History([record(0), record(1, accuracy=[0.5, None])])
    assert history.bytes_total() == (10, 40)
    history.save(tmp_path / "history.json")
    text = (tmp_path / "history.json").read_text()
    assert History.from_state(json.loads(text)) == history
    assert History.from_state(history.state())[1].metrics == {"accuracy": [0.5, None]}


def test_seconds_do_not_make_histories_differ_but_everything_else_does():
    a = record(1, accuracy=[0.5, 0.5])
    assert Record(1, {"accuracy": [0.5, 0.5]}, {}, [2, 3], [10, 1], [20, 2], seconds=9.0) == a
    assert Record(1, {"accuracy": [0.5, 0.4]}, {}, [2, 3], [10, 1], [20, 2], seconds=0.1) != a
    assert Record(1, {"accuracy": [0.5, 0.5]}, {}, [2, 3], [10, 1], [20, 3], seconds=0.1) != a


def test_finite_replaces_what_json_cannot_hold_at_any_depth():
    given = {
        "a": [1.0, math.nan, (math.inf, {"b": -math.inf})],
        "c": 3,
        "d": "x",
        "e": None,
        "f": torch.tensor(0.5).item(),
    }
    assert finite(given) == {"a": [1.0, None, [None, {"b": None}]], "c": 3, "d": "x", "e": None, "f": 0.5}
    assert json.dumps(finite(given), allow_nan=False)


def rows(path):
    with open(path, newline="") as file:
        return [{name: value for name, value in row.items() if name != "seconds"} for row in csv.DictReader(file)]


def training(total, **options):
    x = torch.arange(40.0).view(10, 1, 2, 2) / 40
    data = Federation({"x": x, "y": torch.arange(10) % 2}, Partition.from_lists([range(5), range(5, 10)]))

    def evaluate(server, clients):
        return {"norm": server["theta"]["1.bias"].norm(dim=1)}

    algorithm = FedAvg(Config(lr=0.2), model("linear", (1, 2, 2), 2))
    return Rounds(algorithm, data, total, seeds=(0, 7), evaluate=evaluate, every=3, **options)


def test_the_log_holds_every_round_once_as_soon_as_it_ends(tmp_path):
    for record in training(4, log=tmp_path / "new" / "rounds.csv"):
        found = rows(tmp_path / "new" / "rounds.csv")
        assert [(row["round"], row["seed"]) for row in found] == [
            (str(t), seed) for t in range(1, record.t + 2) for seed in ("0", "7")
        ]
        last = found[-1]
        assert float(last["local_loss"]) == record.trace["loss"][1] and int(last["bytes_up"]) == record.bytes_up[1]
        assert (float(last["norm"]) if record.metrics else last.get("norm", "")) == record.metrics.get(
            "norm", ["", ""]
        )[1]


@pytest.mark.parametrize("left", ["", "4,0,0.1,2", "4,0,0.1,2,10,10,0.5,\n5,0,0.1,2,10,10,0.5,\n", None])
def test_after_a_kill_and_a_resume_no_row_is_lost_half_or_there_twice(tmp_path, left):
    """``left``: what the killed process had written beyond its last checkpoint; None: not even the checkpoint's row."""
    whole, path, log = training(6, log=tmp_path / "whole.csv"), tmp_path / "checkpoint.pt", tmp_path / "rounds.csv"
    list(whole)
    list(training(3, path=path, log=log))
    text = log.read_text()
    log.write_text(text[: text.rindex("\n", 0, -1) - 20] if left is None else text + left)
    list(training(6, path=path, log=log, resume=True))
    assert rows(log) == rows(tmp_path / "whole.csv")
    log.write_text("lost")
    list(training(6, path=path, log=log, resume=True))  # nothing is left to do but this
    assert rows(log) == rows(tmp_path / "whole.csv")


def test_a_row_that_an_error_kept_out_comes_with_the_next(tmp_path, monkeypatch):
    rounds = training(3, path=tmp_path / "checkpoint.pt", save_every=1, log=tmp_path / "rounds.csv")
    saved, failing = rounds.save, [2]

    def save(path):
        if rounds.t in failing:
            failing.clear()
            raise OSError(28, "No space left on device")
        saved(path)

    monkeypatch.setattr(rounds, "save", save)
    with pytest.raises(OSError, match="No space"):
        list(rounds)
    list(rounds)
    rows = (tmp_path / "rounds.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["round", "1", "1", "2", "2", "3", "3"]

"""The history: values by metric, None for what JSON cannot hold, and back from its state."""

import json
import math

import pytest
import torch

from fedbook.federation import History, Record
from fedbook.federation.history import finite


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

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbook.lab.records import plain_value, record


def test_values_become_plain_and_rounded():
    values = {
        "a": 0.123456, "b": 12345678, "c": True, "d": None, "e": "word", "f": torch.tensor(0.1),
        "g": torch.tensor([[1, 2], [3, 4]]), "h": np.float32(2 / 3), "i": np.array([True, False]), "j": (1, 2.0),
        "k": {"deep": [np.int64(3), 1e-9 / 3]}, "l": -0.0, "m": torch.tensor(7), "n": np.bool_(True),
        "o": torch.tensor(0.5, dtype=torch.bfloat16), "p": torch.tensor([0.25], requires_grad=True), "q": 99999.9,
    }  # fmt: skip
    plain = {key: plain_value(key, value) for key, value in values.items()}
    assert plain == {
        "a": 0.1235, "b": 12345678, "c": True, "d": None, "e": "word", "f": 0.1, "g": [[1, 2], [3, 4]], "h": 0.6667,
        "i": [True, False], "j": [1, 2.0], "k": {"deep": [3, 3.333e-10]}, "l": 0.0, "m": 7, "n": True, "o": 0.5,
        "p": [0.25], "q": 100000.0,
    }  # fmt: skip
    assert math.copysign(1, plain["l"]) == 1 and type(plain["c"]) is bool and type(plain["m"]) is int


@given(st.floats(-1e308, 1e308))
def test_rounding_keeps_four_digits(x):
    y = plain_value("x", x)
    assert plain_value("x", y) == y and math.isclose(x, y, rel_tol=5.1e-4, abs_tol=1e-320)


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (math.nan, "x"), (math.inf, "x"), (torch.tensor([1.0, math.nan]), r"x\[1\]"),
        ({"y": [-math.inf]}, r"x\.y\[0\]"), ({1: 2}, "x"), ([0] * 3000, "x"),
        (np.float32("nan"), "x"), (1j, "x"), (object(), "x"), (torch.zeros(3000), "x"),
        (1.7976e308, "x"), ({1, 2}, "x"), (b"x", "x"),
    ],
)  # fmt: skip
def test_what_json_cannot_hold_is_refused_by_its_key(value, key):
    with pytest.raises((TypeError, ValueError), match=f"^{key}: got"):
        record(x=value)


def test_an_empty_record_is_refused():
    with pytest.raises(ValueError, match="record"):
        record()

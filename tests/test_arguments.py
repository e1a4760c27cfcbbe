"""Every check names the argument, says what was given and what is allowed, and lets through what is allowed."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbook import arguments

numbers = st.one_of(st.integers(-(10**20), 10**20), st.floats(), st.booleans(), st.none(), st.text(max_size=5))


@given(value=numbers, low=st.integers(-100, 100), width=st.integers(0, 100))
def test_integer_lets_through_whole_numbers_in_the_range_and_nothing_else(value, low, width):
    good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= low + width
    if good:
        assert arguments.integer("size", value, low, low + width) == value
    else:
        kind = ValueError if isinstance(value, int) and not isinstance(value, bool) else TypeError
        with pytest.raises(
            kind, match=rf"size: got .*; allowed is a whole number in \[{low}, {low + width}\]"
        ) as caught:
            arguments.integer("size", value, low, low + width)
        assert arguments.shown(value) in str(caught.value)


@given(
    value=numbers, low=st.floats(-10, 10), width=st.floats(0.001, 10), open_ends=st.booleans(), infinite=st.booleans()
)
def test_real_lets_through_numbers_in_the_range_and_nothing_else(value, low, width, open_ends, infinite):
    high = low + width
    limits = {"above": low, "below": high} if open_ends else {"minimum": low, "maximum": high}
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    inside = number and (low < value < high if open_ends else low <= value <= high)
    if inside:
        assert arguments.real("rate", value, **limits, infinite=infinite) == float(value)
    else:
        with pytest.raises(ValueError if number else TypeError, match="rate: got .*; allowed is a"):
            arguments.real("rate", value, **limits, infinite=infinite)


def test_real_nan_never_infinity_only_if_said():
    for value in (math.inf, -math.inf):
        assert arguments.real("bound", value, infinite=True) == value
        with pytest.raises(ValueError, match="bound: got -?inf; allowed is a finite number"):
            arguments.real("bound", value)
    with pytest.raises(ValueError, match="bound: got nan"):
        arguments.real("bound", math.nan, infinite=True)


def test_numbers_of_numpy_become_plain_ones():
    assert type(arguments.integer("n", np.int32(3))) is int and type(arguments.real("x", np.float32(0.5))) is float
    with pytest.raises(TypeError, match="n: "):
        arguments.integer("n", np.float64(3.0))
    with pytest.raises(TypeError, match="x: "):
        arguments.real("x", torch.tensor(3.0))
    with pytest.raises(TypeError, match="x: "):
        arguments.real("x", 1j)


def test_flag_and_one_of():
    assert arguments.flag("centred", True) is True
    for value in (1, 0, "true", None):
        with pytest.raises(TypeError, match="centred: got .*; allowed is True or False"):
            arguments.flag("centred", value)
    assert arguments.one_of("kind", "b", ("b", "a")) == "b"
    with pytest.raises(ValueError, match="kind: got 'c'; allowed is one of a, b"):
        arguments.one_of("kind", "c", ("b", "a"))
    for value in (1, None, ["a"]):
        with pytest.raises(TypeError, match="kind: got"):
            arguments.one_of("kind", value, ("a",))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64])
def test_tensor_kinds(dtype):
    x = torch.ones(2, 3).to(dtype)
    kind = {torch.float32: "float", torch.float16: "float", torch.int64: "integer", torch.uint8: "integer",
            torch.bool: "bool", torch.complex64: "any"}[dtype]  # fmt: skip
    assert arguments.tensor("x", x, kind=kind, ndim=2, shape=(2, None)) is x
    for other in {"float", "integer", "bool"} - {kind}:
        with pytest.raises(TypeError, match=r"x: got a tensor of shape \(2, 3\) and dtype"):
            arguments.tensor("x", x, kind=other)


def test_tensor_shapes_and_entries():
    x = torch.ones(2, 3)
    for wrong in ({"ndim": 1}, {"shape": (2,)}, {"shape": (3, None)}, {"shape": (None, None, None)}):
        with pytest.raises(ValueError, match="x: got a tensor"):
            arguments.tensor("x", x, **wrong)
    for value in ([1.0], 1.0, np.ones(3), None):
        with pytest.raises(TypeError, match="x: got .* allowed is a tensor"):
            arguments.tensor("x", value)
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="x: .*NaN or infinite"):
            arguments.tensor("x", torch.tensor([0.0, bad]))
        assert arguments.tensor("x", torch.tensor([bad]), finite=False).numel() == 1


def test_long_values_are_cut_in_messages():
    assert len(arguments.shown(list(range(1000)))) == 80 and arguments.shown(3) == "3"
    assert str(arguments.wrong(ValueError, "a", "b", "c")) == "a: got 'b'; allowed is c"

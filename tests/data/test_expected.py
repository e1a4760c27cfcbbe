"""What is expected of a file's arrays is checked, in the same words by both readers, before the file is looked for."""

import math

import pytest

from fedbook.data.expected import Expected, checked
from fedbook.data.matlab import read_mat
from fedbook.data.npz import read_npz

ONE = Expected((5, 1))
both_readers = pytest.mark.parametrize("read", [read_npz, read_mat])


def test_what_is_sound_comes_back():
    expected = {"x": Expected((range(2, 10), 3), ("<f4", "<f8", "|u1", "<i8", "|b1")), "y": Expected((), ("|u1",))}
    found = checked(expected)
    assert found == expected and found is not expected
    assert checked({"y": ONE}, ("|u1", "<f8")) == {"y": ONE}


@both_readers
@pytest.mark.parametrize("bad", [None, 3, "x", [("x", ONE)], {}, {3: ONE}, {"x": (5, 1)}, {"x": None}])
def test_it_is_a_dictionary_of_expected(read, bad):
    with pytest.raises(TypeError, match="^expected: got"):
        read("nowhere", bad)


@both_readers
@pytest.mark.parametrize("size", [-1, 2.0, None, "2", True, math.nan, range(2, 2)])
def test_a_size_is_a_whole_number_or_a_range_of_some(read, size):
    with pytest.raises((TypeError, ValueError), match=r"^expected\['x'\].shape: got"):
        read("nowhere", {"x": Expected((size, 3))})


@both_readers
@pytest.mark.parametrize("kinds", [(), ("|O",), ("S5",), ("|u1", "|O")])
def test_types_are_those_of_plain_numbers(read, kinds):
    with pytest.raises(ValueError, match=r"^expected\['x'\].kinds: got"):
        read("nowhere", {"x": Expected((5,), kinds)})


def test_only_the_types_of_a_format_are_allowed():
    for kind in ("<i8", ">f8", "x", 3):
        with pytest.raises((TypeError, ValueError), match=r"^expected\['x'\].kinds: got .* one of <f8, \|u1$"):
            read_mat("nowhere", {"x": Expected((5,), ("|u1", kind))})
    with pytest.raises(FileNotFoundError):
        read_npz("nowhere", {"x": Expected((5,), ("<i8",))})

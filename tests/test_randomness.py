"""Keyed randomness: streams never change, never meet, and depend on nothing but their key."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbook.randomness import normal, stream, torch_seed

# raw 64-bit numbers: independent of how NumPy turns them into floats. If these change, every stored result does.
GOLDEN = {
    (0, "batches", 0, 0): [5543667805511606864, 3293443013270695997],
    (0, "init", -1, -1): [17061099629480061102, 14256953785508328914],
    (7, "train/theta/0", 3, 12): [14319382303109765110, 12038210618208611368],
    (2**63 - 1, "noise", -1, -1): [4647390841883172170, 7637933572361855919],
}


@pytest.mark.parametrize("key", GOLDEN)
def test_streams_never_change(key):
    assert stream(*key).bit_generator.random_raw(2).tolist() == GOLDEN[key]


def test_the_drawn_numbers_that_runs_are_made_of():
    """What NumPy makes of a stream: if a new NumPy changes it, stored results are no longer those of this version."""
    assert np.allclose(
        stream(0, "batches", 0, 0).standard_normal(2), [0.4895273484395763, 0.45980667178793283], rtol=1e-12
    )
    assert stream(0, "batches", 0, 0).permutation(6).tolist() == [3, 1, 4, 2, 5, 0]


keys = st.tuples(
    st.integers(0, 2**63 - 1), st.text("ab/0-1", min_size=1, max_size=6), st.integers(-1, 10**6), st.integers(-1, 10**6)
)


@given(a=keys, b=keys)
def test_equal_keys_equal_streams_other_keys_other_streams(a, b):
    same = stream(*a).bit_generator.random_raw(2).tolist() == stream(*b).bit_generator.random_raw(2).tolist()
    assert same == (a == b)


def test_a_purpose_with_slashes_cannot_imitate_another_key():
    draws = [
        stream(1, "a", 2, 3),
        stream(1, "a/2", 3, -1),
        stream(1, "a/2/3"),
        stream(1, "a/2", 3, 3),
        stream(12, "a", 2, 3),
    ]
    assert len({int(rng.bit_generator.random_raw()) for rng in draws}) == len(draws)


def test_without_a_seed_every_call_differs():
    first = {int(stream(None, "noise", 0, 0).bit_generator.random_raw()) for _ in range(50)}
    assert len(first) == 50


@pytest.mark.parametrize("axis", ["seed", "round", "client"])
def test_neighbouring_keys_are_independent(axis):
    n, m = 300, 200
    key = {"seed": 0, "round": 0, "client": 0}
    draws = np.stack([stream(purpose="noise", **(key | {axis: i})).standard_normal(m) for i in range(n)])
    neighbours = (draws[1:] * draws[:-1]).ravel()  # mean 0, variance 1 if independent
    assert abs(neighbours.mean()) < 4.5 / neighbours.size**0.5
    assert abs(draws.mean()) < 4.5 / draws.size**0.5 and abs(draws.var() - 1) < 4.5 * (2 / draws.size) ** 0.5
    first = draws[:, 0]  # the first numbers of successive keys are a random sample too
    assert abs((first[1:] * first[:-1]).mean()) < 4.5 / n**0.5 and abs(first.mean()) < 4.5 / n**0.5


def test_normal_is_drawn_in_float64_and_cast():
    like = torch.zeros(1, dtype=torch.float32)
    a, b = normal((3, 2), stream(0, "x")), normal((3, 2), stream(0, "x"), like)
    assert a.dtype == torch.float64 and b.dtype == torch.float32 and torch.equal(a.float(), b)
    assert 0 <= torch_seed(stream(0, "x")) < 2**32


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((-1, "x"), "seed"), ((2**63, "x"), "seed"), ((1.0, "x"), "seed"), ((True, "x"), "seed"), (("0", "x"), "seed"),
        ((0, ""), "purpose"), ((0, 3), "purpose"), ((0, "x", -2), "round"), ((0, "x", 0.5), "round"),
        ((0, "x", 0, -2), "client"), ((0, "x", 0, None), "client"),
    ],
)  # fmt: skip
def test_wrong_keys_are_refused_by_name(arguments, word):
    with pytest.raises((TypeError, ValueError), match=f"^{word}: got"):
        stream(*arguments)

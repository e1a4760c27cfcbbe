"""Vertical partitions: parts of every sample, one party each."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbook.partition import parties, quadrants, stack_parties, views


def test_quadrants_are_the_four_quarters():
    images = torch.arange(2 * 3 * 4 * 6, dtype=torch.uint8).view(2, 3, 4, 6)
    parts = quadrants(images)
    assert parts.shape == (4, 2, 3, 2, 3) and parts.dtype == torch.uint8
    expected = [images[..., :2, :3], images[..., :2, 3:], images[..., 2:, :3], images[..., 2:, 3:]]
    assert all(torch.equal(part, whole) for part, whole in zip(parts, expected, strict=True))


@pytest.mark.parametrize("shape", [(2, 1, 3, 4), (2, 1, 4, 3), (2, 4, 4), (0, 1, 4, 4), (2, 1, 0, 4)])
def test_quadrants_refuse_what_has_no_quarters(shape):
    with pytest.raises(ValueError, match="images"):
        quadrants(torch.zeros(shape))


def test_views():
    x = torch.arange(2 * 6 * 5).view(2, 6, 5)
    assert torch.equal(views(x, 6)[4, :, 0], x[:, 4]) and views(x, 6).shape == (6, 2, 1, 5)
    assert views(x, 3).shape == (3, 2, 2, 5) and torch.equal(views(x, 3)[1], x[:, 2:4])


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(1, 7))
def test_stacked_parties_find_their_samples(count, samples):
    parts = torch.arange(count * samples * 2).view(count, samples, 2)
    store, p = stack_parties(parts)
    p.check(len(store), complete=True)
    assert p == parties(samples, count) and p.sizes.tolist() == [samples] * count
    for m in range(count):
        assert p.client(m).tolist() == [m * samples + i for i in range(samples)]
        assert torch.equal(store[p.client(m)], parts[m])


X = torch.zeros(2, 4)
BAD = [
    (lambda: views(X[0], 1), "x: got"),
    (lambda: views(X, 3), "divisor"),
    (lambda: views(X[:, :0], 1), "x: got"),
    (lambda: stack_parties(X[0]), "parts"),
    (lambda: stack_parties(X[:, :0]), "parts"),
    (lambda: parties(0, 2), "num_samples"),
    (lambda: parties(2, 1.5), "num_parties"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_arguments_are_named(case):
    call, words = BAD[case]
    with pytest.raises((TypeError, ValueError), match=words):
        call()

"""Vertical partitions: parts of every sample, one party each."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbook.partition import feature_blocks, parties, quadrants, split_columns, stack_parties, views


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


@settings(max_examples=40)
@given(st.integers(1, 20), st.data(), st.sampled_from([None, 0, 5]))
def test_feature_blocks_are_disjoint_and_complete(columns, data, seed):
    count = data.draw(st.integers(1, columns))
    features = torch.randn(3, 2, columns, generator=torch.Generator().manual_seed(0))
    blocks = feature_blocks(features, count, seed)
    assert torch.cat(blocks).sort().values.tolist() == list(range(columns)) and len(blocks) == count
    assert {len(b) for b in blocks} <= {columns // count, -(-columns // count)}
    if seed is None:
        assert torch.cat(blocks).tolist() == list(range(columns))
    parts = split_columns(features, blocks)
    whole = torch.empty_like(features)
    for block, part in zip(blocks, parts, strict=True):
        whole[..., block] = part
    assert torch.equal(whole, features)


def test_feature_blocks_follow_sizes_and_seed():
    x = torch.zeros(2, 30)
    assert [b.tolist() for b in feature_blocks(x[:, :6], 3, sizes=(1, 2, 3))] == [[0], [1, 2], [3, 4, 5]]
    a, b = feature_blocks(x, 3, seed=1), feature_blocks(x, 3, seed=2)
    assert [p.tolist() for p in a] == [p.tolist() for p in feature_blocks(x, 3, seed=1)]
    assert [p.tolist() for p in a] != [p.tolist() for p in b]


def test_views():
    x = torch.arange(2 * 6 * 5).view(2, 6, 5)
    assert torch.equal(views(x)[4], x[:, 4]) and views(x).shape == (6, 2, 5)
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
    (lambda: feature_blocks(X, 5), "num_parties"),
    (lambda: feature_blocks(X, 0), "num_parties"),
    (lambda: feature_blocks(X[0], 1), "features"),
    (lambda: feature_blocks([[1.0]], 1), "features"),
    (lambda: feature_blocks(X * float("nan"), 1), "features"),
    (lambda: feature_blocks(X, 2, sizes=(1, 2)), "sizes"),
    (lambda: feature_blocks(X, 2, sizes=(0, 4)), "sizes"),
    (lambda: feature_blocks(X, 2, sizes=(1, 1, 2)), "sizes"),
    (lambda: feature_blocks(X, 2, sizes=4), "sizes"),
    (lambda: feature_blocks(X, 2, seed=-1), "seed"),
    (lambda: split_columns(X, [[0, 1], [1, 2]]), "blocks: .*row 1 2 times"),
    (lambda: split_columns(X, [[0, 4]]), "blocks: .*row 4"),
    (lambda: split_columns(X, [[0], []]), "blocks: lists"),
    (lambda: split_columns(X[0], [[0]]), "features"),
    (lambda: views(X[0]), "x: got"),
    (lambda: views(X, 3), "divisor"),
    (lambda: views(X[:, :0]), "x: got"),
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

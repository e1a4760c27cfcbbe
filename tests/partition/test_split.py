"""Each client's own train and test rows."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbook.partition import Partition, iid, quantity, split_clients


@settings(max_examples=50)
@given(
    st.lists(st.integers(3, 30), min_size=1, max_size=6),
    st.sampled_from([(0.5, 0.5), (0.9, 0.1), (0.98, 0.01, 0.01), (0.7, 0.1, 0.2)]),
    st.integers(0, 2**40),
)
def test_parts_hold_each_clients_rows_once_and_none_is_empty(sizes, fractions, seed):
    rows = torch.arange(sum(sizes)).split(sizes)
    p = Partition.from_lists(rows)
    parts = split_clients(p, fractions, seed)
    assert len(parts) == len(fractions) and parts == split_clients(p, fractions, seed)
    for k in range(p.num_clients):
        pieces = [part.client(k) for part in parts]
        assert torch.equal(torch.cat(pieces).sort().values, rows[k])
        for piece, fraction in zip(pieces, fractions, strict=True):
            assert len(piece) >= 1 and abs(len(piece) - fraction * sizes[k]) <= 2


@pytest.mark.parametrize(
    ("size", "fractions", "expected"),
    [
        (60, (0.9, 0.1), [54, 6]),
        (16, (0.75, 0.25), [12, 4]),
        (10, (0.7, 0.1, 0.2), [7, 1, 2]),
        (3, (0.98, 0.01, 0.01), [1, 1, 1]),
        (2, (0.01, 0.99), [1, 1]),
    ],
)
def test_sizes(size, fractions, expected):
    assert [int(part.sizes[0]) for part in split_clients(iid(size, 1, 0), fractions, 0)] == expected


def test_a_clients_split_does_not_depend_on_the_others():
    p = quantity(200, 6, 0, alpha=5.0, minimum=4)
    alone = Partition.from_lists(p.lists()[:3])
    for part, small in zip(split_clients(p, (0.8, 0.2), 9), split_clients(alone, (0.8, 0.2), 9), strict=True):
        assert part.lists()[2].tolist() == small.lists()[2].tolist()
    assert split_clients(p, (0.8, 0.2), 9) != split_clients(p, (0.8, 0.2), 10)


def test_clients_of_equal_size_are_split_independently():
    train, _ = split_clients(Partition.from_lists(torch.arange(100).split(20)), (0.5, 0.5), 0)
    places = {tuple((rows % 20).tolist()) for rows in train.lists()}
    assert len(places) == 5


def test_bad_arguments_are_named():
    p = Partition.from_lists([[0, 1, 2], [3]])
    with pytest.raises(ValueError, match="client 1 has 1 samples; allowed are at least 2"):
        split_clients(p, (0.5, 0.5), 0)
    good = iid(20, 2, 0)
    for fractions in ((0.5, 0.4), (1.0,), (), (1.5, -0.5), (0.5, float("nan")), ("a", "b"), "ab", 0.5, (True, 0.5)):
        with pytest.raises((TypeError, ValueError), match="fractions"):
            split_clients(good, fractions, 0)
    with pytest.raises(TypeError, match="partition"):
        split_clients([[0, 1]], (0.5, 0.5), 0)
    with pytest.raises(ValueError, match="seed"):
        split_clients(good, (0.5, 0.5), -1)

"""The index table: what it accepts, and what it says about itself."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbook.partition import Partition

ROWS = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=8), min_size=1, max_size=6)


@settings(max_examples=40)
@given(ROWS)
def test_lists_go_in_and_come_out(lists):
    p = Partition.from_lists(lists)
    assert [rows.tolist() for rows in p.lists()] == lists
    assert p.num_clients == len(lists) and p.sizes.tolist() == [len(rows) for rows in lists]
    assert p.table.shape == (len(lists), max(map(len, lists)))
    assert p.pooled().num_clients == 1 and p.pooled().client(0).tolist() == sum(lists, [])
    assert p == Partition.from_lists([np.array(rows) for rows in lists])
    assert p == Partition.from_lists([torch.tensor(rows, dtype=torch.uint8) for rows in lists])


@settings(max_examples=40)
@given(st.lists(st.integers(-1, 4), min_size=1, max_size=40))
def test_owners_are_the_lists_of_what_each_owns(owners):
    owners = np.array(owners)
    expected = [np.flatnonzero(owners == k).tolist() for k in range(5)]
    if all(expected):
        assert [rows.tolist() for rows in Partition.from_owners(owners, 5).lists()] == expected
    else:
        with pytest.raises(ValueError, match="sizes"):
            Partition.from_owners(owners, 5)


@settings(max_examples=40)
@given(ROWS)
def test_check_refuses_exactly_what_is_shared_missing_or_outside(lists):
    p, flat = Partition.from_lists(lists), sum(lists, [])
    if len(set(flat)) < len(flat):
        with pytest.raises(ValueError, match="allowed is once"):
            p.check(41)
        return
    assert p.check(41) is p
    if max(flat) > 0:
        with pytest.raises(ValueError, match=f"got row {max(flat)}"):
            p.check(max(flat))
    if sorted(flat) == list(range(len(flat))):
        assert p.check(len(flat), complete=True) is p
    else:
        with pytest.raises(ValueError, match="belong to nobody"):
            p.check(max(flat) + 1, complete=True)


@settings(max_examples=30)
@given(ROWS, st.integers(0, 2**31))
def test_counts_are_the_histograms(lists, seed):
    labels = torch.from_numpy(np.random.default_rng(seed).integers(0, 5, 41))
    labels[0] = 4
    counts = Partition.from_lists(lists).counts(labels, 7)
    assert counts.shape == (len(lists), 7) and counts.dtype == torch.long
    for k, rows in enumerate(lists):
        assert counts[k].tolist() == [sum(int(labels[i]) == c for i in rows) for c in range(7)]


def test_counts_refuse_labels_that_do_not_fit():
    p = Partition.from_lists([[0, 2]])
    assert p.counts(torch.tensor([1, 0, 1])).tolist() == [[0, 2]]
    for labels, kind, words in (
        (torch.tensor([0, 1]), ValueError, "row 2"),
        (torch.tensor([0, -1, 1]), ValueError, "label -1"),
        (torch.tensor([0.0, 1.0, 1.0]), TypeError, "labels"),
        (torch.tensor([True, False, True]), TypeError, "labels"),
        (torch.zeros(3, 1, dtype=torch.long), ValueError, "labels"),
        (torch.zeros(0, dtype=torch.long), ValueError, "labels"),
        ([0, 1, 1], TypeError, "labels"),
    ):
        with pytest.raises(kind, match=words):
            p.counts(labels)
    with pytest.raises(ValueError, match="num_classes"):
        p.counts(torch.tensor([0, 1, 5]), 5)


def test_equality_is_of_content():
    p = Partition.from_lists([[4, 2], [1]])
    wide = Partition(torch.tensor([[4, 2, 0], [1, 0, 0]]), torch.tensor([2, 1]))
    assert p == wide and p != Partition.from_lists([[2, 4], [1]]) and p != Partition.from_lists([[4], [2, 1]])
    assert p != "another thing"


@pytest.mark.parametrize(
    ("table", "sizes", "kind", "words"),
    [
        ([[0, 1]], [3], ValueError, "sizes: got 3 for client 0"),
        ([[0, 1], [2, 0]], [2, 0], ValueError, "sizes: got 0 for client 1"),
        ([[0, 1]], [-1], ValueError, "sizes"),
        ([[0, 1]], [1, 1], ValueError, "sizes"),
        ([[0, -1]], [2], ValueError, "row -1"),
        ([[0, 1]], [1], ValueError, "padding"),
        ([[0.0, 1.0]], [2], TypeError, "table"),
        ([0, 1], [2], ValueError, "table"),
        ([[]], [0], TypeError, "table"),
    ],
)
def test_bad_tables_are_refused(table, sizes, kind, words):
    with pytest.raises(kind, match=words):
        Partition(torch.tensor(table), torch.tensor(sizes))


@pytest.mark.parametrize(
    "lists", [[], [[]], [[1], []], [[0.5]], [[True]], [["a"]], [[-1]], [[[1]]], [[[1], [1, 2]]], "01", 3, [2]]
)
def test_bad_lists_are_refused(lists):
    with pytest.raises((TypeError, ValueError), match="lists|row -1"):
        Partition.from_lists(lists)


@pytest.mark.parametrize("owners", [[0, 2], [-2, 0], [0.0, 1.0], [[0, 1]]])
def test_bad_owners_are_refused(owners):
    with pytest.raises((TypeError, ValueError), match="owners"):
        Partition.from_owners(np.array(owners), 2)

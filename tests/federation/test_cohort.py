"""Samplers draw what they say; a cohort holds each client once and knows its padding."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbook.federation import Cohort, Everyone, FixedSize, Poisson
from fedbook.randomness import stream


@given(clients=st.integers(1, 60), data=st.data())
def test_fixed_size_draws_that_many_different_clients(clients, data):
    size = data.draw(st.integers(1, clients))
    drawn = FixedSize(size).draw(clients, stream(data.draw(st.integers(0, 1000)), "cohort"))
    assert len(drawn) == size == len(set(drawn.tolist())) and drawn.tolist() == sorted(drawn.tolist())
    assert drawn.dtype == torch.long and int(drawn.min()) >= 0 and int(drawn.max()) < clients


def test_every_pair_is_equally_likely_under_fixed_size():
    counts = torch.zeros(5, 5)
    for t in range(4000):
        a, b = FixedSize(2).draw(5, stream(0, "cohort", t)).tolist()
        counts[a, b] += 1
    pairs = counts[np.triu_indices(5, 1)]
    assert pairs.sum() == 4000  # ascending
    assert bool(((pairs - 400).abs() < 4.5 * (4000 * 0.1 * 0.9) ** 0.5).all())


def test_poisson_clients_are_independent_and_the_ends_are_exact():
    taking = torch.zeros(4000, 4)
    for t in range(4000):
        taking[t, Poisson(0.3).draw(4, stream(0, "cohort", t))] = 1
    assert bool(((taking.mean(0) - 0.3).abs() < 4.5 * (0.21 / 4000) ** 0.5).all())
    off = torch.corrcoef(taking.T)[np.triu_indices(4, 1)]
    assert bool((off.abs() < 4.5 / 4000**0.5).all())
    assert len(Poisson(0.0).draw(50, stream(0, "c"))) == 0 and len(Poisson(1.0).draw(50, stream(0, "c"))) == 50
    assert Everyone().draw(4, stream(0, "c")).tolist() == [0, 1, 2, 3]


@given(lists=st.lists(st.lists(st.integers(0, 30), unique=True, max_size=8), min_size=1, max_size=4))
def test_a_cohort_gives_back_its_lists(lists):
    cohort = Cohort.of([torch.tensor(members, dtype=torch.long) for members in lists])
    assert cohort.sizes.tolist() == [len(members) for members in lists]
    assert [cohort.members(slot).tolist() for slot in range(len(lists))] == lists
    assert not bool(cohort.ids[~cohort.present].any())


@pytest.mark.parametrize(
    ("lists", "kind", "word"),
    [
        ([], ValueError, "one list"), (3, ValueError, "one list"), ([[1, 1]], ValueError, "at most once"),
        ([[-1]], ValueError, "at least 0"), ([[0.7]], TypeError, "whole numbers"), ([[True, False]],
        TypeError, "whole"),
        ([torch.zeros(2, 2).long()], TypeError, "whole"), ([5], TypeError, "whole"),
    ],
)  # fmt: skip
def test_wrong_cohorts_are_refused(lists, kind, word):
    with pytest.raises(kind, match=f"cohort: .*{word}"):
        Cohort.of(lists)


def test_wrong_samplers_are_refused():
    for make in (lambda: FixedSize(0), lambda: FixedSize(-2), lambda: FixedSize(2.0), lambda: FixedSize(True)):
        with pytest.raises((TypeError, ValueError), match="size: "):
            make()
    for rate in (-0.1, 1.1, float("nan"), None):
        with pytest.raises((TypeError, ValueError), match="rate: "):
            Poisson(rate)
    with pytest.raises(ValueError, match=r"size \(clients a round\): got 6; .*\[1, 5\]"):
        FixedSize(6).draw(5, stream(0, "cohort"))
    with pytest.raises(ValueError, match="present"):
        Cohort(torch.zeros(1, 2).long(), torch.zeros(1, 3).bool())
    with pytest.raises(TypeError, match="ids"):
        Cohort(torch.zeros(1, 2), torch.zeros(1, 2).bool())

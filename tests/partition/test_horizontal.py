"""Partitions of the samples: disjoint, complete, deterministic, never an empty client, and distributed as they say."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbook.partition import PARTITIONS, by_name, options_of
from fedbook.partition import horizontal as h

OPTIONS = {
    "iid": {},
    "shards": {"shards_per_client": 2},
    "classes": {"classes_per_client": 2},
    "dirichlet": {"alpha": 0.3},
    "quantity": {"alpha": 0.5},
}


def labels_of(counts):
    """Labels with ``counts[c]`` samples of class c, in a fixed shuffled order."""
    y = np.repeat(np.arange(len(counts)), counts)
    return torch.from_numpy(np.random.default_rng(7).permutation(y))


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(OPTIONS)),
    st.integers(1, 6),
    st.lists(st.integers(6, 25), min_size=2, max_size=6),
    st.integers(0, 2**63 - 1),
)
def test_every_partition_is_complete_disjoint_and_repeatable(name, clients, counts, seed):
    labels = labels_of(counts)
    if name == "classes":
        clients = max(clients, -(-len(counts) // 2))
    p = by_name(name, labels, clients, seed, **OPTIONS[name])
    p.check(len(labels), complete=True)
    assert p.num_clients == clients and int(p.sizes.min()) >= 1
    assert all(bool((rows.diff() > 0).all()) for rows in p.lists())
    np.random.seed(0), torch.manual_seed(0)
    assert p == by_name(name, labels.to(torch.uint8), clients, seed, **OPTIONS[name])


def test_iid_gives_every_sample_to_every_client_equally_often():
    owner = np.empty((1000, 12), dtype=int)
    for seed in range(1000):
        for k, rows in enumerate(h.iid(12, 3, seed).lists()):
            owner[seed, rows.numpy()] = k
    times = np.stack([(owner == k).sum(0) for k in range(3)])
    # each of the 36 counts is binomial(1000, 1/3): deviation 15
    assert np.abs(times - 1000 / 3).max() < 4.5 * 14.9
    # and two samples meet with probability 3 / 11
    together = (owner[:, :1] == owner[:, 1:]).mean()
    assert abs(together - 3 / 11) < 0.017


@settings(max_examples=40)
@given(st.integers(1, 8), st.integers(1, 4), st.lists(st.integers(8, 30), min_size=1, max_size=5), st.integers(0, 99))
def test_shards_are_runs_of_the_sorted_labels(clients, each, counts, seed):
    labels = labels_of(counts)
    runs = clients * each
    if runs > len(labels):
        with pytest.raises(ValueError, match="shards_per_client"):
            h.shards(labels, clients, seed, shards_per_client=each)
        return
    p = h.shards(labels, clients, seed, shards_per_client=each)
    position = torch.empty(len(labels), dtype=torch.long)
    position[torch.sort(labels, stable=True).indices] = torch.arange(len(labels))
    for rows in p.lists():
        places = position[rows].sort().values
        assert int((places.diff() > 1).sum()) + 1 <= each  # at most s stretches without a gap
        assert abs(len(rows) - len(labels) / clients) < each + 1e-9


def test_mnist_sized_shards_give_two_classes_or_fewer():
    # 600 a class, 200 shards of 30: no run crosses a class
    p = h.shards(labels_of([600] * 10), 100, 0)
    assert set(p.sizes.tolist()) == {60}
    held = (p.counts(labels_of([600] * 10)) > 0).sum(1)
    assert int(held.max()) == 2 and 0.02 < float((held == 1).double().mean()) < 0.25


def test_classes_never_fails_where_it_can_succeed():
    """Exhaustive for all K, S, C up to 5: each client exactly S, each class floor or ceil of K*S/C clients."""
    for clients, each, num in itertools.product(range(1, 6), repeat=3):
        if each > num or clients * each < num:
            with pytest.raises(ValueError, match="classes_per_client"):
                h.classes(labels_of([clients] * num), clients, 0, classes_per_client=each)
            continue
        for seed in range(4):
            labels = labels_of([clients] * num)
            p = h.classes(labels, clients, seed, classes_per_client=each).check(len(labels), complete=True)
            holds = p.counts(labels, num) > 0
            assert holds.sum(1).tolist() == [each] * clients
            assert set(holds.sum(0).tolist()) <= {clients * each // num, -(-clients * each // num)}
            assert int(holds.sum(0).min()) >= 1


def test_every_pair_of_classes_can_meet():
    labels, seen = labels_of([20] * 5), set()
    for seed in range(60):
        holds = h.classes(labels, 5, seed, classes_per_client=2).counts(labels) > 0
        seen |= {tuple(row.nonzero()[:, 0].tolist()) for row in holds}
    assert seen == set(itertools.combinations(range(5), 2))


def test_a_class_too_small_for_its_clients_is_named():
    labels = labels_of([30, 2, 30])
    with pytest.raises(ValueError, match=r"class 1 has 2 samples; its 4 clients need at least 4"):
        h.classes(labels, 6, 0, classes_per_client=2)


def test_dirichlet_proportions_have_the_right_mean_and_variance():
    """Of Dir(alpha) over K: mean 1/K, variance (1/K)(1 - 1/K) / (K alpha + 1), for each class and client."""
    clients, labels, seeds = 4, labels_of([400] * 3), 200
    for alpha in (0.2, 1.0, 20.0):
        shares = np.stack(
            [h.dirichlet(labels, clients, seed, alpha=alpha).counts(labels).numpy() / 400 for seed in range(seeds)]
        )
        variance = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
        error = np.sqrt(variance / seeds)
        assert np.abs(shares.mean(0) - 1 / clients).max() < 4.5 * error
        assert abs(shares.var(0).mean() / variance - 1) < 0.12
        # classes are divided independently of each other
        correlation = np.corrcoef(shares[:, :, 0].T, shares[:, :, 1].T)[:clients, clients:]
        assert np.abs(correlation).max() < 4.5 / np.sqrt(seeds)


@settings(max_examples=40)
@given(st.floats(1e-300, 1e9), st.integers(1, 12), st.integers(1, 4), st.integers(0, 2**40))
def test_skewed_partitions_reach_any_possible_minimum(alpha, clients, minimum, seed):
    labels = labels_of([17, 1, 30])  # 48 = 12 * 4: also with nothing to spare
    for name in ("dirichlet", "quantity"):
        p = by_name(name, labels, clients, seed, alpha=alpha, minimum=minimum).check(48, complete=True)
        assert p.num_clients == clients and int(p.sizes.min()) >= minimum


def test_a_minimum_that_leaves_nothing_to_spare_is_reached_from_any_start():
    for seed in range(20):
        assert set(h.dirichlet(labels_of([17, 1, 30]), 12, seed, alpha=0.5, minimum=4).sizes.tolist()) == {4}


def test_dirichlet_favours_no_client_even_where_classes_are_smaller_than_the_number_of_clients():
    labels, seeds = labels_of([3] * 40), 200
    for alpha in (0.5, 1e6):
        sizes = np.stack([h.dirichlet(labels, 10, s, alpha=alpha).sizes.numpy() for s in range(seeds)])
        error = sizes.std(0).mean() / np.sqrt(seeds)
        assert np.abs(sizes.mean(0) - 12).max() < 4.5 * error


def test_limits_of_alpha():
    labels = labels_of([100] * 4)
    even = h.dirichlet(labels, 5, 0, alpha=1e8).counts(labels)
    assert int((even - 20).abs().max()) <= 1
    single = h.dirichlet(labels, 2, 1, alpha=1e-6).counts(labels)
    assert int((single > 0).sum(0).max()) <= 2 and int((single >= 99).sum()) == 4
    assert h.quantity(400, 5, 0, alpha=1e8).sizes.sub(80).abs().max() <= 1
    assert int(h.quantity(400, 5, 0, alpha=1e-6, minimum=3).sizes.max()) == 400 - 4 * 3


def test_natural_groups():
    groups = torch.tensor([7, 2, 7, 5, 2, 9])
    assert [r.tolist() for r in h.natural(groups).check(6, complete=True).lists()] == [[1, 4], [3], [0, 2], [5]]
    some = h.natural(groups, 2, seed=0).check(6)
    chosen = [int(groups[rows[0]]) for rows in some.lists()]
    assert chosen == sorted(set(chosen)) and len(chosen) == 2
    for g, rows in zip(chosen, some.lists(), strict=True):
        assert rows.tolist() == (groups == g).nonzero()[:, 0].tolist()
    seen = {tuple(int(groups[r[0]]) for r in h.natural(groups, 2, seed=s).lists()) for s in range(60)}
    assert len(seen) == 6  # every pair of the four groups
    assert h.natural(groups, 4, seed=0) == h.natural(groups)


Y = labels_of([6, 6])
BAD = [
    (lambda: h.iid(3, 4, 0), "num_clients"),
    (lambda: h.iid(3, 0, 0), "num_clients"),
    (lambda: h.iid(3, 1, -1), "seed"),
    (lambda: h.shards(Y, 7, 0), "shards_per_client"),
    (lambda: h.shards(Y, 2, 0, shards_per_client=0), "shards_per_client"),
    (lambda: h.shards(Y[:0], 2, 0), "labels"),
    (lambda: h.shards(-Y, 2, 0), "labels"),
    (lambda: h.classes(Y, 2, 0, classes_per_client=3), "classes_per_client"),
    (lambda: h.classes(Y, 1, 0, classes_per_client=1), "classes_per_client"),
    (lambda: h.dirichlet(Y, 2, 0, alpha=0.0), "alpha"),
    (lambda: h.dirichlet(Y, 2, 0, alpha=float("nan")), "alpha"),
    (lambda: h.dirichlet(Y, 5, 0, alpha=1.0, minimum=3), "minimum"),
    (lambda: h.quantity(5, 6, 0, alpha=1.0), "minimum"),
    (lambda: h.natural(Y, 3, 0), "num_clients"),
    (lambda: h.natural(Y, 1), "seed"),
    (lambda: by_name("Dirichlet", Y, 2, 0), "partition: got 'Dirichlet'.*dirichlet, iid"),
    (lambda: by_name("dirichlet", Y, 2, 0), "alpha: not given"),
    (lambda: by_name("iid", Y, 2, 0, alpha=1.0), "'alpha'; allowed is none"),
    (lambda: by_name("dirichlet", Y, 2, 0, alpha=1.0, S=2), "'S'; allowed is alpha, minimum"),
    (lambda: by_name("natural", Y, 2, 0), "groups: not given"),
    (lambda: by_name("natural", Y, 2, 0, groups=Y[:-1]), "groups"),
    (lambda: by_name("vertical", Y, 0, 0), "num_parties"),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_arguments_are_named(case):
    call, words = BAD[case]
    with pytest.raises((TypeError, ValueError), match=words):
        call()


def test_the_words():
    assert set(PARTITIONS) >= {"iid", "shards", "classes", "dirichlet", "quantity", "natural", "vertical"}
    assert dict(options_of("shards")) == {"shards_per_client": 2} and dict(options_of("iid")) == {}
    labels = labels_of([5, 5])
    assert by_name("iid", labels, 3, 4) == h.iid(10, 3, 4)
    assert by_name("natural", labels, None, 0, groups=labels) == h.natural(labels)
    assert by_name("vertical", labels, 3, 0).table.tolist() == [[m * 10 + i for i in range(10)] for m in range(3)]

"""Federations: who holds which rows, groups, splits by seed, and a fingerprint that notices any change."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbook.federation import Federation, Rows
from fedbook.federation.population import floating
from fedbook.partition import Partition
from fedbook.randomness import normal, stream

LISTS = [[0, 1, 2], [3], [4, 5], [6, 7, 8, 9]]


def samples(n=10):
    return {"x": normal((n, 2), stream(0, "x")), "y": torch.arange(n)}


def federation(**options):
    return Federation(samples(), Partition.from_lists(LISTS), **options)


@given(members=st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_rows_are_the_clients_own_samples_and_nothing_is_copied(members):
    whole = federation()
    group = whole.groups["all"]
    data = group.rows(torch.zeros(len(members), dtype=torch.long), torch.tensor(members))
    assert data.samples["x"] is group.samples["x"]
    for r, k in enumerate(members):
        assert data.table[r, : data.sizes[r]].tolist() == LISTS[k]
    assert whole.num_clients == 4 and whole.splits == 1 and whole.sizes.tolist() == [[3, 1, 2, 4]]


def test_each_seed_may_have_its_own_split():
    other = Partition.from_lists([[9, 8, 7, 6, 5], [4], [3], [2, 1, 0]])
    whole = Federation(samples(), [Partition.from_lists(LISTS), other])
    assert whole.splits == 2 and whole.sizes.tolist() == [[3, 1, 2, 4], [5, 1, 1, 3]]
    data = whole.groups["all"].rows(torch.tensor([1, 0, 1]), torch.tensor([0, 0, 3]))
    assert [data.table[r, : data.sizes[r]].tolist() for r in range(3)] == [[9, 8, 7, 6, 5], [0, 1, 2], [2, 1, 0]]


def test_groups_split_the_clients_and_keep_their_numbers():
    whole = federation(groups=["b", "a", "b", "a"])
    assert {word: g.ids.tolist() for word, g in whole.groups.items()} == {"b": [0, 2], "a": [1, 3]}
    assert whole.sizes.tolist() == [[3, 1, 2, 4]]
    for k in range(4):
        group = list(whole.groups.values())[whole.group_of[k]]
        data = group.rows(torch.zeros(1, dtype=torch.long), whole.member_of[k : k + 1])
        assert isinstance(data, Rows) and data.table[0, : data.sizes[0]].tolist() == LISTS[k]


def test_groups_with_stores_of_their_own():
    text = {"x": torch.zeros(3, 5)}
    whole = Federation.of_groups(
        {"image": (samples(), Partition.from_lists(LISTS[:2])), "text": (text, Partition.from_lists([[2, 1]]))}
    )
    assert whole.num_clients == 3 and whole.group_of.tolist() == [0, 0, 1] and whole.member_of.tolist() == [0, 1, 0]
    assert whole.sizes.tolist() == [[3, 1, 2]]


def test_moving_keeps_everything(device):
    whole = federation(groups=["b", "a", "b", "a"])
    there = whole.to(device)
    assert there.device.type == device and there.fingerprint() == whole.fingerprint()
    assert all(g.table.device.type == "cpu" for g in there.groups.values())


def test_the_fingerprint_notices_every_change_and_nothing_else():
    base = federation().fingerprint()
    assert federation().fingerprint() == base
    swapped = samples()
    swapped["y"] = swapped["y"].clone()
    swapped["y"][[0, 9]] = swapped["y"][[9, 0]]  # same sum, same shape
    changed = [
        Federation(swapped, Partition.from_lists(LISTS)),
        Federation(samples(), Partition.from_lists([*LISTS[:3], [6, 7, 9, 8]])),
        Federation(samples(), Partition.from_lists([*LISTS[:3], [6, 7, 8]])),
        Federation({"x": samples()["x"].float(), "y": samples()["y"]}, Partition.from_lists(LISTS)),
        Federation({"z": samples()["x"], "y": samples()["y"]}, Partition.from_lists(LISTS)),
        federation(groups=["b", "a", "b", "a"]),
    ]
    prints = [base, *(other.fingerprint() for other in changed)]
    assert len(set(prints)) == len(prints)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: Federation(samples(), 5), "partition"),
        (lambda: Federation(samples(), []), "partition"),
        (lambda: Federation(samples(), [Partition.from_lists(LISTS), "iid"]), "partition"),
        (lambda: Federation(samples(), [Partition.from_lists(LISTS), Partition.from_lists([[0]])]), "partition"),
        (lambda: Federation(samples(9), Partition.from_lists(LISTS)), "partition: got rows up to 9"),
        (lambda: Federation({}, Partition.from_lists(LISTS)), "samples"),
        (lambda: Federation([torch.zeros(10)], Partition.from_lists(LISTS)), "samples"),
        (lambda: Federation({"x": torch.zeros(10), "y": torch.zeros(9)}, Partition.from_lists(LISTS)), "samples"),
        (lambda: Federation({"x": torch.tensor(1.0)}, Partition.from_lists(LISTS)), "samples"),
        (lambda: Federation({"x": torch.full((10,), float("nan"))}, Partition.from_lists(LISTS)), "samples"),
        (lambda: Federation({"x": [0.0] * 10}, Partition.from_lists(LISTS)), "samples"),
        (lambda: federation(groups=["a", "b"]), "groups"),
        (lambda: Federation.of_groups({}), "groups"),
        (lambda: Federation.of_groups({"a": (samples(), LISTS)}), "groups"),
        (lambda: Federation.of_groups({"a": samples()}), "groups"),
    ],
)
def test_wrong_federations_are_refused_by_name(make, word):
    with pytest.raises((TypeError, ValueError), match=f"^{word}"):
        make()


def test_images_as_bytes_are_refused_by_name():
    with pytest.raises(ValueError, match="^samples: got .*uint8.* as x.float\\(\\) / 255"):
        floating({"x": torch.zeros(3, 2, dtype=torch.uint8)})

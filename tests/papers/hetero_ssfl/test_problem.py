"""Who holds what in chapter 2: settings, disjoint sets of images, clients by architecture, and no label for them."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

from fedbook import data
from fedbook.papers.hetero_ssfl.problem import AlignedSettings, aligned_problem
from tests.papers.hetero_ssfl.small import JUDGED


def problem(seeds=(0,), **changes):
    return aligned_problem("digits", replace(JUDGED, **changes), seeds, dtype=torch.float64)


def pixels(x):
    """Images as a multiset: how often each one is there."""
    return Counter(tuple(row) for row in (x.double() * 16).round().to(torch.int64).flatten(1).tolist())


# --- settings


def test_bad_architectures_are_named():
    bad = ["", ",", "cnn_s,", "lenet", "cnn_s:", "cnn_s:0", "cnn_s:-3", "cnn_s:x", "cnn_s:2.5", "cnn_s:²", ":8",
           "cnn_s:8:9", "cnn_s,mlp,cnn_s", "mlp,resnet99", "cnn_s,cnn_s:32", "mlp:8,mlp:08"]  # fmt: skip
    for value in bad:
        with pytest.raises(ValueError, match="^architectures: got"):
            AlignedSettings(architectures=value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"alignment_source": "digits"}, "^alignment_source: got 'digits'; allowed is holdout"),
        ({"alignment_source": "mnist"}, "source: .*mnist.*28.*allowed.*8, 8"),
        ({"alignment_samples": 260}, r"^alignment_samples: got 260; allowed is .*\[2, 259\]"),
        ({"alignment_source": "photographs", "alignment_samples": 10**8}, "got 100000000"),
        ({"architectures": "cnn_s", "projector": "none"}, "^width: got 9; allowed is 48"),
        ({"train_samples": 5000}, "^train_samples: got 5000"),
        ({"partition": "iid", "clients": 1000}, "clients: got 1000"),
    ],
)
def test_problems_that_cannot_be_are_named(changes, words):
    with pytest.raises(ValueError, match=words):
        problem(**changes)


def test_architectures_and_who_has_them():
    settings = replace(JUDGED, architectures=" mlp , cnn_s:7,cnn_s:24", clients=8)
    assert settings.words() == {"mlp": ("mlp", 9), "cnn_s:7": ("cnn_s", 7), "cnn_s:24": ("cnn_s", 24)}
    assert settings.assigned() == ["mlp", "cnn_s:7", "cnn_s:24"] * 2 + ["mlp", "cnn_s:7"]
    random = replace(settings, assignment="random", clients=300)
    counts = Counter(random.assigned())
    assert random.assigned() == random.assigned() and set(counts) == set(settings.words())
    assert all(abs(n - 100) < 4 * math.sqrt(300 * 2 / 9) for n in counts.values())
    assert random.assigned()[:8] != settings.assigned()
    made = problem(architectures="mlp,cnn_s:7,cnn_s:24", clients=2, partition="iid")
    assert list(made.encoders) == ["mlp", "cnn_s:7"] and made.assigned == ("mlp", "cnn_s:7")  # nobody has the third
    assert [net.width for net in made.encoders.values()] == [9, 7] and made.model.width == 9
    assert [net.feature_width for net in made.encoders.values()] == [64, 48]
    assert made.model.feature_width == 64 and all(net.normalised for net in made.encoders.values())


# --- who holds what


@pytest.mark.parametrize("judge", ["test", "validation"])
def test_alignment_training_and_test_images_are_disjoint(judge):
    """As multisets they make up what there is: nothing twice, nothing lost."""
    images = data.load("digits", dtype=torch.uint8)
    whole = problem(train_samples=0, test_samples=0, judge=judge, alignment_samples=100)
    train, test = images.train_x / 16, images.test_x / 16
    parts = pixels(whole.x) + pixels(whole.alignment)
    assert len(whole.alignment) == 100 and len(whole.x) == len(whole.y)
    if judge == "test":
        assert parts == pixels(train) and pixels(whole.test_x) == pixels(test)
    else:
        assert parts + pixels(whole.test_x) == pixels(train)
    owned = [
        set(rows[:n].tolist()) for rows, n in zip(whole.partitions[0].table, whole.partitions[0].sizes, strict=True)
    ]
    assert sum(map(len, owned)) == len(set().union(*owned)) == len(whole.x)


@pytest.mark.parametrize("bank", [0, 4])
def test_clients_by_architecture_never_see_a_label(bank):
    made = problem(bank=bank, seeds=(0, 1))
    personal = made.federation()
    assert {w: g.ids.tolist() for w, g in personal.groups.items()} == {"mlp": [0, 2, 4], "cnn_s:7": [1, 3]}
    for group in personal.groups.values():
        assert set(group.samples) == ({"bank"} if bank else {"x"})
    for slot, split in enumerate(made.partitions):
        for group in personal.groups.values():
            assert torch.equal(group.sizes[slot], split.sizes[group.ids])
    one = made.federation(personal=False).groups["all"]
    assert set(one.samples) == {"bank" if bank else "x", "y"} and torch.equal(one.samples["y"], made.y)
    pooled = made.federation(personal=False, pooled=True)
    assert pooled.num_clients == 1 and pooled.sizes.tolist() == [[len(made.x)]] * 2


@pytest.mark.parametrize("bank", [0, 4])
def test_extended_clients_also_hold_the_alignment_images(bank):
    made = problem(bank=bank, seeds=(0, 1))
    plain, more = made.federation(), made.federation(extended=True)
    assert torch.equal(more.sizes, plain.sizes + 30)
    for word, group in more.groups.items():
        assert set(group.samples) == ({"bank"} if bank else {"x"})  # nor labels
        held = next(iter(group.samples.values()))
        assert len(held) == len(made.x) + 30
        if not bank:
            assert torch.equal(held, torch.cat([made.x, made.alignment]))
        before = plain.groups[word]
        for slot in range(2):
            for place, n in enumerate(before.sizes[slot].tolist()):
                rows = group.table[slot, place, : n + 30]
                assert torch.equal(rows[:n], before.table[slot, place, :n])
                assert rows[n:].tolist() == list(range(len(made.x), len(made.x) + 30))

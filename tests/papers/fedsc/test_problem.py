"""Views, their bank, and how an encoder is judged."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedbook import data
from fedbook.federation.local import epochs
from fedbook.learning.augmentation import AUGMENTATIONS
from fedbook.learning.views import Views
from fedbook.papers.fedsc.problem import PretrainingSettings, few_rows, pretraining_problem
from fedbook.randomness import normal, stream

SMALL = PretrainingSettings(train_samples=150, test_samples=80, clients=5, classes_per_client=2, bank=4, width=6)


@pytest.fixture(scope="module")
def problem():
    return pretraining_problem("digits", SMALL, (0, 1), dtype=torch.float64)


# --- views


def test_batches_of_a_bank_are_its_views(problem):
    rows = problem.federation().groups["all"].rows(torch.tensor([0, 0]), torch.tensor([1, 3]))
    rngs = [[stream(0, word, client=k) for k in (1, 3)] for word in ("batches", "views")]
    plain = epochs(rows, rngs[0], 2, 8)
    found_rows, found = problem.views.batches(rows, plain, rngs[1], 2)
    x = found_rows.samples["x"]
    for t in range(len(plain.index)):
        for r in range(2):
            batch = {"x": x[found.index[t, r]], "weight": found.real[t, r].double()}
            views, weight = problem.views.of(batch, 2)
            assert torch.equal(weight.bool(), plain.real[t, r])
            for b in torch.nonzero(plain.real[t, r])[:, 0].tolist():
                own = problem.bank[plain.index[t, r, b]]
                assert all(any(torch.equal(view, candidate) for candidate in own) for view in views[b])


def test_the_whole_bank_comes_in_order(problem):
    rows = problem.federation().groups["all"].rows(torch.tensor([0]), torch.tensor([2]))
    x, weight = problem.views.some(rows, slice(0, 10), [stream(0, "whole")], problem.views.bank)
    own = rows.table[0, : min(10, int(rows.sizes[0]))]
    assert torch.equal(x[0, : len(own)], problem.bank[own]) and bool(weight[0, : len(own)].all())


def test_fresh_views_are_the_augmentation_of_the_samples():
    views = Views(AUGMENTATIONS["digits"], 0.3, 0.4, (1, 8, 8))
    x = normal((20, 1, 8, 8), stream(0, "x")).sigmoid()
    draws = views.augmentation.draw(stream(0, "draws"), (20, 2), (1, 8, 8))
    batch = {"x": x, "weight": torch.ones(20)} | {f"view {name}": d for name, d in draws.items()}
    found, weight = views.of(batch, 2)
    assert torch.equal(found, (views.augmentation(x, draws) - 0.3) / 0.4) and torch.equal(weight, torch.ones(20))
    assert found.shape == (20, 2, 1, 8, 8) and not torch.equal(found[:, 0], found[:, 1])


# --- the problem


def test_no_label_reaches_a_client(problem):
    assert set(problem.federation().groups["all"].samples) == {"bank"}
    fresh = pretraining_problem("digits", replace(SMALL, bank=0))
    assert set(fresh.federation().groups["all"].samples) == {"x"} and fresh.bank is None
    assert fresh.seen_bank.shape[:2] == (150, 4)


def test_pixels_and_splits(problem):
    images = data.digits()
    assert float(problem.x.min()) >= 0 and float(problem.x.max()) <= 1
    plain = problem.views.plain(problem.x)
    assert abs(float(plain.mean())) < 1e-6 and abs(float(plain.std()) - 1) < 1e-3
    assert len(images.test_y) > len(problem.test_y) == 80
    for slot in (0, 1):
        owner, part = problem.owners(slot), problem.partitions[slot]
        for k in range(5):
            assert sorted(torch.nonzero(owner == k)[:, 0].tolist()) == sorted(part.table[k, : part.sizes[k]].tolist())


def test_judged_rows_are_even_over_classes():
    y = torch.from_numpy(np.repeat(np.arange(10), 50))
    rows = few_rows(y, 100)
    assert torch.bincount(y[rows]).tolist() == [10] * 10 and torch.equal(rows, few_rows(y, 100))


def test_too_few_judged_rows_are_refused():
    """The probe with few labels takes five of a class, three times."""
    y = torch.from_numpy(np.repeat(np.arange(10), 50))
    assert torch.bincount(y[few_rows(y, 50)]).tolist() == [5] * 10
    with pytest.raises(ValueError, match="judged_samples: got 49; allowed is 0 .all. or at least 50, 5 of each class"):
        few_rows(y, 49)


# --- scores


def test_scores_are_scikit_learns(problem):
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics.pairwise import cosine_similarity

    theta = problem.encoder.init(stream(1, "init"), torch.float64)
    seen = problem.embed(theta)
    found, y, test_y = problem.scores(seen), problem.y.numpy(), problem.test_y.numpy()
    cosine = cosine_similarity(seen.test_z.numpy(), seen.train_z.numpy())
    near = np.argsort(-cosine, axis=1)[:, :20]
    votes = np.zeros((len(test_y), 10))
    for i, row in enumerate(near):
        np.add.at(votes[i], y[row], np.exp(cosine[i, row] / 0.1))
    assert found["knn"] == pytest.approx((votes.argmax(1) == test_y).mean())
    mean, std = seen.train_h.mean(0).numpy(), seen.train_h.std(0, correction=0).numpy()
    scale = np.where(std > 0, std, 1)
    fit = LogisticRegression(C=1.0, tol=1e-8, max_iter=10_000).fit((seen.train_h.numpy() - mean) / scale, y)
    assert found["probe"] == pytest.approx(fit.score((seen.test_h.numpy() - mean) / scale, test_y), abs=0.013)

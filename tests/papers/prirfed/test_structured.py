"""Structured prediction: weights by direct solves, what they depend on, minima by other methods, the words' problem."""

import math

import numpy as np
import pytest
import torch

from fedbook.data import Taxonomy
from fedbook.geometry import Hyperboloid, frechet_mean
from fedbook.papers.prirfed.losses import SquaredDistance
from fedbook.papers.prirfed.structured import (
    Words,
    deal,
    kernel_weights,
    mammal_words,
    predict,
    word_weights,
)
from tests.papers.prirfed.descent import descend

H = Hyperboloid()


@pytest.fixture(scope="module")
def mammals():
    return mammal_words()


def random_features(seed=0, shape=(4, 20, 3)):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


@pytest.mark.parametrize("rule", ["source", "paper", "printed"])
def test_weights_solve_the_ridge_regression(rule):
    w, query = random_features(), random_features(1, (3,))
    found = kernel_weights(w, query, ridge=0.02, width=0.7, rule=rule)
    span = {"source": 2 * 0.7**2, "paper": 2 * 0.7**2, "printed": (2 * 0.7) ** 2}[rule]
    ridge = {"source": 20 * 0.02, "paper": 0.02, "printed": 0.02}[rule]
    for agent in range(4):
        x = w[agent].numpy()
        kernel = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / span)
        near = np.exp(-((x - query.numpy()) ** 2).sum(-1) / span)
        assert np.allclose(found[agent], np.linalg.solve(kernel + ridge * np.eye(20), near), atol=1e-12)
    # regression with labels z predicts sum_j alpha_j z_j: a label function in the kernel's span comes back
    if rule == "paper":
        x = w[0].numpy()
        z = np.exp(-((x - x[3]) ** 2).sum(-1) / span)
        exact = kernel_weights(w[0], query, ridge=1e-10, width=0.7, rule=rule).numpy() @ z
        assert exact == pytest.approx(float(np.exp(-((query.numpy() - x[3]) ** 2).sum() / span)), abs=1e-6)


def test_weights_without_a_minimum_are_refused():
    """A word far from one known word and a little further from two behind it: 0.057 - 0.029 - 0.029 < 0."""
    taxonomy = Taxonomy.from_edges("toy", ["t", "a", "b", "c", "d"], [(i, 0) for i in range(1, 5)])
    points = H.random_point(3, np.random.default_rng(0), (5,))
    features = torch.tensor([[0, 0], [3.3, 0], [3.4, 0.4], [3.4, -0.4], [90, 0]], dtype=torch.float64)
    words = Words(taxonomy, features, points)
    options = {"ridge": 1e-5, "width": 1.0, "rule": "paper"}
    raw = kernel_weights(features[1:4], features[0], **options)
    assert torch.allclose(raw, torch.tensor([0.057, -0.0287, -0.0287], dtype=torch.float64), atol=1e-4)
    with pytest.raises(ValueError, match="^weights: 1 of 1 agents have weights that sum to -0.000359"):
        word_weights(words, "t", torch.tensor([[1, 2, 3]]), **options)
    with pytest.raises(ValueError, match="1 of 2 agents have weights that sum to 0; allowed is a sum above 0"):
        word_weights(words, "t", torch.tensor([[1], [4]]), **options)  # 90 widths away: exp(-4050) is 0
    assert word_weights(words, "t", torch.tensor([[1], [2]]), **options).shape == (2, 1)
    with pytest.raises(ValueError, match="^weights: 1 of 1 agents"):
        predict(points[1:4], raw)


def test_positive_weights_give_the_frechet_mean():
    rng = np.random.default_rng(0)
    for size in (3, 5):
        y = H.random_point(size, rng, (12,))
        weights = torch.from_numpy(rng.random(12))
        x, length = predict(y, weights, tolerance=1e-10)
        mean, _ = frechet_mean(H, H.origin(size), y, weights)
        assert length <= 1e-10 and float(H.dist(x, mean)) < 1e-8
    start = H.random_point(3, rng)
    y = H.random_point(3, rng, (5,))
    first, second = (predict(y, torch.ones(5).double(), start=s)[0] for s in (None, start))
    assert float(H.dist(first, second)) < 1e-6


def test_a_minimum_with_weights_of_either_sign_is_that_of_gradient_descent(mammals):
    records = deal(mammals, "primate")
    weights = word_weights(mammals, "primate", records)
    assert float(weights.min()) < -0.03 and 0.3 < float((weights < 0).double().mean()) < 0.7
    y, a = mammals.points[records].flatten(0, 1), weights.flatten()
    x, length = predict(y, a)
    assert length <= 1e-7
    flat = torch.full_like(a, 1 / len(a))
    plain, size = descend(SquaredDistance(H), H.origin(3), {"y": y, "a": a}, flat, 5.0, 2_000, 1e-7)
    assert float(size) < 1e-6 and float(H.dist(x, plain)) < 1e-4
    around = H.exp(x, 1e-2 * H.basis(x))  # a minimum, no saddle
    for point in (*around, *H.exp(x, -1e-2 * H.basis(x))):
        assert float(a @ H.squared_dist(point, y)) > float(a @ H.squared_dist(x, y))


def test_every_prediction_arrives(mammals):
    """Not convex: Newton's step alone runs away, or up the hill."""
    for word in ("primate", "dog", "horse", "bat"):
        for seed in range(10):
            records = deal(mammals, word, seed=seed)
            weights = word_weights(mammals, word, records, rule="paper").flatten()
            x, length = predict(mammals.points[records].flatten(0, 1), weights)
            assert length <= 1e-7 and float(x[0]) < math.cosh(12)


def errors(words, word, seeds=5, agents=9, **options):
    target = words.points[words.taxonomy.index(word)]
    found = []
    for seed in range(seeds):
        records = deal(words, word, agents, seed)
        weights = word_weights(words, word, records, **options)
        found.append(float(H.dist(predict(words.points[records].flatten(0, 1), weights.flatten())[0], target)))
    return np.array(found)


def test_primate_is_predicted_nearer_than_any_word_lies(mammals):
    names, points = mammals.taxonomy.names, mammals.points
    target = points[mammals.taxonomy.index("primate")]
    nearest = float(H.dist(target, points)[[i for i in range(len(names)) if names[i] != "primate"]].min())
    ours, paper = errors(mammals, "primate", 10), errors(mammals, "primate", 10, rule="paper")
    assert nearest == pytest.approx(3.28, abs=0.01)
    assert ours.mean() == pytest.approx(1.53, abs=0.05) and ours.max() < 1.8
    assert paper.mean() == pytest.approx(2.5, abs=0.15) and paper.min() > ours.max()


def test_deal_gives_every_word_once(mammals):
    records = deal(mammals, "dog", seed=3)
    assert records.shape == (9, 131)
    assert sorted(records.flatten().tolist()) == sorted(set(range(1180)) - {mammals.taxonomy.index("dog")})
    assert torch.equal(records, deal(mammals, "dog", seed=3)) and not torch.equal(records, deal(mammals, "dog", seed=4))
    assert deal(mammals, "dog", agents=10).shape == (10, 117)  # 9 are left over
    assert deal(mammals, "dog", agents=1).shape == (1, 1179)

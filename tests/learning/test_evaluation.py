"""Neighbours, probes and ranks against scikit-learn and against plain loops."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from fedbook.learning import evaluation as e

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])]
DIGITS, LABELS = load_digits(return_X_y=True)
X, Y = torch.from_numpy(DIGITS / 16), torch.from_numpy(LABELS)
TRAIN, TEST = slice(0, 900), slice(900, None)
NAN = math.nan


def test_effective_rank_counts_directions():
    q = torch.linalg.qr(torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q
    for values, rank in (([3.0, 0, 0, 0, 0], 1), ([2.0] * 5, 5), ([1.0, 1, 0, 0, 0], 2), ([0.0] * 5, 0)):
        matrix = q @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ q.T
        for scale in (1e-200, 1.0, 1e200):
            assert float(e.effective_rank(scale * matrix)) == pytest.approx(rank, abs=1e-12)


# nearest neighbours -----------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("weights", ["uniform", "softmax"])
@pytest.mark.parametrize("k", [1, 20, 900])
def test_neighbours_agree_with_scikit_learn_on_digits(device, weights, k, monkeypatch):
    monkeypatch.setattr(e, "BUDGET", 100_000)  # several blocks
    votes = weights if weights == "uniform" else lambda d: np.exp(-d / 0.1)
    other = KNeighborsClassifier(k, weights=votes, metric="cosine", algorithm="brute").fit(X[TRAIN], Y[TRAIN])
    ours = e.knn_predict(X[TRAIN].to(device), Y[TRAIN].to(device), X[TEST].to(device), k, 10, weights)
    assert (ours.cpu().numpy() == other.predict(X[TEST].numpy())).all()


@settings(max_examples=60)
@given(st.integers(1, 12), st.sampled_from(["uniform", "softmax"]), st.integers(0, 9999))
def test_ties_follow_the_stated_rule(k, weights, seed):
    """Few different rows, one of them zero, so that distances tie all the time: a plain loop with a stable sort."""
    rng = np.random.default_rng(seed)
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    train, test, y = points[rng.integers(0, 4, 12)], points[rng.integers(0, 4, 7)], rng.integers(0, 3, 12)
    expected = []
    for q in test:
        d = np.round(1 - train @ q, 12)
        near = np.argsort(d, kind="stable")[:k]
        w = np.ones(k) if weights == "uniform" else np.exp(-d[near] / 0.1)
        expected.append(int(np.argmax(np.round([w[y[near] == c].sum() for c in range(3)], 12))))
    assert e.knn_predict(*map(torch.from_numpy, (train, y, test)), k, 3, weights).tolist() == expected


@pytest.mark.parametrize("scale", [1e-200, 1e-13, 1e-3, 1e20, 1e200])
def test_neighbours_have_no_scale(scale):
    h, y = np.random.default_rng(0).normal(size=(60, 5)), torch.arange(60) % 7
    assert torch.equal(e.knn_predict(torch.from_numpy(h * scale), y, torch.from_numpy(h), 1), y)
    plain = torch.nn.functional.normalize(torch.from_numpy(h), dim=1)
    assert torch.equal(e.unit(torch.from_numpy(h)), plain) and not e.unit(torch.zeros(2, 3)).any()


H, C = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64), torch.arange(20) % 4


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"k": 21}, "k: got 21"), ({"k": 0}, "k: got 0"), ({"train_h": H * NAN}, "train_h"),
        ({"test_h": H[:, :2]}, "test_h"), ({"train_y": C[:-1]}, "train_y"), ({"train_y": C - 1}, "train_y"),
        ({"weights": "softmin"}, "weights"), ({"num_classes": 3}, "num_classes: got 3"),
        ({"num_classes": 0}, "num_classes: got 0"),
    ],
)  # fmt: skip
def test_bad_arguments_of_neighbours_are_named(change, words):
    with pytest.raises((TypeError, ValueError), match=words):
        e.knn_predict(**({"train_h": H, "train_y": C, "test_h": H, "k": 3} | change))


# the linear probe -------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("strength", [0.05, 1.0, 20.0])
def test_probe_is_scikit_learns_logistic_regression(device, strength):
    other = LogisticRegression(C=strength, solver="newton-cholesky", tol=1e-10).fit(X[TRAIN], Y[TRAIN])
    l2 = 1 / (900 * strength)
    ours = e.linear_probe(X[TRAIN].to(device), Y[TRAIN].to(device), l2=l2)
    assert ours.gradient_norm <= 1e-10 and ours.weights.dtype == torch.float64
    scores = ours.scores(X[TEST].to(device)).cpu()
    assert np.abs(scores.softmax(1).numpy() - other.predict_proba(X[TEST].numpy())).max() < 1e-5
    assert np.abs(ours.weights.cpu().numpy() - other.coef_).max() < 1e-5 * np.abs(other.coef_).max()
    loss = torch.nn.functional.cross_entropy(ours.scores(X[TRAIN].to(device)).cpu(), Y[TRAIN])
    assert float(loss + l2 / 2 * ours.weights.square().sum().cpu()) == pytest.approx(ours.loss, rel=1e-9)
    assert ours.accuracy(X[TEST].to(device), Y[TEST].to(device)) == pytest.approx(other.score(X[TEST], Y[TEST]))


def test_probe_of_standardised_features():
    scaler = StandardScaler().fit(X[TRAIN].numpy())
    other = LogisticRegression(solver="newton-cholesky", tol=1e-10).fit(scaler.transform(X[TRAIN].numpy()), Y[TRAIN])
    ours = e.linear_probe(X[TRAIN], Y[TRAIN], standardise=True)  # digits have constant pixels
    theirs = other.predict_proba(scaler.transform(X[TEST].numpy()))
    # a pixel that is constant in training may not be in testing; there the weight is 0 for both
    assert np.abs(ours.scores(X[TEST]).softmax(1).numpy() - theirs).max() < 1e-5


def test_probe_of_two_classes_has_scikit_learns_C_halved():
    two = Y < 2
    other = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-10).fit(X[two], Y[two])
    ours = e.linear_probe(X[two], Y[two], l2=2 / int(two.sum()))
    assert np.abs(ours.scores(X[two]).softmax(1).numpy() - other.predict_proba(X[two])).max() < 1e-6


@pytest.mark.parametrize("scale", [0.0, 1e-200, 1e-6, 1e6, 1e100])
def test_probe_converges_at_any_scale_of_features(scale):
    probe = e.linear_probe(X[TRAIN] * scale, Y[TRAIN], l2=1e-3)
    assert probe.gradient_norm <= 1e-10 and bool(torch.isfinite(probe.weights).all())
    if scale <= 1e-200:  # a collapsed encoder: the probe knows the frequencies and nothing else
        frequencies = torch.bincount(Y[TRAIN]) / 900
        assert torch.allclose(probe.scores(X[:1] * scale).softmax(1)[0], frequencies.double(), atol=1e-7)


def test_probe_that_does_not_converge_says_so():
    with pytest.warns(RuntimeWarning, match="after 5 steps"):
        probe = e.linear_probe(X[TRAIN], Y[TRAIN], max_steps=5)
    assert probe.steps == 5 and probe.gradient_norm > 1e-10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        e.linear_probe(X[TRAIN], Y[TRAIN])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train_y": C * 0 + 2}, "single class 2"), ({"train_h": H * NAN}, "train_h"),
        ({"train_h": H * 1e200}, "overflow"), ({"train_h": H[:5]}, "train_y"), ({"train_h": H[:, :0]}, "train_h"),
        ({"train_y": C.float()}, "train_y"), ({"l2": 0.0}, "l2"),
    ],
)  # fmt: skip
def test_bad_arguments_of_the_probe_are_named(change, words):
    with pytest.raises((TypeError, ValueError), match=words):
        e.linear_probe(**({"train_h": H, "train_y": C} | change))


def test_few_labels():
    rows = e.few_labels(Y, 5, seed=0)
    assert torch.bincount(Y[rows]).tolist() == [5] * 10 and bool((rows.diff() > 0).all())
    assert not torch.equal(rows, e.few_labels(Y, 5, seed=1))
    drawn = torch.stack([e.few_labels(torch.tensor([0, 1, 0, 0, 1]), 1, seed=s) for s in range(300)])
    assert sorted(set(drawn.flatten().tolist())) == [0, 1, 2, 3, 4]
    for labels, per_class, words in ((torch.tensor([0, 0, 3]), 2, "per_class: got 2"), (Y.double(), 1, "labels")):
        with pytest.raises((TypeError, ValueError), match=words):
            e.few_labels(labels, per_class, 0)

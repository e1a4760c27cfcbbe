"""Accuracy, F1, neighbours, probes and ranks against scikit-learn and against plain loops."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler

from fedbook.papers.cvfl import evaluation as e

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])]
DIGITS, LABELS = load_digits(return_X_y=True)
X, Y = torch.from_numpy(DIGITS / 16), torch.from_numpy(LABELS)
TRAIN, TEST = slice(0, 900), slice(900, None)
NAN = float("nan")


def gaussian(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# accuracy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=30)
@given(st.integers(1, 50), st.integers(1, 60), st.integers(0, 99))
def test_accuracy_is_the_share_of_hits_whatever_the_batch(device, count, batch, seed):
    scores = gaussian(count, 4, seed=seed).to(device)
    y = torch.from_numpy(np.random.default_rng(seed).integers(0, 4, count)).to(device)
    expected = sum(int(s.argmax()) == int(t) for s, t in zip(scores, y, strict=True)) / count
    rows = torch.arange(count, device=device)
    assert e.accuracy(lambda r: scores[r], rows, y, batch) == expected
    assert e.accuracy(lambda r: scores[r].argmax(1), rows, y, batch) == expected


def test_accuracy_refuses_what_it_cannot_judge():
    y, x = torch.tensor([0, 1, 2]), torch.zeros(3, 2)
    good = lambda part: torch.zeros(len(part), 3)  # noqa: E731
    for predict, a, b, batch, words in (
        (lambda part: good(part) * NAN, x, y, 8, "predict"),
        (lambda part: good(part)[:, :2], x, y, 8, "y: got labels from 0 to 2"),
        (lambda part: good(part)[:1], x, y, 8, "predict"),
        (lambda part: good(part)[:, 0], x, y, 8, "predict"),
        (lambda part: good(part)[..., None], x, y, 8, "predict"),
        (good, x, y - 1, 8, "y: got labels"),
        (good, x, y.double(), 8, "y: got"),
        (good, x[:2], y, 8, "x and y"),
        (good, x[:0], y[:0], 8, "x and y"),
        (good, x, y, 0, "batch"),
        (good, [1, 2, 3], y, 8, "x: got"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            e.accuracy(predict, a, b, batch)


# F1 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@settings(max_examples=40)
@given(st.integers(1, 40), st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.sampled_from([0.0, 0.2, 1.0]), st.integers(0, 99))
def test_f1_is_scikit_learn_s(device, count, share, positive, seed):
    rng = np.random.default_rng(seed)
    predicted = torch.from_numpy((rng.random((2, 3, count)) < share).astype(np.int64)).to(device)
    truth = torch.from_numpy((rng.random((2, 3, count)) < positive).astype(np.uint8)).to(device)
    found, shared = e.f1(predicted, truth), e.f1(predicted.bool(), truth[0, 1])
    assert found.shape == shared.shape == (2, 3) and found.dtype == torch.float64 and found.device == truth.device
    for i, j in np.ndindex(2, 3):
        for ours, known in ((found, truth[i, j]), (shared, truth[0, 1])):
            theirs = f1_score(known.cpu(), predicted[i, j].cpu(), zero_division=0)
            assert math.isclose(float(ours[i, j]), theirs, rel_tol=1e-12, abs_tol=0)


def test_f1_by_hand():
    truth = torch.tensor([1, 1, 1, 0, 0, 0, 0, 0])
    guess = torch.tensor([1, 1, 0, 1, 0, 0, 0, 0])  # precision 2/3, recall 2/3
    assert math.isclose(float(e.f1(guess, truth)), 2 / 3)
    assert float(e.f1(truth, truth)) == 1 and float(e.f1(1 - truth, truth)) == 0
    assert float(e.f1(truth * 0, truth)) == 0 and float(e.f1(truth * 0, truth * 0)) == 0
    assert e.f1(truth[None, :0].new_zeros(0, 8), truth).shape == (0,)


def test_f1_refuses_what_it_cannot_judge():
    truth = torch.tensor([0, 1, 1])
    for predicted, known, words in (
        (truth.double(), truth, "predicted: got"),
        (truth, truth.double() * NAN, "truth: got"),
        (None, truth, "predicted: got"),
        (truth, "x", "truth: got"),
        (truth + 1, truth, "predicted: got classes from 1 to 2"),
        (truth, truth - 1, "truth: got classes from -1 to 0"),
        (truth[:2], truth, "predicted and truth: got shapes"),
        (truth, truth[None], "predicted and truth: got shapes"),
        (truth[:1], truth, "predicted and truth: got shapes"),
        (truth[:0], truth[:0], "predicted and truth: got shapes"),
        (truth[0], truth[0], "predicted and truth: got shapes"),
        (torch.stack([truth, truth], 1), truth, "predicted and truth: got shapes"),
    ):
        with pytest.raises((TypeError, ValueError), match=f"^{words}"):
            e.f1(predicted, known)


# nearest neighbours -----------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("k", [1, 20, 900])
def test_neighbours_agree_with_scikit_learn_on_digits(device, metric, weights, k):
    test = X[900:1000] if k == 900 else X[TEST]
    other = KNeighborsClassifier(k, weights=weights, metric=metric, algorithm="brute").fit(X[TRAIN], Y[TRAIN])
    ours = e.knn_predict(X[TRAIN].to(device), Y[TRAIN].to(device), test.to(device), k, 10, weights, metric)
    theirs = torch.from_numpy(other.predict(test.numpy()))
    differ = (ours.cpu() != theirs).nonzero()[:, 0]
    # pixels of 17 levels: different images at exactly equal distance, which scikit-learn orders by chance
    assert all(_tied(metric, k, int(i)) for i in differ) and len(differ) <= 3


def _tied(metric, k, i):
    distance = _distance(metric, X[TRAIN], X[TEST][i]).sort().values
    return k < 900 and float(distance[k] - distance[k - 1]) < 1e-12


def _distance(metric, train, query):
    if metric == "euclidean":
        return (train - query).square().sum(1).sqrt()
    return 1 - torch.nn.functional.cosine_similarity(train, query[None], eps=1e-300)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_softmax_votes_agree_with_scikit_learn(metric):
    h = gaussian(300, 5)
    y = (h[:, :4] + 0.7 * gaussian(300, 4, seed=1)).argmax(1)
    train, test = slice(0, 200), slice(200, 300)
    other = KNeighborsClassifier(30, weights=lambda d: np.exp(-d / 0.1), metric=metric, algorithm="brute")
    theirs = other.fit(h[train], y[train]).predict(h[test].numpy())
    ours = e.knn_predict(h[train], y[train], h[test], 30, weights="softmax", metric=metric, temperature=0.1)
    assert ours.tolist() == theirs.tolist()
    far = e.knn_predict(h[train] * 1e4, y[train], h[test] * 1e4, 30, weights="softmax", metric="euclidean")
    nearest = e.knn_predict(h[train], y[train], h[test], 1, metric="euclidean")
    assert torch.equal(far, nearest)  # a vote that sharp is the nearest neighbour's, not 0/0


@settings(max_examples=60)
@given(st.integers(1, 12), st.sampled_from(["uniform", "distance"]), st.integers(0, 9999), st.integers(1, 9))
def test_ties_follow_the_stated_rule(k, weights, seed, chunk):
    """Small whole numbers, so that distances tie all the time: against a plain loop with a stable sort."""
    rng = np.random.default_rng(seed)
    train, test = rng.integers(0, 3, (12, 2)).astype(float), rng.integers(0, 3, (7, 2)).astype(float)
    y = rng.integers(0, 3, 12)
    expected = []
    for q in test:
        d = np.sqrt(((train - q) ** 2).sum(1))
        near = np.argsort(d, kind="stable")[:k]
        w = np.ones(k) if weights == "uniform" else (d[near] == 0) * 1.0 if (d[near] == 0).any() else 1 / d[near]
        expected.append(int(np.argmax(np.round([w[y[near] == c].sum() for c in range(3)], 12))))
    got = e.knn_predict(*map(torch.from_numpy, (train, y, test)), k, 3, weights, "euclidean", chunk=chunk)
    if weights == "uniform":
        assert got.tolist() == expected
    else:  # sums of 1/d that are equal on paper may differ by rounding
        assert sum(a != b for a, b in zip(got.tolist(), expected, strict=True)) <= 1


def test_neighbours_do_not_depend_on_the_chunk():
    h, y = gaussian(200, 6), torch.arange(200) % 7
    answers = [e.knn_predict(h[:150], y[:150], h[150:], 9, weights="softmax", chunk=c) for c in (1, 7, 50, None)]
    assert all(torch.equal(answers[0], a) for a in answers)


def test_a_zero_vector_is_at_cosine_distance_one():
    h, y = gaussian(60, 3), torch.arange(60) % 3
    h[4] = 0
    test = torch.cat([gaussian(20, 3, seed=1), torch.zeros(1, 3, dtype=torch.float64)])
    for weights in ("uniform", "distance"):
        other = KNeighborsClassifier(60, weights=weights, metric="cosine", algorithm="brute").fit(h, y)
        ours = e.knn_predict(h, y, test, 60, weights=weights, metric="cosine")
        assert ours[:20].tolist() == other.predict(test[:20].numpy()).tolist()
    assert int(ours[20]) == 0  # all 60 at distance 1: three equal votes, the smallest class


def test_half_precision_features_are_compared_in_single_precision():
    h, y = gaussian(300, 8), torch.arange(300) % 5
    half = h.to(torch.bfloat16)
    assert torch.equal(
        e.knn_predict(half[:200], y[:200], half[200:]), e.knn_predict(half[:200].float(), y[:200], half[200:].float())
    )


H, C = gaussian(20, 3), torch.arange(20) % 4
BAD_NEIGHBOURS = [
    ({"k": 21}, "k: got 21"),
    ({"k": 0}, "k: got 0"),
    ({"k": 2.0}, "k: got"),
    ({"train_h": H * NAN}, "train_h"),
    ({"test_h": H * NAN}, "test_h"),
    ({"test_h": H[:, :2]}, "test_h"),
    ({"test_h": H[:0]}, "test_h"),
    ({"test_h": H.float()}, "test_h"),
    ({"train_h": H * 1e200, "test_h": H * 1e200}, "overflow"),
    ({"train_h": H.long()}, "train_h"),
    ({"train_y": C[:-1]}, "train_y"),
    ({"train_y": C - 1}, "train_y"),
    ({"train_y": C.double()}, "train_y"),
    ({"num_classes": 3}, "labels from 0 to 3; allowed are classes from 0 to 2"),
    ({"num_classes": 0}, "num_classes"),
    ({"weights": "softmin"}, "weights"),
    ({"metric": "manhattan"}, "metric"),
    ({"weights": "softmax", "temperature": 0.0}, "temperature"),
    ({"chunk": 0}, "chunk"),
]


@pytest.mark.parametrize(("change", "words"), BAD_NEIGHBOURS)
def test_bad_arguments_of_neighbours_are_named(change, words):
    given_ = {"train_h": H, "train_y": C, "test_h": H, "k": 3} | change
    with pytest.raises((TypeError, ValueError), match=words):
        e.knn_predict(**given_)


# the linear probe -------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("strength", [0.05, 1.0, 20.0])
def test_probe_is_scikit_learns_logistic_regression(device, strength):
    other = LogisticRegression(C=strength, solver="newton-cholesky", tol=1e-10).fit(X[TRAIN], Y[TRAIN])
    ours = e.linear_probe(X[TRAIN].to(device), Y[TRAIN].to(device), l2=1 / (900 * strength))
    assert ours.converged and ours.gradient_norm <= 1e-10 and ours.weights.dtype == torch.float64
    theirs = other.predict_proba(X[TEST].numpy())
    assert np.abs(ours.probabilities(X[TEST].to(device)).cpu().numpy() - theirs).max() < 1e-5
    assert np.abs(ours.weights.cpu().numpy() - other.coef_).max() < 1e-5 * np.abs(other.coef_).max()
    assert _objective(ours, 1 / (900 * strength)) <= _objective_of(other, 1 / (900 * strength)) * (1 + 1e-9)
    assert ours.accuracy(X[TEST].to(device), Y[TEST].to(device)) == pytest.approx(other.score(X[TEST], Y[TEST]))


def _objective(probe, l2):
    loss = torch.nn.functional.cross_entropy(probe.scores(X[TRAIN].to(probe.bias)).cpu(), Y[TRAIN])
    value = float(loss + l2 / 2 * probe.weights.square().sum().cpu())
    assert value == pytest.approx(probe.loss, rel=1e-9)
    return value


def _objective_of(other, l2):
    scores = torch.from_numpy(other.decision_function(X[TRAIN].numpy()))
    return float(torch.nn.functional.cross_entropy(scores, Y[TRAIN]) + l2 / 2 * (other.coef_**2).sum())


def test_probe_of_standardised_features():
    scaler = StandardScaler().fit(X[TRAIN].numpy())
    other = LogisticRegression(solver="newton-cholesky", tol=1e-10).fit(scaler.transform(X[TRAIN].numpy()), Y[TRAIN])
    ours = e.linear_probe(X[TRAIN], Y[TRAIN], standardise=True)  # digits have constant pixels
    theirs = other.predict_proba(scaler.transform(X[TEST].numpy()))
    # a pixel that is constant in training may not be in testing; there the weight is 0 for both
    assert np.abs(ours.probabilities(X[TEST]).numpy() - theirs).max() < 1e-5


def test_probe_of_two_classes_has_scikit_learns_C_halved():
    two = Y < 2
    other = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-10).fit(X[two], Y[two])
    ours = e.linear_probe(X[two], Y[two], l2=2 / int(two.sum()))
    assert np.abs(ours.probabilities(X[two]).numpy() - other.predict_proba(X[two])).max() < 1e-6


def test_probe_answers_in_the_labels_it_was_given():
    y = torch.where(Y[TRAIN] < 5, 3, 70)
    probe = e.linear_probe(X[TRAIN].float(), y)
    assert probe.classes.tolist() == [3, 70] and probe.accuracy(X[TRAIN].float(), y) > 0.85
    assert probe.accuracy(X[TEST].float(), Y[TEST]) <= float((Y[TEST] == 3).double().mean())


@pytest.mark.parametrize("scale", [0.0, 1e-200, 1e-6, 1e6, 1e100])
def test_probe_converges_at_any_scale_of_features(scale):
    probe = e.linear_probe(X[TRAIN] * scale, Y[TRAIN], l2=1e-3)
    assert probe.converged and bool(torch.isfinite(probe.weights).all())
    if scale <= 1e-200:  # a collapsed encoder: the probe knows the frequencies and nothing else
        frequencies = torch.bincount(Y[TRAIN]) / 900
        assert torch.allclose(probe.probabilities(X[:1] * scale)[0], frequencies.double(), atol=1e-7)


def test_probe_that_does_not_converge_says_so():
    with pytest.warns(RuntimeWarning, match="after 5 steps"):
        probe = e.linear_probe(X[TRAIN], Y[TRAIN], max_steps=5)
    assert not probe.converged and probe.steps == 5 and probe.gradient_norm > 1e-10
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        e.linear_probe(X[TRAIN], Y[TRAIN])


def test_probe_works_inside_no_grad_and_leaves_features_alone():
    h = X[TRAIN].clone().requires_grad_()
    with torch.no_grad():
        inside = e.linear_probe(h, Y[TRAIN])
    assert torch.equal(inside.weights, e.linear_probe(X[TRAIN], Y[TRAIN]).weights)
    assert h.grad is None and not inside.weights.requires_grad


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train_y": C * 0 + 2}, "single class 2"),
        ({"train_h": H * NAN}, "train_h"),
        ({"train_h": H * 1e200}, "overflow"),
        ({"train_h": H[:5]}, "train_h"),
        ({"train_h": H[:, :0]}, "train_h"),
        ({"train_y": C - 1}, "train_y"),
        ({"train_y": C.float()}, "train_y"),
        ({"l2": 0.0}, "l2"),
        ({"l2": NAN}, "l2"),
        ({"max_steps": 0}, "max_steps"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"standardise": 1}, "standardise"),
    ],
)
def test_bad_arguments_of_the_probe_are_named(change, words):
    with pytest.raises((TypeError, ValueError), match=words):
        e.linear_probe(**({"train_h": H, "train_y": C} | change))


def test_probe_refuses_other_features():
    probe = e.linear_probe(H, C)
    for h in (H[:, :2], H * NAN, H.long()):
        with pytest.raises((TypeError, ValueError), match="h: got"):
            probe.predict(h)
    with pytest.raises(ValueError, match="y: got"):
        probe.accuracy(H, C[:3])


# few labels -------------------------------------------------------------------------------------


def test_few_labels():
    rows = e.few_labels(Y, 5, seed=0)
    assert torch.bincount(Y[rows]).tolist() == [5] * 10 and bool((rows.diff() > 0).all())
    assert torch.equal(rows, e.few_labels(Y.to(torch.uint8), 5, seed=0))
    assert not torch.equal(rows, e.few_labels(Y, 5, seed=1))
    drawn = torch.stack([e.few_labels(torch.tensor([0, 1, 0, 0, 1]), 1, seed=s) for s in range(300)])
    assert sorted(set(drawn.flatten().tolist())) == [0, 1, 2, 3, 4]
    for labels, per_class, words in (
        (torch.tensor([0, 0, 3]), 2, "per_class: got 2; allowed is at most 1, all that class 3 has"),
        (Y, 0, "per_class"),
        (Y.double(), 1, "labels"),
        (Y[:0], 1, "labels"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            e.few_labels(labels, per_class, 0)


# effective rank ---------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.lists(st.floats(0.0, 1e3), min_size=1, max_size=6).filter(lambda v: max(v) > 1e-3), st.integers(0, 99))
def test_effective_rank_is_the_formula_and_lies_between_one_and_the_rank(values, seed):
    lam = torch.tensor(values, dtype=torch.float64)
    q = torch.linalg.qr(gaussian(len(lam), len(lam), seed=seed)).Q
    matrix = (q * lam) @ q.T
    matrix = (matrix + matrix.T) / 2
    participation, entropy = (float(e.effective_rank(matrix, kind)) for kind in ("participation", "entropy"))
    assert participation == pytest.approx(float(lam.sum() ** 2 / lam.square().sum()), rel=1e-9)
    p = [v / sum(values) for v in values if v > 0]
    assert entropy == pytest.approx(math.exp(-sum(x * math.log(x) for x in p if x > 0)), rel=1e-6)
    assert 1 - 1e-9 <= participation <= entropy * (1 + 1e-9) <= len(p) * (1 + 1e-6)


def test_effective_rank_of_features():
    h = gaussian(4000, 6)
    h[:, 4:] = 0
    assert float(e.effective_rank(e.second_moment(h))) == pytest.approx(4, abs=0.1)
    shifted = h + 100
    assert float(e.effective_rank(e.second_moment(shifted))) == pytest.approx(1, abs=0.01)
    assert float(e.effective_rank(e.second_moment(shifted, centred=True))) == pytest.approx(4, abs=0.1)
    batch = gaussian(2, 3, 10, 4)
    ranks = e.effective_rank(e.second_moment(batch))
    assert ranks.shape == (2, 3)
    assert float(ranks[1, 2]) == pytest.approx(float(e.effective_rank(batch[1, 2].T @ batch[1, 2])))
    assert float(e.effective_rank(torch.eye(5))) == pytest.approx(5)
    assert float(e.effective_rank(1e-30 * torch.eye(5))) == pytest.approx(5)


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (torch.zeros(3, 3), "zero"),
        (torch.tensor([[1.0, 2.0], [0.0, 1.0]]), "not symmetric"),
        (torch.diag(torch.tensor([1.0, -0.1])), "eigenvalue below 0"),
        (torch.ones(2, 3), "matrix"),
        (torch.ones(3), "matrix"),
        (torch.eye(3) * NAN, "matrix"),
        (torch.eye(3, dtype=torch.long), "matrix"),
        (torch.ones(0, 2, 2), "matrix"),
    ],
)
def test_bad_matrices_are_refused(matrix, words):
    with pytest.raises((TypeError, ValueError), match=words):
        e.effective_rank(matrix)


def test_bad_words_and_features_are_refused():
    with pytest.raises(ValueError, match="kind"):
        e.effective_rank(torch.eye(2), "nuclear")
    for features in (torch.ones(3), torch.ones(0, 3), torch.ones(2, 2) * NAN, torch.ones(2, 2, dtype=torch.long)):
        with pytest.raises((TypeError, ValueError), match="features"):
            e.second_moment(features)

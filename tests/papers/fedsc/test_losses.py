"""The losses on cosines against plain loops, scipy and scikit-learn, and the identities of their gradients."""

import math

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import entropy
from sklearn.metrics import log_loss
from sklearn.metrics.pairwise import cosine_similarity
from torch.func import grad

from fedbook.learning.online import byol_loss, simsiam_loss
from fedbook.papers.fedsc.contrastive import nt_xent, relation_loss
from fedbook.randomness import normal, stream

LOSSES = {
    "byol": byol_loss,
    "simsiam": simsiam_loss,
    "nt_xent": lambda a, b, weight=None: nt_xent(a, b, 0.2, weight),
    "dictionary": lambda a, b, weight=None: nt_xent(a, b, 0.2, weight, DICTIONARY.to(a.dtype)),
    "relation": lambda a, b, weight=None: relation_loss(a, b, DICTIONARY.to(a.dtype), 0.2, weight),
}
each_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())


def draw(*shape, name="a"):
    return normal(shape, stream(0, f"{name}/{shape}"))


DICTIONARY = draw(7, 6, name="dictionary")


def close(ours, theirs, rtol=1e-12):
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=rtol)


# ------------------------------------------------------------------------------------------------- against the loops


def test_byol_and_simsiam_against_numpy():
    p, z = draw(9, 6), draw(9, 6, name="b")
    cosines = np.diagonal(cosine_similarity(p.numpy(), z.numpy()))
    distances = [
        np.sum((x / np.linalg.norm(x) - y / np.linalg.norm(y)) ** 2) for x, y in zip(p.numpy(), z.numpy(), strict=True)
    ]
    assert float(byol_loss(p, z)) == pytest.approx(np.mean(distances), rel=1e-13)
    assert float(simsiam_loss(p, z)) == pytest.approx(-np.mean(cosines), rel=1e-13)
    assert float(byol_loss(p, 3 * p)) == pytest.approx(0, abs=1e-15) and float(byol_loss(p, -p)) == pytest.approx(4)
    assert float(simsiam_loss(p, p)) == pytest.approx(-1)


@pytest.mark.parametrize("temperature", [0.05, 0.1, 1.0])
@pytest.mark.parametrize("entries", [0, 7])
def test_nt_xent_is_the_cross_entropy_of_finding_the_other_view(temperature, entries):
    a, b, extra = draw(8, 6), draw(8, 6, name="b"), DICTIONARY[:entries]
    candidates = np.concatenate([a.numpy(), b.numpy(), extra.numpy()])
    scores = cosine_similarity(candidates[:16], candidates) / temperature
    np.fill_diagonal(scores, -np.inf)
    probability, positive = softmax(scores, axis=1), (np.arange(16) + 8) % 16
    by_sklearn = log_loss(positive, probability, labels=np.arange(16 + entries))
    ours = float(nt_xent(a, b, temperature, negatives=extra))
    assert ours == pytest.approx(by_sklearn, rel=1e-10)
    if entries == 0:
        assert float(nt_xent(a, b, temperature)) == ours


@pytest.mark.parametrize("temperature", [0.01, 0.1, 1.0])
def test_relation_against_scipy(temperature):
    a, b = draw(8, 6), draw(8, 6, name="b")
    reference = DICTIONARY.numpy()
    p = softmax(cosine_similarity(a.numpy(), reference) / temperature, axis=1)
    q = softmax(cosine_similarity(b.numpy(), reference) / temperature, axis=1)
    m = (p + q) / 2
    truth = np.mean([(entropy(m[i], p[i]) + entropy(m[i], q[i])) / 2 for i in range(8)])
    assert float(relation_loss(a, b, DICTIONARY, temperature)) == pytest.approx(truth, rel=1e-10)
    assert float(relation_loss(a, 2 * a, DICTIONARY, temperature)) == pytest.approx(0, abs=1e-15)
    assert float(relation_loss(b, a, DICTIONARY, temperature)) == pytest.approx(truth, rel=1e-10)
    assert float(relation_loss(a, b, DICTIONARY[:1], temperature)) == pytest.approx(0, abs=1e-15)


# --------------------------------------------------------------------------------------------------------- gradients


@each_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_vectors_have_cosine_zero_and_a_finite_gradient(loss, dtype):
    a, b = draw(4, 6).to(dtype), draw(4, 6, name="b").to(dtype)
    a[0], b[1], a[2], b[2] = 0, 0, 0, 0
    tiny = torch.tensor([1, 1, 1, 1e-25], dtype=dtype)[:, None]  # the square is 0 in float32
    torch.testing.assert_close(loss(tiny * a, b), loss(a, b))
    for slope in grad(lambda pair: loss(*pair))((tiny * a, b)):
        assert bool(slope.isfinite().all())
    if loss is simsiam_loss:
        cosine = torch.dot(a[3], b[3]) / a[3].norm() / b[3].norm()  # the only one of four that is not 0
        torch.testing.assert_close(loss(a, b), -cosine / 4)


# ------------------------------------------------------------------------------------- permutations, padding and vmap


@each_loss
@pytest.mark.parametrize("garbage", [0.0, 5.0, 1e200, math.inf, math.nan])
def test_rows_that_fill_up_a_batch_do_not_count(loss, garbage):
    a, b, real = draw(6, 6), draw(6, 6, name="b"), torch.tensor([1, 0, 1, 1, 0, 1])
    x, y = (torch.where(real[:, None] > 0, z, garbage) for z in (a, b))
    for weight in (real.double(), real.float(), real > 0):
        close(loss(x, y, weight), loss(a[real > 0], b[real > 0]))
        slope = grad(loss)(x, y, weight)
        close(slope[real > 0], grad(loss)(a[real > 0], b[real > 0]))
        assert not slope[real == 0].any()
    none = torch.zeros(6)
    assert float(loss(x, y, none)) == 0 and not grad(loss)(x, y, none).any()

"""The losses on cosines against plain loops, scipy and scikit-learn, and the identities of their gradients."""

import math

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import entropy
from sklearn.metrics import log_loss
from sklearn.metrics.pairwise import cosine_similarity
from torch.func import grad, vmap

from fedbook.learning.siamese import byol_loss, nt_xent, relation_loss, simsiam_loss
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
    by_loop = 0.0
    for i in range(16):
        others = [math.exp(scores[i, k]) for k in range(16 + entries) if k != i]
        by_loop += (math.log(sum(others)) - scores[i, positive[i]]) / 16
    assert ours == pytest.approx(by_loop, rel=1e-12)
    if entries == 0:
        assert float(nt_xent(a, b, temperature)) == ours


def test_nt_xent_by_hand():
    """One sample has nothing to be confused with; two orthogonal ones: log(e^(1/t) + 2) - 1/t."""
    a = torch.eye(2, dtype=torch.float64)
    assert float(nt_xent(a[:1], 5 * a[:1])) == 0
    assert float(nt_xent(a, a, 0.5)) == pytest.approx(math.log(math.exp(2) + 2) - 2, rel=1e-14)
    assert float(nt_xent(a, a, 0.5, negatives=-a)) == pytest.approx(
        math.log(math.exp(2) + 3 + math.exp(-2)) - 2, rel=1e-14
    )
    assert float(nt_xent(a[:1], a[1:], 0.5, negatives=0 * a[:1])) == pytest.approx(math.log(2), rel=1e-14)


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
def test_gradients_by_finite_differences(loss):
    a, b = draw(5, 6).requires_grad_(), draw(5, 6, name="b")
    assert torch.autograd.gradcheck(lambda a: loss(a, b), (a,))
    if loss in (byol_loss, simsiam_loss):  # the target is a constant for them
        assert not grad(lambda b: loss(a.detach(), b))(b).any()
    else:
        assert torch.autograd.gradcheck(lambda b: loss(a.detach(), b), (b.requires_grad_(),))


def test_gradients_reach_negatives_and_reference():
    a, b, extra = draw(5, 6), draw(5, 6, name="b"), DICTIONARY.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda extra: nt_xent(a, b, 0.3, negatives=extra), (extra,))
    assert torch.autograd.gradcheck(lambda extra: relation_loss(a, b, extra, 0.3), (extra,))


@each_loss
def test_gradient_of_each_row_is_orthogonal_to_it(loss):
    a, b = draw(5, 6), draw(5, 6, name="b")
    slope = grad(loss)(a, b)
    assert float((slope * a).sum(1).abs().max()) < 1e-15 and float(slope.abs().min()) > 1e-6
    scale = torch.tensor([0.1, 3.0, 1e-30, 1e30, 7.0], dtype=torch.float64)[:, None]
    close(loss(scale * a, b / scale), loss(a, b))
    close(scale * grad(loss)(scale * a, b), slope)


def test_byol_is_two_plus_twice_simsiam():
    p, z = draw(9, 6), draw(9, 6, name="b")
    close(byol_loss(p, z), 2 + 2 * simsiam_loss(p, z))
    close(grad(byol_loss)(p, z), 2 * grad(simsiam_loss)(p, z))


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
def test_order_of_the_samples_does_not_matter(loss):
    a, b = draw(6, 6), draw(6, 6, name="b")
    order = torch.from_numpy(stream(0, "order").permutation(6))
    close(loss(a[order], b[order]), loss(a, b))
    assert abs(float(loss(a[order], b) - loss(a, b))) > 1e-3
    close(grad(loss)(a[order], b[order]), grad(loss)(a, b)[order])


def test_order_of_the_extra_rows_does_not_matter():
    a, b, order = draw(6, 6), draw(6, 6, name="b"), torch.from_numpy(stream(0, "order").permutation(7))
    close(nt_xent(a, b, negatives=DICTIONARY[order]), nt_xent(a, b, negatives=DICTIONARY))
    close(relation_loss(a, b, DICTIONARY[order]), relation_loss(a, b, DICTIONARY))


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


@pytest.mark.parametrize("garbage", [0.0, 5.0, math.nan])
def test_extra_rows_that_fill_up_do_not_count(garbage):
    a, b, real = draw(5, 6), draw(5, 6, name="b"), torch.tensor([1.0, 0, 1, 0, 1, 1, 0])
    extra, kept, none = torch.where(real[:, None] > 0, DICTIONARY, garbage), DICTIONARY[real > 0], torch.zeros(7)
    close(nt_xent(a, b, 0.2, None, extra, real), nt_xent(a, b, 0.2, negatives=kept))
    close(nt_xent(a, b, 0.2, None, extra, none), nt_xent(a, b, 0.2))
    close(relation_loss(a, b, extra, 0.2, None, real), relation_loss(a, b, kept, 0.2))
    assert float(relation_loss(a, b, extra, 0.2, None, none)) == 0
    for call in (
        lambda a: nt_xent(a, b, 0.2, None, extra, none),
        lambda a: relation_loss(a, b, extra, 0.2, None, none),
    ):
        assert bool(grad(call)(a).isfinite().all())
    slope = grad(lambda extra: relation_loss(a, b, extra, 0.2, None, real) + nt_xent(a, b, 0.2, None, extra, real))(
        extra
    )
    assert not slope[real == 0].any() and bool(slope[real > 0].any(1).all())


@each_loss
def test_vmap_over_clients_is_the_loop(loss):
    a, b, weight = draw(3, 5, 6), draw(3, 5, 6, name="b"), torch.ones(3, 5)
    weight[0, 3:], weight[2] = 0, 0
    values, slopes = vmap(loss)(a, b, weight), vmap(grad(loss))(a, b, weight)
    for k in range(3):
        close(values[k], loss(a[k], b[k], weight[k]))
        close(slopes[k], grad(loss)(a[k], b[k], weight[k]))


@pytest.mark.parametrize("call", [nt_xent, relation_loss])
def test_vmap_over_extra_rows_is_the_loop(call):
    a, b, extra, real = draw(3, 5, 6), draw(3, 5, 6, name="b"), draw(3, 4, 6, name="extra"), torch.ones(3, 4)
    real[0, 1:], real[2] = 0, 0

    def loss(a, b, extra, real):
        if call is nt_xent:
            return nt_xent(a, b, 0.2, negatives=extra, negative_weight=real)
        return relation_loss(a, b, extra, 0.2, reference_weight=real)

    together, slopes = vmap(loss)(a, b, extra, real), vmap(grad(loss))(a, b, extra, real)
    for k in range(3):
        close(together[k], loss(a[k], b[k], extra[k], real[k]))
        close(slopes[k], grad(loss)(a[k], b[k], extra[k], real[k]))


def test_dtype_and_device_follow(device):
    a, b = draw(4, 6).to(device, torch.float32), draw(4, 6, name="b").to(device, torch.float32)
    weight = torch.ones(4, dtype=torch.float64, device=device)
    found = [byol_loss(a, b, weight), simsiam_loss(a, b), nt_xent(a, b, 0.1, weight, b, weight), relation_loss(a, b, b)]
    assert all(x.dtype == torch.float32 and x.device == a.device and x.ndim == 0 for x in found)


# ---------------------------------------------------------------------------------------------------- bad arguments

A, B = draw(4, 6), draw(4, 6, name="b")
FIRST = [None, "x", 1.0, A.long(), A[0], torch.zeros(4, 0), torch.zeros(2, 4, 6)]
SECOND = [*FIRST, B[:3], B[:, :5]]
EXTRA = ["x", 1.0, DICTIONARY.long(), DICTIONARY[0], DICTIONARY[:, :5]]
WEIGHTS = ["x", 1.0, torch.ones(3), torch.ones(4, 1)]
TEMPERATURES = [None, "x", 0.0, -1.0, math.nan, math.inf, True]
TABLE = {
    byol_loss: (
        {"prediction": A, "target": B, "weight": torch.ones(4)},
        {"prediction": FIRST, "target": SECOND, "weight": WEIGHTS},
    ),
    simsiam_loss: ({"prediction": A, "target": B}, {"prediction": FIRST, "target": SECOND, "weight": WEIGHTS}),
    nt_xent: (
        {"a": A, "b": B, "negatives": DICTIONARY, "negative_weight": torch.ones(7)},
        {
            "a": FIRST,
            "b": SECOND,
            "temperature": TEMPERATURES,
            "weight": WEIGHTS,
            "negatives": [*EXTRA, None],
            "negative_weight": WEIGHTS,
        },
    ),
    relation_loss: (
        {"a": A, "b": B, "reference": DICTIONARY},
        {
            "a": FIRST,
            "b": SECOND,
            "reference": [*EXTRA, None, torch.zeros(0, 6)],
            "temperature": TEMPERATURES,
            "weight": WEIGHTS,
            "reference_weight": WEIGHTS,
        },
    ),
}
CALLS = [(call, name, value) for call, (_, bad) in TABLE.items() for name, values in bad.items() for value in values]


@pytest.mark.parametrize(("call", "name", "value"), CALLS, ids=lambda x: getattr(x, "__name__", None))
def test_nonsense_is_refused_by_name(call, name, value):
    good = TABLE[call][0]
    call(**good)
    with pytest.raises((TypeError, ValueError), match=rf"^{name}|^negative_weight"):
        call(**{**good, name: value})

"""CKA against explicit centring matrices, brute-force U-statistics, autograd, and the identities D1 to D11."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import grad, vmap

from fedbook.papers.hetero_ssfl import cka as module
from fedbook.papers.hetero_ssfl.cka import (
    StreamedCKA,
    centred_gram,
    factor,
    gram,
    gram_cka,
    linear_cka,
    mean_gram,
    varying,
)
from fedbook.randomness import normal, stream
from tests.papers.hetero_ssfl.small import song

EXACT = {"rtol": 0, "atol": 1e-12}
close = torch.testing.assert_close


def gaussian(*shape, seed=0, dtype=torch.float64):
    return normal(shape, stream(seed, "cka")).to(dtype)


def orthogonal(d, seed=0):
    return torch.linalg.qr(gaussian(d, d, seed=seed + 100))[0]


def centring(n):
    return torch.eye(n, dtype=torch.float64) - torch.ones(n, n, dtype=torch.float64) / n


def explicit_cka(a, b):
    """By the definition: H K H and the trace, nothing shared with the module."""
    h = centring(len(a))
    k, m = h @ a @ a.T @ h, h @ b @ b.T @ h
    return torch.trace(k @ m) / (torch.trace(k @ k) * torch.trace(m @ m)).sqrt()


# --- the definition and its two forms


def test_feature_form_is_gram_form_is_the_definition():
    a, b = gaussian(40, 7), gaussian(40, 11, seed=1) + 3
    close(linear_cka(a, b), explicit_cka(a, b), **EXACT)
    close(gram_cka(gram(a), gram(b)), explicit_cka(a, b), **EXACT)
    printed = (b.T @ a).square().sum() / ((a.T @ a).norm() * (b.T @ b).norm())
    close(linear_cka(a, b, centre=False), printed, **EXACT)
    close(gram_cka(gram(a), gram(b), centre=False), printed, **EXACT)
    h = centring(40)
    close(varying(a), h @ a, **EXACT)
    close(centred_gram(gram(b)), h @ b @ b.T @ h, rtol=0, atol=1e-11)


def test_the_widths_of_clients_may_differ_and_batches_equal_loops():
    target = gaussian(3, 20, 6)
    for d in (1, 5, 9, 20, 64):
        a = gaussian(3, 20, d, seed=d)
        for unbiased in (False, True):
            values = linear_cka(a, target, unbiased=unbiased)
            loop = torch.stack([linear_cka(x, y, unbiased=unbiased) for x, y in zip(a, target, strict=True)])
            mapped = vmap(lambda x, y, u=unbiased: linear_cka(x, y, unbiased=u))(a, target)
            close(values, loop, **EXACT)
            close(mapped, loop, **EXACT)
            close(gram_cka(gram(a), gram(target), unbiased=unbiased), loop, **EXACT)
            one = linear_cka(a, target[0], unbiased=unbiased)  # leading axes broadcast
            close(one, torch.stack([linear_cka(x, target[0], unbiased=unbiased) for x in a]), **EXACT)


# --- invariances, range, geometry


@given(st.integers(0, 10_000), st.sampled_from([(2, 1, 1), (6, 3, 9), (12, 5, 4), (40, 7, 11)]))
def test_range_symmetry_and_invariance(seed, shape):
    n, d1, d2 = shape
    a, b = gaussian(n, d1, seed=seed), gaussian(n, d2, seed=seed + 1)
    value = linear_cka(a, b)
    assert 0 <= float(value) <= 1 + 1e-12
    close(linear_cka(b, a), value, **EXACT)
    close(linear_cka(a, a), torch.ones_like(value), **EXACT)
    order = torch.from_numpy(stream(seed, "order").permutation(n))
    moved = 3.7 * a @ orthogonal(d1, seed) + gaussian(d1, seed=seed + 2)
    close(linear_cka(moved, b), value, rtol=0, atol=1e-12 if n > 2 else 1e-9)
    close(linear_cka(a[order], b[order]), value, **EXACT)
    if n >= 4:
        debiased = linear_cka(a, b, unbiased=True)
        close(linear_cka(moved, b, unbiased=True), debiased, rtol=0, atol=1e-9)
        assert abs(float(debiased)) <= 1 + 1e-9


def test_rbf_kernel():
    a = gaussian(11, 3)
    distance = (a[:, None] - a).square().sum(-1).sqrt()
    pairs = [float(distance[p, q]) for p, q in itertools.combinations(range(11), 2)]
    s = 0.7 * np.median(pairs)  # 55 pairs: one median
    close(gram(a, "rbf", 0.7), torch.exp(-distance.square() / (2 * s**2)), **EXACT)
    moved = 2.5 * a @ orthogonal(3) + 4
    close(gram(moved, "rbf", 0.7), gram(a, "rbf", 0.7), **EXACT)
    wide = gram_cka(gram(a, "rbf", 1e4), gram(gaussian(11, 5, seed=1)))  # a wide bandwidth is the linear kernel
    close(wide, linear_cka(a, gaussian(11, 5, seed=1)), rtol=0, atol=1e-6)
    m = gaussian(11, 11, seed=2)
    x, y = a.clone().requires_grad_(), a.clone().requires_grad_()
    ours = torch.autograd.grad((gram(x, "rbf", 0.7) * m).sum(), x)[0]
    fixed = torch.autograd.grad((torch.exp(-(y[:, None] - y).square().sum(-1) / (2 * s**2)) * m).sum(), y)[0]
    close(ours, fixed, **EXACT)  # no gradient goes to s
    batch = gaussian(4, 11, 3, seed=3)
    close(vmap(lambda z: gram(z, "rbf"))(batch), torch.stack([gram(z, "rbf") for z in batch]), **EXACT)
    twins = torch.tensor([[0.0], [0.0], [0.0], [1.0]]).double().requires_grad_()  # the median distance is 0
    kernel = gram(twins, "rbf")
    assert torch.equal(kernel, torch.block_diag(torch.ones(3, 3), torch.ones(1, 1)).double())
    assert torch.autograd.grad(kernel.sum(), twins)[0].abs().max() == 0


@pytest.mark.parametrize(
    "wrong, words",
    [
        (lambda a: gram(a[:1], "rbf"), "a: got"),
        (lambda a: gram(a, "rbf", -1.0), "bandwidth: got -1.0"),
        (lambda a: gram(a, "rbf", 0.0), "bandwidth: got 0.0"),
        (lambda a: module.mean_gram([a], [0.0]), "weights: got"),
        (lambda a: module.mean_gram([a, a], [2.0, -1.0]), "weights: got -1.0"),
        (lambda a: module.factor([a, a], [1.0]), "weights: got"),
        (lambda a: module.factor([], []), "weights: got"),
    ],
)
def test_what_makes_no_kernel_is_refused(wrong, words):
    with pytest.raises((TypeError, ValueError), match=f"^{words}"):
        wrong(gaussian(6, 3))


# --- the unbiased form


@pytest.mark.parametrize("n", [4, 5, 12])
def test_hsic_1_is_songs_formula(n):
    k, m = gram(gaussian(n, 3) + 2), gram(gaussian(n, 5, seed=1), "rbf")
    value = song(k, m) / (song(k, k) * song(m, m)).sqrt()
    close(gram_cka(k, m, unbiased=True), value, rtol=1e-9, atol=0)
    a, b = gaussian(n, 3), gaussian(n, 5, seed=1) - 1
    value = song(a @ a.T, b @ b.T) / (song(a @ a.T, a @ a.T) * song(b @ b.T, b @ b.T)).sqrt()
    for wide in (1, 50):  # feature form, Gram form
        x, y = a.repeat(1, wide), b.repeat(1, wide)
        close(linear_cka(x, y, unbiased=True), value, rtol=0, atol=1e-9)


# --- constants


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("unbiased", [False, True])
def test_constant_representations_have_no_alignment_and_no_gradient(dtype, unbiased):
    rows = gaussian(1, 8, dtype=dtype).expand(16, 8)
    noise = torch.finfo(dtype).eps * rows.abs() * gaussian(16, 8, seed=1, dtype=dtype).clamp(-3, 3)
    b = gaussian(16, 5, seed=2, dtype=dtype)
    forms = {
        "features": lambda x, y: linear_cka(x, y, unbiased=unbiased),
        "kernels": lambda x, y: gram_cka(gram(x), gram(y), unbiased=unbiased),
        "rbf": lambda x, y: gram_cka(gram(x, "rbf"), gram(y, "rbf"), unbiased=unbiased),
        "wide": lambda x, y: linear_cka(x.repeat(1, 9), y, unbiased=unbiased),
    }
    for constant in (torch.zeros_like(rows), rows.clone(), rows + noise, 1000 * rows + 1000 * noise):
        batch = torch.stack([constant, gaussian(16, 8, seed=3, dtype=dtype)])
        for value in forms.values():
            for x, y in ((constant, b), (b, constant), (constant, constant)):
                assert float(value(x, y)) == 0
            assert grad(value)(constant, b).abs().max() == 0 and grad(value, 1)(constant, b).abs().max() == 0
            mapped, gradient = vmap(value, (0, None))(batch, b), vmap(grad(value), (0, None))(batch, b)
            assert float(mapped[0]) == 0 != float(mapped[1])
            assert gradient[0].abs().max() == 0 < gradient[1].abs().max() and gradient.isfinite().all()
        streamed = StreamedCKA()
        for piece, other in zip(constant.split(5), b.split(5), strict=True):
            streamed.add(piece, other)
        assert float(streamed.value(unbiased)) == 0
    if not unbiased:
        zero = torch.zeros_like(rows).requires_grad_()
        value = linear_cka(zero, b, centre=False)
        assert value.item() == 0 and torch.autograd.grad(value, zero)[0].abs().max() == 0


# --- aggregation

CLIENTS = [gaussian(20, 5), 4 * gaussian(20, 9, seed=1) + 1, 0.3 * gaussian(20, 30, seed=2)]
WEIGHTS = [0.5, 0.2, 0.3]


@pytest.mark.parametrize("normalise", [False, True])
def test_mean_kernel_and_factor(normalise):
    h = centring(20)
    kernels = [a @ a.T for a in CLIENTS]
    if normalise:
        kernels = [h @ k @ h / (h @ k @ h).norm() for k in kernels]
    expected = sum(w * k for w, k in zip(WEIGHTS, kernels, strict=True))
    mean, c = mean_gram(CLIENTS, WEIGHTS, normalise), factor(CLIENTS, WEIGHTS, normalise)
    assert c.shape == (20, 44)
    close(mean, expected, rtol=1e-12, atol=1e-12)
    close(c @ c.T, expected, rtol=1e-12, atol=1e-12)
    for weights in ([5, 2, 3], torch.tensor(WEIGHTS, dtype=torch.float64) * 7, np.array(WEIGHTS)):
        close(mean_gram(CLIENTS, weights, normalise), mean, rtol=1e-12, atol=1e-12)
    close(centred_gram(mean), sum(w * h @ k @ h for w, k in zip(WEIGHTS, kernels, strict=True)), rtol=0, atol=1e-11)
    for a in (*CLIENTS, gaussian(20, 4, seed=9)):
        value = linear_cka(a, c)
        close(value, gram_cka(gram(a), mean), **EXACT)


# --- many samples


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("chunks", [[60], [1, 3, 7, 20, 29], [59, 1]])
def test_streamed_is_whole(chunks, offset):
    a, b = gaussian(60, 5) + offset, gaussian(60, 80, seed=1) * torch.arange(1, 81) - 3 * offset
    streamed = StreamedCKA()
    for x, y in zip(a.split(chunks), b.split(chunks), strict=True):
        streamed.add(x, y)
    for unbiased in (False, True):
        close(streamed.value(unbiased), linear_cka(a, b, unbiased=unbiased), rtol=0, atol=1e-10)
        close(streamed.value(unbiased), gram_cka(gram(a - a[0]), gram(b - b[0]), unbiased=unbiased), rtol=0, atol=1e-10)
    assert streamed.moments.shape == (88, 88)


@pytest.mark.parametrize("scale", [1e-82, 1.0, 1e78])
def test_streams_have_no_scale_and_hide_no_nan(scale):
    a, b = gaussian(20, 5), gaussian(20, 7, seed=1)
    streamed, spoilt = StreamedCKA(), StreamedCKA()
    for x, y in zip(a.split(8), b.split(8), strict=True):
        streamed.add(scale * x, y / scale)
        spoilt.add(scale * x, y * torch.where(y == b[3, 3], math.nan, 1.0))
    for unbiased in (False, True):
        close(streamed.value(unbiased), linear_cka(a, b, unbiased=unbiased), rtol=1e-9, atol=0)
        assert spoilt.value(unbiased).isnan()


def test_streams_refuse_what_linear_cka_does():
    a, b = gaussian(6, 3), gaussian(6, 5, seed=1)
    streamed = StreamedCKA()
    streamed.add(a, b)
    for x, y, words in (
        (b, a, "widths: got"),
        (a, b[:4], "b: got"),
        (a.half(), b.half(), "b: got"),
        (a[0], b, "a: got"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            streamed.add(x, y)
    for sums, rows in ((streamed, 0), (StreamedCKA(), 6)):
        for part in (slice(0, 0), slice(0, rows)):  # nothing is no first chunk, and changes nothing
            sums.add(a[part], b[part])
        close(sums.value(), linear_cka(a, b), **EXACT)
    for few in ([a[:3], a[:3]], [a, a[:4]]):
        with pytest.raises(ValueError, match=": got"):
            module.pairwise_cka(few, unbiased=True)


@pytest.mark.parametrize("unbiased", [False, True])
def test_pairwise_is_every_pair(unbiased):
    rng = stream(0, "pairwise")
    each = [normal((30, d), rng) * 10 ** (d - 5) + d for d in (3, 8, 5)] + [torch.ones(30, 4, dtype=torch.float64)]
    found = module.pairwise_cka(each, unbiased)
    expected = torch.tensor([[float(linear_cka(a, b, unbiased=unbiased)) for b in each] for a in each]).double()
    assert float((found - expected).abs().max()) < 1e-7 and not bool(found[3].any())

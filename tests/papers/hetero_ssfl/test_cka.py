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
    ceiling,
    centred,
    centred_gram,
    cka_gradient,
    factor,
    gram,
    gram_cka,
    hsic,
    linear_cka,
    mean_gram,
    minibatch_cka,
    peer_weights,
)
from fedbook.randomness import normal, stream

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


def song(k, m):
    """HSIC_1 as printed by Song et al., from kernels without their diagonals."""
    n = len(k)
    k, m = k - torch.diag(k.diagonal()), m - torch.diag(m.diagonal())
    one = torch.ones(n, dtype=k.dtype)
    inner = torch.trace(k @ m) + (one @ k @ one) * (one @ m @ one) / ((n - 1) * (n - 2))
    return (inner - 2 / (n - 2) * (one @ k @ m @ one)) / (n * (n - 3))


def columns(n, count, seed=0):
    """Orthonormal columns of zero mean."""
    return torch.linalg.qr(centred(gaussian(n, count, seed=seed)))[0]


# --- the definition and its two forms


def test_two_samples_by_hand():
    """Centring leaves the deviations (-1, 1) and (2, -2): kernels [[1, -1], [-1, 1]] and four times that."""
    a, b = torch.tensor([[0.0], [2.0]]).double(), torch.tensor([[7.0], [3.0]]).double()
    assert centred(a).flatten().tolist() == [-1, 1]
    assert centred_gram(gram(a)).tolist() == [[1, -1], [-1, 1]]
    assert float(hsic(gram(a), gram(b))) == 16 and float(linear_cka(a, b)) == 1  # the squared covariance is (-4)^2
    assert float(linear_cka(a, b, centre=False)) == pytest.approx(36 / (4 * 58))  # (a.b)^2 / (|a|^2 |b|^2)


def test_feature_form_is_gram_form_is_the_definition():
    a, b = gaussian(40, 7), gaussian(40, 11, seed=1) + 3
    close(linear_cka(a, b), explicit_cka(a, b), **EXACT)
    close(gram_cka(gram(a), gram(b)), explicit_cka(a, b), **EXACT)
    printed = (b.T @ a).square().sum() / ((a.T @ a).norm() * (b.T @ b).norm())
    close(linear_cka(a, b, centre=False), printed, **EXACT)
    close(gram_cka(gram(a), gram(b), centre=False), printed, **EXACT)
    h = centring(40)
    close(centred(a), h @ a, **EXACT)
    close(centred_gram(gram(b)), h @ b @ b.T @ h, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("rows", "d1", "d2", "features"), [(40, 7, 11, True), (40, 30, 90, False), (9, 3, 40, False)])
def test_the_cheaper_form_is_chosen(rows, d1, d2, features, monkeypatch):
    a, b, shapes = gaussian(rows, d1), gaussian(rows, d2, seed=1), []
    dot = module._dot
    monkeypatch.setattr(module, "_dot", lambda x, y: (shapes.append(tuple(x.shape)), dot(x, y))[1])
    close(linear_cka(a, b), explicit_cka(a, b), **EXACT)
    assert shapes == ([(d1, d2), (d1, d1), (d2, d2)] if features else [(rows, rows)] * 3)
    by_features, by_grams = rows * (d1 * d2 + d1 * d1 + d2 * d2), rows * rows * (d1 + d2)
    assert features == (by_features <= by_grams)


def test_hsic_is_the_squared_cross_covariance():
    a, b = gaussian(30, 4), gaussian(30, 6, seed=1)
    covariance = torch.from_numpy(np.cov(a.numpy().T, b.numpy().T)[:4, 4:])
    close(hsic(gram(a), gram(b)), covariance.square().sum(), **EXACT)


def test_spectral_form():
    """D5: principal directions that agree, weighted by their variance."""
    a, b = gaussian(25, 4), gaussian(25, 6, seed=1)
    (u, s, _), (v, t, _) = (torch.linalg.svd(x - x.mean(0), full_matrices=False) for x in (a, b))
    value = (s[:, None] ** 2 * t**2 * (u.T @ v) ** 2).sum() / ((s**4).sum() * (t**4).sum()).sqrt()
    close(linear_cka(a, b), value, **EXACT)


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


def test_without_centring_a_shift_changes_the_value():
    a, shift = gaussian(40, 7), 5.0
    b = torch.cat([a, gaussian(40, 4, seed=1)], 1)
    before, after = linear_cka(a, b, centre=False), linear_cka(a + shift, b, centre=False)
    assert abs(float(after - before)) > 0.1  # a common offset drives it
    close(linear_cka(a + shift, b), linear_cka(a, b), **EXACT)


@pytest.mark.parametrize("s", [0.1, 2.0, 10.0])
def test_no_invariance_to_a_linear_map(s):
    """D4: diag(s, 1) is invertible, and moves CKA from 1/sqrt 2 to anything between 0 and 1."""
    a = columns(30, 2)
    w = torch.diag(torch.tensor([s, 1.0], dtype=torch.float64))
    assert float(linear_cka(a, a[:, :1])) == pytest.approx(1 / math.sqrt(2), abs=1e-12)
    assert float(linear_cka(a @ w, a[:, :1])) == pytest.approx(s**2 / math.sqrt(s**4 + 1), abs=1e-12)


def test_orthogonal_columns_have_no_alignment():
    u = columns(30, 5)
    assert float(linear_cka(u[:, :2], u[:, 2:])) < 1e-28


def test_geometry():
    """D7: the distance of the unit kernels; 1 - CKA breaks the triangle inequality, the angle does not."""
    u = columns(20, 2)
    one_minus = [float(1 - linear_cka(x, y)) for x, y in ((u[:, :1], u), (u, u[:, 1:]), (u[:, :1], u[:, 1:]))]
    assert one_minus == pytest.approx([1 - math.sqrt(0.5), 1 - math.sqrt(0.5), 1]) and one_minus[2] > sum(one_minus[:2])
    x = gaussian(1000, 3, 8, 3)
    k = centred_gram(gram(x))
    k = k / torch.linalg.matrix_norm(k, keepdim=True)
    pairs = [(0, 1), (1, 2), (0, 2)]
    values = [linear_cka(x[:, i], x[:, j]) for i, j in pairs]
    for (i, j), value in zip(pairs, values, strict=True):
        close((k[:, i] - k[:, j]).square().sum((-2, -1)), 2 * (1 - value), **EXACT)
    first, second, whole = (value.arccos() for value in values)
    assert (whole <= first + second + 1e-12).all()


def test_row_order():
    a = gaussian(200, 3)
    b = a + 0.1 * gaussian(200, 3, seed=1)
    order = torch.from_numpy(stream(0, "order").permutation(200))
    assert float(linear_cka(a, b)) > 0.95 and float(linear_cka(a[order], b)) < 0.2
    close(linear_cka(a[order], b[order]), linear_cka(a, b), **EXACT)


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


# --- the unbiased form


def test_hsic_1_is_the_u_statistic_over_quadruples():
    """The mean over all ordered quadruples of different samples of K_ij (M_ij + M_qr - 2 M_iq)."""
    k, m = gram(gaussian(6, 2)), gram(gaussian(6, 3, seed=1), "rbf")
    terms = [k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q]) for i, j, q, r in itertools.permutations(range(6), 4)]
    assert len(terms) == 360
    close(hsic(k, m, unbiased=True), torch.stack(terms).mean(), **EXACT)


@pytest.mark.parametrize("n", [4, 5, 12])
def test_hsic_1_is_songs_formula(n):
    k, m = gram(gaussian(n, 3) + 2), gram(gaussian(n, 5, seed=1), "rbf")
    close(hsic(k, m, unbiased=True), song(k, m), rtol=1e-10, atol=1e-12)
    # of a kernel with itself it is a squared norm, never negative: off the diagonal, without row and column effects
    off = k - torch.diag(k.diagonal())
    rows = off.sum(0) / (n - 2)
    centred_off = off - rows - rows[:, None] + off.sum() / ((n - 1) * (n - 2))
    squares = (centred_off - torch.diag(centred_off.diagonal())).square().sum()
    close(hsic(k, k, unbiased=True), squares / (n * (n - 3)), rtol=1e-10, atol=1e-12)
    value = song(k, m) / (song(k, k) * song(m, m)).sqrt()
    close(gram_cka(k, m, unbiased=True), value, rtol=1e-9, atol=0)
    a, b = gaussian(n, 3), gaussian(n, 5, seed=1) - 1
    value = song(a @ a.T, b @ b.T) / (song(a @ a.T, a @ a.T) * song(b @ b.T, b @ b.T)).sqrt()
    for wide in (1, 50):  # feature form, Gram form
        x, y = a.repeat(1, wide), b.repeat(1, wide)
        close(linear_cka(x, y, unbiased=True), value, rtol=0, atol=1e-9)


def test_hsic_1_averages_to_zero():
    values = hsic(gram(gaussian(200, 12, 5)), gram(gaussian(200, 12, 7, seed=1)), unbiased=True)
    biased = hsic(gram(gaussian(200, 12, 5)), gram(gaussian(200, 12, 7, seed=1)))
    assert values.min() < 0 < values.max()
    assert abs(float(values.mean())) < 4 * float(values.std()) / math.sqrt(200) < float(biased.mean()) / 10


@pytest.mark.parametrize(
    ("n", "d", "biased"), [(64, 64, 0.498), (64, 256, 0.796), (64, 2048, 0.970), (512, 2048, 0.799)]
)
def test_bias_of_few_samples(n, d, biased):
    a, b = gaussian(n, d, seed=5), gaussian(n, d, seed=6)
    assert float(linear_cka(a, b)) == pytest.approx(biased, abs=0.03)
    assert d / (n + d) == pytest.approx(biased, abs=0.03)
    assert abs(float(linear_cka(a, b, unbiased=True))) < 0.03


def test_the_square_root_of_debiased_cka_is_guarded():
    """Equally far samples: off the diagonal the kernel is constant, so HSIC_1 of it with itself is 0."""
    simplex = torch.eye(6, dtype=torch.float64).requires_grad_()
    b = gaussian(6, 2)
    for x, y in ((simplex, b), (b, simplex), (simplex, simplex)):
        value = linear_cka(x, y, unbiased=True)
        assert value.item() == 0 and torch.autograd.grad(value, simplex)[0].abs().max() == 0
    close(linear_cka(simplex, simplex), torch.ones((), dtype=torch.float64), **EXACT)
    negative = linear_cka(*gaussian(2, 8, 3, seed=4), unbiased=True)
    assert -1 < float(negative) < 0


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
        k = gram(b)
        assert cka_gradient(constant, k).abs().max() == 0 == cka_gradient(b, gram(constant)).abs().max()
        streamed = StreamedCKA()
        for piece, other in zip(constant.split(5), b.split(5), strict=True):
            streamed.add(piece, other)
        assert float(streamed.value(unbiased)) == 0
        assert float(ceiling(gram(constant), 2)) == 0
    if not unbiased:
        zero = torch.zeros_like(rows).requires_grad_()
        value = linear_cka(zero, b, centre=False)
        assert value.item() == 0 and torch.autograd.grad(value, zero)[0].abs().max() == 0


def test_what_varies_more_than_rounding_counts():
    a, b = gaussian(64, 4, dtype=torch.float32), gaussian(64, 4, seed=1, dtype=torch.float32)
    assert float(linear_cka(a + 1000, b)) == pytest.approx(float(linear_cka(a, b)), abs=1e-3)
    tilted = torch.cat([torch.full((64, 1), 1e8), a], 1)  # one constant column, however large, silences no other
    assert float(linear_cka(tilted, b)) == pytest.approx(float(linear_cka(a, b)), abs=1e-5)
    assert float(linear_cka(a + 1e7, b)) == 0


def test_large_and_small_numbers_and_nan():
    a, b = gaussian(20, 4, dtype=torch.float32), gaussian(20, 3, seed=1, dtype=torch.float32)
    for scale in (1e-20, 1e-12, 1e12, 1e20):
        for unbiased in (False, True):
            close(linear_cka(scale * a, b, unbiased=unbiased), linear_cka(a, b, unbiased=unbiased), rtol=0, atol=1e-5)
        close(cka_gradient(scale * a, gram(b)) * scale, cka_gradient(a, gram(b)), rtol=0, atol=1e-6)
    for bad in (math.nan, math.inf):
        broken = a.clone()
        broken[3, 1] = bad
        constant = torch.ones(20, 3)
        for x, y in ((broken, b), (b, broken), (broken, constant), (constant, broken)):
            assert linear_cka(x, y).isnan() and linear_cka(x, y, unbiased=True).isnan()
            assert gram_cka(gram(x), gram(y)).isnan()


# --- gradients


def test_gradient_in_closed_form():
    a, other = gaussian(15, 4), gaussian(15, 6, seed=1)
    k = mean_gram([a, other], [1, 2])
    x = a.clone().requires_grad_()
    expected = torch.autograd.grad(gram_cka(x @ x.T, k), x)[0]
    ours = cka_gradient(a, k)
    close(ours, expected, rtol=0, atol=1e-12)
    close(torch.autograd.grad(linear_cka(x, factor([a, other], [1, 2])), x)[0], ours, rtol=0, atol=1e-12)
    assert abs(float((ours * a).sum())) < 1e-13  # scale
    close(a.T @ ours, (a.T @ ours).T, rtol=0, atol=1e-13)  # rotation
    close(ours.sum(0), torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-13)  # shift
    assert cka_gradient(a, 3 * gram(a)).abs().max() < 1e-14 < ours.abs().max()
    batch, kernels = gaussian(3, 15, 4, seed=2), gram(gaussian(3, 15, 20, seed=3))
    loop = torch.stack([cka_gradient(x, y) for x, y in zip(batch, kernels, strict=True)])
    close(cka_gradient(batch, kernels), loop, **EXACT)
    close(vmap(grad(lambda x, y: gram_cka(gram(x), y)))(batch, kernels), loop, **EXACT)


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("rows", [6, 20])
def test_gradcheck(rows, unbiased):
    a, b = gaussian(rows, 3).requires_grad_(), gaussian(rows, 9, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, y: linear_cka(x, y, unbiased=unbiased), (a, b))
    assert torch.autograd.gradcheck(lambda x, y: gram_cka(gram(x), gram(y), unbiased=unbiased), (a, b))
    assert torch.autograd.gradgradcheck(lambda x: linear_cka(x, b.detach(), unbiased=unbiased), a)
    assert torch.autograd.gradcheck(lambda x: hsic(gram(x), gram(b.detach()), unbiased=unbiased), a)
    assert torch.autograd.gradcheck(lambda x: linear_cka(x, b.detach(), centre=False), a)


def test_descent_rises_to_the_ceiling():
    """50 small steps up; with the sign of the paper's loss they lead down. No narrow client passes D9's ceiling."""
    k = gram(gaussian(16, 12, seed=4))
    top = float(ceiling(k, 3))
    for sign in (1, -1):
        a, values = gaussian(16, 3), []
        for _ in range(51):
            values.append(float(linear_cka(a, gaussian(16, 12, seed=4))))
            a = a + sign * 2.0 * cka_gradient(a, k)
        assert all(sign * (after - before) > 0 for before, after in itertools.pairwise(values))
        assert max(values) < top < 1
    a = gaussian(16, 3)
    for _ in range(3000):
        a = a + 5.0 * cka_gradient(a, k)
    assert top - 1e-6 < float(gram_cka(gram(a), k)) < top + 1e-12


def test_ceiling():
    k = gram(gaussian(3, 12, 20))
    for x in k:
        values, vectors = torch.linalg.eigh(centring(12) @ x @ centring(12))
        for d in (1, 4, 11):
            best = vectors[:, -d:] * values[-d:].sqrt()
            close(ceiling(x, d), gram_cka(gram(best), x), **EXACT)
            assert float(linear_cka(gaussian(12, d, seed=d), vectors * values.clamp_min(0).sqrt())) < float(
                ceiling(x, d)
            )
    assert float(ceiling(k[0], 11)) == pytest.approx(1) == float(ceiling(k[0], 99))
    close(ceiling(k, 4), torch.stack([ceiling(x, 4) for x in k]), **EXACT)


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
    alpha = peer_weights(CLIENTS, WEIGHTS, normalise)
    for a in (*CLIENTS, gaussian(20, 4, seed=9)):
        value = linear_cka(a, c)
        close(value, gram_cka(gram(a), mean), **EXACT)
        close(value, sum(x * linear_cka(a, b) for x, b in zip(alpha, CLIENTS, strict=True)), **EXACT)
    whole = (h @ expected @ h).norm()
    sizes = torch.stack([w * (h @ k @ h).norm() / whole for w, k in zip(WEIGHTS, kernels, strict=True)])
    close(alpha, sizes, **EXACT)
    assert float(alpha.sum()) > 1
    if normalise:
        close(alpha / alpha.sum(), torch.tensor(WEIGHTS, dtype=torch.float64), **EXACT)
    else:
        assert float(alpha[1]) > 5 * float(alpha[0])  # the large client rules, with the smallest weight
    close(peer_weights([CLIENTS[0]] * 2, [1, 3]).sum(), torch.ones((), dtype=torch.float64), **EXACT)


def test_aggregation_with_leading_axes_and_without_variation():
    stacked = [torch.stack([a, 2 * a.flip(0)]) for a in CLIENTS]
    for normalise in (False, True):
        for function in (mean_gram, factor, peer_weights):
            rows = [function([a[i] for a in stacked], WEIGHTS, normalise) for i in range(2)]
            close(function(stacked, WEIGHTS, normalise), torch.stack(rows), **EXACT)
    constant = torch.full((20, 3), 0.1, dtype=torch.float64)
    mean = mean_gram([CLIENTS[0], constant], [1, 1], normalise=True)
    close(mean, mean_gram([CLIENTS[0]], [1], normalise=True) / 2, **EXACT)
    assert peer_weights([constant, constant], [1, 2]).tolist() == [0, 0]
    close(peer_weights([CLIENTS[0], constant, CLIENTS[1]], [1, 1, 0]), torch.tensor([1.0, 0, 0]).double(), **EXACT)


def test_kernels_not_representations():
    """D8: a and -a are the same representation turned; their mean is 0, their mean kernel is exact."""
    a = gaussian(20, 5)
    for b in (-a, a @ orthogonal(5)):
        mean = mean_gram([a, b], [0.5, 0.5])
        for x in (a, b):
            close(gram_cka(gram(x), mean), torch.ones((), dtype=torch.float64), **EXACT)
        assert float(linear_cka(a, (a + b) / 2)) < 0.98
    assert float(linear_cka(a, (a - a) / 2)) == 0


# --- many samples


def test_minibatches():
    a, b = gaussian(3, 50, 6), gaussian(3, 50, 9, seed=1)
    rows = stream(3, "rows").permutation(50)[:48].reshape(4, 12)
    biased, cross, first, second = 0, 0, 0, 0
    for batch in rows:
        x, y = a[:, batch], b[:, batch]
        biased = biased + torch.stack([explicit_cka(p, q) for p, q in zip(x, y, strict=True)]) / 4
        k, m = gram(x), gram(y)
        cross = cross + torch.stack([song(p, q) for p, q in zip(k, m, strict=True)])
        first = first + torch.stack([song(p, p) for p in k])
        second = second + torch.stack([song(p, p) for p in m])
    close(minibatch_cka(a, b, 12, rng=stream(3, "rows")), biased, **EXACT)
    close(minibatch_cka(a, b, 12, unbiased=True, rng=stream(3, "rows")), cross / (first * second).sqrt(), **EXACT)
    for unbiased in (False, True):
        whole = minibatch_cka(a, b, 50, unbiased, rng=stream(3, "rows"))
        close(whole, linear_cka(a, b, unbiased=unbiased), **EXACT)


def test_minibatch_bias():
    """Independent Gaussian representations: about d / (n + d) for batches of n, whatever L is; unbiased near 0."""
    a, b = gaussian(1024, 64, seed=5), gaussian(1024, 64, seed=6)
    for size in (32, 64, 256):
        assert float(minibatch_cka(a, b, size, rng=stream(0, "rows"))) == pytest.approx(64 / (64 + size), abs=0.03)
        assert abs(float(minibatch_cka(a, b, size, unbiased=True, rng=stream(0, "rows")))) < 0.03
    assert float(linear_cka(a, b)) == pytest.approx(64 / (64 + 1024), abs=0.01)
    c = a + gaussian(1024, 64, seed=7)  # related: the unbiased minibatches aim at the value of all rows
    unbiased = minibatch_cka(a, c, 32, unbiased=True, rng=stream(0, "rows"))
    assert float(unbiased) == pytest.approx(float(linear_cka(a, c, unbiased=True)), abs=0.02)


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


def test_a_stream_may_go_on_after_a_look():
    a, b = gaussian(5000, 6, dtype=torch.float32), gaussian(5000, 4, seed=1, dtype=torch.float32)
    streamed = StreamedCKA()
    for i in range(0, 5000, 512):
        streamed.add(a[i : i + 512], b[i : i + 512])
        value = linear_cka(a[: i + 512].double(), b[: i + 512].double(), unbiased=True)
        assert streamed.value(True).dtype == torch.float64
        close(streamed.value(True), value, rtol=0, atol=1e-10)


# --- dtypes, devices, nonsense


def test_dtypes_and_devices(device):
    for dtype, error in ((torch.float64, 1e-13), (torch.float32, 1e-5)):
        a, b = gaussian(30, 4).to(device, dtype), gaussian(30, 6, seed=1).to(device, dtype)
        k, m, rng = gram(a), gram(b, "rbf"), stream(0, "rows")
        results = [
            linear_cka(a, b), linear_cka(a, b, unbiased=True), gram_cka(k, m), hsic(k, m), cka_gradient(a, m),
            mean_gram([a, b], [1, 2], True), peer_weights([a, b], [1, 2]), ceiling(m, 3),
            minibatch_cka(a, b, 8, rng=rng), minibatch_cka(a, b, 8, unbiased=True, rng=rng),
        ]  # fmt: skip
        assert all(x.dtype == dtype and x.device.type == device for x in results)
        close(results[0].cpu().double(), explicit_cka(gaussian(30, 4), gaussian(30, 6, seed=1)), rtol=0, atol=error)
        streamed = StreamedCKA()
        streamed.add(a, b)
        close(streamed.value(), results[0].double(), rtol=0, atol=error)


A, K = gaussian(10, 3), gram(gaussian(10, 3))
NOT_TENSORS = [
    None,
    "x",
    3.0,
    math.nan,
    [[1.0, 2.0]],
    np.zeros((10, 3)),
    torch.zeros(10, 3).long(),
    A.bfloat16(),
    A.half(),
]
MISSHAPEN = [A[:1], A[:0], A[:, :0], A[0], torch.tensor(1.0)]


@pytest.mark.parametrize("bad", NOT_TENSORS + MISSHAPEN)
def test_bad_representations_are_named(bad):
    kind = TypeError if any(bad is x for x in NOT_TENSORS) else ValueError
    rng = stream(0, "rows")
    calls = {
        "a": [
            lambda: linear_cka(bad, A), lambda: cka_gradient(bad, K), lambda: minibatch_cka(bad, A, 5, rng=rng),
            lambda: gram(bad, "rbf"), lambda: linear_cka(bad, A, unbiased=True),
        ],
        "b": [lambda: linear_cka(A, bad), lambda: minibatch_cka(A, bad, 5, rng=rng)],
        "representations": [lambda: mean_gram([A, bad], [1, 1], True), lambda: peer_weights([bad], [1])],
    }  # fmt: skip
    for name, functions in calls.items():
        for function in functions:
            with pytest.raises(kind, match=name):
                function()


def test_too_few_samples_and_rows_that_differ():
    one, three = gaussian(1, 5), gaussian(3, 5)
    with pytest.raises(ValueError, match=r"a: .*at least 2 rows \(samples of the alignment set\)"):
        linear_cka(one, one)
    with pytest.raises(ValueError, match="k: .*at least 2"):
        gram_cka(gram(one), gram(one))
    for call in (linear_cka, lambda *x, **y: hsic(gram(x[0]), gram(x[1]), **y)):
        with pytest.raises(ValueError, match="at least 4 rows"):
            call(three, three, unbiased=True)
        assert call(gaussian(4, 5), gaussian(4, 5), unbiased=True).isfinite()
    for rows in (9, 11):
        other = gaussian(rows, 3)
        with pytest.raises(ValueError, match="b: .*L = 10 rows of a"):
            linear_cka(A, other)
        with pytest.raises(ValueError, match="m: .*L = 10 rows of k"):
            gram_cka(K, gram(other))
        with pytest.raises(ValueError, match="mean: .*L = 10 rows of a"):
            cka_gradient(A, gram(other))
        with pytest.raises(ValueError, match=r"representations\[1\]: .*L = 10 rows"):
            mean_gram([A, other], [1, 1])
        with pytest.raises(ValueError, match="b: .*L = 10 rows of a"):
            StreamedCKA().add(A, other)
    with pytest.raises(ValueError, match="b: .*leading axes"):
        linear_cka(gaussian(2, 10, 3), gaussian(3, 10, 3))
    with pytest.raises(ValueError, match=r"representations\[1\]: .*leading axes"):
        factor([gaussian(2, 10, 3), A], [1, 1])
    with pytest.raises(TypeError, match="b: .*dtype of a"):
        linear_cka(A, A.float())
    with pytest.raises(ValueError, match="m: .*square"):
        hsic(K, gaussian(10, 9))


@pytest.mark.parametrize(
    "bad", [None, "x", 3.0, [1], [1, 2, 3], [1, -1], [0, 0], [1, math.nan], [1, math.inf], [1, "x"]]
)
def test_bad_weights(bad):
    for function in (mean_gram, factor, peer_weights):
        with pytest.raises((TypeError, ValueError), match="weights"):
            function([A, A], bad)


def test_other_bad_arguments():
    rng = stream(0, "rows")
    calls = [
        ("kernel", lambda: gram(A, "cosine")), ("kernel", lambda: gram(A, None)),
        ("bandwidth", lambda: gram(A, "rbf", 0)), ("bandwidth", lambda: gram(A, "rbf", math.nan)),
        ("centre", lambda: linear_cka(A, A, centre=None)), ("unbiased", lambda: linear_cka(A, A, unbiased="yes")),
        ("centre", lambda: linear_cka(A, A, centre=False, unbiased=True)),
        ("centre", lambda: gram_cka(K, K, centre=False, unbiased=True)), ("unbiased", lambda: hsic(K, K, 1)),
        ("rank", lambda: ceiling(K, 0)), ("rank", lambda: ceiling(K, 2.0)), ("mean", lambda: ceiling(A, 2)),
        ("mean", lambda: ceiling(K * math.nan, 2)), ("rng", lambda: minibatch_cka(A, A, 5, rng=0)),
        ("batch_size", lambda: minibatch_cka(A, A, 11, rng=rng)),
        ("batch_size", lambda: minibatch_cka(A, A, 1, rng=rng)),
        ("batch_size", lambda: minibatch_cka(A, A, 3, unbiased=True, rng=rng)),
        ("batch_size", lambda: minibatch_cka(A, A, None, rng=rng)), ("normalise", lambda: mean_gram([A], [1], 2)),
        ("representations", lambda: mean_gram([], [])), ("representations", lambda: factor(A, [1])),
        ("gram", lambda: centred_gram(A)), ("a", lambda: centred(None)),
        ("a", lambda: StreamedCKA().add(A * math.nan, A)),
        ("a", lambda: StreamedCKA().add(A[None], A)), ("unbiased", lambda: StreamedCKA().value(None)),
    ]  # fmt: skip
    for name, call in calls:
        with pytest.raises((TypeError, ValueError), match=rf"^{name}\b"):
            call()
    streamed = StreamedCKA()
    with pytest.raises(ValueError, match="alignment set: got 0 rows"):
        streamed.value()
    streamed.add(A[:3], A[:3])
    assert float(streamed.value()) == pytest.approx(1)
    with pytest.raises(ValueError, match="got 3 rows .* at least 4"):
        streamed.value(unbiased=True)
    with pytest.raises(ValueError, match="widths"):
        streamed.add(A[:, :2], A)


@pytest.mark.parametrize("unbiased", [False, True])
def test_pairwise_is_every_pair(unbiased):
    rng = stream(0, "pairwise")
    each = [normal((30, d), rng) * 10 ** (d - 5) + d for d in (3, 8, 5)] + [torch.ones(30, 4, dtype=torch.float64)]
    found = module.pairwise_cka(each, unbiased)
    expected = torch.tensor([[float(linear_cka(a, b, unbiased=unbiased)) for b in each] for a in each]).double()
    assert float((found - expected).abs().max()) < 1e-7 and not bool(found[3].any())

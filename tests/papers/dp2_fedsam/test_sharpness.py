"""Sharpness against quadratics with known Hessians, explicit Hessians, quadrature and wells in closed form."""

import math

import numpy as np
import pytest
import torch
from torch.func import grad, vmap

from fedbook.federation.tree import leaves
from fedbook.papers.dp2_fedsam.sharpness import (
    gaussian_rise,
    hessian_trace,
    loss_surface,
    random_directions,
    top_eigenvalues,
    worst_case_rise,
)
from fedbook.randomness import normal, stream

D = 6


def tree_of(x):
    """A nested tree of parameters, of which :func:`vector` is the inverse."""
    return {"layer": {"w": x[..., :4].unflatten(-1, (2, 2)), "b": x[..., 4:5]}, "c": x[..., 5:]}


def vector(tree):
    return torch.cat([tree["layer"]["w"].flatten(-2), tree["layer"]["b"], tree["c"]], -1)


def symmetric(seed, eigenvalues=None):
    rng = stream(seed, "matrix")
    if eigenvalues is None:
        a = normal((D, D), rng)
        return (a + a.T) / 2
    q = torch.linalg.qr(normal((len(eigenvalues),) * 2, rng)).Q
    return q @ torch.tensor(eigenvalues, dtype=torch.float64).diag() @ q.T


def quadratic(a, b=0.0):
    return lambda tree: 0.5 * vector(tree) @ a.to(vector(tree)) @ vector(tree) + (b * vector(tree)).sum()


X, Y = normal((30, D), stream(0, "x")), (normal((30,), stream(0, "y")) > 0).double()


def logistic(tree):
    """Mean logistic loss with a cubic term, so that no derivative vanishes."""
    theta = vector(tree)
    scores = X @ theta + 0.1 * theta.pow(3).sum()
    return torch.nn.functional.binary_cross_entropy_with_logits(scores, Y)


THETA = normal((D,), stream(0, "theta"))
EXPLICIT = torch.autograd.functional.hessian(lambda v: logistic(tree_of(v)), THETA)
TEN = normal((10, D), stream(1, "ten"))


class Axes(np.random.Generator):
    """Draws that are sqrt(D) e_i in turn: the mean of z z^T over D of them is the identity, exactly."""

    def __init__(self):
        super().__init__(np.random.Philox(0))
        self.queue = (math.sqrt(D) * np.eye(D)).ravel()

    def standard_normal(self, size):
        # leaves are drawn in the order of their joined names: c, layer/b, layer/w
        count = math.prod(size)
        out, self.queue = self.queue[:count], self.queue[count:]
        return out.reshape(size)


# --- what noise costs -------------------------------------------------------------------------------------------------


def test_noise_costs_half_the_trace_exactly():
    """D15 by algebra: with second moments exactly I the mean rise of a quadratic is s^2/2 tr A, gradient or not."""
    for seed in range(20):
        a, b, s = symmetric(seed), normal((D,), stream(seed, "b")), 0.1 * (seed + 1)
        rise = gaussian_rise(quadratic(a, b), tree_of(THETA), s, D, Axes()).mean
        assert float(rise) == pytest.approx(0.5 * s * s * float(a.trace()), rel=1e-12, abs=1e-13)


DEPTH, PLACE, WIDTH = (1.0, 0.7), (-1.0, 2.0), (0.2, 1.5)  # a sharp deep well and a flat shallow one


def wells(phi, s=0.0):
    """The mean of the two wells' loss over phi + s Z, in closed form (D16); s = 0 is the loss itself."""
    total = 0.0
    for a, m, w in zip(DEPTH, PLACE, WIDTH, strict=True):
        v = w * w + s * s
        total = total - a * w / v**0.5 * torch.exp(-((phi - m) ** 2) / (2 * v))
    return total


# --- what the worst direction costs -----------------------------------------------------------------------------------


def highest(a, g, q):
    """The maximum of g^T p + p^T A p / 2 over |p| <= q, by the secular equation."""
    values, vectors = torch.linalg.eigh(a)
    parts = vectors.T @ g
    if values[-1] < 0 and (parts / values).norm() <= q:  # a maximum inside
        p = vectors @ (-parts / values)
        return float(g @ p + 0.5 * p @ a @ p)
    low = float(values[-1]) + 1e-15
    high = low + float(g.norm()) / q + 1.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (parts / (middle - values)).norm() > q else (low, middle)
    p = vectors @ (parts / (high - values))
    return float(g @ p + 0.5 * p @ a @ p)


def test_one_step_is_sam():
    """D12, D13: rise q|g| + q^2/2 g^T A g / |g|^2 exactly, at distance q along g, where the gradient is that of
    F + q |grad F|."""
    for seed in range(20):
        a, q = symmetric(seed, [4.0, 2.0, 1.0, 0.5, 0.2, 0.1]), 0.1 * (seed + 1)
        loss, g = quadratic(a), a @ THETA
        found = worst_case_rise(loss, tree_of(THETA), q, 1)
        unit = g / g.norm()
        assert float(found.rise) == pytest.approx(float(q * g.norm() + 0.5 * q * q * unit @ a @ unit), rel=1e-12)
        assert torch.allclose(vector(found.perturbation), q * unit, rtol=1e-12, atol=1e-15)
        penalised = grad(lambda v, f=loss, q=q: f(tree_of(v)) + q * grad(lambda u: f(tree_of(u)))(v).norm())(THETA)
        there = grad(lambda v, f=loss: f(tree_of(v)))(THETA + vector(found.perturbation))
        assert torch.allclose(there, penalised, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kind", ["convex", "any", "concave"])
def test_many_steps_reach_the_maximum_in_the_ball(kind):
    for seed in range(4):
        a = symmetric(seed)
        values = torch.linalg.eigvalsh(a)
        a = {"convex": a - values[0] * torch.eye(D), "any": a, "concave": a - (values[-1] + 0.1) * torch.eye(D)}[kind]
        for q in (0.1, 1.0, 10.0):
            found = worst_case_rise(quadratic(a), tree_of(THETA), q, 100)
            best = highest(a, a @ THETA, q)
            # a maximum inside is reached in a zigzag
            assert float(found.rise) == pytest.approx(best, rel=1e-3 if kind == "concave" else 1e-9)
            assert float(found.rise) <= best * (1 + 1e-9)
            assert vector(found.perturbation).norm() <= q * (1 + 1e-12)
            moved = tree_of(THETA + vector(found.perturbation))
            direct = quadratic(a)(moved) - quadratic(a)(tree_of(THETA))
            assert float(found.rise) == pytest.approx(float(direct), rel=1e-9)


def test_where_the_loss_is_not_a_number_the_ascent_does_not_stay():
    def cliff(tree):
        x = vector(tree).sum()
        return torch.where(x < 1, x.square(), torch.nan)

    start = tree_of(torch.full((D,), 0.1, dtype=torch.float64))  # sum 0.6; the cliff is 0.4 / sqrt(6) away
    found = worst_case_rise(cliff, start, 1.0, 40)
    assert torch.isfinite(vector(found.perturbation)).all() and 0.6 < float(found.rise) < 1 - 0.36


# --- the Hessian ------------------------------------------------------------------------------------------------------


def test_the_trace_is_within_its_error_and_the_error_is_right():
    draws = 3000
    found = hessian_trace(logistic, tree_of(THETA), draws, stream(1, "trace"))
    assert abs(found.mean - EXPLICIT.trace()) < 4 * found.error
    off = EXPLICIT - EXPLICIT.diagonal().diag()
    assert float(found.error) == pytest.approx(math.sqrt(2 * float(off.square().sum()) / draws), rel=0.1)


@pytest.mark.parametrize("seed", range(10))
def test_top_eigenvalues_against_the_explicit_spectrum(seed):
    a = symmetric(seed)
    values, vectors = torch.linalg.eigh(a)
    found = top_eigenvalues(quadratic(a, 2.0), tree_of(THETA), stream(seed, "start"), count=D)
    assert torch.allclose(found.values, values.flip(0), atol=1e-12)
    assert (found.residuals < 1e-11).all()
    overlap = (vector(found.vectors) @ vectors.flip(1)).abs()
    assert torch.allclose(overlap, torch.eye(D).double(), atol=1e-9)
    one = top_eigenvalues(quadratic(a, 2.0), tree_of(THETA), stream(seed, "start"))
    assert one.values.shape == (1,) and torch.allclose(one.values, found.values[:1])


def test_few_steps_in_many_dimensions_are_from_below_and_the_residual_tells():
    spectrum = np.concatenate([[30.0, 20.0, -25.0], stream(0, "bulk").random(197)]).tolist()
    a, errors = symmetric(0, spectrum), []
    for steps in (2, 5, 10, 30):
        found = top_eigenvalues(lambda x: 0.5 * x @ a @ x, a[0], stream(1, "s"), count=2, steps=steps)
        gaps = (torch.tensor(spectrum, dtype=torch.float64)[:, None] - found.values).abs().amin(0)
        assert (gaps <= found.residuals + 1e-12).all()
        assert (found.values <= torch.tensor([30.0, 20.0], dtype=torch.float64) + 1e-9).all()
        assert torch.allclose(found.vectors @ found.vectors.T, torch.eye(2).double(), atol=1e-12)
        errors.append(float(30 - found.values[0]))
    assert errors == sorted(errors, reverse=True) and errors[0] > 0.1 and errors[-1] < 1e-10


@pytest.mark.parametrize(
    "spectrum", [[2.0] * 6, [0.0] * 6, [-1.0] * 6, [5.0, 5.0, 5.0, 1.0, 1.0, -9.0], [1e-9, 0, 0, 0, 0, 0]]
)
def test_repeated_eigenvalues_exhaust_the_space_and_it_goes_on(spectrum):
    found = top_eigenvalues(quadratic(symmetric(7, spectrum)), tree_of(THETA), stream(0, "s"), count=6)
    assert found.values.tolist() == pytest.approx(sorted(spectrum, reverse=True), abs=1e-12)
    assert (found.residuals < 1e-12).all()
    assert torch.allclose(vector(found.vectors) @ vector(found.vectors).T, torch.eye(6).double(), atol=1e-12)


# --- slices and surfaces ----------------------------------------------------------------------------------------------


def test_the_surface_of_a_quadratic_is_its_closed_form():
    a, offsets = symmetric(8), torch.linspace(-2, 2, 9, dtype=torch.float64)
    directions = random_directions(tree_of(THETA), stream(0, "plane"))
    u = vector(directions)
    assert torch.allclose(u @ u.T, torch.eye(2).double(), atol=1e-14)
    found = loss_surface(quadratic(a), tree_of(THETA), directions, offsets, chunk=7)
    g, h = u @ a @ THETA, u @ a @ u.T
    i, j = offsets[:, None], offsets[None, :]
    base = 0.5 * THETA @ a @ THETA
    closed = base + i * g[0] + j * g[1] + 0.5 * (i * i * h[0, 0] + 2 * i * j * h[0, 1] + j * j * h[1, 1])
    assert found.shape == (9, 9) and torch.allclose(found, closed, rtol=1e-12, atol=1e-12)
    assert torch.equal(found, loss_surface(quadratic(a), tree_of(THETA), directions, offsets, chunk=1000))


# --- one or many, any dtype, real networks ----------------------------------------------------------------------------

MEASURES = {
    "gaussian_rise": lambda f, p: gaussian_rise(f, p, 0.2, 7, stream(0, "n"), chunk=3),
    "worst_case_rise": lambda f, p: worst_case_rise(f, p, 0.5, 8),
    "hessian_trace": lambda f, p: hessian_trace(f, p, 7, stream(0, "n"), chunk=3),
    "top_eigenvalues": lambda f, p: top_eigenvalues(f, p, stream(0, "n"), count=2, steps=5),
    "loss_surface": lambda f, p: loss_surface(
        f, p, random_directions(p, stream(0, "d")), torch.linspace(-1, 1, 3, dtype=torch.float64)
    ),
}


def pieces(result):
    if isinstance(result, tuple):
        return [leaf for part in result for leaf in pieces(part)]
    return [leaf for _, leaf in leaves(result)]


@pytest.mark.parametrize("name", MEASURES)
def test_ten_models_at_once_are_ten_models_one_by_one(name):
    together = pieces(vmap(lambda x: MEASURES[name](logistic, tree_of(x)))(TEN))
    apart = [pieces(MEASURES[name](logistic, tree_of(x))) for x in TEN]
    for i, part in enumerate(together):
        assert torch.allclose(part, torch.stack([one[i] for one in apart]), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["gaussian_rise", "hessian_trace"])
def test_the_chunk_changes_nothing(name):
    function, extra = {"gaussian_rise": (gaussian_rise, (0.2,)), "hessian_trace": (hessian_trace, ())}[name]
    results = [function(logistic, tree_of(THETA), *extra, 10, stream(0, "n"), chunk=chunk) for chunk in (1, 3, 10, 99)]
    for found in results[1:]:
        assert torch.allclose(torch.stack(found), torch.stack(results[0]), rtol=1e-12, atol=1e-15)

"""Sharpness against quadratics with known Hessians, explicit Hessians, quadrature and wells in closed form."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from torch.func import grad, vmap

from fedbook.federation.tree import flatten, leaves, tree_map
from fedbook.learning.models import cross_entropy, model, stack
from fedbook.papers.dp2_fedsam.sharpness import (
    gaussian_rise,
    hessian_product,
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
SLOPE = grad(lambda v: logistic(tree_of(v)))(THETA)
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


def test_noise_costs_half_the_trace_on_average_and_the_error_is_right():
    a, s, draws = symmetric(3, [5.0, 3.0, 1.0, 0.5, 0.1, -1.0]), 0.3, 4000
    found = gaussian_rise(quadratic(a, 7.0), tree_of(THETA), s, draws, stream(0, "noise"))
    assert abs(found.mean - 0.5 * s * s * a.trace()) < 4 * found.error
    variance = (0.5 * s * s) ** 2 * 2 * a.square().sum()  # of z^T A z: 2 |A|_F^2
    assert float(found.error) == pytest.approx(math.sqrt(variance / draws), rel=0.1)


def test_the_trace_is_what_remains_at_small_noise_up_to_the_fourth_power():
    """D15 for a general loss: the same draws at s and s/2, less s^2/2 z^T H z, differ by 2^4."""

    def rest(s):
        draws = 50
        rise = gaussian_rise(logistic, tree_of(THETA), s, draws, stream(2, "noise")).mean
        same = stream(2, "noise")
        forms = []
        for _ in range(draws):
            z = {name: normal(tuple(x.shape), same) for name, x in sorted(flatten(tree_of(THETA)).items())}
            z = torch.cat([z["layer/w"].flatten(), z["layer/b"], z["c"]])
            forms.append(z @ EXPLICIT @ z)
        return float(rise - 0.5 * s * s * torch.stack(forms).mean())

    slopes = [math.log2(rest(s) / rest(s / 2)) for s in (0.05, 0.025)]
    assert slopes[0] == pytest.approx(4, abs=0.05) and slopes[1] == pytest.approx(4, abs=0.05)


DEPTH, PLACE, WIDTH = (1.0, 0.7), (-1.0, 2.0), (0.2, 1.5)  # a sharp deep well and a flat shallow one


def wells(phi, s=0.0):
    """The mean of the two wells' loss over phi + s Z, in closed form (D16); s = 0 is the loss itself."""
    total = 0.0
    for a, m, w in zip(DEPTH, PLACE, WIDTH, strict=True):
        v = w * w + s * s
        total = total - a * w / v**0.5 * torch.exp(-((phi - m) ** 2) / (2 * v))
    return total


def well_loss(tree):
    return wells(tree["phi"]).sum()


@pytest.mark.parametrize("s", [0.1, 0.4, 1.0])
@pytest.mark.parametrize("place", [-1.0, -0.7, 0.3, 2.0])
def test_wells_in_closed_form_and_by_quadrature_and_by_draws(place, s):
    phi = torch.tensor([place], dtype=torch.float64)

    def integrand(z):
        return float(wells(phi + s * z)) * math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)

    exact = float(wells(phi, s))
    breaks = [(m - place) / s for m in PLACE if abs(m - place) < 10 * s]
    mean, _ = quad(integrand, -12, 12, points=breaks, epsabs=1e-12, limit=200)
    assert exact == pytest.approx(mean, abs=1e-8)
    found = gaussian_rise(well_loss, {"phi": phi}, s, 2000, stream(0, "wells"))
    assert abs(float(found.mean) - (exact - float(wells(phi)))) < 4 * float(found.error) < 0.1


def test_the_flat_well_wins_under_noise():
    """Deep against shallow at rest; the order turns where the closed form says, and the draws see it."""
    at = tree_map(lambda x: x[:, None], {"phi": torch.tensor(PLACE, dtype=torch.float64)})

    def gap(s):
        return float(wells(at["phi"][0], s) - wells(at["phi"][1], s))

    assert gap(0.0) < 0 < gap(1.0)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if gap(middle) < 0 else (low, middle)
    for s, sign in ((0.6 * low, -1), (1.6 * low, 1)):
        noisy = vmap(lambda p, s=s: well_loss(p) + gaussian_rise(well_loss, p, s, 2000, stream(0, "gap")).mean)(at)
        assert math.copysign(1, float(noisy[0] - noisy[1])) == sign
    assert 0.1 < low < 0.5


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


def test_the_gradient_norm_penalty_holds_to_second_order():
    """D13 for a general loss: the gradient at SAM's point differs from that of F + q |grad F| by O(q^2)."""

    def gap(q):
        p = vector(worst_case_rise(logistic, tree_of(THETA), q, 1).perturbation)
        penalised = SLOPE + q * EXPLICIT @ SLOPE / SLOPE.norm()
        return float((grad(lambda v: logistic(tree_of(v)))(THETA + p) - penalised).norm())

    assert [math.log2(gap(q) / gap(q / 2)) for q in (0.02, 0.01)] == pytest.approx([2, 2], abs=0.05)


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


def test_more_steps_never_find_less():
    for loss, q in ((logistic, 0.5), (logistic, 5.0), (quadratic(symmetric(5)), 3.0)):
        rises = [float(worst_case_rise(loss, tree_of(THETA), q, steps).rise) for steps in (1, 2, 3, 5, 10, 30)]
        assert rises == sorted(rises) and rises[0] < rises[-1]


def test_a_first_step_that_falls_is_taken_back():
    """On top of a narrow hill a long step falls: the rise is never negative, and shorter steps find the top."""
    top = tree_of(torch.full((D,), 0.01, dtype=torch.float64))
    hill = quadratic(-torch.eye(D).double())
    assert worst_case_rise(hill, top, 1.0, 1).rise == 0
    assert float(worst_case_rise(hill, top, 1.0, 60).rise) == pytest.approx(0.5 * D * 1e-4, rel=1e-6)


def test_no_gradient_no_perturbation_no_nan():
    found = worst_case_rise(quadratic(symmetric(0)), tree_of(torch.zeros(D).double()), 0.5, 5)
    assert found.rise == 0 and (vector(found.perturbation) == 0).all()
    still = worst_case_rise(logistic, tree_of(THETA), 0.0, 3)
    assert still.rise == 0 and (vector(still.perturbation) == 0).all()


def test_where_the_loss_is_not_a_number_the_ascent_does_not_stay():
    def cliff(tree):
        x = vector(tree).sum()
        return torch.where(x < 1, x.square(), torch.nan)

    start = tree_of(torch.full((D,), 0.1, dtype=torch.float64))  # sum 0.6; the cliff is 0.4 / sqrt(6) away
    found = worst_case_rise(cliff, start, 1.0, 40)
    assert torch.isfinite(vector(found.perturbation)).all() and 0.6 < float(found.rise) < 1 - 0.36


# --- the Hessian ------------------------------------------------------------------------------------------------------


def test_hessian_product_against_the_explicit_hessian_and_finite_differences():
    for i in range(D):
        column = vector(hessian_product(logistic, tree_of(THETA), tree_of(torch.eye(D).double()[i])))
        assert torch.allclose(column, EXPLICIT[i], rtol=1e-11, atol=1e-13)
    v, h = normal((D,), stream(4, "v")), 1e-5
    slopes = [grad(lambda u: logistic(tree_of(u)))(THETA + sign * h * v) for sign in (1, -1)]
    product = vector(hessian_product(logistic, tree_of(THETA), tree_of(v)))
    assert torch.allclose(product, (slopes[0] - slopes[1]) / (2 * h), rtol=1e-6, atol=1e-8)


def test_the_trace_of_a_diagonal_hessian_takes_no_luck():
    a = torch.tensor([3.0, -1.0, 0.5, 2.0, 0.0, 7.0], dtype=torch.float64).diag()
    found = hessian_trace(quadratic(a, 1.0), tree_of(THETA), 5, stream(0, "trace"))
    assert float(found.mean) == pytest.approx(11.5, rel=1e-13) and found.error < 1e-13


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


def test_the_largest_not_the_largest_in_magnitude():
    a = symmetric(1, [1.0, 0.2, 0.1, -3.0, -40.0, -50.0])
    assert float(top_eigenvalues(quadratic(a), tree_of(THETA), stream(0, "s")).values) == pytest.approx(1.0, rel=1e-11)
    below = symmetric(2, [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0])
    assert float(top_eigenvalues(quadratic(below), tree_of(THETA), stream(0, "s")).values) == pytest.approx(-1)


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


def test_a_slice_is_the_surface_with_one_direction():
    offsets = torch.linspace(-1, 1, 5, dtype=torch.float64)
    directions = random_directions(tree_of(THETA), stream(0, "line"), 1)
    found = loss_surface(logistic, tree_of(THETA), directions, offsets)
    by_hand = [logistic(tree_of(THETA + t * vector(directions)[0])) for t in offsets]
    assert found.shape == (5,) and torch.allclose(found, torch.stack(by_hand), rtol=1e-13)


def test_along_the_top_eigenvectors_the_surface_bends_by_the_eigenvalues():
    top = top_eigenvalues(logistic, tree_of(THETA), stream(0, "s"), count=2)
    h = 1e-3
    surface = loss_surface(logistic, tree_of(THETA), top.vectors, torch.tensor([-h, 0, h], dtype=torch.float64))
    bends = [surface[0, 1] + surface[2, 1] - 2 * surface[1, 1], surface[1, 0] + surface[1, 2] - 2 * surface[1, 1]]
    assert torch.allclose(torch.stack(bends) / h**2, top.values, rtol=1e-4, atol=1e-6)


# --- one or many, any dtype, real networks ----------------------------------------------------------------------------

MEASURES = {
    "gaussian_rise": lambda f, p: gaussian_rise(f, p, 0.2, 7, stream(0, "n"), chunk=3),
    "worst_case_rise": lambda f, p: worst_case_rise(f, p, 0.5, 8),
    "hessian_product": lambda f, p: hessian_product(f, p, tree_map(torch.ones_like, p)),
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


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_dtype_follows_and_the_parameters_stay_out_of_the_graph_and_as_they_are(name, dtype, device):
    a = symmetric(3, [5.0, 3.0, 1.0, 0.5, 0.1, 0.01])
    tree = tree_map(lambda x: x.to(device, dtype).requires_grad_(), tree_of(THETA))
    exact = pieces(MEASURES[name](quadratic(a), tree_of(THETA)))
    for part, other in zip(pieces(MEASURES[name](quadratic(a), tree)), exact, strict=True):
        assert part.dtype == dtype and part.device.type == device and not part.requires_grad
        # 1e-4: a Hessian's eigenvector to single precision, and the ascent's last decision may differ
        tolerance = 1e-12 if dtype == torch.float64 else 1e-4
        assert torch.allclose(part.cpu().double(), other, rtol=tolerance, atol=10 * tolerance)
    assert torch.equal(vector(tree).cpu().double(), THETA.to(dtype).double())


def test_small_networks_several_at_once():
    """The package's networks: convolutions, pooling, cross-entropy, parameters as flat dictionaries."""
    net = model("cnn", (1, 8, 8), 3)
    x, y = normal((5, 1, 8, 8), stream(0, "images")), torch.tensor([0, 1, 2, 0, 1])
    batch = {"x": x, "y": y, "weight": torch.ones(5).double()}
    entropy = cross_entropy(net.apply)

    def loss(p):
        return entropy(p, batch)

    models = [net.init(stream(i, "init"), torch.float64) for i in range(2)]
    ones = tree_map(torch.ones_like, models[0])
    h = 1e-6  # no longer step: it would cross a kink of a ReLU
    slopes = [grad(loss)(tree_map(lambda p, s=s: p + s * h, models[0])) for s in (1, -1)]
    product = hessian_product(loss, models[0], ones)
    for name, part in product.items():
        assert torch.allclose(part, (slopes[0][name] - slopes[1][name]) / (2 * h), rtol=1e-5, atol=1e-7)
    together = vmap(lambda p: top_eigenvalues(loss, p, stream(0, "s"), steps=4).values)(stack(models))
    apart = [top_eigenvalues(loss, p, stream(0, "s"), steps=4).values for p in models]
    assert torch.allclose(together, torch.stack(apart), rtol=1e-8)
    rise = vmap(lambda p: worst_case_rise(loss, p, 0.1, 3).rise)(stack(models))
    noise = vmap(lambda p: gaussian_rise(loss, p, 0.01, 4, stream(0, "n")).mean)(stack(models))
    assert rise.shape == noise.shape == (2,) and (rise > 0).all()


# --- bad arguments ----------------------------------------------------------------------------------------------------

NAN, INF = math.nan, math.inf
P = tree_of(THETA)
OFFSETS = torch.linspace(-1, 1, 3, dtype=torch.float64)
BAD_LOSS = [None, 3, "x", lambda p: vector(p), lambda p: 1.0, lambda p: vector(p).sum() > 0]
BAD_TREE = [None, "x", 3, {}, {"a": None}, {"a": 1.0}, {"a": torch.arange(3)}, torch.zeros(0),
            {"a": torch.zeros(2), "b": torch.zeros(2).double()}]  # fmt: skip
BAD_COUNT = [None, "x", 0, -1, 1.5, NAN, True]
BAD_LENGTH = [None, "x", -0.1, NAN, INF, True, torch.zeros(2)]
BAD_RNG = [None, 0, "x", np.random.RandomState(0)]
COMMON = {"loss": BAD_LOSS, "parameters": BAD_TREE}
TABLE = {
    gaussian_rise: (
        {"loss": logistic, "parameters": P, "std": 0.1, "draws": 3, "rng": stream(0, "n"), "chunk": 2},
        COMMON | {"std": BAD_LENGTH, "draws": [*BAD_COUNT, 1], "rng": BAD_RNG, "chunk": BAD_COUNT},
    ),
    worst_case_rise: (
        {"loss": logistic, "parameters": P, "radius": 0.1, "steps": 2},
        COMMON | {"radius": BAD_LENGTH, "steps": BAD_COUNT},
    ),
    hessian_product: (
        {"loss": logistic, "parameters": P, "vector": tree_of(torch.ones(D).double())},
        COMMON | {"vector": [*BAD_TREE, THETA, {"layer": P["layer"]}, tree_of(torch.ones(3, D).double())]},
    ),
    hessian_trace: (
        {"loss": logistic, "parameters": P, "draws": 3, "rng": stream(0, "n"), "chunk": 2},
        COMMON | {"draws": [*BAD_COUNT, 1], "rng": BAD_RNG, "chunk": BAD_COUNT},
    ),
    top_eigenvalues: (
        {"loss": logistic, "parameters": P, "rng": stream(0, "n"), "count": 1, "steps": 3},
        COMMON | {"rng": BAD_RNG, "count": [*BAD_COUNT, 4], "steps": BAD_COUNT},
    ),
    random_directions: (
        {"parameters": P, "rng": stream(0, "n"), "count": 2},
        {"parameters": BAD_TREE, "rng": BAD_RNG, "count": [*BAD_COUNT, D + 1]},
    ),
    loss_surface: (
        {"loss": logistic, "parameters": P, "directions": random_directions(P, stream(0, "d")), "offsets": OFFSETS,
         "chunk": 2},
        COMMON | {"directions": [*BAD_TREE, P, random_directions(P, stream(0, "d"), 3)], "chunk": BAD_COUNT,
                  "offsets": [None, "x", 1.0, [0.0], OFFSETS[:0], OFFSETS[None], OFFSETS * NAN, torch.arange(3)]},
    ),
}  # fmt: skip
CASES = [
    pytest.param(function, name, value, id=f"{function.__name__}-{name}-{i}")
    for function, (_, bad) in TABLE.items()
    for name, values in bad.items()
    for i, value in enumerate(values)
]


@pytest.mark.parametrize("function", TABLE)
def test_the_good_arguments_are_good(function):
    assert all(torch.isfinite(x).all() for x in pieces(function(**TABLE[function][0])))


@pytest.mark.parametrize("function, name, value", CASES)
def test_bad_arguments_are_refused_by_name(function, name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        function(**(TABLE[function][0] | {name: value}))

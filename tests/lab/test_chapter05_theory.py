"""Chapter 5's derivations against other ways to the same numbers: finite differences, enumeration, brute force."""

import math
from itertools import combinations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbook.lab import chapter05_perturbation as perturbation
from fedbook.lab import chapter05_quantisers as quantisers
from fedbook.lab import chapter05_sparse as sparse
from fedbook.lab import chapter05_theory as theory
from fedbook.randomness import normal, stream

SETTINGS = settings(derandomize=True, deadline=None, max_examples=60)
BLOCKS = pytest.mark.parametrize("m", range(4))


def close(sides, atol=1e-12):
    left, right = (torch.as_tensor(side) for side in sides)
    return left.shape == right.shape and float((left - right).abs().max()) < atol * max(1.0, float(right.abs().max()))


def draw(*shape, seed=0):
    return normal(shape, stream(seed, "test"))


# --- the chain rule and one local step


@BLOCKS
def test_the_chain_rule_splits_at_the_embedding(m):
    sides = theory.chain_rule(m, seed=1)
    assert close(sides) and float(sides.left.norm()) > 0.01
    model, step = theory.small_model("softmax", seed=1), 1e-6
    for i in (0, 3, 7):  # and neither is only what autograd thinks
        shift = torch.zeros(model.blocks[m].numel(), dtype=torch.float64)
        shift[i] = step
        values = [
            theory.objective(
                model, theory.with_own(model.blocks, m, model.blocks[m] + s * shift.view_as(model.blocks[m]))
            )
            for s in (1, -1)
        ]
        assert float(values[0] - values[1]) / (2 * step) == pytest.approx(float(sides.left[i]), abs=1e-8)


def test_one_local_step_without_compression_is_joint_sgd():
    assert close(theory.by_hand(50, 0.3))
    model = theory.small_model("softmax")
    joint = theory.flat(theory.joint_sgd(model, 50, 0.3))
    assert close((theory.flat(theory.algorithm_1(model, 50, 1, 0.3)), joint))
    for changed in (
        theory.algorithm_1(model, 25, 2, 0.3),
        theory.algorithm_1(model, 50, 1, 0.3, lambda h: quantisers.scalar(h, 3, low=-3.0, high=3.0)),
    ):
        assert float((theory.flat(changed) - joint).norm() / joint.norm()) > 1e-3


def test_the_own_block_is_never_compressed():
    """Garbage from block m alone changes everybody's first update but its own."""
    model = theory.small_model("softmax")
    plain = theory.algorithm_1(model, 1, 3, 0.1)
    for m in range(4):
        shape, calls = tuple(model.blocks[0].shape) if m == 0 else None, []

        def garbage(h, m=m, shape=shape, calls=calls):
            calls.append(h)
            return h + 1.0 if len(calls) == m + 1 else h

        other = theory.algorithm_1(model, 1, 3, 0.1, garbage)
        same = [bool((a == b).all()) for a, b in zip(plain, other, strict=True)]
        assert same == [j == m for j in range(4)]


# --- staleness


@given(st.integers(1, 3), st.integers(1, 30), st.floats(0.01, 0.5), st.integers(0, 50))
@SETTINGS
def test_local_steps_of_least_squares_have_a_closed_form(m, steps, lr, seed):
    assert close(theory.local_steps_closed_form(m, steps, lr, seed), 1e-9)


@pytest.mark.parametrize("steps", [1, 5, 20])
def test_a_separable_loss_does_not_feel_staleness(steps):
    assert close(theory.local_steps_separable(steps, 0.2))
    model = theory.small_model("squares")  # and one that is not separable does
    away = [theory.flat(f) for f in (theory.algorithm_1(model, 1, 5, 0.1), theory.joint_sgd(model, 5, 0.1))]
    assert float((away[0] - away[1]).norm()) > 0.01


def test_gradients_drift_with_q_and_eta():
    found = theory.drift([1, 2, 5, 10], [0.02, 0.05, 0.1])
    for table in found:
        assert bool((table[0] == 0).all())  # one step: nothing is stale
        assert bool((table.diff(dim=0) > 0).all()) and bool((table[1:].diff(dim=1) > 0).all())
    ratio = theory.drift([2, 3], [1e-5]).moved  # for a small step the way is as long as the number of steps
    assert float(ratio[1] / ratio[0]) == pytest.approx(2, abs=1e-3)


# --- Lemma 1


@BLOCKS
def test_the_remainder_is_an_integral(m):
    assert close(perturbation.remainder(m, seed=m), 1e-13)
    assert not close(perturbation.remainder(m, nodes=1, seed=m), 1e-6)
    assert float(perturbation.remainder(m, size=0.0).left.abs().max()) == 0
    if m:
        assert close(perturbation.remainder_squares(m, seed=m), 1e-13)


@pytest.mark.parametrize(("norm", "kind"), list(product(["frobenius", "spectral"], ["softmax", "squares"])))
def test_lemma_1_holds_with_mixed_derivatives(norm, kind):
    for seed, m in product(range(5), range(4)):
        left, right = perturbation.lemma_1(m, norm, kind=kind, size=0.5, seed=seed)
        assert 0 < float(left) <= float(right)
    left, right = perturbation.lemma_1(1, norm, kind="separable")
    assert float(left) == float(right) == 0


def test_lemma_1_fails_with_the_hessian_of_the_own_block():
    found = perturbation.product(1.5, -2.0, 0.3)
    assert found["error"] == pytest.approx(0.3) and found["mixed"] == pytest.approx(0.3) and found["diagonal"] == 0
    broken = [
        float(left) > float(right)
        for seed, m in product(range(10), range(4))
        for left, right in [perturbation.lemma_1(m, "spectral", "diagonal", seed=seed)]
    ]
    assert any(broken) and not all(broken)  # random models show it too


def test_frobenius_is_the_looser_of_the_bounds():
    spectral, frobenius = (float(perturbation.lemma_1(2, norm).right) for norm in ("spectral", "frobenius"))
    assert spectral < frobenius


# --- the scalar quantiser


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=5), st.integers(1, 8))
@SETTINGS
def test_the_dithered_error_is_uniform_whatever_the_input(inputs, bits):
    found, step = quantisers.dither_law(inputs, bits, points=2000), 2 / (2**bits - 1)
    assert found.law == pytest.approx(step**2 / 12)
    assert float(found.distance.max()) < 1 / 2000 and float(found.mean.abs().max()) < 1e-3 * step
    assert torch.allclose(found.mean_square, torch.full_like(found.mean, found.law), rtol=1e-3)
    assert float(found.largest.max()) <= step / 2 * (1 + 1e-9)


def test_without_dither_the_error_is_a_function_of_the_input():
    levels = torch.tensor([-1, -1 / 3, 1 / 3, 1], dtype=torch.float64)
    assert torch.allclose(quantisers.scalar(levels, 2), levels, atol=1e-15)
    halfway = quantisers.scalar(levels[:3] + 0.3333, 2) - levels[:3]
    assert torch.allclose(halfway, torch.zeros(3, dtype=torch.float64), atol=1e-15)
    on, between = (quantisers.scalar_error("constant", b, dither=False, draws=10) for b in (1, 3))
    assert on.mean == pytest.approx(0.49) and between.mean == pytest.approx((0.3 - 3 / 7) ** 2)
    ramp = torch.linspace(-1, 1, 10_001, dtype=torch.float64)
    for grid, bits in product(quantisers.GRIDS, (1, 2, 3)):
        codes = quantisers.scalar(ramp, bits, grid=grid)
        assert len(codes.unique()) == 2**bits
        assert float((codes - ramp).abs().max()) <= quantisers.cell_width(bits, 2.0, grid) / 2 + 1e-12


@pytest.mark.parametrize("name", quantisers.INPUTS)
def test_delta_square_over_12_by_simulation(name):
    found = quantisers.scalar_error(name, 3, seed=2)
    assert abs(found.mean - found.law) < 4 * found.error < 0.01 * found.law
    bare = quantisers.scalar_error(name, 3, dither=False, seed=2)
    if name != "ramp":  # which passes all cells
        assert abs(bare.mean - bare.law) > 10 * bare.error


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_grids_and_the_printed_bound(bits):
    found = quantisers.scalar_laws(bits)
    assert found["ratio"] == pytest.approx(found["formula"], rel=1e-6)
    assert found["bins"] == pytest.approx(found["printed"], rel=1e-6)
    assert found["endpoints"] > 1.1 * found["printed"]
    assert found["endpoints at an end"] == pytest.approx(found["endpoints"], rel=1e-6)
    assert found["bins at an end"] == pytest.approx(4 * found["bins"], rel=1e-6)  # Delta^2 / 3: overload


def test_a_range_of_zero_gives_the_constant_back():
    x = torch.full((2, 3), 0.7, dtype=torch.float64)
    u = torch.from_numpy(stream(0, "u").uniform(-0.5, 0.5, (2, 3)))
    for grid in quantisers.GRIDS:
        assert bool((quantisers.scalar(x, 2, u, low=x, high=x, grid=grid) == x).all())


# --- the hexagonal lattice


def test_the_nearest_point_is_the_nearest():
    x, area = 4 * draw(2000, 2), 0.6
    d = math.sqrt(2 * area / math.sqrt(3))
    i, j = torch.meshgrid(torch.arange(-40, 41), torch.arange(-40, 41), indexing="ij")
    points = torch.stack([d * (i + j / 2.0).double(), d * math.sqrt(3) / 2 * j.double()], -1).reshape(-1, 2)
    gaps = torch.cdist(x, points)
    found = quantisers.nearest_point(x, area)
    assert torch.allclose((x - found).norm(dim=1), gaps.amin(1), atol=1e-12)
    assert torch.allclose(found, points[gaps.argmin(1)], atol=1e-12)
    assert float((x - found).norm(dim=1).max()) <= d / math.sqrt(3)
    assert d**2 * math.sqrt(3) / 2 == pytest.approx(area)


def test_the_hexagon_is_a_cell_of_its_area():
    d = quantisers.lattice_distance(0.6)
    u = quantisers.hexagon_dither(100_000, 0.6, stream(0, "hexagon"))
    assert float((quantisers.nearest_point(u, 0.6).abs()).max()) < 1e-12
    assert float(u.norm(dim=1).max()) == pytest.approx(d / math.sqrt(3), rel=0.01)
    # a disc inside the hexagon holds its share of uniform points
    inside = float((u.norm(dim=1) < d / 2).double().mean())
    share = math.pi * d**2 / 4 / 0.6
    assert abs(inside - share) < 4 * math.sqrt(share * (1 - share) / 100_000)


def test_the_hexagon_moment_by_four_ways():
    found = quantisers.hexagon_moments()
    assert found["six triangles"] == pytest.approx(found["5 / (18 sqrt 3)"], rel=1e-12)
    side = math.sqrt(2 / (3 * math.sqrt(3)))  # a third way: twelve right triangles in polar coordinates
    angle = (np.arange(100_000) + 0.5) / 100_000 * math.pi / 6
    apothem = side * math.sqrt(3) / 2
    assert 12 * np.mean((apothem / np.cos(angle)) ** 4 / 4) * math.pi / 6 == pytest.approx(quantisers.HEXAGON, rel=1e-8)
    chance = quantisers.hexagon_error(2, seed=1)
    assert abs(chance.pair.mean - chance.pair.law) < 4 * chance.pair.error < 0.01 * chance.pair.law
    assert found["5 / (18 sqrt 3)"] / found["printed"] == pytest.approx(10 / (3 * math.sqrt(3)))
    assert found["printed"] < found["disc, the least possible"] < found["six triangles"] < found["square"]


def test_the_dithered_hexagonal_error_has_no_direction():
    found, draws = quantisers.hexagon_error(3, draws=100_000), 100_000
    deviation = math.sqrt(found.pair.law / 2)
    assert found.mean < 4 * deviation / math.sqrt(draws) and found.correlation < 4 / math.sqrt(draws)
    for variance in found.variances:
        assert variance == pytest.approx(found.pair.law / 2, rel=0.01)


@given(st.lists(st.floats(0.05, 1), min_size=3, max_size=9), st.floats(-5, 5))
@SETTINGS
def test_no_polygon_beats_the_disc(radii, shift):
    """Star-shaped cells of any kind: the printed V / 12 lies far below what is possible."""
    turns = [2 * math.pi * (i + 0.3 * math.sin(i)) / len(radii) for i in range(len(radii))]
    corners = [(shift + r * math.cos(a), r * math.sin(a) - shift) for r, a in zip(radii, turns, strict=True)]
    assert quantisers.cell_moment(corners) >= quantisers.DISC > 1 / 12


def test_cell_moments_of_known_shapes():
    many = [quantisers.cell_moment(quantisers.regular_polygon(n)) for n in (3, 4, 6, 12, 400)]
    assert many == sorted(many, reverse=True) and many[-1] == pytest.approx(quantisers.DISC, rel=1e-4)
    rectangle = [(0, 0), (3, 0), (3, 2), (0, 2)]
    assert quantisers.cell_moment(rectangle) == pytest.approx((9 + 4) / 12 / 6)
    ell = [(0, 0), (2, 0), (2, 1), (1, 1), (1, 2), (0, 2)]  # not convex
    grid = (torch.arange(400).double() + 0.5) / 200
    points = torch.cartesian_prod(grid, grid)
    points = points[(points[:, 0] < 1) | (points[:, 1] < 1)]
    brute = (points - points.mean(0)).square().sum(1).mean() / 3
    assert quantisers.cell_moment(ell) == pytest.approx(float(brute), rel=1e-4)
    assert quantisers.cell_moment(ell[::-1]) == pytest.approx(quantisers.cell_moment(ell))


# --- sparsifiers


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=9), st.data())
@SETTINGS
def test_top_k_drops_the_smallest(entries, data):
    h = torch.tensor(entries, dtype=torch.float64)
    k = data.draw(st.integers(0, len(h)))
    found = sparse.dropped_means(h, k)
    best = min(
        (sum(h[i] ** 2 for i in dropped) for dropped in combinations(range(len(h)), len(h) - k)), default=0.0
    )  # fmt: skip
    assert found["error"] == pytest.approx(float(best), abs=1e-12)
    assert found["error"] <= found["bound"] * (1 + 1e-12) + 1e-12
    assert found["mean dropped"] <= found["mean of all"] * (1 + 1e-12) + 1e-12
    kept = sparse.top_k(h, k)
    assert int((kept != 0).sum()) <= k and bool(((kept == h) | (kept == 0)).all())


def test_top_k_is_tight_for_equal_magnitudes_and_takes_rows():
    h = torch.tensor([1.0, -1, 1, -1, 1], dtype=torch.float64)
    for k in range(6):
        found = sparse.dropped_means(h, k)
        assert found["error"] == pytest.approx(found["bound"], abs=1e-12)
    assert sparse.top_k(h, 2).tolist() == [1, -1, 0, 0, 0]  # the first of equal ones
    x = draw(3, 2, 4)
    each = sparse.top_k(x, torch.tensor([1, 2, 4]).reshape(3, 1, 1))
    assert bool((each == torch.stack([sparse.top_k(x[i], k) for i, k in enumerate((1, 2, 4))])).all())


@pytest.mark.parametrize("k", range(7))
def test_random_k_on_average(k):
    h = draw(6)
    assert close(sparse.random_k_mean(h, k), 1e-13)
    assert float(sparse.random_k_mean(h, k).left) >= sparse.dropped_means(h, k)["error"]


def test_ranking_by_the_gradient_breaks_the_bound():
    assert sparse.gradient_rule() == {"error": 1.0, "bound": 0.5}
    h = torch.tensor([3.0, 0.0, 2.0], dtype=torch.float64)
    assert sparse.keep_by_score(h, torch.tensor([0.0, -5, 1], dtype=torch.float64), 2).tolist() == [0, 0, 2]
    assert sparse.keep_by_score(h, torch.zeros(3, dtype=torch.float64), 1).tolist() == [3, 0, 0]


# --- Table 1


@pytest.mark.parametrize("grid", quantisers.GRIDS)
@given(st.floats(0.1, 1e4), st.integers(1, 10**8), st.integers(1, 64), st.floats(0.1, 50))
@SETTINGS
def test_thresholds_keep_the_promise_and_no_coarser_one_does(grid, target, steps, width, square):
    setting = sparse.Setting(target=target, width=width, square=square)
    found = sparse.thresholds(setting, steps, grid)
    assert found.allowed * 5 == pytest.approx(target / math.sqrt(steps))
    errors = sparse.errors_at(setting, found, grid)
    for name in ("scalar", "hexagonal", "top-k"):
        assert errors[name] <= found.allowed * (1 + 1e-9)
    coarser = sparse.errors_at(setting, found._replace(bits=max(1, found.bits - 1), kept=found.kept - 1), grid)
    assert found.bits == 1 or coarser["scalar"] > found.allowed * (1 - 1e-9)
    assert found.kept == 0 or coarser["top-k"] > found.allowed * (1 - 1e-9)
    assert errors["hexagonal"] == pytest.approx(found.allowed)
    assert errors["hexagonal, by V P / 24"] == pytest.approx(10 / (3 * math.sqrt(3)) * found.allowed)


def test_quantisers_need_logarithms_and_top_k_everything():
    setting = sparse.Setting(target=2000.0)
    table = sparse.growth(setting, [16**n for n in range(8)])
    assert np.allclose(np.diff(table["hexagonal"]), 1)
    bins = [sparse.thresholds(setting, 16**n, "bins").real_bits for n in range(8)]
    assert np.allclose(np.diff(bins), 1) and np.diff(table["scalar"])[-1] == pytest.approx(1, abs=0.01)
    assert table["top-k"][-1] == 32 and table["top-k"][0] == 16
    first = sparse.full_from(setting)
    kept = [sparse.thresholds(setting, t).kept for t in range(1, first + 3)]
    assert first == 257 and next(t for t, k in enumerate(kept, 1) if k == 32) == first and kept[-1] == 32


# --- the package's own, and nonsense


def test_the_package_and_these_oracles_agree():
    compression = pytest.importorskip("fedbook.compression")
    x = (0.8 * torch.tanh(draw(4, 6))).float().double()  # values travel as float32
    u = torch.from_numpy(stream(1, "u").uniform(-0.5, 0.5, (4, 6)))
    for grid, bits in product(quantisers.GRIDS, (1, 3, 8)):
        package = compression.UniformScalar(bits, grid=grid)
        back = package.reconstruct(package.quantise(x, u), u, x)
        assert torch.allclose(back, quantisers.scalar(x, bits, u, grid=grid), atol=1e-12)
    for k in (1, 3, 6):
        package = compression.TopK(k)
        sent = package.encode(x[None], [stream(0, "unused")])
        assert bool((package.decode(sent, x[None])[0] == sparse.top_k(x, k)).all())
        score = draw(6, seed=k).abs()
        kept = compression.keep_columns(x[None], score[None], k)[0]
        assert bool((kept == torch.stack([sparse.keep_by_score(row, score, k) for row in x])).all())
    package = compression.RandomK(2)
    rows, rngs = x[:1].expand(4000, 1, 6), [stream(5, "random k", client=i) for i in range(4000)]
    errors = (package.decode(package.encode(rows, rngs), rows) - rows).square().sum((1, 2))
    law = float(sparse.random_k_mean(x[0], 2).right)
    assert abs(float(errors.mean()) - law) < 4 * float(errors.std()) / math.sqrt(4000) < 0.05 * law

"""Chapter 5's derivations against other ways to the same numbers: finite differences, enumeration, brute force."""

import math
from itertools import combinations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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


@pytest.mark.parametrize("k", range(7))
def test_random_k_on_average(k):
    h = draw(6)
    assert close(sparse.random_k_mean(h, k), 1e-13)
    assert float(sparse.random_k_mean(h, k).left) >= sparse.dropped_means(h, k)["error"]


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

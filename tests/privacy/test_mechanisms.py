"""Clipping and noise: sensitivity by adversarial updates, noise by its statistics, rows by themselves."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedbook import privacy
from fedbook.randomness import stream

SHAPES = {"body.weight": (4, 3), "body.bias": (4,), "scale": ()}


def message(rows, scale=1.0, seed=0, dtype=torch.float64):
    rng = stream(seed, "test")
    drawn = {name: torch.from_numpy(rng.standard_normal((rows, *shape))) for name, shape in SHAPES.items()}
    return {name: (scale * leaf).to(dtype) for name, leaf in drawn.items()}


def flat(rows):
    first = next(iter(rows.values())).shape[0]
    return torch.cat([rows[name].reshape(first, -1).double() for name in sorted(rows)], dim=1)


def generators(rows, purpose="noise"):
    return [stream(3, purpose, 0, client) for client in range(rows)]


def test_one_norm_over_all_tensors_by_hand():
    update = {"a": torch.tensor([[3.0, 0.0], [0.3, 0.0]]), "b": torch.tensor([4.0, 0.4])}
    clipped, factor, norm = privacy.clip(update, 1.0)
    assert norm.dtype == torch.float64 and torch.allclose(norm, torch.tensor([5.0, 0.5], dtype=torch.float64))
    assert torch.allclose(clipped["a"], torch.tensor([[0.6, 0.0], [0.3, 0.0]]))
    assert torch.allclose(clipped["b"], torch.tensor([0.8, 0.4]))
    assert torch.allclose(factor, torch.tensor([0.2, 1.0], dtype=torch.float64))


@given(
    seed=st.integers(0, 10_000),
    scale=st.floats(-20, 20).map(lambda e: 10.0**e),
    bound=st.floats(-8, 8).map(lambda e: 10.0**e),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
)
def test_no_row_leaves_above_the_bound(seed, scale, bound, dtype):
    clipped, factor, norm = privacy.clip(message(5, scale, seed, dtype), bound)
    assert all(leaf.dtype == dtype for leaf in clipped.values())
    assert (flat(clipped).norm(dim=1) <= bound * (1 + 1e-14)).all()
    assert ((factor == 1) == (norm <= bound)).all()
    coarse = 4 * torch.finfo(dtype).eps
    full = flat(clipped).norm(dim=1)[norm > bound]
    assert (full >= bound * (1 - coarse)).all() or bound < 1e-37 / coarse


@pytest.mark.parametrize(
    ("dtype", "entry", "width", "bound"),
    [
        (torch.float16, 6e4, 100, 0.02), (torch.float16, 5.1e4, 100, 1.0), (torch.float16, 1.0, 10_000, 1e-6),
        (torch.float32, 3e38, 4, 1e-6), (torch.float32, 3e38, 1, 0.1), (torch.float32, 1e37, 100, 1e-6),
    ],
)  # fmt: skip
def test_nor_where_the_type_has_no_digits_left(dtype, entry, width, bound):
    """The factor, or the product, is so small that its rounding is no longer relative."""
    for part in range(60):
        clipped, _, _ = privacy.clip({"a": torch.full((1, width), entry * (1 - part / 100), dtype=dtype)}, bound)
        assert flat(clipped).norm(dim=1).item() <= bound * (1 + 1e-12)


def test_zero_rows_huge_rows_and_no_bound():
    update = {"a": torch.tensor([[0.0, 0.0], [1e200, 1e200], [1e-200, 0.0]], dtype=torch.float64)}
    clipped, factor, _ = privacy.clip(update, 1.0)
    assert torch.isfinite(clipped["a"]).all() and (clipped["a"].norm(dim=1) <= 1).all()
    assert factor[0] == 1 and factor[2] == 1 and (clipped["a"][0] == 0).all()
    assert torch.equal(privacy.clip(update, math.inf)[0]["a"], update["a"])
    clipped, factor, norm = privacy.clip({"a": torch.zeros(0, 3)}, 1.0)
    assert clipped["a"].shape == (0, 3) and factor.shape == norm.shape == (0,)


def test_a_row_that_is_not_finite_becomes_zero_and_the_others_stay():
    """An error, or a NaN in the sum, would tell everybody of one client's odd record."""
    update = message(4)
    odd = {name: leaf.clone() for name, leaf in update.items()}
    odd["scale"][1], odd["body.bias"][2, 0], odd["body.weight"][2, 0, 0] = math.nan, math.inf, -math.inf
    expected, (clipped, factor, norm) = privacy.clip(update, 0.5)[0], privacy.clip(odd, 0.5)
    assert (flat(clipped)[[1, 2]] == 0).all() and (factor[[1, 2]] == 0).all() and not norm[[1, 2]].isfinite().any()
    assert torch.equal(flat(clipped)[[0, 3]], flat(expected)[[0, 3]])


def test_float32_norms_do_not_lose_small_entries():
    row = torch.full((1, 200_001), 1e-4, dtype=torch.float32)
    row[0, 0] = 1.0
    exact = row.double().norm().item()
    assert privacy.row_norm({"a": row}).item() == pytest.approx(exact, rel=1e-14)


def clipped_sum(rows, bound):
    return flat(privacy.clip(rows, bound)[0]).sum(dim=0)


@given(seed=st.integers(0, 10_000), scale=st.floats(0.01, 1000.0), bound=st.floats(0.1, 5.0))
def test_sensitivity_of_the_sum_holds(seed, scale, bound):
    base, other = message(4, 1.0, seed), message(4, scale, seed + 1)
    replaced = {name: torch.cat([other[name][:1], base[name][1:]]) for name in base}
    removed = {name: leaf[1:] for name, leaf in base.items()}
    total = clipped_sum(base, bound)
    assert (total - clipped_sum(removed, bound)).norm() <= privacy.sum_sensitivity(bound, "add_remove") * (1 + 1e-12)
    assert (total - clipped_sum(replaced, bound)).norm() <= privacy.sum_sensitivity(bound, "replace_one") * (1 + 1e-12)


def test_sensitivity_of_the_sum_is_attained():
    bound, base = 0.7, message(4)
    large = {name: leaf.clone() for name, leaf in base.items()}
    opposite = {name: leaf.clone() for name, leaf in base.items()}
    for name, leaf in message(1, 1e6, 5).items():
        large[name][:1], opposite[name][:1] = leaf, -leaf
    removed = {name: leaf[1:] for name, leaf in base.items()}
    add_remove = (clipped_sum(large, bound) - clipped_sum(removed, bound)).norm().item()
    replace_one = (clipped_sum(large, bound) - clipped_sum(opposite, bound)).norm().item()
    assert add_remove == pytest.approx(privacy.sum_sensitivity(bound, "add_remove"), rel=1e-12)
    assert privacy.sum_sensitivity(bound, "zero_out") == privacy.sum_sensitivity(bound, "add_remove")
    assert replace_one == pytest.approx(privacy.sum_sensitivity(bound, "replace_one"), rel=1e-12)
    assert replace_one == pytest.approx(2 * bound, rel=1e-12)


def test_noise_has_the_standard_deviation_it_says():
    like = {"w": torch.zeros(300, 200, dtype=torch.float64), "b": torch.zeros(40_000, dtype=torch.float64)}
    noise = torch.cat([leaf.flatten() for leaf in privacy.gaussian_noise(like, 2.5, stream(1, "noise")).values()])
    count = len(noise)
    chi = float((noise / 2.5).square().sum())
    assert stats.chi2(count).cdf(chi) > 0.001 and stats.chi2(count).sf(chi) > 0.001
    assert abs(noise.mean().item()) < 3.5 * 2.5 / math.sqrt(count)
    assert stats.kstest(noise.numpy() / 2.5, "norm").pvalue > 0.001


def test_released_sum_has_noise_of_bound_times_multiplier():
    total = {"w": torch.full((50_000,), 3.0, dtype=torch.float64)}
    noised = privacy.release_sum(total, bound=0.2, noise_multiplier=4.0, rng=stream(1, "noise"))["w"]
    assert (noised - 3.0).std().item() == pytest.approx(0.8, rel=0.02)
    assert noised.mean().item() == pytest.approx(3.0, abs=0.02)
    assert torch.equal(total["w"], torch.full((50_000,), 3.0, dtype=torch.float64))
    plain = privacy.release_sum(total, bound=0.2, noise_multiplier=0.0, rng=stream(1, "noise"))["w"]
    assert torch.equal(plain, total["w"])


def test_noise_of_different_keys_is_independent_and_of_one_key_equal():
    like = {"w": torch.zeros(20_000, dtype=torch.float64)}
    keys = [(1, "noise", 0), (2, "noise", 0), (1, "other", 0), (1, "noise", 1)]
    drawn = [privacy.gaussian_noise(like, 1.0, stream(*key))["w"] for key in keys]
    correlation = np.corrcoef(np.stack([leaf.numpy() for leaf in drawn])) - np.eye(len(keys))
    assert np.abs(correlation).max() < 4.5 / math.sqrt(20_000)
    assert torch.equal(drawn[0], privacy.gaussian_noise(like, 1.0, stream(*keys[0]))["w"])
    system = [privacy.gaussian_noise(like, 1.0, stream(None, "noise"))["w"] for _ in range(2)]
    assert not torch.equal(*system)


def test_noise_off_takes_the_same_numbers():
    on, off = stream(1, "noise"), stream(1, "noise")
    privacy.gaussian_noise(message(2), 1.0, on)
    silent = privacy.gaussian_noise(message(2), 0.0, off)
    assert all((leaf == 0).all() for leaf in silent.values())
    assert on.standard_normal() == off.standard_normal()


@pytest.mark.parametrize("transform", [privacy.Clip(0.8), privacy.ClientGaussian(1.3)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_row_does_not_depend_on_the_other_rows(transform, dtype):
    rows = message(5, 1.0, 0, dtype)
    together, trace = transform(rows, generators(5))
    assert all(values.shape == (5,) for values in trace.values())
    for row in (0, 3):
        alone, alone_trace = transform({name: leaf[row : row + 1] for name, leaf in rows.items()}, [generators(5)[row]])
        assert all(torch.equal(alone[name][0], together[name][row]) for name in rows)
        assert all(alone_trace[name][0] == trace[name][row] for name in trace)
    order = [4, 2, 0, 1, 3]
    shuffled, _ = transform({name: leaf[order] for name, leaf in rows.items()}, [generators(5)[k] for k in order])
    assert all(torch.equal(shuffled[name], together[name][order]) for name in rows)


def test_client_noise_is_each_clients_own():
    rows = {"w": torch.zeros(3, 20_000, dtype=torch.float64)}
    noised, trace = privacy.ClientGaussian(0.5)(rows, generators(3))
    correlation = np.corrcoef(noised["w"].numpy()) - np.eye(3)
    assert np.abs(correlation).max() < 4.5 / math.sqrt(20_000)
    assert torch.allclose(noised["w"].std(dim=1), torch.full((3,), 0.5, dtype=torch.float64), rtol=0.03)
    assert torch.allclose(trace["noise_norm"], noised["w"].norm(dim=1))
    by_hand = privacy.gaussian_noise({"w": rows["w"][1]}, 0.5, generators(3)[1])["w"]
    assert torch.equal(noised["w"][1], by_hand)


def test_an_empty_cohort_passes():
    rows = {"w": torch.zeros(0, 3)}
    for transform, entry in [(privacy.Clip(1.0), "clip_norm"), (privacy.ClientGaussian(1.0), "noise_norm")]:
        out, trace = transform(rows, [])
        assert out["w"].shape == (0, 3) and trace[entry].shape == (0,)


def test_device_and_dtype_follow_the_input(device):
    rows = {name: leaf.to(device, torch.float32) for name, leaf in message(3).items()}
    for transform in (privacy.Clip(0.5), privacy.ClientGaussian(1.0)):
        out, _ = transform(rows, generators(3))
        assert all(out[name].dtype == torch.float32 and out[name].device == rows[name].device for name in rows)
    on_cpu, _ = privacy.ClientGaussian(1.0)({name: leaf.cpu() for name, leaf in rows.items()}, generators(3))
    assert all(torch.allclose(out[name].cpu(), on_cpu[name], atol=1e-6) for name in rows)

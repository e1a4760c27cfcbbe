"""The uniform scalar quantiser: laws of its error, its two grids, its ranges and its borders."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedbook.compression import HEADER_BYTES, UniformScalar, messages, wire
from fedbook.randomness import normal, stream

F64 = torch.float64


def rngs(R, word="compression"):
    return [stream(1, word, client=r) for r in range(R)]


def round_trip(compressor, x, word="compression"):
    return compressor.decode(compressor.encode(x, rngs(len(x), word)), x)


def assert_each_alone_is_as_together(compressor, x):
    sent, alike = compressor.encode(x, rngs(len(x))), rngs(len(x))
    decoded = compressor.decode(sent, x)
    for row in range(len(x)):
        alone = compressor.encode(x[row : row + 1], alike[row : row + 1])
        assert torch.equal(alone[0].buffer, sent[row].buffer)
        assert torch.equal(compressor.decode(alone, x[row : row + 1])[0], decoded[row])


def messages_of(ends, shape=(50, 100, 32)):
    x = normal(shape, stream(0, "neighbours"), torch.zeros(1))
    return x if ends[0] is None else ends[0] + (ends[1] - ends[0]) * x.sigmoid()


@pytest.mark.parametrize("ends", [(-0.1, 0.7), (None, None)])
@pytest.mark.parametrize("grid", ["endpoints", "bins"])
@pytest.mark.parametrize("bits", [2, 8, 16])
def test_a_message_does_not_depend_on_its_neighbours(bits, grid, ends):
    assert_each_alone_is_as_together(UniformScalar(bits, *ends, grid=grid), messages_of(ends))


def test_nor_on_those_of_extreme_size():
    x = messages_of((None, None), (6, 20, 32)) * torch.tensor([1, 1e-36, 3, 1e37, 0, 1]).view(-1, 1, 1)
    for bits in (2, 8):
        for grid in ("endpoints", "bins"):
            assert_each_alone_is_as_together(UniformScalar(bits, None, None, grid=grid), x)


INPUTS = {
    "constant": torch.full((1, 400, 500), 0.123, dtype=F64),
    "upper end": torch.ones(1, 400, 500, dtype=F64),
    "lower end": -torch.ones(1, 400, 500, dtype=F64),
    "ramp": torch.linspace(-1, 1, 200_000, dtype=F64).view(1, 400, 500),
    "clipped normal": normal((1, 400, 500), stream(0, "scalar")).clamp(-1, 1),
}


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8, 12])
@pytest.mark.parametrize("name", INPUTS)
def test_the_dithered_error_is_uniform_and_of_the_stated_square(bits, name):
    compressor, x = UniformScalar(bits), INPUTS[name]
    step, error = 2 / (2**bits - 1), (round_trip(compressor, x) - x).flatten() / (2 / (2**bits - 1))
    assert compressor.step() == step and compressor.squared_error_law() == pytest.approx(step**2 / 12)
    assert float(error.abs().max()) <= 0.5 + 1e-9
    n = error.numel()  # a uniform number has variance 1/12, its square 1/180
    assert abs(float(error.mean())) < 4 * math.sqrt(1 / 12 / n)
    assert abs(float(error.square().mean()) - 1 / 12) < 4 * math.sqrt(1 / 180 / n)
    counts = torch.histc(error, 20, -0.5, 0.5).numpy()
    assert stats.chisquare(counts).pvalue > 1e-3


def dependence(compressor):
    """p-values: errors of small and of large inputs alike, size of the error and input uncorrelated."""
    x = INPUTS["ramp"][:, :40].flip(2)  # a tenth of the range, and
    x = torch.cat([x, INPUTS["ramp"][:, 200:240]], 1)  # another tenth
    error = (round_trip(compressor, x) - x)[0].numpy()
    small, large = error[:40].ravel(), error[40:].ravel()
    return stats.ks_2samp(small, large).pvalue, stats.pearsonr(np.abs(error).ravel(), x[0].numpy().ravel()).pvalue


def test_the_dithered_error_does_not_depend_on_the_input():
    assert min(dependence(UniformScalar(2))) > 1e-3
    assert max(dependence(UniformScalar(2, dither=False))) < 1e-9  # without dither the same test fails


def test_dithers_of_rows_and_messages_are_independent():
    x = torch.zeros(2, 300, 300, dtype=F64)
    error = round_trip(UniformScalar(4), x)
    for one, other in ((error[0], error[1]), (error[0, :150], error[0, 150:]), (error[0, :, :150], error[0, :, 150:])):
        assert stats.pearsonr(one.flatten().numpy(), other.flatten().numpy()).pvalue > 1e-3


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
def test_bins_have_the_error_of_the_paper_inside_and_endpoints_a_larger_one(bits):
    x = INPUTS["ramp"] * (1 - 2.0**-bits)  # half a step of the bins from either end
    bins = UniformScalar(bits, grid="bins")
    printed = 4 * 4.0**-bits / 12
    assert bins.squared_error_law() == pytest.approx(printed)
    error = round_trip(bins, x) - x
    assert float(error.abs().max()) <= bins.step() / 2 * (1 + 1e-9)
    spread = bins.step() ** 2 * math.sqrt(1 / 180 / x.numel())
    assert abs(float(error.square().mean()) - printed) < 4 * spread
    endpoints = UniformScalar(bits)
    ratio = (2**bits / (2**bits - 1)) ** 2
    assert endpoints.squared_error_law() / bins.squared_error_law() == pytest.approx(ratio)
    measured = float((round_trip(endpoints, x) - x).square().mean())
    assert measured > 1.1 * printed  # the printed bound does not hold on this grid
    assert measured == pytest.approx(ratio * printed, rel=0.01)


def test_bins_are_clipped_at_the_ends():
    error = round_trip(UniformScalar(2, grid="bins"), INPUTS["upper end"])[0] - 1
    assert float(error.max()) <= 0.25 + 1e-9 and float(error.min()) == pytest.approx(-0.5, abs=0.01)
    assert float(error.mean()) < -0.05


@given(
    st.integers(1, 16),
    st.sampled_from(["endpoints", "bins"]),
    st.booleans(),
    st.sampled_from([(-1.0, 1.0), (0.25, 0.75), (-3.0, 1e4), (None, None)]),
    st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(1, 9)),
    st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    st.integers(0, 2**31),
)
@settings(derandomize=True, deadline=None, max_examples=150)
def test_any_shape_width_and_range(bits, grid, dither, ends, shape, dtype, seed):
    compressor = UniformScalar(bits, *ends, grid=grid, dither=dither)
    low, high = ends if ends[0] is not None else (-5.0, 7.0)
    unit = torch.from_numpy(stream(seed, "x").random(shape))
    x = (low + (high - low) * unit).to(dtype)
    sent = compressor.encode(x, rngs(shape[0]))
    assert all(m.nbytes == HEADER_BYTES + -(-shape[1] * shape[2] * bits // 8) for m in sent)
    decoded = compressor.decode(sent, x)
    assert decoded.shape == x.shape and decoded.dtype == dtype
    step = (high - low) / (2**bits - 1)
    rounding = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 2**-7}[dtype] * max(abs(low), abs(high))
    most = 1.0 if grid == "bins" and dither else 0.5
    if x.numel():
        assert float((decoded - x).abs().max()) <= most * step * (1 + 1e-6) + 2 * rounding
    for row in range(shape[0]):  # a message does not depend on what it is encoded with
        alone = compressor.encode(x[row : row + 1], rngs(shape[0])[row : row + 1])
        assert torch.equal(alone[0].buffer, sent[row].buffer)
        assert torch.equal(compressor.decode(alone, x[row : row + 1])[0], decoded[row])


@pytest.mark.parametrize("bits", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("grid", ["endpoints", "bins"])
@pytest.mark.parametrize("ends", [(-1.0, 1.0), (0.1, 0.7), (-3.0, 1000.0)])
def test_levels_are_kept_without_dither(bits, grid, ends):
    compressor = UniformScalar(bits, *ends, grid=grid, dither=False)
    j = torch.arange(2**bits, dtype=F64)
    step = (ends[1] - ends[0]) / (2**bits - (grid == "endpoints"))
    levels = (ends[0] + step * (j + (0.5 if grid == "bins" else 0)))[None, None]
    decoded = round_trip(compressor, levels.clamp(*ends))
    assert torch.allclose(decoded, levels, rtol=1e-14, atol=1e-14)
    assert torch.equal(round_trip(compressor, decoded.clamp(*ends)), decoded)
    codes = compressor.quantise(levels.clamp(*ends), 0.0)
    assert codes.dtype == torch.int64 and torch.equal(codes[0, 0], j.long())


@pytest.mark.parametrize("value", [0.0, -0.0, 3.7, -1e-30, 1e30, 1e-44])
@pytest.mark.parametrize("grid", ["endpoints", "bins"])
def test_a_message_of_one_value_comes_back_exactly(value, grid):
    x = torch.full((1, 3, 5), value)
    for like in (x, x.double()):
        assert torch.equal(round_trip(UniformScalar(3, None, None, grid=grid), like), like)
        assert torch.equal(round_trip(UniformScalar(3, None, None, grid=grid, dither=False), like), like)
    both = torch.cat([x, torch.linspace(-1, 1, 15).view(1, 3, 5)])  # beside a message with a range of its own
    assert torch.equal(round_trip(UniformScalar(3, None, None, grid=grid), both)[0], x[0])


@pytest.mark.parametrize("scale", [1e-44, 1e-40, 1e-20, 1e20, 8e37])
def test_ranges_of_extreme_size(scale):
    x = torch.linspace(-1, 1, 15).view(1, 3, 5) * scale
    error = (round_trip(UniformScalar(8, None, None), x).double() - x.double()).abs().max()
    assert float(error) <= 2 * scale / 255 / 2 * (1 + 1e-5) + 1.5e-45


@pytest.mark.parametrize("grid", ["endpoints", "bins"])
def test_an_own_range_has_the_limit_of_a_fixed_one(grid):
    compressor, most = UniformScalar(1, None, None, grid=grid), torch.finfo(torch.float32).max / 4
    x = torch.linspace(-1, 1, 2000).view(1, 40, 50)
    assert bool(torch.isfinite(round_trip(compressor, x * most)).all())
    UniformScalar(1, -most, most)
    for large in (x.double() * (most * (1 + 1e-9)), x * 3.4e38, x.double() * 1e39, x.abs() * -3.4e38):
        with pytest.raises(ValueError, match=r"x: got entries from .*; allowed is entries in \[-8.5.*e\+37, 8.5"):
            compressor.encode(large, rngs(1))
    found = wire.headers("scalar", 1, compressor.flags, (1, 40, 50))
    found["low"], found["high"] = messages.float_bits(-1.0), messages.float_bits(3.4e38)
    with pytest.raises(ValueError, match="range in its header"):  # what another sender says
        messages.read_ranges(found, None, None)


def test_the_own_range_is_rounded_outward():
    x = torch.tensor([0.1, 0.3, 0.7], dtype=F64).view(1, 1, 3)
    header = UniformScalar(8, None, None).encode(x, rngs(1))[0].buffer[20:28].view(torch.float32).double()
    assert float(header[0]) <= 0.1 and float(header[1]) >= 0.7
    assert header.tolist() == pytest.approx([0.1, 0.7], rel=1e-7)
    header = UniformScalar(8, None, None).encode(torch.full((1, 2, 3), -0.0), rngs(1))[0].buffer[20:28]
    assert not bool(header.any())  # -0.0 is sent as 0.0: which of the two is the least entry is a matter of chance


def test_values_outside_of_a_fixed_range_are_refused_and_its_ends_are_not():
    for low, high in ((-1.0, 1.0), (-0.1, 0.3), (0.7, 1.1)):
        compressor = UniformScalar(3, low, high)
        for dtype in (torch.float32, F64, torch.bfloat16):
            ends = torch.tensor([low, high], dtype=F64).to(dtype)
            round_trip(compressor, ends.view(1, 1, 2))
            for outside in (torch.nextafter(ends, ends - 9)[:1], torch.nextafter(ends, ends + 9)[1:]):
                with pytest.raises(ValueError, match="x: got entries from .* range that both sides know"):
                    compressor.encode(outside.view(1, 1, 1), rngs(1))


@pytest.mark.parametrize("ends", [(-1, 1), (None, None)])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_refused(ends, value):
    x = torch.zeros(2, 3, 4)
    x[1, 2, 3] = value
    with pytest.raises(ValueError, match="x: .*NaN or infinite"):
        UniformScalar(3, *ends).encode(x, rngs(2))


def test_the_pure_functions_are_those_of_the_messages_and_add_up():
    compressor = UniformScalar(5, -2.0, 1.0)
    x = torch.from_numpy(stream(0, "x").uniform(-2, 1, (4, 6, 7)))
    dither = torch.from_numpy(stream(0, "dither").uniform(-0.5, 0.5, (4, 6, 7)))
    codes = compressor.quantise(x, dither)
    assert int(codes.min()) >= 0 and int(codes.max()) <= 31
    level, step = -2.0, 3 / 31
    assert torch.equal(codes, torch.floor((x - level) / step + dither + 0.5).long().clamp(0, 31))
    values = compressor.reconstruct(codes, dither, x)
    assert torch.allclose(values, level + step * (codes - dither), rtol=0, atol=1e-14)
    total = compressor.reconstruct(codes.sum(0), dither.sum(0), x, terms=4)
    assert torch.allclose(total, values.sum(0), rtol=0, atol=1e-13)
    message = UniformScalar(5, -2.0, 1.0, dither=False)
    assert torch.equal(round_trip(message, x), message.reconstruct(message.quantise(x, 0.0), 0.0, x))
    with pytest.raises(ValueError, match="fixed range"):
        UniformScalar(3, None, None).quantise(x, dither)


def test_two_bits_are_a_sixteenth_of_thirty_two():
    x = normal((1, 100, 32), stream(0, "x"), torch.zeros(1)).tanh()
    (message,) = UniformScalar(2).encode(x, rngs(1))
    assert x.numel() * x.element_size() == 16 * (message.nbytes - HEADER_BYTES)


def test_the_same_generators_give_the_same_bytes_and_others_do_not():
    x = normal((2, 4, 4), stream(0, "x")).tanh()
    sent = [UniformScalar(4).encode(x, rngs(2, word)) for word in ("one", "one", "other")]
    assert all(torch.equal(a.buffer, b.buffer) for a, b in zip(sent[0], sent[1], strict=True))
    assert not any(torch.equal(a.buffer, b.buffer) for a, b in zip(sent[0], sent[2], strict=True))
    assert not torch.equal(sent[0][0].buffer[12:20], sent[0][1].buffer[12:20])

"""The quantisers: laws of their errors, grids and codebooks, ranges and borders."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats

from fedbook.compression import G2, HEADER_BYTES, Hexagonal, UniformScalar, cell_area
from fedbook.compression.hexagonal import PLACED, codebook, hexagonal_dither, nearest
from fedbook.compression.wire import unpack
from fedbook.randomness import normal, stream
from tests.compression.sending import rngs, round_trip

F64 = torch.float64
CPU = torch.device("cpu")
ROOT = math.sqrt(3)
PLACES = torch.tensor([1.0, ROOT], dtype=F64)
INPUTS = {
    "constant": torch.full((1, 400, 500), 0.123, dtype=F64),
    "end": torch.ones(1, 400, 500, dtype=F64),
    "ramp": torch.linspace(-1, 1, 200_000, dtype=F64).view(1, 400, 500),
    "clipped normal": normal((1, 400, 500), stream(0, "scalar")).clamp(-1, 1),
}
VARIANTS = [(UniformScalar, {"grid": g}) for g in ("endpoints", "bins")]
VARIANTS += [(Hexagonal, {"codebook": c}) for c in ("finite", "infinite")]


# --- the scalar grid


@pytest.mark.parametrize("bits", [1, 2, 4, 12])
@pytest.mark.parametrize("name", INPUTS)
def test_the_dithered_error_is_uniform_on_a_step(bits, name):
    compressor, x = UniformScalar(bits), INPUTS[name]
    step, error = 2 / (2**bits - 1), (round_trip(compressor, x) - x).flatten() / (2 / (2**bits - 1))
    assert compressor.step() == step
    assert float(error.abs().max()) <= 0.5 + 1e-9
    n = error.numel()  # a uniform number has variance 1/12, its square 1/180
    assert abs(float(error.mean())) < 4 * math.sqrt(1 / 12 / n)
    assert abs(float(error.square().mean()) - 1 / 12) < 4 * math.sqrt(1 / 180 / n)
    assert stats.chisquare(torch.histc(error, 20, -0.5, 0.5).numpy()).pvalue > 1e-3


def test_dithers_of_rows_and_messages_are_independent():
    error = round_trip(UniformScalar(4), torch.zeros(2, 300, 300, dtype=F64))
    for one, other in ((error[0], error[1]), (error[0, :150], error[0, 150:]), (error[0, :, :150], error[0, :, 150:])):
        assert stats.pearsonr(one.flatten().numpy(), other.flatten().numpy()).pvalue > 1e-3


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_bins_have_the_error_of_the_paper_inside_and_endpoints_a_larger_one(bits):
    x = INPUTS["ramp"] * (1 - 2.0**-bits)  # half a step of the bins from either end
    bins, endpoints, printed = UniformScalar(bits, grid="bins"), UniformScalar(bits), 4 * 4.0**-bits / 12
    assert bins.step() ** 2 / 12 == pytest.approx(printed)
    error = round_trip(bins, x) - x
    assert float(error.abs().max()) <= bins.step() / 2 * (1 + 1e-9)
    assert abs(float(error.square().mean()) - printed) < 4 * bins.step() ** 2 * math.sqrt(1 / 180 / x.numel())
    ratio = (2**bits / (2**bits - 1)) ** 2
    assert (endpoints.step() / bins.step()) ** 2 == pytest.approx(ratio)
    measured = float((round_trip(endpoints, x) - x).square().mean())
    assert measured == pytest.approx(ratio * printed, rel=0.01) and measured > 1.1 * printed  # no bound on this grid
    at_the_end = round_trip(bins, INPUTS["end"]) - 1  # where the bins clip
    assert float(at_the_end.max()) <= bins.step() / 2 + 1e-9 and float(at_the_end.mean()) < -bins.step() / 10


@pytest.mark.parametrize("bits", [1, 3, 16])
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
    assert torch.equal(compressor.quantise(levels.clamp(*ends), 0.0)[0, 0], j.long())


def test_the_pure_functions_are_those_of_the_messages_and_add_up():
    compressor = UniformScalar(5, -2.0, 1.0)
    x = torch.from_numpy(stream(0, "x").uniform(-2, 1, (4, 6, 7)))
    dither = torch.from_numpy(stream(0, "dither").uniform(-0.5, 0.5, (4, 6, 7)))
    codes = compressor.quantise(x, dither)
    level, step = -2.0, 3 / 31
    assert torch.equal(codes, torch.floor((x - level) / step + dither + 0.5).long().clamp(0, 31))
    values = compressor.reconstruct(codes, dither, x)
    assert torch.allclose(values, level + step * (codes - dither), rtol=0, atol=1e-14)
    total = compressor.reconstruct(codes.sum(0), dither.sum(0), x, terms=4)
    assert torch.allclose(total, values.sum(0), rtol=0, atol=1e-13)
    message = UniformScalar(5, -2.0, 1.0, dither=False)
    assert torch.equal(round_trip(message, x), message.reconstruct(message.quantise(x, 0.0), 0.0, x))


# --- the hexagonal lattice


def places(book):
    """The codewords as points [K, 2] of the unit square around its centre."""
    return (book.points.T + torch.tensor(book.offset, dtype=F64)) * book.distance * PLACES


def lattice(reach, distance=1.0):
    generators = torch.tensor([[1.0, 0.0], [0.5, ROOT / 2]], dtype=F64)
    return torch.cartesian_prod(*[torch.arange(-reach, reach + 1, dtype=F64)] * 2) @ generators * distance


def distances(points, words):
    return torch.cdist(points, words, compute_mode="donot_use_mm_for_euclid_dist")


def test_the_nearest_lattice_point_is_that_of_brute_force():
    z = torch.from_numpy(stream(0, "points").uniform(-6, 6, (5000, 2)))
    points = lattice(20)
    a, c = nearest(z[:, 0], z[:, 1] / ROOT)
    assert torch.equal(a % 2, c % 2) and bool((a == a.round()).all())
    found = torch.stack([a / 2, c / 2 * ROOT], 1)
    assert torch.allclose(found, points[distances(z, points).argmin(1)], rtol=0, atol=1e-12)
    assert float((z - found).norm(dim=1).max()) <= 1 / ROOT + 1e-12


def test_the_dither_is_uniform_on_the_cell():
    uniform = torch.from_numpy(stream(0, "uniform").random((1, 2, 200_000)))
    p, q = (coordinate[0] for coordinate in hexagonal_dither(uniform))
    a, c = nearest(p, q)
    assert not bool((a.abs() + c.abs()).any())  # in the cell around 0
    x, y = p, ROOT * q
    # Sixths by the angle from a corner, times halves of equal area by the distance from the centre to the edge.
    sixth = ((torch.atan2(y, x) - math.pi / 6) / (math.pi / 3)).floor().remainder(6)
    edge = torch.stack([x, x / 2 + y * ROOT / 2, -x / 2 + y * ROOT / 2]).abs().amax(0) / 0.5
    cells = sixth * 4 + (edge**2 * 4).floor().clamp(max=3)
    assert stats.chisquare(torch.bincount(cells.long(), minlength=24).numpy()).pvalue > 1e-3
    # along an edge too: a point's place beside the middle of its edge, relative to the width there
    along = (torch.atan2(y, x) - sixth * math.pi / 3 - math.pi / 3).remainder(2 * math.pi)
    along = torch.where(along > math.pi, along - 2 * math.pi, along).tan() * ROOT
    assert stats.kstest(along.numpy(), "uniform", (-1, 2)).pvalue > 1e-3


def test_the_second_moment_of_the_hexagon():
    # Six triangles with their tip in the centre; height d / 2, half base d / (2 sqrt 3).
    d = 1.3
    one, _ = integrate.dblquad(lambda y, x: x * x + y * y, 0, d / 2, lambda x: -x / ROOT, lambda x: x / ROOT)
    area = ROOT / 2 * d * d
    assert 6 * one / area == pytest.approx(2 * G2 * area, rel=1e-10)


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("name", INPUTS)
def test_the_dithered_error_is_uniform_on_the_cell(bits, name):
    compressor, x = Hexagonal(bits, codebook="infinite"), INPUTS[name]
    pairs = ((round_trip(compressor, x) - x) / 2).view(-1, 2)  # 2: the range, so this is in the unit square
    area, n = 4.0**-bits, len(pairs)
    squares = pairs.square().sum(1)
    assert float(squares.max()) <= 2 * area / (3 * ROOT) * (1 + 1e-6)
    assert float(squares.mean()) / area == pytest.approx(2 * G2, rel=0.007)
    assert float(squares.mean()) / area > 1 / 12 * 1.8  # what is printed, V P / 24, would be 1/12 a pair
    deviation = math.sqrt(G2 * area)
    assert float(pairs.mean(0).abs().max()) < 4 * deviation / math.sqrt(n)
    assert float(pairs[:, 0].var() / pairs[:, 1].var()) == pytest.approx(1, abs=0.015)
    assert abs(float((pairs[:, 0] * pairs[:, 1]).mean())) < 4 * deviation**2 / math.sqrt(n)
    d = math.sqrt(2 * area / ROOT)
    a, c = nearest(pairs[:, 0] / d * (1 - 1e-9), pairs[:, 1] / d / ROOT * (1 - 1e-9))
    assert not bool((a.abs() + c.abs()).any())


@pytest.mark.parametrize(("kind", "options"), [VARIANTS[0], VARIANTS[3]])
def test_the_dithered_error_does_not_depend_on_the_input(kind, options):
    x = torch.cat([INPUTS["ramp"][:, :40], INPUTS["ramp"][:, 203:243]], 1)

    def dependence(compressor):
        size = (round_trip(compressor, x) - x).view(2, -1, 2).square().sum(2).numpy()
        return stats.ks_2samp(size[0], size[1]).pvalue

    assert dependence(kind(2, **options)) > 1e-3
    assert dependence(kind(2, dither=False, **options)) < 1e-9  # without dither the same test fails


@pytest.mark.parametrize("dither", [True, False])
@pytest.mark.parametrize("kind", ["finite", "infinite"])
@pytest.mark.parametrize("bits", [1, 2, 3, 5])
def test_the_code_of_the_nearest_codeword(bits, kind, dither):
    book = codebook(bits, kind, dither, CPU)
    z = torch.from_numpy(stream(bits, "points").uniform(-0.7, 0.7, (2000, 2)))  # outside of the square too
    units = z / book.distance / PLACES - torch.tensor(book.offset, dtype=F64)
    assert torch.equal(book.codes(units[:, 0], units[:, 1]).long(), distances(z, places(book)).argmin(1))


@pytest.mark.parametrize("bits", range(1, 9))
def test_the_finite_codebook_has_the_points_nearest_to_the_centre(bits):
    book = codebook(bits, "finite", True, CPU)
    assert book.points.shape[1] == 4**bits and Hexagonal(bits).bits_per_pair == 2 * bits
    assert len(torch.unique(book.points, dim=1).T) == 4**bits
    d = book.distance
    assert d**2 * ROOT / 2 == pytest.approx(cell_area(bits)) and 0.9 < cell_area(bits) * 4**bits < 1.02
    moved = lattice(2 ** (bits + 1) + 3, d) + torch.tensor(PLACED[bits][1:], dtype=F64) * PLACES * d
    sizes = moved.abs().amax(1).sort().values
    assert torch.allclose(places(book).abs().amax(1).sort().values, sizes[: 4**bits], rtol=0, atol=1e-9)


def uniform_error(words, side):
    """Mean squared error a component of the nearest of ``words``, for points uniform on the square."""
    line = (torch.arange(side, dtype=F64) + 0.5) / side - 0.5
    points = torch.cartesian_prod(line, line)
    return float(torch.cat([torch.cdist(some, words).amin(1) for some in points.split(20_000)]).square().mean() / 2)


# Error a component on the uniform square, no dither; the scalar quantisers with as many bits have 4^-b / 12 (bins).
@pytest.mark.parametrize(("bits", "error"), [(1, 0.02433), (2, 0.005675), (3, 0.001391), (4, 0.0003222)])
def test_the_finite_codebook_has_the_least_error_nearby(bits, error):
    words = places(codebook(bits, "finite", False, CPU))
    assert uniform_error(words, 256) == pytest.approx(error, rel=2e-3)
    side = 1000
    x = ((torch.arange(side, dtype=F64) + 0.5) / side * 2 - 1).view(1, 1, side)
    x = torch.stack(torch.broadcast_tensors(x.mT, x), -1).flatten(2)
    assert float((round_trip(Hexagonal(bits, dither=False), x) - x).square().mean()) / 4 == pytest.approx(
        error, rel=2e-3
    )
    assert (error < 4.0**-bits / 12) == (bits >= 4)  # edges eat the gain of the lattice up to 3 bits

    def moved(change):  # the same points, stretched and shifted
        return uniform_error(words * change[0] + torch.tensor(change[1:], dtype=F64), 96)

    best = optimize.minimize(moved, [1.0, 0.0, 0.0], method="Nelder-Mead", options={"maxfev": 40, "xatol": 1e-4})
    assert best.fun > 0.998 * moved([1.0, 0.0, 0.0])


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_the_infinite_codebook_is_what_is_reached_and_says_its_cost(bits):
    n = 200_000
    x = torch.from_numpy(stream(bits, "reach").uniform(-1, 1, (1, 1, 2 * n)))
    x = torch.cat([x, x.sign() * x.abs().pow(0.02)], 2)  # crowded at the corners
    for dither in (False, True):
        compressor = Hexagonal(bits, codebook="infinite", dither=dither)
        size = codebook(bits, "infinite", dither, CPU).points.shape[1]
        body = compressor.encode(x, rngs(1))[0].buffer[None, HEADER_BYTES:]
        used = len(torch.unique(unpack(body, compressor.bits_per_pair, 2 * n)))
        assert 4**bits < used <= size and used >= 0.9 * size  # some cells are hardly ever reached
        assert compressor.bits_per_pair == (size - 1).bit_length() > 2 * bits
        assert compressor.payload_bytes(3, 5) == -(-9 * compressor.bits_per_pair // 8)


def test_an_odd_width_is_filled_with_the_middle_of_the_range():
    x = torch.from_numpy(stream(0, "x").uniform(-1, 1, (1, 20, 5)))
    filled = torch.cat([x, torch.zeros(1, 20, 1, dtype=F64)], 2)
    assert torch.equal(round_trip(Hexagonal(3), x), round_trip(Hexagonal(3), filled)[..., :5])


# --- ranges


@pytest.mark.parametrize("value", [0.0, -0.0, 3.7, -1e-30, 1e30, 1e-44])
@pytest.mark.parametrize(("kind", "options"), VARIANTS)
def test_a_message_of_one_value_comes_back_exactly(kind, options, value):
    x = torch.full((1, 3, 5), value)
    for like in (x, x.double()):
        for dither in (True, False):
            assert torch.equal(round_trip(kind(3, None, None, dither=dither, **options), like), like)
    both = torch.cat([x, torch.linspace(-1, 1, 15).view(1, 3, 5)])  # beside a message with a range of its own
    assert torch.equal(round_trip(kind(3, None, None, **options), both)[0], x[0])


@pytest.mark.parametrize("scale", [1e-44, 1e-40, 1e-20, 1e20, 8e37])
def test_ranges_of_extreme_size(scale):
    x = torch.linspace(-1, 1, 15).view(1, 3, 5) * scale
    error = (round_trip(UniformScalar(8, None, None), x).double() - x.double()).abs().max()
    assert float(error) <= 2 * scale / 255 / 2 * (1 + 1e-5) + 1.5e-45


@pytest.mark.parametrize(("kind", "options"), VARIANTS)
def test_an_own_range_has_the_limit_of_a_fixed_one(kind, options):
    compressor, most = kind(1, None, None, **options), torch.finfo(torch.float32).max / 4
    x = torch.linspace(-1, 1, 2000).view(1, 40, 50)
    assert bool(torch.isfinite(round_trip(compressor, x * most)).all())
    kind(1, -most, most, **options)
    for large in (x.double() * (most * (1 + 1e-9)), x * 3.4e38, x.double() * 1e39, x.abs() * -3.4e38):
        with pytest.raises(ValueError, match="^x: got entries from"):
            compressor.encode(large, rngs(1))


@pytest.mark.parametrize(("kind", "most"), [(UniformScalar, 16), (Hexagonal, 8)])
def test_what_float16_holds_never_decodes_to_infinity(kind, most):
    x = (65504 * torch.linspace(-1, 1, 2000)).half().view(2, 10, 100)
    for bits in range(1, most + 1):
        decoded = round_trip(kind(bits, None, None), x)
        assert decoded.dtype == x.dtype and bool(decoded.isfinite().all())


def test_the_own_range_is_rounded_outward():
    x = torch.tensor([0.1, 0.3, 0.7], dtype=F64).view(1, 1, 3)
    header = UniformScalar(8, None, None).encode(x, rngs(1))[0].buffer[20:28].view(torch.float32).double()
    assert float(header[0]) <= 0.1 and float(header[1]) >= 0.7
    assert header.tolist() == pytest.approx([0.1, 0.7], rel=1e-7)
    header = UniformScalar(8, None, None).encode(torch.full((1, 2, 3), -0.0), rngs(1))[0].buffer[20:28]
    assert not bool(header.any())  # -0.0 is sent as 0.0: which of the two is the least entry is a matter of chance


def test_values_outside_of_a_fixed_range_are_refused_and_its_ends_are_not():
    for low, high in ((-1.0, 1.0), (-0.1, 0.3), (0.7, 1.1)):
        for compressor in (UniformScalar(3, low, high), Hexagonal(3, low, high)):
            for dtype in (torch.float32, F64, torch.bfloat16):
                ends = torch.tensor([low, high], dtype=F64).to(dtype)
                round_trip(compressor, ends.view(1, 1, 2))
                for outside in (torch.nextafter(ends, ends - 9)[:1], torch.nextafter(ends, ends + 9)[1:]):
                    with pytest.raises(ValueError, match="^x: got entries from"):
                        compressor.encode(outside.view(1, 1, 1), rngs(1))


def test_laws_need_a_range():
    found = UniformScalar(3, None, None)
    assert found.step(-1, 1) == UniformScalar(3).step()
    for ends in ((), (1, -1), (np.nan, 1), (0, None)):
        with pytest.raises((TypeError, ValueError), match="low|high"):
            found.step(*ends)

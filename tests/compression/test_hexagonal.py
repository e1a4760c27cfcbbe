"""The hexagonal quantiser: nearest points, the law of its error, its codebooks and what they cost."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from fedbook.compression import HEADER_BYTES, Hexagonal
from fedbook.compression.lattice import G2, PLACED, cell_area, codebook, hexagonal_dither, nearest
from fedbook.compression.wire import unpack
from fedbook.randomness import normal, stream

F64 = torch.float64
CPU = torch.device("cpu")
ROOT = math.sqrt(3)


def rngs(R, word="compression"):
    return [stream(1, word, client=r) for r in range(R)]


def round_trip(compressor, x, word="compression"):
    return compressor.decode(compressor.encode(x, rngs(len(x), word)), x)


def places(book):
    """The codewords as points [K, 2] of the unit square around its centre."""
    units = book.points.T + torch.tensor(book.offset, dtype=F64)
    return units * book.distance * torch.tensor([1.0, ROOT], dtype=F64)


def test_the_nearest_lattice_point_is_that_of_brute_force():
    z = torch.from_numpy(stream(0, "points").uniform(-6, 6, (5000, 2)))
    generators = torch.tensor([[1.0, 0.0], [0.5, ROOT / 2]], dtype=F64)  # of minimum distance 1
    numbers = torch.cartesian_prod(*[torch.arange(-20.0, 21, dtype=F64)] * 2)
    lattice = numbers @ generators
    best = lattice[torch.cdist(z, lattice, compute_mode="donot_use_mm_for_euclid_dist").argmin(1)]
    a, c = nearest(z[:, 0], z[:, 1] / ROOT)
    assert torch.equal(a % 2, c % 2) and bool((a == a.round()).all())
    found = torch.stack([a / 2, c / 2 * ROOT], 1)
    assert torch.allclose(found, best, rtol=0, atol=1e-12)
    assert float((z - found).norm(dim=1).max()) <= 1 / ROOT + 1e-12


def test_the_dither_is_uniform_on_the_cell():
    uniform = torch.from_numpy(stream(0, "uniform").random((1, 2, 400_000)))
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
    assert pytest.approx(0.0801875, abs=1e-7) == G2


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
@pytest.mark.parametrize("kind", ["finite", "infinite"])
@pytest.mark.parametrize("bits", [2, 8])
def test_a_message_does_not_depend_on_its_neighbours(bits, kind, ends):
    assert_each_alone_is_as_together(Hexagonal(bits, *ends, codebook=kind), messages_of(ends))


def test_nor_on_those_of_extreme_size():
    x = messages_of((None, None), (6, 20, 32)) * torch.tensor([1, 1e-36, 3, 1e37, 0, 1]).view(-1, 1, 1)
    for bits in (2, 8):
        for kind in ("finite", "infinite"):
            assert_each_alone_is_as_together(Hexagonal(bits, None, None, codebook=kind), x)


INPUTS = {
    "constant": torch.full((1, 400, 1000), 0.123, dtype=F64),
    "corner": torch.ones(1, 400, 1000, dtype=F64),
    "ramp": torch.linspace(-1, 1, 400_000, dtype=F64).view(1, 400, 1000),
    "clipped normal": normal((1, 400, 1000), stream(0, "hex")).clamp(-1, 1),
}


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("name", INPUTS)
def test_the_dithered_error_is_uniform_on_the_cell(bits, name):
    compressor, x = Hexagonal(bits, codebook="infinite"), INPUTS[name]
    pairs = ((round_trip(compressor, x) - x) / 2).view(-1, 2)  # 2: the range, so this is in the unit square
    area, n = 4.0**-bits, len(pairs)
    squares = pairs.square().sum(1)
    assert float(squares.max()) <= 2 * area / (3 * ROOT) * (1 + 1e-6)
    assert float(squares.mean()) / area == pytest.approx(2 * G2, rel=0.005)
    assert float(squares.mean()) / area > 1 / 12 * 1.8  # what is printed, V P / 24, would be 1/12 a pair
    assert compressor.squared_error_law() == pytest.approx(4 * G2 * area)
    assert compressor.squared_error_law(0, 1) == pytest.approx(G2 * area)
    deviation = math.sqrt(G2 * area)
    assert float(pairs.mean(0).abs().max()) < 4 * deviation / math.sqrt(n)
    assert float(pairs[:, 0].var() / pairs[:, 1].var()) == pytest.approx(1, abs=0.01)
    assert abs(float((pairs[:, 0] * pairs[:, 1]).mean())) < 4 * deviation**2 / math.sqrt(n)
    d = math.sqrt(2 * area / ROOT)
    a, c = nearest(pairs[:, 0] / d * (1 - 1e-9), pairs[:, 1] / d / ROOT * (1 - 1e-9))
    assert not bool((a.abs() + c.abs()).any())


def dependence(compressor):
    x = INPUTS["ramp"]
    x = torch.cat([x[:, :40], x[:, 203:243]], 1)
    size = (round_trip(compressor, x) - x).view(2, -1, 2).square().sum(2).numpy()
    return stats.ks_2samp(size[0], size[1]).pvalue


def test_the_dithered_error_does_not_depend_on_the_input():
    assert dependence(Hexagonal(2, codebook="infinite")) > 1e-3
    assert dependence(Hexagonal(2, codebook="infinite", dither=False)) < 1e-9  # without dither the same test fails


@pytest.mark.parametrize("dither", [True, False])
@pytest.mark.parametrize("kind", ["finite", "infinite"])
@pytest.mark.parametrize("bits", range(1, 7))
def test_the_code_of_the_nearest_codeword(bits, kind, dither):
    book = codebook(bits, kind, dither, CPU)
    words = places(book)
    z = torch.from_numpy(stream(bits, "points").uniform(-0.7, 0.7, (5000, 2)))  # outside of the square too
    distances = torch.cdist(z, words, compute_mode="donot_use_mm_for_euclid_dist")
    units = z / book.distance / torch.tensor([1.0, ROOT], dtype=F64) - torch.tensor(book.offset, dtype=F64)
    codes = book.codes(units[:, 0], units[:, 1])
    assert torch.equal(codes.long(), distances.argmin(1))


@pytest.mark.parametrize("bits", range(1, 9))
def test_the_finite_codebook_has_the_points_nearest_to_the_centre(bits):
    book = codebook(bits, "finite", True, CPU)
    assert book.points.shape[1] == 4**bits and book.bits_per_pair == 2 * bits == Hexagonal(bits).bits_per_pair
    assert len(torch.unique(book.points, dim=1).T) == 4**bits
    d, reach = book.distance, 2 ** (bits + 1) + 3
    assert d**2 * ROOT / 2 == pytest.approx(cell_area(bits)) and 0.9 < cell_area(bits) * 4**bits < 1.02
    numbers = torch.cartesian_prod(*[torch.arange(-reach, reach + 1, dtype=F64)] * 2)
    lattice = numbers @ torch.tensor([[1.0, 0.0], [0.5, ROOT / 2]], dtype=F64) * d
    sizes = (
        (lattice + torch.tensor([PLACED[bits][1], ROOT * PLACED[bits][2]], dtype=F64) * d).abs().amax(1).sort().values
    )
    assert torch.allclose(places(book).abs().amax(1).sort().values, sizes[: 4**bits], rtol=0, atol=1e-9)


def uniform_error(words, side):
    """Mean squared error a component of the nearest of ``words``, for points uniform on the square."""
    line = (torch.arange(side, dtype=F64) + 0.5) / side - 0.5
    points = torch.cartesian_prod(line, line)
    return float(torch.cat([torch.cdist(some, words).amin(1) for some in points.split(20_000)]).square().mean() / 2)


# Error a component on the uniform square, no dither; the scalar quantisers with as many bits have 4^-b / 12 (bins).
@pytest.mark.parametrize(("bits", "error"), [(1, 0.02433), (2, 0.005675), (3, 0.001391), (4, 0.0003222)])
def test_the_finite_codebook_has_the_least_error_nearby(bits, error):
    assert uniform_error(places(codebook(bits, "finite", False, CPU)), 256) == pytest.approx(error, rel=2e-3)
    side = 1000
    x = ((torch.arange(side, dtype=F64) + 0.5) / side * 2 - 1).view(1, 1, side)
    x = torch.stack(torch.broadcast_tensors(x.mT, x), -1).flatten(2)
    measured = float((round_trip(Hexagonal(bits, dither=False), x) - x).square().mean()) / 4
    assert measured == pytest.approx(error, rel=2e-3)
    assert (error < 4.0**-bits / 12) == (bits >= 4)  # edges eat the gain of the lattice up to 3 bits

    def moved(change):  # the same points, stretched and shifted
        return uniform_error(
            places(codebook(bits, "finite", False, CPU)) * change[0] + torch.tensor(change[1:], dtype=F64), 96
        )

    best = optimize.minimize(moved, [1.0, 0.0, 0.0], method="Nelder-Mead", options={"maxfev": 40, "xatol": 1e-4})
    assert best.fun > 0.998 * moved([1.0, 0.0, 0.0])


@pytest.mark.parametrize("bits", [1, 2, 3])
def test_the_infinite_codebook_is_what_is_reached_and_says_its_cost(bits):
    n = 400_000
    x = torch.from_numpy(stream(bits, "reach").uniform(-1, 1, (1, 1, 2 * n)))
    x = torch.cat([x, x.sign() * x.abs().pow(0.02)], 2)  # crowded at the corners
    for dither in (False, True):
        compressor = Hexagonal(bits, codebook="infinite", dither=dither)
        book = codebook(bits, "infinite", dither, CPU)
        size = book.points.shape[1]
        body = compressor.encode(x, rngs(1))[0].buffer[None, HEADER_BYTES:]
        used = len(torch.unique(unpack(body, compressor.bits_per_pair, 2 * n)))
        assert 4**bits < used <= size and used >= 0.9 * size  # some cells are hardly ever reached
        assert compressor.bits_per_pair == (size - 1).bit_length() > 2 * bits
        assert compressor.payload_bytes(3, 5) == -(-9 * compressor.bits_per_pair // 8)


def test_the_finite_codebook_decodes_to_its_codewords_only():
    x = torch.from_numpy(stream(0, "x").uniform(-1, 1, (1, 300, 100)))
    x.view(-1)[:2] = torch.tensor([1.0, -1.0])
    for bits in (1, 2, 3):
        decoded = round_trip(Hexagonal(bits, dither=False), x).view(-1, 2)
        assert len(torch.unique(decoded.round(decimals=9), dim=0)) == 4**bits
        again = round_trip(Hexagonal(bits, -1.5, 1.5, dither=False), decoded.view(x.shape))
        assert again.shape == x.shape


@given(
    st.integers(1, 8),
    st.sampled_from(["finite", "infinite"]),
    st.booleans(),
    st.sampled_from([(-1.0, 1.0), (0.25, 0.75), (-3.0, 1e4), (None, None)]),
    st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(1, 9)),
    st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    st.integers(0, 2**31),
)
@settings(derandomize=True, deadline=None, max_examples=100)
def test_any_shape_width_and_range(bits, kind, dither, ends, shape, dtype, seed):
    compressor = Hexagonal(bits, *ends, codebook=kind, dither=dither)
    low, high = ends if ends[0] is not None else (-5.0, 7.0)
    unit = torch.from_numpy(stream(seed, "x").random(shape))
    x = (low + (high - low) * unit).to(dtype)
    sent = compressor.encode(x, rngs(shape[0]))
    size = -(-shape[1] * -(-shape[2] // 2) * compressor.bits_per_pair // 8)
    assert all(m.nbytes == HEADER_BYTES + size == HEADER_BYTES + compressor.payload_bytes(*shape[1:]) for m in sent)
    decoded = compressor.decode(sent, x)
    assert decoded.shape == x.shape and decoded.dtype == dtype
    rounding = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 2**-7}[dtype] * max(abs(low), abs(high))
    circumradius = math.sqrt(2 * cell_area(bits, kind) / (3 * ROOT)) * (high - low)
    most = {("infinite", True): 1, ("infinite", False): 1, ("finite", False): 2, ("finite", True): 3}[kind, dither]
    if x.numel():
        assert float((decoded - x).abs().max()) <= most * circumradius * (1 + 1e-5) + 2 * rounding
    for row in range(shape[0]):  # a message does not depend on what it is encoded with
        alone = compressor.encode(x[row : row + 1], rngs(shape[0])[row : row + 1])
        assert torch.equal(alone[0].buffer, sent[row].buffer)
        assert torch.equal(compressor.decode(alone, x[row : row + 1])[0], decoded[row])


def test_an_odd_width_is_filled_with_the_middle_of_the_range():
    x = torch.from_numpy(stream(0, "x").uniform(-1, 1, (1, 20, 5)))
    filled = torch.cat([x, torch.zeros(1, 20, 1, dtype=F64)], 2)
    odd, even = round_trip(Hexagonal(3), x), round_trip(Hexagonal(3), filled)
    assert torch.equal(odd, even[..., :5])


@pytest.mark.parametrize("value", [0.0, 3.7, -1e-30, 1e30])
def test_a_message_of_one_value_comes_back_exactly(value):
    x = torch.full((1, 3, 5), value)
    for kind in ("finite", "infinite"):
        for dither in (True, False):
            assert torch.equal(round_trip(Hexagonal(3, None, None, kind, dither), x), x)


@pytest.mark.parametrize("kind", ["finite", "infinite"])
def test_an_own_range_has_the_limit_of_a_fixed_one(kind):
    x, most = torch.linspace(-1, 1, 2000).view(1, 40, 50), torch.finfo(torch.float32).max / 4
    assert bool(torch.isfinite(round_trip(Hexagonal(1, None, None, kind), x * most)).all())
    with pytest.raises(ValueError, match="x: got entries from"):
        Hexagonal(1, None, None, kind).encode(x * 3.4e38, rngs(1))


@pytest.mark.parametrize("ends", [(-1, 1), (None, None)])
def test_nan_and_values_outside_of_the_range_are_refused(ends):
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="x: .*NaN or infinite"):
            Hexagonal(3, *ends).encode(torch.full((1, 2, 2), value), rngs(1))
    with pytest.raises(ValueError, match="x: got entries from 1.5 to 1.5"):
        Hexagonal(3).encode(torch.full((1, 2, 2), 1.5), rngs(1))

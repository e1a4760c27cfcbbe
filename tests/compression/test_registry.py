"""What every compressor of the registry promises: any shape, bytes as stated, rows by themselves, refusals, codecs."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import compression as benchmark
from fedbook.compression import (
    COMPRESSORS,
    HEADER_BYTES,
    AnyWidth,
    Codec,
    Hexagonal,
    RandomK,
    Summable,
    TopK,
    UniformScalar,
    UpperTriangle,
    cell_area,
    compressor,
    keep_columns,
    triangle_wire,
)
from fedbook.compression.secure_sum import MaskedIntegers, SecureSum
from fedbook.federation.exchange import Chain
from fedbook.randomness import normal, stream
from fedbook.wire import Encoded
from tests.compression.sending import rngs

NAN, INF = math.nan, math.inf
ALL = [UniformScalar(3), UniformScalar(3, None, None), Hexagonal(2), TopK(2), RandomK(2)]
NAMES = [name for name in COMPRESSORS if name != "none"]
VARIANTS = {"grid": ["endpoints", "bins"], "codebook": ["finite", "infinite"], "dither": [True, False]}


def same(sent, other):
    return all(torch.equal(a.buffer, b.buffer) for a, b in zip(sent, other, strict=True))


def test_the_registry_makes_each_compressor():
    assert compressor("none", 32, 8) is None
    assert compressor("scalar", 3, 8, None, None, grid="bins") == UniformScalar(3, None, None, grid="bins")
    assert compressor("hex", 2, 8, 0, 2, codebook="infinite", dither=False) == Hexagonal(2, 0, 2, "infinite", False)
    assert compressor("topk", 2, 32) == TopK(2) and compressor("topk", 3, 16) == TopK(1)
    assert compressor("randomk", 4, 128) == RandomK(16) and compressor("topk", 32, 7) == TopK(7)
    assert all(COMPRESSORS[name].make.name == name for name in NAMES)
    numbers = [COMPRESSORS[name].make.number for name in NAMES] + [MaskedIntegers.number]
    assert numbers == [1, 2, 3, 4, 5]  # in the headers of messages: a new one gets the next, none ever changes
    good = {"name": "scalar", "bits": 2, "width": 8, "low": -1.0}
    for name, value in (("name", "gzip"), ("bits", 0), ("bits", 2.0), ("bits", 17), ("width", 0), ("low", 2.0)):
        with pytest.raises((TypeError, ValueError), match=name):
            compressor(**good | {name: value})
    with pytest.raises(ValueError, match="width with 2 bits: got 15; allowed is at least 16"):
        compressor("topk", 2, 15)
    with pytest.raises(TypeError, match="^grid: got 'bins'"):
        compressor("topk", 2, 32, grid="bins")


@given(
    st.sampled_from(NAMES),
    st.integers(1, 16),
    st.data(),
    st.sampled_from([(-1.0, 1.0), (0.25, 0.75), (-3.0, 1e4), (None, None)]),
    st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(1, 9)),
    st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    st.integers(0, 2**31),
)
@settings(derandomize=True, deadline=None, max_examples=250)
def test_any_shape_width_and_range(name, bits, data, ends, shape, dtype, seed):
    kind = COMPRESSORS[name]
    options = {option: data.draw(st.sampled_from(VARIANTS[option])) for option in kind.options}
    found = kind.make(min(bits, shape[2])) if kind.sparse else kind.make(min(bits, kind.most_bits), *ends, **options)
    low, high = ends if ends[0] is not None else (-5.0, 7.0)
    x = (low + (high - low) * torch.from_numpy(stream(seed, "x").random(shape))).to(dtype)
    sent = found.encode(x, rngs(shape[0]))
    if name != "topk":  # which chooses its form by the message: see its own tests
        assert all(m.nbytes == HEADER_BYTES + found.payload_bytes(*shape[1:]) for m in sent)
    decoded = found.decode(sent, x)
    assert decoded.shape == x.shape and decoded.dtype == dtype
    if x.numel() and kind.sparse:
        assert bool(((decoded == x.float().to(dtype)) | (decoded == 0)).all())
    elif x.numel():
        rounding = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 2**-7}[dtype] * max(abs(low), abs(high))
        assert float((decoded - x).abs().max()) <= largest_error(found) * (high - low) * (1 + 1e-5) + 2 * rounding
    for row in range(shape[0]):  # a message does not depend on what it is encoded with
        alone = found.encode(x[row : row + 1], rngs(shape[0])[row : row + 1])
        assert same(alone, sent[row : row + 1])
        assert torch.equal(found.decode(alone, x[row : row + 1])[0], decoded[row])


def largest_error(found):
    """Of a component, for a range of 1."""
    if isinstance(found, UniformScalar):
        return (1.0 if found.grid == "bins" and found.dither else 0.5) / (2**found.bits - 1)
    away = {("finite", False): 2, ("finite", True): 3}.get((found.codebook, found.dither), 1)  # near the border
    return away * math.sqrt(2 * cell_area(found.bits, found.codebook) / (3 * math.sqrt(3)))


QUANTISERS = [
    UniformScalar(b, *e, grid=g) for b in (2, 16) for e in ((-0.1, 0.7), (None, None)) for g in ("endpoints", "bins")
]
QUANTISERS += [
    Hexagonal(b, *e, codebook=c) for b in (2, 8) for e in ((-0.1, 0.7), (None, None)) for c in ("finite", "infinite")
]


@pytest.mark.parametrize("found", QUANTISERS, ids=str)
def test_a_large_message_does_not_depend_on_its_neighbours(found):
    """Of extreme size among them, which are calculated in float64."""
    x = normal((6, 20, 32), stream(0, "neighbours"), torch.zeros(1))
    own = found.low is None
    x = x * torch.tensor([1, 1e-36, 3, 1e37, 0, 1]).view(-1, 1, 1) if own else -0.1 + 0.8 * x.sigmoid()
    sent, alike = found.encode(x, rngs(6)), rngs(6)
    decoded = found.decode(sent, x)
    for row in range(6):
        alone = found.encode(x[row : row + 1], alike[row : row + 1])
        assert same(alone, sent[row : row + 1]) and torch.equal(found.decode(alone, x[row : row + 1])[0], decoded[row])


@pytest.mark.parametrize("name", COMPRESSORS)
def test_the_error_has_mean_0_where_the_registry_says_so(name):
    """At a value near the end of the range, where the finite hexagonal codebook ends and sparse ones drop some."""
    found = compressor(name, 2, 32)
    x = torch.full((1, 4000, 32), 0.97, dtype=torch.float64)
    error = torch.zeros(1) if found is None else found.decode(found.encode(x, rngs(1)), x) - x
    assert (abs(float(error.mean())) < 0.003) == COMPRESSORS[name].unbiased


@pytest.mark.parametrize("found", ALL, ids=str)
def test_inputs_are_left_alone_and_generators_decide(found):
    x = normal((2, 3, 4), stream(0, "x")).tanh().requires_grad_()
    before = x.detach().clone()
    sent = found.encode(x, rngs(2))
    assert torch.equal(x.detach(), before) and not found.decode(sent, x).requires_grad
    turned = before.transpose(1, 2).contiguous().transpose(1, 2)  # not contiguous
    assert same(found.encode(turned, rngs(2)), sent)
    others = found.encode(before, rngs(2, "other"))
    assert same(sent, others) == (found.name == "topk")
    assert torch.equal(sent[0].buffer[12:20], sent[1].buffer[12:20]) == (found.name == "topk")


# --- codecs


@pytest.mark.parametrize("found", ALL, ids=str)
@pytest.mark.parametrize("shape", [(3, 4, 6), (3, 6)])
def test_a_codec_compresses_the_only_tensor_of_a_message(found, shape):
    x = normal(shape, stream(0, "x"), torch.zeros(1)).tanh()
    codec = Chain(codec=Codec(found)).codec
    sent, wide = codec.encode({"": x}, rngs(3)), x.view(3, -1, 6)
    assert same(sent, found.encode(wide, rngs(3)))
    decoded = codec.decode(sent, {"": x})
    assert list(decoded) == [""] and decoded[""].shape == x.shape
    assert torch.equal(decoded[""].view_as(wide), found.decode(sent, wide))


@pytest.mark.parametrize("found", [TopK(3), AnyWidth("scalar", 3), AnyWidth("topk", 8), UniformScalar(5)], ids=str)
def test_several_tensors_are_one_vector_in_the_order_of_their_names(found):
    x = {"b": normal((3, 2, 2), stream(0, "b"), torch.zeros(1)).tanh(), "a": torch.full((3,), 0.5)}
    whole = torch.cat([x["a"][:, None], x["b"].flatten(1)], 1)[:, None]
    sent = Codec(found).encode(x, rngs(3))
    assert same(sent, found.encode(whole, rngs(3)))
    decoded, expected = Codec(found).decode(sent, x), found.decode(sent, whole)[:, 0]
    assert list(decoded) == ["b", "a"]
    assert torch.equal(decoded["a"], expected[:, 0]) and torch.equal(decoded["b"], expected[:, 1:].view(3, 2, 2))


def test_a_compressor_of_any_width_is_made_for_the_message():
    for width in (4, 7):
        x = normal((2, 3, width), stream(0, "x"), torch.zeros(1))
        k = 16 * width // 32
        assert same(AnyWidth("topk", 16).encode(x, rngs(2)), TopK(k).encode(x, rngs(2)))
        assert AnyWidth("topk", 16).payload_bytes(3, width) == TopK(k).payload_bytes(3, width)


@pytest.mark.parametrize("grid", ["endpoints", "bins"])
@pytest.mark.parametrize("dither", [True, False])
def test_no_vector_is_decoded_farther_away_than_the_largest_error(grid, dither):
    made, d = UniformScalar(3, -1.0, 2.0, grid=grid, dither=dither), 30
    x = torch.linspace(-1, 2, 20_000 * d).view(1, 20_000, d)
    x = torch.cat([x, torch.tensor([-1.0, 2.0])[None, :, None].expand(1, 2, d)], 1)
    error = (made.decode(made.encode(x, rngs(1)), x) - x).norm(dim=-1).max()
    assert error < made.largest_error(d)
    one = x.reshape(1, -1, 1)
    error = (made.decode(made.encode(one, rngs(1)), one) - one).abs().max()
    assert 0.99 * made.largest_error(1) < error < made.largest_error(1)
    far = UniformScalar(12, 1000.3, 1001.1, grid=grid, dither=dither)  # float32 has few digits left between its levels
    one = torch.linspace(1000.3, 1001.1, 20_000).view(1, -1, 1)
    assert (far.decode(far.encode(one, rngs(1)), one) - one).abs().max() < far.largest_error(1)


@pytest.mark.parametrize("codec", [Codec(UniformScalar(3)), UpperTriangle()], ids=["quantiser", "triangle"])
def test_a_codec_refuses_what_is_no_message_of_one_tensor(codec):
    x = torch.zeros(2, 4, 4)
    for message in ({}, {"a": x, "b": x[:1]}, {"a": x, "b": x.double()}, {"a": x, "b": x[0, 0, 0]}, x, None):
        with pytest.raises(ValueError, match="message: got"):
            codec.encode(message, rngs(2))
        with pytest.raises(ValueError, match="like: got"):
            codec.decode([], message)
    for leaf in (None, x[0, 0], x[None, None], x.long()):
        with pytest.raises((TypeError, ValueError), match="message 'h'|x: got|rows: got"):
            codec.encode({"h": leaf}, rngs(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_symmetric_matrix_travels_as_its_upper_triangle(dtype, width):
    x = normal((3, width, width), stream(0, "triangle")).to(dtype)
    x, codec = x + x.mT, UpperTriangle()
    sent = codec.encode({"": x}, [])
    assert [b.nbytes for b in sent] == [width * (width + 1) // 2 * x.element_size()] * 3
    assert sent[0].buffer.view(dtype).tolist() == [float(x[0, i, j]) for i in range(width) for j in range(i, width)]
    assert torch.equal(codec.decode(sent, {"": torch.empty_like(x)})[""], x)
    wire = triangle_wire(x)
    assert wire.value is x and same([b for (b,) in wire.buffers], sent)
    for hostile in (sent[:2], [*sent[:2], Encoded(sent[2].buffer[:-1])], [*sent[:2], Encoded(torch.zeros(0).byte())]):
        with pytest.raises(ValueError, match="^buffers"):
            codec.decode(hostile, {"": x})


def test_matrices_that_are_not_symmetric_are_refused():
    for bad in (torch.tensor([[[1.0, 2.0], [2.1, 1.0]]]), torch.zeros(1, 2, 3), torch.full((1, 2, 2), NAN)):
        for call in (lambda x: UpperTriangle().encode({"": x}, []), triangle_wire):
            with pytest.raises(ValueError, match="^rows"):
                call(bad)


# --- refusals


CONSTRUCTORS = {
    UniformScalar: (
        {"bits": 3, "low": -1.0, "high": 1.0, "grid": "bins", "dither": True},
        {"bits": [0, 17, 2.0, None, True], "low": [1.0, 2, NAN, -INF, "x", None, 1 - 1e-9], "high": [-1.0, NAN, 1e39],
         "grid": ["hex", None], "dither": [None, 1]},
    ),
    Hexagonal: ({"bits": 3, "codebook": "finite"}, {"bits": [0, 9, 2.0], "low": [1.0, NAN, None], "codebook": ["all"]}),
    TopK: ({"k": 2}, {"k": [0, -1, 2.0, None, True]}),
    RandomK: ({"k": 2}, {"k": [0, -1, 2.0, None, True]}),
    MaskedIntegers: ({"bits": 4}, {"bits": [0, 33, 2.0, None]}),
    SecureSum: (
        {"quantiser": UniformScalar(3), "parties": 4},
        {"quantiser": [None, TopK(2), UniformScalar(3, None, None)], "parties": [0, 2.0, None, 2**17]},
    ),
    Summable: (
        {"quantiser": UniformScalar(3), "parties": 4},
        {"quantiser": [None, TopK(2), UniformScalar(3, None, None)], "parties": [0, 2.0, None, 2**17]},
    ),
    AnyWidth: ({"name": "topk", "bits": 4}, {"name": ["none", None, "x"], "bits": [0, 33, 2.0, None]}),
    Codec: ({"compressor": TopK(2)}, {"compressor": [None, "scalar", TopK]}),
    cell_area: ({"bits": 3, "codebook": "finite"}, {"bits": [0, 9, None], "codebook": ["x", None]}),
    keep_columns: (
        {"x": torch.ones(2, 3, 4), "scores": torch.ones(2, 4), "k": 2},
        {"x": [None, torch.ones(3, 4)], "scores": [None, torch.full((2, 4), NAN), torch.ones(2, 3)], "k": [0, 5, 1.5]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("function", CONSTRUCTORS, ids=lambda f: f.__name__)
def test_bad_settings_are_refused_by_name(function):
    good, table = CONSTRUCTORS[function]
    function(**good)
    for name, values in table.items():
        for value in values:
            with pytest.raises((TypeError, ValueError), match=name):
                function(**good | {name: value})


@pytest.mark.parametrize("found", [*ALL, MaskedIntegers(4)], ids=str)
def test_bad_messages_are_refused_by_name(found):
    x = torch.zeros(2, 3, 4, dtype=torch.int64 if found.name == "masked" else torch.float32)
    sent = found.encode(x, rngs(2))
    other = x.float() if found.name == "masked" else x.long()
    for bad in (None, 3, other, x[0], x[:, :0], x.numpy()):
        with pytest.raises((TypeError, ValueError), match="x: got"):
            found.encode(bad, rngs(2))
        with pytest.raises((TypeError, ValueError), match="like: got"):
            found.decode(sent, bad)
    for bad in (None, rngs(1), [None, None], iter(rngs(2))):
        with pytest.raises((TypeError, ValueError), match="rngs: got"):
            found.encode(x, bad)
    for bad in (None, sent[0], [m.buffer for m in sent], sent[:1], [*sent, sent[0]]):
        with pytest.raises((TypeError, ValueError), match="buffers: got"):
            found.decode(bad, x)
    for B, P, word in ((0, 4, "B"), (3, 0, "P"), (3, 2.0, "P")):
        with pytest.raises((TypeError, ValueError), match=f"{word}: got"):
            found.payload_bytes(B, P)
    assert found.encode(x[:0], []) == [] and found.decode([], x[:0]).shape == (0, 3, 4)
    if x.is_floating_point():
        for value in (NAN, INF, -INF):
            with pytest.raises(ValueError, match="x: .*NaN or infinite"):
                found.encode(torch.full((2, 3, 4), value), rngs(2))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("found", ALL, ids=str)
def test_messages_cross_between_devices(found):
    x = normal((2, 30, 7), stream(0, "x")).tanh()
    sent = found.encode(x.cuda(), rngs(2))
    assert found.decode(sent, x.cuda()).device.type == "cuda"
    assert torch.allclose(found.decode(sent, x.cuda()).cpu(), found.decode(sent, x), rtol=0, atol=1e-12)


def test_the_benchmark_makes_its_table(monkeypatch):
    monkeypatch.setattr(benchmark, "SIZES", ((2, 3, 32),))
    monkeypatch.setattr(benchmark, "BITS", (2, 3))
    found = list(benchmark.rows("cpu", 1))
    assert {row["name"] for row in found} == set(NAMES) and len({len(benchmark.line(row)) for row in found}) == 1
    ratio = next(row["ratio"] for row in found if (row["name"], row["bits"]) == ("scalar", 2))
    assert ratio == pytest.approx(4 * 96 / (32 + 24))

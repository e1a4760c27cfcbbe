"""Compressors by name, as codecs of an exchange, and what every one of them refuses."""

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch

from benchmarks.compression import line, rows
from fedbook import compression
from fedbook.compression import (
    HEADER_BYTES,
    Codec,
    Hexagonal,
    RandomK,
    TopK,
    UniformScalar,
    compressor,
    keep_columns,
)
from fedbook.compression.lattice import cell_area
from fedbook.compression.secure_sum import MaskedIntegers, SecureSum, mask_codes, pair_mask, party_dither
from fedbook.federation.exchange import Chain
from fedbook.randomness import normal, stream

NAN, INF = math.nan, math.inf
ALL = [UniformScalar(3), UniformScalar(3, None, None), Hexagonal(2), TopK(2), RandomK(2)]


def rngs(R):
    return [stream(1, "compression", client=r) for r in range(R)]


def test_compressors_by_name():
    assert compressor("none", 32, 8) is None
    assert compressor("scalar", 3, 8) == UniformScalar(3)
    assert compressor("scalar", 3, 8, None, None, grid="bins") == UniformScalar(3, None, None, grid="bins")
    assert compressor("hex", 2, 8, 0, 2, codebook="infinite", dither=False) == Hexagonal(2, 0, 2, "infinite", False)
    assert compressor("topk", 2, 32) == TopK(2) and compressor("topk", 3, 16) == TopK(1)
    assert compressor("randomk", 4, 128) == RandomK(16) and compressor("topk", 32, 7) == TopK(7)
    assert [c.name for c in ALL] == ["scalar", "scalar", "hex", "topk", "randomk"]
    with pytest.raises(ValueError, match="width with 2 bits: got 15; allowed is at least 16"):
        compressor("topk", 2, 15)
    with pytest.raises(TypeError, match="grid: got 'bins'; allowed is nothing more for 'topk'"):
        compressor("topk", 2, 32, grid="bins")
    for name, value in (("name", "gzip"), ("name", None), ("bits", 0), ("bits", 2.0), ("width", 0), ("low", 2.0)):
        good = {"name": "scalar", "bits": 2, "width": 8, "low": -1.0}
        with pytest.raises((TypeError, ValueError), match=name):
            compressor(**good | {name: value})


@pytest.mark.parametrize("found", ALL, ids=str)
@pytest.mark.parametrize("shape", [(3, 4, 6), (3, 6)])
def test_a_codec_compresses_the_only_tensor_of_a_message(found, shape):
    x = normal(shape, stream(0, "x"), torch.zeros(1)).tanh()
    chain = Chain(codec=Codec(found))
    sent = chain.codec.encode({"": x}, rngs(3))
    wide = x.view(3, -1, 6)
    for one, other in zip(sent, found.encode(wide, rngs(3)), strict=True):
        assert torch.equal(one.buffer, other.buffer)
    decoded = chain.codec.decode(sent, {"": x})
    assert list(decoded) == [""] and decoded[""].shape == x.shape
    assert torch.equal(decoded[""].view_as(wide), found.decode(sent, wide))


def test_a_codec_refuses_what_is_no_message_of_one_tensor():
    codec = Codec(UniformScalar(3))
    x = torch.zeros(2, 4)
    for message in ({}, {"a": x, "b": x}, x, None):
        with pytest.raises(ValueError, match="message: got"):
            codec.encode(message, rngs(2))
        with pytest.raises(ValueError, match="like: got"):
            codec.decode([], message)
    for leaf in (None, x[0], x[None, None], x.long()):
        with pytest.raises((TypeError, ValueError), match="message 'h'|x: got"):
            codec.encode({"h": leaf}, rngs(2))
    for nonsense in (None, "scalar", TopK):
        with pytest.raises(TypeError, match="compressor"):
            Codec(nonsense)


CONSTRUCTORS = {
    UniformScalar: (
        {"bits": 3, "low": -1.0, "high": 1.0, "grid": "bins", "dither": True},
        {"bits": [0, 17, -1, 2.0, None, "x", True, NAN], "low": [1.0, 2, NAN, -INF, "x", None, 1 - 1e-9],
         "high": [-1.0, NAN, INF, None, 1e39], "grid": ["hex", None, 3], "dither": [None, 1, "yes"]},
    ),
    Hexagonal: (
        {"bits": 3, "low": -1.0, "high": 1.0, "codebook": "finite", "dither": True},
        {"bits": [0, 9, -1, 2.0, None, "x"], "low": [1.0, NAN, None], "high": [-1.0, INF], "codebook": ["all", None],
         "dither": [None, 1]},
    ),
    TopK: ({"k": 2}, {"k": [0, -1, 2.0, None, "x", NAN, True]}),
    RandomK: ({"k": 2}, {"k": [0, -1, 2.0, None, "x", NAN, True]}),
    MaskedIntegers: ({"bits": 4}, {"bits": [0, 33, 2.0, None, "x"]}),
    SecureSum: (
        {"quantiser": UniformScalar(3), "parties": 4},
        {"quantiser": [None, TopK(2), UniformScalar(3, None, None)], "parties": [0, 2.0, None, 2**17]},
    ),
    cell_area: ({"bits": 3, "codebook": "finite"}, {"bits": [0, 9, None, 2.5], "codebook": ["x", None]}),
    keep_columns: (
        {"x": torch.ones(2, 3, 4), "scores": torch.ones(2, 4), "k": 2},
        {"x": [None, torch.ones(3, 4), torch.ones(2, 3, 4).long()],
         "scores": [None, torch.ones(4), torch.full((2, 4), NAN), torch.ones(2, 3)], "k": [0, 5, None, 1.5]},
    ),
    party_dither: (
        {"seed": 1, "t": 0, "party": 2, "shape": (2, 3)},
        {"seed": [-1, "x"], "t": [-2, None], "party": [-1, 1.5]},
    ),
    pair_mask: (
        {"seed": 1, "t": 0, "pair": (0, 1), "shape": (2,), "bits": 3},
        {"pair": [(1, 0), (1, 1), (-1, 1), (0, 1.0)], "seed": [-1, "x"], "bits": [0, 33, None]},
    ),
    mask_codes: (
        {"codes": torch.ones(3).long(), "seed": 1, "t": 0, "party": 0, "parties": 2, "bits": 3},
        {"codes": [None, torch.ones(3)], "party": [-1, 2, None], "parties": [0, None], "bits": [0, 33, None]},
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
    for bad in (None, "x", 3, other, x.bool(), x[0], x[:, :0], x[:, :, :0], x.numpy()):
        with pytest.raises((TypeError, ValueError), match="x: got"):
            found.encode(bad, rngs(2))
        with pytest.raises((TypeError, ValueError), match="like: got"):
            found.decode(sent, bad)
    for bad in (None, 5, rngs(1), rngs(3), [None, None], [1, 2], iter(rngs(2))):
        with pytest.raises((TypeError, ValueError), match="rngs: got"):
            found.encode(x, bad)
    for bad in (None, sent[0], [m.buffer for m in sent], sent[:1], [*sent, sent[0]], [None, None]):
        with pytest.raises((TypeError, ValueError), match="buffers: got"):
            found.decode(bad, x)
    for B, P, word in ((0, 4, "B"), (3, 0, "P"), (None, 4, "B"), (3, 2.0, "P")):
        with pytest.raises((TypeError, ValueError), match=f"{word}: got"):
            found.payload_bytes(B, P)
    assert found.encode(x[:0], []) == [] and found.decode([], x[:0]).shape == (0, 3, 4)


def test_laws_need_a_range():
    for found in (UniformScalar(3, None, None), Hexagonal(3, None, None)):
        with pytest.raises(ValueError, match="low and high"):
            found.squared_error_law()
        assert found.squared_error_law(-1, 1) == type(found)(3).squared_error_law()
        for low, high in ((1, -1), (NAN, 1), (0, None)):
            with pytest.raises((TypeError, ValueError), match="low|high"):
                found.squared_error_law(low, high)


def test_compressors_do_not_change():
    with pytest.raises(FrozenInstanceError):
        UniformScalar(3).bits = 4


@pytest.mark.parametrize("found", ALL, ids=str)
def test_inputs_are_left_alone_and_derivatives_too(found):
    x = normal((2, 3, 4), stream(0, "x")).tanh().requires_grad_()
    before = x.detach().clone()
    decoded = found.decode(found.encode(x, rngs(2)), x)
    assert torch.equal(x.detach(), before) and not decoded.requires_grad
    turned = x.detach().transpose(1, 2).contiguous().transpose(1, 2)  # not contiguous
    for one, other in zip(found.encode(turned, rngs(2)), found.encode(before, rngs(2)), strict=True):
        assert torch.equal(one.buffer, other.buffer)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("found", ALL, ids=str)
def test_messages_cross_between_devices(found):
    x = normal((2, 30, 7), stream(0, "x")).tanh()
    sent = found.encode(x.cuda(), rngs(2))
    assert found.decode(sent, x.cuda()).device.type == "cuda"
    assert torch.allclose(found.decode(sent, x.cuda()).cpu(), found.decode(sent, x), rtol=0, atol=1e-12)


def test_every_public_name_is_there():
    assert all(hasattr(compression, name) for name in compression.__all__)
    assert HEADER_BYTES == 32


def test_the_benchmark_makes_its_table(monkeypatch):
    monkeypatch.setattr("benchmarks.compression.SIZES", ((2, 3, 32),))
    found = list(rows("cpu", 1))
    assert len(found) == 16 and len({len(line(row)) for row in found}) == 1
    ratio = next(row["ratio"] for row in found if (row["name"], row["bits"]) == ("scalar", 2))
    assert ratio == pytest.approx(4 * 96 / (32 + 24))
    assert all(np.isfinite(row[word]) and row[word] > 0 for row in found for word in ("copy", "encode", "decode"))

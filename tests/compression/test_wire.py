"""The wire format: codes without gaps, headers byte by byte, and whatever a damaged or wrong message may hold."""

import math
import struct
import zlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedbook.compression import HEADER_BYTES, Hexagonal, RandomK, TopK, UniformScalar, wire
from fedbook.compression.secure_sum import MaskedIntegers
from fedbook.compression.wire import pack, unpack
from fedbook.randomness import normal, stream
from fedbook.wire import Encoded
from tests.compression.sending import rngs

X = normal((2, 3, 5), stream(0, "wire"), torch.zeros(1)).tanh()
CASES = {
    "scalar": (UniformScalar(3), X),
    "scalar, bins, own range": (UniformScalar(11, None, None, grid="bins"), X.double()),
    "hex": (Hexagonal(2), X),
    "hex, infinite": (Hexagonal(2, None, None, codebook="infinite"), X),
    "topk": (TopK(2), X),
    "topk, shared": (TopK(2), torch.where(torch.arange(5) < 2, X, 0)),
    "topk, whole": (TopK(5), X),
    "randomk": (RandomK(3), X),
    "masked": (MaskedIntegers(6), torch.arange(30).view(2, 3, 5)),
}


def by_hand(codes, bits):
    """Eight codes of up to 8 bits to ``bits`` bytes as one long number; wider codes: low bytes first, then the rest."""
    if bits > 8:
        return bytes(c & 255 for c in codes) + by_hand([c >> 8 for c in codes], bits - 8)
    number = sum(c << (bits * place) for place, c in enumerate(codes))
    return number.to_bytes((len(codes) * bits + 7) // 8, "little")


@given(st.integers(1, 32), st.integers(0, 40), st.integers(0, 3), st.randoms(use_true_random=False))
@settings(derandomize=True, deadline=None, max_examples=150)
def test_packing_agrees_with_python_numbers_and_comes_back(bits, count, rows, random):
    codes = [[random.choice([0, 2**bits - 1, random.randrange(2**bits)]) for _ in range(count)] for _ in range(rows)]
    packed = pack(torch.tensor(codes, dtype=torch.int64).view(rows, count), bits)
    assert packed.dtype == torch.uint8 and packed.shape == (rows, -(-count * bits // 8))
    assert [bytes(row.tolist()) for row in packed] == [by_hand(row, bits) for row in codes]
    assert unpack(packed, bits, count).tolist() == codes


def test_the_header_byte_by_byte():
    message = UniformScalar(3, -0.5, 2.0, grid="bins").encode(X.clamp(-0.5, 2), rngs(2))[1].buffer.numpy().tobytes()
    fields = struct.unpack("<BBBBIIQffI", message[:HEADER_BYTES])
    seed = int(stream(1, "compression", client=1).integers(0, 2**64, dtype="uint64"))
    assert fields[:-1] == (0xC1, 1, 3, 3, 3, 5, seed, -0.5, 2.0)
    assert fields[-1] == zlib.crc32(message[:28] + message[32:])
    message = TopK(2).encode(X, rngs(2))[0].buffer.numpy().tobytes()
    assert struct.unpack("<BBBBIIQII", message[:28]) == (0xC1, 3, 32, 2, 3, 5, 0, 2, 0)


@pytest.mark.parametrize("name", CASES)
def test_damaged_and_cut_messages_are_refused(name):
    compressor, x = CASES[name]
    good = compressor.encode(x, rngs(2))
    compressor.decode(good, x)
    whole = good[1].buffer
    for place in range(len(whole)):
        for flip in (1, 255):
            bad = whole.clone()
            bad[place] ^= flip
            with pytest.raises(ValueError, match="buffer 1"):
                compressor.decode([good[0], Encoded(bad)], x)
        with pytest.raises(ValueError, match="buffer 1.* bytes"):
            compressor.decode([good[0], Encoded(whole[:place])], x)
    with pytest.raises(ValueError, match="bytes"):
        compressor.decode([good[0], Encoded(torch.cat([whole, whole[:1]]))], x)


@pytest.mark.parametrize("name", CASES)
def test_messages_of_another_kind_or_shape_are_refused(name):
    compressor, x = CASES[name]
    sent = compressor.encode(x, rngs(2))
    for other, (reader, like) in CASES.items():
        if other.split(",")[0] != name.split(",")[0]:
            with pytest.raises(ValueError, match="kind"):
                reader.decode(sent, like)
    for shape, word in (((2, 5, 3), "batch"), ((2, 3, 6), "width")):
        if getattr(compressor, "k", 1) <= shape[2]:  # else refused because of k
            with pytest.raises(ValueError, match=f"{word} in its header: got [35]"):
                compressor.decode(sent, torch.zeros(shape, dtype=x.dtype))


@pytest.mark.parametrize(
    ("writer", "reader", "word"),
    [
        (UniformScalar(3), UniformScalar(4), "bits in its header: got 3; allowed is 4"),
        (UniformScalar(3), UniformScalar(3, grid="bins"), "flags"),
        (UniformScalar(3), UniformScalar(3, dither=False), "flags"),
        (UniformScalar(3), UniformScalar(3, None, None), "flags"),
        (UniformScalar(3), UniformScalar(3, -1, 1.5), "high in its header: got 1.0; allowed is 1.5"),
        (Hexagonal(3), Hexagonal(2), "bits in its header: got 6; allowed is 4"),
        (Hexagonal(3), Hexagonal(2, codebook="infinite"), "flags"),
        (Hexagonal(2), Hexagonal(2, low=-2), "low in its header"),
        (TopK(2), TopK(3), "low in its header: got 2; allowed is k = 3"),
        (RandomK(2), RandomK(3), "low in its header: got 2; allowed is k = 3"),
    ],
)
def test_messages_of_another_setting_are_refused(writer, reader, word):
    with pytest.raises(ValueError, match=word):
        reader.decode(writer.encode(X, rngs(2)), X)


def sealed(buffer, place, *values):
    """A message with bytes replaced and a true checksum: what an honest-looking but wrong sender writes."""
    bad = buffer.clone()
    bad[place : place + len(values)] = torch.tensor(values, dtype=torch.uint8)
    body = bad.numpy().tobytes()
    bad[28:32] = torch.tensor(list(zlib.crc32(body[:28] + body[32:]).to_bytes(4, "little")), dtype=torch.uint8)
    return [Encoded(bad)]


def test_index_sets_that_are_none_are_refused():
    x = torch.arange(1.0, 61).view(1, 1, 60)
    message = TopK(2).encode(x, rngs(1))[0].buffer  # 6 + 6 bits: 58, 59
    assert TopK(2).decode(sealed(message, 32, int(message[32])), x).abs().sum() == 119
    for value in (58 + (59 & 3 << 6), 63, 59 | 3 << 6):  # equal, above 59, ...
        with pytest.raises(ValueError, match="no set of k components"):
            TopK(2).decode(sealed(message, 32, value), x)
    x = torch.arange(1.0, 17).view(1, 1, 16)
    message = TopK(7).encode(x, rngs(1))[0].buffer  # a bitmap
    with pytest.raises(ValueError, match="no set of k components"):
        TopK(7).decode(sealed(message, 32, 255), x)


@pytest.mark.parametrize("found", [TopK(2), RandomK(2)], ids=str)
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e6])
def test_values_that_nobody_encodes_are_refused_although_the_checksum_is_right(found, value):
    x = torch.ones(2, 3, 4)
    sent = found.encode(x, rngs(2))
    body = sent[1].buffer[HEADER_BYTES:].clone()
    body[-4:] = torch.tensor([value], dtype=torch.float32).view(torch.uint8)
    head = sent[1].buffer[:HEADER_BYTES].numpy().view(wire.HEADER).copy()
    sent[1] = wire.seal(head, body[None])[0]
    with pytest.raises(ValueError, match="^buffer 1, values"):
        found.decode(sent, x.half())


def test_ranges_and_codes_that_are_none_are_refused():
    own = UniformScalar(3, None, None)
    message = own.encode(X[:1], rngs(1))[0].buffer
    with pytest.raises(ValueError, match="range in its header"):
        own.decode(sealed(message, 23, 127), X[:1])  # low becomes huge
    with pytest.raises(ValueError, match="range in its header"):
        own.decode(sealed(message, 24, *struct.pack("<f", 3.4e38)), X[:1])  # high too large for what is decoded
    infinite = Hexagonal(2, codebook="infinite", dither=False)  # 23 codewords in 5 bits
    message = infinite.encode(X[:1], rngs(1))[0].buffer
    with pytest.raises(ValueError, match="largest code"):
        infinite.decode(sealed(message, 32, 255), X[:1])

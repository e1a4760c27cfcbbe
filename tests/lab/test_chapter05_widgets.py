"""Chapter 5's widgets: what they draw and say is computed here again; every control goes to both ends."""

import math

import numpy as np
import pytest
import torch

from fedbook.compression import TopK
from fedbook.lab import chapter05_widgets as widgets
from fedbook.randomness import normal, stream
from tests.lab.checks import drawn, numbers

PAIRS = [(0.3, -0.45), (1.0, 1.0), (-0.97, 0.2), (0.0, 0.0)]
# --- a vector, quantised


def levels(bits):
    return np.linspace(-1, 1, 2**bits)


@pytest.mark.parametrize("kind", ["scalar", "hex"])
@pytest.mark.parametrize("bits", [1, 2, 3, 4])
@pytest.mark.parametrize("pair", PAIRS)
def test_what_is_sent_is_the_nearest_codeword(kind, bits, pair):
    """decoded + u is the codeword, and of all codewords the nearest to h + u; undithered the decoder says so itself."""
    words = widgets._codewords(kind, bits)
    assert words.shape == (4**bits, 2) and len(np.unique(words.round(9), axis=0)) == 4**bits
    plain = widgets.send(kind, pair, bits, 0)
    assert np.allclose(plain.decoded, plain.codeword) and plain.payload == 200 * 2 * bits // 8
    assert np.linalg.norm(words - pair, axis=1).min() == pytest.approx(np.linalg.norm(plain.codeword - pair), abs=1e-7)
    for draw in (1, 2):
        sent = widgets.send(kind, pair, bits, draw)
        moved = pair + sent.codeword - sent.decoded[0]
        assert np.linalg.norm(words - moved, axis=1).argmin() == np.linalg.norm(words - sent.codeword, axis=1).argmin()
        assert len(np.unique(sent.decoded, axis=0)) == 200
        if kind == "scalar":
            assert [levels(bits)[c] for c in sent.code] == pytest.approx(list(sent.codeword))
            half = 1 / (2**bits - 1)
            assert np.abs(sent.decoded - pair).max() <= half + 1e-6 and sent.law == pytest.approx(half**2 / 3)
            uniform = np.sort(((sent.decoded - pair) / half + 1).ravel() / 2)
            assert np.abs(uniform - (np.arange(400) + 0.5) / 400).max() < 1.63 / 20  # Kolmogorov, 1 in 100


def test_the_hexagons_are_the_wires():
    """The codebook drawn is a hexagonal lattice with the documented cell: neighbours at d, six of them inside."""
    words = widgets._codewords("hex", 4)
    gaps = np.linalg.norm(words[:, None] - words, axis=-1) + 9 * np.eye(256)
    d = math.sqrt(2 * 4 * 1.0059 / 256 / math.sqrt(3))  # the square has area 4
    assert gaps.min(1) == pytest.approx(np.full(256, d)) and ((np.abs(gaps - d) < 1e-6).sum(1) == 6).sum() > 150
    law = widgets.send("hex", (0.1, 0.1), 4, 1)
    assert law.law == pytest.approx(5 / (36 * math.sqrt(3)) * 4 * 1.0059 / 256)
    error = law.decoded - (0.1, 0.1)
    assert np.linalg.norm(error, axis=1).max() <= d / math.sqrt(3) + 1e-6
    assert (error**2).mean() == pytest.approx(law.law, rel=0.15)


# --- what an index costs


@pytest.mark.parametrize(("bits", "width", "batch_size"), [(2, 32, 100), (1, 32, 1), (16, 128, 10), (3, 4096, 4)])
def test_index_is_what_the_wire_needs(axes, bits, width, batch_size):
    sentence = widgets.draw_index(axes, bits=bits, width=width, batch_size=batch_size)
    k, count = bits * width // 32, batch_size * width
    x = normal((1, batch_size, width), stream(0, "kept"))
    same = x * (torch.arange(width) < k)
    lengths = [8 * TopK(k).encode(h, [stream(0, "unused")])[0].nbytes / count for h in (x, same)]
    told = numbers(sentence, r"with headers: (\S+) if each .* below 32\), (\S+) with one set .* a quantiser (\S+) \(")
    assert told == [float(f"{v:.3g}") for v in (*lengths, bits + 256 / count)]
    bars = np.array([patch.get_width() for patch in axes[0].patches]).reshape(3, 5)  # values, index, header
    quantiser, charged, shared, bitmap, listed = bars.sum(0)
    assert min(bitmap, listed) == pytest.approx(lengths[0], abs=8 / count)  # whole bytes
    assert shared == pytest.approx(lengths[1], abs=8 / count)
    assert charged == 32 * k / width and quantiser == bits + 256 / count
    assert bitmap - charged - 256 / count == pytest.approx(1)
    assert listed - charged - 256 / count == pytest.approx(k * math.ceil(math.log2(width)) / width)
    labels = [text.get_text() for text in axes[0].get_yticklabels()]
    assert labels[0] == f"quantiser, b = {bits}" and labels[-1] == "top-k, list"
    found = drawn(axes[1])
    assert found[f"k = {k}"][0][0] == k / width and (found["bitmap"][:, 1] == 1).all()
    assert found["list"][:, 1] == pytest.approx(found["list"][:, 0] * math.ceil(math.log2(width)))


# --- nonsense

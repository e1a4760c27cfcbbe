"""Chapter 5's widgets: what they draw and say is computed here again; every control goes to both ends."""

import math
from itertools import islice

import numpy as np
import pytest
import torch

from fedbook.compression import TopK
from fedbook.experiment import plan
from fedbook.lab import chapter05_live as live
from fedbook.lab import chapter05_widgets as widgets
from fedbook.lab.chapter05_paper import TABLE_5
from fedbook.papers.cvfl import PAPER
from fedbook.randomness import normal, stream
from tests.lab.checks import drawn, numbers

PAIRS = [(0.3, -0.45), (1.0, 1.0), (-0.97, 0.2), (0.0, 0.0)]
MEASURED = {10: [35, 45, 40], 1: [210, 190, 200], 25: [30, 35, None], 5: [45, 60, 51]}
DRAW = live.latency_drawer(MEASURED, 2.0**20, "digits to 93 %")
LATENCY = {"latency_ms": 10.0, "step_ms": 10.0, "bandwidth": math.inf, "source": "measured"}
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


# --- bits against accuracy, live


@pytest.mark.parametrize("compressor", ["none", "hex"])
def test_live_run_is_the_algorithm(compressor):
    steps = list(islice(live.LiveRuns().start(compressor, 3, 4, 5), 3))
    changes = {"compressor": compressor, "bits": 3, "local_steps": 4, "rounds": live.ROUNDS, "evaluate_every": 1}
    rounds = plan(PAPER, "c-vfl", "digits", changes=changes, seeds=[5], device="cpu").rounds()
    records = [rounds.step() for _ in range(3)]
    assert [t for t, _ in steps] == [1, 2, 3]
    assert [step.accuracy for _, step in steps] == [r.metrics["accuracy"][0] for r in records]
    assert steps[-1][1].megabytes * 2**20 == pytest.approx(sum(rounds.history.bytes_total()))
    assert steps[0][1].words == f"{compressor}, b = {32 if compressor == 'none' else 3}, Q = 4, seed 5"


# --- latency against local steps


@pytest.mark.parametrize("latency", [1, 10, 50, 200])
def test_the_papers_table_5_comes_out(axes, latency):
    sentence = DRAW(axes, **(LATENCY | {"source": "paper", "latency_ms": float(latency)}))
    bars = np.array([patch.get_height() for patch in axes[1].patches]).reshape(3, 3).sum(0)
    printed = TABLE_5[latency]
    assert bars == pytest.approx([mean for mean, _ in printed.values()], abs=0.011)
    (arms,) = (c.get_segments() for c in axes[1].collections)
    spread = [np.ptp(arm[:, 1]) / 2 for arm in arms]
    assert spread == pytest.approx([deviation for _, deviation in printed.values()], rel=1e-3)
    assert sentence.startswith(f"At {latency} ms Q = 25 is fastest, {printed[25][0]:.0f} ± ")
    assert "Q = 25, 10)" in sentence and sentence.endswith("Fastest by latency: Q = 25.")


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


def latency(changes):
    return lambda a: DRAW(a, **(LATENCY | changes))

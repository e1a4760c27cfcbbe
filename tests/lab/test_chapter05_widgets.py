"""Chapter 5's widgets: what they draw and say is computed here again; every control goes to both ends."""

import math
from itertools import islice

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba
from matplotlib.path import Path

from fedbook.compression import TopK
from fedbook.experiment import plan
from fedbook.lab import chapter05_live as live
from fedbook.lab import chapter05_widgets as widgets
from fedbook.lab.chapter05_paper import TABLE_5
from fedbook.lab.controls import choice, log_slider, slider
from fedbook.lab.explore import Explorer
from fedbook.lab.runner import RunPanel, run_panel
from fedbook.papers.cvfl import PAPER
from fedbook.papers.cvfl.accounts import TimeModel
from fedbook.randomness import normal, stream
from tests.lab.checks import drawn, numbers, run_and_stop, run_to_the_end

PAIRS = [(0.3, -0.45), (1.0, 1.0), (-0.97, 0.2), (0.0, 0.0)]
DRAWN = {"first": 0.3, "second": -0.45, "bits": 2, "dither": 1}
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


@pytest.mark.parametrize("kind", ["scalar", "hex"])
@pytest.mark.parametrize("bits", [1, 3])
def test_cells_hold_what_goes_to_their_codeword(kind, bits):
    words, cells = widgets._codewords(kind, bits), widgets._cells(kind, bits)
    points = stream(0, "points in cells").uniform(-1.3, 1.3, (150, 2))
    nearest = np.linalg.norm(points[:, None] - words, axis=-1).argmin(1)
    inside = np.stack([Path(cell).contains_points(points) for cell in cells])
    assert (inside.sum(0) == 1).all() and (inside.argmax(0) == nearest).all()


@pytest.mark.parametrize("dither", [0, 1, 7])
def test_quantised_picture(axes, dither):
    widgets.draw_quantised(axes, **(DRAWN | {"dither": dither}))
    for ax, kind in zip(axes, ("scalar", "hex"), strict=True):
        sent, found = widgets.send(kind, (0.3, -0.45), 2, dither), drawn(ax)
        assert found["vector $h$"][0] == pytest.approx([0.3, -0.45])
        assert found["decoded"][0] == pytest.approx(sent.decoded[0])
        assert found["codeword sent"][0] == pytest.approx(sent.codeword) and len(found["codewords"]) == 16
        (cells,) = ax.collections
        (chosen,) = [
            path for path, colour in zip(cells.get_paths(), cells.get_facecolors(), strict=True)
            if tuple(colour) == to_rgba("#FBE3CF")
        ]  # fmt: skip
        assert chosen.contains_point(sent.codeword) and ("$h + u$" in found) == (dither > 0)
        assert chosen.contains_point(found.get("$h + u$", found["vector $h$"])[0])
        if dither:
            assert found["decoded, 200 dithers"] == pytest.approx(sent.decoded)
            u = found["$h + u$"][0] - found["vector $h$"][0]
            assert sent.codeword - u == pytest.approx(sent.decoded[0])
        assert ax.get_title().endswith("code " + ", ".join(str(c) for c in sent.code))
        reach = max(np.abs(sent.decoded).max(), 1)
        assert ax.get_xlim()[1] > reach and ax.get_ylim() == ax.get_xlim()


def test_quantised_sentence(axes):
    sentence = widgets.draw_quantised(axes, **DRAWN)
    assert "take 100 and 100 bytes (and a header of 32), 4 bits a pair" in sentence
    errors = numbers(sentence, r"grid \(.*?\), error (\S+) hexagons \(.*?\), error (\S+) Over")
    squares = numbers(
        sentence, r"grid (\S+) \(law (\S+) hexagons (\S+) \(law (\S+) the mean of the copies is (\S+) and"
    )
    first, means = [], []
    for kind in ("scalar", "hex"):
        sent = widgets.send(kind, (0.3, -0.45), 2, 1)
        gap = sent.decoded - (0.3, -0.45)
        first.append(float(f"{np.linalg.norm(gap[0]):.3g}"))
        means += [float(f"{(gap**2).mean():.3g}"), float(f"{sent.law:.3g}")]
    assert errors == first and squares[:4] == means
    plain = widgets.draw_quantised(axes, **(DRAWN | {"dither": 0}))
    assert "Without dither all copies come back the same" in plain and "law" not in plain


# --- bits against accuracy, live

LIVE = {"compressor": "scalar", "bits": 2, "local_steps": 3, "seed": 0}


def controls(**values):
    chosen = LIVE | values
    return {
        "compressor": choice("C  compressor", live.COMPRESSORS, chosen["compressor"]),
        "bits": slider("b  bits a component", 1, 6, 1, chosen["bits"]),
        "local_steps": slider("Q  local steps", 1, 25, 1, chosen["local_steps"]),
        "seed": slider("s  seed", 0, 9, 1, chosen["seed"]),
    }


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


def test_live_bytes_fall_with_the_bits():
    megabytes = {}
    for values in (("none", 2), ("scalar", 2), ("scalar", 4), ("topk", 2)):
        ((_, step),) = islice(live.LiveRuns().start(*values, 1, 0), 1)
        megabytes[values] = step.megabytes
    assert 14 < megabytes["none", 2] / megabytes["scalar", 2] < 16
    assert 1.8 < megabytes["scalar", 4] / megabytes["scalar", 2] < 2
    assert megabytes["topk", 2] > 1.1 * megabytes["scalar", 2]  # the list of what was kept


def test_live_runs_remember_those_before(ax):
    runs = live.LiveRuns()
    first = list(islice(runs.start(**LIVE), 2))
    again = runs.start(**(LIVE | {"seed": 1}))
    second = [next(again)]
    sentence = runs.draw(ax, second)
    assert [line.get_label() for line in ax.lines][:2] == [first[0][1].words, second[0][1].words]
    assert (
        ax.lines[0].get_linewidth() < ax.lines[1].get_linewidth() and ax.lines[0].get_color() != ax.lines[1].get_color()
    )
    assert list(ax.lines[0].get_xdata()) == [s.megabytes for _, s in first]
    assert "Before, to 93%: scalar, b = 2, Q = 3, seed 0: not reached." in sentence
    repeated = list(islice(runs.start(**(LIVE | {"seed": 1})), 3))
    next(again)  # the run that was given up
    assert runs.curves[repeated[0][1].words] == repeated and len(runs.curves) == 2
    for seed in range(2, 9):
        next(runs.start(**(LIVE | {"seed": seed})))
    assert [words[-1] for words in runs.curves] == list("345678")


def test_live_picture(ax):
    history = [(t, live.Step(a, 0.1 * t, "run")) for t, a in ((1, 0.5), (2, 0.94), (3, 0.92))]
    sentence = live.LiveRuns().draw(ax, history)
    assert sentence == "After 3 rounds of run: accuracy 0.920 for 0.3 MB; 93% first after 0.2 MB."
    assert ax.lines[0].get_xydata() == pytest.approx(np.array([[0.1, 0.5], [0.2, 0.94], [0.3, 0.92]]))
    assert list(ax.lines[1].get_ydata()) == [0.93, 0.93] and ax.get_xscale() == "log"


@pytest.mark.parametrize(
    "values",
    [{}, *({"compressor": word} for word in ("none", "hex", "topk", "randomk")),
     *({"compressor": word, "bits": bits} for word in ("scalar", "hex", "topk", "randomk") for bits in (1, 6)),
     {"local_steps": 1}, {"local_steps": 25}, {"seed": 9},
     {"compressor": "none", "bits": 1, "local_steps": 1},
     {"compressor": "randomk", "bits": 6, "local_steps": 25, "seed": 9}],
)  # fmt: skip
def test_live_panel_at_its_ends(monkeypatch, values):
    monkeypatch.setenv("FEDBOOK_HEADLESS", "1")
    runs = live.LiveRuns()
    panel = run_panel(runs.start, runs.draw, total=live.ROUNDS, label="C-VFL on digits", steps_headless=1,
                      **controls(**values))  # fmt: skip
    assert panel.sentence.startswith("After 1 rounds of " + (LIVE | values)["compressor"])


def test_live_panel_runs_and_stops(monkeypatch):
    monkeypatch.setattr(live, "ROUNDS", 12)
    runs = live.LiveRuns()
    panel = RunPanel(runs.start, runs.draw, live.ROUNDS, "C-VFL", (1, 1), None, controls(local_steps=1))
    run_and_stop(panel, 3)
    panel.controls["seed"].value = 1
    run_to_the_end(panel)
    assert len(runs.curves) == 2 and "Before, to 93%" in panel.sentence


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


def test_latency_sentence_and_bars_are_the_time_model(axes):
    values = LATENCY | {"latency_ms": 20.0, "step_ms": 4.0, "bandwidth": 10.0}
    sentence = DRAW(axes, **values)
    model = TimeModel(0.020, 0.004, 10 * 2.0**20)
    expected = {q: model.seconds(r, q, r * 2.0**20) for q, r in ((1, 200), (5, 52), (10, 40))}
    bars = np.array([patch.get_height() for patch in axes[1].patches]).reshape(3, 3)
    assert bars.sum(0) == pytest.approx(list(expected.values()))
    assert bars[:, 1] == pytest.approx([52 * 0.02, 52 * 0.02, 52 * 0.1])
    told = numbers(sentence, r"^At 20 ms Q = 10 is fastest, (\S+) ± (\S+) s; Q = 5 (\S+) s, Q = 1 (\S+) s")
    seconds = [expected[10], math.sqrt(50 / 3) * expected[10] / 40, expected[5], expected[1]]
    assert told == [float(f"{v:.3g}") for v in seconds]
    assert "Left out, as not every seed got there: Q = 25." in sentence
    lines = {line.get_label(): line for line in axes[0].lines if line.get_label().startswith("Q")}
    assert list(lines) == ["Q = 1", "Q = 5", "Q = 10"]
    x, y = lines["Q = 5"].get_data()
    assert y == pytest.approx([52 * (ms / 1000 + 0.02 + 0.1) for ms in x])


@pytest.mark.parametrize("seed", range(12))
def test_the_fastest_is_the_least_line(seed):
    rng = stream(seed, "rounds")
    rounds = dict(zip((1, 5, 10, 25), rng.uniform(20, 400, 4), strict=True))
    step, sending = rng.uniform(0, 0.05, 2)
    changes = live.fastest(rounds, step, sending, 1e-4, 10.0)
    assert changes[0][0] == 1e-4 and [at for at, _ in changes] == sorted(at for at, _ in changes)
    for at in np.geomspace(1e-4, 9.99, 301):
        least = min(rounds, key=lambda q: rounds[q] * (at + q * step + sending))
        said = [q for start, q in changes if start <= at][-1]
        assert said == least


def test_crossings_are_marked(axes):
    sentence = DRAW(axes, **(LATENCY | {"latency_ms": 1.0}))
    (mark,) = (line.get_xydata() for line in axes[0].lines if line.get_marker() == "X")
    assert "Fastest by latency: Q = 1, from 4.054 ms on Q = 5, from 116.7 ms on Q = 10." in sentence
    # 200 (t + 10) = 52 (t + 50); 52 (t + 50) = 40 (t + 100)
    assert mark == pytest.approx(np.array([[600 / 148, 0.2 * (600 / 148 + 10)], [1400 / 12, 0.052 * (1400 / 12 + 50)]]))


def test_all_seeds_must_have_arrived():
    table = live.rounds_to_target({25: [None, 3], 1: [4.0, 8.0]}, 7, "x")
    assert table.rounds == {1: (6.0, 2.0)} and table.bytes_per_round == 7
    with pytest.raises(ValueError, match=r"^measured: got"):
        live.rounds_to_target({25: [None, 3]}, 7, "x")
    # one round of Algorithm 1 with 4 parties, B = 1000, P = 16, |theta_0| = 128, 3 bits
    assert live.paper_rounds().bytes_per_round == 3 / 8 * (64_000 + 4 * (64_000 + 128))


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


# --- every corner of every control


def test_sweeps():
    wide = (1, 2, (9.0, 4.0))
    quantised = Explorer(
        widgets.draw_quantised, wide, None,
        {"first": slider("h₁  first coordinate", -1.0, 1.0, 0.05, 0.3),
         "second": slider("h₂  second coordinate", -1.0, 1.0, 0.05, -0.45),
         "bits": slider("b  bits a component", 1, 4, 1, 2), "dither": slider("u  dither (0: none)", 0, 20, 1, 1)}, None,
    )  # fmt: skip
    latency = Explorer(
        DRAW, wide, None,
        {"latency_ms": log_slider("t_c  latency (ms)", 0.1, 1000.0, 10.0),
         "step_ms": log_slider("c  ms a local step", 0.1, 100.0, 10.0),
         "bandwidth": choice("β  bandwidth", {"unlimited": math.inf, "1 MB/s": 1.0, "0.1 MB/s": 0.1}, math.inf),
         "source": choice("R  rounds", {"ours": "measured", "Table 5": "paper"}, "measured")}, None,
    )  # fmt: skip
    index = Explorer(
        widgets.draw_index, wide, None,
        {"bits": slider("b  nominal bits", 1, 16, 1, 2), "width": choice("P  width", [32, 64, 128, 1024, 4096], 32),
         "batch_size": choice("B  batch size", [1, 10, 100, 1000], 100)}, None,
    )  # fmt: skip
    for explorer, settings in ((quantised, 11), (latency, 10), (index, 12)):
        assert len(explorer.sweep()) == settings


# --- nonsense


def latency(changes):
    return lambda a: DRAW(a, **(LATENCY | changes))


def start(changes):
    return lambda a: next(live.LiveRuns().start(**(LIVE | changes)))

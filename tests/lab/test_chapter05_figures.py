"""Chapter 5's figures say the numbers of their inputs, and what they draw is what the package's compressors do."""

import math
import re

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from fedbook.compression import Hexagonal, UniformScalar
from fedbook.federation import Rounds
from fedbook.lab import chapter05_figures as figures
from fedbook.lab import chapter05_pictures as pictures
from fedbook.lab.chapter05_descent import Bound
from fedbook.papers.cvfl import CVFL, Config
from fedbook.papers.cvfl.problem import VerticalSettings, vertical_problem
from tests.lab.checks import looks

SETTINGS = VerticalSettings(embedding=32, train_samples=200, test_samples=100)
PROBLEM = vertical_problem("digits", SETTINGS, dtype=torch.float64)
SEEN = pictures.OneRound(100, 800, 300, torch.zeros(4, 2), 0)
SCALAR = Config(compressor="scalar", bits=2, local_steps=2)


def numbers(text):
    return [float(v.replace(",", "")) for v in re.findall(r"\d[\d,]*\.?\d*(?:e-?\d+)?", text)]


# --- rounds of the whole algorithm


def test_a_round_is_what_the_ledger_counts():
    """B = 100, P = 32, M = 4: 800 + 32 bytes up; down also a 10 x 128 matrix in 320 + 32 bytes and 10 float64."""
    seen = pictures.one_round(PROBLEM, SCALAR, sample=7)
    assert (seen.up, seen.down_embeddings, seen.down_server) == (4 * 832, 16 * 832, 4 * (352 + 80))
    rounds = Rounds(CVFL(SCALAR, PROBLEM), PROBLEM.federation(), 2, seeds=(0,))
    records = list(rounds)
    assert seen.total == records[1].bytes_up[0] + records[1].bytes_down[0]
    for m in range(4):
        theta = {k: v[0, m] for k, v in rounds.clients["parties"]["theta"].items()}
        own = PROBLEM.towers["parties"].apply(theta, PROBLEM.parts["parties"][m, 7:8])
        assert torch.allclose(seen.embeddings[m], own[0], atol=1e-12)


def test_the_setting_shows_the_sample_in_its_quadrants(ax):
    seen = pictures.one_round(PROBLEM, SCALAR, sample=7)
    sentence = figures.draw_setting(ax, PROBLEM, seen)
    assert numbers(sentence)[:5] == [seen.total, 4, 832, 3328, 432]
    whole = np.zeros((8, 8))
    for image in (i for i in ax.images if np.shape(i.get_array())[0] == 4):
        left, right, low, high = image.get_extent()
        if right < 2:  # the digit at the left
            rows, columns = slice(0, 4) if low > 1.5 else slice(4, 8), slice(0, 4) if left < 0.5 else slice(4, 8)
            whole[rows, columns] = np.squeeze(image.get_array())
    parts = PROBLEM.parts["parties"][:, 7, 0]
    digit = torch.cat([torch.cat([parts[0], parts[1]], 1), torch.cat([parts[2], parts[3]], 1)]).numpy()
    assert np.allclose(whole, (digit - digit.min()) / (digit.max() - digit.min()))
    strips = [i for i in ax.images if np.shape(i.get_array()) == (1, 32)]
    assert len(strips) == 4 and np.allclose(strips[2].get_array()[0], seen.embeddings[2])


def test_one_party_alone_has_its_own_features_only():
    alone = figures.party_alone(PROBLEM, 2)
    assert alone.parts["parties"].shape[0] == 1 and alone.fusion.input_width == 32
    assert torch.equal(alone.parts["parties"][0], PROBLEM.parts["parties"][2])
    assert torch.equal(alone.test_parts["parties"][0], PROBLEM.test_parts["parties"][2])
    found = figures.alone_and_together(PROBLEM, Config(rounds=8, local_steps=3, compressor="hex"), seeds=(0, 1))
    assert list(found) == [*pictures.QUADRANTS, "all together"] and all(len(v) == 2 for v in found.values())
    assert float(found["all together"].mean()) > max(float(v.mean()) for k, v in found.items() if k != "all together")


def test_bars_say_their_means(axes):
    scores = {"a": torch.tensor([0.5, 0.6]), "b": torch.tensor([0.3, 0.5]), "all together": torch.tensor([0.8, 0.9])}
    sentence = figures.draw_alone(axes, scores, SEEN)
    assert numbers(sentence) == [40, 55, 85, 1.2, 75]
    assert [p.get_width() for p in axes[0].patches] == pytest.approx([55, 40, 85])
    assert [p.get_width() for p in axes[1].patches] == pytest.approx([0.1, 0.8, 0.3])


def test_staleness_vanishes_at_one_step_and_grows(ax):
    found = figures.staleness(PROBLEM, (1, 4, 10), (0.05, 0.2))
    assert float(found[:, 0].max()) < 1e-12 and (found.diff(dim=1) > 0.01).all() and (found[1, 1:] > found[0, 1:]).all()
    sentence = figures.draw_staleness(ax, (1, 4, 10), (0.05, 0.2), found)
    assert f"eta = 0.2: 0, {100 * found[1, 1]:.2g}, {100 * found[1, 2]:.2g}." in sentence
    assert len(looks(ax.lines)) == 2 and ax.lines[1].get_ydata()[2] == pytest.approx(100 * float(found[1, 2]))


# --- compressors


def test_codebooks_are_the_packages():
    grid = figures.codebook_of(UniformScalar(2, 0.0, 1.0, dither=False))
    levels = torch.linspace(0, 1, 4, dtype=torch.float64)
    assert torch.allclose(grid, torch.cartesian_prod(levels, levels), atol=1e-6)
    book = figures.codebook_of(Hexagonal(2, 0.0, 1.0, dither=False))
    gaps = torch.cdist(book, book) + 9 * torch.eye(16, dtype=torch.float64)
    d = math.sqrt(2 / math.sqrt(3) * 1.0088 / 16)
    assert book.shape == (16, 2) and float(gaps.min()) == pytest.approx(d, rel=1e-6)


def test_cells_join_pairs_to_the_nearest_codeword():
    axes = Figure().subplots(1, 3)
    sentence = figures.draw_cells(axes, bits=2, points=60)
    for ax, compressor in zip(axes, (UniformScalar(2, 0.0, 1.0, dither=False), Hexagonal(2, 0.0, 1.0, dither=False)),
                              strict=False):  # fmt: skip
        book = figures.codebook_of(compressor)
        ways = np.array(next(c for c in ax.collections if len(c.get_segments()) == 60).get_segments())
        nearest = torch.cdist(torch.from_numpy(ways[:, 0]), book).argmin(1)
        assert np.allclose(ways[:, 1], book[nearest], atol=1e-6)
        borders = next(c for c in ax.collections if c.get_zorder() == 0)
        assert len(borders.get_segments()) > 20
        for ends in borders.get_segments():  # every point of a border is as far from two codewords
            middle = ends.mean(0)
            if (abs(middle - 0.5) < 0.5).all():
                two = torch.cdist(torch.from_numpy(middle[None]), book).sort().values[0, :2]
                assert float(two[1] - two[0]) < 1e-6
    square, hexagon = numbers(sentence.split("area ")[1])[:2]
    assert square == pytest.approx(1 / 12, rel=0.03) and hexagon == pytest.approx(5 / (36 * math.sqrt(3)), rel=0.03)
    assert hexagon > 1.8 / 24


def test_measured_errors_meet_their_laws(axes):
    found = figures.measured_errors((2, 4), messages=16)
    for label in ("scalar, ends", "hexagonal, infinite", "random-k"):
        for one in found[label]:
            assert abs(one.mean - one.law) < 4 * one.error + 1e-12
    assert found["scalar, ends"][0].law == pytest.approx((2 / 3) ** 2 / 12)
    assert found["random-k"][0].law == pytest.approx(30 / 32 / 3, rel=0.02)
    for one in found["top-k"]:
        assert one.mean < one.law - 10 * one.error  # an upper bound, equality for equal magnitudes only
    hexagonal = found["hexagonal, infinite"][1]
    assert hexagonal.mean - 8 * hexagonal.error > 4 * 4.0**-4 / 24  # the printed constant is refuted
    sentence = figures.draw_errors(axes, found)
    assert f"hexagonal, infinite {hexagonal.mean * 4**4 / 4:.4f}" in sentence and "0.0796" in sentence
    assert axes[0].get_yscale() == "log" and len(axes[0].get_legend().get_texts()) == 6


def test_sawtooth(axes):
    sentence = figures.draw_sawtooth(axes, bits=2, points=301)
    x, error = axes[0].lines[0].get_data()
    step = 2 / 3
    clear = np.abs((x + 1) / step % 1 - 0.5) > 1e-6  # not half-way between two levels
    assert np.allclose(error[clear], (np.round((x + 1) / step) * step - 1 - x)[clear], atol=1e-6)
    _, dithered = axes[1].lines[0].get_data()
    assert np.abs(dithered).max() <= step / 2 + 1e-6 and abs(np.corrcoef(x, dithered)[0, 1]) < 0.15
    plain, most, mean_square, left = numbers(sentence.split("input:")[1])[:4]
    assert mean_square == pytest.approx(step**2 / 12, rel=0.02) and most == pytest.approx(step / 2, abs=0.01)
    assert left < 0.1 and plain == pytest.approx(step**2 / 12, rel=0.05)


# --- convergence


def test_floors(axes):
    error = torch.tensor([100.0, 10.0, 0.0])
    slopes = torch.stack([torch.full((6,), v) for v in (0.2, 0.03, 0.0)], 1)
    sentence = figures.draw_floors(axes, {"slopes": slopes, "floor": slopes[-1], "error": error})
    line = (0.2 * 100 + 0.03 * 10) / (100**2 + 10**2)
    assert numbers(sentence) == pytest.approx([1, 3, 0.2, 0.03, 0, 0.002, 0.003, 3, 0, round(line, 4)])
    assert len(axes[0].lines) == 3 and len(looks(axes[0].lines)) == 3 and len(axes[1].lines) == 3
    assert axes[1].lines[-1].get_ydata() / axes[1].lines[-1].get_xdata() == pytest.approx(line)


def test_floors_by_step_and_schedules(ax, axes):
    plain, dithered = torch.tensor([[0.4, 0.5], [0.4, 0.6]]), torch.tensor([[0.01, 0.2], [0.02, 0.3]])
    sentence = figures.draw_floor_steps(axes, (1, 10), (0.1, 0.5), plain, dithered)
    assert numbers(sentence) == pytest.approx([1, 10, 0.4, 0.6, 0.01, 0.3]) and axes[0].get_ylim() == axes[1].get_ylim()
    made = {"2 bits": {"slopes": torch.tensor([1.0, 0.5]), "floor": 0.5, "bits": 8e6}}
    assert figures.draw_schedules(ax, made).endswith("2 bits 0.5 after 1.00 MB.")


def test_terms_and_growth(ax):
    one = torch.ones(2, dtype=torch.float64)
    lossy, exact = Bound(one, 2 * one, 0 * one, 5 * one), Bound(one, 3 * one, 0 * one, 0 * one)
    sentence = figures.draw_terms(ax, {"k = 1": lossy, "k = 8": exact})
    assert numbers(sentence) == [1, 7, 8, 3]
    assert sorted((float(x.get_xdata()[0]), float(x.get_ydata()[0])) for x in ax.lines) == [
        (0, 1), (0, 2), (0, 5), (1, 1), (1, 3)
    ]  # fmt: skip
    found = figures.draw_growth(Figure().subplots(), {"steps": [10, 100], "scalar": [3.0, 4.0], "top-k": [32.0, 32.0]})
    assert "scalar 3 to 4; top-k 32 to 32" in found

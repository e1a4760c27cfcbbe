"""Chapter 5's stored comparisons: numbers of hand-made cells by hand, figures and texts that say them."""

import copy
import math

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fedbook.experiment import compare
from fedbook.lab import chapter05_stored as stored
from fedbook.lab import chapter05_tables as tables
from fedbook.papers.cvfl import PAPER
from fedbook.papers.cvfl.problem import VerticalSettings, vertical_problem

MB = 2**20


def cell(compressor, bits, values, megabytes, **varied):
    """One cell: values [S, E], cumulated MB [E], judged every 10 rounds."""
    rounds = [10 * (i + 1) for i in range(len(megabytes))]
    curve = {"round": rounds, "accuracy": values, "bytes": [[int(v * MB) for v in megabytes]] * len(values)}
    return {
        "method": "c-vfl",
        "varied": {"compressor": compressor, "bits": bits, **varied},
        "tuned": {},
        "curve": curve,
    }


def table(*cells, **settings):
    return {
        "problem": "made", "metric": "accuracy", "seeds": 2, "cells": list(cells),
        "settings": {"compressor": "scalar", "bits": 2, "local_steps": 10, "batch_size": 100, "parties": 4,
                     "embedding": 32, "rounds": 30, "tower": "mlp", "lr": 0.2, "rule": "gradient"} | settings,
    }  # fmt: skip


NONE = cell("none", 32, [[0.5, 0.8, 0.9], [0.7, 0.6, 0.8]], [16, 32, 48])
SCALAR = cell("scalar", 2, [[0.5, 0.7, 0.9], [0.6, 0.65, 0.7]], [1, 2, 3])
HEX = cell("hex", 3, [[0.8, 0.7, 0.9], [0.4, 0.6, 0.8]], [2, 4, 6])
MADE = table(SCALAR, HEX, NONE)


# --- cells and numbers


def test_none_comes_first_and_once():
    again = copy.deepcopy(NONE)
    again["varied"]["bits"] = 3
    found = stored.cells_of(table(HEX, again, SCALAR, NONE))
    assert list(found) == [("none", 32), ("scalar", 2), ("hex", 3)] and found["none", 32] is again
    whole = cell("scalar", 32, [[0.5]], [16])
    assert list(stored.cells_of(table(whole))) == [("none", 32)]


def test_cells_that_differ_elsewhere_need_a_value():
    both = [cell("hex", 3, [[0.1 * m]], [1], parties=m) for m in (4, 12)]
    with pytest.raises(ValueError, match=r"^fixed.*parties"):
        stored.cells_of(table(*both))
    assert stored.cells_of(table(*both), parties=12)["hex", 3] is both[1]
    assert list(stored.cells_of(MADE, parties=4)) == list(stored.cells_of(MADE))
    for bad in ({"parties": 5}, {"colour": 1}):
        with pytest.raises(ValueError):
            stored.cells_of(MADE, **bad)
    with pytest.raises(TypeError, match=r"^table"):
        stored.cells_of(None)


def test_the_papers_best_and_the_seeds_own():
    """The mean curve of NONE is 0.6, 0.7, 0.85; that of HEX 0.6, 0.65, 0.85."""
    best = stored.best_of_mean(MADE, NONE)
    assert best.round == 30 and best.mean == pytest.approx(0.85) and best.deviation == pytest.approx(0.1 / math.sqrt(2))
    crossing = cell("hex", 2, [[0.9, 0.5, 0.6], [0.2, 0.7, 0.5]], [1, 2, 3])
    found = stored.best_of_mean(MADE, crossing)
    assert found.round == 20 and found.mean == pytest.approx(0.6)
    assert stored.best_of_each(MADE, crossing).tolist() == [0.9, 0.7]
    alone = stored.best_of_mean(MADE, cell("hex", 2, [[0.1, 0.4, 0.3]], [1, 2, 3]))
    assert (alone.mean, alone.deviation, alone.round) == (0.4, None, 20)
    lost = stored.best_of_mean(MADE, cell("hex", 2, [[0.1, 0.4, 0.3], [0.9, None, None]], [1, 2, 3]))
    assert lost.mean == 0.4 and lost.deviation is None
    with pytest.raises(ValueError, match="diverge"):
        stored.best_of_mean(MADE, cell("hex", 2, [[None, None]], [1, 2]))
    with pytest.raises(ValueError, match=r"^metric"):
        stored.best_of_mean(MADE, NONE, "f1")


def test_megabytes_are_interpolated_on_the_best_so_far():
    assert stored.megabytes_to(MADE, NONE, 0.75) == pytest.approx([16 + 16 * 0.25 / 0.3, 32 + 16 * 0.05 / 0.1])
    assert stored.megabytes_to(MADE, SCALAR, 0.8) == [pytest.approx(2.5), None]
    assert stored.megabytes_to(MADE, NONE, 0.5) == [16, 16]  # already at the first evaluation
    start = cell("hex", 2, [[None, 0.8, 0.9]], [1, 2, 3])
    assert stored.megabytes_to(MADE, start, 0.7) == [2]
    with pytest.raises((TypeError, ValueError), match=r"^target"):
        stored.megabytes_to(MADE, NONE, math.nan)


def test_savings_are_paired_by_seed():
    assert stored.saving([16.0, 30.0, None, 8.0], [2.0, None, 3.0, 4.0]).tolist() == [8, 2]
    with pytest.raises(ValueError, match=r"^other"):
        stored.saving([1.0], [1.0, 2.0])


def test_rounds_by_local_steps():
    many = [table(NONE, HEX, local_steps=q) for q in (10, 1)]
    assert tables.rounds_by_steps(many, 0.75, ("hex", 3)) == {q: [10, pytest.approx(27.5)] for q in (1, 10)}
    inside = [cell("none", 32, [[0.5, 0.8 - 0.1 * q]], [1, 2], local_steps=q) for q in (1, 2)]
    found = tables.rounds_by_steps([table(*inside)], 0.65)
    assert found == {1: [pytest.approx(17.5)], 2: [None]}
    with pytest.raises(ValueError, match=r"^key"):
        tables.rounds_by_steps(many, 0.6, ("topk", 2))


# --- figures


def test_figure_3_and_4(axes):
    sentence = stored.draw_compressors(axes, MADE, 2)
    assert "none 0.850 ± 0.071 in 48 MB; scalar 0.800 ± 0.141 in 3 MB. b = 2." in sentence and "hexa" not in sentence
    none, scalar = axes[1].lines
    assert none.get_xdata().tolist() == [16, 32, 48] and scalar.get_ydata().tolist() == pytest.approx(
        [0.55, 0.675, 0.8]
    )
    assert axes[1].get_xscale() == "log" and axes[0].lines[1].get_xdata().tolist() == [10, 20, 30]
    low, high = (scalar_band(axes[0], i) for i in (min, max))
    assert (low, high) == pytest.approx((0.8 - 0.1414, 0.8 + 0.1414), abs=1e-3)
    assert len({(to_hex(x.get_color()), x.get_marker()) for x in axes[0].lines}) == 2
    other = Figure().subplots(1, 2)
    told = stored.draw_bits(other, MADE, "hex", parties=4)
    assert "b = 32 0.850" in told and "b = 3 0.850" in told and other[0].get_title() == "$M$ = 4"
    for draw, bad in ((stored.draw_compressors, 5), (stored.draw_bits, "topk")):
        with pytest.raises(ValueError):
            draw(other, MADE, bad)


def scalar_band(ax, pick):
    path = ax.collections[1].get_paths()[0].vertices
    return pick(path[path[:, 0] == 30][:, 1])


def test_megabytes_figure_tells_who_never_gets_there(ax):
    sentence = stored.draw_megabytes(ax, MADE, 0.8)
    assert sentence == ("Mean MB to accuracy 0.8: none 40; scalar, 2 bits 2.5 (1 of 2 never); hexagonal, 3 bits 4.")
    assert [t.get_text() for t in ax.texts if t.get_text()] == ["1 of 2 never"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["none", "scalar, 2 bits", "hexagonal, 3 bits"]
    hard = table(NONE, cell("topk", 2, [[0.1, 0.2, 0.3]], [1, 2, 3]))
    assert stored.draw_megabytes(Figure().subplots(), hard, 0.8).endswith("Never: top-k, 2 bits.")
    with pytest.raises(ValueError, match=r"^target"):
        stored.draw_megabytes(Figure().subplots(), MADE, 0.99)


def test_controls(ax):
    three = (("gradient", True, 0.5), ("magnitude", False, 0.6), ("gradient", True, 0.7))
    made = table(*(cell("topk", 2, [[0.1, v]], [1, 2], rule=r, compress_server=c) for r, c, v in three))
    sentence = stored.draw_controls(ax, made)  # what most cells have goes unsaid
    assert sentence.endswith("c-vfl 0.500; ranked by magnitude, server model exact 0.600; c-vfl 0.700.")
    text = tables.controls_table(made, 0.55)
    assert "never" in text.splitlines()[1] and text.splitlines()[2].split() == [
        "ranked", "by", "magnitude,", "server", "model", "exact", "60.00", "60.00", "1.90"
    ]  # fmt: skip


def test_latency_crosses_where_the_times_are_equal(ax):
    """100 rounds of 1 step against 50 of 10, 10 ms each: 100 (t + 10) = 50 (t + 100) at t = 80 ms."""
    sentence = tables.draw_latency(ax, {1: [90, 110], 10: [50, 50], 25: [40, None]}, most_ms=300)
    assert "Q = 1 from 0 ms on, Q = 10 from 81 ms on" in sentence or "Q = 10 from 80 ms on" in sentence
    assert sentence.endswith("never reaches the target with Q = 25.") and len(ax.lines) == 2
    assert ax.lines[0].get_ydata()[0] == pytest.approx(1.0) and ax.lines[1].get_ydata()[-1] == pytest.approx(20.0)
    with pytest.raises(ValueError, match=r"^rounds"):
        tables.draw_latency(ax, {1: [None]})
    for bad in ({}, None):
        with pytest.raises(TypeError, match=r"^rounds"):
            tables.draw_latency(ax, bad)


# --- texts


def row(text, *first):
    return next(line.split() for line in text.splitlines() if line.split()[: len(first)] == list(first))


def test_tables_stand_beside_the_papers():
    text = tables.table_beside_paper(MADE, 0.8, "ModelNet10")
    words = row(text, "hexagonal", "3")
    assert " ".join(words[2:]) == ("85.00 ± 7.07 85.00 4.00 ± 2.83 12.0 ± 5.7 | 85.66 ± 1.36 900.5 ± 275.0 10.7")
    # none reaches 0.8 at 32 and 48 MB, hexagonal at 2 and 6 MB: 16 and 8 times
    assert stored.saving([32, 48], [2, 6]).tolist() == [16, 8]
    assert " ".join(row(text, "scalar", "2")[2:]).startswith("80.00 ± 14.14 80.00 2.50 (1 of 2) 12.8 | 76.94 ± 5.87")
    assert "9604.8 ± 2933.4" in text and "Table 4" in text and "P_m = 4096, 1,600 rounds" in text
    never = tables.table_beside_paper(MADE, 0.8, "CIFAR-10")
    assert row(never, "scalar", "2")[-1] == "never" and "GB to target" in never
    with pytest.raises(ValueError, match=r"^paper"):
        tables.table_beside_paper(MADE, 0.8, "MNIST")


def test_table_d1_and_table_5():
    many = [table(NONE, HEX, local_steps=q) for q in (1, 10)]
    text = tables.table_d1_beside_paper(many, 0.8)
    assert " ".join(row(text, "none")) == (
        "none 32 40.00 ± 11.31 40.00 ± 11.31 | 4517.6 ± 465.7 3777.2 ± 522.4 1536.7 ± 202.0"
    )
    times = tables.time_table({1: [100, 100], 25: [40, None]})
    words = " ".join(row(times, "200"))
    assert words.startswith("200 21.0 ± 0.0 18.0 (1 of 2) | 13259.1 ± 2878.0")  # 100 (0.2 + 0.01), 40 (0.2 + 0.25)
    assert "Q = 1 100 ± 0, Q = 25 40 (1 of 2)" in times


def test_accounts_beside_real_bytes():
    """P = 32, M = 4, 10 classes: theta_0 has 1,290 numbers; B = 100 and no compression is the literal account."""
    problem = vertical_problem("digits", VerticalSettings())
    text = tables.accounts_table(problem, [("none", 32), ("scalar", 2)])
    literal = 4 * (5 * 100 * 32 * 4 + 1290 * 4)
    assert row(text, "none")[2:6] == ["51,200", f"{literal - 51200:,}", f"{literal:,}", f"{literal:,}"]
    assert row(text, "none")[6:8] == [f"{literal - 51200:,}", f"{literal + 3 * 51200:,}"]
    assert row(text, "scalar")[2:4] == ["3,328", "14,880"]  # 4 (800 + 32) up; down also 4 (320 + 32 + 40) of theta_0


def test_what_compare_returns_can_be_read():
    made = compare(PAPER, ["c-vfl"], "digits", "quick", {"rounds": 4, "local_steps": 1, "evaluate_every": 1}, 2,
                   {"compressor": ["none", "scalar"], "bits": [2]}, device="cpu")  # fmt: skip
    cells = stored.cells_of(made)
    assert list(cells) == [("none", 32), ("scalar", 2)]
    for found in cells.values():
        run = found["runs"][1]
        assert found["curve"]["bytes"][1][-1] == run["bytes_up"] + run["bytes_down"]
    assert "scalar" in tables.table_beside_paper(made, 0.1, "CIFAR-10")
    reached = stored.megabytes_to(
        made, cells["scalar", 2], float(torch.tensor(cells["scalar", 2]["curve"]["accuracy"]).max())
    )
    assert any(v is not None for v in reached)

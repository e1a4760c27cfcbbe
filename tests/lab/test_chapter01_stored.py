"""Chapter 1's stored comparisons: numbers of hand-made cells by hand, figures and texts that say them."""

import copy
import math
import re

import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fedbook.experiment import compare
from fedbook.lab import chapter01_stored as stored
from fedbook.lab import chapter01_tables as tables
from fedbook.papers.fedsc import PAPER


def cell(method, knn, *, rounds=(5, 10), epsilon=None, tuned=None, tried=(), **varied):
    """A cell: KNN by seed and evaluation [S][E]; the probe is 0.1 above it, the loss None but for FedSC."""
    loss = -1.5 if method == "fedsc" else None
    runs = [
        {"metrics": {"knn": row[-1], "probe": None if row[-1] is None else row[-1] + 0.1, "probe_few": 0.5,
                     "loss": loss},
         "rounds": 10, "bytes_up": 4000 * (i + 1), "epsilon": None,
         "privacy": {"epsilon_of_releases": epsilon, "delta": 0.01}}
        for i, row in enumerate(knn)
    ]  # fmt: skip
    curve = {"round": list(rounds), "knn": knn, "loss": [[loss] * len(rounds)] * len(knn)}
    return {"method": method, "varied": varied, "tuned": tuned or {}, "tried": list(tried), "curve": curve,
            "runs": runs}  # fmt: skip


def table(*cells, problem="digits", **settings):
    return {"problem": problem, "metric": "knn", "seeds": 3, "cells": list(cells),
            "settings": {"clients": 10, "cohort": 0, "rounds": 10, "epsilon": 0.0, "lr": 0.03} | settings}  # fmt: skip


FEDSC = cell("fedsc", [[0.5, 0.7], [0.6, 0.8], [0.7, 0.9]])
FEDAVG = cell("fedavg-sc", [[0.4, 0.6], [0.5, 0.75], [0.6, 0.75]])
PIXELS = cell("raw-pixels", [[0.9], [0.9], [0.9]], rounds=(10,))
RANDOM = cell("random-encoder", [[0.3], [0.4], [0.5]], rounds=(10,))
MADE = table(RANDOM, FEDAVG, PIXELS, FEDSC)


def row(text, first):
    return next(line for line in text.splitlines() if line.startswith(first))


# --- cells


def test_cells_come_in_the_chapters_order():
    assert list(stored.cells_of(MADE)) == ["fedsc", "fedavg-sc", "random-encoder", "raw-pixels"]
    both = table(cell("fedsc", [[0.1]], cohort=0), cell("fedsc", [[0.2]], cohort=2))
    assert stored.cells_of(both, cohort=2)["fedsc"] is both["cells"][1]
    with pytest.raises(ValueError, match=r"^fixed: got \{\}.*cohort"):
        stored.cells_of(both)
    tuned = cell("fedsc", [[0.1]], tuned={"lr": 0.3})
    assert stored.setting(MADE, tuned, "lr") == 0.3 and stored.setting(MADE, FEDSC, "lr") == 0.03


def test_means_and_bytes_by_hand():
    found = stored.means(MADE, metric="knn")
    assert found["fedsc"] == pytest.approx((0.8, 0.1)) and found["raw-pixels"] == pytest.approx((0.9, 0.0))
    assert stored.bytes_up(MADE, FEDSC) == 8000 / (10 * 10)  # 4,000, 8,000 and 12,000 B, 10 rounds of 10 clients
    some = cell("fedsc", [[0.1], [0.2], [0.3]], cohort=2)
    assert stored.bytes_up(MADE, some) == 8000 / (10 * 2)
    lost = table(cell("fedsc", [[0.5, None], [0.6, 0.8]]), FEDAVG)
    assert list(stored.means(lost, metric="knn")) == ["fedavg-sc"]
    assert math.isnan(stored.scores(lost["cells"][0])[0])


# --- curves


def test_curves_are_means_and_controls_are_lines():
    axes = Figure().subplots(1, 2)
    both = copy.deepcopy(MADE)
    for one in both["cells"]:
        one["curve"]["probe"] = [[v + 0.1 for v in seed] for seed in one["curve"]["knn"]]
    sentence = stored.draw_rounds(axes, both)
    assert "knn: FedSC 80.0, FedAvg+SC 70.0, random encoder 40.0, raw pixels 90.0" in sentence
    assert "probe: FedSC 90.0, FedAvg+SC 80.0" in sentence and "over 3 seeds" in sentence
    first, second, *levels = axes[0].lines
    assert len({(to_hex(x.get_color()), str(x.get_linestyle())) for x in axes[0].lines}) == 4
    assert first.get_xdata().tolist() == [5, 10] and first.get_ydata() == pytest.approx([60, 80])
    assert second.get_ydata() == pytest.approx([50, 70])
    top = axes[0].collections[0].get_paths()[0].vertices
    assert top[top[:, 0] == 10][:, 1].max() == pytest.approx(90)  # one deviation above the mean
    assert sorted(float(line.get_ydata()[0]) for line in levels) == pytest.approx([40, 90])
    looks = {(to_hex(x.get_color()), x.get_marker(), x.get_linestyle()) for x in (first, second)}
    words = [t.get_text() for t in axes[1].get_legend().get_texts()]
    assert len(looks) == 2 and words == ["FedSC", "FedAvg+SC", "random encoder", "raw pixels"]
    assert axes[0].get_ylabel() == "KNN accuracy in %"


def test_a_method_keeps_its_look_and_may_lack_a_metric(ax):
    sentence = stored.draw_rounds(ax, MADE, methods=["fedavg-sc"], metrics=["knn"])
    alone = ax.lines[0]
    other = Figure().subplots(1, 1)
    stored.draw_rounds(other, MADE, metrics=["knn"])
    assert alone.get_color() == other.lines[1].get_color() and "FedSC" not in sentence
    told = stored.draw_rounds(Figure().subplots(), MADE, metrics=["loss"])
    assert "loss: FedSC -1.500, FedAvg+SC none, random encoder none" in told


# --- texts and differences


def test_methods_table():
    text = tables.methods_table(MADE)
    assert " ".join(row(text, "FedSC").split()) == "FedSC 80.0 ± 10.0 90.0 ± 10.0 50.0 ± 0.0 -1.500 ± 0.000 - 80"
    assert row(text, "raw pixels").split()[-3:] == ["-", "-", "-"]
    assert "10 clients, all in a round, 10 rounds, 3 seeds" in text
    lost = table(cell("fedsc", [[0.5, None], [0.6, 0.8]]), cell("fedx", [[0.5, None]]))
    text = tables.methods_table(lost)
    assert "80.0 (1 diverged)" in row(text, "FedSC") and "diverged" in row(text, "FedX")


def test_differences_are_paired(ax):
    """By seed 0.1, 0.05, 0.15: mean 10 points, deviation 5, 95 % half-width 4.3027 * 5 / sqrt 3 = 12.42."""
    found = stored.differences(MADE)
    assert list(found) == ["fedsc", "random-encoder", "raw-pixels"] and found["fedsc"].mean == pytest.approx(10)
    assert found["fedsc"].high - 10 == pytest.approx(12.42, abs=0.01)
    sentence = stored.draw_differences(ax, MADE)
    assert "FedSC +10.00 [-2.42, +22.42]" in sentence and "over 3 seeds" in sentence
    ends = ax.collections[0].get_segments()[0][:, 0]
    assert ends == pytest.approx([-2.42, 22.42], abs=0.01)
    text = tables.differences_table(MADE)
    assert row(text, "FedSC").count("[-2.42, +22.42]") == 2 and "*" not in row(text, "FedSC")
    sure = table(FEDAVG, cell("fedsc", [[0.0, 0.8], [0.0, 0.95], [0.0, 0.96]]))
    assert row(tables.differences_table(sure, metrics=["knn"]), "FedSC").endswith("*")


def test_participation(ax):
    def some(method, value):
        return cell(method, [[value - 0.01], [value + 0.01]], cohort=2)

    full = [cell(c["method"], c["curve"]["knn"], cohort=0) for c in (FEDSC, FEDAVG)]
    made = table(*full, some("fedsc", 0.75), some("fedavg-sc", 0.5), some("fedx", 0.4))
    sentence = stored.draw_participation(ax, made, cohort=2)
    assert sentence == "knn with all clients, and with 2 a round: FedSC 80.0 to 75.0; FedAvg+SC 70.0 to 50.0."
    assert [t.get_text() for t in ax.get_yticklabels()] == ["FedSC", "FedAvg+SC"]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["all clients", "2 a round"]
    with pytest.raises(ValueError, match=r"^fixed"):
        stored.draw_participation(ax, made, cohort=3)


# --- privacy


NOISY = table(
    cell("fedsc", [[0.75], [0.77], [0.79]], epsilon=6.0, rounds=(10,)),
    cell("fedsc", [[0.70], [0.72], [0.74]], epsilon=3.0, rounds=(10,)), FEDSC,
)  # fmt: skip


def test_noise_levels_stand_between_the_lines(ax):
    assert list(stored.noised(NOISY)) == [3.0, 6.0]
    sentence = stored.draw_privacy(ax, NOISY, table(FEDAVG))
    assert "72.0 at 3, 77.0 at 6, FedAvg+SC 70.0, FedSC, no noise 80.0" in sentence
    levels = [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() in ("--", "-.")]
    assert levels == pytest.approx([70, 80])
    text = tables.privacy_table(NOISY, table(FEDAVG))
    assert [line.split()[-6] for line in text.splitlines()[1:]] == ["72.0", "77.0", "70.0", "80.0"]
    assert re.search(r"FedSC with noise +3 +none", text)


# --- tuning


def tried(*values):
    return [{"settings": {"lr": lr}, "mean": mean} for lr, mean in values]


def test_tuning_says_what_lies_at_the_edge():
    trials = tried((0.01, 0.5), (0.03, 0.7), (0.1, None))
    inside = cell("fedsc", [[0.5]], tuned={"lr": 0.03}, tried=trials)
    outer = cell("fedx", [[0.5]], tuned={"lr": 0.1}, tried=trials)
    text = tables.tuning_table(table(inside, outer, FEDAVG))
    assert "lr = 0.03" in row(text, "FedSC") and "largest" not in row(text, "FedSC")
    assert "lr: largest" in row(text, "FedX") and "0.01: 0.500; 0.03: 0.700; 0.1: diverged" in row(text, "FedX")
    assert "FedAvg" not in text and tables.edges(cell("fedx", [[0.5]], tuned={"lr": 0.01}, tried=trials)) == [
        "lr: least"
    ]
    with pytest.raises(ValueError, match=r"^table.*tuned"):
        tables.tuning_table(MADE)


# --- real comparisons, and nonsense


def test_what_compare_returns_can_be_read():
    small = {"rounds": 2, "train_samples": 120, "test_samples": 40, "evaluate_every": 1, "clients": 4,
             "classes_per_client": 3, "local_epochs": 1}  # fmt: skip
    methods = ["fedsc", "fedavg-sc", "random-encoder", "raw-pixels"]
    made = compare(PAPER, methods, "digits", changes=small, seeds=2, device="cpu")
    sentence = stored.draw_rounds(Figure().subplots(1, 2), made)
    value = sum(run["metrics"]["knn"] for run in made["cells"][0]["runs"]) / 2
    assert f"knn: FedSC {100 * value:.1f}" in sentence
    assert set(stored.METRICS) >= set(made["cells"][0]["curve"]) - {"round", "bytes"}
    cells = stored.cells_of(made)
    extra = stored.bytes_up(made, cells["fedsc"]) - stored.bytes_up(made, cells["fedavg-sc"])
    assert 4 * 16 * 17 / 2 <= extra < 4 * 16 * 17 / 2 + 64  # a triangle of float32, and the header of an array
    assert "FedSC" in tables.methods_table(made) and "raw pixels" in tables.differences_table(made)
    private = compare(PAPER, ["fedsc"], "digits", changes=small, seeds=2, vary={"epsilon": [0.0, 3.0]}, device="cpu")
    assert list(stored.noised(private)) == [3.0]
    text = tables.privacy_table(private, {**made, "cells": made["cells"][1:2]})
    assert len(text.splitlines()) == 4 and torch.isfinite(stored.scores(private["cells"][1])).all()

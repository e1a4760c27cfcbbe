"""Chapter 4's figures and tables say the numbers of their inputs, and what they read from a run is the run's."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from fedbook.experiment import compare
from fedbook.federation import Rounds, tree_map
from fedbook.federation.history import History, Record
from fedbook.intervals import mean_interval, paired_difference
from fedbook.lab import chapter04_budget as budget
from fedbook.lab import chapter04_figures as figures
from fedbook.lab import chapter04_stored as stored
from fedbook.lab import chapter04_tables as tables
from fedbook.lab.chapter04_descent import one_round, random_quadratics
from fedbook.papers.dp2_fedsam import METHODS, PAPER, Config, DP2FedSAM
from fedbook.papers.dp2_fedsam.problem import PersonalSettings, personal_problem
from fedbook.papers.dp2_fedsam.sharpness import gaussian_rise, loss_surface, random_directions
from fedbook.privacy.sampled import paper_sigma, sampled_epsilon, without_replacement_rdp
from fedbook.randomness import stream
from tests.lab.checks import looks

SEEDS = (0, 3)
CONFIG = Config(
    rounds=3, client_rate=1.0, head_epochs=2, body_epochs=2, batch_size=5, lr_body=0.2, lr_head=0.3, momentum=0.5,
    lr_decay=0.9, sam_radius=0.1, clip_norm=math.inf,
)  # fmt: skip


def problem(**changes):
    settings = PersonalSettings(clients=6, train_samples=240, own_share=0.2, model="mlp16")
    return personal_problem("digits", replace(settings, **changes), SEEDS, dtype=torch.float64)


SMALL, UNEVEN = problem(), problem(partition="dirichlet", alpha=1.0)


def started(method, data=SMALL, rounds=2, **changes):
    """A run that has done ``rounds`` rounds and has one more to go."""
    algorithm = DP2FedSAM(replace(CONFIG, **changes), data.model, method)
    made = Rounds(algorithm, data.federation(), rounds + 1, seeds=SEEDS)
    for _ in range(rounds):
        made.step()
    return made


# --- what a run holds


@pytest.mark.parametrize("data", [SMALL, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("method", ["p-fedsam", "fedavg"])
def test_client_updates_are_what_the_next_round_sums(method, data):
    """Without clip and noise and with everybody in the cohort the next round moves phi by their mean."""
    rounds, everybody = started(method, data), torch.arange(6)
    before, clients = rounds.server["shared"], tree_map(torch.clone, rounds.clients)
    found = [figures.client_updates(data, rounds, slot, everybody) for slot in (0, 1)]
    assert not any(bool((old != new).any()) for old, new in zip(leaves(clients), leaves(rounds.clients), strict=True))
    some = figures.client_updates(data, rounds, 1, torch.tensor([4, 1]))
    assert torch.allclose(some, found[1][[4, 1]], rtol=0, atol=1e-12)
    record = rounds.step()
    for slot in (0, 1):
        moved = torch.cat([(rounds.server["shared"][n] - before[n])[slot].flatten() for n in before])
        assert torch.allclose(found[slot].mean(0), moved, rtol=0, atol=1e-12)
        lengths = found[slot].norm(dim=1)
        assert record.trace["update_norm"][slot] == pytest.approx(float(lengths.mean()))
    assert not torch.allclose(found[0], found[1], atol=1e-3)


def leaves(tree):
    return [x for value in tree.values() for x in (leaves(value) if isinstance(value, dict) else [value])]


@pytest.mark.parametrize("method", ["p-fedsam", "fedavg"])
def test_client_loss_is_the_mean_of_the_clients_losses(method):
    rounds = started(method, UNEVEN)
    loss, shared = figures.client_loss(UNEVEN, rounds, 1)
    slow = []
    for k, rows in enumerate(UNEVEN.train[1].lists()):
        own = tree_map(lambda p, k=k: p[1, k], rounds.clients["all"]["own"]) if method == "p-fedsam" else {}
        logits = UNEVEN.model.apply({**shared, **own}, UNEVEN.x[rows])
        slow.append(torch.nn.functional.cross_entropy(logits, UNEVEN.y[rows]))
    assert float(loss(shared)) == pytest.approx(float(torch.stack(slow).mean()), abs=1e-12)
    rise = gaussian_rise(loss, shared, 0.3, 8, stream(0, "rise"))
    assert float(rise.mean) > 3 * float(rise.error) > 0


# --- what clients send


def test_norms(ax):
    norms = {"a": torch.tensor([0.1, 0.2, 0.6]), "b": torch.tensor([1.0, 3.0])}
    sentence = figures.draw_norms(ax, norms, 0.5)
    assert sentence == "Mean length of an update and share longer than C = 0.5: a 0.3 and 33%; b 2 and 100%."
    dots = [line for line in ax.lines if len(line.get_xdata()) in (2, 3) and line.get_linestyle() == "None"]
    assert [sorted(line.get_xdata()) for line in dots] == [pytest.approx([0.1, 0.2, 0.6]), pytest.approx([1.0, 3.0])]
    assert all(abs(y - i) <= 0.31 for i, line in enumerate(dots) for y in line.get_ydata()) and len(looks(dots)) == 2
    assert any(list(line.get_xdata()) == [0.5, 0.5] for line in ax.lines)
    assert [text.get_text() for text in ax.get_yticklabels()] == ["a", "b"]


def record(t, mean, square):
    return Record(t, {}, {"update_norm": mean, "update_norm_squared": square}, [3, 3], [0, 0], [0, 0], 0.0)


def test_update_norms_by_round():
    """Two seeds: means 1 and 3, variances 3 and 1; then one seed alone, as the other's cohort was empty."""
    first = History([record(0, [1.0, 3.0], [4.0, 10.0]), record(1, [2.0, None], [8.0, None])])
    axes = Figure().subplots(1, 2)
    sentence = figures.draw_update_norms(axes, {"a": first, "b": History([record(0, [1.0, 1.0], [1.0, 1.0])])})
    (mean, _), (std, _) = (ax.lines for ax in axes)
    assert mean.get_ydata().tolist() == [2.0, 2.0] and mean.get_xdata().tolist() == [1, 2]
    assert std.get_ydata().tolist() == pytest.approx([math.sqrt(2.0), 2.0])
    assert "a 2 to 2 (deviation 1.4 to 2)" in sentence and "b 1 to 1 (deviation 0 to 0)" in sentence
    assert len(looks([*axes[0].lines])) == 2


def test_update_norms_of_a_run_are_its_clients():
    rounds = started("p-fedsam")
    lengths = torch.stack([figures.client_updates(SMALL, rounds, s, torch.arange(6)).norm(dim=1) for s in (0, 1)])
    rounds.step()
    axes = Figure().subplots(1, 2)
    figures.draw_update_norms(axes, {"run": rounds.history})
    std = lengths.var(1, correction=0).mean().sqrt()
    assert axes[0].lines[0].get_ydata()[-1] == pytest.approx(float(lengths.mean()))
    assert axes[1].lines[0].get_ydata()[-1] == pytest.approx(float(std))


# --- noise on the shared part


def test_surfaces_share_one_scale_and_say_the_rim():
    """a |x|^2 / 2 around the middle: at distance 2 the rise is 2 a, here up to the width of the grid."""
    x = torch.linspace(-2, 2, 41, dtype=torch.float64)
    bowl = 0.5 * (x[:, None] ** 2 + x**2)
    axes = Figure().subplots(1, 2)
    sentence = figures.draw_surface(axes, {"sharp": 5 + 3 * bowl, "flat": 1 + bowl}, x)
    found = [float(v) for v in re.findall(r"(?:sharp|flat) (\S+) \(", sentence)]
    assert "distance 2 " in sentence and found == pytest.approx([6.0, 2.0], rel=0.03)
    filled = [next(c for c in ax.collections if c.filled) for ax in axes]
    assert filled[0].get_clim() == filled[1].get_clim() and filled[0].levels.max() >= 12 and filled[0].levels.min() == 0
    assert axes[0].get_title() == "sharp" and len(axes[0].figure.axes) == 3  # with the colour bar
    long = torch.zeros(41, 41, dtype=torch.float64)
    long[40, :] = 1.0  # the first axis of a surface is u_1, drawn to the right
    one = Figure().subplots()
    figures.draw_surface(one, {"wall": long}, x)
    assert (next(c for c in one.collections if c.filled).get_paths()[-1].vertices[:, 0] > 1.9).all()


def test_surface_of_a_run():
    loss, body = figures.client_loss(SMALL, started("p-fedsam"))
    offsets = torch.linspace(-1, 1, 5)
    surface = loss_surface(loss, body, random_directions(body, stream(0, "plane")), offsets)
    assert "run" in figures.draw_surface(Figure().subplots(), {"run": surface}, offsets)


# --- terms of the descent lemma


def test_terms_stack_to_the_bound(ax):
    federations = random_quadratics(40, 5, 4, seed=1)
    cases = {f"C = {c}": one_round(federations, 0.1, 0.2, c, 0.5) for c in (0.1, 2.0)}
    sentence = figures.draw_terms(ax, cases)
    for i, (label, (change, terms)) in enumerate(cases.items()):
        bars = [b for b in ax.patches if abs(b.get_x() + 0.3 - i) < 1e-9]
        assert [b.get_height() for b in bars] == pytest.approx([float(v.mean()) for v in terms.values()])
        ends = [b.get_y() + b.get_height() for b in bars]
        bound = max(0.0, *ends) + min(0.0, *ends)
        assert bound == pytest.approx(float(sum(v.mean() for v in terms.values())))
        assert any(line.get_ydata()[0] == pytest.approx(bound) and len(line.get_ydata()) == 2 for line in ax.lines)
        assert any(list(line.get_ydata()) == [pytest.approx(float(change.mean()))] for line in ax.lines)
        assert f"{label}: {float(change.mean()):.3g}, bound {bound:.3g}" in sentence
    assert len({b.get_hatch() for b in ax.patches}) == 5
    assert [t.get_text() for t in ax.get_legend().get_texts()][-2:] == ["their sum: the bound", "true change"]


def test_terms_of_either_sign_stack_on_their_own_side(ax):
    figures.draw_terms(ax, {"case": (0.5, {"a": 1.0, "b": -2.0, "c": 3.0, "d": -1.0})})
    assert [(bar.get_y(), bar.get_height()) for bar in ax.patches] == [(0, 1), (0, -2), (1, 3), (-2, -1)]


# --- budgets


@pytest.mark.parametrize(("n", "epsilon"), [(500, 1.0), (500, 2.0), (1000, 1.0), (1000, 2.0)])
def test_theorem_2_gives_back_its_budget_and_its_condition_fails(n, epsilon):
    asked = paper_sigma(epsilon, 1 / n, 0.05, 200)
    promise = budget.theorem2_epsilon(asked.sigma, 0.05, 200, 1 / n)
    assert promise.epsilon == pytest.approx(epsilon) and promise.order == pytest.approx(asked.order)
    assert promise.holds is asked.holds is False


def test_theorem_2_where_its_condition_holds():
    """The instance that comes out even: sigma^2 = 5.25 at order 5 gives 2 + 2 = 4."""
    promise = budget.theorem2_epsilon(math.sqrt(5.25), 0.01, 6000, math.exp(-8))
    assert promise.epsilon == pytest.approx(4.0) and promise.order == pytest.approx(5.0) and promise.holds
    assert not budget.theorem2_epsilon(math.sqrt(5.25), 0.01, 200_000, math.exp(-8)).holds  # epsilon above 2 L


def test_budget_figure(ax):
    sentence = budget.draw_budget(ax, 7.201, 0.05, 200, 1e-3)
    lines = {line.get_label().split(",\n")[0]: line for line in ax.lines if not line.get_label().startswith("_")}
    last = {word: float(lines[label].get_ydata()[-1]) for word, label in budget.WORDS.items()}
    orders = range(2, 65)
    lemma4 = min(200 * without_replacement_rdp(a, 7.201, 0.05) + math.log(1000) / (a - 1) for a in orders)
    assert last["lemma4"] == pytest.approx(lemma4) and last["theorem2"] == pytest.approx(1.0, rel=1e-4)
    assert last["rdp"] == pytest.approx(0.2358, abs=2e-4)  # Opacus and dp-accounting agree
    assert last["pld"] < last["rdp"] < last["theorem2"] < last["lemma4"] < last["none"]
    assert all(line.get_xdata()[-1] == 200 and line.get_xdata()[0] == 1 for line in lines.values())
    for word, label in budget.WORDS.items():
        assert f"{label} {last[word]:.3g}" in sentence
        assert (np.diff(lines[label].get_ydata()) > 0).all()
    assert (
        "condition fails" in sentence and lines["Theorem 2"].get_linestyle() == "--" and len(looks(lines.values())) == 5
    )
    solid = next(
        line for line in ax.lines if line.get_color() == lines["Theorem 2"].get_color() and line.get_linestyle() == "-"
    )
    assert np.isnan(solid.get_ydata()).all()


def test_budget_figure_where_the_condition_holds(ax):
    assert "its condition holds" in budget.draw_budget(ax, math.sqrt(5.25), 0.01, 6000, math.exp(-8))
    solid = [line for line in ax.lines if line.get_label().startswith("_")][0].get_ydata()
    assert solid[-1] == pytest.approx(4.0) and np.isnan(solid[0])


@pytest.mark.parametrize("z", [0.5, 20.0])
@pytest.mark.parametrize("rate", [0.01, 1.0])
@pytest.mark.parametrize(("rounds", "exponent"), [(1, -2), (500, -9)])
def test_live_budget_at_its_corners(ax, z, rate, rounds, exponent):
    sentence = budget.draw_budget_live(ax, noise_multiplier=z, rate=rate, rounds=rounds, delta_exponent=exponent)
    tight = sampled_epsilon(z, rate, rounds, 10.0**exponent)
    assert f"after {rounds} rounds at sigma = {z:.3g}" in sentence
    assert sentence.endswith(f"loss distribution {tight:.3g}.") and list(ax.lines[-1].get_xdata()) == [rounds]


# Specification of the chapter, section 4.3: columns N = 500 and 1000, each at epsilon 1 and 2.
SIGMAS = {
    "Theorem 2, (26)": (6.8558, 3.5532, 7.2010, 3.7200),
    "at the best real order": (6.8511, 3.5447, 7.1969, 3.7125),
    "Lemma 4, sensitivity C, by Lemma 2": (None, 3.5356, None, 3.8791),
    "the same, improved": (7.6140, 2.4934, 19.007, 2.7325),
    "the same, 2C": (15.228, 4.9868, 38.014, 5.4651),
    "cohorts of fixed size": (7.960, 4.640, 8.534, 4.888),
    "Poisson cohorts, Renyi, by Lemma 2": (2.7906, 1.6018, 2.9240, 1.6683),
    "with improved conversion": (2.1163, 1.3413, 2.2581, 1.4109),
    "by loss distribution": (1.872, 1.213, 2.013, 1.279),
}


def test_sigma_table():
    lines = budget.sigma_table().splitlines()
    assert "N=500, 1" in lines[1] and "N=1000, 2" in lines[1]
    for words, expected in SIGMAS.items():
        (row,) = (line for line in lines if words in line)
        for given, sigma in zip(row.split()[-4:], expected, strict=True):
            assert given == "impossible" if sigma is None else float(given) == pytest.approx(sigma, abs=1.6e-3)
    for given, (n, epsilon) in zip(lines[-1].split()[-4:], budget.SETTINGS, strict=True):
        assert sampled_epsilon(float(given), 1.0, 200, 1 / n) == pytest.approx(epsilon, rel=1e-3)


# --- stored comparisons


def cell(method, values, **varied):
    curve = {"round": [40], "accuracy": [[v] for v in values]}
    runs = [{"metrics": {"accuracy": v}, "epsilon": 2.0} for v in values]
    return {"method": method, "varied": varied, "tuned": {}, "tried": [], "curve": curve, "runs": runs}


def table(*cells, **settings):
    known = PAPER.defaults() | {"epsilon": 2.0, "clients": 100, "rounds": 40, "model": "mlp16"} | settings
    seeds = len(cells[0]["runs"])
    return {"paper": "dp2_fedsam", "problem": "digits", "metric": "accuracy", "settings": known, "seeds": seeds,
            "cells": list(cells)}  # fmt: skip


BUDGETS = table(
    cell("dp2-fedsam", [0.90, 0.92, 0.94], epsilon=2.0), cell("dp-fedavg", [0.60, 0.70, 0.65], epsilon=2.0),
    cell("fedavg", [0.9, 0.9, 0.9], epsilon=2.0), cell("dp2-fedsam", [0.95, 0.96, 0.97], epsilon=8.0),
    cell("dp-fedavg", [0.80, None, 0.85], epsilon=8.0), cell("fedavg", [0.9, 0.9, 0.9], epsilon=8.0),
)  # fmt: skip
CONTROLS = table(cell("frozen-body", [0.85, 0.86, 0.87]), cell("local-only", [0.96, 0.96, 0.99]))


def test_cells_by_budget():
    found = stored.by_budget(BUDGETS, CONTROLS)
    assert found["dp2-fedsam", 8.0] == [0.95, 0.96, 0.97] and found["fedavg", None] == [0.9] * 3
    assert math.isnan(found["dp-fedavg", 8.0][1]) and len(found) == 7
    assert [m for m, _ in found] == sorted((m for m, _ in found), key=list(METHODS).index)
    noise = table(cell("dp2-fedsam", [0.9]), epsilon=0.0, noise_multiplier=3.0)
    assert set(stored.by_budget(noise)) == {("dp2-fedsam", 2.0)}  # what the run says it cost
    assert set(stored.by_budget(table(cell("dp2-fedsam", [0.9]), epsilon=0.0))) == {("dp2-fedsam", None)}


def test_methods_figure(ax):
    sentence = stored.draw_methods(ax, BUDGETS, CONTROLS)
    assert sentence == (
        "Mean accuracy in % over 3 seeds; epsilon = 2: dp2-fedsam 92.0, dp-fedavg 65.0; epsilon = 8: dp2-fedsam 96.0; "
        "no noise: fedavg 90.0, frozen-body 86.0, local-only 97.0."
    )
    assert [t.get_text() for t in ax.get_yticklabels()] == [
        "dp2-fedsam",
        "dp-fedavg",
        "fedavg",
        "frozen-body",
        "local-only",
    ]
    points, caps, bars = ax.containers[0]
    assert sorted(points.get_xdata()) == pytest.approx([65.0, 92.0]) and len(caps) == 2
    interval = mean_interval([90.0, 92.0, 94.0])
    assert sorted(bars[0].get_segments()[0][:, 0]) == pytest.approx([interval.low, interval.high])
    assert len(looks(c[0] for c in ax.containers)) == 3
    assert "one" not in stored.draw_methods(Figure().subplots(), table(cell("centaur", [0.5])))  # one seed: no interval


def test_table_beside_the_paper():
    lines = tables.table_beside_paper(BUDGETS, CONTROLS).splitlines()
    assert lines[2].split() == ["epsilon", "2", "8", "no", "noise", "|", "1", "2", "1", "2", "1", "1"]
    row = {line.split()[0]: line for line in lines}
    ours, theirs = row["dp2-fedsam"].split("|")
    assert "92.0 ± 2.0" in ours and "96.0 ± 1.0" in ours
    assert theirs.split()[::3] == ["66.7", "72.2", "84.1", "85.3", "61.2", "65.3"]
    assert "diverged" in row["dp-fedavg"] and "90.0 ± 0.0" in row["fedavg"]
    assert "100 clients of 2 classes; 40 rounds" in lines[-3] and "ResNet-18" in lines[-2]
    assert len({line.index("|") for line in lines if "|" in line}) == 1


def test_printed_numbers_give_the_papers_gains():
    """The gains at epsilon 1 that the paper's text quotes, over DP-FedAvg, DP-FedSAM-FT and CENTAUR."""
    at_one = [i for i, (_, epsilon) in enumerate(tables.PRINTED_COLUMNS) if epsilon == 1]
    ours = tables.PRINTED["dp2-fedsam"]
    gains = {m: sorted(round(ours[i][0] - row[i][0], 1) for i in at_one) for m, row in tables.PRINTED.items()}
    assert gains["dp-fedavg"] == [11.6, 12.9, 14.5, 29.3]
    assert gains["dp-fedsam-ft"] == [3.1, 3.2, 4.1, 10.2] and gains["centaur"] == [1.9, 2.6, 2.7, 7.4]
    assert all(len(row) == len(tables.PRINTED_COLUMNS) for row in tables.PRINTED.values())


def test_paired_table():
    text = tables.paired_table(BUDGETS, CONTROLS)
    found = paired_difference([90.0, 92.0, 94.0], [60.0, 70.0, 65.0])
    line = next(line for line in text.splitlines() if "epsilon = 2" in line and "dp-fedavg" in line)
    assert "+27.0" in line and f"[{found.low:+.1f} to {found.high:+.1f}]" in line
    assert re.search(r"epsilon = 8 +dp-fedavg +diverged", text) and "no noise" not in text
    assert text.count("local-only") == 2 and text.count("frozen-body") == 2
    assert "one seed" in tables.paired_table(table(cell("centaur", [0.5]), cell("dp2-fedsam", [0.6])))


GRID = table(*(
    cell("dp2-fedsam", [base + gain + 0.01 * s + (0.02 * s if q else 0) for s in range(3)], clip_norm=c, sam_radius=q)
    for c, base in ((0.2, 0.9), (1.0, 0.8)) for q, gain in ((0.0, 0.0), (0.2, 0.02 if c == 1.0 else -0.03))
))  # fmt: skip


def test_heat_map_of_accuracy(ax):
    sentence = stored.draw_heat(ax, GRID)
    grid = ax.images[0].get_array()
    assert grid.shape == (2, 2) and grid[0, 0] == pytest.approx(91.0) and grid[1, 1] == pytest.approx(85.0)
    assert {t.get_text() for t in ax.texts} == {"91.0", "90.0", "81.0", "85.0"}
    assert "highest 91.0 at C = 0.2, q = 0, lowest 81.0 at C = 1, q = 0" in sentence
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0", "0.2"]


def test_heat_map_of_gains(ax):
    """Differences of the seeds are g, g + 0.02, g + 0.04: mean g + 0.02, standard error 0.02 / sqrt(3)."""
    sentence = stored.draw_heat(ax, GRID, gain=True)
    error = 2 / math.sqrt(3)
    assert {t.get_text() for t in ax.texts} == {f"+4.0 ± {error:.1f}", f"-1.0 ± {error:.1f}"}
    limits = ax.images[0].get_clim()
    assert (
        limits[0] == -limits[1] == pytest.approx(-4.0) and f"lowest -1.0 ± {error:.1f} at C = 0.2, q = 0.2" in sentence
    )
    at = {(round(t.get_position()[0]), round(t.get_position()[1])): t.get_text()[0] for t in ax.texts}
    assert at == {(0, 0): "-", (0, 1): "+"}


def test_heat_map_of_a_table_with_a_third_setting(ax):
    both = [cell("dp2-fedsam", [v], clip_norm=0.5, sam_radius=q, epsilon=e)
            for e, v in ((2.0, 0.5), (8.0, 0.7)) for q in (0.0, 0.1)]  # fmt: skip
    stored.draw_heat(ax, table(*both), epsilon=8.0)
    assert ax.images[0].get_array().tolist() == [[pytest.approx(70.0)] * 2]
    with pytest.raises(ValueError, match="^table: got .*epsilon"):
        stored.draw_heat(ax, table(*both))


def test_text_in_a_cell_stands_out(ax):
    stored.draw_heat(ax, GRID, gain=True)
    image = ax.images[0]
    for text in ax.texts:
        red, green, blue, _ = image.cmap(image.norm(image.get_array()[tuple(map(round, text.get_position()[::-1]))]))
        light = 0.299 * red + 0.587 * green + 0.114 * blue
        assert abs(light - (0.0 if text.get_color() == "black" else 1.0)) >= 0.5


def test_ablation(ax):
    rows = [
        cell(m, [v, v + 0.02], sam_radius=q) for m, v in (("dp2-fedsam", 0.9), ("dp-fedsam", 0.6)) for q in (1.0, 0.05)
    ]
    rows[0]["runs"][1]["metrics"]["accuracy"] = None  # diverged at q = 1
    sentence = stored.draw_ablation(ax, table(*rows), "sam_radius")
    assert sentence.endswith(
        "dp2-fedsam best at 0.05 with 91.0, 91.0 at 0.05; dp-fedsam best at 0.05 with 61.0, 61.0 at 1."
    )
    first, second = (c[0] for c in ax.containers)
    assert first.get_xdata().tolist() == [0.05] and second.get_xdata().tolist() == [0.05, 1.0]
    assert ax.get_xscale() == "log" and ax.get_xlabel() == "SAM radius $q$" and len(looks([first, second])) == 2
    interval = mean_interval([60.0, 62.0])
    assert ax.containers[1][2][0].get_segments()[0][:, 1] == pytest.approx([interval.low, interval.high])
    linear = Figure().subplots()
    stored.draw_ablation(
        linear, table(cell("centaur", [0.5], body_epochs=1), cell("centaur", [0.6], body_epochs=2)), "body_epochs"
    )
    assert linear.get_xscale() == "linear"


def test_a_real_comparison_is_understood(ax):
    """The format is the one that compare() writes and JSON keeps."""
    changes = {"rounds": 2, "noise_multiplier": 3.0, "epsilon": 0.0, "clients": 20}
    result = compare(
        PAPER, ["dp2-fedsam", "fedavg"], "digits", "quick", changes, seeds=2, vary={"sam_radius": [0.0, 0.1]}
    )
    result = json.loads(json.dumps(result))
    assert "dp2-fedsam best at" in stored.draw_ablation(ax, result, "sam_radius")
    one = {**result, "cells": [{**c, "varied": {}} for c in result["cells"] if c["varied"]["sam_radius"] == 0.1]}
    (private, epsilon), (plain, none) = stored.by_budget(one)
    assert (private, plain, none) == ("dp2-fedsam", "fedavg", None) and 0 < epsilon < 3
    assert "20 clients of 2 classes; 2 rounds" in tables.table_beside_paper(one)


# --- nonsense

"""Chapter 3's stored comparisons: read from a small one that is really run, drawn, and told as text."""

import json
import math
import re

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from fedbook.data.root import folders
from fedbook.experiment import compare, plan
from fedbook.lab import chapter03_stored as stored
from fedbook.lab import results
from fedbook.papers.prirfed import METHODS, PAPER, problem_of
from fedbook.papers.prirfed.local_call import call_epsilon, rsgd_parts

CHANGES = {"rounds": 4, "agents": 6, "evaluate_every": 1}
VARY = {"epsilon_call": [0.5, 4.0], "sigma_rule": ["calibrated", "paper"]}


@pytest.fixture(scope="module")
def table():
    """Three methods, three seeds; as JSON keeps it."""
    made = compare(
        PAPER, ["dp-rsgd", "central-dp-rsgd", "rfedavg"], "pca-digits", "standard", CHANGES, 3, VARY, device="cpu"
    )
    return json.loads(json.dumps(made))


@pytest.fixture(scope="module")
def floors():
    """Enough rounds to rest at the noise floor."""
    changes = {"rounds": 120, "agents_per_round": 0, "lr": 0.4, "local_steps": 2, "epsilon_call": 1.0}
    made = compare(
        PAPER, ["dp-rsgd"], "pca-directional", "standard", changes, 6, {"epsilon_call": [0.5, 2.0]}, device="cpu"
    )
    return json.loads(json.dumps(made))


def cell(table, method, **varied):
    (found,) = [c for c in table["cells"] if c["method"] == method and varied.items() <= c["varied"].items()]
    return found


# --- cells


def test_rows_at_the_last_round(table):
    rows = stored.last_rows(table, method="dp-rsgd")
    assert [r.varied for r in rows] == [
        {"epsilon_call": e, "sigma_rule": s} for e in (0.5, 4.0) for s in VARY["sigma_rule"]
    ]
    for row in rows:
        runs = cell(table, "dp-rsgd", **row.varied)["runs"]
        assert row.values.tolist() == [run["metrics"]["excess_risk"] for run in runs]
        assert row.epsilon == max(run["epsilon"] for run in runs) and row.delta == 1e-4
    assert rows[0].epsilon_call == pytest.approx(0.5) and rows[1].epsilon_call > 0.5
    records = 1797 // 6
    sigma = math.sqrt(3 * math.log(1e4)) / (records * 0.5)  # the published rule with tau = 1, o = 1
    expected = call_epsilon(rsgd_parts(sigma, records, records, 1.0, 3), 1e-4)
    assert rows[1].epsilon_call == pytest.approx(expected, rel=1e-6)
    (plain, *_) = stored.last_rows(table, "grad_norm", method="rfedavg")
    assert plain.varied == {} and plain.epsilon_call is plain.epsilon is None
    assert (
        plain.values[1]
        == cell(table, "rfedavg", epsilon_call=0.5, sigma_rule="paper")["runs"][1]["metrics"]["grad_norm"]
    )


def test_what_a_run_spent_is_the_most_of_its_seeds(table):
    runs = cell(table, "dp-rsgd", epsilon_call=0.5, sigma_rule="paper")["runs"]
    for spent, shown in (([3.0, 7.0, 5.0], 7.0), ([3.0, None, 5.0], None)):  # None: no bound in one of them
        one = {"method": "dp-rsgd", "varied": {}, "tuned": {}}
        one["runs"] = [run | {"epsilon": e} for run, e in zip(runs, spent, strict=True)]
        (row,) = stored.last_rows({**table, "cells": [one]})
        assert row.epsilon == shown
        assert ("no bound" in stored.last_table({**table, "cells": [one]})) == (shown is None)


def test_table_as_text(table):
    head, names, *lines = stored.last_table(table).splitlines()
    assert "pca-digits, 4 rounds, 1 agents a round" in head and "3 seeds" in head
    assert names.split()[:4] == ["method", "epsilon_call", "sigma_rule", "excess_risk"]
    assert len(lines) == 9 and sum("rfedavg" in line for line in lines) == 1  # the noise is nothing to it
    row = next(line for line in lines if re.match(r"dp-rsgd +4 +paper", line))
    values = torch.tensor(
        [r["metrics"]["excess_risk"] for r in cell(table, "dp-rsgd", epsilon_call=4.0, sigma_rule="paper")["runs"]]
    )
    assert f"{float(values.mean()):.3g} ± {float(values.std()):.2g}" in row and row.endswith("0.0001")
    assert next(line for line in lines if "rfedavg" in line).split()[-3:] == ["-", "-", "-"]
    few = stored.last_table(table, metric="grad_norm", method=("dp-rsgd", "rfedavg"), epsilon_call=0.5)
    assert len(few.splitlines()) == 5 and "grad_norm" in few
    assert len(stored.last_table(table, table).splitlines()) == 11  # the same cell comes once


def test_curves(table):
    found = stored.curves_of(table, epsilon_call=4.0)
    assert list(found) == ["dp-rsgd, calibrated σ", "central-dp-rsgd, calibrated σ", "dp-rsgd, published σ",
                           "central-dp-rsgd, published σ", "rfedavg"]  # fmt: skip
    t, values = found["central-dp-rsgd, published σ"]
    kept = cell(table, "central-dp-rsgd", epsilon_call=4.0, sigma_rule="paper")["curve"]
    assert t.tolist() == [1, 2, 3, 4] and values.tolist() == kept["excess_risk"]
    assert list(stored.curves_of(table, method="dp-rsgd", sigma_rule="paper")) == ["ε = 0.5", "ε = 4"]
    assert list(stored.curves_of(table, method="rfedavg")) == ["rfedavg"]
    assert list(stored.curves_of(table, method="dp-rsgd", sigma_rule="paper", epsilon_call=4.0)) == ["dp-rsgd"]


def test_true_value_is_the_leading_eigenvalue(table):
    z = problem_of("pca-digits", table["settings"], (0,), "cpu").samples["z"]
    best = -float(torch.linalg.svdvals(z)[0] ** 2 / len(z))
    assert stored.true_value(table) == pytest.approx(best, abs=1e-9)
    (_, cost), (_, excess) = (
        next(iter(stored.curves_of(table, m, method="rfedavg").values())) for m in ("cost", "excess_risk")
    )
    assert torch.allclose(cost, excess + best, atol=1e-9)
    last = [run["metrics"]["cost"] for run in cell(table, "rfedavg", epsilon_call=0.5, sigma_rule="paper")["runs"]]
    assert cost[:, -1].tolist() == pytest.approx(last, abs=1e-5)


def test_floors_rest_where_they_are_predicted(floors):
    """Measured over the last half, within 15 %; the predicted ratio is that of the sigmas squared."""
    x, values = stored.floor_of(floors, "epsilon_call", tail=0.5)
    assert x.tolist() == [0.5, 2.0] and values.shape == (2, 6)
    row = cell(floors, "dp-rsgd", epsilon_call=2.0)["curve"]["excess_risk"][3]
    assert float(values[1, 3]) == pytest.approx(sum(row[-len(row) // 2 :]) / len(row[-len(row) // 2 :]))
    for epsilon, seeds in zip(x.tolist(), values, strict=True):
        chosen = plan(
            PAPER,
            "dp-rsgd",
            "pca-directional",
            "standard",
            floors["settings"] | {"epsilon_call": epsilon},
            device="cpu",
        )
        problem = problem_of("pca-directional", floors["settings"], (0,), "cpu")
        sigma = chosen.rounds().algorithm.sigma(500)
        floor = stored.eigenvector_floor(problem, 0.4, sigma, 8)
        values_ = np.linalg.eigvalsh((problem.samples["z"].T @ problem.samples["z"]).numpy() / 4000)
        by_hand = 0.2 * sigma**2 / 8 * sum(1 / (2 - 0.8 * (values_[-1] - v)) for v in values_[:-1])
        assert floor == pytest.approx(by_hand) and float(seeds.mean()) == pytest.approx(floor, rel=0.15)


def test_records_of_an_agent(table, floors):
    x, _ = stored.floor_of(table, "records", method="dp-rsgd", epsilon_call=4.0, sigma_rule="paper")
    assert x.tolist() == [1797 / 6]
    x, values = stored.floor_of(floors, "records", tail=1.0, epsilon_call=0.5)
    assert x.tolist() == [500.0] and values.shape == (1, 6)
    with pytest.raises(ValueError, match="^fixed: .*leave one cell"):
        stored.floor_of(floors, "records")


def test_stored_risks_are_possible():
    """No point of the sphere is better than the leading eigenvector: a smaller risk comes from off the sphere."""
    for path in sorted(p for folder in folders(None) for p in (folder / "results").glob("03_*.json")):
        table = json.loads(path.read_text())
        if table.get("problem", "").startswith("pca") and table.get("cells"):
            lowest = min(float(values.nan_to_num(0).min()) for _, values in stored.curves_of(table).values())
            assert lowest > -1e-9, path.name


@pytest.mark.parametrize("name", ["03_figure1a", "03_figure3", "03_figure5"])
def test_stored_tables_are_drawn(name):
    try:
        table = results.stored(name)
    except FileNotFoundError:
        pytest.skip(f"{name} is not there")
    found = stored.curves_of(table, sigma_rule="calibrated")
    assert any(METHODS[m].private for m in METHODS for label in found if m in label)
    sentence = stored.draw_runs(ax := Figure().subplots(), found)
    assert all(label in sentence for label in found) and len(ax.get_legend().get_texts()) == len(found)
    text = stored.last_table(table)
    assert len(text.splitlines()) == 2 + len({(c["method"], str(c["varied"])) for c in table["cells"]})


# --- figures


def curves(*, lost=False):
    t = torch.tensor([1, 5, 10])
    first = torch.tensor([[0.5, 0.1, 0.02], [0.7, 0.3, 0.04]], dtype=torch.float64)
    second = torch.tensor([[0.6, 0.5, math.nan if lost else 0.4], [0.6, 0.5, 0.5]], dtype=torch.float64)
    return {"a": (t, first), "b": (t, second)}


def test_runs(ax):
    sentence = stored.draw_runs(ax, curves())
    assert sentence == (
        "Mean excess risk at the last round (lowest to highest seed): a 0.03 (0.02 to 0.04); b 0.45 (0.4 to 0.5)."
    )
    assert ax.lines[0].get_ydata() == pytest.approx([0.6, 0.2, 0.03]) and ax.get_yscale() == "log"
    edges = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert edges.min() == pytest.approx(0.02) and edges.max() == pytest.approx(0.7)
    shapes = {(to_hex(line.get_color()), line.get_marker(), line.get_linestyle()) for line in ax.lines}
    assert len(shapes) == 2 and [t.get_text() for t in ax.get_legend().get_texts()] == ["a", "b"]


def test_runs_that_diverged(ax):
    sentence = stored.draw_runs(ax, curves(lost=True), "grad_norm")
    assert "gradient norm" in sentence and "b 0.5, 1 of 2 diverged" in sentence
    none = {"c": (torch.tensor([1]), torch.tensor([[math.nan]], dtype=torch.float64)), **curves()}
    assert "c diverged; a 0.03" in stored.draw_runs(Figure().subplots(), none)
    with pytest.raises(ValueError, match="^curves: "):
        stored.draw_runs(Figure().subplots(), {"c": none["c"]})


def test_cost_with_its_true_value(ax, table):
    best = stored.true_value(table)
    sentence = stored.draw_runs(ax, stored.curves_of(table, "cost", epsilon_call=4.0), "cost", best)
    assert ax.get_yscale() == "linear" and f"true value {best:.4g}" in sentence
    line = next(line for line in ax.lines if line.get_label() == "true value")
    assert list(line.get_ydata()) == [best, best] and line.get_linestyle() == ":"


def test_floor_figure(ax):
    x = torch.tensor([0.5, 2.0], dtype=torch.float64)
    values = torch.tensor([[4e-3, 6e-3], [1e-4, 3e-4]], dtype=torch.float64)
    sentence = stored.draw_floor(ax, {"dp-rsgd": (x, values)}, {"predicted": (x, [5.5e-3, 2.2e-4])})
    assert sentence == (
        "Mean excess risk at the end over 2 seeds: dp-rsgd 0.005 at 0.5, 0.0002 at 2; predicted 0.0055, 0.00022 at the "
        "ends."
    )
    dots, means, line = ax.lines
    assert dots.get_xdata().tolist() == [0.5, 0.5, 2.0, 2.0] and dots.get_ydata().tolist() == [4e-3, 6e-3, 1e-4, 3e-4]
    assert means.get_ydata() == pytest.approx([5e-3, 2e-4]) and means.get_linestyle() == "None"
    assert line.get_marker() in ("", "None") and ax.get_xscale() == ax.get_yscale() == "log"
    stored.draw_floor(other := Figure().subplots(), {"a": (x, values)}, {}, "agents")
    assert other.get_xlabel() == "agents $N$"


def test_mean_text():
    nan = math.nan
    assert stored.mean_text(torch.tensor([0.1, 0.3])) == "0.2 ± 0.14" and stored.mean_text(torch.tensor([2.0])) == "2"
    assert stored.mean_text(torch.tensor([1.0, nan])) == "1 (1 diverged)"
    assert stored.mean_text(torch.tensor([nan, nan])) == "diverged"


# --- nonsense


def test_floor_needs_sane_numbers(floors):
    problem = problem_of("pca-directional", floors["settings"], (0,), "cpu")
    for arguments, name in (((0.0, 0.1, 1), "lr"), ((0.1, -1.0, 1), "sigma"), ((0.1, 0.1, 0), "per_round")):
        with pytest.raises((TypeError, ValueError), match=rf"^{name}"):
            stored.eigenvector_floor(problem, *arguments)

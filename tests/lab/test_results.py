"""Stored comparisons as frames and tables: every number by hand from the cells."""

import math
import statistics

import pandas as pd
import pytest

from fedbook.intervals import paired_difference
from fedbook.lab import results


def run(seed, accuracy, **more):
    cost = {"rounds": 2, "seconds": 1.5, "bytes_up": 8, "bytes_down": 16, "epsilon": None, "delta": None}
    return cost | {"seed": seed, "metrics": {"accuracy": accuracy, "by_kind": {"a": seed, "b": None}}} | more


def cell(method, values, varied=None, tuned=None):
    curve = {"round": [0, 10, 20], "accuracy": [[0.0, None, v] for v in values], "bytes": [[0, 5, 9]] * len(values)}
    return {"method": method, "varied": varied or {}, "tuned": tuned or {}, "curve": curve,
            "runs": [run(seed, value) for seed, value in enumerate(values)]}  # fmt: skip


TABLE = {
    "paper": "fedavg", "problem": "digits", "metric": "accuracy", "settings": {"lr": 0.1, "mu": 0.0, "rounds": 20},
    "cells": [
        cell("fedavg", [0.8, 0.7, 0.9], tuned={"lr": 0.3}),
        cell("fedprox", [0.9, 0.75, 0.95], {"mu": 1.0}),
        cell("fedprox", [0.5, None, 0.7], {"mu": 10.0}, {"lr": 0.01}),
    ],
}  # fmt: skip


def test_stored_results_are_found_or_missed_clearly():
    assert results.stored("00_fedavg_minibatch")["paper"] == "fedavg"
    with pytest.raises(FileNotFoundError, match="nothing_here"):
        results.stored("nothing_here")
    with pytest.raises(TypeError, match="name"):
        results.stored("../secrets")


def test_a_frame_has_a_row_a_cell_and_seed():
    data = results.frame(TABLE)
    assert list(data.method) == ["fedavg"] * 3 + ["fedprox"] * 6 and list(data.seed) == [0, 1, 2] * 3
    assert list(data.mu) == [0.0] * 3 + [1.0] * 3 + [10.0] * 3  # what a cell does not vary is the setting of all
    assert list(data.tuned_lr)[0] == 0.3 and math.isnan(data.tuned_lr[3]) and data.tuned_lr[8] == 0.01
    assert math.isnan(data.accuracy[7]) and list(data["by_kind.a"]) == [0, 1, 2] * 3 and data.bytes_down[4] == 16
    assert data.epsilon_spent.isna().all()
    assert list(results.frame(TABLE, mu=10.0).accuracy.dropna()) == [0.5, 0.7]
    with pytest.raises(ValueError, match="fixed: got"):
        results.frame(TABLE, mu=3.0)


def test_a_table_shows_mean_and_deviation_and_goes_to_files():
    shown = results.table(results.frame(TABLE), ["accuracy"], digits=2)
    values = (0.9, 0.75, 0.95)
    expected = f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"
    assert list(shown.accuracy) == ["0.80 ± 0.10", expected, "0.60 ± 0.14 (1 without)"]
    assert "fedprox,1.0," + expected in shown.to_csv() and expected in shown.to_latex()
    by_method = results.table(results.frame(TABLE, mu=1.0), ["accuracy"], by=["method"])
    assert list(by_method.index) == ["fedprox"]
    with pytest.raises(ValueError, match="column: got 'loss'"):
        results.table(results.frame(TABLE), ["loss"])


def test_differences_are_paired_by_seed():
    data = pd.concat([results.frame(TABLE, method="fedavg"), results.frame(TABLE, mu=1.0)])
    data = data.sample(frac=1, random_state=1)
    row = results.differences(data, "accuracy", "fedavg").loc["fedprox"]
    known = paired_difference([0.9, 0.75, 0.95], [0.8, 0.7, 0.9])
    assert list(row) == pytest.approx([known.mean, known.low, known.high, 3])
    lost = pd.concat([results.frame(TABLE, method="fedavg"), results.frame(TABLE, mu=10.0)])
    assert results.differences(lost, "accuracy", "fedavg").empty  # one run diverged
    with pytest.raises(ValueError, match="base: got 10.0; allowed is one all of whose runs have a number"):
        both = pd.concat([results.frame(TABLE, mu=1.0), results.frame(TABLE, mu=10.0)])
        results.differences(both, "accuracy", 10.0, by="mu")
    with pytest.raises(ValueError, match="base: got"):
        results.differences(data, "accuracy", "scaffold")
    with pytest.raises(ValueError, match="data: got"):
        results.differences(results.frame(TABLE), "accuracy", "fedavg")  # two cells of fedprox


def test_differences_take_the_seeds_that_both_have():
    fewer = results.frame(TABLE, mu=1.0)
    data = pd.concat([results.frame(TABLE, method="fedavg"), fewer[fewer["seed"] < 2]])
    for base, other, sign in (("fedavg", "fedprox", 1), ("fedprox", "fedavg", -1)):
        row = results.differences(data, "accuracy", base).loc[other]
        assert row["seeds"] == 2 and row["mean"] == pytest.approx(sign * 0.075)
    apart = pd.concat([data[data["method"] == "fedavg"], fewer.assign(seed=[7, 8, 9])])
    assert results.differences(apart, "accuracy", "fedavg").empty


def test_a_setting_that_varies_keeps_its_name_beside_what_came_out():
    table = TABLE | {"cells": [cell("fedavg", [0.8, 0.7], {"rounds": rounds}) for rounds in (20, 40)]}
    data = results.frame(table)
    assert list(data["rounds"]) == [20, 20, 40, 40] and set(data["rounds_measured"]) == {2}
    assert len(results.table(data, ["accuracy"])) == 2


def test_where_one_table_varies_what_another_tuned_each_row_has_what_ran():
    tuned = cell("fedprox", [0.8], {}) | {"tuned": {"lr": 0.9}}
    data = results.frame(TABLE | {"cells": [cell("fedavg", [0.8], {"lr": 0.5}), tuned]})
    assert list(data["lr"]) == [0.5, 0.9]
    with pytest.raises(ValueError, match="^fixed: got"):
        results.cells(TABLE, nowhere=1)


def test_an_infinite_setting_is_a_number_again():
    table = TABLE | {"settings": TABLE["settings"] | {"clip": "inf"}, "cells": [cell("fedavg", [0.8], {"clip": "inf"})]}
    assert math.isinf(results.frame(table, clip=math.inf)["clip"].item())


def test_a_run_that_was_never_judged_has_no_number():
    table = TABLE | {"cells": [TABLE["cells"][0] | {"runs": [run(0, 0.1) | {"metrics": {}}]}]}
    assert list(results.table(results.frame(table), ["accuracy"])["accuracy"]) == ["no number"]


def test_what_a_run_that_diverged_last_showed_does_not_count():
    runs = [run(0, 0.1, ended="diverged"), run(1, 0.8, ended="done")]
    table = TABLE | {"cells": [TABLE["cells"][0] | {"runs": runs}]}
    assert results.frame(table)["accuracy"].isna().tolist() == [True, False]
    assert results.scores(table["cells"][0], "accuracy").isnan().tolist() == [True, False]


def test_the_best_so_far_is_interpolated():
    assert results.rounds_to_reach(TABLE["cells"][0], 0.4) == pytest.approx([15.0, 10 + 4 / 0.7, 10 + 4 / 0.9])
    assert results.reached([0, 10, 20], [0.0, 0.5, 0.4], 0.25) == 5.0
    assert results.reached([0, 10, 20], [0.6, 0.5, 0.4], 0.25) == 0.0
    assert results.reached([0, 10, 20], [0.0, math.nan, 0.5], 0.25) == pytest.approx(15.0)
    assert results.reached([0, 10, 20], [math.nan, 0.5, 0.4], 0.25) == 10.0
    assert results.reached([0, 10], [0.0, 0.5], 0.6) is None

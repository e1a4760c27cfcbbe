"""Stored comparisons: a cell run again gives its stored numbers."""

import pytest

from fedbook.data import DataNotFound
from fedbook.experiment import execute, plan
from fedbook.lab.results import cells, curve, settings_of, stored
from fedbook.papers import paper


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method", "varied", "apart"),
    [
        ("00_fedavg_methods", "fedsgd", {"partition": "classes"}, 0.005),
        ("01_digits", "fedsc", {}, 0.005),
        ("01_cifar10_all", "random-encoder", {}, 0.01),
        ("02_cifar10_all", "raw-pixels", {}, 0.002),
        ("02_mixture", "hetero-ssfl", {"architectures": "mlp"}, 0.04),
        ("03_figure3", "rfedavg", {"agents": 50}, 0.005),
        ("03_figure4_cifar10", "dp-rsgd", {"agents": 50, "sigma_rule": "paper"}, 0.05),
        ("04_digits", "dp-fedavg", {"epsilon": 1.0}, 0.005),
        ("05_local_steps", "c-vfl", {"local_steps": 1}, 0.005),
        ("06_labels", "fedrep", {}, 0.005),
        ("06_unlabelled", "fedsc", {}, 0.02),
    ],
)
def test_a_stored_cell_run_again(name, method, varied, apart):
    """For its first seed, within what other processors round; photographs where they are at hand."""
    table = stored(name)
    cell = next(c for c in table["cells"] if c["method"] == method and varied.items() <= c["varied"].items())
    changes = settings_of(table, cell)
    run, metric = cell["runs"][0], table["metric"]
    again = plan(paper(table["paper"]), method, table["problem"], table["profile"], changes, (run["seed"],), "cpu")
    try:
        rounds, _ = execute(again.rounds())
    except DataNotFound as missing:
        pytest.skip(str(missing))
    assert float(rounds.history.values(metric)[1][0, -1]) == pytest.approx(run["metrics"][metric], abs=apart)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method", "varied", "first"),
    [
        ("01_cifar10", "fedca", {}, 2),
        ("02_cifar10", "fedsimsiam", {}, 5),
        ("04_cifar10", "frozen-body", {}, 40),
        ("05_cifar10", "c-vfl", {"compressor": "hex", "bits": 2}, 20),
        ("05_cifar10_alone", "central", {"only_party": 4}, 20),
    ],
)
def test_photographs_again_to_the_first_judged_round(name, method, varied, first):
    """All seeds side by side as they were stored, as far as ``first`` of many rounds; where the data is at hand."""
    table = stored(name)
    [(_, cell)] = cells(table, method=method, **varied)
    judged, values = curve(cell, table["metric"])
    assert judged[0] == first
    changes = settings_of(table, cell)
    seeds = tuple(run["seed"] for run in cell["runs"])
    try:
        rounds = plan(paper(table["paper"]), method, table["problem"], table["profile"], changes, seeds, "cpu").rounds()
    except DataNotFound as missing:
        pytest.skip(str(missing))
    for _ in range(first):
        rounds.step()
    now = rounds.history.values(table["metric"])[1][:, -1]
    assert now.tolist() == pytest.approx(values[:, 0].tolist(), abs=0.01)

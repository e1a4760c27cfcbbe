"""Stored comparisons: what chapters print of them is on their pages, and a cell run again gives its stored numbers."""

import json
from functools import cache

import pytest
from matplotlib.figure import Figure

from fedbook.book.contents import notebooks_folder, select
from fedbook.experiment import execute, plan
from fedbook.lab import chapter02_pairs, chapter02_paper
from fedbook.lab import chapter02_stored as two
from fedbook.lab import chapter03_stored as three
from fedbook.lab.results import stored
from fedbook.papers import paper


def axes(count):
    return Figure().subplots(1, count)


def curves_of_figure_2():
    table, curves = stored("03_figure2"), {}
    for method, fixed in (("dp-rsgd", {"sigma_rule": "paper"}), ("rfedavg", {})):
        curves |= three.curves_of(table, agents=50, method=method, **fixed)
    return table, curves


CASES = [
    (2, lambda: two.methods_table(stored("02_digits"))),
    (2, lambda: two.differences_table(stored("02_digits"))),
    (2, lambda: two.draw_methods(axes(3), stored("02_digits"))),
    (2, lambda: two.draw_rounds(axes(4), stored("02_digits"))),
    (2, lambda: two.draw_mu(axes(3), stored("02_mu"))),
    (2, lambda: two.draw_alignment_set(axes(2), stored("02_alignment"))),
    (2, lambda: two.draw_sent(axes(1), stored("02_digits"))),
    (2, lambda: two.disjoint_and_iid_table(stored("02_digits"), stored("02_iid"))),
    (2, lambda: two.clients_table(stored("02_clients"))),
    (2, lambda: two.tuning_table(stored("02_heads"), projector="mlp")),
    (2, lambda: chapter02_pairs.draw_variants(axes(2), stored("02_digits"), stored("02_variants"))),
    (2, lambda: chapter02_pairs.draw_mixture(axes(1), stored("02_mixture"), stored("02_digits"))),
    (2, lambda: chapter02_pairs.mixture_table(stored("02_mixture"), stored("02_digits"),
                                              architectures="cnn_s,cnn_m,mlp")),
    (2, lambda: chapter02_pairs.draw_heads(axes(2), stored("02_heads"))),
    (2, lambda: chapter02_pairs.draw_own_classes(axes(1), stored("02_digits"))),
    (2, chapter02_paper.published_table),
    (2, chapter02_paper.gap_table),
    (2, chapter02_paper.byte_table),
    (3, lambda: three.last_table(stored("03_figure3"))),
    (3, lambda: three.last_table(stored("03_figure5"), metric="error")),
]  # fmt: skip


REMADE = {"04_digits"}  # tables made with the default noise key; the others are older


@cache
def printed(number):
    """All that the committed notebooks of a chapter printed."""
    files = [notebooks_folder() / one.file for one in select(number)]
    books = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    outputs = (output for book in books for cell in book["cells"] for output in cell.get("outputs", []))
    return "".join("".join(output.get("text", [])) for output in outputs)


@pytest.mark.parametrize(("number", "call"), CASES)
def test_what_is_told_of_stored_results_is_on_the_page(number, call):
    assert call() in printed(number)


def test_a_figure_of_curves_says_their_ends():
    table, curves = curves_of_figure_2()
    sentence = three.draw_runs(axes(1), curves)
    for label, cell in zip(curves, (c for c in table["cells"] if c["varied"]["agents"] == 50), strict=False):
        assert label in sentence and len(curves[label][1]) == len(cell["runs"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method", "varied", "apart"),
    [
        ("00_fedavg_methods", "fedsgd", {"partition": "classes"}, 0.005),
        ("01_digits", "fedsc", {}, 0.005),
        ("02_mixture", "hetero-ssfl", {"architectures": "mlp"}, 0.04),
        ("03_figure3", "rfedavg", {"agents": 50}, 0.005),
        ("04_digits", "dp-fedavg", {"epsilon": 1.0}, 0.005),
        ("05_local_steps", "c-vfl", {"local_steps": 1}, 0.005),
    ],
)
def test_a_stored_cell_run_again(name, method, varied, apart):
    """For its first seed, within what other processors round."""
    table = stored(name)
    cell = next(c for c in table["cells"] if c["method"] == method and varied.items() <= c["varied"].items())
    changes = table["settings"] | cell.get("settings", {}) | cell["tuned"] | cell["varied"]
    run, metric = cell["runs"][0], table["metric"]
    again = plan(paper(table["paper"]), method, table["problem"], table["profile"], changes, (run["seed"],), "cpu")
    noise_key = {} if name in REMADE else {"noise_key": "seed"}  # as the table was made
    rounds, _ = execute(again.rounds(**noise_key))
    assert float(rounds.history.values(metric)[1][0, -1]) == pytest.approx(run["metrics"][metric], abs=apart)

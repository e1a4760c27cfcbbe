"""Chapter 2's text tables: hand-made cells, and the paper's numbers beside ours."""

import re

import pytest

from fedbook.lab import chapter02_tables as tables
from fedbook.papers.hetero_ssfl import PAPER

SETTINGS = PAPER.defaults() | dict(PAPER.profiles["quick"]) | {"rounds": 10}


def cell(method, few, *, up=55_000, architectures=None, lr=None, tried=(), **varied):
    """Seeds' probe_few; kNN is 0.1 above, CKA a quarter; a client's upload is 1,000 bytes (55 messages)."""
    runs = [
        {"seed": i, "rounds": 10, "bytes_up": up, "bytes_down": up,
         "metrics": {"probe_few": v, "knn": v + 0.1, "alignment_test": v / 4, "random_probe_few": 0.5,
                     "probe_few_by_architecture": architectures or {"mlp": v}}}
        for i, v in enumerate(few)
    ]  # fmt: skip
    return {"method": method, "varied": varied, "tuned": {} if lr is None else {"lr": lr}, "tried": list(tried),
            "curve": {"round": [10]}, "runs": runs}  # fmt: skip


def table(*cells):
    return {"problem": "digits", "profile": "quick", "cells": list(cells), "settings": SETTINGS}


TRIED = [{"settings": {"lr": lr}, "mean": mean} for lr, mean in ((0.1, 0.6), (0.3, 0.7), (1.0, None))]
OWN = cell("hetero-ssfl", [0.7, 0.8, 0.9], lr=0.3, tried=TRIED)
LOCAL = cell("local-ssl", [0.6, 0.75, 0.75], up=0, lr=0.1, tried=TRIED)
BYOL = cell("fedbyol", [0.7, 0.7, 0.7], up=500_000)
RANDOM = cell("random-encoder", [0.5, 0.5, 0.5], up=0, lr=0.1, tried=TRIED)
MADE = table(OWN, LOCAL, BYOL, RANDOM)


def row(text, first):
    return " ".join(next(line for line in text.splitlines() if line.startswith(first)).split())


def test_methods_table():
    text = tables.methods_table(MADE)
    assert (
        row(text, "Hetero-SSFL")
        == "Hetero-SSFL 80.0 ± 10.0 90.0 ± 10.0 - - 0.200 ± 0.025 - - 50.0 ± 0.0 0.3 1,000 0.11"
    )
    assert row(text, "local SSL").endswith("50.0 ± 0.0 0.1 - -") and row(text, "random").endswith("50.0 ± 0.0 - - -")
    assert row(text, "FedBYOL").endswith("- - - - - 50.0 ± 0.0 - 10,000 1.00")  # CKA of one model is no number
    assert "5 clients, all in a round, 10 rounds of 3 epochs, 3 seeds" in text


def test_differences_and_variants():
    text = tables.differences_table(MADE)
    assert row(text, "Hetero-SSFL") == "Hetero-SSFL +10.00 [-2.42, +22.42] +10.00 [-2.42, +22.42]"
    printed = cell("hetero-ssfl", [0.5, 0.6, 0.71], proximal="paper")
    text = tables.variants_table(table(printed, cell("hetero-ssfl", [0.7, 0.8, 0.9], alignment_batch=0)), MADE)
    assert row(text, "+ CKA, the printed sign").startswith("+ CKA, the printed sign -19.67 [-21.10, -18.23]*")
    assert row(text, "all L images a step").startswith("all L images a step +0.00 [+0.00, +0.00]") and "$" not in text


def test_tuning_leaves_out_controls():
    text = tables.tuning_table(MADE)
    assert "0.1: 0.600; 0.3: 0.700; 1: diverged" in row(text, "Hetero-SSFL") and "lr: least" in row(text, "local SSL")
    assert "random" not in text
    with pytest.raises(ValueError, match="^table.*tuned"):
        tables.tuning_table(table(BYOL, RANDOM))


def test_paper_beside_ours():
    text = tables.disjoint_and_iid_table(MADE, table(OWN, BYOL, cell("alignment-pass-only", [0.1, 0.3])))
    assert row(text, "Hetero-SSFL") == (
        "Hetero-SSFL 90.29 ± 0.30 (1) 88.50 ± 1.30 (1) 80.00 ± 10.00 (1) 80.00 ± 10.00 (1)"
    )
    assert row(text, "pass only") == "pass only 20.00 ± 14.14" and "local SSL" in text
    assert len({len(line.split(" ± ")[0]) for line in text.splitlines() if re.match("FedU|FedEMA", line)}) == 1
    assert text.endswith("ours: probe, 5 labels a class; ± deviation over seeds")
    assert "ours: KNN accuracy" in tables.disjoint_and_iid_table(MADE, MADE, "CIFAR-100", "knn")


def test_clients_beside_table_3():
    text = tables.clients_table(
        table(*(cell("hetero-ssfl", [v, v], clients=k, cohort=5) for k, v in ((20, 0.6), (5, 0.7))))
    )
    assert row(text, "Hetero-SSFL").endswith("43.30 ± 1.90 (1) 70.00 ± 0.00 (1) 60.00 ± 0.00 (1)")
    assert re.search(r"ours, 5 +ours, 20$", text.splitlines()[0])


def test_mixture_beside_table_4():
    cells = [cell(m, [0.5, 0.5], architectures={"mlp": v, "cnn_s": v + 0.1})
             for m, v in (("local-ssl", 0.6), ("hetero-ssfl", 0.7))]  # fmt: skip
    made = table(*(c | {"varied": {"architectures": "mlp,cnn_s"}} for c in cells))
    text = tables.mixture_table(made, architectures="mlp,cnn_s")
    assert row(text, "ours, cnn_s") == "ours, cnn_s 70.0 80.0 +10.0 -"
    assert row(text, "paper, resnet18") == "paper, resnet18 71.9 85.4 +13.5 -"
    for one in made["cells"]:
        for run in one["runs"]:
            run["metrics"]["random_probe_few_by_architecture"] = {"mlp": 0.3, "cnn_s": 0.45}
    assert row(tables.mixture_table(made, architectures="mlp,cnn_s"), "ours, cnn_s").endswith("+10.0 45.0")
    with pytest.raises(ValueError, match="^architectures: got"):
        tables.mixture_table(made, architectures="vgg")
    with pytest.raises(ValueError, match="^together: got"):
        tables.mixture_table({**made, "cells": made["cells"][:1]}, architectures="mlp,cnn_s")

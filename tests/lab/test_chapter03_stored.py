"""Chapter 3's stored comparisons: read from a small one that is really run, drawn, and told as text."""

import json

import pytest
import torch

from fedbook.data.root import folders
from fedbook.experiment import compare
from fedbook.lab import chapter03_stored as stored
from fedbook.papers.prirfed import PAPER, problem_of

CHANGES = {"rounds": 4, "agents": 6, "evaluate_every": 1}
VARY = {"epsilon_call": [0.5, 4.0], "sigma_rule": ["calibrated", "paper"]}


@pytest.fixture(scope="module")
def table():
    """Three methods, three seeds; as JSON keeps it."""
    made = compare(
        PAPER, ["dp-rsgd", "central-dp-rsgd", "rfedavg"], "pca-digits", "standard", CHANGES, 3, VARY, device="cpu"
    )
    return json.loads(json.dumps(made))


def cell(table, method, **varied):
    (found,) = [c for c in table["cells"] if c["method"] == method and varied.items() <= c["varied"].items()]
    return found


# --- cells


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


def test_stored_risks_are_possible():
    """No point of the sphere is better than the leading eigenvector: a smaller risk comes from off the sphere."""
    for path in sorted(p for folder in folders(None) for p in (folder / "results").glob("03_*.json")):
        table = json.loads(path.read_text())
        if table.get("problem", "").startswith("pca") and table.get("cells"):
            lowest = min(float(values.nan_to_num(0).min()) for _, values in stored.curves_of(table).values())
            assert lowest > -1e-9, path.name

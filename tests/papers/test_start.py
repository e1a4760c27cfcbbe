"""An algorithm is usable when it is made: starting a run neither adds to it nor changes it."""

import pytest

from fedbook import experiment, papers
from fedbook.federation import Rounds

METHODS = {
    "fedavg": ("fedavg", "local"), "fedsc": ("fedsc", "local-sc", "fedema", "fedx", "fedca"),
    "hetero_ssfl": ("hetero-ssfl", "fedavg-supervised"), "prirfed": ("dp-rsgd",), "dp2_fedsam": ("dp2-fedsam",),
    "cvfl": ("c-vfl",),
}  # fmt: skip


@pytest.mark.parametrize(("paper", "method"), [(paper, m) for paper, methods in METHODS.items() for m in methods])
def test_a_run_leaves_the_algorithm_as_it_was(monkeypatch, paper, method):
    begun, init = [], Rounds.__init__

    def watched(self, algorithm, *rest, **options):
        before = dict(vars(algorithm))
        init(self, algorithm, *rest, **options)
        next(iter(self))
        after = vars(algorithm)
        begun.append(before.keys() == after.keys() and all(before[name] is after[name] for name in before))

    monkeypatch.setattr(Rounds, "__init__", watched)
    entry = papers.paper(paper)
    problem = "digits" if "digits" in entry.problems else "pca-digits"
    experiment.plan(entry, method, problem, changes={"rounds": 2, "evaluate_every": 2}, device="cpu").rounds()
    assert begun == [True]

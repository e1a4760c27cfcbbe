"""What holds of every method: a run leaves it as it was, seeds do not meet, a resumed run is the whole run, and the
server learns nothing but the messages."""

import pytest
import torch

from fedbook import experiment, papers
from fedbook.federation import Rounds, drive, run
from fedbook.federation.tree import flatten
from fedbook.papers.cvfl.problem import vertical_problem
from fedbook.papers.dp2_fedsam.problem import personal_problem
from fedbook.papers.fedavg.problem import image_problem
from fedbook.papers.fedsc.problem import pretraining_problem
from fedbook.papers.hetero_ssfl.problem import aligned_problem

IMAGES = {"train_samples": 150, "test_samples": 40, "rounds": 3, "evaluate_every": 3}
LEARNERS = IMAGES | {"clients": 5, "partition": "dirichlet", "local_epochs": 1, "model": "mlp", "width": 8}
SETTINGS = {
    "fedavg": IMAGES | {"clients": 5, "clients_per_round": 3, "local_epochs": 2, "momentum": 0.5},
    "fedsc": LEARNERS | {"bank": 4, "cohort": 3, "sigma": 0.1, "share_from": 0},
    "hetero_ssfl": LEARNERS
    | {"cohort": 3, "alignment_samples": 20, "alignment_batch": 12, "architectures": "mlp,cnn_s:6"},
    "prirfed": {"rounds": 3, "evaluate_every": 3, "samples": 120, "agents": 4, "agents_per_round": 2, "inner_steps": 3,
                "option": "random"},
    "dp2_fedsam": IMAGES | {"train_samples": 300, "clients": 8, "epsilon": 0.0, "noise_multiplier": 1.0},
    "cvfl": IMAGES | {"batch_size": 20, "local_steps": 3, "parties": 3},
}  # fmt: skip
SUMS = {"fusion": "sum"}
TOP_K = {"compressor": "topk", "bits": 8}
CASES = {
    "fedavg": {"fedavg": {"compressor": "scalar", "bits": 8}, "local": {}},
    "fedsc": {"fedsc": {}, "local-sc": {}, "fedavg-byol": {"target": "local"}, "fedu": {"bank": 0}, "fedema": {},
              "fedx": {"bank": 0}, "fedca": {"alignment": 0.5, "alignment_samples": 14, "dictionary_samples": 8}},
    "hetero_ssfl": {"hetero-ssfl": {"exclude_self": True}, "local-ssl": {}, "fedavg-supervised": {}},
    "prirfed": {method: {"sigma": 0.2} if method.startswith(("dp", "central")) else {}
                for method in papers.paper("prirfed").methods},
    "dp2_fedsam": {"dp2-fedsam": {}, "local-only": {}},
    "cvfl": {"c-vfl": TOP_K, "c-vfl-one-step": TOP_K, "vfl": {}, "central": {}, "secure-sum": SUMS,
             "private-labels": SUMS | TOP_K, "split-learning": TOP_K | {"parties": 1}},
}  # fmt: skip


def cheap(problem, train, test, own=()):
    """In place of the probes of many clients, which take all the time: numbers of the same features."""
    return dict.fromkeys(("knn", "probe", "probe_few", *(("own_classes",) if own else ())), float(test.square().mean()))


def attributes(algorithm):
    inner = vars(algorithm).get("algorithm")  # of a composed one
    return vars(algorithm) | ({f"inner {name}": value for name, value in vars(inner).items()} if inner else {})


def states(rounds):
    return flatten({"server": rounds.server, "clients": rounds.clients})


@pytest.mark.parametrize(("name", "method"), [(name, method) for name, methods in CASES.items() for method in methods])
def test_a_method(name, method, tmp_path, monkeypatch):
    for make in (image_problem, personal_problem, pretraining_problem, aligned_problem, vertical_problem):
        exact = tuple(torch.float64 if value is torch.float32 else value for value in make.__defaults__)
        monkeypatch.setattr(make, "__defaults__", exact)
    monkeypatch.setattr("fedbook.papers.hetero_ssfl.evaluation.scores", cheap)
    paper = papers.paper(name)
    settings = SETTINGS[name] | CASES[name][method]
    problem = "digits" if "digits" in paper.problems else "frechet-wishart"

    def rounds(seeds, **options):
        return experiment.plan(paper, method, problem, "quick", settings, seeds, "cpu").rounds(**options)

    made, tape, init = [], [], Rounds.__init__

    def watched(self, algorithm, *rest, **options):
        made.append((algorithm, dict(attributes(algorithm))))
        init(self, algorithm, *rest, **options)

    monkeypatch.setattr(Rounds, "__init__", watched)
    both = rounds((3, 5), observe=lambda exchange, uploads: tape.append(uploads))
    server = both.server
    run(both)
    algorithm, before = made[0]
    after = attributes(algorithm)
    assert after.keys() == before.keys() and all(after[k] is v for k, v in before.items())

    whole = states(both)
    for slot, seed in enumerate((3, 5)):
        for leaf, value in states(run(rounds((seed,)))).items():
            assert torch.allclose(value[0], whole[leaf][slot], rtol=1e-9, atol=1e-12), leaf

    path = tmp_path / "run.pt"
    next(iter(rounds((3, 5), path=path)))
    resumed = run(rounds((3, 5), path=path, resume=True))
    assert all(torch.equal(value, whole[leaf]) for leaf, value in states(resumed).items())
    assert resumed.history == both.history and resumed.bytes.state() == both.bytes.state()
    assert [ledger.report(1e-3) for ledger in resumed.privacy] == [ledger.report(1e-3) for ledger in both.privacy]

    for t in range(-1, both.t):  # the uploads again: the server's state follows from them alone
        step = both.algorithm.setup if t < 0 else both.algorithm.round
        server = drive(step(server, both._turn(t)), lambda exchange: tape.pop(0))
    assert not tape and all(torch.equal(value, whole[f"server/{leaf}"]) for leaf, value in flatten(server).items())

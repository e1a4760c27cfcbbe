"""Run by test_sharding.py, on one process or on several: short runs, resumed from a checkpoint, written to FILE."""

import sys
from pathlib import Path

import torch

from fedbook import experiment, papers
from fedbook.federation import Federation, Rounds, run, sharding
from fedbook.learning.models import model
from fedbook.papers.fedavg import Config, FedAvg, LocalOnly
from fedbook.partition import dirichlet
from fedbook.randomness import normal, stream

torch.set_num_threads(1)
SMALL = {"train_samples": 600, "test_samples": 100}
CASES = {  # paper, method, problem, settings
    "fedsc": ("fedsc", "fedsc", "digits", {}),
    "hetero_ssfl": ("hetero_ssfl", "hetero-ssfl", "digits", {"local_epochs": 1}),
    "prirfed": ("prirfed", "dp-rsgd", "pca-digits", {}),
    "dp2_fedsam": ("dp2_fedsam", "dp2-fedsam", "digits", {"clients": 20}),
    "cvfl": ("cvfl", "c-vfl", "digits", SMALL),
    "secure-sum": ("cvfl", "secure-sum", "digits", SMALL | {"fusion": "sum"}),
}


def in_float64(kind, **options):
    """Two seeds side by side, cohorts that differ in size, clients that differ in their number of steps."""
    x, y = normal((400, 1, 8, 8), stream(0, "x")), torch.from_numpy(stream(0, "y").integers(0, 4, 400))
    config = Config(local_epochs=2, batch_size=5, clients_per_round=6, momentum=0.9, sampling="poisson", lr=0.05)
    federation = Federation({"x": x, "y": y}, dirichlet(y, 15, 0, alpha=0.5))
    return Rounds(kind(config, model("mlp", (1, 8, 8), 4)), federation, 3, seeds=(0, 1), **options)


def of_paper(paper, method, problem, settings):
    plan = experiment.plan(papers.paper(paper), method, problem, "quick", {"rounds": 2} | settings, device="cpu")
    return plan.rounds


def main(file):
    makers = {name: of_paper(*case) for name, case in CASES.items()}
    makers |= {kind.__name__: lambda kind=kind, **options: in_float64(kind, **options) for kind in (FedAvg, LocalOnly)}
    with sharding.joined("cpu"):
        results = {}
        for name, make in makers.items():
            path = Path(f"{file}.{name}.pt")
            next(iter(make(path=path)))
            rounds = make(path=path, resume=True)
            assert rounds.t == 1
            run(rounds)
            results[name] = {
                "server": rounds.server,
                "clients": rounds.clients,
                "bytes": rounds.bytes.state(),
                "history": [{**entry, "seconds": 0} for entry in rounds.history.state()],
            }
        if sharding.rank() == 0:
            torch.save(results, file)


if __name__ == "__main__":
    main(sys.argv[1])

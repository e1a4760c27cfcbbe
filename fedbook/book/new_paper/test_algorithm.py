"""NewPaper against a plain loop over rounds, clients and batches, and resumed half way."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedbook import experiment, papers
from fedbook.federation import Rounds, Rows, run
from fedbook.federation.local import epochs
from fedbook.papers.fedavg.problem import ImageSettings, image_problem
from fedbook.papers.new_paper import Config, NewPaper
from fedbook.randomness import stream

ROUNDS, CLIENTS = 3, 3
SETTINGS = ImageSettings(partition="dirichlet", clients=CLIENTS, model="linear", train_samples=90)


@pytest.fixture(scope="module")
def problem():
    return image_problem("digits", SETTINGS, dtype=torch.float64)


def by_hand(problem, config):
    (split,) = problem.partitions
    theta = problem.model.init(stream(0, "init"), torch.float64)
    for t in range(ROUNDS):
        models = []
        for k in range(CLIENTS):
            rows = Rows({}, split.table[k : k + 1], split.sizes[k : k + 1])
            batches = epochs(rows, [stream(0, "batches", t, k)], config.local_epochs, config.batch_size)
            own = {name: p.clone().requires_grad_() for name, p in theta.items()}
            for index, real in zip(batches.index[:, 0], batches.real[:, 0], strict=True):
                if not real.any():
                    continue
                loss = cross_entropy(problem.model.apply(own, problem.x[index[real]]), problem.y[index[real]])
                gradients = torch.autograd.grad(loss, list(own.values()))
                with torch.no_grad():
                    for p, g in zip(own.values(), gradients, strict=True):
                        p -= config.lr * g
            models.append({name: p.detach() for name, p in own.items()})
        shares = split.sizes.double() / split.sizes.sum()
        mean = {name: sum(p * own[name] for p, own in zip(shares, models, strict=True)) for name in theta}
        theta = {name: theta[name] + config.server_lr * (mean[name] - theta[name]) for name in theta}
    return theta


@pytest.mark.parametrize("server_lr", [1.0, 0.5])
def test_it_is_a_plain_loop_over_clients_and_batches(problem, server_lr):
    config = Config(rounds=ROUNDS, local_epochs=2, batch_size=8, lr=0.2, server_lr=server_lr)
    rounds = run(Rounds(NewPaper(config, problem.model), problem.federation(), ROUNDS))
    for name, value in by_hand(problem, config).items():
        torch.testing.assert_close(rounds.server["theta"][name][0], value, rtol=1e-10, atol=1e-10)


def test_a_resumed_run_is_the_undisturbed_one(problem, tmp_path):
    def rounds(total, **options):
        return run(Rounds(NewPaper(Config(lr=0.2), problem.model), problem.federation(), total, **options))

    rounds(1, path=tmp_path / "checkpoint.pt")
    whole, resumed = rounds(ROUNDS), rounds(ROUNDS, path=tmp_path / "checkpoint.pt", resume=True)
    for name, value in whole.server["theta"].items():
        assert torch.equal(resumed.server["theta"][name], value)
    assert resumed.history == whole.history


@pytest.mark.parametrize("method", papers.paper("new_paper").methods)
def test_every_method_runs_by_its_name(method):
    changes = {"rounds": 2, "clients": 5, "partition": "iid", "train_samples": 90, "model": "linear"}
    rounds = experiment.plan(papers.paper("new_paper"), method, "digits", changes=changes, device="cpu").rounds()
    history = run(rounds).history
    assert len(history) == 2 and 0 <= history[-1].metrics["accuracy"][0] <= 1

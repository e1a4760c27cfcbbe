"""The worked example of CONTRIBUTING.md runs, and is SCAFFOLD: a plain loop over clients, epochs and batches agrees."""

import re
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from fedbook.federation import Rounds, Rows, run
from fedbook.federation.local import epochs
from fedbook.papers.fedavg import Config
from fedbook.papers.fedavg.problem import ImageSettings, image_problem
from fedbook.randomness import stream

ROUNDS, LR = 3, 0.2


def test_the_worked_example_is_scaffold():
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    names = {}
    exec(re.search(r"```python\n(.*?)```", text, re.S)[1], names)
    settings = ImageSettings(partition="dirichlet", clients=3, model="linear", train_samples=90)
    problem = image_problem("digits", settings, dtype=torch.float64)
    config = Config(rounds=ROUNDS, local_epochs=2, batch_size=8, lr=LR)
    rounds = run(Rounds(names["Scaffold"](config, problem.model), problem.federation(), ROUNDS))

    (split,) = problem.partitions
    x = problem.model.init(stream(0, "init"), torch.float64)
    c = {name: torch.zeros_like(p) for name, p in x.items()}
    own = [dict(c) for _ in range(3)]
    for t in range(ROUNDS):
        models, changes = [], []
        for k in range(3):
            rows = Rows({}, split.table[k : k + 1], split.sizes[k : k + 1])
            batches = epochs(rows, [stream(0, "batches", t, k)], 2, 8)
            y, steps = {name: p.clone().requires_grad_() for name, p in x.items()}, 0
            for index, real in zip(batches.index[:, 0], batches.real[:, 0], strict=True):
                chosen = index[real]
                if len(chosen) == 0:
                    continue
                loss = cross_entropy(problem.model.apply(y, problem.x[chosen]), problem.y[chosen])
                gradients = torch.autograd.grad(loss, list(y.values()))
                with torch.no_grad():
                    for name, g in zip(y, gradients, strict=True):
                        y[name] -= LR * (g - own[k][name] + c[name])
                steps += 1
            new = {n: own[k][n] - c[n] + (x[n] - y[n].detach()) / (steps * LR) for n in x}
            changes.append({n: new[n] - own[k][n] for n in x})
            own[k] = new
            models.append({n: p.detach() for n, p in y.items()})
        x = {n: sum(m[n] for m in models) / 3 for n in x}
        c = {n: c[n] + sum(change[n] for change in changes) / 3 for n in c}
    for name, p in x.items():
        torch.testing.assert_close(rounds.server["theta"][name][0], p, rtol=1e-10, atol=1e-10)

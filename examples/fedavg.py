"""FedAvg on your own tensors with your own network: `python examples/fedavg.py`."""

import torch
from torch import nn

from fedbook.federation import Federation, Rounds
from fedbook.learning.models import Model
from fedbook.papers.fedavg import Config, FedAvg
from fedbook.partition import Partition

torch.manual_seed(0)
x = torch.randn(1000, 20)  # yours: any floating-point tensor [N, ...]
y = (x[:, :3].sum(1) > 0).long()  # yours: classes [N]
owner = torch.randint(0, 10, (800,))  # yours: which client holds which of the first 800 rows
split = Partition.from_lists([torch.nonzero(owner == k).flatten() for k in range(10)])

# yours: an nn.Sequential whose last layer is linear; no batch normalisation
model = Model.of("mine", lambda: nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2)))


def evaluate(server, clients):
    theta = {name: value[0] for name, value in server["theta"].items()}  # of the first seed
    return {"accuracy": (model.apply(theta, x[800:]).argmax(1) == y[800:]).double().mean()[None]}


method = FedAvg(Config(rounds=20, clients_per_round=5, local_epochs=2, lr=0.1), model)
rounds = Rounds(method, Federation({"x": x, "y": y}, split), 20, evaluate=evaluate, every=5)
for record in rounds:
    if record.metrics:
        print(record.t + 1, record.metrics, record.bytes_up)

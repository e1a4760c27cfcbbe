"""PriRFed: a private minimiser of your own loss on a sphere, of your own records: `python examples/prirfed.py`."""

import torch

from fedbook.federation import Federation, Rounds
from fedbook.geometry import Sphere
from fedbook.papers.prirfed import Config, PriRFed
from fedbook.papers.prirfed.losses import RecordLoss
from fedbook.partition import Partition

torch.manual_seed(0)
axis = torch.nn.functional.normalize(torch.ones(5, dtype=torch.float64), dim=0)
z = torch.nn.functional.normalize(axis + 0.3 * torch.randn(2000, 5, dtype=torch.float64), dim=1)  # yours: [N, ...]
split = Partition.from_lists(torch.arange(2000).view(10, 200))  # yours: the records of each agent


def value(point, record):  # yours: the loss of one record at one point, any differentiable function
    return -torch.log1p(torch.exp(4 * point @ record["z"]))


manifold = Sphere()  # or SPD(), Hyperboloid(), Euclidean()
start = torch.nn.functional.normalize(torch.randn(1, 5, dtype=torch.float64), dim=1)  # [S, *point], one a seed
config = Config(rounds=20, agents_per_round=0, local_steps=2, lr=0.1, epsilon_call=0.5, clip_norm=4.0)
method = PriRFed(config, RecordLoss(manifold, value), start, "dp-rsgd")


def evaluate(server, clients):
    return {"distance": manifold.dist(server["x"], axis)}


rounds = Rounds(method, Federation({"z": z}, split), 20, evaluate=evaluate, every=5, delta=1e-4)
for record in rounds:
    if record.metrics:
        print(record.t + 1, record.metrics)
print("epsilon of a record over the run", rounds.privacy[0].report(1e-4)["epsilon"])

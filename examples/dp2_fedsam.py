"""DP2-FedSAM: a private shared body and personal heads, on your own data: `python examples/dp2_fedsam.py`."""

import torch
from torch import nn

from fedbook.federation import Federation, Rounds
from fedbook.learning.models import Model
from fedbook.papers.dp2_fedsam import Config, DP2FedSAM
from fedbook.partition import Partition

CLIENTS = 100
torch.manual_seed(0)
x = torch.randn(CLIENTS * 40, 10)  # yours: floating-point numbers [N, ...]
agrees = torch.arange(CLIENTS).repeat_interleave(40) % 2 == 0  # every other client names the two classes the other way
y = ((x[:, 0] + x[:, 1] > 0) == agrees).long()  # yours: classes [N]
rows = torch.arange(len(x)).view(CLIENTS, 40)
train, test = rows[:, :30], rows[:, 30:]  # yours: the rows of each client, to train and to judge

# yours: an nn.Sequential; all layers but the last are the shared body, the last, linear, is each client's own head
model = Model.of("mine", lambda: nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 2)))
config = Config(rounds=30, client_rate=0.2, epsilon=8.0, delta=1e-3, clip_norm=0.5, lr_head=0.1)
method = DP2FedSAM(config.with_noise(CLIENTS), model, "dp2-fedsam")  # the noise that keeps the budget


def evaluate(server, clients):
    body = {name: value[0] for name, value in server["shared"].items()}
    hits = []
    for k in range(CLIENTS):
        head = {name: value[0, k] for name, value in clients["all"]["own"].items()}
        hits.append((model.apply({**body, **head}, x[test[k]]).argmax(1) == y[test[k]]).double().mean())
    return {"accuracy": torch.stack(hits).mean()[None]}


federation = Federation({"x": x, "y": y}, Partition.from_lists(train))
rounds = Rounds(method, federation, 30, evaluate=evaluate, every=10, delta=1e-3, budget=8.0)
for record in rounds:
    if record.metrics:
        print(record.t + 1, record.metrics)
print("epsilon of a client over the run", rounds.privacy[0].report(1e-3)["epsilon"])

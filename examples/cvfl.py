"""C-VFL: parties with features and networks of their own, embeddings in two bits: `python examples/cvfl.py`."""

import torch
from torch import nn

from fedbook.federation import Rounds
from fedbook.learning.models import Network
from fedbook.papers.cvfl import CVFL, Config
from fedbook.papers.cvfl.problem import VerticalProblem, VerticalSettings
from fedbook.papers.cvfl.towers import fusion

torch.manual_seed(0)
table, images = torch.randn(1200, 6), torch.randn(1200, 1, 4, 4)  # yours: what each party holds of the same samples
y = (table[:, 0] + images.mean((1, 2, 3)) * 4 > 0).long()  # yours: classes [N]

# yours: one network a party, all with embeddings of the same width, here 8
towers = {
    "bank": Network.of("bank", lambda: nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.Tanh())),
    "clinic": Network.of("clinic", lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Tanh())),
}
problem = VerticalProblem(
    name="mine",
    settings=VerticalSettings(parties=2, embedding=8),
    parts={"bank": table[None, :1000], "clinic": images[None, :1000]},  # [parties of this kind, N, ...]
    y=y[:1000],
    test_parts={"bank": table[None, 1000:], "clinic": images[None, 1000:]},
    test_y=y[1000:],
    classes=("no", "yes"),
    towers=towers,
    fusion=fusion("concat", [8, 8], 2),
)
config = Config(rounds=40, local_steps=5, batch_size=100, lr=0.2, compressor="scalar", bits=2)
rounds = Rounds(CVFL(config, problem), problem.federation(), 40, evaluate=problem.evaluation(), every=10)
for record in rounds:
    if record.metrics:
        print(record.t + 1, record.metrics, record.bytes_up)

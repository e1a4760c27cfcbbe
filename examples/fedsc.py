"""FedSC on your own images without labels, with your own encoder: `python examples/fedsc.py`."""

from collections import OrderedDict

import torch
from torch import nn

from fedbook.federation import Federation, Rounds
from fedbook.learning.augmentation import Augmentation
from fedbook.learning.encoders import Encoder
from fedbook.learning.evaluation import linear_probe
from fedbook.learning.views import Views
from fedbook.papers.fedsc import Config, FedSC
from fedbook.partition import Partition

torch.manual_seed(0)
y = torch.arange(600) % 3  # known to you, never to a client: three kinds of stripes
wave = torch.sin(torch.arange(12) * (1 + y[:, None]))  # [N, 12]
x = (wave[:, None, None] * 0.3 + 0.5 + 0.1 * torch.randn(600, 1, 12, 12)).clamp(0, 1)  # yours: [N, C, H, W] in [0, 1]
split = Partition.from_lists([torch.nonzero(y[:450] == k).flatten() for k in range(3)])  # yours: one kind a client
views = Views(Augmentation(shift=1.0, noise=0.2), float(x.mean()), float(x.std()), (1, 12, 12))  # yours: random views


def build():  # yours: any backbone that ends in a vector, and a projector; no batch normalisation
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(144, 64), nn.ReLU())
    return nn.Sequential(OrderedDict(backbone=backbone, projector=nn.Linear(64, 16)))


encoder = Encoder.of("mine", build, (1, 12, 12), 16, 64)  # widths of representation and of features
method = FedSC(Config(rounds=10, local_epochs=2, batch_size=50, share_from=0), encoder, views)
rounds = Rounds(method, Federation({"x": x}, split), 10)
for record in rounds:
    print(record.t + 1, record.trace["loss"], record.bytes_up)

theta = {name: value[0] for name, value in rounds.server["theta"].items()}  # of the first seed
features = encoder.features(theta, views.plain(x)).detach()  # [N, 64], for whatever you need them
accuracy = linear_probe(features[:450], y[:450]).accuracy(features[450:], y[450:])
print("linear probe", accuracy)

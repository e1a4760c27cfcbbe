"""Hetero-SSFL with a different network of your own at every client: `python examples/hetero_ssfl.py`."""

from collections import OrderedDict

import torch
from torch import nn

from fedbook.federation import Federation, Rounds
from fedbook.learning.augmentation import Augmentation
from fedbook.learning.encoders import Encoder
from fedbook.learning.fedbyol import online_network
from fedbook.learning.views import Views
from fedbook.papers.hetero_ssfl import Config, HeteroSSFL
from fedbook.papers.hetero_ssfl.cka import StreamedCKA
from fedbook.partition import Partition

torch.manual_seed(0)
x = torch.rand(300, 1, 8, 8)  # yours: images [N, C, H, W] in [0, 1]
split = Partition.from_lists(torch.arange(300).view(3, 100))  # yours: the rows of each client
public = torch.randint(0, 256, (64, 1, 8, 8), dtype=torch.uint8)  # yours: images that everybody has, 0 to 255
assigned = ["narrow", "wide", "wide"]  # yours: the network of each client
views = Views(Augmentation(shift=1.0, noise=0.1), float(x.mean()), float(x.std()), (1, 8, 8))


def encoder(word, features, width):  # yours: any backbone and projector for each word
    def build():
        backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, features), nn.ReLU())
        return nn.Sequential(OrderedDict(backbone=backbone, projector=nn.Linear(features, width)))

    return Encoder.of(word, build, (1, 8, 8), width, features)


config = Config(rounds=5, local_epochs=2, batch_size=32, mu=0.5, alignment_batch=0)
encoders = {"narrow": encoder("narrow", 16, 8), "wide": encoder("wide", 64, 16)}
nets = {word: online_network(config, one) for word, one in encoders.items()}
method = HeteroSSFL(config, nets, assigned, views, public, public / 255)
rounds = Rounds(method, Federation({"x": x}, split, assigned), 5)
for record in rounds:
    print(record.t + 1, record.trace["loss"], record.bytes_up)

seen = []  # features of the public images, of the first client with each network
for word, one in encoders.items():
    theta = {name: value[0, 0] for name, value in rounds.clients[word]["theta"].items()}  # seed, place in its group
    seen.append(one.features(theta, views.plain(public / 255)).detach())
meter = StreamedCKA()
meter.add(*seen)
print("similarity of the two networks", meter.value(unbiased=True))

"""FedAvg over nodes with a folder of data each, which the server never sees: `python examples/nodes.py`."""

import tempfile
from functools import partial
from pathlib import Path

import torch
from torch import nn

from fedbook.engines import InMemory, Node, Remote
from fedbook.federation import Federation, Rounds
from fedbook.learning.models import Model
from fedbook.papers.fedavg import Config, FedAvg
from fedbook.partition import Partition

SIZES = [150, 250, 400]  # how many samples each of three nodes holds: all that the server is told
model = Model.of("mine", lambda: nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2)))
method = partial(FedAvg, Config(rounds=20, local_epochs=2, lr=0.1), model)


def collect(folder: Path, number: int) -> None:
    """Yours: what lies on each machine already."""
    x = torch.randn(SIZES[number], 20) + 0.3 * number
    torch.save({"x": x, "y": (x[:, :3].sum(1) > 0).long()}, folder / "data.pt")


def node(folder: Path, number: int) -> Node:
    """On the node's machine: its own data are all there is; of the others it knows the number alone."""
    samples = torch.load(folder / "data.pt")
    rows = [torch.arange(size) if k == number else [0] for k, size in enumerate(SIZES)]
    federation = Federation(samples, Partition.from_lists(rows))
    return Node(f"node {number}", Rounds(method(), federation, 20), [number], folder)


def evaluate(server, clients):
    theta = {name: value[0] for name, value in server["theta"].items()}
    return {"accuracy": (model.apply(theta, test).argmax(1) == (test[:, :3].sum(1) > 0)).double().mean()[None]}


torch.manual_seed(0)
test = torch.randn(200, 20)
with tempfile.TemporaryDirectory() as place:
    folders = [Path(place) / f"{number}" for number in range(len(SIZES))]
    for number, folder in enumerate(folders):
        folder.mkdir()
        collect(folder, number)
    nodes = InMemory(node(folder, number) for number, folder in enumerate(folders))
    rows = torch.arange(sum(SIZES)).split(SIZES)
    empty = {"x": torch.zeros(1, 20).expand(sum(SIZES), 20), "y": torch.zeros(1, dtype=torch.long).expand(sum(SIZES))}
    rounds = Rounds(
        method(), Federation(empty, Partition.from_lists(rows)), 20, evaluate=evaluate, every=5,
        simulator=partial(Remote, nodes, judged=False),
    )  # fmt: skip
    for record in rounds:
        if record.metrics:
            print(record.t + 1, record.metrics, record.bytes_up)

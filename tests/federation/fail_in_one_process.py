"""Run by test_sharding.py under torchrun: the fedbook command, in whose second process the work fails in round 3."""

import os
import sys

from fedbook import command
from fedbook.papers.fedavg import FedAvg

train = FedAvg.train


def fails(self, local):
    if os.environ["RANK"] == "1" and local.t == 2:
        raise MemoryError("no room for a client")
    return train(self, local)


FedAvg.train = fails
sys.exit(command.main(sys.argv[1:]))

"""New paper: what it does, in one line. Authors: "Title", venue and year (arXiv number), Algorithm 1.

The server holds theta. In round t it sends theta to all clients; each takes E epochs of SGD on its own n_k samples and
sends theta_k back; the server moves theta towards the mean of the theta_k, weighted by n_k.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedbook.federation.checkpoint import identity
from fedbook.federation.cohort import Everyone
from fedbook.federation.exchange import Exchange, Local, Reply, Round, weighted_mean
from fedbook.federation.local import epochs, local_steps, sgd
from fedbook.federation.loop import Turn, no_setup
from fedbook.federation.population import Federation
from fedbook.federation.tree import Tree, tree_map
from fedbook.learning.models import Model, cross_entropy, stack
from fedbook.randomness import stream
from fedbook.settings import Settings, setting


class Config(Settings):
    """Settings of NewPaper."""

    rounds: int = setting(100, "T", "rounds of the federation", minimum=0)
    local_epochs: int = setting(1, "E", "local passes over the data", minimum=1)
    batch_size: int = setting(10, "B", "samples of a local step", "0: all", minimum=0)
    lr: float = setting(0.1, "eta", "step size of the clients", above=0.0)
    server_lr: float = setting(1.0, "gamma", "step size of the server", "1: FedAvg", above=0.0,
                               needs={"method": ("new-paper",)})  # fmt: skip


class NewPaper:
    """Algorithm 1 of the paper; S seeds side by side."""

    name, batched_seeds = "new-paper", True

    def __init__(self, config: Config, model: Model):
        self.config, self.model, self.kind = config, model, model.kind
        self.loss = cross_entropy(model.apply)

    def configuration(self) -> dict[str, Any]:
        """What a checkpoint must agree on."""
        return identity(self.config, model=self.model.form)

    def start(self, federation: Federation, turn: Turn) -> tuple[dict[str, Tree], dict[str, Tree]]:
        """theta: one initialisation for each seed, [S, ...]; clients keep nothing."""
        x = federation.groups["all"].samples["x"]
        theta = stack([self.model.init(stream(s, "init"), x.dtype) for s in turn.seeds])
        return {"theta": tree_map(lambda value: value.to(x.device), theta)}, {}

    def setup(self, server: dict[str, Tree], turn: Turn) -> Round:
        """Nothing crosses before the first round."""
        return no_setup(server)

    def round(self, server: dict[str, Tree], turn: Turn) -> Round:
        """One round: what stands between the yields is the server's."""
        turn.in_clear("each client's trained parameters")
        theta, cohort = server["theta"], turn.cohort(Everyone())
        up = yield Exchange(cohort, down={"theta": theta}, work=self.train)
        mean = weighted_mean(up["theta"], up["weight"])
        return {"theta": tree_map(self.step, theta, mean)}

    def step(self, theta: Tensor, mean: Tensor) -> Tensor:
        """The server's step. Yours to change: with gamma = 1 this is FedAvg."""
        return theta + self.config.server_lr * (mean - theta)

    def train(self, local: Local) -> Reply:
        """E epochs of SGD in batches of B, for R clients."""
        c = self.config
        batches = epochs(local.data, local.streams("batches"), c.local_epochs, c.batch_size)
        carry = {"theta": local.inbox["theta"]}
        carry, loss = local_steps(sgd(self.loss, c.lr), carry, local.data, batches, how=local.how, chunk=local.chunk)
        weight = local.data.sizes.to(torch.float64)
        return Reply(upload={"theta": carry["theta"], "weight": weight}, trace={"loss": loss})

"""Chapter 0: federated averaging, and what it is measured against.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017 (arXiv:1602.05629), Algorithm 1.

The server holds theta. In round t it sends theta to a cohort; each client k takes E epochs of SGD on its
own n_k samples and sends theta_k back; the server sets theta to the mean of the theta_k, weighted by n_k.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.federation.checkpoint import identity
from fedbook.federation.cohort import Everyone, FixedSize, Poisson, Sampler
from fedbook.federation.exchange import Exchange, Local, Reply, Round, weighted_mean
from fedbook.federation.local import epochs, local_steps, sgd
from fedbook.federation.loop import Algorithm, Turn
from fedbook.federation.population import Federation, floating
from fedbook.federation.tree import Tree, for_each, per_row, tree_map
from fedbook.learning.models import Model, cross_entropy, stack
from fedbook.randomness import stream
from fedbook.settings import Settings, other_than, setting


class Config(Settings):
    """Settings of FedAvg."""

    rounds: int = setting(100, "T", "rounds of the federation", minimum=0)
    clients_per_round: int = setting(0, "m = C K", "clients drawn in a round", "0: everyone", minimum=0,
                                     needs={"method": other_than("fedsgd", "central")})  # fmt: skip
    sampling: str = setting(
        "fixed",
        None,
        "exactly m clients, or each with probability m/K",
        choices=("fixed", "poisson"),
        needs={"method": other_than("fedsgd", "central"), "clients_per_round": other_than(0)},
    )
    local_epochs: int = setting(1, "E", "local passes over the data", "1 with batch_size 0: FedSGD", minimum=1,
                                needs={"method": other_than("fedsgd")})  # fmt: skip
    batch_size: int = setting(10, "B", "samples of a local step", "0: all, the paper's infinity", minimum=0,
                              needs={"method": other_than("fedsgd")})  # fmt: skip
    lr: float = setting(0.1, "eta", "step size", above=0.0)
    lr_decay: float = setting(1.0, None, "factor on lr in each round", "1: constant", maximum=1.0, above=0.0)
    momentum: float = setting(0.0, None, "of the local steps, fresh in every round", "0: none", minimum=0.0, below=1.0)
    weight_decay: float = setting(0.0, None, "of the local steps", "0: none", minimum=0.0)
    weighting: str = setting("size", None, "clients weigh n_k, as in the paper, or all the same",
                             choices=("size", "uniform"), needs={"method": other_than("local", "central")})  # fmt: skip
    reveal: str = setting("each", None, "what the server sees; sum: sums only (secure aggregation), the same result",
                          choices=("each", "sum"), needs={"method": other_than("local")})  # fmt: skip

    def sampler(self, num_clients: int) -> Sampler:
        """The sampler that these settings mean among ``num_clients``."""
        if not self.clients_per_round:
            return Everyone()
        arguments.integer("clients_per_round", self.clients_per_round, 1, num_clients)
        if self.sampling == "poisson":
            return Poisson(self.clients_per_round / num_clients)
        return FixedSize(self.clients_per_round)


class FedAvg(Algorithm):
    """Algorithm 1 of the paper; S seeds side by side."""

    name, goes_on_without = "fedavg", True

    def __init__(self, config: Config, model: Model):
        self.config, self.model, self.kind = config, model, model.kind
        self.loss = cross_entropy(model.apply, model.layers, model.apply_each)

    def configuration(self) -> dict[str, Any]:
        """What a checkpoint must agree on."""
        return identity(self.config, model=self.model.form)

    def start(self, federation: Federation, turn: Turn) -> tuple[dict[str, Tree], dict[str, Tree]]:
        """theta: one initialisation for each seed, [S, ...]; clients keep nothing."""
        self.config.sampler(federation.num_clients)  # more than there are is refused here
        like = floating(federation.groups["all"].samples)
        theta = stack([self.model.init(stream(s, "init"), like.dtype) for s in turn.seeds])
        return {"theta": tree_map(lambda x: x.to(like.device), theta)}, {}

    @property
    def clip_of_sums(self) -> float | None:
        """No clip bounds the parameters whose sum the server sees; None where it sees each client's."""
        return math.inf if self.config.reveal == "sum" else None

    def round(self, server: dict[str, Tree], turn: Turn) -> Round:
        """ServerExecutes, one pass of its loop."""
        turn.in_clear(
            "each client's trained parameters" if self.config.reveal == "each" else "sums of trained parameters"
        )
        cohort = turn.cohort(self.config.sampler(turn.num_clients))  # S_t <- random set of m clients
        theta = server["theta"]
        form = {"theta": tree_map(lambda x: x[0], theta), "weight": torch.zeros((), dtype=torch.float64)}
        uploads = yield Exchange(cohort, down={"theta": theta}, work=self.train, reveal=self.config.reveal, like=form)
        if self.config.reveal == "sum":  # each client sent n_k theta_k and n_k
            total = uploads["weight"]
            empty = total == 0
            mean = tree_map(lambda x, old: _divide(x, total, empty, old), uploads["theta"], theta)
        else:  # theta <- sum_k (n_k / n) theta_k
            mean = weighted_mean(uploads["theta"], uploads["weight"], otherwise=theta)
        return server | {"theta": mean}

    def train(self, local: Local) -> Reply:
        """ClientUpdate(k, theta): E epochs of SGD in batches of B."""
        theta, loss = self.descend(local, local.inbox["theta"])
        if self.config.weighting == "size":
            weight = local.data.sizes.to(torch.float64)
        else:
            weight = torch.ones(len(local.clients), dtype=torch.float64)
        if self.config.reveal == "sum":
            theta = tree_map(lambda x: x * per_row(weight, x).to(x), theta)
        return Reply(upload={"theta": theta, "weight": weight}, trace={"loss": loss})

    def descend(self, local: Local, theta: Tree) -> tuple[Tree, Tensor]:
        """Local SGD from ``theta`` [R, ...]: the new parameters and the mean loss over the steps [R]."""
        c = self.config
        batches = epochs(local.data, local.streams("batches"), c.local_epochs, c.batch_size)
        step = sgd(self.loss, c.lr * c.lr_decay**local.t, c.momentum, c.weight_decay)
        carry = {"theta": theta}
        if c.momentum:
            carry["velocity"] = tree_map(torch.zeros_like, theta)
        carry, loss = local_steps(step, carry, local.data, batches, how=local.how, chunk=local.chunk)
        return carry["theta"], loss


class LocalOnly(FedAvg):
    """The control without a federation: every client trains a model of its own, nothing crosses."""

    name, clip_of_sums = "local", None

    def start(self, federation: Federation, turn: Turn) -> tuple[dict[str, Tree], dict[str, Tree]]:
        """Every client starts from its seed's common initialisation: clients hold theta [S, K, ...]."""
        server, _ = super().start(federation, turn)
        turn.nothing_leaves("every client keeps the model that it trains")
        return {}, {"all": {"theta": for_each(server["theta"], federation.num_clients)}}

    def round(self, server: dict[str, Tree], turn: Turn) -> Round:
        """The cohort trains where it stands."""
        yield Exchange(turn.cohort(self.config.sampler(turn.num_clients)), work=self.train)
        return server

    def train(self, local: Local) -> Reply:
        """E epochs of SGD on the client's own model."""
        theta, loss = self.descend(local, local.state["theta"])
        return Reply(state={"theta": theta}, trace={"loss": loss})


def _divide(total: Tensor, weight: Tensor, empty: Tensor, old: Tensor) -> Tensor:
    safe = torch.where(empty, 1.0, weight).to(total)
    return torch.where(per_row(empty, total), old, total / per_row(safe, total))

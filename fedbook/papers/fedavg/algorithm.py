"""Chapter 0: federated averaging, and what it is measured against.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: "Communication-Efficient Learning of Deep Networks from
Decentralized Data", AISTATS 2017 (arXiv:1602.05629), Algorithm 1.

The server holds theta. In round t it sends theta to a cohort; each client k takes E epochs of SGD on its
own n_k samples and sends theta_k back; the server sets theta to the mean of the theta_k, weighted by n_k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.federation.checkpoint import identity
from fedbook.federation.cohort import Everyone, FixedSize, Poisson, Sampler
from fedbook.federation.exchange import Exchange, Local, Reply, Round, weighted_mean
from fedbook.federation.local import epochs, local_steps, sgd
from fedbook.federation.loop import Rounds, Turn, no_setup
from fedbook.federation.population import Federation
from fedbook.federation.tree import Tree, tree_map
from fedbook.learning.models import Model, cross_entropy, stack
from fedbook.learning.problems import ImageSettings, described, image_problem
from fedbook.papers.description import Paper, own_settings
from fedbook.randomness import stream
from fedbook.settings import Settings, setting


class Config(Settings):
    """Settings of FedAvg."""

    rounds: int = setting(100, "T", "rounds of the federation", minimum=0)
    clients_per_round: int = setting(0, "m = C K", "clients drawn in a round", "0: everyone", minimum=0)
    sampling: str = setting(
        "fixed", None, "exactly m clients, or each with probability m/K", choices=("fixed", "poisson")
    )
    local_epochs: int = setting(1, "E", "local passes over the data", "1 with batch_size 0: FedSGD", minimum=1)
    batch_size: int = setting(10, "B", "samples of a local step", "0: all, the paper's infinity", minimum=0)
    lr: float = setting(0.1, "eta", "step size", above=0.0)
    lr_decay: float = setting(1.0, None, "factor on lr in each round", "1: constant", maximum=1.0, above=0.0)
    momentum: float = setting(0.0, None, "of the local steps, fresh in every round", "0: none", minimum=0.0, below=1.0)
    weight_decay: float = setting(0.0, None, "of the local steps", "0: none", minimum=0.0)
    weighting: str = setting("size", None, "clients weigh n_k, as in the paper, or all the same",
                             choices=("size", "uniform"))  # fmt: skip
    reveal: str = setting("each", None, "what the server sees; sum: sums only (secure aggregation), the same result",
                          choices=("each", "sum"))  # fmt: skip

    def sampler(self, num_clients: int) -> Sampler:
        """The sampler that these settings mean among ``num_clients``."""
        if not self.clients_per_round:
            return Everyone()
        arguments.integer("clients_per_round", self.clients_per_round, 1, num_clients)
        if self.sampling == "poisson":
            return Poisson(self.clients_per_round / num_clients)
        return FixedSize(self.clients_per_round)


class FedAvg:
    """Algorithm 1 of the paper; S seeds side by side."""

    name, batched_seeds = "fedavg", True

    def __init__(self, config: Config, model: Model):
        self.config, self.model, self.kind = config, model, model.kind
        self.loss = cross_entropy(model.apply)

    def configuration(self) -> dict[str, Any]:
        """What a checkpoint must agree on."""
        return identity(self.config, model=self.model.kind)

    def start(self, federation: Federation, turn: Turn) -> tuple[dict[str, Tree], dict[str, Tree]]:
        """theta: one initialisation for each seed, [S, ...]; clients keep nothing."""
        self.sampler = self.config.sampler(federation.num_clients)
        like = next(x for x in federation.groups["all"].samples.values() if x.dtype.is_floating_point)
        theta = stack([self.model.init(stream(s, "init"), like.dtype) for s in turn.seeds])
        return {"theta": tree_map(lambda x: x.to(like.device), theta)}, {}

    def setup(self, server: dict[str, Tree], turn: Turn) -> Round:
        """Nothing crosses before the first round."""
        return no_setup(server)

    def round(self, server: dict[str, Tree], turn: Turn) -> Round:
        """ServerExecutes, one pass of its loop."""
        turn.in_clear(
            "each client's trained parameters" if self.config.reveal == "each" else "sums of trained parameters"
        )
        cohort = turn.cohort(self.sampler)  # S_t <- random set of m clients
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
            theta = tree_map(lambda x: x * weight.to(x).view(-1, *[1] * (x.ndim - 1)), theta)
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

    name = "local"

    def start(self, federation: Federation, turn: Turn) -> tuple[dict[str, Tree], dict[str, Tree]]:
        """Every client starts from its seed's common initialisation: clients hold theta [S, K, ...]."""
        server, _ = super().start(federation, turn)
        clients = federation.num_clients
        own = tree_map(lambda x: x[:, None].repeat(1, clients, *[1] * (x.ndim - 1)), server["theta"])
        return {}, {"all": {"theta": own}}

    def round(self, server: dict[str, Tree], turn: Turn) -> Round:
        """The cohort trains where it stands."""
        yield Exchange(turn.cohort(self.sampler), work=self.train)
        return server

    def train(self, local: Local) -> Reply:
        """E epochs of SGD on the client's own model."""
        theta, loss = self.descend(local, local.state["theta"])
        return Reply(state={"theta": theta}, trace={"loss": loss})


def _divide(total: Tensor, weight: Tensor, empty: Tensor, old: Tensor) -> Tensor:
    shape = (-1, *[1] * (total.ndim - 1))
    safe = torch.where(empty, 1.0, weight).to(total)
    return torch.where(empty.to(total.device).view(shape), old, total / safe.view(shape))


METHODS: Mapping[str, str] = {
    "fedavg": "federated averaging (Algorithm 1)",
    "fedsgd": "its degenerate case: one full-batch gradient step by every client a round",
    "local": "every client alone, nothing crosses",
    "central": "the pooled data on one machine: the same optimiser, one 'client' that holds everything",
}


def algorithm(method: str, config: Config, model: Model) -> FedAvg:
    """The algorithm object of ``method`` (see METHODS). Raises: TypeError, ValueError."""
    arguments.one_of("method", method, METHODS)
    if method == "fedsgd":
        config = replace(config, local_epochs=1, batch_size=0, clients_per_round=0)
    if method == "central":
        config = replace(config, clients_per_round=0)
    return (LocalOnly if method == "local" else FedAvg)(config, model)


def build(
    method: str, problem: str, settings: Mapping[str, Any], seeds: Sequence[int], device: str, **options: Any
) -> Rounds:
    """The run that the settings name (fields of Config and of ImageSettings)."""
    config = own_settings(Config, settings)
    images = image_problem(problem, own_settings(ImageSettings, settings), seeds, device)
    method_algorithm = algorithm(method, config, images.model)
    federation = images.federation(pooled=method == "central")
    every = settings["evaluate_every"] or max(1, config.rounds // 25)
    if method == "local":  # a checkpoint holds every client's model: not after each round
        options.setdefault("save_every", every)
    return Rounds(
        method_algorithm, federation, config.rounds, seeds=seeds, evaluate=images.evaluation(), every=every, **options
    )


PAPER = Paper(
    name="fedavg",
    title="Federated averaging (chapter 0)",
    methods=METHODS,
    problems=described("mnist", "fashion_mnist", "digits", "cifar10"),
    profiles={
        "quick": {"rounds": 10, "clients": 20, "clients_per_round": 10, "train_samples": 4000, "test_samples": 1000},
        "standard": {"rounds": 100, "clients": 100, "clients_per_round": 10, "local_epochs": 5, "test_samples": 5000},
        "paper": {
            "rounds": 1000, "clients": 100, "clients_per_round": 10, "local_epochs": 5, "partition": "shards",
            "model": "cnn_fedavg",
        },
    },
    settings=(Config, ImageSettings),
    fits={"digits": {"train_samples": 0, "test_samples": 0}},
    build=build,
)  # fmt: skip

"""The round that all federated self-supervised methods share: send the encoder, train locally, average.

What a method adds is a loss on the views of a batch, and perhaps something else to send: see fedbook.papers.fedsc,
fedbook.learning.fedbyol and fedbook.papers.fedsc.contrastive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.federation.checkpoint import identity
from fedbook.federation.cohort import Cohort, Everyone, FixedSize, Sampler
from fedbook.federation.exchange import Diverged, Exchange, Local, Reply, Round, weighted_mean
from fedbook.federation.local import Batches, Step, each_client, epochs, local_steps, sgd
from fedbook.federation.loop import Algorithm, Turn
from fedbook.federation.population import Federation
from fedbook.federation.tree import Tree, for_each, leaves, tree_map
from fedbook.learning.encoders import Encoder
from fedbook.learning.models import Parameters, stack
from fedbook.learning.views import Views
from fedbook.randomness import stream
from fedbook.settings import Settings, setting

BatchLoss = Callable[[Mapping[str, Any], Mapping[str, Tensor]], Any]  # of parameters and a batch, as sgd takes it


class Training(Settings):
    """What every self-supervised method has."""

    rounds: int = setting(200, "T", "rounds of the federation", minimum=0)
    cohort: int = setting(0, None, "clients that train in a round", "0: everyone", minimum=0)
    local_epochs: int = setting(5, "E", "local passes over the data", minimum=0)
    batch_size: int = setting(512, "B", "samples of a local step", "0: all, an epoch is one step", minimum=0)
    pairs: int = setting(1, "V", "pairs of views of a sample in training: 2V views", minimum=1)
    lr: float = setting(0.03, "eta", "step size in the first round", minimum=0.0)
    lr_schedule: str = setting("cosine", None, "how lr falls over the rounds", choices=("cosine", "constant"))
    momentum: float = setting(0.9, None, "of the local steps, fresh in every round", "0: none", minimum=0.0, below=1.0)
    weight_decay: float = setting(5e-4, None, "of the local steps", "0: none", minimum=0.0)
    max_norm: float = setting(3.0, None, "longer gradients are shortened to it", "0: never", minimum=0.0)
    average: str = setting(
        "sizes", None, "clients weigh by their samples, or all the same (paper: Algorithm 1, line 23)",
        choices=("sizes", "paper"),
    )  # fmt: skip
    precision: str = setting("full", None, "mixed: the encoder in bfloat16; parameters, losses and matrices never",
                             choices=("full", "mixed"))  # fmt: skip

    def rate(self, t: int) -> float:
        """The learning rate of round t, counted from 0."""
        if self.lr_schedule == "constant":
            return self.lr
        return self.lr * (1 + math.cos(math.pi * t / max(self.rounds, 1))) / 2

    def sampler(self, num_clients: int) -> Sampler:
        """Who trains. Raises: ValueError (more than there are clients)."""
        if not self.cohort:
            return Everyone()
        arguments.integer("cohort", self.cohort, 1, num_clients)
        return FixedSize(self.cohort)


class SelfSupervised(Algorithm):
    """FedAvg of an encoder, S seeds side by side; a method gives :meth:`objective` and may add to the rest.

    Server: ``theta`` [S, ...] and ``q`` [S, K], the clients' shares of all samples. Memory: the cohort's stacked
    parameters, gradients and velocity; no state of absent clients.
    """

    silent = False  # nothing leaves the clients

    def __init__(self, config: Training, encoder: Encoder, views: Views, name: str):
        self.config, self.encoder, self.views, self.name, self.kind = config, encoder, views, name, encoder.kind

    def configuration(self) -> dict[str, Any]:
        """What a checkpoint must agree on; the schedules depend on the number of rounds."""
        views = {f.name: getattr(self.views.augmentation, f.name) for f in fields(self.views.augmentation)}
        shown = {name: list(v) if isinstance(v, tuple) else v for name, v in views.items()}
        form = [f"{name} {list(p.shape)}" for name, p in self.encoder.module.named_parameters()]
        return identity(
            self.config, horizon=self.config.rounds, encoder=self.kind, form=form, bank=self.views.bank, views=shown
        )

    # --- the server

    def start(self, federation: Federation, turn: Turn) -> tuple[dict[str, Tree], dict[str, Tree]]:
        """theta^0 [S, ...] at the server, or at every client where nothing is sent."""
        self.config.sampler(federation.num_clients)  # more than there are is refused here
        like = next(iter(federation.groups["all"].samples.values()))
        theta = stack([self.init(stream(s, "init"), like.dtype) for s in turn.seeds])
        theta = tree_map(lambda x: x.to(like.device), theta)
        sizes = federation.sizes.double()
        q = (sizes / sizes.sum(1, keepdim=True)).expand(len(turn.seeds), -1).clone()
        self.declare(turn)
        if self.silent:
            return {"q": q}, {"all": {"theta": for_each(theta, federation.num_clients)}}
        return {"theta": theta, "q": q}, {}

    def init(self, rng, dtype: torch.dtype) -> Parameters:
        """Fresh parameters of all that is sent and averaged."""
        return self.encoder.init(rng, dtype)

    def declare(self, turn: Turn) -> None:
        """What leaves the clients, for the privacy report."""
        turn.assume_public("how many samples each client holds; the mean and the deviation of all pixels")
        if self.silent:
            turn.nothing_leaves("every client keeps the encoder that it trains")
        else:
            turn.in_clear("the encoders that clients trained on their samples")

    def round(self, server: dict[str, Tree], turn: Turn) -> Round:
        """One round of FedAvg; every client alone where nothing is sent."""
        cohort = turn.cohort(self.config.sampler(turn.num_clients))
        if self.silent:
            yield Exchange(cohort, work=self.train)
            return server
        up = yield Exchange(cohort, down={"theta": server["theta"]}, work=self.train)
        return server | {"theta": self.averaged(server, cohort, up["theta"])}

    def averaged(self, server: Mapping[str, Tree], cohort: Cohort, theta: Tree) -> Tree:
        """The clients' parameters, averaged. Raises: Diverged."""
        _still_finite(theta)
        return weighted_mean(theta, self.weights(server, cohort))

    def weights(self, server: Mapping[str, Tree], cohort: Cohort) -> Tensor:
        """[S, m] weights of a cohort's clients; 0 where a place is empty."""
        shares = torch.gather(server["q"].cpu(), 1, cohort.ids) if self.config.average == "sizes" else 1.0
        return cohort.present.double() * shares

    # --- a client

    def train(self, local: Local) -> Reply:
        """E epochs from the encoder received (or one's own)."""
        theta = local.state["theta"] if self.silent else local.inbox["theta"]
        carry, loss = self.descend(local, theta, self.beside(local))
        theta = carry["theta"]
        if self.silent:
            _still_finite(theta)
        return Reply(
            upload={} if self.silent else {"theta": theta},
            state={"theta": theta} if self.silent else None,
            trace={"loss": loss},
        )

    def encode(self, theta: Mapping[str, Any], x: Tensor) -> Tensor:
        """z [B, H] of images [B, C, H, W], in the images' dtype whatever the precision."""
        if self.config.precision == "full":
            return self.encoder.apply(theta, x)
        with torch.autocast(x.device.type, torch.bfloat16):
            z = self.encoder.apply(theta, x)
        return z.to(x.dtype)

    def beside(self, local: Local) -> dict[str, Tree]:
        """What the loss needs besides the trained parameters, tensors [R, ...]."""
        return {}

    def objective(self, theta: Mapping[str, Any], views: Tensor, weight: Tensor) -> Tensor:
        """A batch's loss; ``theta`` also holds what :meth:`beside` gave."""
        raise NotImplementedError

    def loss(self, local: Local) -> tuple[BatchLoss, float | None]:
        """The loss of a batch as the steps take it, and what they keep of running statistics (None: there are none)."""
        count = 2 * self.config.pairs

        def loss(parameters: Mapping[str, Any], batch: Mapping[str, Tensor]) -> Tensor:
            return self.objective(parameters, *self.views.of(batch, count))

        return loss, None

    def descend(
        self, local: Local, theta: Parameters, fixed: Mapping[str, Tree] | None = None, after: Callable | None = None
    ) -> tuple[dict[str, Tree], Tensor]:
        """Local epochs of SGD: all that the steps carry ("theta", "fixed") and the mean loss [R].

        ``fixed``: further tensors [R, ...] for the loss, not trained. ``after(carry)`` runs after each step and may
        change ``carry["fixed"]`` in place (a moving target).
        """
        c, (loss, keep) = self.config, self.loss(local)
        batches = self.plan_batches(local)
        data, batches = self.views.batches(local.data, batches, local.streams("views"), 2 * c.pairs)
        step = sgd(loss, c.rate(local.t), c.momentum, c.weight_decay, max_norm=c.max_norm or math.inf, keep=keep)
        if after is not None:
            step = _and_then(step, after)
        carry: dict[str, Tree] = {"theta": theta}
        if c.momentum:
            carry["velocity"] = tree_map(torch.zeros_like, theta)
        if fixed:
            carry["fixed"] = dict(fixed)
        return local_steps(step, carry, data, batches, how=local.how, chunk=local.chunk)

    def represent(self, theta: Parameters, x: Tensor, how: str) -> Tensor:
        """z [R, n, H] of x [R, n, C, H, W], every client by its own parameters [R, ...]; ``how`` as in local_steps."""
        return each_client(self.encode, theta, x, how=how)

    def plan_batches(self, local: Local) -> Batches:
        """The samples of each step."""
        return epochs(local.data, local.streams("batches"), self.config.local_epochs, self.config.batch_size)


class NobodyTrains:
    """What makes a method a control that leaves every model as it was drawn; it stands before the method's class."""

    def declare(self, turn: Turn) -> None:
        """Nothing is sent."""
        turn.nothing_leaves("nobody trains")

    def round(self, server: dict[str, Tree], turn: Turn) -> Round:
        """No exchange."""
        return server
        yield


def refuse_batch_norm(encoder: Encoder, name: str) -> None:
    """For methods whose loss is of single samples: their steps would train running statistics as if they were weights.

    Raises: ValueError.
    """
    if encoder.normalised:
        raise arguments.wrong(ValueError, "projector", "batch_norm", f"mlp, linear or none with the method {name}")


def _still_finite(theta: Tree) -> None:
    """Raises: Diverged."""
    if not all(bool(x.isfinite().all()) for _, x in leaves(theta)):
        raise Diverged("a client's encoder is no longer finite (a smaller step size lr may help)")


def _and_then(step: Step, after: Callable) -> Step:
    def update(carry: Tree, direction: Tree) -> None:
        step.update(carry, direction)
        after(carry)

    return replace(step, update=update, together=None, still=())

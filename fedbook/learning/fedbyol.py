"""BYOL across clients: FedAvg+BYOL, FedU and FedEMA. Baselines of chapter 1, methods of chapter 2.

A client's online network (encoder and predictor) predicts from one view of a sample what its target makes of another
view. The target is an encoder of the same form that follows the online one slowly and is never trained. The methods
differ in what a client makes of the model that it receives: it takes all of it, or keeps some of its own.

Source: Grill et al., "Bootstrap your own latent" (2020); Chen, He, "Exploring simple Siamese representation learning"
(2021); Zhuang et al., "Collaborative unsupervised visual representation learning from decentralized data" (FedU,
2021) and "Divergence-aware federated self-supervised learning" (FedEMA, 2022).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedbook.federation.exchange import Local, Reply
from fedbook.federation.loop import Turn
from fedbook.federation.population import Federation
from fedbook.federation.tree import Tree, for_each, per_row, tree_map
from fedbook.learning.encoders import KEEP, Encoder
from fedbook.learning.models import Parameters
from fedbook.learning.online import PREDICTOR, Online, follow, online, without_predictor
from fedbook.learning.self_supervised import BatchLoss, SelfSupervised, Training
from fedbook.learning.views import Views
from fedbook.settings import other_than, setting

NEVER = -2  # the last round of a client that never trained: not even the one before round 0


class Config(Training):
    """Settings of BYOL's kin beside those of every self-supervised method."""

    target_decay: float = setting(
        0.99, "m", "after each step the target becomes m target + (1 - m) online", "0: a copy, 1: never changes",
        minimum=0.0, maximum=1.0, needs={"method": other_than("fedsimsiam"), "loss": ("byol",)},
    )  # fmt: skip
    target: str = setting(
        "global", None, "a client's target: the encoder received, or its own from round to round (FedU, FedEMA always)",
        choices=("global", "local"),
        needs={"method": ("fedavg-byol", "fedbyol", "centralized-byol"), "loss": ("byol",)},
    )  # fmt: skip
    loss: str = setting("byol", None, "simsiam: the online encoder is its own target", choices=("byol", "simsiam"))
    directions: str = setting(
        "sum", None, "of the two in which a pair of views is compared; mean: half of BYOL's", choices=("sum", "mean")
    )
    predictor_hidden: int = setting(0, None, "hidden units of the predictor (FedX: of its head)",
                                    "0: twice its width", minimum=0)  # fmt: skip
    fedu_threshold: float = setting(
        0.4, None, "FedU takes the global predictor where the divergence is below it", "0: never again, inf: always",
        minimum=0.0, infinite=True, needs={"method": ("fedu",)},
    )  # fmt: skip
    fedema_tau: float = setting(0.7, "tau", "share of the own model at FedEMA's first mix", "0: none", minimum=0.0,
                                needs={"method": ("fedema",)})  # fmt: skip


def online_network(config: Config, encoder: Encoder) -> Online:
    """The network that the settings name on an encoder."""
    return online(encoder, config.predictor_hidden, config.loss, config.directions, config.precision)


def divergence(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Tensor:
    """How far two encoders are apart: the mean over their weight matrices and kernels of the L2 distance.

    Biases, scales and the predictor do not count. The papers write one norm over all parameters, their public code the
    mean over the convolutions; this one for both methods.
    Shapes: parameters [R, ...]; result [R]. Source: Zhuang et al. 2021, equation of the divergence; 2022, equation 3.
    """
    weights = [name for name, p in without_predictor(a).items() if p.ndim > 2]  # [R, out, in, ...]
    return torch.stack([(a[name] - b[name]).flatten(1).norm(dim=1) for name in weights]).mean(0)


def chosen(which: Tensor, yes: Tree, no: Tree) -> Tree:
    """Row by row from ``yes`` where ``which`` [R], else from ``no``; leaves [R, ...]."""
    return tree_map(lambda a, b: torch.where(per_row(which, a), a, b), yes, no)


class FedBYOL(SelfSupervised):
    """FedAvg of encoder and predictor under BYOL's loss, or SimSiam's; the target is not sent.

    Server: ``theta``, encoder and predictor. A client keeps ``last``, the round in which it trained last, and with an
    own target ``target``, an encoder; FedU and FedEMA also its last ``theta``. Memory of that: S K parameters for each
    of the two, whether clients take part or not.
    """

    own_target = False  # a client's target outlives the round, whatever the settings say
    own_model = False  # a client keeps the model that it trained

    def __init__(self, config: Config, encoder: Encoder, views: Views, name: str = "fedavg-byol"):
        super().__init__(config, encoder, views, name)
        self.net = online_network(config, encoder)
        self.moving = self.net.moving
        self.keeps_target = self.moving and (self.own_target or config.target == "local")

    # --- the server

    def init(self, rng, dtype: torch.dtype) -> Parameters:
        """Fresh encoder and predictor."""
        return self.net.init(rng, dtype)

    def start(self, federation: Federation, turn: Turn) -> tuple[dict[str, Tree], dict[str, Tree]]:
        """theta^0, and room for what every client will keep."""
        server, _ = super().start(federation, turn)
        theta, seeds, clients = server["theta"], len(turn.seeds), federation.num_clients
        own: dict[str, Tree] = {}
        if self.keeps_target:
            own["target"] = without_predictor(theta)
        if self.own_model:
            own["theta"] = theta
        memory = self.memory(seeds, clients, next(iter(theta.values())))
        return server, {"all": for_each(own, clients) | memory} if own else {}

    def memory(self, seeds: int, clients: int, like: Tensor) -> dict[str, Tensor]:
        """What a client keeps besides models, [S, K, ...]."""
        return {"last": torch.full((seeds, clients), NEVER, device=like.device)}

    def declare(self, turn: Turn) -> None:
        """Encoder and predictor go out in clear."""
        super().declare(turn)
        if self.name == "centralized-byol":
            turn.in_clear("the samples: they all lie in one place")
        turn.in_clear("the predictors that clients trained on their samples")

    # --- a client

    def receive(self, local: Local) -> tuple[Parameters, dict[str, Tree], dict[str, Tensor]]:
        """What a client starts from: the model [R, ...]; what changes in its state by that; a trace."""
        return local.inbox["theta"], {}, {}

    def train(self, local: Local) -> Reply:
        """E epochs; the target follows after each step."""
        theta, changed, trace = self.receive(local)
        fixed: dict[str, Tree] = {}
        if self.moving:
            fixed["target"] = without_predictor(local.inbox["theta"])
        if self.keeps_target:
            fixed["target"] = chosen(local.state["last"] >= 0, local.state["target"], fixed["target"])
        carry, loss = self.descend(local, theta, fixed, after=self.follow if self.moving else None)
        trace |= {"loss": loss}
        if not local.state:
            return Reply(upload={"theta": carry["theta"]}, trace=trace)
        changed |= {"last": torch.full_like(local.state["last"], local.t)}
        if self.keeps_target:
            changed |= {"target": carry["fixed"]["target"]}
        if self.own_model:
            changed |= {"theta": carry["theta"]}
        return Reply(upload={"theta": carry["theta"]}, state={**local.state, **changed}, trace=trace)

    def follow(self, carry: Mapping[str, Tree]) -> None:
        """target <- m target + (1 - m) online, in place."""
        follow(carry, self.config.target_decay)

    def objective(self, theta: Mapping[str, Any], views: Tensor, weight: Tensor) -> Tensor:
        """The loss on a batch."""
        return self.net.objective(theta, views, weight)[0]

    def loss(self, local: Local) -> tuple[BatchLoss, float | None]:
        """With running statistics where heads are normalised."""
        if not self.encoder.normalised:
            return super().loss(local)
        count = 2 * self.config.pairs
        return lambda theta, batch: self.net.objective(theta, *self.views.of(batch, count)), KEEP


class FedU(FedBYOL):
    """Own target; the encoder is always the global one, the predictor only where the encoder moved little.

    ``divergence`` is that of the encoder received from the client's after its last training. First participation:
    everything is the global one. Source: Zhuang et al. 2021, divergence-aware predictor update.
    """

    own_target = own_model = True

    def receive(self, local: Local) -> tuple[Parameters, dict[str, Tree], dict[str, Tensor]]:
        """The global encoder with the global predictor or the client's own."""
        theta, own = local.inbox["theta"], local.state["theta"]
        knows, apart = local.state["last"] >= 0, divergence(theta, own)
        keep = knows & ~(apart < self.config.fedu_threshold)
        received = {name: chosen(keep, own[name], p) if name.startswith(PREDICTOR) else p for name, p in theta.items()}
        return received, {}, {"divergence": torch.where(knows, apart, 0.0), "predictor_kept": keep.to(apart)}


class FedEMA(FedBYOL):
    """Own target; encoder and predictor become a mean of the own and the global model.

    W <- kappa W_own + (1 - kappa) W_global with kappa = min(lambda d, 1), d as for :class:`FedU`. ``strength``, the
    client's lambda, is tau / d of the first mix, which so has kappa = min(tau, 1); -1 before. A client that was absent
    in the round before takes the global model. Source: Zhuang et al. 2022, Algorithm 1.
    """

    own_target = own_model = True

    def memory(self, seeds: int, clients: int, like: Tensor) -> dict[str, Tensor]:
        """Also lambda."""
        return super().memory(seeds, clients, like) | {"strength": like.new_full((seeds, clients), -1.0)}

    def receive(self, local: Local) -> tuple[Parameters, dict[str, Tree], dict[str, Tensor]]:
        """The mean of the client's own and the global model."""
        theta, own, strength = local.inbox["theta"], local.state["theta"], local.state["strength"]
        apart = divergence(theta, own)
        mixes = (local.state["last"] == local.t - 1) & (apart > 0)
        strength = torch.where(mixes & (strength < 0), self.config.fedema_tau / apart, strength)
        kappa = torch.where(mixes, (strength * apart).clamp(max=1.0), 0.0)

        def mixed(mine: Tensor, new: Tensor) -> Tensor:
            return torch.lerp(new, mine, per_row(kappa, new))

        trace = {"divergence": torch.where(mixes, apart, 0.0), "own_share": kappa}
        return tree_map(mixed, own, theta), {"strength": strength}, trace


METHODS = {"fedavg-byol": FedBYOL, "fedu": FedU, "fedema": FedEMA}

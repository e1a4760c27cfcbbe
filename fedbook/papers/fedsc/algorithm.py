"""Chapter 1: FedSC, spectral contrast across clients, and the methods that it is compared with.

S. Jing, A. Yu, S. Zhang, S. Zhang: "FedSC: Provable Federated Self-supervised Learning with Spectral Contrastive
Objective over Non-i.i.d. Data", Algorithms 1 and 2.

Every client keeps its images. In round t the clients that take part send the second moments of their representations
(Algorithm 2), the server adds them up, and each contrasts its own samples with its own and, through the others'
matrix, with everybody's. FedAvg+SC, centralised and local training are the same code with nothing exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedbook import arguments, randomness
from fedbook.compression import UpperTriangle, triangle_wire
from fedbook.federation.cohort import Cohort, Everyone
from fedbook.federation.exchange import Chain, Diverged, Exchange, Local, Reply, Round
from fedbook.federation.loop import Turn
from fedbook.federation.population import Federation, Rows
from fedbook.federation.tree import Tree, tree_map
from fedbook.learning.encoders import Encoder
from fedbook.learning.self_supervised import NobodyTrains, SelfSupervised, Training, refuse_batch_norm
from fedbook.learning.views import Views
from fedbook.papers.fedsc.matrix_privacy import matrix_sensitivity, matrix_sigma
from fedbook.papers.fedsc.spectral import norm_clip, spectral_loss
from fedbook.privacy.release import Release
from fedbook.settings import other_than, setting

SAMPLES = 512  # of a client at a time in Algorithm 2


class Config(Training):
    """Settings of FedSC beside those of every self-supervised method."""

    mu: float = setting(4.0, "mu", "representations are clipped to squared length mu in Algorithm 2", "inf: nowhere",
                        above=0.0, infinite=True)  # fmt: skip
    clip_in_loss: bool = setting(True, None, "whether they are clipped in the loss too")
    coefficient: str = setting(
        "schedule", "alpha_j",
        "weight of one's own matrix in (80): schedule falls linearly from 1 (the experiments), q is the client's share "
        "of the data (the analysis, (5)), one is FedAvg+SC",
        choices=("schedule", "q", "one"), needs={"method": ("fedsc",)},
    )  # fmt: skip
    coefficient_end: float = setting(0.2, None, "where the schedule ends", "1: FedAvg+SC", maximum=1.0, above=0.0,
                                     needs={"method": ("fedsc",), "coefficient": ("schedule",)})  # fmt: skip
    matrix_views: int = setting(5, "V", "views of a sample in Algorithm 2", minimum=1, needs={"method": ("fedsc",)})
    share_from: int = setting(0, None, "first round in which matrices are sent; alpha is 1 before", minimum=0,
                              needs={"method": ("fedsc",)})  # fmt: skip
    share_every: int = setting(1, None, "rounds from one sending of matrices to the next", minimum=1,
                               needs={"method": ("fedsc",)})  # fmt: skip
    sigma: float = setting(0.0, "sigma", "deviation of the noise on each entry of a matrix", "0: none",
                           minimum=0.0, maximum=1e30, needs={"method": ("fedsc",)})  # fmt: skip
    epsilon: float = setting(
        0.0, "epsilon",
        "with sigma 0: the smallest sigma with which the smallest client's matrices cost no more, if it sends one in "
        "each sharing round", "0: no noise", minimum=0.0, maximum=1e9, needs={"method": ("fedsc",), "sigma": (0.0,)},
    )  # fmt: skip
    delta: float = setting(1e-2, "delta", "at which privacy is counted", above=0.0, below=1.0)
    adjacency: str = setting("replace_one", None, "what hides a record", choices=("replace_one", "zero_out"),
                             needs={"method": ("fedsc",)})  # fmt: skip
    accountant: str = setting("exact", None, "where sigma comes from; paper: Proposition 6.6",
                              choices=("exact", "paper"),
                              needs={"method": ("fedsc",), "epsilon": other_than(0.0), "sigma": (0.0,)})  # fmt: skip
    noise: str = setting(
        "symmetric", None,
        "symmetric: the symmetric part of the noised matrix is sent, half the bytes and half the noise's energy; "
        "paper: all H^2 entries",
        choices=("symmetric", "paper"), needs={"method": ("fedsc",)},
    )  # fmt: skip
    server_sum: str = setting(
        "all", None, "uploads of a round that count; paper: line 14 read literally, where only the last client's does",
        choices=("all", "paper"), needs={"method": ("fedsc",)},
    )  # fmt: skip

    def cross_check(self) -> None:
        """Noise needs a clip. Raises: ValueError."""
        if (self.sigma or self.epsilon) and math.isinf(self.mu):
            raise arguments.wrong(ValueError, "mu", self.mu, "a finite bound where noise is added")

    def shares(self, t: int) -> bool:
        """Whether matrices are sent in round t."""
        return t >= self.share_from and (t - self.share_from) % self.share_every == 0

    @property
    def sharing_rounds(self) -> int:
        """Rounds in which matrices are sent, of all ``rounds``."""
        return len(range(self.share_from, self.rounds, self.share_every))

    def alpha(self, t: int, q: Tensor) -> Tensor:
        """alpha_j of clients with shares ``q`` [R] in round t; 1 before the first matrices and for a client alone."""
        if self.coefficient == "q":
            alpha = q
        else:
            fallen = t / max(self.rounds - 1, 1) if self.coefficient == "schedule" else 0.0
            alpha = torch.full_like(q, 1 - (1 - self.coefficient_end) * fallen)
        return torch.where((q >= 1) | (t < self.share_from), torch.ones_like(q), alpha)

    def noise_for(self, smallest: int) -> float:
        """``sigma``, or what ``epsilon`` asks for where the smallest client has so many samples; 0: no noise."""
        if not self.epsilon or self.sigma or not self.sharing_rounds:
            return self.sigma
        return matrix_sigma(
            self.epsilon, self.mu, smallest, self.sharing_rounds, self.delta, adjacency=self.adjacency,
            accountant=self.accountant,
        )  # fmt: skip


class FedSC(SelfSupervised):
    """Algorithm 1 with Algorithm 2; with ``shares`` False FedAvg+SC, or with one client centralised training.

    Server: ``theta``, ``q``; ``table`` [S, K, H, H] the last upload of every client, ``matrix`` [S, H, H] their q-mean,
    in float64, ``uploads`` [S, K] (T_j) and ``sigma`` [S], the noise of each federation: a run must not depend on who
    runs beside it. A client keeps its last ``matrix``, its ``q`` and ``sigma``. Memory of the matrices:
    2 K H^2 numbers a seed, of clients and server together; the server's part is copied once in a round with uploads,
    all other work grows with the cohort.
    """

    def __init__(
        self, config: Config, encoder: Encoder, views: Views, name: str = "fedsc", shares: bool = True,
        silent: bool = False,
    ):  # fmt: skip
        super().__init__(config, encoder, views, name)
        refuse_batch_norm(encoder, name)
        if shares and config.share_from >= config.rounds > 0:  # it would be FedAvg+SC, and epsilon not asked for
            raise arguments.wrong(ValueError, "share_from", config.share_from, f"below rounds, {config.rounds}")
        self.shares, self.silent = shares, silent

    # --- the server

    def start(self, federation: Federation, turn: Turn) -> tuple[dict[str, Tree], dict[str, Tree]]:
        """theta^0, and no matrices yet."""
        server, clients = super().start(federation, turn)
        if not self.shares:
            return server, clients
        if self.noisy:
            federation.require_each_sample_once()
        sizes = federation.sizes.expand(len(turn.seeds), -1)
        smallest = sizes.amin(1).tolist()
        known = {n: self.config.noise_for(n) for n in set(smallest)}
        sigma = torch.tensor([known[n] for n in smallest], dtype=torch.float64)
        seeds, k, h = *sizes.shape, self.encoder.width
        like = next(iter(server["theta"].values()))
        table, uploads = like.new_zeros(seeds, k, h, h), torch.zeros(seeds, k, dtype=torch.long)
        server |= {"table": table, "matrix": table[:, 0].double(), "uploads": uploads, "sigma": sigma}
        own = {"matrix": table.clone(), "q": server["q"].to(like), "sigma": sigma[:, None].repeat(1, k)}
        return server, {"all": own}

    def declare(self, turn: Turn) -> None:
        """The encoders go out in clear, whatever the noise on the matrices."""
        super().declare(turn)
        if self.name == "centralized-sc":
            turn.in_clear("the samples: they all lie in one place")
        if self.shares and not self.noisy and self.config.sharing_rounds:
            turn.in_clear("the clients' correlation matrices, without noise")

    def round(self, server: dict[str, Tree], turn: Turn) -> Round:
        """Algorithm 1."""
        c = self.config
        if not self.shares or turn.t < c.share_from:
            return (yield from super().round(server, turn))
        trainers = turn.cohort(self.config.sampler(turn.num_clients))  # line 3
        down = {"theta": server["theta"]}
        if c.shares(turn.t):
            senders = turn.cohort(Everyone()) if turn.t == c.share_from else trainers  # lines 4-7, 11
            if self.noisy:
                self.account(senders, turn, server["sigma"].tolist())
            chain = {"matrix": Chain(codec=UpperTriangle())} if self.symmetric else {}
            up = yield Exchange(senders, down=down, work=self.upload_matrix, chain=chain, name="matrices")
            literal = c.server_sum == "paper" and turn.t > c.share_from
            server = self.merge(server, senders, up["matrix"], literal)  # lines 9, 14-17
        matrix = server["matrix"].to(server["table"].dtype)
        if self.symmetric:  # sums of symmetric matrices are so up to rounding
            matrix = (matrix + matrix.mT) / 2
        down = down | {"matrix": triangle_wire(matrix) if self.symmetric else matrix}
        held = ("theta",) if c.shares(turn.t) else ()
        up = yield Exchange(trainers, down=down, held=held, work=self.train)  # lines 18-22
        return server | {"theta": self.averaged(server, trainers, up["theta"])}  # line 23

    @property
    def noisy(self) -> bool:
        """Whether the matrices get noise."""
        return bool(self.config.sigma or self.config.epsilon)

    @property
    def symmetric(self) -> bool:
        """Whether what is sent is symmetric: without noise, or with the symmetric part of it."""
        return self.config.noise == "symmetric" or not self.noisy

    @property
    def subtracts_own(self) -> tuple[str, ...]:
        """The uploads of which a client takes off its own part of the average (line 20)."""
        return ("matrix",) if self.shares else ()

    def merge(self, server: dict[str, Tree], senders: Cohort, new: Tensor, literal: bool) -> dict[str, Tree]:
        """The table and its q-mean with this round's uploads [S, m, H, H]; the others' entries stay (stale).

        ``literal``: every line 14 starts from the old mean, so the last client's change is what remains.
        """
        slot, place = torch.nonzero(senders.present, as_tuple=True)
        ids = senders.ids[slot, place]
        table, uploads, fresh = server["table"].clone(), server["uploads"].clone(), new[slot, place]
        uploads[slot, ids] += 1
        q = server["q"][slot, ids].to(new.device)[:, None, None]
        change = server["matrix"].new_zeros(new.shape)  # a place a client: the order of the sum is always the same
        change[slot, place] = q * (fresh.double() - table[slot, ids].double())
        table[slot, ids] = fresh
        if literal:
            change = change[torch.arange(len(change)), senders.sizes - 1][:, None]
        matrix = server["matrix"] + change.sum(1)
        return server | {"table": table, "matrix": matrix, "uploads": uploads}

    def account(self, senders: Cohort, turn: Turn, sigmas: Sequence[float]) -> None:
        """Enter the noised matrices: a record moves a client's matrix by an amount that depends on its size."""
        c, whose = self.config, {}
        for slot, sigma in enumerate(sigmas):
            for client in senders.members(slot).tolist():
                kind = int(turn.sizes[slot, client]), sigma
                whose.setdefault(kind, [[] for _ in turn.seeds])[slot].append(client)
        for (size, sigma), clients in whose.items():
            sensitivity = matrix_sensitivity(c.mu, size, c.adjacency)
            release = Release(
                what="the noised correlation matrix of a client's representations", unit="record",
                adjacency=c.adjacency, noise_multiplier=sigma / sensitivity, sensitivity=sensitivity, trust="none",
                released_by="client",
            )  # fmt: skip
            turn.release(release, Cohort.of([torch.tensor(ids, dtype=torch.long) for ids in clients]))

    # --- a client

    @torch.no_grad()
    def upload_matrix(self, local: Local) -> Reply:
        """Algorithm 2, DP-CalR: the mean of z z^T over all of a client's samples and V views, clipped, plus noise.

        Memory: the views of ``SAMPLES`` samples of each of ``local.chunk`` clients. Raises: Diverged.
        """
        c, sizes, rngs = self.config, local.data.sizes, local.streams("matrix views")
        like, width = next(iter(local.inbox["theta"].values())), self.encoder.width
        total, clipped = like.new_zeros(len(sizes), width, width), like.new_zeros(len(sizes))
        longest_first = torch.argsort(sizes, descending=True, stable=True)
        for start in range(0, int(sizes.max()), SAMPLES):
            left = longest_first[sizes[longest_first] > start]
            for rows in left.split(local.chunk or len(left)):
                columns = slice(start, min(start + SAMPLES, int(sizes[rows[0]])))
                data = Rows(local.data.samples, local.data.table[rows], sizes[rows])
                x, weight = self.views.some(data, columns, [rngs[r] for r in rows], c.matrix_views)  # [r, n, V, ...]
                theta, here = tree_map(lambda p, rows=rows: p[rows], local.inbox["theta"]), rows.to(like.device)
                z = self.represent(theta, x.flatten(1, 2), local.how).unflatten(1, x.shape[1:3])
                w = weight[:, :, None, None]
                square = z.square().sum(-1, keepdim=True)
                clipped[here] += ((square > c.mu) * w).sum((1, 2, 3))
                # line 5; padded rows count nothing, nor, in a private upload, rows of no direction: an end would tell
                counts = (w > 0) & z.isfinite().all(-1, keepdim=True) if self.noisy else w > 0
                z = torch.where(counts, norm_clip(z, c.mu), 0.0).flatten(1, 2)
                total[here] += z.mT @ z  # line 6
        shown = sizes.to(total) * c.matrix_views
        matrix = total / shown[:, None, None]
        if not bool(matrix.isfinite().all()):
            raise Diverged("a client's representations are no longer finite (a smaller step size lr may help)")
        if self.noisy:  # line 8
            sigma = local.state["sigma"].to(matrix)
            noise = [randomness.normal(matrix.shape[1:], rng, matrix) for rng in local.noise_streams("matrix noise")]
            matrix = matrix + sigma[:, None, None] * torch.stack(noise)
        if self.symmetric:  # free: the loss sees the symmetric part only
            matrix = (matrix + matrix.mT) / 2
        state = {**local.state, "matrix": matrix}
        trace = {"clipped": clipped / shown, "matrix_norm": matrix.flatten(1).norm(dim=1)}
        return Reply(upload={"matrix": matrix}, state=state, trace=trace)

    def beside(self, local: Local) -> dict[str, Tree]:
        """alpha_j [R] and the others' mean matrix [R, H, H], its own noisy upload taken out; both frozen."""
        if "matrix" not in local.inbox:
            return {}
        q = local.state["q"]
        others = local.inbox["matrix"] - q[:, None, None] * local.state["matrix"]  # line 20
        rest = torch.where(q < 1, 1 - q, torch.ones_like(q))  # a client alone has no others, and alpha 1
        return {"alpha": self.config.alpha(local.t, q), "others": others / rest[:, None, None]}

    def objective(self, theta: Mapping[str, Any], views: Tensor, weight: Tensor) -> Tensor:
        """Equation (5), or (80), on a batch (42); without matrices the loss of FedAvg+SC."""
        theta = dict(theta)
        alpha, others = theta.pop("alpha", 1.0), theta.pop("others", None)
        z = self.encode(theta, views.flatten(0, 1))
        z = norm_clip(z, self.config.mu if self.config.clip_in_loss else math.inf)
        return spectral_loss(z.unflatten(0, views.shape[:2]), alpha, others, weight).total


class Untrained(NobodyTrains, SelfSupervised):
    """The controls: an encoder as it was drawn, or no encoder at all."""

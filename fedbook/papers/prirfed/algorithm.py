"""Chapter 3: PriRFed, private federated learning on Riemannian manifolds, and its baselines.

Z. Huang, W. Huang, P. Jawanpuria, B. Mishra: "Federated Learning on Riemannian Manifolds with Differential
Privacy", Algorithms 1, 2 and 3.

The server holds a point x of a manifold. In round t every sampled agent starts from x, takes noisy steps along
geodesics on its own records (Algorithm 2 or 3) and sends the point it reaches; the server averages the points in
the tangent space at x and goes there. A method is a row of METHODS, not a loop of its own.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.federation.checkpoint import identity
from fedbook.federation.cohort import Cohort, Everyone, FixedSize, Sampler
from fedbook.federation.exchange import Exchange, Local, Reply, Round, weighted_mean
from fedbook.federation.loop import Algorithm, Turn
from fedbook.federation.population import Federation
from fedbook.federation.tree import Tree, per_row
from fedbook.geometry import ambient_mean, frechet_mean, stepped, tangent_mean
from fedbook.papers.prirfed import local_call
from fedbook.papers.prirfed.losses import RecordLoss, Records, usable
from fedbook.papers.prirfed.participation import Guarantee, run_guarantee
from fedbook.privacy.release import Release
from fedbook.randomness import normal
from fedbook.settings import Settings, other_than, setting

MOST_EPSILON = 100.0  # of a call: beyond, nothing is promised
GATHERED = 2**29  # bytes of records that one batch of agents may gather


@dataclass(frozen=True)
class Method:
    """One row of the table: the local ``solver``, whether it clips and adds noise, on whose records it works.

    ``prox``: pulled back to the server's point. ``corrected``: with the server's gradient for the agent's own.
    ``pooled``: one machine that holds all records.
    """

    words: str
    solver: str
    private: bool = False
    prox: bool = False
    corrected: bool = False
    pooled: bool = False


METHODS: Mapping[str, Method] = {
    "dp-rsgd": Method("PriRFed with DP-RSGD (Algorithms 1 and 2)", "rsgd", True),
    "dp-rsvrg": Method("PriRFed with DP-RSVRG (Algorithms 1 and 3)", "rsvrg", True),
    "rfedavg": Method("PriRFed with RSGD without clip and noise: RFedAvg", "rsgd"),
    "rsvrg": Method("PriRFed with RSVRG without clip and noise", "rsvrg"),
    "rfedprox": Method("RFedAvg with a pull back to the server's point", "rsgd", prox=True),
    "rfedsvrg": Method("steps corrected by the gradient of all agents (Li and Ma)", "rsgd", corrected=True),
    "central-dp-rsgd": Method("Algorithm 2 on the pooled records of all agents", "rsgd", True, pooled=True),
    "central-dp-rsvrg": Method("Algorithm 3 on the pooled records of all agents", "rsvrg", True, pooled=True),
    "rgd": Method("Riemannian gradient descent on the pooled records, no noise", "rsgd", pooled=True),
}
PRIVATE = tuple(word for word, method in METHODS.items() if method.private)
REDUCED = tuple(word for word, method in METHODS.items() if method.solver == "rsvrg")
POOLED = tuple(word for word, method in METHODS.items() if method.pooled)


class Config(Settings):
    """Settings of every method.

    With ``scale`` "sum" gradients are of the sum over an agent's records; with ``sigma_rule`` "paper" they are under
    the noise for the mean, as in code that the paper builds on, which costs far more than ``epsilon_call`` (the report
    shows it).
    """

    rounds: int = setting(200, "T", "rounds of the federation", minimum=0)
    agents_per_round: int = setting(1, "s", "agents drawn in a round", "0: everyone", minimum=0,
                                    needs={"method": other_than(*POOLED)})  # fmt: skip
    local_steps: int = setting(3, "K", "steps of Algorithm 2, epochs of Algorithm 3", minimum=1)
    inner_steps: int = setting(
        0,
        "m",
        "inner steps of Algorithm 3, by default floor(10 N / 3)",
        "1: Algorithm 2 on all records",
        minimum=0,
        needs={"method": REDUCED},
    )
    batch_size: int = setting(0, "b", "records of a step of Algorithm 2", "0: all", minimum=0,
                              needs={"method": other_than(*REDUCED)})  # fmt: skip
    lr: float = setting(0.1, "alpha", "step size", "0: 1 / (2 L_g)", minimum=0.0)
    lr_power: float = setting(0.0, None, "the step of round t is lr / (t + 1)^lr_power", "0: constant",
                            minimum=0.0, maximum=10.0)  # fmt: skip
    clip_norm: float = setting(0.0, "tau", "longer gradients are clipped to it", "0: the problem's own", minimum=0.0,
                               needs=({"method": PRIVATE}, {"clip_without_noise": (True,)}))  # fmt: skip
    clip_gradient: float = setting(0.0, "tau_0", "of Algorithm 3; a value unlike tau makes its steps biased", "0: tau",
                                   minimum=0.0, maximum=1e12,
                                   needs=({"method": tuple(word for word in REDUCED if word in PRIVATE)},
                                          {"method": REDUCED, "clip_without_noise": (True,)}))  # fmt: skip
    clip_without_noise: bool = setting(False, None, "whether methods without noise clip too",
                                       needs={"method": other_than(*PRIVATE)})  # fmt: skip
    epsilon_call: float = setting(0.15, "epsilon", "what ONE local call may cost one record", maximum=100.0, above=0.0,
                                  needs={"method": PRIVATE, "sigma": (0.0,)})  # fmt: skip
    delta_call: float = setting(1e-4, "delta", "at which that is counted", above=0.0, below=1.0,
                                needs={"method": PRIVATE})  # fmt: skip
    sigma_rule: str = setting("calibrated", None, "the noise that keeps it; paper: the published formula",
                              choices=("calibrated", "paper"), needs={"method": PRIVATE, "sigma": (0.0,)})  # fmt: skip
    noise_constant: float = setting(1.0, "o", "constant of the published formula", above=0.0,
                                    needs={"method": PRIVATE, "sigma_rule": ("paper",), "sigma": (0.0,)})  # fmt: skip
    sigma: float = setting(0.0, "sigma", "the noise itself", "0: from the rule", minimum=0.0)
    aggregation: str = setting("tangent", None, "tangent: equation (3.2); frechet: (3.1), iterated",
                               choices=("tangent", "frechet", "ambient"))  # fmt: skip
    option: str = setting(
        "last", None,
        "last: Option 1; random: Option 2 as the proofs need it, the run goes on from the last points and the one "
        "reported is drawn from all inner ones; paper: Option 2 as printed, it goes on from the drawn points",
        choices=("last", "random", "paper"),
    )  # fmt: skip
    scale: str = setting("mean", None, "gradients over an agent's records", choices=("mean", "sum"))
    prox: float = setting(0.1, "mu", "pull of RFedProx to the server's point", "0: RFedAvg", minimum=0.0,
                          needs={"method": ("rfedprox",)})  # fmt: skip
    accountant: str = setting(
        "participation", None,
        "participation: sound, always reported; beside it, as epsilon_claimed, paper: Theorem 4.2",
        choices=("participation", "paper", "paper_parallel"), needs={"method": PRIVATE},
    )  # fmt: skip
    delta: float = setting(0.0, None, "of the whole run", "0: delta_call", minimum=0.0, below=1.0,
                           needs={"method": PRIVATE})  # fmt: skip
    budget: float = setting(0.0, None, "the epsilon that ends the run", "0: none", minimum=0.0)

    def sampler(self, num_agents: int) -> Sampler:
        """The sampler that these settings mean among ``num_agents``."""
        if self.agents_per_round in (0, num_agents):
            return Everyone()
        arguments.integer("agents_per_round", self.agents_per_round, 1, num_agents)
        return FixedSize(self.agents_per_round)

    def step(self, t: int) -> float:
        """alpha_t."""
        return self.lr / (t + 1) ** self.lr_power


# --- Algorithms 2 and 3: plain functions of tensors; they yield each point that they reach


def rsgd(
    loss: RecordLoss, x: Tensor, batches: Callable[[int], tuple[Records, Tensor]], steps: int, lr: float, bound: float,
    noise: Callable[[int, Tensor], Tensor], also: Callable[[Tensor], Tensor] | None = None, scale: Tensor | float = 1.0,
) -> Iterator[Tensor]:  # fmt: skip
    """Algorithm 2, DP-RSGD: the points x_{i,1}, ..., x_{i,K}, each [R, *point].

    ``batches(k)``: the records of step k [R, b, ...] and their weights [R, b] (1/b). ``noise(k, x)``: tangent vectors
    [R, *point] (zero: RSGD). ``also(x)`` is added to the gradient (RFedProx, RFedSVRG). ``scale`` multiplies the mean.
    """
    manifold = loss.manifold
    for k in range(steps):  # line 2
        records, weights = batches(k)  # line 3
        eta = scale * loss.clipped_mean(x, records, weights, bound) + noise(k, x)  # line 4
        if also is not None:
            eta = eta + also(x)
        x = stepped(manifold, x, -lr * eta)  # line 5
        yield x


def rsvrg(
    loss: RecordLoss, x: Tensor, everything: tuple[Records, Tensor], picks: Callable[[int], Records], epochs: int,
    inner_steps: int, lr: float, bound_gradient: float, bound_record: float, noise: Callable[[int, Tensor], Tensor],
    scale: Tensor | float = 1.0,
) -> Iterator[Tensor]:  # fmt: skip
    """Algorithm 3, DP-RSVRG: the points x_{k+1,j+1} in order, K m of them, each [R, *point].

    ``everything``: all records [R, n, ...] and weights [R, n] (1/N_i, 0 beyond). ``picks(k)``: the records of epoch
    k's inner steps [R, m, ...]. ``noise(step, x)`` as in :func:`rsgd`, steps counted through.
    """
    manifold, ndim = loss.manifold, loss.manifold.point_ndim
    ones = torch.ones(*x.shape[: x.ndim - ndim], 1, dtype=x.dtype, device=x.device)
    for k in range(epochs):  # line 2
        start, drawn = x, picks(k)  # line 3; line 6
        gradient = loss.clipped_mean(start, *everything, bound_gradient)  # line 4
        # what line 8 transports, for all inner steps at once: they all start from the same point
        many = {name: z.unsqueeze(2) for name, z in drawn.items()}
        spread = start.unsqueeze(1).expand(-1, inner_steps, *start.shape[1:])
        control = loss.clipped_mean(spread, many, ones[:, None].expand(-1, inner_steps, 1), bound_record)
        control = control - gradient.unsqueeze(1)
        for j in range(inner_steps):  # line 5
            one = {name: z[:, j : j + 1] for name, z in drawn.items()}
            eta = loss.clipped_mean(x, one, ones, bound_record)
            eta = eta - manifold.transport(start, x, control[:, j])
            x = stepped(manifold, x, -lr * (scale * eta + noise(k * inner_steps + j, x)))  # lines 7-9
            yield x


class PriRFed(Algorithm):
    """Algorithm 1 with every local solver and aggregation; S seeds side by side.

    ``start``: x^(0) for each seed, [S, *point], on the manifold. ``bound``: the default clip norm, public.
    ``smoothness`` (L_g) sets the default step. ``inner_steps``: m where the settings leave it open. ``public``: what
    the bound and the losses take as known to all. ``told``: what else tells this run from others on these records (the
    start, the word): such runs draw other noise, as published side by side they would give the gradients away.
    """

    kind = "other"

    def __init__(self, config: Config, loss: RecordLoss, start: Tensor, method: str = "dp-rsgd", *, bound: float = 1.0,
                 smoothness: float = 1.0, public: Sequence[str] = (), inner_steps: int = 1,
                 told: Mapping[str, Any] | None = None):  # fmt: skip
        self.told = dict(told or {})
        self.method = METHODS[arguments.one_of("method", method, METHODS)]
        self.name, self.loss, self.manifold, self.first = method, loss, loss.manifold, start
        self.public = tuple(public)
        self._calls: dict[int, tuple[float, tuple[local_call.Part, ...]]] = {}  # by an agent's number of records
        for name in ("sigma", "budget"):
            if not self.method.private and getattr(config, name):
                allowed = f"0 with the method {method}, which adds no noise"
                raise arguments.wrong(ValueError, name, getattr(config, name), allowed)
        if config.scale == "sum" and (self.method.prox or self.method.corrected):
            raise arguments.wrong(ValueError, "scale", "sum", f"mean with the method {method}")
        clips = self.method.private or config.clip_without_noise
        self.clip_norm = (config.clip_norm or bound) if clips else math.inf  # tau, tau_1
        self.clip_gradient = config.clip_gradient or self.clip_norm if clips else math.inf  # tau_0
        lr, inner_steps = config.lr or 0.5 / smoothness, config.inner_steps or inner_steps
        self.config = replace(config, lr=lr, inner_steps=inner_steps)

    def configuration(self) -> dict[str, Any]:
        """What a checkpoint must agree on."""
        clip = [self.clip_norm, self.clip_gradient]
        return identity(self.config, manifold=self.manifold.name, clip=clip, **self.told)

    def start(self, federation: Federation, turn: Turn) -> tuple[dict[str, Tree], dict[str, Tree]]:
        """x^(0), one a seed; agents keep nothing."""
        self.sampler(federation.num_clients)  # more than there are is refused here
        usable("start", self.manifold, self.first)  # the bounds on gradients hold for points of the manifold alone
        self.loss.require_records(federation.groups["all"].samples)
        if self.config.batch_size and self.method.solver == "rsgd":
            arguments.integer("batch_size", self.config.batch_size, 1, int(federation.sizes.min()))
        turn.assume_public("every agent's number of records")
        if self.method.private:
            federation.require_each_sample_once()
            for what in ("the clip norm and the step size", *self.public):
                turn.assume_public(what)
        elif self.method.pooled:
            turn.in_clear("all records, which lie in one place")
        else:
            turn.in_clear("the points that agents reach on their records")
            if self.method.corrected:
                turn.in_clear("the gradients of agents on their records")
        x = self.first.to(federation.device)
        return {"x": x} | ({} if self.config.option == "last" else {"report": x}), {}

    def sampler(self, num_agents: int) -> Sampler:
        """Who takes part; the only one where everything is pooled."""
        return Everyone() if self.method.pooled else self.config.sampler(num_agents)

    def round(self, server: dict[str, Tree], turn: Turn) -> Round:
        """Algorithm 1, one pass of its loop."""
        x = server["x"]
        cohort = turn.cohort(self.sampler(turn.num_clients))  # line 2: S_t
        down = {"x": x}
        for release, whose in self.releases(cohort, turn.sizes):  # first: a spent budget ends the run here
            turn.release(release, whose)
        if self.method.corrected:  # RFedSVRG: grad f(x) of all agents
            everyone = turn.cohort(Everyone())
            up = yield Exchange(everyone, down=down, work=self.send_gradient, name="gradients")
            down["gradient"] = weighted_mean(up["gradient"], _weights(everyone, turn.sizes))
        up = yield Exchange(cohort, down=down, work=self.solve)  # lines 3-4
        weights = cohort.present.double() if self.method.corrected else _weights(cohort, turn.sizes)
        server = server | {"x": self.aggregate(x, up["x"], weights)}  # line 5
        if self.config.option == "last":
            return server
        drawn = self.aggregate(x, up["report"], weights) if self.config.option == "random" else server["x"]
        return server | {"report": self._maybe(drawn, server["report"], turn)}  # line 6, Option 2

    def _maybe(self, new: Tensor, old: Tensor, turn: Turn) -> Tensor:
        """Option 2 without keeping all points: the new one with probability 1/(t+1) is uniform over all so far."""
        taken = torch.tensor([rng.random() * (turn.t + 1) < 1 for rng in turn.streams("option 2")], device=new.device)
        return torch.where(per_row(taken, new), new, old)

    def aggregate(self, x: Tensor, points: Tensor, weights: Tensor) -> Tensor:
        """The agents' points [S, m, *point] as one point for each seed. Source: equations (3.1), (3.2)."""
        weights = weights.to(x.device)
        points = torch.where(per_row(weights == 0, points), x.unsqueeze(1), points)
        weights = weights.to(x.dtype) / weights.sum(1, keepdim=True)
        if self.config.aggregation == "frechet":
            return frechet_mean(self.manifold, x, points, weights)[0]
        if self.config.aggregation == "ambient":
            return ambient_mean(self.manifold, points, weights)
        return tangent_mean(self.manifold, x, points, weights)

    # --- what an agent does

    def solve(self, local: Local) -> Reply:
        """PrivateLocalTraining(x, D_i, K, sigma_i, alpha_t): the last point, and a drawn one for Option 2."""
        upload = self._by_chunks(local, self._solve)
        return Reply(upload=upload, trace={"moved": self.manifold.dist(local.inbox["x"], upload["x"])})

    @staticmethod
    def _by_chunks(local: Local, work: Callable[[Local], dict[str, Tensor]]) -> dict[str, Tensor]:
        """``work`` on as many agents at a time as may gather their records."""
        width = local.data.table.shape[1] * sum(x[0].numel() * x.element_size() for x in local.data.samples.values())
        step = min(local.chunk or len(local.clients), max(1, GATHERED // max(1, width)))
        parts = [work(_some(local, slice(i, i + step))) for i in range(0, len(local.clients), step)]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def _solve(self, local: Local) -> dict[str, Tensor]:
        c, start, agent = self.config, local.inbox["x"], _Records(local, self.loss.broadcasts)
        noise, lr = self.noise(local), c.step(local.t)
        scale = per_row(agent.sizes, start).to(start) if c.scale == "sum" else 1.0
        if self.method.solver == "rsvrg":
            steps = c.local_steps * c.inner_steps
            drawn = [rng.integers(n, size=(c.local_steps, c.inner_steps)) for rng, n in agent.draws("records")]
            places = torch.from_numpy(np.stack(drawn))
            points = rsvrg(
                self.loss, start, agent.everything, lambda k: agent.at(places[:, k]), c.local_steps, c.inner_steps, lr,
                self.clip_gradient, self.clip_norm, noise, scale,
            )  # fmt: skip
        else:
            steps, also = c.local_steps, None
            if self.method.prox:
                also = lambda y: -c.prox * self.manifold.log(y, start, check=False)  # noqa: E731
            if self.method.corrected:  # Gamma (grad f_i(x) - grad f(x)), and the local gradient at y
                correction = self.loss.clipped_mean(start, *agent.everything, math.inf) - local.inbox["gradient"]
                also = lambda y: -self.manifold.transport(start, y, correction)  # noqa: E731
            batches = agent.batches(c.batch_size, steps)
            points = rsgd(self.loss, start, batches, steps, lr, self.clip_norm, noise, also, scale)
        if c.option != "last":
            return self._option_2(local, start, points, steps)
        return {"x": self.manifold.nearest(deque(points, maxlen=1).pop())}

    def _option_2(self, local: Local, x: Tensor, points: Iterator[Tensor], steps: int) -> dict[str, Tensor]:
        """A point drawn from the local ones: x_0..x_{K-1}, over which the proofs average; "paper": as printed."""
        printed = self.config.option == "paper" and self.method.solver == "rsgd"  # K + 1 points
        which = torch.tensor([int(rng.integers(steps + printed)) for rng in local.streams("option 2")], device=x.device)
        which, drawn = per_row(which, x), x
        for number, point in enumerate(points, start=1):
            x, drawn = point, torch.where(which == number, point, drawn)
        x, drawn = self.manifold.nearest(x), self.manifold.nearest(drawn)
        return {"x": drawn} if self.config.option == "paper" else {"x": x, "report": drawn}

    def noise(self, local: Local) -> Callable[[int, Tensor], Tensor]:
        """The tangent Gaussian of each step, sigma_i in an orthonormal basis; all zero for a method without noise.

        Memory: the numbers of all steps, R x steps x (numbers of one draw).
        """
        if not self.method.private:
            return lambda step, x: torch.zeros_like(x)
        c, x, manifold = self.config, local.inbox["x"], self.manifold
        steps = c.local_steps * (c.inner_steps if self.method.solver == "rsvrg" else 1)
        shape = (steps, manifold.noise_size(x))
        sizes = local.data.sizes.tolist()
        each = [normal(shape, rng).mul_(self.sigma(n)) for rng, n in zip(local.noise_streams(), sizes, strict=True)]
        drawn = torch.stack(each).to(x)  # [R, steps, size]
        return lambda step, x: manifold.tangent_gaussian(x, drawn[:, step])

    def send_gradient(self, local: Local) -> Reply:
        """grad f_i(x), for RFedSVRG."""

        def gradient(chunk: Local) -> dict[str, Tensor]:
            everything = _Records(chunk, self.loss.broadcasts).everything
            return {"gradient": self.loss.clipped_mean(chunk.inbox["x"], *everything, math.inf)}

        return Reply(upload=self._by_chunks(local, gradient))

    # --- privacy

    def sigma(self, records: int) -> float:
        """sigma_i of an agent with ``records`` records."""
        return self._call(records)[0] if self.method.private else 0.0

    def parts(self, records: int) -> tuple[local_call.Part, ...]:
        """What one call of an agent with ``records`` records releases, for the accountants."""
        return self._call(records)[1]

    def _call(self, records: int) -> tuple[float, tuple[local_call.Part, ...]]:
        if records not in self._calls:
            c, svrg = self.config, self.method.solver == "rsvrg"
            stretch = records if c.scale == "sum" else 1  # a sum moves N_i times as far as a mean
            clip, budget = stretch * self.clip_norm, (c.epsilon_call, c.delta_call)
            call = (records, stretch * self.clip_gradient, clip, c.local_steps, c.inner_steps)
            call = call if svrg else (records, c.batch_size or records, clip, c.local_steps)
            sigma, split = c.sigma, None
            if not sigma and c.sigma_rule == "paper":  # for the mean's gradient, also where the sum's is released
                clip = max(self.clip_norm, self.clip_gradient) if svrg else self.clip_norm
                steps = c.local_steps * (c.inner_steps if svrg else 1)
                sigma = local_call.paper_sigma_rsgd(*budget, records, clip, steps, c.noise_constant)
            elif not sigma and svrg:
                sigma, split = local_call.calibrated_sigma_rsvrg(*budget, *call)
            elif not sigma:
                sigma = local_call.calibrated_sigma_rsgd(*budget, *call)
            if svrg:
                split = split or local_call.rsvrg_split(sigma, *call, c.delta_call)
                self._calls[records] = sigma, local_call.rsvrg_parts(sigma, *call, split)
            else:
                self._calls[records] = sigma, local_call.rsgd_parts(sigma, *call)
        return self._calls[records]

    def releases(self, cohort: Cohort, sizes: Tensor) -> list[tuple[Release, Cohort]]:
        """One round's releases, as the accountant must see them: one of each size (of ``sizes`` [S, N]) and part."""
        if not self.method.private:
            return []
        releases = []
        sizes = torch.gather(sizes, 1, cohort.ids)
        for size in sizes[cohort.present].unique().tolist():
            whose = Cohort(cohort.ids, cohort.present & (sizes == size))
            for part in self.parts(size):
                release = Release(
                    what="the noisy steps of an agent" if not self.method.pooled else "the noisy steps on all records",
                    unit="record", adjacency="replace_one", noise_multiplier=part.noise_multiplier, sensitivity=1.0,
                    trust="trusted_server" if self.method.pooled else "none",
                    released_by="server" if self.method.pooled else "local_solver", sampler=part.sampler,
                    rate=part.rate, count=part.count,
                )  # fmt: skip
                releases.append((release, whose))
        return releases

    def call(self, sizes: Sequence[int]) -> float | None:
        """What one local call costs a record at delta_call, at most: the sound figure for any noise."""
        if not self.method.private:
            return None
        return max(local_call.call_epsilon(self.parts(n), self.config.delta_call) for n in set(sizes))

    def promised(self, agents: int, sizes: Sequence[int]) -> Guarantee | None:
        """What the run promises before anybody is drawn, soundly; None where that says nothing."""
        c, call = self.config, self.call(sizes)
        if call is None or call > MOST_EPSILON or not c.rounds:
            return None
        parts = [part for n in set(sizes) for part in self.parts(n)]
        mu = None
        if all(part.sampler == "none" for part in parts) and len(parts) == len(set(sizes)):  # full batches
            mu = max(math.sqrt(part.count) / part.noise_multiplier for part in parts)
        slack = c.delta or c.delta_call
        guarantee = run_guarantee(call, c.delta_call, agents, self._per_round(agents), c.rounds, slack=slack, mu=mu)
        return guarantee if guarantee.delta < 1 else None

    def claimed(self, agents: int) -> Guarantee | None:
        """What Theorem 4.2 claims of the run, from what a call is SAID to cost, if the settings ask for it.

        None where the noise is given (``sigma``): then nothing is said of a call.
        """
        c = self.config
        if not self.method.private or c.accountant == "participation" or not c.rounds or c.sigma:
            return None
        return run_guarantee(c.epsilon_call, c.delta_call, agents, self._per_round(agents), c.rounds, c.accountant)

    def _per_round(self, agents: int) -> int:
        return agents if self.method.pooled else self.config.agents_per_round or agents


class _Records:
    """The records of the agents of a :class:`Local`, gathered."""

    def __init__(self, local: Local, broadcasts: bool):
        self.local, self.data, self.broadcasts = local, local.data, broadcasts
        self.sizes = local.data.sizes
        self.device = next(iter(local.data.samples.values())).device

    @cached_property
    def everything(self) -> tuple[Records, Tensor]:
        """All records [R, n, ...] and their weights 1/N_i [R, n]; 0 beyond an agent's own.

        An agent that holds the whole store (a central method) gets it as it lies there, [n, ...], without a copy.
        """
        real = torch.arange(self.data.table.shape[1]) < self.sizes[:, None]
        dtype = next(iter(self.data.samples.values())).dtype
        whole = self.broadcasts and self._whole
        records = self.data.samples if whole else self._take(self.data.table)
        return records, (real.double() / self.sizes[:, None]).to(dtype=dtype, device=self.device)

    @property
    def _whole(self) -> bool:
        """Whether every row is all records of the store, in some order."""
        count = len(next(iter(self.data.samples.values())))
        if self.data.table.shape[1] != count or bool((self.sizes != count).any()):
            return False
        return bool((self.data.table.sort(1).values == torch.arange(count)).all())

    def at(self, places: Tensor) -> Records:
        """The records at ``places`` [R, p] of each agent: [R, p, ...]."""
        return self._take(torch.gather(self.data.table, 1, places))

    def draws(self, purpose: str) -> list[tuple[np.random.Generator, int]]:
        """Each agent's generator, with its number of records."""
        return list(zip(self.local.streams(purpose), self.sizes.tolist(), strict=True))

    def batches(self, size: int, steps: int) -> Callable[[int], tuple[Records, Tensor]]:
        """Step to its batch: ``size`` of an agent's records without replacement, drawn anew each step; 0: all."""
        if not size or bool((self.sizes == size).all()):
            return lambda k: self.everything
        drawn = [
            np.stack([rng.choice(n, size, replace=False) for _ in range(steps)]) for rng, n in self.draws("records")
        ]
        places = torch.from_numpy(np.stack(drawn))  # [R, K, b]

        def batch(k: int) -> tuple[Records, Tensor]:
            records = self.at(places[:, k])
            like = next(iter(records.values()))
            return records, torch.full(places[:, k].shape, 1 / size, dtype=like.dtype, device=like.device)

        return batch

    def _take(self, rows: Tensor) -> Records:
        rows = rows.to(self.device)
        return {name: z[rows] for name, z in self.data.samples.items()}


def _weights(cohort: Cohort, sizes: Tensor) -> Tensor:
    """N_i out of ``sizes`` [S, N], 0 where a place of the cohort is empty: [S, m]."""
    return torch.gather(sizes, 1, cohort.ids) * cohort.present.double()


def _some(local: Local, rows: slice) -> Local:
    """The same work for some of its agents."""
    data = replace(local.data, table=local.data.table[rows], sizes=local.data.sizes[rows])
    return replace(
        local, inbox={name: x[rows] for name, x in local.inbox.items()}, data=data, clients=local.clients[rows],
        seeds=local.seeds[rows], noise_seeds=local.noise_seeds and local.noise_seeds[rows],
        noise_keys=local.noise_keys and local.noise_keys[rows],
    )  # fmt: skip

"""Chapter 4: DP2-FedSAM, client-level private learning of a shared body with personal heads, and its baselines.

Z. Zhang, Y. Guo, Y. Gong: "DP2-FedSAM: Enhancing Differentially Private Federated Learning Through Personalized
Sharpness-Aware Minimization", Algorithms 1 and 2.

The server holds what is shared, phi. In round t a cohort gets phi; each client trains its own head h_i on top of
phi, then a copy of phi under the new head, and sends the clipped change. The server sees the sum of these
changes, adds noise and divides by the constant r N. A method is a row of METHODS, not a loop of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from fedbook import arguments
from fedbook.federation.checkpoint import identity
from fedbook.federation.cohort import Cohort, Everyone, FixedSize, Poisson, Sampler
from fedbook.federation.exchange import Chain, Exchange, Local, Reply, Round
from fedbook.federation.local import choose, each_client, epochs, local_steps, sgd
from fedbook.federation.loop import Algorithm, Turn
from fedbook.federation.population import Federation, Rows, floating
from fedbook.federation.tree import Tree, for_each, per_row, tree_map
from fedbook.learning.models import Model, Parameters, cross_entropy, stack
from fedbook.papers.dp2_fedsam.problem import PersonalProblem
from fedbook.privacy.mechanisms import ClientGaussian, Clip, release_sum, sum_sensitivity
from fedbook.privacy.release import Release
from fedbook.randomness import stream
from fedbook.settings import Settings, other_than, setting


@dataclass(frozen=True)
class Method:
    """One row of the table: what is ``shared`` ("model", "body", "nothing"), with what it is trained, what protects it.

    ``trained``: False keeps the shared part as it is. ``tuned``: judged after local fine-tuning.
    """

    words: str
    shared: str
    sam: bool = False
    private: bool = False
    trained: bool = True
    tuned: bool = False

    @property
    def silent(self) -> bool:
        """Nothing that depends on the data crosses."""
        return self.shared == "nothing" or not (self.private or self.trained)


METHODS: Mapping[str, Method] = {
    "dp2-fedsam": Method("shared body by SAM, personal heads, clip and noise (Algorithm 2)", "body", True, True),
    "centaur": Method("the same with SGD for SAM (q = 0)", "body", False, True),
    "dp-fedavg": Method("one shared model, clip and noise (Algorithm 1)", "model", False, True),
    "dp-fedavg-ft": Method("the same, fine-tuned by each client at the end", "model", False, True, tuned=True),
    "dp-fedsam": Method("one shared model by SAM, clip and noise", "model", True, True),
    "dp-fedsam-ft": Method("the same, fine-tuned by each client at the end", "model", True, True, tuned=True),
    "p-fedsam": Method("DP2-FedSAM without clip and noise", "body", True),
    "fedrep": Method("CENTAUR without clip and noise", "body"),
    "fedavg": Method("DP-FedAvg without clip and noise", "model"),
    "fedavg-ft": Method("the same, fine-tuned by each client at the end", "model", tuned=True),
    "fedsam": Method("DP-FedSAM without clip and noise", "model", True),
    "fedsam-ft": Method("the same, fine-tuned by each client at the end", "model", True, tuned=True),
    "frozen-body": Method("control: personal heads on a random body that never changes", "body", trained=False),
    "noise-only": Method("control: a body that moves by the noise alone", "body", False, True, trained=False),
    "local-only": Method("control: every client alone with a whole model", "nothing"),
}
PRIVATE = tuple(word for word, method in METHODS.items() if method.private)
WITH_SAM = tuple(word for word, method in METHODS.items() if method.sam)
WITH_HEADS = tuple(word for word, method in METHODS.items() if method.shared == "body")
TUNED = tuple(word for word, method in METHODS.items() if method.tuned)


class Config(Settings):
    """Settings of every method.

    Privacy: ``epsilon`` is the budget. With ``noise_multiplier`` 0 :meth:`with_noise` finds the smallest sigma that
    keeps it (the command line does so), else the run ends before it would cost more. What a run reports is always the
    sound figure.
    """

    rounds: int = setting(200, "T", "rounds of the federation", minimum=0)
    client_rate: float = setting(0.05, "r", "share of the clients drawn in a round", "1: everyone",
                                 maximum=1.0, above=0.0)  # fmt: skip
    sampling: str = setting(
        "poisson", None,
        "each client with probability r (hides who is added or removed), or exactly r N (hides who is replaced, with "
        "sensitivity 2C)",
        choices=("poisson", "fixed"),
    )  # fmt: skip
    head_epochs: int = setting(2, "tau_h", "passes over the data for the head", "0: it stays", minimum=0,
                               needs={"method": WITH_HEADS})  # fmt: skip
    body_epochs: int = setting(2, "tau_phi", "passes over the data for the body", "0: it stays", minimum=0,
                               needs={"method": other_than("frozen-body", "noise-only")})  # fmt: skip
    batch_size: int = setting(10, "B", "samples of a local step", "0: all, an epoch is one step", minimum=0)
    lr_body: float = setting(0.1, "eta_phi", "step size of the body, as in Algorithm 2", minimum=0.0)
    lr_head: float = setting(0.005, "eta_h", "step size of the head", minimum=0.0, needs={"method": WITH_HEADS})
    swap_rates: bool = setting(False, None, "whether the two are exchanged: section 5.1 names them the other way round",
                               needs={"method": WITH_HEADS})  # fmt: skip
    lr_decay: float = setting(0.99, None, "factor on both in each round", "1: constant", maximum=1.0, above=0.0)
    momentum: float = setting(0.7, None, "of the local steps, fresh in every phase", "0: none", minimum=0.0, below=1.0)
    sam_radius: float = setting(0.1, "q", "how far SAM looks", "0: CENTAUR", minimum=0.0, needs={"method": WITH_SAM})
    clip_norm: float = setting(0.1, "C", "longer changes are clipped to it", "inf: no clip",
                               above=0.0, infinite=True, needs={"method": PRIVATE})  # fmt: skip
    noise_multiplier: float = setting(0.0, "sigma", "noise on the sum / C", "0: from epsilon", minimum=0.0,
                                      needs={"method": PRIVATE})  # fmt: skip
    epsilon: float = setting(0.0, "epsilon", "the budget of the run", "0: none", minimum=0.0, maximum=100.0,
                             needs={"method": PRIVATE})  # fmt: skip
    delta: float = setting(0.0, "delta", "at which privacy is counted", "0: 1/N", minimum=0.0, below=1.0,
                           needs={"method": PRIVATE})  # fmt: skip
    accountant: str = setting("sound", None, "where sigma comes from; paper: Theorem 2, such a run is not cut short",
                              choices=("sound", "paper"),
        needs={"method": PRIVATE, "epsilon": other_than(0.0), "noise_multiplier": (0.0,)})  # fmt: skip
    noise_by: str = setting(
        "server", None,
        "one draw on the sum, or of everyone a share of variance sigma^2 C^2 / (r N), which needs sampling fixed and "
        "clients that do not collude",
        choices=("server", "clients"), needs={"method": PRIVATE},
    )  # fmt: skip
    expected_cohort: float = setting(0.0, None, "the constant divisor of the sum", "0: r N", minimum=0.0,
                                     needs={"method": other_than("frozen-body", "local-only")})  # fmt: skip
    fine_tune_epochs: int = setting(2, None, "epochs of the methods -ft", minimum=0, needs={"method": TUNED})
    lr_fine_tune: float = setting(0.0, None, "their step size", "0: lr_body", minimum=0.0, needs={"method": TUNED})
    head_refresh: int = setting(0, None, "epochs of head training before models are judged", "0: as they are",
                                minimum=0, needs={"method": WITH_HEADS})  # fmt: skip

    def cross_check(self) -> None:
        """Noise needs a clip, and its shares a cohort of known size. Raises: ValueError."""
        if self.noise_by == "clients" and self.sampling == "poisson":
            allowed = "server with sampling 'poisson': the shares of a small cohort add up to too little noise"
            raise arguments.wrong(ValueError, "noise_by", self.noise_by, allowed)
        if self.noise_multiplier and math.isinf(self.clip_norm):
            raise arguments.wrong(ValueError, "clip_norm", self.clip_norm, "a finite bound where noise is added")

    def sampler(self, num_clients: int) -> Sampler:
        """The sampler that these settings mean among ``num_clients`` (the one that is accounted)."""
        if self.client_rate == 1:
            return Everyone()
        if self.sampling == "poisson":
            return Poisson(self.client_rate)
        return FixedSize(self._cohort_size(num_clients))

    def divisor(self, num_clients: int) -> float:
        """r N, a constant: what the noised sum is divided by, whoever took part."""
        return self.expected_cohort or self.client_rate * num_clients

    def accounted_rate(self, num_clients: int) -> float:
        """The share that is drawn: ``client_rate``, of a fixed cohort what its whole number makes of it."""
        return self._cohort_size(num_clients) / num_clients if self.counted == "fixed" else self.client_rate

    def delta_for(self, num_clients: int) -> float:
        """delta, by default 1/N as in the paper (weak: see the chapter)."""
        return self.delta or 1 / max(num_clients, 2)

    def _cohort_size(self, num_clients: int) -> int:
        size = self.client_rate * num_clients
        if abs(size - round(size)) > 1e-6 or round(size) < 1:
            allowed = f"a share of the {num_clients} clients that is a whole number with sampling 'fixed'"
            raise arguments.wrong(ValueError, "client_rate", self.client_rate, allowed)
        return round(size)

    def with_noise(self, num_clients: int, heads: bool = True) -> Config:
        """These settings with the noise multiplier that the budget asks for (unchanged if one is given).

        ``heads``: whether clients keep something from round to round. Then cohorts of fixed size are not counted as
        secret (see :meth:`DP2FedSAM.whose`), and the noise is the one for taking part in every round: more than the
        budget will need, since a client takes part less often, but that is known only afterwards.
        ``accountant="paper"``: sigma of Theorem 2, equation (26), whether or not its precondition holds.
        Raises: ValueError if no noise keeps the budget.
        """
        if not self.epsilon or self.noise_multiplier or not self.rounds:
            return self
        from fedbook.privacy.sampled import calibrate_sampled, paper_sigma

        delta, clip_norm = self.delta_for(num_clients), self.clip_norm
        if math.isinf(clip_norm):
            raise arguments.wrong(ValueError, "clip_norm", clip_norm, "a finite bound with a budget epsilon")
        if self.accountant == "paper":
            return replace(self, noise_multiplier=paper_sigma(self.epsilon, delta, self.client_rate, self.rounds))
        rate = self.accounted_rate(num_clients)  # a cohort that is no whole number is refused here
        word = "none" if self.counted == "fixed" and heads else self.counted
        sigma = calibrate_sampled(self.epsilon, delta, rate, self.rounds, sampler=word)
        return replace(self, noise_multiplier=sigma * sum_sensitivity(1.0, self.adjacency))

    @property
    def counted(self) -> str:
        """The sampler as accountants know it: poisson, fixed or none."""
        return "none" if self.client_rate == 1 else self.sampling

    @property
    def adjacency(self) -> str:
        """The neighbours that are hidden. A cohort of fixed size hides who is replaced, not who is missing; and where
        clients add the noise, a missing one takes its share along."""
        return "replace_one" if self.counted == "fixed" or self.noise_by == "clients" else "add_remove"


class DP2FedSAM(Algorithm):
    """Algorithms 1 and 2 and all their relatives: one round for every method, S seeds side by side."""

    def __init__(self, config: Config, model: Model, method: str = "dp2-fedsam"):
        self.method = METHODS[arguments.one_of("method", method, METHODS)]
        self.name, self.config, self.model, self.kind = method, config, model, model.kind
        if (
            self.method.shared == "body"
            and not self.method.silent
            and len(model.head_names) == len(list(model.module.parameters()))
        ):
            raise arguments.wrong(ValueError, "model", model.kind, "a model with a body before its head")
        if self.method.shared == "body" and not model.head_names:
            raise arguments.wrong(ValueError, "model", model.kind, "a model whose last layer, its head, has parameters")
        self.loss = cross_entropy(model.apply, model.layers, model.apply_each)
        self.head_loss = cross_entropy(model.classify)

    def configuration(self) -> dict[str, Any]:
        """What a checkpoint must agree on."""
        return identity(self.config, model=self.model.form)

    def start(self, federation: Federation, turn: Turn) -> tuple[dict[str, Tree], dict[str, Tree]]:
        """phi^0 [S, ...] at the server; every client starts from its seed's one random head [S, N, ...]."""
        c = self.config
        c.sampler(federation.num_clients)  # a cohort that is no whole number is refused here
        if self.method.private and c.epsilon and c.rounds and not c.noise_multiplier:
            allowed = "Config(...).with_noise(clients, heads), which finds the noise that keeps epsilon"
            raise arguments.wrong(ValueError, "noise_multiplier", c.noise_multiplier, allowed)
        like = floating(federation.groups["all"].samples)
        theta = stack([self.model.init(stream(s, "init"), like.dtype) for s in turn.seeds])
        theta = tree_map(lambda x: x.to(like.device), theta)
        body, head = self.model.split(theta)
        shared = {"model": theta, "body": body, "nothing": {}}[self.method.shared]
        personal = {"model": {}, "body": head, "nothing": theta}[self.method.shared]
        own = for_each(personal, federation.num_clients)
        self._declare(turn)
        return {"shared": shared}, ({"all": {"own": own}} if own else {})

    def _declare(self, turn: Turn) -> None:
        turn.assume_public("the mean and the deviation of all pixels")
        turn.assume_public("the number of clients N, of which the divisor and delta are made")
        if self.method.silent:
            turn.nothing_leaves("every client keeps what it trains; a random body comes from a public seed")
        elif not self.bounded:
            turn.in_clear(f"sums of the changes of each cohort's {self.method.shared}")

    def round(self, server: dict[str, Tree], turn: Turn) -> Round:
        """Algorithm 2 (Algorithm 1 where the whole model is shared)."""
        c, shared = self.config, server["shared"]
        cohort = turn.cohort(c.sampler(turn.num_clients))  # line 2: S^t
        if self.method.silent:
            yield Exchange(cohort, work=self.train_alone)
            return server
        if self.bounded:  # before anything leaves: a spent budget ends the run here
            turn.release(self.what_is_released(turn.num_clients), self.whose(cohort))
        chain = {"change": Chain(self.transforms(turn.num_clients))}
        total = yield Exchange(
            cohort, down={"shared": shared}, work=self.train, chain=chain,
            reveal="sum", like={"change": tree_map(lambda x: x[0], shared)},
        )  # lines 3-18  # fmt: skip
        change = total["change"]
        if self.bounded and c.noise_by == "server" and c.noise_multiplier:  # line 18, once for the sum
            change = self.noised(change, turn)
        divisor = c.divisor(turn.num_clients)
        return server | {"shared": tree_map(lambda old, x: old + x / divisor, shared, change)}  # line 20

    @property
    def bounded(self) -> bool:
        """Whether one client can move the sum by a bounded amount only: without that there is nothing to account."""
        return self.method.private and not math.isinf(self.config.clip_norm)

    @property
    def clip_of_sums(self) -> float | None:
        """The clip of the changes, whose sum is all that the server sees; None where nothing is sent."""
        return None if self.method.silent else self.config.clip_norm if self.bounded else math.inf

    def noised(self, total: Parameters, turn: Turn) -> Parameters:
        """N(0, C^2 sigma^2) on every entry of each federation's sum; also where nobody took part."""
        sums = [
            release_sum(
                {name: x[slot] for name, x in total.items()},
                bound=self.config.clip_norm, noise_multiplier=self.config.noise_multiplier, rng=rng,
            )
            for slot, rng in enumerate(turn.noise_streams())
        ]  # fmt: skip
        return stack(sums)

    @property
    def goes_on_without(self) -> bool:
        """Whether a round may be done without some of its clients: not where each brings a share of the noise."""
        return not (self.bounded and self.config.noise_by == "clients")

    def transforms(self, num_clients: int) -> tuple[Clip | ClientGaussian, ...]:
        """What a client's change passes before it leaves: one clip over all tensors together, perhaps its noise."""
        c = self.config
        if not self.bounded:
            return ()
        if c.noise_by == "server":
            return (Clip(c.clip_norm),)
        shares = c.accounted_rate(num_clients) * num_clients  # that add up to the whole noise
        return Clip(c.clip_norm), ClientGaussian(c.noise_multiplier * c.clip_norm / math.sqrt(shares))

    def whose(self, cohort: Cohort) -> Cohort | None:
        """Whose data a release counts for: everybody's with amplification (None), or the cohort's without.

        A head tells its client's past, and in cohorts of fixed size the others' pasts depend on whether one client
        was drawn: the argument that makes rounds independent (chapter 4, proofs, section 5) then fails. For Poisson
        cohorts everybody is drawn by himself and it holds.
        """
        return cohort if self.config.counted == "fixed" and self.method.shared == "body" else None

    def what_is_released(self, num_clients: int) -> Release:
        """One round's release, as the accountant must see it."""
        c = self.config
        sensitivity = sum_sensitivity(c.clip_norm, c.adjacency)
        return Release(
            what=f"the noised sum of the clipped changes of the {self.method.shared}", unit="client",
            adjacency=c.adjacency, noise_multiplier=c.noise_multiplier * c.clip_norm / sensitivity,
            sensitivity=sensitivity, trust="secure_aggregation" if c.noise_by == "server" else "distributed_noise",
            released_by="server" if c.noise_by == "server" else "client",
            sampler=c.counted, rate=None if c.counted == "none" else c.accounted_rate(num_clients),
        )  # fmt: skip

    def train(self, local: Local) -> Reply:
        """Lines 4-17: the new head on the frozen body, then the body under the new head; the change goes up."""
        phi, own = local.inbox["shared"], dict(local.state.get("own", {}))
        trace: dict[str, Tensor] = {}
        if own:
            own, trace["head_loss"] = self.train_head(local, phi, own)  # lines 5-9
        new, trace["loss"] = self.train_shared(local, phi, own)  # lines 10-16
        change = tree_map(torch.sub, new, phi)  # line 17
        norm = torch.stack([x.flatten(1).double().square().sum(1) for x in change.values()]).sum(0).sqrt()
        if self.bounded:  # a client that diverged sends zeros: it must not stop the run, and the sum stays bounded
            sound = norm.isfinite()
            change = tree_map(lambda x: torch.where(per_row(sound, x), x, 0.0), change)
        trace |= {"update_norm": norm, "update_norm_squared": norm.square()}
        return Reply(upload={"change": change}, state={"own": own} if own else None, trace=trace)

    def train_alone(self, local: Local) -> Reply:
        """The controls in which nothing crosses: heads on the random body, or whole models."""
        own = local.state["own"]
        if self.method.shared == "nothing":
            own, loss = self.descend(local, own, {}, self.rate("body", local.t))
        else:
            own, loss = self.train_head(local, self.public_body(local), own)
        return Reply(state={"own": own}, trace={"loss": loss})

    def public_body(self, local: Local) -> Parameters:
        """The random body that everybody draws from the federation's public seed, [R, ...]."""
        like = floating(local.data.samples)
        drawn = {s: self.model.split(self.model.init(stream(s, "init"), like.dtype))[0] for s in set(local.seeds)}
        return tree_map(lambda x: x.to(like.device), stack([drawn[s] for s in local.seeds]))

    def train_head(self, local: Local, body: Parameters, head: Parameters) -> tuple[Parameters, Tensor]:
        """tau_h epochs of SGD on h_i with phi^t frozen, so the features are computed once."""
        c = self.config
        return self.fit_head(local, body, head, "head batches", c.head_epochs, self.rate("head", local.t))

    def fit_head(
        self, local: Local, body: Parameters, head: Parameters, purpose: str, num_epochs: int, lr: float
    ) -> tuple[Parameters, Tensor]:
        """Heads [R, ...] trained on the features that the bodies [R, ...] give; and their mean losses [R]."""
        if not num_epochs:
            return head, _no_loss(head)
        data = self.features(local, body)
        batches = epochs(data, local.streams(purpose), num_epochs, self.config.batch_size)
        step = sgd(self.head_loss, lr, self.config.momentum)
        carry, loss = local_steps(step, self.carry(head), data, batches, how=local.how, chunk=local.chunk)
        return carry["theta"], loss

    def features(self, local: Local, body: Parameters) -> Rows:
        """The clients' own samples as their bodies see them. Memory: R n_max D numbers."""
        table, x, y = local.data.table, local.data.samples["x"], local.data.samples["y"]

        def seen(body: Parameters, rows: Tensor) -> Tensor:
            return self.model.features(body, x[rows])

        with torch.no_grad():
            h = each_client(seen, body, table.to(x.device), how=local.how, chunk=local.chunk)  # [R, n_max, D]
        numbers = torch.arange(table.numel()).view(table.shape)
        return Rows({"x": h.flatten(0, 1), "y": y[table.flatten().to(y.device)]}, numbers, local.data.sizes)

    def train_shared(self, local: Local, phi: Parameters, head: Parameters) -> tuple[Parameters, Tensor]:
        """tau_phi epochs of SGD or SAM on phi_i; the head stays at h_i^{t+1}."""
        if not self.method.trained:
            return phi, _no_loss(phi)
        return self.descend(local, phi, head, self.rate("body", local.t))

    def descend(self, local: Local, theta: Parameters, fixed: Parameters, lr: float) -> tuple[Parameters, Tensor]:
        """Local epochs on ``theta`` with ``fixed`` in place: the new parameters and the mean loss [R]."""
        c = self.config
        batches = epochs(local.data, local.streams("body batches"), c.body_epochs, c.batch_size)
        step = sgd(self.loss, lr, c.momentum, sam_radius=c.sam_radius if self.method.sam else 0.0)
        carry = self.carry(theta) | ({"fixed": fixed} if fixed else {})
        carry, loss = local_steps(step, carry, local.data, batches, how=local.how, chunk=local.chunk)
        return carry["theta"], loss

    def carry(self, theta: Parameters) -> dict[str, Tree]:
        """What a phase starts from: momentum is fresh in every phase of every round."""
        return {"theta": theta} | ({"velocity": tree_map(torch.zeros_like, theta)} if self.config.momentum else {})

    def rate(self, part: str, t: int) -> float:
        """eta_phi or eta_h of round t."""
        lr = {"body": self.config.lr_body, "head": self.config.lr_head}
        if self.config.swap_rates and self.method.shared == "body":
            lr = {"body": lr["head"], "head": lr["body"]}
        return lr[part] * self.config.lr_decay**t

    def logits(
        self, problem: PersonalProblem, seeds: Sequence[int], server: Mapping[str, Tree], clients: Mapping[str, Tree],
        slot: int, ids: Tensor, x: Tensor, refresh: int = 0,
    ) -> Tensor:  # fmt: skip
        """What the models of the clients ``ids`` answer, as a method is judged: see PersonalProblem.evaluation.

        Personal heads as they are or after ``refresh`` epochs on the final body; "-ft": a copy of the shared model
        after fine-tuning. Nothing of this is sent or kept.
        """
        k, (how, chunk) = len(ids), choose(x.device.type, self.kind)
        data = problem.rows(slot, ids, "train")
        local = Local("all", {}, {}, data, ids, (seeds[slot],) * k, -1, how, chunk)
        one = tree_map(lambda p: p[slot], server["shared"])
        many = tree_map(lambda p: p.expand(k, *p.shape), one)
        own = tree_map(lambda p: p[slot, ids.to(p.device)], clients["all"]["own"]) if clients else {}
        if self.method.shared == "body":
            own, _ = self.fit_head(local, many, own, "refresh batches", refresh, self.rate("head", 0))
            features = self.model.features(one, x.flatten(0, 1)).unflatten(0, x.shape[:2])
            return vmap(self.model.classify)(own, features)
        if self.method.tuned:
            plain = DP2FedSAM(replace(self.config, body_epochs=self.config.fine_tune_epochs), self.model, "fedavg")
            many, _ = plain.descend(local, many, {}, self.config.lr_fine_tune or self.rate("body", 0))
        elif self.method.shared == "model":
            return self.model.apply(one, x.flatten(0, 1)).unflatten(0, x.shape[:2])
        return vmap(self.model.apply)(own or many, x)

    def evaluation(self, problem: PersonalProblem, seeds: Sequence[int]):
        """``evaluate(server, clients)``: accuracy and loss [S]; with ``head_refresh`` also "accuracy_refreshed"."""

        def judge(refresh: int):
            models = 50 if self.method.tuned else None  # each fine-tuned model is several copies of it in memory
            return problem.evaluation(lambda *rest: self.logits(problem, seeds, *rest, refresh=refresh), models=models)

        def evaluate(server: Mapping[str, Tree], clients: Mapping[str, Tree]) -> dict[str, Tensor]:
            metrics = judge(0)(server, clients)
            if self.config.head_refresh and self.method.shared == "body":
                metrics["accuracy_refreshed"] = judge(self.config.head_refresh)(server, clients)["accuracy"]
            return metrics

        return evaluate


def _no_loss(theta: Parameters) -> Tensor:
    first = next(iter(theta.values()))
    return first.new_full((len(first),), math.nan)

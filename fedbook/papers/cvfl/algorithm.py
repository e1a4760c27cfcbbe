"""Chapter 5: C-VFL, vertical federated learning with compressed embeddings, and its baselines.

T. Castiglia, A. Das, S. Wang, S. Patterson: "Compressed-VFL: Communication-Efficient Learning with Vertically
Partitioned Data" (ICML 2022), Algorithms 1 and 2.

Party m holds some features of every sample and a network h_m; the server holds theta_0, which turns all embeddings into
a prediction. In a round everyone sends its compressed embeddings of one batch, gets those of all others and the
compressed theta_0, and takes Q steps on its own block while the others' stay as they came. A method is a row of
METHODS, not a loop of its own.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, grad_and_value, vmap

from fedbook import arguments
from fedbook.compression import COMPRESSORS, Codec, compressor, keep_columns
from fedbook.compression.messages import LARGEST
from fedbook.compression.secure_sum import SecureSum
from fedbook.federation.checkpoint import identity
from fedbook.federation.cohort import Cohort, Everyone
from fedbook.federation.exchange import Chain, Diverged, Exchange, Local, Reply, Round
from fedbook.federation.local import Batches, Step, each_client, local_steps, sgd
from fedbook.federation.loop import Algorithm, Turn
from fedbook.federation.population import Federation
from fedbook.federation.tree import Tree, leaves, tree_map
from fedbook.learning.models import Loss, Parameters, stack
from fedbook.papers.cvfl.problem import VerticalProblem, batch_loss
from fedbook.papers.cvfl.towers import Tower
from fedbook.randomness import stream
from fedbook.settings import Settings, other_than, setting
from fedbook.wire import Wire

EXACT = 32  # bits of a component that is not compressed


@dataclass(frozen=True)
class Method:
    """One row: what goes down after the embeddings came up.

    ``down``: "views" (everyone's embeddings and theta_0, Algorithm 1), "sum" (their sum, securely aggregated),
    "cotangents" (each party's dF/dh_m, Algorithm 2), "derivative" (dF/dz, the label holder's), "nothing" (one machine).
    """

    words: str
    down: str = "views"
    compresses: bool = True
    parties: int = 0  # how many there must be; 0: as many as the settings say


METHODS = {
    "c-vfl": Method("Algorithm 1: Q local steps on compressed views of the others"),
    "c-vfl-one-step": Method("Algorithm 2: the server returns the derivatives of the embeddings, Q = 1", "cotangents"),
    "vfl": Method("uncompressed vertical learning with Q local steps (FedBCD)", compresses=False),
    "secure-sum": Method("Algorithm 1, but the server learns only the embeddings' sum (fusion sum or logits)", "sum"),
    "private-labels": Method("only the server has labels; it sends dF/dz (fusion sum or logits)", "derivative"),
    "split-learning": Method("one party with all features, derivatives returned, Q = 1", "cotangents", parties=1),
    "central": Method("control: all features on one machine, Q steps on each batch", "nothing", compresses=False),
}  # fmt: skip
COMPRESSING = tuple(word for word, method in METHODS.items() if method.compresses)


class Config(Settings):
    """Settings of every method; compressors are those of fedbook.compression."""

    rounds: int = setting(150, "R", "rounds of the federation", minimum=0)
    local_steps: int = setting(
        10, "Q", "local steps of a round", "1: every step on fresh views; methods that return derivatives take 1",
        minimum=1, needs={"method": other_than("c-vfl-one-step", "split-learning")},
    )  # fmt: skip
    batch_size: int = setting(100, "B", "samples of a round", "0: all", minimum=0)
    sampling: str = setting(
        "epochs", None, "without replacement (an epoch's last batch may be short); iid: with, as the theorems want",
        choices=("epochs", "iid"),
    )  # fmt: skip
    lr: float = setting(0.2, "eta", "step size", minimum=0.0)
    lr_schedule: str = setting("constant", None, "inverse: eta / (r + 1) in round r", choices=("constant", "inverse"))
    lr_drop: int = setting(0, None, "from this round on a tenth of the step size", "0: never", minimum=0)
    compressor: str = setting("scalar", "C", "of the embeddings", "none: uncompressed", choices=tuple(COMPRESSORS),
                              needs={"method": COMPRESSING})  # fmt: skip
    bits: int = setting(
        2, "b", "of a component: at most 16, for hex 8, or 32; top-k keeps floor(P b / 32) components",
        "32: no compression", minimum=1, maximum=EXACT, needs={"method": COMPRESSING, "compressor": other_than("none")},
    )  # fmt: skip
    bits_schedule: str = setting(
        "constant", None,
        "growing: b + ceil(log2(r + 1) / 4) bits, at most 16 and for hex 8; for top-k, where the constant k is rounded "
        "down, k = ceil(P (1 - (1 - b/32) / sqrt(r + 1)))",
        choices=("constant", "growing"),
        needs={"method": COMPRESSING, "compressor": other_than("none"), "bits": other_than(EXACT)},
    )  # fmt: skip
    rule: str = setting(
        "gradient", None, "what top-k keeps: largest by the previous round's gradient (in the first: magnitude)",
        choices=("gradient", "magnitude"),
        needs={"method": COMPRESSING, "compressor": ("topk",), "bits": other_than(EXACT)},
    )  # fmt: skip
    dither: bool = setting(True, None, "whether quantisers dither, subtractively, from a seed in the message",
        needs={"method": COMPRESSING, "compressor": ("scalar", "hex"), "bits": other_than(EXACT)})  # fmt: skip
    grid: str = setting("endpoints", None, "of the scalar quantiser", choices=("endpoints", "bins"),
        needs={"method": COMPRESSING, "compressor": ("scalar",), "bits": other_than(EXACT)})  # fmt: skip
    codebook: str = setting("finite", None, "of the hexagonal quantiser", choices=("finite", "infinite"),
        needs={"method": COMPRESSING, "compressor": ("hex",), "bits": other_than(EXACT)})  # fmt: skip
    compress_server: bool = setting(
        True, None, "whether theta_0's matrices are compressed too, where it is sent",
        needs={"method": ("c-vfl", "secure-sum"), "compressor": other_than("none"), "bits": other_than(EXACT),
               "fusion": other_than("logits")},
    )  # fmt: skip
    literal_server: bool = setting(
        False, None, "Algorithm 2 as printed, with theta_0 compressed although it is never sent",
        needs={"method": ("c-vfl-one-step", "split-learning"), "compressor": other_than("none"),
               "bits": other_than(EXACT), "fusion": other_than("logits")},
    )  # fmt: skip

    def cross_check(self) -> None:
        """As many bits as the quantiser can use. Raises: ValueError."""
        if self.bits != EXACT:
            arguments.integer("bits", self.bits, 1, COMPRESSORS[self.compressor].most_bits)

    def step(self, t: int) -> float:
        """eta of round ``t``."""
        lr = self.lr / (t + 1) if self.lr_schedule == "inverse" else self.lr
        return lr / 10 if self.lr_drop and t >= self.lr_drop else lr

    def at(self, t: int, width: int, low: float | None, high: float | None):
        """The compressor of round ``t`` for vectors of ``width`` components; None: they go as they are."""
        if self.compressor == "none" or self.bits == EXACT:
            return None
        kind, bits = COMPRESSORS[self.compressor], self.bits
        if self.bits_schedule == "growing":
            if kind.sparse:
                return kind.make(max(1, math.ceil(width * (1 - (1 - bits / EXACT) / math.sqrt(t + 1)))))
            bits = min(bits + math.ceil(math.log2(t + 1) / 4), kind.most_bits)
        options = {name: getattr(self, name) for name in kind.options}
        return compressor(self.compressor, bits, width, low, high, **options)


@lru_cache(maxsize=32)  # as many seeds side by side; 8 N bytes each
def _epoch_order(seed: int, epoch: int, samples: int) -> Tensor:
    return torch.from_numpy(stream(seed, "epoch", epoch).permutation(samples))


def batch_ids(seed: int, t: int, samples: int, batch_size: int, sampling: str = "epochs") -> Tensor:
    """The samples of round ``t``, [B] numbers: everyone derives them from the common seed, so they cost no bytes."""
    size = batch_size or samples
    if sampling == "iid":
        return torch.from_numpy(stream(seed, "batch", t).integers(samples, size=size))
    a_epoch = math.ceil(samples / size)
    start = t % a_epoch * size
    return _epoch_order(seed, t // a_epoch, samples)[start : start + size].clone()


class CVFL(Algorithm):
    """Algorithm 1 and 2 and what they are compared with; S seeds side by side.

    A party's state: ``theta`` (theta_m) and, for top-k by gradient, ``score``. ``first``: the first models
    {"theta0": [S, ...], GROUP: [S, M_g, ...]} where they are not to be drawn; they are copied. Batches (and under
    "secure-sum" dithers and masks) come from the run's seed, which all know; other dithers from the noise seeds, sent
    in each message.
    Nothing crosses before the first round: seeds and network shapes are known, labels to whoever needs them.
    Memory of a round: every party's batch, activations and everyone's embeddings, S x M x M x B x P numbers.
    """

    def __init__(self, config: Config, problem: VerticalProblem, method: str = "c-vfl", first: Tree | None = None):
        self.method = METHODS[arguments.one_of("method", method, METHODS)]
        self.name, self.problem, self.first = method, problem, first
        self.towers, self.fusion, self.members = problem.towers, problem.fusion, problem.members
        self.samples, self.kind = len(problem.y), f"tower {problem.settings.tower}"
        self.loss = batch_loss(problem.settings.loss)
        self.parties = sum(map(len, self.members.values()))
        if self.method.down in ("sum", "derivative") and not self.fusion.sums:
            allowed = f"sum or logits with the method {method}"
            raise arguments.wrong(ValueError, "fusion", self.fusion.name, allowed)
        if self.method.down == "sum" and config.compressor != "scalar":
            allowed = f"scalar with the method {method}: whole numbers on one grid can be masked and added"
            raise arguments.wrong(ValueError, "compressor", config.compressor, allowed)
        if self.method.down == "sum" and config.bits == EXACT:
            raise arguments.wrong(ValueError, "bits", EXACT, f"at most 16 with the method {method}")
        if self.method.down == "sum" and problem.settings.activation != "tanh":
            allowed = f"tanh with the method {method}: all parties need one grid"
            raise arguments.wrong(ValueError, "activation", problem.settings.activation, allowed)
        if self.method.parties and self.parties != self.method.parties:
            raise arguments.wrong(
                ValueError, "parties", self.parties, f"{self.method.parties} with the method {method}"
            )
        arguments.integer("batch_size", config.batch_size, 0, self.samples)
        changes: dict[str, Any] = {} if self.method.compresses else {"compressor": "none"}
        if self.method.down == "cotangents":
            changes["local_steps"] = 1
        self.config = replace(config, **changes)
        self._width = self.fusion.widths[0]  # of an embedding; only what keeps k components asks for it
        if self.config.compressor in ("topk", "randomk") and len(set(self.fusion.widths)) > 1:
            allowed = f"embeddings of one width with the compressor {self.config.compressor}"
            raise arguments.wrong(ValueError, "towers", list(self.fusion.widths), allowed)
        self._ranked = self.config.compressor == "topk" and config.rule == "gradient" and config.bits != EXACT
        self._chain(0)  # bits that leave no component are refused here, not in the first round
        self._columns = [self.fusion.columns(m) for m in range(self.parties)]

    def configuration(self) -> dict[str, Any]:
        """What a checkpoint must agree on."""
        settings = self.problem.settings
        usual = (settings.tower, settings.activation)  # what the settings describe needs no other words
        own = {word: str(net.module) for word, net in self.towers.items()
               if not isinstance(net, Tower) or (net.kind, net.activation) != usual}  # fmt: skip
        same = asdict(settings) | {"evaluate_every": 0, "problem": self.problem.name}
        if self.first is not None:
            named = b"".join(name.encode() + x.cpu().contiguous().numpy().tobytes() for name, x in leaves(self.first))
            same["first"] = hashlib.blake2b(named, digest_size=8).hexdigest()
        return identity(self.config, **same, **({"towers": own} if own else {}))

    def start(self, federation: Federation, turn: Turn) -> tuple[dict[str, Tree], dict[str, Tree]]:
        """Fresh networks: the server's, and each party's own."""
        device, dtype = federation.device, next(iter(self.problem.parts.values())).dtype
        shown = {"nothing": "all features", "sum": "the sum of the embeddings"}
        turn.in_clear(shown.get(self.method.down, "the embeddings"))
        if self.method.down in ("derivative", "cotangents"):
            turn.in_clear("the derivatives of the loss by the embeddings, from which labels can be read")
        if self.method.down in ("views", "sum"):
            turn.assume_public("the labels, among the parties")
        theta0 = stack([self.fusion.init(stream(s, "init server"), dtype) for s in turn.seeds])
        theta = {}
        for word, numbers in self.members.items():
            init = self.towers[word].init
            theta[word] = stack(
                [stack([init(stream(s, "init", client=m), dtype) for m in numbers]) for s in turn.seeds]
            )
        if self.first is not None:
            theta0, theta = self._copied({"theta0": theta0} | theta)
        theta0, theta = tree_map(lambda x: x.to(device), theta0), tree_map(lambda x: x.to(device), theta)
        if self.method.down == "nothing":
            alone = {"theta0": theta0, "theta": theta}
            return {}, {"all": tree_map(lambda x: x.unsqueeze(1), alone)}
        clients: dict[str, Tree] = {word: {"theta": own} for word, own in theta.items()}
        if self._ranked:
            width = self._width
            for word, numbers in self.members.items():
                clients[word]["score"] = torch.zeros(len(turn.seeds), len(numbers), width, dtype=dtype, device=device)
        return {"theta0": theta0}, clients

    def _copied(self, drawn: dict[str, Tree]) -> tuple[Tree, dict[str, Tree]]:
        """``first``, whose tensors no run writes into. Raises: ValueError (not of the form of the models drawn)."""
        given, allowed = ({name: (tuple(x.shape), x.dtype) for name, x in leaves(tree)} for tree in (self.first, drawn))
        if given != allowed:
            raise arguments.wrong(ValueError, "first", given, f"tensors {allowed}")
        copied = tree_map(torch.clone, dict(self.first))
        return copied.get("theta0", {}), {word: copied[word] for word in drawn if word != "theta0"}

    def round(self, server: dict[str, Tree], turn: Turn) -> Round:
        """One round of Algorithm 1 (t0 = r Q) or of the method's own second half."""
        everyone = turn.cohort(Everyone())
        _still_finite("theta_0", *(p for _, p in leaves(server)))
        if self.method.down == "nothing":
            yield Exchange(everyone, work=self.train_alone)
            return server
        if self.method.down == "sum":
            return (yield from self._sum_round(server, turn, everyone))
        up = yield Exchange(everyone, work=self.embed, chain=self._chain(turn.t), name="embeddings")
        views = [up.relay("h", m) for m in range(self.parties)]  # as they came: compressed once, forwarded
        z = self.fusion.combine([_received(view) for view in views])
        if self.method.down == "views":
            down = {"views": {str(m): view for m, view in enumerate(views)}, "theta0": self._server_view(server, turn)}
            yield Exchange(everyone, down=down, work=self.train, name="views")
        elif self.method.down == "derivative":
            _, derivative = self._server_gradient(server["theta0"], z, turn)
            yield Exchange(everyone, down={"derivative": derivative}, work=self.train_without_labels, name="derivative")
        else:
            exact = server["theta0"]
            used = tree_map(_received, self._server_view(server, turn)) if self.config.literal_server else exact
            gradient, derivative = self._server_gradient(used, z, turn)
            for numbers in self.members.values():
                each = torch.stack([derivative[..., self._columns[m]] for m in numbers], 1)  # [S, M_g, B, P]
                cohort = Cohort.of([torch.tensor(list(numbers))] * len(turn.seeds))
                yield Exchange(cohort, each={"cotangent": each}, work=self.step_back, name="cotangents")
            return server | {"theta0": _moved(exact, gradient, self.config.step(turn.t))}
        return server | {"theta0": self._server_steps(server["theta0"], z, turn)}

    def _sum_round(self, server: dict[str, Tree], turn: Turn, everyone: Cohort) -> Round:
        """Algorithm 1 where only the sum of the quantised embeddings is ever seen: masked codes up, their sum down."""
        secure = self._secure(turn.t)
        chain = {"h": Chain(codec=Codec(secure.wire))}
        total = yield Exchange(everyone, work=self.embed_masked, chain=chain, reveal="sum", name="embeddings")
        codes = secure.codes(total["h"])  # [S, B, P], whole numbers of w bits
        buffers = secure.wire.encode(codes, turn.streams("sum"))
        sent = Wire(codes, tuple((b,) for b in buffers), Codec(secure.wire))
        down = {"codes": sent, "theta0": self._server_view(server, turn)}
        yield Exchange(everyone, down=down, work=self.train_on_sum, name="views")
        z = secure.total(codes, turn.seeds, turn.t, next(iter(self.problem.parts.values())))
        return server | {"theta0": self._server_steps(server["theta0"], z, turn)}

    # --- what a party does

    def embed(self, local: Local) -> Reply:
        """Its embeddings of the round's batch, to be compressed on their way."""
        h = self._embedding(local)
        _still_finite("an embedding", h)
        if self._ranked and local.t > 0:
            k = self.config.at(local.t, h.shape[-1], None, None).k
            h = keep_columns(h, local.state["score"], k)
        return Reply(upload={"h": h})

    def train(self, local: Local) -> Reply:
        """Q steps on its own block: fresh and exact itself, the others and theta_0 as they came."""
        views = [local.inbox["views"][str(m)] for m in range(self.parties)]
        own = local.clients.to(views[0].device)
        if self.fusion.sums:  # the others' sum, own view left out: what it is must not matter
            others = torch.stack([view * (own != m).view(-1, 1, 1) for m, view in enumerate(views)]).sum(0)
        else:
            others = self.fusion.combine(views)
        reply = self._train(local, others, local.inbox["theta0"])
        if not self._chain(local.t):
            return reply
        view = torch.stack([views[m][r] for r, m in enumerate(local.clients.tolist())])  # E_m, summed over the batch:
        return replace(reply, trace={"squared_error": (view - self._embedding(local)).square().sum((1, 2))})

    def embed_masked(self, local: Local) -> Reply:
        """Its quantised embeddings under the masks of all pairs: uniform numbers to whoever sees one message."""
        h = self._embedding(local)
        _still_finite("an embedding", h)
        return Reply(upload={"h": self._secure(local.t).masked(h, local.seeds, local.t, local.clients.tolist())})

    def train_on_sum(self, local: Local) -> Reply:
        """Q steps with the others' part of the sum: the decoded sum less its own decoded embeddings."""
        secure, h = self._secure(local.t), self._embedding(local)
        total = secure.total(local.inbox["codes"], local.seeds, local.t, h)
        own = secure.own(h, local.seeds, local.t, local.clients.tolist())
        return self._train(local, total - own, local.inbox["theta0"])

    def _train(self, local: Local, others: Tensor, theta0: Tree) -> Reply:
        """Q steps on F with the own block fresh, ``others`` and ``theta0`` constant."""
        columns = torch.stack([self._columns[m] for m in local.clients.tolist()]).to(others.device)

        def value(h: Tensor, fixed: Tree, batch: Mapping[str, Tensor]) -> Tensor:
            z = self.fusion.put(fixed["others"], h, fixed["columns"])
            return self.loss(self.fusion.apply(fixed["theta0"], z), batch["y"])

        return self._descend(local, value, {"others": others, "columns": columns, "theta0": theta0})

    def step_back(self, local: Local) -> Reply:
        """Algorithm 2, lines 8-9: the chain rule with the derivative that the server returned."""
        return self._along(local, local.inbox["cotangent"], None)

    def train_without_labels(self, local: Local) -> Reply:
        """Q steps along dF/dz; for the squared loss of a plain sum a party corrects it for its own moves, exactly."""
        exact = self.problem.settings.loss == "squared" and self.fusion.name == "logits"
        view = self._own_view(local) if exact else None
        return self._along(local, local.inbox["derivative"], view)

    def _along(self, local: Local, cotangent: Tensor, view: Tensor | None) -> Reply:
        """Steps on <h, cotangent>, plus |h - view|^2 / 2B where the derivative follows the party's own embedding."""

        def value(h: Tensor, fixed: Tree, batch: Mapping[str, Tensor]) -> Tensor:
            along = (h * fixed["cotangent"]).sum((-2, -1))
            return along if view is None else along + (h - fixed["view"]).square().sum((-2, -1)) / (2 * h.shape[-2])

        return self._descend(local, value, {"cotangent": cotangent} | ({} if view is None else {"view": view}))

    def _descend(
        self, local: Local, value: Callable[[Tensor, Tree, Mapping[str, Tensor]], Tensor], fixed: Tree
    ) -> Reply:
        """Q steps of a party on ``value`` of its own embedding; ``fixed``: the constants in it, one row a party.

        ``value`` is asked for one party and for R side by side: its arguments have any leading axes.
        """
        tower, names, lr = self.towers[local.group], list(local.state["theta"]), self.config.step(local.t)

        def loss(apply: Callable[[Parameters, Tensor], Tensor], p: Tree, batch: Mapping[str, Tensor]) -> Tensor:
            return value(apply({name: p[name] for name in names}, batch["x"]), p, batch)

        carry = {"theta": local.state["theta"], "fixed": fixed}
        if not self._ranked:
            step = sgd(Loss(partial(loss, tower.apply), many=partial(loss, tower.apply_each)), lr)
            return Reply(state={"theta": self._steps(local, step, carry)["theta"]})

        def direction(carry: Tree, batch: Mapping[str, Tensor]) -> tuple[Tree, Tensor]:
            def objective(theta: Parameters, probe: Tensor) -> Tensor:
                return value(tower.apply(theta, batch["x"]) + probe, carry["fixed"], batch)

            probe = torch.zeros_like(carry["score"])  # its gradient is dF/dh, summed over the batch
            (theta, score), now = grad_and_value(objective, argnums=(0, 1))(carry["theta"], probe)
            return {"theta": theta, "score": score.abs()}, now

        def update(carry: Tree, move: Tree) -> None:
            tree_map(lambda p, g: p.sub_(g, alpha=lr), carry["theta"], move["theta"])
            carry["score"].copy_(move["score"])

        carry = self._steps(local, Step(direction, update), carry | {"score": local.state["score"]})
        return Reply(state={"theta": carry["theta"], "score": carry["score"]})

    def train_alone(self, local: Local) -> Reply:
        """All blocks together, every one fresh: Q steps of SGD on the joint model, on the same batches."""

        def loss(p: Tree, batch: Mapping[str, Tensor]) -> Tensor:
            x = {word: batch[f"x/{word}"].movedim(1, 0) for word in self.towers}
            return self.loss(self.fusion.apply(p["theta0"], self.problem.embed(p["theta"], x)), batch["y"])

        carry = self._steps(local, sgd(loss, self.config.step(local.t)), {"theta": dict(local.state)})
        return Reply(state=carry["theta"])

    def _steps(self, local: Local, step: Step, carry: Tree) -> Tree:
        rows = self._rows(local)
        index, real = (  # one batch a round
            x.expand(self.config.local_steps, *x.shape) for x in (rows, torch.ones_like(rows, dtype=torch.bool))
        )
        batches = Batches(index, real)
        return local_steps(step, carry, local.data, batches, how=local.how, chunk=local.chunk)[0]

    def _rows(self, local: Local) -> Tensor:
        """[R, B] where the round's samples lie."""
        return torch.gather(local.data.table, 1, self._ids(local.seeds, local.t))

    def _ids(self, seeds: Sequence[int], t: int) -> Tensor:
        batches = {s: batch_ids(s, t, self.samples, self.config.batch_size, self.config.sampling) for s in set(seeds)}
        return torch.stack([batches[s] for s in seeds])

    def _embedding(self, local: Local) -> Tensor:
        """h_m(theta_m; X_m), [R, B, P]."""
        x, rows = local.data.samples["x"], self._rows(local)
        with torch.no_grad():
            apply, batch = self.towers[local.group].apply, x[rows.to(x.device)]
            return each_client(apply, local.state["theta"], batch, how=local.how, chunk=local.chunk)

    def _own_view(self, local: Local) -> Tensor:
        """What the server decoded from this party's message: it can encode and decode it once more."""
        chain, h = self._chain(local.t), self.embed(local).upload["h"]
        if not chain:
            return h
        options = COMPRESSORS[self.config.compressor].options
        drawn = self.config.compressor == "randomk" or ("dither" in options and self.config.dither)
        if drawn and None in (local.noise_seeds or ()):
            allowed = "seeds, where a message has a dither: a party must know that of its own"
            raise arguments.wrong(ValueError, "noise_seeds", "system", allowed)
        codec = chain["h"].codec
        return codec.decode(codec.encode({"": h}, local.dither_streams("embeddings/h/codec")), {"": h})[""]

    # --- what the server does

    def _secure(self, t: int) -> SecureSum:
        return SecureSum(self.config.at(t, self._width, -1.0, 1.0), self.parties)

    def _chain(self, t: int) -> dict[str, Chain]:
        settings = self.problem.settings
        low, high = (-1.0, 1.0) if settings.activation == "tanh" else (None, None)
        scheme = self.config.at(t, self._width, low, high)
        return {} if scheme is None else {"h": Chain(codec=Codec(scheme))}

    def _server_view(self, server: Mapping[str, Tree], turn: Turn) -> Tree:
        """C_0(theta_0), encoded: each matrix a message with its own range, vectors as they are."""
        return {name: self._compressed(name, p, turn) for name, p in server["theta0"].items()}

    def _compressed(self, name: str, p: Tensor, turn: Turn) -> Tensor | Wire:
        rows = p.flatten(1)
        wanted = self.config.compress_server or self.method.down == "cotangents"  # there only where literal_server asks
        scheme = self.config.at(turn.t, rows.shape[1], None, None) if wanted and p.ndim > 2 else None
        if scheme is None:
            return p
        codec = Codec(scheme)
        buffers = codec.encode({"": rows}, turn.dither_streams(f"server {name}"))
        value = codec.decode(buffers, {"": rows})[""].view(p.shape)
        return Wire(value, tuple((buffer,) for buffer in buffers), codec, tuple(rows.shape))

    def _labels(self, turn: Turn) -> Tensor:
        return self.problem.y[self._ids(turn.seeds, turn.t).to(self.problem.y.device)]

    def _objective(self, theta0: Parameters, z: Tensor, y: Tensor) -> Tensor:
        return self.loss(self.fusion.apply(theta0, z), y)

    def _server_gradient(self, theta0: Tree, z: Tensor, turn: Turn) -> tuple[Tree, Tensor]:
        """dF/dtheta_0 and dF/dz [S, B, .] at the same point."""
        return vmap(grad(self._objective, argnums=(0, 1)))(theta0, z, self._labels(turn))

    def _server_steps(self, theta0: Tree, z: Tensor, turn: Turn) -> Tree:
        """Q steps on its own block from the round's snapshot, itself exact, all embeddings as they came."""
        y, lr = self._labels(turn), self.config.step(turn.t)
        for _ in range(self.config.local_steps if theta0 else 0):
            theta0 = _moved(theta0, vmap(grad(self._objective))(theta0, z, y), lr)
        return theta0


def _moved(theta: Tree, gradient: Tree, lr: float) -> Tree:
    return tree_map(lambda p, g: p - lr * g, theta, gradient)


def _still_finite(what: str, *tensors: Tensor) -> None:
    """Raises: Diverged. What no message can carry counts as infinite."""
    if not all(bool((x.detach().abs() <= LARGEST).all()) for x in tensors):
        raise Diverged(f"{what} is no longer finite (a smaller step size lr may help)")


def _received(leaf: Tensor | Wire) -> Tensor:
    return leaf.value if isinstance(leaf, Wire) else leaf

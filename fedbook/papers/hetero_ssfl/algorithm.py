"""Chapter 2: Hetero-SSFL, self-supervised learning across clients of different architectures, and its baselines.

D. Makhija, N. Ho, J. Ghosh: "Federated Self-supervised Learning for Heterogeneous Clients", Algorithm 1.

Every client keeps its images and a model of its own, of whatever architecture. What clients share is an unlabelled set
of L images, the alignment set: each shows how it represents them, the server averages the L x L similarity matrices of
these representations, and each client's loss is BYOL's or SimSiam's plus mu times how unlike its own similarities are
to the average.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from fedbook import arguments
from fedbook.compression import UpperTriangle, triangle_wire
from fedbook.federation.cohort import Everyone
from fedbook.federation.exchange import Chain, Diverged, Exchange, Local, Reply, Round, Uploads
from fedbook.federation.local import Batches, each_client
from fedbook.federation.loop import Turn
from fedbook.federation.population import Federation, floating
from fedbook.federation.tree import Tree, leaves, tree_map
from fedbook.learning import fedbyol
from fedbook.learning.encoders import BACKBONE, KEEP, Encoder
from fedbook.learning.evaluation import bounded
from fedbook.learning.models import Parameters, stack
from fedbook.learning.online import LAYERS, Online, follow, without_predictor
from fedbook.learning.self_supervised import BatchLoss, NobodyTrains, SelfSupervised
from fedbook.learning.views import Views
from fedbook.papers.hetero_ssfl.cka import centred_gram, factor, gram, gram_cka, linear_cka, mean_gram, varying
from fedbook.randomness import stream
from fedbook.settings import other_than, setting

IMAGES = 1024  # of the alignment set at a time
ALIGNING = ("hetero-ssfl", "alignment-pass-only")  # methods whose steps see alignment images


class Config(fedbyol.Config):
    """Settings of Hetero-SSFL beside those of BYOL.

    ``mu`` is relative to one direction of BYOL's loss (``directions`` "mean"); SimSiam's gradient is half of that.
    """

    mu: float = setting(0.5, "mu", "weight of the proximal term", "0: local training", minimum=0.0,
                        needs={"method": ("hetero-ssfl",)})  # fmt: skip
    proximal: str = setting(
        "distance", None, "distance: mu (1 - CKA); paper: mu CKA as printed in (2), which drives clients apart",
        choices=("distance", "paper"), needs={"method": ("hetero-ssfl",), "mu": other_than(0.0)},
    )  # fmt: skip
    alignment_batch: int = setting(100, "B_r", "alignment images of a step", "0 or at least L: all, the exact term",
                                   minimum=0, needs={"method": ALIGNING})  # fmt: skip
    layer: str = setting("predictor", None, "whose output represents an image (the paper's: predictor)", choices=LAYERS)
    statistics: str = setting(
        "frozen", None,
        "what normalises the heads on alignment images: frozen, those of the alignment batch, remembered nowhere; "
        "train, they also enter the running ones, half and half with the private batch's; eval, the running ones",
        choices=("frozen", "train", "eval"), needs={"method": ALIGNING},
    )  # fmt: skip
    centre: bool = setting(True, None, "whether kernels are centred; false: (1) as printed",
                           needs={"method": ("hetero-ssfl",), "mu": other_than(0.0)})  # fmt: skip
    estimator: str = setting("biased", None, "of CKA in the loss", choices=("biased", "unbiased"),
                             needs={"method": ("hetero-ssfl",), "mu": other_than(0.0)})  # fmt: skip
    kernel: str = setting("linear", None, "of which similarities are made", choices=("linear", "rbf"),
                          needs={"method": ("hetero-ssfl",), "mu": other_than(0.0)})  # fmt: skip
    bandwidth: float = setting(0.5, None, "of rbf, times the median distance", above=0.0,
        needs={"method": ("hetero-ssfl",), "kernel": ("rbf",), "mu": other_than(0.0)})  # fmt: skip
    normalise: bool = setting(False, None, "whether kernels are centred and divided by their norm before the average",
                              needs={"method": ("hetero-ssfl",), "mu": other_than(0.0)})  # fmt: skip
    exclude_self: bool = setting(False, None, "whether a client is compared with the others' average",
                                 needs={"method": ("hetero-ssfl",), "mu": other_than(0.0)})  # fmt: skip
    weights: str = setting(
        "uniform", "w",
        "of the clients' kernels in the average: uniform, by samples, by resources (the architecture's parameters), or "
        "numbers separated by commas, one a client, that sum to 1",
        needs={"method": ("hetero-ssfl",), "mu": other_than(0.0)},
    )  # fmt: skip
    send: str = setting("cheaper", None, "kernels (their upper triangles) or representations, up and down apart",
                        choices=("cheaper", "kernels", "representations"),
                        needs={"method": ("hetero-ssfl",)})  # fmt: skip

    def cross_check(self) -> None:
        """What the estimator and the kernel ask of the others. Raises: ValueError."""
        if 0 < self.alignment_batch < self.least:
            allowed = f"0 (all) or at least {self.least} images for the {self.estimator} estimator"
            raise arguments.wrong(ValueError, "alignment_batch", self.alignment_batch, allowed)
        if self.estimator == "unbiased" and not self.centre:
            raise arguments.wrong(ValueError, "centre", self.centre, "true with the unbiased estimator")
        if self.kernel == "rbf" and self.send == "representations":
            raise arguments.wrong(ValueError, "send", self.send, "kernels or cheaper for rbf: their mean has no factor")
        if self.weights not in ("uniform", "samples", "resources"):
            self.given_weights()

    @property
    def least(self) -> int:
        """The fewest images of which CKA says anything: of two it is always 1."""
        return 4 if self.estimator == "unbiased" else 3

    def given_weights(self) -> list[float]:
        """The numbers in ``weights``. Raises: ValueError (no numbers, negative, not summing to 1)."""
        allowed = "uniform, samples, resources, or numbers of at least 0 that sum to 1, separated by commas"
        try:
            weights = [float(word) for word in self.weights.split(",")]
        except ValueError:
            raise arguments.wrong(ValueError, "weights", self.weights, allowed) from None
        if not all(math.isfinite(w) and w >= 0 for w in weights) or abs(math.fsum(weights) - 1) > 1e-6:
            raise arguments.wrong(ValueError, "weights", self.weights, allowed)
        return weights


class HeteroSSFL(SelfSupervised):
    """Algorithm 1; ``shares`` False: everybody alone, and ``receives`` then says whether the alignment set is sent.

    ``assigned``: each client's architecture, a word of ``nets``. ``levels`` [L, C, H, W] uint8: the alignment images as
    they are sent; ``images``: the same in [0, 1], where and as precise as the clients' own.
    Server: ``uploads``, the last one of every client, by architecture: representations [S, K_g, L, d_g], or kernels
    [S, K_g, L, L]. A client keeps ``theta``, encoder and predictor, where it moves its ``target``, and with
    ``exclude_self`` its ``weight`` in the average.
    Memory: S K models and targets, whoever takes part (100 ResNet-34 are 16 GiB in single precision); S L sum_k d_k
    numbers at the server for representations, S K L^2 for kernels; a training client holds the
    reference once more. The server reads all of that in a round (the average is over all clients); all other work
    grows with the cohort. The alignment set is public: sent once, kept once for all clients.
    """

    def __init__(
        self, config: Config, nets: Mapping[str, Online], assigned: Sequence[str], views: Views, levels: Tensor,
        images: Tensor, name: str = "hetero-ssfl", shares: bool = True, receives: bool = True,
    ):  # fmt: skip
        largest = max(nets.values(), key=lambda net: net.encoder.size)  # says how a cohort is vectorised
        super().__init__(config, largest.encoder, views, name)
        self.nets, self.shares, self.receives = dict(nets), shares, receives or shares
        self.groups = {word: torch.tensor([k for k, w in enumerate(assigned) if w == word]) for word in assigned}
        self.levels, self.alignment = levels, views.plain(images)
        if shares and len(levels) < config.least:
            raise arguments.wrong(ValueError, "alignment_samples", len(levels), f"at least {config.least} images")
        if config.exclude_self and len(assigned) < 2:
            raise arguments.wrong(ValueError, "exclude_self", True, "False where there is one client only")

    def configuration(self) -> dict[str, Any]:
        """Also the form of every architecture, and which images the alignment set holds."""
        forms = {
            word: [f"{name} {list(p.shape)}" for part in (net.encoder, net.predictor)
                   for name, p in part.module.named_parameters()]
            for word, net in self.nets.items()
        }  # fmt: skip
        seen = hashlib.blake2b(self.levels.cpu().numpy().tobytes(), digest_size=8).hexdigest()
        return super().configuration() | {"form": forms, "alignment": seen}

    @property
    def subtracts_own(self) -> tuple[str, ...]:
        """The uploads of which a client takes off its own part of the average: they must arrive as they were sent."""
        return ("*",) if self.config.exclude_self else ()

    # --- the server

    def start(self, federation: Federation, turn: Turn) -> tuple[dict[str, Tree], dict[str, Tree]]:
        """Every client's own network from its own draws; no uploads yet."""
        self.config.sampler(federation.num_clients)  # more than there are is refused here
        ids = {word: group.ids.tolist() for word, group in federation.groups.items()}
        if ids != {word: own.tolist() for word, own in self.groups.items()}:
            raise arguments.wrong(ValueError, "assigned", ids, "each client's architecture as the federation has it")
        w = self.averaging(federation.sizes.expand(len(turn.seeds), -1))
        if self.config.exclude_self and float(w.max()) >= 1:
            raise arguments.wrong(ValueError, "weights", self.config.weights, "less than 1 each with exclude_self")
        clients, server = {}, {}
        for word, group in federation.groups.items():
            like = floating(group.samples)
            each = [stack([self.init_client(s, k, word, like.dtype) for k in group.ids.tolist()]) for s in turn.seeds]
            theta = tree_map(lambda p, like=like: p.to(like.device), stack(each))
            clients[word] = {"theta": theta}
            if self.nets[word].moving:
                clients[word]["target"] = tree_map(lambda p: p.clone(), without_predictor(theta))
            if self.config.exclude_self:
                clients[word]["weight"] = w[:, group.ids].to(like.device)
            server[word] = like.new_zeros(len(turn.seeds), len(group.ids), len(self.levels), self._columns(word))
        self.declare(turn)
        return ({"uploads": server} if self.shares else {}), clients

    def init_client(self, seed: int, client: int, word: str, dtype: torch.dtype) -> Parameters:
        """A client's parameters before it trains."""
        return self.nets[word].init(stream(seed, "init", client=client), dtype)

    def declare(self, turn: Turn) -> None:
        """What leaves the clients, for the privacy report."""
        turn.assume_public("the alignment set; the mean and the deviation of all pixels; every client's architecture")
        if self.config.weights == "samples":
            turn.assume_public("how many samples each client holds")
        if not self.shares:
            turn.nothing_leaves("every client keeps the model that it trains")
            return
        turn.in_clear("what models trained on private samples make of the alignment set")

    def setup(self, server: dict[str, Tree], turn: Turn) -> Round:
        """Everybody gets the alignment set, once, and shows what it makes of it: K_k(0)."""
        if not self.receives:
            return (yield from super().setup(server, turn))
        down = {"alignment set": self.levels.expand(len(turn.seeds), *self.levels.shape)}
        cohort = turn.cohort(Everyone())
        up = yield Exchange(cohort, down=down, work=self.show, chain=self.chain, name="alignment")
        return self.merge(server, up) if self.shares else server

    def round(self, server: dict[str, Tree], turn: Turn) -> Round:
        """One pass of the server's loop."""
        cohort = turn.cohort(self.config.sampler(turn.num_clients))  # "Select a subset of clients N_t"
        if not self.shares:
            yield Exchange(cohort, work=self.train)
            return server
        down = {"reference": self.reference(server, self.averaging(turn.sizes))}  # Kbar(t - 1), over all N clients
        up = yield Exchange(cohort, down=down, work=self.train, chain=self.chain)
        return self.merge(server, up)

    def reference(self, server: Mapping[str, Tree], weights: Tensor) -> Tensor | Any:
        """Kbar [S, L, L] as its upper triangle, or where that is cheaper its factor C [S, L, sum d_k]."""
        made, order = [], torch.cat(list(self.groups.values()))
        for slot, w in enumerate(weights[:, order]):
            each = [a for word in self.groups for a in server["uploads"][word][slot]]  # [L, columns] each
            if self.up_kernels:
                made.append(sum(v * self._counted(k) for v, k in zip(w.tolist(), each, strict=True)))
            elif self.down_kernels:
                made.append(mean_gram(each, w, self.config.normalise))
            else:
                made.append(factor(each, w, self.config.normalise))
        reference = torch.stack(made)
        _small_enough(reference)  # kernels square: they overflow before representations do
        return triangle_wire((reference + reference.mT) / 2) if self.down_kernels else reference

    def merge(self, server: dict[str, Tree], up: Uploads) -> dict[str, Tree]:
        """The table of last uploads with the new ones; who was not there has not changed, so its old one is exact."""
        table = {word: a.clone() for word, a in server["uploads"].items()}
        for part in up.parts:
            ids = up.cohort.ids[part.slot, part.place]
            member = torch.searchsorted(self.groups[part.group], ids)
            table[part.group][part.slot, member] = part.tree["representation"]
        return server | {"uploads": table}

    @property
    def chain(self) -> dict[str, Chain]:
        """Kernels cross as their upper triangles."""
        return {"representation": Chain(codec=UpperTriangle())} if self.shares and self.up_kernels else {}

    @property
    def up_kernels(self) -> bool:
        """Whether clients send kernels: because they must, or because all their triangles are smaller."""
        if self.config.kernel == "rbf" or self.config.send != "cheaper":
            return self.config.kernel == "rbf" or self.config.send == "kernels"
        return all(2 * self._width(word) > len(self.levels) + 1 for word in self.nets)

    @property
    def down_kernels(self) -> bool:
        """Whether the server sends Kbar and not its factor."""
        if self.up_kernels or self.config.send != "cheaper":
            return self.up_kernels
        columns = sum(len(ids) * self._width(word) for word, ids in self.groups.items())
        return 2 * columns > len(self.levels) + 1

    def _width(self, word: str) -> int:
        net = self.nets[word]
        return net.encoder.feature_width if self.config.layer == "encoder" else net.width

    def _columns(self, word: str) -> int:
        return len(self.levels) if self.up_kernels else self._width(word)

    def averaging(self, sizes: Tensor) -> Tensor:
        """w [S, K] of clients that hold ``sizes`` [S, K] samples. Raises: ValueError."""
        rule, w = self.config.weights, sizes.double()
        if rule == "uniform":
            return torch.full_like(w, 1 / w.shape[1])
        if rule == "resources":
            for word, ids in self.groups.items():
                w[:, ids] = float(self.nets[word].encoder.size)
        elif rule != "samples":
            given = self.config.given_weights()
            if len(given) != w.shape[1]:
                allowed = f"one for each of {w.shape[1]} clients"
                raise arguments.wrong(ValueError, "weights", self.config.weights, allowed)
            w[:] = torch.tensor(given, dtype=torch.float64)
        return w / w.sum(1, keepdim=True)

    # --- a client

    @torch.no_grad()
    def show(self, local: Local) -> Reply:
        """A_k(X), or K_k, of the model as it is."""
        if not self.shares:
            return Reply()
        return Reply(upload={"representation": self._sent(self.represent_all(local, local.state["theta"]))})

    def train(self, local: Local) -> Reply:
        """LocalTraining: E epochs from the own model; then what it makes of the alignment set."""
        theta, fixed = local.state["theta"], {}
        net = self.nets[local.group]
        if net.moving:
            fixed["target"] = local.state["target"]
        if self.looks:
            fixed["reference"] = self.compared_with(local)
        after = partial(follow, decay=self.config.target_decay) if net.moving else None
        carry, loss = self.descend(local, theta, fixed, after=after)
        _small_enough(*(p for _, p in leaves(carry["theta"])))
        state = {**local.state, "theta": carry["theta"]} | ({"target": carry["fixed"]["target"]} if net.moving else {})
        if not self.shares:
            return Reply(state=state, trace={"loss": loss})
        a = self.represent_all(local, carry["theta"])
        sent = self._sent(a)
        _small_enough(a, sent)
        return Reply(upload={"representation": sent}, state=state, trace={"loss": loss})

    @property
    def looks(self) -> bool:
        """Whether a step looks at alignment images; with mu = 0 it does not."""
        return self.shares and self.config.mu > 0

    def compared_with(self, local: Local) -> Tensor:
        """The reference [R, L, ...] of each client: as received, or without its own part."""
        reference = local.inbox["reference"]
        if not self.config.exclude_self:
            return reference
        if self.down_kernels:
            return reference - self._own_part(local)
        places = self._places(local)  # [R] where a client's columns begin
        column = torch.arange(reference.shape[-1])
        mine = (column >= places[:, None]) & (column < places[:, None] + self._width(local.group))
        return reference * (~mine).to(reference)[:, None]

    def _places(self, local: Local) -> Tensor:
        """[R] the first of each client's columns in the factor."""
        start, first = 0, {}
        for word, ids in self.groups.items():
            for client in ids.tolist():
                first[client] = start
                start += self._width(word)
        return torch.tensor([first[k] for k in local.clients.tolist()])

    @torch.no_grad()
    def _own_part(self, local: Local) -> Tensor:
        """w_k K_k [R, L, L] as it is in the average: a client knows its weight and what it sent."""
        a = self.represent_all(local, local.state["theta"])
        w = local.state["weight"].to(a)[:, None, None]
        if self.up_kernels:
            return w * self._counted(self._sent(a))
        return w * mean_gram([a], [1.0], self.config.normalise)

    def _counted(self, kernels: Tensor) -> Tensor:
        """Kernels [..., L, L] as the average takes them."""
        if not self.config.normalise:
            return kernels
        kernels = centred_gram(kernels)
        norm = torch.linalg.matrix_norm(kernels, keepdim=True)
        return kernels / torch.where(norm == 0, 1, norm)

    def loss(self, local: Local) -> tuple[BatchLoss, float | None]:
        """Equation (2) on a batch."""
        c, net, count = self.config, self.nets[local.group], 2 * self.config.pairs

        def loss(theta: Mapping[str, Any], batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            value, seen = net.objective(theta, *self.views.of(batch, count))
            if not self.looks:
                return value, seen
            similarity, seen_there = self.similarity(net, theta, batch["alignment rows"])
            if c.statistics == "train":
                seen = _both(seen, seen_there)
            return value + c.mu * (similarity if c.proximal == "paper" else 1 - similarity), seen

        if net.encoder.normalised:
            return loss, KEEP
        return (lambda theta, batch: loss(theta, batch)[0]), None

    def similarity(self, net: Online, theta: Mapping[str, Any], rows: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """CKA of a client's kernel with the reference on some alignment images, and the batch's statistics.

        Shapes: ``rows`` [B_r] of the alignment set; ``theta["reference"]`` [L, L] or [L, sum d_k].
        """
        c, reference = self.config, theta["reference"]
        weight = None if c.statistics == "eval" else torch.ones(len(rows), dtype=reference.dtype, device=rows.device)
        a, seen = net.represent(theta, self.alignment[rows], c.layer, weight)
        options = {"centre": c.centre, "unbiased": c.estimator == "unbiased"}
        if self.down_kernels:
            return gram_cka(gram(self._ready(a), c.kernel, c.bandwidth), reference[rows][:, rows], **options), seen
        return linear_cka(a, reference[rows], **options), seen

    def _ready(self, a: Tensor) -> Tensor:
        """Centred where that changes no CKA: the kernel of a far offset has no digits left for what varies."""
        return varying(a) if self.config.centre and self.config.kernel == "linear" else a

    def plan_batches(self, local: Local) -> Batches:
        """The private samples of each step, and the alignment images."""
        batches = super().plan_batches(local)
        if not self.looks:
            return batches
        length = len(self.levels)
        width, steps = min(self.config.alignment_batch or length, length), batches.index.shape[0]
        rows = torch.arange(width).repeat(steps, len(local.clients), 1)
        if width < length:  # what a client draws must not depend on who trains beside it
            for r, rng in enumerate(local.streams("alignment rows")):
                for t in range(int(batches.steps[r])):
                    rows[t, r] = torch.from_numpy(rng.choice(length, width, replace=False).astype(np.int64))
        return Batches(batches.index, batches.real, {**batches.extra, "alignment rows": rows})

    @torch.no_grad()
    def represent_all(self, local: Local, theta: Parameters) -> Tensor:
        """A [R, L, d] of the whole alignment set, normalised as ``statistics`` says.

        Memory: the activations of 1,024 images of each client vectorised together.
        """
        net, c = self.nets[local.group], self.config
        weight = None if c.statistics == "eval" else torch.ones(len(self.levels)).to(self.alignment)

        def one(theta: Mapping[str, Tensor]) -> Tensor:
            h = torch.cat([net.features(theta, x) for x in self.alignment.split(IMAGES)])
            return self._ready(net.represent_features(theta, h, c.layer, weight)[0])

        return each_client(one, theta, how=local.how, chunk=local.chunk)

    def _sent(self, a: Tensor) -> Tensor:
        """What a client uploads: A as it is, or its kernel."""
        if not self.up_kernels:
            return a
        k = gram(a, self.config.kernel, self.config.bandwidth)
        return (k + k.mT) / 2  # symmetric up to rounding


def _small_enough(*values: Tensor) -> None:
    """Raises: Diverged."""
    if not bounded(*values):
        raise Diverged("a client's model or its representations grew without bound (a smaller step size lr may help)")


def _both(seen: Mapping[str, Tensor], there: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Statistics of a private and of an alignment batch, half and half."""
    return {name: (x + there.get(name, x)) / 2 for name, x in seen.items()}


class AlignmentPassOnly(HeteroSSFL):
    """The control for batch normalisation: every step also sees alignment images, and only statistics remember it.

    As features do not depend on running statistics, it is local training in all that is trained. All normalised
    layers see the images and remember them, whatever ``layer`` and ``statistics`` say.
    """

    looks = True

    def compared_with(self, local: Local) -> Tensor:
        """Nothing to compare with."""
        return local.data.sizes.to(self.alignment)[:, None]

    def loss(self, local: Local) -> tuple[BatchLoss, float | None]:
        """The self-supervised loss alone."""
        net, count = self.nets[local.group], 2 * self.config.pairs

        def loss(theta: Mapping[str, Any], batch: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            value, seen = net.objective(theta, *self.views.of(batch, count))
            rows = batch["alignment rows"]
            weight = torch.ones(len(rows)).to(self.alignment)
            return value, _both(seen, net.represent(theta, self.alignment[rows], "predictor", weight)[1])

        return (loss, KEEP) if net.encoder.normalised else ((lambda theta, batch: loss(theta, batch)[0]), None)


class Untrained(NobodyTrains, HeteroSSFL):
    """The control: models as they were drawn."""


class Supervised(SelfSupervised):
    """The control with labels: FedAvg of a backbone and a linear classifier, on the same views."""

    def __init__(self, config: Config, encoder: Encoder, views: Views, classes: int, name: str = "fedavg-supervised"):
        super().__init__(config, encoder, views, name)
        self.net, self.classes = fedbyol.online_network(config, encoder), classes

    def init(self, rng, dtype: torch.dtype) -> Parameters:
        """Fresh backbone, and a classifier at 0; there is no projector."""
        like = torch.zeros(self.classes, self.encoder.feature_width, dtype=dtype)
        backbone = {name: p for name, p in self.encoder.init(rng, dtype).items() if name.startswith(BACKBONE)}
        return backbone | {"classifier.weight": like, "classifier.bias": like[:, 0].clone()}

    def declare(self, turn: Turn) -> None:
        """Labels are used, and everything goes out in clear."""
        super().declare(turn)
        turn.in_clear("the classifiers that clients trained on their labelled samples")

    def loss(self, local: Local) -> tuple[BatchLoss, float | None]:
        """Cross-entropy of every view."""
        count = 2 * self.config.pairs

        def loss(theta: Mapping[str, Any], batch: Mapping[str, Tensor]) -> Tensor:
            x, weight = self.views.of(batch, count)
            y = self.views.labels(batch, count)[:, None].expand(x.shape[:2]).flatten()
            h = self.net.features(theta, x.flatten(0, 1))
            each = cross_entropy(linear(h, theta["classifier.weight"], theta["classifier.bias"]), y, reduction="none")
            rows = weight[:, None].expand(x.shape[:2]).flatten()
            return (each * rows).sum() / rows.sum().clamp(min=1)

        return loss, None

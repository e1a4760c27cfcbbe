"""FedX and FedCA: contrast of samples with samples, with something global in it. Baselines of chapter 1.

FedX distils the round's global model into the local one by contrast and by relations, and sends nothing but models.
FedCA sends a dictionary of representations, so that clients are contrasted with each other's samples, and may draw
every encoder to one that was trained on public images.

Source: Han et al., "FedX: Unsupervised federated learning with cross knowledge distillation" (2022); Zhang et al.,
"Federated unsupervised representation learning" (FedCA, 2020).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from fedbook import arguments
from fedbook.federation.cohort import Cohort, Everyone
from fedbook.federation.exchange import Chain, Exchange, Local, Reply, Round
from fedbook.federation.local import Batches, choose, epochs, local_steps, sgd
from fedbook.federation.loop import Turn
from fedbook.federation.population import Federation, Rows
from fedbook.federation.tree import Tree, for_each, tree_map
from fedbook.learning.encoders import Encoder, predictor
from fedbook.learning.evaluation import unit
from fedbook.learning.models import Parameters, stack
from fedbook.learning.online import directions, mean_of_real, only_predictor, with_predictor, without_predictor
from fedbook.learning.public_images import IMAGES, alignment_images
from fedbook.learning.self_supervised import BatchLoss, SelfSupervised, Training, refuse_batch_norm
from fedbook.learning.views import Views
from fedbook.randomness import stream
from fedbook.settings import other_than, setting
from fedbook.wire import Encoded, Wire

SAMPLES = 512  # of a client at a time for the dictionary


ALIGNED = {"method": ("fedca",), "alignment": other_than(0.0)}  # what the settings of public images need


class Config(Training):
    """Settings of FedX and FedCA beside those of every self-supervised method."""

    contrast_temperature: float = setting(0.1, "tau", "cosines are divided by it (FedX, FedCA)", above=0.0)
    predictor_hidden: int = setting(0, None, "hidden units of the predictor (FedX: of its head)",
                                    "0: twice its width", minimum=0)  # fmt: skip
    dictionary_samples: int = setting(256, "M", "samples of a client in FedCA's dictionary", "0: all", minimum=0,
                                      needs={"method": ("fedca",)})  # fmt: skip
    alignment: float = setting(
        0.0, "beta", "weight of FedCA's alignment to a base encoder trained on public images",
        "0: the dictionary alone, no public images", minimum=0.0, needs={"method": ("fedca",)},
    )  # fmt: skip
    alignment_samples: int = setting(
        200, "L", "public images; each local step aligns all of them", minimum=2, needs=ALIGNED
    )
    alignment_source: str = setting(
        "photographs", None, "where they come from; a dataset needs images of that shape",
        choices=("noise", "photographs", *IMAGES), needs=ALIGNED,
    )  # fmt: skip
    alignment_epochs: int = setting(50, None, "passes over them that train the base encoder", minimum=0, needs=ALIGNED)


# --- losses: which views are alike, and to whom they relate


def nt_xent(
    a: Tensor, b: Tensor, temperature: float = 0.1, weight: Tensor | None = None, negatives: Tensor | None = None,
    negative_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The normalised, temperature-scaled cross-entropy: which of the other views is this sample's second one?

    Each of the 2B views is an anchor. Its candidates are all other views and the ``negatives`` (a dictionary of other
    clients' samples), scored by cosine / temperature. Rows of weight 0 are neither anchors nor candidates.
    Shapes: ``a``, ``b`` [B, D], ``weight`` [B]; ``negatives`` [M, D], ``negative_weight`` [M]; a scalar.
    Source: Chen, Kornblith, Norouzi, Hinton 2020, equation 1; FedCA (the dictionary).
    """
    (a, real), (b, _) = directions(a, weight), directions(b, weight)
    views, anchors = torch.cat([a, b]), torch.cat([real, real])
    number = torch.arange(len(views), device=views.device)
    candidates, allowed = views, anchors & (number != number[:, None])  # [2B, 2B]
    if negatives is not None:
        negatives, entries = directions(negatives, negative_weight)
        candidates = torch.cat([views, negatives])
        allowed = torch.cat([allowed, entries.expand(len(views), len(negatives))], 1)  # [2B, 2B + M]
    scores = views @ candidates.mT / temperature
    scores = torch.where(allowed, scores, -math.inf)
    agreement = (a * b).sum(1) / temperature
    return mean_of_real(scores.logsumexp(1) - torch.cat([agreement, agreement]), anchors)


def relation_loss(
    a: Tensor, b: Tensor, reference: Tensor, temperature: float = 0.1, weight: Tensor | None = None,
    reference_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """How differently the two views of a sample relate to other samples, in nats; 0 where they relate equally.

    p = softmax over the reference of cos(a, .) / temperature, p' that of b, m = (p + p') / 2: the mean of
    (KL(m | p) + KL(m | p')) / 2. FedX calls it Jensen-Shannon, which has KL(p | m) and stays below log 2; this one
    does not. The gradient passes through m too. Without a real reference row it is 0.
    Shapes: ``a``, ``b`` [B, D], ``reference`` [R, D], ``weight`` [B], ``reference_weight`` [R]; a scalar.
    Source: FedX (Han et al. 2022), the relational loss.
    """
    (a, real), (b, _), (reference, entries) = (
        directions(x, w) for x, w in ((a, weight), (b, weight), (reference, reference_weight))
    )
    log_p, log_q = (
        torch.where(entries, log_softmax(torch.where(entries, x @ reference.mT / temperature, -math.inf), 1), 0.0)
        for x in (a, b)
    )
    half = 0.5 * (log_p - log_q)
    excess = torch.logaddexp(half, -half) - math.log(2)  # log m - (log p + log p') / 2, exactly 0 for p = p'
    divergence = torch.where(entries, (0.5 * (log_p + log_q) + excess).exp() * excess, 0.0).sum(1)
    return mean_of_real(divergence, real)


class FedX(SelfSupervised):
    """Local and global contrast and relations, all four with weight 1; encoder and head are averaged.

    f encodes, h is a head on it, f_g the encoder that the round began with, frozen. Relations are taken to a second
    batch of a client's own samples, in an order of its own. Memory: one more copy of the cohort's encoders.
    Source: Han et al. 2022.
    """

    def __init__(self, config: Config, encoder: Encoder, views: Views, name: str = "fedx"):
        super().__init__(config, encoder, views, name)
        refuse_batch_norm(encoder, name)
        self.head = predictor(encoder.width, config.predictor_hidden or 2 * encoder.width)

    def init(self, rng, dtype: torch.dtype) -> Parameters:
        """Fresh encoder and head."""
        return with_predictor(self.encoder.init(rng, dtype), self.head.init(rng, dtype))

    def declare(self, turn: Turn) -> None:
        """Encoder and head go out in clear."""
        super().declare(turn)
        turn.in_clear("the heads that clients trained on their samples")

    def beside(self, local: Local) -> dict[str, Tree]:
        """f_g, the round's global encoder."""
        return {"global": without_predictor(local.inbox["theta"])}

    def plan_batches(self, local: Local) -> Batches:
        """Anchors and reference samples of each step, by turns along the batch axis."""
        c = self.config
        anchors = super().plan_batches(local)
        others = epochs(local.data, local.streams("reference batches"), c.local_epochs, c.batch_size)
        pairs = (anchors.index, others.index), (anchors.real, others.real)
        return Batches(*(torch.stack(pair, -1).flatten(2) for pair in pairs))

    def objective(self, theta: Mapping[str, Any], views: Tensor, weight: Tensor) -> Tensor:
        """NTXent(f, f') + JS(f, f'; f_r) + NTXent(h f, f_g') + JS(h f, h f'; f_gr), the mean over pairs of views.

        A prime marks the other view of a sample, r a view of the reference samples. The gradient reaches f_r, not f_g.
        """
        (samples, references), (real, real_r) = (u.unflatten(0, (-1, 2)).unbind(1) for u in (views, weight))
        first, second = samples.chunk(2, 1)
        x = torch.stack([first, second, references[:, : first.shape[1]]], 2)  # [B, V, 3, C, H, W]
        z = self.encode(theta, x.flatten(0, 2)).unflatten(0, x.shape[:3])
        h = self.head.apply(only_predictor(theta), z[:, :, :2].flatten(0, 2)).unflatten(0, (*x.shape[:2], 2))
        g = self.encode(theta["global"], x[:, :, 1:].flatten(0, 2)).unflatten(0, (*x.shape[:2], 2))
        tau, total = self.config.contrast_temperature, 0.0
        for v in range(x.shape[1]):
            (f, f_other, f_r), (p, p_other), (g_other, g_r) = (u[:, v].unbind(1) for u in (z, h, g))
            total = total + nt_xent(f, f_other, tau, real) + relation_loss(f, f_other, f_r, tau, real, real_r)
            total = total + nt_xent(p, g_other, tau, real) + relation_loss(p, p_other, g_r, tau, real, real_r)
        return total / x.shape[1]


def alignment_loss(z: Tensor, target: Tensor) -> Tensor:
    """The mean distance of the directions of z from those of the base encoder; 0, without slope, where they are equal.

    Shapes: ``z``, ``target`` [L, H]; a scalar. Source: FedCA (Zhang et al. 2020), the alignment module.
    """
    square = (directions(z)[0] - directions(target)[0]).square().sum(1)
    return torch.where(square > 0, torch.where(square > 0, square, 1.0).sqrt(), 0.0).mean()


class FedCA(SelfSupervised):
    """NT-Xent against one's own batch and a dictionary of the other clients' samples, and alignment to a base encoder.

    Dictionary module: each round begins with the unit representations, one view each, of samples of the clients that
    take part; the server keeps the last ones of every client and sends all of them on. Alignment module
    (``alignment`` above 0): before the first round the server trains a base encoder on public images by NT-Xent and
    sends its representations of them to everybody; each local step adds ``alignment`` times the mean distance of the
    client's representations of these images from them. FedSC's comparison names no public data, so the default is 0.

    Server: ``theta``, ``q`` and ``dictionary`` [S, K, M, H] float, zeros where there is no entry, M the entries of the
    largest client. A client: ``target`` [L, H], where there is alignment. Memory: these, and the dictionary once more
    for each of the cohort.
    Source: Zhang et al. 2020, sections on the dictionary and the alignment module (there in small batches).
    """

    def __init__(self, config: Config, encoder: Encoder, views: Views, name: str = "fedca"):
        super().__init__(config, encoder, views, name)
        refuse_batch_norm(encoder, name)
        self.public = None
        if config.alignment:
            self.public = alignment_images(config.alignment_source, config.alignment_samples, encoder.shape)

    # --- the server

    def start(self, federation: Federation, turn: Turn) -> tuple[dict[str, Tree], dict[str, Tree]]:
        """theta^0 and an empty dictionary."""
        server, clients = super().start(federation, turn)
        like, entries = next(iter(server["theta"].values())), self.entries(federation.groups["all"].table)
        shape = (len(turn.seeds), federation.num_clients, entries, self.encoder.width)
        server |= {"dictionary": like.new_zeros(shape)}
        if self.public is None:
            return server, clients
        turn.assume_public("the images that representations are aligned on")
        target = like.new_zeros(len(turn.seeds), len(self.public), self.encoder.width)
        return server, {"all": for_each({"target": target}, federation.num_clients)}

    def setup(self, server: dict[str, Tree], turn: Turn) -> Round:
        """The base encoder's representations of the public images go to everybody."""
        if self.public is None:
            return (yield from super().setup(server, turn))
        target = self.base_representations(turn, next(iter(server["theta"].values())))
        down = {"target": target}
        yield Exchange(turn.cohort(Everyone()), down=down, work=self.keep_target, name="base representations")
        return server

    def keep_target(self, local: Local) -> Reply:
        """What a client is sent before the first round stays with it."""
        return Reply(state={"target": local.inbox["target"]})

    def base_representations(self, turn: Turn, like: Tensor) -> Tensor:
        """What a fresh encoder makes of the public images after ``alignment_epochs`` on them, [S, L, H]."""
        c, public, seeds = self.config, self.public.to(like), len(turn.seeds)
        samples = {"bank": self.views.make_bank(public, self.views.bank)} if self.views.bank else {"x": public}
        table = torch.arange(len(public)).expand(seeds, -1)
        data = Rows(samples, table, torch.full((seeds,), len(public)))
        batches = epochs(data, turn.streams("base batches"), c.alignment_epochs, c.batch_size)
        data, batches = self.views.batches(data, batches, turn.streams("base views"), 2 * c.pairs)
        theta = stack([self.init(stream(s, "base init"), like.dtype) for s in turn.seeds])
        carry: dict[str, Tree] = {"theta": tree_map(lambda x: x.to(like.device), theta)}
        if c.momentum:
            carry["velocity"] = tree_map(torch.zeros_like, carry["theta"])

        def loss(parameters: Mapping[str, Any], batch: Mapping[str, Tensor]) -> Tensor:
            return self.objective(parameters, *self.views.of(batch, 2 * c.pairs))

        how, chunk = choose(like.device.type, self.kind)
        step = sgd(loss, c.lr, c.momentum, c.weight_decay, max_norm=c.max_norm or math.inf)
        theta = local_steps(step, carry, data, batches, how=how, chunk=chunk)[0]["theta"]
        with torch.no_grad():
            shown = self.views.plain(public)
            return self.represent(theta, shown.expand(seeds, *shown.shape), how)

    def entries(self, table: Tensor) -> int:
        """M, for clients with a table of rows [..., n_max]."""
        return min(self.config.dictionary_samples or table.shape[-1], table.shape[-1])

    def declare(self, turn: Turn) -> None:
        """Encoders and representations go out in clear."""
        super().declare(turn)
        turn.in_clear("the representations of samples of each client")

    def round(self, server: dict[str, Tree], turn: Turn) -> Round:
        """The dictionary is renewed, then everybody trains against it."""
        cohort, down = turn.cohort(self.config.sampler(turn.num_clients)), {"theta": server["theta"]}
        chain = {"entries": Chain(codec=FilledRows())}
        up = yield Exchange(cohort, down=down, work=self.upload_entries, chain=chain, name="dictionary")
        dictionary = self.renewed(server["dictionary"], cohort, up["entries"])
        down = down | {"dictionary": filled_wire(dictionary)}
        up = yield Exchange(cohort, down=down, held=("theta",), work=self.train)
        return server | {"theta": self.averaged(server, cohort, up["theta"]), "dictionary": dictionary}

    def renewed(self, dictionary: Tensor, cohort: Cohort, new: Tensor) -> Tensor:
        """The dictionary with the cohort's entries [S, m, M, H] in place of their old ones; the others' stay."""
        slot, place = torch.nonzero(cohort.present, as_tuple=True)
        dictionary = dictionary.clone()
        dictionary[slot, cohort.ids[slot, place]] = new[slot, place]
        return dictionary

    # --- a client

    @torch.no_grad()
    def upload_entries(self, local: Local) -> Reply:
        """z / |z| of up to M of a client's samples, chosen at random, one view of each."""
        entries = self.entries(local.data.table)
        sizes = local.data.sizes.clamp(max=entries)
        chosen = torch.zeros(len(sizes), entries, dtype=torch.long)
        for r, rng in enumerate(local.streams("dictionary samples")):
            order = rng.permutation(int(local.data.sizes[r]))[:entries]
            chosen[r, : len(order)] = local.data.table[r, torch.from_numpy(order)]
        data, rngs = Rows(local.data.samples, chosen, sizes), local.streams("dictionary views")
        parts = []
        for start in range(0, entries, SAMPLES):
            x, real = self.views.some(data, slice(start, start + SAMPLES), rngs, 1)
            z = self.represent(local.inbox["theta"], x[:, :, 0], local.how)
            parts.append(unit(z) * real[..., None])
        return Reply(upload={"entries": torch.cat(parts, 1)})

    def beside(self, local: Local) -> dict[str, Tree]:
        """The dictionary [R, K M, H] and which entries are other clients' [R, K M]."""
        dictionary = local.inbox["dictionary"]  # [R, K, M, H]
        clients = torch.arange(dictionary.shape[1], device=dictionary.device)
        other = clients != local.clients.to(dictionary.device)[:, None]  # [R, K]
        counts = other[:, :, None] & (dictionary != 0).any(-1)
        given = {"dictionary": dictionary.flatten(1, 2), "counts": counts.flatten(1).to(dictionary)}
        return given if self.public is None else given | {"target": local.state["target"]}

    def loss(self, local: Local) -> tuple[BatchLoss, float | None]:
        """NT-Xent, and ``alignment`` times the alignment loss on all public images."""
        contrast, keep = super().loss(local)
        if self.public is None:
            return contrast, keep
        shown = self.views.plain(self.public.to(next(iter(local.inbox["theta"].values()))))

        def loss(parameters: Mapping[str, Any], batch: Mapping[str, Tensor]) -> Tensor:
            aligned = alignment_loss(self.encode(parameters, shown), parameters["target"])
            return contrast(parameters, batch) + self.config.alignment * aligned

        return loss, keep

    def objective(self, theta: Mapping[str, Any], views: Tensor, weight: Tensor) -> Tensor:
        """NT-Xent, the mean over pairs of views; other clients' entries, if there are any, are further candidates."""
        z = self.encode(theta, views.flatten(0, 1)).unflatten(0, views.shape[:2])
        first, second = z.chunk(2, 1)
        losses = [
            nt_xent(a, b, self.config.contrast_temperature, weight, theta.get("dictionary"), theta.get("counts"))
            for a, b in zip(first.unbind(1), second.unbind(1), strict=True)
        ]
        return sum(losses) / len(losses)


class FilledRows:
    """Codec of an upload that is a table with zero rows at its end: the number of the others as 4 bytes, then these.

    Shapes: rows [R, M, H]; a buffer of 4 + (bytes of a number) * H * m bytes for m rows, nothing lost.
    Raises: ValueError (a buffer of another length).
    Source: the protocol :class:`fedbook.federation.exchange.Codec`.
    """

    def encode(self, message: dict[str, Tensor], rngs: list[np.random.Generator]) -> list[Encoded]:
        """One buffer a table."""
        (tables,) = message.values()
        return [_packed(table) for table in tables.cpu()]

    def decode(self, buffers: list[Encoded], like: dict[str, Tensor]) -> dict[str, Tensor]:
        """The tables [R, M, H] in the dtype and on the device of ``like``."""
        ((name, tables),) = like.items()
        decoded = torch.zeros_like(tables)
        if len(buffers) != len(tables):
            raise arguments.wrong(ValueError, "buffers", len(buffers), f"one for each of the {len(tables)} tables")
        most, width = tables.shape[1:]
        for number, (table, encoded) in enumerate(zip(decoded, buffers, strict=True)):
            rows = int(encoded.buffer[:4].clone().view(torch.int32)) if encoded.nbytes >= 4 else -1
            if not 0 <= rows <= most or encoded.nbytes != 4 + rows * width * tables.element_size():
                allowed = f"4 and those of the rows it says, at most {most} of {width} numbers of {tables.dtype}"
                raise arguments.wrong(ValueError, f"buffer {number}, bytes", encoded.nbytes, allowed)
            table[:rows] = encoded.buffer[4:].clone().view(tables.dtype).view(rows, tables.shape[-1]).to(tables.device)
        return {name: decoded}


def filled_wire(tables: Tensor) -> Wire:
    """A broadcast of tables [S, K, M, H], each without the zero rows at its end."""
    buffers = tuple(tuple(_packed(table) for table in seed_tables) for seed_tables in tables.cpu())
    return Wire(tables, buffers, FilledRows(), tuple(tables.flatten(0, 1).shape))


def _packed(table: Tensor) -> Encoded:
    filled = torch.nonzero((table != 0).any(1))
    rows = int(filled.max()) + 1 if len(filled) else 0
    body = table[:rows].detach().contiguous().view(torch.uint8).flatten()
    return Encoded(torch.cat([torch.tensor([rows], dtype=torch.int32).view(torch.uint8), body]))


METHODS = {"fedx": FedX, "fedca": FedCA}

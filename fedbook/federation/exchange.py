"""One exchange: a message down, local work on a cohort, messages up.

A round is a generator that yields exchanges; whoever drives it (the simulator here, or another
engine) moves the messages and sends the uploads back in. Only what is named in an exchange crosses.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.federation.cohort import Cohort
from fedbook.federation.population import Rows
from fedbook.federation.tree import Tree, flatten, leaves, per_row, tree_map, unflatten
from fedbook.randomness import keyed, repeated, stream
from fedbook.wire import Encoded, Wire


class Diverged(Exception):
    """The run's numbers are no longer finite; the message says which."""


class ClientsLost(RuntimeError):
    """Clients that an engine can no longer reach, or whose messages it refused; the text says which and why.

    ``diverged``: what was wrong with all of them is that their numbers are no longer finite.
    """

    def __init__(self, why: str, clients: Sequence[int], diverged: bool = False):
        super().__init__(why)
        self.clients, self.diverged = frozenset(clients), diverged


class Transform(Protocol):
    """A client-side step before the wire (clip, noise): rows in, rows out, plus a trace for the record."""

    def __call__(
        self, message: dict[str, Tensor], rngs: list[np.random.Generator]
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]: ...


class Codec(Protocol):
    """A wire format: rows to buffers and back. Each buffer holds all that decoding needs."""

    def encode(self, message: dict[str, Tensor], rngs: list[np.random.Generator]) -> list[Encoded]: ...

    def decode(self, buffers: list[Encoded], like: dict[str, Tensor]) -> dict[str, Tensor]: ...


@dataclass(frozen=True)
class Chain:
    """What one named upload passes on its way: transforms in order, then a codec. Empty is the identity.

    They see the upload as one flat dictionary of rows, names joined with "/"; a bare tensor has the name "".
    """

    transforms: tuple[Transform, ...] = ()
    codec: Codec | None = None


@dataclass(frozen=True)
class Local:
    """All that local work of R clients may see: its broadcast, its state, its data and its draws.

    Shapes: every tensor of ``inbox`` and ``state`` has R rows, one a client; ``clients`` [R] are their
    numbers. Work does not write into ``inbox``, whose rows may share memory. ``how`` and ``chunk`` are passed on to
    :func:`fedbook.federation.local.local_steps`.
    """

    group: str
    inbox: Mapping[str, Tree]
    state: Mapping[str, Tree]
    data: Rows
    clients: Tensor
    seeds: tuple[int, ...]
    t: int
    how: str = "vmap"
    chunk: int | None = None
    noise_seeds: tuple[int | None, ...] | None = None
    attempt: int = 0
    noise_keys: tuple[str, ...] | None = None

    def streams(self, purpose: str) -> list[np.random.Generator]:
        """R generators, one a client, keyed by (its federation's seed, purpose, round, client).

        Two exchanges of one round that need independent draws must name different purposes.
        """
        purpose = repeated(purpose, self.attempt)
        return [stream(s, purpose, self.t, k) for s, k in zip(self.seeds, self.clients.tolist(), strict=True)]

    def noise_streams(self, purpose: str = "noise") -> list[np.random.Generator]:
        """R generators for privacy noise in the work, keyed by (noise seed, run, purpose, round, client)."""
        keys = self.noise_keys or ("",) * len(self.seeds)
        return self._of_noise_seeds([keyed(purpose, key) for key in keys])

    def dither_streams(self, purpose: str) -> list[np.random.Generator]:
        """R generators for dithers that messages carry: keyed like :meth:`streams`, by the noise seeds."""
        return self._of_noise_seeds([purpose] * len(self.seeds))

    def _of_noise_seeds(self, purposes: list[str]) -> list[np.random.Generator]:
        seeds = self.seeds if self.noise_seeds is None else self.noise_seeds
        each = zip(seeds, purposes, self.clients.tolist(), strict=True)
        return [stream(s, purpose, self.t, k) for s, purpose, k in each]


@dataclass(frozen=True)
class Reply:
    """What local work returns: uploads, its new state, and a trace that the server never sees.

    Shapes: every tensor has R rows; a trace entry is [R].
    """

    upload: Mapping[str, Tree] = field(default_factory=dict)
    state: Mapping[str, Tree] | None = None
    trace: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Exchange:
    """A cohort, what goes down, the work, and how the uploads come back.

    ``down``: the same for the whole cohort, tensors [S, ...] or :class:`Wire`. ``each``: a client's own,
    tensors [S, m, ...]. ``chain``: by name of an upload. ``reveal="sum"`` is secure aggregation: the code
    after the yield gets only the sum over the cohort. ``held``: names in ``down`` that each of the cohort got, as
    the same object, in an earlier exchange of this round: at hand, not sent again, not counted. ``like``: the form
    of one row of each upload, tensors [...]; needed only where a sum over an empty cohort must have a shape.
    """

    cohort: Cohort
    work: Callable[[Local], Reply]
    down: Mapping[str, Tree] = field(default_factory=dict)
    each: Mapping[str, Tree] = field(default_factory=dict)
    chain: Mapping[str, Chain] = field(default_factory=dict)
    reveal: str = "each"
    like: Mapping[str, Tree] = field(default_factory=dict)
    held: tuple[str, ...] = ()
    name: str = "train"

    def __post_init__(self):
        arguments.one_of("reveal", self.reveal, ("each", "sum"))
        if not callable(self.work):
            raise arguments.wrong(TypeError, "work", self.work, "a function of one Local that returns a Reply")
        for word in ("down", "each", "chain", "like"):
            if not isinstance(getattr(self, word), Mapping):
                raise arguments.wrong(TypeError, word, getattr(self, word), "a mapping from words")
        if both := sorted(set(self.down) & set(self.each)):
            raise arguments.wrong(ValueError, "each", both, "names that are not in down: a client gets both as one")
        for name, chain in self.chain.items():
            if not isinstance(chain, Chain):
                raise arguments.wrong(TypeError, f"chain[{name!r}]", chain, "a Chain")
        if not isinstance(self.held, tuple) or not set(self.held) <= set(self.down):
            raise arguments.wrong(ValueError, "held", self.held, f"a tuple of names in down: {sorted(self.down)}")
        if not isinstance(self.name, str) or not self.name:
            raise arguments.wrong(TypeError, "name", self.name, "a non-empty word")
        if not isinstance(self.cohort, Cohort):
            raise arguments.wrong(TypeError, "cohort", self.cohort, "a Cohort (turn.cohort(sampler) draws one)")


@dataclass(frozen=True)
class Part:
    """Uploads of one group: row r belongs to federation ``slot[r]`` at position ``place[r]`` of its cohort."""

    group: str
    slot: Tensor
    place: Tensor
    tree: Mapping[str, Tree]
    wire: Mapping[str, list[Encoded]]


class Uploads:
    """The uploads of a cohort, each client's own (``reveal="each"``)."""

    def __init__(
        self,
        cohort: Cohort,
        parts: list[Part],
        like: Mapping[str, Tree] | None = None,
        chain: Mapping[str, Chain] | None = None,
    ):
        self.cohort, self.parts, self._like, self._chain = cohort, parts, dict(like or {}), chain or {}

    @property
    def names(self) -> set[str]:
        """The names of what was sent; none for an empty cohort."""
        return {name for part in self.parts for name in part.tree}

    def __getitem__(self, name: str) -> Tree:
        """Upload ``name`` stacked to [S, m, ...], zero where a place of the cohort is empty.

        Raises: KeyError (no such upload), ValueError (forms differ between groups: use :meth:`rows`).
        """
        having = [part for part in self.parts if name in part.tree]
        if not having:
            if name in self._like:
                shape = self.cohort.ids.shape
                return tree_map(lambda x: x.new_zeros(*shape, *x.shape), self._like[name])
            raise KeyError(f"uploads: got {name!r}; this exchange has {sorted(self.names)}")
        flat = [flatten(part.tree[name]) for part in having]
        shapes = {tuple((n, tuple(x.shape[1:])) for n, x in rows.items()) for rows in flat}
        if len(shapes) > 1:
            raise ValueError(f"uploads[{name!r}]: got different forms {sorted(shapes)}; allowed is one form (see rows)")
        if len(having[0].slot) == self.cohort.ids.numel():  # one group, no empty place: the rows lie in this order
            whole = {leaf: rows.unflatten(0, self.cohort.ids.shape) for leaf, rows in flat[0].items()}
            return unflatten(whole, having[0].tree[name])
        stacked = {}
        for leaf, first in flat[0].items():
            whole = first.new_zeros(*self.cohort.ids.shape, *first.shape[1:])
            for part, rows in zip(having, flat, strict=True):
                whole[part.slot, part.place] = rows[leaf]
            stacked[leaf] = whole
        return unflatten(stacked, having[0].tree[name])

    def rows(self, name: str, slot: int = 0) -> list[tuple[int, Tree]]:
        """Pairs (client, its upload) of federation ``slot``, in the cohort's order; forms may differ."""
        uploads = {}
        for part in self.parts:
            for r in torch.nonzero(part.slot == slot).flatten().tolist():
                if name in part.tree:
                    uploads[int(part.place[r])] = tree_map(lambda x, r=r: x[r], part.tree[name])
        return [(int(self.cohort.ids[slot, place]), uploads[place]) for place in sorted(uploads)]

    def relay(self, name: str, client: int) -> Tensor | Wire:
        """One client's upload in every federation, to be sent on as it came: [S, ...], encoded if it was.

        Raises: KeyError if the client is not in every cohort or did not send ``name``.
        """
        values, buffers = [], []
        for slot in range(len(self.cohort.ids)):
            hits = [
                (part, r)
                for part in self.parts
                if name in part.tree
                for r in torch.nonzero((part.slot == slot) & (self.cohort.ids[slot, part.place] == client))
                .flatten()
                .tolist()
            ]
            if not hits:
                raise KeyError(f"uploads: got no {name!r} of client {client} in federation {slot}")
            part, r = hits[0]
            values.append(part.tree[name][r])
            if name in part.wire:
                buffers.append((part.wire[name][r],))
        value = torch.stack(values)
        codec = self._chain.get(name, Chain()).codec
        return Wire(value, tuple(buffers), codec) if len(buffers) == len(values) else value


class Total:
    """The uploads of a cohort under secure aggregation: their sum and nothing else."""

    def __init__(self, sums: Mapping[str, Tree]):
        self._sums = dict(sums)

    @property
    def names(self) -> set[str]:
        """The names of the sums."""
        return set(self._sums)

    def __getitem__(self, name: str) -> Tree:
        """The sum of upload ``name`` over the cohort, [S, ...]. Raises: KeyError."""
        if name not in self._sums:
            raise KeyError(f"sums: got {name!r}; this exchange has {sorted(self._sums)}")
        return self._sums[name]

    @classmethod
    def of(cls, uploads: Uploads, like: Mapping[str, Tree]) -> Total:
        """The sums over each cohort; names come from the uploads, or from ``like`` if all cohorts are empty."""
        names = {name: None for part in uploads.parts for name in part.tree} or dict.fromkeys(like)
        if not names and not uploads.parts:
            raise ValueError(
                "like: got nothing, and the cohort is empty; allowed is the form of one row of each upload"
            )
        return cls({name: tree_map(lambda x: x.sum(1), uploads[name]) for name in names})


Round = Generator[Exchange, Any, Any]


def drive(steps: Round, deliver: Callable[[Exchange], Any]) -> Any:
    """Run a round's generator: hand each exchange to ``deliver``, send its uploads back, return the result.

    This is all that an engine has to do; the algorithm's code does not change with the engine.
    """
    try:
        exchange = next(steps)
        while True:
            if not isinstance(exchange, Exchange):
                raise arguments.wrong(TypeError, "yield", exchange, "an Exchange")
            exchange = steps.send(deliver(exchange))
    except StopIteration as stop:
        return stop.value


def weighted_mean(tree: Tree, weights: Tensor, otherwise: Tree | None = None) -> Tree:
    """The mean over a cohort with ``weights`` (normalised here), federation by federation.

    Shapes: leaves [S, m, ...] and ``weights`` [S, m] to leaves [S, ...]. Where a federation's weights sum
    to zero (an empty cohort) the result is ``otherwise`` [S, ...].
    Raises: TypeError (leaves that are no floating-point tensors), ValueError if that happens without
    ``otherwise``, for a negative or non-finite weight, or for shapes that do not fit.
    """
    weights = arguments.tensor("weights", weights, ndim=2).to(torch.float64)
    for name, leaf in leaves(tree):
        arguments.tensor(f"tree {name!r}", leaf, kind="float", finite=False)
        if leaf.shape[:2] != weights.shape:  # einsum would stretch an axis of 1: a sum in place of a mean
            raise arguments.wrong(
                ValueError, f"tree {name!r}", leaf, f"the weights' [S, m] = {tuple(weights.shape)} first"
            )
    if weights.numel() and float(weights.min()) < 0:
        raise arguments.wrong(ValueError, "weights", weights.tolist(), "non-negative numbers")
    total = weights.sum(1)
    empty = total == 0
    if bool(empty.any()) and otherwise is None:
        raise ValueError("weights: got a cohort whose weights sum to zero; allowed with `otherwise` only")
    share = weights / total.clamp(min=torch.finfo(torch.float64).tiny)[:, None] if weights.numel() else weights

    def mean(x: Tensor, old: Tensor | None = None) -> Tensor:
        w = share.to(device=x.device, dtype=x.dtype)
        mixed = torch.einsum("sm,sm...->s...", w, x)
        if old is None:
            return mixed
        if old.shape != mixed.shape:
            raise arguments.wrong(ValueError, "otherwise", old, f"tensors of the mean's shape {tuple(mixed.shape)}")
        return torch.where(per_row(empty, old), old, mixed)

    return tree_map(mean, tree) if otherwise is None else tree_map(mean, tree, otherwise)

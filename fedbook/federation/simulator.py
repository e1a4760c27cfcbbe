"""The simulator: moves an exchange's messages, runs the local work in batches, counts what crosses."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedbook import arguments, interrupts
from fedbook.federation import sharding
from fedbook.federation.exchange import Chain, Exchange, Local, Part, Reply, Total, Uploads
from fedbook.federation.ledger import ByteLedger, row_bytes
from fedbook.federation.population import Federation, Group
from fedbook.federation.tree import Tree, flatten, leaves, tree_map, unflatten
from fedbook.randomness import keyed, stream
from fedbook.wire import Encoded, Wire

Job = tuple[Group, Tensor, Tensor]  # a group's rows of an exchange: federation and place in its cohort, [R] each


class Simulator:
    """Delivers exchanges to the clients of one :class:`Federation`, S seeds side by side.

    ``clients`` is the stacked personal state: by group, tensors [S, K_g, ...]. Cost and memory of a
    delivery grow with the cohort, not with K.
    """

    elsewhere = False  # True: clients' state lies where the work is done, and goes back by one round at most

    def __init__(
        self,
        federation: Federation,
        seeds: Sequence[int],
        clients: dict[str, Tree] | None = None,
        noise_seeds: Sequence[int | None] | None = None,
        how: str = "vmap",
        chunk: int | None = None,
        noise_keys: Sequence[str] | None = None,
    ):
        self.federation, self.seeds = federation, tuple(seeds)
        self.noise_seeds = tuple(self.seeds if noise_seeds is None else noise_seeds)
        self.noise_keys = tuple("" for _ in self.seeds) if noise_keys is None else tuple(noise_keys)
        self.clients: dict[str, Tree] = dict(clients or {})
        self.bytes = ByteLedger(len(self.seeds))
        self.how, self.chunk, self.t, self.attempt = how, chunk, -1, 0
        self._undo: list[tuple[str, Tensor, Tensor, Tree]] = []  # old rows of client state written this round
        self._bytes_before = self.bytes.state()
        self.trace: dict[str, list[tuple[Tensor, Tensor]]] = {}  # name -> (federation, value) of each row
        self.cohort_sizes = [0] * len(self.seeds)
        self._times: dict[str, int] = {}  # exchange name -> how often it happened this round
        self._sent: list[Exchange] = []  # this round's exchanges so far
        self.crossed: dict[str, int] = {}  # bytes of all messages, where an engine sends some
        self.tokens: dict[str, str] | None = {}  # where nodes work, of each the last round it was asked in that counts

    @property
    def delivered(self) -> bool:
        """Whether a message of this round has left."""
        return bool(self._sent)

    def open_round(self, t: int, attempt: int = 0) -> None:
        """Begin round ``t`` (-1: the set-up): fresh byte counts and trace; ``attempt``: see randomness.repeated."""
        self.t, self.trace, self.cohort_sizes, self._undo, self._times = t, {}, [0] * len(self.seeds), [], {}
        self.attempt = attempt
        self._sent = []
        self.bytes.open_round()
        self._bytes_before = copy.deepcopy(self.bytes.state())

    def numbered(self, name: str, number: int, times: int) -> None:
        """For single exchanges: how many there were this round, and of this name (noise is keyed by it)."""
        self._sent, self._times = [None] * number, {name: times}

    def deliver(self, exchange: Exchange) -> Uploads | Total:
        """Run one exchange and return its uploads (or their sum)."""
        cohort = exchange.cohort
        self._check(exchange)
        self._count_down(exchange)
        self._times[exchange.name] = self._times.get(exchange.name, 0) + 1
        self.cohort_sizes = [max(a, b) for a, b in zip(self.cohort_sizes, cohort.sizes.tolist(), strict=True)]
        jobs = []
        for number, group in enumerate(self.federation.groups.values()):
            here = cohort.present & (self.federation.group_of[cohort.ids] == number)
            slot, place = torch.nonzero(here, as_tuple=True)
            if len(slot):
                jobs.append((group, slot, place))
        results = self.run(exchange, jobs)
        parts = [self._take(exchange, *job, done) for job, done in zip(jobs, results, strict=True)]
        sent = {name for part in parts for name in part.tree}
        if parts and not set(exchange.chain) <= sent:  # a misspelt name would go unclipped and without noise
            raise arguments.wrong(ValueError, "chain", sorted(exchange.chain), f"names of the uploads {sorted(sent)}")
        uploads = Uploads(cohort, parts, exchange.like, exchange.chain)
        return uploads if exchange.reveal == "each" else Total.of(uploads, exchange.like)

    def run(self, exchange: Exchange, jobs: Sequence[Job]) -> list[sharding.Done]:
        """The results of an exchange's local work, a list of rows a group; another engine has it done elsewhere."""

        def work(number: int, rows: slice) -> sharding.Done:
            group, slot, place = jobs[number]
            done = self.work(exchange, group, slot[rows], place[rows])
            interrupts.point()
            return done

        return sharding.shared([len(slot) for _, slot, _ in jobs], work)

    def roll_back(self) -> None:
        """Undo what a broken-off round wrote into the clients' state and the byte ledger."""
        for group, slot, member, old in reversed(self._undo):
            _put(self.clients[group], slot, member, old)
        self._undo = []
        self.bytes.load(self._bytes_before)

    def _check(self, exchange: Exchange) -> None:
        cohort, seeds = exchange.cohort, len(self.seeds)
        ids = cohort.ids[cohort.present]
        if len(cohort.ids) != seeds:
            raise ValueError(f"cohort: got {len(cohort.ids)} federations; allowed are the {seeds} of this run")
        if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= self.federation.num_clients):
            raise arguments.wrong(ValueError, "cohort", ids.tolist(), f"clients 0..{self.federation.num_clients - 1}")
        for word, message, lead in (
            ("down", exchange.down, (seeds,)),
            ("each", exchange.each, tuple(cohort.ids.shape)),
        ):
            for name, leaf in leaves(message):
                value = _received(leaf) if word == "down" else leaf
                if not isinstance(value, Tensor):
                    kinds = "tensors or Wire" if word == "down" else "tensors"
                    raise arguments.wrong(TypeError, f"{word} {name!r}", value, kinds)
                if tuple(value.shape[: len(lead)]) != lead:
                    allowed = f"a tensor whose first axes are {lead} ({'S' if word == 'down' else 'S, m'})"
                    raise arguments.wrong(ValueError, f"{word} {name!r}", value, allowed)
        for name in exchange.held:
            recipients = {
                pair for past in self._sent if past.down.get(name) is exchange.down[name] for pair in _whom(past)
            }
            if not _whom(exchange) <= recipients:
                allowed = "names of messages that all of the cohort got, as the same object, earlier in this round"
                raise arguments.wrong(ValueError, "held", name, allowed)
        self._sent.append(replace(exchange, down=dict(exchange.down)))  # the algorithm may reuse its dictionary

    def _count_down(self, exchange: Exchange) -> None:
        counts, sent = [], {name: tree for name, tree in exchange.down.items() if name not in exchange.held}
        for slot, size in enumerate(exchange.cohort.sizes.tolist()):
            each = row_bytes(exchange.each, 2, slot) if exchange.each else 0
            counts.append(size * (row_bytes(sent, 1, slot) + each))
        self.bytes.add(self.t, exchange.name, "down", counts)

    def work(self, exchange: Exchange, group: Group, slot: Tensor, place: Tensor) -> sharding.Done:
        """The local work of clients of one group, and what their uploads pass on their way."""
        clients = exchange.cohort.ids[slot, place]
        member = self.federation.member_of[clients]
        inbox = {name: tree_map(lambda x: _for_rows(_received(x), slot), tree) for name, tree in exchange.down.items()}
        inbox |= {name: tree_map(lambda x: x[slot, place], tree) for name, tree in exchange.each.items()}
        own = self.clients.get(group.name, {})
        again = f"#{len(self._sent)}" if len(self._sent) > 1 else ""  # each exchange of a round has noise of its own
        local = Local(
            group=group.name,
            inbox=inbox,
            state={name: tree_map(lambda x: x[slot, member], tree) for name, tree in own.items()},
            data=group.rows(slot, member),
            clients=clients,
            seeds=tuple(self.seeds[s] for s in slot.tolist()),
            t=self.t,
            how=self.how,
            chunk=self.chunk,
            noise_seeds=tuple(self.noise_seeds[s] for s in slot.tolist()),
            attempt=self.attempt,
            noise_keys=tuple(self.noise_keys[s] + again for s in slot.tolist()),
        )
        reply = _checked(exchange.work(local), len(slot), exchange.name)
        upload, wire, traces = {}, {}, [dict(reply.trace)]
        for name, rows in reply.upload.items():
            rows = tree_map(lambda x: x.detach(), rows)
            chain = exchange.chain.get(name, Chain())
            # the same exchange twice in a round must not add the same noise twice: its difference would be in clear
            times = self._times[exchange.name]
            purpose = f"{exchange.name}/{name}" if times == 1 else f"{exchange.name}#{times}/{name}"
            flat, buffers, more = self._pass(chain, flatten(rows), purpose, slot, clients.tolist())
            upload[name], traces = unflatten(flat, rows), traces + more
            if buffers is not None:
                wire[name] = buffers
        tree = {"upload": upload, "trace": dict(enumerate(traces))}
        return sharding.Done(tree if reply.state is None else tree | {"state": reply.state}, wire)

    def _take(self, exchange: Exchange, group: Group, slot: Tensor, place: Tensor, done: sharding.Done) -> Part:
        """Enter the results of a group's clients: their new state, their trace, the bytes they sent."""
        clients, upload = exchange.cohort.ids[slot, place], done.tree["upload"]
        if "state" in done.tree:
            self.store(group.name, slot, self.federation.member_of[clients], done.tree["state"])
        for trace in done.tree["trace"].values():
            for name, values in trace.items():
                self.trace.setdefault(name, []).append((slot, values.detach()))
        counts = [0] * len(self.seeds)
        for name, rows in upload.items():
            plain = sum(x.shape[1:].numel() * x.element_size() for _, x in leaves(rows))
            for r, s in enumerate(slot.tolist()):
                counts[s] += done.wire[name][r].nbytes if name in done.wire else plain
        self.bytes.add(self.t, exchange.name, "up", counts)
        return Part(group.name, slot, place, upload, done.wire)

    def store(self, group: str, slot: Tensor, member: Tensor, state: Any) -> None:
        """Enter the new state of clients, so that :meth:`roll_back` can undo it. Raises: ValueError (another form)."""
        own = self.clients.get(group, {})
        if set(state) != set(own):
            raise ValueError(
                f"state: got {sorted(state)} from the work; allowed is {sorted(own)} as given at the start"
            )
        old = tree_map(lambda x: x[slot, member], own)
        for name, (new, kept) in leaves(tree_map(lambda x, y: (x, y), state, old)):
            if new.shape != kept.shape or new.dtype != kept.dtype:  # assigning would stretch or round silently
                raise arguments.wrong(ValueError, f"state {name!r} of the work", new, arguments.shown(kept))
        self._undo.append((group, slot, member, old))
        _put(own, slot, member, state)

    def _pass(
        self, chain: Chain, rows: dict[str, Tensor], purpose: str, slot: Tensor, clients: list[int]
    ) -> tuple[dict[str, Tensor], list[Encoded] | None, list[dict[str, Tensor]]]:
        def streams(step: str, keys: Sequence[str]):
            pairs = zip(slot.tolist(), clients, strict=True)
            return [stream(self.noise_seeds[s], keyed(f"{purpose}/{step}", keys[s]), self.t, k) for s, k in pairs]

        form, traces = {name: x.shape for name, x in rows.items()}, []
        for number, transform in enumerate(chain.transforms):
            rows, trace = transform(rows, streams(str(number), self.noise_keys))
            _same_form(f"transform {number} of {purpose!r}", rows, form)
            traces.append(trace)
        if chain.codec is None:
            return rows, None, traces
        buffers = chain.codec.encode(rows, streams("codec", [""] * len(self.seeds)))  # dithers, not privacy noise
        if len(buffers) != len(clients):
            raise ValueError(
                f"codec of {purpose!r}: got {len(buffers)} buffers; allowed is one for each of {len(clients)} rows"
            )
        decoded = chain.codec.decode(buffers, rows)
        _same_form(f"codec of {purpose!r}", decoded, form)
        return decoded, buffers, traces

    def trace_means(self) -> dict[str, list[float]]:
        """Each trace's mean over the rows of each federation (NaN where its cohort was empty)."""
        means = {}
        for name, pieces in self.trace.items():
            slot = torch.cat([s for s, _ in pieces])
            value = torch.cat([v.double().cpu() for _, v in pieces])
            sums = torch.zeros(len(self.seeds), dtype=torch.float64).index_add_(0, slot, value)
            means[name] = (sums / torch.bincount(slot, minlength=len(self.seeds))).tolist()
        return means


def _put(whole: Tree, slot: Tensor, member: Tensor, rows: Tree) -> None:
    def put(x: Tensor, new: Tensor) -> None:
        x[slot, member] = new.detach()

    tree_map(put, whole, rows)


def _same_form(name: str, rows: dict[str, Tensor], form: dict[str, torch.Size]) -> None:
    if {leaf: x.shape for leaf, x in rows.items()} != form:
        got = {leaf: tuple(x.shape) for leaf, x in rows.items()}
        raise ValueError(
            f"{name}: got {got}; allowed is the form that went in, { ({n: tuple(s) for n, s in form.items()}) }"
        )


def _whom(exchange: Exchange) -> set[tuple[int, int]]:
    """Pairs (federation, client) of an exchange's cohort."""
    slot, place = torch.nonzero(exchange.cohort.present, as_tuple=True)
    return set(zip(slot.tolist(), exchange.cohort.ids[slot, place].tolist(), strict=True))


def _received(leaf: Tensor | Wire) -> Tensor:
    return leaf.value if isinstance(leaf, Wire) else leaf


def _for_rows(value: Tensor, slot: Tensor) -> Tensor:
    """What each row gets of a broadcast [S, ...]; of one federation's, a view and no copy a client."""
    return value.expand(len(slot), *value.shape[1:]) if len(value) == 1 else value[slot]


def _checked(reply: Reply, rows: int, exchange: str) -> Reply:
    if not isinstance(reply, Reply):
        raise arguments.wrong(TypeError, f"work of exchange {exchange!r}", reply, "a Reply")
    for word, tree in (("upload", reply.upload), ("state", reply.state or {}), ("trace", reply.trace)):
        for name, leaf in leaves(tree):
            if not isinstance(leaf, Tensor) or leaf.ndim < 1 or len(leaf) != rows:
                raise arguments.wrong(
                    ValueError,
                    f"{word} {name!r} of exchange {exchange!r}",
                    leaf,
                    f"a tensor with {rows} rows, one a client",
                )
    for name, values in reply.trace.items():
        if values.ndim != 1:
            raise arguments.wrong(ValueError, f"trace {name!r} of exchange {exchange!r}", values, "one number a client")
    return reply

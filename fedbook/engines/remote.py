"""The server's side of any engine: exchanges become messages to nodes, their answers become uploads.

A node holds some of the clients. What it answers is checked before it counts: a node that is silent, or whose message
is damaged, misshapen or not finite, is lost, by name.
"""

from __future__ import annotations

import inspect
import math
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from fedbook.engines.messages import BrokenMessage, pack, unpack
from fedbook.engines.node import Node
from fedbook.engines.parts import MOST_NUMBERS, described, packed
from fedbook.federation.composed import taken_apart
from fedbook.federation.exchange import Chain, ClientsLost, Diverged, Exchange
from fedbook.federation.sharding import Done
from fedbook.federation.simulator import Job, Simulator
from fedbook.federation.tree import Tree, flatten, leaves, tree_map, unflatten
from fedbook.wire import Encoded, Wire


class NotFinite(BrokenMessage):
    """An answer whose numbers, or whose clients' while they worked, are no longer finite."""


class Transport(Protocol):
    """Who carries. ``clients``: node -> the clients that it holds."""

    clients: Mapping[str, Sequence[int]]

    def ask(self, requests: Mapping[str, bytes]) -> Mapping[str, bytes | str]:
        """Each node's answer, or in words why there is none; nodes that say nothing may be left out."""


class InMemory:
    """Nodes in this process: what tests and a first look need."""

    def __init__(self, nodes: Iterable[Node]):
        self.nodes = {node.name: node for node in nodes}
        self.clients = {name: node.clients for name, node in self.nodes.items()}

    def ask(self, requests: Mapping[str, bytes]) -> dict[str, bytes | str]:
        """Each node's answer."""
        return {name: self.nodes[name].answer(request) for name, request in requests.items()}


class Remote(Simulator):
    """A simulator without local work: nodes do it. ``Rounds(..., simulator=partial(Remote, transport))``.

    ``judged``: nodes send their clients' state and trace as well, which only the judging of a rehearsal sees (the
    simulator's privilege). Without it they stay where they are. ``crossed``: bytes of all messages, up and down.
    """

    elsewhere = True

    def __init__(self, transport: Transport, *args: Any, judged: bool = True, **options: Any):
        self._asked: dict[str, str] = {}  # nodes that were asked in this try of the round, and its token
        super().__init__(*args, **options)
        self.transport, self.judged = transport, judged
        self.crossed = {"down": 0, "up": 0}

    @property
    def tokens(self) -> dict[str, str] | None:
        """Of each node the token of the last try that counts in which it was asked; it undoes what it did since."""
        return None if self._tokens is None else self._tokens | self._asked

    @tokens.setter
    def tokens(self, tokens: dict[str, str] | None) -> None:
        self._tokens = tokens

    def open_round(self, t: int, attempt: int = 0) -> None:
        """Begin round ``t``, by a token that no other try of it has."""
        self._tokens, self._asked = self.tokens, {}
        super().open_round(t, attempt)
        self.token = secrets.token_hex(8)

    def roll_back(self) -> None:
        """Undo a broken-off round; nodes learn of it when they are asked next."""
        self._asked = {}
        super().roll_back()

    def run(self, exchange: Exchange, jobs: Sequence[Job]) -> list[Done]:
        """The results of the nodes.

        Raises: fedbook.federation.exchange.ClientsLost, or Diverged where none of the nodes has finite numbers.
        """
        requests, rows = {}, {}
        for node, clients in self.transport.clients.items():
            held = torch.tensor(list(clients))
            mine = [
                torch.nonzero(torch.isin(exchange.cohort.ids[slot, place], held)).flatten() for _, slot, place in jobs
            ]
            if any(len(one) for one in mine):
                counted = None if self._tokens is None else self._tokens.get(node, "")
                asked = self._request(exchange, jobs, mine) | {"counted": counted}
                requests[node], rows[node] = pack(asked), mine
        self._asked |= dict.fromkeys(requests, self.token)
        answers = dict(self.transport.ask(requests))
        self.crossed["down"] += sum(map(len, requests.values()))
        self.crossed["up"] += sum(len(one) for one in answers.values() if isinstance(one, bytes))
        read, lost, wild = {}, {}, set()
        for node in requests:
            try:
                read[node] = self._read(exchange, answers.get(node, "no answer in time"), rows[node])
                for (group, _, _), done in zip(jobs, read[node], strict=True):
                    if done is not None and "state" in done.tree:
                        self._same_state(group.name, done.tree["state"])
            except BrokenMessage as error:
                read.pop(node, None)
                lost[node] = str(error)
                wild |= {node} if isinstance(error, NotFinite) else set()
        lost |= _misfits(exchange, read)
        if lost:
            why = "; ".join(f"node {node}: {reason}" for node, reason in lost.items())
            if len(wild) == len(requests):  # nobody's fault: the simulator ends such a run so, too
                raise Diverged(why)
            gone = [client for node in lost for client in self.transport.clients[node]]
            raise ClientsLost(why, gone, diverged=wild == set(lost))
        missing = sum(len(slot) for _, slot, _ in jobs) - sum(len(one) for mine in rows.values() for one in mine)
        if missing:
            raise ValueError(f"nodes: got none for {missing} clients of the cohort; allowed is one for every client")
        return [
            _joined(len(slot), [(rows[node][number], done[number]) for node, done in read.items() if done[number]])
            for number, (_, slot, _) in enumerate(jobs)
        ]

    def _request(self, exchange: Exchange, jobs: Sequence[Job], mine: Sequence[Tensor]) -> dict[str, Any]:
        exchange, around = taken_apart(exchange)
        name = getattr(exchange.work, "__name__", None)
        own = isinstance(name, str) and getattr(exchange.work, "__self__", None) is not None
        if not own or list(inspect.signature(exchange.work).parameters) != ["local"]:
            allowed = "methods of the algorithm with one argument, named local"
            raise TypeError(f"work: got {exchange.work}; allowed on this engine are {allowed}")
        parts = []
        for (group, slot, place), rows in zip(jobs, mine, strict=True):
            slot, place = slot[rows], place[rows]
            each = {word: tree_map(lambda x, s=slot, p=place: x[s, p], tree) for word, tree in exchange.each.items()}
            clients = exchange.cohort.ids[slot, place].tolist()
            parts.append({"group": group.name, "slots": slot.tolist(), "clients": clients, "each": each})
        here = exchange.down  # held counts by client: to a node the name may have come with something else since
        held = [n for n in exchange.held if all(past.down[n] is here[n] for past in self._sent if n in past.down)]
        down = {name: tree for name, tree in here.items() if name not in held}
        return {
            "t": self.t, "token": self.token, "attempt": self.attempt, "number": len(self._sent),
            "times": self._times[exchange.name], "name": exchange.name, "work": name, "judged": self.judged,
            "chain": {word: described(chain) for word, chain in exchange.chain.items()}, "reveal": exchange.reveal,
            "composed": [one.composition for one in around],
            "like": tree_map(lambda x: x.new_zeros(0, *x.shape), dict(exchange.like)),
            "held": held, "down": tree_map(lambda x: packed(x) if isinstance(x, Wire) else x, down), "parts": parts,
        }  # fmt: skip

    def _read(self, exchange: Exchange, answer: bytes | str, rows: Sequence[Tensor]) -> list[Done | None]:
        if isinstance(answer, str):
            raise BrokenMessage(answer)
        try:
            value = unpack(answer)
            if "diverged" in value:
                raise NotFinite(f"its clients diverged: {value['diverged']}")
            if "refused" in value:
                raise BrokenMessage(f"it refused: {value['refused']}")
            parts = value["parts"]
            if len(parts) != len(rows):
                raise BrokenMessage(f"its answer has {len(parts)} groups; allowed are {len(rows)}")
            return [self._done(exchange, part, len(own)) if len(own) else None
                    for part, own in zip(parts, rows, strict=True)]  # fmt: skip
        except (KeyError, TypeError, AttributeError, ValueError, IndexError, RuntimeError) as error:
            if isinstance(error, BrokenMessage):
                raise
            raise BrokenMessage(f"its answer has another form ({type(error).__name__}: {error})") from error

    def _same_state(self, group: str, state: Mapping[str, Tree]) -> None:
        """Raises: BrokenMessage (another form than the clients' state has)."""
        own = {name: (tuple(x.shape[2:]), str(x.dtype)) for name, x in leaves(self.clients.get(group, {}))}
        sent = {name: (tuple(x.shape[1:]), str(x.dtype)) for name, x in leaves(state)}
        if sent != own:
            raise BrokenMessage(f"its state has the form {sent}; allowed is {own}")

    def _done(self, exchange: Exchange, part: Mapping[str, Any], rows: int) -> Done:
        upload, wire = dict(part["upload"]), {}
        codecs = {name: exchange.chain.get(name, Chain()).codec for name in [*upload, *part["encoded"]]}
        if wrong := sorted(name for name, codec in codecs.items() if (codec is None) == (name in part["encoded"])):
            raise BrokenMessage(f"its uploads {wrong} are not encoded as it was asked")
        for name, sent in part["encoded"].items():
            codec = codecs[name]
            if not all(isinstance(one, Encoded) for one in sent["buffers"]) or len(sent["buffers"]) != rows:
                raise BrokenMessage(f"its upload {name!r} is not {rows} encoded buffers, one a client")
            shapes = {leaf: (rows, *x.shape[1:]) for leaf, x in flatten(sent["form"]).items()}
            if sum(map(math.prod, shapes.values())) > MOST_NUMBERS:
                raise BrokenMessage(f"its upload {name!r} would decode to more than {MOST_NUMBERS} numbers")
            like = {leaf: x.new_zeros(shapes[leaf]) for leaf, x in flatten(sent["form"]).items()}
            wire[name] = list(sent["buffers"])
            upload[name] = unflatten(codec.decode(wire[name], like), sent["form"])
        tree = {"upload": upload, "trace": {}}
        if self.judged:
            tree |= {word: part[word] for word in ("trace", "state") if part.get(word) is not None}
        for name, leaf in leaves(tree):
            if not isinstance(leaf, Tensor) or leaf.ndim < 1 or len(leaf) != rows:
                raise BrokenMessage(f"its {name} is no tensor with {rows} rows, one a client")
            if name.startswith("upload") and leaf.is_floating_point() and not bool(leaf.isfinite().all()):
                raise NotFinite(f"its {name} has numbers that are not finite (a smaller step size lr may help)")
            if name.startswith("trace") and leaf.ndim != 1:
                raise BrokenMessage(f"its {name} is not one number a client")
        return Done(tree_map(lambda x: x.to(self.federation.device), tree), wire)


def _misfits(exchange: Exchange, read: Mapping[str, Sequence[Done | None]]) -> dict[str, str]:
    """Nodes whose uploads have another form than the exchange's ``like`` or, where it says nothing, than most have."""
    wrong = {}
    for number in range(max(map(len, read.values()), default=0)):
        forms = {node: _form(done[number].tree["upload"]) for node, done in read.items() if done[number]}
        if exchange.like or len(set(forms.values())) > 1:
            usual = _form(exchange.like, rows=False) if exchange.like else _most(forms.values())
            wrong |= {node: f"its upload has the form {form}; allowed is {usual or 'one for all'}"
                      for node, form in forms.items() if form != usual}  # fmt: skip
        kinds = {node: _others(done[number]) for node, done in read.items() if done[number] and node not in wrong}
        if len(set(kinds.values())) > 1:
            usual = _most(kinds.values())
            wrong |= {node: f"besides uploads it has {list(kind)}; allowed is {usual or 'the same for all'}"
                      for node, kind in kinds.items() if kind != usual}  # fmt: skip
    return wrong


def _others(done: Done) -> tuple[str, ...]:
    """What an answer holds besides uploads: the names of its trace, and whether there is state."""
    return (*sorted(done.tree["trace"]), *(["state"] if "state" in done.tree else []))


def _most(forms: Iterable[tuple]) -> tuple | None:
    ranked = Counter(forms).most_common(2)
    return None if len(ranked) > 1 and ranked[0][1] == ranked[1][1] else ranked[0][0]


def _form(tree: Mapping[str, Tree], rows: bool = True) -> tuple:
    return tuple(sorted((name, tuple(x.shape[1 if rows else 0 :]), str(x.dtype)) for name, x in leaves(tree)))


def _joined(rows: int, parts: Sequence[tuple[Tensor, Done]]) -> Done:
    """The results of several nodes in the order of the cohort's rows."""
    order = torch.cat([own for own, _ in parts]).argsort()
    tree = tree_map(lambda *xs: torch.cat(xs)[order.to(xs[0].device)], *[done.tree for _, done in parts])
    buffers = {name: [one for _, done in parts for one in done.wire[name]] for name in parts[0][1].wire}
    assert len(order) == rows
    return Done(tree, {name: [sent[i] for i in order.tolist()] for name, sent in buffers.items()})

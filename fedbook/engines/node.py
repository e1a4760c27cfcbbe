"""A node: it holds some of the clients, their data and their state, and does their local work when it is asked."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedbook.engines.messages import BrokenMessage, pack, unpack
from fedbook.engines.parts import made, unpacked
from fedbook.federation import checkpoint
from fedbook.federation.cohort import Cohort
from fedbook.federation.composed import composed, layers
from fedbook.federation.exchange import Diverged, Exchange
from fedbook.federation.loop import Rounds
from fedbook.federation.population import Federation, Group
from fedbook.federation.simulator import Simulator
from fedbook.federation.tree import Tree, leaves, tree_map

STATE = "state.pt"
REFUSED = (BrokenMessage, KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError)


class Node:
    """``rounds`` is the run as the node knows it; of its data and state only those of ``clients`` are kept.

    ``folder``: where the clients' state lies between messages: as it was when the round began, to which a round that
    is done again goes back, and as it is. Raises: checkpoint.CheckpointError (a folder of another run), ValueError.
    """

    def __init__(self, name: str, rounds: Rounds, clients: Sequence[int], folder: str | Path | None = None):
        if rounds.federation.splits > 1:
            raise ValueError(f"seeds: got {len(rounds.seeds)} splits; allowed on nodes is one")
        self.name, self.clients, self.algorithm = name, tuple(clients), rounds.algorithm
        own = only(rounds.federation, self.clients)
        here = rounds.simulator
        self.simulator = Simulator(
            own, here.seeds, here.clients, here.noise_seeds, here.how, here.chunk, here.noise_keys
        )
        self.path = None if folder is None else Path(folder) / STATE
        self.t, self.token, self.before = -2, "", self._state()
        self.since = ""  # the token of the round that left ``before``
        self.heard: dict[str, Tree] = {}  # this round's broadcasts: a later exchange may build on them
        self._configuration = {k: v for k, v in rounds.configuration().items() if k != "data"}
        split = hashlib.blake2b(digest_size=8)
        for piece in own.split_bytes(0):
            split.update(piece)
        self._configuration |= {"node": name, "clients": list(self.clients), "split": split.hexdigest()}
        if self.path is not None and self.path.exists():
            saved = checkpoint.load(self.path)
            checkpoint.same_configuration(saved["configuration"], self._configuration, self.path)
            self.t, self.token, self.before = saved["t"], saved["token"], saved["before"]
            self.since = saved.get("since", "")  # absent: the state is of an older version
            self.simulator.clients, self.heard = saved["now"], saved["heard"]

    def answer(self, request: bytes) -> bytes:
        """The answer to one message; to one that it refuses, the reason; of work that diverges, what did."""
        try:
            return pack(self._work(unpack(request)))
        except Diverged as error:
            return pack({"diverged": str(error)})
        except REFUSED as error:
            return pack({"refused": f"{type(error).__name__}: {error}"})

    def _work(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        self._begin(asked["t"], asked["token"], asked["counted"])
        simulator, groups = self.simulator, self.simulator.federation.groups
        simulator.t, simulator.attempt = asked["t"], asked["attempt"]
        simulator.numbered(asked["name"], asked["number"], asked["times"])
        exchange, places = self._exchange(asked)
        parts = []
        for part, place in zip(asked["parts"], places, strict=True):
            if not part["clients"]:
                parts.append({})
                continue
            group, slot = groups[part["group"]], torch.tensor(part["slots"])
            done = simulator.work(exchange, group, slot, place)
            if (state := done.tree.get("state")) is not None:
                member = simulator.federation.member_of[exchange.cohort.ids[slot, place]]
                simulator.store(group.name, slot, member, state)
            parts.append(_answered(done, asked["judged"]))
        self._keep()
        return {"node": self.name, "parts": parts}

    def _begin(self, t: int, token: str, counted: str | None) -> None:
        """The clients' state as the round must find it: what a round did that is done again is undone.

        ``counted``: the token of the last round that counts in which this node was asked ("" if in none).
        """
        if t < self.t:
            raise ValueError(f"round: got {t}; allowed is {self.t} or a later one, as earlier state is not kept")
        if t > self.t:
            if counted is not None and counted != self.token:
                if counted != self.since and any(leaves(self.before)):
                    raise BrokenMessage("the state of its clients is gone: it does not know of the rounds before")
                self.simulator.clients = self.before
            self.before, self.since = self._state(), self.token if counted is None else counted
        elif token != self.token:
            self.simulator.clients = tree_map(torch.clone, self.before)
        if (t, token) != (self.t, self.token):
            self.heard = {}
        self.t, self.token = t, token

    def _exchange(self, asked: Mapping[str, Any]) -> tuple[Exchange, list[Tensor]]:
        """The exchange as this node sees it, a cohort of its own clients, and the places in it of each part's rows."""
        algorithm, around = layers(self.algorithm)
        here = [one.composition for one in around]
        if asked["composed"] != here:  # uploads would be read for what they are not, or their noise not counted
            raise BrokenMessage(f"composed: got {asked['composed']}; allowed is {here}, as in this node's own run")
        work = getattr(type(algorithm), asked["work"], None)
        if (
            work is None
            or asked["work"].startswith("_")
            or list(inspect.signature(work).parameters) != ["self", "local"]
        ):
            raise BrokenMessage(f"work: got {asked['work']!r}; allowed is local work of {self.algorithm.name}")
        members: list[list[int]] = [[] for _ in self.simulator.seeds]
        places = []
        for part in asked["parts"]:
            if strangers := sorted(set(part["clients"]) - set(self.clients)):
                raise BrokenMessage(f"clients: got {strangers}, who are not on this node")
            own = []
            for slot, client in zip(part["slots"], part["clients"], strict=True):
                own.append(len(members[slot]))
                members[slot].append(client)
            places.append(torch.tensor(own, dtype=torch.long))
        cohort = Cohort.of(members)
        each: dict[str, Tree] = {}
        for part, place in zip(asked["parts"], places, strict=True):
            for word, rows in part["each"].items() if part["clients"] else ():
                slot = torch.tensor(part["slots"])
                if word not in each:
                    each[word] = tree_map(lambda x: x.new_zeros(*cohort.ids.shape, *x.shape[1:]), rows)
                for (_, whole), (_, x) in zip(leaves(each[word]), leaves(rows), strict=True):
                    whole[slot, place] = x
        chain = {word: made(value) for word, value in asked["chain"].items()}
        self.heard |= tree_map(lambda x: unpacked(x) if isinstance(x, list) else x, asked["down"])
        down = {name: self.heard[name] for name in (*asked["held"], *asked["down"])}
        like = tree_map(lambda x: x.new_zeros(x.shape[1:]), asked["like"])
        exchange = Exchange(
            cohort, getattr(algorithm, asked["work"]), down, each, chain, asked["reveal"], like, name=asked["name"]
        )
        return composed(around, exchange, self.simulator.federation.num_clients), places

    def _state(self) -> dict[str, Tree]:
        return tree_map(torch.clone, self.simulator.clients)

    def _keep(self) -> None:
        if self.path is not None:
            state = {"t": self.t, "token": self.token, "before": self.before, "since": self.since}
            state |= {"now": self.simulator.clients, "heard": self.heard}
            checkpoint.save(self.path, state | {"configuration": self._configuration})


def only(federation: Federation, clients: Sequence[int]) -> Federation:
    """The federation as the holder of ``clients`` has it: nobody else's samples (zeros), no word of who has which."""
    own = Federation.__new__(Federation)
    held = torch.tensor(list(clients), dtype=torch.long)
    own.groups = {}
    for name, group in federation.groups.items():
        here = torch.isin(group.ids, held)
        table, sizes = group.table * here[None, :, None], group.sizes * here[None]
        used = table[torch.arange(table.shape[2]) < sizes[..., None]].unique()
        samples = {word: torch.zeros_like(x).index_copy(0, used, x[used]) for word, x in group.samples.items()}
        own.groups[name] = Group(name, group.ids, samples, table, sizes)
    own._index()
    return own


def _answered(done: Any, judged: bool) -> dict[str, Any]:
    """What leaves: encoded uploads as their buffers alone, the rest as it is; state and trace for the judge only."""
    tree = done.tree
    form = {name: tree_map(lambda x: x[:0], tree["upload"][name]) for name in done.wire}
    answer = {
        "upload": {name: rows for name, rows in tree["upload"].items() if name not in done.wire},
        "encoded": {name: {"buffers": done.wire[name], "form": form[name]} for name in done.wire},
    }
    if judged:
        answer |= {"trace": {str(n): one for n, one in tree["trace"].items()}, "state": tree.get("state")}
    return answer

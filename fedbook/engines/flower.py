"""Flower's deployment engine: a SuperLink carries the messages, each SuperNode is one :class:`Node`.

``python -m fedbook.engines.flower`` is not a command: ``fedbook run ... --engine flower`` writes an app of two lines
that names :data:`server` and :data:`client`, and ``flwr run`` sends it to the SuperLink. Flower 1.41 starts a process
for every message, so what a node must remember lies in its folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedbook import experiment, outputs
from fedbook.engines.node import Node
from fedbook.engines.remote import Remote
from fedbook.experiment import Plan, plan
from fedbook.federation.loop import Rounds
from fedbook.papers import paper

PATIENCE = 600.0  # seconds that a node has for an answer, where the run does not say it
TRUST = (
    "the server draws who takes part and knows it",
    "sums are made by the server out of single uploads: no secure aggregation runs here, whatever the releases say",
    "noise that the server adds does not protect from the server",
)
JUDGED = "nodes also send the state and the trace of their clients, for the judging: in no ledger"

server, client = ServerApp(), ClientApp()


class FlowerNodes:
    """Flower's grid as a :class:`fedbook.engines.remote.Transport`; nodes are known by the number they were given."""

    def __init__(self, grid: Grid, clients: Mapping[str, Sequence[int]], patience: float):
        self.grid, self.clients, self.patience = grid, clients, patience
        self.ids: dict[str, int] = {}

    def meet(self, patience: float) -> None:
        """Wait until every node is there. Raises: RuntimeError naming those that are not."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and not set(self.clients) <= set(self.ids):
            known = set(self.ids.values())
            new = [node for node in self.grid.get_node_ids() if node not in known]
            questions = [Message(RecordDict({"hello": ConfigRecord()}), node, "query") for node in new]
            for answer in self.grid.send_and_receive(questions, timeout=patience) if new else ():
                if not answer.has_error():
                    self.ids[str(answer.content["hello"]["node"])] = answer.metadata.src_node_id
            time.sleep(0.5)
        if missing := sorted(set(self.clients) - set(self.ids)):
            raise RuntimeError(f"nodes: {', '.join(missing)} did not come within {patience:g} s")

    def ask(self, requests: Mapping[str, bytes]) -> dict[str, bytes | str]:
        """Each node's answer, or what Flower says of it."""
        names = {self.ids[name]: name for name in requests}
        sent = [Message(_packed(request), self.ids[name], "train") for name, request in requests.items()]
        answers: dict[str, bytes | str] = {}
        for answer in self.grid.send_and_receive(sent, timeout=self.patience):
            name = names[answer.metadata.src_node_id]
            try:
                answers[name] = f"Flower says: {answer.error.reason}" if answer.has_error() else _bytes(answer)
            except KeyError as missing:
                answers[name] = f"its answer has no {missing}"
        return answers


@server.main()
def main(grid: Grid, context: Context) -> None:
    """The server's part of a run: rounds, checkpoint, result, all in the run's folder."""
    config = context.run_config
    out, patience = Path(str(config["out"])), float(config["patience"])
    chosen = read_plan(str(config["plan"]))
    clients = held(chosen.rounds().federation.num_clients, int(config["nodes"]))
    nodes = FlowerNodes(grid, clients, patience)
    nodes.meet(patience)
    simulator = partial(Remote, nodes, judged=bool(config["judged"]))
    rounds = chosen.rounds(
        simulator=simulator, path=out / "checkpoint.pt", save_every=1, resume=True, log=out / "rounds.csv", how="loop"
    )
    rounds, seconds = experiment.execute(rounds, out, f"{chosen.paper.name} {chosen.method}", chosen.paper.metric)
    outputs.write(out / "result.json", json.dumps(report(rounds, chosen, seconds)) + "\n")


@client.query()
def hello(message: Message, context: Context) -> Message:
    """Which node this is."""
    return Message(RecordDict({"hello": ConfigRecord({"node": str(context.node_config["node"])})}), reply_to=message)


@client.train()
def work(message: Message, context: Context) -> Message:
    """The local work of one exchange, by the clients of this node."""
    name = str(context.node_config["node"])
    rounds = read_plan(str(context.run_config["plan"])).rounds(how="loop")
    clients = held(rounds.federation.num_clients, int(context.run_config["nodes"]))[name]
    node = Node(name, rounds, clients, Path(str(context.node_config["folder"])))
    return Message(_packed(node.answer(_bytes(message))), reply_to=message)


def report(rounds: Rounds, chosen: Plan, seconds: float) -> dict[str, Any]:
    """The result as the simulator gives it, and what is different here: lost nodes, bytes sent, whom to trust."""
    result = experiment.result(rounds, chosen, seconds)
    result["privacy"]["not_counted"] += [*TRUST, JUDGED] if rounds.simulator.judged else TRUST
    crossed = {f"messages_{way}": size for way, size in rounds.simulator.crossed.items()}
    return result | {
        "engine": "flower",
        "lost": sorted({*rounds.lost_before.values(), *rounds.lost.values()}),
        **crossed,
    }


def held(clients: int, nodes: int) -> dict[str, list[int]]:
    """Which clients each node holds: every ``nodes``-th."""
    return {str(number): list(range(number, clients, nodes)) for number in range(nodes)}


def write_plan(chosen: Plan) -> str:
    """A plan as text that :func:`read_plan` reads."""
    return json.dumps(
        {"paper": chosen.paper.name, "method": chosen.method, "problem": chosen.problem, "profile": chosen.profile,
         "changes": dict(chosen.changes), "seeds": list(chosen.seeds), "device": chosen.device}
    )  # fmt: skip


def read_plan(text: str) -> Plan:
    """The inverse of :func:`write_plan`, checked anew. Raises: ValueError."""
    words = json.loads(text)
    return plan(paper(words.pop("paper")), **words)


def _packed(message: bytes) -> RecordDict:
    return RecordDict({"message": ArrayRecord({"bytes": Array("uint8", (len(message),), "fedbook", message)})})


def _bytes(message: Message) -> bytes:
    return message.content["message"]["bytes"].data

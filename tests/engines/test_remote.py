"""Every paper over nodes: the simulator's numbers, bit for bit; what is lost, late or nonsense, by name."""

import math
import shutil
import struct
import zlib
from functools import partial

import pytest
import torch

from fedbook.compression import AnyWidth, Codec, Summable, UniformScalar
from fedbook.engines import BrokenMessage, InMemory, Node, Remote, pack, unpack
from fedbook.engines.messages import _FRAME, MAGIC
from fedbook.engines.parts import described, made
from fedbook.experiment import ended, plan
from fedbook.federation import Chain, Cohort, Everyone, Exchange, Reply, Rounds, checkpoint, run
from fedbook.federation.composed import Composed
from fedbook.federation.exchange import ClientsLost
from fedbook.federation.tree import leaves, tree_map
from fedbook.papers import paper as by_name
from fedbook.papers.fedavg import FedAvg
from fedbook.privacy import ClientGaussian, Clip
from fedbook.wire import Encoded

VIEWS = {"rounds": 2, "local_epochs": 1, "bank": 4, "classes_per_client": 2}
EQUAL = {"partition": "iid"}  # no padding, so no rounding that a codec would make a step of: see same
SMALL = {"clients": 6, "train_samples": 240, "test_samples": 60}
RUNS = {
    "fedavg": ("fedavg", "fedavg", "digits", {**SMALL, "rounds": 3, "clients_per_round": 4}),
    "fedavg, sums": ("fedavg", "fedavg", "digits", {**SMALL, "reveal": "sum", "rounds": 2, "clients_per_round": 6}),
    "fedavg, top-k": ("fedavg", "fedavg", "digits",
                      {**SMALL, "rounds": 2, "clients_per_round": 4, "compressor": "topk", "bits": 2}),
    "fedsc": ("fedsc", "fedsc", "digits", {**SMALL, **VIEWS}),
    "fedsc, top-k": ("fedsc", "fedsc", "digits", {**SMALL, **EQUAL, "rounds": 2, "local_epochs": 1, "bank": 4,
                                                  "compressor": "topk", "bits": 2}),
    "fedx": ("fedsc", "fedx", "digits", {**SMALL, **VIEWS}),
    "fedca": ("fedsc", "fedca", "digits", {**SMALL, **VIEWS}),
    "hetero-ssfl": ("hetero_ssfl", "hetero-ssfl", "digits",
                    {**SMALL, "rounds": 2, "local_epochs": 1, "alignment_samples": 20, "alignment_batch": 20}),
    "hetero-ssfl, hexagons": ("hetero_ssfl", "hetero-ssfl", "digits",
                              {**SMALL, "rounds": 2, "local_epochs": 1, "alignment_samples": 20, "alignment_batch": 20,
                               "send": "representations", "compressor": "hex", "bits": 3}),
    "fedema": ("hetero_ssfl", "fedema", "digits", {**SMALL, "rounds": 2, "local_epochs": 1, "alignment_samples": 20}),
    "dp-rsgd": ("prirfed", "dp-rsgd", "pca-digits", {"agents": 6, "samples": 120, "rounds": 2}),
    "dp-rsvrg": ("prirfed", "dp-rsvrg", "pca-digits", {"agents": 6, "samples": 120, "rounds": 2}),
    "dp2-fedsam": ("dp2_fedsam", "dp2-fedsam", "digits", {"clients": 6, "train_samples": 240, "rounds": 3}),
    "dp2-fedsam, noise by clients": ("dp2_fedsam", "dp2-fedsam", "digits",
        {"clients": 6, "train_samples": 240, "rounds": 2, "noise_by": "clients", "sampling": "fixed"}),
    "dp2-fedsam, scalar": ("dp2_fedsam", "dp2-fedsam", "digits", {"clients": 6, "train_samples": 240, "rounds": 2,
                                                                  **EQUAL, "compressor": "scalar", "bits": 8}),
    "c-vfl": ("cvfl", "c-vfl", "digits", {"train_samples": 100, "test_samples": 50, "rounds": 3, "batch_size": 20}),
    "c-vfl, top-k": ("cvfl", "c-vfl", "digits", {"train_samples": 100, "test_samples": 50, "rounds": 3,
                                                 "batch_size": 20, "compressor": "topk", "bits": 8}),
    "c-vfl, large": ("cvfl", "c-vfl", "digits", {"train_samples": 1200, "test_samples": 50, "rounds": 2,
                                                 "batch_size": 500, "compressor": "scalar", "bits": 2}),
    "c-vfl-one-step": ("cvfl", "c-vfl-one-step", "digits",
                       {"train_samples": 100, "test_samples": 50, "rounds": 2, "batch_size": 20}),
    "secure-sum": ("cvfl", "secure-sum", "digits", {"train_samples": 100, "test_samples": 50, "rounds": 2,
                                                    "batch_size": 20, "fusion": "sum"}),
}  # fmt: skip


ROUNDED = ("fedsc", "fedx", "fedca", "fedema", "dp2-fedsam")  # see same
LOOP = {"how": "loop"}  # one client at a time: batched with others, last bits depend on how many there are


def planned(name):
    paper, method, problem, changes = RUNS[name]
    return plan(by_name(paper), method, problem, "quick", changes, (3,), "cpu")


def nodes(name, count=3, folder=None):
    """``count`` nodes; each holds every third client, say."""
    made = []
    for number in range(count):
        rounds, own = planned(name).rounds(**LOOP), None if folder is None else folder / f"n{number}"
        if own is not None:
            own.mkdir(exist_ok=True)
        made.append(Node(f"n{number}", rounds, range(number, rounds.federation.num_clients, count), own))
    return InMemory(made)


def over(name, transport, judged=True, **options):
    return planned(name).rounds(simulator=partial(Remote, transport, judged=judged), **LOOP, **options)


def alone(name, **options):
    return run(planned(name).rounds(**LOOP, **options))


def same(one, other, exact=True):
    """Bit for bit, or to the rounding of float32 where sums run over the longest of those who are batched."""
    pairs = zip(
        leaves({"s": one.server, "c": one.clients}), leaves({"s": other.server, "c": other.clients}), strict=True
    )
    equal = torch.equal if exact else partial(torch.allclose, rtol=1e-5, atol=1e-6)
    told = [(r.bytes.state(), r.privacy[0].state(), exact and [k.metrics for k in r.history]) for r in (one, other)]
    return all(a == b and equal(x, y) for (a, x), (b, y) in pairs) and told[0] == told[1]


@pytest.mark.parametrize("name", RUNS)
def test_nodes_give_the_simulators_numbers(name):
    assert same(run(over(name, nodes(name))), alone(name), name not in ROUNDED)


def test_without_a_judge_state_and_trace_stay_and_little_more_crosses_than_the_ledger_says():
    rounds, transport = alone("dp2-fedsam"), nodes("dp2-fedsam")
    quiet = run(over("dp2-fedsam", transport, judged=False))
    first = planned("dp2-fedsam").rounds(**LOOP).clients
    assert all(torch.equal(x, y) for (_, x), (_, y) in zip(leaves(quiet.clients), leaves(first), strict=True))
    assert all(torch.allclose(x, y, atol=1e-6) for (_, x), (_, y) in
               zip(leaves(quiet.server), leaves(rounds.server), strict=True))  # fmt: skip
    up = quiet.bytes.total["rounds"]["up"][0]
    assert up < quiet.simulator.crossed["up"] < up + 3 * 3 * 1000  # rounds, nodes, bytes of a head


class Listening(InMemory):
    """Counts the messages; ``before`` each, nodes may be made anew."""

    def __init__(self, made, before=None):
        super().__init__(made.nodes.values())
        self.before, self.messages = before, 0

    def ask(self, requests):
        self.messages += len(requests)
        self.nodes = self.before().nodes if self.before else self.nodes
        return super().ask(requests)


@pytest.mark.parametrize(
    "name", ["fedavg, top-k", "fedsc, top-k", "hetero-ssfl, hexagons", "dp2-fedsam, scalar", "c-vfl, large"]
)
def test_what_is_encoded_or_at_hand_crosses_as_the_ledger_counts_it(name):
    """One client a node, and a head of at most 2,000 bytes a message: decoded, any of them is far beyond."""
    transport = Listening(nodes(name, planned(name).rounds(**LOOP).federation.num_clients))
    rounds = run(over(name, transport, judged=False))
    for way, crossed in rounds.simulator.crossed.items():
        counted = sum(rounds.bytes.total[part][way][0] for part in ("setup", "rounds"))
        assert counted < crossed < counted + 2000 * transport.messages


@pytest.mark.parametrize("name", ["fedsc, top-k", "dp2-fedsam, scalar"])
def test_a_node_may_be_another_process_at_every_message(name, tmp_path):
    fresh = partial(nodes, name, folder=tmp_path)
    assert same(run(over(name, Listening(fresh(), fresh))), alone(name), name not in ROUNDED)


class Breaking(InMemory):
    """Says something else than the nodes do: ``spoil(answer)`` in place of ``whose`` answer to message ``when``."""

    def __init__(self, made, whose, when, spoil):
        super().__init__(made.nodes.values())
        self.whose, self.when, self.spoil, self.heard = whose, when, spoil, 0

    def ask(self, requests):
        answers = super().ask(requests)
        self.heard += 1
        if self.heard == self.when and self.whose in answers:
            answers[self.whose] = self.spoil(answers[self.whose])
        return answers


def misshapen(answer):
    said = unpack(answer)
    for part in said["parts"]:
        for name, tree in part.get("upload", {}).items():
            part["upload"][name] = tree_map(lambda x: x[..., :-1], tree)
    return pack(said)


def not_finite(answer):
    said = unpack(answer)
    for part in said["parts"]:
        for _, x in leaves(part.get("upload", {})):
            x.fill_(math.nan)
    return pack(said)


def too_many(answer):
    said = unpack(answer)
    for part in said["parts"]:
        part["upload"] = tree_map(lambda x: torch.cat([x, x]), part.get("upload", {}))
    return pack(said)


SPOILT = {
    "late": lambda answer: "no answer in time", "cut": lambda answer: answer[:-7], "empty": lambda answer: b"",
    "flipped": lambda answer: answer[:90] + bytes([answer[90] ^ 1]) + answer[91:], "misshapen": misshapen,
    "diverged": lambda answer: pack({"diverged": "x"}),
    "not finite": not_finite, "too many rows": too_many, "another answer": lambda answer: pack({"parts": 7}),
    "huge": lambda answer: answer[:40] + answer[40:].replace(b'"shape": [', b'"shape": [9', 1),
}  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILT)
def test_a_node_that_fails_is_named_and_the_average_goes_on_without_it(spoil):
    transport = Breaking(nodes("fedavg, sums"), "n1", 2, SPOILT[spoil])
    rounds = run(over("fedavg, sums", transport))
    assert set(rounds.lost) == {1, 4} and all("node n1" in why for why in rounds.lost.values())
    assert [record.cohort for record in rounds.history] == [[6], [4]]
    assert all(x.isfinite().all() for _, x in leaves(rounds.server))


WILD = {
    "fedavg": ("fedavg", "fedavg", "digits", {**SMALL, "rounds": 4, "clients_per_round": 4, "lr": 1e38}),
    "fedavg, top-k": ("fedavg", "fedavg", "digits",
                      {**SMALL, "rounds": 4, "clients_per_round": 4, "lr": 1e38, "compressor": "topk", "bits": 2}),
    "fedsc": ("fedsc", "fedsc", "digits", {**SMALL, **VIEWS, "lr": 1e30}),
    "hetero-ssfl": ("hetero_ssfl", "hetero-ssfl", "digits", {**SMALL, "rounds": 2, "local_epochs": 1, "lr": 1e30,
                                                             "alignment_samples": 20, "alignment_batch": 20}),
}  # fmt: skip


@pytest.mark.parametrize("name", WILD)
def test_a_run_that_diverges_ends_as_one_on_nodes_too(name, monkeypatch, tmp_path):
    monkeypatch.setitem(RUNS, name, WILD[name])
    metric = by_name(WILD[name][0]).metric
    rounds, here = run(over(name, nodes(name, folder=tmp_path), path=tmp_path / "run.pt")), alone(name)
    assert ended(rounds, metric)[0] == ended(here, metric)[0] == "diverged"
    assert rounds.lost == {} and all(x.isfinite().all() for _, x in leaves(rounds.server))
    if here.stopped is not None:  # FedAvg without a codec goes on in the simulator, with numbers that are none
        assert same(rounds, here, name not in ROUNDED)
    again = run(over(name, nodes(name, folder=tmp_path), path=tmp_path / "run.pt", resume=True))
    assert again.diverged and again.t == rounds.t


@pytest.mark.parametrize("said", [not_finite, lambda answer: pack({"diverged": "a model grew without bound"})])
def test_one_that_diverges_ends_the_run_of_those_who_need_everybody(said):
    rounds = run(over("fedsc", Breaking(nodes("fedsc"), "n1", 2, said)))
    assert rounds.diverged and rounds.stopped.startswith("node n1: its ") and rounds.lost == {}


def part_by_part(change):
    def spoil(answer):
        said = unpack(answer)
        for part in said["parts"]:
            if part:
                change(part)
        return pack(said)

    return spoil


def head_of(answer, old, new):
    """The same message with other words in its head, and the sums that belong to it."""
    (long,) = struct.unpack_from("<Q", answer, _FRAME.size)
    head, rest = answer[_FRAME.size + 8 :][:long], answer[_FRAME.size + 8 + long :]
    assert old in head
    head = head.replace(old, new, 1)
    body = struct.pack("<Q", len(head)) + head + rest
    return _FRAME.pack(MAGIC, zlib.crc32(body), len(body)) + body


NONSENSE = {
    "a type that is a list": lambda answer: head_of(answer, b'"type": "', b'"type": [], "t": "'),
    "lists in lists": lambda answer: head_of(
        answer, b'"node": ', b'"deep": ' + b"[" * 900 + b"]" * 900 + b', "node": '
    ),
    "a size beyond all": lambda answer: head_of(answer, b'"shape": [', b'"shape": [549755813887, 549755813887, 0, '),
    "no state": part_by_part(lambda part: part.pop("state")),
    "a shorter state": part_by_part(lambda part: part.update(state=tree_map(lambda x: x[..., :-1], part["state"]))),
    "no trace": part_by_part(lambda part: part.pop("trace")),
}


@pytest.mark.parametrize("spoil", NONSENSE)
def test_nonsense_loses_its_node_and_not_the_run(spoil):
    rounds = run(over("dp2-fedsam", Breaking(nodes("dp2-fedsam"), "n1", 2, NONSENSE[spoil])))
    assert set(rounds.lost) == {1, 4} and all("node n1" in why for why in rounds.lost.values())


def test_a_folder_of_other_clients_is_refused(tmp_path):
    run(over("dp2-fedsam", nodes("dp2-fedsam", 3, tmp_path)))
    with pytest.raises(checkpoint.CheckpointError, match="clients"):
        nodes("dp2-fedsam", 2, tmp_path)


def decoded(answer):
    said = unpack(answer)
    for part in said["parts"]:
        sent = part["encoded"].pop("theta", {"buffers": [], "form": {}})
        rows = len(sent["buffers"])
        part["upload"]["theta"] = tree_map(lambda x, rows=rows: x.new_zeros(rows, *x.shape[1:]), sent["form"])
    return pack(said)


def cut_short(answer):
    said = unpack(answer)
    for part in said["parts"]:
        for sent in part["encoded"].values():
            sent["buffers"] = [Encoded(one.buffer[:-1]) for one in sent["buffers"]]
    return pack(said)


@pytest.mark.parametrize("spoil", [decoded, cut_short])
def test_an_upload_that_is_not_encoded_as_asked_is_refused(spoil):
    rounds = run(over("fedavg, top-k", Breaking(nodes("fedavg, top-k"), "n1", 2, spoil)))
    assert set(rounds.lost) == {1, 4} and all("node n1: its" in why for why in rounds.lost.values())


def test_a_round_done_again_finds_the_clients_as_it_found_them_first():
    """Heads of DP2-FedSAM: trained in the round that was lost, they must not be trained twice."""
    transport = Breaking(nodes("dp2-fedsam"), "n2", 2, SPOILT["late"])
    rounds = run(over("dp2-fedsam", transport))
    fresh = nodes("dp2-fedsam")
    again = over("dp2-fedsam", fresh)
    again.step()
    again.lost = dict(rounds.lost)
    assert set(rounds.lost) == {2, 5} and same(run(again), rounds)


def test_who_needs_everybody_stops_with_a_checkpoint_and_the_name(tmp_path):
    transport = Breaking(nodes("c-vfl"), "n0", 4, SPOILT["late"])
    rounds = over("c-vfl", transport, path=tmp_path / "run.pt", save_every=1)
    with pytest.raises(ClientsLost, match="node n0: no answer in time"):
        run(rounds)
    fresh = over("c-vfl", InMemory(transport.nodes.values()), path=tmp_path / "run.pt", resume=True)
    assert fresh.t == 1 and same(run(fresh), alone("c-vfl"))


@pytest.mark.parametrize("name", ["dp2-fedsam", "fedx", "c-vfl, top-k", "hetero-ssfl"])
def test_server_and_nodes_killed_at_any_message_resume(name, tmp_path):
    """After every message of the run once: both begin anew from what lies in their folders."""
    whole, message = run(over(name, nodes(name))), 0

    class Killed(BaseException):
        pass

    class Killing(InMemory):
        left = 0

        def ask(self, requests):
            answers = super().ask(requests)
            self.left -= 1
            if not self.left:
                raise Killed
            return answers

    while True:
        message, folder = message + 1, tmp_path / f"{message}"
        folder.mkdir(parents=True)
        kept = {"path": folder / "run.pt", "resume": True}
        transport = Killing(nodes(name, folder=folder).nodes.values())
        transport.left = message
        try:
            run(over(name, transport, **kept))
            break
        except Killed:
            assert same(run(over(name, nodes(name, folder=folder), **kept)), whole), message
    assert message > 2


@pytest.mark.parametrize(
    ("change", "word"),
    [({"work": "_state"}, "work"), ({"work": "round"}, "work"), ({"work": "nothing"}, "work"),
     ({"parts": [{"group": "all", "slots": [0], "clients": [1], "each": {}}]}, "clients"),
     ({"chain": {"theta": {"part": "Popen", "fields": {}}}}, "chain"), ({"t": -5}, "round")],
)  # fmt: skip
def test_a_node_does_only_what_it_is_there_for(change, word):
    heard, transport = [], nodes("fedavg, sums")
    asking = transport.ask
    transport.ask = lambda requests: heard.append(requests) or asking(requests)
    over("fedavg, sums", transport).step()
    asked = unpack(heard[0]["n0"])
    assert word in unpack(transport.nodes["n0"].answer(pack(asked | change)))["refused"]


class Again(FedAvg):
    """Clients get theta, then another one, then are told to take the first, which they had."""

    def echo(self, local):
        return Reply(upload={"theta": local.inbox["theta"]})

    def round(self, server, turn):
        other = tree_map(lambda x: x + 1, server["theta"])
        for theta, held in ((server["theta"], ()), (other, ()), (server["theta"], ("theta",))):
            up = yield Exchange(turn.cohort(Everyone()), self.echo, {"theta": theta}, held=held)
        return server | {"theta": tree_map(lambda x: 2 * x[:, 0], up["theta"])}


def test_what_is_at_hand_is_what_the_server_means_by_it():
    def rounds(**options):
        made = planned("fedavg").rounds(**LOOP)
        return Rounds(Again(made.algorithm.config, made.algorithm.model), made.federation, 2, seeds=(3,), **options)

    transport = InMemory([Node(f"n{n}", rounds(), range(n, 6, 3)) for n in range(3)])
    assert same(run(rounds(simulator=partial(Remote, transport))), run(rounds()))


class Tally(FedAvg):
    """Each client counts how often it took part; who does in each try of a round is said by hand."""

    def start(self, federation, turn):
        return {}, {"all": {"times": torch.zeros(1, federation.num_clients)}}

    def count(self, local):
        return Reply(state={"times": local.state["times"] + 1})

    def round(self, server, turn):
        yield Exchange(Cohort.of([self.tries.pop(0)]), self.count)
        return server


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("judged", [True, False])
def test_a_try_that_does_not_count_leaves_nothing_on_a_node_that_is_not_asked_again(tmp_path, kept, judged):
    """As under the system's noise, where the round done again draws another cohort."""

    class Killed(BaseException):
        pass

    class Killing(InMemory):
        def ask(self, requests):
            answers = super().ask(requests)
            if self.failing:
                raise Killed
            return answers

    def rounds(**options):
        made = planned("fedavg").rounds(**LOOP)
        algorithm = Tally(made.algorithm.config, made.algorithm.model)
        return Rounds(algorithm, made.federation, 3, seeds=(3,), **options)

    def transport():
        folders = [tmp_path / f"{n}" if kept else None for n in range(3)]
        return Killing([Node(f"n{n}", rounds(), range(n, 6, 3), folder) for n, folder in enumerate(folders)])

    here, options = transport(), {"path": tmp_path / "run.pt", "resume": True}
    server = rounds(simulator=partial(Remote, here, judged=judged), **options)
    here.failing, server.algorithm.tries = False, [list(range(6)), [0, 1], [1], [0]]
    server.step()
    here.failing = True
    with pytest.raises(Killed):
        server.step()
    if kept:  # the server and its nodes begin anew, from what lies in their folders
        left, here = server.algorithm.tries, transport()
        server = rounds(simulator=partial(Remote, here, judged=judged), **options)
        server.algorithm.tries = left
    here.failing = False
    run(server)
    held = [here.nodes[f"n{k % 3}"].simulator.clients["all"]["times"][0, k].item() for k in range(6)]
    assert held == [2, 2, 1, 1, 1, 1]
    if judged:
        assert server.clients["all"]["times"][0].tolist() == held


def test_a_node_that_has_lost_its_clients_state_is_lost_not_begun_anew(tmp_path):
    name = "dp2-fedsam"
    server = over(name, nodes(name), path=tmp_path / "run.pt", resume=True)
    server.step()
    again = over(name, nodes(name), path=tmp_path / "run.pt", resume=True)
    with pytest.raises(ClientsLost, match="state of its clients is gone"):
        again.step()


def test_a_node_whose_folder_is_of_an_earlier_round_is_lost_by_name(monkeypatch, tmp_path):
    settings = {"clients": 6, "train_samples": 240, "rounds": 4, "expected_cohort": 6, "sampling": "fixed"}
    monkeypatch.setitem(RUNS, "all", ("dp2_fedsam", "dp2-fedsam", "digits", settings))
    server = over("all", nodes("all", folder=tmp_path), path=tmp_path / "run.pt", resume=True)
    server.step()
    shutil.copytree(tmp_path / "n0", tmp_path / "backup")
    server.step()
    server.step()
    shutil.rmtree(tmp_path / "n0")
    (tmp_path / "backup").rename(tmp_path / "n0")
    again = run(over("all", nodes("all", folder=tmp_path), path=tmp_path / "run.pt", resume=True))
    assert again.lost and all(why.startswith("node n0: ") and "is gone" in why for why in again.lost.values())


@pytest.mark.parametrize("compressor", [AnyWidth("topk", 2), Summable(UniformScalar(8, -1.0, 1.0), 4)])
def test_a_chain_with_what_is_made_for_the_message_crosses(compressor):
    chain = Chain((Clip(1.0),), Codec(compressor))
    assert made(described(chain)) == chain


def with_noise(multiplier, **options):
    """FedAvg whose clients clip, add noise and quantise; none of it is the algorithm's own."""
    made = planned("fedavg").rounds(**LOOP)
    codec = Codec(AnyWidth("scalar", 8))
    chain = Chain((Clip(1.0), ClientGaussian(multiplier)), codec)
    algorithm = Composed(made.algorithm, {"theta": chain}, public=("weight",))
    return Rounds(algorithm, made.federation, 2, seeds=(3,), **LOOP, **options)


def test_noise_that_is_composed_is_added_by_the_nodes_own_run():
    def transport(multiplier):
        return InMemory([Node(f"n{n}", with_noise(multiplier), range(n, 6, 3)) for n in range(3)])

    whole = run(with_noise(0.5))
    assert same(run(with_noise(0.5, simulator=partial(Remote, transport(0.5)))), whole)
    with pytest.raises(ClientsLost, match="composed: got .*ClientGaussian.*0.5"):
        run(with_noise(0.5, simulator=partial(Remote, transport(0.0))))


def test_messages_keep_every_bit_and_refuse_other_bytes():
    value = {
        "a": [1, None, "w", math.pi, {"b": torch.tensor([[1.5, -0.0], [math.inf, math.nan]])}], "flag": True,
        "none": torch.zeros(0, 3, dtype=torch.int64), "truth": torch.tensor([True, False]),
        "half": torch.tensor(1.5, dtype=torch.bfloat16),
        "sent": Encoded(torch.tensor([7, 8], dtype=torch.uint8)),
    }  # fmt: skip
    message = pack(value)
    again = unpack(message)
    assert pack(again) == message and again["a"][:4] == value["a"][:4]
    assert torch.equal(again["sent"].buffer, value["sent"].buffer)
    for wrong in (b"", message[:-1], message + b"0", b"x" + message[1:], message[:60] + b"?" + message[61:], "text"):
        with pytest.raises(BrokenMessage):
            unpack(wrong)
    with pytest.raises(TypeError, match="message"):
        pack({"f": print})


def test_who_shares_the_noise_is_not_done_without():
    name, reached = "dp2-fedsam, noise by clients", 0
    for node in ("n0", "n1", "n2"):  # a cohort is on one or two of them
        try:
            run(over(name, Breaking(nodes(name), node, 2, SPOILT["late"])))
        except ClientsLost as lost:
            assert f"node {node}: no answer in time" in str(lost)
            reached += 1
    assert reached


def one_number_more(answer):
    said = unpack(answer)
    for part in said["parts"]:
        part["trace"] = tree_map(lambda x: torch.stack([x, x], 1), part.get("trace", {}))
    return pack(said)


@pytest.mark.parametrize("spoil", [misshapen, one_number_more])
def test_a_node_that_is_alone_is_held_to_the_form_too(spoil):
    with pytest.raises(ClientsLost, match="node n0: its"):
        run(over("fedavg, sums", Breaking(nodes("fedavg, sums", 1), "n0", 2, spoil)))


def test_a_resumed_run_still_names_the_lost_and_counts_their_messages(tmp_path):
    path = tmp_path / "run.pt"
    first = run(over("fedavg, sums", Breaking(nodes("fedavg, sums"), "n1", 2, SPOILT["late"]), path=path))
    again = over("fedavg, sums", nodes("fedavg, sums"), path=path, resume=True)
    assert again.lost == {} and again.lost_before == first.lost
    assert again.simulator.crossed == first.simulator.crossed and first.simulator.crossed["up"] > 0

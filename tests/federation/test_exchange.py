"""Exchanges: what comes back, sums, chains and codecs, bytes, traces, state, and refusals."""

import pytest
import torch

from fedbook.federation import (
    Chain,
    Cohort,
    Encoded,
    Exchange,
    Federation,
    Local,
    Reply,
    Total,
    Wire,
    drive,
)
from fedbook.federation.ledger import row_bytes
from fedbook.federation.simulator import Simulator
from fedbook.partition import Partition
from fedbook.randomness import stream

K, D = 5, 3


def simulator(seeds=(0,), clients=None, groups=None, noise_seeds=None):
    federation = Federation(
        {"x": torch.arange(10.0)}, Partition.from_lists([[2 * k, 2 * k + 1] for k in range(K)]), groups
    )
    made = Simulator(federation, seeds, clients, noise_seeds)
    made.open_round(0)
    return made


def cohort(*lists):
    return Cohort.of([torch.tensor(members, dtype=torch.long) for members in lists])


def numbers(local: Local) -> torch.Tensor:
    """[R, D] something that names client and federation: 100 seed + client, in D columns."""
    value = 100.0 * torch.tensor(local.seeds) + local.clients
    return value[:, None].expand(-1, D).clone()


def send(local: Local) -> Reply:
    return Reply(upload={"v": numbers(local)})


# what comes back


def test_uploads_are_stacked_by_place_and_listed_by_client():
    made = simulator(seeds=(1, 2))
    up = made.deliver(Exchange(cohort([3, 0], [4]), work=send))
    assert up["v"].shape == (2, 2, D)
    assert up["v"][:, :, 0].tolist() == [[103, 100], [204, 0]]  # zero where a place is empty
    assert [(k, int(x[0])) for k, x in up.rows("v", 0)] == [(3, 103), (0, 100)]
    assert [(k, int(x[0])) for k, x in up.rows("v", 1)] == [(4, 204)]
    with pytest.raises(KeyError, match=r"got 'w'; this exchange has \['v'\]"):
        up["w"]


def test_groups_meet_in_the_cohorts_order():
    made = simulator(groups=["a", "b", "a", "b", "b"])
    up = made.deliver(Exchange(cohort([4, 2, 1, 0]), work=send))
    assert up["v"][0, :, 0].tolist() == [4, 2, 1, 0] and [k for k, _ in up.rows("v")] == [4, 2, 1, 0]


def ragged(local: Local) -> Reply:
    return Reply(upload={"v": torch.ones(len(local.clients), 2 if local.group == "a" else 3)})


def test_ragged_uploads_have_rows_but_no_stack_and_no_sum():
    made = simulator(groups=["a", "b", "a", "b", "b"])
    up = made.deliver(Exchange(cohort([0, 1]), work=ragged))
    assert [(k, len(x)) for k, x in up.rows("v")] == [(0, 2), (1, 3)]
    with pytest.raises(ValueError, match="uploads.*different forms"):
        up["v"]
    with pytest.raises(ValueError, match="uploads.*different forms"):
        made.deliver(Exchange(cohort([0, 1]), work=ragged, reveal="sum"))


def test_a_total_is_the_sum_and_holds_nothing_else():
    made = simulator(seeds=(1, 2))
    total = made.deliver(Exchange(cohort([3, 0], []), work=send, reveal="sum"))
    assert isinstance(total, Total) and total["v"].tolist() == [[203.0] * D, [0.0] * D]
    assert set(vars(total)) == {"_sums"}
    with pytest.raises(KeyError, match=r"got 'w'; this exchange has \['v'\]"):
        total["w"]
    nobody = made.deliver(Exchange(cohort([], []), work=send, reveal="sum", like={"v": torch.zeros(D)}))
    assert torch.equal(nobody["v"], torch.zeros(2, D))
    with pytest.raises(ValueError, match="^like"):
        made.deliver(Exchange(cohort([], []), work=send, reveal="sum"))


def test_drive_sends_answers_in_and_returns_the_result():
    def steps():
        a = yield Exchange(cohort([0]), work=send)
        b = yield Exchange(cohort([1]), work=send, name="second")
        return a, b

    assert drive(steps(), lambda exchange: exchange.name) == ("train", "second")

    def wrong():
        yield "hello"

    with pytest.raises(TypeError, match="yield: got 'hello'"):
        drive(wrong(), lambda exchange: None)


# the wire


class Halves:
    """Two bytes a number; a row of zeros needs one byte only, so lengths differ between clients."""

    def encode(self, message, rngs):
        rows = message[""]
        return [Encoded(r.half().view(torch.uint8) if r.any() else torch.zeros(1, dtype=torch.uint8)) for r in rows]

    def decode(self, buffers, like):
        full = [b.buffer.view(torch.float16).to(like[""].dtype) if b.nbytes > 1 else torch.zeros(D) for b in buffers]
        return {"": torch.stack(full)}


def test_the_length_of_each_encoded_buffer_is_counted():
    made = simulator(seeds=(0, 1))
    up = made.deliver(Exchange(cohort([0, 3, 4], [0]), work=send, chain={"v": Chain(codec=Halves())}))
    assert made.bytes.last["up"] == [1 + 2 * D + 2 * D, 2 * D]  # client 0 of seed 0 sends zeros
    assert up["v"][0, :, 0].tolist() == [0, 3, 4]
    wire = up.relay("v", 0)
    assert (
        isinstance(wire, Wire)
        and [b[0].nbytes for b in wire.buffers] == [1, 2 * D]
        and wire.value[:, 0].tolist() == [0, 100]
    )
    made.open_round(1)
    made.deliver(Exchange(cohort([1, 2], []), work=send, down={"w": {"first": wire}, "t": torch.zeros(2, 4)}))
    assert made.bytes.last["down"] == [2 * (1 + 16), 0]
    with pytest.raises(KeyError, match="client 3 in federation 1"):
        up.relay("v", 3)


def test_bytes_follow_dtype_shape_and_members():
    made = simulator(seeds=(0, 1))
    down = {"a": torch.zeros(2, 3, dtype=torch.float64), "b": {"c": torch.zeros(2, dtype=torch.int16)}}
    each = {"q": torch.zeros(2, 3, 5, dtype=torch.float32)}

    def work(local):
        assert local.inbox["a"].shape == (len(local.clients), 3) and local.inbox["q"].shape == (len(local.clients), 5)
        return Reply(upload={"u": torch.zeros(len(local.clients), 7, dtype=torch.uint8), "n": local.data.sizes})

    made.deliver(Exchange(cohort([0, 1, 2], [4]), work=work, down=down, each=each))
    assert made.bytes.last == {"down": [3 * (24 + 2 + 20), 24 + 2 + 20], "up": [3 * (7 + 8), 7 + 8]}
    assert made.bytes.by_exchange == {"train": {"up": 4 * 15, "down": 4 * 46}}
    assert row_bytes({"x": torch.zeros(2, 3, 4)}, 2, 0) == 16
    with pytest.raises(TypeError, match="message 'x': got str"):
        row_bytes({"x": "theta"}, 1, 0)
    with pytest.raises(TypeError, match="buffer: got torch.float32"):
        Encoded(torch.zeros(3))


def test_each_client_gets_its_own_message_and_its_federations_broadcast():
    made = simulator(seeds=(0, 1), groups=["a", "b", "a", "b", "b"])
    own = {"q": torch.tensor([[10.0, 11.0, 12.0], [20.0, 21.0, 22.0]])}

    def echo(local):
        return Reply(upload={"q": local.inbox["q"], "s": local.inbox["s"], "k": local.clients})

    up = made.deliver(Exchange(cohort([4, 2, 1], [0, 3]), work=echo, each=own, down={"s": torch.tensor([5.0, 6.0])}))
    assert up["k"].tolist() == [[4, 2, 1], [0, 3, 0]]
    assert up["q"].tolist() == [[10, 11, 12], [20, 21, 0]] and up["s"].tolist() == [[5, 5, 5], [6, 6, 0]]


# chains


class Times:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, rows, rngs):
        return {n: x * self.factor for n, x in rows.items()}, {"factor": torch.full((len(rngs),), float(self.factor))}


class Noise:
    """Adds each row's own first normal number."""

    def __call__(self, rows, rngs):
        noise = torch.tensor([rng.standard_normal() for rng in rngs]).to(torch.float32)
        return {n: x + noise[:, None] for n, x in rows.items()}, {}


def test_a_chain_runs_in_order_for_its_upload_only():
    made = simulator()

    def work(local):
        return Reply(upload={"v": numbers(local) + 1, "w": numbers(local)})

    chain = {"v": Chain((Times(2), Noise(), Times(10)))}
    up = made.deliver(Exchange(cohort([1, 3]), work=work, chain=chain, name="fit"))
    for place, k in enumerate((1, 3)):
        noise = stream(0, "fit/v/1", 0, k).standard_normal()
        assert float(up["v"][0, place, 0]) == pytest.approx(10 * (2 * (k + 1) + noise), rel=1e-5)
    assert up["w"][0, :, 0].tolist() == [1, 3]
    assert made.trace_means()["factor"] == [6.0]  # (2 + 10) / 2: each transform's trace of each row


def test_noise_is_keyed_by_seed_round_and_client_not_by_place():
    def drawn(members, seeds=(0,), t=0, noise_seeds=None):
        made = simulator(seeds=seeds, noise_seeds=noise_seeds)
        made.open_round(t)
        up = made.deliver(Exchange(cohort(*members), work=send, chain={"v": Chain((Noise(),))}))
        return [{k: round(float(x[0]) - 100 * seeds[s] - k, 3) for k, x in up.rows("v", s)} for s in range(len(seeds))]

    alone, other = drawn([[3]])[0][3], drawn([[4, 3, 1]])[0]
    assert other[3] == alone and len(set(other.values())) == 3
    assert drawn([[0], [3]], seeds=(1, 0))[1][3] == alone and drawn([[3]], seeds=(1,))[0][3] != alone
    assert drawn([[3]], t=1)[0][3] != alone and drawn([[3]], noise_seeds=(9,))[0][3] != alone
    assert drawn([[3]], noise_seeds=(None,))[0][3] != drawn([[3]], noise_seeds=(None,))[0][3]


def test_the_same_exchange_twice_in_a_round_draws_fresh_noise():
    """Otherwise the difference of the two uploads would be free of noise."""
    made = simulator()
    exchange = Exchange(cohort([0, 1]), work=send, chain={"v": Chain((Noise(),))})
    first, second = made.deliver(exchange)["v"], made.deliver(exchange)["v"]
    assert bool((first != second).all())
    made.open_round(0)
    assert torch.equal(made.deliver(exchange)["v"], first)  # and the round can be repeated


def test_a_chain_for_an_upload_that_does_not_exist_is_refused():
    for reveal in ("each", "sum"):
        with pytest.raises(ValueError, match=r"chain: got \['theta'\]; allowed is names of the uploads \['v'\]"):
            simulator().deliver(Exchange(cohort([0]), work=send, reveal=reveal, chain={"theta": Chain((Noise(),))}))


class Shrinks(Halves):
    def decode(self, buffers, like):
        return {"": torch.zeros(len(buffers), 1)}


class Forgets(Halves):
    def encode(self, message, rngs):
        return super().encode(message, rngs)[:1]


@pytest.mark.parametrize(
    ("chain", "word"),
    [
        (Chain((lambda rows, rngs: ({"": rows[""][:1]}, {}),)), "transform 0"),
        (Chain((lambda rows, rngs: ({"u": rows[""]}, {}),)), "transform 0"),
        (Chain(codec=Shrinks()), "codec"),
        (Chain(codec=Forgets()), "codec"),
    ],
)
def test_a_chain_must_keep_the_form(chain, word):
    with pytest.raises(ValueError, match=f"^{word}"):
        simulator().deliver(Exchange(cohort([1, 2]), work=send, chain={"v": chain}))


# traces and state


def test_trace_means_are_by_federation_and_nan_for_an_empty_cohort():
    made = simulator(seeds=(1, 2, 3), groups=["a", "b", "a", "b", "b"])

    def work(local):
        return Reply(trace={"loss": local.clients.double()})

    made.deliver(Exchange(cohort([0, 1, 4], [], [3]), work=work))
    means = made.trace_means()["loss"]
    assert means[0] == pytest.approx(5 / 3) and means[1] != means[1] and means[2] == 3
    made.open_round(1)
    assert made.trace_means() == {}


BAD = {
    "a stretched state": (lambda n: Reply(state={"h": torch.zeros(n, 1)}), "state 'h'"),
    "a rounded state": (lambda n: Reply(state={"h": torch.zeros(n, D, dtype=torch.float64)}), "state 'h'"),
    "an unknown state": (lambda n: Reply(state={"g": torch.zeros(n, D)}), "state"),
    "too few rows": (lambda n: Reply(upload={"v": torch.zeros(n - 1)}), "upload 'v'"),
    "a number": (lambda n: Reply(upload={"v": 3.0}), "upload 'v'"),
    "a wide trace": (lambda n: Reply(trace={"loss": torch.zeros(n, 2)}), "trace 'loss'"),
    "no reply": (lambda n: {"v": torch.zeros(n)}, "work of exchange 'train'"),
}


@pytest.mark.parametrize("case", BAD)
def test_wrong_replies_are_refused_by_name(case):
    make, word = BAD[case]
    made = simulator(clients={"all": {"h": torch.zeros(1, K, D)}})
    with pytest.raises((TypeError, ValueError), match=f"^{word}"):
        made.deliver(Exchange(cohort([0, 1, 2]), work=lambda local: make(len(local.clients))))
    assert not made.clients["all"]["h"].any()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"down": {"theta": torch.zeros(D)}}, "down 'theta'"),  # forgot the seed axis
        ({"down": {"theta": torch.tensor(1.0)}}, "down 'theta'"),
        ({"down": {"theta": 3}}, "down 'theta'"),
        ({"each": {"q": torch.zeros(2, 1)}}, "each 'q'"),
        ({"each": {"q": torch.zeros(2, 2)}, "down": {"q": torch.zeros(2)}}, "each"),
        ({"each": {"q": Wire(torch.zeros(2, 2), ((), ()))}}, "each 'q'"),
        ({"cohort": [[0], [1]]}, "cohort"),
        ({"cohort": Cohort.of([[0]])}, "cohort"),
        ({"cohort": Cohort.of([[0], [K]])}, "cohort"),
        ({"work": None}, "work"),
        ({"reveal": "mean"}, "reveal"),
        ({"chain": {"v": Noise()}}, "chain"),
        ({"chain": [Chain()]}, "chain"),
        ({"down": torch.zeros(2)}, "down"),
        ({"name": ""}, "name"),
    ],
)
def test_wrong_exchanges_are_refused_by_name(change, word):
    made = simulator(seeds=(0, 1))
    with pytest.raises((TypeError, ValueError), match=f"^{word}"):
        made.deliver(Exchange(**({"cohort": cohort([0, 1], [2]), "work": send} | change)))
    assert made.bytes.last == {"up": [0, 0], "down": [0, 0]}


def test_what_a_cohort_holds_is_not_sent_again_and_must_have_been_sent():
    theta = torch.zeros(1, 4, dtype=torch.float64)

    def twice(second, held=("theta",), again=theta):
        made = simulator()
        made.deliver(Exchange(cohort([0, 2, 3]), work=lambda _: Reply(), down={"theta": theta}, name="first"))
        down = {"theta": again, "R": theta[:, :1]}
        work = lambda local: Reply(upload={"seen": local.inbox["theta"] + local.inbox["R"]})  # noqa: E731
        seen = made.deliver(Exchange(cohort(second), work=work, down=down, held=held, name="second"))["seen"]
        return made.bytes.by_exchange, seen

    counts, seen = twice([0, 3])
    assert counts["first"]["down"] == 3 * 4 * 8 and counts["second"]["down"] == 2 * 8 and seen.shape == (1, 2, 4)
    assert twice([0, 3], held=())[0]["second"]["down"] == 2 * 5 * 8
    for wrong in ({"second": [0, 1]}, {"second": [0], "again": theta.clone()}):  # never got it; another object
        with pytest.raises(ValueError, match="held: got 'theta'"):
            twice(**wrong)
    with pytest.raises(ValueError, match="held"):
        twice([0], held=("phi",))

"""One algorithm that uses all that an exchange can do: what the server sees, bytes, noise, seeds one by one.

A set-up; two exchanges with different cohorts; ragged and encoded uploads of two architectures; a message for each
client; personal state; a clipped sum of a Poisson cohort, also of nobody; noise and releases.
"""

from dataclasses import asdict, dataclass, replace

import pytest
import torch

from fedbook.compression import Codec, TopK
from fedbook.federation import Chain, Everyone, Exchange, Federation, FixedSize, Poisson, Reply, Rounds, repeat, run
from fedbook.federation.exchange import Diverged
from fedbook.federation.tree import flatten
from fedbook.partition import Partition
from fedbook.privacy import Clip, Release
from fedbook.randomness import normal, stream

K, D, RATE, CLIP = 5, 3, 0.4, 0.5
WIDTHS = {"narrow": 2, "wide": 4}
SUM = Release("the noised sum", "client", "add_remove", 1.0, 1.0, "trusted_server", sampler="poisson", rate=RATE)


class Everything:
    name, batched_seeds = "everything", True

    def configuration(self):
        return {"rate": RATE}

    def start(self, federation, turn):
        clients = {}
        for word, group in federation.groups.items():
            first = [normal((len(group.ids), D, WIDTHS[word]), stream(s, f"init {word}")) for s in turn.seeds]
            clients[word] = {"w": torch.stack(first)}
        seeds = len(turn.seeds)
        return {"x": torch.ones(seeds, D).double(), "heard": torch.zeros(seeds, K).double()}, clients

    def setup(self, server, turn):
        up = yield Exchange(turn.cohort(Everyone()), work=self.count, name="sizes")
        return server | {"heard": up["n"].double()}

    def round(self, server, turn):
        few, many, heard = turn.cohort(FixedSize(2), "few"), turn.cohort(Poisson(RATE)), server["heard"].clone()
        chain = {"h": Chain(codec=Codec(TopK(2)))}
        up = yield Exchange(few, down={"x": server["x"]}, work=self.embed, chain=chain, name="embed")
        for slot in range(len(heard)):
            for client, h in up.rows("h", slot):
                heard[slot, client] = h.sum()
        total = yield Exchange(
            many, down={"x": server["x"]}, each={"own": torch.gather(heard, 1, many.ids)}, work=self.train,
            reveal="sum", chain={"change": Chain((Clip(CLIP),))}, like={"change": server["x"][0]}, name="train",
        )  # fmt: skip
        turn.release(SUM)
        noise = torch.stack([normal((D,), rng) for rng in turn.noise_streams()])
        return {"x": server["x"] + (total["change"] + noise) / (RATE * K), "heard": heard}

    def count(self, local):
        return Reply(upload={"n": local.data.sizes})

    def embed(self, local):
        jitter = torch.stack([normal((D, 1), rng) for rng in local.streams("jitter")])
        w = local.state["w"] + 0.1 * jitter
        return Reply(upload={"h": (local.inbox["x"][:, None] @ w)[:, 0]}, state={"w": w}, trace={"size": w[:, 0, 0]})

    def train(self, local):
        mean = torch.stack([local.data.samples["x"][rows].mean(0) for rows in local.data.table])
        change = mean - local.inbox["x"] + local.inbox["own"][:, None] * local.state["w"].mean(-1)
        return Reply(upload={"change": change}, state={"w": 0.9 * local.state["w"]})


def federation():
    samples = {"x": normal((2 * K, D), stream(0, "samples"))}
    split = Partition.from_lists([[2 * k, 2 * k + 1] for k in range(K)])
    return Federation(samples, split, ["wide", "narrow", "wide", "narrow", "wide"])


def start(total=6, **options):
    return Rounds(Everything(), federation(), total, **options)


def finished(**options):
    rounds = start(**options)
    list(rounds)
    return rounds


def states(rounds):
    return {**flatten({"server": rounds.server}), **flatten({"clients": rounds.clients})}


def same(a, b):
    ledgers = [[ledger.state() for ledger in rounds.privacy] for rounds in (a, b)]
    numbers = all(torch.equal(x, states(b)[name]) for name, x in states(a).items())
    return numbers and a.history == b.history and a.bytes.state() == b.bytes.state() and ledgers[0] == ledgers[1]


def test_the_server_sees_what_is_declared_and_bytes_are_what_crossed():
    seen, states_before = [], []
    rounds = start(12, seeds=(0, 5), observe=lambda exchange, uploads: seen.append((exchange, uploads)))
    for record in rounds:
        states_before.append(rounds.server["x"])
        few, total = seen[-2:]
        assert "size" in record.trace and all("size" not in part.tree for part in few[1].parts)  # traces stay
        assert not hasattr(total[1], "rows") and not hasattr(total[1], "parts")
        assert bool((total[1]["change"].norm(dim=1) <= CLIP * total[0].cohort.sizes + 1e-9).all())
        widths = {k: len(h) for k, h in few[1].rows("h")}
        assert widths == {k: WIDTHS["narrow" if k % 2 else "wide"] for k in few[0].cohort.members(0).tolist()}
        sent = sum(32 + 8 + {2: 0, 4: 1}[width] for width in widths.values())  # two values, where they lie, a header
        assert record.bytes_up[0] == sent + 8 * D * int(total[0].cohort.sizes[0])
        assert record.bytes_down[0] == 2 * 8 * D + (8 * D + 8) * int(total[0].cohort.sizes[0])
    assert rounds.bytes.total["setup"]["up"] == [8 * K] * 2
    empty = [(t, total[1]["change"], total[0].cohort.sizes) for t, total in enumerate(seen[2::2])]
    t, slot = next((t, sizes.tolist().index(0)) for t, _, sizes in empty if 0 in sizes)
    before = states_before[t - 1][slot] if t else torch.ones(D).double()
    noise = normal((D,), stream((0, 5)[slot], f"noise of {rounds.noise_keys[slot]}", t))
    assert torch.allclose(states_before[t][slot], before + noise / (RATE * K), atol=1e-12)  # nobody: noise alone


def test_only_one_and_the_same_run_draws_its_noise_twice():
    """Two releases under one noise give away their difference: a setting, a split, a method make another noise."""

    @dataclass(frozen=True)
    class Choice:
        size: float = 1.0
        new: int = 0

    class Other(Everything):
        def __init__(self, **changes):
            self.config = Choice(**changes)

        def configuration(self):
            return asdict(self.config)

    class Renamed(Other):
        name = "renamed"

    def key(algorithm, there=None, seeds=(3,), total=6):
        return Rounds(algorithm, there or federation(), total, seeds=seeds).noise_keys

    one = key(Other())
    lists = [[2 * k, 2 * k + 1] for k in range(K)]
    samples = federation().groups["wide"].samples
    longer = [lists[0] + [2 * K - 1], *lists[1:]]  # whose rows beside it are padded
    less, more = (Partition.from_lists(split) for split in (lists, longer))
    groups = ["wide", "narrow", "wide", "narrow", "wide"]
    assert one == key(Other(), total=9) == key(Other(new=0)) and key(Other(), seeds=(3, 8))[0] == one[0]
    assert key(Other(), Federation(samples, [less, more], groups), seeds=(3, 8))[0] == one[0]
    others = [Other(size=2.0), Other(new=1), Renamed()]
    different = [key(algorithm) for algorithm in others] + [key(Other(), Federation(samples, more, groups))]
    assert len({one, *different}) == 5
    noise = [finished(seeds=(3,), noise_key=word).server["x"] for word in ("run", "seed")]
    assert not torch.equal(*noise)


def test_an_algorithm_that_cannot_hold_seeds_side_by_side_is_repeated():
    class OneByOne(Everything):
        batched_seeds = False

    with pytest.raises(ValueError, match="seeds.*repeat"):
        Rounds(OneByOne(), federation(), 3, seeds=(1, 2))
    apart = repeat(lambda seed: Rounds(OneByOne(), federation(), 6, seeds=(seed,)), [1, 2])
    assert all(same(alone, finished(seeds=(seed,))) for alone, seed in zip(apart, (1, 2), strict=True))


def test_a_budget_spent_in_the_set_up_ends_the_run_like_any_other():
    class Early(Everything):
        def setup(self, server, turn):
            turn.release(replace(SUM, noise_multiplier=0.01))
            return (yield from super().setup(server, turn))

    rounds = run(Rounds(Early(), federation(), 2, delta=1e-3, budget=1.0))
    assert "epsilon = 1 " in rounds.stopped and not len(rounds.history) and not rounds.diverged


@pytest.mark.parametrize("noise", ["same", "system"])
def test_what_left_in_the_round_in_which_the_run_ends_counts(noise, tmp_path):
    """Two noised exchanges a round; the run ends in round 1 before the first, between the two, or after both."""
    each = replace(SUM, sampler="none", rate=None)

    class Twice(Everything):
        ends = None

        def round(self, server, turn):
            for place in (0, 1):
                turn.release(each)
                if turn.t and self.ends == place:
                    raise Diverged("no longer finite")
                yield Exchange(turn.cohort(Everyone()), work=self.count, name=f"part {place}")
            if turn.t and self.ends == 2:
                raise Diverged("no longer finite")
            return server

    def ended(ends, **options):
        algorithm = Twice()
        algorithm.ends = ends
        options |= {"path": tmp_path / f"{ends}.pt", "noise_seeds": noise, "delta": 1e-3}
        rounds = Rounds(algorithm, federation(), 3, **options)
        list(rounds)
        return rounds, Rounds(algorithm, federation(), 3, resume=True, **options)

    def counted(rounds):
        return sum(entry["count"] for entry in rounds.privacy[0].report(1e-3)["released"])

    found = {ends: ended(ends) for ends in (0, 1, 2)}
    assert all(rounds.diverged and rounds.t == 1 for rounds, _ in found.values())
    assert [counted(rounds) for rounds, _ in found.values()] == [2, 4, 4]  # before it left, the second was entered
    again = [2, 2, 2] if noise == "same" else [2, 4, 4]  # under seeded noise the round is then the same again
    assert [counted(resumed) for _, resumed in found.values()] == again
    spent, _ = ended(None, budget=1.01 * found[0][0].privacy[0].report(1e-3)["epsilon"])
    assert "would cost more than epsilon" in spent.stopped and counted(spent) == 2

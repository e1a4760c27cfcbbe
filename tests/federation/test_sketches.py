"""The five papers' rounds on the loop: seeds side by side, replay, resume, and each one's own traps."""

import importlib.util
from pathlib import Path

import pytest
import torch

from fedbook.federation import Cohort, Exchange, Rounds, drive, repeat
from fedbook.federation.loop import Turn
from fedbook.federation.tree import flatten

spec = importlib.util.spec_from_file_location("sketches", Path(__file__).with_name("sketches.py"))
sketches = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sketches)
SKETCHES, K, D = sketches.SKETCHES, sketches.K, sketches.D
every_sketch = pytest.mark.parametrize("word", SKETCHES)


def start(word, **options):
    make, federation = SKETCHES[word]
    return Rounds(make(), federation(), 5, **options)


def states(rounds):
    out = []
    for _ in rounds:
        out.append({name: x.clone() for name, x in flatten(rounds.server).items()})
    return out


def close(a, b, atol=1e-12):
    return a.keys() == b.keys() and all(torch.allclose(a[n], b[n], rtol=0, atol=atol) for n in a)


@every_sketch
def test_seeds_side_by_side_equal_single_runs(word):
    together = start(word, seeds=(3, 8, 11))
    list(together)
    for slot, seed in enumerate((3, 8, 11)):
        alone = start(word, seeds=(seed,))
        list(alone)
        assert close(
            {n: x[slot] for n, x in flatten(together.server).items()},
            {n: x[0] for n, x in flatten(alone.server).items()},
        )
        assert close(
            {n: x[slot] for n, x in flatten(together.clients).items()},
            {n: x[0] for n, x in flatten(alone.clients).items()},
        )
        for a, b in zip(together.history, alone.history, strict=True):
            assert (a.bytes_up[slot], a.bytes_down[slot], a.cohort[slot]) == (
                b.bytes_up[0],
                b.bytes_down[0],
                b.cohort[0],
            )
        assert together.privacy[slot].state() == alone.privacy[0].state()
    assert (
        together.total == 5 and len({x.tolist().__repr__() for x in next(iter(flatten(together.server).values()))}) == 3
    )


@every_sketch
def test_replayed_uploads_reproduce_the_server(word):
    tape = []
    rounds = start(word, seeds=(1, 2), observe=lambda exchange, uploads: tape.append(uploads))
    expected = states(rounds)
    make, federation = SKETCHES[word]
    algorithm, clients = make(), federation()
    turn = Turn(-1, (1, 2), clients.num_clients)
    server, _ = algorithm.start(clients, turn)
    server = drive(algorithm.setup(server, turn), lambda exchange: tape.pop(0))
    for t in range(5):
        server = drive(algorithm.round(server, Turn(t, (1, 2), clients.num_clients)), lambda exchange: tape.pop(0))
        assert all(torch.equal(x, expected[t][n]) for n, x in flatten(server).items())
    assert not tape


@every_sketch
def test_resume_is_bit_identical(word, tmp_path):
    whole = start(word, seeds=(1, 2))
    list(whole)
    path = tmp_path / "run.pt"
    part = start(word, seeds=(1, 2), path=path)
    for record in part:
        if record.t == 2:
            break
    rest = start(word, seeds=(1, 2), path=path, resume=True)
    assert rest.t == 3
    list(rest)
    assert rest.history == whole.history
    for a, b in ((rest.server, whole.server), (rest.clients, whole.clients)):
        assert all(torch.equal(x, flatten(b)[n]) for n, x in flatten(a).items())
    assert rest.bytes.state() == whole.bytes.state()
    assert [p.state() for p in rest.privacy] == [p.state() for p in whole.privacy]


def test_fedsc_first_round_hears_everyone_and_stale_matrices_stay():
    seen = []
    rounds = start("fedsc", observe=lambda exchange, _: seen.append((exchange.name, exchange.cohort.sizes.tolist())))
    before = None
    for record in rounds:
        table = rounds.server["table"][0].clone()
        if record.t == 0:
            assert seen[:2] == [("matrix", [K]), ("train", [3])]
        else:
            changed = {k for k in range(K) if not torch.equal(table[k], before[k])}
            cohort = set(Turn(record.t, (0,), K).cohort(sketches.FixedSize(3)).members(0).tolist())
            assert changed == cohort
        before = table
    last = rounds.clients["all"]["last"][0]
    assert torch.equal(last, table)  # what a client remembers is what the server holds


def test_fedsc_traces_never_reach_the_server():
    kept = []
    rounds = start("fedsc", observe=lambda exchange, uploads: kept.append(uploads))
    record = next(iter(rounds))
    assert "norm" in record.trace
    assert all("norm" not in part.tree for uploads in kept for part in uploads.parts)


def test_hetero_uploads_are_ragged_and_counted():
    kept = []
    rounds = start("hetero_ssfl", observe=lambda exchange, uploads: kept.append(uploads))
    record = next(iter(rounds))
    with pytest.raises(ValueError, match="one form"):
        kept[0]["A"]
    widths = {k: a.shape[1] for k, a in kept[0].rows("A")}
    assert widths == {0: 4, 1: 2, 2: 4, 3: 2, 4: 4, 5: 4}
    assert rounds.bytes.total["setup"]["up"] == [8 * 5 * (4 * 4 + 2 * 2)]
    assert rounds.bytes.total["setup"]["down"] == [K * 8 * 5 * D]
    cohort = [k for k, _ in kept[1].rows("A")]
    assert record.bytes_up == [8 * 5 * sum(widths[k] for k in cohort)]
    assert record.bytes_down == [3 * 8 * 25]


def test_prirfed_stays_on_the_sphere_and_counts_participation():
    rounds = start("prirfed", seeds=(4,))
    list(rounds)
    assert torch.allclose(rounds.server["x"].norm(dim=1), torch.ones(1, dtype=torch.float64), atol=1e-12)
    counts = torch.zeros(K, dtype=torch.long)
    for t in range(5):
        counts[Turn(t, (4,), K).cohort(sketches.FixedSize(2)).members(0)] += 1
    single = sketches.gaussian("local iterate", 0.3, unit="record", by="local_solver")
    from fedbook.privacy.ledger import PrivacyLedger

    expected = PrivacyLedger()
    for _ in range(int(counts.max())):
        expected.record(single)
    assert rounds.privacy[0].report(1e-5)["epsilon"] == pytest.approx(expected.report(1e-5)["epsilon"])


def test_dp2_sees_a_sum_only_clips_and_survives_empty_cohorts():
    kept = []
    rounds = Rounds(
        sketches.DP2FedSAM(rate=0.2), sketches.toy_federation(), 12, seeds=(0, 5),
        observe=lambda exchange, total: kept.append((exchange, total)),
    )  # fmt: skip
    bodies = [x["body"] for x in states(rounds)]
    empty = [record.t for record in rounds.history if 0 in record.cohort]
    assert empty, "this test needs an empty cohort"
    for exchange, total in kept:
        assert not hasattr(total, "rows") and not hasattr(total, "parts")
        size = exchange.cohort.sizes
        assert bool((total["delta"].norm(dim=1) <= 0.5 * size + 1e-9).all())
    t, slot = next((r.t, r.cohort.index(0)) for r in rounds.history if 0 in r.cohort)
    before = bodies[t - 1][slot] if t else torch.zeros(D, dtype=torch.float64)
    noise = sketches.normal((D,), sketches.stream((0, 5)[slot], "noise", t))
    assert torch.allclose(bodies[t][slot], before + 0.5 * noise / (0.2 * K), atol=1e-12)  # noise alone is released
    assert rounds.privacy[0].report(1e-5)["epsilon"] > 0


def test_dp2_heads_persist_and_never_cross():
    kept = []
    rounds = start("dp2_fedsam", observe=lambda exchange, total: kept.append(exchange))
    head = torch.ones(K, dtype=torch.float64)
    for record in rounds:
        now = rounds.clients["all"]["head"][0]
        members = kept[record.t].cohort.members(0)
        away = torch.ones(K, dtype=torch.bool)
        away[members] = False
        assert torch.equal(now[away], head[away])
        assert not bool((now[members] == head[members]).any())
        assert record.bytes_up == [len(members) * 8 * D] and record.bytes_down == [len(members) * 8 * D]
        head = now.clone()


def test_cvfl_counts_encoded_buffers_and_trains_the_server_from_the_snapshot():
    rounds = start("cvfl")
    first = next(iter(rounds))
    ids = 8 * 4
    up = 2 * 4 * (2 + 2 + 3)  # 2 bytes a number, 4 samples, widths 2, 2, 3
    down = 3 * ids + 3 * (ids + 8 * 7 + up)
    assert (first.bytes_up, first.bytes_down) == ([up], [down])
    assert rounds.bytes.total["setup"]["up"] == [8 * 7]
    # order of the parties: swapping the two equal parties (data, model and server block) swaps the result
    assert rounds.server["theta0"].shape == (1, 7)


def test_cvfl_one_local_step_without_compression_is_the_joint_gradient_step():
    algorithm = sketches.CVFL(q=1)
    rounds = Rounds(algorithm, sketches.CVFL.federation(), 1, seeds=(0,))
    w = {word: x["w"].clone() for word, x in rounds.clients.items()}
    list(rounds)
    federation = rounds.federation
    ids = torch.from_numpy(Turn(0, (0,), 3).streams("batch")[0].permutation(7)[:4])
    weights = [w["quadrant"][0, 0], w["quadrant"][0, 1], w["text"][0, 0]]
    weights = [x.clone().requires_grad_() for x in weights]
    theta0 = torch.ones(7, dtype=torch.float64, requires_grad=True)
    data = [federation.groups["quadrant"].samples["x"][ids], federation.groups["quadrant"].samples["x"][7 + ids],
            federation.groups["text"].samples["x"][ids]]  # fmt: skip
    z = torch.cat([x @ v for x, v in zip(data, weights, strict=True)], -1)
    loss = 0.5 * ((z @ theta0 - rounds.server["y"][0][ids]) ** 2).sum()
    grads = torch.autograd.grad(loss, [*weights, theta0])
    # half precision on the wire: equal to its rounding, not to 1e-12
    new = [
        rounds.clients["quadrant"]["w"][0, 0],
        rounds.clients["quadrant"]["w"][0, 1],
        rounds.clients["text"]["w"][0, 0],
    ]
    for x, v, g in zip(new, weights, grads, strict=False):
        assert torch.allclose(x, v - 0.01 * g, atol=2e-3) and not torch.allclose(x, v, atol=2e-3)
    assert torch.allclose(rounds.server["theta0"][0], theta0 - 0.01 * grads[3], atol=2e-3)


def test_an_interrupted_round_leaves_no_trace():
    class Breaks(sketches.DP2FedSAM):
        armed = True

        def round(self, server, turn):
            result = yield from super().round(server, turn)
            if turn.t == 2 and self.armed:
                self.armed = False
                raise KeyboardInterrupt
            return result

    rounds = Rounds(Breaks(), sketches.toy_federation(), 5, seeds=(0,))
    with pytest.raises(KeyboardInterrupt):
        list(rounds)
    assert rounds.t == 2
    list(rounds)  # continue with the same object
    whole = Rounds(sketches.DP2FedSAM(), sketches.toy_federation(), 5, seeds=(0,))
    list(whole)
    assert torch.equal(rounds.clients["all"]["head"], whole.clients["all"]["head"])
    assert torch.equal(rounds.server["body"], whole.server["body"])
    assert rounds.bytes.state() == whole.bytes.state() and rounds.history == whole.history
    assert rounds.privacy[0].state() == whole.privacy[0].state()


def test_an_exchange_refuses_wrong_replies():
    rounds = start("fedsc")
    cohort = Cohort.of([torch.tensor([0, 1])])
    for reply, word in ((None, "Reply"), (sketches.Reply(upload={"a": torch.zeros(3)}), "2 rows")):
        with pytest.raises((TypeError, ValueError), match=word):
            rounds.simulator.deliver(Exchange(cohort, work=lambda local, reply=reply: reply))
    with pytest.raises(ValueError, match="clients 0..5"):
        rounds.simulator.deliver(Exchange(Cohort.of([torch.tensor([9])]), work=lambda local: sketches.Reply()))
    with pytest.raises(ValueError, match="at most once"):
        Cohort.of([torch.tensor([1, 1])])


def test_an_algorithm_that_cannot_hold_seeds_side_by_side_is_repeated():
    class OneByOne(sketches.FedSC):
        batched_seeds = False

    with pytest.raises(ValueError, match="seeds.*repeat"):
        Rounds(OneByOne(), sketches.toy_federation(), 3, seeds=(1, 2))
    apart = repeat(lambda seed: Rounds(OneByOne(), sketches.toy_federation(), 3, seeds=(seed,)), [1, 2])
    together = Rounds(sketches.FedSC(), sketches.toy_federation(), 3, seeds=(1, 2))
    list(together)
    for slot, alone in enumerate(apart):
        assert torch.allclose(alone.server["theta"][0], together.server["theta"][slot], rtol=0, atol=1e-12)

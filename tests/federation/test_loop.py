"""The loop: a round happens wholly or not at all, wherever it breaks; arguments are refused by name."""

import contextlib
import os
import signal

import pytest
import torch

from fedbook.federation import (
    CheckpointError,
    Cohort,
    Everyone,
    Exchange,
    Federation,
    FixedSize,
    Poisson,
    Reply,
    Rounds,
    run,
    tree_map,
)
from fedbook.partition import Partition
from fedbook.privacy.ledger import Release

K = 4
EVERY = Release("means", "record", "replace_one", 1.0, 1.0, "none", released_by="client")


class Toy:
    """Clients count their turns, the server sums what it hears; a set-up asks everyone once."""

    name, batched_seeds = "toy", True

    def __init__(self, breaks=()):
        self.breaks = list(breaks)  # moments at which to raise, once each

    def configuration(self):
        return {}

    def start(self, federation, turn):
        return {"sum": torch.zeros(len(turn.seeds))}, {"all": {"turns": torch.zeros(len(turn.seeds), K)}}

    def raise_at(self, *moment):
        if moment in self.breaks:
            self.breaks.remove(moment)
            raise KeyboardInterrupt

    def setup(self, server, turn):
        return (yield from self.round(server, turn))

    def round(self, server, turn):
        cohort = turn.cohort(FixedSize(2))
        up = yield Exchange(cohort, down={"sum": server["sum"]}, work=self.work)
        turn.release(EVERY, cohort)
        self.raise_at("server", turn.t)
        return {"sum": server["sum"] + up["n"].sum(1)}

    def work(self, local):
        self.raise_at("client", local.t)
        turns = local.state["turns"] + 1
        return Reply(upload={"n": turns + local.inbox["sum"] / 10}, state={"turns": turns}, trace={"turns": turns})


def federation():
    return Federation({"x": torch.zeros(K)}, Partition.from_lists([[k] for k in range(K)]))


def everything(rounds):
    ledgers = [ledger.state() for ledger in rounds.privacy]
    return (
        rounds.history,
        rounds.server["sum"].tolist(),
        rounds.clients["all"]["turns"].tolist(),
        rounds.bytes.state(),
        ledgers,
    )


MOMENTS = [("client", -1), ("server", -1), ("client", 1), ("server", 1), ("evaluation", 1), ("evaluation", 3)]


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_interrupt_anywhere_leaves_no_trace(moment, tmp_path):
    """In the set-up, at a client, at the server, in the evaluation: continuing gives the uninterrupted run."""

    def make(breaks=(), **options):
        toy = Toy(breaks)

        def evaluate(server, clients):
            toy.raise_at("evaluation", rounds.t)
            return {"sum": server["sum"]}

        rounds = Rounds(toy, federation(), 4, seeds=(0, 1), evaluate=evaluate, **options)
        return rounds

    whole = run(make())
    broken = make([moment])
    with pytest.raises(KeyboardInterrupt):
        run(broken)
    assert broken.t == max(moment[1], -1) and len(broken.history) == max(moment[1], 0)
    assert everything(run(broken)) == everything(whole)
    path = tmp_path / "run.pt"  # and by the way of a checkpoint written then
    broken = make([moment])
    with pytest.raises(KeyboardInterrupt):
        run(broken)
    broken.save(path)
    assert everything(run(make(path=path, resume=True))) == everything(whole)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("t", [-1, 0, 2])
def test_a_pressed_key_breaks_a_round_off_without_a_trace_and_continuing_gives_the_same_run(t):
    class Pressed(Toy):
        def raise_at(self, *moment):
            if moment in self.breaks:
                self.breaks.remove(moment)
                os.kill(os.getpid(), signal.SIGINT)

    def all_of(rounds):
        for _ in rounds:
            pass
        return everything(rounds)

    whole = all_of(Rounds(Toy(), federation(), 4))
    broken = Rounds(Pressed([("client", t)]), federation(), 4)
    with pytest.raises(KeyboardInterrupt):
        all_of(broken)
    assert broken.t == t  # broken off at the point after the clients' work
    assert all_of(broken) == whole
    late = Rounds(Pressed([("server", t)]), federation(), 4)
    with pytest.raises(KeyboardInterrupt):
        all_of(late)
    assert late.t == t + 1 and len(late.history) == t + 1  # no point behind it: the round ends first
    assert all_of(late) == whole


class Drawing(Toy):
    """Everybody of a cohort of two releases something; ``drawn``: round, cohort and records of each."""

    def __init__(self, breaks=(), drawn=None):
        super().__init__(breaks)
        self.drawn = [] if drawn is None else drawn

    def round(self, server, turn):
        cohort = turn.cohort(FixedSize(2))
        turn.release(EVERY, cohort)
        up = yield Exchange(cohort, down={"sum": server["sum"]}, work=self.work)
        self.raise_at("server", turn.t)
        return {"sum": server["sum"] + up["n"].sum(1)}

    def work(self, local):
        self.drawn.append((local.t, local.clients.tolist(), [rng.random() for rng in local.streams("records")]))
        return super().work(local)


def test_a_round_that_is_done_again_under_fresh_noise_draws_cohort_and_records_anew():
    """The ledger counts both releases as independent draws, so the second must be one."""

    def draws(noise_seeds, breaks):
        algorithm = Drawing(breaks)
        rounds = Rounds(algorithm, federation(), 12, noise_seeds=noise_seeds)
        for _ in breaks:
            with pytest.raises(KeyboardInterrupt):
                run(rounds)
        run(rounds)
        return algorithm.drawn

    whole, seeded, system = draws("same", []), draws("same", [("server", 1)]), draws("system", [("server", 1)])
    assert draws("system", []) == whole and seeded == whole[:3] + whole[2:]  # seeded noise: the same release again
    assert [t for t, *_ in system] == [t for t, *_ in seeded] and system[:3] == whole[:3]
    assert all(again[2] != first[2] for first, again in zip(whole[2:], system[3:], strict=True))
    assert any(again[1] != first[1] for first, again in zip(whole[2:], system[3:], strict=True))


def test_checkpoints_take_a_small_part_of_the_time(tmp_path, monkeypatch):
    """By a clock of the test's own: a round takes a second, a checkpoint two; so one every 40 seconds, and the last."""
    clock, saved = [0.0], []

    def save(path, state):
        clock[0] += 2.0
        saved.append(state["t"])

    class Slow(Drawing):
        def round(self, server, turn):
            clock[0] += 1.0
            return (yield from super().round(server, turn))

    monkeypatch.setattr("fedbook.federation.checkpoint.save", save)
    monkeypatch.setattr("fedbook.federation.loop.time.perf_counter", lambda: clock[0])
    run(Rounds(Slow(), federation(), 90, path=tmp_path / "run.pt"))
    assert saved == [1, 41, 81, 90]


@pytest.mark.parametrize("breaks", [(), [("client", 0)], [("server", 2)], [("server", -1)]])
def test_what_a_killed_run_released_under_the_systems_noise_is_counted(breaks, tmp_path):
    """Killed where no checkpoint is near: what left has left, and the resumed run makes more with draws of its own."""
    drawn, options = [], {"path": tmp_path / "run.pt", "save_every": 4, "resume": True, "noise_seeds": "system"}

    def killed_and_resumed(first, total):
        killed = Rounds(Drawing(breaks, drawn), federation(), 6, **options)
        with contextlib.suppress(KeyboardInterrupt):  # of which the dead know nothing
            for _ in range(first):
                killed.step()
        return run(Rounds(Drawing((), drawn), federation(), total, **options))

    rounds = killed_and_resumed(3, 6)
    counts = [0] * K
    for _, clients, _ in drawn:
        for client in clients:
            counts[client] += 1
    (kind,) = rounds.privacy[0].state()["kinds"]
    assert dict(zip(kind["clients"], kind["counts"], strict=True)) == {k: n for k, n in enumerate(counts) if n}
    assert len({str(records) for _, _, records in drawn}) == len(drawn) > 7
    longer = run(Rounds(Drawing((), drawn), federation(), 8, **options))  # resumed without a loss: no new attempt
    assert longer.attempt == rounds.attempt == 1 and sum(longer.privacy[0].state()["kinds"][0]["counts"]) == 2 * len(
        drawn
    )


def test_a_checkpoint_under_the_systems_noise_needs_the_count_of_its_releases(tmp_path):
    """Without it what a killed run released since would be forgotten."""
    options = {"path": tmp_path / "run.pt", "noise_seeds": "system"}
    run(Rounds(Drawing(), federation(), 3, **options))
    (tmp_path / "run.pt.releases").unlink()
    with pytest.raises(CheckpointError, match="run.pt.releases is missing"):
        Rounds(Drawing(), federation(), 4, resume=True, **options)


def test_no_two_releases_of_a_run_have_one_noise():
    """Of one round, of two exchanges of it, of federations side by side, of runs of other seeds."""
    drawn = []

    class Noisy(Toy):
        def round(self, server, turn):
            for name in ("first", "second"):
                yield Exchange(turn.cohort(Everyone()), down={"sum": server["sum"]}, work=self.noisy, name=name)
            drawn.extend(float(rng.random()) for rng in turn.noise_streams())
            with pytest.raises(ValueError, match="^purpose: got 'noise'"):
                turn.noise_streams()
            return server

        def noisy(self, local):
            drawn.extend(float(rng.random()) for rng in local.noise_streams())
            return super().work(local)

    run(Rounds(Noisy(), federation(), 2, seeds=(0, 1), noise_seeds=(7, 7)))
    run(Rounds(Noisy(), federation(), 2, seeds=(2,), noise_seeds=(7,)))
    assert len(drawn) == 3 * 3 * (2 * K + 1) == len(set(drawn))  # set-up and two rounds, three federations


def test_the_releases_of_another_run_are_no_part_of_a_checkpoint(tmp_path):
    options = {"path": tmp_path / "run.pt", "noise_seeds": "system"}
    run(Rounds(Drawing(), federation(), 3, **options))
    Rounds(Drawing(), federation(), 3, save_every=3, **options).step()  # a new run, killed before it has a checkpoint
    with pytest.raises(CheckpointError, match="another run"):
        Rounds(Drawing(), federation(), 3, resume=True, **options)
    seeded = tmp_path / "seeded.pt"
    run(Rounds(Drawing(), federation(), 3, path=seeded))
    assert seeded.exists() and not seeded.with_name("seeded.pt.releases").exists()


def test_evaluation_has_its_own_schedule_and_metrics_have_one_number_a_seed():
    rounds = run(Rounds(Toy(), federation(), 7, seeds=(0, 1), evaluate=lambda server, clients: server, every=3))
    assert [r.t for r in rounds.history if r.metrics] == [2, 5, 6]
    assert rounds.history.values("sum")[1][:, -1].tolist() == rounds.server["sum"].double().tolist()
    for wrong in (torch.zeros(3), torch.tensor(1.0), 0.5, torch.zeros(2, 1)):
        with pytest.raises(ValueError, match="^metric 'a': got"):
            run(
                Rounds(Toy(), federation(), 1, seeds=(0, 1), evaluate=lambda server, clients, wrong=wrong: {"a": wrong})
            )


def test_a_shorter_run_than_the_checkpoint_is_refused(tmp_path):
    run(Rounds(Toy(), federation(), 5, path=tmp_path / "c.pt"))
    with pytest.raises(CheckpointError, match="total .*: got 3; allowed is at least the 5"):
        Rounds(Toy(), federation(), 3, path=tmp_path / "c.pt", resume=True)


def test_plain_values_in_the_servers_state_survive_a_checkpoint(tmp_path):
    class Counts(Toy):
        def start(self, federation, turn):
            server, clients = super().start(federation, turn)
            return server | {"heard": 0}, clients

        def round(self, server, turn):
            new = yield from super().round(server, turn)
            return new | {"heard": server["heard"] + 2}

    run(Rounds(Counts(), federation(), 2, path=tmp_path / "c.pt"))
    assert run(Rounds(Counts(), federation(), 4, path=tmp_path / "c.pt", resume=True)).server["heard"] == 2 * (1 + 4)


def test_poisson_rounds_go_on_when_nobody_comes():
    class Rare(Toy):
        def round(self, server, turn):
            up = yield Exchange(turn.cohort(Poisson(0.0)), work=self.work, like={"n": torch.zeros(())})
            return {"sum": server["sum"] + up["n"].sum(1) + 1}

    rounds = run(Rounds(Rare(), federation(), 3))
    assert rounds.server["sum"].tolist() == [4.0] and all(r.cohort == [0] and r.trace == {} for r in rounds.history)


def test_the_same_purpose_is_the_same_cohort_and_another_is_another():
    seen = []

    class Two(Toy):
        def round(self, server, turn):
            a, b, c = turn.cohort(FixedSize(2)), turn.cohort(FixedSize(2)), turn.cohort(FixedSize(2), "second")
            seen.append((a.ids.tolist(), b.ids.tolist(), c.ids.tolist()))
            yield Exchange(Cohort.of([[0]]), work=self.work, down={"sum": server["sum"]})
            return server

    run(Rounds(Two(), federation(), 20))
    assert all(a == b for a, b, _ in seen) and any(a != c for a, _, c in seen) and len({str(a) for a, _, _ in seen}) > 1


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"total": -1}, "total"), ({"total": 2.0}, "total"), ({"total": True}, "total"), ({"every": 0}, "every"),
        ({"save_every": 0}, "save_every"), ({"seeds": ()}, "seeds"), ({"seeds": (0, 0)}, "seeds"), ({"seeds": (-1,)},
        "seeds"),
        ({"seeds": 3}, "seeds"), ({"seeds": "01"}, "seeds"), ({"seeds": (0.5,)}, "seeds"), ({"seeds": (2**63,)},
        "seeds"),
        ({"evaluate": 3}, "evaluate"), ({"observe": "print"}, "observe"), ({"how": "ray"}, "how"), ({"chunk": 0},
        "chunk"),
        ({"chunk": 2.5}, "chunk"), ({"resume": 1}, "resume"), ({"noise_seeds": "none"}, "noise_seeds"),
        ({"noise_seeds": (1, 2)}, "noise_seeds"), ({"noise_seeds": 5}, "noise_seeds"), ({"noise_seeds": (-1,)},
        "noise_seeds"),
    ],
)  # fmt: skip
def test_wrong_arguments_of_rounds_are_refused_by_name(change, word):
    total = change.pop("total", 1)
    with pytest.raises((TypeError, ValueError), match=f"^{word}"):
        Rounds(Toy(), federation(), total, **change)


def test_seeds_must_fit_the_splits_and_the_algorithm():
    split = Federation({"x": torch.zeros(K)}, [Partition.from_lists([[k] for k in range(K)])] * 2)
    with pytest.raises(ValueError, match="^seeds: got 3 with 2 partitions"):
        Rounds(Toy(), split, 1, seeds=(0, 1, 2))
    alone = Toy()
    alone.batched_seeds = False
    with pytest.raises(ValueError, match="^seeds: .*one seed a run for toy"):
        Rounds(alone, federation(), 1, seeds=(0, 1))
    assert Rounds(alone, federation(), 1, seeds=(7,)).seeds == (7,)


def test_a_federation_of_meta_tensors_follows_its_device():
    """Indices and draws stay on the CPU, values follow the samples: the shapes of a run on another device."""
    from fedbook.federation import weighted_mean
    from fedbook.federation.local import epochs, local_steps, sgd
    from fedbook.federation.simulator import Simulator
    from fedbook.learning.models import cross_entropy, model

    here = Federation(
        {"x": torch.zeros(8, 1, 4, 4), "y": torch.zeros(8).long()}, Partition.from_lists([[0], [1, 2], [3, 4, 5]])
    )
    there, net = here.to("meta"), model("linear", (1, 4, 4), 3)
    theta = {name: torch.empty(2, *p.shape, device="meta") for name, p in net.module.state_dict().items()}

    def work(local):
        batches = epochs(local.data, local.streams("batches"), 1, 2)
        loss = cross_entropy(net.apply)
        carry, losses = local_steps(sgd(loss, 0.1), {"theta": local.inbox["theta"]}, local.data, batches, how=local.how)
        assert losses.device.type == "meta"
        return Reply(upload={"theta": carry["theta"], "n": local.data.sizes}, state={"theta": carry["theta"]})

    own = tree_map(lambda x: torch.empty(2, 3, *x.shape[1:], device="meta"), theta)
    for how in ("vmap", "loop"):
        made = Simulator(there, (0, 1), {"all": {"theta": own}}, how=how, chunk=2)
        made.open_round(0)
        up = made.deliver(Exchange(Cohort.of([[2, 0], [1]]), down={"theta": theta}, work=work))
        mean = weighted_mean(up["theta"], up["n"], otherwise=theta)
        assert all(x.device.type == "meta" and x.shape == theta[name].shape for name, x in mean.items())
        made.roll_back()

"""The loop: rounds of an algorithm on a federation, as an iterable that can stop, resume and repeat."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from fedbook import arguments, interrupts
from fedbook.federation import checkpoint, sharding
from fedbook.federation.cohort import Cohort, Sampler
from fedbook.federation.exchange import ClientsLost, Diverged, Exchange, Round, drive
from fedbook.federation.history import History, Log, Record, finite
from fedbook.federation.local import WAYS, choose
from fedbook.federation.population import Federation
from fedbook.federation.simulator import Simulator
from fedbook.federation.tree import Tree, tree_map
from fedbook.privacy.ledger import PrivacyLedger, Release
from fedbook.randomness import keyed, repeated, stream

SAVING = 20  # as long as a checkpoint took, so many times is the run left to its work before the next


class BudgetSpent(Exception):
    """The next release would take the run over its privacy budget; the message says which."""


@dataclass
class Turn:
    """What the server's code has in one round: the clock, its draws and the privacy ledgers.

    ``t`` counts from 0; -1 is the start and the set-up. ``noise_seeds`` entries of None mean the operating system's
    randomness, ``noise_keys`` name the run whose noise it is. ``budget`` (epsilon, delta) is what the run may cost in
    all. ``sizes`` [S, K]: how many samples each client holds; an algorithm that uses them declares them public.
    ``attempt``: how often noised releases were made that the run then forgot; what is drawn after that is drawn anew.
    ``kept``: to be called when a release has been entered, before it leaves. ``away``: clients that an engine has lost,
    who are in no cohort.
    """

    t: int
    seeds: tuple[int, ...]
    num_clients: int
    noise_seeds: tuple[int | None, ...] = ()
    privacy: list[PrivacyLedger] = field(default_factory=list)
    budget: tuple[float, float] | None = None
    sizes: torch.Tensor | None = None
    attempt: int = 0
    kept: Callable[[], None] | None = None
    noise_keys: tuple[str, ...] = ()
    away: frozenset[int] = frozenset()
    _noised: set[str] = field(default_factory=set)

    def cohort(self, sampler: Sampler, purpose: str = "cohort") -> Cohort:
        """Draw this round's cohort for each seed; the same purpose gives the same cohort again."""
        if not hasattr(sampler, "draw"):
            raise arguments.wrong(TypeError, "sampler", sampler, "Everyone(), FixedSize(size) or Poisson(rate)")
        drawn = [sampler.draw(self.num_clients, rng) for rng in self.streams(purpose)]
        if self.away:
            drawn = [ids[[client not in self.away for client in ids.tolist()]] for ids in drawn]
        return Cohort.of(drawn)

    def streams(self, purpose: str) -> list[np.random.Generator]:
        """S generators keyed by (seed, purpose, round)."""
        return [stream(s, repeated(purpose, self.attempt), self.t) for s in self.seeds]

    def noise_streams(self, purpose: str = "noise") -> list[np.random.Generator]:
        """S generators for privacy noise, keyed by (noise seed, run, purpose, round).

        Raises: ValueError for a purpose that has had its noise in this round: two sums under one noise give away their
        difference.
        """
        if purpose in self._noised:
            raise arguments.wrong(ValueError, "purpose", purpose, "another one for each noise of a round")
        self._noised.add(purpose)
        seeds, keys = self.noise_seeds or self.seeds, self.noise_keys or ("",) * len(self.seeds)
        return [stream(s, keyed(purpose, key), self.t) for s, key in zip(seeds, keys, strict=True)]

    def dither_streams(self, purpose: str) -> list[np.random.Generator]:
        """S generators for dithers that messages carry: keyed like :meth:`streams`, by the noise seeds."""
        return [stream(s, purpose, self.t) for s in self.noise_seeds or self.seeds]

    def release(self, release: Release, cohort: Cohort | None = None) -> None:
        """Enter a release into each federation's privacy ledger (for the clients of ``cohort``, if given).

        To be called before what is released leaves. Raises: BudgetSpent, and then nothing of it is entered.
        """
        release = replace(release, round=self.t)
        whose = [None if cohort is None else cohort.members(slot) for slot in range(len(self.privacy))]
        if self.budget is not None:
            epsilon, delta = self.budget
            for ledger, clients in zip(self.privacy, whose, strict=True):
                if ledger.would_exceed(release, epsilon, delta, clients):
                    raise BudgetSpent(f"round {self.t} would cost more than epsilon = {epsilon:g} at delta = {delta:g}")
        for ledger, clients in zip(self.privacy, whose, strict=True):
            ledger.record(release, clients)
        if self.kept is not None:
            self.kept()

    def in_clear(self, what: str) -> None:
        """Declare that ``what`` leaves the clients without protection: the run's epsilon is then None.

        Raises: ValueError for a run with a budget: no budget holds there.
        """
        if self.budget is not None:
            raise arguments.wrong(
                ValueError, "budget", self.budget[0], f"None for a run in which {what} leave in clear"
            )
        for ledger in self.privacy:
            ledger.in_clear(what)

    def nothing_leaves(self, what: str) -> None:
        """Declare that the clients keep to themselves all that depends on their data: epsilon is then 0."""
        for ledger in self.privacy:
            ledger.nothing_leaves(what)

    def assume_public(self, what: str) -> None:
        """Declare something that the guarantee takes as known to all."""
        for ledger in self.privacy:
            ledger.assume_public(what)


class Algorithm(Protocol):
    """What the loop needs of an algorithm. All server tensors lead with the seed axis S.

    An algorithm may inherit what is said here: seeds side by side, and no exchange before round 0.
    """

    name: str
    batched_seeds: bool = True  # False: one seed a run (see repeat)
    # goes_on_without: bool, optional: whether its rounds mean the same without clients that an engine has lost

    def configuration(self) -> dict[str, Any]:
        """Plain values that identify the run; a checkpoint of another configuration is refused."""

    def start(self, federation: Federation, turn: Turn) -> tuple[dict[str, Tree], dict[str, Tree]]:
        """The server's state (tensors [S, ...]) and the clients' by group (tensors [S, K_g, ...]).

        It changes nothing in the algorithm, which may serve several runs.
        """

    def setup(self, server: dict[str, Tree], turn: Turn) -> Round:
        """Exchanges before round 0 (a generator that returns the server's state)."""
        return no_setup(server)

    def round(self, server: dict[str, Tree], turn: Turn) -> Round:
        """One round: yields exchanges, returns the server's new state; the tensors of ``server`` stay as they are."""


Evaluation = Callable[[dict[str, Tree], dict[str, Tree]], Mapping[str, torch.Tensor]]


class Rounds:
    """``for record in Rounds(algorithm, federation, total): ...`` runs round after round.

    ``seeds``: S federations side by side. ``evaluate(server, clients)`` gives metrics [S] every ``every``
    rounds and after the last (the simulator's privilege: it is in no ledger). With ``path`` a checkpoint
    is written after every ``save_every`` rounds, by default as often as a twentieth of the run's time allows (over
    nodes, which go back by one round only, always after each);
    ``resume=True`` continues from it, if it is there. ``log``: a CSV file
    with a row a round and seed, to be read while the run lasts.
    ``noise_seeds="system"`` draws privacy noise from the operating system; seeded noise is keyed by all that tells one
    run from another but the samples' values. ``noise_key="seed"`` keys it by the seed alone, so that two methods can be
    compared under one noise, on public data only: both together release the noise-free sum. With "system" there lies
    beside the checkpoint PATH.releases, the ledger, written before a release leaves: a killed run that makes it again
    counts both. ``how`` and ``chunk`` (see fedbook.federation.local) default to the committed choice for the device and
    the model. ``delta``: at which privacy is reported and budgeted. ``budget``: the epsilon at ``delta`` that the run
    may cost; it ends before the round that would cost more, with the model it has and ``stopped`` saying why. So it
    does where an algorithm finds that it has :class:`Diverged` (``diverged``).
    ``compose(algorithm)`` gives the algorithm that runs in its place (fedbook.federation.composed).
    ``observe(exchange, uploads)`` is called after each exchange (recording, teaching). ``simulator`` makes what
    delivers exchanges; see fedbook.engines for one that has the work done elsewhere. Clients that it loses are away
    from then on and the round is done again, where the algorithm ``goes_on_without`` them; else the run ends there, as
    diverged if what it lost them for is numbers that are not finite.
    A resumed run asks them again.
    Raises: TypeError, ValueError, checkpoint.CheckpointError.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        federation: Federation,
        total: int,
        *,
        seeds: Sequence[int] = (0,),
        evaluate: Evaluation | None = None,
        every: int = 1,
        path: str | Path | None = None,
        save_every: int | None = None,
        resume: bool = False,
        log: str | Path | None = None,
        noise_seeds: str | Sequence[int] = "same",
        noise_key: str = "run",
        how: str | None = None,
        chunk: int | None = None,
        delta: float | None = None,
        budget: float | None = None,
        observe: Callable[[Exchange, Any], None] | None = None,
        simulator: Callable[..., Simulator] = Simulator,
        compose: Callable[[Algorithm], Algorithm] | None = None,
    ):
        algorithm = algorithm if compose is None else compose(algorithm)
        self.algorithm, self.federation = algorithm, federation
        self.total = arguments.integer("total (rounds)", total, 0)
        self.every = arguments.integer("every", every, 1)
        self.save_every = None if save_every is None else arguments.integer("save_every", save_every, 1)
        self._next_save = 0.0  # on the clock of perf_counter
        self.seeds = _seeds(seeds, algorithm, federation)
        for word, function in (("evaluate", evaluate), ("observe", observe)):
            if function is not None and not callable(function):
                raise arguments.wrong(TypeError, word, function, "a function or None")
        if how is not None:
            arguments.one_of("how", how, WAYS)
        chunk = None if chunk is None else arguments.integer("chunk", chunk, 1)
        resume = arguments.flag("resume", resume)
        self.delta = None if delta is None else arguments.real("delta", delta, above=0.0, below=1.0)
        self.budget = None if budget is None else arguments.real("budget", budget, 0.0)
        if budget is not None and delta is None:
            raise arguments.wrong(ValueError, "delta", delta, "a number in (0, 1) with a budget")
        self.stopped: str | None = None
        self.lost: dict[int, str] = {}  # client -> why an engine does without it
        self.lost_before: dict[int, str] = {}  # the same, of earlier calls that this one resumes: asked again now
        self.tell: Callable[[str], None] | None = None  # called when a phase begins that may last: see run
        self.diverged = False
        first = sharding.rank() == 0  # of the processes that share the run: it alone evaluates and writes
        self.evaluate, self.observe = evaluate if first else None, observe
        self.path = None if path is None else Path(path)
        self.log = Log(log, self.seeds) if log is not None and first else None
        self.history, self.t = History(), -1  # t: the next round; -1 = the set-up is still to do
        self.attempt = 0  # how often releases were made that stay counted though their round was lost
        self.identity = secrets.token_hex(8)  # of a run under the system's noise, which no other run repeats
        self.noise_seeds = _noise_seeds(noise_seeds, self.seeds)
        if self._forgetful and sharding.size() > 1:  # each process would draw noise of its own for the server
            raise arguments.wrong(ValueError, "noise_seeds", noise_seeds, '"same" or numbers on several processes')
        self.noise_key = arguments.one_of("noise_key", noise_key, ("run", "seed"))
        self.noise_keys = self._noise_keys() if noise_key == "run" else ("",) * len(self.seeds)
        self.privacy = [PrivacyLedger(noise_seeded=s is not None) for s in self.noise_seeds]
        turn = self._turn(-1)
        self.server, clients = algorithm.start(federation, turn)
        if how is None:
            how, committed = _committed_choice(algorithm, federation)
            chunk = committed if chunk is None else chunk
        self.simulator = simulator(federation, self.seeds, clients, self.noise_seeds, how, chunk, self.noise_keys)
        if sharding.size() > 1:  # also: the first process has finished whatever it wrote before this
            sharding.agree(self.configuration())
        if resume and self.path is not None:
            self._resume(self.path)
        if sharding.size() > 1:
            sharding.agree({"rounds in the checkpoint": self.t})

    @property
    def clients(self) -> dict[str, Tree]:
        """The clients' stacked personal state, by group."""
        return self.simulator.clients

    @property
    def bytes(self):
        """The byte ledger."""
        return self.simulator.bytes

    def configuration(self) -> dict[str, Any]:
        """What a checkpoint must agree on with this run."""
        own = {f"{self.algorithm.name}.{key}": value for key, value in self.algorithm.configuration().items()}
        noise = ["system" if s is None else s for s in self.noise_seeds]
        data = self.federation.fingerprint()
        seeds = {"seeds": list(self.seeds), "noise_seeds": noise, "noise_key": self.noise_key}
        return own | {"algorithm": self.algorithm.name, "data": data} | seeds

    def _noise_keys(self) -> tuple[str, ...]:
        """For each seed a short hash of the algorithm, its settings and the split: see :func:`randomness.keyed`.

        Settings at their defaults are left out, so that a new one changes no noise; of numbers six digits count, since
        a calibrated multiplier may differ by rounding elsewhere.
        """
        config = getattr(self.algorithm, "config", None)
        usual = {f.name: f.default for f in fields(config)} if is_dataclass(config) else {}
        settings = {
            name: value for name, value in self.algorithm.configuration().items() if usual.get(name, ...) != value
        }
        run = f"{self.algorithm.name} {_six_digits(settings)}".encode()
        keys = []
        for slot, seed in enumerate(self.seeds):  # federations may share a noise seed
            digest = hashlib.blake2b(run + f"{seed} ".encode(), digest_size=8)
            for piece in self.federation.split_bytes(slot):
                digest.update(piece)
            keys.append(digest.hexdigest())
        return tuple(keys)

    def __iter__(self) -> Iterator[Record]:
        while self.stopped is None:
            try:
                self._set_up()
                if self.t >= self.total:
                    return
                record = self.step()
            except ClientsLost as lost:
                before, self.lost = self.lost, self.lost | dict.fromkeys(lost.clients, str(lost))
                if (
                    not getattr(self.algorithm, "goes_on_without", False)
                    or len(self.lost) == self.federation.num_clients
                ):
                    if not lost.diverged:
                        raise
                    self.lost, self.diverged = before, True
                    self._stop(str(lost))
                    return
                continue
            except (BudgetSpent, Diverged) as end:
                self.diverged = isinstance(end, Diverged)
                self._stop(str(end))
                return
            yield record

    @interrupts.held()
    def _stop(self, why: str) -> None:
        """End the run here: what it has is its result, judged now if the last round was not."""
        self.stopped = why
        if self.evaluate is not None and len(self.history) and not self.history[-1].metrics:
            metrics = self.evaluate(self.server, self.clients)
            self.history.amend(finite({name: self._metric(name, values) for name, values in metrics.items()}))
            if self.log is not None:
                self.log.write(self.history)
        if self.path is not None and len(self.history):
            self.save(self.path)
        self.privacy = self._left  # of a broken-off round too, which only a resumed run does again

    @interrupts.held()
    def _set_up(self) -> None:
        if self.log is not None and not self.log.columns and len(self.history):  # resumed
            self.log.write(self.history)
        if self.t < 0:
            self._tell("set-up")
            with self._whole_or_not_at_all(-1):
                server = drive(self.algorithm.setup(self.server, self._turn(-1)), self._deliver)
            self.server, self.t = server, 0
            if self.path is not None and self.simulator.elsewhere:
                self.save(self.path)

    @interrupts.held()
    def step(self) -> Record:
        """Run the next round (before the first one the set-up) and return its record.

        Raises: KeyboardInterrupt, between two local steps of the clients or after the round (fedbook.interrupts).
        """
        self._set_up()
        t, begun = self.t, time.perf_counter()
        self._tell(f"round {t + 1} of {self.total}")
        with self._whole_or_not_at_all(t):
            server = drive(self.algorithm.round(self.server, self._turn(t)), self._deliver)
            seconds = time.perf_counter() - begun
            due = self.evaluate is not None and ((t + 1) % self.every == 0 or t + 1 == self.total)
            if due:
                self._tell(f"evaluation after round {t + 1}")
            metrics = self.evaluate(server, self.clients) if due else {}
            record = Record(
                t=t,
                metrics=finite({name: self._metric(name, values) for name, values in metrics.items()}),
                trace=finite(self.simulator.trace_means()),
                cohort=list(self.simulator.cohort_sizes),
                bytes_up=list(self.bytes.last["up"]),
                bytes_down=list(self.bytes.last["down"]),
                seconds=seconds,
            )
        self.server, self.t = server, t + 1
        self.history.append(record)
        if self.path is not None and (self.t == self.total or self._to_be_saved()):
            self.save(self.path)
        if self.log is not None:
            self.log.add(self.history)
        return record

    @contextmanager
    def _whole_or_not_at_all(self, t: int) -> Iterator[None]:
        """A round that is interrupted (in its evaluation too) leaves no trace: neither here nor in the checkpoint.

        Where the run ends in it, the ledger keeps what it released if a message of it had left.
        """
        self.simulator.open_round(t, self.attempt)
        ledgers = [ledger.state() for ledger in self.privacy]
        try:
            yield
        except BaseException as why:
            before, left = [PrivacyLedger.from_state(state) for state in ledgers], self.simulator.delivered
            self._left = self.privacy if left else before  # what counts where the run ends here
            self.simulator.roll_back()
            if not self._forgetful or (not left and isinstance(why, (BudgetSpent, Diverged))):
                self.privacy = before
            elif ledgers != [ledger.state() for ledger in self.privacy]:
                self.attempt += 1  # fresh noise is a second release: both count, each with draws of its own
            raise

    def _to_be_saved(self) -> bool:
        if self.simulator.elsewhere:
            return True
        return time.perf_counter() >= self._next_save if self.save_every is None else self.t % self.save_every == 0

    def _tell(self, phase: str) -> None:
        if self.tell is not None:
            self.tell(phase)

    def _metric(self, name: str, values: Any) -> list[float]:
        numbers = torch.as_tensor(values)
        if tuple(numbers.shape) != (len(self.seeds),):
            raise arguments.wrong(
                ValueError, f"metric {name!r}", numbers, f"one number for each of {len(self.seeds)} seeds"
            )
        return numbers.double().tolist()

    @property
    def _forgetful(self) -> bool:
        """Whether a round done again makes another release: not under seeded noise, which is the same again."""
        return None in self.noise_seeds

    def _keep_releases(self, path: Path) -> None:
        """Write what was released so far, before the last of it leaves."""
        state = {"configuration": self.configuration(), "identity": self.identity, "attempt": self.attempt}
        checkpoint.save(_releases(path), state | {"privacy": [ledger.state() for ledger in self.privacy]})

    def save(self, path: str | Path) -> None:
        """Write a checkpoint between rounds (of several processes that share the run, the first does)."""
        if sharding.rank():
            return
        begun = time.perf_counter()
        if self._forgetful:
            self._keep_releases(Path(path))
        state = {
            "configuration": self.configuration(),
            "identity": self.identity if self._forgetful else None,
            "t": self.t,
            "server": self.server,
            "clients": self.clients,
            "history": self.history.state(),
            "bytes": self.bytes.state(),
            "privacy": [ledger.state() for ledger in self.privacy],
            "attempt": self.attempt,
            "lost": self.lost_before | self.lost,
            "crossed": self.simulator.crossed,
            "tokens": self.simulator.tokens,
            "how": self.simulator.how,
            "chunk": self.simulator.chunk,
        }
        checkpoint.save(path, state)
        self._next_save = time.perf_counter() + SAVING * (time.perf_counter() - begun)

    def _resume(self, path: Path) -> None:
        saved = self._load(path) if path.exists() else None
        if not self._forgetful:
            return
        if not _releases(path).exists():
            if saved is None:
                return
            raise checkpoint.CheckpointError(
                f"checkpoint: {_releases(path)} is missing, which counts what was released"
            )
        made = checkpoint.load(_releases(path))
        checkpoint.same_configuration(made["configuration"], self.configuration(), _releases(path))
        if saved is not None and saved["identity"] != made["identity"]:
            raise checkpoint.CheckpointError(f"checkpoint: {path} is of another run than {_releases(path)}")
        self.identity = made["identity"]
        if saved is None or saved["privacy"] != made["privacy"]:  # killed since: those rounds are done again
            self.privacy = [PrivacyLedger.from_state(entry) for entry in made["privacy"]]
            self.attempt = made["attempt"] + 1

    def _load(self, path: Path) -> dict[str, Any]:
        state = checkpoint.load(path)
        checkpoint.same_configuration(state["configuration"], self.configuration(), path)
        if state["t"] > self.total:
            rounds = f"got {self.total}; allowed is at least the {state['t']} that {path} holds"
            raise checkpoint.CheckpointError(f"total (rounds): {rounds}")
        device = self.federation.device
        self.server, self.simulator.clients = (
            tree_map(lambda x: x.to(device) if isinstance(x, torch.Tensor) else x, state[part])
            for part in ("server", "clients")
        )
        self.history, self.t = History.from_state(state["history"]), state["t"]
        self.bytes.load(state["bytes"])
        self.privacy = [PrivacyLedger.from_state(entry) for entry in state["privacy"]]
        self.attempt, self.identity = state["attempt"], state["identity"]
        self.lost_before, self.simulator.crossed = state["lost"], state["crossed"]
        self.simulator.tokens = state.get("tokens")  # None: the checkpoint is older than tokens
        self.simulator.how, self.simulator.chunk = state["how"], state["chunk"]
        return state

    def _turn(self, t: int) -> Turn:
        budget = None if self.budget is None else (self.budget, self.delta)
        kept = partial(self._keep_releases, self.path) if self._forgetful and self.path is not None else None
        clients, sizes = self.federation.num_clients, self.federation.sizes.expand(len(self.seeds), -1)
        return Turn(t, self.seeds, clients, self.noise_seeds, self.privacy, budget, sizes, self.attempt, kept,
                    self.noise_keys, frozenset(self.lost))  # fmt: skip

    def _deliver(self, exchange: Exchange) -> Any:
        uploads = self.simulator.deliver(exchange)
        if self.observe is not None:
            self.observe(exchange, uploads)
        return uploads


def run(rounds: Rounds, label: str | None = None, metric: str | None = None) -> Rounds:
    """Run all remaining rounds, with a progress bar (silent when headless), and return ``rounds``.

    ``metric``: what is shown of the latest evaluation, the mean over the seeds; default the first there is.
    """
    from fedbook.progress import Phases, progress

    label, left = label or rounds.algorithm.name, rounds.total - max(rounds.t, 0)
    phases, begun = Phases(label), set()

    def tell(phase: str) -> None:
        """Set-up, first round, first evaluation: of later ones the lines of ``progress`` tell."""
        phases.end()
        if phase.split()[0] not in begun:
            phases.begin(phase)
        begun.add(phase.split()[0])

    rounds.tell = tell
    try:
        for _ in progress(rounds, total=left, label=label, note=lambda: _latest(rounds, metric)):
            pass
    finally:
        rounds.tell = None
        phases.end()
    return rounds


def _latest(rounds: Rounds, metric: str | None) -> str:
    """The metric as it was last judged, the mean over the seeds: "accuracy 0.9312"; empty before that."""
    last = next((record.metrics for record in reversed(rounds.history) if record.metrics), {})
    name = metric if metric in last else next(iter(last), None)
    if name is None:
        return ""
    values = last[name]
    return f"{name} {'none' if None in values else f'{sum(values) / len(values):.4g}'}"


def repeat(make: Callable[[int], Rounds], seeds: Sequence[int]) -> list[Rounds]:
    """One run a seed, one after another: for algorithms that cannot hold the seeds side by side."""
    return [run(make(seed)) for seed in seeds]


def no_setup(server: dict[str, Tree]) -> Round:
    """A set-up without exchanges (``yield from no_setup(server)`` or return it as ``setup``)."""
    return server
    yield


def _releases(path: Path) -> Path:
    return path.with_name(path.name + ".releases")


def _seeds(seeds: Sequence[int], algorithm: Algorithm, federation: Federation) -> tuple[int, ...]:
    if isinstance(seeds, (str, bytes)) or not isinstance(seeds, Sequence) or not seeds:
        raise arguments.wrong(TypeError, "seeds", seeds, "a non-empty list of whole numbers")
    checked = tuple(arguments.integer("seeds", s, 0, 2**63 - 1) for s in seeds)
    if len(set(checked)) != len(checked):
        raise arguments.wrong(ValueError, "seeds", list(checked), "different whole numbers")
    if len(checked) > 1 and not algorithm.batched_seeds:
        raise arguments.wrong(ValueError, "seeds", list(checked), f"one seed a run for {algorithm.name} (see repeat)")
    if federation.splits not in (1, len(checked)):
        raise ValueError(
            f"seeds: got {len(checked)} with {federation.splits} partitions; allowed is one for each or one"
        )
    return checked


def _noise_seeds(noise_seeds: str | Sequence[int], seeds: tuple[int, ...]) -> tuple[int | None, ...]:
    if noise_seeds == "same":
        return seeds
    if noise_seeds == "system":
        return (None,) * len(seeds)
    if isinstance(noise_seeds, str) or not isinstance(noise_seeds, Sequence) or len(noise_seeds) != len(seeds):
        raise arguments.wrong(ValueError, "noise_seeds", noise_seeds, '"same", "system" or one for each seed')
    return tuple(arguments.integer("noise_seeds", s, 0, 2**63 - 1) for s in noise_seeds)


def _six_digits(value: Any) -> str:
    if isinstance(value, Mapping):
        return str({name: _six_digits(value[name]) for name in sorted(value)})
    if isinstance(value, list | tuple):
        return str([_six_digits(one) for one in value])
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _committed_choice(algorithm: Algorithm, federation: Federation) -> tuple[str, int | None]:
    return choose(federation.device.type, getattr(algorithm, "kind", "other"))

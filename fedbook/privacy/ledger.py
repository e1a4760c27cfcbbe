"""The privacy ledger: every noised release of a run is entered, and the run's one sound figure comes out.

The figure is for the unit and adjacency of the releases. A release to everyone whose sampler is ``poisson`` or
``fixed`` is accounted with the amplification that drawing a cohort in secret gives. A release recorded for
listed clients is accounted for participation as it happened, client by client: without amplification, but
where the unit is a record and each client drew a fixed share of its own. The figure is ``None`` (not private)
as soon as something that depends on the protected data leaves without noise; what the noised releases alone
would cost is then still shown, as ``epsilon_of_releases``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from decimal import ROUND_CEILING, Context
from typing import Any

from torch import Tensor

from fedbook import arguments
from fedbook.privacy.accountant import Figure, inverse_square, total_epsilon
from fedbook.privacy.cohorts import SecretCohorts, largest, no_amplification, own_draw, ran
from fedbook.privacy.release import TRUST, Release, words

SMALL_DELTA = 1e-5  # a second figure is given here: at 1/N, publishing one client's data at random would pass
SEEDED = (
    "drawn from a seed: not private from whoever knows or guesses the seed, nor where the run is published once more "
    "after values in its data changed: it draws the same noise again, and the difference of the two has none"
)
UNSEEDED = "drawn from the operating system: nobody can repeat it"
PLAIN = ()  # the form of releases without amplification


@dataclass
class _Kind:
    """How often one kind of release happened: to everyone, and on top of it to single clients."""

    everyone: int = 0
    clients: dict[int, int] = field(default_factory=dict)
    first_round: int | None = None
    last_round: int | None = None

    def add(self, release: Release, clients: list[int] | None) -> None:
        if clients is None:
            self.everyone += release.count
        else:
            for client in clients:
                self.clients[client] = self.clients.get(client, 0) + release.count
        if release.round is not None and (clients is None or clients):
            rounds = [r for r in (self.first_round, self.last_round, release.round) if r is not None]
            self.first_round, self.last_round = min(rounds), max(rounds)

    @property
    def most(self) -> int:
        return self.everyone + max(self.clients.values(), default=0)


class PrivacyLedger:
    """All releases of one run (one federation), merged by kind, so its size does not grow with the rounds.

    ``noise_seeded``: whether the noise comes from a seed (the report says so). Only one unit and one
    adjacency may be recorded, because guarantees for different neighbours do not add up.
    """

    def __init__(self, noise_seeded: bool = True):
        self.noise_seeded = arguments.flag("noise_seeded", noise_seeded)
        self._kinds: dict[Release, _Kind] = {}  # key: the release with count 1 and no round
        self._cohorts = SecretCohorts()  # of the releases to everyone whose sampling counts
        self._in_clear: dict[str, None] = {}
        self._public: dict[str, None] = {}
        self._stays: dict[str, None] = {}

    def record(self, release: Release, clients: Tensor | None = None) -> None:
        """Enter a release: of everyone's data, or only of the data of ``clients``.

        ``clients`` says whose data (or whose records) this release depends on; the report takes the client
        with the most. It may be empty. Who takes part must not depend on the data.

        Without ``clients`` the sampler of the release is accounted. Several releases of one round with one
        sampler are accounted so that it holds whether or not they had one cohort; two samplers in one round are
        refused. A release without a round, and each of its ``count``, has a cohort of its own.

        With ``clients`` the sampler is accounted only for the unit ``record`` and the sampler ``fixed``: each of
        the clients draws its own records, secretly and afresh for every release and each of its ``count``.
        Releases on the same drawn records must be put together into one, 1 / z^2 being the sum of theirs.

        Shapes: ``clients`` [m] different client numbers. Raises: TypeError, ValueError.
        """
        kind, members = self._checked(release, clients)
        self._kinds.setdefault(kind, _Kind()).add(release, members)
        if members is None and no_amplification(kind) is None:
            self._cohorts.add(release)

    def in_clear(self, what: str) -> None:
        """Declare something that depends on the protected data and leaves without noise: the run is not private."""
        self._in_clear[words("what", what)] = None

    def assume_public(self, what: str) -> None:
        """Declare something the guarantee takes as known to all (the clients' sizes, who takes part, ...)."""
        self._public[words("what", what)] = None

    def nothing_leaves(self, what: str) -> None:
        """Declare that nothing that depends on the protected data leaves its client, and in words why.

        Epsilon is then 0, unless a release is recorded or something leaves in clear. Raises: TypeError.
        """
        self._stays[words("what", what)] = None

    def would_exceed(self, release: Release, epsilon: float, delta: float, clients: Tensor | None = None) -> bool:
        """Whether recording ``release`` would leave the run without ``epsilon`` at ``delta``. Nothing is recorded.

        True in any case for a run with something in clear: no budget holds there. Raises: TypeError, ValueError.
        """
        epsilon = arguments.real("epsilon", epsilon, 0.0)
        delta = arguments.real("delta", delta, above=0.0, below=1.0)
        self._checked(release, clients)
        if self._in_clear:
            return True
        after = PrivacyLedger.from_state(self.state())
        after.record(release, clients)
        figures = (after._figure(delta, accountant).epsilon for accountant in ("rdp", "pld"))  # the cheap one first
        return all(figure > epsilon for figure in figures)

    def report(self, delta: float) -> dict[str, Any]:
        """The run's privacy record: plain values that JSON can hold (no infinity; None is "not private").

        ``epsilon``: the whole run's figure, the smallest of those that hold; ``accountant`` says which it is:
        ``exact`` (closed form of composed Gaussians), ``pld`` (privacy loss distribution, Poisson cohorts) or
        ``rdp`` (Renyi). ``epsilon_rdp``: the Renyi figure beside it, as valid, seldom smaller.
        ``epsilon_without_amplification``: what holds against those who know who, or what, was drawn; under
        ``add_remove`` they know who takes part, and it bounds only what that one sent, against zeros. All are None if
        anything is in clear, a release has no noise, or nothing was recorded; ``..._of_releases`` leave out
        what is in clear. ``at_smaller_delta``: the figure at 1e-5 too, if ``delta`` is larger. ``sigma``: the
        noise multiplier, if all releases have the same.

        Raises: TypeError, ValueError.
        """
        delta = arguments.real("delta", delta, above=0.0, below=1.0)
        kinds = list(self._kinds)
        made = [kind for kind, tally in self._kinds.items() if tally.most] or kinds  # not those of other federations
        figure = self._figure(delta)
        shown = _finite(figure.epsilon) if kinds else None
        renyi = _finite(self._figure(delta, "rdp").epsilon) if kinds else None
        plain = _finite(self._figure(delta, amplified=False).epsilon) if kinds else None
        small = _finite(self._figure(min(delta, SMALL_DELTA)).epsilon) if kinds else None
        stays = bool(self._stays) and not kinds and not self._in_clear
        why = None if stays else self._why_not(shown)

        def whole(value: float | None) -> float | None:
            return 0.0 if stays else None if why else value

        return {
            "epsilon": whole(shown),
            "epsilon_rdp": whole(renyi),
            "epsilon_without_amplification": whole(plain),
            "epsilon_of_releases": shown,
            "epsilon_rdp_of_releases": renyi,
            "delta": delta,
            "at_smaller_delta": {"delta": SMALL_DELTA, "epsilon": whole(small)} if delta > SMALL_DELTA else None,
            "accountant": figure.accountant if kinds else None,
            "statement": f"not private: {why}" if why else self._promise(shown, delta),
            "unit": kinds[0].unit if kinds else None,
            "adjacency": kinds[0].adjacency if kinds else None,
            "sampler": _joined(kind.sampler for kind in made),
            "sigma": made[0].noise_multiplier if len({kind.noise_multiplier for kind in made}) == 1 else None,
            "trust": [TRUST[word] for word in TRUST if word in {kind.trust for kind in made}],
            "noise": (SEEDED if self.noise_seeded else UNSEEDED) if kinds else None,
            "released": [_shown(kind, self._kinds[kind]) for kind in made],
            "in_clear": list(self._in_clear),
            "assumed_public": list(self._public),
            "nothing_leaves": list(self._stays),
            "not_counted": self._not_counted(),
            "conditions": self._conditions(),
        }

    def state(self) -> dict[str, Any]:
        """Plain values for a checkpoint (or for JSON)."""
        kinds = [
            {
                "release": asdict(kind),
                "everyone": tally.everyone,
                "clients": list(tally.clients),
                "counts": list(tally.clients.values()),
                "rounds": [tally.first_round, tally.last_round],
            }
            for kind, tally in self._kinds.items()
        ]
        return {
            "noise_seeded": self.noise_seeded,
            "in_clear": list(self._in_clear),
            "assumed_public": list(self._public),
            "nothing_leaves": list(self._stays),
            "kinds": kinds,
            "cohorts": self._cohorts.state(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> PrivacyLedger:
        """The ledger that gave :meth:`state`. Raises: KeyError, TypeError, ValueError for anything else."""
        ledger = cls(state["noise_seeded"])
        for declare, name in (
            (ledger.in_clear, "in_clear"),
            (ledger.assume_public, "assumed_public"),
            (ledger.nothing_leaves, "nothing_leaves"),
        ):
            for what in state[name]:
                declare(what)
        for entry in state["kinds"]:
            kind, _ = ledger._checked(Release(**entry["release"]), None)
            counts = [arguments.integer("counts", count, 1) for count in entry["counts"]]
            clients = dict(zip(entry["clients"], counts, strict=True))
            everyone = arguments.integer("everyone", entry["everyone"], 0)
            ledger._kinds[kind] = _Kind(everyone, clients, *entry["rounds"])
        ledger._cohorts = SecretCohorts.from_state(state["cohorts"])
        return ledger

    def _checked(self, release: Release, clients: Tensor | None) -> tuple[Release, list[int] | None]:
        """The kind of ``release`` and the list of ``clients``, if both may be recorded here."""
        if not isinstance(release, Release):
            raise arguments.wrong(TypeError, "release", release, "a Release")
        known = next(iter(self._kinds), release)
        if (release.unit, release.adjacency) != (known.unit, known.adjacency):
            raise ValueError(
                f"release: got the unit {release.unit} under {release.adjacency}; allowed is what this ledger "
                f"holds, {known.unit} under {known.adjacency} (restate the sensitivity for it)"
            )
        members = None
        if clients is not None:
            members = arguments.tensor("clients", clients, ndim=1, kind="integer").tolist()
            if len(set(members)) != len(members) or min(members, default=0) < 0:
                raise arguments.wrong(ValueError, "clients", members, "different numbers of at least 0")
        elif no_amplification(release) is None:
            self._cohorts.require_one_sampler(release)
        return replace(release, count=1, round=None), members

    def _figure(self, delta: float, accountant: str = "pld", amplified: bool = True) -> Figure:
        """The epsilon of all releases together, for the client with the most, and what gave it."""
        amplified = amplified and not self._seen_who()
        emptied = any(kind.adjacency == "zero_out" for kind in self._kinds)
        everyone, clients = self._spent(amplified)
        figures = []
        for own in largest(clients) or [{}]:
            mu = math.sqrt(everyone + own.pop(PLAIN, 0.0))
            draws = self._cohorts.draws(emptied, own) if amplified else ()
            figures.append(total_epsilon(draws, mu, delta, accountant))
        return max(figures)

    def _spent(self, amplified: bool) -> tuple[float, Iterable[dict]]:
        """mu^2 of everyone's plain releases, and what single clients have spent beside it and the secret cohorts.

        That is mu^2 of their plain releases (at ``PLAIN``), and how often they drew records, by rate and multiplier.
        """
        everyone, clients = 0.0, {}
        for kind, tally in self._kinds.items():
            cost = inverse_square(kind.noise_multiplier)
            if tally.everyone and not (amplified and no_amplification(kind) is None):
                everyone += tally.everyone * cost
            own = amplified and own_draw(kind)
            form = (kind.rate, kind.noise_multiplier) if own else PLAIN
            for client, count in tally.clients.items():
                spent = clients.setdefault(client, {})
                spent[form] = spent.get(form, 0) + count * (1 if own else cost)
        return everyone, clients.values()

    def _seen_who(self) -> bool:
        """Whether releases of this run show which clients took part, so that their cohorts are no secret."""
        return any(
            kind.unit == "client" and (kind.trust == "none" or tally.clients) for kind, tally in self._kinds.items()
        )

    def _why_not(self, shown: float | None) -> str | None:
        """Why the run has no epsilon, or None if it has one."""
        if self._in_clear:
            return "no noise on " + "; ".join(self._in_clear)
        if not self._kinds:
            return "no noised release was recorded"
        return None if shown is not None else "a release has too little noise for a finite epsilon"

    def _promise(self, epsilon: float | None, delta: float) -> str:
        if not self._kinds:
            return "nothing that depends on the protected data leaves its client: " + "; ".join(self._stays)
        kind = next(iter(self._kinds))
        how = {"add_remove": "added or removed", "replace_one": "replaced", "zero_out": "emptied"}[kind.adjacency]
        up = Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(epsilon))  # to nearest would promise too much
        factor = f"exp({float(up):g})"
        return f"one {kind.unit} {how} changes no probability by more than the factor {factor}, but for {delta!r}"

    def _not_counted(self) -> list[str]:
        """What would make the figure smaller and is left out, and why."""
        omissions = set()
        for kind, tally in self._kinds.items():
            reasons = {"recorded for listed clients"} if tally.clients and not own_draw(kind) else set()
            if tally.everyone:
                reasons.add(
                    no_amplification(kind) or ("other releases show who took part" if self._seen_who() else None)
                )
            if kind.sampler != "none" and kind.rate < 1:
                sampling = f"amplification by {kind.sampler} sampling at rate {kind.rate:g}"
                omissions |= {f"{sampling} not counted: {why}" for why in reasons - {None}}
        return sorted(omissions)

    def _conditions(self) -> list[str]:
        """What the figure takes for granted."""
        conditions = []
        if self._kinds:
            conditions.append("settings were not chosen by looking at these data")
            conditions.append("the rounding of floating-point noise tells nothing")
        if self._kinds or self._stays:
            conditions.append(
                "nothing else is published: metrics, losses and whatever else a run records about its clients (cohort, "
                "bytes_up: who and how many took part) have no noise and are not counted; other runs on the same data, "
                "for instance of other seeds, cost as much again"
            )
        if any(tally.clients for tally in self._kinds.values()):
            shown = {kind.adjacency for kind, tally in self._kinds.items() if tally.clients and kind.unit == "client"}
            hides = "" if "add_remove" not in shown else ", which is then not hidden: only what they sent is"
            conditions.append(f"who took part was drawn without looking at the data; it may be known{hides}")
        counted = [] if self._seen_who() else [kind for kind, tally in self._kinds.items() if _counted(kind, tally)]
        if counted:
            conditions.append(f"the sampler that ran is the one accounted: {ran(counted)}, drawn afresh each time")
        for unit, drawn in (("client", "who was drawn"), ("record", "which records were drawn")):
            kinds = [kind for kind in counted if kind.unit == unit]
            if kinds:
                servers = any(kind.trust == "distributed_noise" for kind in kinds)
                usually = " (a server that runs secure aggregation usually does)" if servers else ""
                conditions.append(
                    f"nobody against whom this protects knows {drawn}{usually}, or the seed of the draws, which "
                    f"makes the first model as well; {_known(kinds[0].adjacency)}"
                )
        if any(kind.sampler == "fixed" for kind in counted):
            conditions.append(
                "what clients send depends on nothing hidden that they carry from round to round: only then are "
                "rounds with draws of fixed size proved to add up"
            )
        return conditions


def _known(adjacency: str) -> str:
    """What is left against those who know who, or what, was drawn."""
    if adjacency == "add_remove":
        return (
            "to those who know, nothing hides who is there at all, and epsilon_without_amplification bounds only what "
            "one of the drawn added, against zeros in its place"
        )
    return "against those who know, epsilon_without_amplification holds"


def _counted(kind: Release, tally: _Kind) -> bool:
    """Whether a draw of ``kind`` counts in the figure."""
    return bool(tally.everyone and no_amplification(kind) is None or tally.clients and own_draw(kind))


def _shown(kind: Release, tally: _Kind) -> dict[str, Any]:
    entry = asdict(kind)
    del entry["round"]
    return entry | {"count": tally.most, "first_round": tally.first_round, "last_round": tally.last_round}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _joined(names: Iterable[str]) -> str | None:
    return ", ".join(sorted(set(names))) or None

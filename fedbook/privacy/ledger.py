"""The privacy ledger: every noised release of a run is entered, and the run's one sound figure comes out.

The figure is for the unit and adjacency of the releases, and for participation as it happened. It is
``None`` (not private) as soon as something that depends on the protected data leaves without noise; what
the noised releases alone would cost is then still shown, as ``epsilon_of_releases``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from torch import Tensor

from fedbook import arguments
from fedbook.privacy.gaussian import exact_epsilon, gaussian_rdp_epsilon
from fedbook.privacy.release import TRUST, Release, words

ACCOUNTANT = "rdp-gaussian"
SEEDED = "drawn from a seed: not private from whoever knows the seed"
UNSEEDED = "drawn from the operating system: nobody can repeat it"


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
        if release.round is not None:
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
        self._in_clear: dict[str, None] = {}
        self._public: dict[str, None] = {}

    def record(self, release: Release, clients: Tensor | None = None) -> None:
        """Enter a release: of everyone's data, or only of the data of ``clients``.

        ``clients`` says whose data (or whose records) this release depends on; the report takes the client
        with the most. It may be empty. Who takes part must not depend on the data.

        Shapes: ``clients`` [m] different client numbers. Raises: TypeError, ValueError.
        """
        kind, members = self._checked(release, clients)
        self._kinds.setdefault(kind, _Kind()).add(release, members)

    def in_clear(self, what: str) -> None:
        """Declare something that depends on the protected data and leaves without noise: the run is not private."""
        self._in_clear[words("what", what)] = None

    def assume_public(self, what: str) -> None:
        """Declare something the guarantee takes as known to all (the clients' sizes, who takes part, ...)."""
        self._public[words("what", what)] = None

    def would_exceed(self, release: Release, epsilon: float, delta: float, clients: Tensor | None = None) -> bool:
        """Whether recording ``release`` would leave the run without ``epsilon`` at ``delta``. Nothing is recorded.

        True in any case for a run with something in clear: no budget holds there. Raises: TypeError, ValueError.
        """
        epsilon = arguments.real("epsilon", epsilon, 0.0)
        kind, members = self._checked(release, clients)
        extra = _Kind()
        extra.add(release, members)
        mu = _largest_mu([*self._kinds.items(), (kind, extra)])
        return bool(self._in_clear) or gaussian_rdp_epsilon(mu, delta)[0] > epsilon

    def report(self, delta: float) -> dict[str, Any]:
        """The run's privacy record: plain values that JSON can hold (no infinity; None is "not private").

        ``epsilon``: the whole run's figure by the Renyi accountant; ``epsilon_exact``: by the exact curve of
        composed Gaussians, smaller and as valid. Both are None if anything is in clear, a release has no
        noise, or nothing was recorded. ``sigma``: the noise multiplier, if all releases have the same.

        Raises: TypeError, ValueError.
        """
        delta = arguments.real("delta", delta, above=0.0, below=1.0)
        kinds = list(self._kinds)
        mu = _largest_mu(self._kinds.items())
        shown = _finite(gaussian_rdp_epsilon(mu, delta)[0]) if kinds else None
        exact = _finite(exact_epsilon(mu, delta)) if kinds else None
        why = self._why_not(shown)
        return {
            "epsilon": None if why else shown,
            "epsilon_exact": None if why else exact,
            "epsilon_of_releases": shown,
            "epsilon_exact_of_releases": exact,
            "delta": delta,
            "accountant": ACCOUNTANT if kinds else None,
            "statement": f"not private: {why}" if why else self._promise(shown, delta),
            "unit": kinds[0].unit if kinds else None,
            "adjacency": kinds[0].adjacency if kinds else None,
            "sampler": _joined(kind.sampler for kind in kinds),
            "sigma": kinds[0].noise_multiplier if len({kind.noise_multiplier for kind in kinds}) == 1 else None,
            "trust": [TRUST[word] for word in TRUST if word in {kind.trust for kind in kinds}],
            "noise": (SEEDED if self.noise_seeded else UNSEEDED) if kinds else None,
            "released": [_shown(kind, tally) for kind, tally in self._kinds.items()],
            "in_clear": list(self._in_clear),
            "assumed_public": list(self._public),
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
            "kinds": kinds,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> PrivacyLedger:
        """The ledger that gave :meth:`state`. Raises: KeyError, TypeError, ValueError for anything else."""
        ledger = cls(state["noise_seeded"])
        for what in state["in_clear"]:
            ledger.in_clear(what)
        for what in state["assumed_public"]:
            ledger.assume_public(what)
        for entry in state["kinds"]:
            kind, _ = ledger._checked(Release(**entry["release"]), None)
            counts = [arguments.integer("counts", count, 1) for count in entry["counts"]]
            clients = dict(zip(entry["clients"], counts, strict=True))
            everyone = arguments.integer("everyone", entry["everyone"], 0)
            ledger._kinds[kind] = _Kind(everyone, clients, *entry["rounds"])
        return ledger

    def _checked(self, release: Release, clients: Tensor | None) -> tuple[Release, list[int] | None]:
        """The kind of ``release`` and the list of ``clients``, if both may be recorded here."""
        if not isinstance(release, Release):
            raise arguments.wrong(TypeError, "release", release, "a Release")
        for known in self._kinds:
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
        return replace(release, count=1, round=None), members

    def _why_not(self, shown: float | None) -> str | None:
        """Why the run has no epsilon, or None if it has one."""
        if self._in_clear:
            return "without noise leave " + "; ".join(self._in_clear)
        if not self._kinds:
            return "no noised release was recorded"
        return None if shown is not None else "a release has too little noise for a finite epsilon"

    def _promise(self, epsilon: float, delta: float) -> str:
        kind = next(iter(self._kinds))
        how = {"add_remove": "added or removed", "replace_one": "replaced", "zero_out": "emptied"}[kind.adjacency]
        factor = f"exp({epsilon:.4g})"
        return f"one {kind.unit} {how} changes no probability by more than the factor {factor}, but for {delta:g}"

    def _not_counted(self) -> list[str]:
        """What would make the figure smaller and is left out."""
        sampled = sorted({(kind.sampler, kind.rate) for kind in self._kinds if kind.sampler != "none"})
        return [f"amplification not counted: {sampler} sampling at rate {rate:g}" for sampler, rate in sampled]

    def _conditions(self) -> list[str]:
        """What the figure takes for granted."""
        found = []
        if self._kinds:
            found.append("settings were not chosen by looking at these data")
            found.append("the rounding of floating-point noise tells nothing")
        if any(tally.clients for tally in self._kinds.values()):
            found.append("who took part was drawn without looking at the data; it may be known")
        return found


def _largest_mu(kinds: Iterable[tuple[Release, _Kind]]) -> float:
    """The total shift sqrt(sum count / z^2) of the client with the largest; infinite where noise is missing."""
    everyone, clients = 0.0, {}
    for kind, tally in kinds:
        inverse = 1 / kind.noise_multiplier if kind.noise_multiplier > 0 else math.inf
        cost = inverse * inverse
        if tally.everyone:
            everyone += tally.everyone * cost
        for client, count in tally.clients.items():
            clients[client] = clients.get(client, 0.0) + count * cost
    return math.sqrt(everyone + max(clients.values(), default=0.0))


def _shown(kind: Release, tally: _Kind) -> dict[str, Any]:
    entry = asdict(kind)
    del entry["round"]
    return entry | {"count": tally.most, "first_round": tally.first_round, "last_round": tally.last_round}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _joined(words: Iterable[str]) -> str | None:
    return ", ".join(sorted(set(words))) or None

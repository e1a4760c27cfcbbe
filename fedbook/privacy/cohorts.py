"""Secret draws of clients or records behind the releases of a run, in a few numbers however many rounds it has."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from operator import ge
from typing import Any

from fedbook import arguments
from fedbook.privacy.accountant import Draws, inverse_square
from fedbook.privacy.release import SAMPLERS, Release

BOUNDS = {"none": (), "poisson": ("add_remove", "zero_out"), "fixed": ("replace_one", "zero_out")}


def no_amplification(release: Release) -> str | None:
    """Why a secret draw of the cohort does not count for ``release``, or None if it does."""
    if release.unit == "client" and release.trust == "none":
        return "each upload is seen"
    if release.adjacency not in BOUNDS[release.sampler]:
        return f"no bound for {release.adjacency} neighbours"
    return None if release.rate < 1 else "everybody is drawn"


def own_draw(release: Release) -> bool:
    """Whether the draw counts although it is known which clients release: a fixed share of each one's own records."""
    return release.unit == "record" and release.sampler == "fixed" and no_amplification(release) is None


def ran(releases: Iterable[Release]) -> str:
    """Which samplers ran at which rates; of more than three rates only the ends."""
    rates: dict[str, set[float]] = {}
    for release in releases:
        rates.setdefault(release.sampler, set()).add(release.rate)
    descriptions = []
    for sampler, values in sorted(rates.items()):
        if len(values) > 3:
            descriptions.append(f"{sampler} at {len(values)} rates from {min(values):g} to {max(values):g}")
        else:
            descriptions += [f"{sampler} at rate {rate:g}" for rate in sorted(values)]
    return " and ".join(descriptions)


def largest(spent: Iterable[Mapping[tuple, float]]) -> list[dict[tuple, float]]:
    """The clients that may have the largest figure: ``spent`` without whoever spent no more of anything than another.

    Each entry holds what one client has spent, by form of release; only entries with the same forms are compared.
    """
    alike: dict[tuple, set[tuple]] = {}
    for one in spent:
        keys = tuple(sorted(one))
        alike.setdefault(keys, set()).add(tuple(one[key] for key in keys))
    kept = []
    for keys in sorted(alike):
        front: list[tuple] = []
        for amount in sorted(alike[keys], reverse=True):  # none of the later ones exceeds an earlier one in all
            if not any(all(map(ge, other, amount)) for other in front):
                front.append(amount)
        kept += [dict(zip(keys, amount, strict=True)) for amount in front]
    return kept


class Spans:
    """Whole numbers, kept as spans of neighbours: the rounds of a run are one, in whatever order they come."""

    def __init__(self, spans: Iterable[tuple[int, int]] = ()):
        self.spans = [(int(first), int(last)) for first, last in spans]  # ascending and apart, both ends included

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.spans)

    def _at(self, t: int) -> int:
        """Where the span that holds ``t``, or the next one, stands."""
        return bisect_left(self.spans, t, key=lambda span: span[1])

    def __contains__(self, t: int) -> bool:
        at = self._at(t)
        return at < len(self.spans) and self.spans[at][0] <= t

    def add(self, t: int) -> None:
        """With ``t``, which was not there."""
        at = self._at(t)
        first = last = t
        if at < len(self.spans) and self.spans[at][0] == t + 1:
            last = self.spans.pop(at)[1]
        if at and self.spans[at - 1][1] == t - 1:
            at -= 1
            first = self.spans.pop(at)[0]
        self.spans.insert(at, (first, last))

    def remove(self, t: int) -> None:
        """Without ``t``, which was there."""
        at = self._at(t)
        first, last = self.spans[at]
        self.spans[at : at + 1] = [span for span in ((first, t - 1), (t + 1, last)) if span[0] <= span[1]]


class SecretCohorts:
    """How many cohorts were drawn, by sampler, rate, multiplier and whether several releases share them."""

    def __init__(self):
        self._number: dict[tuple[str, float, float, bool], int] = {}  # of cohorts without a round
        self._rounds: dict[tuple[str, float, float, bool], Spans] = {}

    def require_one_sampler(self, release: Release) -> None:
        """Raises: ValueError, if another sampler drew in its round: no bound is known for the two together."""
        t = release.round
        for sampler, *_ in (form for form, rounds in self._rounds.items() if t is not None and t in rounds):
            if sampler != release.sampler:
                raise arguments.wrong(
                    ValueError, "release.sampler", release.sampler, f"{sampler}, as before in round {t}"
                )

    def add(self, release: Release) -> None:
        """Count the cohort of ``release``, or ``count`` of them if it has no round.

        Releases of one round may have had one cohort, or one each, whenever they are recorded; their noise is put
        together, as for one cohort, and the draw is marked as shared. At two rates the smaller cohort may be a part of
        the larger (one stream draws both): who is in the larger then counts as being in both.
        """
        sampler, rate, z, t = release.sampler, release.rate, release.noise_multiplier, release.round
        if t is None:
            form = (sampler, rate, z, False)
            self._number[form] = self._number.get(form, 0) + release.count
            return
        shared, cost = release.count > 1, release.count * inverse_square(z)
        for form in [form for form, rounds in self._rounds.items() if form[0] == sampler and t in rounds]:
            self._rounds[form].remove(t)
            if not len(self._rounds[form]):
                del self._rounds[form]
            shared, rate, cost = True, max(rate, form[1]), cost + inverse_square(form[2])
        if shared:
            z = 1 / math.sqrt(cost) if cost > 0 else 1e150  # less noise than whatever has no cost in floats
        self._rounds.setdefault((sampler, rate, z, shared), Spans()).add(t)

    def draws(self, emptied: bool, own: Mapping[tuple[float, float], int]) -> tuple[Draws, ...]:
        """What the accountant composes for one client, always in the same order.

        ``emptied``: see :class:`Draws`. ``own``: how often it drew records itself, by rate and multiplier.
        """
        number = Counter(self._number)
        number.update({form: len(rounds) for form, rounds in self._rounds.items()})
        number.update({("fixed", *form, False): drawn for form, drawn in own.items()})
        return tuple(
            Draws(sampler, rate, multiplier, count, emptied, shared)
            for (sampler, rate, multiplier, shared), count in sorted(number.items())
        )

    def state(self) -> dict[str, Any]:
        """Plain values for a checkpoint (or for JSON)."""
        return {
            "number": [[*form, number] for form, number in self._number.items()],
            "rounds": [[*form, [list(span) for span in rounds.spans]] for form, rounds in self._rounds.items()],
        }

    @classmethod
    def from_state(cls, state: dict[str, Iterable]) -> SecretCohorts:
        """The cohorts that gave :meth:`state`. Raises: KeyError, TypeError, ValueError for anything else."""
        cohorts = cls()
        for *form, number in state["number"]:
            cohorts._number[_form(*form)] = arguments.integer("number", number, 1)
        for *form, spans in state["rounds"]:
            cohorts._rounds[_form(*form)] = Spans(spans)
        return cohorts


def _form(sampler: str, rate: float, multiplier: float, shared: bool) -> tuple[str, float, float, bool]:
    return (
        arguments.one_of("sampler", sampler, set(SAMPLERS) - {"none"}),
        arguments.real("rate", rate, above=0.0, below=1.0),
        arguments.real("noise_multiplier", multiplier, 0.0),
        arguments.flag("shared", shared),
    )

"""The form of a release: all that an accountant must know about one noised output, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedbook import arguments

MECHANISMS = ("gaussian",)
UNITS = ("record", "client")
ADJACENCIES = ("add_remove", "replace_one", "zero_out")
SAMPLERS = ("none", "poisson", "fixed")
RELEASED_BY = ("client", "server", "local_solver")

TRUST = {
    "none": "none: each upload is noised before it leaves its client",
    "distributed_noise": "secure aggregation, and clients that add their shares of the noise and do not collude: "
    "the server sees only the noised sum",
    "secure_aggregation": "secure aggregation, and a server that adds the noise: it sees the sum before the noise, "
    "never one upload",
    "trusted_server": "a trusted server: it sees each upload before it adds the noise to their sum",
}


def words(name: str, value: Any) -> str:
    """``value`` if it is a text that says something. Raises: TypeError."""
    if not isinstance(value, str) or not value.strip():
        raise arguments.wrong(TypeError, name, value, "a few words")
    return value


@dataclass(frozen=True)
class Release:
    """One noised release, or ``count`` of them with equal values, as plain values.

    ``what``: what is released, in words. ``unit``: whose presence is hidden. ``adjacency``: how neighbouring
    data differ in one unit: it is there or not, replaced by another, or replaced by an empty one.
    ``sampler`` and ``rate``: how units (records for ``record``, clients for ``client``) were drawn; a ledger
    counts it as amplification where the release is recorded for everyone and a bound is known.
    ``noise_multiplier``: standard deviation of the noise / ``sensitivity`` (0: no noise).
    ``sensitivity``: L2, for this unit and adjacency (a sum of rows clipped to C under ``replace_one``: 2C).
    ``trust``: whom one must trust, a word of :data:`TRUST`. ``round``: -1 is the set-up, None is unknown.

    Combinations that promise what they cannot hold are refused: ``add_remove`` with a cohort of fixed size
    (without one unit another is drawn in its place); for clients, ``add_remove`` with trust ``none`` (the
    server sees who uploads); both are sound as ``replace_one`` or ``zero_out``. Trust ``none`` for a server's
    release (it saw the uploads). ``distributed_noise`` in a Poisson cohort (few clients add little noise).

    Raises: TypeError, ValueError.
    """

    what: str
    unit: str
    adjacency: str
    noise_multiplier: float
    sensitivity: float
    trust: str
    released_by: str = "server"
    sampler: str = "none"
    rate: float | None = None
    count: int = 1
    round: int | None = None
    mechanism: str = "gaussian"

    def __post_init__(self):
        words("what", self.what)
        arguments.one_of("mechanism", self.mechanism, MECHANISMS)
        arguments.one_of("unit", self.unit, UNITS)
        arguments.one_of("adjacency", self.adjacency, ADJACENCIES)
        arguments.one_of("sampler", self.sampler, SAMPLERS)
        arguments.one_of("released_by", self.released_by, RELEASED_BY)
        arguments.one_of("trust", self.trust, TRUST)
        plain = {
            "noise_multiplier": arguments.real("noise_multiplier", self.noise_multiplier, 0.0),
            "sensitivity": arguments.real("sensitivity", self.sensitivity, above=0.0),
            "count": arguments.integer("count", self.count, 1),
        }
        if self.round is not None:
            plain["round"] = arguments.integer("round", self.round, -1)
        if self.sampler != "none":
            plain["rate"] = arguments.real("rate", self.rate, maximum=1.0, above=0.0)
        elif self.rate is not None:
            raise arguments.wrong(ValueError, "rate", self.rate, "None with the sampler 'none'")
        for name, value in plain.items():  # NumPy numbers become plain ones, for JSON and checkpoints
            object.__setattr__(self, name, value)
        self._refuse_false_promises()

    def _refuse_false_promises(self) -> None:
        if self.trust == "none" and self.released_by == "server":
            raise arguments.wrong(ValueError, "released_by", "server", "client or local_solver with trust 'none'")
        if self.trust == "distributed_noise" and self.sampler == "poisson":
            allowed = "secure_aggregation or trusted_server with the sampler 'poisson'"
            raise arguments.wrong(ValueError, "trust", self.trust, allowed)
        if self.adjacency == "add_remove" and self.sampler == "fixed":
            allowed = "replace_one or zero_out with the sampler 'fixed'"
            raise arguments.wrong(ValueError, "adjacency", self.adjacency, allowed)
        if self.adjacency == "add_remove" and self.unit == "client" and self.trust == "none":
            allowed = "replace_one or zero_out where the server sees who uploads"
            raise arguments.wrong(ValueError, "adjacency", self.adjacency, allowed)

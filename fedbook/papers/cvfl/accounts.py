"""What a round of C-VFL costs: bits by several accounts, the index of kept components, seconds.

The accounts are formulas, to be compared with each other and with the bytes that a run really counts. None of them
has headers, ranges, the initial model, batch numbers, labels or the evaluation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedbook import arguments

MB, GB = 2**20, 2**30  # bytes, as the paper's tables count them
FLOAT_BITS = 32


ACCOUNTS = ("literal", "minimal", "paper", "algorithm2", "algorithm2_honest")


def bits_per_round(
    account: str, batch_size: int, widths: Sequence[int], server_size: int, bits: float,
    server_bits: float | None = None,
) -> tuple[float, float]:  # fmt: skip
    """Bits up (parties to server) and down (server to parties) of one round, all parties together.

    ``widths``: embedding size P_m of each of the M parties; ``server_size``: numbers in the server model; ``bits`` a
    component of an embedding, ``server_bits`` (else the same) a number of the server model.

    * "literal": Algorithm 1 as printed: each party uploads once, each receives all embeddings and the server model.
    * "minimal": the same, but nobody is sent his own embedding.
    * "paper": b (2 P B M^2 + |theta_0| M), as in Tables 2 and 4: each upload counted M times; equal widths.
    * "algorithm2": up and down b B sum P_m, as Table D.1 seems to charge Algorithm 2; no server model is sent.
    * "algorithm2_honest": the same with the returned derivatives as the 32-bit floats that they are.

    Raises: TypeError, ValueError.
    Source: Castiglia et al. 2022, Algorithms 1 and 2, Tables 2 to 4 and D.1.
    """
    arguments.integer("batch_size", batch_size, 1)
    arguments.integer("server_size", server_size, 0)
    for width in widths:
        arguments.integer("widths", width, 1)
    for name, value in (("bits", bits), ("server_bits", server_bits)):
        if value is not None:
            arguments.real(name, value, above=0)
    if arguments.one_of("account", account, ACCOUNTS) == "paper" and len(set(widths)) > 1:
        raise arguments.wrong(ValueError, "widths", widths, "equal widths: the paper's tables know no others")
    parties, numbers = len(widths), batch_size * sum(widths)
    embeddings, server = numbers * bits, server_size * (bits if server_bits is None else server_bits)
    everything = parties * (embeddings + server)
    return {
        "literal": (embeddings, everything),
        "minimal": (embeddings, (parties - 1) * embeddings + parties * server),
        "paper": (parties * embeddings, everything),  # every upload counted as often as there are parties
        "algorithm2": (embeddings, embeddings),  # returned derivatives as if they were compressed
        "algorithm2_honest": (embeddings, numbers * FLOAT_BITS),
    }[account]


@dataclass(frozen=True)
class TimeModel:
    """Seconds of a run in which all parties work and send at the same time.

    ``latency_s``: seconds of one round trip, whatever it carries (the paper's t_c, paid once a round); ``step_s``:
    seconds of one local step; ``bandwidth``: bytes a second of the link that all messages share (infinite: Table 5,
    where bytes cost nothing).
    Raises: TypeError, ValueError.
    Source: Castiglia et al. 2022, Section 5: time = rounds (t_c + Q step).
    """

    latency_s: float
    step_s: float
    bandwidth: float = math.inf

    def __post_init__(self):
        arguments.real("latency_s", self.latency_s, 0)
        arguments.real("step_s", self.step_s, 0)
        arguments.real("bandwidth", self.bandwidth, above=0, infinite=True)

    def seconds(self, rounds: float, local_steps: int, byte_count: float = 0.0, trips: float = 1) -> float:
        """Seconds of ``rounds`` rounds of ``local_steps`` steps each that moved ``byte_count`` bytes in all.

        ``trips``: round trips a round; ``rounds`` may be a mean over runs. Raises: TypeError, ValueError.
        """
        counts = {"rounds": rounds, "local_steps": local_steps, "byte_count": byte_count, "trips": trips}
        for name, value in counts.items():
            arguments.real(name, value, 0)
        return rounds * (trips * self.latency_s + local_steps * self.step_s) + byte_count / self.bandwidth

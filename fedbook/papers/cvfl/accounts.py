"""What a round of C-VFL costs: bits by several accounts, the index of kept components, seconds.

The accounts are formulas, to be compared with each other and with the bytes that a run really counts. None of them
has headers, ranges, the initial model, batch numbers, labels or the evaluation.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.arguments import wrong

MB, GB = 2**20, 2**30  # bytes, as the paper's tables count them
FLOAT_BITS = 32


def _literal(batch_size: int, widths: list[int], server_size: int, bits: float, server_bits: float) -> tuple:
    embeddings = batch_size * sum(widths) * bits
    return embeddings, len(widths) * (embeddings + server_size * server_bits)


def _minimal(batch_size: int, widths: list[int], server_size: int, bits: float, server_bits: float) -> tuple:
    embeddings, parties = batch_size * sum(widths) * bits, len(widths)
    return embeddings, (parties - 1) * embeddings + parties * server_size * server_bits


def _paper(batch_size: int, widths: list[int], server_size: int, bits: float, server_bits: float) -> tuple:
    if len(set(widths)) > 1:
        raise wrong(ValueError, "widths", widths, "equal widths: the paper's tables know no others")
    once, down = _literal(batch_size, widths, server_size, bits, server_bits)
    return len(widths) * once, down  # every upload counted as often as there are parties


def _algorithm2(batch_size: int, widths: list[int], server_size: int, bits: float, server_bits: float) -> tuple:
    embeddings = batch_size * sum(widths) * bits
    return embeddings, embeddings  # the tables charge the returned derivatives as if they were compressed


def _algorithm2_honest(batch_size: int, widths: list[int], server_size: int, bits: float, server_bits: float) -> tuple:
    return batch_size * sum(widths) * bits, batch_size * sum(widths) * FLOAT_BITS


ACCOUNTS: dict[str, Callable[..., tuple[float, float]]] = {
    "literal": _literal,
    "minimal": _minimal,
    "paper": _paper,
    "algorithm2": _algorithm2,
    "algorithm2_honest": _algorithm2_honest,
}


def bits_per_round(
    account: str,
    batch_size: int,
    widths: Sequence[int],
    server_size: int,
    bits: float,
    server_bits: float | None = None,
) -> tuple[float, float]:
    """Bits up (parties to server) and down (server to parties) of one round, all parties together.

    ``widths``: embedding size P_m of each of the M parties; ``server_size``: numbers in the server model; ``bits`` a
    component of an embedding, ``server_bits`` (else the same) a number of the server model.

    * "literal": Algorithm 1 as printed: each party uploads once, each receives all embeddings and the server model.
    * "minimal": the same, but nobody is sent his own embedding.
    * "paper": b (2 P B M^2 + |theta_0| M), which the paper's tables hold: each upload counted M times; equal widths.
    * "algorithm2": up and down b B sum P_m, as Table D.1 charges Algorithm 2; no server model is sent.
    * "algorithm2_honest": the same with the returned derivatives as the 32-bit floats that they are.

    Raises: TypeError, ValueError.
    Source: Castiglia et al. 2022, Algorithms 1 and 2, Tables 2 to 4 and D.1.
    """
    charge = ACCOUNTS[arguments.one_of("account", account, ACCOUNTS)]
    batch_size = arguments.integer("batch_size", batch_size, 1)
    if isinstance(widths, (str, bytes)) or not isinstance(widths, Sequence) or not widths:
        raise wrong(TypeError, "widths", widths, "a non-empty list of whole numbers, one for each party")
    sizes = [arguments.integer("widths", width, 1) for width in widths]
    server_size = arguments.integer("server_size", server_size, 0)
    bits = arguments.real("bits", bits, above=0)
    server_bits = bits if server_bits is None else arguments.real("server_bits", server_bits, above=0)
    up, down = charge(batch_size, sizes, server_size, bits, server_bits)
    return up, down


def index_bits(form: str, batch_size: int, width: int, kept: int) -> int:
    """Bits that say which ``kept`` of ``width`` components of every vector of a batch were sent.

    * "list": for each vector the numbers of the kept components, ceil(log2 width) bits each.
    * "bitmap": for each vector one bit a component.
    * "shared": one list or one bitmap, the shorter one, for the whole batch; only a rule that keeps the same
      components of every vector allows it.

    Where all components are kept there is nothing to say: 0 bits.

    Raises: TypeError, ValueError.
    """
    form = arguments.one_of("form", form, ("list", "bitmap", "shared"))
    batch_size = arguments.integer("batch_size", batch_size, 1)
    width = arguments.integer("width", width, 1)
    kept = arguments.integer("kept", kept, 1, width)
    if kept == width:
        return 0
    one_list = kept * (width - 1).bit_length()  # bit_length of width - 1 is ceil(log2 width)
    return {"list": batch_size * one_list, "bitmap": batch_size * width, "shared": min(one_list, width)}[form]


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
        rounds = arguments.real("rounds", rounds, 0)
        byte_count = arguments.real("byte_count", byte_count, 0)
        return rounds * self._round(local_steps, trips) + byte_count / self.bandwidth

    def seconds_by_round(self, bytes_by_round: Sequence[float] | Tensor, local_steps: int, trips: float = 1) -> Tensor:
        """Seconds that have passed at the end of each round of a run.

        Shapes: ``bytes_by_round`` [T] (both ways together, as the ledger counted them) -> [T], float64.
        Raises: TypeError, ValueError.
        """
        if not isinstance(bytes_by_round, Tensor):
            numeric = isinstance(bytes_by_round, Sequence) and all(
                isinstance(v, numbers.Real) and not isinstance(v, bool) for v in bytes_by_round
            )
            if not numeric:
                raise wrong(TypeError, "bytes_by_round", bytes_by_round, "a list of numbers of bytes or a tensor [T]")
            bytes_by_round = torch.tensor(bytes_by_round, dtype=torch.float64)
        moved = arguments.tensor("bytes_by_round", bytes_by_round, ndim=1).to(torch.float64)
        if bool((moved < 0).any()):
            raise wrong(ValueError, "bytes_by_round", bytes_by_round, "numbers of bytes, none negative")
        rounds = torch.arange(1, len(moved) + 1, dtype=torch.float64, device=moved.device)
        return rounds * self._round(local_steps, trips) + moved.cumsum(0) / self.bandwidth

    def _round(self, local_steps: int, trips: float) -> float:
        """Seconds of one round without its bytes."""
        local_steps = arguments.integer("local_steps", local_steps, 1)
        return arguments.real("trips", trips, 0) * self.latency_s + local_steps * self.step_s

"""A sum of quantised messages of which nobody sees a single one: pairwise masks on the codes.

Party m quantises with its own dither to codes of b bits and sends, modulo 2^w with w = b + ceil(log2 M),

    code_m + sum over j > m of mask_mj - sum over j < m of mask_jm,

where mask_ij is uniform and known to the pair (i, j) only. One such message is uniform whatever the code; in the sum
over all parties the masks cancel, and w bits are enough for the sum of M codes. The dithers, which hide nothing, are
known to everybody, so the sum of the decoded values follows: M level 0 + step (sum of codes - sum of dithers).

What is not hidden: the sum itself, and with it a party's value from M - 1 others that collude. The masks cancel only
if every party's message arrives. And here all masks follow from one common seed, so the simulation, server included,
could undo them; in a real deployment each pair agrees on a seed of its own (a key agreement) that the server never
learns, and nothing else changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.compression import messages, wire
from fedbook.compression.scalar import UniformScalar
from fedbook.randomness import stream
from fedbook.wire import Encoded


def party_dither(seed: int, t: int, party: int, shape: tuple[int, ...]) -> Tensor:
    """The dither of ``party`` in round ``t``, in units of a step: float32 ``shape`` in [-1/2, 1/2), known to all."""
    drawn = stream(seed, "dither of a secure sum", t, party).random(shape, dtype=np.float32)
    return torch.from_numpy(drawn).sub_(0.5)


def pair_mask(seed: int, t: int, pair: tuple[int, int], shape: tuple[int, ...], bits: int) -> Tensor:
    """The mask of a pair of parties i < j in round ``t``: int64 ``shape``, uniform in [0, 2^bits)."""
    i, j = pair
    mask = stream(seed, f"mask of a secure sum with {i}", t, j).integers(0, 2**32, shape, dtype=np.uint32)
    return torch.from_numpy(mask.astype(np.int64)) & (2**bits - 1)


def mask_codes(codes: Tensor, seed: int, t: int, party: int, parties: int, bits: int) -> Tensor:
    """Codes of ``party`` with the masks of all its pairs on top, modulo 2^bits.

    Shapes: ``codes`` [...] integers to int64 [...]. The sum over all parties modulo 2^bits is that of the codes.
    """
    masked = codes.to(torch.int64)
    for other in range(parties):
        if other != party:
            pair = (min(party, other), max(party, other))
            mask = pair_mask(seed, t, pair, tuple(codes.shape), bits).to(codes.device)
            masked = masked + mask if party < other else masked - mask
    return masked & (2**bits - 1)  # of a negative number too: the remainder


@dataclass(frozen=True)
class MaskedIntegers:
    """The wire format of masked codes: whole numbers in [0, 2^bits), packed without gaps.

    With ``Codec(MaskedIntegers(bits))`` it is the codec of an upload of integers. Raises: TypeError, ValueError.
    """

    bits: int

    name, number = "masked", 5

    def __post_init__(self):
        arguments.integer("bits", self.bits, 1, wire.MOST_BITS)

    def payload_bytes(self, B: int, P: int) -> int:
        """Bytes of the body of a message of B vectors of P numbers. Raises: TypeError, ValueError."""
        return wire.packed_bytes(arguments.integer("B", B, 1) * arguments.integer("P", P, 1), self.bits)

    def encode(self, x: Tensor, rngs: list[np.random.Generator]) -> list[Encoded]:
        """R messages in their wire format; the generators are not used.

        Shapes: ``x`` [R, B, P] integers in [0, 2^bits). Raises: TypeError, ValueError.
        """
        x = messages.checked(x, rngs, kind="integer")
        if x.numel():
            least, most = (int(code) for code in torch.aminmax(x))
            if least < 0 or most >= 2**self.bits:
                allowed = f"whole numbers in [0, {2**self.bits}): {self.bits} bits"
                raise arguments.wrong(ValueError, "x", [least, most], allowed)
        head = wire.headers(self.number, self.bits, 0, tuple(x.shape))
        return wire.seal(head, wire.pack(x.flatten(1), self.bits))

    def decode(self, buffers: list[Encoded], like: Tensor) -> Tensor:
        """What R messages say, in the integer dtype and device of ``like`` [R, B, P].

        Raises: TypeError, ValueError (damaged, of another form, or too wide for the dtype).
        """
        shape = messages.checked_form(like, kind="integer")
        if torch.iinfo(like.dtype).max < 2**self.bits - 1:
            raise arguments.wrong(ValueError, "like", like, f"an integer dtype that holds {self.bits} bits")
        wire.expect(wire.read_headers(buffers, self.number, self.bits, shape), "flags", 0)
        bodies = wire.read_bodies(buffers, self.payload_bytes(*shape[1:]))
        codes = wire.unpack(bodies.to(like.device), self.bits, shape[1] * shape[2])
        return codes.reshape(shape).to(like.dtype)


@dataclass(frozen=True)
class SecureSum:
    """The sum of M quantised messages under pairwise masks: ``masked`` at the parties, ``total`` at the server.

    A party that needs the others' part of the sum subtracts ``own``, which is what its message adds to the total.

    ``quantiser``: scalar, with a fixed range. ``parties``: M. Rows are federations x parties, as in an exchange with
    ``reveal="sum"``; each federation has a common seed.

    Raises: TypeError, ValueError.
    """

    quantiser: UniformScalar
    parties: int

    def __post_init__(self):
        if not isinstance(self.quantiser, UniformScalar):
            raise arguments.wrong(TypeError, "quantiser", self.quantiser, "a UniformScalar")
        if self.quantiser.low is None:
            raise arguments.wrong(
                ValueError, "quantiser", self.quantiser, "one with a fixed range, for one common step"
            )
        arguments.integer("parties", self.parties, 1, 2**16)

    @property
    def bits(self) -> int:
        """w = bits of the quantiser + ceil(log2 M): bits that one masked component takes."""
        return self.quantiser.bits + (self.parties - 1).bit_length()

    @property
    def wire(self) -> MaskedIntegers:
        """The wire format of a masked message."""
        return MaskedIntegers(self.bits)

    def masked(self, x: Tensor, seeds: Sequence[int], t: int, parties: Sequence[int]) -> Tensor:
        """What each party sends: dithered, quantised and masked.

        Shapes: ``x`` [R, B, P]; ``seeds`` and ``parties``, R numbers: the common seed of a row's federation, and whose
        row it is; to int64 [R, B, P] in [0, 2^bits). Raises: ValueError (entries outside of the range).
        """
        codes, _ = self._quantised(x, seeds, t, parties)
        for row, seed, party in zip(codes, seeds, parties, strict=True):
            row.copy_(mask_codes(row, seed, t, party, self.parties, self.bits))
        return codes

    def own(self, x: Tensor, seeds: Sequence[int], t: int, parties: Sequence[int]) -> Tensor:
        """What each party's message is decoded to, and so adds to the total, in ``x``'s dtype.

        Shapes: ``x``, ``seeds`` and ``parties`` as in ``masked``, to [R, B, P].
        """
        codes, dithers = self._quantised(x, seeds, t, parties)
        return self.quantiser.reconstruct(codes, dithers, dithers).to(x.dtype)

    def codes(self, sums: Tensor) -> Tensor:
        """The sum of the parties' codes from the sum of their messages, [...] int64."""
        return sums.to(torch.int64) & (2**self.bits - 1)

    def total(self, sums: Tensor, seeds: Sequence[int], t: int, like: Tensor) -> Tensor:
        """The sum of the decoded messages of all parties, in ``like``'s dtype.

        Shapes: ``sums`` [S, B, P] integers, the sums over the parties of what they sent; ``seeds`` S common seeds.
        """
        codes = self.codes(sums)
        dithers = torch.zeros(sums.shape, dtype=self._working_dtype(like), device=sums.device)
        drawn: dict[int, Tensor] = {}  # at the parties every row of a federation asks for the same sum
        for row, seed in zip(dithers, seeds, strict=True):
            if seed not in drawn:
                for party in range(self.parties):
                    row += self._dither(seed, t, party, row)
                drawn[seed] = row
            else:
                row.copy_(drawn[seed])
        return self.quantiser.reconstruct(codes, dithers, dithers, terms=self.parties).to(like.dtype)

    def _quantised(self, x: Tensor, seeds: Sequence[int], t: int, parties: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Codes and dithers of each row, [R, B, P] int64 and in the working dtype."""
        x = x.to(self._working_dtype(x))
        dithers = torch.empty_like(x)
        for row, seed, party in zip(dithers, seeds, parties, strict=True):
            row.copy_(self._dither(seed, t, party, row))
        return self.quantiser.quantise(x, dithers), dithers

    def _working_dtype(self, x: Tensor) -> torch.dtype:
        return messages.working_dtype(x.dtype, np.array([self.quantiser.step()]))

    def _dither(self, seed: int, t: int, party: int, like: Tensor) -> Tensor:
        if not self.quantiser.dither:
            return torch.zeros_like(like)
        return party_dither(seed, t, party, tuple(like.shape)).to(device=like.device, dtype=like.dtype)


@dataclass(frozen=True)
class Summable:
    """The wire format of a quantised message of which the server sees the sum over a cohort only.

    A code takes w = b + ceil(log2 M) bits, room for the sum of up to M = ``parties`` codes. In place of the masks,
    which change neither length nor sum, the simulator's ``reveal="sum"`` adds up what the messages decode to; the
    seed of the dither, which hides nothing, is in the header. Entries beyond the range become its end.

    ``quantiser``: scalar, with a fixed range. Raises: TypeError, ValueError.
    """

    quantiser: UniformScalar
    parties: int

    name, number = "summable", 6

    def __post_init__(self):
        SecureSum(self.quantiser, self.parties)  # refuses the same

    @property
    def bits(self) -> int:
        """w: bits of one component on the wire."""
        return SecureSum(self.quantiser, self.parties).bits

    def payload_bytes(self, B: int, P: int) -> int:
        """Bytes of the body of a message of B vectors of P components. Raises: TypeError, ValueError."""
        return wire.packed_bytes(arguments.integer("B", B, 1) * arguments.integer("P", P, 1), self.bits)

    def encode(self, x: Tensor, rngs: list[np.random.Generator]) -> list[Encoded]:
        """R messages [R, B, P] in their wire format. Raises: TypeError, ValueError."""
        x = messages.checked(x, rngs)
        sent = self.quantiser.encode(x.clamp(self.quantiser.low, self.quantiser.high), rngs)
        return self._packed(sent, tuple(x.shape), self.quantiser, self)

    def decode(self, buffers: list[Encoded], like: Tensor) -> Tensor:
        """What R messages say, in ``like``'s form. Raises: TypeError, ValueError (damaged, of another form)."""
        shape = messages.checked_form(like)
        return self.quantiser.decode(self._packed(buffers, shape, self, self.quantiser), like)

    @staticmethod
    def _packed(buffers: list[Encoded], shape: tuple[int, int, int], old: Any, new: Any) -> list[Encoded]:
        """The same codes in another width: from the format of ``old`` to that of ``new``."""
        head = wire.read_headers(buffers, old.number, old.bits, shape)
        bodies = wire.read_bodies(buffers, old.payload_bytes(*shape[1:]))
        codes = wire.unpack(bodies, old.bits, shape[1] * shape[2])
        if codes.numel() and int(codes.max()) >= 2**new.bits:
            raise wire.refused("buffers, largest code", str(int(codes.max())), f"below {2**new.bits}")
        head["kind"], head["bits"] = new.number, new.bits
        return wire.seal(head, wire.pack(codes, new.bits))

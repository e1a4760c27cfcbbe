"""Sparse messages: the k components of largest magnitude, or k random ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.compression import messages, wire
from fedbook.wire import Encoded

WHOLE, LIST, BITMAP, SHARED = 0, 1, 2, 4  # flags in the header: the form of the index; SHARED comes on top


def largest(scores: Tensor, k: int) -> Tensor:
    """Where the k largest scores of each row are; of equal ones those of lowest index.

    Shapes: ``scores`` [..., P] to booleans [..., P], k of each row true. ``k`` from 1 to P.
    """
    if k == scores.shape[-1]:
        return torch.ones_like(scores, dtype=torch.bool)
    least = torch.topk(scores, k, dim=-1, sorted=False).values.amin(-1, keepdim=True)
    kept = scores >= least
    if int(kept.sum()) == k * scores[..., 0].numel():  # no row has a tie at its k-th place
        return kept
    tied = scores == least
    room = k - (kept.sum(-1, keepdim=True) - tied.sum(-1, keepdim=True))
    return kept & (~tied | (tied.cumsum(-1) <= room))


def keep_columns(x: Tensor, scores: Tensor, k: int) -> Tensor:
    """``x`` with all but the k columns of largest score set to 0: one index set for the whole batch.

    This is the gradient rule, if the scores are the magnitudes of the loss derivatives summed over a batch. Ties go
    to the lowest index. :class:`TopK` sends the result with one index set for the batch.

    Shapes: ``x`` [R, B, P], ``scores`` [R, P]. Raises: TypeError, ValueError.
    Source: Castiglia et al. 2022, appendix B (top-k); its error bound does not hold for this rule.
    """
    arguments.tensor("x", x, ndim=3, kind="float", finite=False)
    arguments.tensor("scores", scores, shape=(x.shape[0], x.shape[2]), kind="float")
    k = arguments.integer("k", k, 1, x.shape[2])
    return torch.where(largest(scores, k)[:, None], x, 0)


@dataclass(frozen=True)
class Sparse:
    """What the sparse compressors share: k components of each vector are kept; values travel as float32."""

    k: int

    name: ClassVar[str]
    number: ClassVar[int]  # of the kind of message, in the header
    most_bits: ClassVar[int] = 32

    def __post_init__(self):
        arguments.integer("k", self.k, 1, 2**31 - 1)

    @classmethod
    def at(cls, bits: int, width: int, low: float | None, high: float | None) -> Sparse:
        """The k = floor(bits width / 32) components that ``bits`` bits a component pay for, without their positions.

        Raises: ValueError (k = 0: so few bits leave no component).
        """
        k = bits * width // 32
        if k == 0:
            allowed = f"at least {-(-32 // bits)}, as k = floor(bits width / 32) must be 1 or more"
            raise arguments.wrong(ValueError, f"width with {bits} bits", width, allowed)
        return cls(k)

    def _sizes(self, B: int, P: int) -> tuple[int, int]:
        B, P = arguments.integer("B", B, 1), arguments.integer("P", P, 1)
        if self.k > P:
            raise arguments.wrong(ValueError, "k", self.k, f"at most the {P} components of a vector")
        return B, P

    def _checked(self, x: Tensor, rngs: list[np.random.Generator]) -> Tensor:
        x = messages.checked(x, rngs)
        self._sizes(*x.shape[1:])
        if x.numel() and not bool(torch.isfinite(torch.stack(torch.aminmax(x))).all()):
            arguments.tensor("x", x)  # which says it: NaN or infinite entries
        return x

    def _values(self, x: Tensor, kept: Tensor) -> Tensor:
        """The kept values in the order of their index, as the bytes of float32: [R, 4 B k] uint8."""
        values = x[kept].to(torch.float32)
        if x.dtype == torch.float64 and not bool(torch.isfinite(values).all()):
            allowed = "entries that float32 can hold, as values are sent in float32"
            raise wire.refused("x", f"entries up to {float(x.abs().max())} in size", allowed)
        return values.view(len(x), x.shape[1] * self.k).view(torch.uint8)


@dataclass(frozen=True)
class TopK(Sparse):
    """The k components of largest magnitude of each vector; the rest decode to 0.

    Of equal magnitudes the lowest index is kept. Values travel as float32: what float32 holds comes back exactly,
    also in float64. Where the values lie is sent in the cheapest of these forms, chosen for each message: a list of
    ceil(log2 P) bits an entry or a bitmap of P bits; for each vector, or once if one set of k components serves the
    whole batch (all vectors keep the same, or all that is not 0 lies in k columns); nothing at all if k = P.

    Raises: TypeError, ValueError.
    Source: Castiglia et al. 2022, section 4 and appendix B, which count no bits for the positions.
    """

    name, number = "topk", 3

    def payload_bytes(self, B: int, P: int, shared: bool = False) -> int:
        """Bytes of the body of a message of B vectors of P components, if index sets differ (or are ``shared``).

        Raises: TypeError, ValueError (k above P).
        """
        B, P = self._sizes(B, P)
        sets = 1 if arguments.flag("shared", shared) else B
        return _index(sets, P, self.k)[1] + 4 * B * self.k

    def encode(self, x: Tensor, rngs: list[np.random.Generator]) -> list[Encoded]:
        """R messages in their wire format; the generators are not used.

        Shapes: ``x`` [R, B, P], ``rngs`` R generators. Raises: TypeError, ValueError (NaN, infinity, k above P).
        """
        x = self._checked(x, rngs)
        R, B, P = x.shape
        kept = largest(x.abs(), self.k)
        columns = (x != 0).any(1)  # [R, P]
        narrow = columns.sum(1) <= self.k
        if bool(narrow.any()):
            kept = torch.where(narrow[:, None, None], largest(columns.to(x.dtype), self.k)[:, None], kept)
        values = self._values(x, kept)
        shared = (kept == kept[:, :1]).flatten(1).all(1).cpu() & (B > 1)
        sent: list[Encoded | None] = [None] * R
        for once in (False, True):
            rows = torch.nonzero(shared == once).flatten()
            if not len(rows):
                continue
            sets = kept[rows.to(x.device), : 1 if once else B]
            form, _ = _index(sets.shape[1], P, self.k)
            head = wire.headers(self.number, 32, form + SHARED * once, (len(rows), B, P))
            head["low"] = self.k
            bodies = torch.cat([_write_index(sets, form, self.k), values[rows.to(x.device)]], 1)
            for row, message in zip(rows.tolist(), wire.seal(head, bodies), strict=True):
                sent[row] = message
        return sent

    def decode(self, buffers: list[Encoded], like: Tensor) -> Tensor:
        """What R messages say, in ``like``'s dtype and device.

        Shapes: R messages, ``like`` [R, B, P], to [R, B, P].
        Raises: TypeError, ValueError (damaged, or written by another compressor or for another shape).
        """
        R, B, P = messages.checked_form(like)
        self._sizes(B, P)
        head = wire.read_headers(buffers, self.number, 32, (R, B, P))
        wire.expect(head, "low", self.k, f"k = {self.k}")
        shared = head["flags"] & SHARED > 0
        forms = [_index(1 if once else B, P, self.k)[0] + SHARED * once for once in (False, True)]
        wire.expect(head, "flags", np.where(shared, forms[1], forms[0]))
        decoded = torch.zeros(R, B, P, dtype=torch.float32, device=like.device)
        for once in (False, True):
            form, size = _index(1 if once else B, P, self.k)
            rows = np.flatnonzero(shared == once)
            if not len(rows):
                continue
            bodies = wire.read_bodies([buffers[row] for row in rows], size + 4 * B * self.k, rows).to(like.device)
            kept = _read_index(bodies[:, :size], form, (len(rows), 1 if once else B, P), self.k, rows)
            values = bodies[:, size:].clone(memory_format=torch.contiguous_format).view(torch.float32)
            rows = torch.from_numpy(rows).to(like.device)
            decoded[rows] = decoded[rows].masked_scatter_(kept.expand(len(rows), B, P), values)
        return _finite(decoded, like.dtype)


@dataclass(frozen=True)
class RandomK(Sparse):
    """k components of each vector, drawn uniformly and anew for each vector; the rest decode to 0.

    The seed of the index sets travels in the header, so positions cost nothing. Values travel as float32: what
    float32 holds comes back exactly. Nothing is rescaled: the mean squared error is (1 - k/P) |h|^2.

    Raises: TypeError, ValueError.
    """

    name, number = "randomk", 4

    def payload_bytes(self, B: int, P: int) -> int:
        """Bytes of the body of a message of B vectors of P components. Raises: TypeError, ValueError (k above P)."""
        B, P = self._sizes(B, P)
        return 4 * B * self.k

    def encode(self, x: Tensor, rngs: list[np.random.Generator]) -> list[Encoded]:
        """R messages in their wire format; a seed of the index sets is drawn from each message's generator.

        Shapes: ``x`` [R, B, P], ``rngs`` R generators. Raises: TypeError, ValueError (NaN, infinity, k above P).
        """
        x = self._checked(x, rngs)
        head = wire.headers(self.number, 32, 0, tuple(x.shape))
        head["seed"], head["low"] = messages.draw_seeds(rngs), self.k
        return wire.seal(head, self._values(x, self._drawn(head["seed"], x)))

    def decode(self, buffers: list[Encoded], like: Tensor) -> Tensor:
        """What R messages say, in ``like``'s dtype and device.

        Shapes: R messages, ``like`` [R, B, P], to [R, B, P].
        Raises: TypeError, ValueError (damaged, or written by another compressor or for another shape).
        """
        shape = messages.checked_form(like)
        size = self.payload_bytes(*shape[1:])
        head = wire.read_headers(buffers, self.number, 32, shape)
        wire.expect(head, "low", self.k, f"k = {self.k}")
        wire.expect(head, "flags", 0)
        values = wire.read_bodies(buffers, size).contiguous().view(torch.float32).to(like.device)
        kept = self._drawn(head["seed"], like)
        decoded = torch.zeros(shape, dtype=torch.float32, device=like.device).masked_scatter_(kept, values)
        return _finite(decoded, like.dtype)

    def _drawn(self, seeds: np.ndarray, like: Tensor) -> Tensor:
        # On the CPU, so that both sides have the same sets whatever device they calculate on.
        return largest(messages.uniforms(seeds, tuple(like.shape[1:])), self.k).to(like.device)


def _finite(decoded: Tensor, dtype: torch.dtype) -> Tensor:
    """Decoded values in ``dtype``. Raises: ValueError (not finite there: nobody sends that)."""
    values = decoded.to(dtype)
    bad = torch.nonzero(~values.isfinite().flatten(1).all(1)).flatten()
    if len(bad):
        raise wire.refused(f"buffer {int(bad[0])}, values", "NaN or infinite ones", f"finite numbers of {dtype}")
    return values


def _index(sets: int, P: int, k: int) -> tuple[int, int]:
    """The cheapest form for ``sets`` index sets, and its bytes."""
    if k == P:
        return WHOLE, 0
    costs = {LIST: wire.packed_bytes(sets * k, (P - 1).bit_length()), BITMAP: wire.packed_bytes(sets * P, 1)}
    form = min(costs, key=costs.get)
    return form, costs[form]


def _write_index(kept: Tensor, form: int, k: int) -> Tensor:
    """Index sets [R, sets, P], k true in each, as bytes [R, n]."""
    rows, _, P = kept.shape
    if form == WHOLE:
        return torch.zeros(rows, 0, dtype=torch.uint8, device=kept.device)
    if form == BITMAP:
        return wire.pack(kept.flatten(1).to(torch.uint8), 1)
    return wire.pack(torch.nonzero(kept)[:, 2].view(rows, -1), (P - 1).bit_length())


def _read_index(packed: Tensor, form: int, shape: tuple[int, int, int], k: int, numbers: np.ndarray) -> Tensor:
    """The inverse of :func:`_write_index`. Raises: ValueError (no index set of k components)."""
    rows, sets, P = shape
    if form == WHOLE:
        return torch.ones(shape, dtype=torch.bool, device=packed.device)
    if form == BITMAP:
        kept = wire.unpack(packed, 1, sets * P).view(shape).bool()
        good = kept.sum(-1) == k
    else:
        index = wire.unpack(packed, (P - 1).bit_length(), sets * k).view(rows, sets, k).long()
        good = ((index < P) & (torch.diff(index, dim=-1, prepend=index.new_full((rows, sets, 1), -1)) > 0)).all(-1)
        kept = torch.zeros(shape, dtype=torch.bool, device=packed.device).scatter_(2, index.clamp(max=P - 1), True)
    if not bool(good.all()):
        row = numbers[int(torch.nonzero(~good)[0, 0])]
        raise arguments.wrong(
            ValueError, f"buffer {row}, index", "no set of k components", f"k = {k} of {P}, ascending"
        )
    return kept

"""The wire format of compressed messages: a 32-byte header, then codes of b bits without gaps between them.

Everything is little endian. The header:

====== ====== ==========================================================================================
bytes  type   meaning
====== ====== ==========================================================================================
0      uint8  0xC1: magic number and version of the format in one
1      uint8  kind of message, the ``number`` of its compressor's class
2      uint8  bits of one code (32 where the body holds float32 values)
3      uint8  flags, whose meaning belongs to the kind
4-7    uint32 B, vectors in the message
8-11   uint32 P, components of a vector
12-19  uint64 seed of the dither or of the index set (0 where nothing is drawn)
20-23  4 bytes low end of the range as float32; sparse kinds: k as uint32
24-27  4 bytes high end of the range as float32; sparse kinds: 0
28-31  uint32 CRC-32 of everything else, header and body
====== ====== ==========================================================================================

The header is the same for every width and so costs less the larger the message is. Codes follow each other from the
lowest bit up. Every eighth code starts a new byte, so eight codes of b <= 8 bits are b bytes, packed by way of one
64-bit word. Wider codes are cut into a plane of low bytes and the rest. The unused bits of the last byte are zero.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.wire import Encoded

HEADER_BYTES = 32
FORMAT = 0xC1
MOST_BITS = 32
_FIELDS = [("format", "u1"), ("kind", "u1"), ("bits", "u1"), ("flags", "u1"), ("batch", "<u4"), ("width", "<u4")]
HEADER = np.dtype([*_FIELDS, ("seed", "<u8"), ("low", "<u4"), ("high", "<u4"), ("crc", "<u4")])


def refused(name: str, found: str, allowed: str) -> ValueError:
    """The exception (not raised) for something that is no argument: what was found, what is allowed."""
    return ValueError(f"{name}: got {found}; allowed is {allowed}")


def packed_bytes(count: int, bits: int) -> int:
    """Bytes that ``count`` codes of ``bits`` bits take."""
    return -(-count * bits // 8)


def pack(codes: Tensor, bits: int) -> Tensor:
    """Codes of ``bits`` bits, which must be in range, without gaps, row by row.

    Shapes: ``codes`` [R, n] integers in [0, 2^bits) to [R, ceil(n bits / 8)] uint8.
    """
    rows, count = codes.shape
    if bits == 8:
        return codes.to(torch.uint8)
    if bits > 8:  # a plane of low bytes, then the rest
        return torch.cat([(codes & 255).to(torch.uint8), pack(codes >> 8, bits - 8)], 1)
    codes = codes.to(torch.uint8)
    if count % 8:
        codes = torch.nn.functional.pad(codes, (0, 8 - count % 8))
    # Neighbours join: 8 codes of b bits, 4 of 2 b, 2 of 4 b, 1 of 8 b; the widths 14, 28 and 56 leave the sign alone.
    for wider, shift in ((torch.int16, bits), (torch.int32, 2 * bits), (torch.int64, 4 * bits)):
        codes = codes[:, 0::2].to(wider) | (codes[:, 1::2].to(wider) << shift)
    words = codes.contiguous().view(torch.uint8).view(rows, codes.shape[1], 8)
    return words[:, :, :bits].reshape(rows, codes.shape[1] * bits)[:, : packed_bytes(count, bits)]


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """The inverse of :func:`pack`.

    Shapes: ``packed`` [R, ceil(count bits / 8)] uint8 to [R, count] of the narrowest of uint8, int32 and int64
    that holds the codes.
    """
    if bits == 8:
        return packed
    if bits > 8:
        wide = torch.int32 if bits < 32 else torch.int64
        return packed[:, :count].to(wide) | (unpack(packed[:, count:], bits - 8, count).to(wide) << 8)
    rows, groups = len(packed), -(-count // 8)
    words = packed.new_zeros(rows, groups, 8)
    if packed.shape[1] < groups * bits:
        packed = torch.nn.functional.pad(packed, (0, groups * bits - packed.shape[1]))
    words[:, :, :bits] = packed.view(rows, groups, bits)
    codes = words.view(torch.int64).view(rows, groups)
    for narrower, shift in ((torch.int32, 4 * bits), (torch.int16, 2 * bits), (torch.uint8, bits)):
        low = (codes & ((1 << shift) - 1)).to(narrower)
        codes = torch.stack([low, (codes >> shift).to(narrower)], 2).view(rows, 2 * codes.shape[1])
    return codes[:, :count]


def headers(kind: int, bits: int, flags: int | np.ndarray, shape: tuple[int, int, int]) -> np.ndarray:
    """R headers of one kind and shape [R, B, P], with seed, range and checksum still zero."""
    head = np.zeros(shape[0], HEADER)
    head["format"], head["kind"], head["bits"], head["flags"] = FORMAT, kind, bits, flags
    head["batch"], head["width"] = shape[1:]
    return head


def seal(head: np.ndarray, bodies: Tensor) -> list[Encoded]:
    """Headers and bodies [R, n] uint8 joined into R messages, with the checksum filled in."""
    whole = torch.empty(len(head), HEADER_BYTES + bodies.shape[1], dtype=torch.uint8)
    whole[:, HEADER_BYTES:] = bodies
    rows = whole.numpy()
    rows[:, :HEADER_BYTES] = head.view(np.uint8).reshape(-1, HEADER_BYTES)
    for row in rows:
        row[28:HEADER_BYTES] = np.frombuffer(_checksum(row).to_bytes(4, "little"), np.uint8)
    return [Encoded(row) for row in whole.unbind()]


def read_headers(buffers: Sequence[Encoded], kind: int, bits: int, shape: tuple[int, int, int]) -> np.ndarray:
    """The headers of R messages, which must be of this kind, bits and shape [R, B, P].

    Raises: TypeError (no list of Encoded), ValueError (anything else than was expected).
    """
    if not isinstance(buffers, list | tuple) or not all(isinstance(buffer, Encoded) for buffer in buffers):
        raise arguments.wrong(TypeError, "buffers", buffers, "a list of Encoded")
    if len(buffers) != shape[0]:
        raise arguments.wrong(ValueError, "buffers", len(buffers), f"one for each of the {shape[0]} rows of like")
    for number, buffer in enumerate(buffers):
        if buffer.nbytes < HEADER_BYTES:
            allowed = f"at least the {HEADER_BYTES} bytes of the header"
            raise refused(f"buffer {number}", f"{buffer.nbytes} bytes", allowed)
    if not buffers:
        return np.zeros(0, HEADER)
    head = torch.stack([buffer.buffer[:HEADER_BYTES] for buffer in buffers]).numpy().view(HEADER)[:, 0]
    for field, allowed in zip(
        ("format", "kind", "bits", "batch", "width"), (FORMAT, kind, bits, *shape[1:]), strict=True
    ):
        expect(head, field, allowed)
    return head


def expect(head: np.ndarray, field: str, allowed: int | np.ndarray, told: str = "") -> None:
    """Refuse headers whose ``field`` is another than ``allowed``, one number or one a row. Raises: ValueError."""
    allowed = np.broadcast_to(allowed, len(head))
    bad = np.flatnonzero(head[field] != allowed)
    if len(bad):
        name = f"buffer {bad[0]}, {field} in its header"
        raise refused(name, str(head[field][bad[0]]), told or str(allowed[bad[0]]))


def read_bodies(buffers: Sequence[Encoded], size: int, numbers: Sequence[int] | None = None) -> Tensor:
    """The bodies of messages, each of ``size`` bytes: [R, size] uint8 on the CPU; ``numbers`` name them in errors.

    Raises: ValueError (too short, too long, checksum).
    """
    if not buffers:
        return torch.zeros(0, size, dtype=torch.uint8)
    numbers = range(len(buffers)) if numbers is None else numbers
    for number, buffer in zip(numbers, buffers, strict=True):
        if buffer.nbytes != HEADER_BYTES + size:
            allowed = f"{HEADER_BYTES + size} bytes, {HEADER_BYTES} of header and {size} of body"
            raise refused(f"buffer {number}", f"{buffer.nbytes} bytes", allowed)
    whole = torch.stack([buffer.buffer for buffer in buffers])
    for number, row in zip(numbers, whole.numpy(), strict=True):
        received, expected = int.from_bytes(row[28:HEADER_BYTES].tobytes(), "little"), _checksum(row)
        if received != expected:
            allowed = f"{expected:#010x}, that of the other bytes (the message was damaged)"
            raise refused(f"buffer {number}, checksum", f"{received:#010x}", allowed)
    return whole[:, HEADER_BYTES:]


def _checksum(row: np.ndarray) -> int:
    return zlib.crc32(row[HEADER_BYTES:], zlib.crc32(row[:28]))

"""A message between server and node as bytes: plain values and tensors, checked before anything is made of them.

Four bytes that say what it is, CRC-32 of all that follows, the length of the head, the head as JSON, then the tensors
one after another. No code travels, and nothing is unpickled.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedbook.wire import Encoded

MAGIC = b"FBM1"
MOST_BYTES = 2**31  # of one message: a length that is read is not believed beyond it
_FRAME = struct.Struct("<4sIQ")
_TYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16,
        torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip


class BrokenMessage(ValueError):
    """Bytes that are no message, or one that says what it may not; the text says what was found."""


def pack(value: Any) -> bytes:
    """``value`` (dictionaries with words as keys, lists, plain values, tensors, encoded buffers) as bytes.

    Raises: TypeError for anything else.
    """
    pieces: list[bytes] = []
    head = json.dumps(_described(value, pieces)).encode()
    body = b"".join([struct.pack("<Q", len(head)), head, *pieces])
    return _FRAME.pack(MAGIC, zlib.crc32(body), len(body)) + body


def unpack(message: bytes) -> Any:
    """The inverse of :func:`pack`. Raises: BrokenMessage."""
    if not isinstance(message, bytes) or not _FRAME.size + 8 <= len(message) <= MOST_BYTES:
        size = len(message) if isinstance(message, bytes) else type(message).__name__
        raise BrokenMessage(f"message: got {size} bytes; allowed are {_FRAME.size + 8} to {MOST_BYTES}")
    magic, crc, length = _FRAME.unpack_from(message)
    body = memoryview(message)[_FRAME.size :]
    if magic != MAGIC or length != len(body) or zlib.crc32(body) != crc:
        raise BrokenMessage("message: got bytes that are damaged, cut or of another format")
    (long,) = struct.unpack_from("<Q", body)
    try:
        head = json.loads(bytes(body[8 : 8 + long]))
    except (ValueError, RecursionError) as error:
        raise BrokenMessage(f"message: got a head that is no JSON ({error})") from error
    reader = _Reader(body[8 + long :])
    value = reader.value(head)
    if reader.start != len(reader.body):
        raise BrokenMessage(f"message: got {len(reader.body) - reader.start} bytes that belong to no tensor")
    return value


def _described(value: Any, pieces: list[bytes]) -> Any:
    if isinstance(value, Encoded):
        return {"!": "encoded", "tensor": _described(value.buffer, pieces)}
    if isinstance(value, Tensor):
        x = value.detach().cpu().contiguous()
        pieces.append(x.flatten().view(torch.uint8).numpy().tobytes() if x.numel() else b"")
        return {"!": "tensor", "type": str(x.dtype).removeprefix("torch."), "shape": list(x.shape)}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"message: got the keys {list(value)}; allowed are words")
        return {"!": "tree", "of": {key: _described(one, pieces) for key, one in value.items()}}
    if isinstance(value, list | tuple):
        return [_described(one, pieces) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"message: got a {type(value).__name__}; allowed are tensors, words, numbers, lists, dictionaries")


class _Reader:
    def __init__(self, body: memoryview):
        self.body, self.start = body, 0

    def value(self, head: Any) -> Any:
        if isinstance(head, list):
            return [self.value(one) for one in head]
        if not isinstance(head, dict):
            return head
        kind = head.get("!")
        if kind == "tree" and isinstance(head.get("of"), dict):
            return {key: self.value(one) for key, one in head["of"].items()}
        if kind == "encoded":
            return Encoded(self._tensor(head.get("tensor"), only="uint8"))
        return self._tensor(head)

    def _tensor(self, head: Any, only: str | None = None) -> Tensor:
        shape = head.get("shape") if isinstance(head, dict) and head.get("!") == "tensor" else None
        if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 2**40 for n in shape):
            raise BrokenMessage(f"message: got {str(head)[:80]} for a tensor")
        if head.get("type") not in ((only,) if only else _TYPES):
            raise BrokenMessage(
                f"message: got a tensor of type {head.get('type')!r}; allowed are {only or list(_TYPES)}"
            )
        dtype = _TYPES[head["type"]]
        size = math.prod(shape) * dtype.itemsize
        if size > len(self.body) - self.start:
            raise BrokenMessage(
                f"message: got a tensor {shape} of {size} bytes where {len(self.body) - self.start} are"
            )
        piece = bytearray(self.body[self.start : self.start + size])
        self.start += size
        if dtype == torch.bool and any(byte > 1 for byte in piece):
            raise BrokenMessage("message: got truth values other than 0 and 1")
        return torch.frombuffer(piece, dtype=dtype).view(shape) if size else torch.empty(shape, dtype=dtype)

"""What a message passes on its way (clip, noise, codec) as plain values, and back: classes by name, from a list."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor

from fedbook.compression.codec import COMPRESSORS, AnyWidth, Codec, UpperTriangle
from fedbook.compression.secure_sum import MaskedIntegers, Summable
from fedbook.engines.messages import BrokenMessage
from fedbook.federation.exchange import Chain
from fedbook.papers.fedsc.contrastive import FilledRows
from fedbook.privacy.mechanisms import ClientGaussian, Clip
from fedbook.wire import Wire

MOST_NUMBERS = 2**28  # of one decoded tensor: what a message says of its size is not believed beyond it

_CODECS = (AnyWidth, Codec, FilledRows, MaskedIntegers, Summable, UpperTriangle)
_MAKERS = {kind.make for kind in COMPRESSORS.values()} - {None}
PARTS = {part.__name__: part for part in (Chain, Clip, ClientGaussian, *_CODECS, *_MAKERS)}


def described(part: Any) -> Any:
    """A chain or a part of one as values that a message holds. Raises: TypeError for a part that is not listed."""
    if isinstance(part, tuple):
        return [described(one) for one in part]
    if part is None or isinstance(part, bool | int | float | str):
        return part
    name = type(part).__name__
    if PARTS.get(name) is not type(part):
        raise TypeError(f"chain: got a {name}; allowed on this engine are {sorted(PARTS)}")
    own = {field.name: described(getattr(part, field.name)) for field in fields(part)} if is_dataclass(part) else {}
    return {"part": name, "fields": own}


def made(value: Any) -> Any:
    """The inverse of :func:`described`. Raises: BrokenMessage."""
    if isinstance(value, list):
        return tuple(made(one) for one in value)
    if not isinstance(value, dict):
        return value
    try:
        part, own = PARTS[value["part"]], {name: made(one) for name, one in value["fields"].items()}
        return part(**own)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BrokenMessage(f"chain: got {str(value)[:120]} ({error})") from error


def packed(wire: Wire) -> Any:
    """An encoded broadcast as values that a message holds: a list, or its values where nobody knows what reads it."""
    if wire.codec is None:
        return wire.value
    rows, form = list(wire.rows or wire.value.shape), wire.value.new_zeros(0, *wire.value.shape)
    return [described(wire.codec), rows, form, [list(buffers) for buffers in wire.buffers]]


def unpacked(sent: list) -> Tensor:
    """The values of a broadcast out of the list of :func:`packed`. Raises: BrokenMessage, ValueError, TypeError."""
    codec, rows, form, buffers = sent
    if math.prod(rows) > MOST_NUMBERS:
        raise BrokenMessage(f"down: got {rows} for the form of a broadcast; allowed are {MOST_NUMBERS} numbers")
    decoded = made(codec).decode([one for each in buffers for one in each], {"": form.new_zeros(rows)})
    return decoded[""].view(form.shape[1:])

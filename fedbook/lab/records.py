"""Numbers that a chapter hands to the tests: ``record(accuracy=0.91, ...)``.

The values become one output of a MIME type of their own, rounded to four significant digits, so that
they can be compared exactly and read back from the executed notebook.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

from fedbook.arguments import wrong
from fedbook.lab import show

MIME = "application/vnd.fedbook.record+json"
DIGITS = 4
MOST_NUMBERS = 2000  # a record is a table to look at, not a place for data


def record(**values: Any) -> None:
    """Display ``values`` as one record: numbers, texts, booleans, None, tensors, arrays, nested dicts and lists.

    Floats are rounded to 4 significant digits.
    Raises: TypeError (a kind that JSON has not), ValueError (NaN, infinity, empty, too many numbers); both
    name the key.
    """
    if not values:
        raise ValueError("record: got no values; allowed is name=value, at least one")
    plain = {key: plain_value(key, value) for key, value in values.items()}
    text = "\n".join(f"{name:<28} {value}" for name, value in _rows("", plain))
    show.show({MIME: plain, "text/plain": text})


def plain_value(key: str, value: Any) -> Any:
    """``value`` as what JSON holds, floats rounded; ``key`` is for the message. Raises: TypeError, ValueError."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise wrong(TypeError, key, name, "a mapping with texts as keys")
        return {name: plain_value(f"{key}.{name}", inner) for name, inner in value.items()}
    if hasattr(value, "tolist"):  # tensors, arrays and their scalars
        size = value.numel() if hasattr(value, "numel") else value.size
        if size > MOST_NUMBERS:
            raise ValueError(f"{key}: got {size} numbers; allowed is at most {MOST_NUMBERS}")
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        if len(value) > MOST_NUMBERS:
            raise ValueError(f"{key}: got {len(value)} entries; allowed is at most {MOST_NUMBERS}")
        return [plain_value(f"{key}[{i}]", inner) for i, inner in enumerate(value)]
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return _rounded(key, float(value))
    raise wrong(TypeError, key, value, "a number, text, boolean, None, tensor, array, list or mapping of these")


def _rounded(key: str, value: float) -> float:
    rounded = float(f"{value:.{DIGITS}g}") + 0.0  # + 0.0 turns -0.0 into 0.0
    if not math.isfinite(rounded):
        raise wrong(ValueError, key, value, "a finite number (neither NaN nor infinity), also after rounding")
    return rounded


def _rows(prefix: str, values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            rows += _rows(f"{prefix}{name}.", value)
        else:
            rows.append((prefix + name, value))
    return rows

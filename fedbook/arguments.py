"""Checks of arguments, so that every public function refuses bad input in the same words.

A check returns the value in the form the caller wants (``int``, ``float``, a tensor) or raises a
``TypeError`` (wrong kind of thing) or ``ValueError`` (right kind, not allowed). Each message names
the argument, what was given and what is allowed.
"""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor


def shown(value: Any) -> str:
    """A short text of ``value`` for a message: tensors by shape and dtype, long texts cut."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)} and dtype {value.dtype}"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def wrong(kind: type[Exception], name: str, value: Any, allowed: str) -> Exception:
    """The exception (not raised) that says ``name`` was ``value`` and what is ``allowed``."""
    return kind(f"{name}: got {shown(value)}; allowed is {allowed}")


def integer(name: str, value: Any, minimum: int | None = None, maximum: int | None = None) -> int:
    """``value`` as an ``int`` in ``[minimum, maximum]`` (booleans and 2.0 are refused).

    Raises: TypeError, ValueError.
    """
    allowed = "a whole number" + _bounds(minimum, maximum, "[", "]")
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise wrong(TypeError, name, value, allowed)
    if (minimum is not None and value < minimum) or (maximum is not None and value > maximum):
        raise wrong(ValueError, name, value, allowed)
    return int(value)


def real(
    name: str,
    value: Any,
    minimum: float | None = None,
    maximum: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
    infinite: bool = False,
) -> float:
    """``value`` as a ``float``: ``minimum <= value <= maximum``, ``above < value < below``.

    NaN is never allowed, infinity only with ``infinite=True``.
    Raises: TypeError, ValueError.
    """
    low = (minimum, "[") if above is None else (above, "(")
    high = (maximum, "]") if below is None else (below, ")")
    allowed = "a finite number" if not infinite else "a number"
    allowed += _bounds(low[0], high[0], low[1], high[1])
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise wrong(TypeError, name, value, allowed)
    number = float(value)
    good = not math.isnan(number) and (infinite or not math.isinf(number))
    good = good and (minimum is None or number >= minimum) and (maximum is None or number <= maximum)
    good = good and (above is None or number > above) and (below is None or number < below)
    if not good:
        raise wrong(ValueError, name, value, allowed)
    return number


def flag(name: str, value: Any) -> bool:
    """``value`` if it is ``True`` or ``False``. Raises: TypeError."""
    if not isinstance(value, bool):
        raise wrong(TypeError, name, value, "True or False")
    return value


def instance(name: str, value: Any, kind: type) -> Any:
    """``value`` if it is of the class ``kind``. Raises: TypeError."""
    if not isinstance(value, kind):
        raise wrong(TypeError, name, value, kind.__name__)
    return value


def one_of(name: str, value: Any, allowed: Iterable[str]) -> str:
    """``value`` if it is one of the words ``allowed``. Raises: TypeError, ValueError."""
    choices = sorted(allowed)
    text = "one of " + ", ".join(choices)
    if not isinstance(value, str):
        raise wrong(TypeError, name, value, text)
    if value not in choices:
        folded = {word.casefold(): word for word in choices}
        close = difflib.get_close_matches(value.casefold(), folded, 1)
        raise wrong(ValueError, name, value, text + (f"; did you mean {folded[close[0]]}?" if close else ""))
    return value


def tensor(
    name: str,
    value: Any,
    *,
    ndim: int | None = None,
    shape: Sequence[int | None] | None = None,
    kind: str = "any",
    finite: bool = True,
) -> Tensor:
    """``value`` if it is a tensor of that shape and kind.

    Shapes: ``shape`` may hold ``None`` for "any size".
    ``kind``: ``"float"`` (floating point), ``"integer"`` (any integer dtype), ``"bool"``, ``"any"``.
    Raises: TypeError (no tensor, wrong kind), ValueError (shape, NaN or infinity).
    """
    word = {"any": "tensor", "float": "floating-point tensor", "integer": "integer tensor", "bool": "boolean tensor"}
    allowed = "a " + word[kind]
    if shape is not None:
        allowed += " of shape (" + ", ".join("any" if n is None else str(n) for n in shape) + ")"
    elif ndim is not None:
        allowed += f" with {ndim} axes"
    if not isinstance(value, Tensor):
        raise wrong(TypeError, name, value, allowed)
    is_float, is_bool = value.dtype.is_floating_point, value.dtype == torch.bool
    is_integer = not is_float and not is_bool and not value.dtype.is_complex
    if not {"any": True, "float": is_float, "integer": is_integer, "bool": is_bool}[kind]:
        raise wrong(TypeError, name, value, allowed)
    if ndim is not None and value.ndim != ndim:
        raise wrong(ValueError, name, value, allowed)
    if shape is not None and (
        value.ndim != len(shape) or any(n is not None and n != m for n, m in zip(shape, value.shape, strict=True))
    ):
        raise wrong(ValueError, name, value, allowed)
    if finite and is_float and not bool(torch.isfinite(value).all()):
        raise ValueError(f"{name}: got {shown(value)} with NaN or infinite entries; allowed is {allowed}, all finite")
    return value


def _bounds(low: float | None, high: float | None, left: str, right: str) -> str:
    if low is None and high is None:
        return ""
    if high is None:
        return f" of at least {low}" if left == "[" else f" above {low}"
    if low is None:
        return f" of at most {high}" if right == "]" else f" below {high}"
    return f" in {left}{low}, {high}{right}"

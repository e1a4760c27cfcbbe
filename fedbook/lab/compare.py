"""Comparing a learner's answer with the reference, and saying the first difference in one sentence."""

from __future__ import annotations

import copy
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any


class NotAttempted(BaseException):
    """The answer is still a stub. Not an Exception: a checker that catches errors must let it through."""


def first_difference(
    answer: Any,
    solution: Callable[..., Any],
    cases: Iterable[Mapping[str, Any]],
) -> str | None:
    """The first case (arguments by name) in which the function ``answer`` differs from ``solution``; None if none.

    Numbers, tensors and arrays agree within 1e-6, relative to the larger one and to 1. Arguments
    are copied first, so that a function that changes them harms no later case; that it does is a difference.
    """
    if not callable(answer):
        return f"Expected a function, got {short(answer)}."
    for case in cases:
        given, untouched = copy.deepcopy(dict(case)), copy.deepcopy(dict(case))
        expected = solution(**copy.deepcopy(dict(case)))
        where = "For " + (", ".join(f"{name} = {short(value)}" for name, value in case.items()) or "no arguments")
        try:
            got = answer(**given)
        except Exception as error:
            return f"{where}: expected {short(expected)}, but the function raised {short(error)}."
        difference = unlike(got, expected, 1e-6)
        if difference:
            return f"{where}: {difference}."
        if any(_is_data(value) and unlike(given[name], value, 0.0) for name, value in untouched.items()):
            return f"{where}: the result is right, but the function changes its arguments."
    return None


def unlike(got: Any, expected: Any, tolerance: float = 1e-9) -> str | None:
    """One phrase that says how ``got`` differs from ``expected``; None if it does not."""
    phrase = f"expected {short(expected)}, got {short(got)}"
    if expected is None or isinstance(expected, (bool, str)):
        same_kind = isinstance(got, (bool, str)) or got is None or hasattr(got, "dtype")
        return None if same_kind and _entries(got) == expected else phrase
    a, b = _entries(got), _entries(expected)
    if isinstance(b, Mapping):
        if not isinstance(a, Mapping) or set(a) != set(b):
            return phrase
        return next((f"at {key!r}: {d}" for key in b if (d := unlike(a[key], b[key], tolerance))), None)
    if isinstance(b, Sequence):
        if not isinstance(a, Sequence) or isinstance(a, str):
            return phrase
        if _shape(a) != _shape(b):
            return f"{phrase} (shape {_shape(a)} instead of {_shape(b)})"
        return phrase if any(unlike(x, y, tolerance) for x, y in zip(a, b, strict=True)) else None
    if isinstance(b, numbers.Number):
        is_number = isinstance(a, numbers.Number) and not isinstance(a, bool)
        return None if is_number and _close(a, b, tolerance) else phrase
    return None if bool(got == expected) else phrase


def not_right(
    answer: Any, right: Any, names: Sequence[str] = (), words: Sequence[str] = (), tolerance: float = 3e-3
) -> str | None:
    """What is not right in an answer found by hand: a number, a list of numbers or a mapping; None if all is.

    Whole numbers, texts and truth values must be equal, other numbers within ``tolerance``, relative to the right one.
    ``names`` are those of the list's numbers; ``words`` are all that a mapping's values may be.
    """
    if isinstance(right, Mapping):
        if not isinstance(answer, Mapping) or set(answer) != set(right):
            return f"It should be a dictionary with {', '.join(map(str, right))}; it is {short(answer)}."
        for name, value in right.items():
            if words and answer[name] not in words:
                return f"{name} should be one of {', '.join(words)}; it is {short(answer[name])}."
            if not _agrees(answer[name], value, tolerance):
                return f"{name} is not right: got {short(answer[name])}."
        return None
    if isinstance(right, Sequence):
        numeric = isinstance(answer, (list, tuple)) and len(answer) == len(right) and all(map(_is_number, answer))
        if not numeric:
            return f"It should be a list of {len(right)} numbers; it is {short(answer)}."
        wrong = (f"The {n} is not {short(a)}." for n, a, b in zip(names, answer, right, strict=True)
                 if not _agrees(a, b, tolerance))  # fmt: skip
        return next(wrong, None)
    if not _is_number(answer):
        return f"It should be one number; it is {short(answer)}."
    return None if _agrees(answer, right, tolerance) else f"It should be another number: got {short(answer)}."


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _agrees(got: Any, right: Any, tolerance: float) -> bool:
    if isinstance(right, (bool, str)):
        return type(got) is type(right) and got == right
    within = 0.0 if isinstance(right, int) else tolerance
    return _is_number(got) and math.isclose(got, right, rel_tol=within, abs_tol=1e-9)


def short(value: Any) -> str:
    """A short text for anything, also for what refuses to be shown."""
    try:
        if isinstance(value, BaseException):
            text = f"{type(value).__name__}: {value}"
        elif hasattr(value, "dtype") and hasattr(value, "tolist"):
            text = _number_text(value.tolist())
        else:
            text = _number_text(value)
    except Exception:
        text = f"something of type {type(value).__name__}"
    return text if len(text) <= 120 else text[:117] + "..."


def _number_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if type(value) in (list, tuple):
        inner = ", ".join(_number_text(v) for v in value[:40])
        return f"[{inner}]" if type(value) is list else f"({inner})"
    return repr(value)


def _entries(value: Any) -> Any:
    """Tensors and arrays as nested lists of numbers; everything else as it is."""
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return (value.detach() if hasattr(value, "detach") else value).tolist()
    return value


def plain(answer: Any) -> Any:
    """An answer with its tensors and arrays as numbers and lists, also inside lists and mappings."""
    if isinstance(answer, Mapping):
        return {name: plain(value) for name, value in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [plain(value) for value in answer]
    return _entries(answer)


def _is_data(value: Any) -> bool:
    """Whether two equal copies can be told from two different ones: numbers, texts, tensors, lists, mappings."""
    if isinstance(value, Mapping):
        return all(_is_data(inner) for inner in value.values())
    if isinstance(value, (list, tuple)):
        return all(_is_data(inner) for inner in value)
    return value is None or isinstance(value, (numbers.Number, str)) or hasattr(value, "tolist")


def _shape(value: Any) -> tuple[int, ...]:
    """The lengths along the axes of nested lists (of a ragged one: along its first entries)."""
    value = _entries(value)
    if not isinstance(value, Sequence) or isinstance(value, str):
        return ()
    return (len(value), *(_shape(value[0]) if len(value) else ()))


def _close(a: Any, b: Any, tolerance: float) -> bool:
    """Equal within the tolerance; NaN equals NaN only, infinity the same infinity only."""
    a, b = complex(a), complex(b)
    if any(math.isnan(part) for part in (b.real, b.imag)):
        return math.isnan(a.real) or math.isnan(a.imag)
    if a == b:
        return True
    distance = abs(a - b)
    return math.isfinite(distance) and distance <= tolerance * max(1.0, abs(a), abs(b))

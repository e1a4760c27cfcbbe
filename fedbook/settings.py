"""Settings, one line each: name, default, symbol, meaning, degenerate value, allowed range.

From that line come the check, the class's docstring (the API reference) and what the command line explains.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, dataclass_transform

from fedbook import arguments

Needs = Mapping[str, tuple[Any, ...]]  # name of a setting, "method" or "problem" -> the values it must have
LARGEST = {int: 2**31 - 1, float: 1e38}  # what 32 bits hold: tensors of indices and of single precision


class other_than(tuple):  # reads as a word in ``needs``
    """In ``needs``: every value but these."""

    def __new__(cls, *values: Any) -> other_than:
        return super().__new__(cls, values)


def setting(
    default: Any,
    symbol: str | None,
    meaning: str,
    degenerate: str = "",
    *,
    choices: Iterable[str] = (),
    needs: Needs | Sequence[Needs] | None = None,
    **limits: Any,
) -> Any:
    """A field of :class:`Settings`: its default, the paper's symbol, one line of what it is.

    ``degenerate``: the value that turns it off or gives a simpler method ("0: everyone"). The type of ``default`` is
    the type of the setting. ``choices``: the words allowed for a text (none given: any). ``limits`` of a number as in
    :func:`fedbook.arguments.integer` or :func:`fedbook.arguments.real`; none is ever beyond ``LARGEST``.
    ``needs``: where it counts at all, the values that other settings, the "method" or the "problem" must have
    (``{"partition": ("dirichlet",)}``, :func:`other_than`; no value at all: nowhere; several such: one is enough).
    Elsewhere it changes nothing.
    """
    row = {"symbol": symbol, "meaning": meaning, "degenerate": degenerate, "choices": tuple(choices), "limits": limits}
    row["needs"] = (dict(needs or {}),) if isinstance(needs, Mapping | None) else tuple(map(dict, needs))
    return dataclasses.field(default=default, metadata=row)


@dataclass_transform(frozen_default=True, field_specifiers=(setting,))
class Settings:
    """A subclass is a frozen dataclass, each field a :func:`setting`, checked when it is made.

    A plain default for a field of the base class changes the default alone. Raises: TypeError, ValueError.
    """

    def __init_subclass__(cls) -> None:
        inherited = getattr(cls, "__dataclass_fields__", {})
        for name in inspect.get_annotations(cls):
            own = getattr(cls, name)
            if not isinstance(own, dataclasses.Field):
                setattr(cls, name, dataclasses.field(default=own, metadata=inherited[name].metadata))
        dataclasses.dataclass(frozen=True)(cls)
        rows = "\n".join("    " + line for row in described(cls) for line in explained(row, 112))
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or cls.__name__)}\n\nSettings:\n{rows}\n"

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check(field, getattr(self, field.name))
        self.cross_check()

    def cross_check(self) -> None:
        """Conditions over several fields, each of them allowed by itself. Raises: ValueError."""


def check(field: dataclasses.Field, value: Any) -> None:
    """Raises: TypeError, ValueError, naming the field, what was given and what is allowed."""
    kind, limits = type(field.default), field.metadata["limits"]
    if kind is bool:
        arguments.flag(field.name, value)
    elif field.metadata["choices"]:
        arguments.one_of(field.name, value, field.metadata["choices"])
    elif kind is str:
        if not isinstance(value, str):
            raise arguments.wrong(TypeError, field.name, value, "a text")
    else:
        number = (arguments.integer if kind is int else arguments.real)(field.name, value, **limits)
        if LARGEST[kind] < abs(number) < math.inf:
            raise arguments.wrong(ValueError, field.name, value, f"at most {LARGEST[kind]}, what 32 bits hold")


def described(kind: type[Settings]) -> list[dict[str, Any]]:
    """One row a setting: name, symbol, default, meaning, degenerate, allowed, choices, needs, group; ready for JSON.

    ``choices``: the allowed words, if only some are.
    ``needs``: where it counts, as text. ``group``: the first line of the class that introduces it.
    """
    rows = []
    for field in dataclasses.fields(kind):
        owner = next(base for base in reversed(kind.__mro__) if field.name in getattr(base, "__dataclass_fields__", {}))
        rows.append({
            "name": field.name, "symbol": field.metadata["symbol"], "default": field.default,
            "meaning": field.metadata["meaning"], "degenerate": field.metadata["degenerate"],
            "allowed": _allowed(field), "choices": _words(field), "needs": needed(field.metadata["needs"]),
            "group": (owner.__doc__ or owner.__name__).splitlines()[0],
        })  # fmt: skip
    return rows


def explained(row: dict[str, Any], width: int) -> list[str]:
    """A row of :func:`described` as lines of text: name, symbol and default; what it is and what is allowed."""
    symbol = f" ({row['symbol']})" if row["symbol"] not in (None, row["name"]) else ""
    degenerate = f" ({row['degenerate']})" if row["degenerate"] else ""
    text = f"{row['meaning']}{degenerate}; {row['allowed']}" + (f"; counts {row['needs']}" if row["needs"] else "")
    return [f"{row['name']}{symbol} = {row['default']}", *textwrap.wrap(text, width, initial_indent="    ",
            subsequent_indent="    ")]  # fmt: skip


def needed(ways: Sequence[Needs]) -> str:
    """What a setting needs as text: "with partition=dirichlet or quantity and mu other than 0"; "" if nothing."""
    return ", or ".join(filter(None, map(_needed, ways)))


def _needed(needs: Needs) -> str:
    if any(not isinstance(values, other_than) and not values for values in needs.values()):
        return "nowhere here"
    parts = []
    for name, values in needs.items():
        words = [str(value).lower() if isinstance(value, bool) else f"{value}" for value in values]
        words = [f"{value:g}" if type(value) is float else word for value, word in zip(values, words, strict=True)]
        text = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
        parts.append(f"{name} other than {text}" if isinstance(values, other_than) else f"{name}={text}")
    return "with " + " and ".join(parts) if parts else ""


def unmet(ways: Sequence[Needs], values: Mapping[str, Any]) -> list[str]:
    """The names whose value in ``values`` is not one of those needed; none if one of the ``ways`` has none."""
    wrong = [
        [name for name, wanted in needs.items() if (values[name] in tuple(wanted)) == isinstance(wanted, other_than)]
        for needs in ways
    ]
    return list(dict.fromkeys(sum(wrong, []))) if all(wrong) else []


def _words(field: dataclasses.Field) -> list[str]:
    return ["true", "false"] if type(field.default) is bool else list(field.metadata["choices"])


def _allowed(field: dataclasses.Field) -> str:
    """What a refusal says is allowed."""
    try:
        check(field, None)
    except TypeError as refusal:
        return str(refusal).partition("; allowed is ")[2]
    raise AssertionError(field.name)

"""The parameters of a notebook: which there are, of which type, and whether given values fit."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def checked(path: str | Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """``given`` if each name is a parameter of the notebook and each value has the type of its default.

    papermill only warns of an unknown name and then runs at full size. A whole number is allowed where
    the default is a decimal one.
    Raises: ValueError (unknown name, NaN), TypeError (wrong type).
    """
    if not given:
        return {}
    defaults = declared(path)
    for name, value in given.items():
        if name not in defaults:
            allowed = ", ".join(sorted(defaults)) or "no parameter at all"
            raise ValueError(f"parameter {name}: {Path(path).name} has no such parameter; allowed is {allowed}")
        _same_type(name, value, defaults[name])
    return dict(given)


def declared(path: str | Path) -> dict[str, Any]:
    """The notebook's parameters and their default values.

    Raises: ValueError (a default that is no literal).
    """
    import papermill

    values = {}
    for name, parameter in papermill.inspect_notebook(str(path)).items():
        try:
            values[name] = ast.literal_eval(parameter["default"])
        except (ValueError, SyntaxError):
            text = parameter["default"]
            raise ValueError(f"parameter {name}: its default {text!r} is no literal; allowed is a literal") from None
    return values


def _same_type(name: str, value: Any, default: Any) -> None:
    kinds = (
        (int, float) if isinstance(default, float) else (list, tuple) if isinstance(default, tuple) else type(default)
    )
    fits = isinstance(value, kinds) and (isinstance(value, bool) == isinstance(default, bool))
    if default is not None and not fits:
        kind = type(default).__name__
        raise TypeError(
            f"parameter {name}: got {value!r}; allowed is a value of type {kind}, as its default {default!r}"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"parameter {name}: got {value!r}; allowed is a finite number")
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        raise TypeError(f"parameter {name}: got {value!r}; allowed is a plain value") from None

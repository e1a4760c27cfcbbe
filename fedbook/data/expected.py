"""What an array in a file has to be, known before the file is opened: its shape and its types."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from fedbook import arguments


class Expected(NamedTuple):
    """What an array has to be. ``shape``: the size of each axis, or the ``range`` of sizes allowed there.

    ``kinds``: the types allowed, as a header spells them (``"|u1"``: unsigned bytes).
    """

    shape: tuple[int | range, ...]
    kinds: tuple[str, ...] = ("|u1",)

    @property
    def bytes(self) -> int:
        """The most bytes that the array's content takes."""
        most = math.prod(size[-1] if isinstance(size, range) else size for size in self.shape)
        return most * max(np.dtype(kind).itemsize for kind in self.kinds)

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an array may have this shape."""
        if len(shape) != len(self.shape):
            return False
        pairs = zip(shape, self.shape, strict=True)
        return all(size in (allowed if isinstance(allowed, range) else (allowed,)) for size, allowed in pairs)

    def shape_text(self) -> str:
        """The shape for people: ``[1 to 9, 28, 28]``."""
        sizes = (f"{s[0]} to {s[-1]}" if isinstance(s, range) else str(s) for s in self.shape)
        return f"[{', '.join(sizes)}]"


def checked(expected: Mapping[str, Expected], kinds: Collection[str] | None = None) -> dict[str, Expected]:
    """The ``expected`` arrays by name, if their sizes and types can be; ``kinds``: the only types that a format has.

    Raises: TypeError, ValueError.
    """
    allowed = "a dictionary: name of an array -> Expected(shape, kinds)"
    if not isinstance(expected, Mapping) or not expected:
        raise arguments.wrong(TypeError, "expected", expected, allowed)
    for name, array in expected.items():
        if not isinstance(name, str) or not isinstance(array, Expected):
            raise arguments.wrong(TypeError, "expected", expected, allowed)
        for size in array.shape:
            if not isinstance(size, range) or not size:
                arguments.integer(f"expected[{name!r}].shape", size, 0)
        for kind in array.kinds if kinds is not None else ():
            arguments.one_of(f"expected[{name!r}].kinds", kind, kinds)
        if not array.kinds or any(np.dtype(kind).kind not in "biuf" for kind in array.kinds):
            raise arguments.wrong(ValueError, f"expected[{name!r}].kinds", array.kinds, "types of plain numbers")
    return dict(expected)

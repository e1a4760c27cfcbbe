"""What draw functions share: checked axes and mappings, and a logarithmic axis with plain numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedbook import arguments


def panels(axes: Any, count: int) -> list[Axes]:
    """``count`` axes as a list. Raises: ValueError."""
    flat = list(np.atleast_1d(axes).ravel())
    if len(flat) != count or not all(isinstance(ax, Axes) for ax in flat):
        raise arguments.wrong(ValueError, "axes", axes, f"{count} axes")
    return flat


def several(name: str, values: Any) -> Mapping[str, Any]:
    """``values`` if it maps at least one label. Raises: TypeError."""
    if not isinstance(values, Mapping) or not values:
        raise arguments.wrong(TypeError, name, values, "a mapping from a label, at least one")
    return values


def plain_log(axis: Axis) -> None:
    """A logarithmic axis with plain numbers on it, also between the powers of ten where there are few."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    low, high = sorted(axis.get_view_interval())
    between = next(subs for most, subs in ((60, (1, 2, 5)), (3000, (1, 3)), (math.inf, (1,))) if high < most * low)
    axis.set_major_locator(LogLocator(subs=between))
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axis.set_minor_formatter(NullFormatter())

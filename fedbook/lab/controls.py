"""The controls of a widget as plain data: what they are called, where they start, where they are tested.

A control is not yet a widget: it can be made, checked and swept without a notebook.
"""

from __future__ import annotations

import inspect
import math
import numbers
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedbook.arguments import flag, integer, real, wrong

MOST_CONTROLS = 4  # with more, nobody sees what does what


@dataclass(frozen=True)
class Control:
    """One control. ``stops`` are the values a headless run visits: both ends, or every option.

    A page without a kernel shows it as ``kind`` (range, play, select, switch) with ``positions(most, also)``, values in
    order: about ``most`` of them with the ends, the start and ``also``. ``text`` says a value, with its unit.
    """

    label: str
    value: Any
    stops: tuple[Any, ...]
    accepts: Callable[[Any], bool]
    allowed: str
    widget: Callable[[], Any]  # makes the ipywidgets control
    kind: str
    positions: Callable[[int, Sequence[Any]], list[Any]]
    text: Callable[[Any], str]
    snap: Callable[[Any], Any] = lambda value: value  # what the ipywidgets control stands at -> the value it means

    def check(self, name: str, value: Any) -> Any:
        """``value`` if this control can take it. Raises: ValueError."""
        if not self.accepts(value):
            raise wrong(ValueError, name, value, self.allowed)
        return value


def slider(label: str, minimum: float, maximum: float, step: float, value: float) -> Control:
    """A slider over ``minimum, minimum + step, ... maximum``; whole numbers when all four are whole.

    ``label`` holds symbol and word and, in brackets at its end, a unit: ``"t  latency (ms)"``. It acts when released,
    not while it moves. Raises: TypeError, ValueError (off the grid, empty range).
    """
    return _slider("range", label, minimum, maximum, step, value)


def player(label: str, minimum: int, maximum: int, step: int, value: int) -> Control:
    """A slider of whole numbers with a play button beside it: the figure moves by itself.

    Raises: TypeError, ValueError (off the grid, empty range).
    """
    for name, given in (("minimum", minimum), ("maximum", maximum), ("step", step), ("value", value)):
        integer(name, given)
    return _slider("play", label, minimum, maximum, step, value)


def _slider(kind: str, label: str, minimum: float, maximum: float, step: float, value: float) -> Control:
    label = _label(label)
    whole = all(isinstance(v, numbers.Integral) and not isinstance(v, bool) for v in (minimum, maximum, step, value))
    number = integer if whole else real
    low, high = number("minimum", minimum), number("maximum", maximum)
    if high <= low:
        raise wrong(ValueError, "maximum", maximum, f"a number above the minimum {minimum}")
    width = integer("step", step, 1) if whole else real("step", step, above=0.0)
    start = number("value", value, low, high)
    for name, v in (("maximum", high), ("value", start)):
        if abs((v - low) / width - round((v - low) / width)) > 1e-6:
            raise wrong(ValueError, name, v, f"the minimum {low} plus a whole number of steps {width}")
    allowed = f"a number in [{low}, {high}]"
    digits = 0 if whole else max(0, math.ceil(-math.log10(width) - 1e-9), _decimals(low), _decimals(width))

    def accepts(v: Any) -> bool:
        good = isinstance(v, numbers.Integral if whole else numbers.Real) and not isinstance(v, bool)
        return good and low <= v <= high

    def widget() -> Any:
        import ipywidgets

        made = ipywidgets.IntSlider if whole else ipywidgets.FloatSlider
        readout = "d" if whole else f".{digits}f"
        looks = _looks(label, f"{label}: from {low} to {high} in steps of {width}")
        return made(
            value=start, min=low, max=high, step=width, continuous_update=False, readout_format=readout, **looks
        )

    def positions(most: int, also: Sequence[Any]) -> list[Any]:
        steps = round((high - low) / width)
        every = [low + width * i if whole else round(low + width * i, 12) for i in _spread(steps, most)]
        return _with({low, high, start, *also}, every, lambda v: v)

    def text(v: float) -> str:
        return f"{v:,d}{unit}" if whole else f"{v:.{digits}f}{unit}"

    unit = _unit(label)
    return Control(label, start, (low, start, high), accepts, allowed, widget, kind, positions, text)


def log_slider(label: str, minimum: float, maximum: float, value: float, per_decade: int = 10) -> Control:
    """A slider over powers of ten from ``minimum`` to ``maximum``, ``per_decade`` positions a decade.

    Raises: TypeError, ValueError (not positive, empty range, ``value`` outside).
    """
    label = _label(label)
    low = real("minimum", minimum, above=0.0)
    high = real("maximum", maximum, above=low)
    start = real("value", value, low, high)
    per_decade = integer("per_decade", per_decade, 1)

    def accepts(v: Any) -> bool:
        good = isinstance(v, numbers.Real) and not isinstance(v, bool)
        return good and low * (1 - 1e-9) <= v <= high * (1 + 1e-9)

    def widget() -> Any:
        import ipywidgets

        looks = _looks(label, f"{label}: from {low:g} to {high:g}, each step a factor")
        # A little slack: log10 of an end may round inwards and the widget would refuse its own end.
        ends = {"min": math.log10(low) - 1e-12, "max": math.log10(high) + 1e-12, "step": 1 / per_decade}
        return ipywidgets.FloatLogSlider(
            value=start, base=10, continuous_update=False, readout_format=".3r", **ends, **looks
        )

    def snap(v: float) -> float:
        return min(max(v, low), high)  # the slack of the ends is the browser's business alone

    def positions(most: int, also: Sequence[Any]) -> list[Any]:
        decades = math.log10(high / low)
        steps = max(1, math.floor(decades * per_decade + 1e-9))
        every = [float(f"{low * 10 ** (decades * i / steps):.2g}") for i in _spread(steps, most)]
        return _with({low, high, start, *also}, every, math.log)

    def text(v: float) -> str:
        return f"{v:,.0f}{unit}" if v >= 1000 else f"{v:.3g}{unit}"

    unit, allowed = _unit(label), f"a number in [{low}, {high}]"
    return Control(label, start, (low, start, high), accepts, allowed, widget, "range", positions, text, snap)


def choice(label: str, options: Sequence[Any] | Mapping[str, Any], value: Any) -> Control:
    """One of some options; a mapping gives each value the words it is shown as.

    Raises: TypeError, ValueError (fewer than two options, twice the same, ``value`` not among them).
    """
    label = _label(label)
    if isinstance(options, str) or not isinstance(options, (Sequence, Mapping)):
        raise wrong(TypeError, "options", options, "a sequence, or a mapping from words to values")
    pairs = list(options.items()) if isinstance(options, Mapping) else [(str(v), v) for v in options]
    values = tuple(v for _, v in pairs)
    if len(values) < 2 or any(values[i] == values[j] for i in range(len(values)) for j in range(i)):
        raise wrong(ValueError, "options", options, "at least two different options")
    if value not in values:
        raise wrong(ValueError, "value", value, f"one of the options {list(values)}")

    def widget() -> Any:
        import ipywidgets

        return ipywidgets.Dropdown(options=pairs, value=value, **_looks(label, f"{label}: choose one"))

    def text(v: Any) -> str:
        return next(name for name, option in pairs if option == v)

    allowed = f"one of the options {list(values)}"
    return Control(
        label, value, values, lambda v: v in values, allowed, widget, "select", lambda *_: list(values), text
    )


def switch(label: str, value: bool) -> Control:
    """Something on or off. Raises: TypeError."""
    label, start = _label(label), flag("value", value)

    def widget() -> Any:
        import ipywidgets

        return ipywidgets.Checkbox(value=start, indent=False, description=label, tooltip=f"{label}: on or off")

    return Control(
        label, start, (False, True), lambda v: isinstance(v, bool), "True or False", widget, "switch",
        lambda *_: [False, True], lambda v: "on" if v else "off",
    )  # fmt: skip


def checked_controls(function: Any, controls: Mapping[str, Any], positional: int = 1) -> dict[str, Control]:
    """The controls, if there are at most four and ``function`` takes every one of them by name, after
    ``positional`` other arguments. Raises: TypeError, ValueError.
    """
    if not callable(function):
        raise wrong(TypeError, "function", function, "a function that takes the controls' values by name")
    if len(controls) > MOST_CONTROLS:
        raise wrong(ValueError, "controls", sorted(controls), f"at most {MOST_CONTROLS} of them")
    for name, control in controls.items():
        if not isinstance(control, Control):
            raise wrong(TypeError, name, control, "slider(...), log_slider(...), choice(...) or switch(...)")
    try:
        inspect.signature(function).bind(*[None] * positional, **controls)
    except TypeError as error:
        title = getattr(function, "__name__", "function")
        raise TypeError(f"{title}: got the controls {sorted(controls)}, which it does not take: {error}") from None
    return dict(controls)


def _label(label: Any) -> str:
    if not isinstance(label, str) or not label.strip():
        raise wrong(TypeError if not isinstance(label, str) else ValueError, "label", label, "symbol and word")
    return label


def _looks(label: str, tooltip: str) -> dict[str, Any]:
    looks: dict[str, Any] = {"description": label, "tooltip": tooltip}
    looks["style"] = {"description_width": "11em"}
    looks["layout"] = {"width": "min(100%, 28em)"}
    return looks


def _spread(steps: int, most: int) -> list[int]:
    """At most ``most`` of the numbers 0 to ``steps``, evenly, with both ends."""
    count = min(steps + 1, most)
    return [round(i * steps / (count - 1)) for i in range(count)]


def _with(kept: set[Any], every: Sequence[Any], scale: Callable[[Any], float]) -> list[Any]:
    """``kept`` and those of ``every`` that do not stand too close to one of them, in order."""
    near = abs(scale(every[-1]) - scale(every[0])) / (len(every) - 1) / 3
    return sorted(kept | {v for v in every if all(abs(scale(v) - scale(k)) > near for k in kept)})


def _unit(label: str) -> str:
    """What stands in brackets at the end of a label, if it is one short word, with a space before it."""
    inside = re.search(r"\(([^\s\d:()]{1,6})\)$", label)
    return f" {inside[1]}" if inside else ""


def _decimals(number: float) -> int:
    text = f"{number:.6g}"
    return len(text.split(".")[1]) if "." in text and "e" not in text else 0

"""Figures with controls: ``explore(draw, eta=slider(...), ...)``.

``draw(axes, **values)`` is a pure function of empty axes: it fills them and returns one sentence that
says the numbers. Live, moving a control redraws the picture in place. Headless, nobody moves anything,
and a bug at the end of a slider would pass every test; so each control is swept there, and what fails
raises in the cell, where every tool sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fedbook.arguments import wrong
from fedbook.lab import frames, show
from fedbook.lab.canvas import Canvas, named
from fedbook.lab.controls import Control, checked_controls
from fedbook.lab.pieces import button, picture, play, row, said, say
from fedbook.progress import headless


class RedrawError(RuntimeError):
    """``draw`` failed at a setting that a reader can reach; the message names control and value."""


class Explorer(show.Quiet):
    """What ``explore`` made: ``widget`` (to show again), ``values`` (now), ``controls``, ``sentence``."""

    def __init__(self, draw: Callable[..., str], axes: tuple, controls, presets) -> None:
        self.draw, self.specs = draw, checked_controls(draw, controls)
        self.presets = {name: dict(values) for name, values in (presets or {}).items()}
        for preset, values in self.presets.items():
            for name, value in values.items():
                self.specs[name].check(f"preset {preset!r}, {name}", value)
        self.canvas = Canvas(axes)
        # Outside any output widget: a bug at the default values raises in the cell.
        first = self.canvas.redraw(draw, **self._defaults())
        self.png, self.sentence = self.canvas.small_png(), first[1]
        self._build(first[0])

    @property
    def values(self) -> dict[str, Any]:
        """The values the controls stand at."""
        return {name: self.specs[name].snap(control.value) for name, control in self.controls.items()}

    def set(self, **values: Any) -> None:
        """Put controls to ``values`` and redraw once. Raises: ValueError (unknown name, not allowed)."""
        for name, value in values.items():
            if name not in self.specs:
                raise wrong(ValueError, "control", name, "one of " + ", ".join(self.specs))
            self.specs[name].check(name, value)
        self._silent = True
        try:
            for name, value in values.items():
                self.controls[name].value = value
        finally:
            self._silent = False
        self._changed()

    def reset(self) -> None:
        """Put every control back to where it started."""
        self.set(**self._defaults())

    def sweep(self) -> dict[str, str]:
        """Redraw at every stop of every control, at both corners and every preset; the sentence of each.

        Raises: RedrawError naming control and value.
        """
        return {setting: self._try(setting, values) for setting, values in self._settings()}

    def frames(self) -> dict[str, Any]:
        """The frames that a page shows in place of this widget. Raises: RedrawError."""
        positions = frames.Positions(self.specs, self.presets)
        album = positions.album()
        for setting, values in positions.settings():
            sentence = self._try(setting, values)
            album.add(positions.at(values), self.canvas.frame(), sentence)
        return album.bundle()

    def _defaults(self) -> dict[str, Any]:
        return {name: spec.value for name, spec in self.specs.items()}

    def _settings(self) -> Iterator[tuple[str, dict[str, Any]]]:
        defaults = self._defaults()
        yield "all at default", defaults
        for name, spec in self.specs.items():
            for stop in spec.stops:
                if stop != spec.value:
                    yield f"{name} = {stop!r}, others at default", {**defaults, name: stop}
        for corner, at in (("minimum or first", 0), ("maximum or last", -1)):
            values = {name: spec.stops[at] for name, spec in self.specs.items()}
            text = ", ".join(f"{name} = {value!r}" for name, value in values.items())
            yield f"all at {corner}: {text}", values
        for name, changes in self.presets.items():
            yield f"preset {name!r}", {**defaults, **changes}

    def _try(self, setting: str, values: dict[str, Any]) -> str:
        """The sentence of one redraw. Raises: RedrawError."""
        from IPython.utils.capture import capture_output

        try:
            with capture_output(stderr=False) as captured:
                _, sentence = self.canvas.redraw(self.draw, **values)
        except Exception as error:
            raise RedrawError(f"explore({named(self.draw)}) failed at {setting}: {said(error)}") from error
        if captured.stdout or captured.outputs:
            raise RedrawError(f"explore({named(self.draw)}) printed or displayed something at {setting}; allowed "
                              "is drawing on the axes and returning one sentence")  # fmt: skip
        return sentence

    def _build(self, png: bytes) -> None:
        import ipywidgets as w

        self._silent = False
        self._failed = False
        self.controls = {name: spec.widget() for name, spec in self.specs.items()}
        for control in self.controls.values():
            control.observe(lambda _: self._changed(), names="value")
        buttons = [button("Reset", "Put every control back to where it started", self.reset)]
        for name, values in self.presets.items():
            tip = ", ".join(f"{key} = {value}" for key, value in values.items())
            buttons.append(button(name, tip, lambda v=values: self.set(**{**self._defaults(), **v})))
        self.image, self.reading, self.errors = picture(png, self.canvas.height), w.HTML(), w.Output()
        say(self.reading, self.sentence)
        players = [play(self.controls[name]) for name, spec in self.specs.items() if spec.kind == "play"]
        rows = [row(*self.controls.values(), *players), row(*buttons)]
        self.widget = w.VBox([*rows, self.image, self.reading, self.errors])

    def _changed(self) -> None:
        """Redraw at the present values; an error is shown to the reader, and headless it raises."""
        if self._silent:
            return
        if headless():
            self._redraw()
            return
        # The output widget shows the traceback under the figure. Tools see it too: nbclient and papermill
        # in the widget's stored state, nbval as an error message of the cell.
        if self._failed:
            self.errors.clear_output()
        self._failed = True
        with self.errors:
            self._redraw()
            self._failed = False

    def _redraw(self) -> None:
        try:
            png, self.sentence = self.canvas.redraw(self.draw, **self.values)
        except Exception as error:
            settings = ", ".join(f"{name} = {value}" for name, value in self.values.items())
            say(self.reading, f"The figure above is an older one: {settings} failed with {said(error)}")
            raise
        self.image.value = png
        say(self.reading, self.sentence)


def explore(
    draw: Callable[..., str],
    *,
    axes: tuple = (1, 1),
    presets: Mapping[str, Mapping[str, Any]] | None = None,
    **controls: Control,
) -> Explorer:
    """A figure with at most four controls: ``draw(axes, **values) -> sentence`` at every change.

    ``axes`` is ``(rows, columns)`` or ``(rows, columns, (width, height) in inches)``; ``draw`` gets one
    Axes, or an array of them. ``presets`` are named settings, shown as buttons; what a preset leaves
    out goes to its default.

    Live the widget is displayed. Headless every control is swept first, then widget view and static
    figure are displayed as one output, and the sentence as another. What is returned prints nothing.

    Raises: TypeError, ValueError (controls), RedrawError (headless), whatever ``draw`` raises at the defaults.
    """
    explorer = Explorer(draw, axes, controls, presets)
    if headless():
        explorer.sweep()
        drawn = explorer.frames() if frames.wanted() else None
        show.show_static(explorer.widget, explorer.png, explorer.sentence, drawn)
    else:
        show.show_widget(explorer.widget)
    return explorer

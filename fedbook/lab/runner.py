"""Long work behind a Run button: ``run_panel(start, draw, total=..., label=...)``.

``start(**values)`` returns an iterable of ``(step, state)``; the rounds of a federation are such an
iterable. Between two steps the panel gives the kernel's event loop a moment, so that a click on Stop
arrives although the kernel has one thread. Headless, two steps run at once and the figure is displayed.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from fedbook.arguments import integer, wrong
from fedbook.lab import frames, show
from fedbook.lab.canvas import Canvas, named
from fedbook.lab.controls import Control, checked_controls
from fedbook.lab.pieces import button, picture, row, said, say
from fedbook.progress import headless

REDRAW_EVERY_S = 0.35  # about three pictures a second; more would slow the work down
FILM = 20  # frames of a run on a page
BREATH_S = 0.001  # between two steps: several turns of the event loop, enough to read a click


class RunPanel(show.Quiet):
    """What ``run_panel`` made: ``history`` (the (step, state) pairs so far), ``widget``, ``running``, ``error``."""

    def __init__(self, start, draw, total: int, label: str, axes: tuple, height: int | None, controls) -> None:
        self.start, self.draw, self.label = start, draw, label
        self.total = integer("total", total, 1)
        self.specs = checked_controls(start, controls, positional=0)
        self.canvas = Canvas(axes)
        self.history: list[tuple[int, Any]] = []
        self.error: Exception | None = None
        self.task: asyncio.Task | None = None
        self._current = SimpleNamespace(stopped=True)  # the newest run; an older one touches nothing any more
        self._build(integer("height", height, 50, 4000) if height is not None else self.canvas.height)

    @property
    def values(self) -> dict[str, Any]:
        """The values the controls stand at."""
        return {name: self.specs[name].snap(control.value) for name, control in self.controls.items()}

    @property
    def running(self) -> bool:
        """Whether a run is under way."""
        return not self.stop_button.disabled

    def run(self) -> None:
        """Start, or start again: a run under way is given up. Without an event loop it runs to its end here."""
        self.stop()
        self._current = SimpleNamespace(stopped=False)
        self.history, self.error, self._began = [], None, time.monotonic()
        self.bar.value, self.bar.bar_style, self.bar.max = 0, "", self.total
        self.stop_button.disabled, self.run_button.description = False, "Run again"
        self.status.value = f"0 of {self.total}"
        self.errors.clear_output()
        work = self._work(self._current)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            for _ in work:
                pass
        else:
            self.task = loop.create_task(_breathing(work))

    def stop(self) -> None:
        """End after the step under way; what was computed stays."""
        self._current.stopped = True

    def run_now(self, steps: int) -> str:
        """Run at most ``steps`` steps at once, draw, return the sentence; errors raise (headless runs, tests).

        Raises: ValueError (no step at all), whatever ``start`` and ``draw`` raise.
        """
        self.stop()
        self.history = []
        iterator = self._begin()
        for item in itertools.islice(iterator, integer("steps", steps, 1)):
            self._keep(item)
        _close(iterator)
        if not self.history:
            raise ValueError(f"start: {named(self.start)} gave no steps; allowed is at least one (step, state)")
        self._redraw()
        return self.sentence

    def film(self) -> dict[str, Any]:
        """One more run, to its end, as frames that a page plays: at most ``FILM`` of its steps.

        Raises: whatever ``start`` and ``draw`` raise.
        """
        steps = self._begin()
        history = list(itertools.islice(steps, self.total))
        _close(steps)
        ends = sorted({round(1 + i * (len(history) - 1) / (FILM - 1)) for i in range(FILM)})
        texts = [f"{history[end - 1][0]} of {self.total}" for end in ends]
        used = "; ".join(f"{spec.label}: {spec.text(spec.value)}" for spec in self.specs.values())
        note = f"A run made in advance ({used}). In the notebook, Run starts one with your own settings."
        control = {"kind": "play", "label": f"{self.label}: step", "texts": texts}
        album = frames.Album([control], [len(ends) - 1], note)
        for at, end in enumerate(ends):
            _, sentence = self.canvas.redraw(self.draw, history[:end])
            album.add([at], self.canvas.frame(), sentence)
        return album.bundle()

    def _build(self, height: int) -> None:
        import ipywidgets as w

        self.controls = {name: spec.widget() for name, spec in self.specs.items()}
        self.run_button = button("Run", f"Start: {self.label}", self.run, button_style="primary", icon="play")
        self.stop_button = button("Stop", "End after the step under way; results stay", self.stop, icon="stop")
        self.stop_button.disabled = True
        self.bar = w.IntProgress(value=0, min=0, max=self.total, description=self.label, tooltip=self.label)
        self.bar.style.description_width = "initial"
        self.status = w.Label(f"{self.total} steps; press Run")
        self.image, self.reading, self.errors = picture(b"", height), w.HTML(), w.Output()
        self.image.layout.visibility = "hidden"  # its height is kept, a broken-image sign is not shown
        rows = [row(*self.controls.values()), row(self.run_button, self.stop_button, self.bar, self.status)]
        self.widget = w.VBox([*rows, self.image, self.reading, self.errors])

    def _work(self, run: SimpleNamespace) -> Iterator[None]:
        """One item a step, with bar and picture kept up to date; errors end the run and are shown."""
        iterator, drawn = iter(()), 0.0
        try:
            iterator = self._begin()
            for item in iterator:
                self._keep(item)
                self._count()
                if time.monotonic() - drawn >= REDRAW_EVERY_S:
                    self._redraw()
                    drawn = time.monotonic()
                yield
                if run.stopped:
                    break
            if run is self._current and self.history:
                self._redraw()
        except Exception as error:
            self.error = error if run is self._current else None
        finally:
            _close(iterator)
        if run is self._current:
            self._end(run)

    def _end(self, run: SimpleNamespace) -> None:
        self.stop_button.disabled = True
        how = "stopped" if run.stopped else "done"
        self.bar.bar_style = "warning" if run.stopped else "success"
        if self.error is not None:
            how, self.bar.bar_style = f"failed with {said(self.error)}", "danger"
        self.status.value = f"{len(self.history)} of {self.total}, {self._seconds()}: {how}"
        if self.error is not None:
            with self.errors:  # shows the traceback under the figure; outside a notebook it raises
                raise self.error

    def _begin(self) -> Iterator[tuple[int, Any]]:
        steps = self.start(**self.values)
        if not isinstance(steps, Iterable):
            raise wrong(TypeError, f"what {named(self.start)} returned", steps, "an iterable of (step, state)")
        return iter(steps)

    def _keep(self, item: Any) -> None:
        if not isinstance(item, tuple) or len(item) != 2:
            raise wrong(TypeError, f"a step of {named(self.start)}", item, "a pair (step, state)")
        self.history.append(item)

    def _count(self) -> None:
        self.bar.max = max(self.total, len(self.history))
        self.bar.value = len(self.history)
        self.status.value = f"{len(self.history)} of {self.total}, {self._seconds()}"

    def _seconds(self) -> str:
        return f"{time.monotonic() - self._began:.0f} s"

    def _redraw(self) -> None:
        png, self.sentence = self.canvas.redraw(self.draw, self.history)
        self.image.value = png
        self.image.layout.visibility = "visible"
        say(self.reading, self.sentence)


def run_panel(
    start: Callable[..., Iterable[tuple[int, Any]]],
    draw: Callable[..., str],
    *,
    total: int,
    label: str,
    axes: tuple = (1, 1),
    height: int | None = None,
    steps_headless: int = 2,
    **controls: Control,
) -> RunPanel:
    """A panel with Run, Stop and a progress bar around ``start(**values)``, an iterable of (step, state).

    ``draw(axes, history) -> sentence`` draws the pairs so far, about three times a second. Stop ends after
    the step under way and keeps what there is; Run starts again. ``axes`` and ``height`` as in ``explore``.

    Headless, ``steps_headless`` steps run at once and the figure is displayed; errors raise in the cell.
    Raises: TypeError, ValueError (arguments), whatever ``start`` and ``draw`` raise (headless).
    """
    if not isinstance(label, str) or not label.strip():
        raise wrong(TypeError, "label", label, "a word for what runs")
    if not callable(draw):
        raise wrong(TypeError, "draw", draw, "a function draw(axes, history) that returns a sentence")
    steps_headless = integer("steps_headless", steps_headless, 1)
    panel = RunPanel(start, draw, total, label, axes, height, controls)
    if headless():
        sentence = panel.run_now(steps_headless)
        png = panel.canvas.small_png()
        show.show_static(panel.widget, png, sentence, panel.film() if frames.wanted() else None)
    else:
        show.show_widget(panel.widget)
    return panel


async def _breathing(work: Iterator[None]) -> None:
    """Exhaust ``work``, letting the event loop read messages between two items."""
    for _ in work:
        await asyncio.sleep(BREATH_S)


def _close(iterator: Any) -> None:
    """End a generator where it stands, so that its clean-up runs now."""
    if hasattr(iterator, "close"):
        iterator.close()

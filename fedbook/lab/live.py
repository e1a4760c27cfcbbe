"""A live panel that remembers: the run under way in colour, the runs before it thin and grey, for ``run_panel``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fedbook import arguments
from fedbook.lab.panels import panels
from fedbook.lab.style import CONTROL, series

Steps = Sequence[tuple[int, Any]]  # (t, step); a step has ``words``: what runs


class Plot(NamedTuple):
    """One plot: the points [(x, y), ...] that it reads off a step, labels, and limits, which widen to the points."""

    read: Callable[[int, Any], Sequence[tuple[float, float]]]
    xlabel: str
    ylabel: str
    xlim: tuple[float, float]
    ylim: tuple[float, float] | None = None
    look: Mapping[str, Any] = {}  # of its lines, beside colour, marker and width


class LiveRuns:
    """What a chapter adds: ``plots``, ``start``, which returns ``remember(...)``, ``numbers`` and ``sentence``.

    ``curves``: words of a run -> its steps so far, of the last ``remembered`` + 1 runs. The same settings again
    replace the run before. ``numbers(steps)``: the newest of a run; ``sentence(history)``: what a run has reached.
    """

    plots: Sequence[Plot]
    numbers: Callable[[Steps], str]
    sentence: Callable[[Steps], str]
    remembered, before = 4, "Before"
    legend: Mapping[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0)}

    def __init__(self) -> None:
        self.curves: dict[str, list[tuple[int, Any]]] = {}

    def remember(self, words: str, steps: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
        """The steps of the run called ``words``, kept as they come."""
        self.curves.pop(words, None)
        for old in list(self.curves)[: -self.remembered]:
            del self.curves[old]
        self.curves[words] = kept = []  # a run that was given up holds a list of its own
        for step in steps:
            kept.append(step)
            yield step

    def draw(self, axes: Any, history: Steps) -> str:
        """This run and the ones before. Raises: ValueError (no step, not as many axes as plots)."""
        spots = panels(axes, len(self.plots))
        if not history:
            raise arguments.wrong(ValueError, "history", history, "at least one step")
        current = history[0][1].words
        earlier = {name: steps for name, steps in self.curves.items() if name != current and steps}
        for ax, plot in zip(spots, self.plots, strict=True):
            for i, (name, steps) in enumerate([*earlier.items(), (current, history)]):
                now = {"linewidth": 2.2} if name == current else {"linewidth": 0.9, "color": CONTROL}
                points = [point for t, step in steps for point in plot.read(t, step)]
                look = series(0 if name == current else 1 + i) | now | plot.look
                ax.plot(*zip(*points, strict=True), label=name, markevery=max(1, len(points) // 10), **look)
            ax.set(xlabel=plot.xlabel, ylabel=plot.ylabel, xlim=_wide(plot.xlim, ax.lines, 0))
            if plot.ylim is not None:
                ax.set_ylim(_wide(plot.ylim, ax.lines, 1))
        spots[-1].legend(borderaxespad=0.0, **self.legend)
        said = "; ".join(f"{name}: {self.numbers(steps)}" for name, steps in earlier.items())
        return f"{self.sentence(history)}." + (f" {self.before}: {said}." if said else "")


def newest(steps: Steps, name: str) -> tuple[int, Any]:
    """The round and the value of the last step that has one."""
    return next((t, getattr(step, name)) for t, step in reversed(steps) if getattr(step, name) is not None)


def _wide(limits: tuple[float, float], lines: Iterable[Any], axis: int) -> tuple[float, float]:
    values = [value for line in lines for value in line.get_xydata()[:, axis]]
    return min(limits[0], *values), max(limits[1], *values)

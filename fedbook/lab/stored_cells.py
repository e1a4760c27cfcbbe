"""Stored comparisons of several methods: which cells a table has, their metrics, and the figures that chapters share.

A table is what :func:`fedbook.experiment.compare` returns; several of one problem are read as one, for instance
methods with noise and methods without. ``fixed`` names settings where a table varies some: ``cohort=2``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from fedbook import arguments
from fedbook.intervals import Interval, mean_interval, paired_difference
from fedbook.lab.panels import panels
from fedbook.lab.results import curve
from fedbook.lab.style import series

Table = Mapping[str, Any]
Cell = Mapping[str, Any]

# --- cells


def chosen(tables: Sequence[Table], **fixed: Any) -> list[tuple[Table, Cell]]:
    """All cells whose settings have the values of ``fixed``, with their tables.

    Raises: TypeError, ValueError (none; tables of different problems).
    """
    for table in tables:
        if not isinstance(table, Mapping) or "cells" not in table:
            raise arguments.wrong(TypeError, "table", table, "a comparison: what compare() or stored() returns")
    if not tables:
        raise arguments.wrong(TypeError, "table", tables, "at least one comparison")
    if len({table["problem"] for table in tables}) > 1:
        raise arguments.wrong(ValueError, "table", [t["problem"] for t in tables], "comparisons on one problem")
    found = [
        (table, cell) for table in tables for cell in table["cells"]
        if all(setting(table, cell, name) == value for name, value in fixed.items())
    ]  # fmt: skip
    if not found:
        raise arguments.wrong(ValueError, "fixed", fixed, "settings that have a cell in the table")
    return found


def setting(table: Table, cell: Cell, name: str) -> Any:
    """The value of a setting in a cell. Raises: ValueError (there is none of that name)."""
    known = {**table["settings"], **cell["tuned"], **cell["varied"], "method": cell["method"]}
    if name not in known:
        raise arguments.wrong(ValueError, "setting", name, "one of " + ", ".join(known))
    return known[name]


def scores_of(cell: Cell, metric: str) -> Tensor:
    """The metric after the last round for each seed, [S]; NaN where there is none (diverged, or no such loss).

    Raises: ValueError (no run has it).
    """
    if not any(metric in run["metrics"] for run in cell["runs"]):
        raise arguments.wrong(ValueError, "metric", metric, "one of " + ", ".join(cell["runs"][0]["metrics"]))
    found = [run["metrics"].get(metric) for run in cell["runs"]]
    return torch.tensor([math.nan if value is None else value for value in found], dtype=torch.float64)


def bytes_up(table: Table, cell: Cell) -> float:
    """Mean bytes that a client sends in a round that it takes part in. Raises: TypeError, ValueError."""
    settings = {**table["settings"], **cell["varied"]}
    rounds, clients = cell["runs"][0]["rounds"], settings["cohort"] or settings["clients"]
    return sum(run["bytes_up"] for run in cell["runs"]) / len(cell["runs"]) / (rounds * clients)


# --- a chapter's words


@dataclass(frozen=True)
class Words:
    """How a chapter orders, names and draws its methods and metrics.

    ``methods``: all, in order; ``names`` of them. ``metrics``: word to label; ``shares``: those shown in per cent.
    ``controls``: methods without rounds, drawn as horizontal lines. ``looks``: what differs from the series of a
    method's place. ``base``: what others are compared with. ``tenths``: metrics with one digit, beside shares.
    ``only``: metrics that are drawn by round for some methods alone (for the others they are constants).
    """

    methods: Sequence[str]
    names: Mapping[str, str]
    metrics: Mapping[str, str]
    shares: Sequence[str]
    controls: Sequence[str]
    base: str
    metric: str
    looks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tenths: Sequence[str] = ("rank",)
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def cells_of(self, *tables: Table, **fixed: Any) -> dict[str, Cell]:
        """The cells with the settings ``fixed``, by method, in the order of the chapter.

        Raises: TypeError, ValueError (no such cell; two for one method: a setting needs a value).
        """
        found: dict[str, Cell] = {}
        for _, cell in chosen(tables, **fixed):
            one = arguments.one_of("method", cell["method"], self.methods)
            if one in found:
                loose = sorted({name for c in (cell, found[one]) for name in c["varied"]} - set(fixed))
                raise arguments.wrong(ValueError, "fixed", fixed, f"a value for {', '.join(loose) or 'method'} as well")
            found[one] = cell
        return {name: found[name] for name in self.methods if name in found}

    def scores(self, cell: Cell, metric: str | None = None) -> Tensor:
        """:func:`scores_of` the metric that the chapter compares, or of ``metric``. Raises: ValueError."""
        return scores_of(cell, metric or self.metric)

    def means(self, *tables: Table, metric: str | None = None, **fixed: Any) -> dict[str, tuple[float, float]]:
        """Method -> (mean, deviation over seeds), as tables beside the paper take them; diverged ones are left out.

        Raises: TypeError, ValueError.
        """
        found = {}
        for method, cell in self.cells_of(*tables, **fixed).items():
            values = self.scores(cell, metric)
            if bool(values.isfinite().all()):
                found[method] = float(values.mean()), float(values.std()) if len(values) > 1 else 0.0
        return found

    def look_of(self, method: str) -> dict[str, Any]:
        """Colour, marker and line of a method, the same in every figure. Raises: TypeError, ValueError."""
        place = list(self.methods).index(arguments.one_of("method", method, self.methods))
        return series(place) | dict(self.looks.get(method, {}))

    def shown(self, value: Any, metric: str) -> Any:
        """A value as it is shown: shares in per cent."""
        return 100 * value if metric in self.shares else value

    def interval(self, cell: Cell, metric: str) -> Interval:
        """The mean over seeds of what is shown, with Student's 95 % interval. Raises: ValueError (diverged)."""
        return mean_interval(self.shown(scores_of(cell, metric), metric))

    def label(self, metric: str) -> str:
        """What stands at the axis of a metric."""
        return self.metrics.get(metric, metric) + (" in %" if metric in self.shares else "")

    def digits(self, metric: str) -> str:
        """The format of a metric's shown values."""
        return ".1f" if metric in self.shares or metric in self.tenths else ".3f"

    # --- curves

    def draw_rounds(
        self, axes: Any, *tables: Table, methods: Sequence[str] | None = None, metrics: Sequence[str], **fixed: Any
    ) -> str:
        """Metrics by round: mean over seeds, band of one deviation; controls as horizontal lines.

        ``methods``: which to draw (None: all). Shapes: ``axes`` one for each metric. Raises: TypeError, ValueError.
        """
        spots, cells = panels(axes, len(metrics)), some(self.cells_of(*tables, **fixed), methods)
        told = []
        for ax, metric in zip(spots, metrics, strict=True):
            parts = []
            for method in (m for m in cells if m in self.only.get(metric, cells)):
                t, values = self.curve(cells[method], metric)
                whole = values[values.isfinite().all(1)]
                if not len(whole):
                    parts.append(f"{self.names[method]} none")
                    continue
                mean, half = whole.mean(0), whole.std(0) if len(whole) > 1 else torch.zeros(len(t))
                mean, half = (self.shown(v, metric) for v in (mean, half))
                look = self.look_of(method)
                if method in self.controls:
                    ax.axhline(float(mean[-1]), label=self.names[method], **(look | {"marker": ""}))
                else:
                    ax.plot(t, mean, label=self.names[method], markevery=max(1, len(t) // 12), **look)
                    ax.fill_between(t, mean - half, mean + half, color=look["color"], alpha=0.18, linewidth=0)
                parts.append(f"{self.names[method]} {mean[-1]:{self.digits(metric)}}")
            ax.set(xlabel="round $t$", ylabel=self.label(metric))
            ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            told.append(f"{metric}: {', '.join(parts)}")
        handles = {label: h for ax in spots for h, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        if handles:
            words = [self.names[m] for m in cells if self.names[m] in handles]
            spots[-1].legend(
                [handles[word] for word in words],
                words,
                loc="upper left",
                bbox_to_anchor=(1.01, 1.0),
                borderaxespad=0.0,
            )
        seeds = len(next(iter(cells.values()))["runs"])
        return f"Mean over {seeds} seeds after the last round, {'; '.join(told)}."

    def curve(self, cell: Cell, metric: str) -> tuple[Tensor, Tensor]:
        """Rounds [E] and values [S, E]; NaN where the method has no such metric. Raises: ValueError (unknown)."""
        arguments.one_of("metric", metric, self.metrics)
        if metric not in cell["curve"]:
            t = torch.tensor(cell["curve"]["round"])
            return t, torch.full((len(cell["runs"]), len(t)), float("nan"), dtype=torch.float64)
        return curve(cell, metric)

    # --- differences

    def differences(
        self, *tables: Table, metric: str | None = None, base: str | None = None, **fixed: Any
    ) -> dict[str, Interval]:
        """Method -> the mean over seeds of its metric minus that of ``base``, with Student's 95 % interval.

        Methods of which a run diverged are left out. Raises: TypeError, ValueError.
        """
        cells, metric, base = self.cells_of(*tables, **fixed), metric or self.metric, base or self.base
        if base not in cells:
            raise arguments.wrong(ValueError, "base", base, "one of " + ", ".join(cells))
        own, found = scores_of(cells[base], metric), {}
        if not bool(own.isfinite().all()):
            raise arguments.wrong(ValueError, "metric", metric, f"one that every run of {base} has")
        for method, cell in cells.items():
            values = scores_of(cell, metric)
            if method != base and bool(values.isfinite().all()):
                found[method] = paired_difference(self.shown(values, metric), self.shown(own, metric))
        return found

    def draw_differences(
        self, ax: Axes, *tables: Table, metric: str | None = None, base: str | None = None, **fixed: Any
    ) -> str:
        """Difference of every method to ``base`` over the same seeds, with its 95 % interval; 0 is ``base``.

        Raises: TypeError, ValueError.
        """
        metric, base = metric or self.metric, base or self.base
        found = self.differences(*tables, metric=metric, base=base, **fixed)
        if not found:
            raise arguments.wrong(ValueError, "table", tables[0]["problem"], f"a method beside {base}")
        rows = {self.names[method]: (one, self.look_of(method)) for method, one in found.items()}
        self.draw_intervals(ax, rows, metric, f"minus {self.names[base]}")
        told = ", ".join(f"{label} {signed(one)}" for label, (one, _) in rows.items())
        return f"{metric} minus that of {self.names[base]} over {next(iter(found.values())).count} seeds: {told}."

    def draw_intervals(
        self, ax: Axes, rows: Mapping[str, tuple[Interval, Mapping[str, Any]]], metric: str, minus: str
    ) -> None:
        """One row a difference, from the top: its label, the interval, and how it looks; a line at 0."""
        for place, (one, look) in enumerate(rows.values()):
            ax.errorbar([one.mean], [place], xerr=halves(one), capsize=3,
                        **{**look, "linestyle": "", "markersize": 6})  # fmt: skip
        ax.axvline(0, color="black", linewidth=1.0)
        ax.set_yticks(range(len(rows)), list(rows))
        unit = " in points" if metric in self.shares else ""
        ax.set(ylim=(len(rows) - 0.5, -0.5), xlabel=f"{self.metrics.get(metric, metric)} {minus}{unit}, 95 %")


def some(cells: Mapping[str, Cell], methods: Sequence[str] | None) -> Mapping[str, Cell]:
    """The cells of ``methods``, or all. Raises: TypeError, ValueError (one has no cell)."""
    if methods is None:
        return cells
    if isinstance(methods, str) or not isinstance(methods, Sequence) or not methods:
        raise arguments.wrong(TypeError, "methods", methods, "a list of words")
    for one in methods:
        arguments.one_of("methods", one, cells)
    return {name: cell for name, cell in cells.items() if name in methods}


def halves(one: Interval) -> list[list[float]] | None:
    """The interval's two half-widths as error bars take them; None for a single value."""
    return None if one.low is None else [[one.mean - one.low], [one.high - one.mean]]


def signed(one: Interval) -> str:
    """A difference and its bounds with their signs."""
    mean, *ends = (f"{0.0 if abs(v) < 0.005 else v:+.2f}" for v in (one.mean, one.low, one.high) if v is not None)
    return mean + (f" [{', '.join(ends)}]" if ends else "")

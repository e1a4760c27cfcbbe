"""Stored comparisons of several methods, as chapters 1 and 2 show them: cells by method, differences, figures, text.

A table is what :func:`fedbook.experiment.compare` returns; several of one problem are read as one, for instance
methods with noise and methods without. ``fixed`` names settings where a table varies some: ``cohort=2``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from fedbook.arguments import wrong
from fedbook.intervals import Interval, mean_interval, paired_difference
from fedbook.lab.panels import panels
from fedbook.lab.results import Cell, Table, cells, curve, scores, spread_text, text_table
from fedbook.lab.style import series


def bytes_up(table: Table, cell: Cell) -> float:
    """Mean bytes that a client sends in a round that it takes part in."""
    settings = {**table["settings"], **cell["varied"]}
    rounds, clients = cell["runs"][0]["rounds"], settings["cohort"] or settings["clients"]
    return sum(run["bytes_up"] for run in cell["runs"]) / len(cell["runs"]) / (rounds * clients)


def has(cell: Cell, metric: str) -> bool:
    """Whether all runs of the cell have the metric as a number."""
    return all(run["metrics"].get(metric) is not None for run in cell["runs"])


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

        Raises: ValueError (no such cell; two for one method: a setting needs a value).
        """
        found: dict[str, Cell] = {}
        for _, cell in cells(*tables, **fixed):
            if cell["method"] in found:
                raise wrong(ValueError, "fixed", fixed, f"settings with one cell of {cell['method']}")
            found[cell["method"]] = cell
        return {name: found[name] for name in self.methods if name in found}

    def scores(self, cell: Cell, metric: str | None = None) -> Tensor:
        """:func:`scores` of ``metric``, by default that which the chapter compares."""
        return scores(cell, metric or self.metric)

    def means(self, *tables: Table, metric: str | None = None, **fixed: Any) -> dict[str, tuple[float, float]]:
        """Method -> (mean, deviation over seeds), as tables beside the paper take them; diverged ones are left out."""
        found = {}
        for method, cell in self.cells_of(*tables, **fixed).items():
            values = self.scores(cell, metric)
            if bool(values.isfinite().all()):
                found[method] = float(values.mean()), float(values.std()) if len(values) > 1 else 0.0
        return found

    def look_of(self, method: str) -> dict[str, Any]:
        """Colour, marker and line of a method, the same in every figure."""
        return series(list(self.methods).index(method)) | dict(self.looks.get(method, {}))

    def shown(self, value: Any, metric: str) -> Any:
        """A value as it is shown: shares in per cent."""
        return 100 * value if metric in self.shares else value

    def interval(self, cell: Cell, metric: str) -> Interval:
        """The mean over seeds of what is shown, with Student's 95 % interval."""
        return mean_interval(self.shown(scores(cell, metric), metric))

    def label(self, metric: str) -> str:
        """What stands at the axis of a metric."""
        return self.metrics.get(metric, metric) + (" in %" if metric in self.shares else "")

    def digits(self, metric: str) -> str:
        """The format of a metric's shown values."""
        return ".1f" if metric in self.shares or metric in self.tenths else ".3f"

    # --- curves

    def draw_rounds(self, axes: Any, *tables: Table, metrics: Sequence[str], **fixed: Any) -> str:
        """Metrics by round: mean over seeds, band of one deviation; controls as horizontal lines.

        Shapes: ``axes`` one for each metric.
        """
        spots, chosen = panels(axes, len(metrics)), self.cells_of(*tables, **fixed)
        told = []
        for ax, metric in zip(spots, metrics, strict=True):
            parts = []
            for method in (m for m in chosen if m in self.only.get(metric, chosen)):
                t, values = curve(chosen[method], metric)
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
            words = [self.names[m] for m in chosen if self.names[m] in handles]
            place = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.0), "borderaxespad": 0.0}
            spots[-1].legend([handles[word] for word in words], words, **place)
        seeds = len(next(iter(chosen.values()))["runs"])
        return f"Mean over {seeds} seeds after the last round, {'; '.join(told)}."

    # --- differences

    def differences(
        self, *tables: Table, metric: str | None = None, base: str | None = None, **fixed: Any
    ) -> dict[str, Interval]:
        """Method -> the mean over seeds of its metric minus that of ``base``, with Student's 95 % interval.

        Methods of which a run diverged are left out. Raises: ValueError (``base`` diverged).
        """
        chosen, metric, base = self.cells_of(*tables, **fixed), metric or self.metric, base or self.base
        own = self.shown(scores(chosen[base], metric), metric)
        values = {method: self.shown(scores(cell, metric), metric) for method, cell in chosen.items()}
        return {m: paired_difference(v, own) for m, v in values.items() if m != base and bool(v.isfinite().all())}

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


def halves(one: Interval) -> list[list[float]] | None:
    """The interval's two half-widths as error bars take them; None for a single value."""
    return None if one.low is None else [[one.mean - one.low], [one.high - one.mean]]


def signed(one: Interval) -> str:
    """A difference and its bounds with their signs."""
    mean, *ends = (f"{0.0 if abs(v) < 0.005 else v:+.2f}" for v in (one.mean, one.low, one.high) if v is not None)
    return mean + (f" [{', '.join(ends)}]" if ends else "")


# --- text


def cell_text(words: Words, cell: Cell, metric: str) -> str:
    """Mean ± deviation of a metric; "-": the method has no such number."""
    if not any(metric in run["metrics"] for run in cell["runs"]):
        return "-"
    text = spread_text(words.shown(scores(cell, metric), metric), words.digits(metric))
    return "-" if text == "diverged" and metric not in words.shares else text


def differences_text(words: Words, found: Mapping[str, Mapping[str, Interval]], corner: str) -> str:
    """Differences by metric and row as text; "*" where 0 is not in the interval."""
    rows = [[corner, *found]]
    for label in dict.fromkeys(name for one in found.values() for name in one):
        entries = [found[metric].get(label) for metric in found]
        rows.append([words.names.get(label, label), *("-" if v is None else signed(v) + _star(v) for v in entries)])
    return text_table(rows) + "\nmean over the same seeds [95 % interval]; *: 0 is outside; points of accuracy"


def tuning_text(words: Words, *tables: Table, **fixed: Any) -> str:
    """What each cell chose from its grid, the mean metric of every trial, and choices at the edge, as text.

    Controls are left out: nothing in them depends on what is tuned.
    """
    rows = [["method", "varied", "chosen", "at the edge", "trials"]]
    for _, cell in cells(*tables, **fixed):
        if cell["tried"] and cell["method"] not in words.controls:
            trials = (
                ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in one["settings"].values())
                + (": diverged" if one["mean"] is None else f": {one['mean']:.3f}")
                for one in cell["tried"]
            )
            varied = ", ".join(f"{k} = {v}" for k, v in cell["varied"].items())
            picked = ", ".join(f"{k} = {v}" for k, v in cell["tuned"].items())
            name = words.names[cell["method"]]
            rows.append([name, varied, picked, ", ".join(edges(cell)) or "-", "; ".join(trials)])
    return text_table(rows, left=5)


def edges(cell: Cell) -> list[str]:
    """The tuned settings of a cell whose value is the least or the largest number of several tried."""
    found = []
    for name, value in cell["tuned"].items():
        tried = {one["settings"][name] for one in cell["tried"]}
        if len(tried) > 1 and not isinstance(value, (str, bool)) and value in (min(tried), max(tried)):
            found.append(f"{name}: {'least' if value == min(tried) else 'largest'}")
    return found


def _star(one: Interval) -> str:
    return " " if one.low is None or 0 in one else "*"

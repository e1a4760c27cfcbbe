"""Chapter 2's stored comparisons (``fedbook compare hetero_ssfl``), read and drawn. As text: chapter02_tables.

A table is what :func:`fedbook.experiment.compare` returns; several of one problem are read as one. ``fixed`` names
settings where a table varies some: ``mu=0.5``. Bars are Student's 95 % intervals over seeds. What compares two
settings of one method, or its architectures, stands in chapter02_pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from torch import Tensor

from fedbook.lab.chapter02_paper import NAMES
from fedbook.lab.panels import panels, plain_log
from fedbook.lab.results import curve
from fedbook.lab.stored_cells import Cell, Table, Words, chosen, halves, scores_of, setting, some
from fedbook.lab.style import CEILING, CONTROL, INDIGO, INK, RIM, WINE
from fedbook.papers.hetero_ssfl import METHODS

BASE = "local-ssl"
CONTROLS = ("random-encoder", "raw-pixels")  # they have no rounds: horizontal lines
POOLED = "centralized-byol"  # one client in the simulation; its messages are none
PERSONAL = ("hetero-ssfl", "local-ssl", "local-ssl-plus-rad", "alignment-pass-only")  # every client has its own model
NAMED = NAMES | {
    "local-ssl": "local SSL", "local-ssl-plus-rad": "local SSL + alignment set",
    "alignment-pass-only": "alignment pass only", "random-encoder": "random encoders", "raw-pixels": "raw pixels",
}  # fmt: skip
LOOKS: dict[str, dict[str, Any]] = {
    "fedema": {"color": INDIGO, "marker": "<", "linestyle": (0, (6, 2))},
    "fedavg-supervised": {"color": WINE, "marker": ">", "linestyle": (0, (4, 1, 1, 1, 1, 1))},
    "centralized-byol": {"color": CEILING, "marker": "*", "linestyle": "-", "markersize": 7},
    "random-encoder": {"color": CONTROL, "marker": "p", "linestyle": ":"},
    "raw-pixels": {"color": INK, "marker": "h", "linestyle": (0, (6, 3, 1, 3, 1, 3))},
}
METRICS = {
    "probe_few": "probe, 5 labels a class", "knn": "KNN accuracy", "probe": "linear probe",
    "own_classes": "probe of own classes", "alignment": "CKA of two clients, alignment set",
    "alignment_test": "CKA of two clients, test", "self_loss": "self-supervised loss", "rank": "effective rank of $z$",
}  # fmt: skip
SHARES = (
    "probe_few",
    "knn",
    "probe",
    "own_classes",
    "random_probe_few",
    "random_knn",
    "random_probe",
    "random_own_classes",
)  # shown in per cent
ALONE = (POOLED, *PERSONAL[1:], *CONTROLS)  # nothing is sent in a round; some get the alignment set once
APART = (
    *PERSONAL,
    "random-encoder",
)  # whose clients' models differ: with one model CKA is 1, and its own loss another one
UNTRAINED = ("untrained, own", "untrained, shared")  # every client has its own network; all have one
OURS = Words(tuple(METHODS), NAMED, METRICS, SHARES, CONTROLS, BASE, "probe_few", LOOKS,
             only={"alignment": APART, "alignment_test": APART, "self_loss": PERSONAL})  # fmt: skip
LETTERS = {"mu": r"weight $\mu$ of alignment", "local_epochs": "local epochs $E$", "clients": "clients $N$",
           "alignment_samples": "alignment images $L$", "alignment_source": "alignment images from"}  # fmt: skip

cells_of, scores, means, look_of = OURS.cells_of, OURS.scores, OURS.means, OURS.look_of
differences, draw_differences = OURS.differences, OURS.draw_differences


# --- methods


def draw_methods(axes: Any, *tables: Table, metrics: Sequence[str] = ("probe_few", "knn", "probe"),
                 methods: Sequence[str] | None = None, **fixed: Any) -> str:  # fmt: skip
    """Every method's mean with its interval, beside the same encoders untrained (open) and raw pixels (a line).

    Shapes: ``axes`` one for each metric.
    """
    spots, cells = panels(axes, len(metrics)), cells_of(*tables, **fixed)
    rows, told = [m for m in some(cells, methods) if m not in CONTROLS], []
    for ax, metric in zip(spots, metrics, strict=True):
        parts = []
        for place, method in enumerate(rows):
            if not has(cells[method], metric):
                continue
            one, form = OURS.interval(cells[method], metric), OURS.digits(metric)
            ax.errorbar([one.mean], [place], xerr=halves(one), capsize=3,
                        **{**look_of(method), "linestyle": "", "markersize": 6})  # fmt: skip
            parts.append(f"{NAMED[method]} {one.mean:{form}}")
            if has(cells[method], f"random_{metric}"):
                drawn = OURS.shown(float(scores_of(cells[method], f"random_{metric}").mean()), metric)
                ax.plot([drawn], [place], marker="o", linestyle="", color=RIM, markerfacecolor="white",
                        markersize=6, zorder=1, label="its encoders untrained" if place == 0 else None)  # fmt: skip
                parts[-1] += f" (untrained {drawn:{form}})"
        if "raw-pixels" in cells and has(cells["raw-pixels"], metric):
            pixels = OURS.interval(cells["raw-pixels"], metric).mean
            ax.axvline(pixels, label="raw pixels", **(look_of("raw-pixels") | {"marker": "", "linewidth": 1.2}))
            parts.append(f"raw pixels {pixels:{OURS.digits(metric)}}")
        ax.set(ylim=(len(rows) - 0.5, -0.5), xlabel=OURS.label(metric))
        ax.set_yticks(range(len(rows)), [NAMED[m] for m in rows] if ax is spots[0] else [""] * len(rows))
        told.append(f"{metric}: {', '.join(parts)}")
    spots[0].legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2, ncols=2)
    return f"Mean over {len(cells[rows[0]]['runs'])} seeds, {'; '.join(told)}."


def draw_rounds(axes: Any, *tables: Table, methods: Sequence[str] | None = None,
                metrics: Sequence[str] = ("probe_few", "alignment", "alignment_test", "self_loss"),
                **fixed: Any) -> str:  # fmt: skip
    """Metrics by round: mean over seeds, band of one deviation; controls as horizontal lines.

    ``methods``: which to draw (None: all). Shapes: ``axes`` one for each metric.
    """
    return OURS.draw_rounds(axes, *tables, methods=methods, metrics=metrics, **fixed)


def has(cell: Cell, metric: str) -> bool:
    """Whether all runs of the cell have the metric as a number."""
    return all(run["metrics"].get(metric) is not None for run in cell["runs"])


def untrained(cells: Mapping[str, Cell], metric: str = "probe_few") -> dict[str, Tensor]:
    """The metric [S] of the encoders as they were drawn, by seed: those of different clients, and the one of all.

    ``cells``: method -> cell; one cell of each kind says it.
    """
    found: dict[str, Tensor] = {}
    for method, cell in cells.items():
        word = UNTRAINED[method not in APART]
        if word not in found and method not in CONTROLS and has(cell, f"random_{metric}"):
            found[word] = scores_of(cell, f"random_{metric}")
    return dict(sorted(found.items(), key=lambda item: UNTRAINED.index(item[0])))


# --- bytes


def bytes_up(table: Table, cell: Cell) -> float:
    """Mean bytes of one client's upload; Hetero-SSFL's clients also send one each before the first round."""
    clients, cohort = setting(table, cell, "clients"), setting(table, cell, "cohort")
    count = cell["runs"][0]["rounds"] * (cohort or clients) + (clients if cell["method"] == "hetero-ssfl" else 0)
    return sum(run["bytes_up"] for run in cell["runs"]) / len(cell["runs"]) / count


def bytes_so_far(cell: Cell) -> tuple[Tensor, Tensor]:
    """Judged rounds [E] and mean bytes [E] that crossed until then, both ways, with the set-up."""
    t, crossed = curve(cell, "bytes")
    whole = sum(run["bytes_up"] + run["bytes_down"] for run in cell["runs"]) / len(cell["runs"])
    crossed = crossed.mean(0)
    return t, crossed + (whole - crossed[-1])  # what the rounds did not send, the set-up did


def draw_sent(ax: Axes, *tables: Table, metric: str = "probe_few", methods: Sequence[str] | None = None,
              **fixed: Any) -> str:  # fmt: skip
    """A metric against all bytes sent so far, both ways, on a logarithmic axis; who sends nothing in a round is a line.
    """
    cells, parts = some(cells_of(*tables, **fixed), methods), []
    for method, cell in cells.items():
        _, sent = bytes_so_far(cell)
        _, values = OURS.curve(cell, metric)
        mean, look = OURS.shown(values.mean(0), metric), look_of(method)
        if not bool(mean.isfinite().all()):
            continue
        sent = sent / 1e6
        if method in ALONE:
            ax.axhline(float(mean[-1]), label=NAMED[method], **(look | {"marker": "", "linewidth": 1.1}))
            once = 0.0 if method == POOLED else float(sent[-1])
            price = f"{once:.3g} MB, once" if once else "nothing"
            parts.append(f"{NAMED[method]} {mean[-1]:{OURS.digits(metric)}} for {price}")
            continue
        last = OURS.interval(cell, metric)
        ax.plot(sent, mean, label=NAMED[method], **look)
        ax.errorbar([float(sent[-1])], [last.mean], yerr=halves(last), capsize=3,
                    **(look | {"linestyle": ""}))  # fmt: skip
        parts.append(f"{NAMED[method]} {mean[-1]:{OURS.digits(metric)}} for {float(sent[-1]):.3g} MB")
    plain_log(ax.xaxis)
    ax.set(xlabel="MB sent so far by all, up and down", ylabel=OURS.label(metric))
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return f"{metric} after the last round: {', '.join(parts)}."


# --- one setting


def by_setting(name: str, *tables: Table, **fixed: Any) -> dict[str, dict[Any, Cell]]:
    """Method -> value of the setting ``name`` -> cell, values rising (words in the order of the tables)."""
    found: dict[str, dict[Any, Cell]] = {}
    for table, cell in chosen(tables, **fixed):
        own = found.setdefault(cell["method"], {})
        value = setting(table, cell, name)
        own[value] = cell
    words = any(isinstance(value, str) for own in found.values() for value in own)
    return {m: found[m] if words else dict(sorted(found[m].items())) for m in METHODS if m in found}


def draw_setting(axes: Any, name: str, *tables: Table, metrics: Sequence[str] = ("probe_few",), line: bool = True,
                 **fixed: Any) -> str:  # fmt: skip
    """Metrics against the values of one setting, evenly spaced, one series a method; open: their encoders untrained.

    ``line``: values are joined. Shapes: ``axes`` one for each metric.
    """
    spots, found = panels(axes, len(metrics)), by_setting(name, *tables, **fixed)
    values, told = list(dict.fromkeys(value for own in found.values() for value in own)), []
    if not isinstance(values[0], str):
        values.sort()
    for ax, metric in zip(spots, metrics, strict=True):
        parts = []
        for i, (method, own) in enumerate(found.items()):
            shift = 0.08 * (i - (len(found) - 1) / 2)
            there = {value: OURS.interval(cell, metric) for value, cell in own.items() if has(cell, metric)}
            if not there:
                continue
            look = look_of(method) | ({} if line else {"linestyle": ""})
            bars = [halves(one) or [[0.0], [0.0]] for one in there.values()]
            ax.errorbar([values.index(v) + shift for v in there], [one.mean for one in there.values()],
                        [[bar[side][0] for bar in bars] for side in (0, 1)], capsize=3, label=NAMED[method],
                        **look)  # fmt: skip
            means_of = (f"{one.mean:{OURS.digits(metric)}} at {_short(v)}" for v, one in there.items())
            parts.append(f"{NAMED[method]} {', '.join(means_of)}")
        for word, marker in zip(UNTRAINED, "os", strict=True):
            drawn = {}
            for v in values:
                level = untrained({m: own[v] for m, own in found.items() if v in own}, metric).get(word)
                if level is not None:
                    drawn[v] = OURS.shown(float(level.mean()), metric)
            if drawn:
                ax.plot([values.index(v) for v in drawn], list(drawn.values()), label=word, marker=marker,
                        linestyle="", color=RIM, markerfacecolor="white", markersize=6, zorder=1)  # fmt: skip
                parts.append(f"{word} " + ", ".join(f"{one:{OURS.digits(metric)}}" for one in drawn.values()))
        ax.set_xticks(range(len(values)), [_short(v) for v in values])
        ax.set(xlim=(-0.5, len(values) - 0.5), xlabel=LETTERS.get(name, name), ylabel=OURS.label(metric))
        told.append(f"{metric}: {'; '.join(parts)}")
    handles = dict(zip(*reversed(spots[0].get_legend_handles_labels()), strict=True))
    if len(handles) > 1:
        spots[-1].legend(handles.values(), handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    seeds = len(next(iter(next(iter(found.values())).values()))["runs"])
    return f"By {name}, mean over {seeds} seeds, {'. '.join(told)}."


def draw_mu(axes: Any, *tables: Table, metrics: Sequence[str] = ("probe_few", "self_loss", "alignment_test"),
            **fixed: Any) -> str:  # fmt: skip
    """What the weight of alignment does to accuracy, own loss and alignment. Shapes: ``axes`` one for each metric."""
    return draw_setting(axes, "mu", *tables, metrics=metrics, **fixed)


def draw_epochs(ax: Axes, *tables: Table, metric: str = "probe_few", **fixed: Any) -> str:
    """A metric against local epochs, one line a method."""
    return draw_setting(ax, "local_epochs", *tables, metrics=(metric,), **fixed)


def draw_alignment_set(axes: Any, *tables: Table, metric: str = "probe_few", source: str = "holdout",
                       size: int = 300, **fixed: Any) -> str:  # fmt: skip
    """A metric against the size L of the alignment set (of ``source``) and against its source (at L = ``size``).

    Shapes: ``axes`` two of them.
    """
    left, right = panels(axes, 2)
    by_size = draw_setting(left, "alignment_samples", *tables, metrics=(metric,), alignment_source=source, **fixed)
    by_source = draw_setting(right, "alignment_source", *tables, metrics=(metric,), line=False,
                             alignment_samples=size, **fixed)  # fmt: skip
    if left.get_legend():
        left.get_legend().remove()
    left.set_title(f"source: {source}")
    right.set_title(f"$L$ = {size}")
    return f"{by_size} {by_source}"


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

"""Chapter 2's stored comparisons (``fedbook compare hetero_ssfl``), drawn and as text.

A table is what :func:`fedbook.experiment.compare` returns; several of one problem are read as one. ``fixed`` names
settings where a table varies some: ``mu=0.5``. Bars are Student's 95 % intervals over seeds. What compares two
settings of one method, or its architectures, stands in chapter02_pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from torch import Tensor

from fedbook.lab.chapter02_paper import NAMES, Value, beside_table, scale_table
from fedbook.lab.panels import panels, plain_log
from fedbook.lab.results import Cell, Table, cells, curve, scores, setting, text_table
from fedbook.lab.stored_cells import Words, cell_text, differences_text, halves, has, tuning_text
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
SHARES = ("probe_few", "knn", "probe", "own_classes")  # shown in per cent
SHARES += tuple(f"random_{name}" for name in SHARES)
ALONE = (POOLED, *PERSONAL[1:], *CONTROLS)  # nothing is sent in a round; some get the alignment set once
APART = (*PERSONAL, "random-encoder")  # clients' models differ: with one model CKA is 1, its own loss another one
UNTRAINED = ("untrained, own", "untrained, shared")  # every client has its own network; all have one
OURS = Words(tuple(METHODS), NAMED, METRICS, SHARES, CONTROLS, BASE, "probe_few", LOOKS,
             only={"alignment": APART, "alignment_test": APART, "self_loss": PERSONAL})  # fmt: skip
LETTERS = {"mu": r"weight $\mu$ of alignment", "local_epochs": "local epochs $E$", "clients": "clients $N$",
           "alignment_samples": "alignment images $L$", "alignment_source": "alignment images from"}  # fmt: skip

cells_of, look_of = OURS.cells_of, OURS.look_of
tuning_table = partial(tuning_text, OURS)


# --- methods


def draw_methods(axes: Any, *tables: Table) -> str:
    """Every method's mean with its interval, beside the same encoders untrained (open) and raw pixels (a line).

    Shapes: ``axes`` three of them.
    """
    metrics, cells = ("probe_few", "knn", "probe"), cells_of(*tables)
    spots, rows, told = panels(axes, 3), [m for m in cells if m not in CONTROLS], []
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
                drawn = OURS.shown(float(scores(cells[method], f"random_{metric}").mean()), metric)
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


def draw_rounds(axes: Any, *tables: Table) -> str:
    """Accuracy, alignment on both sets and own loss by round: mean over seeds, band of a deviation; controls as lines.

    Shapes: ``axes`` four of them.
    """
    return OURS.draw_rounds(axes, *tables, metrics=("probe_few", "alignment", "alignment_test", "self_loss"))


def untrained(cells: Mapping[str, Cell], metric: str = "probe_few") -> dict[str, Tensor]:
    """The metric [S] of the encoders as they were drawn, by seed: those of different clients, and the one of all.

    ``cells``: method -> cell; one cell of each kind says it.
    """
    found: dict[str, Tensor] = {}
    for method, cell in cells.items():
        word = UNTRAINED[method not in APART]
        if word not in found and method not in CONTROLS and has(cell, f"random_{metric}"):
            found[word] = scores(cell, f"random_{metric}")
    return dict(sorted(found.items(), key=lambda item: UNTRAINED.index(item[0])))


# --- bytes


def bytes_up(table: Table, cell: Cell) -> float:
    """Mean bytes of one client's upload; Hetero-SSFL's clients also send one each before the first round."""
    clients, cohort = setting(table, cell, "clients"), setting(table, cell, "cohort")
    count = cell["runs"][0]["rounds"] * (cohort or clients) + (clients if cell["method"] == "hetero-ssfl" else 0)
    return sum(run["bytes_up"] for run in cell["runs"]) / len(cell["runs"]) / count


def bytes_so_far(cell: Cell) -> Tensor:
    """Mean bytes [E] that crossed until each judged round, both ways, with the set-up."""
    whole = sum(run["bytes_up"] + run["bytes_down"] for run in cell["runs"]) / len(cell["runs"])
    crossed = curve(cell, "bytes")[1].mean(0)
    return crossed + (whole - crossed[-1])  # what the rounds did not send, the set-up did


def draw_sent(ax: Axes, *tables: Table) -> str:
    """Accuracy against all bytes sent so far, both ways, on a logarithmic axis; who sends nothing is a line."""
    metric, parts = "probe_few", []
    for method, cell in cells_of(*tables).items():
        sent, mean, look = bytes_so_far(cell) / 1e6, 100 * curve(cell, metric)[1].mean(0), look_of(method)
        if not bool(mean.isfinite().all()):
            continue
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
    for table, cell in cells(*tables, **fixed):
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


def draw_mu(axes: Any, *tables: Table) -> str:
    """What the weight of alignment does to accuracy, own loss and alignment. Shapes: ``axes`` three of them."""
    return draw_setting(axes, "mu", *tables, metrics=("probe_few", "self_loss", "alignment_test"))


def draw_epochs(ax: Axes, *tables: Table) -> str:
    """Accuracy against local epochs, one line a method."""
    return draw_setting(ax, "local_epochs", *tables)


def draw_alignment_set(axes: Any, *tables: Table) -> str:
    """Accuracy against the size L of the alignment set (held out) and against its source (at L = 300).

    Shapes: ``axes`` two of them.
    """
    left, right = panels(axes, 2)
    by_size = draw_setting(left, "alignment_samples", *tables, alignment_source="holdout")
    by_source = draw_setting(right, "alignment_source", *tables, line=False, alignment_samples=300)
    if left.get_legend():
        left.get_legend().remove()
    left.set_title("source: holdout")
    right.set_title("$L$ = 300")
    return f"{by_size} {by_source}"


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- as text


def methods_table(*tables: Table) -> str:
    """Every method as text: mean ± deviation over seeds, the step size that was tuned, what is sent.

    Accuracies in per cent; -: the method has no such number.
    """
    metrics = ("probe_few", "knn", "probe", "own_classes", "alignment_test", "self_loss", "rank")
    rows = [["mean ± deviation", *metrics, "untrained", "lr", "bytes up", "MB in all"]]
    owners = {cell["method"]: table for table, cell in cells(*tables)}
    for method, cell in cells_of(*tables).items():
        sent = 0.0 if method in ALONE else bytes_up(owners[method], cell)
        whole = sum(run["bytes_up"] + run["bytes_down"] for run in cell["runs"]) / len(cell["runs"])
        if method == POOLED:
            whole = 0.0
        rate = None if method in CONTROLS else cell["tuned"].get("lr")
        rows.append([
            NAMED[method],
            *(cell_text(OURS, cell, m) if method in OURS.only.get(m, owners) else "-" for m in metrics),
            cell_text(OURS, cell, "random_probe_few"), "-" if rate is None else f"{rate:g}",
            f"{sent:,.0f}" if sent else "-", f"{whole / 1e6:,.2f}" if whole else "-",
        ])  # fmt: skip
    settings = tables[0]["settings"]
    return (
        f"{text_table(rows)}\n{tables[0]['problem']}: {settings['clients']} clients, "
        f"{settings['cohort'] or 'all'} in a round, {settings['rounds']} rounds of {settings['local_epochs']} epochs, "
        f"{tables[0]['seeds']} seeds; accuracies in %; untrained: probe_few of the same encoders as drawn; "
        "bytes up: one client's upload; MB in all: both ways, with the set-up"
    )


def differences_table(*tables: Table) -> str:
    """Every method minus local SSL as text; "*" where 0 is not in the interval."""
    found = {metric: OURS.differences(*tables, metric=metric) for metric in ("probe_few", "knn")}
    return differences_text(OURS, found, f"minus {NAMED[BASE]}")


# --- the paper's tables beside ours

SHORT = {"local-ssl-plus-rad": "local SSL + set", "alignment-pass-only": "pass only"}


def disjoint_and_iid_table(disjoint: Table, iid: Table) -> str:
    """Tables 1 and 2 for CIFAR-10 beside ours."""
    ours = []
    for table in (disjoint, iid):
        rows = {m: row for m, row in OURS.means(table).items() if m != "random-encoder"}
        ours.append(_named(rows) | {word: moments(values) for word, values in untrained(cells_of(table)).items()})
    return headed(beside_table(*ours))


def clients_table(*tables: Table) -> str:
    """Table 3 beside ours: by the number of clients."""
    ours: dict[str, dict[int, Value]] = {}
    below: dict[str, dict[int, Value]] = {}
    for method, own in by_setting("clients", *tables).items():
        for count, cell in own.items():
            values = OURS.scores(cell)
            if bool(values.isfinite().all()):
                ours.setdefault(method, {})[count] = moments(values)
            for word, drawn in untrained({method: cell}).items():
                below.setdefault(word, {})[count] = moments(drawn)
    return headed(scale_table(_named(ours) | below))


def moments(values: Tensor) -> Value:
    """Mean and deviation over seeds."""
    return float(values.mean()), float(values.std()) if len(values) > 1 else 0.0


def _named(ours: dict[str, Any]) -> dict[str, Any]:
    """The paper's methods under the names of the command line, controls under short ones: the column is narrow."""
    return {method if method in NAMES else SHORT.get(method, NAMED[method]): row for method, row in ours.items()}


def headed(text: str) -> str:
    """A table beside the paper's, with what each side measures below it."""
    return f"{text}\nthe paper: its linear probe; ours: {METRICS['probe_few']}; ± deviation over seeds"

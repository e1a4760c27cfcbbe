"""Chapter 2's stored comparisons of two settings: variants of the method, heads, architectures, whose classes.

As in chapter02_stored: tables of :func:`fedbook.experiment.compare`, 95 % intervals over seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from fedbook.experiment import plan
from fedbook.intervals import Interval, mean_interval, paired_difference
from fedbook.lab.chapter02_paper import architecture_table
from fedbook.lab.chapter02_stored import NAMED, OURS, PERSONAL, cells_of, headed
from fedbook.lab.panels import panels
from fedbook.lab.results import Cell, Table, cells, scores, setting
from fedbook.lab.stored_cells import differences_text, halves, has, signed
from fedbook.lab.style import CONNECTOR, STRONG_REFERENCE, series
from fedbook.papers.hetero_ssfl import PAPER

OWN = "hetero-ssfl"
CHANGED = {
    ("proximal", "paper"): "+ CKA, the printed sign", ("statistics", "train"): "statistics: also remembered",
    ("statistics", "eval"): "statistics: the running ones", ("layer", "projector"): "of the projector's output",
    ("layer", "encoder"): "of the features", ("normalise", True): "kernels of norm 1",
    ("exclude_self", True): "without the own kernel", ("estimator", "unbiased"): "unbiased CKA",
    ("kernel", "rbf"): "RBF kernel", ("centre", False): "not centred, as printed", ("loss", "simsiam"): "SimSiam",
    ("alignment_batch", 0): "all $L$ images a step", ("weights", "resources"): "weighted by model size",
}  # fmt: skip
HEADS = {"mlp": "without batch normalisation", "batch_norm": "with"}

# --- variants of the method


def variants(*tables: Table, metric: str = "probe_few") -> dict[str, Interval]:
    """What was changed -> the metric minus that of Hetero-SSFL at its defaults, over the seeds that both have.

    The first cell of Hetero-SSFL without a change is the default; other methods are variants too (controls). Step
    sizes are not compared: they are what each table took. Variants of which a run diverged are left out.
    """
    base, others = None, {}
    for table, cell in cells(*tables):
        words = _changes(table, cell)
        if cell["method"] == OWN and not words:
            base = base or cell
        elif (cell["method"] == OWN and words) or cell["method"] in PERSONAL:
            name = words if cell["method"] == OWN else ", ".join(filter(None, (NAMED[cell["method"]], words)))
            others.setdefault(name, cell)
    own, found = _by_seed(base, metric), {}
    for name, cell in others.items():
        values = _by_seed(cell, metric)
        both = [seed for seed in own if seed in values]
        pair = [torch.tensor([one[seed] for seed in both], dtype=torch.float64) for one in (values, own)]
        if both and all(bool(one.isfinite().all()) for one in pair):
            found[name] = paired_difference(*(OURS.shown(one, metric) for one in pair))
    return found


def variants_table(*tables: Table, metrics: Sequence[str]) -> str:
    """Every variant minus Hetero-SSFL at its defaults as text; "*" where 0 is not in the interval."""
    found = {m: {k.replace("$", ""): v for k, v in variants(*tables, metric=m).items()} for m in metrics}
    return differences_text(OURS, found, "minus the default")


def draw_variants(axes: Any, *tables: Table) -> str:
    """Each variant's paired difference to the defaults, with its interval. Shapes: ``axes`` two of them."""
    spots, told = panels(axes, 2), []
    for ax, metric in zip(spots, ("probe_few", "alignment_test"), strict=True):
        found = variants(*tables, metric=metric)
        rows = {name: (one, series(i)) for i, (name, one) in enumerate(found.items())}
        OURS.draw_intervals(ax, rows, metric, "minus the default")
        told.append(f"{metric}: " + ", ".join(f"{name} {signed(one)}" for name, one in found.items()))
    for ax in spots[1:]:
        ax.set_yticklabels([])
    return f"Minus Hetero-SSFL at its defaults, {_counts(found)} seeds, {'; '.join(told)}."


def _counts(found: Mapping[str, Interval]) -> str:
    """The numbers of seeds behind some intervals, as text."""
    return " to ".join(str(n) for n in sorted({one.count for one in found.values()}))


def _changes(table: Table, cell: Cell) -> str:
    """The settings that the cell varies away from the defaults of its problem and profile, in words."""
    usual = plan(PAPER, cell["method"], table["problem"], table.get("profile", "quick"), device="cpu").settings()
    changed = {k: v for k, v in cell["varied"].items() if k != "lr" and usual.get(k) != v}
    return ", ".join(CHANGED.get((k, v), f"{k} = {v}") for k, v in changed.items())


def _by_seed(cell: Cell, metric: str) -> dict[int, float]:
    return {run["seed"]: v for run, v in zip(cell["runs"], scores(cell, metric).tolist(), strict=True)}


# --- pairs


def draw_two(ax: Axes, rows: Mapping[str, Sequence[Interval | None]], words: Sequence[str], metric: str) -> None:
    """A row each: one interval open, one filled, joined; None is left out."""
    for place, pair in enumerate(rows.values()):
        there = [one.mean for one in pair if one is not None]
        ax.plot(there, [place] * len(there), color=CONNECTOR, linestyle="-", marker="", linewidth=1.2, zorder=1)
        for i, one in enumerate(pair):
            if one is not None:
                fill = {"markerfacecolor": "white"} if i == 0 else {}
                ax.errorbar([one.mean], [place + 0.1 * (2 * i - 1)], xerr=halves(one), capsize=2,
                            **(series(1 - i) | {"linestyle": "", "markersize": 6} | fill))  # fmt: skip
    for i, text in enumerate(words):
        fill = {"markerfacecolor": "white"} if i == 0 else {}
        ax.plot([], [], label=text, **(series(1 - i) | {"linestyle": "", "markersize": 6} | fill))
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set(ylim=(len(rows) - 0.5, -0.5), xlabel=OURS.label(metric))


def _told(rows: Mapping[str, Sequence[Interval | None]], metric: str) -> str:
    form = OURS.digits(metric)
    return "; ".join(
        f"{name} " + " to ".join("none" if one is None else f"{one.mean:{form}}" for one in pair)
        for name, pair in rows.items()
    )


# --- architectures


def by_architecture(cell: Cell, metric: str = "probe_few") -> dict[str, Tensor]:
    """Architecture -> the metric of its clients by seed [S]."""
    name = f"{metric}_by_architecture"
    words = list(cell["runs"][0]["metrics"][name])
    found = [[run["metrics"][name][word] for run in cell["runs"]] for word in words]
    values = [[math.nan if v is None else v for v in row] for row in found]
    return {word: torch.tensor(row, dtype=torch.float64) for word, row in zip(words, values, strict=True)}


def mixtures(*tables: Table, metric: str = "probe_few") -> dict[tuple[str, str], dict[str, Tensor]]:
    """(architectures of all clients, one of them) -> method -> the metric of its clients by seed [S].

    "untrained" stands for the same encoders as drawn, where the runs say so.
    """
    found: dict[tuple[str, str], dict[str, Tensor]] = {}
    for table, cell in cells(*tables):
        if cell["method"] not in ("local-ssl", OWN):
            continue
        whole = setting(table, cell, "architectures")
        for word, values in by_architecture(cell, metric).items():
            entry = found.setdefault((whole, word), {})
            entry[cell["method"]] = values
        if f"random_{metric}_by_architecture" in cell["runs"][0]["metrics"]:
            for word, values in by_architecture(cell, f"random_{metric}").items():
                found[whole, word]["untrained"] = values
    return dict(sorted(found.items(), key=lambda item: (item[0][0].count(","), item[0][0])))


def draw_mixture(ax: Axes, *tables: Table) -> str:
    """Table 4's layout: every architecture's clients alone and with Hetero-SSFL, by who else there is.

    Crosses: the same encoders untrained, where the runs say so.
    """
    metric, found = "probe_few", {company(*pair): own for pair, own in mixtures(*tables).items()}
    rows = {
        name: [
            mean_interval(OURS.shown(own[m], metric)) if m in own and bool(own[m].isfinite().all()) else None
            for m in ("local-ssl", OWN)
        ]
        for name, own in found.items()
    }
    draw_two(ax, rows, (NAMED["local-ssl"], NAMED[OWN]), metric)
    untrained = {n: float(OURS.shown(o["untrained"].mean(), metric)) for n, o in found.items() if "untrained" in o}
    if untrained:
        places = [place for place, name in enumerate(rows) if name in untrained]
        ax.plot([untrained[list(rows)[place]] for place in places], places, label="untrained", color=STRONG_REFERENCE,
                marker="x", markersize=7, linestyle="")  # fmt: skip
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2, ncols=2)
    beside = ", ".join(f"{name} {value:{OURS.digits(metric)}}" for name, value in untrained.items())
    return f"{metric} of an architecture's clients, local SSL to Hetero-SSFL: {_told(rows, metric)}." + (
        f" Untrained: {beside}." if untrained else ""
    )


def company(whole: str, word: str) -> str:
    """An architecture and which others the clients have."""
    others = [w.strip() for w in whole.split(",") if w.strip() != word]
    return f"{word} with {', '.join(others)}" if others else f"{word} alone"


def mixture_table(*tables: Table, architectures: str) -> str:
    """Table 4 beside ours, for clients of ``architectures``."""
    own = {word: values for (whole, word), values in mixtures(*tables).items() if whole == architectures}
    columns = [
        {word: float(values[method].mean()) for word, values in own.items() if method in values}
        for method in ("local-ssl", OWN, "untrained")
    ]
    return headed(architecture_table(*columns))


# --- heads, and whose classes


def draw_heads(axes: Any, *tables: Table) -> str:
    """Collapse: rank and accuracy with and without batch normalisation in the heads. Shapes: ``axes`` two of them."""
    spots, told = panels(axes, 2), []
    sides = [cells_of(*tables, projector=word) for word in HEADS]
    both = list(dict.fromkeys(m for side in sides for m in side))
    for ax, metric in zip(spots, ("rank", "probe_few"), strict=True):
        rows = {
            NAMED[m]: [OURS.interval(s[m], metric) if m in s and has(s[m], metric) else None for s in sides]
            for m in both
        }
        draw_two(ax, rows, tuple(HEADS.values()), metric)
        told.append(f"{metric}: {_told(rows, metric)}")
    for ax in spots[1:]:
        ax.set_yticklabels([])
    spots[0].legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2, ncols=2)
    return f"Without to with batch normalisation in the heads, {'. '.join(told)}."


def draw_own_classes(ax: Axes, *tables: Table) -> str:
    """The probe of all classes and that of a client's own classes, mean over clients, of every method that has both."""
    cells = {m: c for m, c in cells_of(*tables).items() if has(c, "own_classes")}
    rows = {NAMED[m]: [OURS.interval(c, name) for name in ("probe", "own_classes")] for m, c in cells.items()}
    draw_two(ax, rows, ("all classes", "the client's own"), "probe")
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2, ncols=2)
    return f"Linear probe of all classes to that of a client's own: {_told(rows, 'probe')}."

"""Chapter 5's stored comparisons (``fedbook compare cvfl``), drawn and as text, beside the paper.

A table is what :func:`fedbook.experiment.compare` returns, with ``compressor`` and ``bits`` among what it varies;
``fixed`` gives other settings that vary a value: ``parties=12``. "none" comes once whatever its bits. 1 MB = 2^20 B.
The paper's numbers are in chapter05_paper; where its tables hold what other settings gave, the lines below a table
name the difference of scale. Deviations of ours divide by n - 1, the paper's by n (see its Table 4, decoded).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from fedbook.compression import COMPRESSORS
from fedbook.lab.chapter05_paper import SETTINGS, STEP_S, TABLE_5, TABLE_D1, TABLES
from fedbook.lab.chapter05_pictures import one_round
from fedbook.lab.panels import panels, plain_log
from fedbook.lab.results import Cell, Table, cells, curve, reached, rounds_to_reach, setting, text_table
from fedbook.lab.style import band, series
from fedbook.papers.cvfl import EXACT, Config
from fedbook.papers.cvfl.accounts import MB, TimeModel, bits_per_round
from fedbook.papers.cvfl.problem import VerticalProblem
from fedbook.randomness import stream

Key = tuple[str, int]  # compressor and bits; ("none", 32)

WORDS = {name: kind.words for name, kind in COMPRESSORS.items()}
LETTERS = {"parties": "$M$", "local_steps": "$Q$"}
METRICS = {"accuracy": "accuracy", "f1": "$F_1$", "loss": "loss"}

CONTROLS = {
    "compress_server": {True: "server model compressed", False: "server model exact"},
    "dither": {True: "dither", False: "no dither"},
    "rule": {"gradient": "ranked by gradient", "magnitude": "ranked by magnitude"},
    "grid": {"endpoints": "levels at the ends", "bins": "levels in bins"},
    "codebook": {"finite": "finite codebook", "infinite": "infinite codebook"},
    "bits_schedule": {"constant": "constant bits", "growing": "growing bits"},
}

PAPER_NAMES = {name: kind.paper for name, kind in COMPRESSORS.items() if kind.paper}
LAST = {"MIMIC-III": "Table 2", "CIFAR-10": "Table 3", "ModelNet10": "Table 4"}

# --- cells


def cells_of(table: Table, **fixed: Any) -> dict[Key, Cell]:
    """The chosen cells by compressor and bits, none first, then by bits."""
    found: dict[Key, Cell] = {}
    for _, cell in cells(table, **fixed):
        name, bits = (setting(table, cell, word) for word in ("compressor", "bits"))
        key = ("none", EXACT) if "none" in (name, cell["method"]) or bits == EXACT else (name, bits)
        found.setdefault(key, cell)
    return dict(sorted(found.items(), key=lambda item: (item[0][0] != "none", item[0][1], _place(item[0][0]))))


def _place(name: str) -> int:
    return list(COMPRESSORS).index(name)


def words_of(key: Key) -> str:
    """ "hexagonal, 2 bits"; "none"."""
    return "none" if key[0] == "none" else f"{WORDS[key[0]]}, {key[1]} bits"


# --- numbers of a cell


class Best(NamedTuple):
    """The best of the mean curve over seeds, the deviation over seeds (n - 1) there, the round; None for one seed."""

    mean: float
    deviation: float | None
    round: int


def best_of_mean(table: Table, cell: Cell, metric: str | None = None) -> Best:
    """The maximum over evaluations of the curve averaged over seeds, as the paper has it, without diverged seeds."""
    t, values = curve(cell, metric or table["metric"])
    values = values[values.isfinite().all(1)]
    at = int(values.mean(0).argmax())
    return Best(float(values[:, at].mean()), float(values[:, at].std()) if len(values) > 1 else None, int(t[at]))


def best_of_each(table: Table, cell: Cell, metric: str | None = None) -> Tensor:
    """The maximum of each seed's own curve, [S]: never below that of the mean curve in the mean."""
    return curve(cell, metric or table["metric"])[1].nan_to_num(-math.inf).amax(1)


def megabytes_to(table: Table, cell: Cell, target: float, metric: str | None = None) -> list[float | None]:
    """For each seed the MB, up and down, when its best value so far crosses ``target``; None if it never does.

    Interpolated between two evaluations.
    """
    _, values = curve(cell, metric or table["metric"])
    moved = torch.tensor(cell["curve"]["bytes"], dtype=torch.float64) / MB
    return [reached(x, row, target) for x, row in zip(moved.tolist(), values.tolist(), strict=True)]


def saving(base: Sequence[float | None], other: Sequence[float | None]) -> Tensor:
    """How many times fewer bytes: base / other for every seed that reached the target in both, [n]."""
    pairs = [(a, b) for a, b in zip(base, other, strict=True) if a is not None and b is not None]
    return torch.tensor([a / b for a, b in pairs], dtype=torch.float64)


# --- figures


def draw_compressors(axes: Any, table: Table, bits: int, metric: str | None = None, **fixed: Any) -> str:
    """The metric against rounds and against megabytes for every compressor at ``bits`` bits (the paper's Figure 3).

    Mean over seeds, band of one standard deviation. Shapes: ``axes`` two of them.
    """
    cells = {
        WORDS[key[0]]: (_place(key[0]), cell)
        for key, cell in cells_of(table, **fixed).items() if key[1] in (bits, EXACT)
    }  # fmt: skip
    return _two_curves(axes, table, cells, metric, fixed) + f" b = {bits}."


def draw_bits(axes: Any, table: Table, compressor: str, **fixed: Any) -> str:
    """The metric against rounds and megabytes for one compressor over its bits and for none (the paper's Figure 4).

    Shapes: ``axes`` two of them.
    """
    cells = {
        f"b = {key[1]}": (0 if key[0] == "none" else key[1], cell)
        for key, cell in cells_of(table, **fixed).items() if key[0] in (compressor, "none")
    }  # fmt: skip
    return _two_curves(axes, table, cells, None, fixed) + f" Compressor: {WORDS[compressor]}; b = {EXACT} is none."


def _two_curves(
    axes: Any, table: Table, cells: Mapping[str, tuple[int, Cell]], metric: str | None, fixed: Mapping[str, Any]
) -> str:
    left, right = panels(axes, 2)
    metric, parts, least = metric or table["metric"], [], []
    for label, (i, cell) in cells.items():
        t, values = curve(cell, metric)
        moved = torch.tensor(cell["curve"]["bytes"], dtype=torch.float64).mean(0) / MB
        whole = values[values.isfinite().all(1)]
        if not len(whole):
            parts.append(f"{label} diverged")
            continue
        mean, half = whole.mean(0), whole.std(0) if len(whole) > 1 else torch.zeros(len(t))
        least.append(float((mean - half).quantile(0.15)))  # where the start of a curve is cut
        for ax, x in ((left, t), (right, moved)):
            band(ax, x, mean, mean - half, mean + half, i, label)
        best = best_of_mean(table, cell, metric)
        spread = "" if best.deviation is None else f" ± {best.deviation:.3f}"
        parts.append(f"{label} {best.mean:.3f}{spread} in {float(moved[-1]):.3g} MB")
    top = max(float(line.get_ydata().max()) for line in left.lines)
    for ax in (left, right):
        ax.set_ylim(min(least) - 0.3 * (top - min(least)), top + 0.1 * (top - min(least)))
    left.set(xlabel="round", ylabel=METRICS.get(metric, metric))
    right.set_xlabel("MB, up and down")
    left.set_title(", ".join(f"{LETTERS.get(name, name)} = {value}" for name, value in fixed.items()))
    plain_log(right.xaxis)
    right.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    seeds = len(values)
    return f"Best {metric} of the mean over {seeds} seeds (± standard deviation there): {'; '.join(parts)}."


def draw_megabytes(ax: Axes, table: Table, target: float) -> str:
    """Megabytes to the target, a dot a seed and the mean as a bar, for every compressor and its bits.

    Seeds that never reach the target are told.
    """
    metric, parts, never = table["metric"], [], []
    for place, (key, cell) in enumerate(cells_of(table).items()):
        found = megabytes_to(table, cell, target)
        reached = [v for v in found if v is not None]
        lost = f"{len(found) - len(reached)} of {len(found)} never" if len(reached) < len(found) else ""
        ax.annotate(lost, (1.01, place), xycoords=("axes fraction", "data"), va="center", fontsize="small")
        if not reached:
            never.append(words_of(key))
            continue
        look, mean = series(_place(key[0])), sum(reached) / len(reached)
        ax.plot(reached, [place] * len(reached), linestyle="", marker=look["marker"], color=look["color"], alpha=0.7)
        ax.plot([mean, mean], [place - 0.35, place + 0.35], color="black", marker="", linestyle="-", linewidth=2)
        parts.append(f"{words_of(key)} {mean:.3g}" + (f" ({lost})" if lost else ""))
    plain_log(ax.xaxis)
    keys = list(cells_of(table))
    ax.set_yticks(range(len(keys)), [words_of(key) for key in keys])
    ax.set_ylim(len(keys) - 0.5, -0.5)
    ax.set_xlabel(f"MB, up and down, to {METRICS.get(metric, metric)} {target:g}")
    return f"Mean MB to {metric} {target:g}: {'; '.join(parts)}." + (f" Never: {', '.join(never)}." if never else "")


def draw_controls(ax: Axes, table: Table) -> str:
    """The best value of every cell, a dot a seed and the best of the mean curve as a bar; labels say what varies."""
    metric, parts = table["metric"], []
    for place, (label, cell) in enumerate(control_words(table)):
        best, each = best_of_mean(table, cell), best_of_each(table, cell)
        ax.plot(each, [place] * len(each), alpha=0.7, **(series(0) | {"linestyle": ""}))
        ax.plot([best.mean] * 2, [place - 0.35, place + 0.35], color="black", marker="", linestyle="-", linewidth=2)
        ax.annotate(f"{best.mean:.3f}", (1.01, place), xycoords=("axes fraction", "data"), va="center",
                    fontsize="small")  # fmt: skip
        parts.append((place, label, f"{label} {best.mean:.3f}"))
    ax.set_yticks([p for p, _, _ in parts], [label for _, label, _ in parts])
    ax.set_ylim(len(parts) - 0.5, -0.5)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set_xlabel(f"best {METRICS.get(metric, metric)} (dot: one seed, bar: mean curve)")
    return f"Best {metric} of the mean curve: {'; '.join(told for _, _, told in parts)}."


def control_words(table: Table) -> list[tuple[str, Cell]]:
    """Every cell with what sets it apart: its compressor, and the settings and the method that most do not have."""
    cells = table["cells"]
    names = [n for n in cells[0]["varied"] if len({str(setting(table, cell, n)) for cell in cells}) > 1]
    usual = {n: Counter(str(setting(table, cell, n)) for cell in cells).most_common(1)[0][0] for n in names}
    method, _ = Counter(cell["method"] for cell in cells).most_common(1)[0]
    found = []
    for cell in cells:
        words = [] if cell["method"] == method else [cell["method"]]
        for name in names:
            value = setting(table, cell, name)
            if name == "compressor" or str(value) != usual[name]:
                known = {**CONTROLS, "compressor": WORDS}.get(name, {})
                words.append(known.get(value, f"{name.replace('_', ' ')} = {value}"))
        found.append((", ".join(words) or cell["method"], cell))
    return found


# --- Tables 2 to 4


def table_beside_paper(table: Table, target: float, paper: str, metric: str | None = None, **fixed: Any) -> str:
    """Best metric and MB to ``target`` by compressor and bits, ours beside the paper's Table 2, 3 or 4.

    ``best``: of the mean curve, the deviation at that place (the paper's convention); ``of each``: the mean of the
    seeds' own maxima; ``saving``: bytes of none over those of the row, seed by seed, mean ± deviation.
    ``paper``: MIMIC-III, CIFAR-10 or ModelNet10.
    """
    printed = {(row.compressor, row.bits): row for row in TABLES[paper]}
    own, metric = cells_of(table, **fixed), metric or table["metric"]
    times, exact = _percent(metric), megabytes_to(table, own["none", EXACT], target, metric)
    unit = "GB" if paper == "CIFAR-10" else "MB"
    rows = [["compressor", "b", f"best {metric}", "of each", f"MB to {times * target:g}", "saving", "|",
             f"{paper}: best", f"{unit} to target", "saving"]]  # fmt: skip
    for (name, bits), cell in own.items():
        best, each = best_of_mean(table, cell, metric), best_of_each(table, cell, metric)
        moved = megabytes_to(table, cell, target, metric)
        ratio = saving(exact, moved) if name != "none" else torch.zeros(0)
        row = printed.get((PAPER_NAMES.get(name), bits))
        theirs = ["", "", ""]
        if row is not None:
            base = printed["none", EXACT].cost
            factor = "" if row.cost is None or name == "none" else f"{base[0] / row.cost[0]:.1f}"
            cost = "never" if row.cost is None else _pair(row.cost, 2 if unit == "GB" else 1)
            theirs = [_pair(row.best, 3 if paper == "MIMIC-III" else 2), cost, factor]
        digits = 2 if times == 100 else 3
        rows.append(
            [WORDS[name], str(bits), _pair((times * best.mean, _times(times, best.deviation)), digits),
             f"{times * float(each.mean()):.{digits}f}", _reached(moved), _spread(ratio), "|", *theirs]
        )  # fmt: skip
    one, settings = SETTINGS[paper], {**table["settings"], **fixed}
    rates = {c["tuned"].get("lr", settings["lr"]) for c in own.values()}
    rate = f"{min(rates):g} to {max(rates):g}, chosen for each row" if len(rates) > 1 else f"{min(rates):g}"
    ours = (
        f"here: {table['problem']}, M = {settings['parties']}, Q = {settings['local_steps']}, "
        f"B = {settings['batch_size']}, P_m = {settings['embedding']}, {settings['rounds']:,} rounds, "
        f"{table['seeds']} seeds;\n      tower {settings['tower']}, eta = {rate}; bytes as counted"
    )
    theirs = (
        f"the paper, {LAST[paper]}: {paper}, M = 4, Q = 10, B = {one.batch_size}, P_m = {one.width}, "
        f"{one.rounds_per_epoch * one.epochs:,} rounds, 5 runs;\n      target {one.target}; bytes by its own account"
    )
    return "\n".join([text_table(rows), ours, theirs])


def controls_table(table: Table, target: float) -> str:
    """What varies in each cell, best of the mean curve, mean of the seeds' maxima, MB to ``target``, as text."""
    metric, times = table["metric"], _percent(table["metric"])
    rows = [["setting", f"best {metric}", "of each", f"MB to {times * target:g}"]]
    for words, cell in control_words(table):
        best, each = best_of_mean(table, cell), best_of_each(table, cell)
        value = _pair((times * best.mean, _times(times, best.deviation)), 2 if times == 100 else 3)
        mean = f"{times * float(each.mean()):.{2 if times == 100 else 3}f}"
        rows.append([words, value, mean, _reached(megabytes_to(table, cell, target))])
    return text_table(rows)


# --- Table D.1 and Table 5: several Q


def by_steps(tables: Sequence[Table]) -> dict[int, tuple[Table, dict[Key, Cell]]]:
    """By Q: the table and its cells by compressor and bits; the tables differ in local_steps (or vary it)."""
    steps = [(setting(table, cell, "local_steps"), table) for table in tables for cell in table["cells"]]
    return {q: (table, cells_of(table, local_steps=q)) for q, table in sorted(steps, key=lambda pair: pair[0])}


def rounds_by_steps(tables: Sequence[Table], target: float, key: Key) -> dict[int, list[float | None]]:
    """By Q: the round at which each seed crosses ``target``, with one compressor at so many bits."""
    return {
        q: rounds_to_reach(own[key], target, table["metric"]) for q, (table, own) in by_steps(tables).items()
        if key in own
    }  # fmt: skip


def table_d1_beside_paper(tables: Sequence[Table], target: float) -> str:
    """MB to ``target`` for none and for the hexagonal quantiser at 3 bits, by Q, ours beside the paper's Table D.1."""
    ours = by_steps(tables)
    steps = sorted(set(ours) | set(TABLE_D1["none", EXACT]))
    rows = [["compressor", "b", *(f"Q = {q}" for q in steps), "|", *(f"Q = {q}" for q in TABLE_D1["none", EXACT])]]
    for (name, bits), printed in TABLE_D1.items():
        key: Key = next((k, bits) for k, word in PAPER_NAMES.items() if word == name)
        here = {q: megabytes_to(table, own[key], target) for q, (table, own) in ours.items() if key in own}
        reach = (_reached(here[q]) if q in here else "" for q in steps)
        rows.append([WORDS[key[0]], bits, *reach, "|", *(_pair(v, 1) for v in printed.values())])
    below = f"MB to {target:g}: ours, counted | MIMIC-III to F1 = 0.4, Table D.1 (Q = 1: Algorithm 2)"
    return f"{text_table(rows)}\n{below}"


def time_table(rounds: Mapping[int, Sequence[float | None]]) -> str:
    """Seconds to the target by latency and Q from the rounds of each seed, ours beside the paper's Table 5.

    ``rounds``: from :func:`rounds_by_steps`. Bytes cost no time, as in the paper.
    """
    steps = sorted(set(rounds) | {q for row in TABLE_5.values() for q in row})
    rows = [["t_c in ms", *(f"Q = {q}" for q in steps), "|", *(f"Q = {q}" for q in TABLE_5[1])]]
    for latency, printed in TABLE_5.items():
        model, ours = TimeModel(latency / 1000, STEP_S), []
        for q in steps:
            found = rounds.get(q, ())
            ours.append(_reached([None if v is None else model.seconds(v, q) for v in found], 1) if len(found) else "")
        rows.append([str(latency), *ours, "|", *(_pair(v, 1) for v in printed.values())])
    counts = ", ".join(f"Q = {q} {_reached(list(found), 0)}" for q, found in sorted(rounds.items()))
    return (
        f"{text_table(rows)}\nseconds to the target, {1000 * STEP_S:g} ms a local step | MIMIC-III to F1 = 0.45, "
        f"Table 5\nrounds to the target here: {counts}"
    )


def draw_latency(ax: Axes, rounds: Mapping[int, Sequence[float | None]], most_ms: float) -> str:
    """Seconds to the target against latency, one line for each Q: R (t_c + Q step); the fastest Q by latency is told.

    ``rounds``: by Q the rounds of each seed (see :func:`rounds_by_steps`); a Q that some seed never made is left out.
    """
    latency = torch.linspace(0, most_ms, 301, dtype=torch.float64)
    lines, left_out = {}, []
    for q, found in rounds.items():
        if None in found or not len(found):
            left_out.append(q)
            continue
        mean = sum(found) / len(found)
        seconds = [TimeModel(float(v) / 1000, STEP_S).seconds(mean, q) for v in latency]
        lines[q] = torch.tensor(seconds, dtype=torch.float64)
        ax.plot(latency, lines[q], label=f"$Q$ = {q}: {mean:.0f} rounds", markevery=50, **series(len(lines) - 1))
    ax.set(xlabel="latency of a round trip $t_c$ in ms", ylabel="seconds to the target", ylim=(0, None))
    ax.legend(loc="upper left")
    order = list(lines)
    fastest = torch.stack(list(lines.values())).argmin(0)
    changes = [0, *(torch.nonzero(fastest.diff()).flatten() + 1).tolist()]
    told = ", ".join(f"Q = {order[int(fastest[i])]} from {float(latency[i]):.0f} ms on" for i in changes)
    never = f"; some seed never reaches the target with Q = {', '.join(map(str, left_out))}" if left_out else ""
    return f"Fastest, at {1000 * STEP_S:g} ms a local step: {told}{never}."


# --- bytes of one round


def accounts_table(problem: VerticalProblem, keys: Sequence[Key]) -> str:
    """One round of Algorithm 1 in bytes: what really crossed, beside the three accounts, by compressor and bits.

    The accounts charge b bits a component, of the server model too, and nothing for headers, ranges or positions; what
    really crossed also has biases of the server model in 32 bits.
    """
    settings, batch_size = problem.settings, 100
    theta0 = problem.fusion.init(stream(0, "init server"), torch.float32)
    size = sum(p.numel() for p in theta0.values())
    accounts = ("literal", "minimal", "paper")
    rows = [["compressor", "b", "really up", "really down", "real", *accounts, "real/literal"]]
    for name, bits in keys:
        config = Config(compressor=name, bits=bits, batch_size=batch_size)
        seen = one_round(problem, config, 0)
        charged = [
            sum(bits_per_round(a, batch_size, [settings.embedding] * settings.parties, size, bits)) / 8
            for a in accounts
        ]
        down = seen.down_embeddings + seen.down_server
        rows.append([WORDS[name], str(bits), *(f"{v:,.0f}" for v in (seen.up, down, seen.total, *charged)),
                     f"{seen.total / charged[0]:.3f}"])  # fmt: skip
    return (
        f"{text_table(rows)}\nbytes of one round: M = {settings.parties}, B = {batch_size}, "
        f"P_m = {settings.embedding}, {size:,} numbers in the server model"
    )


# --- words


def _percent(metric: str) -> int:
    return 100 if metric == "accuracy" else 1


def _times(factor: int, value: float | None) -> float | None:
    return None if value is None else factor * value


def _pair(value: tuple[float, float | None], digits: int) -> str:
    mean, deviation = value
    return f"{mean:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")


def _reached(values: Sequence[float | None], digits: int = 2) -> str:
    """Mean ± deviation of those that reached the target, and how many did where some did not."""
    found = torch.tensor([v for v in values if v is not None], dtype=torch.float64)
    if not len(found):
        return "never"
    some = f" ({len(found)} of {len(values)})" if len(found) < len(values) else ""
    return _pair((float(found.mean()), float(found.std()) if len(found) > 1 else None), digits) + some


def _spread(values: Tensor) -> str:
    return _reached(values.tolist(), 1) if len(values) else ""

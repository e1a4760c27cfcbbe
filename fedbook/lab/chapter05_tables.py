"""Chapter 5's stored comparisons as text, laid out like the paper's tables and beside them; bytes and seconds.

The paper's numbers are in chapter05_paper. Where its tables hold what other settings gave, the lines below the table
name the difference of scale. Deviations of ours divide by n - 1, the paper's by n (see its Table 4, decoded).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from fedbook.lab.chapter05_paper import SETTINGS, STEP_S, TABLE_5, TABLE_D1, TABLES
from fedbook.lab.chapter05_pictures import one_round
from fedbook.lab.chapter05_stored import (
    WORDS,
    Key,
    Table,
    best_of_each,
    best_of_mean,
    cells_of,
    chosen,
    control_words,
    megabytes_to,
    saving,
    setting,
)
from fedbook.lab.results import rounds_to_reach
from fedbook.lab.style import series
from fedbook.papers.cvfl import EXACT, Config
from fedbook.papers.cvfl.accounts import TimeModel, bits_per_round
from fedbook.papers.cvfl.problem import VerticalProblem
from fedbook.randomness import stream

PAPER_NAMES = {"none": "none", "scalar": "scalar", "hex": "vector", "topk": "top-k"}
LAST = {"MIMIC-III": "Table 2", "CIFAR-10": "Table 3", "ModelNet10": "Table 4"}

# --- Tables 2 to 4


def table_beside_paper(table: Table, target: float, paper: str, metric: str | None = None, **fixed: Any) -> str:
    """Best metric and MB to ``target`` by compressor and bits, ours beside the paper's Table 2, 3 or 4.

    ``best``: of the mean curve, the deviation at that place (the paper's convention); ``of each``: the mean of the
    seeds' own maxima; ``saving``: bytes of none over those of the row, seed by seed, mean ± deviation.
    ``paper``: MIMIC-III, CIFAR-10 or ModelNet10.
    """
    printed = {(row.compressor, row.bits): row for row in TABLES[paper]}
    cells, metric, times = cells_of(table, **fixed), metric or table["metric"], _percent(metric or table["metric"])
    exact = megabytes_to(table, cells["none", EXACT], target, metric) if ("none", EXACT) in cells else None
    unit = "GB" if paper == "CIFAR-10" else "MB"
    rows = [["compressor", "b", f"best {metric}", "of each", f"MB to {times * target:g}", "saving", "|",
             f"{paper}: best", f"{unit} to target", "saving"]]  # fmt: skip
    for (name, bits), cell in cells.items():
        best, each = best_of_mean(table, cell, metric), best_of_each(table, cell, metric)
        moved = megabytes_to(table, cell, target, metric)
        ratio = saving(exact, moved) if exact is not None and name != "none" else torch.zeros(0)
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
    rates = {c["tuned"].get("lr", settings["lr"]) for c in cells.values()}
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
    return "\n".join([_columns(rows), ours, theirs])


def controls_table(table: Table, target: float, metric: str | None = None) -> str:
    """What varies in each cell, best of the mean curve, mean of the seeds' maxima, MB to ``target``, as text."""
    cells, metric = chosen(table), metric or table["metric"]
    times = _percent(metric)
    rows = [["setting", f"best {metric}", "of each", f"MB to {times * target:g}"]]
    for cell, words in zip(cells, control_words(table, cells), strict=True):
        best, each = best_of_mean(table, cell, metric), best_of_each(table, cell, metric)
        value = _pair((times * best.mean, _times(times, best.deviation)), 2 if times == 100 else 3)
        mean = f"{times * float(each.mean()):.{2 if times == 100 else 3}f}"
        rows.append([words, value, mean, _reached(megabytes_to(table, cell, target, metric))])
    return _columns(rows)


# --- Table D.1 and Table 5: several Q


def rounds_by_steps(
    tables: Sequence[Table], target: float, key: Key = ("none", EXACT), metric: str | None = None, **fixed: Any
) -> dict[int, list[float | None]]:
    """By Q: the round at which each seed crosses ``target``; the tables differ in local_steps (or vary it)."""
    found: dict[int, list[float | None]] = {}
    for table in tables:
        for q in sorted({setting(table, cell, "local_steps") for cell in chosen(table, **fixed)}):
            cells = cells_of(table, **{"local_steps": q} | fixed)
            if key in cells:
                found[q] = rounds_to_reach(cells[key], target, metric or table["metric"])
    return dict(sorted(found.items()))


def table_d1_beside_paper(tables: Sequence[Table], target: float, metric: str | None = None, **fixed: Any) -> str:
    """MB to ``target`` for none and for the hexagonal quantiser at 3 bits, by Q, ours beside the paper's Table D.1."""
    ours = {}
    for table in tables:
        for q in sorted({setting(table, cell, "local_steps") for cell in chosen(table, **fixed)}):
            for key, cell in cells_of(table, **{"local_steps": q} | fixed).items():
                ours[key, q] = megabytes_to(table, cell, target, metric)
    steps = sorted({q for _, q in ours} | set(TABLE_D1["none", EXACT]))
    rows = [["compressor", "b", *(f"Q = {q}" for q in steps), "|", *(f"Q = {q}" for q in TABLE_D1["none", EXACT])]]
    for (name, bits), printed in TABLE_D1.items():
        key: Key = next((k, bits) for k, word in PAPER_NAMES.items() if word == name)
        cells = [_reached(ours[key, q]) if (key, q) in ours else "" for q in steps]
        rows.append([WORDS[key[0]], str(bits), *cells, "|", *(_pair(v, 1) for v in printed.values())])
    return "\n".join([
        _columns(rows), f"MB to {target:g}: ours, counted | MIMIC-III to F1 = 0.4, Table D.1 (Q = 1: Algorithm 2)"
    ])  # fmt: skip


def time_table(rounds: Mapping[int, Sequence[float | None]], step_s: float = STEP_S) -> str:
    """Seconds to the target by latency and Q from the rounds of each seed, ours beside the paper's Table 5.

    ``rounds``: from :func:`rounds_by_steps`. Bytes cost no time, as in the paper.
    """
    steps = sorted(set(rounds) | {q for row in TABLE_5.values() for q in row})
    rows = [["t_c in ms", *(f"Q = {q}" for q in steps), "|", *(f"Q = {q}" for q in TABLE_5[1])]]
    for latency, printed in TABLE_5.items():
        model, ours = TimeModel(latency / 1000, step_s), []
        for q in steps:
            found = rounds.get(q, ())
            ours.append(_reached([None if v is None else model.seconds(v, q) for v in found], 1) if len(found) else "")
        rows.append([str(latency), *ours, "|", *(_pair(v, 1) for v in printed.values())])
    counts = ", ".join(f"Q = {q} {_reached(list(found), 0)}" for q, found in sorted(rounds.items()))
    return "\n".join([
        _columns(rows), f"seconds to the target, {1000 * step_s:g} ms a local step | MIMIC-III to F1 = 0.45, Table 5",
        f"rounds to the target here: {counts}",
    ])  # fmt: skip


def draw_latency(
    ax: Axes, rounds: Mapping[int, Sequence[float | None]], step_s: float = 0.01, most_ms: float = 300.0
) -> str:
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
        seconds = [TimeModel(float(v) / 1000, step_s).seconds(mean, q) for v in latency]
        lines[q] = torch.tensor(seconds, dtype=torch.float64)
        ax.plot(latency, lines[q], label=f"$Q$ = {q}: {mean:.0f} rounds", markevery=50, **series(len(lines) - 1))
    ax.set(xlabel="latency of a round trip $t_c$ in ms", ylabel="seconds to the target", ylim=(0, None))
    ax.legend(loc="upper left")
    order = list(lines)
    fastest = torch.stack(list(lines.values())).argmin(0)
    changes = [0, *(torch.nonzero(fastest.diff()).flatten() + 1).tolist()]
    told = ", ".join(f"Q = {order[int(fastest[i])]} from {float(latency[i]):.0f} ms on" for i in changes)
    never = f"; some seed never reaches the target with Q = {', '.join(map(str, left_out))}" if left_out else ""
    return f"Fastest, at {1000 * step_s:g} ms a local step: {told}{never}."


# --- bytes of one round


def accounts_table(
    problem: VerticalProblem, keys: Sequence[Key], batch_size: int = 100, local_steps: int = 1, seed: int = 0
) -> str:
    """One round of Algorithm 1 in bytes: what really crossed, beside the three accounts, by compressor and bits.

    The accounts charge b bits a component, of the server model too, and nothing for headers, ranges or positions; what
    really crossed also has biases of the server model in 32 bits.
    """
    settings = problem.settings
    theta0 = problem.fusion.init(stream(seed, "init server"), torch.float32)
    size = sum(p.numel() for p in theta0.values())
    accounts = ("literal", "minimal", "paper")
    rows = [["compressor", "b", "really up", "really down", "real", *accounts, "real/literal"]]
    for name, bits in keys:
        config = Config(compressor=name, bits=bits, batch_size=batch_size, local_steps=local_steps)
        seen = one_round(problem, config, seed)
        charged = [
            sum(bits_per_round(a, batch_size, [settings.embedding] * settings.parties, size, bits)) / 8
            for a in accounts
        ]
        down = seen.down_embeddings + seen.down_server
        rows.append([WORDS[name], str(bits), *(f"{v:,.0f}" for v in (seen.up, down, seen.total, *charged)),
                     f"{seen.total / charged[0]:.3f}"])  # fmt: skip
    return "\n".join([
        _columns(rows), f"bytes of one round: M = {settings.parties}, B = {batch_size}, P_m = {settings.embedding}, "
        f"{size:,} numbers in the server model",
    ])  # fmt: skip


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


def _columns(rows: Sequence[Sequence[str]]) -> str:
    wide = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(f"{v:<{w}}" if i == 0 else f"{v:>{w}}" for i, (v, w) in enumerate(zip(row, wide, strict=True)))
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)

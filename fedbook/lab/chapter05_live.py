"""Chapter 5's live panel, bits against accuracy, and what a run takes by the clock: latency against local steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from fedbook import arguments, compression
from fedbook.federation.loop import Rounds
from fedbook.lab import live
from fedbook.lab.chapter05_paper import PARTIES, SETTINGS, STEP_S, TABLE_5, rounds_of_table_5
from fedbook.lab.panels import panels, plain_log
from fedbook.lab.style import PALETTE, REFERENCE, band
from fedbook.papers.cvfl import CVFL, EXACT, Config
from fedbook.papers.cvfl.accounts import MB, TimeModel, bits_per_round
from fedbook.papers.cvfl.problem import VerticalProblem, VerticalSettings, vertical_problem

# --- bits against accuracy, live

ROUNDS, TARGET = 100, 0.93
COMPRESSORS = {kind.words: name for name, kind in compression.COMPRESSORS.items()}


class Step(NamedTuple):
    """After a round: accuracy on the test images, megabytes up and down so far, and what runs."""

    accuracy: float
    megabytes: float
    words: str


@lru_cache(maxsize=1)
def _digits() -> VerticalProblem:
    """The digits in quadrants, the same for every run."""
    return vertical_problem("digits", VerticalSettings())


class LiveRuns(live.LiveRuns):
    """C-VFL on digits, live: accuracy against the megabytes so far."""

    remembered, before = 5, f"Before, to {TARGET:.0%}"
    plots = (
        live.Plot(lambda _, s: [(s.megabytes, s.accuracy)], "megabytes so far, up and down", "accuracy, test images",
                  (0.005, 40.0), (0, 1.02)),
    )  # fmt: skip

    def start(self, compressor: str, bits: int, local_steps: int, seed: int) -> Iterator[tuple[int, Step]]:
        """Round after round (t, Step) of Algorithm 1. Without a compressor ``bits`` means nothing.

        Raises: TypeError, ValueError.
        """
        bits = EXACT if compressor == "none" else bits
        config = Config(rounds=ROUNDS, compressor=compressor, bits=bits, local_steps=local_steps)
        task = _digits()
        rounds = Rounds(CVFL(config, task), task.federation(), ROUNDS, seeds=[seed], evaluate=task.evaluation())
        words = f"{compressor}, b = {bits}, Q = {local_steps}, seed {seed}"
        return self.remember(words, _steps(rounds, words))

    def draw(self, axes: Any, history: live.Steps) -> str:
        """The runs and the target. Raises: ValueError."""
        sentence = super().draw(axes, history)
        (ax,) = panels(axes, 1)
        ax.axhline(TARGET, color=REFERENCE, linewidth=1.0, linestyle=":")
        plain_log(ax.xaxis)
        ax.minorticks_off()
        return sentence

    def numbers(self, steps: live.Steps) -> str:
        reached = next((step.megabytes for _, step in steps if step.accuracy >= TARGET), None)
        return "not reached" if reached is None else f"first after {reached:.3g} MB"

    def sentence(self, history: live.Steps) -> str:
        t, last = history[-1]
        return (
            f"After {t} rounds of {last.words}: accuracy {last.accuracy:.3f} for {last.megabytes:.3g} MB; "
            f"{TARGET:.0%} {self.numbers(history)}"
        )


def _steps(rounds: Rounds, words: str) -> Iterator[tuple[int, Step]]:
    total = 0
    for record in rounds:
        total += record.bytes_up[0] + record.bytes_down[0]
        yield record.t + 1, Step(record.metrics["accuracy"][0], total / MB, words)


# --- latency against the number of local steps

LATENCIES_MS = (0.1, 5000.0)


class Target(NamedTuple):
    """Mean and deviation of the rounds to the target by Q; bytes of a round; and what they are of."""

    rounds: dict[int, tuple[float, float]]
    bytes_per_round: float
    words: str


def rounds_to_target(measured: Mapping[int, Sequence[float | None]], bytes_per_round: float, words: str) -> Target:
    """Q -> rounds of each seed as a table; a Q that one seed left without the target (None) is left out.

    The deviation is that of the seeds at hand (divided by their number, as the paper's). Raises: TypeError, ValueError.
    """
    if not isinstance(measured, Mapping) or not measured:
        raise arguments.wrong(TypeError, "measured", measured, "a mapping from Q to the rounds of each seed")
    found = {}
    for q, rounds in measured.items():
        arguments.integer("measured, Q", q, 1)
        if not isinstance(rounds, Iterable) or isinstance(rounds, str) or not (each := list(rounds)):
            raise arguments.wrong(TypeError, f"measured, Q = {q}", rounds, "a list of rounds, one or more")
        each = [None if r is None else arguments.real(f"measured, Q = {q}", r, above=0.0) for r in each]
        if None not in each:
            found[q] = (float(np.mean(each)), float(np.std(each)))
    if not found:
        raise arguments.wrong(ValueError, "measured", measured, "at least one Q with which all seeds reach the target")
    if not isinstance(words, str) or not words.strip():
        raise arguments.wrong(TypeError, "words", words, "what the rounds are of, and to which target")
    return Target(dict(sorted(found.items())), arguments.real("bytes_per_round", bytes_per_round, 0.0), words)


def paper_rounds() -> Target:
    """The rounds behind Table 5 (MIMIC-III to F1 = 0.45, hexagons of 3 bits), its deviations, bytes of Algorithm 1."""
    one, latency = SETTINGS["MIMIC-III"], 1
    charged = bits_per_round("literal", one.batch_size, [one.width] * PARTIES, one.server_size, 3)
    second = {q: TimeModel(latency / 1000, STEP_S).seconds(1, q) for q in TABLE_5[latency]}
    found = {q: (mean, TABLE_5[latency][q][1] / second[q]) for q, (mean, _) in rounds_of_table_5().items()}
    return Target(found, sum(charged) / 8, "the paper's Table 5, MIMIC-III to F1 = 0.45")


def fastest(
    rounds: Mapping[int, float], step_s: float, sending_s: float, low: float, high: float
) -> list[tuple[float, int]]:
    """[(latency, Q), ...]: from that latency on, Q is the fastest; the first latency is ``low``. All in seconds.

    Seconds to the target are rounds_Q (latency + Q step + sending): lines in the latency, of which this is the lower
    envelope. Raises: TypeError, ValueError.
    """
    step_s, sending_s = arguments.real("step_s", step_s, 0.0), arguments.real("sending_s", sending_s, 0.0)
    low = arguments.real("low", low, 0.0)
    high = arguments.real("high", high, above=low)
    if not isinstance(rounds, Mapping) or not rounds:
        raise arguments.wrong(TypeError, "rounds", rounds, "a mapping from Q to its rounds to the target")
    slopes = {arguments.integer("rounds, Q", q, 1): arguments.real("rounds", r, above=0.0) for q, r in rounds.items()}
    lines = {q: (r, r * (q * step_s + sending_s)) for q, r in slopes.items()}
    here = min(lines, key=lambda q: (lines[q][0] * low + lines[q][1], lines[q][0]))
    changes = [(low, here)]
    while True:
        slope, start = lines[here]
        # A line overtakes further on only if it is flatter.
        ahead = [((b - start) / (slope - a), a, q) for q, (a, b) in lines.items() if a < slope]
        if not ahead or min(ahead)[0] >= high:
            return changes
        latency, _, here = min(ahead)
        changes.append((latency, here))


def latency_drawer(
    measured: Mapping[int, Sequence[float | None]], bytes_per_round: float, words: str
) -> Callable[..., str]:
    """``draw(axes, latency_ms, step_ms, bandwidth, source)``: seconds to the target by Q, from measured rounds.

    ``measured``: Q -> rounds of each seed to the target called ``words`` (None: never). Left by latency, right at the
    chosen one, in parts. ``bandwidth`` in MB/s (math.inf: bytes cost nothing, as in Table 5). ``source``: "measured"
    or "paper". Bands and bars: one deviation. Raises: TypeError, ValueError.
    """
    tables = {"measured": rounds_to_target(measured, bytes_per_round, words), "paper": paper_rounds()}
    missing = {"measured": sorted(set(measured) - set(tables["measured"].rounds)), "paper": []}

    def draw_latency(axes: Any, *, latency_ms: float, step_ms: float, bandwidth: float, source: str) -> str:
        left, right = panels(axes, 2)
        latency_ms = arguments.real("latency_ms", latency_ms, *LATENCIES_MS)
        step_ms = arguments.real("step_ms", step_ms, above=0.0)
        bandwidth = arguments.real("bandwidth", bandwidth, above=0.0, infinite=True)
        table = tables[arguments.one_of("source", source, tables)]
        sending = table.bytes_per_round / (bandwidth * MB)
        means = {q: mean for q, (mean, _) in table.rounds.items()}
        ends = [v / 1000 for v in LATENCIES_MS]
        changes = fastest(means, step_ms / 1000, sending, *ends)
        grid = np.geomspace(*ends, 25)

        def seconds(q: int, latency: Any, rounds: float) -> Any:
            return rounds * (latency + q * step_ms / 1000 + sending)

        for i, (q, (mean, deviation)) in enumerate(table.rounds.items()):
            low, high = (seconds(q, grid, max(r, 0.05 * mean)) for r in (mean - deviation, mean + deviation))
            band(left, 1000 * grid, seconds(q, grid, mean), low, high, i, f"Q = {q}")
        turns = [(1000 * latency, seconds(q, latency, means[q])) for latency, q in changes[1:]]
        if turns:
            left.plot(
                *zip(*turns, strict=True), "X", color="black", markersize=8, zorder=5, label="the fastest changes"
            )
        left.axvline(latency_ms, color=REFERENCE, linewidth=1.2, linestyle=":")
        left.set(xlim=LATENCIES_MS, xlabel="$t_c$: latency of a round trip (ms)")
        left.set(ylabel="seconds to the target", title=table.words)
        for axis in (left.xaxis, left.yaxis):
            plain_log(axis)
        left.minorticks_off()
        left.legend(loc="upper left", frameon=True, framealpha=0.9, edgecolor="none")
        chosen = {q: float(seconds(q, latency_ms / 1000, mean)) for q, mean in means.items()}
        _draw_parts(right, table, chosen, (latency_ms / 1000, step_ms / 1000, sending))
        return _latency_sentence(table, chosen, changes, missing[source], latency_ms)

    return draw_latency


def _draw_parts(ax: Axes, table: Target, chosen: Mapping[int, float], costs: tuple[float, float, float]) -> None:
    latency, step, sending = costs
    places, below = np.arange(len(chosen)), np.zeros(len(chosen))
    parts = (
        ("waiting", [latency for _ in chosen], PALETTE[0], ""),
        ("computing", [q * step for q in chosen], PALETTE[4], "//"),
        ("sending", [sending for _ in chosen], PALETTE[2], ".."),
    )  # fmt: skip
    rounds = np.array([mean for mean, _ in table.rounds.values()])
    for label, each, colour, hatch in parts:
        heights = rounds * np.array(each)
        ax.bar(places, heights, bottom=below, width=0.65, color=colour, hatch=hatch, edgecolor="white", linewidth=0,
               label=label)  # fmt: skip
        below = below + heights
    spread = np.array([chosen[q] * deviation / mean for q, (mean, deviation) in table.rounds.items()])
    ax.vlines(places, below - spread, below + spread, color="black", linewidth=2.0)
    ax.set(xticks=places, xticklabels=[f"{q}" for q in chosen], xlabel="$Q$: local steps", ylim=(0, None))
    ax.set_title(f"at {1000 * latency:.4g} ms")
    ax.grid(False, axis="x")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)


def _latency_sentence(
    table: Target, chosen: Mapping[int, float], changes: list, missing: list[int], latency_ms: float
) -> str:
    order = sorted(chosen, key=chosen.get)
    best, others = order[0], order[1:]
    spread = {q: chosen[q] * deviation / mean for q, (mean, deviation) in table.rounds.items()}
    beside = ", ".join(f"Q = {q} {_number(chosen[q])} s" for q in others)
    close = [q for q in others if chosen[q] - chosen[best] < spread[q] + spread[best]]
    near = f" (within a deviation of each other: Q = {', '.join(map(str, [best, *close]))})" if close else ""
    by = f"Q = {changes[0][1]}" + "".join(f", from {1000 * at:.4g} ms on Q = {q}" for at, q in changes[1:])
    left_out = f" Left out, as not every seed got there: Q = {', '.join(map(str, missing))}." if missing else ""
    return (
        f"At {latency_ms:.4g} ms Q = {best} is fastest, {_number(chosen[best])} ± {_number(spread[best])} s"
        + (f"; {beside}" if beside else "")
        + f"{near}. Fastest by latency: {by}.{left_out}"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

"""Chapter 2 live: a few methods and seeds at small size, a panel with Run and Stop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from fedbook import arguments
from fedbook.experiment import execute, plan
from fedbook.federation.loop import Rounds
from fedbook.lab import live
from fedbook.lab.chapter02_stored import NAMED, OURS
from fedbook.lab.panels import several
from fedbook.lab.results import text_table
from fedbook.papers.hetero_ssfl import PAPER

LR = 0.3  # unless a table tuned it

# --- a few methods and seeds


def experiment(method: str, seeds: Sequence[int] = (0,), problem: str = "digits", profile: str = "quick",
               **changes: Any) -> Rounds:  # fmt: skip
    """A method run to its end, with a progress bar. Raises: TypeError, ValueError."""
    chosen = plan(PAPER, method, problem, profile, {"lr": LR} | changes, seeds, "cpu")
    return execute(chosen.rounds(), label=NAMED[chosen.method])[0]


def outcome_table(
    runs: Mapping[str, Rounds], metrics: Sequence[str] = ("probe_few", "random_probe_few", "knn", "alignment_test")
) -> str:
    """Mean after the last round and every seed's number, as text; accuracies in per cent.

    ``runs``: label to what :func:`experiment` returned. Raises: TypeError, ValueError.
    """
    rows = [["mean (each seed)", *metrics]]
    for label, run in several("runs", runs).items():
        if not isinstance(run, Rounds):
            raise arguments.wrong(TypeError, f"runs[{label!r}]", run, "what experiment returned")
        last = next((r.metrics for r in reversed(run.history) if r.metrics), {})
        rows.append(
            [label, *(_seed_by_seed(last[m], m.removeprefix("random_")) if m in last else "-" for m in metrics)]
        )
    return text_table(rows)


def _seed_by_seed(values: Sequence[float], metric: str) -> str:
    """A few seeds one by one: an interval of two would be wider than the axis."""
    found, form = OURS.shown(torch.tensor(values, dtype=torch.float64), metric), OURS.digits(metric)
    return f"{found.mean():{form}} ({', '.join(f'{v:{form}}' for v in found.tolist())})"


# --- the panel

ROUNDS, JUDGED_EVERY = 15, 3
METHODS = {NAMED[name]: name for name in ("hetero-ssfl", "local-ssl", "local-ssl-plus-rad", "fedbyol")}
MIXTURES = {
    "three": "cnn_s,cnn_m,mlp", "cnn_s and mlp": "cnn_s,mlp", "cnn_m alone": "cnn_m", "mlp alone": "mlp",
}  # fmt: skip
MUS = (0.0, 0.1, 0.5, 2.0, 8.0)


class Step(NamedTuple):
    """After a round: the metrics (None: not judged in this round), and what runs."""

    metrics: dict[str, float] | None
    words: str


class LiveRuns(live.LiveRuns):
    """Five clients of two digits each, live: the probe with 5 labels a class and CKA of two clients by round.

    ``lr``: by method, the step sizes that a table tuned.
    """

    legend = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.2)}

    @property
    def plots(self) -> tuple[live.Plot, ...]:
        """Both where they were judged; the probe's curves begin at the models as drawn."""
        probe, alignment, ends = OURS.label("probe_few"), OURS.label("alignment_test"), (0, ROUNDS)
        return (
            live.Plot(_probe, "round $t$", probe, ends),
            live.Plot(_alignment, "round $t$", alignment, ends, (-0.05, 1.05)),
        )

    def __init__(self, lr: Mapping[str, float] | None = None) -> None:
        super().__init__()
        self.lr = dict(lr or {})

    def start(self, method: str, mu: float, local_epochs: int, architectures: str) -> Iterator[tuple[int, Step]]:
        """Round after round (t, Step). Only Hetero-SSFL has mu; FedBYOL has one model.

        Raises: TypeError, ValueError.
        """
        name = arguments.one_of("method", method, METHODS.values())
        arguments.one_of("architectures", architectures, MIXTURES.values())
        changes = {"mu": mu, "local_epochs": local_epochs, "architectures": architectures, "rounds": ROUNDS}
        own = plan(PAPER, name, "digits", changes={"lr": self.lr.get(name, LR)} | changes, device="cpu")
        words = f"{NAMED[name]}, E = {local_epochs}"
        if name == "hetero-ssfl":
            words += f", μ = {mu:g}"
        words += ", cnn_m" if name == "fedbyol" else f", {architectures}"
        return self.remember(words, _steps(own.rounds(), words))

    def numbers(self, steps: live.Steps) -> str:
        t, last = live.newest(steps, "metrics")
        return (
            f"after round {t} {100 * last['probe_few']:.1f} % with 5 labels a class (untrained "
            f"{100 * last['random_probe_few']:.1f}), CKA {last['alignment_test']:.2f}, own loss {last['self_loss']:.2f}"
        )

    def sentence(self, history: live.Steps) -> str:
        t, last = history[-1]
        return f"Round {t}, {last.words}: {self.numbers(history)}"


def _steps(run: Rounds, words: str) -> Iterator[tuple[int, Step]]:
    judge, run.evaluate = run.evaluate, None  # judged here, and more seldom
    for record in run:
        t, metrics = record.t + 1, None
        if t == 1 or t % JUDGED_EVERY == 0:
            metrics = {name: float(values[0]) for name, values in judge(run.server, run.clients).items()}
        yield t, Step(metrics, words)


def _probe(t: int, step: Step) -> list[tuple[float, float]]:
    if step.metrics is None:
        return []
    start = [(0, 100 * step.metrics["random_probe_few"])] if t == 1 else []
    return [*start, (t, 100 * step.metrics["probe_few"])]


def _alignment(t: int, step: Step) -> list[tuple[float, float]]:
    return [] if step.metrics is None else [(t, step.metrics["alignment_test"])]

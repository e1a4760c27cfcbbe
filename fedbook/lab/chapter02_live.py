"""Chapter 2 live: a few methods and seeds at small size, a panel with Run and Stop, one stored cell once more."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from fedbook import arguments
from fedbook.experiment import execute, plan
from fedbook.federation.loop import Rounds
from fedbook.lab.chapter02_stored import NAMED, OURS, cells_of
from fedbook.lab.panels import panels, several
from fedbook.lab.results import Table, text_table
from fedbook.lab.stored_cells import has
from fedbook.lab.style import series
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


# --- one stored cell once more


class Again(NamedTuple):
    """A stored run's metrics and those of the same plan run here, and the seconds that took."""

    words: str
    stored: dict[str, float]
    here: dict[str, float]
    seconds: float


def rerun(table: Table, method: str, slot: int = 0, **fixed: Any) -> Again:
    """Run one cell of a stored comparison again, for one of its seeds. Other processors round otherwise.

    Raises: TypeError, ValueError (no such cell, no such seed).
    """
    cells = cells_of(table, **({"method": method} | fixed))
    cell = cells[method]
    slot = arguments.integer("slot", slot, 0, len(cell["runs"]) - 1)
    settings = {**table["settings"], **cell["tuned"], **cell["varied"]}
    run = cell["runs"][slot]
    again = plan(PAPER, method, table["problem"], table["profile"], settings, (run["seed"],), "cpu").rounds()
    begun = time.perf_counter()
    execute(again, label=f"{NAMED[method]} again")
    seconds = time.perf_counter() - begun
    last = next(r.metrics for r in reversed(again.history) if r.metrics)
    names = [name for name in OURS.metrics if name in last and has(cell, name)]
    return Again(
        f"{NAMED[method]}, seed {run['seed']}" + "".join(f", {k} = {v}" for k, v in cell["varied"].items()),
        {name: float(run["metrics"][name]) for name in names},
        {name: float(last[name][0]) for name in names},
        seconds,
    )


# --- the panel

ROUNDS, JUDGED_EVERY = 15, 3
REMEMBERED = 4  # earlier runs that stay in the picture
METHODS = {NAMED[name]: name for name in ("hetero-ssfl", "local-ssl", "local-ssl-plus-rad", "fedbyol")}
MIXTURES = {
    "three": "cnn_s,cnn_m,mlp", "cnn_s and mlp": "cnn_s,mlp", "cnn_m alone": "cnn_m", "mlp alone": "mlp",
}  # fmt: skip
MUS = (0.0, 0.1, 0.5, 2.0, 8.0)


class Step(NamedTuple):
    """After a round: the metrics (None: not judged in this round), and what runs."""

    metrics: dict[str, float] | None
    words: str


class LiveRuns:
    """Five clients of two digits each, live: ``start`` and ``draw`` for a run_panel; they remember earlier runs.

    ``curves``: words of a run -> its steps so far, of the last ``REMEMBERED`` + 1 runs. The same settings again
    replace the run before. ``lr``: by method, the step sizes that a table tuned.
    """

    def __init__(self, lr: Mapping[str, float] | None = None) -> None:
        self.lr = dict(lr or {})
        self.curves: dict[str, list[tuple[int, Step]]] = {}

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
        return self._steps(own.rounds(), words + (", cnn_m" if name == "fedbyol" else f", {architectures}"))

    def _steps(self, run: Rounds, words: str) -> Iterator[tuple[int, Step]]:
        judge, run.evaluate = run.evaluate, None  # judged here, and more seldom
        self.curves.pop(words, None)
        for old in list(self.curves)[:-REMEMBERED]:
            del self.curves[old]
        self.curves[words] = steps = []  # a run that was given up holds a list of its own
        for record in run:
            t, metrics = record.t + 1, None
            if t == 1 or t % JUDGED_EVERY == 0:
                metrics = {name: float(values[0]) for name, values in judge(run.server, run.clients).items()}
            steps.append((t, Step(metrics, words)))
            yield steps[-1]

    def draw(self, axes: Any, history: Sequence[tuple[int, Step]]) -> str:
        """The probe with 5 labels a class and CKA of two clients by round: this run, and thinner the ones before.

        The probe's curves begin at the models as drawn. Shapes: ``axes`` two of them. Raises: ValueError.
        """
        left, right = panels(axes, 2)
        if not history:
            raise arguments.wrong(ValueError, "history", history, "at least one step")
        words, earlier = history[0][1].words, {}
        for name, steps in self.curves.items():
            if name != words and steps:
                earlier[name] = steps
        for i, (name, steps) in enumerate([*earlier.items(), (words, history)]):
            look = series(0 if name == words else 1 + i) | {"linewidth": 2.2 if name == words else 0.9}
            t, found = zip(*((t, step.metrics) for t, step in steps if step.metrics is not None), strict=True)
            few = [found[0]["random_probe_few"], *(m["probe_few"] for m in found)]
            left.plot([0, *t], [100 * v for v in few], **look)
            right.plot(t, [m["alignment_test"] for m in found], label=name, **look)
        left.set(xlim=(0, ROUNDS), xlabel="round $t$", ylabel=OURS.label("probe_few"))
        right.set(xlim=(0, ROUNDS), ylim=(-0.05, 1.05), xlabel="round $t$", ylabel=OURS.label("alignment_test"))
        right.legend(loc="upper left", bbox_to_anchor=(0.0, -0.2), borderaxespad=0.0)
        before = "; ".join(f"{name}: {_judged(steps)}" for name, steps in earlier.items())
        return f"Round {history[-1][0]}, {words}: {_judged(history)}." + (f" Before: {before}." if before else "")


def _judged(steps: Sequence[tuple[int, Step]]) -> str:
    """The newest numbers there are, and after which round."""
    t, last = next((t, step.metrics) for t, step in reversed(steps) if step.metrics is not None)
    return (
        f"after round {t} {100 * last['probe_few']:.1f} % with 5 labels a class (untrained "
        f"{100 * last['random_probe_few']:.1f}), CKA {last['alignment_test']:.2f}, own loss {last['self_loss']:.2f}"
    )

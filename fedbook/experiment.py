"""Experiments by name: what the command line runs, and what a chapter's stored tables come from."""

from __future__ import annotations

import itertools
import json
import math
import numbers
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from fedbook import arguments, interrupts, outputs
from fedbook.data import BrokenFile
from fedbook.federation.composed import Compression
from fedbook.federation.history import finite
from fedbook.federation.loop import Rounds, run
from fedbook.federation.tree import leaves
from fedbook.papers.description import Paper, own_settings
from fedbook.progress import phase

PROFILES = ("quick", "standard", "paper")
TABLE, CELLS = "compare.json", "cells.json"  # a comparison, and as far as it came
UNFINISHED = "unfinished"  # a folder beside them: the checkpoint of the run that was cut off
RUNAWAY = 1e6  # a mean loss beyond this, of either sign, says nothing about the data any more


class BadSettings(ValueError):
    """Settings that a method or a problem refuses; the message names what, what was given and what is allowed."""


@dataclass(frozen=True)
class Plan:
    """A fully named experiment: same plan, same numbers."""

    paper: Paper
    method: str
    problem: str
    profile: str = "quick"
    changes: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    device: str = "cpu"

    def settings(self) -> dict[str, Any]:
        """Defaults, changed by the profile, by what fits the problem, by ``changes``."""
        fits = dict(self.paper.fits.get(self.problem, {}))
        if self.profile == "paper":
            fits |= self.paper.as_published.get(self.problem, {}) | self.paper.published_for.get(self.method, {})
        return self.paper.defaults() | dict(self.paper.profiles[self.profile]) | fits | dict(self.changes)

    def rounds(self, **options: Any) -> Rounds:
        """The run, ready to start. Raises: BadSettings, fedbook.data.DataNotFound."""
        settings = self.settings()
        if Compression in self.paper.settings:
            inner, outer = own_settings(Compression, settings).around, options.get("compose")
            options["compose"] = inner if outer is None else lambda algorithm: outer(inner(algorithm))
        try:
            return self.paper.build(self.method, self.problem, settings, self.seeds, self.device, **options)
        except BrokenFile:
            raise  # a bad file, not a bad setting
        except (ValueError, TypeError) as error:
            raise BadSettings(str(error)) from error


def plan(
    paper: Paper,
    method: str | None = None,
    problem: str | None = None,
    profile: str = "quick",
    changes: Mapping[str, Any] | None = None,
    seeds: Sequence[int] = (0,),
    device: str = "auto",
    whole: bool = True,
) -> Plan:
    """A checked :class:`Plan`; the first method and problem of the paper are the defaults.

    ``changes`` may hold texts (from a command line); they are read by the type of the setting. Not ``whole``: what a
    comparison varies is still missing, so that only names and types are checked.
    Raises: TypeError, ValueError naming the argument, what was given and what is allowed.
    """
    method = arguments.one_of("method", next(iter(paper.methods)) if method is None else method, paper.methods)
    problem = arguments.one_of("problem", next(iter(paper.problems)) if problem is None else problem, paper.problems)
    profile = arguments.one_of("profile", profile, paper.profiles)
    defaults = paper.defaults()
    read = {name: _read("--set", name, value, defaults) for name, value in (changes or {}).items()}
    seeds = tuple(arguments.integer("seed", seed, 0, 2**63 - 1) for seed in seeds)
    chosen = Plan(paper, method, problem, profile, read, seeds, pick_device(device))
    settings = chosen.settings()
    for kind in paper.settings if whole else ():  # refuses values that are not allowed
        own_settings(kind, settings)
    return chosen


def pick_device(word: str) -> str:
    """ "auto" is the GPU where there is one. Raises: ValueError for cuda without a GPU."""
    word = arguments.one_of("device", word, ("auto", "cpu", "cuda"))
    if word == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: got 'cuda', but PyTorch finds no GPU here; allowed is cpu or auto")
    return ("cuda" if torch.cuda.is_available() else "cpu") if word == "auto" else word


def _read(word: str, name: str, value: Any, defaults: Mapping[str, Any]) -> Any:
    kind = type(defaults[arguments.one_of(word, name, defaults)])
    if isinstance(value, numbers.Real) and not isinstance(value, (bool, int, float)):
        # NumPy's, for which JSON has no word
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    if not isinstance(value, str) or kind is str:
        return value
    try:
        if kind is bool:
            return {"true": True, "false": False}[value.lower()]
        return kind(value)
    except (KeyError, ValueError):
        allowed = {int: "a whole number", float: "a number", bool: "true or false"}[kind]
        raise ValueError(f"{word} {name}: got {value!r}; allowed is {allowed}") from None


def axes(
    paper: Paper,
    changes: Mapping[str, Any],
    vary: Mapping[str, Sequence[Any]],
    tune: Mapping[str, Sequence[Any]],
    tune_changes: Mapping[str, Any],
    words: Sequence[str] = ("changes", "vary", "tune", "tune_changes"),
) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """``vary`` and ``tune`` of a comparison, values read (a table holds numbers, not texts) and none twice.

    ``words``: what a message calls the four.
    Raises: TypeError, ValueError: a setting that two of the four name (``tune_changes`` may change ``changes``).
    """
    named = dict(zip(words, (changes, vary, tune, tune_changes), strict=True))
    for one, other in itertools.combinations(words, 2):
        both = sorted(set(named[one]) & set(named[other]))
        if both and (one, other) != (words[0], words[3]):
            raise arguments.wrong(ValueError, one, both[0], f"a setting that {other} does not name as well")
    for word in words[2:]:
        if "judge" in named[word]:
            allowed = "any setting but judge: trials are judged on held-out data"
            raise arguments.wrong(ValueError, word, "judge", allowed)
    if tune_changes and not tune:
        raise arguments.wrong(ValueError, words[3], sorted(tune_changes)[0], f"used beside {words[2]} only")
    for name, value in tune_changes.items():
        _read(words[3], name, value, paper.defaults())
    return _axis(words[1], vary, paper), _axis(words[2], tune, paper)


def _axis(word: str, values_by_name: Mapping[str, Sequence[Any]], paper: Paper) -> dict[str, list[Any]]:
    read = {}
    for name, values in values_by_name.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise arguments.wrong(ValueError, name, values, "a non-empty list of values")
        read[name] = list(dict.fromkeys(_read(word, name, value, paper.defaults()) for value in values))
    return read


def at_edge(kinds: Sequence[type], grid: Mapping[str, Sequence[Any]], chosen: Mapping[str, Any]) -> list[str]:
    """The settings whose chosen number is the first or last of its grid: a better one may lie beyond it.

    Not those where nothing is allowed beyond, and not words.
    """
    names = []
    for name, value in chosen.items():
        values = grid[name]
        if len(values) == 1 or isinstance(value, (bool, str)) or value not in (min(values), max(values)):
            continue
        field = next(kind.__dataclass_fields__[name] for kind in kinds if name in kind.__dataclass_fields__)
        ends = {min(values): "minimum", max(values): "maximum"}
        if field.metadata["limits"].get(ends[value]) != value:
            names.append(name)
    return names


def result(rounds: Rounds, plan: Plan, seconds: float, slot: int = 0) -> dict[str, Any]:
    """The record of a finished run of one seed, ready for JSON: the last metrics, bytes, privacy."""
    last = next((r for r in reversed(rounds.history) if r.metrics), None)
    privacy = rounds.privacy[slot].report(plan.paper.delta if rounds.delta is None else rounds.delta)
    total = rounds.bytes.total
    return finite(
        {
            "paper": plan.paper.name,
            "method": plan.method,
            "problem": plan.problem,
            "profile": plan.profile,
            "seed": plan.seeds[slot],
            "device": plan.device,
            "rounds": len(rounds.history),
            "seconds": round(seconds, 3),
            "metrics": _nested({name: values[slot] for name, values in last.metrics.items()}) if last else {},
            "bytes_up": sum(total[part]["up"][slot] for part in total),
            "bytes_down": sum(total[part]["down"][slot] for part in total),
            "epsilon": privacy["epsilon"],
            "delta": None if privacy["epsilon"] is None else privacy["delta"],
            "privacy": privacy,
            "stopped": rounds.stopped,
            "ended": ended(rounds, plan.paper.metric, slot)[0],
        }
    )


def ended(rounds: Rounds, metric: str, slot: int = 0) -> tuple[str, str | None]:
    """How the run of one seed ended: "done", "nothing" (no round), "stopped" or "diverged"; and why, if not done.

    Diverged: an algorithm said so, its numbers or its ``metric`` are no longer finite, or its loss is beyond RUNAWAY.
    """
    if rounds.stopped is not None:
        return "diverged" if rounds.diverged else "stopped", rounds.stopped
    if not len(rounds.history):
        return "nothing", "no round was asked for"
    for tree in (rounds.server, rounds.clients):
        for name, leaf in leaves(tree):
            if isinstance(leaf, torch.Tensor) and not bool(leaf[slot].isfinite().all()):
                return "diverged", f"{name} is no longer finite (a smaller step size may help)"
    judged = next((r.metrics for r in reversed(rounds.history) if r.metrics), {})
    own = {name: values[slot] for name, values in judged.items()}
    expected = (metric, "loss") if metric == "accuracy" else (metric,)  # where features are judged, some have no loss
    for name in expected:
        if name in own and own[name] is None:
            return "diverged", f"{name} is no longer finite (a smaller step size may help)"
    if abs(own.get("loss") or 0.0) > RUNAWAY:
        return "diverged", f"the loss has grown to {own['loss']:.3g} (a smaller step size may help)"
    return "done", None


def _nested(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics called "name/part" as a dictionary "name" of their parts."""
    nested: dict[str, Any] = {}
    for name, value in metrics.items():
        whole, _, part = name.partition("/")
        if part:
            nested.setdefault(whole, {})[part] = value
        else:
            nested[whole] = value
    return nested


def execute(
    rounds: Rounds, out: Path | None = None, label: str | None = None, metric: str | None = None
) -> tuple[Rounds, float]:
    """Run to the end and write the history under ``out`` if given; the rounds and the seconds it took.

    Interrupted (Ctrl-C) or failed, a run with a path leaves a checkpoint of the last finished round. The seconds of
    rounds that a checkpoint brought along count.
    """
    begun = time.perf_counter() - sum(record.seconds for record in rounds.history)
    if out is not None:
        Path(out).mkdir(parents=True, exist_ok=True)  # fails now rather than after the work
    with interrupts.held():
        try:
            run(rounds, label=label, metric=metric)
        except BaseException as end:
            if rounds.path is not None and rounds.t >= 0:
                # after an error what is there is saved if it can be, and it is the error that is told
                with suppress(*() if isinstance(end, KeyboardInterrupt) else (Exception,)):
                    rounds.save(rounds.path)
            raise
    if out is not None:
        rounds.history.save(Path(out) / "history.json")
    return rounds, time.perf_counter() - begun


def compare(
    paper: Paper,
    methods: Sequence[str],
    problem: str | None = None,
    profile: str = "quick",
    changes: Mapping[str, Any] | None = None,
    seeds: int = 3,
    vary: Mapping[str, Sequence[Any]] | None = None,
    tune: Mapping[str, Sequence[Any]] | None = None,
    tune_changes: Mapping[str, Any] | None = None,
    device: str = "auto",
    out: Path | None = None,
) -> dict[str, Any]:
    """A table: every method at every value of ``vary``, over the seeds 0 to ``seeds`` - 1.

    ``tune``: each method at each place of the table gets the same grid; the setting with the best mean metric on
    held-out training images (settings with ``judge="validation"``, where a paper has held-out data), with seeds that
    are not reported, is the one reported; ``tune_changes`` shortens those trials. The result holds all that is
    needed to repeat a cell; an infinite setting stands there as "inf". ``out``, a folder of this comparison alone (see
    :func:`fedbook.outputs.claimed`): each cell and each trial is saved there as it ends, checkpoints of the one that
    runs meanwhile, and what an earlier call saved is not run again.
    Raises: TypeError, ValueError naming the argument; :class:`fedbook.outputs.Refused` where ``out`` holds another
    comparison.
    """
    count = arguments.integer("seeds", seeds, 1, 1000)
    if isinstance(methods, str) or not isinstance(methods, Sequence) or not methods:
        raise arguments.wrong(TypeError, "methods", methods, "a non-empty list of words")
    methods = list(dict.fromkeys(methods))
    vary, tune = axes(paper, changes or {}, vary or {}, tune or {}, tune_changes or {})
    tune_changes = {name: _read("tune_changes", name, v, paper.defaults()) for name, v in (tune_changes or {}).items()}
    out = None if out is None else Path(out)
    plans(paper, methods, problem, profile, changes or {}, vary, tune, tune_changes or {}, device)
    used = plan(paper, methods[0], problem, profile, changes, range(count), device, whole=False)
    asked = {
        "paper": paper.name, "problem": used.problem, "profile": profile, "metric": paper.metric,
        "settings": plain(used.settings()), "seeds": count, "device": used.device,
        "tuning": {"grid": plain(tune), "changes": plain(tune_changes or {}), "seeds": [1000, 1001]},
    }  # fmt: skip
    rows = [(method, plain(varied)) for varied in grid(vary) for method in methods]
    saved = None if out is None else saved_in(out)
    if saved is not None:
        _refuse_another(out, saved, asked, rows)
        if "paper" in saved:  # it came to its end
            return saved
    saved = saved or {"commits": [], "cells": []}
    commits = list(dict.fromkeys([*saved["commits"], commit()]))
    cells, before, done = [], iter(saved["cells"]), saved.get("tried", [])
    for varied in grid(vary):
        for method in methods:
            if (cell := next(before, None)) is not None:
                cells.append(cell)
                continue
            base = dict(changes or {}) | varied
            shorter = base | dict(tune_changes or {})
            tried, done = done, []
            for trial in _trials(paper, method, problem, profile, shorter, tune, device, out, len(cells), len(tried)):
                tried.append(trial)
                _keep(out, asked=asked, commits=commits, cells=cells, tried=tried)
            best = max(tried, key=lambda entry: _goodness(entry["mean"], paper))["settings"] if tried else {}
            chosen = plan(paper, method, problem, profile, base | best, range(count), device)
            usual = asked["settings"] | plain(varied | best)
            own = {name: v for name, v in plain(chosen.settings()).items() if usual[name] != v}
            label = " ".join([method, *(f"{k}={v}" for k, v in varied.items())])
            results, curve = _seeds(chosen, label, paper, out, len(cells))
            if tried:
                for entry in results:
                    entry["privacy"]["not_counted"].append(
                        f"choosing {', '.join(best)} by looking at these clients' data"
                    )
            read = {n: v for n, v in best.items() if not paper.idle(n, method, chosen.problem, chosen.settings())}
            cell = {
                "method": method, "varied": plain(varied), "tuned": best,
                "at_edge": at_edge(paper.settings, tune, read), "tried": tried, "curve": curve, "runs": results,
            }  # fmt: skip
            if own:  # what the paper publishes for this method
                cell["settings"] = own
            cells.append(finite(cell))
            _keep(out, asked=asked, commits=commits, cells=cells)
    made = {"torch": torch.__version__.split("+")[0], "commit": _joined(commits)}
    return asked | made | {"cells": cells}


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings for JSON, which has no infinity: "inf" instead, which :func:`plan` reads again."""

    def written(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [written(one) for one in value]
        return str(value) if isinstance(value, float) and math.isinf(value) else value

    return {name: written(value) for name, value in settings.items()}


def _refuse_another(out: Path, saved: Mapping[str, Any], asked: Mapping[str, Any], rows: Sequence[tuple]) -> None:
    """Raises: Refused, if ``saved`` is not of the comparison that was asked for."""
    wanted = json.loads(json.dumps(asked))
    found = saved if "paper" in saved else saved.get("asked", wanted)  # an older version did not save what was asked
    differ = [name for name, value in wanted.items() if name != "settings" and found.get(name) != value]
    differ += [name for name, value in wanted["settings"].items() if found["settings"].get(name) != value]
    there = [(cell["method"], cell["varied"]) for cell in saved["cells"]]
    if there != rows[: len(there)] or ("paper" in saved and len(there) != len(rows)):
        differ.append("its methods or what varies")
    if differ:
        what = ", ".join(differ)
        raise outputs.Refused(f"out: {out} holds another comparison; it differs in {what}; allowed is another folder")


def plans(
    paper: Paper, methods: Sequence[str], problem: str | None, profile: str, changes: Mapping[str, Any],
    vary: Mapping[str, Sequence[Any]], tune: Mapping[str, Sequence[Any]], tune_changes: Mapping[str, Any], device: str,
) -> list[Plan]:  # fmt: skip
    """All that a comparison would run, so that names and values that are not allowed are refused before any work."""
    chosen = []
    for method in methods:
        for varied, tuned in itertools.product(grid(vary), grid(tune)):
            base = dict(changes) | varied
            chosen.append(plan(paper, method, problem, profile, base | tuned, (0,), device))
            if tune:
                plan(paper, method, problem, profile, base | dict(tune_changes) | tuned, (0,), device)
    return chosen


def _joined(commits: Sequence[str | None]) -> str | None:
    """One commit, or several where an interrupted comparison went on with another version of the code."""
    return commits[0] if len(commits) == 1 else ", ".join(map(str, commits))


def _trials(paper, method, problem, profile, base, tune, device, out, cell, done) -> Iterator[dict[str, Any]]:
    """The trials of a cell from number ``done`` on: setting and mean metric on held-out images."""
    settings = grid(tune) if tune else []
    held_out = {"judge": "validation"} if "judge" in paper.defaults() else {}  # else by other seeds alone
    for number, setting in list(enumerate(settings, start=1))[done:]:
        trial = plan(paper, method, problem, profile, base | setting | held_out, (1000, 1001), device)
        values = " ".join(f"{name}={value}" for name, value in setting.items())
        label = f"tuning {method}, trial {number} of {len(settings)}, {values}"
        rounds, _ = _executed(trial, label, out, f"{cell}-{number}.pt")
        ran = [rounds]
        if rounds.stopped is not None and not rounds.diverged:
            ran = [alone for _, alone, _ in _each_alone(trial, label, out, f"{cell}-{number}")]
        last = [row[-1] for one in ran for row in _curve(one, paper.metric)[paper.metric] if row]
        lost = any(ended(one, paper.metric, slot)[0] == "diverged" for one in ran for slot in range(len(one.seeds)))
        score = sum(last) / len(last) if last and not lost else None
        yield {"settings": plain(setting), "mean": score}


def _seeds(chosen: Plan, label: str, paper: Paper, out: Path | None, cell: int) -> tuple[list[dict], dict[str, list]]:
    """The results of a cell's seeds, side by side, and their curves.

    The first seed whose numbers or budget are gone ends all beside it; then each runs alone to its own end.
    """
    count, names = len(chosen.seeds), (paper.metric, *paper.curves)
    rounds, seconds = _executed(chosen, label, out, f"{cell}.pt")
    if rounds.stopped is None or count == 1:
        return [result(rounds, chosen, seconds / count, slot) for slot in range(count)], _curve(rounds, *names)
    results, curves = [], []
    for alone, rounds, seconds in _each_alone(chosen, label, out, str(cell)):
        results.append(result(rounds, alone, seconds))
        curves.append(_curve(rounds, *names))
    judged = sorted({t for curve in curves for t in curve["round"]})
    curve = {"round": judged}
    for name in dict.fromkeys(name for one in curves for name in one if name != "round"):
        rows = [dict(zip(one["round"], one[name][0], strict=True)) if name in one else {} for one in curves]
        curve[name] = [[row.get(t) for t in judged] for row in rows]
    return results, curve


def _each_alone(chosen: Plan, label: str, out: Path | None, stem: str) -> Iterator[tuple[Plan, Rounds, float]]:
    for seed in chosen.seeds:
        alone = replace(chosen, seeds=(seed,))
        yield alone, *_executed(alone, f"{label}, seed {seed} alone", out, f"{stem}-seed-{seed}.pt")


def _executed(planned: Plan, label: str, out: Path | None, name: str) -> tuple[Rounds, float]:
    """What ``planned`` gives, from its checkpoint ``name`` on if an earlier call left one in ``out``."""
    path = None if out is None else out / UNFINISHED / name
    with phase(f"{label}: loading data"):
        rounds = planned.rounds(path=path, resume=path is not None)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return execute(rounds, label=label, metric=planned.paper.metric)
    finally:
        if path is not None:
            with suppress(OSError):  # not empty: a checkpoint is there
                path.parent.rmdir()


@interrupts.held()
def _keep(out: Path | None, **so_far: Any) -> None:
    """Save a comparison as far as it came; the checkpoints on the way are in it."""
    if out is not None:
        outputs.write(out / CELLS, json.dumps(so_far) + "\n")
        shutil.rmtree(out / UNFINISHED, ignore_errors=True)


def _curve(rounds: Rounds, *metrics: str) -> dict[str, list]:
    """The metrics by round, one list a seed; empty lists for a run that was never judged (no budget for a round).

    Five digits after the point, or six in all where that is more (an excess risk may be tiny).
    """
    if not any(record.metrics for record in rounds.history):
        return {"round": []} | {metric: [[] for _ in rounds.seeds] for metric in metrics}
    curve: dict[str, list] = {}
    for metric in metrics:
        if not any(metric in record.metrics for record in rounds.history):
            continue  # not every problem has it
        evaluated, values = rounds.history.values(metric)
        curve |= {"round": evaluated.tolist(), metric: [[_digits(v) for v in row] for row in values.tolist()]}
    if "bytes" in metrics:
        crossed = [[u + d for u, d in zip(r.bytes_up, r.bytes_down, strict=True)] for r in rounds.history]
        before = torch.tensor(list(rounds.bytes.total["setup"].values())).sum(0)  # [S]
        so_far = before + torch.tensor(crossed, dtype=torch.int64).cumsum(0)  # [rounds, S]
        curve["bytes"] = so_far[[t - 1 for t in curve["round"]]].T.tolist()
    return curve


def _digits(value: float) -> float:
    return round(value, 5) if not math.isfinite(value) or abs(value) >= 0.1 else float(f"{value:.6g}")


def _goodness(mean: float | None, paper: Paper) -> float:
    """Larger is better; a run that diverged is worse than all."""
    if mean is None:
        return float("-inf")
    return mean if paper.larger_is_better else -mean


def commit() -> str | None:
    """The commit of the checkout this package runs from (None elsewhere), with "+" for uncommitted changes."""
    folder = Path(__file__).parent

    def git(*command: str) -> str:
        return subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != folder.parent.resolve():
            return None  # installed somewhere inside another project's checkout
        return git("rev-parse", "--short", "HEAD") + ("+" if git("status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def grid(axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """All combinations of the axes' values; one empty combination if there are no axes."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def summary(table: Mapping[str, Any]) -> dict[str, Any]:
    """One short entry a cell of a comparison: mean, deviation and number of seeds of the metric."""
    cells = []
    for cell in table["cells"]:
        recorded = [
            None if run.get("ended") == "diverged" else run["metrics"].get(table["metric"]) for run in cell["runs"]
        ]
        values = torch.tensor([float("nan") if value is None else value for value in recorded], dtype=torch.float64)
        deviation = float(values.std()) if len(values) > 1 else None
        cells.append(
            {
                "method": cell["method"],
                **cell["varied"],
                "mean": float(values.mean()),
                "deviation": deviation,
                "seeds": len(values),
                "tuned": cell.get("tuned", {}),
                "at_edge": cell.get("at_edge", []),
            }
        )
    return finite({"paper": table["paper"], "problem": table["problem"], "metric": table["metric"], "cells": cells})


def saved_in(out: Path) -> dict[str, Any] | None:
    """What a comparison left in the folder ``out``: its table, else its "cells" so far, else None."""
    whole = outputs.read(Path(out) / TABLE)
    return outputs.read(Path(out) / CELLS) if whole is None else whole


def save(table: Mapping[str, Any], out: Path) -> None:
    """Write ``compare.json`` into the folder ``out``; the cells saved on the way are in it."""
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    outputs.write(out / TABLE, json.dumps(table, indent=1) + "\n")
    (out / CELLS).unlink(missing_ok=True)

"""What a paper offers to the command line and to experiments: methods, problems, settings, profiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from fedbook.federation.loop import Rounds
from fedbook.settings import Settings, described, needed, unmet


@dataclass(frozen=True)
class Paper:
    """One chapter's experiments.

    ``methods`` and ``problems``: word to one line. ``profiles``: settings that each profile changes (sizes,
    never the algorithm). ``settings``: the dataclasses whose fields ``--set`` may name. ``build(method,
    problem, settings, seeds, device, **options) -> Rounds``. ``fits``: by problem, the settings that it changes after
    the profile (it has fewer images than the profile asks for).
    ``delta``: at which privacy is reported. ``metric`` is compared and tuned; ``larger_is_better`` says which way;
    a comparison keeps it and ``curves`` by round ("bytes": all that crossed so far, up and down). ``as_published``: by
    problem, what the profile "paper" sets there last (other papers publish one set of sizes for all their problems);
    ``published_for``: by method, what it sets after that (step sizes of the rivals).
    ``judged``: on what the metric is taken: by method, "" for all others. ``common``: where a method is judged on
    something else (its clients' own classes), the metric of it that compares with the others.
    ``reads``: of a method that does not read all ``settings``, those that it reads.
    """

    name: str
    title: str
    methods: Mapping[str, str]
    problems: Mapping[str, str]
    profiles: Mapping[str, Mapping[str, Any]]
    settings: tuple[type[Settings], ...]
    build: Callable[..., Rounds]
    delta: float = 1e-5
    metric: str = "accuracy"
    larger_is_better: bool = True
    curves: tuple[str, ...] = ()
    fits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    as_published: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    published_for: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    judged: Mapping[str, str] = field(default_factory=dict)
    common: str = ""
    reads: Mapping[str, tuple[type[Settings], ...]] = field(default_factory=dict)

    def defaults(self) -> dict[str, Any]:
        """All settings by name with their default values."""
        return {f.name: f.default for kind in self.settings for f in fields(kind)}

    def described(self) -> dict[str, dict[str, Any]]:
        """All settings by name, each with its row of :func:`fedbook.settings.described`."""
        rows: dict[str, dict[str, Any]] = {}
        for row in (row for kind in self.settings for row in described(kind)):
            rows.setdefault(row["name"], row)
        return rows

    def idle(self, name: str, method: str, problem: str, settings: Mapping[str, Any]) -> str:
        """Why the setting ``name`` changes nothing in this run, as one sentence; empty where it counts."""
        having = [kind for kind in self.settings if name in kind.__dataclass_fields__]
        read = [kind for kind in having if kind in self.reads.get(method, self.settings)]
        values = {**settings, "method": method, "problem": problem}
        if not read:
            words = [word for word in self.methods if set(having) & set(self.reads.get(word, self.settings))]
            needs = ({"method": tuple(words)},)
        else:
            needs = read[0].__dataclass_fields__[name].metadata["needs"]
        wrong = unmet(needs, values)
        if not wrong:
            return ""
        wanted = needed([{other: way[other] for other in way if other in wrong} for way in needs])
        return f"{name} changes nothing: it counts {wanted} (here {', '.join(f'{w}={values[w]}' for w in wrong)})"


def own_settings(kind: type, settings: Mapping[str, Any]) -> Any:
    """The dataclass ``kind`` with its own fields out of ``settings``. Raises: TypeError, ValueError."""
    return kind(**{f.name: settings[f.name] for f in fields(kind)})

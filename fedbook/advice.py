"""What a run says about itself before its numbers are believed: settings that change nothing, choices at a grid's edge,
how each method of a comparison is judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedbook.experiment import Plan
from fedbook.papers.description import Paper


def idle(plans: Sequence[Plan]) -> list[str]:
    """One sentence for each setting that was asked for and changes nothing in any of the plans."""
    sentences = []
    for name in dict.fromkeys(name for one in plans for name in one.changes):
        asked = [one for one in plans if name in one.changes]
        why = [one.paper.idle(name, one.method, one.problem, one.settings()) for one in asked]
        if all(why):
            sentences.append(why[0])
    return sentences


def judged(paper: Paper, table: Mapping[str, Any]) -> Iterator[str]:
    """Lines that say on what each method of a comparison is judged, and what is not comparable with the others."""
    methods: dict[str, list[str]] = {}
    for method in dict.fromkeys(cell["method"] for cell in table["cells"]):
        methods.setdefault(paper.judged.get(method, paper.judged.get("", "as its evaluation says")), []).append(method)
    way = "larger" if paper.larger_is_better else "smaller"
    yield f"{table['metric']}: {way} is better"
    judges = {cell["varied"].get("judge", table["settings"].get("judge")) for cell in table["cells"]}
    if "validation" in judges:
        yield "  with judge=validation on held-out training data, in place of what is named here:"
    for words, names in methods.items():
        yield f"  {', '.join(names)}: {words}"
    if paper.common and len(methods) > 1:
        yield "  these are different yardsticks: compare methods of one line only"
        yield from _on_the_common_yardstick(paper, table)


def _on_the_common_yardstick(paper: Paper, table: Mapping[str, Any]) -> Iterator[str]:
    for cell in table["cells"]:
        values = [run["metrics"].get(paper.common) for run in cell["runs"]]
        if cell["method"] in paper.judged and None not in values:
            yield f"  {_place(cell)} as the others are judged ({paper.common}): {sum(values) / len(values):.4f}"


def tuned(paper: Paper, table: Mapping[str, Any]) -> Iterator[str]:
    """Lines that say what was chosen for each cell of a comparison, out of which values, and how sure that is."""
    grid = table["tuning"]["grid"]
    if not grid:
        return
    seeds = " and ".join(map(str, table["tuning"]["seeds"]))
    values = "; ".join(f"{name} of {', '.join(map(str, values))}" for name, values in grid.items())
    data = "held-out data" if "judge" in paper.defaults() else "the same data"
    yield f"tuned on {data} with the seeds {seeds}, which are not reported: {values}"
    for cell in table["cells"]:
        text = ", ".join(f"{name}={value}" for name, value in cell["tuned"].items())
        if all(entry["mean"] is None for entry in cell["tried"]):
            text += "; no trial gave a number, this is the first of the grid"
        elif cell["at_edge"]:
            text += f"; {', '.join(cell['at_edge'])} at the edge of the grid, a better value may lie beyond"
        yield f"  {_place(cell)}: {text}"


def _place(cell: Mapping[str, Any]) -> str:
    return " ".join([cell["method"], *(f"{name}={value}" for name, value in cell["varied"].items())])

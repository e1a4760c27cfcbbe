"""What a run says about itself before its numbers are believed: settings that change nothing, choices at a grid's edge,
how each method of a comparison is judged."""

from __future__ import annotations

from collections.abc import Sequence

from fedbook.experiment import Plan


def idle(plans: Sequence[Plan]) -> list[str]:
    """One sentence for each setting that was asked for and changes nothing in any of the plans."""
    sentences = []
    for name in dict.fromkeys(name for one in plans for name in one.changes):
        asked = [one for one in plans if name in one.changes]
        why = [one.paper.idle(name, one.method, one.problem, one.settings()) for one in asked]
        if all(why):
            sentences.append(why[0])
    return sentences

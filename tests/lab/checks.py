"""What the tests of several chapters check or read in the same way."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

import pytest

from fedbook.lab.exercises import check


def says_wrong(id, answer):
    verdict = check(id, answer)
    assert id in str(verdict) and verdict.status == "wrong" and len(verdict.problem) > 10, (answer, str(verdict))


class Witnesses(Mapping):
    """What each erratum's witness finds, by its name; computed when it is first asked for."""

    def __init__(self, errata):
        self.of = {witness.__name__: cache(witness) for _, witness in errata}

    def __getitem__(self, name):
        return self.of[name]()

    def __iter__(self):
        return iter(self.of)

    def __len__(self):
        return len(self.of)


def refutes(witness, expected, statement="", apart=0.1):
    """A witness (found, promised) gives what was worked out elsewhere, and is ``apart`` from what it refutes.

    ``expected``: the number found, how exactly, the number promised. What a statement ends in, at most or at least,
    the number found is not.
    """
    (found, promised), (number, tolerance, claim) = witness, expected
    assert abs(found - number) <= tolerance
    assert promised == pytest.approx(claim, rel=2e-3, abs=1e-12)
    assert found != pytest.approx(promised, rel=apart, abs=1e-9)
    last = statement.split(";")[-1] + statement.split(",")[-1]
    assert "at most" not in last or found > promised
    assert "at least" not in last or found < promised


def numbers(text, pattern=None):
    """All numbers of a sentence, or those that the groups of a pattern hold, without its punctuation."""
    if pattern is None:
        return [float(v) for v in re.findall(r"-?\d+\.?\d*(?:e[+-]?\d+)?", text)]
    return [float(v.replace(",", "").rstrip(".;:)")) for v in re.search(pattern, text).groups()]


def drawn(ax):
    return {line.get_label(): line.get_xydata() for line in ax.lines}

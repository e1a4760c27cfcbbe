"""One line a setting: the check, the docstring and the explanation come from it."""

import dataclasses
import json

import pytest

from fedbook import papers
from fedbook.settings import Settings, described, explained, setting


class Base(Settings):
    """A base."""

    rounds: int = setting(3, "T", "rounds", "0: none", minimum=0)
    rule: str = setting("a", None, "which rule", choices=("a", "b"))


class Derived(Base):
    """A kind of it."""

    rounds: int = 7
    bound: float = setting(1.0, "c", "a bound", above=0.0, infinite=True)

    def cross_check(self):
        if self.rule == "b" and self.rounds > 9:
            raise ValueError("rounds: too many for rule b")


def test_a_subclass_is_a_frozen_dataclass_with_a_default_of_its_own():
    assert dataclasses.asdict(Derived()) == {"rounds": 7, "rule": "a", "bound": 1.0} and Base().rounds == 3
    assert dataclasses.replace(Derived(), rule="b") == Derived(rule="b") != Derived()
    with pytest.raises(dataclasses.FrozenInstanceError):
        Derived().rounds = 4
    assert [row["default"] for row in described(Derived)] == [7, "a", 1.0]
    with pytest.raises(KeyError, match="loose"):

        class Loose(Base):
            loose: int = 3


def test_a_subclass_checks_what_it_inherits_and_what_belongs_together():
    for changes, name in (({"rounds": -1}, "rounds"), ({"rule": "c"}, "rule"), ({"bound": 0.0}, "bound")):
        with pytest.raises(ValueError, match=f"^{name}: got"):
            Derived(**changes)
    with pytest.raises(ValueError, match="too many"):
        Derived(rule="b", rounds=10)
    assert Derived(bound=float("inf"), rounds=10).rounds == 10


KINDS = dict.fromkeys(kind for name in papers.NAMES for kind in papers.paper(name).settings)


@pytest.mark.parametrize("kind", [*KINDS, Derived])
def test_every_setting_is_explained_as_it_is_refused(kind):
    rows = described(kind)
    json.dumps(rows, allow_nan=False)
    assert [row["name"] for row in rows] == [field.name for field in dataclasses.fields(kind)]
    for row in rows:
        assert row["meaning"] and explained(row, 80)[0].strip() in kind.__doc__
        with pytest.raises(TypeError) as refusal:
            kind(**{row["name"]: None})
        assert str(refusal.value).endswith(f"; allowed is {row['allowed']}")

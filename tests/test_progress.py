import contextlib
import io

import pytest

from fedbook import progress as module
from fedbook.progress import headless, progress


@pytest.fixture
def seen(monkeypatch):
    """Somebody watches; the test redirects stderr to this text and reads it."""
    monkeypatch.setenv("FEDBOOK_HEADLESS", "0")
    return io.StringIO()


def told(stream, iterable, **arguments):
    """All items, with stderr going to ``stream``."""
    with contextlib.redirect_stderr(stream):
        return list(progress(iterable, **arguments))


@pytest.mark.parametrize(("text", "expected"), [("1", True), ("0", False), ("", False), (" ", False), ("yes", True)])
def test_headless(monkeypatch, text, expected):
    monkeypatch.setenv("FEDBOOK_HEADLESS", text)
    assert headless() is expected
    monkeypatch.delenv("FEDBOOK_HEADLESS")
    assert headless() is False


def test_plain_lines_are_few(seen, monkeypatch):
    clock = iter(range(0, 1000))  # every look at the clock is a second later
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(clock)))
    assert told(seen, range(12), label="rounds") == list(range(12))
    lines = seen.getvalue().splitlines()
    assert lines == ["rounds: 5 of 12, 5 s", "rounds: 10 of 12, 10 s", "rounds: 12 of 12, 13 s"]


def test_short_work_says_nothing(seen):
    assert told(seen, iter("abc")) == list("abc") and seen.getvalue() == ""


def test_a_terminal_gets_a_bar(seen, monkeypatch):
    monkeypatch.setattr(seen, "isatty", lambda: True)
    assert told(seen, range(3), label="rounds") == [0, 1, 2]
    assert "rounds" in seen.getvalue() and "\r" in seen.getvalue()


def test_silence(seen, monkeypatch):
    monkeypatch.setattr(seen, "isatty", lambda: True)
    assert told(seen, range(3), quiet=True) == [0, 1, 2]
    monkeypatch.setenv("FEDBOOK_HEADLESS", "1")
    assert told(seen, range(3)) == [0, 1, 2] and seen.getvalue() == ""


def test_items_come_one_by_one(seen):
    def endless():
        n = 0
        while True:
            yield n
            n += 1

    steps = progress(endless(), total=5)
    assert [next(steps), next(steps)] == [0, 1]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [({"iterable": 3}, "iterable"), ({"iterable": [], "total": -1}, "total"), ({"iterable": [], "total": 1.5}, "total"),
     ({"iterable": [], "quiet": 1}, "quiet"), ({"iterable": [], "label": None}, "label")],
)  # fmt: skip
def test_arguments(arguments, name):
    with pytest.raises((TypeError, ValueError), match=f"^{name}: got"):
        progress(**arguments)

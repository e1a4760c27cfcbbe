import contextlib
import io
import time

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


def test_a_bar_and_a_line_say_what_was_last_judged(seen, monkeypatch):
    clock = iter(range(0, 1000, 6))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(clock)))
    judged = iter(["", "accuracy 0.25", "accuracy 0.5", "accuracy 0.5"])
    assert told(seen, range(3), label="rounds", note=lambda: next(judged)) == [0, 1, 2]
    lines = seen.getvalue().splitlines()
    assert lines[0] == "rounds: 1 of 3, 6 s" and lines[1] == "rounds: 2 of 3, 12 s, accuracy 0.25"
    monkeypatch.undo()
    monkeypatch.setenv("FEDBOOK_HEADLESS", "0")
    monkeypatch.setattr(seen, "isatty", lambda: True)
    told(seen, range(2), label="rounds", note=lambda: "accuracy 0.75")
    assert "accuracy 0.75" in seen.getvalue()


def test_a_phase_that_lasts_is_named_while_it_lasts(seen, monkeypatch):
    monkeypatch.setattr(module, "PHASE_AFTER_S", 0.05)
    with contextlib.redirect_stderr(seen):
        phases = module.Phases("fedavg")
        phases.begin("set-up")
        phases.begin("round 1 of 9")  # the set-up was over at once
        time.sleep(0.3)
        assert seen.getvalue() == "fedavg: round 1 of 9\n"
        phases.end()
        with module.phase("loading data"):
            time.sleep(0.3)
            assert seen.getvalue().splitlines()[1:] == ["loading data"]
        with module.phase("nothing much"):
            pass
        monkeypatch.setattr(seen, "isatty", lambda: True)  # the bar shows it
        module.Phases("fedavg").begin("round 2")
        time.sleep(0.2)
    assert len(seen.getvalue().splitlines()) == 2


def test_a_first_round_that_takes_long_is_announced(seen, monkeypatch):
    from fedbook import experiment, papers
    from fedbook.papers.fedavg import FedAvg

    train = FedAvg.train

    def slow(self, local):
        time.sleep(0.3)
        return train(self, local)

    monkeypatch.setattr(module, "PHASE_AFTER_S", 0.1)
    monkeypatch.setattr(FedAvg, "train", slow)
    changes = {"rounds": 1, "clients": 5, "clients_per_round": 0, "model": "linear"}
    plan = experiment.plan(papers.paper("fedavg"), "fedavg", "digits", "quick", changes, (0,), "cpu")
    with contextlib.redirect_stderr(seen):
        experiment.execute(plan.rounds(), label="run")
    assert "run: round 1 of 1" in seen.getvalue().splitlines()


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

import asyncio

import pytest

from fedbook.lab import runner
from fedbook.lab.controls import slider
from fedbook.lab.runner import run_panel


def start(n):
    for step in range(n):
        yield step, step * step


def draw(ax, history):
    ax.plot([step for step, _ in history], [state for _, state in history])
    return f"{len(history)} steps, the last gave {history[-1][1]}"


def panel(start=start, draw=draw, **changes):
    given = {"total": 6, "label": "rounds", "n": slider("n  rounds", 2, 10, 1, 6), **changes}
    return run_panel(start, draw, **given)


@pytest.fixture
def live(monkeypatch):
    monkeypatch.setenv("FEDBOOK_HEADLESS", "0")


def test_headless_runs_two_steps_and_closes_the_work():
    closed = []

    def watched(n):
        try:
            yield from start(n)
        finally:
            closed.append(True)

    made = panel(watched)
    assert made.history == [(0, 0), (1, 1)] and made.sentence == "2 steps, the last gave 1" and closed == [True]
    assert panel(steps_headless=4).history[-1] == (3, 9)


def test_a_film_runs_to_the_end_and_leaves_the_panel_as_it_was():
    made = panel(steps_headless=3)
    film = made.film()
    assert film["sentences"] == [f"{n} steps, the last gave {(n - 1) ** 2}" for n in range(1, 7)]
    assert film["start"] == [5] and film["controls"][0]["texts"][-1] == "5 of 6" and len(made.history) == 3
    long = panel(n=slider("n  rounds", 2, 200, 1, 200), total=200).film()
    assert len(long["frames"]) == 20 and long["sentences"][-1].startswith("200 steps")


def planted(*args, **kwargs):
    raise RuntimeError("planted")


def breaks_at_step_1(n):
    yield 0, 0
    planted()


@pytest.mark.parametrize("change", [{"start": planted}, {"start": breaks_at_step_1}, {"draw": planted}])
def test_headless_errors_raise(change):
    with pytest.raises(RuntimeError, match="planted"):
        panel(**change)


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (lambda n: 3, "returned"),
        (lambda n: [1, 2], "a step of"),
        (lambda n: [(1, 2, 3)], "a step of"),
        (lambda n: [], "no steps"),
    ],
)
def test_work_must_be_pairs(work, message):
    with pytest.raises((TypeError, ValueError), match=message):
        panel(work)


def test_without_an_event_loop_run_goes_to_the_end(live):
    made = panel()
    assert made.history == [] and not made.running
    made.run_button.click()
    assert len(made.history) == 6 and not made.running and made.bar.value == 6
    assert made.status.value.endswith("done") and "last gave 25" in made.reading.value and made.image.value


def test_stop_keeps_what_there_is_and_run_starts_again(live):
    async def scene():
        made = panel()
        made.run()
        while len(made.history) < 3:
            await asyncio.sleep(0)
        assert made.running
        made.stop_button.click()
        await made.task
        assert len(made.history) == 3 and not made.running and "stopped" in made.status.value
        assert "3 steps" in made.reading.value  # the last picture shows the last step
        made.controls["n"].value = 4
        made.run()
        await made.task
        assert made.history == list(start(4)) and "done" in made.status.value

    asyncio.run(scene())


def test_run_while_running_starts_again_and_the_older_run_touches_nothing(live):
    ended = []

    def watched(n):
        try:
            yield from start(n)
        finally:
            ended.append(n)

    async def scene():
        made = panel(watched)
        made.run()
        first = made.task
        while len(made.history) < 2:
            await asyncio.sleep(0)
        made.controls["n"].value = 9
        made.run()
        await first
        assert made.running and "stopped" not in made.status.value
        await made.task
        assert made.history == list(start(9)) and "done" in made.status.value and sorted(ended) == [6, 9]
        assert made.bar.max == 9  # more steps than announced

    asyncio.run(scene())


def test_an_error_ends_the_run_is_told_and_does_not_block_the_next(live):
    def bad(n):
        yield 0, 0
        if n == 6:
            raise RuntimeError("planted")

    made = panel(bad)
    with pytest.raises(RuntimeError, match="planted"):  # outside a kernel nothing can show it, so it goes on
        made.run()
    assert len(made.history) == 1 and "failed with RuntimeError: planted" in made.status.value and not made.running
    assert isinstance(made.error, RuntimeError)
    made.controls["n"].value = 5
    made.run()
    assert made.error is None and "done" in made.status.value


def test_pictures_are_few(live, monkeypatch):
    drawn = []

    def counted(ax, history):
        drawn.append(len(history))
        return draw(ax, history)

    clock = iter(i * 0.1 for i in range(10_000))
    monkeypatch.setattr(runner.time, "monotonic", lambda: next(clock))
    panel(draw=counted, n=slider("n  rounds", 2, 30, 1, 30), total=30).run()
    assert drawn[-1] == 30 and 7 <= len(drawn) <= 31 and drawn == sorted(drawn)
    gaps = [b - a for a, b in zip(drawn[:-2], drawn[1:-1], strict=True)]
    assert min(gaps) >= 2


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"total": 0}, "total"), ({"label": ""}, "label"), ({"draw": 3}, "draw"), ({"start": 3}, "function"),
     ({"steps_headless": 0}, "steps_headless"), ({"height": 1}, "height"),
     ({"m": slider("m  word", 0, 1, 1, 0)}, "start")],
)  # fmt: skip
def test_arguments(changes, name):
    with pytest.raises((TypeError, ValueError), match=f"^{name}: got"):
        panel(**changes)

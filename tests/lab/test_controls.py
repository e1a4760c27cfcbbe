import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbook.lab.controls import checked_controls, choice, log_slider, player, slider, switch

WORD = "η  step size"
EACH = [slider(WORD, 0, 10, 2, 4), slider(WORD, 0.05, 1, 0.05, 0.5), log_slider(WORD, 1e-3, 1e3, 7.0),
        player(WORD, 0, 10, 1, 4), choice(WORD, {"few": 1, "many": 9}, 9), switch(WORD, False)]  # fmt: skip


def test_stops_are_the_ends_and_the_default_or_every_option():
    assert [control.stops for control in EACH] == [
        (0, 4, 10), (0.05, 0.5, 1.0), (1e-3, 7.0, 1e3), (0, 4, 10), (1, 9), (False, True)
    ]  # fmt: skip


@pytest.mark.parametrize("control", EACH)
def test_widgets_take_every_stop_and_position_and_are_labelled(control):
    widget = control.widget()
    assert widget.description == WORD and WORD in widget.tooltip
    assert not getattr(widget, "continuous_update", False)
    for value in (*control.stops, *control.positions(7, [])):
        assert control.check("name", value) == value
        widget.value = value
        assert widget.value == pytest.approx(value, rel=1e-9)


@given(low=st.floats(-1e3, 1e3), steps=st.integers(1, 200), step=st.floats(1e-3, 10), at=st.integers(0, 200))
def test_every_grid_makes_a_slider(low, steps, step, at):
    value = low + min(at, steps) * step
    control = slider(WORD, low, low + steps * step, step, value)
    assert control.widget().value == pytest.approx(value)
    positions = control.positions(9, [low])
    assert positions == sorted(positions) and len(set(positions)) == len(positions) <= 10
    assert {low, control.value, control.stops[-1]} <= set(positions)


def test_positions_hold_presets_and_their_words_have_the_unit():
    rate = log_slider("t  latency (ms)", 0.1, 5000.0, 10.0)
    positions = rate.positions(9, [30.0])
    assert {0.1, 10.0, 30.0, 5000.0} <= set(positions) and 8 <= len(positions) <= 11
    assert [rate.text(v) for v in (0.1, 10.0, 5000.0)] == ["0.1 ms", "10 ms", "5,000 ms"]
    assert [slider(WORD, 0.0, 1.0, 0.05, 0.5).text(0.5), slider("ε  (0: none)", 0, 9, 1, 0).text(3)] == ["0.50", "3"]
    assert [choice(WORD, {"few": 1, "many": 9}, 9).text(1), switch(WORD, True).text(False)] == ["few", "off"]


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: slider(WORD, 0, 0, 1, 0), "maximum"), (lambda: slider(WORD, 0, 10, 0, 5), "step"),
        (lambda: slider(WORD, 0, 10, 3, 3), "maximum"), (lambda: slider(WORD, 0, 10, 2, 3), "value"),
        (lambda: slider(WORD, 0, 10, 1, 11), "value"), (lambda: slider(WORD, math.nan, 1.0, 0.1, 0.5), "minimum"),
        (lambda: slider("", 0, 1, 1, 0), "label"), (lambda: player(WORD, 0, 1, 0.5, 0), "step"),
        (lambda: log_slider(WORD, 0, 1, 0.5), "minimum"), (lambda: log_slider(WORD, 1, 1, 1), "maximum"),
        (lambda: log_slider(WORD, 1, 10, 11), "value"), (lambda: log_slider(WORD, 1, 10, 2, 0), "per_decade"),
        (lambda: choice(WORD, ["a"], "a"), "options"), (lambda: choice(WORD, ["a", "a"], "a"), "options"),
        (lambda: choice(WORD, "ab", "a"), "options"), (lambda: choice(WORD, ["a", "b"], "c"), "value"),
        (lambda: switch(WORD, 1), "value"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_control_is_refused(make, name):
    with pytest.raises((TypeError, ValueError), match=f"^{name}: got"):
        make()


def test_values_outside_are_refused():
    for control, bad in zip(EACH, (2.5, math.nan, 2e3, 11, 2, 1), strict=True):
        with pytest.raises(ValueError, match="^k: got"):
            control.check("k", bad)


def test_at_most_four_controls_that_the_function_takes():
    one = switch(WORD, True)
    with pytest.raises(ValueError, match="at most 4"):
        checked_controls(lambda ax, **values: "", dict.fromkeys("abcde", one))
    with pytest.raises(TypeError, match="b"):
        checked_controls(lambda ax, *, a: "", {"a": one, "b": one})
    with pytest.raises(TypeError, match="^a: got 3"):
        checked_controls(lambda ax, *, a: "", {"a": 3})
    with pytest.raises(TypeError, match="function"):
        checked_controls("draw", {"a": one})

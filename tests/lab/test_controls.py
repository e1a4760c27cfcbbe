import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbook.lab.controls import checked_controls, choice, log_slider, slider, switch

WORD = "η  step size"


def test_stops_are_the_ends_and_the_default_or_every_option():
    assert slider(WORD, 0, 10, 2, 4).stops == (0, 4, 10)
    assert slider(WORD, 0.0, 1.0, 0.1, 0.3).stops == (0.0, 0.3, 1.0)
    assert log_slider(WORD, 1e-3, 10, 0.1).stops == (1e-3, 0.1, 10.0)
    assert choice(WORD, ["a", "b", "c"], "b").stops == ("a", "b", "c")
    assert choice(WORD, {"few": 1, "many": 9}, 9).stops == (1, 9)
    assert switch(WORD, True).stops == (False, True)


@pytest.mark.parametrize(
    "control",
    [slider(WORD, 0, 10, 2, 4), slider(WORD, 0.05, 1, 0.05, 0.5), log_slider(WORD, 1e-3, 1e3, 7.0),
     choice(WORD, {"few": 1, "many": 9}, 9), switch(WORD, False)],
)  # fmt: skip
def test_widgets_take_every_stop_and_are_labelled(control):
    widget = control.widget()
    assert widget.description == WORD and WORD in widget.tooltip
    assert not getattr(widget, "continuous_update", False)
    for stop in control.stops:
        assert control.check("name", stop) == stop
        widget.value = stop
        assert widget.value == pytest.approx(stop, rel=1e-9)
    widget.value = control.value


@given(low=st.floats(-1e3, 1e3), steps=st.integers(1, 200), step=st.floats(1e-3, 10), at=st.integers(0, 200))
def test_every_grid_makes_a_slider(low, steps, step, at):
    value = low + min(at, steps) * step
    control = slider(WORD, low, low + steps * step, step, value)
    assert control.widget().value == pytest.approx(value)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0, 0, 1, 0), "maximum"), ((0, 10, 0, 5), "step"), ((0, 10, 3, 3), "maximum"), ((0, 10, 2, 3), "value"),
        ((0, 10, 1, 11), "value"), ((math.nan, 1.0, 0.1, 0.5), "minimum"), ((0.0, math.inf, 0.1, 0.5), "maximum"),
        (("a", 1, 1, 1), "minimum"), ((0, 1, 1, True), "value"),
    ],
)  # fmt: skip
def test_slider_refuses(arguments, name):
    with pytest.raises((TypeError, ValueError), match=f"^{name}: got"):
        slider(WORD, *arguments)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: slider("", 0, 1, 1, 0), "label"), (lambda: switch(3, True), "label"),
        (lambda: log_slider(WORD, 0, 1, 0.5), "minimum"), (lambda: log_slider(WORD, 1, 1, 1), "maximum"),
        (lambda: log_slider(WORD, 1, 10, 11), "value"), (lambda: log_slider(WORD, 1, 10, 2, 0), "per_decade"),
        (lambda: choice(WORD, ["a"], "a"), "options"), (lambda: choice(WORD, ["a", "a"], "a"), "options"),
        (lambda: choice(WORD, "ab", "a"), "options"), (lambda: choice(WORD, ["a", "b"], "c"), "value"),
        (lambda: switch(WORD, 1), "value"),
    ],
)  # fmt: skip
def test_other_controls_refuse(make, name):
    with pytest.raises((TypeError, ValueError), match=f"^{name}: got"):
        make()


def test_values_outside_are_refused():
    for control, bad in [
        (slider(WORD, 0, 10, 1, 5), 11),
        (slider(WORD, 0, 10, 1, 5), 2.5),
        (slider(WORD, 0.0, 1.0, 0.5, 0.5), math.nan),
        (log_slider(WORD, 1, 10, 2), 20.0),
        (choice(WORD, ["a", "b"], "a"), "c"),
        (switch(WORD, True), 1),
    ]:
        with pytest.raises(ValueError, match="^k: got"):
            control.check("k", bad)


def test_at_most_four_controls_that_the_function_takes():
    one = switch(WORD, True)
    names = ["a", "b", "c", "d", "e"]
    with pytest.raises(ValueError, match="at most 4"):
        checked_controls(lambda ax, **values: "", dict.fromkeys(names, one))
    with pytest.raises(TypeError, match="b"):
        checked_controls(lambda ax, *, a: "", {"a": one, "b": one})
    with pytest.raises(TypeError, match="a"):
        checked_controls(lambda ax, *, a, z: "", {"a": one})
    with pytest.raises(TypeError, match="^a: got 3"):
        checked_controls(lambda ax, *, a: "", {"a": 3})
    with pytest.raises(TypeError, match="function"):
        checked_controls("draw", {"a": one})

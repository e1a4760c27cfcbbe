import pytest

from fedbook.lab.controls import choice, log_slider, slider, switch
from fedbook.lab.explore import RedrawError, explore


def controls():
    return {
        "k": slider("k  clients", 1, 9, 1, 5),
        "split": choice("split", ["iid", "shards", "dirichlet"], "iid"),
        "noisy": switch("noise", False),
    }


PRESETS = {"paper": {"k": 7, "split": "shards"}}


def draw(ax, *, k, split, noisy):
    ax.plot([0, k], label=split)
    return f"{k} clients, split {split}, noise {noisy}"


def failing(**at):
    """A draw function that fails exactly where all of ``at`` holds."""

    def draws(ax, **values):
        if all(values[name] == value for name, value in at.items()):
            raise ValueError("planted")
        return draw(ax, **values)

    return draws


def watched():
    """A draw function and the values it was called with."""
    seen = []

    def draws(ax, **values):
        seen.append(tuple(values.values()))
        return draw(ax, **values)

    return draws, seen


@pytest.fixture
def live(monkeypatch):
    monkeypatch.setenv("FEDBOOK_HEADLESS", "0")


def test_the_sweep_visits_ends_options_corners_and_presets():
    draws, seen = watched()
    explorer = explore(draws, presets=PRESETS, **controls())
    first, *swept = seen
    assert first == (5, "iid", False)
    expected = {(5, "iid", False), (1, "iid", False), (9, "iid", False), (5, "shards", False), (5, "dirichlet", False),
                (5, "iid", True), (9, "dirichlet", True), (7, "shards", False)}  # fmt: skip
    assert set(swept) == expected
    assert explorer.values == {"k": 5, "split": "iid", "noisy": False}
    assert explorer.sweep()["preset 'paper'"] == "7 clients, split shards, noise False"


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ({"k": 9}, "k = 9, others at default"),
        ({"split": "dirichlet", "k": 5}, "split = 'dirichlet'"),
        ({"noisy": True, "k": 5}, "noisy = True"),
        ({"k": 1, "split": "iid"}, "k = 1"),
        ({"k": 9, "split": "dirichlet", "noisy": True}, "all at maximum or last"),
        ({"k": 7, "split": "shards"}, "preset 'paper'"),
    ],
)
def test_a_bug_anywhere_is_found_and_named(at, message):
    with pytest.raises(RedrawError, match=message) as caught:
        explore(failing(**at), presets=PRESETS, **controls())
    assert "planted" in str(caught.value) and isinstance(caught.value.__cause__, ValueError)


def test_a_bug_at_the_defaults_raises_live_and_headless(monkeypatch):
    for value in ("1", "0"):
        monkeypatch.setenv("FEDBOOK_HEADLESS", value)
        with pytest.raises(ValueError, match="planted"):
            explore(failing(k=5), **controls())


def test_printing_is_refused():
    def prints(ax, **values):
        if values["k"] == 9:
            print("hello")
        return draw(ax, **values)

    with pytest.raises(RedrawError, match="printed.*k = 9"):
        explore(prints, **controls())


def test_frames_are_all_combinations_if_they_are_few():
    draws, seen = watched()
    explorer = explore(draws, presets=PRESETS, **controls())
    seen.clear()
    frames = explorer.frames()
    assert {k for k, _, _ in seen} == {1, 3, 5, 7, 9}
    assert len(seen) == len(set(seen)) == len(frames["frames"]) == 5 * 3 * 2
    assert frames["sentences"][frames["frames"]["0,2,1"][1]] == "1 clients, split dirichlet, noise True"


def test_frames_of_many_controls_are_one_control_at_a_time_and_the_presets():
    sliders = {name: slider(f"{name}  word", 0, 40, 1, 20) for name in "abc"}
    explorer = explore(lambda ax, *, a, b, c: f"{a} {b} {c}", presets={"low": {"a": 0, "c": 1}}, **sliders)
    frames = explorer.frames()
    (preset,) = frames["presets"]
    assert frames["sentences"][frames["frames"][",".join(map(str, preset["at"]))][1]] == "0 20 1"
    moved = {sentence for sentence in frames["sentences"] if sentence.split().count("20") >= 2}
    assert len(moved) == len(frames["sentences"]) - 1 and {"0 20 20", "20 40 20", "20 20 1"} <= moved


def test_a_bug_between_the_stops_fails_the_frames():
    explorer = explore(failing(k=3), **controls())
    with pytest.raises(RedrawError, match="k = 3"):
        explorer.frames()


def test_live_nothing_is_swept_and_a_change_redraws_once(live):
    draws, seen = watched()
    explorer = explore(draws, presets=PRESETS, **controls())
    assert len(seen) == 1
    before = explorer.image.value
    explorer.controls["k"].value = 8
    assert len(seen) == 2 and explorer.image.value != before
    assert "8 clients" in explorer.reading.value
    assert not explorer.image.tooltip  # with one, a browser shows an error in place of the picture
    explorer.set(k=3, noisy=True)
    assert len(seen) == 3
    reset, preset = explorer.widget.children[1].children
    preset.click()
    assert explorer.values == {"k": 7, "split": "shards", "noisy": False} and len(seen) == 4
    reset.click()
    assert explorer.values == {"k": 5, "split": "iid", "noisy": False} and explorer.image.value == before


@pytest.mark.parametrize(("low", "high"), [(1.0, 300.0), (0.1, 5000.0), (0.01, 1.0), (3e-5, 7e2)])
def test_at_its_ends_a_browsers_log_slider_means_the_ends(live, low, high):
    """A browser computes 10 ** min itself, and the slider's ends have slack: draw gets low and high, not beyond."""
    seen = []

    def draws(ax, *, x):
        seen.append(x)
        return f"{x}"

    explorer = explore(draws, x=log_slider("x", low, high, low * 2))
    control = explorer.controls["x"]
    for exponent in (control.min, control.max):
        control.value = 10.0**exponent
    assert seen[1:] == [low, high] and explorer.values == {"x": high}


def test_the_sentence_is_escaped_and_keeps_the_room_of_the_longest(live):
    explorer = explore(lambda ax, *, k: f"<b>{k}</b>" + " long" * k, k=slider("k  word", 0, 9, 1, 0))
    assert "&lt;b&gt;0" in explorer.reading.value
    explorer.set(k=9)
    explorer.set(k=1)
    assert "&lt;b&gt;9&lt;/b&gt;" + " long" * 9 in explorer.reading.value and explorer.sentence == "<b>1</b> long"


def test_an_error_live_leaves_a_message_and_the_next_value_works(live):
    explorer = explore(failing(k=9), **controls())
    with pytest.raises(ValueError, match="planted"):  # outside a kernel nothing can show it, so it goes on
        explorer.controls["k"].value = 9
    assert "k = 9" in explorer.reading.value and "planted" in explorer.reading.value
    explorer.controls["k"].value = 8
    assert "8 clients" in explorer.reading.value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"presets": {"a": {"k": 99}}}, "preset 'a', k"),
        ({"extra": switch("x  word", True)}, "extra"),
        ({"k": 3}, "k: got 3"),
    ],
)
def test_controls_and_presets_are_checked(change, message):
    with pytest.raises((TypeError, ValueError), match=message):
        explore(draw, **{**controls(), **change})


def test_setting_is_checked(live):
    explorer = explore(draw, **controls())
    for values in ({"z": 1}, {"k": 99}, {"split": "none"}):
        with pytest.raises(ValueError):
            explorer.set(**values)

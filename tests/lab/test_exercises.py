"""Exercises, those of all chapters among them: solutions pass, usual mistakes get their hint, nonsense a message."""

import importlib
import inspect
import math
import pkgutil
import re

import nbformat
import numpy as np
import pytest
import torch

import fedbook.chapters
from fedbook.book.contents import CHAPTERS, notebooks_folder
from fedbook.lab import exercises
from fedbook.lab.compare import first_difference, unlike
from fedbook.lab.exercises import (
    EXERCISES,
    WrongAnswer,
    by_hand,
    check,
    details,
    exercise,
    find,
    folded,
    is_stub,
    solution_source,
)
from tests.lab.checks import says_wrong


def weighted_mean(values, sizes):
    """Mean of the clients' values, each weighted by its number of samples."""
    return sum(v * n for v, n in zip(values, sizes, strict=True)) / sum(sizes)


def plain_mean(values, sizes):
    return sum(values) / len(values)


def forgets_to_divide(values, sizes):
    return sum(v * n for v, n in zip(values, sizes, strict=True))


@exercise(
    "test-1",
    solution=weighted_mean,
    hints=("What does a client with twice the samples count?", "Divide by the sum of the sizes."),
    wrong_answers=(
        WrongAnswer(plain_mean, "Every client counts the same here."),
        WrongAnswer(forgets_to_divide, "Weights must sum to one."),
    ),
)
def check_weighted_mean(answer):
    return first_difference(
        answer, weighted_mean, [{"values": [1.0, 2.0], "sizes": [1, 3]}, {"values": [0.0, -1.0], "sizes": [5, 5]}]
    )


@exercise("test-2", solution=0.25, wrong_answers=(WrongAnswer(0.5, "Square it."),))
def check_quarter(answer):
    difference = unlike(answer, 0.25, 1e-6)
    return difference and f"The value: {difference}."


for module in pkgutil.iter_modules(fedbook.chapters.__path__):
    importlib.import_module(f"fedbook.chapters.{module.name}")

ALL = sorted(EXERCISES)
OF_CHAPTERS = [id for id in ALL if not id.startswith("test-")]
SHORT = [id for id in OF_CHAPTERS if id.startswith("00-")]  # chapter 0 warms up: fewer hints and mistakes


def test_every_chapter_has_its_exercises():
    series = {}
    for id in OF_CHAPTERS:
        start, number = re.fullmatch(r"(\d\d-[a-z]?)(\d+)", id).groups()
        series.setdefault(start, []).append(int(number))
    assert {int(start[:2]) for start in series} == {one.number for one in CHAPTERS}
    for start, numbers in series.items():
        assert sorted(numbers) == list(range(1, len(numbers) + 1)) and len(numbers) >= 4, start


@pytest.mark.parametrize("id", OF_CHAPTERS)
def test_an_exercise_has_hints_and_knows_mistakes_each_with_its_own_hint(id):
    one = EXERCISES[id]
    assert id in SHORT or (len(one.hints) >= 2 and len(one.wrong_answers) >= 3)
    told = {known.hint for known in one.wrong_answers}
    assert len(told) == len(one.wrong_answers) >= 1 and all(told)


@pytest.mark.parametrize("id", ALL)
def test_a_stub_is_not_attempted(id):
    def stub(*args, **kwargs):
        """Words."""
        ...

    for answer in (..., None, stub, lambda *a: ..., lambda *a: None):
        verdict = check(id, answer)
        assert verdict.status == "not attempted" and "not attempted" in str(verdict)
    assert check(id).status == "not attempted"


@pytest.mark.parametrize("id", ALL)
def test_the_solution_is_right(id):
    verdict = check(id, find(id).solution)
    assert verdict.status == "right", str(verdict)
    assert solution_source(id)


@pytest.mark.parametrize("id", [id for id in ALL if callable(EXERCISES[id].solution) and not id.startswith("test")])
def test_the_unfolded_solution_runs_where_it_is_pasted(id):
    """Into the notebook's cell, under the name that the cell below checks, with nothing else imported."""
    number, cells = id.partition("-")[0], []
    for path in notebooks_folder().glob(f"{number}_*.ipynb"):
        cells += [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    (name,) = {found for source in cells for found in re.findall(rf'check\("{id}", (\w+)\)', source)}
    scope = {}
    exec(solution_source(id), scope)
    verdict = check(id, scope[name])
    assert verdict.status == "right", str(verdict)


@pytest.mark.parametrize(("id", "known"), [(i, known) for i in ALL for known in EXERCISES[i].wrong_answers])
def test_known_mistakes_are_wrong_and_get_their_own_hint(id, known):
    verdict = check(id, known.answer)
    assert verdict.status == "wrong" and "raised" not in verdict.problem, str(verdict)
    assert verdict.hint == known.hint, str(verdict)


def _stretched(phi, updates, bound, sigma, expected, noise):
    total = sum((u * bound / u.norm() for u in updates), torch.zeros_like(phi))
    return phi + (total + sigma * bound * noise) / expected


def _unclamped(h, u, bits, low, high):
    step = (high - low) / (2**bits - 1)
    return low + step * ((h + u - low) / step).round() - u


def _first_image_only(x, pixels):
    y = torch.zeros_like(x)
    y[0, 0, :, pixels:] = x[0, 0, :, : x.shape[-1] - pixels]
    return y


def _not_at_zero(x, pixels):
    y = torch.zeros_like(x)
    y[..., pixels:] = x[..., :-pixels]
    return y


def _noise_by(scale):
    def step(updates, bound, z, rate, number, noise):
        clipped = updates * (bound / updates.norm(dim=1)).clamp(max=1.0)[:, None]
        return (clipped.sum(0) + scale(z, bound) * noise) / (rate * number)

    return step


ONCE_RIGHT = [
    ("04-5", _stretched),
    ("05-2", _unclamped),
    ("00-r2", _first_image_only),
    ("00-r2", _not_at_zero),
    ("00-p7", _noise_by(lambda z, bound: 2 * z)),
    ("00-p7", _noise_by(lambda z, bound: 2 * bound)),
    ("00-p7", _noise_by(lambda z, bound: z * z)),
]


@pytest.mark.parametrize(("id", "answer"), ONCE_RIGHT)
def test_mistakes_that_one_lucky_case_would_hide(id, answer):
    assert check(id, answer).status == "wrong"


def _changes_what_it_was_given(z, *rest):
    loss = find("01-2").solution(z, *rest)
    z += 1
    return loss


@pytest.mark.parametrize(
    ("id", "answer", "told"),
    [
        ("01-2", _changes_what_it_was_given, "changes the tensors"),
        ("01-6", {"alpha_first": 1.0, "alpha_last": 0.0, "kappa": 0.15}, "alpha_last should be"),
        ("01-6", {"alpha_first": 1.0, "alpha_last": 0.1, "kappa": 2.0}, "kappa should be"),
        ("05-2", lambda h, u, bits, low, high: h.round().int(), "floating-point"),
    ],
)
def test_what_else_is_wrong_with_an_answer_is_told(id, answer, told):
    assert told in check(id, answer).problem


def test_an_answer_may_be_single_precision_rounded_or_change_what_it_was_given():
    def by_tensors(values, sizes):
        v, n = torch.tensor(values), torch.tensor(sizes)
        return (v * n).sum() / n.sum()

    def in_place(a, b, p, eta, E):
        p *= 1 - (1 - eta * a) ** E
        return (p * b).sum() / p.sum()

    assert first_difference(by_tensors, weighted_mean, [{"values": [0.1, 0.2], "sizes": [1, 2]}]) is None
    assert check("00-5", in_place).status == "right"
    assert check("03-1", 4.61).status == "right"  # the logarithm of 100
    assert check("05-3", [0.866, 0.269]).status == "right"


class Hostile:
    """An answer that fights back."""

    def __repr__(self):
        raise RuntimeError("no repr")

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    def __getattr__(self, name):
        raise RuntimeError("no attributes")

    __hash__ = None


def raises(error):
    def answer(*args, **kwargs):
        raise error

    return answer


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def gives(value):
    return lambda *a, **k: value


NAN = math.nan
ANSWERS = [
    NAN, math.inf, -7, True, 10**400, "text", "x", b"", [], {}, {"a": 1}, object(), Hostile(), int, type, print,
    *([value] * n for value in (NAN, math.inf, "a", True) for n in (3, 5)), ["a", "b", "c"],
    torch.tensor(NAN), torch.full((3,), NAN), torch.full((5,), NAN), torch.zeros(3), torch.zeros(2, 2),
    *(gives(v) for v in (NAN, math.inf, True, 10**400, "x", {}, Hostile(), torch.tensor(1 + 1j), torch.zeros(2, 2),
                         torch.full((3, 3), NAN), torch.full((4, 4), NAN), torch.full((400, 2), NAN),
                         torch.full((400, 2), math.inf), torch.zeros(4, 4, dtype=torch.complex64))),
    lambda: 1, lambda *a: a and None, lambda *a: a[0], lambda *a: a[1],
    *(raises(e) for e in (ValueError("bad"), Mute(), ZeroDivisionError("no"), SystemExit(3), KeyboardInterrupt(),
                          RecursionError())),
]  # fmt: skip


@pytest.mark.parametrize(
    ("id", "answer"),
    [
        ("03-7", {"n twice": torch.tensor(0.25), "K twice": np.float32(0.5), "d twice": 2.0, "η half": 0.5}),
        ("01-1", [torch.tensor(-0.125), torch.tensor(1.0), np.int64(3)]),
        ("00-3", 6.0),
        ("00-3", np.int64(6)),
        ("01-6", {"alpha_first": torch.tensor(0.15), "alpha_last": np.float32(0.1), "kappa": 0.15}),
        ("02-3", {name: np.bool_(value) for name, value in find("02-3").solution.items()}),
        ("05-6", [-0.8, torch.tensor(-1.6), "diverges"]),
        ("00-p6", lambda w, b, C: [x * min(1, C / (torch.cat([w.flatten(), b]).norm() + 1e-6)) for x in (w, b)]),
        ("00-r8", lambda a, b: np.array(find("00-r8").solution(a, b))),
        ("00-r8", lambda a, b: [torch.tensor([end]) for end in find("00-r8").solution(a, b)]),
        ("01-3", lambda uploads, p: torch.stack(find("01-3").solution(uploads, p))),
    ],
)  # fmt: skip
def test_a_right_answer_in_another_form_is_right(id, answer):
    assert check(id, answer).status == "right", str(check(id, answer))


@pytest.mark.parametrize(
    ("id", "answer"), [("04-p4", -1.333), ("04-p4", torch.tensor(-4 / 3)), ("01-1", [-1.41, 1, 3])]
)
def test_a_known_mistake_that_was_rounded_gets_its_hint(id, answer):
    assert check(id, answer).hint in [known.hint for known in find(id).wrong_answers]


# one exercise of each kind: functions judged against the solution or by a loop of the chapter's own; a number, a whole
# number, a list and a mapping judged by `not_right`; a line of a listing, a list, a mapping and a word judged otherwise
KINDS = ["test-1", "00-6", "00-8", "00-p6", "00-p7", "03-1", "02-7", "05-5", "02-6", "00-3", "05-6", "01-6", "05-8"]


@pytest.mark.parametrize("id", KINDS)
@pytest.mark.parametrize("answer", ANSWERS, ids=lambda a: type(a).__name__)
def test_nonsense_never_raises_nor_passes_and_gets_a_message(id, answer):
    says_wrong(id, answer)


def filled(value, number):
    """The right answer with ``number`` in place of all that it holds: of the right kind and shape."""
    if isinstance(value, dict):
        return {name: filled(inner, number) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(filled(inner, number) for inner in value)
    if isinstance(value, torch.Tensor):
        return torch.full(value.shape, number, dtype=torch.float64)
    return np.full(value.shape, number) if isinstance(value, np.ndarray) else number


@pytest.mark.parametrize("id", ALL)
def test_no_exercise_lets_nonsense_of_the_right_shape_pass(id):
    solution = find(id).solution
    for number in (NAN, math.inf):
        if callable(solution):
            says_wrong(id, lambda *a, n=number, **k: filled(solution(*a, **k), n))
        else:
            says_wrong(id, filled(solution, number))
    for value in (Hostile(), {}):
        says_wrong(id, gives(value) if callable(solution) else value)
    says_wrong(id, raises(SystemExit(3)))


def test_places_left_open_are_not_attempted():
    for answer in ((1, ...), [...], {"a": ...}, lambda *a, **k: ..., raises(NotImplementedError())):
        assert check("test-1", answer).status == "not attempted", answer
    assert not is_stub(lambda x: 3) and not is_stub(0) and not is_stub(lambda x: x) and not is_stub("")

    def half_done(values, sizes):
        result = ...
        return result

    assert check("test-1", half_done).status == "not attempted"


def test_none_that_is_written_out_is_an_answer():
    def answer(values, sizes):
        return None

    assert check("test-1", answer).problem.endswith("expected 1.75, got None.")


@pytest.mark.parametrize("id", [id for id in ALL if inspect.isfunction(EXERCISES[id].solution)])
def test_a_value_where_a_function_is_asked(id):
    assert check(id, 3).problem == "Expected a function, got 3."


def test_the_line_that_raised_is_told_and_the_hints_still_come():
    def answer(values, sizes):
        total = 0
        return values[0] / total

    verdict = check("test-1", answer)
    assert "raised ZeroDivisionError" in verdict.problem
    assert re.fullmatch(r"line \d+ of the cell: return values\[0\] / total", verdict.line)
    assert verdict.line in str(verdict) and check("test-1", lambda values, sizes: 1.5).line == ""


def test_outside_a_notebook_the_verdict_is_printed(capsys):
    check("test-2", 0.5)
    assert (
        capsys.readouterr().out == "✗ Exercise test-2: wrong. The value: expected 0.25, got 0.5.\n  Hint: Square it.\n"
    )


def test_changing_the_arguments_is_told():
    def answer(values, sizes):
        result = weighted_mean(values, sizes)
        values.clear()
        return result

    assert "changes its arguments" in check("test-1", answer).problem


def test_the_first_differing_case_is_named():
    def answer(values, sizes):
        return weighted_mean(values, sizes) if sum(values) > 0 else 3.0

    assert check("test-1", answer).problem == "For values = [0, -1], sizes = [5, 5]: expected -0.5, got 3."


@pytest.mark.parametrize(
    ("got", "expected", "same"),
    [
        (1, 1.0, True), (True, 1, False), (1, True, False), (torch.tensor(2.0), 2, True),
        ([1, 2], torch.tensor([1, 2]), True),
        ([1, 2, 3], [1, 2], False), ([[1, 2]], [1, 2], False), (math.nan, math.nan, True), (1.0, math.nan, False),
        (math.nan, 1.0, False), (math.inf, math.inf, True), (-math.inf, math.inf, False), (math.inf, 1e308, False),
        ({"a": 1.0}, {"a": 1}, True), ({"a": 1, "b": 2}, {"a": 1}, False), ("x", "x", True), ("x", 1, False),
        (None, None, True), (None, 0, False), (1e-10, 0.0, True), (1e-3, 0.0, False), (1e9 + 0.1, 1e9, True),
        (torch.tensor(True), True, True), ((1, 2), [1, 2], True), ("12", [1, 2], False),
    ],
)  # fmt: skip
def test_unlike(got, expected, same):
    assert (unlike(got, expected) is None) is same


def test_texts_for_the_notebook():
    source = solution_source("test-1")
    assert source.startswith("def weighted_mean(values, sizes):") and source.endswith("/ sum(sizes)")
    assert solution_source("test-2") == "0.25"
    text = folded("test-1")
    assert text.count("<details>") == text.count("</details>") == 3 and source in text
    assert "<summary>Hint 2</summary>" in text and "<summary>Hint</summary>" not in text
    assert "a &lt; b" in details("a < b", "x")
    exercise("test-3", solution=0.5, why="Half of them.")(lambda answer: None)
    assert folded("test-3").endswith("0.5\n```\n\nHalf of them.\n\n</details>")
    del exercises.EXERCISES["test-3"]


def test_folded_text_survives_the_renderer():
    import nbformat.v4 as nb
    from nbconvert import HTMLExporter

    body = f"Before.\n\n{folded('test-1')}\n\nAfter."
    html, _ = HTMLExporter(template_name="basic").from_notebook_node(
        nb.new_notebook(cells=[nb.new_markdown_cell(body)])
    )
    assert html.count("<details>") == 3 and html.count("<summary>") == 3
    assert "<p>Divide by the sum of the sizes.</p>" in html and "weighted_mean" in html and "&lt;details" not in html


def test_registering():
    with pytest.raises(ValueError, match="no other exercise"):
        exercise("test-1", solution=1)(lambda answer: None)
    with pytest.raises(ValueError, match="no other exercise"):
        by_hand("02-p1", solution=1, hints=("Count.",), wrong_answers=())
    with pytest.raises(TypeError, match="id"):
        exercise(3, solution=1)
    with pytest.raises(TypeError, match="hints"):
        exercise("x", solution=1, hints="text")
    for id in ("nowhere", "77-1", 3):
        with pytest.raises(ValueError, match="^id: got"):
            check(id, 1)
    assert exercises.EXERCISES is EXERCISES

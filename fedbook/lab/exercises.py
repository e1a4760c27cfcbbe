"""Exercises: ``check("00-1", answer)`` tells the learner honestly, and never raises.

A chapter's module registers each exercise once: a checker, a reference solution and the wrong answers
that learners really give, each with its hint. The hint of a known mistake is shown to whoever makes the
same mistake, that is, whose first differing case reads the same.
"""

from __future__ import annotations

import ast
import dis
import functools
import html
import importlib
import inspect
import pkgutil
import textwrap
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedbook.arguments import wrong
from fedbook.lab import show
from fedbook.lab.compare import NotAttempted, first_difference, not_right, plain, short
from fedbook.lab.style import GREEN_TEXT, NEUTRAL_TEXT, ORANGE_TEXT

NOT_ATTEMPTED, RIGHT, WRONG = "not attempted", "right", "wrong"
SIGNS = {NOT_ATTEMPTED: "…", RIGHT: "✓", WRONG: "✗"}
STUB_OPERATIONS = {"RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST", "POP_TOP"}


@dataclass(frozen=True)
class WrongAnswer:
    """A mistake that learners make, and the hint that is shown with its verdict."""

    answer: Any
    hint: str


@dataclass(frozen=True)
class Exercise:
    """One exercise: ``checker(answer)`` returns None, or one sentence that says what is wrong.

    ``near(answer, mistake)``: whether an answer is that mistake but for rounding; of code, nothing is.
    """

    id: str
    checker: Callable[[Any], str | None]
    solution: Any
    hints: tuple[str, ...]
    wrong_answers: tuple[WrongAnswer, ...]
    why: str = ""
    near: Callable[[Any, Any], bool] = lambda answer, mistake: False


@dataclass(frozen=True)
class Verdict(show.Quiet):
    """What the learner is told: ``status`` is "not attempted", "right" or "wrong"; ``line`` is what raised."""

    id: str
    status: str
    problem: str = ""
    hint: str = ""
    line: str = ""

    def __str__(self) -> str:
        text = f"{SIGNS[self.status]} Exercise {self.id}: {self.status}"
        text += f". {self.problem}" if self.problem else "."
        text += f"\n  Raised in {self.line}" if self.line else ""
        return text + (f"\n  Hint: {self.hint}" if self.hint else "")


EXERCISES: dict[str, Exercise] = {}


def exercise(
    id: str,
    *,
    solution: Any,
    hints: Sequence[str] = (),
    wrong_answers: Sequence[WrongAnswer] = (),
    why: str = "",
    near: Callable[[Any, Any], bool] = Exercise.near,
) -> Callable[[Callable[[Any], str | None]], Callable[[Any], str | None]]:
    """Register the decorated checker as exercise ``id``; ``why``, Markdown, stands below the solution.

    Raises: TypeError, ValueError (registered twice).
    """
    if not isinstance(id, str) or not id:
        raise wrong(TypeError, "id", id, 'a text like "00-1"')
    if isinstance(hints, str):
        raise wrong(TypeError, "hints", hints, "a sequence of texts")

    def register(checker: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
        known = EXERCISES.get(id)
        source = (checker.__qualname__, tuple(hints))
        if known is not None and (known.checker.__qualname__, known.hints) != source:  # a reload is no second one
            raise wrong(ValueError, "id", id, "an id that no other exercise has")
        EXERCISES[id] = Exercise(id, checker, solution, tuple(hints), tuple(wrong_answers), why, near)
        return checker

    return register


def by_hand(
    id: str,
    *,
    solution: Any,
    hints: Sequence[str],
    wrong_answers: Sequence[WrongAnswer],
    names: Sequence[str] = (),
    words: Sequence[str] = (),
    tolerance: float = 3e-3,
    why: str = "",
) -> None:
    """Register an exercise whose answer is no code: a number, a list of numbers or a mapping, judged by `not_right`."""

    def near(answer: Any, mistake: Any) -> bool:
        return not_right(answer, mistake, names, (), tolerance) is None

    @exercise(id, solution=solution, hints=hints, wrong_answers=wrong_answers, why=why, near=near)
    def check_by_hand(answer: Any) -> str | None:
        return not_right(answer, solution, names, words, tolerance)


def by_cases(
    id: str,
    *,
    solution: Callable[..., Any],
    hints: Sequence[str],
    wrong_answers: Sequence[WrongAnswer],
    cases: Sequence[Mapping[str, Any]],
    why: str = "",
) -> None:
    """Register an exercise whose answer is a function, judged by what `first_difference` says of these cases."""

    @exercise(id, solution=solution, hints=hints, wrong_answers=wrong_answers, why=why)
    def check_by_cases(answer: Any) -> str | None:
        return first_difference(answer, solution, cases)


def check(id: str, answer: Any = ...) -> Verdict:
    """Judge ``answer`` (a value or a function) and show the verdict; whatever it is, no error leaves here.

    A notebook displays the verdict, any other program prints it.
    Raises: ValueError only for an ``id`` that no exercise has, which is the author's mistake.
    """
    one = find(id)
    raised: list[BaseException] = []
    status, problem = _judge(one, answer, raised)
    hint = _hint(one, problem, answer) if status == WRONG else ""
    line = next((_line(error, answer) for error in reversed(raised) if short(error) in problem), "")
    verdict = Verdict(id, status, problem, hint, line)
    if not show.show({"text/plain": str(verdict), "text/html": _html(verdict)}):
        print(verdict)
    return verdict


def find(id: str) -> Exercise:
    """The exercise ``id``; the chapters' modules are imported if it is not yet registered. Raises: ValueError."""
    if id not in EXERCISES and isinstance(id, str):
        chapters = importlib.import_module("fedbook.chapters")
        for module in pkgutil.iter_modules(chapters.__path__):
            importlib.import_module(f"fedbook.chapters.{module.name}")
    if id not in EXERCISES:
        raise wrong(ValueError, "id", id, "one of " + (", ".join(sorted(EXERCISES)) or "none: nothing is registered"))
    return EXERCISES[id]


def solution_source(id: str) -> str:
    """The reference solution as one types it into the notebook: with its imports, without annotations.

    ``solution_average`` is called ``average`` there. Of a value: its repr. Raises: ValueError.
    """
    solution = find(id).solution
    if not inspect.isfunction(solution):
        return repr(solution)
    source = textwrap.dedent(inspect.getsource(solution))
    tree = ast.parse(source)
    (function,) = tree.body
    for argument in ast.walk(function.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    head = f"def {function.name.removeprefix('solution_')}({ast.unparse(function.args)}):"
    body = source.splitlines()[function.body[0].lineno - 1 :]
    used = {node.id for part in function.body for node in ast.walk(part) if isinstance(node, ast.Name)}
    needed = sorted(_import_line(name, solution.__globals__[name]) for name in used & set(solution.__globals__))
    needed.sort(key=lambda line: line.startswith("from"))
    return "\n".join([*needed, *(["", ""] if needed else []), head, *body]).rstrip()


def _import_line(name: str, value: Any) -> str:
    return f"import {value.__name__}" if inspect.ismodule(value) else f"from {value.__module__} import {name}"


def details(summary: str, body: str) -> str:
    """Markdown that folds ``body`` (Markdown too) under ``summary``; needs no program to open."""
    return f"<details>\n<summary>{html.escape(summary, quote=False)}</summary>\n\n{body.strip()}\n\n</details>"


def folded(id: str) -> str:
    """The folded hints and the folded solution of an exercise, for the Markdown cell under it."""
    one = find(id)
    many = len(one.hints) > 1
    parts = [details(f"Hint {i}" if many else "Hint", hint) for i, hint in enumerate(one.hints, start=1)]
    parts.append(details("Solution", f"```python\n{solution_source(id)}\n```\n\n{one.why}"))
    return "\n\n".join(parts)


def is_stub(answer: Any) -> bool:
    """Whether nothing was attempted: ``...``, None, a place left ``...``, a function with an empty body."""
    if answer is ... or answer is None:
        return True
    if isinstance(answer, (list, tuple)):
        return any(part is ... for part in answer)
    if isinstance(answer, Mapping):
        return any(part is ... for part in answer.values())
    if inspect.isfunction(answer):
        steps = list(dis.get_instructions(answer))
        constants = [step.argval for step in steps if step.opname in ("LOAD_CONST", "RETURN_CONST")]
        empty = {step.opname for step in steps} <= STUB_OPERATIONS and all(c in (None, ...) for c in constants)
        return empty and not _says_none(answer)
    return False


def _says_none(function: Callable) -> bool:
    """Whether ``return None`` is written out: an answer, though it compiles to the same as an empty body."""
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, SyntaxError, TypeError, ValueError):  # typed where no source is kept, or part of a line
        return False
    return any(isinstance(node, ast.Return) and isinstance(node.value, ast.Constant) for node in ast.walk(tree))


def _judge(one: Exercise, answer: Any, raised: list[BaseException] | None = None) -> tuple[str, str]:
    """Status and problem; every exception of the learner's code ends here, those of a function in ``raised``."""
    try:
        if is_stub(answer):
            return NOT_ATTEMPTED, ""
        if inspect.isfunction(one.solution) and not callable(answer):
            return WRONG, f"Expected a function, got {short(answer)}."
        given = _watched(answer, [] if raised is None else raised) if callable(answer) else plain(answer)
        problem = one.checker(given)
        return (RIGHT, "") if problem is None else (WRONG, str(problem))
    except NotAttempted:
        return NOT_ATTEMPTED, ""
    except KeyboardInterrupt:
        return WRONG, "It was interrupted before it came to an end."
    except BaseException as error:  # SystemExit too: a verdict must not end the notebook
        return WRONG, f"It could not be judged, because it raised {short(error)}."


def _line(error: BaseException, answer: Callable) -> str:
    """The line of the learner's cell in which ``error`` left it, with its number in the cell; "" if none is known."""
    code, found = getattr(answer, "__code__", None), ""
    for frame in traceback.extract_tb(error.__traceback__):
        if code is not None and frame.filename == code.co_filename and frame.line:
            found = f"line {frame.lineno} of the cell: {frame.line}"
    return found


def _watched(function: Callable, raised: list[BaseException]) -> Callable:
    """The learner's function; where it returns ``...`` or raises NotImplementedError nothing was attempted."""

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        except NotImplementedError:
            raise NotAttempted from None
        except BaseException as error:
            raised.append(error)
            raise
        if result is ...:
            raise NotAttempted
        return result

    try:
        return functools.wraps(function)(call)
    except Exception:  # an object with hostile attributes
        return call


def _hint(one: Exercise, problem: str, answer: Any) -> str:
    """The hint of the known wrong answer with the same problem, or of the one that is near; else nothing."""
    for known in one.wrong_answers:
        if _judge(one, known.answer) == (WRONG, problem):
            return known.hint
    try:
        near = (known for known in one.wrong_answers if not callable(answer) and one.near(plain(answer), known.answer))
        return next((known.hint for known in near), "")
    except Exception:  # an object with hostile attributes
        return ""


def _html(verdict: Verdict) -> str:
    colour = {NOT_ATTEMPTED: NEUTRAL_TEXT, RIGHT: GREEN_TEXT, WRONG: ORANGE_TEXT}[verdict.status]
    text = "<br>".join(html.escape(line.strip()) for line in str(verdict).split("\n"))
    return f'<div role="status" style="border-left:4px solid {colour};padding:.3em .8em">{text}</div>'

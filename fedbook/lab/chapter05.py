"""Chapter 5's exercises: quantise, find hexagons, index, choose."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from fedbook.lab.compare import short
from fedbook.lab.exercises import WrongAnswer, exercise
from fedbook.papers.cvfl.accounts import TimeModel, index_bits
from fedbook.randomness import stream

# --- 05-1, by hand: h = (0.6, -0.1, 0.4), 2 bits on [-1, 1] from end to end, dither u = (0.2, -0.3, 0.05)


def solution_quantise_by_hand() -> list[float]:
    """Levels -1, -1/3, 1/3, 1; h + u = (0.8, -0.4, 0.45) goes to codes 3, 1, 2; then u is taken off again."""
    return [1 - 0.2, -1 / 3 + 0.3, 1 / 3 - 0.05]


@exercise(
    "05-1",
    solution=solution_quantise_by_hand(),
    hints=("2 bits are four levels from end to end: how far apart are they?",
           "Add the dither, go to the nearest level, send its number.",
           "The receiver knows the dither too: it takes it off.",),
    wrong_answers=(
        WrongAnswer("dither left in", [1.0, -0.3333, 0.3333], "first number",
                    "Those are the levels. The receiver knows the dither and must take it off again."),
        WrongAnswer("no dither", [0.3333, -0.3333, 0.3333], "first number",
                    "That is without the dither: the level nearest to h + u is wanted, not the one nearest to h."),
        WrongAnswer("dither added twice", [1.2, -0.6333, 0.3833], "first number",
                    "The sender adds the dither, the receiver SUBTRACTS it."),
        WrongAnswer("dither turned round", [0.5333, -0.6333, 0.3833], "first number",
                    "The sender adds the dither before rounding; you took it off there and added it at the end."),
        WrongAnswer("bins", [0.55, 0.05, 0.2], "first number",
                    "Those are the middles of four bins of 1/2. Here the levels go from end to end, 2/3 apart."),
        WrongAnswer("codes", [3, 1, 2], "first number", "Those are the codes; decode them."),
        WrongAnswer("error for value", [0.2, 0.0667, -0.1167], "first number", "That is the error; give the values."),
        WrongAnswer("one number", 0.8, "three numbers"),
    ),
)  # fmt: skip
def check_quantise_by_hand(answer: Any) -> str | None:
    answer = answer.tolist() if isinstance(answer, Tensor) else answer
    numeric = isinstance(answer, (list, tuple)) and len(answer) == 3
    if not numeric or any(isinstance(v, bool) or not isinstance(v, (int, float)) for v in answer):
        return f"It should be a list of three numbers; it is {short(answer)}."
    for place, given, right in zip(("first", "second", "third"), answer, solution_quantise_by_hand(), strict=True):
        if not abs(given - right) < 1e-3:
            return f"The {place} number of the decoded vector is not {short(given)}."
    return None


# --- 05-2, code: the nearest point of the hexagonal lattice


def solution_nearest(x: Tensor, d: float) -> Tensor:
    step = torch.tensor([d, math.sqrt(3) * d], dtype=x.dtype)
    found = []
    for shift in (torch.zeros_like(step), step / 2):  # a rectangular lattice and its copy in the middles
        found.append(((x - shift) / step).round() * step + shift)
    squares = [(x - point).square().sum(-1, keepdim=True) for point in found]
    return torch.where(squares[0] <= squares[1], *found)


def _rectangular(x: Tensor, d: float, shift: float = 0.0, high: float = math.sqrt(3)) -> Tensor:
    """The nearest point of one rectangular lattice: half of the answer."""
    step = torch.tensor([d, high * d], dtype=x.dtype)
    return ((x / step - shift).round() + shift) * step


def _by_coordinates(x: Tensor, d: float) -> Tensor:
    basis = torch.tensor([[d, 0.0], [d / 2, math.sqrt(3) / 2 * d]], dtype=x.dtype)
    return torch.linalg.solve(basis.mT, x.mT).mT.round() @ basis


def _in_place(x: Tensor, d: float) -> Tensor:
    return x.copy_(solution_nearest(x, d))


@exercise(
    "05-2",
    solution=solution_nearest,
    hints=("The lattice is two rectangular ones, d wide and sqrt(3) d high: the second sits in the first's middles.",
           "In a rectangular lattice each coordinate is rounded on its own.",
           "Round into both, then keep whichever is nearer: `torch.where`.",),
    wrong_answers=(
        WrongAnswer("one rectangle", _rectangular, "nearer",
                    "Half of the lattice is missing: the points in the middles of the rectangles."),
        WrongAnswer("the other rectangle", lambda x, d: _rectangular(x, d, 0.5), "nearer",
                    "Those are only the points in the middles of the rectangles."),
        WrongAnswer("coordinates rounded", _by_coordinates, "nearer",
                    "Rounding the coordinates in the oblique basis finds a neighbour, but not always the nearest."),
        WrongAnswer("half as high", lambda x, d: _rectangular(x, d, high=math.sqrt(3) / 2), "no point of the lattice",
                    "Rows are sqrt(3)/2 d apart, but every second one is shifted: a rectangle is sqrt(3) d high."),
        WrongAnswer("squares", lambda x, d: (x / d).round() * d, "no point of the lattice",
                    "That is the square lattice."),
        WrongAnswer("codes", lambda x, d: (x / d).round().long(), "floating"),
        WrongAnswer("in place", _in_place, "changes"),
        WrongAnswer("an error", lambda x, d: x.view(-1, 3), "RuntimeError"),
    ),
)  # fmt: skip
def check_nearest(answer: Any) -> str | None:
    for d in (1.0, 0.3):
        x = 4 * d * (torch.from_numpy(stream(0, "exercise points").random((400, 2))) - 0.5)
        given = x.clone()
        found = answer(given, d)
        if not isinstance(found, Tensor) or found.shape != x.shape or not found.dtype.is_floating_point:
            return f"It should return a floating-point tensor of shape {tuple(x.shape)}; it returned {short(found)}."
        found = found.to(x)
        off, near = _lattice_points(found, d), _lattice_points(x, d)
        for point, at, away, best in zip(x, found, off, near, strict=True):
            where = f"For d = {d} and the point ({point[0]:.3f}, {point[1]:.3f})"
            if not float((at - away).norm()) < 1e-5 * d:
                return f"{where} the result ({at[0]:.3f}, {at[1]:.3f}) is no point of the lattice."
            if float((at - point).norm()) > float((best - point).norm()) + 1e-5 * d:
                return (f"{where} the lattice point ({best[0]:.3f}, {best[1]:.3f}) is nearer "
                        f"than ({at[0]:.3f}, {at[1]:.3f}).")  # fmt: skip
        if not torch.equal(given, x):
            return "The result is right, but the function changes the points it was given."
    return None


def _lattice_points(x: Tensor, d: float) -> Tensor:
    """For each point the nearest of all lattice points within reach, found by trying them."""
    basis = torch.tensor([[d, 0.0], [d / 2, math.sqrt(3) / 2 * d]], dtype=x.dtype)
    steps = torch.arange(-8, 9, dtype=x.dtype)
    points = torch.cartesian_prod(steps, steps) @ basis
    exact = "donot_use_mm_for_euclid_dist"  # the product form loses half of the digits
    return points[torch.cdist(x.nan_to_num(nan=1e9), points, compute_mode=exact).argmin(1)]


# --- 05-3, code and experiment: what the index of top-k costs


def solution_index_bits(batch_size: int, width: int, kept: int, same: bool) -> int:
    if kept == width:
        return 0  # everything was kept: there is one such set
    number = math.ceil(math.log2(width))  # bits of a component's number
    one = min(kept * number, width)  # a list of numbers, or a bit a component
    return one if same else batch_size * one


def _index(
    number: Callable[[int], float] = lambda p: math.ceil(math.log2(p)),
    *, one: Callable[[float, int], float] = min, once: bool = True, always: bool = False, whole: bool = True,
) -> Callable[[int, int, int, bool], float]:  # fmt: skip
    """The count with one of its usual mistakes."""

    def answer(batch_size: int, width: int, kept: int, same: bool) -> float:
        if whole and kept == width:
            return 0
        return one(kept * number(width), width) * (1 if always or (same and once) else batch_size)

    return answer


@exercise(
    "05-3",
    solution=solution_index_bits,
    hints=("How many bits has the number of a component, out of P?",
           "A list costs more with every kept component, a bitmap does not: take the cheaper one for each k.",
           "One set for the whole batch is sent once. And if all components are kept?",),
    wrong_answers=(
        WrongAnswer("list only", _index(one=lambda a, p: a), "bits",
                    "For large k a bitmap, one bit a component, is shorter than the list."),
        WrongAnswer("bitmap only", _index(one=lambda a, p: p), "bits",
                    "For small k a list of the kept components' numbers is shorter than the bitmap."),
        WrongAnswer("fractions of a bit", _index(math.log2), "bits",
                    "A number out of P needs whole bits: round log2 P up."),
        WrongAnswer("rounded down", _index(lambda p: math.floor(math.log2(p))), "bits",
                    "With log2 P rounded DOWN some components have no number of their own."),
        WrongAnswer("32-bit numbers", _index(lambda p: 32, one=lambda a, p: a), "bits",
                    "A number out of P does not need 32 bits."),
        WrongAnswer("shared, sent B times", _index(once=False), "bits",
                    "One set for the whole batch needs to be said once."),
        WrongAnswer("always once", _index(always=True), "bits",
                    "If every vector keeps its own components, each needs its own index."),
        WrongAnswer("all kept", _index(whole=False), "bits",
                    "If all components are kept the receiver knows which: nothing has to be said."),
        WrongAnswer("a pair", lambda *a: (1, 2), "whole number"),
    ),
)  # fmt: skip
def check_index_bits(answer: Any) -> str | None:
    for batch_size, width in ((5, 12), (1, 7), (100, 32), (3, 1)):
        for kept in range(1, width + 1):
            for same in (False, True):
                found = answer(batch_size, width, kept, same)
                if isinstance(found, bool) or not isinstance(found, numbers.Real):
                    return f"It should return one whole number; it returned {short(found)}."
                forms = ("shared",) if same else ("list", "bitmap")
                right = min(index_bits(form, batch_size, width, kept) for form in forms)
                if found != right:  # also if it is not a number
                    sets = "one set for all" if same else "each its own set"
                    return (f"For B = {batch_size}, P = {width}, k = {kept}, {sets}, it takes {right} bits; "
                            f"it gave {short(found)}.")  # fmt: skip
    return None


# --- 05-4, open: a slow link

LINK = TimeModel(latency_s=0.2, step_s=0.01, bandwidth=50_000)
TARGET, BUDGET_S, SEEDS = 0.9, 15.0, (0, 1, 2)


@exercise(
    "05-4",
    solution={"compressor": "hex", "bits": 2, "local_steps": 5},
    hints=("Work out a round first: bytes / bandwidth, latency, steps. Which of the three is largest?",
           "Fewer bits make rounds shorter but, from some point on, more of them necessary. Who loses least by them?",
           "`fedbook run cvfl --problem digits --set compressor=.. --set bits=.. --set local_steps=..` tries one.",),
    wrong_answers=(
        WrongAnswer("not compressed", {"compressor": "none", "bits": 32, "local_steps": 10}, "bytes",
                    "A round of uncompressed embeddings takes over five seconds on this link."),
        WrongAnswer("every step exchanged", {"compressor": "scalar", "bits": 2, "local_steps": 1}, "bytes",
                    "Latency and bytes are paid for every single step: take several on the same embeddings."),
        WrongAnswer("one long round", {"compressor": "hex", "bits": 2, "local_steps": 1500}, "one round",
                    "So many steps on one batch and stale embeddings use up all the time."),
        WrongAnswer("no such compressor", {"compressor": "zip", "bits": 2, "local_steps": 10}, "one of"),
        WrongAnswer("no bits", {"compressor": "scalar", "bits": 0, "local_steps": 10}, "bits"),
        WrongAnswer("one missing", {"compressor": "scalar", "bits": 2}, "local_steps"),
        WrongAnswer("a text", "hex with 2 bits", "dictionary"),
    ),
)  # fmt: skip
def check_choice(answer: Any) -> str | None:
    wanted = ("compressor", "bits", "local_steps")
    if not isinstance(answer, dict) or set(answer) != set(wanted):
        return f"It should be a dictionary with {', '.join(wanted)}; it is {short(answer)}."
    if not isinstance(answer["compressor"], str):
        return f"compressor should be a word; it is {short(answer['compressor'])}."
    for name in wanted[1:]:
        if isinstance(answer[name], bool) or not isinstance(answer[name], int):
            return f"{name} should be a whole number; it is {short(answer[name])}."
    try:
        return _tried(*(answer[name] for name in wanted))
    except ValueError as error:
        return f"These settings do not run: {error}."


@lru_cache(maxsize=64)
def _tried(compressor: str, bits: int, local_steps: int) -> str | None:
    """None if the mean accuracy over three seeds reaches the target in time, else where the time went."""
    from fedbook.experiment import plan
    from fedbook.papers import cvfl

    alone = LINK.seconds(1, local_steps)
    if alone > BUDGET_S:
        return f"Without its bytes already one round takes {alone:g} s, of {BUDGET_S:g} s in all"
    changes = {"compressor": compressor, "bits": bits, "local_steps": local_steps, "evaluate_every": 1}
    changes["rounds"] = int(BUDGET_S / alone)
    rounds = plan(cvfl.PAPER, "c-vfl", "digits", changes=changes, seeds=SEEDS, device="cpu").rounds()
    best, moved, done = 0.0, 0.0, 0
    for record in rounds:
        crossed = moved + (sum(record.bytes_up) + sum(record.bytes_down)) / len(SEEDS)
        if LINK.seconds(record.t + 1, local_steps, crossed) > BUDGET_S:
            break
        moved, done = crossed, record.t + 1
        accuracy = record.metrics["accuracy"]
        best = max(best, sum(accuracy) / len(accuracy))
        if best >= TARGET:
            return None
    return (f"In {BUDGET_S:g} s there is time for {done} rounds ({moved / LINK.bandwidth:.1f} s bytes, "
            f"{done * LINK.latency_s:.1f} s latency, {done * local_steps * LINK.step_s:.1f} s steps); "
            f"the best accuracy is {best:.3f}, below {TARGET:g}")  # fmt: skip

"""Chapter 4's exercises: clip, perturb, count tensors, ask."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fedbook.lab.compare import finding_problem, short, unlike
from fedbook.lab.exercises import WrongAnswer, exercise
from fedbook.privacy.gaussian import rdp_to_epsilon
from fedbook.privacy.sampled import sampled_epsilon, sampled_gaussian_rdp
from fedbook.randomness import normal, stream

# --- 04-1, by hand: client A sends (3, 0) and 4, client B sends (0, 0.6) and 0.8; C = 2


def solution_clip_by_hand() -> list[float]:
    """A has norm 5 and becomes 2/5 of itself, (1.2, 0) and 1.6; B has norm 1 and stays."""
    return [0.6, 0.3, 1.2]


@exercise(
    "04-1",
    solution=solution_clip_by_hand(),
    hints=("Each client has ONE norm, over its three numbers together.", "Clipping only ever shortens."),
    wrong_answers=(
        WrongAnswer("tensor by tensor", [1.0, 0.3, 1.4], "first number",
                    "That clips the two tensors of client A one by one; together they still have norm 2.83 > C."),
        WrongAnswer("not clipped", [1.5, 0.3, 2.4], "first number", "That is the mean without clipping."),
        WrongAnswer("mean clipped", [1.0541, 0.2108, 1.6865], "first number",
                    "That clips the mean. Then one client could still move the sum as far as it likes."),
        WrongAnswer("always rescaled", [0.6, 0.6, 1.6], "second number",
                    "Client B is shorter than C and must stay as it is: the factor is min(1, C / norm)."),
        WrongAnswer("the sum", [1.2, 0.6, 2.4], "first number", "That is the sum; the server divides by two."),
        WrongAnswer("one number", 0.6, "three numbers"),
    ),
)  # fmt: skip
def check_clip_by_hand(answer: Any) -> str | None:
    answer = answer.tolist() if isinstance(answer, Tensor) else answer
    numbers = isinstance(answer, (list, tuple)) and len(answer) == 3
    if not numbers or any(isinstance(v, bool) or not isinstance(v, (int, float)) for v in answer):
        return f"It should be a list of three numbers; it is {short(answer)}."
    for place, given, right in zip(("first", "second", "third"), answer, solution_clip_by_hand(), strict=True):
        if not abs(given - right) < 1e-3:
            return f"The {place} number of the mean is not {short(given)}."
    return None


# --- 04-2, code: one SAM step


def solution_sam_update(
    loss: Callable[[dict[str, Tensor]], Tensor], theta: dict[str, Tensor], lr: float, radius: float
) -> dict[str, Tensor]:
    g = torch.func.grad(loss)(theta)
    norm = torch.sqrt(sum(x.square().sum() for x in g.values()))  # one norm over all tensors
    away = {name: theta[name] + radius * g[name] / (norm + 1e-12) for name in theta}
    slope = torch.func.grad(loss)(away)
    return {name: theta[name] - lr * slope[name] for name in theta}  # from theta, not from where we looked


def _sam(
    loss: Callable, theta: dict[str, Tensor], lr: float, radius: float,
    *, norms: bool = False, restore: bool = True, sign: float = 1.0, guard: float = 1e-12, power: float = 1.0,
) -> dict[str, Tensor]:  # fmt: skip
    """The step with one of its usual mistakes."""
    g = torch.func.grad(loss)(theta)
    whole = torch.sqrt(sum(x.square().sum() for x in g.values()))
    scale = {name: radius / (((g[name].norm() if norms else whole) + guard) ** power) for name in g}
    away = {name: theta[name] + sign * scale[name] * g[name] for name in theta}
    slope, start = torch.func.grad(loss)(away), theta if restore else away
    return {name: start[name] - lr * slope[name] for name in theta}


def _in_place(loss: Callable, theta: dict[str, Tensor], lr: float, radius: float) -> dict[str, Tensor]:
    new = solution_sam_update(loss, theta, lr, radius)
    for name in theta:
        theta[name].copy_(new[name])
    return theta


@exercise(
    "04-2",
    solution=solution_sam_update,
    hints=(
        "`torch.func.grad(loss)(theta)` returns the gradient in the form of theta.",
        "Three places: where you are, where you look (theta + p), where you step from (theta again).",
        "What happens where the gradient is exactly 0?",
    ),
    wrong_answers=(
        WrongAnswer("a norm for each tensor", lambda *a: _sam(*a, norms=True), "case 1",
                    "p must have length q in all: one norm over all tensors, not one for each."),
        WrongAnswer("not restored", lambda *a: _sam(*a, restore=False), "case 1",
                    "The step starts at theta + p. Look there, but step from theta."),
        WrongAnswer("plain descent", lambda loss, theta, lr, radius: _sam(loss, theta, lr, 0.0), "case 1",
                    "That is the step without SAM: the gradient must be taken at theta + p."),
        WrongAnswer("downhill", lambda *a: _sam(*a, sign=-1.0), "case 1", "p goes uphill: to where the loss is worst."),
        WrongAnswer("not normalised", lambda *a: _sam(*a, power=0.0), "case 1",
                    "p is q times the gradient; divide by the gradient's norm."),
        WrongAnswer("0 / 0", lambda *a: _sam(*a, guard=0.0), "gradient is 0", "0 / 0: give the divisor a tiny addend."),
        WrongAnswer("in place", _in_place, "changes"),
        WrongAnswer("a tensor", lambda loss, theta, lr, radius: theta["body"], "dictionary"),
        WrongAnswer("an error", lambda loss, theta, lr, radius: theta["no such name"], "KeyError"),
    ),
)  # fmt: skip
def check_sam_step(answer: Any) -> str | None:
    cases = [(0.1, 0.5, 1.0), (0.3, 0.0, 1.0), (0.05, 2.0, 1.0), (0.1, 0.5, 0.0)]
    for case, (lr, radius, size) in enumerate(cases, start=1):
        theta = {n: size * normal(shape, stream(case, n)) for n, shape in (("body", (2, 3)), ("bias", (2,)))}
        given = {name: x.clone() for name, x in theta.items()}
        found, right = answer(_bowl, given, lr, radius), solution_sam_update(_bowl, theta, lr, radius)
        if not isinstance(found, dict) or set(found) != set(theta):
            return f"It should return a dictionary with the names {sorted(theta)}; it returned {short(found)}."
        for name, expected in right.items():
            if not isinstance(found[name], Tensor) or found[name].shape != expected.shape:
                return f"{name!r} should be a tensor of shape {tuple(expected.shape)}; it is {short(found[name])}."
            if not torch.allclose(found[name].to(expected), expected, rtol=0, atol=1e-9):
                where = f"lr = {lr}, radius = {radius}" + ("" if size else ", where the gradient is 0")
                right_one, given_one = float(expected.flatten()[0]) + 0.0, float(found[name].flatten()[0])
                return (f"In case {case} ({where}) the first entry of {name!r} should be {right_one:.4f}; "
                        f"it is {given_one:.4f}.")  # fmt: skip
        if any(not torch.equal(given[name], x) for name, x in theta.items()):
            return "The result is right, but the function changes the theta it was given."
    return None


def _bowl(theta: dict[str, Tensor]) -> Tensor:
    """A smooth loss with its minimum, and a gradient of exactly 0, at 0; the tensors have unequal curvature."""
    mixed = theta["body"].sum(1) + theta["bias"]
    return 0.5 * theta["body"].square().sum() + 2.0 * theta["bias"].square().sum() + 0.25 * mixed.pow(4).sum()


# --- 04-3, code and experiment: the published code that clips tensor by tensor


def solution_true_privacy(
    noise_multiplier: float, tensors: int, rate: float, rounds: int, delta: float
) -> tuple[float, float]:
    true = noise_multiplier / math.sqrt(tensors)  # the sum moves by up to C sqrt(K), the noise is sigma C
    return true, sampled_epsilon(true, rate, rounds, delta)


def _claims(factor: Callable[[int], float]) -> Callable[..., tuple[float, float]]:
    def answer(noise_multiplier: float, tensors: int, rate: float, rounds: int, delta: float) -> tuple[float, float]:
        return noise_multiplier * factor(tensors), sampled_epsilon(
            noise_multiplier * factor(tensors), rate, rounds, delta
        )

    return answer


def _claimed_epsilon(
    noise_multiplier: float, tensors: int, rate: float, rounds: int, delta: float
) -> tuple[float, float]:
    return noise_multiplier / math.sqrt(tensors), sampled_epsilon(noise_multiplier, rate, rounds, delta)


@exercise(
    "04-3",
    solution=solution_true_privacy,
    hints=("How long can an update be all of whose K tensors have norm C?",
           "The noise multiplier is the noise's deviation over the SENSITIVITY; the code divides by C.",
           "`fedbook.privacy.sampled.sampled_epsilon(noise_multiplier, rate, rounds, delta)`",),
    wrong_answers=(
        WrongAnswer("the claim", _claims(lambda k: 1.0), "multiplier",
                    "That is what the code claims: it takes C for the sensitivity."),
        WrongAnswer("divided by K", _claims(lambda k: 1 / k), "multiplier",
                    "Norms of parts add in squares: K tensors of norm C have norm C sqrt(K), not C K."),
        WrongAnswer("times sqrt(K)", _claims(math.sqrt), "multiplier",
                    "More sensitivity is less privacy: divide."),
        WrongAnswer("epsilon of the claim", _claimed_epsilon, "epsilon",
                    "The multiplier is right; now account with it instead of the claimed one."),
        WrongAnswer("one number", lambda *a: 0.12, "two numbers"),
    ),
)  # fmt: skip
def check_true_privacy(answer: Any) -> str | None:
    for noise_multiplier, tensors, rate, rounds, delta in ((8.0, 4, 0.05, 200, 1e-3), (0.95, 62, 0.1, 300, 2e-3)):
        given = answer(noise_multiplier, tensors, rate, rounds, delta)
        try:
            multiplier, epsilon = (float(v) for v in given)
        except (TypeError, ValueError):
            return f"It should return two numbers, the multiplier and epsilon; it returned {short(given)}."
        where = f"sigma = {noise_multiplier:g}, {tensors} tensors"
        true, figure = solution_true_privacy(noise_multiplier, tensors, rate, rounds, delta)
        if unlike(multiplier, true, 1e-6):
            return f"For {where} the true multiplier is {true:.4f}; it gave {multiplier:.4f}."
        # sound figures lie between what simulated privacy losses give and what whole Renyi orders give
        renyi = [rounds * sampled_gaussian_rdp(a, true, rate) for a in range(2, 65)]
        lower, most = {4: 0.4, 62: 1400.0}[tensors], rdp_to_epsilon(range(2, 65), renyi, delta, "classic")[0]
        if not lower <= epsilon <= 1.01 * most:
            return f"For {where} the accountant's epsilon is {figure:.4g}; it gave {epsilon:.4g}."
    return None


# --- 04-4, open


@exercise(
    "04-4",
    solution={"question": "Does q = 0.1 gain accuracy at C = 0.5?", "seeds": 8, "low": 0.004, "high": 0.026},
    hints=("Paired seeds: the same split, start and noise for both methods.",
           "Change one thing only. Where noise dominates and where clipping dominates the answers may differ.",
           "`fedbook.intervals.paired_difference(a, b)` gives the interval.",),
    wrong_answers=(
        WrongAnswer("one seed", {"question": "Does SAM help?", "seeds": 1, "low": 0.0, "high": 0.1}, "seeds",
                    "One run cannot tell an effect from luck."),
        WrongAnswer("turned round", {"question": "Does SAM help?", "seeds": 3, "low": 0.1, "high": 0.0}, "low"),
        WrongAnswer("no interval", {"question": "Does SAM help?", "seeds": 3}, "high"),
        WrongAnswer("no question", {"question": "SAM helps", "seeds": 3, "low": 0.0, "high": 0.1}, "question mark"),
        WrongAnswer("a text", "SAM helps", "dictionary"),
    ),
)  # fmt: skip
def check_experiment(answer: Any) -> str | None:
    return finding_problem(answer)

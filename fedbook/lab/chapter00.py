"""Chapter 0's errata and exercises: what is said about FedAvg and does not hold, and what the reader works out."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fedbook.lab.chapter00_theory import cohort_means, image_from_update, quadratic_fixed_point
from fedbook.lab.compare import short
from fedbook.lab.errata import Erratum, errata_text
from fedbook.lab.exercises import WrongAnswer, exercise
from fedbook.randomness import normal, stream

# --- errata: (statement, witness); a witness returns the number that refutes and what the statement says


def printed_average() -> tuple[float, float]:
    """K = 10 equal clients, 2 take part and return the model unchanged: the printed sum keeps this share of it."""
    theta, weight = torch.ones(4, dtype=torch.float64), torch.full((10,), 0.1, dtype=torch.float64)
    new = (weight[[3, 7], None] * theta).sum(0)  # sum over k of n_k / n theta_k; nobody else sent anything
    return float((new / theta).mean()), 1.0


def normalised_cohorts_are_biased() -> tuple[float, float]:
    """Clients of sizes 1, 2, 9 and cohorts of two: the mean over all cohorts, where the full average is 1."""
    p = torch.tensor([1.0, 2.0, 9.0], dtype=torch.float64) / 12
    values = torch.tensor([[0.0], [0.0], [12.0 / 9.0]], dtype=torch.float64)  # their weighted average is exactly 1
    return float(cohort_means(values, p, 2)[1].mean()), 1.0


def averaging_is_not_minimising() -> tuple[float, float]:
    """Two quadratics of unequal curvature, many local steps: FedAvg's resting point, and the minimum."""
    a = torch.tensor([[1.0], [9.0]], dtype=torch.float64)
    b = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    p = torch.tensor([0.5, 0.5], dtype=torch.float64)
    return float(quadratic_fixed_point(a, b, p, 0.1, 50)[0]), float((p[:, None] * a * b).sum() / (p[:, None] * a).sum())


def updates_can_be_the_data() -> tuple[float, float]:
    """One sample, softmax regression: largest error of the image read off the gradient (promised: it stays hidden)."""
    x, y = normal((5, 1), stream(0, "erratum"))[:, 0], 2
    weight, bias = normal((3, 5), stream(1, "erratum")), normal((3,), stream(2, "erratum"))
    p = torch.softmax(weight @ x + bias, 0) - torch.nn.functional.one_hot(torch.tensor(y), 3)
    update = {"1.weight": torch.outer(p, x), "1.bias": p}
    return round(float((image_from_update(update) - x).abs().max()), 9), math.inf


ERRATA: tuple[Erratum, ...] = (
    ("first versions of Algorithm 1: factor of a model nobody changed, 2 of 10 in the cohort", printed_average),
    ("FedAvg's cohort average is unbiased: its mean over all cohorts", normalised_cohorts_are_biased),
    ("FedAvg minimises F: where it rests, and the minimum", averaging_is_not_minimising),
    ("an update carries less than the data: error of the image read off it", updates_can_be_the_data),
)


errata_table = partial(errata_text, ERRATA, width=9)


# --- exercises


def solution_average_by_hand() -> float:
    """(30 * 2 + 10 * 6) / 40."""
    return 3.0


@exercise(
    "00-1",
    solution=solution_average_by_hand(),
    hints=("How many samples stand behind each of the two numbers?",),
    wrong_answers=(
        WrongAnswer(
            "plain mean", 4.0, "4.0", "That is the plain mean. Client A speaks for 30 samples, client B for 10."
        ),
        WrongAnswer("weights swapped", 5.0, "5.0", "The weights are the wrong way round."),
        WrongAnswer("no number", "three", "a number"),
    ),
)
def check_average_by_hand(answer: Any) -> str | None:
    if isinstance(answer, bool) or not isinstance(answer, (int, float)):
        return f"It should be a number; it is {short(answer)}."
    return None if abs(answer - 3.0) < 1e-9 else f"{float(answer)!r} is not the weighted average."


def solution_average(models: dict[str, Tensor], sizes: Tensor) -> dict[str, Tensor]:
    p = sizes.double() / sizes.sum()
    return {name: torch.einsum("k,k...->...", p.to(x.dtype), x) for name, x in models.items()}


def _unweighted(models: dict[str, Tensor], sizes: Tensor) -> dict[str, Tensor]:
    return {name: x.mean(0) for name, x in models.items()}


def _unnormalised(models: dict[str, Tensor], sizes: Tensor) -> dict[str, Tensor]:
    return {name: torch.einsum("k,k...->...", sizes.to(x.dtype), x) for name, x in models.items()}


@exercise(
    "00-2",
    solution=solution_average,
    hints=(
        "Turn the sizes into shares that sum to 1.",
        "`torch.einsum('k,k...->...', p, x)` sums over the first axis.",
    ),
    wrong_answers=(
        WrongAnswer(
            "unweighted", _unweighted, "weight", "All clients count the same here; line 8 weights by their samples."
        ),
        WrongAnswer("unnormalised", _unnormalised, "weight", "The weights do not sum to one: divide by the total."),
        WrongAnswer("a list", lambda models, sizes: list(models), "dictionary"),
        WrongAnswer("an error", lambda models, sizes: models["no such name"], "KeyError"),
    ),
)
def check_average(answer: Any) -> str | None:
    for case in range(3):
        sizes = torch.tensor([[3, 1], [5, 5, 20], [1, 2, 3, 4]][case])
        models = {
            name: normal((len(sizes), *shape), stream(case, f"exercise {name}"))
            for name, shape in (("weight", (2, 3)), ("bias", (3,)))
        }
        given = answer({name: x.clone() for name, x in models.items()}, sizes.clone())
        if not isinstance(given, dict) or set(given) != set(models):
            return f"It should return a dictionary with the names {sorted(models)}; it returned {short(given)}."
        for name, expected in solution_average(models, sizes).items():
            if not isinstance(given[name], Tensor) or given[name].shape != expected.shape:
                return f"{name!r} should be a tensor of shape {tuple(expected.shape)}; it is {short(given[name])}."
            if not torch.allclose(given[name].to(expected), expected):
                at = "" if case == 0 else f" (case {case + 1})"
                return (f"For sizes {sizes.tolist()} the first entry of {name!r} should be "
                        f"{float(expected.flatten()[0]):.4f}; "
                        f"it is {float(given[name].flatten()[0]):.4f}{at}.")  # fmt: skip
    return None


def solution_resting_point(a: Tensor, b: Tensor, p: Tensor, lr: float, steps: int) -> Tensor:
    pull = p * (1 - (1 - lr * a) ** steps)  # how far each client moves towards its own optimum in a round
    return (pull * b).sum() / pull.sum()


@exercise(
    "00-3",
    solution=solution_resting_point,
    hints=(
        "After E steps client k stands at b_k + (1 - eta a_k)^E (w - b_k).",
        "At rest the average of the clients' moves is zero; solve that for w.",
    ),
    wrong_answers=(
        WrongAnswer("the minimum", lambda a, b, p, lr, steps: (p * a * b).sum() / (p * a).sum(), "E = 5",
                    "That is the minimum of the global loss: right for one local step, not for more."),
        WrongAnswer("mean of optima", lambda a, b, p, lr, steps: (p * b).sum(), "E = 1",
                    "That is where infinitely many local steps lead."),
        WrongAnswer("not a number", lambda a, b, p, lr, steps: float("nan"), "nan"),
    ),
)  # fmt: skip
def check_resting_point(answer: Any) -> str | None:
    a, b = torch.tensor([1.0, 4.0, 0.5], dtype=torch.float64), torch.tensor([0.0, 1.0, -2.0], dtype=torch.float64)
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    for steps in (1, 5, 40):
        given, expected = answer(a, b, p, 0.1, steps), float(solution_resting_point(a, b, p, 0.1, steps))
        try:
            value = float(given)
        except (TypeError, ValueError):
            return f"It should return a number; it returned {short(given)}."
        if not abs(value - expected) < 1e-6:
            return f"With E = {steps} the resting point is {expected:.4f}; it gave {value:.4f}."
    return None


@exercise(
    "00-4",
    solution={"question": "Does doubling E at half the rounds cost?", "seeds": 5, "low": -0.031, "high": -0.007},
    hints=("Change one thing only, keep the bytes or the steps equal, and run both on the same seeds.",
           "`fedbook.intervals.paired_difference(a, b)` gives the interval.",),
    wrong_answers=(
        WrongAnswer("one seed", {"question": "Does E matter?", "seeds": 1, "low": 0.0, "high": 0.1}, "seeds",
                    "One run cannot tell an effect from luck."),
        WrongAnswer("turned round", {"question": "Does E matter?", "seeds": 3, "low": 0.1, "high": 0.0}, "low"),
        WrongAnswer("no interval", {"question": "Does E matter?", "seeds": 3}, "high"),
        WrongAnswer("a text", "E matters", "dictionary"),
    ),
)  # fmt: skip
def check_experiment(answer: Any) -> str | None:
    wanted = ("question", "seeds", "low", "high")
    if not isinstance(answer, dict) or any(word not in answer for word in wanted):
        return f"It should be a dictionary with {', '.join(wanted)}; it is {short(answer)}."
    if not isinstance(answer["question"], str) or not answer["question"].strip().endswith("?"):
        return "The question should be one sentence that ends with a question mark."
    if isinstance(answer["seeds"], bool) or not isinstance(answer["seeds"], int) or answer["seeds"] < 3:
        return f"At least 3 seeds are needed for an interval; seeds is {short(answer['seeds'])}."
    low, high = answer["low"], answer["high"]
    if not all(isinstance(v, (int, float)) and math.isfinite(v) for v in (low, high)) or low > high:
        return f"low and high should be numbers with low <= high; they are {short(low)} and {short(high)}."
    return None

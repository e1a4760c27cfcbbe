"""The lesson on differential privacy: the answers of its exercises."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedbook.lab.compare import short, unlike
from fedbook.lab.exercises import WrongAnswer, by_cases, by_hand, exercise

by_hand(
    "00-p1",
    solution={"add_remove": 5, "replace_one": 5},
    hints=("Between which two answers can one client move the sum? The numbers are never negative.",),
    why="A number lies between 0 and 5. Added or removed it moves the sum by 5 at most. Replaced it goes from 0 "
        "to 5 at most, 5 again. Between -5 and 5 the two kinds would differ.",
    wrong_answers=(
        WrongAnswer({"add_remove": 5, "replace_one": 10},
                    "Twice the bound holds for numbers between -5 and 5. Here the furthest replacement is 0 by 5."),
        WrongAnswer({"add_remove": 2.5, "replace_one": 5},
                    "The neighbour is the worst one: the client who joins holds 5."),
    ),
)  # fmt: skip


def solution_laplace_epsilon(sensitivity: float, scale: float) -> float:
    return sensitivity / scale


by_cases(
    "00-p2",
    solution=solution_laplace_epsilon,
    hints=("Write the loss as (|y| - |y - sensitivity|) / scale.", "The triangle inequality bounds it."),
    wrong_answers=(
        WrongAnswer(lambda sensitivity, scale: scale / sensitivity, "More noise must make epsilon smaller."),
        WrongAnswer(lambda sensitivity, scale: (sensitivity / scale) ** 2 / 2,
                    "That is the mean of a Gaussian loss; the largest Laplace loss is asked for."),
    ),
    cases=[{"sensitivity": 1.0, "scale": 0.5}, {"sensitivity": 1.0, "scale": 2.0}, {"sensitivity": 3.0, "scale": 2.0}],
)  # fmt: skip


by_hand(
    "00-p3",
    solution=3.0,
    hints=("Nine releases are one with the shift sqrt(9) mu.",),
    why="Nine releases have the shift of one times the root of nine. σ takes the factor of three back.",
    wrong_answers=(
        WrongAnswer(9, "The losses' means add, but so do their variances: the shift grows slower."),
        WrongAnswer(1, "Each release tells more: the noise has to grow."),
    ),
)


def solution_classic_epsilon(orders, divergences, delta):
    return (divergences + math.log(1 / delta) / (orders - 1)).min()


_ORDERS = np.array([2.0, 4.0, 8.0, 32.0])


by_cases(
    "00-p4",
    solution=solution_classic_epsilon,
    hints=("Compute the right side for all orders at once.", "Then take the minimum."),
    wrong_answers=(
        WrongAnswer(lambda orders, divergences, delta: divergences[0] + math.log(1 / delta) / (orders[0] - 1),
                    "That is what the first order says. Every order gives a valid figure: take the smallest."),
        WrongAnswer(lambda orders, divergences, delta: divergences.min(),
                    "The divergence alone is no epsilon: add what delta costs at the same order, then compare orders."),
        WrongAnswer(lambda orders, divergences, delta:
                    (divergences + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)).min(),
                    "That is the sharper conversion. The classic one adds log(1 / delta) / (order - 1)."),
    ),
    cases=[
        {"orders": _ORDERS, "divergences": _ORDERS * 0.1, "delta": 1e-5},
        {"orders": _ORDERS, "divergences": _ORDERS * 0.01, "delta": 1e-3},
    ],
)  # fmt: skip


by_hand(
    "00-p5",
    solution=1.0,
    hints=("What does the list tell about the rounds in which Dua took part?",),
    why="Who was drawn is published, so the draw hides nothing. The figure must hold even if Dua is drawn in every "
    "round, and then each counts in full: q = 1.",
    wrong_answers=(
        WrongAnswer(0.1, "The list says who was drawn: nothing is secret any more."),
        WrongAnswer(0, "Then nobody would ever take part."),
    ),
)


def solution_clip_model(weight, bias, bound):
    # Each tensor clipped by itself, the whole update can be sqrt(2) times the bound long.
    length = math.sqrt(weight.norm().item() ** 2 + bias.norm().item() ** 2)
    factor = min(1.0, bound / max(length, 1e-12))  # nothing to clip in an update of zeros
    return weight * factor, bias * factor


def _each_by_itself(weight: Tensor, bias: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    return weight * min(1.0, bound / weight.norm().item()), bias * min(1.0, bound / bias.norm().item())


def _half_each(weight: Tensor, bias: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    return _each_by_itself(weight, bias, bound / math.sqrt(2))


@exercise(
    "00-p6",
    solution=solution_clip_model,
    hints=("How long is the vector that holds the entries of both tensors?",
           "Two tensors of length C each make one of length sqrt(2) C: take one factor for both."),
    why="With a factor each the update is at most sqrt(2) C long. Clipping each tensor to C / sqrt(2) keeps the "
        "promise, but it bends the update and shortens more than it must.",
    wrong_answers=(
        WrongAnswer(_each_by_itself,
                    "Two tensors of length C make an update of length sqrt(2) C: clip them with one common factor."),
        WrongAnswer(_half_each,
                    "That is safe, but it changes the direction, and shortens updates that were short enough."),
    ),
)  # fmt: skip
def check_clip_model(answer: Callable[..., Any]) -> str | None:
    generator = torch.Generator().manual_seed(0)
    for size, bound in ((3.0, 1.0), (0.1, 1.0), (1.0, 0.5)):
        weight, bias = torch.ones(4, 3, dtype=torch.float64), torch.randn(3, generator=generator, dtype=torch.float64)
        weight, bias = size * weight, size * bias / bias.norm()
        given = answer(weight.clone(), bias.clone(), bound)
        pair = isinstance(given, (tuple, list)) and len(given) == 2
        if not pair or not all(isinstance(part, Tensor) for part in given):
            return f"It should return two tensors; it returned {short(given)}."
        length = math.sqrt(sum(part.square().sum().item() for part in given))
        if length > bound * (1 + 1e-9):
            return f"For the bound {bound:g} the whole update still has length {length:.6g}."
        if unlike(list(given), list(solution_clip_model(weight, bias, bound)), 1e-5):  # the usual + 1e-6 is no mistake
            return f"For the bound {bound:g} it is another update than the one shortened along its own direction."
    return None


def solution_private_step(updates, bound, z, rate, number, noise):
    lengths = updates.flatten(1).norm(dim=1)
    factors = (bound / lengths).clamp(max=1.0)
    total = (updates * factors[:, None]).sum(0)
    return (total + z * bound * noise) / (rate * number)


def _clipped_sum(updates: Tensor, bound: float) -> Tensor:
    return (updates * (bound / updates.norm(dim=1)).clamp(max=1.0)[:, None]).sum(0)


@exercise(
    "00-p7",
    solution=solution_private_step,
    hints=("How large must the noise be beside the sensitivity of the sum?", "Is the divisor a constant?"),
    why="With C = 2 the noise z was half of what the sum needs. And how many were drawn is data, and may be 0.",
    wrong_answers=(
        WrongAnswer(lambda updates, bound, z, rate, number, noise:
                    (_clipped_sum(updates, bound) + z * noise) / len(updates),
                    "The multiplier counts in units of the sensitivity: the noise has standard deviation z C."),
        WrongAnswer(lambda updates, bound, z, rate, number, noise:
                    (_clipped_sum(updates, bound) + z * bound * noise) / len(updates),
                    "How many were drawn is data. Divide by the expected number, rate times number."),
        WrongAnswer(lambda updates, bound, z, rate, number, noise:
                    (updates.sum(0) + z * bound * noise) / (rate * number),
                    "Clip each update to the length C before you add: the noise does not hide a longer one."),
    ),
)  # fmt: skip
def check_private_step(answer: Callable[..., Any]) -> str | None:
    generator = torch.Generator().manual_seed(0)
    updates = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    noise = torch.randn(4, generator=generator, dtype=torch.float64)
    for z, bound in ((2.0, 2.0), (1.5, 2.0), (1.5, 0.7)):
        setting = {"bound": bound, "z": z, "rate": 0.1, "number": 50}
        expected = solution_private_step(updates, noise=noise, **setting)
        given, still = (answer(updates.clone(), noise=n, **setting) for n in (noise.clone(), 0 * noise))
        if not isinstance(given, Tensor) or given.shape != noise.shape:
            return f"It should return a tensor [4]; it returned {short(given)}."
        plain = solution_private_step(updates, noise=0 * noise, **setting)
        if not torch.cosine_similarity(still.double(), plain, 0) > 1 - 1e-9:
            return f"Without noise it does not point along the sum of the updates clipped to C = {bound:g}."
        share = ((given - still).norm() / still.norm()).item()
        right = ((expected - plain).norm() / plain.norm()).item()
        if not abs(share - right) < 1e-6:
            where = f"with z = {z:g} and C = {bound:g}"
            return f"The noise is {share:.3f} times as long as the sum; {where} it should be {right:.3f}."
        if not torch.allclose(given.double(), expected):
            return "The sum and its noise are right; the divisor is not."
    return None


def solution_read_off(d_1, d_2):
    return d_1 - d_2


@exercise(
    "00-p8",
    solution=solution_read_off,
    hints=("Which combination of the two contains no noise?",),
    wrong_answers=(
        WrongAnswer(lambda d_1, d_2: (d_1 + d_2) / 2,
                    "The mean still holds the noise. Subtract: it is the same noise in both."),
    ),
)  # fmt: skip
def check_read_off(answer: Callable[..., Any]) -> str | None:
    u_1, u_2 = np.array([0.5, -0.2, 0.1]), np.array([0.1, 0.4, 0.0])
    noise = np.array([3.0, -7.0, 5.0])
    given = answer(u_1 + noise, u_2 + noise)
    if unlike(given, answer(u_1.copy(), u_2.copy()), 1e-9):
        return f"The result still depends on the noise: it is {short(given)}."
    if all(unlike(given, sign * (u_1 - u_2), 1e-9) for sign in (1, -1)):
        return f"There is no noise in it, but it is not what is left of the two updates: {short(given)}."
    return None


def solution_most_true_positives(false_positive_rate, epsilon, delta):
    first = math.exp(epsilon) * false_positive_rate + delta
    second = 1 - math.exp(-epsilon) * (1 - false_positive_rate - delta)
    return min(1.0, first, second)


by_cases(
    "00-p9",
    solution=solution_most_true_positives,
    hints=("Solve the second bound for g.", "Three numbers limit g: both bounds, and 1."),
    wrong_answers=(
        WrongAnswer(lambda false_positive_rate, epsilon, delta:
                    min(1.0, math.exp(epsilon) * false_positive_rate + delta),
                    "That is the first bound alone; for large false positive rates the second is smaller."),
        WrongAnswer(lambda false_positive_rate, epsilon, delta: math.exp(epsilon) * false_positive_rate + delta,
                    "A rate is at most 1, and the second bound is smaller still."),
    ),
    cases=[
        {"false_positive_rate": 0.1, "epsilon": 1.0, "delta": 1e-5},
        {"false_positive_rate": 0.5, "epsilon": 1.0, "delta": 1e-3},
        {"false_positive_rate": 0.9, "epsilon": 0.5, "delta": 0.2},
    ],
)  # fmt: skip

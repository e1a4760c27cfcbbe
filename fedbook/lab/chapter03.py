"""Chapter 3's exercises: a step on the sphere, noise, many rounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fedbook.geometry import SPD
from fedbook.lab.chapter03_theory import in_basis
from fedbook.lab.compare import finding_problem, short, unlike
from fedbook.lab.exercises import WrongAnswer, exercise
from fedbook.privacy.gaussian import gaussian_delta
from fedbook.randomness import normal, stream

# --- 03-1, by hand: x = (0, 0, 1), records (1, 0, 0) and (0, sin 0.2, cos 0.2), f = dist^2, tau = 1, alpha = 1


def solution_step_by_hand() -> list[float]:
    """Gradients -pi e_1, clipped to -e_1, and -0.4 e_2; a step of (0.5, 0.2), 0.5385 long, on the great circle."""
    length = math.hypot(0.5, 0.2)
    return [0.5 * math.sin(length) / length, 0.2 * math.sin(length) / length, math.cos(length)]


@exercise(
    "03-1",
    solution=solution_step_by_hand(),
    hints=("The gradient of dist^2(., y) is -2 Log_x(y): it points away from y and is 2 dist(x, y) long.",
           "Clip each record's gradient, then take the mean, then step against it.",
           "Exp follows the great circle: cos(t) x + sin(t) u for a unit vector u and a step of length t.",),
    wrong_answers=(
        WrongAnswer("not clipped", [0.9919, 0.1263, -0.0127], "first number",
                    "That is the step without clipping: the first gradient has length pi and must get length 1."),
        WrongAnswer("mean clipped", [0.8347, 0.1063, 0.5403], "first number",
                    "That clips the mean. Then one record could still move it as far as it likes."),
        WrongAnswer("always rescaled", [0.4594, 0.4594, 0.7602], "first number",
                    "The second gradient, 0.4 long, is shorter than tau and must stay as it is."),
        WrongAnswer("factor 2 lost", [0.4786, 0.0957, 0.8728], "first number",
                    "f is dist^2 and not half of it: its gradient is -2 Log_x(y)."),
        WrongAnswer("straight on", [0.5, 0.2, 1.0], "first number",
                    "That goes straight on and leaves the sphere: the step must follow the great circle."),
        WrongAnswer("straight on, put back", [0.4402, 0.1761, 0.8805], "first number",
                    "That goes straight and puts the point back: but Exp goes exactly as far as the step is long."),
        WrongAnswer("uphill", [-0.4762, -0.1905, 0.8585], "first number",
                    "That goes away from the records: step AGAINST the gradient."),
        WrongAnswer("one number", 0.35, "three numbers"),
    ),
)  # fmt: skip
def check_step_by_hand(answer: Any) -> str | None:
    answer = answer.tolist() if isinstance(answer, Tensor) else answer
    numbers = isinstance(answer, (list, tuple)) and len(answer) == 3
    if not numbers or any(isinstance(v, bool) or not isinstance(v, (int, float)) for v in answer):
        return f"It should be a list of three numbers; it is {short(answer)}."
    for place, given, right in zip(("first", "second", "third"), answer, solution_step_by_hand(), strict=True):
        if not abs(given - right) < 1e-3:
            return f"The {place} number of the new point is not {short(given)}."
    return None


# --- 03-2, code: isotropic noise on the positive definite matrices


def solution_matrix_noise(x: Tensor, w: Tensor) -> Tensor:
    n = len(x)
    s = torch.zeros(n, n, dtype=x.dtype)
    rows, columns = torch.triu_indices(n, n)
    s[rows, columns] = w
    s = torch.triu(s, 1) / math.sqrt(2)
    s = s + s.mT + torch.diag(w[rows == columns])  # norm of s: that of w
    values, vectors = torch.linalg.eigh(x)
    root = vectors * values.sqrt() @ vectors.mT
    return root @ s @ root


def _matrix_noise(
    x: Tensor, w: Tensor, *, off: float = math.sqrt(0.5), power: float = 0.5, side: bool = False
) -> Tensor:
    """The noise with one of its usual mistakes."""
    n = len(x)
    s = torch.zeros(n, n, dtype=x.dtype)
    rows, columns = torch.triu_indices(n, n)
    s[rows, columns] = w * torch.where(rows == columns, 1.0, off).to(w)
    s = s if side else torch.triu(s, 1) + torch.triu(s).mT
    values, vectors = torch.linalg.eigh(x)
    root = vectors * values**power @ vectors.mT
    return root @ s @ root


@exercise(
    "03-2",
    solution=solution_matrix_noise,
    hints=("At the identity the metric is the Frobenius inner product. What is a symmetric matrix's squared norm in "
           "terms of its entries on and above the diagonal?",
           "X^(1/2) S X^(1/2) has at X the norm that S has at the identity.",
           "The check computes the covariance in an orthonormal basis at X; it must be the identity matrix.",),
    wrong_answers=(
        WrongAnswer("off-diagonals of variance 1", lambda x, w: _matrix_noise(x, w, off=1.0), "covariance",
                    "An entry off the diagonal stands in the matrix twice and counts twice in the norm: variance 1/2."),
        WrongAnswer("off-diagonals halved", lambda x, w: _matrix_noise(x, w, off=0.5), "covariance",
                    "The VARIANCE off the diagonal is 1/2, so the entry is w / sqrt(2)."),
        WrongAnswer("as at the identity", lambda x, w: _matrix_noise(x, w, power=0.0), "covariance",
                    "That is isotropic at the identity. Move it to X: X^(1/2) S X^(1/2)."),
        WrongAnswer("X S X", lambda x, w: _matrix_noise(x, w, power=1.0), "covariance",
                    "X S X has the wrong length: the metric has X^-1 on both sides of U, which X^(1/2) undoes."),
        WrongAnswer("not symmetric", lambda x, w: _matrix_noise(x, w, side=True), "not symmetric",
                    "A tangent vector is a symmetric matrix: put each entry on both sides of the diagonal."),
        WrongAnswer("a number", lambda x, w: float(w[0]), "tensor"),
        WrongAnswer("an error", lambda x, w: w.view(2, 2), "RuntimeError"),
    ),
)  # fmt: skip
def check_matrix_noise(answer: Any) -> str | None:
    manifold = SPD()
    for n in (1, 2, 3):
        x, size = manifold.random_point(n, stream(n, "exercise point")), n * (n + 1) // 2
        mixed = normal((size,), stream(n, "exercise noise"))
        units = [answer(x.clone(), w.clone()) for w in (*torch.eye(size, dtype=torch.float64), mixed)]
        for u in units:
            if not isinstance(u, Tensor) or u.shape != x.shape:
                return f"It should return a tensor of shape {tuple(x.shape)}; it returned {short(u)}."
            if not torch.allclose(u, u.mT, atol=1e-9):
                return f"For n = {n} the result is not symmetric, so it is no tangent vector."
        if not torch.allclose(sum(m * u for m, u in zip(mixed, units, strict=False)), units[-1], atol=1e-9):
            return f"For n = {n} the result is not linear in w."
        coordinates = in_basis(manifold, x, torch.stack(units[:-1]).double())
        found = coordinates.mT @ coordinates
        if not torch.allclose(found, torch.eye(size, dtype=torch.float64), atol=1e-6):
            return (f"For n = {n} the covariance in an orthonormal basis is not the identity matrix: "
                    f"its trace is {float(found.trace()):.3f}, where {size} is right.")  # fmt: skip
    return None


# --- 03-3, code and experiment: what a run of many rounds costs one record


def solution_run_delta(epsilon: float, mu: float, rounds: int, rate: float) -> float:
    delta = 0.0
    for count in range(rounds + 1):
        chance = math.comb(rounds, count) * rate**count * (1 - rate) ** (rounds - count)
        delta += chance * gaussian_delta(epsilon, math.sqrt(count) * mu)  # shifts add in squares
    return delta


def _run_delta(shift: Callable[[int, float], float]) -> Callable[[float, float, int, float], float]:
    def answer(epsilon: float, mu: float, rounds: int, rate: float) -> float:
        chances = [math.comb(rounds, c) * rate**c * (1 - rate) ** (rounds - c) for c in range(rounds + 1)]
        return sum(p * gaussian_delta(epsilon, shift(c, mu)) for c, p in enumerate(chances))

    return answer


def _amplified(epsilon: float, mu: float, rounds: int, rate: float) -> float:
    inside = math.log1p(math.expm1(epsilon) / rate)  # Lemma 4.1 turned round: epsilon before the sampling
    return rate * gaussian_delta(inside, math.sqrt(rounds) * mu)


@exercise(
    "03-3",
    solution=solution_run_delta,
    hints=("How many of T rounds is an agent in, if each round draws it with probability rho? "
           "Which probability has each number?",
           "c calls that are mu-GDP are together sqrt(c) mu-GDP: `gaussian_delta(epsilon, sqrt(c) * mu)`.",
           "Who is drawn does not depend on the records: condition on the number of calls, then average delta.",),
    wrong_answers=(
        WrongAnswer("Lemma 4.1", _amplified, "delta",
                    "That amplifies epsilon by the sampling of agents, which does not hold for a record's change."),
        WrongAnswer("mean number of calls", lambda e, mu, t, r: gaussian_delta(e, math.sqrt(t * r) * mu), "delta",
                    "That takes the MEAN number of calls. An agent drawn more often has lost more: average delta."),
        WrongAnswer("every round", lambda e, mu, t, r: gaussian_delta(e, math.sqrt(t) * mu), "delta",
                    "That counts every round. It is sound, but an agent that is never drawn spends nothing."),
        WrongAnswer("shifts added", _run_delta(lambda c, mu: c * mu), "delta",
                    "Shifts of independent Gaussian releases add in squares: sqrt(c) mu, not c mu."),
        WrongAnswer("one call", lambda e, mu, t, r: gaussian_delta(e, mu), "delta",
                    "That is one call. The agent may be drawn several times."),
        WrongAnswer("once at most", lambda e, mu, t, r: (1 - (1 - r) ** t) * gaussian_delta(e, mu), "delta",
                    "That forgets that an agent may be drawn twice."),
        WrongAnswer("a pair", lambda *a: (0.1, 1e-4), "one number"),
    ),
)  # fmt: skip
def check_run_delta(answer: Any) -> str | None:
    for epsilon, mu, rounds, rate in ((0.136, 0.05829, 500, 0.01), (1.0, 0.3, 20, 0.25), (1.0, 0.3, 6, 1.0)):
        found = answer(epsilon, mu, rounds, rate)
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            return f"It should return one number; it returned {short(found)}."
        right = solution_run_delta(epsilon, mu, rounds, rate)
        if unlike(found / right, 1.0, 1e-4):
            return (f"For epsilon = {epsilon}, mu = {mu}, {rounds} rounds and rate {rate} delta is {right:.4g}; "
                    f"it gave {found:.4g}.")  # fmt: skip
    return None


# --- 03-4, open


@exercise(
    "03-4",
    solution={"question": "Is DP-RSVRG better at the same true budget?", "seeds": 8, "low": -0.1, "high": -0.01},
    hints=("Paired seeds: the same split, start and noise for both methods.",
           "Change one thing only, and hold the budget of the run fixed: compare at equal epsilon, not at equal sigma.",
           "`fedbook.intervals.paired_difference(a, b)` gives the interval.",),
    wrong_answers=(
        WrongAnswer("one seed", {"question": "Does K = 3 help?", "seeds": 1, "low": 0.0, "high": 0.1}, "seeds",
                    "One run cannot tell an effect from luck."),
        WrongAnswer("turned round", {"question": "Does K = 3 help?", "seeds": 3, "low": 0.1, "high": 0.0}, "low"),
        WrongAnswer("no interval", {"question": "Does K = 3 help?", "seeds": 3}, "high"),
        WrongAnswer("no question", {"question": "K = 3 helps", "seeds": 3, "low": 0.0, "high": 0.1}, "question mark"),
        WrongAnswer("a text", "K = 3 helps", "dictionary"),
    ),
)  # fmt: skip
def check_experiment(answer: Any) -> str | None:
    return finding_problem(answer)

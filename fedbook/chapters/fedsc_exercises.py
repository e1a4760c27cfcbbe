"""The exercises of FedSC's lesson: two clients, a client's loss, epsilon, a schedule, the others, the gap, kappa."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fedbook.lab.compare import short
from fedbook.lab.exercises import WrongAnswer, by_hand, exercise
from fedbook.privacy.gaussian import exact_epsilon, gaussian_rdp_epsilon
from fedbook.randomness import normal, stream

# --- 01-1, by hand: client A has 1 sample, all its views at (2, 0); client B has 3, all their views at (1, 1)


def solution_two_clients() -> list[float]:
    """R_A = ((4, 0), (0, 0)), R_B = all ones, shares 1/4, 3/4: global loss, FedAvg's, A's third term in (5)."""
    return [-2.5 + 4.75 / 2, (-4 + 16 / 2) / 4, 3 / 4 * 4]


by_hand(
    "01-1",
    names=("first number (global loss)", "second number (FedAvg's objective)", "third number (A's inter-client term)"),
    solution=solution_two_clients(),
    hints=("A client whose views all map to one z has R = z z^T and Tr R+ = |z|^2.",
           "The global matrix is p_A R_A + p_B R_B with p = 1/4 and 3/4: ((1.75, 0.75), (0.75, 0.75)).",
           "With two clients R_-A is R_B. The term's coefficient in (5) is 1 - p_A, without a half.",),
    why="Everything: Tr R+ = 4/4 + 3 · 2/4 = 5/2 and the squared norm is (7/4)² + 3 (3/4)² = 19/4, so -5/2 + "
        "19/8. Own losses: A has -4 + 16/2 = 4, B has -2 + 4/2 = 0, and a quarter of 4 is 1. The third term is "
        "3/4 · Tr(R_A R_B), 3/4 of 4.",
    wrong_answers=(
        WrongAnswer([0.5, 1.0, 3.0], "B has three of the four samples: p is 1/4 and 3/4, not 1/2 and 1/2."),
        WrongAnswer([2.25, 1.0, 3.0], "The loss of all has HALF of the squared norm of the mean matrix."),
        WrongAnswer([-1.4103, 1.0, 3.0],
                    "The squared Frobenius norm is the sum of the squared entries; you took its root."),
        WrongAnswer([2.375, 1.0, 3.0],
                    "The first term is missing: minus the mean of |z|^2, as all views of a sample agree."),
        WrongAnswer([1.0, -0.125, 3.0],
                    "That is what FedAvg descends. The global loss contrasts samples of different clients too."),
        WrongAnswer([-0.125, -0.125, 3.0],
                    "FedAvg averages the clients' OWN losses: L(A) = -4 + 16/2 and L(B) = -2 + 4/2."),
        WrongAnswer([-0.125, 1.125, 3.0],
                    "That is by how much FedAvg's objective exceeds the global loss; give the objective."),
        WrongAnswer([-0.125, 2.0, 3.0], "FedAvg weights the clients' losses by p too."),
        WrongAnswer([-0.125, 1.0, 1.5],
                    "The half stands in (4). In (5), where the others' matrix is frozen, it is dropped."),
        WrongAnswer([-0.125, 1.0, 4.0], "That is Tr(R_A R_-A); its coefficient 1 - p_A is missing."),
        WrongAnswer([-0.125, 1.0, 1.0], "The coefficient is 1 - p_A, not p_A."),
        WrongAnswer([-0.125, 1.0, 12.0], "A is contrasted with the others' matrix, not with its own."),
        WrongAnswer([-0.125, 1.0, 5.25],
                    "The aggregate still holds A's own matrix; line 20 takes it out and divides by 1 - p_A."),
    ),
)  # fmt: skip


# --- 01-2, code: a client's batch loss (5) with clipped representations and a frozen matrix


def solution_clipped_loss(z: Tensor, uploaded: Tensor, total: Tensor, p: float, mu: float) -> Tensor:
    z = z * (math.sqrt(mu) / z.norm(dim=-1, keepdim=True)).clamp(max=1)  # row by row; short ones stay
    rows = z.flatten(0, 1)
    own = rows.mT @ rows / len(rows)
    others = (total - p * uploaded) / (1 - p)
    contraction = -(z[:, 0] * z[:, 1]).sum(-1).mean()
    return contraction + p / 2 * own.square().sum() + (1 - p) * (own * others).sum()


def _clip_rows(z: Tensor, mu: float) -> Tensor:
    return z * (math.sqrt(mu) / z.norm(dim=-1, keepdim=True)).clamp(max=1)


def _clip_batch(z: Tensor, mu: float) -> Tensor:
    return z * min(1.0, math.sqrt(mu) / float(z.norm()))


def _stretch(z: Tensor, mu: float) -> Tensor:
    return z * math.sqrt(mu) / z.norm(dim=-1, keepdim=True).clamp(min=1e-9)


def _loss(
    clip: Callable[[Tensor, float], Tensor] = _clip_rows,
    *, kept: float = 1.0, divide: bool = True, source: str = "uploaded", intra: float = 0.5, sign: float = -1.0,
    pairs: bool = False,
) -> Callable[..., Tensor]:  # fmt: skip
    """The loss with one of its usual mistakes."""

    def answer(z: Tensor, uploaded: Tensor, total: Tensor, p: float, mu: float) -> Tensor:
        z = clip(z, mu)
        rows = z.flatten(0, 1)
        own = rows.mT @ rows / (len(z) if pairs else len(rows))
        taken = {"uploaded": uploaded, "batch": own, "nothing": torch.zeros_like(own)}[source]
        others = (total - p * taken) / ((1 - p) if divide else 1)
        contraction = sign * (z[:, 0] * z[:, 1]).sum(-1).mean()
        return contraction + p * intra * own.square().sum() + kept * (1 - p) * (own * others).sum()

    return answer


@exercise(
    "01-2",
    solution=solution_clipped_loss,
    hints=("Clip first: every row is multiplied by min(1, sqrt(mu) / its norm).",
           "Rows of both views together, [2B, H], give the batch's matrix: their mean outer product.",
           "Take p times what was UPLOADED, noise and all, out of the total: that is what the total holds. Divide by "
           "1 - p. Then (5), term by term.",),
    wrong_answers=(
        WrongAnswer(_loss(kept=0.5),
                    "The last term has no half in (5): the others' matrix is frozen, one of two slopes is left."),
        WrongAnswer(_loss(source="nothing", divide=False),
                    "The total still holds the client's own matrix: take p times the uploaded one out."),
        WrongAnswer(_loss(source="nothing"), "You divide by 1 - p, but did not take the own matrix out first."),
        WrongAnswer(_loss(divide=False),
                    "What is left after taking the own matrix out has weights that sum to 1 - p: divide by it."),
        WrongAnswer(_loss(source="batch"),
                    "The total holds the matrix that was uploaded, noise and all. Taking the batch's out leaves both."),
        WrongAnswer(_loss(intra=1.0), "The own matrix's square keeps its half."),
        WrongAnswer(_loss(sign=1.0), "Two views of one sample should agree: their product enters with a minus."),
        WrongAnswer(_loss(pairs=True), "There are 2 B rows; the matrix is their MEAN."),
        WrongAnswer(_loss(_stretch),
                    "Rows shorter than sqrt(mu) must stay as they are: the factor is min(1, sqrt(mu) / norm)."),
        WrongAnswer(_loss(_clip_batch),
                    "Each row has its own norm. Clip the batch as a whole and one long row shortens all others."),
        WrongAnswer(_loss(lambda z, mu: z), "Rows longer than sqrt(mu) are to be shortened."),
        WrongAnswer(_loss(lambda z, mu: _clip_rows(z, mu**2)), "mu bounds the SQUARED norm: the radius is sqrt(mu)."),
        WrongAnswer(_loss(lambda z, mu:
                          z * (z.norm(dim=-1, keepdim=True).clamp(max=math.sqrt(mu)) / z.norm(dim=-1, keepdim=True))),
                    "min(norm, sqrt(mu)) / norm is 0 / 0 for a zero vector; sqrt(mu) / norm, cut at 1, is not."),
    ),
)  # fmt: skip
def check_clipped_loss(answer: Any) -> str | None:
    cases = [
        ((0.4, 0.9), 0.3, "all rows shorter than sqrt(mu)"),
        ((1.0, 6.0), 0.3, "short and long rows"),
        ((3.0, 6.0), 0.75, "long rows, a large client"),
        ((0.0, 1.0), 0.3, "a vector is 0"),
    ]
    for case, ((low, high), p, words) in enumerate(cases, start=1):
        mu, rng = 4.0, stream(case, "exercise representations")
        z = normal((5, 2, 3), rng)
        z = z / z.norm(dim=-1, keepdim=True) * (low + (high - low) * torch.from_numpy(rng.random((5, 2, 1))))
        z[0, 0] *= float(low > 0)
        uploaded, total = normal((3, 3), rng), normal((3, 3), rng)  # with noise, so not symmetric
        given = [tensor.clone() for tensor in (z, uploaded, total)]
        found, right = answer(*given, p, mu), float(solution_clipped_loss(z, uploaded, total, p, mu))
        single = isinstance(found, Tensor) and found.numel() == 1 and not found.dtype.is_complex
        if isinstance(found, bool) or not (single or isinstance(found, (int, float))):
            return f"It should return one number; it returned {short(found)}."
        if not abs(float(found) - right) <= 1e-5 * max(1.0, abs(right)):
            return f"In case {case} ({words}; p = {p}) the loss should be {right:.4f}; it is {float(found):.4f}."
        if any(not torch.equal(a, b) for a, b in zip(given, (z, uploaded, total), strict=True)):
            return "The result is right, but the function changes the tensors it was given."
    return None


# --- 01-7, code: what a client's matrices cost it


def solution_client_epsilon(sampled: Sequence[bool], size: int, mu: float, sigma: float, delta: float) -> float:
    uploads = 1 + sum(sampled[1:])  # lines 5 to 8: in round 1 all clients upload
    sensitivity = math.sqrt(2) * mu / size
    return exact_epsilon(math.sqrt(uploads) * sensitivity / sigma, delta)


def _epsilon(
    count: Callable[[Sequence[bool]], int] = lambda s: 1 + sum(s[1:]),
    *, factor: float = math.sqrt(2), sized: bool = True, power: float = 0.5, classic: bool = False,
) -> Callable[..., float]:  # fmt: skip
    """Epsilon with one of its usual mistakes."""

    def answer(sampled: Sequence[bool], size: int, mu: float, sigma: float, delta: float) -> float:
        shift = count(sampled) ** power * factor * mu / (size if sized else 1) / sigma
        return gaussian_rdp_epsilon(shift, delta, "classic")[0] if classic else exact_epsilon(shift, delta)

    return answer


def _summed(sampled: Sequence[bool], size: int, mu: float, sigma: float, delta: float) -> float:
    return (1 + sum(sampled[1:])) * exact_epsilon(math.sqrt(2) * mu / size / sigma, delta)


@exercise(
    "01-7",
    solution=solution_client_epsilon,
    hints=("Count first: which rounds make a client upload? In round 1 everybody does, later the cohort of the round.",
           "One replaced sample takes away z z^T / n and brings another: how far is that at most, for |z|^2 <= mu?",
           "T Gaussian releases of sensitivity s and noise sigma are one with the shift sqrt(T) s / sigma: "
           "`fedbook.privacy.gaussian.exact_epsilon(shift, delta)`.",),
    wrong_answers=(
        WrongAnswer(_epsilon(factor=1.0),
                    "mu / n is for a sample that vanishes. A replaced one moves two terms: sqrt(2) mu / n."),
        WrongAnswer(_epsilon(factor=2.0),
                    "That is the triangle inequality; for positive semi-definite matrices sqrt(2) mu / n is enough."),
        WrongAnswer(_epsilon(sized=False),
                    "The matrix is a MEAN: one of n samples moves it by a share 1/n. (So is Proposition 6.6 printed.)"),
        WrongAnswer(_epsilon(len),
                    "After round 1 a client that is not sampled uploads nothing: count its own uploads."),
        WrongAnswer(_epsilon(sum), "In round 1 ALL clients upload, sampled or not (lines 5 to 8)."),
        WrongAnswer(_epsilon(lambda s: 1 + sum(s)),
                    "A client that is sampled in round 1 still uploads only once in it."),
        WrongAnswer(_epsilon(power=1.0),
                    "Shifts of independent noise add in squares: the root of the number of uploads."),
        WrongAnswer(_epsilon(classic=True),
                    "Valid, but larger than need be: that is the Renyi bound. Gaussian releases compose exactly."),
        WrongAnswer(_summed,
                    "Adding epsilons (and deltas) is valid for any mechanism, but wasteful for Gaussian ones."),
    ),
)  # fmt: skip
def check_client_epsilon(answer: Any) -> str | None:
    cases = [
        ([True] * 12, 126, 4.0, 0.175, 1e-2),
        ([False] + [k % 3 == 0 for k in range(29)], 126, 4.0, 0.175, 1e-4),
        ([True, False, False, True, False] * 4, 2500, 5.0, 0.013, 1e-4),
        ([False] * 7, 60, 2.0, 0.05, 1e-3),
    ]
    for case, (sampled, size, mu, sigma, delta) in enumerate(cases, start=1):
        found = answer(list(sampled), size, mu, sigma, delta)
        if isinstance(found, Tensor) and found.numel() == 1:
            found = found.item()
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            return f"It should return one number; it returned {short(found)}."
        right = solution_client_epsilon(sampled, size, mu, sigma, delta)
        if not abs(found - right) <= 1e-3 * right:
            where = "in round 1 too" if sampled[0] else "not in round 1"
            return (f"In case {case} ({len(sampled)} rounds, sampled in {sum(sampled)} of them, {where}; n = {size}, "
                    f"mu = {mu:g}, sigma = {sigma:g}, delta = {delta:g}) epsilon should be {right:.3f}; "
                    f"it is {found:.3f}.")  # fmt: skip
    return None


# --- 01-6, experiment, open: a schedule that is aligned in the end and does not swing

CLIENTS, ROUNDS = 10, 80
SHARED, OWN = 2.0, 2.0 * CLIENTS  # |z|^2 at the optimum of the global loss, along the shared and along an own direction


def two_directions(alpha_first: float, alpha_last: float, kappa: float) -> tuple[list[float], list[float]]:
    """|z|^2 along the direction that all clients share and along a client's own, after each of 80 rounds.

    Half of a client's samples lie along each. With the others' shared part frozen at r the best answer of (80) is
    (2 - (1 - alpha) r) / alpha along the shared direction and 2 / alpha along the own one; local training goes the
    part ``kappa`` of the way. alpha is linear in the round. The matrices carry noise of standard deviation 0.01, so
    that nobody starts, or stays, exactly at rest. Starts where FedAvg ends: 2 and 2. No |z|^2 falls below 0.
    """
    shared, own, course = 2.0, 2.0, ([], [])
    for noise, step in zip(stream(0, "matrix noise").standard_normal(ROUNDS), range(ROUNDS), strict=True):
        alpha = alpha_first + (alpha_last - alpha_first) * step / (ROUNDS - 1)
        best = (2 - (1 - alpha) * (shared + 0.01 * noise)) / alpha
        shared = max(0.0, shared + kappa * (best - shared))
        own += kappa * (2 / alpha - own)
        course[0].append(shared)
        course[1].append(own)
    return course


@exercise(
    "01-6",
    solution={"alpha_first": 0.15, "alpha_last": 0.1, "kappa": 0.15},
    hints=("Own direction: what must alpha be in the end, so that 2 / alpha is what the global loss wants?",
           "Shared direction: an error e becomes (1 - kappa / alpha) e in a round. For which kappa does it shrink?",
           "The own direction closes the part kappa of its distance in a round: how many rounds near the last alpha "
           "does it need?",),
    why="With r = ‖z‖²/2 the loss along the own direction, -r + αr²/2, is lowest at r = 1/α, so ‖z‖² = 2/α. A tenth of "
        "the clients have that direction, so the mean matrix has 1 there at ‖z‖² = 20. This needs α = p_k, a tenth; "
        "the paper's schedule ends at twice that and aims at 10. Along the shared direction noise pushes the run off "
        "its optimum, and an error shrinks only for κ < 2α: in the end less than a fifth of the way. Here the "
        "multiplier goes from 1 - 0.15/0.15 = 0 to 1 - 0.15/0.1 = -1/2.",
    wrong_answers=(
        WrongAnswer({"alpha_first": 1.0, "alpha_last": 0.2, "kappa": 0.15},
                    "alpha ends at 0.2, twice 1/K: 2 / alpha is at most 10, half of what the global loss wants."),
        WrongAnswer({"alpha_first": 1.0, "alpha_last": 1.0, "kappa": 0.15},
                    "alpha = 1 is FedAvg: the others' matrices are not used at all."),
        WrongAnswer({"alpha_first": 0.1, "alpha_last": 0.1, "kappa": 1.0},
                    "kappa / alpha is 10: all clients leave the shared direction together and return together."),
        WrongAnswer({"alpha_first": 1.0, "alpha_last": 0.1, "kappa": 0.6},
                    "It is calm while alpha > kappa / 2. The schedule passes that limit before it ends."),
        WrongAnswer({"alpha_first": 0.1, "alpha_last": 0.1, "kappa": 0.01},
                    "Stable and aligned, but local training is too short to arrive in 80 rounds."),
        WrongAnswer({"alpha_first": 1.0, "alpha_last": 0.1, "kappa": 0.15},
                    "alpha is right only in the last few rounds: there is no time to follow it. Start lower."),
        WrongAnswer({"alpha_first": 0.1, "alpha_last": 0.05, "kappa": 0.05},
                    "alpha below 1/K is misaligned in the other direction."),
    ),
)  # fmt: skip
def check_schedule(answer: Any) -> str | None:
    wanted = ("alpha_first", "alpha_last", "kappa")
    if not isinstance(answer, dict) or set(answer) != set(wanted):
        return f"It should be a dictionary with {', '.join(wanted)}; it is {short(answer)}."
    for name in wanted:
        value = answer[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
            return f"{name} should be a number above 0 and at most 1; it is {short(value)}."
    shared, own = two_directions(**answer)
    swing = max(abs(value - SHARED) for value in shared)
    if swing > 0.2:
        when = next(t for t, value in enumerate(shared, start=1) if abs(value - SHARED) > 0.2)
        return (f"The shared direction swings: in round {when} |z|^2 is {shared[when - 1]:.2f}, more than 0.2 off "
                f"its optimum {SHARED:g}; the largest distance in {ROUNDS} rounds is {swing:.3g}.")  # fmt: skip
    if abs(own[-1] - OWN) > 0.1 * OWN:
        return (f"The shared direction is calm (never more than {swing:.2g} off), but |z|^2 along the own direction "
                f"ends at {own[-1]:.1f}; the global loss wants {OWN:g}, to a tenth.")  # fmt: skip
    return None


# --- 01-3, find the bug: the others' matrices before the barrier, and with the own matrix inside


def solution_others_of(uploads: Sequence[Tensor], p: Sequence[float]) -> list[Tensor]:
    total = sum(p_k * R_k for p_k, R_k in zip(p, uploads, strict=True))  # the barrier: all are in
    return [(total - p_k * R_k) / (1 - p_k) for p_k, R_k in zip(p, uploads, strict=True)]


def _others(*, barrier: bool = True, own: float = 1.0, divide: bool = True, equal: bool = False) -> Callable[..., Any]:
    """The others' matrices with one of the usual mistakes."""

    def answer(uploads: Sequence[Tensor], p: Sequence[float]) -> list[Tensor]:
        p = [1 / len(p)] * len(p) if equal else p
        result = []
        for k in range(len(uploads)):
            seen = len(uploads) if barrier else k + 1
            total = sum(p[j] * uploads[j] for j in range(seen))
            rest = total - own * (p[k] if own != 2.0 else 0.5) * uploads[k]
            result.append(rest / (1 - p[k]) if divide else rest)
        return result

    return answer


@exercise(
    "01-3",
    solution=solution_others_of,
    hints=("Two loops: first the sum of all matrices, then one matrix for each client.",
           "The sum still holds the client's own matrix with the weight p_k.",),
    why="The colleague divides before all matrices are in, so early clients miss the later ones, and never takes out "
        "the client's own.",
    wrong_answers=(
        WrongAnswer(_others(barrier=False, own=0.0),
                    "Client 0 asks before anybody else has uploaded, and finds only itself. Add up all, then ask."),
        WrongAnswer(_others(barrier=False),
                    "The own matrix is out now. But the first client still asks before the others have uploaded."),
        WrongAnswer(_others(own=0.0), "The barrier stands. But p[k] * uploads[k] is still in the sum: take it out."),
        WrongAnswer(lambda u, p:
                    [(sum(a * b for a, b in zip(p, u, strict=True)) - u[k]) / (1 - p[k]) for k in range(len(u))],
                    "The sum holds p[k] times the own matrix, not the whole of it."),
        WrongAnswer(_others(divide=False),
                    "The weights that are left sum to 1 - p[k]: divide by it, and it is a mean again."),
        WrongAnswer(_others(equal=True), "Clients weigh by their shares p."),
    ),
)  # fmt: skip
def check_others_of(answer: Any) -> str | None:
    rng = stream(5, "exercise uploads")
    uploads, p = [normal((2, 2), rng) for _ in range(3)], [0.5, 0.3, 0.2]
    given = [one.clone() for one in uploads]
    found = answer(given, list(p))
    if not isinstance(found, (list, tuple, Tensor)) or len(found) != 3:
        return f"It should return a list of three matrices; it returned {short(found)}."
    for k, (one, right) in enumerate(zip(found, solution_others_of(uploads, p), strict=True)):
        if not isinstance(one, Tensor) or one.shape != right.shape:
            return f"For client {k} it should return a [2, 2] tensor; it returned {short(one)}."
        if not torch.allclose(one.double(), right, atol=1e-6):
            return (f"For client {k} the first entry of the others' matrix should be {float(right[0, 0]):.4f}; "
                    f"it is {float(one[0, 0]):.4f}.")  # fmt: skip
    if any(not torch.equal(a, b) for a, b in zip(given, uploads, strict=True)):
        return "The result is right, but the function changes the matrices it was given."
    return None


# --- 01-4, code: the gap


def solution_gap(matrices: Sequence[Tensor], p: Sequence[float]) -> Tensor:
    mean = sum(p_k * R_k for p_k, R_k in zip(p, matrices, strict=True))
    return sum(p_k * ((R_k - mean) ** 2).sum() for p_k, R_k in zip(p, matrices, strict=True)) / 2


def _gap(*, half: float = 0.5, root: bool = False, plain: bool = False, weighted: bool = True) -> Callable[..., Any]:
    def answer(matrices: Sequence[Tensor], p: Sequence[float]) -> Tensor:
        inner = [1 / len(p)] * len(p) if plain else p
        mean = sum(a * b for a, b in zip(inner, matrices, strict=True))
        lengths = [((R - mean) ** 2).sum() for R in matrices]
        lengths = [one.sqrt() for one in lengths] if root else lengths
        outer = p if weighted else [1 / len(p)] * len(p)
        return half * sum(a * b for a, b in zip(outer, lengths, strict=True))

    return answer


@exercise(
    "01-4",
    solution=solution_gap,
    hints=("First the mean matrix, weighted by the shares.",
           "Then half of the weighted mean of the squared Frobenius distances from it.",),
    wrong_answers=(
        WrongAnswer(_gap(half=1.0), "The loss has half of a square, and so has the gap."),
        WrongAnswer(_gap(root=True), "The gap has SQUARED distances: no root."),
        WrongAnswer(_gap(plain=True), "The mean matrix weighs clients by their shares, not alike."),
        WrongAnswer(_gap(weighted=False), "The distances too are weighted by the shares."),
    ),
)  # fmt: skip
def check_gap(answer: Any) -> str | None:
    for case, p in enumerate(([0.5, 0.3, 0.2], [0.25, 0.75]), start=1):
        rng = stream(case, "exercise gap")
        matrices = [normal((2, 2), rng) for _ in p]
        matrices = [one + one.T for one in matrices]
        found, right = answer([one.clone() for one in matrices], list(p)), float(solution_gap(matrices, p))
        single = isinstance(found, Tensor) and found.numel() == 1 and not found.dtype.is_complex
        if isinstance(found, bool) or not (single or isinstance(found, (int, float))):
            return f"It should return one number; it returned {short(found)}."
        if not abs(float(found) - right) <= 1e-6 * right:
            return f"In case {case} ({len(p)} clients) the gap should be {right:.4f}; it is {float(found):.4f}."
    return None


# --- 01-5, by hand: five equal clients, kappa 0.3


by_hand(
    "01-5",
    names=("multiplier", "largest kappa"),
    solution=[-0.5, 0.4],
    hints=("Five equal clients: alpha = p_k is one fifth.", "A round multiplies the error by 1 - kappa / alpha.",
           "The error does not grow while the multiplier lies between -1 and 1.",),
    why="α is one fifth. The multiplier is 1 - (3/10) / (1/5) = -1/2, and κ may be twice α.",
    wrong_answers=(
        WrongAnswer([0.94, 0.4], "kappa is divided by alpha: the smaller alpha, the stronger the answer to old news."),
        WrongAnswer([0.7, 0.4], "That is alpha = 1, where nobody listens to the others."),
        WrongAnswer([0.5, 0.4], "1 - 1.5 is negative: the error changes its sign each round."),
        WrongAnswer([-0.5, 0.2], "At kappa = alpha the multiplier is 0, which is best. It may fall as low as -1."),
        WrongAnswer([-0.5, 1.0], "At kappa = 1 the multiplier is 1 - 5 = -4."),
    ),
)  # fmt: skip

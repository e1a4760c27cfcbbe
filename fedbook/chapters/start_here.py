"""The first lesson: its diagram, its moving picture of drift, its figure of who wins; the answers of its exercises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import pandas as pd
import torch
from matplotlib.axes import Axes
from torch import Tensor

from fedbook.lab import gallery, style
from fedbook.lab.compare import short, unlike
from fedbook.lab.exercises import WrongAnswer, by_cases, by_hand, exercise
from fedbook.randomness import normal, stream

# --- drawings


def draw_federation(ax: Axes) -> str:
    """The server on top, the first and the last client with their images below, what goes down and what comes up."""
    boxes = [
        gallery.Box(50, 84, 44, 24, "server\n4  averages the models", gallery.SERVER),
        gallery.Box(18, 18, 34, 28, "client 1\nkeeps its images\n2  trains the model"),
        gallery.Box(82, 18, 34, 28, "client K\nkeeps its images\n2  trains the model"),
    ]
    arrows = []
    for k, number in ((1, "1"), (2, "K")):
        arrows.append(gallery.Arrow(0, k, r"1  $\theta$", gallery.DOWN, 4))
        arrows.append(gallery.Arrow(k, 0, rf"3  $\theta_{number}$", gallery.UP, 4))
    sentence = gallery.draw_system(ax, boxes, arrows)
    ax.text(50, 18, ". . .", ha="center", va="center")
    return sentence


def draw_plane(
    ax: Axes, curvature: Tensor, optimum: Tensor, server: Tensor, walks: Tensor, best: Tensor, rest: Tensor, t: int
) -> str:
    """Round ``t`` of FedAvg in the plane: the walks of its clients, the server's path so far, where both lead.

    Shapes: ``curvature``, ``optimum`` [K, 2], ``server`` [T + 1, 2], ``walks`` [T, E + 1, K, 2], ``best`` and
    ``rest`` [2].
    """
    axis = torch.linspace(-1.5, 1.5, 60, dtype=torch.float64)
    w = torch.stack(torch.meshgrid(axis, axis + 0.3, indexing="xy"), -1)
    level = 0.5 * (curvature * (w[:, :, None] - optimum) ** 2).sum(-1).mean(-1)
    ax.contour(w[..., 0], w[..., 1], level, levels=10, colors=style.SHADE, linewidths=0.7)
    for k, name in enumerate("AB"):
        colour = (style.PALETTE[0], style.PALETTE[5])[k]
        for past in range(min(t, len(walks))):
            faint = 1.0 if past == t - 1 else 0.3
            ax.plot(walks[past, :, k, 0], walks[past, :, k, 1], color=colour, alpha=faint, marker=".", linestyle="-")
        ax.plot(*optimum[k].tolist(), marker="sD"[k], markersize=8, color=colour, linestyle="",
                label=f"optimum of client {name}")  # fmt: skip
    ax.plot(server[: t + 1, 0], server[: t + 1, 1], "-o", color=style.INK, linewidth=1.2, label="server")
    ax.plot(*best.tolist(), "*", color=style.PALETTE[2], markersize=15, label="minimum of the objective")
    ax.plot(*rest.tolist(), "X", color=style.PALETTE[1], markersize=10, label="where FedAvg rests")
    ax.set(xlim=(-1.4, 1.4), ylim=(-1.0, 1.7), xlabel="$w_1$", ylabel="$w_2$", title=f"after {t} rounds")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    displaced, remaining = float((rest - best).norm()), float((server[t] - rest).norm())
    return (
        f"After {t} rounds the server is {remaining:.3f} away from its resting point, "
        f"which lies {displaced:.3f} from the minimum."
    )


def draw_standing(axes: Sequence[Axes], tables: Mapping[str, pd.DataFrame]) -> str:
    """Points of accuracy beside FedAvg, a panel a split. ``tables``: title -> rows of ``results.differences``."""
    sentences = []
    for ax, (title, table) in zip(axes, tables.items(), strict=True):
        said = gallery.draw_forest(ax, table, base="FedAvg", label="points of accuracy", scale=100.0)
        ax.set_title(title)
        sentences.append(f"{title}: {said}")
    return " ".join(sentences)


# --- 00-1: the weighted mean by hand


by_hand(
    "00-1",
    solution=3.0,
    hints=("How many samples stand behind each of the two numbers?",),
    why="The mean by samples: (30 · 2 + 10 · 6) / 40 = 120 / 40.",
    wrong_answers=(
        WrongAnswer(4.0, "That is the plain mean. A speaks for 30 samples, B for 10."),
        WrongAnswer(5.0, "The weights are the wrong way round: A has more samples."),
        WrongAnswer(120.0, "That is the weighted sum. Divide it by all 40 samples."),
    ),
)


# --- 00-2: the server's step on updates


def solution_server_step(
    theta: dict[str, Tensor], models: list[dict[str, Tensor]], sizes: list[int], rate: float
) -> dict[str, Tensor]:
    n = sum(sizes)
    moved = {}
    for name, old in theta.items():
        update = sum(n_k / n * (model[name] - old) for n_k, model in zip(sizes, models, strict=True))
        moved[name] = old + rate * update
    return moved


def _unweighted_step(theta, models, sizes, rate):
    return solution_server_step(theta, models, [1] * len(models), rate)


def _models_not_updates(theta, models, sizes, rate):
    n = sum(sizes)
    return {
        name: old + rate * sum(s / n * m[name] for s, m in zip(sizes, models, strict=True))
        for name, old in theta.items()
    }


def _forgets_rate(theta, models, sizes, rate):
    return solution_server_step(theta, models, sizes, 1.0)


def _wrong_way(theta, models, sizes, rate):
    return solution_server_step(theta, models, sizes, -rate)


def _server_step_case(seed: int, sizes: list[int], rate: float) -> dict[str, Any]:
    rng = stream(seed, "exercise 00-2")
    models = [{"b": normal((2,), rng)} for _ in sizes]
    return {"theta": {"b": normal((2,), rng)}, "models": models, "sizes": sizes, "rate": rate}


by_cases(
    "00-2",
    solution=solution_server_step,
    hints=("The update of client k is its model minus the model that it was sent.",
           "With rate 1 the result must be the weighted mean of the models, with rate 0 the old theta."),
    wrong_answers=(
        WrongAnswer(_unweighted_step, "All clients count the same: weigh by sizes."),
        WrongAnswer(_models_not_updates, "You add the models themselves; an update is what a client changed."),
        WrongAnswer(_forgets_rate, "The rate is not used: this is the plain average."),
        WrongAnswer(_wrong_way, "The sign: an update already points downhill."),
    ),
    cases=[_server_step_case(*case) for case in ((0, [3, 1], 0.5), (1, [5, 5, 20], 1.0), (2, [1, 2, 3, 4], 2.0))],
)  # fmt: skip


# --- 00-3: the planted bug


@exercise(
    "00-3",
    solution=6,
    hints=("Write down where the second client of a round begins.",
           "Which line of the listing resets the local model?"),
    why="Line 6 belongs inside the loop, after line 7: there every client starts from the server's model. Now B "
        "starts where A ended, at 1; it sends 5.5, and (2 times 1 + 5.5) / 3 is 2.5.",
    wrong_answers=(
        WrongAnswer(2, "Line 2 is right: the first model is kept as round 0 of the path."),
        WrongAnswer(4, "Line 4 is right: any cohort would do."),
        WrongAnswer(13, "Line 13 is right: it is the weighted mean of what the clients sent."),
    ),
)  # fmt: skip
def check_planted_bug(answer: Any) -> str | None:
    if isinstance(answer, bool) or answer not in range(1, 16):
        return f"It should be a line number from 1 to 15; it is {short(answer)}."
    return None if answer in (6, 10) else f"Line {answer:g} does what the listing says."


# --- 00-4: the mean over all cohorts


def solution_mean_over_cohorts(values: list[float], sizes: list[int], m: int) -> float:
    averages = []
    for cohort in combinations(range(len(values)), m):
        n = sum(sizes[k] for k in cohort)
        averages.append(sum(sizes[k] / n * values[k] for k in cohort))
    return sum(averages) / len(averages)


def _full_average(values, sizes, m):
    return sum(s * v for s, v in zip(sizes, values, strict=True)) / sum(sizes)


def _plain_cohorts(values, sizes, m):
    return sum(values) / len(values)


def _fixed_weights(values, sizes, m):
    cohorts = list(combinations(range(len(values)), m))
    return sum(sizes[k] / sum(sizes) * values[k] for cohort in cohorts for k in cohort) / len(cohorts)


by_cases(
    "00-4",
    solution=solution_mean_over_cohorts,
    hints=("`itertools.combinations(range(K), m)` lists the cohorts; all are equally likely.",
           "Inside a cohort the weights must sum to 1: divide in each cohort, then take the mean over cohorts."),
    wrong_answers=(
        WrongAnswer(_full_average,
                    "That is the average over everyone. With unequal sizes the cohorts' mean is another number."),
        WrongAnswer(_plain_cohorts, "Inside a cohort clients weigh by their samples."),
        WrongAnswer(_fixed_weights,
                    "These weights are shares of everyone's samples; in a cohort of two they do not sum to 1."),
    ),
    cases=[
        {"values": [0.0, 0.0, 4.0], "sizes": [1, 1, 4], "m": 2},
        {"values": [1.0, -2.0, 3.0, 5.0], "sizes": [3, 1, 7, 2], "m": 3},
        {"values": [2.0, 6.0], "sizes": [30, 10], "m": 1},
    ],
)  # fmt: skip


# --- 00-5: the resting point


def solution_resting_point(a: Tensor, b: Tensor, p: Tensor, eta: float, E: int) -> Tensor:
    pull = p * (1 - (1 - eta * a) ** E)  # how far each client moves towards its own optimum in a round
    return (pull * b).sum() / pull.sum()


@exercise(
    "00-5",
    solution=solution_resting_point,
    hints=("After E steps client k stands at b_k + (1 - eta a_k)^E (w - b_k).",
           "At rest the weighted mean of the clients' moves is zero; solve that for w."),
    wrong_answers=(
        WrongAnswer(lambda a, b, p, eta, E: (p * a * b).sum() / (p * a).sum(),
                    "That is the minimum of the objective: right for one local step, not for more."),
        WrongAnswer(lambda a, b, p, eta, E: (p * b).sum(), "That is where infinitely many local steps lead."),
        WrongAnswer(lambda a, b, p, eta, E: (p * (1 - eta * a) ** E * b).sum() / (p * (1 - eta * a) ** E).sum(),
                    "(1 - eta a)^E is what is left of the distance; the move is one minus that."),
    ),
)  # fmt: skip
def check_resting_point(answer: Any) -> str | None:
    a, b = torch.tensor([1.0, 4.0, 0.5], dtype=torch.float64), torch.tensor([0.0, 1.0, -2.0], dtype=torch.float64)
    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    for E in (1, 5, 40):
        expected = float(solution_resting_point(a, b, p, 0.1, E))
        given = answer(a.clone(), b.clone(), p.clone(), 0.1, E)
        try:
            value = float(given)
        except (TypeError, ValueError):
            return f"It should return a number; it returned {short(given)}."
        if not abs(value - expected) < 1e-6:
            return f"With E = {E} the resting point is {expected:.4f}; it gave {value:.4f}."
    return None


# --- 00-6: the same function at another point


def solution_permuted(theta: dict[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    return {"W1": theta["W1"][order], "b1": theta["b1"][order], "W2": theta["W2"][:, order], "b2": theta["b2"]}


def _rows_only(theta, order):
    return {**theta, "W1": theta["W1"][order], "b1": theta["b1"][order]}


def _forgets_bias(theta, order):
    return {**theta, "W1": theta["W1"][order], "W2": theta["W2"][:, order]}


def _inverse_columns(theta, order):
    return {**solution_permuted(theta, order), "W2": theta["W2"][:, order.argsort()]}


@exercise(
    "00-6",
    solution=solution_permuted,
    hints=("Hidden unit i owns row i of W1, entry i of b1 and a column of W2.",
           "`matrix[:, order]` puts the columns in the order given."),
    wrong_answers=(
        WrongAnswer(_rows_only, "The second layer still reads the units in the old order."),
        WrongAnswer(_inverse_columns,
                    "The columns of W2 are in the inverse order; use the same order as for the rows of W1."),
        WrongAnswer(_forgets_bias, "The units moved, but their biases stayed."),
        WrongAnswer(lambda theta, order: theta, "Nothing moved; use the order that is given."),
    ),
)  # fmt: skip
def check_permuted(answer: Any) -> str | None:
    cases = []
    for seed, order in ((0, [2, 0, 1]), (1, [1, 2, 3, 0])):
        rng, H = stream(seed, "exercise 00-6"), len(order)
        shapes = {"W1": (H, 2), "b1": (H,), "W2": (2, H), "b2": (2,)}
        theta = {name: normal(shape, rng) for name, shape in shapes.items()}
        cases.append({"theta": theta, "order": torch.tensor(order)})
    return _first_name_that_differs(answer, cases)


def _first_name_that_differs(answer: Any, cases: Sequence[Mapping[str, Any]]) -> str | None:
    """The first parameter that differs from the solution's, W2 before b1 before W1: the mistake, not its start."""
    for case in cases:
        given = answer({name: x.clone() for name, x in case["theta"].items()}, case["order"].clone())
        expected = solution_permuted(case["theta"], case["order"])
        if not isinstance(given, Mapping) or set(given) != set(expected):
            return f"It should return the parameters {', '.join(expected)}: expected a dictionary, got {short(given)}."
        for name in ("W1", "b1", "W2", "b2"):
            difference = unlike(given[name], expected[name])
            if difference:
                return f"For order = {case['order'].tolist()} the parameter {name!r} differs: {difference}."
    return None


# --- 00-7: bytes


by_hand(
    "00-7",
    solution=520,
    hints=("A client receives P numbers of four bytes in a round and sends as many back.",
           "An image takes 784 bytes; round up."),
    why="50,890 numbers of four bytes, down and up, are 407,120 bytes. Over 784 that is a little more than 519.",
    wrong_answers=(
        WrongAnswer(260, "That counts one direction. The model travels down and up."),
        WrongAnswer(519, "Just below: 519 images are still cheaper than the round."),
        WrongAnswer(130, "A stored image is 784 bytes, not 784 floats."),
        WrongAnswer(65, "A parameter takes four bytes, and it travels twice."),
    ),
)  # fmt: skip


# --- 00-8: the image from two models


def solution_image_from_models(before: dict[str, Tensor], after: dict[str, Tensor]) -> Tensor:
    W, b = after["W"] - before["W"], after["b"] - before["b"]
    row = b.abs().argmax()
    return W[row] / b[row]  # the unknown step size stands in both and cancels


def _no_difference(before, after):
    row = after["b"].abs().argmax()
    return after["W"][row] / after["b"][row]


def _not_divided(before, after):
    row = (after["b"] - before["b"]).abs().argmax()
    return (after["W"] - before["W"])[row]


def _summed(before, after):
    return (after["W"] - before["W"]).sum(0) / (after["b"] - before["b"]).abs().sum()


@exercise(
    "00-8",
    solution=solution_image_from_models,
    hints=("The change of a parameter is the gradient times minus the step size.",
           "Divide a row of the change of W by the entry of the change of b that belongs to it."),
    wrong_answers=(
        WrongAnswer(_no_difference, "You divide the models; the image is in what changed."),
        WrongAnswer(_not_divided, "A row of the change is the image times a number; divide that number out."),
        WrongAnswer(_summed, "Over all rows the changes cancel: use one row."),
    ),
)  # fmt: skip
def check_image_from_models(answer: Any) -> str | None:
    for seed, eta in ((0, 0.1), (1, 0.7)):
        rng = stream(seed, "exercise 00-8")
        before = {"W": normal((3, 5), rng), "b": normal((3,), rng)}
        x = normal((5,), rng)
        error = torch.softmax(before["W"] @ x + before["b"], 0) - torch.eye(3, dtype=torch.float64)[seed]
        after = {"W": before["W"] - eta * torch.outer(error, x), "b": before["b"] - eta * error}
        given = answer({name: v.clone() for name, v in before.items()}, {name: v.clone() for name, v in after.items()})
        if not isinstance(given, Tensor) or given.shape != x.shape or given.dtype.is_complex:
            return f"It should return a tensor of shape {tuple(x.shape)}; it returned {short(given)}."
        if not torch.allclose(given.double(), x, rtol=1e-6, atol=1e-6):
            shown = [round(v, 3) for v in given.double()[:2].tolist()]
            return f"The first pixels should be {[round(v, 3) for v in x[:2].tolist()]}; they are {shown}."
    return None

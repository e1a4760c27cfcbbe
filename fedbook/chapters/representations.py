"""The lesson on representations: its two special drawings and the answers of its exercises."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.special
import torch
from matplotlib.axes import Axes
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from fedbook.lab import style
from fedbook.lab.compare import short
from fedbook.lab.exercises import WrongAnswer, by_hand, exercise

# --- drawings


def draw_neighbours(
    ax: Axes, queries: Tensor, query_y: Tensor, neighbours: Tensor, neighbour_y: Tensor, title: str
) -> str:
    """A row a query: the image, then its nearest ones, framed in green where the numeral is the same, else orange.

    Shapes: ``queries`` [B, H, W], ``query_y`` [B], ``neighbours`` [B, n, H, W], ``neighbour_y`` [B, n].
    """
    rows, count = neighbour_y.shape
    for row in range(rows):
        for column in range(count + 1):
            image = queries[row] if column == 0 else neighbours[row, column - 1]
            left = column * 1.2 + (0.35 if column else 0.0)
            extent = (left, left + 1, -row * 1.2 - 1, -row * 1.2)
            ax.imshow(image, extent=extent, cmap="gray", interpolation="nearest", zorder=2)
            same = column > 0 and bool(neighbour_y[row, column - 1] == query_y[row])
            colour = style.INK if column == 0 else style.PALETTE[2] if same else style.PALETTE[1]
            x, y = [extent[i] for i in (0, 1, 1, 0, 0)], [extent[i] for i in (2, 2, 3, 3, 2)]
            look = {"linestyle": "-" if same or column == 0 else "--", "marker": "", "linewidth": 2.4}
            ax.plot(x, y, color=colour, zorder=3, **look)
    ax.set(xlim=(-0.1, 1.2 * count + 1.45), ylim=(-1.2 * rows, 0.12), title=title, aspect="equal")
    ax.set_axis_off()
    right = int((neighbour_y == query_y[:, None]).sum())
    return f"{title}: {right} of {neighbour_y.numel()} neighbours show the query's numeral."


def draw_plane(ax: Axes, z: Tensor, labels: Sequence[int] | Tensor, names: Sequence[str], title: str) -> None:
    """Representations in the plane, a colour and a mark for each label; the origin is marked.

    Shapes: ``z`` [N, 2], ``labels`` [N] whole numbers, indices into ``names``.
    """
    labels = torch.as_tensor(labels)
    for i, name in enumerate(names):
        chosen = labels == i
        look = {"color": style.PALETTE[i], "marker": style.MARKERS[i], "linestyle": ""}
        ax.plot(z[chosen, 0], z[chosen, 1], label=name, markersize=4, alpha=0.7, **look)
    ax.plot([0], [0], "+", color=style.INK, markersize=14, linestyle="")
    ax.set(xlim=(-2.6, 2.6), ylim=(-2.6, 2.6), aspect="equal", title=title)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


# --- exercises


by_hand(
    "00-r1",
    solution=-0.75,
    hints=(
        "The attraction is the mean of two inner products, each of a unit vector with itself.",
        "Of the 4 x 4 pairs of views, how many lie on the same axis?",
    ),
    why="Both views of an image agree, so the first term is -1. Of the 16 pairs of views 8 lie on one axis and "
    "have product 1, the others 0: the mean square is a half, and half of that counts.",
    wrong_answers=(
        WrongAnswer(-1.0, "Half of all pairs are two views on the same axis: they repel."),
        WrongAnswer(-0.5, "The repulsion counts with the factor one half."),
    ),
)


def solution_shift_right(x: Tensor, pixels: int) -> Tensor:
    shifted = torch.zeros_like(x)
    shifted[..., pixels:] = x[..., : x.shape[-1] - pixels]
    return shifted


def _rolled(x: Tensor, pixels: int) -> Tensor:
    return torch.roll(x, pixels, dims=-1)


def _down(x: Tensor, pixels: int) -> Tensor:
    shifted = torch.zeros_like(x)
    shifted[..., pixels:, :] = x[..., : x.shape[-2] - pixels, :]
    return shifted


def _left(x: Tensor, pixels: int) -> Tensor:
    shifted = torch.zeros_like(x)
    shifted[..., : x.shape[-1] - pixels] = x[..., pixels:]
    return shifted


def _tensor_problem(answer: Any, right: Tensor, what: str) -> str | None:
    """None where ``answer`` is the tensor ``right``."""
    if not isinstance(answer, Tensor):
        return f"It should return a tensor; it returned {short(answer)}."
    if answer.shape != right.shape:
        return f"The shape should be {tuple(right.shape)}; it is {tuple(answer.shape)}."
    return None if torch.allclose(answer.double(), right.double(), atol=1e-5) else f"{what}: {short(answer.tolist())}."


@exercise(
    "00-r2",
    solution=solution_shift_right,
    hints=(
        "Start from an image of zeros.",
        "Which columns of the old image survive, and where do they go? It must work for 0 pixels, too.",
    ),
    wrong_answers=(
        WrongAnswer(_rolled, "torch.roll brings back on the left what left on the right."),
        WrongAnswer(_down, "The last axis counts columns, the one before it rows."),
        WrongAnswer(_left, "That moves the image to the left."),
    ),
)
def check_shift_right(answer: Callable[[Tensor, int], Tensor]) -> str | None:
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])[None, None]
    x = torch.cat([x, x.flip(-1)])  # B = 2
    for pixels in (1, 2, 0):
        problem = _tensor_problem(
            answer(x.clone(), pixels),
            solution_shift_right(x, pixels),
            f"Two images, rows 1 to 9 and their mirror image, shifted by {pixels}",
        )
        if problem:
            return problem
    return None


by_hand(
    "00-r3",
    solution=100 * 128 + 128 + 128 * 128 + 128 + 128 * 16 + 16,
    hints=("A linear layer from a to b numbers has a times b weights and b biases.", "Here a = 100, 128 and 128."),
    wrong_answers=(
        WrongAnswer(100 * 128 + 128 * 128 + 128 * 16, "Each layer has biases too."),
        WrongAnswer(100 * 128 + 128 + 128 * 128 + 128, "The projector counts too."),
    ),
)


def solution_info_nce(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    z = normalize(torch.cat([first, second]), dim=1)  # [2B, H], unit vectors
    scores = z @ z.T / temperature
    scores.fill_diagonal_(-torch.inf)  # a view is no candidate for itself
    partner = torch.arange(len(z)).roll(len(first))  # of view i: the other view of its image
    return cross_entropy(scores, partner)


def _with_itself(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    z = normalize(torch.cat([first, second]), dim=1)
    return cross_entropy(z @ z.T / temperature, torch.arange(len(z)).roll(len(first)))


def _not_normalised(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    z = torch.cat([first, second])
    scores = z @ z.T / temperature
    scores.fill_diagonal_(-torch.inf)
    return cross_entropy(scores, torch.arange(len(z)).roll(len(first)))


def _one_way(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    scores = normalize(first, dim=1) @ normalize(second, dim=1).T / temperature
    return cross_entropy(scores, torch.arange(len(first)))


@exercise(
    "00-r5",
    solution=solution_info_nce,
    hints=(
        "Stack both views, make unit vectors, and form the matrix of cosines over the temperature.",
        "Row i is a classification among the other views: the diagonal is minus infinity, `roll` gives the column.",
    ),
    wrong_answers=(
        WrongAnswer(_with_itself, "A view must not be a candidate for itself: it always wins."),
        WrongAnswer(_not_normalised, "InfoNCE compares directions: normalise first."),
        WrongAnswer(_one_way, "All other views are candidates, those of the same side too."),
    ),
)
def check_info_nce(answer: Callable[[Tensor, Tensor, float], Tensor]) -> str | None:
    generator = torch.Generator().manual_seed(3)
    first, second = torch.randn(2, 5, 3, generator=generator)
    value = answer(first, second, 0.5)
    if not isinstance(value, Tensor) or value.ndim:
        return f"It should return a tensor with one value; it returned {short(value)}."
    right = solution_info_nce(first, second, 0.5)
    return None if abs(float(value - right)) < 1e-5 else f"The value is {float(value):.4f} on random views of 5 images."


by_hand(
    "00-r4",
    solution=1.6,
    hints=("Sum of the eigenvalues, squared, over the sum of their squares.",),
    wrong_answers=(
        WrongAnswer(2.0, "That is the ordinary rank. The two directions are not used equally."),
        WrongAnswer(0.4, "The sum in the numerator is squared."),
    ),
)


def solution_knn_accuracy(h: Tensor, y: Tensor, test_h: Tensor, test_y: Tensor, neighbours: int) -> float:
    cosines = normalize(test_h, dim=1) @ normalize(h, dim=1).T  # [n, N]
    near = cosines.topk(neighbours, dim=1).indices  # [n, M]
    winner = y[near].mode(dim=1).values
    return (winner == test_y).double().mean().item()


def _farthest(h: Tensor, y: Tensor, test_h: Tensor, test_y: Tensor, neighbours: int) -> float:
    cosines = normalize(test_h, dim=1) @ normalize(h, dim=1).T
    near = cosines.topk(neighbours, dim=1, largest=False).indices
    return (y[near].mode(dim=1).values == test_y).double().mean().item()


def _only_nearest(h: Tensor, y: Tensor, test_h: Tensor, test_y: Tensor, neighbours: int) -> float:
    cosines = normalize(test_h, dim=1) @ normalize(h, dim=1).T
    return (y[cosines.argmax(1)] == test_y).double().mean().item()


def _inner_products(h: Tensor, y: Tensor, test_h: Tensor, test_y: Tensor, neighbours: int) -> float:
    near = (test_h @ h.T).topk(neighbours, dim=1).indices
    return (y[near].mode(dim=1).values == test_y).double().mean().item()


@exercise(
    "00-r6",
    solution=solution_knn_accuracy,
    hints=("Cosines are inner products of unit vectors.", "`topk` finds the nearest, `mode` the commonest label."),
    wrong_answers=(
        WrongAnswer(_farthest, "A large cosine means near."),
        WrongAnswer(_only_nearest, "All M neighbours vote, not the nearest alone."),
        WrongAnswer(_inner_products, "Long vectors win every inner product: use cosines."),
    ),
)
def check_knn_accuracy(answer: Callable[..., float]) -> str | None:
    generator = torch.Generator().manual_seed(5)
    directions = torch.eye(3)
    y, test_y = torch.arange(3).repeat(30), torch.arange(3).repeat(40)
    h, test_h = (directions[c] + 0.8 * torch.randn(len(c), 3, generator=generator) for c in (y, test_y))
    h = h * torch.where(y == 0, 6.0, 1.0)[:, None]  # directions stay, the vectors of one class are longer
    value = answer(h, y, test_h, test_y, 9)
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"It should return a number; it returned {short(value)}."
    right = solution_knn_accuracy(h, y, test_h, test_y, 9)
    return None if abs(value - right) < 1e-6 else f"The share of right answers is {value:.4f} on the check's points."


def solution_paired_interval(a: Tensor, b: Tensor) -> tuple[float, float]:
    difference = a - b  # [S], seed by seed
    mean, deviation = difference.mean().item(), difference.std().item()
    half = scipy.special.stdtrit(len(difference) - 1, 0.975) * deviation / math.sqrt(len(difference))
    return mean - half, mean + half


def _unpaired(a: Tensor, b: Tensor) -> tuple[float, float]:
    mean = (a.mean() - b.mean()).item()
    half = scipy.special.stdtrit(len(a) - 1, 0.975) * math.sqrt((a.var() + b.var()).item() / len(a))
    return mean - half, mean + half


def _no_root(a: Tensor, b: Tensor) -> tuple[float, float]:
    difference = a - b
    mean, deviation = difference.mean().item(), difference.std().item()
    half = scipy.special.stdtrit(len(difference) - 1, 0.975) * deviation
    return mean - half, mean + half


def _normal(a: Tensor, b: Tensor) -> tuple[float, float]:
    difference = a - b
    mean, deviation = difference.mean().item(), difference.std().item()
    half = 1.96 * deviation / math.sqrt(len(difference))
    return mean - half, mean + half


@exercise(
    "00-r8",
    solution=solution_paired_interval,
    hints=(
        "First the differences seed by seed; then the interval of their mean, whose deviation has the root of S below.",
        "`scipy.special.stdtrit(S - 1, 0.975)` is the quantile of Student's t distribution.",
    ),
    wrong_answers=(
        WrongAnswer(_unpaired, "The seeds' common part must cancel: subtract seed by seed first."),
        WrongAnswer(_no_root, "The mean of S numbers varies less than one of them."),
        WrongAnswer(_normal, "For few seeds the normal quantile is too short; use Student's t."),
    ),
)
def check_paired_interval(answer: Callable[[Tensor, Tensor], tuple[float, float]]) -> str | None:
    generator = torch.Generator().manual_seed(7)
    seeds = 0.05 * torch.randn(6, generator=generator, dtype=torch.float64)
    a = 0.82 + seeds + 0.01 * torch.randn(6, generator=generator, dtype=torch.float64)
    b = 0.80 + seeds + 0.01 * torch.randn(6, generator=generator, dtype=torch.float64)
    ends = answer(a.clone(), b.clone())
    if not isinstance(ends, (tuple, list, Tensor, np.ndarray)) or len(ends) != 2:
        return f"It should return two numbers, low and high; it returned {short(ends)}."
    low, high = map(float, ends)
    right = solution_paired_interval(a, b)
    if abs(low - right[0]) < 1e-6 and abs(high - right[1]) < 1e-6:
        return None
    return f"On six made-up seeds your interval is {high - low:.4f} wide and centred at {(low + high) / 2:.4f}."


by_hand(
    "00-r7",
    solution=1,
    hints=("The fair bar is the highest accuracy reached without learning.",),
    why="Raw pixels need no learning and have 96 %. The other controls are easier to beat.",
    wrong_answers=(
        WrongAnswer(87, "Guessing is no serious rival: pixels and untrained networks are."),
        WrongAnswer(6, "The raw pixels stand higher than the untrained network."),
    ),
)

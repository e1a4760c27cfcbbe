"""Chapter 5's sparsifiers, and how fine a compressor must be for the rate 1 / sqrt(T) (Table 1).

Everything with both sides computed, float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad

from fedbook.lab.chapter05_quantisers import HEXAGON, cell_width
from fedbook.lab.chapter05_theory import Sides

# --- top-k and random-k


def top_k(h: Tensor, k: Tensor | int) -> Tensor:
    """h with all but the k largest magnitudes of each vector set to 0; between equal ones the first stay.

    Shapes: ``h`` [..., P]; ``k`` a number or whole numbers that broadcast against [..., 1].
    """
    order = h.abs().sort(dim=-1, descending=True, stable=True).indices
    place = torch.arange(h.shape[-1]).expand_as(order)
    return torch.where(torch.empty_like(order).scatter_(-1, order, place) < k, h, 0.0)


def keep_by_score(h: Tensor, score: Tensor, k: int) -> Tensor:
    """h with all but the k components of largest |score| set to 0. Shapes: [P]."""
    return torch.where(top_k(score.abs() + 1, k) != 0, h, 0.0)


def dropped_means(h: Tensor, k: int) -> dict[str, float]:
    """Top-k of one vector: the mean of the dropped squares is at most that of all, so |error|^2 <= (1 - k/P) |h|^2."""
    width = len(h)
    squares = (h - top_k(h, k)).square()
    mean = float(squares.sum()) / max(1, width - k)
    bound = (1 - k / width) * float(h.square().sum())
    return {
        "mean dropped": mean,
        "mean of all": float(h.square().mean()),
        "error": float(squares.sum()),
        "bound": bound,
    }


def random_k_mean(h: Tensor, k: int) -> Sides:
    """E |error|^2 of random-k, over all sets of k components; and (1 - k/P) |h|^2. Equal. P at most 16."""
    width = len(h)
    sets = list(combinations(range(width), k))
    errors = [h.square().sum() - h[list(kept)].square().sum() for kept in sets]
    return Sides(sum(errors) / len(sets), (1 - k / width) * h.square().sum())


def gradient_rule() -> dict[str, float]:
    """Ranking by the gradient of F = (h_1 - 1)^2 / 2 + h_2 at h = (1, 0): the squared error, and the paper's bound.

    The slope is (0, 1): the component that is 0 is sent, the other dropped. Source: C-VFL, appendix B.
    """
    h = torch.tensor([1.0, 0.0], dtype=torch.float64)
    score = grad(lambda x: (x[0] - 1) ** 2 / 2 + x[1])(h)
    error = (h - keep_by_score(h, score, 1)).square().sum()
    return {"error": float(error), "bound": (1 - 1 / 2) * float(h.square().sum())}


# --- Table 1: thresholds


class Setting(NamedTuple):
    """What Table 1's choices depend on: sum_m E_m <= target / sqrt(T), the same share for each of ``blocks`` blocks.

    ``spread`` W = h_max - h_min, ``square`` the largest |h|^2 of an embedding of ``width`` numbers.
    """

    target: float = 1.0
    blocks: int = 5
    batch: int = 100
    width: int = 32
    spread: float = 2.0
    square: float = 8.0


class Thresholds(NamedTuple):
    """Scalar: ``bits`` a component (``real_bits`` before rounding up); hexagonal: cell ``area`` in the unit square;
    top-k: ``kept``; and the squared error that each block may have, ``allowed``."""

    real_bits: float
    bits: int
    area: float
    kept: int
    allowed: float


def thresholds(setting: Setting, steps: int, grid: str = "endpoints") -> Thresholds:
    """The coarsest compressors that Table 1's rate allows after T = ``steps`` local steps, from the right error laws.

    bins: q = log2(W^2 B P / (12 allowed)) / 2: the 1/2 is hidden in the printed Omega.
    Source: C-VFL, Table 1.
    """
    s = setting
    allowed = s.target / (s.blocks * math.sqrt(steps))
    numbers = s.batch * s.width
    cells = s.spread * math.sqrt(numbers / (12 * allowed))  # how many fit in the range
    real = math.log2(cells + (grid == "endpoints"))
    kept = math.ceil(s.width * (1 - allowed / (s.batch * s.square)))
    area = allowed / (numbers * HEXAGON / 2 * s.spread**2)
    return Thresholds(real, max(1, math.ceil(real)), area, max(0, kept), allowed)


def errors_at(setting: Setting, found: Thresholds, grid: str = "endpoints") -> dict[str, float]:
    """A block's squared error over the batch at those thresholds, to be compared with ``allowed``.

    "hexagonal, by V P / 24" is the true error if the cell is chosen by the printed law: too much by 1.92.
    """
    s = setting
    numbers = s.batch * s.width
    return {
        "scalar": numbers * cell_width(found.bits, s.spread, grid) ** 2 / 12,
        "hexagonal": numbers * HEXAGON / 2 * found.area * s.spread**2,
        "hexagonal, by V P / 24": HEXAGON / 2 * 24 * found.allowed,
        "top-k": s.batch * (1 - found.kept / s.width) * s.square,
    }


def full_from(setting: Setting) -> int:
    """The first T at which top-k must keep all P components: sqrt(T) > target P / (blocks B |h|^2)."""
    s = setting
    return math.floor((s.target * s.width / (s.blocks * s.batch * s.square)) ** 2) + 1


def growth(setting: Setting, steps: Sequence[int]) -> dict[str, list[float]]:
    """Bits a component that each compressor needs after T steps: scalar, hexagonal (log2 1/V for a pair), top-k.

    The quantisers need one more bit when T grows 16 times; top-k is counted as in the paper, 32 k / P.
    """
    found = [thresholds(setting, t) for t in steps]
    return {
        "steps": list(steps), "scalar": [t.real_bits for t in found],
        "hexagonal": [-math.log2(t.area) / 2 for t in found], "top-k": [32 * t.kept / setting.width for t in found],
    }  # fmt: skip

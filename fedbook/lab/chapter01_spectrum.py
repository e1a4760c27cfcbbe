"""Why chapter 1's loss is called spectral: it factors the graph of views, and eigenvalues are its minimum; both sides.

Two views are neighbours if one sample can become either. The views are X points, some of them shared by samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fedbook.lab.chapter01_theory import VIEWS, WIDTH, Sides
from fedbook.papers.fedsc.spectral import bank_objective
from fedbook.randomness import normal, stream


class Graph(NamedTuple):
    """N samples, each with K of X possible views (some shared). Shapes: ``views`` [N, K] int, ``adjacency`` [X, X]."""

    views: Tensor
    weights: Tensor
    adjacency: Tensor


def view_graph(samples: int = 8, points: int = 12, seed: int = 0) -> Graph:
    """A random bank over ``points`` views; w_x [X] and the normalised adjacency A of the views' graph."""
    rng = stream(seed, "view graph")
    chosen = torch.from_numpy(rng.permutation(samples * VIEWS) % points).view(samples, VIEWS)  # each at least once
    kernel = torch.zeros(samples, points, dtype=torch.float64)  # A(x | sample)
    kernel.scatter_add_(1, chosen, torch.full(chosen.shape, 1 / VIEWS, dtype=torch.float64))
    weights = kernel.mean(0)
    return Graph(chosen, weights, kernel.T @ kernel / samples / (weights.outer(weights)).sqrt())


def spectral_identity(seed: int = 0) -> Sides:
    """L of a random table of z, and |A - F F^T|^2 / 2 - |A|^2 / 2 with rows sqrt(w_x) z_x of F. Equal."""
    graph = view_graph(seed=seed)
    table = normal((len(graph.weights), WIDTH), stream(seed, "table"))
    rows = graph.weights.sqrt()[:, None] * table
    right = (graph.adjacency - rows @ rows.T).square().sum() / 2 - graph.adjacency.square().sum() / 2
    return Sides(bank_objective(table[graph.views]).loss, right)


class Optimum(NamedTuple):
    """The least loss: ``reached`` by LBFGS, ``formula`` -1/2 of the H largest lambda_i^2, ``bound`` -H/2."""

    reached: float
    formula: float
    bound: float


def spectral_optimum(width: int = WIDTH, seed: int = 0) -> Optimum:
    """The minimum over a free table of z, one row of ``width`` H for each view."""
    graph = view_graph(seed=seed)
    start = normal((len(graph.weights), width), stream(seed, "table"))
    best = minimise(lambda table: bank_objective(table[graph.views]).loss, start)
    values = torch.linalg.eigvalsh(graph.adjacency).flip(0)[:width]
    return Optimum(float(bank_objective(best[graph.views]).loss), -float(values.square().sum()) / 2, -width / 2)


def minimise(value: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """Where LBFGS ends from ``start``."""
    point = start.clone().requires_grad_()
    solver = torch.optim.LBFGS(
        [point], max_iter=500, tolerance_grad=1e-12, tolerance_change=0.0, history_size=50,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        solver.zero_grad()
        loss = value(point)
        loss.backward()
        return loss

    solver.step(closure)
    return point.detach()

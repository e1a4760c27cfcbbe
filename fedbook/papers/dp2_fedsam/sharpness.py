"""How flat a loss is around given parameters: what noise costs, what the worst direction costs, and the Hessian.

``loss(parameters)`` is a scalar; ``parameters`` a tree (a tensor or nested dictionaries of tensors) of one floating
dtype. Every function is written for ONE parameter set, branches on no value and returns tensors, so ten models are

    vmap(lambda p: hessian_trace(loss, p, 100, stream(0, "trace")).mean)(stacked)

All of them then meet the same random draws, which is what a comparison wants. Distances (standard deviation, radius,
offsets) are in the L2 norm over all tensors together, the one that clipping, noise and SAM use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import grad, grad_and_value, jvp, vmap

from fedbook import arguments
from fedbook.federation.tree import Tree, first_leaf, flatten, tree_map, unflatten
from fedbook.randomness import normal

Loss = Callable[[Tree], Tensor]


class Estimate(NamedTuple):
    """The mean of independent draws and its standard error. Shapes: scalars."""

    mean: Tensor
    error: Tensor


class WorstCase(NamedTuple):
    """The largest rise found and where: ``loss(parameters + perturbation) - loss(parameters)``."""

    rise: Tensor
    perturbation: Tree


class Eigenpairs(NamedTuple):
    """The algebraically largest eigenvalues, largest first, with unit eigenvectors.

    Shapes: ``values`` [count]; ``vectors`` like the parameters with a leading axis [count, ...]; ``residuals``
    [count], |H v - value v|: some eigenvalue of H is at most that far from the value.
    """

    values: Tensor
    vectors: Tree
    residuals: Tensor


@torch.no_grad()
def gaussian_rise(
    loss: Loss, parameters: Tree, std: float, draws: int, rng: np.random.Generator, chunk: int = 32
) -> Estimate:
    """The mean rise of the loss when N(0, std^2 I) is added to the parameters, with its standard error.

    Each of the ``draws`` noise vectors serves with both signs: the gradient's part cancels exactly and the curvature
    is what is left, so a quadratic with Hessian A gives std^2/2 times the mean of z^T A z, expectation
    std^2/2 tr A. In all 2 * draws evaluations of the loss, ``chunk`` draws at a time (memory: 2 * chunk
    models and their activations; the result does not depend on it).
    Source: DP2-FedSAM, the noise of one aggregation, std = sigma C / (r N).
    """
    here = loss(parameters)

    def rise(noise: Tree) -> Tensor:
        up, down = (loss(_moved(parameters, noise, sign * std)) for sign in (1, -1))
        return (up + down) / 2 - here

    return _over_draws(rise, normal, parameters, draws, rng, chunk)


@torch.no_grad()
def worst_case_rise(loss: Loss, parameters: Tree, radius: float, steps: int = 20) -> WorstCase:
    """The largest rise found within ``radius``, by projected gradient ascent from the parameters: at least 0.

    The first step is SAM's point, radius * g/|g|, so ``steps=1`` gives SAM's rise and more steps never less. A step
    that rises is taken and the next one doubled, one that does not is undone and the next one quartered: on a
    convex loss, whose maximum lies on the sphere, it becomes a power iteration. It is ascent, no proof that nothing
    is higher; where the gradient is exactly zero it stays (move along an eigenvector instead).
    ``steps`` + 1 gradients. Source: DP2-FedSAM, equations (2), (3).
    """
    at, theta = _as_vector(loss, parameters)
    slope, here = grad_and_value(at)(theta)
    rise, best, size = torch.zeros_like(here), torch.zeros_like(theta), torch.ones_like(here)
    for _ in range(steps):
        trial = best + size * radius * _unit(slope)
        trial = trial * (radius / trial.norm().clamp_min(torch.finfo(trial.dtype).tiny)).clamp_max(1)
        new_slope, value = grad_and_value(at)(theta + trial)
        better = value - here > rise  # False where the loss is not a number
        rise, best = torch.where(better, value - here, rise), torch.where(better, trial, best)
        slope, size = torch.where(better, new_slope, slope), torch.where(better, 2 * size, size / 4).clamp(1e-12, 1e6)
    return WorstCase(rise, _as_tree(best, parameters))


@torch.no_grad()
def hessian_trace(loss: Loss, parameters: Tree, draws: int, rng: np.random.Generator, chunk: int = 32) -> Estimate:
    """The trace of the Hessian by Hutchinson's estimator with random signs v, mean of v^T H v, with its standard error.

    Exact for a diagonal Hessian; else the variance of one draw is twice the sum of squares off the diagonal.
    ``chunk`` draws at a time (memory). Source: Hutchinson 1989.
    """

    def quadratic_form(v: Tree) -> Tensor:
        product = jvp(grad(loss), (parameters,), (v,))[1]
        return sum(flatten(tree_map(lambda a, b: (a * b).sum(), v, product)).values())

    return _over_draws(quadratic_form, _signs, parameters, draws, rng, chunk)


@torch.no_grad()
def top_eigenvalues(
    loss: Loss, parameters: Tree, rng: np.random.Generator, count: int = 1, steps: int = 30
) -> Eigenpairs:
    """The ``count`` algebraically largest eigenvalues of the Hessian by Lanczos with full reorthogonalisation.

    Of the algebraically largest, not the largest in magnitude: a deep negative one does not hide it. The estimates
    grow with ``steps`` towards the eigenvalues; ``residuals`` tell how far that is done, with as many steps as
    parameters it is. Needs ``steps`` + ``count`` Hessian products and the memory of ``steps`` parameter sets.
    Of an eigenvalue with several eigenvectors usually one is found, unless there are fewer different eigenvalues
    than steps. Raises: ValueError (count above steps or the number of parameters).
    """
    at, theta = _as_vector(loss, parameters)
    steps = min(steps, theta.numel())
    arguments.integer("count", count, 1, steps)
    basis, alphas, betas = theta.new_empty(0, theta.numel()), [], []
    following, beta = torch.zeros_like(theta), theta.new_zeros(())
    largest = theta.new_zeros(())  # of the tridiagonal entries so far: what counts as zero
    for _ in range(steps):
        # at the start, and when the space is exhausted, a fresh direction; drawn every time: no value decides
        exhausted = beta <= 100 * torch.finfo(theta.dtype).eps * largest
        fresh = normal((theta.numel(),), rng, theta)
        betas.append(beta)
        # orthogonal once more: a short remainder made long brings up what rounding left in it
        q = _unit(_orthogonal(_unit(torch.where(exhausted, fresh, following)), basis))
        basis = torch.cat([basis, q[None]])
        product = _product(at, theta, q)
        alphas.append(product @ q)
        following = _orthogonal(product, basis)
        beta = following.norm()
        largest = torch.maximum(largest, torch.maximum(alphas[-1].abs(), beta))
    diagonal, beside = torch.stack(alphas), torch.stack(betas)[1:]
    tridiagonal = torch.diag_embed(diagonal) + torch.diag_embed(beside, 1) + torch.diag_embed(beside, -1)
    values, vectors = torch.linalg.eigh(tridiagonal)
    values, vectors = values[-count:].flip(0), (basis.T @ vectors[:, -count:]).T.flip(0)
    vectors = vectors / vectors.norm(dim=1, keepdim=True)
    residuals = [(_product(at, theta, v) - value * v).norm() for value, v in zip(values, vectors, strict=True)]
    return Eigenpairs(values, _as_tree(vectors, parameters), torch.stack(residuals))


def random_directions(parameters: Tree, rng: np.random.Generator, count: int = 2) -> Tree:
    """``count`` random directions, of norm 1 and orthogonal to each other over all tensors together.

    Steps along them are distances, comparable with a SAM radius or the norm of noise.
    Shapes: like ``parameters`` with a leading axis [count, ...].
    """
    flat = flatten(parameters)
    like, size = next(iter(flat.values())), sum(x.numel() for x in flat.values())
    return _as_tree(torch.linalg.qr(normal((size, count), rng, like)).Q.T, parameters)


@torch.no_grad()
def loss_surface(loss: Loss, parameters: Tree, directions: Tree, offsets: Tensor, chunk: int = 32) -> Tensor:
    """The loss on a grid through the parameters: along one direction a slice, along two a surface.

    Entry [i, j] is at parameters + offsets[i] * directions[0] + offsets[j] * directions[1]; with directions of
    norm 1 (:func:`random_directions`, the vectors of :func:`top_eigenvalues`) the axes are distances.
    Shapes: ``directions`` like ``parameters`` with a leading axis [1 or 2, ...]; ``offsets`` [n]; result [n] or
    [n, n]. ``chunk`` points at a time (memory).
    """
    axes = [offsets.to(first_leaf(parameters))] * len(first_leaf(directions))
    grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)  # [n, n, 2] or [n, 1]

    def at(point: Tensor) -> Tensor:
        return loss(tree_map(lambda p, d: p + torch.tensordot(point, d, 1), parameters, directions))

    return vmap(at, chunk_size=chunk)(grid.flatten(0, -2)).reshape(grid.shape[:-1])


def _over_draws(
    function: Callable[[Tree], Tensor], draw: Callable, parameters: Tree, draws: int, rng: Any, chunk: int
) -> Estimate:
    """The mean of ``function`` over random trees; drawn one after another, so that the chunk changes nothing."""
    flat, values = flatten(parameters), []
    for start in range(0, draws, chunk):
        rows = [
            {name: draw(tuple(flat[name].shape), rng, flat[name]) for name in sorted(flat)}
            for _ in range(min(chunk, draws - start))
        ]
        stack = {name: torch.stack([row[name] for row in rows]) for name in flat}
        values.append(vmap(lambda z: function(unflatten(z, parameters)))(stack))
    values = torch.cat(values)
    return Estimate(values.mean(), values.std() / math.sqrt(draws))


def _signs(shape: tuple[int, ...], rng: np.random.Generator, like: Tensor) -> Tensor:
    return torch.from_numpy(2.0 * rng.integers(0, 2, shape) - 1).to(device=like.device, dtype=like.dtype)


def _moved(parameters: Tree, direction: Tree, distance: float) -> Tree:
    return tree_map(lambda p, d: p + distance * d, parameters, direction)


def _unit(x: Tensor) -> Tensor:
    """x / |x|, and zero for zero."""
    return x / x.norm().clamp_min(torch.finfo(x.dtype).tiny)


def _orthogonal(x: Tensor, basis: Tensor) -> Tensor:
    """``x`` [d] less its part in the rows of ``basis`` [k, d]."""
    return x - (basis @ x) @ basis


def _product(at: Callable[[Tensor], Tensor], theta: Tensor, v: Tensor) -> Tensor:
    return jvp(grad(at), (theta,), (v,))[1]


def _as_vector(loss: Loss, parameters: Tree) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """The loss as a function of one vector, and the parameters as that vector [d]."""
    theta = torch.cat([x.reshape(-1) for x in flatten(parameters).values()])
    return lambda v: loss(_as_tree(v, parameters)), theta


def _as_tree(vector: Tensor, parameters: Tree) -> Tree:
    """[..., d] as a tree of the parameters' form with the same leading axes."""
    flat = flatten(parameters)
    pieces = vector.split([x.numel() for x in flat.values()], -1)
    pairs = zip(flat.items(), pieces, strict=True)
    return unflatten({name: piece.reshape(*vector.shape[:-1], *x.shape) for (name, x), piece in pairs}, parameters)

"""How flat a loss is around given parameters: what noise costs.

``loss(parameters)`` is a scalar; ``parameters`` a tree (a tensor or nested dictionaries of tensors) of one floating
dtype. The function is written for ONE parameter set, branches on no value and returns tensors, so ten models are

    vmap(lambda p: gaussian_rise(loss, p, 0.1, 100, stream(0, "noise")).mean)(stacked)

All of them then meet the same random draws, which is what a comparison wants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from fedbook import arguments
from fedbook.federation.tree import Tree, flatten, tree_map, unflatten
from fedbook.randomness import normal

Loss = Callable[[Tree], Tensor]


class Estimate(NamedTuple):
    """The mean of independent draws and its standard error. Shapes: scalars."""

    mean: Tensor
    error: Tensor


@torch.no_grad()
def gaussian_rise(
    loss: Loss, parameters: Tree, std: float, draws: int, rng: np.random.Generator, chunk: int = 32
) -> Estimate:
    """The mean rise of the loss when N(0, std^2 I) is added to the parameters, with its standard error.

    Each of the ``draws`` noise vectors serves with both signs: the gradient's part cancels exactly and the curvature
    is what is left, so a quadratic with Hessian A gives std^2/2 times the mean of z^T A z, expectation
    std^2/2 tr A. In all 2 * draws evaluations of the loss, ``chunk`` draws at a time (memory: 2 * chunk
    models and their activations; the result does not depend on it).
    Source: DP2-FedSAM, the noise of one aggregation, std = sigma C / (r N). Raises: TypeError, ValueError.
    """
    draws, chunk = arguments.integer("draws", draws, 2), arguments.integer("chunk", chunk, 1)
    here = loss(parameters)

    def rise(noise: Mapping[str, Tensor]) -> Tensor:
        z = unflatten(noise, parameters)
        up, down = (loss(tree_map(lambda p, d, by=by: p + by * d, parameters, z)) for by in (std, -std))
        return (up + down) / 2 - here

    flat, values = flatten(parameters), []
    for start in range(0, draws, chunk):  # drawn one after another, so that the chunk changes nothing
        rows = [
            {name: normal(tuple(flat[name].shape), rng, flat[name]) for name in sorted(flat)}
            for _ in range(min(chunk, draws - start))
        ]
        stack = {name: torch.stack([row[name] for row in rows]) for name in flat}
        values.append(vmap(rise)(stack))
    values = torch.cat(values)
    return Estimate(values.mean(), values.std() / math.sqrt(draws))

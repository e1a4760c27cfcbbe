"""Projectors and predictors with batch normalisation: Linear - BatchNorm - ReLU - Linear.

It is the only place in the book where rows of a batch meet inside a network. In our runs BYOL ends without it where all
representations are nearly one vector (chapter 2 measures it); backbones have none, so the features that are
judged are a function of one image.

Running statistics are entries of the parameters, so they travel, are averaged and stored like these, but gradients do
not reach them: a training step moves them towards the statistics of its batch (``keep`` of
fedbook.federation.local.sgd).

Source: Ioffe and Szegedy, Batch Normalization (2015); Grill et al. 2020, section 3.3 (where it stands in the heads).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

KEEP = 0.9  # PyTorch's momentum of 0.1
EPSILON = 1e-5
RUNNING = ("norm.running_mean", "norm.running_variance")


class BatchNorm(nn.Module):
    """scale * (x - mean) / sqrt(variance + epsilon) + shift, by column; running statistics start at 0 and 1."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.running_mean = nn.Parameter(torch.zeros(width), requires_grad=False)
        self.running_variance = nn.Parameter(torch.ones(width), requires_grad=False)

    def forward(self, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """[B, width] to [B, width] by the statistics given."""
        return (x - mean) * (variance + EPSILON).rsqrt() * self.weight + self.bias


class NormalisedHead(nn.Module):
    """Two linear layers with batch normalisation and a ReLU between them.

    ``head(x)`` uses the running statistics: a function of one row. ``head(x, weight)`` uses those of the rows of
    weight 1, and also returns their mean and variance, this one divided by n - 1 as PyTorch's running one.
    Shapes: x [B, inward], weight [B] to [B, outward].
    """

    def __init__(self, first: nn.Linear, second: nn.Linear) -> None:
        super().__init__()
        self.first, self.norm, self.second = first, BatchNorm(first.out_features), second

    def forward(self, x: Tensor, weight: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor, Tensor]:
        """The head's output; with ``weight`` also the mean and the variance of its batch."""
        u = self.first(x).to(self.norm.running_mean.dtype)  # statistics in full precision whatever the layers have
        if weight is None:
            return self.second(torch.relu(self.norm(u, self.norm.running_mean, self.norm.running_variance)))
        rows = weight.to(u)[:, None]
        count = rows.sum()
        mean = (u * rows).sum(0) / count.clamp(min=1)
        square = ((u - mean).square() * rows).sum(0)
        z = self.second(torch.relu(self.norm(u, mean, square / count.clamp(min=1))))
        return z, mean.detach(), (square / (count - 1).clamp(min=1)).detach()


def in_batch(
    module: nn.Module, parameters: Mapping[str, Tensor], x: Tensor, weight: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """A head's output in training, and the statistics its batch had by the names of ``RUNNING``; {} if it has none.

    Shapes: x [B, inward], weight [B] (0: a row that only fills up the batch; it is in no statistic).
    """
    if not isinstance(module, NormalisedHead):
        return functional_call(module, dict(parameters), (x,), strict=True), {}
    z, *seen = functional_call(module, dict(parameters), (x, weight), strict=True)
    return z, dict(zip(RUNNING, seen, strict=True))

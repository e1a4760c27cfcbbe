"""Layers that PyTorch lacks or that its ``vmap`` has no rule for: view pooling, long short-term memory."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Views(nn.Module):
    """The same layers for each view, then the largest value over the views, element by element (view pooling).

    Shapes: [B, v, C, H, W] to what the layers make of [B, C, H, W].
    Source: Su et al., Multi-view Convolutional Neural Networks (2015).
    """

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        """[B, v, C, H, W] to [B, C', H', W']."""
        each = self.layers(x.flatten(0, 1))
        return each.unflatten(0, x.shape[:2]).amax(1)


class LSTM(nn.Module):
    """One layer of long short-term memory, from zeros; its last hidden state is the answer.

    Each gate has its rows of W x_t + U h_{t-1} + b, in the order i, f, g, o; i, f and o through the logistic function,
    g through tanh. Then c_t = f c_{t-1} + i g and h_t = o tanh(c_t), element by element.
    Weights start uniform in +-1 / sqrt(width), biases at 0, those of the forget gates at 1, so that long series are
    remembered from the start.
    By hand, as PyTorch's own layer has no rule for ``vmap``, and with one bias a gate instead of two that only add up.
    Shapes: [B, steps, features] to [B, width].
    Source: Hochreiter and Schmidhuber (1997); forget gates: Gers et al. (2000); their bias: Jozefowicz et al. (2015).
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.inward = nn.Parameter(torch.empty(4 * width, features))
        self.across = nn.Parameter(torch.empty(4 * width, width))
        self.bias = nn.Parameter(torch.zeros(4 * width))
        for weight in (self.inward, self.across):
            nn.init.uniform_(weight, -1 / math.sqrt(width), 1 / math.sqrt(width))
        nn.init.ones_(self.bias[width : 2 * width].detach())

    def forward(self, x: Tensor) -> Tensor:
        """[B, steps, features] to [B, width], each entry between -1 and 1."""
        driven = x @ self.inward.mT + self.bias  # [B, steps, 4 width], all steps at once
        h = c = driven.new_zeros(len(x), self.across.shape[1])
        for now in driven.unbind(1):
            i, f, g, o = (now + h @ self.across.mT).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h

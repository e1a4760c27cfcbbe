"""The linear evaluation of the Hetero-SSFL paper: one layer on frozen features, trained by Adam for some epochs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments, interrupts
from fedbook.learning.features import check_features
from fedbook.randomness import stream

Layers = tuple[tuple[Tensor, Tensor], ...]


@dataclass(frozen=True, eq=False)
class AdamProbe:
    """A classifier of frozen features: one layer, or two with ReLU between them.

    Shapes: ``layers``, pairs of weights [out, in] and bias [out], from D to C, for features less ``mean`` [D] divided
    by ``scale`` [D] (0 and 1 unless they were standardised); ``classes`` [C] the labels they stand for.
    ``loss``: the mean cross-entropy of all training samples at the end. ``steps``: of Adam.
    """

    layers: Layers
    mean: Tensor
    scale: Tensor
    classes: Tensor
    loss: float
    steps: int

    def scores(self, h: Tensor) -> Tensor:
        """[N, C] logarithms of odds for features [N, D]. Raises: TypeError, ValueError."""
        arguments.tensor("h", h, shape=(None, len(self.mean)), kind="float")
        return _scores(self.layers, (h.to(self.mean.dtype) - self.mean) / self.scale)

    def predict(self, h: Tensor) -> Tensor:
        """[N] the most probable label, for features [N, D]."""
        return self.classes[self.scores(h).argmax(1)]

    def accuracy(self, h: Tensor, y: Tensor) -> float:
        """The share of right predictions, in [0, 1]; a label the probe never saw counts as wrong."""
        arguments.tensor("y", y, shape=(len(h),), kind="integer")
        return float((self.predict(h) == y).double().mean())


def adam_probe(
    train_h: Tensor,
    train_y: Tensor,
    hidden: int = 0,
    epochs: int = 100,
    batch_size: int = 512,
    lr: float = 3e-3,
    standardise: bool = False,
    seed: int = 0,
) -> AdamProbe:
    """Adam on the cross-entropy of minibatches, in a new order each epoch; no penalty. The defaults are the paper's.

    ``hidden``: 0 trains one layer. The paper's is "fully connected with 1000 neurons", for 10 classes too: 1000 takes
    that as a hidden layer, with ReLU. ``standardise``: features less their mean, divided by their deviation on the
    training set (a constant one is only centred). The last minibatch of an epoch may be smaller. With few samples the
    defaults are few steps (512 or fewer: a hundred of about 0.003 each) and stop far from a minimum.
    Layers start as torch.nn.Linear draws them: uniform within 1/sqrt(inputs). They and the order are functions of
    ``seed`` alone. In the dtype of the features, or float32 for less.
    Shapes: ``train_h`` [N, D] floating point, ``train_y`` [N] integers of at least 0.
    Raises: TypeError, ValueError (NaN features, fewer than two classes).
    Source: Makhija, Ho and Ghosh, Federated Self-supervised Learning for Heterogeneous Clients (2022), section 5;
    Kingma and Ba, Adam (2015).
    """
    train_y, _ = check_features(train_h, train_y, None)
    hidden = arguments.integer("hidden", hidden, 0)
    epochs = arguments.integer("epochs", epochs, 1)
    batch_size = arguments.integer("batch_size", batch_size, 1)
    lr = arguments.real("lr", lr, above=0.0)
    classes, y = train_y.unique(return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"train_y: got the single class {int(classes[0])}; allowed are two classes or more")
    h = train_h.detach().to(torch.promote_types(train_h.dtype, torch.float32))
    mean, scale = torch.zeros_like(h[0]), torch.ones_like(h[0])
    if arguments.flag("standardise", standardise):
        mean, scale = _moments(h)
        h = (h - mean) / scale
    layers = _drawn((h.shape[1], *((hidden,) if hidden else ()), len(classes)), stream(seed, "adam probe layers"), h)
    parameters = [p.requires_grad_() for pair in layers for p in pair]
    optimiser, steps = torch.optim.Adam(parameters, lr), 0
    with torch.enable_grad():
        for epoch in range(epochs):
            order = torch.from_numpy(stream(seed, "adam probe", epoch).permutation(len(h))).to(h.device)
            interrupts.point()
            for rows in order.split(batch_size):
                loss = torch.nn.functional.cross_entropy(_scores(layers, h[rows]), y[rows])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                steps += 1
    layers = tuple((weights.detach(), bias.detach()) for weights, bias in layers)
    loss = float(torch.nn.functional.cross_entropy(_scores(layers, h), y))
    return AdamProbe(layers, mean, scale, classes, loss, steps)


def _scores(layers: Layers, h: Tensor) -> Tensor:
    for weights, bias in layers[:-1]:
        h = torch.relu(torch.nn.functional.linear(h, weights, bias))
    return torch.nn.functional.linear(h, *layers[-1])


def _drawn(widths: tuple[int, ...], rng: np.random.Generator, like: Tensor) -> Layers:
    """Layers from each width to the next, on the device and in the dtype of ``like``."""

    def uniform(reach: float, *shape: int) -> Tensor:
        return torch.from_numpy(rng.uniform(-reach, reach, shape)).to(like)

    pairs = zip(widths[:-1], widths[1:], strict=True)
    return tuple((uniform(n**-0.5, m, n), uniform(n**-0.5, m)) for n, m in pairs)


def _moments(h: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation [D] of features [N, D]; of a constant feature the deviation is taken as 1."""
    exact = h.double()
    mean, spread = exact.mean(0), exact.std(0, correction=0)
    return mean.to(h), torch.where(spread > 1e-12 * mean.abs(), spread, 1.0).to(h)

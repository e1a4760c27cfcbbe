"""The linear probe: how much a linear classifier finds in frozen features."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments
from fedbook.learning.features import check_features
from fedbook.randomness import stream


@dataclass(frozen=True, eq=False)
class Probe:
    """A linear classifier on frozen features, and how well its training went.

    Shapes: ``weights`` [C, D] and ``bias`` [C] float64, for features as given (a standardisation is folded
    in); ``classes`` [C] the labels they stand for.
    ``loss``: the minimised objective. ``gradient_norm``: its largest partial derivative at the end, in the
    centred and scaled features in which it was minimised. ``converged``: whether that is within tolerance.
    """

    weights: Tensor
    bias: Tensor
    classes: Tensor
    loss: float
    gradient_norm: float
    steps: int
    converged: bool

    def scores(self, h: Tensor) -> Tensor:
        """[N, C] logarithms of odds, in float64, for features [N, D]. Raises: TypeError, ValueError."""
        arguments.tensor("h", h, shape=(None, self.weights.shape[1]), kind="float")
        return h.to(self.weights.dtype) @ self.weights.T + self.bias

    def probabilities(self, h: Tensor) -> Tensor:
        """[N, C] probabilities of ``classes``, for features [N, D]."""
        return self.scores(h).softmax(1)

    def predict(self, h: Tensor) -> Tensor:
        """[N] the most probable label, for features [N, D]."""
        return self.classes[self.scores(h).argmax(1)]

    def accuracy(self, h: Tensor, y: Tensor) -> float:
        """The share of right predictions, in [0, 1]; a label the probe never saw counts as wrong."""
        arguments.tensor("y", y, shape=(len(h),), kind="integer")
        return float((self.predict(h) == y).double().mean())


def linear_probe(
    train_h: Tensor,
    train_y: Tensor,
    l2: float | None = None,
    standardise: bool = False,
    max_steps: int = 2000,
    tolerance: float = 1e-8,
) -> Probe:
    """Multinomial logistic regression on frozen features, minimised by L-BFGS in float64.

    Minimises mean_i -log softmax(W h_i + b)[y_i] + l2/2 * |W|^2 (the bias is free) over the classes
    present. This is scikit-learn's LogisticRegression(C = 1 / (N * l2)) for three classes or more; for two,
    where scikit-learn has one weight vector, its C = 2 / (N * l2). ``l2=None``: 1/N, scikit-learn's C = 1.
    ``standardise``: the penalty applies to features with mean 0 and variance 1 on the training set (a
    constant feature is only centred). ``tolerance``: the largest partial derivative that counts as none.
    Not converged after ``max_steps``: a RuntimeWarning, and ``converged`` is False.
    Shapes: ``train_h`` [N, D] floating point, ``train_y`` [N] integers of at least 0.
    Raises: TypeError, ValueError (NaN features, fewer than two classes, l2 not above 0: without a penalty
    separable data have no minimum).
    """
    train_y, _ = check_features(train_h, train_y, None)
    l2 = 1 / len(train_y) if l2 is None else arguments.real("l2", l2, above=0.0)
    max_steps = arguments.integer("max_steps", max_steps, 1)
    tolerance = arguments.real("tolerance", tolerance, above=0.0)
    classes, y = train_y.unique(return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"train_y: got the single class {int(classes[0])}; allowed are two classes or more")
    h = train_h.detach().double()
    mean = h.mean(0)
    h = h - mean  # the bias is free, so centring changes the bias only
    spread = h.square().mean(0).sqrt()
    scale = torch.where(spread > 1e-12 * mean.abs(), spread, 1.0) if arguments.flag("standardise", standardise) else 1.0
    h = h / scale
    # one common factor r changes nothing either, with the penalty divided by r^2: it makes steps well sized, and
    # with r^2 >= l2 no direction is much more curved than the others
    r = h.square().mean().clamp_min(l2).sqrt()
    weights, bias, report = _minimise(h / r, y, len(classes), l2 / r**2, max_steps, tolerance)
    if not report["converged"]:
        text = (
            f"linear_probe: gradient {report['gradient_norm']:.1e} above {tolerance:.1e} after {report['steps']} steps"
        )
        warnings.warn(text, RuntimeWarning, stacklevel=2)
    weights = weights / (r * scale)
    return Probe(weights, bias - weights @ mean, classes, **report)


def _minimise(h: Tensor, y: Tensor, num_classes: int, l2: Tensor, max_steps: int, tolerance: float):
    """Weights [C, D], bias [C] and the report of the minimisation."""
    weights = h.new_zeros(num_classes, h.shape[1], requires_grad=True)
    bias = h.new_zeros(num_classes, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weights, bias],
        max_iter=max_steps,
        max_eval=5 * max_steps,
        tolerance_grad=tolerance,
        tolerance_change=0.0,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def objective() -> Tensor:
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(h @ weights.T + bias, y) + l2 / 2 * weights.square().sum()
        loss.backward()
        return loss

    with torch.enable_grad():
        optimiser.step(objective)
        loss = float(objective().detach())
    steepest = float(torch.maximum(weights.grad.abs().max(), bias.grad.abs().max()))
    steps = optimiser.state[weights]["n_iter"]
    report = {"loss": loss, "gradient_norm": steepest, "steps": steps, "converged": steepest <= tolerance}
    return weights.detach(), bias.detach(), report


def few_labels(labels: Tensor, per_class: int, seed: int) -> Tensor:
    """The rows of ``per_class`` random samples of each class present, for a probe with few labels.

    Shapes: ``labels`` [N] integers -> [C * per_class] int64, ascending, on the labels' device.
    Raises: TypeError, ValueError (a class with fewer samples).
    """
    arguments.tensor("labels", labels, ndim=1, kind="integer")
    per_class = arguments.integer("per_class", per_class, 1)
    values = labels.cpu().numpy()
    present, counts = np.unique(values, return_counts=True)
    if len(present) == 0:
        raise arguments.wrong(ValueError, "labels", labels, "at least one label")
    if counts.min() < per_class:
        raise ValueError(
            f"per_class: got {per_class}; allowed is at most {counts.min()}, all that class "
            f"{present[counts.argmin()]} has"
        )
    rng = stream(seed, "few labels")
    rows = [rng.choice(np.flatnonzero(values == c), per_class, replace=False) for c in present]
    return torch.from_numpy(np.sort(np.concatenate(rows))).to(labels.device)

"""The linear probe: how much a linear classifier finds in frozen features."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedbook import arguments, interrupts
from fedbook.learning.features import check_features
from fedbook.randomness import stream


@dataclass(frozen=True, eq=False)
class Probe:
    """A linear classifier on frozen features, and how well its training went.

    Shapes: ``weights`` [C, D] and ``bias`` [C] float64, for features as given (a standardisation is folded
    in); ``classes`` [C] the labels they stand for.
    ``loss``: the minimised objective. ``gradient_norm``: its largest partial derivative at the end, in the
    centred and scaled features in which it was minimised. ``converged``: whether that is within tolerance.
    ``steps``: of L-BFGS and of the conjugate gradients inside Newton's steps.
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
    max_steps: int = 10_000,
    tolerance: float = 1e-10,
) -> Probe:
    """Multinomial logistic regression on frozen features, minimised in float64: L-BFGS, then Newton.

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
    if not bool(r.isfinite()):
        raise ValueError("train_h: got features whose squares overflow float64; allowed are smaller ones")
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
    h = torch.cat([h, h.new_ones(len(h), 1)], 1)  # the bias is the last column, [N, D+1]
    penalty = torch.full_like(h[0], 1.0) * l2
    penalty[-1] = 0.0
    v, steps = _descend(h, y, h.new_zeros(num_classes, h.shape[1]), penalty, max_steps, max(tolerance, 1e-6))
    target = torch.nn.functional.one_hot(y, num_classes).to(h.dtype)
    v, used = _finish(h, target, v, penalty, max_steps - steps, tolerance)
    steepest = float(_gradient(h, target, v, penalty)[0].abs().max())
    loss = float(torch.nn.functional.cross_entropy(h @ v.T, y) + (penalty * v.square()).sum() / 2)
    report = {"loss": loss, "gradient_norm": steepest, "steps": steps + used, "converged": steepest <= tolerance}
    return v[:, :-1], v[:, -1], report


def _descend(h: Tensor, y: Tensor, v: Tensor, penalty: Tensor, max_steps: int, tolerance: float) -> tuple[Tensor, int]:
    """L-BFGS from ``v`` [C, D+1]. Its line search compares losses, so rounding stops it at gradients near 1e-8."""
    v.requires_grad_()
    optimiser = torch.optim.LBFGS(
        [v],
        max_iter=max_steps,
        max_eval=5 * max_steps,
        tolerance_grad=tolerance,
        tolerance_change=0.0,
        history_size=20,
        line_search_fn="strong_wolfe",
    )

    def objective() -> Tensor:
        interrupts.point()
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(h @ v.T, y) + (penalty * v.square()).sum() / 2
        loss.backward()
        return loss

    with torch.enable_grad():
        optimiser.step(objective)
    return v.detach(), optimiser.state[v]["n_iter"]


def _finish(h: Tensor, target: Tensor, v: Tensor, penalty: Tensor, max_steps: int, tolerance: float):
    """Newton's method near the minimum; a step is halved until the gradient's length falls. ``v`` and CG steps used."""
    gradient, p = _gradient(h, target, v, penalty)
    steps = 0
    while bool(gradient.abs().max() > tolerance) and steps < max_steps:
        direction, used = _solve(h, p, penalty, gradient, max_steps - steps)
        steps += used
        for halving in range(30):
            trial = v - direction * 0.5**halving
            slope, p_trial = _gradient(h, target, trial, penalty)
            if bool(slope.norm() < gradient.norm()):
                break
        else:
            return v, steps
        v, gradient, p = trial, slope, p_trial
    return v, steps


def _gradient(h: Tensor, target: Tensor, v: Tensor, penalty: Tensor) -> tuple[Tensor, Tensor]:
    """[C, D+1] gradient of the objective and [N, C] probabilities."""
    p = (h @ v.T).softmax(1)
    return (p - target).T @ h / len(h) + penalty * v, p


def _solve(h: Tensor, p: Tensor, penalty: Tensor, gradient: Tensor, max_steps: int) -> tuple[Tensor, int]:
    """Conjugate gradients for Hessian @ x = gradient, to a thousandth of the gradient's length."""
    x, r = torch.zeros_like(gradient), gradient
    d, square, steps = r, r.square().sum(), 0
    while steps < max_steps:
        steps += 1
        s = p * (h @ d.T)  # the softmax's Hessian is diag(p) - p p^T for each sample
        product = (s - p * s.sum(1, keepdim=True)).T @ h / len(h) + penalty * d
        alpha = square / (d * product).sum()
        x, r = x + alpha * d, r - alpha * product
        last, square = square, r.square().sum()
        if bool(square <= 1e-6 * gradient.square().sum()):
            break
        d = r + square / last * d
    return x, steps


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

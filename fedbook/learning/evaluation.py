"""How frozen features are judged: nearest neighbours, linear probes, the directions that a representation uses."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear, normalize, one_hot

from fedbook import arguments, interrupts
from fedbook.randomness import stream

FEW = 5  # labels a class of the probe with few labels
LIMIT = 1e15  # representations beyond it have diverged
CHUNK = 2048  # images at a time
BUDGET = 2**25  # entries of the largest temporary of the nearest neighbours: 128 MiB in float32


def bounded(*values: Tensor) -> bool:
    """Whether all entries are numbers, and none so large that what made them has diverged."""
    return all(bool((x.abs() < LIMIT).all()) for x in values)


def effective_rank(matrix: Tensor) -> Tensor:
    """(sum of the eigenvalues)^2 / sum of their squares: how many directions are in use, of equal weight each.

    1 for z z^T, H for the identity, 0 for the zero matrix. Of a matrix with noise the symmetric part is taken.
    Shapes: ``matrix`` [..., H, H]; result [...].
    """
    matrix = 0.5 * matrix + 0.5 * matrix.mT
    largest = matrix.detach().abs().amax((-2, -1), keepdim=True)
    matrix = matrix / torch.where(largest > 0, largest, 1.0)  # or the squares of small entries would vanish
    # its largest entry is now 1, so the clamp only meets the zero matrix
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1).square() / matrix.square().sum((-2, -1)).clamp(min=1.0)


# --- labels


def few_labels(labels: Tensor, per_class: int, seed: int) -> Tensor:
    """The rows of ``per_class`` random samples of each class present, for a probe with few labels.

    Shapes: ``labels`` [N] integers -> [C * per_class] int64, ascending, on the labels' device.
    Raises: TypeError, ValueError (a class with fewer samples).
    """
    values = arguments.tensor("labels", labels, ndim=1, kind="integer").cpu().numpy()
    present, counts = np.unique(values, return_counts=True)
    arguments.integer("per_class", per_class, 1, int(counts.min(initial=len(values))))
    rng = stream(seed, "few labels")
    rows = [rng.choice(np.flatnonzero(values == c), per_class, replace=False) for c in present]
    return torch.from_numpy(np.sort(np.concatenate(rows))).to(labels.device)


def fewest(y: Tensor) -> int:
    """How many samples the smallest class present has."""
    counts = torch.bincount(y)
    return int(counts[counts > 0].min())


def few_rows(y: Tensor, count: int) -> Tensor:
    """Rows evenly over the classes, ascending, the same for every seed: of each class as many.

    At most ``count``, and of a class no more than the smallest has; all where ``count`` is no fewer, or 0.
    Raises: ValueError (too few for the probe with few labels).
    """
    if not 0 < count < len(y):
        return torch.arange(len(y))
    per_class = count // int(y.max() + 1)
    if per_class < FEW:
        least = FEW * int(y.max() + 1)
        raise arguments.wrong(ValueError, "judged_samples", count, f"0 (all) or at least {least}, {FEW} of each class")
    return few_labels(y, min(per_class, fewest(y)), seed=1)


# --- nearest neighbours


@torch.no_grad()
def knn_predict(
    train_h: Tensor, train_y: Tensor, test_h: Tensor, k: int = 20, num_classes: int | None = None,
    weights: str = "uniform",
) -> Tensor:  # fmt: skip
    """The class that the k nearest training samples by cosine vote for (a zero vector has cosine 0 with all).

    ``weights`` of a neighbour: "uniform", or "softmax": exp(cos / 0.1). Ties: among equally near training samples the
    first rows are the nearer ones, among classes with equal votes the smallest number wins.
    Shapes: ``train_h`` [N, D], ``train_y`` [N] integers, ``test_h`` [n, D] -> [n] int64.
    Raises: TypeError, ValueError (NaN features, k > N, negative labels, unknown words).
    """
    train_h, train_y = _labelled(train_h, train_y)
    arguments.tensor("test_h", test_h, shape=(None, train_h.shape[1]), kind="float")
    k = arguments.integer("k", k, 1, len(train_h))
    arguments.one_of("weights", weights, ("uniform", "softmax"))
    least = int(train_y.max()) + 1
    classes = least if num_classes is None else arguments.integer("num_classes", num_classes, least)
    train, test = (unit(h.to(torch.promote_types(h.dtype, torch.float32))) for h in (train_h, test_h))
    near = _nearest(train, test, k)
    votes_of, answers = max(1, BUDGET // (k * (train.shape[1] + classes))), []
    for queries, columns in zip(test.split(votes_of), near.split(votes_of), strict=True):
        votes = one_hot(train_y[columns], classes).to(train.dtype)  # [B, k, C]
        if weights == "softmax":
            distance = _distances(queries, train[columns])
            votes = votes * torch.exp((distance.amin(1, keepdim=True) - distance) / 0.1)[..., None]
        answers.append(votes.sum(1).argmax(1))
    return torch.cat(answers)


def unit(h: Tensor) -> Tensor:
    """h / |h| along the last axis, 0 for zero vectors; tiny and huge ones have a direction, too. [..., D]."""
    exponent = torch.frexp(h.abs().amax(-1, keepdim=True)).exponent  # a power of two changes no digit; in two steps, as
    # one of the smallest numbers has an inverse beyond the largest
    return normalize(torch.ldexp(torch.ldexp(h, -(exponent // 2)), exponent // 2 - exponent), dim=-1)


def _nearest(train: Tensor, test: Tensor, k: int) -> Tensor:
    """[n, k] rows of the k nearest training samples, in any order; among equals the first rows."""
    if k == len(train):
        return torch.arange(k, device=train.device).expand(len(test), k)
    near = []
    for queries in test.split(max(1, BUDGET // len(train))):
        order = -2 * queries @ train.T  # ranks as the distance does
        first = order.topk(k + 1, dim=1, largest=False)
        rows = first.indices[:, :k]
        # topk promises nothing about equal values: where the k-th and the next are equal, choose again by row number
        tied = first.values[:, k - 1] == first.values[:, k]
        rows[tied] = _first_nearest(order[tied], k)
        near.append(rows)
    return torch.cat(near)


def _first_nearest(order: Tensor, k: int) -> Tensor:
    """[B, k] columns of the k smallest entries of each row; among equals the first columns."""
    limit = order.topk(k, dim=1, largest=False).values[:, -1:]
    inside, edge = order < limit, order == limit
    chosen = inside | (edge & (edge.cumsum(1, dtype=torch.int32) <= k - inside.sum(1, keepdim=True)))
    keys = torch.arange(order.shape[1], 0, -1, device=order.device, dtype=torch.int32)
    return (chosen * keys).topk(k, dim=1).indices  # distinct keys, larger for earlier columns


def _distances(queries: Tensor, neighbours: Tensor) -> Tensor:
    """[B, k] of 1 - cos, by differences: the product loses digits, and the exact 0, near a sample."""
    # |a - b|^2 = |a|^2 + |b|^2 - 2cos, where both squares are 1, or 0 for a zero vector (cos = 0)
    apart = (queries[:, None] - neighbours).square().sum(2) / 2
    zero = (queries == 0).all(1)[:, None] | (neighbours == 0).all(2)
    return torch.where(zero, 1.0, apart)


# --- linear probes


@dataclass(frozen=True, eq=False)
class Probe:
    """A linear classifier on frozen features, and how well its training went.

    Shapes: ``weights`` [C, D] and ``bias`` [C], for features as given (a standardisation is folded in); ``classes`` [C]
    the labels they stand for.
    ``loss``: the minimised objective. ``steps``: of the optimiser. ``gradient_norm``: the objective's largest partial
    derivative at the end, in the centred and scaled features in which it was minimised (NaN: not asked for).
    """

    weights: Tensor
    bias: Tensor
    classes: Tensor
    loss: float
    steps: int
    gradient_norm: float = math.nan

    def scores(self, h: Tensor) -> Tensor:
        """[N, C] logarithms of odds, in the dtype of the weights, for features [N, D]."""
        return linear(h.to(self.weights.dtype), self.weights, self.bias)

    def predict(self, h: Tensor) -> Tensor:
        """[N] the most probable label, for features [N, D]."""
        return self.classes[self.scores(h).argmax(1)]

    def accuracy(self, h: Tensor, y: Tensor) -> float:
        """The share of right predictions, in [0, 1]; a label the probe never saw counts as wrong."""
        return float((self.predict(h) == y).double().mean())


def linear_probe(
    train_h: Tensor, train_y: Tensor, l2: float | None = None, standardise: bool = False, max_steps: int = 10_000,
    tolerance: float = 1e-10,
) -> Probe:  # fmt: skip
    """Multinomial logistic regression on frozen features, minimised in float64: L-BFGS, then Newton.

    Minimises mean_i -log softmax(W h_i + b)[y_i] + l2/2 * |W|^2 (the bias is free) over the classes
    present. This is scikit-learn's LogisticRegression(C = 1 / (N * l2)) for three classes or more; for two,
    where scikit-learn has one weight vector, its C = 2 / (N * l2). ``l2=None``: 1/N, scikit-learn's C = 1.
    ``standardise``: the penalty applies to features with mean 0 and variance 1 on the training set (a
    constant feature is only centred). ``tolerance``: the largest partial derivative that counts as none; not reached
    after ``max_steps``: a RuntimeWarning.
    Shapes: ``train_h`` [N, D] floating point, ``train_y`` [N] integers of at least 0.
    Raises: TypeError, ValueError (NaN features, fewer than two classes, l2 not above 0: without a penalty
    separable data have no minimum).
    """
    train_h, train_y = _labelled(train_h, train_y)
    l2 = 1 / len(train_y) if l2 is None else arguments.real("l2", l2, above=0.0)
    classes, y = train_y.unique(return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"train_y: got the single class {int(classes[0])}; allowed are two classes or more")
    h = train_h.detach().double()
    mean = h.mean(0)
    h = h - mean  # the bias is free, so centring changes the bias only
    spread = h.square().mean(0).sqrt()
    scale = torch.where(spread > 1e-12 * mean.abs(), spread, 1.0) if standardise else 1.0
    h = h / scale
    # one common factor r changes nothing either, with the penalty divided by r^2: it makes steps well sized, and
    # with r^2 >= l2 no direction is much more curved than the others
    r = h.square().mean().clamp_min(l2).sqrt()
    if not bool(r.isfinite()):
        raise ValueError("train_h: got features whose squares overflow float64; allowed are smaller ones")
    weights, bias, report = _minimise(h / r, y, len(classes), l2 / r**2, max_steps, tolerance)
    if report["gradient_norm"] > tolerance:
        text = f"gradient {report['gradient_norm']:.1e} above {tolerance:.1e} after {report['steps']} steps"
        warnings.warn(f"linear_probe: {text}", RuntimeWarning, stacklevel=2)
    weights = weights / (r * scale)
    return Probe(weights, bias - weights @ mean, classes, **report)


def _labelled(h: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Features [N, D] and their labels [N] as int64, if they fit each other."""
    arguments.tensor("train_h", h, ndim=2, kind="float")
    arguments.tensor("train_y", y, shape=(len(h),), kind="integer")
    if h.numel() == 0 or int(y.min()) < 0:
        raise arguments.wrong(ValueError, "train_h and train_y", (h.shape, y), "[N, D], not empty, labels from 0 on")
    return h, y.long()


def _minimise(h: Tensor, y: Tensor, num_classes: int, l2: Tensor, max_steps: int, tolerance: float):
    """Weights [C, D], bias [C] and the report of the minimisation."""
    h = torch.cat([h, h.new_ones(len(h), 1)], 1)  # the bias is the last column, [N, D+1]
    penalty = torch.full_like(h[0], 1.0) * l2
    penalty[-1] = 0.0
    v, steps = _descend(h, y, h.new_zeros(num_classes, h.shape[1]), penalty, max_steps, max(tolerance, 1e-6))
    target = one_hot(y, num_classes).to(h.dtype)
    v, used = _finish(h, target, v, penalty, max_steps - steps, tolerance)
    steepest = float(_gradient(h, target, v, penalty)[0].abs().max())
    loss = float(cross_entropy(h @ v.T, y) + (penalty * v.square()).sum() / 2)
    return v[:, :-1], v[:, -1], {"loss": loss, "gradient_norm": steepest, "steps": steps + used}


def _descend(h: Tensor, y: Tensor, v: Tensor, penalty: Tensor, max_steps: int, tolerance: float) -> tuple[Tensor, int]:
    """L-BFGS from ``v`` [C, D+1]. Its line search compares losses, so rounding stops it at gradients near 1e-8."""
    v.requires_grad_()
    optimiser = torch.optim.LBFGS(
        [v], max_iter=max_steps, max_eval=5 * max_steps, tolerance_grad=tolerance, tolerance_change=0.0,
        history_size=20, line_search_fn="strong_wolfe",
    )  # fmt: skip

    def objective() -> Tensor:
        interrupts.point()
        optimiser.zero_grad()
        loss = cross_entropy(h @ v.T, y) + (penalty * v.square()).sum() / 2
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

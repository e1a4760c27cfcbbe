"""Judging what was learned: accuracy, F1, nearest neighbours, a linear probe, the spread of a representation.

Everything stays on the device of its inputs; one number comes back at the end, not one a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.learning.features import check_classes
from fedbook.learning.neighbours import knn_predict
from fedbook.learning.probe import Probe, few_labels, linear_probe

__all__ = ["Probe", "accuracy", "effective_rank", "f1", "few_labels", "knn_predict", "linear_probe", "second_moment"]


@torch.no_grad()
def accuracy(predict: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, batch: int = 2048) -> float:
    """The share of samples that ``predict`` gets right, in [0, 1].

    Shapes: ``x`` [N, ...]; ``y`` [N] integers; ``predict`` takes [B, ...] and returns scores [B, C], of
    which the largest counts (the first among equals), or class numbers [B].
    Raises: TypeError, ValueError (labels outside the scores' classes, NaN scores, wrong shapes).
    """
    arguments.tensor("x", x, finite=False)
    arguments.tensor("y", y, ndim=1, kind="integer")
    batch = arguments.integer("batch", batch, 1)
    if x.ndim == 0 or len(x) == 0 or len(x) != len(y):
        raise ValueError(f"x and y: got shapes {tuple(x.shape)} and {tuple(y.shape)}; allowed is the same N above 0")
    hits = torch.zeros((), dtype=torch.long, device=y.device)
    nan = torch.zeros((), dtype=torch.bool, device=y.device)
    num_classes = None
    for start in range(0, len(x), batch):
        part = y[start : start + batch]
        answer = predict(x[start : start + batch])
        if answer.shape[:1] != part.shape or answer.ndim > 2 or (answer.ndim == 1 and answer.is_floating_point()):
            raise arguments.wrong(
                ValueError, "predict", answer, f"scores [{len(part)}, C] or whole numbers [{len(part)}]"
            )
        if answer.ndim == 2:
            nan |= answer.isnan().any()
            num_classes, answer = answer.shape[1], answer.argmax(1)
        hits += (answer == part).sum()
    if bool(nan):
        raise ValueError("predict: returned NaN scores; allowed are numbers")
    check_classes("y", y, num_classes)
    return int(hits) / len(y)


def f1(predicted: Tensor, truth: Tensor) -> Tensor:
    """The harmonic mean of precision and recall of class 1, in [0, 1]: 2 TP / (2 TP + FP + FN).

    TP, FP, FN: true positives, false positives, false negatives. Without any positive, predicted or true, the quotient
    is 0 / 0, and 0 by convention (scikit-learn's default too).
    Shapes: ``predicted`` [..., N], ``truth`` of the same shape or of its last axes, at least [N]; booleans or the
    integers 0 and 1 -> [...] float64.
    Raises: TypeError, ValueError (another class, shapes that do not fit, no sample).
    Source: van Rijsbergen, Information Retrieval (1979), chapter 7: 1 - E with equal weights.
    """
    for name, x in (("predicted", predicted), ("truth", truth)):
        if arguments.tensor(name, x).dtype.is_floating_point or x.dtype.is_complex:
            raise arguments.wrong(TypeError, name, x, "booleans or integers 0 and 1")
        if bool(((x != 0) & (x != 1)).any()):
            raise ValueError(f"{name}: got classes from {int(x.min())} to {int(x.max())}; allowed are 0 and 1")
    if truth.ndim == 0 or truth.numel() == 0 or predicted.shape[max(predicted.ndim - truth.ndim, 0) :] != truth.shape:
        shapes = f"{tuple(predicted.shape)} and {tuple(truth.shape)}"
        raise ValueError(f"predicted and truth: got shapes {shapes}; allowed is [..., N], N above 0, and its last axes")
    predicted, truth = predicted.bool(), truth.bool()
    hits = (predicted & truth).sum(-1).double()
    positives = predicted.sum(-1) + truth.sum(-1)  # 2 TP + FP + FN
    return 2 * hits / positives.clamp(min=1)


def second_moment(features: Tensor, centred: bool = False) -> Tensor:
    """The mean of h h^T, or with ``centred`` the covariance (divisor N).

    Shapes: ``features`` [..., N, D] -> [..., D, D].
    Raises: TypeError, ValueError (NaN features, no sample).
    """
    arguments.tensor("features", features, kind="float")
    if features.ndim < 2 or features.numel() == 0:
        raise arguments.wrong(ValueError, "features", features, "[..., N, D], none of them 0")
    if arguments.flag("centred", centred):
        features = features - features.mean(-2, keepdim=True)
    return features.mT @ features / features.shape[-2]


def effective_rank(matrix: Tensor, kind: str = "participation") -> Tensor:
    """How many directions a positive semidefinite matrix really uses: from 1 to D.

    For eigenvalues l: ``participation`` (sum l)^2 / sum l^2; ``entropy`` exp(-sum p log p), p = l / sum l.
    Both are D if all are equal and 1 if there is one; participation is never the larger.
    Of features: ``effective_rank(second_moment(h))``.
    Shapes: ``matrix`` [..., D, D] symmetric -> [...].
    Raises: TypeError, ValueError (not symmetric, an eigenvalue below 0, the zero matrix).
    Source: Roy and Vetterli 2007 for ``entropy``, there with singular values.
    """
    arguments.tensor("matrix", matrix, kind="float")
    arguments.one_of("kind", kind, ("participation", "entropy"))
    allowed = "[..., D, D], symmetric and positive semidefinite, not zero"
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2] or matrix.numel() == 0:
        raise arguments.wrong(ValueError, "matrix", matrix, allowed)
    slack = math.sqrt(torch.finfo(matrix.dtype).eps)
    size = matrix.abs().amax((-2, -1))
    if bool(((matrix - matrix.mT).abs().amax((-2, -1)) > slack * size).any()) or bool((size == 0).any()):
        raise ValueError(f"matrix: got one that is zero or not symmetric; allowed is {allowed}")
    values = torch.linalg.eigvalsh(matrix / size[..., None, None])
    if bool((values[..., 0] < -slack * matrix.shape[-1]).any()):
        raise ValueError(f"matrix: got an eigenvalue below 0; allowed is {allowed}")
    p = values.clamp_min(0)
    p = p / p.sum(-1, keepdim=True)
    return 1 / p.square().sum(-1) if kind == "participation" else torch.exp(-torch.special.xlogy(p, p).sum(-1))

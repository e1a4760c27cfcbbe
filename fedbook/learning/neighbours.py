"""Classification by the nearest neighbours in feature space, in chunks on the device."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.learning.features import check_features, check_same_features

BUDGET = 2**25  # entries of the largest temporary: 128 MiB in float32


@torch.no_grad()
def knn_predict(
    train_h: Tensor,
    train_y: Tensor,
    test_h: Tensor,
    k: int = 20,
    num_classes: int | None = None,
    weights: str = "uniform",
    metric: str = "cosine",
    temperature: float = 0.1,
    chunk: int | None = None,
) -> Tensor:
    """The class that the k nearest training samples vote for.

    ``metric``: ``euclidean`` distance or ``cosine`` (1 - cos, with cos = 0 for a zero vector).
    ``weights`` of a neighbour at distance d: ``uniform`` 1; ``distance`` 1/d, and if some neighbours lie
    at d = 0 only those vote; ``softmax`` exp(-d / temperature), for cosine the same vote as
    exp(cos / temperature). ``temperature`` is read only there.
    Ties: among training samples at equal distance the first rows are the nearer ones; among classes with
    equal votes the smallest number wins. Away from ties the answer is scikit-learn's.
    ``chunk`` test rows are done at a time; by default as many as keep each of a handful of temporaries near
    128 MiB in float32. It changes memory, and the answer at most where rounding breaks a tie.
    Shapes: ``train_h`` [N, D], ``train_y`` [N] integers, ``test_h`` [n, D] -> [n] int64.
    Raises: TypeError, ValueError (NaN features, k > N, labels outside 0 to C-1, unknown words).
    """
    train_y, num_classes = check_features(train_h, train_y, num_classes)
    check_same_features(train_h, test_h)
    k = arguments.integer("k", k, 1, len(train_h))
    arguments.one_of("weights", weights, ("uniform", "distance", "softmax"))
    arguments.one_of("metric", metric, ("cosine", "euclidean"))
    temperature = arguments.real("temperature", temperature, above=0.0)
    train, test = _wide("train_h", train_h), _wide("test_h", test_h)
    per_row = len(train_h) + k * (train_h.shape[1] + num_classes)
    chunk = max(1, BUDGET // per_row) if chunk is None else arguments.integer("chunk", chunk, 1)
    if metric == "cosine":
        train, test = (torch.nn.functional.normalize(h, dim=1) for h in (train, test))
    near = _neighbours(train, test, k, metric, chunk)
    answers = []
    for queries, columns in zip(test.split(chunk), near.split(chunk), strict=True):
        votes = torch.nn.functional.one_hot(train_y[columns], num_classes).to(train.dtype)  # [B, k, C]
        if weights != "uniform":
            distance = _distances(queries, train[columns], metric)
            votes = votes * _vote_weights(distance, weights, temperature)[..., None]
        answers.append(votes.sum(1).argmax(1))
    return torch.cat(answers)


def _neighbours(train: Tensor, test: Tensor, k: int, metric: str, chunk: int) -> Tensor:
    """[n, k] rows of the k nearest training samples, in any order; among equals the first rows."""
    squares = train.square().sum(1) if metric == "euclidean" else train.new_zeros(len(train))

    def order(queries: Tensor) -> Tensor:
        return squares - 2 * queries @ train.T  # ranks as the distance does: the query's own square is left out

    if k == len(train):
        return torch.arange(k, device=train.device).expand(len(test), k)
    found = [order(queries).topk(k + 1, dim=1, largest=False) for queries in test.split(chunk)]
    near = torch.cat([f.indices[:, :k] for f in found])
    # topk promises nothing about equal values: where the k-th and the next are equal, choose again by row number
    tied = torch.cat([f.values[:, k - 1] == f.values[:, k] for f in found]).nonzero()[:, 0]
    for rows in tied.split(chunk) if len(tied) else ():
        near[rows] = _first_nearest(order(test[rows]), k)
    return near


def _first_nearest(order: Tensor, k: int) -> Tensor:
    """[B, k] columns of the k smallest entries of each row; among equals the first columns."""
    limit = order.topk(k, dim=1, largest=False).values[:, -1:]
    inside, edge = order < limit, order == limit
    chosen = inside | (edge & (edge.cumsum(1, dtype=torch.int32) <= k - inside.sum(1, keepdim=True)))
    keys = torch.arange(order.shape[1], 0, -1, device=order.device, dtype=torch.int32)
    return (chosen * keys).topk(k, dim=1).indices  # distinct keys, larger for earlier columns


def _distances(queries: Tensor, neighbours: Tensor, metric: str) -> Tensor:
    """[B, k] distances, by differences: the expanded square loses digits, and the exact 0, near a sample."""
    gap = (queries[:, None] - neighbours).square().sum(2)
    if metric == "euclidean":
        return gap.sqrt()
    # |a - b|^2 = |a|^2 + |b|^2 - 2cos, where both squares are 1, or 0 for a zero vector (cos = 0)
    zero = (queries == 0).all(1)[:, None] | (neighbours == 0).all(2)
    return torch.where(zero, 1.0, gap / 2)


def _vote_weights(distance: Tensor, weights: str, temperature: float) -> Tensor:
    if weights == "softmax":
        return torch.exp((distance.amin(1, keepdim=True) - distance) / temperature)
    here = distance == 0
    return torch.where(here.any(1, keepdim=True), here.to(distance.dtype), 1 / distance)


def _wide(name: str, h: Tensor) -> Tensor:
    """At least float32, and small enough that squared distances do not overflow."""
    h = h.detach().to(torch.promote_types(h.dtype, torch.float32))
    if not bool((h.square().sum(1) < torch.finfo(h.dtype).max / 8).all()):
        raise ValueError(f"{name}: got features whose squares overflow {h.dtype}; allowed are smaller ones")
    return h

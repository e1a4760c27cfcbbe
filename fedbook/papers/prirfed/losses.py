"""Losses of one record on a manifold: values, Riemannian gradients, and the mean of clipped gradients.

Everything is batched: a point for each of R rows (agents, repetitions), n records a row. A loss with a closed form
for the length of a record's gradient never holds a gradient for each record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.func import grad, vmap

from fedbook.federation.tree import per_row
from fedbook.geometry import Sphere, within_range
from fedbook.geometry.manifold import Manifold

Records = Mapping[str, Tensor]  # name -> [R, n, ...]


class RecordLoss:
    """A loss f(x, z) of a point and one record, by its value alone; the gradients come from automatic differentiation.

    ``value(x, record)``: x [*point] and one record (name -> [...]) to a number. The closed forms below replace what
    this class derives. Shapes: ``x`` [..., *point], records [..., n, ...], ``weights`` [..., n].
    Memory of :meth:`clipped_mean` here: a gradient for each record.
    """

    broadcasts = False  # whether records [n, ...] may stand for [..., n, ...]

    def __init__(self, manifold: Manifold, value: Callable[[Tensor, Records], Tensor] | None = None):
        self.manifold, self.value = manifold, value

    def values(self, x: Tensor, records: Records) -> Tensor:
        """f of every record, [..., n]."""
        flat, lead, n = self._flat(x, records)
        return vmap(vmap(self.value, in_dims=(None, 0)))(*flat).view(*lead, n)

    def gradients(self, x: Tensor, records: Records) -> Tensor:
        """The Riemannian gradient of every record, [..., n, *point]."""
        (points, rows), lead, n = self._flat(x, records)
        euclidean = vmap(vmap(grad(self.value), in_dims=(None, 0)))(points, rows)
        return self.manifold.gradient(points.unsqueeze(1), euclidean).view(*lead, n, *points.shape[1:])

    def clipped_mean(self, x: Tensor, records: Records, weights: Tensor, bound: float) -> Tensor:
        """sum_j w_j clip(grad f_j(x)), each gradient shortened to ``bound`` in the metric at x: [..., *point].

        A record whose gradient is not finite counts 0, which is in the ball like any other: a run that dies of it
        would tell that it is there. An infinite bound clips nothing. Source: PriRFed, Algorithm 2, line 4.
        """
        g = self.gradients(x, records)
        factor = clip_factor(self.manifold.norm(self._beside(x), g), bound)
        return self._weighted(weights, factor, g)

    def require_records(self, records: Records) -> None:
        """Refuses records with which a gradient cannot be computed at every point in range. Raises: ValueError.

        What may be a record is fixed beforehand and known to all: a run that stopped at an odd one would tell of it.
        """

    def _weighted(self, weights: Tensor, factor: Tensor, vectors: Tensor) -> Tensor:
        """sum_j w_j c_j v_j, where c_j = 0 also for a v_j that is not finite, whatever its weight."""
        w = torch.where(factor == 0, 0.0, weights * factor)
        vectors = torch.where(per_row(factor, vectors) == 0, 0.0, vectors)
        return (per_row(w, vectors) * vectors).sum(w.ndim - 1)

    def _beside(self, x: Tensor) -> Tensor:
        """The points with an axis for the records: [..., 1, *point]."""
        return x.unsqueeze(-1 - self.manifold.point_ndim)

    def _flat(self, x: Tensor, records: Records) -> tuple[tuple[Tensor, Records], tuple[int, ...], int]:
        lead = x.shape[: x.ndim - self.manifold.point_ndim]
        n = next(iter(records.values())).shape[len(lead)]
        rows = {name: z.expand(*lead, n, *z.shape[len(lead) + 1 :]).reshape(-1, n, *z.shape[len(lead) + 1 :])
                for name, z in records.items()}  # fmt: skip
        return (x.reshape(-1, *x.shape[len(lead) :]), rows), lead, n


def usable(name: str, manifold: Manifold, points: Tensor) -> None:
    """Refuses what is no point, or one that float64 cannot work with. Raises: ValueError."""
    ok, reason = manifold.check_point(points)
    if ok and manifold.curvature[0] < 0 and not bool(within_range(manifold, points).all()):
        ok, reason = False, "one that float64 cannot work with (see within_range)"
    if not ok:
        raise ValueError(f"{name}: got {reason}; allowed are points of the {manifold.name} within range")


def clip_factor(length: Tensor, bound: float) -> Tensor:
    """min(1, bound / length); 1 where the length is 0; with a finite bound 0 where the length is not finite."""
    factor = (bound / length).clamp(max=1.0)
    return factor if math.isinf(bound) else torch.where(length.isfinite(), factor, 0.0)


class Eigenvector(RecordLoss):
    """f(x, z) = -(z.x)^2 on the sphere: the leading eigenvector of the records' second moments.

    Records: ``z`` [..., n, D] and ``s`` [..., n], their squared lengths (known beforehand, so they are read once
    less). Source: PriRFed, equation (6.1).
    """

    broadcasts = True

    def __init__(self):
        super().__init__(Sphere())

    def require_records(self, records: Records) -> None:
        length = records["z"].square().sum(-1)
        same = (records["s"] - length).abs() <= 1e-6 * length  # False where a record is not finite
        if not bool(same.all()):
            raise ValueError('records: got "s" that are not the squared lengths of finite "z"; allowed are these')

    def values(self, x: Tensor, records: Records) -> Tensor:
        return -torch.einsum("...nd,...d->...n", records["z"], x).square()

    def gradients(self, x: Tensor, records: Records) -> Tensor:
        z = records["z"]
        a = torch.einsum("...nd,...d->...n", z, x)[..., None]
        return -2 * a * (z - a * x.unsqueeze(-2))

    def clipped_mean(self, x: Tensor, records: Records, weights: Tensor, bound: float) -> Tensor:
        """Two products of a matrix and a vector: the gradient's length is 2 |a| sqrt(|z|^2 - a^2) with a = z.x."""
        z = records["z"]
        a = (z @ x.unsqueeze(-1)).squeeze(-1)
        w = weights * a
        if not math.isinf(bound):
            across = (records["s"] - a.square()).clamp(min=0)
            lost = 4 * z.shape[-1] * torch.finfo(z.dtype).eps * records["s"]  # at most, in rounding
            across = torch.where(across < 1e6 * lost, across + lost, across)
            factor = clip_factor(2 * a.abs() * across.sqrt(), bound)
            w, a = (torch.where(factor == 0, 0.0, one) for one in (w * factor, a))
        pulled = (w.unsqueeze(-2) @ z).squeeze(-2)
        return 2 * ((w * a).sum(-1, keepdim=True) * x - pulled)


class SquaredDistance(RecordLoss):
    """f(x, y) = a dist^2(x, y): the Frechet mean (a = 1) and structured prediction (weights a, of either sign).

    Records: ``y`` [..., n, *point] and, if they have one, a weight ``a`` [..., n].
    Source: PriRFed, equations (6.2) and (6.3).
    """

    broadcasts = True

    def require_records(self, records: Records) -> None:
        usable("records", self.manifold, records["y"])

    def values(self, x: Tensor, records: Records) -> Tensor:
        d = self.manifold.squared_dist(self._beside(x), records["y"])
        return d * records["a"] if "a" in records else d

    def gradients(self, x: Tensor, records: Records) -> Tensor:
        log = self.manifold.log(self._beside(x), records["y"], check=False)
        if "a" not in records:
            return -2 * log
        return -2 * records["a"].view(*records["a"].shape, *[1] * self.manifold.point_ndim) * log

    def clipped_mean(self, x: Tensor, records: Records, weights: Tensor, bound: float) -> Tensor:
        """The gradient's length is 2 |a| dist(x, y), that of the logarithm."""
        log = self.manifold.log(self._beside(x), records["y"], check=False)
        a = 2 * records["a"] if "a" in records else 2.0
        factor = torch.ones_like(log[(..., *[0] * self.manifold.point_ndim)])
        if not math.isinf(bound):
            length = self.manifold.norm(self._beside(x), log)
            factor = clip_factor(length * (a.abs() if isinstance(a, Tensor) else a), bound)
        return self._weighted(-weights * a, factor, log)

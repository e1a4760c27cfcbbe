"""How far out float64 can still compute: on SPD and the hyperboloid noise carries points away."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbook.geometry.manifold import Manifold


def stepped(manifold: Manifold, x: Tensor, u: Tensor) -> Tensor:
    """Exp_x(u), or x where that lies beyond what float64 can work with: noise on SPD and the hyperboloid runs away.

    Decided by the noisy step alone, so it costs no privacy. Shapes: ``x``, ``u`` [R, *point].
    """
    new = manifold.exp(x, u)
    if manifold.curvature[0] >= 0:
        return new
    return torch.where(within_range(manifold, new).view(-1, *[1] * manifold.point_ndim), new, x)


def within_range(manifold: Manifold, x: Tensor) -> Tensor:
    """[...] whether float64 can work at the points x [..., *point], also with another such point.

    SPD: positive definite, with a condition below 1e7 (seen from each other, 1e14). Hyperboloid: a time coordinate
    below 1e7, about 17 from the origin.
    """
    finite = x.isfinite().flatten(-manifold.point_ndim).all(-1)
    if manifold.point_ndim == 2:
        eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
        values = torch.linalg.eigvalsh(torch.where(finite[..., None, None], x, eye))
        return finite & (values[..., 0] > 1e-7 * values[..., -1])
    return finite & (x[..., 0].abs() < 1e7)

"""The spectral contrastive loss: pull the views of a sample together, spread all samples over all directions.

A pair of different samples enters only through one H x H matrix R, the mean of z z^T. So a client needs the others'
matrices, not their samples, to be contrasted with them. Views lie as z [B, V, H], a row a sample; in training V is
even and view v is paired with view v + V/2. ``weight`` [B] is 1 for a sample and 0 for a row that only fills up the
batch, on which nothing depends; a batch of such rows alone gives 0. What has a weight works under vmap and looks at
no value. A matrix is only as exact as the dtype of z: no float16 or bfloat16, where it is to be shared.

Source: FedSC (Jing, Yu, Zhang, Zhang 2024); HaoChen, Wei, Gaidon, Ma 2021, whose loss is twice this one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedbook import arguments


class Parts(NamedTuple):
    """The three terms of a client's loss; ``total`` is their sum. Shapes: scalars."""

    contraction: Tensor  # -Tr R+: views of one sample agree
    intra: Tensor  # alpha/2 |R|^2: the client's own samples spread
    inter: Tensor  # (1 - alpha) Tr(R others): away from the directions that the others use

    @property
    def total(self) -> Tensor:
        """The loss, equation (5). Shapes: a scalar."""
        return self.contraction + self.intra + self.inter


class Objective(NamedTuple):
    """The global loss of :func:`bank_objective`, how far the mean of the clients' own losses lies above it, and R.

    Shapes: ``loss`` and ``gap`` scalars, ``matrix`` [H, H], ``matrices`` [clients, H, H].
    """

    loss: Tensor
    gap: Tensor
    matrix: Tensor
    matrices: Tensor


def norm_clip(z: Tensor, mu: float) -> Tensor:
    """z min(1, sqrt(mu) / |z|): at most sqrt(mu) long, the direction kept; nothing is made longer.

    Inside of the ball every bit and the gradient stay, also at 0. A clipped vector comes out a few roundings shorter
    than sqrt(mu), so that clipping it again changes nothing. ``mu=math.inf`` gives ``z``.
    Shapes: ``z`` [..., H], and so the result. Source: FedSC, Algorithm 2, NormClip.
    """
    if math.isinf(mu):
        return z
    radius = math.sqrt(mu) * (1 - 4 * torch.finfo(z.dtype).eps)
    most = z.detach().abs().amax(-1, keepdim=True)
    unit = torch.where(most > math.sqrt(torch.finfo(z.dtype).max / z.shape[-1]), most, 1.0)  # or squares would overflow
    square = (z / unit).square().sum(-1, keepdim=True)
    outside = square > mu / unit / unit
    length = torch.where(outside, square, 1.0).sqrt()  # the root has no derivative at 0, so it never meets one
    return z / torch.where(outside, unit, 1.0) * torch.where(outside, radius / length, 1.0)


def correlation(z: Tensor, weight: Tensor | None = None) -> Tensor:
    """R, the mean of z z^T over samples and views: symmetric, positive semi-definite, its trace the mean of |z|^2.

    Shapes: ``z`` [B, V, H], ``weight`` [B] of 0 and 1; result [H, H].
    Source: FedSC, section 5.2 and Algorithm 2 (sigma = 0).
    """
    rows, count = _rows(z, weight)
    return rows.mT @ rows / count


def spectral_loss(
    z: Tensor, alpha: float | Tensor = 1.0, others: Tensor | None = None, weight: Tensor | None = None
) -> Parts:
    """A client's loss on a batch, -Tr R+ + alpha/2 |R|^2 + (1 - alpha) Tr(R others), in its three terms.

    ``alpha``: the client's share q of the data is the loss of the analysis, 1 is FedAvg's, and the experiments let it
    fall; a number in [0, 1], or a scalar tensor so that every client of a vmap can have its own. ``others``: the mean
    matrix of the other clients; no gradient reaches it and only its symmetric part counts. None: its term is 0.
    |R|^2 comes from the matrix of inner products where the batch has fewer views than H.
    Shapes: ``z`` [B, 2 pairs, H], ``others`` [H, H], ``weight`` [B] of 0 and 1; three scalars. Raises: ValueError.
    Source: FedSC, equations (5), (42) and (80).
    """
    if z.shape[1] % 2:
        raise arguments.wrong(ValueError, "z", z, "[B, 2 pairs, H], views in pairs")
    rows, count = _rows(z, weight)
    first, second = rows.reshape(z.shape).chunk(2, 1)
    contraction = -2 * (first * second).sum() / count
    if len(rows) < z.shape[-1]:
        square = (rows @ rows.mT / count).square().sum()
    else:
        square = (rows.mT @ rows / count).square().sum()
    inter = torch.zeros_like(square)
    if others is not None:
        inter = (1 - alpha) * ((rows @ others.detach()) * rows).sum() / count
    return Parts(contraction, 0.5 * alpha * square, inter)


def bank_objective(z: Tensor, owner: Tensor | None = None, clients: int = 1) -> Objective:
    """The loss that all clients together ought to descend, exactly, where K views of a sample are all there are.

    loss = -mean |m|^2 + |R|^2 / 2, m a sample's mean view (two independent views may be the same one) and
    R = sum_j q_j R_j, q_j the client's share of the samples. gap = sum_j q_j |R_j - R|^2 / 2 is by how much the q-mean
    of the clients' own losses, which FedAvg descends, exceeds it. Differentiable in ``z``.
    Shapes: ``z`` [N, K, H], ``owner`` [N] whole numbers, who of ``clients`` holds the sample (each holds one at least;
    None: one holds all).
    Source: FedSC, equations (1) and (4); the gap is ours.
    """
    if owner is None:
        owner = torch.zeros(len(z), dtype=torch.int64, device=z.device)
    share = torch.bincount(owner, minlength=clients).to(z) / len(z)
    matrices = torch.stack([correlation(z[owner == client]) for client in range(clients)])
    matrix = (share[:, None, None] * matrices).sum(0)
    loss = 0.5 * matrix.square().sum() - z.mean(1).square().sum(-1).mean()
    gap = 0.5 * (share * (matrices - matrix).square().sum((1, 2))).sum()
    return Objective(loss, gap, matrix, matrices)


def _rows(z: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | int]:
    """The views as rows [B V, H], zeros for the rows that fill up, and how many are real (1 for none)."""
    samples, views, width = z.shape
    if weight is None:
        return z.reshape(samples * views, width), max(samples, 1) * views
    z = torch.where(weight[:, None, None] > 0, z, 0.0)  # not a product: that would keep the NaN of a garbage row
    return z.reshape(samples * views, width), weight.sum().to(z.dtype).clamp(min=1) * views

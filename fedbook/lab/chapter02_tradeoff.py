"""A client small enough to train while one looks: its own loss against its alignment with four others.

One layer, z = tanh(x W), on digits; the self-supervised loss with a frozen target; both gradients in closed form.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from fedbook.experiment import plan
from fedbook.papers.description import own_settings
from fedbook.papers.hetero_ssfl import PAPER
from fedbook.papers.hetero_ssfl.cka import cka_gradient, gram, gram_cka, mean_gram
from fedbook.papers.hetero_ssfl.problem import AlignedSettings, aligned_problem
from fedbook.randomness import normal, stream

IMAGES, PRIVATE, STEPS, LR = 30, 40, 50, 0.1
OTHERS_WIDTH = 8
SIGNS = {"+ μ (1 - CKA)": "distance", "+ μ CKA, as printed": "paper"}


class Client(NamedTuple):
    """A small client: z = tanh(x W), trained to predict from one view what a frozen network makes of the other.

    Shapes: ``first``, ``other`` [B, n], two views of its images; ``images`` [L, n], the alignment set.
    """

    first: Tensor
    other: Tensor
    images: Tensor
    number: int

    def drawn(self, width: int) -> tuple[Tensor, Tensor]:
        """W as it starts, and the frozen target's outputs as unit vectors: [n, d], [B, d]."""
        shape = self.first.shape[1], width
        start, target = (normal(shape, stream(self.number, f"{name} of width {width}")) for name in ("W", "target"))
        return start / 8, torch.nn.functional.normalize(self.other @ target, dim=1)


class Path(NamedTuple):
    """Before each step and after the last: own loss l and CKA with the others [STEPS + 1, M]; the last W [M, n, d]."""

    loss: Tensor
    similarity: Tensor
    last: Tensor


def descend(client: Client, width: int, mu: Tensor, others: Tensor, sign: str = "distance") -> Path:
    """``STEPS`` gradient steps on l + mu (1 - CKA), or l + mu CKA ("paper"), for several mu [M] at once.

    l is the mean of 2 - 2 cos(z, target); both gradients are closed forms (D12, D10). A step is ``LR`` / (1 + mu), so
    that a larger mu is another direction and no longer step. Shapes: ``others`` [L, L], their mean kernel.
    """
    pull = {"distance": -1.0, "paper": 1.0}[sign]
    mu = mu[:, None, None]
    start, aims = client.drawn(width)
    w, others, losses, shown = start.expand(len(mu), -1, -1), others.expand(len(mu), -1, -1), [], []
    for step in range(STEPS + 1):
        z, a = torch.tanh(client.first @ w), torch.tanh(client.images @ w)
        length = z.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        cosine = (z / length * aims).sum(-1, keepdim=True)
        losses.append(2 - 2 * cosine.mean((-2, -1)))
        shown.append(a)
        if step < STEPS:
            own = -2 / (length * len(aims)) * (aims - cosine * z / length)
            shared = pull * mu * cka_gradient(a, others)
            slope = client.first.mT @ (own * (1 - z.square())) + client.images.mT @ (shared * (1 - a.square()))
            w = w - LR / (1 + mu) * slope
    return Path(torch.stack(losses), gram_cka(gram(torch.stack(shown)), others), w)


@lru_cache(maxsize=2)
def neighbours(seed: int = 0) -> tuple[Client, Tensor]:
    """Client 1 of five with two digits each, and the mean kernel [L, L] of the four others, each trained alone."""
    changes = {"alignment_samples": IMAGES, "alignment_batch": 0}
    settings = own_settings(AlignedSettings, plan(PAPER, None, "digits", changes=changes, device="cpu").settings())
    problem = aligned_problem("digits", settings, [seed], "cpu", torch.float64)
    images, split, clients = problem.views.plain(problem.alignment).flatten(1), problem.partitions[0], []
    for k in range(settings.clients):
        rows = split.table[k, : min(PRIVATE, int(split.sizes[k]))]
        first, other = problem.views.make_bank(problem.x[rows], 2, f"views of client {k}").flatten(2).unbind(1)
        clients.append(Client(first, other, images, k))
    nothing, alone = torch.zeros(1, dtype=torch.float64), torch.eye(IMAGES, dtype=torch.float64)
    trained = [torch.tanh(images @ descend(c, OTHERS_WIDTH, nothing, alone).last[0]) for c in clients[1:]]
    return clients[0], mean_gram(trained, [1.0] * len(trained))

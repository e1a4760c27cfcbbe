"""Where the words of a hierarchy lie: in the hyperbolic plane by training, in R^3 as Laplacian eigenmap.

The training minimises the loss of Nickel and Kiela over the closure's pairs, with all negatives, by Riemannian Adam on
the hyperboloid. It starts from a drawing of the tree, every subtree in its own sector, because in two dimensions points
cannot pass each other: from random points the same training stops at a mean average precision of about 0.5, from the
drawing it reaches 0.9. So nothing here is random.

How far out the words lie is no matter of taste. For the root to be nearer to a word than its siblings are, n words on a
circle around the root need the radius 2 log(n / pi) at least: 11.3 for the 887 mammals that have nothing below them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedbook.data import Taxonomy
from fedbook.geometry import Hyperboloid


def to_disk(x: Tensor) -> Tensor:
    """Points of the hyperboloid in the Poincare ball. Shapes: ``[..., d + 1]`` to ``[..., d]``.

    Source: PriRFed, section 6.3.
    """
    return x[..., 1:] / (1 + x[..., :1])


def sector_layout(taxonomy: Taxonomy, radius: float) -> Tensor:
    """The tree drawn in the hyperbolic plane: depth as distance from the root, every subtree in its own sector.

    A sector is as wide as its share of the leaves; large subtrees lie in the middle of their parent's sector. Who has
    several directly above him is drawn below the first. Shapes: float64 [n, 3], nobody further out than ``radius``.
    """
    children: dict[int, list[int]] = {}
    drawn = set()
    for child, parent in taxonomy.edges.tolist():
        if child not in drawn:
            drawn.add(child)
            children.setdefault(parent, []).append(child)
    order = [taxonomy.root]
    for node in order:
        order += children.get(node, ())
    leaves: dict[int, int] = {}
    for node in reversed(order):
        leaves[node] = sum(leaves[child] for child in children.get(node, ())) or 1
    sector, depth = {taxonomy.root: (0.0, 2 * math.pi)}, {taxonomy.root: 0}
    for node in order:
        low, width = sector[node]
        below = sorted(children.get(node, ()), key=leaves.__getitem__)
        for child in below[::2] + below[1::2][::-1]:
            share = width * leaves[child] / leaves[node]
            sector[child], depth[child] = (low, share), depth[node] + 1
            low += share
    middle = torch.tensor([sector[i][0] + sector[i][1] / 2 for i in range(len(order))], dtype=torch.float64)
    level = torch.tensor([depth[i] for i in range(len(order))], dtype=torch.float64)
    distance = radius * level / level.max().clamp(min=1)
    return torch.stack([distance.cosh(), distance.sinh() * middle.cos(), distance.sinh() * middle.sin()], 1)


def softmax_loss(x: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over pairs (u, v) of -log(e^-d(u,v) / (e^-d(u,v) + sum_w e^-d(u,w))) and its Riemannian gradient.

    w runs over all words but u that are no ancestor of u. Written without one logarithm or exponential a distance:
    with c = cosh d = -<u, v>, e^-d = 1 / (c + sqrt(c^2 - 1)). Memory: about six matrices [n, n].
    Shapes: ``x`` [n, d + 1] on the hyperboloid, ``pairs`` int64 [P, 2]; loss [], gradient [n, d + 1].
    Source: Nickel and Kiela 2017, equation (5).
    """
    u, v = pairs.T
    cosh = _cosh(x)
    root = (cosh * cosh).sub_(1).sqrt_()
    near = (cosh + root).reciprocal_()  # e^-d
    positive = near[u, v]
    near[u, v] = 0
    near.fill_diagonal_(0)
    rest = near.sum(1)[u]
    share = 1 / (rest + positive) / len(u)
    # The slope by d: rest * share for a pair, -e^-d times the word's shares together for the others; by c, over sinh d.
    pull = near.mul_(-torch.zeros_like(x[:, 0]).index_add_(0, u, share)[:, None])
    pull[u, v] = rest * share
    pull /= root
    # c(u, v) has the Lorentz gradient -v by u and -u by v
    return torch.log1p(rest / positive).mean(), Hyperboloid().project(x, -(pull @ x + pull.T @ x))


def train_embedding(taxonomy: Taxonomy, radius: float = 12.0, steps: int = 400, start: Tensor | None = None) -> Tensor:
    """The words in the hyperbolic plane, so that ancestors are near: ``steps`` of Riemannian Adam on ``softmax_loss``.

    ``radius``: how far from the origin a word may lie (12: the edge 1 - 1.2e-5 of the Poincare disk). The step size
    falls from 0.1 to 0 along a cosine. ``start``: where to begin (None: ``sector_layout``).
    Shapes: float64 [n, 3] on the hyperboloid. Of 1,180 words a step takes about 15 ms.
    Source: Nickel and Kiela 2018, section 3; Becigneul and Ganea 2019 (Adam).
    """
    manifold = Hyperboloid()
    x = _within(sector_layout(taxonomy, radius) if start is None else start.double(), radius)
    m, v = torch.zeros_like(x), torch.zeros_like(x[:, :1])
    for t in range(1, steps + 1):
        _, gradient = softmax_loss(x, taxonomy.pairs)
        m = 0.9 * m + 0.1 * gradient
        v = 0.99 * v + 0.01 * manifold.inner(x, gradient, gradient).clamp(min=0)[:, None]
        size = 0.1 * (1 + math.cos(math.pi * t / steps)) / 2
        step = size * (m / (1 - 0.9**t)) / ((v / (1 - 0.99**t)).sqrt() + 1e-15)
        y = _within(manifold.exp(x, -step), radius)
        x, m = y, manifold.project(y, manifold.transport(x, y, m))
    return x


def laplacian_features(taxonomy: Taxonomy, size: int = 3) -> Tensor:
    """The Laplacian eigenmap of the closure's graph: the first eigenvectors f of L f = lambda D f after the constant.

    The graph joins every word with its ancestors; L = D - A. Scale: f^T D f = n, the number of words. The paper
    does not state its own; with this one the features spread about 0.3, the paper's kernel width. Signs: the entry
    of largest size is positive. The features need the hierarchy alone, so they are as public as that.
    Shapes: float64 [n, size]. Source: Belkin and Niyogi 2003; PriRFed, section 6.3.
    """
    from scipy.linalg import eigh

    count = len(taxonomy.names)
    adjacency = torch.zeros(count, count, dtype=torch.float64)
    adjacency[taxonomy.pairs[:, 0], taxonomy.pairs[:, 1]] = 1
    adjacency += adjacency.T.clone()
    degree = torch.diag(adjacency.sum(1))
    _, vectors = eigh((degree - adjacency).numpy(), degree.numpy(), subset_by_index=[1, size])
    f = torch.from_numpy(vectors) * count**0.5
    return f * f.gather(0, f.abs().argmax(0, keepdim=True)).sign()


def _cosh(x: Tensor) -> Tensor:
    """cosh of all distances [n, n]; a hair above 1 at least, so that the slope stays finite."""
    return (x @ torch.cat([x[:, :1], -x[:, 1:]], 1).T).clamp_(min=1 + 1e-14)


def _within(x: Tensor, radius: float) -> Tensor:
    """The points, those further out than ``radius`` drawn back to it."""
    length = torch.linalg.vector_norm(x[:, 1:], dim=1, keepdim=True)
    space = x[:, 1:] * (math.sinh(radius) / length.clamp(min=1e-300)).clamp(max=1)
    return torch.cat([(1 + space.square().sum(1, keepdim=True)).sqrt(), space], 1)

"""Structured prediction in hyperbolic space: where a word belongs, from the places of words with similar features.

A word w is put at the weighted Frechet mean of the known words' places, with the weights of kernel ridge regression.
Every agent computes the weights of its own words: alpha_i(w) = (K_i + gamma I)^-1 K_{i,w}. All of them depend on all
features of the agent, through the inverse, and on no place. So what differential privacy may protect here are the
places y; the features are public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.data import Taxonomy, wordnet_embedding, wordnet_mammals
from fedbook.data.root import Root
from fedbook.geometry import Hyperboloid
from fedbook.papers.prirfed.embedding import laplacian_features, to_disk
from fedbook.randomness import normal, stream

RULES = ("source", "paper", "printed")
FAR = 1e6  # cosh of 14.5: further out, distances are mostly rounding


@dataclass(frozen=True, eq=False)
class Words:
    """Words with features and places: the data of structured prediction.

    Shapes: ``features`` float64 [n, r]; ``points`` float64 [n, 3], on the hyperboloid; row i belongs to
    ``taxonomy.names[i]``.
    """

    taxonomy: Taxonomy
    features: Tensor = field(repr=False)
    points: Tensor = field(repr=False)


def mammal_words(root: Root = None) -> Words:
    """The 1,180 mammals of WordNet with their Laplacian features and the book's own embedding.

    Raises: DataNotFound, BrokenFile. Source: PriRFed, section 6.3.
    """
    taxonomy = wordnet_mammals(root)
    return Words(taxonomy, laplacian_features(taxonomy), wordnet_embedding(root))


def synthetic_tree() -> Words:
    """A tree that is drawn, not learned: 1,093 nodes, six levels below the root, three children each.

    A node of depth k lies 0.65 k from the origin, at the middle of its sector, moved by up to 15 % of the sector's
    width. Features: the place in the Poincare disk, a zero behind it, all with noise of standard deviation 0.02.
    Names are paths: "0", "0.1", "0.1.2" ...
    """
    rng = stream(0, "synthetic tree")
    names, edges, sectors, depth = ["0"], [], [(0.0, 2 * math.pi)], [0]
    for node in range(364):  # those above the last level, which has 3^6 nodes
        low, width = sectors[node]
        for child in range(3):
            edges.append((len(names), node))
            names.append(f"{names[node]}.{child}")
            sectors.append((low + child * width / 3, width / 3))
            depth.append(depth[node] + 1)
    middle = torch.tensor([low + width / 2 for low, width in sectors], dtype=torch.float64)
    width = torch.tensor([width for _, width in sectors], dtype=torch.float64)
    angle = middle + 0.15 * width * (2 * torch.from_numpy(rng.random(len(names))) - 1)
    distance = 0.65 * torch.tensor(depth, dtype=torch.float64)
    points = torch.stack([distance.cosh(), distance.sinh() * angle.cos(), distance.sinh() * angle.sin()], 1)
    place = to_disk(points)
    features = torch.cat([place, torch.zeros_like(place[:, :1])], 1) + 0.02 * normal((len(names), 3), rng)
    return Words(Taxonomy.from_edges("synthetic_tree", names, edges), features, points)


def deal(words: Words, word: str, agents: int = 9, seed: int = 0) -> Tensor:
    """All words but one, dealt to agents at random, the same number each; what is left over (less than N) is unused.

    Shapes: int64 [N, N_i], indices. Raises: ValueError.
    """
    left_out, count = words.taxonomy.index(word), len(words.taxonomy.names)
    agents = arguments.integer("agents", agents, 1, count - 1)
    order = torch.from_numpy(stream(seed, "words").permutation(count - 1))
    order += order >= left_out
    return order[: (count - 1) // agents * agents].view(agents, -1)


def word_weights(
    words: Words, word: str, records: Tensor, ridge: float = 1e-5, width: float = 0.3, rule: str = "source"
) -> Tensor:
    """The weights alpha_i(w) of each agent's words for predicting ``word``: ``kernel_weights``, checked.

    Shapes: ``records`` int64 [..., n], indices of each agent's words; weights [..., n].
    Raises: ValueError (where an agent's weights do not sum to more than 0: its loss has no minimum).
    """
    query = words.features[words.taxonomy.index(word)]
    return require_minimum("weights", kernel_weights(words.features[records], query, ridge, width, rule))


def kernel_weights(
    features: Tensor, query: Tensor, ridge: float = 1e-5, width: float = 0.3, rule: str = "source"
) -> Tensor:
    """The weights of kernel ridge regression at ``query``: (K + gamma I)^-1 k, K and k of Gaussian kernels.

    ``ridge`` (gamma), ``width`` (nu bar). ``rule="source"``: exp(-|w - w'|^2 / (2 width^2)) and K + n gamma I, the code
    that the paper's experiment follows, and the one that predicts well with the paper's gamma 1e-5. ``"paper"``: K +
    gamma I. ``"printed"``: the latter with exp(-|w - w'|^2 / (2 width)^2), as printed.
    Shapes: ``features`` [..., n, r], ``query`` [r]; weights [..., n], of either sign.
    Raises: ValueError (a ridge lost in rounding). Source: PriRFed, equation (6.3) and below.
    """
    span = 4 * width**2 if rule == "printed" else 2 * width**2
    n = features.shape[-2]
    matrix = (-(features.unsqueeze(-2) - features.unsqueeze(-3)).square().sum(-1) / span).exp()
    near = (-(features - query).square().sum(-1) / span).exp()
    matrix.diagonal(dim1=-2, dim2=-1).add_(ridge * (n if rule == "source" else 1))
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if bool(failed.any()):
        raise ValueError(f"ridge: got {ridge}, lost in rounding; allowed is what makes K + gamma I positive definite")
    return torch.cholesky_solve(near[..., None], factor)[..., 0]


def require_minimum(name: str, weights: Tensor) -> Tensor:
    """``weights`` if each agent's sum to more than 0; else sum_j alpha_j dist^2 has no minimum. Shapes: [..., n].

    Raises: ValueError.
    """
    total = weights.sum(-1)
    if bool((total <= 0).any()):
        few = int((total <= 0).sum())
        text = f"{few} of {total.numel()} agents have weights that sum to {float(total.min()):.3g}"
        raise ValueError(f"{name}: {text}; allowed is a sum above 0 (a larger ridge or width gives one)")
    return weights


def predict(
    points: Tensor, weights: Tensor, start: Tensor | None = None, tolerance: float = 1e-7, iterations: int = 200
) -> tuple[Tensor, float]:
    """A minimum of sum_j w_j dist^2(x, y_j) over all agents' words, and the gradient's length there.

    Newton's method from ``start`` (None: the origin), damped: with weights of either sign the sum is not convex, so
    directions of negative curvature are descended as if it were positive, and a step that does not pay is halved, like
    one that leads further out than 14.5 (a minimum beyond is not reached, and the length shows it). The gradient is
    that of the sum divided by 2 sum_j w_j: sum_j w_j Log_x(y_j) / sum_j w_j. Distances of words 12 from the origin are
    known to about 1e-9, so much smaller tolerances are not reached.
    Shapes: ``points`` [k, d + 1] on the hyperboloid, ``weights`` [k]; minimum [d + 1].
    Raises: ValueError. Source: PriRFed, equation (6.3).
    """
    manifold = Hyperboloid()
    share = require_minimum("weights", weights) / weights.sum()
    x = manifold.origin(points.shape[1]).to(points) if start is None else start

    def at(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """An orthonormal basis, the logarithms' coordinates in it, the value."""
        basis = manifold.basis(x)
        logs = manifold.inner(x, manifold.log(x, points, check=False)[:, None], basis)
        return basis, logs, share @ logs.square().sum(1) / 2

    basis, logs, value = at(x)
    for _ in range(iterations):
        pull = share @ logs
        if float(pull.norm()) <= tolerance:
            break
        # The Hessian of dist^2 / 2: 1 along the geodesic to y, d coth d across it.
        d = logs.norm(dim=1).clamp(min=1e-6)
        across, along = d / d.tanh(), logs / d[:, None]
        hessian = (along.T * (share * (1 - across))) @ along
        curvature, axes = torch.linalg.eigh(hessian + (share @ across) * torch.eye(len(basis)).to(basis))
        step = axes @ (axes.T @ pull / curvature.abs().clamp(min=0.1))
        step = step / step.norm().clamp(min=1)  # not out to where rounding rules
        gain = 1e-4 * (pull @ step)
        hidden = 1e-10 * (share.abs() @ logs.square().sum(1))  # by rounding
        for _ in range(40):
            y = manifold.exp(x, step @ basis)
            new = at(y)
            if new[2] <= value - gain + hidden and float(y[0]) < FAR:
                break
            step, gain = step / 2, gain / 2
        else:
            break
        x, (basis, logs, value) = y, new
    return x, float((share @ logs).norm())

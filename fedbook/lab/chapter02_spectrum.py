"""Chapter 2: CKA by eigenvalues, the ceiling of narrow clients, CKA's gradient and its sign, the bias of small samples.

Both sides of each identity, float64; the definitions written out stand in chapter02_theory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad

from fedbook.lab.chapter02_theory import Sides, centring, representations, weights_of, written_out
from fedbook.papers.hetero_ssfl import cka
from fedbook.randomness import normal, stream


def reference(images: int = 24, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A narrow client's A [L, 3], and the mean kernel [L, L] of two wider ones."""
    first, *others = representations((3, 6, 9), images, seed)
    return first, cka.mean_gram(others, weights_of(2))


# --- D5: what CKA compares


class Spectral(NamedTuple):
    """CKA, and the sum over pairs of principal directions of ``weights`` times ``overlap`` = <u_a, u'_b>^2. Equal.

    Shapes: [], [], [d_1, d_2] twice. The weights are sigma_a^2 sigma'_b^2, over their norms: large variance counts.
    """

    left: Tensor
    right: Tensor
    weights: Tensor
    overlap: Tensor


def spectral_form(seed: int = 0) -> Spectral:
    """CKA as agreement of principal directions, weighted by variance."""
    a, b = representations(seed=seed)[:2]
    u, s, _ = torch.linalg.svd(a - a.mean(0), full_matrices=False)
    v, t, _ = torch.linalg.svd(b - b.mean(0), full_matrices=False)
    weights = torch.outer(s**2, t**2) / ((s**4).sum() * (t**4).sum()).sqrt()
    overlap = (u.T @ v).square()
    return Spectral(cka.linear_cka(a, b), (weights * overlap).sum(), weights, overlap)


# --- D9: the ceiling


class Ceiling(NamedTuple):
    """For each rank d: the formula, the CKA of the reference's own top-d part, and what a descent in A [L, d] reaches.

    Shapes: three [n]; all equal.
    """

    formula: Tensor
    top_part: Tensor
    reached: Tensor


def ceilings(ranks: Sequence[int] = (1, 2, 3, 5), images: int = 24, seed: int = 0) -> Ceiling:
    """How near to the reference a client of width d can come: not to CKA 1."""
    _, mean = reference(images, seed)
    values, vectors = torch.linalg.eigh(cka.centred_gram(mean))
    found = []
    for rank in ranks:
        top = vectors[:, -rank:] * values[-rank:].clamp(min=0).sqrt()
        start = normal((images, rank), stream(seed, "ceiling"))
        found.append((cka.ceiling(mean, rank), written_out(top @ top.T, mean), _best(mean, start)))
    return Ceiling(*(torch.stack(column) for column in zip(*found, strict=True)))


def _best(mean: Tensor, start: Tensor) -> Tensor:
    """CKA where LBFGS on the entries of A ends."""
    a = start.clone().requires_grad_()
    solver = torch.optim.LBFGS([a], max_iter=500, tolerance_grad=1e-10, tolerance_change=0.0, history_size=30,
                               line_search_fn="strong_wolfe")  # fmt: skip

    def closure() -> Tensor:
        solver.zero_grad()
        loss = 1 - cka.gram_cka(cka.gram(a), mean)
        loss.backward()
        return loss

    solver.step(closure)
    return cka.gram_cka(cka.gram(a.detach()), mean)


# --- D10: the gradient, and its sign


def similarity(a: Tensor, mean: Tensor, centre: bool = True) -> Tensor:
    """CKA(A A^T, Kbar) by its definition, for autograd."""
    return written_out(a @ a.T, mean, centre)


def gradient(seed: int = 0) -> Sides:
    """Autograd through the definition, and the closed form 2 (Mhat - c Khat) Atilde / |K|. Equal; [L, d]."""
    a, mean = reference(seed=seed)
    return Sides(grad(similarity)(a, mean), cka.cka_gradient(a, mean))


class Structure(NamedTuple):
    """Of <grad, A>, A^T grad - its transpose, 1^T grad, and grad at Kbar ~ K: relative sizes, 0 where it holds."""

    scale: float
    rotation: float
    shift: float
    at_optimum: float


def gradient_structure(centre: bool = True, seed: int = 0) -> Structure:
    """What invariances say about autograd's gradient; without centring the shift is felt."""
    a, mean = reference(seed=seed)
    slope = grad(partial(similarity, centre=centre))
    g = slope(a, mean)
    moment, size = a.T @ g, g.norm() * a.norm()
    return Structure(
        scale=float(moment.trace().abs() / size),
        rotation=float((moment - moment.T).norm() / size),
        shift=float(g.sum(0).norm() / (g.norm() * len(a) ** 0.5)),
        at_optimum=float(slope(a, 2.5 * a @ a.T).norm() / g.norm()),
    )


class Signs(NamedTuple):
    """CKA before each step and after the last, [steps + 1], down 1 - CKA and down + CKA; the ceiling of that width.

    ``norms`` |A| on the way down 1 - CKA: the gradient is orthogonal to A, so every step makes A longer.
    """

    distance: Tensor
    printed: Tensor
    ceiling: Tensor
    norms: Tensor


def signs(steps: int = 50, lr: float = 5.0, seed: int = 0) -> Signs:
    """Gradient steps on a free matrix A [L, 3] with the loss 1 - CKA, and with + CKA as eq. (2) prints it.

    Source: Hetero-SSFL, eq. (2).
    """
    start, mean = reference(seed=seed)
    paths, norms = [], []
    for sign in (1.0, -1.0):
        a, path, lengths = start - start.mean(0), [], []
        for _ in range(steps + 1):
            path.append(similarity(a, mean))
            lengths.append(a.norm())
            a = a + sign * lr * cka.cka_gradient(a, mean)
        paths.append(torch.stack(path))
        norms.append(torch.stack(lengths))
    return Signs(*paths, cka.ceiling(mean, start.shape[1]), norms[0])


# --- D11: small samples


class Bias(NamedTuple):
    """Mean CKA of unrelated Gaussian A [n, d], B [n, d'], its formula, and the mean debiased CKA; standard errors."""

    biased: float
    error: float
    formula: float
    debiased: float
    debiased_error: float


def unrelated(rows: int, width: int, other: int | None = None, draws: int = 20, seed: int = 0) -> Bias:
    """sqrt(d d' / ((n + d) (n + d'))), d / (n + d) for equal widths: wide clients agree before they learn.

    The formula is the ratio of the exact means: E|Atilde^T Btilde|^2 = (n - 1) d d' and
    E|Atilde^T Atilde|^2 = (n - 1) d (n + d).
    """
    other = width if other is None else other
    rng = stream(seed, "unrelated")
    pairs = [(normal((rows, width), rng), normal((rows, other), rng)) for _ in range(draws)]
    biased = torch.stack([cka.linear_cka(a, b) for a, b in pairs])
    debiased = torch.stack([cka.linear_cka(a, b, unbiased=True) for a, b in pairs])
    formula = (width * other / ((rows + width) * (rows + other))) ** 0.5
    return Bias(*_mean(biased), formula, *_mean(debiased))


def _mean(values: Tensor) -> tuple[float, float]:
    """The mean and its standard error."""
    return float(values.mean()), float(values.std() / len(values) ** 0.5)


def hsic_written_out(k: Tensor, m: Tensor, unbiased: bool = True) -> Tensor:
    """HSIC_1 of two kernels [L, L] by its formula, from kernels without their diagonals; or tr(K H M H) / (L - 1)^2."""
    rows = len(k)
    if not unbiased:
        h = centring(rows)
        return (k @ h @ m @ h).trace() / (rows - 1) ** 2
    k, m = (x - x.diag().diag() for x in (k, m))
    inner = (k @ m).trace() + k.sum() * m.sum() / ((rows - 1) * (rows - 2)) - 2 / (rows - 2) * (k @ m).sum()
    return inner / (rows * (rows - 3))


class Subsets(NamedTuple):
    """HSIC of all L rows; the mean over every subset of B rows. Equal for the unbiased estimator only.

    The whole by :func:`hsic_written_out`, the batches by the package.
    """

    whole: float
    mean: float


def all_subsets(batch_size: int = 5, unbiased: bool = True, images: int = 9, seed: int = 0) -> Subsets:
    """Enumerates the alignment batches: HSIC_1 is unbiased under minibatches, the plain HSIC is not."""
    a, b = representations((3, 4), images, seed)
    chosen = torch.tensor(list(combinations(range(images), batch_size)))  # [number of subsets, B]
    found = cka.hsic(cka.gram(a[chosen]), cka.gram(b[chosen]), unbiased=unbiased)
    return Subsets(float(hsic_written_out(a @ a.T, b @ b.T, unbiased)), float(found.mean()))


class Minibatch(NamedTuple):
    """By batch size, [n]: the mean CKA of a batch, its standard error, and the ratio of the batches' mean HSIC_1.

    ``whole`` CKA and ``whole_debiased`` of all L rows.
    """

    mean: Tensor
    error: Tensor
    debiased: Tensor
    whole: float
    whole_debiased: float


def minibatches(
    batch_sizes: Sequence[int] = (8, 16, 32, 64, 128), images: int = 512, draws: int = 100, seed: int = 0
) -> Minibatch:
    """CKA of random batches of the alignment set against CKA of the whole."""
    a, b = representations((16, 24), images, seed)
    found = []
    for size in batch_sizes:
        rng = stream(seed, "batches", round=size)
        chosen = torch.stack([torch.from_numpy(rng.permutation(images)[:size]) for _ in range(draws)])
        x, y = a[chosen], b[chosen]  # [draws, B, d]
        k, m = cka.gram(x), cka.gram(y)
        cross, own, other = (cka.hsic(p, q, unbiased=True).mean() for p, q in ((k, m), (k, k), (m, m)))
        single = cka.linear_cka(x, y)
        found.append((single.mean(), single.std() / draws**0.5, cross / (own * other).sqrt()))
    whole = float(cka.linear_cka(a, b)), float(cka.linear_cka(a, b, unbiased=True))
    return Minibatch(*(torch.stack(column) for column in zip(*found, strict=True)), *whole)

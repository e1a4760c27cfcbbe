"""Chapter 2: why kernels are averaged and not weights or representations, and who counts how much in the mean.

Both sides of each identity, float64. Identities of CKA itself stand in chapter02_theory.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt
from typing import NamedTuple

import torch
from torch import Tensor

from fedbook.lab.chapter02_theory import (
    IMAGES,
    Sides,
    centring,
    columns,
    orthogonal,
    representations,
    weights_of,
    written_out,
)
from fedbook.papers.hetero_ssfl import cka
from fedbook.randomness import normal, stream

# --- what cannot be averaged, and what can


class MeanNetwork(NamedTuple):
    """Relative distance of outputs from the first network's: of its reordered twin, of the mean of the two."""

    reordered: float
    mean: float


def mean_of_networks(seed: int = 0) -> MeanNetwork:
    """One network, and the same with its hidden units in another order: one function; the mean of weights is another.

    And networks of unequal shapes do not even have a mean.
    """
    rng = stream(seed, "networks")
    x, first, second = normal((IMAGES, 5), rng), normal((5, 16), rng), normal((16, 4), rng)
    order = torch.arange(16).roll(1)
    twin = first[:, order], second[order]
    outputs = [
        (x @ a).tanh() @ b for a, b in ((first, second), twin, ((first + twin[0]) / 2, (second + twin[1]) / 2))
    ]  # fmt: skip
    return MeanNetwork(*(float((y - outputs[0]).norm() / outputs[0].norm()) for y in outputs[1:]))


class Averaged(NamedTuple):
    """CKA with the geometry that every client has: of the mean representation, of the mean kernel (1).

    ``size``: |mean representation| / |A|, both centred.
    """

    representations: float
    kernels: float
    size: float


def averaged(kind: str, clients: int = 2, seed: int = 0) -> Averaged:
    """Clients with A Q_j: one kernel, many representations. The mean kernel is right, the mean representation not.

    Q_j is "mirror": I and -I in turn (an even number of clients: their mean is 0); "order": the columns in any order;
    "rotation": any orthogonal matrix. Source: Hetero-SSFL, section 3.2 against eq. (2).
    """
    rng, eye = stream(seed, "averaged"), torch.eye(8, dtype=torch.float64)
    a = normal((IMAGES, 8), rng)
    draw = {
        "mirror": lambda j: (-1) ** j * eye,
        "order": lambda j: eye[torch.from_numpy(rng.permutation(8))],
        "rotation": lambda j: orthogonal(8, rng),
    }[kind]
    copies = [a @ draw(j) for j in range(clients)]
    mean = sum(copies) / clients
    size = (mean - mean.mean(0)).norm() / (a - a.mean(0)).norm()
    kernel = cka.mean_gram(copies, [1] * clients)
    return Averaged(float(cka.linear_cka(a, mean)), float(cka.gram_cka(cka.gram(a), kernel)), float(size))


# --- by hand


class ByHand(NamedTuple):
    """Three images, client 1 of width 1, client 2 of width 2, weights 3/5 and 2/5; every number a fraction.

    ``kernels`` and ``mean`` centred, ``norms`` of the three, ``pair`` = CKA(K_1, K_2), ``printed`` the same without
    centring, ``alpha`` the peers' weights in the mean, ``with_mean`` = CKA(K_i, mean), ``gradient`` = that of
    CKA(K_1, mean) in A_1.
    """

    representations: tuple[list, list]
    kernels: tuple[list, list]
    mean: list
    norms: tuple[Fraction, Fraction, Fraction]
    pair: Fraction
    printed: Fraction
    alpha: tuple[Fraction, Fraction]
    with_mean: tuple[Fraction, Fraction]
    gradient: list


def by_hand() -> ByHand:
    """The smallest example: A_1 = (4, 0, 2), A_2 = ((2, 1), (0, -2), (-2, 1)), in exact arithmetic."""
    given = [[4], [0], [2]], [[2, 1], [0, -2], [-2, 1]]
    centred = [[[x - _mean(column) for x, column in zip(row, zip(*a, strict=True), strict=True)] for row in a]
               for a in given]  # fmt: skip
    (raw_1, raw_2), kernels = (_kernel(a) for a in given), [_kernel(a) for a in centred]
    w = Fraction(3, 5), Fraction(2, 5)
    mean = [[w[0] * x + w[1] * y for x, y in zip(*rows, strict=True)] for rows in zip(*kernels, strict=True)]
    norms = tuple(_norm(k) for k in (*kernels, mean))
    with_mean = tuple(_inner(k, mean) / (norm * norms[2]) for k, norm in zip(kernels, norms[:2], strict=True))
    pull = [[m / norms[2] - with_mean[0] * k / norms[0] for m, k in zip(*rows, strict=True)]
            for rows in zip(mean, kernels[0], strict=True)]  # fmt: skip
    return ByHand(
        representations=given,
        kernels=tuple(kernels),
        mean=mean,
        norms=norms,
        pair=_inner(*kernels) / (norms[0] * norms[1]),
        printed=_inner(raw_1, raw_2) / (_norm(raw_1) * _norm(raw_2)),
        alpha=tuple(weight * norm / norms[2] for weight, norm in zip(w, norms[:2], strict=True)),
        with_mean=with_mean,
        gradient=[2 / norms[0] * sum(x * a[0] for x, a in zip(row, centred[0], strict=True)) for row in pull],
    )


def _mean(column: Sequence) -> Fraction:
    return Fraction(sum(column), len(column))


def _kernel(a: Sequence) -> list:
    return [[sum((Fraction(x * y) for x, y in zip(p, q, strict=True)), Fraction(0)) for q in a] for p in a]


def _inner(k: Sequence, m: Sequence) -> Fraction:
    return sum((x * y for p, q in zip(k, m, strict=True) for x, y in zip(p, q, strict=True)), Fraction(0))


def _norm(k: Sequence) -> Fraction:
    """|k|_F, which is a fraction in this example."""
    square = _inner(k, k)
    return Fraction(isqrt(square.numerator), isqrt(square.denominator))


# --- D8: the mean of kernels


def factorised(seed: int = 0) -> Sides:
    """C C^T with the columns [sqrt(w_1) A_1 | .. ] side by side, and sum_j w_j A_j A_j^T. Equal. [L, L]."""
    a = representations(seed=seed)
    w = weights_of(len(a))
    c = cka.factor(a, w)
    return Sides(c @ c.T, sum(weight * x @ x.T for weight, x in zip(w, a, strict=True)))


def centred_mean(seed: int = 0) -> Sides:
    """H (sum_j w_j K_j) H of the package, and the mean of the kernels of centred representations. Equal. [L, L]."""
    a = representations(seed=seed)
    w = weights_of(len(a))
    h = centring(IMAGES)
    centred = (h @ x for x in a)
    return Sides(
        cka.centred_gram(cka.mean_gram(a, w)), sum(weight * x @ x.T for weight, x in zip(w, centred, strict=True))
    )


def shares_in_mean(grams: Sequence[Tensor], weights: Tensor) -> Tensor:
    """alpha_j = w_j |HK_jH| / |H Kbar H|, [J], by the definition."""
    h = centring(len(grams[0]))
    mean = sum(w * k for w, k in zip(weights, grams, strict=True))
    return torch.stack([w * (h @ k @ h).norm() for w, k in zip(weights, grams, strict=True)]) / (h @ mean @ h).norm()


def mixture(scale: float = 1.0, seed: int = 0) -> Sides:
    """CKA(K_i, Kbar) of every client, and sum_j alpha_j CKA(K_i, K_j). Equal; [J]. The weights are ``scale`` w."""
    a = representations(seed=seed)
    w = scale * weights_of(len(a))
    grams = [x @ x.T for x in a]
    mean = sum(weight * k for weight, k in zip(w, grams, strict=True))
    pairs = torch.stack([torch.stack([cka.linear_cka(x, y) for y in a]) for x in a])  # [J, J]
    return Sides(torch.stack([written_out(k, mean) for k in grams]), pairs @ cka.peer_weights(a, w))


class Dominance(NamedTuple):
    """Shares alpha_j / sum alpha, [n, J], and CKA(K_j, Kbar), [n, J], for each norm of the first client's outputs."""

    shares: Tensor
    agreement: Tensor


def dominance(norms: Sequence[float], normalise: bool = False, seed: int = 0) -> Dominance:
    """Equal weights, but client 0 multiplies its representation: by ten, and its kernel counts a hundredfold.

    ``normalise``: centred kernels of norm 1 are averaged, and it gains nothing.
    """
    found = []
    first, *others = [x - x.mean(0) for x in representations(seed=seed)]
    first, *others = [x / (x.T @ x).norm().sqrt() for x in (first, *others)]  # kernels of norm 1
    w = torch.ones(1 + len(others), dtype=torch.float64) / (1 + len(others))
    for norm in norms:
        a = [norm * first, *others]
        mean = cka.mean_gram(a, w, normalise=normalise)
        grams = [x @ x.T / ((x.T @ x).norm() if normalise else 1) for x in a]
        alpha = shares_in_mean(grams, w)
        found.append((alpha / alpha.sum(), torch.stack([cka.gram_cka(k, mean) for k in grams])))
    return Dominance(*(torch.stack(column) for column in zip(*found, strict=True)))


class SelfShare(NamedTuple):
    """For each norm of client 0's representation: alpha_0, CKA(K_0, Kbar), and CKA with the mean of the others; [n].

    CKA(K_0, Kbar) is at least alpha_0, whatever the others are.
    """

    alpha: Tensor
    with_itself: Tensor
    without: Tensor


def self_inclusion(norms: Sequence[float], seed: int = 0) -> SelfShare:
    """How much of client 0's agreement with the reference is agreement with itself."""
    a, found = representations(seed=seed), []
    w = torch.ones(len(a), dtype=torch.float64) / len(a)
    rest = cka.mean_gram(a[1:], w[1:] / w[1:].sum())
    for norm in norms:
        grown = [norm * a[0], *a[1:]]
        own = cka.gram(grown[0])
        found.append(
            (cka.peer_weights(grown, w)[0], cka.gram_cka(own, cka.mean_gram(grown, w)), cka.gram_cka(own, rest))
        )
    return SelfShare(*(torch.stack(column) for column in zip(*found, strict=True)))


def agreement(clients: int, pairwise: float) -> Sides:
    """CKA(K_i, Kbar) where every pair has the same CKA r, and sqrt((1 + (J - 1) r) / J). Equal.

    So five clients that share nothing still agree to 0.45 with their mean.
    """
    u = columns(clients + 1)
    shared, own = pairwise**0.25 * u[:, :1], (1 - pairwise) ** 0.25  # kernel sqrt(r) cc^T + sqrt(1 - r) uu^T
    a = [torch.cat([shared, own * u[:, j : j + 1]], 1) for j in range(1, clients + 1)]
    mean = cka.mean_gram(a, torch.ones(clients, dtype=torch.float64) / clients)
    found = torch.stack([cka.gram_cka(cka.gram(x), mean) for x in a])
    return Sides(found, torch.full_like(found, ((1 + (clients - 1) * pairwise) / clients) ** 0.5))

"""Chapter 2's identities about CKA: its forms, what it does not see, its range and geometry; both sides computed.

Float64 on random input of a seed. The other side of each identity is computed here from its definition, with the
centring matrix H = I - 11^T / L written out. The mean of kernels stands in chapter02_mean; the spectral form, the
ceiling, the gradient and the bias of small samples in chapter02_spectrum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedbook.papers.hetero_ssfl import cka
from fedbook.randomness import normal, stream

IMAGES, WIDTHS = 40, (7, 11, 5)  # L alignment images; as many clients as widths
COMMON = 6  # directions in which all clients see the images


class Sides(NamedTuple):
    """Two sides, each computed in its own way: equal, unless the function says otherwise."""

    left: Tensor
    right: Tensor


# --- the other side: definitions written out


def representations(widths: Sequence[int] = WIDTHS, images: int = IMAGES, seed: int = 0) -> list[Tensor]:
    """Clients that see the same things in their own way: A_j = S W_j / sqrt(6) + noise + an offset for each column.

    S [L, 6] has columns of decreasing size. Shapes: a matrix [L, d_j] for each client.
    """
    rng = stream(seed, "alignment toy")
    seen = normal((images, COMMON), rng) * 0.7 ** torch.arange(COMMON, dtype=torch.float64)

    def own_way(width: int) -> Tensor:
        signal = seen @ normal((COMMON, width), rng) / COMMON**0.5
        return signal + 0.3 * normal((images, width), rng) + normal((1, width), rng)

    return [own_way(width) for width in widths]


def weights_of(clients: int) -> Tensor:
    """Unequal w_j that sum to one, proportional to 1, 2, .., J. Shapes: [J]."""
    ranks = torch.arange(1, clients + 1, dtype=torch.float64)
    return ranks / ranks.sum()


def centring(images: int) -> Tensor:
    """H = I - 11^T / L, [L, L]."""
    return torch.eye(images, dtype=torch.float64) - torch.ones(images, images, dtype=torch.float64) / images


def written_out(k: Tensor, m: Tensor, centre: bool = True) -> Tensor:
    """CKA by its definition, <HKH, HMH> / (|HKH| |HMH|); ``centre=False``: without the H, as printed.

    Shapes: [L, L] twice to []. Source: Hetero-SSFL, eq. (1).
    """
    if centre:
        h = centring(len(k))
        k, m = h @ k @ h, h @ m @ h
    return (k * m).sum() / (k.square().sum() * m.square().sum()).sqrt()


def orthogonal(width: int, rng: np.random.Generator) -> Tensor:
    """A random orthogonal matrix [d, d], every one as likely: QR alone would prefer some signs."""
    q, r = torch.linalg.qr(normal((width, width), rng))
    return q * r.diagonal().sign()


# --- D1 to D4: what CKA is, and what it does not see


def covariance_form(seed: int = 0) -> Sides:
    """tr(KHMH) / (L - 1)^2, and the sum of the squared sample covariances of every pair of features. Equal."""
    a, b = representations(seed=seed)[:2]
    both = torch.cov(torch.cat([a, b], 1).T)[: a.shape[1], a.shape[1] :]  # [d_1, d_2]
    return Sides(cka.hsic(cka.gram(a), cka.gram(b)), both.square().sum())


class Forms(NamedTuple):
    """[<K, M>, |K|, |M|, CKA], centred. Gram matrices of L x L, and feature products of d x d. Equal."""

    gram: Tensor
    features: Tensor


def two_forms(seed: int = 0) -> Forms:
    """<K, M> = |B^T A|^2 and |A A^T| = |A^T A|, so CKA needs no L x L matrix."""
    a, b = representations(seed=seed)[:2]
    h = centring(IMAGES)
    k, m = h @ a @ a.T @ h, h @ b @ b.T @ h
    x, y = a - a.mean(0), b - b.mean(0)
    return Forms(
        torch.stack([(k * m).sum(), k.norm(), m.norm(), written_out(a @ a.T, b @ b.T)]),
        torch.stack([(y.T @ x).square().sum(), (x.T @ x).norm(), (y.T @ y).norm(), cka.linear_cka(a, b)]),
    )


def changed(centre: bool = True, seed: int = 0) -> dict[str, float]:
    """CKA(A', B) for centred A' = A and A changed: stretches alter it, and shifts if it is not centred again.

    Source: Hetero-SSFL, section 3.2.
    """
    rng = stream(seed, "changes")
    a, b = (x - x.mean(0) for x in representations(seed=seed)[:2])
    width = a.shape[1]
    turn, shift = orthogonal(width, rng), 3 * normal((1, width), rng)
    versions = {
        "as it is": a,
        "turned": a @ turn,
        "scaled": 3.7 * a,
        "shifted": a + shift,
        "all three": 3.7 * a @ turn + shift,
        "stretched": a * torch.logspace(-1, 1, width, dtype=a.dtype),
    }
    return {name: float(cka.linear_cka(version, b, centre=centre)) for name, version in versions.items()}


class Stretched(NamedTuple):
    """CKA measured and by the formula (equal), and the mean canonical correlation, which is 1 for every stretch."""

    measured: float
    formula: float
    canonical: float


def stretched(stretch: float) -> Stretched:
    """A = [u_1, u_2] times diag(s, 1) against B = u_1: s^2 / sqrt(s^4 + 1), so an invertible map changes CKA.

    Source: Hetero-SSFL, section 3.2, which says that it does not.
    """
    u = columns(2)
    a, b = u * torch.tensor([stretch, 1.0], dtype=u.dtype), u[:, :1]
    canonical = torch.linalg.svdvals(torch.linalg.qr(a).Q.T @ torch.linalg.qr(b).Q).mean()
    return Stretched(float(cka.linear_cka(a, b)), stretch**2 / (stretch**4 + 1) ** 0.5, float(canonical))


def columns(count: int, images: int = IMAGES, seed: int = 0) -> Tensor:
    """Orthonormal columns of mean zero, [L, ``count``]."""
    drawn = normal((images, count), stream(seed, "columns"))
    return torch.linalg.qr(drawn - drawn.mean(0)).Q


class Offset(NamedTuple):
    """CKA [n] after an offset was added: as printed with A moved, with both moved; centred, with both moved."""

    one: Tensor
    both: Tensor
    centred: Tensor


def common_offset(offsets: Sequence[float], seed: int = 0) -> Offset:
    """What the printed form makes of centred A and B when an offset is added to all entries: nearly 0, or nearly 1.

    Source: Hetero-SSFL, eq. (1).
    """
    a, b = (x - x.mean(0) for x in representations(seed=seed)[:2])
    moved = [(a + c, b + c) for c in offsets]
    found = [
        (cka.linear_cka(x, b, centre=False), cka.linear_cka(x, y, centre=False), cka.linear_cka(x, y))
        for x, y in moved
    ]  # fmt: skip
    return Offset(*(torch.stack(column) for column in zip(*found, strict=True)))


class Rows(NamedTuple):
    """CKA: rows in the same order, both reordered alike (equal), only one reordered; and what unrelated rows give."""

    same: float
    both: float
    one: float
    unrelated: float


def row_order(images: int = 400, seed: int = 0) -> Rows:
    """A permuted alignment set on one client destroys the signal silently, down to what chance gives (D11)."""
    (a, b), rng = representations(images=images, seed=seed)[:2], stream(seed, "rows")
    order = torch.from_numpy(rng.permutation(images))
    unrelated = normal(tuple(b.shape), rng)
    pairs = (a, b), (a[order], b[order]), (a, b[order]), (a, unrelated)
    return Rows(*(float(cka.linear_cka(x, y)) for x, y in pairs))


# --- D6, D7: range and geometry


def extremes(draws: int = 200, seed: int = 0) -> dict[str, float]:
    """CKA where it must be 1 or 0, and the least and the largest over random pairs of narrow representations."""
    rng = stream(seed, "range")
    (a,), u = representations((5,), seed=seed), columns(5)
    pairs = cka.linear_cka(normal((draws, 6, 2), rng), normal((draws, 6, 3), rng))
    return {
        "itself": float(cka.linear_cka(a, a)),
        "proportional kernels": float(cka.linear_cka(a, torch.cat([a, 2 * a], 1) @ orthogonal(10, rng))),
        "orthogonal columns": float(cka.linear_cka(u[:, :2], u[:, 2:])),
        "least": float(pairs.min()),
        "largest": float(pairs.max()),
    }


def chord(seed: int = 0) -> Sides:
    """The squared distance of the unit centred kernels, and 2 (1 - CKA). Equal."""
    a, b = representations(seed=seed)[:2]
    h = centring(IMAGES)
    k, m = h @ a @ a.T @ h, h @ b @ b.T @ h
    return Sides((k / k.norm() - m / m.norm()).square().sum(), 2 * (1 - cka.linear_cka(a, b)))


def distance(similarity: Tensor, measure: str) -> Tensor:
    """From CKA: "gap" 1 - CKA, "chord" sqrt(2 (1 - CKA)), "angle" arccos CKA."""
    similarity = similarity.clamp(-1, 1)  # rounding
    gap = 1 - similarity
    return {"gap": gap, "chord": (2 * gap).sqrt(), "angle": similarity.arccos()}[measure]


class Triangle(NamedTuple):
    """The distances of three representations; ``slack`` = AB + BC - AC is negative where the detour is shorter."""

    ab: Tensor
    bc: Tensor
    ac: Tensor

    @property
    def slack(self) -> Tensor:
        return self.ab + self.bc - self.ac


def _triangle(a: Tensor, b: Tensor, c: Tensor, measure: str) -> Triangle:
    return Triangle(*(distance(cka.linear_cka(x, y), measure) for x, y in ((a, b), (b, c), (a, c))))


def triangle(measure: str) -> Triangle:
    """A = u_1, B = [u_1, u_2], C = u_2: the shortest way from A to C leads over B if 1 - CKA is a distance."""
    u = columns(2)
    return _triangle(u[:, :1], u, u[:, 1:], measure)


def triangles(measure: str, draws: int = 1000, seed: int = 0) -> Triangle:
    """Random A and C, and B that sees something of both. Shapes: three [``draws``]."""
    rng = stream(seed, "triangles")
    a, c = normal((draws, 12, 2), rng), normal((draws, 12, 2), rng)
    b = torch.cat([a, c], -1) + 0.3 * normal((draws, 12, 4), rng)
    return _triangle(a, b, c, measure)

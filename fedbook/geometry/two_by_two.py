"""Positive definite 2 x 2 matrices in closed form: no factorisation, only operations on numbers.

For X = [[a, b], [b, c]] and symmetric D = [[p, q], [q, r]] let X^-1 D have half trace h and eigenvalues h +- r. Then

    2 h det X = c p + a r - 2 b q = m(X, D)              det(X + D) - det X = m(X, D) + det D
    4 r^2 (det X)^2 = (c p - a r)^2 + 4 (a q - b p) (c q - b r) = k(X, D)

and a function of X^-1 D, times X, is X and D with numbers before them. None of these differences cancels when D is
small or near a multiple of X.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedbook.geometry.batches import visible
from fedbook.geometry.scalars import raised, root

Entries = tuple[Tensor, Tensor, Tensor]


def exp(x: Tensor, u: Tensor) -> Tensor:
    """e^h (cosh(r) X + sinh(r)/r (U - h X)) with h, r of X^-1 U."""
    entries, change = _entries(x), _entries(u)
    det = _require(entries, "x")
    h = 0.5 * _mixed(entries, change) / det
    r = raised(root(_discriminant(entries, change)) / (2 * det))
    size = h.exp()
    slope = size * r.sinh() / r
    return _times(torch.addcmul(size * r.cosh(), slope, h, value=-1), x, slope, u)


def log(x: Tensor, y: Tensor, check: bool) -> Tensor:
    """m X + f (D - h X) with D = Y - X, m the mean of the logarithms of the eigenvalues of X^-1 Y, f their difference
    over that of the eigenvalues."""
    d = y - x
    det, scale, mixed, m, t = _logarithms(x, y, d, check)
    t = raised(root(t))
    f = t.asinh() / t * scale
    return _times(torch.addcmul(m, f, mixed, value=-1), x, 2 * det * f, d)


def squared_dist(x: Tensor, y: Tensor) -> Tensor:
    """2 (m^2 + g^2): the logarithms of the eigenvalues of X^-1 Y are m +- g."""
    _, _, _, m, t = _logarithms(x, y, y - x, visible(y))
    high = raised(root(t))
    return 2 * torch.addcmul(m.square(), t, (high.asinh() / high).square())


def transport(x: Tensor, y: Tensor, u: Tensor) -> Tensor:
    """E U E^T with E = (Y X^-1)^(1/2), and the root of M is (M + sqrt(det M)) / sqrt(tr M + 2 sqrt(det M))."""
    (a, b, c), (f, g, h) = entries, ends = _entries(x), _entries(y)
    det = _require(entries, "x")
    mean = (det * _require(ends, "y")).sqrt()  # det X has been multiplied into E below, and is taken out at the end
    one, two = torch.addcmul(f * c, g, b, value=-1), torch.addcmul(g * a, f, b, value=-1)
    three, four = torch.addcmul(g * c, h, b, value=-1), torch.addcmul(h * a, g, b, value=-1)
    e = torch.stack([one + mean, two, three, four + mean], -1).unflatten(-1, (2, 2))
    moved = e @ u @ e.mT
    return _matrix(0.5 / (det * (one + four + 2 * mean))) * (moved + moved.mT)


def inner(x: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """tr(X^-1 U X^-1 V), which is m(X, U) m(X, V) / det X^2 - m(U, V) / det X."""
    entries, first, second = _entries(x), _entries(u), _entries(v)
    det = _require(entries, "x")
    return (_mixed(entries, first) * _mixed(entries, second) / det - _mixed(first, second)) / det


def squared_norm(x: Tensor, u: Tensor) -> Tensor:
    """2 (h^2 + r^2) with h, r of X^-1 U."""
    entries, change = _entries(x), _entries(u)
    det = _require(entries, "x")
    total = torch.addcmul(_discriminant(entries, change), _mixed(entries, change), _mixed(entries, change))
    return total / (2 * det.square())


def _logarithms(x: Tensor, y: Tensor, d: Tensor, check: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """det X; 1 / (2 sqrt(det X det Y)); m(X, D); mean logarithm; squared sinh of half the difference of logarithms."""
    entries, ends, change = _entries(x), _entries(y), _entries(d)
    det, other = (_require(entries, "x"), _require(ends, "y")) if check else (_det(entries), _det(ends))
    scale = 0.5 * torch.rsqrt(det * other)
    mixed = _mixed(entries, change)
    m = ((mixed + _det(change)) * scale).asinh()
    return det, scale, mixed, m, _discriminant(entries, change) * scale.square()


def _entries(x: Tensor) -> Entries:
    a, b, _, c = x.flatten(-2).unbind(-1)
    return a, b, c


def _det(x: Entries) -> Tensor:
    a, b, c = x
    return torch.addcmul(a * c, b, b, value=-1)


def _mixed(x: Entries, d: Entries) -> Tensor:
    """m(X, D)."""
    (a, b, c), (p, q, r) = x, d
    return torch.addcmul(torch.addcmul(c * p, a, r), b, q, value=-2)


def _discriminant(x: Entries, d: Entries) -> Tensor:
    """k(X, D), not negative."""
    (a, b, c), (p, q, r) = x, d
    one = torch.addcmul(c * p, a, r, value=-1)
    two, three = torch.addcmul(a * q, b, p, value=-1), torch.addcmul(c * q, b, r, value=-1)
    return torch.addcmul(one * one, two, three, value=4).clamp_min(0)


def _matrix(value: Tensor) -> Tensor:
    return value.unsqueeze(-1).unsqueeze(-1)


def _times(s: Tensor, x: Tensor, t: Tensor, d: Tensor) -> Tensor:
    """s X + t D."""
    return torch.addcmul(_matrix(s) * x, _matrix(t), d)


def _require(x: Entries, name: str) -> Tensor:
    """The determinant. Raises: ValueError unless it and a are positive, where looking costs nothing."""
    det = _det(x)
    if visible(det) and not bool((torch.minimum(x[0], det) > 0).all()):
        raise ValueError(f"{name}: got a matrix that is not positive definite; allowed is a positive definite one")
    return det

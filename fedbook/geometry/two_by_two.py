"""Positive definite 2 x 2 matrices in closed form: no factorisation, only operations on numbers.

For X = [[a, b], [b, c]] with Cholesky factor L, a symmetric U becomes B = L^-1 U L^-T with half trace h and eigenvalues
h +- r; a function of B, taken back, is X and U with numbers before them: L f(B) L^T = s X + t U.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from fedbook.geometry.batches import transformed, visible

Entries = tuple[Tensor, Tensor, Tensor]  # 11, 12 and 22 of a symmetric matrix


class Frame(NamedTuple):
    """What B needs of X: a, b / a, det X / a and sqrt(det X). Shapes: ``[...]``."""

    corner: Tensor
    slope: Tensor
    rest: Tensor
    side: Tensor


def exp(x: Tensor, u: Tensor) -> Tensor:
    """e^h (cosh(r) X + sinh(r)/r (U - h X))."""
    a, b, c = whitened(x, u)
    h = 0.5 * (a + c)
    r = _raised_root(_squared_radius(a, b, c))
    size = h.exp()
    t = size * r.sinh() / r
    return _times(torch.addcmul(size * r.cosh(), t, h, value=-1), _flat(x), t, _flat(u))


def log(x: Tensor, y: Tensor, check: bool) -> Tensor:
    """m X + f (C - h X): m the mean of the logarithms of the eigenvalues of X^-1 Y, f their difference over that of the
    eigenvalues, and C and h as in ``_logarithms``."""
    change, trace, m, squared, scale = _logarithms(x, y, check)
    r = _raised_root(squared)
    f = r.asinh() / r * scale
    return _times(torch.addcmul(m, f, trace, value=-0.5), _flat(x), f, change)


def squared_dist(x: Tensor, y: Tensor) -> Tensor:
    """2 (m^2 + g^2): the logarithms of the eigenvalues of X^-1 Y are m +- g, and g = asinh of the root of a square."""
    _, _, m, squared, _ = _logarithms(x, y, visible(y))
    r = _raised_root(squared)
    return 2 * torch.addcmul(m.square(), squared, (r.asinh() / r).square())


def transport(x: Tensor, y: Tensor, u: Tensor) -> Tensor:
    """L S (L^-1 U L^-T) S L^T with S the root of A = L^-1 Y L^-T: (A + sqrt(det A)) / sqrt(tr A + 2 sqrt(det A))."""
    frame = _checked_frame(x)
    a, b, c = _whitened(frame, _entries(_flat(y)))
    det = torch.addcmul(a * c, b, b, value=-1)
    if visible(y) and not _positive(a, det):
        raise _indefinite("y")
    root = det.sqrt()
    p, q, r = _whitened(frame, _entries(_flat(u)))
    a, c = a + root, c + root
    left, right = torch.addcmul(a * p, b, q), torch.addcmul(a * q, b, r)  # the rows of S B
    low, last = torch.addcmul(b * p, c, q), torch.addcmul(b * q, c, r)
    size = 1 / (a + c)
    first = torch.addcmul(left * a, right, b) * size
    cross = torch.addcmul(left * b, right, c) * size
    third = torch.addcmul(low * b, last, c) * size
    along, across = frame.corner * first, frame.side * cross
    off = torch.addcmul(across, frame.slope, along)
    corner = torch.addcmul(frame.rest * third, frame.slope, across + off)
    return torch.stack([along, off, off, corner], -1).unflatten(-1, (2, 2))


def inner(x: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """tr(X^-1 U X^-1 V)."""
    (a, b, c), (p, q, r) = whitened(x, u), whitened(x, v)
    return torch.addcmul(torch.addcmul(a * p, c, r), b, q, value=2)


def norm(x: Tensor, u: Tensor) -> Tensor:
    """sqrt(tr(X^-1 U X^-1 U)), with derivative 0 at 0."""
    a, b, c = whitened(x, u)
    return torch.linalg.vector_norm(torch.stack([a, b, b, c]), dim=0)


def whitened(x: Tensor, u: Tensor) -> Entries:
    """The entries of B = L^-1 U L^-T. Raises: ValueError, where looking costs nothing, if X is not allowed."""
    return _whitened(_checked_frame(x), _entries(_flat(u)))


def _whitened(frame: Frame, entries: Entries) -> Entries:
    p, q, r = entries
    t = torch.addcmul(q, frame.slope, p, value=-1)
    return p / frame.corner, t / frame.side, torch.addcmul(r, frame.slope, q + t, value=-1) / frame.rest


def _frame(entries: Entries) -> Frame:
    a, b, c = entries
    slope = b / a
    rest = torch.addcmul(c, slope, b, value=-1)
    return Frame(a, slope, rest, a.sqrt() * rest.sqrt())  # NaN too if both are negative


def _checked_frame(x: Tensor) -> Frame:
    """Raises: ValueError, where looking costs nothing, if X is not positive definite."""
    frame = _frame(_entries(_flat(x)))
    if visible(x) and not _positive(frame.corner, frame.rest):
        raise _indefinite("x")
    return frame


def _logarithms(x: Tensor, y: Tensor, check: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """C as ``[..., 4]``; 2 h; m; the squared sinh of half the difference of the logarithms; 1 / sqrt(det Y / det X).

    C is Y - X, which keeps the digits of a small change, or Y, which keeps those of a Y much smaller than X: the mean
    m of the logarithms needs to know which, their difference does not.
    Raises: ValueError with ``check`` if one is not positive definite.
    """
    x, y = _flat(x), _flat(y)
    entries = _entries(x)
    near = 2 * y.select(-1, 0) > entries[0]
    shift = near.to(x.dtype)
    change = torch.where(near.unsqueeze(-1), y - x, y)
    frame = _frame(entries)
    a, b, c = _whitened(frame, _entries(change))
    trace, det = a + c, torch.addcmul(a * c, b, b, value=-1)
    ratio = torch.addcmul(det, shift, trace + 1)  # det Y / det X
    if check and not transformed() and not _positive(frame.corner, frame.rest, a + shift, ratio):
        raise _indefinite("y" if _positive(frame.corner, frame.rest) else "x")
    scale = torch.rsqrt(ratio)
    excess = det + torch.addcmul(shift - 1, shift, trace)  # ratio - 1, without that difference
    m = (0.5 * excess * scale).asinh()
    return change, trace, m, _squared_radius(a, b, c) / ratio, scale


def _squared_radius(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    half = 0.5 * (a - c)
    return torch.addcmul(half * half, b, b)


def _raised_root(square: Tensor) -> Tensor:
    """The root, raised to a floor below which sinh(r) / r and asinh(r) / r are 1 and cosh(r) is 1 to the last digit."""
    return square.clamp_min(torch.finfo(square.dtype).eps ** 1.5).sqrt()


def _flat(x: Tensor) -> Tensor:
    return x.flatten(-2)


def _entries(flat: Tensor) -> Entries:
    a, b, _, c = flat.unbind(-1)
    return a, b, c


def _times(s: Tensor, x: Tensor, t: Tensor, u: Tensor) -> Tensor:
    """s X + t U of flat X and U, as matrices."""
    return torch.addcmul(s.unsqueeze(-1) * x, t.unsqueeze(-1), u).unflatten(-1, (2, 2))


def _positive(*numbers: Tensor) -> bool:
    """Whether all are."""
    lowest = functools.reduce(torch.minimum, numbers)
    return lowest.numel() == 0 or lowest.min().item() > 0


def _indefinite(name: str) -> ValueError:
    return ValueError(f"{name}: got a matrix that is not positive definite; allowed is a positive definite one")

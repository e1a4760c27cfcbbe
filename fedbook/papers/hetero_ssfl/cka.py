"""Centred kernel alignment (CKA): how alike two representations of the same L samples are, whatever their widths.

A representation is a matrix a [..., L, d], a row a sample; its kernel (Gram matrix) is K = a a^T. CKA is the cosine
between two centred kernels. It does not change when a representation is rotated, shifted or scaled as a whole, and
row p of one must be the same sample as row p of the other: a permutation cannot be noticed here, it only lowers CKA.

With the centred kernels K' = H K H, M' = H M H and their diagonals k and m, both forms of HSIC need three sums only:

    biased     (L-1)^2 HSIC_b = <K', M'>
    unbiased   L(L-3) HSIC_1  = <K', M'> - L/(L-2) k.m + (sum k)(sum m) / ((L-1)(L-2))

The second is Song et al.'s formula for K' and M': HSIC_1 ignores what centring changes (a number a row, a number a
column), and their rows sum to 0. For linear kernels k_p = |a_p - mean|^2, so nothing needs an L x L matrix.

A representation without variation has no CKA; here it is 0 with gradient 0. It counts as constant when in every column
the largest deviation from the mean is at most 64 machine epsilons (7.6e-6 in float32, 1.4e-14 in float64) of the
column's largest entry, as that is rounding noise; for a kernel the same holds of its centred entries. A kernel
squares: variation below a few thousandths of the offset is lost in a float32 kernel, so centre before :func:`gram`.
NaN in gives NaN out. Half precision is refused: with 8 (bfloat16) or 11 (float16) bits an entry, little is left of
the differences between samples after centring, and float16 sums overflow at 65,504.

Source: Kornblith et al. 2019 (CKA); Song et al. 2012 (HSIC_1); Hetero-SSFL, equations (1) and (2). D4 to D11 are the
derivations of chapter 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fedbook import arguments

NOISE = 64  # machine epsilons; what varies less, relatively, is rounding noise


def varying(a: Tensor) -> Tensor:
    """The rows minus their mean, H a; zero if every column is constant up to rounding.

    Shapes: [..., L, d] -> the same.
    """
    moved = a - a.mean(-2, keepdim=True)
    still = moved.detach().abs().amax(-2, keepdim=True) <= _noise(a) * a.detach().abs().amax(-2, keepdim=True)
    return torch.where(still.all(-1, keepdim=True), 0, moved)


def centred_gram(gram: Tensor) -> Tensor:
    """H K H: the kernel of the centred samples. Shapes: [..., L, L] -> the same."""
    rows = gram.mean(-1, keepdim=True)
    return gram - rows - gram.mean(-2, keepdim=True) + rows.mean(-2, keepdim=True)


def gram(a: Tensor, kernel: str = "linear", bandwidth: float = 0.5) -> Tensor:
    """The kernel of every pair of rows: a_p . a_q, or exp(-|a_p - a_q|^2 / (2 s^2)) ("rbf").

    s = ``bandwidth`` x the median distance of two rows (the lower one of two medians; a constant for the gradient).
    If that median is 0, the kernel is its limit: 1 for equal rows, else 0, without gradient.
    Shapes: [..., L, d] -> [..., L, L]; "rbf" needs L >= 2.
    Raises: TypeError, ValueError.
    """
    if arguments.one_of("kernel", kernel, ("linear", "rbf")) == "linear":
        return a @ a.mT
    bandwidth = arguments.real("bandwidth", bandwidth, above=0.0)
    a = varying(_pair(a, a)[0])
    distance = torch.cdist(a, a, compute_mode="donot_use_mm_for_euclid_dist")  # exactly 0 between equal rows
    p, q = torch.triu_indices(a.shape[-2], a.shape[-2], 1, device=a.device)
    s = bandwidth * distance.detach()[..., p, q].median(-1).values[..., None, None]
    kernels = torch.exp(-((distance / torch.where(s == 0, 1, s)) ** 2) / 2)
    return torch.where(s == 0, (distance == 0).to(a.dtype), kernels)


def gram_cka(k: Tensor, m: Tensor, centre: bool = True, unbiased: bool = False) -> Tensor:
    """CKA of two kernels, in [0, 1] up to rounding; unbiased ("debiased"), with HSIC_1 for HSIC_b, in [-1, 1].

    ``centre=False`` is the paper's equation (1) as printed, which is CKA only of centred representations.
    Unbiased, it is 0 unless both HSIC_1(K, K) and HSIC_1(M, M) are above their rounding error.
    Shapes: k, m [..., L, L] -> [...]; L >= 2, or 4 if unbiased.
    Raises: TypeError, ValueError.
    Source: Kornblith et al. 2019, section 3; D6 (range), D8 (the mean kernel as m).
    """
    k, m = _pair(k, m, unbiased, centre)
    k, m = (_scaled(_varying_gram(x) if centre else x) for x in (k, m))
    return _cka((_dot(k, m), _dot(k, k), _dot(m, m)), _diagonal(k), _diagonal(m), unbiased)


def linear_cka(a: Tensor, b: Tensor, centre: bool = True, unbiased: bool = False) -> Tensor:
    """:func:`gram_cka` of a a^T and b b^T, in the cheaper of two equal forms, chosen from the shapes.

    Feature form |b^T a|^2 / (|a^T a| |b^T b|): L d1 d2 multiplications for the numerator, L (d1^2 + d1 d2 + d2^2) in
    all; memory d1^2 + d1 d2 + d2^2 numbers. Gram form: L^2 (d1 + d2) multiplications; memory 2 L^2 numbers.
    Of few samples the biased form is large even for unrelated representations: for independent Gaussian ones of width
    d it is about d / (L + d), which is 0.91 for d = 2048 and 200 samples (D11).
    Shapes: a [..., L, d1], b [..., L, d2] -> [...]; L >= 2, or 4 if unbiased.
    Raises: TypeError, ValueError.
    Source: the paper's equation (1) with centring; D2 (both forms), D3 (invariances).
    """
    a, b = _pair(a, b, unbiased, centre)
    a, b = (_scaled(varying(x) if centre else x) for x in (a, b))
    return _cka(_products(a, b), a.square().sum(-1), b.square().sum(-1), unbiased)


def mean_gram(representations: Sequence[Tensor], weights: Sequence[float], normalise: bool = False) -> Tensor:
    """The clients' mean kernel sum_j w_j K_j; the weights are divided by their sum.

    ``normalise``: K_j is centred and divided by its norm first, so that wide or large outputs do not dominate; a
    constant client adds nothing.
    Shapes: a list of [..., L, d_j] and as many weights -> [..., L, L].
    Source: the paper's section 3.2 (kernels, not representations, are averaged); D8.
    """
    parts = _parts(representations, weights, normalise)
    total = parts[0] @ parts[0].mT
    for part in parts[1:]:
        total = total + part @ part.mT
    return total


def factor(representations: Sequence[Tensor], weights: Sequence[float], normalise: bool = False) -> Tensor:
    """C = [sqrt(w_1) A_1 | sqrt(w_2) A_2 | ...] with C C^T = :func:`mean_gram`: smaller than it if sum_j d_j < L.

    Shapes: a list of [..., L, d_j] and as many weights -> [..., L, sum_j d_j].
    """
    return torch.cat(_parts(representations, weights, normalise), -1)


@torch.no_grad()
def pairwise_cka(representations: Sequence[Tensor], unbiased: bool = False) -> Tensor:
    """Linear CKA of every two of N representations, each read once: float64 [N, N]; NaN rows where one is not finite.

    Shapes: a list of [L, d_j], L >= 2, or 4 if unbiased. Memory: one product d_j x sum d at a time.
    Raises: TypeError, ValueError.
    """
    for a in representations:
        _pair(representations[0], a, unbiased)
    parts = [_scaled(varying(a.double())) for a in representations]
    rows, widths, whole = parts[0].shape[-2], [a.shape[-1] for a in parts], torch.cat(parts, -1)
    cross = torch.stack([torch.stack([b.square().sum() for b in (a.mT @ whole).split(widths, -1)]) for a in parts])
    products = cross
    if unbiased:
        k = torch.stack([a.square().sum(-1) for a in parts])  # [N, L]
        cross = _unbiased(products, k @ k.mT, torch.outer(k.sum(-1), k.sum(-1)), rows)
    first, second = (x.expand_as(cross) for x in (cross.diagonal()[:, None], cross.diagonal()[None]))
    own = products.diagonal()
    return _ratio((cross, first, second), (products, own[:, None].expand_as(cross), own[None].expand_as(cross)))


class StreamedCKA:
    """Linear CKA, biased or not, of representations that come in chunks of rows; exact, without an L x L matrix.

    Held in float64: the second moments of the rows z = [a, b, |a|^2, |b|^2, 1], that is (d1 + d2 + 3)^2 numbers
    whatever L is. All rows are shifted by the first chunk's mean, so that a common offset costs no digits.
    """

    def __init__(self) -> None:
        self.moments: Tensor | None = None

    @torch.no_grad()
    def add(self, a: Tensor, b: Tensor) -> None:
        """Take in the next rows of both. Shapes: a [rows, d1], b [rows, d2], float32 or float64.

        Raises: TypeError, ValueError (other widths than before, not as many rows).
        """
        for name, part in (("a", a), ("b", b)):
            arguments.tensor(name, part, ndim=2, kind="float", finite=False)
        _same_rows(a, b)
        widths = (a.shape[-1], b.shape[-1])
        if self.moments is not None and widths != self.widths:
            raise arguments.wrong(ValueError, "widths", widths, f"those of the first rows, {self.widths}")
        if not len(a):
            return
        if self.moments is None:  # CKA ignores scale, and a power of two costs no digit
            self.scales = [-torch.frexp(_largest(part.double())).exponent for part in (a, b)]
        x = torch.cat([torch.ldexp(part.double(), by) for part, by in zip((a, b), self.scales, strict=True)], -1)
        if self.moments is None:
            self.widths, self.noise, self.shift = widths, _noise(a), x.mean(0)
            self.low, self.high = x.amin(0), x.amax(0)
            self.moments = x.new_zeros(sum(widths) + 3, sum(widths) + 3)
        self.noise = max(self.noise, _noise(a))
        self.low, self.high = torch.minimum(self.low, x.amin(0)), torch.maximum(self.high, x.amax(0))
        x = x - self.shift
        norms = [part.square().sum(-1, keepdim=True) for part in x.split(widths, -1)]
        z = torch.cat([x, *norms, torch.ones_like(norms[0])], -1)
        self.moments += z.mT @ z

    def value(self, unbiased: bool = False) -> Tensor:
        """CKA of all rows so far, a float64 scalar. Raises: ValueError for fewer than 2 rows (4 if unbiased)."""
        least, z = 4 if unbiased else 2, self.moments
        rows = 0 if z is None else int(z[-1, -1])
        if rows < least:
            raise ValueError(f"the alignment set: got {rows} rows so far; allowed are at least {least}")
        d1, d = self.widths[0], sum(self.widths)
        mean = z[:d, -1] / rows
        if not bool(z.isfinite().all()):
            return z.new_full((), math.nan)
        middle = self.shift + mean
        still = torch.maximum(self.high - middle, middle - self.low) <= self.noise * torch.maximum(self.high, -self.low)
        if bool(still[:d1].all()) or bool(still[d1:].all()):
            return z.new_zeros(())
        scatter = z[:d, :d] - rows * torch.outer(mean, mean)
        products = [_dot(x, x) for x in (scatter[:d1, d1:], scatter[:d1, :d1], scatter[d1:, d1:])]
        if not unbiased:
            return _ratio(products, products)
        u = z.new_zeros(d + 3, 2)  # z u = the squared norms of the centred rows, |a|^2 - 2 a.mean + |mean|^2
        for column, part in enumerate((slice(0, d1), slice(d1, d))):
            u[part, column], u[d + column, column] = -2 * mean[part], 1
            u[-1, column] = mean[part] @ mean[part]
        dots, total = u.mT @ z @ u, z[-1] @ u
        pairs = zip(products, ((0, 1), (0, 0), (1, 1)), strict=True)
        return _ratio([_unbiased(x, dots[i, j], total[i] * total[j], rows) for x, (i, j) in pairs], products)


# --- the three sums


def _dot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum((-2, -1))


def _diagonal(k: Tensor) -> Tensor:
    return k.diagonal(dim1=-2, dim2=-1)


def _gram_norm(x: Tensor) -> Tensor:
    """|x x^T| = |x^T x|, of the smaller of the two."""
    return torch.linalg.matrix_norm(x @ x.mT if x.shape[-2] < x.shape[-1] else x.mT @ x)


def _products(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """<K, M>, <K, K> and <M, M> of K = a a^T and M = b b^T, by the form that needs fewer multiplications."""
    rows, d1, d2 = a.shape[-2], a.shape[-1], b.shape[-1]
    if rows * (d1 + d2) < d1 * d1 + d1 * d2 + d2 * d2:
        k, m = a @ a.mT, b @ b.mT
        return _dot(k, m), _dot(k, k), _dot(m, m)
    cross, k, m = a.mT @ b, a.mT @ a, b.mT @ b
    return _dot(cross, cross), _dot(k, k), _dot(m, m)


def _sums(k: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    """k.m and (sum k)(sum m) of two diagonals [..., L]."""
    return (k * m).sum(-1), k.sum(-1) * m.sum(-1)


def _unbiased(product: Tensor, dot: Tensor, total: Tensor, rows: int) -> Tensor:
    """L(L-3) HSIC_1 from <K', M'>, k.m and (sum k)(sum m): the module's second formula."""
    return product - rows / (rows - 2) * dot + total / ((rows - 1) * (rows - 2))


def _cka(products: Sequence[Tensor], k: Tensor, m: Tensor, unbiased: bool) -> Tensor:
    """The ratio from <K', M'>, <K', K'>, <M', M'> and the diagonals [..., L]."""
    terms = products
    if unbiased:
        pairs = zip(products, ((k, m), (k, k), (m, m)), strict=True)
        terms = [_unbiased(product, *_sums(x, y), k.shape[-1]) for product, (x, y) in pairs]
    return _ratio(terms, products)


def _ratio(terms: Sequence[Tensor], products: Sequence[Tensor]) -> Tensor:
    """terms[0] / sqrt(terms[1] terms[2]); 0 with gradient 0 if one of these two is not above its rounding error."""
    cross, first, second = terms
    zero = (first <= _noise(first) * products[1]) | (second <= _noise(second) * products[2])
    # the inner `where` keeps 1 / sqrt(0) out of the gradient; 0 * cross is 0, but NaN stays NaN
    first, second = torch.where(zero, 1, first), torch.where(zero, 1, second)
    return torch.where(zero, 0 * cross, cross / (first.sqrt() * second.sqrt()))


# --- constants and scales


def _noise(x: Tensor) -> float:
    return NOISE * torch.finfo(x.dtype).eps


def _varying_gram(k: Tensor) -> Tensor:
    """The centred kernel; zero if it is constant up to rounding."""
    moved = centred_gram(k)
    still = moved.detach().abs().amax((-2, -1)) <= _noise(k) * k.detach().abs().amax((-2, -1))
    return torch.where(still[..., None, None], 0, moved)


def _largest(x: Tensor) -> Tensor:
    """The largest entry, 1 if all are 0."""
    size = x.detach().abs().amax((-2, -1), keepdim=True)
    return torch.where(size == 0, 1, size)


def _scaled(x: Tensor) -> Tensor:
    """x over its largest entry (a constant, as CKA ignores scale): fourth powers neither overflow nor vanish."""
    return x / _largest(x)


def _parts(representations: Sequence[Tensor], weights: Sequence[float], normalise: bool) -> list[Tensor]:
    """sqrt(w_j) A_j of every client, normalised if wanted."""
    weights = [arguments.real("weights", float(w), 0.0) for w in weights]
    total, parts = math.fsum(weights), []
    if not total or len(weights) != len(representations):
        allowed = f"{len(representations)} numbers, not all of them 0"
        raise arguments.wrong(ValueError, "weights", weights, allowed)
    for a, w in zip(representations, weights, strict=True):
        if normalise:
            a = _scaled(varying(a))
            norm = _gram_norm(a)[..., None, None]
            a = a / torch.where(norm == 0, 1, norm).sqrt()
        parts.append(math.sqrt(w / total) * a)
    return parts


def _pair(a: Tensor, b: Tensor, unbiased: bool = False, centre: bool = True) -> tuple[Tensor, Tensor]:
    """Two representations, or two kernels, if they are of the same samples and enough of these. No look at values."""
    if unbiased and not centre:
        raise ValueError("centre: got False with unbiased=True; allowed is True, as HSIC_1 is centred by itself")
    least = 4 if unbiased else 2
    if a.shape[-2] < least:
        raise arguments.wrong(
            ValueError, "a", a, f"[..., L, d] with at least {least} rows, samples of the alignment set"
        )
    _same_rows(a, b)
    return a, b


def _same_rows(a: Tensor, b: Tensor) -> None:
    if a.shape[-2] != b.shape[-2]:
        raise arguments.wrong(ValueError, "b", b, f"the L = {a.shape[-2]} rows of a, the same samples")
    if {a.dtype, b.dtype} not in ({torch.float32}, {torch.float64}):
        allowed = "the dtype of a, float32 or float64 (half precision loses what centring leaves)"
        raise arguments.wrong(TypeError, "b", b, allowed)

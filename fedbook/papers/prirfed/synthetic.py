"""Records of the synthetic problems on manifolds: leading eigenvectors, positive definite matrices, a hyperbolic ball.

Everything comes from keyed streams, in float64: the same arguments give the same numbers, and an agent's records (or
the first of many) do not change, but in the last digits, when there are more of them.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.randomness import normal, stream

SPECTRA = {"source": (0.0, 1.0, 1.1, 1.2, 1.3, 1.4), "printed": (0.0, 1.1, 1.2, 1.3, 1.4)}
BLOCK = 8_192  # matrices proposed at a time
PROPOSALS = 10_000_000  # before a ball counts as too small


def eigengap_records(
    agents: int, records: int, dimension: int = 25, eigengap: float = 1e-3, shared_basis: bool = True,
    spectrum: str = "source", seed: int = 0,
) -> Tensor:  # fmt: skip
    """Leading-eigenvector data: the rows of Z_i = U_i Sigma_i V_i^T for every agent i.

    U_i and V_i have orthonormal columns, uniform among all such (QR of a Gaussian matrix, the diagonal of R positive).
    The SINGULAR values of Z_i, with the eigengap nu: 1, 1 - nu, 1 - 1.1 nu, 1 - 1.2 nu, 1 - 1.3 nu, 1 - 1.4 nu and
    then |y| / D, y standard normal, drawn by every agent. So Z_i^T Z_i / N_i has the leading eigenvalue 1 / N_i, and no
    record is longer than 1.

    ``spectrum``: ``"source"`` as above, the generator that the paper took over; ``"printed"`` as the paper prints it,
    without 1 - nu. ``shared_basis``: all agents have the same V (one leading eigenvector for all), or each its own, as
    printed (their average is nearly isotropic).
    Shapes: float64 [agents, records, D], D the ``dimension`` (6 or 5 at least), records at least D.
    Raises: TypeError, ValueError. Source: Huang et al. 2024, section 6.1.
    """
    leading = SPECTRA[spectrum]
    arguments.integer("dimension", dimension, len(leading))
    arguments.integer("records", records, dimension)
    arguments.real("eigengap", eigengap, above=0.0, maximum=0.5)
    rngs = [stream(seed, "eigengap records", client=i) for i in range(agents)]
    left = _orthonormal(torch.stack([normal((records, dimension), rng) for rng in rngs]))
    tails = torch.stack([normal((dimension - len(leading),), rng) for rng in rngs]).abs() / dimension
    heads = 1 - eigengap * torch.tensor(leading, dtype=torch.float64)
    values = torch.cat([heads.expand(agents, -1), tails], 1)
    bases = [stream(seed, "eigengap basis", client=i) for i in ([-1] if shared_basis else range(agents))]
    right = _orthonormal(torch.stack([normal((dimension, dimension), rng) for rng in bases]))
    return (left * values[:, None]) @ right.mT


def directional_records(agents: int, records: int, dimension: int = 10, variance: float = 9.0, seed: int = 0) -> Tensor:
    """Directions with one preferred axis: N(0, diag(variance, 1, ..., 1)), every record scaled to length 1.

    The length is a public bound: the clip norm 1 clips no gradient of -(z^T x)^2 for unit x. The leading eigenvector
    is the first axis, up to the sample.
    Shapes: float64 [agents, records, dimension].
    """
    z = torch.stack([normal((records, dimension), stream(seed, "directions", client=i)) for i in range(agents)])
    z[..., 0] *= math.sqrt(variance)
    return z / torch.linalg.vector_norm(z, dim=-1, keepdim=True)


def wishart_records(count: int, size: int = 2, radius: float = 1.0, seed: int = 0) -> Tensor:
    """Positive definite matrices: the Wishart law W(I / n, n) within the open ball of ``radius`` around I.

    G G^T / n with G [n, n] standard normal, drawn until the affine-invariant distance |log Z|_F from I is below the
    radius. Of 2x2 matrices 9.74 % are kept at radius 1.
    Shapes: float64 [count, n, n], n the ``size`` (1 to 4: in higher dimensions nearly nothing lies near I).
    Raises: ValueError (a ball that 10 million draws do not fill).
    Source: Huang et al. 2024, section 6.2.
    """
    kept, accepted = [], 0
    for block in range(PROPOSALS // BLOCK):
        factors = normal((BLOCK, size, size), stream(seed, "wishart records", round=block))
        matrices = factors @ factors.mT / size
        # the squares of the factors' singular values: no eigenvalue is ever rounded below zero
        distance = torch.linalg.vector_norm(2 * torch.linalg.svdvals(factors).log() - math.log(size), dim=-1)
        kept.append(matrices[distance < radius])
        accepted += len(kept[-1])
        if accepted >= count:
            return torch.cat(kept)[:count]
    text = f"a ball that holds {count:,} of {PROPOSALS:,} draws ({accepted:,} were found)"
    raise arguments.wrong(ValueError, "radius", radius, text)


def hyperbolic_ball_records(count: int, dimension: int = 2, radius: float = 1.0, seed: int = 0) -> Tensor:
    """Points of hyperbolic space within ``radius`` of the origin: Exp_o(v), v UNIFORM in the tangent space's ball.

    The law of the distance r from the origin is thus (r / radius)^d, flat; uniform by hyperbolic volume would put
    more points near the edge. Two points are at most 2 radius apart.
    Shapes: float64 [count, dimension + 1], the hyperboloid's coordinates, time first. ``radius`` at most 10: beyond,
    float64 no longer tells near points apart.
    """
    direction = normal((count, dimension), stream(seed, "hyperbolic ball directions"))
    direction /= torch.linalg.vector_norm(direction, dim=-1, keepdim=True)
    level = torch.from_numpy(stream(seed, "hyperbolic ball radii").random(count))[:, None]
    distance = radius * level ** (1 / dimension)
    return torch.cat([distance.cosh(), distance.sinh() * direction], 1)


def _orthonormal(gaussian: Tensor) -> Tensor:
    """The Q of a QR decomposition with positive diagonal of R: uniform (Haar) if the entries are standard normal."""
    q, r = torch.linalg.qr(gaussian)
    return q * r.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]

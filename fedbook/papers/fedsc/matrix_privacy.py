"""What it costs to upload a client's correlation matrix with noise, once or many times.

The matrix is the mean over the client's n samples of z z^T, averaged over a sample's views, where |z|^2 <= mu: a
sample's part is positive semi-definite with a trace of at most mu. Every entry gets N(0, sigma^2). What is protected
is a sample, against who sees the matrices and nothing else that depends on it: FedSC sends the weights of its encoder
in clear, so its epsilon is not one of the whole. The network must treat each sample by itself; statistics of the batch
would let one sample move all z.
"""

from __future__ import annotations

import math

from fedbook import arguments
from fedbook.privacy.gaussian import calibrate, exact_epsilon, gaussian_mu, gaussian_rdp_epsilon
from fedbook.privacy.release import ADJACENCIES

READINGS = ("exact", "rdp", "rdp-classic", "paper", "paper-printed")


def matrix_sensitivity(mu: float, size: int, adjacency: str = "replace_one") -> float:
    """How far the matrix moves at most, in the Frobenius norm, between neighbouring data sets.

    mu / n for ``zero_out`` (the sample's part vanishes, n stays). sqrt(2) mu / n for ``replace_one`` and for
    ``add_remove`` (the mean is over as many samples as there are; n of the larger set): |A - B|^2 <= |A|^2 + |B|^2 as
    the product of two positive semi-definite matrices has no negative trace. The first two are attained, the third as
    the others' samples agree. ``mu=math.inf`` (no clipping) gives infinity.
    Raises: TypeError, ValueError. Source: FedSC, proposition 6.6 (``zero_out``); the others are ours.
    """
    arguments.one_of("adjacency", adjacency, ADJACENCIES)
    mu, size = arguments.real("mu", mu, above=0.0, infinite=True), arguments.integer("size", size, 1)
    return mu / size * (1.0 if adjacency == "zero_out" else math.sqrt(2))


def matrix_epsilon(
    sigma: float, mu: float, size: int, uploads: int, delta: float, adjacency: str = "replace_one",
    accountant: str = "exact",
) -> float:  # fmt: skip
    """Epsilon at ``delta`` of ``uploads`` matrices of a client of ``size`` samples; infinite for sigma = 0.

    ``uploads``: how many the client has sent, not how many rounds there were. ``accountant``: "exact" (the smallest
    there is), "rdp" (Renyi, improved conversion), "rdp-classic" (the paper's conversion, a closed form); with this
    ``adjacency``. "paper": proposition 6.6 as it is proved, "rdp-classic" for ``zero_out`` whatever the adjacency;
    "paper-printed": as it is stated, without the division by the client's size.
    Raises: TypeError, ValueError. Source: FedSC, proposition 6.6; Balle, Wang 2018, theorem 8 (exact).
    """
    sensitivity, accountant = _reading(mu, size, adjacency, accountant)
    shift = gaussian_mu(sigma / sensitivity, uploads)
    if accountant == "exact":
        return exact_epsilon(shift, delta)
    return gaussian_rdp_epsilon(shift, delta, "improved" if accountant == "rdp" else "classic")[0]


def matrix_sigma(
    epsilon: float, mu: float, size: int, uploads: int, delta: float, adjacency: str = "replace_one",
    accountant: str = "exact",
) -> float:  # fmt: skip
    """The smallest noise on each entry with which ``uploads`` matrices stay within (``epsilon``, ``delta``).

    The inverse of :func:`matrix_epsilon`, rounded up: the epsilon shown for it never exceeds the target. 0 for no
    upload. Raises: TypeError, ValueError.
    """
    sensitivity, word = _reading(arguments.real("mu", mu, above=0.0), size, adjacency, accountant)
    sigma, step = sensitivity * calibrate(epsilon, delta, max(uploads, 1), word), 2.0**-52  # checks its arguments too
    if uploads == 0:
        return 0.0
    while matrix_epsilon(sigma, mu, size, uploads, delta, adjacency, accountant) > epsilon:  # the last digits
        sigma, step = sigma * (1 + step), 2 * step
    return sigma


def _reading(mu: float, size: int, adjacency: str, accountant: str) -> tuple[float, str]:
    """The sensitivity and the Gaussian accountant that a word of ``READINGS`` stands for."""
    sensitivity = matrix_sensitivity(mu, size, adjacency)
    if arguments.one_of("accountant", accountant, READINGS) == "paper":
        return matrix_sensitivity(mu, size, "zero_out"), "rdp-classic"
    if accountant == "paper-printed":
        return matrix_sensitivity(mu, 1, "zero_out"), "rdp-classic"
    return sensitivity, accountant

"""Witnesses of chapter 1's errata about privacy and experiments; the list is in chapter01_errata.

A witness returns the number that is found and the number that the paper's statement promises.
"""

from __future__ import annotations

import math
from itertools import combinations, product

import torch
from torch import Tensor

from fedbook.lab import chapter01_paper as paper
from fedbook.papers.fedsc.spectral import correlation
from fedbook.randomness import normal, stream

LEAST_SVHN, FIRST_CIFAR, SECOND_CIFAR = paper.TABLE_6[0], paper.TABLE_6[6], paper.TABLE_6[7]
SVHN_DIGITS = (4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659)  # training images of 0 to 9

# --- privacy


def size_forgotten() -> tuple[float, float]:
    """Table 6's first row: epsilon by Proposition 6.6 as it is stated, and as claimed."""
    found = paper.epsilons(LEAST_SVHN)
    return found.printed, found.claimed


def another_sensitivity() -> tuple[float, float]:
    """The same row by the proposition with the mu / n of its proof, and as claimed (which is the sqrt(2) mu / n)."""
    found = paper.epsilons(LEAST_SVHN)
    return found.proved, found.claimed


def above_the_claim() -> tuple[float, float]:
    """CIFAR-10 (3, 1e-4): epsilon by the paper's formula where one sample is replaced, and as claimed."""
    found = paper.epsilons(FIRST_CIFAR)
    return found.replace, found.claimed


def replaced_sample() -> tuple[float, float]:
    """n = 8, mu = 4, H = 2: the largest move of the matrix over pairs of directions of a replaced sample; mu / n."""
    n, mu = 8, 4.0
    angles = torch.arange(24, dtype=torch.float64) * math.pi / 24
    z = math.sqrt(mu) * torch.stack([angles.cos(), angles.sin()], 1)
    each = torch.einsum("ni,nj->nij", z, z) / n
    return max(float((a - b).norm()) for a, b in combinations(each, 2)), mu / n


def added_sample() -> tuple[float, float]:
    """n = 8, mu = 4: a sample of another direction joins the other seven, each mean by its own size; mu / n."""
    mu = 4.0
    z = math.sqrt(mu) * torch.tensor([[1.0, 0.0]] * 7 + [[0.0, 1.0]], dtype=torch.float64)
    with_it, without = _matrix(z), _matrix(z[:7])
    return float((with_it - without).norm()), mu / len(z)


def weights_in_clear() -> tuple[float, float]:
    """A step of (5) with the same noisy matrix, one sample replaced: the largest change of the uploaded weights."""
    theta, x = normal((3, 2), stream(0, "weights")), normal((6, 3), stream(0, "samples"))
    neighbour = torch.cat([x[:5], -2 * x[5:].flip(1)])
    others = _matrix(normal((9, 2), stream(0, "others"))) + 0.1 * normal((2, 2), stream(0, "noise"))
    return float((_local_step(theta, x, others) - _local_step(theta, neighbour, others)).abs().max()), 0.0


def many_disclosed() -> tuple[float, float]:
    """Samples that a mechanism with (0, delta) may publish in full, on average, at Table 6's largest delta n."""
    return max(row.delta * paper.SIZE[row.data] for row in paper.TABLE_6), 1.0


def partial_participation() -> tuple[float, float]:
    """CIFAR-10 2/10 (8, 1e-4): mean epsilon of a client by its own uploads, paper's formula; as claimed."""
    clients, sampled = paper.CLIENTS[SECOND_CIFAR.data]
    later, p, mean = len(SECOND_CIFAR.sharing_rounds) - 1, sampled / clients, 0.0
    for k in range(later + 1):  # all upload in the first sharing round
        weight = math.comb(later, k) * p**k * (1 - p) ** (later - k)
        mean += weight * paper.epsilons(SECOND_CIFAR, 1 + k).replace
    return mean, SECOND_CIFAR.epsilon


def uploads_of_a_client() -> tuple[float, float]:
    """J = 5, 2 of them a round, 3 rounds, all 1,000 sequences: mean uploads of client 1; rounds of the bullet's T."""
    cohorts = list(combinations(range(5), 2))
    counts = [1 + sum(0 in cohort for cohort in later) for _, *later in product(cohorts, repeat=3)]
    return sum(counts) / len(counts), 3.0


def batch_norm() -> tuple[float, float]:
    """Ten numbers normalised over the batch, clipped to mu = 1, one replaced: move of the matrix; sqrt(2) mu / n."""
    x = torch.tensor([-1.0, 1.0] * 5, dtype=torch.float64)
    outlier = torch.cat([x[:9], torch.tensor([1000.0], dtype=torch.float64)])
    matrices = []
    for batch in (x, outlier):
        z = (batch - batch.mean()) / batch.std(correction=0)
        matrices.append(float(z.clamp(-1, 1).square().mean()))
    return abs(matrices[0] - matrices[1]), math.sqrt(2) / 10


def negative_contrast() -> tuple[float, float]:
    """Inter-client term, noise of 0.5 on a matrix of norm 1, z along the least eigenvector of its symmetric part."""
    matrix = torch.zeros(8, 8, dtype=torch.float64)
    matrix[0, 0] = 1.0
    noisy = matrix + 0.5 * normal((8, 8), stream(0, "matrix noise"))
    z = torch.linalg.eigh((noisy + noisy.mT) / 2).eigenvectors[:, 0]
    return float((torch.outer(z, z) * noisy).sum()), 0.0


def symmetric_noise() -> tuple[float, float]:
    """H = 8, sigma 1: mean square of the part of the noise that loss and gradient see (symmetric); H^2 sigma^2."""
    width = 8
    units = torch.eye(width * width, dtype=torch.float64).view(-1, width, width)
    return float(((units + units.mT) / 2).square().sum()), float(width**2)


def noise_by_clients() -> tuple[float, float]:
    """Squared noise of the averaged gradient at fixed weights, the same data at all clients: J = 10 over J = 100."""
    return _gradient_noise(10) / _gradient_noise(100), 1.0


# --- experiments


def weight_without_matrix() -> tuple[float, float]:
    """CIFAR-10, matrices from round 151 on: the largest 1 - alpha of appendix C's schedule before there is one."""
    before = FIRST_CIFAR.sharing_rounds[0] - 1
    return max(0.8 * (t - 1) / (paper.ROUNDS - 1) for t in range(1, before + 1)), 0.0


def first_matrices_unused() -> tuple[float, float]:
    """Round 1 with alpha = 1: change of a client's gradient (80) when the others' uploaded matrices are exchanged."""
    z = normal((5, 2), stream(0, "first round"))
    slopes = [_local_slope(z, _matrix(normal((4, 2), stream(k, "uploads"))), 1.0) for k in (0, 1)]
    return float((slopes[0] - slopes[1]).norm()), math.inf


def last_alpha() -> tuple[float, float]:
    """The public release's coefficient in the last of 200 rounds, counted from 0 and divided by 200."""
    return min(1 - 0.8 * t / paper.ROUNDS for t in range(paper.ROUNDS)), 0.2


def steps_of_a_round() -> tuple[float, float]:
    """CIFAR-10: SGD steps of a client in a round; Theorem 6.10's E."""
    batches = torch.arange(paper.SIZE["CIFAR-10"]).split(paper.BATCH_SIZE["CIFAR-10"])
    return float(paper.LOCAL_EPOCHS * len(batches)), float(paper.LOCAL_EPOCHS)


def views_of_a_sample() -> tuple[float, float]:
    """V = 2 in section 5.2's formula, one sample, z^2 is 0 or 2: variance of z^2 over that of its mean; V."""
    views = 2 * paper.VIEWS
    means = torch.tensor([sum(v) / views for v in product((0.0, 2.0), repeat=views)], dtype=torch.float64)
    return 1.0 / float(means.var(correction=0)), float(paper.VIEWS)


def twice_the_loss() -> tuple[float, float]:
    """The public release's loss, -2 E z.z+ + E (z.z-)^2 over pairs, over that of section 3."""
    z = normal((6, 3), stream(0, "pairs"))
    pairs = (z @ z.mT).square().mean()
    paper_loss = -z.square().sum(1).mean() + 0.5 * _matrix(z).square().sum()
    return float((-2 * z.square().sum(1).mean() + pairs) / paper_loss), 1.0


def svhn_size() -> tuple[float, float]:
    """SVHN's digits in pairs (0, 1) to (8, 9), as in the public release: the smallest local set; of 10,000 each."""
    return float(min(sum(SVHN_DIGITS[k : k + 2]) for k in range(0, 10, 2))), float(paper.SIZE["SVHN"])


def same_runs() -> tuple[float, float]:
    """Partial participation, Table 5's epsilon 8 against delta 1e-2: equal cells; settings of equal sigma."""
    sigma = {(row.data, row.epsilon, row.delta): row.sigma for row in paper.TABLE_6}
    equal = noise = 0
    for data in paper.CLIENTS:
        strict = paper.PRIVATE[5, data, True][8]
        for (table, name, partial), cells in paper.PRIVATE.items():
            for epsilon, cell in cells.items():
                if table < 5 and name == data and partial and cell == strict:
                    equal += 1
                    noise += sigma[data, 8, 1e-4] == sigma[data, epsilon, 1e-2]
    return float(equal), float(noise)


def third_remark() -> tuple[float, float]:
    """CIFAR-10, points lost under partial participation: FedSC, and the most that a method without matrices loses."""
    lost = paper.drops("CIFAR-10")
    return lost["fedsc"], max(points for name, points in lost.items() if name not in ("fedsc", "fedca"))


def margins_within() -> tuple[float, float]:
    """Tables 3 to 5: private cells whose margin over FedAvg+SC is at most the larger deviation."""
    return float(sum(m.within for m in paper.margins())), 0.0


def gain_lost() -> tuple[float, float]:
    """SVHN 2/5, epsilon 3, delta 1e-4: share of FedSC's gain over FedAvg+SC that the noise takes."""
    return max(m.lost for m in paper.margins()), 0.0


def _matrix(z: Tensor) -> Tensor:
    """R where all views of a sample agree. Shapes: ``z`` [N, H]; result [H, H]."""
    return correlation(z[:, None])


def _local_loss(z: Tensor, others: Tensor, alpha: float) -> Tensor:
    """(80) where all views of a sample agree. Shapes: ``z`` [N, H]."""
    own = _matrix(z)
    return -z.square().sum(1).mean() + 0.5 * alpha * own.square().sum() + (1 - alpha) * (own * others).sum()


def _local_slope(z: Tensor, others: Tensor, alpha: float) -> Tensor:
    return torch.func.grad(_local_loss)(z, others, alpha)


def _local_step(theta: Tensor, x: Tensor, others: Tensor) -> Tensor:
    slope = torch.func.grad(lambda t: _local_loss((x @ t).tanh(), others, 0.5))(theta)
    return theta - 0.1 * slope


def _gradient_noise(clients: int) -> float:
    """Sum over noise entries of the squared coefficient with which they enter the mean gradient (sigma 1).

    One weight t, z = t x; a client's share is sum_ab dR/dt_ab (sum of the others' q N)_ab.
    """
    x = normal((5, 3), stream(0, "noise of clients"))
    noise = torch.zeros(clients, 3, 3, dtype=torch.float64, requires_grad=True)
    others = (noise.sum(0) - noise) / clients  # (1 - q) R_-j, its noise
    slope = 2 * _matrix(x)  # of R at t = 1
    mean = (slope * others).sum() / clients
    (coefficients,) = torch.autograd.grad(mean, noise)
    return float(coefficients.square().sum())

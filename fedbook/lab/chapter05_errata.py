"""Chapter 5's errata: what C-VFL's paper states that does not hold or does not follow, each with a witness.

A witness returns the number that is found and the number that the statement promises; ``ERRATA`` has those
that change conclusions first.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import combinations

import torch

from fedbook.lab import chapter05_paper as paper
from fedbook.lab.errata import Erratum, errata_text
from fedbook.papers.cvfl.accounts import index_bits

ROOT3 = math.sqrt(3)

# --- compressors


def lattice_error() -> tuple[float, float]:
    """Mean square error per component of the hexagonal lattice with cells of area 1, and the paper's V / 24."""
    corner = math.sqrt(2 / (3 * ROOT3))  # |corner| of a hexagon of area 1 = six triangles 0, a, b
    angles = torch.arange(7, dtype=torch.float64) * math.pi / 3
    corners = corner * torch.stack([angles.cos(), angles.sin()], 1)
    a, b = corners[:-1], corners[1:]
    area = (a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]) / 2
    square = (area / 6 * (a.square() + b.square() + a * b).sum(1)).sum()  # integral of |x|^2 over a triangle
    return float(square) / 2, 1 / 24


def kept_by_gradient() -> tuple[float, float]:
    """h = (1, 0), loss 0.1 h_1 + h_2: squared error if the component of larger derivative is kept; (1 - k/P) |h|^2."""
    h, slope = torch.tensor([1.0, 0.0]), torch.tensor([0.1, 1.0])
    kept = torch.where(slope.abs() == slope.abs().max(), h, 0.0)
    return float((kept - h).square().sum()), (1 - 1 / 2) * float(h.square().sum())


def _scalar_error(h: float, first: float, delta: float, dithered: bool = True) -> float:
    """Mean square error at h of 4 levels from ``first``, ``delta`` apart; without dither: the square itself."""
    u = delta * ((torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000 - 0.5) * dithered
    code = ((h + u - first) / delta + 1e-12).round().clamp(0, 3)
    return float((first + delta * code - u - h).square().mean())


def endpoint_levels() -> tuple[float, float]:
    """2 bits on [0, 1], levels from end to end (nothing overloads), dither: error per component, and W^2/12 4^-2."""
    return _scalar_error(0.3, 0.0, 1 / 3), 4.0**-2 / 12


def bin_levels() -> tuple[float, float]:
    """2 bits on [0, 1], four bins of 1/4 with dither, the value at the end of the range: error per component."""
    return _scalar_error(1.0, 1 / 8, 1 / 4), 4.0**-2 / 12


def no_dither() -> tuple[float, float]:
    """The same bins without dither, a value at the edge of a bin."""
    return _scalar_error(0.5, 1 / 8, 1 / 4, dithered=False), 4.0**-2 / 12


def clipped_negatives() -> tuple[float, float]:
    """The public release, scalar, 2 bits: values / max, dither, clipped to [0, 1]; error over that on [-1, 1].

    For values spread evenly over [-1, 1].
    """
    spread = (torch.arange(500, dtype=torch.float64) + 0.5) / 500
    h = (2 * spread - 1)[:, None]
    errors = []
    for low in (0.0, -1.0):
        delta = (1 - low) / 3
        u = (spread - 0.5) * delta
        level = low + delta * ((h + u - low) / delta).round().clamp(0, 3)
        errors.append(float((level - u - h).square().mean()))
    return errors[0] / errors[1], 1.0


def joint_cells() -> tuple[float, float]:
    """Table 4 at 2 bits: scalar's cost over vector's; beside it what hexagons gain over squares in squared error."""
    cost = {row.compressor: row.cost[0] for row in paper.TABLES["ModelNet10"] if row.bits == 2}
    return cost["scalar"] / cost["vector"], (1 / 12) / (5 / (36 * ROOT3))


def scalar_rate() -> tuple[float, float]:
    """Table 1's q = Omega(log2 x), x = B P W^2 sqrt(T), with the factor 1/4: growth of sqrt(T) E, T 10^4 to 10^8."""
    x = [100 * 32 * math.sqrt(t) for t in (1e4, 1e8)]
    scaled = [v / 12 * 2 ** (-2 * math.log2(v) / 4) for v in x]
    return scaled[1] / scaled[0], 1.0


def kept_rate() -> tuple[float, float]:
    """Table 1's k = Omega(P - P / (B |h|^2 sqrt(T))) with the factor 1/2: growth of sqrt(T) E, T 10^4 to 10^8."""
    share = [0.5 * (1 - 1 / (100 * math.sqrt(t))) for t in (1e4, 1e8)]  # k / P for B = 100 and |h| = 1
    return math.sqrt(1e8 / 1e4) * (1 - share[1]) / (1 - share[0]), 1.0


def batch_forgotten() -> tuple[float, float]:
    """Appendix B's V = 1 / (G P sqrt(T)), B = 100: sqrt(T) times the error of the batch that A.2's E counts."""
    moment, batch, width, rounds = 5 / (36 * ROOT3), 100, 32, 10_000
    cell = 1 / (moment * width * math.sqrt(rounds))
    return math.sqrt(rounds) * batch * width * moment * cell, 1.0


def ranking() -> tuple[float, float]:
    """Appendix B ranks by d h_m / d theta_m: its change when the other party's embedding moves by 5.

    The derivative of the loss by h_m, which is meant, moves by 5 here.
    """
    jacobians = []
    for other in (0.0, 5.0):
        theta = torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True)
        embeddings = torch.stack([(theta * torch.tensor([1.0, 2.0])).sum().tanh(), torch.tensor(other).double()])
        jacobians.append(torch.autograd.grad(embeddings[0], theta)[0])  # no loss, no other party in it
    return float((jacobians[1] - jacobians[0]).norm()), math.inf


def index_uncounted() -> tuple[float, float]:
    """Top-k at 2 bits on P = 4096, each vector with its own set: bits of a kept value, charged 32."""
    kept = 4096 * 2 // 32
    return (32 * kept + min(index_bits(form, 1, 4096, kept) for form in ("list", "bitmap"))) / kept, 32.0


def kept_is_no_number() -> tuple[float, float]:
    """k = P b / 32 on MIMIC-III and CIFAR-10 at 3 bits (P = 16 in the public release), and what can be kept."""
    return 16 * 3 / 32, float(16 * 3 // 32)


# --- convergence


def diagonal_hessian() -> tuple[float, float]:
    """Lemma 1, F = h_1 h_2, error 1/2 in h_2: |change of grad_1 F|^2, and H_1^2 G_1^2 E_2 with (2)'s own block."""
    h, error = torch.tensor([0.7, -0.4], dtype=torch.float64, requires_grad=True), 0.5
    (slopes,) = torch.autograd.grad(h[0] * h[1], h, create_graph=True)
    (row,) = torch.autograd.grad(slopes[0], h)  # second derivatives of F by h_1 and by h_1, h_2
    moved = h.detach() + torch.tensor([0.0, error], dtype=torch.float64)
    change = moved[1] - slopes[0]  # grad_1 F = h_2
    return float(change.detach() ** 2), float(row[0]) ** 2 * error**2


def split_learning() -> tuple[float, float]:
    """Algorithm 2, one party, F = (h - 0.8)^2 / 2, h rounded on its way up, step 1/16, T = 20,000: mean |grad F|^2.

    No server parameters and E_0 = 0: Theorem 4.2 leaves only its first term.
    """
    h, lr, steps, total = 0.0, 1 / 16, 20_000, 0.0
    gap = 0.5 * (h - 0.8) ** 2
    for _ in range(steps):
        total += (h - 0.8) ** 2
        h -= lr * (round(h) - 0.8)  # the server knows the rounded h only
    return total / steps, 4 * (gap - 0.5 * (h - 0.8) ** 2) / (lr * steps)


def algorithm_2_step() -> tuple[float, float]:
    """(h_1 + h_2 - 1)^2 / 2 at (0.4, 0.3), rounding: party 1's derivative by Algorithm 2, by Algorithm 1 with Q = 1."""
    h1, h2 = 0.4, 0.3
    return round(h1) + round(h2) - 1.0, h1 + round(h2) - 1.0


def server_step() -> tuple[float, float]:
    """(theta_0 h - 1)^2 / 2 at (0.4, 1), theta_0 rounded: the server's derivative by Algorithm 2, by Algorithm 1."""
    theta, h = 0.4, 1.0
    return (round(theta) * h - 1.0) * h, (theta * h - 1.0) * h


def unlike_samples() -> tuple[float, float]:
    """Theorem 4.2, samples with gradients c + sin x and c - sin x, c = 0.01, Q 10, R 4: mean |grad F|^2; the bound.

    Exact, over all 16 sequences of batches of one. The gradient of F is the constant c: every L > 0 is allowed
    (1e-6 here); L_1 = 1, sigma^2 = 1, step 1/(16 Q), no compression.
    """
    c, local, rounds, smoothness = 0.01, 10, 4, 1e-6
    lr = 1 / (16 * local)
    signs = torch.tensor([[1.0 if path >> r & 1 else -1.0 for r in range(rounds)] for path in range(2**rounds)])
    start = x = torch.full((2**rounds,), math.pi / 4, dtype=torch.float64)
    for r in range(rounds):
        for _ in range(local):
            x = x - lr * (c + signs[:, r] * x.sin())
    fall = c * float((start - x).mean())
    return c**2, 4 * fall / (lr * rounds * local) + 6 * lr * local * smoothness


def bounded_error() -> tuple[float, float]:
    """Algorithm 1, two parties, (h_1 + h_2 - 0.8)^2 / 2, h rounded, Q 1, T 40,000, step 1/sqrt(T): mean |grad F|^2.

    Beside it the first term of (8), the part that falls with T.
    """
    steps, h, total = 40_000, 0.0, 0.0  # both parties hold the same number
    lr = 1 / math.sqrt(steps)
    for _ in range(steps):
        total += 2 * (2 * h - 0.8) ** 2
        h -= lr * (h + round(h) - 0.8)
    return total / steps, 4 * (0.32 - 0.5 * (2 * h - 0.8) ** 2) * lr


def noise_constant() -> tuple[float, float]:
    """(A.92), L_m = 100 L, largest step, Q = 1: factor of L eta sigma^2 / B by (A.91), (A.82) corrected; at most."""
    smoothness, block, lr = 1.0, 100.0, 1 / 1600
    return 8 / 3 * (1 + 8 * block**2 * lr / smoothness + 16 * block**2 * lr**2), 6.0


def compression_constant() -> tuple[float, float]:
    """(A.92) at the largest step: 86 (1 + 2 L Q eta), said to be at most 92.

    The theorem's 92 stands: Lemma 2's 64 Q^3 can be 36 Q^3, and then the factor is 54.
    """
    return 86 * (1 + 2 / 16), 92.0


def descent_constant() -> tuple[float, float]:
    """(A.83) at Q = L = L_m = 1, step 1/16: what (A.81) leaves of 1 in front of |grad_m F|^2; at least."""
    lr = 1 / 16
    return 1 - 2 * lr - 16 * lr**2 * (1 + 2 * lr), 1 - 1 / 8 - 1 / 16 - 1 / 16**2


def noise_of_a_round() -> tuple[float, float]:
    """(A.82), Q = L = L_m = 1, step 1/16: factor of sigma^2 / B in (A.81); at most."""
    lr = 1 / 16
    return lr**2 + 8 * lr**3 * (1 + 2 * lr), lr**2 + 8 * lr**3 + 8 * lr**4


def compression_halved() -> tuple[float, float]:
    """(A.83): its factor of Q^3 eta (1 + 2 L Q eta) sum H^2 G^2 |E|^2 in the line before; at most."""
    return 32.0, 16.0


def rising_loss() -> tuple[float, float]:
    """(A.85), a round in which F rises by 1: 8/3 of the fall follows from (A.84); at most 4 times the fall."""
    return 8 / 3 * -1.0, 4 * -1.0


def rounds_divided() -> tuple[float, float]:
    """(A.90), x^2 / 2 from 1, Q = 1, step 1/16, R = 100, no noise: sum of eta |grad F|^2; at most."""
    lr, x, total = 1 / 16, 1.0, 0.0
    for _ in range(100):
        total += lr * x**2
        x -= lr * x
    return total, 4 * (0.5 - 0.5 * x**2) / 100


def grown_error() -> tuple[float, float]:
    """(A.50) one step in, Q = 4, A = 1, B_0 + B_1 = 1: A by the recursion (A.46); at most."""
    growth = 1 + 2 / 4
    return growth * 1.0 + 1.0, growth**0 * 1.0 + 0.0


def one_step_short() -> tuple[float, float]:
    """(A.72) with t_0^+ = t_0 + Q - 1, x^2 / 2 at 1, Q = 2, step 0.1: <grad F, move>, and the sum said to equal it."""
    x, lr = [1.0, 0.9, 0.81], 0.1
    return x[0] * (x[1] - x[0]), -sum(x[0] * lr * slope for slope in x[:2])


def turned_sign() -> tuple[float, float]:
    """(A.76), grad F = 1, G = 1, compressed G = 0: first term of (A.75) and of (A.76), said to be equal."""
    return -1.0 * (0.0 - 1.0), -1.0 * (1.0 - 0.0)


def square_forgotten() -> tuple[float, float]:
    """(A.14), F = h_1 h_2 (H = G = 1), error 3: |J R|^2; at most H^2 G^2 |E|."""
    return 3.0**2, 3.0


# --- experiments


def uploads_counted() -> tuple[float, float]:
    """Table 4: MB of an uncompressed epoch, the largest that makes all ten costs means of five whole numbers of epochs.

    Beside it the messages of Algorithm 1: uploads once, embeddings and server model to each party.
    """
    costs = [round(5 * row.cost[0] * 32 / row.bits * 100) for row in paper.TABLES["ModelNet10"] if row.cost]
    return math.gcd(*costs) / 100, paper.epoch_cost("ModelNet10", 32, "literal")


def derivatives_charged() -> tuple[float, float]:
    """Table D.1, Q = 1, 3 bits: MB of an epoch with the returned derivatives as floats, and as charged."""
    cost = [paper.epoch_cost("MIMIC-III", 3, account) for account in ("algorithm2_honest", "algorithm2")]
    return cost[0], cost[1]


def too_many_epochs() -> tuple[float, float]:
    """Table 5, 200 ms, Q = 1: its mean time in epochs of 15 rounds, and the epochs of a run."""
    return paper.TABLE_5[200][1][0] / (0.2 + 0.01) / math.ceil(14_681 / 1000), 1000.0


def runs_in_the_mean() -> tuple[float, float]:
    """Table 5, Q = 25: the only number of runs up to five that has its mean and deviation in whole epochs."""
    return float(paper.rounds_of_table_5()[25][1]), 5.0


def similar_accuracy() -> tuple[float, float]:
    """Table 3: points by which scalar at 2 bits stays below none, and its standard deviation."""
    best = {(row.compressor, row.bits): row.best for row in paper.TABLES["CIFAR-10"]}
    return best["none", 32][0] - best["scalar", 2][0], best["scalar", 2][1]


def within_a_deviation() -> tuple[float, float]:
    """Table 2: the largest difference of two F1 scores over the larger of their deviations."""
    pairs = combinations([row.best for row in paper.TABLES["MIMIC-III"]], 2)
    return max(abs(a[0] - b[0]) / max(a[1], b[1]) for a, b in pairs), 1.0


def fewer_bits_cheaper() -> tuple[float, float]:
    """Table 4: MB to the target by scalar at 2 bits, and at 3."""
    cost = {row.bits: row.cost[0] for row in paper.TABLES["ModelNet10"] if row.compressor == "scalar"}
    return cost[2], cost[3]


def steadier_with_bits() -> tuple[float, float]:
    """Table 2: deviation of F1 by scalar at 4 bits, and at 2."""
    best = {row.bits: row.best[1] for row in paper.TABLES["MIMIC-III"] if row.compressor == "scalar"}
    return best[4], best[2]


def same_setting_twice() -> tuple[float, float]:
    """None, Q = 10 on MIMIC-III to F1 = 0.4, MB: Table D.1, and Table 2."""
    return paper.TABLE_D1["none", 32][10][0], paper.TABLES["MIMIC-III"][0].cost[0]


def one_quadrant() -> tuple[float, float]:
    """Pixels that move the joint model's output, four quadrants of 32 x 32; 'only a quadrant' has 256."""
    image = torch.ones(32, 32, dtype=torch.float64, requires_grad=True)
    quadrants = [image[:16, :16], image[:16, 16:], image[16:, :16], image[16:, 16:]]
    embeddings = torch.stack([(0.01 * q).sum().tanh() for q in quadrants])
    (slopes,) = torch.autograd.grad(embeddings @ torch.ones(4, dtype=torch.float64), image)
    return float((slopes != 0).sum()), 256.0


ERRATA: tuple[Erratum, ...] = (
    ("Table 1, hexagonal lattice, cell V = 1: squared error per component; at most V / 24", lattice_error),
    ("Lemma 1 with (2)'s Hessian block of h_m alone, F = h_1 h_2: left side; at most", diagonal_hessian),
    ("Theorem 4.2 'applies to Split Learning': mean |grad F|^2 of Algorithm 2, T 20,000; at most", split_learning),
    ("Theorem 4.2, two samples of unlike curvature (L_m > L), no compression: left side; at most", unlike_samples),
    ("Table 4: MB of an epoch in its costs; sent by Algorithm 1. Uploads count M times", uploads_counted),
    ("top-k by derivative, h = (1, 0): squared error; at most (1 - k/P) |h|^2", kept_by_gradient),
    ("scalar, 2 bits, levels from end to end, dither: squared error; at most W^2/12 4^-q", endpoint_levels),
    ("scalar, 2 bits, bins, dither, value at the range's end: squared error; at most", bin_levels),
    ("scalar, 2 bits, bins, no dither, value at a bin's edge: squared error; at most", no_dither),
    ("'mathematically equivalent' at Q = 1: derivative of party 1, Algorithm 2; Algorithm 1", algorithm_2_step),
    ("the same, server's derivative with line 7's compressed theta_0; Algorithm 1", server_step),
    ("abstract, rate 1/sqrt(T) when the error is bounded: mean |grad F|^2, T 40,000; at most", bounded_error),
    ("vector wins by 'components jointly': Table 4's cost ratio; hexagons gain in error", joint_cells),
    ("public release (not the paper) clips negatives, scalar, 2 bits: error over signed range's", clipped_negatives),
    ("'in all cases .. similar accuracy': Table 3, scalar b 2 below none, points; its deviation", similar_accuracy),
    ("Table D.1, Algorithm 2, 3 bits: MB of an epoch with 32-bit derivatives; charged", derivatives_charged),
    ("Table 1, q = Omega(log2 ..) with factor 1/4: growth of sqrt(T) E, T 10^4 to 10^8; at most", scalar_rate),
    ("Table 1, k = Omega(..) with factor 1/2: growth of sqrt(T) E, T 10^4 to 10^8; at most", kept_rate),
    ("appendix B leaves out B (100): sqrt(T) E_m with its V; at most", batch_forgotten),
    ("appendix B ranks by d h_m / d theta_m, 'unknown until all send': change with the others", ranking),
    ("top-k's index is free: bits of a kept value, P 4096, own set for each vector", index_uncounted),
    ("k = P b / 32 with P = 16 (public release), b 3: components kept; can be kept", kept_is_no_number),
    ("'within a standard deviation of each other', Table 2: largest gap, in deviations; at most", within_a_deviation),
    ("Figure D.6 'less bits .. lower .. costs', Table 4, scalar: MB at b 2; at b 3, at most", fewer_bits_cheaper),
    ("Figure D.3 'variability .. decreases', Table 2, scalar: deviation at b 4; at b 2, at most", steadier_with_bits),
    ("Table 5, Q = 1: epochs to the target; a run has at most", too_many_epochs),
    ("Table 5, Q = 25, 'mean of 5 runs': runs that its digits allow", runs_in_the_mean),
    ("none on MIMIC-III, Q 10, to F1 0.4, MB: Table D.1; Table 2", same_setting_twice),
    ("CIFAR-10 'from only a quadrant': pixels that move the prediction", one_quadrant),
    ("(A.92), L_m = 100 L: factor of L eta sigma^2 / B; at most", noise_constant),
    ("(A.92) at the largest step: factor of the compression term; at most", compression_constant),
    ("(A.90), x^2 / 2, 100 rounds: sum of eta |grad F|^2; at most 4 (F - F_T) / (QR)", rounds_divided),
    ("(A.83), Q = L = L_m = 1: factor of |grad_m F|^2; at least", descent_constant),
    ("(A.82), Q = L = L_m = 1, largest step: factor of sigma^2 / B; at most", noise_of_a_round),
    ("(A.83): factor of the compression term in (A.82); at most", compression_halved),
    ("(A.85), a round in which F rises by 1: what follows from (A.84); at most", rising_loss),
    ("(A.50) one step in: A by its recursion (A.46); at most", grown_error),
    ("(A.72) with t_0+ = t_0 + Q - 1: <grad F, move>; the sum it equals", one_step_short),
    ("(A.76), a sign: first term of (A.75); of (A.76)", turned_sign),
    ("(A.14) without the square, error 3: |J R|^2; at most", square_forgotten),
)  # fmt: skip
errata_table = partial(errata_text, ERRATA)

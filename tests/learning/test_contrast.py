"""The spectral contrastive loss against sums over all pairs, autograd, enumeration and its symmetries."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import grad, jacrev, vmap

from fedbook.learning.contrast import (
    bank_objective,
    correlation,
    effective_rank,
    norm_clip,
    positive_correlation,
    spectral_loss,
)
from fedbook.randomness import normal, stream

SIZES = (4, 1, 6)  # clients of unequal size: a uniform q would show
OWNER = torch.repeat_interleave(torch.arange(3), torch.tensor(SIZES))
Q = torch.tensor(SIZES, dtype=torch.float64) / sum(SIZES)


def draw(*shape, name="z"):
    return normal(shape, stream(0, f"{name}/{shape}"))


def encode(theta, x):
    """A small network, so that gradients are in weights and not only in z."""
    return torch.tanh(x @ theta["in"]) @ theta["out"]


THETA = {"in": draw(3, 7), "out": draw(7, 5) / 2}
BANK = draw(sum(SIZES), 4, 3, name="bank")  # [N, K, d], four views of each sample


def all_pairs(z):
    """[N, 2 K^2, H]: every ordered pair of views once, so that the batch mean is the mean over the bank."""
    views = z.shape[1]
    first, second = (list(numbers) for numbers in zip(*itertools.product(range(views), repeat=2), strict=True))
    return torch.cat([z[:, first], z[:, second]], 1)


def flat(tree):
    return torch.cat([tree[name].flatten() for name in sorted(tree)])


def close(ours, theirs, rtol=1e-12):
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=rtol * float(theirs.abs().max()))


def differs(ours, theirs):
    return float((ours - theirs).norm() / theirs.norm()) > 1e-2


def others_of(matrices):
    """[J, H, H]: the weighted mean of the other clients' matrices."""
    total = (Q[:, None, None] * matrices).sum(0)
    return (total - Q[:, None, None] * matrices) / (1 - Q)[:, None, None]


# ---------------------------------------------------------------------------------------------------- the objective


def test_trace_form_is_the_double_sum_over_all_pairs():
    z = encode(THETA, BANK).numpy()
    samples, views, _ = z.shape
    negative = positive = 0.0
    for i, k in itertools.product(range(samples), range(views)):
        for j, m in itertools.product(range(samples), range(views)):
            negative += (z[i, k] @ z[j, m]) ** 2 / (samples * views) ** 2
        positive += sum(z[i, k] @ z[i, m] for m in range(views)) / (samples * views**2)
    objective = bank_objective(torch.from_numpy(z), OWNER, 3)
    assert float(objective.loss) == pytest.approx(negative / 2 - positive, rel=1e-12)
    assert float(bank_objective(torch.from_numpy(z)).loss) == pytest.approx(float(objective.loss), rel=1e-12)


def test_decomposition_into_what_each_client_can_compute():
    z = encode(THETA, BANK)
    objective = bank_objective(z, OWNER, 3)
    others, total = others_of(objective.matrices), 0.0
    for j in range(3):
        own = z[j == OWNER]
        outer = own.unsqueeze(-1) * own.unsqueeze(-2)  # [n, K, H, H]
        mean = own.mean(1)
        close(objective.matrices[j], outer.mean((0, 1)))
        parts = spectral_loss(all_pairs(own), float(Q[j]), others[j])
        close(parts.contraction, -mean.square().sum(1).mean())
        close(parts.intra, Q[j] / 2 * outer.mean((0, 1)).square().sum())
        close(parts.inter, (1 - Q[j]) * torch.trace(outer.mean((0, 1)) @ others[j]))
        close(parts.total, parts.contraction + parts.intra + parts.inter)
        total += Q[j] * (parts.contraction + parts.intra + parts.inter / 2)
    close(total, objective.loss)


def test_weighted_local_gradients_are_the_global_gradient():
    """Frozen with weight 1, or alive with weight 1/2; not frozen with 1/2, and not FedAvg's."""

    def loss(theta):
        return bank_objective(encode(theta, BANK), OWNER, 3).loss

    def local(theta, alpha, half, matrices):
        terms = []
        for j in range(3):
            z = all_pairs(encode(theta, BANK[j == OWNER]))
            parts = spectral_loss(z, alpha[j], others_of(matrices)[j])
            terms.append(Q[j] * (parts.contraction + parts.intra + half * parts.inter))
        return sum(terms)

    frozen = bank_objective(encode(THETA, BANK), OWNER, 3).matrices
    truth = flat(grad(loss)(THETA))
    close(flat(grad(local)(THETA, Q, 1.0, frozen)), truth)
    assert differs(flat(grad(local)(THETA, Q, 0.5, frozen)), truth)
    assert differs(flat(grad(local)(THETA, torch.ones(3), 1.0, frozen)), truth)  # alpha = 1 is FedAvg

    def alive(theta):
        z = encode(theta, BANK)
        matrices = bank_objective(z, OWNER, 3).matrices
        inter = (Q * (1 - Q) * (matrices * others_of(matrices)).sum((1, 2))).sum() / 2
        own = sum(Q[j] * sum(spectral_loss(all_pairs(z[j == OWNER]), Q[j])[:2]) for j in range(3))
        return own + inter

    close(flat(grad(alive)(THETA)), truth)


def test_gap_is_what_fedavg_adds_to_the_loss():
    z = encode(THETA, BANK)
    objective = bank_objective(z, OWNER, 3)
    fedavg = sum(Q[j] * bank_objective(z[j == OWNER]).loss for j in range(3))
    close(objective.gap, fedavg - objective.loss)
    pairs = (objective.matrices[:, None] - objective.matrices).square().sum((2, 3))
    close(objective.gap, (Q[:, None] * Q * pairs).sum() / 4)
    close(objective.matrix, (Q[:, None, None] * objective.matrices).sum(0))
    same = bank_objective(z[:4].repeat(3, 1, 1), torch.arange(3).repeat_interleave(4), 3)
    assert float(objective.gap) > 1e-3 and float(same.gap) < 1e-28 and float(bank_objective(z).gap) == 0


def test_order_and_numbers_of_the_clients_do_not_matter():
    z, rng = encode(THETA, BANK), stream(0, "shuffle")
    order, names = torch.from_numpy(rng.permutation(len(z))), torch.from_numpy(rng.permutation(3))
    ours, theirs = bank_objective(z, OWNER, 3), bank_objective(z[order], names[OWNER[order]], 3)
    close(ours.loss, theirs.loss)
    close(ours.gap, theirs.gap)
    close(ours.matrices, theirs.matrices[names])


def test_loss_never_falls_below_minus_half_the_width():
    for scale in (0.1, 1.0, 3.0):
        assert float(bank_objective(scale * encode(THETA, BANK)).loss) >= -2.5
    orthonormal = math.sqrt(5) * torch.eye(5, dtype=torch.float64)[:, None]  # R = identity: the lowest there is
    assert float(bank_objective(orthonormal).loss) == pytest.approx(-2.5, rel=1e-14)


def test_effective_rank_counts_directions():
    matrix = correlation(draw(9, 2, 6))
    values = np.linalg.eigvalsh(matrix.numpy())
    assert float(effective_rank(matrix)) == pytest.approx(values.sum() ** 2 / (values**2).sum(), rel=1e-12)
    noised = matrix + draw(6, 6, name="noise")
    values = np.linalg.eigvalsh((noised + noised.T).numpy() / 2)
    assert float(effective_rank(noised)) == pytest.approx(values.sum() ** 2 / (values**2).sum(), rel=1e-12)
    projector = torch.diag(torch.tensor([2.0, 2.0, 2.0, 0.0]))
    stack = torch.stack([projector, torch.eye(4), torch.zeros(4, 4), 1e-30 * torch.eye(4), 1e30 * projector])
    assert effective_rank(stack).tolist() == pytest.approx([3, 4, 0, 4, 3], rel=1e-6)


# ---------------------------------------------------------------------------------------------------------- batches


def test_batch_matrices_against_explicit_sums():
    z = draw(6, 4, 5)
    plain, positive = torch.zeros(5, 5, dtype=torch.float64), torch.zeros(5, 5, dtype=torch.float64)
    for b in range(6):
        for v in range(4):
            plain += torch.outer(z[b, v], z[b, v]) / 24
            positive += torch.outer(z[b, v], z[b, (v + 2) % 4]) / 24
    close(correlation(z), plain)
    close(positive_correlation(z), positive)
    assert torch.equal(positive_correlation(z), positive_correlation(z).T)
    close(correlation(z), correlation(z).T)
    assert float(torch.linalg.eigvalsh(correlation(draw(2, 1, 5))).min()) > -1e-15  # rank 2 of 5
    close(torch.trace(correlation(z)), z.square().sum(2).mean())
    close(torch.trace(positive_correlation(z)), (z[:, :2] * z[:, 2:]).sum(2).mean())  # equation (33)
    close(-torch.trace(positive_correlation(z)), spectral_loss(z).contraction)


@pytest.mark.parametrize("width", [3, 30])
def test_parts_against_the_matrices_in_both_gram_forms(width):
    z, others = draw(5, 4, width), draw(width, width, name="others")
    parts, matrix = spectral_loss(z, 0.3, others), correlation(z)
    close(parts.contraction, -torch.trace(positive_correlation(z)))
    close(parts.intra, 0.15 * matrix.square().sum())
    close(parts.inter, 0.7 * torch.trace(matrix @ others))
    rows = z.reshape(20, width)
    close(parts.intra, 0.15 * (rows @ rows.T).square().sum() / 400)
    assert [float(part) for part in spectral_loss(z, 0.3)[:2]] == [float(part) for part in parts[:2]]
    assert float(spectral_loss(z, 0.3).inter) == 0


def test_full_batch_of_all_views_has_the_clients_own_matrix():
    z = encode(THETA, BANK)
    close(correlation(all_pairs(z)), bank_objective(z).matrix)
    close(spectral_loss(all_pairs(z)).total, bank_objective(z).loss)  # alpha = 1, one client


@pytest.mark.parametrize("width", [3, 30])
def test_symmetries(width):
    z, others, rng = draw(6, 4, width), draw(width, width, name="others"), stream(0, "symmetries")
    truth = torch.stack(spectral_loss(z, 0.4, others))
    close(torch.stack(spectral_loss(z[torch.from_numpy(rng.permutation(6))], 0.4, others)), truth)
    close(torch.stack(spectral_loss(z[:, [2, 3, 0, 1]], 0.4, others)), truth)  # the two halves swapped
    close(torch.stack(spectral_loss(z[:, [1, 0, 3, 2]], 0.4, others)), truth)  # both pairs swapped
    assert differs(spectral_loss(z[:, [0, 2, 1, 3]], 0.4, others).contraction, truth[0])  # other pairs
    turn = torch.linalg.qr(draw(width, width, name="turn"))[0]
    close(torch.stack(spectral_loss(z @ turn.T, 0.4, turn @ others @ turn.T)), truth)
    close(correlation(z @ turn.T), turn @ correlation(z) @ turn.T)
    assert differs(spectral_loss(z @ turn.T, 0.4, others).inter, truth[2])


@pytest.mark.parametrize("width", [3, 30])
@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
def test_gradient_is_the_closed_form(width, alpha):
    z, others = draw(4, 6, width).requires_grad_(), draw(width, width, name="others").requires_grad_()
    spectral_loss(z, alpha, others).total.backward()
    rows, symmetric = z.detach().reshape(24, width), (others + others.T).detach() / 2
    spread = 2 / 24 * rows @ (alpha * rows.T @ rows / 24 + (1 - alpha) * symmetric)
    close(z.grad, spread.reshape(z.shape) - z.detach()[:, [3, 4, 5, 0, 1, 2]] / 12)
    assert others.grad is None
    assert torch.equal(grad(lambda s: spectral_loss(z.detach(), alpha, s).total)(others.detach()), 0 * others)


def test_only_the_symmetric_part_of_the_others_counts():
    z, others = draw(5, 4, 6), draw(6, 6, name="others")
    symmetric = (others + others.T) / 2
    assert differs(others, symmetric)
    close(spectral_loss(z, 0.3, others).total, spectral_loss(z, 0.3, symmetric).total, rtol=1e-13)
    slopes = [grad(lambda z, s=s: spectral_loss(z, 0.3, s).total)(z) for s in (others, symmetric)]
    close(*slopes, rtol=1e-13)


def test_batch_bias_by_enumeration():
    """Every batch of 2 of 4 samples and every draw of 2 of 3 views: the mean loss and gradient, and D6's excess."""
    bank, others, q = BANK[:4, :3], draw(5, 5, name="others"), 0.3
    batches = torch.tensor(list(itertools.combinations(range(4), 2)))  # [6, B]
    draws = torch.tensor(list(itertools.product(range(3), repeat=4))).reshape(81, 2, 2)  # [81, B, 2V]
    index = batches[:, None, :, None].expand(6, 81, 2, 2), draws[None].expand(6, 81, 2, 2)

    def mean_loss(theta):
        z = encode(theta, bank)[index].flatten(0, 1)  # [486, B, 2V, H]
        return vmap(lambda views: spectral_loss(views, q, others).total)(z).mean()

    def expected(theta):
        z = encode(theta, bank)
        outer = z.unsqueeze(-1) * z.unsqueeze(-2)
        each, matrix = outer.mean(1), outer.mean((0, 1))
        between = (each - matrix).square().sum((1, 2)).mean()  # S^2
        within = (outer - each[:, None]).square().sum((2, 3)).mean()  # W
        exact = spectral_loss(all_pairs(z), q, others).total
        return exact + q / 2 * ((4 - 2) / (2 * 3) * between + within / (2 * 1 * 2))

    close(mean_loss(THETA), expected(THETA))
    close(flat(grad(mean_loss)(THETA)), flat(grad(expected)(THETA)))
    biased = flat(grad(lambda theta: spectral_loss(all_pairs(encode(theta, bank)), q, others).total)(THETA))
    assert differs(flat(grad(mean_loss)(THETA)), biased)


def test_noise_on_the_matrices_moves_the_mean_gradient_as_derived():
    """D8: sigma^2 sum_k q_k^2 sum_p |d_p (R - q_k R_k)|^2, by the map noise -> gradient and by Monte Carlo."""
    sigma = 0.3

    def mean_gradient(noise):  # [3, H, H], one for each client's upload; the gradient is linear in it
        def loss(theta):
            z = encode(theta, BANK)
            own = [spectral_loss(all_pairs(z[j == OWNER]), Q[j], others_of(noise)[j]) for j in range(3)]
            return sum(Q[j] * own[j].inter for j in range(3))

        return flat(grad(loss)(THETA))

    slopes = jacrev(lambda theta: bank_objective(encode(theta, BANK), OWNER, 3).matrices)(THETA)
    slopes = torch.cat([slopes[name].flatten(3) for name in sorted(slopes)], 3)  # [J, H, H, P]
    total = torch.einsum("j,jabp->abp", Q, slopes)
    rest = total - Q[:, None, None, None] * slopes
    formula = sigma**2 * (Q**2 * rest.square().sum((1, 2, 3))).sum()
    basis = torch.eye(75, dtype=torch.float64).reshape(75, 3, 5, 5)
    close(sigma**2 * vmap(mean_gradient)(basis).square().sum(), formula, rtol=1e-11)
    drawn = vmap(mean_gradient)(sigma * normal((4000, 3, 5, 5), stream(0, "noise"))).square().sum(1)
    error = float(drawn.std() / math.sqrt(len(drawn)))
    assert abs(float(drawn.mean() - formula)) < 3 * error and error < 0.03 * float(formula)


# ------------------------------------------------------------------------------------------------- padding and vmap


@pytest.mark.parametrize("width", [3, 30])
@pytest.mark.parametrize("garbage", [7.0, 1e200, math.inf, math.nan])
def test_rows_that_fill_up_a_batch_do_not_count(width, garbage):
    z, others = draw(6, 4, width), draw(width, width, name="others")
    real = torch.tensor([1, 0, 1, 1, 0, 0])
    full = torch.where(real[:, None, None] > 0, z, garbage)
    kept = z[real > 0]
    for weight in (real.to(torch.float64), real.to(torch.float32), real > 0):
        close(correlation(full, weight), correlation(kept))
        close(positive_correlation(full, weight), positive_correlation(kept))
        close(torch.stack(spectral_loss(full, 0.3, others, weight)), torch.stack(spectral_loss(kept, 0.3, others)))
    slope = grad(lambda z: spectral_loss(z, 0.3, others, real.double()).total)(full)
    close(slope[real > 0], grad(lambda z: spectral_loss(z, 0.3, others).total)(kept))
    assert not slope[real == 0].any()


def test_batch_of_nothing_but_filling_is_zero():
    z, none, others = draw(3, 2, 4), torch.zeros(3), draw(4, 4, name="others")
    assert not correlation(z, none).any() and not positive_correlation(z, none).any()
    assert [float(part) for part in spectral_loss(z, 0.5, others, none)] == [0, 0, 0]
    assert not grad(lambda z: spectral_loss(z, 0.5, others, none).total)(z).any()
    assert float(spectral_loss(draw(0, 2, 4), 0.5, others).total) == 0


@pytest.mark.parametrize("width", [3, 30])
def test_vmap_over_clients_is_the_loop(width):
    z, others = draw(4, 5, 4, width), draw(4, width, width, name="others")
    alpha, weight = torch.tensor([0.0, 0.2, 0.7, 1.0]), torch.ones(4, 5)
    weight[0, 2:], weight[2] = 0, 0

    def loss(z, alpha, others, weight):
        return spectral_loss(norm_clip(z, 2.0), alpha, others, weight)

    together = vmap(loss)(z, alpha, others, weight)
    slopes = vmap(grad(lambda *given: loss(*given).total))(z, alpha, others, weight)
    for k in range(4):
        one = z[k], float(alpha[k]), others[k], weight[k]
        close(torch.stack([part[k] for part in together]), torch.stack(loss(*one)), rtol=1e-7)  # alpha is float32
        close(slopes[k], grad(lambda *given: loss(*given).total)(*one), rtol=1e-7)
    matrices = vmap(correlation)(z, weight), vmap(positive_correlation)(z, weight)
    for k in range(4):
        close(matrices[0][k], correlation(z[k], weight[k]))
        close(matrices[1][k], positive_correlation(z[k], weight[k]))


def test_dtype_and_device_follow(device):
    z = draw(4, 2, 3).to(device, torch.float32)
    weight, alpha = torch.ones(4, dtype=torch.float64, device=device), torch.tensor(0.5, dtype=torch.float64)
    found = [norm_clip(z, 1.0), correlation(z, weight), positive_correlation(z, weight)]
    found += [*spectral_loss(z, alpha, correlation(z), weight), *bank_objective(z), effective_rank(correlation(z))]
    assert all(x.dtype == torch.float32 and x.device == z.device for x in found)


# --------------------------------------------------------------------------------------------------------- NormClip


@given(exponent=st.floats(-6, 6), mu=st.floats(0.01, 100), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_clip_keeps_the_direction_and_never_lengthens(exponent, mu, dtype):
    z = (10.0**exponent * draw(20, 8)).to(dtype)
    clipped, length, eps = norm_clip(z, mu), z.norm(dim=1), torch.finfo(dtype).eps
    inside = z.square().sum(1) <= mu
    assert torch.equal(clipped[inside], z[inside])
    assert bool((clipped.double().square().sum(1) <= mu).all())
    outside = clipped[~inside]
    target = math.sqrt(mu) * z[~inside] / length[~inside, None]
    torch.testing.assert_close(outside, target, rtol=10 * eps, atol=10 * eps * math.sqrt(mu))
    assert torch.equal(norm_clip(clipped, mu), clipped)
    trace = torch.trace(correlation(clipped[:, None].double()))
    assert float(correlation(clipped[:, None].double()).norm()) <= float(trace) * (1 + 1e-15) <= mu * (1 + 2e-15)


def test_clip_leaves_zero_and_has_a_gradient_there():
    z = torch.cat([torch.zeros(1, 4, dtype=torch.float64), 1e-200 * draw(1, 4), draw(1, 4) / 10, 5 * draw(1, 4)])
    clipped, slope = norm_clip(z, 1.0), jacrev(lambda z: norm_clip(z, 1.0).sum(0))(z)  # [H, 4, H]
    assert torch.equal(clipped[:3], z[:3])
    identity = torch.eye(4, dtype=torch.float64)
    for row in range(3):
        assert torch.equal(slope[:, row], identity)
    length = z[3].norm()
    close(slope[:, 3], (identity - torch.outer(z[3], z[3]) / length**2) / length)
    assert norm_clip(z, math.inf) is z
    assert torch.equal(vmap(lambda z: norm_clip(z, 1.0))(z), clipped)


# ---------------------------------------------------------------------------------------------------- bad arguments

GOOD_Z, GOOD_BANK = draw(3, 4, 5), draw(6, 2, 5)
BAD_Z = [None, "x", 3.0, torch.zeros(3, 4, 5).long(), torch.zeros(3, 5), torch.zeros(3, 0, 5), torch.zeros(3, 2, 0)]
ODD = torch.zeros(3, 3, 5)
WEIGHTS = ["x", 1.0, torch.ones(4), torch.ones(3, 1)]
BROKEN = GOOD_BANK.clone()
BROKEN[2, 1, 3] = math.nan
TABLE = {
    norm_clip: (
        {"z": GOOD_Z, "mu": 1.0},
        {"z": [*BAD_Z[:4], torch.tensor(1.0)], "mu": [None, "x", math.nan, 0.0, -1.0, True]},
    ),
    correlation: ({"z": GOOD_Z, "weight": torch.ones(3)}, {"z": BAD_Z, "weight": WEIGHTS}),
    positive_correlation: ({"z": GOOD_Z, "weight": None}, {"z": [*BAD_Z, ODD], "weight": WEIGHTS}),
    spectral_loss: (
        {"z": GOOD_Z, "alpha": 0.5, "others": draw(5, 5), "weight": None},
        {
            "z": [*BAD_Z, ODD],
            "alpha": [None, "x", math.nan, math.inf, -0.1, 1.1, True, torch.ones(3), torch.tensor(1)],
            "others": ["x", 1.0, draw(4, 4), draw(5), torch.zeros(5, 5).long()],
            "weight": WEIGHTS,
        },
    ),
    bank_objective: (
        {"z": GOOD_BANK, "owner": torch.arange(6) % 2, "clients": 2},
        {
            "z": [*BAD_Z, torch.zeros(0, 2, 5), BROKEN, BROKEN / 0],
            "owner": [
                *["x", None, torch.zeros(5).long(), torch.zeros(6)],
                *[torch.arange(6) - 1, torch.arange(6), torch.zeros(6).int()],
            ],
            "clients": [0, -1, 2.0, None, True],
        },
    ),
    effective_rank: (
        {"matrix": torch.eye(3)},
        {
            "matrix": [
                *[None, "x", torch.zeros(3), torch.zeros(2, 3), torch.zeros(0, 0)],
                *[torch.eye(3) * math.nan, torch.eye(3).long()],
            ]
        },
    ),
}
CALLS = [(call, name, value) for call, (_, bad) in TABLE.items() for name, values in bad.items() for value in values]


@pytest.mark.parametrize(("call", "name", "value"), CALLS, ids=lambda x: getattr(x, "__name__", None))
def test_nonsense_is_refused_by_name(call, name, value):
    good = TABLE[call][0]
    call(**good)
    with pytest.raises((TypeError, ValueError), match=name):
        call(**{**good, name: value})

"""The spectral contrastive loss against sums over all pairs, autograd, enumeration and its symmetries."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import grad, vmap

from fedbook.papers.fedsc.spectral import (
    correlation,
    norm_clip,
    spectral_loss,
)
from fedbook.randomness import normal, stream


def draw(*shape, name="z"):
    return normal(shape, stream(0, f"{name}/{shape}"))


def close(ours, theirs, rtol=1e-12):
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=rtol * float(theirs.abs().max()))


# ---------------------------------------------------------------------------------------------------------- batches


def test_batch_matrices_against_explicit_sums():
    z = draw(6, 4, 5)
    plain, positive = torch.zeros(5, 5, dtype=torch.float64), torch.zeros(5, 5, dtype=torch.float64)
    for b in range(6):
        for v in range(4):
            plain += torch.outer(z[b, v], z[b, v]) / 24
            positive += torch.outer(z[b, v], z[b, (v + 2) % 4]) / 24
    close(correlation(z), plain)
    close(correlation(z), correlation(z).T)
    assert float(torch.linalg.eigvalsh(correlation(draw(2, 1, 5))).min()) > -1e-15  # rank 2 of 5
    close(torch.trace(correlation(z)), z.square().sum(2).mean())
    close(torch.trace(positive), (z[:, :2] * z[:, 2:]).sum(2).mean())  # equation (33)
    close(-torch.trace(positive), spectral_loss(z).contraction)


@pytest.mark.parametrize("width", [3, 30])
def test_parts_against_the_matrices_in_both_gram_forms(width):
    z, others = draw(5, 4, width), draw(width, width, name="others")
    parts, matrix = spectral_loss(z, 0.3, others), correlation(z)
    close(parts.contraction, -(z[:, :2] * z[:, 2:]).sum(2).mean())
    close(parts.intra, 0.15 * matrix.square().sum())
    close(parts.inter, 0.7 * torch.trace(matrix @ others))
    rows = z.reshape(20, width)
    close(parts.intra, 0.15 * (rows @ rows.T).square().sum() / 400)
    assert [float(part) for part in spectral_loss(z, 0.3)[:2]] == [float(part) for part in parts[:2]]
    assert float(spectral_loss(z, 0.3).inter) == 0


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
        close(torch.stack(spectral_loss(full, 0.3, others, weight)), torch.stack(spectral_loss(kept, 0.3, others)))
    slope = grad(lambda z: spectral_loss(z, 0.3, others, real.double()).total)(full)
    close(slope[real > 0], grad(lambda z: spectral_loss(z, 0.3, others).total)(kept))
    assert not slope[real == 0].any()


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
    matrices = vmap(correlation)(z, weight)
    for k in range(4):
        close(matrices[k], correlation(z[k], weight[k]))


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_clip_keeps_the_direction_where_the_square_overflows(dtype):
    z = draw(20, 8).to(dtype)
    large = z * (torch.finfo(dtype).max / 8)
    torch.testing.assert_close(norm_clip(large, 2.0), norm_clip(1e3 * z, 2.0), rtol=1e-5, atol=0)


def test_views_come_in_pairs():
    with pytest.raises(ValueError, match="z: got .*allowed is .B, 2 pairs, H."):
        spectral_loss(torch.randn(4, 3, 5))

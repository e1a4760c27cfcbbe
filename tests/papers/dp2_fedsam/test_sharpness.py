"""The rise of a loss under noise against quadratics with known Hessians; one model or many, in any pieces."""

import math

import numpy as np
import pytest
import torch
from torch.func import vmap

from fedbook.papers.dp2_fedsam.sharpness import gaussian_rise
from fedbook.randomness import normal, stream

D = 6


def tree_of(x):
    """A nested tree of parameters, of which :func:`vector` is the inverse."""
    return {"layer": {"w": x[..., :4].unflatten(-1, (2, 2)), "b": x[..., 4:5]}, "c": x[..., 5:]}


def vector(tree):
    return torch.cat([tree["layer"]["w"].flatten(-2), tree["layer"]["b"], tree["c"]], -1)


X, Y = normal((30, D), stream(0, "x")), (normal((30,), stream(0, "y")) > 0).double()


def logistic(tree):
    """Mean logistic loss with a cubic term, so that no derivative vanishes."""
    theta = vector(tree)
    scores = X @ theta + 0.1 * theta.pow(3).sum()
    return torch.nn.functional.binary_cross_entropy_with_logits(scores, Y)


THETA = normal((D,), stream(0, "theta"))
TEN = normal((10, D), stream(1, "ten"))


class Axes(np.random.Generator):
    """Draws that are sqrt(D) e_i in turn: the mean of z z^T over D of them is the identity, exactly."""

    def __init__(self):
        super().__init__(np.random.Philox(0))
        self.queue = (math.sqrt(D) * np.eye(D)).ravel()

    def standard_normal(self, size):
        # leaves are drawn in the order of their joined names: c, layer/b, layer/w
        count = math.prod(size)
        out, self.queue = self.queue[:count], self.queue[count:]
        return out.reshape(size)


def test_noise_costs_half_the_trace_exactly():
    """D15 by algebra: with second moments exactly I the mean rise of a quadratic is s^2/2 tr A, gradient or not."""
    for seed in range(20):
        a, b, s = normal((D, D), stream(seed, "matrix")), normal((D,), stream(seed, "b")), 0.1 * (seed + 1)

        def quadratic(tree, a=a, b=b):
            return 0.5 * vector(tree) @ a @ vector(tree) + b @ vector(tree)

        rise = gaussian_rise(quadratic, tree_of(THETA), s, D, Axes()).mean
        assert float(rise) == pytest.approx(0.5 * s * s * float(a.trace()), rel=1e-12, abs=1e-13)


def measured(tree, chunk=3):
    return torch.stack(gaussian_rise(logistic, tree, 0.2, 7, stream(0, "n"), chunk=chunk))


def test_ten_models_at_once_are_ten_models_one_by_one():
    together = vmap(lambda x: measured(tree_of(x)))(TEN)
    assert torch.allclose(together, torch.stack([measured(tree_of(x)) for x in TEN]), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name, value", [("draws", 1), ("draws", True), ("chunk", 0)])
def test_too_few_draws_are_refused_by_name(name, value):
    given = {"draws": 4, "chunk": 2, name: value}
    with pytest.raises((TypeError, ValueError), match=f"^{name}: got {value}"):
        gaussian_rise(logistic, tree_of(torch.zeros(4)), 0.1, given["draws"], stream(0, "z"), given["chunk"])


def test_the_chunk_changes_nothing():
    for chunk in (1, 7, 99):
        assert torch.allclose(measured(tree_of(THETA), chunk), measured(tree_of(THETA)), rtol=1e-12, atol=1e-15)

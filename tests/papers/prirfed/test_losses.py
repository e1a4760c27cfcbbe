"""Losses of one record: closed forms against automatic differentiation and central differences; clipping; descent."""

import math

import pytest
import torch

from fedbook.geometry import SPD, Hyperboloid, Sphere, frechet_mean
from fedbook.papers.prirfed.losses import Eigenvector, RecordLoss, SquaredDistance
from fedbook.randomness import normal, stream
from tests.papers.prirfed.descent import descend

INF = math.inf


def uniform(n):
    return torch.full((3, n), 1 / n, dtype=torch.float64)


def case(word, n=7):
    """A loss, its value as a plain function of one record, a point for each of 3 rows, and n records a row."""
    rng = stream(5, word)
    if word == "eigenvector":
        z = normal((3, n, 5), rng)
        loss, plain = Eigenvector(), lambda x, r: -((r["z"] * x).sum() ** 2)
        records = {"z": z, "s": z.square().sum(-1)}
    else:
        manifold = {"sphere": Sphere(), "spd2": SPD(), "spd4": SPD(), "hyperboloid": Hyperboloid()}[word.split(":")[0]]
        loss = SquaredDistance(manifold)
        size = {"sphere": 4, "spd2": 2, "spd4": 4, "hyperboloid": 3}[word.split(":")[0]]
        y = manifold.random_point(size, rng, (3, n))
        records = {"y": y} | ({"a": normal((3, n), rng)} if word.endswith(":weights") else {})
        plain = lambda x, r, m=manifold: r.get("a", 1.0) * m.dist(x, r["y"]) ** 2  # noqa: E731
    manifold = loss.manifold
    size = records["z"].shape[-1] if "z" in records else records["y"].shape[-1]
    x = manifold.random_point(size, rng, (3,))
    return loss, plain, x, records


CASES = ["eigenvector", "sphere", "spd2", "spd4", "hyperboloid", "hyperboloid:weights", "spd2:weights"]


def along(loss, plain, x, records, u):
    """Central difference of each record's value along the geodesic with velocity u [3, *point]: [3, n]."""
    h, manifold = 1e-5, loss.manifold

    def at(t):
        y = manifold.exp(x, t * u)
        return torch.stack(
            [torch.stack([plain(y[r], {k: z[r, j] for k, z in records.items()}) for j in range(7)]) for r in range(3)]
        )

    return (at(h) - at(-h)) / (2 * h)


@pytest.mark.parametrize("word", CASES)
def test_values_and_gradients_against_central_differences(word):
    loss, plain, x, records = case(word)
    manifold = loss.manifold
    expected = torch.stack(
        [torch.stack([plain(x[r], {k: z[r, j] for k, z in records.items()}) for j in range(7)]) for r in range(3)]
    )
    assert torch.allclose(loss.values(x, records), expected, rtol=1e-10, atol=1e-12)
    g = loss.gradients(x, records)
    for k in range(3):
        u = manifold.tangent_gaussian(x, normal((3, manifold.noise_size(x)), stream(k, "direction")))
        beside = x.unsqueeze(1)
        slope = manifold.inner(beside, g, u.unsqueeze(1).expand_as(g))
        assert torch.allclose(slope, along(loss, plain, x, records, u), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("word", CASES)
def test_closed_forms_equal_the_generic_path(word):
    """The clipped mean without a gradient for each record is that with one, by automatic differentiation."""
    loss, plain, x, records = case(word)
    generic = RecordLoss(loss.manifold, plain)
    weights = uniform(7)
    g = generic.gradients(x, records)
    assert torch.allclose(g, loss.gradients(x, records), rtol=1e-8, atol=1e-8)
    length = loss.manifold.norm(x.unsqueeze(1), g)
    for bound in (INF, float(length.median()), 0.3 * float(length.min())):
        slow = generic.clipped_mean(x, records, weights, bound)
        fast = loss.clipped_mean(x, records, weights, bound)
        assert torch.allclose(slow, fast, rtol=1e-8, atol=1e-9)
        alone = [
            loss.clipped_mean(x, {k: z[:, j : j + 1] for k, z in records.items()}, torch.ones(3, 1).double(), bound)
            for j in range(7)
        ]
        each = torch.stack(alone, 1)
        norms = loss.manifold.norm(x.unsqueeze(1), each)
        assert bool((norms <= bound * (1 + 1e-10)).all())
        kept = length <= bound * (1 - 1e-9)
        assert torch.allclose(each[kept], g[kept], rtol=1e-8, atol=1e-8)  # nothing shorter than the bound changes
        shrunk = each / norms.view(*norms.shape, *[1] * loss.manifold.point_ndim)
        direction = g / length.view(*length.shape, *[1] * loss.manifold.point_ndim)
        assert torch.allclose(shrunk, direction, rtol=1e-6, atol=1e-6)  # and the direction is kept
        assert torch.allclose(each.mean(1), fast, rtol=1e-9, atol=1e-11)


def test_one_record_moves_the_mean_by_at_most_two_bounds_over_n():
    """Opposite gradients attain it; random pairs never exceed it."""
    loss, bound, n = SquaredDistance(Hyperboloid()), 0.5, 4
    x = Hyperboloid().origin(3)[None]
    u = torch.tensor([[0.0, 3.0, 0.0]], dtype=torch.float64)
    y = Hyperboloid().random_point(3, stream(0, "others"), (1, n))
    weights = torch.full((1, n), 1 / n, dtype=torch.float64)

    def mean(z):
        return loss.clipped_mean(x, {"y": torch.cat([z[:, None], y[:, 1:]], 1)}, weights, bound)

    there, back = Hyperboloid().exp(x, u), Hyperboloid().exp(x, -u)
    gap = Hyperboloid().norm(x, mean(there) - mean(back))
    assert float(gap) == pytest.approx(2 * bound / n, rel=1e-12)
    for k in range(200):
        a, b = Hyperboloid().random_point(3, stream(k, "pair"), (2, 1))
        assert float(Hyperboloid().norm(x, mean(a) - mean(b))) <= 2 * bound / n + 1e-12


@pytest.mark.parametrize("manifold", [Sphere(), SPD(), Hyperboloid()], ids=lambda m: m.name)
def test_a_record_of_endless_weight_counts_zero(manifold):
    """Its weight times 2 is infinite. A mean that is NaN would leave the point where it is, without noise."""
    x, y = (manifold.random_point(3, stream(0, word), shape) for word, shape in (("x", (1,)), ("y", (1, 3))))
    a, weights = torch.tensor([[1.0, 1e308, 2.0]], dtype=torch.float64), torch.full((1, 3), 1 / 3, dtype=torch.float64)
    found = SquaredDistance(manifold).clipped_mean(x, {"y": y, "a": a}, weights, 1.0)
    rest = {"y": y[:, [0, 2]], "a": a[:, [0, 2]]}
    kept = SquaredDistance(manifold).clipped_mean(x, rest, weights[:, [0, 2]], 1.0)
    assert bool(found.isfinite().all()) and torch.allclose(found, kept, rtol=1e-14, atol=0)


def squared(z):
    return {"z": z, "s": z.square().sum(-1)}


@pytest.mark.parametrize("manifold", [Sphere(), SPD(), Hyperboloid()], ids=lambda m: m.name)
def test_a_record_whose_gradient_is_not_finite_counts_zero(manifold):
    """It must not make the mean NaN: whether a run dies would tell whether it is there."""

    def value(x, record):  # its slope at the record 0 is infinite, and at -1 it is NaN
        return torch.log(record["z"].abs()) * record["z"].clamp(min=0).sqrt() + x.sum() / record["z"].clamp(min=0)

    x = manifold.random_point(3, stream(0, "x"), (2,))
    z = torch.tensor([[0.5, 0.0, 2.0, -1.0]] * 2, dtype=torch.float64)
    loss, weights = RecordLoss(manifold, value), torch.full((2, 4), 0.25, dtype=torch.float64)
    assert not bool(loss.gradients(x, {"z": z})[:, [1, 3]].isfinite().all())
    found = loss.clipped_mean(x, {"z": z}, weights, 1.0)
    kept = loss.clipped_mean(x, {"z": z[:, [0, 2]]}, weights[:, [0, 2]], 1.0)
    assert bool(found.isfinite().all()) and torch.allclose(found, kept, rtol=1e-14, atol=0)
    huge = torch.full((2, 4), 1e-320, dtype=torch.float64)  # finite records, gradients beyond the largest float
    assert torch.equal(loss.clipped_mean(x, {"z": huge}, weights, 1.0), torch.zeros_like(x))
    vectors = torch.tensor([[[1.0, 2.0], [3e25, 1e25]]])  # the square of a product overflows in float32
    found = Eigenvector().clipped_mean(torch.tensor([[0.6, 0.8]]), squared(vectors), torch.ones(1, 2), 1.0)
    assert torch.equal(
        found, Eigenvector().clipped_mean(torch.tensor([[0.6, 0.8]]), squared(vectors[:, :1]), torch.ones(1, 1), 1.0)
    )


@pytest.mark.parametrize("length", [1.0, 1e4, 1e8, 1e12])
def test_a_long_record_along_the_point_moves_no_more_than_the_clip(length):
    """The square of what lies across it is lost in the rounding of the record's own."""
    x = Sphere().random_point(25, stream(0, "x"))
    for k in range(50):
        z = length * (x + 10.0 ** -(8 + k % 9) * Sphere().random_point(25, stream(k, "z")))
        records = {"z": z[None], "s": z.square().sum()[None]}
        assert float(Eigenvector().clipped_mean(x, records, torch.ones(1).double(), 1.0).norm()) <= 1 + 1e-6


def test_other_squared_lengths_than_the_records_have_are_refused():
    with pytest.raises(ValueError, match="squared lengths"):
        Eigenvector().require_records({"z": 3 * torch.eye(3), "s": torch.ones(3)})


def test_descent_finds_the_frechet_mean_and_the_eigenvector():
    y = Hyperboloid().random_point(3, stream(1, "cloud"), (20,))
    weights = torch.full((20,), 1 / 20, dtype=torch.float64)
    x, norm = descend(SquaredDistance(Hyperboloid()), Hyperboloid().origin(3), {"y": y}, weights, 0.2, 500)
    mean, _ = frechet_mean(Hyperboloid(), Hyperboloid().origin(3), y, weights)
    assert float(norm) < 1e-11 and float(Hyperboloid().dist(x, mean)) < 1e-10
    z = normal((50, 6), stream(2, "rows")) * torch.tensor([3.0, 1, 1, 1, 1, 1])
    start = Sphere().random_point(6, stream(3, "start"))
    even = torch.full((50,), 1 / 50, dtype=torch.float64)
    x, norm = descend(Eigenvector(), start, {"z": z, "s": z.square().sum(1)}, even, 0.05, 5000)
    leading = torch.linalg.eigh(z.mT @ z).eigenvectors[:, -1]
    assert float(norm) < 1e-11 and abs(abs(float(x @ leading)) - 1) < 1e-12

"""Results have the dtype and device of the inputs; on a device that cannot be looked at nothing looks."""

import pytest
import torch

from fedbook.geometry import SPD, Euclidean, Hyperboloid, Sphere
from fedbook.randomness import normal, stream


def operations(m, x, y, u, w):
    return {
        "inner": m.inner(x, u, u), "norm": m.norm(x, u), "exp": m.exp(x, u), "log": m.log(x, y, check=False),
        "dist": m.dist(x, y), "squared_dist": m.squared_dist(x, y), "transport": m.transport(x, y, u),
        "project": m.project(x, u), "gradient": m.gradient(x, u), "nearest": m.nearest(x),
        "tangent_gaussian": m.tangent_gaussian(x, w), "basis": m.basis(x),
    }  # fmt: skip


def given(place, dtype, device):
    m = place.manifold
    x, y = place.points(0), place.points(1)
    w = normal((6, m.noise_size(x)), stream(2, "w"))
    return [t.to(device=device, dtype=dtype) for t in (x, y, place.tangents(x, 3, 0.7), w)]


def test_single_precision_agrees_with_double(place):
    m = place.manifold
    double = operations(m, *given(place, torch.float64, "cpu"))
    for name, found in operations(m, *given(place, torch.float32, "cpu")).items():
        assert found.dtype == torch.float32, name
        torch.testing.assert_close(found, double[name].float(), rtol=2e-5, atol=2e-5, msg=name)
    x, y, u, _ = given(place, torch.float32, "cpu")
    assert m.check_point(m.exp(x, u)) == (True, None)
    moved = m.transport(x, y, u)
    torch.testing.assert_close(m.project(y, moved), moved, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(m.log(x, m.exp(x, u)), u, rtol=1e-4, atol=1e-4)
    assert m.dist(x, x).abs().max() < 1e-6 and m.log(x, x).abs().max() < 1e-6


def test_every_device_gives_the_numbers_of_the_cpu(place, device):
    """Fixed noise; the two devices may round differently."""
    m = place.manifold
    expected = operations(m, *given(place, torch.float64, "cpu"))
    for name, found in operations(m, *given(place, torch.float64, device)).items():
        assert found.device.type == device, name
        torch.testing.assert_close(found.cpu(), expected[name], rtol=1e-9, atol=1e-9, msg=name)


@pytest.mark.parametrize(
    ("m", "size"),
    [(Sphere(), 3), (Sphere(), 40), (Hyperboloid(), 3), (Hyperboloid(), 40), (SPD(), 2), (Euclidean(), 3)],
)
def test_nothing_waits_for_a_device(m, size):
    """Meta tensors have no values: whatever looked at one would raise."""
    x, y, v = (m.random_point(size, stream(s, "x"), (6,)).to("meta") for s in (0, 1, 2))
    w = torch.empty(6, m.noise_size(x), dtype=torch.float64, device="meta")
    for name, found in operations(m, x, y, v, w).items():
        assert found.device.type == "meta" and found.dtype == torch.float64, name


@pytest.mark.parametrize("n", [3, 9])
def test_exp_of_large_matrices_does_not_wait_either(n, monkeypatch):
    """Then it doubles a fixed number of times, which must do for long vectors too."""
    m = SPD()
    x = m.random_point(n, stream(0, "x"), (4,))
    assert m.exp(x.to("meta"), x.to("meta")).shape == x.shape
    u = m.tangent_gaussian(x, normal((4, m.noise_size(x)), stream(1, "w")))
    u = u / m.norm(x, u)[:, None, None] * torch.tensor([1e-9, 0.5, 5.0, 12.0], dtype=torch.float64)[:, None, None]
    expected = m.exp(x, u)
    monkeypatch.setattr("fedbook.geometry.matrix_function.visible", lambda a: False)
    found = m.exp(x, u)
    assert m.dist(expected, found).max() < 1e-9 and m.dist(expected[:3], found[:3]).max() < 1e-11


def test_a_matrix_that_is_not_positive_definite_shows_where_nobody_looks(monkeypatch):
    """On an accelerator the result is NaN, not a number that looks right."""
    monkeypatch.setattr("fedbook.geometry.spd.visible", lambda a: False)
    three = torch.stack([torch.eye(3), -torch.eye(3)]).double()
    assert SPD().norm(three, three).isnan().tolist() == [False, True]
    m, u = SPD(), torch.ones(2, 2, dtype=torch.float64)
    monkeypatch.setattr("fedbook.geometry.two_by_two.visible", lambda a: False)
    for diagonal in ([-1.0, 1.0], [1.0, -1.0], [-1.0, -2.0]):
        x = torch.tensor(diagonal, dtype=torch.float64).diag()
        for found in (
            m.norm(x, u),
            m.exp(x, u),
            m.log(x, u + 2 * m.origin(2), check=False),
            m.transport(x, m.origin(2), u),
        ):
            assert found.isnan().any()

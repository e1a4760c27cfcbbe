"""Chapter 3's figures say the numbers of their inputs, and what they draw lies where the geometry puts it."""

import math

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex

from fedbook.geometry import SPD, Hyperboloid, Sphere
from fedbook.lab import chapter03_disk as pictures
from fedbook.lab import chapter03_figures as figures
from fedbook.lab import chapter03_sphere as sphere
from fedbook.papers.prirfed.embedding import from_disk
from fedbook.papers.prirfed.synthetic import hyperbolic_ball_records
from tests.lab.checks import numbers

H, S, M = Hyperboloid(), Sphere(), SPD()


def looks(lines):
    return {(to_hex(line.get_color()), line.get_marker()) for line in lines}


# --- the observer


@pytest.mark.parametrize(("azimuth", "elevation"), [(0, 20), (130, -35), (-60, 80)])
def test_the_page_is_an_orthogonal_projection(azimuth, elevation):
    eye = sphere.View(azimuth, elevation)
    frame = np.vstack([eye.page, eye.toward])
    assert np.allclose(frame @ frame.T, np.eye(3), atol=1e-14) and np.linalg.det(frame) == pytest.approx(1)
    up = eye.flat([0.0, 0.0, 1.0])
    assert up[0] == pytest.approx(0, abs=1e-14) and up[1] > 0


# --- the hyperbolic plane


def test_hyperbolic_noise_by_closed_forms(axes):
    """Away from the origin the projected ambient noise has variance cosh 2r, across it 1."""
    r, std = 1.6, 0.25
    sentence = figures.draw_hyperbolic_noise(axes, distance=r, std=std, draws=20_000)
    right, seen, wrong, also = numbers(
        sentence, r"tangent Gaussian (\S+) \(measured (\S+)\); projected ambient noise (\S+) \(measured (\S+)\)"
    )
    assert right == 0.125 and wrong == pytest.approx((math.cosh(2 * r) + 1) * std**2, rel=5e-3)
    assert seen == pytest.approx(right, rel=0.03) and also == pytest.approx(wrong, rel=0.04)
    assert f"{math.sqrt(math.cosh(2 * r)):.3g} times too long" in sentence
    rings = [line.get_xydata() for line in axes[0].lines if line.get_marker() == "" and line.get_linewidth() == 2.0]
    assert [ring.max(0) for ring in rings] == [
        pytest.approx([k * std * s, k * std], rel=1e-3) for s in (1, math.sqrt(math.cosh(2 * r))) for k in (1, 2)
    ]
    disk_rings = [line.get_xydata() for line in axes[1].lines if line.get_linewidth() == 2.0]
    x = torch.tensor([math.cosh(r), math.sinh(r), 0.0], dtype=torch.float64)
    for k in (1, 2):  # circles around x: all points at k std
        assert H.dist(x, from_disk(torch.from_numpy(disk_rings[k - 1]))).tolist() == pytest.approx([k * std] * 121)
    assert len(looks(line for line in axes[0].lines if line.get_marker() in ("o", "x"))) == 2


def test_moving_to_the_centre_is_an_isometry():
    points = hyperbolic_ball_records(12, radius=3.0)
    moved = pictures.moved_to_centre(points[4], points)
    assert torch.allclose(moved[4], H.origin(3), atol=1e-12)
    apart = H.dist(points[:, None], points), H.dist(moved[:, None], moved)
    assert torch.allclose(*apart, atol=1e-6) and float(apart[0].max()) > 3


# --- matrices


def test_noise_on_numbers_breaks_as_the_normal_law_says():
    """1 x 1 matrices: x + s x w is not positive with probability Phi(-1 / s); Exp never leaves the positive numbers."""
    x = torch.linspace(0.1, 9, 20_000, dtype=torch.float64).view(-1, 1, 1)
    found = figures.broken_by_noise(x, (0.3, 0.5, 1.0, 3.0))
    expected = [0.5 * math.erfc(1 / s / math.sqrt(2)) for s in (0.3, 0.5, 1.0, 3.0)]
    for share, right in zip(found.entries.tolist(), expected, strict=True):
        assert abs(share - right) < 4 * math.sqrt(right * (1 - right) / 20_000) + 1e-4
    assert found.tangent.tolist() == [0.0] * 4

"""Pictures of solids: against bodies described another way, against light worked out by hand, and as a dataset."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial import Delaunay

from fedbook import data
from fedbook.data import rendering
from fedbook.data.rendering import AMBIENT, FINE, FRAME, LIGHT, SOLIDS, cameras, render, solids


def polygon(sides, z):
    return [(math.cos(a), math.sin(a), z) for a in math.pi / sides + 2 * math.pi * np.arange(sides) / sides]


TOP = [(0, 0, 1)]
CORNERS = {
    "box": polygon(4, -1) + polygon(4, 1),
    "prism": polygon(3, -1) + polygon(3, 1),
    "pyramid": polygon(4, -1) + TOP,
    "tetrahedron": polygon(3, -1) + TOP,
    "octahedron": [(1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1)],
}
RADIUS = {  # at height z between -1 and 1
    "sphere": lambda z: np.sqrt(1 - z**2),
    "dome": lambda z: np.sqrt(1 - ((z + 1) / 2) ** 2),
    "cylinder": lambda z: np.ones_like(z),
    "cone": lambda z: (1 - z) / 2,
    "frustum": lambda z: 1 - (z + 1) / 4,
}


def inside(name, points):
    """Whether points lie in the solid: of corners by Delaunay's tetrahedra, a round one by its radius at a height."""
    if name in CORNERS:
        return Delaunay(np.array(CORNERS[name])).find_simplex(points) >= 0
    z = points[:, 2].clip(-1, 1)
    return (np.abs(points[:, 2]) <= 1) & (np.hypot(points[:, 0], points[:, 1]) <= RADIUS[name](z))


def maps(count):
    """Random turns after random stretches; the last two flat and upside down: there rays leave a cone or never do."""
    rng = np.random.default_rng(0)
    stretch = rng.uniform(0.4, 0.8, (count, 3))
    stretch[-2:, 2] = 0.1
    turns = [np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(count)]
    turns[-2], turns[-1] = np.eye(3), np.diag([1.0, -1, -1])
    return torch.from_numpy(np.stack(turns) * stretch[:, None]), torch.from_numpy(rng.uniform(-0.1, 0.1, (count, 3)))


@pytest.mark.parametrize("name", SOLIDS)
def test_a_pixel_is_lit_where_a_ray_meets_the_body(name):
    """Points along every ray, 0.01 apart, tested one by one; only grazing rays may be judged otherwise."""
    side, views, count = 8, 3, 4
    shape, place = maps(count)
    pictures = render(SOLIDS[name], shape, place, side, views)
    assert pictures.shape == (count, views, side, side) and pictures.dtype == torch.uint8
    right, up, back = (v.numpy() for v in cameras(views))
    steps = ((np.arange(side * FINE) + 0.5) / (side * FINE) * 2 - 1) * FRAME
    u, v, t = np.meshgrid(steps, -steps, np.arange(-1.5, 1.5, 0.01), indexing="xy")
    wrong = 0
    for i in range(count):
        for k in range(views):
            points = u[..., None] * right[k] + v[..., None] * up[k] + t[..., None] * back[k]
            own = (points.reshape(-1, 3) - place[i].numpy()) @ np.linalg.inv(shape[i].numpy()).T
            hit = inside(name, own).reshape(u.shape).any(2).reshape(side, FINE, side, FINE).any((1, 3))
            wrong += int((hit != (pictures[i, k].numpy() > 0)).sum())
            assert hit.sum() > 3
    assert wrong <= 6  # of 768


def test_the_light_on_a_ball_and_on_a_stretched_one():
    side = 12
    shape = torch.diag(torch.tensor([0.9, 0.5, 0.7], dtype=torch.float64)) @ torch.eye(3, dtype=torch.float64)
    picture = render(SOLIDS["sphere"], shape[None], torch.zeros(1, 3, dtype=torch.float64), side, 1)[0, 0].numpy()
    right, up, back = (v[0].numpy() for v in cameras(1))
    light = LIGHT[0] * right + LIGHT[1] * up + LIGHT[2] * back
    assert abs(np.linalg.norm(light) - 1) < 1e-12
    weights = 1 / np.diag(shape.numpy()) ** 2  # the surface: sum of weights x^2 = 1
    rays = np.zeros((side * FINE, side * FINE))
    for row in range(side * FINE):
        for column in range(side * FINE):
            u, v = (((n + 0.5) / (side * FINE) * 2 - 1) * FRAME for n in (column, row))
            start = u * right - v * up
            # towards the camera: |start + s back|_w^2 = 1, the larger s
            s = np.roots([weights @ back**2, 2 * weights @ (start * back), weights @ start**2 - 1])
            if np.isrealobj(s):
                normal = weights * (start + s.max() * back)
                cosine = normal @ light / np.linalg.norm(normal)
                rays[row, column] = AMBIENT + (1 - AMBIENT) * max(0, cosine)
    means = rays.reshape(side, FINE, side, FINE).mean((1, 3)) * 255
    assert np.abs(means - picture).max() < 0.501 and picture.max() > 200 and (picture > 0).sum() > 30


def test_the_light_on_a_lid_and_a_wall():
    """A box whose walls face the axes, seen along -x from 30 degrees above: the lid and one wall, each of one grey."""
    stretch = torch.tensor([0.5, 0.5, 0.8], dtype=torch.float64).diag()
    picture = render(SOLIDS["box"], stretch[None], torch.zeros(1, 3, dtype=torch.float64), 64, 1)[0, 0]
    sine, cosine = 0.5, math.sqrt(0.75)
    lid = LIGHT[1] * cosine + LIGHT[2] * sine
    wall = -LIGHT[1] * sine + LIGHT[2] * cosine
    greys = [round(255 * (AMBIENT + (1 - AMBIENT) * c)) for c in (lid, wall)]
    values, counts = picture.unique(return_counts=True)
    common = sorted(values[counts.argsort(descending=True)[:3]].tolist())
    assert common == sorted([0, *greys])
    assert picture[16, 32] == greys[0] and picture[40, 32] == greys[1]  # the lid is above the wall
    # the corners lie 1 from the axis before the stretch, so a wall is 0.5 sqrt 2 wide, of a frame of 2 FRAME
    assert abs(int((picture[40] > 0).sum()) - 64 * 0.5 * math.sqrt(2) / (2 * FRAME)) <= 2


def test_turning_the_object_is_walking_round_it():
    shape, place = maps(2)
    angle = math.pi / 6
    turn = torch.tensor(
        [[math.cos(angle), -math.sin(angle), 0], [math.sin(angle), math.cos(angle), 0], [0, 0, 1]], dtype=torch.float64
    )
    for name in ("prism", "cone"):
        here = render(SOLIDS[name], shape, place, 16, 12)
        there = render(SOLIDS[name], turn @ shape, place @ turn.T, 16, 12)
        difference = (here.int() - there.roll(-1, 1).int()).abs()
        assert (difference > 1).double().mean() < 1e-3  # but for rays that graze an edge
        assert (here.int() - there.int()).abs().double().mean() > 1


def test_a_ray_within_a_face_is_no_nan():
    """From 30 degrees above, a face that leans by just this angle is seen from its edge."""
    faces = ((math.sin(math.pi / 6), 0.0, -math.cos(math.pi / 6), 0.5), *SOLIDS["box"].faces)
    eye = torch.eye(3, dtype=torch.float64)[None] / 2
    picture = render(rendering.Solid(faces), eye, torch.zeros(1, 3, dtype=torch.float64), 16, 1)
    whole = render(SOLIDS["box"], eye, torch.zeros(1, 3, dtype=torch.float64), 16, 1)
    assert 0 < (picture > 0).sum() < (whole > 0).sum()


def test_the_dataset():
    images = data.load("solids", train_samples=40, test_samples=20, seed=3, dtype=torch.uint8)
    assert images.name == "solids" and images.classes == tuple(SOLIDS) and len(SOLIDS) == 10
    assert images.train_x.shape == (40, 12, 1, 16, 16) and images.test_x.shape == (20, 12, 1, 16, 16)
    assert images.train_y.tolist() == [*range(10)] * 4 and images.train_y.dtype == torch.int64
    assert images.train_x.dtype == torch.uint8 and images.train_x.flatten(1).amax(1).min() > 0
    edges = torch.cat([images.train_x[..., 0, :], images.train_x[..., -1, :]], -1), images.train_x[..., [0, -1]]
    assert max(int(edge.max()) for edge in edges) == 0  # nobody is cut off
    scaled = solids(40, 20, 3)
    assert scaled.train_x.dtype == torch.float32 and torch.equal(scaled.train_x, images.train_x.float() / 255)
    fewer = solids(13, 5, 3, dtype=torch.uint8)
    assert torch.equal(fewer.train_x, images.train_x[:13]) and torch.equal(fewer.test_x, images.test_x[:5])
    other = solids(13, 5, 4, dtype=torch.uint8)
    assert not torch.equal(other.train_x, fewer.train_x)
    assert not torch.equal(images.train_x[:20], images.test_x)
    two = solids(13, 1, 3, views=2, dtype=torch.uint8)
    assert torch.equal(two.train_x, fewer.train_x[:, ::6])  # cameras 180 degrees apart
    assert solids(2, 1, side=20, views=1).train_x.shape == (2, 1, 1, 20, 20)


@pytest.mark.parametrize(
    "name, bad", [("train_samples", 0), ("test_samples", None), ("side", 3), ("views", 2.5), ("seed", -1)]
)
def test_bad_arguments_are_refused(name, bad):
    with pytest.raises((TypeError, ValueError), match=f"{name}: got"):
        solids(**({"train_samples": 2, "test_samples": 1} | {name: bad}))

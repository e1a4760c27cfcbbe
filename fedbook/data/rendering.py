"""Pictures of simple solids from several sides: a SYNTHETIC stand-in for rendered CAD objects (ModelNet10).

A solid is a convex body in its own coordinates, the points with ``face . x <= distance`` for each face and, if it is
round, ``x^2 + y^2 <= c0 + c1 z + c2 z^2``; an object is such a body stretched, turned and moved. A ray of parallel
light enters each of these sets at one point and leaves it at one, so a picture needs no search along the ray: the ray
hits the object if its last entry lies before its first exit, and the last entry is the point seen.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.data.images import Images, as_images, check_dtype
from fedbook.randomness import stream

ELEVATION = math.radians(30)  # of the cameras above the horizon, as for ModelNet's views
FRAME = 1.25  # half the width of a picture; the largest object reaches 1.24 from the middle
FINE = 2  # rays a pixel and axis
LIGHT = (-0.48, 0.6, 0.64)  # to the right, up, towards the camera: a unit vector that travels with the camera
AMBIENT = 0.25
RAYS = 2**18  # rendered at a time: about 2 MB a number of 8 bytes


class Solid(NamedTuple):
    """A convex body: ``faces`` as (x, y, z, distance), and what the square of the radius is at height z (or None)."""

    faces: tuple[tuple[float, float, float, float], ...]
    roundness: tuple[float, float, float] | None = None


def _walls(sides: int, slope: float) -> tuple[tuple[float, float, float, float], ...]:
    """The upright (``slope`` 0) or leaning walls over a regular polygon whose corners lie 1 from the axis."""
    inner = math.cos(math.pi / sides)
    angles = [2 * math.pi * k / sides for k in range(sides)]
    return tuple((math.cos(a), math.sin(a), slope * inner, (1 - slope) * inner) for a in angles)


FLOOR, LID = (0.0, 0.0, -1.0, 1.0), (0.0, 0.0, 1.0, 1.0)
SIGNS = (-1.0, 1.0)
SOLIDS = {
    "sphere": Solid((), (1, 0, -1)),
    "dome": Solid((FLOOR,), (0.75, -0.5, -0.25)),  # radius 1 at z = -1, 0 at z = 1, as of a ball's upper half
    "cylinder": Solid((FLOOR, LID), (1, 0, 0)),
    "cone": Solid((FLOOR, LID), (0.25, -0.5, 0.25)),  # the square of (1 - z)/2
    "frustum": Solid((FLOOR, LID), (0.5625, -0.375, 0.0625)),  # the square of (3 - z)/4
    "box": Solid((FLOOR, LID, *_walls(4, 0))),
    "prism": Solid((FLOOR, LID, *_walls(3, 0))),
    "pyramid": Solid((FLOOR, *_walls(4, 0.5))),
    "tetrahedron": Solid((FLOOR, *_walls(3, 0.5))),
    "octahedron": Solid(tuple((x, y, z, 1.0) for x in SIGNS for y in SIGNS for z in SIGNS)),
}


def solids(
    train_samples: int = 1_000,
    test_samples: int = 500,
    seed: int = 0,
    side: int = 16,
    views: int = 12,
    dtype: torch.dtype = torch.float32,
) -> Images:
    """SYNTHETIC: ten kinds of solids, each object seen from ``views`` sides, x ``[N, views, 1, side, side]``.

    The cameras stand on a circle, 360/``views`` degrees apart and 30 degrees above the horizon, and are infinitely far.
    Width, depth and height, the turn about the vertical axis, a tilt of up to 20 degrees and the place are random;
    kinds come in turn. The background is 0; a surface is 64 to 255, by its angle to a light that travels with the
    camera; no noise. Fewer samples are the beginning of more. Bytes an object: ``views side^2`` as uint8.
    A stand-in for ModelNet10 where that is absent: figures on it are no figures on ModelNet10.
    Raises: TypeError, ValueError.
    Source: the cameras, Su, Maji, Kalogerakis and Learned-Miller, Multi-view Convolutional Neural Networks for 3D Shape
    Recognition (2015), section 3.1.
    """
    check_dtype(dtype)
    counts = {
        "train": arguments.integer("train_samples", train_samples, 1),
        "test": arguments.integer("test_samples", test_samples, 1),
    }
    side = arguments.integer("side", side, 4, 512)
    views = arguments.integer("views", views, 1, 360)
    parts = []
    for part, count in counts.items():
        drawn = torch.from_numpy(stream(seed, f"solids {part}").random((count, 8)))
        kind = torch.arange(count) % len(SOLIDS)
        x = torch.empty(count, views, 1, side, side, dtype=torch.uint8)
        for k, solid in enumerate(SOLIDS.values()):
            for rows in (kind == k).nonzero()[:, 0].split(max(1, RAYS // (views * (side * FINE) ** 2))):
                x[rows, :, 0] = render(solid, *_placed(drawn[rows]), side, views)
        parts += [x.numpy(), kind.numpy()]
    return as_images("solids", *parts, tuple(SOLIDS), dtype)


def render(solid: Solid, shape: Tensor, place: Tensor, side: int, views: int) -> Tensor:
    """Pictures of the objects ``{shape x + place: x in solid}``, taken by ``views`` cameras on a circle.

    Shapes: ``shape`` [N, 3, 3] (invertible), ``place`` [N, 3], both float64 -> uint8 [N, views, side, side], rows from
    the top. Memory: about ten numbers of 8 bytes for each of the ``FINE^2`` rays a pixel.
    """
    right, up, back = cameras(views)
    light = LIGHT[0] * right + LIGHT[1] * up + LIGHT[2] * back  # [views, 3]
    inverse = torch.linalg.inv(shape)
    # A ray is x = start + u right + v up - t back. Everything below is in the solid's own coordinates.
    right, up, ahead = (vector @ inverse.mT for vector in (right, up, -back))  # [N, views, 3]
    start = -(inverse @ place[..., None]).mT  # [N, 1, 3]
    fine = side * FINE
    steps = ((torch.arange(fine, dtype=torch.float64) + 0.5) * (2 / fine) - 1) * FRAME
    u, v = steps, -steps[:, None]

    def along(vector: Tensor) -> Tensor:
        """The coordinate ``vector . x`` of each ray at t = 0, [N, views, fine, fine]."""
        at, across, upward = (((x @ vector)[..., None, None]) for x in (start, right, up))
        return at + across * u + upward * v

    def shade(gradient: Tensor) -> Tensor:
        """Grey of a surface across ``gradient``, by its angle to the light."""
        normal = gradient @ inverse[:, None, None]  # a linear map takes normals by its inverse transposed
        cosine = (normal * light[:, None, None]).sum(-1) / normal.norm(dim=-1)
        return AMBIENT + (1 - AMBIENT) * cosine.clamp(min=0)

    entry = torch.full((len(shape), views, fine, fine), -math.inf, dtype=torch.float64)
    leave, grey = -entry, torch.zeros_like(entry)
    for *normal, distance in solid.faces:
        normal = torch.tensor(normal, dtype=torch.float64)
        speed = (ahead @ normal)[..., None, None]  # 0 along a face: then t is inf inside, -inf outside
        t = (distance - along(normal)) / speed
        nearer = (speed < 0) & (t > entry)
        grey = torch.where(nearer, shade(normal[None, None, None, None]), grey)
        entry = torch.where(nearer, t, entry)
        leave = torch.where(speed < 0, leave, torch.minimum(leave, t))
    if solid.roundness is not None:
        place = torch.stack([along(axis) for axis in torch.eye(3, dtype=torch.float64)], -1)
        ahead = ahead[:, :, None, None]
        first, last = _crossings(solid.roundness, place, ahead)
        x, y, z = (place + first.nan_to_num(0, 0, 0)[..., None] * ahead).unbind(-1)
        _, c1, c2 = solid.roundness
        grey = torch.where(first > entry, shade(torch.stack([2 * x, 2 * y, -c1 - 2 * c2 * z], -1)), grey)
        entry, leave = torch.maximum(entry, first), torch.minimum(leave, last)
    grey = torch.where(entry < leave, grey, 0).unflatten(3, (side, FINE)).unflatten(2, (side, FINE))
    return (grey.mean((3, 5)) * 255).round().to(torch.uint8)


def cameras(views: int) -> tuple[Tensor, Tensor, Tensor]:
    """For each camera the directions right, up and back (towards it), unit vectors in float64, each [views, 3]."""
    angle = torch.arange(views, dtype=torch.float64) * (2 * math.pi / views)
    sine, cosine = angle.sin(), angle.cos()
    high, level = torch.full_like(angle, math.sin(ELEVATION)), math.cos(ELEVATION)
    right = torch.stack([-sine, cosine, torch.zeros_like(angle)], 1)
    up = torch.stack([-high * cosine, -high * sine, torch.full_like(angle, level)], 1)
    return right, up, torch.stack([level * cosine, level * sine, high], 1)


def _crossings(roundness: tuple[float, float, float], place: Tensor, ahead: Tensor) -> tuple[Tensor, Tensor]:
    """Where the rays ``place + t ahead`` enter and leave ``x^2 + y^2 <= c0 + c1 z + c2 z^2``; no hit: inf, -inf.

    A steep ray enters a cone and never leaves it, or the other way round: then the lower half of the double cone.
    """
    c0, c1, c2 = roundness
    px, py, pz = place.unbind(-1)
    dx, dy, dz = ahead.unbind(-1)
    # a t^2 + 2 b t + c <= 0
    a = dx**2 + dy**2 - c2 * dz**2
    a = torch.where(a == 0, 1e-12, a)  # along the side of a cone: the other crossing is very far
    b = px * dx + py * dy - (c1 / 2 + c2 * pz) * dz
    c = px**2 + py**2 - c0 - c1 * pz - c2 * pz**2
    square = b**2 - a * c
    root = square.clamp(min=0).sqrt()
    first, last = (-b - root) / a, (-b + root) / a
    missed = (a > 0) & (square < 0)
    first = torch.where((a < 0) & (dz > 0), -math.inf, torch.where(missed, math.inf, first))
    last = torch.where((a < 0) & (dz < 0), math.inf, torch.where(missed, -math.inf, last))
    return first, last


def _placed(drawn: Tensor) -> tuple[Tensor, Tensor]:
    """The map and the place of each object, from eight numbers in [0, 1): [N, 8] -> [N, 3, 3] and [N, 3]."""
    stretch = 0.4 + 0.45 * drawn[:, :3]
    turn, tilt, towards = 2 * math.pi * drawn[:, 3], math.radians(20) * drawn[:, 4], 2 * math.pi * drawn[:, 5]
    tilted = _about_z(towards) @ _about_y(tilt) @ _about_z(turn - towards)
    shift = 0.1 * drawn[:, 6:] - 0.05
    return tilted * stretch[:, None], torch.nn.functional.pad(shift, (0, 1))


def _about_z(angle: Tensor) -> Tensor:
    sine, cosine, zero = angle.sin(), angle.cos(), torch.zeros_like(angle)
    rows = [cosine, -sine, zero, sine, cosine, zero, zero, zero, zero + 1]
    return torch.stack(rows, 1).view(-1, 3, 3)


def _about_y(angle: Tensor) -> Tensor:
    order = torch.tensor([1, 2, 0])  # what is z for a turn about z becomes y
    return _about_z(angle)[:, order][:, :, order]

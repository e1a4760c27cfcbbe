"""Riemannian geometry, batched: unit sphere, positive definite matrices, hyperboloid, and flat space as the limit."""

from __future__ import annotations

from fedbook.geometry.euclidean import Euclidean
from fedbook.geometry.hyperboloid import Hyperboloid
from fedbook.geometry.manifold import Manifold
from fedbook.geometry.means import ambient_mean, frechet_mean, tangent_mean
from fedbook.geometry.spd import SPD
from fedbook.geometry.sphere import Sphere

__all__ = [
    "SPD",
    "Euclidean",
    "Hyperboloid",
    "Manifold",
    "Sphere",
    "ambient_mean",
    "frechet_mean",
    "tangent_mean",
]

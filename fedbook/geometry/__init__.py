"""Riemannian geometry, batched: unit sphere, positive definite matrices, hyperboloid, and flat space as the limit.

In float64 the errors of Log, distance and transport, relative to their size in the metric, stay below 32 machine
epsilons times the condition, and so does that of Exp times the growth e^(2|u|) of the condition. The condition is 1 on
the sphere, up to the antipode; x_0 y_0 on the hyperboloid; cond(X) cond(Y) for matrices, only cond(X) for near ones.
"""

from __future__ import annotations

from fedbook.geometry.euclidean import Euclidean
from fedbook.geometry.hyperboloid import Hyperboloid
from fedbook.geometry.manifold import Manifold, stepped, within_range
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
    "stepped",
    "tangent_mean",
    "within_range",
]

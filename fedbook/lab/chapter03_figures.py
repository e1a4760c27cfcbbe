"""Chapter 3's figures: broken matrices, Table 1, theorems beside measurements; spheres and disks from their modules.

Each draw function fills the axes it is given and returns the sentence under the figure. Runs and stored comparisons
are drawn in chapter03_stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from torch import Tensor

from fedbook.geometry import SPD
from fedbook.lab.chapter03_disk import draw_hyperbolic_noise, draw_poincare
from fedbook.lab.chapter03_sphere import draw_sphere_geometry, draw_tangent_noise, draw_transport
from fedbook.lab.panels import panels
from fedbook.lab.style import FAINT_CONNECTOR, PALETTE, series
from fedbook.randomness import normal, stream

__all__ = [
    "Broken",
    "broken_by_noise",
    "draw_bounds",
    "draw_broken",
    "draw_hyperbolic_noise",
    "draw_poincare",
    "draw_spd",
    "draw_sphere_geometry",
    "draw_tangent_noise",
    "draw_transport",
]

MATRICES = SPD()

# --- positive definite matrices


def draw_spd(axes: Any) -> str:
    """From one 2 x 2 matrix to another, as ellipses: the geodesic and the straight line; and the determinants.

    Shapes: ``axes`` two of them.
    """
    left, right = panels(axes, 2)
    turns = [torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]]).double() for a in (0.35, 1.75)]
    first, last = (r @ torch.diag(torch.tensor([6.0, 0.5]).double()) @ r.mT for r in turns)
    t = torch.linspace(0, 1, 7, dtype=torch.float64)
    ways = {
        "geodesic": MATRICES.exp(first, t[:, None, None] * MATRICES.log(first, last)),
        "straight line": first + t[:, None, None] * (last - first),
    }
    angle = torch.linspace(0, 2 * math.pi, 91, dtype=torch.float64)
    circle = torch.stack([angle.cos(), angle.sin()])
    dets = {}
    for i, (label, matrices) in enumerate(ways.items()):
        look, dets[label] = series(i), torch.linalg.det(matrices)
        for k, root in enumerate(torch.linalg.cholesky(matrices)):
            edge = (root @ circle).mT + torch.tensor([5.6 * k, -7.0 * i])
            left.fill(*edge.T, facecolor=look["color"], alpha=0.25, edgecolor="none")
            left.plot(*edge.T, color=look["color"], marker="", linestyle=look["linestyle"])
        left.text(-2.4, 3.4 - 7.0 * i, label, ha="left", va="center", color=look["color"], fontweight="bold")
        right.plot(t, dets[label], label=label, **look)
    left.set_axis_off()
    left.set(aspect="equal", xlim=(-3, 36.6), ylim=(-10, 4.4))
    right.set(xlabel="share of the way", ylabel="determinant", title="the straight line swells", ylim=(0, None))
    right.legend(loc="lower center")
    ends = [float(dets["geodesic"][i]) for i in (0, -1)]
    middle = {label: float(d[3]) for label, d in dets.items()}
    return (
        f"Determinants {ends[0]:.3g} and {ends[1]:.3g} at the ends; half way {middle['geodesic']:.3g} on the geodesic "
        f"and {middle['straight line']:.3g} on the straight line."
    )


class Broken(NamedTuple):
    """The share of matrices that noise of each of the ``sizes`` [k] leaves indefinite: in the entries, tangent."""

    sizes: Tensor
    entries: Tensor
    tangent: Tensor


def broken_by_noise(matrices: Tensor, sizes: Sequence[float] | Tensor, seed: int = 0) -> Broken:
    """Gaussian noise on the entries of real matrices, and tangent noise at each of them: how many stay definite?

    Size s: the standard deviation of tangent noise, and, in units of a matrix's mean eigenvalue, that of noise on
    the entries (off the diagonal less by sqrt 2). At a multiple of the identity both are the same to first order.
    Whether a matrix is positive definite is decided by a Cholesky decomposition.
    Shapes: ``matrices`` [n, p, p].
    """
    MATRICES.require_point("matrices", matrices)
    levels = [float(s) for s in sizes]
    n, p, _ = matrices.shape
    w = normal((n, MATRICES.noise_size(matrices)), stream(seed, "broken by noise"), like=matrices)
    eye = torch.eye(p, dtype=matrices.dtype, device=matrices.device)
    flat = MATRICES.tangent_gaussian(eye, w) * (matrices.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None])
    tangent = MATRICES.tangent_gaussian(matrices, w)
    shares = [
        [float((torch.linalg.cholesky_ex(x).info > 0).double().mean()) for s in levels
         for x in ((matrices + s * flat) if straight else MATRICES.exp(matrices, s * tangent),)]
        for straight in (True, False)
    ]  # fmt: skip
    return Broken(*(torch.tensor(v, dtype=torch.float64) for v in (levels, *shares)))


def draw_broken(ax: Axes, broken: Broken) -> str:
    """Share of matrices that noise leaves indefinite, against its size."""
    parts = []
    for i, (label, share) in enumerate((("noise on the entries", broken.entries), ("tangent noise", broken.tangent))):
        ax.semilogx(broken.sizes, 100 * share, label=label, **series(i))
        first = next((float(s) for s, v in zip(broken.sizes, share, strict=True) if v >= 0.5), None)
        told = "" if first is None else f", half of them from s = {first:.2g} on"
        parts.append(f"{label} breaks up to {100 * float(share.max()):.3g} % of the matrices{told}")
    ax.set(xlabel="noise $s$ / mean eigenvalue", ylabel="no longer positive definite, %")
    ax.set_ylim(-4, 104)
    ax.legend(loc="center left")
    return f"{parts[0].capitalize()}; {parts[1]}."


# --- Table 1 and the theorems


def draw_bounds(ax: Axes, rows: Mapping[str, tuple[float, float, Any]]) -> str:
    """What was measured and what a theorem promises above it, in pairs on a logarithmic axis.

    Shapes: label -> (measured, its standard error, right side), as ``Checked`` of chapter03_simulation; for several
    right sides a mapping from words to numbers.
    """
    worst, above, looks = 0.0, [], {}
    for i, (label, row) in enumerate(rows.items()):
        bounds = row[2] if isinstance(row[2], Mapping) else {"right side": row[2]}
        measured, error = row[0], row[1]
        values = bounds
        ax.plot([measured, max(values.values())], [i, i], color=FAINT_CONNECTOR, linestyle="-", marker="", zorder=1)
        ax.plot([max(measured - 2 * error, 0.1 * measured), measured + 2 * error], [i, i], color=PALETTE[0],
                linestyle="-", marker="|", markersize=9, zorder=2)  # fmt: skip
        for words, value in {"measured, ± 2 standard errors": measured, **values}.items():
            first = None if words in looks else words
            look = looks.setdefault(words, series(len(looks)) | {"linestyle": "", "markersize": 7.5, "zorder": 3})
            ax.plot([value], [i], label=first, **look)
        for words, value in values.items():
            worst = max(worst, measured / value)
            if measured > value:
                above.append(f"{label} ({words})")
    ax.set_xscale("log")
    ax.set_xlabel("left side, measured, and right side")
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    told = f"broken: {', '.join(above)}" if above else "none is broken"
    return f"{len(rows)} inequalities measured, {told}; the measured side is at most {worst:.3g} times the right side."

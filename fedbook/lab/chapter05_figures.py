"""Chapter 5's figures of compressors: their cells, what they cost in squared error, and what that costs in convergence.

Each draw function fills the axes it is given and returns the sentence under the figure. Rounds of the whole algorithm
are in chapter05_pictures, floors and schedules in chapter05_floor_figures, stored comparisons in chapter05_stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.patches import Rectangle
from torch import Tensor

from fedbook.compression import Compressor, Hexagonal, RandomK, TopK, UniformScalar
from fedbook.compression.hexagonal import G2, cell_area
from fedbook.lab.chapter05_floor_figures import draw_floor_steps, draw_floors, draw_growth, draw_schedules, draw_terms
from fedbook.lab.chapter05_pictures import (
    alone_and_together,
    draw_alone,
    draw_setting,
    draw_staleness,
    one_round,
    party_alone,
    staleness,
)
from fedbook.lab.chapter05_quantisers import DISC
from fedbook.lab.panels import panels, plain_log
from fedbook.lab.style import CONNECTOR, PALETTE, REFERENCE, series
from fedbook.randomness import normal, stream

__all__ = [
    "alone_and_together",
    "draw_alone",
    "draw_cells",
    "draw_errors",
    "draw_floor_steps",
    "draw_floors",
    "draw_growth",
    "draw_sawtooth",
    "draw_schedules",
    "draw_setting",
    "draw_staleness",
    "draw_terms",
    "measured_errors",
    "one_round",
    "party_alone",
    "staleness",
]

PRINTED = 1 / 24  # what the paper has for G_2


def sent(compressor: Compressor, x: Tensor, seed: int = 0) -> Tensor:
    """``x`` [B, P] after the compressor's encode and decode."""
    rows = x[None]
    return compressor.decode(compressor.encode(rows, [stream(seed, "sent")]), rows)[0]


# --- cells


def draw_cells(axes: Any, bits: int = 2, points: int = 150, seed: int = 0) -> str:
    """Grid and hexagons on the unit square with a cloud of pairs and their codewords; errors under dither.

    Both have 4^bits codewords (small dots: pairs; lines to the codeword that is sent). The third panel has errors
    in units of the root of the cell's area: uniform on a square, and on a hexagon (infinite codebook).
    Shapes: ``axes`` three of them.
    """
    spots = panels(axes, 3)
    cloud = (0.5 + 0.22 * normal((points, 2), stream(seed, "cloud"))).clamp(0, 1)
    parts = []
    plain = {
        "grid": UniformScalar(bits, 0.0, 1.0, dither=False), "hexagons": Hexagonal(bits, 0.0, 1.0, dither=False)
    }  # fmt: skip
    for i, (ax, (label, compressor)) in enumerate(zip(spots[:2], plain.items(), strict=True)):
        book, codewords = codebook_of(compressor), sent(compressor, cloud)
        _edges(ax, book)
        ways = torch.stack([cloud, codewords], 1).numpy()
        ax.add_collection(LineCollection(ways, colors=PALETTE[i], linewidths=0.7, alpha=0.8))
        ax.plot(*cloud.T, linestyle="", marker=".", markersize=3, color="black")
        ax.plot(*book.T, linestyle="", marker=series(i)["marker"], markersize=5, color=PALETTE[i])
        ax.set(xlim=(-0.09, 1.09), ylim=(-0.09, 1.09), aspect="equal", title=f"{label}, {len(book)} codewords")
        ax.grid(False)
        parts.append(f"{label} {float((codewords - cloud).square().mean()):.3g}")
    dithered = {
        "square": (UniformScalar(bits, 0.0, 1.0), (2**bits - 1.0) ** -2),
        "hexagon": (Hexagonal(bits, 0.0, 1.0, codebook="infinite"), cell_area(bits, "infinite")),
    }
    told = []
    pairs = cloud.repeat(-(-3000 // points), 1)
    for i, (label, (compressor, area)) in enumerate(dithered.items()):
        error = (sent(compressor, pairs, seed + 1) - pairs) / math.sqrt(area)
        look = series(i)
        spots[2].plot(*(error[:450] + torch.tensor([1.3 * i, 0.0])).T, linestyle="", marker=look["marker"],
                      markersize=2.2, alpha=0.7, color=look["color"])  # fmt: skip
        spots[2].text(1.3 * i, -0.78, f"{label}\n{float(error.square().mean()):.4f}", ha="center", va="top")
        told.append(f"{float(error.square().mean()):.4f} on the {label}")
    spots[2].set(xlim=(-0.7, 2.0), ylim=(-1.25, 0.85), aspect="equal", title="errors with dither, cells of area 1")
    spots[2].set_axis_off()
    return (
        f"Mean squared error of a component without dither: {', '.join(parts)}; with dither and in units of the "
        f"cell's area {', '.join(told)} (laws 1/12 = {1 / 12:.4f} and {G2:.4f})."
    )


def codebook_of(compressor: Compressor, side: int = 200) -> Tensor:
    """The codewords that an undithered quantiser sends for pairs in the unit square, [K, 2]."""
    line = torch.linspace(0, 1, side, dtype=torch.float64)
    return torch.unique(sent(compressor, torch.cartesian_prod(line, line)).round(decimals=9), dim=0)


def _edges(ax: Axes, book: Tensor) -> None:
    """The unit square and, within it, the borders between the cells of codewords."""
    from scipy.spatial import Voronoi

    inner, turn = book.numpy(), np.arange(8) * math.pi / 4
    far = 0.5 + 20 * np.stack([np.cos(turn), np.sin(turn)], 1)  # they close the outer cells, far away
    cells = Voronoi(np.concatenate([inner, far]))
    lines = [
        cells.vertices[ends] for pair, ends in zip(cells.ridge_points, cells.ridge_vertices, strict=True)
        if max(pair) < len(inner) and -1 not in ends
    ]  # fmt: skip
    borders = ax.add_collection(LineCollection(lines, colors=CONNECTOR, linewidths=1.0, zorder=0))
    square = ax.add_patch(Rectangle((0, 0), 1, 1, fill=False, linewidth=1.2))
    borders.set_clip_path(square)


# --- squared errors against their laws


class Measured(NamedTuple):
    """Mean squared error of a component by compressor and bits: the mean over messages, its standard error, the law."""

    bits: int
    mean: float
    error: float
    law: float


def measured_errors(
    bits: Sequence[int] = (1, 2, 3, 4, 5, 6), width: int = 32, batch: int = 64, messages: int = 12, seed: int = 0
) -> dict[str, list[Measured]]:
    """Every compressor of the package on vectors uniform on [-1, 1]^P, encoded and decoded, with dither.

    Laws: Delta^2 / 12, G_2 V W^2, for random-k (1 - k/P) mean square, an upper bound of top-k (k = floor(P b / 32)).
    """
    sizes = (messages, batch, width)
    x = torch.from_numpy(stream(seed, "measured").uniform(-1, 1, sizes))
    found: dict[str, list[Measured]] = {}
    for b in bits:
        kept = b * width // 32
        dropped = (1 - kept / width) * float(x.square().mean())
        chosen = {
            "scalar, ends": UniformScalar(b), "scalar, bins": UniformScalar(b, grid="bins"),
            "hexagonal, infinite": Hexagonal(b, codebook="infinite"), "hexagonal, finite": Hexagonal(b),
            "top-k": TopK(kept), "random-k": RandomK(kept),
        }  # fmt: skip
        for label, one in chosen.items():
            rngs = [stream(seed, f"measured {label} {b}", client=i) for i in range(messages)]
            squares = (one.decode(one.encode(x, rngs), x) - x).square().mean((1, 2))
            law = one.squared_error_law() if hasattr(one, "squared_error_law") else dropped
            error = float(squares.std()) / math.sqrt(messages)
            found.setdefault(label, []).append(Measured(b, float(squares.mean()), error, law))
    return found


def draw_errors(axes: Any, found: dict[str, list[Measured]]) -> str:
    """Squared error over bits with the laws as lines; and the quantisers' in units of 4^-b W^2, where constants differ.

    Dotted: the lattice constant as the paper prints it; below the disc's bound is no quantiser of the plane.
    Shapes: ``axes`` two of them, ``found`` from :func:`measured_errors`.
    """
    left, right = panels(axes, 2)
    parts = []
    for i, (label, rows) in enumerate(found.items()):
        b, look = [row.bits for row in rows], series(i)
        left.plot(b, [row.law for row in rows], marker="", linewidth=1.0, color=look["color"], linestyle="-")
        points = look | {"linestyle": ""}
        left.errorbar(b, [row.mean for row in rows], [2 * row.error for row in rows], label=label, **points)
        if label.endswith("-k"):
            continue
        unit = [4.0**row.bits / 4 for row in rows]  # the range is [-1, 1]: W = 2
        mean, error, law = ([v[n] * u for v, u in zip(rows, unit, strict=True)] for n in (1, 2, 3))
        right.errorbar(b, mean, [2 * e for e in error], **points)
        if "finite" not in label.split():  # its law leaves the border out, where most of its error is
            right.plot(b, law, marker="", linewidth=1.0, linestyle="-", color=look["color"])
        parts.append(f"{label} {mean[-1]:.4f}")
    left.plot(b, [4 * PRINTED * 4.0**-v for v in b], color="black", linestyle=":", marker="")
    for value, words, line in ((PRINTED, "printed: 1/24", ":"), (DISC / 2, "disc: no cell has less", "--")):
        right.axhline(value, color="black", linestyle=line, linewidth=1.2)
        right.annotate(words, (0.98, value), xycoords=("axes fraction", "data"), xytext=(0, -3),
                       textcoords="offset points", ha="right", va="top", fontsize="small")  # fmt: skip
    left.set(yscale="log", xlabel="bits $b$", ylabel="squared error of a component")
    left.legend(loc="lower left", ncols=1)
    right.set(xlabel="bits $b$", ylabel=r"squared error / ($4^{-b}\,W^2$)", ylim=(0.03, 0.4))
    plain_log(right.yaxis)
    right.set_yticks([0.04, 0.08, 0.16, 0.32])
    for ax in (left, right):
        ax.set_xticks(b)
    return (
        f"Squared error of a component at b = {b[-1]} in units of 4^-b W^2: {', '.join(parts)}; the disc's bound is "
        f"{DISC / 2:.4f}, and the constant that is printed, {PRINTED:.4f}, is below it."
    )


def draw_sawtooth(axes: Any, bits: int = 2, points: int = 1200, seed: int = 0) -> str:
    """The scalar quantiser's error against the input, without and with dither: the mean at each input as a line.

    Shapes: ``axes`` two of them.
    """
    spots = panels(axes, 2)
    x = torch.linspace(-1, 1, points, dtype=torch.float64)[:, None]
    step, parts = UniformScalar(bits).step(), []
    for i, (ax, words) in enumerate(zip(spots, ("without dither", "with dither"), strict=True)):
        one = UniformScalar(bits, dither=bool(i))
        errors = torch.stack([sent(one, x, seed + s) - x for s in range(200 if i else 1)])[..., 0]  # [draws, points]
        look = {"linestyle": "", "marker": ".", "markersize": 2.5, "color": PALETTE[5 if i else 0]}
        ax.plot(x[:, 0], errors[0], **look)
        mean = errors.mean(0)
        if i:
            ax.plot(x[:, 0], mean, color=PALETTE[1], marker="", linestyle="-", linewidth=1.4, label="mean of 200 draws")
            ax.legend(loc="upper right")
        for end in (-step / 2, step / 2):
            ax.axhline(end, color=REFERENCE, linewidth=0.9, linestyle=":")
        ax.set(xlabel="input $h$", title=words, ylim=(-0.72 * step, 0.85 * step))
        parts.append(f"{words} {float(errors.square().mean()):.4f} and at most {float(mean.abs().max()):.3f}")
    spots[0].set_ylabel(r"error $\hat h - h$")
    return (
        f"At b = {bits} the errors lie within Delta/2 = {step / 2:.3f}; mean square and largest mean error of an "
        f"input: {'; '.join(parts)} (Delta^2/12 = {step**2 / 12:.4f})."
    )

"""Chapter 5's figures with controls: a vector quantised on a grid and on hexagons, and what the index of top-k costs.

The algorithm live, and its latency against local steps, stand in chapter05_live.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from fedbook.compression import COMPRESSORS, HEADER_BYTES, TopK, UniformScalar
from fedbook.compression.hexagonal import codebook
from fedbook.compression.wire import unpack
from fedbook.lab.panels import panels
from fedbook.lab.style import CELL, CELL_CHOSEN, CELL_EDGE, CODEWORD, PALETTE, REFERENCE, series
from fedbook.papers.cvfl.accounts import FLOAT_BITS, index_bits
from fedbook.randomness import stream

# --- a vector, quantised on the grid and on the hexagons

COPIES = 200  # of the vector in one message: each has its own dither


class Sent(NamedTuple):
    """One message of COPIES times the same pair, as the wire had it.

    ``code``: of the first pair (one number for each component, or one for the pair). Shapes: ``codeword`` [2],
    ``decoded`` [COPIES, 2]. ``payload``: bytes without the header. ``law``: expected squared error of a component.
    """

    code: tuple[int, ...]
    codeword: np.ndarray
    decoded: np.ndarray
    payload: int
    law: float


def send(kind: str, pair: Sequence[float], bits: int, dither: int) -> Sent:
    """Encode and decode ``pair`` in [-1, 1]^2 with the "scalar" or the "hex" quantiser (4^bits codewords each).

    ``dither``: 0 for none, else the number of the draw.
    """
    first, second = pair
    quantiser = COMPRESSORS[kind].make(bits, dither=dither > 0)
    x = torch.tensor([[[first, second]]], dtype=torch.float64).expand(1, COPIES, 2)
    (message,) = quantiser.encode(x, [stream(dither, "drawn dither")])
    body = message.buffer[HEADER_BYTES:][None]
    each = 2 if kind == "scalar" else 1
    code = unpack(body, 2 * bits // each, COPIES * each)[0, :each].tolist()
    codeword = _codewords(kind, bits)[code[0] if kind == "hex" else code[0] * 2**bits + code[1]]
    decoded = quantiser.decode([message], x)[0].numpy()
    return Sent(tuple(code), codeword, decoded, body.shape[1], quantiser.squared_error_law())


def draw_quantised(axes: Any, *, first: float, second: float, bits: int, dither: int) -> str:
    """The pair (``first``, ``second``) as both quantisers send it: left the grid, right the hexagons.

    A cell holds what goes to its codeword. The cloud is what ``COPIES`` dithers decode to. ``dither``: 0 for none,
    else the number of the draw. Shapes: ``axes`` two of them.
    """
    both = panels(axes, 2)
    pair = [v for name, v in (("first", first), ("second", second))]
    point, told = np.array(pair), []
    for ax, kind, word in zip(both, ("scalar", "hex"), ("grid", "hexagons"), strict=True):
        sent = send(kind, pair, bits, dither)
        _draw_sent(ax, kind, sent, point, bits, dither > 0)
        ax.set_title(f"{word}: code {', '.join(map(str, sent.code))}")
        error = sent.decoded - point
        told.append((word, sent, float(np.linalg.norm(error[0])), float((error**2).mean()), error.mean(0)))
    both[1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    sizes = " and ".join(f"{one.payload}" for _, one, *_ in told)
    here = "; ".join(
        f"{word} ({one.decoded[0, 0]:.3g}, {one.decoded[0, 1]:.3g}), error {error:.3g}" for word, one, error, *_ in told
    )
    start = (
        f"b = {bits}: {COPIES} copies of the pair take {sizes} bytes (and a header of {HEADER_BYTES}), {2 * bits} bits "
        f"a pair. The first of them comes back as {here}."
    )
    if not dither:
        return f"{start} Without dither all copies come back the same: an average keeps that error."
    squares = ", ".join(f"{word} {square:.3g} (law {one.law:.3g})" for word, one, _, square, _ in told)
    means = " and ".join(f"{float(np.linalg.norm(mean)):.2g}" for *_, mean in told)
    return (
        f"{start} Over all {COPIES} dithers, mean squared error of a component: {squares}; the mean of the copies is "
        f"{means} from the vector."
    )


def _draw_sent(ax: Axes, kind: str, sent: Sent, point: np.ndarray, bits: int, dithered: bool) -> None:
    words, cells = _codewords(kind, bits), _cells(kind, bits)
    chosen = int(np.linalg.norm(words - sent.codeword, axis=1).argmin())
    light = [CELL if i != chosen else CELL_CHOSEN for i in range(len(words))]
    ax.add_collection(PolyCollection(cells, facecolors=light, edgecolors=CELL_EDGE, linewidths=0.7, snap=False,
                                     zorder=0.5))  # fmt: skip
    ax.plot(*words.T, ".", color=CODEWORD, markersize=4 if bits < 4 else 2.5, zorder=1, label="codewords")
    ax.plot([-1, 1, 1, -1, -1], [-1, -1, 1, 1, -1], color=REFERENCE, linewidth=1.0, linestyle=":", marker="", zorder=2)
    back = sent.decoded[0]
    if dithered:
        moved = point + sent.codeword - back  # decoded = codeword - u
        ax.plot(*sent.decoded.T, "o", color=PALETTE[5], markersize=2.5, alpha=0.7, markeredgewidth=0, zorder=3,
                label=f"decoded, {COPIES} dithers")  # fmt: skip
        for a, b in ((point, moved), (sent.codeword, back)):
            ax.plot(*np.stack([a, b]).T, color="black", linewidth=1.1, linestyle="--", marker="", zorder=4)
        ax.plot(*moved, "o", color="black", markerfacecolor="white", markersize=7, zorder=5, label="$h + u$")
    for where, marker, colour, size, label in (
        (sent.codeword, "s", PALETTE[1], 9, "codeword sent"), (back, "P", PALETTE[2], 11, "decoded"),
        (point, "D", "black", 6, "vector $h$"),
    ):  # fmt: skip
        ax.plot(*where, linestyle="", marker=marker, color=colour, markersize=size, markeredgecolor="white", zorder=6,
                label=label)  # fmt: skip
    reach = 1 + 1 / (2**bits - 1) + 0.05  # half a step of the grid: as far as the dither takes the vector
    ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    ax.set(xlabel="$h_1$", ylabel="$h_2$")
    ax.grid(False)


@lru_cache(maxsize=16)
def _codewords(kind: str, bits: int) -> np.ndarray:
    """All codewords in [-1, 1]^2 (the hexagonal ones may lie outside), by code: [4^bits, 2]."""
    if kind == "scalar":
        levels = np.linspace(-1, 1, 2**bits)
        return np.stack(np.meshgrid(levels, levels, indexing="ij"), -1).reshape(-1, 2)
    book = codebook(bits, "finite", True, torch.device("cpu"))
    points = book.points.double().numpy() + np.array(book.offset)[:, None]
    return 2 * (points * book.distance * np.array([[1.0], [math.sqrt(3)]])).T


@lru_cache(maxsize=16)
def _cells(kind: str, bits: int) -> list[np.ndarray]:
    """What goes to each codeword, as polygons; those at the rim reach far out."""
    from scipy.spatial import Voronoi

    words = _codewords(kind, bits)
    turn = np.linspace(0, 2 * math.pi, 16, endpoint=False)
    far = 200 * np.stack([np.cos(turn), np.sin(turn)], 1)  # so that every cell of a codeword is bounded
    found = Voronoi(np.concatenate([words, far]))
    return [found.vertices[found.regions[found.point_region[i]]] for i in range(len(words))]


# --- what it costs to say which components were kept


def draw_index(axes: Any, *, bits: int, width: int, batch_size: int) -> str:
    """Top-k with k = floor(b P / 32): bits a component of the values, of each form of index, and of the header.

    Left beside a quantiser of the same b; right the index alone by k. ``width`` P, ``batch_size`` B. Shapes: ``axes``
    two of them.
    """
    left, right = panels(axes, 2)
    k, count = bits * width // FLOAT_BITS, batch_size * width
    values, header = FLOAT_BITS * k / width, 8 * HEADER_BYTES / count
    index = {form: index_bits(form, batch_size, width, k) / count for form in ("list", "bitmap", "shared")}
    quantiser = 8 * UniformScalar(bits).payload_bytes(batch_size, width) / count
    rows = (
        (f"quantiser, b = {bits}", quantiser, 0.0, header), ("top-k as the paper charges it", values, 0.0, 0.0),
        ("top-k, one set for the batch", values, index["shared"], header),
        ("top-k, bitmap", values, index["bitmap"], header), ("top-k, list", values, index["list"], header),
    )  # fmt: skip
    _draw_costs(left, rows)
    kept = np.unique(np.linspace(1, max(1, width // 2), 64).astype(int))
    for i, (form, word) in enumerate((("list", "list"), ("bitmap", "bitmap"), ("shared", "one set for the batch"))):
        cost = [index_bits(form, batch_size, width, int(n)) / count for n in kept]
        right.plot(kept / width, cost, label=word, markevery=max(1, len(kept) // 8), **series(i))
    right.axvline(k / width, color=REFERENCE, linewidth=1.2, linestyle=":", label=f"k = {k}")
    right.set(xlim=(0, None), ylim=(0, None), xlabel="$k / P$: share that is kept", ylabel="index, bits a component")
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.01), ncols=2, borderaxespad=0.0)
    own, shared = (8 * TopK(k).payload_bytes(batch_size, width, once) / count + header for once in (False, True))
    own_saves, shared_saves, saves = (FLOAT_BITS / bits_sent for bits_sent in (own, shared, quantiser + header))
    return (
        f"b = {bits} and P = {width} give k = {k}. In bits a component: the values {values:.3g}, where they lie "
        f"{index['list']:.3g} as a list, {index['bitmap']:.3g} as a bitmap, {index['shared']:.2g} as one set for the "
        f"batch of {batch_size}. Sent with headers: {own:.3g} if each vector has its own set ({own_saves:.3g} times "
        f"below {FLOAT_BITS}), {shared:.3g} with one set ({shared_saves:.3g} times), a quantiser "
        f"{quantiser + header:.3g} ({saves:.3g} times)."
    )


def _draw_costs(ax: Axes, rows: Sequence[tuple[str, float, float, float]]) -> None:
    places, start = np.arange(len(rows)), np.zeros(len(rows))
    for i, (label, colour, hatch) in enumerate(
        (("values", PALETTE[0], ""), ("index", PALETTE[1], "//"), ("header", PALETTE[2], ".."))
    ):
        lengths = np.array([row[1 + i] for row in rows])
        ax.barh(places, lengths, left=start, height=0.65, color=colour, hatch=hatch, edgecolor="white", linewidth=0,
                label=label)  # fmt: skip
        start = start + lengths
    for place, total in zip(places, start, strict=True):
        ax.annotate(f"{total:.3g}", (total, place), (4, 0), textcoords="offset points", va="center", fontsize="small")
    ax.set(xlim=(0, 1.15 * start.max()), ylim=(len(rows) - 0.4, -0.6), xlabel="bits a component")
    ax.set_yticks(places, [row[0] for row in rows])
    ax.grid(False, axis="y")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.01), ncols=3, borderaxespad=0.0)

"""Chapter 2's pictures: two point clouds with controls, kernels, representations, bytes.

Every draw function fills the axes that it is given and returns the sentence under the figure.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from torch import Tensor

from fedbook.lab.controls import choice, log_slider, slider
from fedbook.lab.explore import Explorer, explore
from fedbook.lab.panels import panels, plain_log
from fedbook.lab.style import CONNECTOR, MARKERS, PALETTE, REFERENCE, series
from fedbook.papers.hetero_ssfl.cka import centred, centred_gram, gram, gram_cka, linear_cka
from fedbook.randomness import normal, stream

# --- two clouds

ADDED = {
    "nothing": "nothing", "shift of client 2, by 3": "shift 2", "shift of both, by 3": "shift both",
    "noise of 0.3": "noise 0.3", "noise of 1": "noise 1",
}  # fmt: skip
STROKES, MIDDLES = ("stem", "upper", "lower"), (9.5, 25.5, 35.5)
SHADES = colormaps["PuOr"].resampled(33)  # few, so that a stored picture keeps the markers' colours


def letter() -> tuple[Tensor, Tensor]:
    """The first cloud, a letter F around 0: points [40, 2] (float64) and the stroke [40] that each belongs to."""
    strokes = [((0.0, 0.0), (0.0, 3.0), 20), ((0.15, 3.0), (1.8, 3.0), 12), ((0.15, 1.6), (1.2, 1.6), 8)]
    points = [torch.stack([torch.linspace(a, b, n, dtype=torch.float64) for a, b in zip(start, end, strict=True)], 1)
              for start, end, n in strokes]  # fmt: skip
    return centred(torch.cat(points)), torch.arange(3).repeat_interleave(torch.tensor([20, 12, 8]))


def two_clouds(angle: float, scale: float, shear: float, added: str) -> tuple[Tensor, Tensor]:
    """The clouds A and B [40, 2]: b is a sheared, turned by ``angle`` degrees, scaled, with something added.

    Shear takes (x, y) to (x, y + shear x). A shift moves by (3, 3) times the size of the cloud, noise is normal with
    0.3 or 1 times that size (root mean square over all coordinates), so that both matter alike at any scale.
    """
    angle = math.radians(angle)
    a, _ = letter()
    turn = a.new_tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    b = scale * a @ a.new_tensor([[1.0, shear], [0.0, 1.0]]) @ turn
    sizes = [x.square().mean().sqrt() for x in (a, b)]
    if added.startswith("noise"):
        b = b + float(added.split()[1]) * sizes[1] * normal(tuple(b.shape), stream(0, "noise on a cloud"))
    elif added != "nothing":
        b = b + 3 * sizes[1]
        a = a + 3 * sizes[0] if added == "shift both" else a
    return a, b


def draw_clouds(axes: Any, *, angle: float, scale: float, shear: float, added: str) -> str:
    """Left both clouds, every fourth pair of points joined; right their centred kernels, each of norm 1.

    Shapes: ``axes`` three of them.
    """
    first, *rest = panels(axes, 3)
    a, b = two_clouds(angle, scale, shear, added)
    stroke = letter()[1]
    pairs = torch.stack([a, b], 1)[::4].numpy()
    first.add_collection(LineCollection(pairs, colors=CONNECTOR, linewidths=0.7, zorder=1))
    for i, name in enumerate(STROKES):
        look = {"color": PALETTE[i], "marker": MARKERS[i], "linestyle": "", "markersize": 5}
        first.plot(*a[stroke == i].T, label=name, **look)
        first.plot(*b[stroke == i].T, markerfacecolor="white", **look)
    means = torch.stack([a.mean(0), b.mean(0)])
    first.plot(*means.T, color="black", marker="+", linestyle="", markersize=10, zorder=5, label="mean")
    first.set_aspect("equal", adjustable="datalim")
    first.set_title("client 1 filled, client 2 open")
    first.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2, borderaxespad=0.0, columnspacing=1.0)
    value, printed = float(linear_cka(a, b)), float(linear_cka(a, b, centre=False))
    hats = [_unit(centred_gram(gram(x))) for x in (a, b)]
    top, titles = float(hats[0].abs().max()), ("", f"\nCKA {value:.3f}, as printed {printed:.3f}")
    signs = ("violet: same side of the mean", "orange: opposite sides")
    for k, (ax, hat) in enumerate(zip(rest, hats, strict=True)):
        ax.imshow(hat.numpy(), cmap=SHADES, vmin=-top, vmax=top, interpolation="nearest")
        ax.set(title=rf"$\hat K_{k + 1}$, centred, of norm 1" + titles[k], xlabel=signs[k])
        ax.set_xticks(MIDDLES, STROKES)
        ax.set_yticks(MIDDLES, STROKES if k == 0 else [""] * 3)
        _borders(ax, stroke)
    apart = float((hats[0] - hats[1]).norm())
    return (
        f"Centred CKA = {value:.3f}; by equation (1) as printed, without centring, {printed:.3f}. Client 2 is turned "
        f"by {angle:g}°, {scale:.3g} times as large, sheared by {shear:g}; added: "
        f"{_named(added)}. The two kernels of norm 1 lie {apart:.3f} apart, and √(2 (1 - CKA)) = "
        f"{math.sqrt(max(0.0, 2 - 2 * value)):.3f}."
    )


def clouds_explorer() -> Explorer:
    """The clouds with their controls, displayed."""
    return explore(
        draw_clouds,
        axes=(1, 3, (10, 3.9)),
        presets={
            "turn and scale": {"angle": 120, "scale": 2.0},
            "same shape, elsewhere": {"added": "shift 2"},
            "other shape, one offset": {"shear": -3.0, "added": "shift both"},
            "noise": {"added": "noise 1"},
        },
        angle=slider("θ  rotation (degrees)", -180, 180, 15, 30),
        scale=log_slider("c  scale", 0.2, 5.0, 1.0),
        shear=slider("s  shear", -3.0, 3.0, 0.25, 0.0),
        added=choice("b  added", ADDED, "nothing"),
    )


def _named(added: str) -> str:
    return next(words for words, value in ADDED.items() if value == added)


def _unit(k: Tensor) -> Tensor:
    return k / k.norm().clamp(min=1e-300)


# --- kernels of clients


def draw_grams(axes: Any, grams: Mapping[str, Tensor], classes: Any) -> str:
    """Centred kernels as heat maps, images ordered by class; each over its norm, one colour scale for all.

    The sentence: CKA of each with the classes' own kernel (1 for two images of one class, else 0).
    Shapes: ``axes`` as many as ``grams``, which map a label to [L, L]; ``classes`` [L], whole numbers.
    """
    spots, classes = panels(axes, len(grams)), torch.as_tensor(classes)
    order = torch.argsort(classes, stable=True)
    held = {}
    for label, k in grams.items():
        k = k.detach().cpu().double()
        held[label] = k[order][:, order]
    classes = classes[order]
    own = (classes[:, None] == classes).double()
    hats = {label: _unit(centred_gram(k)) for label, k in held.items()}
    top = max(float(hat.abs().flatten().quantile(0.99)) for hat in hats.values()) or 1.0
    names, starts, counts = np.unique(classes.numpy(), return_index=True, return_counts=True)
    parts = []
    for ax, (label, hat) in zip(spots, hats.items(), strict=True):
        shown = ax.imshow(hat.numpy(), cmap=SHADES, vmin=-top, vmax=top, interpolation="nearest")
        middles = starts + counts / 2 - 0.5
        ax.set(title=label, xlabel="class of the image", xticks=middles, yticks=middles)
        ax.set_xticklabels(names)
        ax.set_yticklabels(names)
        _borders(ax, classes)
        parts.append(f"{label} {float(gram_cka(held[label], own)):.3f}")
    spots[0].set_ylabel("class of the image")
    spots[-1].figure.colorbar(shown, ax=spots, label=r"entry of $\hat K$", extend="both", shrink=0.6)
    return f"CKA of each kernel with that of the {len(names)} classes alone: {', '.join(parts)}."


def _borders(ax: Axes, ordered: Tensor) -> None:
    """Thin lines where the class changes."""
    for edge in torch.nonzero(ordered.diff()).flatten().tolist():
        ax.axhline(edge + 0.5, color=REFERENCE, linewidth=0.6, linestyle="-", marker="")
        ax.axvline(edge + 0.5, color=REFERENCE, linewidth=0.6, linestyle="-", marker="")
    ax.grid(False)


# --- representations of clients


def in_one_plane(representations: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The first two principal components of each client, of norm 1, turned as near to the first client's as they can.

    The turn (Procrustes: a rotation or reflection) changes no kernel; the signs and order of principal components
    are arbitrary and would make equal clients look different.
    Shapes: label -> [L, d_k], d_k of any size, to label -> [L, 2].
    """
    found: dict[str, Tensor] = {}
    for label, a in representations.items():
        a = a.detach().cpu().double()
        first = next(iter(found.values()), None)
        u, s, _ = torch.linalg.svd(centred(a), full_matrices=False)
        flat = torch.nn.functional.pad(u[:, :2] * s[:2], (0, max(0, 2 - len(s))))
        flat = _unit(flat)
        if first is not None:
            left, _, right = torch.linalg.svd(flat.mT @ first)
            flat = flat @ left @ right
        found[label] = flat
    return found


def draw_embedding(axes: Any, representations: Mapping[str, Tensor], labels: Any) -> str:
    """Each client's representations of the same images in the plane; a class has a colour AND a marker.

    The sentence: how much of the variance the plane shows, and CKA of every two clients, all columns; where labels
    read "kind: who", of two of the same kind.
    Shapes: ``axes`` as many as ``representations``, which map a label to [L, d_k]; ``labels`` [L], whole numbers.
    """
    spots, flat = panels(axes, len(representations)), in_one_plane(representations)
    labels = torch.as_tensor(labels)
    reach = 1.08 * max(float(points.abs().max()) for points in flat.values()) or 1.0
    shares = []
    for ax, (label, points) in zip(spots, flat.items(), strict=True):
        for i, kind in enumerate(labels.unique().tolist()):
            ax.plot(*points[labels == kind].T, linestyle="", markersize=4, alpha=0.8, label=str(kind), **_look(i))
        ax.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", title=label, xticks=[], yticks=[])
        a = representations[label].detach().cpu().double()
        squares = torch.linalg.svdvals(centred(a)).square()
        shares.append(f"{label} {float(squares[:2].sum() / squares.sum().clamp(min=1e-300)):.0%}")
    spots[-1].legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, title="class",
                     handletextpad=0.1)  # fmt: skip
    alike: dict[str, list[str]] = {}
    for one, other in itertools.combinations(representations, 2):
        kind = one.partition(":")[0]
        if ":" not in one or other.startswith(f"{kind}:"):
            pair = (representations[label].detach().cpu().double() for label in (one, other))
            alike.setdefault(kind if ":" in one else "", []).append(f"{float(linear_cka(*pair)):.2f}")
    told = "; ".join(f"{kind} {', '.join(values)}".strip() for kind, values in alike.items())
    text = f"The plane of the first two principal components holds, of the variance: {', '.join(shares)}."
    return f"{text} CKA of two clients: {told}." if told else text


def _look(i: int) -> dict[str, str]:
    """Colour and marker of class ``i``: 49 different pairs, open from the eighth on."""
    many = len(PALETTE)
    look = {"color": PALETTE[i % many], "marker": MARKERS[(i + i // many) % many]}
    return look if i < many else look | {"markerfacecolor": "white"}


# --- bytes


def draw_bytes(ax: Axes, x: Sequence[float], curves: Mapping[str, Sequence[float]], x_label: str) -> str:
    """Bytes of one message against L or d, both axes logarithmic; where two curves cross is marked and said.

    Between two given points a curve is taken as straight on the logarithmic axes, which powers of x are.
    Shapes: ``x`` [n] increasing, ``curves`` map a label to [n] bytes, all positive; n >= 2.
    """
    x, held = np.asarray(x, dtype=np.float64), {k: np.asarray(v, dtype=np.float64) for k, v in curves.items()}
    for i, (label, values) in enumerate(held.items()):
        ax.plot(x, values, label=label, markevery=max(1, len(x) // 8), **series(i))
    labels, parts = list(held), []
    for i, one in enumerate(labels):
        for other in labels[i + 1 :]:
            for at, size in crossings(x, held[one], held[other]):
                ax.plot(at, size, marker="o", markersize=11, markerfacecolor="none", markeredgecolor="black",
                        linestyle="", zorder=5)  # fmt: skip
                parts.append(f"{one} and {other} at {at:,.0f} ({_bytes(size)})")
    ax.set(
        xlim=(x[0], x[-1]), ylim=(0.7 * min(v.min() for v in held.values()), 1.4 * max(v.max() for v in held.values()))
    )
    plain_log(ax.xaxis)
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(lambda v, _: _bytes(v))
    ax.set(xlabel=x_label, ylabel="one message")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    ends = "; ".join(f"{label} {_bytes(values[-1])}" for label, values in held.items())
    where = f"Equal: {'; '.join(parts)}" if parts else "No two curves cross"
    return f"{' '.join(x_label.split())} = {x[-1]:,.0f}: {ends}. {where}."


def crossings(x: np.ndarray, one: np.ndarray, other: np.ndarray) -> list[tuple[float, float]]:
    """Where two curves change order: (x, value), straight between points on logarithmic axes. Shapes: all [n]."""
    gap, found = np.log(one) - np.log(other), []
    for k in np.flatnonzero(np.sign(gap[:-1]) * np.sign(gap[1:]) < 0):
        part = gap[k] / (gap[k] - gap[k + 1])
        at, size = (math.exp((1 - part) * math.log(v[k]) + part * math.log(v[k + 1])) for v in (x, one))
        found.append((at, size))
    inner = [k for k in range(1, len(x) - 1) if gap[k] == 0 and gap[k - 1] * gap[k + 1] < 0]
    return sorted(found + [(float(x[k]), float(one[k])) for k in inner])


def _bytes(size: float) -> str:
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if size >= 0.9995 * 10**power:
            return f"{size / 10**power:.3g} {unit}"
    return f"{size:.3g} B"

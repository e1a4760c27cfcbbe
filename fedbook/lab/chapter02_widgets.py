"""Chapter 2's figures with controls: mu against local loss and alignment; the alignment set against accuracy and bytes.

Factories compute once and return ``draw(axes, **controls)``. The algorithm live stands in chapter02_live, two point
clouds in chapter02_clouds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from matplotlib.ticker import EngFormatter

from fedbook.intervals import Interval
from fedbook.lab.chapter02_paper import gram_bytes, representation_bytes, weight_bytes
from fedbook.lab.chapter02_stored import NAMED, OURS, by_setting, look_of
from fedbook.lab.chapter02_tradeoff import SIGNS, STEPS, descend, neighbours
from fedbook.lab.panels import panels, plain_log
from fedbook.lab.results import Cell, Table
from fedbook.lab.stored_cells import halves
from fedbook.lab.style import CONNECTOR, PALETTE, series
from fedbook.papers.hetero_ssfl.cka import ceiling

# --- mu against local loss and alignment

WIDTHS = (2, 4, 16)
FRONT = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


def mu_drawer(table: Table, seed: int = 0) -> Callable[..., str]:
    """``draw(axes, mu, width, sign)``: left one client's way at that mu before the front of all mu, right real runs.

    ``table``: Hetero-SSFL with mu varied. Shapes: ``axes`` two of them.
    """
    (client, others), cells = neighbours(seed), by_setting("mu", table, proximal="distance")["hetero-ssfl"]
    grid = torch.tensor(FRONT, dtype=torch.float64)
    fronts = {(d, s): descend(client, d, grid, others, s) for d in WIDTHS for s in SIGNS.values()}
    ceilings = {d: float(ceiling(others, d)) for d in WIDTHS}

    def draw(axes: Any, *, mu: float, width: int, sign: str) -> str:
        spots = panels(axes, 2)
        front, limit = fronts[width, sign], ceilings[width]
        path = descend(client, width, torch.tensor([mu], dtype=torch.float64), others, sign)
        left = spots[0]
        left.plot(front.similarity[-1], front.loss[-1], label="where other μ end", **series(1))
        for i in range(0, len(FRONT), 4 if sign == "paper" else 2):
            left.annotate(f"{FRONT[i]:g}", (front.similarity[-1, i], front.loss[-1, i]), (4, 5),
                          textcoords="offset points", fontsize="small", color=PALETTE[1])  # fmt: skip
        left.plot(path.similarity[:, 0], path.loss[:, 0], label=f"{STEPS} steps at this μ",
                  **(series(0) | {"markersize": 3, "linewidth": 1.0}))  # fmt: skip
        end = float(path.similarity[-1, 0]), float(path.loss[-1, 0])
        left.plot(*end, marker="*", markersize=15, color=PALETTE[0], markeredgecolor="black", linestyle="", zorder=5)
        left.axvline(limit, color="black", linestyle=":", linewidth=1.2, label="most that width d can")
        left.set(xlim=(-0.03, 1.05), ylim=(0, 1.05 * float(front.loss.max())), xlabel="CKA with the others",
                 ylabel=r"own loss $\ell$")  # fmt: skip
        left.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2, ncols=2)
        first = float(path.similarity[0, 0]), float(path.loss[0, 0])
        told = (
            f"μ = {mu:.3g}, d = {width}: {STEPS} steps take the own loss from {first[1]:.2f} to {end[1]:.2f} and CKA "
            f"from {first[0]:.2f} to {end[0]:.2f} (at most {limit:.2f}); alone it is {float(front.loss[-1, 0]):.2f} "
            f"and {float(front.similarity[-1, 0]):.2f}."
        )
        return told + _draw_runs(spots[1], cells, mu)

    return draw


def _draw_runs(ax: Any, cells: dict[float, Cell], mu: float) -> str:
    """The stored runs in the same plane, the one nearest to mu (by (mu + 0.1) as a ratio) marked."""
    points = {m: [OURS.interval(c, name) for name in ("alignment_test", "self_loss", "probe_few")]
              for m, c in cells.items()}  # fmt: skip
    near = min(points, key=lambda m: abs(torch.tensor((m + 0.1) / (mu + 0.1)).log()))
    x, y, _ = zip(*points.values(), strict=True)
    bars = [[[bar[side][0] for bar in map(_bar, of)] for side in (0, 1)] for of in (y, x)]
    ax.errorbar([one.mean for one in x], [one.mean for one in y], *bars, capsize=2, **(series(2) | {"linewidth": 1.0}))
    for i, (m, (across, up, few)) in enumerate(points.items()):
        side = {"xytext": (7, -13), "ha": "left"} if i % 2 else {"xytext": (-7, 6), "ha": "right"}
        ax.annotate(f"{m:g}: {few.mean:.1f} %", (across.mean, up.mean), textcoords="offset points", fontsize="small",
                    fontweight="bold" if m == near else "normal", **side)  # fmt: skip
    ax.plot([points[near][0].mean], [points[near][1].mean], marker="o", markersize=13, markerfacecolor="none",
            markeredgecolor="black", linestyle="", zorder=5)  # fmt: skip
    ax.margins(0.25)
    ax.set(xlabel=OURS.label("alignment_test"), ylabel=OURS.label("self_loss"), title="real runs, μ: accuracy")
    across, up, few = points[near]
    return (
        f" The real run with μ = {near:g}: CKA {across.mean:.2f}, own loss {up.mean:.2f}, "
        f"{few.mean:.1f} % with 5 labels a class."
    )


# --- the alignment set against accuracy and bytes

BACKBONES = {  # parameters and features D; 8 x 8 digits, and 32 x 32 photographs for the paper's
    "cnn_s": (18_672, 48), "cnn_m": (74_208, 96), "mlp": (8_320, 64),
    "resnet18": (11_168_832, 512), "resnet34": (21_276_992, 512),
}  # fmt: skip
PIXELS = {"cnn_s": 64, "cnn_m": 64, "mlp": 64, "resnet18": 3072, "resnet34": 3072}
IN_BYTES = EngFormatter("B", 1)


class Exchanged(NamedTuple):
    """Bytes of one client in one round (single precision), by what is sent; ``once``: the alignment set, 8 bit.

    ``up``, ``down``: what ``send=cheaper`` takes, kernels where their triangle is smaller.
    """

    representations: int
    factor: int
    kernel: int
    weights: int
    once: int
    up: int
    down: int


def exchanged(images: int, width: int, clients: int, architecture: str) -> Exchanged:
    """L = ``images``, all clients with representations of ``width``; weights: with projector and predictor."""
    word = architecture
    representations = representation_bytes(images, width)
    factor, kernel = clients * representations, gram_bytes(images, triangle=True)
    up, down = min(representations, kernel), min(factor, kernel)
    weights = weight_bytes(weight_count(word, width))
    return Exchanged(representations, factor, kernel, weights, images * PIXELS[word], up, down)


def weight_count(architecture: str, width: int) -> int:
    """Numbers that FedBYOL sends: backbone, projector D-2H-H and predictor H-2H-H, both with batch normalisation."""
    size, features = BACKBONES[architecture]
    return size + 2 * features * width + 6 * width**2 + 22 * width


def set_drawer(table: Table) -> Callable[..., str]:
    """``draw(axes, images, width, clients, architecture)``: left bytes of a client and round, right stored accuracies.

    ``table``: alignment_samples varied. Shapes: ``axes`` two of them.
    """
    metric, found = "probe_few", by_setting("alignment_samples", table, alignment_source="holdout")
    points = {m: {v: OURS.interval(c, metric) for v, c in own.items()} for m, own in found.items()}
    sizes = sorted({round(10 ** (k / 12)) for k in range(12, 49)})

    def draw(axes: Any, *, images: float, width: int, clients: int, architecture: str) -> str:
        spots = panels(axes, 2)
        images = round(images)
        at = exchanged(images, width, clients, architecture)
        by_size = [exchanged(n, width, clients, architecture) for n in sizes]
        left, lines = spots[0], {
            "representations, up": "representations", "all representations, down": "factor",
            "kernel, either way": "kernel", "weights, either way": "weights",
        }  # fmt: skip
        for i, (words, name) in enumerate(lines.items()):
            left.plot(sizes, [getattr(one, name) for one in by_size], label=words,
                      **(series(i) | {"markevery": (i, 9), "linewidth": 1.2}))  # fmt: skip
        for name, marker in (("up", 6), ("down", 7)):
            left.plot([images], [getattr(at, name)], marker=marker, markersize=8, color="black", linestyle="",
                      zorder=5, clip_on=False, label=f"sent {name}")  # fmt: skip
        left.axvline(images, color=CONNECTOR, linestyle=":", marker="", linewidth=1.0)
        left.set_xlim(10, 10_000)
        plain_log(left.xaxis)
        left.set_yscale("log")
        left.yaxis.set_major_formatter(EngFormatter("B"))
        left.minorticks_off()  # a third of the time of a redraw
        left.set(xlabel="alignment images $L$", ylabel="one client, one round")
        left.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2, ncols=2)
        told = (
            f"L = {images:,}, d = {width}, N = {clients}: {IN_BYTES(at.up)} up ({_kind(at, 'up')}) and "
            f"{IN_BYTES(at.down)} down ({_kind(at, 'down')}) a client and round; weights of {architecture} are "
            f"{IN_BYTES(at.weights)} each way, {_times(2 * at.weights / (at.up + at.down))} as much in all; the "
            f"images themselves {IN_BYTES(at.once)}, once."
        )
        return told + _draw_accuracy(spots[1], images)

    def _draw_accuracy(ax: Any, images: int) -> str:
        parts = []
        for method, own in points.items():
            bars = [_bar(one) for one in own.values()]
            ax.errorbar(list(own), [one.mean for one in own.values()],
                        [[bar[side][0] for bar in bars] for side in (0, 1)], capsize=3, label=NAMED[method],
                        **look_of(method))  # fmt: skip
            near = min(own, key=lambda n: abs(torch.tensor(n / images).log()))
            parts.append(f"{NAMED[method]} {own[near].mean:{OURS.digits(metric)}} at L = {near}")
        ax.axvline(images, color=CONNECTOR, linestyle=":", marker="", linewidth=1.0)
        ax.set_xlim(10, 10_000)
        plain_log(ax.xaxis)
        ax.minorticks_off()
        ax.set(xlabel="alignment images $L$", ylabel=OURS.label(metric))
        ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2)
        return f" Nearest real runs: {', '.join(parts)}."

    return draw


def _bar(one: Interval) -> list[list[float]]:
    return halves(one) or [[0.0], [0.0]]


def _times(ratio: float) -> str:
    return f"{ratio:,.0f} times" if ratio >= 100 else f"{ratio:.3g} times"


def _kind(at: Exchanged, way: str) -> str:
    words, whole = ("representations", at.representations) if way == "up" else ("all representations", at.factor)
    return "the kernel" if at.kernel < whole else words

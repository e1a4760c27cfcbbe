"""Chapter 5's figures of convergence: floors, schedules, the theorem's terms, Table 1's thresholds.

Each draw function fills the axes it is given with what chapter05_floor, chapter05_descent or chapter05_sparse
returned, and returns the sentence under the figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter
from torch import Tensor

from fedbook.lab.chapter05_descent import Bound
from fedbook.lab.panels import panels
from fedbook.lab.style import REFERENCE, series

GRADIENT = r"$\|\nabla F\|^2$"
TINY = 1e-20  # of |grad F|^2: rounding errors, no floor


def draw_floors(axes: Any, found: Mapping[str, Tensor]) -> str:
    """|grad F|^2 by round for k = 1..P with its flat floors; floors against the measured squared error E.

    Shapes: ``axes`` two of them; ``found`` what ``floors_by_k`` returned.
    """
    left, right = panels(axes, 2)
    slopes, floor, error = (_of(found, name) for name in ("slopes", "floor", "error"))
    count = len(floor)
    for i, row in enumerate(slopes.T):
        look = series(i) | {"markersize": 3.5}
        left.semilogy(row.clamp_min(TINY), label=f"{i + 1}", markevery=(3 * i, max(1, len(row) // 5)), **look)
    left.set(xlabel="round", ylabel=GRADIENT, ylim=(1e-6, None))
    left.legend(title="$k$", loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    lossy = error > 0
    slope = float((floor * error)[lossy].sum() / error[lossy].square().sum())
    for i in torch.nonzero(lossy).flatten().tolist():
        right.loglog(error[i], floor[i], **(series(i) | {"linestyle": "", "markersize": 7}))
    ends = torch.stack([error[lossy].min() / 2, error.max() * 2])
    right.plot(ends, slope * ends, color="black", linestyle=":", marker="", label=rf"{slope:.2g} $\mathcal{{E}}$")
    right.set(xlabel=r"squared error $\mathcal{E}$ at the end", ylabel=f"floor of {GRADIENT}")
    right.legend(loc="upper left")
    ratio = (floor / error)[lossy]
    told = ", ".join(f"{v:.2g}" if v > TINY else "0" for v in floor.tolist())
    return (
        f"Floors for k = 1 to {count}: {told}; floor / E lies between {float(ratio.min()):.2g} and "
        f"{float(ratio.max()):.2g} for every k < {count}, and the line through 0 is {slope:.2g} E."
    )


def draw_floor_steps(
    axes: Any, local_steps: Sequence[int], parts: Sequence[float], plain: Tensor, dithered: Tensor
) -> str:
    """Floors against the step size, one curve for each Q: a deterministic quantiser's, and a dithered one's.

    Shapes: ``axes`` two of them; ``plain``, ``dithered`` [number of Qs, number of etas] of ``floors_by_step``, eta in
    parts of 1 / L.
    """
    spots, told = panels(axes, 2), []
    for ax, words, floors in zip(spots, ("without dither", "with dither"), (plain, dithered), strict=True):
        for i, (q, row) in enumerate(zip(local_steps, floors.tolist(), strict=True)):
            ax.loglog(parts, row, label=f"$Q$ = {q}", **series(i))
        ax.set(xlabel=r"step size $\eta L$", title=words)
        _plain_ticks(ax, parts)
        told.append(f"{words} {float(floors.min()):.2g} to {float(floors.max()):.2g}")
    low, high = (pick(x) for pick, x in ((min, (plain.min(), dithered.min())), (max, (plain.max(), dithered.max()))))
    for ax in spots:
        ax.set_ylim(float(low) / 2, float(high) * 2)
    spots[0].set_ylabel(f"floor of {GRADIENT}")
    spots[1].legend(loc="lower right")
    return f"Floors of the quantiser for Q = {', '.join(map(str, local_steps))}: {'; '.join(told)}."


def draw_schedules(ax: Axes, found: Mapping[str, Mapping[str, Any]]) -> str:
    """|grad F|^2 by round for constant bits and for bits that grow. ``found``: what ``schedules`` returned."""
    parts = []
    for i, (label, one) in enumerate(found.items()):
        slopes = _of(one, "slopes")
        sent = one["bits"] / 8e6
        ax.semilogy(slopes, label=f"{label}: {sent:.2g} MB", markevery=max(1, len(slopes) // 12),
                    **(series(i) | {"linewidth": 1.2}))  # fmt: skip
        parts.append(f"{label} {one['floor']:.2g} after {sent:.2f} MB")
    ax.set(xlabel="round", ylabel=GRADIENT)
    ax.legend(loc="upper right")
    return f"Where |grad F|^2 ends, and what the parties sent: {'; '.join(parts)}."


def draw_terms(ax: Axes, bounds: Mapping[str, Bound]) -> str:
    """The left side of a theorem and the terms of its right side, on a logarithmic axis, label by label.

    Terms that are 0 are left out. ``bounds``: label -> ``theorem_4_2`` or ``theorem_4_4``, of which the mean over runs
    is drawn.
    """
    ratios = []
    for place, bound in enumerate(bounds.values()):
        for i, (words, term) in enumerate(zip(("left side", "start", "noise", "compression"), bound, strict=True)):
            value = float(term.mean())
            if value > TINY:
                look = series(i) | {"linestyle": "", "markersize": 7}
                seen = ax.get_legend_handles_labels()[1]
                ax.semilogy([place], [value], label=None if words in seen else words, **look)
        ratios.append(float(bound.right.mean() / bound.left.mean()))
    ax.set_xticks(range(len(bounds)), list(bounds))
    ax.set(xlim=(-0.5, len(bounds) - 0.5), ylabel="mean over rounds")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    told = ", ".join(f"{label} {ratio:.3g}" for label, ratio in zip(bounds, ratios, strict=True))
    return f"The right side is so many times the left: {told}."


def draw_growth(ax: Axes, found: Mapping[str, Sequence[float]]) -> str:
    """Bits a component that Table 1's rate needs after T steps, by compressor. ``found``: what ``growth`` returned."""
    steps, parts = list(found["steps"]), []
    for i, (label, bits) in enumerate((k, v) for k, v in found.items() if k != "steps"):
        ax.semilogx(steps, bits, label=label, **series(i))
        parts.append(f"{label} {bits[0]:.3g} to {bits[-1]:.3g}")
    ax.axhline(32, color=REFERENCE, linewidth=0.9, linestyle=":")
    ax.annotate("no compression", (0.55, 32), xycoords=("axes fraction", "data"), xytext=(0, 4),
                textcoords="offset points", ha="center", fontsize="small")  # fmt: skip
    ax.set(xlabel="local steps $T$", ylabel="bits a component", ylim=(0, 37))
    ax.legend(loc="center right")
    return f"Bits a component from T = {steps[0]:,} to {steps[-1]:,}: {'; '.join(parts)} (32: nothing is compressed)."


def _of(found: Any, name: str) -> Tensor:
    return found[name].detach().cpu()


def _plain_ticks(ax: Axes, places: Sequence[float]) -> None:
    ax.set_xticks(list(places))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())

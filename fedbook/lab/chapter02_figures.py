"""Chapter 2's figures of its theory: clients that disagree, CKA and its mean, small samples, collapse, the drift.

Functions that train return what the draw functions take; those fill the axes they are given and return the sentence
under the figure. Point clouds, kernels, representations and bytes are in chapter02_clouds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter
from torch import Tensor

from fedbook.experiment import plan
from fedbook.lab.chapter02_clouds import draw_grams
from fedbook.lab.chapter02_collapse import NOISE, SIGNAL, VARIANTS, matrix_course, mode_course, rest_points
from fedbook.lab.chapter02_drift import Run
from fedbook.lab.chapter02_mean import agreement, dominance, self_inclusion
from fedbook.lab.chapter02_spectrum import ceilings, minibatches, signs, unrelated
from fedbook.lab.chapter02_theory import common_offset, stretched
from fedbook.lab.panels import panels, plain_log
from fedbook.lab.style import CONNECTOR, STRONG_REFERENCE, series
from fedbook.papers.description import own_settings
from fedbook.papers.hetero_ssfl import PAPER, run_on
from fedbook.papers.hetero_ssfl.cka import gram, linear_cka
from fedbook.papers.hetero_ssfl.evaluation import represented
from fedbook.papers.hetero_ssfl.problem import AlignedProblem, AlignedSettings, aligned_problem

SHOWN = 3  # clients in the picture, the first of each architecture
A_CLASS = 10  # test images of each class in the picture
TRAINED = {"alone": "local-ssl", "aligned": "hetero-ssfl"}
LINE = {"marker": ""}
POINTS = {"linestyle": "", "markersize": 6}
SMALL = {"markersize": 4.5}
FORMULA = {"color": "black", "linestyle": "-", "marker": "", "linewidth": 1.0}

# --- clients that learn alone do not agree


class Disagreement(NamedTuple):
    """Representations [n, d_k] of the same n test digits by each client, for each way of training; float64.

    ``clients`` their architectures, ``classes`` [n], ``found`` way -> [A_1, A_2, A_3], ``rounds``.
    """

    clients: list[str]
    classes: Tensor
    found: dict[str, list[Tensor]]
    rounds: int

    def pairs(self, way: str) -> Tensor:
        """Unbiased CKA of every two clients, [3, 3]."""
        a = self.found[way]
        return torch.stack([torch.stack([linear_cka(x, y, unbiased=True) for y in a]) for x in a])


def trained_alone(rounds: int = 3, seed: int = 0, lr: float = 0.3) -> Disagreement:
    """Three of the five clients of the quick profile on digits, each alone and with mu = 0.5; the same start.

    About two seconds a round.
    """
    plans = {way: plan(PAPER, method, "digits", changes={"rounds": rounds, "lr": lr}, seeds=[seed], device="cpu")
             for way, method in TRAINED.items()}  # fmt: skip
    problem = aligned_problem("digits", own_settings(AlignedSettings, plans["alone"].settings()), [seed])
    numbers = range(len(problem.classes))
    rows = torch.cat([torch.nonzero(problem.test_y == c).flatten()[:A_CLASS] for c in numbers])
    found = {}
    for way, one in plans.items():
        run = run_on(problem, one.method, one.settings(), [seed])
        run.evaluate = None
        for _ in run:
            pass
        found[way] = [_shown(problem, run, word, rows) for word in problem.assigned[:SHOWN]]
    return Disagreement(list(problem.assigned[:SHOWN]), problem.test_y[rows], found, rounds)


def _shown(problem: AlignedProblem, run: Any, word: str, rows: Tensor) -> Tensor:
    """How the first client with architecture ``word`` represents these test images."""
    theta = {name: p[0, 0] for name, p in run.clients[word]["theta"].items()}
    layer = run.algorithm.config.layer
    return represented(problem, run.algorithm.nets[word], theta, problem.test_x[rows], layer).double()


def draw_disagreement(axes: Any, found: Disagreement) -> str:
    """Kernels of three clients on the same images, a row for each way of training; titles say CKA with the next one.

    Shapes: ``axes`` [2, 3].
    """
    spots, grams, parts = panels(axes, len(found.found) * SHOWN), {}, []
    for way, representations in found.found.items():
        pairs = found.pairs(way)
        for k, (word, a) in enumerate(zip(found.clients, representations, strict=True)):
            after = (k + 1) % SHOWN
            title = f"{way}: {k + 1}, {word}\nCKA with {after + 1}: {float(pairs[k, after]):.2f}"
            grams[title] = gram(a)
        parts.append(f"{way} " + ", ".join(f"{float(pairs[i, j]):.2f}" for i, j in ((0, 1), (1, 2), (2, 0))))
    draw_grams(spots, grams, found.classes)
    for i, ax in enumerate(spots):
        ax.set_xlabel("class of the image" if i >= len(spots) - SHOWN else "")
        ax.set_ylabel("class of the image" if i % SHOWN == 0 else "")
    return (
        f"CKA (unbiased) of clients 1 and 2, 2 and 3, 3 and 1 on {len(found.classes)} test digits after round "
        f"{found.rounds}: {'; '.join(parts)}."
    )


# --- what CKA sees


def draw_stretch(axes: Any) -> str:
    """CKA against a stretch of one direction (D4); and against an offset on all entries, centred or as printed.

    Shapes: ``axes`` two of them. Source: Hetero-SSFL, section 3.2 and eq. (1).
    """
    left, right = panels(axes, 2)
    fine, some = (torch.logspace(-1, 1, n, dtype=torch.float64).tolist() for n in (61, 13))
    points = [stretched(s) for s in some]
    left.plot(fine, [stretched(s).formula for s in fine], label=r"$s^2/\sqrt{s^4+1}$", **FORMULA)
    left.plot(some, [p.measured for p in points], label="CKA, measured", **(series(0) | POINTS))
    left.plot(some, [p.canonical for p in points], label="mean canonical correlation", **(series(1) | {"markevery": 2}))
    _ticks(left, (0.1, 0.3, 1, 3, 10))
    left.set(xlabel="stretch $s$ of the shared direction", ylabel="similarity of $A$ and $B$", ylim=(-0.04, 1.08))
    left.legend(loc="lower right", bbox_to_anchor=(1.0, 0.06))
    offsets = [c / 2 for c in range(11)]
    moved = common_offset(offsets)
    for i, (values, words) in enumerate(zip(
        moved, ("as printed, $A$ moved", "as printed, both moved", "centred, both moved"), strict=True
    )):  # fmt: skip
        right.plot(offsets, values, label=words, **series(i + 2))
    right.set(xlabel="offset $c$ added to all entries", ylabel="CKA of $A$ and $B$", ylim=(-0.04, 1.08))
    right.legend(loc="center right", bbox_to_anchor=(1.0, 0.32))
    off = max(abs(p.measured - p.formula) for p in points)
    return (
        f"Stretching from s = {some[0]:g} to {some[-1]:g} moves CKA from {points[0].measured:.3f} to "
        f"{points[-1].measured:.3f} (formula within {off:.1g}), canonical correlation stays {points[0].canonical:.3g}. "
        f"At c = {offsets[-1]:g} the printed form gives {float(moved.one[-1]):.3f} with A moved and "
        f"{float(moved.both[-1]):.3f} with both moved, the centred one {float(moved.centred[-1]):.3f}."
    )


def draw_signs(axes: Any, steps: int = 50, ranks: Sequence[int] = (1, 2, 3, 4, 6)) -> str:
    """CKA by step down 1 - CKA and down + CKA (D10); the ceiling by width: formula, top part, reached (D9).

    Shapes: ``axes`` two of them. Source: Hetero-SSFL, eq. (2).
    """
    left, right = panels(axes, 2)
    found, tops = signs(steps), ceilings(ranks)
    for i, (path, words) in enumerate(((found.distance, r"$+\mu\,(1-$CKA$)$"), (found.printed, r"$+\mu\,$CKA"))):
        left.plot(path, label=words, markevery=max(1, len(path) // 10), **series(i))
    left.axhline(float(found.ceiling), color="black", linestyle=":", linewidth=1.2, label="ceiling, $d$ = 3")
    left.set(xlabel="gradient step", ylabel=r"CKA of $K$ and $\bar K$", ylim=(-0.04, 1.08))
    left.legend(loc="center right", title="loss term", alignment="left")
    ranks = list(ranks)
    right.plot(ranks, tops.formula, label=r"$\sqrt{\sum_{i\leq d}\lambda_i^2/\sum_i\lambda_i^2}$", **FORMULA)
    right.plot(ranks, tops.top_part, label=r"the $d$ largest parts of $\bar K$", **(
        series(2) | POINTS | {"markersize": 10, "markerfacecolor": "none"}))  # fmt: skip
    right.plot(ranks, tops.reached, label="reached by descent", **(series(3) | POINTS | {"markersize": 4}))
    right.set(xlabel="width $d$ of the client", ylabel=r"largest CKA with $\bar K$", xticks=ranks)
    right.legend(loc="lower right")
    off = float((tops.reached - tops.formula).abs().max())
    told = ", ".join(f"{c:.3f}" for c in tops.formula.tolist())
    return (
        f"From CKA {float(found.distance[0]):.3f}, {steps} steps lead to {float(found.distance[-1]):.3f} with "
        f"1 - CKA in the loss (the ceiling is {float(found.ceiling):.3f}) and to {float(found.printed[-1]):.3f} with "
        f"+ CKA. The ceilings for d = {', '.join(map(str, ranks))} are {told}; descent ends within {off:.1g} of them."
    )


# --- who counts in the mean


def draw_shares(axes: Any) -> str:
    """A client's share of the reference by its norm (D8); its CKA with and without itself; CKA with the mean by J.

    Shapes: ``axes`` three of them.
    """
    first, second, third = panels(axes, 3)
    norms = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
    fine = torch.logspace(-1, 1, 61, dtype=torch.float64)
    plain, even = dominance(norms).shares, dominance(norms, normalise=True).shares
    others = plain.shape[1] - 1
    first.plot(fine, fine**2 / (fine**2 + others), label=rf"$r^2/(r^2+{others})$", **FORMULA)
    first.plot(norms, plain[:, 0], label="kernels as they are", **(series(0) | POINTS))
    first.plot(norms, even[:, 0], label="kernels of norm 1", **series(1))
    first.set(xlabel="$r$ times the norm", ylabel="share of the reference", ylim=(-0.04, 1.3))
    share = self_inclusion(norms)
    for i, (values, words) in enumerate(zip(
        share, (r"$\alpha_1$, its own part", "CKA, itself included", "CKA with the others"), strict=True
    )):  # fmt: skip
        second.plot(norms, values, label=words, **series(i + 2))
    second.set(xlabel="$r$ times the norm", ylabel="client 1 and its reference", ylim=(-0.04, 1.42))
    for ax in (first, second):
        _ticks(ax, (0.1, 0.3, 1, 3, 10))
        ax.set_yticks([k / 5 for k in range(6)])
    pairwise, told = [r / 5 for r in range(6)], []
    for i, clients in enumerate((2, 5, 20)):
        both = [agreement(clients, r) for r in pairwise]
        third.plot(pairwise, [float(b.right[0]) for b in both], **(FORMULA | {"label": "formula" if i == 0 else None}))
        third.plot(pairwise, [float(b.left.mean()) for b in both], label=f"$N$ = {clients}", **(series(i) | POINTS))
        told.append(f"{float(both[0].left.mean()):.3f} for N = {clients}")
    third.set(xlabel="CKA of two clients", ylabel="CKA with the mean of all $N$", ylim=(-0.04, 1.08))
    third.legend(loc="lower right")
    for ax in (first, second):
        ax.legend(loc="upper left")
    return (
        f"At r = {norms[-1]:g} client 1 of {others + 1} is {float(plain[-1, 0]):.3f} of the reference, with kernels of "
        f"norm 1 {float(even[-1, 0]):.3f}; its CKA with the reference rises from {float(share.with_itself[0]):.3f} to "
        f"{float(share.with_itself[-1]):.3f} while that with the others stays {float(share.without[-1]):.3f}. Clients "
        f"that share nothing agree with their mean to {', '.join(told)}."
    )


# --- small samples


def draw_bias(axes: Any, draws: int = 20) -> str:
    """CKA of unrelated Gaussian representations against d / n (D11); CKA of minibatches against that of all rows.

    Vertical bars: two standard errors. Shapes: ``axes`` two of them.
    """
    left, right = panels(axes, 2)
    ratios = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0)
    fine = torch.logspace(math.log10(ratios[0]), math.log10(ratios[-1]), 41, dtype=torch.float64)
    left.plot(fine, fine / (1 + fine), label="$d/(n+d)$", **FORMULA)
    off, far, told = 0.0, 0.0, []
    for i, rows in enumerate((32, 128)):
        own = ratios[i::2]  # in turn, so that no point hides another
        found = [unrelated(rows, round(rows * ratio), draws=draws) for ratio in own]
        for k, (values, errors, words) in enumerate((
            ([b.biased for b in found], [b.error for b in found], "biased"),
            ([b.debiased for b in found], [b.debiased_error for b in found], "unbiased"),
        )):  # fmt: skip
            look = series(2 * k + i) | POINTS
            left.errorbar(own, values, [2 * e for e in errors], label=f"{words}, $n$ = {rows}", **look)
        off = max(off, *(abs(b.biased - b.formula) for b in found))
        far = max(far, *(abs(b.debiased) for b in found))
        told.append(f"{found[-1].biased:.3f} for n = {rows}, d = {round(rows * own[-1])}")
    _ticks(left, ratios)
    left.set(xlabel="width over images, $d/n$", ylabel="CKA of unrelated $A$ and $B$", ylim=(-0.1, 1.24))
    left.legend(loc="upper left", ncols=2, columnspacing=1.0, handletextpad=0.3)
    sizes = [8, 16, 32, 64, 128]
    batches = minibatches(sizes, draws=20 * draws)
    right.errorbar(sizes, batches.mean, 2 * batches.error, label="biased", **series(0))
    right.plot(sizes, batches.debiased, label="unbiased", **series(2))
    right.axhline(batches.whole, color="black", linestyle=":", linewidth=1.2, label="all 512 images")
    _ticks(right, sizes)
    right.set(xlabel="images in a batch", ylabel="CKA of $A$ and $B$")
    right.legend(loc="upper right")
    return (
        f"The biased CKA of unrelated representations is {', '.join(told)}; the formula is within {off:.2g} of it; the "
        f"unbiased one is within {far:.2g} of 0. Of {sizes[0]} images the biased CKA is {float(batches.mean[0]):.3f} "
        f"(standard error {float(batches.error[0]):.2g}) and the unbiased {float(batches.debiased[0]):.3f}; of all 512 "
        f"they are {batches.whole:.3f} and {batches.whole_debiased:.3f}."
    )


# --- collapse


def draw_collapse(axes: Any, decay: float = 0.1, time: float = 60.0) -> str:
    """The linear model's directions over time: from full matrices (points), each alone (lines), both their roots.

    Panels: predictor and stop-gradient, no predictor, no stop-gradient; the target is the online network.
    Shapes: ``axes`` three of them.
    """
    spots, off, parts, steps = panels(axes, len(VARIANTS)), 0.0, [], 400
    for ax, variant in zip(spots, VARIANTS, strict=True):
        options = {"time": time, "steps": steps, "variant": variant, "decay": decay}
        modes, matrix = mode_course(**options), matrix_course(**options)
        off = max(off, float((modes.online - matrix.online).abs().max()))
        for i, (s, n) in enumerate(zip(SIGNAL, NOISE, strict=True)):
            look, every = series(i), slice(8 * i, None, steps // 10)
            ax.plot(modes.times, modes.online[:, i], **(look | LINE))
            ax.plot(matrix.times[every], matrix.online[every, i], label=f"$s$ = {s:g}, $n$ = {n:g}", **(look | POINTS))
        ax.set(title="predictor and stop-gradient" if variant == "both" else variant, xlabel="time", ylim=(-0.05, 1.08))
        parts.append(f"{variant} {', '.join(f'{v:.2g}' for v in modes.online[-1].tolist())}")
    rests = [rest_points(s, n, decay) for s, n in zip(SIGNAL, NOISE, strict=True)]
    alive = [(i, pair) for i, pair in enumerate(rests) if not math.isnan(pair[0])]
    if alive:
        starts, ends = zip(*(pair for _, pair in alive), strict=True)
        spots[0].hlines(ends, 0, time, color=STRONG_REFERENCE, linestyle=":", linewidth=1.2, label="rests here")
        colours = [series(i)["color"] for i, _ in alive]
        spots[0].hlines(starts, 0, time, color=colours, linestyle=(0, (1, 4)), label="dies from below here")
        for i, (start, _) in alive:  # hollow: a rest point that nothing stays at
            spots[0].scatter(
                time, start, 36, marker=series(i)["marker"], facecolors="white", edgecolors=series(i)["color"]
            )
    spots[0].set_ylabel("online weight $w$ of a direction")
    marks = [h for h in spots[0].get_legend_handles_labels()[0] if h.get_label().endswith("here")]
    spots[0].legend(handles=marks, ncols=2, loc="upper right")
    spots[1].legend(loc="upper right")
    least, told = (
        ", ".join("none" if math.isnan(v) else f"{v:.2g}" for v in column) for column in zip(*rests, strict=True)
    )
    return (
        f"Online weights of the {len(SIGNAL)} directions at time {time:g}: {'; '.join(parts)}. With both, a balanced "
        f"direction rests at {told} if it starts above {least}. Matrices and single directions differ by at most "
        f"{off:.1g}."
    )


# --- the theorem


def draw_descent(ax: Axes, run: Run, smoothness: Tensor) -> str:
    """What a round's local steps do to each client's loss (filled), and Lemma 4.5's bound on that (open).

    Shapes: ``smoothness`` [T, K], from chapter02_drift. Source: Hetero-SSFL, Lemma 4.5.
    """
    (ax,) = panels(ax, 1)
    change, bound, whole = run.trained - run.before, run.lemma(smoothness), run.theorem(smoothness)
    x = torch.arange(1, len(change) + 1)
    for values, words, own in (
        (change, "client", {"linestyle": "-"}),
        (bound, "bound, client", {"linestyle": ":", "markerfacecolor": "white"}),
    ):
        for k in range(values.shape[1]):
            look = series(k) | SMALL | own
            ax.plot(x + 0.2 * (k - 1), values[:, k], label=f"{words} {k + 1}", **look)
    ax.axhline(0.0, color="black", linewidth=1.0, linestyle="-", marker="")
    ax.set_yscale("symlog", linthresh=1e-3, linscale=0.4)
    top = 10.0 ** (1 + math.ceil(math.log10(max(float(bound.max()), 1.0))))  # room for the legend
    ax.set(xlabel="round", ylabel="change of the loss in local steps", ylim=(2 * float(change.min()), top))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ax.legend(loc="upper right", ncols=2, columnspacing=0.8, handlelength=1.6, handletextpad=0.4)
    promised, pairs = bound < 0, f"of {bound.numel()} (round, client) pairs"
    told = [
        f"Local steps change the loss by {_span(change)}, down in {int((change < 0).sum())} {pairs}.",
        f"Lemma 4.5, with the L1 of that round and client, holds in {int((change <= bound).sum())}.",
    ]
    if bool(promised.any()):
        told.append(
            f"It promises a fall in {int(promised.sum())}: its bound is {_span(bound[promised])} there, measured "
            f"{_span(change[promised])}."
        )
    if not bool(promised.all()):
        told.append(f"It promises none in {int((~promised).sum())}: its bound is {_span(bound[~promised])}.")
    told.append(
        f"A round with its new mean kernel changes the loss by {_span(run.swapped - run.before)}; Theorem 4.7's bounds "
        f"are {float(whole.min()):.3g} or more."
    )
    return " ".join(told)


def draw_drift(axes: Any, run: Run) -> str:
    """What the new mean kernel does to each client's loss, with every bound of step 8 on it; the loss round by round.

    The trace bound and the paper are about the trace that the paper's proof puts for CKA; constants of the whole run.
    Right, a round: trained (open), then the new mean kernel (filled), then, straight up or down, the target's renewal.
    Shapes: ``axes`` two of them. Source: Hetero-SSFL, Lemma 4.6.
    """
    (left, right) = panels(axes, 2)
    jumps, x = (run.swapped - run.trained).abs(), torch.arange(1, len(run.swapped) + 1)
    printed, repaired = (run.mu * run.paper_bound(printed=word) for word in (True, False))
    for value, line, words in ((repaired, "-", "paper, $E$ times"), (printed, "--", "paper, as printed")):
        left.plot(x[[0, -1]], [value] * 2, color="black", linestyle=line, marker="", label=words)
    left.plot(x, run.mu * run.trace_bound, label="trace bound (step 8)", **series(3))
    left.plot(x, run.mu * run.trace.max(1).values, label="trace, largest", **(
        series(3) | POINTS | {"markerfacecolor": "white"}))  # fmt: skip
    for i, name in enumerate(reversed(run.cka_bounds)):
        left.plot(x, run.mu * run.cka_bounds[name], label=f"CKA bound: {name}", **series(4 + i))
    left.axhline(run.mu, color=CONNECTOR, linestyle="-", linewidth=3.0, marker="", zorder=1, label=r"$\mu$: trivial")
    for k in range(jumps.shape[1]):
        left.plot(x + 0.2 * (k - 1), jumps[:, k], label=f"loss of client {k + 1}", **(series(k) | POINTS | SMALL))
    left.set(yscale="log", xlabel="round", ylabel="change by the new mean kernel")
    left.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    for k in range(jumps.shape[1]):
        path = torch.stack([run.before[:, k], run.trained[:, k], run.swapped[:, k]], 1).flatten()
        look, inner = series(k), torch.tensor([-1.0, -0.4, 0.0])  # where in a round each of the three is drawn
        right.plot((x[:, None] + inner).flatten(), path, **(look | LINE | {"linewidth": 1.1}))
        right.plot(x - 0.4, run.trained[:, k], markerfacecolor="white", **(look | POINTS | SMALL))
        right.plot(x, run.swapped[:, k], **(look | POINTS | SMALL))
    plain_log(right.yaxis)
    right.set(xlabel="round", ylabel="loss")
    right.set_title("open: trained, filled: new mean kernel")
    for ax in (left, right):
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    t = int(jumps.max(1).values.argmax())
    links = ", ".join(f"{run.mu * float(bound[t]):.3g} ({name})" for name, bound in run.cka_bounds.items())
    return (
        f"The new mean kernel changes a client's loss by at most {float(jumps.max()):.3g} (round {t + 1}; there the "
        f"CKA bounds are {links}, the trivial one {run.mu:g}); the loss goes up in "
        f"{int((run.swapped > run.trained).sum())} of {jumps.numel()}. mu times the trace changes by at most "
        f"{run.mu * float(run.trace.max()):.3g}; the trace bound is at most "
        f"{run.mu * float(run.trace_bound.max()):.3g}, the paper's {printed:.3g} as printed, {repaired:.3g} with "
        f"E = {run.steps}."
    )


def _span(values: Tensor) -> str:
    return f"{float(values.min()):.3g} to {float(values.max()):.3g}"


def _ticks(ax: Axes, places: Sequence[float]) -> None:
    """A logarithmic x axis with these numbers on it."""
    ax.set_xscale("log")
    ax.set_xticks(list(places))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())

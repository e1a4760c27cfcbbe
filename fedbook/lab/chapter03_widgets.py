"""Chapter 3's figures with controls: one private step on the sphere, two means, and the algorithm live on MNIST.

Factories compute once and return ``draw(axes, **controls)``, which only draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Circle
from torch import Tensor

from fedbook.experiment import plan
from fedbook.geometry import Hyperboloid, Manifold, Sphere, frechet_mean, tangent_mean
from fedbook.lab.chapter03_disk import arcs, disk
from fedbook.lab.chapter03_sphere import View, place
from fedbook.lab.chapter03_stored import METRICS, WORDS, eigenvector_floor
from fedbook.lab.chapter03_theory import clipped
from fedbook.lab.panels import panels, plain_log
from fedbook.lab.style import MANIFOLD_SAMPLE, PALETTE, REFERENCE, series
from fedbook.papers.prirfed import PAPER
from fedbook.papers.prirfed.embedding import to_disk
from fedbook.papers.prirfed.local_call import calibrated_sigma_rsgd
from fedbook.papers.prirfed.losses import Eigenvector
from fedbook.papers.prirfed.problem import ManifoldProblem, ManifoldSettings, manifold_problem
from fedbook.randomness import normal, stream

SPHERE = Sphere()
STEP = 0.5  # alpha of the drawn step
REACH = 1.12  # of the drawn tangent plane; no gradient of a record of length 1 is longer than 1

# --- one private step


def digit_directions(count: int = 400) -> Tensor:
    """Digits as points of S^2: their coordinates along the first three principal directions, scaled to length 1.

    The directions are those of the second moments, not centred; the first has the digits on its positive side. What
    the 61 others hold is thrown away: a picture's records, no experiment's. Shapes: [count, 3].
    """
    z = manifold_problem("pca-digits", ManifoldSettings(agents=1)).samples["z"]
    vectors = torch.linalg.eigh(z.mT @ z).eigenvectors[:, -3:].flip(1)
    vectors = vectors * (z @ vectors).sum(0).sign()
    return SPHERE.nearest((z @ vectors)[torch.from_numpy(stream(0, "digit directions").permutation(len(z))[:count])])


def clip_drawer(points: Tensor, delta: float = 1e-4) -> Callable[..., str]:
    """``draw(axes, clip_norm, epsilon, records, seed)``: one step of DP-RSGD for the leading eigenvector of ``points``.

    Left the sphere, right the tangent plane at x with all vectors against the gradients. The noise is calibrated so
    that this call, on all ``records`` of an agent, costs one of them (epsilon, ``delta``). Shapes: ``points`` [n, 3].
    """
    SPHERE.require_point("points", points)
    eye, x = View(32, 22), place(62, 8)
    best = torch.linalg.eigh(points.mT @ points).eigenvectors[:, -1]
    best = torch.where(best @ points.mean(0) < 0, -best, best)
    ahead = SPHERE.nearest(SPHERE.log(x, best))
    axes_at_x = torch.stack([ahead, torch.linalg.cross(x, ahead)])
    pulls = -Eigenvector().gradients(x, {"z": points})

    def draw_clip(axes: Any, *, clip_norm: float, epsilon: float, records: int, seed: int) -> str:
        left, right = panels(axes, 2)
        bound, n = (
            clip_norm,
            records,
        )
        sigma = calibrated_sigma_rsgd(epsilon, delta, n, n, bound, 1)
        own, short = pulls[:n], clipped(SPHERE, x, pulls[:n], bound)
        mean = short.mean(0)
        noisy = mean + sigma * SPHERE.tangent_gaussian(x, normal((3,), stream(seed, "clip and noise")))
        new = SPHERE.exp(x, STEP * noisy)
        lost = "" if float((noisy @ axes_at_x.mT).abs().max()) < REACH else " (beyond the picture on the right)"
        _on_the_sphere(left, eye, points[:n], x, best, mean, noisy, new)
        _in_the_plane(right, [v @ axes_at_x.mT for v in (own, short, mean, noisy)], bound, sigma)
        many, far = int((SPHERE.norm(x, own) > bound).sum()), [float(SPHERE.dist(p, best)) for p in (x, new)]
        return (
            f"{many} of {n} gradients are longer than tau = {bound:g}; their clipped mean is {float(mean.norm()):.3g} "
            f"long. For epsilon = {epsilon:.3g} it needs noise of sigma = {sigma:.3g} in each of two directions. This "
            f"noisy step, {float(noisy.norm()) * STEP:.3g} long with alpha = {STEP:g}{lost}, goes from {far[0]:.3g} to "
            f"{far[1]:.3g} away from the best point."
        )

    return draw_clip


def _on_the_sphere(
    ax: Axes, eye: View, points: Tensor, x: Tensor, best: Tensor, mean: Tensor, noisy: Tensor, new: Tensor
) -> None:
    eye.sphere(ax, 1.1)
    eye.plane(ax, x, 0.42)
    eye.dots(ax, points, marker="o", markersize=3, color=MANIFOLD_SAMPLE, alpha=0.7, markeredgewidth=0)
    way = torch.linspace(0, STEP, 60, dtype=x.dtype)[:, None]
    for v, colour, style in ((mean, PALETTE[2], "-"), (noisy, PALETTE[1], "--")):
        eye.line(ax, SPHERE.exp(x, way * v), color=colour, linewidth=2.6, linestyle=style)
    for point, marker, colour, size in (
        (x, "D", "black", 6), (SPHERE.exp(x, STEP * mean), "P", PALETTE[2], 8), (new, "s", PALETTE[1], 7),
        (best, "*", PALETTE[0], 13),
    ):  # fmt: skip
        eye.dots(ax, point[None], marker=marker, color=colour, markersize=size, markeredgecolor="white",
                 markeredgewidth=0.6, zorder=4.5)  # fmt: skip
    eye.word(ax, x, "$x$", (11, 8))
    eye.word(ax, best, "best", (0, -13), fontsize=10, color=PALETTE[0])
    ax.set_title("grey: an agent's records")


def _in_the_plane(ax: Axes, vectors: Sequence[Tensor], bound: float, sigma: float) -> None:
    own, short, mean, noisy = (v.numpy() for v in vectors)
    dots = {"linestyle": "", "markersize": 3.5, "zorder": 2}
    ax.plot(*own.T, marker="o", color=PALETTE[5], markerfacecolor="none", label="against a gradient", **dots)
    ax.plot(*short.T, marker="o", color=PALETTE[0], label="clipped", **dots)
    ax.add_patch(Circle((0, 0), bound, fill=False, color=REFERENCE, linestyle="--", linewidth=1.3))
    ax.plot([], [], color=REFERENCE, linestyle="--", linewidth=1.3, marker="", label=r"$\tau$")
    for k in (1, 2):
        ax.add_patch(Circle(mean, k * sigma, color=PALETTE[3], alpha=0.16, linewidth=0, zorder=1))
    ax.plot([], [], color=PALETTE[3], alpha=0.4, linewidth=7, marker="", label=r"$\sigma$, $2\sigma$")
    for v, colour, marker, style, label in (
        (mean, PALETTE[2], "P", "-", "clipped mean"),
        (noisy, PALETTE[1], "s", "--", "with noise"),
    ):
        ax.plot([0, v[0]], [0, v[1]], color=colour, linestyle=style, linewidth=2.2, marker=marker, markevery=[1],
                markersize=8, markeredgecolor="white", zorder=4, label=label)  # fmt: skip
    ax.set(aspect="equal", xlim=(-REACH, REACH), ylim=(-REACH, REACH), title="tangent plane at $x$")
    ax.set(xlabel="towards the best point", ylabel="across", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    ax.plot(0, 0, "D", color="black", markersize=6, zorder=4)
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)


# --- two means

SURFACES: dict[str, Manifold] = {"sphere": SPHERE, "hyperbolic plane": Hyperboloid()}
_COUNT = 5


def draw_means(axes: Any, *, surface: str, spread: float, base: float, iterations: int) -> str:
    """Five points within ``spread`` of a centre, a base point ``base`` from it: tangent means, and the Frechet mean.

    Every tangent mean is the next one's base; right, their distance from the Frechet mean. To scale all lengths is to
    scale the curvature: with a small spread the surface is flat. Shapes: ``axes`` two of them.
    """
    left, right = panels(axes, 2)
    manifold = SURFACES[surface]
    centre = place(5, 25) if manifold is SPHERE else manifold.origin(3)
    frame = manifold.basis(centre)
    turn, far = torch.tensor([[0.3, 1.0, 2.4, 4.2, 5.1], [1.0, 0.55, 0.8, 0.95, 0.3]], dtype=torch.float64)
    points = manifold.exp(
        centre, spread * far[:, None] * (turn.cos()[:, None] * frame[0] + turn.sin()[:, None] * frame[1])
    )
    weights = torch.ones(_COUNT, dtype=torch.float64)
    path = [manifold.exp(centre, base * (0.6 * frame[0] - 0.8 * frame[1]))]
    for _ in range(iterations):
        path.append(tangent_mean(manifold, path[-1], points, weights))
    best = frechet_mean(manifold, centre, points, weights, tolerance=1e-13)[0]
    walk, errors = torch.stack(path), manifold.dist(torch.stack(path), best)
    _draw_surface(left, manifold, points, walk, best)
    right.plot(range(iterations + 1), errors.clamp(min=1e-16), **(series(1) | {"linestyle": "-"}))
    right.set(yscale="log", ylim=(1e-16, 10), xlabel="tangent means taken", ylabel="distance to the Fréchet mean")
    right.set(xlim=(-0.3, iterations + 0.3), yticks=(1e-16, 1e-12, 1e-8, 1e-4, 1), xticks=range(0, iterations + 1, 2))
    right.minorticks_off()
    return (
        f"{surface.capitalize()}, points within {spread:g}: from a base {float(errors[0]):.3g} away from the Fréchet "
        f"mean the tangent mean is {float(errors[1]):.2g} away from it, after {iterations} of them "
        f"{float(errors[-1]):.2g}. In a flat space the first would be exact."
    )


def _draw_surface(ax: Axes, manifold: Manifold, points: Tensor, walk: Tensor, best: Tensor) -> None:
    marks = (
        (points, "o", PALETTE[0], 7, "points"), (walk[:1], "D", "black", 7, "base $x$"),
        (walk[1:2], "s", PALETTE[1], 8, "tangent mean"), (walk[2:], ".", PALETTE[1], 7, "the next ones"),
        (best[None], "*", PALETTE[2], 13, "Fréchet mean"),
    )  # fmt: skip
    steps, ends = torch.linspace(0, 1, 30, dtype=points.dtype)[:, None], walk[:1].expand_as(points)
    sphere = manifold is SPHERE
    if sphere:
        eye = View(5, 15)
        eye.sphere(ax, 1.05)
        for y in points:
            eye.line(ax, SPHERE.exp(walk[0], steps * SPHERE.log(walk[0], y)), color=PALETTE[5], linewidth=1.0)
    else:
        disk(ax)
        for arc in arcs(ends, points):
            ax.plot(*arc.T, color=PALETTE[5], linewidth=1.0, linestyle="-", marker="")
    for where, marker, colour, size, label in marks:
        if len(where):
            looks = {"marker": marker, "color": colour, "markersize": size, "linestyle": "", "label": label,
                     "zorder": 4, "markeredgecolor": "white", "markeredgewidth": 0.6}  # fmt: skip
            if sphere:
                eye.dots(ax, where, **looks)
            else:
                ax.plot(*to_disk(where).T, **looks)
    ax.legend(loc="upper left", bbox_to_anchor=(0.98, 1.0), borderaxespad=0.0)


# --- the algorithm, live

SAMPLES, AGENTS_PER_ROUND, ROUNDS = 6000, 1, 60
SOLVERS = {"DP-RSGD": "dp-rsgd", "DP-RSVRG": "dp-rsvrg"}


class Step(NamedTuple):
    """Excess risk after a round; sound epsilon of one call, and of the run so far; the predicted floor."""

    excess_risk: float
    epsilon_call: float
    epsilon: float
    delta: float  # of both
    floor: float
    words: str


def start_live(epsilon_call: float, agents: int, solver: str, sigma_rule: str) -> Iterator[tuple[int, Step]]:
    """Round after round (t, Step) of PriRFed on 6,000 images of MNIST, one agent drawn a round.

    ``solver``: "dp-rsgd" or "dp-rsvrg". The floor is that of the private noise alone (DP-RSVRG's drawn records add to
    it).
    """
    changes = {"epsilon_call": epsilon_call, "agents": agents, "sigma_rule": sigma_rule, "samples": SAMPLES,
               "agents_per_round": AGENTS_PER_ROUND, "rounds": ROUNDS, "evaluate_every": 1}  # fmt: skip
    rounds = plan(PAPER, solver, "pca-mnist", changes=changes, device="cpu").rounds()
    algorithm = rounds.algorithm
    sigma = max(algorithm.sigma(int(n)) for n in rounds.federation.sizes.unique())
    delta = algorithm.config.delta_call
    floor = eigenvector_floor(_images(), algorithm.config.lr, sigma, AGENTS_PER_ROUND)
    words = f"{solver}, N = {agents}, ε = {epsilon_call:.3g}, {WORDS['sigma_rule'][sigma_rule]}"
    for record in rounds:
        metrics = {name: values[0] for name, values in record.metrics.items()}
        spent = rounds.privacy[0].report(delta)["epsilon"]
        spent = math.inf if spent is None else spent
        yield record.t + 1, Step(metrics["excess_risk"], metrics["epsilon_call"], spent, delta, floor, words)


@lru_cache(maxsize=1)
def _images() -> ManifoldProblem:
    """The records of the live run, which are the same for every number of agents."""
    return manifold_problem("pca-mnist", ManifoldSettings(samples=SAMPLES, agents=1))


def draw_live(ax: Axes, history: Sequence[tuple[int, Step]]) -> str:
    """Excess risk by round of the live run, and the predicted noise floor."""
    last = history[-1][1]
    t = [t for t, _ in history]
    ax.plot(t, [step.excess_risk for _, step in history], label=last.words, markevery=max(1, len(t) // 12), **series(0))
    worst = history[0][1].excess_risk
    ax.axhline(last.floor, color=PALETTE[1], linestyle="--", linewidth=1.6,
               label=f"predicted noise floor {last.floor:.2g}")  # fmt: skip
    low = min(last.floor, 0.1 * worst, *(step.excess_risk for _, step in history))
    high = max(worst, last.floor if last.floor < 30 * worst else 0.0)  # a floor far above stays off the page
    ax.set(xlim=(0, max(ROUNDS, t[-1])), ylim=(low / 2, 3 * high), xlabel="round", ylabel=METRICS["excess_risk"][1])
    plain_log(ax.yaxis)
    ax.legend(loc="upper right")
    beyond = " (above where it starts: noise wins)" if last.floor > worst else ""
    return (
        f"After {t[-1]} rounds: excess risk {last.excess_risk:.3g}, predicted noise floor {last.floor:.3g}{beyond}. "
        f"Sound epsilon of one call {last.epsilon_call:.4g}, of the run so far {last.epsilon:.4g}, both at delta = "
        f"{last.delta:g}."
    )

"""Chapter 0's figures. Each function draws on an Axes and returns the sentence under the figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from fedbook import partition
from fedbook.lab.chapter00_theory import quadratic_fixed_point, quadratic_paths, sampling_variance
from fedbook.lab.draw import draw_partition
from fedbook.lab.style import FAINT_REFERENCE, PALETTE, SHADE, series
from fedbook.randomness import stream


def draw_bars(ax: Axes, values: Mapping[str, Tensor]) -> str:
    """One bar a label: the mean over seeds, a dot for each seed. Shapes: label -> [S]."""
    parts = []
    for i, (label, seeds) in enumerate(values.items()):
        mean = float(seeds.double().mean())
        ax.bar(i, mean, color=PALETTE[i % len(PALETTE)], alpha=0.45, width=0.6, hatch=("", "//", "..", "xx")[i % 4])
        ax.plot([i] * len(seeds), seeds.tolist(), "o", color="black", markersize=3.5)
        ax.annotate(f"{mean:.2f}", (i + 0.33, mean), va="center", fontsize="small")
        parts.append(f"{label} {mean:.3f}")
    ax.set_xticks(range(len(values)), [label.replace(", ", ",\n") for label in values])
    ax.set_ylabel("accuracy")
    ax.set_ylim(0, 1.05)
    return f"Mean accuracy over {len(next(iter(values.values())))} seeds: {'; '.join(parts)}."


def draw_between(ax: Axes, mix: Tensor, losses: Mapping[str, Tensor]) -> str:
    """Loss along the straight line between two models. Shapes: ``mix`` [M], label -> [M]."""
    parts = []
    middle = int((mix - 0.5).abs().argmin())
    for i, (label, values) in enumerate(losses.items()):
        values = values.cpu()
        ax.plot(mix, values, label=label, **series(i))
        ends = min(float(values[int((mix - end).abs().argmin())]) for end in (0.0, 1.0))
        parts.append(f"{label}: {float(values[middle]):.3f} in the middle, {ends:.3f} at the better end")
    for end in (0, 1):
        ax.axvline(end, color=FAINT_REFERENCE, linewidth=1, linestyle=":")
    ax.set_xlabel("share of the second model")
    ax.set_ylabel("training loss on all data")
    ax.legend(loc="upper left")
    return "; ".join(parts) + "."


def draw_walks(ax: Axes, walks: Tensor, title: str) -> str:
    """The clients' local walks in a plane, their end points and the average. Shapes: ``walks`` [T + 1, K, 2]."""
    walks = walks.cpu()
    for k in range(walks.shape[1]):
        ax.plot(walks[:, k, 0], walks[:, k, 1], color=PALETTE[0], linewidth=0.9, linestyle="-", marker="", alpha=0.7)
    ax.plot(walks[-1, :, 0], walks[-1, :, 1], linestyle="", marker="o", color=PALETTE[0], label="a client's end")
    mean = walks[-1].mean(0)
    ax.annotate("", mean.tolist(), (0, 0), arrowprops={"arrowstyle": "-|>", "color": PALETTE[1], "linewidth": 2})
    ax.plot(*mean.tolist(), linestyle="", marker="s", color=PALETTE[1], label="their average")
    ax.set(title=title, xlabel="along the average move", ylabel="across", xlim=(-0.2, 2.0), ylim=(-3.2, 3.2))
    ax.legend(loc="upper left")
    spread = float((walks[-1] - mean).square().sum(-1).mean().sqrt())
    return f"{title}: the clients' ends scatter {spread:.2f} around their average, whose move is 1."


def draw_orders(ax: Axes, lr: Tensor, errors: Mapping[str, Tensor]) -> str:
    """Errors against step size on logarithmic axes, with the slope between the two smallest steps."""
    parts = []
    for i, (label, values) in enumerate(errors.items()):
        slope = float((values[-1] / values[-2]).log() / (lr[-1] / lr[-2]).log())
        ax.loglog(lr, values, label=label, **series(i))
        parts.append(f"{label}: slope {slope:.2f}")
    ax.set_xticks(lr.tolist()[::2], [f"{v:g}" for v in lr.tolist()[::2]])
    ax.minorticks_off()
    ax.set_xlabel(r"step size $\eta$")
    ax.set_ylabel("relative error of the prediction")
    ax.legend(loc="lower right")
    return "; ".join(parts) + "."


def draw_resting(ax: Axes, local_epochs: Sequence[int], measured: Tensor, predicted: Tensor) -> str:
    """Global gradient norm where FedAvg rests, against E: measured and first-order theory."""
    for i, (label, values) in enumerate((("measured", measured), ("first-order theory", predicted))):
        ax.plot(local_epochs, values, label=label, **series(i))
    ax.set_xscale("log", base=2)
    ax.set_xticks(list(local_epochs), [str(e) for e in local_epochs])
    ax.set_xlabel("local steps $E$")
    ax.set_ylabel(r"$\|\nabla F\|$ at the resting point")
    ax.legend(loc="upper left")
    pairs = [
        f"E = {e}: {float(m):.3f} against {float(p):.3f}"
        for e, m, p in zip(local_epochs, measured, predicted, strict=True)
    ]
    return "Measured against predicted: " + "; ".join(pairs) + "."


def draw_drift(ax: Axes, *, local_steps: int, lr: float, curvature: float, rounds: int = 30) -> str:
    """Two clients, two parameters: each pulls to its own optimum; FedAvg's path, its resting point, the true minimum.

    Client A curves ``curvature`` times as strongly along the first axis, client B along the second.
    """
    a = torch.tensor([[curvature, 1.0], [1.0, curvature]], dtype=torch.float64)
    b = torch.tensor([[-1.0, -0.5], [1.0, 0.8]], dtype=torch.float64)
    p = torch.tensor([0.5, 0.5], dtype=torch.float64)
    best = (p[:, None] * a * b).sum(0) / (p[:, None] * a).sum(0)
    rest = quadratic_fixed_point(a, b, p, lr, local_steps)
    server, walks = quadratic_paths(a, b, p, lr, local_steps, rounds, torch.tensor([-0.2, 1.3], dtype=torch.float64))
    grid = torch.stack(torch.meshgrid(torch.linspace(-1.5, 1.5, 60), torch.linspace(-1.0, 1.6, 60), indexing="xy"), -1)
    level = 0.5 * torch.einsum("k,kd,xykd->xy", p, a, (grid[:, :, None].double() - b) ** 2)
    ax.contour(grid[..., 0], grid[..., 1], level, levels=10, colors=SHADE, linewidths=0.7)
    for k, name in enumerate("AB"):
        for t in range(min(4, rounds)):
            ax.plot(
                walks[t, :, k, 0],
                walks[t, :, k, 1],
                color=PALETTE[k],
                linewidth=1.2,
                linestyle=("-", "--")[k],
                marker="",
            )
        ax.plot(*b[k].tolist(), marker="sD"[k], color=PALETTE[k], linestyle="", label=f"optimum of client {name}")
    ax.plot(server[:, 0], server[:, 1], color="black", marker=".", linewidth=1, label="server, round by round")
    ax.plot(*best.tolist(), "*", color=PALETTE[2], markersize=14, linestyle="", label="minimum of the global loss")
    ax.plot(*rest.tolist(), "X", color=PALETTE[3], markersize=9, linestyle="", label="FedAvg's resting point")
    ax.set_xlim(-1.5, 1.5)
    ax.set_ylim(-1.0, 1.6)
    ax.set_xlabel("$w_1$")
    ax.set_ylabel("$w_2$")
    ax.legend(loc="upper right", fontsize="x-small")
    gap, done = float((rest - best).norm()), float((server[-1] - rest).norm())
    return (
        f"With {local_steps} local steps of size {lr:g} FedAvg comes to rest {gap:.3f} away from the minimum of the "
        f"global loss; after {rounds} rounds it is {done:.1e} from its resting point."
    )


def skew_drawer(labels: Tensor, classes: Sequence[str], seed: int = 0) -> Callable[..., str]:
    """``draw(ax, alpha, clients)``: the Dirichlet split of these labels, and how much a client's mixture says."""
    labels = labels.cpu()

    def draw_skew(ax: Axes, *, alpha: float, clients: int) -> str:
        counts = partition.dirichlet(labels, clients, seed, alpha=alpha).counts(labels, len(classes)).double()
        draw_partition(ax, counts, classes)
        share = counts / counts.sum(1, keepdim=True)
        effective = torch.exp(-(share * share.clamp(min=1e-12).log()).sum(1))
        return (
            f"With alpha = {alpha:.3g} a client holds {float(effective.mean()):.1f} of {len(classes)} classes on "
            f"average (effective number: exp of the entropy), between {float(effective.min()):.1f} and "
            f"{float(effective.max()):.1f}."
        )

    return draw_skew


def participation_drawer(gradients: Tensor, seed: int = 0, draws: int = 200) -> Callable[..., str]:
    """``draw(ax, cohort)``: squared distance of a cohort's mean gradient from everyone's, measured and predicted.

    Shapes: ``gradients`` [K, P]; reduced to its K x K products once, so a redraw does not touch P.
    """
    centred = (gradients - gradients.mean(0)).double().cpu()
    gram, clients = centred @ centred.T, len(gradients)
    order = torch.from_numpy(_orders(draws, clients, seed))
    predicted = [float(sampling_variance(centred, m)) for m in range(1, clients + 1)]

    def draw_participation(ax: Axes, *, cohort: int) -> str:
        member = torch.zeros(draws, clients, dtype=torch.float64).scatter_(1, order[:, :cohort], 1.0 / cohort)
        squares = torch.einsum("sk,kl,sl->s", member, gram, member)
        ax.plot(range(1, clients + 1), predicted, label=r"$(1-m/K)\,\sigma_v^2/m$", **(series(0) | {"marker": ""}))
        ax.plot(
            [cohort] * draws, squares, linestyle="", marker="_", color=PALETTE[1], alpha=0.35, label=f"{draws} cohorts"
        )
        ax.plot([cohort], [squares.mean()], linestyle="", marker="D", color="black", label="their mean")
        ax.set_xticks(sorted({1, *range(5, clients + 1, 5), clients}))
        ax.set_xlabel("cohort size $m$")
        ax.set_ylabel("squared error of the gradient")
        ax.set_yscale("symlog", linthresh=max(predicted[0] * 1e-3, 1e-12))
        ax.set_ylim(0, max(predicted[0], float(squares.max())) * 2)
        ax.legend(loc="upper right")
        return (
            f"{cohort} of {clients} clients: the mean squared error over {draws} cohorts is "
            f"{float(squares.mean()):.3g}, predicted {predicted[cohort - 1]:.3g}; one client alone: {predicted[0]:.3g}."
        )

    return draw_participation


def _orders(draws: int, clients: int, seed: int) -> np.ndarray:
    """``draws`` random orders of the clients, [draws, K]."""
    rng = stream(seed, "participation figure")
    return rng.permuted(torch.arange(clients).repeat(draws, 1).numpy(), axis=1)

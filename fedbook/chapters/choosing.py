"""The lesson on choosing a method: its drawings, the answers of its exercises."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes

from fedbook.lab import gallery, style
from fedbook.lab.draw import draw_images
from fedbook.lab.exercises import WrongAnswer, by_cases, by_hand

__all__ = ["draw_budget", "draw_families", "draw_holdings", "draw_images", "draw_map", "draw_privacy"]

# --- drawings


def draw_families(ax: Axes) -> str:
    """A server and two clients; between the arrows, what goes up in each family of methods."""
    boxes = [
        gallery.Box(50, 86, 36, 22, "server", gallery.SERVER),
        gallery.Box(14, 18, 25, 30, "client 1\nkeeps its images"),
        gallery.Box(86, 18, 25, 30, "client K\nkeeps its images"),
    ]
    arrows = [gallery.Arrow(k, 0, "", gallery.UP, side=2) for k in (1, 2)]
    arrows += [gallery.Arrow(0, k, "", gallery.SERVER, side=2) for k in (1, 2)]
    sentence = gallery.draw_system(ax, boxes, arrows)
    rows = (
        "alone, frozen body: nothing", "FedAvg, FedSAM: a model", "FedRep, P-FedSAM: a body, the head stays",
        "DP-..., CENTAUR: as above, clipped; noise on the sum", "FedSC: an encoder and a matrix",
        "Hetero-SSFL: similarities of public images", "C-VFL: embeddings of shared samples",
    )  # fmt: skip
    for i, text in enumerate(rows):
        ax.text(50, 55 - 8 * i, text, ha="center", va="center", color=style.INK, fontsize=9,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
    return sentence


def draw_holdings(ax: Axes, counts: Any, classes: Sequence[str]) -> str:
    """Who holds how many images of which class, a column a client. Shapes: ``counts`` [K, C]."""
    counts = np.asarray(counts)
    picture = ax.imshow(counts.T, aspect="auto", cmap="cividis")
    ax.set_yticks(range(len(classes)), classes)
    ax.set_xticks(range(0, len(counts), max(1, len(counts) // 10)))
    ax.set(xlabel="client")
    ax.grid(visible=False)
    ax.figure.colorbar(picture, ax=ax, label="images")
    return f"{counts.shape[0]} clients hold from {counts.sum(1).min():,} to {counts.sum(1).max():,} images."


def draw_map(
    ax: Axes, points: pd.DataFrame, x: str, y: str, kept: Collection[str] = (), left: Collection[str] = ()
) -> str:
    """Methods by two columns, each with its name; those in ``kept`` in colour. ``points``: a row a method.

    A name is written without its budget (", ε = 8"): that is an axis; those in ``left`` stand left of their dots.
    """
    wide, high = (max(float(points[axis].max() - points[axis].min()), 1e-9) for axis in (x, y))
    labels: list[tuple[float, float, bool]] = []  # where names stand: one below the other where points lie close
    for name, row in points.sort_values(y, ascending=False).iterrows():
        place, height = float(row[x]), float(row[y])
        for there, taken, to_left in labels:
            if to_left == (name in left) and abs(there - place) < 0.3 * wide and height > taken - 0.055 * high:
                height = taken - 0.055 * high
        labels.append((place, height, name in left))
        colour = style.PALETTE[1] if name in kept else style.REFERENCE
        ax.plot([place], [row[y]], "o", color=colour, linestyle="")
        shift, side = (-0.015, "right") if name in left else (0.015, "left")
        ax.text(place + shift * wide, height, str(name).split(", ε")[0], color=colour, va="center", ha=side, fontsize=9,
                fontweight="bold" if name in kept else "normal")  # fmt: skip
    ax.set_xlim(points[x].min() - 0.05 * wide, points[x].max() + 0.4 * wide)
    return f"{len(points)} methods; in colour: {', '.join(n for n in points.index if n in kept) or 'none'}."


def draw_privacy(ax: Axes, means: Mapping[str, Sequence[float]], levels: Sequence[str], alone: float) -> str:
    """Accuracy by how much privacy is asked for, a line a method; dashed: training alone.

    Shapes: ``means`` maps a name to one value a level, NaN where it was not run.
    """
    for i, (name, values) in enumerate(means.items()):
        look = style.series(i)
        ax.plot(range(len(levels)), values, linewidth=1.8, label=name, **look)
    ax.axhline(alone, color=style.CONTROL, linestyle="--", linewidth=1.2)
    ax.text(len(levels) - 0.85, alone, "alone", color=style.REFERENCE, va="bottom", ha="right")
    ax.set_xticks(range(len(levels)), levels)
    ax.set(xlabel="privacy of a client", ylabel="accuracy", xlim=(-0.2, len(levels) - 0.8))
    return ", ".join(f"{name} {values[0]:.2f}" for name, values in means.items())


def draw_budget(ax: Axes, points: pd.DataFrame, allowed: Collection[str]) -> str:
    """A row a method (columns accuracy, MB, ε), best on top; those in ``allowed`` in colour, the best of them bold."""
    best = max(allowed, key=lambda name: points.loc[name, "accuracy"], default=None)
    rows = points.sort_values("accuracy")
    for y, (name, row) in enumerate(rows.iterrows()):
        colour = style.PALETTE[1] if name in allowed else style.SHADE
        ax.plot(
            [0, row["accuracy"]], [y, y], color=colour, linewidth=6 if name == best else 3, marker="", linestyle="-"
        )
        spent = "no promise" if np.isinf(row["ε"]) else f"ε {row['ε']:.0f}"
        ax.text(
            row["accuracy"] + 0.01, y, f"{row['MB']:.0f} MB, {spent}", color=style.REFERENCE, va="center", fontsize=9
        )
    ax.set_yticks(range(len(rows)), [name.split(", ε")[0] for name in rows.index])
    for tick, name in zip(ax.get_yticklabels(), rows.index, strict=True):
        tick.set_fontweight("bold" if name == best else "normal")
        tick.set_color(style.INK if name in allowed else style.CONTROL)
    ax.grid(axis="y", visible=False)
    ax.set(xlabel="accuracy", xlim=(0, 1.05))
    if best is None:
        return "Nothing is left within this budget."
    return f"{len(allowed)} methods are left; the highest mean is {best} with {points.loc[best, 'accuracy']:.3f}."


# --- 06-1: accuracy in each client's own mixture


def solution_own_accuracy(counts, by_class):
    shares = counts / counts.sum(dim=1, keepdim=True)
    return (shares * by_class).sum(dim=1).mean().item()


def _pooled(counts, by_class):
    return ((counts * by_class).sum() / counts.sum()).item()


def _held(counts, by_class):
    held = counts > 0
    return ((held * by_class).sum(1) / held.sum(1)).mean().item()


by_cases(
    "06-1",
    solution=solution_own_accuracy,
    hints=("One client's mixture is its row of counts divided by the row's sum.",
           "Weigh the accuracies of a row by these shares, then take the mean over rows."),
    wrong_answers=(
        WrongAnswer(lambda counts, by_class: by_class.mean().item(),
                    "That counts every class the same. A client that holds no coats is not asked about coats."),
        WrongAnswer(_pooled,
                    "You weighed by all images together. Every client counts the same here, however many it holds."),
        WrongAnswer(_held, "You asked only whether a class is held, not how much of it: weigh by the images."),
        WrongAnswer(lambda counts, by_class: (counts * by_class).sum(1).mean().item(),
                    "Counts are not shares: divide each row by its sum."),
        WrongAnswer(lambda counts, by_class: (counts / counts.sum(0) * by_class).sum(1).mean().item(),
                    "You divided by the sums of columns. A client is a row: dim=1."),
    ),
    cases=[
        {"counts": torch.tensor([[30.0, 10.0], [0.0, 60.0]], dtype=torch.float64),
         "by_class": torch.tensor([[0.9, 0.5], [0.7, 0.2]], dtype=torch.float64)},
        {"counts": torch.tensor([[9.0, 1.0, 0.0], [1.0, 2.0, 3.0]], dtype=torch.float64),
         "by_class": torch.tensor([[0.5, 1.0, 0.25], [0.9, 0.4, 0.8]], dtype=torch.float64)},
    ],
)  # fmt: skip


# --- 06-2: what a matrix costs


by_hand(
    "06-2",
    solution=8320,
    hints=("A symmetric matrix is known from its diagonal and what lies above it.",
           "H (H + 1) / 2 numbers, and a number in single precision takes four bytes."),
    why="64 · 65 / 2 = 2080 numbers of four bytes.",
    wrong_answers=(
        WrongAnswer(16384, "That is every entry. Below the diagonal nothing is new."),
        WrongAnswer(2080, "That many numbers. Each takes four bytes."),
        WrongAnswer(8064, "The diagonal has to be sent too."),
        WrongAnswer(8192, "Half of the entries cuts the diagonal in two."),
    ),
)  # fmt: skip


# --- 06-3: the cheapest that is good enough


def solution_cheapest(points, accuracy, epsilon):
    enough = [name for name, (right, _, spent) in points.items() if right >= accuracy and spent <= epsilon]
    return min(enough, key=lambda name: points[name][1], default=None)


def _most_accurate(points, accuracy, epsilon):
    enough = [name for name, (right, _, spent) in points.items() if right >= accuracy and spent <= epsilon]
    return max(enough, key=lambda name: points[name][0], default=None)


def _without_privacy(points, accuracy, epsilon):
    return solution_cheapest(points, accuracy, float("inf"))


def _without_accuracy(points, accuracy, epsilon):
    return solution_cheapest(points, 0.0, epsilon)


def _strict(points, accuracy, epsilon):
    enough = [name for name, (right, _, spent) in points.items() if right > accuracy and spent < epsilon]
    return min(enough, key=lambda name: points[name][1], default=None)


def _filtered_last(points, accuracy, epsilon):
    best = min(points, key=lambda name: points[name][1])
    return best if points[best][0] >= accuracy and points[best][2] <= epsilon else None


def _never_none(points, accuracy, epsilon):
    enough = [name for name, (right, _, spent) in points.items() if right >= accuracy and spent <= epsilon]
    return min(enough or points, key=lambda name: points[name][1])


_POINTS = {
    "A": (0.8, 100.0, float("inf")), "B": (0.75, 40.0, 8.0), "C": (0.7, 90.0, 2.0), "D": (0.6, 0.0, 0.0),
    "E": (0.79, 60.0, 8.0),
}  # fmt: skip
_LIMITS = [(0.65, 9.0), (0.7, 8.0), (0.5, 8.0), (0.75, 8.0), (0.7, 2.0), (0.8, 8.0), (0.78, float("inf"))]


by_cases(
    "06-3",
    solution=solution_cheapest,
    hints=("First throw out what misses a limit; then compare megabytes.",
           "`min(names, key=..., default=None)` answers None for an empty list.",
           "A limit may be met exactly."),
    wrong_answers=(
        WrongAnswer(_most_accurate,
                    "That is the most accurate one within the limits. Asked is the one with the fewest megabytes."),
        WrongAnswer(_without_privacy, "The limit on epsilon was not kept."),
        WrongAnswer(_without_accuracy, "The cheapest of all may be worth nothing."),
        WrongAnswer(_strict, "A method that meets a limit exactly is within it."),
        WrongAnswer(_filtered_last, "Nothing was found where something fits: throw out first, then take the minimum."),
        WrongAnswer(_never_none, "Where nothing is good enough the honest answer is None."),
    ),
    cases=[{"points": _POINTS, "accuracy": a, "epsilon": e} for a, e in _LIMITS],
)  # fmt: skip


# --- 06-4: which method, when?

CASES = {
    "phones, each its own user": "personal",
    "one model for newcomers": "shared",
    "ten hospitals, patients hidden": "alone",
    "images without labels": "encoder",
}


by_hand(
    "06-4",
    words=("shared", "personal", "alone", "encoder"),
    solution=CASES,
    hints=("For the phones, read FedAvg's fine-tuned row against alone for as many passes.",
           "A newcomer has no head of its own and no images yet.",
           "How many clients does the noise of user-level privacy need?",
           "Without labels a client can train no head."),
    why="With many phones, fine-tuning at home is above staying alone for as many passes. A newcomer has no part "
        "of its own yet. With 20 clients of about 300 images the three private methods that were compared with "
        "staying alone for as many passes lie below it, and with ten of that size the noise weighs more. Neither "
        "ten clients nor hospitals with far more images were run. "
        "Without labels a client can train no head, so features come first.",
    wrong_answers=(
        WrongAnswer(dict.fromkeys(CASES, "shared"),
                    "In their own mixture of classes the shared model stands below the personal ones."),
        WrongAnswer(CASES | {"one model for newcomers": "personal"},
                    "A newcomer has no head yet, and others' heads know only others' classes."),
        WrongAnswer(CASES | {"ten hospitals, patients hidden": "personal"},
                    "Row C: with twenty clients the best private row is not above alone, and ten are fewer."),
        WrongAnswer(CASES | {"phones, each its own user": "alone"},
                    "Row B's methods stand above alone in the own mixture, and no privacy is asked for."),
        WrongAnswer(CASES | {"ten hospitals, patients hidden": "shared"},
                    "Divide the same noise by ten clients in place of forty: with few clients it drowns the model."),
        WrongAnswer(CASES | {"images without labels": "personal"},
                    "A head is trained on labels, which nobody has there."),
    ),
)  # fmt: skip

"""The lesson on Hetero-SSFL: its drawings, the answers of its exercises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from torch import Tensor

from fedbook.lab import gallery, style
from fedbook.lab.draw import draw_images
from fedbook.lab.exercises import WrongAnswer, by_cases, by_hand

__all__ = [
    "draw_byol", "draw_clouds", "draw_images", "draw_learning", "draw_matrices", "draw_pipeline", "draw_rows",
    "draw_triangle",
]  # fmt: skip

CLIENT_COLOURS = (style.PALETTE[0], style.PALETTE[4], style.PALETTE[3])  # of the clients A, B, C

# --- drawings


def draw_pipeline(ax: Axes) -> str:
    """The paper's first figure: the server with the public images, three clients with unlike networks, kernels."""
    boxes = [gallery.Box(50, 84, 62, 24, "server\npublic images X, no labels\nmean kernel  $\\bar{K}$", gallery.SERVER)]
    boxes += [
        gallery.Box(x, 17, 29, 30, f"client {name}\nown images\n{net}\n$K_{name}$ of X")
        for x, name, net in ((15, "A", "small CNN"), (50, "B", "dense network"), (85, "C", "larger CNN"))
    ]
    arrows = []
    for k, name in ((1, "A"), (2, "B"), (3, "C")):
        arrows.append(gallery.Arrow(k, 0, f"$K_{name}$", gallery.UP, side=5))
        arrows.append(gallery.Arrow(0, k, "$\\bar{K}$", gallery.DOWN, side=5))
    return gallery.draw_system(ax, boxes, arrows)


def draw_byol(ax: Axes) -> str:
    """One image, two views; the online path with a predictor, the target path without, the loss between them."""
    grey = style.REFERENCE
    boxes = [
        gallery.Box(8, 50, 13, 22, "image\n$x$", style.INK),
        gallery.Box(28, 78, 13, 20, "view\n$v$", style.INK),
        gallery.Box(28, 22, 13, 20, "view\n$v'$", style.INK),
        gallery.Box(50, 78, 17, 24, "online\nnetwork"),
        gallery.Box(50, 22, 17, 24, "target\nnetwork", grey),
        gallery.Box(72, 78, 15, 24, "predictor"),
        gallery.Box(92, 50, 14, 24, "loss\n$2-2\\,$cos", gallery.UP),
    ]
    ink = style.INK
    arrows = [gallery.Arrow(a, b, "", ink) for a, b in ((0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (5, 6))]
    arrows += [gallery.Arrow(4, 6, "no gradient  //", grey), gallery.Arrow(3, 4, "follows slowly", grey)]
    return gallery.draw_system(ax, boxes, arrows)


def draw_triangle(ax: Axes, before: Tensor, after: Tensor) -> None:
    """Three images in a client's plane, pale as they were, full as they are now. Shapes: [3, 2] each."""
    for points, colour, width in ((before, style.SHADE, 1.2), (after, CLIENT_COLOURS[0], 2.0)):
        closed = torch.cat([points, points[:1]])
        ax.plot(*closed.T, color=colour, linewidth=width, marker="o", linestyle="-")
    for i, point in enumerate(after.tolist(), start=1):
        ax.text(point[0] + 0.25, point[1] + 0.25, str(i), fontweight="bold")
    ax.plot([0], [0], "+", color=style.INK, markersize=9)
    ax.set(xlim=(-8, 8), ylim=(-8, 8), aspect="equal")


def draw_matrices(axes: Sequence[Axes], matrices: Mapping[str, Tensor]) -> None:
    """Small matrices side by side as heat maps with their entries; one colour scale. Shapes: [n, n] each."""
    reach = max(float(m.abs().max()) for m in matrices.values())
    for ax, (name, matrix) in zip(axes, matrices.items(), strict=True):
        ax.imshow(matrix, cmap="PuOr", vmin=-reach, vmax=reach)
        for i, row in enumerate(matrix.tolist()):
            for j, value in enumerate(row):
                dark = abs(value) > 0.7 * reach
                ax.text(j, i, f"{value:.2f}", ha="center", va="center", color="white" if dark else "black")
        ticks = list(range(len(matrix)))
        ax.set_xticks(ticks, [str(i + 1) for i in ticks])
        ax.set_yticks(ticks, [str(i + 1) for i in ticks])
        ax.grid(visible=False)
        ax.set_title(name)


def draw_rows(ax: Axes, image: Tensor, rows: Mapping[str, tuple[Tensor, Tensor]], labels: Tensor, label: int) -> None:
    """One row of each kernel: an image at the left, those most similar to it, and how similar; same numeral framed.

    Shapes: ``image`` [8, 8], each of ``rows`` (images [m, 8, 8], similarities [m]), ``labels`` [rows, m].
    """
    for y, (name, (others, values)) in enumerate(rows.items()):
        _thumbnail(ax, image, 0.0, -1.35 * y, style.INK)
        ax.text(-0.65, -1.35 * y, name, ha="right", va="center")
        for j, (other, value) in enumerate(zip(others, values.tolist(), strict=True)):
            same = int(labels[y, j]) == label
            _thumbnail(ax, other, 1.4 + 1.1 * j, -1.35 * y, style.PALETTE[2] if same else style.GRID)
            ax.text(1.4 + 1.1 * j, -1.35 * y - 0.65, f"{value:.2f}", ha="center", va="center", fontsize=9)
    count = len(labels[0])
    ax.set(xlim=(-3.1, 1.4 + 1.1 * count), ylim=(-1.35 * len(rows) + 0.45, 0.65), aspect="equal")
    ax.set_axis_off()


def _thumbnail(ax: Axes, image: Tensor, x: float, y: float, colour: str) -> None:
    ax.imshow(image, cmap="gray_r", extent=(x - 0.5, x + 0.5, y - 0.5, y + 0.5), zorder=2)
    ax.plot([x - 0.5, x + 0.5, x + 0.5, x - 0.5, x - 0.5], [y - 0.5, y - 0.5, y + 0.5, y + 0.5, y - 0.5],
            color=colour, linewidth=2.2, marker="", linestyle="-", zorder=3)  # fmt: skip


def draw_clouds(axes: Sequence[Axes], clouds: Mapping[str, Tensor], labels: Tensor, shown: Sequence[int]) -> None:
    """Each client's cloud of the public images in two coordinates, a numeral each; four numerals in colour.

    Shapes: each of ``clouds`` [L, 2], ``labels`` [L].
    """
    colours = dict(zip(shown, (style.PALETTE[0], style.PALETTE[1], style.PALETTE[2], style.PALETTE[3]), strict=True))
    for ax, (name, points) in zip(axes, clouds.items(), strict=True):
        for label in range(10):
            rows = points[labels == label]
            colour = colours.get(label, style.SHADE)
            look = {"markersize": 8 if label in colours else 5, "markeredgewidth": 0, "linestyle": ""}
            ax.plot(*rows.T, marker=f"${label}$", color=colour, alpha=1.0 if label in colours else 0.6, **look)
        ax.set(xlim=(-0.2, 0.2), ylim=(-0.2, 0.2), aspect="equal", title=name, xlabel="strongest direction")
    axes[0].set_ylabel("next direction")


def draw_learning(axes: Sequence[Axes], curves: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]) -> None:
    """A panel a quantity, by round: a colour a client, full lines the first run, dashed the second.

    Shapes: ``curves`` maps a quantity to (a run's name to [K] sequences over rounds, NaN where there is no value).
    """
    for ax, (quantity, runs) in zip(axes, curves.items(), strict=True):
        for line, width, each in zip(("-", "--"), (2.0, 1.4), runs.values(), strict=True):
            for colour, values in zip(CLIENT_COLOURS, each, strict=True):
                ax.plot(range(len(values)), values, color=colour, linestyle=line, linewidth=width, marker="")
        ax.set(xlabel="round", title=quantity)
    names = list(next(iter(curves.values())))
    lines = [Line2D([], [], color=c, label=f"client {n}") for n, c in zip("ABC", CLIENT_COLOURS, strict=True)]
    lines += [Line2D([], [], color=style.INK, linestyle=s, label=n) for n, s in zip(names, ("-", "--"), strict=True)]
    axes[0].legend(handles=lines, fontsize=9)


# --- answers


def _tensors(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator, dtype=torch.float64) + 1 for shape in shapes]


# --- 02-1: the loss of one pair


by_hand(
    "02-1",
    solution=0.08,
    hints=("Both vectors have length 5. What is their inner product?", "2 - 2 cos, with cos = 24/25."),
    wrong_answers=(
        WrongAnswer(0.96, "That is the cosine. The loss is 2 - 2 cos."),
        WrongAnswer(2, "You took the squared distance of the vectors themselves. First give both the length 1."),
        WrongAnswer(0.04, "The loss is 2 - 2 cos, not 1 - cos."),
        WrongAnswer(-46, "The cosine is the inner product divided by both lengths."),
    ),
)


# --- 02-2: centring without H


def solution_centre_by_means(K):
    rows = K.mean(1, keepdim=True)
    columns = K.mean(0, keepdim=True)
    return K - rows - columns + K.mean()


by_cases(
    "02-2",
    solution=solution_centre_by_means,
    hints=("H K subtracts the mean of each column. What does multiplying by H from the right do?",
           "Subtract row means and column means, and give back what was subtracted twice."),
    wrong_answers=(
        WrongAnswer(lambda K: K - K.mean(0, keepdim=True), "That is H K. The rows still have a mean."),
        WrongAnswer(lambda K: K - K.mean(),
                    "That subtracts one number everywhere. Each row and each column needs its own."),
        WrongAnswer(lambda K: K - K.mean(0, keepdim=True) - K.mean(1, keepdim=True),
                    "The mean of everything was subtracted twice: add it once."),
        WrongAnswer(lambda K: K, "Nothing was subtracted."),
        WrongAnswer(lambda K: K - K.mean(0, keepdim=True) - K.mean(1, keepdim=True) - K.mean(),
                    "The mean of everything was subtracted twice already: add it, once."),
    ),
    cases=[{"K": a @ a.T} for a in _tensors((3, 2), (5, 4))],
)  # fmt: skip


# --- 02-3: what leaves CKA unchanged

_CHANGES = {"turned": True, "ten times larger": True, "moved": True, "stretched": False, "images reordered": False}


by_hand(
    "02-3",
    solution=_CHANGES,
    hints=("Which of these change the centred kernel by more than a factor?",
           "Row 1 of both kernels must belong to the same image."),
    why="Turning keeps all inner products. A common factor cancels in a cosine. What moves all images alike is "
        "taken out by centring. Stretching one direction changes the products among images. Reordered rows "
        "compare image 1 of A with another image of B.",
    wrong_answers=(
        WrongAnswer(_CHANGES | {"stretched": True}, "A stretch makes one direction count more. Try the slider."),
        WrongAnswer(_CHANGES | {"images reordered": True},
                    "The other client's rows stay, so image 1 is now compared with image 2."),
        WrongAnswer(_CHANGES | {"moved": False}, "That is what centring removes."),
        WrongAnswer(_CHANGES | {"ten times larger": False}, "The kernel grows by 100, and so does its norm."),
    ),
)  # fmt: skip


# --- 02-4: CKA without a kernel


def solution_cka_of_features(A, B):
    A = A - A.mean(0)
    B = B - B.mean(0)
    return (A.T @ B).square().sum() / ((A.T @ A).norm() * (B.T @ B).norm())


def _cka_uncentred(A, B):
    return (A.T @ B).square().sum() / ((A.T @ A).norm() * (B.T @ B).norm())


def _cka_not_squared(A, B):
    A, B = A - A.mean(0), B - B.mean(0)
    return (A.T @ B).norm() / ((A.T @ A).norm() * (B.T @ B).norm())


def _cka_lengths(A, B):
    A, B = A - A.mean(0), B - B.mean(0)
    return (A.T @ B).square().sum() / (A.norm() * B.norm()) ** 2


def _cka_rows(A, B):
    A, B = A - A.mean(1, keepdim=True), B - B.mean(1, keepdim=True)
    return (A.T @ B).square().sum() / ((A.T @ A).norm() * (B.T @ B).norm())


_A, _B, _C = _tensors((6, 2), (6, 3), (6, 5))


by_cases(
    "02-4",
    solution=solution_cka_of_features,
    hints=("Centring a kernel is centring the columns of A.",
           "The inner product of two kernels is a trace, and factors may move round in a trace.",
           "Numerator: the squared norm of A^T B. In the denominator the same with A, A and B, B, under a root each."),
    wrong_answers=(
        WrongAnswer(_cka_uncentred, "Subtract the mean of each column first."),
        WrongAnswer(_cka_not_squared, "The numerator is the squared norm of A^T B."),
        WrongAnswer(_cka_lengths, "The denominator holds the norms of A^T A and of B^T B."),
        WrongAnswer(_cka_rows, "That subtracts each image's own mean. Subtract the mean image."),
        WrongAnswer(lambda A, B: torch.tensor(1.0), "Only equal kernels have CKA 1."),
    ),
    cases=[{"A": _A, "B": _B}, {"A": _B, "B": _C}],
)  # fmt: skip


# --- 02-5: a louder client


by_hand(
    "02-5",
    solution=0.8,
    hints=("A kernel is made of products: representations twice as long make it how many times as large?",
           "Two kernels of equal norm now weigh 4 and 1."),
    why="Vectors twice as long make a kernel four times as large, so the two weigh 4 and 1: four fifths.",
    wrong_answers=(
        WrongAnswer(2 / 3, "Doubling the representations multiplies the kernel by 4."),
        WrongAnswer(0.5, "The server takes the plain mean, so a larger kernel counts more."),
        WrongAnswer(4, "That is the ratio. What share of the whole is it?"),
        WrongAnswer(0.2, "That is the share of the other client."),
    ),
)  # fmt: skip


# --- 02-6: find the planted bugs

_BUGS = {"a": "sign", "b": "rows", "c": "target", "d": "fine"}


by_hand(
    "02-6",
    words=("sign", "rows", "target", "fine"),
    solution=_BUGS,
    hints=("a: a gradient step makes the loss smaller. What becomes of the CKA?",
           "b: which public images are the rows of each of the two kernels?",
           "c: which of the two sides can the gradient now move?",
           "d: a factor of the whole loss. What else can make up for it?"),
    why="a makes the loss smaller by making the CKA smaller: it learns to differ. b compares kernels of different "
        "images. c lets the gradient move the goal too. d: half the loss has half the gradient, and twice the "
        "step size undoes it.",
    wrong_answers=(
        WrongAnswer(_BUGS | {"a": "fine"}, "Descending mu CKA makes the similarity smaller."),
        WrongAnswer(_BUGS | {"b": "fine"},
                    "The client's rows are S, the reference's the first hundred. They belong to other images."),
        WrongAnswer(_BUGS | {"c": "fine"},
                    "Then the goal is the network itself, and both sides move towards each other."),
        WrongAnswer(_BUGS | {"d": "sign"}, "Half the loss is the same loss with half the step size."),
    ),
)  # fmt: skip


# --- 02-7: bytes


by_hand(
    "02-7",
    solution=1199,
    hints=("A kernel of L images has L (L + 1) / 2 different numbers, representations have L d.",
           "L (L + 1) / 2 at most 600 L: divide by L."),
    why="L (L + 1) / 2 is at most 600 L as long as L + 1 is at most 1200.",
    wrong_answers=(
        WrongAnswer(600, "A kernel is symmetric: only its upper triangle is sent."),
        WrongAnswer(1201, "The diagonal is sent too: L (L + 1) / 2 numbers."),
        WrongAnswer(1200, "With 1,200 images the triangle is already a little larger."),
        WrongAnswer(299, "L (L + 1) / 2 = L d. Divide by L and solve."),
    ),
)  # fmt: skip


# --- 02-8: explain a figure

_PEAK = {"mu = 0": "alone", "mu = 8": "agreement only"}


by_hand(
    "02-8",
    words=("alone", "agreement only", "collapse"),
    solution=_PEAK,
    hints=("At which end do the clients agree most, and what happens there to BYOL's own loss?",
           "At which end does nothing cross the wire that matters?"),
    why="At μ = 0 nothing pulls the clients together. At μ = 8 the agreement outweighs much of what BYOL's own loss "
        "asks: on test images that loss is higher than at μ = 0. So this is not the constant answer, whose loss is 0. "
        "How many directions are left, the figure does not say.",
    wrong_answers=(
        WrongAnswer({"mu = 0": "agreement only", "mu = 8": "alone"},
                    "With mu 0 the pull has no weight: every client learns by itself."),
        WrongAnswer({"mu = 0": "alone", "mu = 8": "collapse"},
                    "The constant answer has BYOL loss 0. Here that loss is the highest of all."),
        WrongAnswer({"mu = 0": "alone", "mu = 8": "alone"}, "They are anything but alone: look at the grey curve."),
    ),
)  # fmt: skip

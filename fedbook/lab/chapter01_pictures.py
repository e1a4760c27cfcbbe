"""Chapter 1's pictures of real data: views of images, three clients with one numeral each, ten clients' matrices.

Every number is read from runs of the package on digits. The functions that run take seconds, the draw functions fill
the axes they are given and return the sentence under the figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fedbook import data
from fedbook.federation.loop import Rounds
from fedbook.lab.panels import panels
from fedbook.lab.style import AXIS, series
from fedbook.learning.augmentation import AUGMENTATIONS
from fedbook.papers.fedsc import PAPER, algorithm
from fedbook.papers.fedsc.problem import PretrainingProblem, PretrainingSettings, pretraining_problem
from fedbook.papers.fedsc.spectral import bank_objective, norm_clip
from fedbook.partition import by_name
from fedbook.randomness import stream

RECIPES = {"digits": "digits", "mnist": "handwriting", "fashion_mnist": "clothes"}
TRAINED = {"FedAvg + SC": "fedavg-sc", "FedSC": "fedsc", "centralised": "centralized-sc"}
MU = 4.0  # above 3, the squared length of a representation at the optimum of three clients

# --- views of images


class Viewed(NamedTuple):
    """Images [n, C, H, W] and views of each [n, V, C, H, W], with the name of the recipe."""

    images: Tensor
    views: Tensor
    recipe: str


def views_of(name: str, count: int = 4, views: int = 6, seed: int = 0) -> Viewed:
    """``count`` training images of different classes and ``views`` of each, by the recipe that the chapter uses."""
    recipe = RECIPES[name]
    images, rng = data.load(name), stream(seed, "views in a picture")
    labels = rng.permutation(len(images.classes))[:count]
    x = images.train_x[[int(rng.choice(torch.nonzero(images.train_y == int(c)).flatten().numpy())) for c in labels]]
    augment = AUGMENTATIONS[recipe]
    return Viewed(x, augment(x, augment.draw(rng, (count, views), tuple(x.shape[1:]))), recipe)


def draw_views(axes: Any, *seen: Viewed) -> str:
    """Images at the left and their views beside them; how far views of one image and of two are apart, as pixels.

    Shapes: ``axes`` as many as ``seen``.
    """
    parts = []
    for ax, one in zip(panels(axes, len(seen)), seen, strict=True):
        rows = torch.cat([one.images[:, None], one.views], 1).clamp(0, 1)  # noise leaves [0, 1]
        _, across, channels, high, wide = rows.shape
        gap = max(1, wide // 8)
        canvas = torch.ones(len(rows) * (high + gap) - gap, across * (wide + gap) + gap, channels)
        for i, row in enumerate(rows):
            for v, image in enumerate(row):
                left = v * (wide + gap) + (2 * gap if v else 0)  # the original stands apart
                canvas[i * (high + gap) : i * (high + gap) + high, left : left + wide] = image.movedim(0, -1)
        ax.imshow(canvas.squeeze(-1).numpy(), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        ax.set_axis_off()
        ax.set_title(f"image and {across - 1} views ({one.recipe})")
        flat = one.views.flatten(2)
        apart = (flat[:, :, None, None] - flat[None, None]).square().mean(-1).sqrt()  # [n, V, n, V]
        same = torch.eye(len(rows), dtype=torch.bool)[:, None, :, None].expand_as(apart)
        self_ = torch.eye(across - 1, dtype=torch.bool)[None, :, None].expand_as(apart) & same
        parts.append(f"{one.recipe} {float(apart[same & ~self_].mean()):.3f} and {float(apart[~same].mean()):.3f}")
    return (
        f"Root mean square difference of pixels between two views of one image, and between views of two images of "
        f"different classes: {'; '.join(parts)}."
    )


# --- three clients, one numeral each


class Placed(NamedTuple):
    """z [N, 3] of views and their client [N]; each client's matrix [3, 3]; L, Gap; |cosine| between clients [3, 3].

    z and the matrices are turned so that the clients' mean directions lie as near to the three axes as they can: no
    turn changes a loss.
    """

    z: Tensor
    owner: Tensor
    matrices: Tensor
    loss: float
    gap: float
    cosines: Tensor

    @property
    def cosine(self) -> float:
        """Mean |cosine| between the mean directions of two clients."""
        return float((self.cosines.sum() - self.cosines.trace()) / (self.cosines.numel() - len(self.cosines)))


def three_clients(numerals: Sequence[int] = (0, 1, 7), samples: int = 60, rounds: int = 40, seed: int = 0,
                  lr: float = 0.03) -> dict[str, Placed]:  # fmt: skip
    """Three clients with one numeral each and H = 3: untrained, FedAvg + SC, FedSC (alpha = q), centralised."""
    problem = few_classes(numerals, samples, seed)
    settings = _settings(problem, rounds=rounds, lr=lr, coefficient="q", mu=MU)
    methods = {"untrained": "random-encoder"} | TRAINED
    return {label: placed(problem, _trained(problem, method, settings, seed)) for label, method in methods.items()}


def few_classes(numerals: Sequence[int], samples: int = 60, seed: int = 0) -> PretrainingProblem:
    """Digits of these three numerals alone, ``samples`` of each, one client each, representations of H = 3."""
    whole = pretraining_problem("digits", PretrainingSettings(width=3, bank=8, projector="linear"), (seed,))
    rows = torch.cat([torch.nonzero(whole.y == c).flatten()[:samples] for c in numerals])
    test = torch.cat([torch.nonzero(whole.test_y == c).flatten() for c in numerals])
    kept = replace(whole.settings, clients=3)
    y, test_y = ((labels[:, None] == torch.tensor(numerals)).long().argmax(1)
                 for labels in (whole.y[rows], whole.test_y[test]))  # fmt: skip
    return replace(
        whole, settings=kept, x=whole.x[rows], y=y, test_x=whole.test_x[test], test_y=test_y,
        classes=tuple(map(str, numerals)), partitions=(by_name("classes", y, 3, seed, classes_per_client=1),),
        bank=whole.bank[rows], seen=torch.arange(len(y)), seen_bank=whole.bank[rows],
    )  # fmt: skip


def placed(problem: PretrainingProblem, theta: Mapping[str, Tensor], mu: float = MU) -> Placed:
    """The representations of all views of a problem with three clients and H = 3."""
    z, owner = _embedded(problem, theta, mu)
    found = bank_objective(z, owner, 3)
    means = torch.stack([z[owner == j].mean((0, 1)) for j in range(3)])
    means = means / means.norm(dim=1, keepdim=True)
    u, _, v = torch.linalg.svd(means.T)  # Procrustes: the rotation (or reflection) that takes the means to the axes
    turn = u @ v
    rows = z.flatten(0, 1) @ turn
    return Placed(rows, owner.repeat_interleave(z.shape[1]), turn.T @ found.matrices @ turn, float(found.loss),
                  float(found.gap), (means @ means.T).abs())  # fmt: skip


def draw_clients(axes: Any, found: Mapping[str, Placed], numerals: Sequence[int] = (0, 1, 7), seed: int = 0) -> str:
    """Above, the representations seen along (1, 1, 1); below, the clients' 3 x 3 matrices side by side.

    Three orthogonal directions lie 120 degrees apart, one shared direction points at the reader, into the centre.
    Shapes: ``axes`` 2 x len(found).
    """
    spots, parts = panels(axes, 2 * len(found)), []
    plane = torch.tensor([[0, 1, -1], [2, -1, -1]], dtype=torch.float64) / torch.tensor([[2.0], [6.0]]).sqrt().double()
    reach = 1.15 * max(float((one.z.double() @ plane.T).abs().max()) for one in found.values())
    most = max(float(one.matrices.abs().max()) for one in found.values())
    for place, (label, one) in enumerate(found.items()):
        above, below = spots[place], spots[place + len(found)]
        for axis in plane.T:
            above.plot([0, 1.6 * float(axis[0])], [0, 1.6 * float(axis[1])], color=AXIS, linewidth=0.9,
                       linestyle="-", marker="", zorder=1)  # fmt: skip
        for j, numeral in enumerate(numerals):
            flat = one.z[one.owner == j].double() @ plane.T
            some = torch.from_numpy(stream(seed, "points in a picture").permutation(len(flat))[:70])
            above.plot(*flat[some].T, label=f"{numeral}", alpha=0.75,
                       **(series(j) | {"linestyle": "", "markersize": 3.5}))  # fmt: skip
        above.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", title=label, xticks=[], yticks=[])
        above.spines[:].set_visible(False)
        canvas = torch.full((3, 11), float("nan"))
        for j in range(3):
            canvas[:, 4 * j : 4 * j + 3] = one.matrices[j]
            below.text(4 * j + 1, -0.75, f"$R_{{{numerals[j]}}}$", ha="center", va="bottom")
        shown = below.imshow(canvas.numpy(), cmap="PuOr", vmin=-most, vmax=most, interpolation="nearest")
        below.text(5, 3.1, f"|cos| {one.cosine:.2f}\nGap {one.gap:.3f}\n$\\mathcal{{L}}$ {one.loss:.3f}", ha="center",
                   va="top", fontsize="small")  # fmt: skip
        below.set_axis_off()
        below.set(xlim=(-1.5, 11.5), ylim=(5.6, -1.6))
        parts.append(f"{label} {one.cosine:.2f}, {one.gap:.3f}, {one.loss:.3f}")
    spots[0].legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=3, borderaxespad=0.0, columnspacing=1.0,
                    handletextpad=0.1, title="numeral of the client", title_fontsize="small")  # fmt: skip
    below.figure.colorbar(shown, ax=below, label="entry of $R_j$", fraction=0.08, pad=0.02, shrink=0.6)
    return f"|cosine| between clients' mean directions, Gap, L: {'; '.join(parts)} (least possible L: -1.5)."


# --- matrices of ten clients


# --- runs


def _settings(problem: PretrainingProblem, **changes: Any) -> dict[str, Any]:
    own = {name: getattr(problem.settings, name) for name in vars(problem.settings)}
    quick = PAPER.defaults() | dict(PAPER.profiles["quick"])
    return quick | own | changes


def _trained(problem: PretrainingProblem, method: str, settings: Mapping[str, Any], seed: int) -> dict[str, Tensor]:
    """The encoder after all rounds of a method."""
    pooled = problem.federation(pooled=method == "centralized-sc")
    rounds = Rounds(algorithm(method, problem, settings), pooled, settings["rounds"], seeds=(seed,))
    list(rounds)  # to the end
    return {name: p[0] for name, p in rounds.server["theta"].items()}


@torch.no_grad()
def _embedded(problem: PretrainingProblem, theta: Mapping[str, Tensor], mu: float) -> tuple[Tensor, Tensor]:
    """z [N, K, H] of the judged views, clipped, and whose they are [N]."""
    z = norm_clip(problem.encoder.apply(theta, problem.seen_bank.flatten(0, 1)), mu)
    return z.unflatten(0, problem.seen_bank.shape[:2]), problem.owners(0)

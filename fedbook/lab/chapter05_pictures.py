"""Chapter 5's pictures of real rounds: what crosses between four parties and a server, one against all, staleness.

Every number is read from a run of the package. The functions that run take seconds, the draw functions fill the axes
they are given and return the sentence under the figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch
from torch import Tensor
from torch.func import vmap

from fedbook.federation import Rounds
from fedbook.federation.tree import Tree, leaves
from fedbook.lab.panels import panels
from fedbook.lab.style import PALETTE, series
from fedbook.papers.cvfl import CVFL, Config
from fedbook.papers.cvfl.problem import VerticalProblem
from fedbook.papers.cvfl.towers import fusion

QUADRANTS = ("top left", "top right", "bottom left", "bottom right")

# --- one round


class OneRound(NamedTuple):
    """What crossed in the second round of a run, in bytes, all parties together, as the ledger counted it.

    ``up``: the parties' embeddings; ``down_embeddings``: the same messages, forwarded to each party; ``down_server``:
    theta_0, once for each party. ``embeddings`` [M, P]: those of the sample number ``sample``, after the round.
    """

    up: int
    down_embeddings: int
    down_server: int
    embeddings: Tensor
    sample: int

    @property
    def total(self) -> int:
        return self.up + self.down_embeddings + self.down_server


def one_round(problem: VerticalProblem, config: Config, seed: int = 0, sample: int = 0) -> OneRound:
    """The second round of Algorithm 1 (in the first one top-k by gradient has no scores yet)."""
    rounds = Rounds(CVFL(config, problem), problem.federation(), 2, seeds=(seed,))
    counts = []
    for _ in range(2):
        rounds.step()
        ledger = rounds.bytes.by_exchange
        counts.append((ledger["embeddings"]["up"], ledger["views"]["down"]))
    up, down = (after - before for before, after in zip(*counts, strict=True))
    parties = sum(map(len, problem.members.values()))
    found = [
        vmap(tower.apply)({k: v[0] for k, v in rounds.clients[word]["theta"].items()}, part[:, sample : sample + 1])
        for (word, tower), part in zip(problem.towers.items(), problem.parts.values(), strict=True)
    ]
    return OneRound(up, parties * up, down - parties * up, torch.cat([h[:, 0] for h in found]).detach(), sample)


def draw_setting(ax: Axes, problem: VerticalProblem, seen: OneRound) -> str:
    """A real image in quadrants, four towers with the embeddings they make of it, the messages with their bytes.

    ``problem``: images, four parties; ``seen``: what :func:`one_round` returned for it.
    """
    parts = next(iter(problem.parts.values()))
    quarter = parts[:, seen.sample].cpu().double().movedim(1, -1)  # [4, h, w, C]
    quarter = ((quarter - quarter.amin()) / (quarter.amax() - quarter.amin()).clamp_min(1e-12)).numpy()
    looks = {"cmap": "gray", "vmin": 0, "vmax": 1, "interpolation": "nearest", "aspect": "auto", "zorder": 2}
    h = seen.embeddings.cpu().double().numpy()
    each, size = seen.up / 4, max(1e-12, abs(h).max())
    for m in range(4):
        top, image, y = 1 - m // 2, quarter[m], 3.05 - m
        ax.imshow(image, extent=(0.86 * (m % 2), 0.86 * (m % 2) + 0.8, 1.1 + 0.86 * top, 1.9 + 0.86 * top), **looks)
        ax.imshow(image, extent=(2.45, 3.15, y, y + 0.7), **looks)
        ax.text(3.25, y + 0.78, f"party {m}: {QUADRANTS[m]}", fontsize="small", va="bottom", ha="center")
        _arrow(ax, (3.2, y + 0.35), (3.5, y + 0.35), "black")
        _box(ax, 3.55, y, 0.75, 0.7, "tower", PALETTE[5])
        _arrow(ax, (4.35, y + 0.35), (4.6, y + 0.35), "black")
        ax.imshow(h[m : m + 1], extent=(4.65, 6.1, y + 0.17, y + 0.53), **(looks | {
            "cmap": "PuOr", "vmin": -size, "vmax": size}))  # fmt: skip
        _arrow(ax, (6.2, y + 0.42), (8.3, 2.2 - 0.12 * m), PALETTE[1])
        _arrow(ax, (8.3, 1.95 - 0.12 * m), (6.2, y + 0.22), PALETTE[0], "--")
    ax.text(0.83, 3.05, f"one sample: {problem.classes[int(problem.y[seen.sample])]}", ha="center", fontsize="small")
    _box(ax, 8.35, 1.3, 1.3, 1.2, "server $\\theta_0$:\nall $h_m$\nto a class", PALETTE[4])
    ax.text(5.4, 3.95, "embedding $h_m$", ha="center", fontsize="small")
    ax.text(8.95, 3.5, f"up, each party:\n{each:,.0f} B", color=PALETTE[1], ha="center", va="center", fontsize="small")
    down = (seen.down_embeddings / 4, seen.down_server / 4)
    ax.text(8.95, 0.45, f"down, each party:\n{down[0]:,.0f} B embeddings\n+ {down[1]:,.0f} B server model",
            color=PALETTE[0], ha="center", va="center", fontsize="small")  # fmt: skip
    ax.set(xlim=(-0.1, 9.95), ylim=(-0.1, 4.3), aspect="equal")
    ax.set_axis_off()
    return (
        f"A round moves {seen.total:,} bytes: each of 4 parties sends {each:,.0f} up and gets {down[0]:,.0f} of "
        f"everyone's embeddings and {down[1]:,.0f} of the server model down (dashed); no pixel and no "
        f"gradient crosses."
    )


def _box(ax: Axes, x: float, y: float, wide: float, high: float, text: str, colour: str) -> None:
    ax.add_patch(FancyBboxPatch((x, y), wide, high, boxstyle="round,pad=0,rounding_size=0.08", facecolor=colour,
                                alpha=0.35, edgecolor="none"))  # fmt: skip
    ax.text(x + wide / 2, y + high / 2, text, ha="center", va="center", fontsize="small")


def _arrow(ax: Axes, start: tuple, end: tuple, colour: str, line: str = "-") -> None:
    looks = {"arrowstyle": "-|>", "color": colour, "linestyle": line, "linewidth": 1.1, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, start, arrowprops=looks | {"mutation_scale": 9})


# --- one party alone


def party_alone(problem: VerticalProblem, party: int) -> VerticalProblem:
    """The same samples with the features of one party only, and a server for its embeddings alone."""
    word, numbers = next(
        (word, numbers) for word, numbers in problem.members.items()
        if party in numbers
    )  # fmt: skip
    place, own = slice(party - numbers[0], party - numbers[0] + 1), replace(problem.settings, parties=1)
    return replace(
        problem, settings=own, parts={word: problem.parts[word][place]}, towers={word: problem.towers[word]},
        test_parts={word: problem.test_parts[word][place]},
        fusion=fusion(own.fusion, [own.embedding], len(problem.classes)),
    )  # fmt: skip


def alone_and_together(problem: VerticalProblem, config: Config, seeds: Sequence[int] = (0, 1, 2)) -> dict[str, Tensor]:
    """Test accuracy [S] after the last round, nothing compressed, of every party alone and of all together."""
    last = max(map(max, problem.members.values()))
    words = QUADRANTS if last == 3 and problem.settings.parties == 4 else [f"party {m}" for m in range(last + 1)]
    found = {}
    for label, task in [(words[m], party_alone(problem, m)) for m in range(last + 1)] + [("all together", problem)]:
        rounds = Rounds(CVFL(replace(config, compressor="none"), task), task.federation(), config.rounds,
                        seeds=seeds, evaluate=task.evaluation(), every=max(1, config.rounds))  # fmt: skip
        found[label] = torch.tensor(list(rounds)[-1].metrics["accuracy"], dtype=torch.float64)
    return found


def draw_alone(axes: Any, scores: Mapping[str, Tensor], seen: OneRound) -> str:
    """Accuracy of every party alone and of all together, a dot a seed; and what an uncompressed round is made of.

    Shapes: ``axes`` two of them, label -> [S], all together last.
    """
    left, right = panels(axes, 2)
    means = {}
    for i, (label, values) in enumerate(scores.items()):
        values = 100 * values.double().cpu()
        means[label] = float(values.mean())
        whole = i == len(scores) - 1
        left.barh([i], [means[label]], color=PALETTE[0 if whole else 5], height=0.62, hatch=None if whole else "//",
                  edgecolor="white")  # fmt: skip
        left.plot(values, [i] * len(values), marker="o", linestyle="", color="black", markersize=3)
        left.annotate(f"{means[label]:.1f}", (1.0, i), xycoords=("axes fraction", "data"), va="center",
                      fontsize="small")  # fmt: skip
    left.set_yticks(range(len(scores)), list(scores))
    left.set(ylim=(len(scores) - 0.5, -0.5), xlim=(0, 109), xlabel="test accuracy in %")
    parts = {
        "embeddings up": seen.up, "embeddings down": seen.down_embeddings, "server model down": seen.down_server
    }  # fmt: skip
    for i, count in enumerate(parts.values()):
        right.barh([i], [count / 1000], color=PALETTE[(1, 0, 4)[i]], height=0.62, hatch=("", "//", "..")[i],
                   edgecolor="white")  # fmt: skip
        right.annotate(f" {count / 1000:,.1f}", (count / 1000, i), va="center", fontsize="small")
    share = (seen.up + seen.down_embeddings) / seen.total
    right.set_yticks(range(3), list(parts))
    right.set(ylim=(2.5, -0.5), xlim=(0, 1.2 * max(parts.values()) / 1000), xlabel="kB in one round, all parties",
              title=f"{share:.1%} of a round: embeddings")  # fmt: skip
    *alone, together = means.values()
    return (
        f"Alone the parties reach {min(alone):.1f} to {max(alone):.1f} % and together {together:.1f} %; together they "
        f"move {seen.total / 1000:,.1f} kB in a round, {share:.1%} of it embeddings."
    )


# --- staleness


def staleness(
    problem: VerticalProblem, local_steps: Sequence[int], lrs: Sequence[float], seed: int = 0, batch_size: int = 100
) -> Tensor:
    """How far C-VFL is, after Q local steps of its first round, from Q steps of the joint model on the same batch.

    Nothing is compressed. |Theta - Theta_joint| / |Theta_joint - Theta_0|, all blocks together.
    Shapes: [number of etas, number of Qs].
    """
    found = []
    for lr in lrs:
        for q in local_steps:
            config = Config(rounds=1, local_steps=q, lr=lr, batch_size=batch_size, compressor="none")
            ours = Rounds(CVFL(config, problem), problem.federation(), 1, seeds=(seed,))
            start = _flat(ours.server["theta0"], {word: own["theta"] for word, own in ours.clients.items()})
            joint = Rounds(CVFL(config, problem, "central"), problem.pooled(), 1, seeds=(seed,))
            ours.step()
            joint.step()
            here = _flat(ours.server["theta0"], {word: own["theta"] for word, own in ours.clients.items()})
            there = _flat(joint.clients["all"]["theta0"], joint.clients["all"]["theta"])
            found.append((here - there).norm() / (there - start).norm())
    return torch.stack(found).reshape(len(lrs), len(local_steps))


def _flat(theta0: Tree, theta: Tree) -> Tensor:
    return torch.cat([p.flatten().double().cpu() for _, p in leaves({"theta0": theta0, "theta": theta})])


def draw_staleness(ax: Axes, local_steps: Sequence[int], lrs: Sequence[float], distances: Tensor) -> str:
    """Distance between C-VFL and the joint model after one round, against Q, one curve for each step size.

    Shapes: ``distances`` [number of etas, number of Qs], from :func:`staleness`.
    """
    parts = []
    for i, (lr, row) in enumerate(zip(lrs, distances.tolist(), strict=True)):
        ax.plot(local_steps, [100 * v for v in row], label=rf"$\eta$ = {lr:g}", **series(i))
        parts.append(f"eta = {lr:g}: " + ", ".join(f"{100 * v:.2g}" if v > 1e-5 else "0" for v in row))
    ax.set(xlabel="local steps $Q$", ylabel="distance to the joint model\nin % of its way")
    ax.set_xticks(local_steps)
    ax.set_ylim(bottom=0)
    ax.legend(loc="upper left")
    told = ", ".join(map(str, local_steps))
    return f"After one round of Q = {told} steps C-VFL is off the joint model by, in % of its way, {'; '.join(parts)}."

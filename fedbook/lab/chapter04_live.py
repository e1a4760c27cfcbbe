"""Chapter 4's live measurements: runs as a table, flatness of trained bodies, what vectorising a cohort buys."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from fedbook import arguments
from fedbook.federation import Rounds, tree_map
from fedbook.federation.exchange import Local
from fedbook.lab import chapter04_sam
from fedbook.lab.chapter04_figures import client_loss
from fedbook.lab.style import series
from fedbook.learning.models import cross_entropy
from fedbook.papers.dp2_fedsam import Config, DP2FedSAM, sharpness
from fedbook.papers.dp2_fedsam.problem import PersonalProblem, PersonalSettings, personal_problem
from fedbook.randomness import stream


def live_table(runs: Mapping[tuple[str, float], Rounds], problem: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Live runs in the form of a stored comparison: (method, epsilon; 0: none) -> finished run, one seed a federation.

    Raises: ValueError (no run).
    """
    if not runs:
        raise arguments.wrong(ValueError, "runs", runs, "at least one finished run")
    cells = []
    for (method, epsilon), r in runs.items():
        found = r.history[-1].metrics["accuracy"]
        entries = [{"metrics": {"accuracy": value}} for value in found]
        cells.append({"method": method, "varied": {"epsilon": epsilon}, "runs": entries})
    return {"problem": problem, "metric": "accuracy", "settings": dict(settings), "cells": cells, "seeds": len(entries)}


def flatness_table(problem: PersonalProblem, runs: Mapping[float, Rounds], std: float, seed: int, slot: int = 0) -> str:
    """Loss of each trained body, its rise under noise and under the worst perturbation, its curvature: as text.

    ``runs``: SAM radius -> run. The worst perturbation is sought in a ball of radius ``std`` * sqrt(d), the length of
    that noise. Raises: TypeError, ValueError.
    """
    lines = [
        f"{'q':>5} {'accuracy':>9} {'loss':>8} {'rise, noise':>16} {'rise, worst':>12} {'top eigenvalue':>15} "
        f"{'trace':>14}"
    ]
    for radius, r in runs.items():
        loss, theta = client_loss(problem, r, slot)
        size = sum(p.numel() for p in theta.values())
        noise = sharpness.gaussian_rise(loss, theta, std, 100, stream(seed, "flatness noise"))
        worst = sharpness.worst_case_rise(loss, theta, std * size**0.5, 20)
        top = sharpness.top_eigenvalues(loss, theta, stream(seed, "flatness start"))
        trace = sharpness.hessian_trace(loss, theta, 50, stream(seed, "flatness trace"))
        accuracy = r.history[-1].metrics["accuracy"][slot]
        lines.append(
            f"{radius:>5g} {accuracy:>9.3f} {float(loss(theta)):>8.4f} {float(noise.mean):>8.4f} ± {noise.error:.4f} "
            f"{float(worst.rise):>12.3f} {float(top.values[0]):>15.3f} {float(trace.mean):>8.2f} ± {trace.error:.2f}"
        )
    return "\n".join(lines)


def surfaces(
    problem: PersonalProblem, runs: Mapping[float, Rounds], reach: float, seed: int, slot: int = 0, points: int = 21
) -> tuple[dict[str, Tensor], Tensor]:
    """Mean client losses on the same random plane through each body, and the offsets: for ``draw_surface``.

    Raises: TypeError, ValueError.
    """
    offsets = torch.linspace(-reach, reach, arguments.integer("points", points, 3))
    found = {}
    for radius, r in runs.items():
        loss, theta = client_loss(problem, r, slot)
        plane = sharpness.random_directions(theta, stream(seed, "surface"))
        found[f"q = {radius:g}"] = sharpness.loss_surface(loss, theta, plane, offsets)
    return found, offsets


def draw_wells(axes: Sequence[Axes], noise: Sequence[float], radius: float) -> str:
    """Left: the two wells and what noise makes of them. Right: descent and SAM in a valley with a flat end.

    Raises: TypeError, ValueError.
    """
    wells, x = chapter04_sam.Wells(), torch.linspace(-2.5, 2.0, 400, dtype=torch.float64)
    for i, std in enumerate(noise):
        label = "the loss" if std == 0 else f"averaged over noise s = {std:g}"
        axes[0].plot(x, wells.value(x, std), label=label, markevery=(10 * i, 40), **series(i))
    axes[0].set(xlabel="$x$", ylabel="loss", title="a sharp, deep and a flat, shallow well")
    axes[0].legend(fontsize="small", loc="lower left")
    u, v = torch.meshgrid(torch.linspace(-1.5, 1.5, 60), torch.linspace(-0.3, 2.3, 60), indexing="xy")
    axes[1].contour(u, v, chapter04_sam.valley_value(torch.stack([u, v], -1)), levels=12, cmap="Greys")
    ends, start = [], torch.tensor([1.2, 2.0], dtype=torch.float64)
    for i, (label, q) in enumerate((("descent", 0.0), (f"SAM, q = {radius:g}", radius))):
        path = chapter04_sam.valley_path(start, q)
        axes[1].plot(path[:, 0], path[:, 1], label=label, markevery=40, **series(i))
        ends.append(f"{label} ends at sharpness {1 + float(path[-1, 1]) ** 2:.2f}")
    axes[1].set(xlabel="$u$", ylabel="$v$", title=r"$(1+v^2)u^2/2$: all of $u=0$ is minimal")
    axes[1].legend(fontsize="small", loc="lower right")
    wins = chapter04_sam.flat_wins(wells)
    return f"The flat well is the better place from noise {wins:.3f} on. In the valley {'; '.join(ends)}."


def cohort_table(kinds: Sequence[str], clients: int, seed: int, repeats: int = 3) -> str:
    """Milliseconds of one round's local training of a cohort, head and SAM body, and the ratio to the plain loop.

    ``modules``: one nn.Module and torch.optim.SGD a client, SAM written out. ``loop`` and ``vmap``: the package's, one
    client after another and all at once. The ways alternate; medians. Raises: TypeError, ValueError.
    """
    lines = [
        f"{'model':>10} {'modules ms':>11} {'loop ms':>9} {'vmap ms':>9} {'modules / vmap':>15} {'loop / vmap':>12}"
    ]
    for kind in kinds:
        data = personal_problem(
            "mnist", PersonalSettings(clients=clients, model=kind, train_samples=70 * clients), [seed]
        )
        c = Config(batch_size=20, momentum=0.0, lr_decay=1.0, head_epochs=1, body_epochs=1, lr_body=0.05)
        algorithm = DP2FedSAM(c, data.model)
        body, head = (tree_map(lambda x: x.expand(clients, *x.shape).clone(), part)
                      for part in data.model.split(data.model.init(stream(seed, "init"))))  # fmt: skip
        ids = torch.arange(clients)
        local = Local(
            "all", {"shared": body}, {"own": head}, data.rows(0, ids, "train"), ids, (seed,) * clients, 0, "vmap", 50
        )
        ways = {
            "modules": lambda d=data, a=algorithm, loc=local: _by_modules(d, a, loc),
            "loop": lambda a=algorithm, loc=local: a.train(replace(loc, how="loop")),
            "vmap": lambda a=algorithm, loc=local: a.train(loc),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(repeats + 1):
            for name, way in ways.items():
                begun = time.perf_counter()
                way()
                times[name].append(1000 * (time.perf_counter() - begun))
        modules, loop, vmap = (statistics.median(times[name][1:]) for name in ways)
        lines.append(
            f"{kind:>10} {modules:>11.0f} {loop:>9.0f} {vmap:>9.0f} {modules / vmap:>15.2f} {loop / vmap:>12.2f}"
        )
    return "\n".join(lines)


def _by_modules(data: PersonalProblem, algorithm: DP2FedSAM, local: Local) -> None:
    """What everybody writes first: client after client, modules and optimisers, one epoch of head and of SAM body."""
    c, names = algorithm.config, data.model.head_names
    split = data.train[0]
    for i in local.clients.tolist():
        net = data.model.build()
        net.load_state_dict({n: p[i] for n, p in {**local.inbox["shared"], **local.state["own"]}.items()})
        parts = dict(net.named_parameters())
        heads, body = [parts[n] for n in names], [p for n, p in parts.items() if n not in names]
        for part, lr in ((heads, c.lr_head), (body, c.lr_body)):
            optimiser = torch.optim.SGD(part, lr)
            for b in split.client(i)[torch.randperm(int(split.sizes[i]))].split(c.batch_size):
                optimiser.zero_grad()
                loss = cross_entropy(lambda _, x, net=net: net(x))
                batch = {"x": data.x[b], "y": data.y[b], "weight": torch.ones(len(b))}
                loss({}, batch).backward()
                if part is body:
                    norm = torch.cat([p.grad.flatten() for p in body]).norm()
                    away = [c.sam_radius * p.grad / norm for p in body]
                    with torch.no_grad():
                        [p.add_(e) for p, e in zip(body, away, strict=True)]
                    optimiser.zero_grad()
                    loss({}, batch).backward()
                    with torch.no_grad():
                        [p.sub_(e) for p, e in zip(body, away, strict=True)]
                optimiser.step()

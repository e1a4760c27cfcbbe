"""Chapter 4's audit applied to DP-RSGD: do the points of an agent show more of one record than the accountant says?

Two worlds differ in one record of agent 0, which lies far away on one side of the start or on the other: its clipped
gradient is turned round, the most that replacing a record can do. All other records lie at the start. The attacker sees
the point that agent 0 sends in every round. His score is how far, in all, these points lie along the line on which the
two records are, seen from the server's point of that round.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.federation.exchange import Exchange, Uploads
from fedbook.federation.loop import Rounds, run
from fedbook.federation.population import Federation
from fedbook.geometry import Manifold
from fedbook.papers.prirfed.algorithm import Config, PriRFed
from fedbook.papers.prirfed.losses import SquaredDistance
from fedbook.partition import Partition
from fedbook.privacy.audit import Audit, canary_scores


def audited(
    manifold: Manifold, config: Config, size: int, runs: int, dimension: int = 2, distance: float = 4.0,
    delta: float = 1e-3, batch: int = 500,
) -> Audit:  # fmt: skip
    """The audit of Frechet means by ``config.rounds`` rounds of two agents with ``size`` records each.

    ``manifold``: with an origin, on which points ``distance`` away on both sides of it are different.
    Raises: TypeError, ValueError. Source: PriRFed, Algorithms 1 and 2.
    """
    size = arguments.integer("size", size, 1)
    arguments.integer("rounds", config.rounds, 1)
    if config.batch_size not in (0, size):
        raise arguments.wrong(ValueError, "batch_size", config.batch_size, f"0 or {size}: all records in every step")
    config = replace(config, agents_per_round=0)
    start = manifold.origin(dimension)
    along = manifold.basis(start)[0]
    ends = [manifold.exp(start, side * distance * along) for side in (-1, 1)]
    ledgers = []

    def scores(seeds: list[int], first: Tensor) -> Tensor:
        y = torch.stack([first, *[start] * (2 * size - 1)])
        federation = Federation({"y": y}, Partition.from_lists([list(range(size)), list(range(size, 2 * size))]))
        algorithm = PriRFed(config, SquaredDistance(manifold), start.expand(len(seeds), *start.shape).clone())
        found = torch.zeros(len(seeds), dtype=torch.float64)

        def observe(exchange: Exchange, uploads: Uploads) -> None:
            x, far = exchange.down["x"], ends[1].expand_as(uploads["x"][:, 0])
            line = manifold.log(x, far)
            line = line / manifold.norm(x, line).view(-1, *[1] * manifold.point_ndim)
            found.add_(manifold.inner(x, manifold.log(x, uploads["x"][:, 0]), line))

        rounds = Rounds(algorithm, federation, config.rounds, seeds=seeds, observe=observe, delta=delta)
        ledgers.append(run(rounds).privacy[0])
        return found

    worlds = canary_scores(*(lambda seeds, end=end: scores(seeds, end) for end in ends), runs, batch)
    return Audit.of(ledgers[0].report(delta)["epsilon"], *worlds, delta)

"""Chapter 4's audit applied to DP-CalR: do the noised matrices show more of one record than the accountant says?

Two worlds differ in one record of client 0: the two of all records whose parts of the matrix are farthest apart.
The attacker knows the encoder, all views of all records, and sees every upload of client 0; he does not know the noise.
His score is the sum of the uploads along the difference of the two matrices: of all tests the best one.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from fedbook import arguments
from fedbook.federation.exchange import Exchange, Uploads
from fedbook.federation.loop import Rounds, run
from fedbook.federation.population import Federation
from fedbook.federation.tree import tree_map
from fedbook.papers.fedsc.algorithm import Config, FedSC
from fedbook.papers.fedsc.problem import PretrainingProblem
from fedbook.papers.fedsc.spectral import norm_clip
from fedbook.partition import Partition
from fedbook.privacy.audit import Audit, canary_scores
from fedbook.randomness import stream


def audited(problem: PretrainingProblem, config: Config, size: int, runs: int, batch: int = 500) -> Audit:
    """The audit of ``config.rounds`` uploads of a client with ``size`` records, by ``runs`` runs in each world.

    Encoders do not train (local_epochs 0): what is audited is Algorithm 2. ``problem`` with a bank of exactly
    ``config.matrix_views`` views, so that nothing but the noise is random. Memory: ``batch`` runs at a time.
    Raises: TypeError, ValueError (a ``cohort`` that may leave client 0 out, an ``adjacency`` but "replace_one").
    Source: FedSC, Algorithm 2 and proposition 6.6.
    """
    if problem.bank is None or problem.views.bank != config.matrix_views:
        raise arguments.wrong(ValueError, "matrix_views", config.matrix_views, f"the bank's {problem.views.bank} views")
    size = arguments.integer("size", size, 1, len(problem.y) // 2 - 1)
    if config.cohort == 1:
        raise arguments.wrong(ValueError, "cohort", 1, "0 or 2: both clients in every round")
    arguments.one_of("adjacency", config.adjacency, ("replace_one",))  # the two worlds differ in one record replaced
    config = replace(config, local_epochs=0)
    theta = problem.encoder.init(stream(0, "audited encoder"), problem.x.dtype)
    parts = record_matrices(problem, theta, config.mu)
    apart = torch.cdist(parts.flatten(1), parts.flatten(1))
    pair = divmod(int(apart.argmax()), len(apart))
    others = [row for row in range(len(parts)) if row not in pair]
    along = parts[pair[1]] - parts[pair[0]]
    ledgers = []

    def scores(seeds: list[int], first: int) -> Tensor:
        rows = [first, *others[: size - 1]], others[size - 1 : 2 * size - 1]
        found = torch.zeros(len(seeds), dtype=torch.float64)

        def observe(exchange: Exchange, uploads: Uploads) -> None:
            if exchange.name == "matrices":
                found.add_((uploads["matrix"][:, 0].double() * along.double()).sum((1, 2)))

        federation = Federation({"bank": problem.bank}, Partition.from_lists(rows))
        algorithm = FedSC(config, problem.encoder, problem.views)
        rounds = Rounds(algorithm, federation, config.rounds, seeds=seeds, observe=observe)
        rounds.server["theta"] = tree_map(lambda p: p.expand(len(seeds), *p.shape).clone(), theta)
        ledgers.append(run(rounds).privacy[0])
        return found

    worlds = canary_scores(*(lambda seeds, first=first: scores(seeds, first) for first in pair), runs, batch)
    claimed = ledgers[0].report(config.delta)["epsilon_of_releases"]
    return Audit.of(claimed, *worlds, config.delta)


@torch.no_grad()
def record_matrices(problem: PretrainingProblem, theta: dict[str, Tensor], mu: float) -> Tensor:
    """Each record's part of a matrix, the mean of z z^T over its views with z clipped: [N, H, H]."""
    z = problem.encoder.project(theta, problem.encoder.features(theta, problem.bank.flatten(0, 1)))
    z = norm_clip(z, mu).unflatten(0, problem.bank.shape[:2])
    return z.mT @ z / z.shape[1]

"""Chapter 4's audit: the chapter's own algorithm, with and without one client that does its worst.

The canary holds images so bright that its change is always clipped; whoever looks at the models asks how far they
moved along the change that the canary would make. Many runs side by side, on real digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedbook import data
from fedbook.federation import Federation, Rounds, tree_map
from fedbook.learning.models import Parameters, model
from fedbook.papers.dp2_fedsam import Config, DP2FedSAM
from fedbook.partition import Partition


class WeakNoise(DP2FedSAM):
    """Sabotage: accounts for the noise it should add and adds ``share`` of it."""

    share = 0.3

    def noised(self, total: Parameters, turn) -> Parameters:
        noised = super().noised(total, turn)
        return tree_map(lambda x, y: x + self.share * (y - x), total, noised)


@dataclass(frozen=True)
class World:
    """``World(config, True)(seeds)``: scores [S] of runs in which the canary is there (False: is not there).

    DP-FedAvg with softmax regression on two clients of eight real digits each; the canary is a third. The divisor is
    the same constant in both worlds. The score adds up, round after round, how far the model moved along the change
    that the canary makes from that round's model: all of this can be computed from what is released and the canary.
    ``algorithm``: DP2FedSAM or a sabotaged one.
    """

    config: Config
    canary: bool
    algorithm: type[DP2FedSAM] = DP2FedSAM

    def __call__(self, seeds: Sequence[int]) -> Tensor:
        images = data.load("digits", dtype=torch.float32)
        x = torch.cat([torch.full_like(images.train_x[:8], 1000.0), images.train_x[:16]])
        y = torch.cat([torch.arange(8), images.train_y[:16]])  # whatever is predicted, most of the canary's are wrong
        rows, samples = torch.arange(len(y)).split(8), {"x": x, "y": y}
        net = model("linear", tuple(x.shape[1:]), len(images.classes))
        private = self.algorithm(self.config, net, "dp-fedavg")
        lone = DP2FedSAM(
            replace(self.config, client_rate=1.0, noise_multiplier=0.0, expected_cohort=1.0), net, "dp-fedavg"
        )
        split = Partition.from_lists(rows if self.canary else rows[1:])
        rounds = Rounds(private, Federation(samples, split), self.config.rounds, seeds=seeds)
        probe = Rounds(lone, Federation(samples, Partition.from_lists(rows[:1])), self.config.rounds, seeds=seeds)
        score = torch.zeros(len(seeds))
        for _ in range(self.config.rounds):
            before = rounds.server
            rounds.step()
            probe.server = before
            probe.step()
            moved, along = (
                _flat(tree_map(torch.sub, after.server["shared"], before["shared"])) for after in (rounds, probe)
            )
            score += (moved * along).sum(1) / along.norm(dim=1)
        return score


def _flat(parameters: Parameters) -> Tensor:
    return torch.cat([p.flatten(1) for p in parameters.values()], 1)


def worlds(
    noise_multiplier: float, rounds: int, rate: float, algorithm: type[DP2FedSAM] = DP2FedSAM
) -> tuple[Callable[[Sequence[int]], Tensor], Callable[[Sequence[int]], Tensor]]:
    """The two worlds, without and with the canary, for ``fedbook.privacy.audit.canary_scores``.

    One full-batch local step a round; the clip norm is 1.
    """
    config = Config(
        rounds=rounds, client_rate=rate, noise_multiplier=noise_multiplier, clip_norm=1.0, batch_size=0, body_epochs=1,
        lr_body=0.01, momentum=0.0, lr_decay=1.0, expected_cohort=3 * rate,
    )  # fmt: skip
    return World(config, False, algorithm), World(config, True, algorithm)

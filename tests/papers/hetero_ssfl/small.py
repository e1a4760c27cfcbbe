"""Small problems for Hetero-SSFL, two architectures on five clients, and their rounds."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedbook.federation import Rounds, tree_map
from fedbook.learning import fedbyol
from fedbook.papers.hetero_ssfl import Config, HeteroSSFL
from fedbook.papers.hetero_ssfl.problem import AlignedSettings, aligned_problem

PLAIN = Config(
    rounds=2, local_epochs=1, batch_size=16, lr=0.1, momentum=0.5, weight_decay=1e-2, max_norm=0.0,
    target_decay=0.8, directions="mean", mu=0.7, alignment_batch=12, predictor_hidden=10,
)  # fmt: skip
SETTINGS = AlignedSettings(
    train_samples=130, test_samples=40, clients=5, partition="dirichlet", alpha=0.5, bank=5, width=12, model="mlp",
    alignment_samples=20, architectures="mlp,cnn_s:9",
)  # fmt: skip

JUDGED = AlignedSettings(
    train_samples=260, test_samples=90, clients=5, alignment_samples=30, width=9, model="mlp",
    architectures="mlp,cnn_s:7", neighbours=5,
)  # fmt: skip


def problem(seeds=(0,), dtype=torch.float64, **changes):
    return aligned_problem("digits", replace(SETTINGS, **changes), seeds, dtype=dtype)


SMALL = problem()


def algorithm(config, data=SMALL, kind=HeteroSSFL, **options):
    nets = {word: fedbyol.online_network(config, net) for word, net in data.encoders.items()}
    return kind(config, nets, data.assigned, data.views, data.levels, data.alignment, **options)


def rounds_of(config, data=SMALL, seeds=(0,), total=None, shares=True, federation=None, kind=HeteroSSFL, **options):
    total = config.rounds if total is None else total
    return Rounds(algorithm(config, data, kind, shares=shares), federation or data.federation(), total, seeds=seeds,
                  **options)  # fmt: skip


def client(clients, data, k, part="theta", slot=0):
    """One part of client k's state."""
    word = data.assigned[k]
    place = [j for j, w in enumerate(data.assigned) if w == word].index(k)
    return tree_map(lambda p: p[slot, place], clients[word][part])


def song(k, m):
    """HSIC_1 as printed by Song et al., from kernels without their diagonals."""
    n = len(k)
    k, m = k - torch.diag(k.diagonal()), m - torch.diag(m.diagonal())
    one = torch.ones(n, dtype=k.dtype)
    inner = torch.trace(k @ m) + (one @ k @ one) * (one @ m @ one) / ((n - 1) * (n - 2))
    return (inner - 2 / (n - 2) * (one @ k @ m @ one)) / (n * (n - 3))

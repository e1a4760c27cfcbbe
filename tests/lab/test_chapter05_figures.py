"""Chapter 5's figures say the numbers of their inputs, and what they draw is what the package's compressors do."""

import torch

from fedbook.federation import Rounds
from fedbook.lab import chapter05_pictures as pictures
from fedbook.papers.cvfl import CVFL, Config
from fedbook.papers.cvfl.problem import VerticalSettings, vertical_problem

SETTINGS = VerticalSettings(embedding=32, train_samples=200, test_samples=100)
PROBLEM = vertical_problem("digits", SETTINGS, dtype=torch.float64)
SCALAR = Config(compressor="scalar", bits=2, local_steps=2)


# --- rounds of the whole algorithm


def test_a_round_is_what_the_ledger_counts():
    """B = 100, P = 32, M = 4: 800 + 32 bytes up; down also a 10 x 128 matrix in 320 + 32 bytes and 10 float64."""
    seen = pictures.one_round(PROBLEM, SCALAR, sample=7)
    assert (seen.up, seen.down_embeddings, seen.down_server) == (4 * 832, 16 * 832, 4 * (352 + 80))
    rounds = Rounds(CVFL(SCALAR, PROBLEM), PROBLEM.federation(), 2, seeds=(0,))
    records = list(rounds)
    assert seen.total == records[1].bytes_up[0] + records[1].bytes_down[0]
    for m in range(4):
        theta = {k: v[0, m] for k, v in rounds.clients["parties"]["theta"].items()}
        own = PROBLEM.towers["parties"].apply(theta, PROBLEM.parts["parties"][m, 7:8])
        assert torch.allclose(seen.embeddings[m], own[0], atol=1e-12)

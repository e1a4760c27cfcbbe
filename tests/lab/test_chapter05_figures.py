"""Chapter 5's figures say the numbers of their inputs, and what they draw is what the package's compressors do."""

import math

import pytest
import torch

from fedbook.compression import Hexagonal, UniformScalar
from fedbook.federation import Rounds
from fedbook.lab import chapter05_figures as figures
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


# --- compressors


def test_codebooks_are_the_packages():
    grid = figures.codebook_of(UniformScalar(2, 0.0, 1.0, dither=False))
    levels = torch.linspace(0, 1, 4, dtype=torch.float64)
    assert torch.allclose(grid, torch.cartesian_prod(levels, levels), atol=1e-6)
    book = figures.codebook_of(Hexagonal(2, 0.0, 1.0, dither=False))
    gaps = torch.cdist(book, book) + 9 * torch.eye(16, dtype=torch.float64)
    d = math.sqrt(2 / math.sqrt(3) * 1.0088 / 16)
    assert book.shape == (16, 2) and float(gaps.min()) == pytest.approx(d, rel=1e-6)


def test_measured_errors_meet_their_laws(axes):
    found = figures.measured_errors((2, 4), messages=16)
    for label in ("scalar, ends", "hexagonal, infinite", "random-k"):
        for one in found[label]:
            assert abs(one.mean - one.law) < 4 * one.error + 1e-12
    assert found["scalar, ends"][0].law == pytest.approx((2 / 3) ** 2 / 12)
    assert found["random-k"][0].law == pytest.approx(30 / 32 / 3, rel=0.02)
    for one in found["top-k"]:
        assert one.mean < one.law - 10 * one.error  # an upper bound, equality for equal magnitudes only
    hexagonal = found["hexagonal, infinite"][1]
    assert hexagonal.mean - 8 * hexagonal.error > 4 * 4.0**-4 / 24  # the printed constant is refuted
    sentence = figures.draw_errors(axes, found)
    assert f"hexagonal, infinite {hexagonal.mean * 4**4 / 4:.4f}" in sentence and "0.0796" in sentence
    assert axes[0].get_yscale() == "log" and len(axes[0].get_legend().get_texts()) == 6

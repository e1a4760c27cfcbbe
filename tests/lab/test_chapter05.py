"""Chapter 5's exercises: what is right by their checkers is right by the package, whichever way it was found."""

import math

import numpy as np
import pytest
import torch

from fedbook.compression import TopK, UniformScalar
from fedbook.lab import chapter05
from fedbook.lab.exercises import check
from fedbook.papers.cvfl.accounts import bits_per_round
from fedbook.randomness import stream


def test_the_vector_by_hand_is_the_packages():
    h, u = torch.tensor([0.6, -0.1, 0.4]).double(), torch.tensor([0.2, -0.3, 0.05]).double()
    quantiser = UniformScalar(2, low=-1.0, high=1.0)
    dither = u / quantiser.step()
    codes = quantiser.quantise(h, dither)
    assert codes.tolist() == [3, 1, 2] and float(u.abs().max()) <= quantiser.step() / 2
    decoded = quantiser.reconstruct(codes, dither, h)
    assert chapter05.solution_quantise_by_hand() == pytest.approx(decoded.tolist(), abs=1e-7)
    assert check("05-1", decoded).status == "right" and check("05-1", tuple(decoded.tolist())).status == "right"


def test_the_nearest_point_is_the_nearest():
    rng = stream(1, "points")
    for d in (0.07, 1.0, 5.0):
        x = torch.from_numpy(20 * d * (rng.random((3000, 2)) - 0.5))
        found = chapter05.solution_nearest(x, d)
        rows = np.arange(-16, 17)
        points = torch.from_numpy(np.array([[i * d + j * d / 2, j * math.sqrt(3) / 2 * d] for i in range(-30, 31)
                                            for j in rows]))  # fmt: skip
        exact = "donot_use_mm_for_euclid_dist"
        best = torch.cdist(x, points, compute_mode=exact).min(1).values
        assert torch.allclose((found - x).norm(dim=1), best, atol=1e-9 * d)
        assert float(torch.cdist(found, points, compute_mode=exact).min(1).values.max()) < 1e-9 * d
        assert float((found - x).norm(dim=1).max()) <= d / math.sqrt(3) + 1e-12


def test_other_ways_to_the_nearest_point_are_right_too():
    def by_trying(x, d):
        return chapter05._lattice_points(x, d)

    def in_float32(x, d):
        return chapter05.solution_nearest(x.float(), d)

    assert check("05-2", by_trying).status == "right" and check("05-2", in_float32).status == "right"
    assert "no point" in check("05-2", lambda x, d: chapter05.solution_nearest(x, d) + 1e-3).problem


def test_index_bits_are_what_top_k_sends():
    for batch_size, width in ((5, 12), (100, 32), (7, 33)):
        for kept in range(1, width + 1):
            for same in (False, True):
                body = TopK(kept).payload_bytes(batch_size, width, same) - 4 * batch_size * kept
                assert body == math.ceil(chapter05.solution_index_bits(batch_size, width, kept, same) / 8)
    assert check("05-3", lambda *a: float(chapter05.solution_index_bits(*a))).status == "right"


def test_the_link_makes_every_extreme_too_slow():
    """By the account alone: rounds of uncompressed embeddings, and of single steps, in the time of 05-4."""
    per_round = {bits: sum(bits_per_round("literal", 100, [32] * 4, 128 * 10 + 10, bits)) / 8 for bits in (2, 32)}
    assert chapter05.BUDGET_S / chapter05.LINK.seconds(1, 10, per_round[32]) < 3
    assert 22 < chapter05.BUDGET_S / chapter05.LINK.seconds(1, 10, per_round[2]) < 26
    assert chapter05.LINK.seconds(24, 1, 24 * per_round[2]) > 0.8 * chapter05.BUDGET_S
    assert "1 round" not in check("05-4", {"compressor": "none", "bits": 32, "local_steps": 10}).problem

"""Chapter 5's errata: every witness refutes its statement, and the ones that change conclusions by a second way."""

import math

import numpy as np
import pytest
import torch

from fedbook.lab import chapter05_errata as errata
from fedbook.randomness import stream
from tests.lab.checks import Witnesses, refutes

FOUND = Witnesses(errata.ERRATA)
STATEMENT = {witness.__name__: statement for statement, witness in errata.ERRATA}
G2 = 5 / (36 * math.sqrt(3))
SCALAR = 1 / 192  # W^2 / 12 4^-2

# name -> (the number found, how exactly, the number promised): derived by hand or elsewhere, not by the witness
EXPECTED = {
    "lattice_error": (G2, 1e-12, 1 / 24),
    "diagonal_hessian": (0.25, 1e-15, 0.0),
    "split_learning": (0.09, 0.01, 0.00088),
    "unlike_samples": (1e-4, 1e-15, -1.587e-4),
    "uploads_counted": (552.0, 0.0, 360.0),
    "kept_by_gradient": (1.0, 0.0, 0.5),
    "endpoint_levels": (SCALAR * (4 / 3) ** 2, 1e-8, SCALAR),
    "bin_levels": (4 * SCALAR, 1e-8, SCALAR),
    "no_dither": (3 * SCALAR, 1e-12, SCALAR),
    "algorithm_2_step": (-1.0, 1e-12, -0.6),
    "server_step": (-1.0, 1e-12, -0.6),
    "bounded_error": (0.08, 0.002, 0.006),
    "joint_cells": (3.2558, 1e-4, 1.0392),
    "clipped_negatives": ((1 / 6 + 1 / 108) * 27, 0.01, 1.0),
    "similar_accuracy": (8.02, 1e-9, 1.85),
    "derivatives_charged": (35 / 3 * 64 * 1000 * 15 * 3 / 8 / 2**20, 1e-9, 0.68665),
    "scalar_rate": (10.0, 1e-9, 1.0),
    "kept_rate": (100.0, 0.02, 1.0),
    "batch_forgotten": (100.0, 1e-9, 1.0),
    "ranking": (0.0, 0.0, math.inf),
    "index_uncounted": (32 + 12, 0.0, 32.0),
    "kept_is_no_number": (1.5, 0.0, 1.0),
    "within_a_deviation": ((0.453 - 0.431) / 0.016, 1e-9, 1.0),
    "fewer_bits_cheaper": (1932.0, 0.0, 1738.8),
    "steadier_with_bits": (0.020, 0.0, 0.018),
    "too_many_epochs": (4209.25, 0.002, 1000.0),
    "runs_in_the_mean": (4.0, 0.0, 5.0),
    "same_setting_twice": (3777.21, 0.0, 3830.0),
    "one_quadrant": (1024.0, 0.0, 256.0),
    "noise_constant": (8 / 3 * (1 + 50 + 1 / 16), 1e-9, 6.0),
    "compression_constant": (96.75, 1e-12, 92.0),
    "rounds_divided": (1 / (2 - 1 / 16), 2e-6, 0.02),
    "descent_constant": (1 - 1 / 8 - 1 / 16 - 1 / 128, 1e-12, 0.80859375),
    "noise_of_a_round": ((1 + 1 / 2 + 1 / 16) / 256, 1e-12, (1 + 1 / 2 + 1 / 32) / 256),
    "compression_halved": (32.0, 0.0, 16.0),
    "rising_loss": (-8 / 3, 1e-12, -4.0),
    "grown_error": (2.5, 1e-12, 1.0),
    "one_step_short": (-0.1, 1e-12, -0.19),
    "turned_sign": (1.0, 0.0, -1.0),
    "square_forgotten": (9.0, 0.0, 3.0),
}
SMALL = {"same_setting_twice": 0.01, "compression_constant": 0.01, "descent_constant": 0.004, "noise_of_a_round": 0.01}


def test_every_erratum_has_its_expectation():
    assert set(FOUND) == set(EXPECTED) and len(FOUND) == len(errata.ERRATA)


@pytest.mark.parametrize("name", EXPECTED)
def test_every_erratum_is_refuted_by_its_witness(name):
    refutes(FOUND[name], EXPECTED[name], STATEMENT[name], SMALL.get(name, 0.1))


# --- the told ones and the compressors by a second way


def test_the_lattice_by_nearest_points():
    """Points of a cell of the lattice, quantised by trying all lattice points near by: mean square, with its error."""
    d = math.sqrt(2 / math.sqrt(3))  # cell of area 1
    basis = torch.tensor([[d, 0.0], [d / 2, math.sqrt(3) / 2 * d]], dtype=torch.float64)
    points = torch.from_numpy(stream(0, "lattice").random((200_000, 2))) @ basis
    near = torch.cartesian_prod(torch.arange(-1.0, 3.0), torch.arange(-1.0, 3.0)).double() @ basis
    square = torch.cdist(points, near).min(1).values.square() / 2
    mean, error = float(square.mean()), float(square.std()) / math.sqrt(len(square))
    assert abs(mean - FOUND["lattice_error"][0]) < 4 * error < 0.001
    assert mean - 4 * error > 1 / (4 * math.pi) > 1 / 24  # a disc is the best cell there is, and above V / 24 too


def test_theorem_4_2_by_simulation_and_with_the_right_constant():
    """Sampled batches instead of all sequences; with max(L, L_m) for L the bound is far above."""
    c, q, rounds, repetitions = 0.01, 10, 4, 200_000
    lr = 1 / (16 * q)
    signs = np.sign(stream(0, "signs").random((repetitions, rounds)) - 0.5)
    x = np.full(repetitions, math.pi / 4)
    for r in range(rounds):
        for _ in range(q):
            x = x - lr * (c + signs[:, r] * np.sin(x))
    fall = 4 * c * (math.pi / 4 - x) / (lr * q * rounds)
    mean, error = float(fall.mean()), float(fall.std()) / math.sqrt(repetitions)
    found, bound = FOUND["unlike_samples"]
    assert abs(mean - bound) < 4 * error + 1e-6 and mean + 4 * error < found
    assert found < bound + 6 * lr * q * 1.0 * 1.0
    # the assumptions: mean gradient c, slopes of the samples' gradients at most L_1 = 1, variance at most 1
    t = torch.linspace(-10, 10, 2001, dtype=torch.float64)
    both = torch.stack([c + t.sin(), c - t.sin()])
    assert torch.allclose(both.mean(0), torch.full_like(t, c)) and float(both.var(0, correction=0).max()) <= 1.0
    assert float((both.diff(dim=1) / (t[1] - t[0])).abs().max()) <= 1.0


def test_scalar_errors_by_simulation():
    rng = stream(0, "dither")
    for h, first, delta, name in ((0.3, 0.0, 1 / 3, "endpoint_levels"), (1.0, 1 / 8, 1 / 4, "bin_levels")):
        u = delta * (rng.random(400_000) - 0.5)
        levels = first + delta * np.arange(4)
        nearest = levels[np.abs((h + u)[:, None] - levels).argmin(1)]
        square = (nearest - u - h) ** 2
        assert abs(square.mean() - FOUND[name][0]) < 4 * square.std() / math.sqrt(len(square))

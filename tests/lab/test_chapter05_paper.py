"""The paper's tables: their decoding gives whole runs, and the tables come back from it."""

import math
import statistics

import pytest

from fedbook.lab import chapter05_paper as paper
from fedbook.papers.cvfl.accounts import MB
from fedbook.randomness import stream

# mean epochs to the target, worked out by hand from the printed costs: none, then scalar, vector, top-k at 2, 3, 4 bits
EPOCHS = {
    "MIMIC-III": (130.6, 127.2, 128.8, 169.0, 124.8, 120.2, 171.2, 124.4, 121.8, 141.6),
    "CIFAR-10": (76.8, None, 108.7, None, 130.0, 86.3, 132.1, 137.4, 78.3, 114.2),
    "ModelNet10": (17.4, 56.0, 17.2, 38.2, 33.6, 17.4, 30.8, 31.8, 17.4, 26.4),
}


@pytest.mark.parametrize("problem", EPOCHS)
def test_costs_decode_to_means_of_whole_epochs(problem):
    found = paper.epochs_decoded(problem)
    half = 0.5 * 10.0 ** -(1 if problem == "MIMIC-III" else 2)  # of the last printed digit
    for ((_, bits), value), epochs in zip(found.items(), EPOCHS[problem], strict=True):
        if epochs is None:
            assert value is None
            continue
        tolerance = half / paper.epoch_cost(problem, bits)
        if problem == "CIFAR-10":  # two digits of a GB are up to an epoch
            assert abs(value[0] - epochs) < 0.06 < tolerance + 0.06
        else:
            assert abs(value[0] - epochs) <= tolerance + 1e-9
            assert abs(5 * epochs - round(5 * epochs)) < 1e-9


def test_the_costs_of_an_epoch():
    for problem, costs in (("MIMIC-III", (29.326, 1.8329, 2.7493, 3.6658)), ("ModelNet10", (552, 34.5, 51.75, 69))):
        assert [paper.epoch_cost(problem, b) for b in (32, 2, 3, 4)] == pytest.approx(costs, abs=5e-5 + 5e-4)
    gb = [1024 * paper.epoch_cost("CIFAR-10", b) for b in (32, 2, 3, 4)]
    assert gb == pytest.approx([102.539, 6.409, 9.613, 12.817], abs=1e-3)
    assert paper.SETTINGS["ModelNet10"].unit == MB


def test_no_other_account_gives_whole_runs():
    for account in ("literal", "minimal", "algorithm2", "algorithm2_honest"):
        off = [abs(5 * mean - round(5 * mean)) for mean, _ in paper.epochs_decoded("ModelNet10", account).values()]
        assert max(off) > 0.19, account


def test_rounds_per_epoch_follow_from_samples_and_batches():
    for problem, samples in (("MIMIC-III", 14_681), ("CIFAR-10", 50_000), ("ModelNet10", 1_008)):
        one = paper.SETTINGS[problem]
        assert one.rounds_per_epoch == math.ceil(samples / one.batch_size)
    for problem, outputs in (("MIMIC-III", 2), ("CIFAR-10", 10), ("ModelNet10", 10)):
        assert paper.SETTINGS[problem].server_size == paper.PARTIES * paper.SETTINGS[problem].width * outputs


def test_table_5_comes_back_from_three_numbers_of_rounds():
    rounds = paper.rounds_of_table_5()
    assert {q: r for q, (r, _) in rounds.items()} == {1: 63138.75, 10: 4662.0, 25: 1773.75}
    assert {q: n for q, (_, n) in rounds.items()} == {1: 4, 10: 5, 25: 4}
    again = paper.table_5_again()
    for latency, entries in paper.TABLE_5.items():
        for q, (mean, _) in entries.items():
            assert abs(again[latency][q] - mean) <= 0.01
            assert rounds[q][0] * (latency / 1000 + q * 0.01) == pytest.approx(again[latency][q], rel=1e-12)


def test_possible_runs_on_runs_that_are_known():
    rng = stream(0, "runs")
    for n in (3, 4, 5):
        for _ in range(20):
            epochs = rng.integers(20, 200, n).tolist()
            mean, deviation = sum(epochs) / n, statistics.pstdev(epochs)
            assert n in paper.possible_runs((mean - 1e-4, mean + 1e-4), (deviation - 1e-4, deviation + 1e-4))
    # 1, 2, 4: mean 7/3, no other number of runs has it
    exact = statistics.pstdev([1, 2, 4])
    assert paper.possible_runs((7 / 3 - 1e-6, 7 / 3 + 1e-6), (exact - 1e-6, exact + 1e-6)) == [3]
    assert paper.possible_runs((7 / 3 - 1e-6, 7 / 3 + 1e-6), (1.4, 1.4001)) == []


def test_table_4s_deviations_divide_by_five():
    """The runs behind three rows of the smallest spread, found by search: five whole numbers with both moments."""
    for compressor, bits in (("top-k", 4), ("scalar", 4), ("top-k", 3)):
        mean, deviation = paper.epochs_decoded("ModelNet10")[compressor, bits]
        total, spread = round(5 * mean), 25 * deviation**2
        assert abs(spread - round(spread)) < 0.05  # with the deviation of a sample it would be 20 variances
        squares = (round(spread) + total**2) / 5
        assert squares == int(squares)
        top = int(mean + 4 * deviation)
        found = [
            (a, b, c, d)
            for a in range(1, top) for b in range(a, top) for c in range(b, top) for d in range(c, top)
            if d <= (e := total - a - b - c - d) and a * a + b * b + c * c + d * d + e * e == squares
        ]  # fmt: skip
        assert found

"""Accounts against a simulation that sends messages one by one, and against the paper's tables."""

import pytest

from fedbook.papers.cvfl.accounts import GB, MB, TimeModel, bits_per_round


def counted(batch_size, widths, server_size, bits, server_bits, echo):
    """Algorithm 1's messages one by one: what each party sends and what the server sends to each party."""
    up = down = 0
    for width in widths:
        for _ in range(batch_size):
            up += width * bits
    for receiver in range(len(widths)):
        down += server_size * server_bits
        for sender, width in enumerate(widths):
            if sender != receiver or echo:
                down += batch_size * width * bits
    return up, down


@pytest.mark.parametrize("case", [(5, [3], 7, 2, 2), (4, [3, 8], 0, 3, 32), (2, [1, 2, 5, 5], 11, 4, 4)])
def test_literal_and_minimal_count_algorithm_1s_messages(case):
    assert bits_per_round("literal", *case) == counted(*case, echo=True)
    assert bits_per_round("minimal", *case) == counted(*case, echo=False)
    assert bits_per_round("literal", *case[:4]) == counted(*case[:4], case[3], echo=True)


def test_the_papers_account_is_its_formula_and_counts_uploads_m_times():
    for parties, width, batch, size, bits in ((4, 16, 1000, 128, 3), (4, 4096, 64, 163_840, 32), (12, 7, 5, 9, 2)):
        up, down = bits_per_round("paper", batch, [width] * parties, size, bits)
        assert up + down == bits * (2 * width * batch * parties**2 + size * parties)
        literal = bits_per_round("literal", batch, [width] * parties, size, bits)
        assert up == parties * literal[0] and down == literal[1]
    with pytest.raises(ValueError, match="^widths"):
        bits_per_round("paper", 4, [3, 4], 1, 2)


def test_algorithm_2_sends_no_server_model_and_its_derivatives_are_floats():
    assert bits_per_round("algorithm2", 10, [3, 4], 99, 2) == (140, 140)
    assert bits_per_round("algorithm2_honest", 10, [3, 4], 99, 2) == (140, 70 * 32)
    assert bits_per_round("algorithm2", 10, [3, 4], 5, 32) == bits_per_round("algorithm2_honest", 10, [3, 4], 99, 32)


def test_costs_of_an_epoch_are_the_tables():
    """MB (2^20 bytes) of an epoch at 32 bits: MIMIC 29.326, CIFAR 102.539, ModelNet 552."""
    for (batch, width, size, rounds), expected in (
        ((1000, 16, 128, 15), 29.326), ((100, 16, 640, 500), 102.539), ((64, 4096, 163_840, 16), 552.0),
    ):  # fmt: skip
        assert sum(bits_per_round("paper", batch, [width] * 4, size, 32)) * rounds / 8 / MB == pytest.approx(
            expected, abs=5e-4
        )
    assert GB == 1024 * MB


def test_seconds_by_a_clock():
    model = TimeModel(latency_s=0.25, step_s=0.5, bandwidth=100.0)
    moved, clock = [10, 20.0, 0, 5], 0.0
    for count in moved:
        for _trip in range(2):
            clock += 0.25
        for _step in range(3):
            clock += 0.5
        clock += count / 100.0
    assert model.seconds(4, 3, sum(moved), trips=2) == pytest.approx(clock, rel=1e-12)
    assert TimeModel(0.2, 0.01).seconds(63138.75, 1, 1e12) == pytest.approx(13259.14, abs=0.005)  # Table 5
    assert TimeModel(0.0, 0.0).seconds(3, 1) == 0.0


@pytest.mark.parametrize(
    ("what", "named"),
    [
        (lambda: bits_per_round("literal", 0, [32] * 4, 1280, 2), "batch_size"),
        (lambda: bits_per_round("literal", 9, [32, 0], 1280, 2), "widths"),
        (lambda: bits_per_round("literal", 9, [32], -5, 2), "server_size"),
        (lambda: bits_per_round("literal", 9, [32], 5, -2), "bits"),
        (lambda: bits_per_round("literal", 9, [32], 5, 2, 0), "server_bits"),
        (lambda: TimeModel(1, 1).seconds(-5, 10), "rounds"),
        (lambda: TimeModel(1, 1).seconds(5, 10, -1), "byte_count"),
    ],
)
def test_nonsense_is_named(what, named):
    with pytest.raises(ValueError, match=f"^{named}: got"):
        what()

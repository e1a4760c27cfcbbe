"""The paper's tables: they carry the paper's own marks, and what is read off them is right."""

import math

import pytest

from fedbook.lab import chapter01_paper as paper
from fedbook.privacy.gaussian import gaussian_delta

# Table 6 by the formula with mu / n, with sqrt(2) mu / n, and exactly: worked out elsewhere, to a hundredth
EPSILONS = (
    (1.96, 2.87, 1.81), (3.99, 6.00, 4.28), (1.87, 2.70, 2.05), (5.39, 7.98, 6.57), (1.88, 2.75, 1.72),
    (3.89, 5.85, 4.16), (2.13, 3.08, 2.37), (5.38, 7.96, 6.55), (3.89, 5.85, 4.16), (7.50, 11.65, 9.05),
    (1.58, 2.27, 1.70), (5.26, 7.79, 6.40),
)  # fmt: skip


def test_table_6_by_the_accounts():
    assert len(paper.TABLE_6) == len(EPSILONS)
    for row, expected in zip(paper.TABLE_6, EPSILONS, strict=True):
        found = paper.epsilons(row)
        assert found[2:] == pytest.approx(expected, abs=0.0101)
        assert found.claimed == row.epsilon and found.proved < found.replace and found.exact < found.replace
        count, log = len(row.sharing_rounds), math.log(1 / row.delta)
        for value, size in ((found.printed, 1), (found.proved, paper.SIZE[row.data])):
            part = count * row.mu**2 / (row.sigma * size) ** 2
            assert value == pytest.approx(part / 2 + math.sqrt(2 * part * log), rel=1e-9)
        shift = math.sqrt(2 * count) * row.mu / row.sigma / paper.SIZE[row.data]
        assert gaussian_delta(found.exact, shift) == pytest.approx(row.delta, rel=1e-6)
    printed = [paper.epsilons(row).printed for row in paper.TABLE_6]
    assert 3.9e5 < min(printed) < 4e5 and 6.1e7 < max(printed) < 6.2e7


def test_sharing_rounds():
    assert [len(row.sharing_rounds) for row in paper.TABLE_6] == [100] * 4 + [50] * 8
    assert paper.TABLE_6[4].sharing_rounds[:2] == (151, 152) and paper.TABLE_6[5].sharing_rounds[:2] == (102, 104)
    assert all(row.sharing_rounds[-1] == paper.ROUNDS for row in paper.TABLE_6)


def test_sums_of_the_printed_numbers():
    """Typing errors: column sums of Table 2, added up from the paper's page."""
    sums = {"SVHN": (614.46, 607.01), "CIFAR-10": (500.58, 483.85), "CIFAR-100": (338.17, 302.37)}
    for data, (full, partial) in sums.items():
        assert sum(paper.column(data, False).values()) == pytest.approx(full, abs=1e-6)
        assert sum(paper.column(data, True).values()) == pytest.approx(partial, abs=1e-6)


def test_drops_and_the_third_remark():
    """FedSC loses little on CIFAR-100 only; on CIFAR-10 more than every other method."""
    assert paper.drops("CIFAR-100")["fedsc"] == 1.71 and paper.drops("CIFAR-100")["fedavg-sc"] == 13.29
    places = {data: paper.ranks(paper.drops(data), least=True) for data in paper.CLIENTS}
    assert [places[data]["fedsc"] for data in paper.CLIENTS] == [4, 7, 2]
    assert [places[data]["fedca"] for data in paper.CLIENTS] == [3, 1, 1]
    assert places["SVHN"]["fedavg-byol"] == 4  # a tie with FedSC at 0.75


def test_margins_of_the_private_runs():
    found = {(m.table, m.data, m.partial, m.epsilon): m for m in paper.margins()}
    assert len(found) == 18
    assert {key[1] for key, m in found.items() if m.within} == {"SVHN"}
    assert sum(m.within for m in found.values()) == 6 == sum(m.data == "SVHN" for m in found.values())
    least = found[5, "SVHN", True, 3]
    assert least.points == 0.06 and least.deviation == 0.94 and least.lost == pytest.approx(1.08 / 1.14)
    assert all(0 < m.lost < 1 and m.points > 0 for m in found.values())


def test_the_tables_carry_the_papers_marks():
    """Bold and underlined in the paper's Table 2: the best and the second best of the federated methods."""
    first = {("SVHN", 0): "fedema", ("CIFAR-10", 0): "fedsc", ("CIFAR-100", 0): "fedsc", ("SVHN", 1): "fedsc",
             ("CIFAR-10", 1): "fedca", ("CIFAR-100", 1): "fedsc"}  # fmt: skip
    for (data, partial), name in first.items():
        places = paper.ranks(paper.column(data, bool(partial)))
        assert places[name] == 1 and sorted(places.values()) == list(range(1, 8))
    assert paper.ranks(paper.column("SVHN", False))["fedsc"] == 2
    assert paper.ranks(paper.column("CIFAR-10", True))["fedsc"] == 2
    central = paper.TABLE_2[paper.CENTRAL]
    assert all(central[data][0][0] > max(paper.column(data, False).values()) for data in paper.CLIENTS)
    assert all(paper.SIZE[d] * paper.CLIENTS[d][0] == 50_000 for d in paper.CLIENTS)

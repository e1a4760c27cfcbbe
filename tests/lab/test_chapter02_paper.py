"""The paper's tables: they carry the paper's own marks, and what is read off them is right."""

import pytest

from fedbook.lab import chapter02_paper as paper
from fedbook.lab.chapter02_paper import ranks


def test_sums_of_the_printed_numbers():
    """Typing errors: sums of means and of deviations, added up from the paper's page."""
    first = {"CIFAR-10": (568.69, 6.9), "CIFAR-100": (418.19, 3.11), "Tiny-ImageNet": (344.73, 14.9)}
    second = {"CIFAR-10": (418.64, 5.4), "CIFAR-100": (126.89, 3.95)}
    third = {5: (188.4, 0.64), 20: (158.29, 3.5), 100: (126.4, 6.9)}
    for table, sums in ((paper.TABLE_1, first), (paper.TABLE_2, second), (paper.TABLE_3, third)):
        for column, expected in sums.items():
            for place in (0, 1):
                found = sum(row[column][place] for row in table.values())
                assert found == pytest.approx(expected[place], abs=1e-6)
    assert sum(map(sum, paper.TABLE_4.values())) == pytest.approx(328.8)


def test_the_tables_carry_the_papers_marks():
    """Hetero-SSFL leads every column among the federated methods; centralised BYOL is above it."""
    for data, (own, _) in paper.TABLE_1[paper.OWN].items():
        assert paper.TABLE_1["centralized-byol"][data][0] > own
    assert set(paper.TABLE_1) == set(paper.NAMES) and set(paper.TABLE_2) == set(paper.FEDERATED)
    for table in (paper.TABLE_1, paper.TABLE_2, paper.TABLE_3):
        for column in table[paper.OWN]:
            values = {name: row[column][0] for name, row in table.items() if name in paper.FEDERATED}
            assert ranks(values)[paper.OWN] == 1
    assert all(table[5] == paper.TABLE_1[name]["CIFAR-100"] for name, table in paper.TABLE_3.items())


def test_gaps():
    found = {(g.table, g.data, g.clients): g for g in paper.gaps()}
    expected = {(1, "CIFAR-10", 5): 9.09, (1, "CIFAR-100", 5): 5.9, (1, "Tiny-ImageNet", 5): 3.27,
                (2, "CIFAR-10", 5): 2.6, (2, "CIFAR-100", 5): 9.1, (3, "CIFAR-100", 20): 5.0,
                (3, "CIFAR-100", 100): 1.3}  # fmt: skip
    assert {key: g.points for key, g in found.items()} == expected
    assert [key for key, g in found.items() if g.within] == [(3, "CIFAR-100", 100)]
    assert [key[0] for key, g in found.items() if g.overlap] == [1, 3]
    assert found[1, "Tiny-ImageNet", 5].best == "fedu" and found[1, "Tiny-ImageNet", 5].deviation == 2.3
    assert all(g.best == "fedema" for key, g in found.items() if key[1] != "Tiny-ImageNet")
    lines = paper.gap_table().splitlines()
    assert len(lines) == 8 and lines[3].endswith("2.30  overlap") and lines[7].endswith("2.70  within")
    assert sum(line.endswith(("within", "overlap")) for line in lines) == 2


def test_bytes_against_real_tensors():
    import torch

    images, width = 30, 7
    a = torch.zeros(images, width)
    rows, columns = torch.triu_indices(images, images)
    assert paper.representation_bytes(images, width) == a.numel() * a.element_size()
    assert paper.gram_bytes(images) == (a @ a.mT).numel() * 4
    assert paper.gram_bytes(images, triangle=True) == (a @ a.mT)[rows, columns].numel() * 4
    assert paper.gram_bytes(images, entry=2) == 2 * images**2
    assert paper.alignment_set_bytes(3, [3, 4, 5]) == torch.zeros(3, 3, 4, 5, dtype=torch.uint8).nbytes
    assert paper.weight_bytes(10, 2) == 20

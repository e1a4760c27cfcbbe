"""The paper's tables: they carry the paper's own marks, and what is read off them is right."""

import re

import pytest

from fedbook.lab import chapter02_paper as paper
from fedbook.lab.chapter01_paper import ranks


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


def test_bytes_at_the_papers_scale():
    count = paper.ALIGNMENT_IMAGES
    assert paper.gram_bytes(count) == 100_000_000 and paper.gram_bytes(count, triangle=True) == 50_010_000
    assert paper.representation_bytes(count, 512) == 10_240_000
    assert paper.alignment_set_bytes(count, (3, 32, 32)) == 15_360_000
    assert paper.weight_bytes(paper.WEIGHTS["resnet34"]) == 85_107_968
    lines = paper.byte_table().splitlines()
    assert (
        lines[1].split()[-2:] == ["10.2", "MB"]
        and lines[3].split()[-2] == "100.0"
        and lines[-1].split()[-2] == "3072.0"
    )
    assert len(lines) == 9 and len(paper.byte_table(10, [5], (1, 8, 8)).splitlines()) == 7


def test_settings():
    assert all(paper.CLASSES[d] % 5 == 0 and set(paper.SIZE) == set(paper.CLASSES) == set(paper.MU) for d in paper.MU)
    assert (paper.ROUNDS, paper.LOCAL_EPOCHS, paper.BATCH_SIZE, paper.ALIGNMENT_IMAGES) == (200, 5, 200, 5000)
    assert (paper.LEARNING_RATE, paper.MOMENTUM, paper.PROBE_LEARNING_RATE) == (0.032, 0.9, 0.003)


def test_the_table_beside_ours():
    ours = {"hetero-ssfl": (0.8, 0.01), "local-ssl": (0.7, 0.02), "fedbyol": (0.85, 0.0)}
    lines = paper.beside_table(ours, {"centralized-byol": (0.9, 0.01)}).splitlines()
    assert len(lines) == 1 + len(paper.NAMES) + 1 and all(len(line) <= 110 for line in lines)
    rows = {line[:18].strip(): " ".join(line[18:].split()) for line in lines}
    assert rows["Hetero-SSFL"] == "90.29 ± 0.30 (1) 88.50 ± 1.30 (1) 80.00 ± 1.00 (2)"
    assert rows["FedBYOL"] == "78.10 ± 1.10 (4) 82.24 ± 0.80 (3) 85.00 ± 0.00 (1)"
    assert rows["FedAvg, supervised"] == "68.50 ± 1.70" and rows["local-ssl"] == "70.00 ± 2.00"
    assert rows["Centralised BYOL"] == "94.30 ± 0.20 90.00 ± 1.00"
    tiny = paper.beside_table({}, {}, "Tiny-ImageNet").splitlines()
    assert tiny[5].split()[1:] == ["61.50", "±", "1.80", "(1)"]


def test_tables_3_and_4_beside_ours():
    lines = paper.scale_table(
        {"hetero-ssfl": {20: (0.5, 0.01), 5: (0.6, 0.02)}, "local-ssl": {5: (0.4, 0.0)}}
    ).splitlines()
    assert lines[0].split()[-4:] == ["ours,", "5", "ours,", "20"] and len(lines) == 5
    assert " ".join(lines[3].split()).endswith("43.30 ± 1.90 (1) 60.00 ± 2.00 (1) 50.00 ± 1.00 (1)")
    assert " ".join(lines[4].split()) == "local-ssl 40.00 ± 0.00"
    assert len(paper.scale_table({}).splitlines()) == 4
    lines = paper.architecture_table({"cnn": 0.5, "mlp": 0.6}, {"mlp": 0.55, "cnn": 0.7}, {"mlp": 0.4}).splitlines()
    assert [line.split()[-2] for line in lines[1:]] == ["+13.5", "+15.9", "+20.0", "-5.0"]
    assert [line.split()[-1] for line in lines[1:]] == ["-", "-", "-", "40.0"]


def test_all_columns_of_tables_1_and_2():
    lines = paper.published_table().splitlines()
    heads = ["CIFAR-10", "CIFAR-100", "Tiny-ImageNet", "CIFAR-10 iid", "CIFAR-100 iid"]
    assert re.split(r"  +", lines[0].strip())[1:] == heads and all(len(line) <= 110 for line in lines)
    own = next(line for line in lines if line.startswith("Hetero-SSFL"))
    numbers = [f"{v[0]:.2f} ± {v[1]:.2f} (1)" for table in (paper.TABLE_1, paper.TABLE_2)
               for v in table["hetero-ssfl"].values()]  # fmt: skip
    assert re.split(r"  +", own)[1:] == numbers

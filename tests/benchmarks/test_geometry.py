"""The benchmark runs and compares equals. No timing is asserted."""

import warnings

import torch

from benchmarks import geometry as benchmark
from fedbook.geometry import SPD, Hyperboloid, Sphere

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit.script
    import geoopt  # noqa: F401


def test_rows_count_only_rivals_that_compute_the_same():
    sizes = ((Sphere(), 3), (SPD(), 2), (SPD(), 3), (Hyperboloid(), 3))
    with torch.no_grad():
        rows = list(benchmark.rows(sizes, (2, 3), 1))
    assert len(rows) == 4 * 2 * 4
    counted = {(row["manifold"], row["operation"]): row["counted"] for row in rows if row["batch"] == 2}
    both = ["geoopt", "pymanopt"]
    for manifold in ("Sphere(3)", "SPD(2)", "SPD(3)"):
        assert counted[manifold, "exp"] == counted[manifold, "log"] == both
        assert counted[manifold, "dist"] == ["geoopt"]  # pymanopt gives one distance for the product
    assert counted["Sphere(3)", "transport"] == []  # both project
    assert counted["SPD(2)", "transport"] == counted["SPD(3)", "transport"] == ["geoopt"]  # pymanopt: the identity
    assert all(counted["Hyperboloid(3)", operation] == ["geoopt"] for operation in benchmark.OPERATIONS)
    for row in rows:
        assert all(value > 0 for value in row["times"].values())


def test_ratio_is_to_the_fastest_that_counts():
    row = {"times": {"fedbook": 3.0, "geoopt": 4.0, "pymanopt": 2.0}, "counted": ["geoopt", "pymanopt"]}
    assert benchmark.ratio(row) == 1.5
    assert benchmark.ratio({**row, "counted": ["geoopt"]}) == 0.75 and benchmark.ratio({**row, "counted": []}) is None


def test_the_command_runs(monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "SIZES", ((Hyperboloid(), 3),))
    monkeypatch.setattr(benchmark, "BATCHES", (1, 100))
    threads = torch.get_num_threads()
    assert benchmark.main(["--quick"]) == 0
    torch.set_num_threads(threads)
    assert capsys.readouterr().out.count("Hyperboloid(3)") == 9

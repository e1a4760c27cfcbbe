"""The benchmark of large populations runs and writes what it measured. No timing is asserted."""

import json

from benchmarks import population as benchmark


def test_it_measures_in_a_process_of_its_own_and_writes(tmp_path, capsys):
    assert benchmark.main(["--clients", "300", "--rounds", "1", "--write", str(tmp_path / "table.json")]) == 0
    (row,) = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert row["clients"] == 300 and row["table_mb"] == 300 * benchmark.OWN * 8 / 1e6
    assert row["peak_mb"] >= row["samples_mb"] >= row["imported_mb"] > 0 and row["round_seconds"] > 0
    assert len(capsys.readouterr().out.splitlines()) == 2

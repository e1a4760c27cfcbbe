"""The page of speed shows the stored tables, and nothing where there are none."""

from bs4 import BeautifulSoup

from fedbook.book import speed
from fedbook.lab import results


def test_every_stored_number_has_its_place(tmp_path):
    assert speed.write_speed(tmp_path)
    soup = BeautifulSoup((tmp_path / speed.NAME).read_text(), "html.parser")
    rows = results.stored("19_geometry")["rows"]
    table = soup.find(id="geometry").find_next("table")
    assert len(table.tbody.find_all("tr")) == len(rows)
    shown = [row.find_all("td")[2].get_text() for row in table.tbody.find_all("tr")]
    assert shown == [f"{row['times']['fedbook']:.0f}" for row in rows]
    on_gpu = [row for name in ("gpu_mlp", "gpu_cnn", "gpu_tower") for row in results.stored(name)["rows"]]
    shown = [[cell.get_text() for cell in row.find_all("td")] for row in soup.find(id="gpu").find_next("tbody")]
    assert [(row[0], row[1], row[4]) for row in shown] == [
        (row["kind"], str(row["clients"]), f"{row['ms']['modules']:.1f}") for row in on_gpu
    ]
    assert all(image["alt"] for image in soup.find_all("img"))


def test_without_tables_there_is_no_page(tmp_path, monkeypatch):
    (tmp_path / speed.NAME).write_text("of an earlier build")

    def nothing(name):
        raise FileNotFoundError(name)

    monkeypatch.setattr(results, "stored", nothing)
    assert not speed.write_speed(tmp_path) and not (tmp_path / speed.NAME).exists()

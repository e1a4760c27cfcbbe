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
    assert all(image["alt"] for image in soup.find_all("img"))


def test_without_tables_there_is_no_page(tmp_path, monkeypatch):
    (tmp_path / speed.NAME).write_text("of an earlier build")

    def nothing(name):
        raise FileNotFoundError(name)

    monkeypatch.setattr(results, "stored", nothing)
    assert not speed.write_speed(tmp_path) and not (tmp_path / speed.NAME).exists()

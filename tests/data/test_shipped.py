"""What lies in data/: nothing altered, nothing unlisted, small enough, and able to be made again."""

from pathlib import Path

import pytest

import fedbook.data
from fedbook.data import fetch
from fedbook.data.images import make_fashion_mnist
from fedbook.data.sources import SOURCES

FOLDER = Path(fedbook.data.__file__).parents[2] / "data"


def test_every_file_has_its_listed_checksum(make):
    listed = (FOLDER / make.SUMS).read_text(encoding="utf-8")
    assert listed == make.checksums(FOLDER), "after an intended change: python data/make.py sums data"
    names = {line.split("  ")[1] for line in listed.splitlines()}
    assert {"README.md", "fashion-mnist/LICENSE.txt", "mnist/train-images-idx3-ubyte.gz"} <= names
    assert len(names) == len(listed.splitlines())


def test_the_size_stays_below_25_megabytes():
    files = [path for path in FOLDER.rglob("*") if path.is_file() and "results" not in path.parts]
    assert sum(path.stat().st_size for path in files) <= 25_000_000


SHIPPED = {"mnist": 4, "fashion_mnist_subset": 4, "wordnet_mammals": 1, "wordnet_embedding": 1}


@pytest.mark.parametrize("name, count", SHIPPED.items(), ids=SHIPPED)
def test_what_ships_is_right(name, count):
    report = fetch.verify(name, FOLDER)
    assert report.ok and len(report.files) == count and report.folder == str(FOLDER)
    assert all(file.state == "ok" for file in report.files)


def test_the_readme_describes_every_file_and_licence(make):
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    for name in make.checksums(FOLDER).splitlines():
        path = name.split("  ")[1]
        if path != "README.md":
            assert f"`{path}`" in text and f"{(FOLDER / path).stat().st_size:,}" in text
    for source in SOURCES.values():
        if source.access == "public":
            for file in (source.archive,) if source.archive else source.files:
                assert source.name in text and (source.name != "mnist" or file.published.removeprefix("md5:") in text)


def test_the_subset_is_made_again_from_the_full_files(tmp_path):
    """Only where the full Fashion-MNIST was fetched."""
    full = fetch.verify("fashion_mnist")
    if not full.ok:
        pytest.skip("the full Fashion-MNIST is not here (fedbook data fashion_mnist)")
    for path in make_fashion_mnist(Path(full.folder) / "fashion-mnist", tmp_path):
        assert path.read_bytes() == (FOLDER / "fashion-mnist" / "subset" / path.name).read_bytes()


@pytest.mark.parametrize("name", ["wordnet_mammals", "wordnet_embedding"])
def test_what_only_ships_says_where_it_is_from(name, tmp_path):
    report = fetch.fetch(name, tmp_path)
    assert not report.ok and not any(tmp_path.iterdir())
    assert "It ships with the book" in report.as_text() and f"data/make.py {name}" in report.as_text()


def test_the_maker_s_command_line(make, tmp_path, capsys):
    (tmp_path / "results").mkdir()
    for name in ("b.txt", "a.txt", "results/r.json"):
        (tmp_path / name).write_bytes(b"")
    assert make.main(["sums", str(tmp_path)]) == 0
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert (tmp_path / make.SUMS).read_text() == f"{empty}  a.txt\n{empty}  b.txt\n"
    assert make.main([]) == 2 and "data/make.py" in capsys.readouterr().err

"""Reports: what counts as right, what a person has to do, and the registry itself."""

import gzip
import hashlib

from fedbook import data
from fedbook.data.fetch import fetch, verify
from fedbook.data.sources import SOURCES, DataFile, Source

FIRST, SECOND = b"first file" * 20_000, b"second file"


def md5(content):
    return "md5:" + hashlib.md5(content).hexdigest()


def use(monkeypatch, source):
    monkeypatch.setitem(SOURCES, source.name, source)
    return source


def test_the_same_content_in_another_packing_is_right(monkeypatch, tmp_path):
    content = b"content" * 100
    file = DataFile("x.gz", md5(b"the published packing"), 1, (), hashlib.sha256(content).hexdigest(), len(content))
    use(monkeypatch, Source("toy", (file,), "", ""))
    for level in (0, 9):
        (tmp_path / "x.gz").write_bytes(gzip.compress(content, level))
        assert verify("toy", tmp_path).ok
    for other in (content + b"x", content[:-1], content[:-1] + b"x"):
        (tmp_path / "x.gz").write_bytes(gzip.compress(other))
        assert verify("toy", tmp_path).files[0].state == "wrong checksum"
    for damaged in (gzip.compress(content)[:-1], b"text", b""):
        (tmp_path / "x.gz").write_bytes(damaged)
        assert verify("toy", tmp_path).files[0].state == "wrong checksum"


def test_a_dataset_that_needs_a_person(monkeypatch, tmp_path, server):
    steps = "Sign the agreement at https://example.org/records and download first.bin."
    file = DataFile("records/first.bin", md5(FIRST), len(FIRST))
    use(monkeypatch, Source("records", (file,), "by agreement", "records", access="manual", instructions=steps))
    report = fetch("records", tmp_path / "root")
    assert not report.ok and report.files[0].state == "missing" and server.asked == []
    text = report.as_text()
    assert steps in text and "records/first.bin" in text and "fedbook data records" in text
    assert str(tmp_path / "root") in text and not (tmp_path / "root").exists()
    (tmp_path / "root/records").mkdir(parents=True)
    (tmp_path / "root/records/first.bin").write_bytes(FIRST)
    assert fetch("records", tmp_path / "root").ok
    (tmp_path / "root/records/first.bin").write_bytes(SECOND)
    assert fetch("records", tmp_path / "root").files[0].state == "wrong checksum"  # kept: it cannot be fetched again
    assert (tmp_path / "root/records/first.bin").read_bytes() == SECOND


def test_without_a_published_checksum_presence_is_all(monkeypatch, tmp_path):
    use(monkeypatch, Source("toy", (DataFile("a"),), "", "", access="manual"))
    (tmp_path / "a").write_bytes(b"x")
    assert verify("toy", tmp_path).files[0].state == "present" and verify("toy", tmp_path).ok


def test_a_pattern_stands_for_all_files_that_fit(monkeypatch, tmp_path):
    use(monkeypatch, Source("toy", (DataFile("toy/train/*.json"), DataFile("toy/one")), "", "", access="manual"))
    (tmp_path / "toy/train").mkdir(parents=True)
    (tmp_path / "toy/one").write_bytes(b"x")
    (tmp_path / "toy/train/notes.txt").write_bytes(b"mine")
    (tmp_path / "toy/train/folder.json").mkdir()
    report = verify("toy", tmp_path)
    assert not report.ok and [(file.state, file.count) for file in report.files] == [("missing", 0), ("present", 1)]
    for name in ("a.json", "b.json"):
        (tmp_path / "toy/train" / name).write_bytes(b"12345")
    report = verify("toy", tmp_path)
    assert report.ok and report.bytes == 11 and report.files[0].count == 2
    text = report.as_text()
    assert "complete, 3 files, 11 bytes" in text and "toy/train/*.json  (2 files, 10 bytes; no checksum" in text


def test_digits_need_nothing():
    report = fetch("digits")
    assert report.ok and "nothing to fetch" in report.as_text() and report.bytes == 0


def test_the_registry_is_whole():
    for source in SOURCES.values():
        assert source.access in ("public", "derived", "bundled", "manual") and source.licence and source.note
        for file in (source.archive,) if source.archive else source.files:
            assert source.access != "public" or (file.published and file.size and file.urls)
            assert all(url.startswith(("https://", "http://")) for url in file.urls)
        lengths = {"md5": 32, "sha256": 64}
        for file in (*source.files, *((source.archive,) if source.archive else ())):
            kind, _, digest = (file.published or "").partition(":")
            assert not kind or (len(digest) == lengths[kind] and (not file.content or len(file.content) == 64))
            # what has no checksum of its own comes from an archive that has one, or from a person
            assert kind or source.archive or source.access == "manual"
    assert set(data.names()) <= set(SOURCES)

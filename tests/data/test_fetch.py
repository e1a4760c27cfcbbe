"""Fetching from a server on the loopback interface: verified, atomic, repeatable, and clean after every failure."""

import dataclasses
import gzip
import hashlib
import io
import json
import os
import socket
import tarfile
import zipfile

import pytest
import torch

from fedbook import data
from fedbook.data import BrokenFile, FetchFailed
from fedbook.data import fetch as module
from fedbook.data import root as roots
from fedbook.data.fetch import fetch, main_report, unpack, verify
from fedbook.data.sources import SOURCES, DataFile, Source

FIRST, SECOND = b"first file" * 20_000, b"second file"


def md5(content):
    return "md5:" + hashlib.md5(content).hexdigest()


@pytest.fixture
def source(server, monkeypatch):
    """A dataset of two files, served at ``first`` and ``second``; ``toy`` is its name."""
    server.content |= {"first": FIRST, "second": SECOND}
    files = tuple(
        DataFile(f"toy/{name}.bin", md5(content), len(content), (server.url(f"gone/{name}"), server.url(name)))
        for name, content in (("first", FIRST), ("second", SECOND))
    )
    return use(monkeypatch, Source("toy", files, "none", "a toy"))


def use(monkeypatch, source):
    monkeypatch.setitem(SOURCES, source.name, source)
    return source


def test_fetches_verifies_and_does_nothing_twice(source, server, tmp_path, listing, capfd):
    root = tmp_path / "new" / "root"
    before = verify("toy", root)
    assert not before.ok and [file.state for file in before.files] == ["missing", "missing"]
    assert not root.exists()
    report = fetch("toy", root)
    assert report.ok and report.action == "fetched" and report.bytes == len(FIRST) + len(SECOND)
    assert (root / "toy/first.bin").read_bytes() == FIRST
    assert sorted(listing(root)) == ["toy", "toy/first.bin", "toy/second.bin"]
    assert server.asked == ["gone/first", "first", "gone/second", "second"]  # the second address, after the first
    again = fetch("toy", root)
    assert again.ok and again.action == "verified" and len(server.asked) == 4
    assert capfd.readouterr() == ("", "")  # silent


def test_a_broken_file_is_reported_and_replaced(source, server, tmp_path, listing):
    fetch("toy", tmp_path)
    good = listing(tmp_path)
    (tmp_path / "toy/own-notes.txt").write_text("mine")
    (tmp_path / "toy/first.bin").write_bytes(FIRST[:-1])
    (tmp_path / "toy/second.bin").unlink()
    server.asked.clear()
    report = verify("toy", tmp_path)
    assert [file.state for file in report.files] == ["wrong checksum", "missing"]
    assert md5(FIRST[:-1]) in report.as_text() and md5(FIRST) in report.as_text() and server.asked == []
    assert fetch("toy", tmp_path).ok
    after = listing(tmp_path)
    assert after.pop("toy/own-notes.txt") and after == good


def cut(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(SECOND)))
    handler.end_headers()
    handler.wfile.write(SECOND[:5])


def endless(handler):
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(10_000):
            handler.wfile.write(bytes(2**16))
    except OSError:
        pass  # hung up on


FAILURES = {
    "cut": (cut, "second.bin from http://127.0.0.1"),
    "endless": (endless, "the server sends more than the 11 bytes"),
    "altered": (b"SECOND file", "what came has md5:"),
    "empty": (b"", "the connection ended after 0 of 11 bytes"),
    "not there": (None, "404"),
}


@pytest.mark.parametrize("answer, message", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("there", [False, True], ids=["new", "beside a broken one"])
def test_a_failure_changes_nothing(source, server, tmp_path, listing, answer, message, there):
    root = tmp_path / "root"
    if there:
        (root / "toy").mkdir(parents=True)
        (root / "toy/second.bin").write_bytes(b"broken")
        (root / "other.txt").write_text("other")
    server.content["second"] = answer
    before = listing(tmp_path)
    with pytest.raises(FetchFailed, match="'toy' could not be fetched; nothing was changed") as caught:
        fetch("toy", root)
    assert message in str(caught.value) and server.url("second") in str(caught.value)
    assert "toy/second.bin" in str(caught.value)
    assert listing(tmp_path) == before


def test_without_a_network_one_clear_line_an_address(monkeypatch, tmp_path):
    monkeypatch.setenv("NO_PROXY", "*")
    with socket.socket() as taken:  # nobody listens at this port
        taken.bind(("127.0.0.1", 0))
        addresses = f"http://127.0.0.1:{taken.getsockname()[1]}/x", "http://no-such-host.invalid/x"
        source = Source("toy", (DataFile("toy/x", md5(FIRST), len(FIRST), addresses),), "free", "a toy")
        use(monkeypatch, source)
        with pytest.raises(FetchFailed) as caught:
            fetch("toy", tmp_path)
    lines = str(caught.value).splitlines()[1:]
    assert [line.rpartition(": ")[2] for line in lines] == ["no connection (is this machine online?)"] * 2
    assert all(address in line for address, line in zip(addresses, lines, strict=True))
    assert not any(word in str(caught.value) for word in ("urllib3", "HTTPConnection", "Errno", "object at"))


def test_an_interrupt_changes_nothing(source, server, monkeypatch, tmp_path):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_install", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch("toy", tmp_path / "root")
    assert list(tmp_path.iterdir()) == []


def test_two_who_fetch_at_once_both_succeed(source, monkeypatch, tmp_path, listing):
    replace = os.replace

    def late(old, new):
        if old.is_dir():  # the other one is just done
            new.mkdir()
            (new / "first.bin").write_bytes(FIRST)
        replace(old, new)

    monkeypatch.setattr(os, "replace", late)
    assert fetch("toy", tmp_path).ok
    assert sorted(listing(tmp_path)) == ["toy", "toy/first.bin", "toy/second.bin"]


def packed(*entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.size = len(content or b"")
            if content is None:
                info.type, info.linkname, content = tarfile.SYMTYPE, "/etc/passwd", b""
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def archived(server, content, limit=10**6):
    server.content["toy.tar.gz"] = content
    archive = DataFile("toy.tar.gz", md5(content), len(content), (server.url("toy.tar.gz"),))
    files = (DataFile("toy/first.bin", md5(FIRST)), DataFile("toy/second.bin", md5(SECOND)))
    return Source("toy", files, "", "", archive=archive, part_limit=limit)


def test_an_archive_is_unpacked_verified_and_thrown_away(server, monkeypatch, tmp_path, listing):
    honest = packed(("toy/first.bin", FIRST), ("toy/readme.html", b"<p>"), ("toy/second.bin", SECOND))
    use(monkeypatch, archived(server, honest))
    assert fetch("toy", tmp_path).ok
    assert sorted(listing(tmp_path)) == ["toy", "toy/first.bin", "toy/second.bin"]
    good = listing(tmp_path)
    (tmp_path / "toy/second.bin").write_bytes(b"broken")
    kept = (tmp_path / "toy/first.bin").stat().st_ino
    assert fetch("toy", tmp_path).ok and listing(tmp_path) == good
    assert (tmp_path / "toy/first.bin").stat().st_ino == kept  # what was right was left alone
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "toy").stat().st_mode == (tmp_path / "plain").stat().st_mode


ENTRIES = (("toy/first.bin", FIRST), ("toy/second.bin", SECOND))
BAD_ARCHIVES = {
    "climbs": (packed(ENTRIES[0], ("../second.bin", SECOND)), "lacks toy/second.bin"),
    "link": (packed(ENTRIES[0], ("toy/second.bin", None)), "'toy/second.bin' is no plain file"),
    "too large": (
        packed(("toy/first.bin", bytes(10**6 + 1)), ENTRIES[1]),
        "is no plain file of at most 1,000,000 bytes",
    ),
    "wrong file": (packed(ENTRIES[0], ("toy/second.bin", b"other")), "toy/second.bin: what was fetched is not right"),
    "cut": (packed(*ENTRIES)[:-30], "is not what it should be"),
    "no tar": (gzip.compress(b"x" * 999), "is not what it should be"),
}


@pytest.mark.parametrize("content, message", BAD_ARCHIVES.values(), ids=BAD_ARCHIVES)
def test_a_bad_archive_changes_nothing(server, monkeypatch, tmp_path, listing, content, message):
    use(monkeypatch, archived(server, content))
    (tmp_path / "root/toy").mkdir(parents=True)
    (tmp_path / "root/toy/second.bin").write_bytes(b"as it was")
    before = listing(tmp_path)
    with pytest.raises(FetchFailed, match=message):
        fetch("toy", tmp_path / "root")
    assert listing(tmp_path) == before


def zipped(path, *entries, packing=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", packing) as out:
        for name, content in entries:
            out.writestr(name, content)
    return path


def test_a_zip_is_unpacked_to_where_its_files_belong(tmp_path, listing):
    path = zipped(tmp_path / "x.zip", ("set/a", b"first" * 9_999), ("../climbed", b"x"), ("set/b", b"second"))
    wanted = {"set/a": "here/set/a", "set/b": "here/set/b"}
    unpack(path, tmp_path / "out", wanted, 10**6)
    assert (tmp_path / "out/here/set/a").read_bytes() == b"first" * 9_999
    assert sorted(listing(tmp_path / "out")) == ["here", "here/set", "here/set/a", "here/set/b"]
    assert not (tmp_path / "climbed").exists()
    whole = zipped(tmp_path / "y.zip", ("set/a", b"first"), packing=zipfile.ZIP_STORED).read_bytes()
    for name, content, message in (
        ("crc", whole.replace(b"first", b"FIRST"), "CRC"),
        ("cut", whole[:-9], "is not what it should be"),
        ("before its beginning", whole[:-6] + b"\xff\xff\xff\x7f" + whole[-2:], "is not what it should be"),
    ):
        (tmp_path / "bad.zip").write_bytes(content)
        with pytest.raises(BrokenFile, match=message):
            unpack(tmp_path / "bad.zip", tmp_path / name, {"set/a": "a"}, 10**6)


# reports


def test_the_same_content_in_another_packing_is_right(monkeypatch, tmp_path):
    content = b"content" * 100
    file = DataFile("x.gz", md5(b"the published packing"), 1, (), hashlib.sha256(content).hexdigest(), len(content))
    use(monkeypatch, Source("toy", (file,), "", ""))
    for level in (0, 9):
        (tmp_path / "x.gz").write_bytes(gzip.compress(content, level))
        assert verify("toy", tmp_path).ok
    other = [gzip.compress(part) for part in (content + b"x", content[:-1], content[:-1] + b"x")]
    for wrong in (*other, gzip.compress(content)[:-1], b"text", b""):
        (tmp_path / "x.gz").write_bytes(wrong)
        assert verify("toy", tmp_path).files[0].state == "wrong checksum"


def test_a_dataset_that_needs_a_person(monkeypatch, tmp_path, server):
    steps = "Sign the agreement at https://example.org/records and download first.bin."
    file = DataFile("records/first.bin", md5(FIRST), len(FIRST))
    use(monkeypatch, Source("records", (file,), "by agreement", "records", access="manual", instructions=steps))
    report = fetch("records", tmp_path / "root")
    assert not report.ok and report.files[0].state == "missing" and server.asked == []
    text = report.as_text()
    assert steps in text and "records/first.bin" in text and "fedbook data records" in text
    (tmp_path / "root/records").mkdir(parents=True)
    for content, state in ((FIRST, "ok"), (SECOND, "wrong checksum")):
        (tmp_path / "root/records/first.bin").write_bytes(content)
        assert fetch("records", tmp_path / "root").files[0].state == state
    assert (tmp_path / "root/records/first.bin").read_bytes() == SECOND  # kept: it cannot be fetched again


def test_a_pattern_stands_for_all_files_that_fit(monkeypatch, tmp_path):
    use(monkeypatch, Source("toy", (DataFile("toy/train/*.json"), DataFile("toy/one")), "", "", access="manual"))
    (tmp_path / "toy/train/folder.json").mkdir(parents=True)
    (tmp_path / "toy/one").write_bytes(b"x")
    (tmp_path / "toy/train/notes.txt").write_bytes(b"mine")
    report = verify("toy", tmp_path)
    assert not report.ok and [(file.state, file.count) for file in report.files] == [("missing", 0), ("present", 1)]
    for name in ("a.json", "b.json"):
        (tmp_path / "toy/train" / name).write_bytes(b"12345")
    report = verify("toy", tmp_path)
    assert report.ok and report.bytes == 11 and report.files[0].count == 2


def test_the_table_of_sources_is_whole():
    lengths = {"md5": 32, "sha256": 64}
    for source in SOURCES.values():
        assert source.access in ("public", "derived", "bundled", "manual") and source.licence and source.note
        for file in (source.archive,) if source.archive else source.files:
            assert source.access != "public" or (file.published and file.size and file.urls)
            assert all(url.startswith(("https://", "http://")) for url in file.urls)
        for file in (*source.files, *((source.archive,) if source.archive else ())):
            kind, _, digest = (file.published or "").partition(":")
            assert not kind or (len(digest) == lengths[kind] and (not file.content or len(file.content) == 64))
            # what has no checksum of its own comes from an archive that has one, or from a person
            assert kind or source.archive or source.access == "manual"


def test_the_derived_subset_is_written(monkeypatch, tmp_path):
    """The full files are found right (their checksum is not asked for here), the subset is made from them."""
    calls = []

    def make(source, out):
        calls.append(source)
        out.mkdir(parents=True)
        for path in SOURCES["fashion_mnist_subset"].paths:
            name = path.rpartition("/")[2]
            (out / name).write_bytes((roots.of_book() / path).read_bytes())

    use(monkeypatch, dataclasses.replace(SOURCES["fashion_mnist"], files=(DataFile("fashion-mnist/a"),)))
    monkeypatch.setattr(module, "make_fashion_mnist", make)
    (tmp_path / "fashion-mnist").mkdir()
    (tmp_path / "fashion-mnist/a").write_bytes(b"x")
    report = fetch("fashion_mnist_subset", tmp_path)
    assert report.ok and calls == [tmp_path / "fashion-mnist"]
    assert len(data.fashion_mnist(tmp_path, torch.uint8).test_y) == 5_000


def test_a_broken_file_of_the_checkout_is_not_overwritten(monkeypatch, tmp_path, listing):
    monkeypatch.delenv("FEDBOOK_DATA", raising=False)
    monkeypatch.setattr(roots, "of_book", lambda: tmp_path / "data")
    monkeypatch.setattr(roots, "of_user", lambda: tmp_path / "user")
    (tmp_path / "data/mnist").mkdir(parents=True)
    for path in SOURCES["mnist"].paths:
        (tmp_path / "data" / path).write_bytes(b"broken")
    before = listing(tmp_path)
    with pytest.raises(FetchFailed, match="restore it"):
        fetch("mnist")
    assert listing(tmp_path) == before


def test_the_report_is_plain_json(source, tmp_path):
    text, values, ok = main_report("toy", tmp_path, False)
    assert not ok and "fedbook data toy" in text and json.loads(json.dumps(values))["files"][0]["state"] == "missing"
    text, values, ok = main_report("toy", tmp_path)
    assert ok and values["ok"] and values["bytes"] == len(FIRST) + len(SECOND)
    assert text.startswith(f"toy: complete, 2 files, {values['bytes']:,} bytes in {tmp_path}")


def test_bad_arguments_are_named(tmp_path):
    for call in (fetch, verify):
        with pytest.raises(ValueError, match="name: got 'imagenet'; allowed is one of breast_cancer, cifar10, "):
            call("imagenet")
        with pytest.raises(TypeError, match="root: got 3"):
            call("mnist", 3)
    with pytest.raises(TypeError, match="progress: got 'yes'"):
        fetch("mnist", tmp_path, progress="yes")
    assert list(tmp_path.iterdir()) == []


def test_when_a_bar_is_shown(source, monkeypatch, tmp_path, capfd):
    fetch("toy", tmp_path / "headless", progress=True)
    assert capfd.readouterr() == ("", "")
    monkeypatch.delenv("FEDBOOK_HEADLESS")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    for asked in (True, None):
        fetch("toy", tmp_path / str(asked), progress=asked)
        out, err = capfd.readouterr()
        assert out == "" and "first.bin" in err and "100%" in err

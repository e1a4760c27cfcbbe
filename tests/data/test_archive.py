"""Unpacking: only what is expected, nowhere else, never more than allowed."""

import gzip
import io
import tarfile

import pytest

from fedbook.data.archive import unpack
from fedbook.data.errors import BrokenFile

WANTED, IGNORED = ("set/a", "set/b"), ("set/readme.html",)


def entry(name, content=b"", kind=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, len(content), link
    return info, content


def archive(path, *entries):
    with tarfile.open(path, "w:gz") as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return path


HONEST = (
    entry("set", kind=tarfile.DIRTYPE),
    entry("set/a", b"first"),
    entry("set/readme.html", b"<p>"),
    entry("set/b", b"second"),
)


def test_unpacks_the_wanted_files_only(tmp_path):
    unpack(archive(tmp_path / "x.tar.gz", *HONEST), tmp_path / "out", WANTED, IGNORED, 100)
    found = {p.relative_to(tmp_path / "out").as_posix(): p.read_bytes() for p in (tmp_path / "out").rglob("*.*")}
    assert found == {}
    assert (tmp_path / "out/set/a").read_bytes() == b"first" and (tmp_path / "out/set/b").read_bytes() == b"second"
    assert sorted(p.name for p in (tmp_path / "out/set").iterdir()) == ["a", "b"]


HOSTILE = {
    "climbs": (entry("../climbed", b"x"), "is not expected"),
    "climbs from within": (entry("set/../../climbed", b"x"), "is not expected"),
    "absolute": (entry("/tmp/fedbook-absolute", b"x"), "is not expected"),
    "absolute folder": (entry("/", kind=tarfile.DIRTYPE), "no plain file"),
    "symbolic link": (entry("set/a", kind=tarfile.SYMTYPE, link="/etc/passwd"), "'set/a' is no plain file"),
    "hard link": (entry("set/a", kind=tarfile.LNKTYPE, link="../climbed"), "'set/a' is no plain file"),
    "link as the folder": (entry("set", kind=tarfile.SYMTYPE, link="/tmp"), "'set' is no plain file"),
    "device": (entry("set/a", kind=tarfile.CHRTYPE), "'set/a' is no plain file"),
    "pipe": (entry("set/a", kind=tarfile.FIFOTYPE), "'set/a' is no plain file"),
    "unknown file": (entry("set/c", b"x"), "'set/c' is not expected"),
    "unknown folder": (entry("other", kind=tarfile.DIRTYPE), "'other' is no plain file"),
    "too large": (entry("set/a", bytes(101)), "has 101 bytes; at most 100"),
}


@pytest.mark.parametrize("bad, message", HOSTILE.values(), ids=HOSTILE)
def test_refuses_hostile_entries(tmp_path, bad, message):
    path = archive(tmp_path / "x.tar.gz", bad, *HONEST)
    with pytest.raises(BrokenFile, match=message) as caught:
        unpack(path, tmp_path / "out", WANTED, IGNORED, 100)
    assert str(path) in str(caught.value)
    assert not (tmp_path / "climbed").exists() and not (tmp_path.parent / "climbed").exists()
    assert not (tmp_path / "out").exists()


def test_refuses_doubles_and_gaps(tmp_path):
    path = archive(tmp_path / "x.tar.gz", *HONEST, entry("set/a", b"again"))
    with pytest.raises(BrokenFile, match="'set/a' is not expected .or comes twice."):
        unpack(path, tmp_path / "out", WANTED, IGNORED, 100)
    path = archive(tmp_path / "y.tar.gz", *HONEST[:2])
    with pytest.raises(BrokenFile, match="lacks set/b"):
        unpack(path, tmp_path / "out2", WANTED, IGNORED, 100)


def test_refuses_damage(tmp_path):
    whole = archive(tmp_path / "x.tar.gz", *HONEST).read_bytes()
    for name, content in (
        ("cut", whole[:-20]),
        ("text", b"<html>"),
        ("empty", b""),
        ("no tar", gzip.compress(b"x" * 999)),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(BrokenFile, match=f"{name}: "):
            unpack(path, tmp_path / f"out-{name}", WANTED, IGNORED, 100)


def test_refuses_huge_metadata(tmp_path):
    """A name of 5 MB travels in the archive's metadata, which the tar library reads into memory as it is."""
    path = archive(tmp_path / "x.tar.gz", entry("set/" + "a" * 5_000_000, b"x"), *HONEST)
    assert path.stat().st_size < 50_000
    with pytest.raises(BrokenFile, match="unpacks to far more"):
        unpack(path, tmp_path / "out", WANTED, IGNORED, 100)

"""Unpacking: only what is expected, nowhere else, never more than allowed."""

import gzip
import io
import stat
import tarfile
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def zipped(path, *entries, packing=zipfile.ZIP_DEFLATED):
    """An entry is a name or a ZipInfo, and its content."""
    with zipfile.ZipFile(path, "w", packing) as out:
        for info, content in entries:
            if isinstance(info, str):
                out.writestr(info, content)
            else:
                info.compress_type = packing
                out.writestr(info, content)
    return path


def special(name, kind):
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (kind | 0o777) << 16
    return info


ZIPPED = (("set/", b""), ("set/a", b"first" * 9_999), ("set/readme.html", b"<p>"), ("set/b", b"second"))


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_is_unpacked_the_same_way(tmp_path, packing):
    unpack(zipped(tmp_path / "x.zip", *ZIPPED, packing=packing), tmp_path / "out", WANTED, IGNORED, 10**6)
    assert (tmp_path / "out/set/a").read_bytes() == b"first" * 9_999
    assert (tmp_path / "out/set/b").read_bytes() == b"second"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "b", "out", "set", "x.zip"]


HOSTILE_ZIP = {
    "climbs": (("../climbed", b"x"), "is not expected"),
    "climbs from within": (("set/../../climbed", b"x"), "is not expected"),
    "absolute": (("/tmp/fedbook-absolute", b"x"), "is not expected"),
    "other system's climbing": (("..\\climbed", b"x"), "is not expected"),
    "symbolic link": ((special("set/a", stat.S_IFLNK), b"/etc/passwd"), "'set/a' is no plain file"),
    "device": ((special("set/a", stat.S_IFCHR), b""), "'set/a' is no plain file"),
    "unknown file": (("set/c", b"x"), "'set/c' is not expected"),
    "unknown folder": (("other/", b""), "'other/' is no plain file"),
    "too large": (("set/a", bytes(10**6 + 1)), "has 1,000,001 bytes; at most 1,000,000"),
}


@pytest.mark.parametrize("bad, message", HOSTILE_ZIP.values(), ids=HOSTILE_ZIP)
def test_refuses_hostile_entries_of_a_zip(tmp_path, bad, message):
    path = zipped(tmp_path / "x.zip", bad, *ZIPPED[2:])
    with pytest.raises(BrokenFile, match=message) as caught:
        unpack(path, tmp_path / "out", WANTED, IGNORED, 10**6)
    assert str(path) in str(caught.value)
    assert not (tmp_path / "out").exists() and not (tmp_path / "climbed").exists()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_refuses_doubles_gaps_and_other_packings_of_a_zip(tmp_path):
    for name, entries, message in (
        ("double", (*ZIPPED, ("set/a", b"again")), "'set/a' is not expected .or comes twice."),
        ("gap", ZIPPED[:2], "lacks set/b"),
    ):
        with pytest.raises(BrokenFile, match=message):
            unpack(zipped(tmp_path / f"{name}.zip", *entries), tmp_path / name, WANTED, IGNORED, 10**6)
    path = zipped(tmp_path / "bz2.zip", *ZIPPED, packing=zipfile.ZIP_BZIP2)
    with pytest.raises(BrokenFile, match="no plain file"):
        unpack(path, tmp_path / "out", WANTED, IGNORED, 10**6)


def patched(path, name, old, new):
    """The zip with bytes replaced in the list entry of ``name`` (and where it repeats in front of the content)."""
    content = bytearray(path.read_bytes())
    at = content.rindex(name.encode()) - 46  # the entry's place in the list at the end
    where = content.index(old, at, at + 46)
    content[where : where + len(old)] = new
    path.write_bytes(bytes(content))
    return path


def test_a_zip_must_hold_what_its_list_promises(tmp_path):
    """A smaller or larger size than the content's, another CRC, an encrypted entry."""
    size = (49_995).to_bytes(4, "little")
    cases = {
        "small": (size, (100).to_bytes(4, "little"), "damaged"),
        "large": (size, (60_000).to_bytes(4, "little"), "damaged|cut short"),
        "encrypted": ((20).to_bytes(2, "little") + b"\0\0", (20).to_bytes(2, "little") + b"\1\0", "no plain file"),
    }
    for name, (old, new, message) in cases.items():
        path = patched(zipped(tmp_path / f"{name}.zip", *ZIPPED), "set/a", old, new)
        with pytest.raises(BrokenFile, match=message):
            unpack(path, tmp_path / name, WANTED, IGNORED, 10**6)
        assert not (tmp_path / name / "set/a").exists() or (tmp_path / name / "set/a").stat().st_size <= 60_000
    whole = zipped(tmp_path / "y.zip", ("set/a", b"first"), ("set/b", b"x"), packing=zipfile.ZIP_STORED).read_bytes()
    (tmp_path / "crc.zip").write_bytes(whole.replace(b"first", b"FIRST"))
    with pytest.raises(BrokenFile, match="CRC"):
        unpack(tmp_path / "crc.zip", tmp_path / "crc", WANTED, IGNORED, 10**6)


def test_a_zip_whose_list_is_nonsense_is_refused(tmp_path):
    """Where the library lets errors of its own parsing through: a version, a name, a place before the beginning."""
    whole = zipped(tmp_path / "x.zip", *ZIPPED).read_bytes()
    listed, end = whole.index(b"PK\1\2"), whole.index(b"PK\5\6")
    changes = {
        "version": (listed + 6, b"\xff"),
        "name": (listed + 46, b"\0"),
        "place": (end + 12, b"\xff" * 4),
        "offset": (end + 16, b"\xff\xff\xff\x7f"),
    }
    for name, (at, new) in changes.items():
        path = tmp_path / f"{name}.zip"
        path.write_bytes(whole[:at] + new + whole[at + len(new) :])
        with pytest.raises(BrokenFile, match=f"{name}.zip: "):
            unpack(path, tmp_path / name, WANTED, IGNORED, 10**6)


SOUND = io.BytesIO()
with zipfile.ZipFile(SOUND, "w", zipfile.ZIP_DEFLATED) as _out:
    for _name, _content in ZIPPED[1:]:
        _out.writestr(_name, _content)


@given(st.data())
def test_any_change_of_a_zip_is_refused_or_harmless(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("zip")
    content = bytearray(SOUND.getvalue())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    for _ in range(data.draw(st.integers(0, 3)) if content else 0):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (folder / "x.zip").write_bytes(bytes(content))
    try:
        unpack(folder / "x.zip", folder / "out", WANTED, IGNORED, 10**6)
    except BrokenFile:
        pass
    else:
        assert (folder / "out/set/a").read_bytes() == b"first" * 9_999
    assert {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} <= {
        "x.zip", "out/set/a", "out/set/b"
    }  # fmt: skip

"""The idx reader against honest, damaged and hostile files."""

import gzip
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbook.data.errors import BrokenFile
from fedbook.data.idx import read_idx, write_idx

SMALL = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


def header(*sizes, kind=8, zero=0):
    return struct.pack(">HBB", zero, kind, len(sizes)) + struct.pack(f">{len(sizes)}I", *sizes)


GOOD = header(2, 3, 4) + SMALL.tobytes()


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["raw", "gzip"])
def test_reads_what_is_there(tmp_path, pack):
    path = tmp_path / "x"
    path.write_bytes(pack(GOOD))
    assert np.array_equal(read_idx(path, (2, 3, 4)), SMALL)
    assert np.array_equal(read_idx(path, (None, 3, None)), SMALL)


def test_writes_the_same_bytes_each_time_and_reads_them_back(tmp_path):
    for name in ("a.gz", "another_name.gz"):
        write_idx(tmp_path / name, SMALL)
    written = (tmp_path / "a.gz").read_bytes()
    assert written == (tmp_path / "another_name.gz").read_bytes()
    assert written[3:8] == bytes(5)  # no name, no time
    assert np.array_equal(read_idx(tmp_path / "a.gz", (2, 3, 4)), SMALL)
    with pytest.raises(TypeError, match="array: got int64"):
        write_idx(tmp_path / "b", SMALL.astype(np.int64))


BAD = {
    "empty": (b"", "cut short within its header"),
    "half a header": (GOOD[:9], "cut short within its header"),
    "body cut": (GOOD[:-1], "promises 24 bytes, 23 follow"),
    "trailing": (GOOD + b"\0", "more than the 24 bytes"),
    "floats": (header(2, 3, 4, kind=0x0D) + bytes(96), "starts with 00 00 0d 03"),
    "no magic": (b"PK\3\4" + GOOD, "starts with 50 4b 03 04"),
    "two axes": (header(2, 12) + SMALL.tobytes(), "has 2 axes; expected are 3"),
    "other shape": (header(3, 2, 4) + SMALL.tobytes(), r"has shape \[3, 2, 4\]; expected is \[2, 3, 4\]"),
}


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["raw", "gzip"])
@pytest.mark.parametrize("content, message", BAD.values(), ids=BAD)
def test_refuses_a_bad_file_by_name(tmp_path, content, message, pack):
    path = tmp_path / "some-file"
    path.write_bytes(pack(content))
    with pytest.raises(BrokenFile, match=message) as caught:
        read_idx(path, (2, 3, 4))
    assert str(path) in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["some-file"]


PACKED = gzip.compress(GOOD)
DAMAGED = {
    "cut": PACKED[:-9],
    "no trailer": PACKED[:-8],
    "wrong checksum": PACKED[:-8] + struct.pack("<I", zlib.crc32(GOOD) ^ 1) + PACKED[-4:],
    "bytes after it": PACKED + b"more",
    "a flipped bit": PACKED[:14] + bytes([PACKED[14] ^ 0x40]) + PACKED[15:],
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_refuses_a_damaged_packing(tmp_path, content):
    path = tmp_path / "x.gz"
    path.write_bytes(content)
    with pytest.raises(BrokenFile, match="x.gz: "):
        read_idx(path, (2, 3, 4))


def test_a_bomb_is_not_unpacked(tmp_path):
    """400 MB of zeros behind a header of 24 bytes: no more than the header's promise and a byte is unpacked."""
    packer = zlib.compressobj(9, wbits=31)
    content = packer.compress(header(2, 3, 4)) + b"".join(packer.compress(bytes(2**20)) for _ in range(400))
    path = tmp_path / "bomb.gz"
    path.write_bytes(content + packer.flush())
    tracemalloc.start()
    with pytest.raises(BrokenFile, match="more than the 24 bytes"):
        read_idx(path, (2, 3, 4))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["raw", "gzip"])
def test_a_promise_reserves_nothing(tmp_path, pack):
    path = tmp_path / "x"
    path.write_bytes(pack(header(1000, 1000, 1000) + b"few"))
    tracemalloc.start()
    with pytest.raises(BrokenFile, match="promises 1,000,000,000 bytes, 3 follow"):
        read_idx(path, (None, None, None))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6
    path.write_bytes(pack(header(2**32 - 1, 2**32 - 1, 2**32 - 1)))
    with pytest.raises(BrokenFile, match="more than the 1,073,741,824 that are accepted"):
        read_idx(path, (None, None, None))


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_read_or_refused(tmp_path_factory, content, packed):
    path = tmp_path_factory.mktemp("idx") / "x"
    path.write_bytes(gzip.compress(content) if packed else content)
    try:
        array = read_idx(path, (None, None))
    except BrokenFile:
        return
    assert header(*array.shape) + array.tobytes() == content


@pytest.mark.parametrize("bad", [-1, 2.0, float("nan"), "3", True])
def test_bad_arguments_are_named(tmp_path, bad):
    path = tmp_path / "x"
    path.write_bytes(GOOD)
    with pytest.raises((TypeError, ValueError), match="shape: got"):
        read_idx(path, (2, bad, 4))
    with pytest.raises((TypeError, ValueError), match="limit: got"):
        read_idx(path, (2, 3, 4), limit=bad)
    with pytest.raises(TypeError, match="array: got"):
        write_idx(tmp_path / "y", bad)
    assert not (tmp_path / "y").exists()

"""The readers of foreign files: honest ones are read, anything else is a BrokenFile that names the file; no bombs."""

import gzip
import hashlib
import io
import os
import pickle
import struct
import tracemalloc
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbook.data import BrokenFile
from fedbook.data.cifar import read_pickle
from fedbook.data.formats import Expected, read_idx, read_lines, read_npz, write_idx

BYTES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
LABELS = np.array([[10], [1], [9], [3], [10]])
NPZ = {"x": Expected((2, 3, 4), ("uint8",)), "y": Expected((range(1, 9), 1), ("uint8", "int64"))}


def idx(*sizes, kind=8):
    return struct.pack(">HBB", 0, kind, len(sizes)) + struct.pack(f">{len(sizes)}I", *sizes)


def npz(packed=True, **changes):
    out = io.BytesIO()
    arrays = {k: v for k, v in {"x": BYTES, "y": LABELS, **changes}.items() if v is not None}
    (np.savez_compressed if packed else np.savez)(out, **arrays)
    return out.getvalue()


READERS = {
    "idx": (lambda path: read_idx(path, (2, 3, 4)), idx(2, 3, 4) + BYTES.tobytes()),
    "idx packed": (lambda path: read_idx(path, (2, 3, 4)), gzip.compress(idx(2, 3, 4) + BYTES.tobytes(), mtime=0)),
    "npz": (lambda path: read_npz(path, NPZ), npz()),
    "pickle": (lambda path: read_pickle(path, 10**6), pickle.dumps({b"data": BYTES, "labels": [1, 2]}, 3)),
    "text": (read_lines, b"one\ntwo\n"),
    "text packed": (read_lines, gzip.compress(b"one\ntwo\n", mtime=0)),
}


def put(folder, content, name="some-file"):
    path = folder / name
    path.write_bytes(content)
    return path


def refused(path, read, message="some-file|batch"):
    with pytest.raises(BrokenFile, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_honest_files_are_read(tmp_path):
    read = {name: reader(put(tmp_path, content)) for name, (reader, content) in READERS.items()}
    for name in ("idx", "idx packed"):
        assert np.array_equal(read[name], BYTES) and read[name].flags.writeable
    assert np.array_equal(read["npz"]["x"], BYTES) and read["npz"]["y"].tolist() == LABELS.tolist()
    assert list(read_npz(put(tmp_path, npz()), NPZ, ["y"])) == ["y"]
    assert np.array_equal(read["pickle"]["data"].value, BYTES) and read["pickle"]["labels"] == [1, 2]
    assert read["text"] == read["text packed"] == [(1, "one"), (2, "two")]


def test_idx_files_are_written_alike_each_time(tmp_path):
    for name in ("a.gz", "another_name.gz"):
        write_idx(tmp_path / name, BYTES)
    written = (tmp_path / "a.gz").read_bytes()
    assert written == (tmp_path / "another_name.gz").read_bytes() and written[3:8] == bytes(5)  # no name, no time
    assert np.array_equal(read_idx(tmp_path / "a.gz", (2, 3, 4)), BYTES)


@pytest.mark.parametrize("name", READERS)
def test_cut_files_and_missing_ones(tmp_path, name):
    read, content = READERS[name]
    for cut in (2, len(content) // 3, len(content) - 12, len(content) - 1) if name != "text" else ():
        refused(put(tmp_path, content[:cut]), read)
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "nothing")


@given(st.data())
@pytest.mark.parametrize("name", READERS)
@pytest.mark.filterwarnings("ignore")  # from within the libraries
def test_any_change_of_a_byte_is_read_or_refused(tmp_path_factory, name, data):
    read, content = READERS[name]
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with suppress(BrokenFile):
        read(put(tmp_path_factory.getbasetemp(), bytes(changed)))


WRONG = {
    "idx: floats": ("idx", idx(2, 3, 4, kind=0x0D) + bytes(96), "starts with 00 00 0d 03"),
    "idx: two axes": ("idx", idx(2, 12) + BYTES.tobytes(), r"has 2 axes; expected are 3"),
    "idx: shape": ("idx", idx(3, 2, 4) + BYTES.tobytes(), r"has shape \[3, 2, 4\]; expected is \[2, 3, 4\]"),
    "idx: more": ("idx", idx(2, 3, 4) + bytes(25), "holds more than"),
    "idx: checksum": ("idx", gzip.compress(idx(2, 3, 4) + bytes(24))[:-8] + bytes(8), "CRC"),
    "idx: after the packing": ("idx", gzip.compress(idx(2, 3, 4) + bytes(24)) + b"more", "not what it should be|more"),
    "npz: shape": ("npz", npz(x=BYTES[:1]), r"x has shape \[1, 3, 4\]; expected is \[2, 3, 4\]"),
    "npz: range": ("npz", npz(y=np.zeros((9, 1), int)), r"y has shape \[9, 1\]; expected is \[1 to 8, 1\]"),
    "npz: type": ("npz", npz(x=BYTES.astype(np.int16)), "x is of type int16; allowed is uint8"),
    "npz: objects": ("npz", npz(x=np.array([None], object)), "x has shape|type object"),
    "npz: lacks one": ("npz", npz(x=None), "holds y; expected are exactly x, y"),
    "npz: a pickle": ("npz", pickle.dumps([1]), "pickle"),
    "pickle: no dictionary": ("pickle", pickle.dumps([1, 2]), "holds a list, not a dictionary"),
    "pickle: keys": ("pickle", pickle.dumps({1: 2}), "texts as keys"),
    "pickle: dtype": ("pickle", pickle.dumps({"x": BYTES.astype(np.int16)}, 3), "dtype .*i2.*; allowed is u1"),
    "pickle: far store": ("pickle", b"\x80\2K\1r\xff\xff\xff\x7f.", "tuples or stores"),
    "pickle: nested": ("pickle", b"\x80\2})" + b"\x85" * 5_000 + b"K\1s.", "tuples or stores"),
    "pickle: large": ("pickle", pickle.dumps({"x": bytes(10**6)}), "is larger than the 1,000,000 bytes"),
    "text: no ASCII": ("text", "one\ntw\u00f6\n".encode(), "line 2: holds bytes that are no ASCII"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_content_is_refused_by_name(tmp_path, case):
    reader, content, message = WRONG[case]
    refused(put(tmp_path, content), READERS[reader][0], message)


def test_no_more_is_unpacked_than_is_needed(tmp_path):
    """Bombs of 100 MB: an idx file and a text behind an honest beginning, an .npz whose header promises 10^15 bytes."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (10**15, 1)})
    promising = io.BytesIO()
    with zipfile.ZipFile(promising, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("x.npy", header.getvalue() + bytes(10**7))
        packed.writestr("y.npy", header.getvalue())
    bombs = {
        "idx": gzip.compress(idx(2, 3, 4) + bytes(10**8), 1),
        "npz": promising.getvalue(),
        "text": gzip.compress(b"line\n" * 2 * 10**7, 1),
    }
    for name, content in bombs.items():
        path = put(tmp_path, content)
        tracemalloc.start()
        refused(path, READERS[name][0], "more than|has shape")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < (8e7 if name == "text" else 5e6)


class Runs:
    """Unpickling this calls ``call(*parts)``."""

    def __init__(self, call, *parts):
        self.call, self.parts = call, parts

    def __reduce__(self):
        return self.call, self.parts


def evil(tmp_path):
    """Pickles that would make the file ``mark`` if an unrestricted reader ran them."""
    mark = tmp_path / "mark"
    command, code = f"touch {mark}", f"open({str(mark)!r}, 'w').close()"
    stack_global = pickle.PROTO + b"\4" + b"\x8c\5posix\x8c\6system\x93\x8c" + bytes([len(command)]) + command.encode()
    return {
        "os.system": pickle.dumps(Runs(os.system, command), 2),
        "nested exec": pickle.dumps({b"labels": [3, [{b"deep": (Runs(exec, code),)}]]}, 3),
        "STACK_GLOBAL": stack_global + b"\x85R.",
        "INST": b"(S'" + command.encode() + b"'\nios\nsystem\n.",
        "OBJ": b"(cos\nsystem\nU" + bytes([len(command)]) + command.encode() + b"o.",
        "array of objects": pickle.dumps(np.array([[Runs(eval, code)]], object), 2),
        "PERSID": b"Psomething\n.",
        "dotted name": b"\x80\4\x8c\5numpy\x8c\x0edtype.__init__\x93.",
        "codec": b"\x80\2c_codecs\nencode\nX\1\0\0\0aU\4bz2_\x86R.",
        "call of ndarray": b"\x80\2cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85R.",
        "alter a name's slots": b"\x80\2cnumpy\ndtype\nN}U\5_callK\1s\x86b.",
    }


@pytest.mark.parametrize("case", evil(Path("nowhere")))
def test_a_malicious_pickle_is_never_run(tmp_path, case):
    refused(put(tmp_path, evil(tmp_path)[case], "batch"), READERS["pickle"][0])
    assert [path.name for path in tmp_path.iterdir()] == ["batch"]


def test_the_malicious_pickles_are_malicious(tmp_path):
    """Without this the test above could pass because its pickles are harmless."""
    for case in ("os.system", "nested exec", "STACK_GLOBAL", "OBJ", "array of objects"):
        pickle.loads(evil(tmp_path)[case], encoding="bytes")
        (tmp_path / "mark").unlink()


def test_the_publisher_s_own_pickle_is_read(tmp_path):
    """The 158 bytes of CIFAR-10's official ``batches.meta``, put together here and proved by their checksum."""
    names = b"airplane automobile bird cat deer dog frog horse ship truck".split()
    texts = b"".join(b"U" + bytes([len(name)]) + name + b"q" + bytes([5 + i]) for i, name in enumerate(names))
    head = b"\x80\2}q\1(U\x13num_cases_per_batchq\2M\x10'U\x0blabel_namesq\3]q\4("
    content = head + texts + b"eU\7num_visq\x0fM\0\x0cu."
    assert hashlib.md5(content).hexdigest() == "5ff9c542aee3614f3951f8cda6e48888"
    meta = read_pickle(put(tmp_path, content), 4_096)
    assert meta == {"num_cases_per_batch": 10_000, "label_names": names, "num_vis": 3_072}

"""The reader of CIFAR's pickles: it reads honest files of every writer and never runs what a file says."""

import hashlib
import io
import os
import pickle
import pickletools
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbook.data.errors import BrokenFile
from fedbook.data.python_batches import ByteType, Name, read_plain_pickle, read_python_batch

ROWS, COLUMNS = 4, 6
DATA = np.arange(ROWS * COLUMNS, dtype=np.uint8).reshape(ROWS, COLUMNS)
LABELS = [3, 0, 9, 1]


class Python2Pickler(pickle._Pickler):
    """Writes bytes as Python 2 wrote its texts, the way the official files were made."""

    dispatch = pickle._Pickler.dispatch.copy()

    def save_text(self, content):
        short = len(content) < 256
        head = pickle.SHORT_BINSTRING + bytes([len(content)]) if short else b"T" + struct.pack("<i", len(content))
        self.write(head + content)
        self.memoize(content)

    dispatch[bytes] = save_text


def official(batch):
    """The batch as in the official files: Python 2, protocol 2, NumPy 1."""
    out = io.BytesIO()
    Python2Pickler(out, protocol=2).dump(batch)
    return out.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def honest(**changes):
    batch = {
        b"batch_label": b"training batch 1 of 5",
        b"labels": LABELS,
        b"data": DATA,
        b"filenames": [b"a.png"] * ROWS,
    }
    return {**batch, **{key.encode(): value for key, value in changes.items()}}


def read(tmp_path, content, **options):
    path = tmp_path / "data_batch_1"
    path.write_bytes(content)
    return read_python_batch(path, **{"rows": ROWS, "columns": COLUMNS, **options})


WRITERS = {
    "official": official,
    "protocol 2": lambda batch: pickle.dumps(batch, 2),
    "protocol 3": lambda batch: pickle.dumps(batch, 3),
    "protocol 4": lambda batch: pickle.dumps(batch, 4),
    "texts": lambda batch: pickle.dumps({key.decode(): value for key, value in batch.items()}, 2),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_reads_honest_files(tmp_path, write):
    batch = read(tmp_path, write(honest()))
    assert set(batch) == {"data", "labels"}
    assert batch["data"].dtype == np.uint8 and np.array_equal(batch["data"], DATA)
    assert batch["labels"].dtype == np.int64 and batch["labels"].tolist() == LABELS


def test_agrees_with_the_unrestricted_reader_on_columns_first_arrays(tmp_path):
    content = official(honest(data=np.asfortranarray(DATA)))
    expected = pickle.loads(content, encoding="bytes")[b"data"]  # our own bytes
    assert np.array_equal(read(tmp_path, content)["data"], expected)


def test_reads_several_label_lists(tmp_path):
    content = official({b"data": DATA, b"fine_labels": [99, 0, 1, 2], b"coarse_labels": [19, 0, 0, 1]})
    batch = read(tmp_path, content, labels={"fine_labels": 100, "coarse_labels": 20})
    assert batch["fine_labels"].tolist() == [99, 0, 1, 2] and batch["coarse_labels"].tolist() == [19, 0, 0, 1]


def test_reads_the_publisher_s_own_file(tmp_path):
    """The 158 bytes of CIFAR-10's official ``batches.meta``, put together here and proved by their checksum."""
    names = b"airplane automobile bird cat deer dog frog horse ship truck".split()
    texts = b"".join(b"U" + bytes([len(name)]) + name + b"q" + bytes([5 + i]) for i, name in enumerate(names))
    head = b"\x80\2}q\1(U\x13num_cases_per_batchq\2M\x10'U\x0blabel_namesq\3]q\4("
    content = head + texts + b"eU\7num_visq\x0fM\0\x0cu."
    assert hashlib.md5(content).hexdigest() == "5ff9c542aee3614f3951f8cda6e48888"
    path = tmp_path / "batches.meta"
    path.write_bytes(content)
    meta = read_plain_pickle(path, max_bytes=4_096, max_steps=200)
    assert meta == {"num_cases_per_batch": 10_000, "label_names": names, "num_vis": 3_072}


def test_official_sizes_are_the_default(tmp_path):
    path = tmp_path / "data_batch_1"
    path.write_bytes(official(honest()))
    with pytest.raises(BrokenFile, match=r"data has shape \[4, 6\]; expected is \[10000, 3072\]"):
        read_python_batch(path)


WRONG = {
    "a key missing": ({b"data": DATA}, "has no labels"),
    "no dictionary": ([1, 2], "holds a list, not a dictionary"),
    "number as key": ({1: 2}, "texts as keys"),
    "shape": (honest(data=DATA.T.copy()), r"data has shape \[6, 4\]; expected is \[4, 6\]"),
    "flat": (honest(data=DATA.ravel()), r"data has shape \[24\]"),
    "dtype": (honest(data=DATA.astype(np.int16)), "dtype .*i2.*; allowed is u1"),
    "objects": (honest(data=np.array([[None, DATA]], object)), "dtype .*O8.*; allowed is u1"),
    "a list as data": (honest(data=[[0] * COLUMNS] * ROWS), "data is a list"),
    "label too large": (honest(labels=[3, 0, 10, 1]), r"labels holds something else than whole numbers in 0..9"),
    "label negative": (honest(labels=[3, 0, -1, 1]), "whole numbers in 0..9"),
    "label is true": (honest(labels=[3, 0, True, 1]), "whole numbers in 0..9"),
    "labels too few": (honest(labels=[3, 0]), "expected is a list of 4"),
    "labels as array": (honest(labels=np.array(LABELS, np.uint8)), "labels is a Array"),
}


@pytest.mark.parametrize("batch, message", WRONG.values(), ids=WRONG)
def test_refuses_wrong_content(tmp_path, batch, message, listing):
    with pytest.raises(BrokenFile, match=message) as caught:
        read(tmp_path, official(batch))
    assert str(tmp_path / "data_batch_1") in str(caught.value)
    assert list(listing(tmp_path)) == ["data_batch_1"]


def test_refuses_cut_and_lengthened_files(tmp_path):
    content = official(honest())
    for cut in range(0, len(content), 7):
        with pytest.raises(BrokenFile, match="data_batch_1: "):
            read(tmp_path, content[:cut])
    with pytest.raises(BrokenFile, match="5 bytes follow the end"):
        read(tmp_path, content + b"extra")
    with pytest.raises(BrokenFile, match="larger than the"):
        read(tmp_path, content + bytes(100_000))


class Runs:
    """Unpickling this calls ``call(*parts)``."""

    def __init__(self, call, *parts):
        self.call, self.parts = call, parts

    def __reduce__(self):
        return self.call, self.parts


def evil(tmp_path):
    """Pickles that would make the file ``mark`` if any of them were run by an unrestricted reader."""
    mark = tmp_path / "mark"
    command, code = f"touch {mark}", f"open({str(mark)!r}, 'w').close()"
    stack_global = pickle.PROTO + b"\4" + b"\x8c\5posix\x8c\6system\x93\x8c" + bytes([len(command)]) + command.encode()
    return {
        "os.system": pickle.dumps(Runs(os.system, command), 2),
        "eval": pickle.dumps(Runs(eval, code), 2),
        "exec, nested": official(honest(labels=[3, 0, [{b"deep": (Runs(exec, code),)}], 1])),
        "as the data": official(honest(data=Runs(eval, code))),
        "STACK_GLOBAL": stack_global + b"\x85R.",
        "INST": b"(S'" + command.encode() + b"'\nios\nsystem\n.",
        "OBJ": b"(cos\nsystem\nU" + bytes([len(command)]) + command.encode() + b"o.",
        "array of objects": pickle.dumps(np.array([[Runs(eval, code)]], object), 2),
        "NEWOBJ": b"\x80\2cbuiltins\nobject\n)\x81.",
        "EXT": b"\x80\2\x82\1.",
        "PERSID": b"Psomething\n.",
        "BINPERSID": b"\x80\2K\1Q.",
        "numpy.load": b"\x80\2cnumpy\nload\nU\1x\x85R.",
        "numpy runs text": b"\x80\2cnumpy.testing._private.utils\nruntest\nU\1x\x85R.",
        "dotted name": b"\x80\4\x8c\5numpy\x8c\x0edtype.__init__\x93.",
        "codec": b"\x80\2c_codecs\nencode\nX\1\0\0\0aU\4bz2_\x86R.",
        "codec of bytes": b"\x80\2c_codecs\nencode\nU\1aU\6latin1\x86R.",
        "call of ndarray": b"\x80\2cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85R.",
        "dtype O": b"\x80\2cnumpy\ndtype\nU\1O\x85R.",
        "dtype of a pickle's text": b"\x80\2cnumpy\ndtype\nU\5u1,u1\x85R.",
        "alter a name": b"\x80\2cnumpy\ndtype\n}U\1aK\1sb.",
        "alter a name's slots": b"\x80\2cnumpy\ndtype\nN}U\5_callK\1s\x86b.",
        "alter a class": b"\x80\2cnumpy.core.multiarray\n_reconstruct\n)R}U\5valueK\1sb.",
    }


CASES = tuple(evil(Path("nowhere")))


@pytest.mark.parametrize("case", CASES)
def test_never_runs_a_malicious_pickle(tmp_path, case):
    content = evil(tmp_path)[case]
    with pytest.raises(BrokenFile, match="refused") as caught:
        read(tmp_path, content)
    assert str(tmp_path / "data_batch_1") in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["data_batch_1"]


def test_the_malicious_pickles_are_malicious(tmp_path):
    """Without this the test above could pass because its pickles are harmless."""
    for case in ("os.system", "eval", "exec, nested", "as the data", "STACK_GLOBAL", "OBJ", "array of objects"):
        pickle.loads(evil(tmp_path)[case], encoding="bytes")
        (tmp_path / "mark").unlink()


BOMBS = {
    "far store": b"\x80\2K\1r\xff\xff\xff\x7f.",
    "nested tuples as a key": b"\x80\2})" + b"\x85" * 5_000 + b"K\1s.",
    "nested lists": b"\x80\2" + b"]" * 50_000 + b"a" * 49_999 + b".",
    "encode again and again": b"\x80\2(c_codecs\nencode\nq\1X\x00\x80\0\0" + b"a" * 32768 + b"X\6\0\0\0latin1\x86q\2R"
    + b"h\1h\2R" * 1_500 + b"l.",
}  # fmt: skip


@pytest.mark.parametrize("content", BOMBS.values(), ids=BOMBS)
def test_refuses_bombs(tmp_path, content):
    with pytest.raises(BrokenFile, match="refused"):
        path = tmp_path / "bomb"
        path.write_bytes(content)
        read_plain_pickle(path, max_bytes=10**6, max_steps=10_000)


def test_array_states_are_checked(tmp_path):
    content = official({b"data": DATA, b"labels": LABELS})
    shape = pickle.BININT1 + bytes([ROWS]) + pickle.BININT1 + bytes([COLUMNS])
    assert content.count(shape) == 1
    other = content.replace(shape, pickle.BININT1 + b"\xff" + pickle.BININT1 + bytes([COLUMNS]))
    with pytest.raises(BrokenFile, match=r"an array of shape \[255, 6\] comes with 24 bytes"):
        read(tmp_path, other)
    with pytest.raises(BrokenFile, match="parts or fields"):
        ByteType(tmp_path, "u1").__setstate__((3, "|", (np.float64, 3), None, None, -1, -1, 0))


def test_stand_ins_cannot_be_changed(tmp_path):
    name = Name(tmp_path, "numpy.dtype", None)
    with pytest.raises(AttributeError):
        name.anything = 1


@given(st.data())
def test_any_change_of_a_byte_is_read_or_refused(tmp_path_factory, data):
    content = bytearray(official(honest()))
    where = data.draw(st.integers(0, len(content) - 1))
    content[where] = data.draw(st.integers(0, 255))
    try:
        batch = read(tmp_path_factory.mktemp("batch"), bytes(content))
    except BrokenFile:
        return
    assert batch["data"].shape == (ROWS, COLUMNS) and batch["labels"].shape == (ROWS,)


@pytest.mark.parametrize("bad", [0, -1, 2.0, float("nan"), "3", True, None])
def test_bad_arguments_are_named(tmp_path, bad):
    for name in ("rows", "columns"):
        with pytest.raises((TypeError, ValueError), match=f"{name}: got"):
            read(tmp_path, official(honest()), **{name: bad})
    with pytest.raises((TypeError, ValueError), match=r"labels\['labels'\]: got"):
        read(tmp_path, official(honest()), labels={"labels": bad})
    with pytest.raises(TypeError, match="labels: got"):
        read(tmp_path, official(honest()), labels=["labels"])
    with pytest.raises((TypeError, ValueError), match="max_bytes: got"):
        read_plain_pickle(tmp_path / "data_batch_1", max_bytes=bad, max_steps=9)


def test_the_instructions_of_honest_files_are_few():
    names = {code.name for code, _, _ in pickletools.genops(official(honest()))}
    assert "GLOBAL" in names and not names & {"NEWOBJ", "INST", "OBJ", "EXT1", "PERSID", "BINPERSID"}

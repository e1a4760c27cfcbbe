"""The reader of .npz files: it reads what NumPy writes and refuses, with a reason, what an honest file never holds."""

import io
import pickle
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedbook.data.errors import BrokenFile
from fedbook.data.expected import Expected
from fedbook.data.npz import read_npz

X = np.arange(5 * 2 * 2 * 3, dtype=np.uint8).reshape(5, 2, 2, 3)
Y = np.array([[0], [8], [3], [3], [1]], np.uint8)
EXPECTED = {"x": Expected((5, 2, 2, 3)), "y": Expected((5, 1), ("|u1", "<i8"))}


def npy(array, **options):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, **options)
    return out.getvalue()


def zipped(*entries, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as packed:
        for name, content in entries:
            packed.writestr(name, content)
    return out.getvalue()


def honest(**changes):
    return zipped(*{"x.npy": npy(X), "y.npy": npy(Y), **{f"{k}.npy": v for k, v in changes.items()}}.items())


def read(tmp_path, content, expected=EXPECTED, **options):
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    return read_npz(path, expected, **options)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("kind", [np.uint8, np.int64])
def test_reads_what_numpy_writes(tmp_path, save, kind):
    path = tmp_path / "a.npz"
    save(path, x=X, y=Y.astype(kind))
    arrays = read_npz(path, EXPECTED)
    with np.load(path) as oracle:
        for name in ("x", "y"):
            assert arrays[name].dtype == oracle[name].dtype and np.array_equal(arrays[name], oracle[name])
    assert list(read_npz(path, EXPECTED, ["y"])) == ["y"]
    arrays["x"][0] = 0  # writable


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_reads_every_version_of_the_format_and_columns_first(tmp_path, version):
    content = honest(x=npy(np.asfortranarray(X), version=version))
    assert b"'fortran_order': True" in npy(np.asfortranarray(X))
    assert np.array_equal(read(tmp_path, content)["x"], X)


@pytest.mark.parametrize("kind", ["<f8", ">i2", "|b1"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (1, 2, 3, 4)])
def test_reads_other_shapes_and_kinds(tmp_path, kind, shape):
    array = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(kind)
    read_back = read(tmp_path, zipped(("a.npy", npy(array))), {"a": Expected(shape, (kind,))})["a"]
    assert read_back.dtype == array.dtype and read_back.shape == shape and np.array_equal(read_back, array)


class Runs:
    """Unpickling this calls ``open(mark, "w")``."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


def header(text, version=b"\1\0", length=None):
    text = text.encode("latin1")
    size = struct.pack("<H" if version == b"\1\0" else "<I", len(text) if length is None else length)
    return b"\x93NUMPY" + version + size + text


PLAIN = "{'descr': '|u1', 'fortran_order': False, 'shape': (5, 2, 2, 3), }\n"
assert header(PLAIN) + X.tobytes() != npy(X)  # NumPy pads; both are read


def test_a_header_without_padding_is_read(tmp_path):
    assert np.array_equal(read(tmp_path, honest(x=header(PLAIN) + X.tobytes()))["x"], X)


def hostile(mark):
    objects = np.empty((5, 2, 2, 3), object)
    objects[:] = Runs(mark)
    code = f"open({str(mark)!r}, 'w')"
    big = "{'descr': '|u1', 'fortran_order': False, 'shape': (5, 2, 2, %s), }\n"
    return {
        "array of objects": (honest(x=npy(objects)), r"x.npy is of type '\|O'|x unpacks to"),
        "a pickle": (honest(x=pickle.dumps(Runs(mark))), "not with the mark of a NumPy array"),
        "code in the header": (honest(x=header(PLAIN.replace("'|u1'", code))), "header of x.npy is"),
        "code in the shape": (honest(x=header(PLAIN.replace("5, 2", code))), "header of x.npy is"),
        "deep nest": (honest(x=header("(" * 5_000)), "header of x.npy is"),
        "records": (honest(x=npy(np.zeros(5, [("a", "u1"), ("b", "u1")]))), "header of x.npy is"),
        "endless header": (honest(x=header(PLAIN, b"\2\0", 2**32 - 1)), "promises 4,294,967,295 bytes"),
        "more after the header": (honest(x=header(PLAIN + "__import__('os')\n") + X.tobytes()), "header of x.npy is"),
        "header cut": (honest(x=header(PLAIN, length=len(PLAIN) + 50)), "header of x.npy is"),
        "no header": (honest(x=b""), "starts with , not"),
        "no length": (honest(x=b"\x93NUMPY\1\0"), "damaged or cut short"),
        "version 9": (honest(x=header(PLAIN, b"\x09\0") + X.tobytes()), "not with the mark"),
        "wrong type": (honest(x=npy(X.astype(np.int8))), r"x.npy is of type '\|i1'; allowed is \|u1"),
        "wrong width": (honest(y=npy(Y.astype(np.int32))), r"y.npy is of type '<i4'; allowed is \|u1, <i8"),
        "other byte order": (honest(y=npy(Y.astype(">i8"))), "y.npy is of type '>i8'"),
        "wrong shape": (honest(x=npy(X[:4])), r"x.npy has shape \[4, 2, 2, 3\]; expected is \[5, 2, 2, 3\]"),
        "flat": (honest(x=npy(X.ravel())), r"x.npy has shape \[60\]"),
        "huge shape": (honest(x=header(big % (10**14))), "has shape .5, 2, 2, 100000000000000."),
        "absurd shape": (honest(x=header(big % ("9" * 500))), "header of x.npy is"),
        "negative shape": (honest(x=header(big % "-3")), "header of x.npy is"),
        "content cut": (honest(x=npy(X)[:-1]), "x.npy is cut short: 59 of 60 bytes"),
        "content longer": (honest(x=npy(X) + b"x"), "x.npy holds more than the 60 bytes"),
        "far more content": (honest(x=npy(X) + bytes(10**6)), "refused: x unpacks to 1,000,188 bytes; at most 16,444"),
        "a member too many": (honest(z=npy(Y)), "its entry 'z.npy' is not expected"),
        "a member missing": (zipped(("x.npy", npy(X))), "lacks y"),
        "another ending": (zipped(("x.npy", npy(X)), ("y", npy(Y))), "its entry 'y' is not expected"),
        "a path": (zipped(("x.npy", npy(X)), ("../y.npy", npy(Y))), "its entry '../y.npy' is not expected"),
        "a folder": (zipped(("d/", b""), ("x.npy", npy(X)), ("y.npy", npy(Y))), "its entry 'd/' is"),
        "packed by lzma": (zipped(("x.npy", npy(X)), ("y.npy", npy(Y)), method=zipfile.ZIP_LZMA), "is no plain file"),
        "no zip": (b"PK" + bytes(200), "damaged or cut short"),
        "empty": (b"", "damaged or cut short"),
        "larger than it may be": (honest() + bytes(200_000), "more than the 163,"),
    }


CASES = tuple(hostile("nowhere"))


@pytest.mark.parametrize("case", CASES)
def test_refuses_hostile_and_damaged_files(tmp_path, case, listing):
    mark = tmp_path / "mark"
    content, message = hostile(mark)[case]
    with pytest.raises(BrokenFile, match=message) as caught:
        read(tmp_path, content)
    assert str(tmp_path / "a.npz") in str(caught.value)
    assert list(listing(tmp_path)) == ["a.npz"]  # nothing ran


def test_the_objects_are_malicious(tmp_path):
    """Without this the test above could pass because its array of objects is harmless."""
    path = tmp_path / "a.npz"
    path.write_bytes(hostile(tmp_path / "mark")["array of objects"][0])
    with np.load(path, allow_pickle=True) as unrestricted:
        unrestricted["x"]
    assert (tmp_path / "mark").exists()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_refuses_a_name_that_comes_twice(tmp_path):
    with pytest.raises(BrokenFile, match="'y.npy' is not expected .or comes twice."):
        read(tmp_path, zipped(("x.npy", npy(X)), ("y.npy", npy(Y)), ("y.npy", npy(Y))))


def entry(kind=0, flags=0):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        packed.writestr("x.npy", npy(X))
        info = zipfile.ZipInfo("y.npy")
        info.external_attr = kind << 16
        packed.writestr(info, npy(Y))
    content = bytearray(out.getvalue())
    second = content.rfind(b"PK\1\2")
    content[second + 8] |= flags
    return bytes(content)


@pytest.mark.parametrize("options", [{"kind": 0o120777}, {"kind": 0o020666}, {"flags": 1}, {"flags": 0x20}])
def test_refuses_links_devices_and_encrypted_members(tmp_path, options):
    assert read(tmp_path, entry())["y"].shape == (5, 1)
    with pytest.raises(BrokenFile, match="'y.npy' is no plain file"):
        read(tmp_path, entry(**options))


def test_a_zip_that_lies_about_sizes_reserves_nothing(tmp_path):
    """The list promises 4 GB, or less than follows; a thousandfold packed array stays within what is expected."""
    content = bytearray(honest())
    place = content.rfind(b"PK\1\2", 0, content.rfind(b"PK\1\2"))
    for promised, message in ((2**32 - 2, "unpacks to 4,294,967,294 bytes"), (100, "damaged|cut short|header of")):
        struct.pack_into("<I", content, place + 24, promised)
        with pytest.raises(BrokenFile, match=message):
            read(tmp_path, bytes(content))
    bomb = zipped(("x.npy", npy(X) + bytes(30_000_000)), ("y.npy", npy(Y)))
    place = bomb.rfind(b"PK\1\2", 0, bomb.rfind(b"PK\1\2"))
    lying = bytearray(bomb)
    for position in (22, place + 24):  # the local header and the list
        struct.pack_into("<I", lying, position, len(npy(X)))
    for hidden in (bomb, bytes(lying)):
        tracemalloc.start()
        with pytest.raises(BrokenFile):
            read(tmp_path, hidden)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
        tracemalloc.stop()


def test_refuses_every_cut(tmp_path):
    content = honest()
    for cut in range(0, len(content), 5):
        with pytest.raises(BrokenFile, match="a.npz: "):
            read(tmp_path, content[:cut])


@given(st.data())
def test_any_change_of_a_byte_is_read_or_refused(tmp_path_factory, data):
    content = bytearray(zipped(("x.npy", npy(X)), ("y.npy", npy(Y)), method=data.draw(st.sampled_from([0, 8]))))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        arrays = read(tmp_path_factory.mktemp("npz"), bytes(content))
    except BrokenFile:
        return
    assert np.array_equal(arrays["x"], X) and np.array_equal(arrays["y"], Y)  # the zip's own sums


def test_a_list_that_points_before_the_file_is_refused(tmp_path):
    content = bytearray(honest())
    content[-4] = 255  # where the list begins, as its end tells: all other places move by as much
    with pytest.raises(BrokenFile, match="damaged or cut short"):
        read(tmp_path, bytes(content))


def test_bad_arguments_are_named(tmp_path):
    for wanted in (3, "x", ["z"], [None]):
        with pytest.raises((TypeError, ValueError), match="wanted: got"):
            read(tmp_path, honest(), wanted=wanted)
    with pytest.raises(FileNotFoundError):
        read_npz(tmp_path / "none.npz", EXPECTED)


@pytest.mark.parametrize("count", [2, 5, 9])
def test_an_axis_may_have_any_size_of_a_range(tmp_path, count):
    expected = {"x": Expected((range(2, 10), 3), ("<f4", "<f8"))}
    x = np.arange(count * 3, dtype=np.float32).reshape(count, 3)
    assert np.array_equal(read(tmp_path, zipped(("x.npy", npy(x))), expected)["x"], x)
    assert expected["x"].bytes == 9 * 3 * 8 and expected["x"].shape_text() == "[2 to 9, 3]"


@pytest.mark.parametrize("shape", [(1, 3), (10, 3), (5, 4), (15,), (5, 3, 1), (0, 3)])
def test_sizes_outside_the_range_are_refused(tmp_path, shape):
    content = zipped(("x.npy", npy(np.zeros(shape, np.float32))))
    with pytest.raises(BrokenFile, match=r"x.npy has shape \[.*\]; expected is \[2 to 9, 3\]"):
        read(tmp_path, content, {"x": Expected((range(2, 10), 3), ("<f4",))})

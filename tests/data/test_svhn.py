"""SVHN and MATLAB's files: read as SciPy reads them, refused where anything is not as expected."""

import dataclasses
import hashlib
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import loadmat, savemat

from fedbook import data
from fedbook.data import house_numbers, matlab
from fedbook.data.errors import BrokenFile, DataNotFound, FetchFailed
from fedbook.data.expected import Expected
from fedbook.data.fetch import fetch, verify
from fedbook.data.house_numbers import read_svhn
from fedbook.data.matlab import read_mat
from fedbook.data.sources import SOURCES, SVHN

COUNTS = {"train": 23, "test": 11}
NUMBERS = np.arange(4 * 3 * 2 * 5, dtype=np.uint8).reshape(4, 3, 2, 5) * 2
LABELS = np.array([[10], [1], [9], [3], [10]], np.uint8)
SMALL = {"X": Expected((4, 3, 2, 5)), "y": Expected((5, 1), ("|u1", "<f8"))}


@pytest.fixture
def variables(monkeypatch):
    """X and y of both files, fewer: pixel (r, c) of channel k of image i is i + 2r + 3c + 64k, labels 1 to 10."""
    monkeypatch.setattr(house_numbers, "COUNTS", COUNTS)
    r, c, k, i = np.ogrid[:32, :32, :3, :23]
    pixels = ((i + 2 * r + 3 * c + 64 * k) % 256).astype(np.uint8)
    labels = (np.arange(23, dtype=np.uint8) % 10 + 1)[:, None]
    return {part: {"X": pixels[..., :count], "y": labels[:count]} for part, count in COUNTS.items()}


def write(root, variables, packed=True):
    folder = root / "svhn"
    folder.mkdir(parents=True, exist_ok=True)
    for part, content in variables.items():
        savemat(folder / f"{part}_32x32.mat", content, do_compression=packed)
    return folder


def small(tmp_path, packed, **changes):
    path = tmp_path / "small.mat"
    savemat(path, {"X": NUMBERS, "y": LABELS, **changes}, do_compression=packed)
    return path


def element(order, kind, content, short=True):
    """An element: type, size and content, filled up to 8 bytes; in 8 bytes altogether where it fits and may be."""
    if short and 0 < len(content) <= 4:
        return struct.pack(f"{order}I", len(content) << 16 | kind) + content.ljust(4, b"\0")
    return struct.pack(f"{order}II", kind, len(content)) + content + bytes(-len(content) % 8)


def matrix(order, name, array, stored, kind, flags=9, short=True):
    """A variable by the description of the format: array flags, sizes, name, numbers."""
    parts = [
        element(order, 6, struct.pack(f"{order}II", flags, 0)),
        element(order, 5, struct.pack(f"{order}{array.ndim}i", *array.shape)),
        element(order, 1, name, short),
        element(order, kind, array.astype(f"{order}{stored}").tobytes("F"), short),
    ]
    return element(order, 14, b"".join(parts))


def packed_element(order, content):
    content = zlib.compress(content)
    return struct.pack(f"{order}II", 15, len(content)) + content


def header(order="<", version=0x0100):
    return b"MATLAB 5.0 MAT-file, made by hand".ljust(124) + struct.pack(f"{order}HH", version, 0x4D49)


def honest(order="<"):
    return matrix(order, b"X", NUMBERS, "u1", 2), matrix(order, b"y", LABELS, "u1", 2)


def put(tmp_path, *elements, head=None):
    path = tmp_path / "small.mat"
    path.write_bytes((header() if head is None else head) + b"".join(elements))
    return path


@pytest.mark.parametrize("packed", [True, False])
def test_reads_channels_first_as_scipy_does(tmp_path, variables, packed):
    folder = write(tmp_path, variables, packed)
    arrays = read_svhn(folder)
    assert arrays[0].shape == (23, 3, 32, 32) and arrays[2].shape == (11, 3, 32, 32) and arrays[0].dtype == np.uint8
    assert arrays[0][7, 2, 5, 9] == (7 + 10 + 27 + 128) % 256 and arrays[2][8, 1, 31, 0] == 8 + 62 + 64
    for part, x, y in zip(COUNTS, arrays[::2], arrays[1::2], strict=True):
        expected = loadmat(folder / f"{part}_32x32.mat")
        assert np.array_equal(x, expected["X"].transpose(3, 2, 0, 1)) and x.flags.c_contiguous and x.flags.writeable
        assert y.dtype == np.int64 and y.tolist() == [0 if label == 10 else label for label in expected["y"].ravel()]
    assert arrays[1].tolist() == [(n + 1) % 10 for n in range(23)]


def test_images_beyond_the_first_ten_thousand_are_turned_too(tmp_path, monkeypatch):
    monkeypatch.setattr(house_numbers, "COUNTS", {"test": 10_002})
    x = np.zeros((32, 32, 3, 10_002), np.uint8)
    x[3, 20, 1] = np.arange(10_002) % 251
    folder = write(tmp_path, {"test": {"X": x, "y": np.full((10_002, 1), 4, np.uint8)}}, packed=False)
    images, digits = read_svhn(folder)
    assert np.array_equal(images[:, 1, 3, 20], np.arange(10_002) % 251) and images.sum() == x.sum(dtype=np.int64)
    assert set(digits.tolist()) == {4}


def test_loads_by_name(tmp_path, variables):
    write(tmp_path, variables)
    stored = data.load("svhn", root=tmp_path, dtype=torch.uint8)
    assert stored.name == "svhn" and stored.train_x.shape == (23, 3, 32, 32) and len(stored.test_y) == 11
    assert stored.train_y.dtype == torch.int64 and stored.classes == tuple("0123456789")
    scaled = data.load("svhn", root=tmp_path)
    assert scaled.test_x.dtype == torch.float32 and torch.equal(scaled.test_x, stored.test_x.float() / 255)
    stored.test_x[0] = 1  # writable


@pytest.mark.parametrize("kind", [np.uint8, np.float64])
@pytest.mark.parametrize("bad", [0, 11, 255, 2.5, np.nan, -1])
def test_a_label_out_of_range_is_refused(tmp_path, variables, kind, bad):
    labels = variables["test"]["y"].astype(kind)
    write(tmp_path, variables | {"test": variables["test"] | {"y": labels}})
    assert read_svhn(tmp_path / "svhn")[3].tolist() == [(n + 1) % 10 for n in range(11)]
    if kind is np.uint8 and bad not in (0, 11, 255):
        return
    labels[5] = bad
    write(tmp_path, variables | {"test": variables["test"] | {"y": labels}})
    with pytest.raises(BrokenFile, match=f"test_32x32.mat: y holds {labels[5, 0]}; allowed are 1 to 10"):
        read_svhn(tmp_path / "svhn")


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("stored, kind", [("u1", 2), ("i1", 1), ("i2", 3), ("u2", 4), ("i4", 5), ("f4", 7), ("f8", 9)])
def test_reads_every_byte_order_and_way_of_storing(tmp_path, order, short, stored, kind):
    """Files by the description of the format, which SciPy reads alike; the last numbers may lack their filling."""
    labels = LABELS[:3]  # 3 bytes: short where they may be
    x, y = matrix(order, b"X", NUMBERS, "u1", 2), matrix(order, b"y", labels, stored, kind, flags=6, short=short)
    expected = SMALL | {"y": Expected((3, 1), ("<f8",))}
    bare = bytearray(y[: len(y) - (-3 % 8)]) if stored == "u1" and not short else bytearray(y)
    bare[:8] = struct.pack(f"{order}II", 14, len(bare) - 8)
    for elements in ((x, y), (y, x), (packed_element(order, x), packed_element(order, y)), (x, bytes(bare))):
        path = put(tmp_path, *elements, head=header(order))
        arrays, oracle = read_mat(path, expected), loadmat(path)
        assert np.array_equal(arrays["X"], NUMBERS) and arrays["X"].dtype == np.uint8
        assert np.array_equal(arrays["y"], labels) and arrays["y"].dtype == np.dtype("<f8")
        assert np.array_equal(arrays["X"], oracle["X"]) and np.array_equal(arrays["y"], oracle["y"])


@pytest.mark.parametrize("piece", [1, 2, 7, 2**16])
def test_packed_files_are_read_in_pieces(tmp_path, monkeypatch, piece):
    """Pieces that unpack to nothing, and a stream whose end comes after its last number."""
    monkeypatch.setattr(matlab, "CHUNK", piece)
    elements = []
    for content in honest():
        packer = zlib.compressobj()
        packed = packer.compress(content) + packer.flush(zlib.Z_FULL_FLUSH) + packer.flush()
        elements.append(struct.pack("<II", 15, len(packed)) + packed)
    arrays = read_mat(put(tmp_path, *elements), SMALL)
    assert np.array_equal(arrays["X"], NUMBERS) and np.array_equal(arrays["y"], LABELS)


def test_reads_what_matlab_itself_wrote(tmp_path):
    """SciPy brings files of MATLAB 6.1 (Sun, big-endian) to 7.4 (Linux, packed) for its own tests, in most packages."""
    import scipy.io.matlab

    folder = Path(scipy.io.matlab.__file__).parent / "tests" / "data"
    shapes = {"testdouble": (1, 9), "testmatrix": (3, 5), "test3dmatrix": (2, 3, 4), "testminus": (1, 1)}
    paths = [path for name in shapes for path in sorted(folder.glob(f"{name}_[67].*.mat"))]
    if not paths:
        pytest.skip("this SciPy comes without its test files")
    assert len(paths) == 16
    for path in paths:
        name = path.name.partition("_")[0]
        array = read_mat(path, {name: Expected(shapes[name], ("<f8",))})[name]
        assert np.array_equal(array, loadmat(path)[name]), path.name
    with pytest.raises(BrokenFile, match="the packing is damaged .*incorrect data check"):
        read_mat(folder / "corrupted_zlib_checksum.mat", {"a": Expected((1, 1000))})
    with pytest.raises(BrokenFile, match="version 0x0200; only 0x0100"):
        read_mat(folder / "testhdf5_7.4_GLNX86.mat", {"a": Expected((1, 1000))})


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    "changes, message",
    [
        ({"X": NUMBERS.astype(np.int16)}, "X is of MATLAB's class and flags 0x000a, not .u1"),
        ({"X": NUMBERS.astype(np.int8)}, "class and flags 0x0008"),
        ({"X": NUMBERS.astype(np.float64)}, "class and flags 0x0006|more than the"),
        ({"y": LABELS.astype(np.float32)}, "y is of MATLAB's class and flags 0x0007, not .u1, <f8"),
        ({"y": LABELS * 1j}, "class and flags 0x0806"),
        ({"y": LABELS > 3}, "class and flags 0x0209"),
        ({"y": np.array(["1", "2"])}, "class and flags 0x0004"),
        ({"y": np.array([[LABELS, "x"]], object)}, "class and flags 0x0001"),
        ({"y": {"field": LABELS}}, "class and flags 0x0002"),
        ({"X": NUMBERS[..., :4]}, r"X has shape \[4, 3, 2, 4\]; expected is \[4, 3, 2, 5\]"),
        ({"X": NUMBERS.transpose(3, 2, 0, 1)}, r"X has shape \[5, 2, 4, 3\]"),
        ({"X": NUMBERS.reshape(12, 10)}, r"X has shape \[12, 10\]"),
        ({"y": LABELS.T}, r"y has shape \[1, 5\]; expected is \[5, 1\]"),
        ({"z": LABELS}, "holds a variable 'z'; expected are X, y"),
    ],
)
def test_refuses_other_variables(tmp_path, packed, changes, message):
    assert set(read_mat(small(tmp_path, packed), SMALL)) == {"X", "y"}
    with pytest.raises(BrokenFile, match=f"small.mat: .*({message})"):
        read_mat(small(tmp_path, packed, **changes), SMALL)


def test_refuses_wrong_names_doubles_and_gaps(tmp_path):
    x, y = honest()
    for elements, message in (
        ((x,), "lacks y"),
        ((), "lacks X, y"),
        ((x, y, y), "holds y twice"),
        ((x, matrix("<", b"Y", LABELS, "u1", 2)), "holds a variable 'Y'"),
        ((x, matrix("<", b"", LABELS, "u1", 2)), "the name of a variable: 0 bytes"),
        ((x, matrix("<", b"y\0", LABELS, "u1", 2)), "holds a variable 'y.x00'"),
        ((x, matrix("<", b"y" * 64, LABELS, "u1", 2)), "the name of a variable: 64 bytes"),
        ((x, matrix("<", b"y", LABELS, "u2", 4)), "the numbers of y are stored as type 4, which does not fit .u1"),
        ((x, matrix("<", b"y", LABELS, "i8", 12, flags=6)), "stored as type 12, which does not fit <f8"),
        ((x, element("<", 1, b"code")), "is cut short|holds an element of type"),
        ((x, element("<", 14, b"")), "0 bytes are left of a variable, 8 needed"),
        ((x, packed_element("<", packed_element("<", y))), "an element of type 15; allowed are matrices"),
        ((x, packed_element("<", y + y)), "more than its array is packed with it"),
        ((x, packed_element("<", y)[:-1]), "y is cut short, or more"),
        ((x, struct.pack("<II", 15, 99) + b"no zlib here" * 9), "the packing is damaged"),
    ):
        with pytest.raises(BrokenFile, match=message):
            read_mat(put(tmp_path, *elements), SMALL)
    late = bytearray(packed_element("<", y) + b"late")
    late[4] += 4  # bytes after the packed stream, inside of its element
    with pytest.raises(BrokenFile, match="more than its array is packed with it"):
        read_mat(put(tmp_path, x, bytes(late)), SMALL)
    unchecked = zlib.compress(y)[:-4]  # all numbers, without zlib's checksum
    with pytest.raises(BrokenFile, match="y is cut short, or more"):
        read_mat(put(tmp_path, x, struct.pack("<II", 15, len(unchecked)) + unchecked), SMALL)
    with pytest.raises(BrokenFile, match="is cut short or no MATLAB file of version 5"):
        read_mat(put(tmp_path, x, y, head=b"PK" * 64), SMALL)


@pytest.mark.parametrize("packed", [True, False])
def test_refuses_cut_and_lengthened_files(tmp_path, packed):
    path = small(tmp_path, packed)
    content = path.read_bytes()
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        with pytest.raises(BrokenFile, match="small.mat: "):
            read_mat(path, SMALL)
    for more in (b"\0", bytes(8), bytes(100), content[128:]):
        path.write_bytes(content + more)
        with pytest.raises(BrokenFile, match="small.mat: "):
            read_mat(path, SMALL)
    path.write_bytes(content + bytes(20_000))
    with pytest.raises(BrokenFile, match="has 20,.* bytes, more than the 8,"):
        read_mat(path, SMALL)


@pytest.mark.parametrize("packed", [True, False])
def test_any_change_of_a_byte_is_read_or_refused(tmp_path, packed):
    """In a packed file nothing is ever altered unseen (zlib's checksum); else at most numbers are, never a shape."""
    path = small(tmp_path, packed)
    content = path.read_bytes()
    refused = 0
    for where in range(len(content)):
        for change in (0x01, 0x10, 0x80, 0xFF):
            altered = bytearray(content)
            altered[where] ^= change
            path.write_bytes(altered)
            try:
                arrays = read_mat(path, SMALL)
            except BrokenFile as error:
                assert "small.mat: " in str(error)
                refused += 1
                continue
            assert arrays["X"].shape == NUMBERS.shape and arrays["X"].dtype == np.uint8
            assert arrays["y"].shape == LABELS.shape and set(arrays) == {"X", "y"}
            same = np.array_equal(arrays["X"], NUMBERS) and np.array_equal(arrays["y"], LABELS)
            assert same or not packed
    assert refused > len(content) - 124  # not all changes of the header's text, the filling and the numbers show


def test_what_is_reserved_is_bounded(tmp_path):
    """An honest packed file takes its arrays and some 100 KB; a bomb or a promise takes no more."""
    expected = {"X": Expected((100, 100, 3, 100))}
    x = np.zeros((100, 100, 3, 100), np.uint8)
    x[7] = 1
    whole = matrix("<", b"X", x, "u1", 2)
    endless = packed_element("<", whole + bytes(10**8))
    huge = bytearray(whole)
    huge[4:8] = struct.pack("<I", 2**32 - 8)  # the variable's size
    sizes = whole.replace(struct.pack("<4i", *x.shape), struct.pack("<4i", 2**31 - 1, 2**31 - 1, 3, 100))
    numbers = whole.replace(struct.pack("<II", 2, x.size), struct.pack("<II", 2, 2**32 - 8))
    long = element("<", 14, element("<", 6, bytes(8)) + struct.pack("<II", 5, 2**31 - 8) + bytes(100))
    assert sizes != whole and numbers != whole
    for content, message in (
        (packed_element("<", whole), None),
        (endless, "more than its array is packed with it"),
        (packed_element("<", bytes(10**8)), "an element of type 0"),
        (packed_element("<", bytes(huge)), "4,291,967,.*bytes too many belong to X"),
        (bytes(huge), "bytes too many"),
        (packed_element("<", sizes), "X has shape .2147483647, 2147483647, 3, 100."),
        (packed_element("<", numbers), "comes with 4,294,967,288 bytes; needed are 3,000,000"),
        (packed_element("<", long), "the sizes of a variable: 2,147,483,640 bytes"),
        (struct.pack("<II", 15, 2**32 - 1) + zlib.compress(whole), "X is cut short, or more"),
    ):
        path = put(tmp_path, content)
        tracemalloc.start()
        try:
            if message is None:
                assert read_mat(path, expected)["X"].shape == x.shape
            else:
                with pytest.raises(BrokenFile, match=message):
                    read_mat(path, expected)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < x.nbytes + 400_000, message


def test_official_sizes_are_the_rule(tmp_path):
    x, y = np.zeros((32, 32, 3, 3), np.uint8), np.ones((3, 1), np.uint8)
    folder = write(tmp_path, {part: {"X": x, "y": y} for part in COUNTS})
    with pytest.raises(BrokenFile, match=r"X has shape \[32, 32, 3, 3\]; expected is \[32, 32, 3, 73257\]"):
        read_svhn(folder)
    assert house_numbers.COUNTS == {"train": 73_257, "test": 26_032}


def test_what_is_fetched_is_what_the_loader_reads(server, monkeypatch, tmp_path, variables):
    made = write(tmp_path / "made", variables)
    files = []
    for file in SVHN.files:
        content = (made.parent / file.path).read_bytes()
        server.content[file.path] = content
        published = "sha256:" + hashlib.sha256(content).hexdigest()
        files.append(dataclasses.replace(file, published=published, size=len(content), urls=(server.url(file.path),)))
    monkeypatch.setitem(SOURCES, "svhn", dataclasses.replace(SVHN, files=tuple(files)))
    root = tmp_path / "root"
    with pytest.raises(DataNotFound, match="for: svhn/train_32x32.mat, svhn/test_32x32.mat\nTo fetch it: fedbook data"):
        data.load("svhn", root=root)
    report = fetch("svhn", root)
    assert report.ok and report.action == "fetched" and server.asked == [file.path for file in files]
    assert "sha256" in report.as_text() and "non-commercial" in report.as_text()
    assert len(data.load("svhn", root=root).train_y) == 23
    path = root / "svhn" / "test_32x32.mat"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert [file.state for file in verify("svhn", root).files] == ["ok", "wrong checksum"]
    server.content["svhn/test_32x32.mat"] = b"x" * files[1].size
    with pytest.raises(FetchFailed):
        fetch("svhn", root)
    assert path.read_bytes()[-1:] == b"x"  # nothing was changed


@pytest.mark.parametrize("bad", [None, 3, float("nan"), b"x"])
def test_bad_arguments(tmp_path, bad):
    with pytest.raises((TypeError, ValueError)):
        read_svhn(bad)
    with pytest.raises((TypeError, ValueError)):
        read_mat(bad, SMALL)
    path = small(tmp_path, True)
    for expected in (bad, {}, {"X": bad}, {3: SMALL["X"]}, {"X": Expected((2, 2), ("<i8",))}):
        with pytest.raises((TypeError, ValueError), match="expected.*: got"):
            read_mat(path, expected)
    if bad is not None:
        with pytest.raises((TypeError, ValueError), match="root: got"):
            data.load("svhn", root=bad)

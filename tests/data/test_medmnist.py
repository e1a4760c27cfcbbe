"""PathMNIST on small files of the official layout: read, fetched from the loopback interface, refused."""

import dataclasses
import hashlib

import numpy as np
import pytest
import torch

from fedbook import data
from fedbook.data import medmnist
from fedbook.data.errors import BrokenFile, DataNotFound, FetchFailed
from fedbook.data.fetch import fetch, verify
from fedbook.data.medmnist import TISSUES, read_pathmnist
from fedbook.data.sources import PATHMNIST, SOURCES

COUNTS = {"train": 20, "val": 5, "test": 9}


@pytest.fixture
def arrays(monkeypatch):
    """Arrays as in the official file, fewer: pixel (r, c) of channel k of image i is i + 2r + 3c + 64k."""
    monkeypatch.setattr(medmnist, "COUNTS", COUNTS)
    i, r, c, k = np.ogrid[:20, :28, :28, :3]
    pixels = ((i + 2 * r + 3 * c + 64 * k) % 256).astype(np.uint8)
    images = {f"{part}_images": pixels[:count] for part, count in COUNTS.items()}
    return images | {f"{part}_labels": np.arange(count, dtype=np.uint8)[:, None] % 9 for part, count in COUNTS.items()}


def write(root, arrays):
    path = root / "pathmnist" / "pathmnist.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)
    return path


def test_reads_channels_first(tmp_path, arrays):
    train_x, train_y, test_x, test_y = read_pathmnist(write(tmp_path, arrays))
    assert train_x.shape == (20, 3, 28, 28) and test_x.shape == (9, 3, 28, 28) and train_x.dtype == np.uint8
    assert train_x[7, 2, 5, 9] == (7 + 10 + 27 + 128) % 256 and test_x[8, 1, 27, 0] == 8 + 54 + 64
    assert np.array_equal(train_x.transpose(0, 2, 3, 1), arrays["train_images"])
    assert (
        train_y.dtype == np.int64 and train_y.tolist() == [n % 9 for n in range(20)] and test_y.tolist() == [*range(9)]
    )


def test_loads_by_name(tmp_path, arrays):
    write(tmp_path, arrays)
    stored = data.load("pathmnist", root=tmp_path, dtype=torch.uint8)
    assert stored.name == "pathmnist" and stored.train_x.shape == (20, 3, 28, 28) and len(stored.test_y) == 9
    assert stored.train_y.dtype == torch.int64 and stored.classes == TISSUES and len(set(TISSUES)) == 9
    scaled = data.load("pathmnist", root=tmp_path)
    assert scaled.test_x.dtype == torch.float32 and torch.equal(scaled.test_x, stored.test_x.float() / 255)


def test_labels_of_eight_bytes_are_read_too(tmp_path, arrays):
    wide = {name: a.astype(np.int64) if "labels" in name else a for name, a in arrays.items()}
    assert read_pathmnist(write(tmp_path, wide))[1].tolist() == [n % 9 for n in range(20)]
    wide["test_labels"] = wide["test_labels"] - 1
    with pytest.raises(BrokenFile, match="test_labels holds -1; allowed are 0 to 8"):
        read_pathmnist(write(tmp_path, wide))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"train_labels": np.full((20, 1), 9, np.uint8)}, "train_labels holds 9; allowed are 0 to 8"),
        ({"train_images": np.zeros((20, 64, 64, 3), np.uint8)}, "train_images unpacks to|shape .20, 64, 64, 3."),
        ({"test_images": np.zeros((9, 28, 28), np.uint8)}, r"test_images.npy has shape \[9, 28, 28\]"),
        ({"test_labels": np.zeros(9, np.uint8)}, r"test_labels.npy has shape \[9\]; expected is \[9, 1\]"),
        ({"train_images": np.zeros((20, 28, 28, 3), np.float16)}, "of type '<f2'; allowed is .u1|unpacks to"),
        ({"extra": np.zeros(3)}, "its entry 'extra.npy' is not expected"),
        ({"val_images": None}, "lacks val_images"),
    ],
)
def test_refuses_other_content(tmp_path, arrays, changes, message):
    changed = {name: array for name, array in {**arrays, **changes}.items() if array is not None}
    with pytest.raises(BrokenFile, match=message):
        data.load("pathmnist", root=write(tmp_path, changed).parents[1])


def test_official_sizes_are_the_rule(tmp_path):
    path = tmp_path / "pathmnist.npz"
    np.savez_compressed(
        path,
        **{f"{part}_images": np.zeros((3, 28, 28, 3), np.uint8) for part in COUNTS},
        **{f"{part}_labels": np.zeros((3, 1), np.uint8) for part in COUNTS},
    )
    with pytest.raises(BrokenFile, match=r"has shape \[3, 28, 28, 3\]; expected is \[89996, 28, 28, 3\]"):
        read_pathmnist(path)
    assert sum(medmnist.COUNTS.values()) == 107_180


def test_what_is_fetched_is_what_the_loader_reads(server, monkeypatch, tmp_path, arrays):
    content = write(tmp_path / "made", arrays).read_bytes()
    server.content["p"] = content
    digest = "md5:" + hashlib.md5(content).hexdigest()
    (file,) = PATHMNIST.files
    small = dataclasses.replace(file, published=digest, size=len(content), urls=(server.url("gone"), server.url("p")))
    monkeypatch.setitem(SOURCES, "pathmnist", dataclasses.replace(PATHMNIST, files=(small,)))
    with pytest.raises(DataNotFound, match="for: pathmnist/pathmnist.npz\nTo fetch it: fedbook data pathmnist"):
        data.load("pathmnist", root=tmp_path / "root")
    report = fetch("pathmnist", tmp_path / "root")
    assert report.ok and report.action == "fetched" and server.asked == ["gone", "p"]
    assert "md5" in report.as_text() and "CC BY 4.0" in report.as_text()
    assert len(data.load("pathmnist", root=tmp_path / "root").train_y) == 20
    path = tmp_path / "root" / "pathmnist" / "pathmnist.npz"
    path.write_bytes(content[:-1] + b"x")
    assert verify("pathmnist", tmp_path / "root").files[0].state == "wrong checksum"
    server.content["p"] = content[:-1] + b"x"
    with pytest.raises(FetchFailed):
        fetch("pathmnist", tmp_path / "root")
    assert path.read_bytes()[-1:] == b"x"  # nothing was changed


@pytest.mark.parametrize("bad", [None, 3, float("nan"), b"x"])
def test_bad_arguments(bad):
    with pytest.raises((TypeError, ValueError)):
        read_pathmnist(bad)
    if bad is not None:
        with pytest.raises((TypeError, ValueError), match="root: got"):
            data.load("pathmnist", root=bad)

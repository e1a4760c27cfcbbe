"""EMNIST on small files of NIST's layout: upright, numbered from 0, fetched from a zip."""

import dataclasses
import hashlib
import io
import zipfile

import numpy as np
import pytest
import torch

from fedbook import data
from fedbook.data.characters import SPLITS, file_names, read_split
from fedbook.data.errors import BrokenFile, DataNotFound
from fedbook.data.fetch import fetch, verify
from fedbook.data.idx import write_idx
from fedbook.data.sources import SOURCES

SMALL = {"byclass": 70, "bymerge": 50, "balanced": 50, "letters": 30, "digits": 12, "mnist": 10_003}


@pytest.fixture
def small(monkeypatch):
    """Splits of few images, every class among them."""
    for split, count in SMALL.items():
        monkeypatch.setitem(SPLITS, split, SPLITS[split]._replace(train=count, test=len(SPLITS[split].classes)))


def upright(count):
    """Pictures of an F, shifted from image to image: no turn or reflection leaves one as it is."""
    x = np.zeros((count, 28, 28), np.uint8)
    for i, picture in enumerate(x):
        top, left = i % 7, i // 7 % 11
        picture[top + 2 : top + 20, left + 4] = 200
        picture[top + 2, left + 4 : left + 15] = 100 + i % 100
        picture[top + 9, left + 4 : left + 11] = 255
    return x


def files_of(folder, split):
    """The four files as NIST stores them: mirrored left to right, then turned by 90 degrees anticlockwise."""
    folder.mkdir(parents=True, exist_ok=True)
    about, names = SPLITS[split], file_names(split)
    for images, labels, count in ((*names[:2], about.train), (*names[2:], about.test)):
        stored = np.rot90(upright(count)[:, :, ::-1], axes=(1, 2))
        write_idx(folder / images, np.ascontiguousarray(stored))
        write_idx(folder / labels, (np.arange(count) % len(about.classes) + about.first).astype(np.uint8))


@pytest.mark.parametrize("split", SPLITS)
def test_images_are_upright_and_labels_start_at_0(tmp_path, small, split):
    files_of(tmp_path / "emnist/gzip", split)
    images = data.load("emnist", dtype=torch.uint8, root=tmp_path, split=split)
    about = SPLITS[split]
    assert images.train_x.dtype == torch.uint8 and images.train_y.dtype == torch.int64
    assert torch.equal(images.train_x, torch.from_numpy(upright(about.train))[:, None])  # beyond 10,000 rows too
    assert torch.equal(images.test_x, torch.from_numpy(upright(about.test))[:, None])
    assert torch.equal(images.train_y, torch.arange(about.train) % len(images.classes))
    assert images.test_y.tolist() == list(range(len(images.classes)))
    assert images.train_writer is None and images.writers == ()
    images.train_x[0] = 1  # writable


def test_the_classes_are_those_of_the_mapping_files():
    """A mapping file gives the code of each class's character; these are its corners and counts."""
    codes = {split: [ord(name) for name in about.classes] for split, about in SPLITS.items()}
    assert [len(codes[split]) for split in SPLITS] == [62, 47, 47, 26, 10, 10]
    assert codes["byclass"] == [*range(48, 58), *range(65, 91), *range(97, 123)]
    assert codes["balanced"] == codes["bymerge"]
    assert codes["balanced"][36:] == [97, 98, 100, 101, 102, 103, 104, 110, 113, 114, 116]
    assert codes["letters"] == [*range(65, 91)] and codes["digits"] == codes["mnist"] == [*range(48, 58)]
    totals = [about.train + about.test for about in SPLITS.values()]  # as NIST's page counts them
    assert totals == [814_255, 814_255, 131_600, 145_600, 280_000, 70_000]


def test_scaled_values_and_the_default_split(tmp_path, small):
    files_of(tmp_path / "emnist/gzip", "balanced")
    images = data.emnist(tmp_path)
    assert images.train_x.dtype == torch.float32 and images.train_x.max() == 1 and len(images.classes) == 47
    with pytest.raises(DataNotFound, match="emnist-letters-train-images"):
        data.emnist(tmp_path, split="letters")


@pytest.mark.parametrize(("split", "label", "allowed"), [("letters", 0, "1 to 26"), ("digits", 10, "0 to 9")])
def test_a_label_out_of_range_is_refused(tmp_path, small, split, label, allowed):
    files_of(tmp_path, split)
    labels = np.arange(len(SPLITS[split].classes)).astype(np.uint8) + SPLITS[split].first
    labels[3] = label
    write_idx(tmp_path / file_names(split)[3], labels)
    with pytest.raises(BrokenFile, match=f"{split}-test-labels.*holds the label {label}; allowed are {allowed}"):
        read_split(tmp_path, split)


def test_a_wrong_number_of_images_is_refused(tmp_path, small, monkeypatch):
    files_of(tmp_path / "emnist/gzip", "letters")
    monkeypatch.setitem(SPLITS, "letters", SPLITS["letters"]._replace(train=124_800))
    with pytest.raises(BrokenFile, match=r"letters-train-images.*has shape \[30, 28, 28\]; expected is \[124800, 28"):
        data.emnist(tmp_path, split="letters")


def test_it_is_fetched_from_the_zip(tmp_path, small, server, monkeypatch):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        for split in sorted(SPLITS):
            files_of(tmp_path / "made", split)
            packed.writestr(f"gzip/emnist-{split}-mapping.txt", "0 48\n")
            for name in file_names(split):
                packed.write(tmp_path / "made" / name, f"gzip/{name}")
    server.content["gzip.zip"] = out.getvalue()
    checksum, size = "sha256:" + hashlib.sha256(out.getvalue()).hexdigest(), len(out.getvalue())
    archive = dataclasses.replace(
        SOURCES["emnist"].archive, published=checksum, size=size, urls=(server.url("gzip.zip"),)
    )
    monkeypatch.setitem(SOURCES, "emnist", dataclasses.replace(SOURCES["emnist"], archive=archive))
    root = tmp_path / "root"
    before = verify("emnist", root)
    assert not before.ok and len(before.files) == 24 and "fedbook data emnist" in before.as_text()
    report = fetch("emnist", root)
    assert report.ok and {file.state for file in report.files} == {"present"} and server.asked == ["gzip.zip"]
    assert "complete, 24 files" in report.as_text() and "cite G. Cohen" in report.as_text()
    found = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    assert found == sorted(SOURCES["emnist"].paths)  # neither the mappings nor the archive stay
    for split in ("letters", "digits"):
        images = data.emnist(root, torch.uint8, split)
        assert torch.equal(images.train_x[:, 0], torch.from_numpy(upright(SMALL[split])))
    (root / "emnist/gzip" / file_names("letters")[0]).unlink()
    assert fetch("emnist", root).ok and len(server.asked) == 2

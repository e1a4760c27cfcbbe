"""CIFAR-100 on small files of the official layout: both kinds of labels, names proved, hostile pickles refused."""

import dataclasses
import hashlib
import io
import os
import pickle
import tarfile

import numpy as np
import pytest
import torch

from fedbook import data
from fedbook.data import cifar
from fedbook.data.cifar import NAMES, PARENTS, read_cifar100
from fedbook.data.errors import BrokenFile, DataNotFound
from fedbook.data.fetch import fetch, verify
from fedbook.data.sources import CIFAR100, SOURCES

COUNTS = {"train": 110, "test": 13}
# The superclass of each of the hundred classes, in their order, as those who train on CIFAR-100 pass it on.
KNOWN = (
    "4 1 14 8 0 6 7 7 18 3 3 14 9 18 7 11 3 9 7 11 6 11 5 10 7 6 13 15 3 15 0 11 1 10 12 14 16 9 11 5 5 19 8 8 15 "
    "13 14 17 18 10 16 4 17 4 2 0 17 4 18 17 10 3 2 12 12 16 12 1 9 19 2 10 0 1 16 12 9 13 15 13 16 19 2 4 6 19 5 5 "
    "8 19 18 1 2 15 6 0 17 8 14 13"
)


def official_meta():
    """The publisher's file ``meta``, put together here: Python 2's pickle of two lists of names."""
    program, places = b"\x80\2}q\1(", iter(range(2, 256))
    for kind, names in NAMES.items():
        texts = [f"{kind}_label_names", None, *names]  # None: the place of the list
        for text in texts:
            program += b"]" if text is None else b"U" + bytes([len(text)]) + text.encode()
            program += b"q" + bytes([next(places)]) + (b"(" if text is None else b"")
        program += b"e"
    return program + b"u."


def batch(count, **changes):
    """Rows as in the official files: pixel 0 of each colour names the row; labels in turn, from 99 down."""
    pixels = np.zeros((count, 3_072), np.uint8)
    pixels[:, 0], pixels[:, 1_024], pixels[:, 3_071] = np.arange(count), 100, np.arange(count)[::-1]
    fine = [99 - n % 100 for n in range(count)]
    content = {
        b"filenames": [b"x_s_000001.png"] * count,
        b"batch_label": b"training batch 1 of 1",
        b"fine_labels": fine,
        b"coarse_labels": [int(PARENTS[label]) for label in fine],
        b"data": pixels,
    }
    return content | {key.encode(): value for key, value in changes.items()}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data root's folder with small files."""
    monkeypatch.setattr(cifar, "COUNTS", COUNTS)
    place = tmp_path / "cifar-100-python"
    place.mkdir()
    for part, count in COUNTS.items():
        (place / part).write_bytes(pickle.dumps(batch(count), 3))
    (place / "meta").write_bytes(official_meta())
    return place


def test_the_names_are_the_publisher_s():
    """Proved by the published checksum of the file that holds them."""
    assert "md5:" + hashlib.md5(official_meta()).hexdigest() == CIFAR100.files[2].published
    assert len(NAMES["fine"]) == len(set(NAMES["fine"])) == 100 and len(NAMES["coarse"]) == 20
    assert PARENTS.tolist() == [int(n) for n in KNOWN.split()] and np.bincount(PARENTS).tolist() == [5] * 20


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_reads_both_kinds_of_labels(folder, protocol):
    for part, count in COUNTS.items():
        (folder / part).write_bytes(pickle.dumps(batch(count), protocol))
    (folder / "meta").write_bytes(pickle.dumps({f"{kind}_label_names": [*names] for kind, names in NAMES.items()}, 2))
    fine, coarse = read_cifar100(folder, "fine"), read_cifar100(folder, "coarse")
    assert fine[0].shape == (110, 3, 32, 32) and fine[2].shape == (13, 3, 32, 32) and fine[0].dtype == np.uint8
    assert fine[0][:, 0, 0, 0].tolist() == [*range(110)] and (fine[0][:, 1, 0, 0] == 100).all()
    assert fine[2][:, 2, 31, 31].tolist() == [*range(13)][::-1]
    assert fine[1].dtype == np.int64 and fine[1][:3].tolist() == [99, 98, 97] and fine[1][105] == 94
    assert coarse[1].tolist() == PARENTS[fine[1]].tolist() and coarse[3].tolist() == PARENTS[fine[3]].tolist()
    assert np.array_equal(fine[0], coarse[0])


def test_loads_by_name(folder, tmp_path):
    stored = data.load("cifar100", root=tmp_path, dtype=torch.uint8)
    assert stored.name == "cifar100" and stored.train_x.shape == (110, 3, 32, 32) and len(stored.test_y) == 13
    assert stored.classes[:2] == ("apple", "aquarium_fish") and stored.classes[99] == "worm"
    assert stored.train_y.dtype == torch.int64 and stored.train_y[0] == 99
    stored.train_x[0] = 1  # writable
    coarse = data.load("cifar100", root=tmp_path, labels="coarse")
    assert coarse.classes == NAMES["coarse"] and coarse.classes[coarse.train_y[0]] == "non-insect_invertebrates"
    assert coarse.test_x.dtype == torch.float32 and torch.equal(coarse.test_x, stored.test_x.float() / 255)
    (folder / "meta").unlink()
    with pytest.raises(DataNotFound, match="for: cifar-100-python/meta\nTo fetch it: fedbook data cifar100"):
        data.load("cifar100", root=tmp_path)


WRONG = {
    "fine label too large": (batch(13, fine_labels=[100] * 13), "fine_labels holds something else than .* 0..99"),
    "coarse label too large": (batch(13, coarse_labels=[20] * 13), "coarse_labels holds something else than .* 0..19"),
    "negative label": (batch(13, fine_labels=[-1] * 13), "whole numbers in 0..99"),
    "labels disagree": (
        batch(13, fine_labels=[99] * 6 + [0] + [99] * 6, coarse_labels=[13] * 13),
        "image 6 is called apple and put among non-insect_invertebrates",
    ),
    "too few labels": (batch(13, coarse_labels=[13] * 12), "expected is a list of 13"),
    "another number of images": (batch(14), r"data has shape \[14, 3072\]; expected is \[13, 3072\]"),
    "another shape": (batch(13, data=np.zeros((13, 32, 32, 3), np.uint8)), r"data has shape \[13, 32, 32, 3\]"),
    "another dtype": (batch(13, data=np.zeros((13, 3_072), np.int8)), "dtype .*i1.*; allowed is u1"),
    "objects": (batch(13, data=np.array([[None]], object)), "dtype .*O8"),
    "CIFAR-10": ({b"data": batch(13)[b"data"], b"labels": [1] * 13}, "has no fine_labels, coarse_labels"),
}


@pytest.mark.parametrize("content, message", WRONG.values(), ids=WRONG)
def test_refuses_wrong_content(folder, content, message):
    (folder / "test").write_bytes(pickle.dumps(content, 3))
    with pytest.raises(BrokenFile, match=f"cifar-100-python/test: .*{message}"):
        read_cifar100(folder, "fine")


def test_refuses_other_names(folder):
    wrong = dict(NAMES, coarse=NAMES["coarse"][::-1])
    for names in (wrong, {"fine": NAMES["fine"]}, {"fine": NAMES["fine"], "coarse": 3}):
        lists = {f"{kind}_label_names": list(words) if words != 3 else 3 for kind, words in names.items()}
        (folder / "meta").write_bytes(pickle.dumps(lists, 2))
        with pytest.raises(
            BrokenFile, match="meta: coarse_label_names is not the list aquatic_mammals, ... vehicles_2"
        ):
            read_cifar100(folder, "fine")


class Runs:
    """Unpickling this makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("name", ["train", "test", "meta"])
def test_hostile_pickles_are_refused_and_not_run(folder, tmp_path, name):
    trap = tmp_path / "trap"
    honest = (
        {f"{kind}_label_names": [*names] for kind, names in NAMES.items()} if name == "meta" else batch(COUNTS[name])
    )
    (folder / name).write_bytes(pickle.dumps(honest | {b"more": Runs(trap)}, 3))
    with pytest.raises(BrokenFile, match=f"{name}: refused: the pickle asks for .*mkdir"):
        read_cifar100(folder, "fine")
    assert not trap.exists()


def test_refuses_cut_and_lengthened_files(folder):
    for name in ("train", "test", "meta"):
        content = (folder / name).read_bytes()
        for changed in (content[: len(content) // 2], content[:-1], b"", content + b"x", content + bytes(200_000)):
            (folder / name).write_bytes(changed)
            with pytest.raises(BrokenFile, match=f"cifar-100-python/{name}: "):
                read_cifar100(folder, "fine")
        (folder / name).write_bytes(content)
    assert len(read_cifar100(folder, "fine")) == 4


@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")  # from within pickletools
def test_any_change_of_a_byte_is_read_or_refused(folder):
    """Every byte of the names and labels, and some of the pixels."""
    refused = 0
    for name in ("test", "meta"):
        content = (folder / name).read_bytes()
        pixels = content.find(batch(13)[b"data"].tobytes()) if name == "test" else len(content)
        for where in [*range(0, pixels), *range(pixels, len(content), 997), *range(len(content) - 9, len(content))]:
            altered = bytearray(content)
            altered[where] ^= 1 << where % 8
            (folder / name).write_bytes(altered)
            try:
                arrays = read_cifar100(folder, "coarse")
            except BrokenFile as error:
                assert f"cifar-100-python/{name}: " in str(error)
                refused += 1
                continue
            assert arrays[2].shape == (13, 3, 32, 32) and arrays[3].tolist() == [
                int(PARENTS[99 - n]) for n in range(13)
            ]
        (folder / name).write_bytes(content)
    assert refused > 1_000


def test_official_sizes_are_the_rule(folder, monkeypatch):
    monkeypatch.undo()
    with pytest.raises(BrokenFile, match=r"train: data has shape \[110, 3072\]; expected is \[50000, 3072\]"):
        read_cifar100(folder, "fine")
    assert cifar.COUNTS == {"train": 50_000, "test": 10_000}
    assert CIFAR100.part_limit > 155_249_918  # bytes of the official training file


def test_it_is_fetched_from_the_archive(folder, tmp_path, server, monkeypatch):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        packed.add(folder, "cifar-100-python", recursive=False)
        for name, content in [("file.txt~", b""), *((n, (folder / n).read_bytes()) for n in ("train", "test", "meta"))]:
            entry = tarfile.TarInfo(f"cifar-100-python/{name}")
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    server.content["c.tar.gz"] = out.getvalue()
    archive = dataclasses.replace(
        CIFAR100.archive,
        published="md5:" + hashlib.md5(out.getvalue()).hexdigest(),
        size=len(out.getvalue()),
        urls=(server.url("c.tar.gz"),),
    )
    files = tuple(
        dataclasses.replace(f, published="md5:" + hashlib.md5((tmp_path / f.path).read_bytes()).hexdigest())
        for f in CIFAR100.files
    )
    assert files[2] == CIFAR100.files[2]  # the names' file is the publisher's own
    monkeypatch.setitem(SOURCES, "cifar100", dataclasses.replace(CIFAR100, files=files, archive=archive))
    root = tmp_path / "root"
    assert not verify("cifar100", root).ok
    report = fetch("cifar100", root)
    assert report.ok and report.action == "fetched" and server.asked == ["c.tar.gz"]
    assert "cite A. Krizhevsky" in report.as_text() and "complete, 3 files" in report.as_text()
    assert sorted(path.name for path in root.rglob("*")) == ["cifar-100-python", "meta", "test", "train"]
    assert len(data.load("cifar100", root=root).test_y) == 13


@pytest.mark.parametrize("bad", [None, 3, float("nan"), b"fine", "both", True])
def test_bad_arguments(tmp_path, bad):
    with pytest.raises((TypeError, ValueError), match="labels: got .*; allowed is one of coarse, fine"):
        data.load("cifar100", labels=bad, root=tmp_path)
    if bad not in (None, "both"):
        with pytest.raises((TypeError, ValueError), match="root: got"):
            data.load("cifar100", root=bad)

"""The datasets that lie in files of arrays: what ships, small files of each official layout, refusals by name."""

import dataclasses
import hashlib
import pickle

import numpy as np
import pytest
import torch
from scipy.io import savemat

from fedbook import data
from fedbook.data import BrokenFile, DataNotFound
from fedbook.data.cifar import NAMES, PARENTS
from fedbook.data.formats import read_idx, write_idx
from fedbook.data.images import SPLITS, keyed_rows, make_fashion_mnist
from fedbook.data.sources import SOURCES

MNIST_FILES = [path.rpartition("/")[2] for path in SOURCES["mnist"].paths]
MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def check(images, train, test, pixels, train_counts, test_counts):
    assert images.train_x.shape == (train, *pixels) and images.test_x.shape == (test, *pixels)
    assert images.train_y.dtype == images.test_y.dtype == torch.int64
    assert torch.bincount(images.train_y).tolist() == train_counts
    assert torch.bincount(images.test_y).tolist() == test_counts
    assert len(images.classes) == 10 and all(isinstance(name, str) for name in images.classes)


def small(monkeypatch, name, **changes):
    """The dataset ``name`` of fewer images, or of other files."""
    monkeypatch.setitem(SOURCES, name, dataclasses.replace(SOURCES[name], **changes))


def test_mnist():
    stored, scaled = data.mnist(dtype=torch.uint8), data.mnist()
    check(stored, 60_000, 10_000, (1, 28, 28), MNIST_TRAIN, MNIST_TEST)
    assert stored.train_y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert abs(stored.train_x.double().mean() / 255 - 0.1307) < 5e-5
    assert scaled.test_x.dtype == torch.float32 and torch.equal(scaled.test_x, stored.test_x.float() / 255)


def test_fashion_mnist_subset():
    images = data.fashion_mnist(dtype=torch.uint8)
    check(images, 20_000, 5_000, (1, 28, 28), [2_000] * 10, [500] * 10)
    assert images.classes[9] == "Ankle boot"
    assert abs(images.train_x.double().mean() / 255 - 0.2860) < 2e-3  # the full set's mean


def test_digits():
    from sklearn.datasets import load_digits

    images = data.digits(dtype=torch.uint8)
    train = [142, 146, 142, 146, 145, 146, 145, 143, 139, 144]
    check(images, 1_438, 359, (1, 8, 8), train, [36, 36, 35, 37, 36, 36, 36, 36, 35, 36])
    both = torch.cat([images.train_x, images.test_x]).flatten(1).tolist()
    assert sorted(both) == sorted(load_digits().data.astype(int).tolist())
    assert torch.equal(data.digits().test_x, images.test_x / 16) and images.train_x.max() == 16


def test_breast_cancer():
    from sklearn.datasets import load_breast_cancer

    table, bunch = data.load("breast_cancer"), load_breast_cancer()
    assert table.train_x.shape == (456, 30) and table.test_x.shape == (113, 30)
    assert table.classes == ("benign", "malignant")
    assert bunch.target_names.tolist() == ["malignant", "benign"]  # the other way round
    assert torch.bincount(table.train_y).tolist() == [286, 170] and torch.bincount(table.test_y).tolist() == [71, 42]
    x = torch.cat([table.train_x, table.test_x]).double().numpy()
    scale = bunch.data.std(0) / x.std(0)  # undoes any shift and scale of columns
    back = x * scale + (bunch.data.mean(0) - x.mean(0) * scale)
    nearest = np.abs((back[:, None] - bunch.data) / bunch.data.std(0)).max(-1).argmin(1)
    assert sorted(nearest) == list(range(569))
    assert np.array_equal(torch.cat([table.train_y, table.test_y]), 1 - bunch.target[nearest])
    train = nearest[:456]
    assert (np.diff(train) > 0).all() and train[:6].tolist() == [1, 2, 4, 6, 7, 8]  # on every machine
    mean, std = bunch.data[train].mean(0), bunch.data[train].std(0)
    assert np.allclose(table.test_x, (bunch.data[nearest[456:]] - mean) / std, atol=1e-5)


@pytest.fixture(scope="module")
def full_fashion_mnist(tmp_path_factory):
    """Files of the full set's shape: cheap pictures that name their row, labels in turn."""
    folder = tmp_path_factory.mktemp("root") / "fashion-mnist"
    folder.mkdir()
    for split, count in (("train", 60_000), ("t10k", 10_000)):
        x = np.zeros((count, 28, 28), np.uint8)
        x[:, 0, :4] = np.arange(count, dtype=np.uint32).view(np.uint8).reshape(count, 4)
        write_idx(folder / f"{split}-images-idx3-ubyte.gz", x)
        write_idx(folder / f"{split}-labels-idx1-ubyte.gz", (np.arange(count) % 10).astype(np.uint8))
    return folder


def test_the_subset_is_a_function_of_the_full_files(tmp_path, full_fashion_mnist):
    """Made twice: the same bytes. Chosen while reading: the same images."""
    root = full_fashion_mnist.parent
    for name in ("one", "two"):
        assert [path.name for path in make_fashion_mnist(full_fashion_mnist, tmp_path / name)] == MNIST_FILES
    for name in MNIST_FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    chosen = data.fashion_mnist(root, torch.uint8)
    check(chosen, 20_000, 5_000, (1, 28, 28), [2_000] * 10, [500] * 10)
    assert np.array_equal(read_idx(tmp_path / "one" / MNIST_FILES[0], (20_000, 28, 28)), chosen.train_x[:, 0])
    assert np.array_equal(read_idx(tmp_path / "one" / MNIST_FILES[3], (5_000,)), chosen.test_y)
    rows = chosen.test_x[:, 0, 0, :4].numpy().copy().view(np.uint32).ravel()
    assert (np.diff(rows.astype(int)) > 0).all() and np.array_equal(rows % 10, chosen.test_y)
    assert len(data.fashion_mnist(root, torch.uint8, "full").train_y) == 60_000


def test_the_rows_of_the_subset_are_fixed():
    """The numbers on every machine and with every NumPy: without them the shipped files could not be made again."""
    rows = keyed_rows(np.arange(60_000) % 10, "fashion_mnist train", 2_000)
    assert rows[:8].tolist() == [0, 1, 4, 10, 16, 18, 20, 21] and len(set(rows.tolist())) == 20_000
    with pytest.raises(ValueError, match="class 0 has 10 rows; needed are 11"):
        keyed_rows(np.arange(100) % 10, "fashion_mnist train", 11)


def test_a_wrong_shape_or_label_is_refused_by_name(tmp_path, monkeypatch):
    (tmp_path / "mnist").mkdir()
    labels = np.array([1, 2, 10, 4, 5], np.uint8)
    for name in MNIST_FILES:
        write_idx(tmp_path / "mnist" / name, np.zeros((5, 28, 28), np.uint8) if "images" in name else labels)
    with pytest.raises(BrokenFile, match=r"train-images-idx3-ubyte.gz: has shape \[5, 28, 28\]; expected is \[60000"):
        data.mnist(tmp_path)
    small(monkeypatch, "mnist", counts=(5, 5))
    with pytest.raises(BrokenFile, match="train-labels-idx1-ubyte.gz: holds the label 10; allowed are 0 to 9"):
        data.mnist(tmp_path)


# CIFAR


def pickled(folder, name, batch, protocol=3):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(pickle.dumps({key.encode(): value for key, value in batch.items()}, protocol))


def pixels(count, first=0):
    """Pixel 0 of red is ``first``, of green 100; the last of blue is the number of the image."""
    x = np.zeros((count, 3_072), np.uint8)
    x[:, 0], x[:, 1_024], x[:, 3_071] = first, 100 + first, np.arange(count) % 256
    return x


def test_cifar10(tmp_path, monkeypatch):
    small(monkeypatch, "cifar10", counts=(100, 20))
    folder, names = tmp_path / "cifar-10-batches-py", list(SOURCES["cifar10"].classes)
    for i, name in enumerate([f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]):
        pickled(folder, name, {"data": pixels(20, i), "labels": [(i + n) % 10 for n in range(20)]}, protocol=3 + i % 2)
    pickled(folder, "batches.meta", {"label_names": names, "num_vis": 3_072})
    images = data.cifar10(tmp_path, torch.uint8)
    check(images, 100, 20, (3, 32, 32), [10] * 10, [2] * 10)
    assert images.train_x[::20, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]  # the batches in their order
    assert images.train_x[::20, 1, 0, 0].tolist() == [100, 101, 102, 103, 104]  # colour planes
    assert images.test_x[:3, 2, 31, 31].tolist() == [0, 1, 2] and images.test_y[:3].tolist() == [5, 6, 7]
    images.test_x[0] = 1  # writable
    pickled(folder, "batches.meta", {"label_names": names[::-1]})
    with pytest.raises(BrokenFile, match="batches.meta: label_names is not the list airplane, ... truck"):
        data.cifar10(tmp_path)
    monkeypatch.undo()
    with pytest.raises(BrokenFile, match=r"data has shape \[20, 3072\]; expected is \[10000, 3072\]"):
        pickled(folder, "batches.meta", {"label_names": names})
        data.cifar10(tmp_path)
    (folder / "test_batch").unlink()
    with pytest.raises(DataNotFound, match="for: cifar-10-batches-py/test_batch"):
        data.cifar10(tmp_path)


def batch(count, **changes):
    fine = [99 - n % 100 for n in range(count)]
    coarse = [int(PARENTS[label]) for label in fine]
    return {"fine_labels": fine, "coarse_labels": coarse, "data": pixels(count)} | changes


def official_meta():
    """The publisher's file ``meta``, put together here: Python 2's pickle of two lists of names."""
    program, places = b"\x80\2}q\1(", iter(range(2, 256))
    for kind, names in NAMES.items():
        for text in [f"{kind}_label_names", None, *names]:  # None: the place of the list
            program += b"]" if text is None else b"U" + bytes([len(text)]) + text.encode()
            program += b"q" + bytes([next(places)]) + (b"(" if text is None else b"")
        program += b"e"
    return program + b"u."


@pytest.fixture
def cifar100(tmp_path, monkeypatch):
    small(monkeypatch, "cifar100", counts=(110, 13))
    for part, count in (("train", 110), ("test", 13)):
        pickled(tmp_path / "cifar-100-python", part, batch(count))
    (tmp_path / "cifar-100-python" / "meta").write_bytes(official_meta())
    return tmp_path


def test_cifar100_has_both_kinds_of_labels(cifar100):
    """The names are proved by the published checksum of the file that holds them."""
    assert "md5:" + hashlib.md5(official_meta()).hexdigest() == SOURCES["cifar100"].files[2].published
    assert len(set(NAMES["fine"])) == 100 and np.bincount(PARENTS).tolist() == [5] * 20
    fine = data.load("cifar100", root=cifar100, dtype=torch.uint8)
    coarse = data.load("cifar100", root=cifar100, labels="coarse")
    assert fine.train_x.shape == (110, 3, 32, 32) and fine.test_x[:, 2, 31, 31].tolist() == [*range(13)]
    assert fine.train_y[:3].tolist() == [99, 98, 97] and fine.classes[99] == "worm"
    assert coarse.classes[coarse.train_y[0]] == "non-insect_invertebrates"
    assert coarse.train_y.tolist() == PARENTS[fine.train_y].tolist()
    assert torch.equal(coarse.test_x, fine.test_x.float() / 255)


@pytest.mark.parametrize(
    "content, message",
    [
        (batch(13, fine_labels=[100] * 13), "fine_labels holds something else than .* 0..99"),
        (batch(13, coarse_labels=[-1] * 13), "coarse_labels holds something else than .* 0..19"),
        (batch(13, coarse_labels=[13] * 13), "image 1 is called woman and put among non-insect_invertebrates"),
        (batch(13, coarse_labels=[13] * 12), "expected is a list of 13"),
        (batch(14), r"data has shape \[14, 3072\]; expected is \[13, 3072\]"),
        (batch(13, data=[[0]]), "data is no array of unsigned bytes"),
        ({"data": pixels(13), "labels": [1] * 13}, "has no fine_labels, coarse_labels"),
    ],
)
def test_cifar_refuses_other_content(cifar100, content, message):
    pickled(cifar100 / "cifar-100-python", "test", content)
    with pytest.raises(BrokenFile, match=f"cifar-100-python/test: .*{message}"):
        data.cifar100(cifar100)


# SVHN, EMNIST, PathMNIST


def test_svhn_is_read_if_it_is_the_published_file(tmp_path, monkeypatch):
    r, c, k, i = np.ogrid[:32, :32, :3, :23]
    x = ((i + 2 * r + 3 * c + 64 * k) % 256).astype(np.uint8)
    (tmp_path / "svhn").mkdir()
    files = []
    for file, count, kind in zip(SOURCES["svhn"].files, (23, 11), (np.uint8, float), strict=True):
        path = tmp_path / file.path
        savemat(
            path, {"X": x[..., :count], "y": (np.arange(count) % 10 + 1)[:, None].astype(kind)}, do_compression=True
        )
        files.append(dataclasses.replace(file, published="sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()))
    with pytest.raises(BrokenFile, match="train_32x32.mat: is not the published file"):
        data.svhn(tmp_path)
    small(monkeypatch, "svhn", files=tuple(files))
    images = data.svhn(tmp_path, torch.uint8)
    assert images.train_x.shape == (23, 3, 32, 32) and images.train_x[5, 2, 7, 11] == (5 + 14 + 33 + 128) % 256
    assert np.array_equal(images.test_x, x[..., :11].transpose(3, 2, 0, 1))
    assert images.train_y.tolist() == [(n + 1) % 10 for n in range(23)] and len(images.test_y) == 11
    images.train_x[0] = 1  # writable


@pytest.fixture
def splits(monkeypatch):
    """Splits of few images, every class among them; one of more than the 10,000 that are turned at a time."""
    for split, about in SPLITS.items():
        count = 10_003 if split == "mnist" else 70
        monkeypatch.setitem(SPLITS, split, about._replace(counts=(count, len(about.classes))))


def upright(count):
    """Pictures of an F, shifted from image to image: no turn or reflection leaves one as it is."""
    x = np.zeros((count, 28, 28), np.uint8)
    for i, picture in enumerate(x):
        top, left = i % 7, i // 7 % 11
        picture[top + 2 : top + 20, left + 4] = 200
        picture[top + 2, left + 4 : left + 15] = 100 + i % 100
        picture[top + 9, left + 4 : left + 11] = 255
    return x


@pytest.mark.parametrize("split", SPLITS)
def test_emnist_is_upright_and_its_labels_start_at_0(tmp_path, splits, split):
    """The files as NIST stores them: mirrored left to right, then turned by 90 degrees anticlockwise."""
    about, folder = SPLITS[split], tmp_path / "emnist/gzip"
    folder.mkdir(parents=True)
    for part, count in zip(("train", "test"), about.counts, strict=True):
        stored = np.rot90(upright(count)[:, :, ::-1], axes=(1, 2))
        write_idx(folder / f"emnist-{split}-{part}-images-idx3-ubyte.gz", stored)
        labels = (np.arange(count) % len(about.classes) + about.first).astype(np.uint8)
        write_idx(folder / f"emnist-{split}-{part}-labels-idx1-ubyte.gz", labels)
    images = data.load("emnist", dtype=torch.uint8, root=tmp_path, split=split)
    assert torch.equal(images.train_x, torch.from_numpy(upright(about.counts[0]))[:, None])
    assert torch.equal(images.train_y, torch.arange(about.counts[0]) % len(images.classes))
    assert images.test_y.tolist() == list(range(len(images.classes))) and images.train_writer is None
    write_idx(folder / f"emnist-{split}-test-labels-idx1-ubyte.gz", labels + np.uint8(1))
    with pytest.raises(BrokenFile, match=f"test-labels.*: holds the label {len(about.classes) + about.first}; allowed"):
        data.emnist(tmp_path, split=split)


def test_emnist_s_classes_are_those_of_the_mapping_files():
    codes = {split: [ord(name) for name in about.classes] for split, about in SPLITS.items()}
    assert [len(codes[split]) for split in SPLITS] == [62, 47, 47, 26, 10, 10]
    assert codes["byclass"] == [*range(48, 58), *range(65, 91), *range(97, 123)]
    assert codes["balanced"] == codes["bymerge"] and codes["letters"] == [*range(65, 91)]
    assert "".join(SPLITS["balanced"].classes[36:]) == "abdefghnqrt"
    paths = SOURCES["emnist"].paths
    assert (
        all(len([path for path in paths if f"emnist-{split}-" in path]) == 4 for split in SPLITS) and len(paths) == 24
    )


@pytest.fixture
def pathmnist(monkeypatch):
    """Arrays as in the official file, fewer: pixel (r, c) of channel k of image i is i + 2r + 3c + 64k."""
    counts = {"train": 20, "val": 5, "test": 9}
    small(monkeypatch, "pathmnist", counts=tuple(counts.values()))
    i, r, c, k = np.ogrid[:20, :28, :28, :3]
    x = ((i + 2 * r + 3 * c + 64 * k) % 256).astype(np.uint8)
    arrays = {f"{part}_images": x[:count] for part, count in counts.items()}
    return arrays | {f"{part}_labels": np.arange(count, dtype=np.uint8)[:, None] % 9 for part, count in counts.items()}


def save(root, arrays):
    (root / "pathmnist").mkdir(exist_ok=True)
    np.savez_compressed(root / "pathmnist" / "pathmnist.npz", **arrays)
    return root


@pytest.mark.parametrize("kind", [np.uint8, np.int64])
def test_pathmnist(tmp_path, pathmnist, kind):
    stored = {name: array.astype(kind) if "labels" in name else array for name, array in pathmnist.items()}
    images = data.load("pathmnist", root=save(tmp_path, stored), dtype=torch.uint8)
    assert images.train_x.shape == (20, 3, 28, 28) and images.train_x[7, 2, 5, 9] == (7 + 10 + 27 + 128) % 256
    assert np.array_equal(images.test_x, pathmnist["test_images"].transpose(0, 3, 1, 2))
    assert images.train_y.tolist() == [n % 9 for n in range(20)] and images.test_y.tolist() == [*range(9)]
    assert len(set(images.classes)) == 9
    for labels in (stored["test_labels"] - kind(1), stored["test_labels"] + kind(1)):
        with pytest.raises(BrokenFile, match="test_labels holds .*; allowed are 0 to 8"):
            data.load("pathmnist", root=save(tmp_path, stored | {"test_labels": labels}))


# all of them


@pytest.mark.parametrize("name", sorted({*data.names()} - {"digits", "breast_cancer", "solids", "time_series"}))
def test_a_missing_dataset_says_what_to_do(tmp_path, name):
    with pytest.raises(DataNotFound, match=f"fedbook data {name}") as caught:
        data.load(name, root=tmp_path)
    assert str(tmp_path) in str(caught.value) and "FEDBOOK_DATA" in str(caught.value)
    source = SOURCES["fashion_mnist_subset" if name == "fashion_mnist" else name]
    assert caught.value.missing[0] in source.paths and list(tmp_path.iterdir()) == []


def test_load_by_name(tmp_path):
    files = {"mnist", "fashion_mnist", "cifar10", "cifar100", "svhn", "emnist", "femnist", "pathmnist", "tiny_imagenet"}
    others = {"digits", "breast_cancer", "solids", "time_series", "modelnet10", "mimic3", "imagenet100"}
    assert set(data.names()) == files | others <= set(SOURCES)
    for call, message in (
        (lambda: data.load("imagenet"), "name: got 'imagenet'; allowed is one of breast_cancer, cifar10, cifar100"),
        (lambda: data.load(3), "name: got 3"),
        (lambda: data.load("mnist", size="full"), "options: got 'size' for dataset 'mnist'; allowed .* root, dtype"),
        (lambda: data.load("fashion_mnist", size="half"), "size: got 'half'; allowed is one of full, subset"),
        (lambda: data.load("emnist", split="big"), "split: got 'big'; allowed is one of balanced, byclass"),
        (
            lambda: data.load("femnist", characters="letters"),
            "characters: got 'letters'; allowed is one of all, digits",
        ),
        (lambda: data.load("cifar100", labels="both"), "labels: got 'both'; allowed is one of coarse, fine"),
        (lambda: data.load("mnist", root=3), "root: got 3"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            call()


@pytest.mark.parametrize("name", sorted({*data.names()} - {"breast_cancer", "time_series", "mimic3"}))  # not images
def test_refuses_other_dtypes(name):
    with pytest.raises(ValueError, match="dtype: got torch.int64; allowed is torch.float32"):
        data.load(name, dtype=torch.int64)
    with pytest.raises(TypeError, match="dtype: got 'float32'"):
        data.load(name, dtype="float32")

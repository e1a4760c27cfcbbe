"""The loaders on the data that ship, and CIFAR-10 on files of the official layout."""

import pickle
import shutil

import numpy as np
import pytest
import torch

from fedbook import data
from fedbook.data import images as module
from fedbook.data.errors import BrokenFile, DataNotFound
from fedbook.data.idx import read_idx, write_idx
from fedbook.data.make import make_fashion_mnist
from fedbook.data.sources import MNIST_FILES
from fedbook.data.subset import subset_rows

MANUAL = {
    "modelnet10": "modelnet10/*/train/*.png",
    "mimic3": "mimic3/mimic3_ihm.npz",
    "imagenet100": "imagenet/train/*/*.JPEG",
    "tiny_imagenet": "tiny-imagenet-200/wnids.txt",
}
MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def check(images, train, test, pixels, train_counts, test_counts):
    assert images.train_x.shape == (train, *pixels) and images.test_x.shape == (test, *pixels)
    assert images.train_y.shape == (train,) and images.test_y.shape == (test,)
    assert images.train_y.dtype == images.test_y.dtype == torch.int64
    assert torch.bincount(images.train_y).tolist() == train_counts
    assert torch.bincount(images.test_y).tolist() == test_counts
    assert len(images.classes) == 10 and all(isinstance(name, str) for name in images.classes)


def test_mnist():
    stored = data.mnist(dtype=torch.uint8)
    check(stored, 60_000, 10_000, (1, 28, 28), MNIST_TRAIN, MNIST_TEST)
    assert stored.train_x.dtype == torch.uint8 and stored.train_x.max() == 255
    assert stored.train_y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert abs(stored.train_x.double().mean() / 255 - 0.1307) < 5e-5
    scaled = data.mnist()
    assert scaled.test_x.dtype == torch.float32 and scaled.test_x.min() == 0 and scaled.test_x.max() == 1
    assert torch.equal(scaled.test_x, stored.test_x.float() / 255)


def test_fashion_mnist_subset():
    images = data.fashion_mnist(dtype=torch.uint8)
    check(images, 20_000, 5_000, (1, 28, 28), [2_000] * 10, [500] * 10)
    assert images.classes[9] == "Ankle boot"
    assert abs(images.train_x.double().mean() / 255 - 0.2860) < 2e-3  # the full set's mean


def test_digits():
    pytest.importorskip("sklearn")
    from sklearn.datasets import load_digits

    images = data.digits(dtype=torch.uint8)
    train = [142, 146, 142, 146, 145, 146, 145, 143, 139, 144]
    check(images, 1_438, 359, (1, 8, 8), train, [36, 36, 35, 37, 36, 36, 36, 36, 35, 36])
    assert images.train_x.max() == 16
    both = torch.cat([images.train_x, images.test_x]).flatten(1).tolist()
    assert sorted(both) == sorted(load_digits().data.astype(int).tolist())
    scaled = data.digits()
    assert torch.equal(scaled.test_x, images.test_x / 16) and scaled.train_x.max() == 1
    assert torch.equal(data.digits().test_y, images.test_y)


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
        assert [path.name for path in make_fashion_mnist(full_fashion_mnist, tmp_path / name)] == list(MNIST_FILES)
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
    rows = subset_rows(np.arange(60_000) % 10, 2_000, "train")
    assert rows[:8].tolist() == ROWS and len(set(rows.tolist())) == 20_000
    with pytest.raises(ValueError, match="class 0 has 10 rows; needed are 11"):
        subset_rows(np.arange(100) % 10, 11, "train")
    with pytest.raises(ValueError, match="split: got 'test'"):
        subset_rows(np.arange(100) % 10, 1, "test")
    with pytest.raises(ValueError, match="per_class: got 0"):
        subset_rows(np.arange(100) % 10, 0, "train")
    with pytest.raises(TypeError, match="labels: got"):
        subset_rows(np.zeros(100), 1, "train")


ROWS = [0, 1, 4, 10, 16, 18, 20, 21]


def cifar10_folder(root, rows=10_000):
    """Files of the official layout, written by Python 3 (the official ones were by Python 2)."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for i, name in enumerate([f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]):
        x = np.zeros((rows, 3_072), np.uint8)
        x[:, 0], x[:, 1024], x[:, 3071] = i, 100 + i, np.arange(rows) % 256
        content = {"data": x, "labels": [(i + n) % 10 for n in range(rows)], "filenames": [b"x.png"] * rows}
        (folder / name).write_bytes(pickle.dumps(content, 4))
    meta = {"label_names": list(module.THINGS), "num_vis": 3_072}
    (folder / "batches.meta").write_bytes(pickle.dumps(meta, 2))
    return folder


def test_cifar10(tmp_path):
    folder = cifar10_folder(tmp_path)
    images = data.cifar10(tmp_path, torch.uint8)
    check(images, 50_000, 10_000, (3, 32, 32), [5_000] * 10, [1_000] * 10)
    assert images.train_x[::10_000, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]  # the batches in their order
    assert images.train_x[::10_000, 1, 0, 0].tolist() == [100, 101, 102, 103, 104]  # colour planes
    assert images.test_x[:3, 2, 31, 31].tolist() == [0, 1, 2] and images.test_y[:3].tolist() == [5, 6, 7]
    images.test_x[0] = 1  # writable
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": list(reversed(module.THINGS))}, 2))
    with pytest.raises(BrokenFile, match="batches.meta: label_names is not the list airplane, "):
        data.cifar10(tmp_path)
    (folder / "test_batch").unlink()
    with pytest.raises(DataNotFound, match="for: cifar-10-batches-py/test_batch"):
        data.cifar10(tmp_path)


def test_a_wrong_shape_is_refused_by_name(tmp_path):
    cifar10_folder(tmp_path, rows=20)
    with pytest.raises(BrokenFile, match=r"data_batch_1: data has shape \[20, 3072\]; expected is \[10000, 3072\]"):
        data.cifar10(tmp_path)
    (tmp_path / "mnist").mkdir()
    for name in MNIST_FILES:
        write_idx(tmp_path / "mnist" / name, np.zeros((5, 28, 28) if "images" in name else (5,), np.uint8))
    with pytest.raises(BrokenFile, match=r"train-images-idx3-ubyte.gz: has shape \[5, 28, 28\]; expected is \[60000"):
        data.mnist(tmp_path)


def test_a_label_out_of_range_is_refused(tmp_path, full_fashion_mnist):
    folder = shutil.copytree(full_fashion_mnist, tmp_path / "fashion-mnist")
    labels = np.arange(10_000, dtype=np.uint32) % 10
    labels[77] = 10
    write_idx(folder / MNIST_FILES[3], labels.astype(np.uint8))
    with pytest.raises(BrokenFile, match="t10k-labels-idx1-ubyte.gz: holds the label 10"):
        data.fashion_mnist(tmp_path, size="full")


@pytest.mark.parametrize(
    "name", ["mnist", "fashion_mnist", "cifar10", "cifar100", "svhn", "emnist", "femnist", "pathmnist", *MANUAL]
)
def test_a_missing_dataset_says_what_to_do(tmp_path, name):
    with pytest.raises(DataNotFound, match=f"fedbook data {name}") as caught:
        data.load(name, root=tmp_path)
    assert str(tmp_path) in str(caught.value) and "FEDBOOK_DATA" in str(caught.value)
    first = {
        "mnist": "mnist/train-images-idx3-ubyte.gz",
        "fashion_mnist": "fashion-mnist/subset/train-images-idx3-ubyte.gz",
        "cifar10": "cifar-10-batches-py/data_batch_1",
        "cifar100": "cifar-100-python/train",
        "svhn": "svhn/train_32x32.mat",
        "emnist": "emnist/gzip/emnist-balanced-train-images-idx3-ubyte.gz",
        "femnist": "femnist/train/*.json",
        "pathmnist": "pathmnist/pathmnist.npz",
        **MANUAL,
    }[name]
    assert caught.value.missing[0] == first
    assert list(tmp_path.iterdir()) == []


def test_load_by_name():
    images = ("digits", "mnist", "fashion_mnist", "cifar10", "cifar100", "svhn", "emnist", "femnist", "pathmnist")
    images += ("tiny_imagenet",)
    vertical = ("breast_cancer", "solids", "time_series", "modelnet10", "mimic3", "imagenet100")
    assert data.names() == (*images, *vertical)
    assert data.load("fashion_mnist", dtype=torch.uint8, size="subset").name == "fashion_mnist"
    with pytest.raises(
        ValueError,
        match="name: got 'imagenet'; allowed is one of breast_cancer, cifar10, cifar100, digits, emnist, fashion_mnist",
    ):
        data.load("imagenet")
    with pytest.raises(TypeError, match="name: got 3"):
        data.load(3)
    with pytest.raises(TypeError, match="options: got 'size' for dataset 'mnist'; allowed is one of root, dtype"):
        data.load("mnist", size="full")
    with pytest.raises(ValueError, match="size: got 'half'; allowed is one of full, subset"):
        data.load("fashion_mnist", size="half")
    with pytest.raises(ValueError, match="split: got 'big'; allowed is one of balanced, byclass"):
        data.load("emnist", split="big")
    with pytest.raises(ValueError, match="characters: got 'letters'; allowed is one of all, digits"):
        data.load("femnist", characters="letters")


@pytest.mark.parametrize("name", sorted({*data.names()} - {"breast_cancer", "time_series", "mimic3"}))  # not images
def test_refuses_other_dtypes(name):
    with pytest.raises(ValueError, match="dtype: got torch.int64; allowed is torch.float32"):
        data.load(name, dtype=torch.int64)
    with pytest.raises(TypeError, match="dtype: got 'float32'"):
        data.load(name, dtype="float32")


def test_images_are_frozen_and_short_to_show():
    images = data.digits()
    with pytest.raises(AttributeError):
        images.name = "other"
    assert len(repr(images)) < 200 and repr(images).startswith("Images(name='digits'")

"""Tiny-ImageNet on small folders of the official layout: what is read, in which order, and what is refused."""

import numpy as np
import pytest
import torch
from PIL import Image

from fedbook import data
from fedbook.data.errors import BrokenFile, DataNotFound
from fedbook.data.fetch import verify

CLASSES = ("n03444034", "n01443537", "n02123394")  # not sorted, as in the official list
SORTED = tuple(sorted(CLASSES))
WORDS = {"n01443537": "goldfish, Carassius auratus", "n02123394": "Persian cat", "n03444034": "go-kart"}
OFFICIAL = {"train": 500, "val": 50}
TRAIN, VAL = 3, 2  # images of a class here


def save(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, "JPEG", quality=95)


def grey(level):
    """A file with one channel."""
    return np.full((64, 64), level, np.uint8)


def colour(*levels):
    return np.broadcast_to(np.array(levels, np.uint8), (64, 64, 3)).copy()


def lines(path, rows, end="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(rows) + end)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Class k of the sorted ones is 60 k bright in red; the number of the image is in green; one file is grey."""
    monkeypatch.setattr("fedbook.data.tiny_imagenet.COUNTS", {"train": TRAIN, "val": VAL})
    folder = tmp_path / "tiny-imagenet-200"
    lines(folder / "wnids.txt", CLASSES)
    lines(folder / "words.txt", ["n00001740\tentity", *(f"{name}\t{words}" for name, words in WORDS.items())])
    for name in CLASSES:
        for i in range(TRAIN):
            level = 60 * SORTED.index(name)
            save(folder / "train" / name / "images" / f"{name}_{i}.JPEG", colour(level, 50 * i, 7))
        lines(folder / "train" / name / f"{name}_boxes.txt", [f"{name}_0.JPEG\t0\t10\t63\t58"])
    save(folder / "train" / SORTED[0] / "images" / f"{SORTED[0]}_1.JPEG", grey(200))
    rows = []
    for n in range(VAL * len(CLASSES)):
        name = CLASSES[n % len(CLASSES)]
        save(folder / "val" / "images" / f"val_{n}.JPEG", colour(60 * SORTED.index(name), 30 * n, 7))
        rows.append(f"val_{n}.JPEG\t{name}\t0\t32\t44\t62")
    lines(folder / "val" / "val_annotations.txt", rows)
    save(folder / "test" / "images" / "test_0.JPEG", grey(1))
    return tmp_path


@pytest.fixture
def folder(root):
    return root / "tiny-imagenet-200"


def load(root, classes=3, **options):
    return data.load("tiny_imagenet", root=root, classes=classes, **options)


def test_both_parts_sorted_by_class(root):
    images = load(root, dtype=torch.uint8)
    assert images.name == "tiny_imagenet" and images.classes == ("goldfish", "Persian cat", "go-kart")
    assert images.train_x.shape == (9, 3, 64, 64) and images.test_x.shape == (6, 3, 64, 64)
    assert images.train_y.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2] and images.test_y.tolist() == [0, 0, 1, 1, 2, 2]
    near = {"atol": 3, "rtol": 0}  # JPEG keeps a flat colour nearly
    red, green = images.train_x[:, 0, 20, 40].float(), images.train_x[:, 1, 20, 40].float()
    torch.testing.assert_close(red, torch.tensor([0.0, 200, 0, 60, 60, 60, 120, 120, 120]), **near)
    torch.testing.assert_close(green, torch.tensor([0.0, 200, 100, 0, 50, 100, 0, 50, 100]), **near)
    assert (images.train_x[1] == images.train_x[1, 0, 0, 0]).all()  # the grey file: three equal channels
    # val_n belongs to CLASSES[n % 3]: the second of the sorted classes has numbers 2 and 5
    torch.testing.assert_close(images.test_x[:, 0, 9, 9].float(), 60.0 * images.test_y, **near)
    torch.testing.assert_close(images.test_x[:, 1, 9, 9].float(), 30.0 * torch.tensor([1, 4, 2, 5, 0, 3]), **near)
    scaled = load(root)
    assert scaled.train_x.dtype == torch.float32 and torch.equal(scaled.test_x, images.test_x.float() / 255)


def test_fewer_classes_are_the_beginning(root):
    whole, two = load(root, dtype=torch.uint8), load(root, 2, dtype=torch.uint8)
    assert two.classes == whole.classes[:2]
    assert torch.equal(two.train_x, whole.train_x[:6]) and torch.equal(two.train_y, whole.train_y[:6])
    assert torch.equal(two.test_x, whole.test_x[:4]) and torch.equal(two.test_y, whole.test_y[:4])


def test_a_smaller_side_is_the_mean_of_pixels(root, folder):
    ramp = (np.add.outer(np.arange(64), 2 * np.arange(64)) % 251).astype(np.uint8)
    save(folder / "val" / "images" / "val_1.JPEG", np.stack([ramp, ramp.T, 255 - ramp], -1))
    whole = load(root, dtype=torch.uint8).test_x[0].double()
    small = load(root, dtype=torch.uint8, side=32).test_x[0]
    means = whole.view(3, 32, 2, 32, 2).mean((2, 4))
    # two roundings to bytes: Pillow takes the means of rows, then of columns
    assert small.shape == (3, 32, 32) and float((small - means).abs().max()) <= 1
    assert load(root, side=1).train_x.shape == (9, 3, 1, 1)


def test_lists_whose_last_line_has_no_end(root, folder):
    whole = load(root, dtype=torch.uint8)
    for path in (folder / "wnids.txt", folder / "words.txt", folder / "val" / "val_annotations.txt"):
        path.write_text(path.read_text()[:-1])
    again = load(root, dtype=torch.uint8)
    assert torch.equal(again.test_x, whole.test_x) and again.classes == whole.classes


def test_official_counts_are_the_rule(root, monkeypatch):
    monkeypatch.undo()
    with pytest.raises(BrokenFile, match="train: n01443537 has 3 images; expected are 500"):
        load(root)
    from fedbook.data import tiny_imagenet

    assert tiny_imagenet.COUNTS == OFFICIAL


def annotation(name="val_5.JPEG", wnid="n02123394", box="0\t32\t44\t62"):
    """Takes the place of the last line of val_annotations.txt."""

    def change(folder):
        path = folder / "val" / "val_annotations.txt"
        lines(path, [*path.read_text().splitlines()[:-1], f"{name}\t{wnid}\t{box}"])

    return change


def written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def listed(*rows):
    return lambda folder: lines(folder / "wnids.txt", rows)


def worded(*rows):
    return lambda folder: lines(folder / "words.txt", rows)


IMAGE = "train/n01443537/images/n01443537_2.JPEG"
REFUSED = {
    "an image cut short": (lambda f: (f / IMAGE).write_bytes((f / IMAGE).read_bytes()[:300]), "_2.JPEG: is no whole"),
    "an image that is text": (written("val/images/val_0.JPEG", b"GIF89a"), "val_0.JPEG: is no whole PNG or JPEG"),
    "an image too few": (lambda f: (f / IMAGE).unlink(), "train: n01443537 has 2 images; expected are 3"),
    "an image too many": (lambda f: save(f / IMAGE.replace("_2", "_3"), grey(0)), "n01443537 has 4 images"),
    "a class without images": (lambda f: [p.unlink() for p in (f / IMAGE).parent.iterdir()], "images: holds no .JPEG"),
    "a listed class without a folder": (listed(*CLASSES[1:], "n00000001"), "n00000001"),
    "a test image of another class": (annotation(wnid="n01443537"), "val: n01443537 has 3 images; expected are 2"),
    "a test image gone": (lambda f: (f / "val/images/val_4.JPEG").unlink(), "line 5: there is no images/val_4.JPEG"),
    "a test image twice": (annotation("val_4.JPEG"), "line 6: val_4.JPEG a second time"),
    "a class nobody lists": (annotation(wnid="n01443538"), "line 6: n01443538 is no class of wnids.txt"),
    "a path out of the folder": (annotation("../../secret.JPEG"), "line 6: .* is not of the form"),
    "an absolute path": (annotation("/etc/passwd"), "line 6: .* is not of the form"),
    "no box": (annotation(box="0\t1\t2"), "line 6: .* is not of the form"),
    "blanks for tabs": (annotation(box="0 1 2 3"), "line 6: .* is not of the form"),
    "an empty line": (lambda f: lines(f / "wnids.txt", [*CLASSES, ""]), "wnids.txt: line 4: '' is not of the form"),
    "a class twice": (listed(*CLASSES, CLASSES[1]), "wnids.txt: names n01443537 more than once"),
    "a class that leads out": (listed("../../n0144353"), "wnids.txt: line 1: .* is not of the form"),
    "a name of Unicode digits": (written("wnids.txt", "n0144353\u0663\n".encode()), "line 1: holds bytes that are no"),
    "no classes": (written("wnids.txt", b""), "wnids.txt: is empty"),
    "no words for a class": (worded("n01443537\tgoldfish", "n02123394\tcat"), "words.txt: has no words for n03444034"),
    "words of control characters": (worded("n01443537\t\x1b[2J"), "words.txt: line 1: .* is not of the form"),
    "no words at all": (written("words.txt", b"\n"), "words.txt: line 1: '' is not of the form"),
    "a damaged packing": (written("words.txt", b"\x1f\x8bxxxx"), "words.txt: .* damaged"),
}  # fmt: skip


@pytest.mark.parametrize("change, message", REFUSED.values(), ids=REFUSED)
def test_refuses(root, folder, change, message):
    change(folder)
    with pytest.raises(BrokenFile, match=message.replace("/", r"[/\\]")) as caught:
        load(root)
    assert str(folder) in str(caught.value)


def test_long_lists_are_refused(root, folder, monkeypatch):
    monkeypatch.setattr("fedbook.data.lines.LIMIT", 50)
    with pytest.raises(BrokenFile, match="words.txt: holds more than the 50 bytes"):
        load(root)


@pytest.mark.parametrize("name", ["wnids.txt", "val/val_annotations.txt"])
def test_changed_bytes_are_read_or_refused(root, folder, name):
    rng, refused, content = np.random.default_rng(0), 0, (folder / name).read_bytes()
    for _ in range(60):
        changed = bytearray(content)
        for place in rng.integers(0, len(content), rng.integers(1, 4)):
            changed[place] = rng.integers(256)
        (folder / name).write_bytes(changed)
        try:
            assert load(root, side=2).train_x.shape == (9, 3, 2, 2)
        except ValueError as error:  # a BrokenFile, or one class fewer than asked for
            assert isinstance(error, BrokenFile) or "classes: got 3" in str(error)
            refused += 1
    assert refused > 20


def test_a_report_counts_the_files(root, folder):
    report = verify("tiny_imagenet", root)
    assert report.ok and [file.count for file in report.files] == [1, 1, 9, 1, 6]
    (folder / "words.txt").unlink()
    report = verify("tiny_imagenet", root)
    assert not report.ok and "cs231n.stanford.edu/tiny-imagenet-200.zip" in report.as_text()
    with pytest.raises(DataNotFound, match="words.txt") as caught:
        load(root)
    assert caught.value.missing == ("tiny-imagenet-200/words.txt",)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"classes": 4}, "classes: got 4; allowed is at most 3"), ({"classes": 200}, "classes: got 200"),
        ({"classes": 0}, "classes: got 0"), ({"classes": 2.0}, "classes: got 2.0"), ({"classes": True}, "classes: got"),
        ({"classes": "n01443537"}, "classes: got"), ({"classes": None}, "classes: got None"),
        ({"side": 0}, "side: got 0"), ({"side": 65}, "side: got 65; allowed is .*64"), ({"side": "x"}, "side: got 'x'"),
        ({"side": float("nan")}, "side: got nan"), ({"dtype": "x"}, "dtype: got 'x'"), ({"labels": 1}, "options: got"),
    ],
)  # fmt: skip
def test_refuses_arguments(root, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        load(root, **options)

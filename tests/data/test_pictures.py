"""Picture files: what is read of honest ones, and what is refused of others; then folders of them."""

import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from fedbook import data
from fedbook.data import BrokenFile, DataNotFound, pictures
from fedbook.data.fetch import verify
from fedbook.data.pictures import FURNITURE, VIEWS, read_picture

RAMP = (np.arange(8 * 12).reshape(8, 12) * 2).astype(np.uint8)


def save(path, array, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)
    return path


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width, height, colour=0, bits=8, extra=b"", packed=b""):
    """A PNG by hand: what it promises need not be there."""
    head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def test_the_middle_square_by_means_of_areas(tmp_path):
    grey = read_picture(save(tmp_path / "a.png", RAMP), 4, colour=False)
    middle = RAMP[:, 2:10].reshape(4, 2, 4, 2).mean((1, 3))
    assert grey.shape == (1, 4, 4) and grey.dtype == np.uint8 and np.abs(grey[0] - middle).max() <= 0.5
    upright = read_picture(save(tmp_path / "b.png", RAMP.T.copy()), 4, colour=False)
    assert np.abs(upright[0].T - middle).max() <= 0.5
    assert np.array_equal(read_picture(save(tmp_path / "c.png", RAMP[:, :8]), 8, colour=False)[0], RAMP[:, :8])
    three = np.stack([RAMP, 255 - RAMP, RAMP // 2], -1)
    colours = read_picture(save(tmp_path / "d.png", three), 4, colour=True)
    assert colours.shape == (3, 4, 4) and np.abs(colours[1] - (255 - middle)).max() <= 0.5
    assert read_picture(tmp_path / "a.png", 4, colour=True).tolist() == [grey[0].tolist()] * 3
    luma = (three * [0.299, 0.587, 0.114]).sum(-1)[:, 2:10].reshape(4, 2, 4, 2).mean((1, 3))
    assert np.abs(read_picture(tmp_path / "d.png", 4, colour=False)[0] - luma).max() <= 1


def test_a_large_jpeg_is_nearly_what_it_was(tmp_path):
    """Unpacked at an eighth: about the same means as of the whole, whose steps are 50 by 50 of its pixels."""
    x, y = np.meshgrid(np.arange(600), np.arange(500))
    array = (127 + 100 * np.sin(x / 90) * np.cos(y / 70)).astype(np.uint8)
    small = read_picture(save(tmp_path / "a.JPEG", np.stack([array] * 3, -1), quality=95), 10, colour=True)
    middle = array[:, 50:550].reshape(10, 50, 10, 50).mean((1, 3))
    assert np.abs(small - middle).mean() < 2 and np.abs(small - middle).max() < 6 < np.abs(np.diff(middle)).max() / 5


def test_transparent_parts_are_white(tmp_path):
    alpha = np.zeros((8, 12), np.uint8)
    alpha[:4] = 255
    picture = np.stack([RAMP, RAMP, RAMP, alpha], -1)
    grey = read_picture(save(tmp_path / "a.png", picture), 8, colour=False)[0]
    assert np.array_equal(grey[:4], RAMP[:4, 2:10]) and (grey[4:] == 255).all()
    palette = Image.fromarray(RAMP[:, :8]).convert("P")
    palette.save(tmp_path / "b.png", transparency=int(np.asarray(palette)[0, 0]))
    assert read_picture(tmp_path / "b.png", 8, colour=False)[0, 0, 0] == 255
    assert np.array_equal(read_picture(tmp_path / "b.png", 8, colour=False)[0, 1:], RAMP[1:, :8])


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK"])
def test_modes_that_are_read(tmp_path, mode):
    kind = "a.jpg" if mode == "CMYK" else "a.png"
    Image.fromarray(np.full((8, 8), 255, np.uint8)).convert(mode).save(tmp_path / kind)
    assert read_picture(tmp_path / kind, 2, colour=False).min() >= 254


def packed(kind="PNG"):
    out = io.BytesIO()
    Image.fromarray(RAMP).save(out, kind)
    return out.getvalue()


BOMB = zlib.compress(b"\0" * 10_000_000, 9)
HOSTILE = {
    "another format": (packed("GIF"), "not what it should be"),
    "larger than we read": (png(8_192, 8_193), "refused: promises 8,192 x 8,193 pixels; at most 67,108,864"),
    "sixteen bits": (png(4, 4, bits=16), "has pixels of mode 'I;16'"),
    "a packed text": (packed()[:33] + chunk(b"zTXt", b"a\0\0" + BOMB) + packed()[33:], "not what it should be"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_refuses_what_is_no_honest_picture(tmp_path, name):
    content, message = HOSTILE[name]
    path = tmp_path / "one.png"
    path.write_bytes(content)
    with pytest.raises(BrokenFile, match=message) as caught:
        read_picture(path, 4, colour=False)
    assert caught.value.path == path and str(path) in str(caught.value)


# ModelNet10


def views_of(folder, stem, grey, numbers=range(1, VIEWS + 1), form="{}_{:03d}.png"):
    for number in numbers:
        save(folder / form.format(stem, number), np.full((6, 6), grey + number, np.uint8))


@pytest.fixture
def furniture(tmp_path):
    """Two objects a class for training and one for testing; the grey says class, object and view."""
    for k, name in enumerate(FURNITURE):
        for part, stems in (("train", (f"{name}_0001", f"{name}_0002")), ("test", (f"{name}_0107",))):
            for i, stem in enumerate(stems):
                views_of(tmp_path / "modelnet10" / name / part, stem, 24 * k + 12 * i)
    return tmp_path


def test_modelnet10(furniture):
    images = data.load("modelnet10", root=furniture, side=4, dtype=torch.uint8)
    assert images.classes == tuple(sorted(FURNITURE)) and len(FURNITURE) == 10 and images.name == "modelnet10"
    assert images.train_x.shape == (20, 12, 1, 4, 4) and images.test_x.shape == (10, 12, 1, 4, 4)
    assert images.train_y.tolist() == [k for k in range(10) for _ in range(2)]
    assert images.test_y.tolist() == [*range(10)] and images.test_y.dtype == torch.int64
    expected = 12 * torch.arange(20)[:, None] + torch.arange(1, 13)
    assert torch.equal(images.train_x[:, :, 0, 1, 2].long(), expected)
    scaled = data.modelnet10(furniture, side=4)
    assert torch.equal(scaled.test_x, images.test_x.float() / 255)
    assert data.modelnet10(furniture).train_x.shape[-2:] == (32, 32)


def test_modelnet10_takes_other_names_and_leaves_other_files(furniture):
    folder = furniture / "modelnet10" / "bed" / "test"
    for path in folder.iterdir():
        path.unlink()
    views_of(folder, "bed_0516.obj", 30, range(1, 13), "{}.shaded_v{:03d}.png")
    views_of(folder, "bed_0517", 60, range(12), "{}_{}.png")
    views_of(furniture / "modelnet10" / "airplane" / "train", "airplane_0001", 0, [1, 2])
    (folder / "bed_0516.off").write_text("OFF")
    x = data.modelnet10(furniture, torch.uint8, 2).test_x[1:3, :, 0, 0, 0]
    assert x.tolist() == [[*range(31, 43)], [*range(60, 72)]]


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda f: (f / "bed_0002_007.png").unlink(), r"bed_0002_\*.png: the object lacks view 7; it needs 1 to 12"),
        (lambda f: save(f / "bed_0002_7.png", RAMP), "_7.png: is view 7 of its object a second time; .* bed_0002_007"),
        (lambda f: save(f / "bed_0002_000.png", RAMP), "the object has a view 12; it needs 0 to 11"),
        (lambda f: save(f / "bed.png", RAMP), "bed.png: has no number of a view"),
        (lambda f: (f / "bed_0002_003.png").write_bytes(packed()[:-30]), "bed_0002_003.png: is not what it should be"),
        (lambda f: [path.unlink() for path in f.iterdir()], "bed/train: holds no .png file"),
    ],
)
def test_modelnet10_refuses(furniture, change, message):
    change(furniture / "modelnet10" / "bed" / "train")
    with pytest.raises(BrokenFile, match=message.replace("/", r"[/\\]")):
        data.modelnet10(furniture)


# ImageNet


@pytest.fixture
def imagenet(tmp_path):
    for k, name in enumerate(("n03", "n01", "n02")):
        for part, count in (("train", 3), ("val", 2)):
            for i in range(count):
                grey = np.full((40, 30, 3), 60 * k + 10 * i, np.uint8)
                save(tmp_path / "imagenet" / part / name / f"{name}_{i}.JPEG", grey, quality=95)
    return tmp_path


def test_imagenet_folder(imagenet):
    two = data.imagenet_folder(imagenet, torch.uint8, 8, classes=2)
    assert two.classes == ("n01", "n02") and two.train_x.shape == (6, 3, 8, 8) and two.test_x.shape == (4, 3, 8, 8)
    assert two.train_y.tolist() == [0, 0, 0, 1, 1, 1] and two.test_y.tolist() == [0, 0, 1, 1]
    assert (two.train_x[:, 0, 3, 3].int() - torch.tensor([60, 70, 80, 120, 130, 140])).abs().max() <= 2
    named = data.load("imagenet100", root=imagenet, classes=["n03", "n01"], side=4)
    assert named.classes == ("n03", "n01") and named.train_x.dtype == torch.float32
    assert abs(float(named.test_x[3].mean()) - 70 / 255) < 0.01


@pytest.mark.parametrize(
    "options, message",
    [
        ({}, "classes: got 100; allowed is at most 3"),
        ({"classes": ["n01", "n09"]}, "classes: got 'n09'; allowed is one of the 3 folders"),
        ({"classes": ["n01", "n01"]}, "classes: got .*each once"),
        ({"side": 2_000}, "side: got 2000"),
    ],
)
def test_imagenet_folder_refuses_arguments(imagenet, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        data.imagenet_folder(imagenet, **options)


def test_imagenet_folder_refuses_files(imagenet):
    path = imagenet / "imagenet" / "train" / "n02" / "n02_1.JPEG"
    content = path.read_bytes()
    path.write_bytes(content[:200])
    with pytest.raises(BrokenFile, match="n02_1.JPEG: is not what it should be"):
        data.imagenet_folder(imagenet, classes=2)
    path.write_bytes(content)
    for old in (imagenet / "imagenet" / "val" / "n01").iterdir():
        old.unlink()
    with pytest.raises(BrokenFile, match="n01: holds no .JPEG file"):
        data.imagenet_folder(imagenet, classes=2)


# Tiny-ImageNet

CLASSES = ("n03444034", "n01443537", "n02123394")  # not sorted, as in the official list
SORTED = tuple(sorted(CLASSES))
WORDS = {"n01443537": "goldfish, Carassius auratus", "n02123394": "Persian cat", "n03444034": "go-kart"}


def flat(*levels):
    return np.broadcast_to(np.array(levels, np.uint8), (64, 64, 3)).copy()


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(rows) + "\n")


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """Class k of the sorted ones is 60 k bright in red; the number of the image is in green; one file is grey."""
    monkeypatch.setattr(pictures, "COUNTS", {"train": 3, "val": 2})
    folder = tmp_path / "tiny-imagenet-200"
    lines(folder / "wnids.txt", CLASSES)
    lines(folder / "words.txt", ["n00001740\tentity", *(f"{name}\t{words}" for name, words in WORDS.items())])
    for k, name in enumerate(SORTED):
        for i in range(3):
            picture = np.full((64, 64), 200, np.uint8) if (k, i) == (0, 1) else flat(60 * k, 50 * i, 7)
            save(folder / "train" / name / "images" / f"{name}_{i}.JPEG", picture, quality=95)
    for n in range(6):
        picture = flat(60 * SORTED.index(CLASSES[n % 3]), 30 * n, 7)
        save(folder / "val" / "images" / f"val_{n}.JPEG", picture, quality=95)
    lines(folder / "val/val_annotations.txt", [f"val_{n}.JPEG\t{CLASSES[n % 3]}\t0\t32\t44\t62" for n in range(6)])
    return folder


def load(folder, classes=3, **options):
    return data.load("tiny_imagenet", root=folder.parent, classes=classes, **options)


def test_tiny_imagenet_is_sorted_by_class(tiny):
    images = load(tiny, dtype=torch.uint8)
    assert images.name == "tiny_imagenet" and images.classes == ("goldfish", "Persian cat", "go-kart")
    assert images.train_y.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2] and images.test_y.tolist() == [0, 0, 1, 1, 2, 2]
    near = {"atol": 3, "rtol": 0}  # JPEG keeps a flat colour nearly
    red, green = images.train_x[:, 0, 20, 40].float(), images.train_x[:, 1, 20, 40].float()
    torch.testing.assert_close(red, torch.tensor([0.0, 200, 0, 60, 60, 60, 120, 120, 120]), **near)
    torch.testing.assert_close(green, torch.tensor([0.0, 200, 100, 0, 50, 100, 0, 50, 100]), **near)
    # val_n belongs to CLASSES[n % 3]: the second of the sorted classes has numbers 2 and 5
    torch.testing.assert_close(images.test_x[:, 0, 9, 9].float(), 60.0 * images.test_y, **near)
    torch.testing.assert_close(images.test_x[:, 1, 9, 9].float(), 30.0 * torch.tensor([1, 4, 2, 5, 0, 3]), **near)
    two = load(tiny, 2, dtype=torch.uint8)  # fewer are the beginning of more
    assert two.classes == images.classes[:2] and torch.equal(two.train_x, images.train_x[:6])
    assert torch.equal(two.test_x, images.test_x[:4]) and torch.equal(two.test_y, images.test_y[:4])
    ramp = (np.add.outer(np.arange(64), 2 * np.arange(64)) % 251).astype(np.uint8)
    save(tiny / "val" / "images" / "val_1.JPEG", np.stack([ramp, ramp.T, 255 - ramp], -1))
    means = load(tiny, dtype=torch.uint8).test_x[0].double().view(3, 32, 2, 32, 2).mean((2, 4))
    # two roundings to bytes: Pillow takes the means of rows, then of columns
    assert float((load(tiny, dtype=torch.uint8, side=32).test_x[0] - means).abs().max()) <= 1


def annotation(name="val_5.JPEG", wnid="n02123394", box="0\t32\t44\t62"):
    """Takes the place of the last line of val_annotations.txt."""

    def change(folder):
        path = folder / "val" / "val_annotations.txt"
        lines(path, [*path.read_text().splitlines()[:-1], f"{name}\t{wnid}\t{box}"])

    return change


IMAGE = "train/n01443537/images/n01443537_2.JPEG"
REFUSED = {
    "an image cut short": (lambda f: (f / IMAGE).write_bytes((f / IMAGE).read_bytes()[:300]), "_2.JPEG: is not what"),
    "an image too few": (lambda f: (f / IMAGE).unlink(), "train: n01443537 has 2 images; expected are 3"),
    "another class": (annotation(wnid="n01443537"), "val: n01443537 has 3 images; expected are 2"),
    "a test image gone": (lambda f: (f / "val/images/val_4.JPEG").unlink(), "line 5: there is no images/val_4.JPEG"),
    "a test image twice": (annotation("val_4.JPEG"), "line 6: val_4.JPEG a second time"),
    "a class nobody lists": (annotation(wnid="n01443538"), "line 6: n01443538 is no class of wnids.txt"),
    "a path out of the folder": (annotation("../../secret.JPEG"), "line 6: .* is not of the form"),
    "a class twice": (lambda f: lines(f / "wnids.txt", [*CLASSES, CLASSES[1]]), "names n01443537 more than once"),
    "a class that leads out": (lambda f: lines(f / "wnids.txt", ["../../n0144353"]), "line 1: .* is not of the form"),
    "no words for a class": (lambda f: lines(f / "words.txt", ["n01443537\tgoldfish"]), "has no words for n02123394"),
}


@pytest.mark.parametrize("change, message", REFUSED.values(), ids=REFUSED)
def test_tiny_imagenet_refuses(tiny, change, message):
    change(tiny)
    with pytest.raises(BrokenFile, match=message.replace("/", r"[/\\]")) as caught:
        load(tiny)
    assert str(tiny) in str(caught.value)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"classes": 4}, "classes: got 4; allowed is at most 3"),
        ({"side": 65}, "side: got 65; allowed is .*64"),
    ],
)
def test_tiny_imagenet_refuses_arguments(tiny, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        load(tiny, **options)


def test_a_report_counts_the_files(tiny):
    report = verify("tiny_imagenet", tiny.parent)
    assert report.ok and [file.count for file in report.files] == [1, 1, 9, 1, 6]
    (tiny / "words.txt").unlink()
    assert not verify("tiny_imagenet", tiny.parent).ok
    with pytest.raises(DataNotFound, match="words.txt") as caught:
        load(tiny)
    assert caught.value.missing == ("tiny-imagenet-200/words.txt",)

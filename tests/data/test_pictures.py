"""Picture files: what is read of honest ones, and what is refused of others; then folders of them."""

import io
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from fedbook import data
from fedbook.data import modelnet, pictures
from fedbook.data.errors import BrokenFile
from fedbook.data.modelnet import FURNITURE, VIEWS
from fedbook.data.pictures import read_picture

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


def jpeg(array=RAMP):
    out = io.BytesIO()
    Image.fromarray(array).save(out, "JPEG")
    return out.getvalue()


def whole():
    out = io.BytesIO()
    Image.fromarray(RAMP).save(out, "PNG")
    return out.getvalue()


def other(kind):
    out = io.BytesIO()
    Image.fromarray(RAMP).save(out, kind)
    return out.getvalue()


BOMB = zlib.compress(b"\0" * 10_000_000, 9)
HOSTILE = {
    "empty": (b"", "no whole PNG or JPEG"),
    "text": (b"GIF89a is no picture", "no whole PNG or JPEG"),
    "another format": (other("GIF"), "no whole PNG or JPEG"),
    "a BMP": (other("BMP"), "no whole PNG or JPEG"),
    "a TIFF": (other("TIFF"), "no whole PNG or JPEG"),
    "cut short": (whole()[:-30], "no whole PNG or JPEG"),
    "a JPEG cut short": (jpeg(RAMP)[:-60], "no whole PNG or JPEG"),
    "the head alone": (whole()[:33], "no whole PNG or JPEG"),
    "large": (png(10_000, 10_000), "refused: promises|no whole"),
    "larger": (png(30_000, 30_000), "no whole PNG or JPEG"),
    "largest": (png(2**31 - 1, 2**31 - 1), "no whole PNG or JPEG"),
    "larger than we read": (png(8_192, 8_193), "refused: promises 8,192 x 8,193 pixels; at most 67,108,864"),
    "of no width": (png(0, 10), "no whole PNG or JPEG"),
    "sixteen bits": (png(4, 4, bits=16), "has pixels of mode 'I;16'"),
    "a packed text": (whole()[:33] + chunk(b"zTXt", b"a\0\0" + BOMB) + whole()[33:], "no whole PNG or JPEG"),
    "nothing packed": (png(8, 8), "no whole PNG or JPEG"),
    "a wrong sum": (whole()[:30] + b"xyz" + whole()[33:], "no whole PNG or JPEG"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_refuses_what_is_no_honest_picture(tmp_path, name):
    content, message = HOSTILE[name]
    path = tmp_path / "one.png"
    path.write_bytes(content)
    with pytest.raises(BrokenFile, match=message) as caught:
        read_picture(path, 4, colour=False)
    assert caught.value.path == path and str(path) in str(caught.value)


def test_refuses_long_files_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "MOST_BYTES", 50)
    with pytest.raises(BrokenFile, match="refused: has .* bytes; at most 50 are read"):
        read_picture(save(tmp_path / "a.png", RAMP), 4, colour=False)
    with pytest.raises(FileNotFoundError):
        read_picture(tmp_path / "b.png", 4, colour=False)


@pytest.mark.parametrize("content", [whole(), jpeg()], ids=["PNG", "JPEG"])
def test_changed_bytes_are_read_or_refused(tmp_path, content):
    rng = np.random.default_rng(0)
    path, refused = tmp_path / "one.png", 0
    for _ in range(400):
        changed = bytearray(content)
        for place in rng.integers(0, len(content), rng.integers(1, 4)):
            changed[place] = rng.integers(256)
        path.write_bytes(changed[: rng.integers(1, len(content) + 1)] if rng.random() < 0.3 else changed)
        try:
            assert read_picture(path, 4, colour=True).shape == (3, 4, 4)
        except BrokenFile:
            refused += 1
    assert refused > 50


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
        (lambda f: (f / "bed_0002_007.png").unlink(), r"bed_0002_\*.png: the object lacks view 7 of 12"),
        (lambda f: (f / "bed_0002_001.png").unlink(), r"bed_0002_\*.png: the object lacks view 1 of 12"),
        (lambda f: save(f / "bed_0002_7.png", RAMP), "_7.png: is view 7 of its object a second time; .* bed_0002_007"),
        (lambda f: save(f / "bed_0002_013.png", RAMP), "bed_0002_013.png: is view 13; an object has 12, from 1 to 12"),
        (lambda f: save(f / "bed_0002_000.png", RAMP), "bed_0002_012.png: is view 12; an object has 12, from 0 to 11"),
        (lambda f: save(f / "bed.png", RAMP), "bed.png: has no number of a view"),
        (lambda f: (f / "bed_0002_003.png").write_bytes(whole()[:-30]), "bed_0002_003.png: is no whole PNG"),
        (lambda f: [path.unlink() for path in f.iterdir()], "bed/train: holds no .png file"),
    ],
)
def test_modelnet10_refuses(furniture, change, message):
    change(furniture / "modelnet10" / "bed" / "train")
    with pytest.raises(BrokenFile, match=message.replace("/", r"[/\\]")):
        data.modelnet10(furniture)


def test_the_view_is_the_last_number():
    names = {
        "a_0001_001.png": ("a_0001_", "001"),
        "a.obj.shaded_v012.png": ("a.obj.shaded_v", "012"),
        "7.png": ("", "7"),
    }
    assert {name: modelnet.NAME.fullmatch(name).groups() for name in names} == names


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
        ({"classes": 4}, "classes: got 4; allowed is at most 3"),
        ({"classes": ["n01", "n09"]}, "classes: got 'n09'; allowed is one of the 3 folders"),
        ({"classes": ["n01", "../n01"]}, "classes: got '../n01'"),
        ({"classes": ["n01", "n01"]}, "classes: got .*each once"),
        ({"classes": []}, "classes: got"),
        ({"classes": [1]}, "classes: got"),
        ({"classes": "n01"}, "classes: got 'n01'"),
        ({"classes": None}, "classes: got None"),
        ({"classes": 0}, "classes: got 0"),
        ({"classes": True}, "classes: got True"),
        ({"classes": 2.0}, "classes: got 2.0"),
        ({"side": 0}, "side: got 0"),
        ({"side": 2_000}, "side: got 2000"),
        ({"side": "x"}, "side: got 'x'"),
        ({"dtype": "x"}, "dtype: got 'x'"),
    ],
)
def test_imagenet_folder_refuses_arguments(imagenet, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        data.imagenet_folder(imagenet, **options)


def test_imagenet_folder_refuses_files(imagenet):
    path = imagenet / "imagenet" / "train" / "n02" / "n02_1.JPEG"
    content = path.read_bytes()
    path.write_bytes(content[:200])
    with pytest.raises(BrokenFile, match="n02_1.JPEG: is no whole PNG or JPEG"):
        data.imagenet_folder(imagenet, classes=2)
    path.write_bytes(content)
    for old in (imagenet / "imagenet" / "val" / "n01").iterdir():
        old.unlink()
    with pytest.raises(BrokenFile, match="n01: holds no .JPEG file"):
        data.imagenet_folder(imagenet, classes=2)


@pytest.mark.parametrize("bad", [0, 1_025, 2.5, None, "x", True])
def test_modelnet10_refuses_sides(tmp_path, bad):
    with pytest.raises((TypeError, ValueError), match="side: got"):
        data.modelnet10(tmp_path, side=bad)

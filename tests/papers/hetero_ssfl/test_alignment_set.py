"""The alignment set: taken out of the training images, or from elsewhere in the shape that is asked for."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_image

from fedbook import data
from fedbook.data.photographs import photograph_patches
from fedbook.papers.hetero_ssfl.alignment_set import alignment_images, split_alignment

NAN = float("nan")
SIZES = [(1, 8, 8), (1, 28, 28), (3, 28, 28), (3, 32, 32), (3, 64, 64), (1, 5, 9), (3, 14, 7), (3, 1, 1)]


def toy(n=40):
    """Image i holds i in every pixel; its label is i % 7."""
    rows = torch.arange(n)
    return rows.to(torch.uint8)[:, None, None, None].expand(n, 1, 2, 3), rows % 7


# taken out of the training images -----------------------------------------------------------------


def test_taken_out_for_everybody():
    x, y = toy()
    alignment, rest_x, rest_y = split_alignment(x, y, 12)
    assert alignment.shape == (12, 1, 2, 3) and rest_x.shape == (28, 1, 2, 3) and rest_y.shape == (28,)
    out, left = alignment[:, 0, 0, 0].tolist(), rest_x[:, 0, 0, 0].tolist()
    assert sorted(out + left) == list(range(40)) and left == sorted(left)  # disjoint, nothing lost, the old order
    assert rest_y.tolist() == [i % 7 for i in left] and alignment.dtype == rest_x.dtype == torch.uint8
    assert out != sorted(out) and out != list(range(12))


def test_fewer_are_the_beginning_and_values_do_not_matter():
    x, y = toy()
    few, many = split_alignment(x, y, 5)[0], split_alignment(x, y, 39)[0]
    assert torch.equal(few, many[:5])
    other = split_alignment(x.float() * 3, torch.zeros_like(y), 5)[0]  # neither pixels nor classes are looked at
    assert torch.equal(other, few.float() * 3)


def test_the_same_for_all_seeds_of_a_run():
    """It has a seed of its own, and what else was drawn is of no matter."""
    x, y = toy()
    first = split_alignment(x, y, 9)
    torch.manual_seed(5), np.random.seed(5)
    assert all(torch.equal(a, b) for a, b in zip(first, split_alignment(x, y, 9, seed=0), strict=True))
    assert not torch.equal(first[0], split_alignment(x, y, 9, seed=1)[0])


def test_every_image_is_equally_likely():
    x, y = toy(20)
    hits = torch.zeros(20)
    for seed in range(600):
        hits[split_alignment(x, y, 5, seed)[0][:, 0, 0, 0].long()] += 1
    assert float((hits - 150).abs().max()) < 4.5 * (600 * 0.25 * 0.75) ** 0.5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"count": 1}, "count: got 1"), ({"count": 0}, "count: got 0"), ({"count": -3}, "count"),
        ({"count": 40}, "count: got 40; allowed is fewer than the 40 training images"), ({"count": 41}, "count"),
        ({"count": 2.0}, "count"), ({"count": None}, "count"), ({"count": "x"}, "count"), ({"count": NAN}, "count"),
        ({"count": True}, "count"), ({"train_x": None}, "train_x"), ({"train_x": toy(39)[0]}, "train_x and train_y"),
        ({"train_x": torch.tensor(3)}, "train_x"), ({"train_y": None}, "train_y"),
        ({"train_y": toy()[1].float()}, "train_y"), ({"train_y": toy()[1][:, None]}, "train_y"),
        ({"seed": -1}, "seed"), ({"seed": "x"}, "seed"),
        ({"train_x": toy(2)[0], "train_y": toy(2)[1], "count": 2}, "count: got 2; allowed is fewer than the 2"),
    ],
)  # fmt: skip
def test_bad_splits_are_named(change, words):
    x, y = toy()
    with pytest.raises((TypeError, ValueError), match=words):
        split_alignment(**({"train_x": x, "train_y": y, "count": 5} | change))


# from elsewhere -----------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["noise", "photographs"])
@pytest.mark.parametrize("shape", SIZES)
def test_images_of_any_shape(source, shape):
    x = alignment_images(source, 20, shape)
    assert x.shape == (20, *shape) and x.dtype == torch.float32 and x.is_contiguous()
    assert float(x.min()) >= 0 and float(x.max()) <= 1 and len(x.flatten(1).unique(dim=0)) == 20
    assert torch.equal(x, alignment_images(source, 20, list(shape), seed=0))
    assert torch.equal(x[:7], alignment_images(source, 7, torch.Size(shape)))
    assert not torch.equal(x, alignment_images(source, 20, shape, seed=1))


def test_noise_is_uniform_and_independent():
    x = alignment_images("noise", 500, (3, 8, 8)).double()
    n = x.numel()
    for power in (1, 2, 3):  # moments of a uniform number: 1/(k+1), variance 1/(2k+1) - 1/(k+1)^2
        deviation = (1 / (2 * power + 1) - 1 / (power + 1) ** 2) ** 0.5
        assert abs(float((x**power).mean()) - 1 / (power + 1)) < 4.5 * deviation / n**0.5
    flat = x.flatten(1)
    beside = (flat[:, 1:] - 0.5) * (flat[:, :-1] - 0.5)
    assert abs(float(beside.mean())) < 4.5 / 12 / beside.numel() ** 0.5


def test_photographs_by_hand():
    """Grey patches of 8x8: a place of 24x24 pixels, their luma, means of 3x3."""
    whole = [load_sample_image(name) / 255 for name in ("china.jpg", "flower.jpg")]
    cut = photograph_patches(9, 0, 24, 24)
    x = alignment_images("photographs", 9, (1, 8, 8))
    for image, k, (row, column) in zip(x, cut.photograph.tolist(), cut.corner.tolist(), strict=True):
        place = whole[k][row : row + 24, column : column + 24] @ [0.299, 0.587, 0.114]
        means = place.reshape(8, 3, 8, 3).mean((1, 3))
        np.testing.assert_allclose(image[0].numpy(), means, rtol=0, atol=1e-6)
    assert torch.equal(alignment_images("photographs", 9, (3, 28, 28)), photograph_patches(9).x / 255)
    large = photograph_patches(3, 0, 64, 100).x / 255
    assert torch.equal(alignment_images("photographs", 3, (3, 64, 100)), large)


def test_white_stays_in_range(monkeypatch):
    """The rounded sum of three weights must not carry a white pixel above 1."""
    white = torch.full((2, 3, 28, 28), 255, dtype=torch.uint8)
    patches = photograph_patches(2)._replace(x=white)
    monkeypatch.setattr("fedbook.papers.hetero_ssfl.alignment_set.photograph_patches", lambda *_: patches)
    x = alignment_images("photographs", 2, (1, 28, 28))
    assert float(x.max()) <= 1 and float(x.min()) > 1 - 1e-6


def test_another_dataset():
    clothes = data.fashion_mnist(dtype=torch.uint8).train_x
    x = alignment_images("fashion_mnist", 50, (1, 28, 28))
    assert x.shape == (50, 1, 28, 28) and x.dtype == torch.float32 and float(x.max()) == 1.0
    stored = {image.numpy().tobytes(): i for i, image in enumerate(clothes)}
    places = [stored[image.mul(255).round().to(torch.uint8).numpy().tobytes()] for image in x]
    assert len(set(places)) == 50 and places != sorted(places) and max(places) > 10_000
    assert torch.equal(x, clothes[places] / 255)
    assert torch.equal(alignment_images("fashion_mnist", 10, (1, 28, 28)), x[:10])
    assert not torch.equal(alignment_images("fashion_mnist", 10, (1, 28, 28), seed=1), x[:10])


def test_the_brightest_value_of_a_dataset_is_one():
    x = alignment_images("digits", 1_438, (1, 8, 8))
    assert float(x.max()) == 1.0
    digits = data.digits()
    assert torch.equal(x.sum(0), digits.train_x.sum(0))  # all of the training part, in another order


def test_a_dataset_of_several_sizes_is_read_at_the_one_asked_for(monkeypatch):
    asked = {}

    def tiny_imagenet(root=None, dtype=None, side=64):
        asked.update(root=root, side=side)
        x = torch.arange(5, dtype=torch.uint8)[:, None, None, None].expand(5, 3, side, side)
        return data.Images("tiny_imagenet", x, torch.zeros(5), x[:1], torch.zeros(1), ("a",))

    monkeypatch.setitem(data.LOADERS, "tiny_imagenet", tiny_imagenet)
    x = alignment_images("tiny_imagenet", 4, (3, 32, 32), root="here")
    assert asked == {"root": "here", "side": 32} and x.shape == (4, 3, 32, 32)
    assert set(x[:, 0, 0, 0].mul(255).round().int().tolist()) < set(range(5))
    with pytest.raises(ValueError, match="count: got 6; allowed is at most the 5 training images of tiny_imagenet"):
        alignment_images("tiny_imagenet", 6, (3, 32, 32))
    assert len(alignment_images("tiny_imagenet", 5, (3, 32, 32))) == 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"source": "holdout"}, "source: got 'holdout'; allowed is one of .*fashion_mnist.*noise.*photographs"),
        ({"source": "breast_cancer"}, "source: got 'breast_cancer'"), ({"source": None}, "source"),
        ({"source": 3}, "source"), ({"source": "x"}, "source"),
        ({"source": "fashion_mnist", "shape": (3, 32, 32)}, "source: .*'fashion_mnist'.* 1 x 28 x 28; .* 3 x 32 x 32"),
        ({"source": "digits"}, "source: got 'digits', whose images are 1 x 8 x 8; .* 1 x 28 x 28"),
        ({"source": "fashion_mnist", "count": 20_001}, "count: got 20001; allowed is at most the 20000 .*fashion"),
        ({"source": "fashion_mnist", "count": 1}, "count: got 1"), ({"count": 1}, "count: got 1"),
        ({"count": 0}, "count"), ({"count": 2.0}, "count"), ({"count": None}, "count"), ({"count": NAN}, "count"),
        ({"source": "photographs", "count": 1}, "count: got 1"), ({"seed": -1}, "seed"), ({"seed": 0.5}, "seed"),
        ({"source": "photographs", "count": 490_401}, "count: got 490401; allowed is at most the 490400 positions"),
        ({"source": "photographs", "shape": (2, 8, 8)}, "shape: got .*1 or 3 channels"),
        ({"source": "photographs", "shape": (3, 428, 8)}, "shape: got .*at most 427 x 640"),
        ({"source": "photographs", "shape": (3, 8, 641)}, "shape: got .*at most 427 x 640"),
        ({"shape": (28, 28)}, "shape"), ({"shape": 28}, "shape"), ({"shape": None}, "shape"),
        ({"shape": "abc"}, "shape"), ({"shape": (1, 0, 28)}, "shape"), ({"shape": (1, 2.5, 28)}, "shape"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        alignment_images(**({"source": "noise", "count": 5, "shape": (1, 28, 28)} | options))


def test_a_dataset_that_is_not_there_says_what_to_do(tmp_path):
    with pytest.raises(data.DataNotFound, match="fedbook data cifar100"):
        alignment_images("cifar100", 5, (3, 32, 32), root=tmp_path)

"""The alignment set: taken out of the training images, or from elsewhere in the shape that is asked for."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_sample_image

from fedbook import data
from fedbook.data.photographs import photograph_patches
from fedbook.learning.public_images import alignment_images
from fedbook.papers.hetero_ssfl.alignment_set import split_alignment

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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"source": "holdout"}, "source: got 'holdout'; allowed is one of .*fashion_mnist.*noise.*photographs"),
        ({"source": "fashion_mnist", "shape": (3, 32, 32)}, "source: .*fashion_mnist.*28.*allowed.*32"),
        ({"source": "fashion_mnist", "count": 20_001}, "count: got 20001"),
        ({"source": "photographs", "count": 490_401}, "count: got 490401"),
        ({"source": "photographs", "shape": (2, 8, 8)}, "shape: got .*1 or 3 channels"),
        ({"source": "photographs", "shape": (3, 428, 8)}, "shape: got .*at most 427 x 640"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        alignment_images(**({"source": "noise", "count": 5, "shape": (1, 28, 28)} | options))

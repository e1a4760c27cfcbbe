"""Region covariances against numpy.cov on features made by scipy's filters."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from fedbook.data.photographs import photograph_patches
from fedbook.papers.prirfed import covariance as module
from fedbook.papers.prirfed.covariance import FEATURES, pixel_features, region_covariance
from fedbook.randomness import stream

PATCHES = photograph_patches(40, seed=3).x


def explicit_features(image):
    """The nine features of one uint8 image [3, H, W], by scipy: [9, H, W]."""
    colours = image.astype(np.float64) / 255
    grey = 0.299 * colours[0] + 0.587 * colours[1] + 0.114 * colours[2]
    rows, columns = np.mgrid[: grey.shape[0], : grey.shape[1]]
    filtered = [
        np.abs(ndimage.correlate1d(grey, weights, axis=axis, mode="nearest"))
        for weights in ([-1, 0, 1], [-1, 2, -1])
        for axis in (1, 0)
    ]
    return np.stack([columns / (grey.shape[1] - 1), rows / (grey.shape[0] - 1), *colours, *filtered])


def explicit_covariance(image):
    c = np.cov(explicit_features(image).reshape(9, -1))
    return c + 1e-6 * np.trace(c) / 9 * np.eye(9)


@pytest.mark.parametrize("shape", [(28, 28), (32, 32), (5, 9), (2, 3)])
def test_agrees_with_numpy_and_scipy(shape):
    images = torch.from_numpy(stream(0, "images").integers(0, 256, (7, 3, *shape)).astype(np.uint8))
    if shape == (28, 28):
        images = torch.cat([images, PATCHES])
    c, features = region_covariance(images), pixel_features(images)
    assert c.dtype == torch.float64 and c.shape == (len(images), 9, 9) and len(FEATURES) == 9
    assert features.shape == (len(images), 9, *shape)
    for image, ours, seen in zip(images, c, features, strict=True):
        np.testing.assert_allclose(seen, explicit_features(image.numpy()), rtol=0, atol=1e-14)
        np.testing.assert_allclose(ours, explicit_covariance(image.numpy()), rtol=1e-12, atol=1e-15)


def test_matrices_are_positive_definite_and_no_worse_conditioned_than_the_ridge_allows():
    blank = torch.stack([torch.full((3, 28, 28), value, dtype=torch.uint8) for value in (0, 128, 255)])
    noise = torch.from_numpy(stream(1, "images").integers(0, 2, (5, 3, 28, 28)).astype(np.uint8) * 255)
    c = region_covariance(torch.cat([blank, noise, PATCHES]))
    assert torch.equal(c, c.mT)
    values = torch.linalg.eigvalsh(c)
    ridge = 1e-6 / (1 + 1e-6) * c.diagonal(dim1=1, dim2=2).mean(1)  # 1e-6 tr/9 of C, from the trace of C + ridge
    assert (values[:, 0] > ridge * (1 - 1e-6)).all()
    assert (values[:, -1] / values[:, 0] <= 9e6 + 1.1).all()
    # a blank image: x and y have the variance of 28 equally likely steps, the rest none but the ridge
    variance = (28**2 - 1) / 12 / 27**2 * 784 / 783
    for row in values[:3]:
        np.testing.assert_allclose(row[:7], 1e-6 * 2 * variance / 9, rtol=1e-6)
        np.testing.assert_allclose(row[7:], variance, rtol=1e-6)


def test_a_descriptor_depends_on_its_own_image_only(monkeypatch):
    c = region_covariance(PATCHES)
    changed = PATCHES.clone()
    changed[7] = 255 - changed[7].roll(3, -1)
    other = region_covariance(changed)
    same = torch.tensor([i != 7 for i in range(40)])
    assert torch.equal(other[same], c[same]) and not torch.allclose(other[7], c[7])
    order = torch.from_numpy(stream(0, "order").permutation(40))
    assert torch.equal(region_covariance(PATCHES[order]), c[order])
    for chunk in (1, 7, 40):
        monkeypatch.setattr(module, "CHUNK", chunk)
        torch.testing.assert_close(region_covariance(PATCHES), c, rtol=1e-13, atol=1e-16)
    assert region_covariance(PATCHES[:0]).shape == (0, 9, 9)


@pytest.mark.parametrize(
    ("images", "error"),
    [(PATCHES.int(), TypeError), (PATCHES.float(), ValueError), (-PATCHES.float() / 255, ValueError)],
)
def test_images_on_another_scale_are_refused(images, error):
    with pytest.raises(error, match="^images: got .*; allowed is uint8 in 0..255, or"):
        region_covariance(images)
    torch.testing.assert_close(region_covariance(PATCHES.double() / 255), region_covariance(PATCHES))
